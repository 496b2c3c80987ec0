"""`migrate`: from any version, and from whatever was left half done, to the program's own; or nothing has happened.

What a crash may leave is in `test_migration_crashes.py`, what follows from markers and content in `test_standing.py`.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pystate
from pystate import Rewriting, RowChanges
from pystate.engine.files import HeldLock
from pystate.errors import (
    ContentVersionError,
    FamilyConflictError,
    LockedError,
    MarkerNotFoundError,
    MarkerParseError,
    MarkerWriteError,
    MigrationFamiliesError,
    MixedShapesError,
    StoreNotFoundError,
    UnknownShapeError,
    UnsupportedVersionError,
    VersionMismatchError,
)
from pystate.formats import (
    Migration,
    Step,
    StepContext,
    StepReport,
    Version,
    migrate,
    migrating,
    standing,
    write_version_markers,
)
from pystate.formats import plan as plan_module
from pystate.testing import Fault, SimulatedDisk, each_call
from tests.engine.children import Child
from tests.engine.directories import fingerprint
from tests.engine.interrupts import Interrupt, at_each_place
from tests.engine.memory_files import MemoryFiles
from tests.engine.watched_files import WatchedFiles
from tests.formats.shop import (
    BACKUP,
    DATA,
    MIGRATIONS,
    PROGRAMS,
    STORE,
    Families,
    content_of,
    files_of,
    finished,
    look_at,
    make,
    markers,
    partial_states,
    plan_of,
    run,
    unchanged,
)
from tests.markdown import ROOT

NEWEST = "0.4.0-alpha.2"
DONE = (content_of(NEWEST), NEWEST)
BOTH = ("data directory", "backup directory")


def shop(version: str = "0.1.0", **options: Any) -> SimulatedDisk:
    """A disk with the content of a version, and markers that say so."""
    disk = SimulatedDisk()
    make(disk, options.pop("state", content_of(version)), options.pop("marker", version), **options)
    return disk


def check_done(disk: SimulatedDisk, state: Families | None = None) -> None:
    """Content and markers are of the newest version, and nothing is left to do, open, locked or lying about."""
    assert look_at(disk) == (content_of(NEWEST) if state is None else state, NEWEST)
    assert markers(disk) == (NEWEST, NEWEST)
    with unchanged(disk):
        report = run(disk)
    assert not report.changed
    assert not disk.open_descriptors
    assert not disk.held_locks
    assert not [path for path in disk.files() if path.endswith(".tmp")]


# New directories


@pytest.mark.parametrize("depth", ["/data", "/not/there/data"])
def test_new_directories_get_the_version_of_the_program_and_no_store(depth: str) -> None:
    """Check R170: absent, with their parents; the marker is exactly the version, and there is nothing else."""
    disk = SimulatedDisk()
    backup = depth + " backup"
    with unchanged(disk):
        would = migrate(depth, backup, plan_of(), files=disk, dry_run=True)
    report = migrate(depth, backup, plan_of(), files=disk)
    assert disk.files() == {f"{depth}/VERSION": NEWEST.encode(), f"{backup}/VERSION": NEWEST.encode()}
    for each in (would, report):
        assert (each.created_markers, each.completed_markers, each.changed) == (BOTH, (), True)
        assert (each.database_marker, each.backup_marker) == (None, None)
        assert each.before == each.version == Version.parse(NEWEST)
        assert (each.steps, each.rewrite) == ((), None)
        assert (each.data_dir, each.backup_dir, each.path) == (depth, backup, f"{depth}/states.db")
    assert (would.dry_run, report.dry_run) == (True, False)
    assert not migrate(depth, backup, plan_of(), files=disk).changed


def test_new_directory_beside_an_old_one() -> None:
    """The backups may be moved elsewhere; a marker of another version beside an empty directory is a mismatch."""
    disk = shop(NEWEST, content=NEWEST)
    report = migrate(DATA, "/elsewhere", plan_of(), files=disk)
    assert report.created_markers == ("backup directory",)
    assert disk.files()["/elsewhere/VERSION"] == NEWEST.encode()
    disk = shop("0.3.0")
    with unchanged(disk), pytest.raises(VersionMismatchError, match=f"version 0.3.0 and backup version {NEWEST}"):
        migrate(DATA, "/elsewhere", plan_of(), files=disk)


def test_leftover_of_a_marker_does_not_hinder() -> None:
    """Check R171: `VERSION.tmp` alone makes no directory an old one."""
    disk = SimulatedDisk()
    disk.put({f"{DATA}/VERSION.tmp": b"0.4", f"{BACKUP}/VERSION.tmp": b""})
    run(disk)
    assert disk.files() == {f"{DATA}/VERSION": NEWEST.encode(), f"{BACKUP}/VERSION": NEWEST.encode()}


@pytest.mark.parametrize("directory", [DATA, BACKUP])
def test_directory_without_a_marker_is_not_stamped_if_it_holds_anything(directory: str) -> None:
    """Check R172: error "cannot open VERSION"; nothing created, not even the marker of the other, new directory."""
    disk = SimulatedDisk()
    disk.put({f"{directory}/states.db/file": b""})
    for dry_run in (False, True):
        with unchanged(disk), pytest.raises(MarkerNotFoundError, match="cannot open VERSION"):
            run(disk, dry_run=dry_run)


# Refused


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize(
    ("data", "backup", "error", "text"),
    [
        (b"0.4.0", b"0.4.1", VersionMismatchError, "database version 0.4.0 and backup version 0.4.1"),
        (b"0.3.0", b"0.1.0", VersionMismatchError, "database version 0.3.0 and backup version 0.1.0"),
        (b"not-a-valid-version", b"0.3.0", MarkerParseError, "cannot parse VERSION"),
        (b"0.3.0\n", b"0.3.0\n", MarkerParseError, "cannot parse VERSION"),
        (b"0.3.0", b"", MarkerParseError, "cannot parse VERSION"),
        (b"0.0.9", b"0.0.9", UnsupportedVersionError, "migration from 0.0.9 is not supported"),
        (b"0.4.0", b"0.4.0", UnsupportedVersionError, "migration from 0.4.0 is not supported"),
        (b"0.4.0-alpha.3", b"0.4.0-alpha.3", UnsupportedVersionError, "migration from 0.4.0-alpha.3 is not supported"),
        (b"0.3.0-alpha.1", b"0.3.0-alpha.1", UnsupportedVersionError, "migration from 0.3.0-alpha.1 is not supported"),
    ],
)
def test_markers_that_are_not_right_stop_everything(
    data: bytes, backup: bytes, error: type[Exception], text: str, store: bool, dry_run: bool
) -> None:
    """Checks R173, R174 and R175: not a byte is changed, with or without a store."""
    disk = shop("0.3.0") if store else SimulatedDisk()
    disk.put({f"{DATA}/VERSION": data, f"{BACKUP}/VERSION": backup, f"{DATA}/other": b"file"})
    with unchanged(disk), pytest.raises(error, match=text):
        run(disk, dry_run=dry_run)
    assert (f"{STORE}/LOCK" in disk.files()) == store


def test_without_a_store_there_is_nothing_to_do_at_the_right_version() -> None:
    """Check R176: succeeds, and makes none."""
    disk = SimulatedDisk()
    write_version_markers(DATA, BACKUP, NEWEST, files=disk)
    with unchanged(disk):
        assert not run(disk).changed


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("beside", [{}, {f"{DATA}/other": b"file"}, {f"{STORE}/foreign": b"file"}], ids=repr)
def test_without_a_store_there_is_nothing_to_migrate(beside: dict[str, bytes], dry_run: bool) -> None:
    """Check R219: old markers and no store: it fails, and makes none."""
    disk = SimulatedDisk()
    write_version_markers(DATA, BACKUP, "0.3.0", files=disk)
    disk.put(beside)
    with unchanged(disk), pytest.raises(StoreNotFoundError, match="the marker beside it says version 0.3.0") as caught:
        run(disk, dry_run=dry_run)
    assert caught.value.path == STORE


@pytest.mark.parametrize("marker", PROGRAMS)
def test_content_of_a_newer_format_is_refused_unchanged(marker: str) -> None:
    """Both versions are named. The markers may be behind, since the newer program was stopped before it wrote them."""
    for program in list(PROGRAMS)[:-1]:
        if plan_of(program).place(Version.parse(marker)) is None:
            continue
        disk = shop(NEWEST, marker=marker, content=NEWEST)
        with unchanged(disk), pytest.raises(UnsupportedVersionError) as caught:
            run(disk, program)
        assert (caught.value.found, caught.value.supported) == (NEWEST, program)
        assert NEWEST in str(caught.value) and program in str(caught.value)
        disk = shop(NEWEST, content=NEWEST)
        with unchanged(disk), pytest.raises(UnsupportedVersionError, match=f"from {NEWEST} is not supported"):
            run(disk, program)


def test_older_content_under_new_markers_is_refused() -> None:
    """A restored backup whose markers were not written."""
    disk = shop("0.3.0", marker=NEWEST, content="0.3.0")
    with unchanged(disk), pytest.raises(VersionMismatchError, match="mismatched content of version 0.3.0"):
        run(disk)
    write_version_markers(DATA, BACKUP, "0.3.0", files=disk)
    run(disk)
    check_done(disk)


def test_content_that_belongs_to_somebody_else_is_refused() -> None:
    disk = shop("0.3.0", content="2")
    with unchanged(disk), pytest.raises(ContentVersionError) as caught:
        run(disk)
    assert (caught.value.path, caught.value.found) == (STORE, "2")


def test_damaged_store_is_refused() -> None:
    disk = shop("0.3.0")
    disk.put({path: content[:-9] + b"\xff" * 9 for path, content in disk.files().items() if path.startswith(STORE)})
    with unchanged(disk), pytest.raises(pystate.CorruptionError):
        run(disk)


BROKEN: dict[str, tuple[dict[str, dict[bytes, bytes] | None], type[Exception]]] = {
    "conflict": ({"labels": {b"tag 1": b"another"}}, FamilyConflictError),
    "foreign value": ({"stock": {b"item 0": b"\x91\x00", b"item 9": b"foreign"}}, UnknownShapeError),
    "mixed shapes": ({"orders": {b"a": b"\x92\x01\xa1t", b"b\x01": b"\x91\xa1t"}}, MixedShapesError),
    "unexpected family": ({"foreign": {b"k": b"v"}}, MigrationFamiliesError),
    "missing family": ({"stock": None}, MigrationFamiliesError),
}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("name", BROKEN)
def test_a_step_that_fails_leaves_everything_byte_for_byte(name: str, dry_run: bool) -> None:
    """Whatever the steps before it have done; and when the cause is gone, the same call succeeds."""
    replaced, error = BROKEN[name]
    state = {key: rows for key, rows in {**content_of("0.1.0"), **replaced}.items() if rows is not None}
    disk = shop(state=state)
    with unchanged(disk), pytest.raises(error):
        run(disk, dry_run=dry_run)
    with pystate.open(STORE, files=disk) as store:
        for family, rows in content_of("0.1.0").items():
            if family not in store.families:
                store.create_family(family)
            store.family(family).clear()
            store.family(family).update(rows)
        for family in set(store.families) - set(content_of("0.1.0")):
            store.drop_family(family)
    run(disk)
    check_done(disk)


def failing(error: BaseException, at: int) -> dict[str, Any]:
    """A plan whose step number `at` does half of its work and fails."""

    def fail(rewriting: Rewriting, _: StepContext) -> None:
        rewriting.family("default").clear()
        rewriting.create_family("half")
        raise error

    migrations = []
    for version in ("0.2.0", "0.3.0", NEWEST):
        requirement, steps = MIGRATIONS[version]
        steps = [*steps[:at], Step("fail", fail), *steps[at:]] if version == "0.3.0" else steps
        migrations.append(Migration(requirement, version, steps))
    return {"migrations": migrations}


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("kind", [KeyError, OSError, KeyboardInterrupt])
def test_any_error_of_any_step_leaves_everything_byte_for_byte(kind: type[BaseException], at: int) -> None:
    error = kind("text")
    disk = shop(content="0.1.0")
    plan = plan_of(NEWEST, **failing(error, at))
    with unchanged(disk), pytest.raises(kind) as caught:
        migrate(DATA, BACKUP, plan, files=disk)
    assert caught.value is error
    if isinstance(error, Exception):
        assert error.__notes__ == ["in step 'fail' of the migration to 0.3.0"]


# Migrated

PARTIAL = list(partial_states())


@pytest.mark.parametrize("says", [False, True], ids=["content says nothing", "content says its version"])
@pytest.mark.parametrize("number", range(len(PARTIAL)), ids=[f"{version} {name}" for version, name, _ in PARTIAL])
def test_whatever_a_stopped_run_has_left_is_finished(number: int, says: bool) -> None:
    """What is done is left alone, all data is kept, and content and markers end at the program's version."""
    version, _, state = PARTIAL[number]
    disk = shop(version, state=state, content=version if says else None)
    with unchanged(disk):
        would = run(disk, dry_run=True)
    report = run(disk)
    check_done(disk, finished(state))
    assert report.rewrite is not None and would.rewrite is not None
    assert (report.before, report.version) == (would.before, would.version) == (
        Version.parse(version), Version.parse(NEWEST)
    )  # fmt: skip
    assert would.steps == report.steps
    assert would.rewrite.rows == report.rewrite.rows
    assert report.completed_markers == would.completed_markers == ()


