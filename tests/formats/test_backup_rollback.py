"""The rollback drill: backup, update, migrate, fail, restore, markers back, and the older program opens the store.

With a small plan of its own; that of the REview state has its own tests. Programs of both versions are played by
`migrate` with their plans and a strict opening.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pystate
from pystate import Files, OsFiles, Rewriting
from pystate.errors import (
    BackupDamagedError,
    BackupNotFoundError,
    FamilyMismatchError,
    LockedError,
    MarkerWriteError,
    RepositoryNotFoundError,
    UnsupportedVersionError,
    VersionError,
    VersionMismatchError,
)
from pystate.formats import (
    Migration,
    MigrationPlan,
    Step,
    StepContext,
    Version,
    backup,
    migrate,
    read_version_marker,
    rewrite_values,
    write_version_markers,
)
from pystate.formats.backup import calls, rolling_back
from pystate.testing import CheckFailedError, CrashState, Level, SimulatedDisk, check, each_call
from tests.testing.mutations import Edit, edited

OLD, NEW = "0.46.0", "0.47.0-alpha.2"
OLD_FAMILIES = ["agents", "nodes"]
NEW_FAMILIES = [*OLD_FAMILIES, "attempts"]
OLD_ROWS = {b"a": b"kind", b"b": b"status"}
NEW_ROWS = {key: value + bytes(4) for key, value in OLD_ROWS.items()}

DATA, BACKUP = "/data", "/backup"
STORE, REPOSITORY = f"{DATA}/states.db", f"{BACKUP}/states.db"


def current(_: bytes, value: bytes) -> bytes:
    if not value.endswith(bytes(4)):
        raise ValueError("it does not end in four zeros")
    return value


def previous(_: bytes, value: bytes) -> bytes:
    return value


def lengthen(rewriting: Rewriting, context: StepContext) -> None:
    rewrite_values(
        rewriting,
        "agents",
        current=current,
        old=previous,
        convert=lambda value: value + bytes(4),
        kind="agent",
        progress=context.progress,
    )


CHAIN = [
    Migration(
        ">=0.46.0,<0.47.0-alpha.2", NEW, [Step.creating("attempts"), Step("lengthen", lengthen, needs=["agents"])]
    )
]
OLD_PLAN = MigrationPlan([], version=OLD, compatible=">=0.46.0,<0.47.0", families={OLD: OLD_FAMILIES})
NEW_PLAN = MigrationPlan(
    CHAIN, version=NEW, compatible=">=0.47.0-alpha.2,<0.47.0-alpha.3", families={OLD: OLD_FAMILIES, NEW: NEW_FAMILIES}
)


class Place:
    """Data and backup directory on some file system, with a store in the old format.

    Arguments:
        says: the content says its version, as it does if the store was made with the plan.
    """

    def __init__(self, files: Files, root: str, *, says: bool) -> None:
        self.files = files
        self.data, self.backup = files.join(root, "data"), files.join(root, "backup")
        self.store, self.repository = files.join(self.data, "states.db"), files.join(self.backup, "states.db")
        self.says = says

    def begin(self) -> None:
        """The old program has run."""
        write_version_markers(self.data, self.backup, OLD, files=self.files)
        metadata = OLD_PLAN.metadata if self.says else None
        with pystate.open(self.store, files=self.files, families=OLD_FAMILIES, metadata=metadata) as store:
            store.family("agents").update(OLD_ROWS)

    def start(self, plan: MigrationPlan) -> dict[bytes, bytes]:
        """A program starts: it migrates, opens the store strictly, and reads the agents."""
        migrate(self.data, self.backup, plan, files=self.files)
        with pystate.open(self.store, files=self.files, create=False, families=plan.families) as store:
            return dict(store.family("agents"))

    def create(self) -> backup.BackupInfo:
        with pystate.open(self.store, files=self.files, create=False) as store:
            return backup.create(store, self.repository, files=self.files)

    def rollback(self, backup_id: int, version: Version | str | None = OLD, **options: Any) -> backup.RestoreReport:
        return backup.rollback(self.data, self.backup, backup_id, version, files=self.files, **options)

    def restore(self, backup_id: int | None = None) -> backup.RestoreReport:
        return backup.restore(self.store, self.repository, backup_id, files=self.files)

    def markers(self) -> tuple[str, str]:
        data, other = (read_version_marker(each, files=self.files) for each in (self.data, self.backup))
        return str(data), str(other)

    def families(self) -> set[str]:
        return {*pystate.list_families(self.store, files=self.files)} - {"default"}


@pytest.fixture(params=[True, False], ids=["says its version", "says none"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    place = Place(OsFiles(), str(tmp_path), says=request.param)
    place.begin()
    return place


def test_old_content_under_old_markers_is_opened_and_migrated_again(place: Place) -> None:
    """Check R227: with a made-up plan."""
    noted = place.create()
    assert noted.version == (OLD if place.says else None)
    assert place.start(NEW_PLAN) == NEW_ROWS
    place.restore(noted.id)
    write_version_markers(place.data, place.backup, OLD, files=place.files)
    assert place.markers() == (OLD, OLD)
    assert place.families() == set(OLD_FAMILIES)
    with pystate.open(place.store, create=False, families=OLD_FAMILIES) as store:
        assert dict(store.family("agents")) == OLD_ROWS
    assert place.start(OLD_PLAN) == OLD_ROWS
    assert place.start(NEW_PLAN) == NEW_ROWS
    assert place.markers() == (NEW, NEW)


def test_old_program_refuses_until_the_markers_are_written_back(place: Place) -> None:
    """Check R228: with a made-up plan."""
    noted = place.create()
    place.start(NEW_PLAN)
    place.restore(noted.id)
    with pytest.raises(UnsupportedVersionError, match=f"migration from {NEW} is not supported") as caught:
        place.start(OLD_PLAN)
    assert caught.value.found == NEW
    write_version_markers(place.data, place.backup, OLD, files=place.files)
    assert place.start(OLD_PLAN) == OLD_ROWS


def test_families_of_an_older_backup_can_be_seen_before_anything_is_closed(place: Place) -> None:
    """Check R229: what a store that reopens itself must refuse (H-9) stands in `find`; restoring adds no family."""
    place.create()
    place.start(NEW_PLAN)
    assert {*backup.find(place.repository).families} - {"default"} == set(OLD_FAMILIES)
    place.restore()
    assert place.families() == set(OLD_FAMILIES)
    with pytest.raises(FamilyMismatchError):
        pystate.open(place.store, families=NEW_FAMILIES)


def test_id_and_version_are_all_that_a_rollback_needs(place: Place) -> None:
    """Check R230: whatever backups were made since, and twice if need be."""
    version, _ = place.markers()
    noted = place.create().id
    assert place.start(NEW_PLAN) == NEW_ROWS
    assert place.create().id == noted + 1
    for _ in range(2):
        report = place.rollback(noted, version)
        assert (report.backup.id, report.replaced, report.path) == (noted, True, place.store)
        assert place.markers() == (OLD, OLD)
        assert place.start(OLD_PLAN) == OLD_ROWS
    assert place.start(NEW_PLAN) == NEW_ROWS


def test_version_is_that_of_the_backup_if_it_says_one(place: Place) -> None:
    noted = place.create().id
    place.start(NEW_PLAN)
    if place.says:
        place.rollback(noted, None)
        assert place.start(OLD_PLAN) == OLD_ROWS
    else:
        with pytest.raises(ValueError, match="does not say which version"):
            place.rollback(noted, None)
        assert place.start(NEW_PLAN) == NEW_ROWS


def test_names_of_store_and_repository_may_be_others(place: Place) -> None:
    other = place.files.join(place.data, "other")
    with pystate.open(other, metadata={"format": OLD}) as store:
        backup.create(store, place.files.join(place.backup, "copies"))
    with pytest.raises(RepositoryNotFoundError):
        place.rollback(1)
    place.files.replace(place.files.join(place.backup, "copies"), place.files.join(place.backup, "other"))
    assert place.rollback(1, state="other").path == other


def test_what_cannot_be_rolled_back_is_left_as_it_is(place: Place) -> None:
    """Neither content nor markers are touched."""
    noted = place.create().id
    place.start(NEW_PLAN)
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (VersionError, lambda: place.rollback(noted, "0.46")),
        (VersionError, lambda: place.rollback(noted, "0.46.0 ")),
        (TypeError, lambda: place.rollback(noted, 46)),  # type: ignore[arg-type]
        (TypeError, lambda: place.rollback(None)),  # type: ignore[arg-type]
        (TypeError, lambda: place.rollback(True)),
        (ValueError, lambda: place.rollback(noted, lock_timeout=-1)),
        (BackupNotFoundError, lambda: place.rollback(99)),
    ]
    for error, call in refused:
        with pytest.raises(error):
            call()
    with pystate.open(place.store) as store:
        with pytest.raises(LockedError):
            place.rollback(noted)
        assert set(store.families) > set(NEW_FAMILIES)
    assert place.markers() == (NEW, NEW)
    content = Path(place.repository) / f"{noted:020d}.content"
    content.write_bytes(content.read_bytes().replace(b"status", b"STATUS"))
    with pytest.raises(BackupDamagedError):
        place.rollback(noted)
    assert place.markers() == (NEW, NEW)
    assert place.start(NEW_PLAN) == NEW_ROWS


def test_backup_whose_version_is_none_is_refused(place: Place) -> None:
    with pystate.memory(metadata={"format": "newest"}) as store:
        noted = backup.create(store, place.repository).id
    with pytest.raises(VersionError):
        place.rollback(noted, None)
    assert place.start(OLD_PLAN) == OLD_ROWS


# With a crash at each step


def begun(*, says: bool) -> SimulatedDisk:
    disk = SimulatedDisk()
    Place(disk, "/", says=says).begin()
    return disk


def drill(disk: SimulatedDisk) -> dict[str, int]:
    """The whole drill; how far it was when each part of it had returned."""
    place = Place(disk, "/", says=True)
    done = {"begun": disk.position}
    noted = place.create().id
    done["noted"] = disk.position
    place.start(NEW_PLAN)
    done["migrated"] = disk.position
    place.create()
    done["another"] = disk.position
    place.rollback(noted)
    done["rolled back"] = disk.position
    place.start(OLD_PLAN)
    return done


def started(place: Place, plan: MigrationPlan) -> dict[bytes, bytes] | None:
    """What a program reads when it starts, or None if it refuses to.

    Content that does not say its version may pass for that of newer markers. Then its families stop the opening here.
    """
    try:
        return place.start(plan)
    except (UnsupportedVersionError, VersionMismatchError):
        return None
    except FamilyMismatchError:
        if place.says:
            raise
        return None


class Judge:
    """Says whether what a crash in the drill has left can be brought to a good end, by whom, and is told right."""

    def __init__(self, *, says: bool) -> None:
        self.says = says
        self.seen: set[tuple[str, bool, bool]] = set()

    def __call__(self, state: CrashState) -> None:
        done: dict[str, int] = state.result
        part = [name for name, position in done.items() if position <= state.operation][-1]
        old, new = (started(self.place(state), plan) for plan in (OLD_PLAN, NEW_PLAN))
        self.seen.add((part, old is not None, new is not None))
        assert old in (None, OLD_ROWS), "the old program has read what it does not know"
        assert new in (None, NEW_ROWS), "the new program has read what it does not know"
        if part in ("begun", "noted"):  # nobody has begun to roll back
            assert new == NEW_ROWS
        if part == "rolled back":
            assert old == OLD_ROWS
        if part != "begun":
            self.roll_back(self.place(state))
            finished = self.place(state)
            if part == "noted":
                finished.start(NEW_PLAN)
            self.roll_back(finished)

    def place(self, state: CrashState) -> Place:
        return Place(state.open_disk(), "/", says=self.says)

    def roll_back(self, place: Place) -> None:
        place.rollback(1)
        assert place.markers() == (OLD, OLD)
        assert place.families() == set(OLD_FAMILIES)
        assert backup.verify(place.repository, files=place.files).ok
        assert place.start(OLD_PLAN) == OLD_ROWS
        assert place.start(NEW_PLAN) == NEW_ROWS


@pytest.mark.parametrize("says", [True, False], ids=["says its version", "says none"])
@pytest.mark.parametrize("level", [level for level in Level if level is not Level.DAMAGE], ids=lambda one: one.value)
def test_crash_at_any_step_of_the_drill_can_be_rolled_back(says: bool, level: Level) -> None:
    """Rows 85 and 87: the backup that was noted brings back the old state, whatever came between."""
    judge = Judge(says=says)
    report = check(drill, judge, level=level, disk=begun(says=says), budget=200)
    assert report.states >= 90
    assert {
        ("begun", True, True),
        ("noted", True, True),  # the content is old still
        ("noted", False, True),
        ("migrated", False, True),
        ("another", False, True),
        ("another", False, False),  # the content is old, and not both markers are
        ("rolled back", True, True),
    } <= judge.seen


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_any_call_of_a_rollback_may_fail(number: int) -> None:
    """Then it says so, and the same call finishes it."""
    disk = begun(says=True)
    place = Place(disk, "/", says=True)
    place.create()
    place.start(NEW_PLAN)
    outcomes = set()
    for call in each_call(lambda disk: Place(disk, "/", says=True).rollback(1), disk=disk):
        after = disk.clone()
        after.inject(call.fault(number))
        place = Place(after, "/", says=True)
        try:
            place.rollback(1)
        except MarkerWriteError as error:
            outcomes.add(error.role)
            assert place.families() == set(OLD_FAMILIES)
        except OSError as error:
            outcomes.add(type(error).__name__)
        after.faults.clear()
        assert not after.open_descriptors
        assert not after.held_locks
        old, new = started(Place(after.clone(), "/", says=True), OLD_PLAN), started(place, NEW_PLAN)
        assert old in (None, OLD_ROWS)
        assert new in (None, NEW_ROWS)
        place.rollback(1)
        assert place.start(OLD_PLAN) == OLD_ROWS
    assert {"data directory", "backup directory"} < outcomes


def crashes() -> None:
    check(drill, Judge(says=True), level=Level.KILL, disk=begun(says=True), budget=400, shrink=False)


BROKEN: dict[str, tuple[Callable[[], None], Edit]] = {
    "markers before the content": (
        lambda: test_any_call_of_a_rollback_may_fail(errno.EIO),
        Edit(
            rolling_back.rollback, "    report = restore(",
            "    write_version_markers(data_dir, backup_dir, target, files=files)\n    report = restore(",
        ),
    ),
    "the newest backup": (
        crashes,
        Edit(rolling_back.rollback, "restore(store, repository, id,", "restore(store, repository, None,"),
    ),
    "no markers": (
        crashes,
        Edit(rolling_back.rollback, "    write_version_markers(data_dir, backup_dir, target, files=files)\n", ""),
    ),
    "another store": (crashes, Edit(calls.restore, "report = install(path,", "report = install(str(path) + '.new',")),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_step_that_is_left_out_is_noticed(name: str) -> None:
    detect, edit = BROKEN[name]
    with edited(edit), pytest.raises((CheckFailedError, AssertionError, UnsupportedVersionError)):
        detect()
