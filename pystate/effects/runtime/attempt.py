"""One attempt: the action runs, and what it came to is stored.

Only an `EffectFailure` says that the effect did not happen. Any other exception, a timeout, and a cancelled action are
ambiguous: the request may have gone out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pystate.effects.kinds import Disposition, EffectFailure, EffectKind, ErrorRecord, FailureClass
from pystate.effects.payload import ABSENT, AbsentType, JsonValue
from pystate.effects.record import EffectRecord
from pystate.effects.redaction import to_json
from pystate.effects.requests import Lease
from pystate.effects.runtime.call import Call
from pystate.effects.runtime.faults import FaultPoint
from pystate.effects.runtime.holding import Hold
from pystate.effects.runtime.parts import Parts, logger
from pystate.effects.runtime.steps import Progress, Step, retry_delay
from pystate.effects.runtime.writing import Batch
from pystate.effects.state import Transition

__all__ = ["Result", "conclude", "error_of", "run_action"]


@dataclass(frozen=True, slots=True)
class Result:
    """What an action came to: a value, or an error with its class.

    Attributes:
        value: what it returned; None if it failed.
        error: how it failed; None if it did not.
        output: the value as JSON; `ABSENT` if it has no JSON form.
        unstorable: why it has none.
    """

    value: Any = None
    error: ErrorRecord | None = None
    output: JsonValue | AbsentType = ABSENT
    unstorable: str | None = None

    @classmethod
    def returned(cls, value: Any) -> Result:
        """The code of the effect returned this."""
        try:
            return cls(value, output=to_json(value, "output"))
        except Exception as error:  # noqa: BLE001 - a value may run code of the program; the effect did happen
            return cls(value, unstorable=_text(error))

    def without_output(self, reason: str) -> Result:
        """The same value, which cannot be stored."""
        return Result(self.value, unstorable=reason)

    def stored(self, schema_version: int) -> dict[str, Any]:
        """The fields of the transition that stores the output."""
        if self.unstorable is not None:
            return {"payload": {"output_not_stored": self.unstorable}}
        return {"output": self.output, "output_schema_version": schema_version}


async def run_action(parts: Parts, call: Call, progress: Progress, hold: Hold, record: EffectRecord) -> Result:
    """Run the action of an effect whose attempt is stored, at most for its `attempt_timeout`.

    When the event loop ends, which cancels all tasks, the action is given up, so that its result can still be stored.

    Raises:
        LeaseLostError: the lease was lost meanwhile; the action runs on, and its result cannot be stored.
    """
    effect = call.effect
    action = parts.start(effect.action, call.context(record.id, record.attempt_count))
    parts.reach(FaultPoint.AFTER_ACTION_STARTED)
    ended, loop_ends = await hold.see_through(action, effect.attempt_timeout)
    progress.stopped = progress.stopped or loop_ends
    parts.reach(FaultPoint.AFTER_ACTION_RETURNED)
    if not ended:
        action.cancel()
        return Result(error=timed_out(effect.attempt_timeout))
    error = error_of(action, record, "action")
    return Result.returned(action.result()) if error is None else Result(error=error)


def error_of(task: asyncio.Task[Any], record: EffectRecord, what: str) -> ErrorRecord | None:
    """How code of an effect has failed: as its `EffectFailure` says, or nobody knows how; None if it has not."""
    if task.cancelled():
        return ErrorRecord(failure_class=FailureClass.AMBIGUOUS, message=f"the {what} was cancelled")
    error = task.exception()
    if error is None:
        return None
    if isinstance(error, EffectFailure):
        return ErrorRecord(failure_class=error.failure_class, message=_text(error.error))
    logger.warning("effect %s: the %s raised %s", record.id, what, type(error).__name__, exc_info=error)
    return ErrorRecord(failure_class=FailureClass.AMBIGUOUS, message=f"{type(error).__name__}: {_text(error)}")


def timed_out(timeout: timedelta | None) -> ErrorRecord:
    """Nobody knows: it took too long."""
    return ErrorRecord(failure_class=FailureClass.AMBIGUOUS, message=f"no result within {timeout}")


def conclude(
    parts: Parts, call: Call, progress: Progress, batch: Batch, record: EffectRecord, lease: Lease, result: Result
) -> tuple[EffectRecord, Step]:
    """Store what an action came to, and what follows from it.

    Returns:
        The record after that, and what must be done next.
    """
    if result.error is None:
        fields = result.stored(call.effect.output_schema.version)
        if call.effect.verify is None:
            record = batch.transition(record, lease, Transition.SUCCEEDED, actor=call.actor, **fields)
            return progress.go_on(batch, record, lease)
        return batch.transition(record, lease, Transition.START_VERIFICATION, actor=call.actor, **fields), Step.VERIFY
    return _fail(parts, call, progress, batch, record, lease, result.error)


def _fail(
    parts: Parts, call: Call, progress: Progress, batch: Batch, record: EffectRecord, lease: Lease, error: ErrorRecord
) -> tuple[EffectRecord, Step]:
    failure = error.failure_class or FailureClass.AMBIGUOUS
    escalate = False
    if failure.disposition is Disposition.UNKNOWN:
        record = batch.transition(record, lease, Transition.OUTCOME_UNKNOWN, actor=call.actor, error=error)
    elif failure.disposition is Disposition.RETRY and call.may_retry(record.attempt_count):
        delay = retry_delay(parts, call, record, failure)
        payload = {"delay_ms": delay // timedelta(milliseconds=1)}
        record = batch.transition(
            record, lease, Transition.SCHEDULE_RETRY, actor=call.actor, error=error, after=delay, payload=payload
        )
    elif record.may_have_applied and record.kind is not EffectKind.READ:
        # This attempt did not apply, but an earlier one may have: the effect must not be called failed.
        escalate = True
        record = batch.transition(
            record,
            lease,
            Transition.OUTCOME_UNKNOWN,
            actor=call.actor,
            error=error,
            after=failure.retry_after,
            payload={"earlier_attempt_may_have_applied": True},
        )
    else:
        record = batch.transition(record, lease, Transition.FAILED_DEFINITIVELY, actor=call.actor, error=error)
    return progress.go_on(batch, record, lease, escalate=escalate)


def _text(error: object) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception of a program may not even print
        return f"a {type(error).__name__} that cannot be printed"
