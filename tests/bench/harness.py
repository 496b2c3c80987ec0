"""How a figure is measured: rows, ratios, interleaved rounds, and the registry of figures.

A figure names *contenders*: pystate, its *floor* (the bare work nobody can avoid) and its *peers* (other stores).
Each contender is a callable that does a fixed amount of work and returns the seconds it took, so that preparation
inside it is not counted.

The machine drifts: other programs run, the disk is busy for a while, the clock of the processor changes. So the
contenders take turns, and pystate is compared with each of the others inside a round, never across rounds::

    round 1   floor  pystate  lmdb  sqlite3
    round 2   pystate  lmdb  sqlite3  floor        (one further on, so that nobody is always the first)
    ...

What is printed is the median of the ratios of the rounds, with the lowest and the highest beside it.

The garbage collector stays enabled, as users have it: a store that makes it work pays for that here as it would
there. It is run before each contender's first turn of a round, outside the time taken, so that nobody pays for much
of another's garbage.
"""

from __future__ import annotations

import contextlib
import gc
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = [
    "PYSTATE",
    "UNITS",
    "Contender",
    "Context",
    "Figure",
    "Row",
    "compare",
    "figure",
    "figures",
    "info",
    "race",
    "say",
    "stopwatch",
]

Contender = Callable[[], float]
"""Does its work once and returns the seconds that took."""

PYSTATE = "pystate"

UNITS = {"s": 1.0, "ms": 1e3, "µs": 1e6, "MiB": 2.0**-20, "KiB": 1.0}
"""How many of each unit make a second or a byte; what is measured in KiB stays so."""


@dataclass(frozen=True)
class Row:
    """One line of the table: pystate against one other thing, or one number on its own.

    Attributes:
        figure: the figure it belongs to.
        what: what was done.
        pystate: what pystate took, in ``unit``.
        against: what it is compared with; empty for a number on its own.
        other: what that took, in ``unit``; None if there is nothing to compare or it is not installed.
        unit: of both.
        ratios: pystate over other (or the other way round where more is better), one for each round.
        goal: in words; empty if none is set.
        met: whether the goal is met; None where there is no goal or nothing to compare.
        note: what a reader should know about this line.
    """

    figure: str
    what: str
    pystate: float
    against: str
    other: float | None
    unit: str
    ratios: tuple[float, ...]
    goal: str
    met: bool | None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The median of the ratios."""
        return statistics.median(self.ratios) if self.ratios else None


@dataclass
class Context:
    """What a figure is given: where it may write, how large it should be, how often it should measure.

    Attributes:
        directory: on the disk to measure; every figure writes below it only.
        quick: small sizes: shows that the figure works, and nothing about speed.
        repeat: rounds; None leaves it to the figure.
    """

    directory: pathlib.Path
    quick: bool = False
    repeat: int | None = None

    def size(self, full: int, quick: int) -> int:
        """A number of things to do, for a full or a quick run."""
        return quick if self.quick else full

    def rounds(self, full: int) -> int:
        """How many rounds to measure, unless the user said how many."""
        if self.repeat is not None:
            return self.repeat
        return 1 if self.quick else full

    @contextlib.contextmanager
    def scratch(self) -> Iterator[pathlib.Path]:
        """A fresh directory, removed afterwards."""
        path = pathlib.Path(tempfile.mkdtemp(prefix="figure-", dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Figure:
    """A measurement: its name on the command line, what it is, and the function that yields its rows."""

    name: str
    title: str
    run: Callable[[Context], Iterator[Row]] = field(repr=False)


_figures: dict[str, Figure] = {}


def figure(name: str) -> Callable[[Callable[[Context], Iterator[Row]]], Callable[[Context], Iterator[Row]]]:
    """Register a figure; the first line of the function's docstring is its title."""

    def register(run: Callable[[Context], Iterator[Row]]) -> Callable[[Context], Iterator[Row]]:
        if name in _figures:
            raise ValueError(f"two figures are called {name!r}")
        title = (run.__doc__ or name).strip().splitlines()[0].rstrip(".")
        _figures[name] = Figure(name, title, run)
        return run

    return register


