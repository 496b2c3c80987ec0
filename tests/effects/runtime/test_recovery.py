"""Recovery: what was left in the middle becomes unknown, and handlers go on with everything that is due."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta
from typing import Any

import pytest

from pystate.effects import (
    Committed,
    EffectContext,
    EffectFailure,
    EffectInternalError,
    EffectStatus,
    EffectStore,
    FaultAction,
    FaultInjector,
    FaultPoint,
    Handler,
    NeedsIntervention,
    Resolution,
    RetentionPolicy,
    Runtime,
    Transition,
    TransitionRequest,
)
from pystate.effects.effect_rows import EFFECTS
from pystate.effects.runtime.recovery import RESUMED_AT_ONCE, RecoveryReport
from pystate.errors import ClosedError
from tests.effects.runtime.leaving import (
    LAPSE,
    crash,
    do,
    failing,
    handler,
    left_committed,
    left_executing,
    left_legacy,
    started,
    worker,
)
from tests.effects.runtime.remote import Reply
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import seconds


def test_what_was_left_in_the_middle_becomes_unknown(world: World) -> None:
    """Check E142: marked by recovery, and unhandled without a handler; a second pass marks nothing."""
    id = left_executing(world, world.effect())  # noqa: A001
    runtime = worker(world, name="w")
    assert do(world, runtime.recover()) == RecoveryReport(marked_unknown=(id,), unhandled=(id,))
    assert world.trail() == "AS LX" and world.events()[-1].actor == "recovery:w"
    assert world.record().status is EffectStatus.UNKNOWN and world.record().lease_owner is None
    assert do(world, runtime.recover()) == RecoveryReport(unhandled=(id,))
    assert world.remote.calls == []


def test_a_handler_looks_up_what_was_left(world: World) -> None:
    """Check E143: the effect had applied, so that it is confirmed, and not run again."""
    charge = handler(world, verify=world.remote.look_up)
    crash(world, charge, FaultPoint.AFTER_ACTION_RETURNED)
    world.pass_time(LAPSE)
    report = do(world, worker(world, charge).recover())
    id = world.record().id  # noqa: A001
    assert report == RecoveryReport(marked_unknown=(id,), resumed=((id, EffectStatus.COMMITTED),))
    assert len(world.remote.calls) == 1 and world.record().output == "res_1"


def test_what_a_lease_protects_is_left_alone(world: World) -> None:
    charge = handler(world)
    crash(world, charge, FaultPoint.AFTER_ATTEMPT_PERSISTED)
    world.pass_time(LAPSE - 1)
    assert do(world, worker(world, charge).recover()) == RecoveryReport()
    assert world.trail() == "AS"


def test_what_awaits_a_person_or_its_time_is_not_touched(world: World) -> None:
    """Check E144: due later, needs intervention, awaits approval, compensation failed."""
    world.remote.script = [EffectFailure.rate_limited(timedelta(hours=1), "later")]
    later = handler(world, "later")
    crash(world, later, FaultPoint.AFTER_ATTEMPT_PERSISTED)
    left = handler(world, "left")
    left_executing(world, left)
    assert isinstance(world.run(left), NeedsIntervention)
    asked = handler(world, "asked", require_approval=True)
    world.run(asked)
    undone = handler(world, "undone", compensate=failing(EffectFailure.permanent("no")))
    world.remote.script = []
    left_committed(world, undone)
    do(world, world.runtime().compensate(undone, "order_1"))
    world.pass_time(LAPSE)

    async def interrupted() -> None:
        runtime = world.runtime("closing")
        world.remote.script = [EffectFailure.rate_limited(timedelta(hours=1), "later")]
        task = asyncio.ensure_future(runtime.run(handler(world, "due"), "order_1"))
        await world.clock.advance(seconds(1))
        await runtime.aclose()
        await task

    run_async(interrupted)
    names = ["left", "asked", "undone", "due"]
    before = [world.record(name=name) for name in names]
    assert [record.status for record in before] == [
        EffectStatus.NEEDS_INTERVENTION,
        EffectStatus.AWAITING_APPROVAL,
        EffectStatus.COMPENSATION_FAILED,
        EffectStatus.PENDING,
    ]
    due = handler(world, "due")
    report = do(world, worker(world, left, asked, undone, due).recover())
    assert report.marked_unknown == report.unhandled == (world.record(name="later").id,)
    assert (report.resumed, report.resume_errors, report.skipped) == ((), (), ())
    assert [world.record(name=name) for name in names] == before
    world.pass_time(3600)
    report = do(world, worker(world, left, asked, undone, due).recover())
    assert report.resumed == ((world.record(name="due").id, EffectStatus.COMMITTED),)


def test_many_are_marked_page_by_page(world: World) -> None:
    """Check E145: all 250, and in few commits."""
    effect = world.effect()
    for number in range(250):
        started(world, left_legacy(world, effect, f"order_{number}"))
    world.pass_time(LAPSE)
    commits = world.store.store.stats().commits
    report = do(world, worker(world).recover())
    assert len(report.marked_unknown) == 250 and list(report.marked_unknown) == sorted(report.marked_unknown)
    assert report.unhandled == report.marked_unknown and report.skipped == ()
    assert world.store.store.stats().commits == commits + 3


def test_an_input_that_no_longer_fits_is_reported(world: World) -> None:
    """Check E146: one error, the pass goes on, and nothing is changed."""
    loose, fine = handler(world), handler(world, "mail.send")
    crash(world, loose, FaultPoint.AFTER_INSERT, "order_1", "twelve")
    crash(world, fine, FaultPoint.AFTER_INSERT)
    before = world.record()
    strict = handler(world, input_type=int)
    report = do(world, worker(world, strict, fine).recover())
    ((id, text),) = report.resume_errors  # noqa: A001
    assert id == before.id and "does not fit" in text
    assert report.resumed == ((world.record(name="mail.send").id, EffectStatus.COMMITTED),)
    assert world.record() == before


def test_a_legacy_record_is_marked_and_never_run(world: World) -> None:
    """Check E98: unknown, and an error for its handler."""
    charge = handler(world, remote_idempotency=True)
    record = left_legacy(world, charge)
    started(world, record)
    world.pass_time(LAPSE)
    report = do(world, worker(world, charge).recover())
    assert report.marked_unknown == (record.id,) and (report.resumed, report.unhandled) == ((), ())
    assert [id for id, _ in report.resume_errors] == [record.id]  # noqa: A001
    assert world.trail() == "AS LX" and world.remote.calls == [] and world.record().lease_epoch == 2


def test_another_contract_is_reported(world: World) -> None:
    left_executing(world, world.effect(remote_idempotency=True))
    report = do(world, worker(world, handler(world)).recover())
    assert len(report.resume_errors) == 1 and "remote_idempotency" in report.resume_errors[0][1]
    assert world.remote.calls == [] and world.trail() == "AS LX"


def test_somebody_else_may_be_quicker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the listing and the mark, another worker takes one lease, and has dealt with another effect."""
    effect = world.effect()
    first = left_executing(world, effect, "order_1")
    crash(world, effect, FaultPoint.AFTER_ATTEMPT_PERSISTED, "order_2")
    crash(world, effect, FaultPoint.AFTER_ATTEMPT_PERSISTED, "order_3")
    world.pass_time(LAPSE)
    genuine = EffectStore.list_results
    met: list[Any] = []

    def listed(store: EffectStore, query: Any) -> Any:
        found = genuine(store, query)
        if not met:
            met.append(found)
            world.store.acquire_lease(first, "quick", world.clock.now(), seconds(30))
            record, now = world.record("order_2"), world.clock.now()
            lease = world.store.acquire_lease(record.id, "quick", now, seconds(30))
            world.store.transition(TransitionRequest.new(record, lease, Transition.LEASE_EXPIRED, now))
            world.store.release_lease(lease)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(EffectStore, "list_results", listed)
        report = do(world, worker(world).recover())
    second, third = world.record("order_2").id, world.record("order_3").id
    assert report == RecoveryReport(marked_unknown=(third,), skipped=(first, second), unhandled=(second, third))


