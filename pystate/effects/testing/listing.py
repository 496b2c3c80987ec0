"""Cases about lists: what matches, in the order of ids, page by page."""

from __future__ import annotations

from uuid import UUID

from pystate.effects.ids import EffectId
from pystate.effects.kinds import EffectKind
from pystate.effects.queries import ListQuery
from pystate.effects.record import EffectRecord
from pystate.effects.requests import NewEffect
from pystate.effects.state import ALL_STATUSES, EffectStatus, Transition
from pystate.effects.testing.trial import TTL, Cases, T, Trial, effect_key, equal

__all__ = ["CASES"]

CASES = Cases()

_S, _T = EffectStatus, Transition

WAYS: dict[EffectStatus, tuple[Transition, ...]] = {
    _S.PENDING: (),
    _S.AWAITING_APPROVAL: (_T.REQUEST_APPROVAL,),
    _S.EXECUTING: (_T.START_ATTEMPT,),
    _S.UNKNOWN: (_T.START_ATTEMPT, _T.OUTCOME_UNKNOWN),
    _S.VERIFYING: (_T.START_ATTEMPT, _T.START_VERIFICATION),
    _S.COMMITTED: (_T.START_ATTEMPT, _T.SUCCEEDED),
    _S.FAILED: (_T.START_ATTEMPT, _T.FAILED_DEFINITIVELY),
    _S.REJECTED: (_T.PRECONDITION_REJECTED,),
    _S.NEEDS_INTERVENTION: (_T.START_ATTEMPT, _T.OUTCOME_UNKNOWN, _T.ESCALATE),
    _S.COMPENSATING: (_T.START_ATTEMPT, _T.SUCCEEDED, _T.START_COMPENSATION),
    _S.COMPENSATED: (_T.START_ATTEMPT, _T.SUCCEEDED, _T.START_COMPENSATION, _T.COMPENSATION_SUCCEEDED),
    _S.COMPENSATION_FAILED: (_T.START_ATTEMPT, _T.SUCCEEDED, _T.START_COMPENSATION, _T.COMPENSATION_FAILED),
}
"""A way to each status."""


def one_of_each(trial: Trial, *, at: float = 1) -> dict[EffectStatus, EffectRecord]:
    """An effect in each status, in the order in which statuses are listed."""
    return {status: trial.walk(trial.insert(status), *WAYS[status], at=at) for status in ALL_STATUSES}


@CASES.add
def expired_leases_are_those_left_in_the_middle(trial: Trial) -> None:
    records = trial.insert_many(5)
    trial.take(records[1], _T.START_ATTEMPT, 90, trial.lease(records[1], at=90))
    trial.take(records[2], _T.START_ATTEMPT, 0, trial.lease(records[2], at=0))
    lease = trial.lease(records[3], at=90)
    trial.take(records[3], _T.START_ATTEMPT, 90, lease)
    trial.take(records[3], _T.START_VERIFICATION, 90, lease)
    trial.store.release_lease(lease)
    trial.walk(records[4], _T.START_ATTEMPT, _T.OUTCOME_UNKNOWN, at=90)
    ids = [record.id for record in records]
    for what, query, expected in (
        ("pending", ListQuery.statuses([_S.PENDING]), ids[:1]),
        ("expired leases", ListQuery.expired_leases(T(100)), ids[2:4]),
        ("two of any status", ListQuery.statuses(limit=2), ids[:2]),
        ("of any status after the second", ListQuery.statuses(after=ids[1]), ids[2:]),
        ("expired leases after the third", ListQuery.expired_leases(T(100), after=ids[2]), ids[3:4]),
        ("expired leases, one", ListQuery.expired_leases(T(100), limit=1), ids[2:3]),
        ("expired leases at the expiry of one", ListQuery.expired_leases(T(120)), ids[1:4]),
        ("expired leases just before", ListQuery.expired_leases(T(119.999)), ids[2:4]),
    ):
        equal(trial.ids(query), expected, what)


@CASES.add
def an_expired_lease_is_found_again_once_it_is_renewed_no_more(trial: Trial) -> None:
    record = trial.insert()
    lease = trial.lease(record)
    trial.take(record, _T.START_ATTEMPT, 1, lease)
    trial.store.renew_lease(lease, T(20), TTL)
    equal(trial.ids(ListQuery.expired_leases(T(30))), [], "expired leases at the old expiry")
    equal(trial.ids(ListQuery.expired_leases(T(50))), [record.id], "expired leases at the new one")
    trial.lease(record, "b", at=50)
    equal(trial.ids(ListQuery.expired_leases(T(50))), [], "expired leases once somebody took over")
    equal(trial.ids(ListQuery.expired_leases(T(80))), [record.id], "expired leases once that one has expired")
    trial.take(record, _T.LEASE_EXPIRED, 80)
    equal(trial.ids(ListQuery.expired_leases(T(80))), [], "expired leases once it is marked")


