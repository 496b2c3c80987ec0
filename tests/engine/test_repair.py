"""What opening for writing changes on disk, in which order, and what a stop at each step leaves."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

import pystate
from pystate.engine.log_format import SegmentHeader, encode_closed_segment, encode_segment_header
from pystate.engine.names import snapshot_name
from pystate.engine.recovery import survey
from pystate.engine.repair import is_unfinished_creation
from pystate.errors import StoreNotFoundError
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.small_stores import SMALL, Condition, Image, Small, contents, frames_of
from tests.engine.watched_files import WatchedFiles

CHANGING = frozenset({"create", "write", "sync", "truncate", "replace", "unlink", "sync_directory", "make_directory"})


class Stop(BaseException):
    """The process dies here."""


def torn(small: Small, size: int = 5) -> Image:
    """The store with the last frame cut."""
    return small.with_file(small.newest, small.image[small.newest][:-size])


def changing_calls(files: WatchedFiles) -> list[tuple[str, str]]:
    return [(operation, path.rpartition("/")[2]) for operation, path in files.trace if operation in CHANGING]


def opened(image: Image) -> WatchedFiles:
    files = WatchedFiles(MemoryFiles(seed=5).restore(DIRECTORY, image))
    store = pystate.open(DIRECTORY, files=files)
    store._parts.log.abandon()  # type: ignore[union-attr]  # as if the process had died
    return files


def test_clean_store_is_opened_without_a_change() -> None:
    """After a clean stop nothing is written; the first commit takes the closed name away."""
    small = SMALL["closed"]
    files = WatchedFiles(small.files())
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == small.state
    assert changing_calls(files) == []


def test_torn_tail_is_kept_aside_before_it_is_cut_off() -> None:
    """Design section 5, R2: the copy is durable first; then what is accepted is written anew, and the rest follows."""
    small = SMALL["sync"]
    files = opened(torn(small))
    kept, fresh = f"{7:020d}-generation-1.torn", f"{7:020d}.log"
    assert changing_calls(files) == [
        ("sync_directory", "store"),
        ("create", kept + ".tmp"), ("write", kept + ".tmp"), ("sync", kept + ".tmp"),
        ("replace", kept), ("sync_directory", "store"),
        ("create", small.newest + ".tmp"), ("write", small.newest + ".tmp"), ("sync", small.newest + ".tmp"),
        ("replace", small.newest), ("sync_directory", "store"),
        ("create", fresh + ".tmp"), ("write", fresh + ".tmp"), ("sync", fresh + ".tmp"),
        ("replace", fresh), ("sync_directory", "store"),
        ("write", small.newest),
    ]  # fmt: skip


def test_unclean_stop_between_two_commits_writes_anew_what_is_accepted() -> None:
    """Guarantee 4, row 32: it may stand only in the cache so far, where a failed sync has marked it as written."""
    small = SMALL["process"]
    files = opened(small.image)
    calls = changing_calls(files)
    new = small.newest + ".tmp"
    assert calls[1:5] == [("create", new), ("write", new), ("sync", new), ("replace", small.newest)]
    assert ("truncate", small.newest) not in calls


def test_new_generation_begins_with_a_new_segment() -> None:
    """Design section 5: (generation, sequence) never repeats, even where an unacknowledged commit was lost."""
    small = SMALL["sync"]
    image = opened(torn(small)).real_image()
    content = image[f"{7:020d}.log"]
    assert int.from_bytes(content[12:16], "little") == 2
    assert content[32:36] != small.image[small.newest][32:36]
    assert len(content) == 48
    last = frames_of(image[small.newest])[-1]
    assert (last.closing, last.sequence, last.watermark) == (True, 6, 6)


def test_torn_segment_without_a_commit_is_replaced_under_its_own_name() -> None:
    """The new segment begins where the old one did; nothing but its torn bytes was in it."""
    small = SMALL["recovered"]
    header = small.image[small.newest][:48]
    files = opened(small.with_file(small.newest, header + b"half a frame"))
    image = files.real_image()
    assert len(image[small.newest]) == 48
    assert int.from_bytes(image[small.newest][12:16], "little") == 3
    assert b"half a frame" in image.values()
    with pystate.open(DIRECTORY, files=MemoryFiles().restore(DIRECTORY, image)) as store:
        assert contents(store) == small.states[7]


def stops(image: Image) -> Iterator[tuple[int, Image]]:
    """What the directory holds when opening dies before its first changing call, before its second ..."""
    number = 0
    while True:
        number += 1
        files = WatchedFiles(MemoryFiles(seed=number).restore(DIRECTORY, image))
        seen = 0

        def die(operation: str, _: str) -> None:
            nonlocal seen
            if operation in CHANGING:
                seen += 1
                if seen == number:  # noqa: B023 - called within this round
                    raise Stop

        files.before = die
        files.largest = 100  # so that it also dies between two halves of a write
        try:
            store = pystate.open(DIRECTORY, files=files)
        except Stop:
            yield number, files.real_image()
        else:
            files.before = None
            store.close()
            return


@pytest.mark.parametrize("cut", [0, 20])
@pytest.mark.parametrize("condition", ["sync", "process", "leftovers", "reopened", "recovered"])
def test_recovery_that_dies_at_any_step_is_finished_by_the_next(condition: Condition, cut: int) -> None:
    """Row 27, C4: again and again, up to three deep; each time the same data, and no byte that was cut is lost."""
    small = SMALL[condition]
    image = torn(small, cut) if cut else small.image
    expected = small.states[small.last - bool(cut)]
    start = frames_of(small.image[small.newest])[-1].start
    lost = small.image[small.newest][start : len(image[small.newest])] if cut else b""
    count = 0
    for _, once in stops(image):
        count += 1
        for step, twice in [(0, once), *(stops(once) if count % 5 == 0 else ())]:
            for thrice in [twice, *(state for at, state in stops(twice) if step == 4 and at % 3 == 0)]:
                files = MemoryFiles(seed=77).restore(DIRECTORY, thrice)
                with pystate.open(DIRECTORY, files=files, read_only=True) as reader:
                    assert contents(reader) == expected
                with pystate.open(DIRECTORY, files=files) as store:
                    assert contents(store) == expected
                    store.family("default")[b"after"] = b"1"
                after = files.image(DIRECTORY)
                assert not [name for name in after if name.endswith(".tmp")]
                assert not lost or lost in after.values()
                assert pystate.verify(DIRECTORY, files=files).ok
    assert count > 5


@pytest.mark.parametrize("operation", sorted(CHANGING - {"make_directory"}))
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_recovery_that_fails_at_any_step_raises_and_is_finished_by_the_next(operation: str, number: int) -> None:
    """Rows 34 and 40: a typed error, the lock and every file released, and nothing lost."""
    small = SMALL["leftovers"]
    image = torn(small)
    nth_call = 0
    while True:
        nth_call += 1
        memory = MemoryFiles(seed=3).restore(DIRECTORY, image)
        files = WatchedFiles(memory)
        seen = 0

        def fail(called: str, path: str) -> None:
            nonlocal seen
            seen += called == operation
            if called == operation and seen == nth_call:  # noqa: B023 - called within this round
                raise failure(number, path)

        files.before = fail
        try:
            store = pystate.open(DIRECTORY, files=files)
        except OSError as error:
            assert error.errno == number
            assert isinstance(error, pystate.DiskFullError) == (number == errno.ENOSPC)
        else:
            files.before = None
            assert operation == "unlink" or seen < nth_call  # what cannot be removed waits for the next time
            store.close()
            if seen < nth_call:
                break
        assert (files.open_files, files.held_locks) == ([], 0)
        with pystate.open(DIRECTORY, files=memory) as store:
            assert contents(store) == small.states[-2]


def test_new_store_is_a_segment_first_and_a_snapshot_last() -> None:
    """Row 57: the snapshot makes it a store, so a crash before that leaves a directory that is none yet."""
    files = WatchedFiles(MemoryFiles())
    pystate.open(DIRECTORY, files=files).close()
    segment, snapshot = f"{1:020d}.log", snapshot_name(0)
    assert changing_calls(files)[:12] == [
        ("make_directory", "store"), ("sync_directory", ""),
        ("create", segment + ".tmp"), ("write", segment + ".tmp"), ("sync", segment + ".tmp"),
        ("replace", segment), ("sync_directory", "store"),
        ("create", snapshot + ".tmp"), ("write", snapshot + ".tmp"), ("sync", snapshot + ".tmp"),
        ("replace", snapshot), ("sync_directory", "store"),
    ]  # fmt: skip


def test_creation_that_dies_at_any_step_is_no_store_or_a_whole_one() -> None:
    """Row 57: "not a store" or a valid empty one; and the next opening makes it."""
    whole = 0
    for _, image in stops({}):
        files = MemoryFiles().restore(DIRECTORY, image)
        try:
            found = pystate.list_families(DIRECTORY, files=files)
        except StoreNotFoundError:
            with pytest.raises(StoreNotFoundError):
                pystate.open(DIRECTORY, files=files, create=False)
        else:
            whole += 1
            assert found == ("default",)
        assert files.image(DIRECTORY) == image
        with pystate.open(DIRECTORY, files=files, families=["more"], create_missing_families=True) as store:
            assert contents(store) == {"default": {}, "more": {}}
        assert pystate.verify(DIRECTORY, files=files).ok
    assert whole >= 1


SEGMENT = encode_segment_header(SegmentHeader(bytes(16), 1, b"salt", 1))
PREPARED = encode_closed_segment(SegmentHeader(bytes(16), 1, b"salt", 8))


@pytest.mark.parametrize(
    ("image", "unfinished"),
    [
        ({f"{1:020d}.log": SEGMENT}, True),
        ({f"{1:020d}.log": SEGMENT, "x.tmp": b"", "LOCK": b""}, True),
        ({f"{1:020d}.log": SEGMENT + b"x"}, False),
        ({f"{1:020d}.log": SEGMENT[:-1]}, False),
        ({f"{1:020d}.log": b"x" * 48}, False),
        ({f"{2:020d}.log": SEGMENT}, False),
        ({f"{1:020d}.log": SEGMENT, f"{2:020d}.log": SEGMENT}, False),
        ({f"{8:020d}.closed": PREPARED, f"{7:020d}.snapshot.tmp": b""}, True),
        ({f"{8:020d}.closed": PREPARED, f"{7:020d}.snapshot.tmp": b"", "x.tmp": b"", "LOCK": b""}, True),
        ({f"{8:020d}.closed": PREPARED, f"{8:020d}.snapshot.tmp": b""}, False),
        ({f"{8:020d}.closed": PREPARED}, False),
        ({f"{8:020d}.log": PREPARED, f"{7:020d}.snapshot.tmp": b""}, False),
        ({f"{8:020d}.closed": PREPARED + b"x", f"{7:020d}.snapshot.tmp": b""}, False),
        ({f"{8:020d}.closed": PREPARED[:-1], f"{7:020d}.snapshot.tmp": b""}, False),
        ({f"{8:020d}.closed": PREPARED[:48], f"{7:020d}.snapshot.tmp": b""}, False),
        ({f"{9:020d}.closed": PREPARED, f"{8:020d}.snapshot.tmp": b""}, False),
        ({f"{8:020d}.closed": PREPARED, f"{7:020d}.snapshot.tmp": b"", snapshot_name(3): b""}, False),
        ({f"{8:020d}.closed": PREPARED, f"{7:020d}.snapshot.tmp": b"", f"{1:020d}.log": SEGMENT}, False),
        ({f"{1:020d}.log": SEGMENT, snapshot_name(0): b""}, False),
        ({snapshot_name(0): b""}, False),
        ({}, False),
    ],
    ids=[
        "alone",
        "with others",
        "with bytes",
        "cut",
        "junk",
        "later",
        "two",
        "prepared",
        "prepared, with others",
        "prepared, other snapshot",
        "prepared, no snapshot",
        "prepared, open",
        "prepared, with bytes",
        "prepared, cut",
        "prepared, not closed",
        "prepared, renamed",
        "prepared, with snapshot",
        "prepared, two",
        "with snapshot",
        "snapshot",
        "empty",
    ],  # fmt: skip
)
def test_unfinished_creation_is_one_segment_without_a_commit_and_nothing_else(image: Image, unfinished: bool) -> None:
    """Row 57: never "new store" when data exists."""
    files = MemoryFiles().restore(DIRECTORY, image)
    assert is_unfinished_creation(files, DIRECTORY, survey(files, DIRECTORY)) == unfinished
