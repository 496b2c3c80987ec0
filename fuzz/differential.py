"""The same random operations on RocksDB and on pystate, compared after each read.

Families are RocksDB's column families, and a transaction of pystate, which does not read here, is a write batch. Point
reads, scans in both directions with bounds, prefixes and limits, whole families and the state after closing and opening
again must be the same. Needs ``rocksdict``, which the extra ``bench`` brings.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pystate
from fuzz._harness import Coverage, ViolationError, main
from fuzz._model import KEY_BYTES, Scan, random_key, random_scan, random_value

try:
    import rocksdict
except ImportError:
    rocksdict = None

__all__ = ["Rocks", "play"]

_STEPS = 150
_NAMES = ("one", "two", "three")
_ACTIONS = {"put": 6, "delete": 3, "batch": 6, "get": 4, "scan": 10, "create": 2, "drop": 1, "all": 1, "reopen": 1}


class Rocks:
    """RocksDB with the few operations that are compared."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._options: Any = rocksdict.Options(raw_mode=True)
        self._options.create_if_missing(True)
        self.families = {"default"}
        self._open()

    def _open(self) -> None:
        others = {name: rocksdict.Options(raw_mode=True) for name in sorted(self.families - {"default"})}
        self._database: Any = rocksdict.Rdict(self._path, self._options, column_families=others)
        self._open_families: dict[str, Any] = {}

    def _family(self, name: str) -> Any:
        if name not in self._open_families:
            self._open_families[name] = self._database.get_column_family(name)
        return self._open_families[name]

    def create(self, name: str) -> None:
        """Make a column family."""
        self._open_families[name] = self._database.create_column_family(name, rocksdict.Options(raw_mode=True))
        self.families.add(name)

    def drop(self, name: str) -> None:
        """Remove one."""
        self._open_families.pop(name, None)
        self._database.drop_column_family(name)
        self.families.remove(name)

    def write(self, writes: list[tuple[str, bytes, bytes | None]]) -> None:
        """Apply a batch."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for name, key, value in writes:
            handle = self._database.get_column_family_handle(name)
            if value is None:
                batch.delete(key, handle)
            else:
                batch.put(key, value, handle)
        self._database.write(batch)

    def put(self, name: str, key: bytes, value: bytes) -> None:
        """Set one key."""
        self._family(name)[key] = value

    def delete(self, name: str, key: bytes) -> None:
        """Remove one key."""
        self._family(name).delete(key)

    def get(self, name: str, key: bytes) -> bytes | None:
        """Read one key."""
        value: bytes | None = self._family(name).get(key)
        return value

    def scan(self, name: str, scan: Scan) -> Iterator[tuple[bytes, bytes]]:
        """With RocksDB's own iterator: seek to one end, go on to the other."""
        low, high = scan.start, scan.stop
        prefix = b"" if scan.prefix is None else scan.prefix
        low = prefix if low is None else max(low, prefix)
        end = prefix + b"\xff" * (KEY_BYTES - len(prefix) + 1)  # above every key with this prefix
        high = end if high is None else min(high, end)
        iterator = self._family(name).iter()
        if not scan.reverse:
            iterator.seek(low)
        else:
            iterator.seek_for_prev(high)
            if iterator.valid() and iterator.key() == high:
                iterator.prev()
        count = 0
        while iterator.valid() and (scan.limit is None or count < scan.limit):
            key = iterator.key()
            if not low <= key < high:
                return
            yield key, iterator.value()
            count += 1
            iterator.prev() if scan.reverse else iterator.next()

    def close(self) -> None:
        """Close it."""
        self._open_families.clear()
        self._database.close()

    def reopen(self) -> None:
        """Close it and open it again."""
        self.close()
        self._open()


def _compare(what: str, theirs: object, ours: object) -> None:
    if theirs != ours:
        raise ViolationError(f"{what}: RocksDB gives {theirs!r}, and pystate {ours!r}")


def _everything(name: str, rocks: Rocks, store: pystate.Store) -> None:
    whole = Scan(None, None, None, False, None)
    _compare(f"all of {name}", list(rocks.scan(name, whole)), list(store.family(name).items()))


def _step(source: random.Random, rocks: Rocks, store: pystate.Store, what: str) -> None:
    name, key, value = source.choice(sorted(rocks.families)), random_key(source), random_value(source)
    if what == "put":
        rocks.put(name, key, value)
        store.family(name).put(key, value)
    elif what == "delete":
        rocks.delete(name, key)
        store.family(name).delete(key)
    elif what == "batch":
        writes = [
            (
                source.choice(sorted(rocks.families)),
                random_key(source),
                random_value(source) if source.random() < 0.7 else None,
            )
            for _ in range(source.randint(1, 8))
        ]
        rocks.write(writes)
        with store.begin() as txn:
            for one, other, written in writes:
                if written is None:
                    txn.delete(one, other)
                else:
                    txn.put(one, other, written)
    elif what == "get":
        _compare(f"{name}[{key!r}]", rocks.get(name, key), store.family(name).get(key))
    elif what == "scan":
        scan = random_scan(source)
        ours = store.family(name).scan(
            scan.start, scan.stop, prefix=scan.prefix, reverse=scan.reverse, limit=scan.limit
        )
        _compare(f"{scan} of {name}", list(rocks.scan(name, scan)), list(ours))
    elif what == "create" and set(_NAMES) - rocks.families:
        new = source.choice(sorted(set(_NAMES) - rocks.families))
        rocks.create(new)
        store.create_family(new)
    elif what == "drop" and len(rocks.families) > 1:
        old = source.choice(sorted(rocks.families - {"default"}))
        rocks.drop(old)
        store.drop_family(old)
    elif what == "all":
        _compare("the families", sorted(rocks.families), list(store.families))
        _everything(name, rocks, store)


def play(line: str, coverage: Coverage) -> None:
    """Play one case."""
    source = random.Random(f"differential {line}")
    with tempfile.TemporaryDirectory(prefix="pystate-fuzz-") as directory:
        rocks, path = Rocks(str(Path(directory, "rocks"))), str(Path(directory, "store"))
        store = pystate.open(path, durability="process")
        try:
            for what in source.choices(list(_ACTIONS), list(_ACTIONS.values()), k=_STEPS):
                coverage.count("operations")
                coverage.saw(what)
                if what == "reopen":
                    rocks.reopen()
                    store.close()
                    store = pystate.open(path, durability="process", snapshot_log_bytes=source.choice((2_000, 1 << 30)))
                else:
                    _step(source, rocks, store, what)
            for name in sorted(rocks.families):
                _everything(name, rocks, store)
        finally:
            store.close()
            rocks.close()


def _main() -> int:
    if rocksdict is None:
        print("rocksdict is not installed")
        return 0
    return main("differential", play)


if __name__ == "__main__":
    raise SystemExit(_main())
