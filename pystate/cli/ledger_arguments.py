"""The commands that look at the ledgers, of operations and of effects, and decide what is open in them."""

from __future__ import annotations

import argparse
from typing import Any

from pystate.cli.argument_parts import Parser, add, add_store, add_write_options
from pystate.cli.argument_values import as_age, as_count, as_instant, as_json, as_path

__all__ = ["STATUSES", "add_effects", "add_review"]

_TIMES = """\
instants and ages:
  An instant is a date, T, a time and an offset or Z: 2026-11-30T12:00:00Z. It is always
  given: these commands look at no clock. An age is a number of days, hours, minutes or
  seconds: 30d, 12h, 90m, 45s.
"""

_EFFECTS = """\
effects, instants and ages:
  An EFFECT is the id of its record, or its name, a colon and its key: payment.charge:o-1.
  An instant is a date, T, a time and an offset or Z: 2026-11-30T12:00:00Z; without --at
  it is now, by the clock of this machine. An age is a number of days, hours, minutes or
  seconds: 30d, 12h, 90m, 45s.
"""


def add_review(commands: Any) -> None:
    """The command ``review``: the ledger of operations."""
    review = add(commands, "review", "list, show, sweep and prune a manager's operation attempts", json=False)
    actions = review.add_subparsers(dest="action", required=True, parser_class=Parser)

    list_ = add(
        actions, "list", "list operation attempts by key (exit code 1: one is unreadable)", epilog=_TIMES, lines=True
    )
    _add_data_directory(list_)
    list_.add_argument("--live", action="store_true", help="only those that have not ended")
    list_.add_argument("--owing", action="store_true", help="only those that owe cleanup")
    list_.add_argument("--expired-at", metavar="INSTANT", type=as_instant, help="only those with a deadline up to this")
    list_.add_argument("--host", metavar="HOST", help="only those for this host")
    list_.add_argument("--target", metavar="TARGET", help="only those of this package")

    show = add(actions, "show", "show one operation attempt (exit code 1: it is not there)")
    _add_data_directory(show)
    show.add_argument("key", metavar="KEY", help="its idempotency key")

    sweep = add(actions, "sweep", "finish live attempts past their deadline as failed", epilog=_TIMES)
    _add_data_directory(sweep)
    _add_review_write_options(sweep, "compare deadlines with this instant; equal is past")

    prune = add(actions, "prune", "delete finished attempts that are too old or too many", epilog=_TIMES)
    _add_data_directory(prune)
    prune.add_argument(
        "--max-age", metavar="AGE", type=as_age, required=True, help="those that began longer ago may go"
    )
    prune.add_argument(
        "--keep",
        metavar="N",
        type=as_count,
        required=True,
        help="of each host, target and instance, those beyond the newest N may go; the newest one stays with 0 too",
    )
    _add_review_write_options(prune, "count ages from this instant")


def _add_data_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "store", metavar="DIR", type=as_path, help="the manager's data directory, or the store states.db in it"
    )


def _add_review_write_options(parser: argparse.ArgumentParser, at: str) -> None:
    parser.add_argument("--at", metavar="INSTANT", type=as_instant, required=True, help=at)
    parser.add_argument("--dry-run", action="store_true", help="count what would be changed, and change nothing")
    add_write_options(parser)


