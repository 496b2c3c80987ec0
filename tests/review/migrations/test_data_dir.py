"""`migrate_data_dir`, the chain that it runs, and the store that is opened after it."""

from __future__ import annotations

from pathlib import Path

import pytest

import pystate
from pystate.errors import (
    LockedError,
    MarkerNotFoundError,
    MarkerParseError,
    StoreNotFoundError,
    UnsupportedVersionError,
    VersionMismatchError,
)
from pystate.formats import FORMAT_KEY, Migration, MigrationPlan, Version, read_version_marker
from pystate.review import (
    COMPATIBLE,
    FAMILIES,
    MIGRATION_PLAN,
    VERSION,
    ReviewStore,
    migrate_data_dir,
    write_version_markers,
)
from pystate.review.families import FAMILIES_0_42, FAMILIES_0_43
from pystate.testing import SimulatedDisk
from tests.formats.shop import unchanged
from tests.review.migrations.fixtures import (
    BACKUP,
    DATA,
    FORMATS,
    NEWEST,
    STORE,
    check_same,
    content_of,
    finished,
    look_at,
    make,
    markers,
    run,
)


def test_new_directories(tmp_path: Path) -> None:
    """Check R169: 39 families; both markers, and the content, say the version of this program."""
    data, backup = tmp_path / "deep" / "data", tmp_path / "backup"
    report = migrate_data_dir(data, backup)
    assert report.created_markers == ("data directory", "backup directory")
    assert not (data / "states.db").exists()
    with ReviewStore.open(data, backup) as review:
        assert set(review.store.families) - {"default"} == set(FAMILIES)
        assert len(FAMILIES) == 39
        assert review.store.metadata == {FORMAT_KEY: NEWEST}
    assert [read_version_marker(each) for each in (data, backup)] == [VERSION, VERSION]
    assert (data / "VERSION").read_bytes() == NEWEST.encode()
    assert pystate.read_metadata(data / "states.db") == {FORMAT_KEY: NEWEST}
    assert not migrate_data_dir(data, backup).changed
    assert ReviewStore.memory().store.metadata == {FORMAT_KEY: NEWEST}


def test_migrated_store_says_its_version_as_a_new_one_does() -> None:
    """Section 12.6: and it opens; opening a store that exists changes no metadata."""
    disk = SimulatedDisk()
    make(disk, content_of("0.43.0"), "0.43.0")
    run(disk)
    with ReviewStore.open(DATA, BACKUP, files=disk) as review:
        assert review.store.metadata == {FORMAT_KEY: NEWEST}
    assert not run(disk).changed


def test_nothing_to_do_makes_no_store() -> None:
    """Check R176: both markers of this version and no `states.db`: it succeeds, and makes none."""
    disk = SimulatedDisk()
    write_version_markers(DATA, BACKUP, NEWEST, files=disk)
    with unchanged(disk):
        assert not run(disk).changed
    assert disk.kind(STORE) is None


@pytest.mark.parametrize("version", ["0.30.0", "0.47.0", "0.47.0-alpha.3", "0.46.0-alpha.1", "0.43.0-alpha.1"])
def test_versions_that_no_migration_takes(version: str) -> None:
    """Check R175: with or without a store; nothing is changed."""
    for state in (None, content_of("0.46.0")):
        disk = SimulatedDisk()
        write_version_markers(DATA, BACKUP, version, files=disk)
        if state is not None:
            make(disk, state, version)
        with (
            unchanged(disk),
            pytest.raises(UnsupportedVersionError, match=f"migration from {version} is not supported"),
        ):
            run(disk)


@pytest.mark.parametrize(
    "version", ["0.42.5", "0.43.7", "0.46.9", "0.47.0-alpha", "0.47.0-alpha.0", "0.47.0-alpha.1.5"]
)
def test_versions_between_those_of_the_fixtures(version: str) -> None:
    """Section 13.5: what the requirements take; the marker is of that very version."""
    format_of = max((each for each in FORMATS if Version.parse(each) <= Version.parse(version)), key=FORMATS.index)
    disk = SimulatedDisk()
    make(disk, content_of(format_of), version)
    report = run(disk)
    assert report.before == Version.parse(version)
    check_same(look_at(disk)[0], finished(format_of))
    assert markers(disk) == (NEWEST, NEWEST)


def test_version_within_the_present_format_is_left_alone() -> None:
    """Section 13.4: 0.47.0-alpha.2.1 is compatible; nothing is written, not even a marker."""
    disk = SimulatedDisk()
    make(disk, content_of(NEWEST), "0.47.0-alpha.2.1")
    with unchanged(disk):
        assert not run(disk).changed


