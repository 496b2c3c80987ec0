"""Awaited commits in every order of loops, threads and the deputy: shared groups, cancelling, closing, interrupts.

What must hold is what holds for threads (tests/testing/test_engine_interleavings.py), and two things more: a loop never
syncs and never waits for whoever does, and a task that is cancelled knows what has become of its commit.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Literal

import pytest

import pystate
from pystate import ClosedError, Transaction
from pystate.engine import commit, deputy, threads
from pystate.engine.deputy import Awaited, Deputy
from pystate.engine.leadership import Leadership, Request
from pystate.testing import InterleavingError, Level, Scenario, SimulatedDisk, YieldingFiles, crash_here, explore
from pystate.testing.crash import CrashState
from tests.engine.loops import in_loop, run_explored
from tests.engine.memory_files import MemoryFiles
from tests.engine.watched_files import WatchedFiles

PLACE = "/store"
OLD = {b"a": b"0"}

#: What shares data without a lock, or hands the lead on: every line of it is a yield point where this is used.
LINES = (Leadership.run_at_once, Leadership.enqueue, Leadership.lead_for_first, Deputy.take_on, Deputy._work)

Body = Callable[[], Coroutine[Any, Any, object]]


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Who backs off takes a turn: with a random time, two runs in the same order would differ."""
    monkeypatch.setattr(threads, "back_off_seconds", lambda _attempt: 0)
    yield


def image() -> dict[str, bytes]:
    """The files of a store with one entry."""
    files = MemoryFiles()
    with pystate.open(PLACE, files=files) as store:
        store.family("default").update(OLD)
    return files.image(PLACE)


IMAGE = image()


class Disk:
    """A store on a disk in memory, of which it is noted when a loop is made to wait for it."""

    def __init__(self, durability: pystate.engine.store.Durability = "sync") -> None:
        self.memory = MemoryFiles().restore(PLACE, IMAGE)
        self.files = WatchedFiles(self.memory)
        self.blocked: list[str] = []
        self.store = pystate.open(PLACE, files=YieldingFiles(self.files), durability=durability)
        self.family = self.store.family("default")
        self.family.get(b"a")
        self.files.before = self._look
        self.found: dict[bytes, bytes] = {}
        self.groups = 0

    def _look(self, operation: str, _path: str) -> None:
        if operation.startswith("sync") and in_loop():
            self.blocked.append(operation)

    def entries(self) -> dict[bytes, bytes]:
        """What stands on the disk, by opening it without looking at the store that wrote it."""
        copy = MemoryFiles().restore(PLACE, self.memory.image(PLACE))
        with pystate.open(PLACE, files=copy) as store:
            return dict(store.family("default").items())

    def finish(self) -> None:
        """The store and the disk agree, nothing is kept for anybody, no loop was blocked; then it is closed."""
        self.files.before = None  # by a thread or by a loop, as it happens
        assert self.blocked == [], "a sync blocks the event loop"
        self.found = self.entries()
        assert self.found == dict(self.family.items())
        self.store.view().close()
        stats = self.store.stats()
        assert (stats.views, stats.history_bytes) == (0, 0)
        self.groups = stats.groups
        self.store.close()

    def scenario(
        self,
        running: Mapping[str, Callable[[], object]],
        check: Callable[[], object],
        *,
        lines: bool = False,
        timeouts: Literal["never", "any"] = "never",
    ) -> Scenario:
        """Let these run, the last of them `finish`, which ends the deputy, and then check.

        A commit that only goes on because somebody looks up twice a second has been forgotten, so timeouts never come.
        """
        left = list(running)

        def last_finishes(run: Callable[[], object]) -> Callable[[], None]:
            def runs() -> None:
                run()
                left.pop()
                if not left:
                    self.finish()

            return runs

        threads_ = {name: last_finishes(run) for name, run in running.items()}
        return Scenario(threads_, check, timeouts=timeouts, lines=LINES if lines else ())


def put(key: bytes) -> Callable[[Transaction], None]:
    return lambda txn: txn.put("default", key, key)


