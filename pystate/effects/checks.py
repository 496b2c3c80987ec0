"""What arguments of the effect ledger have in common: times, durations, counters and texts, checked and made uniform.

Each function returns the value in the one form that is stored, so that what a call returns equals what a later read
returns. None reads a clock. For the modules of `pystate.effects` only.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from pystate.errors import MalformedError

__all__ = [
    "U32_MAX",
    "DurationShape",
    "as_duration",
    "as_instance",
    "as_text",
    "as_time",
    "as_u32",
    "convert",
    "is_utf8",
    "settle_text",
    "settle_time",
]

U32_MAX = 2**32 - 1
"""The largest counter and schema version."""

_NO_TIME = timedelta(0)
_T = TypeVar("_T")


def as_time(value: datetime, name: str) -> datetime:
    """A point in time in UTC.

    Arguments:
        value: an aware time, of any zone.
        name: what it is, for the error.

    Raises:
        TypeError: not a `datetime`.
        ValueError: naive, or not representable in UTC.
    """
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    if not isinstance(value, datetime):
        raise TypeError(f"{name}: expected a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise ValueError(f"{name}: {value!r} has no time zone; give an aware time, such as datetime.now(timezone.utc)")
    try:
        utc = value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{name}: {value!r} is out of range in UTC") from None
    # A subclass of `datetime` keeps its class in `astimezone`, and has no stored form.
    return datetime(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, UTC)


def as_duration(value: timedelta, name: str) -> timedelta:
    """A duration that is not negative.

    Raises:
        TypeError: not a `timedelta`.
        ValueError: negative.
    """
    if not isinstance(value, timedelta):
        raise TypeError(f"{name}: expected a timedelta, not {type(value).__name__}")
    if value < _NO_TIME:
        raise ValueError(f"{name}: {value!r} is negative; give a duration of zero or more")
    return value if type(value) is timedelta else timedelta(value.days, value.seconds, value.microseconds)


def as_u32(value: int, name: str) -> int:
    """A counter or a version: an integer from 0 to 2**32 - 1.

    Raises:
        TypeError: not an `int`, or a `bool`.
        ValueError: out of range.
    """
    if type(value) is not int:
        raise TypeError(f"{name}: expected an int, not {type(value).__name__}")
    if not 0 <= value <= U32_MAX:
        raise ValueError(f"{name}: {value} is not between 0 and {U32_MAX}")
    return value


def is_utf8(text: str) -> bool:
    """Whether UTF-8 has a form for the text: it holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(value: str, name: str) -> str:
    """A text, as plain `str`.

    Raises:
        TypeError: not a `str`.
        ValueError: with a lone surrogate, for which UTF-8 has no form.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a str, not {type(value).__name__}")
    if not is_utf8(value):
        raise ValueError(f"{name}: {value!r} holds a lone surrogate, which UTF-8 cannot hold; take it out")
    return value if type(value) is str else str.__str__(value)


def as_instance(value: _T, kind: type[_T], name: str) -> _T:
    """The value itself, if it is an instance of `kind`.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected {kind.__name__}, not {type(value).__name__}")
    return value


def settle_text(record: msgspec.Struct, *names: str) -> None:
    """Check these fields of a record that is being made, each a text or None, and make plain `str` of them.

    Raises:
        TypeError, ValueError: as `as_text` does.
    """
    for name in names:
        given = getattr(record, name)
        if given is not None:
            text = as_text(given, name)
            if text is not given:
                msgspec.structs.force_setattr(record, name, text)


def settle_time(record: msgspec.Struct, *names: str) -> None:
    """Check these fields of a record that is being made, each a time or None, and make UTC of them.

    Raises:
        TypeError, ValueError: as `as_time` does.
    """
    for name in names:
        given = getattr(record, name)
        if given is not None:
            utc = as_time(given, name)
            if utc is not given:
                msgspec.structs.force_setattr(record, name, utc)


def convert(value: Any, shape: type[_T], what: str) -> _T:
    """Decoded JSON as an instance of a shape: no field missing, none unknown, each of its type.

    Raises:
        MalformedError: it does not fit; the text says where.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise MalformedError(what, str(error)) from None


class DurationShape(msgspec.Struct, forbid_unknown_fields=True):
    """A duration in JSON: whole seconds, and nanoseconds below a second."""

    secs: int
    nanos: int

    @classmethod
    def of(cls, duration: timedelta) -> dict[str, int]:
        """The JSON form of a duration."""
        return {"secs": duration.days * 86_400 + duration.seconds, "nanos": duration.microseconds * 1000}

    def duration(self, what: str) -> timedelta:
        """The duration; what is smaller than a microsecond is dropped.

        Raises:
            MalformedError: negative, with a second or more of nanoseconds, or longer than a `timedelta` can be.
        """
        if self.secs < 0 or not 0 <= self.nanos < 1_000_000_000:
            raise MalformedError(what, f"no duration: secs {self.secs}, nanos {self.nanos}")
        try:
            return timedelta(seconds=self.secs, microseconds=self.nanos // 1000)
        except OverflowError:
            raise MalformedError(what, f"a duration of {self.secs} seconds is longer than {timedelta.max}") from None
