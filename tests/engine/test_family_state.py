"""One family in memory, its keys in order and its old values, against plain dicts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sortedcontainers import SortedList

from pystate.engine import family_state
from pystate.engine.family_state import Bounds, FamilyState, Pair, Writes
from pystate.engine.history import History, PinnedState
from pystate.errors import CorruptionError

keys = st.sampled_from([bytes([letter]) for letter in b"abcdefgh"] + [b"", b"a\0", b"\xff\xff"])
bounds = st.none() | keys
writes = st.dictionaries(keys, st.none() | st.binary(max_size=2), min_size=1, max_size=5)


@pytest.fixture(autouse=True, scope="module")
def short_steps() -> Iterator[None]:
    """So few keys are brought into order at a time that every scan meets a half-done catching up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family_state, "_CATCH_UP_STEP", 3)
        yield


def expected(
    state: dict[bytes, bytes], low: bytes | None, high: bytes | None, *, inclusive: bool, reverse: bool
) -> list[Pair]:
    return sorted(
        (
            (key, value)
            for key, value in state.items()
            if (low is None or key > low or (inclusive and key == low)) and (high is None or key < high)
        ),
        reverse=reverse,
    )


class FamilyMachine(RuleBasedStateMachine):
    """Commits, readers, and the building, catching up and forgetting of the order, one step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.family = FamilyState(1, "family")
        self.history = History(10**9)
        self.sequence = 0
        self.live: dict[bytes, bytes] = {}
        self.readers: list[tuple[PinnedState, dict[bytes, bytes]]] = []
        self.sorting: list[bytes] | None = None

    @rule(writes=writes, twice=st.booleans())
    def commit(self, writes: Writes, twice: bool) -> None:
        """An interrupted commit is applied again, whole."""
        self.sequence += 1
        for _ in range(1 + twice):
            self.family.apply(writes, self.history, self.sequence)
        for key, value in writes.items():
            if value is None:
                self.live.pop(key, None)
            else:
                self.live[key] = value

    @rule()
    def pin(self) -> None:
        self.readers.append((self.history.pin(self.sequence), dict(self.live)))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        pinned, _ = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        self.history.unpin(pinned)

    @precondition(lambda self: self.family.ordered is None and self.sorting is None)
    @rule()
    def begin_ordering(self) -> None:
        portions = self.family.begin_ordering(self.history.oldest)
        assert portions is not None
        self.sorting = sorted(chain.from_iterable(portions))

    @precondition(lambda self: self.sorting is not None)
    @rule()
    def finish_ordering(self) -> None:
        assert self.sorting is not None
        self.family.finish_ordering(self.sorting)
        self.sorting = None

    @precondition(lambda self: self.family.ordered is not None)
    @rule()
    def catch_up_a_little(self) -> None:
        self.family.catch_up(readers=self.history.newest is not None)

    @precondition(lambda self: self.sorting is None)
    @rule()
    def forget_order(self) -> None:
        self.family.forget_order()

    @precondition(lambda self: self.family.ordered is not None)
    @rule(low=bounds, high=bounds, inclusive=st.booleans(), reverse=st.booleans(), count=st.integers(1, 6))
    def scan(self, low: bytes | None, high: bytes | None, inclusive: bool, reverse: bool, count: int) -> None:
        """Chunk by chunk, now and as of every reader."""
        while not self.family.catch_up(readers=self.history.newest is not None):
            self.family.check()
        for pinned, state in [(None, self.live), *self.readers]:
            found, rest = list[tuple[bytes, bytes]](), Bounds(low, high, inclusive)
            for _ in range(100):
                keys, values, last = self.family.chunk(rest, pinned, count, reverse=reverse)
                assert len(keys) <= count
                found += zip(keys, values, strict=True)
                if last is None:
                    break
                rest = rest.after(last, reverse=reverse)
            else:
                raise AssertionError("the scan does not come to its end")
            assert found == expected(state, low, high, inclusive=inclusive, reverse=reverse)

    @invariant()
    def invariants_of_the_family_hold(self) -> None:
        self.family.check()

    @invariant()
    def values_and_counts_are_right(self) -> None:
        assert self.family.values == self.live
        assert self.family.count(None) == len(self.live)
        for pinned, state in self.readers:
            assert self.family.count(pinned) == len(state)
            keys, values = self.family.resolve(sorted(state), pinned)
            assert list(zip(keys, values, strict=True)) == sorted(state.items())

    @precondition(lambda self: not self.readers and self.family.ordered is not None)
    @rule()
    def catch_up_without_readers_leaves_exactly_the_keys(self) -> None:
        while not self.family.catch_up(readers=False):
            pass
        assert self.family.ordered is not None
        assert list(self.family.ordered) == sorted(self.live)
        assert self.family.absent == set()


FamilyMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=35)


class TestFamilyAgainstPlainDicts(FamilyMachine.TestCase):  # type: ignore[misc, valid-type]
    """Guarantee 3 and 4: scans in both directions show the state of their reader, whatever happens in between."""


@given(bounds, bounds, st.booleans(), keys)
def test_bounds_contain_a_key_as_a_comparison_says(
    low: bytes | None, high: bytes | None, inclusive: bool, key: bytes
) -> None:
    """From `low`, inclusive or not, up to `high`, exclusive; None is unbounded."""
    within = Bounds(low, high, inclusive)
    assert within.contains(key) == bool(expected({key: b""}, low, high, inclusive=inclusive, reverse=False))
    assert not (within.empty() and within.contains(key))


@given(bounds, bounds, keys, keys, st.booleans())
def test_bounds_after_a_key_contain_what_comes_behind_it(
    low: bytes | None, high: bytes | None, passed: bytes, key: bytes, reverse: bool
) -> None:
    """What is left for a scan that has just passed a key."""
    within = Bounds(low, high)
    behind = key < passed if reverse else key > passed
    if within.contains(passed):
        assert within.after(passed, reverse=reverse).contains(key) == (within.contains(key) and behind)


@pytest.mark.parametrize(
    ("low", "high", "empty"),
    [
        (None, None, False),
        (b"", None, False),
        (None, b"", True),
        (b"", b"", True),
        (b"a", b"a", True),
        (b"b", b"a", True),
        (b"a", b"a\0", False),
        (None, b"\0", False),
    ],
)
def test_bounds_that_no_key_fits_are_empty(low: bytes | None, high: bytes | None, empty: bool) -> None:
    """The empty key is a key, and no key lies before it."""
    assert Bounds(low, high).empty() == empty


def loaded(values: dict[bytes, bytes], pending: Writes) -> FamilyState:
    family = FamilyState(1, "family", lambda: dict(values))
    family.pending = pending
    family.load()
    return family


@given(st.dictionaries(keys, st.binary(max_size=2)), writes)
def test_family_loaded_is_its_snapshot_with_the_log_on_top(values: dict[bytes, bytes], pending: Writes) -> None:
    """Design section 5: opening decodes a family when it is first touched, deletions of absent keys included."""
    family = loaded(values, dict(pending))
    merged = {**values, **pending}
    assert family.values == {key: value for key, value in merged.items() if value is not None}
    assert (family.loader, family.pending) == (None, {})


def test_family_loads_once() -> None:
    """A second call does nothing; the values may have changed since."""
    calls = []

    def loader() -> dict[bytes, bytes]:
        calls.append(1)
        return {b"k": b"v"}

    family = FamilyState(1, "family", loader)
    family.load()
    family.values[b"k"] = b"w"
    family.load()
    assert family.values == {b"k": b"w"}
    assert calls == [1]


def test_family_whose_loading_failed_can_be_loaded_again() -> None:
    """The error is raised each time, and nothing of the log is lost by it."""
    broken = True

    def loader() -> dict[bytes, bytes]:
        if broken:
            raise CorruptionError("file", expected="a block", found="none")
        return {b"a": b"1"}

    family = FamilyState(1, "family", loader)
    family.pending = {b"b": b"2"}
    for _ in range(2):
        with pytest.raises(CorruptionError):
            family.load()
    broken = False
    family.load()
    assert family.values == {b"a": b"1", b"b": b"2"}


def test_values_stay_the_same_object() -> None:
    """A handle's ``get`` is the ``get`` of this very dict."""
    family, history = FamilyState(1, "family"), History(10**6)
    values = family.values
    pinned = history.pin(0)
    changes: list[Writes] = [{b"a": b"1"}, {b"a": None, b"b": b"2"}, {b"b": None}]
    for sequence, change in enumerate(changes, start=1):
        family.apply(change, history, sequence)
    history.unpin(pinned)
    assert family.values is values


