"""When to take a snapshot, and taking it beside the commits.

A snapshot is due when the log since the last one is larger than ``snapshot_log_bytes`` and than that snapshot, or
consists of too many segments. So each byte committed is written about twice: once to the log, once, amortised, to a
snapshot. If commits outrun a snapshot in progress, the leader waits for it at `LOG_FACTOR_MAX` times that size: the log
on disk is bounded.

Promise: a snapshot that fails leaves the store as it was and is tried again when the log has grown as much again; the
failure shows in ``stats()``. Older files are removed only when the new snapshot and its name are durable.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from pystate.engine import threads
from pystate.engine.commit import Committer
from pystate.engine.family_state import FamilyState
from pystate.engine.files import Files
from pystate.engine.log_writer import LogWriter
from pystate.engine.recovery import survey
from pystate.engine.repair import remove_files
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_writer import SnapshotCancelledError, write_snapshot
from pystate.engine.state import Pin, State

__all__ = ["LOG_FACTOR_MAX", "SEGMENTS_MAX", "Snapshots"]

LOG_FACTOR_MAX = 4
"""The log may grow to so many times its threshold while a snapshot is in progress; then commits wait."""
SEGMENTS_MAX = 64
"""More segments than this make a snapshot due, however small they are."""
_READY_SECONDS_MAX = 1.0
"""How long a leader waits for a snapshot that has begun and still needs the lead, or waits behind another one."""


class _Begun(NamedTuple):
    """A snapshot whose state is pinned, and how much of the log it will supersede."""

    pin: Pin
    header: SnapshotHeader
    families: Mapping[str, FamilyState]
    log_bytes: int
    segments: int


class Snapshots:
    """Takes the snapshots of one store.

    Arguments:
        header: of the snapshot the store was opened from; what it says of the store goes into every later one.
        size: of that snapshot in bytes.
        log_bytes: ``snapshot_log_bytes`` of `pystate.open`.

    Attributes:
        sequence, size: of the newest snapshot.
        taken, bytes_written: counters for ``stats()``.
        error: the last failure, or None if the last attempt was a success.
        threshold: how large the log may be before a snapshot is due.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        state: State,
        committer: Committer,
        log: LogWriter,
        *,
        header: SnapshotHeader,
        size: int,
        log_bytes: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._state = state
        self._committer = committer
        self._log = log
        self._header = header
        self._floor = log_bytes
        self._one_at_a_time = threads.new_lock()
        self._running: threading.Thread | None = None
        self._idle = threads.new_event()
        self._idle.set()
        self._ready = threads.new_event()
        self._leading_done = False
        self._cancelled = False
        self.sequence = header.sequence
        self.size = size
        self.taken = 0
        self.bytes_written = 0
        self.error: str | None = None
        self._set_limit()

    @property
    def threshold(self) -> int:
        """How large the log may be before a snapshot is due, in bytes."""
        return max(self._floor, self.size)

    def _set_limit(self) -> None:
        self._committer.log_total_max = self._log.superseded_bytes + self.threshold

    def grown(self) -> None:
        """Called by the leader when the log is over its limit: begin a snapshot, or wait for the one in progress."""
        if self._idle.is_set():
            if not self._cancelled:
                self._idle.clear()
                self._leading_done = False
                self._ready.clear()
                self._running = threads.start_thread("pystate-snapshot", self._in_background)
        elif self._log_bytes() > LOG_FACTOR_MAX * self.threshold:
            if self._leading_done:
                self._idle.wait()
            else:  # it still needs the lead, which the caller has: let it come so far that it asks for it
                self._ready.wait(_READY_SECONDS_MAX)

    def _log_bytes(self) -> int:
        return self._log.total_bytes - self._log.superseded_bytes

    def due(self) -> bool:
        """Whether a snapshot should be taken now; asked once after opening."""
        log = self._log
        return (
            log.total_bytes > self._committer.log_total_max
            or log.total_segments - log.superseded_segments > SEGMENTS_MAX
        )

    def _in_background(self) -> None:
        try:
            self.take()
        except SnapshotCancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - it must not end in a thread; stats() shows it
            self.error = f"{type(error).__name__}: {error}"
            # Not at once again: when the log has grown as much again.
            self._committer.log_total_max = self._log.total_bytes + self.threshold
        finally:
            self._idle.set()

    def take(self) -> None:
        """Take a snapshot now, unless nothing has been committed since the last one.

        Raises:
            SnapshotCancelledError: the store is closing.
            CorruptionError: a family that must be copied is damaged. OSError: a step failed.
            StoreFailedError, ClosedError: the store cannot be written to any more.
        """
        with self._one_at_a_time:
            if self._cancelled:
                raise SnapshotCancelledError
            for family in list(self._state.families.values()):
                self._state.load(family)
            self._committer.sync_ahead()
            self._ready.set()
            begun: list[_Begun] = []
            try:
                self._committer.exclusively(lambda: self._begin(begun))
                self._leading_done = True
                if begun:
                    self._finish(begun[0])
            finally:
                for one in begun:
                    one.pin.release()

    def _begin(self, begun: list[_Begun]) -> None:
        """Under the lead: switch to a new segment and pin the state in which the old ones end."""
        committer, state, log = self._committer, self._state, self._log
        committer.check_writable()
        if state.sequence == self.sequence:
            return
        try:
            log.switch()
        except BaseException as error:
            if log.broken:
                committer.fail(error)
            raise
        header = msgspec.structs.replace(
            self._header,
            sequence=state.sequence,
            generation=log.generation,
            next_family_id=state.next_family_id,
            families={name: family.id for name, family in state.families.items()},
        )
        begun.append(
            _Begun(
                state.pin(durable_reader=True),
                header,
                state.families,
                log.total_bytes - log.size,
                log.total_segments - 1,
            )
        )

    def _finish(self, begun: _Begun) -> None:
        header = begun.header
        size = write_snapshot(
            self._files, self._directory, header, self._state, begun.families, begun.pin, lambda: self._cancelled
        )
        self._header, self.sequence, self.size = header, header.sequence, size
        self.taken += 1
        self.bytes_written += size
        self._log.superseded_bytes, self._log.superseded_segments = begun.log_bytes, begun.segments
        self._set_limit()
        self.error = None
        inventory = survey(self._files, self._directory)
        stale = [name for name in inventory.segments if name.sequence <= header.sequence]
        stale += [name for name in inventory.snapshots if name.sequence < header.sequence]
        remove_files(self._files, self._directory, stale)

    def stop(self) -> None:
        """Give up a snapshot in progress, and begin no more; wait until its thread has ended."""
        self._cancelled = True
        self._idle.wait()
        with self._one_at_a_time:
            pass  # one that was asked for by hand may still be removing files
        running = self._running
        if running is not None and running is not threading.current_thread():
            running.join()
