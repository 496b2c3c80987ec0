"""What all fuzzers share: cases made from a seed, a time budget, counting what was covered, and replay lines.

A fuzzer is a function that plays one *case*: it is given the line of the case, draws everything from that line, counts
what it does in a `Coverage`, and raises when something is wrong. The lines of a run are ``SEED:0``, ``SEED:1`` and so
on, so the same seed tries the same cases in the same order, and time only decides how many. Printed with a violation is
the line that replays it; a fuzzer that can be more precise than the whole case raises `ViolationError` with a line of
its own.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Coverage", "Play", "Report", "ViolationError", "main", "run", "shorten"]

_PROGRESS_SECONDS = 30.0
_OUTCOMES_SHOWN = 24


class ViolationError(AssertionError):
    """A promise was broken.

    Attributes:
        line: replays it; None means the line of the case.
    """

    def __init__(self, text: str, line: str | None = None) -> None:
        super().__init__(text)
        self.line = line


@dataclass
class Coverage:
    """What has been covered so far.

    Attributes:
        counts: how many of each kind: cases, states, operations.
        outcomes: every distinct way in which something ended, and how often it did.
    """

    counts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)

    def count(self, kind: str, number: int = 1) -> None:
        """Count so many more of this kind."""
        self.counts[kind] += number

    def saw(self, outcome: str) -> None:
        """Count one more end of this way."""
        self.outcomes[outcome] += 1


def shorten(text: str, size: int = 400) -> str:
    """A line without its middle, if it is a long one."""
    return text if len(text) <= size else f"{text[: size // 2]} ... {text[-size // 2 :]}"


Play: TypeAlias = Callable[[str, Coverage], object]
"""Plays the case of a line; raises when something is wrong."""


@dataclass
class Report:
    """What a run has covered, and what it has found.

    Attributes:
        name: of the fuzzer.
        coverage: what it has done.
        seconds: how long that took.
        line: replays the violation that ended the run; None if there was none.
        problem: what the violation was.
    """

    name: str
    coverage: Coverage
    seconds: float
    line: str | None = None
    problem: BaseException | None = None

    def __str__(self) -> str:
        counts = ", ".join(
            f"{number} {kind} ({number / max(self.seconds, 1e-9):.0f}/s)"
            for kind, number in self.coverage.counts.items()
        )
        seen = self.coverage.outcomes
        shown = ", ".join(f"{outcome} {number}" for outcome, number in seen.most_common(_OUTCOMES_SHOWN))
        more = f", and {len(seen) - _OUTCOMES_SHOWN} more" if len(seen) > _OUTCOMES_SHOWN else ""
        lines = [f"{self.name}: {self.seconds:.1f} s, {counts}", f"{len(seen)} distinct outcomes: {shown}{more}"]
        if self.problem is not None:
            known = isinstance(self.problem, ViolationError)
            text = str(self.problem) if known else "".join(traceback.format_exception(self.problem)).rstrip()
            lines += ["violation:", *(f"  {shorten(line)}" for line in text.splitlines())]
            lines += [f'to see it again: python -m fuzz.{self.name} --replay "{self.line}"']
        else:
            lines.append("no violation")
        return "\n".join(lines)


def run(
    name: str,
    play: Play,
    *,
    seed: str = "0",
    seconds: float | None = None,
    cases: int | None = None,
    line: str | None = None,
    progress: bool = False,
) -> Report:
    """Play cases until the time is over, so many were played, or one has found something.

    Arguments:
        name: of the fuzzer.
        play: plays one case.
        seed: what the lines begin with.
        seconds: begin no case after so many; None for no limit.
        cases: how many at most; None for no limit.
        line: play only the case of this line.
        progress: print now and then how far it has come.
    """
    coverage, began = Coverage(), time.monotonic()
    shown = began
    lines = (f"{seed}:{number}" for number in itertools.count()) if line is None else iter((line,))
    for one in itertools.islice(lines, cases):
        now = time.monotonic()
        if seconds is not None and now - began >= seconds:
            break
        if progress and now - shown >= _PROGRESS_SECONDS:
            shown = now
            print(f"... {now - began:.0f} s: {dict(coverage.counts)}", flush=True)
        coverage.count("cases")
        try:
            play(one, coverage)
        except (KeyboardInterrupt, SystemExit) as error:
            if not progress or isinstance(error, SystemExit):
                raise
            print(f"interrupted in case {one}", flush=True)
            break
        except BaseException as error:  # the interpreter's own errors are what some fuzzers look for
            exact = error.line if isinstance(error, ViolationError) else None
            return Report(name, coverage, time.monotonic() - began, exact or one, error)
    return Report(name, coverage, time.monotonic() - began)


def main(name: str, play: Play, arguments: Sequence[str] | None = None, *, modes: Sequence[str] = ()) -> int:
    """The command line of a fuzzer; the exit code is 1 if something was violated.

    Arguments:
        name: of the fuzzer.
        play: plays one case.
        arguments: None for those of the process.
        modes: options that put ``MODE:`` before the lines of all cases, for `play` to look at.
    """
    parser = argparse.ArgumentParser(prog=f"python -m fuzz.{name}")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to try (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="decides which cases are tried (default: 0)")
    parser.add_argument("--replay", metavar="LINE", help="play only the case that a violation has printed")
    for mode in modes:
        parser.add_argument(f"--{mode}", action="store_true", help=f"play the cases of the mode {mode!r}")
    options = parser.parse_args(arguments)
    prefix = "".join(f"{mode}:" for mode in modes if getattr(options, mode))
    report = run(
        name, play, seed=f"{prefix}{options.seed}", seconds=options.seconds, line=options.replay, progress=True
    )
    print(report, flush=True)
    if report.problem is not None:
        print(f"{name}: violated", file=sys.stderr)
    return 1 if report.problem is not None else 0
