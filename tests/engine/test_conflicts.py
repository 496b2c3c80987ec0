"""Transactions that conflict, and their neighbours that must not.

Most cases are lines of one table: a transaction that reads in some way and then writes, a commit of somebody else in
between, and whether the two conflict. The last tests leave the cases to chance and compare with a model.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import pystate
from pystate import Family, Store, Transaction
from tests.engine.model import (
    FamilyLike,
    Get,
    Model,
    ModelTransaction,
    Operation,
    Put,
    Scan,
    keys,
    operations,
    overlap,
    selected,
    single,
    values,
)

START = {key: key.upper() for key in (b"b", b"d", b"f", b"h", b"j")}


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with the five entries of `START`; the rules are the same with and without a disk."""
    opened = pystate.memory() if request.param == "memory" else pystate.open(str(tmp_path / "s"), durability="process")
    with opened:
        opened.family("default").update(START)
        opened.create_family("other")
        yield opened


@pytest.fixture
def family(store: Store) -> Family:
    return store.family("default")


#: What is called with a family, of the store or of a transaction.
Read = Callable[[Any], object]
Write = Callable[[Any], object]


def take(count: int, **arguments: object) -> Read:
    """Consume the first `count` entries of a scan and leave it there."""
    return lambda family: list(islice(family.scan(**arguments), count))


def scan(start: bytes | None = None, stop: bytes | None = None, **arguments: object) -> Read:
    """Consume all of a scan."""
    return lambda family: list(family.scan(start, stop, **arguments))


def put(key: bytes) -> Write:
    return lambda family: family.put(key, b"changed")


def delete(key: bytes) -> Write:
    return lambda family: family.delete(key)


def delete_range(start: bytes | None, stop: bytes | None) -> Write:
    return lambda family: family.delete_range(start, stop)


def clear(family: FamilyLike) -> None:
    family.clear()


def key_error(read: Read) -> Read:
    """A read that ends in KeyError, which the transaction survives."""

    def reading(family: FamilyLike) -> None:
        with pytest.raises(KeyError):
            read(family)

    return reading