@pytest.mark.parametrize("version", PROGRAMS)
def test_every_program_migrates_from_every_older_one(version: str) -> None:
    """A program is played by its plan; each leaves what the next one takes, in one leap or in many."""
    programs = list(PROGRAMS)
    for target in programs[programs.index(version) :]:
        disk = shop(version, content=version)
        report = run(disk, target)
        assert look_at(disk) == (content_of(target), target)
        assert markers(disk) == (target, target)
        assert report.changed == (target != version)
        for later in programs[programs.index(target) :]:
            run(disk, later)
            assert look_at(disk) == (content_of(later), later)
            assert markers(disk) == (later, later)


def test_report_says_what_was_found_and_done() -> None:
    disk = shop("0.2.0")
    report = run(disk)
    assert (report.data_dir, report.backup_dir, report.path, report.dry_run) == (DATA, BACKUP, STORE, False)
    assert report.database_marker == report.backup_marker == report.before == Version(0, 2, 0)
    assert report.version == Version.parse(NEWEST)
    three, four = Version(0, 3, 0), Version.parse(NEWEST)
    assert report.steps == (
        StepReport(step="give units", target=three, created=(), dropped=()),
        StepReport(step="make the category optional", target=three, created=(), dropped=()),
        StepReport(step="key orders by name", target=three, created=(), dropped=()),
        StepReport(step="create 'jobs'", target=four, created=("jobs",), dropped=()),
        StepReport(step="create 'effects'", target=four, created=("effects",), dropped=()),
    )
    assert report.rewrite is not None
    assert report.rewrite.rows == {
        "stock": RowChanges(added=0, removed=0, changed=3),
        "prices": RowChanges(added=0, removed=0, changed=3),
        "orders": RowChanges(added=3, removed=3, changed=0),
    }
    assert report.rewrite.created == ("effects", "jobs")
    assert (report.rewrite.metadata_before, report.rewrite.metadata) == ({}, {"format": NEWEST})
    assert report.changed


