"""Reading a snapshot: everything but the blocks is checked on opening, each block when its family is first touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from pystate.engine.files import File, Files, read_exactly
from pystate.engine.snapshot_format import (
    PRELUDE_SIZE,
    TRAILER_SIZE,
    BlockEntry,
    FamilyIndex,
    SnapshotHeader,
    check_block,
    decode_block,
    decode_header,
    decode_index,
    decode_prelude,
    decode_trailer,
)
from pystate.errors import ClosedError, CorruptionError

__all__ = ["SnapshotReader"]

_READ_AHEAD = 4 * 1024 * 1024


class SnapshotReader:
    """One snapshot, held open so that its families can be decoded later, even when the file has been superseded.

    Attributes:
        path: the file.
        header: as stored.
        size: of the file, in bytes.
        digest: of the whole, as it stands in the trailer.

    Raises (the constructor):
        CorruptionError: anything outside the blocks is damaged. UnsupportedFormatError: a newer format.
        OSError: it cannot be read; FileNotFoundError when the writer has just superseded it.
    """

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._file: File | None = None
        self._file = files.open_read(path)
        try:
            self._open(self._file)
        except BaseException:
            self.close()
            raise

    def _open(self, file: File) -> None:
        self.size = size = file.size()
        prelude = read_exactly(file, 0, min(size, PRELUDE_SIZE))
        length, checksum = decode_prelude(self.path, prelude)
        if PRELUDE_SIZE + length + TRAILER_SIZE > size:
            expected = f"a header of {length} bytes and a trailer"
            raise CorruptionError(self.path, offset=PRELUDE_SIZE, expected=expected, found=f"a file of {size} bytes")
        header = read_exactly(file, PRELUDE_SIZE, length)
        self.header: SnapshotHeader = decode_header(self.path, header, checksum)
        trailer = decode_trailer(self.path, read_exactly(file, size - TRAILER_SIZE, TRAILER_SIZE), size)
        self.digest = trailer.digest
        index = read_exactly(file, trailer.index_offset, trailer.index_length)
        families = decode_index(self.path, prelude + header, index, trailer, self.header)
        self._index: dict[int, FamilyIndex] = {family.family_id: family for family in families}
        self._unread = {family.family_id for family in families if family.blocks}
        self._close_when_read()

    def entries(self, family_id: int) -> int:
        """How many entries the family has in this snapshot."""
        return self._index[family_id].entries

    def load(self, family_id: int) -> dict[bytes, bytes]:
        """Decode a family; when it was the last one, the file is closed.

        Raises:
            CorruptionError: a block is damaged, or a key stands in it twice.
        """
        values: dict[bytes, bytes] = {}
        for keys, block_values in self.blocks(family_id):
            values.update(zip(keys, block_values, strict=True))
        if len(values) != self._index[family_id].entries:
            expected = f"{self._index[family_id].entries} different keys in family id {family_id}"
            raise CorruptionError(self.path, expected=expected, found=f"{len(values)}")
        self.forget(family_id)
        return values

    def forget(self, family_id: int) -> None:
        """The family will not be asked for any more."""
        self._unread.discard(family_id)
        self._close_when_read()

    def _close_when_read(self) -> None:
        if not self._unread:
            self.close()

    def blocks(self, family_id: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield keys and values block by block, checked.

        Raises:
            CorruptionError: a block is damaged.
        """
        for group in _groups(self._index[family_id].blocks):
            start = group[0].offset
            if self._file is None:
                raise ClosedError("store", "is closed; open it again with pystate.open(path)")
            data = memoryview(read_exactly(self._file, start, group[-1].offset + group[-1].length - start))
            for block in group:
                at = block.offset - start
                yield decode_block(self.path, block, data[at : at + block.length])

    def raw_blocks(self, family_id: int) -> Iterator[tuple[BlockEntry, bytes]]:
        """Yield the blocks as they stand in the file, their checksums compared, not decoded.

        Raises:
            CorruptionError: a block is damaged.
        """
        for block in self._index[family_id].blocks:
            if self._file is None:
                raise ClosedError("snapshot", "is closed")
            data = read_exactly(self._file, block.offset, block.length)
            check_block(self.path, block, data)
            yield block, data

    def intact_blocks(
        self, family_id: int, report: Callable[[CorruptionError], None]
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield keys and values of the intact blocks, and report the others; for salvage."""
        for block in self._index[family_id].blocks:
            if self._file is not None:
                try:
                    yield decode_block(self.path, block, read_exactly(self._file, block.offset, block.length))
                except CorruptionError as error:
                    report(error)

    def verify(self) -> Iterator[CorruptionError]:
        """Check every block of every family; yield an error for each damaged one."""
        for block in chain.from_iterable(family.blocks for family in self._index.values()):
            if self._file is None:
                return
            try:
                decode_block(self.path, block, read_exactly(self._file, block.offset, block.length))
            except CorruptionError as error:
                yield error

    def __del__(self) -> None:
        self.close()  # a read-only store that reads anew leaves its old reader to views that may still need it

    def close(self) -> None:
        """Release the descriptor; families not yet decoded can no longer be."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _groups(blocks: list[BlockEntry]) -> Iterator[list[BlockEntry]]:
    """Neighbouring blocks that are read with one call."""
    group: list[BlockEntry] = []
    size = 0
    for block in blocks:
        if group and size + block.length > _READ_AHEAD:
            yield group
            group, size = [], 0
        group.append(block)
        size += block.length
    if group:
        yield group
