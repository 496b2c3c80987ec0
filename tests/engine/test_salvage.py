"""`salvage`: what is provably intact in a damaged store, copied into one that opens and verifies."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

import msgspec
import pytest

import pystate
from pystate import NotAStoreError, StoreNotFoundError
from pystate.engine.salvage import SalvageReport
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.small_stores import CONDITIONS, SMALL, Condition, Image, Small, State, contents, frames_of
from tests.engine.watched_files import WatchedFiles, nth

TARGET = "/saved"


def rescue(image: Image) -> tuple[SalvageReport, State]:
    """What is saved; the source is unchanged, and the copy verifies, and is what the report says."""
    files = MemoryFiles(seed=11).restore(DIRECTORY, image)
    report = pystate.salvage(DIRECTORY, TARGET, files=files)
    assert files.image(DIRECTORY) == image
    assert pystate.verify(TARGET, files=files).ok
    with pystate.open(TARGET, files=files, read_only=True) as store:
        found = contents(store)
    # Every store has the family "default", whether there was something of it to copy or not.
    assert {"default": 0, **report.families} == {name: len(entries) for name, entries in found.items()}
    assert report.entries == sum(report.families.values())
    assert (report.source, report.destination) == (DIRECTORY, TARGET)
    return report, found


def ever(small: Small) -> set[tuple[bytes, bytes]]:
    """Every entry that any state of the store has had."""
    return {item for state in small.states for entries in state.values() for item in entries.items()}


def flipped(small: Small, name: str, at: int) -> Image:
    changed = bytearray(small.image[name])
    changed[at] ^= 0x40
    return small.with_file(name, bytes(changed))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_intact_store_is_copied_whole(condition: Condition) -> None:
    """Nothing is wrong, so nothing is lost; whether it was closed or not."""
    small = SMALL[condition]
    report, found = rescue(small.image)
    assert found == small.state
    assert (report.sequence, report.problems, report.frames_applied) == (small.last, (), small.last - 2)


@pytest.mark.parametrize("condition", ["closed", "leftovers", "recovered"])
def test_store_with_any_byte_damaged_is_salvaged(condition: Condition) -> None:
    """Every entry that is copied stood under a right checksum, and one damaged byte costs one frame, block or file."""
    small = SMALL[condition]
    known = ever(small)
    for name in (small.snapshot, *small.segments):
        for at in range(len(small.image[name])):
            report, found = rescue(flipped(small, name, at))
            assert {item for entries in found.values() for item in entries.items()} <= known
            whole = sum(map(len, small.state.values()))
            if found != small.state:
                assert report.problems
            if name != small.snapshot and at >= 48:
                assert report.frames_applied >= small.last - 3
                assert report.entries >= whole - 2


def cut(small: Small) -> Iterator[Image]:
    for name in (small.snapshot, *small.segments):
        for size in range(0, len(small.image[name]), 3):
            yield small.with_file(name, small.image[name][:size])


def test_store_with_a_file_cut_anywhere_is_salvaged() -> None:
    """What stands before the cut, and in the other files."""
    small = SMALL["closed"]
    known = ever(small)
    for image in cut(small):
        report, found = rescue(image)
        assert {item for entries in found.values() for item in entries.items()} <= known
        assert report.problems or found == small.state or report.frames_applied < small.last - 2


def test_damaged_frame_costs_that_commit_and_no_other() -> None:
    """What came after is still copied, so that as much as possible is saved; the report says where."""
    small = SMALL["closed"]
    frames = frames_of(small.image[small.newest])
    report, found = rescue(flipped(small, small.newest, frames[1].payload + 3))
    assert found["second"] == {b"two": b"", b"three": b"3", b"seven": b"7" * 20}  # six deleted "two"
    assert found["default"] == {b"": b"empty key", b"two": b"2"}
    assert found["third"] == {}
    (problem,) = report.problems
    assert (problem.path, problem.offset) == (f"{DIRECTORY}/{small.newest}", frames[1].start)
    assert report.sequence == 7


def test_family_whose_creation_is_lost_gets_a_name_of_its_own() -> None:
    """Its entries are intact, so they are not thrown away."""
    small = SMALL["closed"]
    frames = frames_of(small.image[small.newest])
    report, found = rescue(flipped(small, small.newest, frames[0].payload + 2))
    assert found["salvaged-3"] == {b"six": b"6"}
    assert "third" not in found
    assert report.problems


def test_damaged_block_costs_its_entries() -> None:
    """The family keeps its name and what the log says on top."""
    small = SMALL["closed"]
    data = small.image[small.snapshot]
    (length,) = struct.unpack_from("<I", data, 12)
    report, found = rescue(flipped(small, small.snapshot, 24 + length + 4))
    assert found["default"] == {b"two": b"22"}
    assert found["second"] == small.state["second"]
    assert len(report.problems) == 1


def test_damaged_snapshot_with_an_older_one_is_replaced_by_it_and_the_log() -> None:
    """Nothing is lost then."""
    small = SMALL["leftovers"]
    report, found = rescue(small.with_file(small.snapshot, b""))
    assert found == small.state
    assert [problem.path for problem in report.problems] == [f"{DIRECTORY}/{small.snapshot}"]


def test_damaged_snapshot_without_an_older_one_leaves_what_the_log_has() -> None:
    """The names were in the snapshot, so the families get new ones, except those that the log itself creates."""
    small = SMALL["closed"]
    report, found = rescue(small.with_file(small.snapshot, b""))
    assert found == {
        "default": {},
        "salvaged-1": {b"two": b"22"},
        "salvaged-2": {b"three": b"3", b"seven": b"7" * 20},
        "third": {b"six": b"6"},
    }
    assert len(report.problems) == 1


def test_segment_of_another_store_is_left_out() -> None:
    """Row 9: and told."""
    small = SMALL["closed"]
    other = MemoryFiles(seed=500)
    with pystate.open(DIRECTORY, files=other) as store:
        store.family("default")[b"foreign"] = b"entry"
    foreign = other.image(DIRECTORY)[f"{1:020d}.closed"]
    report, found = rescue({**small.image, f"{20:020d}.log": foreign})
    assert found == small.state
    (problem,) = report.problems
    assert "store" in problem.text


def test_family_dropped_and_made_again_does_not_get_its_old_entries_back() -> None:
    """Row 80: also when the commit that dropped it is the one that is damaged: they stand under another name then."""
    files = MemoryFiles(seed=9)
    with pystate.open(DIRECTORY, files=files, families=["a"]) as store:
        store.family("a")[b"old"] = b"1"
        store.drop_family("a")
        store.create_family("a")[b"new"] = b"2"
    image = files.image(DIRECTORY)
    report, found = rescue(image)
    assert found == {"default": {}, "a": {b"new": b"2"}}
    assert report.problems == ()

    name = f"{1:020d}.closed"
    changed = bytearray(image[name])
    changed[frames_of(image[name])[1].payload] ^= 1
    report, found = rescue({**image, name: bytes(changed)})
    assert found["a"] == {b"new": b"2"}
    assert {b"old": b"1"} in found.values()


def test_frame_with_a_right_checksum_over_nonsense_is_left_out() -> None:
    """Row 99: reported, and the others proceed."""
    from pystate.engine.log_format import encode_frame, salt_seed

    small = SMALL["sync"]
    data = small.image[small.newest]
    salt = data[32:36]
    for payload in ([0, b"\xff", b"\x09\0\0\0"], [0, b"x", b"\0\0\0\0"], {b"no": b"array"}, [1, 2, 3]):
        bad = encode_frame(salt, salt_seed(salt), 8, 7, msgspec.msgpack.encode(payload))
        good = encode_frame(salt, salt_seed(salt), 9, 7, msgspec.msgpack.encode([1, b"nine", b"9"]))
        report, found = rescue(small.with_file(small.newest, data + bad + good))
        assert found["default"] == {**small.state["default"], b"nine": b"9"}
        assert [problem.offset for problem in report.problems] == [len(data)]
        assert report.sequence == 9


def test_large_store_is_copied_in_portions() -> None:
    """More entries than go into one commit."""
    files = MemoryFiles(seed=2)
    with pystate.open(DIRECTORY, files=files, durability="process", snapshot_log_bytes=10_000) as store:
        for start in range(0, 3000, 500):
            store.family("default").update((b"%05d" % number, b"v" * 10) for number in range(start, start + 500))
        expected = contents(store)
    _, found = rescue(files.image(DIRECTORY))
    assert found == expected


@pytest.mark.parametrize("target", ["file", "full", "inside"])
def test_destination_that_is_not_empty_is_refused_untouched(target: str) -> None:
    """Nothing is ever written into something that exists."""
    files = SMALL["closed"].files()
    if target == "file":
        files.restore("/", {"saved": b"mine"})
        path = "//saved"
    elif target == "full":
        files.restore(TARGET, {"mine": b""})
        path = TARGET
    else:
        path = DIRECTORY
    with pytest.raises(NotAStoreError):
        pystate.salvage(DIRECTORY, path, files=files)
    assert files.image(DIRECTORY) == SMALL["closed"].image
    assert files.image(TARGET) == ({"mine": b""} if target == "full" else {})


def test_empty_destination_is_used() -> None:
    """A directory that somebody has made for it."""
    files = SMALL["closed"].files()
    files.make_directory(TARGET)
    pystate.salvage(DIRECTORY, TARGET, files=files)
    with pystate.open(TARGET, files=files) as store:
        assert contents(store) == SMALL["closed"].state


def test_source_without_a_store_is_raised_and_no_destination_is_made() -> None:
    """There is nothing to save."""
    files = MemoryFiles()
    with pytest.raises(StoreNotFoundError):
        pystate.salvage(DIRECTORY, TARGET, files=files)
    assert files.kind(TARGET) is None


@pytest.mark.parametrize("operation", ["open_read", "read_at", "create", "write", "sync", "replace", "sync_directory"])
def test_salvage_that_fails_leaves_the_source_and_closes_everything(operation: str) -> None:
    """Rows 39 and 44: at every call; the source is only read, and trying again into another place is full."""
    small = SMALL["closed"]
    number = 0
    while True:
        number += 1
        memory = small.files()
        files = WatchedFiles(memory)
        files.before = nth(operation, number, lambda: failure(errno.EIO))
        try:
            pystate.salvage(DIRECTORY, TARGET, files=files)
        except OSError as error:
            assert error.errno == errno.EIO
        else:
            break
        files.before = None
        assert (files.open_files, files.held_locks) == ([], 0)
        assert memory.image(DIRECTORY) == small.image
        pystate.salvage(DIRECTORY, "/again", files=memory)
        with pystate.open("/again", files=memory) as store:
            assert contents(store) == small.state
    assert number > 1


def test_metadata_goes_with_what_is_saved() -> None:
    """Or nobody would know what the entries mean."""
    files = MemoryFiles()
    with pystate.open(DIRECTORY, files=files, metadata={"format": "7"}) as store:
        store.family("default")[b"k"] = b"v"
    rescue(files.image())
    pystate.salvage(DIRECTORY, TARGET, files=files)
    assert pystate.read_metadata(TARGET, files=files) == {"format": "7"}
    [name] = [name for name in files.image() if name.endswith(".snapshot")]
    files.restore(DIRECTORY, {other: content for other, content in files.image().items() if other != name})
    pystate.salvage(DIRECTORY, "/more", files=files)
    assert pystate.read_metadata("/more", files=files) == {}


def test_what_was_replaced_is_left_out_and_what_was_prepared_is_no_problem() -> None:
    """Of a store whose content was being replaced, each state is saved by itself."""
    files = MemoryFiles()
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"k"] = b"old"
    watched = WatchedFiles(files)
    images = []

    def note(operation: str, path: str) -> None:
        if operation in ("replace", "unlink"):
            images.append(files.image())

    watched.before = note
    pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.family("default").update({b"k": b"new"}), files=watched)
    found = set()
    for image in images:
        report, state = rescue(image)
        assert report.problems == ()
        found.add(state["default"][b"k"])
    assert found == {b"old", b"new"}
