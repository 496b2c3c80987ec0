"""Commands for the operation attempts of a manager: ``review list``, ``show``, ``sweep``, ``prune``.

They take the manager's data directory, or the store in it, and never make one. ``list`` and ``show`` open it read-only.
``sweep`` and ``prune`` are one commit each, and with ``--dry-run`` the same without the commit. No clock is read: what
depends on time takes its instant as an argument.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

import pystate
from pystate.cli.exits import CommandError, Exit
from pystate.cli.output import Column, Output, complain, printable
from pystate.cli.writing import open_for_writing
from pystate.errors import DecodeError, FamilyNotFoundError, StoreNotFoundError
from pystate.review.operation_attempt import FAMILY, OPERATION_ATTEMPTS, OperationAttempt
from pystate.review.operation_attempts import OperationAttempts, RetentionBound
from pystate.review.stored import StoredEnum

__all__ = ["review"]

STATES = "states.db"
"""The store in a data directory."""


def review(arguments: argparse.Namespace, output: Output) -> int:
    """Run one of the commands on the store that the directory is, or has."""
    within = os.path.join(arguments.store, STATES)
    if os.path.lexists(within):
        arguments.store = within
    try:
        return _ACTIONS[arguments.action](arguments, output)
    except StoreNotFoundError as error:
        raise CommandError(
            Exit.STORE, f"{error.path}: no store here, and none called {STATES} in it; give a manager's data directory"
        ) from error


@contextmanager
def _attempts(
    source: pystate.Store | pystate.Transaction, arguments: argparse.Namespace
) -> Iterator[OperationAttempts]:
    """The table of the attempts; what goes wrong with it is said in words for a command line."""
    try:
        yield OperationAttempts(OPERATION_ATTEMPTS, source)
    except FamilyNotFoundError as error:
        there = ", ".join(map(repr, error.families))
        raise CommandError(
            Exit.STORE,
            f"{arguments.store}: not the state of a manager: it has no family {FAMILY!r}, but {there}; give a data "
            f"directory, or the {STATES} in it",
        ) from error
    except DecodeError as error:
        raise CommandError(Exit.CORRUPTION, f"{arguments.store}: {error}; nothing was changed") from error


# Reading


_COLUMNS: tuple[Column, ...] = (
    ("key", "left"),
    ("host", "left"),
    ("target", "left"),
    ("instance", "right"),
    ("action", "left"),
    ("phase", "left"),
    ("outcome", "left"),
    ("owes", "left"),
    ("started", "left"),
    ("expires", "left"),
)


def _list(arguments: argparse.Namespace, output: Output) -> int:
    """Show attempts in the order of their keys; that one of all rows cannot be read is the exit code 1."""
    rows, unreadable = [], 0
    with pystate.open(arguments.store, read_only=True) as store, _attempts(store, arguments) as attempts:
        for attempt, error in attempts.iter_results():
            if error is not None:
                complain(str(error))
                unreadable += 1
            elif attempt is not None and _selected(attempt, arguments):
                if arguments.json:
                    output.json_line(_document(attempt))
                else:
                    rows.append(_cells(attempt))
    if not arguments.json:
        output.table(_COLUMNS, rows)
    return Exit.NEGATIVE if unreadable else Exit.OK


def _selected(attempt: OperationAttempt, arguments: argparse.Namespace) -> bool:
    """Whether an attempt passes all filters that were given."""
    return (
        not (arguments.live and attempt.is_terminal)
        and not (arguments.owing and attempt.cleanup_state is None)
        and (arguments.expired_at is None or attempt.expires_at <= arguments.expired_at)
        and (arguments.host is None or attempt.host == arguments.host)
        and (arguments.target is None or attempt.target == arguments.target)
    )


def _cells(attempt: OperationAttempt) -> tuple[object, ...]:
    return (
        attempt.idempotency_key,
        attempt.host,
        attempt.target,
        None if attempt.instance is None else str(attempt.instance),
        attempt.action.text,
        attempt.phase.text,
        "live" if attempt.outcome is None else attempt.outcome.text,
        None if attempt.cleanup_state is None else attempt.cleanup_state.text,
        _instant(attempt.started_at),
        _instant(attempt.expires_at),
    )


def _show(arguments: argparse.Namespace, output: Output) -> int:
    """Show every field of an attempt; an absent one is the exit code 1."""
    key: str = arguments.key
    try:
        key.encode()
    except UnicodeEncodeError:
        raise CommandError(Exit.USAGE, f"{printable(key)!r} is not UTF-8, so it is no idempotency key") from None
    with pystate.open(arguments.store, read_only=True) as store, _attempts(store, arguments) as attempts:
        attempt = attempts.get(key)
    document = None if attempt is None else _document(attempt)
    if arguments.json:
        output.json({"found": document is not None, "attempt": document})
    elif document is not None:
        fields: dict[str, object] = {}
        for name, value in document.items():
            fields.update(value if isinstance(value, dict) else {name: value})
        output.table((("field", "left"), ("value", "left")), [(name, _plain(value)) for name, value in fields.items()])
    if document is None:
        complain(f"no operation attempt {printable(key)!r}")
        return Exit.NEGATIVE
    return Exit.OK


def _plain(value: object) -> object:
    """Numbers as they are stored: an instance or a backup id is a name, not an amount."""
    return str(value) if isinstance(value, int) else value


def _document(attempt: OperationAttempt) -> dict[str, Any]:
    """An attempt for JSON: its fields by name, enums by their text, instants in UTC."""
    return {name: _value(getattr(attempt, name)) for name in attempt.__struct_fields__}


def _value(value: object) -> object:
    match value:
        case StoredEnum():
            return value.text
        case datetime():
            return _instant(value)
        case msgspec.Struct():
            return msgspec.structs.asdict(value)
    return value


def _instant(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


# Writing


def _sweep(arguments: argparse.Namespace, output: Output) -> int:
    """Finish what is past its deadline."""
    count, sequence = _write(arguments, lambda attempts: attempts.sweep_expired(arguments.at))
    if arguments.json:
        output.json({"at": _instant(arguments.at), "dry_run": arguments.dry_run, "failed": count, "sequence": sequence})
    else:
        output.line(f"{'would be finished' if arguments.dry_run else 'finished'} as failed: {count:,}")
    return Exit.OK


def _prune(arguments: argparse.Namespace, output: Output) -> int:
    """Delete what is beyond the bound."""
    bound = RetentionBound(max_age=arguments.max_age, max_terminal_per_triple=arguments.keep)
    count, sequence = _write(arguments, lambda attempts: attempts.prune(bound, arguments.at))
    if arguments.json:
        output.json(
            {
                "at": _instant(arguments.at),
                "max_age_seconds": int(arguments.max_age.total_seconds()),
                "keep": arguments.keep,
                "dry_run": arguments.dry_run,
                "deleted": count,
                "sequence": sequence,
            }
        )
    else:
        output.line(f"{'would be deleted' if arguments.dry_run else 'deleted'}: {count:,}")
    return Exit.OK


def _write(arguments: argparse.Namespace, action: Callable[[OperationAttempts], int]) -> tuple[int, int]:
    """Do it in a transaction, which is rolled back in a dry run; return the count and the sequence afterwards."""
    with open_for_writing(arguments, create=False) as store:
        with store.begin() as txn, _attempts(txn, arguments) as attempts:
            count = action(attempts)
            if arguments.dry_run:
                txn.rollback()
        return count, store.sequence


_ACTIONS: dict[str, Callable[[argparse.Namespace, Output], int]] = {
    "list": _list,
    "show": _show,
    "sweep": _sweep,
    "prune": _prune,
}
