"""What holds for core components, agents, external services and deletion jobs alike: nothing lost, nothing crashes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pystate
from pystate.errors import DecodeError, InvalidRecordError
from tests.engine.memory_files import DIRECTORY, MemoryFiles
from tests.review.plain_tables import PLAIN_TABLES, PlainTable, broken_rows

every_table = pytest.mark.parametrize("table", PLAIN_TABLES, ids=lambda table: table.family)


def key_of(table: PlainTable, record: Any) -> tuple[Any, ...]:
    return table.schema.key.values(record)


@every_table
@given(data=st.data())
def test_any_record_comes_back_as_it_was_after_reopening(table: PlainTable, data: st.DataObject) -> None:
    records = data.draw(st.lists(table.records, max_size=5, unique_by=table.schema.row_key))
    files = MemoryFiles()
    with pystate.open(DIRECTORY, files=files) as store:
        store.create_family(table.family)
        table.bind(table.schema, store).insert_many(records)
    with pystate.open(DIRECTORY, files=files) as store:
        bound = table.bind(table.schema, store)
        assert [bound.get(*key_of(table, record)) for record in records] == records
        assert list(bound.iter()) == sorted(records, key=table.schema.row_key)
        assert bound.check() == []


@every_table
@given(data=st.data())
def test_what_is_read_is_written_as_the_same_bytes_and_can_be_hashed_copied_and_pickled(
    table: PlainTable, data: st.DataObject
) -> None:
    record = data.draw(table.records)
    key, value = table.schema.row_key(record), table.schema.encode(record)
    read = table.schema.decode(key, value)
    assert (table.schema.row_key(read), table.schema.encode(read)) == (key, value)
    assert hash(read) == hash(record)
    assert copy.deepcopy(read) == pickle.loads(pickle.dumps(read)) == record


@every_table
@settings(max_examples=300)
@given(data=st.data())
def test_a_row_that_holds_anything_is_read_or_reported_and_never_raises_another_error(
    table: PlainTable, data: st.DataObject
) -> None:
    key, value = data.draw(broken_rows(table))
    store = pystate.memory(families=[table.family])
    store.family(table.family).put(key, value)
    bound = table.bind(table.schema, store)
    ((record, error),) = bound.iter_results()
    if error is not None:
        assert isinstance(error, DecodeError)
        assert (error.family, error.key) == (table.family, key)
        with pytest.raises(DecodeError):
            list(bound.iter())
        bound.delete_row(error.key)
        assert list(bound.iter_results()) == []
    else:
        assert bound.get(*key_of(table, record)) == record
        assert table.schema.decode(key, table.schema.encode(record)) == record


@every_table
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdd\xff\xff\xff\xff"], ids=["arrays", "maps", "lengths"])
def test_a_value_that_is_nested_or_long_beyond_reason_is_reported_at_every_position(
    table: PlainTable, opening: bytes
) -> None:
    record = table.sample
    key, good = table.schema.row_key(record), table.schema.encode(record)
    positions = [msgspec.msgpack.encode(field) for field in msgspec.msgpack.decode(good)]
    for at in range(len(positions)):
        value = good[:1] + b"".join(positions[:at]) + opening * 50_000
        with pytest.raises(DecodeError):
            table.schema.decode(key, value)


@every_table
def test_a_missing_a_surplus_and_a_wrongly_typed_position_are_errors(table: PlainTable) -> None:
    record = table.sample
    key = table.schema.row_key(record)
    fields = msgspec.msgpack.decode(table.schema.encode(record))
    wrong = [fields[:-1], [*fields, None], {"fields": fields}, None, "text"]
    wrong += [[*fields[:at], 2.5, *fields[at + 1 :]] for at in range(len(fields))]
    for value in wrong:
        with pytest.raises(DecodeError):
            table.schema.decode(key, msgspec.msgpack.encode(value))


@every_table
def test_a_record_with_a_field_of_another_type_is_refused_and_nothing_is_written(table: PlainTable) -> None:
    record = table.sample
    store = pystate.memory(families=[table.family])
    bound = table.bind(table.schema, store)
    for field in msgspec.structs.fields(type(record)):
        with pytest.raises(InvalidRecordError) as raised:
            bound.put(msgspec.structs.replace(record, **{field.name: 2.5}))
        assert repr(field.name) in raised.value.reason
    assert len(store.family(table.family)) == 0


@every_table
def test_every_field_is_named_when_a_record_is_made(table: PlainTable) -> None:
    fields = msgspec.structs.asdict(table.sample)
    kind = table.schema.record
    for name in fields:
        with pytest.raises(TypeError, match=name):
            kind(**{other: value for other, value in fields.items() if other != name})
    with pytest.raises(TypeError):
        kind(*fields.values())
    with pytest.raises(AttributeError):
        setattr(table.sample, next(iter(fields)), None)


@every_table
def test_a_view_reads_and_refuses_to_write(table: PlainTable) -> None:
    record = table.sample
    store = pystate.memory(families=[table.family])
    table.bind(table.schema, store).insert(record)
    with store.view() as view:
        bound = table.bind(table.schema, view)
        assert bound.get(*key_of(table, record)) == record
        with pytest.raises(TypeError, match="view"):
            bound.put(record)
        with pytest.raises(TypeError, match="view"):
            bound.delete(*key_of(table, record))


@every_table
def test_operations_of_a_transaction_leave_nothing_when_it_is_rolled_back(table: PlainTable) -> None:
    record = table.sample
    store = pystate.memory(families=[table.family])
    with store.begin() as txn:
        table.bind(table.schema, txn).insert(record)
        assert table.bind(table.schema, txn).get(*key_of(table, record)) == record
        txn.rollback()
    assert list(table.bind(table.schema, store).iter()) == []
