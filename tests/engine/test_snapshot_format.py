"""The bytes of a snapshot: every part there and back, and every wrong one refused."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.engine.snapshot_format import (
    FORMAT_VERSION,
    MAGIC,
    PRELUDE_SIZE,
    TRAILER_SIZE,
    BlockEntry,
    FamilyIndex,
    SnapshotHeader,
    Trailer,
    decode_block,
    decode_header,
    decode_index,
    decode_prelude,
    decode_trailer,
    encode_block,
    encode_head,
    encode_tail,
)
from pystate.errors import CorruptionError, UnsupportedFormatError

HEADER = SnapshotHeader(
    store_id=bytes(16), sequence=9, generation=2, next_family_id=8, families={"a": 1, "b": 7}, metadata={"k": "v"}
)
HEAD = encode_head(HEADER)
BLOCKS = [encode_block([b"", b"k"], [b"1", b""]), encode_block([b"l"], [b"2"]), encode_block([b"x"], [b"3"])]
ENTRIES = [
    BlockEntry(len(HEAD) + sum(map(len, BLOCKS[:at])), len(block), crc32(block), count)
    for at, (block, count) in enumerate(zip(BLOCKS, (2, 1, 1), strict=True))
]
INDEX = [FamilyIndex(1, 3, ENTRIES[:2]), FamilyIndex(7, 1, ENTRIES[2:])]
INDEX_AT = len(HEAD) + sum(map(len, BLOCKS))


def snapshot(index: Any = INDEX, header: SnapshotHeader = HEADER, index_at: int = INDEX_AT) -> bytes:
    head = encode_head(header)
    return head + b"".join(BLOCKS) + encode_tail(head, index_at, index)


def decode(data: bytes) -> tuple[SnapshotHeader, list[FamilyIndex]]:
    """Everything but the blocks, as a reader does it."""
    length, checksum = decode_prelude("file", data[:PRELUDE_SIZE])
    header = decode_header("file", data[PRELUDE_SIZE : PRELUDE_SIZE + length], checksum)
    trailer = decode_trailer("file", data[-TRAILER_SIZE:], len(data))
    body = data[trailer.index_offset : trailer.index_offset + trailer.index_length]
    return header, decode_index("file", data[: PRELUDE_SIZE + length], body, trailer, header)


names = st.text(min_size=1, max_size=5)


@st.composite
def headers(draw: st.DrawFn) -> SnapshotHeader:
    families = draw(st.dictionaries(names, st.integers(1, 1000), max_size=4))
    families = {name: family_id * 4 + at for at, (name, family_id) in enumerate(families.items())}
    return SnapshotHeader(
        store_id=draw(st.binary(min_size=16, max_size=16)),
        sequence=draw(st.integers(0, 2**63 - 1)),
        generation=draw(st.integers(0, 2**32 - 1)),
        next_family_id=draw(st.integers(max(families.values(), default=0) + 1, 2**32)),
        families=families,
        metadata=draw(st.dictionaries(names, names, max_size=2)),
        log_id=draw(st.just(msgspec.UNSET) | st.binary(min_size=16, max_size=16)),
        replaces=draw(st.just(msgspec.UNSET) | st.lists(names, max_size=3)),
    )


@given(headers())
def test_header_encoded_and_decoded_is_the_same(header: SnapshotHeader) -> None:
    """Round trip of every field."""
    data = encode_head(header)
    length, checksum = decode_prelude("file", data[:PRELUDE_SIZE])
    assert len(data) == PRELUDE_SIZE + length
    assert decode_header("file", data[PRELUDE_SIZE:], checksum) == header


def test_log_of_a_header_is_the_store_unless_it_says_otherwise() -> None:
    """And what is not said is not written, so that most headers are as if nothing could ever be replaced."""
    assert HEADER.log == HEADER.store_id
    assert HEADER.replaced == frozenset()
    assert b"log_id" not in HEAD
    assert b"replaces" not in HEAD
    header = msgspec.structs.replace(HEADER, log_id=b"l" * 16, replaces=["a", "b", "a"])
    assert header.log == b"l" * 16
    assert header.replaced == {"a", "b"}
    assert header.outside() == HEADER


@given(st.lists(st.binary(max_size=20), unique=True).map(sorted), st.data())
def test_block_encoded_and_decoded_is_the_same(keys: list[bytes], data: st.DataObject) -> None:
    """Round trip of keys and values, from ``bytes`` and from a slice of a larger buffer."""
    values = [data.draw(st.binary(max_size=20)) for _ in keys]
    block = encode_block(keys, values)
    entry = BlockEntry(100, len(block), crc32(block), len(keys))
    assert decode_block("file", entry, block) == (keys, values)
    assert decode_block("file", entry, memoryview(b"x" + block)[1:]) == (keys, values)


def test_whole_snapshot_decodes() -> None:
    """Header and index of a snapshot with two families and three blocks."""
    assert decode(snapshot()) == (HEADER, INDEX)


def test_fields_stand_where_the_tables_say() -> None:
    """Offsets, sizes, byte order and what each checksum covers, as the module's text has them."""
    data = snapshot()
    assert data[0:8] == MAGIC == b"pystsnp\n"
    assert data[8:12] == FORMAT_VERSION.to_bytes(4, "little") == b"\x01\0\0\0"
    length = int.from_bytes(data[12:16], "little")
    body = data[24 : 24 + length]
    assert msgspec.msgpack.decode(body) == msgspec.to_builtins(HEADER, builtin_types=(bytes,))
    assert data[16:20] == crc32(body).to_bytes(4, "little")
    assert data[20:24] == crc32(data[:20]).to_bytes(4, "little")
    trailer = data[-32:]
    index_at, index_length = int.from_bytes(trailer[0:8], "little"), int.from_bytes(trailer[8:12], "little")
    index = data[index_at : index_at + index_length]
    assert index_at + index_length + 32 == len(data)
    assert msgspec.msgpack.decode(index)[0] == [1, 3, [list(entry) for entry in ENTRIES[:2]]]
    assert trailer[12:16] == crc32(index).to_bytes(4, "little")
    assert trailer[16:20] == crc32(data[: 24 + length] + index).to_bytes(4, "little")
    assert trailer[20:24] == crc32(trailer[:20]).to_bytes(4, "little")
    assert trailer[24:32] == b"pystend\n"


