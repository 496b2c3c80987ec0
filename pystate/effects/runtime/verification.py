"""Looking an effect up at the remote, until the answer can be trusted or the checks are used up.

"Not found" is trusted at once when the lookup is authoritative. When it is eventually consistent, it is trusted only if
the lookup began at least ``settle`` after the end of the attempt. That time is measured in two parts, each by one
clock: from the end of the attempt to the start of the verification as they are stored, and since then locally.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pystate.effects.contract import VerificationContract, VerificationMode
from pystate.effects.kinds import ErrorRecord, FailureClass
from pystate.effects.record import EffectRecord
from pystate.effects.requests import Lease
from pystate.effects.runtime.answers import Verification
from pystate.effects.runtime.attempt import Result, error_of
from pystate.effects.runtime.call import Call
from pystate.effects.runtime.holding import Hold
from pystate.effects.runtime.parts import Parts
from pystate.effects.runtime.steps import Progress, Step, retry_delay
from pystate.effects.runtime.writing import Batch
from pystate.effects.state import Transition

__all__ = ["Finding", "conclude_verification", "trusted_after", "verify"]

_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a verification has found.

    Attributes:
        transition: confirmed, not applied, in conflict, or still unknown.
        result: the confirmed value; None in any other case.
        message: why, for the record.
        wait: how long it is no use to look again, when it is still unknown.
    """

    transition: Transition
    result: Result | None = None
    message: str = ""
    wait: timedelta | None = None


def trusted_after(verification: VerificationContract) -> timedelta | None:
    """How long after the end of an attempt "not found" is trusted; None is never."""
    return _NO_TIME if verification.mode is VerificationMode.AUTHORITATIVE else verification.settle


async def verify(parts: Parts, call: Call, progress: Progress, hold: Hold, record: EffectRecord) -> Finding:
    """Look up an effect whose verification is stored as started.

    Raises:
        LeaseLostError: the lease was lost meanwhile.
    """
    age = _age_of_attempt(parts, record)
    settle = trusted_after(call.contract.verification)
    message, rest = "no lookup was made", None
    for index in range(call.checks):
        asked = age()
        answer, message = await _look_up(parts, call, hold, record)
        wait = call.retry.delay(index, FailureClass.TRANSIENT, parts.sample())
        rest = None
        if answer.found == "confirmed":
            return Finding(Transition.VERIFICATION_CONFIRMED, result=Result.returned(answer.value))
        if answer.found == "conflict":
            return Finding(Transition.VERIFICATION_CONFLICT, message=message)
        if answer.found == "not_applied":
            if settle is not None and asked >= settle:
                return Finding(Transition.VERIFICATION_NOT_APPLIED, message=message)
            message = f"{message}, which could not be trusted {asked.total_seconds():g} s after the attempt"
            wait = rest = max(_NO_TIME, (settle or _NO_TIME) - age())
        if index + 1 == call.checks or progress.stopping:
            break
        await hold.sleep(wait)
    return Finding(Transition.OUTCOME_UNKNOWN, message=message, wait=rest)


def _age_of_attempt(parts: Parts, record: EffectRecord) -> Any:
    """A function that tells how long ago the newest attempt has ended."""
    ended_at = record.attempt_ended_at
    stored = _NO_TIME if ended_at is None else max(_NO_TIME, record.updated_at - ended_at)
    began = parts.clock.monotonic()
    return lambda: stored + timedelta(seconds=parts.clock.monotonic() - began)


async def _look_up(parts: Parts, call: Call, hold: Hold, record: EffectRecord) -> tuple[Verification[Any], str]:
    """One answer of the remote, and what to record of it."""
    code = call.effect.verify
    if code is None:
        return Verification.inconclusive(), "there is no way to look it up"
    lookup = parts.start(code, call.context(record.id, record.attempt_count))
    await hold.wait(lookup)
    error = error_of(lookup, record, "lookup")
    if error is not None:
        return Verification.inconclusive(), f"the lookup failed: {error.message}"
    answer = lookup.result()
    if isinstance(answer, Verification) and answer.found not in _MESSAGES:
        return Verification.inconclusive(), "the lookup returned what no constructor of Verification makes"
    if not isinstance(answer, Verification):
        return Verification.inconclusive(), f"the lookup returned a {type(answer).__name__} instead of a Verification"
    return answer, answer.details or _MESSAGES[answer.found]


_MESSAGES = {
    "confirmed": "the lookup found it",
    "not_applied": "the lookup did not find it",
    "conflict": "the lookup found something else",
    "inconclusive": "the lookup could not tell",
}


def conclude_verification(
    parts: Parts, call: Call, progress: Progress, batch: Batch, record: EffectRecord, lease: Lease, finding: Finding
) -> tuple[EffectRecord, Step]:
    """Store what a verification has found, and what follows from it.

    Returns:
        The record after that, and what must be done next.
    """
    transition = finding.transition
    error = ErrorRecord(failure_class=None, message=finding.message)
    fields: dict[str, Any] = {"error": error}
    if finding.result is not None:
        fields = finding.result.stored(call.effect.output_schema.version)
    elif transition is Transition.VERIFICATION_NOT_APPLIED and call.may_retry(record.attempt_count):
        transition = Transition.SCHEDULE_RETRY
        fields["after"] = retry_delay(parts, call, record, FailureClass.TRANSIENT)
    elif transition is Transition.OUTCOME_UNKNOWN:
        progress.checks_spent = True
        fields["error"] = ErrorRecord(failure_class=FailureClass.AMBIGUOUS, message=finding.message)
        fields["after"] = finding.wait
    record = batch.transition(record, lease, transition, actor=call.actor, **fields)
    return progress.go_on(batch, record, lease)
