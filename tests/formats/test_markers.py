"""Markers: what they hold, who may stamp them, and every crash and fault that can come in between."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given

from pystate import Files, OsFiles
from pystate.engine.files import read_whole, write_all
from pystate.errors import (
    MarkerError,
    MarkerNotFoundError,
    MarkerParseError,
    MarkerReadError,
    MarkerWriteError,
    PystateError,
    VersionError,
)
from pystate.formats import (
    Version,
    read_version_marker,
    retrieve_or_create,
    write_version_marker,
    write_version_markers,
)
from pystate.testing import (
    CrashState,
    Fault,
    Level,
    SimulatedDisk,
    check,
    crash_here,
    disk_full,
    each_call,
    failing,
    turns_read_only,
)
from tests.formats.version_texts import version_texts

PACKAGE = "0.47.0-alpha.2"
NOT_VERSIONS = ["", "0.46", "not a version", "0.46.0 ", "0.46.0extra"]

#: A marker with a checksum could tell damage; without one there is nothing to promise.
LEVELS = [level for level in Level if level is not Level.DAMAGE]
POWER_LOSS = [level for level in LEVELS if level is not Level.KILL]

Workload: TypeAlias = Callable[[SimulatedDisk], int]


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A file system, and an empty directory in it."""
    if request.param == "real":
        return OsFiles(), str(tmp_path)
    disk = SimulatedDisk(short_io=True)
    disk.make_directory("/root")
    return disk, "/root"


def put(files: Files, directory: str, name: str, content: bytes) -> None:
    if files.kind(directory) is None:
        files.make_directory(directory)
    file = files.create(files.join(directory, name))
    write_all(file, content)
    file.close()


def content(files: Files, directory: str) -> bytes:
    return read_whole(files, files.join(directory, "VERSION"))


def names(files: Files, directory: str) -> set[str]:
    return set(files.list_directory(directory))


# One marker


@pytest.mark.parametrize("old", [None, b"0.45.0", b"not-a-valid-version", b"0.45.0\n" * 100])
def test_marker_is_replaced_whatever_it_was(place: tuple[Files, str], old: bytes | None) -> None:
    """Check R177: the new text, and no `VERSION.tmp`."""
    files, directory = place
    put(files, directory, "other", b"")
    put(files, directory, "VERSION.tmp", b"left over and longer than a version is")
    if old is not None:
        put(files, directory, "VERSION", old)
    write_version_marker(directory, PACKAGE, files=files)
    assert content(files, directory) == PACKAGE.encode()
    assert names(files, directory) == {"VERSION", "other"}
    assert read_version_marker(directory, files=files) == Version.parse(PACKAGE)


@given(version_texts())
def test_marker_holds_the_text_of_any_version_and_nothing_else(text: str) -> None:
    disk = SimulatedDisk()
    for version in (text, Version.parse(text)):
        write_version_marker("/", version, files=disk)
        assert disk.files() == {"/VERSION": text.encode()}
        assert str(read_version_marker("/", files=disk)) == text


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (b"not-a-valid-version", "'not' is not made of digits"),
        (b"0.46.0\n", "white space around it"),
        (b"0.46.0\r\n", "white space around it"),
        (b" 0.46.0", "white space around it"),
        (b"\xef\xbb\xbf0.46.0", "not ASCII"),
        ("٠.46.0".encode(), "not ASCII"),
        (b"0.46.0\0", "is not made of digits"),
        (b"0.46", "2 of the three numbers"),
        (b"", "it is empty"),
        (b"1.0.0-" + b"a" * 1000, "is the most"),
        (b"\0" * 512, "is the most"),
    ],
    ids=["words", "newline", "windows", "blank", "bom", "digits", "nul", "short", "empty", "long", "zeros"],
)
def test_marker_that_is_not_exactly_a_version_cannot_be_parsed(
    place: tuple[Files, str], found: bytes, problem: str
) -> None:
    """Check R174: error "cannot parse VERSION", and the marker is left as it is."""
    files, directory = place
    put(files, directory, "VERSION", found)
    reads: list[Callable[[], Version]] = [
        lambda: read_version_marker(directory, files=files),
        lambda: retrieve_or_create(directory, PACKAGE, files=files),
    ]
    for read in reads:
        with pytest.raises(ValueError, match="cannot parse VERSION") as caught:
            read()
        error = caught.value
        assert isinstance(error, MarkerParseError)
        assert error.path == files.join(directory, "VERSION") and error.path in str(error)
        assert found.startswith(error.found) and repr(found)[2:20] in str(error)
        assert problem in error.problem and error.problem in str(error)
    assert content(files, directory) == found


