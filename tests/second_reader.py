"""A second reader of pystate stores, written from the page docs/reference/file-format.md alone.

It is there to show that the page is complete and true. So it shares no line with the engine, not even the decoder of
MessagePack, and follows the page section by section. It reads a store at rest, whole, and never writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

__all__ = ["Damaged", "NoStore", "Store", "Unsupported", "read_store"]

Numbered = list[tuple[int, Path]]


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
    """What a store holds, by name of family and in key order, and how its log ends."""

    families: dict[str, dict[bytes, bytes]]
    sequence: int
    closed: bool
    torn_bytes: int


def read_store(directory: Path) -> Store:
    """Read a store by the steps of "Reading a store"."""
    snapshots, segments = _list(directory)
    if not snapshots:
        raise _no_snapshot(directory, segments)
    snapshot, passed_over = _choose_snapshot(snapshots)
    segments = _that_count(snapshot, segments)
    for (number, path), (other, _) in zip(segments, segments[1:], strict=False):
        if number == other:
            raise Damaged(path, 0, "a second segment of this number")
    begin = max((at for at, (number, _) in enumerate(segments) if number <= snapshot.sequence + 1), default=None)
    if begin is None:
        raise Damaged(directory, 0, "the log behind the snapshot is missing")
    for number, path in segments[:begin]:
        _Segment(number, path).require_place(snapshot.log_id, 0)
    state, generation = _State(snapshot), 0
    for at, (number, path) in enumerate(segments[begin:], begin):
        segment = _Segment(number, path)
        segment.require_place(snapshot.log_id, generation)
        generation = segment.generation
        segment.read(state)
        follower = segments[at + 1][0] if at + 1 < len(segments) else None
        action = segment.decide(follower, max(snapshot.sequence, passed_over))
        if action == "corrupt":
            raise Damaged(path, segment.end, f"the log ends too early, after commit {segment.last}")
    torn_bytes = len(segment.data) - segment.end if action == "torn" else 0
    return Store(state.families(), segment.last, action == "clean", torn_bytes)


def _list(directory: Path) -> tuple[Numbered, Numbered]:
    """The snapshots and the segments, in the order of their numbers."""
    snapshots: Numbered = []
    segments: Numbered = []
    for path in directory.iterdir() if directory.is_dir() else ():
        digits, _, suffix = path.name.partition(".")
        if len(digits) == 20 and digits.isascii() and digits.isdecimal():
            if suffix in ("snapshot", "log", "closed") and path.is_file():
                (snapshots if suffix == "snapshot" else segments).append((int(digits), path))
    return sorted(snapshots), sorted(segments)


def _no_snapshot(directory: Path, segments: Numbered) -> Exception:
    if not segments:
        return NoStore(directory)
    number, path = segments[0]
    if len(segments) == 1 and number == 1 and len(_Segment(number, path).data) == 48:
        return NoStore(directory)
    if len(segments) == 1 and number > 1 and (directory / f"{number - 1:020}.snapshot.tmp").exists():
        if _Segment(number, path).is_prepared():
            return NoStore(directory)
    return Damaged(directory, 0, "no snapshot")


def _that_count(snapshot: _Snapshot, segments: Numbered) -> Numbered:
    """The segments without those that were replaced, or prepared and never used."""
    return [
        (number, path)
        for number, path in segments
        if path.name not in snapshot.replaces and not (len(segments) > 1 and _is_foreign(snapshot, number, path))
    ]


def _is_foreign(snapshot: _Snapshot, number: int, path: Path) -> bool:
    """Whether a segment is prepared, and for another log. What is wrong with it otherwise, step 4 will find."""
    try:
        segment = _Segment(number, path)
    except (Damaged, Unsupported):
        return False
    return segment.is_prepared() and segment.log_id != snapshot.log_id


def _choose_snapshot(snapshots: Numbered) -> tuple[_Snapshot, int]:
    """The newest intact snapshot, and the highest number of the damaged ones above it, or 0."""
    damages = []
    for at, (number, path) in reversed(list(enumerate(snapshots))):
        try:
            snapshot = _Snapshot(number, path)
            if at > 0:
                for family in snapshot.blocks:
                    snapshot.family(family)
        except Damaged as damage:
            damages.append(damage)
        else:
            return snapshot, snapshots[-1][0] if damages else 0
    raise damages[0]


def _number(data: bytes, offset: int, size: int = 4) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


class _Part:
    """A part of a file, for reading the MessagePack values in it one after another."""

    def __init__(self, path: Path, data: bytes, offset: int = 0) -> None:
        self.path, self.data, self.offset, self.at = path, data, offset, 0

    def require(self, condition: bool, reason: str) -> None:
        if not condition:
            raise Damaged(self.path, self.offset + self.at, reason)

    def _take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        self.require(len(part) == size, "a value ends too early")
        self.at += size
        return part

    def _head(self, sized: dict[int, int], short: range = range(0)) -> int:
        """The number at the head of a value: in its first byte, or in as many bytes behind that as `sized` says."""
        first = self._take(1)[0]
        if first in short:
            return first - short.start
        self.require(first in sized, f"a value of another type: {first:02x}")
        return int.from_bytes(self._take(sized[first]), "big")

    def integer(self) -> int:
        begin = self.at
        value = self._head({first: 1 << (first & 3) for first in range(0xCC, 0xD4)}, range(0x80))
        signed = self.data[begin] >= 0xD0
        self.require(not (signed and self.data[begin + 1] & 0x80), "a negative integer")
        return value

    def binary(self) -> bytes:
        return self._take(self._head({0xC4: 1, 0xC5: 2, 0xC6: 4}))

    def binary_or_nil(self) -> bytes | None:
        if self.data[self.at : self.at + 1] != b"\xc0":
            return self.binary()
        self.at += 1
        return None

    def text(self) -> str:
        data = self._take(self._head({0xD9: 1, 0xDA: 2, 0xDB: 4}, range(0xA0, 0xC0)))
        return self.utf8(data)

    def utf8(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Damaged(self.path, self.offset + self.at, "text that is not UTF-8") from None

    def array(self) -> int:
        return self._head({0xDC: 2, 0xDD: 4}, range(0x90, 0xA0))

    def map(self) -> int:
        return self._head({0xDE: 2, 0xDF: 4}, range(0x80, 0x90))

    def end(self) -> None:
        self.require(self.at == len(self.data), "bytes are left over")


class _Segment:
    """One segment, its header checked by itself.

    Attributes:
        last: the sequence of the last intact commit.
        end: the offset behind the last intact frame.
        ending: the fact of that name on the page.
    """

    def __init__(self, number: int, path: Path) -> None:
        self.path, self.data = path, path.read_bytes()
        data = self.data[:48]
        if data[:8] != b"pystlog\n" or len(data) < 48 or _number(data, 44) != crc32(data[:44]):
            raise Damaged(path, 0, "not the header of a segment")
        if _number(data, 8) != 1:
            raise Unsupported(path)
        if _number(data, 36, 8) != number:
            raise Damaged(path, 36, "the first sequence is not that of the name")
        self.generation, self.log_id, self.salt = _number(data, 12), data[16:32], data[32:36]
        self.seed = crc32(self.salt)
        self.last, self.end, self.ending = number - 1, 48, "end"

    def is_prepared(self) -> bool:
        """Whether it was made beside a snapshot that replaces everything, and is as it was made."""
        header, last = self._frame_header(48), _number(self.data, 36, 8) - 1
        if header is None or len(self.data) != 81 or self.path.suffix != ".closed":
            return False
        payload_is_right = self.data[80:] == b"\x90" and _number(header, 24) == crc32(b"\x90", self.seed)
        numbers = _number(header, 4), _number(header, 8, 8), _number(header, 16, 8)
        return payload_is_right and numbers == (1, last, last)

    def require_place(self, log_id: bytes, generation: int) -> None:
        """Check the header against the snapshot and the segment before."""
        if self.log_id != log_id:
            raise Damaged(self.path, 16, "a segment of another log")
        if self.generation < generation:
            raise Damaged(self.path, 12, "the generation is below that of the segment before")

    def _frame_header(self, offset: int) -> bytes | None:
        """The frame header at an offset, if it is intact by itself."""
        data = self.data[offset : offset + 32]
        right = len(data) == 32 and data[:4] == self.salt and _number(data, 28) == crc32(data[:28], self.seed)
        return data if right else None

    def read(self, state: _State) -> None:
        """Apply the commits to the state, up to the first frame that is not intact."""
        while header := self._frame_header(self.end):
            begin = self.end + 32
            payload = _Part(self.path, self.data[begin : begin + _number(header, 4)], begin)
            if len(payload.data) != _number(header, 4) or _number(header, 24) != crc32(payload.data, self.seed):
                break
            self._frame(_number(header, 8, 8), _number(header, 16, 8), payload, state)
            self.end = begin + len(payload.data)
        if self.end < len(self.data):
            self.ending = "damage"

    def _frame(self, sequence: int, watermark: int, payload: _Part, state: _State) -> None:
        elements = payload.array()
        if elements < 2:
            payload.require(sequence == self.last and watermark <= sequence, "a closing frame out of order")
            self.ending = "switch" if elements and payload.integer() >= 0 else "close"
        else:
            payload.require(sequence == self.last + 1 and watermark < sequence, "a commit out of order")
            payload.require(elements == 3 or elements % 2 == 0, f"a payload of {elements} elements")
            self.ending, self.last = "end", sequence
            for _ in range(elements // 2):
                family, count = payload.integer(), 1 if elements == 3 else payload.map()
                operations = {payload.binary(): payload.binary_or_nil() for _ in range(count)}
                if sequence > state.snapshot.sequence:
                    state.apply(family, operations, payload)
        payload.end()

    def _proofs(self) -> Iterator[int]:
        """The proofs of durability behind the last intact frame."""
        at = self.data.find(self.salt, self.end)
        while at >= 0:
            if header := self._frame_header(at):
                yield _number(header, 16, 8)
                if at > self.end and _number(header, 8, 8) == self.last + 1:
                    yield self.last + 1
            at = self.data.find(self.salt, at + 1)

    def decide(self, follower: int | None, proof: int) -> str:
        """The action of the first row of the table that fits. An intact frame itself proves nothing above itself."""
        if self.path.suffix == ".closed" and self.ending != "close":
            return "corrupt"  # A, B, C
        if follower is not None:
            return "next" if follower == self.last + 1 else "corrupt"  # D, E
        if self.ending == "switch" or max([proof, *self._proofs()]) > self.last:
            return "corrupt"  # F, G
        return {"close": "clean", "end": "unclosed", "damage": "torn"}[self.ending]  # H, I, J


class _Snapshot:
    """One snapshot, checked but for its blocks."""

    def __init__(self, number: int, path: Path) -> None:
        self.path, self.data = path, path.read_bytes()
        data, size = self.data, len(self.data)
        if data[:8] != b"pystsnp\n" or size < 24 or _number(data, 20) != crc32(data[:20]):
            raise Damaged(path, 0, "not the prelude of a snapshot")
        if _number(data, 8) != 1:
            raise Unsupported(path)
        blocks_begin = 24 + _number(data, 12)
        trailer = _Part(path, data[-32:], size - 32)
        trailer.require(blocks_begin + 32 <= size and trailer.data[24:] == b"pystend\n", "the file was cut")
        trailer.require(_number(trailer.data, 20) == crc32(trailer.data[:20]), "the trailer is damaged")
        begin, length = _number(trailer.data, 0, 8), _number(trailer.data, 8)
        trailer.require(blocks_begin <= begin and begin + length == size - 32, "the index is elsewhere")
        header, index = _Part(path, data[24:blocks_begin], 24), _Part(path, data[begin : size - 32], begin)
        header.require(_number(data, 16) == crc32(header.data), "the header is damaged")
        index.require(_number(trailer.data, 12) == crc32(index.data), "the index is damaged")
        digest = crc32(index.data, crc32(data[:blocks_begin]))
        trailer.require(_number(trailer.data, 16) == digest, "the parts do not belong together")
        self._read_header(header)
        header.require(self.sequence == number, "the sequence is not that of the name")
        self.blocks: dict[int, list[tuple[int, int, int, int]]] = {}
        self._read_index(index, blocks_begin)

    def _read_header(self, header: _Part) -> None:
        seen = set()
        self.log_id, self.replaces = b"", set[str]()
        for _ in range(header.map()):
            seen.add(key := header.text())
            match key:
                case "store_id":
                    self.store_id = header.binary()
                    header.require(len(self.store_id) == 16, "not a store id")
                case "sequence":
                    self.sequence = header.integer()
                case "generation":
                    header.integer()
                case "next_family_id":
                    self.next_family_id = header.integer()
                case "families":
                    self.names = {header.text(): header.integer() for _ in range(header.map())}
                case "metadata":
                    {header.text(): header.text() for _ in range(header.map())}
                case "log_id":
                    self.log_id = header.binary()
                    header.require(len(self.log_id) == 16, "not a log id")
                case "replaces":
                    self.replaces = {header.text() for _ in range(header.array())}
                case _:
                    header.require(False, f"the unknown key {key}")
        header.end()
        header.require(len(seen - {"metadata", "log_id", "replaces"}) == 5, "a key is missing")
        self.log_id = self.log_id or self.store_id
        ids = self.names.values()
        header.require(len(set(ids)) == len(ids), "two families with one id")
        header.require(all(0 < family < self.next_family_id for family in ids), "a family id out of range")
        header.require(self.next_family_id <= 2**32, "the next family id is out of range")

    def _read_index(self, index: _Part, at: int) -> None:
        """Read the index; the first block begins at `at`."""
        for _ in range(index.array()):
            index.require(index.array() == 3, "not an item of the index")
            family, entries, blocks = index.integer(), index.integer(), []
            for _ in range(index.array()):
                index.require(index.array() == 4, "not a block")
                blocks.append((index.integer(), index.integer(), index.integer(), index.integer()))
                index.require(blocks[-1][0] == at and blocks[-1][3] > 0, "a block is in a wrong place, or empty")
                at += blocks[-1][1]
            index.require(family not in self.blocks, "a family twice")
            index.require(sum(block[3] for block in blocks) == entries, "a wrong number of entries")
            self.blocks[family] = blocks
        index.end()
        index.require(at == index.offset, "the last block does not end where the index begins")
        index.require(self.blocks.keys() == set(self.names.values()), "other families than in the header")

    def family(self, family: int) -> dict[bytes, bytes]:
        """The entries of a family, from its blocks."""
        entries: dict[bytes, bytes] = {}
        for offset, length, checksum, count in self.blocks[family]:
            block = _Part(self.path, self.data[offset : offset + length], offset)
            block.require(crc32(block.data) == checksum, "a block is damaged")
            block.require(block.array() == 2, "not a block")
            keys = [block.binary() for _ in range(block.array())]
            values = [block.binary() for _ in range(block.array())]
            block.end()
            block.require(len(keys) == len(values) == count, "a wrong number of entries")
            last = next(reversed(entries), None)
            block.require(keys == sorted(set(keys)) and (last is None or last < keys[0]), "keys do not ascend")
            entries.update(zip(keys, values, strict=True))
        return entries


class _State:
    """The state of a snapshot with commits on top, which are kept apart from it by family id."""

    def __init__(self, snapshot: _Snapshot) -> None:
        self.snapshot, self.names, self.next_family_id = snapshot, dict(snapshot.names), snapshot.next_family_id
        self.changes: dict[int, dict[bytes, bytes | None]] = {family: {} for family in snapshot.blocks}

    def apply(self, family: int, operations: dict[bytes, bytes | None], payload: _Part) -> None:
        if family:
            payload.require(family in self.changes, f"a commit on family {family}, which does not exist")
            self.changes[family].update(operations)
            return
        for key, value in operations.items():
            name = payload.utf8(key)
            control = any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in name)
            payload.require(1 <= len(key) <= 255 and not control, "not the name of a family")
            if value is None:
                self.changes.pop(self.names.pop(name, 0), None)
            else:
                created = _number(value, 0)
                payload.require(len(value) == 4 and created >= self.next_family_id, "not a new family id")
                payload.require(name not in self.names, "the name of a family is in use")
                self.names[name], self.changes[created], self.next_family_id = created, {}, created + 1

    def families(self) -> dict[str, dict[bytes, bytes]]:
        found = {}
        for name, family in self.names.items():
            before = self.snapshot.family(family) if family in self.snapshot.blocks else {}
            after: dict[bytes, bytes | None] = {**before, **self.changes[family]}
            found[name] = {key: value for key, value in sorted(after.items()) if value is not None}
        return found
