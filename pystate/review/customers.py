"""`Customer`: whose hosts are managed. An indexed table: ids are small and given anew once freed."""

from __future__ import annotations

import msgspec

from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.records import KeyedValue, freeze
from pystate.review.stored import U32, Instant, StoredEnum
from pystate.tables import IndexedTable, Key, rest_text

__all__ = ["CUSTOMERS", "Customer", "CustomerNetwork", "NetworkType"]


class NetworkType(StoredEnum):
    """Where a network of a customer stands."""

    INTRANET = 0, 0
    EXTRANET = 1, 1
    GATEWAY = 2, 2


class CustomerNetwork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """One network of a customer.

    Attributes:
        name, description: for people.
        network_type: where it stands.
        network_group: what belongs to it.
    """

    name: str
    description: str
    network_type: NetworkType
    network_group: HostNetworkGroup


class Customer(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A customer.

    Attributes:
        id: given by the table; ignored when storing a new one.
        name: its key, not empty.
        description: for people.
        networks: in any order, which is kept. A list is taken too, and becomes a tuple.
        creation_time: when it was made.
    """

    id: U32
    name: str
    description: str
    networks: tuple[CustomerNetwork, ...]
    creation_time: Instant

    def __post_init__(self) -> None:
        freeze(self, "networks")


_KEY = Key(name=rest_text)

CUSTOMERS: IndexedTable[Customer] = IndexedTable(
    Customer, family="customers", key=_KEY, value=KeyedValue(Customer, _KEY)
)
"""The table of customers."""
