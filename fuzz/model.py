"""Random operations on a store, on the real disk or in memory, compared with plain dicts after each of them.

All ways to read and write a family take part, several transactions and views at once, scans in both directions that go
on while others write, creating and dropping families, snapshots, reopening, and reading from outside. A transaction
that commits must have read what is still there; one that is refused must have read something that was written since.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pystate
from fuzz._harness import Coverage, ViolationError, main
from fuzz._model import Scan, random_key, random_scan, random_value, scanned
from pystate import ConflictError, FamilyNotFoundError, Store, Transaction, View
from pystate.testing import read_state
from pystate.testing.history import State

__all__ = ["play"]

_STEPS = 120
_NAMES = ("one", "two", "three")
_OPEN_MAX = 4


@dataclass
class _OpenView:
    view: View
    state: State


@dataclass
class _OpenTransaction:
    """A transaction, what it must show, and what it has read of the state at its beginning.

    Attributes:
        began: the state at its beginning.
        shown: that with its own writes.
        points, ranges: what it has read, by family.
        written: the families and keys it writes, in the order of its writes.
        changed: keys that other commits have written since, by family.
        gone: families that were dropped since.
    """

    txn: Transaction
    began: State
    shown: State
    points: set[tuple[str, bytes]] = field(default_factory=set)
    ranges: list[tuple[str, Scan]] = field(default_factory=list)
    written: dict[tuple[str, bytes], bytes | None] = field(default_factory=dict)
    changed: set[tuple[str, bytes]] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)


@dataclass
class _OpenScan:
    iterator: Iterator[tuple[bytes, bytes]]
    expected: list[tuple[bytes, bytes]]
    ended: bool = False


def _copy(state: State) -> State:
    return {name: dict(entries) for name, entries in state.items()}


class _Game:
    """One case."""

    def __init__(self, line: str, coverage: Coverage, directory: str | None) -> None:
        self._source = random.Random(f"model {line}")
        self._coverage = coverage
        self._directory = directory
        self._state: State = {"default": {}}
        self._views: list[_OpenView] = []
        self._transactions: list[_OpenTransaction] = []
        self._scans: list[_OpenScan] = []
        self._store = self._open()
        self._reader: Store | None = None

    def _open(self) -> Store:
        if self._directory is None:
            return pystate.memory()
        return pystate.open(
            self._directory,
            durability=self._source.choice(("process", "process", "process", "sync")),
            snapshot_log_bytes=self._source.choice((2_000, 1 << 30)),
        )

    def play(self) -> None:
        """Do random things; what is open in the end is closed."""
        actions = list(self._ACTIONS.items())
        weights = [weight for weight, _ in self._ACTIONS.values()]
        try:
            for _ in range(_STEPS):
                name, (_, action) = self._source.choices(actions, weights)[0]
                self._coverage.count("operations")
                self._coverage.saw(f"{name} {action(self) or ''}".strip())
            self._same(read_state(self._store), self._state, "the store")
        finally:
            if self._reader is not None:
                self._reader.close()
            self._store.close()

    # What it is compared with

    def _same(self, found: object, expected: object, what: str) -> None:
        if found != expected:
            raise ViolationError(f"{what}: expected {expected!r}, found {found!r}")

    def _note(self, writes: dict[tuple[str, bytes], bytes | None]) -> None:
        """Writes have been committed."""
        for (name, key), value in writes.items():
            if value is None:
                self._state[name].pop(key, None)
            else:
                self._state[name][key] = value
        for one in self._transactions:
            one.changed.update(writes)

    def _name(self) -> str:
        return self._source.choice(sorted(self._state))

    # Writing directly

    def _put(self) -> None:
        name, key, value = self._name(), random_key(self._source), random_value(self._source)
        self._store.family(name).put(key, value)
        self._note({(name, key): value})

    def _delete(self) -> None:
        name, key = self._name(), random_key(self._source)
        self._store.family(name).delete(key)
        self._note({(name, key): None})

    def _mapping(self) -> str:
        """The methods of a mutable mapping, each one commit."""
        source, name = self._source, self._name()
        family, entries = self._store.family(name), self._state[name]
        key, value = random_key(source), random_value(source)
        what = source.choice(("pop", "popitem", "setdefault", "update", "delete_range", "clear", "length", "contains"))
        if what == "pop":
            self._same(family.pop(key, b"none"), entries.get(key, b"none"), what)
            self._note({(name, key): None})
        elif what == "popitem" and entries:
            first = min(entries)
            self._same(family.popitem(), (first, entries[first]), what)
            self._note({(name, first): None})
        elif what == "setdefault":
            self._same(family.setdefault(key, value), entries.get(key, value), what)
            self._note({(name, key): entries.get(key, value)})
        elif what == "update":
            items = {random_key(source): random_value(source) for _ in range(source.randint(0, 6))}
            family.update(items)
            self._note({(name, key): value for key, value in items.items()})
        elif what in ("delete_range", "clear"):
            bounds = random_scan(source)._replace(prefix=None, limit=None)
            if what == "clear":
                bounds = Scan(None, None, None, False, None)
                family.clear()
            else:
                family.delete_range(bounds.start, bounds.stop)
            self._note({(name, key): None for key, _ in scanned(entries, bounds)})
        elif what == "length":
            self._same(len(family), len(entries), what)
        else:
            self._same(key in family, key in entries, what)
        return what

    def _read(self) -> None:
        name, key = self._name(), random_key(self._source)
        self._same(self._store.family(name).get(key), self._state[name].get(key), f"{name}[{key!r}]")

    def _scan(self) -> None:
        name, scan = self._name(), random_scan(self._source)
        found = list(_start(self._store.family(name).scan, scan))
        self._same(found, scanned(self._state[name], scan), f"{scan} of {name}")

    def _begin_scan(self) -> None:
        """One that goes on while others write."""
        if len(self._scans) >= _OPEN_MAX:
            self._end_scan()
        name, scan = self._name(), random_scan(self._source)
        self._scans.append(_OpenScan(_start(self._store.family(name).scan, scan), scanned(self._state[name], scan)))

    def _continue_scan(self) -> None:
        if self._scans:
            scan = self._source.choice(self._scans)
            for _ in range(self._source.randint(1, 4)):
                expected = scan.expected.pop(0) if scan.expected else None
                self._same(next(scan.iterator, None), expected, "a scan that goes on")

    def _end_scan(self) -> None:
        if self._scans:
            scan = self._scans.pop(self._source.randrange(len(self._scans)))
            self._same(list(scan.iterator), scan.expected, "the rest of a scan")

    # Views

    def _begin_view(self) -> None:
        if len(self._views) >= _OPEN_MAX:
            self._views.pop(0).view.close()
        self._views.append(_OpenView(self._store.view(), _copy(self._state)))

    def _read_view(self) -> None:
        if not self._views:
            return
        one = self._source.choice(self._views)
        self._same(one.view.families, tuple(sorted(one.state)), "the families of a view")
        name, key, scan = self._source.choice(sorted(one.state)), random_key(self._source), random_scan(self._source)
        self._same(one.view.get(name, key), one.state[name].get(key), "a key in a view")
        self._same(list(_start(one.view.family(name).scan, scan)), scanned(one.state[name], scan), f"{scan} in a view")
        self._same(len(one.view.family(name)), len(one.state[name]), "the length in a view")

    def _end_view(self) -> None:
        if self._views:
            self._views.pop(self._source.randrange(len(self._views))).view.close()

    # Transactions

    def _begin(self) -> None:
        if len(self._transactions) >= _OPEN_MAX:
            self._transactions.pop(0).txn.rollback()
        self._transactions.append(_OpenTransaction(self._store.begin(), _copy(self._state), _copy(self._state)))

    def _use(self) -> str:
        """Read or write in one of the open transactions, often in several families."""
        if not self._transactions:
            return "none"
        source, one = self._source, self._source.choice(self._transactions)
        name, key = source.choice(sorted(one.shown)), random_key(source)
        family, entries = one.txn.family(name), one.shown[name]
        one.touched.add(name)
        what = source.choice(("get", "scan", "put", "put", "delete", "delete_range"))
        if what == "get":
            self._same(family.get(key), entries.get(key), "a key in a transaction")
            one.points.add((name, key))
        elif what == "scan":
            scan = random_scan(source)
            self._same(list(_start(family.scan, scan)), scanned(entries, scan), f"{scan} in a transaction")
            one.ranges.append((name, scan))
        elif what == "put":
            value = random_value(source)
            family.put(key, value)
            one.written[name, key] = entries[key] = value
        elif what == "delete":
            family.delete(key)
            one.written[name, key] = None
            entries.pop(key, None)
        else:
            bounds = random_scan(source)._replace(prefix=None, limit=None, reverse=False)
            family.delete_range(bounds.start, bounds.stop)
            one.ranges.append((name, bounds))
            for key, _ in scanned(entries, bounds):
                one.written[name, key] = None
                del entries[key]
        return what

    def _commit(self) -> str:
        if not self._transactions:
            return "none"
        one = self._transactions.pop(self._source.randrange(len(self._transactions)))
        if self._source.random() < 0.1:
            one.txn.rollback()
            return "rolled back"
        try:
            one.txn.commit()
        except ConflictError as error:
            if not self._may_conflict(one):
                raise ViolationError(f"a conflict, although nothing that was read has been written: {error}") from error
            return "conflict"
        except FamilyNotFoundError as error:
            if not one.touched & one.gone:
                raise ViolationError(f"{error}, although no family has gone that was used") from error
            return "family gone"
        if one.written:
            self._check_reads(one)
            if any(name in one.gone for name, _ in one.written):
                raise ViolationError("it has committed to a family that was dropped")
            self._note(one.written)
        return "committed"

    def _may_conflict(self, one: _OpenTransaction) -> bool:
        if one.touched & one.gone or one.changed & one.points:
            return True
        return any(
            name == other and scanned({key: b""}, scan._replace(limit=None))
            for name, scan in one.ranges
            for other, key in one.changed
        )

    def _check_reads(self, one: _OpenTransaction) -> None:
        """Whatever it has read of others is still the same at its commit."""
        now, then = self._state, one.began
        for name, key in one.points:
            if name in now and (name, key) not in one.written and now[name].get(key) != then[name].get(key):
                raise ViolationError(f"committed, although {name}[{key!r}] that it had read has changed")
        for name, scan in one.ranges:
            if name in now and scan.limit is None:
                keys = {key for other, key in one.written if other == name}
                before, after = (
                    [pair for pair in scanned(state[name], scan) if pair[0] not in keys] for state in (then, now)
                )
                if before != after:
                    raise ViolationError(f"committed, although {scan} of {name} that it had read has changed")

    # The store

    def _create(self) -> None:
        free = [name for name in _NAMES if name not in self._state]
        if free:
            name = self._source.choice(free)
            self._store.create_family(name)
            self._state[name] = {}

    def _drop(self) -> None:
        names = sorted(set(self._state) - {"default"})
        if names:
            name = self._source.choice(names)
            self._store.drop_family(name)
            del self._state[name]
            for one in self._transactions:
                one.gone.add(name)

    def _snapshot(self) -> None:
        self._store.snapshot()

    def _sync(self) -> None:
        self._store.sync()

    def _reopen(self) -> None:
        self._same(read_state(self._store), self._state, "before closing")
        if self._directory is None:
            return
        self._views.clear()
        self._transactions.clear()
        self._scans.clear()
        self._store.close()
        self._store = self._open()
        if self._source.random() < 0.5:  # else families are decoded when they are first used
            self._same(read_state(self._store), self._state, "after opening again")

    def _read_outside(self) -> None:
        """What another process sees that reads beside the writer."""
        if self._directory is None:
            return
        self._store.sync()
        if self._reader is None:
            self._reader = pystate.open(self._directory, read_only=True)
        else:
            self._reader.refresh()
        self._same(read_state(self._reader), self._state, "read from outside")

    _ACTIONS: dict[str, tuple[int, Callable[[_Game], str | None]]] = {
        "put": (8, _put),
        "delete": (4, _delete),
        "mapping": (8, _mapping),
        "read": (4, _read),
        "scan": (6, _scan),
        "begin scan": (3, _begin_scan),
        "continue scan": (4, _continue_scan),
        "end scan": (1, _end_scan),
        "begin view": (2, _begin_view),
        "read view": (5, _read_view),
        "end view": (1, _end_view),
        "begin": (4, _begin),
        "use": (16, _use),
        "commit": (4, _commit),
        "create": (2, _create),
        "drop": (1, _drop),
        "snapshot": (1, _snapshot),
        "sync": (1, _sync),
        "reopen": (1, _reopen),
        "read outside": (1, _read_outside),
    }


def _start(scan: Callable[..., Iterator[tuple[bytes, bytes]]], arguments: Scan) -> Iterator[tuple[bytes, bytes]]:
    return scan(
        arguments.start,
        arguments.stop,
        prefix=arguments.prefix,
        reverse=arguments.reverse,
        limit=arguments.limit,
    )


def play(line: str, coverage: Coverage) -> None:
    """Play one case."""
    if random.Random(f"place {line}").random() < 0.3:
        _Game(line, coverage, None).play()
        return
    with tempfile.TemporaryDirectory(prefix="pystate-fuzz-") as directory:
        _Game(line, coverage, str(Path(directory, "store"))).play()


if __name__ == "__main__":
    raise SystemExit(main("model", play))
