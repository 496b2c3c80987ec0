"""Tasks and threads that commit, are cancelled and conflict, over a disk that syncs when it is told to: any history.

Hypothesis draws what happens in which order; the disk holds each sync up until the history lets it go on, so tasks are
cancelled while they queue, while their group is written, and behind that. Afterwards the commits that were made, taken
one after the other in the order of their sequences, must explain everything that was read, returned and left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Literal, NamedTuple

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

import pystate
from pystate import ClosedError, ConflictError, Transaction
from tests.engine.loops import in_loop
from tests.engine.memory_files import DIRECTORY, MemoryFiles
from tests.engine.watched_files import WatchedFiles

PATIENCE = 30.0
KEYS = [b"x", b"y", b"z"]


class Commit(NamedTuple):
    """Put, under `target`, what is found under `source`, and the number of the commit behind it."""

    source: bytes | None
    target: bytes
    durability: Literal["sync", "process"]
    attempts: int


class Step(NamedTuple):
    """One thing that happens: a task or a thread commits, a task is cancelled, a sync begins or may go on, the loop has
    some turns, or the store is closed."""

    kind: Literal["task", "thread", "cancel", "until a sync", "go on", "turns", "close"]
    commit: Commit
    number: int


commits = st.builds(
    Commit,
    st.one_of(st.none(), st.sampled_from(KEYS)),
    st.sampled_from(KEYS),
    st.sampled_from(["sync", "process"]),
    st.sampled_from([1, 50]),
)
kinds = st.sampled_from(
    ["task"] * 6 + ["thread"] * 2 + ["cancel"] * 4 + ["until a sync"] * 3 + ["go on"] * 3 + ["turns"] * 2 + ["close"]
)
histories = st.lists(st.builds(Step, kinds, commits, st.integers(0, 9)), min_size=1, max_size=25)


def marker(number: int) -> bytes:
    """What tells that the commit of this number was made."""
    return b"commit %d" % number


def applied(commit: Commit, number: int, read: bytes | None) -> bytes:
    """What a commit writes under its target."""
    return (read or b"") + b"." + str(number).encode() if commit.source is not None else str(number).encode()


class World:
    """A store on a disk whose syncs wait, and what has become of each commit."""

    def __init__(self) -> None:
        self.memory = MemoryFiles()
        files = WatchedFiles(self.memory)
        self.store = pystate.open(DIRECTORY, files=files)
        self.family = self.store.family("default")
        self.family[b"first"] = b""
        self.syncs = threading.Semaphore(0)
        self.syncing = threading.Event()
        self.held_up = True
        self.blocked: list[str] = []
        self.closed = False
        files.before = self._hold_up
        self.commits: list[Commit] = []
        self.outcomes: dict[int, tuple[str, object]] = {}
        self.tasks: list[tuple[int, asyncio.Task[None]]] = []
        self.threads: list[threading.Thread] = []

    def _hold_up(self, operation: str, _path: str) -> None:
        if operation == "sync" and in_loop() and not self.closed:
            self.blocked.append(operation)
        elif operation == "sync" and self.held_up:
            self.syncing.set()
            assert self.syncs.acquire(timeout=PATIENCE)
            self.syncing.clear()

    def let_all_go_on(self) -> None:
        self.held_up = False
        self.syncs.release(100)

    def function(self, number: int) -> Callable[[Transaction], bytes | None]:
        """What the transaction of a commit does; it returns what it has read."""
        commit = self.commits[number]

        def run(txn: Transaction) -> bytes | None:
            read = None if commit.source is None else txn.get("default", commit.source)
            txn.put("default", commit.target, applied(commit, number, read))
            txn.put("default", marker(number), b"")
            return read

        return run

    async def by_task(self, number: int) -> None:
        commit = self.commits[number]
        try:
            self.outcomes[number] = (
                "done",
                await self.store.transact_async(
                    self.function(number), attempts=commit.attempts, durability=commit.durability
                ),
            )
            assert marker(number) in self.family._family.values, "acknowledged and not visible"
        except asyncio.CancelledError:
            self.outcomes[number] = "cancelled", marker(number) in self.family._family.values
        except (ConflictError, ClosedError) as error:
            self.outcomes[number] = type(error).__name__, None

    def by_thread(self, number: int) -> None:
        commit = self.commits[number]
        try:
            self.outcomes[number] = (
                "done",
                self.store.transact(self.function(number), attempts=commit.attempts, durability=commit.durability),
            )
        except (ConflictError, ClosedError) as error:
            self.outcomes[number] = type(error).__name__, None

    async def happen(self, history: list[Step]) -> None:
        for step in history:
            if step.kind in ("task", "thread"):
                number = len(self.commits)
                self.commits.append(step.commit)
                if step.kind == "task":
                    self.tasks.append((number, asyncio.ensure_future(self.by_task(number))))
                else:
                    self.threads.append(threading.Thread(target=self.by_thread, args=(number,), daemon=True))
                    self.threads[-1].start()
            elif step.kind == "cancel" and self.tasks:
                self.tasks[step.number % len(self.tasks)][1].cancel()
            elif step.kind == "go on":
                self.syncs.release()
                await asyncio.sleep(0.0005)
            elif step.kind == "until a sync":
                for _ in range(20):
                    if not self.syncing.is_set():
                        await asyncio.sleep(0.0001)
            elif step.kind == "turns":
                for _ in range(step.number):
                    await asyncio.sleep(0)
            elif step.kind == "close" and not self.closed:
                self.closed = True
                self.let_all_go_on()
                self.store.close()
        self.let_all_go_on()
        for number, task in self.tasks:
            done, _ = await asyncio.wait([task], timeout=PATIENCE)
            assert done, "a task hangs"
            if task.cancelled():
                self.outcomes[number] = "cancelled", False  # before it has begun
            else:
                task.result()
        for thread in self.threads:
            await asyncio.to_thread(thread.join, PATIENCE)
            assert not thread.is_alive(), "a thread hangs"

    def check(self) -> None:
        values = self.family._family.values
        made = [int(key[7:]) for key in values if key.startswith(b"commit ")]  # a dict keeps the order of the commits
        state: dict[bytes, bytes] = {b"first": b""}
        read: dict[int, bytes | None] = {}
        for number in made:
            commit = self.commits[number]
            read[number] = None if commit.source is None else state.get(commit.source)
            state[commit.target] = applied(commit, number, read[number])
            state[marker(number)] = b""
        assert values == state, "the commits in their order do not explain what is there"
        assert set(self.outcomes) == set(range(len(self.commits)))
        for number, (kind, value) in self.outcomes.items():
            event(f"{kind} {value if kind == 'cancelled' else ''}")
            if kind == "done":
                assert number in read, "acknowledged and not there"
                assert value == read[number], "it has read what was never there"
            elif kind == "cancelled":
                assert value == (number in read), "it was cancelled and not settled"
            else:
                assert number not in read, "refused and there"
                assert kind == "ClosedError" or self.commits[number].source is not None, "a blind write conflicts"
                assert kind != "ClosedError" or self.closed
        assert self.blocked == [], "the loop was blocked by a sync"
        if not self.closed:
            assert self.store.stats().views == 0
            self.store.close()
        assert not self.memory.locks
        assert not [thread for thread in threading.enumerate() if thread.name == "pystate-deputy"]
        with pystate.open(DIRECTORY, files=MemoryFiles().restore(DIRECTORY, self.memory.image())) as again:
            assert dict(again.family("default")) == state


def told(*kinds: str) -> list[Step]:
    """A history of commits with a sync, and what happens to the first task."""
    return [Step(kind, Commit(b"x", b"x", "sync", 50), 0) for kind in kinds]  # type: ignore[arg-type]


@example(told("task", "until a sync", "cancel", "cancel"))
@example(told("thread", "until a sync", "task", "turns", "go on", "until a sync", "cancel", "task", "close"))
@given(histories)
@settings(max_examples=200)
def test_any_history_of_tasks_and_threads_is_explained_by_the_commits_in_their_order(history: list[Step]) -> None:
    """Guarantees 1 to 4 for awaited commits; and nobody hangs, whatever is cancelled, held up or closed."""
    world = World()
    try:
        asyncio.run(world.happen(history))
    finally:
        world.let_all_go_on()
    world.check()
