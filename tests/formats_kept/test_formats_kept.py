"""Stores of each file format that there has ever been, as it wrote them, are read by every later version.

``version_<n>`` has two stores of file format n: ``closed`` and ``killed``, the second with half a frame at its end; and
``expected.json``, which says what is in both. They were written once, by ``making``, and are never written anew: this
test fails if the engine of today reads anything else from them than what was put in then.

What the next file format adds: a folder ``version_2`` made by its own writer, with the same three entries, as soon as a
release has written that format; and nothing else. No older folder is touched, so that every version goes on to open
all of them. What a newer program may do with an old store when it opens it for writing, it does to a copy here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import pystate
from pystate.engine.snapshot_format import FORMAT_VERSION
from tests.formats_kept.making import HERE, ROWS, make
from tests.second_reader import read_store

VERSIONS = sorted(int(path.name.removeprefix("version_")) for path in HERE.glob("version_*"))
STORES = [f"version_{version}/{kind}" for version in VERSIONS for kind in ("closed", "killed")]


def expected_of(name: str) -> dict[str, Any]:
    """What must be in a store."""
    expected: dict[str, Any] = json.loads((HERE / name).parent.joinpath("expected.json").read_text(encoding="utf-8"))
    expected["families"] = {
        family: {bytes.fromhex(key): bytes.fromhex(value) for key, value in rows.items()}
        for family, rows in expected["families"].items()
    }
    return expected


def files_in(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


@pytest.fixture
def copy(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE / name, tmp_path / "store"))


def check_content(store: pystate.Store, expected: dict[str, Any]) -> None:
    assert {name: dict(store.family(name)) for name in store.families} == expected["families"]
    for name, rows in expected["families"].items():
        assert list(store.family(name)) == sorted(rows)
    assert (store.sequence, store.id, dict(store.metadata)) == (
        expected["sequence"],
        expected["id"],
        expected["metadata"],
    )


def test_every_format_is_kept() -> None:
    """The one that the engine writes, and each before it."""
    assert VERSIONS == list(range(1, FORMAT_VERSION + 1))
    for version in VERSIONS:
        assert sorted(path.name for path in (HERE / f"version_{version}").iterdir()) == [
            "closed",
            "expected.json",
            "killed",
        ]


def test_what_is_kept_has_all_kinds_of_files() -> None:
    """A snapshot, segments that were not closed, and one that was; and more than one commit behind the snapshot."""
    suffixes = [path.suffix for path in sorted((HERE / "version_1" / "closed").iterdir())]
    assert suffixes == [".snapshot", ".log", ".log", ".closed"]
    assert expected_of("version_1/closed")["families"] == ROWS


@pytest.mark.parametrize("name", STORES)
def test_read_only_shows_every_row(name: str, copy: Path) -> None:
    before = files_in(copy)
    with pystate.open(copy, read_only=True) as store:
        check_content(store, expected_of(name))
    assert files_in(copy) == before


@pytest.mark.parametrize("name", STORES)
def test_verify_finds_no_problem(name: str, copy: Path) -> None:
    expected, report = expected_of(name), pystate.verify(copy)
    assert report.ok, report.problems
    assert (report.format_version, report.sequence) == (expected["format_version"], expected["sequence"])
    assert (report.clean, report.torn_bytes > 0) == ((True, False) if name.endswith("closed") else (False, True))
    assert report.families == {family: len(rows) for family, rows in expected["families"].items()}


@pytest.mark.parametrize("name", STORES)
def test_opened_for_writing_it_goes_on(name: str, copy: Path) -> None:
    """Every row is there, a row is added, and all of it is there the next time, also behind a new snapshot."""
    expected = expected_of(name)
    with pystate.open(copy, families=list(expected["families"])) as store:
        check_content(store, expected)
        store.family("accounts").put(b"new", b"row")
    expected["families"]["accounts"][b"new"] = b"row"
    expected["sequence"] += 1
    for _ in range(2):
        with pystate.open(copy) as store:
            check_content(store, expected)
            store.snapshot()
    assert pystate.verify(copy).ok


@pytest.mark.parametrize("name", STORES)
def test_rewritten_and_salvaged_it_keeps_every_row(name: str, copy: Path, tmp_path: Path) -> None:
    expected = expected_of(name)
    pystate.salvage(copy, tmp_path / "salvaged")
    with pystate.open(tmp_path / "salvaged", read_only=True) as store:
        assert {each: dict(store.family(each)) for each in store.families} == expected["families"]
    pystate.rewrite(copy, lambda rewriting: rewriting.family("empty").put(b"key", b"value"))
    with pystate.open(copy, read_only=True) as store:
        families = {each: dict(store.family(each)) for each in store.families}
    assert families == {**expected["families"], "empty": {b"key": b"value"}}


@pytest.mark.parametrize("name", [name for name in STORES if name.startswith("version_1/")])
def test_page_on_the_format_is_right_about_it(name: str) -> None:
    """The second reader, which knows format 1 from its page alone, finds the same."""
    found, expected = read_store(HERE / name), expected_of(name)
    assert (found.families, found.sequence) == (expected["families"], expected["sequence"])


@pytest.mark.skipif(FORMAT_VERSION != 1, reason="the engine writes another format now")
def test_engine_still_writes_this_format_byte_for_byte(tmp_path: Path) -> None:
    """As long as it writes format 1. Should a writer only choose other bytes for the same format, then this test may
    go, and none of the others.
    """
    make(tmp_path / "again")
    for kind in ("closed", "killed"):
        assert files_in(tmp_path / "again" / kind) == files_in(HERE / "version_1" / kind)
