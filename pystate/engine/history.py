"""Old values for open views and transactions, kept only while somebody may ask for them.

A family in memory holds only the newest value of each key. A reader that wants the state as of its begin pins an
*epoch*. While an epoch is pinned, every commit saves the value it overwrites in the newest epoch, unless one is saved
there already. Reading as of an epoch looks there first, then through the newer epochs, then at the live map::

    commit 5: k=a      pin A      commit 6: k=b      pin B      commit 7: k=c

    A.saved = {k: (a, 6)}    B.saved = {k: (b, 7)}    live = {k: c}        read as of A: a    as of B: b

What is saved in an epoch and the newer ones is also exactly what has changed since: conflict detection asks the same
maps. With nothing pinned nothing is saved, and a commit pays one comparison with None.

Releasing an epoch moves what it saved to the next older one, which may still need it. When more than `bytes_max` is
saved, the oldest epochs expire: their readers get `ConflictError` with ``too_old``. An epoch that belongs to a snapshot
in progress does not expire; it costs at most one copy of the state it was pinned at.

Not thread-safe: every call is made under the lock of the store's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from pystate.errors import ConflictError

__all__ = ["Epoch", "History", "Saved", "changes", "lookup", "too_old"]

Saved: TypeAlias = dict[bytes, tuple[bytes | None, int]]
"""For each key of one family: the value before it was overwritten (None: absent), and the sequence that did so."""

_ENTRY_OVERHEAD = 150
"""What a saved value costs beside its bytes: a tuple, a map entry, two object headers."""


class Epoch:
    """A state that somebody reads.

    Attributes:
        sequence: of the last commit in that state.
        pins: how many readers share it.
        durable_readers: how many of them are snapshots in progress; while there is one, the epoch does not expire.
        expired: the sequence at which its values were given up, or 0 while they are kept.
        saved: what has been overwritten between this epoch and the next newer one, by family id.
        older, newer: its neighbours.
    """

    __slots__ = ("durable_readers", "expired", "newer", "older", "pins", "saved", "saved_bytes", "sequence")

    def __init__(self, sequence: int, older: Epoch | None) -> None:
        self.sequence = sequence
        self.pins = 0
        self.durable_readers = 0
        self.expired = 0
        self.saved: dict[int, Saved] = {}
        self.saved_bytes = 0
        self.older = older
        self.newer: Epoch | None = None

    def chain(self) -> Iterator[Epoch]:
        """This epoch and every newer one."""
        epoch: Epoch | None = self
        while epoch is not None:
            yield epoch
            epoch = epoch.newer


class History:
    """All pinned epochs of a store, oldest to newest.

    Attributes:
        newest: the epoch in which commits save, or None when nothing is pinned.
        oldest: the one that expires first.
        bytes: what is saved at present, estimated.
        bytes_max: the limit.
        pins: how many readers there are.
    """

    def __init__(self, bytes_max: int) -> None:
        self.newest: Epoch | None = None
        self.oldest: Epoch | None = None
        self.bytes = 0
        self.bytes_max = bytes_max
        self.pins = 0

    def pin(self, sequence: int, *, durable_reader: bool = False) -> Epoch:
        """Begin to read the present state, whose last commit is `sequence`; pair with `unpin`."""
        epoch = self.newest
        if epoch is None or epoch.sequence != sequence or epoch.expired:
            epoch = Epoch(sequence, self.newest)
            if self.newest is None:
                self.oldest = epoch
            else:
                self.newest.newer = epoch
            self.newest = epoch
        epoch.pins += 1
        epoch.durable_readers += durable_reader
        self.pins += 1
        return epoch

    def unpin(self, epoch: Epoch, *, durable_reader: bool = False) -> None:
        """End a reading that `pin` began. Cost: what the epoch saved, if an older one is still pinned."""
        epoch.pins -= 1
        epoch.durable_readers -= durable_reader
        self.pins -= 1
        if epoch.pins == 0 and not epoch.expired:
            self._remove(epoch)

    def save(self, epoch: Epoch, family_id: int, key: bytes, value: bytes | None, sequence: int) -> None:
        """Keep the value that the commit `sequence` is about to overwrite, unless an older one is kept already."""
        saved = epoch.saved.get(family_id)
        if saved is None:
            saved = epoch.saved[family_id] = {}
        if key not in saved:
            saved[key] = (value, sequence)
            size = _size(key, value)
            epoch.saved_bytes += size
            self.bytes += size

    def trim(self, sequence: int) -> None:
        """Let the oldest epochs expire, at the commit `sequence`, until what is kept fits into the limit."""
        while self.bytes - self._durable_bytes() > self.bytes_max:
            epoch = self.oldest
            while epoch is not None and epoch.durable_readers:
                epoch = epoch.newer
            if epoch is None:
                return
            epoch.expired = sequence
            self._remove(epoch)

    def _durable_bytes(self) -> int:
        """What is kept for a snapshot in progress. It cannot be given up, so it must not crowd out the others."""
        chain = self.oldest.chain() if self.oldest is not None else ()
        return sum(epoch.saved_bytes for epoch in chain if epoch.durable_readers)

    def _remove(self, epoch: Epoch) -> None:
        older, newer = epoch.older, epoch.newer
        # Move before unlinking: `read` looks without the lock for a newer epoch first, then for what this one saved.
        if older is None:
            self.oldest = newer
            self.bytes -= epoch.saved_bytes
        else:
            self._move(epoch, older)
            older.newer = newer
        if newer is None:
            self.newest = older
        else:
            newer.older = older
        epoch.saved = {}  # a reader of an expired epoch finds nothing here and is told so

    def _move(self, epoch: Epoch, older: Epoch) -> None:
        """Give the older epoch what it has not saved itself: its own values are the earlier ones, so they win."""
        dropped = 0
        for family_id, theirs in epoch.saved.items():
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
        older.saved_bytes += epoch.saved_bytes - dropped
        self.bytes -= dropped


def _size(key: bytes, value: bytes | None) -> int:
    return _ENTRY_OVERHEAD + len(key) + (len(value) if value is not None else 0)


def lookup(epoch: Epoch, family_id: int, key: bytes) -> tuple[bytes | None, int] | None:
    """What `key` was as of `epoch` and which commit changed it first, or None when it has not changed since.

    Raises:
        ConflictError: the epoch has expired (``too_old``).
    """
    if epoch.expired:
        raise too_old(epoch)
    current: Epoch | None = epoch
    while current is not None:
        saved = current.saved.get(family_id)
        if saved is not None and key in saved:
            return saved[key]
        current = current.newer
    return None


def changes(epoch: Epoch, family_id: int) -> list[Saved]:
    """The maps of all keys of a family that have changed since `epoch`, oldest first, empty ones left out.

    Raises:
        ConflictError: the epoch has expired (``too_old``).
    """
    if epoch.expired:
        raise too_old(epoch)
    return [saved for current in epoch.chain() if (saved := current.saved.get(family_id))]


def too_old(epoch: Epoch) -> ConflictError:
    """The error for a reader whose epoch has expired."""
    return ConflictError(read_sequence=epoch.sequence, commit_sequence=epoch.expired, too_old=True)
