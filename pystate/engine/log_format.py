"""The bytes of a log segment: the header, the frames, and what stands in a frame.

A segment is a header followed by frames. All integers are little-endian; all checksums are CRC-32 (ISO-HDLC, the one of
zlib). ``docs/reference/file-format.md`` quotes the tables below, and a test compares them.

Segment header, 48 bytes:

======  ====  ==============  ===================================================================================
offset  size  field           meaning, and the fault it guards against
======  ====  ==============  ===================================================================================
0       8     magic           ``pystlog`` and a newline: not a segment at all
8       4     format version  1: written by a newer pystate
12      4     generation      grows with every unclean stop, so that (generation, sequence) never repeats
16      16    log id          random, one per log: a segment of another store, or of a log that was replaced
32      4     salt            random, one per segment, no zero byte: left-overs of another segment
36      8     first sequence  the sequence of the first commit: a missing or shortened segment before this one
44      4     checksum        of the 44 bytes before
======  ====  ==============  ===================================================================================

Frame header, 32 bytes, followed by the payload:

======  ====  ================  =================================================================================
offset  size  field             meaning, and the fault it guards against
======  ====  ================  =================================================================================
0       4     salt              of the segment; a reader finds the frames behind damage by searching for it
4       4     payload length    in bytes
8       8     sequence          of the commit; a closing frame repeats that of the last commit
16      8     watermark         highest sequence known to be durable when this was written: tells loss from a torn tail
24      4     payload checksum  of the salt and then the payload
28      4     header checksum   of the salt and then the 28 bytes before: a damaged length is not followed
======  ====  ================  =================================================================================

The payload is one MessagePack array of all operations of one commit, in one of these shapes::

    [family id, key, value]                        one operation; value nil deletes the key
    [family id, {key: value, ...}, ...]            pairs of a family id and a map of its operations
    []                                             closing frame: the segment was closed cleanly
    [next first sequence]                          closing frame: the log goes on in the segment of that name

Family ids are integers from 1 up and are never used twice. Family 0 is the catalogue: its keys are family names in
UTF-8, its values family ids as 4 bytes; setting one creates a family, deleting one drops it.

Nothing outside this module knows a byte offset of a segment.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from pystate.engine.limits import COMMIT_BYTES_MAX
from pystate.errors import CorruptionError, UnsupportedFormatError

__all__ = [
    "CATALOGUE",
    "CLOSED_SEGMENT_SIZE",
    "FORMAT_VERSION",
    "FRAME_HEADER_SIZE",
    "MAGIC",
    "SEGMENT_HEADER_SIZE",
    "Operations",
    "SegmentHeader",
    "decode_operations",
    "encode_closed_segment",
    "encode_frame",
    "encode_operations",
    "encode_segment_header",
    "frame_checksum",
    "operations_by_family",
    "pack_family_id",
    "pack_frame_header",
    "parse_segment_header",
    "salt_seed",
    "unpack_family_id",
    "unpack_frame_header",
]

MAGIC = b"pystlog\n"
FORMAT_VERSION = 1
CATALOGUE = 0
"""The family id of the catalogue of families."""

_SEGMENT_HEADER = struct.Struct("<8sII16s4sQ")
_FRAME_HEADER = struct.Struct("<4sIQQI")
_CHECKSUM = struct.Struct("<I")
_FULL_FRAME_HEADER = struct.Struct("<4sIQQII")

SEGMENT_HEADER_SIZE = _SEGMENT_HEADER.size + _CHECKSUM.size
FRAME_HEADER_SIZE = _FULL_FRAME_HEADER.size
CLOSED_SEGMENT_SIZE = SEGMENT_HEADER_SIZE + FRAME_HEADER_SIZE + 1
"""The size of a segment without a commit that was closed cleanly."""

Operations: TypeAlias = list[int | bytes | None | dict[bytes, bytes | None]]
"""A decoded payload, in one of the four shapes."""

pack_frame_header = _FRAME_HEADER.pack
"""``(salt, payload length, sequence, watermark, payload checksum)`` to the first 28 bytes of a frame header."""
unpack_frame_header = _FULL_FRAME_HEADER.unpack_from
"""``(buffer, offset)`` to the six fields of a frame header, unchecked."""
frame_checksum = _CHECKSUM.pack
"""A checksum to its four bytes."""
encode_operations = msgspec.msgpack.Encoder().encode
"""Operations in one of the four shapes to a payload."""
_decode = msgspec.msgpack.Decoder(Operations).decode


class SegmentHeader(NamedTuple):
    """A validated segment header; the fields are those of the table above."""

    log_id: bytes
    generation: int
    salt: bytes
    first: int


def encode_segment_header(header: SegmentHeader) -> bytes:
    """The 48 bytes that begin a segment."""
    fields = _SEGMENT_HEADER.pack(MAGIC, FORMAT_VERSION, header.generation, header.log_id, header.salt, header.first)
    return fields + _CHECKSUM.pack(crc32(fields))


def encode_closed_segment(header: SegmentHeader) -> bytes:
    """A whole segment without a commit, as a clean close leaves it: the header and a closing frame."""
    last = header.first - 1
    closing = encode_frame(header.salt, salt_seed(header.salt), last, last, encode_operations([]))
    return encode_segment_header(header) + closing


def parse_segment_header(path: str, data: bytes) -> SegmentHeader:
    """Validate the beginning of a segment.

    Arguments:
        path: the file, for the error.
        data: the whole segment, or at least its first 48 bytes.

    Raises:
        CorruptionError: too short, no magic, or a wrong checksum. A segment is only given its name when its header is
            durable, so none of these can be left by a crash.
        UnsupportedFormatError: written by a newer pystate.
    """
    if len(data) < SEGMENT_HEADER_SIZE:
        expected = f"a segment header of {SEGMENT_HEADER_SIZE} bytes"
        raise CorruptionError(path, offset=0, expected=expected, found=f"a file of {len(data)} bytes")
    magic, version, generation, log_id, salt, first = _SEGMENT_HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptionError(path, offset=0, expected=f"the magic {MAGIC!r}", found=repr(magic))
    checksum = crc32(data[: _SEGMENT_HEADER.size])
    (stored,) = _CHECKSUM.unpack_from(data, _SEGMENT_HEADER.size)
    if checksum != stored:
        raise CorruptionError(
            path,
            offset=_SEGMENT_HEADER.size,
            expected=f"the header checksum {checksum:#010x}",
            found=f"{stored:#010x}",
        )
    if version != FORMAT_VERSION:
        raise UnsupportedFormatError(path, found=version, supported=FORMAT_VERSION)
    return SegmentHeader(log_id, generation, salt, first)


def salt_seed(salt: bytes) -> int:
    """What a segment's frame checksums start from: the checksum of the salt, so that it is as if the salt stood before.

    (To start from the salt itself would do nothing for the header, which begins with the salt: the two cancel out.)
    """
    return crc32(salt)


def encode_frame(salt: bytes, seed: int, sequence: int, watermark: int, payload: bytes) -> bytes:
    """Header and payload of one frame.

    Arguments:
        salt, seed: of the segment (`seed` is ``salt_seed(salt)``, kept so that it is computed once).
        sequence: of the commit.
        watermark: the highest sequence known to be durable now.
        payload: from `encode_operations`, at most `COMMIT_BYTES_MAX` bytes.
    """
    header = pack_frame_header(salt, len(payload), sequence, watermark, crc32(payload, seed))
    return b"".join((header, frame_checksum(crc32(header, seed)), payload))


def decode_operations(payload: bytes) -> Operations:
    """Decode a payload whose checksum was right.

    Raises:
        ValueError: it is none of the four shapes. (A right checksum over a wrong payload is a bug or an attack.)
    """
    try:
        operations = _decode(payload)
    except msgspec.MsgspecError as error:
        raise ValueError(f"a payload that is not an array of operations ({error})") from None
    size = len(operations)
    if size == 3:
        family_id, key, value = operations
        good = type(family_id) is int and family_id >= 0 and type(key) is bytes
        good = good and (value is None or type(value) is bytes)
    elif size < 2:
        good = not operations or (type(operations[0]) is int and operations[0] > 0)
    else:
        ids, maps = operations[::2], operations[1::2]
        good = size % 2 == 0 and all(type(i) is int and i >= 0 for i in ids) and all(type(m) is dict for m in maps)
    if not good:
        raise ValueError("a payload in none of the known shapes")
    return operations


def operations_by_family(operations: Operations) -> list[tuple[int, dict[bytes, bytes | None]]]:
    """A commit as pairs of a family id and its operations, whichever shape it is in.

    Arguments:
        operations: from `decode_operations`, so in one of the two shapes of a commit.
    """
    if len(operations) == 3:
        operations = [operations[0], {operations[1]: operations[2]}]  # type: ignore[dict-item]
    return list(zip(operations[::2], operations[1::2], strict=True))  # type: ignore[arg-type]  # decode_operations has checked it


def pack_family_id(family_id: int) -> bytes:
    """A family id as the catalogue stores it."""
    return _CHECKSUM.pack(family_id)


def unpack_family_id(data: bytes) -> int:
    """A family id from the catalogue.

    Raises:
        ValueError: it is not 4 bytes, or 0, which is the catalogue itself.
    """
    if len(data) != 4 or data == bytes(4):
        raise ValueError(f"a family id of {data!r}")
    return int(_CHECKSUM.unpack(data)[0])


if SEGMENT_HEADER_SIZE != 48 or FRAME_HEADER_SIZE != 32 or COMMIT_BYTES_MAX >= 2**32:
    raise ImportError("the log format does not fit its own table")
