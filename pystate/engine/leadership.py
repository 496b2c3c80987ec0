"""Who leads: the queue of waiting commits, and the one thread at a time that may write.

Who finds nobody leading leads at once. The others queue, in the order of their coming. A leader takes the queue as its
group, and on leaving wakes the first that queued meanwhile, which leads next, and then those it has decided. An
*exclusive* request (a segment switch, a new family, closing) is never part of a group: when it is first, it leads
alone.

To lead is to hold `Leadership.lead`, always by ``with``: the interpreter looks for signals neither between taking a
lock that way and entering the block, nor between leaving the block and letting go, so an interrupt cannot lose the
lead. (A lead handed from thread to thread, or released in a ``finally``, can be lost: it was tried.)

Promise: no request is forgotten or decided twice. A waiter that is interrupted (``KeyboardInterrupt``) either
withdraws, with nothing written, or had been taken by a leader, which decides it without the waiter. Should an interrupt
hit a leader just where it wakes somebody, that one wakes by itself: waiters look up twice a second.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pystate.engine import threads

__all__ = ["Leadership", "Request"]

_LOOK_UP_SECONDS = 0.5


class Request:
    """Something that needs the lead.

    Attributes:
        exclusive: it leads alone.
        done: a leader has decided it; `error` holds the failure, if any.
        wakeup: held until its owner may look again.
    """

    __slots__ = ("done", "error", "exclusive", "wakeup")

    def __init__(self, *, exclusive: bool = False) -> None:
        self.exclusive = exclusive
        self.done = False
        self.error: BaseException | None = None
        self.wakeup: threading.Lock | None = None


class Leadership:
    """The lead of one store, and the queue for it. Thread-safe.

    Attributes:
        lead: held by the leader. Who takes it directly, with nobody queued, must call `wake_first` afterwards.
        queue: the requests that wait, first come first.
    """

    def __init__(self) -> None:
        self.lead = threads.new_lock()
        self.queue: deque[Request] = deque()
        self._queue_lock = threads.new_lock()

    def run(self, request: Request, decide: Callable[[list[Request]], None]) -> None:
        """Return when `request` is done: decided here, or by another leader.

        Arguments:
            decide: called with the lead and a group that contains `request`; it must set `done` on all of them. If it
                raises, those that are not done queue again, in front, except `request`.

        Raises:
            What `decide` raises, or an interrupt; if `request` is not done then, nobody will decide it any more.
        """
        if not self.queue and not self.lead.locked():
            self._lead(request, decide)
            return
        request.wakeup = threads.new_lock()
        request.wakeup.acquire()
        try:
            with self._queue_lock:
                self.queue.append(request)
            while not request.done:
                if self._is_first(request) and not self.lead.locked():
                    self._lead(request, decide)
                else:
                    request.wakeup.acquire(timeout=_LOOK_UP_SECONDS)
        finally:
            if not request.done:
                self._withdraw(request)

    def _lead(self, request: Request, decide: Callable[[list[Request]], None]) -> None:
        group: list[Request] = []
        try:
            with self.lead:
                if not request.done:
                    self._take(request, group)
                    decide(group)
        finally:
            self._put_back([other for other in group if not other.done and other is not request])
            self.wake_first()  # before the others, so that the next group is written while they wake up
            for other in group:
                if other.done:
                    _wake(other)

    def _take(self, request: Request, group: list[Request]) -> None:
        """Move the group of a leader into `group`: `request`, and what is queued up to the first exclusive request."""
        with self._queue_lock:
            queue = self.queue
            if not (queue and queue[0] is request):
                group.append(request)
            while queue and (queue[0] is request or not (request.exclusive or queue[0].exclusive)):
                group.append(queue[0])  # before it leaves the queue: an interrupt must not lose it
                queue.popleft()

    def _put_back(self, group: list[Request]) -> None:
        if group:
            with self._queue_lock:
                for request in reversed(group):
                    if request not in self.queue:
                        self.queue.appendleft(request)

    def _is_first(self, request: Request) -> bool:
        with self._queue_lock:
            return bool(self.queue) and self.queue[0] is request

    def _withdraw(self, request: Request) -> None:
        """A waiter gives up: leave the queue, and let the next one lead if it was this one's turn."""
        with self._queue_lock:
            if request in self.queue:
                self.queue.remove(request)
        self.wake_first()

    def wake_first(self) -> None:
        """Let the first that waits take the lead; called by whoever has just given it up."""
        if self.queue:
            with self._queue_lock:
                if self.queue:
                    _wake(self.queue[0])


def _wake(request: Request) -> None:
    if request.wakeup is not None and request.wakeup.locked():
        request.wakeup.release()
