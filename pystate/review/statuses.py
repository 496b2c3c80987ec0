"""`ReviewStatus`: how far a review has come, by a name. An indexed table that begins with three.

Their ids are known to others, and begin at 1: id 0 is kept back, so that no status ever gets it.
"""

from __future__ import annotations

import msgspec

from pystate import FamilyWriter
from pystate.review.records import KeyedValue
from pystate.review.stored import U32
from pystate.tables import IndexedTable, Key, rest_text

__all__ = ["STATUSES", "ReviewStatus", "seed_statuses"]


class ReviewStatus(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """How far a review has come.

    Attributes:
        id: given by the table; ignored when storing a new one.
        description: its key, not empty.
    """

    id: U32
    description: str


_KEY = Key(description=rest_text)

STATUSES: IndexedTable[ReviewStatus] = IndexedTable(
    ReviewStatus, family="statuses", key=_KEY, value=KeyedValue(ReviewStatus, _KEY)
)
"""The table of statuses."""

_FIRST = ("nothing yet", "reviewed", "pending review", "disabled")
"""By their ids; the first one makes way at once."""


def seed_statuses(rows: FamilyWriter) -> None:
    """Give a table without a row the three statuses that every store begins with. A table with rows stays as it is.

    Arguments:
        rows: the family in an open transaction.
    """
    if any(rows.scan(limit=1)):
        return
    STATUSES.insert_records(rows, [ReviewStatus(id=0, description=text) for text in _FIRST])
    STATUSES.deactivate_id(rows, 0)
