"""Committers that arrive at a known moment: while somebody else leads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import cast

from pystate.engine.leadership import Leadership, Request


class CrowdedLead:
    """The lead of a `Leadership`; the first who takes it finds that others have queued meanwhile.

    Arguments:
        leadership: whose lead this becomes.
        arrive: called once, by the leader, just after it has taken the lead.
    """

    def __init__(self, leadership: Leadership, arrive: Callable[[], None]) -> None:
        self._lock = leadership.lead
        self._arrive: Callable[[], None] | None = arrive
        leadership.lead = cast(threading.Lock, self)

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> None:
        self._lock.acquire()
        arrive, self._arrive = self._arrive, None
        if arrive is not None:
            arrive()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def arrive_in_threads(leadership: Leadership, work: Iterable[Callable[[], None]]) -> list[threading.Thread]:
    """Start a thread for each piece of work, and let each queue before the next one starts."""
    threads = []
    for number, piece in enumerate(work, start=1):
        thread = threading.Thread(target=piece, daemon=True)
        thread.start()
        threads.append(thread)
        while len(leadership.queue) < number and thread.is_alive():
            threading.Event().wait(0.0001)
    return threads


def pretend_to_wait(leadership: Leadership, *requests: Request) -> None:
    """Queue requests whose threads do not exist; whoever leads next finds them."""
    for request in requests:
        request.wakeup = threading.Lock()
        request.wakeup.acquire()
        leadership.queue.append(request)


def woken(request: Request) -> bool:
    """Whether the thread of a request that waits has been told to look again."""
    return request.wakeup is not None and not request.wakeup.locked()
