"""`check`: look at every crash state, and when one is wrong, find the smallest one that is.

Promise: a failure is an `AssertionError` whose text is enough to see it again: the line for `replay`, what the workload
had done, what the crash took, and what was wrong. It has been shrunk: no earlier moment that was tried fails, and
keeping any single thing that the crash took would have hidden it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pystate.testing.aftermath import Aftermath, write_choice
from pystate.testing.crash import BUDGET, CrashState, CrashStates, crash_states, make_state
from pystate.testing.disk import SimulatedDisk
from pystate.testing.outcomes import Level

__all__ = ["CheckReport", "CheckFailedError", "check"]

_ATTEMPTS_MAX = 400
_STATES_OF_EARLIER_MOMENTS = 8


class CheckReport(NamedTuple):
    """What `check` has looked at.

    Attributes:
        states: how many states, nested ones included.
        possible: how many there are at most, nested ones left out.
        exhaustive: all of them were looked at (of nested ones, a sample).
        operations: how many operations the workload makes.
    """

    states: int
    possible: int
    exhaustive: bool
    operations: int

    def __str__(self) -> str:
        how = "all" if self.exhaustive else "a sample"
        return f"{self.states} states checked, {how} of {self.possible}; {self.operations} operations"


class CheckFailedError(AssertionError):
    """A crash state is not what it must be.

    Attributes:
        state: the state, shrunk.
        replay: the line for `pystate.testing.replay`.
        problem: what ``verify`` has raised for it.
    """

    def __init__(self, state: CrashState, problem: Exception, states: int) -> None:
        self.state = state
        self.replay = state.replay
        self.problem = problem
        lines = [f"{type(problem).__name__}: {problem}", "", *_story(state), ""]
        lines += [f"found after {states} states; to see it again: replay(workload, {state.replay!r})"]
        super().__init__("\n".join(lines))


def _story(state: CrashState) -> Iterator[str]:
    if state.outer is not None:
        yield from _story(state.outer)
        yield "then, in the recovery:"
    yield from (str(operation) for operation in state.trace())
    yield state.description


def check(
    workload: Callable[[SimulatedDisk], object],
    verify: Callable[[CrashState], object],
    *,
    level: Level = Level.SECTORS,
    budget: int | None = BUDGET,
    seed: int | str = 0,
    disk: SimulatedDisk | None = None,
    nested: int = 0,
    recovery: Callable[[SimulatedDisk], object] | None = None,
    nested_levels: Sequence[Level] | None = None,
    nested_budget: int = 8,
    shrink: bool = True,
) -> CheckReport:
    """Call `verify` with every state, or a sample, that a crash at any operation of `workload` could leave.

    Arguments:
        verify: called with each `CrashState`; raises whatever it likes if the state is not as it must be. What the
            workload returned is ``state.result``, and how far it had come ``state.first.operation``.
        shrink: look for the smallest failing state before failing; `verify` is called up to 400 times more.
        The others: as for `crash_states`.

    Returns:
        What was looked at.

    Raises:
        CheckFailedError: `verify` has raised an ``Exception``.
        Whatever `workload` raises; ValueError as for `crash_states`.
    """
    states = crash_states(
        workload,
        level=level,
        budget=budget,
        seed=seed,
        disk=disk,
        nested=nested,
        recovery=recovery,
        nested_levels=nested_levels,
        nested_budget=nested_budget,
    )
    count = 0
    for state in states:
        count += 1
        problem = _problem(verify, state)
        if problem is not None:
            if shrink:
                state, problem = _Shrinker(verify, states).shrink(state, problem)
            raise CheckFailedError(state, problem, count) from problem
    return CheckReport(count, states.possible, states.exhaustive, states.recording.operations)


def _problem(verify: Callable[[CrashState], object], state: CrashState) -> Exception | None:
    try:
        verify(state)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is wrong with this state
        return error
    return None


class _Shrinker:
    """Looks for a smaller state that fails too, in a bounded number of attempts."""

    def __init__(self, verify: Callable[[CrashState], object], states: CrashStates) -> None:
        self._verify = verify
        self._states = states
        self._left = _ATTEMPTS_MAX

    def shrink(self, state: CrashState, problem: Exception) -> tuple[CrashState, Exception]:
        """The smallest failing state found, and what is wrong with it."""
        if not self._states.exhaustive and state.outer is None:
            state, problem = self._earlier(state, problem)
        found = True
        while found and state.level is not Level.KILL:
            found = False
            for simpler in self._simpler(state):
                again = self._try(simpler)
                if again is not None:
                    state, problem, found = simpler, again, True
                    break
        return state, problem

    def _earlier(self, state: CrashState, problem: Exception) -> tuple[CrashState, Exception]:
        """A sample leaves out most states of most moments, so look again at some of the earlier moments."""
        for other in self._states.sampled(_STATES_OF_EARLIER_MOMENTS, before=state.operation):
            again = self._try(other) if self._left > _ATTEMPTS_MAX // 2 else None
            if again is not None:
                return other, again
        return state, problem

    def _simpler(self, state: CrashState) -> Iterator[CrashState]:
        recording = state.recording
        moment = recording.moment(state.operation)
        for choice in Aftermath(moment.tree, state.level, state.seed).simpler(state.choice):
            lost = write_choice(choice)
            yield make_state(recording, state.operation, state.level, lost, state.seed, state.outer)

    def _try(self, state: CrashState) -> Exception | None:
        if not self._left:
            return None
        self._left -= 1
        return _problem(self._verify, state)
