"""What can be given on the command line. Imports argparse and nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
import math
import re
import sys
from datetime import datetime, timedelta
from typing import Any, NoReturn

import msgspec

from pystate.cli.bytes_text import parse_bytes
from pystate.cli.output import Output

__all__ = ["STANDARD_INPUT", "build_parser"]

STANDARD_INPUT = None
"""What the argument ``-`` of ``put`` and ``load`` becomes."""

_NOTATION = """\
keys and values:
  Plain text stands for itself as UTF-8. 0x and hex digits, or base64: and base64, are
  bytes. text: takes the rest as text, whatever it begins with (text:0x12, text:-5).
  Output uses the same.
"""

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

_EXIT_CODES = """\
exit codes:
  0  done                              5  no store here, unknown family, newer format
  1  the answer is no: no such key,    6  disk, file or output error
     damage found, a check failed      130  interrupted
  2  wrong arguments or input          141  the reader of the output has gone
  3  the store is locked
  4  the store is damaged
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser that keeps the layout of our texts and takes options by their full names only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def print_help(self, file: Any = None) -> None:
        """Write the help as a result of the command: argparse itself hides it when that fails."""
        Output(sys.stdout if file is None else file).raw(self.format_help().encode())


class _Version(argparse.Action):
    """``--version``: importlib.metadata is slow to import, so the version is looked up only when asked for."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib import metadata

        try:
            version = metadata.version("pystate-store")
        except metadata.PackageNotFoundError:
            version = "(not installed: run from its source)"
        Output(sys.stdout).line(f"pystate {version}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line.

    Parsed arguments carry the name of the command as ``command``; keys, values and bounds are ``bytes``, times to wait
    are in seconds, instants are aware ``datetime``, ages ``timedelta``.
    """
    parser = _Parser(
        prog="pystate",
        description="Look into a pystate store, change it, check it, move it, and see it survive a kill.",
        epilog=_NOTATION + "\n" + _EXIT_CODES + "\n'pystate COMMAND --help' tells more about each command.",
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    _add_demo(commands)
    _add_reading(commands)
    _add_writing(commands)
    _add_transfer(commands)
    _add_checking(commands)
    _add_formats(commands)
    _add_backups(commands)
    _add_review(commands)
    _add_effects(commands)
    return parser


def _add_demo(commands: Any) -> None:
    demo = _add(commands, "demo", "write this Python's packages to a store, kill the writer, show what survived")
    demo.add_argument("--keep", metavar="DIR", help="leave the store here to explore; DIR is empty or does not exist")
    _add_durability(demo)


def _add_reading(commands: Any) -> None:
    get = _add(commands, "get", "show the value of a key", epilog=_NOTATION, json=False)
    _add_store_and_key(get)
    form = get.add_mutually_exclusive_group()
    form.add_argument("--raw", action="store_true", help="the bytes of the value as they are, and nothing else")
    form.add_argument("--json", action="store_true", help="one JSON document")

    scan = _add(commands, "scan", "show keys and values in key order: key, tab, value", epilog=_NOTATION, lines=True)
    _add_store(scan)
    _add_family(scan)
    scan.add_argument("--start", metavar="KEY", type=_bytes, help="from this key on")
    scan.add_argument("--stop", metavar="KEY", type=_bytes, help="up to, and without, this key")
    scan.add_argument("--prefix", metavar="KEY", type=_bytes, help="only keys that begin with this")
    scan.add_argument("--reverse", action="store_true", help="from the last key to the first")
    scan.add_argument("--limit", metavar="N", type=_count, help="at most this many")

    stat = _add(commands, "stat", "show what the store holds and the state of its files")
    _add_store(stat)


def _add_writing(commands: Any) -> None:
    put = _add(commands, "put", "store a value under a key", epilog=_NOTATION)
    _add_store_and_key(put)
    put.add_argument("value", metavar="VALUE", type=_value, help="the value; - reads its bytes from standard input")
    _add_write_options(put, creates=True)

    delete = _add(commands, "delete", "remove a key and its value (exit code 1: it was not there)", epilog=_NOTATION)
    _add_store_and_key(delete)
    _add_write_options(delete)

    families = _add(commands, "families", "list the families, create one, or drop one")
    _add_store(families)
    change = families.add_mutually_exclusive_group()
    change.add_argument("--create", metavar="NAME", help="make an empty family")
    change.add_argument("--drop", metavar="NAME", help="remove a family and all its entries")
    _add_write_options(families, creates=True)


def _add_transfer(commands: Any) -> None:
    dump = _add(commands, "dump", "write all entries as JSON Lines, as of one commit", lines=True)
    _add_store(dump)
    dump.add_argument(
        "--family", metavar="NAME", action="append", help="only this family (may be repeated; all by default)"
    )

    load = _add(commands, "load", "put the entries of a dump, or of other JSON Lines, into a store", epilog=_NOTATION)
    _add_store(load)
    load.add_argument(
        "file", metavar="FILE", nargs="?", default="-", type=_file, help="what to read; - (default) is standard input"
    )
    load.add_argument(
        "--family", metavar="NAME", default="default", help="family of the lines that name none (default: %(default)s)"
    )
    _add_write_options(load, creates=True)


def _add_checking(commands: Any) -> None:
    verify = _add(commands, "verify", "read every byte and report all damage (exit code 1: there is some)")
    _add_store(verify)

    log = _add(commands, "log", "show the frames of the log, one per line", lines=True)
    _add_store(log)

    salvage = _add(commands, "salvage", "copy what is intact into a new store (exit code 1: something was not)")
    _add_store(salvage)
    salvage.add_argument(
        "destination", metavar="DESTINATION", type=_path, help="an empty directory, or one that does not exist"
    )


def _add_review(commands: Any) -> None:
    review = _add(commands, "review", "list, show, sweep and prune a manager's operation attempts", json=False)
    actions = review.add_subparsers(dest="action", required=True, parser_class=_Parser)

    list_ = _add(
        actions, "list", "list operation attempts by key (exit code 1: one is unreadable)", epilog=_TIMES, lines=True
    )
    _add_data_directory(list_)
    list_.add_argument("--live", action="store_true", help="only those that have not ended")
    list_.add_argument("--owing", action="store_true", help="only those that owe cleanup")
    list_.add_argument("--expired-at", metavar="INSTANT", type=_instant, help="only those with a deadline up to this")
    list_.add_argument("--host", metavar="HOST", help="only those for this host")
    list_.add_argument("--target", metavar="TARGET", help="only those of this package")

    show = _add(actions, "show", "show one operation attempt (exit code 1: it is not there)")
    _add_data_directory(show)
    show.add_argument("key", metavar="KEY", help="its idempotency key")

    sweep = _add(actions, "sweep", "finish live attempts past their deadline as failed", epilog=_TIMES)
    _add_data_directory(sweep)
    _add_review_write_options(sweep, "compare deadlines with this instant; equal is past")

    prune = _add(actions, "prune", "delete finished attempts that are too old or too many", epilog=_TIMES)
    _add_data_directory(prune)
    prune.add_argument("--max-age", metavar="AGE", type=_age, required=True, help="those that began longer ago may go")
    prune.add_argument(
        "--keep",
        metavar="N",
        type=_count,
        required=True,
        help="of each host, target and instance, those beyond the newest N may go; the newest one stays with 0 too",
    )
    _add_review_write_options(prune, "count ages from this instant")


def _add_data_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "store", metavar="DIR", type=_path, help="the manager's data directory, or the store states.db in it"
    )