#: How it reads; commits of others that change what was read; commits of others that do not.
CASES: dict[str, tuple[Read, dict[str, Write], dict[str, Write]]] = {
    "get": (
        lambda family: family.get(b"d"),
        {"overwrite": put(b"d"), "delete": delete(b"d"), "delete-range": delete_range(b"c", b"e"), "clear": clear},
        {"neighbour": put(b"c"), "longer key": put(b"d\0"), "other range": delete_range(b"d\0", None)},
    ),
    "getitem": (lambda family: family[b"d"], {"overwrite": put(b"d")}, {"neighbour": put(b"b")}),
    "contains": (lambda family: b"d" in family, {"delete": delete(b"d")}, {"neighbour": delete(b"b")}),
    "get of an absent key": (
        lambda family: family.get(b"e"),
        {"insert": put(b"e")},
        {"insert before": put(b"dd"), "insert after": put(b"e\0")},
    ),
    "contains of an absent key": (lambda family: b"e" in family, {"insert": put(b"e")}, {"neighbour": put(b"ee")}),
    "getitem of an absent key": (
        key_error(lambda family: family[b"e"]),
        {"insert": put(b"e")},
        {"neighbour": put(b"ee")},
    ),
    "delitem of an absent key": (
        key_error(lambda family: family.__delitem__(b"e")),
        {"insert": put(b"e")},
        {"neighbour": put(b"ee")},
    ),
    "delitem": (lambda family: family.__delitem__(b"d"), {"delete": delete(b"d")}, {"neighbour": delete(b"b")}),
    "pop": (lambda family: family.pop(b"d"), {"overwrite": put(b"d")}, {"neighbour": put(b"b")}),
    "setdefault": (
        lambda family: family.setdefault(b"e", b"mine"),
        {"insert": put(b"e")},
        {"neighbour": put(b"d")},
    ),
    "setdefault of a present key": (
        lambda family: family.setdefault(b"d", b"mine"),
        {"overwrite": put(b"d"), "delete": delete(b"d")},
        {"neighbour": put(b"b")},
    ),
    "popitem": (lambda family: family.popitem(), {"clear": clear}, {}),
    "len": (len, {"insert": put(b"a"), "delete": delete(b"j"), "clear": clear}, {}),
    "iteration": (
        list,
        {"insert first": put(b""), "insert last": put(b"\xff"), "delete": delete(b"f"), "clear": clear},
        {},
    ),
    "reversed": (lambda family: list(reversed(family)), {"insert": put(b"e"), "delete": delete(b"b")}, {}),
    "keys": (lambda family: list(family.keys()), {"insert": put(b"e"), "delete": delete(b"b")}, {}),
    "values": (lambda family: list(family.values()), {"insert": put(b"e"), "overwrite": put(b"b")}, {}),
    "items": (lambda family: list(family.items()), {"insert": put(b"e"), "overwrite": put(b"b")}, {}),
    "range": (
        scan(b"d", b"h"),
        {
            "insert inside": put(b"e"),
            "insert at the end": put(b"gz"),
            "overwrite first": put(b"d"),
            "delete": delete(b"f"),
            "delete-range over it": delete_range(b"a", b"z"),
            "delete-range overlapping": delete_range(b"f", b"z"),
        },
        {
            "insert before": put(b"cz"),
            "insert at stop": put(b"h"),
            "insert behind": put(b"i"),
            "delete-range before": delete_range(b"a", b"d"),
            "delete-range behind": delete_range(b"h", None),
        },
    ),
    "range in reverse": (
        scan(b"d", b"h", reverse=True),
        {"insert inside": put(b"e"), "overwrite first": put(b"d"), "delete last": delete(b"f")},
        {"insert before": put(b"cz"), "overwrite stop": put(b"h")},
    ),
    "empty range": (
        scan(b"dd", b"ee"),
        {"insert at start": put(b"dd"), "insert inside": put(b"e")},
        {"before": put(b"d"), "at stop": put(b"ee"), "behind": put(b"f")},
    ),
    "empty range in reverse": (
        scan(b"dd", b"ee", reverse=True),
        {"insert": put(b"e")},
        {"before": put(b"d"), "at stop": put(b"ee")},
    ),
    "range that cannot hold anything": (scan(b"h", b"b"), {}, {"inside": put(b"d"), "clear": clear}),
    "prefix": (
        scan(prefix=b"d"),
        {"overwrite": put(b"d"), "insert": put(b"d\xff\xff"), "delete": delete(b"d")},
        {"before": put(b"c\xff"), "behind": put(b"e")},
    ),
    "prefix with bounds": (
        scan(b"d", b"d5", prefix=b"d"),
        {"insert": put(b"d4")},
        {"behind stop": put(b"d5"), "before": put(b"b")},
    ),
    "prefix of 0xFF": (
        scan(prefix=b"\xff"),
        {"insert": put(b"\xff"), "insert longer": put(b"\xff\xff\xff")},
        {"before": put(b"\xfe\xff")},
    ),
    "limit": (
        scan(limit=2),
        {"insert before first": put(b"a"), "insert between": put(b"c"), "overwrite last": put(b"d")},
        {"just behind last": put(b"d\0"), "far behind": delete(b"j")},
    ),
    "limit in reverse": (
        scan(limit=2, reverse=True),
        {"insert behind": put(b"z"), "insert between": put(b"i"), "overwrite last": put(b"h")},
        {"just before last": put(b"gz"), "far before": delete(b"b")},
    ),
    "limit larger than the range": (
        scan(b"b", b"e", limit=3),
        {"insert behind last": put(b"dd")},
        {"at stop": put(b"e")},
    ),
    "limit of nothing": (scan(limit=0), {}, {"insert": put(b"a"), "clear": clear}),
    "scan not begun": (take(0), {}, {"insert": put(b"a"), "clear": clear}),
    "scan partly consumed": (
        take(3),
        {"insert before": put(b"a"), "overwrite last": put(b"f"), "delete": delete(b"b")},
        {"just behind last": put(b"f\0"), "next": put(b"h"), "rest": delete_range(b"f\0", None)},
    ),
    "scan partly consumed in reverse": (
        take(3, reverse=True),
        {"insert behind": put(b"k"), "overwrite last": put(b"f"), "delete": delete(b"j")},
        {"just before last": put(b"ez"), "next": put(b"d"), "rest": delete_range(None, b"f")},
    ),
    "scan consumed to its last entry but not past it": (
        take(5),
        {"overwrite last": put(b"j")},
        {"behind": put(b"k")},
    ),
}

