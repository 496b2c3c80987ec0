"""`Schema`: which records stand in which family, under which key, as which value, with which indexes.

The declaration holds no state. It knows how a record becomes rows, and `store_record` and `remove_record` here are the
only code that writes them, so the rows of the indexes always change with the record, in the same commit. The handles of
`bound` call them. So does a table with rules of its own, which takes a `Schema` where others take a `Table`: a schema
has no `bind`, so nobody gets the generic operations for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from pystate import FamilyReader, FamilyWriter
from pystate.errors import DecodeError, InvalidRecordError, SlotTakenError
from pystate.tables.indexes import FIRST_TAG, AnyIndex, Index, check_declared, is_index_row
from pystate.tables.keys import Key, check_length
from pystate.tables.values import ValueCodec, WholeValue

__all__ = ["Schema"]

R = TypeVar("R")


class Schema(Generic[R]):
    """What a table consists of, without operations. Immutable; threads and stores may share it.

    Arguments:
        record: the type of its records, a ``msgspec.Struct``.
        family: the name of the family that holds the rows. It must exist: name it when opening the store.
        key: the fields of the record that identify it.
        value: the codec of the value; a `WholeValue` when left out.
        indexes: secondary indexes, kept in the same family; see `Index`.

    Raises:
        TypeError: `record` is no Struct. ValueError: two indexes share a name or a tag.

    A table with indexes refuses records whose key begins with a byte from 0xf8 up: there the rows of indexes begin.
    Text never does, nor do `int64` and `instant` up to about 8.6e18; a `uint32` does from 4,160,749,568 up.
    """

    __slots__ = ("_by_name", "_encode_key", "_key_of", "family", "indexes", "key", "record", "value")

    def __init__(
        self,
        record: type[R],
        *,
        family: str,
        key: Key,
        value: ValueCodec[R] | None = None,
        indexes: Sequence[AnyIndex[Any]] = (),
    ) -> None:
        check_declared(indexes)
        self.record = record
        self.family = family
        self.key = key
        self.value: ValueCodec[R] = WholeValue(record) if value is None else value
        self.indexes = tuple(indexes)
        self._by_name = {index.name: index for index in indexes}
        self._key_of = key.of
        self._encode_key = key.encode

    # Rows and records

    def row_key(self, record: R) -> bytes:
        """The key of the row of `record`.

        Raises:
            TypeError: it is not a record of this table.
            InvalidRecordError: its key cannot be encoded, is empty, is too long, or begins where the rows of indexes
            begin.
        """
        if not isinstance(record, self.record):
            raise TypeError(f"a {self.record.__name__} expected, not {type(record).__name__}")
        try:
            row_key = check_length(self._key_of(record))
        except (TypeError, ValueError) as error:
            raise self._refused(str(error)) from None
        if not row_key:
            raise self._refused(f"its key ({', '.join(self.key.fields)}) is empty")
        if self.indexes and is_index_row(row_key):
            raise self._refused(f"its key begins with {row_key[0]:#x}; from {FIRST_TAG:#x} up is for rows of indexes")
        return row_key

    def encode(self, record: R) -> bytes:
        """The value of the row of `record`.

        Raises:
            InvalidRecordError: it could not be read again; the message names the field.
        """
        try:
            return self.value.encode(record)
        except ValueError as error:
            raise self._refused(str(error)) from None

    def decode(self, key: bytes, value: bytes) -> R:
        """The record of a row.

        Raises:
            DecodeError: the row is not one of this table; no record stands under the empty key.
        """
        try:
            if not key:
                raise ValueError("its key is empty")
            return self.value.decode(key, value)
        except ValueError as error:
            raise DecodeError(family=self.family, key=key, kind=self.record.__name__, reason=str(error)) from None

    def check_key(self, row_key: bytes) -> None:
        """Refuse what is not the key of a record, before it is looked for or because it was not found.

        Raises:
            DecodeError: it is not.
        """
        try:
            self.key.decode(row_key)
        except ValueError as error:
            raise DecodeError(family=self.family, key=row_key, kind=self.record.__name__, reason=str(error)) from None

    def _refused(self, reason: str) -> InvalidRecordError:
        return InvalidRecordError(family=self.family, kind=self.record.__name__, reason=reason)

    def index(self, name: str) -> Index[R]:
        """The index of this name.

        Raises:
            KeyError: there is none. TypeError: it is of a kind that has no lookups.
        """
        index = self._by_name.get(name)
        if index is None:
            raise KeyError(f"no index {name!r} in table {self.family!r}; there are {sorted(self._by_name)}")
        if not isinstance(index, Index):
            raise TypeError(f"index {name!r} is a {type(index).__name__}, which has operations of its own")
        return index

    # Reading, in one state

    def stored(self, rows: FamilyReader, row_key: bytes) -> R | None:
        """The record under a row key, or None.

        Raises:
            DecodeError: there is a row, but not one of this table.
        """
        value = rows.get(row_key)
        return None if value is None else self.decode(row_key, value)

    def scan(
        self,
        rows: FamilyReader,
        *,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        prefix: tuple[Any, ...] | bytes = b"",
        seek: tuple[Any, ...] | bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of records, in key order: without the empty key, which holds the ids of an indexed table, and
        without the rows of indexes. For the other arguments see `Scannable.iter`."""
        low = b"\x00"
        high = bytes((FIRST_TAG,)) if self.indexes else None
        if start is not None:
            low = max(low, self._prefix(start))
        if stop is not None:
            high = _lower(high, self._prefix(stop))
        if seek is not None:
            at = seek if isinstance(seek, bytes) else self._prefix(seek)
            if reverse:
                high = _lower(high, at + b"\x00")  # the smallest key above it, so `at` itself is within
            else:
                low = max(low, at)
        beginning = prefix if isinstance(prefix, bytes) else self._prefix(prefix)
        return rows.scan(low, high, prefix=beginning, reverse=reverse, limit=limit)

    def _prefix(self, values: tuple[Any, ...]) -> bytes:
        if not isinstance(values, tuple):
            raise TypeError(f"a tuple of values expected, such as ({values!r},), not {type(values).__name__}")
        return self.key.prefix(*values)

    def find(
        self,
        rows: FamilyReader,
        index: str,
        values: tuple[Any, ...],
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[R]:
        """The records in an index whose first fields have these values, in its order. Raises as `Readable.find`."""
        prefix = self.index(index).prefix(*values)
        return self._named(rows, rows.scan(prefix=prefix, reverse=reverse, limit=limit))

    def between(
        self,
        rows: FamilyReader,
        index: str,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        *,
        include_stop: bool = False,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[R]:
        """The records in an index from `start` to `stop`, in its order. Raises as `Readable.between`."""
        prefix = self.index(index).prefix
        high = after(prefix()) if stop is None else prefix(*stop)
        if include_stop and stop is not None and high is not None:
            high = after(high)
        return self._named(rows, rows.scan(prefix(*(start or ())), high, reverse=reverse, limit=limit))

    def _named(self, rows: FamilyReader, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[R]:
        """The records that index rows name. What is not there is passed over: `check_table` tells of it."""
        for _, row_key in entries:
            record = self.stored(rows, row_key)
            if record is not None:
                yield record

    # Writing, in a transaction

    def store_record(self, rows: FamilyWriter, record: R) -> None:
        """Write `record` and its index rows, whatever was stored under its key.

        Arguments:
            rows: the table's family in an open transaction.

        Raises:
            SlotTakenError: another record holds a slot of a unique index. InvalidRecordError: see `encode`.
            DecodeError: what is stored under its key cannot be read, so neither could its index rows be found; delete
            it first. Nothing has been written then.
        """
        row_key = self.row_key(record)
        self.replace_row(rows, row_key, self.stored(rows, row_key) if self.indexes else None, record)

    def replace_row(self, rows: FamilyWriter, row_key: bytes, old: R | None, new: R) -> None:
        """Write `new` and its index rows under `row_key`, where `old` is stored now. Raises as `store_record`."""
        value = self.encode(new)
        changes = self._prepare(rows, row_key, old, new)
        for index, prepared in changes:
            index.change(rows, row_key, prepared)
        rows.put(row_key, value)

    def move_row(self, rows: FamilyWriter, old_key: bytes, new_key: bytes, old: R, new: R) -> None:
        """Write `new` and its index rows under `new_key` instead of `old` under `old_key`. Raises as `store_record`."""
        value = self.encode(new)
        leaving = self._prepare(rows, old_key, old, None)
        coming = self._prepare(rows, new_key, None, new, instead_of=old_key)
        for index, prepared in leaving:
            index.change(rows, old_key, prepared)
        for index, prepared in coming:
            index.change(rows, new_key, prepared)
        rows.delete(old_key)
        rows.put(new_key, value)

    def _prepare(
        self,
        rows: FamilyReader,
        row_key: bytes,
        old: R | None,
        new: R | None,
        instead_of: bytes | None = None,
    ) -> list[tuple[AnyIndex[R], Any]]:
        """What the indexes have to change. All of them are asked before the first one writes, so that whatever is
        refused leaves nothing behind in a transaction that goes on."""
        changes = []
        for index in self.indexes:
            try:
                prepared = index.prepare(rows, row_key, old, new, instead_of=instead_of)
            except SlotTakenError:
                raise
            except (TypeError, ValueError) as error:
                raise self._refused(f"index {index.name!r}: {error}") from None
            if prepared is not None:
                changes.append((index, prepared))
        return changes

    def remove_record(self, rows: FamilyWriter, row_key: bytes) -> bool:
        """Delete the row under `row_key`, if there is one, and its index rows; return whether there was one.

        What cannot be read is deleted too. Cost: then all index rows of the table.
        """
        if not self.indexes:
            found = row_key in rows
            rows.delete(row_key)
            return found
        value = rows.get(row_key)
        if value is None:
            return False
        try:
            old = self.decode(row_key, value)
        except DecodeError:
            for index in self.indexes:
                index.forget(rows, row_key)
        else:
            for index, prepared in self._prepare(rows, row_key, old, None):
                index.change(rows, row_key, prepared)
        rows.delete(row_key)
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.record.__name__} in family {self.family!r}: {self.key!r}>"


def after(prefix: bytes) -> bytes | None:
    """The smallest key above every key that begins with `prefix`; None when there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else None


def _lower(one: bytes | None, other: bytes) -> bytes:
    return other if one is None else min(one, other)
