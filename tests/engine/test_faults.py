"""Every call that the engine makes of a disk fails once, fails for ever, is interrupted, or does less than asked.

Rows 30 to 46 and 63 of the test plan. A workload runs over files that fail at one place; whatever comes of it, each
commit that was acknowledged is there when the store is opened again without faults, nothing that was refused is, and a
commit whose outcome is unknown is there whole or not at all. Reads and writes are always short.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pystate
from pystate import ConflictError, DiskFullError, PystateError, ReadOnlyError, Store, StoreFailedError
from pystate.engine import commit, leadership, log_writer, snapshots
from pystate.engine import store as store_module
from pystate.engine.files import Files
from pystate.engine.os_files import OsFiles
from tests.engine.interrupts import Interrupt, at_each_place
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.small_stores import SMALL, State, contents
from tests.engine.watched_files import Hook, WatchedFiles, nth

OPERATIONS = (
    "write", "sync", "replace", "unlink", "create", "open_append", "open_read", "read_at", "truncate",
    "sync_directory", "make_directory", "lock", "list_directory",
)  # fmt: skip
FAULTS = [(errno.EIO, False), (errno.ENOSPC, False), (errno.EROFS, True), (errno.EIO, True), (errno.EMFILE, False)]

#: By family and key the values that a commit brings in; a value None says that the key is gone.
Entries = dict[tuple[str, bytes], bytes | None]


class Workload:
    """A program that does its work step by step, goes on after a failure, and keeps account of what it was told.

    Attributes:
        commits: what each one does, in order, and whether it was acknowledged; if not, its outcome is unknown.
        errors: every error that came out of a call.
    """

    def __init__(self, files: Files, path: str, may_raise: tuple[type[BaseException], ...]) -> None:
        self.files = files
        self.path = path
        self.may_raise = may_raise
        self.commits: list[tuple[Entries, bool]] = []
        self.errors: list[BaseException] = []

    @contextmanager
    def step(self) -> Iterator[None]:
        """Nothing but these errors leaves the interface."""
        try:
            yield
        except self.may_raise as error:
            self.errors.append(error)

    def commit(self, call: Callable[[], object], *entries: tuple[str, bytes, bytes | None]) -> None:
        """One commit, and what it does."""
        done = {(family, key): value for family, key, value in entries}
        try:
            call()
        except ConflictError as error:
            raise AssertionError("nobody else commits") from error
        except self.may_raise as error:
            self.errors.append(error)
            refused = isinstance(error, (DiskFullError, ReadOnlyError)) or (
                isinstance(error, StoreFailedError) and not error.unknown
            )
            if not refused:
                self.commits.append((done, False))
        else:
            self.commits.append((done, True))

    def check_live(self, store: Store) -> None:
        """An open store shows what it has acknowledged, whatever has failed since."""
        with self.step():
            for family, key in {place for entries, _ in self.commits for place in entries}:
                found = store.family(family).get(key)
                assert found in self.possible(family, key), (family, key, found, self.commits)

    def run(self) -> None:
        """Two sessions; the second one also where the first could not be opened or closed."""
        self.session(self.first)
        self.session(self.second)

    def session(self, work: Callable[[Store], None]) -> None:
        store = self.open()
        if store is None:
            return
        try:
            work(store)
            self.check_live(store)
        finally:
            for _ in range(2):
                with self.step():
                    store.close()

    def open(self) -> Store | None:
        try:
            return pystate.open(
                self.path, families=["left", "right"], create_missing_families=True, files=self.files, durability="sync"
            )
        except self.may_raise as error:
            self.errors.append(error)
            return None

    def first(self, store: Store) -> None:
        left, right = store.family("left"), store.family("right")
        self.commit(lambda: left.put(b"1", b"one" * 10), ("left", b"1", b"one" * 10))
        self.commit(lambda: self.both(store, b"2"), ("left", b"2", b"2"), ("right", b"2", b"2"))
        with self.step():
            store.snapshot()
        self.commit(lambda: right.delete(b"2"), ("right", b"2", None))
        self.commit(lambda: self.both(store, b"3", "process"), ("left", b"3", b"3"), ("right", b"3", b"3"))
        with self.step():
            store.sync()
        self.commit(lambda: left.put(b"4", b"four"), ("left", b"4", b"four"))

    def second(self, store: Store) -> None:
        left, right = store.family("left"), store.family("right")
        self.check_live(store)
        self.commit(lambda: left.put(b"5", b"five"), ("left", b"5", b"five"))
        with self.step():
            store.create_family("late")
        with self.step():
            late = store.family("late")
            self.commit(lambda: late.put(b"6", b"six"), ("late", b"6", b"six"))
        with self.step():
            store.snapshot()
        self.commit(lambda: right.put(b"7", b"seven"), ("right", b"7", b"seven"))

    @staticmethod
    def both(store: Store, key: bytes, durability: pystate.Durability | None = None) -> None:
        with store.begin(durability=durability) as txn:
            txn.put("left", key, key)
            txn.put("right", key, key)

    def possible(self, family: str, key: bytes) -> set[bytes | None]:
        """What a key may be."""
        values: set[bytes | None] = {None}
        for entries, acknowledged in self.commits:
            if (family, key) in entries:
                values = {entries[family, key]} | (set() if acknowledged else values)
        return values

    def explains(self, state: State) -> bool:
        """Whether a state is what was acknowledged, with any of the unknown commits whole or not at all."""
        candidates: list[Entries] = [{}]
        for entries, acknowledged in self.commits:
            after = [{**candidate, **entries} for candidate in candidates]
            candidates = after if acknowledged else candidates + after
        found = {(family, key): value for family, entries in state.items() for key, value in entries.items()}
        return found in [
            {place: value for place, value in candidate.items() if value is not None} for candidate in candidates
        ]


def aftermath(workload: Workload, real: Files, watched: WatchedFiles, names: Callable[[], list[str]]) -> None:
    """Without faults: locks free, descriptors closed, the store whole, no temporary file left by the next opening."""
    assert watched.held_locks == 0
    assert watched.open_files == []
    with pystate.open(workload.path, files=real) as store:
        found = contents(store)
    assert workload.explains(found), (found, workload.commits, workload.errors)
    assert not [name for name in names() if name.endswith(".tmp")]
    assert pystate.verify(workload.path, files=real).ok
    with pystate.open(workload.path, files=real, read_only=True) as store:
        assert contents(store) == found


class Hit:
    """A hook around another one that notes whether it has raised."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.hit = False

    def __call__(self, operation: str, path: str) -> None:
        try:
            self.hook(operation, path)
        except BaseException:
            self.hit = True
            raise


