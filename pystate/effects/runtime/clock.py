"""The clock of a runtime: the only place where it reads the time or waits for it to pass.

`now` is what is stored: it may jump when the machine's clock is set. `monotonic` never jumps, and measures how long
something took here. Tests drive a `pystate.effects.testing.ManualClock` instead.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What a runtime needs of a clock. All three may be called from any thread; `sleep` from a task of any loop."""

    def now(self) -> datetime:
        """The time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment in the past; never goes back."""
        ...

    async def sleep(self, duration: timedelta) -> None:
        """Return when so much time has passed; at once, but after a turn for other tasks, if it is zero or less."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()

    async def sleep(self, duration: timedelta) -> None:
        """Return when so much time has passed."""
        await asyncio.sleep(max(0.0, duration.total_seconds()))
