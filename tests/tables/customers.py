"""Indexed tables for tests: a plain one, one with secondary indexes, one stored by position; and stores for them."""

from __future__ import annotations

from typing import Any

import msgspec

import pystate
from pystate import Store
from pystate.tables import Index, IndexedTable, Key, PositionalValue, int64, rest_text, text, uint32
from tests.engine.memory_files import DIRECTORY, MemoryFiles

__all__ = [
    "CUSTOMERS", "FAMILIES", "MEMBERS", "NETWORKS", "Customer", "Member", "Network", "customer", "disk_store", "member",
    "memory_store", "network",
]  # fmt: skip

FAMILIES = ["customers", "members", "networks", "meta"]


class Customer(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    note: str


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Found by badge, if there is one, which nobody else has; and by rank."""

    number: int
    name: str
    badge: str = ""
    rank: int = 0


class Network(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    customer_id: int
    name: str
    id: int
    note: str


CUSTOMERS = IndexedTable(Customer, family="customers", key=Key(name=rest_text))
MEMBERS: IndexedTable[Member] = IndexedTable(
    Member,
    family="members",
    key=Key(name=rest_text),
    id_field="number",
    indexes=[
        Index("badge", tag=0xF8, key=Key(badge=text), unique=True, condition=lambda member: member.badge != ""),
        Index("rank", tag=0xFF, key=Key(rank=int64)),
    ],
)
NETWORK_KEY = Key(customer_id=uint32, name=rest_text)
NETWORKS = IndexedTable(Network, family="networks", key=NETWORK_KEY, value=PositionalValue(Network, NETWORK_KEY))


def customer(name: str, note: str = "", *, id: int = 0) -> Customer:  # noqa: A002
    return Customer(id=id, name=name, note=note)


def member(name: str, **fields: Any) -> Member:
    return Member(**{"number": 0, "name": name, **fields})


def network(customer_id: int, name: str, note: str = "", *, id: int = 0) -> Network:  # noqa: A002
    return Network(customer_id=customer_id, name=name, id=id, note=note)


def memory_store() -> Store:
    """An empty store in memory that has the families."""
    return pystate.memory(families=FAMILIES)


def disk_store(files: MemoryFiles) -> Store:
    """The store that stands in these files; made, with the families, when there is none."""
    return pystate.open(DIRECTORY, families=FAMILIES, create_missing_families=True, files=files)
