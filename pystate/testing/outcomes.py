"""What a power cut may make of one file, or of one directory.

Promise: the outcomes of a node at a `Level` are exactly these, each once:

===========================  ==========================================================================================
`Level.NOTHING_UNSYNCED`     what is durable
`Level.PREFIX`               what is durable, and the first so many of the pending changes, a write sector by sector
`Level.SECTORS`              any size the file has had since it was synced; and in each sector that was written since:
                             what it held after any of these writes, or before them, or that with zeros in place of
                             what came later. Of a directory: any subset of the pending changes
`Level.GARBAGE`              the same, and garbage in place of what came later
===========================  ==========================================================================================

What was durable in a sector and has not been written over stays, at every level.

An outcome is named by a short text, empty for "everything kept": of a file ``p3`` (the first three pieces of what is
pending), or its size and the sectors that differ, as in ``s700,0v1,1z0`` (sector 0 as after the first write to it,
sector 1 as durable and then zeros); of a directory a digit for each pending change, 1 if it was kept.
"""

from __future__ import annotations

import enum
import random
import re
from collections.abc import Iterable, Iterator
from hashlib import shake_128
from itertools import product
from math import prod

from pystate.testing.nodes import Change, Directory, EntryChange, Inode, apply_change, apply_entry

__all__ = ["SECTOR_BYTES", "DirectoryOutcomes", "FileOutcomes", "Level", "garbage", "pieces"]

SECTOR_BYTES = 512
"""A sector is written whole or not at all."""


class Level(enum.Enum):
    """How much a crash may take; each level allows all that the ones above it do, but for `KILL`."""

    KILL = "kill"
    """The process dies. Everything written is there, and still pending; a long write may stop at any sector."""
    NOTHING_UNSYNCED = "nothing-unsynced"
    """Power is lost. Only what was synced is there."""
    PREFIX = "prefix"
    """Power is lost. Of each file and directory any beginning of what is pending is there."""
    SECTORS = "sectors"
    """Power is lost. Any subset of what is pending is there, sizes and contents apart; lost bytes are old, or zero."""
    GARBAGE = "garbage"
    """The same, and lost bytes may also be garbage."""
    DAMAGE = "damage"
    """The same, and one durable sector is damaged: zeros, garbage, or one bit."""


def garbage(seed: object, size: int = SECTOR_BYTES) -> bytes:
    """Bytes that mean nothing, always the same for a seed."""
    return shake_128(str(seed).encode()).digest(size)


def pieces(change: Change, size: int) -> Iterator[Change]:
    """A change of a file that has `size` bytes, cut at the boundaries of sectors."""
    offset, data = change
    if data is None:
        yield change
        return
    start = 0
    while start < len(data):
        stop = start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES
        yield Change(offset + start, data[start:stop])
        start = stop


