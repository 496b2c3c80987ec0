"""What the shapes of rows have in common: `RowValue` to declare one, `shape_of` to read it, `encode_value` to write it.

Promise: a shape is strict. A missing, surplus or wrongly typed position is an error, and so are bytes behind the value.
For the migrations only.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from pystate.formats import Shape
from pystate.tables.values import reason

__all__ = ["RowValue", "encode_value", "shape_of"]

R = TypeVar("R", bound="RowValue")

_encode = msgspec.msgpack.Encoder().encode


class RowValue(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The value of a row: an array with a position for each field, in their order. The key is not in it."""


def shape_of(kind: type[R]) -> Shape[R]:
    """The shape of rows whose values are `kind`, whatever their keys are.

    Raises:
        TypeError: a field has a default, so that a missing position would pass unseen.
    """
    if any(not field.required for field in msgspec.structs.fields(kind)):
        raise TypeError(f"{kind.__name__} is stored by position, so its fields can have no defaults")
    decode = msgspec.msgpack.Decoder(kind).decode
    fields = kind.__struct_fields__

    def read(key: bytes, value: bytes) -> R:
        try:
            return decode(value)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ValueError(reason(error, fields)) from None

    return read


def encode_value(value: RowValue) -> bytes:
    """The bytes of a value."""
    return _encode(value)
