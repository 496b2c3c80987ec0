"""The next state of a store while a function builds it from the present one: `Rewriting` and its families.

Promise: the present state is never changed. A family is shared with it until the first write, then its map is copied,
and never a key or a value; so what a rewriting holds is at most both states. A scan shows the family as of the call,
whatever is written while it goes on. When the building has ended, every handle raises `ClosedError`.

Nothing here touches the disk but the decoding of a family from the snapshot. For one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

from sortedcontainers import SortedList

from pystate.engine.family_state import Bounds, FamilyState, Pair
from pystate.engine.limits import (
    FAMILIES_MAX,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Buffer,
    as_key,
    as_value,
    check_family_name,
)
from pystate.engine.mapping import FamilyWriter, check_limit, scan_bounds
from pystate.engine.ordering import in_portions, sort_keys
from pystate.engine.store import DEFAULT_FAMILY
from pystate.errors import ClosedError, FamilyExistsError, FamilyNotFoundError

__all__ = ["NextFamily", "Rewriting", "RewritingFamily"]

T = TypeVar("T")

_CATCH_UP_MAX = 1_000
"""With more changed keys than this, and than a quarter of the family, its keys are sorted anew."""


class NextFamily:
    """A family of the next state, and what it is made of.

    Attributes:
        name: its name in the next state.
        origin: the family of the present state, or None for a new one. Its values do not change.
        state: its entries; the same object as `origin` while nothing was written.
    """

    __slots__ = ("dropped", "name", "origin", "state")

    def __init__(self, name: str, state: FamilyState, *, origin: FamilyState | None) -> None:
        self.name = name
        self.state = state
        self.origin = origin
        self.dropped = False

    def written(self) -> FamilyState:
        """`state`, apart from `origin` from now on."""
        old = self.state
        if old is self.origin:
            new = self.state = FamilyState(old.id, old.name)
            new.values = old.values.copy()
            if old.ordered is not None:
                new.ordered, new.changed = old.ordered, old.changed
                old.forget_order()
        return self.state

    def keys(self, bounds: Bounds, limit: int | None, *, reverse: bool) -> list[bytes]:
        """The keys within `bounds`, in order, and at most `limit`."""
        state = self.state
        if state.ordered is None and limit is None and bounds.low is None and bounds.high is None:
            # Most migrations go once through everything: then an order that can be kept up to date is not worth it.
            keys = list(chain.from_iterable(sort_keys(in_portions(state.values))))
            if reverse:
                keys.reverse()
            return keys
        inclusive = (bounds.low_inclusive, False)
        return list(islice(self._in_order().irange(bounds.low, bounds.high, inclusive, reverse), limit))

    def _in_order(self) -> SortedList[bytes]:
        """All keys, in an order that later scans go on with."""
        state = self.state
        if state.ordered is not None and state.changed:
            if len(state.changed) > max(_CATCH_UP_MAX, len(state.ordered) // 4):
                state.forget_order()
        if state.ordered is None:
            state.finish_ordering(chain.from_iterable(sort_keys(state.begin_ordering(None) or [])))
        while state.changed and not state.catch_up(readers=False):
            pass
        return state.ordered  # type: ignore[return-value]  # it was made just now


class Rewriting:
    """The next state of a store. Given to the function that `pystate.rewrite` calls; it ends when that returns."""

    def __init__(
        self,
        families: Iterable[FamilyState],
        *,
        next_family_id: int,
        metadata: dict[str, str],
        sequence: int,
        store_id: str,
    ) -> None:
        self._metadata = metadata
        self._sequence = sequence
        self._id = store_id
        self._next_family_id = next_family_id
        self._entries = {family.name: NextFamily(family.name, family, origin=family) for family in families}
        self._handles: dict[str, RewritingFamily] = {}
        self._ended = False

    @property
    def id(self) -> str:
        """Of the store, as `Store.id`; it stays."""
        return self._id

    @property
    def sequence(self) -> int:
        """Of the present state."""
        return self._sequence

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the next state, to be changed in place; see `Store.metadata`."""
        return self._metadata

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the families of the next state, sorted."""
        self._check()
        return tuple(sorted(self._entries))

    def family(self, name: str) -> RewritingFamily:
        """A family of the next state, as a mutable mapping in key order. The same object for the same name.

        Raises:
            FamilyNotFoundError: there is none of this name. TypeError, ValueError: it cannot be a name.
            CorruptionError: its part of the snapshot is damaged.
        """
        entry = self._entry(name)
        handle = self._handles.get(name)
        if handle is None:
            entry.state.load()
            handle = self._handles[name] = RewritingFamily(self, entry)
        return handle

    def create_family(self, name: str) -> RewritingFamily:
        """Make an empty family.

        Raises:
            FamilyExistsError: there is one of this name. TypeError, ValueError: it cannot be a name, or there are too
            many.
        """
        self._check_free(name)
        if len(self._entries) >= FAMILIES_MAX:
            raise ValueError(f"a store has at most {FAMILIES_MAX} families; drop one first")
        self._entries[name] = NextFamily(name, FamilyState(self._next_family_id, name), origin=None)
        self._next_family_id += 1
        return self.family(name)

    def drop_family(self, name: str) -> None:
        """Remove a family with everything in it.

        Raises:
            FamilyNotFoundError: there is none of this name. ValueError: it is ``"default"``, which every store has.
        """
        entry = self._entry(name)
        if name == DEFAULT_FAMILY:
            raise ValueError("the family 'default' cannot be dropped: every store has it; clear() empties it")
        entry.dropped = True
        del self._entries[name]
        if name in self._handles:
            self._handles.pop(name)._end()

    def rename_family(self, old: str, new: str) -> None:
        """Give a family another name. No entry is copied, or even read. A handle of it goes on under the new name.

        Raises:
            FamilyNotFoundError: there is none of this name. FamilyExistsError: there is one of the new name.
            TypeError, ValueError: the new name cannot be one, or the old one is ``"default"``.
        """
        entry = self._entry(old)
        self._check_free(new)
        if old == DEFAULT_FAMILY:
            raise ValueError("the family 'default' cannot be renamed: every store has it")
        entry.name = new
        self._entries[new] = self._entries.pop(old)
        if old in self._handles:
            self._handles[new] = self._handles.pop(old)

    def _end(self) -> list[NextFamily]:
        """End the building; return the families of the next state."""
        self._ended = True
        for handle in self._handles.values():
            handle._end()
        return list(self._entries.values())

    def _check(self) -> None:
        if self._ended:
            raise ClosedError("rewriting", "has ended; the next state is what it was when the function returned")

    def _check_free(self, name: str) -> None:
        self._check()
        if check_family_name(name) in self._entries:
            raise FamilyExistsError(name)

    def _entry(self, name: str) -> NextFamily:
        self._check()
        entry = self._entries.get(check_family_name(name))
        if entry is None:
            raise FamilyNotFoundError(name, tuple(sorted(self._entries)))
        return entry

    def __repr__(self) -> str:
        condition = "ended" if self._ended else f"{len(self._entries)} families"
        return f"<Rewriting of the state at sequence {self._sequence}: {condition}>"


class RewritingFamily(FamilyWriter):
    """A family of the next state, as a mutable mapping in key order. Made by `Rewriting.family`.

    Each scan, and so each iteration, takes the keys and values of its range at the call: about 16 bytes each.
    """

    __slots__ = ("_entry", "_rewriting", "_writing")

    def __init__(self, rewriting: Rewriting, entry: NextFamily) -> None:
        self._rewriting = rewriting
        self._entry = entry
        self._writing: FamilyState | None = None

    def _begin_writing(self) -> FamilyState:
        self._check()
        self._writing = self._entry.written()
        return self._writing

    def _end(self) -> None:
        self._writing = None

    @property
    def name(self) -> str:
        return self._entry.name

    def _check(self) -> None:
        self._rewriting._check()
        if self._entry.dropped:
            raise FamilyNotFoundError(self._entry.name, self._rewriting.families)

    def _read(self, key: bytes) -> bytes | None:
        self._check()
        return self._entry.state.values.get(key)

    def scan(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Pair]:
        bounds, limit = scan_bounds(start, stop, prefix), check_limit(limit)
        self._check()
        if bounds.empty():
            return iter(())
        keys = self._entry.keys(bounds, limit, reverse=reverse)
        return zip(keys, list(map(self._entry.state.values.__getitem__, keys)), strict=True)

    def __len__(self) -> int:
        self._check()
        return len(self._entry.state.values)

    def put(self, key: Buffer, value: Buffer) -> None:
        # A migration that writes every row spends most of its time here.
        if type(key) is not bytes or len(key) > KEY_BYTES_MAX:
            key = as_key(key)
        if type(value) is not bytes or len(value) > VALUE_BYTES_MAX:
            value = as_value(value)
        state = self._writing or self._begin_writing()
        values = state.values
        if state.changed is not None and key not in values:
            state.changed.add(key)
        values[key] = value

    __setitem__ = put

    def delete(self, key: Buffer) -> None:
        key = as_key(key)
        self._check()
        if key in self._entry.state.values:
            state = self._writing or self._begin_writing()
            del state.values[key]
            if state.changed is not None:
                state.changed.add(key)

    def delete_range(self, start: Buffer | None, stop: Buffer | None) -> None:
        for key, _ in self.scan(start, stop):
            self.delete(key)

    def _atomically(self, action: Callable[[FamilyWriter], T]) -> T:
        return action(self)
