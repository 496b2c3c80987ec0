"""Where a migration stands: every difference of markers and content is explained by a crash, or refused."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

import pystate
from pystate.errors import (
    ContentVersionError,
    MarkerNotFoundError,
    MarkerParseError,
    MarkerReadError,
    MigrationError,
    UnsupportedVersionError,
    VersionMismatchError,
)
from pystate.formats import MigrationPlan, Version
from pystate.formats.standing import Place, Standing, Todo, Verdict, content_version, judge, look
from pystate.testing import Fault, SimulatedDisk
from tests.formats.shop import BACKUP, DATA, PROGRAMS, STORE, content_of, make, plan_of

PLAN = plan_of()
NEWEST = "0.4.0-alpha.2"

Texts = tuple[str, str, str | None]
"""The versions of data marker, backup marker and content."""


def standing(data: str | None, backup: str | None, content: str | None = None) -> Standing:
    return Standing(*(None if text is None else Version.parse(text) for text in (data, backup, content)))


def judged(program: str, *texts: str | None) -> tuple[str, str]:
    verdict = judge(plan_of(program), standing(*texts))
    return verdict.todo.value, str(verdict.version)


def place_of(plan: MigrationPlan, text: str) -> int | None:
    return plan.place(Version.parse(text))


# The model: programs that are stopped


def stopped(program: str, texts: Texts) -> Iterable[Texts]:
    """What a run of a program may leave that is stopped behind any of its writes; nothing if it refuses.

    The content gets the version of the program; the markers get that of the content, the backup's first.
    """
    try:
        todo, version = judged(program, *texts)
    except MigrationError:
        return
    data, backup, content = texts
    if todo == "migrate":
        yield data, backup, program
    elif todo == "complete":
        yield data, version, content
        if backup == version:
            yield version, version, content


def reachable() -> set[Texts]:
    """Every standing that any of the programs there were may have left, in any order, stopped at any write."""
    new: set[Texts] = {(each, each, content) for each in PROGRAMS for content in (each, None)}
    found: set[Texts] = set()
    while new:
        found |= new
        new = {after for texts in new for program in PROGRAMS for after in stopped(program, texts)} - found
    return found


REACHABLE = reachable()


def test_every_standing_that_a_crash_leaves_is_finished() -> None:
    """There are no others than that content, or content and backup marker, are ahead. The newest program goes on."""
    pairs = list(itertools.combinations(PROGRAMS, 2))
    settled = [(each, each, content) for each in PROGRAMS for content in (each, None)]
    assert {*settled, *((a, a, b) for a, b in pairs), *((a, b, b) for a, b in pairs)} == REACHABLE
    for texts in REACHABLE:
        for _ in range(6):
            todo, _version = judged(NEWEST, *texts)
            if todo == "nothing":
                break
            *_, texts = stopped(NEWEST, texts)
        assert texts in {(NEWEST, NEWEST, NEWEST), (NEWEST, NEWEST, None)}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_other_standing_is_refused(program: str) -> None:
    """And no program refuses what it, or an older one, may have left."""
    plan = plan_of(program)
    versions = [*PROGRAMS, "0.5.0"]
    for data, backup, content in itertools.product(versions, versions, [*versions, None]):
        texts = (data, backup, content)
        known = all(place_of(plan, text) is not None for text in texts if text is not None)
        # To a program, content and markers that the same migration takes are of one format.
        same = data == backup and content is not None and place_of(plan, content) == place_of(plan, data)
        if (texts in REACHABLE or same) and known:
            judged(program, *texts)
            continue
        with pytest.raises(MigrationError) as caught:
            judged(program, *texts)
        error = caught.value
        if content is not None and place_of(plan, content) is None:
            assert isinstance(error, UnsupportedVersionError)
            assert (error.found, error.supported, error.where) == (content, program, "content")
        elif data == backup and place_of(plan, data) is None:
            assert isinstance(error, UnsupportedVersionError)
            assert (error.found, error.supported, error.where) == (data, program, "marker")
        else:
            assert isinstance(error, VersionMismatchError)
            assert (error.database, error.backup, error.content) == texts


# Some of them, one by one

MIGRATE, COMPLETE, NOTHING = "migrate", "complete", "nothing"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((NEWEST, NEWEST, None), (NOTHING, NEWEST)),
        ((NEWEST, NEWEST, NEWEST), (NOTHING, NEWEST)),
        ((None, None, None), (NOTHING, NEWEST)),
        ((NEWEST, None, None), (NOTHING, NEWEST)),
        ((None, NEWEST, None), (NOTHING, NEWEST)),
        (("0.1.5", "0.1.5", None), (MIGRATE, "0.1.5")),
        (("0.1.5", "0.1.5", "0.1.5"), (MIGRATE, "0.1.5")),
        (("0.1.0", "0.1.0", NEWEST), (COMPLETE, NEWEST)),
        (("0.1.0", NEWEST, NEWEST), (COMPLETE, NEWEST)),
        # Another program was stopped, and this one is newer.
        (("0.1.0", "0.1.0", "0.2.0"), (COMPLETE, "0.2.0")),
        (("0.1.0", "0.2.0", "0.2.0"), (COMPLETE, "0.2.0")),
        (("0.3.0", "0.4.0-alpha.1", "0.4.0-alpha.1"), (COMPLETE, "0.4.0-alpha.1")),
        # A store made by another program than the one that made the markers, of the same format.
        (("0.4.0-alpha.2.7", "0.4.0-alpha.2.7", NEWEST), (NOTHING, NEWEST)),
        ((NEWEST, NEWEST, "0.4.0-alpha.2.7"), (NOTHING, "0.4.0-alpha.2.7")),
        (("0.1.9", "0.1.9", "0.1.5"), (MIGRATE, "0.1.5")),
        (("0.1.5", "0.1.5", "0.1.9"), (COMPLETE, "0.1.9")),
        (("0.1.5+a", "0.1.5+a", "0.1.5+b"), (MIGRATE, "0.1.5+b")),
        # The backup directory was removed meanwhile; it counts as new.
        (("0.1.0", None, NEWEST), (COMPLETE, NEWEST)),
    ],
    ids=str,
)
def test_standing_says_what_comes_next(texts: tuple[str | None, ...], expected: tuple[str, str]) -> None:
    assert judged(NEWEST, *texts) == expected


@pytest.mark.parametrize(
    "texts",
    [
        ("0.4.0-alpha.2", "0.4.0-alpha.2.1", None),
        ("0.4.0-alpha.2", "0.4.0-alpha.2+build", None),
        ("0.1.0", NEWEST, None),
        (NEWEST, "0.1.0", NEWEST),
        (NEWEST, "0.1.0", "0.1.0"),
        ("0.1.0", "0.2.0", NEWEST),
        ("0.1.0", NEWEST, "0.1.0"),
        ("0.2.0", "0.1.0", None),
        ("0.7.0", "0.8.0", None),
    ],
    ids=str,
)
def test_markers_that_differ_otherwise_are_refused(texts: Texts) -> None:
    """Check R173: the error names both, that of the data directory first; build metadata counts."""
    data, backup, content = texts
    with pytest.raises(VersionMismatchError) as caught:
        judged(NEWEST, *texts)
    text = str(caught.value)
    assert text.startswith(f"mismatched database version {data} and backup version {backup}")
    assert (content is None) == ("the content is of version" not in text)
    assert (caught.value.database, caught.value.backup, caught.value.content) == texts


def test_a_new_directory_counts_as_one_of_this_program() -> None:
    for texts in (("0.3.0", None, None), (None, "0.3.0", None), ("0.3.0", None, "0.3.0")):
        with pytest.raises(VersionMismatchError, match="mismatched"):
            judged(NEWEST, *texts)


@pytest.mark.parametrize("content", ["0.1.0", "0.3.0", "0.4.0-alpha.1"])
def test_old_content_under_new_markers_is_refused(content: str) -> None:
    """A backup was restored, and its markers were not: nobody else can know."""
    with pytest.raises(VersionMismatchError) as caught:
        judged(NEWEST, NEWEST, NEWEST, content)
    text = str(caught.value)
    assert text.startswith(f"mismatched content of version {content} and version markers of {NEWEST}")
    assert "write_version_markers" in text


@pytest.mark.parametrize("version", ["0.0.9", "0.4.0", "0.4.0-alpha.3", "0.3.0-alpha.1", "0.2.1-alpha.1"])
def test_unknown_version_is_not_supported(version: str) -> None:
    """Check R175: too old, too new, or a pre-release that no requirement speaks of; both versions are named."""
    for content in (None, version):
        with pytest.raises(UnsupportedVersionError, match=f"^migration from {version} is not supported") as caught:
            judged(NEWEST, version, version, content)
        assert (caught.value.found, caught.value.supported) == (version, NEWEST)
        assert NEWEST in str(caught.value)


@pytest.mark.parametrize("markers", [(NEWEST, NEWEST), ("0.3.0", "0.3.0"), ("0.3.0", "0.5.0"), ("0.5.0", "0.5.0")])
def test_content_from_the_future_is_refused_whatever_the_markers_say(markers: tuple[str, str]) -> None:
    """A newer program was stopped before its markers. That they differ must not be the first that one hears."""
    with pytest.raises(UnsupportedVersionError, match="so says the content") as caught:
        judged(NEWEST, *markers, "0.5.0")
    assert (caught.value.found, caught.value.supported, caught.value.where) == ("0.5.0", NEWEST, "content")


def test_verdict_for_a_program_whose_chain_is_empty() -> None:
    assert judge(plan_of("0.1.0"), standing("0.1.0", "0.1.0", None)) == Verdict(Todo.NOTHING, Version(0, 1, 0))


# Looking


def place(disk: SimulatedDisk) -> Place:
    return Place(disk, DATA, BACKUP, STORE)


def test_look_finds_markers_and_content_and_writes_nothing() -> None:
    disk = SimulatedDisk()
    assert look(place(disk)) == standing(None, None, None)
    disk.make_directory("/shop")
    disk.make_directory(DATA)
    disk.put({f"{BACKUP}/VERSION.tmp": b"0.4"})
    assert look(place(disk)) == standing(None, None, None)
    make(disk, content_of("0.1.0"), "0.1.0", content="0.1.7")
    before = disk.files()
    assert look(place(disk)) == standing("0.1.0", "0.1.0", "0.1.7")
    assert disk.files() == before
    store = pystate.open(STORE, files=disk)
    assert look(place(disk)) == standing("0.1.0", "0.1.0", "0.1.7")
    store.close()


def test_content_without_a_version_says_none() -> None:
    disk = SimulatedDisk()
    make(disk, content_of("0.1.0"), "0.1.0")
    assert look(place(disk)) == standing("0.1.0", "0.1.0", None)


def test_look_goes_against_the_order_of_writing() -> None:
    """Data, backup, content: so whoever migrates meanwhile is never seen with markers ahead of the content."""
    disk = SimulatedDisk()
    make(disk, content_of("0.1.0"), "0.1.0", content="0.1.0")
    start = disk.position
    look(place(disk))
    opened = [one.path for one in disk.operations[start:] if one.name == "open_read"]
    markers = [f"{DATA}/VERSION", f"{BACKUP}/VERSION"]
    assert opened[:2] == markers
    assert all(path.startswith(STORE) for path in opened[2:])


@pytest.mark.parametrize("found", ["1", "", "v0.1.0", "0.1.0\n"])
def test_content_whose_version_is_none_is_refused(found: str) -> None:
    """It may belong to another program, which uses the same key for something else."""
    with pytest.raises(ContentVersionError, match="/shop/store: the metadata 'format' is") as caught:
        content_version("/shop/store", {"format": found})
    error = caught.value
    assert (error.path, error.found) == ("/shop/store", found)
    assert error.problem and error.problem in str(error)
    assert content_version("/shop/store", {"other": "1"}) is None


@pytest.mark.parametrize("directory", [DATA, BACKUP])
def test_directory_with_something_in_it_and_no_marker_is_refused(directory: str) -> None:
    """Check R172: error "cannot open VERSION"; the other directory may be as it wants."""
    disk = SimulatedDisk()
    disk.put({f"{directory}/states.db/file": b"", f"{directory}/VERSION.tmp": b""})
    with pytest.raises(MarkerNotFoundError, match="cannot open VERSION") as caught:
        look(place(disk))
    assert (caught.value.path, caught.value.found) == (f"{directory}/VERSION", "states.db")


@pytest.mark.parametrize("found", [b"not-a-valid-version", b"0.1.0\n"])
@pytest.mark.parametrize("directory", [DATA, BACKUP])
def test_marker_that_is_no_version_is_refused(directory: str, found: bytes) -> None:
    """Check R174."""
    disk = SimulatedDisk()
    make(disk, content_of("0.1.0"), "0.1.0")
    disk.put({f"{directory}/VERSION": found})
    with pytest.raises(MarkerParseError, match="cannot parse VERSION"):
        look(place(disk))


def test_file_in_place_of_a_directory_is_refused() -> None:
    disk = SimulatedDisk()
    disk.put({"/shop/data": b""})
    with pytest.raises(MarkerReadError, match="cannot open VERSION"):
        look(place(disk))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipe_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data")
    files = pystate.OsFiles()
    with pytest.raises(MarkerReadError, match="cannot open VERSION") as caught:
        look(Place(files, str(tmp_path / "data"), str(tmp_path / "backup"), str(tmp_path / "data" / "store")))
    assert caught.value.errno == errno.ENOTDIR


def test_directory_that_cannot_be_listed_is_refused() -> None:
    disk = SimulatedDisk()
    disk.put({f"{DATA}/file": b""})
    disk.inject(Fault("list_directory", 1, error=errno.EACCES))
    with pytest.raises(MarkerReadError, match="cannot open VERSION") as caught:
        look(place(disk))
    assert caught.value.errno == errno.EACCES
