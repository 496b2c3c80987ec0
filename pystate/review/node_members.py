"""What a node does with its agents and, the same again, with its external services: its *members*.

Functions over one family in a state or in an open transaction, for `Nodes`, which calls them for both families. Members
stand under the id of their node and a key of their own. What is refused is refused by the functions that check; the
functions that write are called after them and refuse nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from pystate import FamilyReader, FamilyWriter
from pystate.errors import DecodeError, InvalidRecordError, NoSuchEntryError, ValueMismatchError
from pystate.review.agent import Agent
from pystate.review.external_service import ExternalService
from pystate.tables import Schema

__all__ = [
    "change_members",
    "check_members",
    "check_old_members",
    "member_keys",
    "of_node",
    "read_members",
    "remove_members",
    "store_members",
]

M = TypeVar("M", Agent, ExternalService)


def of_node(schema: Schema[M], members: Iterable[M], node_id: int) -> tuple[M, ...]:
    """The same members, of this node.

    Raises:
        TypeError: one is of another type.
    """
    for member in members:
        if not isinstance(member, schema.record):
            raise TypeError(f"a {schema.record.__name__} expected, not {type(member).__name__}")
    return tuple([msgspec.structs.replace(member, node_id=node_id) for member in members])


def member_keys(members: Iterable[Agent] | Iterable[ExternalService]) -> tuple[str, ...]:
    """Their keys, in order."""
    return tuple([member.key for member in members])


# Reading


def read_members(
    schema: Schema[M], rows: FamilyReader, node_id: int, keys: Iterable[str], *, skip_unreadable: bool = False
) -> tuple[list[M], list[str]]:
    """The members of a node with these keys, in this order, and the keys of those that are not there.

    Arguments:
        skip_unreadable: leave out rows that cannot be read.

    Raises:
        DecodeError: a row cannot be read, and `skip_unreadable` is False.
    """
    found, missing = [], []
    for key in keys:
        try:
            member = schema.stored(rows, schema.key.encode(node_id, key))
        except DecodeError:
            if not skip_unreadable:
                raise
            continue
        if member is None:
            missing.append(key)
        else:
            found.append(member)
    return found, missing


# Checking, before anything is written


def check_members(schema: Schema[M], members: Sequence[M]) -> None:
    """Refuse members that cannot be stored together, whatever node they become members of.

    Raises:
        TypeError: one is of another type. InvalidRecordError: one could not be read again, or two have the same key.
    """
    seen: set[str] = set()
    for member in of_node(schema, members, 0):
        schema.row_key(member)
        schema.encode(member)
        if member.key in seen:
            raise InvalidRecordError(
                family=schema.family,
                kind=schema.record.__name__,
                reason=f"another one of its node has the key {member.key!r}",
            )
        seen.add(member.key)


def check_old_members(schema: Schema[M], rows: FamilyReader, old: Iterable[M], new: Iterable[M]) -> None:
    """Refuse a change of members that are not stored as `old` says. Those that do not change are not looked at.

    Arguments:
        old, new: of one node.

    Raises:
        NoSuchEntryError: there is none. ValueMismatchError: there is another one, byte for byte.
        InvalidRecordError: the old one could never have been stored.
    """
    to_be = {member.key: member for member in new}
    for member in old:
        after = to_be.get(member.key)
        if after is None or after == member:
            continue
        row_key = schema.row_key(member)
        stored = rows.get(row_key)
        if stored is None:
            raise NoSuchEntryError(family=schema.family, key=row_key)
        if stored != schema.encode(member):
            raise ValueMismatchError(family=schema.family, key=row_key)


# Writing, in a transaction


def store_members(schema: Schema[M], rows: FamilyWriter, members: Iterable[M]) -> None:
    """Write members, whatever stands under their keys."""
    for member in members:
        schema.store_record(rows, member)


def change_members(schema: Schema[M], rows: FamilyWriter, old: Iterable[M], new: Iterable[M]) -> None:
    """Delete what is only in `old`, write what is only in `new` or is another one there."""
    before = {member.key: member for member in old}
    after = {member.key for member in new}
    for key, member in before.items():
        if key not in after:
            schema.remove_record(rows, schema.row_key(member))
    store_members(schema, rows, [member for member in new if before.get(member.key) != member])


def remove_members(schema: Schema[M], rows: FamilyWriter, node_id: int, keys: Iterable[str]) -> None:
    """Delete the members of a node with these keys; no error for one that is not there."""
    for key in keys:
        schema.remove_record(rows, schema.key.encode(node_id, key))