def _add_review_write_options(parser: argparse.ArgumentParser, at: str) -> None:
    parser.add_argument("--at", metavar="INSTANT", type=_instant, required=True, help=at)
    parser.add_argument("--dry-run", action="store_true", help="count what would be changed, and change nothing")
    _add_write_options(parser)


def _add_effects(commands: Any) -> None:
    effects = _add(commands, "effects", "look at recorded effects, and decide what nobody knows", json=False)
    actions = effects.add_subparsers(dest="action", required=True, parser_class=_Parser)
    _add_effect_lists(actions)

    show = _add(actions, "show", "show an effect and its trail (exit code 1: it is not there)", epilog=_EFFECTS)
    _add_effect(show)
    events = _add(
        actions, "events", "show the trail of an effect (exit code 1: it is not there)", epilog=_EFFECTS, lines=True
    )
    _add_effect(events)

    resolve = _add(actions, "resolve", "settle what nobody knows (exit code 1: not there, or refused)", epilog=_EFFECTS)
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
    resolve.add_argument("--output", metavar="JSON", type=_json, help="with --applied: what it returned")
    resolve.add_argument(
        "--output-version", metavar="N", type=_count, default=1, help="its schema version (default: 1)"
    )
    _add_decision_options(resolve)

    for name, summary in (
        ("approve", "let an effect begin that awaits approval (exit code 1: not there, or refused)"),
        ("deny", "reject an effect that awaits approval (exit code 1: not there, or refused)"),
    ):
        decision = _add(actions, name, summary, epilog=_EFFECTS)
        _add_effect(decision)
        _add_decision_options(decision)
    _add_effect_upkeep(actions)


