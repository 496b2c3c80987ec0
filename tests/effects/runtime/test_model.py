"""Random lives of an effect: any protection, any remote, crashes, lapses, recoveries, people who decide, pruning.

After every step the trail must keep its invariants, and must be true about the world outside (6.2 and 6.3 of the
behaviour). The remote is as unreliable as it likes, but a lookup that confirms is right, and people tell the truth.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pystate.effects import (
    Approval,
    EffectFailure,
    EffectId,
    EffectInternalError,
    EffectKind,
    EffectRecord,
    EffectStatus,
    FaultAction,
    FaultInjector,
    FaultPoint,
    Handler,
    LeaseHeldError,
    NoSuchEffectError,
    Observation,
    Observer,
    Precondition,
    Resolution,
    RetentionPolicy,
    RetryPolicy,
    RiskPolicy,
    Runtime,
    Secret,
    Transition,
    Verification,
    VerificationContract,
)
from tests.effects.runtime.leaving import LAPSE
from tests.effects.runtime.remote import Reply
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import seconds

SECRET = "s3cret-value"
S = EffectStatus
RESTING = {S.COMMITTED, S.FAILED, S.REJECTED, S.COMPENSATED, S.NEEDS_INTERVENTION, S.AWAITING_APPROVAL,
           S.COMPENSATION_FAILED}  # fmt: skip

REPLIES: list[Any] = [
    *Reply,
    *[Reply.APPLY_AND_DROP] * 4,  # what most of this is about
    Reply.DROP,
    EffectFailure.transient("busy"),
    EffectFailure.permanent("no"),
    EffectFailure.validation("wrong"),
    EffectFailure.rate_limited(timedelta(seconds=3), "slow down"),
    ValueError("a mistake in the program"),
]
LOOKUPS: list[Any] = [
    Verification.inconclusive("busy"),
    Verification.conflict("another amount"),
    OSError("unreachable"),
]
UNDOINGS: list[Any] = [EffectFailure.transient("busy"), EffectFailure.ambiguous("broke"), EffectFailure.permanent("no")]
DECISIONS = [Approval.approved("ann"), Approval.denied("bob", "no"), Approval.deferred(), RuntimeError("unreachable")]


@dataclass(frozen=True)
class Config:
    """What kind of effect it is."""

    protection: str
    kind: EffectKind
    approval: bool
    precondition: bool
    max_attempts: int
    automatic: bool
    approver: bool


@dataclass(frozen=True)
class Step:
    """One thing that is done to it."""

    what: str
    point: FaultPoint | None
    replies: tuple[Any, ...] = ()
    lookups: tuple[Any, ...] = ()
    undoings: tuple[Any, ...] = ()
    decisions: tuple[Any, ...] = ()
    flag: bool = True


def some_of(values: list[Any], most: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """What a remote or a person answers, one after the other."""
    return st.lists(st.sampled_from(values), max_size=most).map(tuple)


seldom = st.sampled_from([False, False, False, True])
CONFIGS = st.builds(
    Config,
    protection=st.sampled_from(["verified", "eventually", "idempotent", "unprotected"]),
    kind=st.sampled_from(
        [*[EffectKind.IRREVERSIBLE_WRITE] * 4, EffectKind.REVERSIBLE_WRITE, EffectKind.IDEMPOTENT_WRITE]
    ),
    approval=seldom,
    precondition=seldom,
    max_attempts=st.sampled_from([3, 2, 1]),
    automatic=seldom.map(lambda value: not value),
    approver=st.booleans(),
)
points = st.sampled_from([None] * 16 + list(FaultPoint))
what = st.sampled_from(
    ["run", "run", "recover", "recover", "lapse", "wait", "compensate", "decide", "resolve", "prune"]
)
STEPS = st.builds(
    Step,
    what=what,
    point=points,
    replies=some_of(REPLIES, 3),
    lookups=some_of(LOOKUPS, 2),
    undoings=some_of(UNDOINGS, 2),
    decisions=some_of(DECISIONS, 1),
    flag=st.booleans(),
)
BEGINNINGS = st.builds(
    Step,
    what=st.just("run"),
    point=points,
    replies=st.lists(st.sampled_from(REPLIES), min_size=1, max_size=3).map(tuple),
    decisions=some_of(DECISIONS, 1),
)
"""Without this most lives would be over before they have begun."""


class Listener(Observer):
    """What observers of all workers have heard, by effect."""

    def __init__(self) -> None:
        self.heard: dict[EffectId, list[Transition]] = defaultdict(list)

    def on_transition(self, observation: Observation) -> None:
        self.heard[observation.record.id].append(observation.transition)


class Life:
    """One case: the world, and what happens to its one effect."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.world = World()
        self.world.approval_required = config.approval
        self.listener = Listener()
        self.decisions: list[Any] = []
        self.undoings: list[Any] = []
        self.held = True
        self.retries: Counter[EffectId] = Counter()
        self.before: dict[EffectId, int] = {}
        self.undone_before: dict[EffectId, int] = {}
        self.undone = 0
        self.workers = 0
        self.effect = self.make()

    def make(self) -> Handler[Any]:
        remote, config = self.world.remote, self.config
        protection: dict[str, Any] = {}
        if config.protection in ("verified", "eventually"):
            protection["verify"] = remote.look_up
        if config.protection == "eventually":
            remote.lag = seconds(5)
            protection["verification"] = VerificationContract.eventually_consistent(seconds(10))
        if config.protection == "idempotent":
            protection["remote_idempotency"] = remote.honours_keys = True
        return Handler(
            "payment.charge",
            remote.create,
            kind=config.kind,
            compensate=self.undo,
            precondition=self.precondition if config.precondition else None,
            require_approval=config.approval,
            retry=RetryPolicy(max_attempts=config.max_attempts, jitter=False),
            attempt_timeout=seconds(20),
            **protection,
        )

    async def undo(self, context: Any) -> None:
        failure = self.undoings.pop(0) if self.undoings else None
        if failure is None or "broke" in str(failure):
            self.undone += 1
        if failure is not None:
            raise failure

    async def precondition(self, context: Any) -> Precondition:
        return Precondition.satisfied() if self.held else Precondition.rejected("stale")

    async def approve(self, request: Any) -> Approval:
        decision = self.decisions.pop(0) if self.decisions else Approval.deferred()
        if isinstance(decision, Exception):
            raise decision
        assert isinstance(decision, Approval)
        return decision

    # Steps

    def runtime(self, point: FaultPoint | None = None) -> Runtime:
        self.workers += 1
        runtime = self.world.runtime(
            f"worker {self.workers}",
            observers=[self.listener],
            faults=None if point is None else FaultInjector({point: FaultAction.CRASH}),
            approver=self.approve if self.config.approver else None,
            risk_policy=RiskPolicy() if self.config.automatic else RiskPolicy().no_automatic_retry(),
            retention=RetentionPolicy.settled(seconds(100)),
        )
        runtime.register(self.effect)
        return runtime

    def take(self, step: Step) -> None:
        """Do one step, then look at everything."""
        remote = self.world.remote
        remote.script, remote.lookups = list(step.replies), list(step.lookups)
        self.undoings, self.decisions = list(step.undoings), list(step.decisions)
        self.held = step.flag or not self.config.precondition
        getattr(self, step.what)(step)
        self.check()

    def do(self, work: Any, land: bool = True) -> Any:
        async def main() -> Any:
            try:
                return await self.world.clock.drive(work)
            except EffectInternalError:
                if land:  # the request is on its way, and arrives
                    await self.world.clock.advance(seconds(0))
                return None

        return run_async(main)

    def run(self, step: Step) -> None:
        runtime = self.runtime(step.point)
        self.do(runtime.run(self.effect, "order_1", {"token": Secret(SECRET), "amount": 1}), land=step.flag)

    def recover(self, step: Step) -> None:
        self.do(self.runtime(step.point).recover(), land=step.flag)

    def lapse(self, step: Step) -> None:
        self.world.pass_time(LAPSE)

    def wait(self, step: Step) -> None:
        self.world.pass_time(5)

    def compensate(self, step: Step) -> None:
        try:
            self.do(self.runtime(step.point).compensate(self.effect, "order_1", reason="late"))
        except NoSuchEffectError:
            assert self.world.is_empty()

    def decide(self, step: Step) -> None:
        record = self.record()
        if record is None or record.status is not S.AWAITING_APPROVAL:
            return
        runtime = self.runtime()
        decision = runtime.approve(record.id, "ann") if step.flag else runtime.deny(record.id, "bob", "no")
        try:
            self.do(decision)
        except LeaseHeldError:
            assert record.live_lease_owner(self.world.clock.now()) is not None

    def resolve(self, step: Step) -> None:
        """A person tells the truth: looks at the world, and orders a retry only where that does no harm."""
        record = self.record()
        if record is None or record.status not in (S.UNKNOWN, S.NEEDS_INTERVENTION, S.COMPENSATION_FAILED):
            return
        created = self.created(record)
        if record.status is S.COMPENSATION_FAILED:
            undone = self.undone > self.undone_before[record.id]
            resolution = Resolution.compensated() if undone else Resolution.retry()
        elif step.flag and (not created or self.config.protection == "idempotent"):
            resolution = Resolution.retry()
        else:
            resolution = Resolution.applied("res") if created else Resolution.not_applied()
        try:
            self.do(self.runtime().resolve(record.id, resolution, "op", "looked"))
        except LeaseHeldError:
            return
        self.retries[record.id] += resolution.decided == "retry"

    def prune(self, step: Step) -> None:
        self.world.pass_time(100)
        self.do(self.runtime().prune())

    # Looking

    def record(self) -> EffectRecord | None:
        if self.world.is_empty():
            return None
        return self.world.record()

    def created(self, record: EffectRecord) -> int:
        """How often this generation of the effect has changed the world."""
        return len(self.world.remote.created) - self.before[record.id]

    def check(self) -> None:
        """6.2 by `World.check`, 6.3 here."""
        self.world.check()
        record = self.record()
        if record is None:
            return
        remote = self.world.remote
        if record.id not in self.before:
            # A remote that keeps its keys also keeps what an earlier generation has created.
            self.before[record.id] = 0 if remote.honours_keys else self.counted
            self.undone_before[record.id] = self.undone_counted
        taken = [event.transition for event in self.world.events()]
        if not record.kind.is_naturally_idempotent:
            created = self.created(record)
            assert created <= 1
            # What a lookup has found may be of an earlier generation, whose record was pruned.
            assert remote.created or record.status is not S.COMMITTED
            if not remote.honours_keys:
                assert not created or record.status not in (S.FAILED, S.REJECTED, S.PENDING, S.AWAITING_APPROVAL)
        if not self.config.automatic:
            assert record.attempt_count <= 1 + self.retries[record.id]
        undone = self.undone - self.undone_before[record.id]
        assert not undone or Transition.START_COMPENSATION in taken
        assert undone or record.status is not S.COMPENSATED
        assert self.listener.heard[record.id] == taken
        assert SECRET not in f"{record} {self.world.events()}"

    counted = 0
    undone_counted = 0

    def remember(self) -> None:
        """Count what there was before the next step, which may begin a new generation."""
        self.counted, self.undone_counted = len(self.world.remote.created), self.undone

    def settle(self) -> None:
        """With everything in order again, recovery alone brings the effect to rest."""
        for _ in range(3):
            self.remember()
            self.world.pass_time(LAPSE + 30)
            self.take(Step("recover", None))
        record = self.record()
        assert record is None or record.status in RESTING


@settings(max_examples=500)
@given(config=CONFIGS, first=BEGINNINGS, steps=st.lists(STEPS, max_size=6))
def test_any_life_of_an_effect_keeps_the_promises(config: Config, first: Step, steps: list[Step]) -> None:
    """Check E176: trails and the world outside, after every step; and at the end everything comes to rest."""
    life = Life(config)
    for step in [first, *steps]:
        life.remember()
        life.take(step)
    life.settle()