def test_other_metadata_and_other_files_stay() -> None:
    """Beside the store, and in the store beside the version."""
    disk = SimulatedDisk()
    write_version_markers(DATA, BACKUP, "0.3.0", files=disk)
    with pystate.open(STORE, files=disk, families=content_of("0.3.0"), metadata={"owner": "me", "format": "0.3.0"}):
        pass
    beside = {f"{DATA}/pretrained/model": b"bytes", f"{DATA}/note": b"text", f"{BACKUP}/states.db/1": b"backup"}
    disk.put(beside)
    run(disk)
    assert pystate.read_metadata(STORE, files=disk) == {"owner": "me", "format": NEWEST}
    assert beside.items() <= disk.files().items()


def test_store_may_have_another_name() -> None:
    disk = shop("0.3.0")
    disk.put({path.replace("states.db", "shop.db"): content for path, content in disk.files().items()})
    report = run(disk, state="shop.db")
    assert report.path == f"{DATA}/shop.db"
    assert pystate.read_metadata(report.path, files=disk) == {"format": NEWEST}
    assert look_at(disk) == (content_of("0.3.0"), None)


def test_store_made_with_what_the_plan_says_is_of_its_version() -> None:
    """As a new program does at its first start; and a later program takes it from there."""
    disk = SimulatedDisk()
    plan = plan_of("0.2.0")
    run(disk, "0.2.0")
    pystate.open(STORE, files=disk, families=plan.families, metadata=plan.metadata).close()
    assert not run(disk, "0.2.0").changed
    assert run(disk).before == Version(0, 2, 0)


