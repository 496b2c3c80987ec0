"""`IndexedSchema`: an indexed table without handles: its operations on one family of an open transaction.

`IndexedTable` is bound to a store and calls these. So does a table that writes more than its own rows in one commit: it
takes an `IndexedSchema`, which has no `bind`, and passes its family of a transaction. What indexed tables promise, and
what they cost, is told in ``indexed``.

`Change` says what an update needs to know of the old and the new record; `Fields` is one for any table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from pystate import FamilyReader, FamilyWriter
from pystate.errors import (
    CorruptIndexError,
    DecodeError,
    EntryChangedError,
    KeyExistsError,
    NoSuchIdError,
    PystateError,
)
from pystate.tables.indexes import FIRST_TAG, AnyIndex, is_index_row
from pystate.tables.key_index import IndexRow, KeyIndex
from pystate.tables.keys import Key, check_length
from pystate.tables.schema import Schema
from pystate.tables.values import ValueCodec

__all__ = ["Change", "Fields", "IndexedSchema"]

R = TypeVar("R")


@runtime_checkable
class Change(Protocol[R]):
    """A description of some of a record: what must be stored, as the old one, or what to store, as the new one.

    `Fields` is one for any table. A record is one too: of all that is in it, but for the id. An update may ask several
    times, so the answers depend on nothing but the arguments.
    """

    def key(self) -> bytes | None:
        """The key of the row, if the description has one; asked of the new one, which moves the row there."""
        ...

    def verify(self, stored: R) -> bool:
        """Whether this is a description of what is stored; asked of the old one."""
        ...

    def apply(self, stored: R) -> R:
        """What to store instead of `stored`; asked of the new one. The id in it is ignored.

        Its key is `key`, or if that is None the key of `stored`.

        Raises:
            TypeError, ValueError: `stored` cannot be changed so.
        """
        ...


class Fields(Generic[R]):
    """Some fields of a record, as the old or new one of an update.

    As the old one, what is stored must have these values. As the new one, they replace what is stored, and the others
    stay. A key changes as a whole: fields of the key are looked at in the new one only if all of them are given.

    Arguments:
        schema: of the table.
        values: of the fields.

    Raises:
        TypeError: there is no such field, or it is the id, which never changes.
        InvalidRecordError: all fields of the key are given, and cannot be encoded.
    """

    __slots__ = ("_key", "_new", "_values")

    def __init__(self, schema: IndexedSchema[R], /, **values: Any) -> None:
        known = {field.name for field in msgspec.structs.fields(schema.record)} - {schema.id_field}  # type: ignore[arg-type]
        if not values.keys() <= known:
            wrong = ", ".join(sorted(values.keys() - known))
            raise TypeError(f"a {schema.record.__name__} has no field {wrong} to describe; it has {sorted(known)}")
        self._values = values
        self._key: bytes | None = None
        fields = schema.key.fields
        if values.keys() >= set(fields):
            try:
                self._key = schema.key.encode(*[values[field] for field in fields])
            except (TypeError, ValueError) as error:
                raise schema._refused(str(error)) from None
        self._new = values if self._key is not None else {k: v for k, v in values.items() if k not in fields}

    def key(self) -> bytes | None:
        return self._key

    def verify(self, stored: R) -> bool:
        return all(getattr(stored, field) == value for field, value in self._values.items())

    def apply(self, stored: R) -> R:
        return msgspec.structs.replace(stored, **self._new)  # type: ignore[type-var]

    def __repr__(self) -> str:
        return f"Fields({', '.join(f'{field}={value!r}' for field, value in self._values.items())})"


class _Whole(Generic[R]):
    """A record as a description: all of it but for the id."""

    __slots__ = ("_record", "_row_key", "_schema")

    def __init__(self, schema: IndexedSchema[R], record: R) -> None:
        self._schema = schema
        self._record = record
        self._row_key = schema.row_key(record)

    def key(self) -> bytes | None:
        return self._row_key

    def verify(self, stored: R) -> bool:
        schema = self._schema
        mine = schema._with_id(self._record, getattr(stored, schema.id_field))
        return self._row_key == schema.row_key(stored) and schema.encode(mine) == schema.encode(stored)

    def apply(self, stored: R) -> R:
        return self._record


class IndexedSchema(Schema[R]):
    """What an indexed table consists of, and its operations on one family of a transaction.

    What `Schema` has to write rows knows nothing of ids: it is for the operations here.

    Arguments:
        id_field: the field of the record that carries its id. The others are those of `Schema`.

    Raises:
        TypeError: the record has no such field. ValueError: it is part of the key. Others: as `Schema`.
    """

    __slots__ = ("_ids", "id_field")

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
        super().__init__(record, family=family, key=key, value=value, indexes=indexes)
        if id_field not in {field.name for field in msgspec.structs.fields(record)}:  # type: ignore[arg-type]
            raise TypeError(f"{record.__name__} has no field {id_field!r} for its id; name it with id_field=")
        if id_field in key.fields:
            raise ValueError(f"the id in {id_field!r} is given when a record is put, so the key cannot have it")
        self.id_field = id_field
        self._ids = IndexRow(b"")

    def _with_id(self, record: R, id: int) -> R:  # noqa: A002
        """`record` with this id."""
        return msgspec.structs.replace(record, **{self.id_field: id})  # type: ignore[type-var]

    # Reading, in one state

    def key_index(self, rows: FamilyReader) -> KeyIndex:
        """The ids and their keys: a copy. Cost: the number of ids.

        Raises:
            CorruptIndexError: the row with the ids cannot be read.
        """
        return self._ids.open(rows)

    def count(self, rows: FamilyReader) -> int:
        """How many ids have a key. Raises as `key_index`."""
        return self._ids.read(rows).count()

    def record_by_id(self, rows: FamilyReader, id: int) -> R | None:  # noqa: A002
        """The record with this id; None when there is none, or its row is gone.

        Raises:
            DecodeError: its row cannot be read. CorruptIndexError: the ids cannot be. TypeError: `id` is no int.
        """
        row_key = self._ids.read(rows).get(id)
        return None if row_key is None else self.stored(rows, self._believed(row_key, id, rows))

    def _believed(self, row_key: bytes, id: int, rows: FamilyReader) -> bytes:  # noqa: A002
        """Refuse a key from the row with the ids under which something else than records stands."""
        if not row_key or (self.indexes and is_index_row(row_key)):
            raise self._corrupt(rows, f"id {id} has the key {row_key!r}, which no record can have")
        return row_key

    def _corrupt(self, rows: FamilyReader, reason: str) -> CorruptIndexError:
        return CorruptIndexError(family=rows.name, key=self._ids.key, reason=reason)

    # Writing, in a transaction

    def insert_record(self, rows: FamilyWriter, record: R) -> int:
        """Store a new record with an id of its own, and return the id. Raises as `insert_records`.

        Arguments:
            rows: the table's family in an open transaction.
            record: whatever its id is, the stored one has the new one.
        """
        return self.insert_records(rows, [record])[0]

    def insert_records(self, rows: FamilyWriter, records: Iterable[R]) -> list[int]:
        """Store records as `insert_record` does, and return their ids. Cost: once the number of ids, and the records.

        Raises:
            InvalidRecordError: a key is empty, or a record could not be read again.
            KeyExistsError: a key is taken, or twice among them. IndexFullError: there are no more ids.
            CorruptIndexError: the row with the ids is damaged.
            SlotTakenError: another record holds a slot in a unique index.
            Nothing has been written then, if there was one record; of several, some may be: roll the transaction back.
        """
        ids = self._ids.open(rows)
        given: dict[bytes, R] = {}
        for record in records:
            row_key = self.row_key(record)
            if row_key in given:
                raise KeyExistsError(family=self.family, key=row_key, hint="it is among the given records twice")
            if row_key in rows:
                raise KeyExistsError(family=self.family, key=row_key)
            given[row_key] = self._with_id(record, ids.insert(row_key))
        for row_key, record in given.items():
            self.replace_row(rows, row_key, None, record)
        if given:
            self._ids.write(rows, ids)
        return [getattr(record, self.id_field) for record in given.values()]

    def remove_id(self, rows: FamilyWriter, id: int) -> bytes:  # noqa: A002
        """Delete the record with this id, free the id for the next insertion, and return the key that it had.

        A row that is gone or cannot be read is no error.

        Raises:
            NoSuchIdError: it is free or inactive. IdOutOfRangeError: it was never given out.
            CorruptIndexError: the row with the ids is damaged. TypeError: `id` is no int.
        """
        ids = self._ids.open(rows)
        row_key = self._believed(ids.remove(id), id, rows)
        self.remove_record(rows, row_key)
        self._ids.write(rows, ids)
        return row_key

    def deactivate_id(self, rows: FamilyWriter, id: int) -> bytes:  # noqa: A002
        """As `remove_id`, but nobody gets the id before `clear_inactive`: while references to it are cleaned up."""
        ids = self._ids.open(rows)
        row_key = self._believed(ids.deactivate(id), id, rows)
        self.remove_record(rows, row_key)
        self._ids.write(rows, ids)
        return row_key

    def clear_inactive(self, rows: FamilyWriter) -> int:
        """Free all ids that were deactivated, and return how many there were.

        Raises:
            CorruptIndexError: the row with the ids is damaged.
        """
        ids = self._ids.open(rows)
        cleared = ids.clear_inactive()
        if cleared:
            self._ids.write(rows, ids)
        return cleared

    def update_record(self, rows: FamilyWriter, id: int, old: R | Change[R], new: R | Change[R]) -> R:  # noqa: A002
        """Change the record with this id as `new` says, if it is what `old` says; return what is stored now.

        Its id stays; its key becomes that of `new`, if `new` has one. The row with the ids is written only when the key
        changes, so that updates of different records do not conflict.

        Raises:
            InvalidRecordError: the key of `new` is empty, `new` cannot be applied, or the result cannot be stored or
            has another key than `new` says.
            NoSuchIdError: nothing has this id now. IdOutOfRangeError: it was never given out, and `new` has a key.
            CorruptIndexError: the row with the ids is damaged, or names a row that is gone or has another id.
            DecodeError: the record cannot be read. EntryChangedError: it is not what `old` says.
            KeyExistsError: the key of `new` is another one, and taken. SlotTakenError: another record holds a slot in
            a unique index. TypeError: `id` is no int; `old` or `new` is neither a record nor a `Change`.
            Nothing has been written then.
        """
        before, after = self._change(old), self._change(new)
        new_key = self._target(after)
        ids, row_key = self._renamed(rows, id, new_key)
        stored = self._expected(rows, id, row_key)
        if not before.verify(stored):
            raise EntryChangedError(family=self.family, key=row_key, id=id)
        if new_key is None or new_key == row_key:
            record = self._applied(after, stored, id, row_key)
            self.replace_row(rows, row_key, stored, record)
            return record
        if new_key in rows:
            raise KeyExistsError(family=self.family, key=new_key)
        record = self._applied(after, stored, id, new_key)
        self.move_row(rows, row_key, new_key, stored, record)
        self._ids.write(rows, ids)
        return record

    def _change(self, given: R | Change[R]) -> Change[R]:
        if isinstance(given, self.record):
            return _Whole(self, given)
        if isinstance(given, Change):
            return given
        raise TypeError(f"a {self.record.__name__} or a Change of one expected, not {type(given).__name__}")

    def _target(self, change: Change[R]) -> bytes | None:
        """The key of the new description, known to be one that a record can have."""
        row_key = change.key()
        if row_key is None:
            return None
        if not row_key:
            raise self._refused(f"its key ({', '.join(self.key.fields)}) is empty")
        if self.indexes and is_index_row(row_key):
            raise self._refused(f"its key begins with {row_key[0]:#x}; from {FIRST_TAG:#x} up is for rows of indexes")
        try:
            return check_length(row_key)
        except ValueError as error:
            raise self._refused(str(error)) from None

    def _renamed(self, rows: FamilyReader, id: int, new_key: bytes | None) -> tuple[KeyIndex, bytes]:  # noqa: A002
        """The ids with the new key, and the key that the id has now."""
        ids = self._ids.read(rows)
        if new_key is not None and new_key != ids.get(id):
            ids = ids.copy()
            return ids, self._believed(ids.update(id, new_key), id, rows)
        row_key = ids.get(id)
        if row_key is None:
            raise NoSuchIdError(family=self.family, key=self._ids.key, id=id)
        return ids, self._believed(row_key, id, rows)

    def _expected(self, rows: FamilyReader, id: int, row_key: bytes) -> R:  # noqa: A002
        """The record that must stand under this key."""
        stored = self.stored(rows, row_key)
        if stored is None:
            raise self._corrupt(rows, f"id {id} has the key {row_key!r}, where there is no record")
        if (found := getattr(stored, self.id_field)) != id:
            raise self._corrupt(rows, f"id {id} has the key {row_key!r}, where the record has id {found}")
        return stored

    def _applied(self, change: Change[R], stored: R, id: int, row_key: bytes) -> R:  # noqa: A002
        """What `change` makes of `stored`, known to belong under `row_key`."""
        try:
            applied = change.apply(stored)
        except PystateError:
            raise
        except (TypeError, ValueError) as error:
            raise self._refused(str(error)) from error
        record = self._with_id(applied, id)
        if (own := self.row_key(record)) != row_key:
            raise self._refused(f"its key is {own!r}, but the change says {row_key!r}")
        return record

    # Checks

    def id_problems(self, rows: FamilyReader) -> list[CorruptIndexError]:
        """Compare the row with the ids with the records; empty when all is right. Cost: all rows."""
        try:
            ids = self._ids.read(rows)
        except CorruptIndexError as error:
            return [error]
        reasons = ids.problems()
        named: dict[bytes, int] = {}
        for number, row_key in ids.entries():
            if (other := named.setdefault(row_key, number)) != number:
                reasons.append(f"the ids {other} and {number} have the same key {row_key!r}")
        for row_key, value in self.scan(rows):
            given = named.pop(row_key, None)
            if given is None:
                reasons.append(f"the record {row_key!r} has no id")
            elif (found := self._id_in(row_key, value, given)) != given:
                reasons.append(f"the record {row_key!r} says that its id is {found}; it is {given}")
        reasons += [
            f"id {number} has the key {row_key!r}, where there is no record" for row_key, number in named.items()
        ]
        return [self._corrupt(rows, reason) for reason in reasons]

    def _id_in(self, row_key: bytes, value: bytes, otherwise: int) -> int:
        """The id in a record; `otherwise` when it cannot be read, which `check_table` tells of."""
        try:
            return getattr(self.decode(row_key, value), self.id_field)  # type: ignore[no-any-return]
        except DecodeError:
            return otherwise

    def rebuild_ids(self, rows: FamilyWriter) -> None:
        """Write the row with the ids anew: each record has the id that it says, others below the greatest are free.

        Those that are inactive stay so, if they can be read. Cost: all rows, and the greatest id.

        Raises:
            CorruptIndexError: two records say that they have the same id; delete the row of one, then repeat.
            DecodeError: a row cannot be read; delete it, then repeat. ValueError: an id is negative or too large.
        """
        keys: dict[int, bytes] = {}
        for row_key, value in self.scan(rows):
            number = getattr(self.decode(row_key, value), self.id_field)
            if (other := keys.setdefault(number, row_key)) != row_key:
                raise self._corrupt(rows, f"the records {other!r} and {row_key!r} both say that their id is {number}")
        try:
            inactive = [number for number in self._ids.read(rows).inactive() if number not in keys]
        except CorruptIndexError:
            inactive = []
        self._ids.write(rows, KeyIndex.of(keys, inactive=inactive))
