"""A clock that tests drive, for a `Runtime`: time passes only when the test says so, and sleepers wake in order.

    clock = ManualClock()
    runtime = Runtime(store, clock=clock)

    async def test():
        outcome = await clock.drive(runtime.run(effect, "order_1"))    # as long as it takes
        task = asyncio.create_task(runtime.run(effect, "order_2"))
        await clock.advance(timedelta(seconds=10))                     # exactly so long

Between two moments the event loop gets turns, so that whoever was woken can go on, and sleep again, before time does.
A plain function of an effect runs in a thread, in real time; wait for it before time goes on.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pystate.effects.checks import as_duration, as_time

__all__ = ["TURNS", "ManualClock"]

T = TypeVar("T")

TURNS = 100
"""How many turns the event loop gets between two moments. Enough for every chain of tasks that wake one another."""
_REAL_PAUSE = 0.001


class ManualClock:
    """A clock that stands still until it is moved. Any thread may use it, and tasks of any event loop sleep on it.

    Arguments:
        now: the time at the beginning; None is 2026-01-01T00:00:00Z.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC) if now is None else as_time(now, "now")
        self._passed = timedelta(0)
        self._numbers = itertools.count()  # of those that wake at the same time, the first sleeper is the first
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []
        self._lock = threading.Lock()  # guards all of the above

    def now(self) -> datetime:
        """The time, in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made, in which no jump counts."""
        return self._passed.total_seconds()

    async def sleep(self, duration: timedelta) -> None:
        """Return when the clock has been moved so far; at once, but after a turn for other tasks, for zero or less."""
        if duration <= timedelta(0):
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            heapq.heappush(self._sleepers, (self._passed + duration, next(self._numbers), future))
        await future

    @property
    def sleepers(self) -> int:
        """How many sleep on it now."""
        with self._lock:
            return sum(not future.done() for _, _, future in self._sleepers)

    def jump(self, duration: timedelta) -> None:
        """Set the clock forward, or back (a negative duration): no time passes, and no sleeper wakes."""
        with self._lock:
            self._now += duration

    async def advance(self, duration: timedelta) -> None:
        """Let so much time pass, from one sleeper's moment to the next.

        Raises:
            ValueError: a negative duration; to go back, `jump`.
        """
        goal = self._passed + as_duration(duration, "duration")
        await self._settle()
        while self._step(goal):
            await self._settle()

    async def drive(self, work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
        """Let time pass, from one sleeper's moment to the next, until this work is done.

        Returns:
            What it returns.

        Raises:
            Whatever it raises.
        """
        task = asyncio.ensure_future(work)
        while not task.done():
            await self._settle(task)
            if not task.done() and not self._step(None):
                await asyncio.wait({task}, timeout=_REAL_PAUSE)  # nobody sleeps: it waits for a thread, or for the disk
        return await task

    def pass_at_once(self, duration: timedelta) -> None:
        """Let so much time pass in one go, from any thread: all whose moment lies in it are woken, in order."""
        goal = self._passed + as_duration(duration, "duration")
        while self._step(goal):
            pass

    async def _settle(self, task: asyncio.Future[Any] | None = None) -> None:
        for _ in range(TURNS):
            if task is not None and task.done():
                return
            await asyncio.sleep(0)

    def _step(self, goal: timedelta | None) -> bool:
        """Go on to the moment of the next sleepers, and wake them.

        Arguments:
            goal: not further than there, and all the way if nobody wakes before; None: only if somebody sleeps.

        Returns:
            Whether somebody was woken.
        """
        woken = []
        with self._lock:
            while self._sleepers and self._sleepers[0][2].done():  # cancelled
                heapq.heappop(self._sleepers)
            moment = self._sleepers[0][0] if self._sleepers else None
            if moment is None or (goal is not None and moment > goal):
                if goal is not None and goal > self._passed:
                    self._now, self._passed = self._now + (goal - self._passed), goal
                return False
            self._now, self._passed = self._now + (moment - self._passed), moment
            while self._sleepers and self._sleepers[0][0] == moment:
                woken.append(heapq.heappop(self._sleepers)[2])
        for future in woken:
            _wake(future)
        return True


def _wake(future: asyncio.Future[None]) -> None:
    loop = future.get_loop()
    try:
        if loop is asyncio.get_running_loop():
            _settle_future(future)
            return
    except RuntimeError:
        pass  # no loop runs in this thread
    try:
        loop.call_soon_threadsafe(_settle_future, future)
    except RuntimeError:
        pass  # the loop is closed, and so is the sleeper


def _settle_future(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
