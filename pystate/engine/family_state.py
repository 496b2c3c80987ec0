"""One family in memory: its values, its keys in order, and the part of a snapshot it is decoded from when first
touched.

Values stand in a ``dict``, so a point read is a ``dict`` read. Keys in order stand in a ``SortedList`` that is built by
the first scan and catches up with new and deleted keys when the next scan needs it; until then a write only notes the
key. Three invariants, stated by `FamilyState.check`:

- every key of `values` is in `ordered` or in `changed` (while there is an `ordered`);
- a key of `ordered` that is not in `values` is in `changed` or in `absent`;
- `absent` holds deleted keys that stay in `ordered` because an open view may still see them.

So `ordered`, caught up, holds every key that any open reader can see, and a scan as of a pinned state needs no second
source of keys: it resolves each key as of that state and passes over those that were not there.

Everything here is called under the lock of the store's state, except where a method says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeAlias

from sortedcontainers import SortedList

from pystate.engine.history import History, PinnedState, changes
from pystate.engine.ordering import in_portions

__all__ = ["Bounds", "FamilyState", "Loader", "Pair", "Writes"]

Writes: TypeAlias = dict[bytes, bytes | None]
"""What a commit does to one family: values to put, None to delete."""
Pair: TypeAlias = tuple[bytes, bytes]
Loader: TypeAlias = Callable[[], dict[bytes, bytes]]
"""Decodes the family from its snapshot; raises CorruptionError."""

_CATCH_UP_STEP = 1_000
"""Keys that are brought into order while the lock is held once."""


class Bounds:
    """A range of keys: from `low` (inclusive or not) up to `high` (exclusive); None is unbounded."""

    __slots__ = ("high", "low", "low_inclusive")

    def __init__(self, low: bytes | None, high: bytes | None, low_inclusive: bool = True) -> None:
        self.low = low
        self.high = high
        self.low_inclusive = low_inclusive

    def empty(self) -> bool:
        """No key can lie in it."""
        return self.high is not None and (self.high == b"" or (self.low is not None and self.low >= self.high))

    def contains(self, key: bytes) -> bool:
        """Whether `key` lies in it."""
        if self.high is not None and key >= self.high:
            return False
        return self.low is None or key > self.low or (self.low_inclusive and key == self.low)

    def after(self, key: bytes, *, reverse: bool) -> Bounds:
        """What is left of it for a scan that has just passed `key`."""
        return Bounds(self.low, key, self.low_inclusive) if reverse else Bounds(key, self.high, False)


class FamilyState:
    """The state of one family.

    Attributes:
        id, name: as in the catalogue.
        values: the newest value of each key. The object stays the same for as long as the family is loaded.
        loader: decodes the family when it is first touched; None once that is done.
        pending: while not loaded, what the log says on top of the snapshot; deletions as None.
        ordered: the keys in order, or None while no scan has asked for it.
        changed: keys that may have come or gone since `ordered` caught up; None while nothing tracks it.
        absent: keys kept in `ordered` after their deletion.
        dropped: the family is gone; views that are older may still read it.
    """

    __slots__ = ("absent", "changed", "dropped", "id", "loader", "name", "ordered", "pending", "values")

    def __init__(self, family_id: int, name: str, loader: Loader | None = None) -> None:
        self.id = family_id
        self.name = name
        self.values: dict[bytes, bytes] = {}
        self.loader = loader
        self.pending: Writes = {}
        self.ordered: SortedList[bytes] | None = None
        self.changed: set[bytes] | None = None
        self.absent: set[bytes] = set()
        self.dropped = False

    def load(self) -> None:
        """Decode the family from its snapshot and put the log's operations on top. Called once, by one thread, without
        the lock: until it is done nobody else reads or writes the family.

        Raises:
            CorruptionError: a block of the snapshot is damaged. The next call tries again.
        """
        if self.loader is None:
            return
        values, pending = self.loader(), self.pending
        if pending:
            deleted = [key for key, value in pending.items() if value is None]
            values.update(pending)  # type: ignore[arg-type]  # the None values go in the next line
            for key in deleted:
                del values[key]
        self.values, self.pending, self.loader = values, {}, None

    def apply(self, writes: Writes, history: History, sequence: int) -> None:
        """Bring the operations of the commit `sequence` into the family. Doing it twice does it once."""
        values, changed, pinned = self.values, self.changed, history.newest
        if pinned is not None:
            for key in writes:
                history.save(pinned, self.id, key, values.get(key), sequence)
        deleted = [key for key, value in writes.items() if value is None]
        if changed is not None:  # noted before it is done, so that an interrupt in between leaves a superset
            changed.update(set(writes).difference(values))
            changed.update(deleted)
        if deleted:
            for key, value in writes.items():
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
        else:
            values.update(writes)  # type: ignore[arg-type]  # no None is left in it
        if changed is not None and self.ordered is not None and len(changed) > max(_CATCH_UP_STEP, len(self.ordered)):
            self.forget_order()  # sorting anew is cheaper than catching up, and `changed` must not grow for ever

    def forget_order(self) -> None:
        """Give up `ordered`; the next scan builds it again."""
        self.ordered, self.changed, self.absent = None, None, set()

    def begin_ordering(self, pinned: PinnedState | None) -> list[tuple[bytes, ...]] | None:
        """First half of building `ordered`: all keys, in no order and in portions; None when it exists already.

        The caller passes the oldest pinned pinned, and sorts without the lock; `changed` notes what happens meanwhile.
        """
        if self.ordered is not None:
            return None
        self.changed = set()
        portions = in_portions(self.values)
        if pinned is not None:
            for saved in changes(pinned, self.id):
                self.changed.update(saved)
        return portions

    def finish_ordering(self, keys: Iterable[bytes]) -> None:
        """Second half: take over the sorted keys."""
        self.ordered = SortedList(keys)

    def catch_up(self, *, readers: bool) -> bool:
        """Bring some changed keys into `ordered`; return True when it is complete.

        Arguments:
            readers: views or transactions are open, so deleted keys must stay for them.
        """
        ordered, changed, values = self.ordered, self.changed, self.values
        if ordered is None or changed is None:
            return False
        if self.absent and not readers:
            changed |= self.absent
            self.absent = set()
        for key in list(islice(changed, _CATCH_UP_STEP)):
            known = key in ordered
            if key in values or readers:
                if not known:
                    ordered.add(key)
                if key not in values:
                    self.absent.add(key)
            elif known:
                ordered.remove(key)
            changed.discard(key)
        return not changed

    def chunk(
        self, bounds: Bounds, pinned: PinnedState | None, count: int, *, reverse: bool
    ) -> tuple[list[bytes], list[bytes], bytes | None]:
        """Up to `count` entries within `bounds`, in order, as of `pinned` (None: now).

        Returns:
            Keys, their values, and the last key that was passed, or None when nothing lies behind them.
        """
        if self.ordered is None or bounds.empty():
            return [], [], None
        inclusive = (bounds.low_inclusive, False)
        keys = list(islice(self.ordered.irange(bounds.low, bounds.high, inclusive, reverse), count))
        last = keys[-1] if len(keys) == count else None
        return *self.resolve(keys, pinned), last

    def resolve(self, keys: list[bytes], pinned: PinnedState | None) -> tuple[list[bytes], list[bytes]]:
        """Those of `keys` that exist as of `pinned` (None: now), in the same order, and their values."""
        live = self.values
        saved = changes(pinned, self.id) if pinned is not None else []
        if not saved and not self.absent:
            return keys, list(map(live.__getitem__, keys))
        found, values = [], []
        for key in keys:
            for older in saved:
                if key in older:
                    value = older[key][0]
                    break
            else:
                value = live.get(key)
            if value is not None:
                found.append(key)
                values.append(value)
        return found, values

    def count(self, pinned: PinnedState | None) -> int:
        """How many keys the family has as of `pinned` (None: now). Cost: what has changed since."""
        if pinned is None:
            return len(self.values)
        seen: set[bytes] = set()
        count = len(self.values)
        for saved in changes(pinned, self.id):
            for key, (value, _) in saved.items():
                if key not in seen:
                    seen.add(key)
                    count += (value is not None) - (key in self.values)
        return count

    def check(self) -> None:
        """Prove the invariants of the module's text.

        Raises:
            RuntimeError: one does not hold; a bug of pystate.
        """
        if self.ordered is None:
            return
        ordered = list(self.ordered)
        known, changed = set(ordered), self.changed or set()
        problems = {
            "keys out of order": ordered != sorted(known),
            "a key that no scan would find": bool(self.values.keys() - known - changed),
            "a deleted key that would never go": bool(known - self.values.keys() - changed - self.absent),
        }
        for problem, present in problems.items():
            if present:
                raise RuntimeError(f"family {self.name!r}: {problem}")
