"""`salvage`: copying what is provably intact out of a damaged store, into a new one.

Promise: the damaged store is only read. Every entry that is copied stood under a right checksum, and the new store is
one that opens and verifies. It is *not* promised to be a state that ever existed: a lost block or frame takes its
entries with it, and what came after is still copied, so that as much as possible is saved. The report says what was
lost, and where.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike

import msgspec

from pystate.engine import opening
from pystate.engine.files import Files, read_whole
from pystate.engine.log_format import (
    CATALOGUE,
    FRAME_HEADER_SIZE,
    SegmentHeader,
    decode_operations,
    operations_by_family,
    parse_segment_header,
    unpack_family_id,
)
from pystate.engine.log_reader import iter_frames
from pystate.engine.names import FileName
from pystate.engine.os_files import OsFiles
from pystate.engine.places import absolute_path, find_store
from pystate.engine.recovery import Inventory, own_segments, survey
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_reader import SnapshotReader
from pystate.engine.state import check_catalogue
from pystate.engine.store import DEFAULT_FAMILY
from pystate.engine.verify import Problem
from pystate.errors import CorruptionError, NotAStoreError

__all__ = ["SalvageReport", "salvage"]

_COPIED_AT_ONCE = 1_000


class SalvageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `salvage` returns.

    Attributes:
        source, destination: the two directories.
        sequence: of the newest commit of which something was copied.
        families: the number of entries copied, by name.
        entries: their sum.
        frames_applied: commits taken from the log.
        problems: what could not be read, and so is missing.
    """

    source: str
    destination: str
    sequence: int
    families: dict[str, int]
    entries: int
    frames_applied: int
    problems: tuple[Problem, ...]


