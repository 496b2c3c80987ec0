"""Figures of opening: from a snapshot, and from a log alone."""

from __future__ import annotations

import marshal
import pathlib
from collections.abc import Callable, Iterator
from zlib import crc32

import msgspec

import pystate
from pystate.engine.log_format import FRAME_HEADER_SIZE, salt_seed, unpack_frame_header
from tests.bench.harness import PYSTATE, Contender, Context, Row, compare, figure, info, race, stopwatch
from tests.bench.workload import FAMILY, NEVER, Workload, fill

Touch = Callable[[pystate.Store], None]


def first_touch(store: pystate.Store) -> None:
    """One read of each family: what was left undecoded on opening is decoded now."""
    for name in store.families:
        store.family(name).get(b"")


def first_scan(store: pystate.Store) -> None:
    """The first key of each family in order: its keys are sorted now."""
    for name in store.families:
        for _item in store.family(name).scan(limit=1):
            pass


def opening(path: pathlib.Path, *touches: Touch) -> Contender:
    """Open the store at ``path`` and touch it; closing it is not counted."""

    def turn() -> float:
        with stopwatch() as seconds:
            store = pystate.open(path, snapshot_log_bytes=NEVER)
            for touch in touches:
                touch(store)
        store.close()
        return seconds[0]

    return turn


@figure("open")
def open_million(context: Context) -> Iterator[Row]:
    """Opening a store of one million keys that was closed with a snapshot.

    Floor: ``marshal.loads`` of the same keys and values in one dict, from memory. pystate reads its files, which the
    operating system still has in its cache. "First touch" is one get in each family, which decodes all of it.
    """
    count = context.size(1_000_000, 5_000)
    with context.scratch() as directory:
        items = Workload(count).items()
        fill(directory / "pystate", items)
        marshalled = marshal.dumps(dict(items))
        del items

        def floor() -> float:
            with stopwatch() as seconds:
                loaded = marshal.loads(marshalled)
            del loaded
            return seconds[0]

        path = directory / "pystate"
        seconds = race(
            {
                "marshal.loads": floor,
                "open": opening(path),
                "touched": opening(path, first_touch),
                "scanned": opening(path, first_touch, first_scan),
            },
            context.rounds(5),
        )
        floor_seconds = seconds["marshal.loads"]
        for what, name, limit in (
            ("open", "open", 0.15),
            ("open and first touch of everything", "touched", 1.3),
            ("the same and a first scan", "scanned", None),
        ):
            yield from compare(
                "open",
                what,
                {"marshal.loads": floor_seconds, PYSTATE: seconds[name]},
                count=1,
                goals={"marshal.loads": limit},
                unit="ms",
            )


@figure("replay")
def replay(context: Context) -> Iterator[Row]:
    """Opening a store that has only a log: 200,000 frames of one put each.

    Floor: the bare loop over the bytes of the same log: unpack the frame header, CRC-32 of the payload, decode it with
    msgspec, one dict store. pystate by its own report (``stats().recovery.seconds``), and as a user waits for
    it: open and first touch.
    """
    count = context.size(200_000, 2_000)
    with context.scratch() as directory:
        path = directory / "pystate"
        with pystate.open(path, durability="process", snapshot_log_bytes=NEVER) as store:
            put = store.family(FAMILY).put
            for key, value in Workload(count).items():
                put(key, value)
        frames = [frame for frame in pystate.read_log(path) if frame.kind == "commit"]
        if len({frame.segment for frame in frames}) != 1:
            raise RuntimeError("the log of this figure is meant to be one segment")
        segment = path / frames[0].segment
        begin, end = frames[0].offset, frames[-1].offset + frames[-1].length

        def floor() -> float:
            with stopwatch() as seconds:
                values = bare_loop(segment.read_bytes(), begin, end)
            if len(values) != count:
                raise RuntimeError(f"the bare loop found {len(values)} keys instead of {count}")
            return seconds[0]

        def reported() -> float:
            store = pystate.open(path, snapshot_log_bytes=NEVER)
            recovery = store.stats().recovery
            store.close()
            if recovery is None or recovery.frames_replayed < count:
                raise RuntimeError("the log was not replayed")
            return recovery.seconds

        seconds = race({"bare loop": floor, PYSTATE: reported, "user": opening(path, first_touch)}, context.rounds(7))
        user = seconds.pop("user")
        for what, ours in (("recovery, per frame", seconds[PYSTATE]), ("open and first touch, per frame", user)):
            yield from compare(
                "replay", what, {**seconds, PYSTATE: ours}, count=count, goals={"bare loop": 1.5}, unit="µs"
            )
        yield info("replay", "bytes of a frame", frames[0].length, "")


def bare_loop(data: bytes, offset: int, end: int) -> dict[bytes, bytes]:
    """The state that the frames between two offsets of a segment lead to, by the least work that finds it."""
    decode = msgspec.msgpack.Decoder().decode
    seed = salt_seed(unpack_frame_header(data, offset)[0])
    values: dict[bytes, bytes] = {}
    while offset < end:
        _salt, length, _sequence, _watermark, checksum, _header_checksum = unpack_frame_header(data, offset)
        offset += FRAME_HEADER_SIZE
        payload = data[offset : offset + length]
        if crc32(payload, seed) != checksum:
            raise RuntimeError("a wrong checksum")
        _family_id, key, value = decode(payload)
        values[key] = value
        offset += length
    return values
