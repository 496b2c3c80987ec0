"""The deputy: the one thread of a store that leads for those who must not wait, the tasks of event loops.

A task cannot block its thread, so nobody would lead when its request is the first in the queue. All such requests share
the wakeup of the deputy, which leads in their place, and which is woken like any waiter: when the first of them is at
the head of the queue, and when a leader, itself or another thread, has decided some. Then it tells the loops, each once
for all of its requests.

The thread begins with the first request, and ends when there has been none for a while, or with the store. No signal is
handled in it, so no interrupt ends it.

Promise: whoever takes a request on is told when it is decided, unless it was withdrawn or its loop is closed. A request
that nobody was woken for, since a leader was interrupted just there, is seen when the deputy looks up, twice a second.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from pystate.engine import threads
from pystate.engine.leadership import Leadership, Request, wake

__all__ = ["Awaited", "Deputy", "Loop"]

_LOOK_UP_SECONDS = 0.5
_IDLE_SECONDS = 5.0
"""How long the thread stays when there is nothing to do. Not for ever: it keeps a store open that was forgotten without
being closed, and a new thread costs little."""


class Loop(Protocol):
    """What is needed of an event loop."""

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: object) -> object:
        """Call `callback` in the thread of the loop."""
        ...


class Awaited(NamedTuple):
    """A request on behalf of a task.

    Attributes:
        loop: of the task.
        tell: called in the thread of the loop when `request` is done.
    """

    request: Request
    loop: Loop
    tell: Callable[[], object]


class Deputy:
    """The deputy of one `Leadership`. Thread-safe, and nothing but `dismiss` waits for the disk.

    Arguments:
        decide: as for `Leadership.run`. What it raises becomes the error of the first of its group.
    """

    def __init__(self, leadership: Leadership, decide: Callable[[list[Request]], None]) -> None:
        self._leadership = leadership
        self._decide = decide
        self._lock = threads.new_lock()
        self._waiting: deque[Awaited] = deque()  # in the order in which they have queued
        self._wakeup = threads.new_lock()  # not held: the thread looks around once more when it begins
        self._thread: threading.Thread | None = None
        self._dismissed = False

    # For the threads of the loops

    def take_on(self, awaited: Awaited) -> None:
        """Queue a request, and see to it that it is led for and its loop is told.

        Raises:
            RuntimeError: no thread could be started; `withdraw` it then, as after an interrupt.
        """
        with self._lock:
            self._leadership.enqueue(awaited.request, self._wakeup)
            if not self._waiting:
                wake(self._wakeup)  # it may be idle, and must look up from now on
            self._waiting.append(awaited)
            if self._thread is None:
                self._thread = threads.start_thread("pystate-deputy", self._work)

    def withdraw(self, awaited: Awaited) -> bool:
        """Give a request up. Return whether that was possible; if not, a leader decides it, or has."""
        with self._lock:
            waited = awaited in self._waiting
            if waited:
                self._waiting.remove(awaited)  # before all else: should an interrupt come now, nobody wants to be told
            withdrawn = self._leadership.withdraw(awaited.request)
            if waited and not withdrawn:
                self._waiting.appendleft(awaited)  # a leader has it, and so has, or has had, those before it
            return withdrawn

    # For closing

    def dismiss(self) -> None:
        """End the thread, and wait until it has ended. Those that it still leads for are decided first.

        Call it when every further request is refused at once, or it might never come to an end.
        """
        self._dismissed = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            wake(self._wakeup)
            thread.join()

    # The thread

    def _work(self) -> None:
        own = threading.current_thread()
        with self._lock:
            if self._thread is None:
                self._thread = own  # whoever started it was interrupted before it could note that
            elif self._thread is not own:
                return
        try:
            while True:
                self._tell()
                if self._leadership.may_lead(self._wakeup):
                    self._leadership.lead_for_first(self._decide_group)
                elif self._dismissed and self._may_end():
                    return
                elif not self._wait() and self._may_end():
                    return
        finally:
            with self._lock:
                if self._thread is own:
                    self._thread = None

    def _wait(self) -> bool:
        """Wait to be woken; False when it is time to look up."""
        return self._wakeup.acquire(timeout=_LOOK_UP_SECONDS if self._waiting else _IDLE_SECONDS)

    def _may_end(self) -> bool:
        with self._lock:
            if self._waiting:
                return False
            self._thread = None  # from here on, who takes a request on starts another one
            return True

    def _decide_group(self, group: list[Request]) -> None:
        self._tell()  # those whom another thread has decided need not wait for this group as well
        try:
            self._decide(group)
        except BaseException as error:  # noqa: BLE001 - it goes to the first, as if that had led by itself
            if not group[0].done:
                group[0].error = error
                group[0].done = True

    def _tell(self) -> None:
        """Tell the loops what has been decided."""
        told: dict[Loop, list[Callable[[], object]]] = {}
        with self._lock:
            waiting = self._waiting
            while waiting and waiting[0].request.done:
                awaited = waiting.popleft()
                told.setdefault(awaited.loop, []).append(awaited.tell)
        for loop, tells in told.items():
            try:
                loop.call_soon_threadsafe(_call_all, tells)
            except RuntimeError:
                pass  # it is closed, and so nobody waits any more


def _call_all(functions: list[Callable[[], object]]) -> None:
    for function in functions:
        function()
