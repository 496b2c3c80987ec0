"""A workload that has run, and the disk at each moment of that run, made again from the record of what it changed.

Promise: the workload runs once; the moments are the same in every iteration. A moment lies between two operations; of
several between which nothing on the disk changes only the last is one, at which the workload has come furthest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from pystate.testing.aftermath import Choice, OutcomeCache
from pystate.testing.device import Operation
from pystate.testing.disk import SimulatedDisk
from pystate.testing.nodes import Change, Event, Inode, Tree
from pystate.testing.outcomes import pieces

__all__ = ["Moment", "Recording", "cut_short", "killed", "record"]

T = TypeVar("T")


class Moment(NamedTuple):
    """A moment of a recorded run.

    Attributes:
        operation: how many operations had been done.
        tree: the disk then. Changes when the next moment is asked for.
        following: the changes that the next operation made.
    """

    operation: int
    tree: Tree
    following: tuple[Event, ...]


class Recording(Generic[T]):
    """A workload that has run.

    Attributes:
        disk: the disk it ran on, as it was at the end.
        result: what it returned; None if it raised.
        raised: what it raised, or None.
        operations: how many operations it made.
    """

    def __init__(self, workload: Callable[[SimulatedDisk], T], disk: SimulatedDisk, *, catch: bool = False) -> None:
        self.disk = disk
        self._start, first = disk.tree(), disk.position
        noted = len(disk.recorded())
        self.raised: Exception | None = None
        self.result: Any = None
        try:
            self.result = workload(disk)
        except Exception as error:
            if not catch:
                raise
            self.raised = error
        events = [event._replace(operation=event.operation - first) for event in disk.recorded()[noted:]]
        for event in events:
            if not event.operation:
                self._start.apply(event)  # a scene that was set before the first operation
        self._events = [event for event in events if event.operation]
        self.operations = disk.position - first
        self.trace: list[Operation] = disk.operations[first:]
        self.cache: OutcomeCache = {}

    def moments(self) -> Iterator[Moment]:
        """Every moment after which the disk changes, and the last one."""
        tree, at = self._start.copy(), 0
        while at < len(self._events):
            operation = self._events[at].operation
            stop = at
            while stop < len(self._events) and self._events[stop].operation == operation:
                stop += 1
            following = tuple(self._events[at:stop])
            yield Moment(operation - 1, tree, following)
            for event in following:
                tree.apply(event)
            at = stop
        yield Moment(self.operations, tree, ())

    def moment(self, operation: int) -> Moment:
        """The moment at which so many operations had been done.

        Raises:
            ValueError: the disk did not change in the next one.
        """
        for moment in self.moments():
            if moment.operation == operation:
                return moment
        raise ValueError(f"no moment of this workload has {operation} operations done; was it another one?")


def record(workload: Callable[[SimulatedDisk], T], disk: SimulatedDisk, *, catch: bool = False) -> Recording[T]:
    """Run a workload and keep what it did to the disk.

    Arguments:
        catch: keep an exception of the workload in `Recording.raised` instead of raising it.
    """
    return Recording(workload, disk, catch=catch)


def killed(moment: Moment, choice: Choice) -> Tree:
    """The disk when the process dies: what is pending stays so; ``{"k": "2"}``: two sectors of the next write, too."""
    tree = moment.tree.copy()
    for piece in cut_short(moment)[: int(choice.get("k", "0"))]:
        tree.apply(Event(0, moment.following[-1].node, "write", (piece.data,)))
    return tree


def cut_short(moment: Moment) -> list[Change]:
    """The next write, sector by sector; empty if the next operation is none."""
    for event in moment.following:
        if event.method == "write":
            inode = moment.tree.nodes[event.node]
            size = len(inode.content) if isinstance(inode, Inode) else 0
            return list(pieces(Change(size, event.arguments[0]), size))
    return []
