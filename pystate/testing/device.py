"""What is under a simulated disk: its nodes, the record of what happened to them, descriptors, locks, chance, faults.

Promise: a call is begun with `_begin` (or `_change`) and ended with `_end`; between the two it either changes nodes
through `_apply`, which notes the change, or fails and changes nothing. Everything here is for ``disk`` and
``open_file``, which make the seam of it; users see `SimulatedDisk`.
"""

from __future__ import annotations

import errno
import threading
from hashlib import blake2b
from typing import NamedTuple

from pystate.testing.faults import Fault, Faults, failure
from pystate.testing.nodes import Directory, Event, Inode, Node, Tree
from pystate.testing.paths import join, normal, split

__all__ = ["Device", "Operation"]


class Operation(NamedTuple):
    """One recorded call.

    Attributes:
        number: from 1 on, in the order of the calls.
        name: one of `pystate.testing.OPERATIONS`.
        path: what it was called for; ``"old -> new"`` for a rename.
        size: in bytes: of what was to be written or read, of the file after a truncation; else 0.
        error: the text of what it raised, or None.
    """

    number: int
    name: str
    path: str
    size: int
    error: str | None

    def __str__(self) -> str:
        size = f" {self.size} bytes" if self.name in ("write", "read_at", "truncate") else ""
        return f"{self.number:>5} {self.name} {self.path}{size}" + (f"  !! {self.error}" if self.error else "")


class Device:
    """The inside of a `SimulatedDisk`, which documents its arguments and attributes."""

    TICK = 0.000_001

    def __init__(
        self,
        seed: int | str = 0,
        *,
        short_io: bool = False,
        io_bytes_max: int | None = None,
        quota: int | None = None,
    ) -> None:
        self.seed = seed
        self.short_io = short_io
        self.io_bytes_max = io_bytes_max
        self.quota = quota
        self.read_only = False
        self.locks_lie = False
        self.now = 0.0
        self.working_directory = "/"
        self.faults = Faults()
        self.forgotten: list[str] = []
        self.losses = 0
        self._guard = threading.RLock()  # a finaliser may come in while a call is under way
        self._tree = Tree()
        self._next_node = 1
        self._folders: dict[str, Directory] = {}  # by path; emptied when a directory moves
        self._draws = 0
        self._calls: list[tuple[str, str, int]] = []
        self._errors: dict[int, str] = {}
        self._journal: list[Event] = []
        self._descriptors: dict[int, str] = {}
        self._descriptor = 0
        self._appending: dict[int, int] = {}  # the descriptor that may append, by number of the inode
        self._locks: dict[int, tuple[int, str]] = {}  # number of the inode and path, by id of the lock object

    def used_bytes(self) -> int:
        """The size of all files that have a name, as far as the quota is concerned."""
        return sum(len(content) for content in self._tree.files().values())

    # Beginning and ending a call

    def _begin(self, name: str, path: str, size: int = 0) -> Fault | None:
        """Record a call; raise what a fault raises, or return the fault, for `_end`."""
        self._calls.append((name, path, size))
        self.now += self.TICK
        return self._fault(name, path) if self.faults else None

    def _fault(self, name: str, path: str) -> Fault | None:
        chosen = None
        for fault in self.faults.next(name, path):
            if fault.effect is not None:
                fault.effect(self)
            if chosen is None and (fault.error is not None or fault.take is not None or fault.pages != "kept"):
                chosen = fault
        if chosen is not None and chosen.error is not None and not chosen.after and chosen.pages == "kept":
            self._strike(chosen, path)
        return chosen

    def _change(self, name: str, path: str) -> Fault | None:
        fault = self._begin(name, path)
        if self.read_only:
            raise self._failed(errno.EROFS, path)
        return fault

    def _end(self, fault: Fault | None, path: str) -> None:
        if fault is not None:
            self._strike(fault, path)

    def _strike(self, fault: Fault, path: str) -> None:
        try:
            fault.strike(path)
        except BaseException as error:
            self._errors[len(self._calls)] = f"{type(error).__name__}: {error}"
            raise

    def _failed(self, number: int, path: str) -> OSError:
        error = failure(number, path)
        self._errors[len(self._calls)] = f"{type(error).__name__}: {error}"
        return error

    def _apply(self, node: Node, method: str, *arguments: object) -> None:
        """Change a node and note it."""
        if method in ("drop", "forget") and node.pending:
            self.losses += 1
        self._journal.append(Event(len(self._calls), node.number, method, arguments))
        getattr(node, method)(*arguments)

    # Randomness

    def _random(self) -> bytes:
        self._draws += 1
        return blake2b(f"{self.seed} {self._draws}".encode(), digest_size=32).digest()

    def _taken(self, size: int, fault: Fault | None) -> int:
        """How many of `size` bytes a read or write takes."""
        if fault is not None and fault.take is not None:
            return min(size, max(fault.take, 1))
        if self.io_bytes_max is not None:
            size = min(size, self.io_bytes_max)
        if self.short_io and size > 1:
            size = 1 + int.from_bytes(self._random()[:8], "little") % size
        return size

    # Paths and nodes

    def _folder(self, path: str) -> Directory:
        folder = self._folders.get(path)
        if folder is None:
            node = self._node(path)
            if not isinstance(node, Directory):
                raise self._failed(errno.ENOTDIR, path)
            folder = self._folders[path] = node
        return folder

    def _node(self, path: str) -> Node:
        if path == "/":
            return self._tree.root
        folder, name = self._place(path)
        return self._tree.nodes[self._number(folder, name, path)]

    def _place(self, path: str) -> tuple[Directory, str]:
        if not path.startswith("/"):
            path = normal(join(self.working_directory, path))
        parent, name = split(path)
        if not name:
            raise self._failed(errno.EINVAL, path)
        return self._folder(parent), name

    def _number(self, folder: Directory, name: str, path: str) -> int:
        number = folder.entries.get(name)
        if number is None:
            raise self._failed(errno.ENOENT, path)
        return number

    def _file(self, path: str) -> Inode:
        node = self._node(path)
        if not isinstance(node, Inode):
            raise self._failed(errno.EISDIR, path)
        return node

    def _make_file(self, path: str) -> Inode:
        folder, name = self._place(path)
        if name in folder.entries:
            return self._file(path)
        number = self._new_node("add_file")
        self._apply(folder, "change", name, number)
        return self._file(path)

    def _new_node(self, method: str, *arguments: object) -> int:
        number, self._next_node = self._next_node, self._next_node + 1
        event = Event(len(self._calls), number, method, arguments)
        self._journal.append(event)
        self._tree.apply(event)
        return number

    # Descriptors and locks

    def _open_descriptor(self, path: str) -> int:
        self._descriptor += 1
        self._descriptors[self._descriptor] = path
        return self._descriptor

    def _close_descriptor(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        for number, holder in list(self._appending.items()):
            if holder == descriptor:
                del self._appending[number]

    def _forget(self, descriptor: int) -> None:
        """A file object is gone; if it was open, its descriptor is closed now."""
        path = self._descriptors.get(descriptor)
        if path is not None:
            self.forgotten.append(path)
            self._close_descriptor(descriptor)