def tasks(*bodies: Body) -> Callable[[], None]:
    """A thread that runs these as tasks of one event loop."""

    async def main() -> None:
        await asyncio.gather(*[body() for body in bodies])

    return lambda: run_explored(main())


def awaited(disk: Disk, key: bytes, **options: Any) -> Body:
    """A task that commits a key of its own, and looks whether that is done when it goes on."""

    async def body() -> None:
        await disk.store.transact_async(put(key), **options)
        assert disk.family.get(key) == key, "acknowledged and not visible"
        stats = disk.store.stats()
        if disk.store.durability == "sync" or options.get("durability") == "sync":
            assert stats.durable_sequence >= stats.sequence, "acknowledged and not durable"

    return body


# ---- group commit ---------------------------------------------------------------------------------------------------


def committers(
    groups: Counter[int], in_threads: int, *in_loops: int, lines: bool = False, durability: Any = "sync"
) -> Scenario:
    """Threads that commit, and loops with tasks that commit, a key of its own each."""
    disk = Disk(durability)
    keys = [b"t%d" % number for number in range(in_threads)]
    running: dict[str, Callable[[], object]] = {
        f"thread {key.decode()}": lambda key=key: disk.store.transact(put(key))  # type: ignore[misc]
        for key in keys
    }
    for number, count in enumerate(in_loops):
        own = [b"l%d.%d" % (number, task) for task in range(count)]
        running[f"loop {number}"] = tasks(*[awaited(disk, key) for key in own])
        keys += own

    def check() -> None:
        groups[disk.groups] += 1
        assert disk.found == OLD | {key: key for key in keys}

    return disk.scenario(running, check, lines=lines)


def test_task_beside_a_thread_loses_nothing() -> None:
    """Guarantees 1, 2, 4: acknowledged is durable and visible, whoever leads."""
    groups: Counter[int] = Counter()
    assert explore(lambda: committers(groups, 1, 1), preemptions=1).complete
    explore(lambda: committers(groups, 1, 1), preemptions=2, budget=700)
    assert set(groups) == {1, 2}


def test_tasks_and_threads_share_groups() -> None:
    """Those that queue while somebody writes are written together, whether a thread or the deputy leads."""
    groups: Counter[int] = Counter()
    explore(lambda: committers(groups, 0, 3), preemptions=2, budget=300)
    explore(lambda: committers(groups, 2, 2), preemptions=2, budget=300)
    explore(lambda: committers(groups, 2, 3), orders="random", budget=150)
    assert {1, 2, 3} <= set(groups)


def test_loops_of_several_threads_use_one_store() -> None:
    """Each loop is told of its own tasks, by one deputy."""
    groups: Counter[int] = Counter()
    explore(lambda: committers(groups, 0, 1, 1), preemptions=2, budget=400)
    explore(lambda: committers(groups, 1, 2, 1), orders="random", budget=150)
    assert len(groups) > 1


def test_nobody_is_forgotten_whatever_comes_between_two_lines() -> None:
    """The queue, the lead and the deputy that is just being started, in steps of one line."""
    groups: Counter[int] = Counter()
    explore(lambda: committers(groups, 1, 1, lines=True), preemptions=2, budget=400)
    explore(lambda: committers(groups, 1, 1, 1, lines=True), orders="random", budget=150)


def one_after_the_other() -> Scenario:
    """A task that commits twice, and a deputy whose patience may be at an end at any moment."""
    disk = Disk()

    async def twice() -> None:
        await awaited(disk, b"1")()
        await awaited(disk, b"2")()

    def check() -> None:
        assert disk.found == OLD | {key: key for key in (b"1", b"2", b"t")}

    running = {"loop": tasks(twice), "thread": lambda: disk.store.transact(put(b"t"))}
    return disk.scenario(running, check, timeouts="any")


