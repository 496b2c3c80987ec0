"""The bytes of a log segment: every field there and back, and every wrong one refused."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.engine.log_format import (
    FORMAT_VERSION,
    FRAME_HEADER_SIZE,
    MAGIC,
    SEGMENT_HEADER_SIZE,
    Operations,
    SegmentHeader,
    decode_operations,
    encode_frame,
    encode_operations,
    encode_segment_header,
    operations_by_family,
    pack_family_id,
    parse_segment_header,
    salt_seed,
    unpack_family_id,
    unpack_frame_header,
)
from pystate.errors import CorruptionError, UnsupportedFormatError

HEADER = SegmentHeader(log_id=bytes(range(16)), generation=3, salt=b"\x01\x02\x03\x04", first=77)

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
headers = st.builds(
    SegmentHeader,
    log_id=st.binary(min_size=16, max_size=16),
    generation=u32,
    salt=st.binary(min_size=4, max_size=4),
    first=u64,
)


@given(headers)
def test_segment_header_encoded_and_parsed_is_the_same(header: SegmentHeader) -> None:
    """Round trip of every field; what follows in the file does not matter."""
    data = encode_segment_header(header)
    assert len(data) == SEGMENT_HEADER_SIZE
    assert parse_segment_header("file", data) == header
    assert parse_segment_header("file", data + b"frames") == header


def test_segment_header_has_its_fields_where_the_table_says() -> None:
    """Offsets, sizes, byte order and what the checksum covers, as the module's text has them."""
    data = encode_segment_header(HEADER)
    assert data[0:8] == MAGIC == b"pystlog\n"
    assert data[8:12] == FORMAT_VERSION.to_bytes(4, "little") == b"\x01\0\0\0"
    assert data[12:16] == (3).to_bytes(4, "little")
    assert data[16:32] == HEADER.log_id
    assert data[32:36] == HEADER.salt
    assert data[36:44] == (77).to_bytes(8, "little")
    assert data[44:48] == crc32(data[:44]).to_bytes(4, "little")


@pytest.mark.parametrize("size", range(SEGMENT_HEADER_SIZE))
def test_segment_header_cut_is_corruption(size: int) -> None:
    """A segment only gets its name when its header is durable, so a short one is no torn tail."""
    with pytest.raises(CorruptionError, match=f"a file of {size} bytes") as caught:
        parse_segment_header("file", encode_segment_header(HEADER)[:size])
    assert (caught.value.path, caught.value.offset) == ("file", 0)


@pytest.mark.parametrize("at", range(SEGMENT_HEADER_SIZE))
def test_segment_header_with_a_wrong_byte_is_corruption(at: int) -> None:
    """Guarantee 5: every byte is covered, the version too: a damaged version is not a newer format."""
    data = bytearray(encode_segment_header(HEADER))
    for bit in range(8):
        data[at] ^= 1 << bit
        with pytest.raises(CorruptionError):
            parse_segment_header("file", bytes(data))
        data[at] ^= 1 << bit


@pytest.mark.parametrize("version", [0, 2, 255, 2**32 - 1])
def test_segment_header_of_another_version_is_unsupported(version: int) -> None:
    """Row 89: an intact header of a version that is not known is told apart from damage, with both numbers."""
    fields = bytearray(encode_segment_header(HEADER)[:44])
    struct.pack_into("<I", fields, 8, version)
    with pytest.raises(UnsupportedFormatError) as caught:
        parse_segment_header("file", bytes(fields) + struct.pack("<I", crc32(fields)))
    assert (caught.value.found, caught.value.supported) == (version, FORMAT_VERSION)


