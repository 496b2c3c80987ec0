"""The real disk and the real lock, and the helpers through which the engine creates, writes and reads files."""

from __future__ import annotations

import errno
import gc
import os
import stat
import threading
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate import LockedError
from pystate.engine import files as files_module
from pystate.engine import os_files
from pystate.engine.files import (
    File,
    Files,
    discard,
    publish,
    read_exactly,
    read_head,
    read_whole,
    write_all,
    write_rest,
)
from pystate.engine.os_files import DirectoryLock, OsFiles, sync_function
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.watched_files import WatchedFiles, nth


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A file system and a directory in it: the real one, and the one the other tests stand on."""
    if request.param == "disk":
        return OsFiles(), str(tmp_path)
    memory = MemoryFiles()
    memory.make_directory(DIRECTORY)
    return memory, DIRECTORY


# ---- the contract of Files, of both file systems --------------------------------------------------------------------


def test_file_written_and_read_back_is_the_same(place: tuple[Files, str]) -> None:
    """Writing appends, reading is by offset, and empty only at or past the end."""
    files, directory = place
    path = files.join(directory, "file")
    file = files.create(path)
    assert file.write(b"hello") == 5
    assert file.write(memoryview(b" world")) == 6
    file.sync()
    assert file.size() == 11
    assert (file.read_at(0, 100), file.read_at(6, 3), file.read_at(11, 5), file.read_at(50, 5)) == (
        b"hello world", b"wor", b"", b"",
    )  # fmt: skip
    file.close()
    assert read_whole(files, path) == b"hello world"


def test_file_opened_for_appending_is_appended_to_also_after_a_cut(place: tuple[Files, str]) -> None:
    """The end of the file is where it is now, wherever it was when something was read or cut."""
    files, directory = place
    path = files.join(directory, "file")
    publish(files, directory, "file", b"0123456789")
    file = files.open_append(path)
    file.read_at(2, 2)
    file.write(b"ab")
    file.truncate(4)
    assert file.size() == 4
    file.write(b"cd")
    assert file.read_at(0, 100) == b"0123cd"
    file.close()


def test_file_created_again_is_empty(place: tuple[Files, str]) -> None:
    """A leftover temporary file does not show through."""
    files, directory = place
    path = files.join(directory, "file")
    publish(files, directory, "file", b"old")
    file = files.create(path)
    assert file.size() == 0
    file.close()


def test_file_that_is_closed_twice_is_closed_and_not_written_any_more(place: tuple[Files, str]) -> None:
    """Its number may soon belong to another file."""
    files, directory = place
    file = files.create(files.join(directory, "file"))
    file.close()
    other = files.create(files.join(directory, "other"))
    file.close()
    with pytest.raises(OSError, match=r"[Cc]losed|Bad file descriptor"):
        file.write(b"x")
    assert other.size() == 0
    other.close()


def test_second_descriptor_for_appending_is_refused_until_the_first_is_closed(place: tuple[Files, str]) -> None:
    """Row 53: even when the lock file is removed while it is held, a second writer is kept from the log."""
    files, directory = place
    path = files.join(directory, "file")
    publish(files, directory, "file", b"")
    first = files.open_append(path)
    with pytest.raises(LockedError) as caught:
        files.open_append(path)
    assert caught.value.path == directory
    assert read_whole(files, path) == b""  # readers do not mind
    first.close()
    files.open_append(path).close()


def test_file_unlinked_or_replaced_stays_readable_where_it_is_open(place: tuple[Files, str]) -> None:
    """A reader beside a writer keeps its snapshot."""
    files, directory = place
    path = files.join(directory, "file")
    publish(files, directory, "file", b"old")
    first = files.open_read(path)
    publish(files, directory, "file", b"new")
    second = files.open_read(path)
    files.unlink(path)
    assert (first.read_at(0, 9), second.read_at(0, 9)) == (b"old", b"new")
    assert files.kind(path) is None
    first.close()
    second.close()


def test_kinds_and_names_are_told(place: tuple[Files, str]) -> None:
    """``file``, ``directory``, or None."""
    files, directory = place
    inner = files.join(directory, "inner")
    files.make_directory(inner)
    publish(files, directory, "file", b"")
    assert sorted(files.list_directory(directory)) == ["file", "inner"]
    assert [files.kind(files.join(directory, name)) for name in ("file", "inner", "none")] == [
        "file",
        "directory",
        None,
    ]
    assert files.parent(inner) == directory
    assert files.absolute(directory) == directory
    files.sync_directory(directory)


@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda files, path: files.open_read(path), errno.ENOENT),
        (lambda files, path: files.open_append(path), errno.ENOENT),
        (lambda files, path: files.create(path + "/x"), errno.ENOENT),
        (lambda files, path: files.unlink(path), errno.ENOENT),
        (lambda files, path: files.replace(path, path + "2"), errno.ENOENT),
        (lambda files, path: files.list_directory(path), errno.ENOENT),
        (lambda files, path: files.sync_directory(path), errno.ENOENT),
        (lambda files, path: files.make_directory(files.parent(path)), errno.EEXIST),
    ],
    ids=[
        "open_read",
        "open_append",
        "create",
        "unlink",
        "replace",
        "list_directory",
        "sync_directory",
        "make_directory",
    ],
)
def test_failure_is_an_error_with_its_number(
    place: tuple[Files, str], call: Callable[[Files, str], object], number: int
) -> None:
    """Every failure is an ``OSError`` with its ``errno``."""
    files, directory = place
    with pytest.raises(OSError) as caught:
        call(files, files.join(directory, "missing"))
    assert caught.value.errno == number


def test_random_bytes_and_clock_are_what_they_should_be(place: tuple[Files, str]) -> None:
    """R12: both come from the same layer, so that a simulation can replace them."""
    files, _ = place
    assert len(files.random_bytes(16)) == 16
    assert files.random_bytes(16) != files.random_bytes(16)
    assert files.clock() <= files.clock()


# ---- the helpers ----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=500), st.integers(0, 10**6))
def test_data_written_and_read_in_portions_is_the_same(data: bytes, seed: int) -> None:
    """Rows 41 to 43: short writes and short reads, however short."""
    memory = MemoryFiles()
    memory.make_directory(DIRECTORY)
    files = WatchedFiles(memory, short=seed)
    publish(files, DIRECTORY, "file", data)
    path = files.join(DIRECTORY, "file")
    assert read_whole(files, path) == data
    assert read_head(files, path, 10) == data[:10]
    file = files.open_read(path)
    assert read_exactly(file, 3, 20) == data[3:23]
    assert read_exactly(file, len(data), 20) == b""
    file.close()
    assert files.open_files == []


def test_large_data_is_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 42: no single call asks for more than the limit."""
    monkeypatch.setattr(files_module, "READ_BYTES_MAX", 100)
    asked = []

    class Asked(MemoryFiles):
        def open_read(self, path: str, /) -> File:
            file = super().open_read(path)
            read = file.read_at

            def noting(offset: int, size: int, /) -> bytes:
                asked.append(size)
                return read(offset, size)

            file.read_at = noting  # type: ignore[method-assign]
            return file

    data = os.urandom(1050)
    files = Asked().restore(DIRECTORY, {"file": data})
    assert read_whole(files, f"{DIRECTORY}/file") == data
    assert max(asked) == 100
    assert sum(asked) == 1050


