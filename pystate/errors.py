"""Every exception that pystate raises on purpose.

One root, :class:`PystateError`. Each class is also the built-in exception that a Python reader would catch, carries
what it knows as attributes, builds its text from them, and can be pickled and copied. What a caller can do decides
the class:

===========================  ==========================================================================
retry the transaction        :class:`ConflictError`
wait, or leave               :class:`LockedError`
make room, then try again    :class:`DiskFullError`
reopen the store             :class:`StoreFailedError`, :class:`ClosedError`
restore, or salvage          :class:`CorruptionError`
upgrade pystate              :class:`UnsupportedFormatError`
fix the call                 every other one, and the built-in ``TypeError`` and ``ValueError``
===========================  ==========================================================================

This module imports nothing of pystate, so every layer may import it.
"""

from __future__ import annotations

import errno as _errno
from typing import Any

__all__ = [
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "DiskFullError",
    "FamilyExistsError",
    "FamilyMismatchError",
    "FamilyNotFoundError",
    "LockedError",
    "NotAStoreError",
    "PystateError",
    "ReadOnlyError",
    "StoreFailedError",
    "StoreNotFoundError",
    "UnsupportedFormatError",
]


def _restore(kind: type[PystateError], attributes: dict[str, Any]) -> PystateError:
    """Rebuild a pickled or copied error without running its constructor."""
    error = kind.__new__(kind)
    for name, value in attributes.items():
        setattr(error, name, value)  # not __dict__: OSError keeps errno elsewhere
    error.args = (attributes["message"],)
    return error


class PystateError(Exception):
    """The root of all errors of pystate.

    Attributes:
        message: the whole text, as ``str(error)`` gives it.
    """

    message: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = self.__dict__.copy()
        if isinstance(self, OSError):
            attributes["errno"] = self.errno
        return (_restore, (type(self), attributes))


class ConflictError(PystateError, RuntimeError):
    """Something that a transaction read has changed since; nothing of it was written.

    Run the transaction again from its beginning; :meth:`pystate.Store.transact` does that by itself.

    Attributes:
        family: the name of the family, or None when `too_old` is set.
        key: the key that was read (or found absent) and has changed, or None.
        range: the ``(start, stop)`` that was scanned and has changed, or None; either bound may be None (unbounded).
        read_sequence: the sequence of the state that was read.
        commit_sequence: the sequence of a commit that changed it since; for `too_old` the commit at which the old
            values were given up.
        too_old: the transaction or view was outrun: more was overwritten since it began than the history limit
            allows to keep (``stats().history_bytes_max``). Begin a new one.
    """

    def __init__(
        self,
        *,
        family: str | None = None,
        key: bytes | None = None,
        range: tuple[bytes | None, bytes | None] | None = None,  # noqa: A002
        read_sequence: int,
        commit_sequence: int,
        too_old: bool = False,
    ) -> None:
        if too_old:
            what = (
                f"the state as of sequence {read_sequence} is no longer kept (given up at commit {commit_sequence}); "
                "begin a new transaction or view, and keep it open for a shorter time"
            )
        else:
            read = f"key {key!r}" if key is not None else f"range {range!r}"
            what = (
                f"{read} of family {family!r} was read as of sequence {read_sequence} and changed by commit "
                f"{commit_sequence}; run the transaction again"
            )
        super().__init__(f"Resource busy: {what}")
        self.family = family
        self.key = key
        self.range = range
        self.read_sequence = read_sequence
        self.commit_sequence = commit_sequence
        self.too_old = too_old


class LockedError(PystateError, TimeoutError):
    """Another opener holds the store for writing.

    Attributes:
        path: the directory of the store.
        pid: the process id of the holder, or None when it is not known.
        host: the name of the host the holder runs on, or None when it is not known.
    """

    def __init__(self, path: str, *, pid: int | None = None, host: str | None = None, reason: str = "") -> None:
        holder = "another opener" if pid is None else f"process {pid}" + (f" on host {host}" if host else "")
        super().__init__(
            f"{path}: the store is held for writing by {holder}{reason}; close it there, wait with lock_timeout=, "
            "or open it here with read_only=True"
        )
        self.path = path
        self.pid = pid
        self.host = host


class CorruptionError(PystateError, ValueError):
    """Data that had been acknowledged as durable is damaged or missing. No file was changed.

    Restore a backup, or copy out what is intact with :func:`pystate.salvage`.

    Attributes:
        path: the damaged file (for a missing file, the path where it was expected).
        offset: where in the file, in bytes, or None when the whole file is meant.
        expected: what was expected there.
        found: what was found there.
        sequence: the last commit known to be intact before the damage, or None.
    """

    def __init__(
        self, path: str, *, offset: int | None = None, expected: str, found: str, sequence: int | None = None
    ) -> None:
        place = path if offset is None else f"{path}: offset {offset}"
        intact = "" if sequence is None else f"; the last intact commit before it is {sequence}"
        super().__init__(
            f"{place}: expected {expected}, found {found}{intact}. No file was changed: restore a backup, or copy out "
            "what is intact with pystate.salvage(path, destination)"
        )
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found
        self.sequence = sequence