def sweep(
    operation: str,
    error: Callable[[], BaseException],
    *,
    for_ever: bool = False,
    after: bool = False,
    short: bool = True,
) -> Iterator[Workload]:
    """The workload with a fault at the first call of `operation`, at the second ..., until there is none."""
    number = 0
    while True:
        number += 1
        memory = MemoryFiles(seed=number)
        files = WatchedFiles(memory, short=number if short else None)
        hook = Hit(nth(operation, number, error, for_ever=for_ever))
        files.before, files.after = (None, hook) if after else (hook, None)
        injected = error()
        may_raise: tuple[type[BaseException], ...] = (OSError, PystateError)
        if not isinstance(injected, OSError):
            may_raise += (type(injected),)
        workload = Workload(files, DIRECTORY, may_raise)
        workload.run()
        if not hook.hit:
            assert workload.errors == []
            assert all(acknowledged for _, acknowledged in workload.commits)
            return
        files.before = files.after = None
        aftermath(workload, memory, files, lambda memory=memory: list(memory.image()))  # type: ignore[misc]
        yield workload


@pytest.mark.parametrize(("number", "for_ever"), FAULTS, ids=[f"{errno.errorcode[n]}-{e}" for n, e in FAULTS])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_call_that_fails_loses_nothing_and_leaks_nothing(operation: str, number: int, for_ever: bool) -> None:
    """Rows 30, 31, 34, 37 to 39, 41, 43, 44 and 63: every call of every kind, with every error."""
    runs = 0
    for workload in sweep(operation, lambda: failure(number), for_ever=for_ever):
        runs += 1
        for error in workload.errors:
            if isinstance(error, DiskFullError):
                assert number == errno.ENOSPC
    assert runs >= (0 if operation == "truncate" else 1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_call_that_is_interrupted_loses_nothing_and_leaks_nothing(
    operation: str, error: type[BaseException], after: bool
) -> None:
    """Rows 45 and 46: the state is old or new, or the store has failed; the lock can be taken again."""
    runs = sum(1 for _ in sweep(operation, error, after=after))
    assert runs >= (0 if operation == "truncate" else 1)


@pytest.mark.parametrize("operation", ["write", "sync", "replace", "create", "open_append", "sync_directory", "unlink"])
def test_call_that_fails_on_the_real_disk_loses_nothing(tmp_path: Path, operation: str) -> None:
    """The same on the file system of the operating system, for the calls that write."""
    number = 0
    while True:
        number += 1
        files = WatchedFiles(OsFiles())
        hook = Hit(nth(operation, number, lambda: failure(errno.EIO)))
        files.before = hook
        path = tmp_path / str(number)
        workload = Workload(files, str(path), (OSError, PystateError))
        workload.run()
        files.before = None
        if not hook.hit:
            break
        aftermath(workload, OsFiles(), files, lambda path=path: [entry.name for entry in path.iterdir()])  # type: ignore[misc]
    assert number > 1


def test_workload_without_faults_commits_everything() -> None:
    """The counterpart: what the sweeps run does something, and short reads and writes are no faults."""
    for seed in range(10):
        files = WatchedFiles(MemoryFiles(), short=seed)
        workload = Workload(files, DIRECTORY, ())
        workload.run()
        assert len(workload.commits) == 8
        with pystate.open(DIRECTORY, files=files) as store:
            assert contents(store) == {
                "default": {},
                "late": {b"6": b"six"},
                "left": {b"1": b"one" * 10, b"2": b"2", b"3": b"3", b"4": b"four", b"5": b"five"},
                "right": {b"3": b"3", b"7": b"seven"},
            }


# ---- what exactly a fault does --------------------------------------------------------------------------------------


class Full:
    """A disk that is full from some moment on: writing takes what still fits, then ENOSPC."""

    def __init__(self, files: WatchedFiles, space: int) -> None:
        self.files = files
        self.space = space

    def __call__(self, operation: str, path: str) -> None:
        if operation == "write":
            if self.space <= 0:
                raise failure(errno.ENOSPC, path)
            self.files.largest = self.space
            self.space -= 10**9  # one write takes what is left


@pytest.mark.parametrize("way", ["put", "delete", "transaction", "create"])
def test_disk_full_while_appending_is_undone_wherever_it_strikes(way: str) -> None:
    """Row 37, guarantee 6: after every number of bytes; the log is as before, and goes on when there is room."""
    for space in range(70):
        memory = MemoryFiles()
        files = WatchedFiles(memory)
        store = pystate.open(DIRECTORY, files=files)
        store.family("default")[b"before"] = b"v"
        image = memory.image()
        files.before = Full(files, space)

        def act() -> None:
            if way == "put":
                store.family("default").put(b"k", b"v" * 20)  # noqa: B023
            elif way == "delete":
                store.family("default").delete(b"before" + b"x" * 20)  # noqa: B023
            elif way == "create":
                store.create_family("a family with a long name")  # noqa: B023
            else:
                with store.begin() as txn:  # noqa: B023
                    txn.put("default", b"k", b"v" * 30)

        try:
            act()
        except DiskFullError as error:
            assert error.errno == errno.ENOSPC
            assert memory.image() == image
            files.before, files.largest = None, 2**62
            act()
            assert store.stats().failed is None
            store.close()
        else:
            assert space > 50
            break
        with pystate.open(DIRECTORY, files=memory) as store:
            assert store.sequence == 2
    else:
        raise AssertionError("it never fitted")


@pytest.mark.parametrize("way", ["put", "transaction"])
def test_disk_full_at_the_sync_fails_the_store(way: str) -> None:
    """Row 38: nobody knows then what is on the disk, so nothing more is acknowledged; opening again tells."""
    memory = MemoryFiles()
    files = WatchedFiles(memory)
    store = pystate.open(DIRECTORY, files=files)
    store.family("default")[b"before"] = b"v"
    files.before = nth("sync", 1, lambda: failure(errno.ENOSPC))
    with pytest.raises(StoreFailedError) as caught:
        if way == "put":
            store.family("default")[b"k"] = b"v"
        else:
            store.transact(lambda txn: txn.put("default", b"k", b"v"))
    assert (caught.value.unknown, caught.value.errno) == (True, errno.ENOSPC)
    syncs = files.counts["sync"]
    with pytest.raises(StoreFailedError):
        store.family("default")[b"l"] = b"v"
    with pytest.raises(StoreFailedError):
        store.sync()
    with pytest.raises(StoreFailedError):
        store.snapshot()
    with pytest.raises(StoreFailedError):
        store.create_family("new")
    assert dict(store.family("default")) == {b"before": b"v"}
    assert store.stats().failed is not None
    store.close()
    assert files.counts["sync"] == syncs  # never once more
    with pystate.open(DIRECTORY, files=memory) as store:
        assert dict(store.family("default")) in ({b"before": b"v"}, {b"before": b"v", b"k": b"v"})


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG], ids=errno.errorcode.get)
def test_disk_full_while_a_snapshot_is_taken_leaves_the_store_usable(number: int) -> None:
    """Row 39: at every write of it; the temporary file is removed, the old files are intact, commits continue."""
    at = 0
    while True:
        at += 1
        memory = MemoryFiles()
        files = WatchedFiles(memory)
        store = pystate.open(DIRECTORY, files=files)
        store.family("default")[b"k"] = b"v"
        hook = Hit(nth("write", at, lambda: failure(number)))
        files.before = hook
        try:
            store.snapshot()
        except OSError as error:
            assert error.errno == number
        files.before = None
        assert store.stats().failed is None
        assert not [name for name in memory.image() if name.endswith(".tmp")]
        store.family("default")[b"l"] = b"w"
        store.snapshot()
        store.close()
        with pystate.open(DIRECTORY, files=memory) as store:
            assert dict(store.family("default")) == {b"k": b"v", b"l": b"w"}
        if not hook.hit:
            break
    assert at > 4


