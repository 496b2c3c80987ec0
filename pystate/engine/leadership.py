"""Who leads: the queue of waiting commits, and the one thread at a time that may write.

Who finds nobody leading leads at once. The others queue, in the order of their coming. A leader takes the queue as its
group, and on leaving wakes the first that queued meanwhile, which leads next, and then those it has decided. An
*exclusive* request (a segment switch, a new family, closing) is never part of a group: when it is first, it leads
alone.

To lead is to hold `Leadership.lead`, by ``with``: the interpreter looks for signals neither between taking a lock that
way and entering the block, nor between leaving the block and letting go, so an interrupt cannot lose the lead. (A lead
handed from thread to thread can be lost, and so can one that is taken before a ``try``: both were tried. Who must not
wait for it cannot use ``with``; see `Leadership.run_at_once`.)

The thread that waits for a request leads for it. A request that no thread waits for, since its owner is a task of an
event loop, comes with the `wakeup` of the ``deputy``, which leads in its place.

Promise: no request is forgotten or decided twice. A waiter that is interrupted (``KeyboardInterrupt``) either
withdraws, with nothing written, or had been taken by a leader, which decides it without the waiter. Should an interrupt
hit a leader just where it wakes somebody, that one wakes by itself: waiters look up twice a second.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pystate.engine import threads

__all__ = ["Leadership", "Request", "wake"]

_LOOK_UP_SECONDS = 0.5
_WITHOUT_WAITING = (False,)


class Request:
    """Something that needs the lead.

    Attributes:
        exclusive: it leads alone.
        done: a leader has decided it; `error` holds the failure, if any.
        wakeup: held until whoever waits for it may look again; several requests may share one.
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
        request.wakeup = wakeup = threads.new_lock()
        wakeup.acquire()
        try:
            with self._queue_lock:
                self.queue.append(request)
            while not request.done:
                if self.may_lead(wakeup):
                    self._lead(request, decide)
                else:
                    wakeup.acquire(timeout=_LOOK_UP_SECONDS)
        finally:
            if not request.done:
                self.withdraw(request)

    def run_at_once(self, request: Request, decide: Callable[[list[Request]], None]) -> bool:
        """`run`, but only if nobody leads and nobody waits. Return whether `request` is done.

        Arguments:
            decide: as for `run`; it may also decline, and leave `request` undone.

        Raises:
            As `run`.
        """
        held: list[bool] = []
        try:
            if not self.queue:
                # One call takes the lead and notes that it has, so no interrupt comes between the two; and up to the
                # release below there is no call at which one could come.
                held.extend(map(self.lead.acquire, _WITHOUT_WAITING))
                if held[0]:
                    decide([request])
        finally:
            if held == [True]:
                self.lead.release()
                self.wake_first()
        return request.done

    def lead_for_first(self, decide: Callable[[list[Request]], None]) -> None:
        """Lead in the place of whoever waits first, unless that is an exclusive request.

        Arguments:
            decide: as for `run`, but those that it leaves undone queue again in front, all of them.
        """
        self._lead(None, decide)

    def enqueue(self, request: Request, wakeup: threading.Lock) -> None:
        """Queue a request that no thread waits for.

        Arguments:
            wakeup: released when `request` is first and nobody leads, and when it is done.
        """
        request.wakeup = wakeup
        with self._queue_lock:
            self.queue.append(request)
        if not self.lead.locked():  # or else the leader will see to it
            self.wake_first()

    def _lead(self, request: Request | None, decide: Callable[[list[Request]], None]) -> None:
        group: list[Request] = []
        try:
            with self.lead:
                if request is None or not request.done:
                    self._take(request, group)
                    if group:
                        decide(group)
        finally:
            self._put_back([other for other in group if not other.done and other is not request])
            self.wake_first()  # before the others, so that the next group is written while they wake up
            for other in group:
                if other.done:
                    _wake(other)

    def _take(self, request: Request | None, group: list[Request]) -> None:
        """Move the group of a leader into `group`: its `request`, if it has one, and what is queued up to the first
        exclusive request."""
        with self._queue_lock:
            queue = self.queue
            if request is not None and not (queue and queue[0] is request):
                group.append(request)
            alone = request is not None and request.exclusive
            while queue and (queue[0] is request or not (alone or queue[0].exclusive)):
                group.append(queue[0])  # before it leaves the queue: an interrupt must not lose it
                queue.popleft()

    def _put_back(self, group: list[Request]) -> None:
        if group:
            with self._queue_lock:
                for request in reversed(group):
                    if request not in self.queue:
                        self.queue.appendleft(request)

    def may_lead(self, wakeup: threading.Lock) -> bool:
        """Whether nobody leads, and the first that waits does so with this `wakeup`."""
        with self._queue_lock:
            first = bool(self.queue) and self.queue[0].wakeup is wakeup
        return first and not self.lead.locked()

    def withdraw(self, request: Request) -> bool:
        """Take a request back, and let the next one lead if it was this one's turn.

        Returns:
            Whether it was still in the queue. If not, a leader decides it, or has.
        """
        with self._queue_lock:
            queued = request in self.queue
            if queued:
                self.queue.remove(request)
        self.wake_first()
        return queued

    def wake_first(self) -> None:
        """Let the first that waits take the lead; called by whoever has just given it up."""
        if self.queue:
            with self._queue_lock:
                if self.queue:
                    _wake(self.queue[0])


def wake(wakeup: threading.Lock) -> None:
    """Let whoever waits for `wakeup` look again."""
    if wakeup.locked():
        try:
            wakeup.release()
        except RuntimeError:
            pass  # several wake the deputy, and another one was faster


def _wake(request: Request) -> None:
    if request.wakeup is not None:
        wake(request.wakeup)
