"""Effects on a store on disk: many callers share its syncs, and what is recorded is there again after reopening."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pystate.effects import Committed, Effect, EffectContext, EffectStore, ListQuery, Outcome, Runtime
from tests.effects.runtime.world import run_async, short_names
from tests.effects.trails import check_trail

CALLERS = 100


def counting(calls: list[str]) -> Effect[int]:
    async def action(context: EffectContext) -> int:
        calls.append(str(context.key.key))
        return len(calls)

    return Effect("bench.count", action, remote_idempotency=True)


async def all_at_once(runtime: Runtime, effect: Effect[int]) -> list[Outcome[int]]:
    return await asyncio.gather(*(runtime.run(effect, number) for number in range(CALLERS)))


def test_a_hundred_callers_share_syncs_and_each_takes_two_commits(tmp_path: Path) -> None:
    calls: list[str] = []
    effect = counting(calls)
    with EffectStore.open(tmp_path / "store") as store, Runtime(store) as runtime:
        before = store.store.stats()
        outcomes = run_async(lambda: all_at_once(runtime, effect))
        after = store.store.stats()
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert sorted(calls, key=int) == [str(number) for number in range(CALLERS)]
    assert after.commits - before.commits == 2 * CALLERS
    assert after.syncs - before.syncs < 2 * CALLERS

    with EffectStore.open(tmp_path / "store") as store, Runtime(store) as runtime:
        again = run_async(lambda: all_at_once(runtime, effect))
        assert again == outcomes
        assert len(calls) == CALLERS
        records = store.list(ListQuery.statuses(limit=1000))
        assert len(records) == CALLERS
        for record in records:
            trail = store.events(record.id)
            check_trail(record, trail)
            assert short_names(trail) == "AS OK"
            assert record.lease_owner is None
        assert store.check() == []


def test_a_caller_that_is_cancelled_while_a_commit_waits_for_the_disk(tmp_path: Path) -> None:
    calls: list[str] = []
    effect = counting(calls)

    async def main(runtime: Runtime) -> Any:
        callers = [asyncio.ensure_future(runtime.run(effect, number)) for number in range(CALLERS)]
        await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        await runtime.aclose()

    with EffectStore.open(tmp_path / "store") as store:
        run_async(lambda: main(Runtime(store)))
        begun = {str(record.key.key) for record in store.list(ListQuery.statuses(limit=1000))}
        assert begun == set(calls)  # those that had begun came to a result
        outcomes = run_async(lambda: all_at_once(Runtime(store), effect))
        assert all(isinstance(outcome, Committed) for outcome in outcomes)
        assert len(calls) == CALLERS
