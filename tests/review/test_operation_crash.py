"""`OperationAttempts` through a crash at any moment: the attempts and their index rows are those of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

import pystate
from pystate.review.operation_attempt import FAMILY, OPERATION_ATTEMPTS
from pystate.review.operation_attempts import OperationAttempts
from pystate.testing import CheckFailedError, CrashState, Level, SimulatedDisk, check, open_quietly
from tests.review.attempts import HOST, ONB, OWING, PIG, B, L, T, at, attempts_of, overwrite

PATH = "/store"


class Moment(NamedTuple):
    """When a call returned: how many operations the disk had done, what the family held, and which rows were wrong."""

    position: int
    rows: dict[bytes, bytes] | None
    wrong: list[bytes]


NOTHING = Moment(0, None, [])
"""Before there is a family."""


def moment(store: pystate.Store, position: int) -> Moment:
    if FAMILY not in store.families:
        return NOTHING
    return Moment(position, dict(store.family(FAMILY)), [problem.key for problem in attempts_of(store).check()])


def calls(store: pystate.Store) -> Iterator[Callable[[OperationAttempts], object]]:
    """One call after the other; each is one commit."""
    yield lambda attempts: attempts.upsert(ONB("o", expires_at=at(500)))
    yield lambda attempts: attempts.upsert(L("op-1", expires_at=at(500), cleanup_state=OWING))
    for start in (1000, 2000, 3000):
        yield lambda attempts, start=start: attempts.upsert(T(f"old-{start}", start))  # type: ignore[misc]
    yield lambda attempts: attempts.sweep_expired(at(500))
    yield lambda attempts: attempts.upsert(L("op-2"))
    yield lambda attempts: attempts.upsert(L("op-2", HOST, PIG, 2))
    yield lambda _: store.snapshot()
    yield lambda attempts: attempts.prune(B(0, 0), at(10_000))
    yield lambda _: overwrite(store, "o")
    yield lambda attempts: attempts.delete("o")
    yield lambda attempts: attempts.delete("op-2")


def workload(disk: SimulatedDisk) -> list[Moment]:
    """Make a store and do all that; return every moment."""
    with open_quietly(disk, PATH) as store:
        store.create_family(FAMILY)
        attempts = attempts_of(store)
        moments = [NOTHING, moment(store, disk.position)]
        for call in calls(store):
            call(attempts)
            moments.append(moment(store, disk.position))
        return moments


def agrees(state: CrashState) -> None:
    """The family is as at the last moment that the program knew of, or as at the next one."""
    try:
        with pystate.open(PATH, files=state.open_disk(), create=False) as store:
            found = moment(store, 0)
    except pystate.StoreNotFoundError:
        found = NOTHING
    moments: list[Moment] = state.result
    known = max(number for number, each in enumerate(moments) if each.position <= state.operation)
    allowed = [(each.rows, each.wrong) for each in moments[known : known + 2]]
    assert (found.rows, found.wrong) in allowed


@pytest.mark.parametrize("level", [Level.KILL, Level.SECTORS], ids=lambda level: level.value)
def test_crash_leaves_attempts_and_index_rows_of_one_moment(level: Level) -> None:
    """Nothing is wrong but what was overwritten on purpose, and that no longer once it is deleted."""
    report = check(workload, agrees, level=level, budget=3000)
    assert report.exhaustive and report.states > 60
    moments = workload(SimulatedDisk())
    assert [len(each.wrong) for each in moments] == [0] * 12 + [5, 0, 0]


def test_index_rows_in_a_commit_of_their_own_are_found() -> None:
    """Is it sharp? With the record first and its index rows afterwards, some crash comes between the two."""

    def apart(disk: SimulatedDisk) -> list[Moment]:
        with open_quietly(disk, PATH) as store:
            store.create_family(FAMILY)
            moments = [NOTHING, moment(store, disk.position)]
            store.family(FAMILY).put(b"op-1", OPERATION_ATTEMPTS.encode(L("op-1")))
            attempts_of(store).rebuild_indexes()
            return [*moments, moment(store, disk.position)]

    with pytest.raises(CheckFailedError):
        check(apart, agrees, budget=3000)
