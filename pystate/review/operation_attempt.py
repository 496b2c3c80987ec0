"""`OperationAttempt`: one package operation on a host, and the schema of the family that holds them.

The record is what survives a restart of whoever drives the operation: what was in flight, which build it was about,
what is still owed. Its `idempotency_key` is its whole identity. The table stores what it is given; that a target is
empty exactly for `Action.ONBOARD`, and that `backup_id` and `pre_update_version` are set together, is up to the
callers.

Besides the three indexes that belong to the format (tags 0xf8 to 0xfa), two serve retention, so that neither a sweep
nor a prune costs more as finished attempts pile up: 0xfb holds the deadlines of live attempts only, and 0xfc to 0xfe
are a `RetentionIndex` of the finished ones. They are derived: `rebuild_indexes` makes them from the records.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from pystate.review.stored import U32, Instant, StoredEnum
from pystate.tables import (
    Index,
    Key,
    PositionalValue,
    RetentionIndex,
    Schema,
    instant,
    optional,
    rest_text,
    segment,
    uint32,
)

__all__ = [
    "FAMILY",
    "OPERATION_ATTEMPTS",
    "RETENTION",
    "Action",
    "CleanupState",
    "OperationAttempt",
    "Outcome",
    "Phase",
    "RetryPolicy",
]

FAMILY = "operation attempts"
"""The family of the attempts."""


class Action(StoredEnum):
    """What the operator wanted; for display and audit."""

    INSTALL = 0, 1
    UPDATE = 1, 2
    REMOVE = 2, 3
    ONBOARD = 3, 4


class Phase(StoredEnum):
    """How far an operation has come, coarsely."""

    PENDING = 0, 1
    DISPATCHED = 1, 2
    AWAITING_REPORT = 2, 3
    COMPLETED = 3, 4


class CleanupState(StoredEnum):
    """What is still owed, whatever the outcome."""

    PENDING_DEREGISTER = 0, 1
    PENDING_IDENTITY_TEARDOWN = 1, 2


class Outcome(StoredEnum):
    """How an operation has ended."""

    SUCCEEDED = 0, 1
    FAILED = 1, 2
    ROLLED_BACK = 2, 3
    CANCELLED = 3, 4


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """How often to try; stored only, nothing here counts.

    Attributes:
        max_attempts: at most so many.
        attempts_made: so many were made.
        backoff_seconds: seconds to wait before another one.
    """

    max_attempts: U32
    attempts_made: U32
    backoff_seconds: U32


class OperationAttempt(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """One package operation on a host.

    Attributes:
        idempotency_key: its identity, not empty; storing the same key again replaces the attempt.
        host: that it applies to; for ONBOARD the pending host.
        target: the package, without a host; empty for ONBOARD.
        instance: the number of a module's instance; None for a core component and for ONBOARD.
        action: what the operator wanted.
        package_digest, resolved_version, resolved_commit: the build; empty for ONBOARD.
        phase: how far it has come.
        cleanup_state: what is still owed, whatever the outcome; None: nothing.
        started_at: when it began.
        retry_policy: stored only.
        outcome: how it has ended; None while it is live.
        expires_at: its deadline; every action has one.
        backup_id: the backup made before an update of the manager itself, else None.
        pre_update_version: the format version before that update; set exactly when `backup_id` is.
    """

    __table__: ClassVar[str] = "OperationAttempts"

    idempotency_key: str
    host: str
    target: str
    instance: U32 | None
    action: Action
    package_digest: str
    resolved_version: str
    resolved_commit: str
    phase: Phase
    cleanup_state: CleanupState | None
    started_at: Instant
    retry_policy: RetryPolicy
    outcome: Outcome | None
    expires_at: Instant
    backup_id: U32 | None
    pre_update_version: str | None

    @property
    def is_terminal(self) -> bool:
        """It has ended: `outcome` is set."""
        return self.outcome is not None

    @property
    def is_fully_discharged(self) -> bool:
        """It has ended and owes nothing."""
        return self.outcome is not None and self.cleanup_state is None


_KEY = Key(idempotency_key=rest_text)
_TRIPLE = Key(host=segment, target=segment, instance=optional(uint32))

RETENTION: RetentionIndex[OperationAttempt] = RetentionIndex(
    "retention",
    history_tag=0xFC,
    superseded_tag=0xFD,
    counts_tag=0xFE,
    group=_TRIPLE,
    order=Key(started_at=instant),
    member=lambda attempt: attempt.outcome is not None,
    expendable=lambda attempt: attempt.cleanup_state is None,
)
"""The finished attempts of each (host, target, instance), oldest first; what owes cleanup may not go."""

OPERATION_ATTEMPTS: Schema[OperationAttempt] = Schema(
    OperationAttempt,
    family=FAMILY,
    key=_KEY,
    value=PositionalValue(OperationAttempt, _KEY),
    indexes=[
        Index("live", tag=0xF8, key=_TRIPLE, unique=True, condition=lambda attempt: attempt.outcome is None),
        Index(
            "owed cleanup",
            tag=0xF9,
            key=Key(target=segment, host=segment, instance=optional(uint32)),
            condition=lambda attempt: attempt.cleanup_state is not None,
        ),
        Index("expiry", tag=0xFA, key=Key(expires_at=instant)),
        Index("live expiry", tag=0xFB, key=Key(expires_at=instant), condition=lambda attempt: attempt.outcome is None),
        RETENTION,
    ],
)
"""The schema of the family. No `Table`: only `OperationAttempts` writes here."""
