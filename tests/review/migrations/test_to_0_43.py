"""From 0.42 to 0.43: families, and allowed and blocked networks for each customer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate.errors import CorruptIndexError, FamilyConflictError, MixedShapesError, UnknownShapeError
from pystate.review import ALLOW_NETWORKS, BLOCK_NETWORKS, AllowNetwork, BlockNetwork
from pystate.review.families import FAMILIES_0_42, FAMILIES_0_43
from pystate.tables import IndexedTable, KeyIndex
from tests.review.migrations.fixtures import (
    Families,
    applied,
    content_of,
    customer,
    customers,
    encode,
    index,
    new_networks,
    old_networks,
    refused_by,
    step,
    u32,
)

SCOPE = "give networks to customers"
ENTRY_1 = ["drop 'account policy'", "rename 'TI database'", "create 'triage exclusion reason'", SCOPE]
TABLES: dict[str, IndexedTable[AllowNetwork] | IndexedTable[BlockNetwork]] = {
    "allow networks": ALLOW_NETWORKS,
    "block networks": BLOCK_NETWORKS,
}


def state_of(names: dict[int, str], allow: dict[bytes, bytes], block: dict[bytes, bytes]) -> Families:
    return {
        "customers": customers(names) if names else {},
        "allow networks": allow,
        "block networks": block,
        "default": {},
    }


def test_families_after_each_step(tmp_path: Path) -> None:
    """Check R187: 35 after 1a and 1b, exactly; 36 with 1c; opened strictly."""
    path = tmp_path / "states.db"
    with pystate.open(path, families=FAMILIES_0_42) as store:
        store.family("TI database").put(b"ti-key", b"ti-value")
    between = set(FAMILIES_0_43) - {"triage exclusion reason"}
    assert len(between) == 35
    pystate.rewrite(path, lambda rewriting: [step(name)(rewriting) for name in ENTRY_1[:2]])
    pystate.open(path, families=between).close()
    pystate.rewrite(path, step(ENTRY_1[2]))
    with pystate.open(path, families=FAMILIES_0_43) as store:
        assert dict(store.family("label database")) == {b"ti-key": b"ti-value"}
        assert dict(store.family("triage exclusion reason")) == {}


@pytest.mark.parametrize("name", ENTRY_1)
def test_every_step_does_nothing_the_second_time(name: str) -> None:
    """Check R189, R190, R191: what is done is left alone, whatever it holds."""
    done = applied(content_of("0.42.0"), *ENTRY_1)
    assert applied(done, name) == done
    assert done["label database"] == content_of("0.42.0")["TI database"]
    assert done["allow networks"] == content_of("0.43.0")["allow networks"]
    assert done["block networks"] == content_of("0.43.0")["block networks"]


def test_partly_copied_rows_are_completed_and_conflicts_are_refused() -> None:
    """Check R189: all three rows; with different values, an error, and both families as they were."""
    state: Families = {
        "default": {},
        "TI database": {b"copied": b"same", b"ti-only": b"1"},
        "label database": {b"copied": b"same", b"label-only": b"2"},
    }
    merged = applied(state, "rename 'TI database'")
    assert merged == {"default": {}, "label database": {b"copied": b"same", b"ti-only": b"1", b"label-only": b"2"}}
    state["label database"][b"copied"] = b"another"
    error = refused_by("rename 'TI database'", state, FamilyConflictError)
    assert b"copied".hex() in str(error)


def test_each_customer_gets_a_copy() -> None:
    """Check R194: two rows in each family, for customers 0 and 1; names and descriptions kept; ids 0 and 1."""
    old = old_networks("Old")
    found = applied(state_of({0: "A", 1: "B"}, old, dict(old)), SCOPE)
    for family, table in TABLES.items():
        rows = {key: table.decode(key, value) for key, value in found[family].items() if key}
        assert sorted(rows) == [u32(0) + b"Old", u32(1) + b"Old"]
        assert [(each.customer_id, each.name, each.id, each.description) for each in rows.values()] == [
            (0, "Old", 0, "all of Old"),
            (1, "Old", 1, "all of Old"),
        ]
        ids = KeyIndex.decode(found[family][b""])
        assert (ids.count(), dict(ids.entries())) == (2, {0: u32(0) + b"Old", 1: u32(1) + b"Old"})


def test_ids_count_over_rows_and_customers() -> None:
    """Check R195: n1/0, n1/1, n2/0, n2/1; whatever ids they had. Customers come in the order of their names."""
    found = applied(state_of({0: "A", 1: "B"}, old_networks("n2", "n1"), {}), SCOPE)
    assert found["allow networks"] == new_networks(("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1))
    found = applied(state_of({0: "Z", 1: "B"}, old_networks("n1"), {}), SCOPE)
    assert found["allow networks"] == new_networks(("n1", 1), ("n1", 0))


@pytest.mark.parametrize("of_customers", [{}, {b"": index({})}], ids=["no row", "an empty index"])
def test_without_customers_the_networks_are_gone(of_customers: dict[bytes, bytes]) -> None:
    """Check R196: only an empty row with ids is left; a family without networks is left alone entirely."""
    state = state_of({}, old_networks("old"), {}) | {"customers": of_customers}
    found = applied(state, SCOPE)
    assert found == {**state, "allow networks": {b"": encode([[], 0, None])}}


def test_families_without_networks_are_left_alone() -> None:
    """Section 13.6, 1d: no row with ids is written; one that is there, even damaged, stays."""
    for rows in ({}, {b"": b"not an index"}):
        state = state_of({0: "A"}, dict(rows), dict(rows))
        assert applied(state, SCOPE) == state


@pytest.mark.parametrize("mixed", TABLES)
def test_mix_of_shapes_is_refused(mixed: str) -> None:
    """Check R197: nothing is changed in either family."""
    state = state_of({0: "A"}, old_networks("one"), old_networks("one"))
    state[mixed] |= {key: value for key, value in new_networks(("two", 0)).items() if key}
    error = refused_by(SCOPE, state, MixedShapesError)
    assert isinstance(error, MixedShapesError)
    assert (error.family, error.current, error.others, error.key) == (mixed, 1, 1, b"one")


def test_each_family_is_looked_at_by_itself() -> None:
    """Check R198: the current one is left alone, the old one is converted."""
    state = state_of({0: "A", 1: "B"}, new_networks(("new", 5)), old_networks("old"))
    found = applied(state, SCOPE)
    assert found == {**state, "block networks": new_networks(("old", 0), ("old", 1))}


FOREIGN = {
    "no array": b"foreign",
    "a position more": encode([0, "old", [[], [], []], "", 1]),
    "a position less": encode([0, "old", [[], [], []]]),
    "a byte behind": old_networks("old")[b"old"] + b"\0",
    "another name": encode([0, "other", [[], [], []], ""]),
    "a wrong type": encode(["0", "old", [[], [], []], ""]),
    "no group": encode([0, "old", [[], []], ""]),
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("family", TABLES)
def test_foreign_network_is_refused(family: str, what: str) -> None:
    state = state_of({0: "A"}, old_networks("lab"), old_networks("lab"))
    state[family][b"old"] = FOREIGN[what]
    error = refused_by(SCOPE, state, UnknownShapeError)
    assert isinstance(error, UnknownShapeError)
    assert (error.family, error.key) == (family, b"old")
    assert family.removesuffix("s") in str(error)


def test_customer_that_cannot_be_read_stops_it() -> None:
    """Section 13.6, 1d: a customer that does not decode is an error; so are two that have the same id."""
    state = state_of({0: "A"}, old_networks("old"), {})
    for value in (b"foreign", customer(1, "other")):
        state["customers"][b"B"] = value
        error = refused_by(SCOPE, state, UnknownShapeError)
        assert isinstance(error, UnknownShapeError)
        assert (error.family, error.key, error.kind) == ("customers", b"B", "customer")
    state["customers"][b"B"] = customer(0, "B")
    assert "0" in str(refused_by(SCOPE, state, CorruptIndexError))


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3)


@given(st.lists(words, max_size=4, unique=True), st.lists(words, max_size=4, unique=True))
def test_any_networks_and_customers(names: list[str], networks: list[str]) -> None:
    """Every pair of network and customer is there once, readable by its table; a second run changes nothing."""
    state = state_of(dict(enumerate(names)), old_networks(*networks) if networks else {}, {})
    found = applied(state, SCOPE)
    rows = found["allow networks"]
    records = [ALLOW_NETWORKS.decode(key, value) for key, value in rows.items() if key]
    pairs = [
        (name, customer_id)
        for name in sorted(networks, key=str.encode)
        for _, customer_id in sorted((each.encode(), at) for at, each in enumerate(names))
    ]
    assert [(each.name, each.customer_id) for each in sorted(records, key=lambda each: each.id)] == pairs
    assert [each.id for each in sorted(records, key=lambda each: each.id)] == list(range(len(pairs)))
    if networks:
        assert dict(KeyIndex.decode(rows[b""]).entries()) == {
            each.id: u32(each.customer_id) + each.name.encode() for each in records
        }
    assert applied(found, SCOPE) == found
