"""The crash matrix in process: each point, each protection; then the lease lapses, recovery, and one more run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pystate.effects import (
    Compensated,
    EffectFailure,
    EffectInternalError,
    EffectStatus,
    EffectStore,
    FaultAction,
    FaultInjector,
    FaultPoint,
    Handler,
    InProgress,
    NeedsIntervention,
    Precondition,
    RecoveryReport,
    RetryPolicy,
    Transition,
)
from tests.effects.runtime.leaving import LAPSE, do, worker
from tests.effects.runtime.matrix import IN_DOUBT, PROTECTIONS, ROWS, protected, rows
from tests.effects.runtime.world import World, run_async, short_names
from tests.effects.samples import seconds

UNDOING = FaultPoint.AFTER_COMPENSATION_STARTED
NO_LEASE = (FaultPoint.BEFORE_INSERT, FaultPoint.AFTER_INSERT)


def crashed(world: World, effect: Handler[Any], point: FaultPoint) -> None:
    """Crash at this point; what is under way then goes on."""
    faults = FaultInjector({point: FaultAction.CRASH})

    async def main() -> None:
        runtime = world.runtime("crashed", faults=faults)
        work = runtime.run(effect, "order_1")
        if point is UNDOING:
            await work
            work = runtime.compensate(effect, "order_1")  # type: ignore[assignment]
        with pytest.raises(EffectInternalError, match=str(point)):
            await work
        await world.clock.advance(seconds(0))

    run_async(main)
    assert faults.reached[-1] is point and not faults.is_armed(point)


def check_what_is_left(world: World, effect: Handler[Any], point: FaultPoint) -> None:
    """The record, and that nobody touches it while the lease lives."""
    if point is FaultPoint.BEFORE_INSERT:
        assert world.is_empty()
        return
    before = world.record()
    assert before.status is {
        FaultPoint.AFTER_INSERT: EffectStatus.PENDING,
        FaultPoint.AFTER_APPROVAL_REQUESTED: EffectStatus.AWAITING_APPROVAL,
        FaultPoint.AFTER_VERIFICATION_STARTED: EffectStatus.VERIFYING,
        UNDOING: EffectStatus.COMPENSATING,
    }.get(point, EffectStatus.EXECUTING)
    assert before.compensation_attempts == (point is UNDOING)
    if point in NO_LEASE:
        assert (before.lease_epoch, before.version) == (0, 0)
        return
    assert before.lease_owner == "crashed"
    world.pass_time(LAPSE - 1)
    assert do(world, worker(world, effect, name="early").recover()) == RecoveryReport()
    assert world.run(effect, worker="early") == InProgress(before.id)
    if point is UNDOING:
        assert do(world, world.runtime("early").compensate(effect, "order_1")) == InProgress(before.id)
    assert world.record() == before


def run_again(world: World, effect: Handler[Any], point: FaultPoint, name: str) -> Any:
    """One more run on a fresh runtime; of what was being undone, one more compensation."""
    if point is UNDOING:
        return do(world, world.runtime(name).compensate(effect, "order_1"))
    return world.run(effect, worker=name)


def check_row(world: World, point: FaultPoint, protection: str) -> None:
    """What the table says."""
    row, record = ROWS[point][protection], world.record()
    assert world.trail() == row.trail
    assert (record.version, record.attempt_count, record.may_have_applied) == (row.version, row.attempts, row.doubt)
    assert (len(world.remote.calls), len(world.remote.created)) == (row.calls, row.created)
    assert record.status is row.status and record.lease_owner is None
    assert len(world.remote.undone) == (point is UNDOING)
    assert record.compensation_attempts == 2 * (point is UNDOING)
    assert len(set(world.remote.calls)) <= 1


@pytest.mark.parametrize("recovery", [True, False], ids=["recovered", "not recovered"])
@pytest.mark.parametrize(("point", "protection"), rows())
def test_crash_lapse_recovery_and_one_more_run(
    world: World, point: FaultPoint, protection: str, recovery: bool
) -> None:
    """The table. Check E163. Check E164. Check E165. Check E166. Check E167. Check E168. Check E169. Check E170.

    Rows 96 and 98: nothing is begun again by itself unless that is harmless, nor recovered while it runs.
    """
    world.approval_required = point is FaultPoint.AFTER_APPROVAL_REQUESTED
    effect = protected(world.remote, protection, point)
    crashed(world, effect, point)
    check_what_is_left(world, effect, point)
    world.pass_time(LAPSE)
    if recovery:
        report = do(world, worker(world, name="rec").recover())
        doubtful = point in IN_DOUBT or point is FaultPoint.AFTER_VERIFICATION_STARTED
        left_alone = point in (FaultPoint.BEFORE_INSERT, FaultPoint.AFTER_APPROVAL_REQUESTED)
        ids = () if point is FaultPoint.BEFORE_INSERT else (world.record().id,)
        assert report == RecoveryReport(marked_unknown=ids if doubtful else (), unhandled=() if left_alone else ids)
    if point is FaultPoint.AFTER_APPROVAL_REQUESTED:
        do(world, world.runtime("op").approve(world.record().id, "ann"))
    outcome = run_again(world, effect, point, "again")
    check_row(world, point, protection)
    status = world.record().status
    assert isinstance(outcome, NeedsIntervention) == (status is EffectStatus.NEEDS_INTERVENTION)
    assert isinstance(outcome, Compensated) == (point is UNDOING)
    marks = [event.actor for event in world.events() if event.transition is Transition.LEASE_EXPIRED]
    assert marks == ["recovery:rec" if recovery else None] * len(marks)
    if marks:
        assert world.record().lease_epoch == (3 if recovery else 2)


@pytest.mark.parametrize("point", IN_DOUBT)
def test_without_protection_it_is_never_run_again(world: World, point: FaultPoint) -> None:
    """Check E171: however often it is called."""
    effect = protected(world.remote, "unprotected", point)
    crashed(world, effect, point)
    world.pass_time(LAPSE)
    for name in "bcde":
        assert world.run(effect, worker=name) == NeedsIntervention(world.record().id)
    check_row(world, point, "unprotected")


@pytest.mark.parametrize(("point", "protection"), rows())
def test_handlers_and_recovery_alone_finish_it(world: World, point: FaultPoint, protection: str) -> None:
    """Check E173: no caller comes back; what is in doubt without protection is left to a person."""
    effect = protected(world.remote, protection, point)
    crashed(world, effect, point)
    world.pass_time(LAPSE)
    runtime = worker(world, effect, name="rec")
    report = do(world, runtime.recover())
    if point is FaultPoint.BEFORE_INSERT:
        assert report == RecoveryReport() and world.remote.calls == []
        return
    id = world.record().id  # noqa: A001
    if point is FaultPoint.AFTER_APPROVAL_REQUESTED:
        assert report == RecoveryReport()
        do(world, runtime.approve(id, "ann"))
        report = do(world, runtime.recover())
    assert report.resumed == ((id, ROWS[point][protection].status),) and report.resume_errors == ()
    check_row(world, point, protection)
    assert do(world, runtime.recover()) == RecoveryReport()


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_a_crash_while_an_approval_is_asked(world: World, protection: str) -> None:
    """Check E174: recovery leaves it, an operator approves, recovery runs it once."""
    world.approval_required = True
    effect = protected(world.remote, protection, FaultPoint.AFTER_APPROVAL_REQUESTED)
    crashed(world, effect, FaultPoint.AFTER_APPROVAL_REQUESTED)
    runtime = worker(world, effect)
    for passed in (0, LAPSE):
        world.pass_time(passed)
        assert do(world, runtime.recover()) == RecoveryReport()
    assert world.trail() == "AR"
    do(world, runtime.approve(world.record().id, "ann", "fine"))
    assert do(world, runtime.recover()).resumed == ((world.record().id, EffectStatus.COMMITTED),)
    check_row(world, FaultPoint.AFTER_APPROVAL_REQUESTED, protection)


def die_while_waiting(world: World, monkeypatch: pytest.MonkeyPatch, work: Any, after: float) -> None:
    """Let some work go on so long; then its process is gone, and writes nothing more."""

    async def gone(*arguments: Any, **settings: Any) -> Any:
        raise OSError("the process is gone")

    async def main() -> None:
        task = asyncio.ensure_future(work)
        await world.clock.advance(seconds(after))
        monkeypatch.setattr(EffectStore, "transact_async", gone)
        task.cancel()

    run_async(main)
    monkeypatch.undo()


@pytest.mark.parametrize("ttl", [30, 1])
def test_a_crash_while_a_retry_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch, ttl: int) -> None:
    """Check E175: whoever goes on starts no attempt before its time."""
    world.remote.script = [EffectFailure.transient("busy")]
    slow = RetryPolicy(initial_delay=seconds(8), jitter=False)
    effect = world.effect(retry=slow)
    dies = world.runtime("dies", lease_ttl=seconds(ttl))
    die_while_waiting(world, monkeypatch, dies.run(effect, "order_1"), 3)
    record = world.record()
    assert world.trail() == "AS RS" and record.lease_owner == "dies" and record.next_attempt_at is not None
    world.pass_time(ttl)
    world.run(effect, worker="b")
    assert world.trail() == "AS RS AS OK"
    assert world.events()[2].at == max(record.next_attempt_at, world.events()[1].at + seconds(3 + ttl))


def test_a_crash_during_the_precondition_asks_it_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    async def precondition(context: Any) -> Any:
        asked.append(world.seconds)
        await world.clock.sleep(seconds(5))
        return Precondition.satisfied()

    effect = world.effect(precondition=precondition)
    die_while_waiting(world, monkeypatch, world.runtime("dies").run(effect, "order_1"), 2)
    assert (world.record().status, world.record().attempt_count) == (EffectStatus.PENDING, 0)
    world.pass_time(LAPSE)
    world.run(effect, worker="b")
    assert asked == [0, 32] and world.trail() == "AS OK"


def test_a_store_that_fails_after_the_action_leaves_it_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = EffectStore.transact_async

    async def action(context: Any) -> str:
        async def full(*arguments: Any, **settings: Any) -> Any:
            raise OSError("the disk is full")

        monkeypatch.setattr(EffectStore, "transact_async", full)
        return await world.remote.create(context)

    effect = world.effect(action, verify=world.remote.look_up)
    with pytest.raises((EffectInternalError, OSError)):
        world.run(effect)
    monkeypatch.setattr(EffectStore, "transact_async", genuine)
    assert world.record().status is EffectStatus.EXECUTING
    world.pass_time(LAPSE)
    do(world, worker(world).recover())
    assert short_names(world.events()) == "AS LX"
    monkeypatch.undo()
    world.run(effect)
    assert world.trail() == "AS LX VS VC" and len(world.remote.calls) == 1