def test_any_bit_wrong_outside_the_blocks_is_corruption() -> None:
    """Guarantee 5: prelude, header, index and trailer are covered whole."""
    data = bytearray(snapshot())
    for at in [*range(len(HEAD)), *range(INDEX_AT, len(data))]:
        for bit in range(8):
            data[at] ^= 1 << bit
            with pytest.raises(CorruptionError) as caught:
                decode(bytes(data))
            assert caught.value.path == "file"
            data[at] ^= 1 << bit


def test_any_bit_wrong_in_a_block_is_corruption_at_its_offset() -> None:
    """Guarantee 5: each block has its checksum in the index."""
    for entry, block in zip(ENTRIES, BLOCKS, strict=True):
        data = bytearray(block)
        for at in range(len(block)):
            for bit in range(8):
                data[at] ^= 1 << bit
                with pytest.raises(CorruptionError) as caught:
                    decode_block("file", entry, bytes(data))
                assert caught.value.offset == entry.offset
                data[at] ^= 1 << bit


@pytest.mark.parametrize("size", range(PRELUDE_SIZE))
def test_prelude_cut_is_corruption(size: int) -> None:
    """Row 19: a snapshot is only given its name when it is complete."""
    with pytest.raises(CorruptionError, match=f"a file of {size} bytes"):
        decode_prelude("file", HEAD[:size])


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_prelude_of_another_version_is_unsupported(version: int) -> None:
    """Row 89: told apart from damage, with both numbers."""
    data = bytearray(HEAD[:20])
    struct.pack_into("<I", data, 8, version)
    with pytest.raises(UnsupportedFormatError) as caught:
        decode_prelude("file", bytes(data) + struct.pack("<I", crc32(data)))
    assert (caught.value.found, caught.value.supported) == (version, FORMAT_VERSION)


def changed(**fields: Any) -> dict[str, Any]:
    return {**msgspec.to_builtins(HEADER, builtin_types=(bytes,)), **fields}


@pytest.mark.parametrize(
    "body",
    [
        changed(store_id=b"short"),
        changed(store_id=bytes(17)),
        changed(sequence=-1),
        changed(sequence="9"),
        changed(families={"a": 1, "b": 1}),
        changed(families={"a": 0}),
        changed(families={"a": 8}),
        changed(families={"a": -1}),
        changed(families={b"a": 1}),
        changed(next_family_id=2**32 + 1, families={"a": 2**32}),
        changed(next_family_id=7),
        changed(unknown=1),
        changed(log_id=b"short"),
        changed(log_id=b""),
        changed(log_id="l" * 16),
        changed(log_id=None),
        changed(replaces="name"),
        changed(replaces=[b"name"]),
        changed(replaces={"name": 1}),
        {"store_id": bytes(16)},
        [],
        None,
        b"",
    ],
    ids=str,
)
def test_header_that_says_nonsense_under_a_right_checksum_is_corruption(body: Any) -> None:
    """Row 99: ids that are not unique, not in range, fields that are missing or unknown."""
    data = msgspec.msgpack.encode(body)
    with pytest.raises(CorruptionError) as caught:
        decode_header("file", data, crc32(data))
    assert caught.value.offset == PRELUDE_SIZE


