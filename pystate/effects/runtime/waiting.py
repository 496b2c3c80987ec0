"""Waiting for an effect that somebody else works on: looking at its record from time to time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pystate.effects.ids import EffectId
from pystate.effects.runtime.effect import Effect
from pystate.effects.runtime.outcomes import InProgress, Outcome
from pystate.effects.runtime.parts import Parts
from pystate.effects.runtime.report import REPORTED_AT_ONCE, outcome_of
from pystate.errors import EffectNotFoundError

__all__ = ["wait_for"]

_PAUSE_MIN = timedelta(milliseconds=10)
_PAUSE_MAX = timedelta(milliseconds=250)


async def wait_for(
    parts: Parts,
    id: EffectId,  # noqa: A002
    timeout: timedelta,
    effect: Effect[Any] | None,
) -> Outcome[Any]:
    """`Runtime.wait`, which says what it does."""
    clock = parts.clock
    began = clock.monotonic()
    pause = _PAUSE_MIN
    while True:
        record = parts.store.get(id)
        if record is None:
            raise EffectNotFoundError(id)
        if record.status in REPORTED_AT_ONCE or record.live_lease_owner(clock.now()) is None:
            return outcome_of(record, effect)
        left = timeout - timedelta(seconds=clock.monotonic() - began)
        if left <= timedelta(0):
            return InProgress(id)
        await clock.sleep(min(pause, left))
        pause = min(2 * pause, _PAUSE_MAX)
