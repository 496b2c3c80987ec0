"""The attempts that the checks of the specification are about (its section 17), and stores to put them in.

`M`, `CORE`, `ONB`, `L`, `T` and `B` have their names from there. Instants are given in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

import pystate
from pystate import FamilyReader, Store
from pystate.review.operation_attempt import (
    FAMILY,
    OPERATION_ATTEMPTS,
    Action,
    CleanupState,
    OperationAttempt,
    Outcome,
    Phase,
    RetryPolicy,
)
from pystate.review.operation_attempts import OperationAttempts, RetentionBound

__all__ = [
    "CORE",
    "HOST",
    "ONB",
    "OTHER",
    "OWING",
    "PIG",
    "TEARDOWN",
    "B",
    "L",
    "M",
    "T",
    "at",
    "attempts_of",
    "changed",
    "checked_store",
    "format_keys",
    "keys",
    "overwrite",
    "raw_keys",
]

HOST, OTHER, PIG = "host-a.example", "host-b.example", "piglet"
OWING, TEARDOWN = CleanupState.PENDING_DEREGISTER, CleanupState.PENDING_IDENTITY_TEARDOWN

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """The instant so many seconds after the beginning of 1970."""
    return _EPOCH + timedelta(seconds=seconds)


def changed(attempt: OperationAttempt, **fields: Any) -> OperationAttempt:
    """The attempt with other values in some fields."""
    return msgspec.structs.replace(attempt, **fields)


def M(key: str, **fields: Any) -> OperationAttempt:
    """A module that is being installed."""
    attempt = OperationAttempt(
        idempotency_key=key,
        host=HOST,
        target="sensor",
        instance=1,
        action=Action.INSTALL,
        package_digest="sha256:aaa",
        resolved_version="1.2.3",
        resolved_commit="c0ffee",
        phase=Phase.PENDING,
        cleanup_state=None,
        started_at=at(1_700_000_000),
        retry_policy=RetryPolicy(max_attempts=5, attempts_made=0, backoff_seconds=30),
        outcome=None,
        expires_at=at(1_700_086_400),
        backup_id=None,
        pre_update_version=None,
    )
    return changed(attempt, **fields)


def CORE(key: str, **fields: Any) -> OperationAttempt:
    """A core component that is being updated."""
    attempt = OperationAttempt(
        idempotency_key=key,
        host=OTHER,
        target="review",
        instance=None,
        action=Action.UPDATE,
        package_digest="sha256:bbb",
        resolved_version="0.47.0",
        resolved_commit="deadbeef",
        phase=Phase.DISPATCHED,
        cleanup_state=None,
        started_at=at(1_700_000_100),
        retry_policy=RetryPolicy(max_attempts=3, attempts_made=1, backoff_seconds=60),
        outcome=None,
        expires_at=at(1_700_100_000),
        backup_id=None,
        pre_update_version=None,
    )
    return changed(attempt, **fields)


def ONB(key: str, **fields: Any) -> OperationAttempt:
    """A host that is being onboarded."""
    attempt = OperationAttempt(
        idempotency_key=key,
        host="pending.example",
        target="",
        instance=None,
        action=Action.ONBOARD,
        package_digest="",
        resolved_version="",
        resolved_commit="",
        phase=Phase.PENDING,
        cleanup_state=TEARDOWN,
        started_at=at(1_700_000_200),
        retry_policy=RetryPolicy(max_attempts=1, attempts_made=0, backoff_seconds=0),
        outcome=None,
        expires_at=at(1_700_003_800),
        backup_id=None,
        pre_update_version=None,
    )
    return changed(attempt, **fields)


def L(key: str, host: str = HOST, target: str = PIG, instance: int | None = 1, /, **fields: Any) -> OperationAttempt:
    """A live attempt of a triple."""
    return M(key, host=host, target=target, instance=instance, **fields)


def T(
    key: str,
    started: float,
    expires: float = 9_000,
    host: str = HOST,
    target: str = PIG,
    instance: int | None = 1,
    /,
    **fields: Any,
) -> OperationAttempt:
    """A finished attempt of a triple."""
    finished = {
        "phase": Phase.COMPLETED,
        "outcome": Outcome.SUCCEEDED,
        "started_at": at(started),
        "expires_at": at(expires),
    }
    return L(key, host, target, instance, **finished | fields)


def B(max_age: float, keep: int) -> RetentionBound:
    """A retention bound: so many seconds, and so many of each triple."""
    return RetentionBound(max_age=timedelta(seconds=max_age), max_terminal_per_triple=keep)


@contextmanager
def checked_store() -> Iterator[Store]:
    """A store in memory with the family of the attempts; at the end every index row must be as the attempts say."""
    with pystate.memory(families=[FAMILY]) as store:
        yield store
        assert attempts_of(store).check() == []


def attempts_of(source: pystate.Store | pystate.Transaction | pystate.View) -> OperationAttempts:
    """The table of the attempts, bound."""
    return OperationAttempts(OPERATION_ATTEMPTS, source)


def overwrite(store: Store, key: str, value: bytes = b"not a stored value") -> None:
    """Put bytes under the key of an attempt behind the back of its table."""
    store.family(FAMILY).put(key.encode(), value)


def keys(attempts: Iterable[OperationAttempt]) -> list[str]:
    """The idempotency keys of attempts, in the order given."""
    return [attempt.idempotency_key for attempt in attempts]


def raw_keys(store: Store) -> list[bytes]:
    """Every key of the family, those of all index rows included."""
    return list(store.family(FAMILY))


def format_keys(rows: FamilyReader) -> list[bytes]:
    """The keys that the format knows: of attempts, and of the three indexes 0xf8 to 0xfa; not those that are ours."""
    return [key for key in rows if key < b"\xfb"]
