"""The bytes of a snapshot: every family as of one sequence, in checksummed blocks.

All integers are little-endian; all checksums are CRC-32 (of zlib), unseeded. ``docs/reference/file-format.md`` quotes
the tables below, and a test compares them. A snapshot is::

    prelude   24 bytes
    header    MessagePack map, length and checksum in the prelude
    blocks    of the first family in key order, then of the second, ...
    index     MessagePack array, length and checksum in the trailer
    trailer   32 bytes

Prelude, 24 bytes:

======  ====  ===============  ==================================================================================
offset  size  field            meaning, and the fault it guards against
======  ====  ===============  ==================================================================================
0       8     magic            ``pystsnp`` and a newline: not a snapshot at all
8       4     format version   1: written by a newer pystate
12      4     header length    in bytes
16      4     header checksum  of the header
20      4     checksum         of the 20 bytes before
======  ====  ===============  ==================================================================================

Header, a map with the keys ``store_id`` (16 bytes), ``sequence`` (the last commit contained), ``generation`` (of the
log at that moment), ``next_family_id`` (ids below it were used and are not used again), ``families`` (a map from name
to id) and ``metadata`` (a map from text to text, for the layers above). Two more are there only where the content of
the store was once replaced as a whole: ``log_id`` (16 bytes: the id that the segments bear, if it is not the store id)
and ``replaces`` (the names of the files that were there before, which do not count any more).

A block is one MessagePack array of two arrays of equal length, the keys in ascending order and their values. It carries
nothing else: where it begins, its length, checksum and number of entries stand in the index.

Index, an array with one item per family, in the order of the blocks::

    [family id, number of entries, [[offset, length, checksum, entries], ...]]

Trailer, 32 bytes:

======  ====  ===============  ==================================================================================
offset  size  field            meaning, and the fault it guards against
======  ====  ===============  ==================================================================================
0       8     index offset     where the index begins, and the blocks end
8       4     index length     in bytes
12      4     index checksum   of the index; a block in a wrong place or of another file does not match it
16      4     digest           of prelude, header and index: with the block checksums in the index, of the whole
20      4     checksum         of the 20 bytes before
24      8     end mark         ``pystend`` and a newline: a file that was cut
======  ====  ===============  ==================================================================================

Nothing outside this module knows a byte offset of a snapshot. Whoever opens a snapshot checks everything but the
blocks; each block is checked when it is decoded.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

import msgspec

from pystate.errors import CorruptionError, UnsupportedFormatError

__all__ = [
    "FORMAT_VERSION",
    "MAGIC",
    "PRELUDE_SIZE",
    "TRAILER_SIZE",
    "BlockEntry",
    "FamilyIndex",
    "SnapshotHeader",
    "Trailer",
    "check_block",
    "decode_block",
    "decode_header",
    "decode_index",
    "decode_prelude",
    "decode_trailer",
    "encode_block",
    "encode_head",
    "encode_tail",
]

MAGIC = b"pystsnp\n"
END_MARK = b"pystend\n"
FORMAT_VERSION = 1

_PRELUDE = struct.Struct("<8sIII")
_TRAILER = struct.Struct("<QIII")
_CHECKSUM = struct.Struct("<I")
PRELUDE_SIZE = _PRELUDE.size + _CHECKSUM.size
TRAILER_SIZE = _TRAILER.size + _CHECKSUM.size + len(END_MARK)


class SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The header of a snapshot; the fields are those of the module's text."""

    store_id: bytes
    sequence: int
    generation: int
    next_family_id: int
    families: dict[str, int]
    metadata: dict[str, str] = {}
    log_id: bytes | msgspec.UnsetType = msgspec.UNSET
    replaces: list[str] | msgspec.UnsetType = msgspec.UNSET

    @property
    def log(self) -> bytes:
        """The id that the segments of the log bear."""
        return self.store_id if self.log_id is msgspec.UNSET else self.log_id

    @property
    def replaced(self) -> frozenset[str]:
        """The names of the files that do not count any more."""
        return frozenset(() if self.replaces is msgspec.UNSET else self.replaces)

    def outside(self) -> SnapshotHeader:
        """The same for a file that stands outside the store: nothing about the files that it stands beside."""
        return msgspec.structs.replace(self, log_id=msgspec.UNSET, replaces=msgspec.UNSET)


