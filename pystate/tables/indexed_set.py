"""`IndexedSet`: byte entries with small ids, all in one row.

    TAGS = IndexedSet(family="meta", key=b"event tags")

    tags = TAGS.bind(store)
    first = tags.insert(b"urgent")  # 0
    tags.update(first, b"urgent", b"soon")
    tags.entries()  # [(0, b"soon")]

The row is a `KeyIndex` and there are no others, so entries need not differ and may be empty. For sets that fit on a
page: every change rewrites the row. Rows of several sets may stand in one family, under a key each.

The methods of `IndexedSet` work on the family of an open transaction, for whoever changes more in the same commit;
`bind` gives the same ones on a store, a transaction or a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from pystate import FamilyReader, FamilyWriter, Store, Transaction, View, transact
from pystate.errors import CorruptIndexError
from pystate.tables.key_index import IndexRow, KeyIndex

__all__ = ["BoundIndexedSet", "BoundIndexedSetView", "IndexedSet"]

T = TypeVar("T")


class IndexedSet:
    """The declaration of a set. Immutable; threads and stores may share it.

    Arguments:
        family: the name of the family.
        key: of the row that holds the set; not empty, since that row belongs to an `IndexedTable`.

    Raises:
        TypeError: the key is not bytes. ValueError: it is empty.
    """

    __slots__ = ("_row", "family")

    def __init__(self, *, family: str, key: bytes) -> None:
        if type(key) is not bytes:
            raise TypeError(f"a key is bytes, not {type(key).__name__}")
        if not key:
            raise ValueError(
                "the key is empty: that row holds the ids of an indexed table; give the set one of its own"
            )
        self.family = family
        self._row = IndexRow(key)

    @property
    def key(self) -> bytes:
        """The key of the row."""
        return self._row.key

    @overload
    def bind(self, source: Store | Transaction) -> BoundIndexedSet: ...
    @overload
    def bind(self, source: View) -> BoundIndexedSetView: ...
    def bind(self, source: Store | Transaction | View) -> BoundIndexedSet | BoundIndexedSetView:
        """The set in a store (every write is one commit), in a transaction, or as of a view (for reading only).

        Raises:
            FamilyNotFoundError: the family does not exist there. ClosedError: the store or whatever it is has ended.
        """
        return BoundIndexedSetView(self, source) if isinstance(source, View) else BoundIndexedSet(self, source)

    # Reading

    def key_index(self, rows: FamilyReader) -> KeyIndex:
        """The ids and the entries: a copy.

        Raises:
            CorruptIndexError: the row cannot be read.
        """
        return self._row.open(rows)

    def get(self, rows: FamilyReader, id: int) -> bytes | None:  # noqa: A002
        """The entry with this id, or None. Raises as `key_index`."""
        return self._row.read(rows).get(id)

    def entries(self, rows: FamilyReader) -> list[tuple[int, bytes]]:
        """Every id and its entry, in ascending order of the ids. Raises as `key_index`."""
        return list(self._row.read(rows).entries())

    def check(self, rows: FamilyReader) -> list[str]:
        """What is wrong with the row, in words; empty when all is right."""
        try:
            return self._row.read(rows).problems()
        except CorruptIndexError as error:
            return [error.reason]

    # Writing

    def insert(self, rows: FamilyWriter, entry: bytes) -> int:
        """Add an entry and return its id: the one freed last, or the next new one. It may be empty, or there already.

        Raises:
            IndexFullError: there are no more ids. CorruptIndexError: the row is damaged. TypeError: it is not bytes.
        """
        return self._change(rows, lambda ids: ids.insert(entry))

    def remove(self, rows: FamilyWriter, id: int) -> bytes:  # noqa: A002
        """Remove an entry and free its id, so that the next insertion gets it; return the entry.

        Raises:
            NoSuchIdError: the id is free or inactive. IdOutOfRangeError: it was never given out.
            CorruptIndexError: the row is damaged. TypeError: it is no int.
        """
        return self._change(rows, lambda ids: ids.remove(id))

    def deactivate(self, rows: FamilyWriter, id: int) -> bytes:  # noqa: A002
        """Remove an entry, as `remove`, but keep its id back until `clear_inactive`. Raises as `remove`."""
        return self._change(rows, lambda ids: ids.deactivate(id))

    def clear_inactive(self, rows: FamilyWriter) -> int:
        """Free all ids that were deactivated, so that insertions get them; return how many.

        Raises:
            CorruptIndexError: the row is damaged.
        """
        ids = self._row.open(rows)
        if cleared := ids.clear_inactive():
            self._row.write(rows, ids)
        return cleared

    def update(self, rows: FamilyWriter, id: int, old: bytes, new: bytes) -> bool:  # noqa: A002
        """Replace an entry, if it is `old`; return whether it was. If not, or if nothing has the id, nothing changes.

        Raises:
            CorruptIndexError: the row is damaged. TypeError: `id` is no int, or `new` not bytes.
        """
        if self.get(rows, id) != old:
            return False
        self._change(rows, lambda ids: ids.update(id, new))
        return True

    def _change(self, rows: FamilyWriter, change: Callable[[KeyIndex], T]) -> T:
        ids = self._row.open(rows)
        result = change(ids)
        self._row.write(rows, ids)
        return result

    def __repr__(self) -> str:
        return f"<IndexedSet {self.key!r} in family {self.family!r}>"


class BoundIndexedSetView:
    """A set as of a view, for reading. Made by `IndexedSet.bind`."""

    __slots__ = ("_family", "_set", "_source")

    def __init__(self, declared: IndexedSet, source: Store | Transaction | View) -> None:
        self._set = declared
        self._source = source
        self._family: FamilyReader = source.family(declared.family)

    def get(self, id: int) -> bytes | None:  # noqa: A002
        """See `IndexedSet.get`."""
        return self._set.get(self._family, id)

    def entries(self) -> list[tuple[int, bytes]]:
        """See `IndexedSet.entries`; what is there now, whatever is written afterwards."""
        return self._set.entries(self._family)

    def key_index(self) -> KeyIndex:
        """See `IndexedSet.key_index`."""
        return self._set.key_index(self._family)

    def check(self) -> list[str]:
        """See `IndexedSet.check`."""
        return self._set.check(self._family)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._set!r} in {self._source!r}>"


class BoundIndexedSet(BoundIndexedSetView):
    """A set in a store or a transaction. Made by `IndexedSet.bind`.

    In a store, every write is one commit, and runs again on a conflict as `Store.transact` does.
    """

    __slots__ = ()

    def insert(self, entry: bytes) -> int:
        """See `IndexedSet.insert`."""
        return self._writing(lambda rows: self._set.insert(rows, entry))

    def remove(self, id: int) -> bytes:  # noqa: A002
        """See `IndexedSet.remove`."""
        return self._writing(lambda rows: self._set.remove(rows, id))

    def deactivate(self, id: int) -> bytes:  # noqa: A002
        """See `IndexedSet.deactivate`."""
        return self._writing(lambda rows: self._set.deactivate(rows, id))

    def clear_inactive(self) -> int:
        """See `IndexedSet.clear_inactive`."""
        return self._writing(self._set.clear_inactive)

    def update(self, id: int, old: bytes, new: bytes) -> bool:  # noqa: A002
        """See `IndexedSet.update`."""
        return self._writing(lambda rows: self._set.update(rows, id, old, new))

    def _writing(self, function: Callable[[FamilyWriter], T]) -> T:
        if isinstance(self._source, View):
            raise TypeError("this set is bound to a view, which is for reading; bind it to a store or a transaction")
        return transact(self._source, lambda txn: function(txn.family(self._set.family)))
