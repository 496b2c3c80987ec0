"""One process that fills its memory once and says how much that took: the child of the figure of memory.

``python -m tests.bench.memory_child (store|dict) (resident|allocated) COUNT STORE`` prints two numbers of bytes: in use
afterwards, and at the peak, both less what was in use before.
"""

from __future__ import annotations

import gc
import pathlib
import random
import re
import sys
import tracemalloc

from sortedcontainers import SortedList

import pystate
from tests.bench.workload import FAMILY, KEY_BYTES, VALUE_BYTES

__all__ = ["resident_bytes"]


def resident_bytes() -> tuple[int, int] | None:
    """What this process occupies now, and the most it ever did; None where the system does not tell (not Linux)."""
    try:
        status = pathlib.Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return None
    now, highest = re.search(r"VmRSS:\s+(\d+) kB", status), re.search(r"VmHWM:\s+(\d+) kB", status)
    return None if now is None or highest is None else (int(now[1]) * 1024, int(highest[1]) * 1024)


def a_dict(count: int) -> object:
    """The floor: a dict and a sorted list of its keys."""
    randbytes = random.Random(1).randbytes
    values = {randbytes(KEY_BYTES): randbytes(VALUE_BYTES) for _ in range(count)}
    return values, SortedList(values)


def a_store(path: str, count: int) -> object:
    """A store, opened, every value touched and every key scanned once."""
    store = pystate.open(path)
    family = store.family(FAMILY)
    entries = sum(1 for _item in family.scan())
    if entries != count:
        raise RuntimeError(f"the store holds {entries} keys instead of {count}")
    return store


def main(content: str, method: str, count: str, path: str) -> None:
    """Fill, then print bytes now and at the peak."""
    gc.collect()
    before = 0
    if method == "allocated":
        tracemalloc.start()
    else:
        before = (resident_bytes() or (0, 0))[0]
    kept = a_store(path, int(count)) if content == "store" else a_dict(int(count))
    gc.collect()
    now, highest = tracemalloc.get_traced_memory() if method == "allocated" else resident_bytes() or (0, 0)
    print(now - before, highest - before)
    if isinstance(kept, pystate.Store):
        kept.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
