"""Many threads on one store: nothing lost, nothing half seen, nobody waits for ever."""

from __future__ import annotations

import dis
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

import pystate
from pystate import Store, Transaction
from tests.engine.directories import contents
from tests.engine.faulty_files import FaultyFiles

#: Far more than any test takes; it is only reached when something hangs.
PATIENCE = 30.0


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = pystate.memory() if request.param == "memory" else pystate.open(str(tmp_path / "s"), durability="process")
    with opened:
        yield opened


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let threads take turns much more often than usual, so that they meet in odd places."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_together(*targets: Callable[[], object], patience: float = PATIENCE) -> None:
    """Run all in threads of their own, begun at once; raise what any of them raised."""
    barrier, failures = threading.Barrier(len(targets)), []

    def run(target: Callable[[], object]) -> None:
        try:
            barrier.wait(patience)
            target()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def increment(txn: Transaction, key: bytes = b"n") -> None:
    family = txn.family("default")
    family[key] = b"%d" % (int(family.get(key) or b"0") + 1)


# ---- nothing lost ---------------------------------------------------------------------------------------------------


def test_counter_incremented_by_many_threads_has_the_exact_sum(store: Store) -> None:
    """Row 67: a hundred threads, a hundred increments each, one counter."""

    def count() -> None:
        for _ in range(100):
            store.transact(increment, attempts=100_000)

    run_together(*[count] * 100)
    assert store.family("default")[b"n"] == b"10000"
    assert store.sequence == 10_000


def test_counter_read_and_committed_by_hand_loses_nothing(store: Store, frequent_switches: None) -> None:
    """Row 67: whoever was not told of a conflict is counted, whoever was is not."""
    done = []

    def count() -> None:
        for _ in range(100):
            txn = store.begin()
            increment(txn)
            try:
                txn.commit()
            except pystate.ConflictError:
                continue
            done.append(1)

    run_together(*[count] * 8)
    assert int(store.family("default")[b"n"]) == len(done)
    assert len(done) >= 100


def test_key_claimed_by_many_threads_has_one_winner(store: Store, frequent_switches: None) -> None:
    """Rows 70 and 95: of all that found it absent, one inserts it, and all agree on who."""
    family = store.family("default")
    for number in range(30):
        key = b"claim %d" % number
        winners: list[bytes] = []

        def claim(key: bytes = key, winners: list[bytes] = winners) -> None:
            name = b"%d" % threading.get_ident()
            if family.setdefault(key, name) == name:
                winners.append(name)

        run_together(*[claim] * 6)
        assert winners == [family[key]]


def test_pop_by_many_threads_gives_each_value_once(store: Store, frequent_switches: None) -> None:
    """Guarantee 1: `pop` and `popitem` are one commit, so no two threads get the same entry."""
    family = store.family("default")
    family.update({b"%03d" % number: b"%d" % number for number in range(300)})
    taken: list[bytes] = []

    def take() -> None:
        while True:
            try:
                taken.append(family.popitem()[1])
            except KeyError:
                return

    def take_by_key() -> None:
        for number in range(300):
            value = family.pop(b"%03d" % number, None)
            if value is not None:
                taken.append(value)

    run_together(take, take, take_by_key, take_by_key)
    assert sorted(taken, key=int) == [b"%d" % number for number in range(300)]
    assert len(family) == 0


def test_writers_of_disjoint_keys_lose_nothing_and_never_conflict(store: Store, frequent_switches: None) -> None:
    """Row 71: threads that keep apart all commit at the first attempt."""

    def write(number: int) -> None:
        mine = store.family("default")
        for count in range(100):
            with store.begin() as txn:
                assert txn.get("default", b"%d:%d" % (number, count)) is None
                txn.put("default", b"%d:%d" % (number, count), b"%d" % count)
            assert len(list(mine.scan(prefix=b"%d:" % number))) == count + 1

    run_together(*[lambda number=number: write(number) for number in range(6)])
    assert len(store.family("default")) == 600
    assert store.sequence == 600


# ---- nothing half seen ----------------------------------------------------------------------------------------------


