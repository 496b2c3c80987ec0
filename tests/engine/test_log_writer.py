"""Appending to the log: what is in the file, in which order it got there, and what a failure leaves."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from pystate.engine.log_format import (
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
    encode_frame,
    encode_operations,
    encode_segment_header,
    parse_segment_header,
    salt_seed,
)
from pystate.engine.log_writer import FULL_ERRNOS, LogPosition, LogWriter, new_salt, publish_segment
from pystate.errors import DiskFullError
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.small_stores import Frame, frames_of
from tests.engine.watched_files import WatchedFiles, nth

HEADER = SegmentHeader(log_id=bytes(16), generation=1, salt=b"salt", first=5)
LIVE, NEXT, CLOSED = f"{5:020d}.log", f"{7:020d}.log", f"{5:020d}.closed"


class Log:
    """A log with one segment, on files that can be watched and made to fail."""

    def __init__(self, *, closed: bool = False, short: int | None = None) -> None:
        self.memory = MemoryFiles()
        self.memory.make_directory(DIRECTORY)
        self.files = WatchedFiles(self.memory, short=short)
        content = encode_segment_header(HEADER)
        if closed:
            content += encode_frame(HEADER.salt, salt_seed(HEADER.salt), 4, 4, encode_operations([]))
        self.memory.restore(DIRECTORY, {CLOSED if closed else LIVE: content})
        self.writer = LogWriter(
            self.files,
            DIRECTORY,
            LogPosition(HEADER, len(content), 4, closed_name=closed, other_bytes=100, other_segments=2),
        )

    def append(self, sequence: int) -> None:
        self.writer.append(self.frame(sequence), sequence)

    def frame(self, sequence: int) -> bytes:
        payload = encode_operations([1, b"%d" % sequence, b"v" * 20])
        return encode_frame(self.writer.salt, self.writer.seed, sequence, self.writer.durable, payload)

    @property
    def image(self) -> dict[str, bytes]:
        return self.memory.image(DIRECTORY)

    def frames(self, name: str) -> list[Frame]:
        return frames_of(self.image[name])

    def sequences(self, name: str) -> list[int]:
        return [frame.sequence for frame in self.frames(name) if not frame.closing]

    def calls(self) -> list[tuple[str, str]]:
        """What was called that changes or syncs something, and on which file; forgets it."""
        trace = [(operation, path.rpartition("/")[2]) for operation, path in self.files.trace]
        self.files.trace.clear()
        return [call for call in trace if call[0] not in ("list_directory", "open_read", "read_at")]


def test_log_that_is_only_opened_touches_nothing() -> None:
    """Nothing is touched until the first append or switch; a closed segment that is not written to stays closed."""
    log = Log(closed=True)
    before = log.image
    log.writer.sync()
    log.writer.close()
    log.writer.abandon()
    assert log.image == before
    assert log.calls() == []


@pytest.mark.parametrize("short", [None, 1, 2, 3])
def test_frames_stand_in_the_file_in_order_and_whole(short: int | None) -> None:
    """Row 41: however little each write takes."""
    log = Log(short=short)
    log.writer.append(log.frame(5) + log.frame(6), 6)
    log.append(7)
    assert log.sequences(LIVE) == [5, 6, 7]
    assert log.writer.sequence == 7
    assert log.writer.size == len(log.image[LIVE])
    assert log.writer.total_bytes == len(log.image[LIVE]) + 100
    assert log.writer.bytes_written == len(log.image[LIVE]) - SEGMENT_HEADER_SIZE
    assert log.writer.bytes_committed == sum(frame.end - frame.payload for frame in log.frames(LIVE))


def test_nothing_is_durable_before_the_sync() -> None:
    """Guarantee 2: `durable` never claims more than a successful sync has covered, and frames carry it."""
    log = Log()
    log.append(5)
    log.append(6)
    assert log.writer.durable == 4
    log.writer.sync()
    assert log.writer.durable == 6
    assert log.writer.syncs == 1
    log.append(7)
    assert [frame.watermark for frame in log.frames(LIVE)] == [4, 4, 6]
    log.writer.sync()
    log.writer.sync()
    assert log.writer.syncs == 2  # the last one had nothing to do
    assert log.calls() == [
        ("open_append", LIVE), ("write", LIVE), ("write", LIVE), ("sync", LIVE), ("write", LIVE), ("sync", LIVE),
    ]  # fmt: skip


def test_sync_ahead_has_a_descriptor_of_its_own_and_claims_nothing() -> None:
    """Row 33: a system reports a failed write once per descriptor; the leader's own sync must still be told of it."""
    log = Log()
    log.writer.sync_ahead()
    assert log.files.trace == []  # nothing has been written yet
    log.append(5)
    log.files.trace.clear()
    log.writer.sync_ahead()
    assert [operation for operation, _ in log.files.trace] == ["open_read", "sync"]
    assert log.writer.durable == 4
    log.files.before = nth("sync", 1, lambda: failure(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        log.writer.sync_ahead()
    assert len(log.files.open_files) == 1
    log.files.before = None
    log.files.trace.clear()
    log.writer.sync()
    assert log.files.counts["sync"] == 1


def test_sync_that_failed_covers_nothing() -> None:
    """R4, guarantee 6: and a failure of the sync is not hidden."""
    log = Log()
    log.append(5)
    log.files.before = nth("sync", 1, lambda: failure(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        log.writer.sync()
    assert log.writer.durable == 4


def test_closed_segment_loses_its_name_durably_before_its_first_frame() -> None:
    """A name that says "closed cleanly" must never stand over frames behind the closing frame."""
    log = Log(closed=True)
    log.append(5)
    assert log.calls() == [
        ("replace", LIVE), ("sync_directory", "store"), ("open_append", LIVE), ("write", LIVE),
    ]  # fmt: skip
    assert list(log.image) == [LIVE]
    assert [frame.closing for frame in log.frames(LIVE)] == [True, False]


def test_close_leaves_a_closing_frame_and_the_closed_name() -> None:
    """Design section 5: written and synced before the name says so, and the name is synced too."""
    log = Log()
    log.append(5)
    log.calls()
    log.writer.close()
    assert log.calls() == [
        ("sync", LIVE), ("write", LIVE), ("sync", LIVE), ("replace", CLOSED), ("sync_directory", "store"),
    ]  # fmt: skip
    assert list(log.image) == [CLOSED]
    last = log.frames(CLOSED)[-1]
    assert (last.closing, last.sequence, last.watermark) == (True, 5, 5)
    assert log.files.open_files == []


def test_close_of_a_synced_log_does_not_sync_it_once_more() -> None:
    """Only the closing frame needs a sync then."""
    log = Log()
    log.append(5)
    log.writer.sync()
    log.calls()
    log.writer.close()
    assert [operation for operation, _ in log.calls()] == ["write", "sync", "replace", "sync_directory"]


@pytest.mark.parametrize("operation", ["write", "sync", "replace", "sync_directory"])
def test_close_that_fails_releases_the_file(operation: str) -> None:
    """Row 48: whatever fails, the descriptor is closed."""
    log = Log()
    log.append(5)
    log.files.before = nth(operation, 1, lambda: failure(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        log.writer.close()
    assert log.files.open_files == []


def test_switch_makes_the_old_segment_durable_and_the_new_one_before_anything_else() -> None:
    """Promise: a new segment exists durably before its first frame, and only after everything before it is durable."""
    log = Log()
    log.append(5)
    log.append(6)
    log.calls()
    log.writer.switch()
    log.append(7)
    assert log.calls() == [
        ("sync", LIVE),
        ("create", NEXT + ".tmp"), ("write", NEXT + ".tmp"), ("sync", NEXT + ".tmp"),
        ("replace", NEXT), ("sync_directory", "store"),
        ("write", LIVE),
        ("open_append", NEXT), ("write", NEXT),
    ]  # fmt: skip
    assert log.sequences(LIVE) == [5, 6]
    assert log.sequences(NEXT) == [7]
    last = log.frames(LIVE)[-1]
    assert (last.closing, last.sequence, last.watermark) == (True, 6, 6)
    assert log.image[LIVE].endswith(encode_operations([7]))
    header = parse_segment_header(NEXT, log.image[NEXT])
    assert header == HEADER._replace(salt=header.salt, first=7)
    assert header.salt != HEADER.salt
    assert log.writer.total_segments == 4
    assert log.writer.total_bytes == 100 + len(log.image[LIVE]) + len(log.image[NEXT])
    assert log.writer.size == len(log.image[NEXT])
    assert log.writer.bytes_committed == sum(
        frame.end - frame.payload for name in (LIVE, NEXT) for frame in log.frames(name) if not frame.closing
    )


def test_switch_of_an_empty_segment_keeps_it() -> None:
    """It serves as the next one, since nothing is in it."""
    log = Log()
    log.writer.switch()
    assert list(log.image) == [LIVE]
    assert not log.writer.broken
    log.append(5)
    assert log.sequences(LIVE) == [5]


SWITCH_STEPS = ("create", "write", "sync", "replace", "sync_directory")


@pytest.mark.parametrize("step", SWITCH_STEPS)
@pytest.mark.parametrize(
    "error", [lambda: failure(errno.EIO), KeyboardInterrupt, MemoryError], ids=["EIO", "^C", "memory"]
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_switch_that_fails_before_the_new_segment_is_there_leaves_the_old_one_going_on(
    step: str, error: Callable[[], BaseException], after: bool
) -> None:
    """Row 30: and nothing of the new one is left, or it would contradict the old one."""
    log = Log()
    log.append(5)
    log.append(6)
    log.writer.sync()
    hook = nth(step, 1, error)
    log.files.before, log.files.after = (None, hook) if after else (hook, None)
    with pytest.raises(BaseException) as caught:
        log.writer.switch()
    assert type(caught.value) is type(error())
    log.files.before = log.files.after = None
    assert not log.writer.broken
    assert [name for name in log.image if not name.endswith(".tmp")] == [LIVE]
    log.append(7)
    assert log.sequences(LIVE) == [5, 6, 7]
    log.writer.close()
    assert log.files.open_files == []


def test_switch_whose_new_segment_cannot_be_taken_away_is_broken() -> None:
    """Guarantee 6: no more may be appended, since nobody knows in which segment the log goes on."""
    log = Log()
    log.append(5)
    log.writer.sync()
    log.files.before = nth("sync_directory", 1, lambda: failure(errno.EIO), for_ever=True)
    with pytest.raises(OSError, match="Input/output"):
        log.writer.switch()
    assert log.writer.broken


def test_switch_whose_first_sync_fails_is_broken() -> None:
    """Guarantee 6: a sync that failed is never believed again."""
    log = Log()
    log.append(5)
    log.files.before = nth("sync", 1, lambda: failure(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        log.writer.switch()
    assert log.writer.broken


@pytest.mark.parametrize("number", sorted(FULL_ERRNOS), ids=errno.errorcode.get)
@pytest.mark.parametrize("taken", [0, 1, 31, 32, 40])
def test_append_without_room_is_undone_durably(number: int, taken: int) -> None:
    """Row 37, guarantee 6: cut off again, the cut synced, and the log goes on when there is room."""
    log = Log()
    log.append(5)
    before = log.image[LIVE]
    log.calls()
    log.files.largest = taken or 1
    log.files.before = nth("write", 2 if taken else 1, lambda: failure(number))
    with pytest.raises(DiskFullError) as caught:
        log.append(6)
    assert (caught.value.errno, caught.value.path) == (number, f"{DIRECTORY}/{LIVE}")
    assert log.image[LIVE] == before
    undoing = [("truncate", LIVE), ("sync", LIVE)] if taken else []
    assert log.calls() == [("write", LIVE)] * (2 if taken else 1) + undoing
    log.files.before, log.files.largest = None, 2**62
    log.append(6)
    assert log.sequences(LIVE) == [5, 6]
    assert log.writer.durable == (5 if taken else 4)
    assert log.writer.size == len(log.image[LIVE])


@pytest.mark.parametrize("step", ["truncate", "sync"])
def test_append_without_room_that_cannot_be_undone_is_told_so(step: str) -> None:
    """Row 37, R4: then the state of the file is not known, and it is no DiskFullError."""
    log = Log()
    log.append(5)
    log.files.largest = 10
    hooks = [nth("write", 2, lambda: failure(errno.ENOSPC)), nth(step, 1, lambda: failure(errno.EIO))]

    def hook(operation: str, path: str) -> None:
        for each in hooks:
            each(operation, path)

    log.files.before = hook
    with pytest.raises(OSError, match="Input/output") as caught:
        log.append(6)
    assert not isinstance(caught.value, DiskFullError)


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EBADF])
def test_append_that_fails_otherwise_is_not_undone(number: int) -> None:
    """Guarantee 6: nothing is assumed about the file."""
    log = Log()
    log.append(5)
    log.files.before = nth("write", 1, lambda: failure(number))
    with pytest.raises(OSError) as caught:
        log.append(6)
    assert caught.value.errno == number
    assert ("truncate", LIVE) not in log.calls()
    assert log.writer.sequence == 5


@pytest.mark.parametrize("taken", [None, 1, 31, 32, 40])
def test_append_that_was_interrupted_settles_by_what_the_file_holds(taken: int | None) -> None:
    """Row 45: the file tells whether the frames stand whole in it; if so they count, or else they do not."""
    log = Log()
    log.append(5)
    log.files.largest = taken or 2**62
    frame = log.frame(6)
    log.files.after = nth("write", 1, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        log.writer.append(frame, 6)
    log.files.after = None
    whole = taken is None
    assert log.writer.settle(frame, 6) is whole
    assert log.writer.sequence == 5 + whole
    assert log.writer.settle(frame, 6) is whole  # asked again, it says the same
    if whole:
        assert log.writer.size == len(log.image[LIVE])


def test_append_that_was_interrupted_before_the_file_was_open_settles_as_not_written() -> None:
    """Row 45: nothing was there yet."""
    log = Log()
    log.files.before = nth("open_append", 1, KeyboardInterrupt)
    frame = log.frame(5)
    with pytest.raises(KeyboardInterrupt):
        log.writer.append(frame, 5)
    assert not log.writer.settle(frame, 5)


def test_writer_that_was_abandoned_writes_no_more() -> None:
    """R7: a forked child, or a failed store, leaves the file as it is."""
    log = Log()
    log.append(5)
    before = log.image
    log.writer.abandon()
    log.writer.abandon()
    with pytest.raises(OSError, match="Bad file descriptor"):
        log.writer.write(b"more")
    assert log.image == before
    assert log.files.open_files == []


def test_writer_whose_lock_file_was_replaced_does_not_begin_to_write() -> None:
    """Row 53: somebody else may hold the lock that counts now."""
    log = Log()
    log.writer = LogWriter(
        log.files,
        DIRECTORY,
        LogPosition(HEADER, SEGMENT_HEADER_SIZE, 4, closed_name=False, other_bytes=0, other_segments=0),
        lambda: False,
    )
    before = log.image
    with pytest.raises(OSError, match="lock file"):
        log.append(5)
    assert log.image == before


def test_salt_has_no_zero_byte() -> None:
    """Zeros on the disk must never look like a frame."""

    class Zeros(MemoryFiles):
        def random_bytes(self, size: int, /) -> bytes:
            return bytes(size)

    assert 0 not in new_salt(Zeros())
    files = MemoryFiles()
    assert all(len(salt) == 4 and 0 not in salt for salt in (new_salt(files) for _ in range(2000)))


def test_segment_published_over_a_frameless_one_replaces_it_whole() -> None:
    """R5: temporary name, content, sync, rename, sync of the directory."""
    log = Log()
    log.calls()
    header = HEADER._replace(generation=2)
    publish_segment(log.files, DIRECTORY, header)
    assert log.image == {LIVE: encode_segment_header(header)}
    assert log.calls() == [
        ("create", LIVE + ".tmp"), ("write", LIVE + ".tmp"), ("sync", LIVE + ".tmp"),
        ("replace", LIVE), ("sync_directory", "store"),
    ]  # fmt: skip