_STATUSES = (
    "pending", "awaiting_approval", "executing", "unknown", "verifying", "committed", "failed", "rejected",
    "needs_intervention", "compensating", "compensated", "compensation_failed",
)  # fmt: skip


def _add_effect_lists(actions: Any) -> None:
    list_ = _add(actions, "list", "list effects by id (exit code 1: one is unreadable)", epilog=_EFFECTS, lines=True)
    _add_store(list_)
    list_.add_argument(
        "--status",
        metavar="STATUS",
        choices=_STATUSES,
        action="append",
        help=f"only this status (may be repeated): {', '.join(_STATUSES)}",
    )
    pending = _add(
        actions, "pending", "list what is not settled and not held (exit code 1: one is unreadable)",
        epilog=_EFFECTS, lines=True,
    )  # fmt: skip
    _add_store(pending)
    pending.add_argument("--at", metavar="INSTANT", type=_instant, help="compare leases with this (default: now)")
    for each in (list_, pending):
        each.add_argument("--name", metavar="NAME", help="only effects of this name")
        each.add_argument("--after", metavar="ID", help="only greater ids: go on after the last one of a list")
        each.add_argument("--limit", metavar="N", type=_count, help="at most this many")


def _add_effect_upkeep(actions: Any) -> None:
    recover = _add(
        actions, "recover", "mark what was left in the middle as unknown (exit code 1: one is unreadable)",
        epilog=_EFFECTS,
    )  # fmt: skip
    _add_store(recover)
    recover.add_argument("--worker", metavar="NAME", default="pystate", help="in whose name (default: %(default)s)")
    recover.add_argument("--at", metavar="INSTANT", type=_instant, help="compare leases with this (default: now)")
    _add_upkeep_options(recover)

    prune = _add(actions, "prune", "delete settled effects that are old enough", epilog=_EFFECTS)
    _add_store(prune)
    prune.add_argument("--settled", metavar="AGE", type=_age, help="all that are settled, unless given below")
    for status in ("committed", "failed", "rejected", "compensated"):
        prune.add_argument(f"--{status}", metavar="AGE", type=_age, help=f"those that are {status}")
    prune.add_argument("--at", metavar="INSTANT", type=_instant, help="count ages from this (default: now)")
    _add_upkeep_options(prune)


def _add_effect(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument("effect", metavar="EFFECT", help="its id, or NAME:KEY")


def _add_decision_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--actor", metavar="NAME", required=True, help="who decides")
    parser.add_argument("--note", metavar="TEXT", required=True, help="why")
    parser.add_argument("--at", metavar="INSTANT", type=_instant, help="when (default: now)")
    _add_write_options(parser)


def _add_upkeep_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="count what would be changed, and change nothing")
    _add_write_options(parser)


def _add_formats(commands: Any) -> None:
    version = _add(commands, "version", "show which versions a directory is of: markers, stores, backups")
    version.add_argument(
        "directory",
        metavar="DIR",
        type=_path,
        nargs="+",
        help="a store, a repository, or a directory with a marker and one of them below",
    )

    migrate = _add(commands, "migrate", "bring a data directory of the REview state to the version of this pystate")
    _add_data_and_backup(migrate)
    migrate.add_argument("--dry-run", action="store_true", help="only say what would change")
    _add_lock_timeout(migrate)

    rollback = _add(commands, "rollback", "restore a backup, and write back the markers: undo an update")
    _add_data_and_backup(rollback)
    rollback.add_argument(
        "--id", metavar="ID", type=_number, required=True, help="the backup that was made before the update"
    )
    rollback.add_argument("--version", metavar="VERSION", help="what to write into the markers (default: what it says)")
    rollback.add_argument(
        "--state", metavar="NAME", default="states.db", help="name of store and repository (default: %(default)s)"
    )
    _add_lock_timeout(rollback)


