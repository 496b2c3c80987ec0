"""`LabelDb`: a named set of patterns that label what they match; and the table of such sets."""

from __future__ import annotations

import msgspec

from pystate.review.categories import EventCategory
from pystate.review.records import KeyedValue, freeze
from pystate.review.stored import U32, StoredEnum
from pystate.tables import Key, Readable, Scannable, Schema, Writable, rest_text

__all__ = ["LABEL_DATABASE", "LabelDatabase", "LabelDb", "LabelDbKind"]


class LabelDbKind(StoredEnum):
    """What the patterns are."""

    IP = 0, 0
    URL = 1, 1
    TOKEN = 2, 2
    REGEX = 3, 3


class LabelDb(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A set of patterns.

    Attributes:
        id: given by whoever makes it.
        name: its key, not empty.
        description: for people; None: there is none.
        kind: what the patterns are.
        category: of the events that they find.
        version: of the set; any text.
        patterns: each as whoever matches it encodes it; not looked at here. A list is taken too, and becomes a tuple.
    """

    id: U32
    name: str
    description: str | None
    kind: LabelDbKind
    category: EventCategory
    version: str
    patterns: tuple[bytes, ...]

    def __post_init__(self) -> None:
        freeze(self, "patterns")


_KEY = Key(name=rest_text)

LABEL_DATABASE: Schema[LabelDb] = Schema(LabelDb, family="label database", key=_KEY, value=KeyedValue(LabelDb, _KEY))
"""The schema of the family. `LabelDatabase` has all operations of a table."""


class LabelDatabase(Readable[LabelDb], Scannable[LabelDb], Writable[LabelDb]):
    """The sets of patterns of a store, of a transaction, or as of a view. `ReviewStore.label_database` makes it.

    ``get`` and ``delete`` take the name.
    """

    __slots__ = ()
