"""What several records here have in common: a codec that compares value and key, and lists that become tuples."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from pystate.tables import Key, WholeValue

__all__ = ["KeyedValue", "freeze"]

R = TypeVar("R")


class KeyedValue(WholeValue[R]):
    """The value of a record that holds the fields of its key too; one that belongs under another key is no value.

    Arguments:
        kind: the record type, a Struct with ``array_like=True`` whose fields have no defaults.
        key: the key of its table.
    """

    __slots__ = ("_key",)

    def __init__(self, kind: type[R], key: Key) -> None:
        super().__init__(kind)
        self._key = key

    def decode(self, key: bytes, value: bytes) -> R:
        record = super().decode(key, value)
        belongs = self._key.of(record)
        if belongs != key:
            fields = dict(zip(self._key.fields, self._key.values(record), strict=True))
            raise ValueError(f"by its value ({fields}) it belongs under the key {belongs!r}")
        return record


def freeze(record: msgspec.Struct, *fields: str) -> None:
    """Make tuples of the lists that were given for these fields, so that a record equals what is read back of it.

    For ``__post_init__`` of a record only.
    """
    for field in fields:
        value = getattr(record, field)
        if type(value) is list:
            msgspec.structs.force_setattr(record, field, tuple(value))