class FileOutcomes:
    """The outcomes of one file; the file must not change meanwhile.

    Arguments:
        inode: the file.
        seed: of garbage.
    """

    def __init__(self, inode: Inode, seed: object) -> None:
        self.durable = inode.durable
        self._seed = f"{seed} {inode.number}"
        self._pieces: list[Change] = []
        content, sizes = inode.durable, [len(inode.durable)]
        # Of each sector that has changed: what it held at first and after each change, and which bytes that wrote.
        self._versions: dict[int, list[bytes]] = {}
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for change in inode.pending:
            for piece in pieces(change, len(content)):
                before, content = content, apply_change(content, piece)
                self._pieces.append(piece)
                sizes.append(len(content))
                self._note(piece, before, content)
        self.content = content
        self.size = len(content)
        self.sizes = list(dict.fromkeys(reversed(sizes)))
        self._cached: dict[tuple[int, int, bool], list[tuple[str, bytes]]] = {}

    def _note(self, piece: Change, before: bytes, after: bytes) -> None:
        if piece.data is not None:
            first = piece.offset // SECTOR_BYTES
            touched = range(first, first + 1)
            span = piece.offset % SECTOR_BYTES, piece.offset % SECTOR_BYTES + len(piece.data)
        else:  # what is cut off is zero if the file grows over it again
            touched = range(piece.offset // SECTOR_BYTES, -(-len(before) // SECTOR_BYTES))
            span = (0, 0)
        for sector in touched:
            start = sector * SECTOR_BYTES
            old = before[start : start + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
            new = after[start : start + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
            versions = self._versions.setdefault(sector, [old])
            if versions[-1] != new:
                versions.append(new)
                self._ranges.setdefault(sector, []).append(span)

    @property
    def settled(self) -> bool:
        """There is only one outcome, at every level."""
        return not self._pieces

    def count(self, level: Level) -> int:
        """How many outcomes there are."""
        if level is Level.NOTHING_UNSYNCED or self.settled:
            return 1
        if level is Level.PREFIX:
            return len(self._pieces) + 1
        return sum(prod(len(options) for _, options in self._sectors(size, level)) for size in self.sizes)

    def names(self, level: Level) -> Iterator[str]:
        """The names of all outcomes, "everything kept" first."""
        if self.settled:
            yield ""
        elif level is Level.NOTHING_UNSYNCED:
            yield "p0"
        elif level is Level.PREFIX:
            yield ""
            yield from (f"p{count}" for count in reversed(range(len(self._pieces))))
        else:
            for size in self.sizes:
                sectors = list(self._sectors(size, level))
                for chosen in product(*(range(len(options)) for _, options in sectors)):
                    yield self._name(size, sectors, chosen)

    def draw(self, level: Level, source: random.Random) -> str:
        """The name of a random outcome: one in four keeps everything, one in eight nothing."""
        fate = source.randrange(8)
        if self.settled or (fate < 2 and level is not Level.NOTHING_UNSYNCED):
            return ""
        if fate == 2 or level is Level.NOTHING_UNSYNCED:
            return "p0"
        if level is Level.PREFIX:
            count = source.randrange(len(self._pieces) + 1)
            return "" if count == len(self._pieces) else f"p{count}"
        size = source.choice(self.sizes)
        sectors = list(self._sectors(size, level))
        return self._name(size, sectors, tuple(source.randrange(len(options)) for _, options in sectors))

    def build(self, name: str) -> bytes:
        """The content of the outcome of this name.

        Raises:
            ValueError, IndexError, KeyError: there is none.
        """
        if not name:
            return self.content
        if name[0] == "p":
            kept = self.durable
            for piece in self._pieces[: int(name[1:])]:
                kept = apply_change(kept, piece)
            return kept
        size, differing = _parse(name)
        content = bytearray(self.durable[:size].ljust(size, b"\0"))
        for sector, versions in self._versions.items():
            kind, version = differing.pop(sector, ("v", len(versions) - 1))
            start = sector * SECTOR_BYTES
            if start < size:
                content[start : start + SECTOR_BYTES] = self._sector(sector, kind, version)
        if differing:
            raise KeyError(f"{name!r} is of another moment")
        return bytes(content[:size])

    def simpler(self, name: str) -> Iterator[str]:
        """Names of outcomes that keep a little more, the ones that keep most first."""
        if name:
            yield ""
        if name.startswith("p") and int(name[1:]) + 1 < len(self._pieces):
            yield f"p{int(name[1:]) + 1}"
        if name.startswith("s"):
            head, *differing = name.split(",")
            if head != f"s{self.size}":
                yield ",".join([f"s{self.size}", *differing])
            for at in range(len(differing)):
                yield ",".join([head, *differing[:at], *differing[at + 1 :]])

    def describe(self, name: str) -> str:
        """In words."""
        if not name:
            return "everything kept"
        if name[0] == "p":
            done = int(name[1:])
            return "nothing that was pending kept" if not done else f"{done} of {len(self._pieces)} pending pieces kept"
        size, differing = _parse(name)
        words = [] if size == self.size else [f"size {size} of {self.size}"]
        for sector, (kind, version) in differing.items():
            held = f"as after write {version} of {self._writes(sector)}" if version else "as it was durable"
            then = {"v": "", "z": ", then zeros", "g": ", then garbage"}[kind]
            words.append(f"sector {sector} {held}{then}")
        return "; ".join(words) or "everything kept"

    def untouched(self, size: int) -> list[int]:
        """The durable sectors below `size` that no pending change has written to."""
        stop = -(-min(size, len(self.durable)) // SECTOR_BYTES)
        return [sector for sector in range(stop) if sector not in self._versions]

    def _writes(self, sector: int) -> int:
        return len(self._versions[sector]) - 1

    def _sectors(self, size: int, level: Level) -> Iterator[tuple[int, list[tuple[str, bytes]]]]:
        """Each sector that has changed and is visible at this size, with its distinct contents."""
        for sector in self._versions:
            visible = min(size - sector * SECTOR_BYTES, SECTOR_BYTES)
            if visible > 0:
                yield sector, self._options(sector, visible, level not in (Level.PREFIX, Level.SECTORS))

    def _options(self, sector: int, visible: int, with_garbage: bool) -> list[tuple[str, bytes]]:
        """Name and content of each distinct outcome of the first `visible` bytes of a sector, the newest first."""
        key = sector, visible, with_garbage
        options = self._cached.get(key)
        if options is None:
            contents: dict[bytes, str] = {}
            last = self._writes(sector)
            for kind in "vzg" if with_garbage else "vz":
                for version in range(last, -1, -1):
                    if kind == "v" or version < last:
                        content = self._sector(sector, kind, version)[:visible]
                        contents.setdefault(content, f"{sector}{kind}{version}")
            newest = self._versions[sector][-1][:visible]
            options = [("" if content == newest else name, content) for content, name in contents.items()]
            self._cached[key] = options
        return options

    def _sector(self, sector: int, kind: str, version: int) -> bytes:
        content = self._versions[sector][version]
        if kind == "v":
            return content
        lost = bytearray(content)
        source = bytes(SECTOR_BYTES) if kind == "z" else garbage(f"{self._seed} {sector}")
        for start, stop in self._ranges[sector][version:]:
            lost[start:stop] = source[start:stop]
        return bytes(lost)

    def _name(self, size: int, sectors: list[tuple[int, list[tuple[str, bytes]]]], chosen: tuple[int, ...]) -> str:
        differing = [options[at][0] for (_, options), at in zip(sectors, chosen, strict=True) if options[at][0]]
        return "" if size == self.size and not differing else ",".join([f"s{size}", *differing])


def _parse(name: str) -> tuple[int, dict[int, tuple[str, int]]]:
    """Size, and kind and version of the sectors that differ, from the name of an outcome of a file."""
    head, *parts = name.split(",")
    found = [re.fullmatch(r"([0-9]+)([vzg])([0-9]+)", part) for part in parts]
    if not re.fullmatch(r"s[0-9]+", head) or not all(found):
        raise ValueError(f"{name!r} is no outcome of a file")
    return int(head[1:]), {int(match[1]): (match[2], int(match[3])) for match in found if match}


class DirectoryOutcomes:
    """The outcomes of one directory; it must not change meanwhile."""

    def __init__(self, directory: Directory) -> None:
        self._durable = directory.durable
        self._pending = directory.pending

    def count(self, level: Level) -> int:
        """How many outcomes there are, or, of some that are the same, at most."""
        pending = len(self._pending)
        if level is Level.NOTHING_UNSYNCED:
            return 1
        return pending + 1 if level is Level.PREFIX else 1 << pending

    def names(self, level: Level) -> Iterator[str]:
        """The names of all outcomes, "everything kept" first; of several that are the same only the first."""
        pending = len(self._pending)
        if level is Level.NOTHING_UNSYNCED:
            masks: Iterable[str] = ["0" * pending]
        elif level is Level.PREFIX:
            masks = ("1" * kept + "0" * (pending - kept) for kept in range(pending, -1, -1))
        else:
            masks = ("".join(mask) for mask in product("10", repeat=pending))
        seen = set()
        for mask in masks:
            entries = frozenset(self.build(mask).items())
            if entries not in seen:
                seen.add(entries)
                yield mask if "0" in mask else ""

    def draw(self, level: Level, source: random.Random) -> str:
        """The name of a random outcome: one in four keeps everything, one in eight nothing."""
        pending, fate = len(self._pending), source.randrange(8)
        if level is Level.NOTHING_UNSYNCED or fate == 2:
            return "0" * pending
        if fate < 2:
            return ""
        if level is Level.PREFIX:
            kept = source.randrange(pending + 1)
            mask = "1" * kept + "0" * (pending - kept)
        else:
            mask = "".join(source.choice("10") for _ in range(pending))
        return mask if "0" in mask else ""

    def build(self, name: str) -> dict[str, int]:
        """The entries of the outcome of this name.

        Raises:
            IndexError: there is none.
        """
        entries = self._durable.copy()
        for at, change in enumerate(self._pending):
            if not name or name[at] == "1":
                apply_entry(entries, change)
        return entries

    def simpler(self, name: str, level: Level) -> Iterator[str]:
        """Names of outcomes that keep a little more, the ones that keep most first."""
        if name:
            yield ""
        for at in [name.find("0")] if level is Level.PREFIX else range(len(name)):
            if at >= 0 and name[at] == "0" and name.count("0") > 1:
                yield f"{name[:at]}1{name[at + 1 :]}"

    def describe(self, name: str) -> str:
        """In words."""
        if not name:
            return "everything kept"
        lost = [_in_words(change) for change, digit in zip(self._pending, name, strict=True) if digit == "0"]
        return f"lost: {', '.join(lost)}"


def _in_words(change: EntryChange) -> str:
    if change.source is not None:
        return f"{change.source} renamed to {change.name}"
    return f"{change.name} {'removed' if change.node is None else 'added'}"