def test_missing_marker_or_directory_cannot_be_opened(place: tuple[Files, str]) -> None:
    files, directory = place
    for missing in (directory, files.join(directory, "missing")):
        with pytest.raises(FileNotFoundError, match="cannot open VERSION: there is none") as caught:
            read_version_marker(missing, files=files)
        assert isinstance(caught.value, MarkerNotFoundError)
        assert (caught.value.path, caught.value.found) == (files.join(missing, "VERSION"), None)
        assert caught.value.errno == errno.ENOENT
    assert names(files, directory) == set()


def test_directory_in_place_of_a_marker_cannot_be_opened(place: tuple[Files, str]) -> None:
    files, directory = place
    files.make_directory(files.join(directory, "VERSION"))
    with pytest.raises(MarkerReadError, match="cannot open VERSION: it is a directory"):
        read_version_marker(directory, files=files)
    with pytest.raises(MarkerReadError, match="cannot open VERSION: it is a directory"):
        retrieve_or_create(directory, PACKAGE, files=files)
    with pytest.raises(MarkerWriteError, match="cannot write 0.46.0 to VERSION") as caught:
        write_version_marker(directory, "0.46.0", files=files)
    assert not caught.value.replaced
    assert names(files, directory) == {"VERSION"}


def test_file_in_place_of_a_directory_is_neither_read_nor_written(place: tuple[Files, str]) -> None:
    files, directory = place
    put(files, directory, "file", b"content")
    wrong = files.join(directory, "file")
    for below in (wrong, files.join(wrong, "sub")):
        with pytest.raises(MarkerReadError, match="cannot open VERSION"):
            read_version_marker(below, files=files)
        with pytest.raises(MarkerWriteError, match="cannot write 0.46.0 to VERSION"):
            write_version_marker(below, "0.46.0", files=files)
        with pytest.raises(MarkerError):
            retrieve_or_create(below, "0.46.0", files=files)
        with pytest.raises(MarkerWriteError, match="backup directory VERSION"):
            write_version_markers(directory, below, "0.46.0", files=files)
    assert read_whole(files, wrong) == b"content"


