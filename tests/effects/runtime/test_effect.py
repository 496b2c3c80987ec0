"""Descriptions of effects, how their code is called, outcomes, and what a runtime takes."""

from __future__ import annotations

import copy
import doctest
import functools
import importlib
import pickle
import pkgutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import pystate.effects.runtime as package
from pystate.effects import (
    AwaitingApproval,
    Committed,
    Compensated,
    Effect,
    EffectContext,
    EffectId,
    EffectKind,
    EffectOutcomeError,
    EffectStatus,
    EffectStore,
    ErrorRecord,
    Failed,
    InProgress,
    NeedsIntervention,
    NotCommitted,
    PayloadSchema,
    Rejected,
    RetryPolicy,
    RiskLevel,
    Runtime,
    SystemClock,
    Unknown,
    Verification,
    VerificationContract,
)
from pystate.effects.runtime.code import Code
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import seconds

MODULES = [
    importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
]


async def action(context: EffectContext) -> int:
    return 1


async def look_up(context: EffectContext) -> Verification[int]:
    return Verification.confirmed(1)


def test_the_defaults_are_the_careful_ones() -> None:
    effect = Effect("mail", action)
    assert effect.kind is EffectKind.IRREVERSIBLE_WRITE
    assert effect.verification == VerificationContract.NONE
    assert not effect.remote_idempotency and not effect.require_approval
    assert (effect.retry, effect.attempt_timeout, effect.adapter) == (None, None, None)
    assert (effect.risk, effect.handler_version) == (RiskLevel.LOW, "1")
    assert Effect("mail", action, verify=look_up).verification == VerificationContract.AUTHORITATIVE


