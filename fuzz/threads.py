"""Random small programs of several threads, in random orders of their steps; with ``--stress``, at full speed.

The threads commit, read in transactions, views and scans, take snapshots, make and drop a family, and close the store.
Every commit writes one mark to two keys of two families and counts it in a third place, so that in any state all of
them agree; whoever reads sees only such states, never an older one after a newer one, and its own commits. In the end
the count is that of the commits that succeeded, and what is on the disk is what the store showed.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pystate
from fuzz._harness import Coverage, ViolationError, main
from pystate import ClosedError, ConflictError, FamilyExistsError, FamilyNotFoundError, Store
from pystate.testing import InterleavingError, Scenario, SimulatedDisk, YieldingFiles, explore
from pystate.testing.history import State, read_state
from pystate.testing.interleavings import replay
from pystate.testing.oracle import PATH

__all__ = ["play"]

_SEPARATOR = " :: "
_STRESS = "stress:"
_ORDERS = 25
_ACTIONS = {
    "commit": 6,
    "put": 3,
    "scan": 3,
    "view": 3,
    "transaction": 3,
    "snapshot": 2,
    "sync": 1,
    "create": 1,
    "drop": 1,
    "stats": 1,
}
_OTHER = "other"
_EXTRA = "extra"


class _Reads(Protocol):
    def get(self, family: str, key: bytes) -> bytes | None: ...


@dataclass
class _World:
    """What the threads of one run share.

    Attributes:
        committed: how many transactions have counted.
        puts: the newest value that each thread has put under its own key.
    """

    store: Store
    coverage: Coverage
    committed: list[int] = field(default_factory=list)
    puts: dict[bytes, bytes] = field(default_factory=dict)


def _make(path: str, files: pystate.Files | None = None) -> None:
    """A store that all commits have left in order, and of which a part stands in a snapshot."""
    with pystate.open(path, files=files, snapshot_log_bytes=1 << 40) as store:
        store.create_family(_OTHER)
        with store.begin() as txn:
            for name in ("default", _OTHER):
                txn.put(name, b"mark a", b"0")
                txn.put(name, b"mark b", b"0")
            txn.put("default", b"count", b"0")
        store.snapshot()


def _agree(values: Mapping[str, bytes | None], seen: int, who: str) -> int:
    """All marks are those of one commit, and not of an older one than seen before; return its number."""
    if len(set(values.values())) != 1:
        raise ViolationError(f"{who} shows parts of several commits: {dict(values)}")
    number = int(next(iter(values.values())) or -1)
    if number < seen:
        raise ViolationError(f"{who} shows commit {number} after {seen}")
    return number


def _marks(reads: _Reads) -> dict[str, bytes | None]:
    found = {f"{name} {key!r}": reads.get(name, key) for key in (b"mark a", b"mark b") for name in ("default", _OTHER)}
    return found | {"count": reads.get("default", b"count")}


class _Thread:
    """One thread of a program: what it does, one after the other."""

    def __init__(self, world: _World, number: int, actions: list[str]) -> None:
        self._world, self._store = world, world.store
        self._key = b"of thread %d" % number
        self._actions = actions
        self._seen = 0
        self._puts = 0

    def __call__(self) -> None:
        for action in self._actions:
            try:
                self._do(action)
            except ClosedError:
                self._world.coverage.saw(f"{action}: closed")
                return
            self._world.coverage.saw(action)

    def _do(self, action: str) -> None:
        store = self._store
        if action == "commit":
            try:
                self._commit()
            except ConflictError:
                self._world.coverage.saw("commit: conflict")
        elif action == "put":
            self._puts += 1
            value = b"%d" % self._puts
            store.family("default").put(self._key, value)
            self._world.puts[self._key] = value
            if store.family("default").get(self._key) != value:
                raise ViolationError("a thread does not see what it has put")
        elif action == "scan":
            found = dict(store.family("default").scan(prefix=b"mark"))
            count = store.family("default").scan(b"count", reverse=True)
            marks: dict[str, bytes | None] = {f"{key!r}": value for key, value in found.items()}
            self._seen = _agree(marks, self._seen, "a scan")
            entries = dict(count)
            values = {key: entries.get(key.encode()) for key in ("count", "mark a", "mark b")}
            self._seen = _agree(values, self._seen, "a scan backwards")
        elif action == "view":
            with store.view() as view:
                first = _agree(_marks(view), self._seen, "a view")
                if _agree(_marks(view), first, "a view, later") != first:
                    raise ViolationError("a view has changed")
            self._seen = first
        elif action == "transaction":
            with store.begin() as txn:
                self._seen = _agree(_marks(txn), self._seen, "a transaction")
        elif action == "snapshot":
            store.snapshot()
        elif action == "sync":
            store.sync()
        elif action == "stats":
            store.stats()
        elif action == "close":
            store.close()
        else:
            self._change_catalogue(action)

    def _commit(self) -> None:
        with self._store.begin() as txn:
            number = _agree(_marks(txn), self._seen, "a transaction") + 1
            value = b"%d" % number
            for key in (b"mark a", b"mark b"):
                for name in ("default", _OTHER):
                    txn.put(name, key, value)
            txn.put("default", b"count", value)
        self._world.committed.append(number)
        self._seen = number

    def _change_catalogue(self, action: str) -> None:
        try:
            if action == "create":
                self._store.create_family(_EXTRA).put(b"k", b"v")
            else:
                self._store.family(_EXTRA).get(b"k")
                self._store.drop_family(_EXTRA)
        except (FamilyExistsError, FamilyNotFoundError) as error:
            self._world.coverage.saw(f"{action}: {type(error).__name__}")


def _check(world: _World, found: State, shown: State | None) -> None:
    """What is on the disk in the end."""
    if shown is not None and shown != found:
        raise ViolationError(f"the store showed {shown}, and on the disk is {found}")
    default, other = found["default"], found[_OTHER]
    marks = {
        f"{key!r} {at}": entries.get(key)
        for key in (b"mark a", b"mark b")
        for at, entries in enumerate((default, other))
    }
    number = _agree({**marks, "count": default.get(b"count")}, 0, "the disk")
    if sorted(world.committed) != list(range(1, number + 1)):
        raise ViolationError(f"commits {sorted(world.committed)} had succeeded, and the disk shows {number}")
    for key, value in world.puts.items():
        if default.get(key) != value:
            raise ViolationError(f"{key!r} was put to {value!r}, and the disk shows {default.get(key)!r}")


def _plan(source: random.Random, threads: int, longest: int) -> list[list[str]]:
    actions, weights = list(_ACTIONS), list(_ACTIONS.values())
    plan = [source.choices(actions, weights, k=source.randint(1, longest)) for _ in range(threads)]
    if source.random() < 0.25:
        plan[source.randrange(threads)].append("close")
    return plan


def play(line: str, coverage: Coverage) -> None:
    """Play one case: a program in several orders, in one order if the line tells which, or at full speed."""
    if line.startswith(_STRESS):
        _stress(line, coverage)
        return
    text, separator, order = line.partition(_SEPARATOR)
    source = random.Random(f"threads {text}")
    plan = _plan(source, source.choice((2, 2, 3)), 4)
    image = _image()

    def program() -> Scenario:
        disk = SimulatedDisk(text)
        disk.put(image)
        world = _World(pystate.open(PATH, files=YieldingFiles(disk), snapshot_log_bytes=1 << 40), coverage)

        def check() -> None:
            shown = None
            if not any("close" in actions for actions in plan):
                shown = read_state(world.store)
            world.store.close()
            copy = SimulatedDisk(text)
            copy.put(disk.files())
            with pystate.open(PATH, files=copy, snapshot_log_bytes=1 << 40) as store:
                _check(world, read_state(store), shown)

        threads = {f"thread {number}": _Thread(world, number, actions) for number, actions in enumerate(plan)}
        return Scenario(threads, check, timeouts="never")

    try:
        if separator:
            replay(program, order)
            return
        explored = explore(program, orders="random", budget=_ORDERS, seed=source.randrange(1 << 30))
    except InterleavingError as error:
        story = "\n".join(f"thread {number}: {', '.join(actions)}" for number, actions in enumerate(plan))
        raise ViolationError(f"{story}\n{error}", f"{text}{_SEPARATOR}{error.line}") from error
    coverage.count("orders", explored.orders)
    coverage.count("steps", explored.steps)


def _image() -> dict[str, bytes]:
    disk = SimulatedDisk()
    _make(PATH, disk)
    return disk.files()


def _stress(line: str, coverage: Coverage) -> None:
    """The same at full speed, on the real disk; which order the threads run in is chance."""
    source = random.Random(f"threads {line}")
    plan = _plan(source, source.randint(2, 6), 60)
    with tempfile.TemporaryDirectory(prefix="pystate-fuzz-") as directory:
        path = str(Path(directory, "store"))
        _make(path)
        durability = source.choice(("process", "process", "sync"))
        log_bytes = source.choice((2_000, 1 << 40))
        store = pystate.open(
            path, durability="sync" if durability == "sync" else "process", snapshot_log_bytes=log_bytes
        )
        world, failures = _World(store, coverage), list[BaseException]()

        def guarded(thread: Callable[[], None]) -> None:
            try:
                thread()
            except BaseException as error:  # told to the thread that waits
                failures.append(error)

        threads = [
            threading.Thread(target=guarded, args=(_Thread(world, number, actions),), daemon=True)
            for number, actions in enumerate(plan)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
            if thread.is_alive():
                raise ViolationError("a thread has not ended within a minute")
        coverage.count("actions", sum(map(len, plan)))
        if failures:
            raise ViolationError(f"{type(failures[0]).__name__}: {failures[0]}") from failures[0]
        store.close()
        with pystate.open(path) as again:
            _check(world, read_state(again), None)


if __name__ == "__main__":
    raise SystemExit(main("threads", play, modes=["stress"]))