def test_marker_of_a_missing_directory_is_not_written(place: tuple[Files, str]) -> None:
    files, directory = place
    missing = files.join(directory, "missing")
    with pytest.raises(MarkerWriteError, match=r"there is no directory .*missing") as caught:
        write_version_marker(missing, PACKAGE, files=files)
    error = caught.value
    assert (error.errno, error.version, error.replaced, error.role) == (errno.ENOENT, PACKAGE, False, "")
    assert names(files, directory) == set()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_named_pipe_in_place_of_a_marker_does_not_make_anybody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "VERSION")
    with pytest.raises(MarkerReadError, match="neither a file nor a directory"):
        read_version_marker(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="no permission bits there")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_of_a_marker_are_left_to_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_version_marker(tmp_path, "1.0.0")
        write_version_marker(tmp_path, "1.0.1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "VERSION").stat().st_mode) == 0o666 & ~umask


def test_directory_may_be_a_path_relative_or_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert retrieve_or_create("a/b", "1.0.0") == retrieve_or_create(Path("a") / "b", "2.0.0") == Version(1, 0, 0)
    (tmp_path / "link").symlink_to("a/b", target_is_directory=True)
    write_version_marker("link", "3.0.0")
    assert (tmp_path / "a" / "b" / "VERSION").read_bytes() == b"3.0.0"
    (tmp_path / "nowhere").symlink_to("missing", target_is_directory=True)
    with pytest.raises(MarkerWriteError):
        retrieve_or_create("nowhere", "1.0.0")


@pytest.mark.parametrize(("directory", "error"), [(b"/", TypeError), (None, TypeError), ("", ValueError)])
def test_what_is_no_path_is_refused(directory: Any, error: type[Exception]) -> None:
    disk = SimulatedDisk()
    with pytest.raises(error):
        read_version_marker(directory, files=disk)
    with pytest.raises(error):
        write_version_marker(directory, "1.0.0", files=disk)
    with pytest.raises(error):
        retrieve_or_create(directory, "1.0.0", files=disk)
    with pytest.raises(error):
        write_version_markers("/data", directory, "1.0.0", files=disk)
    assert disk.position == 0


@pytest.mark.parametrize("version", [*NOT_VERSIONS, None, b"1.0.0", 1])
def test_what_is_no_version_is_refused_before_the_disk_is_touched(version: Any) -> None:
    disk = SimulatedDisk()
    expected = VersionError if isinstance(version, str) else TypeError
    with pytest.raises(expected):
        write_version_marker("/", version, files=disk)
    with pytest.raises(expected):
        retrieve_or_create("/data", version, files=disk)
    with pytest.raises(expected):
        write_version_markers("/data", "/backup", version, files=disk)
    assert disk.position == 0


# A new directory


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_new_directory_is_made_and_stamped(place: tuple[Files, str], depth: int) -> None:
    """Check R170: empty or absent, parents absent too; the marker is the version, without a newline."""
    files, directory = place
    for _ in range(depth):
        directory = files.join(directory, "sub")
    assert retrieve_or_create(directory, PACKAGE, files=files) == Version.parse(PACKAGE)
    assert content(files, directory) == PACKAGE.encode()
    assert names(files, directory) == {"VERSION"}


def test_directory_with_nothing_but_a_temporary_file_is_new(place: tuple[Files, str]) -> None:
    """Check R171: `VERSION.tmp` of a call that was cut short does not hinder."""
    files, directory = place
    put(files, directory, "VERSION.tmp", b"0.4")
    assert retrieve_or_create(directory, PACKAGE, files=files) == Version.parse(PACKAGE)
    assert content(files, directory) == PACKAGE.encode()
    assert names(files, directory) == {"VERSION"}


@pytest.mark.parametrize("name", ["states.db", "VERSION.tmp2", "version", ".hidden"])
def test_populated_directory_without_a_marker_is_refused(place: tuple[Files, str], name: str) -> None:
    """Check R172: error "cannot open VERSION", nothing created; also beside a temporary file."""
    files, directory = place
    put(files, files.join(directory, "data"), name, b"something")
    directory = files.join(directory, "data")
    for before in ({name}, {name, "VERSION.tmp"}):
        with pytest.raises(MarkerNotFoundError, match="cannot open VERSION") as caught:
            retrieve_or_create(directory, PACKAGE, files=files)
        assert caught.value.found == name and name in str(caught.value)
        assert names(files, directory) == before
        put(files, directory, "VERSION.tmp", b"0.4")


def test_marker_that_is_there_is_returned_and_nothing_is_written(place: tuple[Files, str]) -> None:
    files, directory = place
    for other in ("states.db", "VERSION.tmp"):
        put(files, directory, "VERSION", b"0.45.0+build")
        assert str(retrieve_or_create(directory, PACKAGE, files=files)) == "0.45.0+build"
        put(files, directory, other, b"0.4")
    assert names(files, directory) == {"VERSION", "VERSION.tmp", "states.db"}


def test_marker_that_is_there_is_returned_from_a_disk_that_cannot_be_written() -> None:
    disk = SimulatedDisk()
    disk.put({"/data/VERSION": b"0.45.0", "/data/states.db": b""})
    disk.read_only = True
    assert retrieve_or_create("/data", PACKAGE, files=disk) == Version(0, 45, 0)
    with pytest.raises(MarkerWriteError) as caught:
        write_version_marker("/data", PACKAGE, files=disk)
    assert caught.value.errno == errno.EROFS and not caught.value.replaced


# Two markers


def test_both_markers_are_written(place: tuple[Files, str]) -> None:
    """Check R182: exactly the text, in directories that were not there; a pre-release survives."""
    files, root = place
    data, backup = files.join(root, "a"), files.join(files.join(root, "b"), "c")
    for text in ("0.46.0", "0.47.0-alpha.1"):
        write_version_markers(data, backup, text, files=files)
        assert content(files, data) == content(files, backup) == text.encode()
    write_version_markers(data, backup, Version(0, 46, 0), files=files)
    assert content(files, data) == content(files, backup) == b"0.46.0"


@pytest.mark.parametrize("text", NOT_VERSIONS)
def test_markers_are_untouched_by_what_is_no_version(place: tuple[Files, str], text: str) -> None:
    """Check R183: error, no directory made, markers as they were, no temporary file."""
    files, root = place
    data, missing = files.join(root, "data"), files.join(root, "missing")
    put(files, data, "VERSION", b"0.45.0")
    for directories in ((data, data), (data, missing), (missing, data), (missing, missing)):
        with pytest.raises(VersionError) as caught:
            write_version_markers(*directories, text, files=files)
        assert caught.value.text == text
    assert content(files, data) == b"0.45.0"
    assert (names(files, root), names(files, data)) == ({"data"}, {"VERSION"})


def test_markers_that_cannot_be_read_are_replaced(place: tuple[Files, str]) -> None:
    """Check R184: one right, one with a newline behind it."""
    files, root = place
    data, backup = files.join(root, "data"), files.join(root, "backup")
    put(files, data, "VERSION", b"0.47.0-alpha.2")
    put(files, backup, "VERSION", b"0.47.0-alpha.2\n")
    write_version_markers(data, backup, "0.46.0", files=files)
    assert content(files, data) == content(files, backup) == b"0.46.0"


def test_error_says_which_of_two_directories_it_was(place: tuple[Files, str]) -> None:
    """Check R185: a file in place of a directory; the first failure stops, the second leaves the first updated."""
    files, root = place
    data, backup = files.join(root, "data"), files.join(root, "backup")
    put(files, root, "backup", b"")
    put(files, data, "VERSION", b"0.45.0")
    with pytest.raises(MarkerWriteError, match="backup directory VERSION") as caught:
        write_version_markers(data, backup, "0.46.0", files=files)
    assert caught.value.role == "backup directory" and caught.value.path == files.join(backup, "VERSION")
    assert content(files, data) == b"0.46.0"
    files.unlink(backup)
    write_version_markers(data, backup, "0.46.0", files=files)
    assert content(files, data) == content(files, backup) == b"0.46.0"

    put(files, root, "file", b"")
    with pytest.raises(MarkerWriteError, match="data directory VERSION") as caught:
        write_version_markers(files.join(root, "file"), backup, "0.47.0", files=files)
    assert caught.value.role == "data directory"
    assert content(files, backup) == b"0.46.0"


# Every crash

SCENES: dict[str, dict[str, bytes]] = {
    "old marker": {"/a/data/VERSION": b"0.46.0", "/a/data/states.db": b"", "/a/backup/VERSION": b"0.46.0"},
    "left over": {
        "/a/data/VERSION": b"0.46.0",
        "/a/data/VERSION.tmp": b"1.0.0" * 200,
        "/a/backup/VERSION.tmp": b"0.4",
    },
    "no marker": {"/a/data/VERSION.tmp": b"", "/a/backup/VERSION.tmp": b""},
    "nothing": {},
}
WITH_DIRECTORIES = [name for name in SCENES if name != "nothing"]


def scene(name: str, **options: Any) -> SimulatedDisk:
    disk = SimulatedDisk(**options)
    disk.put(SCENES[name])
    return disk


def marker(disk: SimulatedDisk, directory: str = "/a/data") -> str | None:
    found = disk.files().get(f"{directory}/VERSION")
    return None if found is None else found.decode()


def old_marker(name: str, directory: str = "/a/data") -> str | None:
    return marker(scene(name), directory)


def write(disk: SimulatedDisk) -> int:
    """Each workload returns how many operations there had been when the call returned."""
    write_version_marker("/a/data", PACKAGE, files=disk)
    return disk.position


def write_both(disk: SimulatedDisk) -> int:
    write_version_markers("/a/data", "/a/backup", PACKAGE, files=disk)
    return disk.position


def retrieve(disk: SimulatedDisk) -> int:
    retrieve_or_create("/a/data", PACKAGE, files=disk)
    return disk.position


def left_over(disk: SimulatedDisk, directory: str) -> bool:
    return f"{directory}/VERSION.tmp" in disk.files()


def check_settled(disk: SimulatedDisk, expected: dict[str, str], level: Level = Level.SECTORS) -> None:
    """Whatever power loss takes now, these markers are there, and nothing is left beside them or open."""
    assert disk.open_descriptors == disk.forgotten == []
    assert not any(left_over(disk, directory) for directory in expected)
    for state in crash_here(disk, level=level if level in POWER_LOSS else Level.SECTORS):
        after = state.open_disk()
        assert {directory: marker(after, directory) for directory in expected} == expected


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.value)
@pytest.mark.parametrize("name", WITH_DIRECTORIES)
def test_crash_leaves_the_old_marker_or_the_new_one(name: str, level: Level) -> None:
    """A crash at every operation, and another one in the call that finishes; the last call always gets through."""

    def judge(state: CrashState) -> None:
        disk = state.open_disk()
        assert marker(disk) in {old_marker(name), PACKAGE}
        if state.first.operation >= state.result:
            assert marker(disk) == PACKAGE, "the call had returned"
        write(disk)
        check_settled(disk, {"/a/data": PACKAGE}, level)

    report = check(write, judge, disk=scene(name), level=level, nested=1, recovery=write, nested_budget=50)
    assert report.exhaustive and report.operations >= 8


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.value)
@pytest.mark.parametrize("name", SCENES)
def test_crash_leaves_two_markers_that_the_next_call_makes_equal(name: str, level: Level) -> None:
    """Each is old or new, and the one of the backup directory is not new before the other one is."""

    def judge(state: CrashState) -> None:
        disk = state.open_disk()
        data, backup = marker(disk, "/a/data"), marker(disk, "/a/backup")
        assert data in {old_marker(name, "/a/data"), PACKAGE}
        assert backup in {old_marker(name, "/a/backup"), PACKAGE}
        assert data == PACKAGE or backup != PACKAGE
        if state.first.operation >= state.result:
            assert data == backup == PACKAGE
        write_both(disk)
        check_settled(disk, {"/a/data": PACKAGE, "/a/backup": PACKAGE}, level)

    nested = [Level.KILL]  # of the call that finishes: the directories it finds may not be durable
    report = check(
        write_both, judge, disk=scene(name), level=level, nested=1, recovery=write_both, nested_levels=nested,
        nested_budget=50,
    )  # fmt: skip
    assert report.exhaustive


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.value)
@pytest.mark.parametrize("name", ["no marker", "nothing", "old marker"])
def test_marker_that_was_returned_is_not_undone_by_power_loss(name: str, level: Level) -> None:
    """After a crash in a call that stamps, the next one, of another version, says which of the two has won."""

    def judge(state: CrashState) -> None:
        disk = state.open_disk()
        old = marker(disk)
        assert old in {None, old_marker(name), PACKAGE}
        if state.first.operation >= state.result:
            assert old == (old_marker(name) or PACKAGE)
        won = retrieve_or_create("/a/data", "9.9.9", files=disk)
        assert str(won) == (old or "9.9.9")
        if old is not None and left_over(disk, "/a/data"):
            disk.unlink("/a/data/VERSION.tmp")  # it stays until somebody writes
        check_settled(disk, {"/a/data": str(won)}, level)

    report = check(
        retrieve, judge, disk=scene(name), level=level, nested=1, recovery=retrieve, nested_levels=[Level.KILL],
        nested_budget=50,
    )  # fmt: skip
    assert report.exhaustive


