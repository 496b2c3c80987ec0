"""Commands about backups: ``backup create``, ``list``, ``verify``, ``restore``, ``purge``; and ``rollback``.

``backup create`` opens the store for reading only, so it works beside the program that writes to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pystate
from pystate.cli.exits import CommandError, Exit
from pystate.cli.output import Output, complain
from pystate.errors import PystateError, StoreNotFoundError, VersionError
from pystate.formats import backup
from pystate.formats.backup.repository import Repository

__all__ = ["ACTIONS", "create", "list_backups", "purge", "restore", "rollback", "verify"]

_COLUMNS = (
    ("id", "right"),
    ("made at", "left"),
    ("version", "left"),
    ("sequence", "right"),
    ("entries", "right"),
    ("bytes", "right"),
)


def create(arguments: argparse.Namespace, output: Output) -> int:
    """Make a backup of a store, and print its id."""
    with pystate.open(arguments.store, read_only=True) as store:
        made = backup.create(store, arguments.repository, keep=arguments.keep, lock_timeout=arguments.lock_timeout)
    if arguments.json:
        output.json(made)
    else:
        output.line(str(made.id))
    return Exit.OK


def list_backups(arguments: argparse.Namespace, output: Output) -> int:
    """Show the backups that can be restored; say which ones are damaged."""
    survey = Repository(None, arguments.repository).survey()
    infos = [found.info for found in survey.backups]
    if arguments.json:
        output.json({"backups": infos, "damaged": sorted(survey.damaged)})
    elif infos:
        _show(infos, output)
    for number, error in survey.damaged.items():
        complain(f"{error.path}: backup {number} is damaged: expected {error.expected}, found {error.found}")
    return Exit.OK


def _show(infos: list[backup.BackupInfo], output: Output) -> None:
    output.table(
        _COLUMNS,
        [
            (
                str(info.id),
                f"{info.timestamp:%Y-%m-%d %H:%M:%SZ}",
                info.version,
                info.sequence,
                sum(info.families.values()),
                info.size,
            )
            for info in infos
        ],
    )


def verify(arguments: argparse.Namespace, output: Output) -> int:
    """Read every byte of the backups; damage is the exit code 1."""
    report = backup.verify(arguments.repository, arguments.id)
    if arguments.json:
        output.json(report)
        return Exit.OK if report.ok else Exit.NEGATIVE
    if report.backups:
        _show(list(report.backups), output)
        output.line("")
    output.table(
        (("what", "left"), ("value", "left")),
        [("backups that are intact", len(report.backups)), ("problems", len(report.problems))],
    )
    if report.problems:
        output.line("")
        output.table(
            (("id", "right"), ("file", "left"), ("offset", "right"), ("problem", "left")),
            [(str(problem.id), problem.path, problem.offset, problem.text) for problem in report.problems],
        )
    return Exit.OK if report.ok else Exit.NEGATIVE


def restore(arguments: argparse.Namespace, output: Output) -> int:
    """Make a backup the content of a store."""
    try:
        report = backup.restore(
            arguments.store, arguments.repository, arguments.id, lock_timeout=arguments.lock_timeout
        )
    except StoreNotFoundError as error:  # the parent of the directory is missing
        raise CommandError(Exit.STORE, str(error)) from error
    except PystateError:
        raise
    except ValueError as error:  # the store and the repository are the same directory
        raise CommandError(Exit.USAGE, f"{error}; nothing was done") from error
    _show_restored(report, [], arguments, output)
    return Exit.OK


def _show_restored(
    report: backup.RestoreReport, more: list[tuple[str, object]], arguments: argparse.Namespace, output: Output
) -> None:
    if arguments.json:
        output.json(report)
        return
    rows: list[tuple[str, object]] = [
        ("restored to", report.path),
        ("from backup", str(report.backup.id)),
        ("made at", f"{report.backup.timestamp:%Y-%m-%d %H:%M:%SZ}"),
        ("version of the content", report.backup.version),
        *more,
        ("entries", sum(report.backup.families.values())),
        ("store id", report.store_id),
        ("sequence", report.sequence),
        ("a store was replaced", report.replaced),
    ]
    output.table((("what", "left"), ("value", "left")), rows)


def purge(arguments: argparse.Namespace, output: Output) -> int:
    """Remove all but the newest backups, and say which."""
    removed = backup.purge(arguments.repository, arguments.keep, lock_timeout=arguments.lock_timeout)
    if arguments.json:
        output.json({"removed": removed})
    else:
        for number in removed:
            output.line(f"removed backup {number}")
    return Exit.OK


def rollback(arguments: argparse.Namespace, output: Output) -> int:
    """Restore a backup of the store in a data directory, and write back the markers of both directories."""
    try:
        report = backup.rollback(
            arguments.data,
            arguments.backup,
            arguments.id,
            arguments.version,
            state=arguments.state,
            lock_timeout=arguments.lock_timeout,
        )
    except VersionError as error:
        raise CommandError(Exit.USAGE, f"{error}. Nothing was done: give it with --version") from error
    except StoreNotFoundError as error:
        raise CommandError(Exit.STORE, str(error)) from error
    except PystateError:
        raise
    except ValueError as error:
        text = str(error).replace("version=", "--version VERSION")
        raise CommandError(Exit.USAGE, f"{text}; nothing was done") from error
    version = report.backup.version if arguments.version is None else arguments.version
    _show_restored(report, [("markers written", version)], arguments, output)
    return Exit.OK


ACTIONS: dict[str, Callable[[argparse.Namespace, Output], int]] = {
    "create": create,
    "list": list_backups,
    "verify": verify,
    "restore": restore,
    "purge": purge,
}
"""What ``backup`` can do."""
