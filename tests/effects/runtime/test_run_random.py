"""Random effects, remotes, crashes and callers: what holds for the trail and the outside world, whatever happens.

The remote is unreliable but truthful: what it applied, a lookup finds after its lag, and a person who decides knows.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pystate.effects import (
    ABSENT,
    Approval,
    ApprovalRequest,
    Committed,
    EffectContext,
    EffectFailure,
    EffectInternalError,
    EffectKind,
    EffectStatus,
    FaultAction,
    FaultInjector,
    FaultPoint,
    Observation,
    Observer,
    Outcome,
    Precondition,
    RetryPolicy,
    RiskPolicy,
    Transition,
    TransitionRequest,
    Verification,
    VerificationContract,
)
from tests.effects.runtime.remote import Remote, Reply
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import seconds

SETTLE = seconds(10)

PROTECTIONS = ["verified", "eventually verified", "idempotent", "unprotected"]
REPLIES: list[Any] = [
    *Reply,
    EffectFailure.transient("busy"),
    EffectFailure.rate_limited(seconds(40), "429"),
    EffectFailure.permanent("no"),
    EffectFailure.ambiguous("not sent", request_sent=False),
    RuntimeError("crash"),
]
LOOKUPS: list[Any] = [Verification.inconclusive("slow"), EffectFailure.transient("busy"), RuntimeError("crash")]
CONDITIONS: list[Any] = [Precondition.satisfied(), Precondition.retry_later(seconds(3), "later")]
POINTS = [point for point in FaultPoint if point is not FaultPoint.AFTER_COMPENSATION_STARTED]

STEPS = st.one_of(
    st.tuples(st.just("run"), st.sampled_from("abc")),
    st.tuples(st.just("crash"), st.sampled_from(POINTS)),
    st.tuples(st.just("wait"), st.sampled_from([1, 10, 29, 30, 100])),
    st.tuples(st.just("decide"), st.booleans()),
)


class Hears(Observer):
    def __init__(self) -> None:
        self.transitions: list[Transition] = []

    def on_transition(self, observation: Observation) -> None:
        self.transitions.append(observation.transition)


class Case:
    """One effect, and what happens to it."""

    def __init__(self, data: st.DataObject) -> None:
        self.world = World()
        self.hears = Hears()
        protection = data.draw(st.sampled_from(PROTECTIONS), "protection")
        self.remote = self.world.remote = Remote(
            self.world.clock,
            data.draw(st.lists(st.sampled_from(REPLIES), max_size=6), "replies"),
            honours_keys=protection == "idempotent",
            lag=SETTLE if protection == "eventually verified" else seconds(0),
            lookups=data.draw(st.lists(st.sampled_from(LOOKUPS), max_size=6), "lookups"),
        )
        self.conditions = data.draw(st.lists(st.sampled_from(CONDITIONS), max_size=2), "conditions")
        settings: dict[str, Any] = {
            "kind": data.draw(st.sampled_from([EffectKind.IRREVERSIBLE_WRITE, EffectKind.REVERSIBLE_WRITE]), "kind"),
            "attempt_timeout": seconds(20),
            "remote_idempotency": protection == "idempotent",
            "retry": RetryPolicy(max_attempts=data.draw(st.integers(1, 4), "attempts"), jitter=False),
        }
        if protection.endswith("verified"):
            settings["verify"] = self.remote.look_up
            if protection == "eventually verified":
                settings["verification"] = VerificationContract.eventually_consistent(SETTLE)
        if self.conditions:
            settings["precondition"] = self.condition
        self.world.approval_required = settings["require_approval"] = data.draw(st.booleans(), "approval")
        self.automatic = data.draw(st.booleans(), "automatic retry")
        self.policy = RiskPolicy() if self.automatic else RiskPolicy().no_automatic_retry()
        self.effect = self.world.effect(**settings)
        self.retries_ordered = 0

    async def condition(self, context: EffectContext) -> Precondition:
        answer: Precondition = self.conditions.pop(0) if len(self.conditions) > 1 else Precondition.satisfied()
        return answer

    async def approve(self, request: ApprovalRequest) -> Approval:
        return Approval.approved("ann")

    async def take(self, step: str, argument: Any) -> None:
        world = self.world
        if step == "wait":
            await world.clock.advance(seconds(argument))
        elif step == "decide":
            self.decide(argument)
        else:
            faults = FaultInjector({argument: FaultAction.CRASH}) if step == "crash" else None
            runtime = world.runtime(
                argument if step == "run" else "crasher",
                observers=[self.hears],
                faults=faults,
                approver=self.approve,
                risk_policy=self.policy,
            )
            try:
                outcome = await world.clock.drive(runtime.run(self.effect, "order_1"))
                self.check_outcome(outcome)
            except EffectInternalError:
                assert faults is not None and faults.reached[-1] is argument
        self.check()

    def decide(self, retry: bool) -> None:
        """A person looks at the remote, and decides truthfully; or lets it run again, where it has not been done."""
        if self.world.is_empty():
            return
        record = self.world.record()
        if record.status is not EffectStatus.NEEDS_INTERVENTION:
            return
        if self.remote.created:
            transition = Transition.RESOLVED_APPLIED
        elif retry:
            transition = Transition.RESOLVED_RETRY
            self.retries_ordered += 1
        else:
            transition = Transition.RESOLVED_NOT_APPLIED
        output = "told" if transition is Transition.RESOLVED_APPLIED else ABSENT
        now = self.world.clock.now()
        self.world.store.transition(TransitionRequest.new(record, None, transition, now, output=output))
        self.hears.transitions.append(transition)

    def check_outcome(self, outcome: Outcome[Any]) -> None:
        if isinstance(outcome, Committed):
            assert outcome.value in ("res_1", "told")

    def check(self) -> None:
        self.world.check()
        if self.world.is_empty():
            assert not self.remote.calls
            return
        record, events = self.world.record(), self.world.events()
        assert self.hears.transitions == [event.transition for event in events]
        assert len(self.remote.created) <= 1
        if record.status is EffectStatus.COMMITTED:
            assert self.remote.created
        if record.status in (EffectStatus.FAILED, EffectStatus.REJECTED):
            assert not self.remote.created
        if not self.automatic:
            assert record.attempt_count <= 1 + self.retries_ordered
        assert len(self.remote.calls) <= record.attempt_count


@given(data=st.data(), steps=st.lists(STEPS, min_size=1, max_size=8))
def test_whatever_happens_nothing_is_done_twice_or_misreported(
    data: st.DataObject, steps: list[tuple[str, Any]]
) -> None:
    """Invariants of trail and outside world, after each of up to eight runs, crashes, waits and decisions."""
    case = Case(data)

    async def main() -> None:
        for step, argument in steps:
            await case.take(step, argument)
        # In the end everybody has gone: the next caller brings it to an outcome that stays.
        await case.take("wait", 100)
        await case.take("run", "z")
        record = case.world.record()
        assert record.lease_owner is None
        assert record.status in (
            EffectStatus.COMMITTED,
            EffectStatus.FAILED,
            EffectStatus.REJECTED,
            EffectStatus.NEEDS_INTERVENTION,
            EffectStatus.UNKNOWN,
        )

    run_async(main)
