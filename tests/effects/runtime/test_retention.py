"""Retention: only what is settled and old enough goes, in batches, and its key is free again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pystate.effects import (
    Committed,
    EffectFailure,
    EffectOperations,
    EffectStatus,
    FaultPoint,
    ListQuery,
    NewEffect,
    NoSuchEffectError,
    Precondition,
    PruneQuery,
    PruneReport,
    Rejected,
    RetentionPolicy,
    Transition,
    TransitionRequest,
)
from tests.effects.runtime.leaving import crash, do, handler, left_committed
from tests.effects.runtime.remote import Reply
from tests.effects.runtime.world import World
from tests.effects.stores import effect_key

DAY = timedelta(days=1)


def one_of_each(world: World) -> None:
    """An effect of each settled status, and some that are not settled; the key says which."""
    charge = handler(world)
    left_committed(world, charge, "committed")
    left_committed(world, charge, "compensated")
    do(world, world.runtime().compensate(charge, "compensated"))
    world.remote.script = [EffectFailure.permanent("no")]
    world.run(charge, "failed")
    picky = handler(world, precondition=lambda context: Precondition.rejected("stale"))
    assert isinstance(world.run(picky, "rejected"), Rejected)
    world.remote.script = [Reply.DROP]
    world.run(charge, "needs_intervention")
    world.run(handler(world, require_approval=True), "awaiting_approval")
    crash(world, charge, FaultPoint.AFTER_INSERT, "pending")
    crash(world, charge, FaultPoint.AFTER_ATTEMPT_PERSISTED, "executing")


def left(world: World) -> set[str]:
    return {record.key.key for record in world.store.list(ListQuery.statuses())}


def pruned(world: World, policy: RetentionPolicy | None) -> PruneReport:
    return do(world, world.runtime(retention=policy).prune())


UNSETTLED = {"needs_intervention", "awaiting_approval", "pending", "executing"}
SETTLED = {"committed", "compensated", "failed", "rejected"}


def test_each_status_has_its_age(world: World) -> None:
    """Check E156: failed after 7 days, the others after 30, what is not settled never; by default nothing."""
    one_of_each(world)
    policy = RetentionPolicy.settled(30 * DAY, failed=7 * DAY)
    world.pass_time(7 * 86400 - 1)
    assert pruned(world, policy) == PruneReport()
    world.pass_time(1)
    assert pruned(world, policy) == PruneReport(failed=1)
    assert left(world) == UNSETTLED | SETTLED - {"failed"}
    world.pass_time(23 * 86400)
    report = pruned(world, policy)
    assert report == PruneReport(committed=1, rejected=1, compensated=1) and report.total == 3
    assert left(world) == UNSETTLED


def test_by_default_everything_is_kept(world: World) -> None:
    """Check E156: the default policy prunes nothing."""
    one_of_each(world)
    world.pass_time(1e9)
    for policy in (None, RetentionPolicy()):
        assert pruned(world, policy).total == 0
    assert left(world) == UNSETTLED | SETTLED
    assert pruned(world, RetentionPolicy(committed=DAY)) == PruneReport(committed=1)


def test_many_go_in_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check E157: 1201 old ones in batches of 500, 500 and 201."""
    now = world.clock.now()

    def settle(operations: Any) -> None:
        for number in range(1201):
            effect = world.effect()
            record = operations.insert_or_get(NewEffect.new(effect_key(f"k{number}"), effect.kind, now)).record
            for transition in (Transition.START_ATTEMPT, Transition.SUCCEEDED):
                record = operations.transition(TransitionRequest.new(record, None, transition, now))

    world.store.transact(settle)
    batches: list[int] = []
    genuine = EffectOperations.prune

    def prune(operations: EffectOperations, query: PruneQuery) -> int:
        batches.append(genuine(operations, query))
        return batches[-1]

    monkeypatch.setattr(EffectOperations, "prune", prune)
    world.pass_time(86400)
    report = pruned(world, RetentionPolicy(committed=DAY))
    assert (report.committed, report.total) == (1201, 1201) and batches == [500, 500, 201]
    assert world.is_empty()


def test_the_key_of_what_is_gone_is_new_again(world: World) -> None:
    charge = handler(world)
    first = left_committed(world, charge).id
    world.pass_time(1)
    assert pruned(world, RetentionPolicy.settled(timedelta(0))).committed == 1
    with pytest.raises(NoSuchEffectError):
        do(world, world.runtime().compensate(charge, "order_1"))
    assert world.run(charge) == Committed("res_2")
    assert world.record().id != first and world.remote.calls[0] == world.remote.calls[1]


def test_a_policy_is_checked(world: World) -> None:
    with pytest.raises(ValueError, match="failed"):
        RetentionPolicy(failed=-DAY)
    with pytest.raises(TypeError):
        RetentionPolicy.settled(30)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        RetentionPolicy.settled(DAY, pending=DAY)
    with pytest.raises(TypeError, match="retention"):
        world.runtime(retention=30)
    assert {str(status) for status in EffectStatus if status.is_settled} == set(RetentionPolicy.__struct_fields__)
