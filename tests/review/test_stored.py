"""What records are made of: enums with two numbers, ints of a certain size, instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from pystate.review.stored import I64, U8, U32, Instant, StoredEnum


class Colour(StoredEnum):
    RED = 0, 10
    DARK_BLUE = 1, 20


def test_enum_members_have_a_stored_index_a_number_and_a_text() -> None:
    assert [(each.value, each.number, each.text) for each in Colour] == [(0, 10, "red"), (1, 20, "dark_blue")]
    assert msgspec.convert(1, Colour) is Colour.DARK_BLUE
    assert Colour.from_text("dark_blue") is Colour.DARK_BLUE


def test_enum_member_of_an_unknown_text_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'DARK_BLUE' is no Colour; there are red, dark_blue"):
        Colour.from_text("DARK_BLUE")


def test_only_the_stored_index_is_written() -> None:
    assert msgspec.msgpack.encode([Colour.RED, Colour.DARK_BLUE]) == b"\x92\x00\x01"
    assert msgspec.msgpack.decode(b"\x92\x00\x01", type=list[Colour]) == [Colour.RED, Colour.DARK_BLUE]


@pytest.mark.parametrize("value", [b"\x02", b"\x0a", b"\xa3red"], ids=["unknown", "number", "text"])
def test_what_is_no_stored_index_is_refused(value: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(value, type=Colour)


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [(U8, 0, 2**8 - 1), (U32, 0, 2**32 - 1), (I64, -(2**63), 2**63 - 1)],
    ids=["U8", "U32", "I64"],
)
def test_ints_are_refused_outside_their_range(kind: Any, lowest: int, highest: int) -> None:
    for number in (lowest, highest):
        assert msgspec.convert(number, kind) == number
    for number in (lowest - 1, highest + 1):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(number, kind)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone(timedelta(hours=9))),
    ],
    ids=str,
)
def test_instants_come_back_as_utc(moment: datetime) -> None:
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(moment), type=Instant)
    assert decoded == moment
    assert decoded.tzinfo is UTC


def test_instant_without_a_time_zone_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="timezone"):
        msgspec.convert(datetime(2023, 11, 14, tzinfo=UTC).replace(tzinfo=None), Instant)
