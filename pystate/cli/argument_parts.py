"""What the parsers of the command line have in common: their layout, and the arguments that many commands take."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pystate.cli.argument_values import as_bytes, as_path, as_seconds
from pystate.cli.output import Output

__all__ = [
    "Parser",
    "add",
    "add_data_and_backup",
    "add_durability",
    "add_family",
    "add_lock_timeout",
    "add_repository",
    "add_store",
    "add_store_and_key",
    "add_write_options",
]


class Parser(argparse.ArgumentParser):
    """An argument parser that keeps the layout of our texts and takes options by their full names only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def print_help(self, file: Any = None) -> None:
        """Write the help as a result of the command: argparse itself hides it when that fails."""
        Output(sys.stdout if file is None else file).raw(self.format_help().encode())


def add(
    commands: Any, name: str, summary: str, *, epilog: str = "", json: bool = True, lines: bool = False
) -> argparse.ArgumentParser:
    """Add the parser of one command, with the options that all have."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + ".", epilog=epilog
    )
    if json:
        parser.add_argument("--json", action="store_true", help="JSON Lines" if lines else "one JSON document")
    return parser


def add_store(parser: argparse.ArgumentParser) -> None:
    """The store a command works on."""
    parser.add_argument("store", metavar="STORE", type=as_path, help="the directory of the store")


def add_family(parser: argparse.ArgumentParser) -> None:
    """Which family."""
    parser.add_argument("--family", metavar="NAME", default="default", help="which family (default: %(default)s)")


def add_store_and_key(parser: argparse.ArgumentParser) -> None:
    """A store, a key, and which family it is in."""
    add_store(parser)
    parser.add_argument("key", metavar="KEY", type=as_bytes, help="the key")
    add_family(parser)


def add_repository(parser: argparse.ArgumentParser) -> None:
    """Where the backups are."""
    parser.add_argument("repository", metavar="REPOSITORY", type=as_path, help="the directory of the backups")


def add_data_and_backup(parser: argparse.ArgumentParser) -> None:
    """The two directories that have a marker."""
    parser.add_argument("data", metavar="DATA", type=as_path, help="the data directory: store and marker")
    parser.add_argument("backup", metavar="BACKUP", type=as_path, help="the backup directory: backups and marker")


def add_durability(parser: argparse.ArgumentParser) -> None:
    """What a commit survives."""
    parser.add_argument(
        "--durability",
        choices=("sync", "process"),
        default="sync",
        help="what a finished commit survives: power loss (sync, the default) or the death of the process",
    )


def add_write_options(parser: argparse.ArgumentParser, *, creates: bool = False) -> None:
    """What every command takes that writes."""
    add_durability(parser)
    add_lock_timeout(parser)
    if creates:
        parser.add_argument("--no-create", action="store_true", help="fail where there is no store yet")


def add_lock_timeout(parser: argparse.ArgumentParser) -> None:
    """How long to wait for another writer."""
    parser.add_argument(
        "--lock-timeout",
        metavar="SECONDS",
        type=as_seconds,
        default=0.0,
        help="wait this long for another writer to end (default: do not wait)",
    )
