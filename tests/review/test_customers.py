"""The table of customers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pystate.errors import DecodeError, EntryChangedError, InvalidRecordError, KeyExistsError
from pystate.review.customers import CUSTOMERS, Customer, CustomerNetwork, NetworkType
from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.store import ReviewStore
from pystate.tables import Fields
from tests.review.node_samples import THEN, changed

NETWORK = CustomerNetwork(
    name="lan",
    description="inside",
    network_type=NetworkType.GATEWAY,
    network_group=HostNetworkGroup.new(addresses=["10.0.0.1"]),
)


@pytest.fixture
def review() -> Iterator[ReviewStore]:
    with ReviewStore.memory() as review:
        yield review


def customer(name: str, **fields: Any) -> Customer:
    plain = Customer(id=0, name=name, description="d", networks=(NETWORK,), creation_time=THEN)
    return changed(plain, **fields)


def test_row_is_the_name_and_all_fields_in_order(review: ReviewStore) -> None:
    review.customers.put(customer("other"))
    assert review.customers.put(customer("ann", networks=[NETWORK])) == 1
    assert review.customers.get_by_id(1) == review.customers.get("ann") == customer("ann", id=1)
    row = review.store.family("customers")[b"ann"]
    plain = [1, "ann", "d", [["lan", "inside", 2, [[b"\x0a\0\0\1"], [], []]]], THEN]
    assert msgspec.msgpack.decode(row) == plain
    assert [(each.name, each.value) for each in NetworkType] == [("INTRANET", 0), ("EXTRANET", 1), ("GATEWAY", 2)]


def test_name_is_in_the_key_and_in_the_value(review: ReviewStore) -> None:
    """A rename changes both; a row where they differ cannot be read."""
    id = review.customers.put(customer("ann"))  # noqa: A001
    renamed = review.customers.update(id, Fields(CUSTOMERS, name="ann"), Fields(CUSTOMERS, name="bob"))
    assert renamed == review.customers.get("bob") == customer("bob")
    assert review.customers.get("ann") is None
    rows = review.store.family("customers")
    rows.put(b"eve", rows[b"bob"])
    with pytest.raises(DecodeError, match="belongs under the key b'bob'"):
        review.customers.get("eve")


def test_update_compares_what_it_is_given(review: ReviewStore) -> None:
    id = review.customers.put(customer("ann"))  # noqa: A001
    review.customers.put(customer("bob"))
    new = Fields(CUSTOMERS, description="e", networks=())
    with pytest.raises(EntryChangedError):
        review.customers.update(id, customer("ann", description="x"), new)
    assert review.customers.update(id, customer("ann"), new) == customer("ann", description="e", networks=())
    with pytest.raises(KeyExistsError):
        review.customers.update(id, Fields(CUSTOMERS), Fields(CUSTOMERS, name="bob"))
    assert review.customers.check() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"networks": ("lan",)},
        {"networks": (changed(NETWORK, network_type="gateway"),)},
        {"creation_time": None},
        {"description": "\ud800"},
    ],
)
def test_what_could_not_be_read_again_is_refused(review: ReviewStore, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecordError):
        review.customers.put(changed(customer("ann"), **fields))
    assert (review.customers.count(), list(review.customers.iter())) == (0, [])


def test_freed_ids_are_given_again(review: ReviewStore) -> None:
    for name in "abc":
        review.customers.put(customer(name))
    assert review.customers.remove(1) == b"b"
    assert review.customers.get_by_id(1) is None
    assert [review.customers.put(customer(name)) for name in "de"] == [1, 3]