def test_progress_tells_of_every_step_and_of_the_writing() -> None:
    disk, told = shop(), list[tuple[str, int, int]]()
    run(disk, progress=lambda *arguments: told.append(arguments))
    steps = [step.name for migration in plan_of().migrations for step in migration.steps]
    assert list(dict.fromkeys(step for step, _, _ in told)) == [*steps, "write"]
    assert told[-1] == ("write", 14, 14) == ("write", *[sum(map(len, DONE[0].values()))] * 2)
    told.clear()
    run(disk, progress=lambda *arguments: told.append(arguments))
    assert told == []
    run(shop(), progress=lambda *arguments: told.append(arguments), dry_run=True)
    assert list(dict.fromkeys(step for step, _, _ in told)) == steps


@pytest.mark.parametrize("part", ["drop 'accounts'", "give units", "write"])
def test_progress_that_raises_stops_it_and_nothing_has_changed(part: str) -> None:
    disk = shop()

    def progress(name: str, done: int, total: int) -> None:
        if name == part:
            raise TimeoutError("too slow")

    with unchanged(disk), pytest.raises(TimeoutError, match="too slow"):
        run(disk, progress=progress)


# Markers that are behind

BEHIND = [
    ("0.1.0", "0.1.0", ("backup directory", "data directory")),
    ("0.1.0", NEWEST, ("data directory",)),
    ("0.3.0", "0.3.0", ("backup directory", "data directory")),
]


