"""`ListQuery` and `PruneQuery`: what they take, what they refuse, and which records they are about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pystate.effects import EffectId, EffectRecord, EffectStatus, InsertOutcome, ListQuery, PruneQuery
from pystate.effects.queries import DOUBTFUL, RESUMABLE
from tests.effects.samples import T, fresh, seconds
from tests.effects.values import ids, records, times

S = EffectStatus


def test_short_constructors() -> None:
    after = EffectId.new()
    assert ListQuery.statuses() == ListQuery()
    assert ListQuery().limit == 100
    assert ListQuery.statuses([S.PENDING], limit=3, after=after) == ListQuery(
        status_in=(S.PENDING,), limit=3, after=after
    )
    assert ListQuery.expired_leases(T(0), limit=3, after=after) == ListQuery(
        status_in=(S.EXECUTING, S.VERIFYING), lease_expired_at=T(0), limit=3, after=after
    )
    pending = ListQuery.pending(T(0), limit=3, after=after)
    assert pending.status_in == tuple(status for status in S if not status.is_settled) and len(pending.status_in) == 8
    assert (pending.lease_expired_at, pending.due_at, pending.limit, pending.after) == (T(0), None, 3, after)
    due = ListQuery.due(T(0), limit=3, after=after)
    assert due.status_in == RESUMABLE == (S.PENDING, S.UNKNOWN, S.COMPENSATING)
    assert (due.lease_expired_at, due.due_at, due.limit, due.after) == (T(0), T(0), 3, after)
    assert PruneQuery(S.FAILED, seconds(1), T(0)) == PruneQuery(
        status=S.FAILED, older_than=seconds(1), now=T(0), limit=500
    )
    record, inserted = InsertOutcome(fresh(), inserted=True)
    assert record.version == 0 and inserted


def test_times_become_utc() -> None:
    there = T(0).astimezone(timezone(timedelta(hours=5)))
    assert ListQuery.due(there) == ListQuery.due(T(0))
    assert ListQuery.expired_leases(there).lease_expired_at.tzinfo is UTC  # type: ignore[union-attr]
    assert PruneQuery(S.FAILED, seconds(1), there).now.tzinfo is UTC


@pytest.mark.parametrize(
    "make",
    [
        lambda: ListQuery(status_in=[S.PENDING]),  # type: ignore[arg-type]
        lambda: ListQuery(status_in=("pending",)),  # type: ignore[arg-type]
        lambda: ListQuery.statuses("pending"),  # type: ignore[arg-type]
        lambda: ListQuery(after="018bcfe5-6800-7000-8000-000000000000"),  # type: ignore[arg-type]
        lambda: ListQuery(limit=True),
        lambda: ListQuery(limit=1.0),  # type: ignore[arg-type]
        lambda: ListQuery.due(0),  # type: ignore[arg-type]
        lambda: ListQuery(due_at="now"),  # type: ignore[arg-type]
        lambda: PruneQuery("failed", seconds(1), T(0)),  # type: ignore[arg-type]
        lambda: PruneQuery(S.FAILED, 1, T(0)),  # type: ignore[arg-type]
        lambda: PruneQuery(S.FAILED, seconds(1), None),  # type: ignore[arg-type]
        lambda: PruneQuery(S.FAILED, seconds(1), T(0), limit=None),  # type: ignore[arg-type]
    ],
    ids=range(12),
)
def test_other_types_are_refused(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ListQuery(limit=-1), "limit: -1 is negative"),
        (lambda: PruneQuery(S.FAILED, seconds(1), T(0), limit=-1), "limit: -1 is negative"),
        (lambda: PruneQuery(S.FAILED, seconds(-1), T(0)), "older_than.*negative"),
        (lambda: PruneQuery(S.FAILED, seconds(1), datetime(2026, 1, 1)), "now.*time zone"),  # noqa: DTZ001
        (lambda: ListQuery.expired_leases(datetime(2026, 1, 1)), "now.*time zone"),  # noqa: DTZ001
        (lambda: ListQuery(due_at=datetime(2026, 1, 1)), "due_at.*time zone"),  # noqa: DTZ001
    ],
    ids=range(6),
)
def test_values_out_of_range_are_refused(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_queries_never_change() -> None:
    with pytest.raises(AttributeError):
        ListQuery().limit = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        PruneQuery(S.FAILED, seconds(1), T(0)).limit = 3  # type: ignore[misc]


@given(records, times, st.none() | times, ids, st.lists(st.sampled_from(S), max_size=3))
def test_a_list_query_matches_what_the_behaviour_says(
    record: EffectRecord, now: datetime, due: datetime | None, after: EffectId, statuses: list[EffectStatus]
) -> None:
    """Each condition by itself, and all together; an owner without an expiry, or the other way, is no live lease."""
    in_status = not statuses or record.status in statuses
    dead = record.lease_owner is None or record.lease_expires_at is None or record.lease_expires_at <= now
    is_due = due is None or record.next_attempt_at is None or record.next_attempt_at <= due
    behind = str(record.id) > str(after)
    assert ListQuery.statuses(statuses).matches(record) == in_status
    assert ListQuery(lease_expired_at=now).matches(record) == dead
    assert ListQuery(due_at=due).matches(record) == is_due
    assert ListQuery(after=after).matches(record) == behind
    whole = ListQuery(status_in=tuple(statuses), lease_expired_at=now, due_at=due, after=after)
    assert whole.matches(record) == (in_status and dead and is_due and behind)
    assert ListQuery.expired_leases(now).matches(record) == (record.status in DOUBTFUL and dead)


@given(records, st.sampled_from(S), times, st.timedeltas(min_value=timedelta(0)))
def test_a_prune_query_matches_what_the_behaviour_says(
    record: EffectRecord, status: EffectStatus, now: datetime, age: timedelta
) -> None:
    query = PruneQuery(status, age, now)
    try:
        old = record.updated_at <= now - age
    except OverflowError:
        old = False
        assert query.cutoff is None
    settled = status in (S.COMMITTED, S.FAILED, S.REJECTED, S.COMPENSATED)
    free = record.live_lease_owner(now) is None
    assert query.matches(record) == (record.status == status and settled and old and free)


def test_the_cutoff_is_inclusive() -> None:
    """Check E81: what was updated at T(40) is 60 seconds old at T(100), what was at T(41) is not."""
    query = PruneQuery(S.FAILED, seconds(60), T(100))
    for at, old in ((40, True), (41, False), (40.000001, False)):
        assert query.matches(replace(fresh(), status=S.FAILED, updated_at=T(at))) is old
