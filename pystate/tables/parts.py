"""Encoders for one part of a key: a value to bytes whose order is the order of the values, and back.

Every part is *self-delimiting*: its end can be told from its bytes, so parts can follow one another and no two
different tuples give the same bytes. All but two also keep order: ``encode(a) < encode(b)`` exactly if ``a < b``, in a
tuple too, which is what makes a range of keys mean a range of values. The exceptions are `segment`, which puts the
length first and is for keys that are looked up by equality, and `rest_text`/`rest_bytes`, which have no end of their
own and can only come last.

=================== =========================== ==============================================================
part                value                       bytes
=================== =========================== ==============================================================
`uint8` … `uint64`  int, from 0                 big-endian, fixed width
`int64`             int, negative ones too      big-endian, 8 bytes, top bit inverted
`instant`           aware datetime              12 bytes: seconds since 1970 (as `int64`), nanoseconds (`uint32`)
`boolean`           bool                        1 byte
`text`, `blob`      str, bytes                  the bytes, with 00 written as 00 ff, and 00 00 as the end
`segment`           str                         length in bytes (`uint32`), then UTF-8; not in order
`rest_text`         str                         UTF-8, up to the end of the key; last part only
`rest_bytes`        bytes                       the bytes, up to the end of the key; last part only
`optional(part)`    None or a value             00, filled up with 00 to the part's width; or 01 and the part
`member(Enum)`      enum member with int value  `uint8` of its value
`tuple_of(a, b, …)` tuple                       one part after the other
=================== =========================== ==============================================================

`encode` raises ``TypeError`` or ``ValueError``, `decode` ``ValueError``; neither knows the name of the field or the
family, which callers add. Parts are immutable; threads may share them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from enum import Enum
from struct import Struct
from typing import Any, Generic, TypeVar

__all__ = [
    "Part",
    "blob",
    "boolean",
    "check_order",
    "instant",
    "int64",
    "member",
    "optional",
    "rest_bytes",
    "rest_text",
    "segment",
    "text",
    "tuple_of",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


class Part(ABC, Generic[T]):
    """One part of a key.

    Attributes:
        width: the number of bytes, when it is the same for every value; else None.
        last_only: it reaches to the end of the key, so nothing can follow it.
    """

    width: int | None = None
    last_only: bool = False

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """The bytes of `value`.

        Raises:
            TypeError: it is of another type. ValueError: it is out of range, or is text that UTF-8 cannot hold.
        """

    @abstractmethod
    def decode(self, data: bytes, at: int) -> tuple[T, int]:
        """The value that begins at offset `at`, and the offset after it.

        Raises:
            ValueError: there is no such value, or `data` ends before it does.
        """


def _take(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) != size:
        raise ValueError(f"{size} bytes expected at offset {at}, {len(piece)} found")
    return piece


class _Integer(Part[int]):
    def __init__(self, width: int, *, signed: bool) -> None:
        self.width = width
        self._size = width
        self._lowest = -(1 << (8 * width - 1)) if signed else 0
        self._highest = self._lowest + (1 << 8 * width) - 1

    def encode(self, value: int) -> bytes:
        if type(value) is not int:
            raise TypeError(f"an int expected, not {type(value).__name__}")
        if not self._lowest <= value <= self._highest:
            raise ValueError(f"{value} is not in {self._lowest} to {self._highest}")
        return (value - self._lowest).to_bytes(self._size, "big")

    def decode(self, data: bytes, at: int) -> tuple[int, int]:
        return int.from_bytes(_take(data, at, self._size), "big") + self._lowest, at + self._size


uint8: Part[int] = _Integer(1, signed=False)
"""An int from 0 to 255, in one byte."""
uint16: Part[int] = _Integer(2, signed=False)
"""An int from 0 to 65,535, in two bytes."""
uint32: Part[int] = _Integer(4, signed=False)
"""An int from 0 to 4,294,967,295, in four bytes."""
uint64: Part[int] = _Integer(8, signed=False)
"""An int from 0 to 2**64 - 1, in eight bytes."""
int64: Part[int] = _Integer(8, signed=True)
"""An int from -(2**63) to 2**63 - 1, in eight bytes."""


class _Instant(Part[datetime]):
    width = 12
    _pack = Struct(">QI").pack  # an `int64` and a `uint32` in one call: every expiry index makes several of these

    def encode(self, value: datetime) -> bytes:
        if not isinstance(value, datetime):
            raise TypeError(f"a datetime expected, not {type(value).__name__}")
        if value.utcoffset() is None:
            raise ValueError(f"{value!r} has no time zone; give an aware datetime, for example with tzinfo=UTC")
        since = value - _EPOCH  # seconds are rounded down and microseconds are never negative: so is a timedelta built
        return self._pack(since.days * 86_400 + since.seconds + (1 << 63), since.microseconds * 1000)

    def decode(self, data: bytes, at: int) -> tuple[datetime, int]:
        seconds, at = int64.decode(data, at)
        nanoseconds, at = uint32.decode(data, at)
        if nanoseconds >= 1_000_000_000:
            raise ValueError(f"{nanoseconds} nanoseconds are a second or more")
        try:
            return _EPOCH + seconds * _SECOND + timedelta(microseconds=nanoseconds // 1000), at
        except OverflowError:
            raise ValueError(f"{seconds} seconds since 1970 are not in the years 1 to 9999") from None


instant: Part[datetime] = _Instant()
"""An aware ``datetime``, to the microsecond, in twelve bytes; decoded as UTC. Naive ones are refused."""


class _Boolean(Part[bool]):
    width = 1

    def encode(self, value: bool) -> bytes:
        if type(value) is not bool:
            raise TypeError(f"a bool expected, not {type(value).__name__}")
        return b"\x01" if value else b"\x00"

    def decode(self, data: bytes, at: int) -> tuple[bool, int]:
        byte = _take(data, at, 1)
        if byte > b"\x01":
            raise ValueError(f"00 or 01 expected at offset {at}, {byte.hex()} found")
        return byte == b"\x01", at + 1


boolean: Part[bool] = _Boolean()
"""A ``bool``, in one byte."""


def _utf8(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"a str expected, not {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{value!r} cannot be written as UTF-8 ({error.reason} at character {error.start})") from None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{data!r} is not UTF-8 ({error.reason} at byte {error.start})") from None


class _Blob(Part[bytes]):
    def encode(self, value: bytes) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"bytes expected, not {type(value).__name__}")
        return value.replace(b"\x00", b"\x00\xff") + b"\x00\x00"

    def decode(self, data: bytes, at: int) -> tuple[bytes, int]:
        end = at
        while True:
            end = data.find(b"\x00", end)
            if end < 0 or end + 1 == len(data):
                raise ValueError(f"the part at offset {at} has no end")
            if data[end + 1] == 0:
                return data[at:end].replace(b"\x00\xff", b"\x00"), end + 2
            if data[end + 1] != 0xFF:
                raise ValueError(f"00 or ff expected at offset {end + 1}, {data[end + 1]:02x} found")
            end += 2


blob: Part[bytes] = _Blob()
"""``bytes`` in byte order, of any length, anywhere in a key."""


class _Text(Part[str]):
    def encode(self, value: str) -> bytes:
        return blob.encode(_utf8(value))

    def decode(self, data: bytes, at: int) -> tuple[str, int]:
        piece, at = blob.decode(data, at)
        return _text(piece), at


text: Part[str] = _Text()
"""A ``str`` in the order of its UTF-8 bytes, which is that of its code points; anywhere in a key."""


class _Segment(Part[str]):
    def encode(self, value: str) -> bytes:
        data = _utf8(value)
        return len(data).to_bytes(4, "big") + data

    def decode(self, data: bytes, at: int) -> tuple[str, int]:
        size, at = uint32.decode(data, at)
        return _text(_take(data, at, size)), at + size


segment: Part[str] = _Segment()
"""A ``str`` after its length: no end mark and nothing escaped, but shorter ones come first. For lookups by equality."""


class _RestBytes(Part[bytes]):
    last_only = True

    def encode(self, value: bytes) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"bytes expected, not {type(value).__name__}")
        return value

    def decode(self, data: bytes, at: int) -> tuple[bytes, int]:
        return data[at:], len(data)


rest_bytes: Part[bytes] = _RestBytes()
"""``bytes`` as they are, up to the end of the key; the last part of a key only."""


class _RestText(Part[str]):
    last_only = True

    def encode(self, value: str) -> bytes:
        return _utf8(value)

    def decode(self, data: bytes, at: int) -> tuple[str, int]:
        return _text(data[at:]), len(data)


rest_text: Part[str] = _RestText()
"""A ``str`` as UTF-8, up to the end of the key; the last part of a key only."""


class _Optional(Part[T | None]):
    def __init__(self, part: Part[T]) -> None:
        self._part = part
        self.width = None if part.width is None else part.width + 1
        self.last_only = part.last_only
        self._none = bytes(self.width or 1)

    def encode(self, value: T | None) -> bytes:
        return self._none if value is None else b"\x01" + self._part.encode(value)

    def decode(self, data: bytes, at: int) -> tuple[T | None, int]:
        mark = _take(data, at, 1)
        if mark == b"\x01":
            return self._part.decode(data, at + 1)
        if (found := _take(data, at, len(self._none))) != self._none:
            raise ValueError(f"{self._none.hex()} or 01 and a value expected at offset {at}, {found.hex()} found")
        return None, at + len(self._none)


def optional(part: Part[T]) -> Part[T | None]:
    """`part` or None, which comes before every value, and is as wide as one where `part` has a fixed width."""
    return _Optional(part)


class _Member(Part[E]):
    width = 1

    def __init__(self, kind: type[E]) -> None:
        for each in kind:
            uint8.encode(each.value)
        self._kind = kind

    def encode(self, value: E) -> bytes:
        if not isinstance(value, self._kind):
            raise TypeError(f"a member of {self._kind.__name__} expected, not {value!r}")
        return uint8.encode(value.value)

    def decode(self, data: bytes, at: int) -> tuple[E, int]:
        number, at = uint8.decode(data, at)
        return self._kind(number), at


def member(kind: type[E]) -> Part[E]:
    """A member of an enum whose values are ints from 0 to 255, in the order of these.

    Raises:
        TypeError, ValueError: a value of the enum is not such an int.
    """
    return _Member(kind)


class _Tuple(Part[tuple[Any, ...]]):
    def __init__(self, parts: tuple[Part[Any], ...]) -> None:
        self._parts = parts
        widths = [part.width for part in parts if part.width is not None]
        self.width = sum(widths) if len(widths) == len(parts) else None
        self.last_only = parts[-1].last_only

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, tuple) or len(value) != len(self._parts):
            raise TypeError(f"a tuple of {len(self._parts)} expected, not {value!r}")
        return b"".join([part.encode(each) for part, each in zip(self._parts, value, strict=True)])

    def decode(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        values = []
        for part in self._parts:
            value, at = part.decode(data, at)
            values.append(value)
        return tuple(values), at


def tuple_of(*parts: Part[Any]) -> Part[tuple[Any, ...]]:
    """A tuple, one part after the other, in the order of tuples.

    Raises:
        ValueError: there is no part, or a part that can only come last does not.
    """
    check_order(parts)
    return _Tuple(parts)


def check_order(parts: tuple[Part[Any], ...]) -> None:
    """Refuse no parts, and parts of which one that can only come last does not.

    Raises:
        ValueError: so it is.
    """
    if not parts:
        raise ValueError("no part is given")
    if any(part.last_only for part in parts[:-1]):
        raise ValueError("a part that reaches to the end of the key can only be its last; use text, blob or segment")
