"""From 0.43 to 0.44: network tags of a customer, and networks under their names."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate.errors import CorruptIndexError, MixedShapesError, UnknownShapeError
from pystate.review import NETWORKS, Network
from pystate.review.host_network_group import HostNetworkGroup
from pystate.tables import KeyIndex
from tests.review.migrations.fixtures import (
    GROUP,
    NO_GROUP,
    THEN,
    Families,
    applied,
    content_of,
    customers,
    encode,
    index,
    old_network,
    refused_by,
    u32,
)

TAGS = "give network tags to a customer"
KEYS = "key networks by name"
EMPTY = encode([[], 0, None])


def tags_of(names: dict[int, str] | None, tags: bytes | None) -> Families:
    return {
        "default": {},
        "customers": customers(names) if names is not None else {},
        "meta": {b"event tags": index({0: b"event"})} | ({} if tags is None else {b"network tags": tags}),
    }


def networks_of(*rows: dict[bytes, bytes]) -> Families:
    return {"default": {}, "networks": {key: value for each in rows for key, value in each.items()}}


def by_name(
    number: int, name: str, description: str = "", group: object = None, tags: object = ()
) -> dict[bytes, bytes]:
    return {name.encode(): encode([number, description, group or NO_GROUP, tags, THEN])}


# Tags


def test_tags_become_those_of_the_smallest_customer() -> None:
    """Check R199: `0\\0tag1` and so on with the same ids; again: unchanged. Only the tags of networks."""
    state = tags_of({at: f"c{9 - at}" for at in range(6)}, index({0: b"tag1", 2: b"tag2", 3: b"tag3"}))
    found = applied(state, TAGS)
    assert found["meta"] == {
        b"event tags": index({0: b"event"}),
        b"network tags": index({0: b"0\0tag1", 2: b"0\0tag2", 3: b"0\0tag3"}),
    }
    assert found["customers"] == state["customers"]
    assert applied(found, TAGS) == found


def test_the_smallest_id_in_use_counts_in_decimal() -> None:
    state = tags_of(None, index({0: b"tag", 1: b""}))
    state["customers"][b""] = index({12: b"x", 30: b"a"})
    assert applied(state, TAGS)["meta"][b"network tags"] == index({0: b"12\0tag", 1: b"12\0"})


@pytest.mark.parametrize(
    "state",
    [
        tags_of(None, index({0: b"tag"})),
        tags_of({}, index({0: b"tag"})),
        tags_of({0: "A"}, None),
        tags_of({0: "A"}, index({})),
        tags_of({0: "A", 1: "B"}, index({0: b"1\0tag", 1: b"0\0tag"})),
    ],
    ids=["no row of customers", "no customers", "no row of tags", "no tags", "all prefixed"],
)
def test_tags_that_are_left_alone(state: Families) -> None:
    """Check R199: without customers they stay unprefixed; what has a prefix does not get another one."""
    assert applied(state, TAGS) == state


def test_some_tags_have_a_customer_already() -> None:
    state = tags_of({3: "A"}, index({0: b"7\0tag", 1: b"tag", 2: b"\0"}))
    assert applied(state, TAGS)["meta"][b"network tags"] == index({0: b"7\0tag", 1: b"3\0tag", 2: b"\0"})


@pytest.mark.parametrize(("family", "key"), [("customers", b""), ("meta", b"network tags")])
def test_damaged_ids_stop_it(family: str, key: bytes) -> None:
    state = tags_of({0: "A"}, index({0: b"tag"}))
    state[family][key] = b"not an index"
    error = refused_by(TAGS, state, CorruptIndexError)
    assert isinstance(error, CorruptIndexError)
    assert (error.family, error.key) == (family, key)


# Networks


def test_network_moves_to_its_name() -> None:
    """Check R200: id 5 and tags 10 and 20 stay; the customers are gone."""
    found = applied(networks_of({b"": index({})}, old_network("TestNetwork", 5, tags=[10, 20])), KEYS)["networks"]
    assert sorted(found) == [b"", b"TestNetwork"]
    record = NETWORKS.decode(b"TestNetwork", found[b"TestNetwork"])
    addresses, networks, ranges = map(tuple, GROUP)
    group = HostNetworkGroup(packed_addresses=addresses, packed_networks=networks, packed_ranges=ranges)
    assert record == Network(
        name="TestNetwork", id=5, description="text", networks=group, tag_ids=(10, 20), creation_time=THEN
    )


def test_of_one_name_the_smallest_id_is_kept() -> None:
    """Check R201: with its own description and tags."""
    rows = [old_network("DuplicateNet", at, f"number {at}", tags=[at]) for at in (10, 3, 7)]
    found = applied(networks_of(*rows, old_network("UniqueNet", 1)), KEYS)["networks"]
    assert found == {
        b"": index({1: b"UniqueNet", 3: b"DuplicateNet"}),
        b"DuplicateNet": encode([3, "number 3", GROUP, [3], THEN]),
        b"UniqueNet": encode([1, "text", GROUP, [], THEN]),
    }


def test_ids_between_are_free() -> None:
    """Check R202: ids 1 and 3 are used; the next insertions get 0, 2 and 4. (The bytes are those of MessagePack.)"""
    found = applied(networks_of(old_network("NetB", 3), old_network("NetA", 1)), KEYS)["networks"]
    assert found[b""] == encode([[[1, 2], [0, b"NetA"], [1, 4], [0, b"NetB"]], 0, None])
    with pystate.memory(families=["networks"]) as store:
        store.family("networks").update(found)
        table = NETWORKS.bind(store)
        template = table.get_by_id(1)
        assert template is not None
        named = [msgspec.structs.replace(template, name=f"new {at}") for at in range(3)]
        assert [table.put(each) for each in named] == [0, 2, 4]
        assert table.check() == []


@pytest.mark.parametrize("rows", [{}, {b"": index({0: b"gone\0\0\0\0"})}, {b"": b"damaged"}, {b"": EMPTY}])
def test_without_networks_the_first_ids_are_written(rows: dict[bytes, bytes]) -> None:
    """Check R203: none after it, and the row with the ids is the initial one."""
    assert applied(networks_of(rows), KEYS)["networks"] == {b"": EMPTY}


def test_rows_whose_keys_are_none_are_dropped() -> None:
    """Section 13.7, 2b: shorter than four bytes, or a name that is not UTF-8; whatever they hold."""
    odd = {b"abc": b"anything", b"\xff\xfe" + u32(2): b"anything", b"\x00": old_network("x", 1)[b"x" + u32(1)]}
    found = applied(networks_of(odd, old_network("kept", 0)), KEYS)["networks"]
    assert sorted(found) == [b"", b"kept"]
    assert applied(networks_of(odd), KEYS)["networks"] == {b"": EMPTY}


CURRENT = {
    "several": {**by_name(1, "one", "x"), **by_name(3, "two"), b"": index({1: b"one", 3: b"two"}, free=[2, 0])},
    "the one that could be read either way": {**by_name(0, "Network12345"), b"": index({0: b"Network12345"})},
    "a short name": {**by_name(0, "abc"), b"": index({0: b"abc"})},
    "none, with ids": {b"": EMPTY},
}


@pytest.mark.parametrize("name", CURRENT)
def test_current_networks_keep_their_bytes(name: str) -> None:
    """Check R204: (S14, H-6) also id 0 with empty description, group and tags, which was ambiguous in other bytes."""
    state = networks_of(CURRENT[name])
    assert applied(state, KEYS) == state


def test_current_is_what_the_row_with_the_ids_says() -> None:
    """(H-6) New shape, but another key for the id: not current, and not old; nothing is changed."""
    for name in ("network", "net", "n\xff\xfe\xfd"):
        key = name.encode("latin-1") if len(name) == 4 else name.encode()
        (value,) = by_name(0, "any").values()
        for ids in (index({0: b"other"}), index({1: key}), EMPTY, b"damaged"):
            error = refused_by(KEYS, networks_of({key: value, b"": ids}), UnknownShapeError)
            assert isinstance(error, UnknownShapeError)
            assert (error.family, error.key, error.kind) == ("networks", key, "network")


def test_mix_of_shapes_is_refused() -> None:
    """(H-6) Some current and some not."""
    state = networks_of(by_name(0, "new"), {b"": index({0: b"new"})}, old_network("old", 1))
    error = refused_by(KEYS, state, MixedShapesError)
    assert isinstance(error, MixedShapesError)
    assert (error.family, error.current, error.others, error.key) == ("networks", 1, 1, b"old" + u32(1))


FOREIGN = {
    "no array": b"foreign",
    "a position more": encode(["", NO_GROUP, [], [], THEN, 0]),
    "a position less": encode(["", NO_GROUP, [], []]),
    "a byte behind": encode(["", NO_GROUP, [], [], THEN]) + b"\0",
    "a time without zone": encode(["", NO_GROUP, [], [], THEN.replace(tzinfo=None)]),
    "the new shape": encode([1, "", NO_GROUP, [], THEN]),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_network_is_refused(what: str) -> None:
    """Section 13.7, 2b: a value that does not decode; the error has both reasons."""
    key = b"bad" + u32(1)
    error = refused_by(KEYS, networks_of(old_network("good", 0), {key: FOREIGN[what]}), UnknownShapeError)
    assert isinstance(error, UnknownShapeError)
    assert (error.family, error.key, error.kind) == ("networks", key, "network")
    assert key.hex() in str(error)


def test_what_has_no_place_in_the_new_format_is_refused() -> None:
    """An empty name, which is the key of the ids; two networks with one id; an id that would fill the memory."""
    assert "its name is empty" in str(refused_by(KEYS, networks_of(old_network("", 1)), UnknownShapeError))
    twice = networks_of(old_network("a", 1), old_network("b", 1))
    assert "both have the id 1" in str(refused_by(KEYS, twice, CorruptIndexError))
    assert "4294967295" in str(refused_by(KEYS, networks_of(old_network("a", 0xFFFFFFFF)), CorruptIndexError))


@given(st.dictionaries(st.integers(0, 40), st.sampled_from(["a", "net", "network", "äß", "net\0\0\0"]), max_size=8))
def test_any_networks(names: dict[int, str]) -> None:
    """Names are there once, with the smallest id; the table finds nothing wrong; a second run changes nothing."""
    state = networks_of(*[old_network(name, number, f"{number}") for number, name in names.items()])
    found = applied(state, KEYS)
    kept = {name: min(number for number, each in names.items() if each == name) for name in names.values()}
    ids = KeyIndex.decode(found["networks"][b""])
    assert dict(ids.entries()) == {number: name.encode() for name, number in kept.items()}
    with pystate.memory(families=["networks"]) as store:
        store.family("networks").update(found["networks"])
        table = NETWORKS.bind(store)
        assert {(each.name, each.id, each.description) for each in table.iter()} == {
            (name, number, str(number)) for name, number in kept.items()
        }
        assert table.check() == []
    assert applied(found, KEYS) == found


def test_the_fixture() -> None:
    found = applied(content_of("0.43.0"), TAGS, KEYS)
    assert found == content_of("0.44.0")
