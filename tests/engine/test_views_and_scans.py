"""Scans and views while everything changes: each shows the one state it was begun at."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pystate
from pystate import Family, Store, View
from tests.engine.model import ModelFamily, Operation, Reading, operations, readings

SIZE = 5_000


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = pystate.memory() if request.param == "memory" else pystate.open(str(tmp_path / "s"), durability="process")
    with opened:
        yield opened


@pytest.fixture
def large(store: Store) -> Family:
    """A family of 5,000 keys, so that every scan has to take them in several goes."""
    family = store.family("default")
    family.update({b"%05d" % number: b"%d" % number for number in range(0, 2 * SIZE, 2)})
    return family


def disturb(family: Family, chance: random.Random, position: int) -> None:
    """One change, near where a scan stands or anywhere."""
    near = chance.random() < 0.7
    number = position + chance.randint(-3, 3) if near else chance.randrange(2 * SIZE)
    key = b"%05d" % max(number, 0)
    match chance.randrange(4):
        case 0 | 1:
            family.put(key, b"new")
        case 2:
            family.delete(key)
        case _:
            family.delete_range(key, key + b"5" if chance.random() < 0.9 else b"%05d" % (number + 50))


Source = Callable[[Store, bool], Iterator[tuple[bytes, bytes]]]


def _of_family(store: Store, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
    return store.family("default").scan(reverse=reverse)


def _of_view(store: Store, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
    with store.view() as view:
        yield from view.scan("default", reverse=reverse)


def _of_transaction(store: Store, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
    with store.begin() as txn:
        yield from txn.scan("default", reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("source", [_of_family, _of_view, _of_transaction], ids=["family", "view", "transaction"])
def test_scan_with_a_write_at_every_step_gives_the_state_as_of_its_start(
    store: Store, large: Family, source: Source, reverse: bool
) -> None:
    """Row 74: inserts, overwrites and deletes just before and just behind the scan, and anywhere."""
    chance = random.Random(7)
    wanted = sorted(large.items(), reverse=reverse)
    scan = source(store, reverse)
    seen = [next(scan)]
    for key, value in scan:
        seen.append((key, value))
        disturb(large, chance, int(key))
    assert seen == wanted
    assert list(large) != [key for key, _ in wanted]
    assert store.stats().views == 0


@pytest.mark.parametrize("how", ["iter", "reversed", "keys", "values", "items"])
def test_iteration_with_a_write_at_every_step_gives_the_state_as_of_its_start(large: Family, how: str) -> None:
    """Row 74: the mapping's own iterations are scans too."""
    chance = random.Random(11)
    before = dict(large)
    match how:
        case "iter":
            walk, wanted = iter(large), sorted(before)
        case "reversed":
            walk, wanted = reversed(large), sorted(before, reverse=True)
        case "keys":
            walk, wanted = iter(large.keys()), sorted(before)
        case "values":
            walk, wanted = iter(large.values()), [before[key] for key in sorted(before)]
        case _:
            pairs = list(large.items())
            walk, wanted = (key for key, _ in large.items()), [key for key, _ in pairs]
    seen = []
    for number, item in enumerate(walk):
        seen.append(item)
        disturb(large, chance, 2 * number)
    assert seen == wanted


def test_scan_of_a_range_that_is_deleted_under_it_goes_on(large: Family) -> None:
    """Row 74: even when nothing of it is left, in both directions."""
    for reverse in (False, True):
        wanted = sorted(large.scan(b"01000", b"09000"), reverse=reverse)
        scan = large.scan(b"01000", b"09000", reverse=reverse)
        seen = list(islice(scan, 10))
        large.clear()
        seen += scan
        assert seen == wanted
        large.update(wanted)


