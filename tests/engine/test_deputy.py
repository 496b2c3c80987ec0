"""The thread that leads for event loops: whom it tells, what it survives, when it begins and ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pystate.engine import deputy as module
from pystate.engine import leadership as leadership_module
from pystate.engine import threads
from pystate.engine.deputy import Awaited, Deputy
from pystate.engine.leadership import Leadership, Request
from tests.engine.interrupts import Interrupt, at_each_place

PATIENCE = 20.0


@pytest.fixture(autouse=True)
def long_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody may depend on looking up, unless the test says so."""
    monkeypatch.setattr(leadership_module, "_LOOK_UP_SECONDS", 60.0)
    monkeypatch.setattr(module, "_LOOK_UP_SECONDS", 60.0)
    monkeypatch.setattr(module, "_IDLE_SECONDS", 60.0)
    yield


class FakeLoop:
    """A loop whose callbacks run at once, and are counted."""

    def __init__(self) -> None:
        self.calls = 0
        self.closed = False

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: object) -> None:
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.calls += 1
        callback(*args)


class Crew:
    """A deputy, what it has decided, and whom it has told.

    Attributes:
        decide: what a leader does with a group; by default it decides it.
    """

    def __init__(self) -> None:
        self.leadership = Leadership()
        self.groups: list[list[Request]] = []
        self.told: list[Request] = []
        self.loop = FakeLoop()
        self.decide: Callable[[list[Request]], None] = lambda _group: None
        self.deputy = Deputy(self.leadership, self.lead)

    def lead(self, group: list[Request]) -> None:
        assert self.leadership.lead.locked()
        self.decide(group)
        self.groups.append(list(group))
        for request in group:
            request.done = True

    def awaited(self, loop: FakeLoop | None = None) -> Awaited:
        request = Request()
        return Awaited(request, loop or self.loop, lambda: self.told.append(request))

    def take_on(self, *awaited: Awaited) -> list[Request]:
        for one in awaited:
            self.deputy.take_on(one)
        return [one.request for one in awaited]

    def threads(self) -> list[threading.Thread]:
        """Those that are alive, of any deputy."""
        return [thread for thread in threading.enumerate() if thread.name == "pystate-deputy"]


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.0005)


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.deputy.dismiss()
    assert crew.threads() == []
    assert not crew.leadership.lead.locked()


def test_deputy_decides_and_tells(crew: Crew) -> None:
    """One request after the other, without anybody else; its thread stays for the next one."""
    assert crew.threads() == []
    for number in range(1, 4):
        (request,) = crew.take_on(crew.awaited())
        wait_for(lambda: len(crew.told) == number)  # noqa: B023 - called at once
        assert crew.told[-1] is request
    assert len(crew.threads()) == 1
    assert crew.leadership.queue == crew.deputy._waiting == type(crew.deputy._waiting)()


def test_requests_that_queue_while_somebody_leads_are_one_group_and_each_loop_is_told_once(crew: Crew) -> None:
    """Telling a loop costs a system call, so it is done for all of its tasks together."""
    other = FakeLoop()
    awaited = [crew.awaited(other if number % 3 == 0 else None) for number in range(9)]
    with crew.leadership.lead:
        requests = crew.take_on(*awaited)
    crew.leadership.wake_first()
    wait_for(lambda: len(crew.told) == 9)
    assert crew.groups == [requests]
    assert (crew.loop.calls, other.calls) == (1, 1)


def test_requests_that_a_thread_decides_are_told_by_the_deputy(crew: Crew) -> None:
    """A thread that leads takes them into its group; it is not kept from its own work by telling loops."""
    own = Request()
    requests: list[Request] = []

    def arrive(group: list[Request]) -> None:
        if group[0] is own:
            requests.extend(crew.take_on(crew.awaited(), crew.awaited()))

    crew.decide = arrive
    crew.leadership.run(own, crew.lead)
    wait_for(lambda: crew.told == requests)
    assert crew.groups[0] == [own]


