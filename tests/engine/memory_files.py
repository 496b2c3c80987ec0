"""A file system in memory: what the tests use that open thousands of stores, or look at every call.

It keeps the contract of `pystate.engine.files.Files` and nothing more: it knows no crash and no fault of its own. Ids
and salts come from a seed, so the same calls leave the same bytes. `image` and `restore` take a directory out and put
it back, byte for byte.
"""

from __future__ import annotations

import errno
import os
import random

from pystate.engine.files import File, HeldLock
from pystate.errors import LockedError

DIRECTORY = "/store"
"""Where the tests keep their store."""


def failure(number: int, path: str = "") -> OSError:
    """The error that the operating system would raise with this error number."""
    return OSError(number, os.strerror(number), path)


class _Inode:
    """The content of a file, apart from its names."""

    __slots__ = ("appending", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self.appending = False


class MemoryFile:
    """An open file of `MemoryFiles`."""

    def __init__(self, inode: _Inode, *, writable: bool, exclusive: bool = False) -> None:
        self._inode: _Inode | None = inode
        self._writable = writable
        self._exclusive = exclusive

    def _open(self) -> _Inode:
        if self._inode is None:
            raise failure(errno.EBADF)
        return self._inode

    def write(self, data: bytes | memoryview, /) -> int:
        if not self._writable:
            raise failure(errno.EBADF)
        self._open().data += data
        return len(data)

    def read_at(self, offset: int, size: int, /) -> bytes:
        return bytes(self._open().data[offset : offset + size])

    def sync(self) -> None:
        self._open()

    def truncate(self, size: int, /) -> None:
        del self._open().data[size:]

    def size(self) -> int:
        return len(self._open().data)

    def close(self) -> None:
        inode, self._inode = self._inode, None
        if inode is not None and self._exclusive:
            inode.appending = False


class MemoryLock:
    """A lock of `MemoryFiles`."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path
        held.add(path)

    def still_held(self) -> bool:
        return self._path in self._held

    def release(self) -> None:
        self._held.discard(self._path)

    def abandon(self) -> None:
        raise AssertionError("no test forks with files in memory")


class MemoryFiles:
    """Files in memory, below one root directory, ``/``.

    Attributes:
        locks: the lock files that are held.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._files: dict[str, _Inode] = {}
        self._directories = {"/"}
        self.locks: set[str] = set()

    def image(self, directory: str = DIRECTORY) -> dict[str, bytes]:
        """Every file in a directory."""
        return {
            path[len(directory) + 1 :]: bytes(inode.data)
            for path, inode in self._files.items()
            if self.parent(path) == directory
        }

    def restore(self, directory: str, image: dict[str, bytes]) -> MemoryFiles:
        """Make a directory hold exactly this; nobody may have it open. Returns itself."""
        for name in self.image(directory):
            del self._files[self.join(directory, name)]
        self._directories.add(directory)
        for name, data in image.items():
            inode = self._files[self.join(directory, name)] = _Inode()
            inode.data += data
        return self

    def _inode(self, path: str) -> _Inode:
        if path in self._directories:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._files[path]

    def open_read(self, path: str, /) -> File:
        return MemoryFile(self._inode(path), writable=False)

    def open_append(self, path: str, /) -> File:
        inode = self._inode(path)
        if inode.appending:
            raise LockedError(self.parent(path))
        inode.appending = True
        return MemoryFile(inode, writable=True, exclusive=True)

    def create(self, path: str, /) -> File:
        if self.parent(path) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inode = self._files.setdefault(path, _Inode())
        del inode.data[:]
        return MemoryFile(inode, writable=True)

    def replace(self, source: str, target: str, /) -> None:
        self._files[target] = self._inode(source)
        del self._files[source]

    def unlink(self, path: str, /) -> None:
        self._inode(path)
        del self._files[path]

    def list_directory(self, path: str, /) -> list[str]:
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        everything = [*self._files, *self._directories]
        return [entry.rpartition("/")[2] for entry in everything if entry != "/" and self.parent(entry) == path]

    def kind(self, path: str, /) -> str | None:
        if path in self._directories:
            return "directory"
        return "file" if path in self._files else None

    def make_directory(self, path: str, /) -> None:
        if self.kind(path) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._directories.add(path)

    def sync_directory(self, path: str, /) -> None:
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def lock(self, directory: str, name: str, timeout: float, /) -> HeldLock:
        path = self.join(directory, name)
        if path in self.locks:
            raise LockedError(directory)
        return MemoryLock(self.locks, path)

    def absolute(self, path: str, /) -> str:
        return path if path.startswith("/") else "/" + path

    def parent(self, path: str, /) -> str:
        return path.rpartition("/")[0] or "/"

    def join(self, directory: str, name: str, /) -> str:
        return f"{directory}/{name}"

    def random_bytes(self, size: int, /) -> bytes:
        return self._random.randbytes(size)

    def clock(self) -> float:
        return 0.0
