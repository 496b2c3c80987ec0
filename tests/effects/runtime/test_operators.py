"""What people decide: recorded with who and why, refused while somebody works on the effect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pystate.effects import (
    ABSENT,
    AwaitingApproval,
    Committed,
    EffectFailure,
    EffectId,
    EffectNotFoundError,
    EffectStatus,
    EffectStore,
    Failed,
    FaultPoint,
    InvalidTransitionError,
    LeaseHeldError,
    NeedsIntervention,
    NotJsonError,
    Observation,
    Observer,
    OutputUnavailableError,
    RedactKeys,
    Rejected,
    Resolution,
    RetryPolicy,
    Runtime,
    Secret,
    Unknown,
    Verification,
)
from tests.effects.runtime.leaving import LAPSE, crash, do, handler, left_committed, worker
from tests.effects.runtime.remote import Reply
from tests.effects.runtime.world import World


def resolve(world: World, resolution: Resolution, note: str = "", **settings: Any) -> Any:
    return do(world, world.runtime(**settings).resolve(world.record().id, resolution, "op", note))


def in_doubt(world: World, **settings: Any) -> Any:
    """An effect that needs intervention."""
    world.remote.script = [Reply.APPLY_AND_DROP]
    effect = world.effect(**settings)
    assert isinstance(world.run(effect), NeedsIntervention)
    return effect


def test_an_unknown_effect_that_did_not_happen_has_failed(world: World) -> None:
    """Check E147: with the note as the error, in the trail with its actor."""
    effect = world.effect(verify=world.remote.look_up)
    world.remote.script = [Reply.DROP]
    world.remote.lookups = [Verification.inconclusive()] * 5
    outcome = world.run(effect)
    assert isinstance(outcome, Unknown)
    record = resolve(world, Resolution.not_applied(), "checked")
    event = world.events()[-1]
    assert (event.actor, event.payload) == ("op", {"note": "checked"})
    assert record == world.record() and record.status is EffectStatus.FAILED and not record.may_have_applied
    outcome = world.run(effect)
    assert isinstance(outcome, Failed)
    assert (outcome.error.message, outcome.error.failure_class) == ("checked", None)


def test_a_retry_is_exactly_one_attempt_over_the_budget(world: World) -> None:
    """Check E148: an effect without budget runs once more, and is in doubt again."""
    effect = in_doubt(world, retry=RetryPolicy.NONE)
    resolve(world, Resolution.retry())
    assert world.record().status is EffectStatus.PENDING
    world.remote.script = [EffectFailure.transient("busy")]
    assert isinstance(world.run(effect), NeedsIntervention)
    assert len(world.remote.calls) == 2 == world.record().attempt_count
    assert isinstance(world.run(effect), NeedsIntervention)
    assert len(world.remote.calls) == 2
    assert world.trail() == "AS outcome_unknown ES resolved_retry AS outcome_unknown ES"


def test_an_effect_that_happened_reports_the_output_that_was_found(world: World) -> None:
    """Check E148: every call reports what the operator has found."""
    effect = in_doubt(world, output_type=int)
    record = resolve(world, Resolution.applied(5))
    assert record.output == 5 and record.output_schema_version == 1
    assert world.run(effect) == Committed(5) and len(world.remote.calls) == 1


def test_without_an_output_none_can_be_reported(world: World) -> None:
    effect = in_doubt(world)
    assert resolve(world, Resolution.applied()).output is ABSENT
    with pytest.raises(OutputUnavailableError):
        world.run(effect)
    assert len(world.remote.calls) == 1


def test_an_output_of_another_schema_version_says_so(world: World) -> None:
    in_doubt(world)
    assert resolve(world, Resolution.applied([1], output_schema_version=2)).output_schema_version == 2
    with pytest.raises(NotJsonError):
        Resolution.applied(object())
    with pytest.raises(ValueError, match="output_schema_version"):
        Resolution.applied(1, output_schema_version=-1)


def test_what_cannot_be_decided_is_refused(world: World) -> None:
    """Check E149: committed, held, unknown id; and nothing is changed."""
    effect = handler(world)
    before = left_committed(world, effect)
    for resolution in (Resolution.applied(), Resolution.not_applied(), Resolution.retry(), Resolution.compensated()):
        with pytest.raises(InvalidTransitionError):
            resolve(world, resolution)
    with pytest.raises(EffectNotFoundError):
        do(world, world.runtime().resolve(EffectId.new(), Resolution.retry(), "op"))
    assert world.record() == before
    crash(world, effect, FaultPoint.AFTER_ATTEMPT_PERSISTED, "order_2")
    with pytest.raises(LeaseHeldError):
        do(world, world.runtime().resolve(world.record("order_2").id, Resolution.retry(), "op"))
    assert world.trail("order_2") == "AS"


def test_arguments_are_checked_before_anything_is_written(world: World) -> None:
    in_doubt(world)
    before, runtime = world.record(), world.runtime()
    id: Any = before.id  # noqa: A001
    wrong: list[tuple[Any, ...]] = [
        (id, "applied", "op"),
        (id, Resolution.retry(), None),
        (id, Resolution.retry(), "op", 3),
    ]
    for arguments in wrong:
        with pytest.raises(TypeError):
            do(world, runtime.resolve(*arguments))
    assert world.record() == before


# Approvals


def test_an_operator_approves(world: World) -> None:
    world.approval_required = True
    effect = world.effect(require_approval=True)
    assert isinstance(world.run(effect), AwaitingApproval)
    id = world.record().id  # noqa: A001
    record = do(world, world.runtime().approve(id, "ann", "looks right"))
    event = world.events()[-1]
    assert (event.actor, event.payload) == ("ann", {"note": "looks right"}) and record.approved
    assert world.run(effect) == Committed("res_1")
    with pytest.raises(InvalidTransitionError):
        do(world, world.runtime().approve(id, "ann"))


def test_an_operator_denies(world: World) -> None:
    effect = world.effect(require_approval=True)
    world.run(effect)
    id = world.record().id  # noqa: A001
    do(world, world.runtime().deny(id, "bob", "too much"))
    event = world.events()[-1]
    assert (event.actor, event.payload) == ("bob", {"note": "too much"})
    outcome = world.run(effect)
    assert isinstance(outcome, Rejected) and outcome.error.message == "too much"
    assert world.remote.calls == []


def test_no_approval_while_somebody_holds_the_effect(world: World) -> None:
    crash(world, world.effect(require_approval=True), FaultPoint.AFTER_APPROVAL_REQUESTED)
    id = world.record().id  # noqa: A001
    for decision in (world.runtime().approve(id, "ann"), world.runtime().deny(id, "ann", "no")):
        with pytest.raises(LeaseHeldError):
            do(world, decision)
    world.pass_time(LAPSE)
    assert do(world, world.runtime().approve(id, "ann")).approved


def test_what_people_write_is_redacted_and_observed(world: World) -> None:
    """Check E160: notes too."""
    heard: list[Observation] = []

    class Hears(Observer):
        def on_transition(self, observation: Observation) -> None:
            heard.append(observation)

    in_doubt(world)
    resolve(
        world,
        Resolution.applied({"token": "s3cret"}),
        "n0te",
        redactor=RedactKeys(["note", "token"]),
        observers=[Hears()],
    )
    assert world.record().output == {"token": "[REDACTED]"}
    assert world.events()[-1].payload == {"note": "[REDACTED]"} == heard[0].payload
    assert "s3cret" not in repr(Resolution.applied(Secret("s3cret")))


# The list


def test_pending_is_what_is_not_settled_and_not_held(world: World) -> None:
    effect = world.effect()
    keys = [f"order_{number}" for number in range(5)]
    for key in keys:
        crash(world, effect, FaultPoint.AFTER_ATTEMPT_PERSISTED, key)
    runtime = world.runtime()
    assert runtime.pending() == []
    world.pass_time(LAPSE)
    assert [record.key.key for record in runtime.pending()] == keys
    page = runtime.pending(limit=2)
    assert [record.key.key for record in page] == keys[:2]
    assert [record.key.key for record in runtime.pending(after=page[-1].id)] == keys[2:]
    left_committed(world, world.effect(name="other"))
    do(world, runtime.recover())
    assert len(runtime.pending()) == 5


def test_plain_code_decides_too() -> None:
    with EffectStore.memory() as store, Runtime(store) as runtime:

        @runtime.effect("mail.send", require_approval=True)
        def send(context: object) -> str:
            raise EffectFailure.ambiguous("broke")

        for key in ("m1", "m2"):
            assert isinstance(send(key), AwaitingApproval)
        first, second = runtime.pending()
        assert runtime.approve_sync(first.id, "ann").approved
        assert runtime.deny_sync(second.id, "ann", "no").status is EffectStatus.REJECTED
        assert isinstance(send("m1"), NeedsIntervention)
        runtime.resolve_sync(first.id, Resolution.applied("sent"), "ann")
        assert send("m1") == Committed("sent")


def test_a_decision_and_a_worker_never_both_win(world: World) -> None:
    """Whichever commits first, the other is refused or sees it."""
    charge = handler(world, verify=world.remote.look_up)
    crash(world, charge, FaultPoint.AFTER_ATTEMPT_PERSISTED)
    world.pass_time(LAPSE)
    do(world, worker(world).recover())

    async def main() -> list[Any]:
        id = world.record().id  # noqa: A001
        deciding = world.runtime("op").resolve(id, Resolution.not_applied(), "op")
        both: Any = asyncio.gather(worker(world, charge).recover(), deciding, return_exceptions=True)
        return await world.clock.drive(both)

    report, decision = asyncio.run(main())
    if isinstance(decision, LeaseHeldError):
        assert report.resumed and len(world.remote.created) == 1
    else:
        assert decision.status is EffectStatus.FAILED and world.remote.calls == []
