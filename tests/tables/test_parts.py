"""Parts of keys: what is encoded comes back, byte order is value order, and no two tuples give the same bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.tables import (
    Part,
    blob,
    boolean,
    instant,
    int64,
    member,
    optional,
    rest_bytes,
    rest_text,
    segment,
    text,
    tuple_of,
    uint8,
    uint16,
    uint32,
    uint64,
)


class Level(Enum):
    LOW = 0
    HIGH = 255


def ranked(value: Any) -> Any:
    """A sort key for values that Python does not order: None first, members by value, text by its UTF-8."""
    if value is None:
        return (0,)
    if isinstance(value, Enum):
        return (1, value.value)
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, tuple):
        return (1, *(ranked(each) for each in value))
    return (1, value)


UTF8 = st.text(st.characters(codec="utf-8"), max_size=6)
NASTY = st.text("\0\x01\xffa", max_size=5)
INSTANTS = st.datetimes(timezones=st.just(UTC))
ORDERED: dict[str, tuple[Part[Any], st.SearchStrategy[Any]]] = {
    "uint8": (uint8, st.integers(0, 255)),
    "uint16": (uint16, st.integers(0, 2**16 - 1)),
    "uint32": (uint32, st.integers(0, 2**32 - 1)),
    "uint64": (uint64, st.integers(0, 2**64 - 1)),
    "int64": (int64, st.integers(-(2**63), 2**63 - 1)),
    "instant": (instant, INSTANTS),
    "boolean": (boolean, st.booleans()),
    "text": (text, UTF8 | NASTY),
    "blob": (blob, st.binary(max_size=6) | st.sampled_from([b"", b"\0", b"\0\0", b"\0\xff", b"\0\0\xff"])),
    "member": (member(Level), st.sampled_from(Level)),
    "optional fixed": (optional(uint32), st.none() | st.integers(0, 2**32 - 1)),
    "optional text": (optional(text), st.none() | NASTY),
    "rest_text": (rest_text, UTF8),
    "rest_bytes": (rest_bytes, st.binary(max_size=6)),
    "tuple": (
        tuple_of(text, int64, optional(blob), rest_text),
        st.tuples(NASTY, st.integers(-3, 3), st.none() | st.binary(max_size=2), UTF8),
    ),
}
SELF_DELIMITING = [
    name for name, (part, _) in ORDERED.items() if not part.last_only
]  # these may stand anywhere, so one behind the other too


@pytest.mark.parametrize("name", ORDERED)
@given(data=st.data())
def test_byte_order_is_value_order_and_values_come_back(name: str, data: st.DataObject) -> None:
    part, values = ORDERED[name]
    one, other = data.draw(values), data.draw(values)
    first, second = part.encode(one), part.encode(other)
    assert part.decode(first, 0) == (one, len(first))
    assert (first < second, first == second) == (ranked(one) < ranked(other), ranked(one) == ranked(other))
    if part.width is not None:
        assert len(first) == part.width


@given(st.lists(st.sampled_from(SELF_DELIMITING), min_size=1, max_size=4), st.data())
def test_parts_in_a_row_keep_order_and_can_be_told_apart(names: list[str], data: st.DataObject) -> None:
    parts = [ORDERED[name][0] for name in names]
    whole = tuple_of(*parts)
    one, other = (tuple(data.draw(ORDERED[name][1]) for name in names) for _ in range(2))
    first, second = whole.encode(one), whole.encode(other)
    assert whole.decode(b"in front" + first + b"behind", 8) == (one, 8 + len(first))
    assert (first < second) == (ranked(one) < ranked(other))


@given(st.tuples(NASTY, NASTY), st.tuples(NASTY, NASTY))
def test_segments_of_different_texts_differ(one: tuple[str, str], other: tuple[str, str]) -> None:
    pair = tuple_of(segment, segment)
    assert (pair.encode(one) == pair.encode(other)) == (one == other)
    assert pair.decode(pair.encode(one), 0)[0] == one


def test_a_segment_is_its_length_and_its_text() -> None:
    assert segment.encode("") == bytes(4)
    assert segment.encode("aé") == b"\0\0\0\x03a\xc3\xa9"


def test_instants_are_the_twelve_bytes_of_the_format() -> None:
    """Check R52: seconds with the top bit inverted, then nanoseconds, also before 1970."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = {
        -60.0: "7fffffffffffffc400000000",
        -0.5: "7fffffffffffffff1dcd6500",
        0.0: "800000000000000000000000",
        60.0: "800000000000003c00000000",
    }
    encoded = [instant.encode(epoch + timedelta(seconds=seconds)) for seconds in expected]
    assert [data.hex() for data in encoded] == list(expected.values())
    assert sorted(encoded) == encoded


