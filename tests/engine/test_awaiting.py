"""Awaited commits with real loops, threads and disk: what a task sees, and that its loop is never blocked."""

from __future__ import annotations

import asyncio
import errno
import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

import pystate
from pystate import ConflictError, Store, Transaction
from pystate.engine import deputy as deputy_module
from pystate.engine import threads as seam
from tests.engine.directories import contents
from tests.engine.faulty_files import FaultyFiles, failure
from tests.engine.loops import in_loop
from tests.engine.test_threads import PATIENCE, held_sync, run_together, wait_until_inside

Durability = Literal["sync", "process"]


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def store(path: Path, files: FaultyFiles) -> Iterator[Store]:
    with pystate.open(str(path), files=files) as opened:
        opened.family("default")[b"first"] = b""
        yield opened
    assert not [thread for thread in threading.enumerate() if thread.name == "pystate-deputy"]


def put(key: bytes, value: bytes = b"v") -> Callable[[Transaction], None]:
    return lambda txn: txn.put("default", key, value)


def increment(txn: Transaction) -> int:
    value = int(txn.get("default", b"n") or b"0") + 1
    txn.put("default", b"n", b"%d" % value)
    return value


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """`asyncio.run`, but nothing may hang."""

    async def bounded() -> Any:
        return await asyncio.wait_for(main, PATIENCE)

    return asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop go on until something has come about."""
    while not condition():
        await asyncio.sleep(0.001)


async def outcome(awaitable: Awaitable[object]) -> object:
    """What it returns, or raises."""
    try:
        return await awaitable
    except (pystate.PystateError, asyncio.CancelledError) as error:
        return error


@contextmanager
def syncing(store: Store, files: FaultyFiles) -> Iterator[threading.Event]:
    """A thread commits, and its sync lasts until the event is set."""
    with held_sync(files) as (begun, go_on):
        leader = threading.Thread(target=lambda: store.family("default").put(b"leader", b""), daemon=True)
        leader.start()
        assert begun.wait(PATIENCE)
        yield go_on
        go_on.set()
        leader.join(PATIENCE)
        assert not leader.is_alive()


# ---- sharing syncs --------------------------------------------------------------------------------------------------


def test_hundred_tasks_that_commit_during_a_sync_share_the_next_one(store: Store, files: FaultyFiles) -> None:
    """Design 9: an event loop waits on the same thing a thread waits on; no thread for each caller."""
    before, syncs = store.stats(), files.counts["sync"]
    own = threading.active_count()

    async def main() -> None:
        with syncing(store, files) as go_on:
            commits = [asyncio.ensure_future(store.transact_async(put(b"%d" % number))) for number in range(100)]
            await until(lambda: len(store._parts.committer.leadership.queue) == 100)  # type: ignore[union-attr]
            assert threading.active_count() <= own + 2  # the leader and the deputy
            assert not any(commit.done() for commit in commits)
            assert list(store.family("default")) == [b"first"]
            go_on.set()
            await asyncio.gather(*commits)

    run(main())
    after = store.stats()
    assert after.commits - before.commits == 101
    assert after.groups - before.groups == after.syncs - before.syncs == files.counts["sync"] - syncs == 2
    assert after.durable_sequence == after.sequence == 102


def test_tasks_and_threads_share_one_group(store: Store, files: FaultyFiles) -> None:
    """The same queue: a thread that leads serves tasks, and the deputy serves threads."""
    before = store.stats()

    async def main() -> None:
        with syncing(store, files) as go_on:
            workers = [threading.Thread(target=store.transact, args=(put(b"t%d" % n),), daemon=True) for n in range(4)]
            commits = []
            for number, worker in enumerate(workers):
                worker.start()
                commits.append(asyncio.ensure_future(store.transact_async(put(b"a%d" % number))))
            await until(lambda: len(store._parts.committer.leadership.queue) == 8)  # type: ignore[union-attr]
            go_on.set()
            await asyncio.gather(*commits)
            for worker in workers:
                await asyncio.to_thread(worker.join, PATIENCE)

    run(main())
    after = store.stats()
    assert (after.commits - before.commits, after.groups - before.groups) == (9, 2)


def test_loops_of_several_threads_and_plain_threads_on_one_store(path: Path) -> None:
    """Nothing is lost, nothing is done twice, whoever commits how."""
    with pystate.open(str(path)) as store:

        def loop() -> None:
            async def work() -> None:
                for number in range(20):
                    durability: Durability = "sync" if number % 2 else "process"
                    await store.transact_async(increment, attempts=100_000, durability=durability)

            async def main() -> None:
                await asyncio.gather(*[work() for _ in range(5)])

            run(main())

        def thread() -> None:
            for _ in range(50):
                store.transact(increment, attempts=100_000)

        run_together(loop, loop, loop, thread, thread)
        assert store.family("default")[b"n"] == b"400"
        assert store.sequence == 400
    assert contents(path) == {"default": {b"n": b"400"}}


# ---- the loop is not blocked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "process"])
@pytest.mark.parametrize("leader", ["thread", "deputy"])
def test_loop_goes_on_during_a_sync(store: Store, files: FaultyFiles, leader: str, durability: Durability) -> None:
    """Another task keeps running while somebody syncs: for this task, or for a thread that it queues behind."""

    async def main() -> None:
        with held_sync(files) as (begun, go_on):
            if leader == "thread":
                first: Awaitable[object] = asyncio.ensure_future(asyncio.to_thread(store.transact, put(b"leader")))
            else:
                first = asyncio.ensure_future(store.transact_async(put(b"leader")))
            await until(begun.is_set)
            second = asyncio.ensure_future(store.transact_async(put(b"second"), durability=durability))
            start, turns = time.monotonic(), 0
            while time.monotonic() - start < 0.1:
                await asyncio.sleep(0.001)
                turns += 1
            assert turns > 10
            assert not second.done()
            go_on.set()
            await asyncio.gather(first, second)

    run(main())
    assert store.family("default").keys() == {b"first", b"leader", b"second"}


def test_no_sync_is_done_in_the_thread_of_a_loop(path: Path, files: FaultyFiles) -> None:
    """Not by commits, and not by what they bring about: opening a segment, snapshots, waiting for those."""
    blocking: list[tuple[str, str]] = []

    def look(operation: str, path: str) -> None:
        if operation not in ("write", "size") and in_loop():
            blocking.append((operation, path))

    for durability in ("sync", "process"):
        with pystate.open(f"{path} {durability}", files=files, snapshot_log_bytes=3000) as store:

            async def work(name: int, store: Store = store, durability: Any = durability) -> None:
                for number in range(60):
                    await store.transact_async(put(b"%d:%d" % (name, number), bytes(100)), durability=durability)

            async def main() -> None:
                await asyncio.gather(*[work(name) for name in range(5)])

            store.family("default")
            files.hook = look
            run(main())
            files.hook = None
            assert store.stats().snapshots_taken > 0
            assert store.stats().snapshot_error is None
    assert blocking == []


def test_commit_without_sync_is_made_in_the_thread_of_the_loop(path: Path) -> None:
    """`process`, the lead free: no other thread is needed. (Only the first opens the segment, elsewhere.)"""
    with pystate.open(str(path), durability="process") as store:
        store.family("default")[b"first"] = b""

        async def main() -> None:
            for number in range(10):
                await store.transact_async(put(b"%d" % number))

        own = threading.active_count()
        run(main())
        assert threading.active_count() <= own
        assert len(store.family("default")) == 11


def test_task_that_commits_without_end_lets_the_others_have_their_turns() -> None:
    """Each call is at least one turn of the loop, even where nothing has to be waited for."""
    with pystate.memory() as store:

        async def main() -> int:
            turns = 0

            async def commits() -> None:
                while turns < 50:
                    await store.transact_async(put(b"k"))

            async def counts() -> None:
                nonlocal turns
                while turns < 50:
                    turns += 1
                    await asyncio.sleep(0)

            await asyncio.gather(commits(), counts())
            return turns

        assert run(main()) == 50
        assert store.sequence <= 60


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_group_whose_sync_fails_fails_every_task_and_the_store(store: Store, files: FaultyFiles) -> None:
    """Guarantee 6: each is told by an error of its own; reads go on."""

    async def main() -> list[object]:
        return list(await asyncio.gather(*[outcome(store.transact_async(put(b"%d" % n))) for n in range(5)]))

    files.fail("sync", errno.EIO, for_ever=True)
    errors = run(main())
    assert all(isinstance(error, pystate.StoreFailedError) for error in errors)
    assert len({id(error) for error in errors}) == 5
    assert any(error.unknown for error in errors)
    assert list(store.family("default")) == [b"first"]
    with pytest.raises(pystate.StoreFailedError) as caught:
        run(store.transact_async(put(b"later")))
    assert not caught.value.unknown
    files.hook = None


@pytest.mark.parametrize("durability", ["sync", "process"])
def test_full_disk_is_undone_and_the_store_stays_usable(
    store: Store, files: FaultyFiles, durability: Durability
) -> None:
    """Row 37: as for threads."""

    async def main() -> list[object]:
        calls = [store.transact_async(put(b"%d" % number), durability=durability) for number in range(3)]
        return list(await asyncio.gather(*map(outcome, calls)))

    files.space = 7
    assert [type(error) for error in run(main())] == [pystate.DiskFullError] * 3
    files.space = None
    assert run(main()) == [None] * 3
    assert store.stats().failed is None
    assert len(store.family("default")) == 4


def test_write_that_fails_in_the_thread_of_the_loop_fails_the_store(store: Store, files: FaultyFiles) -> None:
    """Guarantee 6, for a commit that is made at once."""
    files.fail("write", errno.EIO)
    with pytest.raises(pystate.StoreFailedError) as caught:
        run(store.transact_async(put(b"k"), durability="process"))
    assert caught.value.unknown
    assert caught.value.errno == errno.EIO
    with pytest.raises(pystate.StoreFailedError):
        store.family("default")[b"k"] = b""


def test_conflicts_are_run_again_in_the_loop_without_blocking_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 67: it backs off as a task does; the last conflict is raised."""
    waits: list[float] = []

    def back_off_seconds(attempt: int) -> float:
        waits.append(attempt)
        return 0.02

    monkeypatch.setattr(seam, "back_off_seconds", back_off_seconds)
    monkeypatch.setattr(seam, "back_off", lambda _attempt: pytest.fail("the loop is blocked"))

    def disturbed(txn: Transaction) -> None:
        increment(txn)
        store.family("default")[b"n"] = b"7"

    async def main() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        counting = asyncio.ensure_future(count())
        with pytest.raises(ConflictError) as caught:
            await store.transact_async(disturbed, attempts=4)
        assert caught.value.key == b"n"
        counting.cancel()
        return turns

    assert run(main()) > 15
    assert waits == [0, 1, 2]


