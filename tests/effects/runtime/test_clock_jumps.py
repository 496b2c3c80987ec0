"""Clocks that are set, and clocks that go wrong: never do two holders act, and nothing is believed too early."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.effects import (
    EffectContext,
    EffectKey,
    EffectKind,
    EffectName,
    LeaseHeldError,
    LeaseLostError,
    LogicalKey,
    NewEffect,
    Transition,
    TransitionRequest,
    Verification,
    VerificationContract,
)
from pystate.effects.testing import ManualClock
from tests.effects.runtime.world import World
from tests.effects.samples import T

TTL = timedelta(seconds=30)


def planned(world: World) -> NewEffect:
    return NewEffect.new(
        EffectKey(EffectName("payment.charge"), LogicalKey("order_1")), EffectKind.IRREVERSIBLE_WRITE, T(0)
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-7200, 7200)), max_size=12))
def test_whatever_jumps_the_clock_makes_only_the_newest_holder_acts(steps: list[tuple[str, int]]) -> None:
    """Row 92: workers try to take an effect and to begin it, while the clock is set forward and back between."""
    world = World()
    id = world.store.insert_or_get(planned(world)).record.id  # noqa: A001
    taken = []
    newest = None
    for worker, jump in steps:
        world.clock.jump(timedelta(seconds=jump))
        now = world.clock.now()
        before = world.store.get(id)
        assert before is not None
        try:
            newest = world.store.acquire_lease(id, worker, now, TTL)
        except LeaseHeldError as error:
            assert (error.owner, error.expires_at) == (before.live_lease_owner(now), before.lease_expires_at)
        else:
            assert before.lease_expires_at is None or before.lease_expires_at <= now
            taken.append(newest)
        for lease in taken:
            record = world.store.get(id)
            assert record is not None
            if lease is newest and record.live_lease_owner(now) is not None:
                world.store.renew_lease(lease, now, TTL)
            elif lease is not newest:
                with pytest.raises(LeaseLostError):
                    world.store.transition(TransitionRequest.new(record, lease, Transition.START_ATTEMPT, now))
    world.check()


def test_a_result_that_comes_after_a_jump_forward_is_refused_once_another_one_has_taken_over(world: World) -> None:
    """Row 92: the clock is set an hour forward while an action runs; whoever took over has decided, and that stays."""
    rival = world.runtime("b")

    async def slow(context: EffectContext) -> str:
        world.clock.jump(timedelta(hours=1))
        await rival.run(world.effect(slow), "order_1")
        return "late"

    outcome = world.run(world.effect(slow))
    assert world.trail() == "AS LX ES"
    assert outcome.id == world.record().id


class BackwardsClock(ManualClock):
    """A clock whose monotonic time goes back, now and then, or begins anew."""

    def __init__(self, steps: Iterator[float]) -> None:
        super().__init__(T(0))
        self._steps = steps

    def monotonic(self) -> float:
        return super().monotonic() + next(self._steps, 0.0)


@pytest.mark.parametrize("steps", [[0.0, -5.0], [100.0, 0.0, 0.0], [0.0, -1000.0]], ids=["back", "anew", "far back"])
def test_a_monotonic_clock_that_steps_back_makes_nothing_believed_too_early(steps: list[float]) -> None:
    """Row 93: "not found" is believed when it was settled, or later, and never before; leases are not touched by it."""
    world = World()
    world.clock = BackwardsClock(iter(steps))
    world.remote.clock = world.clock
    asked: list[timedelta] = []

    async def look_up(_: EffectContext) -> Verification[str]:
        asked.append(world.clock.now() - T(0))
        return Verification.not_applied()

    async def lost(_: EffectContext) -> str:
        raise RuntimeError("the answer was lost")

    effect = world.effect(
        lost, verify=look_up, verification=VerificationContract.eventually_consistent(timedelta(seconds=10))
    )
    world.run(effect)
    retries = [event for event in world.events() if event.transition is Transition.SCHEDULE_RETRY]
    assert all(event.at - T(0) >= timedelta(seconds=10) for event in retries)
    assert asked
    assert world.record().lease_owner is None
    world.check()