@pytest.mark.parametrize("condition", ["closed", "sync", "process", "leftovers", "recovered"])
@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_opening_on_a_full_disk_opens_or_refuses_and_removes_nothing(condition: str, torn: bool) -> None:
    """Row 40: no byte free. What is closed cleanly needs none; the rest is refused and is all there afterwards."""
    small = SMALL[condition]  # type: ignore[index]
    if torn and small.closed:
        torn = False
    image = small.with_file(small.newest, small.image[small.newest][: -3 if torn else None])
    files = small.files(image)
    watched = WatchedFiles(files)
    watched.before = nth("write", 1, lambda: failure(errno.ENOSPC), for_ever=True)
    expected = small.states[small.last - torn]
    with pystate.open(DIRECTORY, files=watched, read_only=True) as reader:
        assert contents(reader) == expected
    try:
        with pystate.open(DIRECTORY, files=watched) as store:
            assert small.closed
            assert contents(store) == expected
    except DiskFullError as error:
        assert not small.closed
        assert error.errno == errno.ENOSPC
    assert watched.open_files == []
    assert watched.held_locks == 0
    after = files.image()
    assert all(after[name] == data for name, data in image.items() if name != small.newest)
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == expected


def test_missing_families_on_a_full_disk_are_made_when_there_is_room() -> None:
    """Row 40: an opening that fails late leaves nothing open either."""
    for space in range(0, 400, 7):
        memory = MemoryFiles()
        files = WatchedFiles(memory)
        pystate.open(DIRECTORY, files=files).close()
        files.before = Full(files, space)

        def attempt() -> Store:
            return pystate.open(DIRECTORY, families=["new"], create_missing_families=True, files=files)  # noqa: B023

        try:
            attempt().close()
        except DiskFullError:
            assert (files.open_files, files.held_locks) == ([], 0)
        except OSError:
            pass  # the family is made, but the closing frame found no room
        files.before, files.largest = None, 2**62
        with attempt() as store:
            assert store.families == ("default", "new")


