"""Appending to the log: one live segment, its frames, its closing frame, and the switch to the next one.

Promise: frames stand in the file in sequence order and whole; `durable` never claims more than a successful sync has
covered; a new segment exists durably, header and name, before its first frame is written, and only after everything in
the one before it is durable (else power loss could leave a hole between two segments); what `append` could not write
whole is cut off again, and the cut synced, or the caller is told that it was not.

One thread at a time may call a `LogWriter`: the leader of the group commit.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from pystate.engine.files import File, Files, publish, write_all
from pystate.engine.log_format import (
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
        closed_name: the newest segment bears the name of a cleanly closed one.
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
        size: of the live segment, in bytes.
        sequence: of the last commit appended.
        durable: the highest sequence that a sync has covered.
        total_bytes, total_segments: of all segments since opening, superseded ones included; only the leader adds to
            them.
        superseded_bytes, superseded_segments: of those, what snapshots have made superfluous; only the thread that
            takes
            a snapshot adds to them, so that neither waits for the other.
        broken: a switch failed half-way.
        syncs, bytes_written: counters for ``stats()``.
    """

    def __init__(self, files: Files, directory: str, position: LogPosition) -> None:
        self._files = files
        self._directory = directory
        self._header = position.header
        self._closed_name = position.closed_name
        self._file: File | None = None
        self.salt = position.header.salt
        self.seed = salt_seed(self.salt)
        self.size = position.size
        self.sequence = position.sequence
        self.durable = position.sequence  # recovery synced what it accepted, or found it closed
        self.total_bytes = position.other_bytes + position.size
        self.total_segments = position.other_segments + 1
        self.superseded_bytes = self.superseded_segments = 0
        self.broken = False
        self.syncs = 0
        self.bytes_written = 0

    @property
    def path(self) -> str:
        """The live segment."""
        return self._files.join(self._directory, segment_name(self._header.first))

    @property
    def generation(self) -> int:
        """The generation of the live segment."""
        return self._header.generation

    def open(self) -> File:
        """Return the live segment, opened for appending; take the name of a closed one from it first.

        Raises:
            OSError: it could not be renamed or opened. Nothing has changed that matters.
        """
        if self._file is None:
            if self._closed_name:
                closed = self._files.join(self._directory, segment_name(self._header.first, closed=True))
                self._files.replace(closed, self.path)
                # Before the first frame: a name that says "closed cleanly" must never stand over frames behind it.
                self._files.sync_directory(self._directory)
                self._closed_name = False
            self._file = self._files.open_append(self.path)
        return self._file

    def append(self, frames: bytes, sequence: int) -> None:
        """Append whole frames, the last of which has `sequence`. Not durable before `sync`.

        Raises:
            DiskFullError: there was no room; what had been written was cut off again, durably.
            OSError: anything else; the state of the file is unknown, and no more may be appended.
        """
        file = self.open()
        try:
            write_all(file, frames)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            self._cut_back(file)
            raise DiskFullError(self.path, errno=error.errno) from error
        self._count(len(frames), sequence)

    def settle(self, frames: bytes, sequence: int) -> bool:
        """After an interrupt in `append`: whether the frames stand whole in the file after all. Counts them if so."""
        if self.sequence == sequence:
            return True
        if self._file is None or self._file.size() != self.size + len(frames):
            return False
        self._count(len(frames), sequence)
        return True

    def _count(self, size: int, sequence: int) -> None:
        self.size += size
        self.total_bytes += size
        self.bytes_written += size
        self.sequence = sequence

    def _cut_back(self, file: File) -> None:
        """Remove a half-written frame. The cut is synced, or later frames could meet its left-overs after a crash."""
        if file.size() != self.size:
            file.truncate(self.size)
            file.sync()
            self.syncs += 1
            self.durable = self.sequence

    def sync(self) -> None:
        """Make everything appended durable.

        Raises:
            OSError: nothing is known any more about what was appended since the last sync. Never call it again.
        """
        if self.durable == self.sequence:
            return
        sequence = self.sequence
        self.open().sync()
        self.syncs += 1
        self.durable = sequence

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
        # Not synced by itself: if it is lost, the first sequence of the new segment still proves this one complete.
        write_all(old, self._closing_frame([header.first]))
        old.close()
        self._header, self._file = header, None
        self.salt, self.seed, self.size = header.salt, salt_seed(header.salt), SEGMENT_HEADER_SIZE
        self.total_bytes += SEGMENT_HEADER_SIZE
        self.bytes_written += SEGMENT_HEADER_SIZE
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
        """Write the closing frame and give the segment its closed name, unless nothing was written since opening.

        Raises:
            OSError: a step failed; the store opens as after a crash, with everything that was synced.
        """
        file = self._file
        if file is None:
            return
        self._file = None
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

    def _closing_frame(self, operations: list[int]) -> bytes:
        return encode_frame(self.salt, self.seed, self.sequence, self.sequence, encode_operations(operations))
