"""The least group commit that Python threads can do: no store, only frames, one lock per waiting thread, one sync.

It shows how much of a commit among many threads is the threads themselves: putting one to sleep, waking it, and handing
the interpreter lock around.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence

from tests.bench.peers import Item

__all__ = ["BareGroup"]


class BareGroup:
    """Appends ready-made frames to a file; each returns when it is synced. Threads share it, that is its purpose."""

    def __init__(self, descriptor: int, frame: bytes) -> None:
        self._descriptor = descriptor
        self._frame = frame
        self._guard = threading.Lock()
        self._waiting: deque[_Waiter] = deque()
        self._led = False

    def puts(self, items: Sequence[Item]) -> None:
        """One commit for each item."""
        for _item in items:
            self._commit()

    def _commit(self) -> None:
        own = _Waiter()
        with self._guard:
            self._waiting.append(own)
            leads, self._led = not self._led, True
        if not leads:
            own.wakeup.acquire()
        if not own.done:
            self._lead(own)

    def _lead(self, own: _Waiter) -> None:
        with self._guard:
            group, self._waiting = self._waiting, deque()
        os.write(self._descriptor, self._frame * len(group))
        os.fdatasync(self._descriptor)
        for waiter in group:
            if waiter is not own:
                waiter.done = True
                waiter.wakeup.release()
        with self._guard:
            following = self._waiting[0] if self._waiting else None
            self._led = following is not None
        if following is not None:
            following.wakeup.release()


class _Waiter:
    """A thread whose commit is not decided: woken either with it done, or to lead."""

    __slots__ = ("done", "wakeup")

    def __init__(self) -> None:
        self.done = False
        self.wakeup = threading.Lock()
        self.wakeup.acquire()