@pytest.mark.parametrize("operation", ["write", "sync", "replace", "sync_directory", "truncate", "create"])
def test_file_system_that_turns_read_only_leaves_the_readers(operation: str) -> None:
    """Row 63: writes fail from one moment on; reads, views and scans go on, and nothing acknowledged is lost."""
    memory = MemoryFiles()
    files = WatchedFiles(memory)
    store = pystate.open(DIRECTORY, files=files, durability="process")
    store.family("default").update({b"%d" % number: b"v" for number in range(300)})
    view = store.view()
    scan = store.family("default").scan()
    next(scan)
    files.before = nth(operation, 1, lambda: failure(errno.EROFS), for_ever=True)
    for call in (
        store.sync,
        store.snapshot,
        lambda: store.family("default").put(b"new", b"v"),
        lambda: store.create_family("new"),
    ):
        try:
            call()
        except (OSError, PystateError):
            pass
    assert len(list(scan)) == 299
    assert len(view.family("default")) == 300
    assert store.family("default")[b"7"] == b"v"
    view.close()
    try:
        store.close()
    except OSError:
        pass
    assert (files.open_files, files.held_locks) == ([], 0)
    with pystate.open(DIRECTORY, files=memory) as store:
        assert {b"%d" % number for number in range(300)} <= store.family("default").keys()


