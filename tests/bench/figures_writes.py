"""Figures of writing: one put per commit, many threads, and loading."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import statistics
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

import msgspec

import pystate
from tests.bench import peers
from tests.bench.bare_group import BareGroup
from tests.bench.counting_files import CountingFiles
from tests.bench.harness import PYSTATE, Contender, Context, Row, compare, figure, info, race, stopwatch
from tests.bench.peers import Item
from tests.bench.workload import FAMILY, NEVER, Workload, batches, wait_for_background

BATCH = 1_000
THREADS = 16


@contextlib.contextmanager
def appending(path: pathlib.Path) -> Iterator[int]:
    """A descriptor of a new file, opened the way a log is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def timed_puts(puts: Callable[[Sequence[Item]], None], workload: Workload, count: int) -> Contender:
    """Overwrite ``count`` random keys, one commit each."""

    def turn() -> float:
        items = workload.overwrites(count)
        with stopwatch() as seconds:
            puts(items)
        wait_for_background()
        return seconds[0]

    return turn


def puts_of(family: pystate.Family) -> Callable[[Sequence[Item]], None]:
    """The loop a user of pystate writes."""

    def puts(items: Sequence[Item]) -> None:
        put = family.put
        for key, value in items:
            put(key, value)

    return puts


@contextlib.contextmanager
def peers_with(directory: pathlib.Path, items: Sequence[Item], *, sync: bool) -> Iterator[dict[str, peers.Peer]]:
    """Every installed peer, holding ``items``."""
    with contextlib.ExitStack() as stack:
        opened: dict[str, peers.Peer] = {}
        for kind in peers.installed():
            path = directory / kind.name
            path.mkdir()
            peer = kind(path, sync=sync)
            stack.callback(peer.close)
            peer.load([items])
            opened[kind.name] = peer
        yield opened


@figure("put-process")
def put_process(context: Context) -> Iterator[Row]:
    """One put per commit, durability process: survives the death of the process.

    Floor: one msgspec encode, one CRC-32, one ``os.write`` and one dict store for each put. Peers: without sync. The
    store holds 10,000 keys that are overwritten, 30,000 puts in a turn: enough for the log to outgrow the snapshot,
    so that pystate's numbers contain background snapshots as a user gets them. The last row has none.
    """
    workload = Workload(context.size(10_000, 500))
    items = workload.items()
    count = context.size(30_000, 500)
    with (
        context.scratch() as directory,
        appending(directory / "floor") as descriptor,
        pystate.open(directory / "pystate", durability="process") as store,
        pystate.open(directory / "quiet", durability="process", snapshot_log_bytes=NEVER) as quiet,
        peers_with(directory, items, sync=False) as others,
    ):
        floor_values = dict(items)
        encode = msgspec.msgpack.Encoder().encode

        def floor(items: Sequence[Item]) -> None:
            crc32, write = zlib.crc32, os.write
            for key, value in items:
                payload = encode((key, value))
                crc32(payload)
                write(descriptor, payload)
                floor_values[key] = value

        for each in (store, quiet):
            each.family(FAMILY).update(items)
        contenders = {
            "floor": timed_puts(floor, workload, count),
            PYSTATE: timed_puts(puts_of(store.family(FAMILY)), workload, count),
        }
        contenders.update((name, timed_puts(peer.puts, workload, count)) for name, peer in others.items())
        contenders["no snapshots"] = timed_puts(puts_of(quiet.family(FAMILY)), workload, count)
        seconds = race(contenders, context.rounds(7))
        without = seconds.pop("no snapshots")
        yield from compare(
            "put-process",
            "one put per commit",
            seconds,
            count=count,
            goals={"floor": 2.0},
            default_goal=1.0,
            missing=peers.missing(),
        )
        seconds = {"floor": seconds["floor"], PYSTATE: without}
        yield from compare("put-process", "the same, no snapshots taken", seconds, count=count, goals={})


