"""Random programs, and every state that a crash may leave of them, compared with what the program was told.

A case is a program on a `SimulatedDisk`, alone or after a power cut of an earlier one, and one `Level` of crashes. All
crash states are looked at, or a sample, with crashes in the recovery from some; now and then thoroughly, which is ten
times as slow. A violation is shrunk, and its line replays the one state.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from fuzz._harness import Coverage, ViolationError, main
from fuzz._workloads import Workload
from pystate.testing import (
    CheckFailedError,
    CrashState,
    Level,
    SimulatedDisk,
    check,
    check_recovered,
    crash_states,
    open_quietly,
    replay,
)
from pystate.testing.history import State

__all__ = ["play"]

_LEVELS = (Level.KILL, Level.NOTHING_UNSYNCED, Level.PREFIX, Level.SECTORS, Level.SECTORS, Level.GARBAGE, Level.DAMAGE)
_STATES_MAX = 600
_THOROUGH_STATES_MAX = 40
_SEPARATOR = " :: "


class _Case:
    """One case, as its line says."""

    def __init__(self, line: str) -> None:
        source = random.Random(f"crash {line}")
        self.line = line
        self.level = source.choice(_LEVELS)
        self.thorough = source.random() < 0.1
        self.nested = int(source.random() < 0.25)
        self.disk: SimulatedDisk | None = None
        initial: State | None = None
        if source.random() < 0.4 and self.level is not Level.DAMAGE:  # that may also reach what was there before
            self.disk, initial = _after_power_cut(line, source)
        self.workload = Workload(line, steps=source.randint(2, 14), initial=initial)

    def look(self, state: CrashState) -> State | None:
        """Check one state."""
        return check_recovered(state, state.result, thorough=self.thorough and state.outer is None)


def _after_power_cut(line: str, source: random.Random) -> tuple[SimulatedDisk | None, State | None]:
    """A disk on which an earlier program was cut short, and what it shows."""
    earlier = Workload(f"{line} earlier", steps=source.randint(1, 8))
    states = list(crash_states(earlier, level=Level.GARBAGE, budget=40, seed=f"{line} earlier"))
    state = source.choice(states)
    found = check_recovered(state, state.result)
    return state.open_disk(), found


def _recover(disk: SimulatedDisk) -> None:
    open_quietly(disk).close()


def _counting(case: _Case, coverage: Coverage) -> Callable[[CrashState], None]:
    def look(state: CrashState) -> None:
        coverage.count("states")
        found = case.look(state)
        nested = " nested" if state.outer is not None else ""
        coverage.saw(f"{case.level.value}{nested}: {'refused' if found is None else f'{len(found)} families'}")

    return look


def play(line: str, coverage: Coverage) -> None:
    """Play one case; or, of a line with a state behind it, that state alone."""
    text, _, one = line.partition(_SEPARATOR)
    case = _Case(text)
    look = _counting(case, coverage)
    if one:
        state = replay(case.workload, one, disk=case.disk, recovery=_recover)
        try:
            look(state)
        except Exception as error:  # whatever it is, it is what is wrong with this state
            story = [f"{type(error).__name__}: {error}", *map(str, state.trace()), state.description]
            raise ViolationError("\n".join(story), line) from error
        return
    try:
        report = check(
            case.workload,
            look,
            level=case.level,
            budget=_THOROUGH_STATES_MAX if case.thorough else _STATES_MAX,
            seed=text,
            disk=case.disk,
            nested=case.nested,
            recovery=_recover,
            nested_budget=2,
        )
    except CheckFailedError as error:
        raise ViolationError(str(error), f"{text}{_SEPARATOR}{error.replay}") from error
    coverage.count("operations", report.operations)
    coverage.count("exhaustive cases", report.exhaustive)


if __name__ == "__main__":
    raise SystemExit(main("crash", play))
