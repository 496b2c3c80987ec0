"""The queue of commits and the lead, step by step, with real threads, and interrupted at every place."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from pystate.engine import leadership as module
from pystate.engine.leadership import Leadership, Request
from tests.engine.crowds import CrowdedLead, arrive_in_threads, pretend_to_wait, woken
from tests.engine.interrupts import Interrupt, at_each_place


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Waiters that nobody wakes look up soon, so that a test which depends on it does not take long."""
    monkeypatch.setattr(module, "_LOOK_UP_SECONDS", 0.002)
    yield


class Decided:
    """What leaders have decided: it counts, and checks that nobody else leads meanwhile."""

    def __init__(self, lead: Leadership) -> None:
        self.lead = lead
        self.groups: list[list[Request]] = []
        self.inside = 0
        self.problems: list[str] = []

    def __call__(self, group: list[Request]) -> None:
        self.inside += 1
        if self.inside > 1 or not self.lead.lead.locked():
            self.problems.append("two lead at once, or one leads without the lead")
        if any(request.exclusive for request in group) and len(group) > 1:
            self.problems.append("an exclusive request in a group")
        self.groups.append(list(group))
        for request in group:
            if request.done:
                self.problems.append("a request is decided twice")
            request.done = True
        self.inside -= 1

    @property
    def requests(self) -> list[Request]:
        return [request for group in self.groups for request in group]


def at_rest(lead: Leadership) -> bool:
    return not lead.lead.locked() and not lead.queue and not lead._queue_lock.locked()


@pytest.mark.parametrize("exclusive", [False, True])
def test_first_leads_and_leaves(exclusive: bool) -> None:
    """Who finds nobody leading leads at once."""
    lead = Leadership()
    decided = Decided(lead)
    requests = [Request(exclusive=exclusive) for _ in range(3)]
    for request in requests:
        lead.run(request, decided)
    assert decided.groups == [[request] for request in requests]
    assert decided.problems == []
    assert at_rest(lead)


def test_group_is_the_leader_and_the_queue_up_to_the_first_exclusive_request() -> None:
    """An exclusive request is never part of a group, and nothing passes it."""
    lead = Leadership()
    decided = Decided(lead)
    own, first, second = Request(), Request(), Request()
    alone, last = Request(exclusive=True), Request()
    CrowdedLead(lead, lambda: pretend_to_wait(lead, first, second, alone, last))
    lead.run(own, decided)
    assert decided.groups == [[own, first, second]]
    assert list(lead.queue) == [alone, last]
    assert [woken(request) for request in (first, second, alone, last)] == [True, True, True, False]


def test_exclusive_request_leads_alone() -> None:
    """Whatever has queued behind it waits."""
    lead = Leadership()
    decided = Decided(lead)
    own, other = Request(exclusive=True), Request()
    CrowdedLead(lead, lambda: pretend_to_wait(lead, other))
    lead.run(own, decided)
    assert decided.groups == [[own]]
    assert list(lead.queue) == [other]
    assert woken(other)


def test_requests_not_decided_stand_in_front_again_in_their_order() -> None:
    """A leader that was interrupted before it wrote anything goes away, and has changed nothing for the others."""
    lead = Leadership()
    own, first, second, third = Request(), Request(), Request(), Request()
    CrowdedLead(lead, lambda: pretend_to_wait(lead, first, second))

    def interrupted(group: list[Request]) -> None:
        pretend_to_wait(lead, third)
        first.done = True
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lead.run(own, interrupted)
    assert list(lead.queue) == [second, third]
    assert (woken(first), woken(second), woken(third)) == (True, True, False)
    assert not lead.lead.locked()


