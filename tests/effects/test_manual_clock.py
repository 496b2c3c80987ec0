"""The clock that tests drive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from pystate.effects.testing import ManualClock
from tests.effects.samples import T, seconds


def test_time_stands_still_until_it_is_moved() -> None:
    async def main() -> None:
        clock = ManualClock(T(0))
        sleeper = asyncio.ensure_future(clock.sleep(seconds(5)))
        await clock.advance(seconds(4.999999))
        assert not sleeper.done() and clock.sleepers == 1
        assert (clock.now(), clock.monotonic()) == (T(4.999999), 4.999999)
        await clock.advance(seconds(0.000001))
        assert sleeper.done() and clock.sleepers == 0
        assert clock.now() == T(5)

    asyncio.run(main())
    assert ManualClock().now() == datetime(2026, 1, 1, tzinfo=UTC)


def test_sleepers_wake_in_order_each_at_its_moment() -> None:
    async def main() -> None:
        clock = ManualClock(T(0))
        woken: list[tuple[str, float]] = []

        async def sleeper(name: str, *durations: float) -> None:
            for duration in durations:
                await clock.sleep(seconds(duration))
                woken.append((name, clock.monotonic()))

        tasks = [
            asyncio.ensure_future(sleeper(*arguments))
            for arguments in (("a", 3, 1), ("b", 1, 2, 2), ("c", 3), ("d", 0))
        ]
        await clock.advance(seconds(10))
        assert woken == [("d", 0), ("b", 1), ("a", 3), ("c", 3), ("b", 3), ("a", 4), ("b", 5)]
        assert clock.monotonic() == 10
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_a_clock_that_is_set_wakes_nobody() -> None:
    async def main() -> None:
        clock = ManualClock(T(0))
        sleeper = asyncio.ensure_future(clock.sleep(seconds(5)))
        await asyncio.sleep(0)
        clock.jump(seconds(100))
        clock.jump(seconds(-300))
        await clock.advance(seconds(4))
        assert not sleeper.done()
        assert (clock.now(), clock.monotonic()) == (T(-196), 4)
        await clock.drive(sleeper)

    asyncio.run(main())


def test_driving_takes_as_long_as_the_work_does() -> None:
    async def main() -> None:
        clock = ManualClock(T(0))

        async def work() -> str:
            await clock.sleep(seconds(3))
            await asyncio.to_thread(lambda: None)
            await clock.sleep(seconds(4))
            return "done"

        assert await clock.drive(work()) == "done"
        assert clock.monotonic() == 7

        async def fail() -> None:
            await clock.sleep(seconds(1))
            raise KeyError("x")

        with pytest.raises(KeyError):
            await clock.drive(fail())

    asyncio.run(main())


def test_sleepers_that_were_cancelled_are_forgotten() -> None:
    async def main() -> None:
        clock = ManualClock(T(0))
        sleeper = asyncio.ensure_future(clock.sleep(seconds(5)))
        await asyncio.sleep(0)
        sleeper.cancel()
        await asyncio.sleep(0)
        assert clock.sleepers == 0
        await clock.advance(seconds(10))

    asyncio.run(main())


def test_another_thread_may_let_time_pass() -> None:
    clock = ManualClock(T(0))
    asleep = threading.Event()

    async def main() -> float:
        sleeping = asyncio.ensure_future(clock.sleep(seconds(5)))
        await asyncio.sleep(0)
        asleep.set()
        await sleeping
        return clock.monotonic()

    results: list[float] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(main())))
    thread.start()
    assert asleep.wait(10)
    clock.pass_at_once(seconds(7))
    thread.join(10)
    assert results and results[0] in (5, 7)


def test_a_sleeper_whose_loop_is_closed_is_passed_over() -> None:
    clock = ManualClock(T(0))
    loop = asyncio.new_event_loop()
    sleep = clock.sleep(seconds(5))
    # By hand, as a task would leave it whose loop was closed under it.
    future = loop.run_until_complete(first_wait(sleep))
    loop.close()
    clock.pass_at_once(seconds(7))
    assert clock.monotonic() == 7
    assert not future.done()
    sleep.close()


async def first_wait(coroutine: Coroutine[Any, Any, None]) -> asyncio.Future[Any]:
    """Begin a coroutine, and return what it waits for first."""
    waited: asyncio.Future[Any] = coroutine.send(None)
    return waited


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="negative"):
        ManualClock().pass_at_once(seconds(-1))
    with pytest.raises(ValueError, match="time zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001
