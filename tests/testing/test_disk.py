"""The simulated disk by itself: what is visible, what is durable, what is recorded, and what it refuses."""

from __future__ import annotations

import errno
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pystate.engine.files import File, Files, publish, read_whole, write_all
from pystate.engine.os_files import OsFiles
from pystate.errors import LockedError
from pystate.testing import SimulatedDisk
from pystate.testing.crash import crash_here
from pystate.testing.outcomes import Level


def durable(disk: SimulatedDisk) -> dict[str, bytes]:
    """What is left when nothing unsynced is."""
    [state] = crash_here(disk, level=Level.NOTHING_UNSYNCED)
    return state.files()


def write(disk: SimulatedDisk, path: str, data: bytes, *, sync: bool = False) -> None:
    file = disk.create(path)
    write_all(file, data)
    if sync:
        file.sync()
    file.close()


# The contract of the seam, side by side with the real disk


@pytest.fixture(params=["simulated", "real"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Files, str]]:
    """A file system and a directory in it."""
    if request.param == "simulated":
        disk = SimulatedDisk()
        disk.make_directory("/place")
        yield disk, "/place"
    else:
        yield OsFiles(), str(tmp_path)


Place = tuple[Files, str]


def test_what_is_appended_can_be_read_and_counts_as_size(place: Place) -> None:
    files, directory = place
    path = files.join(directory, "a")
    file = files.create(path)
    assert file.write(b"hello ") == 6
    assert file.write(memoryview(b"world")) == 5
    assert file.size() == 11
    assert file.read_at(6, 100) == b"world"
    assert file.read_at(11, 1) == b""
    file.truncate(5)
    file.write(b"!")
    file.close()
    file.close()
    assert read_whole(files, path) == b"hello!"


def test_create_empties_a_file_that_exists(place: Place) -> None:
    files, directory = place
    path = files.join(directory, "a")
    for content in (b"long before", b"now"):
        file = files.create(path)
        file.write(content)
        file.close()
    assert read_whole(files, path) == b"now"


def test_open_append_writes_at_the_end_and_admits_nobody_else(place: Place) -> None:
    files, directory = place
    path = files.join(directory, "a")
    files.create(path).close()
    first = files.open_append(path)
    first.write(b"one")
    with pytest.raises(LockedError):
        files.open_append(path)
    first.close()
    second = files.open_append(path)
    second.write(b"two")
    second.close()
    assert read_whole(files, path) == b"onetwo"


def test_replace_takes_the_place_of_the_target(place: Place) -> None:
    files, directory = place
    publish(files, directory, "a", b"new")
    publish(files, directory, "b", b"old")
    files.replace(files.join(directory, "a"), files.join(directory, "b"))
    assert files.list_directory(directory) == ["b"]
    assert read_whole(files, files.join(directory, "b")) == b"new"


def test_file_that_is_unlinked_while_open_can_still_be_read(place: Place) -> None:
    files, directory = place
    publish(files, directory, "a", b"content")
    file = files.open_read(files.join(directory, "a"))
    files.unlink(files.join(directory, "a"))
    assert file.read_at(0, 100) == b"content"
    file.close()
    assert files.list_directory(directory) == []


def test_kind_tells_files_and_directories_apart(place: Place) -> None:
    files, directory = place
    publish(files, directory, "a", b"")
    assert files.kind(directory) == "directory"
    assert files.kind(files.join(directory, "a")) == "file"
    assert files.kind(files.join(directory, "b")) is None


def test_second_lock_is_refused_until_the_first_is_released(place: Place) -> None:
    files, directory = place
    lock = files.lock(directory, "LOCK", 0.0)
    assert lock.still_held()
    with pytest.raises(LockedError):
        files.lock(directory, "LOCK", 0.0)
    lock.release()
    assert not lock.still_held()
    files.lock(directory, "LOCK", 0.0).release()


def test_lock_file_that_was_removed_is_not_held_any_more(place: Place) -> None:
    files, directory = place
    lock = files.lock(directory, "LOCK", 0.0)
    files.unlink(files.join(directory, "LOCK"))
    assert not lock.still_held()
    lock.release()


def test_lock_that_is_forgotten_is_free(place: Place) -> None:
    files, directory = place
    lock = files.lock(directory, "LOCK", 0.0)
    del lock
    gc.collect()
    files.lock(directory, "LOCK", 0.0).release()


