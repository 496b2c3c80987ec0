"""Leases: who works on an effect, until when, and that a former holder is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from pystate.effects import (
    EffectId,
    EffectRecord,
    EffectStatus,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    Transition,
    TransitionRequest,
    WorkerId,
)
from pystate.errors import EffectStoreError, PystateError
from tests.effects.samples import TTL, History, T, fresh, leased, seconds


def start(record: EffectRecord, lease: Lease | None, now: datetime) -> EffectRecord:
    return record.apply(TransitionRequest.new(record, lease, Transition.START_ATTEMPT, now))[0]


def test_a_lease_changes_nothing_but_itself() -> None:
    """Check E27: epoch 1, expiry T(30), and no update."""
    before = fresh()
    record, lease = before.acquire_lease("a", T(0), TTL)
    assert (record.lease_owner, record.lease_epoch, record.lease_expires_at) == ("a", 1, T(30))
    assert (record.version, record.updated_at) == (0, T(0))
    assert lease == Lease(effect_id=before.id, owner="a", epoch=1, expires_at=T(30))
    assert replace(record, lease_owner=None, lease_epoch=0, lease_expires_at=None) == before
    assert before.lease_owner is None


def test_a_live_lease_keeps_others_out() -> None:
    """Check E28: until it expires."""
    record, _ = leased()
    with pytest.raises(LeaseHeldError) as caught:
        record.acquire_lease("b", T(29), TTL)
    assert (caught.value.owner, caught.value.expires_at, caught.value.id) == ("a", T(30), record.id)
    assert {EffectStoreError, RuntimeError} < set(type(caught.value).__mro__)


def test_a_live_lease_keeps_its_own_holder_out() -> None:
    """Check E29: it must be renewed, not taken again."""
    record, _ = leased()
    with pytest.raises(LeaseHeldError) as caught:
        record.acquire_lease("a", T(1), TTL)
    assert (caught.value.owner, caught.value.expires_at) == ("a", T(30))


def test_an_expired_lease_is_taken_over() -> None:
    """Check E30: an expiry exactly now is expired."""
    record, lease = leased()[0].acquire_lease("b", T(30), TTL)
    assert (record.lease_owner, record.lease_epoch, record.lease_expires_at) == ("b", 2, T(60))
    assert lease.epoch == 2


def test_a_former_holder_can_neither_write_nor_evict() -> None:
    """Check E31: its lease is lost, and its release does nothing."""
    record, lease = leased()
    taken_over, _ = record.acquire_lease("b", T(30), TTL)
    with pytest.raises(LeaseLostError) as caught:
        start(taken_over, lease, T(31))
    assert caught.value.id == record.id
    assert taken_over.release_lease(lease) == (taken_over, False)
    assert taken_over.live_lease_owner(T(31)) == "b"


def test_a_renewal_moves_the_expiry() -> None:
    """Check E32: the epoch stays, and others stay out."""
    record, lease = leased()
    renewed, newer = record.renew_lease(lease, T(20), TTL)
    assert (renewed.lease_expires_at, renewed.lease_epoch, renewed.version) == (T(50), 1, 0)
    assert newer == replace(lease, expires_at=T(50))
    assert replace(renewed, lease_expires_at=T(30)) == record
    with pytest.raises(LeaseHeldError):
        renewed.acquire_lease("b", T(40), TTL)


def test_a_lapsed_lease_cannot_be_renewed() -> None:
    """Check E33: although nobody else took it."""
    record, lease = leased()
    renewed, newer = record.renew_lease(lease, T(20), TTL)
    with pytest.raises(LeaseLostError):
        renewed.renew_lease(newer, T(50), TTL)


def test_a_copy_from_before_a_renewal_still_works() -> None:
    """Check E34: the record says when the lease ends, not the copy."""
    record, lease = leased()
    renewed, _ = record.renew_lease(lease, T(20), TTL)
    assert lease.expires_at == T(30)
    assert start(renewed, lease, T(35)).status is EffectStatus.EXECUTING


def test_a_renewal_may_shorten() -> None:
    """Check E35: it is dead at its new end."""
    record, lease = leased()
    renewed, newer = record.renew_lease(lease, T(10), seconds(5))
    assert renewed.lease_expires_at == newer.expires_at == T(15)
    assert renewed.live_lease_owner(T(14.999999)) == "a" and renewed.live_lease_owner(T(15)) is None
    with pytest.raises(LeaseLostError):
        renewed.renew_lease(newer, T(15), TTL)


def test_a_lease_past_the_end_of_time_is_born_expired() -> None:
    """Check E36: which is safe; and the next one is taken as usual."""
    record, lease = fresh().acquire_lease("a", T(0), timedelta.max)
    assert record.lease_expires_at == lease.expires_at == T(0)
    assert record.live_lease_owner(T(0)) is None
    assert record.lease_epoch == 1
    again, second = record.acquire_lease("b", T(0), TTL)
    assert second.epoch == again.lease_epoch == 2
    assert again.renew_lease(second, T(1), timedelta.max)[0].lease_expires_at == T(1)


def test_a_lease_of_no_time_is_expired_at_once() -> None:
    """Check E37: but it is one."""
    record, lease = fresh().acquire_lease("a", T(0), seconds(0))
    assert (lease.epoch, lease.expires_at) == (1, T(0))
    assert record.live_lease_owner(T(0)) is None


def test_a_release_keeps_the_epoch() -> None:
    """Check E38: also after its expiry; and the second one does nothing."""
    record, lease = leased()
    released, changed = record.release_lease(lease)
    assert changed
    assert (released.lease_owner, released.lease_expires_at, released.lease_epoch) == (None, None, 1)
    assert (released.version, released.updated_at) == (0, T(0))
    assert released.release_lease(lease) == (released, False)


def test_after_a_release_the_next_lease_is_a_new_one() -> None:
    """Check E39: epoch 2, although the first has not expired."""
    record, lease = leased()
    _, second = record.release_lease(lease)[0].acquire_lease("b", T(1), TTL)
    assert second.epoch == 2


@pytest.mark.parametrize("wrong", ["owner", "epoch", "effect_id"])
def test_another_lease_is_none(wrong: str) -> None:
    """Check E40: owner, epoch and effect must all be right."""
    record, lease = leased()
    values = {"owner": "x", "epoch": 9, "effect_id": EffectId.new()}
    other = replace(lease, **{wrong: values[wrong]})
    with pytest.raises(LeaseLostError):
        record.renew_lease(other, T(1), TTL)
    with pytest.raises(LeaseLostError):
        start(record, other, T(1))
    assert record.release_lease(other) == (record, False)


def test_a_lease_that_was_never_taken_is_none() -> None:
    record = fresh()
    lease = Lease(effect_id=record.id, owner="a", epoch=0, expires_at=T(30))
    with pytest.raises(LeaseLostError):
        record.renew_lease(lease, T(1), TTL)
    released, first = leased()
    released, _ = released.release_lease(first)
    with pytest.raises(LeaseLostError):
        released.renew_lease(first, T(1), TTL)


def test_a_settled_record_can_be_leased() -> None:
    """Check E41: a compensation needs it."""
    history = History()
    record = history.take(Transition.START_ATTEMPT, Transition.SUCCEEDED)
    leased_record, lease = record.acquire_lease("a", T(3), TTL)
    assert leased_record.live_lease_owner(T(3)) == "a" and lease.epoch == 1


def test_an_owner_without_an_expiry_is_not_live() -> None:
    """And does not keep anybody out."""
    record = replace(fresh(), lease_owner="a", lease_epoch=1)
    assert record.live_lease_owner(T(0)) is None
    assert start(record, None, T(1)).status is EffectStatus.EXECUTING
    assert record.acquire_lease("b", T(0), TTL)[1].epoch == 2
    with pytest.raises(LeaseLostError):
        start(record, Lease(effect_id=record.id, owner="a", epoch=1, expires_at=T(30)), T(1))


def test_an_expiry_without_an_owner_is_not_live() -> None:
    record = replace(fresh(), lease_expires_at=T(30))
    assert record.live_lease_owner(T(0)) is None
    assert start(record, None, T(1)).status is EffectStatus.EXECUTING
    assert record.acquire_lease("b", T(0), TTL)[1].epoch == 1


def test_the_owner_may_be_any_text() -> None:
    record, lease = fresh().acquire_lease(WorkerId.random(), T(0), TTL)
    assert type(record.lease_owner) is type(lease.owner) is str
    assert fresh().acquire_lease("", T(0), TTL)[0].live_lease_owner(T(0)) == ""


def test_wrong_arguments_are_refused_before_anything() -> None:
    """A naive time, a negative duration, another type: whatever the state of the lease."""
    record, lease = leased()
    naive = datetime(2024, 1, 1)  # noqa: DTZ001
    for own in (record, fresh()):
        with pytest.raises(ValueError, match="now: .* no time zone"):
            own.acquire_lease("a", naive, TTL)
        with pytest.raises(ValueError, match="ttl: .* negative"):
            own.acquire_lease("a", T(0), seconds(-1))
        with pytest.raises(TypeError, match="owner"):
            own.acquire_lease(None, T(0), TTL)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="owner"):
            own.acquire_lease("\udc80", T(0), TTL)
        with pytest.raises(ValueError, match="no time zone"):
            own.renew_lease(lease, naive, TTL)
        with pytest.raises(ValueError, match="negative"):
            own.renew_lease(lease, T(0), seconds(-1))
        with pytest.raises(ValueError, match="no time zone"):
            own.live_lease_owner(naive)


def test_times_of_other_zones_are_the_same_times() -> None:
    from datetime import timezone

    elsewhere = T(0).astimezone(timezone(timedelta(hours=5, minutes=30)))
    record, _ = fresh().acquire_lease("a", elsewhere, TTL)
    assert record.lease_expires_at == T(30)
    assert record.lease_expires_at.tzinfo is UTC


def test_lease_errors_are_kinds_of_one() -> None:
    assert issubclass(LeaseHeldError, EffectStoreError) and issubclass(LeaseLostError, EffectStoreError)
    assert issubclass(EffectStoreError, PystateError)
