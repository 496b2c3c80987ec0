"""Crashes on purpose: what each leaves behind, and that nothing is written or given back after it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from pystate.effects import (
    ABORT_STATUS,
    Committed,
    EffectContext,
    EffectInternalError,
    EffectStatus,
    FaultAction,
    FaultInjector,
    FaultPoint,
    InProgress,
    NeedsIntervention,
)
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import seconds

PLAIN_POINTS = [
    FaultPoint.BEFORE_INSERT,
    FaultPoint.AFTER_INSERT,
    FaultPoint.AFTER_ATTEMPT_PERSISTED,
    FaultPoint.AFTER_ACTION_STARTED,
    FaultPoint.AFTER_ACTION_RETURNED,
]


def crash(world: World, point: FaultPoint, **settings: Any) -> FaultInjector:
    """Run an effect that crashes at a point."""
    faults = FaultInjector({point: FaultAction.CRASH})
    with pytest.raises(EffectInternalError, match=point.value):
        world.run(world.effect(**settings), faults=faults)
    assert faults.reached[-1] is point
    return faults


def test_the_points_are_passed_in_order_whether_or_not_they_are_armed(world: World) -> None:
    faults = FaultInjector()
    assert world.run(world.effect(), faults=faults) == Committed("res_1")
    assert faults.reached == tuple(PLAIN_POINTS)

    faults = FaultInjector()
    world.run(world.effect(verify=world.remote.look_up), "order_2", faults=faults)
    assert faults.reached == (*PLAIN_POINTS, FaultPoint.AFTER_VERIFICATION_STARTED)

    faults = FaultInjector()
    world.run(world.effect(require_approval=True), "order_3", faults=faults)
    assert faults.reached == (*PLAIN_POINTS[:2], FaultPoint.AFTER_APPROVAL_REQUESTED)


def test_a_crash_before_the_insert_leaves_nothing(world: World) -> None:
    crash(world, FaultPoint.BEFORE_INSERT)
    assert world.is_empty()


def test_a_crash_after_the_insert_leaves_it_pending_without_a_lease(world: World) -> None:
    crash(world, FaultPoint.AFTER_INSERT)
    record = world.record()
    assert (record.status, record.version, record.lease_epoch) == (EffectStatus.PENDING, 0, 0)
    assert world.run(world.effect(), worker="b") == Committed("res_1")
    assert world.trail() == "AS OK"


LEFT = {
    FaultPoint.AFTER_ATTEMPT_PERSISTED: (EffectStatus.EXECUTING, 0),
    FaultPoint.AFTER_ACTION_STARTED: (EffectStatus.EXECUTING, 1),
    FaultPoint.AFTER_ACTION_RETURNED: (EffectStatus.EXECUTING, 1),
    FaultPoint.AFTER_VERIFICATION_STARTED: (EffectStatus.VERIFYING, 1),
    FaultPoint.AFTER_APPROVAL_REQUESTED: (EffectStatus.AWAITING_APPROVAL, 0),
}


@pytest.mark.parametrize("point", LEFT)
def test_a_crash_leaves_the_lease(world: World, point: FaultPoint) -> None:
    """No release, no heartbeat, no write; until the lease has lapsed, everybody else stays away."""
    settings: dict[str, Any] = {}
    if point is FaultPoint.AFTER_VERIFICATION_STARTED:
        settings["verify"] = world.remote.look_up
    if point is FaultPoint.AFTER_APPROVAL_REQUESTED:
        settings["require_approval"] = True
    faults = FaultInjector({point: FaultAction.CRASH})
    effect = world.effect(**settings)

    async def main() -> None:
        with pytest.raises(EffectInternalError):
            await world.runtime("a", faults=faults).run(effect, "order_1")
        left = world.record()
        status, calls = LEFT[point]
        assert (left.status, left.lease_owner) == (status, "a")
        await world.clock.advance(seconds(29))
        assert world.record() == left
        assert len(world.remote.calls) == calls
        assert await world.runtime("b").run(effect, "order_1") == InProgress(left.id)
        await world.clock.advance(seconds(1))
        assert world.record().live_lease_owner(world.clock.now()) is None

    run_async(main)


def test_an_action_that_has_begun_runs_on_after_a_crash(world: World) -> None:
    ended = []

    async def action(context: EffectContext) -> None:
        await world.clock.sleep(seconds(5))
        ended.append(world.seconds)

    async def main() -> None:
        faults = FaultInjector({FaultPoint.AFTER_ACTION_STARTED: FaultAction.CRASH})
        with pytest.raises(EffectInternalError):
            await world.runtime(faults=faults).run(world.effect(action), "order_1")
        await world.clock.advance(seconds(9))

    run_async(main)
    assert ended == [5]
    world.pass_time(30)
    assert isinstance(world.run(world.effect(action)), NeedsIntervention)
    assert world.trail() == "AS LX ES"


def test_a_fault_fires_once() -> None:
    faults = FaultInjector()
    faults.arm(FaultPoint.AFTER_INSERT)
    assert faults.is_armed(FaultPoint.AFTER_INSERT)
    with pytest.raises(BaseException) as raised:
        faults.reach(FaultPoint.AFTER_INSERT)
    assert not isinstance(raised.value, Exception)
    faults.reach(FaultPoint.AFTER_INSERT)
    assert faults.reached == (FaultPoint.AFTER_INSERT, FaultPoint.AFTER_INSERT)
    assert not faults.is_armed(FaultPoint.AFTER_INSERT)


def test_only_points_can_be_armed() -> None:
    with pytest.raises(TypeError, match="point"):
        FaultInjector({"after_insert": FaultAction.CRASH})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="action"):
        FaultInjector({FaultPoint.AFTER_INSERT: "crash"})  # type: ignore[dict-item]


def test_a_process_can_be_ended_on_purpose() -> None:
    program = (
        "from pystate.effects import FaultAction, FaultInjector, FaultPoint\n"
        "try:\n"
        "    FaultInjector({FaultPoint.BEFORE_INSERT: FaultAction.ABORT}).reach(FaultPoint.BEFORE_INSERT)\n"
        "finally:\n"
        "    print('cleaned up')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (ABORT_STATUS, "")


def test_a_crash_disturbs_no_other_effect(world: World) -> None:
    async def main() -> None:
        runtime = world.runtime(faults=FaultInjector({FaultPoint.AFTER_ATTEMPT_PERSISTED: FaultAction.CRASH}))
        first = asyncio.ensure_future(runtime.run(world.effect(), "order_1"))
        second = asyncio.ensure_future(runtime.run(world.effect(), "order_2"))
        results = await asyncio.gather(first, second, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["Committed", "EffectInternalError"]

    run_async(main)