class StoreFailedError(PystateError, OSError):
    """A write, sync or rename failed, and the store has refused every write since; reads go on.

    For the commits in flight at that moment the outcome is unknown: close the store and open it again to learn it.

    Attributes:
        path: the directory of the store.
        cause: the text of the first failure.
        unknown: True when this very commit was in flight, so that it may or may not be durable; False when it was
            refused before anything of it was written.
        errno: the error number of the first failure, if it had one.
    """

    def __init__(self, path: str, cause: str, *, unknown: bool, errno: int | None = None) -> None:
        outcome = "the outcome of this commit is unknown" if unknown else "nothing of this commit was written"
        super().__init__(f"{path}: the store has failed ({cause}); {outcome}; close the store and open it again")
        self.path = path
        self.cause = cause
        self.unknown = unknown
        self.errno = errno


class DiskFullError(PystateError, OSError):
    """The disk or the quota is full. The commit was undone, nothing of it is left, and the store stays usable.

    Attributes:
        path: the file that could not grow.
        errno: ``ENOSPC``, ``EDQUOT`` or ``EFBIG``.
    """

    def __init__(self, path: str, *, errno: int = _errno.ENOSPC) -> None:
        super().__init__(
            f"{path}: no space left to write ({_errno.errorcode.get(errno, errno)}); nothing of this commit was kept; "
            "make room and try again"
        )
        self.path = path
        self.errno = errno


class ReadOnlyError(PystateError, PermissionError):
    """A write through a store, or a transaction of a store, that is for reading only.

    Attributes:
        path: the directory of the store.
    """

    def __init__(
        self, path: str, what: str = "the store was opened with read_only=True; open it without to write"
    ) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path


class ClosedError(PystateError, ValueError):
    """A store, view, transaction or family was used after its end.

    Attributes:
        what: what was used: ``"store"``, ``"view"``, ``"transaction"`` ...
        hint: how it ended, and what to do.
    """

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"this {what} {hint}")
        self.what = what
        self.hint = hint


class StoreNotFoundError(PystateError, FileNotFoundError):
    """There is no store at this path.

    Attributes:
        path: the directory that was given.
    """

    def __init__(
        self, path: str, hint: str = "check the path, or let pystate.open make one (create=True, not read_only)"
    ) -> None:
        super().__init__(f"{path}: no store here; {hint}")
        self.path = path


class NotAStoreError(PystateError, ValueError):
    """The path holds something that is not a store; it was left as it is.

    Attributes:
        path: the path that was given.
        found: what is there instead.
    """

    def __init__(self, path: str, found: str) -> None:
        super().__init__(f"{path}: not a store: {found}; give a store, or a path that is empty or does not exist")
        self.path = path
        self.found = found


class FamilyExistsError(PystateError, ValueError):
    """A family of this name exists already.

    Attributes:
        family: its name.
    """

    def __init__(self, family: str) -> None:
        super().__init__(f"family {family!r} exists already; use store.family({family!r}), or drop it first")
        self.family = family


class FamilyNotFoundError(PystateError, KeyError):
    """No family of this name exists (or it has been dropped).

    Attributes:
        family: the name that was asked for.
        families: the names that exist.
    """

    def __init__(self, family: str, families: tuple[str, ...]) -> None:
        super().__init__(
            f"no family {family!r}; there are {', '.join(map(repr, families)) or 'none'}; make it with "
            "store.create_family(name)"
        )
        self.family = family
        self.families = families


class FamilyMismatchError(PystateError, ValueError):
    """The families given to :func:`pystate.open` are not exactly the families on disk. Nothing was changed.

    Attributes:
        path: the directory of the store.
        missing: named in the call, not on disk.
        unnamed: on disk, not named in the call.
    """

    def __init__(self, path: str, *, missing: tuple[str, ...], unnamed: tuple[str, ...]) -> None:
        parts = []
        if missing:
            parts.append(f"missing on disk: {', '.join(map(repr, missing))} (create_missing_families=True makes them)")
        if unnamed:
            parts.append(f"on disk but not named: {', '.join(map(repr, unnamed))} (name them, or pass families=None)")
        super().__init__(f"{path}: the families do not match: {'; '.join(parts)}")
        self.path = path
        self.missing = missing
        self.unnamed = unnamed


class UnsupportedFormatError(PystateError, ValueError):
    """A file has a format version that this pystate does not know. It was left as it is.

    Attributes:
        path: the file.
        found: the format version in the file.
        supported: the newest format version that this pystate reads.
    """

    def __init__(self, path: str, *, found: int, supported: int) -> None:
        super().__init__(
            f"{path}: format version {found}, but this pystate reads up to {supported}; upgrade pystate to open it"
        )
        self.path = path
        self.found = found
        self.supported = supported
