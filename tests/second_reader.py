"""A second reader of pystate stores, written from the page docs/reference/file-format.md alone.

It is there to show that the page is complete and true: it shares no line with the engine, not even the decoder of
MessagePack, and follows the page section by section. It reads a store at rest, and never writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

__all__ = ["Damaged", "NoStore", "Store", "Unsupported", "read_store"]


class NoStore(Exception):
    """There is no store, or its creation was interrupted."""


class Unsupported(Exception):
    """A file has a format version that is not on the page."""


class Damaged(Exception):
    """The store is damaged: the file (or directory), the offset in it, the reason."""

    def __init__(self, file: Path, offset: int, reason: str) -> None:
        super().__init__(file, offset, reason)
        self.file, self.offset, self.reason = file, offset, reason


@dataclass(frozen=True)
class Store:
    """What a store holds, and what its end looks like.

    Attributes:
        families: the entries of each family in key order, by name.
        sequence: that of the last commit.
        closed: whether the store was closed cleanly.
        torn_bytes: how many bytes follow the last intact frame.
    """

    families: dict[str, dict[bytes, bytes]]
    sequence: int
    closed: bool
    torn_bytes: int


def read_store(directory: Path) -> Store:
    """Read all of a store; see "Reading a store" for the steps."""
    snapshots, segments = _list(directory)
    if not snapshots:
        if not segments:
            raise NoStore(directory)
        if [(1, 48)] == [(number, path.stat().st_size) for number, path in segments]:
            _Segment(1, segments[0][1])
            raise NoStore(directory)
        raise Damaged(directory, 0, "no snapshot")
    for (number, path), (other, _) in zip(segments, segments[1:], strict=False):
        if number == other:
            raise Damaged(path, 0, "two segments with the same number")
    snapshot, passed_over = _choose_snapshot(snapshots)
    chain = _choose_segments(segments, snapshot, directory)
    state = _State(snapshot)
    last, closed, torn = 0, False, 0
    for at, segment in enumerate(chain):
        last = segment.read(state)
        follower = chain[at + 1].first if at + 1 < len(chain) else None
        action = segment.decide(last, follower, max(snapshot.sequence, passed_over))
        if action == "corrupt":
            raise Damaged(segment.path, segment.end, f"the log ends too early, after commit {last}")
        closed, torn = action == "clean", len(segment.data) - segment.end if action == "torn" else 0
    return Store(state.families(), last, closed, torn)


# The directory


def _list(directory: Path) -> tuple[list[tuple[int, Path]], list[tuple[int, Path]]]:
    """The snapshots and the segments, each with its number, in ascending order."""
    snapshots, segments = [], []
    if directory.is_dir():
        for path in directory.iterdir():
            digits, _, suffix = path.name.partition(".")
            if len(digits) == 20 and digits.isascii() and digits.isdecimal():
                if suffix == "snapshot":
                    snapshots.append((int(digits), path))
                elif suffix in ("log", "closed"):
                    segments.append((int(digits), path))
    return sorted(snapshots), sorted(segments)


def _choose_snapshot(snapshots: list[tuple[int, Path]]) -> tuple[_Snapshot, int]:
    """The newest intact snapshot, and the highest number of the damaged ones above it, or 0."""
    first_damage: Damaged | None = None
    for at, (number, path) in reversed(list(enumerate(snapshots))):
        try:
            snapshot = _Snapshot(number, path)
            if at > 0:
                for family in snapshot.blocks:
                    snapshot.family(family)
        except Damaged as damage:
            first_damage = first_damage or damage
        else:
            return snapshot, snapshots[-1][0] if first_damage else 0
    assert first_damage
    raise first_damage


def _choose_segments(segments: list[tuple[int, Path]], snapshot: _Snapshot, directory: Path) -> list[_Segment]:
    """The segments needed on top of a snapshot, all headers checked."""
    begin = max((at for at, (number, _) in enumerate(segments) if number <= snapshot.sequence + 1), default=None)
    if begin is None:
        raise Damaged(directory, 0, "the log behind the snapshot is missing")
    checked = [_Segment(number, path) for number, path in segments]
    for segment in checked:
        if segment.store_id != snapshot.store_id:
            raise Damaged(segment.path, 16, "a segment of another store")
    for before, segment in zip(checked[begin:], checked[begin + 1 :], strict=False):
        if segment.generation < before.generation:
            raise Damaged(segment.path, 12, "the generation is below that of the segment before")
    return checked[begin:]


# Numbers, and MessagePack


def _number(data: bytes, offset: int, size: int = 4) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


class _Wrong(Exception):
    """What stands there is not what the page allows."""


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise _Wrong(reason)


class _Values:
    """The MessagePack values in some bytes, one after another."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def _take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        _require(len(part) == size, "a value ends too early")
        self.at += size
        return part

    def _head(self, sized: dict[int, int], short: range = range(0)) -> int:
        """The number in the first bytes of a value: in the first one itself, or in so many behind it."""
        first = self._take(1)[0]
        if first in short:
            return first - short.start
        _require(first in sized, f"a value of another type: {first:02x}")
        return int.from_bytes(self._take(sized[first]), "big")

    def integer(self) -> int:
        return self._head({0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}, range(0x80))

    def binary(self) -> bytes:
        return self._take(self._head({0xC4: 1, 0xC5: 2, 0xC6: 4}))

    def binary_or_nil(self) -> bytes | None:
        if self.data[self.at : self.at + 1] != b"\xc0":
            return self.binary()
        self.at += 1
        return None

    def text(self) -> str:
        try:
            return self._take(self._head({0xD9: 1, 0xDA: 2}, range(0xA0, 0xC0))).decode()
        except UnicodeDecodeError:
            raise _Wrong("text that is not UTF-8") from None

    def array(self) -> int:
        return self._head({0xDC: 2, 0xDD: 4}, range(0x90, 0xA0))

    def map(self) -> int:
        return self._head({0xDE: 2, 0xDF: 4}, range(0x80, 0x90))

    def end(self) -> None:
        _require(self.at == len(self.data), "bytes are left over")


