"""`IndexedTable`: a table that gives each record a small id, which stays with it when its key changes.

    CUSTOMERS = IndexedTable(Customer, family="customers", key=Key(name=rest_text))

    customers = CUSTOMERS.bind(store)
    ann = customers.put(Customer(id=0, name="ann", note=""))  # the id in it is ignored: the table gives one
    customers.update(ann, Fields(CUSTOMERS, note=""), Fields(CUSTOMERS, note="called"))
    customers.get_by_id(ann)  # Customer(id=0, name="ann", note="called")

Promises: no two records have one id or one key; a record, its id and the rows of secondary indexes change in one
commit; an operation that fails changes nothing (but see `put_many`); every read is tracked, so whoever decided on
something that has changed since decides again or fails. What a caller keeps is the id: a record's key may change, and
its id may be freed, after which a later record gets it, or be *deactivated*, so that none gets it before
`clear_inactive`.

All ids of a table stand in one row, under the empty key, as a `KeyIndex`. Whatever changes which id has which key reads
and writes that row, so its cost grows with the number of ids (10,000 with keys of 15 bytes: 190 kB to commit), and of
two that do so at the same time one runs again. Reads by id decode the row when it has changed since the last one.

The operations themselves are in ``indexed_schema``. The generic writes of other tables do not exist here: they know
nothing of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

from pystate import FamilyWriter, Store, Transaction, View
from pystate.tables.bound import Readable, Scannable
from pystate.tables.checking import IndexProblem, check_table, rebuild_indexes
from pystate.tables.indexed_schema import Change, IndexedSchema
from pystate.tables.indexes import AnyIndex
from pystate.tables.key_index import KeyIndex
from pystate.tables.keys import Key
from pystate.tables.values import ValueCodec

__all__ = ["BoundIndexedTable", "BoundIndexedView", "IndexedTable"]

R = TypeVar("R")


class BoundIndexedView(Readable[R], Scannable[R]):
    """An indexed table as of a view, for reading. Made by `IndexedTable.bind`."""

    __slots__ = ()

    _schema: IndexedSchema[R]

    def __init__(self, schema: IndexedSchema[R], source: Store | Transaction | View) -> None:
        super().__init__(schema, source)

    def get(self, *key: Any) -> R | None:
        """The record with this key, or None.

        Arguments:
            key: the values of the key's fields, in order.

        Raises:
            DecodeError: the row cannot be read. TypeError, ValueError: these are no values of the key, or it is empty.
        """
        return self._schema.stored(self._family, _not_empty(self._schema.key.encode(*key)))

    def get_by_id(self, id: int) -> R | None:  # noqa: A002
        """The record with this id; None when the id is free, inactive, or was never given out, or the row is gone.

        Raises:
            DecodeError: its row, or that with the ids, cannot be read. TypeError: `id` is no int.
        """
        with self._reading() as rows:
            return self._schema.record_by_id(rows, id)

    def get_by_key(self, key: bytes) -> bytes | None:
        """The value of the row with this key, as it is stored, or None.

        Raises:
            ValueError: the key is empty. TypeError: it is not bytes.
        """
        if type(key) is not bytes:
            raise TypeError(f"a key is bytes, not {type(key).__name__}; get takes the values of its fields")
        return self._family.get(_not_empty(key))

    def count(self) -> int:
        """How many ids have a record.

        Raises:
            CorruptIndexError: the row with the ids cannot be read.
        """
        return self._schema.count(self._family)

    def key_index(self) -> KeyIndex:
        """The ids and the keys of their records: a copy of what is stored. Cost: the number of ids.

        Raises:
            CorruptIndexError: the row with the ids cannot be read.
        """
        return self._schema.key_index(self._family)

    def check(self) -> list[IndexProblem]:
        """Compare the ids and every index row with what the records say; none returned means that all is right.

        What is wrong with the ids has the empty key, and tells it in its `error`. Cost: all rows.
        """
        with self._reading() as rows:
            found = rows.get(b"")
            ids = [IndexProblem(b"", None, found, error) for error in self._schema.id_problems(rows)]
            return ids + check_table(self._schema, rows)


class BoundIndexedTable(BoundIndexedView[R]):
    """An indexed table in a store or a transaction. Made by `IndexedTable.bind`."""

    __slots__ = ()

    def put(self, record: R) -> int:
        """Store a new record and return its id: the one freed last, or the next new one. The id in it is ignored.

        Cost: the number of ids.

        Raises:
            InvalidRecordError: its key is empty, or it could not be read again. KeyExistsError: its key is taken.
            SlotTakenError: another record holds its slot in a unique index. IndexFullError: there are no more ids.
            CorruptIndexError: the row with the ids is damaged.
        """
        return self._writing(lambda rows: self._schema.insert_record(rows, record))

    def put_many(self, records: Iterable[R]) -> list[int]:
        """Store all of these new records, or none, and return their ids. Cost: once the number of ids, and the records.

        Raises:
            KeyExistsError: a key is taken, or twice among them. Others: as `put`. Bound to a transaction, some of the
            records may be in it then: roll it back.
        """
        given = list(records)
        return self._writing(lambda rows: self._schema.insert_records(rows, given))

    def remove(self, id: int) -> bytes:  # noqa: A002
        """Delete a record and free its id, so that the next `put` gets it; return the bytes of its key.

        No error when its row cannot be read. Cost: the number of ids.

        Raises:
            NoSuchIdError: the id is free or inactive. IdOutOfRangeError: it was never given out.
            CorruptIndexError: the row with the ids is damaged. TypeError: it is no int.
        """
        return self._writing(lambda rows: self._schema.remove_id(rows, id))

    def deactivate(self, id: int) -> bytes:  # noqa: A002
        """Delete a record, as `remove`, but keep its id back until `clear_inactive`. Raises as `remove`.

        For an id that others refer to: deactivate it, remove the references, then clear.
        """
        return self._writing(lambda rows: self._schema.deactivate_id(rows, id))

    def clear_inactive(self) -> int:
        """Free all ids that were deactivated, so that `put` gets them; return how many. Cost: the number of ids.

        Raises:
            CorruptIndexError: the row with the ids is damaged.
        """
        return self._writing(self._schema.clear_inactive)

    def update(self, id: int, old: R | Change[R], new: R | Change[R]) -> R:  # noqa: A002
        """Change the record with this id as `new` says, if it is what `old` says; return what is stored now.

        The id never changes; the key becomes that of `new`, if `new` has one.

        Arguments:
            id: of the record.
            old: a record, all of which but for the id must be what is stored; or `Fields`; or another `Change`.
            new: a record, all of which but for the id is stored; or `Fields`; or another `Change`.

        Raises:
            NoSuchIdError: nothing has this id now. IdOutOfRangeError: it was never given out, and `new` has a key.
            EntryChangedError: the record is not what `old` says.
            KeyExistsError: the key of `new` is another one, and taken.
            InvalidRecordError: the key of `new` is empty, it cannot be applied, or the result cannot be stored or has
            another key than `new` says. SlotTakenError: another record holds its slot in a unique index.
            DecodeError: the record cannot be read. CorruptIndexError: the row with the ids is damaged, or names a row
            that is gone or has another id. TypeError: an argument is of another type.
        """
        return self._writing(lambda rows: self._schema.update_record(rows, id, old, new))

    def rebuild_indexes(self) -> int:
        """Write the rows of all indexes anew from the records, and the ids if they are not as the records say.

        Ids that are inactive stay so, if they can be read; others that no record has become free.

        Returns:
            How many rows were wrong. Cost: all rows.

        Raises:
            SlotTakenError: two records hold one slot of a unique index. CorruptIndexError: two records say that they
            have the same id. DecodeError: a row cannot be read. Delete the row of one, then repeat.
        """

        def rebuild(rows: FamilyWriter) -> int:
            wrong = rebuild_indexes(self._schema, rows)
            if not self._schema.id_problems(rows):
                return wrong
            self._schema.rebuild_ids(rows)
            return wrong + 1

        return self._writing(rebuild)


def _not_empty(row_key: bytes) -> bytes:
    if not row_key:
        raise ValueError("the key is empty; no record has it: that row holds the ids")
    return row_key


class IndexedTable(IndexedSchema[R]):
    """The declaration of an indexed table that anyone may read and write. Immutable; threads and stores may share it.

    Arguments:
        record: the type of its records, a ``msgspec.Struct``.
        family: the name of the family that holds the rows, and nothing else.
        key: the fields of the record that identify it, without the id.
        value: the codec of the value; a `WholeValue` when left out.
        id_field: the field of the record that carries its id.
        indexes: secondary indexes, kept in the same family; see `Index`.

    Raises:
        TypeError: the record has no such field, or is read and written through a table of its own only (``__table__``).
        ValueError: the id is part of the key; two indexes share a name or a tag.
    """

    __slots__ = ()

    def __init__(
        self,
        record: type[R],
        *,
        family: str,
        key: Key,
        value: ValueCodec[R] | None = None,
        id_field: str = "id",
        indexes: Sequence[AnyIndex[R]] = (),
    ) -> None:
        own = getattr(record, "__table__", None)
        if own is not None:
            raise TypeError(f"{record.__name__} records are read and written through {own} only; no other table may")
        super().__init__(record, family=family, key=key, value=value, id_field=id_field, indexes=indexes)

    @overload
    def bind(self, source: Store | Transaction) -> BoundIndexedTable[R]: ...
    @overload
    def bind(self, source: View) -> BoundIndexedView[R]: ...
    def bind(self, source: Store | Transaction | View) -> BoundIndexedTable[R] | BoundIndexedView[R]:
        """The table in a store (every write is one commit), in a transaction, or as of a view (for reading only).

        Raises:
            FamilyNotFoundError: the family does not exist there. ClosedError: the store or whatever it is has ended.
        """
        return BoundIndexedView(self, source) if isinstance(source, View) else BoundIndexedTable(self, source)
