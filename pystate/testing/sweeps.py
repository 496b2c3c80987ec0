"""Sweeps over faults: every call that a workload makes, so that each can be made to fail in turn.

for call in each_call(workload):
    disk = SimulatedDisk()
    disk.inject(call.fault(errno.EIO))
    workload(disk)          # must do something sensible
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pystate.testing.disk import SimulatedDisk
from pystate.testing.faults import Fault, Raised

__all__ = ["Call", "each_call"]


class Call(NamedTuple):
    """One call that a workload makes.

    Attributes:
        operation: one of `pystate.testing.OPERATIONS`.
        n: the how-manieth call of that operation it is, from 1 on.
        path: what it was made for.
    """

    operation: str
    n: int
    path: str

    def fault(self, error: Raised = errno.EIO, **options: Any) -> Fault:
        """A `Fault` that hits this call; `options` are those of `Fault`."""
        return Fault(self.operation, self.n, error=error, **options)

    def __str__(self) -> str:
        return f"{self.operation}-{self.n}"


def each_call(
    workload: Callable[[SimulatedDisk], object], *, disk: SimulatedDisk | None = None, operations: str = ""
) -> Iterator[Call]:
    """Run `workload` once without faults, and yield every call it makes to the disk, in order.

    Arguments:
        workload: called with a disk; deterministic, and in one thread.
        disk: what it starts from, a copy of which is used; None for an empty disk.
        operations: yield only calls of these operations, separated by blanks; empty for all.
    """
    run = SimulatedDisk() if disk is None else disk.clone()
    workload(run)
    wanted, counts = operations.split(), Counter[str]()
    for operation in run.operations:
        counts[operation.name] += 1
        if not wanted or operation.name in wanted:
            yield Call(operation.name, counts[operation.name], operation.path)
