"""What tests of recovery, compensation and operators share: handlers, and effects that somebody has left."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from pystate.effects import (
    Committed,
    Effect,
    EffectFailure,
    EffectId,
    EffectInternalError,
    EffectKey,
    EffectRecord,
    FaultInjector,
    FaultPoint,
    Handler,
    NewEffect,
    Runtime,
    Transition,
    TransitionRequest,
)
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import seconds

__all__ = [
    "LAPSE",
    "crash",
    "do",
    "failing",
    "handler",
    "left_committed",
    "left_executing",
    "left_legacy",
    "started",
    "worker",
]

R = TypeVar("R")

LAPSE = 30
"""After so many seconds a lease has lapsed."""

NAME = "payment.charge"


def do(world: World, coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine in an event loop of its own, with as much time as it takes."""
    return run_async(lambda: world.clock.drive(coroutine))


def handler(world: World, name: str = NAME, **settings: Any) -> Handler[Any]:
    """A handler that works with the remote of the world, and can undo."""
    settings.setdefault("compensate", world.remote.undo)
    return Handler(name, world.remote.create, **settings)


def worker(world: World, *handlers: Handler[Any], name: str = "w", **settings: Any) -> Runtime:
    """A runtime of another worker, with these handlers."""
    runtime = world.runtime(name, **settings)
    for each in handlers:
        runtime.register(each)
    return runtime


def crash(
    world: World, effect: Effect[Any], point: FaultPoint, key: str = "order_1", *arguments: Any, **settings: Any
) -> None:
    """Run an effect, and crash at a point of it."""
    faults = FaultInjector()
    faults.arm(point)
    with pytest.raises(EffectInternalError):
        world.run(effect, key, *arguments, worker="crashed", faults=faults, **settings)
    assert faults.reached[-1] is point


def left_executing(world: World, effect: Effect[Any], key: str = "order_1", *arguments: Any) -> EffectId:
    """An effect that was being executed when its worker died; the lease has lapsed."""
    crash(world, effect, FaultPoint.AFTER_ATTEMPT_PERSISTED, key, *arguments)
    world.pass_time(LAPSE)
    return world.record(key, effect.name).id


def left_committed(world: World, effect: Effect[Any], key: str = "order_1", *arguments: Any) -> EffectRecord:
    """An effect that is committed."""
    assert isinstance(world.run(effect, key, *arguments), Committed)
    return world.record(key, effect.name)


def left_legacy(world: World, effect: Effect[Any], key: str = "order_1", **fields: Any) -> EffectRecord:
    """An effect that was recorded before there were contracts."""
    new = NewEffect.new(EffectKey(effect.name, key), effect.kind, world.clock.now(), **fields)  # type: ignore[arg-type]
    return world.store.insert_or_get(new).record


def started(world: World, record: EffectRecord) -> None:
    """Let a worker that dies start an attempt."""
    lease = world.store.acquire_lease(record.id, "dead", world.clock.now(), seconds(LAPSE))
    world.store.transition(TransitionRequest.new(record, lease, Transition.START_ATTEMPT, world.clock.now()))


def failing(*failures: EffectFailure | Exception) -> Any:
    """A function that raises these one call after the other, and then returns None; it keeps its contexts."""
    left = list(failures)

    async def function(context: Any) -> None:
        function.contexts.append(context)  # type: ignore[attr-defined]
        if left:
            raise left.pop(0)

    function.contexts = []  # type: ignore[attr-defined]
    return function
