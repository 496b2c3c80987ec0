"""Ids for keys: which id comes next, what is stored, what a damaged index does, and a model of it all."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate.errors import CorruptIndexError, IdOutOfRangeError, IndexFullError, NoSuchIdError, PystateError
from pystate.tables import KeyIndex, key_index
from pystate.tables.key_index import IndexRow

ERRORS: dict[type[PystateError], type[Exception]] = {
    CorruptIndexError: ValueError,
    IdOutOfRangeError: IndexError,
    IndexFullError: OverflowError,
    NoSuchIdError: KeyError,
}


def holding(*keys: bytes) -> KeyIndex:
    """An index with these keys under the ids from 0."""
    index = KeyIndex()
    for key in keys:
        index.insert(key)
    return index


def stored(index: KeyIndex) -> Any:
    """What `encode` writes, as plain lists; the index read back from it is the same."""
    data = index.encode()
    assert KeyIndex.decode(data) == index
    return msgspec.msgpack.decode(data)


def damaged(slots: list[list[Any]], available: int = 0, inactive: int | None = None) -> KeyIndex:
    """An index that is stored so."""
    return KeyIndex.decode(msgspec.msgpack.encode([slots, available, inactive]), family="f")


# Ids


def test_first_key_gets_id_0() -> None:
    """Check R26: what is stored, with and without a key."""
    index = KeyIndex()
    assert stored(index) == [[], 0, None]
    assert index.encode() == bytes.fromhex("93 90 00 c0")
    assert index.insert(b"a") == 0
    assert stored(index) == [[[0, b"a"]], 1, None]
    assert index.encode() == bytes.fromhex("93 91 92 00 c4 01 61 01 c0")


def test_deactivated_id_is_kept_back_until_it_is_cleared() -> None:
    """Check R27."""
    index = holding(b"a")
    assert index.deactivate(0) == b"a"
    assert (index.count(), index.get(0), index.inactive()) == (0, None, [0])
    assert stored(index) == [[[2, None]], 1, 0]
    assert index.clear_inactive() == 1
    assert (index.count(), index.get(0), index.inactive()) == (0, None, [])
    assert stored(index) == [[[1, 1]], 0, None]
    assert index.insert(b"b") == 0


def test_removed_id_is_given_out_next() -> None:
    """Check R28."""
    index = holding(b"a", b"b")
    assert index.remove(1) == b"b"
    assert stored(index) == [[[0, b"a"], [1, 2]], 1, None]
    assert index.insert(b"c") == 1


def test_deactivated_id_is_not_given_out() -> None:
    """Check R29."""
    index = holding(b"a", b"b")
    index.deactivate(1)
    assert index.insert(b"c") == 2


def test_ids_freed_last_come_first() -> None:
    """Check R30."""
    index = holding(b"a", b"b", b"c")
    index.remove(0)
    index.remove(2)
    assert [index.insert(b"d") for _ in range(3)] == [2, 0, 3]


def test_cleared_ids_come_in_the_order_of_their_deactivation() -> None:
    """Check R31."""
    index = holding(b"a", b"b", b"c")
    for number in range(3):
        index.deactivate(number)
    assert index.inactive() == [2, 1, 0]
    assert index.clear_inactive() == 3
    assert [index.insert(b"d") for _ in range(3)] == [0, 1, 2]
    assert index.clear_inactive() == 0


def test_ids_that_nothing_has() -> None:
    """Check R32: past the end, free, inactive; nothing changes."""
    index = holding(b"a")
    with pytest.raises(IdOutOfRangeError, match="id 5 is out of range: ids up to 0 were given out"):
        index.remove(5)
    index.remove(0)
    for operation in (index.remove, index.deactivate, lambda number: index.update(number, b"b")):
        with pytest.raises(NoSuchIdError, match="nothing has id 0 now"):
            operation(0)
        with pytest.raises(IdOutOfRangeError):
            operation(1)
        with pytest.raises(IdOutOfRangeError):
            operation(-1)
    assert stored(index) == [[[1, 1]], 0, None]
    index.insert(b"a")
    index.deactivate(0)
    with pytest.raises(NoSuchIdError):
        index.remove(0)
    with pytest.raises(IdOutOfRangeError, match="no id was given out yet"):
        KeyIndex().remove(0)


def test_bytes_after_the_index_are_tolerated() -> None:
    """Check R33: one byte, or many; nothing of them is kept."""
    index = holding(b"a", b"b")
    index.deactivate(0)
    for tail in (b"\x00", b"\xc1", b"\x93\x90\x00\xc0", b"\xff" * 300):
        found = KeyIndex.decode(index.encode() + tail)
        assert found == index
        assert found.encode() == index.encode()


def test_update_replaces_the_key_and_keeps_the_id() -> None:
    index = holding(b"a", b"b")
    assert index.update(0, b"z") == b"a"
    assert list(index.entries()) == [(0, b"z"), (1, b"b")]
    assert index.count() == 2


def test_keys_may_be_empty_or_the_same() -> None:
    assert list(holding(b"", b"a", b"a").entries()) == [(0, b""), (1, b"a"), (2, b"a")]


@pytest.mark.parametrize("key", ["a", bytearray(b"a"), None], ids=repr)
def test_key_that_is_not_bytes_is_refused(key: Any) -> None:
    index = holding(b"a")
    with pytest.raises(TypeError, match="a key is bytes"):
        index.insert(key)
    with pytest.raises(TypeError, match="a key is bytes"):
        index.update(0, key)
    assert index == holding(b"a")


@pytest.mark.parametrize("number", ["0", True, None, 0.0], ids=repr)
def test_id_that_is_no_int_is_refused(number: Any) -> None:
    index = holding(b"a", b"b")
    for operation in (index.get, index.remove, index.deactivate, lambda number: index.update(number, b"c")):
        with pytest.raises(TypeError, match="an id is an int"):
            operation(number)
    assert index == holding(b"a", b"b")


def test_last_id_is_never_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_index.IDS_MAX == 4_294_967_295
    monkeypatch.setattr(key_index, "IDS_MAX", 2)
    index = holding(b"a", b"b")
    with pytest.raises(IndexFullError, match="every id is in use"):
        index.insert(b"c")
    assert index == holding(b"a", b"b")
    index.remove(0)
    assert index.insert(b"c") == 0


def test_index_is_a_value() -> None:
    one, other = holding(b"a"), holding(b"a")
    assert one == other
    assert one != holding(b"b")
    assert one != "something else"
    copied = one.copy()
    copied.insert(b"b")
    assert list(one.entries()) == [(0, b"a")]
    with pytest.raises(TypeError):
        hash(one)
    one.remove(0)
    assert repr(one) == "<KeyIndex: 0 of 1 ids in use, next 0>"


# An index made of ids


def test_index_made_of_ids_frees_the_others_from_the_smallest_up() -> None:
    index = KeyIndex.of({1: b"NetA", 3: b"NetB"})
    assert stored(index) == [[[1, 2], [0, b"NetA"], [1, 4], [0, b"NetB"]], 0, None]
    assert [index.insert(b"c") for _ in range(3)] == [0, 2, 4]
    assert KeyIndex.of({}) == KeyIndex()
    assert KeyIndex.of({0: b"a", 1: b"b"}) == holding(b"a", b"b")


def test_index_made_of_ids_keeps_back_those_that_are_inactive() -> None:
    index = KeyIndex.of({2: b"c"}, inactive=[4, 0])
    assert index.inactive() == [4, 0]
    assert index.problems() == []
    assert index.insert(b"x") == 1
    index.clear_inactive()
    assert [index.insert(b"x") for _ in range(4)] == [0, 4, 3, 5]


@pytest.mark.parametrize(
    ("keys", "inactive", "error"),
    [
        ({-1: b""}, [], ValueError),
        ({4_294_967_295: b""}, [], ValueError),
        ({}, [0, 0], ValueError),
        ({0: b""}, [0], ValueError),
        ({"0": b""}, [], TypeError),
        ({0: "a"}, [], TypeError),
    ],
)
def test_ids_that_make_no_index(keys: Any, inactive: list[int], error: type[Exception]) -> None:
    with pytest.raises(error):
        KeyIndex.of(keys, inactive=inactive)


# Damage


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "truncated"),
        (b"\xc1", "malformed"),
        (holding(b"a").encode()[:-1], "truncated"),
        (b"\x93\xdd\xff\xff\xff\xff\x92\x00", "truncated"),
        (5, "Expected `array`"),
        ({}, "Expected `array`"),
        ([[], 0], "at least length 3"),
        ([[], 0, None, 0], "at most length 3"),
        ([[], None, None], r"\$\[1\]"),
        ([[], -1, None], r"\$\[1\]"),
        ([[], 1 << 32, None], r"\$\[1\]"),
        ([[], 0, -1], r"\$\[2\]"),
        ([[], 0, "0"], r"\$\[2\]"),
        ([[[0, "a"]], 1, None], r"\$\[0\]\[0\]"),
        ([[[0, b"a", 0]], 1, None], r"\$\[0\]\[0\]"),
        ([[[0]], 1, None], r"\$\[0\]\[0\]"),
        ([[[1, None]], 1, None], r"\$\[0\]\[0\]"),
        ([[[1, 1 << 32]], 1, None], r"\$\[0\]\[0\]"),
        ([[[2, b"a"]], 1, None], r"\$\[0\]\[0\]"),
        ([[[3, 0]], 1, None], "Invalid value 3"),
        ([[b"a"], 1, None], r"\$\[0\]\[0\]"),
    ],
    ids=repr,
)
def test_bytes_that_are_no_index_are_refused(value: Any, text: str) -> None:
    data = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    with pytest.raises(CorruptIndexError, match=text) as caught:
        KeyIndex.decode(data, family="f", key=b"k")
    assert (caught.value.family, caught.value.key) == ("f", b"k")
    assert str(caught.value).startswith("family 'f', key b'k': the index of ids is damaged: ")


USED, FREE, INACTIVE = [0, b"a"], [1, 1], [2, None]


@pytest.mark.parametrize(
    ("index", "operation", "reason"),
    [
        (damaged([USED], 0), lambda index: index.insert(b"x"), "id 0, the next to be given out, is not free"),
        (damaged([INACTIVE], 0, 0), lambda index: index.insert(b"x"), "id 0, the next to be given out, is not free"),
        (damaged([USED], 2), lambda index: index.insert(b"x"), "id 2, the next to be given out, is not free"),
        (damaged([USED], 1, 1), KeyIndex.clear_inactive, "the chain of inactive ids is broken at 1"),
        (damaged([USED], 1, 0), KeyIndex.clear_inactive, "the chain of inactive ids is broken at 0"),
        (damaged([FREE], 0, 0), KeyIndex.clear_inactive, "the chain of inactive ids is broken at 0"),
        (damaged([[2, 7]], 1, 0), KeyIndex.clear_inactive, "the chain of inactive ids is broken at 7"),
        (damaged([[2, 0]], 1, 0), KeyIndex.clear_inactive, "the chain of inactive ids is broken at 0"),
        (damaged([[2, 1], [2, 0]], 2, 0), KeyIndex.clear_inactive, "the chain of inactive ids is broken at 0"),
    ],
)
def test_broken_chain_is_told_and_changes_nothing(
    index: KeyIndex, operation: Callable[[KeyIndex], object], reason: str
) -> None:
    before = index.encode()
    with pytest.raises(CorruptIndexError, match=reason):
        operation(index)
    assert index.encode() == before
    assert index.problems() != []


def test_circle_of_free_ids_gives_no_id_out_twice() -> None:
    index = damaged([[1, 1], [1, 0]], 0)
    assert index.problems() == ["the chain of free ids is broken at 0"]
    assert [index.insert(b"a"), index.insert(b"b")] == [0, 1]
    with pytest.raises(CorruptIndexError):
        index.insert(b"c")
    assert list(index.entries()) == [(0, b"a"), (1, b"b")]


def test_slots_outside_the_chains_are_told() -> None:
    assert damaged([FREE, INACTIVE], 2).problems() == [
        "an inactive id is missing in the chain of inactive ids",
        "a free id is missing in the chain of free ids",
    ]


NUMBERS = st.integers(0, 5)
SLOTS = st.one_of(
    st.tuples(st.just(0), st.binary(max_size=2)),
    st.tuples(st.just(1), NUMBERS),
    st.tuples(st.just(2), st.none() | NUMBERS),
)
ANY_OPERATION = st.one_of(
    st.tuples(st.just("insert"), st.binary(max_size=1)),
    st.tuples(st.sampled_from(["remove", "deactivate"]), NUMBERS),
    st.tuples(st.just("update"), NUMBERS, st.binary(max_size=1)),
    st.tuples(st.just("clear_inactive")),
)


@given(st.lists(SLOTS, max_size=4), NUMBERS, st.none() | NUMBERS, st.lists(ANY_OPERATION, max_size=12))
def test_no_damage_makes_an_index_forget_a_key_or_run_on(
    slots: list[list[Any]], available: int, inactive: int | None, operations: list[tuple[Any, ...]]
) -> None:
    index = damaged(slots, available, inactive)
    keys = dict(index.entries())
    for name, *arguments in operations:
        before = index.encode()
        try:
            result = getattr(index, name)(*arguments)
        except (CorruptIndexError, NoSuchIdError, IdOutOfRangeError):
            assert index.encode() == before
            continue
        if name == "insert":
            assert result not in keys
            keys[result] = arguments[0]
        elif name == "update":
            assert result == keys[arguments[0]]
            keys[arguments[0]] = arguments[1]
        elif name != "clear_inactive":
            assert result == keys.pop(arguments[0])
        assert dict(index.entries()) == keys


@given(st.lists(ANY_OPERATION, max_size=60))
def test_index_gives_out_what_a_plain_model_gives_out(operations: list[tuple[Any, ...]]) -> None:
    """Keys by id, a stack of free ids and one of inactive ones: what checks R26 to R32 say, in any order."""
    index, keys = KeyIndex(), dict[int, bytes]()
    free, inactive, size = list[int](), list[int](), 0
    for name, *arguments in operations:
        number = arguments[0] if name in ("remove", "deactivate", "update") else None
        if number is not None and number not in keys:
            with pytest.raises(NoSuchIdError if number < size else IdOutOfRangeError):
                getattr(index, name)(*arguments)
            continue
        result = getattr(index, name)(*arguments)
        if name == "insert":
            expected: Any = free.pop() if free else size
            size = max(size, expected + 1)
            keys[expected] = arguments[0]
        elif name == "clear_inactive":
            expected = len(inactive)
            free += reversed(inactive)
            inactive = []
        elif name == "update":
            expected, keys[arguments[0]] = keys[arguments[0]], arguments[1]
        else:
            expected = keys.pop(arguments[0])
            (free if name == "remove" else inactive).append(arguments[0])
        assert result == expected
        index = KeyIndex.decode(index.encode() + b"\x00")
        assert dict(index.entries()) == keys
        assert index.count() == len(keys)
        assert [index.get(each) for each in range(-1, size + 1)] == [keys.get(each) for each in range(-1, size + 1)]
        assert index.inactive() == inactive[::-1]
        assert index.problems() == []


# The row


def test_row_that_is_not_there_is_an_empty_index() -> None:
    family = pystate.memory().family("default")
    row = IndexRow(b"ids")
    assert row.read(family) == KeyIndex()
    assert dict(family) == {}


def test_row_is_read_anew_when_it_has_changed() -> None:
    """In a store, in a view of an older state, and in another store: what was read last is not taken for what is."""
    row, stores = IndexRow(b"ids"), [pystate.memory(), pystate.memory()]
    families = [store.family("default") for store in stores]
    row.write(families[0], holding(b"a"))
    with stores[0].view() as view:
        for family in families:
            index = row.open(family)
            index.insert(b"b")
            row.write(family, index)
        assert list(row.read(view.family("default")).entries()) == [(0, b"a")]
    assert list(row.read(families[0]).entries()) == [(0, b"a"), (1, b"b")]
    assert list(row.read(families[1]).entries()) == [(0, b"b")]
    families[0].delete(b"ids")
    assert row.read(families[0]) == KeyIndex()


def test_what_is_changed_is_not_what_others_read() -> None:
    family = pystate.memory().family("default")
    row = IndexRow(b"ids")
    row.write(family, holding(b"a"))
    row.open(family).remove(0)
    assert list(row.read(family).entries()) == [(0, b"a")]


def test_row_reads_the_same_bytes_once() -> None:
    family = pystate.memory().family("default")
    row = IndexRow(b"ids")
    row.write(family, holding(b"a"))
    assert row.read(family) is row.read(family)


def test_damaged_row_names_its_place() -> None:
    family = pystate.memory().family("default")
    family.put(b"ids", b"\xc1")
    with pytest.raises(CorruptIndexError, match="^family 'default', key b'ids': the index of ids is damaged"):
        IndexRow(b"ids").read(family)
    family.put(b"ids", msgspec.msgpack.encode([[[0, b"a"]], 0, None]))
    with pytest.raises(CorruptIndexError, match="^family 'default', key b'ids': the index of ids is damaged"):
        IndexRow(b"ids").open(family).insert(b"b")


# Errors


@pytest.mark.parametrize(
    "error",
    [
        CorruptIndexError(family="f", key=b"", reason="r"),
        IdOutOfRangeError(family="f", key=b"", id=7, slots=3),
        IndexFullError(family="f", key=b"k"),
        NoSuchIdError(family="", key=b"", id=7),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_copied_whole(error: PystateError) -> None:
    assert isinstance(error, ERRORS[type(error)])
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(twin), str(twin), twin.__dict__) == (type(error), str(error), error.__dict__)
