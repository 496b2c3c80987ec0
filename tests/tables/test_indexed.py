"""Indexed tables: ids that stay, updates by description, secondary indexes, damage, threads. Section 17.2 of the
specification."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pystate
from pystate import ConflictError, FamilyNotFoundError, Store
from pystate.errors import (
    CorruptIndexError,
    DecodeError,
    EntryChangedError,
    IdOutOfRangeError,
    InvalidRecordError,
    KeyExistsError,
    NoSuchIdError,
    PystateError,
    SlotTakenError,
)
from pystate.tables import (
    BoundIndexedTable,
    BoundIndexedView,
    Fields,
    IndexedTable,
    Key,
    KeyIndex,
    Writable,
    rest_text,
    uint32,
)
from pystate.testing import Scenario, explore
from tests.tables.customers import (
    CUSTOMERS,
    FAMILIES,
    MEMBERS,
    NETWORKS,
    Customer,
    Member,
    Network,
    customer,
    member,
    memory_store,
    network,
)


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        with memory_store() as opened:
            yield opened
    else:
        with pystate.open(tmp_path / "s", families=FAMILIES, durability="process") as opened:
            yield opened


@pytest.fixture
def customers(store: Store) -> Iterator[BoundIndexedTable[Customer]]:
    """Whatever a test does, the table is right afterwards, unless its rows were written past it."""
    table = CUSTOMERS.bind(store)
    yield table
    assert table.check() == []


@pytest.fixture
def members(store: Store) -> Iterator[BoundIndexedTable[Member]]:
    table = MEMBERS.bind(store)
    yield table
    assert table.check() == []


@pytest.fixture
def networks(store: Store) -> Iterator[BoundIndexedTable[Network]]:
    table = NETWORKS.bind(store)
    yield table
    assert table.check() == []


def content(store: Store) -> dict[str, dict[bytes, bytes]]:
    """Every row of every family."""
    return {name: dict(store.family(name)) for name in store.families}


def refused(store: Store, error: type[PystateError], match: str, operation: Callable[[], object]) -> None:
    """An operation raises this, and leaves every row as it was."""
    before = content(store)
    with pytest.raises(error, match=match):
        operation()
    assert content(store) == before


# Putting and finding


def test_put_gives_an_id_and_ignores_the_one_given(customers: BoundIndexedTable[Customer]) -> None:
    assert customers.put(customer("a", "x", id=7)) == 0
    assert customers.put(customer("b", id=0)) == 1
    assert customers.get_by_id(0) == customers.get("a") == customer("a", "x", id=0)
    assert customers.get_by_id(1) == customers.get("b") == customer("b", id=1)
    assert customers.count() == 2
    assert list(customers.key_index().entries()) == [(0, b"a"), (1, b"b")]


def test_record_with_an_empty_key_is_refused(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    """Check R34."""
    refused(store, InvalidRecordError, r"its key \(name\) is empty", partial(customers.put, customer("")))
    assert customers.count() == 0


def test_key_that_is_taken_is_refused_and_takes_no_id(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    """Check R35."""
    customers.put(customer("a", "first"))
    refused(store, KeyExistsError, "key b'a': exists already", partial(customers.put, customer("a", "second")))
    assert customers.count() == 1
    assert customers.put(customer("b")) == 1


def test_removed_id_is_used_again(customers: BoundIndexedTable[Customer]) -> None:
    """Check R36."""
    customers.put(customer("a"))
    customers.put(customer("b"))
    assert customers.remove(0) == b"a"
    assert customers.get_by_id(0) is None
    assert customers.get("a") is None
    assert customers.count() == 1
    assert customers.put(customer("c")) == 0


def test_ids_stand_under_the_empty_key_and_are_no_record(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    """Check R37."""
    customers.put(customer("b"))
    customers.put(customer("a"))
    assert list(store.family("customers")) == [b"", b"a", b"b"]
    assert KeyIndex.decode(store.family("customers")[b""]) == KeyIndex.of({0: b"b", 1: b"a"})
    assert [each.name for each in customers.iter()] == ["a", "b"]
    assert [each.name for each in customers.iter(reverse=True)] == ["b", "a"]
    assert [error for _, error in customers.iter_results(reverse=True)] == [None, None]


def test_deactivated_id_is_used_again_when_it_was_cleared(customers: BoundIndexedTable[Customer]) -> None:
    for name in "abc":
        customers.put(customer(name))
    assert customers.deactivate(0) == b"a"
    assert customers.deactivate(2) == b"c"
    assert customers.count() == 1
    assert customers.get_by_id(0) is customers.get("a") is None
    assert customers.put(customer("d")) == 3
    assert customers.clear_inactive() == 2
    assert customers.clear_inactive() == 0
    assert [customers.put(customer(name)) for name in "ac"] == [0, 2]


@pytest.mark.parametrize("operation", ["remove", "deactivate"])
def test_id_that_nothing_has_cannot_be_removed(
    store: Store, customers: BoundIndexedTable[Customer], operation: str
) -> None:
    customers.put(customer("a"))
    customers.put(customer("b"))
    customers.remove(0)
    customers.deactivate(1)
    remove = getattr(customers, operation)
    refused(store, NoSuchIdError, "family 'customers': nothing has id 0 now", partial(remove, 0))
    refused(store, NoSuchIdError, "nothing has id 1 now", partial(remove, 1))
    refused(store, IdOutOfRangeError, "id 2 is out of range", partial(remove, 2))
    with pytest.raises(TypeError, match="an id is an int"):
        remove("0")


def test_reading_by_id_and_key_finds_nothing_where_nothing_is(customers: BoundIndexedTable[Customer]) -> None:
    customers.put(customer("a", "x"))
    assert [customers.get_by_id(number) for number in (-1, 1, 1 << 40)] == [None] * 3
    assert customers.get_by_key(b"b") is None
    assert msgspec.msgpack.decode(customers.get_by_key(b"a") or b"") == {"id": 0, "name": "a", "note": "x"}
    with pytest.raises(ValueError, match="the key is empty"):
        customers.get_by_key(b"")
    with pytest.raises(ValueError, match="the key is empty"):
        customers.get("")
    with pytest.raises(TypeError, match="a key is bytes, not str"):
        customers.get_by_key("a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="an id is an int"):
        customers.get_by_id("0")  # type: ignore[arg-type]


def test_record_that_cannot_be_stored_takes_no_id(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    wrong = Customer(id=0, name="a", note=5)  # type: ignore[arg-type]
    refused(store, InvalidRecordError, "field 'note'", partial(customers.put, wrong))
    with pytest.raises(TypeError, match="a Customer expected"):
        customers.put(member("a"))  # type: ignore[arg-type]
    assert customers.put(customer("a")) == 0


def test_many_records_are_put_in_one_commit(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    customers.put_many([customer("a"), customer("b")])
    customers.remove(0)
    before = store.sequence
    assert customers.put_many(customer(name) for name in "cde") == [0, 2, 3]
    assert store.sequence == before + 1
    assert [customers.get_by_id(number).name for number in range(4)] == list("cbde")  # type: ignore[union-attr]
    assert customers.put_many([]) == []
    wrong = Customer(id=0, name="z", note=5)  # type: ignore[arg-type]
    twice = "it is among the given records twice"
    refused(store, KeyExistsError, twice, partial(customers.put_many, [customer("y"), customer("y")]))
    refused(store, KeyExistsError, "key b'c'", partial(customers.put_many, [customer("y"), customer("c")]))
    refused(store, InvalidRecordError, "note", partial(customers.put_many, [customer("y"), wrong]))
    assert content(store)["customers"].keys() == {b"", b"c", b"b", b"d", b"e"}


# Updates


def test_update_to_a_key_that_is_taken_is_refused(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    """Check R38."""
    customers.put(customer("a"))
    customers.put(customer("b"))
    refused(store, KeyExistsError, "key b'b'", partial(customers.update, 0, customer("a"), customer("b")))
    refused(store, KeyExistsError, "key b'b'", partial(customers.update, 0, customer("a"), Fields(CUSTOMERS, name="b")))


def test_update_of_what_is_not_stored_is_refused(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    """Check R39: by a record and by some of its fields."""
    customers.put(customer("a", "x"))
    for old in (customer("c", "x"), customer("a", "y"), Fields(CUSTOMERS, name="c"), Fields(CUSTOMERS, note="y")):
        with pytest.raises(
            EntryChangedError, match="id 0, key b'a': the stored record is not what `old` says"
        ) as caught:
            customers.update(0, old, customer("z"))
        assert (caught.value.family, caught.value.key, caught.value.id) == ("customers", b"a", 0)
    assert content(store)["customers"].keys() == {b"", b"a"}
    assert customers.get("a") == customer("a", "x", id=0)


@pytest.mark.parametrize("new", [customer("z", id=9), Fields(CUSTOMERS, name="z")], ids=["record", "fields"])
def test_renamed_record_keeps_its_id(store: Store, customers: BoundIndexedTable[Customer], new: Any) -> None:
    """Check R40."""
    customers.put(customer("a"))
    assert customers.update(0, customer("a"), new) == customer("z", id=0)
    assert customers.get_by_id(0) == customers.get("z") == customer("z", id=0)
    assert list(store.family("customers")) == [b"", b"z"]
    assert customers.count() == 1
    assert customers.put(customer("a")) == 1


def test_update_of_an_id_that_nothing_has(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    """Check R41: with a new key and without one; and free or inactive ids."""
    for name in "abc":
        customers.put(customer(name))
    customers.remove(1)
    customers.deactivate(2)
    with_key, without = Fields(CUSTOMERS, name="z"), Fields(CUSTOMERS, note="z")
    anything = Fields(CUSTOMERS)
    refused(store, IdOutOfRangeError, "id 7 is out of range", partial(customers.update, 7, anything, with_key))
    refused(store, NoSuchIdError, "nothing has id 7", partial(customers.update, 7, anything, without))
    for number in (1, 2):
        for new in (with_key, without):
            refused(store, NoSuchIdError, f"nothing has id {number}", partial(customers.update, number, anything, new))
    with pytest.raises(TypeError, match="an id is an int"):
        customers.update("0", anything, without)  # type: ignore[arg-type]


def test_update_in_place_replaces_what_is_described(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    customers.put(customer("a", "x"))
    customers.put(customer("b", "x"))
    before = store.family("customers")[b""]
    assert customers.update(1, Fields(CUSTOMERS, note="x"), Fields(CUSTOMERS, note="y")) == customer("b", "y", id=1)
    assert customers.update(1, customer("b", "y", id=5), customer("b", "z", id=6)) == customer("b", "z", id=1)
    assert customers.update(1, Fields(CUSTOMERS), Fields(CUSTOMERS)) == customer("b", "z", id=1)
    assert customers.update(1, Fields(CUSTOMERS), Fields(CUSTOMERS, name="b", note="")) == customer("b", id=1)
    assert customers.get("a") == customer("a", "x", id=0)
    assert store.family("customers")[b""] is before  # an id that keeps its key costs no rewriting of all ids


def test_update_that_cannot_be_applied_is_refused(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    customers.put(customer("a"))

    class Wrong(Fields[Customer]):
        def apply(self, stored: Customer) -> Customer:
            raise ValueError("no such note")

    class Elsewhere(Fields[Customer]):
        def apply(self, stored: Customer) -> Customer:
            return customer("elsewhere")

    anything = Fields(CUSTOMERS)
    for new, text in (
        (Wrong(CUSTOMERS), "this Customer cannot be stored: no such note"),
        (Wrong(CUSTOMERS, name="z"), "no such note"),
        (Elsewhere(CUSTOMERS), "its key is b'elsewhere', but the change says b'a'"),
        (Elsewhere(CUSTOMERS, name="z"), "its key is b'elsewhere', but the change says b'z'"),
        (Fields(CUSTOMERS, note=5), "field 'note'"),
        (Fields(CUSTOMERS, name="z", note=5), "field 'note'"),
        (Fields(CUSTOMERS, name=""), r"its key \(name\) is empty"),
        (customer(""), r"its key \(name\) is empty"),
        (Fields(CUSTOMERS, name="z" * 70_000), "70,000 bytes"),
    ):
        refused(store, InvalidRecordError, text, partial(customers.update, 0, anything, new))
    with pytest.raises(TypeError, match="a Customer or a Change of one expected, not str"):
        customers.update(0, "a", anything)  # type: ignore[arg-type]


def test_fields_that_do_not_exist_cannot_be_described() -> None:
    with pytest.raises(TypeError, match="has no field colour to describe; it has"):
        Fields(CUSTOMERS, colour="red")
    with pytest.raises(TypeError, match="has no field id to describe"):
        Fields(CUSTOMERS, id=3)
    with pytest.raises(InvalidRecordError, match="key field 'name'"):
        Fields(CUSTOMERS, name=5)
    assert repr(Fields(CUSTOMERS, note="x", name="a")) == "Fields(note='x', name='a')"


def test_composite_key_changes_as_a_whole(store: Store, networks: BoundIndexedTable[Network]) -> None:
    """Some fields of the key alone are compared in the old one, and change nothing in the new one."""
    networks.put(network(1, "a", "x"))
    anything = Fields(NETWORKS)
    assert networks.update(0, Fields(NETWORKS, customer_id=1), Fields(NETWORKS, name="z", note="y")) == network(
        1, "a", "y"
    )
    with pytest.raises(EntryChangedError):
        networks.update(0, Fields(NETWORKS, customer_id=2), Fields(NETWORKS, note="z"))
    assert networks.update(0, anything, Fields(NETWORKS, customer_id=2, name="z")) == network(2, "z", "y")
    assert list(store.family("networks")) == [b"", b"\x00\x00\x00\x02z"]
    assert msgspec.msgpack.decode(store.family("networks")[b"\x00\x00\x00\x02z"]) == [0, "y"]
    assert networks.get(2, "z") == networks.get_by_id(0) == network(2, "z", "y")
    assert networks.put(network(1, "a")) == 1
    assert [each.name for each in networks.iter(prefix=(1,))] == ["a"]


def test_old_record_of_another_key_is_another_record(store: Store, networks: BoundIndexedTable[Network]) -> None:
    """Check R39: where the key is not part of the value: all that differs is where the record stands."""
    networks.put(network(1, "a", "x"))
    for old in (network(1, "b", "x"), network(2, "a", "x")):
        refused(store, EntryChangedError, "not what `old` says", partial(networks.update, 0, old, network(1, "a")))
    assert networks.update(0, network(1, "a", "x"), network(1, "a", "y")) == network(1, "a", "y")


def test_failures_come_in_a_fixed_order(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    """The description first, then the id, the row, the old record, the new key, and what is to be written."""
    customers.put(customer("a"))
    customers.put(customer("b"))
    wrong_old, taken_and_wrong = Fields(CUSTOMERS, note="y"), Fields(CUSTOMERS, name="b", note=5)
    refused(store, InvalidRecordError, "is empty", partial(customers.update, 7, wrong_old, customer("")))
    refused(store, EntryChangedError, "not what `old` says", partial(customers.update, 0, wrong_old, taken_and_wrong))
    refused(store, KeyExistsError, "key b'b'", partial(customers.update, 0, Fields(CUSTOMERS), taken_and_wrong))


# Secondary indexes


def test_every_way_to_write_keeps_the_secondary_indexes(members: BoundIndexedTable[Member]) -> None:
    members.put(member("a", badge="1", rank=3))
    members.put(member("b", rank=2))
    assert members.check() == []
    assert members.lookup("badge", "1") == member("a", badge="1", rank=3)
    members.update(0, Fields(MEMBERS, badge="1"), Fields(MEMBERS, badge="2", rank=1))
    assert members.check() == []
    assert [each.name for each in members.find("rank")] == ["a", "b"]
    members.update(0, Fields(MEMBERS), Fields(MEMBERS, name="z"))  # keeps its badge: its own slot is not in the way
    assert members.check() == []
    assert members.lookup("badge", "2") == member("z", badge="2", rank=1)
    members.deactivate(0)
    assert members.check() == []
    assert members.find("rank") == [member("b", number=1, rank=2)]
    members.clear_inactive()
    members.remove(1)
    assert members.check() == []
    assert members.find("rank") == []
    assert members.put_many([member("c", badge="3"), member("d", badge="4")]) == [1, 0]
    assert members.lookup("badge", "4") == members.get_by_id(0) == member("d", badge="4")


def test_slot_that_is_taken_is_refused(store: Store, members: BoundIndexedTable[Member]) -> None:
    members.put(member("a", badge="1"))
    members.put(member("b", badge="2"))
    text, anything = "index 'badge': badge '1' is held by b'a'", Fields(MEMBERS)
    refused(store, SlotTakenError, text, partial(members.put, member("c", badge="1")))
    refused(store, SlotTakenError, text, partial(members.update, 1, anything, Fields(MEMBERS, badge="1")))
    refused(store, SlotTakenError, text, partial(members.update, 1, anything, member("z", badge="1")))
    assert members.put(member("c")) == 2


def test_row_of_an_index_is_never_taken_for_a_record(store: Store, members: BoundIndexedTable[Member]) -> None:
    members.put(member("a", rank=1))
    assert [each.name for each in members.iter()] == ["a"]
    text = "from 0xf8 up is for rows of indexes"

    class Moved(Fields[Member]):
        def key(self) -> bytes:
            return b"\xffx"

    refused(store, InvalidRecordError, text, partial(members.update, 0, Fields(MEMBERS), Moved(MEMBERS)))


def test_undecodable_record_can_be_removed_with_its_index_rows(
    store: Store, members: BoundIndexedTable[Member]
) -> None:
    members.put(member("a", badge="1", rank=1))
    store.family("members")[b"a"] = b"\xc1"
    with pytest.raises(DecodeError, match="^family 'members', key b'a': "):
        members.get_by_id(0)
    with pytest.raises(DecodeError, match="^family 'members', key b'a': "):
        members.update(0, Fields(MEMBERS), Fields(MEMBERS))
    assert [problem.key for problem in members.check() if problem.error] == [b"a"]
    assert members.remove(0) == b"a"
    assert list(store.family("members")) == [b""]


# Bound to a store, a transaction, a view


def test_generic_writes_do_not_exist(store: Store) -> None:
    table: object = CUSTOMERS.bind(store)
    assert not isinstance(table, Writable)
    generic = {name for name in vars(Writable) if not name.startswith("_")}
    assert generic == {
        "put", "insert", "update", "delete", "delete_row", "insert_many", "update_compare_many", "replace_all",
        "rebuild_indexes",
    }  # fmt: skip
    for name in generic - {"put", "update", "rebuild_indexes"}:
        assert not hasattr(table, name)


def test_operations_compose_in_a_transaction(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    customers.put(customer("a"))
    before = content(store)
    txn = store.begin()
    table = CUSTOMERS.bind(txn)
    assert table.put(customer("b")) == 1
    table.update(0, customer("a"), Fields(CUSTOMERS, name="z"))
    assert table.put(customer("a")) == 2
    assert table.deactivate(1) == b"b"
    assert table.clear_inactive() == 1
    assert [(each.id, each.name) for each in table.iter()] == [(2, "a"), (0, "z")]
    assert (table.count(), table.get_by_id(0)) == (2, customer("z", id=0))
    assert table.check() == []
    assert content(store) == before
    txn.rollback()
    assert content(store) == before
    with store.begin() as txn:
        table = CUSTOMERS.bind(txn)
        table.put(customer("c"))
        with pytest.raises(KeyExistsError):
            table.put(customer("c"))
        with pytest.raises(EntryChangedError):
            table.update(1, customer("x"), customer("y"))
        with pytest.raises(IdOutOfRangeError):
            table.remove(2)
    assert content(store)["customers"].keys() == {b"", b"a", b"c"}


def test_failed_operations_leave_a_transaction_as_it_was(store: Store, members: BoundIndexedTable[Member]) -> None:
    """After a failure the transaction may go on, and commits nothing of what failed."""
    members.put(member("a", badge="1"))
    members.put(member("b", badge="2"))
    with store.begin() as txn:
        table = MEMBERS.bind(txn)
        table.put(member("c", badge="3"))
        before = dict(txn.family("members"))
        anything, long = Fields(MEMBERS), "n" * 65_535  # so long that the row of an index would be too long
        for failing in (
            partial(table.put, member("a")),
            partial(table.put, member("d", badge="3")),
            partial(table.put, member("")),
            partial(table.put, member("d", rank="x")),
            partial(table.put, member("d", rank=1 << 63)),
            partial(table.put, member(long)),
            partial(table.put_many, [member("d"), member("d")]),
            partial(table.update, 0, anything, Fields(MEMBERS, name="b")),
            partial(table.update, 0, anything, Fields(MEMBERS, badge="2")),
            partial(table.update, 0, anything, Fields(MEMBERS, name="d", badge="2")),
            partial(table.update, 0, anything, Fields(MEMBERS, name=long)),
            partial(table.update, 0, Fields(MEMBERS, badge="x"), Fields(MEMBERS, name="d")),
            partial(table.remove, 9),
            partial(table.deactivate, -1),
        ):
            with pytest.raises(PystateError):
                failing()
            assert dict(txn.family("members")) == before
    assert dict(store.family("members")) == before


def test_view_is_for_reading(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    customers.put(customer("a"))
    with store.view() as view:
        customers.update(0, customer("a"), customer("z"))
        customers.put(customer("b"))
        seen = CUSTOMERS.bind(view)
        assert type(seen) is BoundIndexedView
        assert (seen.count(), seen.get_by_id(0), seen.get("z")) == (1, customer("a"), None)
        assert seen.get_by_key(b"a") is not None
        assert list(seen.iter()) == [customer("a")]
        assert seen.check() == []
        assert not hasattr(seen, "put")
        assert not hasattr(seen, "update")
        with pytest.raises(TypeError, match="bound to a view"):
            BoundIndexedTable(CUSTOMERS, view).put(customer("c"))


def test_table_needs_its_family(store: Store) -> None:
    with pytest.raises(FamilyNotFoundError):
        IndexedTable(Customer, family="elsewhere", key=Key(name=rest_text)).bind(store)


def test_declarations_that_make_no_table() -> None:
    class Restricted(Customer, frozen=True, kw_only=True):
        __table__ = "Elsewhere"

    with pytest.raises(TypeError, match="has no field 'number' for its id; name it with id_field="):
        IndexedTable(Customer, family="f", key=Key(name=rest_text), id_field="number")
    with pytest.raises(ValueError, match="so the key cannot have it"):
        IndexedTable(Customer, family="f", key=Key(id=uint32, name=rest_text))
    with pytest.raises(TypeError, match="through Elsewhere only"):
        IndexedTable(Restricted, family="f", key=Key(name=rest_text))


# Damage


def ids(store: Store, slots: list[list[Any]], available: int, inactive: int | None = None) -> None:
    """Write the row with the ids past the table."""
    store.family("customers")[b""] = msgspec.msgpack.encode([slots, available, inactive])


def test_index_with_a_byte_too_many_still_loads(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    """Check R33: in a table; the next write leaves the byte out."""
    customers.put(customer("a"))
    right = store.family("customers")[b""]
    store.family("customers")[b""] = right + b"\x00"
    assert customers.get_by_id(0) == customer("a")
    assert customers.put(customer("b")) == 1
    customers.remove(1)
    customers.put(customer("b"))
    assert not store.family("customers")[b""].endswith(b"\x00")


def test_index_that_names_a_row_that_is_gone(store: Store) -> None:
    table = CUSTOMERS.bind(store)
    table.put(customer("a"))
    del store.family("customers")[b"a"]
    assert table.get_by_id(0) is None
    for new in (Fields(CUSTOMERS, name="z"), Fields(CUSTOMERS, note="z")):
        text = "id 0 has the key b'a', where there is no record"
        refused(store, CorruptIndexError, text, partial(table.update, 0, Fields(CUSTOMERS), new))
    assert [str(problem.error) for problem in table.check()][0].startswith("family 'customers': the index of ids is")
    assert table.remove(0) == b"a"
    assert table.check() == []


@pytest.mark.parametrize("operation", ["remove", "deactivate", "get_by_id", "update"])
def test_index_cannot_make_a_table_delete_what_is_no_record(store: Store, operation: str) -> None:
    """The empty key is that of the ids themselves, and above 0xf8 the rows of indexes begin."""
    arguments = [Fields(MEMBERS), Fields(MEMBERS, name="z")] if operation == "update" else []
    table = MEMBERS.bind(store)
    table.put(member("a", rank=1))
    row = next(key for key in store.family("members") if key > b"\xf8")
    for key in (b"", row):
        store.family("members")[b""] = msgspec.msgpack.encode([[[0, key]], 1, None])
        text = "which no record can have"
        refused(store, CorruptIndexError, text, partial(getattr(table, operation), 0, *arguments))


@pytest.mark.parametrize(
    ("slots", "available", "inactive", "operation", "text"),
    [
        ([[0, b"a"]], 0, None, lambda table: table.put(customer("b")), "id 0, the next to be given out, is not free"),
        ([[0, b"a"]], 9, None, lambda table: table.put(customer("b")), "id 9, the next to be given out, is not free"),
        ([[0, b"a"], [2, 1]], 2, 1, BoundIndexedTable.clear_inactive, "the chain of inactive ids is broken at 1"),
        ([[1, 1], [0, b"a"]], 0, None, lambda table: table.update(1, Fields(CUSTOMERS), customer("b")), "has id 0"),
    ],
)  # fmt: skip
def test_damaged_index_stops_what_would_rely_on_it(
    store: Store, slots: Any, available: int, inactive: int | None, operation: Any, text: str
) -> None:
    table = CUSTOMERS.bind(store)
    table.put(customer("a"))
    ids(store, slots, available, inactive)
    refused(store, CorruptIndexError, text, partial(operation, table))
    assert table.check() != []
    assert table.get("a") == customer("a")


def test_bytes_that_are_no_index(store: Store) -> None:
    table = CUSTOMERS.bind(store)
    table.put(customer("a"))
    store.family("customers")[b""] = b"\xc1"
    for operation in (
        partial(table.put, customer("b")),
        partial(table.get_by_id, 0),
        table.count,
        partial(table.remove, 0),
        partial(table.update, 0, customer("a"), customer("b")),
        table.key_index,
        table.clear_inactive,
    ):
        refused(store, CorruptIndexError, "malformed", operation)
    assert [problem.key for problem in table.check()] == [b""]
    assert list(table.iter()) == [customer("a")]


def test_check_tells_what_is_wrong_with_the_ids_and_rebuilding_mends_it(store: Store) -> None:
    table = CUSTOMERS.bind(store)
    table.put_many([customer(name) for name in "abcdef"])
    table.deactivate(5)
    rows = store.family("customers")
    # 0 as it was; 1 names b, which says 1, but so does 2; 3 names nothing; c and e have no id; 5 is inactive.
    ids(store, [[0, b"a"], [0, b"b"], [0, b"b"], [0, b"x"], [0, b"d"], [2, None], [1, 9]], 7, 5)
    assert [problem.error.reason for problem in table.check() if problem.error] == [
        "a free id is missing in the chain of free ids",
        "the ids 1 and 2 have the same key b'b'",
        "the record b'c' has no id",
        "the record b'd' says that its id is 3; it is 4",
        "the record b'e' has no id",
        "id 3 has the key b'x', where there is no record",
    ]
    assert str(table.check()[1]).startswith("family 'customers': the index of ids is damaged: the ids 1 and 2 have")
    assert table.rebuild_indexes() == 1
    assert table.check() == []
    assert table.rebuild_indexes() == 0
    assert table.key_index() == KeyIndex.of({0: b"a", 1: b"b", 2: b"c", 3: b"d", 4: b"e"}, inactive=[5])
    rows[b""] = b"\xc1"
    rows[b"c"] = rows[b"e"]
    refused(store, CorruptIndexError, "b'c' and b'e' both say that their id is 4", table.rebuild_indexes)
    del rows[b"c"]
    assert table.rebuild_indexes() == 1
    assert table.key_index() == KeyIndex.of({0: b"a", 1: b"b", 3: b"d", 4: b"e"})


def test_rebuilding_mends_secondary_indexes(store: Store, members: BoundIndexedTable[Member]) -> None:
    members.put(member("a", badge="1", rank=1))
    right = dict(store.family("members"))
    for key in list(right):
        if key >= b"\xf8":
            del store.family("members")[key]
    del store.family("members")[b""]
    assert members.rebuild_indexes() == 3
    assert dict(store.family("members")) == right


def test_changed_entry_is_told_whole() -> None:
    error = EntryChangedError(family="f", key=b"k", id=3)
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(twin), str(twin), twin.__dict__) == (type(error), str(error), error.__dict__)
    assert isinstance(error, ValueError)


# Threads


def test_two_threads_put_at_the_same_time(customers: BoundIndexedTable[Customer]) -> None:
    """Check R42."""
    start, given = threading.Barrier(2), list[int]()

    def put(prefix: str) -> None:
        start.wait()
        for number in range(20):
            given.append(customers.put(customer(f"{prefix}{number}")))

    threads = [threading.Thread(target=put, args=[prefix]) for prefix in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert customers.count() == 40
    assert sorted(given) == list(range(40))
    assert sorted(each.id for each in customers.iter()) == list(range(40))


def test_rival_that_creates_the_target_key_is_not_overwritten(store: Store) -> None:
    """Check R25: (H-1) for a move: the target is found free, a rival takes it, the mover does not commit.

    The rival writes past the table, so that nothing but the reading of the target key can tell.
    """
    table = CUSTOMERS.bind(store)
    table.put(customer("a"))
    txn = store.begin()
    CUSTOMERS.bind(txn).update(0, customer("a"), Fields(CUSTOMERS, name="b"))
    store.family("customers")[b"b"] = b"the rival's"
    with pytest.raises(ConflictError, match="^Resource busy:") as caught:
        txn.commit()
    assert (caught.value.family, caught.value.key) == ("customers", b"b")
    assert store.family("customers")[b"b"] == b"the rival's"
    refused(store, KeyExistsError, "key b'b'", partial(table.update, 0, customer("a"), customer("b")))


def test_mover_whose_target_is_taken_meanwhile_looks_again_and_is_told(store: Store) -> None:
    """Check R25: (H-1) in a store, the move runs again and finds what the rival has written."""
    table, calls = CUSTOMERS.bind(store), list[str]()
    table.put(customer("a"))

    class Interrupted(Fields[Customer]):
        def apply(self, stored: Customer) -> Customer:
            """Asked when the target was found free."""
            calls.append("apply")
            store.family("customers")[b"b"] = b"the rival's"
            return super().apply(stored)

    with pytest.raises(KeyExistsError, match="key b'b'"):
        table.update(0, customer("a"), Interrupted(CUSTOMERS, name="b"))
    assert calls == ["apply"]
    assert dict(store.family("customers"))[b"b"] == b"the rival's"
    assert table.get_by_id(0) == table.get("a") == customer("a")


def test_rival_that_creates_a_key_is_not_overwritten_by_put(store: Store) -> None:
    txn = store.begin()
    CUSTOMERS.bind(txn).put(customer("b"))
    store.family("customers")[b"b"] = b"the rival's"
    with pytest.raises(ConflictError) as caught:
        txn.commit()
    assert caught.value.key == b"b"


def test_updates_of_different_records_do_not_conflict(store: Store, customers: BoundIndexedTable[Customer]) -> None:
    customers.put_many([customer("a"), customer("b"), customer("c")])
    txn = store.begin()
    CUSTOMERS.bind(txn).update(0, customer("a"), Fields(CUSTOMERS, note="x"))
    customers.update(1, customer("b"), Fields(CUSTOMERS, note="y"))
    txn.commit()
    txn = store.begin()
    CUSTOMERS.bind(txn).update(0, Fields(CUSTOMERS), Fields(CUSTOMERS, note="z"))
    customers.remove(2)  # which ids there are has changed, so the other one looks again
    with pytest.raises(ConflictError):
        txn.commit()


def told(outcomes: dict[str, Any], name: str, operation: Callable[[], Any]) -> Callable[[], None]:
    """The operation of a thread; what it returns or raises is noted under the thread's name."""

    def run() -> None:
        try:
            outcomes[name] = operation()
        except PystateError as error:
            outcomes[name] = type(error)

    return run


