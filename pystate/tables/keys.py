"""`Key`: the one encoder of composite keys, from the fields of a record to bytes and back.

A key is declared as the fields that make it up, in order, each with a part (``parts``)::

    Key(owner=text, number=uint32)

No two different tuples of values give the same bytes. The fields are attributes of the record, properties included. A
table's key, and every index's key, is a `Key`. Immutable; threads may share it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from pystate.tables.parts import Part, check_order, rest_text

__all__ = ["KEY_BYTES_MAX", "Key", "check_length"]

KEY_BYTES_MAX = 64 * 1024
"""The longest key that a store takes, in bytes."""


class Key:
    """A composite key: named fields, each with the part that encodes it.

    Attributes:
        fields: the names, in order.

    Raises:
        TypeError: no field, or something that is no `Part`. ValueError: a part that can only come last does not.
    """

    __slots__ = ("_decode", "_encode", "_get", "_parts", "fields")

    def __init__(self, **parts: Part[Any]) -> None:
        if not parts:
            raise TypeError("a key needs a field, for example Key(name=text)")
        for name, part in parts.items():
            if not isinstance(part, Part):
                raise TypeError(f"key field {name!r}: a part expected, such as tables.text, not {part!r}")
        self.fields = tuple(parts)
        self._parts = tuple(parts.values())
        check_order(self._parts)
        self._encode: tuple[Callable[[Any], bytes], ...] = tuple(part.encode for part in self._parts)
        self._decode = tuple(part.decode for part in self._parts)
        self._get = attrgetter(*self.fields)

    @property
    def is_text(self) -> bool:
        """Whether the key is one text as it is."""
        return self._parts == (rest_text,)

    @property
    def ends_open(self) -> bool:
        """Whether the last part reaches to the end of the key, so that nothing can follow it."""
        return self._parts[-1].last_only

    def values(self, record: Any) -> tuple[Any, ...]:
        """The values of the key's fields in `record`, in order.

        Raises:
            AttributeError: the record has no such field.
        """
        found = self._get(record)
        return found if len(self.fields) > 1 else (found,)

    def of(self, record: Any) -> bytes:
        """The key of `record`.

        Raises:
            TypeError, ValueError: a field cannot be encoded; the message names it. AttributeError: there is no such.
        """
        encoders = self._encode
        try:
            if len(encoders) == 1:
                return encoders[0](self._get(record))
            return b"".join([encode(value) for encode, value in zip(encoders, self._get(record), strict=True)])
        except (TypeError, ValueError):
            return self.prefix(*self.values(record))  # raises again, with the name of the field

    def encode(self, *values: Any) -> bytes:
        """The key with these values, one for each field.

        Raises:
            TypeError: too many or too few, or one of another type. ValueError: one that is out of range.
        """
        encoders = self._encode
        if len(values) != len(encoders):
            raise TypeError(f"{len(self.fields)} values expected ({', '.join(self.fields)}), {len(values)} given")
        try:
            if len(encoders) == 1:
                return encoders[0](values[0])
            return b"".join([encode(value) for encode, value in zip(encoders, values, strict=True)])
        except (TypeError, ValueError):
            return self.prefix(*values)  # raises again, with the name of the field

    def prefix(self, *values: Any) -> bytes:
        """What every key begins with whose first fields have these values; with none, the empty prefix.

        Raises:
            TypeError: more values than fields, or one of another type. ValueError: one that is out of range.
        """
        if len(values) > len(self._encode):
            raise TypeError(f"at most {len(self.fields)} values ({', '.join(self.fields)}), {len(values)} given")
        at = 0
        pieces = []
        try:
            for encode, value in zip(self._encode, values, strict=False):
                pieces.append(encode(value))
                at += 1
        except (TypeError, ValueError) as error:
            raise type(error)(f"key field {self.fields[at]!r}: {error}") from None
        return b"".join(pieces)

    def decode(self, data: bytes, at: int = 0) -> tuple[Any, ...]:
        """The values in a key that begins at offset `at` and reaches to the end of `data`.

        Raises:
            ValueError: it is not such a key, or bytes are left over.
        """
        values, at = self.decode_part(data, at)
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes too many after the key's last field {self.fields[-1]!r}")
        return values

    def decode_part(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        """The values in a key that begins at offset `at`, and the offset after it.

        Raises:
            ValueError: it is not such a key.
        """
        values: list[Any] = []
        try:
            for decode in self._decode:
                value, at = decode(data, at)
                values.append(value)
        except ValueError as error:
            raise ValueError(f"key field {self.fields[len(values)]!r}: {error}") from None
        return tuple(values), at

    def __repr__(self) -> str:
        return f"<Key {', '.join(self.fields)}>"


def check_length(key: bytes) -> bytes:
    """Return `key`, unless no store would take it.

    Raises:
        ValueError: it is longer than `KEY_BYTES_MAX`.
    """
    if len(key) > KEY_BYTES_MAX:
        raise ValueError(f"it would need a key of {len(key):,} bytes, and a store takes {KEY_BYTES_MAX:,} at most")
    return key
