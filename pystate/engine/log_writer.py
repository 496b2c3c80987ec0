"""Appending to the log: one live segment, its frames, its closing frame, and the switch to the next one.

Promise: frames stand in the file in sequence order and whole; `durable` never claims more than a successful sync has
covered; a new segment exists durably, header and name, before its first frame is written, and only after everything in
the one before it is durable (else power loss could leave a hole between two segments); what `append` could not write
whole is cut off again, and the cut synced, or the caller is told that it was not.

One thread at a time may call a `LogWriter`: the leader of the group commit.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from pystate.engine.files import File, Files, publish, write_all, write_rest
from pystate.engine.log_format import (
    FRAME_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
    encode_frame,
    encode_operations,
    encode_segment_header,
    salt_seed,
)
from pystate.engine.names import segment_name
from pystate.errors import DiskFullError

__all__ = ["FULL_ERRNOS", "LogPosition", "LogWriter", "new_salt", "publish_segment"]

FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What an append may fail with when there is no room: undone, and the store stays usable."""


class LogPosition(NamedTuple):
    """Where a log ends, as recovery found it.

    Attributes:
        header: of the newest segment.
        size: its size in bytes.
        sequence: of the last commit.
        closed_name: the newest segment bears the name of a cleanly closed one, and ends as one.
        other_bytes, other_segments: what the older segments that are still needed hold.
    """

    header: SegmentHeader
    size: int
    sequence: int
    closed_name: bool
    other_bytes: int
    other_segments: int


def new_salt(files: Files) -> bytes:
    """A salt for a segment: random, with no zero byte, so that zeros on the disk never look like a frame."""
    return bytes(byte or 1 for byte in files.random_bytes(4))


def publish_segment(files: Files, directory: str, header: SegmentHeader) -> None:
    """Create a segment without commits, durably, replacing a frameless one of the same name."""
    publish(files, directory, segment_name(header.first), encode_segment_header(header))