def test_deputy_that_has_nothing_to_do_ends_and_is_started_again() -> None:
    """Whoever comes just when it ends starts another one."""
    explore(one_after_the_other, preemptions=2, budget=500)
    explore(one_after_the_other, orders="random", budget=150)


def test_commit_without_sync_is_made_at_once_or_queued() -> None:
    """`process`: whether the lead is free or not, and whoever has it, a thread with a sync for example."""
    outcomes: Counter[int] = Counter()

    def program() -> Scenario:
        disk = Disk("process")

        def sync() -> None:
            disk.store.transact(put(b"s"), durability="sync")

        def check() -> None:
            outcomes[disk.groups] += 1
            assert disk.found == OLD | {key: key for key in (b"s", b"1", b"2", b"3")}

        loop = tasks(awaited(disk, b"1"), awaited(disk, b"2"), awaited(disk, b"3", durability="sync"))
        return disk.scenario({"thread": sync, "loop": loop}, check, lines=True)

    explore(program, preemptions=2, budget=300)
    explore(program, orders="random", budget=60)
    assert len(outcomes) > 1


def test_loop_goes_on_while_somebody_syncs() -> None:
    """The sync of a thread, or of the deputy, lasts until the loop has had its turns: or nobody can go on."""

    def program(durability: pystate.engine.store.Durability) -> Scenario:
        disk = Disk("process")
        disk.store.transact(put(b"0"))  # from here on, a commit may be made at once
        turns = threads.new_event()
        look = disk.files.before
        assert look is not None

        def wait(operation: str, path: str) -> None:
            look(operation, path)
            if operation == "sync" and not in_loop():
                turns.wait()

        disk.files.before = wait

        async def main() -> None:
            commit = asyncio.ensure_future(awaited(disk, b"1", durability=durability)())
            for _ in range(5):
                await asyncio.sleep(0)
            turns.set()
            await commit

        def check() -> None:
            assert disk.found == OLD | {key: key for key in (b"0", b"1", b"s")}

        def sync() -> None:
            disk.store.transact(put(b"s"), durability="sync")

        return disk.scenario({"thread": sync, "loop": lambda: run_explored(main())}, check, lines=True)

    for durability in ("sync", "process"):
        explore(lambda: program(durability), preemptions=2, budget=150)  # noqa: B023 - called at once


def test_power_cut_at_any_moment_takes_nothing_that_was_acknowledged() -> None:
    """Row 2, for tasks beside a thread: durable before it is acknowledged."""
    survived: Counter[int] = Counter()

    def program() -> Scenario:
        device = SimulatedDisk()
        store = pystate.open(PLACE, files=YieldingFiles(device))
        acknowledged: set[bytes] = set()
        left: list[tuple[set[bytes], CrashState]] = []

        def task(key: bytes) -> Body:
            async def body() -> None:
                await store.transact_async(put(key))
                acknowledged.add(key)

            return body

        def thread() -> None:
            store.transact(put(b"t"))
            acknowledged.add(b"t")

        def cut_power() -> None:
            left.append((set(acknowledged), next(iter(crash_here(device, level=Level.NOTHING_UNSYNCED)))))

        def check() -> None:
            ((promised, state),) = left
            with pystate.open(PLACE, files=state.open_disk()) as recovered:
                found = set(recovered.family("default"))
            assert promised <= found <= {b"t", b"1", b"2"}
            survived[len(promised)] += 1
            store.close()

        return Scenario({"loop": tasks(task(b"1"), task(b"2")), "thread": thread, "power": cut_power}, check)

    explore(program, preemptions=1, budget=400)
    explore(program, orders="random", budget=150)
    assert set(survived) == {0, 1, 2, 3}


