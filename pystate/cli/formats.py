"""Commands about formats: ``version`` and ``migrate``.

``migrate`` is that of the REview state: `pystate.review.migrate_data_dir`. Another program has a plan of its own, and a
command for it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import msgspec

import pystate
from pystate.cli.exits import CommandError, Exit
from pystate.cli.output import Output, complain
from pystate.engine.snapshot_format import FORMAT_VERSION
from pystate.errors import (
    BackupError,
    MarkerNotFoundError,
    NotAStoreError,
    StoreNotFoundError,
    UnsupportedFormatError,
)
from pystate.formats import FORMAT_KEY, MigrationReport, backup, read_version_marker

__all__ = ["migrate", "version"]


class _StoreFormat(msgspec.Struct, frozen=True):
    """What ``version`` tells of a store: what its content says, and the format of its files."""

    path: str
    content: str | None
    file_format: int


class _Repository(msgspec.Struct, frozen=True):
    """What ``version`` tells of a repository of backups: how many can be restored, and of the newest of them."""

    path: str
    backups: int
    newest_id: int | None
    newest_content: str | None


class _Directory(msgspec.Struct, frozen=True):
    """What ``version`` has found in a directory."""

    path: str
    marker: str | None
    stores: list[_StoreFormat]
    repositories: list[_Repository]

    @property
    def empty(self) -> bool:
        return self.marker is None and not self.stores and not self.repositories


def version(arguments: argparse.Namespace, output: Output) -> int:
    """Show markers, and the formats of stores and backups; that there is nothing of the kind is the exit code 1."""
    found = [_look(directory) for directory in arguments.directory]
    if arguments.json:
        output.json({"directories": found, "file_format": FORMAT_VERSION})
    else:
        rows = [row for directory in found for row in _rows(directory)]
        rows.append(("this pystate", "writes files of format", str(FORMAT_VERSION)))
        output.table((("path", "left"), ("what", "left"), ("version", "left")), rows)
    empty = [directory.path for directory in found if directory.empty]
    for path in empty:
        complain(f"{path}: no marker, no store and no backups here")
    return Exit.NEGATIVE if empty else Exit.OK


def _look(directory: str) -> _Directory:
    """Find markers, stores and repositories: the directory itself, and those directly below it.

    Raises:
        CommandError: it is no directory. PystateError, OSError: what is there cannot be read.
    """
    if not os.path.isdir(directory):
        raise CommandError(Exit.STORE, f"{directory}: no such directory; check the path")
    try:
        marker = str(read_version_marker(directory))
    except MarkerNotFoundError:
        marker = None
    below = sorted(entry.path for entry in os.scandir(directory) if entry.is_dir())
    places = [directory, *below]
    stores = [store for store in map(_store, places) if store is not None]
    repositories = [each for each in map(_repository, places) if each is not None]
    return _Directory(directory, marker, stores, repositories)


def _store(path: str) -> _StoreFormat | None:
    try:
        return _StoreFormat(path, pystate.read_metadata(path).get(FORMAT_KEY), FORMAT_VERSION)
    except (StoreNotFoundError, NotAStoreError):
        return None
    except UnsupportedFormatError as error:
        return _StoreFormat(path, None, error.found)


def _repository(path: str) -> _Repository | None:
    try:
        backups = backup.list(path)
    except BackupError:
        return None
    if not backups:
        return None
    return _Repository(path, len(backups), backups[-1].id, backups[-1].version)


def _rows(directory: _Directory) -> list[tuple[str, str, str]]:
    rows = [] if directory.marker is None else [(directory.path, "marker", directory.marker)]
    for store in directory.stores:
        rows.append((store.path, "content of the store", store.content or "-"))
        rows.append((store.path, "format of its files", str(store.file_format)))
    for repository in directory.repositories:
        what = f"content of the newest of {repository.backups} backups, {repository.newest_id}"
        rows.append((repository.path, what, repository.newest_content or "-"))
    return rows


def migrate(arguments: argparse.Namespace, output: Output) -> int:
    """Bring a data directory to the version of this pystate, or say what that would change."""
    from pystate.review import migrate_data_dir  # late: no other command needs the tables of the REview state

    try:
        report = migrate_data_dir(
            arguments.data, arguments.backup, dry_run=arguments.dry_run, lock_timeout=arguments.lock_timeout
        )
    except StoreNotFoundError as error:
        raise CommandError(Exit.STORE, str(error)) from error
    if arguments.json:
        output.json(_as_json(report))
    else:
        _show(report, output)
    return Exit.OK


def _as_json(report: MigrationReport) -> dict[str, Any]:
    """The report, with versions as texts."""
    fields: dict[str, Any] = msgspec.to_builtins(report)
    for name in ("database_marker", "backup_marker", "before", "version"):
        value = getattr(report, name)
        fields[name] = None if value is None else str(value)
    for step, shown in zip(report.steps, fields["steps"], strict=True):
        shown["target"] = None if step.target is None else str(step.target)
    return {**fields, "changed": report.changed}


def _show(report: MigrationReport, output: Output) -> None:
    output.table(
        (("what", "left"), ("value", "left")),
        [
            ("store", report.path),
            ("marker of the data directory", report.database_marker),
            ("marker of the backup directory", report.backup_marker),
            ("version of the content", report.before),
            ("version it would have" if report.dry_run else "version it has now", report.version),
            ("markers made", ", ".join(report.created_markers) or "-"),
            ("markers completed", ", ".join(report.completed_markers) or "-"),
            ("something would change" if report.dry_run else "something was changed", report.changed),
        ],
    )
    if report.steps:
        output.line("")
        output.table(
            (("step", "left"), ("to", "left"), ("families made", "left"), ("families dropped", "left")),
            [
                (step.step, step.target, ", ".join(step.created) or "-", ", ".join(step.dropped) or "-")
                for step in report.steps
            ],
        )
    if report.rewrite is not None and report.rewrite.rows:
        output.line("")
        output.table(
            (("family", "left"), ("rows added", "right"), ("removed", "right"), ("changed", "right")),
            [(name, rows.added, rows.removed, rows.changed) for name, rows in report.rewrite.rows.items()],
        )