@pytest.mark.parametrize(("data", "backup", "completed"), BEHIND)
def test_markers_behind_the_content_are_completed_and_the_report_says_so(
    data: str, backup: str, completed: tuple[str, ...]
) -> None:
    """No step is run: what the content says of itself is believed."""
    disk = shop(NEWEST, marker=data, backup=backup, content=NEWEST)
    before = {path: content for path, content in files_of(disk).items() if path.startswith(STORE)}
    with unchanged(disk):
        would = run(disk, dry_run=True)
    report = run(disk)
    assert report.completed_markers == would.completed_markers == completed
    assert (report.steps, report.rewrite, report.created_markers) == ((), None, ())
    assert report.before == report.version == Version.parse(NEWEST)
    assert (str(report.database_marker), str(report.backup_marker)) == (data, backup)
    assert before.items() <= disk.files().items()
    check_done(disk)


def test_markers_behind_older_content_are_completed_before_it_is_migrated() -> None:
    """An older program was stopped behind its content; the one that goes on is a newer one."""
    for backup, completed in (("0.1.0", ("backup directory", "data directory")), ("0.3.0", ("data directory",))):
        disk = shop("0.3.0", marker="0.1.0", backup=backup, content="0.3.0")
        with unchanged(disk):
            would = run(disk, dry_run=True)
        report = run(disk)
        check_done(disk)
        assert report.completed_markers == would.completed_markers == completed
        assert (report.before, report.version) == (would.before, would.version)
        assert (str(report.before), str(report.version)) == ("0.3.0", NEWEST)
        assert would.rewrite is not None and report.steps == would.steps != ()


def test_backup_directory_that_is_gone_is_made_again() -> None:
    disk = shop(NEWEST, marker="0.1.0", content=NEWEST)
    report = migrate(DATA, "/elsewhere", plan_of(), files=disk)
    assert report.completed_markers == ("data directory",)
    assert report.created_markers == ("backup directory",)
    assert disk.files()["/elsewhere/VERSION"] == disk.files()[f"{DATA}/VERSION"] == NEWEST.encode()


def test_completed_markers_are_those_of_the_content_not_of_the_program() -> None:
    """Else they would be ahead of it."""
    later = plan_of(version="0.4.0-alpha.2.5")
    disk = shop(NEWEST, marker="0.3.0", content=NEWEST)
    assert migrate(DATA, BACKUP, later, files=disk).version == Version.parse(NEWEST)
    assert markers(disk) == (NEWEST, NEWEST)
    assert not migrate(DATA, BACKUP, later, files=disk).changed


# Who else is there


def test_open_store_is_not_touched() -> None:
    """LockedError; and as soon as it is closed, it can be migrated."""
    for content, marker in ((None, "0.1.0"), ("0.1.0", "0.1.0")):
        disk = shop(content=content, marker=marker)
        with pystate.open(STORE, files=disk):
            for dry_run in (False, True):
                with unchanged(disk), pytest.raises(LockedError):
                    run(disk, dry_run=dry_run)
        run(disk)
        check_done(disk)
    disk = shop(NEWEST, marker="0.1.0", content=NEWEST)
    with pystate.open(STORE, files=disk), unchanged(disk), pytest.raises(LockedError):
        run(disk)


def test_open_store_that_needs_nothing_is_no_hindrance() -> None:
    disk = shop(NEWEST, content=NEWEST)
    with pystate.open(STORE, files=disk), unchanged(disk):
        assert not run(disk).changed


def test_store_that_is_open_in_another_process_is_not_touched(tmp_path: Path) -> None:
    data, backup = real_shop(tmp_path)
    before = fingerprint(tmp_path)
    with Child("serve", data / "states.db") as child:
        assert child.hear() == "open"
        with pytest.raises(LockedError) as caught:
            migrate(data, backup, plan_of())
        assert caught.value.pid == child.pid
        child.finish()
    migrate(data, backup, plan_of())
    assert fingerprint(tmp_path) != before
    assert not migrate(data, backup, plan_of()).changed