def test_store_that_is_open_for_reading_only_is_read_and_not_written(store: Store, path: Path) -> None:
    """As for `transact`."""
    with pystate.open(str(path), read_only=True) as reader:
        assert run(reader.transact_async(lambda txn: txn.get("default", b"first"))) == b""
        with pytest.raises(pystate.ReadOnlyError):
            run(reader.transact_async(put(b"k")))


def test_without_a_loop_it_says_so(store: Store) -> None:
    """A coroutine that somebody drives by hand: nothing is written."""
    call = store.transact_async(put(b"k"))
    with pytest.raises(RuntimeError, match="no running event loop"):
        while True:
            call.send(None)
    assert list(store.family("default")) == [b"first"]
    assert store.stats().views == 0


# ---- cancelling -----------------------------------------------------------------------------------------------------


def test_task_cancelled_in_the_queue_has_never_begun(store: Store, files: FaultyFiles) -> None:
    """It goes on at once, while the leader before it still syncs; and the others are served as if it had not been."""

    async def main() -> None:
        with syncing(store, files) as go_on:
            task, other = (asyncio.ensure_future(store.transact_async(put(key))) for key in (b"cancelled", b"other"))
            await until(lambda: len(store._parts.committer.leadership.queue) == 2)  # type: ignore[union-attr]
            task.cancel("why")
            with pytest.raises(asyncio.CancelledError, match="why"):
                await task
            assert not go_on.is_set()
            assert store.stats().views == 1  # of the other one: nothing is kept for a task that has gone
            go_on.set()
            await other

    run(main())
    assert store.family("default").keys() == {b"first", b"leader", b"other"}


