"""Leases: renewed while the holder waits, lost when it stalls, and never in the way of a cancelled caller."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from pystate.effects import (
    Committed,
    EffectContext,
    EffectFailure,
    EffectInternalError,
    EffectOperations,
    EffectStatus,
    EffectStore,
    InProgress,
    Lease,
    NeedsIntervention,
    Outcome,
    Verification,
)
from pystate.effects.testing import ManualClock
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import T, seconds


class Renewals:
    """Counts the renewals of a store, and can let them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
        self.times: list[float] = []
        self.errors: list[Exception] = []
        genuine = EffectOperations.renew_lease

        def renew(operations: EffectOperations, lease: Lease, now: datetime, ttl: timedelta) -> Lease:
            self.times.append(world.seconds)
            if self.errors:
                raise self.errors.pop(0)
            return genuine(operations, lease, now, ttl)

        monkeypatch.setattr(EffectOperations, "renew_lease", renew)


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch, world: World) -> Renewals:
    return Renewals(monkeypatch, world)


def lasting(world: World, duration: float) -> Any:
    async def action(context: EffectContext) -> str:
        await world.clock.sleep(seconds(duration))
        return "done"

    return action


def test_a_live_lease_of_another_worker_is_left_alone(world: World) -> None:
    """Check E133: in progress at once, and nothing is written."""

    async def main() -> None:
        effect = world.effect(lasting(world, 5))
        first = asyncio.ensure_future(world.runtime("a").run(effect, "order_1"))
        await world.clock.advance(seconds(1))
        before, commits = world.record(), world.store.store.stats().commits
        assert await world.runtime("b").run(effect, "order_1") == InProgress(before.id)
        assert await world.runtime("a").run(effect, "order_1") == InProgress(before.id)
        assert world.record() == before and world.store.store.stats().commits == commits
        assert world.seconds == 1
        assert await world.clock.drive(first) == Committed("done")

    run_async(main)


class StalledClock(ManualClock):
    """The clock of a worker that stalls: its sleepers do not wake, so it renews nothing."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def now(self) -> datetime:
        return self.world.clock.now()


def test_a_worker_that_stalls_past_its_lease_cannot_record_its_result(world: World) -> None:
    """Check E134: b takes over an unprotected effect and escalates; a's late success is refused."""
    release = asyncio.Event()

    async def action(context: EffectContext) -> str:
        await release.wait()
        return "late"

    async def main() -> None:
        effect = world.effect(action)
        stalled = asyncio.ensure_future(world.runtime("a", clock=StalledClock(world)).run(effect, "order_1"))
        await world.clock.advance(seconds(30))
        outcome = await world.runtime("b").run(effect, "order_1")
        assert outcome == NeedsIntervention(world.record().id)
        release.set()
        assert await stalled == outcome

    run_async(main)
    assert world.trail() == "AS LX ES"
    assert world.record().lease_epoch == 2


def test_a_worker_that_stalls_reports_what_the_other_one_has_made_of_it(world: World) -> None:
    """Verified by b meanwhile: a's call reports the stored output, not its own value."""
    release = asyncio.Event()

    async def action(context: EffectContext) -> str:
        await release.wait()
        return "late"

    async def look_up(context: EffectContext) -> Verification[str]:
        return Verification.confirmed("found")

    async def main() -> None:
        effect = world.effect(action, verify=look_up)
        stalled = asyncio.ensure_future(world.runtime("a", clock=StalledClock(world)).run(effect, "order_1"))
        await world.clock.advance(seconds(30))
        assert await world.runtime("b").run(effect, "order_1") == Committed("found")
        release.set()
        assert await stalled == Committed("found")

    run_async(main)
    assert world.trail() == "AS LX VS VC"


def test_a_holder_learns_of_the_loss_at_its_next_beat(world: World, renewals: Renewals) -> None:
    """The action is left to finish; its result is not recorded, and the call begins a round of its own."""
    ended = []

    async def action(context: EffectContext) -> int:
        attempt = context.attempt
        await world.clock.sleep(seconds(100))
        ended.append(attempt)
        return attempt

    async def main() -> None:
        effect = world.effect(action, remote_idempotency=True)
        runtime = world.runtime()
        task = asyncio.ensure_future(runtime.run(effect, "order_1"))
        await world.clock.advance(seconds(5))
        world.clock.jump(seconds(30))  # the lease has lapsed, as every clock says
        await world.clock.advance(seconds(5))
        assert world.trail().startswith("AS LX RS")
        assert await world.clock.drive(task) == Committed(2)
        await world.clock.advance(seconds(1))

    run_async(main)
    assert world.trail() == "AS LX RS AS OK"
    assert ended == [1, 2]


