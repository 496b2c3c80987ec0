"""Figures of reading: points and ranges of a store of 100,000 keys.

Every store is filled once and then read by turns. pystate is opened from a snapshot, as after a restart; the peers
are brought into the form they read fastest from.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import pystate
from tests.bench import peers
from tests.bench.harness import PYSTATE, Contender, Context, Row, compare, figure, race, stopwatch
from tests.bench.peers import Item, Lmdb, Peer
from tests.bench.workload import FAMILY, Workload, fill

RANGE_KEYS = 100


@contextlib.contextmanager
def opened_store(directory: pathlib.Path, items: Sequence[Item]) -> Iterator[pystate.Family]:
    """The one family of a store that was filled, closed and opened again."""
    fill(directory / "pystate", items)
    with pystate.open(directory / "pystate") as store:
        yield store.family(FAMILY)


@contextlib.contextmanager
def opened_peers(directory: pathlib.Path, items: Sequence[Item]) -> Iterator[dict[str, Peer]]:
    """Every installed peer, filled with the same items."""
    with contextlib.ExitStack() as stack:
        opened: dict[str, Peer] = {}
        for kind in peers.installed():
            path = directory / kind.name
            path.mkdir()
            peer = kind(path, sync=False)
            stack.callback(peer.close)
            peer.load([items])
            peer.settle()
            opened[kind.name] = peer
        yield opened


def timed_gets(gets: Callable[[Sequence[bytes]], None], workload: Workload, count: int) -> Contender:
    """Look up ``count`` keys, as fresh objects in random order; turn after turn every key comes once, then again."""
    waiting: list[bytes] = []

    def turn() -> float:
        if not waiting:
            waiting.extend(workload.lookups())
        keys = waiting[-count:]
        del waiting[-count:]
        with stopwatch() as seconds:
            gets(keys)
        return seconds[0]

    return turn


def timed(work: Callable[[], None]) -> Contender:
    """The plain case: time all of ``work``."""

    def turn() -> float:
        with stopwatch() as seconds:
            work()
        return seconds[0]

    return turn


@figure("get")
def get(context: Context) -> Iterator[Row]:
    """Point reads of keys that are there, in random order.

    Floor: ``dict.get`` of a plain dict with equal keys and values of its own, in the same loop. Two loops: with the
    method looked up before the loop, and with ``object.get(key)`` inside. Peers: their get in the first form; lmdb
    with a transaction for each get, and with one that stays open. The last row has the method looked up as soon as the
    store was open, before anything was read from it.
    """
    workload = Workload(context.size(100_000, 2_000))
    items = workload.items()
    pieces = context.size(10, 2)  # short turns, so that what else the machine does hits all contenders alike
    count = len(items) // pieces
    with (
        context.scratch() as directory,
        opened_store(directory, items) as family,
        opened_peers(directory, items) as others,
    ):
        early = family.get
        early(b"")
        floor: Mapping[bytes, bytes] = {bytes(bytearray(key)): bytes(bytearray(value)) for key, value in sorted(items)}

        def looked_up_before(mapping: Mapping[bytes, bytes]) -> Callable[[Sequence[bytes]], None]:
            def gets(keys: Sequence[bytes]) -> None:
                get = mapping.get
                for key in keys:
                    get(key)

            return gets

        def looked_up_at_first(keys: Sequence[bytes]) -> None:
            get = early
            for key in keys:
                get(key)

        def looked_up_inside(mapping: Mapping[bytes, bytes]) -> Callable[[Sequence[bytes]], None]:
            def gets(keys: Sequence[bytes]) -> None:
                for key in keys:
                    mapping.get(key)

            return gets

        contenders = {
            "dict.get": timed_gets(looked_up_before(floor), workload, count),
            PYSTATE: timed_gets(looked_up_before(family), workload, count),
        }
        for name, peer in others.items():
            contenders[name] = timed_gets(peer.gets, workload, count)
            if isinstance(peer, Lmdb):
                contenders["lmdb, one transaction"] = timed_gets(peer.gets_in_one_transaction, workload, count)
        seconds = race(contenders, context.rounds(9), pieces=pieces, typical=True)
        yield from compare(
            "get",
            "get = family.get; get(key)",
            seconds,
            count=len(items),
            goals={"dict.get": 1.1},
            default_goal=1.0,
            missing=peers.missing(),
        )
        contenders = {
            "dict.get": timed_gets(looked_up_inside(floor), workload, count),
            PYSTATE: timed_gets(looked_up_inside(family), workload, count),
            "early": timed_gets(looked_up_at_first, workload, count),
        }
        seconds = race(contenders, context.rounds(9), pieces=pieces, typical=True)
        early_seconds = seconds.pop("early")
        yield from compare("get", "family.get(key)", seconds, count=len(items), goals={"dict.get": 1.1})
        seconds[PYSTATE] = early_seconds
        yield from compare("get", "get looked up before any read", seconds, count=len(items), goals={})


@figure("scans")
def scans(context: Context) -> Iterator[Row]:
    """Reads in key order: everything, and 100 keys from a random start.

    Floor: none, for there is no sorted dict to compare with; the peers' cursors are the measure. The first scan after
    opening sorts the keys and is not in these numbers (see ``open``). The last rows put one key before each range
    (durability ``process``, the peers without sync): pystate then has to take up the new key, and this store was filled
    in random order just now, so that keys next to each other are not next to each other in memory.
    """
    workload = Workload(context.size(100_000, 2_000))
    items = workload.items()
    starts_count = context.size(1_000, 20)
    pieces = context.size(10, 2)
    with (
        context.scratch() as directory,
        opened_store(directory, items) as family,
        opened_peers(directory, items) as others,
    ):

        def scan_everything() -> None:
            for _key, _value in family.scan():
                pass

        def scan_ranges(starts: Sequence[bytes], limit: int) -> None:
            scan = family.scan
            for start in starts:
                for _key, _value in scan(start, limit=limit):
                    pass

        def timed_ranges(ranges: Callable[[Sequence[bytes], int], None]) -> Contender:
            def turn() -> float:
                starts = workload.lookups(starts_count // pieces)
                with stopwatch() as seconds:
                    ranges(starts, RANGE_KEYS)
                return seconds[0]

            return turn

        scan_everything()
        contenders = {PYSTATE: timed(scan_everything)}
        contenders.update((name, timed(peer.scan)) for name, peer in others.items())
        seconds = race(contenders, context.rounds(9), pieces=2)
        yield from compare(
            "scans",
            "full scan, per key",
            seconds,
            count=2 * len(items),
            goals={},
            default_goal=1.0,
            missing=peers.missing(),
        )
        contenders = {PYSTATE: timed_ranges(scan_ranges)}
        contenders.update((name, timed_ranges(peer.ranges)) for name, peer in others.items())
        seconds = race(contenders, context.rounds(9), pieces=pieces, typical=True)
        yield from compare(
            "scans",
            f"range of {RANGE_KEYS} keys",
            seconds,
            count=starts_count,
            goals={},
            default_goal=1.0,
            missing=peers.missing(),
        )
        yield from _ranges_after_puts(context, directory, workload)


def _ranges_after_puts(context: Context, directory: pathlib.Path, workload: Workload) -> Iterator[Row]:
    """The rows of ``scans`` that put a new key before each range."""
    pieces = context.size(10, 2)
    count = context.size(1_000, 20) // pieces
    with pystate.open(directory / "alternating", durability="process") as store, contextlib.ExitStack() as stack:
        family = store.family(FAMILY)
        items = workload.items()
        family.update(items)
        for _key in family.scan(limit=1):
            pass

        def alternate(new: Sequence[Item], starts: Sequence[bytes]) -> None:
            put, scan = family.put, family.scan
            for (key, value), start in zip(new, starts, strict=True):
                put(key, value)
                for _key, _value in scan(start, limit=RANGE_KEYS):
                    pass

        def timed_alternation(work: Callable[[Sequence[Item], Sequence[bytes]], None]) -> Contender:
            def turn() -> float:
                new = Workload(count, seed=next(seeds)).items()
                starts = workload.lookups(count)
                with stopwatch() as seconds:
                    work(new, starts)
                return seconds[0]

            return turn

        def alternation_of(peer: Peer) -> Callable[[Sequence[Item], Sequence[bytes]], None]:
            def work(new: Sequence[Item], starts: Sequence[bytes]) -> None:
                puts, ranges = peer.puts, peer.ranges
                for item, start in zip(new, starts, strict=True):
                    puts((item,))
                    ranges((start,), RANGE_KEYS)

            return work

        seeds = iter(range(1_000, 1_000_000))
        contenders = {PYSTATE: timed_alternation(alternate)}
        for kind in peers.installed():
            path = directory / f"alternating-{kind.name}"
            path.mkdir()
            peer = kind(path, sync=False)
            stack.callback(peer.close)
            peer.load([items])
            peer.settle()
            contenders[kind.name] = timed_alternation(alternation_of(peer))
        seconds = race(contenders, context.rounds(5), pieces=pieces)
        yield from compare("scans", f"one put, range of {RANGE_KEYS}", seconds, count=count * pieces, goals={})