def real_shop(root: Path, **options: Any) -> tuple[Path, Path]:
    """A shop in real directories."""
    data, backup = root / "data", root / "backup"
    for directory in (data, backup):
        directory.mkdir()
        (directory / "VERSION").write_bytes(b"0.1.0")
    with pystate.open(data / "states.db", families=content_of("0.1.0")) as store:
        for name, rows in content_of("0.1.0").items():
            store.family(name).update(rows)
    return data, backup


def test_of_several_processes_at_once_one_migrates(tmp_path: Path) -> None:
    """The others wait for it, or find it done; all of them succeed, and none completes what was not left behind."""
    data, backup = real_shop(tmp_path)
    command = [sys.executable, "-m", "tests.formats.shop", str(data), str(backup)]
    pipe = subprocess.PIPE
    children = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(4)]
    try:
        for child in children:
            assert child.stdout is not None and child.stdin is not None
            assert child.stdout.readline() == "ready\n", child.communicate()
        ended = [child.communicate("go\n") for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()
    assert [errors for _, errors in ended] == [""] * 4
    did = [json.loads(said)[0] for said, _ in ended]
    assert sorted(did) == [False, False, False, True]
    with pystate.open(data / "states.db", read_only=True) as store:
        assert {name: dict(store.family(name)) for name in store.families} == content_of(NEWEST)
    assert (data / "VERSION").read_bytes() == (backup / "VERSION").read_bytes() == NEWEST.encode()


def test_of_several_threads_at_once_one_migrates(tmp_path: Path) -> None:
    data, backup = real_shop(tmp_path)
    found: list[object] = []

    def work() -> None:
        try:
            found.append(migrate(data, backup, plan_of(), lock_timeout=60.0).rewrite is not None)
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=str) == [False] * 5 + [True]


@contextmanager
def someone_else(files: WatchedFiles, number: int, does: Callable[[], object]) -> Iterator[None]:
    """Somebody does something just before the `number`-th time that the lock is taken through `files`."""
    seen = 0

    def before(operation: str, path: str) -> None:
        nonlocal seen
        seen += operation == "lock"
        if operation == "lock" and seen == number:
            does()

    files.before = before
    yield
    files.before = None
    assert seen >= number


def watched(version: str = "0.1.0", **options: Any) -> tuple[MemoryFiles, WatchedFiles]:
    memory = MemoryFiles()
    make(memory, content_of(version), options.pop("marker", version), **options)
    return memory, WatchedFiles(memory)


def check_migrated(memory: MemoryFiles) -> None:
    assert look_at(memory) == DONE
    assert markers(memory) == (NEWEST, NEWEST)
    assert not run(memory).changed


def test_who_waited_finds_it_done() -> None:
    """What was decided before the lock is decided again behind it."""
    memory, files = watched()
    with someone_else(files, 1, lambda: run(memory)):
        report = run(files)
    assert (report.rewrite, report.steps, report.completed_markers) == (None, (), ())
    assert (str(report.before), str(report.version)) == ("0.1.0", NEWEST)
    check_migrated(memory)


def test_who_does_not_get_the_lock_is_content_if_it_is_done() -> None:
    """The other process has migrated, and has the store open by now."""
    memory, files = watched()
    opened = []

    def other() -> None:
        run(memory)
        opened.append(pystate.open(STORE, files=memory))

    with someone_else(files, 1, other):
        assert run(files).rewrite is None
    opened[0].close()
    check_migrated(memory)


def test_who_comes_between_content_and_markers_finds_a_job_to_finish() -> None:
    """He finishes it; the one who was interrupted finds it done."""
    memory, files = watched()
    reports = []
    with someone_else(files, 2, lambda: reports.append(run(memory))):
        report = run(files)
    assert report.rewrite is not None
    assert report.completed_markers == ()
    assert reports[0].rewrite is None
    assert reports[0].completed_markers == ("backup directory", "data directory")
    check_migrated(memory)


def test_lock_that_is_lost_between_content_and_markers_is_told() -> None:
    """Somebody has opened the store just then: the content is migrated, which a note says; the next call finishes."""
    memory, files = watched()
    opened = []
    with someone_else(files, 2, lambda: opened.append(pystate.open(STORE, files=memory))):
        with pytest.raises(LockedError) as caught:
            run(files)
    assert caught.value.__notes__ == [
        "the content is migrated, and not both markers are written; migrate again to finish"
    ]
    assert look_at(memory) == DONE
    assert markers(memory) == ("0.1.0", "0.1.0")
    with pytest.raises(LockedError) as caught:
        run(memory)
    assert not hasattr(caught.value, "__notes__")
    opened[0].close()
    assert run(memory).completed_markers == ("backup directory", "data directory")
    check_migrated(memory)


