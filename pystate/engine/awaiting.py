"""Commits that are awaited: what `Store.transact_async` does, in the thread of an event loop and without blocking it.

The request is queued with those of the threads, and becomes part of the same groups. Whoever leads decides it; the
``deputy`` leads when the first in the queue is one of these, and tells the loop. What needs no sync and no wait is
committed right here, which is quicker than telling another thread.

Promise: a task that is cancelled raises `CancelledError` only when its commit is settled: it has never begun and never
will, or it is decided. So it waits for the group that it has been taken into, and for nothing else.

This module is imported by the first call, since it needs asyncio, which is slow to import and there already where an
event loop runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import CoroutineType
from typing import TypeVar

from pystate.engine import threads
from pystate.engine.commit import CommitRequest, Committer
from pystate.engine.deputy import Awaited, Deputy
from pystate.engine.transaction import Transaction
from pystate.errors import ConflictError

__all__ = ["commit", "transact"]

T = TypeVar("T")


async def transact(begin: Callable[[], Transaction], function: Callable[[Transaction], T], attempts: int) -> T:
    """`Store.transact_async`, which says what it does; `begin` begins each attempt."""
    for attempt in range(attempts):
        # Also before the first attempt, so that a task which commits in a loop lets the others have their turns.
        await asyncio.sleep(threads.back_off_seconds(attempt - 1) if attempt else 0)
        try:
            with begin() as txn:
                result = function(txn)
                if isinstance(result, CoroutineType):
                    result.close()
                    raise TypeError(
                        "the function given to transact_async must be a plain one, not async: "
                        "a transaction does not wait for anything; await before it or after it"
                    )
                request = txn._finish()
            if request is not None and txn._committer is not None:
                await commit(txn._committer, request)
            return result
        except ConflictError:
            if attempt == attempts - 1:
                raise
    raise RuntimeError("the loop above returns or raises")


async def commit(committer: Committer, request: CommitRequest) -> None:
    """`Committer.commit`, waiting as a task does. Raises the same, and `CancelledError` as the module promises."""
    if not committer.commit_at_once(request):
        await _Waiter(committer.deputy, request).wait()
    if request.error is not None:
        raise request.error


class _Waiter:
    """A task that waits for its request."""

    def __init__(self, deputy: Deputy, request: CommitRequest) -> None:
        self._deputy = deputy
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()
        self._awaited = Awaited(request, self._loop, self._tell)

    def _tell(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Queue the request, and return when it is done.

        Raises:
            CancelledError: when it is done, or withdrawn.
        """
        cancelled: asyncio.CancelledError | None = None
        try:
            self._deputy.take_on(self._awaited)
            while not self._request.done:
                try:
                    await self._future
                except asyncio.CancelledError as error:
                    if self._withdraw():
                        raise
                    cancelled = error
                    self._future = self._loop.create_future()  # what a task waits for is cancelled with it
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._withdraw()  # interrupted, or thrown away: no leader is waited for then
            raise
        if cancelled is not None:
            raise cancelled

    def _withdraw(self) -> bool:
        withdrawn = self._deputy.withdraw(self._awaited)
        if withdrawn and self._request.pin is not None:
            self._request.pin.release()  # at once, since a cancelled task keeps its frames, and so the pin
        return withdrawn
