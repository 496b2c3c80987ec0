"""Workers in threads on one store: each effect is begun by one of them, and every trail holds."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from pystate.effects import (
    EffectId,
    EffectOperations,
    EffectStatus,
    EffectStore,
    Lease,
    ListQuery,
    PruneQuery,
    Transition,
)
from pystate.errors import EffectNotFoundError, LeaseHeldError, LeaseLostError, VersionConflictError
from tests.effects.samples import TTL, T
from tests.effects.stores import check_all, new_effect, request

S, Tr = EffectStatus, Transition


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_many_claim_and_one_gets_it(disk: bool, tmp_path: Path) -> None:
    """Row 95: of 32 threads one gets the lease, whatever they do at the same time."""
    with EffectStore.open(tmp_path / "store", durability="process") if disk else EffectStore.memory() as effects:
        barrier = Barrier(32)
        ids = [effects.insert_or_get(new_effect(str(number))).record.id for number in range(5)]

        def claim(worker: int) -> list[EffectId]:
            won = []
            for id_ in ids:
                barrier.wait()
                try:
                    effects.acquire_lease(id_, str(worker), T(0), TTL)
                except LeaseHeldError:
                    continue
                won.append(id_)
            return won

        with ThreadPoolExecutor(32) as pool:
            won = [id_ for each in pool.map(claim, range(32)) for id_ in each]
        assert sorted(won) == ids
        assert {record.lease_epoch for record, _ in check_all(effects)} == {1}


def test_a_former_holder_never_touches_what_the_next_one_has() -> None:
    """Row 94: of those whose lease has expired, none completes, renews or releases; whoever took over does."""
    effects = EffectStore.memory()
    ids = [effects.insert_or_get(new_effect(str(number))).record.id for number in range(20)]
    for id_ in ids:
        former = effects.acquire_lease(id_, "former", T(0), TTL)
        record = effects.transition(
            request(effects.list(ListQuery.statuses([S.PENDING]))[0], Tr.START_ATTEMPT, lease=former)
        )
        assert record.id == id_
        barrier = Barrier(2)

        def late(former: Lease = former, barrier: Barrier = barrier) -> int:
            """Try all at the time when the lease ends; how many of the calls were let through."""
            barrier.wait()
            done = 0
            for call in (
                lambda: effects.renew_lease(former, T(30), TTL),
                lambda: effects.transition(request(record, Tr.SUCCEEDED, 30, lease=former)),  # noqa: B023
            ):
                try:
                    call()
                    done += 1
                except LeaseLostError:
                    pass
            effects.release_lease(former)
            return done

        def take_over(id_: EffectId = id_, barrier: Barrier = barrier) -> Lease:
            barrier.wait()
            return effects.acquire_lease(id_, "next", T(30), TTL)

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(late), pool.submit(take_over)
            assert first.result() == 0
            lease = second.result()
        found = effects.get(id_)
        assert found is not None and (found.lease_owner, found.lease_expires_at) == ("next", T(60))
        effects.transition(request(found, Tr.LEASE_EXPIRED, 31, lease=lease))
        effects.release_lease(lease)
    assert len(check_all(effects)) == 20


def test_workers_share_the_work_and_do_each_piece_once() -> None:
    """Check E85, for threads of one process: 150 effects, 4 workers; each is begun once and committed at once."""
    effects = EffectStore.memory()
    calls: list[str] = []

    def work(worker: int) -> None:
        order = random.Random(worker).sample(range(150), 150)
        for number in order:
            record = effects.insert_or_get(new_effect(str(number))).record
            if record.status is not S.PENDING:
                continue

            def start(operations: EffectOperations, id_: EffectId = record.id) -> Lease:
                lease = operations.acquire_lease(id_, str(worker), T(0), TTL)
                found = operations.get(id_)
                if found is None or found.status is not S.PENDING:
                    raise LeaseLostError(id_)
                operations.transition(request(found, Tr.START_ATTEMPT, lease=lease))
                return lease

            try:
                lease = effects.transact(start)
            except (LeaseHeldError, LeaseLostError):
                continue
            calls.append(record.key.key)

            def finish(operations: EffectOperations, lease: Lease = lease) -> None:
                found = operations.get(lease.effect_id)
                assert found is not None
                operations.transition(request(found, Tr.SUCCEEDED, 2, lease=lease))
                operations.release_lease(lease)

            effects.transact(finish)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sorted(calls) == sorted(map(str, range(150)))
    assert {(record.status, record.attempt_count) for record, _ in check_all(effects)} == {(S.COMMITTED, 1)}


def test_pruning_beside_workers_loses_nothing_that_is_at_work() -> None:
    effects = EffectStore.memory()
    ids = []
    for number in range(60):
        record = effects.insert_or_get(new_effect(str(number))).record
        for transition in (Tr.START_ATTEMPT, Tr.SUCCEEDED):
            record = effects.transition(request(record, transition, 1))
        ids.append(record.id)

    def compensate(id_: EffectId) -> bool:
        try:
            lease = effects.acquire_lease(id_, "a", T(2), TTL)
            record = effects.get(id_)
            assert record is not None
            effects.transition(request(record, Tr.START_COMPENSATION, 2, lease=lease))
        except EffectNotFoundError:
            return False
        except VersionConflictError as error:
            raise AssertionError("nobody else changes it") from error
        return True

    def prune(_: int) -> int:
        return sum(effects.prune(PruneQuery(S.COMMITTED, timedelta(0), T(2), limit=3)) for _ in range(20))

    with ThreadPoolExecutor(3) as pool:
        pruned = pool.submit(prune, 0)
        kept = [id_ for id_, done in zip(ids[::-1], pool.map(compensate, ids[::-1]), strict=True) if done]
        assert pruned.result() + len(kept) >= 60 - len(check_all(effects)) + len(kept)
    found = check_all(effects)
    assert [record.id for record, _ in found if record.status is S.COMPENSATING] == sorted(kept)
    assert len(found) == 60 - pruned.result()
