"""`Host`: what has been seen of a host of a customer; and the table of hosts.

The key holds the address as its 4 or 16 bytes, so those of a customer stand in the order of numbers, IPv4 and IPv6 side
by side.
"""

from __future__ import annotations

from ipaddress import ip_address

import msgspec

from pystate.review.host_network_group import IPAddress, pack_address
from pystate.review.records import freeze
from pystate.review.stored import I64, U32
from pystate.tables import Key, Part, PositionalValue, Readable, Scannable, Schema, Writable, uint32

__all__ = ["HOSTS", "Host", "Hosts"]


class Host(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A host.

    Attributes:
        customer_id: whose it is.
        address: its IP address, as ``ipaddress`` writes it; the constructor brings it to that form.
        creation_time: when it was first seen, in the unit of whoever stores it.
        opened_ports, known_agents, unknown_agents: each item as whoever stores it encodes it; not looked at here. Lists
            are taken too, and become tuples.

    Raises:
        ValueError: `address` is none, or has a scope.
    """

    customer_id: U32
    address: str
    creation_time: I64
    opened_ports: tuple[bytes, ...]
    known_agents: tuple[bytes, ...]
    unknown_agents: tuple[bytes, ...]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "address", str(ip_address(pack_address(self.address))))
        freeze(self, "opened_ports", "known_agents", "unknown_agents")

    @property
    def ip(self) -> IPAddress:
        """The address, for calculating with it."""
        return ip_address(self.address)


class _Address(Part[str]):
    """An IP address as its 4 or 16 bytes; the last part of a key only."""

    last_only = True

    def encode(self, value: str | IPAddress) -> bytes:
        return pack_address(value)

    def decode(self, data: bytes, at: int) -> tuple[str, int]:
        if len(data) - at not in (4, 16):
            raise ValueError(f"4 or 16 bytes of an address expected at offset {at}, {max(len(data) - at, 0)} found")
        return str(ip_address(data[at:])), len(data)


_KEY = Key(customer_id=uint32, address=_Address())

HOSTS: Schema[Host] = Schema(Host, family="hosts", key=_KEY, value=PositionalValue(Host, _KEY))
"""The schema of the family. `Hosts` has all operations of a table."""


class Hosts(Readable[Host], Scannable[Host], Writable[Host]):
    """The hosts of a store, of a transaction, or as of a view. `ReviewStore.hosts` makes it.

    ``get`` and ``delete`` take the customer and the address, as text or as of ``ipaddress``. The hosts of one customer
    are ``hosts.iter(prefix=(customer_id,))``.
    """

    __slots__ = ()
