"""Cases about leases: one holder at a time, and former holders that can do nothing any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec.structs import replace

from pystate.effects.queries import ListQuery
from pystate.effects.record import EffectRecord
from pystate.effects.requests import Lease
from pystate.effects.state import Transition
from pystate.effects.testing.trial import TTL, Cases, ConformanceError, T, Trial, equal, expect, race, refused
from pystate.errors import LeaseHeldError, LeaseLostError

__all__ = ["CASES"]

CASES = Cases()


def _check_lease(
    trial: Trial, record: EffectRecord, owner: str | None, epoch: int, expires_at: datetime | None
) -> None:
    """The lease is as given, and nothing else of the effect has changed since it was recorded."""
    expected = replace(record, lease_owner=owner, lease_epoch=epoch, lease_expires_at=expires_at)
    equal(trial.stored(record), expected, "the record")
    equal(trial.events(record), [], "the trail")


@CASES.add
def a_lease_changes_nothing_but_the_lease(trial: Trial) -> None:
    record = trial.insert()
    lease = trial.lease(record)
    equal((lease.effect_id, lease.owner, lease.epoch, lease.expires_at), (record.id, "a", 1, T(30)), "the first lease")
    _check_lease(trial, record, "a", 1, T(30))
    renewed = trial.store.renew_lease(lease, T(20), TTL)
    equal(
        (renewed.effect_id, renewed.owner, renewed.epoch, renewed.expires_at),
        (record.id, "a", 1, T(50)),
        "the renewed one",
    )
    _check_lease(trial, record, "a", 1, T(50))
    trial.store.release_lease(renewed)
    _check_lease(trial, record, None, 1, None)


@CASES.add
def a_live_lease_holds_everyone_off_its_owner_too(trial: Trial) -> None:
    record = trial.insert()
    trial.lease(record)
    for owner, at in (("b", 29), ("a", 1), ("b", 29.999)):
        error = refused(LeaseHeldError, lambda o=owner, t=at: trial.lease(record, o, at=t), f"{owner!r} at T({at})")  # type: ignore[misc]
        equal((error.owner, error.expires_at), ("a", T(30)), "the holder in the error")
    _check_lease(trial, record, "a", 1, T(30))


@CASES.add
def a_lease_has_expired_at_its_expiry(trial: Trial) -> None:
    record = trial.insert()
    trial.lease(record)
    equal(trial.lease(record, "b", at=30).epoch, 2, "the epoch of who takes over")
    _check_lease(trial, record, "b", 2, T(60))


@CASES.add
def a_former_holder_can_do_nothing(trial: Trial) -> None:
    record = trial.insert()
    former = trial.lease(record)
    trial.lease(record, "b", at=30)
    request = trial.request(record, Transition.START_ATTEMPT, 31, former)
    refused(LeaseLostError, lambda: trial.store.transition(request), "a transition of the former holder")
    refused(LeaseLostError, lambda: trial.store.renew_lease(former, T(31), TTL), "a renewal by the former holder")
    trial.store.release_lease(former)
    trial.store.release_lease(former)
    _check_lease(trial, record, "b", 2, T(60))


@CASES.add
def a_clock_that_goes_back_revives_no_former_holder(trial: Trial) -> None:
    record = trial.insert()
    former = trial.lease(record)
    trial.lease(record, "b", at=31)
    request = trial.request(record, Transition.START_ATTEMPT, 5, former)
    refused(LeaseLostError, lambda: trial.store.transition(request), "a transition of the former holder, clock back")
    refused(LeaseLostError, lambda: trial.store.renew_lease(former, T(5), TTL), "a renewal by it, clock back")
    refused(LeaseHeldError, lambda: trial.lease(record, "c", at=5), "a third one, clock back")
    _check_lease(trial, record, "b", 2, T(61))


@CASES.add
def a_renewal_counts_from_now_and_may_shorten(trial: Trial) -> None:
    record = trial.insert()
    lease = trial.lease(record)
    trial.store.renew_lease(lease, T(20), TTL)
    refused(LeaseHeldError, lambda: trial.lease(record, "b", at=40), "another one within the renewed lease")
    trial.take(record, Transition.START_ATTEMPT, 45, lease)  # a copy from before the renewal
    trial.store.renew_lease(lease, T(46), timedelta(seconds=1))
    refused(LeaseLostError, lambda: trial.store.renew_lease(lease, T(47), TTL), "a renewal after a shortened lease")
    equal(trial.lease(record, "b", at=47).epoch, 2, "the epoch of who takes over")


@CASES.add
def a_lapsed_lease_stays_dead(trial: Trial) -> None:
    record = trial.insert()
    lease = trial.lease(record)
    refused(LeaseLostError, lambda: trial.store.renew_lease(lease, T(30), TTL), "a renewal at the expiry")
    request = trial.request(record, Transition.START_ATTEMPT, 30, lease)
    refused(LeaseLostError, lambda: trial.store.transition(request), "a transition at the expiry")
    _check_lease(trial, record, "a", 1, T(30))
    trial.take(record, Transition.START_ATTEMPT, 30)  # without a lease: an expired one holds nobody off


@CASES.add
def a_lease_is_given_back_once_and_the_epoch_stays(trial: Trial) -> None:
    record = trial.insert()
    lease = trial.lease(record)
    trial.store.release_lease(lease)
    trial.store.release_lease(lease)
    _check_lease(trial, record, None, 1, None)
    refused(LeaseLostError, lambda: trial.store.renew_lease(lease, T(1), TTL), "a renewal of what was given back")
    second = trial.lease(record, "a", at=1)
    equal(second.epoch, 2, "the epoch of the next lease")
    trial.store.release_lease(lease)
    _check_lease(trial, record, "a", 2, T(31))
    trial.store.release_lease(second)  # long expired, by any clock: no time is asked
    _check_lease(trial, record, None, 2, None)


@CASES.add
def a_lease_of_another_owner_epoch_or_effect_is_lost(trial: Trial) -> None:
    record, other = trial.insert(), trial.insert("order_2")
    lease = trial.lease(record)
    other_lease = trial.lease(other)
    for wrong in (replace(lease, owner="x"), replace(lease, epoch=9), replace(lease, epoch=0)):
        refused(LeaseLostError, lambda w=wrong: trial.store.renew_lease(w, T(1), TTL), f"a renewal with {wrong}")  # type: ignore[misc]
        _refuse_request(trial, record, wrong)
        trial.store.release_lease(wrong)
    _refuse_request(trial, record, other_lease)
    _check_lease(trial, record, "a", 1, T(30))
    _check_lease(trial, other, "a", 1, T(30))


def _refuse_request(trial: Trial, record: EffectRecord, lease: Lease) -> None:
    request = trial.request(record, Transition.START_ATTEMPT, 1, lease)
    refused(LeaseLostError, lambda: trial.store.transition(request), f"a transition with {lease}")


@CASES.add
def a_lease_beyond_the_end_of_time_is_born_expired(trial: Trial) -> None:
    record = trial.insert()
    equal(trial.lease(record, ttl=timedelta.max).expires_at, T(0), "the expiry of an endless lease")
    equal(trial.lease(record, "b", ttl=timedelta(0)).epoch, 2, "the epoch of the next lease, which lives no time")
    equal(trial.lease(record, "c").epoch, 3, "the epoch of the one after")


@CASES.add
def a_settled_effect_can_be_leased(trial: Trial) -> None:
    record = trial.walk(trial.insert(), Transition.START_ATTEMPT, Transition.SUCCEEDED)
    lease = trial.lease(record, at=2)
    trial.take(record, Transition.START_COMPENSATION, 3, lease)


@CASES.add
def times_come_back_as_they_are_stored(trial: Trial) -> None:
    record = trial.insert(at=0.123789)
    lease = trial.lease(record, at=0.123789)
    equal(trial.stored(record).lease_expires_at, lease.expires_at, "the stored expiry")
    renewed = trial.store.renew_lease(lease, T(1.9999), TTL)
    changed = trial.take(record, Transition.START_ATTEMPT, 2.7654321, renewed)
    equal(trial.stored(record).lease_expires_at, renewed.expires_at, "the stored expiry, renewed")
    for what, found, exact in (
        ("created_at", record.created_at, 0.123789),
        ("the expiry of the lease", lease.expires_at, 30.123789),
        ("the expiry of the renewed one", renewed.expires_at, 31.9999),
        ("updated_at", changed.updated_at, 2.7654321),
        ("the time of the event", trial.events(record)[0].at, 2.7654321),
    ):
        dropped = T(exact) - found
        expect(
            timedelta(0) <= dropped < timedelta(milliseconds=1),
            f"{what} is kept to the millisecond, and never rounded up: {T(exact)} given, {found} kept",
        )


@CASES.add
def a_hundred_renewals_leave_no_trace(trial: Trial) -> None:
    record = trial.insert()
    lease = trial.lease(record)
    for second in range(1, 101):
        lease = trial.store.renew_lease(lease, T(second), TTL)
    _check_lease(trial, record, "a", 1, T(130))
    equal(trial.ids(ListQuery.statuses()), [record.id], "the list")


@CASES.add
def of_many_at_once_one_gets_the_lease(trial: Trial) -> None:
    record = trial.insert()
    calls: list[Callable[[], Lease]] = [
        lambda owner=owner: trial.lease(record, owner)  # type: ignore[misc]
        for owner in map(str, range(32))
    ]
    results = race(calls)
    holders = [result for result in results if isinstance(result, Lease)]
    equal(len(holders), 1, "how many of 32 get a lease at once")
    _check_lease(trial, record, holders[0].owner, 1, T(30))
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, LeaseHeldError):
            raise ConformanceError(f"the others get LeaseHeldError, and not {result!r}") from result
