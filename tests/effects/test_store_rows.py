"""How effects stand in a store: which rows there are for which record, in bytes, and that they are read back."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate.effects import (
    EffectEvent,
    EffectId,
    EffectRecord,
    EffectStatus,
    EffectStore,
    Transition,
    decode_event,
    decode_record,
)
from pystate.effects.effect_rows import BY_LEASE, EFFECTS, EVENTS
from pystate.tables import check_table
from tests.effects.samples import TTL, T
from tests.effects.stores import new_effect, record_effect, request
from tests.effects.values import events, ids, records, times

S = EffectStatus
ID = EffectId("018bcfe5-6800-7000-8000-0000000000ff")
ROW = bytes.fromhex("00018bcfe56800700080000000000000ff")
SEGMENT = bytes.fromhex("00000011") + ROW


def instant(seconds: int) -> bytes:
    """A time as it stands in the rows of indexes."""
    return (1_700_000_000 + seconds + 2**63).to_bytes(8, "big") + bytes(4)


def rows_of(effects: EffectStore) -> dict[bytes, bytes]:
    """The rows of indexes, and the keys of the others."""
    return {key: value if key[0] >= 0xF8 else b"..." for key, value in effects.store.family("effects").items()}


def test_the_rows_of_an_effect_are_these_in_every_part_of_its_life() -> None:
    """The format: changing what stands here loses the effects of every store that there is."""
    effects = EffectStore.memory()
    new = new_effect("order_1")
    record = effects.insert_or_get(type(new)(id=ID, key=new.key, kind=new.kind, now=T(0))).record
    always = {ROW: b"...", b"\xf8payment.charge\0\0order_1\0\0": ROW}
    pending = {b"\xf9\x01" + SEGMENT: ROW, b"\xfb" + bytes(13) + SEGMENT: ROW}
    assert rows_of(effects) == always | pending
    lease = effects.acquire_lease(ID, "a", T(0), TTL)
    assert rows_of(effects) == always | pending
    record = effects.transition(request(record, Transition.START_ATTEMPT, 1, lease=lease))
    executing = {b"\xf9\x03" + SEGMENT: ROW}
    assert rows_of(effects) == always | executing | {b"\xfa\x01" + instant(30) + SEGMENT: ROW}
    effects.renew_lease(lease, T(2), TTL)
    assert rows_of(effects) == always | executing | {b"\xfa\x01" + instant(32) + SEGMENT: ROW}
    effects.release_lease(lease)
    assert rows_of(effects) == always | executing | {b"\xfa" + bytes(13) + SEGMENT: ROW}
    record = effects.transition(request(record, Transition.SCHEDULE_RETRY, 3, next_attempt_at=T(9)))
    assert rows_of(effects) == always | {
        b"\xf9\x01" + SEGMENT: ROW,
        b"\xfb\x01" + instant(9) + SEGMENT: ROW,
    }
    record = effects.transition(request(record, Transition.START_ATTEMPT, 9))
    record = effects.transition(request(record, Transition.SUCCEEDED, 10))
    assert rows_of(effects) == always | {
        b"\xf9\x06" + SEGMENT: ROW,
        b"\xfc\x06" + instant(10) + SEGMENT: ROW,
    }
    trail = effects.store.family("effect events")
    assert list(trail) == [ROW + number.to_bytes(8, "big") for number in (1, 2, 3, 4)]
    assert [decode_event(value).sequence for value in trail.values()] == [1, 2, 3, 4]
    assert decode_record(effects.store.family("effects")[ROW]) == record


@pytest.mark.parametrize(("number", "status"), list(enumerate(S, 1)), ids=str)
def test_each_status_has_its_number_and_stands_in_the_indexes_it_should(number: int, status: EffectStatus) -> None:
    effects = EffectStore.memory()
    record_effect(effects, status=status)
    tags = {key[:2] for key in effects.store.family("effects") if key[0] >= 0xF9}
    expected = {bytes((0xF9, number))}
    if status in (S.EXECUTING, S.VERIFYING):
        expected.add(b"\xfa\0")
    if status in (S.PENDING, S.UNKNOWN, S.COMPENSATING):
        expected.add(b"\xfb\0")
    if status.is_settled:
        expected.add(bytes((0xFC, number)))
    assert tags == expected


@given(records)
def test_any_record_can_be_stored_and_read(record: EffectRecord) -> None:
    """Whatever its id begins with, and whatever it has in its fields."""
    store = pystate.memory(families=EffectStore.FAMILIES)
    with store.begin() as txn:
        EFFECTS.store_record(txn.family("effects"), record)
    key = EFFECTS.row_key(record)
    assert key[0] == 0 and EFFECTS.key.decode(key) == (record.id,)
    assert EFFECTS.stored(store.family("effects"), key) == record
    assert check_table(EFFECTS, store.family("effects")) == []
    with store.begin() as txn:
        assert EFFECTS.remove_record(txn.family("effects"), key)
    assert len(store.family("effects")) == 0


@given(events)
def test_any_event_can_be_stored_and_read(event: EffectEvent) -> None:
    store = pystate.memory(families=EffectStore.FAMILIES)
    with store.begin() as txn:
        EVENTS.store_record(txn.family("effect events"), event)
    key = EVENTS.row_key(event)
    assert EVENTS.key.decode(key) == (event.effect_id, event.sequence)
    assert EVENTS.stored(store.family("effect events"), key) == event


@given(st.lists(ids, min_size=2, max_size=2), st.lists(st.none() | times, min_size=2, max_size=2))
def test_rows_sort_as_what_they_are_made_of(two: list[EffectId], ends: list[None]) -> None:
    keys = [EFFECTS.key.encode(each) for each in two]
    assert (keys[0] < keys[1]) == (two[0] < two[1]) == (two[0].uuid.int < two[1].uuid.int)
    prefixes = [BY_LEASE.prefix(end) for end in ends]
    order = [(end is not None, end) for end in ends]
    assert (prefixes[0] < prefixes[1]) == (order[0] < order[1])


@pytest.mark.parametrize("data", [b"", b"\0" * 16, b"\1" * 17, b"\0" * 18])
def test_what_is_no_key_of_a_record_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="id"):
        EFFECTS.key.decode(data)


def test_other_things_are_no_keys() -> None:
    with pytest.raises(TypeError, match="an EffectId expected, not str"):
        EFFECTS.key.encode("018bcfe5-6800-7000-8000-0000000000ff")
    with pytest.raises(TypeError, match="an EffectId expected, not UUID"):
        EFFECTS.key.encode(UUID(int=1))
    status = EFFECTS.index("status").key
    assert status.decode(b"\x0c") == (S.COMPENSATION_FAILED,)
    with pytest.raises(TypeError, match="an EffectStatus expected, not str"):
        status.encode("pending")
    for wrong in (b"\0", b"\x0d", b""):
        with pytest.raises(ValueError, match="number of a status"):
            status.decode(wrong)
