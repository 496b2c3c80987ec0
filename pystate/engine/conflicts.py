"""Deciding whether a transaction may commit: what it read, against what has changed since. No locks, no I/O, no clock.

A transaction is serializable if, at the moment it commits, everything it read is still as it read it: keys, keys that
were absent, and ranges as far as they were scanned. Then it could as well have run whole at that moment. What has
changed since it began is what its pinned state and the newer ones saved (``history``), plus what commits of the same
group are about to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pystate.engine.family_state import FamilyState
from pystate.engine.history import PinnedState, changes
from pystate.errors import ConflictError

__all__ = ["RangeRead", "Reads", "check_reads"]


class RangeRead:
    """A range that a transaction has scanned, as far as it has.

    Attributes:
        low, high: from `low` (inclusive) to `high` (exclusive, or inclusive if `high_inclusive`); None is unbounded.
        started: False while nothing of it has been consumed.
    """

    __slots__ = ("high", "high_inclusive", "low", "started")

    def __init__(self, low: bytes | None, high: bytes | None, *, started: bool = True) -> None:
        self.low = low
        self.high = high
        self.high_inclusive = False
        self.started = started

    def contains(self, key: bytes) -> bool:
        """Whether a change of `key` would have changed what was scanned."""
        if not self.started or (self.low is not None and key < self.low):
            return False
        return self.high is None or key < self.high or (self.high_inclusive and key == self.high)


class Reads:
    """What a transaction has read of one family.

    Attributes:
        keys: read one by one, whether found or absent.
        ranges: scanned.
    """

    __slots__ = ("keys", "ranges")

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.ranges: list[RangeRead] = []

    def __bool__(self) -> bool:
        return bool(self.keys or self.ranges)


def check_reads(
    reads: Iterable[tuple[FamilyState, Reads]],
    pinned: PinnedState,
    group: Mapping[int, Mapping[bytes, int]],
    sequence: int,
) -> None:
    """Let a transaction pass, or say what it may no longer rely on. Called under the lock of the state.

    Arguments:
        reads: what it read, by family.
        pinned: the state it read.
        group: for each family id the keys that earlier commits of the same group change, with their sequences.
        sequence: of the newest commit, for the error.

    Raises:
        ConflictError: something that it read has changed, or its family is gone, or its pinned has expired.

    Cost: one lookup per key read and map of changes; one comparison per key changed and range scanned.
    """
    for family, read in reads:
        if family.dropped:
            raise ConflictError(
                family=family.name, range=(None, None), read_sequence=pinned.sequence, commit_sequence=sequence
            )
        if not read:
            continue
        for saved in changes(pinned, family.id):
            found = _first_read(read, saved)
            if found is not None:
                raise _conflict(family, pinned, found, read, saved[found][1])
        grouped = group.get(family.id)
        if grouped:
            found = _first_read(read, grouped)
            if found is not None:
                raise _conflict(family, pinned, found, read, grouped[found])


def _first_read(read: Reads, changed: Mapping[bytes, object]) -> bytes | None:
    """A changed key that was read, or None."""
    few, many = (read.keys, changed) if len(read.keys) < len(changed) else (changed, read.keys)
    for key in few:
        if key in many:
            return key
    for scanned in read.ranges:
        for key in changed:
            if scanned.contains(key):
                return key
    return None


def _conflict(family: FamilyState, pinned: PinnedState, key: bytes, read: Reads, sequence: int) -> ConflictError:
    if key in read.keys:
        return ConflictError(family=family.name, key=key, read_sequence=pinned.sequence, commit_sequence=sequence)
    scanned = next(scanned for scanned in read.ranges if scanned.contains(key))
    high = scanned.high
    if high is not None and scanned.high_inclusive:
        high += b"\0"  # the next possible key, so that the range means what ranges mean everywhere
    return ConflictError(
        family=family.name,
        range=(scanned.low, high),
        read_sequence=pinned.sequence,
        commit_sequence=sequence,
    )