def test_requests_of_many_threads_are_each_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: no request is forgotten or decided twice; one thread at a time leads; nobody depends on looking up."""
    monkeypatch.setattr(module, "_LOOK_UP_SECONDS", 30.0)
    lead = Leadership()
    decided = Decided(lead)

    def work(each: int) -> None:
        for number in range(150):
            lead.run(Request(exclusive=number % each == 0), decided)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [threading.Thread(target=work, args=(3 + number,), daemon=True) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(20)
    finally:
        sys.setswitchinterval(interval)
    assert not any(worker.is_alive() for worker in workers)
    assert decided.problems == []
    assert len(decided.requests) == len(set(map(id, decided.requests))) == 8 * 150
    assert at_rest(lead)


def test_queue_is_served_in_the_order_of_coming() -> None:
    """First come, first served, groups and exclusive requests alike."""
    lead = Leadership()
    decided = Decided(lead)
    requests = [Request(exclusive=number in (2, 5, 6)) for number in range(9)]
    threads: list[threading.Thread] = []

    def arrive() -> None:
        work = [partial(lead.run, request, decided) for request in requests]
        threads.extend(arrive_in_threads(lead, work))

    CrowdedLead(lead, arrive)
    own = Request(exclusive=True)
    lead.run(own, decided)
    for thread in threads:
        thread.join(20)
    assert decided.requests == [own, *requests]
    assert [len(group) for group in decided.groups] == [1, 2, 1, 2, 1, 1, 2]
    assert decided.problems == []
    assert at_rest(lead)


@pytest.mark.parametrize("exclusive", [False, True], ids=["group", "alone"])
def test_leading_interrupted_at_any_place_lets_the_others_go_on(exclusive: bool) -> None:
    """Row 45: the lead is free, nobody is forgotten, nobody is decided twice, and no ghost stays in the queue."""

    def action(interrupt: Interrupt) -> None:
        lead = Leadership()
        decided = Decided(lead)
        others = [Request(), Request(), Request(exclusive=True), Request()]
        threads: list[threading.Thread] = []

        def arrive() -> None:
            work = [partial(lead.run, request, decided) for request in others]
            threads.extend(arrive_in_threads(lead, work))

        CrowdedLead(lead, arrive)
        own = Request(exclusive=exclusive)
        try:
            with interrupt:
                lead.run(own, decided)
        except KeyboardInterrupt:
            pass
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
        assert decided.problems == []
        if threads:
            assert sorted(map(id, decided.requests)) == sorted(map(id, [*others, *([own] if own.done else [])]))
        assert at_rest(lead)
        lead.run(Request(), decided)

    assert at_each_place(action, module) > 10


def test_waiting_interrupted_at_any_place_leaves_no_ghost() -> None:
    """Row 45: a waiter that is interrupted withdraws, or has been decided; nobody else notices."""

    def action(interrupt: Interrupt) -> None:
        lead = Leadership()
        decided = Decided(lead)
        own, before, behind = Request(), Request(), Request()
        entered, over = threading.Event(), threading.Event()

        def hold(group: list[Request]) -> None:
            entered.set()
            while own not in lead.queue and not over.is_set():
                over.wait(0.0001)
            decided(group)

        first = threading.Thread(target=lead.run, args=(before, hold), daemon=True)
        first.start()
        entered.wait(10)
        try:
            with interrupt:
                lead.run(own, decided)
        except KeyboardInterrupt:
            pass
        finally:
            over.set()
        first.join(10)
        assert not first.is_alive()
        assert own not in lead.queue
        lead.run(behind, decided)
        assert decided.problems == []
        assert sorted(map(id, decided.requests)) == sorted(map(id, [before, behind, *([own] if own.done else [])]))
        assert at_rest(lead)

    assert at_each_place(action, module) > 8


def test_waiter_that_nobody_woke_looks_up_by_itself() -> None:
    """Row 45: a leader that was interrupted just where it would have woken somebody does not leave it asleep."""
    lead = Leadership()
    decided = Decided(lead)
    request = Request()
    lead.lead.acquire()
    waiter = threading.Thread(target=lead.run, args=(request, decided), daemon=True)
    waiter.start()
    while request not in lead.queue:
        threading.Event().wait(0.0002)
    lead.lead.release()  # and nobody is told
    waiter.join(10)
    assert decided.groups == [[request]]
    assert at_rest(lead)


def test_lead_taken_directly_is_respected_and_the_first_is_woken_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the commit of a single operation does: it takes the lead by itself, and wakes whoever queued meanwhile."""
    monkeypatch.setattr(module, "_LOOK_UP_SECONDS", 30.0)
    lead = Leadership()
    decided = Decided(lead)
    request = Request()
    with lead.lead:
        (waiter,) = arrive_in_threads(lead, [lambda: lead.run(request, decided)])
        assert decided.groups == []
    lead.wake_first()
    waiter.join(10)
    assert decided.groups == [[request]]
    lead.wake_first()  # with nobody there
    assert at_rest(lead)


