"""`Transaction`: reads as of its begin, writes of its own, and one commit or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TypeVar

from sortedcontainers import SortedList

from pystate.engine.commit import CommitRequest, Committer
from pystate.engine.conflicts import RangeRead, Reads
from pystate.engine.family_state import Bounds, FamilyState, Pair, Writes
from pystate.engine.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX, Buffer, as_key, as_value
from pystate.engine.mapping import FamilyReader, FamilyWriter, check_limit, scan_bounds
from pystate.engine.scanning import scan_family
from pystate.engine.state import Pin, State
from pystate.engine.view import family_name, find_family
from pystate.errors import ClosedError, ReadOnlyError

__all__ = ["Transaction", "TransactionFamily"]

T = TypeVar("T")


class Transaction:
    """A serializable transaction. Made by `Store.begin`; a context manager that commits, or rolls back on an exception.

    It reads the state as of its begin plus its own writes. It commits only if nothing it has read has changed since:
    keys, keys found absent, and ranges as far as they were scanned. Not for use by several threads at once.
    """

    __slots__ = (
        "__weakref__",
        "_check_store",
        "_committer",
        "_ended",
        "_families",
        "_handles",
        "_path",
        "_pin",
        "_sequence",
        "_state",
        "_sync",
    )

    def __init__(
        self,
        state: State,
        committer: Committer | None,
        check_store: Callable[[], None],
        *,
        path: str,
        sync: bool,
    ) -> None:
        self._state = state
        self._committer = committer
        self._check_store = check_store
        self._path = path
        self._sync = sync
        self._ended: list[str] = []
        with state.lock:
            self._pin: Pin | None = state.pin_locked()
            self._families: Mapping[str, FamilyState] = state.families
            self._sequence = self._pin.sequence
        self._handles: dict[str, TransactionFamily] = {}

    @property
    def sequence(self) -> int:
        """The last commit that this transaction reads."""
        return self._sequence

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the families as of its begin, sorted."""
        self._check()
        return tuple(sorted(self._families))

    def family(self, name: str) -> TransactionFamily:
        """A family as this transaction sees it; writing to it writes to the transaction.

        Raises:
            FamilyNotFoundError: it did not exist when the transaction began.
            CorruptionError: its part of the snapshot is damaged.
            ClosedError: the transaction has ended, or the store is closed.
        """
        handle = self._handles.get(name)
        if handle is None:
            self._check()
            family = find_family(self._families, name)
            self._state.load(family)
            handle = self._handles[name] = TransactionFamily(self, family, self._state)
        elif self._pin is None:
            self._check()
        return handle

    def get(self, family: str | FamilyReader, key: Buffer, default: bytes | None = None) -> bytes | None:
        """``txn.family(family).get(key, default)``."""
        return self.family(family_name(family)).get(key, default)  # type: ignore[arg-type]

    def put(self, family: str | FamilyReader, key: Buffer, value: Buffer) -> None:
        """``txn.family(family).put(key, value)``."""
        self.family(family_name(family)).put(key, value)

    def delete(self, family: str | FamilyReader, key: Buffer) -> None:
        """``txn.family(family).delete(key)``."""
        self.family(family_name(family)).delete(key)

    def delete_range(self, family: str | FamilyReader, start: Buffer | None, stop: Buffer | None) -> None:
        """``txn.family(family).delete_range(start, stop)``."""
        self.family(family_name(family)).delete_range(start, stop)

    def scan(
        self,
        family: str | FamilyReader,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Pair]:
        """``txn.family(family).scan(...)``."""
        return self.family(family_name(family)).scan(start, stop, prefix=prefix, reverse=reverse, limit=limit)

    def commit(self) -> int:
        """Make the writes durable and visible, as one commit; the transaction ends, whatever the outcome.

        Returns:
            The sequence of the commit; without writes the sequence of the begin, and nothing can fail.

        Raises:
            ConflictError: something read has changed since. Nothing was written; run the transaction again.
            DiskFullError: no room. Nothing was written; the store stays usable.
            StoreFailedError: a write or sync failed, now or before; ``unknown`` tells whether this commit may be
                durable.
            ReadOnlyError: the store is open for reading only.
            ValueError: larger than `COMMIT_BYTES_MAX`.
            ClosedError: the transaction has ended already, or the store is closed.
        """
        self._check()
        request = self._finish()
        if request is None or self._committer is None:
            return self._sequence
        return self._committer.commit(request)

    def _finish(self) -> CommitRequest | None:
        """End, and return what is to be committed: None without writes, or after the end.

        Raises:
            ReadOnlyError, ValueError, ClosedError: as for `commit`.
        """
        self._check_store()
        touched = self._handles.values()
        try:
            changes = [(handle._family, handle._writes) for handle in touched if handle._writes]
            if self._pin is None or not changes:
                return None
            if self._committer is None:
                raise ReadOnlyError(self._path)
            reads = [(handle._family, handle._reads) for handle in touched]
            request = CommitRequest(changes, sync=self._sync, reads=reads, pin=self._pin)  # type: ignore[arg-type]
            # From here on the request has the pin: an interrupt may take this thread away while a leader decides it.
            self._end("has been committed or has failed to; begin a new one", release=False)
            return request
        finally:
            self._end("has been committed or has failed to; begin a new one")

    def rollback(self) -> None:
        """Forget the writes; the transaction ends. May be called twice, and after a commit, where it does nothing."""
        self._end("has been rolled back; begin a new one")

    def _end(self, how: str, *, release: bool = True) -> None:
        pin, self._pin = self._pin, None
        if pin is not None:
            self._ended.append(how)
            self._state.end_scans(self._ended)
            if release:
                pin.release()
            for handle in self._handles.values():
                handle._writable = False

    def _check(self) -> None:
        """Raise ClosedError unless transaction and store are open."""
        self._check_store()
        if self._pin is None:
            raise ClosedError("transaction", self._ended[0])

    def _refusal(self) -> Exception:
        """Why a handle of this transaction may not be written."""
        self._check()
        return ReadOnlyError(self._path)

    def __repr__(self) -> str:
        return f"<Transaction: begun at sequence {self._sequence}{', ended' if self._ended else ''}>"

    def __enter__(self) -> Transaction:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._pin is not None:
            self.commit()
        else:
            self.rollback()


