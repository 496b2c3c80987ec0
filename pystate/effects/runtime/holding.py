"""Holding an effect: a lease that is renewed while its holder waits, and nothing else.

Whatever the work on an effect waits for (an action, a lookup, an approver, a delay), it waits for it here, so the lease
is renewed after each third of its life. Once it is lost, the waiting ends with `LeaseLostError`; what was waited for is
left to end by itself.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from pystate.effects.requests import Lease
from pystate.effects.runtime.parts import Parts, logger
from pystate.errors import LeaseLostError

__all__ = ["Hold"]

_NO_TIME = timedelta(0)


class Hold:
    """A lease, and the task that renews it; it begins with the first wait. For one task only.

    Arguments:
        parts: of the runtime.
        lease: just acquired.
    """

    def __init__(self, parts: Parts, lease: Lease) -> None:
        self.lease = lease
        self._parts = parts
        self._heart: asyncio.Task[None] | None = None
        self._delay: asyncio.Task[None] | None = None
        self._interrupted = False
        self._loop = asyncio.get_running_loop()
        parts.holds.add(self)

    def close(self) -> None:
        """Let the lease be renewed no more. It is not given back: that belongs into the commit of the last result."""
        self._parts.holds.discard(self)
        if self._heart is not None:
            self._heart.cancel()

    async def release(self) -> None:
        """Give the lease back where there is no result to store. A failure is logged: the lease lapses in time."""
        try:
            await self._parts.store.transact_async(lambda operations: operations.release_lease(self.lease))
        except Exception:  # noqa: BLE001 - the error that led here is the one to tell
            logger.exception("effect %s: its lease could not be given back", self.lease.effect_id)

    def interrupt(self) -> None:
        """End the delay that is being sat out, and every later one. From any thread."""
        self._loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        self._interrupted = True
        if self._delay is not None:
            self._delay.cancel()

    async def wait(self, task: asyncio.Task[Any], timeout: timedelta | None = None) -> bool:
        """Wait until a task has ended, however it ends.

        Arguments:
            task: is never cancelled here.
            timeout: how long at most; None is for ever.

        Returns:
            Whether it has ended in time.

        Raises:
            LeaseLostError: the lease was lost before.
        """
        if self._heart is None:
            # What ends at once needs no heart, which costs two tasks; nobody else gets more than a turn meanwhile.
            await asyncio.sleep(0)
            if task.done():
                return True
            self._heart = asyncio.create_task(self._beat(), name="pystate-effect-heartbeat")
        waited: set[asyncio.Task[Any]] = {task, self._heart}
        timer = None
        if timeout is not None:
            timer = asyncio.create_task(self._parts.clock.sleep(timeout), name="pystate-effect-timeout")
            waited.add(timer)
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
        if task.done():
            return True
        if self._heart.done():
            raise LeaseLostError(self.lease.effect_id)
        return False

    async def see_through(self, task: asyncio.Task[Any], timeout: timedelta | None) -> tuple[bool, bool]:
        """`wait` for a task whose result must be stored, also when the event loop ends, which cancels all tasks.

        Arguments:
            task: runs code of an effect; it is cancelled if the loop ends, and then waited for.
            timeout: how long at most; None is for ever.

        Returns:
            Whether it has ended in time, and whether the loop ends.

        Raises:
            LeaseLostError: the lease was lost before.
        """
        try:
            return await self.wait(task, timeout), False
        except asyncio.CancelledError:
            if not task.cancelling():  # the loop has asked it already; twice would disturb its cleaning up
                task.cancel()
            await asyncio.wait({task})  # not under the hold, whose heart has been cancelled too
            return True, True

    async def sleep(self, duration: timedelta) -> None:
        """Let so much time pass, unless it is interrupted.

        Raises:
            LeaseLostError: the lease was lost before.
        """
        if duration <= _NO_TIME or self._interrupted:
            return
        self._delay = asyncio.create_task(self._parts.clock.sleep(duration), name="pystate-effect-delay")
        try:
            await self.wait(self._delay)
        finally:
            self._delay.cancel()
            self._delay = None

    async def sleep_until(self, time: datetime) -> None:
        """Wait for a time, as the clock tells it, whatever jumps it makes; unless it is interrupted.

        Raises:
            LeaseLostError: the lease was lost before.
        """
        while (now := self._parts.clock.now()) < time and not self._interrupted:
            await self.sleep(time - now)

    async def _beat(self) -> None:
        """Renew the lease, until it is lost. Any other error may be over at the next beat."""
        parts, lease = self._parts, self.lease
        third = parts.lease_ttl / 3
        # Counted from when it was taken, not from now: a slow disk may have used up some of it.
        wait = _between(_NO_TIME, lease.expires_at - parts.clock.now() - 2 * third, third)
        while True:
            await parts.clock.sleep(wait)
            wait = third
            try:
                await parts.store.transact_async(
                    lambda operations: operations.renew_lease(lease, parts.clock.now(), parts.lease_ttl)
                )
            except LeaseLostError:
                return
            except Exception:  # noqa: BLE001 - whatever a store raises; without a renewal the lease lapses in time
                logger.exception("effect %s: its lease could not be renewed; trying again", lease.effect_id)


def _between(low: timedelta, value: timedelta, high: timedelta) -> timedelta:
    return max(low, min(value, high))
