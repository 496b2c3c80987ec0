"""`Network`, `AllowNetwork` and `BlockNetwork`: named groups of addresses. Three indexed tables.

A `Network` is anybody's, and has tags. An allowed or blocked network is one customer's: its customer and its name make
its key, customer first.
"""

from __future__ import annotations

import msgspec

from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.stored import U32, Instant
from pystate.tables import IndexedTable, Key, PositionalValue, rest_text, uint32

__all__ = ["ALLOW_NETWORKS", "BLOCK_NETWORKS", "NETWORKS", "AllowNetwork", "BlockNetwork", "Network"]


class Network(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A named group of addresses.

    Attributes:
        name: its key, not empty.
        id: given by the table; ignored when storing a new one.
        description: for people.
        networks: the addresses.
        tag_ids: of its network tags; the constructor sorts them and leaves out what is there twice.
        creation_time: when it was made.
    """

    name: str
    id: U32
    description: str
    networks: HostNetworkGroup
    tag_ids: tuple[U32, ...]
    creation_time: Instant

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "tag_ids", tuple(sorted(set(self.tag_ids))))


_NETWORK_KEY = Key(name=rest_text)

NETWORKS: IndexedTable[Network] = IndexedTable(
    Network, family="networks", key=_NETWORK_KEY, value=PositionalValue(Network, _NETWORK_KEY)
)
"""The table of networks."""


class AllowNetwork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Addresses that a customer trusts.

    Attributes:
        customer_id: whose it is; with `name` its key.
        name: unique among those of the customer.
        id: given by the table; ignored when storing a new one.
        networks: the addresses.
        description: for people.
    """

    customer_id: U32
    name: str
    id: U32
    networks: HostNetworkGroup
    description: str


class BlockNetwork(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Addresses that a customer does not let in. Its attributes are those of `AllowNetwork`."""

    customer_id: U32
    name: str
    id: U32
    networks: HostNetworkGroup
    description: str


_CUSTOMER_KEY = Key(customer_id=uint32, name=rest_text)

ALLOW_NETWORKS: IndexedTable[AllowNetwork] = IndexedTable(
    AllowNetwork, family="allow networks", key=_CUSTOMER_KEY, value=PositionalValue(AllowNetwork, _CUSTOMER_KEY)
)
"""The table of allowed networks. Of the key, an update changes both fields or none; see `pystate.tables.Fields`."""

BLOCK_NETWORKS: IndexedTable[BlockNetwork] = IndexedTable(
    BlockNetwork, family="block networks", key=_CUSTOMER_KEY, value=PositionalValue(BlockNetwork, _CUSTOMER_KEY)
)
"""The table of blocked networks; as `ALLOW_NETWORKS`."""