MUST = [(f"{name}: {change}", read, write) for name, (read, must, _) in CASES.items() for change, write in must.items()]
MUST_NOT = [
    (f"{name}: {change}", read, write)
    for name, (read, _, may) in CASES.items()
    for change, write in {**may, "another family": put(b"d")}.items()
]


def begin_and_read(store: Store, read: Read) -> Transaction:
    """A transaction that has read and means to write where nobody else does."""
    txn = store.begin()
    read(txn.family("default"))
    txn.put("other", b"mine", b"written")
    return txn


@pytest.mark.parametrize(("read", "write"), [pytest.param(read, write, id=name) for name, read, write in MUST])
def test_transaction_whose_reading_was_changed_conflicts(
    store: Store, family: Family, read: Read, write: Write
) -> None:
    """Guarantee 3, rows 68 and 69: keys, absent keys and ranges as far as they were consumed."""
    txn = begin_and_read(store, read)
    begun = store.sequence
    write(family)
    between = dict(family)
    with pytest.raises(pystate.ConflictError) as caught:
        txn.commit()
    error = caught.value
    assert str(error).startswith("Resource busy:")
    assert isinstance(error, RuntimeError)
    assert error.family == "default"
    assert (error.key is None) != (error.range is None)
    assert error.read_sequence == begun
    assert error.commit_sequence == begun + 1
    assert not error.too_old
    assert dict(family) == between
    assert dict(store.family("other")) == {}


@pytest.mark.parametrize(("read", "write"), [pytest.param(read, write, id=name) for name, read, write in MUST_NOT])
def test_transaction_whose_reading_was_not_changed_commits(
    store: Store, family: Family, read: Read, write: Write, request: pytest.FixtureRequest
) -> None:
    """Row 71: no spurious conflict with a commit elsewhere, beyond the consumed part, or in another family."""
    elsewhere = request.node.callspec.id.endswith("another family")
    txn = begin_and_read(store, read)
    write(store.family("other") if elsewhere else family)
    txn.commit()
    assert store.family("other")[b"mine"] == b"written"


WRITING = {"delitem", "pop", "popitem", "setdefault"}


@pytest.mark.parametrize("name", [name for name in CASES if name not in WRITING])
def test_transaction_that_only_reads_never_fails(store: Store, family: Family, name: str) -> None:
    """Guarantee 3: whatever it read and whatever changed since, it committed at its begin."""
    read, _, _ = CASES[name]
    txn = store.begin()
    read(txn.family("default"))
    family.clear()
    family.update({b"a": b"", b"e": b"", b"z": b""})
    assert txn.commit() == txn.sequence == store.sequence - 2


BLIND: dict[str, Write] = {
    "put": put(b"d"),
    "put of an absent key": put(b"e"),
    "setitem": lambda family: family.__setitem__(b"d", b"mine"),
    "delete": delete(b"d"),
    "update": lambda family: family.update({b"d": b"mine", b"e": b"mine"}),
}
RANGES: dict[str, Write] = {"delete_range": delete_range(b"c", b"g"), "clear": clear}