def test_workers_at_the_same_time_do_it_once(world: World) -> None:
    charge = handler(world, remote_idempotency=True)
    for number in range(5):
        crash(world, charge, FaultPoint.AFTER_ATTEMPT_PERSISTED, f"order_{number}")
    world.pass_time(LAPSE)

    async def main() -> list[RecoveryReport]:
        workers = [worker(world, charge, name=name) for name in "abc"]
        return await world.clock.drive(asyncio.gather(*(each.recover() for each in workers)))

    reports = run_async(main)
    assert sorted(id for report in reports for id in report.marked_unknown) == sorted(  # noqa: A001
        world.record(f"order_{number}").id for number in range(5)
    )
    assert [len(world.remote.calls), len(world.remote.created)] == [5, 5]
    assert {world.record(f"order_{number}").attempt_count for number in range(5)} == {2}


def test_one_pass_goes_on_with_several_at_a_time(world: World) -> None:
    running = [0, 0]

    async def action(context: EffectContext) -> None:
        running[0] += 1
        running[1] = max(running)
        await world.clock.sleep(seconds(1))
        running[0] -= 1

    slow: Handler[None] = Handler("slow", action)
    runtime = worker(world, slow)
    for number in range(20):
        runtime.plan(world.store, slow, f"k{number:02}")
    report = do(world, runtime.recover())
    assert len(report.resumed) == 20 and [id for id, _ in report.resumed] == sorted(id for id, _ in report.resumed)  # noqa: A001
    assert running == [0, RESUMED_AT_ONCE] and world.seconds == 2


def test_a_planned_effect_that_needs_an_approval_asks_once(world: World) -> None:
    charge = handler(world, require_approval=True)
    runtime = worker(world, charge)
    runtime.plan(world.store, charge, "order_1")
    assert do(world, runtime.recover()).resumed == ((world.record().id, EffectStatus.AWAITING_APPROVAL),)
    assert do(world, runtime.recover()) == RecoveryReport()
    do(world, runtime.approve(world.record().id, "ann"))
    assert do(world, runtime.recover()).resumed == ((world.record().id, EffectStatus.COMMITTED),)
    assert world.trail() == "AR AP AS OK"