def test_a_lease_is_renewed_while_an_action_lasts(world: World, renewals: Renewals) -> None:
    """Check E135: 100 s, a renewal every 10 s, version 2 and epoch 1 at the end."""

    async def main() -> None:
        task = asyncio.ensure_future(world.runtime().run(world.effect(lasting(world, 100)), "order_1"))
        for second in range(1, 100):
            await world.clock.advance(seconds(1))
            assert world.record().live_lease_owner(world.clock.now()) == "a", second
        assert await world.clock.drive(task) == Committed("done")

    run_async(main)
    assert renewals.times == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    record = world.record()
    assert (record.version, record.lease_epoch, record.lease_owner) == (2, 1, None)


def test_a_lease_is_renewed_while_a_retry_is_waited_for(world: World, renewals: Renewals) -> None:
    world.remote.script = [EffectFailure.rate_limited(seconds(25), "429")]
    assert world.run(world.effect()) == Committed("res_1")
    assert renewals.times == [10, 20]
    assert world.record().lease_epoch == 1


def test_a_renewal_that_fails_is_tried_again_at_the_next_beat(
    world: World, renewals: Renewals, caplog: pytest.LogCaptureFixture
) -> None:
    renewals.errors = [OSError("the disk is away"), OSError("the disk is away")]
    assert world.run(world.effect(lasting(world, 29))) == Committed("done")
    assert renewals.times == [10, 20]
    assert caplog.text.count("could not be renewed") == 2

    renewals.errors = [OSError("the disk is away")] * 3
    assert isinstance(world.run(world.effect(lasting(world, 31)), "order_2"), NeedsIntervention)
    assert world.trail("order_2") == "AS LX ES"