@figure("put-sync")
def put_sync(context: Context) -> Iterator[Row]:
    """One put per commit, durability sync: survives a power cut.

    Floor: ``os.write`` and ``os.fdatasync`` of as many bytes as a frame of this commit has, appended to a file. Peers:
    with sync. The turns are short (20 commits), and a round tells the typical one, for a disk drifts and has bursts.
    """
    workload = Workload(context.size(10_000, 500))
    items = workload.items()
    count, pieces = context.size(20, 5), context.size(25, 1)
    with (
        context.scratch() as directory,
        appending(directory / "floor") as descriptor,
        pystate.open(directory / "pystate", durability="sync") as store,
        peers_with(directory, items, sync=True) as others,
    ):
        family = store.family(FAMILY)
        family.update(items)
        family.put(*workload.overwrites(1)[0])
        frame = os.urandom(frame_length(directory / "pystate"))

        def floor(items: Sequence[Item]) -> None:
            write, fdatasync = os.write, os.fdatasync
            for _key, _value in items:
                write(descriptor, frame)
                fdatasync(descriptor)

        contenders = {
            "floor": timed_puts(floor, workload, count),
            PYSTATE: timed_puts(puts_of(family), workload, count),
        }
        contenders.update((name, timed_puts(peer.puts, workload, count)) for name, peer in others.items())
        seconds = race(contenders, context.rounds(15), pieces=pieces, typical=True)
        yield from compare(
            "put-sync",
            "one put per commit",
            seconds,
            count=count * pieces,
            goals={"floor": 1.15},
            default_goal=1.0,
            missing=peers.missing(),
            note=f"frames of {len(frame)} bytes",
        )


def frame_length(path: pathlib.Path) -> int:
    """The bytes of the newest commit's frame in the store at ``path``."""
    return [frame.length for frame in pystate.read_log(path) if frame.kind == "commit"][-1]


def run_threads(puts: Callable[[Sequence[Item]], None], shares: Sequence[Sequence[Item]]) -> float:
    """One thread for each share, all started at once; the seconds until the last one is done."""
    start = threading.Barrier(len(shares) + 1)
    failures: list[BaseException] = []

    def work(share: Sequence[Item]) -> None:
        start.wait()
        try:
            puts(share)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    start.wait()
    with stopwatch() as seconds:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return seconds[0]


@figure("threads")
def threads(context: Context) -> Iterator[Row]:
    """Sixteen threads, one put per commit, durability sync: what group commit gains.

    Compared with pystate itself in one thread, and with a bare group commit: the same threads, frames and syncs, and
    no store. The rows below tell where the time goes, from a run of their own with counting files: commits that shared
    one sync, the time threads spent in ``fdatasync`` (waiting to run again included: it ends when the thread holds the
    interpreter lock), and processor time.
    """
    workload = Workload(context.size(10_000, 500))
    share = context.size(100, 10)
    total = share * THREADS
    with context.scratch() as directory:
        with (
            pystate.open(directory / "pystate", durability="sync", snapshot_log_bytes=NEVER) as store,
            appending(directory / "bare") as descriptor,
        ):
            family = store.family(FAMILY)
            family.update(workload.items())
            family.put(*workload.overwrites(1)[0])
            puts = puts_of(family)
            bare = BareGroup(descriptor, os.urandom(frame_length(directory / "pystate")))

            def one() -> float:
                return run_threads(puts, [workload.overwrites(total)])

            def sixteen() -> float:
                return run_threads(puts, batches(workload.overwrites(total), share))

            def sixteen_bare() -> float:
                return run_threads(bare.puts, batches(workload.overwrites(total), share))

            seconds = race({"1 thread": one, PYSTATE: sixteen, "bare group commit": sixteen_bare}, context.rounds(15))
        for row in compare("threads", f"a commit, {THREADS} threads", seconds, count=total, goals={}):
            if row.against == "1 thread":
                rates = tuple(1 / ratio for ratio in row.ratios)
                met = statistics.median(rates) >= 3.0
                row = dataclasses.replace(row, ratios=rates, goal="≥ 3", met=met, note="ratio of rates")
            yield row
        files = CountingFiles()
        with pystate.open(directory / "counted", durability="sync", snapshot_log_bytes=NEVER, files=files) as store:
            yield from _where_time_goes(store, files, workload, share)


