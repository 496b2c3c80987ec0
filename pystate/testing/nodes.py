"""Files and directories of a simulated disk, each with what is visible now, what is durable, and what is in between.

Promise: a node never forgets a change between two syncs. `content` (of a directory: `entries`) is what every reader
sees, `durable` is what is left when nothing else is, and `pending` is the list of changes that lead from the second to
the first, in order. What a crash may make of them is decided by ``outcomes`` and ``aftermath``, not here.

A `Tree` holds the nodes of one disk by number. Every change goes through a method of a node, so the same call with the
same arguments, on a copy of the tree, makes the same change: the disk notes these calls, and ``crash`` repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Change", "Directory", "EntryChange", "Event", "Inode", "Node", "Tree", "apply_change", "apply_entry"]


class Change(NamedTuple):
    """One pending change of a file.

    Attributes:
        offset: where `data` was written; for a truncation (`data` is None) the new size, in bytes.
        data: the bytes, or None.
    """

    offset: int
    data: bytes | None


class EntryChange(NamedTuple):
    """One pending change of a directory.

    Attributes:
        name: the name that points at `node` from now on, or at nothing (None).
        node: the number of a node, or None.
        source: for a rename the name that goes, else None.
    """

    name: str
    node: int | None
    source: str | None = None


class Event(NamedTuple):
    """One call of a method of a node, as the disk notes it.

    Attributes:
        operation: the number of the operation (the first is 1) in which it happened.
        node: the number of the node.
        method: its name. arguments: what it was called with.
    """

    operation: int
    node: int
    method: str
    arguments: tuple[Any, ...]


def apply_change(content: bytes, change: Change) -> bytes:
    """`content` after one change; what lies between its end and the change is zeros."""
    offset, data = change
    if data is None:
        return content[:offset] if offset <= len(content) else content.ljust(offset, b"\0")
    if offset == len(content):
        return content + data
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


def apply_entry(entries: dict[str, int], change: EntryChange) -> None:
    """Make one change to `entries`, whichever others have been made before it."""
    if change.source is not None:
        entries.pop(change.source, None)
    if change.node is None:
        entries.pop(change.name, None)
    else:
        entries[change.name] = change.node


class Inode:
    """A file, apart from its names."""

    __slots__ = ("content", "durable", "lossy", "number", "pending", "version")

    def __init__(self, number: int, content: bytes = b"") -> None:
        self.number = number
        self.content = self.durable = content
        self.pending: list[Change] = []
        self.version = 0  # how often it has changed
        self.lossy = False  # a failed sync has made it forget a change, so `pending` does not lead to `content`

    def copy(self) -> Inode:
        """The same file for another tree."""
        other = Inode(self.number, self.content)
        other.durable, other.version, other.lossy = self.durable, self.version, self.lossy
        if self.pending:
            other.pending = self.pending.copy()
        return other

    def write(self, data: bytes) -> None:
        """Append."""
        self.version += 1
        self.pending.append(Change(len(self.content), data))
        self.content += data

    def truncate(self, size: int) -> None:
        """Cut, or fill up with zeros."""
        self.version += 1
        change = Change(size, None)
        self.pending.append(change)
        self.content = apply_change(self.content, change)

    def sync(self) -> None:
        """What is pending becomes durable."""
        self.version += 1
        if self.lossy:
            for change in self.pending:
                self.durable = apply_change(self.durable, change)
        else:
            self.durable = self.content
        self.pending.clear()

    def forget(self) -> None:
        """What is pending stays visible and never becomes durable: pages that a failed sync has marked as written."""
        self.version += 1
        self.lossy = self.lossy or bool(self.pending)
        self.pending.clear()

    def drop(self) -> None:
        """What is pending is gone but for the size: pages that a failed sync has thrown away."""
        self.version += 1
        size = len(self.content)
        self.content = self.durable[:size].ljust(size, b"\0")
        self.pending.clear()
        self.lossy = False
        if size != len(self.durable):
            self.pending.append(Change(size, None))


class Directory:
    """Names, and the numbers of the nodes they stand for."""

    __slots__ = ("durable", "entries", "lossy", "number", "pending")

    def __init__(self, number: int, entries: Mapping[str, int] | None = None) -> None:
        self.number = number
        self.entries: dict[str, int] = dict(entries or {})
        self.durable: dict[str, int] = self.entries.copy()
        self.pending: list[EntryChange] = []
        self.lossy = False

    def copy(self) -> Directory:
        """The same directory for another tree."""
        other = Directory(self.number, self.entries)
        other.durable, other.pending, other.lossy = self.durable.copy(), self.pending.copy(), self.lossy
        return other

    def change(self, name: str, node: int | None, source: str | None = None) -> None:
        """Set, remove or rename an entry; see `EntryChange`."""
        change = EntryChange(name, node, source)
        self.pending.append(change)
        apply_entry(self.entries, change)

    def sync(self) -> None:
        """What is pending becomes durable."""
        if self.lossy:
            for change in self.pending:
                apply_entry(self.durable, change)
        else:
            self.durable = self.entries.copy()
        self.pending.clear()

    def forget(self) -> None:
        """What is pending stays visible and never becomes durable."""
        self.lossy = self.lossy or bool(self.pending)
        self.pending.clear()


Node: TypeAlias = Inode | Directory


class Tree:
    """The nodes of one disk; number 0 is the root directory."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {0: Directory(0)}

    @property
    def root(self) -> Directory:
        """The directory ``/``."""
        return self.directory(0)

    def directory(self, number: int) -> Directory:
        """The directory of this number.

        Raises:
            NotADirectoryError: it is a file.
        """
        node = self.nodes[number]
        if not isinstance(node, Directory):
            raise NotADirectoryError(number)
        return node

    def add_file(self, number: int, content: bytes = b"") -> Inode:
        """Add a file without a name; `content` is durable."""
        inode = self.nodes[number] = Inode(number, content)
        return inode

    def add_directory(self, number: int, entries: Mapping[str, int] | None = None) -> Directory:
        """Add a directory without a name; `entries` are durable."""
        directory = self.nodes[number] = Directory(number, entries)
        return directory

    def copy(self) -> Tree:
        """The same tree; changes of one do not show in the other."""
        other = Tree()
        other.nodes = {number: node.copy() for number, node in self.nodes.items()}
        return other

    def apply(self, event: Event) -> None:
        """Repeat what a disk has noted. A new node is added with the event ``add_file`` or ``add_directory``."""
        if event.method.startswith("add_"):
            getattr(self, event.method)(event.node, *event.arguments)
        else:
            getattr(self.nodes[event.node], event.method)(*event.arguments)

    def walk(self, path: str = "/", directory: Directory | None = None) -> Iterator[tuple[str, Node]]:
        """Path and node of everything that has a name now, parents first, the root itself left out."""
        directory = self.root if directory is None else directory
        for name, number in directory.entries.items():
            node = self.nodes[number]
            yield path + name, node
            if isinstance(node, Directory):
                yield from self.walk(f"{path}{name}/", node)

    def files(self) -> dict[str, bytes]:
        """The content of every file that has a name now, by path."""
        return {path: node.content for path, node in self.walk() if isinstance(node, Inode)}
