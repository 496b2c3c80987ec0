"""Running effects from plain code: one event loop in a thread of its own, begun when it is first needed.

The thread does not keep the process alive. A caller that is interrupted leaves its effect to the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from pystate.errors import ClosedError

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """An event loop for callers that have none. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the three below
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._thread is not None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for it.

        Returns:
            What it returns.

        Raises:
            ClosedError: it has ended.
            RuntimeError: called in the thread of the loop, which would wait for itself. Whatever the coroutine raises.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a plain call from a task of the runtime's own loop would wait for itself; await it")
        try:
            loop = self._begun()
        except ClosedError:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def _begun(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise ClosedError("runtime", "has been closed; make another one over the same store")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="pystate-effects", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """End the loop and its thread, for good; whatever still runs in it is cancelled."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None and thread is not threading.current_thread():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while True:
            try:
                loop.run_forever()
                break
            except (KeyboardInterrupt, SystemExit):
                # Raised by the code of one effect, and seen by the work on it; it must not end that on all others.
                continue
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
