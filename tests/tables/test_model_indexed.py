"""Any operations on an indexed table with secondary indexes, in any order, against a plain model; also reopened."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pystate import Store
from pystate.errors import (
    EntryChangedError,
    IdOutOfRangeError,
    InvalidRecordError,
    KeyExistsError,
    NoSuchIdError,
    PystateError,
    SlotTakenError,
)
from pystate.tables import Fields
from tests.engine.memory_files import MemoryFiles
from tests.tables.customers import MEMBERS, Member, disk_store, member, memory_store

NAMES = st.sampled_from(["", "a", "b", "c", "d"])
BADGES = st.sampled_from(["", "1", "2"])
NUMBERS = st.integers(-1, 6)
RECORDS = st.builds(member, NAMES, number=NUMBERS, badge=BADGES, rank=st.integers(0, 2))
NEW = st.one_of(
    RECORDS,
    st.fixed_dictionaries({}, optional={"name": NAMES, "badge": BADGES, "rank": st.integers(0, 2)}),
)


class Model:
    """A plain table: records by id, free and inactive ids as stacks. Methods return what the table should, or raise."""

    def __init__(self) -> None:
        self.records: dict[int, Member] = {}
        self.free: list[int] = []
        self.inactive: list[int] = []
        self.size = 0

    def check(self, record: Member, *, but: int | None = None) -> None:
        others = [other for number, other in self.records.items() if number != but]
        if record.name in [other.name for other in others]:
            raise KeyExistsError(family="", key=b"")
        if record.badge and record.badge in [other.badge for other in others]:
            raise SlotTakenError(family="", index="", slot={}, key=b"", holder=b"")

    def put(self, record: Member) -> int:
        if not record.name:
            raise InvalidRecordError(family="", kind="", reason="")
        self.check(record)
        number = self.free.pop() if self.free else self.size
        self.size = max(self.size, number + 1)
        self.records[number] = msgspec.structs.replace(record, number=number)
        return number

    def pop(self, number: int) -> bytes:
        if number not in self.records:
            raise self.missing(number)
        return self.records.pop(number).name.encode()

    def missing(self, number: int, *, keyed: bool = True) -> PystateError:
        if keyed and not 0 <= number < self.size:
            return IdOutOfRangeError(family="", key=b"", id=number, slots=0)
        return NoSuchIdError(family="", key=b"", id=number)

    def remove(self, number: int) -> bytes:
        name = self.pop(number)
        self.free.append(number)
        return name

    def deactivate(self, number: int) -> bytes:
        name = self.pop(number)
        self.inactive.append(number)
        return name

    def clear_inactive(self) -> int:
        cleared, self.inactive = self.inactive, []
        self.free += reversed(cleared)
        return len(cleared)

    def update(self, number: int, new: Member | dict[str, Any], *, right: bool) -> Member:
        fields = new if isinstance(new, dict) else msgspec.structs.asdict(new)
        if fields.get("name") == "":
            raise InvalidRecordError(family="", kind="", reason="")
        if number not in self.records:
            raise self.missing(number, keyed="name" in fields)
        if not right:
            raise EntryChangedError(family="", key=b"", id=number)
        record = msgspec.structs.replace(self.records[number], **{**fields, "number": number})
        self.check(record, but=number)
        self.records[number] = record
        return record


class IndexedTableMachine(RuleBasedStateMachine):
    """A table with secondary indexes, and its model, in a store that is reopened in between where that is possible."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    @initialize(disk=st.booleans())
    def open(self, disk: bool) -> None:
        self.files = MemoryFiles() if disk else None
        self.bind(disk_store(self.files) if self.files is not None else memory_store())

    def bind(self, store: Store) -> None:
        self.store = store
        self.table = MEMBERS.bind(store)

    def both(self, operation: Callable[[Any], Any], expected: Callable[[], Any]) -> None:
        """The table returns or raises what the model does; first in a transaction that is given up."""
        before = copy.deepcopy(self.model)
        try:
            result = expected()
        except PystateError as error:
            self.model = before
            txn = self.store.begin()
            rows = dict(txn.family("members"))
            with pytest.raises(type(error)):
                operation(MEMBERS.bind(txn))
            assert dict(txn.family("members")) == rows
            txn.rollback()
            with pytest.raises(type(error)):
                operation(self.table)
        else:
            txn = self.store.begin()
            assert operation(MEMBERS.bind(txn)) == result
            txn.rollback()
            assert operation(self.table) == result

    @rule(record=RECORDS)
    def put(self, record: Member) -> None:
        self.both(lambda table: table.put(record), lambda: self.model.put(record))

    @rule(records=st.lists(RECORDS, max_size=3))
    def put_many(self, records: list[Member]) -> None:
        names = [record.name for record in records]
        if len(set(names)) == len(names):  # what is wrong first may differ otherwise
            model = copy.deepcopy(self.model)
            try:
                given = [model.put(record) for record in records]
            except PystateError:
                with pytest.raises(PystateError):
                    self.table.put_many(records)
            else:
                assert self.table.put_many(records) == given
                self.model = model

    @rule(number=NUMBERS)
    def remove(self, number: int) -> None:
        self.both(lambda table: table.remove(number), lambda: self.model.remove(number))

    @rule(number=NUMBERS)
    def deactivate(self, number: int) -> None:
        self.both(lambda table: table.deactivate(number), lambda: self.model.deactivate(number))

    @rule()
    def clear_inactive(self) -> None:
        self.both(lambda table: table.clear_inactive(), lambda: self.model.clear_inactive())

    @rule(number=NUMBERS, new=NEW, right=st.sampled_from([True, True, False]), whole=st.booleans())
    def update(self, number: int, new: Member | dict[str, Any], right: bool, whole: bool) -> None:
        stored = self.model.records.get(number, member("a"))
        if not right:
            stored = msgspec.structs.replace(stored, rank=stored.rank + 1)
        old = msgspec.structs.replace(stored, number=9) if whole else Fields(MEMBERS, rank=stored.rank)
        change = Fields(MEMBERS, **new) if isinstance(new, dict) else new
        self.both(lambda table: table.update(number, old, change), lambda: self.model.update(number, new, right=right))

    @rule(snapshot=st.booleans())
    def reopen(self, snapshot: bool) -> None:
        if self.files is None:
            return
        if snapshot:
            self.store.snapshot()
        self.store.close()
        self.bind(disk_store(self.files))

    @invariant()
    def same(self) -> None:
        records, table = self.model.records, self.table
        assert table.check() == []
        assert table.count() == len(records)
        assert list(table.key_index().entries()) == [(at, each.name.encode()) for at, each in sorted(records.items())]
        assert table.key_index().inactive() == self.model.inactive[::-1]
        assert [table.get_by_id(number) for number in range(-1, 8)] == [records.get(number) for number in range(-1, 8)]
        by_name = sorted(records.values(), key=lambda each: each.name)
        assert list(table.iter()) == by_name
        assert list(table.iter(reverse=True)) == by_name[::-1]
        assert [table.get(each.name) for each in by_name] == by_name
        assert {each.name for each in table.find("badge")} == {each.name for each in by_name if each.badge}

    def teardown(self) -> None:
        self.store.close()


TestAnyOperations = IndexedTableMachine.TestCase
TestAnyOperations.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
