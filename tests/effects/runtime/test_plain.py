"""Effects from plain code: in threads, without an event loop of one's own; and the end of a runtime."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pystate import ClosedError
from pystate.effects import (
    AsyncEffect,
    Committed,
    Effect,
    EffectContext,
    EffectFailure,
    EffectKind,
    EffectStatus,
    FailureClass,
    InProgress,
    NeedsIntervention,
    Outcome,
    PlainEffect,
    RetryPolicy,
    Runtime,
    Verification,
)
from tests.effects.runtime.remote import Reply
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import seconds

QUICK = RetryPolicy(initial_delay=timedelta(milliseconds=1))


def plain_runtime(world: World, **settings: Any) -> Runtime:
    """A runtime by the clock of the machine: threads take real time."""
    return Runtime(world.store, worker="a", retry=QUICK, **settings)


def test_plain_code_runs_plain_actions(world: World) -> None:
    def action(context: EffectContext, amount: int) -> str:
        if context.attempt == 1:
            raise EffectFailure.transient("busy")
        return f"{threading.current_thread().name} {amount}"

    with plain_runtime(world) as runtime:
        effect = world.effect(action)
        assert runtime.run_sync(effect, "order_1", 7) == Committed("pystate-effect 7")
        assert runtime.run_sync(effect, "order_1", 7) == Committed("pystate-effect 7")
    assert world.trail() == "AS RS AS OK"


def test_plain_code_runs_async_actions_and_the_other_way_round(world: World) -> None:
    def plain(context: EffectContext) -> str:
        return "plain"

    def look_up(context: EffectContext) -> Verification[str]:
        return Verification.confirmed("looked up by plain code")

    with plain_runtime(world) as runtime:
        assert runtime.run_sync(world.effect(), "order_1") == Committed("res_1")
        assert run_async(lambda: runtime.run(world.effect(plain), "order_2")) == Committed("plain")
        assert run_async(lambda: runtime.run(world.effect(verify=look_up), "order_3")) == Committed(
            "looked up by plain code"
        )


@pytest.mark.parametrize("error", [KeyError("x"), StopIteration(), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_whatever_a_plain_action_raises_is_ambiguous(world: World, error: BaseException) -> None:
    """Also what would end an event loop, or cannot be raised in a task."""

    def action(context: EffectContext) -> None:
        raise error

    with plain_runtime(world) as runtime:
        assert isinstance(runtime.run_sync(world.effect(action), "order_1"), NeedsIntervention)
        assert runtime.run_sync(world.effect(), "order_2") == Committed("res_1")
    stored = world.record().last_error
    assert stored is not None and stored.failure_class == FailureClass.AMBIGUOUS
    assert type(error).__name__ in stored.message


@pytest.mark.parametrize("plain", [False, True])
def test_an_async_action_does_not_end_the_event_loop(world: World, plain: bool) -> None:
    async def action(context: EffectContext) -> None:
        raise SystemExit(3)

    with plain_runtime(world) as runtime:
        effect = world.effect(action)
        outcome = runtime.run_sync(effect, "order_1") if plain else run_async(lambda: runtime.run(effect, "order_1"))
        assert isinstance(outcome, NeedsIntervention)
        assert runtime.run_sync(world.effect(), "order_2") == Committed("res_1")
    stored = world.record().last_error
    assert stored is not None and "SystemExit" in stored.message


def test_closing_cancels_actions_that_nobody_waits_for_any_more(world: World) -> None:
    """One that has taken too long, and did not let itself be cancelled."""
    cancelled = []

    async def action(context: EffectContext) -> None:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(threading.current_thread().name)

    with plain_runtime(world) as runtime:
        effect = world.effect(action, attempt_timeout=timedelta(milliseconds=1))
        assert isinstance(runtime.run_sync(effect, "order_1"), NeedsIntervention)
    assert cancelled == ["pystate-effects", "pystate-effects"]


def test_a_plain_action_that_hangs_is_given_up(world: World) -> None:
    release = threading.Event()

    def action(context: EffectContext) -> str:
        release.wait()
        return "late"

    with plain_runtime(world) as runtime:
        effect = world.effect(action, attempt_timeout=timedelta(milliseconds=10))
        assert isinstance(runtime.run_sync(effect, "order_1"), NeedsIntervention)
        release.set()
    assert world.trail() == "AS outcome_unknown ES"


def test_plain_actions_do_not_wait_for_one_another(world: World) -> None:
    """As many at once as callers: one that waits for another one finds it running."""
    together = threading.Barrier(40)

    def action(context: EffectContext) -> int:
        return together.wait()

    with plain_runtime(world) as runtime, ThreadPoolExecutor(40) as pool:
        effect = world.effect(action)
        outcomes = list(pool.map(lambda number: runtime.run_sync(effect, number), range(40)))
    assert all(isinstance(outcome, Committed) for outcome in outcomes)


def test_an_effect_within_an_effect(world: World) -> None:
    with plain_runtime(world) as runtime:

        def inner(context: EffectContext) -> str:
            return "inner"

        def outer(context: EffectContext) -> str:
            return f"outer of {runtime.run_sync(Effect('inner', inner), 'order_1').unwrap()}"

        assert runtime.run_sync(Effect("outer", outer), "order_1") == Committed("outer of inner")


def test_a_plain_call_in_the_loop_of_the_runtime_is_refused(world: World) -> None:
    with plain_runtime(world) as runtime:

        async def action(context: EffectContext) -> Outcome[Any]:
            return runtime.run_sync(world.effect(), "order_2")

        assert isinstance(runtime.run_sync(world.effect(action), "order_1"), NeedsIntervention)
    stored = world.record().last_error
    assert stored is not None and "await it" in stored.message


def test_a_plain_action_sees_the_context_variables_of_its_caller(world: World) -> None:
    variable = contextvars.ContextVar("variable", default="none")

    def action(context: EffectContext) -> str:
        return variable.get()

    async def main() -> Outcome[Any]:
        variable.set("caller")
        return await plain_runtime(world).run(world.effect(action), "order_1")

    assert run_async(main) == Committed("caller")


def test_an_interrupted_caller_leaves_the_effect_to_the_loop(world: World) -> None:
    begun, release = threading.Event(), threading.Event()

    def action(context: EffectContext) -> str:
        begun.set()
        release.wait(10)
        return "done"

    def interrupt() -> None:
        begun.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with plain_runtime(world) as runtime:
        effect = world.effect(action)
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            runtime.run_sync(effect, "order_1")
        release.set()
        assert runtime.wait_sync(world.record().id, timedelta(seconds=10)) == Committed("done")


def test_many_callers_of_one_key_run_it_once(world: World) -> None:
    def action(context: EffectContext) -> int:
        world.remote.apply(context.idempotency_key)
        time.sleep(0.01)
        return 1

    with plain_runtime(world) as runtime, ThreadPoolExecutor(16) as pool:
        effect = world.effect(action)
        outcomes = list(pool.map(lambda _: runtime.run_sync(effect, "order_1"), range(16)))
        record = world.record()
        assert {type(outcome) for outcome in outcomes} <= {Committed, InProgress}
        assert runtime.wait_sync(record.id, timedelta(seconds=5), effect=effect) == Committed(1)
    assert len(world.remote.created) == 1
    assert world.record().attempt_count == 1


# Decorated


def test_a_decorated_async_function(world: World) -> None:
    runtime = world.runtime()

    @runtime.effect("payment.charge", kind=EffectKind.IDEMPOTENT_WRITE)
    async def charge(context: EffectContext, amount: int) -> str:
        """Charge it."""
        return f"{context.key} {amount}"

    assert isinstance(charge, AsyncEffect)
    assert (charge.__name__, charge.__doc__, charge.effect.kind) == ("charge", "Charge it.", "idempotent_write")
    assert run_async(lambda: charge("order_1", 7)) == Committed("payment.charge:order_1 7")
    assert run_async(lambda: charge.run("order_1", 7, actor="ann")) == Committed("payment.charge:order_1 7")
    assert charge.run_sync("order_2", 8).unwrap() == "payment.charge:order_2 8"
    assert repr(charge) == "<effect 'payment.charge': idempotent_write>"
    runtime.close()


def test_a_decorated_plain_function(world: World) -> None:
    with plain_runtime(world) as runtime:

        @runtime.effect("payment.charge")
        def charge(context: EffectContext) -> str:
            return f"{context.key}"

        assert isinstance(charge, PlainEffect)
        assert charge("order_1") == Committed("payment.charge:order_1")
        assert charge.run_sync("order_1") == Committed("payment.charge:order_1")
        assert run_async(lambda: charge.run("order_1")) == Committed("payment.charge:order_1")
        assert charge.function(EffectContext(*[None] * 5)) == "None"  # type: ignore[arg-type]


# The end


def test_a_closed_runtime_begins_nothing(world: World) -> None:
    runtime = plain_runtime(world)
    runtime.run_sync(world.effect(), "order_1")
    runtime.close()
    runtime.close()
    with pytest.raises(ClosedError):
        runtime.run_sync(world.effect(), "order_1")
    with pytest.raises(ClosedError):
        run_async(lambda: runtime.run(world.effect(), "order_1"))
    with pytest.raises(ClosedError):
        runtime.__enter__()
    assert not [thread for thread in threading.enumerate() if thread.name == "pystate-effects"]


def test_closing_waits_for_actions_and_sits_out_no_delay(world: World) -> None:
    """The action's result is recorded; the retry is left to whoever comes next."""
    world.remote.script = [EffectFailure.transient("busy")]

    async def lasting(context: EffectContext) -> str:
        await world.clock.sleep(seconds(5))
        return "done"

    async def main() -> None:
        async with world.runtime() as runtime:
            waiting = asyncio.ensure_future(runtime.run(world.effect(), "order_1"))
            acting = asyncio.ensure_future(runtime.run(world.effect(lasting), "order_2"))
            await world.clock.advance(seconds(0.5))
            await world.clock.drive(runtime.aclose())
        assert await waiting == InProgress(world.record("order_1").id)
        assert await acting == Committed("done")

    run_async(main)
    assert world.seconds == 5
    assert world.record("order_1").status is EffectStatus.PENDING and world.record("order_1").lease_owner is None
    assert world.run(world.effect(), "order_1") == Committed("res_1")


