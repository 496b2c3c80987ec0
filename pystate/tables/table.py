"""`Table`: a declaration that can be bound to a store, a transaction or a view.

A table is declared once, at module level, and bound to what it works on::

    class Account(msgspec.Struct, frozen=True, kw_only=True):
        owner: str
        balance: int

    ACCOUNTS = Table(Account, family="accounts", key=Key(owner=text))
    ACCOUNTS.bind(store).insert(Account(owner="ann", balance=10))

All that it consists of is in `Schema`; all that a bound table can do is in `bound`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, overload

from pystate import Store, Transaction, View
from pystate.tables.bound import BoundTable, BoundView
from pystate.tables.indexes import AnyIndex
from pystate.tables.keys import Key
from pystate.tables.schema import Schema
from pystate.tables.values import ValueCodec

__all__ = ["Table"]

R = TypeVar("R")


class Table(Schema[R]):
    """The declaration of a table that anyone may read and write. Its arguments are those of `Schema`.

    Raises:
        TypeError: records of this type have a table of their own, and are written through that only (``__table__``).
    """

    __slots__ = ()

    def __init__(
        self,
        record: type[R],
        *,
        family: str,
        key: Key,
        value: ValueCodec[R] | None = None,
        indexes: Sequence[AnyIndex[Any]] = (),
    ) -> None:
        own = getattr(record, "__table__", None)
        if own is not None:
            raise TypeError(f"{record.__name__} records are read and written through {own} only; no other table may")
        super().__init__(record, family=family, key=key, value=value, indexes=indexes)

    @overload
    def bind(self, source: Store | Transaction) -> BoundTable[R]: ...
    @overload
    def bind(self, source: View) -> BoundView[R]: ...
    def bind(self, source: Store | Transaction | View) -> BoundTable[R] | BoundView[R]:
        """The table in a store (every write is one commit), in a transaction, or as of a view (for reading only).

        Raises:
            FamilyNotFoundError: the family does not exist there. ClosedError: the store or whatever it is has ended.
        """
        return BoundView(self, source) if isinstance(source, View) else BoundTable(self, source)
