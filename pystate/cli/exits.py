"""The exit codes, and what each error of the store means to someone at a command line.

The errors' own texts speak to a Python caller (``lock_timeout=``, ``pystate.salvage(...)``). Here the same facts, taken
from their attributes, are said with commands and options instead.
"""

from __future__ import annotations

import enum
import shlex

from pystate import errors

__all__ = ["CommandError", "Exit", "explain"]


class Exit(enum.IntEnum):
    """What ``pystate`` returns to the shell."""

    OK = 0
    """Done."""
    NEGATIVE = 1
    """Done, and the answer is no: the key is not there, ``verify`` found damage, a check of ``demo`` failed."""
    USAGE = 2
    """Wrong arguments or wrong input; nothing was done, or the message says how far it got."""
    LOCKED = 3
    """Another process holds the store for writing."""
    CORRUPTION = 4
    """Data of the store is damaged."""
    STORE = 5
    """No store, not a store, an unknown family, a newer format."""
    DISK = 6
    """The disk, a file or standard output failed: full, no permission, input/output error."""
    INTERRUPTED = 130
    """Stopped by the keyboard (128 + SIGINT)."""
    PIPE_CLOSED = 141
    """Whoever read the output has closed it (128 + SIGPIPE)."""


class CommandError(Exception):
    """A command cannot go on, for a reason that is not an error of the store.

    Attributes:
        code: the exit code.
    """

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


def explain(error: BaseException, store: str | None) -> tuple[Exit, str]:
    """Say what an error means: the exit code, and a text that ends with what to do next.

    Args:
        error: a :class:`CommandError`, an error of pystate, or an ``OSError``.
        store: the path of the store as it was given, or None.
    """
    if isinstance(error, CommandError):
        return error.code, str(error)
    if isinstance(error, errors.PystateError):
        return _explain_store_error(error, shlex.quote(store) if store is not None else "STORE")
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return Exit.DISK, f"{place}{error.strerror or error}; check the path, its permissions and the disk"
    return Exit.STORE, str(error)


def _explain_store_error(error: errors.PystateError, store: str) -> tuple[Exit, str]:
    """Say what an error of pystate means; `store` is quoted for the shell."""
    match error:
        case errors.RepositoryLockedError():
            holder = "somebody else" if error.pid is None else f"process {error.pid}"
            return Exit.LOCKED, (
                f"{error.path}: backups are being made or removed here by {holder}; wait with --lock-timeout SECONDS "
                "(listing, checking and restoring do not need the lock)"
            )
        case errors.BackupDamagedError():
            place = error.path if error.offset is None else f"{error.path}: offset {error.offset}"
            repository = shlex.quote(error.repository)
            return Exit.CORRUPTION, (
                f"{place}: backup {error.id} is damaged: expected {error.expected}, found {error.found}. Nothing was "
                f"restored: `pystate backup verify {repository}` tells which are intact; take one of those with --id ID"
            )
        case errors.LockedError():
            holder = "another process" if error.pid is None else f"process {error.pid}"
            if error.pid is not None and error.host is not None:
                holder += f" on host {error.host}"
            return Exit.LOCKED, (
                f"{error.path}: the store is held for writing by {holder}; end it there, or wait for it with "
                "--lock-timeout SECONDS (commands that only read do not need the lock)"
            )
        case errors.CorruptionError():
            place = error.path if error.offset is None else f"{error.path}: offset {error.offset}"
            intact = "" if error.sequence is None else f"; the last intact commit before it is {error.sequence}"
            return Exit.CORRUPTION, (
                f"{place}: expected {error.expected}, found {error.found}{intact}. No file was changed: "
                f"`pystate verify {store}` lists every problem; restore a backup, or copy out what is intact with "
                f"`pystate salvage {store} DESTINATION`"
            )
        case errors.StoreNotFoundError():
            return Exit.STORE, (
                f"{error.path}: no store here; check the path, or make a store in an empty or new directory with "
                f"`pystate put {store} KEY VALUE`"
            )
        case errors.FamilyNotFoundError():
            there = ", ".join(map(repr, error.families)) or "none"
            return Exit.STORE, (
                f"no family {error.family!r}; there are {there}; make it with "
                f"`pystate families {store} --create {shlex.quote(error.family)}`"
            )
        case errors.FamilyExistsError():
            return Exit.STORE, f"family {error.family!r} exists already; use it as it is, or drop it first"
        case errors.DiskFullError():
            return Exit.DISK, str(error)
        case errors.StoreFailedError():
            outcome = "the outcome of the commit is unknown" if error.unknown else "nothing of the commit was written"
            return Exit.DISK, (
                f"{error.path}: writing failed ({error.cause}); {outcome}; check the disk, then look with "
                f"`pystate stat {store}` (the next command that writes recovers the store)"
            )
        case errors.ReadOnlyError():
            return Exit.DISK, str(error)
    return Exit.STORE, str(error)