class BlockEntry(NamedTuple):
    """One block in the index; `offset` and `length` in bytes."""

    offset: int
    length: int
    checksum: int
    entries: int


class FamilyIndex(NamedTuple):
    """The blocks of one family in the index."""

    family_id: int
    entries: int
    blocks: list[BlockEntry]


class Trailer(NamedTuple):
    """The trailer; the fields are those of the table above."""

    index_offset: int
    index_length: int
    index_checksum: int
    digest: int


_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(SnapshotHeader).decode
_decode_index = msgspec.msgpack.Decoder(list[FamilyIndex]).decode
_decode_block = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes]]).decode


def encode_head(header: SnapshotHeader) -> bytes:
    """Prelude and header."""
    body = _encode(header)
    prelude = _PRELUDE.pack(MAGIC, FORMAT_VERSION, len(body), crc32(body))
    return prelude + _CHECKSUM.pack(crc32(prelude)) + body


def encode_block(keys: list[bytes], values: list[bytes]) -> bytes:
    """One block; the two lists have equal length, and `keys` ascends."""
    return _encode((keys, values))


def encode_tail(head: bytes, index_offset: int, index: list[FamilyIndex]) -> bytes:
    """Index and trailer; `head` is what `encode_head` returned."""
    body = _encode(index)
    trailer = _TRAILER.pack(index_offset, len(body), crc32(body), crc32(body, crc32(head)))
    return body + trailer + _CHECKSUM.pack(crc32(trailer)) + END_MARK


def decode_prelude(path: str, data: bytes) -> tuple[int, int]:
    """Length and checksum of the header.

    Raises:
        CorruptionError: `data`, the first bytes of the file, is no intact prelude.
        UnsupportedFormatError: written by a newer pystate.
    """
    if len(data) < PRELUDE_SIZE:
        expected = f"a snapshot prelude of {PRELUDE_SIZE} bytes"
        raise CorruptionError(path, offset=0, expected=expected, found=f"a file of {len(data)} bytes")
    magic, version, length, checksum = _PRELUDE.unpack_from(data)
    if magic != MAGIC:
        raise CorruptionError(path, offset=0, expected=f"the magic {MAGIC!r}", found=repr(magic))
    _check(path, _PRELUDE.size, "prelude", data[: _PRELUDE.size], *_CHECKSUM.unpack_from(data, _PRELUDE.size))
    if version != FORMAT_VERSION:
        raise UnsupportedFormatError(path, found=version, supported=FORMAT_VERSION)
    return length, checksum


def decode_header(path: str, data: bytes, checksum: int) -> SnapshotHeader:
    """The header from its bytes; `checksum` is the one in the prelude.

    Raises:
        CorruptionError: a wrong checksum, or a right one over something else than a header.
    """
    _check(path, PRELUDE_SIZE, "header", data, checksum)
    try:
        header = _decode_header(data)
    except msgspec.MsgspecError as error:
        raise CorruptionError(path, offset=PRELUDE_SIZE, expected="a header map", found=str(error)) from None
    ids = set(header.families.values())
    good = len(header.store_id) == len(header.log) == 16
    good = good and len(ids) == len(header.families) and min(header.sequence, header.generation) >= 0
    if not good or not all(1 <= family_id < header.next_family_id <= 2**32 for family_id in ids):
        found = f"families {header.families!r}, next family id {header.next_family_id}"
        raise CorruptionError(path, offset=PRELUDE_SIZE, expected="families with ids of their own", found=found)
    return header