def test_order_that_too_much_has_changed_under_is_built_anew() -> None:
    """Sorting is cheaper than catching up, and what is noted does not grow for ever."""
    family, history = FamilyState(1, "family"), History(10**6)
    family.apply({b"%d" % number: b"" for number in range(10)}, history, 1)
    portions = family.begin_ordering(None)
    assert portions is not None
    family.finish_ordering(sorted(chain.from_iterable(portions)))
    for sequence in range(2, 100):
        family.apply({b"%d" % (sequence * 10 + number): b"" for number in range(3)}, history, sequence)
        assert len(family.changed or ()) <= 13
        if family.ordered is None:
            break
    assert family.ordered is None
    assert family.changed is None


def test_order_that_exists_is_not_built_again() -> None:
    """Two scans at once sort once."""
    family = FamilyState(1, "family")
    assert family.begin_ordering(None) == []
    family.finish_ordering([])
    assert family.begin_ordering(None) is None


@pytest.mark.parametrize(
    "problem", ["a key that no scan would find", "a deleted key that would never go", "keys out of order"]
)
def test_broken_invariant_is_found_by_the_check(problem: str) -> None:
    """The check that the other tests lean on sees each kind of damage."""
    family = FamilyState(1, "family")
    family.begin_ordering(None)
    family.finish_ordering([])
    if problem == "a key that no scan would find":
        family.values[b"k"] = b"v"
    elif problem == "a deleted key that would never go":
        family.ordered = SortedList([b"k"])
    else:
        family.values.update({b"a": b"", b"b": b""})
        family.ordered = [b"b", b"a"]  # type: ignore[assignment]  # no SortedList can be out of order
    with pytest.raises(RuntimeError, match=problem):
        family.check()
