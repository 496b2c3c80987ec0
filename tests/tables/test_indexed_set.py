"""Indexed sets: entries with ids in one row. Section 17.2 of the specification; what tags are is for who uses them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate import ConflictError, FamilyNotFoundError, Store
from pystate.errors import CorruptIndexError, IdOutOfRangeError, NoSuchIdError, PystateError
from pystate.tables import BoundIndexedSet, BoundIndexedSetView, IndexedSet, KeyIndex
from pystate.testing import Scenario, explore
from tests.engine.memory_files import MemoryFiles
from tests.tables.customers import FAMILIES, disk_store, memory_store

TAGS = IndexedSet(family="meta", key=b"network tags")
OTHERS = IndexedSet(family="meta", key=b"event tags")


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        with memory_store() as opened:
            yield opened
    else:
        with pystate.open(tmp_path / "s", families=FAMILIES, durability="process") as opened:
            yield opened


@pytest.fixture
def tags(store: Store) -> BoundIndexedSet:
    return TAGS.bind(store)


def refused(store: Store, error: type[PystateError], match: str, operation: Callable[[], object]) -> None:
    """An operation raises this, and leaves every row as it was."""
    before = dict(store.family("meta"))
    with pytest.raises(error, match=match):
        operation()
    assert dict(store.family("meta")) == before


def test_entries_are_removed_and_replaced_by_id(store: Store, tags: BoundIndexedSet) -> None:
    """Check R43."""
    assert [tags.insert(b"tag%d" % number) for number in (1, 2, 3)] == [0, 1, 2]
    place = "family 'meta', key b'network tags'"
    refused(store, IdOutOfRangeError, f"^{place}: id 5 is out of range", partial(tags.remove, 5))
    assert tags.remove(1) == b"tag2"
    refused(store, NoSuchIdError, f"^{place}: nothing has id 1 now", partial(tags.remove, 1))
    assert tags.update(2, b"tag3", b"tag3.1") is True
    before = dict(store.family("meta"))
    for number, old in ((2, b"tag3"), (2, b"tag5"), (1, b"tag2"), (9, b"tag3"), (-1, b"tag3.1")):
        assert tags.update(number, old, b"x") is False
    assert dict(store.family("meta")) == before
    assert tags.entries() == [(0, b"tag1"), (2, b"tag3.1")]
    assert [tags.get(number) for number in (-1, 0, 1, 2, 3)] == [None, b"tag1", None, b"tag3.1", None]


def test_entries_of_two_owners_stand_side_by_side(tags: BoundIndexedSet) -> None:
    """Check R44: as far as a set goes: who owns an entry is in its bytes, and the same text is there twice."""
    for entry in (b"100\0shared-name", b"100\0tag-a", b"200\0shared-name", b"200\0tag-b"):
        tags.insert(entry)
    assert [(number, entry) for number, entry in tags.entries() if entry.startswith(b"200\0")] == [
        (2, b"200\0shared-name"),
        (3, b"200\0tag-b"),
    ]


def test_cleared_id_is_used_again_and_no_row_is_written_elsewhere(store: Store, tags: BoundIndexedSet) -> None:
    """Check R45: (H-2) the cleared set stands under its own key, and nothing under the empty one."""
    tags.insert(b"a")
    tags.insert(b"b")
    assert tags.deactivate(0) == b"a"
    assert tags.insert(b"c") == 2
    assert tags.clear_inactive() == 1
    assert list(store.family("meta")) == [b"network tags"]
    assert tags.insert(b"d") == 0
    assert list(store.family("meta")) == [b"network tags"]
    assert tags.clear_inactive() == 0


def test_entries_may_be_empty_or_the_same(tags: BoundIndexedSet) -> None:
    assert [tags.insert(entry) for entry in (b"", b"a", b"a")] == [0, 1, 2]
    assert tags.update(0, b"", b"a") is True
    assert tags.entries() == [(0, b"a"), (1, b"a"), (2, b"a")]
    assert tags.check() == []


def test_sets_in_one_family_know_nothing_of_one_another(store: Store, tags: BoundIndexedSet) -> None:
    others = OTHERS.bind(store)
    assert tags.insert(b"a") == others.insert(b"b") == 0
    assert (tags.entries(), others.entries()) == ([(0, b"a")], [(0, b"b")])
    assert list(store.family("meta")) == [b"event tags", b"network tags"]
    assert KeyIndex.decode(store.family("meta")[b"event tags"]) == others.key_index()


def test_set_that_was_never_written_is_empty(store: Store, tags: BoundIndexedSet) -> None:
    assert (tags.entries(), tags.get(0), tags.clear_inactive(), tags.check()) == ([], None, 0, [])
    assert dict(store.family("meta")) == {}


def test_listed_entries_stay_as_they_were(tags: BoundIndexedSet) -> None:
    tags.insert(b"a")
    listed = tags.entries()
    tags.insert(b"b")
    assert listed == [(0, b"a")]


def test_wrong_types_are_refused(store: Store, tags: BoundIndexedSet) -> None:
    tags.insert(b"a")
    before = dict(store.family("meta"))
    for operation in (
        lambda: tags.insert("a"),  # type: ignore[arg-type]
        lambda: tags.update(0, b"a", "b"),  # type: ignore[arg-type]
        lambda: tags.remove("0"),  # type: ignore[arg-type]
        lambda: tags.get(True),
    ):
        with pytest.raises(TypeError, match="is bytes, not str|is an int, not"):
            operation()
    assert dict(store.family("meta")) == before


def test_declarations_that_make_no_set() -> None:
    with pytest.raises(ValueError, match="the key is empty: that row holds the ids of an indexed table"):
        IndexedSet(family="meta", key=b"")
    with pytest.raises(TypeError, match="a key is bytes, not str"):
        IndexedSet(family="meta", key="tags")  # type: ignore[arg-type]
    assert (TAGS.key, TAGS.family, repr(TAGS)) == (
        b"network tags", "meta", "<IndexedSet b'network tags' in family 'meta'>",
    )  # fmt: skip
    with pytest.raises(FamilyNotFoundError):
        IndexedSet(family="elsewhere", key=b"k").bind(memory_store())


def test_set_in_a_transaction_and_in_a_view(store: Store, tags: BoundIndexedSet) -> None:
    tags.insert(b"a")
    with store.begin() as txn:
        inside = TAGS.bind(txn)
        inside.deactivate(0)
        assert inside.insert(b"b") == 1
        inside.clear_inactive()
        assert inside.entries() == [(1, b"b")]
        assert tags.entries() == [(0, b"a")]
        with pytest.raises(NoSuchIdError):
            inside.remove(0)
        with store.view() as view:
            seen = TAGS.bind(view)
            assert type(seen) is BoundIndexedSetView
            assert (seen.entries(), seen.get(0), seen.check()) == ([(0, b"a")], b"a", [])
            assert not hasattr(seen, "insert")
            with pytest.raises(TypeError, match="bound to a view"):
                BoundIndexedSet(TAGS, view).insert(b"c")
    assert tags.entries() == [(1, b"b")]
    assert tags.insert(b"c") == 0
    txn = store.begin()
    TAGS.bind(txn).remove(0)
    txn.rollback()
    assert tags.get(0) == b"c"


def test_damaged_set_is_told(store: Store, tags: BoundIndexedSet) -> None:
    """Check R33: of a set too, one byte behind the row is tolerated."""
    tags.insert(b"a")
    store.family("meta")[TAGS.key] += b"\x00"
    assert tags.entries() == [(0, b"a")]
    store.family("meta")[TAGS.key] = msgspec.msgpack.encode([[[0, b"a"], [2, 1]], 0, 1])
    refused(store, CorruptIndexError, "id 0, the next to be given out, is not free", partial(tags.insert, b"b"))
    refused(store, CorruptIndexError, "the chain of inactive ids is broken at 1", tags.clear_inactive)
    assert len(tags.check()) == 2
    store.family("meta")[TAGS.key] = b"\xc1"
    for operation in (tags.entries, partial(tags.insert, b"b"), partial(tags.update, 0, b"a", b"b"), tags.key_index):
        refused(store, CorruptIndexError, "^family 'meta', key b'network tags': .* malformed", operation)
    assert "malformed" in tags.check()[0]


# Threads


def test_two_threads_insert_at_the_same_time(tags: BoundIndexedSet) -> None:
    start, ids = threading.Barrier(2), list[int]()

    def insert(prefix: bytes) -> None:
        start.wait()
        for number in range(20):
            ids.append(tags.insert(prefix + b"%d" % number))

    threads = [threading.Thread(target=insert, args=[prefix]) for prefix in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == [number for number, _ in tags.entries()] == list(range(40))
    assert len({entry for _, entry in tags.entries()}) == 40


def test_what_was_read_must_still_be_so_at_commit(store: Store, tags: BoundIndexedSet) -> None:
    tags.insert(b"a")
    txn = store.begin()
    assert TAGS.bind(txn).update(0, b"a", b"b")
    tags.update(0, b"a", b"c")
    with pytest.raises(ConflictError) as caught:
        txn.commit()
    assert (caught.value.family, caught.value.key) == ("meta", TAGS.key)
    assert tags.entries() == [(0, b"c")]


def test_in_every_order_one_of_two_updates_is_told_that_it_came_late() -> None:
    seen = set()

    def program() -> Scenario:
        tags = TAGS.bind(memory_store())
        tags.insert(b"a")
        outcomes: dict[str, bool] = {}

        def update(name: str) -> None:
            outcomes[name] = tags.update(0, b"a", name.encode())

        def check() -> None:
            assert tags.entries() == [(0, next(name.encode() for name, updated in outcomes.items() if updated))]
            seen.add((outcomes["x"], outcomes["y"]))

        return Scenario({name: partial(update, name) for name in ("x", "y")}, check)

    assert explore(program, preemptions=2, budget=1000).complete
    assert seen == {(True, False), (False, True)}


# Any operations in any order

NUMBERS = st.integers(-1, 4)
ENTRIES = st.sampled_from([b"", b"a", b"b"])
OPERATIONS = st.one_of(
    st.tuples(st.just("insert"), ENTRIES),
    st.tuples(st.sampled_from(["remove", "deactivate"]), NUMBERS),
    st.tuples(st.just("update"), NUMBERS, ENTRIES, ENTRIES),
    st.tuples(st.just("clear_inactive")),
    st.tuples(st.just("reopen")),
)


@given(st.lists(OPERATIONS, max_size=40))
def test_set_is_what_its_index_is(operations: list[tuple[Any, ...]]) -> None:
    """A set against an index in memory, whose own model is in its tests; on a disk, opened again in between."""
    files, model = MemoryFiles(), KeyIndex()
    store = disk_store(files)
    for name, *arguments in operations:
        tags = TAGS.bind(store)
        if name == "reopen":
            store.close()
            store = disk_store(files)
            tags = TAGS.bind(store)
        elif name == "update":
            number, old, new = arguments
            assert tags.update(number, old, new) == (model.get(number) == old)
            if model.get(number) == old:
                model.update(number, new)
        else:
            before = model.copy()
            try:
                expected = getattr(model, name)(*arguments)
            except PystateError as error:
                assert model == before
                refused(store, type(error), "family .meta.", partial(getattr(tags, name), *arguments))
            else:
                assert getattr(tags, name)(*arguments) == expected
        assert tags.entries() == list(model.entries())
        assert tags.key_index() == model
        assert tags.check() == []
        assert list(store.family("meta")) in ([], [TAGS.key])
    store.close()