def add_effects(commands: Any) -> None:
    """The command ``effects``: the ledger of effects."""
    effects = add(commands, "effects", "look at recorded effects, and decide what nobody knows", json=False)
    actions = effects.add_subparsers(dest="action", required=True, parser_class=Parser)
    _add_effect_lists(actions)

    show = add(actions, "show", "show an effect and its trail (exit code 1: it is not there)", epilog=_EFFECTS)
    _add_effect(show)
    events = add(
        actions, "events", "show the trail of an effect (exit code 1: it is not there)", epilog=_EFFECTS, lines=True
    )
    _add_effect(events)

    resolve = add(actions, "resolve", "settle what nobody knows (exit code 1: not there, or refused)", epilog=_EFFECTS)
    _add_effect(resolve)
    resolution = resolve.add_mutually_exclusive_group(required=True)
    for name, meaning in (
        ("applied", "it happened"),
        ("not-applied", "it did not happen, and is not to be tried again"),
        ("retry", "it is to be tried once more, or to be undone once more"),
        ("compensated", "it was undone by other means"),
    ):
        resolution.add_argument(
            f"--{name}", dest="resolution", action="store_const", const=name.replace("-", "_"), help=meaning
        )
    resolve.add_argument("--output", metavar="JSON", type=as_json, help="with --applied: what it returned")
    resolve.add_argument(
        "--output-version", metavar="N", type=as_count, default=1, help="its schema version (default: 1)"
    )
    _add_decision_options(resolve)

    for name, summary in (
        ("approve", "let an effect begin that awaits approval (exit code 1: not there, or refused)"),
        ("deny", "reject an effect that awaits approval (exit code 1: not there, or refused)"),
    ):
        decision = add(actions, name, summary, epilog=_EFFECTS)
        _add_effect(decision)
        _add_decision_options(decision)
    _add_effect_upkeep(actions)


STATUSES = (
    "pending", "awaiting_approval", "executing", "unknown", "verifying", "committed", "failed", "rejected",
    "needs_intervention", "compensating", "compensated", "compensation_failed",
)  # fmt: skip


def _add_effect_lists(actions: Any) -> None:
    list_ = add(actions, "list", "list effects by id (exit code 1: one is unreadable)", epilog=_EFFECTS, lines=True)
    add_store(list_)
    list_.add_argument(
        "--status",
        metavar="STATUS",
        choices=STATUSES,
        action="append",
        help=f"only this status (may be repeated): {', '.join(STATUSES)}",
    )
    pending = add(
        actions, "pending", "list what is not settled and not held (exit code 1: one is unreadable)",
        epilog=_EFFECTS, lines=True,
    )  # fmt: skip
    add_store(pending)
    pending.add_argument("--at", metavar="INSTANT", type=as_instant, help="compare leases with this (default: now)")
    for each in (list_, pending):
        each.add_argument("--name", metavar="NAME", help="only effects of this name")
        each.add_argument("--after", metavar="ID", help="only greater ids: go on after the last one of a list")
        each.add_argument("--limit", metavar="N", type=as_count, help="at most this many")


def _add_effect_upkeep(actions: Any) -> None:
    recover = add(
        actions, "recover", "mark what was left in the middle as unknown (exit code 1: one is unreadable)",
        epilog=_EFFECTS,
    )  # fmt: skip
    add_store(recover)
    recover.add_argument("--worker", metavar="NAME", default="pystate", help="in whose name (default: %(default)s)")
    recover.add_argument("--at", metavar="INSTANT", type=as_instant, help="compare leases with this (default: now)")
    _add_upkeep_options(recover)

    prune = add(actions, "prune", "delete settled effects that are old enough", epilog=_EFFECTS)
    add_store(prune)
    prune.add_argument("--settled", metavar="AGE", type=as_age, help="all that are settled, unless given below")
    for status in ("committed", "failed", "rejected", "compensated"):
        prune.add_argument(f"--{status}", metavar="AGE", type=as_age, help=f"those that are {status}")
    prune.add_argument("--at", metavar="INSTANT", type=as_instant, help="count ages from this (default: now)")
    _add_upkeep_options(prune)


def _add_effect(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("effect", metavar="EFFECT", help="its id, or NAME:KEY")


def _add_decision_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--actor", metavar="NAME", required=True, help="who decides")
    parser.add_argument("--note", metavar="TEXT", required=True, help="why")
    parser.add_argument("--at", metavar="INSTANT", type=as_instant, help="when (default: now)")
    add_write_options(parser)


def _add_upkeep_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="count what would be changed, and change nothing")
    add_write_options(parser)
