"""What a simulated disk hands out: open files and locks. They keep the contract of `pystate.engine.files`.

Promise: a file or lock that is forgotten without being closed frees what it held, as on a real system, and the disk
remembers that it was forgotten; after the death of the process neither does anything any more.
"""

from __future__ import annotations

import errno

from pystate.testing.device import Device
from pystate.testing.faults import Fault, failure
from pystate.testing.nodes import Directory, Inode
from pystate.testing.paths import split

__all__ = ["SimulatedFile", "SimulatedLock"]

_SYNCS = {"kept": "sync", "cached": "forget", "dropped": "drop"}


class SimulatedFile:
    """An open file of a `SimulatedDisk`; see `pystate.File`."""

    __slots__ = ("_descriptor", "_disk", "_inode", "_path", "_writable")

    def __init__(self, disk: Device, inode: Inode, path: str, *, writable: bool) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._writable = writable
        self._descriptor = disk._open_descriptor(path)

    def __del__(self) -> None:
        self._disk._forget(self._descriptor)

    def _begin(self, name: str, size: int = 0) -> Fault | None:
        if self._descriptor not in self._disk._descriptors:
            raise failure(errno.EBADF, self._path)
        return self._disk._begin(name, self._path, size)

    def _change(self, name: str, size: int = 0) -> Fault | None:
        fault = self._begin(name, size)
        if not self._writable:
            raise self._disk._failed(errno.EBADF, self._path)
        if self._disk.read_only:
            raise self._disk._failed(errno.EROFS, self._path)
        return fault

    def write(self, data: bytes | memoryview, /) -> int:
        disk = self._disk
        with disk._guard:
            fault = self._change("write", len(data))
            taken = disk._taken(len(data), fault)
            if disk.quota is not None and data:
                taken = min(taken, disk.quota - disk.used_bytes())
                if taken <= 0:
                    raise disk._failed(errno.ENOSPC, self._path)
            disk._apply(self._inode, "write", bytes(data[:taken]))
            disk._end(fault, self._path)
            return taken

    def read_at(self, offset: int, size: int, /) -> bytes:
        disk = self._disk
        with disk._guard:
            fault = self._begin("read_at", size)
            data = self._inode.content[offset : offset + disk._taken(size, fault)]
            disk._end(fault, self._path)
            return data

    def sync(self) -> None:
        disk = self._disk
        with disk._guard:
            fault = self._begin("sync")
            if disk.read_only and self._inode.pending:
                raise disk._failed(errno.EROFS, self._path)
            disk._apply(self._inode, "sync" if fault is None else _SYNCS[fault.pages])
            disk._end(fault, self._path)

    def truncate(self, size: int, /) -> None:
        disk = self._disk
        with disk._guard:
            fault = self._change("truncate", size)
            disk._apply(self._inode, "truncate", size)
            disk._end(fault, self._path)

    def size(self) -> int:
        disk = self._disk
        with disk._guard:
            fault = self._begin("size")
            disk._end(fault, self._path)
            return len(self._inode.content)

    def close(self) -> None:
        disk = self._disk
        with disk._guard:
            if self._descriptor in disk._descriptors:
                try:
                    fault = disk._begin("close", self._path)
                finally:
                    disk._close_descriptor(self._descriptor)  # also when it fails, as on most systems
                disk._end(fault, self._path)


class SimulatedLock:
    """A lock held on a directory of a `SimulatedDisk`; see `pystate.engine.files.HeldLock`."""

    __slots__ = ("_directory", "_disk", "_inode", "_path")

    def __init__(self, disk: Device, directory: Directory, inode: Inode, path: str) -> None:
        self._disk = disk
        self._directory = directory
        self._inode = inode
        self._path = path

    def __del__(self) -> None:
        self._disk._locks.pop(id(self), None)  # forgotten without closing

    def still_held(self) -> bool:
        disk = self._disk
        with disk._guard:
            try:
                disk._end(disk._begin("still_held", self._path), self._path)
            except OSError:
                return False
            name = split(self._path)[1]
            return id(self) in disk._locks and self._directory.entries.get(name) == self._inode.number

    def release(self) -> None:
        disk = self._disk
        with disk._guard:
            if id(self) in disk._locks:
                try:
                    fault = disk._begin("release", self._path)
                finally:
                    del disk._locks[id(self)]  # also when it fails, as for a descriptor
                disk._end(fault, self._path)

    def abandon(self) -> None:
        """In a forked child: the parent's lock stays, so there is nothing to do."""
