"""Random programs on a disk whose calls fail; then the store is opened without faults, and compared with what was told.

Faults come before random steps of the program: any call fails with an error number, once, a few times or for ever, or
after its work; reads and writes are short; syncs fail and lose what was written; the disk is full and has room again,
or turns read-only; a call is interrupted, or finds no memory. The program goes on after every error. In the end nothing
may be left open, and what a kill or a power cut right then leaves must hold all that it must.
"""

from __future__ import annotations

import errno
import random

from fuzz._harness import Coverage, ViolationError, main
from fuzz._workloads import Interrupt, Workload
from pystate.testing import (
    OPERATIONS,
    Fault,
    History,
    Level,
    SimulatedDisk,
    check_recovered,
    crash_here,
    crash_states,
    disk_full,
    lost_sync,
    short,
    turns_read_only,
)
from pystate.testing.history import State
from pystate.testing.nodes import Directory

__all__ = ["play"]

_ERRNOS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EINTR, errno.EMFILE, errno.ENOENT)
_HOW_OFTEN = (1, 1, 1, 2, 3, None)
_LEVELS = (Level.NOTHING_UNSYNCED, Level.KILL, Level.PREFIX, Level.SECTORS, Level.GARBAGE)
_ALWAYS = _LEVELS[:3]
_STATES_MAX = 6
_PENDING_MAX = 10
"""Of a directory: the states at the other levels are all subsets of its pending changes, too many to count beyond."""


def _random_faults(source: random.Random) -> tuple[Fault, ...]:
    operation, n = source.choice(OPERATIONS), source.randint(1, 4)
    kind = source.choice(("error", "error", "any", "interrupt", "memory", "short", "sync", "sync", "full", "read-only"))
    times = source.choice(_HOW_OFTEN)
    after = source.random() < 0.3
    if kind == "error":
        return (Fault(operation, n, error=source.choice(_ERRNOS), times=times, after=after),)
    if kind == "any":
        return (Fault("any", source.randint(1, 30), error=source.choice(_ERRNOS), times=times, after=after),)
    if kind == "interrupt":
        return (Fault("any", source.randint(1, 12), error=Interrupt, after=after),)
    if kind == "memory":
        return (Fault("any", source.randint(1, 12), error=MemoryError, after=after),)
    if kind == "short":
        return (short(source.choice(("write", "read_at")), n, take=source.choice((1, 7, 100)), times=times),)
    if kind == "sync":
        pages = source.choice(("kept", "cached", "dropped"))
        if pages == "kept":
            return (Fault("sync", n, times=times, after=after),)
        return (lost_sync(n, pages="cached" if pages == "cached" else "dropped", times=times),)
    if kind == "full":
        return disk_full(n, room=source.choice((0, 1, 20, 300)), calls=source.choice((1, 2, 3, 8, None)))
    return (turns_read_only(source.randint(1, 20)),)


def play(line: str, coverage: Coverage) -> None:
    """Play one case."""
    source = random.Random(f"faults {line}")
    disk, initial = SimulatedDisk(line, short_io=source.random() < 0.1), None
    if source.random() < 0.6:
        disk, initial = _after_clean_run(line, source)
    steps = source.randint(2, 14)
    plan: dict[int, list[str]] = {}
    for _ in range(source.randint(1, 3)):
        plan.setdefault(source.randrange(steps), []).append("faults")
    repairs = source.random() < 0.5

    def inject(step: int) -> None:
        for _ in plan.get(step, ()):
            disk.inject(*_random_faults(source))
            coverage.count("faults")
        if repairs and source.random() < 0.1:
            _repair(disk)

    history = Workload(line, steps=steps, initial=initial, faulty=True)(disk, inject)
    history.end(history.start({}), "aborted")  # whatever the program was told before it ended counts
    coverage.count("operations", disk.position)
    fired = [f"{fault}" for fault in disk.faults.fired]
    _repair(disk)
    for commit in history.commits:
        coverage.saw(commit.outcome)
    for fault in disk.faults.fired:
        coverage.saw(f"{fault.operation} {_name(fault)}")
    try:
        _check_all(disk, history, line, coverage)
    except Exception as error:
        story = "\n".join([f"{type(error).__name__}: {error}", "faults that struck:", *fired])
        raise ViolationError(story) from error


def _name(fault: Fault) -> str:
    if isinstance(fault.error, int):
        return errno.errorcode[fault.error]
    return getattr(fault.error, "__name__", "effect")


def _after_clean_run(line: str, source: random.Random) -> tuple[SimulatedDisk, State]:
    """A disk on which a store was used without faults, and what it holds."""
    earlier = Workload(f"{line} earlier", steps=source.randint(1, 8), kills=False)
    states = crash_states(earlier, level=Level.NOTHING_UNSYNCED, seed=line)
    *_, last = states
    found = check_recovered(last, last.result)
    assert found is not None
    disk = last.open_disk()
    return disk, found


def _repair(disk: SimulatedDisk) -> None:
    """No faults any more."""
    disk.faults.clear()
    disk.quota, disk.read_only = None, False


def _check_all(disk: SimulatedDisk, history: History, line: str, coverage: Coverage) -> None:
    left = disk.held_locks + disk.open_descriptors + disk.forgotten
    if left:
        raise ViolationError(f"left open: {', '.join(left)}")
    folders = [node for _, node in disk.tree().walk() if isinstance(node, Directory)]
    pending = max((len(folder.pending) for folder in folders), default=0)
    for level in _LEVELS if pending <= _PENDING_MAX else _ALWAYS:
        for number, state in enumerate(crash_here(disk, level=level, budget=_STATES_MAX, seed=line)):
            coverage.count("states")
            check_recovered(state.open_disk(), history, level=level, thorough=not number)


if __name__ == "__main__":
    raise SystemExit(main("faults", play))
