"""From a path to the directory of a store: what is there, whether it may become a store, and taking its lock.

Promise: what is refused here is refused before anything has been touched; only `prepare_directory` makes a directory,
and only `take_lock` makes a file, the lock. Everything that begins with a path begins here: opening, reading without
opening, rewriting, and putting a snapshot into a store.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike

from pystate.engine.files import Files, HeldLock
from pystate.engine.log_writer import FULL_ERRNOS
from pystate.engine.names import LOCK_NAME
from pystate.engine.os_files import OsFiles
from pystate.engine.recovery import Inventory, survey
from pystate.engine.repair import is_unfinished_creation
from pystate.errors import DiskFullError, NotAStoreError, PystateError, ReadOnlyError, StoreNotFoundError

__all__ = [
    "absolute_path",
    "check_empty",
    "find_store",
    "guarded",
    "holds_store",
    "locked",
    "ordinary_files",
    "prepare_directory",
    "raise_if_full",
    "sync_parent",
    "take_lock",
]

_CANNOT_WRITE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
ordinary_files = OsFiles()
"""The file system that is used when a caller gives none."""


def absolute_path(files: Files, path: str | PathLike[str]) -> str:
    """The absolute path that `path` means.

    Raises:
        TypeError: it is not a path, or one of bytes. ValueError: it is empty or holds a NUL.
    """
    text: object = path.__fspath__() if isinstance(path, PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"a path is a str or a path object, not {type(path).__name__}")
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not a path")
    return files.absolute(text)


def find_store(files: Files, directory: str) -> str:
    """`directory`, if there is a store.

    Raises:
        StoreNotFoundError: nothing is there, or a directory without a store. NotAStoreError: no directory.
    """
    kind = files.kind(directory)
    if kind is None:
        raise StoreNotFoundError(directory)
    if kind != "directory":
        raise NotAStoreError(directory, f"a {kind}" if kind == "file" else "neither a file nor a directory")
    if not holds_store(files, directory, survey(files, directory)):
        raise StoreNotFoundError(directory)
    return directory


def holds_store(files: Files, directory: str, inventory: Inventory) -> bool:
    """Whether there is a store, and not only the beginning of one."""
    return inventory.is_store and not is_unfinished_creation(files, directory, inventory)


def prepare_directory(files: Files, directory: str, create: bool) -> bool:
    """Refuse what is no store and must not become one; make the directory. Return whether it was made."""
    kind = files.kind(directory)
    if kind is None:
        if not create:
            raise StoreNotFoundError(directory)
        try:
            files.make_directory(directory)
        except FileExistsError:
            pass  # another process was faster; the lock decides
        except FileNotFoundError as error:
            raise StoreNotFoundError(
                directory, "its parent directory does not exist either; make that first"
            ) from error
        return True
    if kind != "directory" or not create:
        find_store(files, directory)
    else:
        check_empty(directory, survey(files, directory))
    return False


def sync_parent(files: Files, directory: str) -> None:
    """Make the entry of the directory durable, whoever has made it: a store in a directory that is lost is lost."""
    try:
        files.sync_directory(files.parent(directory))
    except PermissionError:
        pass  # a parent that may be passed through but not read; whoever made this directory there must see to it


def check_empty(directory: str, inventory: Inventory) -> None:
    """Refuse a directory that is no store and holds something.

    Raises:
        NotAStoreError: it does.
    """
    foreign = [name.name for name in inventory.others if name.kind == "foreign"]
    if not inventory.is_store and foreign:
        raise NotAStoreError(directory, f"a directory with {foreign[0]!r} in it")


def take_lock(files: Files, directory: str, timeout: float) -> HeldLock:
    """Lock the store in `directory` against every other writer, waiting up to `timeout` seconds.

    Raises:
        LockedError: another one holds it. NotAStoreError: what should be the lock file is something else.
        ReadOnlyError: the directory cannot be written to. DiskFullError, OSError: the lock file cannot be made.
    """
    try:
        return files.lock(directory, LOCK_NAME, timeout)
    except IsADirectoryError as error:
        raise NotAStoreError(directory, f"{LOCK_NAME} in it is not a file") from error
    except OSError as error:
        if error.errno in _CANNOT_WRITE:
            hint = "open it with read_only=True, or make it writable"
            raise ReadOnlyError(directory, f"the directory cannot be written to ({error.strerror}); {hint}") from error
        raise_if_full(error)
        raise


@contextmanager
def locked(files: Files, directory: str, timeout: float) -> Iterator[HeldLock]:
    """`take_lock` for the time of a block. A full disk in the block becomes DiskFullError.

    Letting go hides no outcome: the lock ends with its descriptor, whatever the system says of that.
    """
    lock = take_lock(files, directory, timeout)
    try:
        yield lock
    except OSError as error:
        raise_if_full(error, directory)
        raise
    finally:
        with suppress(OSError):
            lock.release()


@contextmanager
def guarded(files: Files, path: str) -> Iterator[None]:
    """Hold the newest segment for the time of a block, so that nobody whose lock was taken from him writes to it.

    Raises:
        LockedError: somebody has it open for writing. OSError: it cannot be opened.
    """
    file = files.open_append(path)
    try:
        yield
    finally:
        with suppress(OSError):
            file.close()


def raise_if_full(error: OSError, path: str = "the store") -> None:
    """Raise DiskFullError instead of an error of the system that says the same.

    Arguments:
        path: what could not be written, where the error does not say it.
    """
    if error.errno in FULL_ERRNOS and not isinstance(error, PystateError):
        raise DiskFullError(error.filename or path, errno=error.errno) from error