def test_request_decided_just_before_the_deputy_leads_is_told_before_the_next_group_is_written(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its task would wait for a second sync, of others."""
    may_lead = Leadership.may_lead
    told: list[list[Request]] = []

    def decided_meanwhile(self: Leadership, wakeup: threading.Lock) -> bool:
        if len(self.queue) == 2:
            self.queue.popleft().done = True  # by a thread whose group it was
        return may_lead(self, wakeup)

    monkeypatch.setattr(Leadership, "may_lead", decided_meanwhile)
    crew.decide = lambda _group: told.append(list(crew.told))
    first, second = crew.awaited(), crew.awaited()
    with crew.deputy._lock:  # so that it finds both
        for one in (first, second):
            crew.leadership.enqueue(one.request, crew.deputy._wakeup)
            crew.deputy._waiting.append(one)
        crew.deputy._thread = threads.start_thread("pystate-deputy", crew.deputy._work)
    wait_for(lambda: crew.told == [first.request, second.request])
    assert told == [[first.request]]
    assert crew.groups == [[second.request]]


def test_error_in_deciding_goes_to_the_first_and_the_others_are_tried_again(crew: Crew) -> None:
    """As if the first had led by itself: nobody waits for ever, and the thread goes on."""
    failing: list[BaseException] = [MemoryError("first"), KeyboardInterrupt("second")]

    def fail(_group: list[Request]) -> None:
        if failing:
            raise failing.pop(0)

    crew.decide = fail
    with crew.leadership.lead:
        first, second, third = crew.take_on(crew.awaited(), crew.awaited(), crew.awaited())
    crew.leadership.wake_first()
    wait_for(lambda: len(crew.told) == 3)
    assert [repr(request.error) for request in (first, second, third)] == [
        "MemoryError('first')", "KeyboardInterrupt('second')", "None",
    ]  # fmt: skip
    assert crew.groups == [[third]]


def test_loop_that_is_closed_is_not_told_and_disturbs_nobody(crew: Crew) -> None:
    """Its tasks are gone; the commit is made, and the tasks of other loops are told."""
    closed = FakeLoop()
    closed.closed = True
    with crew.leadership.lead:
        requests = crew.take_on(crew.awaited(closed), crew.awaited())
    crew.leadership.wake_first()
    wait_for(lambda: crew.told == requests[1:])
    assert requests[0].done


def test_request_withdrawn_in_time_is_not_decided_and_not_told(crew: Crew) -> None:
    """And one that was decided cannot be withdrawn."""
    with crew.leadership.lead:
        awaited = [crew.awaited() for _ in range(3)]
        requests = crew.take_on(*awaited)
        assert crew.deputy.withdraw(awaited[0])
        assert crew.deputy.withdraw(awaited[1])
        assert not crew.deputy.withdraw(awaited[1])
    crew.leadership.wake_first()
    wait_for(lambda: crew.told == [requests[2]])
    assert crew.groups == [[requests[2]]]
    assert not crew.deputy.withdraw(awaited[2])


def test_request_that_nobody_was_woken_for_is_seen_when_the_deputy_looks_up(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 45: a leader that was interrupted just where it would have woken the deputy."""
    monkeypatch.setattr(module, "_LOOK_UP_SECONDS", 0.01)
    (before,) = crew.take_on(crew.awaited())
    wait_for(lambda: crew.told == [before])
    with crew.leadership.lead:
        (queued,) = crew.take_on(crew.awaited())
    wait_for(lambda: queued in crew.told)  # although nobody has said that the lead is free
    with crew.leadership.lead:
        (decided,) = crew.take_on(crew.awaited())
        crew.leadership.queue.clear()
        decided.done = True
        wait_for(lambda: decided in crew.told)


def test_deputy_without_work_ends_and_begins_again(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep a forgotten store open for ever."""
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.005)
    for number in range(1, 4):
        crew.take_on(crew.awaited())
        wait_for(lambda: len(crew.told) == number)  # noqa: B023 - called at once
        wait_for(lambda: crew.threads() == [])
        assert crew.deputy._thread is None


def test_dismissed_deputy_decides_what_is_left_first(crew: Crew) -> None:
    """Closing: nobody who has queued is left waiting."""
    with crew.leadership.lead:
        requests = crew.take_on(crew.awaited(), crew.awaited())
    crew.deputy.dismiss()
    assert crew.told == requests
    assert crew.threads() == []
    crew.deputy.dismiss()  # twice is once


def test_dismissed_deputy_sleeps_while_another_thread_leads(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has to wait for that one, and takes no processor from it."""
    looks = []
    may_lead = Leadership.may_lead

    def count(self: Leadership, wakeup: threading.Lock) -> bool:
        looks.append(1)
        return may_lead(self, wakeup)

    monkeypatch.setattr(Leadership, "may_lead", count)
    with crew.leadership.lead:
        requests = crew.take_on(crew.awaited())
        closer = threading.Thread(target=crew.deputy.dismiss, daemon=True)
        closer.start()
        wait_for(lambda: crew.deputy._dismissed)
        time.sleep(0.05)
        assert len(looks) < 10
    crew.leadership.wake_first()
    closer.join(PATIENCE)
    assert not closer.is_alive()
    assert crew.told == requests


def test_request_that_comes_after_the_dismissal_is_decided_too(crew: Crew) -> None:
    """A task that has just looked whether the store is open; its commit is refused by whoever decides."""
    crew.deputy.dismiss()
    requests = crew.take_on(crew.awaited(), crew.awaited())
    wait_for(lambda: crew.told == requests)
    wait_for(lambda: crew.threads() == [])


def test_thread_that_cannot_be_started_is_told_and_tried_again(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller withdraws, and the next one starts it."""

    def refuse(_name: str, _target: Callable[[], None]) -> threading.Thread:
        raise RuntimeError("can't start new thread")

    awaited = crew.awaited()
    with monkeypatch.context() as patch:
        patch.setattr(threads, "start_thread", refuse)
        with pytest.raises(RuntimeError):
            crew.take_on(awaited)
    assert crew.deputy.withdraw(awaited)
    (request,) = crew.take_on(crew.awaited())
    wait_for(lambda: crew.told == [request])


def test_starting_interrupted_behind_the_start_leaves_one_deputy(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 45: the thread runs, and nobody has noted it; it does so itself, or a second one takes its place."""
    start = threads.start_thread

    def interrupted(name: str, target: Callable[[], None]) -> threading.Thread:
        start(name, target)
        raise KeyboardInterrupt

    for _ in range(20):
        awaited = crew.awaited()
        with monkeypatch.context() as patch:
            patch.setattr(threads, "start_thread", interrupted)
            with pytest.raises(KeyboardInterrupt):
                crew.take_on(awaited)
        crew.deputy.withdraw(awaited)
        (request,) = crew.take_on(crew.awaited())
        wait_for(lambda: request in crew.told)  # noqa: B023 - called at once
        wait_for(lambda: len(crew.threads()) == 1)
        crew.deputy.dismiss()
        crew.deputy._dismissed = False
        assert crew.threads() == []


@pytest.mark.parametrize("started", [False, True], ids=["first", "later"])
def test_taking_on_interrupted_at_any_place_leaves_nobody_waiting(
    started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 45: the interrupted task is decided or withdrawn, and those of others are decided and told."""
    monkeypatch.setattr(leadership_module, "_LOOK_UP_SECONDS", 0.002)
    monkeypatch.setattr(module, "_LOOK_UP_SECONDS", 0.002)

    def action(interrupt: Interrupt) -> None:
        crew = Crew()
        if started:
            crew.take_on(crew.awaited())
        own, other = crew.awaited(), crew.awaited()
        try:
            with interrupt:
                crew.deputy.take_on(own)
                crew.deputy.withdraw(own)
        except KeyboardInterrupt:
            pass
        crew.deputy.withdraw(own)
        crew.take_on(other)
        wait_for(lambda: other.request in crew.told)
        crew.deputy.dismiss()
        assert not crew.leadership.queue
        assert not crew.deputy._waiting
        assert not crew.deputy._lock.locked()
        decided = [id(request) for group in crew.groups for request in group]
        assert len(decided) == len(set(decided))

    assert at_each_place(action, module, leadership_module) > 8
    wait_for(lambda: Crew().threads() == [])


def test_ending_from_its_own_thread_does_not_wait_for_itself(crew: Crew) -> None:
    """A finaliser that closes the store may run in any thread."""
    crew.decide = lambda _group: crew.deputy.dismiss()
    (request,) = crew.take_on(crew.awaited())
    wait_for(lambda: crew.told == [request])
    wait_for(lambda: crew.threads() == [])
