"""Reading a store without its lock: once, and again to catch up with a writer that goes on meanwhile.

Promise: nothing on disk is changed, not even a lock file; what is shown is a committed state that power loss cannot
take back: before a frame is shown that its writer may not have synced yet, the reader syncs the segment itself. That a
file has just been superseded, or that the last frame is half written, is normal and leads to another look, not to an
error.
"""

from __future__ import annotations

import errno

from pystate.engine import threads
from pystate.engine.family_state import FamilyState
from pystate.engine.files import Files, read_whole
from pystate.engine.log_format import SEGMENT_HEADER_SIZE, Operations, SegmentHeader, parse_segment_header
from pystate.engine.log_reader import SegmentEnd, read_segment
from pystate.engine.names import segment_name
from pystate.engine.recovery import Recovered, recover, survey
from pystate.engine.state import State
from pystate.errors import CorruptionError, StoreNotFoundError

__all__ = ["Follower", "read_committed"]

_ATTEMPTS = 20
_PAUSE = 0.01
_CANNOT_SYNC = frozenset({errno.EROFS, errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES, errno.EPERM})


def read_committed(files: Files, directory: str) -> Recovered:
    """`recover` beside a live writer: look again while files change under the reading.

    Raises:
        StoreNotFoundError: there is no store. CorruptionError, UnsupportedFormatError, OSError: as `recover`.
    """
    for attempt in range(_ATTEMPTS):
        inventory = survey(files, directory)
        if not inventory.snapshots and not inventory.segments:
            raise StoreNotFoundError(directory)
        try:
            recovered = recover(files, directory, inventory)
        except (FileNotFoundError, CorruptionError):
            # A list of names taken while the writer switches segments shows a state that never was. Real damage stays.
            if attempt == _ATTEMPTS - 1 or survey(files, directory) == inventory:
                raise
            threads.pause(_PAUSE)
            continue
        if recovered.end.watermark < recovered.end.sequence:
            _sync(files, files.join(directory, recovered.newest.name))
        if recovered.replaced:  # power loss could bring back what the snapshot has just replaced
            _sync_names(files, directory)
        return recovered
    raise RuntimeError("the loop above returns or raises")


def _sync(files: Files, path: str) -> None:
    """Make what was just read durable, unless this medium cannot be written to (and so cannot lose it)."""
    try:
        file = files.open_read(path)
    except FileNotFoundError:
        return  # renamed or superseded, and so synced, by its writer
    try:
        file.sync()
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        file.close()


def _sync_names(files: Files, directory: str) -> None:
    """Make the names in a directory durable, unless this medium cannot be written to."""
    try:
        files.sync_directory(directory)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


class Follower:
    """Keeps the state of a read-only store up to date. One thread at a time may call `refresh`."""

    def __init__(self, files: Files, directory: str, recovered: Recovered, state: State) -> None:
        self._files = files
        self._directory = directory
        self._state = state
        self._segment = recovered.segment
        self._offset = recovered.end.offset

    def refresh(self) -> bool:
        """Bring in the commits that have been written since; False when only reading everything anew can.

        Raises:
            CorruptionError, OSError: as for reading the log; the state stays as it is.
        """
        while True:
            name = segment_name(self._segment.first)
            data = self._read(name) or self._read(segment_name(self._segment.first, closed=True))
            if data is None:
                return False
            path = self._files.join(self._directory, name)
            if parse_segment_header(path, data) != self._segment or len(data) < self._offset:
                return False
            end = self._collect(path, data)
            if end.ending == "damage" and end.watermark > end.sequence:
                found = end.problem
                if self._read(name) != data:
                    continue  # the writer was in the middle of it
                expected = f"the frame of commit {end.sequence + 1}, which had been durable"
                raise CorruptionError(path, offset=end.offset, expected=expected, found=found, sequence=end.sequence)
            if end.ending != "switch":
                return True
            if not self._next(end.next_first):
                return False

    def _read(self, name: str) -> bytes | None:
        try:
            return read_whole(self._files, self._files.join(self._directory, name))
        except FileNotFoundError:
            return None

    def _collect(self, path: str, data: bytes) -> SegmentEnd:
        """Read what is new in a segment, make sure that it is durable, then show it."""
        batch = _Batch()
        end = read_segment(path, data, self._segment, batch, offset=self._offset, sequence=self._state.sequence)
        if batch.commits and end.watermark < end.sequence:
            _sync(self._files, path)
        for operations, sequence in batch.commits:
            try:
                changes = self._state.changes_of(operations)
            except ValueError as error:
                raise CorruptionError(path, expected="operations on known families", found=str(error)) from None
            for family, _ in changes:
                self._loaded(family)
            self._state.apply(changes, sequence)
        self._offset = end.offset
        return end

    def _loaded(self, family: FamilyState | None) -> None:
        if family is not None:
            self._state.load(family)

    def _next(self, first: int) -> bool:
        data = self._read(segment_name(first)) or self._read(segment_name(first, closed=True))
        if data is None:
            return False
        header: SegmentHeader = parse_segment_header(self._files.join(self._directory, segment_name(first)), data)
        if header.log_id != self._segment.log_id or header.first != self._state.sequence + 1:
            return False
        self._segment, self._offset = header, SEGMENT_HEADER_SIZE
        return True


class _Batch:
    """A sink that keeps the commits for later."""

    def __init__(self) -> None:
        self.overlays: dict[int, dict[bytes, bytes | None]] = {}
        self.commits: list[tuple[Operations, int]] = []

    def apply(self, operations: Operations, sequence: int) -> None:
        self.commits.append((operations, sequence))