def test_a_lease_that_a_slow_disk_has_used_up_is_renewed_earlier(
    world: World, renewals: Renewals, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = EffectStore.transact_async

    async def slow(store: EffectStore, function: Any, **settings: Any) -> Any:
        result = await genuine(store, function, **settings)
        if world.trail() == "AS" and not renewals.times:
            await world.clock.sleep(seconds(25))
        return result

    monkeypatch.setattr(EffectStore, "transact_async", slow)
    assert world.run(world.effect(lasting(world, 22))) == Committed("done")
    assert renewals.times == [25, 35, 45]


def test_the_shortest_lease(world: World, renewals: Renewals) -> None:
    assert world.run(world.effect(lasting(world, 0.005)), lease_ttl=timedelta(0)) == Committed("done")
    assert renewals.times[:3] == [0.001, 0.002, 0.003]


# Callers that go away


def test_a_cancelled_caller_does_not_lose_the_result(world: World) -> None:
    """Check E136: it is recorded, and a later call replays it."""
    effect = world.effect(lasting(world, 5))

    async def main() -> None:
        runtime = world.runtime()
        caller = asyncio.ensure_future(runtime.run(effect, "order_1"))
        await world.clock.advance(seconds(1))
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await world.clock.advance(seconds(5))
        assert world.record().status is EffectStatus.COMMITTED
        assert await runtime.run(effect, "order_1") == Committed("done")

    run_async(main)
    assert world.trail() == "AS OK"


def test_a_caller_that_is_cancelled_while_a_retry_is_waited_for(world: World) -> None:
    world.remote.script = [EffectFailure.transient("busy")]
    effect = world.effect()

    async def main() -> None:
        caller = asyncio.ensure_future(world.runtime().run(effect, "order_1"))
        await world.clock.advance(seconds(0.5))
        caller.cancel()
        await world.clock.advance(seconds(5))

    run_async(main)
    assert world.trail() == "AS RS AS OK"


@pytest.mark.parametrize("protected", [False, True])
def test_an_event_loop_that_ends_records_that_the_outcome_is_unknown(world: World, protected: bool) -> None:
    """Its tasks are cancelled, the action among them. What is known is stored, and the lease given back."""
    world.remote.honours_keys = True
    hanging = [asyncio.Event()]

    async def action(context: EffectContext) -> str:
        if context.attempt == 1:
            world.remote.apply(context.idempotency_key)
            await hanging[0].wait()
        return await world.remote.create(context)

    effect = world.effect(action, remote_idempotency=protected)

    async def interrupted() -> None:
        asyncio.ensure_future(world.runtime().run(effect, "order_1"))
        await world.clock.advance(seconds(1))

    run_async(interrupted)
    assert world.record().lease_owner is None
    assert world.trail() == ("AS outcome_unknown RS" if protected else "AS outcome_unknown ES")
    error = world.record().last_error
    assert error is not None and "cancelled" in error.message
    if protected:
        assert world.run(effect) == Committed("res_1")
        assert len(world.remote.created) == 1


@pytest.mark.parametrize("verified", [False, True])
def test_an_action_that_ends_well_though_the_loop_ends_is_recorded(world: World, verified: bool) -> None:
    """It takes some turns to clean up, in which the heart has stopped already."""

    async def action(context: EffectContext) -> str:
        world.remote.apply(context.idempotency_key)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for _ in range(20):
                await asyncio.sleep(0)
        return "res_1"

    effect = world.effect(action, verify=world.remote.look_up if verified else None)

    async def interrupted() -> None:
        asyncio.ensure_future(world.runtime().run(effect, "order_1"))
        await world.clock.advance(seconds(1))

    run_async(interrupted)
    assert world.record().lease_owner is None
    assert world.trail() == ("AS VS" if verified else "AS OK")
    assert world.run(effect) == Committed("res_1")
    assert world.trail() == ("AS VS LX VS VC" if verified else "AS OK")


def test_an_event_loop_that_ends_while_a_retry_is_waited_for_gives_the_lease_back(world: World) -> None:
    world.remote.script = [EffectFailure.transient("busy")]

    async def interrupted() -> None:
        asyncio.ensure_future(world.runtime().run(world.effect(), "order_1"))
        await world.clock.advance(seconds(0.5))

    run_async(interrupted)
    assert world.trail() == "AS RS"
    assert world.record().lease_owner is None
    assert world.run(world.effect()) == Committed("res_1")
    assert world.seconds == 1


def test_work_that_is_cancelled_under_its_caller_is_an_internal_error(world: World) -> None:
    async def main() -> None:
        caller = asyncio.ensure_future(world.runtime().run(world.effect(lasting(world, 5)), "order_1"))
        await world.clock.advance(seconds(1))
        [work] = [task for task in asyncio.all_tasks() if task.get_name() == "pystate-effect"]
        work.cancel()
        with pytest.raises(EffectInternalError, match="cancelled"):
            await caller

    run_async(main)
    assert world.trail() == "AS outcome_unknown ES"


# A store that fails


class Broken(Exception):
    """No error of pystate."""


@pytest.mark.parametrize("error", [OSError("disk"), Broken("gone")], ids=repr)
def test_a_store_that_fails_after_the_action_leaves_it_executing(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    genuine = EffectStore.transact_async
    fail_at = [2]

    async def transact_async(store: EffectStore, function: Any, **settings: Any) -> Any:
        fail_at[0] -= 1
        if fail_at[0] == 0:
            raise error
        return await genuine(store, function, **settings)

    monkeypatch.setattr(EffectStore, "transact_async", transact_async)
    with pytest.raises(EffectInternalError) as raised:
        world.run(world.effect())
    assert raised.value.__cause__ is error
    assert world.trail() == "AS"
    assert world.record().lease_owner is None
    assert isinstance(world.run(world.effect()), NeedsIntervention)
    assert world.trail() == "AS LX ES"
    assert len(world.remote.calls) == 1


def test_errors_of_the_store_come_through(world: World) -> None:
    from pystate import ClosedError

    store = EffectStore.memory()
    other = World(store)
    runtime = other.runtime()
    store.close()

    async def main() -> Outcome[Any]:
        return await runtime.run(other.effect(), "order_1")

    with pytest.raises(ClosedError):
        run_async(main)


def test_nothing_is_left_of_a_run(world: World) -> None:
    """No task of a call outlives it."""

    async def main() -> None:
        await world.runtime().run(world.effect(), "order_1")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_async(main)
    assert world.clock.sleepers == 0
    assert world.record().created_at == T(0)
