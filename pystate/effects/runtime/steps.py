"""What comes next for an effect that is held: a decision by its status, and the writes that need nothing but it.

`Progress.go_on` is called in the commit that changed the effect last. It adds every transition that follows by itself,
up to the first thing that must be waited for (a `Step`), and where nothing is left to do, the release of the lease. So
a result, what follows from it, and the release are one commit; and so are a lease and the start of an attempt.
"""

from __future__ import annotations

import enum
from datetime import timedelta
from typing import Any

from pystate.effects.kinds import FailureClass
from pystate.effects.policy import UnknownPlan
from pystate.effects.record import EffectRecord
from pystate.effects.requests import Lease
from pystate.effects.runtime.call import Call
from pystate.effects.runtime.parts import Parts
from pystate.effects.runtime.writing import Batch
from pystate.effects.state import EffectStatus, Transition

__all__ = ["Progress", "Step", "retry_delay"]


class Step(enum.Enum):
    """What must be done next, outside of a commit."""

    WAIT = enum.auto()
    """Wait for the record's `next_attempt_at`."""
    PRECONDITION = enum.auto()
    """Ask whether it may be attempted."""
    REQUESTED = enum.auto()
    """Ask the approver; the request was just stored."""
    APPROVAL = enum.auto()
    """Ask the approver."""
    ATTEMPT = enum.auto()
    """Run the action; its attempt was just stored."""
    VERIFY = enum.auto()
    """Look it up; the start of that was just stored."""
    STOP = enum.auto()
    """Nothing; the lease was given back."""


class Progress:
    """How far one call has brought its effect under one lease.

    Attributes:
        satisfied: the precondition holds; it is not asked again.
        checks_spent: lookups have not told what happened; this call looks no more.
        undecided: the approver has not decided; this call asks no more.
        stopped: the event loop is ending.
    """

    def __init__(self, parts: Parts, call: Call) -> None:
        self._parts = parts
        self._call = call
        self.satisfied = False
        self.checks_spent = False
        self.undecided = False
        self.stopped = False

    @property
    def stopping(self) -> bool:
        """Whether nothing new is to begin: the runtime closes, or the event loop ends."""
        return self.stopped or self._parts.closing

    def go_on(
        self, batch: Batch, record: EffectRecord, lease: Lease, *, escalate: bool = False
    ) -> tuple[EffectRecord, Step]:
        """Write what follows by itself.

        Arguments:
            batch: the commit.
            record: as it is in it.
            lease: on it.
            escalate: an unknown outcome goes to a person now, unless it can be looked up.

        Returns:
            The record after that, and what must be done next.
        """
        while True:
            record, step = self._next(batch, record, lease, escalate)
            if step is Step.STOP:
                batch.release(lease)
            if step is not None:
                return record, step

    def _next(
        self, batch: Batch, record: EffectRecord, lease: Lease, escalate: bool
    ) -> tuple[EffectRecord, Step | None]:
        """One transition, or a step."""
        status = record.status
        if status is EffectStatus.PENDING:
            return self._begin(batch, record, lease)
        if status is EffectStatus.UNKNOWN:
            return self._resolve(batch, record, lease, escalate)
        if status is EffectStatus.AWAITING_APPROVAL:
            stop = self.stopping or self.undecided or self._parts.approver is None
            return record, Step.STOP if stop else Step.APPROVAL
        if status is EffectStatus.EXECUTING or status is EffectStatus.VERIFYING:
            # Found so, which means that whoever had begun it has lost the lease.
            return self._write(batch, record, lease, Transition.LEASE_EXPIRED), None
        return record, Step.STOP

    def _begin(self, batch: Batch, record: EffectRecord, lease: Lease) -> tuple[EffectRecord, Step]:
        call = self._call
        if self.stopping:
            return record, Step.STOP
        if record.next_attempt_at is not None and record.next_attempt_at > batch.now:
            return record, Step.WAIT
        if record.attempt_count == 0:
            if call.effect.precondition is not None and not self.satisfied:
                return record, Step.PRECONDITION
            if call.contract.require_approval and not record.approved:
                self.satisfied = False  # asked once more after the approval, which may take long
                return self._write(batch, record, lease, Transition.REQUEST_APPROVAL), Step.REQUESTED
        # The budget is not asked: whatever is pending may run, so that an operator's retry does.
        payload = {"worker": str(self._parts.worker)}
        return self._write(batch, record, lease, Transition.START_ATTEMPT, payload=payload), Step.ATTEMPT

    def _resolve(
        self, batch: Batch, record: EffectRecord, lease: Lease, escalate: bool
    ) -> tuple[EffectRecord, Step | None]:
        call = self._call
        if call.plan is UnknownPlan.VERIFY:
            if self.checks_spent or self.stopping:
                return record, Step.STOP
            if record.next_attempt_at is not None and record.next_attempt_at > batch.now:
                return record, Step.WAIT
            return self._write(batch, record, lease, Transition.START_VERIFICATION), Step.VERIFY
        repeat = call.plan is UnknownPlan.REEXECUTE and call.may_retry(record.attempt_count) and not escalate
        if not repeat:
            return self._write(batch, record, lease, Transition.ESCALATE), None
        delay = retry_delay(self._parts, call, record, FailureClass.AMBIGUOUS)
        return self._write(
            batch, record, lease, Transition.SCHEDULE_RETRY, after=delay, not_before=record.next_attempt_at
        ), None

    def _write(
        self, batch: Batch, record: EffectRecord, lease: Lease, transition: Transition, **fields: Any
    ) -> EffectRecord:
        return batch.transition(record, lease, transition, actor=self._call.actor, **fields)


def retry_delay(parts: Parts, call: Call, record: EffectRecord, failure: FailureClass) -> timedelta:
    """How long to wait before the next attempt, after those that the record counts."""
    return call.retry.delay(max(0, record.attempt_count - 1), failure, parts.sample())