def test_value_of_many_portions_is_committed_whole() -> None:
    """Row 42: a disk that takes 64 KiB at a time."""
    files = WatchedFiles(MemoryFiles(), largest=64 * 1024)
    value = os.urandom(300 * 1024)
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"k"] = value
        store.snapshot()
        store.family("default")[b"l"] = value
    with pystate.open(DIRECTORY, files=files) as store:
        assert dict(store.family("default")) == {b"k": value, b"l": value}
    assert files.counts["write"] > 10


def test_write_that_takes_nothing_is_an_error() -> None:
    """A disk that says "0 bytes written" for ever must not hang the engine."""

    class Nothing:
        def write(self, data: bytes | memoryview, /) -> int:
            return 0

    nothing: Any = Nothing()
    with pytest.raises(OSError, match="took no byte"):
        write_all(nothing, b"data")
    with pytest.raises(OSError, match="took no byte"):
        write_rest(nothing, b"data", 0)
    write_all(nothing, b"")


PUBLISHING = ["create", "write", "sync", "replace", "sync_directory"]


def test_publishing_is_create_write_sync_replace_and_sync_of_the_directory() -> None:
    """R5, row 24: the content is durable before the name is."""
    files = WatchedFiles(MemoryFiles().restore(DIRECTORY, {}))
    publish(files, DIRECTORY, "name", b"content")
    assert [operation for operation, _ in files.trace] == PUBLISHING
    assert files.real_image() == {"name": b"content"}
    assert files.open_files == []