@given(st.binary(min_size=4, max_size=4), u64, u64, st.binary(max_size=50))
def test_frame_encoded_has_its_fields_where_the_table_says(
    salt: bytes, sequence: int, watermark: int, payload: bytes
) -> None:
    """Offsets, sizes, byte order, and both checksums begun with the salt."""
    seed = salt_seed(salt)
    frame = encode_frame(salt, seed, sequence, watermark, payload)
    assert seed == crc32(salt)
    assert len(frame) == FRAME_HEADER_SIZE + len(payload)
    assert frame[0:4] == salt
    assert frame[4:8] == len(payload).to_bytes(4, "little")
    assert frame[8:16] == sequence.to_bytes(8, "little")
    assert frame[16:24] == watermark.to_bytes(8, "little")
    assert frame[24:28] == crc32(payload, seed).to_bytes(4, "little")
    assert frame[28:32] == crc32(frame[:28], seed).to_bytes(4, "little")
    assert frame[32:] == payload
    assert unpack_frame_header(b"junk" + frame, 4) == (
        salt, len(payload), sequence, watermark, crc32(payload, seed), crc32(frame[:28], seed),
    )  # fmt: skip


ids = st.integers(1, 2**32 - 1)
maps = st.dictionaries(st.binary(max_size=5), st.none() | st.binary(max_size=5))
single = st.tuples(ids, st.binary(max_size=5), st.none() | st.binary(max_size=5)).map(list)
several = st.lists(st.tuples(ids, maps), min_size=1, max_size=4).map(lambda pairs: [x for pair in pairs for x in pair])
closing = st.lists(st.integers(1, 2**64 - 1), max_size=1)


@given(single | several | closing)
def test_operations_encoded_and_decoded_are_the_same(operations: Operations) -> None:
    """Round trip of the four shapes."""
    assert decode_operations(encode_operations(operations)) == operations


@given(single)
def test_one_operation_by_family_is_a_map_of_one(operations: Operations) -> None:
    """Whoever applies a commit need not know the shapes."""
    family_id, key, value = operations
    assert operations_by_family(operations) == [(family_id, {key: value})]


@given(several)
def test_operations_by_family_keep_their_order(operations: Operations) -> None:
    """Pairs of a family id and its operations, as they stand in the payload."""
    expected = list(zip(operations[::2], operations[1::2], strict=True))
    assert operations_by_family(operations) == expected


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=3)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.binary(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def is_id(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_operations(value: Any) -> bool:
    """The four shapes, once more and more slowly."""
    if not isinstance(value, list):
        return False
    if len(value) == 3:
        family_id, key, data = value
        return is_id(family_id) and isinstance(key, bytes) and (data is None or isinstance(data, bytes))
    if len(value) <= 1:
        return all(is_id(first) and first > 0 for first in value)
    pairs = list(zip(value[::2], value[1::2], strict=False))
    return len(value) % 2 == 0 and all(
        is_id(family_id)
        and isinstance(writes, dict)
        and all(isinstance(k, bytes) and (v is None or isinstance(v, bytes)) for k, v in writes.items())
        for family_id, writes in pairs
    )


@given(anything | st.lists(st.integers(0, 3) | st.binary(max_size=2) | st.none() | maps, max_size=6))
def test_payload_of_any_value_is_one_of_the_shapes_or_refused(value: Any) -> None:
    """Row 99: a right checksum over a wrong payload is ValueError, whatever it is."""
    payload = msgspec.msgpack.encode(value)
    if is_operations(value):
        assert decode_operations(payload) == value
    else:
        with pytest.raises(ValueError, match="payload"):
            decode_operations(payload)


@given(st.binary(max_size=60))
def test_payload_of_any_bytes_is_one_of_the_shapes_or_refused(payload: bytes) -> None:
    """Row 99: and no other exception for bytes that are no MessagePack at all."""
    try:
        operations = decode_operations(payload)
    except ValueError:
        return
    assert is_operations(operations)


def test_payload_with_something_behind_it_is_refused() -> None:
    """One array and nothing else."""
    with pytest.raises(ValueError, match="payload"):
        decode_operations(encode_operations([1, b"k", b"v"]) + b"\xc0")


@given(ids)
def test_family_id_packed_and_unpacked_is_the_same(family_id: int) -> None:
    """Round trip; four bytes."""
    assert len(pack_family_id(family_id)) == 4
    assert unpack_family_id(pack_family_id(family_id)) == family_id


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\0\0", b"\x01\0\0\0\0", bytes(4)], ids=repr)
def test_family_id_of_other_bytes_is_refused(data: bytes) -> None:
    """The wrong length, or the id of the catalogue itself."""
    with pytest.raises(ValueError, match="family id"):
        unpack_family_id(data)
