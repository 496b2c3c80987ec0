"""Keys, values, and what several figures do to a pystate store.

Keys have 16 bytes and values 100, all random. Whatever is looked up or written is a fresh ``bytes`` object, equal to
the stored key but not the same one, as if it had just arrived from a file or a socket: its hash is not known yet,
and comparing it compares bytes.
"""

from __future__ import annotations

import pathlib
import random
import threading
from collections.abc import Sequence

import pystate
from tests.bench.peers import Item

__all__ = ["FAMILY", "KEY_BYTES", "NEVER", "VALUE_BYTES", "Workload", "batches", "fill", "wait_for_background"]

KEY_BYTES = 16
VALUE_BYTES = 100
FAMILY = "default"

NEVER = 2**40
"""A log size that no figure reaches: with this as ``snapshot_log_bytes`` no snapshot is taken unasked."""


class Workload:
    """A population of keys, and endless writes to it. The same seed gives the same keys and values."""

    def __init__(self, population: int, seed: int = 1) -> None:
        self._random = random.Random(seed)
        randbytes = self._random.randbytes
        self.keys: list[bytes] = [randbytes(KEY_BYTES) for _ in range(population)]

    def items(self) -> list[Item]:
        """Every key once, in no order, with a fresh value."""
        randbytes = self._random.randbytes
        return [(bytes(bytearray(key)), randbytes(VALUE_BYTES)) for key in self.keys]

    def overwrites(self, count: int) -> list[Item]:
        """Writes to random keys of the population."""
        randbytes = self._random.randbytes
        return [(key, randbytes(VALUE_BYTES)) for key in self.lookups(count)]

    def lookups(self, count: int | None = None) -> list[bytes]:
        """Fresh keys that are all there, in random order: every key once, or ``count`` times any."""
        if count is None:
            chosen = self._random.sample(self.keys, len(self.keys))
        else:
            chosen = self._random.choices(self.keys, k=count)
        return [bytes(bytearray(key)) for key in chosen]


def batches(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """The items in runs of ``size``."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def wait_for_background() -> None:
    """Wait until no snapshot is under way, so that it does not run beside somebody else's turn."""
    for thread in threading.enumerate():
        if thread.name.startswith("pystate-"):
            thread.join()


def fill(path: pathlib.Path, items: Sequence[Item], *, snapshot: bool = True) -> None:
    """Make a store at ``path`` that holds ``items``, in a snapshot or in the log alone, and close it."""
    with pystate.open(path, durability="process", snapshot_log_bytes=NEVER) as store:
        family = store.family(FAMILY)
        for batch in batches(items, 1000):
            family.update(batch)
        if snapshot:
            store.snapshot()
