"""Commands for the effects in a store: ``effects list``, ``show``, ``events``, ``pending``, and the way to the others.

These four open the store read-only and look at one state of it. What they show of an effect is what its record and its
trail say, in the words of `pystate.effects`. ``effects_deciding`` has the commands that write.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import pystate
from pystate.cli.effects_deciding import approve, deny, prune, recover, resolve
from pystate.cli.effects_finding import bound, find_effect, id_of, instant, json_text, moment
from pystate.cli.exits import Exit
from pystate.cli.output import Column, Output, complain, printable
from pystate.effects import (
    ABSENT,
    EffectEvent,
    EffectReads,
    EffectRecord,
    EffectStatus,
    ListQuery,
    event_to_json,
    record_to_json,
)

__all__ = ["effects"]

_PAGE = 1000
_ERROR_LENGTH = 60
"""How much of an error message a list shows; ``show`` has all of it."""


def effects(arguments: argparse.Namespace, output: Output) -> int:
    """Run one of the commands."""
    return _ACTIONS[arguments.action](arguments, output)


# Lists


_COLUMNS: tuple[Column, ...] = (
    ("id", "left"),
    ("effect", "left"),
    ("status", "left"),
    ("attempts", "right"),
    ("in doubt", "left"),
    ("updated", "left"),
    ("error", "left"),
)


def _list(arguments: argparse.Namespace, output: Output) -> int:
    """List effects in the order of their ids; that one of all rows cannot be read is the exit code 1."""
    statuses = [EffectStatus(text) for text in arguments.status or ()]
    return _show_list(arguments, output, ListQuery.statuses(statuses), _COLUMNS, _cells, record_to_json)


def _cells(record: EffectRecord) -> tuple[object, ...]:
    return (
        record.id,
        str(record.key),
        str(record.status),
        record.attempt_count,
        record.status.is_in_doubt or record.may_have_applied,
        instant(record.updated_at),
        None if record.last_error is None else _shortened(record.last_error.message),
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _ERROR_LENGTH else text[: _ERROR_LENGTH - 3] + "..."


_PENDING_COLUMNS: tuple[Column, ...] = (
    ("id", "left"),
    ("effect", "left"),
    ("status", "left"),
    ("attempts", "right"),
    ("waits for", "left"),
    ("not before", "left"),
    ("updated", "left"),
)

_WAITS_FOR = {
    EffectStatus.PENDING: "a worker",
    EffectStatus.AWAITING_APPROVAL: "an approval",
    EffectStatus.EXECUTING: "recovery",
    EffectStatus.UNKNOWN: "a worker",
    EffectStatus.VERIFYING: "recovery",
    EffectStatus.NEEDS_INTERVENTION: "an operator",
    EffectStatus.COMPENSATING: "a worker",
    EffectStatus.COMPENSATION_FAILED: "an operator",
}


def _pending(arguments: argparse.Namespace, output: Output) -> int:
    """List what is not settled and what nobody holds, with what it waits for."""

    def cells(record: EffectRecord) -> tuple[object, ...]:
        due = None if record.next_attempt_at is None else instant(record.next_attempt_at)
        waits_for = _WAITS_FOR[record.status]
        name = str(record.key)
        return (
            record.id,
            name,
            str(record.status),
            record.attempt_count,
            waits_for,
            due,
            instant(record.updated_at),
        )

    def document(record: EffectRecord) -> dict[str, object]:
        return {**record_to_json(record), "waits_for": _WAITS_FOR[record.status]}

    return _show_list(arguments, output, ListQuery.pending(moment(arguments)), _PENDING_COLUMNS, cells, document)


def _show_list(
    arguments: argparse.Namespace,
    output: Output,
    query: ListQuery,
    columns: tuple[Column, ...],
    cells: Callable[[EffectRecord], tuple[object, ...]],
    document: Callable[[EffectRecord], dict[str, object]],
) -> int:
    """Show what a query finds, page by page, as a table or as JSON Lines."""
    rows, unreadable = [], 0
    with pystate.open(arguments.store, read_only=True) as store, bound(store, arguments) as reads:
        for found in _selected(reads, query, arguments):
            if isinstance(found, EffectRecord):
                if arguments.json:
                    output.json_line(document(found))
                else:
                    rows.append(cells(found))
            else:
                complain(str(found))
                unreadable += 1
    if not arguments.json:
        output.table(columns, rows)
    return Exit.NEGATIVE if unreadable else Exit.OK


def _selected(
    reads: EffectReads, query: ListQuery, arguments: argparse.Namespace
) -> Iterator[EffectRecord | pystate.PystateError]:
    """The records of a query that pass the other options, and the errors met on the way."""
    missing: int | None = arguments.limit
    after = None if arguments.after is None else id_of(arguments.after)
    while missing is None or missing > 0:
        page = reads.list_results(
            ListQuery(status_in=query.status_in, lease_expired_at=query.lease_expired_at, after=after, limit=_PAGE)
        )
        records = 0
        for record, error in page:
            if error is not None:
                yield error
                continue
            if record is None:
                continue
            records += 1
            after = record.id
            if arguments.name is None or record.key.name == arguments.name:
                yield record
                missing = None if missing is None else missing - 1
                if missing == 0:
                    return
        if records < _PAGE:
            return


# One effect


_EVENT_COLUMNS: tuple[Column, ...] = (
    ("#", "right"),
    ("at", "left"),
    ("transition", "left"),
    ("status", "left"),
    ("attempt", "right"),
    ("actor", "left"),
    ("payload", "left"),
)


def _show(arguments: argparse.Namespace, output: Output) -> int:
    """Show every field of an effect, and its trail; an absent one is the exit code 1."""
    record, events = _found(arguments)
    if arguments.json:
        output.json(
            {
                "found": record is not None,
                "effect": None if record is None else record_to_json(record),
                "events": [event_to_json(event) for event in events],
            }
        )
    elif record is not None:
        output.table((("field", "left"), ("value", "left")), list(_fields(record)))
        output.line("")
        _show_trail(output, events)
    return _told(arguments, record)


def _events(arguments: argparse.Namespace, output: Output) -> int:
    """Show the trail of an effect; an absent one is the exit code 1."""
    record, events = _found(arguments)
    if arguments.json:
        for event in events:
            output.json_line(event_to_json(event))
    elif record is not None:
        _show_trail(output, events)
    return _told(arguments, record)


def _found(arguments: argparse.Namespace) -> tuple[EffectRecord | None, list[EffectEvent]]:
    with pystate.open(arguments.store, read_only=True) as store, bound(store, arguments) as reads:
        record = find_effect(reads, arguments.effect)
        return record, [] if record is None else reads.events(record.id)


def _told(arguments: argparse.Namespace, record: EffectRecord | None) -> int:
    if record is not None:
        return Exit.OK
    complain(f"no effect {printable(arguments.effect)}")
    return Exit.NEGATIVE


def _show_trail(output: Output, events: list[EffectEvent]) -> None:
    rows = [
        (
            event.sequence,
            instant(event.at),
            event.transition.audit_name.removeprefix("effect."),
            f"{event.from_status} -> {event.to_status}",
            event.attempt,
            event.actor,
            None if event.payload is ABSENT else json_text(event.payload),
        )
        for event in events
    ]
    output.table(_EVENT_COLUMNS, rows)


def _fields(record: EffectRecord) -> Iterator[tuple[str, object]]:
    """Every field as it is stored, with the keys that are derived from its key; a dash where there is nothing."""
    document = record_to_json(record)
    for name in record.__struct_fields__:
        if name == "key":
            yield "name", str(record.key.name)
            yield "key", str(record.key.key)
            yield "idempotency_key", str(record.key.idempotency_key())
        elif name not in document:
            yield name, None
        else:
            value = document[name]
            plain = isinstance(value, str | bool) and name not in ("input", "output")
            yield name, value if plain else json_text(value)


_ACTIONS: dict[str, Callable[[argparse.Namespace, Output], int]] = {
    "list": _list,
    "show": _show,
    "events": _events,
    "pending": _pending,
    "resolve": resolve,
    "approve": approve,
    "deny": deny,
    "recover": recover,
    "prune": prune,
}