def test_markers_that_do_not_fit() -> None:
    """Check R172, R173, R174: different, unreadable, missing; whatever there is, nothing is changed."""
    disk = SimulatedDisk()
    make(disk, content_of("0.46.0"), "0.46.0", backup="0.45.0")
    with (
        unchanged(disk),
        pytest.raises(VersionMismatchError, match="database version 0.46.0 and backup version 0.45.0"),
    ):
        run(disk)
    for text in (b"not-a-valid-version", b"0.46.0\n"):
        disk.put({f"{DATA}/VERSION": text})
        with unchanged(disk), pytest.raises(MarkerParseError, match="cannot parse VERSION"):
            run(disk)
    disk.unlink(f"{DATA}/VERSION")
    with unchanged(disk), pytest.raises(MarkerNotFoundError, match="cannot open VERSION"):
        run(disk)


def test_old_markers_without_a_store() -> None:
    """Check R219: in a populated directory: it fails, and makes none."""
    disk = SimulatedDisk()
    write_version_markers(DATA, BACKUP, "0.46.0", files=disk)
    disk.put({f"{DATA}/notes": b"mine"})
    with unchanged(disk), pytest.raises(StoreNotFoundError):
        run(disk)
    assert disk.kind(STORE) is None


def test_the_version_and_what_is_read() -> None:
    """Check R181: this program reads its own version, and not the next minor one."""
    assert COMPATIBLE.matches(VERSION)
    assert str(VERSION) == NEWEST
    assert not COMPATIBLE.matches(Version(VERSION.major, VERSION.minor + 1, 0))
    assert (MIGRATION_PLAN.version, MIGRATION_PLAN.compatible) == (VERSION, COMPATIBLE)


def test_the_chain() -> None:
    """Section 13.5: five migrations, each of whose targets is the beginning of the next; families as in section 12."""
    migrations = MIGRATION_PLAN.migrations
    assert [(str(each.requirement), str(each.target)) for each in migrations] == [
        (">=0.42.0,<0.43.0", "0.43.0"),
        (">=0.43.0,<0.44.0", "0.44.0"),
        (">=0.44.0,<0.45.0", "0.45.0"),
        (">=0.45.0,<0.46.0", "0.46.0"),
        (">=0.46.0,<0.47.0-alpha.2", "0.47.0-alpha.2"),
    ]
    for before, after in zip(migrations, migrations[1:], strict=False):
        assert after.requirement.matches(before.target)
    for version, names in (("0.42.3", FAMILIES_0_42), ("0.46.0", FAMILIES_0_43), (NEWEST, FAMILIES)):
        assert MIGRATION_PLAN.formats_from(Version.parse(version))[0] == set(names)


def test_what_progress_is_told() -> None:
    """Every step by its name, with a beginning and an end; then the writing."""
    disk, told = SimulatedDisk(), []
    make(disk, content_of("0.42.0"), "0.42.0")
    run(disk, progress=lambda what, done, total: told.append((what, done, total)))
    names = list(dict.fromkeys(what for what, _, _ in told))
    assert names == [each.name for migration in MIGRATION_PLAN.migrations for each in migration.steps] + ["write"]
    for name in names[:-1]:
        assert (name, 0, 1) in told
        assert (name, 1, 1) in told


def test_store_that_is_open_is_not_migrated() -> None:
    disk = SimulatedDisk()
    make(disk, content_of("0.46.0"), "0.46.0")
    with pystate.open(STORE, files=disk), unchanged(disk), pytest.raises(LockedError):
        run(disk)
    assert run(disk).changed


def test_plan_of_an_older_program() -> None:
    """Check R228: the driver as a 0.46 program, before and after its markers are written."""
    plan = MigrationPlan(
        [Migration(each.requirement, each.target, each.steps) for each in MIGRATION_PLAN.migrations[:4]],
        version="0.46.0",
        compatible=">=0.46.0,<0.47.0",
        families={"0.42.0": FAMILIES_0_42, "0.43.0": FAMILIES_0_43},
    )
    disk = SimulatedDisk()
    make(disk, content_of("0.46.0"), NEWEST)
    with unchanged(disk), pytest.raises(UnsupportedVersionError, match=f"migration from {NEWEST} is not supported"):
        run(disk, plan=plan)
    write_version_markers(DATA, BACKUP, "0.46.0", files=disk)
    with unchanged(disk):
        assert not run(disk, plan=plan).changed
    make_older = SimulatedDisk()
    make(make_older, content_of("0.42.0"), "0.42.0")
    run(make_older, plan=plan)
    assert markers(make_older) == ("0.46.0", "0.46.0")
    run(make_older)
    check_same(look_at(make_older)[0], finished("0.42.0"))