def test_task_cancelled_while_its_commit_is_written_waits_for_it(store: Store, files: FaultyFiles) -> None:
    """However often it is cancelled: when it goes on, the commit is whole and visible."""

    async def main() -> None:
        with held_sync(files) as (begun, go_on):
            task = asyncio.ensure_future(store.transact_async(put(b"k")))
            await until(begun.is_set)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0.01)
                assert not task.done()
            assert b"k" not in store.family("default")
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert b"k" in store.family("default")

    run(main())


def test_task_cancelled_while_its_commit_fails_is_cancelled(store: Store, files: FaultyFiles) -> None:
    """What it was cancelled for comes first; the failure shows to everybody else."""

    async def main() -> None:
        begun, go_on = threading.Event(), threading.Event()

        def hook(operation: str, path: str) -> None:
            if operation == "sync" and path.endswith(".log"):
                begun.set()
                assert go_on.wait(PATIENCE)
                raise failure(errno.EIO)

        files.hook = hook
        task = asyncio.ensure_future(store.transact_async(put(b"k")))
        await until(begun.is_set)
        task.cancel()
        await asyncio.sleep(0.01)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    files.hook = None
    assert store.stats().failed is not None


def test_timeouts_and_task_groups_see_an_ordinary_cancellation(store: Store, files: FaultyFiles) -> None:
    """`asyncio.timeout` becomes TimeoutError, a group ends its other tasks; and nothing hangs."""

    async def late() -> None:
        async with asyncio.timeout(0.01):
            await store.transact_async(put(b"late"))

    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise ZeroDivisionError

    async def main() -> None:
        with syncing(store, files):
            with pytest.raises(TimeoutError):
                await late()
            with pytest.raises(ExceptionGroup) as caught:
                async with asyncio.TaskGroup() as group:
                    group.create_task(store.transact_async(put(b"grouped")))
                    group.create_task(fail())
            assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]

    run(main())
    assert store.family("default").keys() == {b"first", b"leader"}


