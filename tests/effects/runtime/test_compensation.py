"""Undoing effects: only what is committed, as often as it takes, counted when it starts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pystate.effects import (
    ABSENT,
    Committed,
    Compensated,
    CompensationContext,
    ContractMismatchError,
    Effect,
    EffectContext,
    EffectFailure,
    EffectId,
    EffectIdentityError,
    EffectInternalError,
    EffectKey,
    EffectStatus,
    EffectStore,
    Failed,
    FailureClass,
    FaultAction,
    FaultInjector,
    FaultPoint,
    Handler,
    InProgress,
    KindMismatchError,
    ListQuery,
    NeedsIntervention,
    NoSuchEffectError,
    NotCommitted,
    NotCompensableError,
    NotRegisteredError,
    OutputPayloadError,
    PayloadSchema,
    RedactKeys,
    Resolution,
    RetryPolicy,
    Runtime,
    StoredInputError,
    Transition,
    TransitionRequest,
)
from pystate.effects.kinds import EffectKind
from pystate.errors import ClosedError
from tests.effects.runtime.leaving import LAPSE, crash, do, failing, handler, left_committed, left_legacy, worker
from tests.effects.runtime.remote import Reply
from tests.effects.runtime.test_holding import StalledClock
from tests.effects.runtime.world import PATIENT, World, run_async
from tests.effects.samples import seconds

KEY = EffectKey("payment.charge", "order_1")  # type: ignore[arg-type]


def compensate(world: World, effect: Any, key: object = "order_1", **arguments: Any) -> Any:
    return do(world, world.runtime().compensate(effect, key, **arguments))


def test_a_committed_effect_is_undone_once(world: World) -> None:
    """Check E150: with reason, output, input and a key of its own; then nothing runs any more."""
    undo = failing()
    charge = handler(world, compensate=undo)
    id = left_committed(world, charge, "order_1", {"amount": 1}).id  # noqa: A001
    assert compensate(world, charge, reason="cancelled", actor="ann") == Compensated(id)
    assert undo.contexts == [
        CompensationContext(
            id=id,
            key=KEY,
            idempotency_key=KEY.compensation_key(),
            attempt=1,
            reason="cancelled",
            input={"amount": 1},
            output="res_1",
        )
    ]
    assert world.trail() == "AS OK CS CD"
    assert [event.payload for event in world.events()[2:]] == [{"reason": "cancelled"}, ABSENT]
    assert [event.actor for event in world.events()[2:]] == ["ann", "ann"]
    assert world.record().lease_owner is None
    assert compensate(world, charge) == Compensated(id)
    assert world.run(charge, "order_1", {"amount": 1}) == Compensated(id)
    assert len(undo.contexts) == 1 and world.trail() == "AS OK CS CD"


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ([EffectFailure.permanent("no")], EffectStatus.FAILED),
        ([Reply.DROP], EffectStatus.NEEDS_INTERVENTION),
    ],
)
def test_what_is_not_committed_is_not_undone(world: World, script: list[Any], status: EffectStatus) -> None:
    """Check E151: not committed, with no lease taken."""
    world.remote.script = script
    charge = handler(world)
    world.run(charge)
    before = world.record()
    assert compensate(world, charge) == NotCommitted(before.id, status)
    assert world.record() == before and world.remote.undone == []


def test_neither_pending_nor_unknown_is_undone(world: World) -> None:
    """Check E151: nor is what was never recorded."""
    charge = handler(world)
    with pytest.raises(NoSuchEffectError, match=r"payment\.charge:order_1"):
        compensate(world, charge)
    crash(world, charge, FaultPoint.AFTER_INSERT)
    assert compensate(world, charge) == NotCommitted(world.record().id, EffectStatus.PENDING)
    crash(world, charge, FaultPoint.AFTER_ATTEMPT_PERSISTED)
    world.pass_time(LAPSE)
    do(world, worker(world).recover())
    before = world.record()
    assert compensate(world, charge) == NotCommitted(before.id, EffectStatus.UNKNOWN)
    assert world.record() == before


def test_an_ambiguous_failure_is_tried_again(world: World) -> None:
    """Check E152: as there is no doubt about what may be done twice; with the same key."""
    undo = failing(EffectFailure.ambiguous("broke"))
    charge = handler(world, compensate=undo)
    left_committed(world, charge)
    assert isinstance(compensate(world, charge), Compensated)
    assert world.trail() == "AS OK CS compensation_retry_scheduled CR CD"
    assert world.record().compensation_attempts == 2 and world.seconds == 1
    assert [context.attempt for context in undo.contexts] == [1, 2]
    assert len({context.idempotency_key for context in undo.contexts}) == 1
    assert world.events()[4].payload is ABSENT


def test_a_permanent_failure_is_for_a_person(world: World) -> None:
    """Check E153: the effect needs intervention until somebody says that it was undone otherwise."""
    charge = handler(world, compensate=failing(EffectFailure.permanent("too late")))
    id = left_committed(world, charge).id  # noqa: A001
    outcome = compensate(world, charge)
    assert isinstance(outcome, Failed) and outcome.error.message == "too late"
    assert outcome.error.failure_class == FailureClass.PERMANENT
    assert compensate(world, charge) == outcome
    assert world.run(charge) == NeedsIntervention(id)
    do(world, world.runtime().resolve(id, Resolution.compensated(), "op", "by hand"))
    assert compensate(world, charge) == Compensated(id) == world.run(charge)


def test_the_budget_holds_until_a_person_orders_one_more(world: World) -> None:
    """Check E154: two attempts, and a third one on demand."""
    undo = failing(*[EffectFailure.transient("busy")] * 3)
    charge = handler(world, compensate=undo, retry=RetryPolicy(max_attempts=2, jitter=False))
    id = left_committed(world, charge).id  # noqa: A001
    assert isinstance(compensate(world, charge), Failed)
    assert world.record().compensation_attempts == 2 and world.record().status is EffectStatus.COMPENSATION_FAILED
    do(world, world.runtime().resolve(id, Resolution.retry(), "op"))
    assert world.record().status is EffectStatus.COMPENSATING
    assert isinstance(compensate(world, charge), Failed)
    assert world.record().compensation_attempts == 3 == len(undo.contexts)
    do(world, world.runtime().resolve(id, Resolution.retry(), "op"))
    assert do(world, worker(world, charge).recover()).resumed == ((id, EffectStatus.COMPENSATED),)
    assert world.record().compensation_attempts == 4


def test_a_crash_during_the_wait_counts_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check E155: the retry starts when it is due, once, and is no resumption."""
    undo = failing(EffectFailure.transient("busy"))
    charge = handler(world, compensate=undo)
    left_committed(world, charge)

    # A crash, for the store: whatever is written from now on is lost.
    async def broken(store: EffectStore, function: Any, **settings: Any) -> Any:
        raise OSError("the process is gone")

    async def dying(patch: pytest.MonkeyPatch) -> None:
        task = asyncio.ensure_future(world.runtime("dies").compensate(charge, "order_1", reason="late"))
        await world.clock.advance(seconds(0.5))
        patch.setattr(EffectStore, "transact_async", broken)
        task.cancel()

    with monkeypatch.context() as patch:
        run_async(lambda: dying(patch))
    assert world.trail() == "AS OK CS compensation_retry_scheduled" and world.record().lease_owner == "dies"
    assert world.record().compensation_attempts == 1
    world.pass_time(LAPSE)
    assert do(world, worker(world, charge).recover()).resumed == ((world.record().id, EffectStatus.COMPENSATED),)
    assert world.trail() == "AS OK CS compensation_retry_scheduled CR CD"
    assert world.events()[4].payload is ABSENT and world.record().compensation_attempts == 2
    assert [context.reason for context in undo.contexts] == ["late", "late"]