def overtaken(store: Store, write: Write) -> tuple[Transaction, dict[bytes, bytes]]:
    """A transaction that writes, others that commit to the same keys, and what there is if it comes last."""
    txn = store.begin()
    write(txn.family("default"))
    family = store.family("default")
    family.update({b"d": b"theirs", b"e": b"theirs"})
    family.delete(b"f")
    with pystate.memory() as expected:
        expected.family("default").update(dict(family))
        write(expected.family("default"))
        return txn, dict(expected.family("default"))


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in BLIND.items()])
def test_blind_write_over_a_newer_one_commits_and_wins(store: Store, family: Family, write: Write) -> None:
    """Guarantee 3: what was not read cannot conflict; the result is that of running it last."""
    txn, expected = overtaken(store, write)
    txn.commit()
    assert dict(family) == expected


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in RANGES.items()])
def test_range_deleted_over_newer_keys_leaves_none_or_conflicts(store: Store, family: Family, write: Write) -> None:
    """Guarantee 3: a key inserted meanwhile is deleted with the rest, or the transaction is run again; never kept."""
    txn, expected = overtaken(store, write)
    before = dict(family)
    try:
        txn.commit()
    except pystate.ConflictError:
        assert dict(family) == before
        store.transact(lambda txn: write(txn.family("default")))
    assert dict(family) == expected


def test_lost_update_of_a_counter_conflicts(store: Store, family: Family) -> None:
    """Row 67: two read the same value and both add one; the second to commit has to do it again."""
    family[b"n"] = b"0"
    one, two = store.begin(), store.begin()
    for txn in (one, two):
        txn.put("default", b"n", b"%d" % (int(txn.family("default")[b"n"]) + 1))
    one.commit()
    with pytest.raises(pystate.ConflictError) as caught:
        two.commit()
    assert (caught.value.family, caught.value.key) == ("default", b"n")
    assert caught.value.read_sequence == two.sequence
    assert caught.value.commit_sequence == store.sequence
    assert family[b"n"] == b"1"
    store.transact(lambda txn: txn.put("default", b"n", b"%d" % (int(txn.family("default")[b"n"]) + 1)))
    assert family[b"n"] == b"2"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first then second", "second then first"])
def test_write_skew_by_key_reads_conflicts(store: Store, family: Family, order: tuple[int, int]) -> None:
    """Row 68: two doctors each see the other on call and each go home; only one of them may."""
    family.update({b"alice": b"on", b"bob": b"on"})
    txns = [store.begin(), store.begin()]
    for txn, own, other in zip(txns, (b"alice", b"bob"), (b"bob", b"alice"), strict=True):
        assert txn.get("default", other) == b"on"
        txn.put("default", own, b"off")
    txns[order[0]].commit()
    with pytest.raises(pystate.ConflictError):
        txns[order[1]].commit()
    assert sorted([family[b"alice"], family[b"bob"]]) == [b"off", b"on"]


def test_write_skew_by_disjoint_reads_commits(store: Store, family: Family) -> None:
    """Row 71: each reads and writes its own key only, so both may."""
    txns = {own: store.begin() for own in (b"b", b"d")}
    for own, txn in txns.items():
        txn.put("default", own, txn.family("default")[own] * 2)
    for txn in txns.values():
        txn.commit()
    assert (family[b"b"], family[b"d"]) == (b"BB", b"DD")


def test_write_skew_by_range_reads_conflicts(store: Store, family: Family) -> None:
    """Row 69: each counts the entries of a range and inserts one into it; the second has counted wrongly."""
    one, two = store.begin(), store.begin()
    for txn, key in ((one, b"c"), (two, b"e")):
        assert len(list(txn.scan("default", b"b", b"g"))) == 3
        txn.put("default", key, b"4")
    one.commit()
    with pytest.raises(pystate.ConflictError) as caught:
        two.commit()
    assert caught.value.range is not None
    assert overlap(caught.value.range, single(b"c"))
    assert not overlap(caught.value.range, single(b"g"))


def test_absent_read_then_insert_has_one_winner(store: Store, family: Family) -> None:
    """Row 70: of many that found the key absent, one inserts it."""
    txns = [store.begin() for _ in range(5)]
    for number, txn in enumerate(txns):
        assert txn.family("default").setdefault(b"lock", b"%d" % number) == b"%d" % number
    txns[3].commit()
    for txn in (txns[0], txns[1], txns[2], txns[4]):
        with pytest.raises(pystate.ConflictError):
            txn.commit()
    assert family[b"lock"] == b"3"