# Every fault

WORKLOADS: list[tuple[Workload, str]] = [
    (write, "old marker"), (write, "left over"), (write, "no marker"), (write_both, "old marker"),
    (write_both, "nothing"), (retrieve, "old marker"), (retrieve, "no marker"), (retrieve, "nothing"),
]  # fmt: skip
each_workload = pytest.mark.parametrize(
    ("workload", "name"), WORKLOADS, ids=[f"{workload.__name__} {name}" for workload, name in WORKLOADS]
)


def check_failed(workload: Workload, name: str, disk: SimulatedDisk, error: BaseException | None) -> None:
    """What holds after any failure: old or new, nothing open, the error says which; and the next call finishes."""
    assert disk.open_descriptors == disk.forgotten == []
    for directory in ("/a/data", "/a/backup"):
        assert marker(disk, directory) in {old_marker(name, directory), PACKAGE}
    if isinstance(error, MarkerWriteError):
        written = error.path.removesuffix("/VERSION")
        assert (marker(disk, written) == PACKAGE) is error.replaced
        assert error.version == PACKAGE and error.path in str(error) and error.cause in str(error)
        if workload is write_both:
            assert error.role == ("data directory" if written == "/a/data" else "backup directory")
            assert f"{error.role} VERSION" in str(error)
    disk.faults.clear()
    disk.quota = None
    disk.read_only = False
    workload(disk)
    expected = {"/a/data": PACKAGE}
    if workload is write_both:
        expected["/a/backup"] = PACKAGE
    if workload is retrieve:
        expected["/a/data"] = old_marker(name) or PACKAGE
    check_settled(disk, expected)


