"""`Store`: an open store, and what it hands out.

A store is put together from parts that each do one thing: `State` (memory), `Committer` (the way of a commit),
`LogWriter` and `Snapshots` (the disk), `Follower` (a read-only store that catches up). This module only connects them
and guards their end: a store in memory has no disk parts, a read-only one has no committer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from os import PathLike
from types import MappingProxyType, TracebackType
from typing import Any, Literal, NoReturn, Protocol, TypeAlias, TypeVar

from pystate.engine import threads
from pystate.engine.commit import CommitRequest, Committer
from pystate.engine.export import ExportReport, export_state
from pystate.engine.family import Family
from pystate.engine.family_state import FamilyState
from pystate.engine.files import Files, HeldLock
from pystate.engine.limits import FAMILIES_MAX, check_family_name, check_number
from pystate.engine.log_writer import LogWriter
from pystate.engine.mapping import FamilyWriter
from pystate.engine.repair import RecoveryReport
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_reader import SnapshotReader
from pystate.engine.snapshot_writer import SnapshotCancelledError
from pystate.engine.snapshots import Snapshots
from pystate.engine.state import Change, State
from pystate.engine.stats import StoreStats
from pystate.engine.transaction import Transaction
from pystate.engine.view import View
from pystate.errors import (
    ClosedError,
    ConflictError,
    FamilyExistsError,
    FamilyNotFoundError,
    ReadOnlyError,
)

__all__ = ["DEFAULT_FAMILY", "Durability", "Store", "StoreParts", "check_durability", "open_stores", "transact"]

T = TypeVar("T")

Durability: TypeAlias = Literal["sync", "process"]
DEFAULT_FAMILY = "default"
"""The family that every store has."""
ATTEMPTS = 16
"""How often `Store.transact` runs a function, by default."""
_ATTEMPTS_OF_ONE_OPERATION = 1_000_000

open_stores: weakref.WeakSet[Store] = weakref.WeakSet()
"""Every store that is open in this process, for the fork hook."""


class Catches(Protocol):
    """What a read-only store catches up with."""

    def __call__(self) -> State | None:
        """Bring in new commits; return a new state if everything had to be read anew."""
        ...


class StoreParts:
    """What `Store` is made of; ``opening`` puts it together.

    Attributes:
        path: of the store, or None in memory.
        state: always there.
        header: what the store carries about itself: of the snapshot it was opened from.
        files: the file system.
        committer: None for a read-only store.
        log, snapshots, lock: None for a read-only store and in memory.
        reader: of the snapshot, for families not yet decoded.
        refresh: catches up with the writer, for a read-only store.
        recovery: what opening found.
    """

    def __init__(
        self, path: str | None, state: State, durability: Durability, header: SnapshotHeader, files: Files
    ) -> None:
        self.path = path
        self.state = state
        self.header = header
        self.files = files
        self.durability: Durability = durability
        self.committer: Committer | None = None
        self.log: LogWriter | None = None
        self.snapshots: Snapshots | None = None
        self.lock: HeldLock | None = None
        self.reader: SnapshotReader | None = None
        self.refresh: Catches | None = None
        self.recovery: RecoveryReport | None = None
        self.snapshot_log_bytes = 0


class Store:
    """An open store. Made by `pystate.open` and `pystate.memory`; a context manager that closes it.

    Threads and event loops may share it. Other processes may not write to the same directory meanwhile (they may read
    it); a forked child may not use it at all. After `close` it, and everything it handed out, raises `ClosedError`.
    """

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._state = parts.state
        self._handles: dict[str, Family] = {}
        self._handles_lock = threads.new_lock()
        self._close_lock = threads.new_lock()
        self._ended: ClosedError | None = None
        self._opened_at = parts.state.sequence
        open_stores.add(self)

    # What it is

    @property
    def path(self) -> str | None:
        """The absolute path of the directory, or None in memory."""
        return self._parts.path

    @property
    def id(self) -> str:
        """The identity of the store, in hex: made with it, kept by a rewrite, new when a snapshot is installed.

        A state is named by it and the sequence: two with the same id and `sequence` are the same, if that commit was
        durable. In memory it is as new as the store.
        """
        return self._parts.header.store_id.hex()

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the store carries about itself, as given to `pystate.open` when it was made or by the last rewrite.

        It is for what must be known before the entries can be read, such as the version of their format. It does not
        change while the store is open for writing.
        """
        return MappingProxyType(self._parts.header.metadata)

    @property
    def read_only(self) -> bool:
        """Opened for reading only."""
        return self._parts.committer is None

    @property
    def durability(self) -> Durability:
        """What a commit survives unless it says otherwise: ``"sync"`` power loss, ``"process"`` the process's death."""
        return self._parts.durability

    @property
    def sequence(self) -> int:
        """The sequence of the newest commit that is visible here."""
        self._check()
        return self._state.sequence

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the families, sorted."""
        self._check()
        return tuple(sorted(self._state.families))

    # Families

    def family(self, name: str) -> Family:
        """A family, as a mutable mapping in key order. The same object for the same name.

        Raises:
            FamilyNotFoundError: there is none of this name. TypeError, ValueError: it cannot be a name.
            ClosedError: the store is closed.
        """
        handle = self._handles.get(name)
        if handle is not None and not handle._family.dropped and self._ended is None:
            return handle
        self._check()
        with self._handles_lock:
            family = self._state.family(name)
            self._end_dropped(name)
            handle = self._handles.setdefault(name, self._new_handle(family))
            self._check()  # or else `close` may have ended all handles before this one was among them
            return handle

    def _end_dropped(self, name: str) -> None:
        """End the handle of this name if its family is gone; under the lock of the handles."""
        handle = self._handles.get(name)
        if handle is not None and handle._family.dropped:
            del self._handles[name]
            handle._end(lambda: self._raise_dropped(name))

    def create_family(self, name: str) -> Family:
        """Make an empty family, durably, and return it.

        Raises:
            FamilyExistsError: there is one of this name. TypeError, ValueError: it cannot be a name, or there are too
            many. Everything that a commit raises.
        """
        check_family_name(name)

        def create() -> list[Change]:
            if name in self._state.families:
                raise FamilyExistsError(name)
            if len(self._state.families) >= FAMILIES_MAX:
                raise ValueError(f"a store has at most {FAMILIES_MAX} families; drop one first")
            return [(None, self._state.creation([name]))]

        self._change_catalogue(create)
        return self.family(name)

    def drop_family(self, name: str) -> None:
        """Remove a family with everything in it, durably. Open views still see it; open transactions that used it fail.

        Raises:
            FamilyNotFoundError: there is none of this name. ValueError: it is ``"default"``, which every store has.
            Everything that a commit raises.
        """
        check_family_name(name)
        if name == DEFAULT_FAMILY:
            raise ValueError("the family 'default' cannot be dropped: every store has it; clear() empties it")

        def drop() -> list[Change]:
            self._state.family(name)
            return [(None, {name.encode(): None})]

        self._change_catalogue(drop)
        with self._handles_lock:
            self._end_dropped(name)

    def _change_catalogue(self, change: Callable[[], list[Change]]) -> None:
        committer = self._writer()
        committer.exclusively(lambda: committer.write_alone(CommitRequest(change(), sync=True)))

    def _raise_dropped(self, name: str) -> NoReturn:
        self._check()
        raise FamilyNotFoundError(name, tuple(sorted(self._state.families)))

    # Reading and writing

    def begin(self, *, durability: Durability | None = None) -> Transaction:
        """Begin a transaction on the present state.

        Arguments:
            durability: of its commit; None means that of the store.
        """
        self._check()
        parts = self._parts
        sync = parts.durability if durability is None else check_durability(durability)
        return Transaction(
            self._state, parts.committer, self._check, path=parts.path or "(memory)", sync=sync == "sync"
        )

    def transact(
        self, function: Callable[[Transaction], T], *, attempts: int = ATTEMPTS, durability: Durability | None = None
    ) -> T:
        """Run ``function(txn)`` in a transaction and commit it; on `ConflictError` run it again.

        Arguments:
            function: must do nothing but read and write through `txn`, since it may run several times.
            attempts: how often at most; between them it waits a random, growing time.
            durability: of the commit; None means that of the store.

        Returns:
            What `function` returned in the run that was committed.

        Raises:
            ConflictError: the last attempt's, when all have conflicted.
            Whatever `function` raises (nothing is written then), and what `Transaction.commit` raises.
        """
        check_number("attempts", attempts, int, at_least=1)
        for attempt in range(attempts):
            if attempt:
                threads.back_off(attempt - 1)
            try:
                with self.begin(durability=durability) as txn:
                    return function(txn)
            except ConflictError:
                if attempt == attempts - 1:
                    raise
        raise RuntimeError("the loop above returns or raises")

    async def transact_async(
        self, function: Callable[[Transaction], T], *, attempts: int = ATTEMPTS, durability: Durability | None = None
    ) -> T:
        """`transact` for a task of an event loop (asyncio, or one with its interface): waits without blocking the loop.

        Commits that are awaited at the same time, by any tasks of any loops, share syncs with each other and with those
        of threads. `function` is called in the thread of the loop; it must be a plain function, and what it does, the
        loop waits for. Each attempt begins with a turn for the other tasks.

        Arguments, what it returns: as for `transact`.

        Raises:
            CancelledError: the task was cancelled. By then the outcome is settled: the commit is whole, or nothing of
                it is written and never will be. So a task whose commit a leader is just writing waits for that.
            RuntimeError: no loop is running in this thread, or the one thread that commits for all loops cannot start.
            TypeError: `function` is an async one. Everything that `transact` raises.
        """
        # asyncio is slow to import; who awaits has it already
        from pystate.engine.awaiting import transact  # noqa: PLC0415

        check_number("attempts", attempts, int, at_least=1)
        return await transact(lambda: self.begin(durability=durability), function, attempts)

    def view(self) -> View:
        """A consistent read of the present state; close it when done."""
        self._check()
        return View(self._state, self._check)

    def sync(self) -> None:
        """Make every commit that has returned durable. In memory and read-only it does nothing.

        Raises:
            StoreFailedError: the sync failed, or something did before.
        """
        self._check()
        if self._parts.committer is not None:
            self._parts.committer.sync()

    def snapshot(self) -> None:
        """Write a snapshot now, unless nothing was committed since the last one, and remove the log it replaces.

        Commits and readers go on meanwhile. In memory it does nothing.

        Raises:
            ReadOnlyError: the store is open for reading only. CorruptionError: a family that must be copied is damaged.
            OSError: a step failed; the store goes on with its old snapshot and log.
        """
        self._writer()
        if self._parts.snapshots is not None:
            try:
                self._parts.snapshots.take()
            except SnapshotCancelledError:
                raise ClosedError("store", "was closed while it took a snapshot; open it again") from None

    def export(self, path: str | PathLike[str]) -> ExportReport:
        """Write a snapshot file of the present state to a path outside the store, while commits and readers go on.

        The file has its name only when it is complete and durable; one that is there is replaced. Everything that is
        in it is durable in the store, too. If nothing was committed since the newest snapshot of the store, its blocks
        are copied. `pystate.install` makes a store of the file, and `pystate.read_snapshot` looks at it.

        A store whose `id` and `sequence` are those of an earlier export is unchanged since.

        Arguments:
            path: the file; its directory exists and is not that of the store. ``path.tmp`` beside it is used meanwhile.

        Raises:
            ValueError: `path` is in the directory of the store, or a directory. DiskFullError: no room for the file.
            OSError: a step failed. In both cases the store goes on, and nothing is left behind.
            CorruptionError: a family that must be read for it is damaged.
            StoreFailedError: the store cannot be written to any more, or the sync of its log has just failed.

        Cost: writing everything in the store once, and keeping what is overwritten meanwhile; commits wait for one sync
        of the log. Two threads may not export to the same path at once.
        """
        self._check()
        parts = self._parts
        with self._handles_lock:  # `refresh` changes the two together
            state, header = self._state, parts.header
        return export_state(
            parts.files, path, state, header, parts.committer, parts.path, lambda: self._ended is not None
        )

    def refresh(self) -> int:
        """For a read-only store: bring in what its writer has committed since; return the sequence.

        A store that can be written to is always up to date. Open views keep their state.

        Raises:
            CorruptionError, OSError: the files cannot be read; the state stays as it was.
        """
        self._check()
        if self._parts.refresh is not None:
            with self._handles_lock:
                state = self._parts.refresh()
                self._adopt(self._state if state is None else state)
        return self._state.sequence

    def _adopt(self, state: State) -> None:
        """Point the handles at a state that was read anew (older views keep theirs), or at other families in it."""
        self._state = self._parts.state = state
        for name, handle in list(self._handles.items()):
            family = state.families.get(name)
            if family is handle._family:
                continue
            if family is None or family.id != handle._family.id:
                del self._handles[name]
                handle._end(lambda name=name: self._raise_dropped(name))  # type: ignore[misc]
            else:
                handle._adopt(state, family)

    # Ending

    def close(self) -> None:
        """Close the store; may be called twice. Commits in flight finish first, a snapshot in progress is given up.

        Commits that are awaited finish or raise `ClosedError`, like those of threads. It blocks its thread meanwhile,
        which may be that of an event loop.

        Raises:
            OSError: the closing frame could not be written. The store is closed nevertheless, and the next opening
                recovers it, with everything that was durable.
        """
        with self._close_lock:
            try:
                if self._ended is None:
                    self._finish()
            finally:
                if self._ended is not None:  # or else an interrupt came before anything was ended
                    self._let_go()

    def _finish(self) -> None:
        parts, error = self._parts, ClosedError("store", "is closed; open it again with pystate.open(path)")
        try:
            if parts.snapshots is not None:
                parts.snapshots.stop()
            if parts.committer is not None:
                parts.committer.close(error)
        finally:
            self._end(error)

    def _let_go(self) -> None:
        """Release files and lock. Doing it again does what was left, should an interrupt have come between."""
        parts = self._parts
        if parts.log is not None:
            parts.log.abandon()
        if parts.reader is not None:
            parts.reader.close()
        if parts.lock is not None:
            parts.lock.release()  # after the last write
            parts.lock = None

    def _end(self, error: ClosedError) -> None:
        self._ended = error
        self._state.ended.append(error.hint)
        self._state.end_scans()
        for handle in list(self._handles.values()):
            handle._end(self._raise_ended)
        open_stores.discard(self)

    def _give_up_in_child(self) -> None:
        """In a forked child: give up everything, and touch neither the files nor the parent's lock."""
        parts, pid = self._parts, "the process that opened it"
        error = ClosedError("store", f"belongs to {pid}, not to its forked child; open it again here")
        if parts.committer is not None:
            parts.committer.refuse(error)
        if parts.log is not None:
            parts.log.abandon()
        if parts.reader is not None:
            parts.reader.close()
        if parts.lock is not None:
            parts.lock.abandon()
        self._end(error)

    def __enter__(self) -> Store:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except OSError:
            if error is None:
                raise  # with an error under way that one is kept

    def __repr__(self) -> str:
        condition = "closed" if self._ended is not None else f"sequence {self._state.sequence}"
        return f"<Store {self.path or '(memory)'}: {condition}>"

    def _check(self) -> None:
        if self._ended is not None:
            self._raise_ended()

    def _raise_ended(self) -> NoReturn:
        ended = self._ended
        raise ClosedError("store", ended.hint if ended is not None else "is closed")

    def _writer(self) -> Committer:
        self._check()
        if self._parts.committer is None:
            raise ReadOnlyError(self._parts.path or "(memory)")
        return self._parts.committer

    def _new_handle(self, family: FamilyState) -> Family:
        committer, sync = self._parts.committer, self._parts.durability == "sync"
        if committer is None:
            return Family(self._state, family, self._refuse, self._refuse, self._run_on_family, sync=sync)
        return Family(self._state, family, committer.put_one, committer.write_blind, self._run_on_family, sync=sync)

    def _refuse(self, *_: object) -> NoReturn:
        raise ReadOnlyError(self._parts.path or "(memory)")

    def _run_on_family(self, name: str, action: Callable[[FamilyWriter], Any]) -> Any:
        """One atomic operation on one family: a transaction that is tried until it goes through."""
        self._writer()
        return self.transact(lambda txn: action(txn.family(name)), attempts=_ATTEMPTS_OF_ONE_OPERATION)

    def stats(self) -> StoreStats:
        """What the store holds and has done."""
        self._check()
        parts, state, log, snapshots = self._parts, self._state, self._parts.log, self._parts.snapshots
        committer, found, reader = parts.committer, parts.recovery, parts.reader
        with state.lock:
            state.drain()
            families = {
                name: len(family.values) if family.loader is None else None
                for name, family in sorted(state.families.items())
            }
            views, history_bytes = state.history.pins, state.history.bytes
        commits = 0 if committer is None else state.sequence - self._opened_at
        return StoreStats(
            path=parts.path,
            read_only=self.read_only,
            failed=committer.cause if committer else None,
            sequence=state.sequence,
            durable_sequence=log.durable if log else state.sequence if found else 0,
            generation=log.generation if log else found.generation if found else 0,
            families=families,
            log_bytes=log.total_bytes - log.superseded_bytes if log else found.log_bytes if found else 0,
            log_segments=log.total_segments - log.superseded_segments if log else found.segments_read if found else 0,
            snapshot_sequence=snapshots.sequence if snapshots else reader.header.sequence if reader else 0,
            snapshot_bytes=snapshots.size if snapshots else reader.size if reader else 0,
            snapshot_log_bytes=snapshots.threshold if snapshots else 0,
            snapshots_taken=snapshots.taken if snapshots else 0,
            snapshot_error=snapshots.error if snapshots else None,
            commits=commits,
            groups=commits - committer.joined if committer else 0,
            syncs=log.syncs if log else 0,
            bytes_committed=log.bytes_committed if log else 0,
            bytes_written=(log.bytes_written if log else 0) + (snapshots.bytes_written if snapshots else 0),
            views=views,
            history_bytes=history_bytes,
            history_bytes_max=state.history.bytes_max,
            recovery=found,
        )


def transact(
    store_or_txn: Store | Transaction,
    function: Callable[[Transaction], T],
    *,
    attempts: int = ATTEMPTS,
    durability: Durability | None = None,
) -> T:
    """`Store.transact`, or, given an open transaction, ``function(txn)`` inside it, so that operations compose.

    Inside a transaction nothing is committed and nothing run again here: that is up to whoever began it.
    """
    if isinstance(store_or_txn, Transaction):
        store_or_txn._check()
        return function(store_or_txn)
    return store_or_txn.transact(function, attempts=attempts, durability=durability)


def check_durability(durability: object) -> Durability:
    """Refuse a durability that is none.

    Raises:
        ValueError: it is neither ``"sync"`` nor ``"process"``.
    """
    if durability == "sync":
        return "sync"
    if durability == "process":
        return "process"
    raise ValueError(f"durability is 'sync' or 'process', not {durability!r}")