def test_key_read_and_rewritten_by_itself_only_commits(store: Store, family: Family) -> None:
    """A transaction does not conflict with itself, nor with what was there before it began."""
    for _ in range(3):
        with store.begin() as txn:
            mine = txn.family("default")
            mine[b"b"] = mine[b"b"] + b"!"
            list(mine.scan())
            mine.delete_range(b"c", b"e")
            assert len(mine) == len(list(mine))
    assert family[b"b"] == b"B!!!"


def test_key_read_back_after_its_own_write_does_not_conflict(store: Store, family: Family) -> None:
    """What a transaction wrote before it read is its own, whatever others write there."""
    txn = store.begin()
    mine = txn.family("default")
    mine[b"d"] = b"mine"
    mine.delete(b"f")
    assert mine[b"d"] == b"mine"
    assert b"f" not in mine
    assert mine.pop(b"d") == b"mine"
    family[b"d"] = family[b"f"] = b"theirs"
    txn.commit()
    assert b"d" not in family
    assert b"f" not in family


def test_key_read_before_its_own_write_still_conflicts(store: Store, family: Family) -> None:
    """Writing a key does not forget that it had been read."""
    txn = store.begin()
    mine = txn.family("default")
    mine[b"d"] = mine[b"d"] + b"!"
    family[b"d"] = b"theirs"
    with pytest.raises(pystate.ConflictError):
        txn.commit()
    assert family[b"d"] == b"theirs"


def test_conflict_with_an_earlier_commit_is_found_behind_a_later_one(store: Store, family: Family) -> None:
    """All commits since the begin are looked at, not only the newest."""
    txn = begin_and_read(store, lambda family: family.get(b"d"))
    for key in (b"a", b"d", b"z", b"zz"):
        family[key] = b"theirs"
    with pytest.raises(pystate.ConflictError) as caught:
        txn.commit()
    assert caught.value.commit_sequence == store.sequence - 2


def test_first_transaction_after_reopening_does_not_conflict(tmp_path: Path) -> None:
    """Row 71: what was committed before the store was opened is no news to anybody."""
    with pystate.open(str(tmp_path / "s"), durability="process") as store:
        store.family("default").update(START)
    with pystate.open(str(tmp_path / "s"), durability="process") as store, store.begin() as txn:
        mine = txn.family("default")
        mine[b"b"] = mine[b"b"] * 2
        assert len(list(mine.scan())) == 5
        assert b"zz" not in mine


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "dropped and created again"])
def test_transaction_into_a_family_dropped_meanwhile_fails_alone(store: Store, family: Family, again: bool) -> None:
    """Row 81: whoever touches the family fails, everybody else commits, and a new family of that name stays empty."""
    store.family("other")[b"k"] = b"v"
    writer, reader, bystander, onlooker = (store.begin() for _ in range(4))
    writer.put("other", b"x", b"mine")
    assert reader.get("other", b"k") == b"v"
    reader.put("default", b"x", b"mine")
    bystander.put("default", b"y", b"mine")
    assert onlooker.get("other", b"k") == b"v"
    store.drop_family("other")
    if again:
        store.create_family("other")
    for txn in (writer, reader):
        with pytest.raises((pystate.FamilyNotFoundError, pystate.ConflictError)):
            txn.commit()
    bystander.commit()
    assert onlooker.family("other")[b"k"] == b"v"
    onlooker.commit()
    assert dict(family) == {**START, b"y": b"mine"}
    assert not again or dict(store.family("other")) == {}


# ---- the bounded window ---------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Store]:
    """A store of 300 values of 500 bytes that keeps at most 50,000 bytes of history."""
    with pystate.open(str(tmp_path / "small"), durability="process", history_bytes=50_000) as store:
        overwrite(store, 0, 300, b"0")
        yield store


def overwrite(store: Store, start: int, stop: int, value: bytes) -> None:
    """Write keys one commit at a time, and see that the window is never larger than its limit."""
    family = store.family("default")
    for number in range(start, stop):
        family[b"%03d" % number] = value * 500
        stats = store.stats()
        assert stats.history_bytes <= stats.history_bytes_max == 50_000


