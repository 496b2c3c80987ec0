"""Event loops for tests: one that the explorer of thread orders can follow, and what every test needs of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pystate.engine import threads
from pystate.testing.interleavings import yield_point

T = TypeVar("T")


class ExploredLoop(asyncio.BaseEventLoop):
    """An event loop without files that waits only behind the seam of the engine, and whose clock stands still.

    Each of its turns is a yield point. Timers run when nothing else happens.
    """

    def __init__(self) -> None:
        super().__init__()
        self._woken = threads.new_event()
        self._now = 0.0
        self._selector = self  # where `BaseEventLoop` looks for it
        self.set_exception_handler(lambda _loop, _context: None)  # when a run has failed, the rest is noise

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Wait until another thread calls, or for a timer."""
        if timeout == 0:
            yield_point("turn")
        elif not self._woken.wait(timeout) and timeout is not None:
            self._now += timeout
        self._woken.clear()
        return []

    def _process_events(self, _events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        self._woken.set()


def run_explored(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` for a thread of an explored program."""
    with asyncio.Runner(loop_factory=ExploredLoop) as runner:
        return runner.run(main)


def in_loop() -> bool:
    """Whether this thread runs an event loop just now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
