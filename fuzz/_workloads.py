"""Random programs on a `SimulatedDisk`, written down in a `History`; for the fuzzers of crashes and of faults.

All that a program does follows from its seed and from what the disk answers. It uses one thread, and no snapshot is
taken but on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pystate
from pystate import Durability, Store
from pystate.errors import PystateError
from pystate.testing import History, Recorder, SimulatedDisk
from pystate.testing.history import State
from pystate.testing.oracle import PATH

__all__ = ["DURABILITIES", "Interrupt", "Workload", "random_key", "random_value"]

DURABILITIES: tuple[Durability, Durability] = ("sync", "process")
_NAMES = ("one", "two", "three")
_KEYS = (b"", b"a", b"b", b"c", b"ab", b"\x00", b"\xff", b"\xff\xff", b"k" * 300)
_SIZES = (0, 1, 5, 30, 400, 512, 1500)
_VALUE_BYTES = bytes(range(256)) * 8


class Interrupt(KeyboardInterrupt):
    """An interrupt that was injected, not one of the person at the keyboard."""


def random_key(source: random.Random) -> bytes:
    """One of a few keys, so that programs meet the same ones again."""
    return source.choice(_KEYS)


def random_value(source: random.Random, sizes: tuple[int, ...] = _SIZES) -> bytes:
    """A value of one of a few sizes, around a sector too."""
    at = source.randrange(256)
    return _VALUE_BYTES[at : at + source.choice(sizes)]


class Workload:
    """One random program. Called with a disk, it runs and returns its history.

    Arguments:
        seed: of everything it draws.
        steps: how many steps it takes.
        initial: what the store on the disk holds already; None if there is none.
        faulty: calls of the disk may fail, and the program goes on after every error.
        kills: the process may die in between, and another one open the store.
    """

    def __init__(
        self, seed: str, *, steps: int, initial: State | None = None, faulty: bool = False, kills: bool = True
    ) -> None:
        self.seed = seed
        self.steps = steps
        self.initial = {"default": {}} if initial is None else initial
        self.faulty = faulty
        self.kills = kills

    def __call__(self, disk: SimulatedDisk, inject: Callable[[int], object] | None = None) -> History:
        """Run it.

        Arguments:
            disk: where.
            inject: called with the number of each step before it.
        """
        history = History(disk, self.initial)
        _Run(disk, history, random.Random(self.seed), self).run(inject)
        return history


class _Run:
    """One run of a workload."""

    def __init__(self, disk: SimulatedDisk, history: History, source: random.Random, workload: Workload) -> None:
        self._disk = disk
        self._history = history
        self._source = source
        self._workload = workload
        self._store: Store | None = None
        self._dead: list[Store] = []  # of processes that were killed: nothing of them may be cleaned up

    def run(self, inject: Callable[[int], object] | None) -> None:
        for step in range(self._workload.steps):
            if inject is not None:
                inject(step)
            with self._surviving():
                self._step()
        store = self._store
        if store is not None and (self._workload.faulty or self._source.random() < 0.7):
            with self._surviving():
                Recorder(store, self._history).close()
            for _ in range(2):  # what was interrupted is done again
                with self._surviving():
                    store.close()

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Go on after an error, if the disk is a faulty one."""
        try:
            yield
        except (PystateError, OSError, Interrupt, MemoryError):
            if not self._workload.faulty:
                raise

    def _open(self) -> None:
        self._store = pystate.open(
            PATH, files=self._disk, durability=self._source.choice(DURABILITIES), snapshot_log_bytes=1 << 40
        )

    def _step(self) -> None:
        if self._store is None:
            self._open()
        store, source = self._store, self._source
        assert store is not None
        recorder = Recorder(store, self._history)
        families = store.families
        what = source.choices(_STEPS, _WEIGHTS)[0]
        if what == "put":
            recorder.put(random_key(source), random_value(source), family=source.choice(families))
        elif what == "delete":
            recorder.delete(random_key(source), family=source.choice(families))
        elif what == "commit":
            recorder.commit(self._writes(families), durability=source.choice(DURABILITIES))
        elif what == "create":
            free = [name for name in _NAMES if name not in families]
            if free:
                recorder.create_family(source.choice(free))
        elif what == "drop":
            if len(families) > 1:
                recorder.drop_family(source.choice([name for name in families if name != "default"]))
        elif what == "sync":
            recorder.sync()
        elif what == "snapshot":
            recorder.snapshot()
        elif what == "reopen":
            self._store = None
            try:
                recorder.close()
            except (Interrupt, MemoryError):
                self._store = store  # to be closed again
                raise
        elif what == "die" and self._workload.kills:
            self._disk.kill()
            self._dead.append(store)
            self._store = None

    def _writes(self, families: tuple[str, ...]) -> dict[str, dict[bytes, bytes | None]]:
        source = self._source
        writes: dict[str, dict[bytes, bytes | None]] = {}
        for _ in range(source.randint(1, 6)):
            value = None if source.random() < 0.3 else random_value(source)
            writes.setdefault(source.choice(families), {})[random_key(source)] = value
        return writes


_STEPS = ("put", "delete", "commit", "create", "drop", "sync", "snapshot", "reopen", "die")
_WEIGHTS = (6, 2, 6, 2, 1, 1, 2, 2, 1)
