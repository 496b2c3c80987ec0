"""What was written once, in each format, is read by every later program: the files in ``stored``.

A state that is kept migrates to the newest one that is kept, byte for byte; and every record of that can be read. So a
record type that has changed, also one that migrations share with the present, is seen here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import pystate
from pystate.errors import PystateError
from pystate.review import FAMILIES, MIGRATION_PLAN, ReviewStore, migrate_data_dir, write_version_markers
from tests.review.migrations.fixtures import FORMATS, NEWEST, Families, begin, check_same, content_of
from tests.review.migrations.storing import STORED, read_stored, text_of, write_missing

#: The accessors of `ReviewStore` that have records, with their families.
TABLES = {
    "agents": "agents",
    "allow_networks": "allow networks",
    "block_networks": "block networks",
    "core_components": "core components",
    "customer_data_deletion_jobs": "customer deletion jobs",
    "customers": "customers",
    "external_services": "external services",
    "hosts": "hosts",
    "label_database": "label database",
    "networks": "networks",
    "nodes": "nodes",
    "operation_attempts": "operation attempts",
    "statuses": "statuses",
    "tor_exit_nodes": "Tor exit nodes",
    "triage_exclusion_reasons": "triage exclusion reason",
    "triage_policies": "triage policy",
}


def expected_from(version: str) -> Families:
    """The newest state that is kept, with those families empty that this format had not."""
    old = read_stored(version)
    renamed = {"label database": "TI database"} if version == "0.42.0" else {}
    return {name: rows if renamed.get(name, name) in old else {} for name, rows in read_stored(NEWEST).items()}


def test_there_is_a_file_for_each_format(tmp_path: Path) -> None:
    """None is missing, none is left over; and making them anew gives the same bytes."""
    assert sorted(path.name for path in STORED.iterdir()) == sorted(f"{version}.txt" for version in FORMATS)
    assert write_missing() == []
    assert write_missing(tmp_path) == list(FORMATS)
    for version in FORMATS:
        assert (tmp_path / f"{version}.txt").read_bytes() == (STORED / f"{version}.txt").read_bytes(), version


@pytest.mark.parametrize("version", FORMATS)
def test_file_holds_what_the_fixture_says(version: str) -> None:
    state = read_stored(version)
    check_same(state, content_of(version))
    assert text_of(state) == (STORED / f"{version}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("version", FORMATS)
def test_kept_state_still_opens_and_migrates(version: str, tmp_path: Path) -> None:
    """Check R208, R221: with the markers of its version, in a directory on the real disk; all rows, byte by byte."""
    data, backup = tmp_path / "data", tmp_path / "backup"
    write_version_markers(data, backup, version)
    state = read_stored(version)
    with pystate.open(data / "states.db", families=list(state)) as store:
        for name, rows in state.items():
            store.family(name).update(rows)
    report = migrate_data_dir(data, backup)
    assert (report.rewrite is None) == (version == NEWEST)
    with pystate.open(data / "states.db", families=FAMILIES, read_only=True) as store:
        check_same({name: dict(store.family(name)) for name in store.families}, expected_from(version))
    check_readable(data, backup)
    assert pystate.verify(data / "states.db").ok


def check_readable(data: Path, backup: Path) -> None:
    """Every record of every table can be read, and nothing is wrong with any row of ids."""
    with ReviewStore.open(data, backup) as review:
        for name, family in TABLES.items():
            table = getattr(review, name)
            assert bool(list(table.iter())) == any(review.store.family(family)), name
            if hasattr(table, "check"):
                assert table.check() == [], name
        for tags in (review.event_tags, review.workflow_tags, review.network_tags(0)):
            assert tags.check() == []
        assert [tag.text for tag in review.network_tags(0).entries()][:1] in (["red"], [])


MIGRATED = {
    "0.42.0": ["agents", "allow networks", "block networks", "customers", "external services", "networks",
               "triage policy"],
    "0.43.0": ["agents", "external services", "networks", "triage policy"],
    "0.44.0": ["agents", "external services", "triage policy"],
    "0.46.0": ["agents", "external services"],
    "0.47.0-alpha.1": ["agents", "external services"],
}  # fmt: skip


@pytest.mark.parametrize("version", MIGRATED)
def test_row_that_is_cut_short_stops_everything(version: str) -> None:
    """Whatever the family that is migrated, and wherever the row is cut: nothing is made of half a row."""
    for family in MIGRATED[version]:
        kept = read_stored(version)
        key = max(kept[family])
        for size in range(len(kept[family][key])):
            rewriting = begin({**kept, family: {**kept[family], key: kept[family][key][:size]}})
            with pytest.raises(PystateError):
                MIGRATION_PLAN.run(rewriting, version)
