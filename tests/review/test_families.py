"""The lists of families of each format, and what opening a store with them does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pystate
from pystate.errors import FamilyMismatchError
from pystate.review import families
from pystate.review.families import (
    FAMILIES,
    FAMILIES_0_42,
    FAMILIES_0_43,
    FAMILIES_0_47_0_ALPHA_1,
    FAMILIES_0_47_0_ALPHA_2,
)

ALL = [FAMILIES_0_42, FAMILIES_0_43, FAMILIES_0_47_0_ALPHA_1, FAMILIES_0_47_0_ALPHA_2]


def test_lists_differ_in_exactly_what_each_format_has_changed() -> None:
    """Check R165: how many names there are in each, and which came and went."""
    assert [len(names) for names in ALL] == [36, 36, 37, 39]
    assert [len(set(names)) for names in ALL] == [36, 36, 37, 39]
    first, second, third, fourth = map(set, ALL)
    assert first - second == {"account policy", "TI database"}
    assert second - first == {"label database", "triage exclusion reason"}
    assert (second - third, third - second) == (set(), {"customer deletion jobs"})
    assert (third - fourth, fourth - third) == (set(), {"core components", "operation attempts"})
    assert not any("default" in names for names in ALL)
    assert all(list(names) == sorted(names) for names in ALL)


def test_present_list_is_that_of_the_newest_format() -> None:
    """Check R166: equal to the list of 0.47.0-alpha.2."""
    assert FAMILIES == FAMILIES_0_47_0_ALPHA_2


def test_every_list_is_written_out() -> None:
    """Check R166: no list is made from another one, the present one neither; each is a tuple of literals."""
    tree = ast.parse(Path(families.__file__).read_text(encoding="utf-8"))
    written = {node.target.id: node.value for node in tree.body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    assert set(written) == set(families.__all__)
    for name, value in written.items():
        assert isinstance(value, ast.Tuple), name
        assert all(isinstance(each, ast.Constant) and type(each.value) is str for each in value.elts), name


def test_an_older_list_adds_no_family_to_a_store_of_its_format(tmp_path: Path) -> None:
    """Check R167: opened with the same 36 names, families that are missing made, there are 36 as before."""
    place = tmp_path / "states.db"
    pystate.open(place, families=FAMILIES_0_43).close()
    with pystate.open(place, families=FAMILIES_0_43, create_missing_families=True) as store:
        assert set(store.families) == {"default", *FAMILIES_0_43}
    assert set(pystate.list_families(place)) == {"default", *FAMILIES_0_43}


def test_a_store_of_the_present_format_opens_with_the_present_list_only(tmp_path: Path) -> None:
    """Check R168: strictly, with 36 or 37 names it fails; with 39 it opens. (The store is made here, not migrated.)"""
    place = tmp_path / "states.db"
    pystate.open(place, families=FAMILIES).close()
    for names in (FAMILIES_0_43, FAMILIES_0_47_0_ALPHA_1):
        with pytest.raises(FamilyMismatchError) as caught:
            pystate.open(place, families=names, create=False)
        assert set(caught.value.unnamed) == set(FAMILIES) - set(names)
        assert caught.value.missing == ()
    pystate.open(place, families=FAMILIES_0_47_0_ALPHA_2, create=False).close()
