"""The names of the files in a store directory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.engine.names import FileName, parse_name, segment_name, snapshot_name

sequences = st.integers(0, 2**64 - 1)


@given(sequences, st.booleans())
def test_segment_name_built_and_parsed_is_the_same_segment(first: int, closed: bool) -> None:
    """What one function writes the other reads."""
    name = segment_name(first, closed=closed)
    assert parse_name(name) == FileName(name, "segment", first, closed)


@given(sequences)
def test_snapshot_name_built_and_parsed_is_the_same_snapshot(sequence: int) -> None:
    """What one function writes the other reads."""
    name = snapshot_name(sequence)
    assert parse_name(name) == FileName(name, "snapshot", sequence)


@given(st.lists(sequences))
def test_names_sorted_are_in_the_order_of_their_sequences(numbers: list[int]) -> None:
    """Names sort as numbers do, up to the largest sequence that a frame can hold."""
    assert sorted(map(segment_name, numbers)) == [segment_name(number) for number in sorted(numbers)]
    assert sorted(map(snapshot_name, numbers)) == [snapshot_name(number) for number in sorted(numbers)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("LOCK", "lock"),
        ("00000000000000000001.log.tmp", "temporary"),
        (".tmp", "temporary"),
        ("LOCK.tmp", "temporary"),
        ("00000000000000000001-generation-1.torn", "torn"),
        ("00000000000000000001.snapshot.torn", "torn"),
        ("00000000000000000001.log", "segment"),
        ("00000000000000000001.closed", "segment"),
        ("00000000000000000001.snapshot", "snapshot"),
    ],
)
def test_name_that_a_store_uses_has_its_kind(name: str, kind: str) -> None:
    """Every name of the module's table."""
    assert parse_name(name).kind == kind


@pytest.mark.parametrize(
    "name",
    [
        "",
        "lock",
        "LOCK ",
        "1.log",
        "0000000000000000001.log",
        "000000000000000000001.log",
        "00000000000000000001.LOG",
        "00000000000000000001.log ",
        "00000000000000000001.log\n",
        "x00000000000000000001.log",
        "0000000000000000000١.log",
        "-0000000000000000001.log",
        "00000000000000000001.snapshots",
        "00000000000000000001",
        ".log",
        "notes.txt",
        "x.tmp.bak",
    ],
    ids=ascii,
)
def test_name_that_only_looks_like_one_is_foreign(name: str) -> None:
    """A file of somebody else is never taken for one of the store."""
    assert parse_name(name) == FileName(name, "foreign")


@given(st.text(max_size=40))
def test_name_of_any_text_is_parsed(name: str) -> None:
    """Whatever stands in a directory has a kind, and only a number makes it a segment or a snapshot."""
    parsed = parse_name(name)
    assert parsed.name == name
    assert parsed.kind in ("snapshot", "segment", "lock", "temporary", "torn", "foreign")
    if parsed.kind not in ("snapshot", "segment"):
        assert (parsed.sequence, parsed.closed) == (0, False)
