"""Writing a snapshot: all families as of one pinned state, while commits and readers go on.

Promise: the file gets its name only when it is complete and synced; until then nothing else is touched, and when a step
fails or the store closes meanwhile, the temporary file is removed. The lock of the state is held for one block at a
time, and the disk is given the data in portions, so that neither readers nor the syncs of commits wait long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from zlib import crc32

from pystate.engine.family_state import FamilyState
from pystate.engine.files import TEMPORARY_SUFFIX, File, Files, discard, publish_written, write_all
from pystate.engine.names import snapshot_name
from pystate.engine.snapshot_format import (
    BlockEntry,
    FamilyIndex,
    SnapshotHeader,
    encode_block,
    encode_head,
    encode_tail,
)
from pystate.engine.state import Pin, State

__all__ = ["SnapshotCancelledError", "encode_empty", "write_snapshot"]

_BLOCK_ENTRIES = 2_048
_BLOCK_BYTES_MAX = 1024 * 1024
_SYNC_BYTES = 2 * 1024 * 1024
"""So much is written before it is synced; one large sync at the end would hold up the syncs of commits."""


class SnapshotCancelledError(Exception):
    """The store is closing; the snapshot was given up. Never leaves the engine."""


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
    name = snapshot_name(header.sequence)
    temporary = files.join(directory, name) + TEMPORARY_SUFFIX
    file = files.create(temporary)
    try:
        size = _write(file, header, state, families, pin, cancelled)
        publish_written(files, directory, name, file)
    except BaseException:
        discard(files, temporary, file)
        raise
    return size


def encode_empty(header: SnapshotHeader) -> bytes:
    """The whole content of a snapshot whose families are all empty."""
    head = encode_head(header)
    return head + encode_tail(
        head, len(head), [FamilyIndex(family_id, 0, []) for family_id in header.families.values()]
    )


def _write(
    file: File,
    header: SnapshotHeader,
    state: State,
    families: Mapping[str, FamilyState],
    pin: Pin,
    cancelled: Callable[[], bool],
) -> int:
    head = encode_head(header)
    write_all(file, head)
    position = synced = len(head)
    index = []
    for name in header.families:
        family, blocks = families[name], []
        for keys, values in _blocks(state, family, pin):
            if cancelled():
                raise SnapshotCancelledError
            block = encode_block(keys, values)
            write_all(file, block)
            blocks.append(BlockEntry(position, len(block), crc32(block), len(keys)))
            position += len(block)
            if position - synced > _SYNC_BYTES:
                file.sync()
                synced = position
        index.append(FamilyIndex(family.id, sum(block.entries for block in blocks), blocks))
    tail = encode_tail(head, position, index)
    write_all(file, tail)
    return position + len(tail)


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
