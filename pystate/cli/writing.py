"""Commands that write: ``put``, ``delete``, ``families --create`` and ``--drop``.

Each is one commit, and prints nothing unless ``--json`` asks for its sequence. Commands that add something make the
store where the path is empty or does not exist, and say so; ``--no-create`` refuses instead.
"""

from __future__ import annotations

import argparse
import sys

import pystate
from pystate.cli.bytes_text import format_bytes
from pystate.cli.exits import CommandError, Exit
from pystate.cli.output import Output, complain

__all__ = ["change_families", "delete", "open_for_writing", "put"]


def open_for_writing(arguments: argparse.Namespace, *, create: bool) -> pystate.Store:
    """Open the store of a command for writing, and tell when it was made by this.

    Args:
        arguments: with ``store``, ``durability`` and ``lock_timeout``.
        create: make the store if there is none.

    Raises:
        LockedError: another writer kept it for all of ``lock_timeout``.
        StoreNotFoundError: there is none, and `create` is False.
        PystateError, OSError: as :func:`pystate.open`.
    """
    store = pystate.open(
        arguments.store, create=create, durability=arguments.durability, lock_timeout=arguments.lock_timeout
    )
    recovery = store.stats().recovery
    if recovery is not None and recovery.decision == "new":
        complain(f"made a new store: {arguments.store}")
    return store


def put(arguments: argparse.Namespace, output: Output) -> int:
    """Store a value under a key."""
    value: bytes | None = arguments.value
    if value is None:
        if sys.stdin is None:
            raise CommandError(Exit.USAGE, "standard input is closed; give the value as an argument")
        value = sys.stdin.buffer.read()
    with open_for_writing(arguments, create=not arguments.no_create) as store, store.begin() as txn:
        try:
            txn.put(arguments.family, arguments.key, value)
        except pystate.PystateError:
            raise
        except ValueError as error:  # over a limit of the store
            raise CommandError(Exit.USAGE, f"{error}; nothing was written") from error
        sequence = txn.commit()
    if arguments.json:
        output.json(
            {
                "family": arguments.family,
                "key": format_bytes(arguments.key),
                "value_bytes": len(value),
                "sequence": sequence,
            }
        )
    return Exit.OK


def delete(arguments: argparse.Namespace, output: Output) -> int:
    """Remove a key; that it was not there is the exit code 1."""
    key: bytes = arguments.key
    with open_for_writing(arguments, create=False) as store, store.begin() as txn:
        found = key in txn.family(arguments.family)
        if found:
            txn.delete(arguments.family, key)
        sequence = txn.commit()
    if arguments.json:
        output.json({"family": arguments.family, "key": format_bytes(key), "found": found, "sequence": sequence})
    if not found:
        complain(f"no key {format_bytes(key)} in family {arguments.family!r}")
        return Exit.NEGATIVE
    return Exit.OK


def change_families(arguments: argparse.Namespace, output: Output) -> int:
    """Create or drop a family."""
    create: str | None = arguments.create
    drop: str | None = arguments.drop
    with open_for_writing(arguments, create=create is not None and not arguments.no_create) as store:
        try:
            if create is not None:
                store.create_family(create)
            if drop is not None:
                store.drop_family(drop)
        except pystate.PystateError:
            raise
        except ValueError as error:  # not a name that a family can have, or one that cannot be dropped
            raise CommandError(Exit.USAGE, f"{error}; nothing was changed") from error
        names, sequence = store.families, store.sequence
    if arguments.json:
        output.json({"created": create, "dropped": drop, "families": names, "sequence": sequence})
    return Exit.OK
