"""Networks, and those that customers allow and block: keys, values, and updates of some fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pystate.errors import DecodeError, EntryChangedError, InvalidRecordError, KeyExistsError
from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.networks import (
    ALLOW_NETWORKS,
    BLOCK_NETWORKS,
    NETWORKS,
    AllowNetwork,
    BlockNetwork,
    Network,
)
from pystate.review.store import ReviewStore
from pystate.tables import Fields
from tests.review.node_samples import THEN, changed

GROUP = HostNetworkGroup.new(addresses=["10.0.0.1"])
OTHER = HostNetworkGroup.new(networks=["10.0.0.0/8"])


@pytest.fixture
def review() -> Iterator[ReviewStore]:
    with ReviewStore.memory() as review:
        yield review


def network(name: str, tags: Any = (), **fields: Any) -> Network:
    plain = Network(name=name, id=0, description="d", networks=GROUP, tag_ids=tags, creation_time=THEN)
    return changed(plain, **fields)


def allowed(customer_id: int, name: str, **fields: Any) -> AllowNetwork:
    plain = AllowNetwork(customer_id=customer_id, name=name, id=0, networks=GROUP, description="d")
    return changed(plain, **fields)


def test_tag_ids_are_sorted_and_unique(review: ReviewStore) -> None:
    given = network("a", [20, 10, 20])
    assert given.tag_ids == (10, 20)
    review.networks.put(given)
    assert review.networks.get("a") == given
    plain = msgspec.msgpack.decode(review.store.family("networks")[b"a"])
    assert plain == [0, "d", [[b"\x0a\0\0\1"], [], []], [10, 20], THEN]


def test_keys_are_those_of_the_specification(review: ReviewStore) -> None:
    """Section 11: a network by its name; the other two by customer, 4 bytes, and name."""
    assert NETWORKS.row_key(network("net")) == b"net"
    assert ALLOW_NETWORKS.row_key(allowed(1, "net")) == b"\0\0\0\1net"
    review.allow_networks.put(allowed(0, "Old Allow", networks=HostNetworkGroup.new(), description="Old"))
    row = review.store.family("allow networks")[b"\0\0\0\0Old Allow"]
    assert msgspec.msgpack.decode(row) == [0, [[], [], []], "Old"]
    blocked = BlockNetwork(customer_id=0, name="x", id=0, networks=GROUP, description="d")
    review.block_networks.put(blocked)
    assert msgspec.msgpack.decode(review.store.family("block networks")[b"\0\0\0\0x"]) == [
        0, [[b"\x0a\0\0\1"], [], []], "d",
    ]  # fmt: skip
    assert review.block_networks.get(0, "x") == blocked


def test_one_name_may_be_of_several_customers(review: ReviewStore) -> None:
    assert [review.allow_networks.put(allowed(customer, "n")) for customer in (2, 1)] == [0, 1]
    with pytest.raises(KeyExistsError):
        review.allow_networks.put(allowed(1, "n"))
    assert [each.customer_id for each in review.allow_networks.iter()] == [1, 2]
    assert [each.id for each in review.allow_networks.iter(prefix=(2,))] == [0]


@pytest.mark.parametrize("key", [b"\0\0\0", b"\0\0\0\1\xff"])
def test_key_that_is_too_short_or_no_text_cannot_be_read(key: bytes) -> None:
    value = ALLOW_NETWORKS.encode(allowed(1, "n"))
    with pytest.raises(DecodeError, match="key field"):
        ALLOW_NETWORKS.decode(key, value)
    with pytest.raises(DecodeError, match="key field"):
        BLOCK_NETWORKS.decode(key, value)


def test_update_of_some_fields(review: ReviewStore) -> None:
    """Section 11: only what is given is compared, and only what is given changes."""
    table = review.allow_networks
    id = table.put(allowed(1, "n"))  # noqa: A001
    old = Fields(ALLOW_NETWORKS, description="d")
    assert table.update(id, old, Fields(ALLOW_NETWORKS, networks=OTHER)) == allowed(1, "n", networks=OTHER)
    with pytest.raises(EntryChangedError):
        table.update(id, Fields(ALLOW_NETWORKS, networks=GROUP), Fields(ALLOW_NETWORKS, description="e"))
    with pytest.raises(EntryChangedError):
        table.update(id, Fields(ALLOW_NETWORKS, name="m"), Fields(ALLOW_NETWORKS, description="e"))
    with pytest.raises(EntryChangedError):
        table.update(id, Fields(ALLOW_NETWORKS, customer_id=2), Fields(ALLOW_NETWORKS, description="e"))
    assert table.get_by_id(id) == allowed(1, "n", networks=OTHER)


def test_row_moves_only_if_customer_and_name_are_both_given(review: ReviewStore) -> None:
    """Section 11: one of them alone is lost, since neither is part of the value."""
    table = review.allow_networks
    id = table.put(allowed(1, "n"))  # noqa: A001
    for half in (Fields(ALLOW_NETWORKS, name="m"), Fields(ALLOW_NETWORKS, customer_id=2, description="e")):
        table.update(id, Fields(ALLOW_NETWORKS), half)
    assert table.get_by_id(id) == allowed(1, "n", description="e")
    moved = table.update(id, Fields(ALLOW_NETWORKS), Fields(ALLOW_NETWORKS, name="m", customer_id=2))
    assert moved == allowed(2, "m", description="e")
    assert set(review.store.family("allow networks")) == {b"", b"\0\0\0\2m"}
    table.put(allowed(1, "n"))
    with pytest.raises(KeyExistsError):
        table.update(id, Fields(ALLOW_NETWORKS), Fields(ALLOW_NETWORKS, name="n", customer_id=1))
    assert table.check() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"tag_ids": (-1,)},
        {"tag_ids": (1 << 32,)},
        {"networks": None},
        {"creation_time": THEN.replace(tzinfo=None)},
    ],
)
def test_what_could_not_be_read_again_is_refused(review: ReviewStore, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecordError):
        review.networks.put(changed(network("n"), **fields))
    assert (review.networks.count(), list(review.networks.iter())) == (0, [])
