"""Figures of what goes on behind the user's back: snapshots, and the bytes that reach the disk."""

from __future__ import annotations

import pathlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pystate
from pystate.engine.limits import SNAPSHOT_LOG_BYTES
from tests.bench.counting_files import CountingFiles
from tests.bench.harness import Context, Row, figure, info
from tests.bench.peers import Item
from tests.bench.workload import FAMILY, KEY_BYTES, NEVER, VALUE_BYTES, Workload, batches, fill

STALL_SECONDS_MAX = 0.050
SCAN_KEYS = 10
READER_PAUSE = 0.0005
BURST = 2_000


@dataclass
class Waits:
    """The longest a commit, a get and a short scan took in one run, in seconds; and how many there were."""

    commit: float = 0.0
    get: float = 0.0
    scan: float = 0.0
    commits: int = 0
    reads: int = 0
    run: float = 0.0
    failures: list[BaseException] = field(default_factory=list)


def committing(family: pystate.Family, workload: Workload, waits: Waits, stop: threading.Event) -> None:
    """Put random keys, one commit each, until told to stop."""
    clock, put = time.perf_counter, family.put
    items = workload.overwrites(BURST)
    while not stop.is_set():
        for key, value in items:
            started = clock()
            put(key, value)
            taken = clock() - started
            if taken > waits.commit:
                waits.commit = taken
            waits.commits += 1
            if stop.is_set():
                break


def reading(family: pystate.Family, workload: Workload, waits: Waits, stop: threading.Event, pause: float) -> None:
    """Get random keys and scan a few, until told to stop."""
    clock, get, scan, sleep = time.perf_counter, family.get, family.scan, time.sleep
    keys = workload.lookups(BURST)
    while not stop.is_set():
        for key in keys:
            started = clock()
            get(key)
            got = clock()
            for _item in scan(key, limit=SCAN_KEYS):
                pass
            scanned = clock()
            if got - started > waits.get:
                waits.get = got - started
            if scanned - got > waits.scan:
                waits.scan = scanned - got
            waits.reads += 1
            if pause:
                sleep(pause)
            if stop.is_set():
                break


def beside(store: pystate.Store, workload: Workload, pause: float, work: Callable[[], None]) -> Waits:
    """Do ``work`` in this thread while one thread commits and another reads."""
    family = store.family(FAMILY)
    waits, stop = Waits(), threading.Event()

    def guarded(loop: Callable[[Workload], None], seed: int) -> None:
        own = Workload(0, seed)
        own.keys = workload.keys
        try:
            loop(own)
        except BaseException as failure:
            waits.failures.append(failure)

    loops: tuple[Callable[[Workload], None], ...] = (
        lambda own: committing(family, own, waits, stop),
        lambda own: reading(family, own, waits, stop, pause),
    )
    threads = [threading.Thread(target=guarded, args=(loop, seed)) for seed, loop in enumerate(loops, 2)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)  # both have started and are past their first, slower steps
    waits.commit = waits.get = waits.scan = 0.0
    waits.commits = waits.reads = 0
    started = time.perf_counter()
    try:
        work()
    finally:
        waits.run = time.perf_counter() - started
        stop.set()
        for thread in threads:
            thread.join()
    if waits.failures:
        raise waits.failures[0]
    return waits