@CASES.add
def each_status_lists_its_own(trial: Trial) -> None:
    records = one_of_each(trial)
    everything = [record.id for record in records.values()]
    for status, record in records.items():
        equal(trial.store.list(ListQuery.statuses([status])), [record], f"those that are {status}")
    equal(trial.ids(ListQuery.statuses()), everything, "those of any status")
    equal(trial.ids(ListQuery.statuses(ALL_STATUSES)), everything, "those of all statuses")
    two = [records[_S.EXECUTING].id, records[_S.FAILED].id]
    equal(trial.ids(ListQuery.statuses([_S.FAILED, _S.EXECUTING])), two, "those of two statuses, given in any order")
    equal(trial.ids(ListQuery.statuses([_S.FAILED, _S.FAILED])), two[1:], "those of a status that is given twice")


@CASES.add
def a_list_is_in_the_order_of_ids_however_it_was_filled(trial: Trial) -> None:
    numbers = [5, 2, 9, 1, 7]
    for number in numbers:
        id_ = EffectId(UUID(int=number << 64))
        new = NewEffect(id=id_, key=effect_key("any", str(number)), kind=EffectKind.READ, now=T(100 - number))
        record = trial.store.insert_or_get(new).record
        if number != 2:
            trial.walk(record, _T.START_ATTEMPT, at=200 - number)
    in_order = [EffectId(UUID(int=number << 64)) for number in sorted(numbers)]
    equal(trial.ids(ListQuery.statuses()), in_order, "those of any status")
    equal(trial.ids(ListQuery.statuses([_S.EXECUTING])), [in_order[0], *in_order[2:]], "those of one status")
    equal(trial.ids(ListQuery.statuses([_S.EXECUTING, _S.PENDING])), in_order, "those of two statuses")
    equal(trial.ids(ListQuery.expired_leases(T(300))), [in_order[0], *in_order[2:]], "expired leases")


@CASES.add
def pages_make_up_the_whole(trial: Trial) -> None:
    ids = [record.id for record in trial.insert_many(7)]
    for limit in (1, 2, 3, 7, 8):
        pages, after = [], None
        for _ in range(8):  # a broken store has pages without an end
            page = trial.ids(ListQuery.statuses([_S.PENDING], limit=limit, after=after))
            pages += page
            if len(page) < limit:
                break
            after = page[-1]
        equal(pages, ids, f"all pages of {limit}")
    equal(trial.ids(ListQuery.statuses(limit=0)), [], "a page of 0")
    equal(trial.ids(ListQuery.expired_leases(T(0), limit=0)), [], "a page of 0 expired leases")
    stranger = EffectId(UUID(int=ids[3].uuid.int + 1))
    equal(trial.ids(ListQuery.statuses(after=stranger)), ids[4:], "what comes after an id that is not there")


@CASES.add
def a_page_is_a_hundred_unless_it_says_otherwise(trial: Trial) -> None:
    ids = [record.id for record in trial.insert_many(101)]
    equal(trial.ids(ListQuery.statuses()), ids[:100], "a page")


@CASES.add
def pending_are_those_that_are_not_settled_and_not_held(trial: Trial) -> None:
    records = one_of_each(trial)
    trial.lease(records[_S.UNKNOWN], at=1)
    expected = [record.id for status, record in records.items() if not status.is_settled and status is not _S.UNKNOWN]
    equal(trial.ids(ListQuery.pending(T(30))), expected, "pending")
    everything = [record.id for status, record in records.items() if not status.is_settled]
    equal(trial.ids(ListQuery.pending(T(31))), everything, "pending at the expiry of a lease")
    equal(trial.ids(ListQuery.pending(T(31), limit=3, after=everything[1])), everything[2:5], "a page of pending ones")


@CASES.add
def due_are_those_whose_time_has_come(trial: Trial) -> None:
    later, soon, now, held, unknown, undoing = trial.insert_many(6)
    for record, at in ((later, 100), (soon, 10)):
        trial.take(record, _T.START_ATTEMPT, 1)
        trial.take(record, _T.SCHEDULE_RETRY, 2, next_attempt_at=T(at))
    trial.lease(held, at=5)
    trial.walk(unknown, *WAYS[_S.UNKNOWN])
    trial.walk(undoing, *WAYS[_S.COMPENSATING])
    trial.take(undoing, _T.SCHEDULE_COMPENSATION_RETRY, 2, next_attempt_at=T(20))
    equal(trial.ids(ListQuery.due(T(9.999))), [now.id, unknown.id], "due before the first")
    equal(trial.ids(ListQuery.due(T(10))), [soon.id, now.id, unknown.id], "due at the time of the first")
    equal(trial.ids(ListQuery.due(T(20))), [soon.id, now.id, unknown.id, undoing.id], "due at the time of the second")
    expected = [soon.id, now.id, held.id, unknown.id, undoing.id]
    equal(trial.ids(ListQuery.due(T(35))), expected, "due when a lease has expired")
    equal(trial.ids(ListQuery.due(T(100))), [later.id, *expected], "due when all are")
    equal(trial.ids(ListQuery.due(T(100), limit=2, after=soon.id)), [now.id, held.id], "a page of due ones")