def attempt(workload: Workload, disk: SimulatedDisk) -> BaseException | None:
    try:
        workload(disk)
    except (MarkerError, KeyboardInterrupt) as error:
        return error
    return None


def tidy(name: str, disk: SimulatedDisk) -> bool:
    """No temporary file is there but those that were there before."""
    return set(disk.temporary_files()) <= set(scene(name).temporary_files())


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EACCES, errno.EROFS, KeyboardInterrupt])
@each_workload
def test_call_that_fails_leaves_the_old_marker_or_the_new_one_and_nothing_else(
    workload: Workload, name: str, error: Any
) -> None:
    for call in each_call(workload, disk=scene(name)):
        disk = scene(name)
        disk.inject(call.fault(error))
        raised = attempt(workload, disk)
        if raised is None and error == errno.EACCES:
            assert (call.operation, call.path) in [("sync_directory", "/"), ("sync_directory", "/a")]
            continue  # a parent that cannot be read: the entry of the directory is not ours to care for
        assert raised is not None, f"{call} failed, and nobody was told"
        if error is KeyboardInterrupt:
            assert type(raised) is KeyboardInterrupt
        assert tidy(name, disk), call
        check_failed(workload, name, disk, raised)


@pytest.mark.parametrize("error", [errno.EIO, KeyboardInterrupt])
@each_workload
def test_call_that_fails_after_its_work_is_told_and_the_next_one_finishes(
    workload: Workload, name: str, error: Any
) -> None:
    for call in each_call(workload, disk=scene(name)):
        disk = scene(name)
        disk.inject(call.fault(error, after=True))
        raised = attempt(workload, disk)
        assert raised is not None
        if call.operation != "create":  # whether there is a file of ours to remove is not known then
            assert tidy(name, disk), call
        check_failed(workload, name, disk, raised)


