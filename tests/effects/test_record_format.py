"""Records and events in bytes and in JSON: everything there and back, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pystate.effects import (
    ABSENT,
    EffectEvent,
    EffectId,
    EffectKey,
    EffectKind,
    EffectName,
    EffectRecord,
    EffectStatus,
    ErrorRecord,
    ExecutionContract,
    FailureClass,
    LogicalKey,
    MalformedError,
    Transition,
    VerificationContract,
    decode_event,
    decode_record,
    encode_event,
    encode_record,
    event_to_json,
    record_from_json,
    record_to_json,
)
from tests.effects.samples import T, fresh
from tests.effects.values import events, records

ID = EffectId("018bcfe5-6800-7000-8000-000000000001")
#: Every field set, each to a value of its own.
FULL = EffectRecord(
    id=ID,
    key=EffectKey(EffectName("payment.charge"), LogicalKey("bestellung ä")),
    kind=EffectKind.REVERSIBLE_WRITE,
    execution_contract=ExecutionContract(
        kind=EffectKind.REVERSIBLE_WRITE,
        remote_idempotency=True,
        verification=VerificationContract.eventually_consistent(timedelta(seconds=10, microseconds=1)),
        handler_version="2024-01",
        adapter="stripe",
        require_approval=True,
        automatic_retry=False,
        max_attempts=7,
    ),
    input_schema_version=2,
    output_schema_version=3,
    status=EffectStatus.COMPENSATION_FAILED,
    input={"amount": 4200, "tags": ["a", None, 1.5, True]},
    input_fingerprint="sha256:00",
    output=None,
    last_error=ErrorRecord(failure_class=FailureClass.rate_limited(timedelta(seconds=9)), message="429"),
    created_by="caller",
    attempt_count=4,
    may_have_applied=True,
    compensation_attempts=5,
    approved=True,
    next_attempt_at=T(1.000001),
    attempt_started_at=T(2),
    attempt_ended_at=T(3),
    lease_owner="worker",
    lease_epoch=6,
    lease_expires_at=T(4),
    version=9,
    committed_at=T(5),
    created_at=T(0),
    updated_at=T(6),
)
EMPTY = EffectRecord(
    id=ID, key=EffectKey(EffectName("n"), LogicalKey("k")), kind=EffectKind.READ, created_at=T(0), updated_at=T(0)
)
EVENT = EffectEvent(
    effect_id=ID,
    sequence=2,
    transition=Transition.SCHEDULE_RETRY,
    from_status=EffectStatus.EXECUTING,
    to_status=EffectStatus.PENDING,
    attempt=1,
    actor="worker:a",
    payload={"delay_ms": 9000},
    at=T(2),
)

# As the first release wrote them. They must stay readable for ever, so they are never made anew.
GOLDEN_FULL = (
    "dc001b01c410018bcfe568007000800000000000000192ae7061796d656e742e636861726765ad62657374656c6c756e6720"
    "c3a4b072657665727369626c655f77726974659901b072657665727369626c655f7772697465c392b56576656e7475616c6c"
    "795f636f6e73697374656e74ac505431302e30303030303153a7323032342d3031a6737472697065c3c2070203b3636f6d70"
    "656e736174696f6e5f6661696c656482a6616d6f756e74cd1068a47461677394a161c0cb3ff8000000000000c3a973686132"
    "35363a3030c09292ac726174655f6c696d69746564a450543953a3343239a663616c6c657204c305c3d7ff00000fa06553f1"
    "01d6ff6553f102d6ff6553f103a6776f726b657206d6ff6553f10409d6ff6553f105d6ff6553f100d6ff6553f106"
)
GOLDEN_EMPTY = (
    "dc001b01c410018bcfe568007000800000000000000192a16ea16ba472656164c00101a770656e64696e67c70000c0c70000"
    "c0c000c200c2c0c0c0c000c000c0d6ff6553f100d6ff6553f100"
)
GOLDEN_EVENT = (
    "9a01c410018bcfe568007000800000000000000102b66566666563742e72657472795f7363686564756c6564a96578656375"
    "74696e67a770656e64696e6701a8776f726b65723a6181a864656c61795f6d73cd2328d6ff6553f102"
)


def test_the_stored_bytes_stay_readable() -> None:
    """Golden bytes: the layout does not change without a new number."""
    assert decode_record(bytes.fromhex(GOLDEN_FULL)) == FULL
    assert decode_record(bytes.fromhex(GOLDEN_EMPTY)) == EMPTY
    assert decode_event(bytes.fromhex(GOLDEN_EVENT)) == EVENT
    assert encode_record(FULL).hex() == GOLDEN_FULL
    assert encode_record(EMPTY).hex() == GOLDEN_EMPTY
    assert encode_event(EVENT).hex() == GOLDEN_EVENT


def test_the_layout_is_the_one_that_is_written_down() -> None:
    """Element by element, read without the code of the package."""
    elements = msgspec.msgpack.decode(encode_record(FULL))
    assert elements[:9] == [
        1,
        bytes.fromhex("018bcfe568007000800000000000000 1".replace(" ", "")),
        ["payment.charge", "bestellung ä"],
        "reversible_write",
        [1, "reversible_write", True, ["eventually_consistent", "PT10.000001S"], "2024-01", "stripe", True, False, 7],
        2,
        3,
        "compensation_failed",
        {"amount": 4200, "tags": ["a", None, 1.5, True]},
    ]
    assert elements[9:17] == ["sha256:00", None, [["rate_limited", "PT9S"], "429"], "caller", 4, True, 5, True]
    assert elements[17:20] == [T(1.000001), T(2), T(3)]
    assert elements[20:] == ["worker", 6, T(4), 9, T(5), T(0), T(6)]
    empty = msgspec.msgpack.decode(encode_record(EMPTY))
    assert empty[8] == empty[10] == msgspec.msgpack.Ext(0, b"")
    assert msgspec.msgpack.decode(encode_event(EVENT)) == [
        1, ID.to_bytes(), 2, "effect.retry_scheduled", "executing", "pending", 1, "worker:a", {"delay_ms": 9000}, T(2),
    ]  # fmt: skip


@given(records)
def test_a_record_in_bytes_and_back_is_the_same(record: EffectRecord) -> None:
    """Every field, absent and null apart, times to the microsecond."""
    read = decode_record(encode_record(record))
    assert read == record
    assert (read.input is ABSENT, read.output is ABSENT) == (record.input is ABSENT, record.output is ABSENT)
    assert encode_record(read) == encode_record(record)
    for name in ("created_at", "updated_at", "next_attempt_at"):
        value = getattr(read, name)
        assert value is None or value.tzinfo is UTC
    assert (type(read.id), type(read.key.name), type(read.key.key)) == (EffectId, EffectName, LogicalKey)


@given(events)
def test_an_event_in_bytes_and_back_is_the_same(event: EffectEvent) -> None:
    read = decode_event(encode_event(event))
    assert read == event
    assert (read.payload is ABSENT) == (event.payload is ABSENT)


def test_absent_and_null_are_told_apart_in_bytes() -> None:
    with_null, without = replace(EMPTY, output=None), EMPTY
    assert encode_record(with_null) != encode_record(without)
    assert decode_record(encode_record(with_null)).output is None
    assert decode_record(encode_record(without)).output is ABSENT


RECORD_BYTES, EVENT_BYTES = encode_record(FULL), encode_event(EVENT)


@pytest.mark.parametrize("size", range(len(RECORD_BYTES)))
def test_a_record_cut_short_is_refused(size: int) -> None:
    with pytest.raises(MalformedError, match="effect record"):
        decode_record(RECORD_BYTES[:size])


def elements_of(data: bytes) -> list[Any]:
    return msgspec.msgpack.decode(data)  # type: ignore[no-any-return]


def test_missing_and_additional_elements_are_refused() -> None:
    """Strict: no element is taken from a default."""
    record, event = elements_of(RECORD_BYTES), elements_of(EVENT_BYTES)
    for count in range(len(record)):
        with pytest.raises(MalformedError):
            decode_record(msgspec.msgpack.encode(record[:count]))
    for count in range(len(event)):
        with pytest.raises(MalformedError):
            decode_event(msgspec.msgpack.encode(event[:count]))
    for data in (msgspec.msgpack.encode([*record, None]), RECORD_BYTES + b"\xc0"):
        with pytest.raises(MalformedError):
            decode_record(data)
    for data in (msgspec.msgpack.encode([*event, None]), EVENT_BYTES + b"\xc0"):
        with pytest.raises(MalformedError):
            decode_event(data)


SHORT_CONTRACT = [1, "read", True, ["none", None], "1", None, False, True]
WRONG: dict[int, list[Any]] = {
    0: [2, 0, "1", None],
    1: [b"short", "018bcfe5-6800-7000-8000-000000000001", None],
    2: [["n"], ["n", ""], ["", "k"], ["n", "k", "x"], ["n\n", "k"], "n:k", {"name": "n", "key": "k"}],
    3: ["write", None, 1],
    4: [
        [],
        SHORT_CONTRACT,
        [*SHORT_CONTRACT, -1],
        [*SHORT_CONTRACT, 5, None],
        [*SHORT_CONTRACT[:3], ["none", "PT1S"], "1", None, False, True, 5],
        {},
    ],
    5: [-1, 2**32, 1.0, True, None],
    6: [-1, 2**32, None],
    7: ["done", None],
    8: [msgspec.msgpack.Ext(1, b""), msgspec.msgpack.Ext(0, b"x")],
    9: [b"x", 1],
    11: [
        "m",
        [None],
        [["fatal", None], "m"],
        [["transient", "PT1S"], "m"],
        [["rate_limited", "-PT1S"], "m"],
        [None, 5],
        [["transient"], "m"],
    ],
    12: [5],
    13: [-1, 2**32, None],
    14: [None, 0, 1],
    17: [5, "2024-01-01T00:00:00", "soon"],
    20: [5, b"x"],
    21: [-1, 2**64 - 1 + 0.5, None],
    22: [0],
    23: [-1, None],
    25: [None],
    26: [None, 0],
}


CASES = [(at, number, value) for at, values in WRONG.items() for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("at", "value"),
    [(at, value) for at, _, value in CASES],
    ids=[f"{at}, {number}" for at, number, _ in CASES],
)
def test_a_wrong_element_is_refused(at: int, value: object) -> None:
    elements = elements_of(RECORD_BYTES)
    elements[at] = value
    with pytest.raises(MalformedError, match="effect record"):
        decode_record(msgspec.msgpack.encode(elements))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 2),
        (1, b"x"),
        (2, 0),
        (2, "1"),
        (3, "start_attempt"),
        (3, "effect.done"),
        (4, "x"),
        (6, -1),
        (7, 5),
        (9, None),
    ],
)
def test_a_wrong_element_of_an_event_is_refused(at: int, value: object) -> None:
    elements = elements_of(EVENT_BYTES)
    elements[at] = value
    with pytest.raises(MalformedError, match="effect event"):
        decode_event(msgspec.msgpack.encode(elements))


@given(st.integers(0, len(RECORD_BYTES) - 1), st.integers(0, 255))
def test_a_wrong_byte_gives_a_record_or_an_error(at: int, value: int) -> None:
    """Never anything else: whatever comes out is a whole record that can be written again."""
    data = bytearray(RECORD_BYTES)
    data[at] = value
    try:
        record = decode_record(bytes(data))
    except MalformedError:
        return
    assert encode_record(record)


@given(st.binary(max_size=60))
def test_random_bytes_are_refused(data: bytes) -> None:
    for decode in (decode_record, decode_event):
        with pytest.raises(MalformedError):
            decode(data)


def test_endless_nesting_in_bytes_is_refused() -> None:
    elements = msgspec.msgpack.encode(elements_of(encode_record(replace(FULL, input=7))))
    at = elements.index(b"\x07", elements.index(b"compensation_failed"))
    with pytest.raises(MalformedError):
        decode_record(elements[:at] + b"\x91" * 100_000 + elements[at:])


# JSON

FULL_JSON = {
    "id": "018bcfe5-6800-7000-8000-000000000001",
    "key": {"name": "payment.charge", "key": "bestellung ä"},
    "kind": "reversible_write",
    "execution_contract": {
        "format_version": 1,
        "kind": "reversible_write",
        "remote_idempotency": True,
        "verification": {"mode": "eventually_consistent", "settle": {"secs": 10, "nanos": 1000}},
        "handler_version": "2024-01",
        "adapter": "stripe",
        "require_approval": True,
        "automatic_retry": False,
        "max_attempts": 7,
    },
    "input_schema_version": 2,
    "output_schema_version": 3,
    "status": "compensation_failed",
    "input": {"amount": 4200, "tags": ["a", None, 1.5, True]},
    "input_fingerprint": "sha256:00",
    "output": None,
    "last_error": {"class": {"class": "rate_limited", "retry_after": {"secs": 9, "nanos": 0}}, "message": "429"},
    "created_by": "caller",
    "attempt_count": 4,
    "may_have_applied": True,
    "compensation_attempts": 5,
    "approved": True,
    "next_attempt_at": "2023-11-14T22:13:21.000001Z",
    "attempt_started_at": "2023-11-14T22:13:22Z",
    "attempt_ended_at": "2023-11-14T22:13:23Z",
    "lease_owner": "worker",
    "lease_epoch": 6,
    "lease_expires_at": "2023-11-14T22:13:24Z",
    "version": 9,
    "committed_at": "2023-11-14T22:13:25Z",
    "created_at": "2023-11-14T22:13:20Z",
    "updated_at": "2023-11-14T22:13:26Z",
}


def test_the_json_of_a_record() -> None:
    """An object with the names of the fields; what is absent is left out, and null is not absent."""
    assert record_to_json(FULL) == FULL_JSON
    assert list(record_to_json(EMPTY)) == [
        "id", "key", "kind", "input_schema_version", "output_schema_version", "status", "attempt_count",
        "may_have_applied", "compensation_attempts", "approved", "lease_epoch", "version", "created_at", "updated_at",
    ]  # fmt: skip
    assert record_from_json(FULL_JSON) == FULL
    assert json.dumps(record_to_json(FULL)) and msgspec.json.encode(record_to_json(EMPTY))


@given(records)
def test_a_record_in_json_text_and_back_is_the_same(record: EffectRecord) -> None:
    if record.lease_epoch >= 2**63 or record.version >= 2**63:
        return  # more than a reader of JSON takes, and than a record can get to
    read = record_from_json(json.loads(json.dumps(record_to_json(record))))
    assert read == record
    assert (read.input is ABSENT, read.output is ABSENT) == (record.input is ABSENT, record.output is ABSENT)


def test_the_json_of_an_event() -> None:
    assert event_to_json(EVENT) == {
        "effect_id": str(ID),
        "sequence": 2,
        "transition": "effect.retry_scheduled",
        "from_status": "executing",
        "to_status": "pending",
        "attempt": 1,
        "actor": "worker:a",
        "payload": {"delay_ms": 9000},
        "at": "2023-11-14T22:13:22Z",
    }
    bare = event_to_json(replace(EVENT, actor=None, payload=None))
    assert "actor" not in bare and bare["payload"] is None
    assert "payload" not in event_to_json(replace(EVENT, payload=ABSENT))


def test_a_record_from_before_there_were_contracts() -> None:
    """Check E67: no contract, and both versions are 1."""
    older = {
        name: value
        for name, value in record_to_json(fresh(input={"a": 1})).items()
        if name not in ("execution_contract", "input_schema_version", "output_schema_version")
    }
    read = record_from_json(older)
    assert (read.execution_contract, read.input_schema_version, read.output_schema_version) == (None, 1, 1)
    assert read.input == {"a": 1} and read.output is ABSENT


OPTIONAL = {
    "execution_contract", "input_schema_version", "output_schema_version", "input", "input_fingerprint", "output",
    "last_error", "created_by", "next_attempt_at", "attempt_started_at", "attempt_ended_at", "lease_owner",
    "lease_expires_at", "committed_at",
}  # fmt: skip


@pytest.mark.parametrize("name", FULL_JSON)
def test_a_missing_field_is_absent_or_an_error(name: str) -> None:
    """Check E67: only what may be absent may be missing."""
    value = {other: field for other, field in FULL_JSON.items() if other != name}
    if name not in OPTIONAL:
        with pytest.raises(MalformedError, match=name):
            record_from_json(value)
        return
    default = {"input": ABSENT, "output": ABSENT, "input_schema_version": 1, "output_schema_version": 1}
    assert record_from_json(value) == replace(FULL, **{name: default.get(name)})
    if name not in default:
        assert record_from_json(FULL_JSON | {name: None}) == replace(FULL, **{name: None})


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x"},
        {"key": {"name": "", "key": "k"}},
        {"key": {"name": "n"}},
        {"kind": "write"},
        {"status": "done"},
        {"attempt_count": -1},
        {"attempt_count": 2**32},
        {"version": "1"},
        {"created_at": "2023-11-14T22:13:20"},
        {"created_at": 1_700_000_000},
        {"execution_contract": FULL_JSON["execution_contract"] | {"more": 1}},  # type: ignore[operator]
        {"last_error": {"message": "m", "more": 1}},
        {"last_eror": None},
    ],
    ids=str,
)
def test_other_json_is_refused(change: dict[str, Any]) -> None:
    """An unknown field too: it may be a misspelled one that would be read as absent."""
    with pytest.raises(MalformedError):
        record_from_json(FULL_JSON | change)


def test_times_of_other_zones_in_json_become_utc() -> None:
    read = record_from_json(FULL_JSON | {"created_at": "2023-11-15T03:43:20+05:30"})
    assert read.created_at == T(0) and read.created_at.tzinfo is UTC


def test_times_at_the_ends_survive() -> None:
    for end in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        record = replace(EMPTY, created_at=end)
        assert decode_record(encode_record(record)) == record == record_from_json(record_to_json(record))
