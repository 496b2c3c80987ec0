"""Old values for open views and transactions, kept only while somebody may ask for them.

A family in memory holds only the newest value of each key. A reader that wants the state as of its begin pins it.
While a state is pinned, every commit saves the value it overwrites in the newest pinned state, unless one is saved
there already. Reading as of a pinned state looks there first, then through the newer states, then at the live map::

    commit 5: k=a      pin A      commit 6: k=b      pin B      commit 7: k=c

    A.saved = {k: (a, 6)}    B.saved = {k: (b, 7)}    live = {k: c}        read as of A: a    as of B: b

What is saved in a pinned state and the newer ones is also exactly what has changed since: conflict detection asks the
same maps. With nothing pinned nothing is saved, and a commit pays one comparison with None.

Releasing a pinned state moves what it saved to the next older one, which may still need it. When more than `bytes_max`
is saved, the oldest states expire: their readers get `ConflictError` with ``too_old``. A pinned state that belongs to a
snapshot in progress does not expire; it costs at most one copy of the state it was pinned at.

Not thread-safe: every call is made under the lock of the store's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from pystate.errors import ConflictError

__all__ = ["PinnedState", "History", "Saved", "changes", "lookup", "too_old"]

Saved: TypeAlias = dict[bytes, tuple[bytes | None, int]]
"""For each key of one family: the value before it was overwritten (None: absent), and the sequence that did so."""

_ENTRY_OVERHEAD = 150
"""What a saved value costs beside its bytes: a tuple, a map entry, two object headers."""


class PinnedState:
    """A state that somebody reads.

    Attributes:
        sequence: of the last commit in that state.
        pins: how many readers share it.
        durable_readers: how many of them are snapshots in progress; while there is one, the state does not expire.
        expired: the sequence at which its values were given up, or 0 while they are kept.
        saved: what has been overwritten between this state and the next newer one, by family id.
        older, newer: its neighbours.
    """

    __slots__ = ("durable_readers", "expired", "newer", "older", "pins", "saved", "saved_bytes", "sequence")

    def __init__(self, sequence: int, older: PinnedState | None) -> None:
        self.sequence = sequence
        self.pins = 0
        self.durable_readers = 0
        self.expired = 0
        self.saved: dict[int, Saved] = {}
        self.saved_bytes = 0
        self.older = older
        self.newer: PinnedState | None = None

    def chain(self) -> Iterator[PinnedState]:
        """This state and every newer one."""
        pinned: PinnedState | None = self
        while pinned is not None:
            yield pinned
            pinned = pinned.newer


class History:
    """All pinned states of a store, oldest to newest.

    Attributes:
        newest: the state in which commits save, or None when nothing is pinned.
        oldest: the one that expires first.
        bytes: what is saved at present, estimated.
        bytes_max: the limit.
        pins: how many readers there are.
    """

    def __init__(self, bytes_max: int) -> None:
        self.newest: PinnedState | None = None
        self.oldest: PinnedState | None = None
        self.bytes = 0
        self.bytes_max = bytes_max
        self.pins = 0

    def pin(self, sequence: int, *, durable_reader: bool = False) -> PinnedState:
        """Begin to read the present state, whose last commit is `sequence`; pair with `unpin`."""
        pinned = self.newest
        if pinned is None or pinned.sequence != sequence or pinned.expired:
            pinned = PinnedState(sequence, self.newest)
            if self.newest is None:
                self.oldest = pinned
            else:
                self.newest.newer = pinned
            self.newest = pinned
        pinned.pins += 1
        pinned.durable_readers += durable_reader
        self.pins += 1
        return pinned

    def unpin(self, pinned: PinnedState, *, durable_reader: bool = False) -> None:
        """End a reading that `pin` began. Cost: what was saved with it, if an older one is still pinned."""
        pinned.pins -= 1
        pinned.durable_readers -= durable_reader
        self.pins -= 1
        if pinned.pins == 0 and not pinned.expired:
            self._remove(pinned)

    def save(self, pinned: PinnedState, family_id: int, key: bytes, value: bytes | None, sequence: int) -> None:
        """Keep the value that the commit `sequence` is about to overwrite, unless an older one is kept already."""
        saved = pinned.saved.get(family_id)
        if saved is None:
            saved = pinned.saved[family_id] = {}
        if key not in saved:
            saved[key] = (value, sequence)
            size = _size(key, value)
            pinned.saved_bytes += size
            self.bytes += size

    def trim(self, sequence: int) -> None:
        """Let the oldest states expire, at the commit `sequence`, until what is kept fits into the limit."""
        while self.bytes - self._durable_bytes() > self.bytes_max:
            pinned = self.oldest
            while pinned is not None and pinned.durable_readers:
                pinned = pinned.newer
            if pinned is None:
                return
            pinned.expired = sequence
            self._remove(pinned)

    def _durable_bytes(self) -> int:
        """What is kept for a snapshot in progress. It cannot be given up, so it must not crowd out the others."""
        chain = self.oldest.chain() if self.oldest is not None else ()
        return sum(pinned.saved_bytes for pinned in chain if pinned.durable_readers)

    def _remove(self, pinned: PinnedState) -> None:
        older, newer = pinned.older, pinned.newer
        # Move before unlinking: `read` looks without the lock for a newer state first, then for what this one saved.
        if older is None:
            self.oldest = newer
            self.bytes -= pinned.saved_bytes
        else:
            self._move(pinned, older)
            older.newer = newer
        if newer is None:
            self.newest = older
        else:
            newer.older = older
        pinned.saved = {}  # a reader of an expired state finds nothing here and is told so

    def _move(self, pinned: PinnedState, older: PinnedState) -> None:
        """Give the older state what it has not saved itself: its own values are the earlier ones, so they win."""
        dropped = 0
        for family_id, theirs in pinned.saved.items():
            mine = older.saved.setdefault(family_id, theirs)
            if mine is theirs:
                continue
            small, large = (mine, theirs) if len(mine) < len(theirs) else (theirs, mine)
            for key, entry in small.items():
                other = large.get(key)
                if other is None or small is mine:
                    large[key] = entry
                if other is not None:
                    dropped += _size(key, (other if small is mine else entry)[0])
            older.saved[family_id] = large
        older.saved_bytes += pinned.saved_bytes - dropped
        self.bytes -= dropped


def _size(key: bytes, value: bytes | None) -> int:
    return _ENTRY_OVERHEAD + len(key) + (len(value) if value is not None else 0)


def lookup(pinned: PinnedState, family_id: int, key: bytes) -> tuple[bytes | None, int] | None:
    """What `key` was as of `pinned` and which commit changed it first, or None when it has not changed since.

    Raises:
        ConflictError: the state has expired (``too_old``).
    """
    if pinned.expired:
        raise too_old(pinned)
    current: PinnedState | None = pinned
    while current is not None:
        saved = current.saved.get(family_id)
        if saved is not None and key in saved:
            return saved[key]
        current = current.newer
    return None


def changes(pinned: PinnedState, family_id: int) -> list[Saved]:
    """The maps of all keys of a family that have changed since `pinned`, oldest first, empty ones left out.

    Raises:
        ConflictError: the state has expired (``too_old``).
    """
    if pinned.expired:
        raise too_old(pinned)
    return [saved for current in pinned.chain() if (saved := current.saved.get(family_id))]


def too_old(pinned: PinnedState) -> ConflictError:
    """The error for a reader whose state has expired."""
    return ConflictError(read_sequence=pinned.sequence, commit_sequence=pinned.expired, too_old=True)
