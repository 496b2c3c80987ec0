"""Every state that a crash at any moment of a program may leave, one after the other; the fault model is in ``disk``.

Promise: the program (a *workload*: a function of a `SimulatedDisk`) runs once. Every disk that a crash after any of its
operations could leave at a `Level` is then made from the record of that run: all of them, each once for each moment, if
there are no more than the budget; else a sample, the same for the same seed, in which each moment has its share, and
"everything kept" and "nothing kept" are there where it is more than two. `CrashStates.exhaustive` says which it was.

What a crash in the middle of an operation leaves is among the states of the moment before or after it; a long write
that a kill cuts short is a state of the moment before the write.

A workload must be deterministic: one thread, no real time, all I/O through the disk. `check`, in ``checking``, looks at
every state and shrinks what fails; `replay` makes one state again from the line that a failure prints.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from pystate.testing.aftermath import Aftermath, Choice, parse_choice, write_choice
from pystate.testing.device import Operation
from pystate.testing.disk import SimulatedDisk
from pystate.testing.nodes import Tree
from pystate.testing.outcomes import Level
from pystate.testing.recording import Moment, Recording, cut_short, killed, record

__all__ = ["BUDGET", "CrashState", "CrashStates", "crash_here", "crash_states", "make_state", "replay"]

BUDGET = 10_000
"""How many states `crash_states` makes at most, by default."""


class CrashState:
    """A disk as a crash has left it. `open_disk` makes a `SimulatedDisk` of it, as often as wanted.

    Attributes:
        operation: how many operations of the workload had been done. Whatever the workload was told before the next
            one, it may rely on.
        level: of the crash.
        choice: what was lost; see ``aftermath``.
        outer: for a crash in the recovery from another crash: that crash, else None.
        recording: the run of the workload, or of the recovery, in which the crash came.
        seed: of the run.
    """

    def __init__(
        self,
        recording: Recording[Any],
        moment: Moment,
        level: Level,
        choice: Choice,
        seed: int | str,
        tree: Tree,
        outer: CrashState | None,
    ) -> None:
        self.operation = moment.operation
        self.level = level
        self.choice = choice
        self.outer = outer
        self.seed = seed
        self.recording = recording
        self._tree = tree

    @property
    def result(self) -> Any:
        """What the (outermost) workload returned."""
        return self.recording.result if self.outer is None else self.outer.result

    @property
    def first(self) -> CrashState:
        """The outermost crash: the one in the workload itself."""
        return self if self.outer is None else self.outer.first

    def open_disk(self) -> SimulatedDisk:
        """A new disk in this state, on which nothing has happened yet; its random bytes are others than before."""
        disk = self.recording.disk
        return SimulatedDisk.of(self._tree, like=disk, seed=f"{disk.seed} {self.operation}")

    def files(self) -> dict[str, bytes]:
        """The content of every file by path."""
        return self._tree.files()

    @cached_property
    def replay(self) -> str:
        """The line from which `replay` makes this state again."""
        line = f"seed={self.seed} level={self.level.value} operation={self.operation} lost={write_choice(self.choice)}"
        return line if self.outer is None else f"{self.outer.replay} | {line}"

    @property
    def description(self) -> str:
        """In words: where the crash came, and what it took."""
        trace = self.recording.trace
        before = f"after {trace[self.operation - 1]}" if self.operation else "before the first operation"
        if self.level is Level.KILL:
            lost = "the next write was cut short" if self.choice else "everything kept"
        else:
            moment = self.recording.moment(self.operation)
            lost = Aftermath(moment.tree, self.level, self.seed).describe(self.choice)
        return f"crash ({self.level.value}) {' '.join(before.split())}\n{lost}"

    def trace(self, count: int = 40) -> list[Operation]:
        """The last `count` operations before the crash that changed something or failed."""
        reading = ("open_read", "read_at", "list_directory", "kind", "size", "close", "still_held", "release")
        done = self.recording.trace[: self.operation]
        return [one for one in done if one.name not in reading or one.error is not None][-count:]

    def __repr__(self) -> str:
        return f"<CrashState {self.replay}>"


class CrashStates:
    """What `crash_states` returns: an iterable of states, and what is known about all of them.

    Attributes:
        recording: the run of the workload; `Recording.result` is what it returned.
        possible: how many states there are at most, nested ones left out.
        exhaustive: all of them are made (nested ones left out).
    """

    def __init__(
        self,
        recording: Recording[Any],
        levels: Sequence[Level],
        *,
        budget: int | None,
        seed: int | str,
        recovery: Callable[[SimulatedDisk], object] | None,
        nested_budget: int,
        outer: CrashState | None = None,
    ) -> None:
        self.recording = recording
        self._level, *self._inner = levels
        self._seed = seed
        self._recovery = recovery
        self._nested_budget = nested_budget
        self._outer = outer
        self._draws = f"{seed} {outer.replay}" if outer is not None else f"{seed}"
        self._counts = [self._count(moment) for moment in recording.moments()]
        self.possible = sum(self._counts)
        self.exhaustive = budget is None or self.possible <= budget
        self._shares = self._counts if budget is None or self.exhaustive else _shares(self._counts, budget, self._draws)

    def __iter__(self) -> Iterator[CrashState]:
        moments = zip(self.recording.moments(), self._counts, self._shares, strict=True)
        for moment, count, share in moments:
            for choice, tree in self._of(moment, share if share < count else None) if share else ():
                state = CrashState(self.recording, moment, self._level, choice, self._seed, tree, self._outer)
                yield state
                if self._inner and self._recovery is not None:
                    yield from CrashStates(
                        record(self._recovery, state.open_disk(), catch=True),
                        self._inner,
                        budget=self._nested_budget,
                        seed=self._seed,
                        recovery=self._recovery,
                        nested_budget=self._nested_budget,
                        outer=state,
                    )

    def sampled(self, share: int, *, before: int) -> Iterator[CrashState]:
        """States of the moments before operation `before`, at most `share` of each, the earliest first."""
        for moment, count in zip(self.recording.moments(), self._counts, strict=True):
            if moment.operation >= before:
                return
            for choice, tree in self._of(moment, share if share < count else None):
                yield CrashState(self.recording, moment, self._level, choice, self._seed, tree, self._outer)

    def _count(self, moment: Moment) -> int:
        if self._level is Level.KILL:
            return 1 + max(len(cut_short(moment)) - 1, 0)
        return self._aftermath(moment).count()

    def _aftermath(self, moment: Moment) -> Aftermath:
        return Aftermath(moment.tree, self._level, self._seed, self.recording.cache)

    def _of(self, moment: Moment, share: int | None) -> Iterator[tuple[Choice, Tree]]:
        """The states of a moment: all, or a sample of so many."""
        if self._level is Level.KILL:
            cuts = len(cut_short(moment))
            choices = [Choice(), *({"k": str(cut)} for cut in range(1, cuts))]
            for choice in choices[:share]:
                yield choice, killed(moment, choice)
            return
        aftermath = self._aftermath(moment)
        choices_ = aftermath.choices() if share is None else self._sample(aftermath, moment, share)
        for choice in choices_:
            yield choice, aftermath.build(choice)

    def _sample(self, aftermath: Aftermath, moment: Moment, share: int) -> Iterator[Choice]:
        source = random.Random(f"{self._draws} {moment.operation}")
        extremes: tuple[Choice, ...] = ({}, aftermath.nothing()) if share > 2 else ()
        seen = set()
        for attempt in range(4 * share):
            choice = extremes[attempt] if attempt < len(extremes) else aftermath.draw(source)
            fingerprint = aftermath.fingerprint(choice)
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield choice
                if len(seen) == share:
                    return


def crash_states(
    workload: Callable[[SimulatedDisk], object],
    *,
    level: Level = Level.SECTORS,
    budget: int | None = BUDGET,
    seed: int | str = 0,
    disk: SimulatedDisk | None = None,
    nested: int = 0,
    recovery: Callable[[SimulatedDisk], object] | None = None,
    nested_levels: Sequence[Level] | None = None,
    nested_budget: int = 8,
) -> CrashStates:
    """Run `workload` once, and return every state, or a sample, that a crash at any operation of it could leave.

    Arguments:
        workload: called with a disk; deterministic, and in one thread. It may leave files and stores open.
        level: how much the crash may take.
        budget: how many states at most; None for all of them, however many.
        seed: of the disk, of garbage, and of the sample.
        disk: what the workload starts from, a copy of which is used; None for an empty disk.
        nested: how deep crashes in the recovery from a crash go; 0 for none.
        recovery: what is run, and crashed again, on each state; required with `nested`. What it raises is ignored here.
        nested_levels: the level of the crash at each depth; None for `level` at each.
        nested_budget: how many states at most are made for the recovery from one state.

    Returns:
        An iterable of `CrashState`; each iteration makes the same ones. A nested state follows the one it comes from.

    Raises:
        ValueError: `nested` without `recovery`, or with a number of levels that is not `nested`.
        Whatever `workload` raises.
    """
    inner = tuple(nested_levels) if nested_levels is not None else (level,) * nested
    if len(inner) != nested or (nested and recovery is None):
        raise ValueError("nested crashes need a recovery, and a level for each depth")
    return CrashStates(
        record(workload, SimulatedDisk(seed) if disk is None else disk.clone()),
        (level, *inner),
        budget=budget,
        seed=seed,
        recovery=recovery,
        nested_budget=nested_budget,
    )


def crash_here(
    disk: SimulatedDisk, *, level: Level = Level.SECTORS, budget: int | None = BUDGET, seed: int | str = 0
) -> CrashStates:
    """Every state, or a sample, that a crash of `disk` right now could leave; the disk itself goes on undisturbed."""
    recording = record(lambda _: None, disk.clone())
    return CrashStates(recording, (level,), budget=budget, seed=seed, recovery=None, nested_budget=0)


def replay(
    workload: Callable[[SimulatedDisk], object],
    line: str,
    *,
    disk: SimulatedDisk | None = None,
    recovery: Callable[[SimulatedDisk], object] | None = None,
) -> CrashState:
    """Run `workload` again and make the one state that a failure has printed.

    Arguments:
        workload, disk, recovery: the same as in the run that failed.
        line: `CrashState.replay`.

    Raises:
        ValueError: it is no such line, or it belongs to another workload, or `recovery` is missing.
    """
    state: CrashState | None = None
    for text in line.split(" | "):
        found = re.fullmatch(r"seed=(.*) level=([a-z-]+) operation=([0-9]+) lost=(\S+)", text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not what a failure has printed")
        seed = int(found[1]) if re.fullmatch(r"-?[0-9]+", found[1]) else found[1]
        level = Level(found[2])
        if state is None:
            recording = record(workload, SimulatedDisk(seed) if disk is None else disk.clone())
        elif recovery is not None:
            recording = record(recovery, state.open_disk(), catch=True)
        else:
            raise ValueError("this line is of a crash in a recovery, which must be given")
        state = make_state(recording, int(found[3]), level, found[4], seed, state)
    if state is None:
        raise ValueError("an empty line")
    return state


def make_state(
    recording: Recording[Any], operation: int, level: Level, lost: str, seed: int | str, outer: CrashState | None
) -> CrashState:
    """The state of one moment of a recorded run that has lost what `lost` says.

    Raises:
        ValueError: there is no such state.
    """
    moment = recording.moment(operation)
    try:
        if level is Level.KILL:
            choice = {"k": lost[2:]} if lost.startswith("k=") else {}
            tree = killed(moment, choice)
        else:
            choice = parse_choice(lost)
            tree = Aftermath(moment.tree, level, seed).build(choice)
    except (KeyError, IndexError) as error:
        raise ValueError(f"{lost!r} belongs to another moment, or to another workload") from error
    return CrashState(recording, moment, level, choice, seed, tree, outer)


def _shares(counts: list[int], budget: int, seed: str) -> list[int]:
    """How many states of each moment to make: all of the moments with few, the same number of the others."""
    shares, left = [0] * len(counts), budget
    order = sorted(range(len(counts)), key=lambda at: counts[at])
    if budget < len(order):
        order = random.Random(seed).sample(order, max(budget, 0))
    for done, at in enumerate(order):
        shares[at] = min(counts[at], left // (len(order) - done))
        left -= shares[at]
    return shares