def test_loop_that_ends_with_commits_under_way_leaves_them_settled(store: Store, files: FaultyFiles) -> None:
    """`asyncio.run` cancels what is left when its main task ends: in the queue or being written."""

    queue = store._parts.committer.leadership.queue  # type: ignore[union-attr]
    with held_sync(files) as (begun, go_on):

        def go_on_when_all_have_withdrawn() -> None:
            while queue:
                time.sleep(0.001)
            go_on.set()

        async def main() -> None:
            tasks = [asyncio.ensure_future(store.transact_async(put(b"written")))]
            await until(begun.is_set)
            tasks += [asyncio.ensure_future(store.transact_async(put(b"q%d" % number))) for number in range(3)]
            await until(lambda: len(queue) == 3)
            assert not any(task.done() for task in tasks)
            threading.Thread(target=go_on_when_all_have_withdrawn, daemon=True).start()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            asyncio.run(main())
    assert store.family("default").keys() == {b"first", b"written"}


def test_loop_closed_over_a_commit_that_is_written_does_not_stop_it(store: Store, files: FaultyFiles) -> None:
    """A loop that is thrown away: the commit is made, nobody is told, and other loops go on."""
    loop = asyncio.new_event_loop()
    with held_sync(files) as (begun, go_on):
        call = store.transact_async(put(b"k"))
        task = loop.create_task(call)
        while not begun.is_set():
            loop.run_until_complete(asyncio.sleep(0.001))
        loop.close()
        go_on.set()
        run(store.transact_async(put(b"other")))
    assert store.family("default").keys() == {b"first", b"k", b"other"}
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # thrown away on purpose
    call.close()


def test_coroutine_thrown_away_in_the_queue_withdraws(store: Store, files: FaultyFiles) -> None:
    """Nobody will ever run it again, so its commit is not made behind its back."""

    async def main() -> None:
        with syncing(store, files) as go_on:
            call = store.transact_async(put(b"thrown away"))
            future = call.send(None)
            assert future is None  # the turn for the others
            call.send(None)
            assert len(store._parts.committer.leadership.queue) == 1  # type: ignore[union-attr]
            call.close()
            assert not store._parts.committer.leadership.queue  # type: ignore[union-attr]
            go_on.set()
            await store.transact_async(put(b"other"))

    run(main())
    assert store.family("default").keys() == {b"first", b"leader", b"other"}
    assert store.stats().views == 0


# ---- closing --------------------------------------------------------------------------------------------------------


def test_close_by_a_thread_finishes_or_refuses_every_queued_commit(path: Path, files: FaultyFiles) -> None:
    """Row 75: those queued before the close are finished, those behind it refused, and none hangs."""
    store = pystate.open(str(path), files=files)
    store.family("default")[b"first"] = b""

    async def main() -> tuple[list[object], list[object]]:
        with syncing(store, files) as go_on:
            queue = store._parts.committer.leadership.queue  # type: ignore[union-attr]
            early = [asyncio.ensure_future(outcome(store.transact_async(put(b"e%d" % n)))) for n in range(20)]
            await until(lambda: len(queue) == 20)
            closer = threading.Thread(target=store.close, daemon=True)
            closer.start()
            await until(lambda: len(queue) == 21)
            late = [asyncio.ensure_future(outcome(store.transact_async(put(b"l%d" % n)))) for n in range(20)]
            await until(lambda: len(queue) == 41)
            go_on.set()
            found = list(await asyncio.gather(*early)), list(await asyncio.gather(*late))
            await asyncio.to_thread(closer.join, PATIENCE)
            assert isinstance(await outcome(store.transact_async(put(b"too late"))), pystate.ClosedError)
            return found

    early, late = run(main())
    assert early == [None] * 20
    assert all(isinstance(error, pystate.ClosedError) for error in late)
    assert contents(path)["default"].keys() == {b"first", b"leader", *(b"e%d" % number for number in range(20))}
    assert pystate.verify(str(path)).clean
    assert not [thread for thread in threading.enumerate() if thread.name == "pystate-deputy"]