def test_who_cannot_undo_says_so(world: World) -> None:
    cannot = handler(world, compensate=None)
    left_committed(world, cannot)
    with pytest.raises(NotCompensableError):
        compensate(world, cannot)
    with pytest.raises(NotRegisteredError):
        compensate(world, "payment.charge")
    with pytest.raises(TypeError):
        compensate(world, world.effect())
    with pytest.raises(EffectIdentityError):
        compensate(world, handler(world), "")
    with pytest.raises(TypeError):
        compensate(world, handler(world), reason=3)
    assert world.trail() == "AS OK"


def test_a_handler_is_found_by_its_name(world: World) -> None:
    charge = handler(world)
    left_committed(world, charge)
    assert isinstance(do(world, worker(world, charge).compensate("payment.charge", "order_1")), Compensated)


def test_the_contract_must_be_the_recorded_one(world: World) -> None:
    left_committed(world, handler(world))
    before = world.record()
    with pytest.raises(ContractMismatchError):
        compensate(world, handler(world, remote_idempotency=True))
    with pytest.raises(KindMismatchError):
        compensate(world, handler(world, kind=EffectKind.REVERSIBLE_WRITE))
    assert world.record() == before
    legacy = left_legacy(world, handler(world, "old"))
    assert compensate(world, handler(world, "old")) == NotCommitted(legacy.id, EffectStatus.PENDING)


