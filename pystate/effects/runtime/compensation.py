"""Undoing committed effects: attempts of the compensation under a lease, until it has worked or is given up.

A compensation must be idempotent: nobody asks whether an attempt has applied, it is made again. So there is no doubt
here, and a failure that could mean anything is tried again like a transient one. An attempt is counted when it starts,
not when it is scheduled, so that one that a crash has prevented does not count.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from pystate.effects.contract import contract_differences
from pystate.effects.ids import EffectId, EffectKey, IdempotencyKey
from pystate.effects.kinds import Disposition, ErrorRecord, FailureClass
from pystate.effects.payload import ABSENT
from pystate.effects.record import EffectRecord
from pystate.effects.requests import Lease
from pystate.effects.runtime.attempt import error_of, timed_out
from pystate.effects.runtime.call import Call
from pystate.effects.runtime.code import Code
from pystate.effects.runtime.faults import FaultPoint
from pystate.effects.runtime.handlers import Handler
from pystate.effects.runtime.holding import Hold
from pystate.effects.runtime.outcomes import Compensated, CompensationOutcome, Failed, InProgress, NotCommitted
from pystate.effects.runtime.parts import Parts
from pystate.effects.runtime.report import NO_ERROR, stored_output
from pystate.effects.runtime.run import ROUNDS_MAX
from pystate.effects.runtime.tasks import in_own_task
from pystate.effects.runtime.writing import Batch, commit
from pystate.effects.state import EffectStatus, Transition
from pystate.errors import ContractMismatchError, LeaseHeldError, LeaseLostError, NotCompensableError

__all__ = ["CompensationContext", "undo"]

_UNDOABLE = frozenset({EffectStatus.COMMITTED, EffectStatus.COMPENSATING})
_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class CompensationContext:
    """What a compensation is told.

    Attributes:
        id: the record of the effect.
        key: its name and logical key.
        idempotency_key: the same for every attempt to undo it, and another one than that of the effect.
        attempt: which one this is, from 1.
        reason: why it is undone, or None.
        input, output: as they are stored, secrets masked; `ABSENT` without one.
    """

    id: EffectId
    key: EffectKey
    idempotency_key: IdempotencyKey
    attempt: int
    reason: str | None
    input: Any
    output: Any


async def undo(
    parts: Parts, handler: Handler[Any], record: EffectRecord, reason: str | None, actor: str | None
) -> CompensationOutcome:
    """Undo an effect, unless it is not committed or has been undone.

    Arguments:
        parts: of the runtime.
        handler: of the effect.
        record: as it is now.
        reason: for the trail; None: that of whoever began it.
        actor: for the trail.

    Raises:
        NotCompensableError: the handler cannot.
        KindMismatchError, ContractMismatchError: it is recorded with another kind, or under another contract.
        InputPayloadError, StoredInputError, OutputPayloadError, OutputError: what is stored cannot be read.
        EffectInternalError: the work ended without an outcome. And what the store raises.
    """
    if handler.compensate is None:
        raise NotCompensableError(handler.name)
    if record.status not in _UNDOABLE:
        return _outcome(record)
    call = Call.resumed(parts, handler, record)
    record.check_attach(handler.kind, call.contract, record.input_fingerprint)
    if record.execution_contract is None:  # which is enough to be reported, and not to run anything
        raise ContractMismatchError(record.id, None, call.contract, contract_differences(None, call.contract))
    output = ABSENT if record.output is ABSENT else stored_output(record, handler)
    if reason is None:
        reason = _recorded_reason(parts, record)
    undoing = _Undoing(parts, call, handler.compensate, record.id, output, reason, actor)
    return await in_own_task(parts, undoing.execute())


def _outcome(record: EffectRecord) -> CompensationOutcome:
    if record.status is EffectStatus.COMPENSATED:
        return Compensated(record.id)
    if record.status is EffectStatus.COMPENSATION_FAILED:
        return Failed(record.last_error or NO_ERROR, id=record.id)
    if record.status in _UNDOABLE:
        return InProgress(record.id)
    return NotCommitted(record.id, record.status)


def _recorded_reason(parts: Parts, record: EffectRecord) -> str | None:
    """The reason that whoever began to undo it has given."""
    if record.status is not EffectStatus.COMPENSATING:
        return None
    for event in parts.store.events(record.id):
        if event.transition is Transition.START_COMPENSATION and isinstance(event.payload, dict):
            reason = event.payload.get("reason")
            return reason if isinstance(reason, str) else None
    return None


_Next: TypeAlias = tuple[EffectRecord, bool | None]
"""A record, and what must be done: True is to attempt it, False to wait for its time, None is nothing."""


class _Undoing:
    """The work of one call; `execute` it once, in a task of its own."""

    def __init__(
        self,
        parts: Parts,
        call: Call,
        code: Code,
        id: EffectId,  # noqa: A002
        output: Any,
        reason: str | None,
        actor: str | None,
    ) -> None:
        self._parts = parts
        self._call = call
        self._code = code
        self._id = id
        self._output = output
        self._reason = reason
        self._actor = actor
        self._stopped = False

    async def execute(self) -> CompensationOutcome:
        """Undo it, or report why not."""
        outcome: CompensationOutcome = InProgress(self._id)
        for _ in range(ROUNDS_MAX):
            try:
                outcome = _outcome(await self._round())
            except LeaseHeldError:
                break
            except LeaseLostError:
                continue
            break
        if self._stopped:
            raise asyncio.CancelledError
        return outcome

    async def _round(self) -> EffectRecord:
        """Do what there is to do under one lease.

        Raises:
            LeaseHeldError: somebody else holds it. LeaseLostError: somebody else may hold it by now.
        """
        record, attempt, lease = await commit(self._parts, self._take)
        if lease is None:
            return record
        hold = Hold(self._parts, lease)
        try:
            while attempt is not None:
                record, attempt = await (self._attempt(record, hold) if attempt else self._wait(record, hold))
            return record
        except LeaseLostError:
            raise
        except (Exception, asyncio.CancelledError):
            await hold.release()
            raise
        finally:
            hold.close()

    def _take(self, batch: Batch) -> tuple[EffectRecord, bool | None, Lease | None]:
        record = batch.get(self._id)
        if record.status not in _UNDOABLE:
            return record, None, None
        lease = batch.acquire(record)
        return *self._go_on(batch, record, lease), lease

    def _go_on(self, batch: Batch, record: EffectRecord, lease: Lease) -> _Next:
        """Write what follows by itself: the start of the next attempt when it is due, or the release."""
        undoable = record.status in _UNDOABLE
        if not undoable or self._stopped or self._parts.closing:
            batch.release(lease)
            return record, None
        due = record.next_attempt_at
        if record.status is EffectStatus.COMMITTED:
            payload: Any = ABSENT if self._reason is None else {"reason": self._reason}
            transition = Transition.START_COMPENSATION
        elif due is not None and due > batch.now:
            return record, False
        else:
            # Nothing was scheduled: whoever began the last attempt has left it unfinished.
            payload = {"resumed": True} if due is None else ABSENT
            transition = Transition.START_COMPENSATION_RETRY
        return batch.transition(record, lease, transition, actor=self._actor, payload=payload), True

    async def _wait(self, record: EffectRecord, hold: Hold) -> _Next:
        if record.next_attempt_at is not None:
            await hold.sleep_until(record.next_attempt_at)
        return await commit(self._parts, lambda batch: self._go_on(batch, record, hold.lease))

    async def _attempt(self, record: EffectRecord, hold: Hold) -> _Next:
        """Run the compensation, whose attempt is stored, and store what it came to."""
        self._parts.reach(FaultPoint.AFTER_COMPENSATION_STARTED)
        context = CompensationContext(
            id=record.id,
            key=record.key,
            idempotency_key=record.key.compensation_key(),
            attempt=record.compensation_attempts,
            reason=self._reason,
            input=self._call.input,
            output=self._output,
        )
        timeout = self._call.effect.attempt_timeout
        task = self._parts.start(self._code, context)
        ended, loop_ends = await hold.see_through(task, timeout)
        self._stopped = self._stopped or loop_ends
        if not ended:
            task.cancel()
        error = error_of(task, record, "compensation") if ended else timed_out(timeout)
        return await commit(self._parts, lambda batch: self._conclude(batch, record, hold.lease, error))

    def _conclude(self, batch: Batch, record: EffectRecord, lease: Lease, error: ErrorRecord | None) -> _Next:
        actor = self._actor
        if error is None:
            record = batch.transition(record, lease, Transition.COMPENSATION_SUCCEEDED, actor=actor)
            return self._go_on(batch, record, lease)
        failure = error.failure_class or FailureClass.AMBIGUOUS
        made = record.compensation_attempts
        if failure.disposition is Disposition.FAIL or not self._call.retry.allows_another(made):
            record = batch.transition(record, lease, Transition.COMPENSATION_FAILED, actor=actor, error=error)
            return self._go_on(batch, record, lease)
        delay = self._call.retry.delay(max(0, made - 1), failure, self._parts.sample())
        record = batch.transition(
            record, lease, Transition.SCHEDULE_COMPENSATION_RETRY, actor=actor, error=error, after=max(_NO_TIME, delay)
        )
        return self._go_on(batch, record, lease)
