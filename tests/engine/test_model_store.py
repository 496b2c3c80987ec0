"""A store on disk against plain dicts: any calls in any order, reopened, failing and filling up in between.

The machine below draws its own history of a store. After each step everything that is open, the store, its views,
transactions, scans and a second opening for reading, must show what the model says; a commit must succeed or conflict
as the model predicts. What hypothesis finds, it shrinks and prints as a few lines that can be run again.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pystate
from pystate import Store, Transaction, View
from tests.engine.faulty_files import FaultyFiles
from tests.engine.model import (
    Durability,
    Footprint,
    Model,
    ModelFamily,
    ModelTransaction,
    Operation,
    Reading,
    Scan,
    State,
    operations,
    overlap,
    readings,
    scans,
    selected,
    single,
    values,
    writings,
)

NAMES = ["default", "one", "two"]
names = st.sampled_from(NAMES)
indexes = st.integers(0, 5)
durabilities = st.sampled_from(["process", "sync", None])


class Drawn:
    """One open transaction and its model, with the families as they were when it began."""

    def __init__(self, store: Store, model: Model, born: dict[str, int], durability: Durability | None) -> None:
        self.real = store.begin(durability=durability)
        self.expected = ModelTransaction(model)
        self.born = dict(born)

    def lost(self, born: dict[str, int]) -> set[str]:
        """The families of its time that have been dropped since, even if others of their names exist now."""
        return {name for name, since in self.born.items() if born.get(name) != since}


class StoreMachine(RuleBasedStateMachine):
    """The store is opened with durability ``process``, and taken to be killed by nothing but `close`."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "store"
        self.files = FaultyFiles()
        self.model = Model()
        self.born = {"default": 0}
        self.transactions: list[Drawn] = []
        self.views: list[tuple[View, State]] = []
        self.open_scans: list[tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = []
        self.reader: tuple[Store, State] | None = None
        self.store = self.opened()

    def opened(self) -> Store:
        return pystate.open(str(self.path), durability="process", files=self.files)

    # ---- single calls -----------------------------------------------------------------------------------------------

    @initialize(entries=st.dictionaries(st.binary(max_size=2), values, max_size=30), snapshot=st.booleans())
    def fill(self, entries: dict[bytes, bytes], snapshot: bool) -> None:
        self.store.family("default").update(entries)
        if entries:
            self.model.commit(self.store.sequence, {"default": dict(entries)}, [("default", (None, None))])
        if snapshot:
            self.store.snapshot()

    @rule(name=names, operation=operations)
    def call(self, name: str, operation: Operation) -> None:
        """One call on a family of the store: one commit, or none."""
        if name not in self.model.families:
            return
        expected = ModelTransaction(self.model)
        assert operation.run(self.store.family(name)) == expected.run(name, operation)
        self.model.commit(self.store.sequence, expected.state, expected.written)

    @rule(name=names)
    def create_family(self, name: str) -> None:
        try:
            self.store.create_family(name)
        except pystate.FamilyExistsError:
            assert name in self.model.families
        else:
            assert name not in self.model.families
            self.model.commit(self.store.sequence, {**self.model.copy(), name: {}}, [])
            self.born[name] = self.store.sequence

    @rule(name=names.filter(lambda name: name != "default"))
    def drop_family(self, name: str) -> None:
        try:
            self.store.drop_family(name)
        except pystate.FamilyNotFoundError:
            assert name not in self.model.families
        else:
            state = self.model.copy()
            del state[name], self.born[name]
            self.model.commit(self.store.sequence, state, [(name, (None, None))])

    @rule()
    def snapshot(self) -> None:
        self.store.snapshot()
        stats = self.store.stats()
        assert stats.snapshot_sequence == stats.sequence
        assert stats.snapshot_error is None

    @rule()
    def sync(self) -> None:
        self.store.sync()
        assert self.store.stats().durable_sequence == self.model.sequence

    # ---- transactions -----------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.transactions) < 4)
    @rule(durability=durabilities)
    def begin(self, durability: Durability | None) -> None:
        self.transactions.append(Drawn(self.store, self.model, self.born, durability))
        assert self.transactions[-1].real.sequence == self.model.sequence

    @precondition(lambda self: self.transactions)
    @rule(index=indexes, name=names, operation=operations)
    def transaction_call(self, index: int, name: str, operation: Operation) -> None:
        drawn = self.transactions[index % len(self.transactions)]
        if name in drawn.expected.state:
            assert operation.run(drawn.real.family(name)) == drawn.expected.run(name, operation)

    @precondition(lambda self: self.transactions)
    @rule(index=indexes)
    def commit(self, index: int) -> None:
        drawn = self.transactions.pop(index % len(self.transactions))
        real, expected, lost = drawn.real, drawn.expected, drawn.lost(self.born)
        touched = {name for name, _, _ in expected.journal}
        depends = {name for name, _ in [*expected.read, *expected.written]}
        may = bool(expected.written) and (bool(lost & touched) or expected.may_conflict)
        must = bool(expected.written) and (bool(lost & depends) or expected.must_conflict)
        try:
            sequence = real.commit()
        except pystate.FamilyNotFoundError as error:
            assert error.family in lost
            assert must
        except pystate.ConflictError as error:
            assert may, f"conflict without a reason: {error}"
            assert expected.begin < error.commit_sequence <= self.model.sequence
            assert error.family in lost or _explains(error, self.model.changed_since(expected.begin))
        else:
            assert not must, "committed although it would have seen something else"
            if not expected.written:
                assert sequence == expected.begin
                return
            assert sequence == self.store.sequence
            replayed = expected.replayed()
            assert replayed is not None
            self.model.commit(sequence, replayed, expected.written)

    @precondition(lambda self: self.transactions)
    @rule(index=indexes)
    def roll_back(self, index: int) -> None:
        self.transactions.pop(index % len(self.transactions)).real.rollback()

    # ---- views and scans --------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.views) < 5)
    @rule()
    def open_view(self) -> None:
        view = self.store.view()
        assert view.sequence == self.model.sequence
        self.views.append((view, self.model.copy()))

    @precondition(lambda self: self.views)
    @rule(index=indexes, name=names, operation=readings)
    def view_call(self, index: int, name: str, operation: Reading) -> None:
        view, state = self.views[index % len(self.views)]
        assert view.families == tuple(sorted(state))
        if name in state:
            assert operation.run(view.family(name)) == operation.run(ModelFamily(dict(state[name])))

    @precondition(lambda self: self.views)
    @rule(index=indexes)
    def close_view(self, index: int) -> None:
        view, state = self.views.pop(index % len(self.views))
        for name, entries in state.items():
            assert dict(view.family(name)) == entries
        view.close()

    @precondition(lambda self: len(self.open_scans) < 5)
    @rule(name=names, scan=scans)
    def open_scan(self, name: str, scan: Scan) -> None:
        if name in self.model.families:
            bounds = {"prefix": scan.prefix, "reverse": scan.reverse, "limit": scan.limit}
            wanted = selected(self.model.families[name], scan.start, scan.stop, **bounds)  # type: ignore[arg-type]
            real = self.store.family(name).scan(scan.start, scan.stop, **bounds)  # type: ignore[arg-type]
            self.open_scans.append((real, wanted))

    @precondition(lambda self: self.open_scans)
    @rule(index=indexes, count=st.integers(1, 10))
    def advance_scan(self, index: int, count: int) -> None:
        scan, wanted = self.open_scans[index % len(self.open_scans)]
        assert list(islice(scan, count)) == wanted[:count]
        del wanted[:count]

    @precondition(lambda self: self.open_scans)
    @rule(index=indexes)
    def abandon_scan(self, index: int) -> None:
        del self.open_scans[index % len(self.open_scans)]

    # ---- reading from outside, and opening again --------------------------------------------------------------------

    @rule()
    def open_or_refresh_reader(self) -> None:
        """A second opening, for reading: it needs no lock, and shows what had been committed when it last looked."""
        if self.reader is None:
            self.reader = pystate.open(str(self.path), read_only=True), self.model.copy()
        else:
            reader, before = self.reader
            for name, entries in before.items():
                assert dict(reader.family(name)) == entries
            assert reader.refresh() == self.model.sequence
            self.reader = reader, self.model.copy()
        reader, state = self.reader
        assert reader.sequence == self.model.sequence
        assert reader.families == tuple(sorted(state))
        for name, entries in state.items():
            assert dict(reader.family(name)) == entries

    @precondition(lambda self: self.reader)
    @rule()
    def close_reader(self) -> None:
        assert self.reader is not None
        self.reader[0].close()
        self.reader = None

    @rule()
    def reopen(self) -> None:
        """Close and open: everything taken from the old handle is dead, and everything committed is there."""
        self.let_go()
        self.store = self.opened()
        recovery = self.store.stats().recovery
        assert recovery is not None
        assert recovery.decision in ("clean", "new") or self.model.sequence == 0
        assert recovery.sequence == self.store.sequence == self.model.sequence

    def let_go(self) -> None:
        self.store.close()
        for drawn in self.transactions:
            _assert_closed(drawn.real)
        for view, _ in self.views:
            _assert_closed(view)
        self.transactions, self.views, self.open_scans = [], [], []

    # ---- faults -----------------------------------------------------------------------------------------------------

    @rule(name=names, operation=writings, space=st.integers(0, 60))
    def fill_up_the_disk(self, name: str, operation: Operation, space: int) -> None:
        """ENOSPC, with a part of the frame written: the commit is undone, and the store stays usable."""
        if name not in self.model.families:
            return
        self.files.space = space
        try:
            self.call(name, operation)
        except pystate.DiskFullError as error:
            assert error.errno == errno.ENOSPC
            assert self.store.stats().failed is None
        finally:
            self.files.space = None

    @rule(name=names, operation=writings, operation_that_fails=st.sampled_from(["write", "sync"]))
    def fail_the_store(self, name: str, operation: Operation, operation_that_fails: str) -> None:
        """EIO: the outcome is unknown, later commits are refused, reads go on; reopening gives old or new state."""
        if name not in self.model.families:
            return
        expected = ModelTransaction(self.model)
        failed = False
        self.files.fail(operation_that_fails, errno.EIO, suffix=".log", for_ever=True)
        try:
            with self.store.begin(durability="sync") as txn:
                assert operation.run(txn.family(name)) == expected.run(name, operation)
        except pystate.StoreFailedError as error:
            assert error.unknown
            assert error.errno == errno.EIO
            failed = True
        finally:
            self.files.hook = None
        if not failed:
            # Nothing was written, so nothing failed.
            self.model.commit(self.store.sequence, expected.state, expected.written)
            return
        self.shows_the_model()
        assert self.store.stats().failed is not None
        try:
            self.store.family("default")[b"refused"] = b""
        except pystate.StoreFailedError as error:
            assert not error.unknown
        else:
            raise AssertionError("a failed store took a commit")
        self.let_go()
        self.store = self.opened()
        if self.store.sequence != self.model.sequence:
            self.model.commit(self.store.sequence, expected.state, expected.written)

    @rule(operation=st.sampled_from(["create", "write", "sync", "replace"]))
    def fail_a_snapshot(self, operation: str) -> None:
        """A snapshot that cannot be written is told, leaves nothing behind, and does not hinder commits."""
        suffix = ".snapshot" if operation == "replace" else ".snapshot.tmp"
        self.files.fail(operation, errno.ENOSPC, suffix=suffix, for_ever=True)
        try:
            self.store.snapshot()
        except OSError as error:
            assert error.errno == errno.ENOSPC
        else:
            assert self.store.stats().snapshot_sequence == self.model.sequence
        finally:
            self.files.hook = None
        assert self.store.stats().failed is None
        assert not [entry for entry in self.path.iterdir() if entry.name.endswith(".tmp")]

    # ---- always -----------------------------------------------------------------------------------------------------

    @invariant()
    def shows_the_model(self) -> None:
        assert self.store.sequence == self.model.sequence
        assert self.store.families == tuple(sorted(self.model.families))
        for name, entries in self.model.families.items():
            family = self.store.family(name)
            assert list(family.items()) == selected(entries)
            assert len(family) == len(entries)
        stats = self.store.stats()
        assert stats.durable_sequence <= stats.sequence
        assert stats.views <= len(self.transactions) + len(self.views) + len(self.open_scans)

    def teardown(self) -> None:
        failed = self.store.stats().failed
        try:
            if self.reader is not None:
                self.reader[0].close()
            self.store.close()
            if failed is not None:
                return  # a rule stopped half-way, and its own error is the one to read
            report = pystate.verify(str(self.path))
            assert report.ok, report.problems
            assert report.clean or self.model.sequence == 0
            with pystate.open(str(self.path), read_only=True) as store:
                assert {name: dict(store.family(name)) for name in store.families} == self.model.families
        finally:
            self.store.close()
            shutil.rmtree(self.path.parent)


def _assert_closed(handle: Transaction | View) -> None:
    try:
        handle.family("default").get(b"k")
    except pystate.ClosedError:
        return
    raise AssertionError(f"{handle!r} outlived its store")


def _explains(error: pystate.ConflictError, changed: Footprint) -> bool:
    """Whether what the error names is something that was changed."""
    span = error.range if error.key is None else single(error.key)
    assert span is not None
    return any(name == error.family and overlap(span, other) for name, other in changed)


class TestStoreAgainstModel(StoreMachine.TestCase):  # type: ignore[misc, valid-type]
    """Guarantees 1 to 7, rows 28, 71, 74, 80 and 81: whatever is done, in whatever order, the store is its model."""

    settings = settings(
        max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