def test_a_legacy_record_is_not_undone(world: World) -> None:
    charge = handler(world)
    record = left_legacy(world, charge)
    for transition in (Transition.START_ATTEMPT, Transition.SUCCEEDED):
        record = world.store.transition(TransitionRequest.new(record, None, transition, world.clock.now()))
    with pytest.raises(ContractMismatchError):
        compensate(world, charge)
    assert world.record() == record and world.remote.undone == []


def test_what_is_stored_must_be_readable_before_anything_begins(world: World) -> None:
    left_committed(world, handler(world), "order_1", "text")
    before = world.record()
    with pytest.raises(StoredInputError):
        compensate(world, handler(world, input_type=int))
    with pytest.raises(OutputPayloadError):
        compensate(world, handler(world, output_schema=PayloadSchema(2)))
    assert world.record() == before


def test_two_at_the_same_time_undo_it_once(world: World) -> None:
    async def slowly(context: CompensationContext) -> None:
        await world.clock.sleep(seconds(100))
        await world.remote.undo(context)

    charge = handler(world, compensate=slowly)
    id = left_committed(world, charge).id  # noqa: A001

    async def main() -> None:
        first = asyncio.ensure_future(world.runtime("a").compensate(charge, "order_1"))
        await world.clock.advance(seconds(50))
        assert await world.runtime("b").compensate(charge, "order_1") == InProgress(id)
        assert await world.runtime("b").run(charge, "order_1") == InProgress(id)
        assert await world.clock.drive(first) == Compensated(id)

    run_async(main)
    assert world.trail() == "AS OK CS CD" and len(world.remote.undone) == 1


def test_a_compensation_that_takes_too_long_is_tried_again(world: World) -> None:
    waits = [100.0, 0.0]

    async def slowly(context: CompensationContext) -> None:
        await world.clock.sleep(seconds(waits.pop(0)))

    charge = handler(world, compensate=slowly, attempt_timeout=timedelta(seconds=10))
    left_committed(world, charge)
    assert isinstance(compensate(world, charge), Compensated)
    assert world.record().compensation_attempts == 2 and world.seconds == 11
    error = world.record().last_error
    assert error is not None and error.failure_class == FailureClass.AMBIGUOUS


def test_a_worker_that_loses_the_lease_reports_what_became_of_it(world: World) -> None:
    release = asyncio.Event()
    calls: list[int] = []

    async def stalls(context: CompensationContext) -> None:
        calls.append(context.attempt)
        if context.attempt == 1:
            await release.wait()

    charge = handler(world, compensate=stalls)
    id = left_committed(world, charge).id  # noqa: A001

    async def main() -> None:
        stalled = asyncio.ensure_future(
            world.runtime("a", clock=StalledClock(world)).compensate(charge, "order_1", reason="late")
        )
        await world.clock.advance(seconds(30))
        assert await world.runtime("b").compensate(charge, "order_1") == Compensated(id)
        release.set()
        assert await stalled == Compensated(id)

    run_async(main)
    assert world.trail() == "AS OK CS CR CD" and calls == [1, 2]
    assert world.events()[3].payload == {"resumed": True}