def assert_too_old(error: pystate.ConflictError, store: Store, read_sequence: int) -> None:
    assert error.too_old
    assert str(error).startswith("Resource busy:")
    assert (error.family, error.key, error.range) == (None, None, None)
    assert error.read_sequence == read_sequence
    assert read_sequence < error.commit_sequence <= store.sequence


def test_window_outrun_by_commits_fails_the_old_transaction_only(small: Store) -> None:
    """Guarantee 3, row 72: the oldest one fails with `too_old`, never with false success; newer ones go on."""
    old = small.begin()
    assert old.family("default")[b"000"] == b"0" * 500
    old.put("default", b"mine", b"old")
    overwrite(small, 0, 60, b"1")
    new, reader = small.begin(), small.begin()
    new.put("default", b"mine", new.family("default")[b"000"][:1])
    overwrite(small, 60, 110, b"2")
    with pytest.raises(pystate.ConflictError) as caught:
        old.family("default")[b"000"]
    assert_too_old(caught.value, small, old.sequence)
    with pytest.raises(pystate.ConflictError) as caught:
        old.commit()
    assert_too_old(caught.value, small, old.sequence)
    assert reader.family("default")[b"100"] == b"0" * 500
    assert reader.commit() == reader.sequence
    new.commit()
    assert small.family("default")[b"mine"] == b"1"


def test_window_outrun_by_commits_fails_the_commit_of_unchanged_reads_too(small: Store) -> None:
    """Row 72: when it can no longer be known whether something changed, the answer is a conflict."""
    old = small.begin()
    assert old.get("default", b"never written") is None
    old.put("default", b"mine", b"old")
    overwrite(small, 0, 150, b"1")
    with pytest.raises(pystate.ConflictError) as caught:
        old.commit()
    assert_too_old(caught.value, small, old.sequence)
    assert b"mine" not in small.family("default")


def test_window_outrun_by_commits_fails_the_old_view_and_scan(small: Store) -> None:
    """Row 101: a view or scan held for too long is told so; it never shows a mixture of states."""
    view, scan = small.view(), small.family("default").scan()
    next(scan)
    overwrite(small, 0, 150, b"1")
    with pytest.raises(pystate.ConflictError) as caught:
        view.get("default", b"000")
    assert_too_old(caught.value, small, view.sequence)
    with pytest.raises(pystate.ConflictError) as caught:
        list(view.scan("default"))
    assert caught.value.too_old
    seen: list[bytes] = []
    with pytest.raises(pystate.ConflictError) as caught:
        seen.extend(value for _, value in scan)
    assert caught.value.too_old
    assert set(seen) <= {b"0" * 500}
    del caught  # it holds on to the frames of the scan
    view.close()
    assert small.stats().views == 0
    with small.view() as fresh:
        assert fresh.get("default", b"000") == b"1" * 500


def test_window_outrun_by_commits_makes_transact_run_again(small: Store) -> None:
    """`too_old` is a conflict like any other to a retry loop."""
    runs = []

    def function(txn: Transaction) -> None:
        runs.append(txn.sequence)
        txn.get("default", b"x")
        if len(runs) == 1:
            overwrite(small, 0, 150, b"1")
        txn.put("default", b"x", b"mine")

    small.transact(function)
    assert len(runs) == 2


def test_window_with_few_bytes_overwritten_holds_for_any_number_of_commits(small: Store) -> None:
    """Guarantee 8: history is counted by what it holds, so overwriting one key for long outruns nobody."""
    view = small.view()
    family = small.family("default")
    for number in range(300):
        family[b"000"] = b"%d" % number
    assert view.get("default", b"000") == b"0" * 500
    assert small.stats().history_bytes <= 50_000
    view.close()


def test_window_of_a_long_view_is_bounded_in_memory(small: Store) -> None:
    """Guarantee 8, row 101: with a view held open, heavy overwriting allocates no more than the limit and a margin."""
    family = small.family("default")
    view = small.view()
    overwrite(small, 0, 5, b"1")
    tracemalloc.start()
    try:
        for number in range(1500):
            family[b"%03d" % (number % 300)] = bytes([number % 256]) * 500
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    view.close()
    assert grown < 300 * 600 + 2 * 50_000 + 100_000  # the newest values, the history, and the rest