@pytest.mark.parametrize("condition", ["closed", "sync", "leftovers"])
@pytest.mark.parametrize("operation", ["open_read", "read_at", "list_directory"])
def test_read_error_while_opening_changes_nothing(condition: str, operation: str) -> None:
    """Row 44, R3: EIO is not the end of a file and not damage; opened again without it, everything is there."""
    small = SMALL[condition]  # type: ignore[index]
    number = 0
    while True:
        number += 1
        memory = small.files()
        files = WatchedFiles(memory)
        files.before = nth(operation, number, lambda: failure(errno.EIO))
        try:
            store = pystate.open(DIRECTORY, files=files)
        except OSError as error:
            assert error.errno == errno.EIO
            assert not isinstance(error, PystateError)
            assert memory.image() == small.image
        else:
            break
        assert (files.open_files, files.held_locks) == ([], 0)
    store.close()
    assert number > 1


def test_family_that_cannot_be_read_can_be_read_later() -> None:
    """Row 44: EIO while a family is decoded; the next touch tries again."""
    small = SMALL["closed"]
    files = WatchedFiles(small.files())
    with pystate.open(DIRECTORY, files=files) as store:
        files.before = nth("read_at", 1, lambda: failure(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            store.family("default").get(b"two")
        with pytest.raises(KeyError):
            store.family("default")[b"absent"]
        assert contents(store) == small.state


@pytest.mark.parametrize("durability", ["sync", "process"])
def test_close_that_fails_releases_everything_and_loses_nothing_durable(durability: pystate.Durability) -> None:
    """Row 48: the error is told, the store is closed nevertheless; a second close does nothing."""
    for operation in ("write", "sync", "replace", "sync_directory"):
        memory = MemoryFiles()
        files = WatchedFiles(memory)
        store = pystate.open(DIRECTORY, files=files, durability=durability)
        store.family("default")[b"k"] = b"v"
        files.before = nth(operation, 1, lambda: failure(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            store.close()
        store.close()
        assert (files.open_files, files.held_locks) == ([], 0)
        with pytest.raises(pystate.ClosedError):
            store.family("default")
        files.before = None
        with pystate.open(DIRECTORY, files=files) as store:
            assert dict(store.family("default")) == {b"k": b"v"}


def test_close_that_is_interrupted_can_be_called_again() -> None:
    """Row 45: wherever it was interrupted, closing again finishes it: lock and files are free, and nothing is lost."""
    modules = [commit, leadership, log_writer, snapshots, store_module]

    def action(interrupt: Interrupt) -> None:
        memory = MemoryFiles()
        files = WatchedFiles(memory)
        store = pystate.open(DIRECTORY, files=files, durability="process")
        store.family("default")[b"k"] = b"v"
        try:
            with interrupt:
                store.close()
        except KeyboardInterrupt:
            store.close()
        assert (files.open_files, files.held_locks) == ([], 0)
        with pystate.open(DIRECTORY, files=files) as store:
            assert dict(store.family("default")) == {b"k": b"v"}

    assert at_each_place(action, *modules) > 10


def test_error_in_the_block_is_kept_when_closing_fails_too() -> None:
    """Row 48: the original error, and no second one in its place."""
    files = WatchedFiles(MemoryFiles())
    with pytest.raises(ZeroDivisionError), pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"k"] = b"v"
        files.before = nth("write", 1, lambda: failure(errno.EIO))
        raise ZeroDivisionError
    assert (files.open_files, files.held_locks) == ([], 0)


def test_exception_of_the_user_writes_nothing() -> None:
    """Row 47: in a transaction, in a function that is run in one, and in what `update` iterates."""
    memory = MemoryFiles()
    with pystate.open(DIRECTORY, files=memory) as store:
        image = memory.image()

        def broken(txn: pystate.Transaction) -> None:
            txn.put("default", b"k", b"v")
            raise ZeroDivisionError

        def pairs() -> Iterator[tuple[bytes, bytes]]:
            yield b"k", b"v"
            raise ZeroDivisionError

        calls: list[Callable[[], object]] = [
            lambda: store.transact(broken),
            lambda: store.family("default").update(pairs()),
        ]
        for call in calls:
            with pytest.raises(ZeroDivisionError):
                call()
        with pytest.raises(ZeroDivisionError), store.begin() as txn:
            broken(txn)
        assert memory.image() == image
        assert len(store.family("default")) == 0