class LogWriter:
    """Appends to the newest segment of a store. Nothing is touched until the first append or switch.

    Attributes:
        salt, seed: of the live segment, for `encode_frame`.
        write: the file's own ``write``, once the segment is open. Only for `append`, and for the commit of one
            operation.
        sequence: of the last commit appended.
        durable: the highest sequence that a sync has covered.
        total_bytes, total_segments: of all segments since opening, superseded ones included; only the leader adds to
            them.
        superseded_bytes, superseded_segments: of those, what snapshots have made superfluous; only the thread that
            takes a snapshot adds to them, so that neither waits for the other.
        broken: a switch failed half-way.
        syncs: counts them for ``stats()``.
    """

    def __init__(
        self, files: Files, directory: str, position: LogPosition, still_held: Callable[[], bool] = lambda: True
    ) -> None:
        self._still_held = still_held
        self._files = files
        self._directory = directory
        self._header = position.header
        self._closed_name = position.closed_name
        self._file: File | None = None
        self.salt = position.header.salt
        self.seed = salt_seed(self.salt)
        self.write: Callable[[bytes], int] = self._open_and_write
        self._older_bytes = position.other_bytes
        self._sequence_found = self.sequence = position.sequence
        self._overhead = 0  # of closing frames and segment headers
        self.durable = position.sequence  # recovery synced what it accepted, or found it closed
        self._bytes_found = self.total_bytes = position.other_bytes + position.size
        self.total_segments = position.other_segments + 1
        self.superseded_bytes = self.superseded_segments = 0
        self.broken = False
        self.syncs = 0

    @property
    def path(self) -> str:
        """The live segment."""
        return self._files.join(self._directory, segment_name(self._header.first))

    @property
    def generation(self) -> int:
        """The generation of the live segment."""
        return self._header.generation

    @property
    def size(self) -> int:
        """Of the live segment, in bytes."""
        return self.total_bytes - self._older_bytes

    @property
    def bytes_written(self) -> int:
        """Appended since opening, frames and segment headers."""
        return self.total_bytes - self._bytes_found

    @property
    def touched(self) -> bool:
        """The live segment has been opened, so something may have been written to it."""
        return self._file is not None

    @property
    def bytes_committed(self) -> int:
        """Payloads appended since opening: keys, values, and how they are encoded."""
        return self.bytes_written - self._overhead - FRAME_HEADER_SIZE * (self.sequence - self._sequence_found)

    def open(self) -> File:
        """Return the live segment, opened for appending; take the name of a closed one from it first.

        Raises:
            OSError: it could not be renamed or opened. Nothing has changed that matters.
        """
        if self._file is None:
            if not self._still_held():
                raise OSError(errno.ENOLCK, "the lock file was removed or replaced while it was held", self._directory)
            if self._closed_name:
                closed = self._files.join(self._directory, segment_name(self._header.first, closed=True))
                self._files.replace(closed, self.path)
                # Before the first frame: a name that says "closed cleanly" must never stand over frames behind it.
                self._files.sync_directory(self._directory)
                self._closed_name = False
            self._file = self._files.open_append(self.path)
            self.write = self._file.write
        return self._file

    def _open_and_write(self, frames: bytes) -> int:
        """What `_write` is until the segment is open; then it is the file's own ``write``."""
        return self.open().write(frames)

    def append(self, frames: bytes, sequence: int) -> None:
        """Append whole frames, the last of which has `sequence`. Not durable before `sync`.

        Raises:
            DiskFullError: there was no room; what had been written was cut off again, durably.
            OSError: anything else; the state of the file is unknown, and no more may be appended.
        """
        try:
            if self.write(frames) != len(frames):
                self.finish(frames)
        except OSError as error:
            self.undo(error)
        self.total_bytes += len(frames)
        self.sequence = sequence

    def finish(self, frames: bytes) -> None:
        """Write what a first, short write left over; the file tells how much that was."""
        file = self.open()
        write_rest(file, frames, file.size() - self.size)

    def undo(self, error: OSError) -> NoReturn:
        """A disk without room: remove what was written of a frame. Any other failure is raised as it is.

        The cut is synced, or later frames could meet its left-overs after a crash.
        """
        file = self._file
        if error.errno not in FULL_ERRNOS or file is None:
            raise error
        if file.size() != self.size:
            file.truncate(self.size)
            file.sync()
            self.syncs += 1
            self.durable = self.sequence
        raise DiskFullError(self.path, errno=error.errno or 0) from error

    def settle(self, frames: bytes, sequence: int) -> bool:
        """After an interrupt in `append`: whether the frames stand whole in the file after all. Counts them if so."""
        if self.sequence == sequence:
            return True
        if self._file is None or self._file.size() != self.size + len(frames):
            return False
        self.total_bytes += len(frames)
        self.sequence = sequence
        return True

    def sync(self) -> None:
        """Make everything appended durable.

        Raises:
            OSError: nothing is known any more about what was appended since the last sync. Never call it again.
        """
        sequence = self.sequence
        if self.durable != sequence:
            (self._file or self.open()).sync()
            self.syncs += 1
            self.durable = sequence

    def sync_ahead(self) -> None:
        """Sync what there is by now, from any thread and beside the leader, so that `switch` has little left to sync.

        Raises:
            OSError: the disk failed, or the segment has just been closed.
        """
        if self._file is not None and self.durable != self.sequence:
            # By a descriptor of its own: a system reports a failed write once for each, and this must not take the
            # report away from the leader, which would acknowledge what is lost.
            file = self._files.open_read(self.path)
            try:
                file.sync()
            finally:
                file.close()

    def switch(self) -> None:
        """Begin a new segment, so that the ones before it can be superseded by a snapshot.

        Raises:
            OSError: a step failed. The old segment goes on, unless `broken` is set: then no more may be appended.
        """
        self.broken = True
        old = self.open()
        self.sync()
        header = self._header._replace(salt=new_salt(self._files), first=self.sequence + 1)
        if header.first == self._header.first:
            self.broken = False
            return  # nothing in it yet: it serves as the next one
        try:
            publish_segment(self._files, self._directory, header)
        except BaseException:
            self._unpublish(segment_name(header.first))
            self.broken = False
            raise
        # Not synced by itself, nor needed: without it the first sequence of the new segment proves this one whole.
        closing = self._closing_frame([header.first])
        try:
            write_all(old, closing)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
        self.total_bytes += len(closing)
        self._overhead += len(closing) + SEGMENT_HEADER_SIZE
        old.close()
        self._header, self._file, self.write = header, None, self._open_and_write
        self.salt, self.seed = header.salt, salt_seed(header.salt)
        self._older_bytes = self.total_bytes
        self.total_bytes += SEGMENT_HEADER_SIZE
        self.total_segments += 1
        self.broken = False

    def _unpublish(self, name: str) -> None:
        """A new segment may be in place although publishing it failed; take it away, or it would contradict the old
        one.

        Raises:
            OSError: it may still be there; no more may be appended.
        """
        path = self._files.join(self._directory, name)
        if self._files.kind(path) is not None:
            self._files.unlink(path)
        self._files.sync_directory(self._directory)

    def close(self) -> None:
        """Write the closing frame and give the segment its closed name, unless it was found so and not written to.

        Raises:
            OSError: a step failed; the store opens as after a crash, with everything that was synced.
        """
        if self._closed_name:
            return
        file = self.open()
        self._file, self.write = None, self._open_and_write
        try:
            if self.durable != self.sequence:
                file.sync()
                self.durable = self.sequence
            write_all(file, self._closing_frame([]))
            file.sync()
        finally:
            file.close()
        self._files.replace(self.path, self._files.join(self._directory, segment_name(self._header.first, closed=True)))
        self._files.sync_directory(self._directory)

    def abandon(self) -> None:
        """Close the descriptor and write nothing: after a failure, or in a forked child."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self.write = file.write  # which refuses from now on

    def _closing_frame(self, operations: list[int]) -> bytes:
        return encode_frame(self.salt, self.seed, self.sequence, self.sequence, encode_operations(operations))
