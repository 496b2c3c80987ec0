"""Preconditions and approvals: what must be so before the first attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pystate.effects import (
    Approval,
    ApprovalRequest,
    AwaitingApproval,
    Committed,
    EffectContext,
    EffectFailure,
    EffectKind,
    EffectStatus,
    ErrorRecord,
    Precondition,
    RedactKeys,
    Rejected,
    RetryPolicy,
    RiskLevel,
    RiskPolicy,
    Transition,
    TransitionRequest,
)
from tests.effects.runtime.world import World
from tests.effects.samples import seconds


class Check:
    """A precondition that counts its calls, and answers from a list; the last answer stays."""

    def __init__(self, *answers: Precondition | Exception) -> None:
        self.answers = list(answers)
        self.attempts: list[int] = []

    async def __call__(self, context: EffectContext) -> Precondition:
        self.attempts.append(context.attempt)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def rejected(reason: str) -> Rejected:
    return Rejected(ErrorRecord(failure_class=None, message=reason))


def test_a_precondition_rejects(world: World) -> None:
    """Check E127: precondition_rejected, no attempt, the action is never called."""
    check = Check(Precondition.rejected("stale"))
    effect = world.effect(precondition=check)
    assert world.run(effect) == rejected("stale")
    assert world.trail() == "precondition_rejected"
    assert world.record().attempt_count == 0 and world.record().lease_owner is None
    assert world.remote.calls == []
    assert check.attempts == [0]
    assert world.run(effect) == rejected("stale")
    assert check.attempts == [0]


def test_a_precondition_is_asked_again_as_often_as_attempts_are_made(world: World) -> None:
    """Check E128: later, after 5 s, three times in all; rejected with the last reason after 10 s."""
    check = Check(*(Precondition.retry_later(seconds(5), f"no stock {number}") for number in range(9)))
    assert world.run(world.effect(precondition=check, retry=RetryPolicy(max_attempts=3))) == rejected("no stock 2")
    assert len(check.attempts) == 3
    assert world.seconds == 10


def test_a_precondition_may_come_true(world: World) -> None:
    check = Check(Precondition.retry_later(seconds(5), "no stock"), Precondition.satisfied())
    assert world.run(world.effect(precondition=check)) == Committed("res_1")
    assert world.seconds == 5


@pytest.mark.parametrize("error", [RuntimeError("boom"), EffectFailure.transient("boom")], ids=repr)
def test_a_precondition_that_crashes_rejects(world: World, error: Exception) -> None:
    """Check E128: it could not say that the effect may be attempted."""
    outcome = world.run(world.effect(precondition=Check(error)))
    assert isinstance(outcome, Rejected) and "boom" in outcome.error.message
    assert world.remote.calls == []


def test_a_precondition_that_answers_something_else_rejects(world: World) -> None:
    async def check(context: EffectContext) -> bool:
        return True

    outcome = world.run(world.effect(precondition=check))
    assert isinstance(outcome, Rejected) and "bool" in outcome.error.message


def test_a_precondition_is_asked_before_the_first_attempt_only(world: World) -> None:
    """Check E129: an attempt may have made it false."""
    world.remote.script = [EffectFailure.transient("busy")]
    check = Check(Precondition.satisfied())
    assert world.run(world.effect(precondition=check)) == Committed("res_1")
    assert check.attempts == [0]
    assert world.trail() == "AS RS AS OK"


# Approvals


class Approver:
    """Counts its calls, and keeps what it was told."""

    def __init__(self, answer: Approval | Exception | object) -> None:
        self.answer = answer
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_without_an_approver_the_effect_waits(world: World) -> None:
    """Check E130: approval_requested; later calls wait as well, the action is never called."""
    world.approval_required = True
    effect = world.effect(require_approval=True)
    for worker in "abc":
        assert world.run(effect, worker=worker) == AwaitingApproval(world.record().id)
    assert world.trail() == "AR"
    assert world.remote.calls == []
    assert world.record().lease_owner is None


@pytest.mark.parametrize("answer", [Approval.deferred(), RuntimeError("asleep"), None], ids=repr)
def test_an_approver_that_has_not_decided_is_asked_again_by_the_next_call(world: World, answer: object) -> None:
    """Check E130: deferred, crashed, or something else."""
    world.approval_required = True
    approver = Approver(answer)
    effect = world.effect(require_approval=True)
    for asked in (1, 2, 3):
        assert isinstance(world.run(effect, approver=approver), AwaitingApproval)
        assert len(approver.asked) == asked
    assert world.trail() == "AR"


def test_an_approver_approves(world: World) -> None:
    """Check E131: AR AP AS OK by `ann`; the precondition was asked twice; one approval covers all attempts."""
    world.approval_required = True
    check = Check(Precondition.satisfied())
    approver = Approver(Approval.approved("ann"))
    world.remote.script = [EffectFailure.transient("busy")]
    effect = world.effect(precondition=check, require_approval=True)
    assert world.run(effect, approver=approver, actor="bob") == Committed("res_1")
    assert world.trail() == "AR AP AS RS AS OK"
    assert [event.actor for event in world.events()] == ["bob", "ann", "bob", "bob", "bob", "bob"]
    assert check.attempts == [0, 0]
    assert len(approver.asked) == 1


def test_an_approver_is_told_what_is_stored(world: World) -> None:
    world.approval_required = True
    approver = Approver(Approval.approved("ann"))
    effect = world.effect(require_approval=True, risk=RiskLevel.HIGH, kind=EffectKind.REVERSIBLE_WRITE)
    input = {"card_number": "4242", "amount": 1}  # noqa: A001
    world.run(effect, "order_1", input, approver=approver, redactor=RedactKeys(["card_number"]), actor="bob")
    record = world.record()
    assert approver.asked == [
        ApprovalRequest(
            id=record.id,
            key=record.key,
            kind=EffectKind.REVERSIBLE_WRITE,
            risk=RiskLevel.HIGH,
            input={"card_number": "[REDACTED]", "amount": 1},
            requested_by="bob",
        )
    ]


def test_an_approver_denies(world: World) -> None:
    """Check E132: AR denied by `bob`, rejected for good."""
    world.approval_required = True
    effect = world.effect(require_approval=True)
    assert world.run(effect, approver=Approver(Approval.denied("bob", "no"))) == rejected("no")
    assert world.trail() == "AR denied"
    assert world.events()[1].actor == "bob"
    assert world.run(effect, approver=Approver(Approval.approved("ann"))) == rejected("no")


def test_an_operators_approval_is_enough(world: World) -> None:
    world.approval_required = True
    check = Check(Precondition.satisfied())
    effect = world.effect(require_approval=True, precondition=check)
    world.run(effect)
    approve = TransitionRequest.new(world.record(), None, Transition.APPROVE, world.clock.now(), actor="operator:ann")
    world.store.transition(approve)
    assert world.run(effect) == Committed("res_1")
    assert world.trail() == "AR AP AS OK"
    assert check.attempts == [0, 0]


def test_a_risk_policy_may_demand_an_approval(world: World) -> None:
    world.approval_required = True
    policy = RiskPolicy().rule(risk=RiskLevel.HIGH).require_approval()
    assert isinstance(world.run(world.effect(risk=RiskLevel.HIGH), risk_policy=policy), AwaitingApproval)
    assert world.record().execution_contract is not None
    assert world.record().status is EffectStatus.AWAITING_APPROVAL


ANSWERS: dict[str, Callable[[], object]] = {
    "no reason": lambda: Precondition.rejected(1),  # type: ignore[arg-type]
    "negative": lambda: Precondition.retry_later(seconds(-1), "x"),
    "nobody": lambda: Approval.approved(None),  # type: ignore[arg-type]
    "surrogate": lambda: Approval.denied("a", "\udc80"),
}


@pytest.mark.parametrize("make", ANSWERS.values(), ids=list(ANSWERS))
def test_answers_are_checked_where_they_are_made(make: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


@pytest.mark.parametrize(
    "answer",
    [
        Precondition("bogus"),  # type: ignore[arg-type]
        Precondition("retry_later", "later"),
    ],
    ids=["unknown", "no time"],
)
def test_an_answer_that_no_constructor_makes_is_a_rejection(world: World, answer: Precondition) -> None:
    outcome = world.run(world.effect(precondition=lambda _: answer))
    assert isinstance(outcome, Rejected)
    assert world.trail() == "precondition_rejected"
