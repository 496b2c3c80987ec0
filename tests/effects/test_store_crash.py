"""`EffectStore` through a crash at any moment: record, event and index rows are those of one moment, all or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

import pystate
from pystate.effects import (
    EffectOperations,
    EffectStatus,
    EffectStore,
    PruneQuery,
    Transition,
)
from pystate.effects.effect_rows import EFFECTS, EVENTS
from pystate.errors import FamilyNotFoundError
from pystate.testing import CheckFailedError, CrashState, Level, SimulatedDisk, check, open_quietly
from tests.effects.samples import TTL, T
from tests.effects.stores import check_all, new_effect, record_effect, request, take

PATH = "/store"
S, Tr = EffectStatus, Transition


class Moment(NamedTuple):
    """When a call returned: how many operations the disk had done, and what both families held."""

    position: int
    rows: tuple[dict[bytes, bytes], ...] | None


NOTHING = Moment(0, None)
"""Before there are families."""


def moment(effects: EffectStore, position: int) -> Moment:
    return Moment(position, tuple(dict(effects.store.family(name)) for name in EffectStore.FAMILIES))


def calls(effects: EffectStore) -> Iterator[Callable[[], object]]:
    """One call after the other; each is one commit."""
    made: list[Any] = []
    yield lambda: made.append(effects.insert_or_get(new_effect("order_1", input={"amount": 1})).record)
    yield lambda: made.append(effects.acquire_lease(made[0].id, "a", T(0), TTL))
    yield lambda: effects.transition(request(made[0], Tr.START_ATTEMPT, lease=made[1]))
    yield lambda: effects.renew_lease(made[1], T(2), TTL)

    def finish(operations: EffectOperations) -> None:
        record = operations.get(made[0].id)
        assert record is not None
        operations.transition(request(record, Tr.OUTCOME_UNKNOWN, 3, lease=made[1], output=None))
        operations.release_lease(made[1])

    yield lambda: effects.transact(finish)
    yield effects.store.snapshot
    yield lambda: take(effects, made[0] if (found := effects.get(made[0].id)) is None else found, Tr.RESOLVED_APPLIED)
    yield lambda: effects.transact(lambda operations: record_effect(operations, "order_2", S.COMPENSATED, at=5))
    yield lambda: effects.prune(PruneQuery(S.COMMITTED, timedelta(0), T(9)))
    yield lambda: effects.insert_or_get(new_effect("order_1"))


def opened(disk: SimulatedDisk) -> EffectStore:
    store = open_quietly(disk, PATH)
    for name in EffectStore.FAMILIES:
        store.create_family(name)
    return EffectStore(store)


def workload(disk: SimulatedDisk) -> list[Moment]:
    """Make a store and do all that; return every moment."""
    effects = opened(disk)
    moments = [NOTHING, moment(effects, disk.position)]
    for call in calls(effects):
        call()
        moments.append(moment(effects, disk.position))
    effects.store.close()
    return moments


def agrees(state: CrashState) -> None:
    """The families are as at the last moment that the program knew of, or as at the next one; every trail holds."""
    found = NOTHING
    try:
        with pystate.open(PATH, files=state.open_disk(), create=False) as store:
            effects = EffectStore(store)
            check_all(effects)
            found = moment(effects, 0)
    except (pystate.StoreNotFoundError, FamilyNotFoundError):
        pass
    moments: list[Moment] = state.result
    known = max(number for number, each in enumerate(moments) if each.position <= state.operation)
    assert found.rows in [each.rows for each in moments[known : known + 2]]


@pytest.mark.parametrize("level", [Level.KILL, Level.SECTORS], ids=lambda level: level.value)
def test_crash_leaves_record_and_event_both_or_neither(level: Level) -> None:
    """Check E84: after any crash, what had returned is there, and no transition without its event."""
    report = check(workload, agrees, level=level, budget=4000)
    assert report.states > 60
    moments = workload(SimulatedDisk())
    assert len({str(each.rows) for each in moments}) == len(moments) - 1  # the snapshot changes nothing


def apart(disk: SimulatedDisk) -> list[Moment]:
    """A store that writes the record first, and its event in a commit of its own."""
    effects = opened(disk)
    moments = [NOTHING, moment(effects, disk.position)]
    record = effects.insert_or_get(new_effect()).record
    moments.append(moment(effects, disk.position))
    changed, event = record.apply(request(record, Tr.START_ATTEMPT))
    with effects.store.begin() as txn:
        EFFECTS.replace_row(txn.family("effects"), EFFECTS.row_key(record), record, changed)
    effects.store.family("effect events").put(EVENTS.row_key(event), EVENTS.encode(event))
    return [*moments, moment(effects, disk.position)]


def test_an_event_in_a_commit_of_its_own_is_found() -> None:
    """Is it sharp? With the record first and its event afterwards, some crash comes between the two."""
    with pytest.raises(CheckFailedError):
        check(apart, agrees, budget=4000)
