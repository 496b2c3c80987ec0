"""What must be so before the first attempt: the precondition, and the approval. Code that fails has said no to neither.

A precondition that raises rejects, for it could not say that the effect may be attempted. An approver that raises has
not decided: the effect awaits approval, and the next call asks again.
"""

from __future__ import annotations

from pystate.effects.kinds import ErrorRecord
from pystate.effects.record import EffectRecord
from pystate.effects.requests import Lease
from pystate.effects.runtime.answers import Approval, ApprovalRequest, Precondition
from pystate.effects.runtime.attempt import error_of
from pystate.effects.runtime.call import Call
from pystate.effects.runtime.holding import Hold
from pystate.effects.runtime.parts import Parts
from pystate.effects.runtime.steps import Progress, Step
from pystate.effects.runtime.writing import Batch
from pystate.effects.state import Transition

__all__ = ["ask_approver", "check_precondition", "conclude_approval", "conclude_precondition"]


async def check_precondition(
    parts: Parts, call: Call, progress: Progress, hold: Hold, record: EffectRecord
) -> Precondition:
    """Ask the precondition of an effect, again and again if it says so, up to the number of checks of the call.

    Returns:
        Its answer; one that still says "later" only if the work is to stop.

    Raises:
        LeaseLostError: the lease was lost meanwhile.
    """
    answer = Precondition.satisfied()
    for index in range(call.checks):
        answer = await _precondition(parts, call, hold, record)
        if answer.after is None or progress.stopping:
            return answer
        if index + 1 < call.checks:
            await hold.sleep(answer.after)
    return Precondition.rejected(answer.reason)


_HELD = ("satisfied", "rejected", "retry_later")


async def _precondition(parts: Parts, call: Call, hold: Hold, record: EffectRecord) -> Precondition:
    code = call.effect.precondition
    if code is None:
        return Precondition.satisfied()
    check = parts.start(code, call.context(record.id, 0))
    await hold.wait(check)
    error = error_of(check, record, "precondition")
    if error is not None:
        return Precondition.rejected(f"the precondition failed: {error.message}")
    answer = check.result()
    if not isinstance(answer, Precondition):
        return Precondition.rejected(f"the precondition returned a {type(answer).__name__} instead of a Precondition")
    if answer.held not in _HELD or (answer.held == "retry_later") != (answer.after is not None):
        return Precondition.rejected("the precondition returned what no constructor of Precondition makes")
    return answer


def conclude_precondition(
    call: Call, progress: Progress, batch: Batch, record: EffectRecord, lease: Lease, answer: Precondition
) -> tuple[EffectRecord, Step]:
    """Store what a precondition has said, and what follows from it.

    Returns:
        The record after that, and what must be done next.
    """
    if answer.held == "rejected":
        error = ErrorRecord(failure_class=None, message=answer.reason)
        record = batch.transition(record, lease, Transition.PRECONDITION_REJECTED, actor=call.actor, error=error)
    elif answer.held == "satisfied":
        progress.satisfied = True
    return progress.go_on(batch, record, lease)


async def ask_approver(parts: Parts, call: Call, hold: Hold, record: EffectRecord) -> Approval:
    """Ask the approver of the runtime about an effect that awaits approval.

    Raises:
        LeaseLostError: the lease was lost meanwhile.
    """
    if parts.approver is None:
        return Approval.deferred()
    request = ApprovalRequest(
        id=record.id,
        key=record.key,
        kind=record.kind,
        risk=call.effect.risk,
        input=record.input,
        requested_by=record.created_by,
    )
    question = parts.start(parts.approver, request)
    await hold.wait(question)
    if error_of(question, record, "approver") is not None:
        return Approval.deferred()
    answer = question.result()
    return answer if isinstance(answer, Approval) else Approval.deferred()


def conclude_approval(
    progress: Progress, batch: Batch, record: EffectRecord, lease: Lease, answer: Approval
) -> tuple[EffectRecord, Step]:
    """Store what an approver has decided, and what follows from it.

    Returns:
        The record after that, and what must be done next.
    """
    if answer.decided == "approved":
        record = batch.transition(record, lease, Transition.APPROVE, actor=answer.by)
    elif answer.decided == "denied":
        error = ErrorRecord(failure_class=None, message=answer.reason)
        record = batch.transition(record, lease, Transition.DENY, actor=answer.by, error=error)
    else:
        progress.undecided = True
    return progress.go_on(batch, record, lease)
