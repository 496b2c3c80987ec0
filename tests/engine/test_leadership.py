"""The queue of commits and the lead, step by step, with real threads, and interrupted at every line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from pystate.engine import leadership as module
from pystate.engine.leadership import LEAD, Leadership, Request


class Interrupt:
    """Raises KeyboardInterrupt when the current thread is about to run the `number`-th line of the module.

    Attributes:
        hit: it has done so. lines: how many lines have been about to run.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.lines = 0
        self.hit = False

    def __enter__(self) -> Interrupt:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.number:
                self.hit = True
                raise KeyboardInterrupt
        return self._trace


def queued(lead: Leadership, *, exclusive: bool = False) -> Request:
    """A request that waits, as `enter` leaves it while its thread is blocked."""
    request = Request(exclusive=exclusive)
    request.wakeup = threading.Lock()
    request.wakeup.acquire()
    lead.queue.append(request)
    return request


def woken(request: Request) -> bool:
    return request.wakeup is not None and not request.wakeup.locked()


def test_first_leads_and_leaves() -> None:
    """Whoever finds nobody leading leads at once."""
    lead = Leadership()
    for _ in range(3):
        request = Request()
        assert lead.enter(request)
        assert lead.owner == {LEAD: request}
        lead.leave(request)
        assert lead.owner == {}


def test_leaving_without_the_lead_does_nothing() -> None:
    """A `finally` may always call it."""
    lead = Leadership()
    leader = Request()
    lead.enter(leader)
    lead.leave(Request())
    lead.leave(object())
    assert lead.owner == {LEAD: leader}


def test_group_is_the_queue_up_to_the_first_exclusive_request() -> None:
    """An exclusive request is never part of a group, and nothing passes it."""
    lead = Leadership()
    leader = Request()
    lead.enter(leader)
    first, second = queued(lead), queued(lead)
    alone, last = queued(lead, exclusive=True), queued(lead)
    group: list[Request] = []
    lead.take_group(group)
    assert group == [first, second]
    assert list(lead.queue) == [alone, last]
    again: list[Request] = []
    lead.take_group(again)
    assert again == []


def test_leaving_hands_the_lead_to_the_first_that_waits() -> None:
    """It is woken as the leader; the others go on waiting."""
    lead = Leadership()
    leader = Request()
    lead.enter(leader)
    alone, last = queued(lead, exclusive=True), queued(lead)
    lead.leave(leader)
    assert lead.owner == {LEAD: alone}
    assert list(lead.queue) == [last]
    assert (woken(alone), woken(last), alone.done) == (True, False, False)
    lead.leave(alone)
    assert lead.owner == {LEAD: last}
    assert woken(last)
    lead.leave(last)
    assert lead.owner == {}


def test_finished_requests_are_done_and_woken() -> None:
    """Their owners return what was decided."""
    lead = Leadership()
    group = [queued(lead), queued(lead)]
    lead.queue.clear()
    lead.finish(group)
    assert all(request.done and woken(request) for request in group)
    lead.finish(group)  # twice is once


def test_requests_put_back_stand_in_front_in_their_order() -> None:
    """A leader that was interrupted before it wrote anything has changed nothing for the others."""
    lead = Leadership()
    lead.enter(Request())
    first, second = queued(lead), queued(lead)
    group: list[Request] = []
    lead.take_group(group)
    third = queued(lead)
    lead.put_back(group)
    assert list(lead.queue) == [first, second, third]
    lead.put_back(group)
    assert list(lead.queue) == [first, second, third]


def test_promoting_while_somebody_leads_leaves_the_queue() -> None:
    """Whoever leads will come here when it leaves."""
    lead = Leadership()
    leader = Request()
    lead.enter(leader)
    waiting = queued(lead)
    lead.promote()
    assert lead.owner == {LEAD: leader}
    assert list(lead.queue) == [waiting]
    assert not woken(waiting)


class Shop:
    """Threads that need the lead; it counts what each of them got, and checks that nobody else was inside."""

    def __init__(self) -> None:
        self.lead = Leadership()
        self.inside: list[Request] = []
        self.decided: list[Request] = []
        self.led_alone = 0
        self.problems: list[str] = []

    def work(self, count: int, exclusive_each: int) -> None:
        for number in range(count):
            request = Request(exclusive=number % exclusive_each == 0)
            try:
                if self.lead.enter(request):
                    self._lead(request)
                elif request.exclusive:
                    self.problems.append("an exclusive request was decided by another")
            finally:
                self.lead.leave(request)
            if self.decided.count(request) != 1 and not request.exclusive:
                self.problems.append("a request was not decided once")

    def _lead(self, request: Request) -> None:
        if self.inside:
            self.problems.append("two lead at once")
        self.inside.append(request)
        group: list[Request] = []
        if request.exclusive:
            self.led_alone += 1
        else:
            self.lead.take_group(group)
            self.decided.extend([request, *group])
        if any(one.exclusive for one in group):
            self.problems.append("an exclusive request in a group")
        self.inside.remove(request)
        self.lead.finish(group)


