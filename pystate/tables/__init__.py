"""pystate.tables: typed records in families, with keys, indexes and checks.

    >>> import msgspec
    >>> import pystate
    >>> from pystate.tables import Key, Table, text
    >>> class Account(msgspec.Struct, frozen=True, kw_only=True):
    ...     owner: str
    ...     balance: int
    >>> ACCOUNTS = Table(Account, family="accounts", key=Key(owner=text))
    >>> accounts = ACCOUNTS.bind(pystate.memory(families=["accounts"]))
    >>> accounts.insert(Account(owner="ann", balance=10))
    >>> accounts.get("ann")
    Account(owner='ann', balance=10)

A `Table` declares what records stand where, and is bound to a store, a transaction or a view. An `Index` finds them by
other fields, and may make sure that only one holds a value; every write keeps it right. `RetentionIndex` finds what a
history has too much of. An `IndexedTable` gives its records small ids that stay with them; an `IndexedSet` is of byte
entries with such ids. Uses the public interface of a store only.
"""

from pystate.errors import (
    CorruptIndexError,
    DecodeError,
    EntryChangedError,
    IdOutOfRangeError,
    IndexFullError,
    InvalidRecordError,
    KeyExistsError,
    NoSuchEntryError,
    NoSuchIdError,
    SlotTakenError,
    ValueMismatchError,
)
from pystate.tables.bound import Bound, BoundTable, BoundView, Readable, Scannable, Writable
from pystate.tables.checking import IndexProblem, check_table, rebuild_indexes
from pystate.tables.indexed import BoundIndexedTable, BoundIndexedView, IndexedTable
from pystate.tables.indexed_schema import Change, Fields, IndexedSchema
from pystate.tables.indexed_set import BoundIndexedSet, BoundIndexedSetView, IndexedSet
from pystate.tables.indexes import AnyIndex, Index
from pystate.tables.key_index import KeyIndex
from pystate.tables.keys import Key
from pystate.tables.parts import (
    Part,
    blob,
    boolean,
    instant,
    int64,
    member,
    optional,
    rest_bytes,
    rest_text,
    segment,
    text,
    tuple_of,
    uint8,
    uint16,
    uint32,
    uint64,
)
from pystate.tables.retention import RetentionIndex
from pystate.tables.schema import Schema
from pystate.tables.table import Table
from pystate.tables.values import PositionalValue, ValueCodec, WholeValue

__all__ = [
    "AnyIndex",
    "Bound",
    "BoundIndexedSet",
    "BoundIndexedSetView",
    "BoundIndexedTable",
    "BoundIndexedView",
    "BoundTable",
    "BoundView",
    "Change",
    "CorruptIndexError",
    "DecodeError",
    "EntryChangedError",
    "Fields",
    "IdOutOfRangeError",
    "Index",
    "IndexFullError",
    "IndexProblem",
    "IndexedSchema",
    "IndexedSet",
    "IndexedTable",
    "InvalidRecordError",
    "Key",
    "KeyExistsError",
    "KeyIndex",
    "NoSuchEntryError",
    "NoSuchIdError",
    "Part",
    "PositionalValue",
    "Readable",
    "RetentionIndex",
    "Scannable",
    "Schema",
    "SlotTakenError",
    "Table",
    "ValueCodec",
    "ValueMismatchError",
    "WholeValue",
    "Writable",
    "blob",
    "boolean",
    "check_table",
    "instant",
    "int64",
    "member",
    "optional",
    "rebuild_indexes",
    "rest_bytes",
    "rest_text",
    "segment",
    "text",
    "tuple_of",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
]
