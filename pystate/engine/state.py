"""The state of an open store in memory: the catalogue of families, the history for readers, and the lock around both.

Promise: `State.apply` brings one commit in as a whole, so no reader that holds the lock, or reads as of a `Pin`, ever
sees half of one. It is used for every commit: new ones, and those that a read-only store reads from the log.

The lock guards everything in the families but the single-key read of the newest value, which is one ``dict`` operation.
It is held for memory work only, never during I/O, so a reader does not wait for a disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

from pystate.engine import threads
from pystate.engine.family_state import Bounds, FamilyState, Writes
from pystate.engine.history import History, PinnedState, changes, lookup, too_old
from pystate.engine.limits import check_family_name
from pystate.engine.log_format import CATALOGUE, Operations, operations_by_family, pack_family_id, unpack_family_id
from pystate.engine.ordering import in_portions, sort_keys
from pystate.errors import FamilyNotFoundError

__all__ = ["Change", "Pin", "State"]

Change: TypeAlias = tuple[FamilyState | None, Writes]
"""What one commit does to one family; None stands for the catalogue."""


class State:
    """All families of a store.

    Attributes:
        lock: guards everything below.
        sequence: of the newest commit.
        families: by name; replaced, never changed, so that a view can keep the one of its time.
        by_id: the same families by id.
        next_family_id: the id that the next family gets.
        history: old values for pinned states.
        ended: not empty once the store is closed.
        scanned: the keys that scans in progress still have before them, and the `ended` of what they scan.
    """

    def __init__(
        self, *, sequence: int, families: Iterable[FamilyState], next_family_id: int, history_bytes: int
    ) -> None:
        self.lock = threads.new_lock()
        self.sequence = sequence
        self.by_id = {family.id: family for family in families}
        self.families: Mapping[str, FamilyState] = {}
        self._publish_families()
        self.next_family_id = next_family_id
        self.history = History(history_bytes)
        self.ended: list[str] = []
        self.scanned: dict[int, tuple[list[bytes], list[str]]] = {}
        self._released: deque[tuple[PinnedState, bool]] = deque()
        self._load_lock = threads.new_lock()

    def _publish_families(self) -> None:
        self.families = MappingProxyType({family.name: family for family in self.by_id.values()})

    # Families

    def family(self, name: str) -> FamilyState:
        """The family called `name`.

        Raises:
            FamilyNotFoundError: there is none.
            TypeError, ValueError: `name` cannot be a family name at all.
        """
        try:
            return self.families[name]
        except (KeyError, TypeError):
            raise FamilyNotFoundError(check_family_name(name), tuple(sorted(self.families))) from None

    def load(self, family: FamilyState) -> None:
        """Decode a family that nobody has touched yet; other threads that want it wait.

        Raises:
            CorruptionError: its part of the snapshot is damaged.
        """
        if family.loader is not None:
            with self._load_lock:
                family.load()

    # Commits

    def apply(self, commit: Iterable[Change], sequence: int) -> None:
        """Make the commit `sequence` visible. Doing it twice does it once, so an interrupted call may be repeated."""
        with self.lock:
            self.apply_locked(commit, sequence)

    def apply_locked(self, commit: Iterable[Change], sequence: int) -> None:
        """`apply`, for a caller that holds the lock."""
        if self._released:
            self.drain()
        for family, writes in commit:
            if family is None:
                self._change_catalogue(writes)
            else:
                family.apply(writes, self.history, sequence)
        self.sequence = sequence
        if self.history.bytes > self.history.bytes_max:
            self.history.trim(sequence)

    def _change_catalogue(self, writes: Writes) -> None:
        for key, value in writes.items():
            name = key.decode()
            if value is None:
                dropped = self.families.get(name)
                if dropped is not None:
                    dropped.dropped = True
                    self.by_id.pop(dropped.id, None)
            else:
                family_id = unpack_family_id(value)
                self.by_id.setdefault(family_id, FamilyState(family_id, name))
                self.next_family_id = max(self.next_family_id, family_id + 1)
            self._publish_families()

    def changes_of(self, operations: Operations) -> list[Change]:
        """What a commit from the log does, in terms of this state's families.

        Raises:
            ValueError: it names a family that does not exist, or is no operation on the catalogue.
        """
        commit: list[Change] = []
        for family_id, writes in operations_by_family(operations):
            if family_id == CATALOGUE:
                check_catalogue(writes)
                commit.append((None, writes))
            elif family_id in self.by_id:
                commit.append((self.by_id[family_id], writes))
            else:
                raise ValueError(f"an operation on family id {family_id}, which does not exist")
        return commit

    def creation(self, names: Iterable[str]) -> Writes:
        """The operations on the catalogue that create these families."""
        return {name.encode(): pack_family_id(self.next_family_id + i) for i, name in enumerate(names)}

    # Readers

    def pin(self, *, durable_reader: bool = False) -> Pin:
        """Begin to read the present state."""
        with self.lock:
            return self.pin_locked(durable_reader=durable_reader)

    def pin_locked(self, *, durable_reader: bool = False) -> Pin:
        """`pin`, for a caller that holds the lock."""
        if self._released:
            self.drain()
        return Pin(self, self.history.pin(self.sequence, durable_reader=durable_reader), durable_reader)

    def release(self, pinned: PinnedState, durable_reader: bool) -> None:
        """End a reading. May be called from a finaliser, and so at any moment, even by a thread that holds the lock:
        then the next commit or reader does the work."""
        self._released.append((pinned, durable_reader))
        if not self.lock.locked():  # not acquire(blocking=False): an interrupt right behind it would keep the lock
            with self.lock:
                self.drain()

    def drain(self) -> None:
        """Do the releases that found the lock taken; under the lock."""
        released, history = self._released, self.history
        while released:
            pinned, durable_reader = released.popleft()
            history.unpin(pinned, durable_reader=durable_reader)

    def get(self, family: FamilyState, key: bytes, pin: Pin) -> bytes | None:
        """The value of `key` as of `pin`, or None.

        Raises:
            ConflictError: the pin is too old.
        """
        pinned = pin.pinned
        # Without the lock, which is right in this order: a commit saves the old value before it stores the new one, and
        # a pinned state that goes away hands over what it saved before it is unlinked. So if the value read first was
        # too new, either a newer state is still there, or the old value is already in this one.
        value = family.values.get(key)
        if pinned.newer is None and not pinned.expired:
            saved = pinned.saved.get(family.id)
            if saved is None:
                if not pinned.expired:
                    return value
            elif key in saved:
                return saved[key][0]
            elif not pinned.expired:
                return value
        with self.lock:
            older = lookup(pinned, family.id, key)
            return family.values.get(key) if older is None else older[0]

    def count(self, family: FamilyState, pin: Pin | None) -> int:
        """How many keys a family has as of `pin` (None: now).

        Raises:
            ConflictError: the pin is too old.
        """
        with self.lock:
            return family.count(pin.pinned if pin is not None else None)

    def chunk(
        self,
        family: FamilyState,
        bounds: Bounds,
        pin: Pin | None,
        count: int,
        *,
        reverse: bool,
        need: int | None,
    ) -> tuple[list[bytes], list[bytes], bytes | None, Pin | None]:
        """The next entries of a scan; see `FamilyState.chunk`.

        Arguments:
            need: how many are wanted in all; None for all there are. If these are not enough and there is no `pin`, the
                state they were read from is pinned.

        Returns:
            Keys, their values, the last key passed (None at the end), and the pin.

        Raises:
            ConflictError: the pin is too old.
        """
        while True:
            with self.lock:
                if self._released:
                    self.drain()
                if pin is not None and pin.pinned.expired:
                    raise too_old(pin.pinned)
                if family.ordered is not None and self._caught_up(family):
                    pinned = pin.pinned if pin is not None else None
                    keys, values, last = family.chunk(bounds, pinned, count, reverse=reverse)
                    if pin is None and last is not None and (need is None or len(keys) < need):
                        pin = self.pin_locked()
                    return keys, values, last, pin
            self._order(family)

    def _caught_up(self, family: FamilyState) -> bool:
        """Bring a bounded number of keys into order; the caller lets go of the lock before the next portion."""
        return not family.changed or family.catch_up(readers=self.history.newest is not None)

    def _order(self, family: FamilyState) -> None:
        """Build a family's keys in order, if it has none; the sorting is done without the lock."""
        if family.ordered is not None:
            return
        with self._load_lock:
            with self.lock:
                portions = family.begin_ordering(self.history.oldest)
            if portions is not None:
                portions = sort_keys(portions)
                with self.lock:
                    family.finish_ordering(chain.from_iterable(portions))

    def sorted_keys(self, family: FamilyState, pin: Pin) -> list[tuple[bytes, ...]]:
        """At least every key that `family` has as of `pin`, in order and in portions, leaving nothing behind.

        Raises:
            ConflictError: the pin is too old.
        """
        with self.lock:
            gone = {key for saved in changes(pin.pinned, family.id) for key in saved if key not in family.values}
            portions = in_portions(family.values)
        return sort_keys(portions + in_portions(gone))

    def end_scans(self, ended: list[str] | None = None) -> None:
        """Stop the scans in progress: those of one view or transaction, by its `ended`, or all."""
        for keys, owner in list(self.scanned.values()):
            if ended is None or owner is ended:
                keys.clear()

    def columns(self, family: FamilyState, keys: list[bytes], pin: Pin) -> tuple[list[bytes], list[bytes]]:
        """Those of `keys` (from `sorted_keys`) that exist as of `pin`, and their values.

        Raises:
            ConflictError: the pin is too old.
        """
        with self.lock:
            return family.resolve(keys, pin.pinned)


class Pin:
    """A reader's hold on a pinned state; letting go of the object lets go of the state."""

    __slots__ = ("_durable_reader", "_state", "pinned")

    def __init__(self, state: State, pinned: PinnedState, durable_reader: bool) -> None:
        self._durable_reader = durable_reader
        self._state: State | None = state
        self.pinned = pinned

    @property
    def sequence(self) -> int:
        """Of the state that is read."""
        return self.pinned.sequence

    def release(self) -> None:
        """Stop reading; may be called twice."""
        state, self._state = self._state, None
        if state is not None:
            state.release(self.pinned, self._durable_reader)

    def __del__(self) -> None:
        try:
            self.release()
        except AttributeError:
            pass  # interrupted before it was made


def check_catalogue(writes: Writes) -> None:
    """Refuse operations on the catalogue that no pystate writes.

    Raises:
        ValueError: a name that cannot be one, or an id that is none.
    """
    for key, value in writes.items():
        check_family_name(key.decode())  # UnicodeDecodeError is a ValueError
        if value is not None:
            unpack_family_id(value)
