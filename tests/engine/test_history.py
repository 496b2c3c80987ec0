"""Old values for open readers, against a model that copies the whole state for each of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pystate.engine.history import History, PinnedState, changes, lookup, too_old
from pystate.errors import ConflictError

FAMILIES = (1, 2)
keys = st.sampled_from([b"a", b"b", b"c", b"d"])
writes = st.dictionaries(st.tuples(st.sampled_from(FAMILIES), keys), st.none() | st.binary(max_size=3), min_size=1)

#: Values by family and key, and the sequence that wrote each.
State = dict[tuple[int, bytes], bytes]


def size_of(key: bytes, value: bytes | None) -> int:
    """What the module says a saved value costs."""
    return 150 + len(key) + len(value or b"")


def recount(history: History) -> int:
    """The bytes counter, counted anew from what is saved."""
    if history.oldest is None:
        return 0
    return sum(
        size_of(key, value)
        for pinned in history.oldest.chain()
        for saved in pinned.saved.values()
        for key, (value, _) in saved.items()
    )


class Reader:
    """A pinned state, and a copy of everything at that moment."""

    def __init__(self, pinned: PinnedState, state: State, sequence: int, *, durable: bool) -> None:
        self.pinned, self.state, self.sequence, self.durable = pinned, state, sequence, durable
        self.changed: dict[tuple[int, bytes], int] = {}


class HistoryMachine(RuleBasedStateMachine):
    """Commits, and readers that come and go in any order."""

    bytes_max = 10**9

    def __init__(self) -> None:
        super().__init__()
        self.history = History(self.bytes_max)
        self.live: State = {}
        self.sequence = 0
        self.readers: list[Reader] = []

    @rule(writes=writes)
    def commit(self, writes: dict[tuple[int, bytes], bytes | None]) -> None:
        self.sequence += 1
        for (family, key), value in writes.items():
            if self.history.newest is not None:
                self.history.save(self.history.newest, family, key, self.live.get((family, key)), self.sequence)
            for reader in self.readers:
                reader.changed.setdefault((family, key), self.sequence)
            if value is None:
                self.live.pop((family, key), None)
            else:
                self.live[family, key] = value
        self.history.trim(self.sequence)
        if not any(reader.durable for reader in self.readers):
            assert self.history.bytes <= self.bytes_max

    @rule(durable=st.sampled_from([False, False, False, True]))
    def pin(self, durable: bool) -> None:
        pinned = self.history.pin(self.sequence, durable_reader=durable)
        self.readers.append(Reader(pinned, dict(self.live), self.sequence, durable=durable))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        reader = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        self.history.unpin(reader.pinned, durable_reader=reader.durable)

    def value_as_of(self, reader: Reader, family: int, key: bytes) -> bytes | None:
        found = lookup(reader.pinned, family, key)
        return self.live.get((family, key)) if found is None else found[0]

    @invariant()
    def readers_see_their_own_state(self) -> None:
        for reader in self.readers:
            if reader.pinned.expired:
                for call in (lookup, changes):
                    arguments: Any = (reader.pinned, 1, b"a")[: 3 if call is lookup else 2]
                    with pytest.raises(ConflictError) as caught:
                        call(*arguments)
                    assert caught.value.too_old
                    assert caught.value.read_sequence == reader.sequence
                continue
            for family in FAMILIES:
                for key in (b"a", b"b", b"c", b"d"):
                    assert self.value_as_of(reader, family, key) == reader.state.get((family, key))
                    found = lookup(reader.pinned, family, key)
                    assert (found[1] if found else None) == reader.changed.get((family, key))

    @invariant()
    def changes_are_exactly_what_has_changed(self) -> None:
        for reader in self.readers:
            if not reader.pinned.expired:
                for family in FAMILIES:
                    maps = changes(reader.pinned, family)
                    assert all(maps)
                    assert {key for saved in maps for key in saved} == {
                        key for other, key in reader.changed if other == family
                    }

    @invariant()
    def counters_are_right(self) -> None:
        assert self.history.bytes == recount(self.history)
        assert self.history.pins == len(self.readers)
        if self.history.oldest is not None:
            for pinned in self.history.oldest.chain():
                saved = [(k, v) for family in pinned.saved.values() for k, (v, _) in family.items()]
                assert pinned.saved_bytes == sum(size_of(key, value) for key, value in saved)

    @invariant()
    def chain_holds_the_pinned_pinned_states_and_no_other(self) -> None:
        chain = list(self.history.oldest.chain()) if self.history.oldest is not None else []
        assert {id(pinned) for pinned in chain} == {id(r.pinned) for r in self.readers if not r.pinned.expired}
        assert (chain[-1] if chain else None) is self.history.newest
        assert [pinned.older for pinned in chain] == [None, *chain][: len(chain)]
        assert [pinned.sequence for pinned in chain] == sorted(pinned.sequence for pinned in chain)
        for pinned in chain:
            assert pinned.pins == sum(reader.pinned is pinned for reader in self.readers)

    @invariant()
    def nothing_is_kept_for_nobody(self) -> None:
        if not self.readers:
            assert (self.history.bytes, self.history.newest, self.history.oldest) == (0, None, None)

    @invariant()
    def snapshots_never_expire(self) -> None:
        assert not any(reader.durable and reader.pinned.expired for reader in self.readers)


class SmallHistoryMachine(HistoryMachine):
    """The same with a limit that a handful of values reaches."""

    bytes_max = 700


HistoryMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
SmallHistoryMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30)


class TestHistoryAgainstCopiesOfTheState(HistoryMachine.TestCase):  # type: ignore[misc, valid-type]
    """Guarantee 3 and 8: a pinned state shows the state at its pin, whatever is committed and unpinned since."""


class TestHistoryWithALimitAgainstCopiesOfTheState(SmallHistoryMachine.TestCase):  # type: ignore[misc, valid-type]
    """Row 72: past the limit the oldest readers are told so, and no reader is ever given a wrong value."""


def commit(history: History, key: bytes, old: bytes | None, sequence: int) -> None:
    if history.newest is not None:
        history.save(history.newest, 1, key, old, sequence)


def test_example_of_the_module_reads_as_it_says() -> None:
    """The drawing in the module's text, with its numbers."""
    history = History(10**6)
    a = history.pin(5)
    commit(history, b"k", b"a", 6)
    b = history.pin(6)
    commit(history, b"k", b"b", 7)
    assert (a.saved, b.saved) == ({1: {b"k": (b"a", 6)}}, {1: {b"k": (b"b", 7)}})
    assert lookup(a, 1, b"k") == (b"a", 6)
    assert lookup(b, 1, b"k") == (b"b", 7)


