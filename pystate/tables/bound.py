"""Tables bound to a store, a transaction or a view: what can be done with them, capability by capability.

`Readable`, `Scannable` and `Writable` are the three; `BoundTable` has all, `BoundView` has no writes. A table with
other rules is a class of its own that inherits what it admits, or nothing, and calls its `Schema`: what it does not
inherit is not there, for the type checker and at run time.

Bound to a store, every writing method is one commit and runs again on a conflict, as `Store.transact` does, unless it
says otherwise; every read sees one state. Bound to a transaction, all happens within it: reads are tracked, and nothing
is committed here. Handles hold no state, so threads may share those of a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from pystate import FamilyReader, FamilyWriter, Store, Transaction, View, transact
from pystate.errors import ConflictError, DecodeError, KeyExistsError, NoSuchEntryError, ValueMismatchError
from pystate.tables.checking import IndexProblem, check_table, rebuild_indexes
from pystate.tables.schema import Schema

__all__ = ["Bound", "BoundTable", "BoundView", "Readable", "Scannable", "Writable"]

R = TypeVar("R")
T = TypeVar("T")


class Bound(Generic[R]):
    """A schema and what it is bound to; the base of every bound table, which offers nothing by itself.

    Arguments:
        schema: of the table.
        source: an open store, transaction or view that has its family.

    Raises:
        FamilyNotFoundError: it has no such family. ClosedError: it has ended.
    """

    __slots__ = ("_family", "_schema", "_source")

    def __init__(self, schema: Schema[R], source: Store | Transaction | View) -> None:
        self._schema = schema
        self._source = source
        self._family: FamilyReader = source.family(schema.family)

    @contextmanager
    def _reading(self) -> Iterator[FamilyReader]:
        """The family in one state, for reads that belong together."""
        if isinstance(self._source, Store):
            with self._source.view() as view:
                yield view.family(self._schema.family)
        else:
            yield self._family

    def _writing(self, function: Callable[[FamilyWriter], T], **options: Any) -> T:
        """Run `function` on the family: in a transaction of its own, or in the one it is bound to."""
        if isinstance(self._source, View):
            raise TypeError("this table is bound to a view, which is for reading; bind it to a store or a transaction")
        return transact(self._source, lambda txn: function(txn.family(self._schema.family)), **options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._schema!r} in {self._source!r}>"


class Readable(Bound[R]):
    """Reading by key and through indexes."""

    __slots__ = ()

    def get(self, *key: Any) -> R | None:
        """The record with this key, or None.

        Arguments:
            key: the values of the key's fields, in order.

        Raises:
            DecodeError: the row cannot be read. TypeError, ValueError: these are no values of the key.
        """
        row_key = self._schema.key.encode(*key)
        value = self._family.get(row_key)
        return None if value is None else self._schema.decode(row_key, value)

    def lookup(self, index: str, *values: Any) -> R | None:
        """The record that holds these values in a unique index, or None.

        Arguments:
            index: the name of the index.
            values: of all fields of the index's key.

        Raises:
            KeyError: there is no such index. ValueError: it is not unique. DecodeError: the row cannot be read.
        """
        found = self._schema.index(index)
        with self._reading() as rows:
            row_key = found.slot(rows, *values)
            return None if row_key is None else self._schema.stored(rows, row_key)

    def find(self, index: str, *values: Any, reverse: bool = False, limit: int | None = None) -> list[R]:
        """The records in an index whose first fields have these values; all of the index when there are none.

        Arguments:
            index: the name of the index.
            values: of the first fields of the index's key.
            reverse: from the last down.
            limit: at most so many.

        Returns:
            The records in the order of the index. Cost: what is returned.

        Raises:
            KeyError: there is no such index. DecodeError: a row cannot be read.
        """
        with self._reading() as rows:
            return list(self._schema.find(rows, index, values, reverse=reverse, limit=limit))

    def between(
        self,
        index: str,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        *,
        include_stop: bool = False,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[R]:
        """The records in an index from `start` (inclusive) to `stop` (exclusive).

        Arguments:
            index: the name of the index.
            start, stop: values of the first fields of the index's key; None is unbounded.
            include_stop: those with the values of `stop` too.
            reverse: from the last down.
            limit: at most so many.

        Returns:
            The records in the order of the index. Cost: what is returned.

        Raises:
            KeyError: there is no such index. DecodeError: a row cannot be read.
        """
        with self._reading() as rows:
            found = self._schema.between(
                rows, index, start, stop, include_stop=include_stop, reverse=reverse, limit=limit
            )
            return list(found)

    def check(self) -> list[IndexProblem]:
        """Compare every index row with what the records say; none returned means that all is right. Cost: all rows."""
        with self._reading() as rows:
            return check_table(self._schema, rows)


class Scannable(Bound[R]):
    """Reading all records, or a range of them, in key order."""

    __slots__ = ()

    def iter(
        self,
        *,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        prefix: tuple[Any, ...] | bytes = b"",
        seek: tuple[Any, ...] | bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[R]:
        """The records in key order, as of the call.

        Arguments:
            start, stop: from `start` (inclusive) to `stop` (exclusive), in both directions; values of the first fields
                of the key; None is unbounded.
            prefix: only keys that begin so: values of the first fields, or bytes.
            seek: begin there, or at the next key in the direction of the scan: the smallest not below it, or with
                `reverse` the largest not above it. Values of the first fields, or bytes.
            reverse: from the last down.
            limit: at most so many.

        Raises:
            DecodeError: a row cannot be read; raised when it is reached. `iter_results` goes on.
        """
        found = self.iter_results(start=start, stop=stop, prefix=prefix, seek=seek, reverse=reverse, limit=limit)
        return _raising(found)

    def iter_results(
        self,
        *,
        start: tuple[Any, ...] | None = None,
        stop: tuple[Any, ...] | None = None,
        prefix: tuple[Any, ...] | bytes = b"",
        seek: tuple[Any, ...] | bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[R, None] | tuple[None, DecodeError]]:
        """As `iter`, but each item is ``(record, None)``, or ``(None, error)`` for a row that cannot be read."""
        rows = self._schema.scan(
            self._family, start=start, stop=stop, prefix=prefix, seek=seek, reverse=reverse, limit=limit
        )
        return _decoded(self._schema, rows)


def _decoded(
    schema: Schema[R], rows: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[R, None] | tuple[None, DecodeError]]:
    for key, value in rows:
        try:
            record = schema.decode(key, value)
        except DecodeError as error:
            yield None, error
        else:
            yield record, None


def _raising(found: Iterator[tuple[R, None] | tuple[None, DecodeError]]) -> Iterator[R]:
    for record, error in found:
        if error is not None:
            raise error
        yield record  # type: ignore[misc]  # there is a record where there is no error


class Writable(Bound[R]):
    """Writing records. Everything is checked before a byte is written."""

    __slots__ = ()

    def put(self, record: R) -> None:
        """Store `record`, whatever is there under its key.

        Raises:
            InvalidRecordError: it could not be read again. SlotTakenError: another record holds its slot in a unique
            index. DecodeError: in a table with indexes, what is stored under its key cannot be read; delete it first.
        """
        schema = self._schema
        if not schema.indexes and isinstance(self._family, FamilyWriter):
            self._family.put(schema.row_key(record), schema.encode(record))  # blind: conflicts with nobody
        else:
            self._writing(lambda rows: schema.store_record(rows, record))

    def insert(self, record: R) -> None:
        """Store `record` under a key that is free.

        Bound to a store, a conflict about the key itself means that somebody else has written it meanwhile.

        Raises:
            KeyExistsError: the key is taken. InvalidRecordError, SlotTakenError: see `put`.
        """
        schema = self._schema
        row_key = schema.row_key(record)

        def insert(rows: FamilyWriter) -> None:
            if row_key in rows:
                raise KeyExistsError(family=schema.family, key=row_key)
            schema.replace_row(rows, row_key, None, record)

        if isinstance(self._source, Transaction):
            return self._writing(insert)
        try:
            self._writing(insert, attempts=1)
        except ConflictError as error:
            if error.key == row_key:
                raise KeyExistsError(family=schema.family, key=row_key) from error
            self._writing(insert)

    def update(self, old: R, new: R) -> None:
        """Replace `old` by `new`, which may have another key, if `old` is what is stored, byte for byte.

        Raises:
            NoSuchEntryError: there is no record under the key of `old`. ValueMismatchError: there is another one.
            KeyExistsError: the key of `new` is another one, and taken. InvalidRecordError, SlotTakenError: see `put`.
        """
        schema = self._schema
        old_key, old_value = schema.row_key(old), schema.encode(old)
        new_key = schema.row_key(new)

        def update(rows: FamilyWriter) -> None:
            self._expect(rows, old_key, old_value)
            if new_key == old_key:
                return schema.replace_row(rows, new_key, old, new)
            if new_key in rows:
                raise KeyExistsError(family=schema.family, key=new_key)
            schema.move_row(rows, old_key, new_key, old, new)

        self._writing(update)

    def _expect(self, rows: FamilyReader, row_key: bytes, value: bytes) -> None:
        stored = rows.get(row_key)
        if stored is None:
            raise NoSuchEntryError(family=self._schema.family, key=row_key)
        if stored != value:
            raise ValueMismatchError(family=self._schema.family, key=row_key)

    def delete(self, *key: Any) -> None:
        """Delete the record with this key and its index rows; no error when there is none, or when it cannot be read.

        Arguments:
            key: the values of the key's fields, in order.

        Raises:
            TypeError, ValueError: these are no values of the key.
        """
        self.delete_row(self._schema.key.encode(*key))

    def delete_row(self, row_key: bytes) -> None:
        """`delete` by the key of a row as it is, for a row that no values of the key lead to. As `DecodeError.key`."""
        schema = self._schema
        self._writing(lambda rows: schema.remove_record(rows, row_key))

    def insert_many(self, records: Iterable[R]) -> None:
        """Store all of `records`, or none.

        Raises:
            KeyExistsError: a key is taken, or twice among them. InvalidRecordError: see `put`. SlotTakenError: see
            `put`; bound to a transaction, those before it in `records` are in the transaction then: roll it back.
        """
        schema = self._schema
        given = self._prepared(records)

        def insert(rows: FamilyWriter) -> None:
            for row_key in given:
                if row_key in rows:
                    raise KeyExistsError(family=schema.family, key=row_key)
            for row_key, record in given.items():
                schema.replace_row(rows, row_key, None, record)

        self._writing(insert)

    def update_compare_many(self, pairs: Iterable[tuple[R, R]]) -> None:
        """Replace each old record by the new one of the same key, if all old ones are what is stored; else none.

        Raises:
            NoSuchEntryError: there is no record under a key. ValueMismatchError: there is another one.
            ValueError: a pair has two keys. InvalidRecordError, SlotTakenError: see `insert_many`.
        """
        schema = self._schema
        given = [(schema.row_key(old), schema.encode(old), old, new) for old, new in pairs]
        for row_key, _, _, new in given:
            schema.encode(new)
            if schema.row_key(new) != row_key:
                raise ValueError(f"the record under {row_key!r} would move; use update, one by one")

        def update(rows: FamilyWriter) -> None:
            for row_key, value, _, _ in given:
                self._expect(rows, row_key, value)
            for row_key, _, old, new in given:
                schema.replace_row(rows, row_key, old, new)

        self._writing(update)

    def replace_all(self, records: Iterable[R]) -> None:
        """Store exactly `records`; every other row of the table goes, those that cannot be read too. Cost: all rows.

        Raises:
            KeyExistsError: a key is twice among them. InvalidRecordError, SlotTakenError: see `insert_many`.
        """
        schema = self._schema
        given = self._prepared(records)

        def replace(rows: FamilyWriter) -> None:
            rows.delete_range(b"\x00", None)
            for row_key, record in given.items():
                schema.replace_row(rows, row_key, None, record)

        self._writing(replace)

    def _prepared(self, records: Iterable[R]) -> dict[bytes, R]:
        """The records by row key, each known to be storable."""
        schema, given = self._schema, dict[bytes, R]()
        for record in records:
            row_key = schema.row_key(record)
            schema.encode(record)
            if row_key in given:
                raise KeyExistsError(family=schema.family, key=row_key, hint="it is among the given records twice")
            given[row_key] = record
        return given

    def rebuild_indexes(self) -> int:
        """Write the rows of all indexes anew from the records; return how many rows were wrong. Cost: all rows.

        Raises:
            SlotTakenError: two records hold one slot of a unique index; change or delete one of them, then repeat.
            DecodeError: a row cannot be read; delete it, then repeat.
        """
        return self._writing(lambda rows: rebuild_indexes(self._schema, rows))


class BoundTable(Readable[R], Scannable[R], Writable[R]):
    """A table in a store or a transaction, with everything. Made by `Table.bind`."""

    __slots__ = ()


class BoundView(Readable[R], Scannable[R]):
    """A table as of a view, for reading. Made by `Table.bind`."""

    __slots__ = ()
