"""`SimulatedDisk`: a file system in memory that knows what power loss would take.

The fault model, on which every statement of this package rests:

- A write, a truncation or a change of a directory is visible at once, and durable only after a sync. Until then a crash
  may keep it, lose it, or keep part of it; how much is the choice of a `Level`.
- ``File.sync`` makes content and size of that file durable, and nothing else: not its name.
- ``Files.sync_directory`` makes the entries of that directory durable, and nothing else: not what the files hold, not
  the entry of the directory itself in its parent.
- ``Files.replace`` is atomic: after a crash the file has the old name or the new one, and a file that was replaced is
  there whole or not at all. Whether the rename is kept says nothing of what the renamed file holds.
- The death of the process takes nothing that was written; what was pending stays pending. Its descriptors and locks are
  gone.
- A sector of 512 bytes is written whole or not at all. What was durable in it stays, whatever else is written to it.
- Durable bytes do not change by themselves (except at `Level.DAMAGE`), and a read returns what was written.

Promise: the same seed and the same calls give the same bytes, ids and short reads. Every call is recorded. Nothing but
an ``OSError`` with its errno, a `LockedError`, or what an injected `Fault` raises comes out of it.

Paths begin with ``/``; a relative one is seen from `SimulatedDisk.working_directory`. There are no links and no
permissions. Threads may share a disk; each call is atomic.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from pystate.engine.files import TEMPORARY_SUFFIX
from pystate.errors import LockedError
from pystate.testing.device import Device, Operation
from pystate.testing.faults import Fault
from pystate.testing.nodes import Directory, Event, Inode, Tree
from pystate.testing.open_file import SimulatedFile, SimulatedLock
from pystate.testing.paths import join, normal, split

__all__ = ["SimulatedDisk"]


class SimulatedDisk(Device):
    """A deterministic file system in memory: pass it as ``files=`` to `pystate.open`.

    Arguments:
        seed: of random bytes, short reads and writes, and garbage.
        short_io: every read and write takes a random part of what was asked, at least one byte.
        io_bytes_max: the most bytes that one read or write takes; None for no limit.
        quota: how many bytes all files may hold together; None for no limit. Then a write fails with ``ENOSPC``.

    Attributes:
        read_only: nothing can be changed (``EROFS``). May be set at any time, as may `quota`, `short_io` and
            `io_bytes_max`.
        locks_lie: a lock is granted to everybody, as on a broken network file system.
        now: what the clock shows, in seconds; each call advances it by `TICK`.
        working_directory: where relative paths begin.
        faults: those injected, and `Faults.fired`.
        forgotten: paths of descriptors that were dropped without being closed.
        losses: how many syncs have lost what they should have made durable; see `Fault.pages`.
    """

    # What it is asked: the seam `pystate.Files`

    def open_read(self, path: str, /) -> SimulatedFile:
        with self._guard:
            fault = self._begin("open_read", path)
            inode = self._file(path)
            self._end(fault, path)
            return SimulatedFile(self, inode, path, writable=False)

    def open_append(self, path: str, /) -> SimulatedFile:
        with self._guard:
            fault = self._begin("open_append", path)
            inode = self._file(path)
            if self.read_only:
                raise self._failed(errno.EROFS, path)
            if inode.number in self._appending:
                directory, name = split(path)
                raise LockedError(directory, pid=1, host="simulated", reason=f" ({name} is open for appending)")
            self._end(fault, path)
            file = SimulatedFile(self, inode, path, writable=True)
            self._appending[inode.number] = file._descriptor
            return file

    def create(self, path: str, /) -> SimulatedFile:
        with self._guard:
            fault = self._change("create", path)
            inode = self._make_file(path)
            if inode.content:
                self._apply(inode, "truncate", 0)
            self._end(fault, path)
            return SimulatedFile(self, inode, path, writable=True)

    def replace(self, source: str, target: str, /) -> None:
        with self._guard:
            fault = self._change("replace", f"{source} -> {target}")
            (folder, old), (other, new) = self._place(source), self._place(target)
            number, replaced = self._number(folder, old, source), other.entries.get(new)
            if folder is not other:
                raise self._failed(errno.EXDEV, source)
            if replaced is not None and number != replaced:
                moved, gone = self._tree.nodes[number], self._tree.nodes[replaced]
                if isinstance(gone, Directory) and (isinstance(moved, Inode) or gone.entries):
                    raise self._failed(errno.EISDIR if isinstance(moved, Inode) else errno.ENOTEMPTY, target)
                if isinstance(moved, Directory) and isinstance(gone, Inode):
                    raise self._failed(errno.ENOTDIR, target)
            self._folders.clear()
            if old != new:
                self._apply(folder, "change", new, number, old)
            self._end(fault, source)

    def unlink(self, path: str, /) -> None:
        with self._guard:
            fault = self._change("unlink", path)
            folder, name = self._place(path)
            self._file(path)
            self._apply(folder, "change", name, None)
            self._end(fault, path)

    def list_directory(self, path: str, /) -> list[str]:
        with self._guard:
            fault = self._begin("list_directory", path)
            names = list(self._folder(path).entries)
            self._end(fault, path)
            return names

    def kind(self, path: str, /) -> str | None:
        with self._guard:
            fault = self._begin("kind", path)
            try:
                node = self._node(path)
            except FileNotFoundError:
                node = None
                self._errors.pop(len(self._calls))
            self._end(fault, path)
            return None if node is None else "directory" if isinstance(node, Directory) else "file"

    def make_directory(self, path: str, /) -> None:
        with self._guard:
            fault = self._change("make_directory", path)
            folder, name = self._place(path)
            if name in folder.entries:
                raise self._failed(errno.EEXIST, path)
            number = self._new_node("add_directory")
            self._apply(folder, "change", name, number)
            self._end(fault, path)

    def sync_directory(self, path: str, /) -> None:
        with self._guard:
            fault = self._begin("sync_directory", path)
            folder = self._folder(path)
            if self.read_only and folder.pending:
                raise self._failed(errno.EROFS, path)
            self._apply(folder, "sync" if fault is None or fault.pages == "kept" else "forget")
            self._end(fault, path)

    def lock(self, directory: str, name: str, timeout: float, /) -> SimulatedLock:
        path = join(directory, name)
        with self._guard:
            fault = self._change("lock", path)
            inode = self._make_file(path)
            if any(number == inode.number for number, _ in self._locks.values()) and not self.locks_lie:
                self.now += max(timeout, 0.0)
                raise LockedError(directory, pid=1, host="simulated")
            lock = SimulatedLock(self, self._place(path)[0], inode, path)
            self._locks[id(lock)] = inode.number, path
            self._end(fault, path)
            return lock

    def absolute(self, path: str, /) -> str:
        return normal(join(self.working_directory, path))

    def parent(self, path: str, /) -> str:
        return split(path)[0]

    def join(self, directory: str, name: str, /) -> str:
        return join(directory, name)

    def random_bytes(self, size: int, /) -> bytes:
        with self._guard:
            return b"".join(self._random() for _ in range(0, size, 32))[:size]

    def clock(self) -> float:
        self.now += self.TICK
        return self.now

    # What a test asks and does

    @property
    def position(self) -> int:
        """How many operations there have been."""
        return len(self._calls)

    @property
    def operations(self) -> list[Operation]:
        """Every call so far."""
        return [
            Operation(number, name, path, size, self._errors.get(number))
            for number, (name, path, size) in enumerate(self._calls, start=1)
        ]

    @property
    def open_descriptors(self) -> list[str]:
        """The paths of all open descriptors, as they were opened."""
        return sorted(self._descriptors.values())

    @property
    def held_locks(self) -> list[str]:
        """The paths of the lock files of all locks that are held."""
        return sorted(path for _, path in self._locks.values())

    def temporary_files(self) -> list[str]:
        """The paths of all unfinished files (``*.tmp``)."""
        return sorted(path for path in self.files() if path.endswith(TEMPORARY_SUFFIX))

    def files(self) -> dict[str, bytes]:
        """The content of every file by path, as it is seen now; not recorded as an operation."""
        return self._tree.files()

    def directories(self) -> list[str]:
        """The path of every directory but the root, as it is seen now."""
        return [path for path, node in self._tree.walk() if isinstance(node, Directory)]

    def put(self, files: Mapping[str, bytes]) -> None:
        """Put whole files into place, with the directories they need, durably, and record no operation: set a scene.

        There is no crash before this or in it; other pending changes of these directories become durable, too.
        """
        with self._guard:
            for path, content in files.items():
                at, folder = "/", self._tree.root
                *parents, name = normal(path).strip("/").split("/")
                for parent in parents:
                    at = join(at, parent)
                    if parent not in folder.entries:
                        self._apply(folder, "change", parent, self._new_node("add_directory"))
                        self._apply(folder, "sync")
                    folder = self._folder(at)
                number = self._new_node("add_file", content)
                self._apply(folder, "change", name, number)
                self._apply(folder, "sync")

    def inject(self, *faults: Fault) -> None:
        """Make calls fail from now on. Each fault counts for itself; of several for one call all effects are done, and
        of the other ones the first.
        """
        for fault in faults:
            self.faults.add(fault)

    def kill(self) -> None:
        """Let the process die: descriptors are closed, locks free; everything written is still there, and pending."""
        with self._guard:
            self._descriptors.clear()
            self._appending.clear()
            self._locks.clear()

    def clone(self) -> SimulatedDisk:
        """A second disk in the same condition, without descriptors, locks, faults and the record of operations."""
        with self._guard:
            return SimulatedDisk.of(self._tree, like=self)

    @classmethod
    def of(cls, tree: Tree, *, like: SimulatedDisk, seed: int | str | None = None) -> SimulatedDisk:
        """A disk that holds a copy of `tree`, with the settings of another one; for ``crash``.

        Arguments:
            tree: files and directories.
            like: the disk whose settings are taken.
            seed: None means to go on where the random source of that disk is.
        """
        other = cls(like.seed if seed is None else seed, short_io=like.short_io, io_bytes_max=like.io_bytes_max)
        other.quota, other.read_only, other.locks_lie = like.quota, like.read_only, like.locks_lie
        other.now, other.working_directory = like.now, like.working_directory
        other._draws = like._draws if seed is None else 0
        other._tree = tree.copy()
        other._next_node = max(tree.nodes) + 1
        return other

    def recorded(self) -> tuple[Event, ...]:
        """Every change of a node so far, for ``crash``."""
        return tuple(self._journal)

    def tree(self) -> Tree:
        """A copy of all files and directories as they are now, with what is pending; for ``crash``."""
        return self._tree.copy()
