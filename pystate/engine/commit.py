"""Committing: validate, write, sync, apply, in that order, for one commit or for a group of them.

Promise: a commit that returned is in the log, synced if its durability says so, and only then visible (guarantees 1, 2
and 4). Nothing is written for a commit that fails validation. From the first byte written a group either finishes, even
if an interrupt arrives meanwhile (it is raised afterwards), or fails the store. A full disk undoes the group and leaves
the store usable.

The general way is `Committer.commit`. `Committer.put_one` is the same for one put without a transaction,
written out flat because it is what a program that writes key by key pays for every key; nothing else in the engine is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from zlib import crc32

from pystate.engine.conflicts import Reads, check_reads
from pystate.engine.deputy import Deputy
from pystate.engine.family_state import FamilyState, Writes
from pystate.engine.leadership import Leadership, Request
from pystate.engine.limits import COMMIT_BYTES_MAX, KEY_BYTES_MAX, Buffer, as_key, as_value
from pystate.engine.log_format import (
    CATALOGUE,
    FRAME_HEADER_SIZE,
    encode_frame,
    encode_operations,
    frame_checksum,
    pack_frame_header,
)
from pystate.engine.log_writer import LogWriter
from pystate.engine.state import Change, Pin, State
from pystate.errors import ClosedError, DiskFullError, FamilyNotFoundError, StoreFailedError

__all__ = ["CommitRequest", "Committer"]

_APPLY_ATTEMPTS = 100
_AT_ONCE_BYTES_MAX = 64 * 1024
"""How large a commit may be that is made in the thread of an event loop."""


class CommitRequest(Request):
    """One commit on its way.

    Attributes:
        changes: what it does.
        sync: it must be durable before it is acknowledged.
        reads, pin: what its transaction has read, and the state it read; none for a blind write.
        payload: the encoded operations.
        sequence: the number it got.
    """

    __slots__ = ("changes", "payload", "pin", "reads", "sequence", "sync")

    def __init__(
        self,
        changes: list[Change],
        *,
        sync: bool,
        reads: Sequence[tuple[FamilyState, Reads]] = (),
        pin: Pin | None = None,
    ) -> None:
        super().__init__()
        self.changes = changes
        self.sync = sync
        self.reads = reads
        self.pin = pin
        self.sequence = 0
        self.payload = encode_operations(_operations(changes))
        if len(self.payload) > COMMIT_BYTES_MAX:
            raise ValueError(f"this commit has {len(self.payload)} bytes; the limit is {COMMIT_BYTES_MAX}; split it")


def _operations(changes: list[Change]) -> list[object]:
    if len(changes) == 1 and len(changes[0][1]) == 1:
        ((family, writes),) = changes
        ((key, value),) = writes.items()
        return [CATALOGUE if family is None else family.id, key, value]
    operations: list[object] = []
    for family, writes in changes:
        operations += (CATALOGUE if family is None else family.id, writes)
    return operations


class Committer:
    """Everything that writes commits to one store. Thread-safe.

    Arguments:
        state: where commits become visible.
        log: where they become durable, or None for a store in memory.
        path: of the store, for errors.
        grown: called by the leader after a group when ``log.total_bytes`` is above `log_total_max`.

    Attributes:
        deputy: leads for the tasks of event loops.
        failed: the first failure, or None. Once set, nothing is written any more.
        closed: a ClosedError to raise, or None.
        log_total_max: see `grown`.
        unwritable: `failed` or `closed` is set.
        joined: commits that were written in the group of another one, for ``stats()``.
    """

    def __init__(self, state: State, log: LogWriter | None, path: str, grown: Callable[[], None]) -> None:
        self.state = state
        self.log = log
        self.leadership = Leadership()
        self.deputy = Deputy(self.leadership, self._lead)
        self._lead_lock, self._queue = self.leadership.lead, self.leadership.queue
        self.failed: BaseException | None = None
        self.closed: ClosedError | None = None
        self.log_total_max = 0
        self.joined = 0
        self.unwritable = False
        self._path = path
        self._grown = grown

    # The general way

    def commit(self, request: CommitRequest) -> int:
        """Commit, alone or in a group; return the sequence.

        Raises:
            ConflictError: the transaction read something that has changed.
            FamilyNotFoundError: a blind write to a family that was dropped.
            DiskFullError: no room; undone.
            StoreFailedError: a write or sync failed, now (``unknown``) or before.
            ClosedError: the store was closed before this commit's turn came.
        """
        self.leadership.run(request, self._lead)
        if request.error is not None:
            raise request.error
        return request.sequence

    def commit_at_once(self, request: CommitRequest) -> bool:
        """`commit`, unless that would take more than a moment; for the threads of event loops, which must not wait.

        It is a moment when no sync is needed, nobody leads or waits, no segment is opened and no snapshot made due. One
        sync is possible nevertheless: that of the undoing, when the disk is full.

        Returns:
            False if nothing was done.

        Raises:
            An interrupt. What `commit` raises is the `error` of the request.
        """
        if request.sync and self.log is not None:
            return False
        return self.leadership.run_at_once(request, self._lead_at_once)

    def _lead_at_once(self, group: list[Request]) -> None:
        log = self.log
        size = len(group[0].payload)  # type: ignore[attr-defined]  # see `_lead`
        if size <= _AT_ONCE_BYTES_MAX and (
            log is None or (log.touched and log.total_bytes + FRAME_HEADER_SIZE + size <= self.log_total_max)
        ):
            self._lead(group)

    def _lead(self, group: list[Request]) -> None:
        try:
            self._write_group(group)  # type: ignore[arg-type]  # `exclusively` runs another function
        except BaseException:
            self._settle_group(group)  # type: ignore[arg-type]
            raise

    def _settle_group(self, group: list[CommitRequest]) -> None:
        """After an interrupt: decide what has been written, by the evidence of the log; the rest is tried again."""
        log = self.log
        written = self.state.sequence if log is None else log.sequence
        for request in group:
            if request.done:
                continue
            if 0 < request.sequence <= written and request.error is None:
                if log is not None and request.sync and self.failed is None and log.durable < request.sequence:
                    try:
                        log.sync()  # see `_write`
                    except OSError as error:
                        self.fail(error)
                if self.failed is not None:
                    request.error = self.failure(unknown=True)
                else:
                    self._apply(request)
                request.done = True
            elif request.error is not None:
                request.done = True
            else:
                request.sequence = 0

    def _write_group(self, group: list[CommitRequest]) -> None:
        """Decide every commit of a group: each is `done`, with a sequence or an error, when this returns.

        Raises:
            An interrupt: before anything is written (then none is decided), or after (then all are).
        """
        frames, accepted = self._admit(group)
        interrupt: BaseException | None = None
        failure: Exception | None = None
        if accepted and self.log is not None:
            try:
                interrupt = self._write(self.log, frames, accepted[-1].sequence, any(one.sync for one in accepted))
            except DiskFullError as error:
                failure = error
            except BaseException as error:  # noqa: BLE001 - whatever it is, the outcome is unknown
                failure = self.fail(error)
                interrupt = None if isinstance(error, Exception) else error
        for request in accepted:
            if request.pin is not None:
                request.pin.release()  # before it is applied, so that nothing is saved for this transaction itself
            if failure is None:
                try:
                    interrupt = self._apply(request) or interrupt
                except StoreFailedError as error:
                    failure = error
            if failure is not None:
                request.error = copy(failure)
                request.error.__cause__ = failure.__cause__
        for request in group:
            request.done = True
            if request.pin is not None:
                request.pin.release()
        if accepted:
            self.joined += len(accepted) - 1
            if self.log is not None and self.log.total_bytes > self.log_total_max:
                self._grown()
        if interrupt is not None:
            raise interrupt

    def _admit(self, group: list[CommitRequest]) -> tuple[bytes, list[CommitRequest]]:
        """Validate each commit, against the earlier ones of its group too, and encode the frames of those that pass."""
        log, state = self.log, self.state
        accepted: list[CommitRequest] = []
        frames: list[bytes] = []
        grouped: dict[int, dict[bytes, int]] = {}
        sequence = state.sequence
        for request in group:
            try:
                self._check(request, grouped)
                if log is not None:
                    frames.append(encode_frame(log.salt, log.seed, sequence + 1, log.durable, request.payload))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome of this commit alone
                request.error = error
                continue
            sequence += 1
            accepted.append(request)
            request.sequence = sequence
            if len(group) > 1:
                for family, writes in request.changes:
                    keys = grouped.setdefault(CATALOGUE if family is None else family.id, {})
                    keys.update(dict.fromkeys(writes, sequence))
        return b"".join(frames), accepted

    def _check(self, request: CommitRequest, grouped: dict[int, dict[bytes, int]]) -> None:
        self.check_writable()
        if request.pin is not None:
            with self.state.lock:
                check_reads(request.reads, request.pin.pinned, grouped, self.state.sequence)
            return
        for family, _ in request.changes:
            if family is not None and family.dropped:
                raise self._refusal(family)

    def _write(self, log: LogWriter, frames: bytes, sequence: int, sync: bool) -> BaseException | None:
        """Append and sync. An interrupt between the two, or right after either, is returned when all is done."""
        interrupt: BaseException | None = None
        try:
            log.append(frames, sequence)
        except Exception:
            raise
        except BaseException as error:
            if not log.settle(frames, sequence):
                raise
            interrupt = error
        if sync:
            try:
                log.sync()
            except Exception:
                raise
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                # No error of the disk has been consumed: either the sync was done, or it was cut short by the signal.
                log.sync()
                interrupt = error
        return interrupt

    def _apply(self, request: CommitRequest) -> BaseException | None:
        """Make a written commit visible, whatever interrupts it: it is in the log, so it must not stay half visible."""
        interrupt: BaseException | None = None
        for _ in range(_APPLY_ATTEMPTS):
            try:
                self.state.apply(request.changes, request.sequence)
            except BaseException as error:  # noqa: BLE001 - raised by the caller when the commit is whole
                interrupt = error
            else:
                return interrupt
        raise self.fail(interrupt or RuntimeError("a commit could not be applied"))

    # One operation

    def put_one(self, family: FamilyState, sync: bool, key: Buffer, value: Buffer) -> None:
        """`commit` for one put. Raises the same; TypeError and ValueError for a key or value that cannot be one."""
        if type(key) is not bytes or type(value) is not bytes:
            key, value = as_key(key), as_value(value)
        log, state, lead = self.log, self.state, self._lead_lock
        if log is None or self._queue or lead.locked():
            return self._put_in_group(family, sync, key, value)
        payload = encode_operations((family.id, key, value))
        if len(payload) > KEY_BYTES_MAX:  # or else neither can be too long
            as_key(key), as_value(value)
        with lead:
            if self.unwritable or family.dropped:
                raise self._refusal(family)
            seed, sequence = log.seed, log.sequence + 1
            header = pack_frame_header(log.salt, len(payload), sequence, log.durable, crc32(payload, seed))
            frame = header + frame_checksum(crc32(header, seed)) + payload
            try:
                if log.write(frame) != len(frame):
                    log.finish(frame)
                log.total_bytes += len(frame)
                log.sequence = sequence
                if sync:
                    log.sync()
                with state.lock:
                    if state.history.newest is not None:
                        state.apply_locked(((family, {key: value}),), sequence)
                    else:
                        if family.changed is not None and key not in family.values:
                            family.changed.add(key)
                        family.values[key] = value
                        state.sequence = sequence
            except BaseException as error:  # noqa: BLE001 - the commit is finished or failed, then it is raised
                self._settle_one(error, CommitRequest([(family, {key: value})], sync=sync), sequence, frame)
            if log.total_bytes > self.log_total_max:
                self._grown()
        if self._queue:
            self.leadership.wake_first()

    def _refusal(self, family: FamilyState) -> Exception:
        """Why a blind write to `family` cannot be."""
        self.check_writable()
        return FamilyNotFoundError(family.name, tuple(sorted(self.state.families)))

    def write_blind(self, family: FamilyState, sync: bool, writes: Writes) -> None:
        """`commit` for operations on one family that nothing was read for. Raises the same."""
        self.commit(CommitRequest([(family, writes)], sync=sync))

    def _put_in_group(self, family: FamilyState, sync: bool, key: bytes, value: bytes) -> None:
        """`put_one` in the general way: others are committing too, or there is no disk."""
        self.commit(CommitRequest([(family, {as_key(key): as_value(value)})], sync=sync))

    def _settle_one(self, error: BaseException, request: CommitRequest, sequence: int, frame: bytes) -> None:
        """Finish a commit of one operation that was disturbed, or fail the store; then raise what is to be raised."""
        log = self.log
        if log is None:
            raise error
        try:
            if isinstance(error, OSError) and log.sequence != sequence:
                log.undo(error)
            if isinstance(error, Exception):
                whole = log.sequence == sequence and (not request.sync or log.durable == sequence)
            else:
                whole = log.settle(frame, sequence)
                if whole and request.sync:
                    log.sync()  # see `_write`
        except DiskFullError:
            raise
        except BaseException as second:  # noqa: BLE001 - the first error is the one to tell
            whole, error = False, second if isinstance(error, Exception) else error
        if not whole:
            failure = self.fail(error)
            if isinstance(error, Exception):
                raise failure from error
            raise error
        request.sequence = sequence
        self._apply(request)
        if not isinstance(error, Exception):
            raise error

    # Failing and closing

    def check_writable(self) -> None:
        """Raise if the store is closed or has failed."""
        if self.closed is not None:
            raise ClosedError(self.closed.what, self.closed.hint)
        if self.failed is not None:
            raise self.failure(unknown=False)

    def fail(self, error: BaseException) -> StoreFailedError:
        """Refuse every later write; remember the first failure."""
        if self.failed is None:
            self.failed = error
            self.unwritable = True
        return self.failure(unknown=self.log is None or self.log.touched)

    def failure(self, *, unknown: bool) -> StoreFailedError:
        """The error for a commit after, or in, a failure."""
        cause = self.failed
        text = self.cause or ""
        number = cause.errno if isinstance(cause, OSError) else None
        error = StoreFailedError(self._path, text, unknown=unknown, errno=number)
        error.__cause__ = cause
        return error

    @property
    def cause(self) -> str | None:
        """The text of the first failure, or None."""
        return None if self.failed is None else f"{type(self.failed).__name__}: {self.failed}"

    def write_alone(self, request: CommitRequest) -> None:
        """For a caller that leads alone: commit one request."""
        self._write_group([request])
        if request.error is not None:
            raise request.error

    def sync(self) -> None:
        """Make everything that was committed durable.

        Raises:
            StoreFailedError: the sync failed, or something did before. ClosedError: the store is closed.
        """
        self.exclusively(self._sync)

    def sync_and(self, action: Callable[[], None]) -> None:
        """`sync`, and then `action` before there is another commit. Raises the same, and what `action` raises."""

        def both() -> None:
            self._sync()
            action()

        self.exclusively(both)

    def _sync(self) -> None:
        self.check_writable()
        if self.log is not None:
            try:
                self.log.sync()
            except BaseException as error:
                failure = self.fail(error)
                if isinstance(error, Exception):
                    raise failure from error
                raise

    def sync_ahead(self) -> None:
        """`LogWriter.sync_ahead`; a sync that failed is never tried again, so it fails the store.

        Raises:
            StoreFailedError: it failed, or something did before. ClosedError: the store is closed.
        """
        self.check_writable()
        if self.log is not None:
            try:
                self.log.sync_ahead()
            except OSError as error:
                self.check_writable()  # the file was closed because the store is
                raise self.fail(error) from error

    def close(self, error: ClosedError) -> None:
        """Refuse every later commit with `error`, then close the log.

        Raises:
            OSError: the closing frame could not be written.
        """
        try:
            self.exclusively(lambda: self._close(error))
        finally:
            if self.closed is not None:  # or else an interrupt came first
                self.deputy.dismiss()

    def refuse(self, error: ClosedError) -> None:
        """Refuse every later commit with `error`."""
        self.closed = error
        self.unwritable = True

    def _close(self, error: ClosedError) -> None:
        if self.closed is not None:
            return
        self.refuse(error)
        if self.log is None:
            return
        if self.failed is not None:
            self.log.abandon()
        else:
            self.log.close()

    def exclusively(self, action: Callable[[], None]) -> None:
        """Run `action` while leading alone: no commit is under way, and none begins."""

        def decide(group: list[Request]) -> None:
            action()
            group[0].done = True

        self.leadership.run(Request(exclusive=True), decide)
