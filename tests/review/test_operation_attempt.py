"""`OperationAttempt` and the schema of its family: what is stored where, position by position and byte by byte.

Values are MessagePack arrays here, so the checks of the specification about value bytes are made on what stands at each
position; keys are as it says, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate import Store
from pystate.errors import DecodeError, InvalidRecordError
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
from pystate.review.operation_attempts import OperationAttempts
from pystate.review.stored import StoredEnum
from pystate.tables import Table
from tests.review.attempts import (
    CORE,
    HOST,
    ONB,
    OWING,
    PIG,
    B,
    L,
    M,
    T,
    at,
    attempts_of,
    changed,
    checked_store,
    keys,
    overwrite,
)

LIVE = OPERATION_ATTEMPTS.index("live")
OWED = OPERATION_ATTEMPTS.index("owed cleanup")
EXPIRY = OPERATION_ATTEMPTS.index("expiry")


@pytest.fixture
def store() -> Iterator[Store]:
    with checked_store() as store:
        yield store


@pytest.fixture
def attempts(store: Store) -> OperationAttempts:
    return attempts_of(store)


def positions(attempt: OperationAttempt) -> list[Any]:
    """What stands in the stored value, position by position."""
    value: list[Any] = msgspec.msgpack.decode(OPERATION_ATTEMPTS.encode(attempt))
    return value


def from_hex(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


# ---- values


def test_the_positions_of_a_value_are_fields_1_to_15_in_order() -> None:
    """Check R46: as decoded positions."""
    assert positions(M("op-1")) == [
        "host-a.example", "sensor", 1, 0, "sha256:aaa", "1.2.3", "c0ffee", 0, None,
        at(1_700_000_000), [5, 0, 30], None, at(1_700_086_400), None, None,
    ]  # fmt: skip
    assert positions(CORE("op-2", backup_id=7, pre_update_version="0.46.0")) == [
        "host-b.example", "review", None, 1, "sha256:bbb", "0.47.0", "deadbeef", 1, None,
        at(1_700_000_100), [3, 1, 60], None, at(1_700_100_000), 7, "0.46.0",
    ]  # fmt: skip
    assert positions(ONB("op-3")) == [
        "pending.example", "", None, 3, "", "", "", 0, 1,
        at(1_700_000_200), [1, 0, 0], None, at(1_700_003_800), None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "attempt",
    [M("op-1"), CORE("op-2", backup_id=7, pre_update_version="0.46.0"), ONB("op-3")],
    ids=["M", "CORE", "ONB"],
)
def test_what_is_encoded_decodes_to_itself(attempt: OperationAttempt) -> None:
    """Check R46: back again."""
    row_key, value = OPERATION_ATTEMPTS.row_key(attempt), OPERATION_ATTEMPTS.encode(attempt)
    assert row_key == attempt.idempotency_key.encode()
    assert OPERATION_ATTEMPTS.decode(row_key, value) == attempt


MEMBERS: list[tuple[str, int, StoredEnum, int, int]] = [
    ("action", 3, Action.INSTALL, 1, 0),
    ("action", 3, Action.UPDATE, 2, 1),
    ("action", 3, Action.REMOVE, 3, 2),
    ("action", 3, Action.ONBOARD, 4, 3),
    ("phase", 7, Phase.PENDING, 1, 0),
    ("phase", 7, Phase.DISPATCHED, 2, 1),
    ("phase", 7, Phase.AWAITING_REPORT, 3, 2),
    ("phase", 7, Phase.COMPLETED, 4, 3),
    ("cleanup_state", 8, CleanupState.PENDING_DEREGISTER, 1, 0),
    ("cleanup_state", 8, CleanupState.PENDING_IDENTITY_TEARDOWN, 2, 1),
    ("outcome", 11, Outcome.SUCCEEDED, 1, 0),
    ("outcome", 11, Outcome.FAILED, 2, 1),
    ("outcome", 11, Outcome.ROLLED_BACK, 3, 2),
    ("outcome", 11, Outcome.CANCELLED, 4, 3),
]
"""Each field with an enum: its position, and of each member the number and the stored index."""


def test_the_members_below_are_all() -> None:
    listed = [member for _, _, member, _, _ in MEMBERS]
    assert listed == [*Action, *Phase, *CleanupState, *Outcome]


@pytest.mark.parametrize(("field", "position", "member", "number", "index"), MEMBERS, ids=str)
def test_members_are_stored_by_their_index(
    attempts: OperationAttempts, field: str, position: int, member: StoredEnum, number: int, index: int
) -> None:
    """Check R47: every variant round-trips; the stored index of ROLLED_BACK is 2, of ONBOARD 3."""
    attempt = changed(M("op-1"), **{field: member})
    assert member.number == number
    assert positions(attempt)[position] == index
    attempts.upsert(attempt)
    assert attempts.get("op-1") == attempt


@pytest.mark.parametrize(("field", "position"), [("cleanup_state", 8), ("outcome", 11)])
def test_no_cleanup_and_no_outcome_are_stored_as_nothing(
    attempts: OperationAttempts, field: str, position: int
) -> None:
    """Check R47: none round-trips too."""
    attempt = changed(T("op-1", 1000, cleanup_state=OWING), **{field: None})
    assert positions(attempt)[position] is None
    attempts.upsert(attempt)
    assert attempts.get("op-1") == attempt


WRONG: dict[str, tuple[int, Any]] = {
    "an unknown action": (3, 4),
    "an unknown phase": (7, 4),
    "an unknown cleanup state": (8, 2),
    "an unknown outcome": (11, 4),
    "an action by name": (3, "install"),
    "a host that is no text": (0, 1),
    "an instance that is too large": (2, 2**32),
    "a negative instance": (2, -1),
    "a retry policy of two": (10, [5, 0]),
    "a retry policy of four": (10, [5, 0, 30, 1]),
    "a retry policy that is too large": (10, [5, 0, 2**32]),
    "an instant that is a number": (9, 1_700_000_000),
    "no deadline": (12, None),
    "a backup id that is text": (13, "7"),
}


@pytest.mark.parametrize(("position", "value"), WRONG.values(), ids=WRONG)
def test_value_with_a_wrong_position_is_not_decoded(
    store: Store, attempts: OperationAttempts, position: int, value: Any
) -> None:
    """Check R48: an action index of 4, and every other position that is not what it must be."""
    row = positions(M("op-1"))
    row[position] = value
    overwrite(store, "op-1", msgspec.msgpack.encode(row))
    with pytest.raises(DecodeError) as caught:
        attempts.get("op-1")
    field = OperationAttempt.__struct_fields__[1 + position]
    assert field in caught.value.reason
    assert (caught.value.family, caught.value.key) == (FAMILY, b"op-1")
    attempts.delete("op-1")


def test_value_that_is_longer_or_shorter_is_not_decoded(store: Store, attempts: OperationAttempts) -> None:
    """Check R49: one byte appended; also one cut off, a position more and a position less, at either end."""
    value, row = OPERATION_ATTEMPTS.encode(M("op-1")), positions(M("op-1"))
    wrong = [value + b"\0", value + value, value[:-1], b"", b"\x9f", value[:1]]
    shapes: list[Any] = [[*row, None], row[:-1], row[1:], [HOST, *row], {}, None]
    wrong += [msgspec.msgpack.encode(shape) for shape in shapes]
    for each in wrong:
        overwrite(store, "op-1", each)
        with pytest.raises(DecodeError):
            attempts.get("op-1")
    attempts.delete("op-1")


NAIVE = at(0).replace(tzinfo=None)
BAD_FIELDS: dict[str, tuple[str, Any]] = {
    "a member of another enum": ("action", Outcome.FAILED),
    "a number for a member": ("phase", 1),
    "instance": ("instance", 2**32),
    "negative instance": ("instance", -1),
    "backup_id": ("backup_id", 2**32),
    "retry_policy": ("retry_policy", RetryPolicy(max_attempts=2**32, attempts_made=0, backoff_seconds=0)),
    "host": ("host", 1),
    "lone surrogate": ("target", "\ud800"),
    "naive started_at": ("started_at", NAIVE),
    "naive expires_at": ("expires_at", NAIVE),
    "text as an instant": ("expires_at", "2023-11-14T22:13:20Z"),
    "instant that is not indexed as text": ("started_at", "2023-11-14T22:13:20Z"),
    "outcome as text": ("outcome", "failed"),
}


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_attempt_that_could_not_be_read_again_is_refused_and_nothing_is_written(
    store: Store, attempts: OperationAttempts, field: str, value: Any
) -> None:
    """Sizes of section 1, naive instants, text that UTF-8 cannot hold: refused before a byte is written."""
    bad = changed(M("op-1"), **{field: value})
    with pytest.raises(InvalidRecordError):
        attempts.upsert(bad)
    assert dict(store.family(FAMILY)) == {}


# ---- keys


def test_live_keys_of_different_triples_differ() -> None:
    """Check R50: host and target cannot run into one another."""
    one, other = LIVE.prefix("ab", "c", 1), LIVE.prefix("a", "bc", 1)
    assert one == from_hex("f8 00000002 6162 00000001 63 01 00000001")
    assert other == from_hex("f8 00000001 61 00000002 6263 01 00000001")


def test_live_key_tells_no_instance_from_instance_zero() -> None:
    """Check R51."""
    assert LIVE.prefix(HOST, PIG, None).endswith(from_hex("00 00000000"))
    assert LIVE.prefix(HOST, PIG, 0).endswith(from_hex("01 00000000"))


def test_live_and_owed_keys_as_in_the_vectors() -> None:
    """The byte vectors of section 18 for keys: N and C."""
    host, target = "0000000e 686f73742d612e6578616d706c65", "00000006 7069676c6574"
    assert LIVE.row(b"op-1", L("op-1")) == from_hex(f"f8 {host} {target} 01 00000001")
    assert LIVE.prefix(HOST, PIG, None) == from_hex(f"f8 {host} {target} 00 00000000")
    owing = L("op-1", cleanup_state=OWING)
    assert OWED.row(b"op-1", owing) == from_hex(f"f9 {target} {host} 01 00000001 00000004 6f702d31")


TIMES = {
    -60: "7f ff ff ff ff ff ff c4 00 00 00 00",
    -0.5: "7f ff ff ff ff ff ff ff 1d cd 65 00",
    0: "80 00 00 00 00 00 00 00 00 00 00 00",
    60: "80 00 00 00 00 00 00 3c 00 00 00 00",
}


def test_timestamps_sort_as_time_does_across_1970() -> None:
    """Check R52."""
    encoded = [EXPIRY.prefix(at(seconds)) for seconds in TIMES]
    assert encoded == [from_hex("fa" + text) for text in TIMES.values()]
    assert encoded == sorted(encoded)


def test_expiry_key_ends_with_the_key_of_the_attempt() -> None:
    """Check R53."""
    expected = from_hex("fa 80 00 00 00 65 55 42 80 00 00 00 00 00 00 00 04 6f 70 2d 31")
    assert EXPIRY.row(b"op-1", M("op-1")) == expected


def test_owed_prefix_of_an_onboarding_has_an_empty_target() -> None:
    """Check R54."""
    expected = from_hex("f9 00000000 0000000f") + b"pending.example" + from_hex("00 00000000")
    assert OWED.prefix("", "pending.example", None) == expected


def test_instants_keep_their_microseconds(attempts: OperationAttempts) -> None:
    """Check R55: instants have microseconds here, so the example is read to these, and deadlines differ by one."""
    started = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    deadline = at(1_700_000_500)
    attempts.upsert(M("op-2", started_at=started, expires_at=deadline))
    attempts.upsert(CORE("op-1", expires_at=deadline + timedelta(microseconds=1)))
    stored = attempts.get("op-2")
    assert stored is not None and stored.started_at == started
    assert keys(attempts.expired_attempts(deadline)) == ["op-2"]
    assert keys(attempts.expired_attempts(deadline + timedelta(microseconds=1))) == ["op-2", "op-1"]


# ---- the record itself


def test_finished_and_discharged() -> None:
    """Check R72."""
    live = M("op-1")
    states = [
        live,
        changed(live, cleanup_state=OWING),
        changed(live, cleanup_state=OWING, outcome=Outcome.FAILED),
        changed(live, outcome=Outcome.FAILED),
    ]
    assert [(each.is_terminal, each.is_fully_discharged) for each in states] == [
        (False, False),
        (False, False),
        (True, False),
        (True, True),
    ]


def test_attempts_are_values() -> None:
    """They compare by content and cannot be changed."""
    assert M("op-1") == M("op-1") != M("op-2")
    with pytest.raises(AttributeError):
        M("op-1").host = "other"  # type: ignore[misc]


def test_no_other_table_takes_an_attempt() -> None:
    """Check R21: the generic writes are not to be had for this type; see `Table`."""
    with pytest.raises(TypeError, match="OperationAttempts only"):
        Table(OperationAttempt, family=FAMILY, key=OPERATION_ATTEMPTS.key)


def test_retention_bound_refuses_what_is_none() -> None:
    assert (B(60, 0).max_age, B(60, 0).max_terminal_per_triple) == (timedelta(minutes=1), 0)
    with pytest.raises(ValueError, match="negative"):
        B(60, -1)
    for number in (True, 1.0, "1", None):
        with pytest.raises(TypeError, match="max_terminal_per_triple"):
            B(60, number)  # type: ignore[arg-type]


UTF8 = st.text(st.characters(codec="utf-8"), max_size=8)
U32S = st.integers(0, 2**32 - 1)
INSTANTS = st.datetimes(timezones=st.just(UTC))


def members(kind: type[Enum]) -> st.SearchStrategy[Any]:
    return st.sampled_from(list(kind))


ANY_ATTEMPT = st.builds(
    OperationAttempt,
    idempotency_key=UTF8.filter(bool),
    host=UTF8,
    target=UTF8,
    instance=st.none() | U32S,
    action=members(Action),
    package_digest=UTF8,
    resolved_version=UTF8,
    resolved_commit=UTF8,
    phase=members(Phase),
    cleanup_state=st.none() | members(CleanupState),
    started_at=INSTANTS,
    retry_policy=st.builds(RetryPolicy, max_attempts=U32S, attempts_made=U32S, backoff_seconds=U32S),
    outcome=st.none() | members(Outcome),
    expires_at=INSTANTS,
    backup_id=st.none() | U32S,
    pre_update_version=st.none() | UTF8,
)


@given(ANY_ATTEMPT)
def test_every_attempt_comes_back_as_it_was(attempt: OperationAttempt) -> None:
    with checked_store() as store:
        attempts = attempts_of(store)
        attempts.upsert(attempt)
        assert attempts.get(attempt.idempotency_key) == attempt
        assert list(attempts.iter()) == [attempt]
        attempts.delete(attempt.idempotency_key)
        assert dict(store.family(FAMILY)) == {}