def test_close_in_the_thread_of_the_loop_decides_what_is_queued(path: Path) -> None:
    """It blocks the loop meanwhile, but does not wait for it; the tasks learn afterwards."""

    async def main(store: Store) -> list[object]:
        commits = [asyncio.ensure_future(outcome(store.transact_async(put(b"%d" % n)))) for n in range(20)]
        for _ in range(3):
            await asyncio.sleep(0)
        store.close()
        return list(await asyncio.gather(*commits))

    found = run(main(pystate.open(str(path))))
    acknowledged = {b"%d" % number for number, result in enumerate(found) if result is None}
    assert all(result is None or isinstance(result, pystate.ClosedError) for result in found)
    assert contents(path)["default"].keys() == acknowledged


def test_store_that_was_forgotten_is_not_kept_by_its_deputy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ends when it has nothing to do, and then the directory can be opened again."""
    monkeypatch.setattr(deputy_module, "_IDLE_SECONDS", 0.01)
    store = pystate.open(str(path))
    run(store.transact_async(put(b"k")))
    forgotten = weakref.ref(store)
    del store
    deadline = time.monotonic() + PATIENCE
    while forgotten() is not None or any(thread.name == "pystate-deputy" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.005)
    gc.collect()
    assert contents(path) == {"default": {b"k": b"v"}}


FORK = """
import asyncio, os, sys, warnings
import pystate
warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads, which is the point
def put(txn): txn.put("default", b"k", b"%d" % os.getpid())
store = pystate.open(sys.argv[1])
asyncio.run(store.transact_async(put))
begun = store.begin()
child = os.fork()
if not child:
    for call in (lambda: asyncio.run(store.transact_async(put)), store.close, begun.commit):
        try:
            call()
        except pystate.ClosedError as error:
            print("child:", "forked" in str(error))
    sys.stdout.flush()
    os._exit(0)
if os.waitpid(child, 0)[1]:  # no assertion: this runs without them, too
    sys.exit("the child failed")
asyncio.run(store.transact_async(put))
store.close()
with pystate.open(sys.argv[1]) as again:
    print("parent:", again.family("default")[b"k"] == b"%d" % os.getpid())
"""


def test_forked_child_is_refused_and_its_parent_goes_on(path: Path) -> None:
    """Guarantee 7: the deputy is not there in the child; nothing waits for it."""
    program = [sys.executable, "-c", textwrap.dedent(FORK), str(path)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ran.stdout.split("\n") == ["child: True", "child: True", "parent: True", ""]


def test_interrupted_main_task_does_not_tear_its_commit(store: Store, files: FaultyFiles) -> None:
    """Row 45: Control-C while a commit is written: it is finished, then the interrupt is raised."""

    async def main() -> None:
        with held_sync(files) as (begun, go_on):
            task = asyncio.ensure_future(store.transact_async(put(b"k")))
            await until(begun.is_set)
            threading.Timer(0.05, go_on.set).start()
            asyncio.get_running_loop().call_soon(_interrupt)
            await task

    def _interrupt() -> None:
        import signal

        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert store.family("default").keys() == {b"first", b"k"}


def test_deputy_leads_for_a_queue_in_which_a_thread_was_interrupted(store: Store, files: FaultyFiles) -> None:
    """Row 45: the next in the queue is a task; a thread that withdraws passes its turn on to it."""

    async def main() -> None:
        with syncing(store, files) as go_on:
            queue = store._parts.committer.leadership.queue  # type: ignore[union-attr]
            leadership = store._parts.committer.leadership  # type: ignore[union-attr]
            waiter = threading.Thread(target=store.transact, args=(put(b"thread"),), daemon=True)
            waiter.start()
            await until(lambda: len(queue) == 1)
            wait_until_inside([waiter])
            task = asyncio.ensure_future(store.transact_async(put(b"task")))
            await until(lambda: len(queue) == 2)
            first = queue[0]
            assert leadership.withdraw(first)
            go_on.set()
            await task
            first.done = True
            first.wakeup.release()  # type: ignore[union-attr]
            await asyncio.to_thread(waiter.join, PATIENCE)

    run(main())
    assert store.family("default").keys() == {b"first", b"leader", b"task"}
