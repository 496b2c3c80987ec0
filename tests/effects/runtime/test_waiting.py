"""Waiting for what somebody else works on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pystate.effects import (
    AwaitingApproval,
    Committed,
    EffectContext,
    EffectFailure,
    EffectId,
    EffectNotFoundError,
    Failed,
    InProgress,
    NewEffect,
    Outcome,
    OutputPayloadError,
    PayloadSchema,
    Unknown,
    Verification,
)
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import KEY, T, seconds


def held_for(world: World, duration: float) -> Any:
    async def action(context: EffectContext) -> str:
        await world.clock.sleep(seconds(duration))
        return "done"

    return world.effect(action)


@pytest.mark.parametrize(("held", "committed", "until"), [(0.3, True, 0.31), (5, False, 1)])
def test_waiting_ends_with_the_outcome_or_in_time(world: World, held: float, committed: bool, until: float) -> None:
    """Check E141: held for 300 ms it reports the outcome, held for 5 s it is in progress after 1 s."""

    async def main() -> None:
        task = asyncio.ensure_future(world.runtime("a").run(held_for(world, held), "order_1"))
        await world.clock.advance(seconds(0))
        outcome: Outcome[Any] = await world.clock.drive(world.runtime("b").wait(world.record().id, seconds(1)))
        assert outcome == (Committed("done") if committed else InProgress(world.record().id))
        assert world.seconds == pytest.approx(until, abs=0.01)
        await world.clock.drive(task)

    run_async(main)


def test_what_nobody_holds_is_reported_at_once(world: World) -> None:
    runtime = world.runtime()
    record, _ = world.store.insert_or_get(NewEffect.new(KEY, world.effect().kind, T(0)))

    async def main() -> None:
        assert await runtime.wait(record.id, seconds(9)) == InProgress(record.id)
        world.remote.script = [EffectFailure.permanent("no")]
        await runtime.run(world.effect(), "order_2")
        assert isinstance(await runtime.wait(world.record("order_2").id, seconds(9)), Failed)
        await runtime.run(world.effect(require_approval=True), "order_3")
        assert isinstance(await runtime.wait(world.record("order_3").id, seconds(9)), AwaitingApproval)
        world.remote.lookups = [Verification.inconclusive()] * 9
        await world.clock.drive(runtime.run(world.effect(verify=world.remote.look_up), "order_4"))
        assert isinstance(await runtime.wait(world.record("order_4").id, seconds(9)), Unknown)

    run_async(main)
    assert world.seconds == 15


def test_an_effect_that_is_not_there(world: World) -> None:
    with pytest.raises(EffectNotFoundError):
        run_async(lambda: world.runtime().wait(EffectId.new(), seconds(1)))


def test_an_output_is_read_as_the_effect_says(world: World) -> None:
    effect = world.effect()
    world.run(effect)
    id = world.record().id  # noqa: A001
    newer = world.effect(output_schema=PayloadSchema(2))
    runtime = world.runtime()
    assert run_async(lambda: runtime.wait(id, seconds(1))) == Committed("res_1")
    assert run_async(lambda: runtime.wait(id, seconds(1), effect=effect)) == Committed("res_1")
    with pytest.raises(OutputPayloadError):
        run_async(lambda: runtime.wait(id, seconds(1), effect=newer))


def test_a_timeout_is_a_duration(world: World) -> None:
    with pytest.raises(ValueError, match="negative"):
        run_async(lambda: world.runtime().wait(EffectId.new(), seconds(-1)))
