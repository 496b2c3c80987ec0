"""`Runtime`: runs effects. It only puts together what the other modules of the package do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from pystate.effects.checks import as_duration, as_instance, as_text
from pystate.effects.ids import EffectId, WorkerId
from pystate.effects.payload import ABSENT
from pystate.effects.policy import RiskPolicy
from pystate.effects.redaction import Redactor
from pystate.effects.retry import RetryPolicy
from pystate.effects.runtime.call import Call
from pystate.effects.runtime.clock import Clock, SystemClock
from pystate.effects.runtime.code import Code, Function
from pystate.effects.runtime.compensating import Compensating
from pystate.effects.runtime.decorated import AsyncEffect, BoundEffect, Decorate, PlainEffect
from pystate.effects.runtime.effect import Effect, EffectSettings
from pystate.effects.runtime.faults import FaultInjector
from pystate.effects.runtime.handlers import Handlers
from pystate.effects.runtime.handling import Handling
from pystate.effects.runtime.observing import Observer
from pystate.effects.runtime.operators import Operating
from pystate.effects.runtime.outcomes import Outcome
from pystate.effects.runtime.parts import LEASE_TTL_MIN, Parts, RuntimeStore
from pystate.effects.runtime.plain import LoopThread
from pystate.effects.runtime.recovery import Recovering
from pystate.effects.runtime.retention import RetentionPolicy
from pystate.effects.runtime.run import Run
from pystate.effects.runtime.tasks import drain, in_own_task
from pystate.effects.runtime.waiting import wait_for
from pystate.errors import ClosedError

__all__ = ["Runtime"]

T = TypeVar("T")
O = TypeVar("O")  # noqa: E741 - output


class Runtime(Handling, Compensating, Recovering, Operating):
    """Runs effects over a store: records each before it runs, and never repeats one whose outcome is unknown blindly.

        >>> from pystate.effects import EffectContext, EffectStore, Runtime
        >>> with EffectStore.memory() as store, Runtime(store) as runtime:
        ...     @runtime.effect("payment.charge", remote_idempotency=True)
        ...     def charge(context: EffectContext, amount: int) -> str:
        ...         return f"charged {amount}"
        ...     charge("order_5824", 4200)
        ...     charge("order_5824", 4200)      # not run again
        Committed(value='charged 4200', ...)
        Committed(value='charged 4200', ...)

    Any number of runtimes, in this process or others, may share a store. Threads and event loops may share a runtime.
    It is a context manager, plain and async: leaving it lets what runs come to a result, and begins nothing more.

    Arguments:
        store: an `EffectStore`; it stays open when the runtime is closed.
        worker: who holds the leases: unique among the runtimes that share the store; None is a random one.
        clock: None is the clock of the machine.
        lease_ttl: how long an effect stays held after its worker has died; at least 3 ms. Much longer than the clocks
            of workers may differ.
        retry: for effects without a policy of their own.
        risk_policy: what is demanded of effects by their risk.
        approver: decides about effects that need an approval: a function, plain or async, of an `ApprovalRequest` that
            returns an `Approval`. None: they wait for an operator.
        redactor: masks what must not be stored.
        observers: are told what happens, in this order.
        faults: crashes on purpose, for tests.
        sample: a random number between 0 and 1, for the jitter of delays.
        retention: how long settled effects are kept; None is for ever.

    Raises:
        TypeError, ValueError: an argument has another type, or is out of its range.
    """

    def __init__(
        self,
        store: RuntimeStore,
        *,
        worker: str | None = None,
        clock: Clock | None = None,
        lease_ttl: timedelta = timedelta(seconds=30),
        retry: RetryPolicy | None = None,
        risk_policy: RiskPolicy | None = None,
        approver: Function | None = None,
        redactor: Redactor | None = None,
        observers: Iterable[Observer] = (),
        faults: FaultInjector | None = None,
        sample: Callable[[], float] = random.random,
        retention: RetentionPolicy | None = None,
    ) -> None:
        self._parts = Parts(
            store=store,
            worker=WorkerId.random() if worker is None else WorkerId(as_text(worker, "worker")),
            clock=SystemClock() if clock is None else clock,
            lease_ttl=max(LEASE_TTL_MIN, as_duration(lease_ttl, "lease_ttl")),
            retry=RetryPolicy() if retry is None else as_instance(retry, RetryPolicy, "retry"),
            risk_policy=RiskPolicy() if risk_policy is None else as_instance(risk_policy, RiskPolicy, "risk_policy"),
            approver=None if approver is None else Code(approver, "approver"),
            redactor=redactor,
            observers=tuple(observers),
            faults=faults,
            sample=sample,
        )
        self._handlers = Handlers()
        self._retention = (
            RetentionPolicy() if retention is None else as_instance(retention, RetentionPolicy, "retention")
        )
        self._loop_thread = LoopThread()

    @property
    def store(self) -> RuntimeStore:
        """The store that it runs over."""
        return self._parts.store

    @property
    def worker(self) -> str:
        """Who holds the leases that are taken here."""
        return self._parts.worker

    def __repr__(self) -> str:
        return f"<Runtime {self._parts.worker!r} over {self._parts.store!r}>"

    # Running

    async def run(
        self,
        effect: Effect[O],
        key: object,
        input: object = ABSENT,  # noqa: A002
        *,
        actor: str | None = None,
    ) -> Outcome[O]:
        """Run an effect, unless it has been run: then its recorded outcome is reported.

        The work is done by a task of its own: if this one is cancelled, the effect goes on, and its result is recorded
        for the next call. A retry is sat out here.

        Arguments:
            effect: what to do.
            key: which one of its kind; anything with a text form that is the same in every process. The same text is
                the same effect, for ever.
            input: what the action works with; anything with a JSON form. It is stored, `Secret` values masked, and may
                not change from call to call. Not given: the effect has no input, which is not the input None.
            actor: who asks; stands in the record and the trail.

        Returns:
            What it came to. `Committed.value` is what the action returned if it ran in this call, else what is stored.

        Raises:
            EffectIdentityError: the name or the key is not allowed.
            EffectInputError: the input has no JSON form. TypeError: the key is None or a `Secret`.
            PolicyViolationError: the risk policy demands what the effect does not have.
            KindMismatchError, ContractMismatchError, InputMismatchError: the effect is recorded with another kind,
                under another contract, with another input.
            OutputUnavailableError, OutputPayloadError, OutputError: it is committed, and its output cannot be told.
            EffectInternalError: the work ended without an outcome.
            ClosedError: the runtime is closed.
            And what the store raises. After any of these nothing more is done; what was recorded stays.
        """
        self._check_open()
        call = Call.new(self._parts, as_instance(effect, Effect, "effect"), key, input, actor)
        return await in_own_task(self._parts, Run(self._parts, call).execute())

    def run_sync(
        self,
        effect: Effect[O],
        key: object,
        input: object = ABSENT,  # noqa: A002
        *,
        actor: str | None = None,
    ) -> Outcome[O]:
        """`run` for plain code: blocks. Async actions run in the event loop of the runtime, in a thread of its own.

        An interrupted caller (`KeyboardInterrupt`) leaves the effect to that loop.

        Raises:
            RuntimeError: called in a task of that loop. And what `run` raises.
        """
        return self._plain(self.run(effect, key, input, actor=actor))

    def effect(self, name: str, **settings: Unpack[EffectSettings]) -> Decorate:
        """Make an effect of a function, with these settings (`EffectSettings`).

        The function takes an `EffectContext`, or that and the input. The effect is called with a key and the input
        instead, and returns an `Outcome`; it is awaited if the function is ``async``::

            @runtime.effect("payment.charge", remote_idempotency=True)
            async def charge(context: EffectContext, order: Order) -> Receipt: ...

            outcome = await charge("order_5824", order)

        Returns:
            A decorator, which raises what `Effect` raises.
        """

        def decorate(function: Function) -> BoundEffect[Any]:
            description: Effect[Any] = Effect(name, function, **settings)
            kind = AsyncEffect if description.action.is_async else PlainEffect
            return kind(self, description, function)

        return decorate  # type: ignore[return-value]  # which of the two classes, the overloads of `Decorate` say

    async def wait(
        self,
        id: EffectId,  # noqa: A002
        timeout: timedelta,
        *,
        effect: Effect[O] | None = None,
    ) -> Outcome[O]:
        """Wait until an effect has come to something, or nobody works on it any more. Runs nothing.

        Arguments:
            id: of its record.
            timeout: how long at most.
            effect: its description, to read its output with; without it a value is the JSON that is stored.

        Returns:
            What it came to; `InProgress` if the time is over, or if it is not settled and nobody holds it.

        Raises:
            EffectNotFoundError: there is no such effect.
            OutputUnavailableError, OutputPayloadError, OutputError: it is committed, and its output cannot be told.
        """
        return await wait_for(self._parts, id, as_duration(timeout, "timeout"), effect)

    def wait_sync(
        self,
        id: EffectId,  # noqa: A002
        timeout: timedelta,
        *,
        effect: Effect[O] | None = None,
    ) -> Outcome[O]:
        """`wait` for plain code. Raises the same."""
        return self._plain(self.wait(id, timeout, effect=effect))

    # The end

    def _check_open(self) -> None:
        if self._parts.closing:
            raise ClosedError("runtime", "has been closed; make another one over the same store")

    def close(self) -> None:
        """Begin nothing more, and wait until the plain calls that run have come to a result; may be called twice.

        Actions and lookups that run are waited for, and their results recorded. Delays are not sat out: their effects
        are left pending, and are gone on with later. Effects that run in event loops of the program are told to end,
        and not waited for here; `aclose` does.
        """
        self._stop()
        if self._loop_thread.is_running:
            self._plain(drain(self._parts))
        self._loop_thread.close()

    async def aclose(self) -> None:
        """`close` for a task: also waits for the effects that run in its event loop."""
        self._stop()
        await drain(self._parts)
        if self._loop_thread.is_running:
            await asyncio.to_thread(self.close)

    def _stop(self) -> None:
        self._parts.closing = True
        for hold in self._parts.holds.copy():
            hold.interrupt()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _plain(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop_thread.run(coroutine)
