"""The power fails at every operation of the disk while an effect runs: the outcome is the one of the crash matrix.

The disk loses what was not synced, and as much of it as it likes. The world outside does not: it is told apart how
often it had been changed when the power failed, and goes on from there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pystate.effects import (
    Committed,
    EffectFailure,
    EffectKey,
    EffectStatus,
    EffectStore,
    FaultPoint,
    ListQuery,
    NeedsIntervention,
)
from pystate.effects.testing import ManualClock
from pystate.testing import CheckFailedError, CrashState, Level, SimulatedDisk, check
from tests.effects.runtime.leaving import LAPSE, do, worker
from tests.effects.runtime.matrix import PROTECTIONS, protected
from tests.effects.runtime.remote import Remote, Reply
from tests.effects.runtime.world import World
from tests.effects.samples import T

PATH = "/store"
POINT = FaultPoint.AFTER_ATTEMPT_PERSISTED


class Told(NamedTuple):
    """What happened when: after how many operations of the disk.

    Attributes:
        protection: of the effect.
        called, applied: of each call of the action, and of each change of the world.
        returned: when the caller had the outcome.
        seconds: how much time has passed at the end. A commit waits for a thread, and the lease is renewed meanwhile.
    """

    protection: str
    called: list[int]
    applied: list[int]
    returned: int
    seconds: float


class DiskRemote(Remote):
    """A remote that remembers how far the disk was."""

    def __init__(self, clock: ManualClock, disk: SimulatedDisk, script: list[Any]) -> None:
        super().__init__(clock, script)
        self.disk = disk
        self.called: list[int] = []
        self.applied: list[int] = []

    async def create(self, context: Any) -> str:
        self.called.append(self.disk.position)
        return await super().create(context)

    def apply(self, key: Any) -> str:
        self.applied.append(self.disk.position)
        return super().apply(key)


def opened(disk: Any, clock: ManualClock) -> World:
    world = World(EffectStore.open(PATH, files=disk))
    world.clock = world.remote.clock = clock
    return world


def run(disk: SimulatedDisk, protection: str, script: list[Any]) -> Told:
    """Make a store, and run one effect in it."""
    clock = ManualClock(T(0))
    world = opened(disk, clock)
    remote = world.remote = DiskRemote(clock, disk, script)
    effect = protected(remote, protection, POINT)
    world.run(effect)
    told = Told(protection, remote.called, remote.applied, disk.position, world.seconds)
    world.store.close()
    return told


def verify(state: CrashState) -> None:
    """Go on after the crash, with every world that there may have been at that moment."""
    told, crash = state.first.result, state.first.operation
    # What happened between two operations of the disk may have come before the crash or not.
    for count in {sum(at < crash for at in told.applied), sum(at <= crash for at in told.applied)}:
        go_on(state, told, count, returned=told.returned <= crash)


def go_on(state: CrashState, told: Told, created: int, *, returned: bool) -> None:
    clock = ManualClock(T(told.seconds + LAPSE))
    world = opened(state.open_disk(), clock)
    try:
        effect = protected(world.remote, told.protection, POINT)
        for _ in range(created):
            world.remote.apply(effect_key(effect))
        left = world.store.list(ListQuery.statuses())
        if created:
            assert left and left[0].attempt_count, "the world was changed, and no attempt is recorded"
        if returned:
            assert left[0].status in (EffectStatus.COMMITTED, EffectStatus.NEEDS_INTERVENTION)
        do(world, worker(world, effect, name="rec").recover())
        outcome = world.run(effect, worker="again")
        check_outcome(world, told, outcome, left, created)
        world.check()
    finally:
        world.store.close()


def check_outcome(world: World, told: Told, outcome: Any, left: list[Any], created: int) -> None:
    remote = world.remote
    if told.protection != "unprotected":
        assert outcome == Committed("res_1") and len(remote.created) == 1
    elif left and left[0].status is not EffectStatus.PENDING:
        settled = left[0].status is EffectStatus.COMMITTED
        assert isinstance(outcome, Committed if settled else NeedsIntervention)
        assert len(remote.created) == created and remote.calls == []
    else:
        assert outcome == Committed("res_1") and len(remote.created) == 1


def effect_key(effect: Any) -> Any:
    return EffectKey(effect.name, "order_1").idempotency_key()  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [Level.KILL, Level.NOTHING_UNSYNCED, Level.SECTORS], ids=lambda level: level.value)
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_the_power_fails_at_any_moment(protection: str, level: Level) -> None:
    """The matrix on a disk: committed and created once, or left to a person and created as often as it was."""
    report = check(lambda disk: run(disk, protection, []), verify, level=level, budget=120)
    assert report.operations > 20 and report.states > 20  # states that are alike are looked at once


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_the_power_fails_while_an_answer_was_lost(protection: str) -> None:
    """The same when the first attempt applied and its answer was dropped: a retry, a lookup, or a person."""
    report = check(
        lambda disk: run(disk, protection, [Reply.APPLY_AND_DROP]), verify, level=Level.NOTHING_UNSYNCED, budget=120
    )
    assert report.states > 5


def test_an_action_that_runs_before_its_attempt_is_durable_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check sees what it is for: commits that are not synced lose the intent, and the world is changed twice."""
    genuine = EffectStore.transact_async

    async def careless(store: EffectStore, function: Any, **settings: Any) -> Any:
        return await genuine(store, function, durability="process")

    with monkeypatch.context() as patch:
        patch.setattr(EffectStore, "transact_async", careless)
        with pytest.raises(CheckFailedError, match="no attempt is recorded"):
            check(lambda disk: run(disk, "unprotected", []), verify, level=Level.NOTHING_UNSYNCED, shrink=False)


def test_a_retry_is_scheduled_before_it_is_waited_for() -> None:
    """Power fails during the wait: whoever goes on waits for the recorded time."""

    def workload(disk: SimulatedDisk) -> Told:
        return run(disk, "idempotent", [EffectFailure.transient("busy")])

    check(workload, verify, level=Level.NOTHING_UNSYNCED, budget=120)