def test_half_undone_is_undone_by_the_handler_only(world: World) -> None:
    charge = handler(world)
    left_committed(world, charge)
    faults = FaultInjector({FaultPoint.AFTER_COMPENSATION_STARTED: FaultAction.CRASH})
    with pytest.raises(EffectInternalError):
        do(world, world.runtime(faults=faults).compensate(charge, "order_1", reason="late"))
    world.pass_time(LAPSE)
    id = world.record().id  # noqa: A001
    assert do(world, worker(world).recover()) == RecoveryReport(unhandled=(id,))
    cannot = handler(world, compensate=None)
    report = do(world, worker(world, cannot).recover())
    assert "no compensation" in report.resume_errors[0][1] and world.remote.undone == []
    assert do(world, worker(world, charge).recover()).resumed == ((id, EffectStatus.COMPENSATED),)
    assert len(world.remote.undone) == 1 and world.events()[-1].actor == "recovery:w"
    assert world.trail() == "AS OK CS CR CD"


# The loop


def test_the_loop_recovers_at_once_and_then_again_and_prunes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    charge = handler(world, verify=world.remote.look_up)
    runtime = worker(world, charge, retention=RetentionPolicy.settled(seconds(25)))
    passes: list[float] = []
    genuine = world.store.list_results

    class Listing(EffectStore):
        def list_results(self, query: Any) -> Any:
            if query.due_at is None:
                passes.append(world.seconds)
                if len(passes) == 2:
                    raise RuntimeError("the store is tired")
            return genuine(query)

    runtime._parts.store = Listing(world.store.store)

    async def main() -> None:
        runtime.plan(world.store, charge, "order_1")
        loop = asyncio.ensure_future(runtime.run_recovery(seconds(10)))
        await world.clock.advance(seconds(1))
        assert world.record().status is EffectStatus.COMMITTED
        with caplog.at_level(logging.ERROR, "pystate.effects"):
            await world.clock.advance(seconds(20))
        assert not world.is_empty()
        await world.clock.advance(seconds(10))
        assert world.is_empty()
        await runtime.aclose()
        await loop
        assert world.clock.sleepers == 0

    run_async(main)
    assert passes == [0, 10, 20, 30]
    assert caplog.messages == ["a recovery pass failed; the next one follows in 0:00:10"]
    with pytest.raises(ClosedError):
        do(world, runtime.recover())
    with pytest.raises(ClosedError):
        do(world, runtime.run_recovery(seconds(1)))


def test_cancelling_the_loop_loses_no_result(world: World) -> None:
    async def action(context: EffectContext) -> str:
        await world.clock.sleep(seconds(5))
        return "done"

    slow: Handler[str] = Handler("payment.charge", action)

    async def main() -> None:
        runtime = worker(world, slow)
        runtime.plan(world.store, slow, "order_1")
        loop = asyncio.ensure_future(runtime.run_recovery(seconds(10)))
        await world.clock.advance(seconds(1))
        loop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loop
        assert world.record().status is EffectStatus.EXECUTING
        await world.clock.advance(seconds(5))
        assert world.record().status is EffectStatus.COMMITTED

    run_async(main)


def test_the_plain_loop_ends_when_the_runtime_is_closed() -> None:
    ran = threading.Event()
    with EffectStore.memory() as store:
        runtime = Runtime(store)

        @runtime.handler("mail.send")
        def send(context: EffectContext) -> None:
            ran.set()

        runtime.plan(store, "mail.send", "m1")
        thread = threading.Thread(target=runtime.run_recovery_sync, args=(timedelta(hours=1),))
        thread.start()
        assert ran.wait(20)
        runtime.close()
        thread.join(20)
        assert not thread.is_alive()


def test_a_retry_of_a_person_is_taken_up(world: World) -> None:
    charge = handler(world)
    world.remote.script = [Reply.DROP]
    assert isinstance(world.run(charge), NeedsIntervention)
    runtime = worker(world, charge)
    do(world, runtime.resolve(world.record().id, Resolution.retry(), "op"))
    assert do(world, runtime.recover()).resumed == ((world.record().id, EffectStatus.COMMITTED),)
    assert world.run(charge) == Committed("res_1")


def test_a_record_that_cannot_be_read_does_not_keep_the_others_from_being_recovered() -> None:
    """Row 99: it is passed over, and the others are gone on with."""
    world = World()
    charge = handler(world)
    runtime = worker(world, charge)
    for key in ("order_1", "order_2", "order_3"):
        runtime.plan(world.store, charge, key)
    broken = EFFECTS.key.encode(world.record("order_2").id)
    world.store.store.family(EFFECTS.family)[broken] = b"garbage"
    resumed = do(world, runtime.recover()).resumed
    assert [world.record(key).status for key in ("order_1", "order_3")] == [EffectStatus.COMMITTED] * 2
    assert len(resumed) == 2
