"""`OsFiles`: the real disk and the real lock. The only engine module that imports ``os`` for I/O.

Promise: `OsFile.sync` is the strongest flush the platform has (``F_FULLFSYNC`` on macOS, ``fdatasync`` on Linux, which
covers size and content, else ``fsync``). A directory that cannot be synced is reported once with a warning, or refused
with ``strict=True``. A rename that Windows refuses because somebody reads the file is tried again for a bounded time.

`DirectoryLock` excludes every other opener, in this process and in others, by a lock of the operating system on an open
descriptor: the death of the holder frees it. What stands in the lock file is for messages only.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from pystate.errors import LockedError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["DirectoryLock", "OsFile", "OsFiles", "after_fork_in_child", "sync_function"]

_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.ENOTTY})
_WINDOWS_BUSY = frozenset({5, 32})  # access denied, sharing violation
_REPLACE_ATTEMPTS = 20


def sync_function(platform: str = sys.platform, os_module: Any = os, fcntl_module: Any = None) -> Callable[[int], None]:
    """Choose the call that makes a file's content and size durable.

    Arguments:
        platform: a value of ``sys.platform``.
        os_module, fcntl_module: what stands in for ``os`` and ``fcntl``; the tests pass fakes.

    Returns:
        A function of one file descriptor.
    """
    if platform == "darwin":
        if fcntl_module is None:
            import fcntl as fcntl_module  # noqa: PLC0415 - only this platform needs it
        full = fcntl_module.F_FULLFSYNC

        def full_sync(descriptor: int) -> None:
            try:
                fcntl_module.fcntl(descriptor, full)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                os_module.fsync(descriptor)  # a file system without it; fsync is all there is

        return full_sync
    if hasattr(os_module, "fdatasync"):
        return os_module.fdatasync  # type: ignore[no-any-return]
    return os_module.fsync  # type: ignore[no-any-return]


class OsFile:
    """One open file. `write` and `sync` are the calls of ``os`` themselves, because every commit pays for them."""

    __slots__ = ("_descriptor", "sync", "write")

    write: Callable[[bytes | memoryview], int]
    sync: Callable[[], None]

    def __init__(self, descriptor: int, sync: Callable[[int], None]) -> None:
        self._descriptor = descriptor
        self.sync = partial(sync, descriptor)
        self.write = partial(os.write, descriptor)

    def __del__(self) -> None:
        try:
            self.close()  # of a store that was forgotten: or its segment would stay locked for ever
        except OSError:
            pass

    def read_at(self, offset: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, size, offset)
        os.lseek(self._descriptor, offset, os.SEEK_SET)  # Windows; appending is not disturbed (O_APPEND)
        return os.read(self._descriptor, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self.write = self.sync = _use_closed  # the number may soon belong to another file
        if descriptor >= 0:
            os.close(descriptor)


def _use_closed(*_: object) -> NoReturn:
    raise OSError(errno.EBADF, "this file is closed")


class OsFiles:
    """The file system of the operating system. May be shared by threads and stores.

    Arguments:
        strict: refuse (``OSError``) a directory that cannot be synced, instead of warning once.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._warned = False
        self._sync = sync_function()
        self._flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

    def open_read(self, path: str) -> OsFile:
        return OsFile(os.open(path, os.O_RDONLY | self._flags), self._sync)

    def open_append(self, path: str) -> OsFile:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | self._flags)
        try:
            _lock_descriptor(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        return OsFile(descriptor, self._sync)

    def create(self, path: str) -> OsFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | self._flags
        return OsFile(os.open(path, flags, 0o666), self._sync)

    def replace(self, source: str, target: str) -> None:
        for attempt in range(_REPLACE_ATTEMPTS):
            try:
                os.replace(source, target)
            except PermissionError as error:
                if getattr(error, "winerror", None) not in _WINDOWS_BUSY or attempt == _REPLACE_ATTEMPTS - 1:
                    raise
                time.sleep(0.005 * (attempt + 1))
            else:
                return

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def list_directory(self, path: str) -> list[str]:
        return os.listdir(path)

    def kind(self, path: str) -> str | None:
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            return None
        if stat.S_ISREG(mode):
            return "file"
        return "directory" if stat.S_ISDIR(mode) else "other"

    def make_directory(self, path: str) -> None:
        os.mkdir(path)

    def sync_directory(self, path: str) -> None:
        if os.name == "nt":
            return  # Windows cannot open a directory; NTFS journals the entry together with the rename
        descriptor = os.open(path, os.O_RDONLY | self._flags)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _UNSUPPORTED or self._strict:
                raise
            self._warn_unsynced(path)
        finally:
            os.close(descriptor)

    def _warn_unsynced(self, path: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{path}: this file system cannot sync a directory, so power loss may undo the newest snapshot or "
                "segment switch; use OsFiles(strict=True) to refuse such a place",
                RuntimeWarning,
                stacklevel=4,
            )

    def lock(self, directory: str, name: str, timeout: float) -> DirectoryLock:
        return DirectoryLock(directory, name, timeout)

    def absolute(self, path: str) -> str:
        return os.path.abspath(path)

    def parent(self, path: str) -> str:
        return os.path.dirname(path)

    def join(self, directory: str, name: str) -> str:
        return os.path.join(directory, name)

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def clock(self) -> float:
        return time.perf_counter()


def _lock_descriptor(descriptor: int, path: str) -> None:
    """Lock a file against every other `open_append`, until the descriptor is closed; see `Files.open_append`."""
    if fcntl is None:
        return  # Windows: the file cannot be replaced or removed while it is open
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            directory, name = os.path.split(path)
            pid, host = _read_holder(os.path.join(directory, "LOCK"))
            raise LockedError(directory, pid=pid, host=host, reason=f" ({name} is open for appending)") from None
        raise


_HELD_HERE: dict[tuple[int, int], int] = {}
"""(device, inode) of each directory locked by this process, and the process id that locked it (a fork copies this)."""
_HELD_HERE_GUARD = threading.Lock()


class DirectoryLock:
    """The exclusive lock of one store directory, taken by the constructor.

    Arguments:
        directory: the directory of the store.
        name: the name of the lock file in it; created when missing, never removed.
        timeout: how long to wait for another holder, in seconds; 0.0 does not wait.

    Raises:
        LockedError: somebody else holds it still.
        OSError: the lock file cannot be made, or the file system has no locks. There is no mode without a lock.
    """

    def __init__(self, directory: str, name: str, timeout: float) -> None:
        self._held = False
        import filelock  # noqa: PLC0415 - slow to import, and only writers need it

        self._path = os.path.join(directory, name)
        self._identity = _identity(directory)
        if not os.access(directory, os.W_OK):
            raise PermissionError(errno.EACCES, "no permission to write", directory)
        # thread_local: the closing thread need not be the opening one. A soft lock would outlive a killed holder.
        self._lock = filelock.FileLock(self._path, thread_local=False, fallback_to_soft=False)
        with _HELD_HERE_GUARD:
            if _HELD_HERE.get(self._identity) == os.getpid() and timeout <= 0:
                raise LockedError(directory, pid=os.getpid(), reason=" (this one)")
        try:
            self._lock.acquire(timeout=max(timeout, 0.0), poll_interval=0.02)
        except filelock.Timeout:
            pid, host = _read_holder(self._path)
            raise LockedError(directory, pid=pid, host=host) from None
        try:
            self._held = True
            with _HELD_HERE_GUARD:
                _HELD_HERE[self._identity] = os.getpid()
            self._inode = _identity(self._path)
            _write_holder(self._path)
        except BaseException:
            self.release()
            raise

    def __del__(self) -> None:
        if self._held and _HELD_HERE.get(self._identity) == os.getpid():
            self.release()  # forgotten without closing; filelock would let go of the lock now anyway

    def still_held(self) -> bool:
        try:
            return self._held and _identity(self._path) == self._inode
        except OSError:
            return False

    def release(self) -> None:
        if self._held:
            self._held = False
            _HELD_HERE.pop(self._identity, None)  # atomic by itself: a finaliser may come here while the guard is held
            self._lock.release()

    def abandon(self) -> None:
        # filelock registers its own fork handler, which closes the child's descriptor and forgets it, so that neither
        # release nor its finaliser can unlock the parent. Only the table of this module is left to correct.
        _HELD_HERE.pop(self._identity, None)


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _write_holder(path: str) -> None:
    """Note process id and host in the lock file; a failure to do so costs a message its detail, nothing else."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return
    try:
        os.write(descriptor, f"{os.getpid()} {os.uname().nodename if hasattr(os, 'uname') else ''}\n".encode())
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _read_holder(path: str) -> tuple[int | None, str | None]:
    try:
        with open(path, "rb") as file:
            pid, _, host = file.read(300).decode("utf-8", "replace").strip().partition(" ")
    except OSError:
        return None, None
    return (int(pid), host or None) if pid.isascii() and pid.isdigit() and len(pid) < 12 else (None, None)


def after_fork_in_child(function: Callable[[], None]) -> None:
    """Call `function` in every forked child of this process, before anything else of it runs there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