def test_requests_of_many_threads_are_each_decided_once() -> None:
    """Promise: no request is forgotten or taken twice; one thread at a time leads."""
    shop = Shop()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [threading.Thread(target=shop.work, args=(150, 3 + number)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert not any(worker.is_alive() for worker in workers)
    assert shop.problems == []
    assert shop.led_alone == sum(len(range(0, 150, 3 + number)) for number in range(8))
    assert len(shop.decided) == 8 * 150 - shop.led_alone
    assert (shop.lead.owner, list(shop.lead.queue)) == ({}, [])


def everybody_gets_the_lead(lead: Leadership) -> None:
    """After whatever happened, the queue is served to its end and a newcomer leads at once."""
    for _ in range(10):
        owner = lead.owner.get(LEAD)
        if owner is None:
            break
        assert isinstance(owner, Request)
        assert woken(owner) or owner.wakeup is None, "the lead went to somebody who sleeps"
        lead.leave(owner)
    newcomer = Request()
    assert lead.enter(newcomer)
    lead.leave(newcomer)
    assert (lead.owner, list(lead.queue)) == ({}, [])


def each_line(action: Callable[[Interrupt], bool]) -> None:
    """Interrupt `action` at its first line, at its second ..., until it runs to its end; it says whether it was hit."""
    number = 1
    while action(Interrupt(number)):
        number += 1
    assert number > 3


def test_entering_interrupted_at_any_line_leaves_no_ghost() -> None:
    """Row 45: neither as the leader nor in the queue does a request stay whose thread has gone away."""

    def action(interrupt: Interrupt) -> bool:
        lead = Leadership()
        request = Request()
        try:
            with interrupt:
                lead.enter(request)
        except KeyboardInterrupt:
            pass
        lead.leave(request)  # what every caller does in a `finally`
        everybody_gets_the_lead(lead)
        return interrupt.hit

    number = 1
    while action(Interrupt(number)):
        number += 1
    assert number > 2


def test_waiting_interrupted_at_any_line_leaves_no_ghost() -> None:
    """Row 45: a waiter that is interrupted withdraws; nobody else notices, and it is not handed the lead."""

    def action(interrupt: Interrupt) -> bool:
        lead = Leadership()
        leader, request = Request(), Request()
        lead.enter(leader)
        waiting = queued(lead)

        def leave_when_it_waits() -> None:
            while request not in lead.queue and not done.is_set():
                done.wait(0.0002)
            lead.leave(leader)
            lead.leave(waiting)

        done = threading.Event()
        other = threading.Thread(target=leave_when_it_waits)
        other.start()
        try:
            with interrupt:
                lead.enter(request)
        except KeyboardInterrupt:
            pass
        finally:
            done.set()
            lead.leave(request)
            other.join(60)
        assert request not in lead.queue
        everybody_gets_the_lead(lead)
        return interrupt.hit

    each_line(action)


def test_taking_a_group_interrupted_at_any_line_forgets_nobody() -> None:
    """Row 45: each request is in the group or in the queue, whichever line was next."""

    def action(interrupt: Interrupt) -> bool:
        lead = Leadership()
        lead.enter(Request())
        waiting = [queued(lead), queued(lead), queued(lead)]
        group: list[Request] = []
        try:
            with interrupt:
                lead.take_group(group)
        except KeyboardInterrupt:
            pass
        lead.put_back(group)  # what the leader does when nothing was written
        assert list(lead.queue) == waiting
        assert not lead._queue_lock.locked()
        return interrupt.hit

    each_line(action)


def test_leaving_interrupted_at_any_line_lets_the_others_go_on() -> None:
    """Row 45: the lead is free or handed on; should nobody have been woken, a waiter that looks up takes it."""

    def action(interrupt: Interrupt) -> bool:
        lead = Leadership()
        leader = Request()
        lead.enter(leader)
        waiting = [queued(lead), queued(lead, exclusive=True)]
        try:
            with interrupt:
                lead.leave(leader)
        except KeyboardInterrupt:
            pass
        lead.leave(leader)
        assert lead.owner.get(LEAD) is not leader
        if LEAD not in lead.owner:
            lead.promote()  # what a waiter does when it looks up
        owner = lead.owner[LEAD]
        assert owner is waiting[0]
        assert waiting[0] not in lead.queue
        assert waiting[1] in lead.queue
        assert not lead._queue_lock.locked()
        return interrupt.hit

    each_line(action)


def test_waiter_that_nobody_woke_looks_up_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 45: a leader that was interrupted just where it would have woken somebody does not leave it asleep."""
    monkeypatch.setattr(module, "_LOOK_UP_SECONDS", 0.001)
    lead = Leadership()
    leader, request = Request(), Request()
    lead.enter(leader)
    led = []

    def wait() -> None:
        led.append(lead.enter(request))
        lead.leave(request)

    waiter = threading.Thread(target=wait)
    waiter.start()
    while request not in lead.queue:
        threading.Event().wait(0.0002)
    del lead.owner[LEAD]  # the leader is gone, and has told nobody
    waiter.join(60)
    assert led == [True]
    assert (lead.owner, list(lead.queue)) == ({}, [])