def test_increments_of_tasks_and_threads_have_the_exact_sum() -> None:
    """Row 67: who conflicts is run again, in its own loop or thread."""
    runs: Counter[int] = Counter()

    def program() -> Scenario:
        disk = Disk()
        ran = [0]

        def increment(txn: Transaction) -> int:
            ran[0] += 1
            value = int(txn.get("default", b"a") or b"0") + 1
            txn.put("default", b"a", b"%d" % value)
            return value

        async def task() -> None:
            assert 1 <= await disk.store.transact_async(increment) <= 3

        def check() -> None:
            assert disk.found == {b"a": b"3"}
            runs[ran[0]] += 1

        return disk.scenario({"loop": tasks(task, task), "thread": lambda: disk.store.transact(increment)}, check)

    explore(program, preemptions=2, budget=300)
    explore(program, orders="random", budget=100)
    assert len(runs) > 1


# ---- cancelling -----------------------------------------------------------------------------------------------------


def cancelled_at_any_moment(outcomes: Counter[str], *, durability: Any = "sync", lines: bool = False) -> Scenario:
    """A task that another thread cancels, beside another task and a thread."""
    disk = Disk(durability)
    ready = threads.new_event()
    handles: list[Callable[[], object]] = []
    outcome: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(awaited(disk, b"c")())
        handles.append(lambda: loop.call_soon_threadsafe(task.cancel))
        ready.set()
        other = asyncio.ensure_future(awaited(disk, b"o")())
        try:
            await task
            outcome.append("done, there")
        except asyncio.CancelledError:
            outcome.append(f"cancelled, {'there' if b'c' in disk.family else 'not there'}")
        await other

    def cancel() -> None:
        ready.wait()
        try:
            handles[0]()
        except RuntimeError:
            pass  # the loop is closed already

    def check() -> None:
        assert outcome[0].endswith("not there" if b"c" not in disk.found else ", there"), "it was not settled"
        assert disk.found.keys() - {b"c"} == {b"a", b"o", b"t"}
        outcomes[outcome[0]] += 1

    running = {
        "loop": lambda: run_explored(main()),
        "cancel": cancel,
        "thread": lambda: disk.store.transact(put(b"t")),
    }
    return disk.scenario(running, check, lines=lines)


def test_task_cancelled_at_any_moment_knows_what_has_become_of_its_commit() -> None:
    """The commit finishes or never begins, and which of the two is settled when the task goes on."""
    outcomes: Counter[str] = Counter()
    explore(lambda: cancelled_at_any_moment(outcomes), preemptions=2, budget=900)
    explore(lambda: cancelled_at_any_moment(outcomes), orders="random", budget=300)
    assert set(outcomes) == {"done, there", "cancelled, there", "cancelled, not there"}


def test_task_cancelled_between_two_lines_knows_what_has_become_of_its_commit() -> None:
    """The same in steps of one line, and with commits that are made at once."""
    outcomes: Counter[str] = Counter()
    explore(lambda: cancelled_at_any_moment(outcomes, lines=True), orders="random", budget=200)
    explore(lambda: cancelled_at_any_moment(outcomes, durability="process", lines=True), orders="random", budget=200)
    assert {"done, there", "cancelled, not there"} <= set(outcomes)


def test_task_cancelled_again_and_again_holds_nobody_up() -> None:
    """Each cancellation is answered by the one CancelledError, when the outcome is settled."""
    outcomes: Counter[str] = Counter()

    def program() -> Scenario:
        disk = Disk()
        outcome: list[str] = []

        async def main() -> None:
            task = asyncio.ensure_future(disk.store.transact_async(put(b"c")))
            for _ in range(6):
                await asyncio.sleep(0)
                task.cancel()
            try:
                await task
                outcome.append("done, there")
            except asyncio.CancelledError:
                outcome.append(f"cancelled, {'there' if b'c' in disk.family else 'not there'}")

        def check() -> None:
            assert outcome[0].endswith("not there" if b"c" not in disk.found else ", there")
            outcomes[outcome[0]] += 1

        running = {"loop": lambda: run_explored(main()), "thread": lambda: disk.store.transact(put(b"t"))}
        return disk.scenario(running, check)

    explore(program, preemptions=2, budget=300)
    explore(program, orders="random", budget=100)
    assert "cancelled, not there" in outcomes


# ---- closing --------------------------------------------------------------------------------------------------------


