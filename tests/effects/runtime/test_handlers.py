"""Handlers: known by name, one for each; what they run, a worker can finish without the caller."""

from __future__ import annotations

from typing import Any

import pytest

from pystate import Transaction
from pystate.effects import (
    ABSENT,
    Committed,
    ContractMismatchError,
    EffectContext,
    EffectIdentityError,
    EffectStatus,
    EffectStore,
    FaultPoint,
    Handler,
    InputMismatchError,
    NotRegisteredError,
    Runtime,
    Secret,
)
from tests.effects.runtime.leaving import crash, do, handler, worker
from tests.effects.runtime.world import World


def test_one_handler_for_each_name(world: World) -> None:
    runtime, first = world.runtime(), handler(world)
    runtime.register(first)
    runtime.register(first)
    with pytest.raises(ValueError, match="'payment.charge' have a handler already"):
        runtime.register(handler(world))
    with pytest.raises(TypeError, match="Handler"):
        runtime.register(world.effect())  # type: ignore[arg-type]
    with pytest.raises(EffectIdentityError):
        runtime.register(handler(world, ""))


def test_submitting_runs_it_as_any_effect(world: World) -> None:
    charge = handler(world)
    runtime = worker(world, charge)
    assert do(world, runtime.submit(charge, "order_1", {"amount": 1}, actor="ann")) == Committed("res_1")
    assert do(world, runtime.submit("payment.charge", "order_1", {"amount": 1})) == Committed("res_1")
    assert world.trail() == "AS OK" and world.record().created_by == "ann" and len(world.remote.calls) == 1


def test_what_is_not_registered_is_not_submitted(world: World) -> None:
    runtime = worker(world, handler(world))
    for unknown in ("mail.send", handler(world, "mail.send"), handler(world)):
        with pytest.raises(NotRegisteredError):
            do(world, runtime.submit(unknown, "order_1"))
        with pytest.raises(NotRegisteredError):
            runtime.plan(world.store, unknown, "order_1")
    assert world.is_empty()


def test_a_handler_takes_its_settings_and_no_others(world: World) -> None:
    assert handler(world, compensate=None).compensate is None
    with pytest.raises(TypeError, match="no such setting"):
        handler(world, undo=world.remote.undo)
    with pytest.raises(TypeError, match="compensate"):
        handler(world, compensate=lambda: None)


def test_an_effect_is_finished_without_its_caller(world: World) -> None:
    """From the stored input, in the type that the action takes, with its creator as the actor."""
    seen: list[Any] = []

    async def action(context: EffectContext, numbers: tuple[int, ...]) -> int:
        seen.append((context.input, context.attempt))
        return sum(numbers)

    effect: Handler[int] = Handler("sum", action)
    crash(world, effect, FaultPoint.AFTER_INSERT, "k", (1, 2), actor="ann")
    report = do(world, worker(world, effect).recover())
    record = world.record("k", "sum")
    assert report.resumed == ((record.id, EffectStatus.COMMITTED),)
    assert seen == [((1, 2), 1)] and record.output == 3
    assert [event.actor for event in world.events("k", "sum")] == ["ann", "ann"]


def test_the_decorator_registers(world: World) -> None:
    runtime = world.runtime()

    @runtime.handler("mail.send", compensate=world.remote.undo)
    async def send(context: EffectContext, to: str) -> str:
        return f"sent to {to}"

    assert do(world, send("m1", "ann")) == Committed("sent to ann")
    assert do(world, runtime.submit("mail.send", "m1", "ann")) == Committed("sent to ann")
    with pytest.raises(ValueError, match="have a handler already"):
        runtime.handler("mail.send")(lambda context: None)


def test_plain_code_has_twins_of_everything() -> None:
    with EffectStore.memory() as store, Runtime(store) as runtime:
        undone: list[object] = []

        @runtime.handler("mail.send", compensate=lambda context: undone.append(context.output))
        def send(context: EffectContext) -> str:
            return "sent"

        assert runtime.submit_sync("mail.send", "m1") == Committed("sent")
        assert runtime.compensate_sync("mail.send", "m1", reason="late").id is not None
        assert undone == ["sent"]
        assert runtime.recover_sync().resumed == ()
        assert runtime.prune_sync().total == 0


# Planned with a state change


def plan_and(world: World, runtime: Runtime, end: str, key: str = "order_1") -> None:
    def change(txn: Transaction) -> None:
        txn.put("orders", b"order_1", b"paid")
        record = runtime.plan(txn, "payment.charge", key, {"amount": 1}, actor="shop")
        assert record.status is EffectStatus.PENDING and record.input == {"amount": 1}
        if end == "fails":
            raise RuntimeError("the change failed")

    world.store.store.transact(change)


@pytest.fixture
def shop() -> World:
    return World(EffectStore.memory(families=["orders"]))


def test_an_effect_planned_with_a_state_change_is_picked_up_by_a_worker(shop: World) -> None:
    charge = handler(shop)
    planner = worker(shop, charge, name="planner")
    plan_and(shop, planner, "commits")
    assert shop.trail() == "" and shop.remote.calls == []
    assert shop.store.store.family("orders")[b"order_1"] == b"paid"
    report = do(shop, worker(shop, charge).recover())
    assert report.resumed == ((shop.record().id, EffectStatus.COMMITTED),)
    assert shop.trail() == "AS OK" and len(shop.remote.created) == 1
    assert {event.actor for event in shop.events()} == {"shop"}
    shop.check()


def test_an_effect_planned_with_a_change_that_fails_is_not_done(shop: World) -> None:
    charge = handler(shop)
    planner = worker(shop, charge)
    with pytest.raises(RuntimeError, match="the change failed"):
        plan_and(shop, planner, "fails")
    assert shop.is_empty() and b"order_1" not in shop.store.store.family("orders")
    assert do(shop, planner.recover()).resumed == ()
    assert shop.remote.calls == []


def test_planning_again_changes_nothing_and_another_input_is_refused(shop: World) -> None:
    runtime = worker(shop, handler(shop))
    plan_and(shop, runtime, "commits")
    before = shop.record()
    plan_and(shop, runtime, "commits")
    assert shop.record() == before
    with pytest.raises(InputMismatchError):
        shop.store.transact(lambda operations: runtime.plan(operations, "payment.charge", "order_1", {"amount": 2}))
    with pytest.raises(ContractMismatchError):
        other = worker(shop, handler(shop, remote_idempotency=True))
        other.plan(shop.store, "payment.charge", "order_1", {"amount": 1})
    assert runtime.plan(shop.store, "payment.charge", "order_2").input is ABSENT


def test_a_planned_effect_is_run_by_a_caller_as_well(shop: World) -> None:
    runtime = worker(shop, handler(shop))
    plan_and(shop, runtime, "commits")
    assert do(shop, runtime.submit("payment.charge", "order_1", {"amount": 1})) == Committed("res_1")
    assert shop.trail() == "AS OK"


def test_a_secret_is_masked_for_whoever_finishes_it(world: World) -> None:
    seen: list[Any] = []

    async def action(context: EffectContext, token: Secret[str]) -> None:
        seen.append(token.is_redacted())

    effect: Handler[None] = Handler("call", action)
    crash(world, effect, FaultPoint.AFTER_INSERT, "k", Secret("s3cret"))
    do(world, worker(world, effect).recover())
    assert seen == [True] and "s3cret" not in repr(world.record("k", "call"))
