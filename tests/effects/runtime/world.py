"""What every test of the runtime needs: a store in memory, a clock that is driven, runtimes, and trails to look at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from pystate.effects import (
    Effect,
    EffectEvent,
    EffectKey,
    EffectRecord,
    EffectStore,
    ListQuery,
    Outcome,
    RetryPolicy,
    Runtime,
    Transition,
)
from pystate.effects.testing import ManualClock
from tests.effects.runtime.remote import Remote
from tests.effects.samples import T
from tests.effects.trails import check_trail

__all__ = ["PATIENT", "World", "run_async", "short_names"]

R = TypeVar("R")

PATIENT = RetryPolicy(jitter=False)
"""Five attempts, 1 s, doubling up to 30 s, without jitter."""

_SHORT = {
    Transition.START_ATTEMPT: "AS",
    Transition.LEASE_EXPIRED: "LX",
    Transition.START_VERIFICATION: "VS",
    Transition.VERIFICATION_CONFIRMED: "VC",
    Transition.SCHEDULE_RETRY: "RS",
    Transition.SUCCEEDED: "OK",
    Transition.ESCALATE: "ES",
    Transition.REQUEST_APPROVAL: "AR",
    Transition.APPROVE: "AP",
    Transition.START_COMPENSATION: "CS",
    Transition.START_COMPENSATION_RETRY: "CR",
    Transition.COMPENSATION_SUCCEEDED: "CD",
}


def run_async(function: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run an async test."""
    return asyncio.run(function())


def short_names(events: list[EffectEvent]) -> str:
    """A trail in short: ``AS RS AS OK``; what has no short name stands under its audit name."""
    return " ".join(
        _SHORT.get(event.transition, event.transition.audit_name.removeprefix("effect.")) for event in events
    )


class World:
    """One test's store, clock and remote; runtimes of any number of workers over them.

    Attributes:
        checks: whether `check` is to require an approval before each first attempt.
    """

    def __init__(self, store: EffectStore | None = None) -> None:
        self.store = EffectStore.memory() if store is None else store
        self.clock = ManualClock(T(0))
        self.remote = Remote(self.clock)
        self.approval_required = False

    def runtime(self, worker: str = "a", **settings: Any) -> Runtime:
        """A runtime of a worker, over the store and the clock, without jitter."""
        settings.setdefault("retry", PATIENT)
        settings.setdefault("clock", self.clock)
        return Runtime(self.store, worker=worker, **settings)

    def effect(
        self, action: Callable[..., Any] | None = None, name: str = "payment.charge", **settings: Any
    ) -> Effect[Any]:
        """An effect; without an action it is that of the remote."""
        return Effect(name, self.remote.create if action is None else action, **settings)

    def run(
        self, effect: Effect[Any], key: str = "order_1", *arguments: Any, worker: str = "a", **settings: Any
    ) -> Outcome[Any]:
        """Run an effect in an event loop of its own, with as much time as it takes."""
        actor = settings.pop("actor", None)
        runtime = self.runtime(worker, **settings)
        return run_async(lambda: self.clock.drive(runtime.run(effect, key, *arguments, actor=actor)))

    @property
    def seconds(self) -> float:
        """How much time has passed."""
        return self.clock.monotonic()

    def record(self, key: str = "order_1", name: str = "payment.charge") -> EffectRecord:
        """The record of a key."""
        record = self.store.get_by_key(EffectKey(name, key))  # type: ignore[arg-type]
        assert record is not None
        return record

    def events(self, key: str = "order_1", name: str = "payment.charge") -> list[EffectEvent]:
        """The trail of a key."""
        return self.store.events(self.record(key, name).id)

    def trail(self, key: str = "order_1", name: str = "payment.charge") -> str:
        """The trail of a key, in short."""
        return short_names(self.events(key, name))

    def is_empty(self) -> bool:
        """Whether nothing is recorded."""
        return not self.store.list(ListQuery.statuses(limit=1))

    def pass_time(self, seconds: float) -> None:
        """Let time pass while nothing runs."""
        self.clock.pass_at_once(timedelta(seconds=seconds))

    def check(self) -> None:
        """What must hold after every test: the invariants of each trail, and the indexes of the store."""
        for record in self.store.list(ListQuery.statuses(limit=10_000)):
            check_trail(record, self.store.events(record.id), approval_required=self.approval_required)
        assert self.store.check() == []
