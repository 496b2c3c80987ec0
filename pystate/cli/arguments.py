"""What can be given on the command line. Imports argparse and nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from pystate.cli.argument_parts import (
    Parser,
    add,
    add_data_and_backup,
    add_durability,
    add_family,
    add_lock_timeout,
    add_repository,
    add_store,
    add_store_and_key,
    add_write_options,
)
from pystate.cli.argument_values import as_bytes, as_count, as_file, as_number, as_path, as_value
from pystate.cli.ledger_arguments import add_effects, add_review
from pystate.cli.output import Output

__all__ = ["build_parser"]

_NOTATION = """\
keys and values:
  Plain text stands for itself as UTF-8. 0x and hex digits, or base64: and base64, are
  bytes. text: takes the rest as text, whatever it begins with (text:0x12, text:-5).
  Output uses the same.
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
    parser = Parser(
        prog="pystate",
        description="Look into a pystate store, change it, check it, move it, and see it survive a kill.",
        epilog=_NOTATION + "\n" + _EXIT_CODES + "\n'pystate COMMAND --help' tells more about each command.",
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    _add_demo(commands)
    _add_reading(commands)
    _add_writing(commands)
    _add_transfer(commands)
    _add_checking(commands)
    _add_formats(commands)
    _add_backups(commands)
    add_review(commands)
    add_effects(commands)
    return parser


def _add_demo(commands: Any) -> None:
    demo = add(commands, "demo", "write this Python's packages to a store, kill the writer, show what survived")
    demo.add_argument("--keep", metavar="DIR", help="leave the store here to explore; DIR is empty or does not exist")
    add_durability(demo)


def _add_reading(commands: Any) -> None:
    get = add(commands, "get", "show the value of a key", epilog=_NOTATION, json=False)
    add_store_and_key(get)
    form = get.add_mutually_exclusive_group()
    form.add_argument("--raw", action="store_true", help="the bytes of the value as they are, and nothing else")
    form.add_argument("--json", action="store_true", help="one JSON document")

    scan = add(commands, "scan", "show keys and values in key order: key, tab, value", epilog=_NOTATION, lines=True)
    add_store(scan)
    add_family(scan)
    scan.add_argument("--start", metavar="KEY", type=as_bytes, help="from this key on")
    scan.add_argument("--stop", metavar="KEY", type=as_bytes, help="up to, and without, this key")
    scan.add_argument("--prefix", metavar="KEY", type=as_bytes, help="only keys that begin with this")
    scan.add_argument("--reverse", action="store_true", help="from the last key to the first")
    scan.add_argument("--limit", metavar="N", type=as_count, help="at most this many")

    stat = add(commands, "stat", "show what the store holds and the state of its files")
    add_store(stat)


def _add_writing(commands: Any) -> None:
    put = add(commands, "put", "store a value under a key", epilog=_NOTATION)
    add_store_and_key(put)
    put.add_argument("value", metavar="VALUE", type=as_value, help="the value; - reads its bytes from standard input")
    add_write_options(put, creates=True)

    delete = add(commands, "delete", "remove a key and its value (exit code 1: it was not there)", epilog=_NOTATION)
    add_store_and_key(delete)
    add_write_options(delete)

    families = add(commands, "families", "list the families, create one, or drop one")
    add_store(families)
    change = families.add_mutually_exclusive_group()
    change.add_argument("--create", metavar="NAME", help="make an empty family")
    change.add_argument("--drop", metavar="NAME", help="remove a family and all its entries")
    add_write_options(families, creates=True)


def _add_transfer(commands: Any) -> None:
    dump = add(commands, "dump", "write all entries as JSON Lines, as of one commit", lines=True)
    add_store(dump)
    dump.add_argument(
        "--family", metavar="NAME", action="append", help="only this family (may be repeated; all by default)"
    )

    load = add(commands, "load", "put the entries of a dump, or of other JSON Lines, into a store", epilog=_NOTATION)
    add_store(load)
    load.add_argument(
        "file", metavar="FILE", nargs="?", default="-", type=as_file, help="what to read; - (default) is standard input"
    )
    load.add_argument(
        "--family", metavar="NAME", default="default", help="family of the lines that name none (default: %(default)s)"
    )
    add_write_options(load, creates=True)


def _add_checking(commands: Any) -> None:
    verify = add(commands, "verify", "read every byte and report all damage (exit code 1: there is some)")
    add_store(verify)

    log = add(commands, "log", "show the frames of the log, one per line", lines=True)
    add_store(log)

    salvage = add(commands, "salvage", "copy what is intact into a new store (exit code 1: something was not)")
    add_store(salvage)
    salvage.add_argument(
        "destination", metavar="DESTINATION", type=as_path, help="an empty directory, or one that does not exist"
    )


def _add_formats(commands: Any) -> None:
    version = add(commands, "version", "show which versions a directory is of: markers, stores, backups")
    version.add_argument(
        "directory",
        metavar="DIR",
        type=as_path,
        nargs="+",
        help="a store, a repository, or a directory with a marker and one of them below",
    )

    migrate = add(commands, "migrate", "bring a data directory of the REview state to the version of this pystate")
    add_data_and_backup(migrate)
    migrate.add_argument("--dry-run", action="store_true", help="only say what would change")
    add_lock_timeout(migrate)

    rollback = add(commands, "rollback", "restore a backup, and write back the markers: undo an update")
    add_data_and_backup(rollback)
    rollback.add_argument(
        "--id", metavar="ID", type=as_number, required=True, help="the backup that was made before the update"
    )
    rollback.add_argument("--version", metavar="VERSION", help="what to write into the markers (default: what it says)")
    rollback.add_argument(
        "--state", metavar="NAME", default="states.db", help="name of store and repository (default: %(default)s)"
    )
    add_lock_timeout(rollback)


def _add_backups(commands: Any) -> None:
    backup = add(commands, "backup", "make, list, check, restore and remove backups of a store", json=False)
    actions = backup.add_subparsers(dest="action", required=True, parser_class=Parser)

    create = add(actions, "create", "make a backup, also beside the program that writes, and print its id")
    add_store(create)
    add_repository(create)
    create.add_argument("--keep", metavar="N", type=as_number, help="then remove all but this many of the newest")
    add_lock_timeout(create)

    listing = add(actions, "list", "show the backups that can be restored")
    add_repository(listing)

    verify = add(actions, "verify", "read every byte of the backups (exit code 1: there is damage)")
    add_repository(verify)
    verify.add_argument("--id", metavar="ID", type=as_number, help="only this one")

    restore = add(actions, "restore", "make a backup the content of a store, which must be closed")
    add_store(restore)
    add_repository(restore)
    restore.add_argument("--id", metavar="ID", type=as_number, help="which one (default: the newest)")
    add_lock_timeout(restore)

    purge = add(actions, "purge", "remove all but the newest backups")
    add_repository(purge)
    purge.add_argument("--keep", metavar="N", type=as_number, required=True, help="how many to keep, at least 1")
    add_lock_timeout(purge)