Failing = Callable[[Files, str], object]


@pytest.mark.parametrize(
    ("call", "number"),
    [
        pytest.param(lambda f, d: f.open_read(f.join(d, "missing")), errno.ENOENT, id="open_read"),
        pytest.param(lambda f, d: f.open_append(f.join(d, "missing")), errno.ENOENT, id="open_append"),
        pytest.param(lambda f, d: f.create(f.join(f.join(d, "missing"), "a")), errno.ENOENT, id="create"),
        pytest.param(lambda f, d: f.create(f.join(f.join(d, "file"), "a")), errno.ENOTDIR, id="create-below-a-file"),
        pytest.param(lambda f, d: f.create(f.join(d, "folder")), errno.EISDIR, id="create-over-a-directory"),
        pytest.param(lambda f, d: f.unlink(f.join(d, "missing")), errno.ENOENT, id="unlink"),
        pytest.param(lambda f, d: f.replace(f.join(d, "missing"), f.join(d, "b")), errno.ENOENT, id="replace"),
        pytest.param(lambda f, d: f.replace(f.join(d, "file"), f.join(d, "folder")), errno.EISDIR, id="replace-folder"),
        pytest.param(lambda f, d: f.make_directory(f.join(d, "folder")), errno.EEXIST, id="make_directory"),
        pytest.param(
            lambda f, d: f.make_directory(f.join(f.join(d, "no"), "a")), errno.ENOENT, id="make_directory-below"
        ),
        pytest.param(lambda f, d: f.list_directory(f.join(d, "missing")), errno.ENOENT, id="list_directory"),
        pytest.param(lambda f, d: f.list_directory(f.join(d, "file")), errno.ENOTDIR, id="list_directory-of-a-file"),
        pytest.param(lambda f, d: f.sync_directory(f.join(d, "missing")), errno.ENOENT, id="sync_directory"),
    ],
)
def test_what_cannot_be_done_fails_with_the_errno_of_the_real_disk(place: Place, call: Failing, number: int) -> None:
    files, directory = place
    publish(files, directory, "file", b"")
    files.make_directory(files.join(directory, "folder"))
    with pytest.raises(OSError) as caught:
        call(files, directory)
    assert caught.value.errno == number


def test_closed_file_refuses_with_ebadf(place: Place) -> None:
    files, directory = place
    file: File = files.create(files.join(directory, "a"))
    file.close()
    for call in (lambda: file.write(b"x"), file.sync):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_file_open_for_reading_cannot_be_written(place: Place) -> None:
    files, directory = place
    publish(files, directory, "a", b"")
    file = files.open_read(files.join(directory, "a"))
    with pytest.raises(OSError) as caught:
        file.write(b"x")
    assert caught.value.errno == errno.EBADF
    file.close()


# What is durable


def test_sync_makes_content_durable_and_not_the_name() -> None:
    disk = SimulatedDisk()
    write(disk, "/a", b"content", sync=True)
    assert disk.files() == {"/a": b"content"}
    assert durable(disk) == {}
    disk.sync_directory("/")
    assert durable(disk) == {"/a": b"content"}


def test_sync_directory_makes_the_name_durable_and_not_the_content() -> None:
    disk = SimulatedDisk()
    write(disk, "/a", b"content")
    disk.sync_directory("/")
    assert durable(disk) == {"/a": b""}


def test_directory_is_durable_only_with_its_parent() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    write(disk, "/d/a", b"content", sync=True)
    disk.sync_directory("/d")
    assert durable(disk) == {}
    disk.sync_directory("/")
    assert durable(disk) == {"/d/a": b"content"}


def test_rename_is_durable_with_the_directory_and_lasts_with_its_content() -> None:
    disk = SimulatedDisk()
    disk.put({"/a": b"old"})
    write(disk, "/a.tmp", b"new", sync=True)
    disk.replace("/a.tmp", "/a")
    assert durable(disk) == {"/a": b"old"}
    disk.sync_directory("/")
    assert durable(disk) == {"/a": b"new"}