def test_markers_are_not_written_over_what_has_changed_meanwhile() -> None:
    """A newer program has been there in between: its content and markers are left alone."""
    memory, files = watched("0.2.0", content="0.2.0")
    with someone_else(files, 2, lambda: run(memory)):
        with pytest.raises(UnsupportedVersionError):
            run(files, "0.3.0")
    check_migrated(memory)


def test_content_that_is_put_back_meanwhile_is_migrated_again() -> None:
    """Somebody has restored what was there, just before the markers: they are written once, for the new content."""
    memory, files = watched(marker="0.1.5", content="0.1.5")

    def put_back(rewriting: Rewriting) -> None:
        for name in set(rewriting.families) - {"default"}:
            rewriting.drop_family(name)
        for name, rows in content_of("0.1.0").items():
            if name != "default":
                rewriting.create_family(name).update(rows)
        rewriting.metadata["format"] = "0.1.0"

    with someone_else(files, 2, lambda: pystate.rewrite(STORE, put_back, files=memory)):
        run(files)
    written = [path for operation, path in files.trace if operation == "replace" and path.endswith("VERSION")]
    assert written == [f"{BACKUP}/VERSION", f"{DATA}/VERSION"]
    check_migrated(memory)


def test_once_the_content_is_migrated_the_lock_is_worth_waiting_for() -> None:
    waits = []

    class Patient(MemoryFiles):
        def lock(self, directory: str, name: str, timeout: float) -> HeldLock:
            waits.append(timeout)
            return super().lock(directory, name, timeout)

    for given, expected in ((0.0, [0.0, 10.0]), (60.0, [60.0, 60.0])):
        files = Patient()
        make(files, content_of("0.1.0"), "0.1.0")
        waits.clear()
        run(files, lock_timeout=given)
        assert waits == expected
    make(files := Patient(), content_of(NEWEST), "0.1.0", content=NEWEST)
    waits.clear()
    run(files)
    assert waits == [0.0]


# Failures


def begin_somewhere(name: str) -> SimulatedDisk:
    if name == "new":
        return SimulatedDisk()
    version, options = SCENES[name]
    return shop(version, **options)


SCENES: dict[str, tuple[str, dict[str, str]]] = {
    "old": ("0.1.0", {}),
    "old, content says so": ("0.2.0", {"content": "0.2.0"}),
    "markers behind": (NEWEST, {"marker": "0.1.0", "content": NEWEST}),
    "one marker behind": (NEWEST, {"marker": "0.1.0", "backup": NEWEST, "content": NEWEST}),
    "older markers behind": ("0.2.0", {"marker": "0.1.0", "content": "0.2.0"}),
    "new": ("", {}),
}


def check_old_or_new(disk: SimulatedDisk, scene: SimulatedDisk) -> None:
    """Content and markers are each of one version, and content is never behind the markers."""
    found, version = look_at(disk)
    before = look_at(scene.clone())
    assert (found, version) in (before, DONE if before[0] is not None else before)
    if before[0] is not None:
        old = markers(scene.clone())
        data, backup = markers(disk)
        assert data in (old[0], before[1], NEWEST) and backup in (old[1], before[1], NEWEST)
        assert data != NEWEST or backup == NEWEST or old[0] == NEWEST
        assert backup != NEWEST or version == NEWEST


def finish(disk: SimulatedDisk) -> None:
    run(disk)
    if STORE in disk.directories():
        check_done(disk)
    else:
        assert markers(disk) == (NEWEST, NEWEST)


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_failure_of_any_call_leaves_what_the_next_one_finishes(name: str, number: int) -> None:
    scene = begin_somewhere(name)
    for call in list(each_call(run, disk=scene)):
        disk = scene.clone()
        disk.inject(call.fault(number))
        try:
            run(disk)
        except (pystate.PystateError, OSError):
            pass
        disk.faults.clear()
        assert not disk.open_descriptors
        assert not disk.held_locks
        if name != "new":
            check_old_or_new(disk, scene)
        finish(disk)


