"""When things go wrong: every crash, fault and order of threads, on purpose, for a program that uses pystate.

The fault model stands at the top of `SimulatedDisk`'s module; read it first. A crash test in one screen::

    from pystate.testing import History, Recorder, check, check_recovered, open_quietly

    def workload(disk):                     # runs once; deterministic, one thread, all I/O through the disk
        history = History(disk)
        store = Recorder(open_quietly(disk), history)
        store.put(b"alice", b"10")
        store.put(b"bob", b"20")
        store.close()
        return history

    check(workload, lambda state: check_recovered(state, state.result))

It fails with the smallest bad state it finds, and a line from which `replay` makes that state again. The parts:

==========================================================  ===========================================================
`SimulatedDisk`, `Operation`                                a file system in memory, for ``files=``; what it was asked
`crash_states`, `crash_here`, `CrashState`, `Level`         every state a crash may leave, one after the other
`check`, `CheckReport`, `CheckFailedError`, `replay`        looking at all of them; shrinking and replaying what fails
`Fault`, `failing`, `short`, `lost_sync`, `disk_full`,      making calls fail: one, several, all; with an errno or any
`turns_read_only`, `each_call`, `Call`, `OPERATIONS`        exception; disks that are full, lie, or turn read-only
`History`, `Recorder`, `Commit`, `read_state`               what a program was told about its commits
`check_recovered`, `check_live`, `BrokenPromiseError`,      whether a store kept its promises
`open_quietly`
`explore`, `Scenario`, `Explored`, `InterleavingError`,     every order in which threads may run: ``interleavings``
`DeadlockError`, `YieldingFiles`, `yield_point`
==========================================================  ===========================================================

With pytest, the fixtures `simulated_disk` and `crash_states` are there as soon as pystate is installed; see ``plugin``.
"""

from pystate.testing.checking import CheckFailedError, CheckReport, check
from pystate.testing.crash import CrashState, CrashStates, crash_here, crash_states, replay
from pystate.testing.device import Operation
from pystate.testing.disk import SimulatedDisk
from pystate.testing.faults import OPERATIONS, Fault, disk_full, failing, lost_sync, short, turns_read_only
from pystate.testing.history import Commit, History, Recorder, read_state
from pystate.testing.interleavings import Explored, InterleavingError, Scenario, explore
from pystate.testing.oracle import BrokenPromiseError, check_live, check_recovered, open_quietly
from pystate.testing.outcomes import Level
from pystate.testing.scheduler import DeadlockError, yield_point
from pystate.testing.sweeps import Call, each_call
from pystate.testing.yielding_files import YieldingFiles

__all__ = [
    "OPERATIONS",
    "BrokenPromiseError",
    "Call",
    "CheckFailedError",
    "CheckReport",
    "Commit",
    "CrashState",
    "CrashStates",
    "DeadlockError",
    "Explored",
    "Fault",
    "History",
    "InterleavingError",
    "Level",
    "Operation",
    "Recorder",
    "Scenario",
    "SimulatedDisk",
    "YieldingFiles",
    "check",
    "check_live",
    "check_recovered",
    "crash_here",
    "crash_states",
    "disk_full",
    "each_call",
    "explore",
    "failing",
    "lost_sync",
    "open_quietly",
    "read_state",
    "replay",
    "short",
    "turns_read_only",
    "yield_point",
]
