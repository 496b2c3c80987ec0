"""The notation of keys and values: exact for all bytes, and safe to print and to give back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pystate.cli.bytes_text import HEX_BYTES_MAX, format_bytes, parse_bytes

TEXTS_THAT_LOOK_LIKE_BYTES = st.builds(
    lambda prefix, rest: (prefix + rest).encode(),
    st.sampled_from(["0x", "0X", "base64:", "text:", "text:text:", "-", "--", " "]),
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
)


@given(
    st.binary(max_size=100) | st.text().map(lambda text: text.encode("utf-8", "replace")) | TEXTS_THAT_LOOK_LIKE_BYTES
)
@example(b"")
@example(b"0x")
@example(b"base64:")
@example(b"text:")
@example(b"-")
def test_all_bytes_come_back_exactly(data: bytes) -> None:
    assert parse_bytes(format_bytes(data)) == data
    assert parse_bytes(format_bytes(data), argument=True) == data


@given(
    st.binary(max_size=100) | st.text().map(lambda text: text.encode("utf-8", "replace")) | TEXTS_THAT_LOOK_LIKE_BYTES
)
def test_what_is_shown_is_one_visible_line_that_can_be_an_argument(data: bytes) -> None:
    shown = format_bytes(data)
    assert shown and shown.isprintable() and shown == shown.strip() and not shown.startswith("-")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain text", "plain text"),
        ("größe 日本".encode(), "größe 日本"),
        (b"", "0x"),
        (b"\x00\xff", "0x00ff"),
        (b"two\nlines", "0x74776f0a6c696e6573"),
        (b"tab\there", "0x7461620968657265"),
        (b" space before", "0x207370616365206265666f7265"),
        (b"space after ", "0x7370616365206166746572 20".replace(" ", "")),
        ("\u202eright to left".encode(), "0x" + "\u202eright to left".encode().hex()),
        (b"0x12", "text:0x12"),
        (b"0X12", "0X12"),
        (b"base64:QQ==", "text:base64:QQ=="),
        (b"text:a", "text:text:a"),
        (b"-", "text:-"),
        (b"--help", "text:--help"),
        (b"\xff" * HEX_BYTES_MAX, "0x" + "ff" * HEX_BYTES_MAX),
        (b"\x00" * (HEX_BYTES_MAX + 1), "base64:" + "A" * 44),
    ],
)
def test_each_form_is_chosen_where_it_reads_best(data: bytes, shown: str) -> None:
    assert format_bytes(data) == shown
    assert parse_bytes(shown) == data


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b""),
        ("0xFFfe", b"\xff\xfe"),
        ("base64:", b""),
        ("base64:AP8=", b"\x00\xff"),
        ("text:", b""),
        ("text:0xzz", b"0xzz"),
        ("-5", b"-5"),
        ("two\nlines", b"two\nlines"),
    ],
)
def test_other_ways_to_write_the_same_are_read(text: str, data: bytes) -> None:
    assert parse_bytes(text) == data


@pytest.mark.parametrize(
    "text", ["0x1", "0xzz", "0x00 11", "0xé0", "base64:QQ", "base64:Q Q=", "base64:QQ==QQ==", "base64:é", "base64:-_=="]
)
def test_what_only_begins_like_bytes_is_refused_and_the_way_out_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="text:"):
        parse_bytes(text)


def test_bytes_of_an_argument_that_are_not_utf8_are_taken_as_given() -> None:
    assert parse_bytes("caf\udce9", argument=True) == b"caf\xe9"
    with pytest.raises(ValueError, match="0x"):
        parse_bytes("caf\udce9")
    with pytest.raises(ValueError, match="0x"):
        parse_bytes("\ud800", argument=True)