@each_workload
def test_everything_that_fails_from_some_call_on_is_told(workload: Workload, name: str) -> None:
    """The cleaning up fails as well; what it leaves does not hinder the next call."""
    count = scene_operations(workload, name)
    for n in range(1, count + 1):
        disk = scene(name)
        disk.inject(Fault("any", n, error=errno.EIO, times=None))
        raised = attempt(workload, disk)
        assert isinstance(raised, MarkerError)
        check_failed(workload, name, disk, raised)


def scene_operations(workload: Workload, name: str) -> int:
    return sum(1 for _ in each_call(workload, disk=scene(name)))


@each_workload
def test_disk_that_turns_read_only_is_told(workload: Workload, name: str) -> None:
    for n in range(1, scene_operations(workload, name) + 1):
        disk = scene(name)
        disk.inject(turns_read_only(n))
        check_failed(workload, name, disk, attempt(workload, disk))


@pytest.mark.parametrize("room", range(len(PACKAGE)))
@pytest.mark.parametrize("name", ["old marker", "no marker", "left over"])
def test_full_disk_leaves_the_old_marker_and_no_debris(name: str, room: int) -> None:
    disk = scene(name)
    disk.inject(*disk_full(room=room))
    with pytest.raises(OSError, match="cannot write 0.47.0-alpha.2 to VERSION: No space left") as caught:
        write_version_marker("/a/data", PACKAGE, files=disk)
    assert isinstance(caught.value, MarkerWriteError)
    assert (caught.value.errno, caught.value.replaced) == (errno.ENOSPC, False)
    expected = scene(name).files()
    expected.pop("/a/data/VERSION.tmp", None)
    assert disk.files() == expected
    check_failed(write, name, disk, caught.value)


