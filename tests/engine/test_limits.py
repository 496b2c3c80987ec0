"""The limits of a store, and the checks that apply them before anything is written (row 78)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.engine.limits import (
    COMMIT_BYTES_MAX,
    FAMILY_NAME_BYTES_MAX,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    as_key,
    as_value,
    check_family_name,
)


class Claims(bytes):
    """Bytes that say they are longer than they are, so that no test needs that much memory."""

    size = 0

    def __len__(self) -> int:
        return self.size


def claiming(size: int) -> Claims:
    data = Claims(b"x")
    data.size = size
    return data


@given(st.binary(max_size=100))
def test_data_in_any_form_is_returned_as_bytes(data: bytes) -> None:
    """Promise: what passes is read back byte for byte; other buffers are copied."""
    for check in (as_key, as_value):
        for form in (data, bytearray(data), memoryview(data), memoryview(data + data)[: len(data)]):
            result = check(form)
            assert result == data
            assert type(result) is bytes


def test_bytes_are_not_copied_and_other_buffers_are() -> None:
    """A later change of the caller's buffer does not reach the store."""
    data = b"data"
    assert as_key(data) is data
    assert as_value(data) is data
    buffer = bytearray(b"data")
    kept = as_value(buffer)
    buffer[0] = 0
    assert kept == b"data"
    view = memoryview(bytearray(b"data"))
    kept = as_key(view)
    view[0] = 0
    assert kept == b"data"


def test_memoryview_of_wider_items_counts_its_bytes() -> None:
    """A memoryview of numbers has a length in numbers; the limit is in bytes."""
    wide = memoryview(bytearray(KEY_BYTES_MAX + 8)).cast("Q")
    assert len(wide) < KEY_BYTES_MAX
    with pytest.raises(ValueError, match=str(KEY_BYTES_MAX + 8)):
        as_key(wide)
    assert as_key(memoryview(bytearray(KEY_BYTES_MAX)).cast("Q")) == bytes(KEY_BYTES_MAX)


def test_size_at_the_limit_passes_and_one_more_is_refused() -> None:
    """Row 78: limit and limit plus one, without having to make so much data."""
    for check, limit in ((as_key, KEY_BYTES_MAX), (as_value, VALUE_BYTES_MAX)):
        assert check(claiming(limit)) == b"x"
        for size in (limit + 1, 2**40, 2**62):
            with pytest.raises(ValueError, match=str(size)):
                check(claiming(size))


@pytest.mark.parametrize("data", [None, "text", 1, 1.0, True, [1], (1,), {b"k": b"v"}, Ellipsis], ids=repr)
def test_data_that_is_no_buffer_is_refused(data: Any) -> None:
    """Row 77: None is not an empty key, and text is not bytes."""
    for check, what in ((as_key, "key"), (as_value, "value")):
        with pytest.raises(TypeError, match=what):
            check(data)


def test_text_is_refused_with_the_way_out() -> None:
    """The commonest mistake is told what to do."""
    with pytest.raises(TypeError, match="encode"):
        as_key("text")


@pytest.mark.parametrize(
    "name", ["a", "default", "x" * FAMILY_NAME_BYTES_MAX, "ü" * 127, "名前", "a b", "a/b", ".", "~"]
)
def test_family_name_of_printable_text_passes(name: str) -> None:
    """Row 79: up to the limit in bytes of UTF-8, whatever the script."""
    assert check_family_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * (FAMILY_NAME_BYTES_MAX + 1),
        "ü" * 128,
        "\ud800",
        "a\udfffb",
        *map(chr, range(32)),
        "a\x7f",
        "\x80",
        "\x9f",
        "a\n",
    ],
    ids=ascii,
)
def test_family_name_that_cannot_be_told_or_stored_is_refused(name: str) -> None:
    """Row 79: nothing without a UTF-8 form, no control character, not too long."""
    with pytest.raises(ValueError, match="family name"):
        check_family_name(name)


@pytest.mark.parametrize("name", [None, b"bytes", 1, ["a"], Ellipsis], ids=repr)
def test_family_name_that_is_no_text_is_refused(name: object) -> None:
    """Row 79: bytes are not a name."""
    with pytest.raises(TypeError, match="family name"):
        check_family_name(name)


@given(st.text(max_size=300))
def test_family_name_of_any_text_passes_whole_or_is_refused(name: str) -> None:
    """Row 79: exact round trip through UTF-8, or ValueError."""
    try:
        passed = check_family_name(name)
    except ValueError:
        return
    assert passed == name
    assert 1 <= len(name.encode()) <= FAMILY_NAME_BYTES_MAX
    assert name.encode().decode() == name


def test_family_name_of_a_subclass_of_str_becomes_plain() -> None:
    """What is kept does not carry somebody's methods."""

    class Name(str):
        __slots__ = ()

    assert type(check_family_name(Name("name"))) is str


def test_largest_commit_fits_into_a_frame() -> None:
    """The length field of a frame has 32 bits."""
    assert COMMIT_BYTES_MAX < 2**32
    assert VALUE_BYTES_MAX + KEY_BYTES_MAX < COMMIT_BYTES_MAX
