"""Commands that change effects: ``effects resolve``, ``approve``, ``deny``, ``recover``, ``prune``.

A decision is one commit without a lease: it is refused while somebody holds the effect. No code of an effect runs here,
so ``recover`` only marks what was left in the middle as unknown. Nothing is redacted: what is given is what is stored.
The time is ``--at``, or that of the system's clock, read once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pystate.cli.effects_finding import effects_of, find_effect, instant, moment
from pystate.cli.exits import CommandError, Exit
from pystate.cli.output import Output, complain, printable
from pystate.cli.writing import open_for_writing
from pystate.effects import (
    EffectId,
    EffectOperations,
    EffectRecord,
    EffectStatus,
    EffectStore,
    ErrorRecord,
    ListQuery,
    PruneQuery,
    Transition,
    TransitionRequest,
    event_to_json,
    record_to_json,
)
from pystate.errors import EffectStoreError

__all__ = ["approve", "deny", "prune", "recover", "resolve"]

T = TypeVar("T")

_MARKED_AT_ONCE = 100
_PRUNED_AT_ONCE = 500
_LEASE = timedelta(seconds=30)
"""Of a mark: never seen, since it is given back in the same commit."""

_RESOLUTIONS = {
    "applied": Transition.RESOLVED_APPLIED,
    "not_applied": Transition.RESOLVED_NOT_APPLIED,
    "retry": Transition.RESOLVED_RETRY,
    "compensated": Transition.RESOLVED_COMPENSATED,
}


# Decisions


def resolve(arguments: argparse.Namespace, output: Output) -> int:
    """Settle an effect of which nobody knows whether it happened."""
    fields: dict[str, Any] = {}
    if arguments.output is not None:
        if arguments.resolution != "applied":
            raise CommandError(Exit.USAGE, "--output goes with --applied only: nothing else has one")
        fields |= {"output": arguments.output.value, "output_schema_version": arguments.output_version}
    if arguments.resolution == "not_applied":
        fields["error"] = _error(arguments)
    return _decide(arguments, output, _RESOLUTIONS[arguments.resolution], fields)


def approve(arguments: argparse.Namespace, output: Output) -> int:
    """Let an effect that awaits approval begin."""
    return _decide(arguments, output, Transition.APPROVE, {})


def deny(arguments: argparse.Namespace, output: Output) -> int:
    """Reject an effect that awaits approval."""
    return _decide(arguments, output, Transition.DENY, {"error": _error(arguments)})


def _error(arguments: argparse.Namespace) -> ErrorRecord:
    return _usage(lambda: ErrorRecord(failure_class=None, message=arguments.note))


def _usage(make: Callable[[], T]) -> T:
    """Make something of arguments; what these cannot be is wrong usage."""
    try:
        return make()
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"{printable(str(error))}; nothing was written") from error


def _decide(arguments: argparse.Namespace, output: Output, transition: Transition, fields: dict[str, Any]) -> int:
    """Take a transition without a lease; that it is refused, or that there is no such effect, is the exit code 1."""
    at = moment(arguments)

    def decide(operations: EffectOperations) -> EffectRecord:
        record = find_effect(operations, arguments.effect)
        if record is None:
            raise CommandError(Exit.NEGATIVE, f"no effect {printable(arguments.effect)}")
        payload = {"note": arguments.note}
        request = _usage(
            lambda: TransitionRequest.new(
                record, None, transition, at, actor=arguments.actor, payload=payload, **fields
            )
        )
        return operations.transition(request)

    with open_for_writing(arguments, create=False) as store, effects_of(store, arguments) as effects:
        try:
            record = effects.transact(decide)
        except EffectStoreError as error:
            raise CommandError(Exit.NEGATIVE, f"refused: {error}") from error
        event = effects.events(record.id)[-1]
        sequence = store.sequence
    if arguments.json:
        output.json({"effect": record_to_json(record), "event": event_to_json(event), "sequence": sequence})
    else:
        output.line(f"{record.id}  {printable(str(record.key))}  {event.from_status} -> {event.to_status}")
    return Exit.OK


# Recovery


def recover(arguments: argparse.Namespace, output: Output) -> int:
    """Mark as unknown what was left in the middle; that one of all rows cannot be read is the exit code 1."""
    at, marked, unreadable = moment(arguments), list[EffectRecord](), 0
    with open_for_writing(arguments, create=False) as store, effects_of(store, arguments) as effects:
        after: EffectId | None = None
        while True:
            page = effects.list_results(ListQuery.expired_leases(at, limit=_MARKED_AT_ONCE, after=after))
            records = [record for record, _ in page if record is not None]
            for _, error in page:
                if error is not None:
                    complain(str(error))
                    unreadable += 1
            if records and not arguments.dry_run:
                _usage(lambda records=records: effects.transact(lambda on: _mark(on, records, at, arguments.worker)))  # type: ignore[misc]
            marked += records
            if len(records) < _MARKED_AT_ONCE:
                break
            after = records[-1].id
        sequence = store.sequence
    ids = [str(record.id) for record in marked]
    if arguments.json:
        output.json({"at": instant(at), "dry_run": arguments.dry_run, "marked_unknown": ids, "sequence": sequence})
    else:
        for record in marked:
            output.line(f"{record.id}  {printable(str(record.key))}  {record.status} -> {EffectStatus.UNKNOWN}")
        output.line(f"{'would be marked' if arguments.dry_run else 'marked'} as unknown: {len(marked):,}")
    return Exit.NEGATIVE if unreadable else Exit.OK


def _mark(operations: EffectOperations, records: list[EffectRecord], at: datetime, worker: str) -> None:
    """Mark some, in one commit. Each is leased for it, so that whoever held it before is a former holder for good."""
    for record in records:
        lease = operations.acquire_lease(record.id, worker, at, _LEASE)
        actor = f"recovery:{worker}"
        operations.transition(TransitionRequest.new(record, lease, Transition.LEASE_EXPIRED, at, actor=actor))
        operations.release_lease(lease)


# Retention


_SETTLED = ("committed", "failed", "rejected", "compensated")


def prune(arguments: argparse.Namespace, output: Output) -> int:
    """Delete settled effects that are old enough, each status by its age."""
    ages: dict[str, timedelta] = {}
    for status in _SETTLED:
        given: timedelta | None = getattr(arguments, status)
        age = arguments.settled if given is None else given
        if age is not None:
            ages[status] = age
    if not ages:
        raise CommandError(Exit.USAGE, "say what may go: --settled AGE, or an age for a status, such as --failed 7d")
    at, counts = moment(arguments), {}
    with open_for_writing(arguments, create=False) as store, effects_of(store, arguments) as effects:
        for status, age in ages.items():
            query = PruneQuery(EffectStatus(status), age, at, limit=_PRUNED_AT_ONCE)
            counts[status] = (_count if arguments.dry_run else _delete)(effects, query)
        sequence = store.sequence
    if arguments.json:
        seconds = {status: int(age.total_seconds()) for status, age in ages.items()}
        document: dict[str, Any] = {"at": instant(at), "ages_seconds": seconds, "dry_run": arguments.dry_run}
        output.json({**document, "deleted": counts, "total": sum(counts.values()), "sequence": sequence})
    else:
        heading = "would be deleted" if arguments.dry_run else "deleted"
        output.table((("status", "left"), (heading, "right")), list(counts.items()))
    return Exit.OK


def _delete(effects: EffectStore, query: PruneQuery) -> int:
    """Delete all, in commits of limited size."""
    total = 0
    while True:
        count = effects.prune(query)
        total += count
        if count < query.limit:
            return total


def _count(effects: EffectStore, query: PruneQuery) -> int:
    """How many there are to delete."""
    with effects.store.begin() as txn:
        count = effects.bind(txn).prune(PruneQuery(query.status, query.older_than, query.now, limit=10**9))
        txn.rollback()
    return count
