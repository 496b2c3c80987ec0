"""`HostNetworkGroup`: single addresses, networks and ranges of addresses, as one value.

Stored as an array of three arrays. An item is one byte string, whose length tells the version of IP:

========= ================================= ================
item      bytes                             length
========= ================================= ================
address   the address, big-endian           4 or 16
network   the address, the prefix length    5 or 17
range     first address, last address       8 or 32
========= ================================= ================

Each array is sorted by length, then bytes, and has nothing twice: IPv4 stands before IPv6, then numbers decide. So two
groups of the same addresses, networks and ranges are equal, and have the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from itertools import pairwise
from typing import TypeAlias

import msgspec

__all__ = ["HostNetworkGroup", "IPAddress", "IPNetwork", "pack_address"]

IPAddress: TypeAlias = IPv4Address | IPv6Address
"""An address of either version."""
IPNetwork: TypeAlias = IPv4Network | IPv6Network
"""A network of either version."""

_ADDRESS = {4, 16}
_NETWORK = {5, 17}
_RANGE = {8, 32}


class HostNetworkGroup(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Addresses, networks and ranges, each sorted and without duplicates. `new` makes one; threads may share it.

    Attributes:
        packed_addresses, packed_networks, packed_ranges: the items as they are stored; see the module.

    Raises:
        ValueError: an item is none, or one is not greater than that before it. So it is when a row is read.
    """

    packed_addresses: tuple[bytes, ...]
    packed_networks: tuple[bytes, ...]
    packed_ranges: tuple[bytes, ...]

    def __post_init__(self) -> None:
        _check(self.packed_addresses, "address", _ADDRESS)
        _check(self.packed_networks, "network", _NETWORK)
        _check(self.packed_ranges, "range", _RANGE)
        for packed in self.packed_networks:
            _unpack_network(packed)
        for packed in self.packed_ranges:
            if packed[: len(packed) // 2] > packed[len(packed) // 2 :]:
                raise ValueError(f"the range {packed.hex()} ends before it begins")

    @classmethod
    def new(
        cls,
        *,
        addresses: Iterable[str | IPAddress] = (),
        networks: Iterable[str | IPNetwork] = (),
        ranges: Iterable[tuple[str | IPAddress, str | IPAddress]] = (),
    ) -> HostNetworkGroup:
        """A group of these, in any order.

        Arguments:
            addresses: as text or as of ``ipaddress``.
            networks: likewise, without bits set behind the prefix.
            ranges: the first and the last address of each, both of one version.

        Raises:
            ValueError: text that is no address or network; a range that ends before it begins or whose ends are of two
                versions; an IPv6 address with a scope, which is not stored.
        """
        return cls(
            packed_addresses=_sorted(map(pack_address, addresses)),
            packed_networks=_sorted(map(_pack_network, networks)),
            packed_ranges=_sorted(_pack_range(first, last) for first, last in ranges),
        )

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """The single addresses: IPv4 before IPv6, then by number."""
        return tuple(map(ip_address, self.packed_addresses))

    @property
    def networks(self) -> tuple[IPNetwork, ...]:
        """The networks: IPv4 before IPv6, then by address, then by prefix length."""
        return tuple(map(_unpack_network, self.packed_networks))

    @property
    def ranges(self) -> tuple[tuple[IPAddress, IPAddress], ...]:
        """The ranges, first and last address of each: IPv4 before IPv6, then by first, then by last."""
        return tuple(
            (ip_address(packed[: len(packed) // 2]), ip_address(packed[len(packed) // 2 :]))
            for packed in self.packed_ranges
        )


def pack_address(address: str | IPAddress) -> bytes:
    """The 4 or 16 bytes of an address.

    Raises:
        ValueError: it is none, or has a scope, which these bytes cannot hold. TypeError: it is of another type.
    """
    if not isinstance(address, (str, IPv4Address, IPv6Address)):
        raise TypeError(f"an IP address or its text expected, not {address!r}")
    found = ip_address(address)
    if isinstance(found, IPv6Address) and found.scope_id is not None:
        raise ValueError(f"{address!r} has a scope, which cannot be stored; leave it out")
    return found.packed


def _pack_network(network: str | IPNetwork) -> bytes:
    if not isinstance(network, (str, IPv4Network, IPv6Network)):
        raise TypeError(f"an IP network or its text expected, not {network!r}")
    found = ip_network(network)
    return pack_address(found.network_address) + bytes((found.prefixlen,))


def _unpack_network(packed: bytes) -> IPNetwork:
    address, prefix = packed[:-1], packed[-1]
    return IPv4Network((address, prefix)) if len(address) == 4 else IPv6Network((address, prefix))


def _pack_range(first: str | IPAddress, last: str | IPAddress) -> bytes:
    ends = pack_address(first), pack_address(last)
    if len(ends[0]) != len(ends[1]):
        raise ValueError(f"a range has ends of one version of IP; {first} and {last} are of two")
    return ends[0] + ends[1]


def _place(packed: bytes) -> tuple[int, bytes]:
    return len(packed), packed


def _sorted(items: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(sorted(set(items), key=_place))


def _check(items: tuple[bytes, ...], kind: str, sizes: set[int]) -> None:
    """Refuse items of another size, and what is not in order."""
    for packed in items:
        if len(packed) not in sizes:
            raise ValueError(f"{len(packed)} bytes are no {kind}: {packed.hex()}")
    for before, packed in pairwise(items):
        if _place(before) >= _place(packed):
            raise ValueError(f"the {kind} {packed.hex()} stands twice or out of order")