@pytest.mark.parametrize("step", PUBLISHING)
@pytest.mark.parametrize(
    "error", [lambda: failure(errno.EIO), KeyboardInterrupt, MemoryError], ids=["EIO", "^C", "memory"]
)
def test_publishing_that_fails_leaves_the_old_file_and_no_temporary_one(
    step: str, error: Callable[[], BaseException]
) -> None:
    """R5, rows 34, 45 and 46: old or new, never half; the directory sync is the one step after which it is new."""
    files = WatchedFiles(MemoryFiles().restore(DIRECTORY, {"name": b"old"}))
    files.before = nth(step, 1, error)
    with pytest.raises(type(error())):
        publish(files, DIRECTORY, "name", b"new content")
    assert files.real_image() == {"name": b"new content" if step == "sync_directory" else b"old"}
    assert files.open_files == []


def test_discarding_tells_of_no_second_failure() -> None:
    """The first one is the one to tell."""
    files = WatchedFiles(MemoryFiles().restore(DIRECTORY, {}))
    file = files.create(f"{DIRECTORY}/x.tmp")
    files.before = nth("unlink", 1, lambda: failure(errno.EROFS))
    discard(files, f"{DIRECTORY}/x.tmp", file)
    assert files.real_image() == {"x.tmp": b""}


# ---- OsFiles --------------------------------------------------------------------------------------------------------


def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    """Row 60: no child process gets a descriptor of a store."""
    files = OsFiles()
    path = str(tmp_path / "file")
    created = files.create(path)
    for file in (created, files.open_read(path), files.open_append(path)):
        assert not os.get_inheritable(file._descriptor)
        file.close()


def test_files_are_made_with_the_modes_of_the_user(tmp_path: Path) -> None:
    """The umask decides, as for every other file."""
    OsFiles().create(str(tmp_path / "file")).close()
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_something_else_is_told_from_a_file(tmp_path: Path) -> None:
    """Neither a file nor a directory."""
    os.mkfifo(tmp_path / "pipe")
    assert OsFiles().kind(str(tmp_path / "pipe")) == "other"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_directory_that_cannot_be_synced_is_warned_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Row 35: once, not at every snapshot; and refused where the caller asked for it."""

    def fsync(_: int) -> None:
        raise failure(number)

    monkeypatch.setattr(os, "fsync", fsync)
    files = OsFiles()
    with pytest.warns(RuntimeWarning, match="cannot sync a directory"):
        files.sync_directory(str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files.sync_directory(str(tmp_path))
    with pytest.raises(OSError) as caught:
        OsFiles(strict=True).sync_directory(str(tmp_path))
    assert caught.value.errno == number


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_directory_sync_that_fails_is_never_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Row 34: only "not supported" is forgiven."""

    def fsync(_: int) -> None:
        raise failure(number)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError) as caught:
        OsFiles().sync_directory(str(tmp_path))
    assert caught.value.errno == number


class FakeSystem:
    """Stands in for `os` and `fcntl`, and notes how a descriptor was flushed."""

    F_FULLFSYNC = 51

    def __init__(self, *, fails: int | None = None, without: str = "") -> None:
        self.calls: list[tuple[str, int]] = []
        self.fails = fails
        if without != "fdatasync":
            self.fdatasync = lambda descriptor: self.calls.append(("fdatasync", descriptor))

    def fsync(self, descriptor: int) -> None:
        self.calls.append(("fsync", descriptor))

    def fcntl(self, descriptor: int, command: int) -> None:
        assert command == self.F_FULLFSYNC
        self.calls.append(("full", descriptor))
        if self.fails is not None:
            raise failure(self.fails)


def test_sync_is_the_strongest_flush_of_the_platform() -> None:
    """Row 36: full flush on macOS, ``fdatasync`` on Linux, ``fsync`` elsewhere."""
    for platform, without, expected in (
        ("darwin", "", "full"),
        ("linux", "", "fdatasync"),
        ("win32", "fdatasync", "fsync"),
        ("freebsd14", "fdatasync", "fsync"),
    ):
        system = FakeSystem(without=without)
        sync_function(platform, system, system)(7)
        assert system.calls == [(expected, 7)]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.ENOTTY])
def test_full_flush_that_is_not_supported_falls_back(number: int) -> None:
    """Row 36: a file system without it."""
    system = FakeSystem(fails=number)
    sync_function("darwin", system, system)(7)
    assert system.calls == [("full", 7), ("fsync", 7)]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EBADF])