def _where_time_goes(store: pystate.Store, files: CountingFiles, workload: Workload, share: int) -> Iterator[Row]:
    """The rows of ``threads`` that explain: one thread and sixteen, each with its groups, syncs and processor time."""
    family = store.family(FAMILY)
    family.update(workload.items())
    total = share * THREADS
    for name, shares in (
        ("1 thread", [workload.overwrites(total)]),
        (f"{THREADS} threads", batches(workload.overwrites(total), share)),
    ):
        before, syncs, sync_seconds = store.stats(), files.syncs, files.sync_seconds
        processor = time.process_time()
        seconds = run_threads(puts_of(family), shares)
        processor = time.process_time() - processor
        after = store.stats()
        syncs, sync_seconds = files.syncs - syncs, files.sync_seconds - sync_seconds
        commits, groups = after.commits - before.commits, after.groups - before.groups
        yield info("threads", f"{name}: commits per group", commits / groups, "", f"{commits} commits, {groups} groups")
        yield info("threads", f"{name}: whole time per commit", seconds / total * 1e6, "µs")
        note = f"{sync_seconds / seconds:.0%} of the whole, {sync_seconds / syncs * 1e6:.0f} µs each"
        yield info("threads", f"{name}: in fdatasync per commit", sync_seconds / total * 1e6, "µs", note)
        yield info("threads", f"{name}: outside it", (seconds - sync_seconds) / total * 1e6, "µs")
        yield info("threads", f"{name}: processor time", processor / total * 1e6, "µs")


@figure("load")
def load(context: Context) -> Iterator[Row]:
    """Loading in transactions of 1000 puts, durability sync.

    Floor: none set; the peers, each by its fastest call for many items (``executemany``, ``putmulti``, a write batch),
    are the measure. pystate in two forms: a transaction with a loop of puts, and ``Family.update``. Keys come in random
    order; every turn fills a fresh store.
    """
    count = context.size(100_000, 2_000)
    seeds = iter(range(1, 1_000_000))

    with context.scratch() as directory:

        def timed_load(
            name: str, opened: Callable[[pathlib.Path], contextlib.AbstractContextManager[Load]]
        ) -> Contender:
            def turn() -> float:
                seed = next(seeds)
                loaded = batches(Workload(count, seed).items(), BATCH)
                path = directory / f"{name}-{seed}"
                path.mkdir()
                with opened(path) as fill:
                    with stopwatch() as seconds:
                        fill(loaded)
                return seconds[0]

            return turn

        contenders = {PYSTATE: timed_load("transactions", _transactions)}
        contenders.update((kind.name, timed_load(kind.name, _peer_load(kind))) for kind in peers.installed())
        contenders["update"] = timed_load("updates", _updates)
        seconds = race(contenders, context.rounds(5))
        updates = seconds.pop("update")
        for what, ours in (("a loop of puts, per key", seconds[PYSTATE]), ("Family.update, per key", updates)):
            yield from compare(
                "load",
                what,
                {**seconds, PYSTATE: ours},
                count=count,
                goals={},
                default_goal=1.0,
                missing=peers.missing(),
            )


Load = Callable[[Sequence[Sequence[Item]]], None]


@contextlib.contextmanager
def _transactions(path: pathlib.Path) -> Iterator[Load]:
    with pystate.open(path) as store:

        def fill(loaded: Sequence[Sequence[Item]]) -> None:
            for batch in loaded:
                with store.begin() as txn:
                    put = txn.family(FAMILY).put
                    for key, value in batch:
                        put(key, value)

        yield fill


@contextlib.contextmanager
def _updates(path: pathlib.Path) -> Iterator[Load]:
    with pystate.open(path) as store:

        def fill(loaded: Sequence[Sequence[Item]]) -> None:
            update = store.family(FAMILY).update
            for batch in loaded:
                update(batch)

        yield fill


def _peer_load(kind: type[peers.Peer]) -> Callable[[pathlib.Path], contextlib.AbstractContextManager[Load]]:
    @contextlib.contextmanager
    def opened(path: pathlib.Path) -> Iterator[Load]:
        peer = kind(path, sync=True)
        try:
            yield peer.load
        finally:
            peer.close()

    return opened