def races(
    rival: Callable[[Store], Any], *, past_the_table: bool = False
) -> set[tuple[Any, Any, tuple[tuple[int, str], ...]]]:
    """Run a move of id 0 from a to b against a rival in every order with two preemptions.

    Returns:
        What mover and rival were told, and the ids and names there were afterwards.
    """
    seen = set()

    def program() -> Scenario:
        store = memory_store()
        table = CUSTOMERS.bind(store)
        table.put(customer("a"))
        outcomes: dict[str, Any] = {}

        def check() -> None:
            after = tuple((each.id, each.name) for each in table.iter())
            if not past_the_table:
                assert table.check() == []
                assert table.count() == len(after)
            seen.add((outcomes["mover"], outcomes["rival"], after))

        move = told(outcomes, "mover", lambda: table.update(0, customer("a"), Fields(CUSTOMERS, name="b")).name)
        return Scenario({"mover": move, "rival": told(outcomes, "rival", lambda: rival(store))}, check)

    assert explore(program, preemptions=2, budget=1000).complete
    return seen


def test_of_a_mover_and_a_rival_that_creates_its_target_one_is_told() -> None:
    """Check R25: (H-1) in every order: who comes second gets `KeyExistsError`, and nothing is overwritten."""
    assert races(lambda store: CUSTOMERS.bind(store).put(customer("b"))) == {
        ("b", KeyExistsError, ((0, "b"),)),
        (KeyExistsError, 1, ((0, "a"), (1, "b"))),
    }


