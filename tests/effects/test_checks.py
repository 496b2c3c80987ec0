"""Times, durations, counters and texts: made uniform, or refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.effects.checks import U32_MAX, DurationShape, as_duration, as_instance, as_text, as_time, as_u32
from pystate.errors import MalformedError


class OtherTime(datetime):
    pass


class OtherText(str):
    def __str__(self) -> str:
        return "lied"


class OtherDuration(timedelta):
    pass


@given(st.datetimes(timezones=st.timezones()))
def test_a_time_of_any_zone_becomes_utc(value: datetime) -> None:
    try:
        expected = value.astimezone(UTC)
    except OverflowError:
        with pytest.raises(ValueError, match="out of range"):
            as_time(value, "now")
    else:
        made = as_time(value, "now")
        assert made == expected and made.tzinfo is UTC and type(made) is datetime


def test_a_time_of_another_class_becomes_a_plain_one() -> None:
    made = as_time(OtherTime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "now")
    assert type(made) is datetime and made == datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="now: .* has no time zone; give an aware time"):
        as_time(datetime(2024, 1, 1), "now")  # noqa: DTZ001


def test_a_time_out_of_range_in_utc_is_refused() -> None:
    with pytest.raises(ValueError, match="out of range"):
        as_time(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "now")


@pytest.mark.parametrize("value", [None, 0, "2024-01-01T00:00:00Z"], ids=repr)
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="now: expected a datetime"):
        as_time(value, "now")


def test_durations() -> None:
    assert as_duration(timedelta(0), "ttl") == timedelta(0)
    other = as_duration(OtherDuration(seconds=1, microseconds=2), "ttl")
    assert type(other) is timedelta and other == timedelta(seconds=1, microseconds=2)
    with pytest.raises(ValueError, match="ttl: .* is negative"):
        as_duration(-timedelta.resolution, "ttl")
    with pytest.raises(TypeError, match="ttl: expected a timedelta, not int"):
        as_duration(30, "ttl")  # type: ignore[arg-type]


def test_counters() -> None:
    assert (as_u32(0, "n"), as_u32(U32_MAX, "n")) == (0, 2**32 - 1)
    for wrong in (-1, 2**32):
        with pytest.raises(ValueError, match="n: .* is not between"):
            as_u32(wrong, "n")
    for other in (True, 1.0, "1", None):
        with pytest.raises(TypeError, match="n: expected an int"):
            as_u32(other, "n")  # type: ignore[arg-type]


def test_texts() -> None:
    made = as_text(OtherText("told"), "actor")
    assert type(made) is str and made == "told"
    assert as_text("é", "actor") == "é"
    with pytest.raises(ValueError, match="actor: .* lone surrogate"):
        as_text("a\udc80", "actor")
    with pytest.raises(TypeError, match="actor: expected a str, not bytes"):
        as_text(b"a", "actor")  # type: ignore[arg-type]


def test_instances() -> None:
    assert as_instance(1, int, "n") == 1
    with pytest.raises(TypeError, match="n: expected int, not str"):
        as_instance("1", int, "n")


@given(st.timedeltas(min_value=timedelta(0)))
def test_a_duration_in_json_and_back_is_the_same(duration: timedelta) -> None:
    shape = DurationShape.of(duration)
    assert DurationShape(**shape).duration("d") == duration
    assert 0 <= shape["nanos"] < 1_000_000_000


def test_the_json_of_a_duration() -> None:
    assert DurationShape.of(timedelta(days=1, seconds=9, microseconds=1)) == {"secs": 86_409, "nanos": 1000}


def test_what_is_smaller_than_a_microsecond_is_dropped() -> None:
    assert DurationShape(secs=0, nanos=1999).duration("d") == timedelta(microseconds=1)


@pytest.mark.parametrize(("secs", "nanos"), [(-1, 0), (0, -1), (0, 1_000_000_000), (10**15, 0)])
def test_other_durations_are_refused(secs: int, nanos: int) -> None:
    with pytest.raises(MalformedError):
        DurationShape(secs=secs, nanos=nanos).duration("d")
