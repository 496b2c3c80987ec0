"""The explorer of thread orders, on toys: every order is run, once; what is wrong in one of them is found and told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from pystate.engine import threads
from pystate.testing.interleavings import (
    DeadlockError,
    InterleavingError,
    Scenario,
    StepsExceededError,
    explore,
    replay,
    yield_point,
)


def lost_update() -> Scenario:
    """The classic race: two threads add one, without a lock."""
    number = [0]

    def increment() -> None:
        before = number[0]
        yield_point("between reading and writing")
        number[0] = before + 1

    def check() -> None:
        assert number == [2]

    return Scenario({"one": increment, "two": increment}, check)


def guarded_update() -> Scenario:
    """The same, done right."""
    number, lock = [0], threads.new_lock()

    def increment() -> None:
        with lock:
            before = number[0]
            yield_point("between reading and writing")
            number[0] = before + 1

    def check() -> None:
        assert number == [2]

    return Scenario({"one": increment, "two": increment}, check)


def opposite_locks() -> Scenario:
    """Two threads that take two locks, each in its own order."""
    left, right = threads.new_lock(), threads.new_lock()

    def take(first: object, second: object) -> Callable[[], None]:
        def both() -> None:
            with first, second:  # type: ignore[attr-defined]
                pass

        return both

    return Scenario({"one": take(left, right), "two": take(right, left)})


def test_race_without_a_lock_is_found_and_told_with_its_trace() -> None:
    """Row 106: the failure itself is the cause, and its line gives the same failure again."""
    with pytest.raises(InterleavingError) as caught:
        explore(lost_update)
    assert caught.value.orders <= 6
    assert isinstance(caught.value.__cause__, AssertionError)
    assert [step.thread for step in caught.value.trace][-2:] in (["one", "two"], ["two", "one"])
    assert "between reading and writing" in str(caught.value)
    assert repr(caught.value.line) in str(caught.value)
    with pytest.raises(InterleavingError) as again:
        replay(lost_update, caught.value.line)
    assert again.value.trace == caught.value.trace


def test_race_with_a_lock_is_no_race_in_any_order() -> None:
    """All orders, no bound."""
    explored = explore(guarded_update)
    assert explored.complete
    assert explored.orders > 50


def test_every_order_is_run_once() -> None:
    """Two threads with two yield points each, which make three pieces: six choose three orders."""
    orders: list[str] = []

    def program() -> Scenario:
        order: list[str] = []

        def run(name: str) -> Callable[[], None]:
            def three_pieces() -> None:
                for _ in range(2):
                    order.append(name)
                    yield_point()
                order.append(name)

            return three_pieces

        return Scenario({name: run(name) for name in "ab"}, lambda: orders.append("".join(order)))

    explored = explore(program)
    assert explored.complete
    assert sorted(orders) == sorted({"".join(order) for order in permutations("aaabbb")})
    orders.clear()
    assert explore(program, preemptions=0).complete
    assert sorted(orders) == ["aaabbb", "bbbaaa"]
    orders.clear()
    assert explore(program, preemptions=1).complete
    assert sorted(orders) == ["aaabbb", "aabbba", "abbbaa", "baaabb", "bbaaab", "bbbaaa"]


def test_budget_ends_the_search_and_is_told() -> None:
    """What was not run is not called complete."""
    assert explore(guarded_update, budget=7) == explore(guarded_update, budget=7)
    explored = explore(guarded_update, budget=7)
    assert (explored.orders, explored.complete) == (7, False)
    with pytest.raises(ValueError, match="budget"):
        explore(guarded_update, orders="random")


def test_random_orders_find_the_race_too_and_make_it_small() -> None:
    """The same seed finds the same; what is reported has no preemption that it does not need."""
    found = []
    for _ in range(2):
        with pytest.raises(InterleavingError) as caught:
            explore(lost_update, orders="random", budget=200, seed=5)
        found.append((caught.value.orders, caught.value.line))
    assert found[0] == found[1]
    assert len(found[0][1].split()) <= 2
    assert explore(guarded_update, orders="random", budget=200).orders == 200


def test_deadlock_is_told_with_who_waits_for_what() -> None:
    """The report names the threads, the locks by the line that made them, and the places."""
    with pytest.raises(InterleavingError) as caught:
        explore(opposite_locks)
    assert isinstance(caught.value.__cause__, DeadlockError)
    text = str(caught.value.__cause__)
    assert "one waits for left, right#2, which two has acquired" in text
    assert "two waits for left, right#1, which one has acquired" in text
    assert "with first, second" in text


def test_endless_threads_are_told() -> None:
    """Two threads that are polite to each other for ever."""

    def program() -> Scenario:
        def wait() -> None:
            while True:
                threads.back_off(0)

        return Scenario({"one": wait, "two": wait})

    with pytest.raises(InterleavingError) as caught:
        explore(program)
    assert isinstance(caught.value.__cause__, StepsExceededError)


def test_exception_of_a_thread_is_a_failure_whatever_it_is() -> None:
    """Also one that no `except Exception` sees."""
    for error in (KeyError("lost"), KeyboardInterrupt()):

        def program(error: BaseException = error) -> Scenario:
            def fail() -> None:
                raise error

            return Scenario({"one": fail})

        with pytest.raises(InterleavingError) as caught:
            explore(program)
        assert caught.value.__cause__ is error


def test_program_that_depends_on_more_than_the_order_is_refused() -> None:
    """Its second run in the same order is another one."""
    runs: list[int] = []

    def program() -> Scenario:
        runs.append(0)

        def run() -> None:
            for _ in range(5 - len(runs)):
                yield_point()

        return Scenario({"one": run, "two": run})

    with pytest.raises(RuntimeError, match="same order"):
        explore(program)


def test_lines_of_chosen_functions_are_yield_points() -> None:
    """For code without a lock; nothing else is."""
    number = [0]

    def increment() -> None:
        before = number[0]
        number[0] = before + 1

    def program(*lines: Callable[..., object]) -> Scenario:
        number[0] = 0

        def check() -> None:
            assert number == [2]

        return Scenario({"one": increment, "two": increment}, check, lines=lines)

    assert explore(program).orders == 2
    with pytest.raises(InterleavingError):
        explore(lambda: program(increment))
    with pytest.raises(InterleavingError) as caught:
        explore(lambda: program(len))
    assert isinstance(caught.value.__cause__, TypeError)


def test_wait_with_a_timeout_gives_up_when_it_is_told_to() -> None:
    """Last: when nothing else can run. Any: at any moment too. Never: what only a timeout ends is a deadlock."""
    outcomes: set[tuple[bool, ...]] = set()

    def program(*, held_for_ever: bool, timeouts: str) -> Scenario:
        lock, got = threads.new_lock(), [False]

        def hold() -> None:
            lock.acquire()
            yield_point()
            if not held_for_ever:
                lock.release()

        def wait() -> None:
            got[0] = lock.acquire(timeout=1.0)
            if got[0]:
                lock.release()

        return Scenario({"hold": hold, "wait": wait}, lambda: outcomes.add(tuple(got)), timeouts=timeouts)  # type: ignore[arg-type]

    explored = explore(lambda: program(held_for_ever=False, timeouts="last"))
    assert (outcomes, explored.timed_out) == ({(True,)}, 0)
    outcomes.clear()
    explore(lambda: program(held_for_ever=False, timeouts="any"))
    assert outcomes == {(True,), (False,)}
    outcomes.clear()
    explored = explore(lambda: program(held_for_ever=True, timeouts="last"), preemptions=0, budget=1)
    assert (outcomes, explored.timed_out) == ({(False,)}, 1)
    with pytest.raises(InterleavingError) as caught:
        explore(lambda: program(held_for_ever=True, timeouts="never"))
    assert isinstance(caught.value.__cause__, DeadlockError)


def test_threads_started_by_threads_are_explored_and_joined() -> None:
    """What the seam starts is one more thread to choose from."""
    orders: set[str] = set()

    def program() -> Scenario:
        order: list[str] = []

        def parent() -> None:
            child = threads.start_thread("child", lambda: order.append("child"))
            order.append("parent")
            yield_point()
            child.join()
            assert not child.is_alive()
            order.append("joined")

        return Scenario({"parent": parent}, lambda: orders.add(" ".join(order)))

    assert explore(program).complete
    assert orders == {"child parent joined", "parent child joined"}


def test_interrupt_arrives_in_any_wait_or_in_none() -> None:
    """In an acquire that waits, and in one that need not; never where a lock is let go."""
    outcomes: Counter[str] = Counter()

    def program() -> Scenario:
        lock, outcome = threads.new_lock(), ["none"]

        def hold() -> None:
            with lock:
                yield_point()

        def wait() -> None:
            try:
                for number in range(2):
                    outcome[0] = str(number)
                    with lock:
                        yield_point()
                outcome[0] = "none"
            except KeyboardInterrupt:
                pass

        def check() -> None:
            assert not lock.locked()
            outcomes[outcome[0]] += 1

        return Scenario({"hold": hold, "wait": wait}, check, interrupts={"wait": KeyboardInterrupt})

    explore(program, preemptions=2)
    assert set(outcomes) == {"0", "1", "none"}


def test_run_within_a_run_is_refused() -> None:
    """The seam can be replaced only once."""

    def program() -> Scenario:
        explore(guarded_update)
        return Scenario({})

    with pytest.raises(InterleavingError) as caught:
        explore(program)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert threads.new_lock.__module__ == "pystate.engine.threads"


def test_line_that_replays_nothing_is_refused() -> None:
    """Each item is a place and a choice, in order."""
    for line in ("x", "3", "3:", "5:1 2:1", "1:300"):
        with pytest.raises(ValueError, match="line"):
            replay(guarded_update, line)
    assert [step.thread for step in replay(guarded_update, "")] == ["one"] * 4 + ["two"] * 4 + ["main"]


def test_cleanup_is_called_however_a_run_ends(tmp_path: Path) -> None:
    """Also when no thread can go on: a directory for each run does not stay behind."""
    made: list[Path] = []

    def program() -> Scenario:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(directory)
        scenario = opposite_locks()
        return Scenario(scenario.threads, cleanup=directory.rmdir)

    with pytest.raises(InterleavingError):
        explore(program)
    assert made
    assert list(tmp_path.iterdir()) == []
