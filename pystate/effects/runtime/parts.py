"""What a runtime consists of, in one place: every module below `Runtime` gets it as ``parts``, and knows no runtime.

Also what a runtime needs of a store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from pystate.effects.ledger import EffectLedger
from pystate.effects.policy import RiskPolicy
from pystate.effects.queries import ListQuery
from pystate.effects.record import EffectRecord
from pystate.effects.redaction import Redactor
from pystate.effects.retry import RetryPolicy
from pystate.effects.runtime.clock import Clock
from pystate.effects.runtime.code import Code
from pystate.effects.runtime.faults import FaultInjector, FaultPoint
from pystate.effects.runtime.observing import Observer
from pystate.errors import DecodeError

__all__ = ["LEASE_TTL_MIN", "Parts", "RuntimeStore", "logger"]

T = TypeVar("T")
logger = logging.getLogger("pystate.effects")

LEASE_TTL_MIN = timedelta(milliseconds=3)
"""The shortest lease: its third, after which it is renewed, is the shortest time that can be slept."""


class RuntimeStore(EffectLedger, Protocol):
    """What a runtime needs of a store, and `EffectStore` has: the operations, several of them in one commit, and a list
    that goes on where a row cannot be read."""

    def list_results(self, query: ListQuery) -> list[tuple[EffectRecord, None] | tuple[None, DecodeError]]:
        """As `list`, with an error where a row cannot be read; errors do not count to the limit."""

    async def transact_async(self, function: Callable[[Any], T]) -> T:
        """Run ``function(operations)`` in one commit, operations being an `EffectLedger`. It may run several times, and
        raises to write nothing."""


@dataclass(kw_only=True)
class Parts:
    """What a runtime consists of.

    Attributes:
        store: where the records are.
        worker: who holds the leases that are taken here.
        clock: for every time that is stored and every wait.
        lease_ttl: how long a lease lives unless it is renewed, which happens after each third of it.
        retry: for effects without a policy of their own.
        risk_policy, approver, redactor, observers, faults: what the user gave.
        sample: a random number between 0 and 1, for the jitter of a delay.
        tasks: those that must end before the runtime does: the work on effects.
        holds: what is held just now.
        code: tasks of actions that nobody waits for any more. Kept here since a loop forgets its tasks.
        closing: nothing new begins, and no delay is sat out any more.
        warned: names of effects that a warning was given for.
    """

    store: RuntimeStore
    worker: str
    clock: Clock
    lease_ttl: timedelta
    retry: RetryPolicy
    risk_policy: RiskPolicy
    approver: Code | None
    redactor: Redactor | None
    observers: tuple[Observer, ...]
    faults: FaultInjector | None
    sample: Callable[[], float]
    closing: bool = False
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    holds: set[Any] = field(default_factory=set)
    code: set[asyncio.Task[Any]] = field(default_factory=set)
    warned: set[str] = field(default_factory=set)

    def reach(self, point: FaultPoint) -> None:
        """Pass a fault point."""
        if self.faults is not None:
            self.faults.reach(point)

    def is_armed(self, point: FaultPoint) -> bool:
        """Whether a fault point crashes."""
        return self.faults is not None and self.faults.is_armed(point)

    def start(self, code: Code, context: Any) -> asyncio.Task[Any]:
        """Call code of an effect in a task of its own, which ends when the code does, whoever waits for it."""
        task = asyncio.create_task(code.run(context), name="pystate-effect-code")
        self.code.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.code.discard(task)
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not report it as forgotten
