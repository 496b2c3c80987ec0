"""Who leads: the queue of waiting commits, and the one thread at a time that may write.

Committers that find nobody leading lead at once. The others queue; the leader takes the whole queue as its group, and
on leaving wakes those it finished, then hands the lead to the first that queued meanwhile. An *exclusive* request (a
segment switch, a new family, closing) is never part of a group: it gets the lead for itself when its turn comes.

The lead is one entry of a ``dict``, claimed with ``setdefault``, which is atomic and names its owner: claiming it costs
a tenth of a microsecond, and a thread that is interrupted at any point can tell in a ``finally`` whether it had it.

Promise: no request is forgotten or taken twice. A waiter that is interrupted (``KeyboardInterrupt``) either withdraws,
with nothing written, or had been taken by a leader, which decides it without the waiter. Should an interrupt hit a
leader just where it wakes somebody, that one wakes by itself: waiters look up twice a second.
"""

from __future__ import annotations

import threading
from collections import deque

from pystate.engine import threads

__all__ = ["LEAD", "Leadership", "Request"]

LEAD = 0
"""The key under which the leader stands."""
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
    """The lead of one store, and the queue for it. Thread-safe."""

    def __init__(self) -> None:
        self.owner: dict[int, object] = {}
        self.queue: deque[Request] = deque()
        self._queue_lock = threads.new_lock()

    def enter(self, request: Request) -> bool:
        """Return True when the caller leads now and must `leave`; False when another leader has decided `request`."""
        owner = self.owner
        if owner.setdefault(LEAD, request) is request:
            return True
        request.wakeup = threads.new_lock()
        request.wakeup.acquire()
        try:
            with self._queue_lock:
                self.queue.append(request)
                # The leader may have left before it could see this one in the queue; then nobody would wake it.
                if owner.setdefault(LEAD, request) is request:
                    self.queue.remove(request)
            while not (request.done or owner.get(LEAD) is request):
                if not request.wakeup.acquire(timeout=_LOOK_UP_SECONDS) and LEAD not in owner:
                    self.promote()
            if self.queue:
                self._dequeue(request)  # who handed the lead on may have been interrupted before it did this
        except BaseException:
            self._withdraw(request)
            raise
        return not request.done

    def _withdraw(self, request: Request) -> None:
        """A waiter gives up: leave the queue, or pass on a lead that has just been handed to it."""
        self._dequeue(request)
        self.leave(request)

    def _dequeue(self, request: Request) -> None:
        with self._queue_lock:
            if request in self.queue:
                self.queue.remove(request)

    def take_group(self, group: list[Request]) -> None:
        """For the leader: move every queued request up to the first exclusive one into `group`."""
        if self.queue:
            with self._queue_lock:
                while self.queue and not self.queue[0].exclusive:
                    group.append(self.queue[0])  # before it leaves the queue: an interrupt must not lose it
                    self.queue.popleft()

    def put_back(self, group: list[Request]) -> None:
        """For a leader that was interrupted before it wrote anything: queue them again, in front."""
        with self._queue_lock:
            for request in reversed(group):
                if request not in self.queue:
                    self.queue.appendleft(request)

    def finish(self, group: list[Request]) -> None:
        """Wake the owners of decided requests."""
        for request in group:
            request.done = True
        for request in group:
            _wake(request)

    def leave(self, request: object) -> None:
        """Give up the lead, if `request` has it, and hand it to the first that waits."""
        if self.owner.get(LEAD) is not request:
            return
        del self.owner[LEAD]
        if self.queue:
            self.promote()

    def promote(self) -> None:
        """Hand the free lead to the first that waits, unless somebody has just taken it."""
        with self._queue_lock:
            if self.queue:
                first = self.queue[0]
                # If somebody else has just taken the lead, it will come here too when it leaves.
                if self.owner.setdefault(LEAD, first) is first:
                    self.queue.popleft()
                    _wake(first)


def _wake(request: Request) -> None:
    if request.wakeup is not None and request.wakeup.locked():
        request.wakeup.release()