def test_truncation_and_unlinking_wait_for_their_syncs() -> None:
    disk = SimulatedDisk()
    disk.put({"/a": b"0123456789", "/b": b"x"})
    file = disk.open_append("/a")
    file.truncate(3)
    disk.unlink("/b")
    assert durable(disk) == {"/a": b"0123456789", "/b": b"x"}
    file.sync()
    assert durable(disk) == {"/a": b"012", "/b": b"x"}
    disk.sync_directory("/")
    assert durable(disk) == {"/a": b"012"}


def test_death_of_the_process_frees_everything_and_takes_nothing() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    lock = disk.lock("/d", "LOCK", 0.0)
    file = disk.create("/d/a")
    file.write(b"content")
    disk.kill()
    assert disk.open_descriptors == disk.held_locks == []
    assert disk.files()["/d/a"] == b"content"
    assert durable(disk) == {}
    with pytest.raises(OSError):
        file.write(b"more")
    assert not lock.still_held()
    after = disk.lock("/d", "LOCK", 0.0)
    lock.release()  # of the dead process: frees nothing of the living one
    file.close()
    assert after.still_held()
    assert disk.held_locks == ["/d/LOCK"]


def test_clone_shares_what_has_happened_and_nothing_that_follows() -> None:
    disk = SimulatedDisk(5)
    disk.put({"/a": b"durable "})
    file = disk.open_append("/a")
    file.write(b"pending")
    other = disk.clone()
    assert other.files() == disk.files()
    assert durable(other) == {"/a": b"durable "}
    assert other.open_descriptors == []
    assert other.operations == []
    assert other.random_bytes(8) == disk.random_bytes(8)
    file.sync()
    write(other, "/b", b"x")
    assert durable(other) == {"/a": b"durable "}
    assert "/b" not in disk.files()


# Determinism, records, settings


def test_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    one, same, other = SimulatedDisk(1), SimulatedDisk(1), SimulatedDisk(2)
    assert len(one.random_bytes(70)) == 70
    assert same.random_bytes(70) != one.random_bytes(70)  # the second draw
    assert SimulatedDisk(1).random_bytes(16) == SimulatedDisk(1).random_bytes(16) != other.random_bytes(16)


def test_every_call_is_recorded_with_path_size_and_error() -> None:
    disk = SimulatedDisk()
    write(disk, "/a", b"abc", sync=True)
    with pytest.raises(FileNotFoundError):
        disk.open_read("/b")
    assert [(one.number, one.name, one.path, one.size) for one in disk.operations] == [
        (1, "create", "/a", 0),
        (2, "write", "/a", 3),
        (3, "sync", "/a", 0),
        (4, "close", "/a", 0),
        (5, "open_read", "/b", 0),
    ]
    assert disk.position == 5
    assert [one.error is None for one in disk.operations] == [True, True, True, True, False]
    assert str(disk.operations[1]).split() == ["2", "write", "/a", "3", "bytes"]


def test_clock_goes_on_with_each_call_and_can_be_set() -> None:
    disk = SimulatedDisk()
    before = disk.clock()
    disk.kind("/")
    assert disk.clock() > before
    disk.now = 1000.0
    assert disk.clock() == pytest.approx(1000.0, abs=0.001)


def test_waiting_for_a_lock_takes_simulated_time_only() -> None:
    disk = SimulatedDisk()
    held = disk.lock("/", "LOCK", 0.0)
    with pytest.raises(LockedError):
        disk.lock("/", "LOCK", 3600.0)
    assert disk.clock() > 3600
    held.release()


def test_short_io_takes_at_least_one_byte_and_sometimes_less_than_all() -> None:
    """Rows 41 and 43."""
    disk = SimulatedDisk(short_io=True)
    file = disk.create("/a")
    taken = [file.write(b"x" * 100) for _ in range(50)]
    assert all(1 <= count <= 100 for count in taken)
    assert len(set(taken)) > 10
    read = [len(file.read_at(0, 100)) for _ in range(50)]
    assert all(1 <= count <= 100 for count in read)
    assert len(set(read)) > 10
    assert file.read_at(file.size(), 10) == b""
    write_all(file, bytes(1000))
    assert file.size() == sum(taken) + 1000
    file.close()


