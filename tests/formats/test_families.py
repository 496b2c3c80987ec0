"""Families in a migration: made, dropped and renamed, however far somebody had come; and held against what must be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate import FamilyNotFoundError, Rewriting
from pystate.errors import FamilyConflictError, MigrationFamiliesError
from pystate.formats import create_families, drop_families, rename_family
from pystate.formats.families import check_families, family_names
from tests.formats.shop import Families, begin, contents

names = st.sampled_from(["a", "b", "c"])
rows = st.dictionaries(st.sampled_from([b"", b"1", b"2", b"\xff"]), st.sampled_from([b"", b"x", b"y"]))
states = st.dictionaries(names, rows).map(lambda state: {"default": {b"k": b"v"}, **state})


@given(states, st.lists(names))
def test_missing_families_are_made_and_the_others_left_alone(state: Families, wanted: list[str]) -> None:
    rewriting = begin(state)
    for _ in range(2):
        create_families(rewriting, *wanted)
        assert contents(rewriting) == {**{name: {} for name in wanted}, **state}


@given(states, st.lists(names))
def test_families_that_are_there_are_dropped(state: Families, unwanted: list[str]) -> None:
    rewriting = begin(state)
    for _ in range(2):
        drop_families(rewriting, *unwanted)
        assert contents(rewriting) == {name: rows for name, rows in state.items() if name not in unwanted}


@given(states)
def test_renaming_merges_what_is_equal_and_stops_at_what_is_not(state: Families) -> None:
    """Without a conflict the new family has the rows of both; with one, nothing is changed, in neither family."""
    rewriting = begin(state)
    old, new = state.get("a"), state.get("b", {})
    conflicts = sorted(key for key in (old or {}).keys() & new.keys() if (old or {})[key] != new[key])
    if conflicts:
        with pytest.raises(FamilyConflictError, match="families 'a' and 'b'") as caught:
            rename_family(rewriting, "a", "b")
        error = caught.value
        assert (error.old, error.new, error.key, error.count) == ("a", "b", conflicts[0], len(conflicts))
        assert f"key {conflicts[0].hex()}" in str(error)
        assert contents(rewriting) == state
        return
    expected = {name: rows for name, rows in state.items() if name != "a"}
    if old is not None:
        expected["b"] = {**old, **new}
    for _ in range(2):
        rename_family(rewriting, "a", "b")
        assert contents(rewriting) == expected


def test_renaming_copies_no_row_where_the_new_family_is_missing() -> None:
    """The family is not even decoded."""

    def loaded() -> dict[bytes, bytes]:
        raise AssertionError("it was decoded")

    rewriting = begin({"default": {}, "a": {}})
    rewriting._entries["a"].state.loader = loaded
    rename_family(rewriting, "a", "b")
    assert rewriting.families == ("b", "default")


@pytest.mark.parametrize("call", [create_families, drop_families], ids=lambda call: call.__name__)
@pytest.mark.parametrize(
    ("name", "error"), [("default", ValueError), ("", ValueError), ("a\n", ValueError), (b"a", TypeError)]
)
def test_what_names_no_family_is_refused_before_anything_is_done(
    call: Callable[..., None], name: str, error: type[Exception]
) -> None:
    for arguments in (["a", name], ["c", name]):
        rewriting = begin({"default": {}, "a": {}})
        with pytest.raises(error):
            call(rewriting, *arguments)
        assert rewriting.families == ("a", "default")


@pytest.mark.parametrize(("old", "new"), [("a", "a"), ("a", "default"), ("default", "a"), ("a", ""), ("", "a")])
def test_renaming_to_what_cannot_be_is_refused(old: str, new: str) -> None:
    rewriting = begin({"default": {}, "a": {b"k": b"v"}})
    with pytest.raises(ValueError):
        rename_family(rewriting, old, new)
    assert contents(rewriting) == {"default": {}, "a": {b"k": b"v"}}


def test_a_handle_goes_on_under_the_new_name() -> None:
    rewriting: Rewriting = begin({"default": {}, "a": {b"k": b"v"}, "c": {b"k": b"v"}})
    handle, gone = rewriting.family("a"), rewriting.family("c")
    rename_family(rewriting, "a", "b")
    handle[b"l"] = b"w"
    rename_family(rewriting, "c", "b")
    assert contents(rewriting) == {"default": {}, "b": {b"k": b"v", b"l": b"w"}}
    with pytest.raises(FamilyNotFoundError):
        gone.get(b"k")


@given(st.sets(names), st.sets(names), st.sets(names))
def test_families_are_held_against_two_sets(present: set[str], least: set[str], more: set[str]) -> None:
    at_least, at_most = frozenset(least), frozenset(least | more)
    for found in (present, present | {"default"}):
        if at_least <= present <= at_most:
            check_families("the content", found, at_least=at_least, at_most=at_most)
            continue
        with pytest.raises(MigrationFamiliesError, match="^the content: wrong families") as caught:
            check_families("the content", found, at_least=at_least, at_most=at_most)
        error = caught.value
        assert error.where == "the content"
        assert error.missing == tuple(sorted(at_least - present))
        assert error.unexpected == tuple(sorted(present - at_most))
        for name in (*error.missing, *error.unexpected):
            assert repr(name) in str(error)
        assert ("missing: " in str(error)) == bool(error.missing)
        assert ("not expected: " in str(error)) == bool(error.unexpected)


def test_a_single_text_is_no_list_of_names() -> None:
    with pytest.raises(TypeError, match="'stock'"):
        family_names("stock")