def test_a_closed_runtime_undoes_nothing_and_one_that_closes_leaves_the_retry(world: World) -> None:
    charge = handler(world, compensate=failing(EffectFailure.transient("busy")))
    id = left_committed(world, charge).id  # noqa: A001

    async def main() -> None:
        runtime = world.runtime()
        task = asyncio.ensure_future(runtime.compensate(charge, "order_1"))
        await world.clock.advance(seconds(0.5))
        await runtime.aclose()
        assert await task == InProgress(id)
        with pytest.raises(ClosedError):
            await runtime.compensate(charge, "order_1")

    run_async(main)
    assert world.record().lease_owner is None and world.seconds == 0.5
    assert compensate(world, charge) == Compensated(id) and world.seconds == 1


def test_a_cancelled_caller_loses_nothing(world: World) -> None:
    async def slowly(context: CompensationContext) -> None:
        await world.clock.sleep(seconds(5))

    charge = handler(world, compensate=slowly)
    left_committed(world, charge)

    async def main() -> None:
        task = asyncio.ensure_future(world.runtime().compensate(charge, "order_1"))
        await world.clock.advance(seconds(1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await world.clock.advance(seconds(5))

    run_async(main)
    assert world.record().status is EffectStatus.COMPENSATED


def test_the_reason_is_redacted(world: World) -> None:
    charge = handler(world)
    left_committed(world, charge)
    runtime = world.runtime(redactor=RedactKeys(["reason"]))
    do(world, runtime.compensate(charge, "order_1", reason="s3cret"))
    assert world.events()[2].payload == {"reason": "[REDACTED]"}


def test_an_effect_whose_output_was_not_stored_is_undone_without_it(world: World) -> None:
    undo = failing()

    async def action(context: Any) -> object:
        return object()

    effect: Effect[Any] = Handler("payment.charge", action, compensate=undo)
    assert isinstance(world.run(effect), Committed)
    assert isinstance(compensate(world, effect), Compensated)
    assert undo.contexts[0].output is ABSENT and undo.contexts[0].input is ABSENT


def test_a_crash_leaves_the_lease(world: World) -> None:
    charge = handler(world, retry=PATIENT)
    id: EffectId = left_committed(world, charge).id  # noqa: A001
    faults = FaultInjector({FaultPoint.AFTER_COMPENSATION_STARTED: FaultAction.CRASH})
    with pytest.raises(EffectInternalError):
        do(world, world.runtime("dead", faults=faults).compensate(charge, "order_1"))
    record = world.record()
    assert (record.status, record.lease_owner, record.compensation_attempts) == (EffectStatus.COMPENSATING, "dead", 1)
    assert compensate(world, charge) == InProgress(id)


def test_a_compensation_that_outlives_its_event_loop_is_recorded() -> None:
    """As an action is: what was undone is known, and the lease is given back."""
    undone = []

    async def undo(_: CompensationContext) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            for _turn in range(50):  # it takes its time to end
                await asyncio.sleep(0)
            undone.append("undone")

    async def charge(_: EffectContext) -> str:
        return "pi_1"

    with EffectStore.memory() as store, Runtime(store) as runtime:
        handler = Handler("payment.charge", charge, compensate=undo)
        runtime.register(handler)
        runtime.submit_sync(handler, "order_1", None)

        async def main() -> None:
            task = asyncio.ensure_future(runtime.compensate(handler, "order_1"))
            while not store.list(ListQuery.statuses([EffectStatus.COMPENSATING])):
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
            assert not task.done()

        asyncio.run(main())
        (record,) = store.list(ListQuery.statuses())
        assert undone == ["undone"]
        assert record.lease_owner is None
        assert record.status is EffectStatus.COMPENSATED