def test_full_flush_that_fails_does_not_fall_back(number: int) -> None:
    """Row 36, R4: a flush that failed is not tried in another way until it succeeds."""
    system = FakeSystem(fails=number)
    with pytest.raises(OSError) as caught:
        sync_function("darwin", system, system)(7)
    assert caught.value.errno == number
    assert system.calls == [("full", 7)]


def windows_error(number: int) -> PermissionError:
    error = PermissionError(errno.EACCES, "busy")
    error.winerror = number  # type: ignore[attr-defined, unused-ignore]
    return error


@pytest.mark.parametrize("number", [5, 32])
@pytest.mark.parametrize("times", [1, 19, 20, 1000])
def test_rename_that_windows_refuses_is_tried_again_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, number: int, times: int
) -> None:
    """Row 66: somebody reads the file; then the error, and no copy instead of the rename."""
    calls: list[tuple[str, str]] = []
    pauses: list[float] = []

    def replace(source: str, target: str) -> None:
        calls.append((source, target))
        if len(calls) <= times:
            raise windows_error(number)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(time, "sleep", pauses.append)
    if times < 20:
        OsFiles().replace("a", "b")
    else:
        with pytest.raises(PermissionError):
            OsFiles().replace("a", "b")
    assert calls == [("a", "b")] * min(times + 1, 20)
    assert 0 < sum(pauses) < 2


@pytest.mark.parametrize(
    "error", [windows_error(183), PermissionError(errno.EACCES, "no"), failure(errno.EIO)], ids=repr
)
def test_rename_that_is_refused_for_another_reason_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Row 66: only what passes by itself is waited for."""
    calls: list[str] = []

    def replace(source: str, target: str) -> None:
        calls.append(source)
        raise error

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(type(error)):
        OsFiles().replace("a", "b")
    assert calls == ["a"]


def test_platform_without_pread_reads_by_seeking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows; appending is not disturbed by it."""
    monkeypatch.delattr(os, "pread")
    file = OsFiles().create(str(tmp_path / "file"))
    file.write(b"0123456789")
    assert (file.read_at(2, 3), file.read_at(8, 9), file.read_at(0, 1)) == (b"234", b"89", b"0")
    file.write(b"ab")
    assert file.read_at(0, 99) == b"0123456789ab"
    file.close()


def test_platform_without_flock_opens_for_appending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, where an open file cannot be replaced or removed."""
    monkeypatch.setattr(os_files, "fcntl", None)
    publish(OsFiles(), str(tmp_path), "file", b"")
    OsFiles().open_append(str(tmp_path / "file")).close()


def test_lock_of_the_log_that_fails_is_an_error_and_leaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 54: a file system without locks is no reason to go on without one."""

    def flock(*_: int) -> None:
        raise failure(errno.ENOLCK)

    publish(OsFiles(), str(tmp_path), "file", b"")
    before = len(os.listdir("/dev/fd"))
    fake = types.SimpleNamespace(flock=flock, LOCK_EX=2, LOCK_NB=4)
    monkeypatch.setattr(os_files, "fcntl", fake)
    with pytest.raises(OSError) as caught:
        OsFiles().open_append(str(tmp_path / "file"))
    assert caught.value.errno == errno.ENOLCK
    assert len(os.listdir("/dev/fd")) == before


# ---- the lock -------------------------------------------------------------------------------------------------------


def test_lock_excludes_and_names_this_process(tmp_path: Path) -> None:
    """Row 49: also by another path to the same directory; after the release it is free."""
    link = tmp_path / "link"
    store = tmp_path / "store"
    store.mkdir()
    link.symlink_to(store)
    lock = DirectoryLock(str(store), "LOCK", 0.0)
    for path in (store, link, store / ".." / "store"):
        with pytest.raises(LockedError) as caught:
            DirectoryLock(str(path), "LOCK", 0.0)
        assert caught.value.pid == os.getpid()
    lock.release()
    lock.release()
    again = DirectoryLock(str(link), "LOCK", 0.0)
    assert again.still_held()
    again.release()
    assert not again.still_held()


def test_lock_that_is_waited_for_is_given_up_in_time(tmp_path: Path) -> None:
    """Row 54: a bounded wait, then a typed error that names the holder."""
    lock = DirectoryLock(str(tmp_path), "LOCK", 0.0)
    with pytest.raises(LockedError) as caught:
        DirectoryLock(str(tmp_path), "LOCK", 0.05)
    assert caught.value.pid == os.getpid()
    lock.release()