@pytest.mark.parametrize("case", ["lookups", "precondition", "unknown"])
def test_closing_ends_whatever_else_is_waited_for(world: World, case: str) -> None:
    from pystate.effects import Precondition, VerificationContract

    settings: dict[str, Any] = {"verify": world.remote.look_up}
    if case == "lookups":
        world.remote.lookups = [Verification.inconclusive("no")] * 9
    elif case == "unknown":
        settings["verification"] = VerificationContract.eventually_consistent(seconds(10))
        world.remote.script = [Reply.DROP]
    else:

        async def later(context: EffectContext) -> Precondition:
            return Precondition.retry_later(seconds(10), "no stock")

        settings["precondition"] = later

    async def main() -> None:
        runtime = world.runtime()
        task = asyncio.ensure_future(runtime.run(world.effect(**settings), "order_1"))
        await world.clock.advance(seconds(0.5))
        await runtime.aclose()
        await task

    run_async(main)
    assert world.seconds == 0.5
    assert world.record().lease_owner is None
    assert (
        world.trail()
        == {
            "lookups": "AS VS outcome_unknown",
            "precondition": "",
            "unknown": "AS outcome_unknown VS outcome_unknown",
        }[case]
    )


def test_closing_from_a_task_ends_the_loop_of_plain_calls_too(world: World) -> None:
    runtime = plain_runtime(world)

    async def main() -> None:
        assert await asyncio.to_thread(runtime.run_sync, world.effect(), "order_1") == Committed("res_1")
        await runtime.aclose()

    run_async(main)
    assert not [thread for thread in threading.enumerate() if thread.name == "pystate-effects"]


def test_an_action_that_hangs_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    program = """
import threading, time
from pystate.effects import Effect, EffectStore, Runtime
begun = threading.Event()
def action(context):
    begun.set()
    time.sleep(60)
runtime = Runtime(EffectStore.memory())
threading.Thread(target=runtime.run_sync, args=(Effect("hang", action), "1"), daemon=True).start()
begun.wait()
print("bye")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, "bye\n"), ended.stderr
