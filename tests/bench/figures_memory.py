"""The figure of memory: a store of one million keys, next to a dict and a sorted list of its keys."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterator

from tests.bench import memory_child
from tests.bench.harness import PYSTATE, Context, Row, compare, figure
from tests.bench.workload import Workload, fill

FLOOR = "dict and SortedList"


@figure("memory")
def memory(context: Context) -> Iterator[Row]:
    """Memory of one million keys: opened, everything touched, one scan done.

    Floor: a plain dict of as many keys and values, and a ``SortedList`` of its keys (the same key objects). Measured
    twice: what the process occupies (resident set, by its growth), and what Python allocated (tracemalloc). Each number
    comes from a process of its own, so that nothing freed before hides what is used now. The peak on the way there is
    told as well, without a goal: it is memory that comes back.
    """
    count = context.size(1_000_000, 5_000)
    methods = ["allocated"] if memory_child.resident_bytes() is None else ["resident", "allocated"]
    with context.scratch() as directory:
        fill(directory / "pystate", Workload(count).items())
        for method in methods:
            now: dict[str, list[float]] = {FLOOR: [], PYSTATE: []}
            peak: dict[str, list[float]] = {FLOOR: [], PYSTATE: []}
            for _ in range(context.rounds(3 if method == "resident" else 1)):
                for name in now:
                    used, highest = _in_a_process(name, method, count, directory / "pystate")
                    now[name].append(used)
                    peak[name].append(highest)
            yield from compare("memory", f"{method}, afterwards", now, count=1, goals={FLOOR: 1.15}, unit="MiB")
            yield from compare("memory", f"{method}, at the peak", peak, count=1, goals={}, unit="MiB")


def _in_a_process(name: str, method: str, count: int, path: pathlib.Path) -> tuple[int, int]:
    """Bytes in use afterwards and at the peak, from a fresh process."""
    content = "store" if name == PYSTATE else "dict"
    command = [sys.executable, "-m", memory_child.__name__, content, method, str(count), str(path)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=_top()).stdout
    used, highest = output.split()
    return int(used), int(highest)


def _top() -> pathlib.Path:
    """The directory from which this package is imported."""
    return pathlib.Path(__file__).resolve().parents[2]