def test_scans_begun_at_different_moments_each_give_their_own_state(store: Store) -> None:
    """Row 74: any number of open scans, advanced in turn, while the family grows and shrinks."""
    family = store.family("default")
    scans: list[tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = []
    chance = random.Random(3)
    for number in range(60):
        family[b"%02d" % chance.randrange(40)] = b"%d" % number
        family.delete(b"%02d" % chance.randrange(40))
        reverse = bool(number % 2)
        scans.append((family.scan(reverse=reverse), sorted(family.items(), reverse=reverse), []))
        for scan, _, seen in scans:
            seen += islice(scan, 1)
    for scan, wanted, seen in scans:
        seen += scan
        assert seen == wanted
    assert store.stats().views == 0


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
def test_scan_abandoned_gives_back_its_history(store: Store, large: Family, reverse: bool) -> None:
    """Guarantee 8: a scan dropped half-way, never begun, or closed holds nothing any more."""
    unbegun, partly, closed = (large.scan(reverse=reverse) for _ in range(3))
    next(partly)
    next(closed)
    assert store.stats().views == 3
    large.clear()
    assert store.stats().history_bytes > SIZE * 5
    del unbegun, partly
    getattr(closed, "close")()  # noqa: B009 - an iterator need not have it by its type; this one does
    gc.collect()
    assert store.stats().views == 0
    assert store.stats().history_bytes == 0


def test_scan_that_ended_by_itself_gives_back_its_history(store: Store, large: Family) -> None:
    """Guarantee 8: the last entry, the limit, or an empty range ends a scan, and its reading with it."""
    kept = [large.scan(), large.scan(limit=10), large.scan(b"x", b"y"), large.scan(limit=0), iter(large)]
    for scan in kept:
        list(scan)
    assert store.stats().views == 0
    for scan in kept:
        assert list(scan) == []


def test_view_and_transaction_dropped_without_closing_give_back_their_history(store: Store, large: Family) -> None:
    """Guarantee 8: a reader that was forgotten does not hold history until the store is closed."""
    view, txn = store.view(), store.begin()
    assert store.stats().views == 2
    del view, txn
    gc.collect()
    large.clear()
    assert store.stats().views == 0
    assert store.stats().history_bytes == 0


def test_scan_of_a_dropped_family_gives_the_state_as_of_its_start(store: Store) -> None:
    """Row 80: a scan outlives its family; a new family of that name does not mix into it."""
    family = store.create_family("other")
    family.update({b"%d" % number: b"old" for number in range(10)})
    scan = family.scan()
    first = next(scan)
    store.drop_family("other")
    store.create_family("other")[b"5"] = b"new"
    assert [first, *scan] == [(b"%d" % number, b"old") for number in range(10)]


Action = tuple[str, int, Operation, Reading]
verbs = st.sampled_from(["write", "write", "open", "close", "read"])
actions = st.lists(st.tuples(verbs, st.integers(0, 9), operations, readings), max_size=60)


@settings(max_examples=150, deadline=None)
@given(actions)
def test_views_closed_in_any_order_each_keep_their_own_state(plan: list[Action]) -> None:
    """Row 74: many views, at many sequences, read through each other's old values."""
    with pystate.memory() as store:
        family, live = store.family("default"), ModelFamily({})
        views: list[tuple[View, ModelFamily]] = []
        for verb, number, operation, reading in plan:
            if verb == "write":
                assert operation.run(family) == operation.run(live)
            elif verb == "open":
                views.append((store.view(), ModelFamily(dict(live))))
            elif views:
                view, expected = views[number % len(views)]
                assert list(view.family("default").items()) == list(expected.items())
                if verb == "read":
                    assert reading.run(view.family("default")) == reading.run(expected)
                if verb == "close":
                    view.close()
                    del views[number % len(views)]
        for view, expected in views:
            assert dict(view.family("default")) == expected.state
            view.close()
        assert store.stats().history_bytes == store.stats().views == 0


def test_views_of_every_moment_are_read_in_every_order(store: Store) -> None:
    """Row 74: three hundred views over one family; each is right, before and after its neighbours are closed."""
    family, chance = store.family("default"), random.Random(5)
    views: list[tuple[View, dict[bytes, bytes]]] = []
    state: dict[bytes, bytes] = {}
    for number in range(300):
        for _ in range(3):
            key = b"%03d" % chance.randrange(200)
            if chance.random() < 0.7:
                family[key] = state[key] = b"%d" % number
            else:
                family.delete(key)
                state.pop(key, None)
        views.append((store.view(), dict(state)))
    chance.shuffle(views)
    while views:
        view, wanted = views.pop()
        assert dict(view.family("default")) == wanted
        view.close()
        if views:
            neighbour, kept = views[chance.randrange(len(views))]
            assert dict(neighbour.scan("default", reverse=True)) == kept
    assert store.stats().history_bytes == 0


def test_view_opened_before_a_family_is_first_touched_sees_it_as_it_was(tmp_path: Path) -> None:
    """A family is decoded when first touched; a view that is older than that sees the older state all the same."""
    path = str(tmp_path / "lazy")
    with pystate.open(path) as store:
        store.family("default").update({b"%03d" % number: b"old" for number in range(100)})
        store.snapshot()
    with pystate.open(path) as store:
        view, txn = store.view(), store.begin()
        store.family("default")[b"050"] = b"new"
        store.family("default").delete_range(b"060", b"070")
        assert view.get("default", b"050") == b"old"
        assert list(view.family("default").values()) == [b"old"] * 100
        assert len(list(txn.scan("default"))) == 100
        view.close()
        txn.rollback()
        assert len(store.family("default")) == 90


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
def test_scan_while_another_thread_writes_shows_whole_commits_only(store: Store, reverse: bool) -> None:
    """Guarantee 4, row 73: each commit gives all keys one number; no scan ever shows two."""
    family = store.family("default")
    family.update({b"%04d" % key: b"0" for key in range(500)})
    stop, begun, failures = threading.Event(), threading.Event(), []

    def write() -> None:
        try:
            number = 0
            while not stop.is_set():
                number += 1
                with store.begin() as txn:
                    mine = txn.family("default")
                    mine.delete_range(None, None)
                    mine.update({b"%04d" % key: b"%d" % number for key in range(number % 7, 500)})
                begun.set()
        except BaseException as error:
            failures.append(error)
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        begun.wait()
        for _ in range(40):
            scan = family.scan(reverse=reverse)
            pairs = [*islice(scan, 5), *scan]
            shown = {value for _, value in pairs}
            assert len(shown) == 1
            number = int(shown.pop())
            wanted = [b"%04d" % key for key in range(number % 7 if number else 0, 500)]
            assert [key for key, _ in pairs] == (wanted[::-1] if reverse else wanted)
    finally:
        stop.set()
        writer.join()
    assert failures == []