def wrong_block(at: int, **fields: int) -> list[FamilyIndex]:
    entries = list(ENTRIES)
    entries[at] = entries[at]._replace(**fields)
    return [FamilyIndex(1, sum(e.entries for e in entries[:2]), entries[:2]), FamilyIndex(7, 1, entries[2:])]


@pytest.mark.parametrize(
    "index",
    [
        wrong_block(0, offset=ENTRIES[0].offset + 1),
        wrong_block(0, offset=0),
        wrong_block(1, offset=-1),
        wrong_block(1, length=ENTRIES[1].length + 1),
        wrong_block(1, length=0),
        wrong_block(1, length=-1),
        wrong_block(1, length=2**62),
        wrong_block(1, entries=0),
        wrong_block(1, entries=-1),
        [FamilyIndex(1, 4, ENTRIES[:2]), FamilyIndex(7, 1, ENTRIES[2:])],
        [FamilyIndex(1, 3, ENTRIES[:2])],
        [FamilyIndex(1, 3, ENTRIES[:2]), FamilyIndex(8, 1, ENTRIES[2:])],
        [FamilyIndex(1, 3, ENTRIES[:2]), FamilyIndex(1, 1, ENTRIES[2:])],
        [FamilyIndex(7, 1, ENTRIES[2:]), FamilyIndex(1, 3, ENTRIES[:2])],
        [FamilyIndex(1, 0, []), FamilyIndex(7, 0, [])],
        [],
        "index",
        [[1, 3]],
        {"a": 1},
    ],
    ids=str,
)
def test_index_that_does_not_fit_the_blocks_is_corruption(index: Any) -> None:
    """Rows 16 and 20, R10: blocks fill the file in order, each family once, and the counts add up."""
    with pytest.raises(CorruptionError) as caught:
        decode(snapshot(index))
    assert caught.value.offset == INDEX_AT


@pytest.mark.parametrize("index_at", [0, INDEX_AT - 1, INDEX_AT + 1, 2**63, 2**64 - 1])
def test_index_in_an_impossible_place_is_corruption(index_at: int) -> None:
    """Row 16, R10: it ends where the trailer begins, and begins where the blocks end."""
    with pytest.raises(CorruptionError):
        decode(snapshot(index_at=index_at))


def test_header_and_index_of_two_snapshots_are_corruption() -> None:
    """The digest binds them: each has a right checksum of its own."""
    other = msgspec.structs.replace(HEADER, sequence=8)
    tail = snapshot()[INDEX_AT:]
    with pytest.raises(CorruptionError, match="digest"):
        decode(encode_head(other) + b"".join(BLOCKS) + tail)


def test_trailer_shorter_than_itself_is_corruption() -> None:
    """Row 19: a file that is shorter than a trailer."""
    for size in range(TRAILER_SIZE):
        with pytest.raises(CorruptionError, match="end mark"):
            decode_trailer("file", snapshot()[-TRAILER_SIZE:][:size], size)


def test_trailer_decoded_has_its_fields() -> None:
    """The counterpart of the refusals."""
    data = snapshot()
    trailer = decode_trailer("file", data[-TRAILER_SIZE:], len(data))
    assert isinstance(trailer, Trailer)
    assert trailer.index_offset == INDEX_AT


@pytest.mark.parametrize(
    "body",
    [
        ([b"a"], []),
        ([], [b"a"]),
        ([b"a", b"b"], [b"1", b"2"]),
        ([], []),
        (["a"], [b"1"]),
        ([b"a"], [None]),
        ([b"a"],),
        ([b"a"], [b"1"], []),
        None,
        {b"a": b"1"},
    ],
    ids=str,
)
def test_block_that_says_nonsense_under_a_right_checksum_is_corruption(body: Any) -> None:
    """Row 99: not two arrays of bytes of the length in the index."""
    data = msgspec.msgpack.encode(body)
    with pytest.raises(CorruptionError) as caught:
        decode_block("file", BlockEntry(50, len(data), crc32(data), 1), data)
    assert caught.value.offset == 50