def test_lock_that_is_released_goes_to_the_one_who_waits(tmp_path: Path) -> None:
    """Guarantee 7: in the same process too."""
    lock = DirectoryLock(str(tmp_path), "LOCK", 0.0)
    got: list[DirectoryLock] = []
    waiter = threading.Thread(target=lambda: got.append(DirectoryLock(str(tmp_path), "LOCK", 60.0)))
    waiter.start()
    lock.release()
    waiter.join(60)
    assert len(got) == 1
    assert got[0].still_held()
    with pytest.raises(LockedError):
        DirectoryLock(str(tmp_path), "LOCK", 0.0)
    got[0].release()


@pytest.mark.parametrize(
    ("content", "pid", "host"),
    [
        (b"123 host\n", 123, "host"),
        (b"123\n", 123, None),
        (b"123 a host with spaces\n", 123, "a host with spaces"),
        (b"", None, None),
        (b"junk", None, None),
        (b"\xff\xfe\x00", None, None),
        (b"-5 host", None, None),
        (b"9" * 300, None, None),
        ("٣ host".encode(), None, None),
    ],
    ids=repr,
)
def test_content_of_the_lock_file_is_for_messages_only(
    tmp_path: Path, content: bytes, pid: int | None, host: str | None
) -> None:
    """Row 52, R6: whatever stands in it, the lock of the operating system decides."""
    (tmp_path / "LOCK").write_bytes(content)
    assert os_files._read_holder(str(tmp_path / "LOCK")) == (pid, host)
    lock = DirectoryLock(str(tmp_path), "LOCK", 0.0)
    assert (tmp_path / "LOCK").read_bytes() == f"{os.getpid()} {os.uname().nodename}\n".encode()
    lock.release()
    assert os_files._read_holder(str(tmp_path / "missing")) == (None, None)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_lock_file_that_is_gone_is_noticed(tmp_path: Path, how: str) -> None:
    """Row 53: somebody else may hold "the" lock then."""
    lock = DirectoryLock(str(tmp_path), "LOCK", 0.0)
    assert lock.still_held()
    (tmp_path / "LOCK").unlink()
    if how == "replaced":
        (tmp_path / "LOCK").touch()
    assert not lock.still_held()
    lock.release()


def test_lock_that_is_forgotten_is_released(tmp_path: Path) -> None:
    """C7: a store that nobody closed does not keep the next one out for ever."""
    lock = DirectoryLock(str(tmp_path), "LOCK", 0.0)
    del lock
    gc.collect()
    DirectoryLock(str(tmp_path), "LOCK", 0.0).release()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("step", ["_identity", "_write_holder"])
def test_locking_that_is_interrupted_leaves_the_lock_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    """Rows 45 and 46: wherever it happens, the next one gets it."""
    real: Callable[[str], Any] = getattr(os_files, step)
    number = 0
    while True:
        number += 1
        left = number

        def disturbed(path: str) -> Any:
            nonlocal left
            result = real(path)
            left -= 1
            if left == 0:
                raise error
            return result

        monkeypatch.setattr(os_files, step, disturbed)
        try:
            DirectoryLock(str(tmp_path), "LOCK", 0.0).release()
        except error:
            pass
        else:
            break
        finally:
            monkeypatch.setattr(os_files, step, real)
        gc.collect()
        DirectoryLock(str(tmp_path), "LOCK", 0.0).release()
    assert number > 1


def test_lock_that_the_file_system_does_not_have_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 54: there is no mode without a lock, and nothing is left behind by the refusal."""
    import fcntl

    import filelock

    def flock(*_: int) -> None:
        raise failure(errno.ENOLCK)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises((OSError, NotImplementedError)) as caught:
        DirectoryLock(str(tmp_path), "LOCK", 0.0)
    assert not isinstance(caught.value, LockedError)
    monkeypatch.setattr(fcntl, "flock", real)
    assert not isinstance(filelock.FileLock(str(tmp_path / "x")), filelock.SoftFileLock)
    DirectoryLock(str(tmp_path), "LOCK", 0.0).release()


def test_directory_without_write_permission_is_refused_before_a_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 62: the error is that of the operating system; `pystate.open` makes a ReadOnlyError of it."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError):
        DirectoryLock(str(tmp_path), "LOCK", 0.0)
    with pytest.raises(pystate.ReadOnlyError):
        pystate.open(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