# ---- chance ---------------------------------------------------------------------------------------------------------

Step = tuple[int, str, Operation | None]
steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["default", "other"]), st.none() | operations), max_size=40
)


def commit_both(store: Store, model: Model, real: Transaction, expected: ModelTransaction) -> None:
    """Commit, and compare the outcome with what the model says about it."""
    may, must, replayed = expected.may_conflict, expected.must_conflict, expected.replayed()
    try:
        sequence = real.commit()
    except pystate.ConflictError as error:
        assert may, f"conflict without a reason: {error}"
        assert error.family is not None
        span = error.range if error.key is None else single(error.key)
        assert span is not None
        changed = model.changed_since(expected.begin)
        assert any(name == error.family and overlap(span, other) for name, other in changed)
        assert expected.begin < error.commit_sequence <= model.sequence
    else:
        assert not must, "committed although it would have seen something else"
        if expected.written:
            assert replayed is not None
            model.commit(store.sequence, replayed, expected.written)
        else:
            assert sequence == expected.begin
    for name, entries in model.families.items():
        assert dict(store.family(name)) == entries


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(keys, values, max_size=6), steps)
def test_transactions_in_any_interleaving_equal_some_serial_order(
    entries: dict[bytes, bytes], interleaving: list[Step]
) -> None:
    """Guarantee 3: each committed transaction, run alone at the point of its commit, sees what it saw.

    And a conflict is only raised when something in what was read has been written since.
    """
    with pystate.memory(families=["other"]) as store:
        model = Model(["default", "other"])
        for name in model.families:
            store.family(name).update(entries)
            model.families[name] = dict(entries)
        model.sequence = store.sequence
        open_now: dict[int, tuple[Transaction, ModelTransaction]] = {}
        for number, name, operation in interleaving:
            if number not in open_now:
                open_now[number] = store.begin(), ModelTransaction(model)
            real, expected = open_now[number]
            if operation is None:
                del open_now[number]
                commit_both(store, model, real, expected)
            else:
                result = operation.run(real.family(name))
                note(f"{number}: {name} {operation} -> {result!r}")
                assert result == expected.run(name, operation)
        for real, expected in open_now.values():
            commit_both(store, model, real, expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), keys, st.booleans()), max_size=40))
def test_transactions_on_disjoint_keys_never_conflict(calls: list[tuple[int, bytes, bool]]) -> None:
    """Row 71: three transactions that keep to key spaces of their own all commit, whatever the order."""
    with pystate.memory() as store:
        txns = [store.begin() for _ in range(3)]
        expected: dict[bytes, bytes] = {}
        for number, key, blind in calls:
            mine, own = txns[number].family("default"), b"%d:" % number + key
            if not blind:
                assert mine.get(own) == expected.get(own)
                prefix = b"%d:" % number
                assert list(mine.scan(prefix=prefix)) == selected(expected, prefix=prefix)
            mine[own] = expected[own] = bytes([len(expected)])
        for txn in txns:
            txn.commit()
        assert dict(store.family("default")) == expected


def test_model_tells_conflicts_from_neighbours() -> None:
    """The model that judges above knows a conflict when it sees one, and a neighbour too."""
    for changed, expected in ((b"a", True), (b"b", True), (b"c", False)):
        model = Model()
        model.families["default"] = {b"a": b"1", b"b": b"2", b"c": b"3"}
        txn = ModelTransaction(model)
        txn.run("default", Scan(limit=2))
        txn.run("default", Put(b"x", b"mine"))
        other = ModelTransaction(model)
        other.run("default", Put(changed, b"theirs"))
        state = other.replayed()
        assert state is not None
        model.commit(1, state, other.written)
        assert txn.may_conflict is txn.must_conflict is expected
        assert not ModelTransaction(model).may_conflict
    own = ModelTransaction(model)
    own.run("default", Put(b"a", b"mine"))
    own.run("default", Get(b"a"))
    assert own.read == []