def test_of_a_mover_and_a_rival_that_writes_past_the_table_one_is_told() -> None:
    """Check R25: (H-1) the rival looks at the target key and at nothing else of the table."""
    row = CUSTOMERS.encode(customer("b", id=9))

    def put_if_absent(store: Store) -> bool:
        def put(txn: pystate.Transaction) -> bool:
            absent = b"b" not in txn.family("customers")
            if absent:
                txn.put("customers", b"b", row)
            return absent

        return store.transact(put)

    assert races(put_if_absent, past_the_table=True) == {
        ("b", False, ((0, "b"),)),
        (KeyExistsError, True, ((0, "a"), (9, "b"))),
    }


def test_of_a_mover_and_a_rival_that_removes_the_record_one_is_told() -> None:
    assert races(lambda store: CUSTOMERS.bind(store).remove(0)) == {
        ("b", b"b", ()),
        (NoSuchIdError, b"a", ()),
    }


def test_of_a_mover_and_a_rival_that_frees_the_id_for_another_none_is_mistaken() -> None:
    def replace(store: Store) -> int:
        def remove_and_put(txn: pystate.Transaction) -> int:
            table = CUSTOMERS.bind(txn)
            table.remove(0)
            return table.put(customer("c"))

        return store.transact(remove_and_put)

    assert races(replace) == {
        ("b", 0, ((0, "c"),)),
        (EntryChangedError, 0, ((0, "c"),)),
    }


def test_in_every_order_two_puts_get_two_ids() -> None:
    seen = set()

    def program() -> Scenario:
        store = memory_store()
        table = CUSTOMERS.bind(store)
        outcomes: dict[str, Any] = {}

        def check() -> None:
            assert table.check() == []
            assert {each.name: each.id for each in table.iter()} == outcomes
            seen.add((outcomes["x"], outcomes["y"]))

        putting = {name: told(outcomes, name, lambda name=name: table.put(customer(name))) for name in "xy"}  # type: ignore[misc]
        return Scenario(putting, check)

    assert explore(program, preemptions=2, budget=1000).complete
    assert seen == {(0, 1), (1, 0)}
