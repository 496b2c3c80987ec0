"""Value codecs: a record to the value of its row, and back, by one call of msgspec each.

`WholeValue` stores the record as its ``msgspec.Struct`` says, key fields included: the default, and the choice of most
tables. `PositionalValue` stores an array of the fields that are not in the key, in the order of the class: nothing is
stored twice, and a missing, surplus or wrongly typed position is an error.

Both are strict in the same way: `encode` decodes what it has made before it returns it, so nothing is written that the
same table could not read, and an error names the field. Both raise `ValueError`, to which the table adds the family and
the key. Codecs are immutable; threads may share them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from pystate.tables.keys import Key

__all__ = ["PositionalValue", "ValueCodec", "WholeValue", "reason"]

R = TypeVar("R")

_encode = msgspec.msgpack.Encoder().encode
_PLACE = re.compile(r" - at `\$((?:\[\d+\]|\.)\S*)`$")


class ValueCodec(Protocol[R]):
    """What a table needs of a codec."""

    def encode(self, record: R) -> bytes:
        """The value of the row of `record`.

        Raises:
            ValueError: the record cannot be stored, or could not be read again; the message names the field.
        """
        ...

    def decode(self, key: bytes, value: bytes) -> R:
        """The record of a row.

        Raises:
            ValueError: `key` or `value` is not that of such a record; the message says why.
        """
        ...


def reason(error: Exception, fields: tuple[str, ...]) -> str:
    """The text of an error of msgspec, with the name of the field instead of its position."""
    text = str(error)
    place = _PLACE.search(text)
    if place is None:
        return text
    path = place[1]
    if position := re.match(r"\[(\d+)\]", path):
        if int(position[1]) >= len(fields):
            return text
        path = fields[int(position[1])] + path[position.end() :]
    return f"field {path.lstrip('.')!r}: {text[: place.start()]}"


class WholeValue(Generic[R]):
    """The whole record, as its Struct says: a map of fields, or an array with ``array_like=True``."""

    __slots__ = ("_decode", "_fields")

    def __init__(self, kind: type[R]) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._fields = msgspec.structs.fields(kind)  # type: ignore[arg-type]  # raises for what is no Struct

    def _names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._fields)

    def encode(self, record: R) -> bytes:
        try:
            value = _encode(record)
            _check_same(record, self._decode(value))
        except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise ValueError(reason(error, self._names())) from None
        return value

    def decode(self, key: bytes, value: bytes) -> R:
        try:
            return self._decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ValueError(reason(error, self._names())) from None


class PositionalValue(Generic[R]):
    """An array of the fields that are not in the key.

    The Struct is ``array_like`` and begins with the fields of the key, in the key's order, so that decoding is one
    call: what the key holds is put in front of the stored array again.

    Arguments:
        kind: the record type.
        key: the key of its table.
        dec_hook: makes what msgspec does not know, as its decoders take it.

    Raises:
        TypeError: the Struct is not ``array_like``, does not begin with the key's fields, or has a default (a missing
            position would pass unseen).
    """

    __slots__ = (
        "_decode", "_fields", "_header", "_key", "_key_size", "_size", "_text_key", "_whole_header", "_whole_size",
    )  # fmt: skip

    def __init__(self, kind: type[R], key: Key, *, dec_hook: Callable[[type, Any], Any] | None = None) -> None:
        fields = msgspec.structs.fields(kind)  # type: ignore[arg-type]  # raises for what is no Struct
        config: Any = kind.__struct_config__  # type: ignore[attr-defined]
        names = tuple(field.name for field in fields)
        if not config.array_like:
            raise TypeError(f"{kind.__name__} must be a Struct with array_like=True to be stored by position")
        if names[: len(key.fields)] != key.fields:
            raise TypeError(f"{kind.__name__} must begin with the fields of its key: {', '.join(key.fields)}")
        if any(not field.required for field in fields):
            raise TypeError(f"{kind.__name__} is stored by position, so its fields can have no defaults")
        self._fields = names
        self._key = key
        self._decode = msgspec.msgpack.Decoder(kind, dec_hook=dec_hook).decode
        self._whole_header = _array_header(len(names))
        self._header = _array_header(len(names) - len(key.fields))
        self._size, self._whole_size = len(self._header), len(self._whole_header)
        self._key_size = len(_array_header(len(key.fields)))
        self._text_key = key.is_text

    def encode(self, record: R) -> bytes:
        try:
            whole = _encode(record)
            _check_same(record, self._decode(whole))
            in_front = len(_encode(self._key.values(record))) - self._key_size
        except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise ValueError(reason(error, self._fields)) from None
        return self._header + whole[self._whole_size + in_front :]

    def decode(self, key: bytes, value: bytes) -> R:
        if not value.startswith(self._header):
            count = len(self._fields) - len(self._key.fields)
            raise ValueError(f"an array of {count} expected, {_first(value)} found")
        try:
            return self._decode(self._whole_header + self._in_front(key) + value[self._size :])
        except (msgspec.MsgspecError, ValueError) as error:
            raise ValueError(reason(error, self._fields)) from None
        except RecursionError:  # where a hook decides, msgspec first reads whatever there is
            raise ValueError("it is nested too deeply") from None

    def _in_front(self, key: bytes) -> bytes:
        """The values of the key as msgpack, one after the other: as an array, without its header."""
        if self._text_key:
            try:
                return _encode(key.decode())  # most keys are one text; this takes a third of the time
            except UnicodeDecodeError:
                pass  # as below, but with an error that names the field
        return _encode(self._key.decode(key))[self._key_size :]


def _check_same(record: Any, again: Any) -> None:
    """Refuse a record that would be read as another one: a number where an enum belongs, for example.

    Raises:
        ValueError: so it is.
    """
    if type(record) is not type(again):
        raise ValueError(f"a {type(record).__name__} would be read as a {type(again).__name__}")
    if record == again:
        return
    for field in record.__struct_fields__:
        mine, theirs = getattr(record, field), getattr(again, field)
        if not _same(mine, theirs):
            raise ValueError(f"field {field!r}: {mine!r} would be read as another value")


def _same(mine: Any, theirs: Any) -> bool:
    """Whether a value is what it was: equal, or as unequal to itself as NaN is; what holds others, by these."""
    if mine == theirs:
        return True
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, (list, tuple)):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    if isinstance(mine, dict):
        return len(mine) == len(theirs) and all(map(_same, mine.items(), theirs.items()))
    if isinstance(mine, msgspec.Struct):
        return all(_same(getattr(mine, field), getattr(theirs, field)) for field in mine.__struct_fields__)
    if isinstance(mine, (set, frozenset)):
        return {*map(type, mine)} == {*map(type, theirs)} and {*map(_encode, mine)} == {*map(_encode, theirs)}
    return _encode(mine) == _encode(theirs)


def _array_header(count: int) -> bytes:
    """The bytes that an array of `count` begins with."""
    return bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")


def _first(value: bytes) -> str:
    """What `value` begins with, in words."""
    if not value:
        return "nothing"
    if 0x90 <= value[0] <= 0x9F:
        return f"an array of {value[0] & 0x0F}"
    if value[0] == 0xDC and len(value) >= 3:
        return f"an array of {int.from_bytes(value[1:3], 'big')}"
    return f"something that begins with {value[:4].hex()}"
