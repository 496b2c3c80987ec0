"""Small stores in every condition a store can be found in, and a reader of segments that owes the engine nothing.

Each `Small` knows the state after every commit, so a test can say which commits are left of damaged files.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple
from zlib import crc32

import pystate
from pystate import Store
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.watched_files import WatchedFiles

#: The entries of each family.
State = dict[str, dict[bytes, bytes]]
Image = dict[str, bytes]


class Frame(NamedTuple):
    """A frame of an undamaged segment, read from its bytes as the format page lays them out."""

    start: int
    payload: int
    end: int
    sequence: int
    watermark: int
    closing: bool


def frames_of(segment: bytes) -> list[Frame]:
    """Every frame of an undamaged segment."""
    seed = crc32(segment[32:36])
    frames, at = [], 48
    while at < len(segment):
        salt, length, sequence, watermark, checksum, own = struct.unpack_from("<4sIQQII", segment, at)
        payload, end = at + 32, at + 32 + length
        assert salt == segment[32:36]
        assert crc32(segment[at : at + 28], seed) == own
        assert crc32(segment[payload:end], seed) == checksum
        # A closing frame is an array of no or one item.
        frames.append(Frame(at, payload, end, sequence, watermark, segment[payload] in (0x90, 0x91)))
        at = end
    assert at == len(segment)
    return frames


@dataclass(frozen=True)
class Small:
    """A small store.

    Attributes:
        image: its files.
        states: the state after each commit; ``states[0]`` that of the new store.
        closed: it was closed cleanly.
        snapshot: the newest snapshot.
        segments: the segments that follow it, oldest first.
        stale: files that are there although nothing needs them.
    """

    image: Image
    states: list[State]
    closed: bool
    snapshot: str
    segments: list[str]
    stale: list[str]

    @property
    def newest(self) -> str:
        return self.segments[-1]

    @property
    def last(self) -> int:
        """The sequence of the last commit."""
        return len(self.states) - 1

    @property
    def state(self) -> State:
        return self.states[-1]

    def files(self, image: Image | None = None) -> MemoryFiles:
        """A file system with this store in it, or with `image` in its place."""
        return MemoryFiles(seed=99).restore(DIRECTORY, self.image if image is None else image)

    def with_file(self, name: str, content: bytes) -> Image:
        """The files, one of them with another content."""
        return {**self.image, name: content}


Condition = Literal["closed", "sync", "process", "leftovers", "reopened", "recovered"]
CONDITIONS: tuple[Condition, ...] = ("closed", "sync", "process", "leftovers", "reopened", "recovered")


class _Builder:
    """Writes a store and notes its state after each commit."""

    def __init__(self, condition: Condition) -> None:
        self.memory = MemoryFiles(seed=7)
        self.files = WatchedFiles(self.memory)
        if condition == "leftovers":
            self.files.before = _refuse("unlink")
        self.condition = condition
        self.store = self.open()
        self.states: list[State] = [contents(self.store)]

    def open(self) -> Store:
        self.store = pystate.open(
            DIRECTORY,
            families=None if self.memory.image(DIRECTORY) else ["second"],
            durability="process" if self.condition == "process" else "sync",
            files=self.files,
        )
        return self.store

    def commit(self, change: Callable[[Store], object]) -> None:
        change(self.store)
        self.states.append(contents(self.store))
        assert self.store.sequence == len(self.states) - 1

    def commits_with_a_switch(self) -> None:
        """Commits 1 to 7, a snapshot of the first two, and a new segment after the fourth."""
        self.commit(lambda store: store.family("default").put(b"one", b"1"))
        self.commit(_several)
        self.store.snapshot()
        self.commit(lambda store: store.family("second").put(b"three", b"3"))
        self.commit(lambda store: store.family("default").delete(b"one"))
        self.fail_a_snapshot()
        self.commit(lambda store: store.create_family("third"))
        self.commit(_more)
        self.commit(lambda store: store.family("second").put(b"seven", b"7" * 20))

    def fail_a_snapshot(self) -> None:
        """Leave a segment behind: a snapshot that fails has switched to a new one."""
        before, self.files.before = self.files.before, _refuse("create", suffix=".snapshot.tmp")
        try:
            self.store.snapshot()
        except OSError:
            pass
        self.files.before = before


def _refuse(operation: str, suffix: str = "") -> Callable[[str, str], None]:
    def hook(called: str, path: str) -> None:
        if called == operation and path.endswith(suffix):
            raise failure(errno.EACCES, path)

    return hook


def _several(store: Store) -> None:
    with store.begin() as txn:
        txn.put("default", b"", b"empty key")
        txn.put("default", b"two", b"2")
        txn.put("second", b"two", b"")
        txn.delete("second", b"absent")


def _more(store: Store) -> None:
    with store.begin() as txn:
        txn.put("third", b"six", b"6")
        txn.put("default", b"two", b"22")
        txn.delete("second", b"two")


def contents(store: Store) -> State:
    """Everything in an open store; decodes every family."""
    return {name: dict(store.family(name).scan()) for name in store.families}


def build(condition: Condition) -> Small:
    """A store in this condition:

    - ``closed`` cleanly;
    - ``sync``, ``process``: stopped uncleanly, with this durability;
    - ``leftovers``: as ``sync``, with the snapshot and segment that were superseded and files that mean nothing;
    - ``reopened``: closed cleanly, opened again, one more commit, stopped uncleanly;
    - ``recovered``: stopped uncleanly, opened again, one more commit, stopped uncleanly.
    """
    builder = _Builder(condition)
    builder.commits_with_a_switch()
    if condition in ("closed", "reopened"):
        builder.store.close()
    if condition == "recovered":
        crashed = builder.memory.image(DIRECTORY)
        builder.store.close()
        builder.memory.restore(DIRECTORY, crashed)
    if condition in ("reopened", "recovered"):
        builder.open()
        builder.commit(lambda store: store.family("third").put(b"eight", b"8"))
    image = builder.memory.image(DIRECTORY)
    builder.store.close()
    if condition == "leftovers":
        image |= {"a.tmp": b"unfinished", "b.torn": b"cut off", "00000000000000000009.log.tmp": b"", "notes": b"mine"}
    snapshots = sorted(name for name in image if name.endswith(".snapshot"))
    segments = sorted(name for name in image if name.endswith((".log", ".closed")))
    needed = [name for name in segments if int(name[:20]) > int(snapshots[-1][:20])]
    return Small(
        image=image,
        states=builder.states,
        closed=condition == "closed",
        snapshot=snapshots[-1],
        segments=needed,
        stale=sorted(image.keys() - {snapshots[-1], *needed}),
    )


SMALL = {condition: build(condition) for condition in CONDITIONS}
