"""`verify` and `read_log`: every byte looked at, damage reported and not raised, nothing changed."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from zlib import crc32

import pytest

import pystate
from pystate import NotAStoreError, StoreNotFoundError, UnsupportedFormatError
from pystate.engine.verify import Problem, VerifyReport
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.small_stores import CONDITIONS, SMALL, Condition, Image, frames_of
from tests.engine.watched_files import WatchedFiles, nth


def verify(image: Image) -> VerifyReport:
    files = MemoryFiles().restore(DIRECTORY, image)
    report = pystate.verify(DIRECTORY, files=files)
    assert files.image(DIRECTORY) == image
    return report


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_report_of_an_intact_store_says_everything(condition: Condition) -> None:
    """The path, the id, the format, the last commit, and every file with its kind, size and content in words."""
    small = SMALL[condition]
    report = verify(small.image)
    assert (report.path, report.ok, report.problems) == (DIRECTORY, True, ())
    assert report.store_id == small.image[small.newest][16:32].hex()
    assert report.format_version == 1
    assert (report.sequence, report.clean, report.torn_bytes) == (small.last, small.closed, 0)
    assert report.families == {name: len(entries) for name, entries in small.state.items()}
    assert {file.name: file.bytes for file in report.files} == {name: len(data) for name, data in small.image.items()}
    kinds = {file.name: file.kind for file in report.files}
    assert kinds[small.snapshot] == "snapshot"
    assert all(kinds[name] == "segment" for name in small.segments)
    notes = {file.name: file.note for file in report.files}
    assert "up to commit 2" in notes[small.snapshot]
    assert "commits 3 to 4" in notes[small.segments[0]]
    if condition == "leftovers":
        assert {kinds[name] for name in small.stale} == {"snapshot", "segment", "temporary", "torn", "foreign"}


def test_torn_tail_is_no_problem_and_is_told() -> None:
    """Opening for writing will cut it off; nothing that was proven is missing."""
    small = SMALL["sync"]
    report = verify(small.with_file(small.newest, small.image[small.newest] + b"half"))
    assert (report.ok, report.torn_bytes, report.sequence) == (True, 4, small.last)
    note = {file.name: file.note for file in report.files}[small.newest]
    assert "unreadable" in note


def test_every_damaged_block_is_reported_with_its_place() -> None:
    """All damage, not the first one."""
    small = SMALL["closed"]
    data = small.image[small.snapshot]
    (length,) = struct.unpack_from("<I", data, 12)
    first = 24 + length
    (end,) = struct.unpack_from("<Q", data, len(data) - 32)
    report = verify(small.with_file(small.snapshot, flipped(flipped(data, first + 3), end - 1)))
    assert not report.ok
    assert report.families == {}
    assert len(report.problems) == 2
    for problem in report.problems:
        assert problem.path == f"{DIRECTORY}/{small.snapshot}"
        assert problem.offset is not None
        assert first <= problem.offset < end
        assert "checksum" in problem.text


def test_damage_in_several_files_is_reported_for_each() -> None:
    """What recovery would raise first does not hide the rest."""
    small = SMALL["leftovers"]
    image = {
        **small.image,
        f"{0:020d}.snapshot": b"junk" * 20,
        small.segments[0]: flipped(small.image[small.segments[0]], 60),
        small.newest: b"",
    }
    report = verify(image)
    assert not report.ok
    assert {Path(problem.path).name for problem in report.problems} == {
        f"{0:020d}.snapshot", small.segments[0], small.newest,
    }  # fmt: skip
    assert {file.name: file.note for file in report.files}[small.newest] == "damaged"


def test_damage_to_a_file_that_nothing_needs_is_a_problem_of_its_own() -> None:
    """An older snapshot is what one would fall back to; it is told, although the store opens."""
    small = SMALL["leftovers"]
    report = verify({**small.image, f"{0:020d}.snapshot": b""})
    assert not report.ok
    assert report.sequence == small.last
    assert report.families == {name: len(entries) for name, entries in small.state.items()}


def test_missing_file_is_a_problem_with_the_path_where_it_was_expected() -> None:
    """Rows 14 and 15: a hole in the log."""
    small = SMALL["sync"]
    image = dict(small.image)
    del image[small.newest]
    (problem,) = verify(image).problems
    assert isinstance(problem, Problem)
    assert (problem.path, problem.offset) == (f"{DIRECTORY}/{small.newest}", None)


def test_directory_under_the_name_of_a_file_is_a_problem(tmp_path: Path) -> None:
    """Row 21: reported like every damage."""
    with pystate.open(str(tmp_path / "store")) as store:
        store.family("default")[b"k"] = b"v"
    for name in (f"{7:020d}.snapshot", f"{9:020d}.log"):
        odd = tmp_path / "store" / name
        odd.mkdir()
        report = pystate.verify(tmp_path / "store")
        assert not report.ok
        assert str(odd) in {problem.path for problem in report.problems}
        odd.rmdir()
    assert pystate.verify(tmp_path / "store").ok


def test_place_without_a_store_is_raised() -> None:
    """Only what is no damage is raised."""
    files = MemoryFiles()
    with pytest.raises(StoreNotFoundError):
        pystate.verify(DIRECTORY, files=files)
    files.make_directory(DIRECTORY)
    with pytest.raises(StoreNotFoundError):
        pystate.verify(DIRECTORY, files=files)
    files.restore("/", {"file": b""})
    with pytest.raises(NotAStoreError):
        pystate.verify("//file", files=files)


@pytest.mark.parametrize("which", ["snapshot", "segment"])
def test_newer_format_is_raised(which: str) -> None:
    """Row 89: it cannot be judged by this version."""
    small = SMALL["closed"]
    name, covered = (small.snapshot, 20) if which == "snapshot" else (small.newest, 44)
    data = bytearray(small.image[name])
    struct.pack_into("<I", data, 8, 7)
    struct.pack_into("<I", data, covered, crc32(data[:covered]))
    with pytest.raises(UnsupportedFormatError) as caught:
        verify(small.with_file(name, bytes(data)))
    assert caught.value.found == 7


@pytest.mark.parametrize("operation", ["open_read", "read_at", "list_directory"])
def test_read_error_is_raised_and_is_no_damage(operation: str) -> None:
    """R3, row 44: at every call; and every file is closed again."""
    number = 0
    while True:
        number += 1
        files = WatchedFiles(SMALL["leftovers"].files())
        files.before = nth(operation, number, lambda: failure(errno.EIO))
        try:
            assert pystate.verify(DIRECTORY, files=files).ok
        except OSError as error:
            assert error.errno == errno.EIO
            assert files.open_files == []
        else:
            break
    assert files.open_files == []
    assert number > 1
    assert set(files.counts) <= {"open_read", "read_at", "list_directory"}


def test_store_that_is_open_can_be_verified() -> None:
    """No lock is taken, and none is needed."""
    files = MemoryFiles()
    with pystate.open(DIRECTORY, files=files) as store:
        for number in range(10):
            store.family("default")[b"%d" % number] = b"v"
            report = pystate.verify(DIRECTORY, files=files)
            assert (report.ok, report.sequence, report.clean) == (True, number + 1, False)
            if number % 4 == 3:
                store.snapshot()


# ---- read_log -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", CONDITIONS)
def test_log_is_shown_frame_by_frame(condition: Condition) -> None:
    """Every frame of every segment, in order, with what a reader of its own finds there."""
    small = SMALL[condition]
    expected = [
        (name, frame.start, frame.end - frame.start, frame.sequence, frame.watermark, frame.closing)
        for name in sorted(small.image)
        if name.endswith((".log", ".closed"))
        for frame in frames_of(small.image[name])
    ]
    shown = list(pystate.read_log(DIRECTORY, files=small.files()))
    assert [
        (info.segment, info.offset, info.length, info.sequence, info.watermark, info.kind != "commit") for info in shown
    ] == expected
    assert all(info.ok for info in shown)
    if condition == "leftovers":
        assert [info.operations for info in shown if info.kind == "commit"] == [1, 4, 1, 1, 1, 3, 1]


def test_damaged_frames_are_shown_not_skipped() -> None:
    """What recovery refuses can still be looked at."""
    small = SMALL["closed"]
    data = small.image[small.newest]
    frames = frames_of(data)
    files = small.files(small.with_file(small.newest, flipped(data, frames[1].payload)))
    shown = [info for info in pystate.read_log(DIRECTORY, files=files) if info.segment == small.newest]
    assert [info.ok for info in shown] == [True, False, True, True]
    assert shown[1].sequence == frames[1].sequence


def test_log_with_a_damaged_header_is_raised_where_it_begins() -> None:
    """Without its salt the frames of that segment cannot be told; the ones before it have been shown."""
    small = SMALL["closed"]
    files = small.files(small.with_file(small.newest, flipped(small.image[small.newest], 33)))
    frames = pystate.read_log(DIRECTORY, files=files)
    assert [next(frames).sequence for _ in range(3)] == [3, 4, 4]
    with pytest.raises(pystate.CorruptionError) as caught:
        next(frames)
    assert caught.value.path == f"{DIRECTORY}/{small.newest}"


def test_log_of_a_place_without_a_store_is_raised() -> None:
    """As for `verify`."""
    with pytest.raises(StoreNotFoundError):
        list(pystate.read_log(DIRECTORY, files=MemoryFiles()))


def test_damage_in_a_file_that_was_replaced_is_no_problem() -> None:
    """It does not count, and only waits to be removed; before it was replaced, it did."""
    small = SMALL["closed"]
    memory = small.files(small.with_file(small.snapshot, small.image[small.snapshot][:-1]))
    assert not pystate.verify(DIRECTORY, files=memory).ok
    memory.make_directory("/outside")
    with pystate.open("/outside/store", files=memory) as source:
        source.export("/outside/exported")
    files = WatchedFiles(memory)
    files.before = lambda operation, path: _refuse(path) if operation == "unlink" else None
    pystate.install(DIRECTORY, "/outside/exported", files=files)
    report = pystate.verify(DIRECTORY, files=memory)
    assert report.ok
    assert small.snapshot in {file.name for file in report.files}


def _refuse(path: str) -> None:
    raise failure(errno.EACCES, path)