def transfer(store: Store, chance: random.Random) -> None:
    """Move one unit between accounts of two families."""
    source, target = chance.sample([(name, b"%02d" % n) for name in ("default", "other") for n in range(8)], 2)

    def move(txn: Transaction) -> None:
        for (name, key), change in ((source, -1), (target, 1)):
            txn.put(name, key, b"%d" % (int(txn.family(name)[key]) + change))

    store.transact(move, attempts=100_000)


def total(source: pystate.View | Transaction) -> int:
    """The sum over both families."""
    return sum(int(value) for name in ("default", "other") for _, value in source.scan(name))


def test_invariant_over_two_families_is_never_seen_broken(store: Store, frequent_switches: None) -> None:
    """Guarantee 4, row 73: views and transactions see whole commits, whatever is moved or dropped meanwhile."""
    store.create_family("other")
    for name in ("default", "other"):
        store.family(name).update({b"%02d" % number: b"100" for number in range(8)})
    moving = threading.Event()
    left = [3]
    guard = threading.Lock()

    def move(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(150):
            transfer(store, chance)
        with guard:
            left[0] -= 1
            if not left[0]:
                moving.set()

    def watch() -> None:
        while not moving.is_set():
            with store.view() as view:
                assert total(view) == 1600
                assert total(view) == 1600
            with store.begin() as txn:
                assert total(txn) == 1600

    def meddle() -> None:
        number = 0
        while not moving.is_set():
            number += 1
            store.snapshot()
            store.create_family(f"temporary {number}")[b"k"] = b"v"
            store.drop_family(f"temporary {number}")

    run_together(*[lambda seed=seed: move(seed) for seed in range(3)], watch, watch, meddle)
    with store.view() as view:
        assert total(view) == 1600
    assert store.stats().views == 0


def test_everything_at_once_equals_what_was_acknowledged(tmp_path: Path, frequent_switches: None) -> None:
    """Guarantees 1, 2 and 4: commits, scans, views, snapshots and stats together; then all is there after reopening."""
    path = tmp_path / "busy"
    kept: list[dict[bytes, bytes]] = [{} for _ in range(3)]
    with pystate.open(str(path), durability="process", snapshot_log_bytes=20_000) as store:
        family, done = store.family("default"), threading.Event()
        left = threading.Semaphore(0)

        def write(number: int) -> None:
            chance, mine = random.Random(number), kept[number]
            for count in range(200):
                key = b"%d:%02d" % (number, chance.randrange(50))
                if chance.random() < 0.75:
                    family[key] = mine[key] = b"%d" % count * 20
                else:
                    family.delete(key)
                    mine.pop(key, None)
                assert family.get(key) == mine.get(key)
            left.release()

        def read() -> None:
            while not done.is_set():
                with store.view() as view:
                    forward = list(view.scan("default"))
                    assert list(view.scan("default", reverse=True)) == forward[::-1]
                    assert len(view.family("default")) == len(forward)
                ordered = list(family)
                assert ordered == sorted(set(ordered))
                stats = store.stats()
                assert stats.durable_sequence <= stats.sequence
                assert stats.failed is None

        def snapshots() -> None:
            while not done.is_set():
                store.snapshot()
                store.sync()

        def wait() -> None:
            for _ in kept:
                left.acquire(timeout=PATIENCE)
            done.set()

        run_together(*[lambda number=number: write(number) for number in range(3)], read, read, snapshots, wait)
        wanted = {key: value for mine in kept for key, value in mine.items()}
        assert dict(family) == wanted
        assert store.stats().snapshots_taken > 0
    assert contents(path) == {"default": wanted}
    assert pystate.verify(str(path)).ok


# ---- group commit ---------------------------------------------------------------------------------------------------


@contextmanager
def held_sync(files: FaultyFiles) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Hold up the next sync of a segment: the first event tells that it has begun, the second lets it go on."""
    begun, go_on = threading.Event(), threading.Event()

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log") and not begun.is_set():
            begun.set()
            assert go_on.wait(PATIENCE)

    files.hook = hook
    try:
        yield begun, go_on
    finally:
        go_on.set()
        files.hook = None


def wait_until_inside(threads: list[threading.Thread]) -> None:
    """Wait until each thread stands still within the engine.

    A thread that waits for its turn shows the same innermost frame and instruction each time it is looked at, and one
    that runs does not; it is looked at many times, with other threads let run in between.
    """
    steady, last, deadline = 0, None, time.monotonic() + PATIENCE
    while steady < 50:
        assert time.monotonic() < deadline, "a thread never stands still"
        assert all(thread.is_alive() for thread in threads), "a thread did not wait but ended"
        frames = sys._current_frames()  # there is no public way to see where a thread is
        places = [(frame.f_code.co_filename, frame.f_lasti) for t in threads if (frame := frames.get(t.ident or 0))]
        inside = len(places) == len(threads) and all("pystate" in file or "threading" in file for file, _ in places)
        steady = steady + 1 if inside and places == last else 0
        last = places
        for _ in range(20):
            time.sleep(0)  # lets another thread run; does not wait for anything


def test_commits_that_arrive_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    """Group commit: while one sync is running, everybody else queues up; one write and one sync serve them all."""
    files = FaultyFiles()
    with pystate.open(str(tmp_path / "s"), files=files) as store:
        family = store.family("default")
        family[b"first"] = b""
        before, syncs = store.stats(), files.counts["sync"]

        def put(number: int) -> None:
            family[b"%d" % number] = b"v"

        with held_sync(files) as (begun, go_on):
            leader = threading.Thread(target=put, args=(0,), daemon=True)
            leader.start()
            assert begun.wait(PATIENCE)
            followers = [threading.Thread(target=put, args=(number,), daemon=True) for number in range(1, 9)]
            for thread in followers:
                thread.start()
            wait_until_inside(followers)
            # Guarantee 4: nobody sees what is not durable yet.
            assert list(family) == [b"first"]
            assert store.sequence == 1
            go_on.set()
            for thread in [leader, *followers]:
                thread.join(PATIENCE)
                assert not thread.is_alive()
        after = store.stats()
        assert after.commits - before.commits == 9
        assert after.groups - before.groups == 2
        assert after.syncs - before.syncs == files.counts["sync"] - syncs == 2
        assert after.durable_sequence == after.sequence == 10
        assert len(family) == 10


def test_group_whose_sync_fails_fails_every_member_and_the_store(tmp_path: Path) -> None:
    """Guarantee 6, row 31: all commits in flight raise StoreFailedError with an unknown outcome; reads go on."""
    files = FaultyFiles()
    path = tmp_path / "s"
    store = pystate.open(str(path), files=files)
    family = store.family("default")
    family[b"first"] = b""
    outcomes: list[BaseException | None] = []

    def put(number: int) -> None:
        try:
            family[b"%d" % number] = b"v"
        except BaseException as error:
            outcomes.append(error)
        else:
            outcomes.append(None)

    begun, go_on = threading.Event(), threading.Event()

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            if not begun.is_set():
                begun.set()
                assert go_on.wait(PATIENCE)
            raise OSError(5, "Input/output error")

    files.hook = hook
    threads = [threading.Thread(target=put, args=(0,), daemon=True)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads += [threading.Thread(target=put, args=(number,), daemon=True) for number in range(1, 5)]
    for thread in threads[1:]:
        thread.start()
    wait_until_inside(threads[1:])
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert len(outcomes) == 5
    assert all(isinstance(error, pystate.StoreFailedError) for error in outcomes)
    failures = [error for error in outcomes if isinstance(error, pystate.StoreFailedError)]
    assert sum(error.unknown for error in failures) >= 1
    assert {error.errno for error in failures} == {5}
    assert files.counts["sync"] and store.stats().failed is not None
    assert list(family) == [b"first"]
    with pytest.raises(pystate.StoreFailedError) as caught:
        family[b"later"] = b""
    assert not caught.value.unknown
    store.close()
    files.hook = None
    with pystate.open(str(path)) as again:
        assert set(again.family("default")) <= {b"first", b"0", b"1", b"2", b"3", b"4"}
        assert b"first" in again.family("default")


def test_conflict_inside_a_group_fails_only_its_own_member(tmp_path: Path) -> None:
    """Guarantee 3: members of one group are judged one after the other, as if they had come alone."""
    files = FaultyFiles()
    with pystate.open(str(tmp_path / "s"), files=files) as store:
        store.family("default")[b"n"] = b"0"
        txns = [store.begin() for _ in range(6)]
        for txn in txns:
            increment(txn)
        blind = store.begin()
        blind.put("default", b"blind", b"v")
        conflicts: list[pystate.ConflictError] = []

        def commit(txn: Transaction) -> None:
            try:
                txn.commit()
            except pystate.ConflictError as error:
                conflicts.append(error)

        with held_sync(files) as (begun, go_on):
            leader = threading.Thread(target=lambda: store.family("default").put(b"leader", b""), daemon=True)
            leader.start()
            assert begun.wait(PATIENCE)
            threads = [threading.Thread(target=commit, args=(txn,), daemon=True) for txn in [*txns, blind]]
            for thread in threads:
                thread.start()
            wait_until_inside(threads)
            go_on.set()
            for thread in [leader, *threads]:
                thread.join(PATIENCE)
                assert not thread.is_alive()
        assert len(conflicts) == 5
        assert {error.key for error in conflicts} == {b"n"}
        assert dict(store.family("default")) == {b"n": b"1", b"leader": b"", b"blind": b"v"}
        assert store.sequence == 4


# ---- interruptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_keyboard_interrupt_inside_a_commit_leaves_old_or_new_state(tmp_path: Path, operation: str) -> None:
    """Row 45: from the first byte written, a commit either finishes or fails the store; no lock is left behind."""
    files = FaultyFiles()
    path = tmp_path / "s"
    store = pystate.open(str(path), files=files)
    family = store.family("default")
    family[b"a"] = b"1"

    def hook(called: str, path: str) -> None:
        if called == operation and path.endswith(".log"):
            files.hook = None
            raise KeyboardInterrupt

    files.hook = hook
    with pytest.raises((KeyboardInterrupt, pystate.StoreFailedError)):
        family[b"b"] = b"2"
    assert family[b"a"] == b"1"
    seen = dict(family)
    assert seen in ({b"a": b"1"}, {b"a": b"1", b"b": b"2"})
    usable = True
    try:
        family[b"c"] = b"3"
    except pystate.StoreFailedError:
        usable = False
    store.close()
    with pystate.open(str(path)) as again:
        found = dict(again.family("default"))
    assert found.pop(b"c", None) == (b"3" if usable else None)
    assert found in ({b"a": b"1"}, {b"a": b"1", b"b": b"2"})
    assert seen.items() <= found.items()


def test_keyboard_interrupt_while_waiting_for_the_leader_leaves_the_store_usable(tmp_path: Path) -> None:
    """Row 45: a committer that waits in the queue can be interrupted; nobody else notices."""
    files = FaultyFiles()
    path = tmp_path / "s"
    with pystate.open(str(path), files=files) as store:
        family = store.family("default")
        family[b"a"] = b"1"
        with held_sync(files) as (begun, go_on):
            leader = threading.Thread(target=lambda: family.put(b"leader", b""), daemon=True)
            leader.start()
            assert begun.wait(PATIENCE)
            main = threading.main_thread()

            def interrupt() -> None:
                wait_until_inside([main])
                signal.pthread_kill(main.ident or 0, signal.SIGINT)
                wait_until_inside([main])
                go_on.set()

            interrupter = threading.Thread(target=interrupt, daemon=True)
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                family[b"interrupted"] = b""
            go_on.set()
            for thread in (leader, interrupter):
                thread.join(PATIENCE)
                assert not thread.is_alive()
        family[b"after"] = b""
        seen = dict(family)
        assert seen.keys() - {b"interrupted"} == {b"a", b"leader", b"after"}
        assert store.stats().failed is None
    assert contents(path) == {"default": seen}


#: The instructions after which the interpreter lets a signal in.
CHECKED = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}


class InterruptAt:
    """Within the `with` statement, raise KeyboardInterrupt at the `nth` place in the engine where a signal would.

    What runs below a finaliser is left out: the interpreter swallows whatever is raised there.
    """

    def __init__(self, nth: int) -> None:
        self.left = nth
        self._last: dict[FrameType, str] = {}

    def __enter__(self) -> InterruptAt:
        gc.disable()
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._enter_function)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()
        self._last.clear()  # frames keep alive what they refer to

    def _enter_function(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        caller: FrameType | None = frame
        while caller is not None and "engine" in caller.f_code.co_filename:
            if caller.f_code.co_name == "__del__":
                return None
            caller = caller.f_back
        if "pystate" + os.sep + "engine" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "opcode":
            last = self._last.get(frame)
            self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if last in CHECKED:
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
        elif event == "return":
            self._last.pop(frame, None)
        return self._step


def interrupt_and_look(path: Path | None, write: Callable[[Store], object], nth: int) -> bool:
    """Interrupt one write, then use the store as if nothing had been; False when there is no `nth` place."""
    store = pystate.memory() if path is None else pystate.open(str(path), durability="process")
    family = store.family("default")
    family[b"a"] = b"1"
    old, new = {b"a": b"1"}, {b"a": b"1", b"b": b"2"}
    with InterruptAt(nth) as interrupt:
        try:
            write(store)
        except (KeyboardInterrupt, pystate.StoreFailedError):
            pass
    seen = dict(family)
    assert seen in (old, new)
    try:
        store.transact(lambda txn: txn.put("default", b"c", b"3"))
        seen[b"c"] = b"3"
    except pystate.StoreFailedError:
        pass
    assert dict(family) == seen
    store.close()
    if path is not None:
        found = contents(path)["default"]
        assert found == seen or (b"c" not in seen and found in (old, new))
        assert pystate.verify(str(path)).ok
    return interrupt.left <= 0


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda store: store.family("default").put(b"b", b"2"), id="put"),
        pytest.param(lambda store: store.family("default").setdefault(b"b", b"2"), id="setdefault"),
        pytest.param(lambda store: store.transact(lambda txn: txn.put("default", b"b", b"2")), id="transaction"),
    ],
)
def test_keyboard_interrupt_at_any_moment_leaves_locks_free_and_old_or_new_state(
    tmp_path: Path, write: Callable[[Store], object], disk: bool
) -> None:
    """Row 45: swept over every place of a write at which the interpreter would raise it."""
    outcomes = [True]

    def run() -> None:
        nth = len(outcomes)
        outcomes.append(interrupt_and_look(tmp_path / str(nth) if disk else None, write, nth))

    try:
        while outcomes[-1]:
            run_together(run, patience=10.0)
    finally:
        gc.enable()


# ---- closing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "process"])
def test_close_while_others_commit_keeps_what_was_acknowledged(
    tmp_path: Path, frequent_switches: None, durability: Literal["sync", "process"]
) -> None:
    """Guarantee 2: each commit returned and is there, or raised ClosedError and is not; nobody hangs."""
    path = tmp_path / "s"
    store = pystate.open(str(path), durability=durability)
    family = store.family("default")
    acknowledged: set[bytes] = set()
    refused: set[bytes] = set()
    enough = threading.Semaphore(0)

    def write(name: int) -> None:
        number = 0
        while True:
            number += 1
            key = b"%d:%d" % (name, number)
            try:
                family[key] = b"v"
            except pystate.ClosedError:
                refused.add(key)
                return
            acknowledged.add(key)
            enough.release()

    def close() -> None:
        for _ in range(100):
            assert enough.acquire(timeout=PATIENCE)
        store.close()

    run_together(*[lambda name=name: write(name) for name in range(4)], close)
    assert len(refused) == 4
    assert contents(path) == {"default": dict.fromkeys(acknowledged, b"v")}
    report = pystate.verify(str(path))
    assert report.ok
    assert report.clean


def test_close_while_others_read_ends_every_reader_with_closed_error(store: Store, frequent_switches: None) -> None:
    """Row 75: scans and views that are open when the store closes raise ClosedError, and nothing else."""
    family = store.family("default")
    family.update({b"%04d" % number: b"v" for number in range(3000)})
    reading = threading.Semaphore(0)

    def read() -> None:
        with pytest.raises(pystate.ClosedError):
            while True:
                with store.view() as view:
                    reading.release()
                    assert len(list(view.scan("default"))) == 3000
                assert len(list(family)) == 3000

    def close() -> None:
        for _ in range(12):
            assert reading.acquire(timeout=PATIENCE)
        store.close()

    run_together(read, read, read, close)


def test_close_by_two_threads_at_once_closes_once(tmp_path: Path, frequent_switches: None) -> None:
    """Closing is idempotent from any thread; when it returned, the lock is free."""
    for number in range(10):
        store = pystate.open(str(tmp_path / "s"))
        store.family("default")[b"n"] = b"%d" % number
        run_together(store.close, store.close, store.close)
        assert contents(tmp_path / "s") == {"default": {b"n": b"%d" % number}}
