"""Running one effect: from the call, or from a record whose caller is gone, to an outcome.

The work goes in rounds. A round opens the effect (stores it if it is new, takes its lease, and starts what can be
started, all in one commit), then does one step after the other until nothing is left to do. Each step ends in one
commit, and the last of these gives the lease back. A plain effect takes two commits. When the lease is lost, a new
round sees what the others have made of it.

A crash on purpose (`faults`) is no `Exception`: it passes through here without a write, and leaves the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pystate.effects.ids import EffectId
from pystate.effects.payload import ABSENT
from pystate.effects.record import EffectRecord
from pystate.effects.requests import Lease
from pystate.effects.runtime.attempt import Result, conclude, run_action
from pystate.effects.runtime.call import Call
from pystate.effects.runtime.conditions import (
    ask_approver,
    check_precondition,
    conclude_approval,
    conclude_precondition,
)
from pystate.effects.runtime.faults import FaultPoint
from pystate.effects.runtime.holding import Hold
from pystate.effects.runtime.outcomes import Committed, InProgress, Outcome
from pystate.effects.runtime.parts import Parts
from pystate.effects.runtime.report import REPORTED_AT_ONCE, outcome_of
from pystate.effects.runtime.steps import Progress, Step
from pystate.effects.runtime.verification import conclude_verification, verify
from pystate.effects.runtime.writing import Batch, commit
from pystate.effects.state import EffectStatus
from pystate.errors import EffectInternalError, LeaseHeldError, LeaseLostError, PystateError

__all__ = ["ROUNDS_MAX", "Run"]

ROUNDS_MAX = 4
"""How often a call begins anew after it has lost the lease."""

_NOT_RUN = REPORTED_AT_ONCE | {EffectStatus.COMPENSATING}
_POINTS = {
    Step.REQUESTED: FaultPoint.AFTER_APPROVAL_REQUESTED,
    Step.ATTEMPT: FaultPoint.AFTER_ATTEMPT_PERSISTED,
    Step.VERIFY: FaultPoint.AFTER_VERIFICATION_STARTED,
}
_Next = tuple[EffectRecord, Step]


class Run:
    """The work of one call on its effect; `execute` it once, in a task of its own.

    Arguments:
        parts: of the runtime.
        call: which effect, and how.
        id: of the record to go on with; None: the effect is stored if its key is new.
    """

    def __init__(self, parts: Parts, call: Call, id: EffectId | None = None) -> None:  # noqa: A002
        self._parts = parts
        self._call = call
        self._id = id
        self._attached = False
        self._progress = Progress(parts, call)
        self._produced: Result | None = None

    async def execute(self) -> Outcome[Any]:
        """Work on the effect until it needs no more, or nothing can be done for it now.

        Raises:
            KindMismatchError, ContractMismatchError, InputMismatchError: it is recorded with another kind, under
                another contract, with another input.
            OutputUnavailableError, OutputPayloadError, OutputError: it is committed, and its output cannot be told.
            CancelledError: the event loop has ended.
            And what the store raises.
        """
        outcome = await self._execute()
        if self._progress.stopped:
            raise asyncio.CancelledError
        return outcome

    async def _execute(self) -> Outcome[Any]:
        if self._id is None:
            self._parts.reach(FaultPoint.BEFORE_INSERT)
        for _ in range(ROUNDS_MAX):
            try:
                record = await self._round()
            except LeaseHeldError:
                break
            except LeaseLostError:
                continue
            if self._produced is not None and record.status is EffectStatus.COMMITTED:
                return Committed(self._produced.value, id=record.id)
            return outcome_of(record, self._call.effect)
        if self._id is None:
            raise EffectInternalError("no record was opened")
        return InProgress(self._id)

    async def _round(self) -> EffectRecord:
        """Open the effect, and do what there is to do under one lease.

        Returns:
            The record at the end of it.

        Raises:
            LeaseHeldError: somebody else holds it. LeaseLostError: somebody else may hold it by now.
        """
        record, step, lease = await self._open()
        if lease is None:
            return record
        hold = Hold(self._parts, lease)
        try:
            self._pass(step)
            while step is not Step.STOP:
                record, step = await self._do(step, record, hold)
                if self._progress.stopped and step is not Step.STOP:
                    await hold.release()
                    break
            return record
        except LeaseLostError:
            raise
        except (Exception, asyncio.CancelledError):
            await hold.release()
            raise
        finally:
            hold.close()

    # Opening

    async def _open(self) -> tuple[EffectRecord, Step, Lease | None]:
        """Find or store the record, take its lease, and start what can be started.

        Returns:
            The record, what must be done next, and the lease; no lease if there is nothing to do.
        """
        inserting = self._id is None
        if inserting and self._parts.is_armed(FaultPoint.AFTER_INSERT):
            await commit(self._parts, self._find)  # by itself, so that the crash leaves what it promises
            self._parts.reach(FaultPoint.AFTER_INSERT)
        record, step, lease = await commit(self._parts, self._take)
        self._id = record.id
        if inserting:
            self._parts.reach(FaultPoint.AFTER_INSERT)
        return record, step, lease

    def _find(self, batch: Batch) -> EffectRecord:
        """The record to work on; stored in this commit if it is new, else checked when it is met first."""
        inserted = False
        if self._id is not None:
            record = batch.get(self._id)
        else:
            record, inserted = batch.insert_or_get(self._call.new_effect(batch.now))
        if not inserted and not self._attached:
            record.check_attach(self._call.effect.kind, self._call.contract, self._call.fingerprint)
            self._id, self._attached = record.id, True
        return record

    def _take(self, batch: Batch) -> tuple[EffectRecord, Step, Lease | None]:
        record = self._find(batch)
        if record.status in _NOT_RUN:
            return record, Step.STOP, None
        lease = batch.acquire(record)
        return *self._progress.go_on(batch, record, lease), lease

    # Steps

    async def _do(self, step: Step, record: EffectRecord, hold: Hold) -> _Next:
        """Do one step, and store what came of it.

        Returns:
            The record after that, and the next step.
        """
        parts, call, progress, lease = self._parts, self._call, self._progress, hold.lease
        if step is Step.ATTEMPT:
            return await self._attempt(record, hold)
        if step is Step.VERIFY:
            finding = await verify(parts, call, progress, hold, record)
            record, step = await self._store(
                lambda batch: conclude_verification(parts, call, progress, batch, record, lease, finding)
            )
            self._produced = finding.result
            return record, step
        if step is Step.PRECONDITION:
            answer = await check_precondition(parts, call, progress, hold, record)
            return await self._store(lambda batch: conclude_precondition(call, progress, batch, record, lease, answer))
        if step is Step.WAIT:
            if record.next_attempt_at is not None:
                await hold.sleep_until(record.next_attempt_at)
            return await self._store(lambda batch: progress.go_on(batch, record, lease))
        approval = await ask_approver(parts, call, hold, record)
        return await self._store(lambda batch: conclude_approval(progress, batch, record, lease, approval))

    async def _attempt(self, record: EffectRecord, hold: Hold) -> _Next:
        parts, call, progress = self._parts, self._call, self._progress
        result = await run_action(parts, call, progress, hold, record)
        try:
            after, step = await self._store(
                lambda batch: conclude(parts, call, progress, batch, record, hold.lease, result)
            )
        except ValueError as error:
            if isinstance(error, PystateError) or result.output is ABSENT:
                raise
            # The store has no place for such an output. The effect did happen, and must not be in doubt for that.
            smaller = result.without_output(str(error))
            after, step = await self._store(
                lambda batch: conclude(parts, call, progress, batch, record, hold.lease, smaller)
            )
        self._produced = result
        return after, step

    async def _store(self, function: Callable[[Batch], _Next]) -> _Next:
        record, step = await commit(self._parts, function)
        self._pass(step)
        return record, step

    def _pass(self, step: Step) -> None:
        """Pass the fault point that lies between a commit and the step that follows."""
        point = _POINTS.get(step)
        if point is not None:
            self._parts.reach(point)