def decode_trailer(path: str, data: bytes, size: int) -> Trailer:
    """The trailer from the last bytes of a file of `size` bytes.

    Raises:
        CorruptionError: no end mark, a wrong checksum, or an index that does not fit between blocks and trailer.
    """
    at = size - TRAILER_SIZE
    if len(data) != TRAILER_SIZE or not data.endswith(END_MARK):
        raise CorruptionError(path, offset=max(at, 0), expected="the end mark", found=f"{data[-8:]!r}")
    _check(path, at, "trailer", data[: _TRAILER.size], *_CHECKSUM.unpack_from(data, _TRAILER.size))
    trailer = Trailer(*_TRAILER.unpack_from(data))
    if trailer.index_offset + trailer.index_length != at:
        found = f"offset {trailer.index_offset}, length {trailer.index_length}"
        raise CorruptionError(path, offset=at, expected=f"an index that ends at {at}", found=found)
    return trailer


def decode_index(path: str, head: bytes, data: bytes, trailer: Trailer, header: SnapshotHeader) -> list[FamilyIndex]:
    """The index from its bytes, checked against header, trailer and digest.

    Raises:
        CorruptionError: a wrong checksum or digest, blocks that do not fill the file in order, wrong families or
            counts.
    """
    at = trailer.index_offset
    _check(path, at, "index", data, trailer.index_checksum)
    _check(path, at + trailer.index_length, "digest of the whole", data, trailer.digest, seed=crc32(head))
    try:
        index = _decode_index(data)
    except msgspec.MsgspecError as error:
        raise CorruptionError(path, offset=at, expected="an index array", found=str(error)) from None
    position = len(head)
    for family in index:
        for block in family.blocks:
            if block.offset != position or block.length <= 0 or block.entries <= 0:
                found = f"one at {block.offset} of {block.length} bytes"
                raise CorruptionError(path, offset=at, expected=f"a block at {position}", found=found)
            position += block.length
        if family.entries != sum(block.entries for block in family.blocks):
            found = f"{family.entries} in all for family id {family.family_id}"
            raise CorruptionError(path, offset=at, expected="counts that add up", found=found)
    if position != at or sorted(family.family_id for family in index) != sorted(header.families.values()):
        found = f"blocks that end at {position}, families {[family.family_id for family in index]}"
        raise CorruptionError(path, offset=at, expected=f"blocks up to {at}, each family once", found=found)
    return index


def check_block(path: str, block: BlockEntry, data: bytes | memoryview) -> None:
    """Compare the checksum of a block.

    Raises:
        CorruptionError: it is wrong.
    """
    _check(path, block.offset, "block", data, block.checksum)


def decode_block(path: str, block: BlockEntry, data: bytes | memoryview) -> tuple[list[bytes], list[bytes]]:
    """Keys and values of a block.

    Raises:
        CorruptionError: a wrong checksum, or a right one over something else than the block of the index.
    """
    _check(path, block.offset, "block", data, block.checksum)
    try:
        keys, values = _decode_block(data)
    except msgspec.MsgspecError as error:
        raise CorruptionError(path, offset=block.offset, expected="keys and values", found=str(error)) from None
    if not len(keys) == len(values) == block.entries:
        found = f"{len(keys)} keys and {len(values)} values"
        raise CorruptionError(path, offset=block.offset, expected=f"{block.entries} entries", found=found)
    return keys, values


def _check(path: str, offset: int, what: str, data: bytes | memoryview, checksum: int, *, seed: int = 0) -> None:
    computed = crc32(data, seed)
    if computed != checksum:
        expected = f"the {what} to have the checksum {checksum:#010x}"
        raise CorruptionError(path, offset=offset, expected=expected, found=f"{computed:#010x}")


if PRELUDE_SIZE != 24 or TRAILER_SIZE != 32:
    raise ImportError("the snapshot format does not fit its own table")
