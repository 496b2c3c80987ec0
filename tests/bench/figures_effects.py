"""Figures of the effect ledger: effects a second, and recovery beside a long history."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pystate
from pystate.effects import (
    Effect,
    EffectContext,
    EffectKey,
    EffectKind,
    EffectName,
    EffectStore,
    ListQuery,
    LogicalKey,
    NewEffect,
    Runtime,
    Transition,
    TransitionRequest,
)
from tests.bench.harness import PYSTATE, Contender, Context, Row, compare, figure, info, race, stopwatch
from tests.bench.sqlite_effects import SqliteEffects
from tests.bench.workload import NEVER

CALLERS = 100
START = datetime(2026, 1, 1, tzinfo=UTC)


async def nothing(_: EffectContext) -> None:
    """An effect without an effect."""


NOTHING: Effect[None] = Effect("bench.nothing", nothing)


@contextlib.contextmanager
def effect_store(directory: pathlib.Path, durability: pystate.Durability) -> Iterator[EffectStore]:
    """A new store for effects, which takes no snapshots by itself."""
    with pystate.open(
        directory, families=EffectStore.FAMILIES, durability=durability, snapshot_log_bytes=NEVER
    ) as store:
        yield EffectStore(store)


def one_caller(runtime: Runtime, count: int, keys: Iterator[int]) -> Contender:
    """So many effects, one after the other."""

    def turn() -> float:
        async def run() -> float:
            with stopwatch() as seconds:
                for _ in range(count):
                    await runtime.run(NOTHING, next(keys))
            return seconds[0]

        return asyncio.run(run())

    return turn


def many_callers(call: Callable[[str], Any], count: int, keys: Iterator[int]) -> Contender:
    """So many effects, by a hundred callers at once."""

    def turn() -> float:
        async def caller() -> None:
            for _ in range(count // CALLERS):
                await call(str(next(keys)))

        async def run() -> float:
            with stopwatch() as seconds:
                await asyncio.gather(*(caller() for _ in range(CALLERS)))
            return seconds[0]

        return asyncio.run(run())

    return turn


@figure("effects")
def effects(context: Context) -> Iterator[Row]:
    """Effects a second: one caller and a hundred, against the same cycle in sqlite3 with full sync."""
    few, many = context.size(100, 5), context.size(1_000, CALLERS)
    keys = itertools.count()
    for durability, synchronous in (("sync", "FULL"), ("process", "OFF")):
        with context.scratch() as directory, contextlib.ExitStack() as stack:
            store = stack.enter_context(effect_store(directory / "pystate", durability))  # type: ignore[arg-type]
            peer = SqliteEffects(directory / "sqlite", synchronous=synchronous)
            stack.callback(peer.close)
            runtime = stack.enter_context(Runtime(store))

            def sqlite_alone(peer: SqliteEffects = peer) -> float:
                with stopwatch() as seconds:
                    for _ in range(few):
                        peer.run("bench.nothing", str(next(keys)))
                return seconds[0]

            seconds = race(
                {
                    PYSTATE: one_caller(runtime, few, keys),
                    "a hundred": many_callers(partial(runtime.run, NOTHING), many, keys),
                    f"sqlite3 {synchronous}": sqlite_alone,
                    f"sqlite3 {synchronous}, a hundred": many_callers(
                        partial(peer.run_async, "bench.nothing"), many, keys
                    ),
                },
                context.rounds(5),
            )
        alone = [each / few for each in seconds[PYSTATE]]
        together = [each / many for each in seconds["a hundred"]]
        sqlite_one = [each / few for each in seconds[f"sqlite3 {synchronous}"]]
        sqlite_many = [each / many for each in seconds[f"sqlite3 {synchronous}, a hundred"]]
        judged = durability == "sync"
        for what, ours, name, theirs, goal in (
            (f"{durability}: an effect of a hundred callers", together, "one caller", alone, 1 / 3 if judged else None),
            (f"{durability}: an effect of one caller", alone, f"sqlite3 {synchronous}", sqlite_one, 0.5),
            (f"{durability}: an effect of a hundred callers", together, f"sqlite3 {synchronous}", sqlite_many, 0.25),
        ):
            yield from compare(
                "effects", what, {PYSTATE: ours, name: theirs}, count=1,
                goals={name: goal if judged else None},
            )  # fmt: skip


@figure("effects-recovery")
def recovery(context: Context) -> Iterator[Row]:
    """Looking for expired leases: ten of them beside one million settled records."""
    count = context.size(1_000_000, 2_000)
    with context.scratch() as directory, effect_store(directory / "pystate", "process") as store:
        settle(store, count)
        lease_out(store, 10)
        later = START + timedelta(days=1)

        def turn() -> float:
            with stopwatch() as seconds:
                found = store.list(ListQuery.expired_leases(later))
            if len(found) != 10:
                raise RuntimeError(f"{len(found)} expired leases found")
            return seconds[0]

        turn()
        (seconds,) = race({PYSTATE: turn}, context.rounds(9)).values()
        for taken in sorted(seconds)[len(seconds) // 2 : len(seconds) // 2 + 1]:
            yield Row(
                "effects-recovery", f"ten expired leases beside {count:,} settled", taken * 1e3, "", None, "ms", (),
                "< 10 ms", taken < 0.010, f"{min(seconds) * 1e3:.2f} to {max(seconds) * 1e3:.2f} ms",
            )  # fmt: skip
        yield info("effects-recovery", "rows of the store", sum(len(each) for each in families(store)), "")


def families(store: EffectStore) -> list[pystate.Family]:
    """The families of effects."""
    return [store.store.family(name) for name in EffectStore.FAMILIES]


def settle(store: EffectStore, count: int) -> None:
    """Store so many effects that have failed, many in one commit."""
    for first in range(0, count, 1_000):

        def write(operations: Any, first: int = first) -> None:
            for number in range(first, min(first + 1_000, count)):
                record = operations.insert_or_get(new_effect("settled", number)).record
                lease = operations.acquire_lease(record.id, "worker", START, timedelta(seconds=30))
                for transition in (Transition.START_ATTEMPT, Transition.FAILED_DEFINITIVELY):
                    record = operations.transition(TransitionRequest.new(record, lease, transition, START))
                operations.release_lease(lease)

        store.transact(write)


def lease_out(store: EffectStore, count: int) -> None:
    """Store so many effects that run, and whose leases nobody renews."""
    for number in range(count):
        record = store.insert_or_get(new_effect("stalled", number)).record
        lease = store.acquire_lease(record.id, "worker", START, timedelta(seconds=30))
        store.transition(TransitionRequest.new(record, lease, Transition.START_ATTEMPT, START))


def new_effect(name: str, number: int) -> NewEffect:
    """An effect that is not stored yet."""
    return NewEffect.new(EffectKey(EffectName(name), LogicalKey(str(number))), EffectKind.IRREVERSIBLE_WRITE, START)
