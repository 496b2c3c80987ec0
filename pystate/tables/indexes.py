"""`Index`: a secondary index, declared and not coded.

The rows of an index stand in the family of its table, under a first byte of its own, the *tag*, from 0xf8 to 0xff. An
index says which records it holds (`condition`) and under which fields (`key`); the table writes its rows in the same
commit as the record. What a row looks like::

    tag + key of the index                                   unique: at most one record may hold it
    tag + key of the index + segment(key of the record)      otherwise

with the key of the record as its value. So equal index keys come in the order of the records' keys, shorter ones first.

Everything here works on one family of a transaction, through `FamilyWriter` alone. The table is the only caller of
what writes; anyone may declare an `Index`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from pystate import FamilyReader, FamilyWriter
from pystate.errors import SlotTakenError
from pystate.tables.keys import Key, check_length

__all__ = ["FIRST_TAG", "AnyIndex", "Index", "check_declared", "check_tag", "is_index_row"]

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

FIRST_TAG = 0xF8
"""The first byte that only rows of indexes may begin with, in a table that has any."""
_FIRST_KEY = bytes((FIRST_TAG,))


class AnyIndex(Protocol[R_contra]):
    """What a table asks of an index. `Index` and `RetentionIndex` are the two kinds.

    Attributes:
        name: of the index, unique in its table.
        tags: the first bytes of its rows.
    """

    @property
    def name(self) -> str: ...

    @property
    def tags(self) -> tuple[int, ...]: ...

    def prepare(
        self,
        rows: FamilyReader,
        row_key: bytes,
        old: R_contra | None,
        new: R_contra | None,
        *,
        instead_of: bytes | None = None,
    ) -> Any:
        """Find out what it takes to bring the index from what `old` owns to what `new` owns; writes nothing.

        Returns:
            What `change` is to be given; None: there is nothing to change. From there on nothing can be refused.

        Raises:
            SlotTakenError: a record other than that under `instead_of` keeps `new` from being stored.
            TypeError, ValueError: a field of `new` cannot be part of a key, or the key would be too long.
        """
        ...

    def change(self, rows: FamilyWriter, row_key: bytes, prepared: Any) -> None:
        """Write what `prepare` has found out for this record."""
        ...

    def forget(self, rows: FamilyWriter, row_key: bytes) -> None:
        """Remove what an undecodable record under `row_key` owns. Cost: the whole index."""
        ...

    def expected(self, records: Iterable[tuple[bytes, R_contra]]) -> Iterator[tuple[bytes, bytes]]:
        """Every row that the index must have, given every record of the table with its row key."""
        ...


class Index(Generic[R]):
    """A secondary index of a table.

    Arguments:
        name: how lookups name it; unique in the table.
        tag: the first byte of its rows, 0xf8 to 0xff; no two indexes of a table share one. It is part of the format:
            never give the tag of an index to another one.
        key: the fields that it is sorted by.
        unique: at most one record may hold an index key at a time; storing a second is `SlotTakenError`.
        condition: which records are in it; all when left out. A pure function of the record.

    Raises:
        ValueError: `tag` is not in that range, the name is empty, or the key of an index that is not unique ends with a
            part that has no end of its own.
    """

    __slots__ = ("_condition", "_tag", "key", "name", "tags", "unique")

    def __init__(
        self,
        name: str,
        *,
        tag: int,
        key: Key,
        unique: bool = False,
        condition: Callable[[R], bool] | None = None,
    ) -> None:
        check_tag(name, tag)
        if not unique and key.ends_open:
            raise ValueError(f"index {name!r}: the record's key follows the index's, so use text, blob or segment")
        self.name = name
        self.tags = (tag,)
        self.key = key
        self.unique = unique
        self._tag = bytes((tag,))
        self._condition = condition

    def row(self, row_key: bytes, record: R) -> bytes | None:
        """The key of the index row that `record`, stored under `row_key`, owns; None if it is not in the index."""
        if self._condition is not None and not self._condition(record):
            return None
        key = self._tag + self.key.of(record)
        if not self.unique:
            key += len(row_key).to_bytes(4, "big") + row_key  # a segment
        return check_length(key)

    def prefix(self, *values: Any) -> bytes:
        """What the rows of the index begin with whose first fields have these values.

        Raises:
            TypeError, ValueError: see `Key.prefix`.
        """
        return self._tag + self.key.prefix(*values)

    def slot(self, rows: FamilyReader, *values: Any) -> bytes | None:
        """The key of the record that holds these values in a unique index, or None.

        Raises:
            ValueError: the index is not unique. TypeError, ValueError: see `Key.encode`.
        """
        if not self.unique:
            raise ValueError(f"index {self.name!r} is not unique: several records may match; use find")
        return rows.get(self._tag + self.key.encode(*values))

    def prepare(
        self, rows: FamilyReader, row_key: bytes, old: R | None, new: R | None, *, instead_of: bytes | None = None
    ) -> tuple[bytes | None, bytes | None] | None:
        same = old is not None and new is not None and self._same(old, new)
        if same and not self.unique:
            return None
        after = None if new is None else self.row(row_key, new)
        if self.unique and after is not None:
            holder = rows.get(after)
            if holder is not None and holder not in (row_key, instead_of):
                slot = dict(zip(self.key.fields, self.key.values(new), strict=True))
                raise SlotTakenError(family=rows.name, index=self.name, slot=slot, key=row_key, holder=holder)
        if same:
            return None
        before = None if old is None else self.row(row_key, old)
        return None if before == after else (before, after)

    def _same(self, old: R, new: R) -> bool:
        """Whether both own the same row, told without encoding it: most changes leave most indexes as they are."""
        condition = self._condition
        return (condition is None or condition(old) == condition(new)) and self.key.values(old) == self.key.values(new)

    def change(self, rows: FamilyWriter, row_key: bytes, prepared: tuple[bytes | None, bytes | None]) -> None:
        before, after = prepared
        if before is not None:
            rows.delete(before)
        if after is not None:
            rows.put(after, row_key)

    def forget(self, rows: FamilyWriter, row_key: bytes) -> None:
        for key, value in rows.scan(prefix=self._tag):
            if value == row_key:
                rows.delete(key)

    def expected(self, records: Iterable[tuple[bytes, R]]) -> Iterator[tuple[bytes, bytes]]:
        for row_key, record in records:
            if (key := self.row(row_key, record)) is not None:
                yield key, row_key

    def __repr__(self) -> str:
        return f"<Index {self.name!r}: tag {self.tags[0]:#x}, {self.key!r}{', unique' if self.unique else ''}>"


def check_tag(name: str, tag: int) -> None:
    """Refuse a tag that no index may have, and an index without a name.

    Raises:
        ValueError: so it is.
    """
    if not name:
        raise ValueError("an index needs a name")
    if type(tag) is not int or not FIRST_TAG <= tag <= 0xFF:
        raise ValueError(f"index {name!r}: a tag is an int from {FIRST_TAG:#x} to 0xff, not {tag!r}")


def check_declared(indexes: Iterable[AnyIndex[Any]]) -> None:
    """Refuse indexes that would get in each other's way.

    Raises:
        ValueError: two have the same name or share a tag.
    """
    names: set[str] = set()
    tags: dict[int, str] = {}
    for index in indexes:
        if index.name in names:
            raise ValueError(f"two indexes are called {index.name!r}")
        names.add(index.name)
        for tag in index.tags:
            if tag in tags:
                raise ValueError(f"the indexes {tags[tag]!r} and {index.name!r} share the tag {tag:#x}")
            tags[tag] = index.name


def is_index_row(row_key: bytes) -> bool:
    """Whether this key belongs to an index and not to a record, in a table that has indexes."""
    return row_key >= _FIRST_KEY
