"""`History`: what a program was told about its commits; `Recorder`: a thin wrapper that writes it down.

Promise: each commit is *started* before the store is asked for it, and then *acknowledged* (it returned), *aborted*
(an error that says nothing was written), or *unknown* (any other error: it may be there or not). Each of these is noted
with the number of operations the disk had done, so `History.at` tells what the program knew at the moment of a crash.

From this, `History.allowed` gives every state a store may have after a crash:

- what survives is a prefix of the commits, in their order, aborted ones left out; a commit whose outcome is unknown,
  or that had not returned yet, may be in it or not;
- the death of the process takes no acknowledged commit;
- power loss takes no commit acknowledged with durability ``"sync"``, none acknowledged before such a one, and none
  acknowledged before `pystate.Store.sync` or `pystate.Store.close` returned;
- a sync that fails and loses pages is power loss for what was not durable: the newest such commits may be gone,
  whatever follows when the store has been opened again.

One thread at a time may record commits: their order is that in which they were started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from pystate import Durability, Store
from pystate.errors import PystateError, StoreFailedError
from pystate.testing.disk import SimulatedDisk

__all__ = ["Commit", "History", "Outcome", "Recorder", "State", "Writes", "read_state"]

Writes: TypeAlias = Mapping[str, Mapping[bytes, bytes | None]]
"""What a commit writes: for each family the keys with their values, None for a deletion."""

State: TypeAlias = dict[str, dict[bytes, bytes]]
"""All entries of all families."""

Outcome: TypeAlias = Literal["started", "acknowledged", "unknown", "aborted"]


@dataclass
class Commit:
    """One commit, as the program knows it.

    Attributes:
        number: from 1 on, in the order of their beginning.
        writes: what it writes.
        created, dropped: families it makes and removes.
        durability: with which it was asked for.
        outcome: so far.
        started_at, ended_at: how many operations the disk had done; `ended_at` is None while it is ``"started"``.
        sequence: that the store gave it, where known.
    """

    number: int
    writes: Writes
    created: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    durability: Durability = "sync"
    outcome: Outcome = "started"
    started_at: int = 0
    ended_at: int | None = None
    sequence: int | None = None

    def apply(self, state: State) -> State:
        """`state` after this commit."""
        after = {name: entries for name, entries in state.items() if name not in self.dropped}
        after.update((name, {}) for name in self.created)
        for name, writes in self.writes.items():
            entries = dict(after.get(name, {}))
            for key, value in writes.items():
                if value is None:
                    entries.pop(key, None)
                else:
                    entries[key] = value
            after[name] = entries
        return after

    def __str__(self) -> str:
        return f"commit {self.number} ({self.outcome}, {self.durability})"


@dataclass
class History:
    """The commits of one program, and what it was told of each.

    Attributes:
        disk: whose operations are counted; None counts none, for a real disk.
        initial: what the store held before the first commit.
        commits: in the order of their beginning.
        synced: for each `Store.sync` or `Store.close` that returned: the operations done then, and how many commits had
            been started.
        lost: the same for each time that the disk has lost pages in a sync, and has said so.
    """

    disk: SimulatedDisk | None = None
    initial: State = field(default_factory=lambda: {"default": {}})
    commits: list[Commit] = field(default_factory=list)
    synced: list[tuple[int, int]] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    _losses: int = field(default=0, repr=False, compare=False)
    _version: int = field(default=0, repr=False, compare=False)
    _known: dict[tuple[int, int, bool, bool], list[State]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def position(self) -> int:
        """How many operations the disk has done."""
        return 0 if self.disk is None else self.disk.position

    # Writing it down

    def start(
        self,
        writes: Writes,
        *,
        created: tuple[str, ...] = (),
        dropped: tuple[str, ...] = (),
        durability: Durability = "sync",
    ) -> Commit:
        """Note that a commit is going to be asked for."""
        self._version += 1
        copied = {name: dict(entries) for name, entries in writes.items()}
        commit = Commit(len(self.commits) + 1, copied, created, dropped, durability, started_at=self.position)
        self.commits.append(commit)
        return commit

    def end(self, commit: Commit, outcome: Outcome, sequence: int | None = None) -> None:
        """Note what became of it."""
        self._version += 1
        commit.outcome, commit.ended_at, commit.sequence = outcome, self.position, sequence

    def note_sync(self) -> None:
        """Note that everything acknowledged so far is durable now."""
        self._version += 1
        self.synced.append((self.position, len(self.commits)))

    def note_failure(self) -> None:
        """Note that something has failed: if the disk has lost pages since, what was not durable may be gone."""
        if self.disk is not None and self.disk.losses != self._losses:
            self._version += 1
            self._losses = self.disk.losses
            self.lost.append((self.position, len(self.commits)))

    @contextmanager
    def failing(self) -> Iterator[None]:
        """`note_failure` if the block raises; the exception goes on."""
        try:
            yield
        except BaseException:
            self.note_failure()
            raise

    @contextmanager
    def ending(self, commit: Commit) -> Iterator[None]:
        """Decide the outcome of `commit` by how the block ends; exceptions go on."""
        try:
            yield
        except BaseException as error:
            self.end(commit, "aborted" if says_nothing_was_written(error) else "unknown")
            self.note_failure()
            raise
        self.end(commit, "acknowledged")

    # Asking it

    def at(self, operation: int) -> History:
        """The history as the program knew it when the disk had done so many operations."""
        commits = []
        for commit in self.commits:
            if commit.started_at <= operation:
                known = commit.ended_at is not None and commit.ended_at <= operation
                commits.append(commit if known else replace(commit, outcome="started", ended_at=None, sequence=None))
        synced = [one for one in self.synced if one[0] <= operation]
        return History(None, self.initial, commits, synced, [one for one in self.lost if one[0] <= operation])

    def required(self, *, power_loss: bool) -> int:
        """How many commits, in their order, must have survived (but for those among them that may be in or out)."""
        count = 0
        for commit in self.commits:
            if commit.outcome == "acknowledged" and (not power_loss or commit.durability == "sync"):
                count = commit.number
        return max([count, *(started for _, started in self.synced)])

    def allowed(self, *, power_loss: bool = True, lossless: bool = True) -> list[State]:
        """Every state that a store may have after a crash.

        Arguments:
            power_loss: a power cut; else the death of the process.
            lossless: False allows every prefix, also one that lacks acknowledged commits.
        """
        required = self.required(power_loss=power_loss) if lossless else 0
        events = sorted([(*one, True) for one in self.synced] + [(*one, False) for one in self.lost])
        now = [self.initial]  # after the commits so far
        since = now  # after any of those that were not durable
        found: list[State] = []
        for number in range(len(self.commits) + 1):
            if number:
                commit = self.commits[number - 1]
                if commit.outcome != "aborted":
                    after = [commit.apply(state) for state in now]
                    now = after if commit.outcome == "acknowledged" else _union(now, after)
                durable = commit.outcome == "acknowledged" and commit.durability == "sync"
                since = now if durable else _union(since, now)
            for synced in [synced for _, started, synced in events if started == number]:
                if synced:
                    since = now
                else:
                    now = since
            if number >= required:
                found = _union(found, now)
        return found

    def allowed_at(self, operation: int, *, power_loss: bool = True, lossless: bool = True) -> list[State]:
        """``at(operation).allowed(...)``; quick when asked again."""
        key = self._version, operation, power_loss, lossless
        if key not in self._known:
            self._known[key] = self.at(operation).allowed(power_loss=power_loss, lossless=lossless)
        return self._known[key]

    def live(self) -> State:
        """What an open store shows now, if no outcome is unknown.

        Raises:
            ValueError: one is.
        """
        state = self.initial
        for commit in self.commits:
            if commit.outcome in ("unknown", "started"):
                raise ValueError(f"{commit}: what the store shows cannot be known")
            if commit.outcome == "acknowledged":
                state = commit.apply(state)
        return state

    def writers(self, family: str, key: bytes, value: bytes | None) -> list[Commit]:
        """The commits that have written this value."""
        missing = object()
        return [one for one in self.commits if one.writes.get(family, {}).get(key, missing) == value]


def _union(states: list[State], more: list[State]) -> list[State]:
    return states + [state for state in more if state not in states]


def says_nothing_was_written(error: BaseException) -> bool:
    """Whether an exception of a commit promises that nothing of it will ever be there."""
    if isinstance(error, StoreFailedError):
        return not error.unknown
    return isinstance(error, (PystateError, ValueError, TypeError))


def read_state(store: Store) -> State:
    """All entries of all families of an open store."""
    return {name: dict(store.family(name).scan()) for name in store.families}


class Recorder:
    """Writes to a store, and to a `History` what came of it. Not for several threads at once.

    Arguments:
        store: an open store.
        history: None begins a new one.

    What a method raises, it raises after it has been noted.
    """

    def __init__(self, store: Store, history: History | None = None) -> None:
        self.store = store
        self.history = History() if history is None else history

    def commit(self, writes: Writes, *, durability: Durability | None = None) -> int:
        """Commit `writes` in one transaction, without reading; return the sequence."""
        wanted = self.store.durability if durability is None else durability
        commit = self.history.start(writes, durability=wanted)
        with self.history.ending(commit):
            txn = self.store.begin(durability=wanted)
            for name, entries in writes.items():
                for key, value in entries.items():
                    if value is None:
                        txn.delete(name, key)
                    else:
                        txn.put(name, key, value)
            sequence = txn.commit()
        commit.sequence = sequence
        return sequence

    def put(self, key: bytes, value: bytes, *, family: str = "default") -> None:
        """``store.family(family).put(key, value)``."""
        with self._one(family, key, value):
            self.store.family(family).put(key, value)

    def delete(self, key: bytes, *, family: str = "default") -> None:
        """``store.family(family).delete(key)``."""
        with self._one(family, key, None):
            self.store.family(family).delete(key)

    @contextmanager
    def _one(self, family: str, key: bytes, value: bytes | None) -> Iterator[None]:
        commit = self.history.start({family: {key: value}}, durability=self.store.durability)
        with self.history.ending(commit):
            yield
        commit.sequence = self.store.sequence

    def create_family(self, name: str) -> None:
        """``store.create_family(name)``."""
        self._change(lambda: self.store.create_family(name), created=(name,))

    def drop_family(self, name: str) -> None:
        """``store.drop_family(name)``."""
        self._change(lambda: self.store.drop_family(name), dropped=(name,))

    def _change(
        self, action: Callable[[], object], *, created: tuple[str, ...] = (), dropped: tuple[str, ...] = ()
    ) -> None:
        with self.history.ending(self.history.start({}, created=created, dropped=dropped)):
            action()

    def sync(self) -> None:
        """``store.sync()``."""
        with self.history.failing():
            self.store.sync()
        self.history.note_sync()

    def snapshot(self) -> None:
        """``store.snapshot()``, which syncs, too."""
        with self.history.failing():
            self.store.snapshot()
        self.history.note_sync()

    def close(self) -> None:
        """``store.close()``; a store that has failed makes nothing durable by it."""
        failed = self.store.stats().failed is not None
        with self.history.failing():
            self.store.close()
        if not failed:
            self.history.note_sync()