def test_at_once_means_that_nobody_leads_and_nobody_waits() -> None:
    """For those who must not wait: they lead for themselves alone, or nothing happens."""
    lead = Leadership()
    decided = Decided(lead)
    first, second, other = Request(), Request(), Request()
    assert lead.run_at_once(first, decided)
    with lead.lead:
        assert not lead.run_at_once(second, decided)
    pretend_to_wait(lead, other)
    assert not lead.run_at_once(second, decided)
    assert decided.groups == [[first]]
    assert decided.problems == []
    assert list(lead.queue) == [other]
    assert not lead.lead.locked()


def test_at_once_the_leader_may_decline() -> None:
    """Then nothing has been done, and the lead is free."""
    lead = Leadership()
    request = Request()
    assert not lead.run_at_once(request, lambda _group: None)
    assert at_rest(lead)
    with pytest.raises(ZeroDivisionError):
        lead.run_at_once(request, lambda _group: [][1 // 0])
    assert at_rest(lead)


def test_at_once_wakes_the_first_that_queued_meanwhile() -> None:
    """As every leader does."""
    lead = Leadership()
    waits, last = Request(), Request()

    def decide(group: list[Request]) -> None:
        pretend_to_wait(lead, waits, last)
        group[0].done = True

    assert lead.run_at_once(Request(), decide)
    assert (woken(waits), woken(last)) == (True, False)


@pytest.mark.parametrize("declines", [False, True])
def test_at_once_interrupted_at_any_place_loses_no_lead(declines: bool) -> None:
    """Row 45: it does not take the lead by `with`, and yet gives it back."""

    def action(interrupt: Interrupt) -> None:
        lead = Leadership()
        decided = Decided(lead)
        request = Request()
        try:
            with interrupt:
                done = lead.run_at_once(request, (lambda _group: None) if declines else decided)
                assert done is not declines
        except KeyboardInterrupt:
            pass
        assert at_rest(lead)
        assert decided.problems == []
        assert decided.requests == ([request] if request.done else [])

    assert at_each_place(action, module) > 2


def test_leading_for_the_first_takes_no_exclusive_request() -> None:
    """Whoever asked for that leads alone, by itself."""
    lead = Leadership()
    decided = Decided(lead)
    lead.lead_for_first(decided)
    first, second, alone, last = Request(), Request(), Request(exclusive=True), Request()
    pretend_to_wait(lead, first, second, alone, last)
    lead.lead_for_first(decided)
    assert decided.groups == [[first, second]]
    assert [woken(request) for request in (first, second, alone, last)] == [True, True, True, False]
    lead.lead_for_first(decided)
    assert decided.groups == [[first, second]]
    assert list(lead.queue) == [alone, last]


def test_leading_for_the_first_puts_back_all_that_is_undone() -> None:
    """The leader has no request of its own that would go away with it."""
    lead = Leadership()
    first, second = Request(), Request()
    pretend_to_wait(lead, first, second)

    def interrupted(_group: list[Request]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lead.lead_for_first(interrupted)
    assert list(lead.queue) == [first, second]
    assert (woken(first), woken(second)) == (True, False)


def test_request_that_no_thread_waits_for_wakes_its_deputy() -> None:
    """When it is first and nobody leads; a leader would see to it when it leaves."""
    lead = Leadership()
    wakeup = threading.Lock()
    wakeup.acquire()
    with lead.lead:
        lead.enqueue(Request(), wakeup)
        assert wakeup.locked()
        assert not lead.may_lead(wakeup)
    assert lead.may_lead(wakeup)
    lead.enqueue(Request(), wakeup)
    assert not wakeup.locked()
    behind = threading.Lock()
    behind.acquire()
    lead.enqueue(Request(), behind)
    assert behind.locked()
    assert not lead.may_lead(behind)


def test_withdrawing_tells_whether_it_was_in_time() -> None:
    """A request that a leader has taken is decided."""
    lead = Leadership()
    first, second = Request(), Request()
    pretend_to_wait(lead, first, second)
    assert lead.withdraw(first)
    assert woken(second)
    assert not lead.withdraw(first)
    assert list(lead.queue) == [second]


class _TakenMeanwhile:
    """A wakeup that another thread has released between a look and a release."""

    def locked(self) -> bool:
        return True

    def release(self) -> None:
        raise RuntimeError("release unlocked lock")


def test_deputy_woken_by_two_at_once_disturbs_neither() -> None:
    """Its wakeup is shared by all of its requests, which several leaders may have decided."""
    module.wake(_TakenMeanwhile())  # type: ignore[arg-type]