def _family_name(name: str) -> str:
    control = any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in name)
    _require(1 <= len(name.encode()) <= 255 and not control, "not the name of a family")
    return name


# Segments


class _Operation(NamedTuple):
    family: int
    key: bytes
    value: bytes | None


def _payload(data: bytes) -> list[_Operation] | str:
    """The operations of a commit, or which closing frame it is: `close` or `switch`."""
    values = _Values(data)
    elements = values.array()
    operations = []
    if elements == 1:
        values.integer()
    elif elements == 3:
        operations.append(_Operation(values.integer(), values.binary(), values.binary_or_nil()))
    else:
        _require(elements % 2 == 0, f"a payload of {elements} elements")
        for _ in range(elements // 2):
            family = values.integer()
            pairs = {values.binary(): values.binary_or_nil() for _ in range(values.map())}
            operations += [_Operation(family, key, value) for key, value in pairs.items()]
    values.end()
    return {0: "close", 1: "switch"}.get(elements, operations)


class _Segment:
    """One segment: its header, checked but for the store id, and what `read` finds out about its end."""

    def __init__(self, number: int, path: Path) -> None:
        self.path, self.data = path, path.read_bytes()
        data = self.data[:48]
        if data[:8] != b"pystlog\n" or len(data) < 48 or _number(data, 44) != crc32(data[:44]):
            raise Damaged(path, 0, "not the header of a segment")
        if _number(data, 8) != 1:
            raise Unsupported(path)
        self.generation, self.store_id, self.salt = _number(data, 12), data[16:32], data[32:36]
        self.first = _number(data, 36, 8)
        if self.first != number:
            raise Damaged(path, 36, "the first sequence is not that of the name")
        self.seed = crc32(self.salt)
        self.end, self.ending = 48, "end"  # the offset behind the last intact frame, and the fact of the page

    def _frame_header(self, offset: int) -> bytes | None:
        """The frame header at an offset, if it is intact by itself."""
        data = self.data[offset : offset + 32]
        right = len(data) == 32 and data[:4] == self.salt and _number(data, 28) == crc32(data[:28], self.seed)
        return data if right else None

    def _frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Sequence, watermark and payload of each intact frame; `end` moves behind it afterwards."""
        while header := self._frame_header(self.end):
            begin, size = self.end + 32, _number(header, 4)
            payload = self.data[begin : begin + size]
            if len(payload) != size or _number(header, 24) != crc32(payload, self.seed):
                break
            yield _number(header, 8, 8), _number(header, 16, 8), payload
            self.end = begin + size

    def read(self, state: _State) -> int:
        """Apply the commits to the state, and return the sequence of the last one."""
        last = self.first - 1
        try:
            for sequence, watermark, payload in self._frames():
                content = _payload(payload)
                if isinstance(content, str):
                    _require(sequence == last and watermark <= sequence, "a closing frame out of order")
                    self.ending = content
                else:
                    _require(sequence == last + 1 and watermark < sequence, "a commit out of order")
                    self.ending, last = "end", sequence
                    if sequence > state.snapshot.sequence:
                        for operation in content:
                            state.apply(operation)
        except _Wrong as wrong:
            raise Damaged(self.path, self.end, str(wrong)) from None
        if self.end < len(self.data):
            self.ending = "damage"
        return last

    def _proofs(self, last: int) -> Iterator[int]:
        """The proofs of durability behind the last intact frame."""
        at = self.data.find(self.salt, self.end)
        while at >= 0:
            if header := self._frame_header(at):
                yield _number(header, 16, 8)
                if at > self.end and _number(header, 8, 8) == last + 1:
                    yield last + 1
            at = self.data.find(self.salt, at + 1)

    def decide(self, last: int, follower: int | None, proof: int) -> str:
        """The action of the first row that fits; the watermark of an intact frame proves no more than the frame."""
        if self.path.suffix == ".closed" and self.ending != "close":
            return "corrupt"  # A, B, C
        if follower is not None:
            return "next" if follower == last + 1 else "corrupt"  # D, E
        if self.ending == "switch" or max([proof, *self._proofs(last)]) > last:
            return "corrupt"  # F, G
        return {"close": "clean", "end": "unclosed", "damage": "torn"}[self.ending]  # H, I, J


# Snapshots


class _Block(NamedTuple):
    offset: int
    length: int
    checksum: int
    entries: int


class _Snapshot:
    """One snapshot, checked but for its blocks."""

    def __init__(self, number: int, path: Path) -> None:
        self.path, self.data = path, path.read_bytes()
        data = self.data
        if data[:8] != b"pystsnp\n" or len(data) < 24 or _number(data, 20) != crc32(data[:20]):
            raise Damaged(path, 0, "not the prelude of a snapshot")
        if _number(data, 8) != 1:
            raise Unsupported(path)
        blocks_begin, index_end = 24 + _number(data, 12), len(data) - 32
        trailer = data[max(index_end, 0) :]
        index_begin = _number(trailer, 0, 8)
        head, index = data[:blocks_begin], data[index_begin:index_end]
        self.blocks: dict[int, list[_Block]] = {}
        try:
            _require(index_end >= blocks_begin and trailer[24:] == b"pystend\n", "the file was cut")
            _require(_number(trailer, 20) == crc32(trailer[:20]), "the trailer is damaged")
            _require(blocks_begin <= index_begin <= index_end, "the index begins elsewhere")
            _require(_number(trailer, 8) == len(index), "the length of the index is wrong")
            _require(_number(trailer, 12) == crc32(index), "the index is damaged")
            _require(_number(trailer, 16) == crc32(index, crc32(head)), "the parts do not belong together")
            _require(_number(data, 16) == crc32(head[24:]), "the header is damaged")
            self._read_header(_Values(head[24:]))
            _require(self.sequence == number, "the sequence is not that of the name")
            _require(self._read_index(_Values(index), blocks_begin) == index_begin, "blocks end elsewhere")
            _require(self.blocks.keys() == set(self.names.values()), "the index has other families")
        except _Wrong as wrong:
            raise Damaged(path, 0, str(wrong)) from None

    def _read_header(self, values: _Values) -> None:
        seen = set()
        for _ in range(values.map()):
            key = values.text()
            seen.add(key)
            if key == "store_id":
                self.store_id = values.binary()
            elif key == "sequence":
                self.sequence = values.integer()
            elif key == "generation":
                self.generation = values.integer()
            elif key == "next_family_id":
                self.next_family_id = values.integer()
            elif key == "families":
                self.names = {_family_name(values.text()): values.integer() for _ in range(values.map())}
            else:
                _require(key == "metadata", f"unknown key {key} in the header")
                for _ in range(values.map()):
                    values.text(), values.text()
        values.end()
        _require(len(seen - {"metadata"}) == 5, "a key is missing in the header")
        _require(len(self.store_id) == 16 and self.next_family_id <= 2**32, "a wrong value in the header")
        ids = set(self.names.values())
        _require(len(ids) == len(self.names), "two families with one id")
        _require(all(1 <= family < self.next_family_id for family in ids), "a family id out of range")

    def _read_index(self, values: _Values, at: int) -> int:
        """Check that the blocks follow on each other from `at` on, and return where the last one ends."""
        for _ in range(values.array()):
            _require(values.array() == 3, "not an item of the index")
            family, entries, blocks = values.integer(), values.integer(), []
            for _ in range(values.array()):
                _require(values.array() == 4, "not a block in the index")
                blocks.append(_Block(values.integer(), values.integer(), values.integer(), values.integer()))
                _require(blocks[-1].offset == at and blocks[-1].entries >= 1, "a block is in a wrong place or empty")
                at += blocks[-1].length
            _require(family not in self.blocks, "a family is twice in the index")
            _require(sum(block.entries for block in blocks) == entries, "the number of entries is wrong")
            self.blocks[family] = blocks
        values.end()
        return at

    def family(self, family: int) -> dict[bytes, bytes]:
        """The entries of a family, all checks made."""
        entries: dict[bytes, bytes] = {}
        last: bytes | None = None
        for offset, length, checksum, count in self.blocks[family]:
            data = self.data[offset : offset + length]
            values = _Values(data)
            try:
                _require(crc32(data) == checksum, "a block is damaged")
                _require(values.array() == 2, "not a block")
                keys = [values.binary() for _ in range(values.array())]
                contents = [values.binary() for _ in range(values.array())]
                values.end()
                _require(len(keys) == len(contents) == count, "a block has another number of entries")
                for key in keys:
                    _require(last is None or last < key, "keys do not ascend")
                    last = key
                entries.update(zip(keys, contents, strict=True))
            except _Wrong as wrong:
                raise Damaged(self.path, offset, str(wrong)) from None
        return entries


# The state


class _State:
    """The state of a snapshot with commits on top; a family of the snapshot is decoded when all is known."""

    def __init__(self, snapshot: _Snapshot) -> None:
        self.snapshot = snapshot
        self.names = dict(snapshot.names)
        self.next_family_id = snapshot.next_family_id
        self.changes: dict[int, dict[bytes, bytes | None]] = {family: {} for family in snapshot.blocks}

    def apply(self, operation: _Operation) -> None:
        family, key, value = operation
        if family:
            _require(family in self.changes, f"a commit on family {family}, which does not exist")
            self.changes[family][key] = value
            return
        try:
            name = _family_name(key.decode())
        except UnicodeDecodeError:
            raise _Wrong("the name of a family is not UTF-8") from None
        if value is None:
            self.changes.pop(self.names.pop(name, 0), None)
            return
        created = _number(value, 0)
        _require(len(value) == 4 and created >= self.next_family_id, "not a new family id")
        _require(name not in self.names, "the name of a family is in use")
        self.names[name], self.changes[created], self.next_family_id = created, {}, created + 1

    def families(self) -> dict[str, dict[bytes, bytes]]:
        """The entries of every family, by name."""
        return {name: self._entries(family) for name, family in sorted(self.names.items())}

    def _entries(self, family: int) -> dict[bytes, bytes]:
        found = self.snapshot.family(family) if family in self.snapshot.blocks else {}
        merged: dict[bytes, bytes | None] = found | self.changes[family]
        return {key: value for key, value in sorted(merged.items()) if value is not None}
