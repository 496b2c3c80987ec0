"""What an effect store is asked, and how it answers: which effects to list, which to prune, what an insertion met.

All are immutable and checked when they are made. A query is a question about records alone, so `matches` answers it
for one record whatever the store; a store only finds the records faster.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from pystate.effects.checks import as_duration, as_instance, as_time, settle_time
from pystate.effects.ids import EffectId
from pystate.effects.record import EffectRecord
from pystate.effects.state import ALL_STATUSES, EffectStatus

__all__ = ["DOUBTFUL", "RESUMABLE", "InsertOutcome", "ListQuery", "PruneQuery"]

DOUBTFUL = (EffectStatus.EXECUTING, EffectStatus.VERIFYING)
"""The statuses that only a holder of a lease leaves: once that has expired, nobody knows what happened."""
RESUMABLE = (EffectStatus.PENDING, EffectStatus.UNKNOWN, EffectStatus.COMPENSATING)
"""The statuses that a worker may go on from when they are due."""
_UNSETTLED = tuple(status for status in ALL_STATUSES if not status.is_settled)


class InsertOutcome(NamedTuple):
    """What `insert_or_get` found or made.

    Attributes:
        record: the one record of the key, as it is stored.
        inserted: this call has made it.
    """

    record: EffectRecord
    inserted: bool


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to list, in ascending order of their ids. Made by `statuses`, `expired_leases`, `pending`, `due`.

    For the next page ask again with `after` = the last id, until a page is shorter than `limit`.

    Attributes:
        status_in: only these statuses; empty means any.
        lease_expired_at: only records without a live lease at this time; None: all.
        due_at: only records that need not wait longer than until this time; None: all.
        after: only greater ids; None: all.
        limit: at most so many, from 0.

    Raises:
        TypeError, ValueError: a field has another type, or is out of its range; a time is naive.
    """

    status_in: tuple[EffectStatus, ...] = ()
    lease_expired_at: datetime | None = None
    due_at: datetime | None = None
    after: EffectId | None = None
    limit: int = 100

    def __post_init__(self) -> None:
        as_instance(self.status_in, tuple, "status_in")
        for status in self.status_in:
            as_instance(status, EffectStatus, "status_in")
        settle_time(self, "lease_expired_at", "due_at")
        if self.after is not None:
            as_instance(self.after, EffectId, "after")
        _check_limit(self.limit)

    @classmethod
    def statuses(
        cls, statuses: Iterable[EffectStatus] = (), *, limit: int = 100, after: EffectId | None = None
    ) -> ListQuery:
        """Those with one of these statuses; none given means any. Raises what the class raises."""
        return cls(status_in=tuple(statuses), limit=limit, after=after)

    @classmethod
    def expired_leases(cls, now: datetime, *, limit: int = 100, after: EffectId | None = None) -> ListQuery:
        """Those that were left in the middle: executing or verifying, and nobody holds a live lease at `now`."""
        return cls(status_in=DOUBTFUL, lease_expired_at=as_time(now, "now"), limit=limit, after=after)

    @classmethod
    def pending(cls, now: datetime, *, limit: int = 100, after: EffectId | None = None) -> ListQuery:
        """Those that are not settled and that nobody holds at `now`, whoever or whatever they wait for."""
        return cls(status_in=_UNSETTLED, lease_expired_at=as_time(now, "now"), limit=limit, after=after)

    @classmethod
    def due(cls, now: datetime, *, limit: int = 100, after: EffectId | None = None) -> ListQuery:
        """Those that a worker may go on with at `now`: pending, unknown or compensating; nobody holds them; due."""
        now = as_time(now, "now")
        return cls(status_in=RESUMABLE, lease_expired_at=now, due_at=now, limit=limit, after=after)

    def matches(self, record: EffectRecord) -> bool:
        """Whether a record is one of those that are asked for, whatever `limit` says."""
        return (
            (not self.status_in or record.status in self.status_in)
            and (self.lease_expired_at is None or record.live_lease_owner(self.lease_expired_at) is None)
            and (self.due_at is None or record.next_attempt_at is None or record.next_attempt_at <= self.due_at)
            and (self.after is None or record.id > self.after)
        )


class PruneQuery(msgspec.Struct, frozen=True):
    """Which settled records to delete, those with the lowest ids first.

    An age and not an instant, so that a store may measure it with a clock of its own.

    Attributes:
        status: only this one. Of a status that is not settled nothing is deleted.
        older_than: only those that were updated at least so long ago.
        now: the time.
        limit: at most so many, from 0.

    Raises:
        TypeError, ValueError: a field has another type, or is out of its range; the time is naive.
    """

    status: EffectStatus
    older_than: timedelta
    now: datetime
    limit: int = 500

    def __post_init__(self) -> None:
        as_instance(self.status, EffectStatus, "status")
        as_duration(self.older_than, "older_than")
        as_instance(self.now, datetime, "now")
        settle_time(self, "now")
        _check_limit(self.limit)

    @property
    def cutoff(self) -> datetime | None:
        """Deleted is what was updated at or before this time; None: nothing is that old."""
        try:
            return self.now - self.older_than
        except OverflowError:
            return None

    def matches(self, record: EffectRecord) -> bool:
        """Whether a record is one of those that may go, whatever `limit` says."""
        cutoff = self.cutoff
        return (
            record.status is self.status
            and self.status.is_settled
            and cutoff is not None
            and record.updated_at <= cutoff
            and record.live_lease_owner(self.now) is None
        )


def _check_limit(limit: int) -> None:
    if type(limit) is not int:
        raise TypeError(f"limit: expected an int, not {type(limit).__name__}")
    if limit < 0:
        raise ValueError(f"limit: {limit} is negative; give how many at most, from 0")
