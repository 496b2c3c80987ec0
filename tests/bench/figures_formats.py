"""Figures of migrations and backups."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec

import pystate
from pystate.formats import Migration, MigrationPlan, Step, backup, migrate, rewrite_values, write_version_markers
from tests.bench.figures_background import READER_PAUSE, beside
from tests.bench.harness import PYSTATE, Context, Row, compare, figure, info, race, stopwatch
from tests.bench.workload import FAMILY, Workload, batches, fill

RECORDS = "records"


class Old(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A record as it was."""

    owner: str
    size: int


class New(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A record with one field more."""

    owner: str
    size: int
    note: str | None


_encode = msgspec.msgpack.Encoder().encode
_old = msgspec.msgpack.Decoder(Old).decode
_new = msgspec.msgpack.Decoder(New).decode


def convert(rewriting: pystate.Rewriting) -> None:
    """Give every record its new field."""
    rewrite_values(
        rewriting,
        RECORDS,
        current=lambda _, value: _new(value),
        old=lambda _, value: _old(value),
        convert=lambda record: _encode(New(record.owner, record.size, None)),
        old_first=True,  # no value can be read in both ways, and nearly all have the old shape
    )


PLAN = MigrationPlan(
    [
        Migration(
            ">=1.0.0,<2.0.0",
            "2.0.0",
            [Step("one field more", lambda rewriting, _: convert(rewriting), needs=[RECORDS])],
        )
    ],
    version="2.0.0",
    compatible=">=2.0.0,<3.0.0",
    families={"1.0.0": [RECORDS]},
)


def make_old(data: pathlib.Path, backups: pathlib.Path, count: int) -> None:
    """A store of the old format, as one snapshot."""
    data.mkdir(parents=True)
    with pystate.open(data / "states.db", families=[RECORDS], durability="process") as store:
        rows = [(b"%016d" % number, _encode(Old(f"owner-{number % 97}", number))) for number in range(count)]
        for batch in batches(rows, 10_000):
            store.family(RECORDS).update(batch)
        store.snapshot()
    write_version_markers(data, backups, "1.0.0")


@figure("migration")
def migration(context: Context) -> Iterator[Row]:
    """A migration that rewrites one million records, against opening the store and taking a snapshot of it."""
    count = context.size(1_000_000, 2_000)
    with context.scratch() as directory:
        make_old(directory / "old" / "data", directory / "old" / "backups", count)
        number = 0

        def fresh() -> pathlib.Path:
            nonlocal number
            number += 1
            shutil.rmtree(directory / f"copy-{number - 1}", ignore_errors=True)
            return pathlib.Path(shutil.copytree(directory / "old", directory / f"copy-{number}"))

        def open_and_snapshot() -> float:
            place = fresh()
            with stopwatch() as seconds, pystate.open(place / "data" / "states.db", families=[RECORDS]) as store:
                store.family(RECORDS).put(b"one more", b"so that there is something to write")
                for _ in store.family(RECORDS).scan():
                    pass
                store.snapshot()
            return seconds[0]

        def migrate_it() -> float:
            place = fresh()
            with stopwatch() as seconds:
                report = migrate(place / "data", place / "backups", PLAN)
            if not report.changed:
                raise RuntimeError("nothing was migrated")
            return seconds[0]

        contenders = {"open, touch, snapshot": open_and_snapshot, PYSTATE: migrate_it}
        seconds = race(contenders, context.rounds(3))
        yield from compare(
            "migration", f"migration of {count:,} records", seconds, count=1, unit="s",
            goals={"open, touch, snapshot": 3.0},
        )  # fmt: skip
        peaks = {PYSTATE: [peak_of("migrate", fresh())], "open and touch": [peak_of("open", fresh())]}
        yield from compare(
            "migration", "memory at its peak", peaks, count=1, unit="KiB", goals={"open and touch": 2.0},
        )  # fmt: skip


def peak_of(what: str, place: pathlib.Path) -> float:
    """By how much the memory of a process rises that does this, in KiB."""
    root = pathlib.Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.bench.peak_child", what, str(place)]
    return max(1.0, float(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout))


@figure("backup")
def backup_figure(context: Context) -> Iterator[Row]:
    """Backups: of an unchanged store, and what they make commits wait for."""
    workload = Workload(context.size(1_000_000, 5_000))
    with context.scratch() as directory:
        fill(directory / "pystate", workload.items())
        with pystate.open(directory / "pystate", durability="process") as store:
            repository = directory / "repository"
            backup.create(store, repository)
            first = bytes_in(repository)
            started = time.perf_counter()
            backup.create(store, repository)
            yield info("backup", "second backup of an unchanged store", time.perf_counter() - started, "s")
            sizes = {PYSTATE: [bytes_in(repository) - first], "the first backup": [first]}
            yield from compare(
                "backup", "bytes of the second", sizes, count=1024, unit="KiB", goals={"the first backup": 0.01}
            )
            longest: dict[str, list[float]] = {PYSTATE: [], "a snapshot": []}
            for _ in range(context.rounds(5)):
                store.family(FAMILY).put(b"changed", b"")
                longest["a snapshot"].append(beside(store, workload, READER_PAUSE, store.snapshot).commit)
                store.family(FAMILY).put(b"changed", b"")
                waits = beside(store, workload, READER_PAUSE, lambda: discard(backup.create(store, repository, keep=1)))
                longest[PYSTATE].append(waits.commit)
            yield from compare(
                "backup", "longest commit during a backup", longest, count=1, unit="ms", goals={"a snapshot": 1.2}
            )


def discard(_: object) -> None:
    """Nothing: what is measured is what others wait for."""


def bytes_in(directory: pathlib.Path) -> int:
    """What the files of a directory take on the disk; two names of one file count once."""
    found = {path.stat().st_ino: path.stat().st_size for path in directory.rglob("*") if path.is_file()}
    return sum(found.values())
