"""Crashes on purpose, at the points where a crash leaves something different behind.

A runtime with a `FaultInjector` reports each point as it passes it. A point that is armed crashes: the work on the
effect stops dead, writes nothing more, does not give its lease back, and its caller gets an `EffectInternalError`; an
action that has begun runs on, as a request would that is under way when its sender dies.

The points in order, and what a crash there leaves behind:

==============================  ========================================================================================
`BEFORE_INSERT`                 nothing
`AFTER_INSERT`                  a pending record without a lease
`AFTER_APPROVAL_REQUESTED`      awaiting approval, leased
`AFTER_ATTEMPT_PERSISTED`       executing, leased; the action was not called
`AFTER_ACTION_STARTED`          executing, leased; the action has begun
`AFTER_ACTION_RETURNED`         executing, leased; the action has ended, its result is lost
`AFTER_VERIFICATION_STARTED`    verifying, leased
`AFTER_COMPENSATION_STARTED`    compensating, leased
==============================  ========================================================================================

A runtime stores a new effect, its lease and its first attempt in one commit, so that no crash can part them. While
`AFTER_INSERT` is armed, the insert is a commit of its own: what that crash leaves is the same as an effect that was
planned and not yet begun, and must be taken up. While it is not armed, that point is passed after the one commit.
"""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Mapping

from pystate.effects.checks import as_instance

__all__ = ["ABORT_STATUS", "FaultAction", "FaultInjector", "FaultPoint", "InjectedCrash"]

ABORT_STATUS = 86
"""The exit status of a process that `FaultAction.ABORT` has ended."""


class FaultPoint(enum.StrEnum):
    """Where a crash can be injected, in the order in which the points are reached."""

    BEFORE_INSERT = "before_insert"
    AFTER_INSERT = "after_insert"
    AFTER_APPROVAL_REQUESTED = "after_approval_requested"
    AFTER_ATTEMPT_PERSISTED = "after_attempt_persisted"
    AFTER_ACTION_STARTED = "after_action_started"
    AFTER_ACTION_RETURNED = "after_action_returned"
    AFTER_VERIFICATION_STARTED = "after_verification_started"
    AFTER_COMPENSATION_STARTED = "after_compensation_started"


class FaultAction(enum.StrEnum):
    """How to crash."""

    CRASH = "crash"
    """Stop the work on the effect, in this process."""
    ABORT = "abort"
    """End the process at once, without any cleaning up, with `ABORT_STATUS`."""


class InjectedCrash(BaseException):
    """For the modules of the runtime only. No `Exception`, so that nothing that handles errors handles it."""


class FaultInjector:
    """Which points are armed, and which were reached. Any thread may use it.

    Arguments:
        armed: the points that crash, each with how; `arm` adds to them.

    Raises:
        TypeError: a point or an action is none.
    """

    def __init__(self, armed: Mapping[FaultPoint, FaultAction] | None = None) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._armed: dict[FaultPoint, FaultAction] = {}
        self._reached: list[FaultPoint] = []
        for point, action in (armed or {}).items():
            self.arm(point, action)

    def arm(self, point: FaultPoint, action: FaultAction = FaultAction.CRASH) -> None:
        """Let the next one that reaches this point crash. It fires once.

        Raises:
            TypeError: not a point, or not an action.
        """
        as_instance(point, FaultPoint, "point")
        as_instance(action, FaultAction, "action")
        with self._lock:
            self._armed[point] = action

    def is_armed(self, point: FaultPoint) -> bool:
        """Whether the next one that reaches this point crashes."""
        return point in self._armed

    @property
    def reached(self) -> tuple[FaultPoint, ...]:
        """The points that were reached, armed or not, in order; the one that crashed is among them."""
        return tuple(self._reached)

    def reach(self, point: FaultPoint) -> None:
        """For the modules of the runtime only: record the point, and crash if it is armed."""
        with self._lock:
            self._reached.append(point)
            action = self._armed.pop(point, None)
        if action is FaultAction.ABORT:
            os._exit(ABORT_STATUS)
        if action is FaultAction.CRASH:
            raise InjectedCrash(point)