def test_an_instant_is_the_same_in_every_time_zone() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert instant.encode(moment.astimezone(timezone(timedelta(hours=-7)))) == instant.encode(moment)


@pytest.mark.parametrize(
    ("part", "value", "error", "said"),
    [
        (uint32, -1, ValueError, "-1 is not in 0 to 4294967295"),
        (uint32, 2**32, ValueError, "is not in 0"),
        (int64, 2**63, ValueError, "is not in"),
        (uint8, True, TypeError, "an int expected, not bool"),
        (uint8, 1.0, TypeError, "an int expected, not float"),
        (instant, datetime(2026, 1, 1), ValueError, "no time zone"),  # noqa: DTZ001
        (instant, 5, TypeError, "a datetime expected"),
        (boolean, 1, TypeError, "a bool expected"),
        (text, b"a", TypeError, "a str expected, not bytes"),
        (text, "a\ud800", ValueError, "cannot be written as UTF-8"),
        (segment, "\udfff", ValueError, "cannot be written as UTF-8"),
        (rest_text, "\ud800", ValueError, "cannot be written as UTF-8"),
        (blob, "a", TypeError, "bytes expected"),
        (rest_bytes, bytearray(b"a"), TypeError, "bytes expected"),
        (member(Level), 0, TypeError, "a member of Level expected"),
        (optional(uint8), 256, ValueError, "is not in"),
        (tuple_of(uint8, text), (1,), TypeError, "a tuple of 2 expected"),
        (tuple_of(uint8, text), [1, "a"], TypeError, "a tuple of 2 expected"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(part: Part[Any], value: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        part.encode(value)


@pytest.mark.parametrize(
    ("part", "data", "said"),
    [
        (uint32, b"\0\0\0", "4 bytes expected at offset 0, 3 found"),
        (instant, bytes(11), "4 bytes expected at offset 8"),
        (instant, bytes(8) + b"\xff" * 4, "a second or more"),
        (instant, b"\xff" * 8 + bytes(4), "years 1 to 9999"),
        (boolean, b"\x02", "00 or 01 expected"),
        (text, b"abc", "has no end"),
        (text, b"abc\0", "has no end"),
        (text, b"\0\x01\0\0", "00 or ff expected at offset 1"),
        (text, b"\xff\0\0", "not UTF-8"),
        (segment, b"\0\0\0\x02a", "2 bytes expected at offset 4, 1 found"),
        (segment, b"\0\0\0\x01\xff", "not UTF-8"),
        (rest_text, b"\xff", "not UTF-8"),
        (member(Level), b"\x01", "1 is not a valid Level"),
        (optional(uint32), b"\0\0\0\0\x01", "0000000000 or 01 and a value expected"),
        (optional(uint32), b"\x02\0\0\0\0", "or 01 and a value expected"),
        (optional(text), b"", "1 bytes expected at offset 0"),
    ],
)
def test_bytes_that_are_no_value_are_refused(part: Part[Any], data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        part.decode(data, 0)


@pytest.mark.parametrize("name", [*ORDERED, "segment"])
@given(data=st.data())
def test_arbitrary_bytes_decode_or_raise_value_error(name: str, data: st.DataObject) -> None:
    part = segment if name == "segment" else ORDERED[name][0]
    garbage = data.draw(st.binary(max_size=20))
    try:
        value, at = part.decode(garbage, 0)
    except ValueError:
        return
    assert at <= len(garbage)
    if name not in ("instant", "tuple"):  # an instant has nanoseconds on the disk and microseconds in Python
        assert part.encode(value) == garbage[:at]


def test_a_part_without_an_end_can_only_be_the_last() -> None:
    with pytest.raises(ValueError, match="can only be its last"):
        tuple_of(rest_text, uint8)
    with pytest.raises(ValueError, match="no part"):
        tuple_of()


def test_an_enum_must_have_small_numbers() -> None:
    class Wide(Enum):
        MANY = 256

    class Words(Enum):
        ONE = "one"

    with pytest.raises(ValueError, match="256 is not in 0 to 255"):
        member(Wide)
    with pytest.raises(TypeError, match="an int expected"):
        member(Words)
