"""Writing a snapshot: all families as of one pinned state, while commits and readers go on; or a copy of another one.

Promise: the file gets its name only when it is complete and synced; until then nothing else is touched, and when a step
fails or the store closes meanwhile, the temporary file is removed. The lock of the state is held for one block at a
time, and the disk is given the data in portions, so that neither readers nor the syncs of commits wait long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from pystate.engine.family_state import FamilyState
from pystate.engine.files import File, Files, publish_stream, write_all
from pystate.engine.names import snapshot_name
from pystate.engine.snapshot_format import (
    TRAILER_SIZE,
    BlockEntry,
    FamilyIndex,
    SnapshotHeader,
    decode_trailer,
    encode_block,
    encode_head,
    encode_tail,
)
from pystate.engine.snapshot_reader import SnapshotReader
from pystate.engine.state import Pin, State

__all__ = ["SnapshotCancelledError", "Written", "copy_content", "encode_empty", "write_content", "write_snapshot"]

_BLOCK_ENTRIES = 2_048
_BLOCK_BYTES_MAX = 1024 * 1024
_SYNC_BYTES = 2 * 1024 * 1024
"""So much is written before it is synced; one large sync at the end would hold up the syncs of commits."""

_Block = tuple[bytes, int]
"""An encoded block, and how many entries are in it."""


class SnapshotCancelledError(Exception):
    """The store is closing; the snapshot was given up. Never leaves the engine."""


class Written(NamedTuple):
    """What was written: its size in bytes, and the digest of the whole."""

    size: int
    digest: int


def write_snapshot(
    files: Files,
    directory: str,
    header: SnapshotHeader,
    state: State,
    families: Mapping[str, FamilyState],
    pin: Pin,
    cancelled: Callable[[], bool],
) -> int:
    """Write the snapshot ``header.sequence`` and put it into place; return its size in bytes.

    Arguments:
        state, families, pin: what is written: these families as of this pin. All of them are loaded.
        cancelled: asked before each block.

    Raises:
        SnapshotCancelledError: `cancelled` said so. OSError: a step failed. In both cases nothing is left behind.
    """
    path = files.join(directory, snapshot_name(header.sequence))

    def write(file: File) -> Written:
        return write_content(file, header, state, families, pin, cancelled)

    return publish_stream(files, path, write).size


def write_content(
    file: File,
    header: SnapshotHeader,
    state: State,
    families: Mapping[str, FamilyState],
    pin: Pin,
    cancelled: Callable[[], bool] = lambda: False,
    wrote: Callable[[int], object] = lambda entries: None,
) -> Written:
    """Append a whole snapshot to an empty file. The arguments, and what it raises, are those of `write_snapshot`.

    Arguments:
        wrote: called after each block with the number of entries in it; what it raises ends the writing.
    """

    def encoded(name: str) -> Iterator[_Block]:
        for keys, values in _blocks(state, families[name], pin):
            if cancelled():
                raise SnapshotCancelledError
            yield encode_block(keys, values), len(keys)
            wrote(len(keys))

    return _write(file, header, encoded)


def copy_content(
    file: File, header: SnapshotHeader, source: SnapshotReader, cancelled: Callable[[], bool] = lambda: False
) -> Written:
    """Append to an empty file the families of another snapshot, byte for byte, below a header of its own.

    Arguments:
        header: names the families of `source`, with the same ids.
        cancelled: asked before each block.

    Raises:
        SnapshotCancelledError: `cancelled` said so. CorruptionError: a block of `source` is damaged. OSError: a step
            failed. In each case the file is to be thrown away.
    """

    def copied(name: str) -> Iterator[_Block]:
        for block, data in source.raw_blocks(header.families[name]):
            if cancelled():
                raise SnapshotCancelledError
            yield data, block.entries

    return _write(file, header, copied)


def encode_empty(header: SnapshotHeader) -> bytes:
    """The whole content of a snapshot whose families are all empty."""
    head = encode_head(header)
    return head + encode_tail(
        head, len(head), [FamilyIndex(family_id, 0, []) for family_id in header.families.values()]
    )


def _write(file: File, header: SnapshotHeader, blocks_of: Callable[[str], Iterable[_Block]]) -> Written:
    head = encode_head(header)
    write_all(file, head)
    position = synced = len(head)
    index = []
    for name, family_id in header.families.items():
        blocks = []
        for block, entries in blocks_of(name):
            write_all(file, block)
            blocks.append(BlockEntry(position, len(block), crc32(block), entries))
            position += len(block)
            if position - synced > _SYNC_BYTES:
                file.sync()
                synced = position
        index.append(FamilyIndex(family_id, sum(block.entries for block in blocks), blocks))
    tail = encode_tail(head, position, index)
    write_all(file, tail)
    size = position + len(tail)
    return Written(size, decode_trailer("", tail[-TRAILER_SIZE:], size).digest)


def _blocks(state: State, family: FamilyState, pin: Pin) -> Iterator[tuple[list[bytes], list[bytes]]]:
    for portion in state.sorted_keys(family, pin):
        for start in range(0, len(portion), _BLOCK_ENTRIES):
            keys, values = state.columns(family, list(portion[start : start + _BLOCK_ENTRIES]), pin)
            while keys:
                count = _fitting(keys, values)
                yield keys[:count], values[:count]
                keys, values = keys[count:], values[count:]


def _fitting(keys: list[bytes], values: list[bytes]) -> int:
    """How many leading entries fit into a block; at least one."""
    if sum(map(len, keys)) + sum(map(len, values)) <= _BLOCK_BYTES_MAX:
        return len(keys)
    size = 0
    for count, (key, value) in enumerate(zip(keys, values, strict=True)):
        size += len(key) + len(value)
        if size > _BLOCK_BYTES_MAX and count:
            return count
    return len(keys)
