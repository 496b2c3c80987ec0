"""The child processes of `test_crash_processes`: one for each point and protection, each ends itself at its point.

    python -m tests.effects.runtime.killed DIRECTORY

A process for each case is forked off one that does nothing else, since starting an interpreter takes long.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

from pystate.effects import EffectStore, FaultAction, FaultInjector, FaultPoint, Runtime
from pystate.effects.testing import ManualClock
from tests.effects.runtime.matrix import protected, rows
from tests.effects.runtime.remote import Remote
from tests.effects.runtime.world import PATIENT, run_async
from tests.effects.samples import T

__all__ = ["FileRemote", "case_directory"]


class FileRemote(Remote):
    """A remote whose world outlives the process: each call, creation and undoing is a line of a file."""

    def __init__(self, clock: ManualClock, path: Path) -> None:
        super().__init__(clock)
        self.path = path
        for line in path.read_text().splitlines() if path.exists() else ():
            what, key = line.split()
            if what == "apply":
                super().apply(key)  # type: ignore[arg-type]
            else:
                {"call": self.calls, "undo": self.undone}[what].append(key)  # type: ignore[arg-type]

    def _write(self, what: str, key: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{what} {key}\n")

    async def create(self, context: Any) -> str:
        self._write("call", context.idempotency_key)
        return await super().create(context)

    def apply(self, key: Any) -> str:
        self._write("apply", key)
        return super().apply(key)

    async def undo(self, context: Any) -> None:
        if context.idempotency_key not in self.undone:
            self._write("undo", context.idempotency_key)
        await super().undo(context)


def case_directory(root: Path, point: FaultPoint, protection: str) -> Path:
    """Where a case has its store and its world."""
    return root / f"{point}-{protection}"


def run_case(directory: Path, point: FaultPoint, protection: str) -> None:
    """Run the effect up to the point, which ends this process."""
    clock = ManualClock(T(0))
    effect = protected(FileRemote(clock, directory / "world"), protection, point)
    store = EffectStore.open(directory / "store", durability="process")
    faults = FaultInjector({point: FaultAction.ABORT})
    runtime = Runtime(store, worker="crashed", clock=clock, retry=PATIENT, faults=faults)

    async def main() -> None:
        await clock.drive(runtime.run(effect, "order_1"))
        await clock.drive(runtime.compensate(effect, "order_1"))

    run_async(main)


def main(root: Path) -> None:
    """Fork a process for each case, and print how each has ended."""
    for point, protection in rows():
        directory = case_directory(root, point, protection)
        directory.mkdir()
        process = os.fork()
        if process == 0:
            try:
                run_case(directory, point, protection)
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        _, status = os.waitpid(process, 0)
        print(point, protection, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