class TransactionFamily(FamilyWriter):
    """A family as a transaction sees it."""

    __slots__ = ("_family", "_order", "_reads", "_state", "_txn", "_writable", "_writes")

    def __init__(self, txn: Transaction, family: FamilyState, state: State) -> None:
        self._txn = txn
        self._family = family
        self._state = state
        self._reads = Reads()
        self._writes: Writes = {}
        self._order: SortedList[bytes] | None = None  # the keys of _writes, once a scan has needed them in order
        self._writable = txn._committer is not None

    @property
    def name(self) -> str:
        return self._family.name

    def _read(self, key: bytes) -> bytes | None:
        self._txn._check()
        if key in self._writes:
            return self._writes[key]
        self._reads.keys.add(key)
        return self._state.get(self._family, key, self._txn._pin)  # type: ignore[arg-type]  # checked just now

    def put(self, key: Buffer, value: Buffer) -> None:
        if not self._writable or self._state.ended:
            raise self._txn._refusal()
        if (
            type(key) is not bytes
            or type(value) is not bytes
            or len(key) > KEY_BYTES_MAX
            or len(value) > VALUE_BYTES_MAX
        ):
            key, value = as_key(key), as_value(value)
        if self._order is not None and key not in self._writes:
            self._order.add(key)
        self._writes[key] = value

    def delete(self, key: Buffer) -> None:
        if not self._writable or self._state.ended:
            raise self._txn._refusal()
        key = as_key(key)
        if self._order is not None and key not in self._writes:
            self._order.add(key)
        self._writes[key] = None

    def delete_range(self, start: Buffer | None, stop: Buffer | None) -> None:
        if not self._writable or self._state.ended:
            raise self._txn._refusal()
        for key, _ in list(self.scan(start, stop)):
            self.delete(key)

    def _atomically(self, action: Callable[[FamilyWriter], T]) -> T:
        return action(self)

    def __len__(self) -> int:
        self._txn._check()
        pin = self._txn._pin
        count = self._state.count(self._family, pin)
        self._reads.ranges.append(RangeRead(None, None))
        for key, value in self._writes.items():
            existed = self._state.get(self._family, key, pin) is not None  # type: ignore[arg-type]
            count += (value is not None) - existed
        return count

    def scan(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Pair]:
        bounds = scan_bounds(start, stop, prefix)
        limit = check_limit(limit)
        self._txn._check()
        if bounds.empty() or limit == 0:
            return iter(())
        own = self._own(bounds, reverse=reverse)
        reading = RangeRead(bounds.low, bounds.high, started=False)
        self._reads.ranges.append(reading)
        below = scan_family(
            self._state,
            self._family,
            bounds,
            self._txn._pin,
            self._txn._check,
            self._txn._ended,
            reverse=reverse,
            limit=None if own else limit,
        )
        pairs = _merge(below, own, reverse=reverse) if own else below
        return _track(pairs, reading, bounds, reverse=reverse, limit=limit)

    def _own(self, bounds: Bounds, *, reverse: bool) -> list[tuple[bytes, bytes | None]]:
        """The transaction's own writes within `bounds`, in scan order, as they are now."""
        writes = self._writes
        if not writes:
            return []
        if self._order is None:
            self._order = SortedList(writes)
        keys = self._order.irange(bounds.low, bounds.high, (True, False), reverse)
        return [(key, writes[key]) for key in keys]


def _merge(below: Iterator[Pair], own: list[tuple[bytes, bytes | None]], *, reverse: bool) -> Iterator[Pair]:
    """The store's entries with the transaction's own writes on top, both in scan order."""
    at = 0
    for key, value in below:
        while at < len(own) and (own[at][0] > key if reverse else own[at][0] < key):
            if (mine := own[at][1]) is not None:
                yield own[at][0], mine
            at += 1
        if at < len(own) and own[at][0] == key:
            if (mine := own[at][1]) is not None:
                yield key, mine
            at += 1
        else:
            yield key, value
    for key, mine in own[at:]:
        if mine is not None:
            yield key, mine


def _track(
    pairs: Iterator[Pair], reading: RangeRead, bounds: Bounds, *, reverse: bool, limit: int | None
) -> Iterator[Pair]:
    """Pass `pairs` on, noting before each how far the range has been read."""
    reading.high_inclusive = not reverse
    for pair in pairs:
        if reverse:
            reading.low = pair[0]
        else:
            reading.high = pair[0]
        reading.started = True
        yield pair
        if limit is not None:
            limit -= 1
            if limit == 0:
                return
    reading.low, reading.high, reading.high_inclusive, reading.started = bounds.low, bounds.high, False, True