def _add_backups(commands: Any) -> None:
    backup = _add(commands, "backup", "make, list, check, restore and remove backups of a store", json=False)
    actions = backup.add_subparsers(dest="action", required=True, parser_class=_Parser)

    create = _add(actions, "create", "make a backup, also beside the program that writes, and print its id")
    _add_store(create)
    _add_repository(create)
    create.add_argument("--keep", metavar="N", type=_number, help="then remove all but this many of the newest")
    _add_lock_timeout(create)

    listing = _add(actions, "list", "show the backups that can be restored")
    _add_repository(listing)

    verify = _add(actions, "verify", "read every byte of the backups (exit code 1: there is damage)")
    _add_repository(verify)
    verify.add_argument("--id", metavar="ID", type=_number, help="only this one")

    restore = _add(actions, "restore", "make a backup the content of a store, which must be closed")
    _add_store(restore)
    _add_repository(restore)
    restore.add_argument("--id", metavar="ID", type=_number, help="which one (default: the newest)")
    _add_lock_timeout(restore)

    purge = _add(actions, "purge", "remove all but the newest backups")
    _add_repository(purge)
    purge.add_argument("--keep", metavar="N", type=_number, required=True, help="how many to keep, at least 1")
    _add_lock_timeout(purge)


def _add(
    commands: Any, name: str, summary: str, *, epilog: str = "", json: bool = True, lines: bool = False
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + ".", epilog=epilog
    )
    if json:
        parser.add_argument("--json", action="store_true", help="JSON Lines" if lines else "one JSON document")
    return parser


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", type=_path, help="the directory of the store")


def _add_family(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--family", metavar="NAME", default="default", help="which family (default: %(default)s)")


def _add_store_and_key(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument("key", metavar="KEY", type=_bytes, help="the key")
    _add_family(parser)


def _add_repository(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repository", metavar="REPOSITORY", type=_path, help="the directory of the backups")


def _add_data_and_backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", type=_path, help="the data directory: store and marker")
    parser.add_argument("backup", metavar="BACKUP", type=_path, help="the backup directory: backups and marker")


def _add_durability(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--durability",
        choices=("sync", "process"),
        default="sync",
        help="what a finished commit survives: power loss (sync, the default) or the death of the process",
    )


def _add_write_options(parser: argparse.ArgumentParser, *, creates: bool = False) -> None:
    _add_durability(parser)
    _add_lock_timeout(parser)
    if creates:
        parser.add_argument("--no-create", action="store_true", help="fail where there is no store yet")


def _add_lock_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lock-timeout",
        metavar="SECONDS",
        type=_seconds,
        default=0.0,
        help="wait this long for another writer to end (default: do not wait)",
    )


def _bytes(text: str) -> bytes:
    try:
        return parse_bytes(text, argument=True)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _value(text: str) -> bytes | None:
    return STANDARD_INPUT if text == "-" else _bytes(text)


def _file(text: str) -> str | None:
    return STANDARD_INPUT if text == "-" else text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_AGE = re.compile(r"(\d{1,9})([dhms])", re.ASCII)
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def _instant(text: str) -> datetime:
    try:
        if _INSTANT.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not an instant with its offset, such as 2026-11-30T12:00:00Z")


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age, such as 30d, 12h, 90m or 45s")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


class _Json:
    """A JSON value that was given: null is one too."""

    def __init__(self, value: object) -> None:
        self.value = value


def _json(text: str) -> _Json:
    try:
        return _Json(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise argparse.ArgumentTypeError(f'{text!r} is not JSON, such as 5, null or {{"id": "pi_1"}}') from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _path(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("'' is not a path; an unset variable, perhaps")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 up")
    return seconds