@pytest.mark.parametrize("name", SCENES)
def test_interrupt_at_any_call_leaves_what_the_next_one_finishes(name: str) -> None:
    scene = begin_somewhere(name)
    for call in list(each_call(run, disk=scene)):
        for after in (False, True) if call.operation != "lock" else (False,):
            disk = scene.clone()
            disk.inject(call.fault(KeyboardInterrupt(), after=after))
            with pytest.raises(KeyboardInterrupt):
                run(disk)
            disk.faults.clear()
            assert not disk.held_locks
            disk.kill()
            if name != "new":
                check_old_or_new(disk, scene)
            finish(disk)


def test_interrupt_at_any_place_in_the_code_leaves_what_the_next_one_finishes() -> None:
    """Not only at the calls of the disk: wherever the code of this layer looks for signals."""
    seen = set()

    def action(interrupt: Interrupt) -> None:
        memory, files = watched()
        try:
            with interrupt:
                run(files)
        except KeyboardInterrupt:
            assert interrupt.hit
        del interrupt
        assert (files.open_files, files.held_locks) == ([], 0)
        found, version = look_at(memory)
        assert (found, version) in ((content_of("0.1.0"), None), DONE)
        seen.add((version, *markers(memory)))
        run(memory)
        check_migrated(memory)

    assert at_each_place(action, migrating, standing, plan_module) > 100
    # Between the two markers all code is that of ``markers``.
    assert seen == {(None, "0.1.0", "0.1.0"), (NEWEST, "0.1.0", "0.1.0"), (NEWEST, NEWEST, NEWEST)}


def test_full_disk_leaves_no_debris() -> None:
    """However much room there is: no file but those that were there, unless it was a marker, behind all else."""
    scene, room, refused = shop(content="0.1.0"), 0, 0
    while True:
        disk = scene.clone()
        disk.quota = disk.used_bytes() + room
        try:
            run(disk)
            break
        except pystate.DiskFullError:
            refused += 1
            assert files_of(disk) == files_of(scene)
        except MarkerWriteError as error:
            assert error.errno == errno.ENOSPC
            assert error.__notes__ == [
                "the content is migrated, and not both markers are written; migrate again to finish"
            ]
            assert look_at(disk) == DONE
        assert not [path for path in disk.files() if path.endswith(".tmp")]
        disk.quota = None
        check_old_or_new(disk, scene)
        finish(disk)
        room += 37
    assert refused > 5


def test_full_disk_at_a_marker_is_told() -> None:
    disk = shop(NEWEST, marker="0.1.0", content=NEWEST)
    disk.inject(Fault("write", 1, path="VERSION.tmp", error=errno.ENOSPC))
    with pytest.raises(MarkerWriteError) as caught:
        run(disk)
    assert caught.value.path == f"{BACKUP}/VERSION"
    assert not hasattr(caught.value, "__notes__")
    disk.faults.clear()
    finish(disk)


def test_content_that_may_not_last_gets_no_markers() -> None:
    """The sync behind the rename failed: StoreFailedError, and whatever power loss leaves, the next call finishes."""
    disk = shop()
    disk.inject(Fault("replace", 1, path=".snapshot", error=errno.EIO, after=True))
    with pytest.raises(pystate.StoreFailedError):
        run(disk)
    assert markers(disk) == ("0.1.0", "0.1.0")
    disk.faults.clear()
    finish(disk)


# Arguments


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((None, "/b", plan_of()), {}, TypeError),
        (("/a", b"/b", plan_of()), {}, TypeError),
        (("", "/b", plan_of()), {}, ValueError),
        (("/a", "/b", None), {}, TypeError),
        (("/a", "/b", plan_of()), {"state": b"states.db"}, TypeError),
        (("/a", "/b", plan_of()), {"progress": 1}, TypeError),
        (("/a", "/b", plan_of()), {"lock_timeout": "1"}, TypeError),
        (("/a", "/b", plan_of()), {"lock_timeout": -1}, ValueError),
        *(
            (("/a", "/b", plan_of()), {"state": name}, ValueError)
            for name in ("", ".", "..", "/", "a/b", "../a", "a/", "a\0", "VERSION", "version", "VERSION.tmp")
        ),
    ],
)
def test_what_cannot_be_is_refused_before_the_disk_is_touched(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception]
) -> None:
    disk = SimulatedDisk()
    for dry_run in (False, True):
        with pytest.raises(error):
            migrate(*arguments, files=disk, dry_run=dry_run, **options)
    assert disk.position == 0


def test_directories_may_be_paths_relative_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = migrate("data", Path("backup"), plan_of())
    assert (report.data_dir, report.backup_dir) == (str(tmp_path / "data"), str(tmp_path / "backup"))
    assert report.created_markers == BOTH