def closed_at_any_moment(outcomes: Counter[tuple[str, ...]], durability: Any, *, lines: bool = False) -> Scenario:
    """Two tasks and a thread that commit while another thread closes the store."""
    disk = Disk(durability)
    outcome: list[str] = []

    def task(key: bytes) -> Body:
        async def body() -> None:
            try:
                await disk.store.transact_async(put(key))
                outcome.append(key.decode())
            except ClosedError:
                pass

        return body

    def thread() -> None:
        try:
            disk.store.transact(put(b"t"))
            outcome.append("t")
        except ClosedError:
            pass

    def check() -> None:
        found = disk.entries()
        assert sorted(found.keys() - OLD.keys()) == sorted(key.encode() for key in outcome)
        assert pystate.verify(PLACE, files=disk.memory).clean
        assert not disk.memory.locks
        outcomes[tuple(sorted(outcome))] += 1

    running = {"loop": tasks(task(b"1"), task(b"2")), "thread": thread, "close": disk.store.close}
    return Scenario(running, check, timeouts="never", lines=LINES if lines else ())


@pytest.mark.parametrize("durability", ["sync", "process"])
def test_awaited_commit_beside_close_is_durable_or_refused(durability: str) -> None:
    """Row 75: acknowledged means there after reopening, ClosedError means not there; and nobody hangs."""
    outcomes: Counter[tuple[str, ...]] = Counter()
    explore(lambda: closed_at_any_moment(outcomes, durability), preemptions=2, budget=500)
    explore(lambda: closed_at_any_moment(outcomes, durability, lines=True), orders="random", budget=200)
    assert {(), ("1", "2", "t")} <= set(outcomes)


def test_close_by_a_task_beside_commits_of_others() -> None:
    """The loop is blocked meanwhile, and yet every commit is decided: nobody needs the loop for that."""
    outcomes: Counter[int] = Counter()

    def program() -> Scenario:
        disk = Disk()
        disk.files.before = None  # closing syncs, here in a loop
        outcome: list[bytes] = []

        def task(key: bytes) -> Body:
            async def body() -> None:
                try:
                    await disk.store.transact_async(put(key))
                    outcome.append(key)
                except ClosedError:
                    pass

            return body

        async def close() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            disk.store.close()

        def check() -> None:
            assert disk.entries().keys() == OLD.keys() | set(outcome)
            outcomes[len(outcome)] += 1

        running = {"loop": tasks(task(b"1"), task(b"2"), close), "other loop": tasks(task(b"3"))}
        return Scenario(running, check, timeouts="never")

    explore(program, preemptions=2, budget=300)
    assert len(outcomes) > 1


# ---- interrupts -----------------------------------------------------------------------------------------------------


def interrupted_loop(outcomes: Counter[str], *, durability: Any = "sync") -> Scenario:
    """A loop whose thread is interrupted in one of its waits, beside another loop and a thread."""
    disk = Disk(durability)
    outcome: list[str] = []

    def interrupted() -> None:
        try:
            tasks(awaited(disk, b"1"), awaited(disk, b"2"))()
            outcome.append("done")
        except KeyboardInterrupt:
            outcome.append("interrupted")
        outcome.append(f"{len(disk.family._family.values.keys() & {b'1', b'2'})} there")

    def check() -> None:
        disk.store.transact(put(b"last"))  # the lead is free, whatever happened
        if disk.store.stats().views:
            gc.collect()  # an interrupted task, its exception and the transaction in its frames are a cycle
        disk.finish()
        assert {b"t", b"3", b"last"} <= disk.found.keys()
        if outcome[0] == "done":
            assert {b"1", b"2"} <= disk.found.keys()
        outcomes[", ".join(outcome)] += 1

    return Scenario(
        {
            "interrupted": interrupted,
            "loop": tasks(awaited(disk, b"3")),
            "thread": lambda: disk.store.transact(put(b"t")),
        },
        check,
        interrupts={"interrupted": KeyboardInterrupt},
    )