def test_readers_of_one_state_share_a_pinned_state() -> None:
    """A thousand views of one state cost what one costs."""
    history = History(10**6)
    first = history.pin(5)
    assert all(history.pin(5) is first for _ in range(1000))
    assert history.pins == first.pins == 1001
    commit(history, b"k", b"old", 6)
    assert history.pin(6) is not first
    assert history.bytes == size_of(b"k", b"old")


def test_value_saved_twice_in_a_pinned_state_is_kept_as_it_was_first() -> None:
    """Only the value as of the pin matters; and an interrupted commit that is applied again changes nothing."""
    history = History(10**6)
    pinned = history.pin(5)
    commit(history, b"k", b"first", 6)
    commit(history, b"k", b"second", 7)
    commit(history, b"k", None, 8)
    assert lookup(pinned, 1, b"k") == (b"first", 6)
    assert history.bytes == size_of(b"k", b"first")


def test_key_that_was_absent_is_remembered_as_absent() -> None:
    """Guarantee 3: keys found absent are part of what was read."""
    history = History(10**6)
    pinned = history.pin(5)
    commit(history, b"k", None, 6)
    assert lookup(pinned, 1, b"k") == (None, 6)
    assert lookup(pinned, 2, b"k") is None
    assert lookup(pinned, 1, b"other") is None


def test_oldest_pinned_state_expires_first_and_says_when() -> None:
    """Row 72: the reader that has waited longest fails; its error carries both sequences; the others go on."""
    history = History(2 * size_of(b"k", b"v"))
    old = history.pin(5)
    commit(history, b"k", b"v", 6)
    new = history.pin(6)
    commit(history, b"k", b"w", 7)
    history.trim(7)
    assert (old.expired, new.expired) == (0, 0)
    commit(history, b"l", b"w", 8)
    history.trim(8)
    assert (old.expired, new.expired) == (8, 0)
    error = too_old(old)
    assert (error.too_old, error.read_sequence, error.commit_sequence) == (True, 5, 8)
    assert lookup(new, 1, b"k") == (b"w", 7)
    history.unpin(old)
    history.unpin(new)
    assert (history.bytes, history.pins, history.newest) == (0, 0, None)


def test_reader_that_shared_its_pinned_state_with_a_snapshot_expires_once_the_snapshot_is_done() -> None:
    """Guarantee 8: only a snapshot in progress is spared; a view beside it has the limit of every view."""
    history = History(3 * size_of(b"k0", b""))
    view = history.pin(5)
    snapshot = history.pin(5, durable_reader=True)
    for number in range(5):
        commit(history, b"k%d" % number, None, 6 + number)
        history.trim(6 + number)
    assert not snapshot.expired
    history.unpin(snapshot, durable_reader=True)
    commit(history, b"k9", None, 20)
    history.trim(20)
    assert view.expired == 20
    assert history.bytes == 0


def test_newer_readers_survive_a_snapshot_that_is_over_the_limit_by_itself() -> None:
    """Guarantee 8: what a snapshot in progress keeps comes on top of the limit, and costs nobody his view."""
    history = History(3 * size_of(b"k0", b""))
    snapshot = history.pin(5, durable_reader=True)
    for number in range(5):
        commit(history, b"k%d" % number, None, 6 + number)
        history.trim(6 + number)
    view = history.pin(10)
    commit(history, b"k9", None, 11)
    history.trim(11)
    assert not view.expired
    assert lookup(view, 1, b"k9") == (None, 11)
    assert lookup(snapshot, 1, b"k0") == (None, 6)
