"""Figures of typed tables and of the operation ledger."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import msgspec

import pystate
from pystate.review import OperationAttempt, OperationAttempts, RetentionBound
from pystate.review.operation_attempt import FAMILY as ATTEMPTS_FAMILY
from pystate.review.operation_attempt import OPERATION_ATTEMPTS
from pystate.tables import Key, Table, rest_text
from tests.bench.attempts import START, SqliteAttempts, attempts, finished, rows_of
from tests.bench.harness import PYSTATE, Contender, Context, Row, compare, figure, race, stopwatch
from tests.bench.workload import NEVER, wait_for_background


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """An ordinary record."""

    name: str
    owner: str
    size: int
    tags: list[str]
    note: str | None


SAMPLES = Table(Sample, family="samples", key=Key(name=rest_text))


def samples(count: int) -> list[Sample]:
    """So many records of about a hundred bytes."""
    return [
        Sample(name=f"name-{number:08}", owner=f"owner-{number % 97}", size=number, tags=["a", "b"], note="n" * 40)
        for number in range(count)
    ]


def timed(work: Callable[[], object]) -> Contender:
    """Do `work` once in a turn."""

    def turn() -> float:
        with stopwatch() as seconds:
            work()
        wait_for_background()
        return seconds[0]

    return turn


@figure("table-get")
def table_get(context: Context) -> Iterator[Row]:
    """A typed get, against a get of the family and one decode by msgspec."""
    count = context.size(100_000, 500)
    with pystate.memory(families=["samples"]) as store:
        table = SAMPLES.bind(store)
        given = samples(count)
        table.insert_many(given)
        family, decode = store.family("samples"), msgspec.msgpack.Decoder(Sample).decode
        names = [sample.name for sample in given[:: max(1, count // 20_000)]]
        keys = [name.encode() for name in names]

        def raw() -> None:
            get = family.get
            for key in keys:
                decode(get(key))  # type: ignore[arg-type]  # all are there

        def typed() -> None:
            get = table.get
            for name in names:
                get(name)

        seconds = race({"raw get + decode": timed(raw), PYSTATE: timed(typed)}, context.rounds(9), pieces=3)
        yield from compare("table-get", "typed get", seconds, count=3 * len(names), goals={"raw get + decode": 2.5})


@figure("table-scan")
def table_scan(context: Context) -> Iterator[Row]:
    """Iteration over all records, against a scan of the family and a decode of each value by msgspec."""
    count = context.size(100_000, 500)
    with pystate.memory(families=["samples"]) as store:
        table = SAMPLES.bind(store)
        table.insert_many(samples(count))
        family, decode = store.family("samples"), msgspec.msgpack.Decoder(Sample).decode

        def raw() -> None:
            for _, value in family.scan():
                decode(value)

        def typed() -> None:
            for _ in table.iter():
                pass

        seconds = race({"raw scan + decode": timed(raw), PYSTATE: timed(typed)}, context.rounds(9))
        yield from compare("table-scan", "iteration", seconds, count=count, goals={"raw scan + decode": 1.5})


@contextlib.contextmanager
def attempts_on_disk(directory: pathlib.Path, durability: pystate.Durability) -> Iterator[pystate.Store]:
    """A new store for attempts, which takes no snapshots by itself."""
    with pystate.open(directory, families=[ATTEMPTS_FAMILY], durability=durability, snapshot_log_bytes=NEVER) as store:
        yield store


@figure("upsert")
def upsert(context: Context) -> Iterator[Row]:
    """Upserts of attempts, durability process, against transactions that write the same rows."""
    count = context.size(2_000, 50)
    with (
        context.scratch() as directory,
        attempts_on_disk(directory / "typed", "process") as typed_store,
        attempts_on_disk(directory / "raw", "process") as raw_store,
    ):
        ledger = OperationAttempts(OPERATION_ATTEMPTS, typed_store)
        given = attempts(count)
        prepared = [list(rows_of(attempt)) for attempt in given]

        def typed() -> None:
            for attempt in given:
                ledger.upsert(attempt)

        def raw() -> None:
            for rows in prepared:
                with raw_store.begin() as txn:
                    family = txn.family(ATTEMPTS_FAMILY)
                    for key, value in rows:
                        family.put(key, value)

        def emptied(store: pystate.Store, work: Callable[[], None]) -> Contender:
            def turn() -> float:
                store.family(ATTEMPTS_FAMILY).clear()
                return timed(work)()

            return turn

        contenders = {"raw transaction": emptied(raw_store, raw), PYSTATE: emptied(typed_store, typed)}
        seconds = race(contenders, context.rounds(9))
        yield from compare("upsert", "upsert of a new attempt", seconds, count=count, goals={"raw transaction": 3.0})


@figure("upsert-sqlite")
def upsert_sqlite(context: Context) -> Iterator[Row]:
    """Upsert an attempt and look it up by its triple, against sqlite3 with the same three indexes."""
    count, pieces = context.size(20, 5), context.size(25, 1)
    with context.scratch() as directory, contextlib.ExitStack() as stack:
        ledgers: dict[str, OperationAttempts | SqliteAttempts] = {}
        for durability in ("sync", "process"):
            store = stack.enter_context(attempts_on_disk(directory / durability, durability))
            ledgers[durability] = OperationAttempts(OPERATION_ATTEMPTS, store)
        for synchronous in ("FULL", "OFF"):
            peer = SqliteAttempts(directory / f"{synchronous}.sqlite", synchronous=synchronous)
            stack.callback(peer.close)
            ledgers[synchronous] = peer
        numbers = dict.fromkeys(ledgers, 0)

        def contender(name: str) -> Contender:
            ledger = ledgers[name]

            def turn() -> float:
                given = attempts(count, first=numbers[name])
                numbers[name] += count
                return timed(lambda: write_and_look_up(ledger, given))()

            return turn

        seconds = race({name: contender(name) for name in ledgers}, context.rounds(9), pieces=pieces, typical=True)
        for ours, theirs, goal in (("process", "FULL", 0.5), ("sync", "FULL", 1.0), ("process", "OFF", None)):
            rows = compare(
                "upsert-sqlite",
                f"upsert and lookup, {ours}",
                {PYSTATE: seconds[ours], f"sqlite3 {theirs}": seconds[theirs]},
                count=count * pieces,
                goals={f"sqlite3 {theirs}": goal},
            )
            yield from rows


def write_and_look_up(ledger: OperationAttempts | SqliteAttempts, given: Sequence[OperationAttempt]) -> None:
    """Store each attempt, then find it by its triple."""
    for attempt in given:
        ledger.upsert(attempt)
        ledger.live_attempt(attempt.host, attempt.target, attempt.instance)


@figure("retention")
def retention(context: Context) -> Iterator[Row]:
    """Sweep and prune beside 100,000 retained attempts, against the same beside 1,000."""
    many, few, overdue = context.size(100_000, 500), context.size(1_000, 50), context.size(200, 10)
    bound = RetentionBound(max_age=timedelta(days=3650), max_terminal_per_triple=1_000_000)
    with pystate.memory(families=[ATTEMPTS_FAMILY]) as large, pystate.memory(families=[ATTEMPTS_FAMILY]) as small:
        ledgers = {}
        for name, store, kept in (("1,000 retained", small, few), (PYSTATE, large, many)):
            ledgers[name] = OperationAttempts(OPERATION_ATTEMPTS, store)
            keep(ledgers[name], store, finished(attempts(kept, first=1_000_000), max(1, kept // 20)))
        at = START + timedelta(days=30)

        def sweep(name: str) -> Contender:
            def turn() -> float:
                ledger = ledgers[name]
                given = attempts(overdue)
                for attempt in given:
                    ledger.upsert(attempt)
                seconds = timed(lambda: ledger.sweep_expired(at))()
                for attempt in given:
                    ledger.delete(attempt.idempotency_key)
                return seconds

            return turn

        def prune(name: str) -> Contender:
            def turn() -> float:
                ledger = ledgers[name]
                for attempt in finished(attempts(overdue), 1):
                    ledger.upsert(msgspec.structs.replace(attempt, started_at=START - timedelta(days=4000)))
                return timed(lambda: ledger.prune(bound, at))()

            return turn

        for what, make in ((f"sweep of {overdue} overdue", sweep), (f"prune of {overdue - 1} old", prune)):
            seconds = race({name: make(name) for name in ledgers}, context.rounds(5))
            yield from compare(
                "retention", what, seconds, count=1, unit="ms", goals={"1,000 retained": 1.5},
                note=f"pystate: beside {many:,} retained",
            )  # fmt: skip


def keep(ledger: OperationAttempts, store: pystate.Store, given: Sequence[OperationAttempt]) -> None:
    """Store finished attempts, many in one commit."""
    for first in range(0, len(given), 1_000):
        with store.begin() as txn:
            bound = OperationAttempts(OPERATION_ATTEMPTS, txn)
            for attempt in given[first : first + 1_000]:
                bound.upsert(attempt)