class _Rescue:
    """What has been found so far."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.values: dict[int, dict[bytes, bytes]] = {}
        self.sequence = 0
        self.frames = 0
        self.problems: list[Problem] = []
        self.log_id = b""
        self.snapshot: SnapshotHeader | None = None

    def family(self, family_id: int) -> dict[bytes, bytes]:
        """The entries of a family; one whose creation was lost gets a name of its own."""
        if family_id not in self.values:
            self.names[family_id] = self._free_name(f"salvaged-{family_id}")
            self.values[family_id] = {}
        return self.values[family_id]

    def _free_name(self, name: str) -> str:
        while name in self.names.values():
            name += "-"
        return name

    def create(self, family_id: int, name: str) -> None:
        for other in [other for other, taken in self.names.items() if taken == name and other != family_id]:
            self.names[other] = self._free_name(f"salvaged-{other}")  # the commit that dropped it is lost
        self.values.setdefault(family_id, {})
        self.names[family_id] = name

    def drop(self, name: str) -> None:
        for family_id in [family_id for family_id, other in self.names.items() if other == name]:
            del self.names[family_id], self.values[family_id]

    def note(self, error: CorruptionError) -> None:
        text = f"expected {error.expected}, found {error.found}"
        self.problems.append(Problem(path=error.path, offset=error.offset, text=text))


def salvage(
    path: str | PathLike[str], destination: str | PathLike[str], *, files: Files | None = None
) -> SalvageReport:
    """Copy everything that is provably intact from a damaged store into a new store; the damaged one is only read.

    Arguments:
        path: the damaged store; no writer may have it open.
        destination: a directory that does not exist yet, or is empty.

    Raises:
        StoreNotFoundError: `path` is no store. NotAStoreError: `destination` is not empty.
        UnsupportedFormatError: a newer format. OSError: reading or writing failed.

    Cost: reading everything, in memory as large as the store, and writing it once.
    """
    files = OsFiles() if files is None else files
    source = find_store(files, absolute_path(files, path))
    target = absolute_path(files, destination)
    if files.kind(target) is not None and (files.kind(target) != "directory" or files.list_directory(target)):
        raise NotAStoreError(target, "salvage writes into a new directory, and this one is not empty")
    rescue = _Rescue()
    inventory = survey(files, source)
    base = _read_snapshot(files, source, inventory, rescue)
    segments = inventory.segments
    if rescue.snapshot is not None:
        segments, _ = own_segments(files, source, inventory, rescue.snapshot)
    for name in segments:
        _read_segment(files, source, name, base, rescue)
    _write(files, target, rescue)
    families = {name: len(rescue.values[family_id]) for family_id, name in rescue.names.items()}
    return SalvageReport(
        source=source,
        destination=target,
        sequence=rescue.sequence,
        families=families,
        entries=sum(families.values()),
        frames_applied=rescue.frames,
        problems=tuple(rescue.problems),
    )


def _read_snapshot(files: Files, directory: str, inventory: Inventory, rescue: _Rescue) -> int:
    """Take the intact blocks of the newest readable snapshot; return its sequence."""
    for name in reversed(inventory.snapshots):
        try:
            reader = SnapshotReader(files, files.join(directory, name.name))
        except CorruptionError as error:
            rescue.note(error)
            continue
        try:
            rescue.snapshot, rescue.log_id = reader.header, reader.header.log
            rescue.sequence = reader.header.sequence
            for family_name, family_id in reader.header.families.items():
                rescue.create(family_id, family_name)
                for keys, values in reader.intact_blocks(family_id, rescue.note):
                    rescue.values[family_id].update(zip(keys, values, strict=True))
            return reader.header.sequence
        finally:
            reader.close()
    return 0


def _read_segment(files: Files, directory: str, name: FileName, base: int, rescue: _Rescue) -> None:
    """Apply every intact commit of a segment that the snapshot does not contain."""
    path = files.join(directory, name.name)
    data = read_whole(files, path)
    try:
        header = parse_segment_header(path, data)
    except CorruptionError as error:
        rescue.note(error)
        return
    if rescue.log_id and header.log_id != rescue.log_id:
        text = f"a segment of another store, or of a log that was replaced ({header.log_id.hex()}); left out"
        rescue.problems.append(Problem(path=path, offset=0, text=text))
        return
    rescue.log_id = header.log_id
    for payload, offset, sequence in _intact(path, name.name, data, header, rescue):
        if sequence > base:
            try:
                _apply(payload, rescue)
            except ValueError as error:
                rescue.problems.append(Problem(path=path, offset=offset, text=str(error)))
                continue
            rescue.frames += 1
            rescue.sequence = max(rescue.sequence, sequence)


def _intact(
    path: str, name: str, data: bytes, header: SegmentHeader, rescue: _Rescue
) -> Iterator[tuple[bytes, int, int]]:
    for frame in iter_frames(name, data, header):
        if not frame.ok:
            rescue.problems.append(Problem(path=path, offset=frame.offset, text=frame.problem or "unreadable"))
        elif frame.kind == "commit":
            start = frame.offset + FRAME_HEADER_SIZE
            yield data[start : frame.offset + frame.length], frame.offset, frame.sequence


def _apply(payload: bytes, rescue: _Rescue) -> None:
    for family_id, writes in operations_by_family(decode_operations(payload)):
        if family_id == CATALOGUE:
            check_catalogue(writes)
            for key, value in writes.items():
                if value is None:
                    rescue.drop(key.decode())
                else:
                    rescue.create(unpack_family_id(value), key.decode())
            continue
        values = rescue.family(family_id)
        for key, value in writes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value


def _write(files: Files, target: str, rescue: _Rescue) -> None:
    names = [name for name in rescue.names.values() if name != DEFAULT_FAMILY]
    metadata = rescue.snapshot.metadata if rescue.snapshot is not None else None
    with opening.open(target, families=names, metadata=metadata, durability="process", files=files) as store:
        for family_id, name in rescue.names.items():
            entries = list(rescue.values[family_id].items())
            for start in range(0, len(entries), _COPIED_AT_ONCE):
                store.family(name).update(entries[start : start + _COPIED_AT_ONCE])
        store.snapshot()