WRONG: dict[str, tuple[type[Exception], str, Callable[[], object]]] = {
    "no function": (TypeError, "action", lambda: Effect("x", 1)),  # type: ignore[call-overload]
    "no context": (TypeError, "action", lambda: Effect("x", lambda: 1)),
    "too many": (TypeError, "action", lambda: Effect("x", lambda a, b, c: 1)),
    "kind": (TypeError, "kind", lambda: Effect("x", action, kind="read")),  # type: ignore[call-overload]
    "verify": (TypeError, "verify", lambda: Effect("x", action, verify=lambda: 1)),
    "unknown": (TypeError, "colour", lambda: Effect("x", action, colour=1)),  # type: ignore[call-overload]
    "timeout": (ValueError, "attempt_timeout", lambda: Effect("x", action, attempt_timeout=timedelta(-1))),
    "retry": (TypeError, "retry", lambda: Effect("x", action, retry=3)),  # type: ignore[call-overload]
    "schema": (TypeError, "input_schema", lambda: Effect("x", action, input_schema=2)),  # type: ignore[call-overload]
    "mode without a lookup": (
        ValueError, "verification", lambda: Effect("x", action, verification=VerificationContract.AUTHORITATIVE),
    ),
    "lookup without a mode": (
        ValueError, "verification", lambda: Effect("x", action, verify=look_up, verification=VerificationContract.NONE),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("error", "named", "make"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_description_is_refused(error: type[Exception], named: str, make: Callable[[], object]) -> None:
    with pytest.raises(error, match=named):
        make()


class Typed:
    """Functions with annotations, and without."""

    @staticmethod
    async def typed(context: EffectContext, amount: int) -> str:
        return str(amount)

    @staticmethod
    def untyped(context, amount):  # type: ignore[no-untyped-def]
        return amount

    @staticmethod
    def unresolvable(context: EffectContext) -> NoSuchName:  # type: ignore[name-defined]  # noqa: F821
        return None


def test_types_come_from_the_annotations_of_the_action() -> None:
    typed: Effect[Any] = Effect("x", Typed.typed)
    assert (typed.input_type, typed.output_type) == (int, str)
    for function in (Typed.untyped, Typed.unresolvable, len, functools.partial(Typed.typed, amount=1)):
        plain: Effect[Any] = Effect("x", function)
        assert (plain.input_type, plain.output_type) == (Any, Any), function
    given: Effect[Any] = Effect("x", Typed.typed, input_type=float, output_type=Any)
    assert (given.input_type, given.output_type) == (float, Any)


# Code


class AsyncCallable:
    async def __call__(self, context: Any) -> str:
        return f"object {context.input}"


class WithInput:
    input = "in"


def returns_awaitable(context: Any) -> Any:
    return AsyncCallable()(context)


CODE: dict[str, tuple[Callable[..., Any], Any]] = {
    "plain": (lambda context: context.input, "in"),
    "with input": (lambda context, given: (context.input, given), ("in", "in")),
    "object": (AsyncCallable(), "object in"),
    "awaitable": (returns_awaitable, "object in"),
    "default": (lambda context, given="never": given, "in"),
    "any number": (lambda *given: len(given), 2),
    "partial": (functools.partial(lambda extra, context: extra, 7), 7),
}


@pytest.mark.parametrize(("function", "result"), CODE.values(), ids=list(CODE))
def test_code_of_every_form_is_called(function: Callable[..., Any], result: object) -> None:
    assert run_async(lambda: Code(function, "x").run(WithInput())) == result


def test_code_in_a_thread_raises_what_it_raises() -> None:
    def fail(context: Any) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_async(lambda: Code(fail, "x").run(WithInput()))


# Outcomes

ERROR = ErrorRecord(failure_class=None, message="no")
ID = EffectId.new()
OUTCOMES = [
    Committed(1, id=ID), Failed(ERROR, id=ID), Rejected(ERROR), Unknown(ID), NeedsIntervention(ID), Compensated(ID),
    AwaitingApproval(ID), InProgress(ID), NotCommitted(ID, EffectStatus.PENDING),
]  # fmt: skip


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_outcomes_are_values(outcome: Any) -> None:
    for other in (copy.copy(outcome), pickle.loads(pickle.dumps(outcome))):
        assert other == outcome and hash(other) == hash(outcome)
    with pytest.raises(AttributeError):
        outcome.id = None
    if isinstance(outcome, Committed):
        assert outcome.unwrap() == 1
        assert outcome == Committed(1)
    else:
        with pytest.raises(EffectOutcomeError) as raised:
            outcome.unwrap()
        assert raised.value.outcome == outcome
        assert pickle.loads(pickle.dumps(raised.value)).outcome == outcome


# Runtimes

REFUSED: dict[str, dict[str, Any]] = {
    "worker": {"worker": 1},
    "lease_ttl": {"lease_ttl": timedelta(-1)},
    "lease_ttl type": {"lease_ttl": 30},
    "retry": {"retry": 3},
    "risk_policy": {"risk_policy": "high"},
    "approver": {"approver": "ann"},
}


@pytest.mark.parametrize("settings", REFUSED.values(), ids=list(REFUSED))
def test_a_runtime_refuses_what_it_cannot_use(settings: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(settings))):
        Runtime(EffectStore.memory(), **settings)


def test_workers_are_random_unless_they_are_named(world: World) -> None:
    assert Runtime(world.store).worker != Runtime(world.store).worker
    assert Runtime(world.store, worker="w").worker == "w"
    assert "w" in repr(Runtime(world.store, worker="w"))
    assert Runtime(world.store).store is world.store


def test_only_effects_can_be_run(world: World) -> None:
    with pytest.raises(TypeError, match="effect"):
        run_async(lambda: world.runtime().run("payment.charge", "order_1"))  # type: ignore[arg-type]


def test_the_clock_of_the_machine() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is not None
    before = clock.monotonic()
    run_async(lambda: clock.sleep(seconds(0.01)))
    run_async(lambda: clock.sleep(seconds(-1)))
    assert clock.monotonic() - before >= 0.009


def test_settings_of_an_effect_override_those_of_the_runtime(world: World) -> None:
    world.run(world.effect(retry=RetryPolicy(max_attempts=9)))
    contract = world.record().execution_contract
    assert contract is not None and contract.max_attempts == 9
    world.run(world.effect(input_schema=PayloadSchema(7)), "order_2", retry=RetryPolicy(max_attempts=8))
    contract = world.record("order_2").execution_contract
    assert contract is not None and contract.max_attempts == 8


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_in_the_texts_run(module: Any) -> None:
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_everything_public_of_the_package_is_public_above() -> None:
    import pystate.effects

    assert set(package.__all__) <= set(pystate.effects.__all__)
    assert sorted(package.__all__) == package.__all__