def test_io_bytes_max_bounds_each_call() -> None:
    """Row 42."""
    disk = SimulatedDisk(io_bytes_max=10)
    file = disk.create("/a")
    assert file.write(bytes(25)) == 10
    write_all(file, bytes(25))
    assert len(file.read_at(0, 30)) == 10
    assert read_whole(disk, "/a") == bytes(35)
    file.close()


def test_quota_takes_what_fits_and_then_fails_with_enospc_until_there_is_room() -> None:
    disk = SimulatedDisk(quota=10)
    file = disk.create("/a")
    assert file.write(bytes(8)) == 8
    assert file.write(bytes(8)) == 2
    with pytest.raises(OSError) as caught:
        file.write(b"x")
    assert caught.value.errno == errno.ENOSPC
    assert disk.files() == {"/a": bytes(10)}
    file.truncate(9)
    assert file.write(b"xy") == 1
    disk.quota = None
    assert file.write(bytes(100)) == 100
    file.close()


def test_read_only_disk_reads_and_refuses_every_change() -> None:
    disk = SimulatedDisk()
    disk.put({"/d/a": b"content"})
    disk.read_only = True
    changes: list[Callable[[], object]] = [
        lambda: disk.create("/d/b"),
        lambda: disk.open_append("/d/a"),
        lambda: disk.replace("/d/a", "/d/b"),
        lambda: disk.unlink("/d/a"),
        lambda: disk.make_directory("/e"),
        lambda: disk.lock("/d", "LOCK", 0.0),
    ]
    for change in changes:
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.EROFS
    assert read_whole(disk, "/d/a") == b"content"
    assert disk.list_directory("/d") == ["a"]


def test_locks_that_lie_are_granted_to_everybody() -> None:
    """Row 55."""
    disk = SimulatedDisk()
    disk.locks_lie = True
    first, second = disk.lock("/", "LOCK", 0.0), disk.lock("/", "LOCK", 0.0)
    assert first.still_held() and second.still_held()
    first.release()
    second.release()


def test_balance_shows_descriptors_locks_and_unfinished_files() -> None:
    disk = SimulatedDisk()
    file = disk.create("/a.tmp")
    lock = disk.lock("/", "LOCK", 0.0)
    assert disk.open_descriptors == ["/a.tmp"]
    assert disk.held_locks == ["/LOCK"]
    assert disk.temporary_files() == ["/a.tmp"]
    file.close()
    lock.release()
    disk.unlink("/a.tmp")
    assert disk.open_descriptors == disk.held_locks == disk.temporary_files() == disk.forgotten == []


def test_descriptor_that_is_dropped_unclosed_is_closed_and_remembered() -> None:
    disk = SimulatedDisk()
    disk.put({"/a": b""})
    file = disk.open_append("/a")
    del file
    gc.collect()
    assert disk.open_descriptors == []
    assert disk.forgotten == ["/a"]
    disk.open_append("/a").close()


def test_paths_are_seen_from_the_working_directory_and_made_plain() -> None:
    disk = SimulatedDisk()
    disk.put({"/place/a": b"content"})
    disk.working_directory = "/place"
    assert disk.absolute("a") == "/place/a"
    assert disk.absolute("../x/./y//z") == "/x/y/z"
    assert disk.absolute("/a/..") == "/"
    assert read_whole(disk, "a") == b"content"
    assert disk.parent("/place/a") == "/place"
    assert disk.parent("/place") == "/"
    assert disk.join("/", "a") == "/a"


def test_directory_can_be_renamed_with_everything_in_it() -> None:
    disk = SimulatedDisk()
    disk.put({"/d/a": b"content"})
    assert disk.list_directory("/d") == ["a"]
    disk.replace("/d", "/e")
    assert disk.files() == {"/e/a": b"content"}
    assert disk.kind("/d") is None
    assert disk.directories() == ["/e"]


def test_rename_between_directories_is_refused() -> None:
    disk = SimulatedDisk()
    disk.put({"/d/a": b"content"})
    with pytest.raises(OSError) as caught:
        disk.replace("/d/a", "/a")
    assert caught.value.errno == errno.EXDEV


def test_put_is_durable_and_no_operation() -> None:
    disk = SimulatedDisk()
    disk.put({"/d/a": b"first"})
    disk.put({"/d/a": b"second", "/d/b": b""})
    assert durable(disk) == {"/d/a": b"second", "/d/b": b""}
    assert disk.operations == []