@pytest.mark.parametrize("durability", ["sync", "process"])
def test_interrupted_loop_leaves_whole_commits_and_holds_nobody_up(durability: str) -> None:
    """Row 45: its tasks withdraw, or are decided without it; the commits of the others are not touched."""
    outcomes: Counter[str] = Counter()
    explore(lambda: interrupted_loop(outcomes, durability=durability), preemptions=1, budget=300)
    explore(lambda: interrupted_loop(outcomes, durability=durability), orders="random", budget=120)
    assert {"done, 2 there", "interrupted, 0 there", "interrupted, 2 there"} <= set(outcomes)


# ---- is it sharp? ---------------------------------------------------------------------------------------------------


def caught(program: Callable[[], Scenario], *says: str, within: int = 300) -> None:
    """The program must fail in no more than so many orders, and with one of these words in its text."""
    with pytest.raises(InterleavingError) as found:
        explore(program, preemptions=2, budget=within)
    assert any(words in str(found.value.__cause__) for words in says), found.value.__cause__


def test_deputy_that_tells_before_the_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: acknowledged, and neither durable nor visible."""
    decide = Deputy._decide_group

    def tell_first(self: Deputy, group: list[Request]) -> None:
        for request in group:
            request.done = True
        self._tell()
        decide(self, group)

    monkeypatch.setattr(Deputy, "_decide_group", tell_first)
    caught(lambda: committers(Counter(), 0, 1), "acknowledged and not visible")


def test_task_that_does_not_wait_for_its_leader_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: it goes on while its commit is being written."""
    withdraw = Deputy.withdraw

    def always(self: Deputy, given: Awaited) -> bool:
        withdraw(self, given)
        return True

    monkeypatch.setattr(Deputy, "withdraw", always)
    caught(lambda: cancelled_at_any_moment(Counter()), "it was not settled")


def test_request_that_stays_in_the_queue_when_cancelled_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: the next leader commits it after all."""
    monkeypatch.setattr(Deputy, "withdraw", lambda _self, _awaited: True)
    caught(lambda: cancelled_at_any_moment(Counter()), "it was not settled")


def test_queueing_that_wakes_nobody_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: the deputy sleeps, with work in the queue."""

    def enqueue(self: Leadership, request: Request, wakeup: Any) -> None:
        request.wakeup = wakeup
        with self._queue_lock:
            self.queue.append(request)

    monkeypatch.setattr(Leadership, "enqueue", enqueue)
    monkeypatch.setattr(deputy, "wake", lambda _wakeup: None)
    caught(lambda: committers(Counter(), 0, 2), "waits for self._wakeup")


def test_loop_that_waits_for_the_lead_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: it stands still as long as the sync of a thread lasts."""

    def run(self: Leadership, request: Request, decide: Callable[[list[Request]], None]) -> bool:
        with self.lead:
            decide([request])
        return request.done

    monkeypatch.setattr(Leadership, "run_at_once", run)
    with pytest.raises(InterleavingError, match="self.lead"):
        test_loop_goes_on_while_somebody_syncs()


def test_commit_with_a_sync_made_at_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: the loop stands still for its own sync."""
    monkeypatch.setattr(
        commit.Committer,
        "commit_at_once",
        lambda self, request: self.leadership.run_at_once(request, self._lead_at_once),
    )
    caught(lambda: committers(Counter(), 0, 2), "a sync blocks the event loop")


def test_deputy_that_ends_without_looking_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: whoever comes just then waits for ever."""

    def may_end(self: Deputy) -> bool:
        self._thread = None
        return True

    monkeypatch.setattr(Deputy, "_may_end", may_end)
    with pytest.raises(InterleavingError, match="no thread can go on"):
        explore(one_after_the_other, orders="random", budget=400)


def test_deputy_that_stays_when_the_store_is_closed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: close would return, and its thread go on."""
    monkeypatch.setattr(Deputy, "dismiss", lambda _self: None)
    caught(lambda: committers(Counter(), 0, 1), "waits for self._wakeup")
