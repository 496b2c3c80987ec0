"""The files of a repository: names, and the bytes of a manifest."""

from __future__ import annotations

from datetime import UTC, datetime
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.engine import names as store_names
from pystate.errors import CorruptionError, UnsupportedFormatError
from pystate.formats.backup.manifests import (
    ID_MAX,
    MANIFEST_BYTES_MAX,
    Manifest,
    content_name,
    decode_manifest,
    encode_manifest,
    manifest_name,
    parse_name,
)

MANIFEST = Manifest(
    format=1,
    id=7,
    timestamp=datetime(2025, 9, 25, 0, 42, 20, tzinfo=UTC),
    store_id="0123456789abcdef0123456789abcdef",
    sequence=42,
    content=5,
    size=1234,
    digest="0a1b2c3d",
)
LINE = (
    b'{"format":1,"id":7,"timestamp":"2025-09-25T00:42:20Z","store_id":"0123456789abcdef0123456789abcdef",'
    b'"sequence":42,"content":5,"size":1234,"digest":"0a1b2c3d"}'
)

#: Bytes of a released format, never to be changed.
BYTES = LINE + b"\n002aea66\n"


def signed(line: bytes) -> bytes:
    return line + b"\n%08x\n" % crc32(line)


def test_bytes_of_a_manifest() -> None:
    assert encode_manifest(MANIFEST) == BYTES
    assert decode_manifest("path", 7, BYTES) == MANIFEST


@given(
    st.builds(
        Manifest,
        format=st.just(1),
        id=st.integers(1, ID_MAX),
        timestamp=st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(microsecond=0)),
        store_id=st.text("0123456789abcdef", min_size=32, max_size=32),
        sequence=st.integers(0, 2**63 - 1),
        content=st.integers(1, ID_MAX),
        size=st.integers(0, 2**63 - 1),
        digest=st.text("0123456789abcdef", min_size=8, max_size=8),
    )
)
def test_manifest_comes_back(manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    assert len(data) <= MANIFEST_BYTES_MAX
    assert decode_manifest("path", manifest.id, data) == manifest


def test_every_wrong_byte_is_noticed() -> None:
    for at in range(len(BYTES)):
        for bit in range(8):
            damaged = BYTES[:at] + bytes([BYTES[at] ^ 1 << bit]) + BYTES[at + 1 :]
            with pytest.raises(CorruptionError):
                decode_manifest("path", 7, damaged)
        with pytest.raises(CorruptionError):
            decode_manifest("path", 7, BYTES[:at])
    with pytest.raises(CorruptionError):
        decode_manifest("path", 7, BYTES + b"\n")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"", "truncated"),
        (b"[]", "object"),
        (b"{}", "format"),
        (LINE.replace(b'"id":7', b'"id":0'), "id"),
        (LINE.replace(b'"id":7', b'"id":8'), "backup 8"),
        (LINE.replace(b'"content":5', b'"content":-1'), "content"),
        (LINE.replace(b"20Z", b"20"), "timezone"),
        (LINE.replace(b'"size":1234', b'"size":"many"'), "size"),
        (LINE.replace(b"}", b',"more":1}'), "more"),
        (LINE.replace(b',"digest":"0a1b2c3d"', b""), "digest"),
    ],
)
def test_fields_that_no_pystate_writes_are_refused(line: bytes, word: str) -> None:
    with pytest.raises(CorruptionError, match=word) as caught:
        decode_manifest("path", 7, signed(line))
    assert caught.value.path == "path"


def test_newer_format_is_named_whatever_else_it_has() -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        decode_manifest("path", 7, signed(b'{"format":3,"id":"a text"}'))
    assert (caught.value.path, caught.value.found, caught.value.supported) == ("path", 3, 1)


def test_names() -> None:
    assert manifest_name(1) == "00000000000000000001.backup"
    assert content_name(ID_MAX) == "09223372036854775807.content"
    assert parse_name(manifest_name(7)) == (manifest_name(7), "manifest", 7)
    assert parse_name(content_name(7)) == (content_name(7), "content", 7)
    for name, kind in {
        "LOCK": "lock",
        "x.tmp": "temporary",
        manifest_name(1) + ".tmp": "temporary",
        manifest_name(0): "foreign",
        content_name(ID_MAX + 1): "foreign",
        "1.backup": "foreign",
        "x" + manifest_name(1): "foreign",
        manifest_name(1) + "\n": "foreign",
        "٠" * 20 + ".backup": "foreign",
        "VERSION": "foreign",
        "": "foreign",
    }.items():
        assert parse_name(name) == (name, kind, 0)


def test_no_name_is_one_of_a_store() -> None:
    """So that neither directory is taken for the other, and no opening removes a backup."""
    for name in (manifest_name(1), content_name(1)):
        assert store_names.parse_name(name).kind == "foreign"
    for name in (store_names.snapshot_name(1), store_names.segment_name(1), store_names.segment_name(1, closed=True)):
        assert parse_name(name).kind == "foreign"