def burn(seconds: float) -> None:
    """Compute for a while: what any other busy thread of the program would do to the two."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@figure("snapshot")
def snapshot(context: Context) -> Iterator[Row]:
    """A snapshot of one million keys while one thread commits and one reads.

    Compared with the same run of the same length without a snapshot; the goal is the difference of the longest waits.
    The third run has, in place of the snapshot, a thread that only computes: threads of one interpreter take turns of
    five milliseconds, and whoever made a system call queues again, so part of any wait is not the snapshot's.

    The commits come without a pause. The reader is an instrument: it pauses half a millisecond after each reading, or
    else it would be a second busy thread. The last rows have it read without a pause.
    """
    workload = Workload(context.size(1_000_000, 5_000))
    with context.scratch() as directory:
        fill(directory / "pystate", workload.items())
        runs_wanted: tuple[tuple[Literal["sync", "process"], float], ...] = (
            ("process", READER_PAUSE),
            ("sync", READER_PAUSE),
            ("process", 0.0),
        )
        for durability, pause in runs_wanted:
            with pystate.open(directory / "pystate", durability=durability, snapshot_log_bytes=NEVER) as store:
                for _item in store.family(FAMILY).scan():
                    pass
                runs: dict[str, list[Waits]] = {"snapshot": [], "nothing else": [], "a busy thread": []}
                for _ in range(context.rounds(3)):
                    waits = beside(store, workload, pause, store.snapshot)
                    length = waits.run
                    runs["snapshot"].append(waits)
                    runs["nothing else"].append(
                        beside(store, workload, pause, lambda: time.sleep(length))  # noqa: B023 - called at once
                    )
                    runs["a busy thread"].append(
                        beside(store, workload, pause, lambda: burn(length))  # noqa: B023 - called at once
                    )
            yield from _rows_of_waits(durability if pause else f"{durability}, busy reader", runs)


def _longest_commit(waits: Waits) -> float:
    return waits.commit


def _longest_get(waits: Waits) -> float:
    return waits.get


def _longest_scan(waits: Waits) -> float:
    return waits.scan


def _rows_of_waits(durability: str, runs: dict[str, list[Waits]]) -> Iterator[Row]:
    for what, longest in (
        ("longest commit", _longest_commit),
        ("longest get", _longest_get),
        ("longest scan", _longest_scan),
    ):
        with_snapshot = [longest(waits) for waits in runs["snapshot"]]
        for other in ("nothing else", "a busy thread"):
            without = [longest(waits) for waits in runs[other]]
            differences = [mine - its for mine, its in zip(with_snapshot, without, strict=True)]
            difference = statistics.median(differences)
            judged = other == "nothing else"
            yield Row(
                "snapshot",
                f"{durability}: {what}",
                statistics.median(with_snapshot) * 1e3,
                other,
                statistics.median(without) * 1e3,
                "ms",
                (),
                f"+ < {STALL_SECONDS_MAX * 1e3:.0f} ms" if judged else "",
                difference < STALL_SECONDS_MAX if judged else None,
                f"{difference * 1e3:+.1f} ms ({min(differences) * 1e3:+.1f} to {max(differences) * 1e3:+.1f})",
            )
    for name, all_waits in runs.items():
        run = statistics.median(waits.run for waits in all_waits)
        commits = statistics.median(waits.commits / waits.run for waits in all_waits)
        reads = statistics.median(waits.reads / waits.run for waits in all_waits)
        note = f"{commits:,.0f} commits/s, {reads:,.0f} reads/s"
        yield info("snapshot", f"{durability}: length of the run, {name}", run * 1e3, "ms", note)


@figure("bytes")
def bytes_written(context: Context) -> Iterator[Row]:
    """Bytes written per byte committed (keys and values), overwriting a store of 10 MB.

    There is no peer: the number is the store's own (``stats()``), beside what counting files saw go to the disk. One
    put per commit has the most overhead; transactions of 100 have the usual one. The disk space at its highest is
    compared with the keys and values stored.
    """
    data_bytes = context.size(10_000_000, 500_000)
    population = data_bytes // (KEY_BYTES + VALUE_BYTES)
    for what, size, committed in (
        ("one put per commit", 1, context.size(200_000_000, 2 * SNAPSHOT_LOG_BYTES)),
        ("100 puts per commit", 100, context.size(300_000_000, 3 * SNAPSHOT_LOG_BYTES)),
    ):
        with context.scratch() as directory:
            yield from _overwriting(directory, what, population, size, committed)


def _overwriting(directory: pathlib.Path, what: str, population: int, size: int, committed: int) -> Iterator[Row]:
    """The rows of one way to overwrite a store until ``committed`` bytes were committed."""
    workload = Workload(population)
    stored = population * (KEY_BYTES + VALUE_BYTES)
    files = CountingFiles()
    with pystate.open(directory / "pystate", durability="process", files=files) as store:
        family = store.family(FAMILY)
        for batch in batches(workload.items(), 1000):
            family.update(batch)
        store.snapshot()
        before, counted_before = store.stats(), files.bytes_written
        writes = _writes_of(family, size)
        # The same overwrites again and again: the store does not look at what a value was before.
        items = workload.overwrites(min(population, committed // (KEY_BYTES + VALUE_BYTES)))
        started = time.perf_counter()
        while store.stats().bytes_committed - before.bytes_committed < committed:
            writes(items)
        seconds = time.perf_counter() - started
        _wait_until_quiet(files)
        after, counted = store.stats(), files.bytes_written - counted_before
    delta = after.bytes_committed - before.bytes_committed
    ratio = (after.bytes_written - before.bytes_written) / delta
    note = f"{delta / 1e6:.0f} MB committed in {seconds:.1f} s"
    note += f", {after.snapshots_taken - before.snapshots_taken} snapshots"
    yield Row("bytes", what, ratio, "", None, "", (), "≤ 3", ratio <= 3.0, note)
    difference = counted / (after.bytes_written - before.bytes_written) - 1
    yield info("bytes", f"{what}: counted", counted / delta, "", f"{difference:+.2%} against stats()")
    yield info("bytes", f"{what}: disk space at most", files.disk_bytes_max / stored, "", "times the data stored")


def _wait_until_quiet(files: CountingFiles) -> None:
    """Wait for a snapshot under way: what is being written is counted here before it is there."""
    seen = -1
    while seen != files.bytes_written:
        seen = files.bytes_written
        time.sleep(0.2)


def _writes_of(family: pystate.Family, size: int) -> Callable[[Sequence[Item]], None]:
    def one_by_one(items: Sequence[Item]) -> None:
        put = family.put
        for key, value in items:
            put(key, value)

    def many(items: Sequence[Item]) -> None:
        for batch in batches(items, size):
            family.update(batch)

    return one_by_one if size == 1 else many