def figures() -> Mapping[str, Figure]:
    """All registered figures by name."""
    return _figures


@contextlib.contextmanager
def stopwatch() -> Iterator[list[float]]:
    """Time a block: the list given holds the seconds once the block is left."""
    seconds: list[float] = []
    started = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - started)


def race(
    contenders: Mapping[str, Contender], rounds: int, *, pieces: int = 1, typical: bool = False
) -> dict[str, list[float]]:
    """Let the contenders take turns for some rounds.

    Arguments:
        contenders: by name; the order is that of the first round, each later round starts one further on.
        rounds: how many results each contender gets.
        pieces: turns within a round, added up. Several short turns follow a drifting disk closer than one long.
        typical: take the median turn of a round as many times, in place of the sum. For what costs the same at every
            turn: then a turn that met a burst of somebody else's work does not count. Not for contenders that leave
            work for later turns or for the background.

    Returns:
        The seconds of each round, by contender.
    """
    if not gc.isenabled():
        raise RuntimeError("the garbage collector is off: figures are measured as users have it")
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for round_index in range(rounds):
        first = round_index % len(names)
        turns: dict[str, list[float]] = {name: [] for name in names}
        for piece in range(pieces):
            for name in names[first:] + names[:first]:
                if piece == 0:
                    gc.collect()
                turns[name].append(contenders[name]())
        for name in names:
            seconds[name].append(pieces * statistics.median(turns[name]) if typical else sum(turns[name]))
    return seconds


def compare(
    figure_name: str,
    what: str,
    seconds: Mapping[str, Sequence[float]],
    *,
    count: int,
    goals: Mapping[str, float | None],
    missing: Sequence[str] = (),
    unit: str = "µs",
    subject: str = PYSTATE,
    default_goal: float | None = None,
    note: str = "",
) -> Iterator[Row]:
    """One row for each contender that pystate ran against.

    Arguments:
        figure_name: the figure.
        what: what each contender did.
        seconds: the result of `race`, or bytes where bytes are compared.
        count: things done in a round; the numbers printed are per thing.
        goals: highest ratio that meets the goal, by contender; None for a comparison without a goal.
        missing: peers that are not installed.
        unit: of the numbers printed, one of `UNITS`.
        subject: the contender that is judged.
        default_goal: highest ratio for contenders not in ``goals``: 1.0 asks to be faster.
        note: for the first row.
    """
    scale = UNITS[unit] / count
    ours = seconds[subject]
    for name, theirs in seconds.items():
        if name == subject:
            continue
        limit = goals.get(name, default_goal)
        ratios = tuple(mine / other for mine, other in zip(ours, theirs, strict=True))
        goal, met = _judge(statistics.median(ratios), limit)
        mine, other = statistics.median(ours) * scale, statistics.median(theirs) * scale
        yield Row(figure_name, what, mine, name, other, unit, ratios, goal, met, note)
        note = ""
    for name in missing:
        goal, _ = _judge(0.0, default_goal)
        yield Row(figure_name, what, statistics.median(ours) * scale, name, None, unit, (), goal, None, "not installed")


def _judge(ratio: float, limit: float | None) -> tuple[str, bool | None]:
    """The goal in words, and whether the ratio meets it."""
    if limit is None:
        return "", None
    if limit == 1.0:
        return "faster", ratio < 1.0
    return f"≤ {limit:g}", ratio <= limit


def info(figure_name: str, what: str, value: float, unit: str, note: str = "") -> Row:
    """A number on its own, without a goal."""
    return Row(figure_name, what, value, "", None, unit, (), "", None, note)


def say(text: str) -> None:
    """Tell a waiting user what goes on; standard output is for results."""
    print(text, file=sys.stderr, flush=True)
