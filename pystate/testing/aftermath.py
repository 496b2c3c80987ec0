"""What a power cut may make of a whole disk: each combination of what it may make of its files and directories.

Promise: `Aftermath.choices` yields each distinct disk once; every choice that it or `Aftermath.draw` makes can be
written down in a few characters and built again from them. Files that no name leads to after the cut are not there.

A choice names the outcome (see ``outcomes``) of each node that did not keep everything, by number: ``d0=10`` of
directory 0, ``f5=s700,0v1`` of file 5; and with ``x5=3z`` that sector 3 of file 5 is damaged: zeros (``z``), garbage
(``g``) or one wrong bit (``b``). The order is always directories, files, damage. Empty: everything kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, MutableMapping
from itertools import islice, product
from math import prod
from typing import TypeAlias

from pystate.testing.nodes import Directory, Inode, Node, Tree
from pystate.testing.outcomes import SECTOR_BYTES, DirectoryOutcomes, FileOutcomes, Level, garbage

__all__ = ["Aftermath", "Choice", "OutcomeCache", "parse_choice", "write_choice"]

Choice: TypeAlias = dict[str, str]
"""The outcome of each node that lost something, by its kind and number: ``{"f5": "s700"}``."""

OutcomeCache: TypeAlias = MutableMapping[tuple[int, int], FileOutcomes]
"""The outcomes of files by number and version of the file; shared by the moments of one run."""

_FOLDERS_COUNTED_MAX = 4096


def write_choice(choice: Choice) -> str:
    """A choice as text without blanks."""
    return ";".join(f"{node}={outcome}" for node, outcome in choice.items()) or "-"


def parse_choice(text: str) -> Choice:
    """What `write_choice` has written.

    Raises:
        ValueError: something else.
    """
    choice: Choice = {}
    for part in [] if text == "-" else text.split(";"):
        node, equals, outcome = part.partition("=")
        if node[:1] not in ("d", "f", "x") or not node[1:].isdigit() or not equals:
            raise ValueError(f"{part!r} is no part of a choice")
        choice[node] = outcome
    return choice


class Aftermath:
    """The outcomes of one power cut; the tree must not change meanwhile.

    Arguments:
        tree: the disk at the moment of the cut.
        level: how much the cut may take; not `Level.KILL`, which is no power cut.
        seed: of garbage.
        cache: keeps what has been computed about files that do not change from one moment to the next.
    """

    def __init__(self, tree: Tree, level: Level, seed: object, cache: OutcomeCache | None = None) -> None:
        self._tree = tree
        self._level = level
        self._seed = seed
        self._cache: OutcomeCache = {} if cache is None else cache
        self._folders: dict[int, DirectoryOutcomes] = {}

    # How many, and which

    def count(self) -> int:
        """How many distinct outcomes there are; where that would take too long to count, at most how many."""
        folders = list(islice(self._folder_choices([self._tree.root], {}), _FOLDERS_COUNTED_MAX + 1))
        counts = [self._files_count(self._reachable(names)) for names in folders]
        if len(folders) <= _FOLDERS_COUNTED_MAX:
            return sum(counts)
        every = [node for node in self._tree.nodes.values() if isinstance(node, Directory)]
        return prod(self._folder(node).count(self._level) for node in every) * max(counts)

    def _files_count(self, inodes: list[Inode]) -> int:
        outcomes = [self._file(inode) for inode in inodes]
        if self._level is not Level.DAMAGE:
            return prod(file.count(self._level) for file in outcomes)
        if all(file.settled for file in outcomes):
            return 1 + 3 * sum(len(file.untouched(file.size)) for file in outcomes)
        # Some of these sectors are cut off by some outcomes: at most so many.
        return prod(file.count(self._level) for file in outcomes) * (
            1 + 3 * sum(len(file.untouched(max(file.sizes))) for file in outcomes)
        )

    def choices(self) -> Iterator[Choice]:
        """Every distinct outcome once, "everything kept" first."""
        seen = set()
        one = len(list(islice(self._folder_choices([self._tree.root], {}), 2))) == 1
        single = one and self._level is not Level.DAMAGE  # then the outcomes of files make the only difference
        for folders in self._folder_choices([self._tree.root], {}):
            inodes = self._reachable(folders)
            pending = [inode for inode in inodes if not self._file(inode).settled]
            for names in product(*(self._file(inode).names(self._level) for inode in pending)):
                choice = self._choice(folders, dict(zip((inode.number for inode in pending), names, strict=True)))
                for damaged in self._damages(choice, inodes):
                    fingerprint = None if single else self.fingerprint(damaged)
                    if single or fingerprint not in seen:
                        seen.add(fingerprint)
                        yield damaged

    def draw(self, source: random.Random) -> Choice:
        """A random outcome."""
        folders: dict[int, str] = {}
        waiting = [self._tree.root]
        while waiting:
            directory = waiting.pop()
            name = folders[directory.number] = self._folder(directory).draw(self._level, source)
            waiting += self._directories_in(self._folder(directory).build(name))
        inodes = self._reachable(folders)
        choice = self._choice(folders, {inode.number: self._file(inode).draw(self._level, source) for inode in inodes})
        if self._level is Level.DAMAGE and source.randrange(4):
            damages = list(self._damages(choice, inodes))
            return source.choice(damages)
        return choice

    def nothing(self) -> Choice:
        """The outcome that keeps nothing that was pending."""
        lost: Choice = {}
        for number, node in self._tree.nodes.items():
            if isinstance(node, Directory) and node.pending:
                lost[f"d{number}"] = "0" * len(node.pending)
        for number, node in self._tree.nodes.items():
            if isinstance(node, Inode) and node.pending:
                lost[f"f{number}"] = "p0"
        return lost

    def simpler(self, choice: Choice) -> Iterator[Choice]:
        """Outcomes that lose a little less."""
        for node, outcome in choice.items():
            number = int(node[1:])
            names: Iterator[str] = iter(("",))
            if node[0] == "d":
                names = self._folder(self._tree.directory(number)).simpler(outcome, self._level)
            elif node[0] == "f":
                names = self._file(self._inode(number)).simpler(outcome)
            for name in names:
                other = {**choice, node: name}
                yield {key: value for key, value in other.items() if value}

    # Building and telling

    def build(self, choice: Choice) -> Tree:
        """The disk after the cut.

        Raises:
            KeyError, ValueError, IndexError: the choice belongs to another moment.
        """
        for key in choice:
            if isinstance(self._tree.nodes[int(key[1:])], Directory) != (key[0] == "d"):
                raise ValueError(f"{key!r} is of another kind")
        tree = Tree()
        waiting: list[Node] = [self._tree.root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Directory):
                entries = self._folder(node).build(choice.get(f"d{node.number}", ""))
                tree.add_directory(node.number, entries)
                waiting += (self._tree.nodes[number] for number in entries.values())
            else:
                tree.add_file(node.number, self._content(node, choice))
        return tree

    def describe(self, choice: Choice) -> str:
        """In words, a line for each node that lost something."""
        paths = {node.number: path for path, node in self._tree.walk()}
        lines = []
        for key, outcome in choice.items():
            number = int(key[1:])
            path = paths.get(number, f"(file {number}, whose name is gone)") if number else "/"
            if key[0] == "d":
                words = self._folder(self._tree.directory(number)).describe(outcome)
            elif key[0] == "f":
                words = self._file(self._inode(number)).describe(outcome)
            else:
                kind = {"z": "is zeros", "g": "is garbage", "b": "has a wrong bit"}[outcome[-1]]
                words = f"durable sector {outcome[:-1]} {kind}"
            lines.append(f"{path}: {words}")
        return "\n".join(lines) or "everything kept"

    # Nodes

    def _folder(self, directory: Directory) -> DirectoryOutcomes:
        outcomes = self._folders.get(directory.number)
        if outcomes is None:
            outcomes = self._folders[directory.number] = DirectoryOutcomes(directory)
        return outcomes

    def _file(self, inode: Inode) -> FileOutcomes:
        key = inode.number, inode.version
        outcomes = self._cache.get(key)
        if outcomes is None:
            outcomes = self._cache[key] = FileOutcomes(inode, self._seed)
        return outcomes

    def _inode(self, number: int) -> Inode:
        node = self._tree.nodes[number]
        if not isinstance(node, Inode):
            raise ValueError(f"node {number} is no file")
        return node

    def _directories_in(self, entries: dict[str, int]) -> list[Directory]:
        nodes = (self._tree.nodes[number] for number in entries.values())
        return [node for node in nodes if isinstance(node, Directory)]

    def _folder_choices(self, waiting: list[Directory], chosen: dict[int, str]) -> Iterator[dict[int, str]]:
        """Each combination of the outcomes of the directories that names lead to."""
        if not waiting:
            yield chosen
            return
        directory, *rest = waiting
        outcomes = self._folder(directory)
        for name in outcomes.names(self._level):
            below = self._directories_in(outcomes.build(name))
            yield from self._folder_choices([*rest, *below], {**chosen, directory.number: name})

    def _reachable(self, folders: dict[int, str]) -> list[Inode]:
        """The files that names lead to."""
        found: dict[int, Inode] = {}
        for number, name in folders.items():
            for entry in self._folder(self._tree.directory(number)).build(name).values():
                node = self._tree.nodes[entry]
                if isinstance(node, Inode):
                    found[entry] = node
        return list(found.values())

    def _choice(self, folders: dict[int, str], files: dict[int, str]) -> Choice:
        choice = {f"d{number}": name for number, name in folders.items() if name}
        choice.update((f"f{number}", name) for number, name in files.items() if name)
        return choice

    def _damages(self, choice: Choice, inodes: list[Inode]) -> Iterator[Choice]:
        yield choice
        if self._level is Level.DAMAGE:
            for inode in inodes:
                outcomes = self._file(inode)
                content = outcomes.build(choice.get(f"f{inode.number}", ""))
                for sector in outcomes.untouched(len(content)):
                    for kind in "zgb":
                        yield {**choice, f"x{inode.number}": f"{sector}{kind}"}

    def _content(self, inode: Inode, choice: Choice) -> bytes:
        content = self._file(inode).build(choice.get(f"f{inode.number}", ""))
        damage = choice.get(f"x{inode.number}")
        if damage is None:
            return content
        start = int(damage[:-1]) * SECTOR_BYTES
        sector = content[start : start + SECTOR_BYTES]
        if damage[-1] == "z":
            sector = bytes(len(sector))
        else:
            noise = garbage(f"{self._seed} {inode.number} {damage}")
            if damage[-1] == "g":
                sector = noise[: len(sector)]
            else:
                bit = int.from_bytes(noise[:4], "little") % (len(sector) * 8)
                wrong = sector[bit // 8] ^ 1 << bit % 8
                sector = sector[: bit // 8] + bytes([wrong]) + sector[bit // 8 + 1 :]
        return content[:start] + sector + content[start + len(sector) :]

    def fingerprint(self, choice: Choice) -> object:
        """Equal for equal disks."""
        tree = self.build(choice)
        names = ((path, node.content if isinstance(node, Inode) else None) for path, node in tree.walk())
        return frozenset(names)