def test_full_disk_at_the_second_directory_leaves_the_first_one_new() -> None:
    disk = scene("nothing")
    disk.inject(*disk_full(n=2, room=3))
    with pytest.raises(MarkerWriteError, match="backup directory VERSION: No space left"):
        write_version_markers("/a/data", "/a/backup", PACKAGE, files=disk)
    assert disk.files() == {"/a/data/VERSION": PACKAGE.encode()}


def test_failed_removal_of_the_temporary_file_is_what_is_raised() -> None:
    """The failure of the rename stands in the same error, and the next call is not hindered."""
    disk = scene("old marker")
    disk.inject(failing("replace", error=errno.EXDEV), failing("unlink", error=errno.EPERM))
    with pytest.raises(MarkerWriteError) as caught:
        write(disk)
    assert caught.value.errno == errno.EPERM and not caught.value.replaced
    for number in (errno.EPERM, errno.EXDEV):
        assert os.strerror(number) in caught.value.cause
    assert disk.temporary_files() == ["/a/data/VERSION.tmp"]
    write(disk)
    check_settled(disk, {"/a/data": PACKAGE})


def test_failed_removal_does_not_hide_an_interrupt() -> None:
    disk = scene("old marker")
    disk.inject(failing("replace", error=KeyboardInterrupt), failing("unlink", error=errno.EPERM))
    with pytest.raises(KeyboardInterrupt):
        write(disk)
    assert marker(disk) == "0.46.0"


def test_directory_that_somebody_else_makes_meanwhile_will_do() -> None:
    disk = SimulatedDisk()

    def make(_: Any) -> None:
        disk.put({"/a/other": b""})

    disk.inject(Fault("make_directory", error=None, effect=make))
    assert retrieve_or_create("/a", PACKAGE, files=disk) == Version.parse(PACKAGE)
    assert set(disk.files()) == {"/a/other", "/a/VERSION"}


def test_marker_that_vanishes_while_it_is_read_is_not_found() -> None:
    disk = scene("old marker")
    disk.inject(failing("open_read", error=errno.ENOENT))
    with pytest.raises(MarkerNotFoundError):
        read_version_marker("/a/data", files=disk)


# The errors

ERRORS: list[PystateError] = [
    MarkerError("/data/VERSION", "message"),
    MarkerReadError("/data/VERSION", "cause", errno=errno.EIO),
    MarkerNotFoundError("/data/VERSION", found="states.db"),
    MarkerParseError("/data/VERSION", found=b"0.46", problem="a problem"),
    MarkerWriteError("/data/VERSION", "cause", version="0.46.0", replaced=True, role="data directory", errno=errno.EIO),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_can_be_pickled_and_copied(error: PystateError) -> None:
    for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert (vars(other), str(other), other.args) == (vars(error), str(error), error.args)
        assert getattr(other, "errno", None) == getattr(error, "errno", None)


def test_errors_are_those_that_a_reader_would_catch() -> None:
    assert issubclass(MarkerNotFoundError, FileNotFoundError)
    assert issubclass(MarkerNotFoundError, MarkerReadError)
    assert issubclass(MarkerReadError, OSError)
    assert issubclass(MarkerWriteError, OSError)
    assert issubclass(MarkerParseError, ValueError)
    assert all(isinstance(error, MarkerError) for error in ERRORS)
