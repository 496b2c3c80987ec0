"""What goes into the rules and comes out of them: new effects, leases, requests for a transition, events.

All are frozen, and checked when they are made: a time is aware and becomes UTC, a payload is JSON and is copied. So
what is stored is what was handed over at that moment, and a call with a mistake has changed nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec
from msgspec.structs import force_setattr

from pystate.effects.checks import as_instance, as_u32, settle_text, settle_time
from pystate.effects.contract import ExecutionContract
from pystate.effects.ids import EffectId, EffectKey
from pystate.effects.kinds import EffectKind, ErrorRecord
from pystate.effects.payload import ABSENT, AbsentType, JsonValue, as_json
from pystate.effects.state import EffectStatus, Transition

__all__ = ["EffectEvent", "Lease", "NewEffect", "TransitionRequest", "Versioned"]


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the holder of a lease keeps.

    Attributes:
        effect_id: the effect it is for.
        owner: who holds it.
        epoch: which one in the row of leases on the effect.
        expires_at: when it ends, as of when this was made. Only for the holder: the rules ask the record.
    """

    effect_id: EffectId
    owner: str
    epoch: int
    expires_at: datetime


class NewEffect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an effect record begins with.

    Attributes:
        id: of the record.
        key: which logical effect it is.
        kind: what doing it twice would mean.
        execution_contract: the safety assumptions; None gives nobody permission to run it.
        input_schema_version: of the input.
        input: as JSON, already redacted, or `ABSENT`.
        input_fingerprint: to recognise another input by, or None.
        created_by: who asked for it, or None.
        now: when.

    Raises:
        TypeError, ValueError: a field has another type, or is out of its range; a time is naive.
        NotJsonError: the input is no JSON.
    """

    id: EffectId
    key: EffectKey
    kind: EffectKind
    execution_contract: ExecutionContract | None = None
    input_schema_version: int = 1
    input: JsonValue | AbsentType = ABSENT
    input_fingerprint: str | None = None
    created_by: str | None = None
    now: datetime

    def __post_init__(self) -> None:
        as_instance(self.id, EffectId, "id")
        as_instance(self.key, EffectKey, "key")
        as_instance(self.kind, EffectKind, "kind")
        if self.execution_contract is not None:
            as_instance(self.execution_contract, ExecutionContract, "execution_contract")
        as_u32(self.input_schema_version, "input_schema_version")
        if self.input is not ABSENT:
            force_setattr(self, "input", as_json(self.input, "input"))
        settle_text(self, "input_fingerprint", "created_by")
        as_instance(self.now, datetime, "now")
        settle_time(self, "now")

    @classmethod
    def new(
        cls,
        key: EffectKey,
        kind: EffectKind,
        now: datetime,
        *,
        execution_contract: ExecutionContract | None = None,
        input_schema_version: int = 1,
        input: JsonValue | AbsentType = ABSENT,  # noqa: A002
        input_fingerprint: str | None = None,
        created_by: str | None = None,
    ) -> NewEffect:
        """The same with a fresh id. Raises what the class raises."""
        return cls(
            id=EffectId.new(),
            key=key,
            kind=kind,
            execution_contract=execution_contract,
            input_schema_version=input_schema_version,
            input=input,
            input_fingerprint=input_fingerprint,
            created_by=created_by,
            now=now,
        )


class Versioned(Protocol):
    """What a request needs of a record: which one it is, and its version as it was read."""

    @property
    def id(self) -> EffectId:
        """The effect."""

    @property
    def version(self) -> int:
        """How many transitions it had taken."""


class TransitionRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A change that is asked for.

    Attributes:
        id: the effect.
        expected_version: the version that the caller last saw.
        lease: the caller's, or None (operators).
        transition: which step.
        now: when.
        output: as JSON, to be stored, or `ABSENT`.
        output_schema_version: of that output; without an output it is ignored.
        error: to be stored, or None.
        next_attempt_at: for a retry, or an outcome that is unknown: not before this time; or None.
        actor: who does it; goes into the event only.
        payload: as JSON, or `ABSENT`; goes into the event only.

    Raises:
        TypeError, ValueError: a field has another type, or is out of its range; a time is naive.
        NotJsonError: the output or the payload is no JSON.
    """

    id: EffectId
    expected_version: int
    lease: Lease | None
    transition: Transition
    now: datetime
    output: JsonValue | AbsentType = ABSENT
    output_schema_version: int | None = None
    error: ErrorRecord | None = None
    next_attempt_at: datetime | None = None
    actor: str | None = None
    payload: JsonValue | AbsentType = ABSENT

    def __post_init__(self) -> None:
        as_instance(self.id, EffectId, "id")
        as_instance(self.expected_version, int, "expected_version")
        as_instance(self.transition, Transition, "transition")
        if self.lease is not None:
            as_instance(self.lease, Lease, "lease")
        if self.error is not None:
            as_instance(self.error, ErrorRecord, "error")
        if self.output_schema_version is not None:
            as_u32(self.output_schema_version, "output_schema_version")
        if self.output is not ABSENT:
            force_setattr(self, "output", as_json(self.output, "output"))
        if self.payload is not ABSENT:
            force_setattr(self, "payload", as_json(self.payload, "payload"))
        as_instance(self.now, datetime, "now")
        settle_time(self, "now", "next_attempt_at")
        settle_text(self, "actor")

    @classmethod
    def new(
        cls,
        record: Versioned,
        lease: Lease | None,
        transition: Transition,
        now: datetime,
        *,
        output: JsonValue | AbsentType = ABSENT,
        output_schema_version: int | None = None,
        error: ErrorRecord | None = None,
        next_attempt_at: datetime | None = None,
        actor: str | None = None,
        payload: JsonValue | AbsentType = ABSENT,
    ) -> TransitionRequest:
        """The same with the id and the version of a record as it was read. Raises what the class raises."""
        return cls(
            id=record.id,
            expected_version=record.version,
            lease=lease,
            transition=transition,
            now=now,
            output=output,
            output_schema_version=output_schema_version,
            error=error,
            next_attempt_at=next_attempt_at,
            actor=actor,
            payload=payload,
        )


class EffectEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One accepted transition, as the audit trail keeps it.

    Attributes:
        effect_id: the effect.
        sequence: from 1 without gaps; the version of the record after it.
        transition: which step.
        from_status, to_status: the status before and after.
        attempt: how many attempts had been started after it.
        actor: who did it, or None.
        payload: as JSON, or `ABSENT`.
        at: when.
    """

    effect_id: EffectId
    sequence: int
    transition: Transition
    from_status: EffectStatus
    to_status: EffectStatus
    attempt: int
    actor: str | None = None
    payload: JsonValue | AbsentType = ABSENT
    at: datetime
