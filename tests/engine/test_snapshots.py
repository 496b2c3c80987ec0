"""When a snapshot is taken, in which order its files come and go, and what a failure leaves."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator

import pytest

import pystate
from pystate import Store
from pystate.engine import snapshots, threads
from pystate.engine.names import snapshot_name
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.small_stores import contents
from tests.engine.watched_files import WatchedFiles, nth


@pytest.fixture
def files() -> WatchedFiles:
    return WatchedFiles(MemoryFiles())


@pytest.fixture
def in_the_foreground(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A snapshot that is due waits until the test calls `finish`, so that every run sees the same."""
    stop = snapshots.Snapshots.stop

    def finish_and_stop(of: snapshots.Snapshots) -> None:
        finish()
        stop(of)

    monkeypatch.setattr(threads, "start_thread", _start)
    monkeypatch.setattr(snapshots.Snapshots, "stop", finish_and_stop)
    yield
    _DUE.clear()


_DUE: list[Callable[[], None]] = []


def _start(name: str, target: Callable[[], None]) -> threading.Thread:
    _DUE.append(target)
    thread = threading.Thread(name=name)
    thread.start()
    return thread


def finish() -> int:
    """Run the snapshots that are due; how many there were."""
    count = len(_DUE)
    while _DUE:
        _DUE.pop(0)()
    return count


def names(files: WatchedFiles) -> list[str]:
    return sorted(name for name in files.list_directory(DIRECTORY) if name != "LOCK")


def fill(store: Store, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        store.family("default")[b"%06d" % number] = b"v" * 50


def test_snapshot_replaces_the_log_that_it_holds(files: WatchedFiles) -> None:
    """Design section 5: one file named by its last sequence, the segment that follows, and nothing else."""
    with pystate.open(DIRECTORY, files=files) as store:
        fill(store, 5)
        store.snapshot()
        assert names(files) == [f"{5:020d}.snapshot", f"{6:020d}.log"]
        before = store.stats()
        assert (before.snapshot_sequence, before.log_segments, before.snapshots_taken) == (5, 1, 1)
        store.snapshot()
        assert store.stats() == before  # nothing was committed since
        fill(store, 1)
        store.snapshot()
        assert names(files) == [f"{6:020d}.snapshot", f"{7:020d}.log"]
        expected = contents(store)
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == expected
        assert store.sequence == 6


def test_older_files_go_only_when_the_new_snapshot_is_durable(files: WatchedFiles) -> None:
    """Rows 23 to 25, R5: new segment, then the snapshot, each synced, named and its name synced, then the removals."""
    with pystate.open(DIRECTORY, files=files) as store:
        fill(store, 2)
        files.trace.clear()
        store.snapshot()
        trace = [(operation, path.rpartition("/")[2]) for operation, path in files.trace]
        changing = [call for call in trace if call[0] not in ("list_directory", "read_at", "open_read")]
    segment, snapshot = f"{3:020d}.log", f"{2:020d}.snapshot"
    assert changing == [
        ("create", segment + ".tmp"), ("write", segment + ".tmp"), ("sync", segment + ".tmp"),
        ("replace", segment), ("sync_directory", "store"),
        ("write", f"{1:020d}.log"),
        ("create", snapshot + ".tmp"), *[("write", snapshot + ".tmp")] * 3, ("sync", snapshot + ".tmp"),
        ("replace", snapshot), ("sync_directory", "store"),
        ("unlink", f"{1:020d}.log"), ("unlink", f"{0:020d}.snapshot"),
    ]  # fmt: skip


def test_unsynced_commits_are_synced_before_the_next_segment_exists(files: WatchedFiles) -> None:
    """Guarantee 2: with ``process`` too, or power loss could leave a hole between two segments."""
    with pystate.open(DIRECTORY, files=files, durability="process") as store:
        fill(store, 2)
        files.trace.clear()
        store.snapshot()
        trace = [(operation, path.rpartition("/")[2]) for operation, path in files.trace]
        assert store.stats().durable_sequence == 2
    assert trace.index(("sync", f"{1:020d}.log")) < trace.index(("create", f"{3:020d}.log.tmp"))


@pytest.mark.usefixtures("in_the_foreground")
def test_snapshot_is_due_when_the_log_has_outgrown_the_floor_and_the_last_snapshot(files: WatchedFiles) -> None:
    """Guarantee 8: so what is written stays within a small factor of what is committed, and the log is bounded."""
    with pystate.open(DIRECTORY, files=files, snapshot_log_bytes=2000) as store:
        taken = 0
        for number in range(400):
            fill(store, 1, number)
            stats = store.stats()
            assert stats.snapshot_log_bytes == max(2000, stats.snapshot_bytes)
            due = int(stats.log_bytes > stats.snapshot_log_bytes)
            assert finish() == due
            taken += due
            assert store.stats().snapshots_taken == taken
            if due:
                assert store.stats().log_bytes == 48
                assert store.stats().log_segments == 1
        assert 4 < taken < 12
        assert store.stats().bytes_written < 4 * store.stats().bytes_committed
        assert sum(map(len, files.real_image().values())) < 3 * store.stats().snapshot_bytes
    assert finish() == 0


@pytest.mark.usefixtures("in_the_foreground")
def test_snapshot_that_fails_in_the_background_shows_and_is_tried_again_when_the_log_has_grown_as_much(
    files: WatchedFiles,
) -> None:
    """Row 30: the store stays usable, and the failure is visible in ``stats()`` until the next success."""
    with pystate.open(DIRECTORY, files=files, snapshot_log_bytes=2000) as store:
        number = 0
        while not _DUE:
            fill(store, 1, number)
            number += 1
        files.before = nth("create", 1, lambda: failure(errno.EIO), for_ever=True)
        finish()
        files.before = None
        stats = store.stats()
        assert stats.snapshot_error is not None
        assert "OSError" in stats.snapshot_error
        assert (stats.snapshots_taken, stats.failed) == (0, None)
        failed_at = stats.log_bytes
        while not _DUE:
            fill(store, 1, number)
            number += 1
        assert failed_at + 2000 <= store.stats().log_bytes <= failed_at + 2300
        finish()
        stats = store.stats()
        assert (stats.snapshots_taken, stats.snapshot_error) == (1, None)
        assert len(store.family("default")) == number
        expected = contents(store)
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == expected


@pytest.mark.usefixtures("in_the_foreground")
def test_snapshot_is_due_when_there_are_many_segments(files: WatchedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 8: each unclean stop leaves a segment, so their number has a bound as well."""
    monkeypatch.setattr(snapshots, "SEGMENTS_MAX", 3)
    memory = files._real
    assert isinstance(memory, MemoryFiles)
    for number in range(10):
        store = pystate.open(DIRECTORY, files=files)
        finish()
        assert store.stats().log_segments <= 3 + 1
        fill(store, 1, number)
        crashed = memory.image(DIRECTORY)
        store.close()
        memory.restore(DIRECTORY, crashed)
    with pystate.open(DIRECTORY, files=files) as store:
        finish()
        assert len(store.family("default")) == 10
        assert store.stats().snapshot_sequence > 3


def test_commits_wait_for_a_snapshot_that_they_outrun(files: WatchedFiles) -> None:
    """Guarantee 8: the log is bounded by a multiple of its threshold, even when writing a snapshot takes for ever."""
    writing, go_on = threading.Event(), threading.Event()

    def hold_up(operation: str, path: str) -> None:
        if operation == "create" and path.endswith(".snapshot.tmp"):
            writing.set()
            go_on.wait()

    with pystate.open(DIRECTORY, files=files, snapshot_log_bytes=2000, durability="process") as store:
        files.before = hold_up
        largest, bound = 0, 0

        def work() -> None:
            nonlocal largest, bound
            for number in range(2000):
                fill(store, 1, number)
                stats = store.stats()
                largest = max(largest, stats.log_bytes)
                bound = max(bound, snapshots.LOG_FACTOR_MAX * stats.snapshot_log_bytes + 200)

        thread = threading.Thread(target=work)
        thread.start()
        assert writing.wait(60)
        while store.stats().log_bytes <= snapshots.LOG_FACTOR_MAX * store.stats().snapshot_log_bytes:
            threading.Event().wait(0.001)
        go_on.set()
        thread.join(60)
        assert not thread.is_alive()
        assert largest <= bound
        assert len(store.family("default")) == 2000
        assert store.stats().snapshots_taken > 0


def test_close_gives_up_a_snapshot_in_progress(files: WatchedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing does not wait for a large snapshot, and leaves no temporary file."""
    monkeypatch.setattr("pystate.engine.snapshot_writer._BLOCK_ENTRIES", 1)
    writing, go_on = threading.Event(), threading.Event()

    def hold_up(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".snapshot.tmp"):
            writing.set()
            go_on.wait()

    store = pystate.open(DIRECTORY, files=files, snapshot_log_bytes=2000)
    files.before = hold_up
    number = 0
    while not writing.is_set():
        fill(store, 1, number)
        number += 1
        writing.wait(0.01)
    expected = number
    closing = threading.Thread(target=store.close)
    closing.start()
    while not store._parts.snapshots._cancelled:  # type: ignore[union-attr]
        threading.Event().wait(0.001)
    go_on.set()
    closing.join(60)
    assert not closing.is_alive()
    assert not [name for name in names(files) if name.endswith((".tmp", f"{expected:020d}.snapshot"))]
    assert files.open_files == []
    files.before = None
    with pystate.open(DIRECTORY, files=files) as store:
        assert len(store.family("default")) == expected
        assert store.stats().recovery is not None
        assert store.stats().recovery.decision == "clean"  # type: ignore[union-attr]


def test_snapshot_of_a_store_with_commits_in_between_holds_one_state(files: WatchedFiles) -> None:
    """Rows 29 and 73: what is committed while it is written is in the log behind it, not in it."""
    memory = files._real
    assert isinstance(memory, MemoryFiles)
    with pystate.open(DIRECTORY, files=files, families=["other"], durability="process") as store:
        fill(store, 50)
        expected = contents(store)

        def commit(operation: str, path: str) -> None:
            if path.endswith(".snapshot.tmp") and operation == "write":
                with store.begin() as txn:
                    txn.put("default", b"000000", b"changed %d" % store.sequence)
                    txn.delete("default", b"%06d" % (store.sequence % 50))
                    txn.put("other", b"%d" % store.sequence, b"")

        files.before = commit
        store.snapshot()
        files.before = None
        assert store.sequence > 51
        live = contents(store)
        image = memory.image(DIRECTORY)
    snapshot = MemoryFiles().restore(
        DIRECTORY, {snapshot_name(50): image[snapshot_name(50)], f"{51:020d}.log": image[f"{51:020d}.log"][:48]}
    )
    with pystate.open(DIRECTORY, files=snapshot, read_only=True) as reader:
        assert contents(reader) == expected
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == live


def test_snapshots_asked_for_by_many_threads_are_taken_one_at_a_time(files: WatchedFiles) -> None:
    """Row 29: a snapshot races with commits and with another snapshot."""
    with pystate.open(DIRECTORY, files=files, durability="process", snapshot_log_bytes=3000) as store:

        def work(name: int) -> None:
            for number in range(40):
                store.family("default")[b"%d %d" % (name, number)] = b"v" * 20
                if number % 5 == name:
                    store.snapshot()

        workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        store.snapshot()
        assert len(store.family("default")) == 160
        assert store.stats().snapshot_error is None
        assert names(files) == [f"{160:020d}.snapshot", f"{161:020d}.log"]
    with pystate.open(DIRECTORY, files=files) as store:
        assert len(store.family("default")) == 160


def test_family_that_was_never_touched_is_in_the_next_snapshot(files: WatchedFiles) -> None:
    """A snapshot decodes what it has to copy."""
    with pystate.open(DIRECTORY, files=files, families=["other"]) as store:
        store.family("other")[b"k"] = b"v"
        store.snapshot()
    with pystate.open(DIRECTORY, files=files) as store:
        fill(store, 1)
        assert store.stats().families["other"] is None
        store.snapshot()
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == {"default": {b"000000": b"v" * 50}, "other": {b"k": b"v"}}


def test_snapshot_over_a_damaged_family_is_refused_and_nothing_is_removed(files: WatchedFiles) -> None:
    """Guarantee 5: the damaged snapshot is all there is of that family, so it stays, and commits go on."""
    memory = files._real
    assert isinstance(memory, MemoryFiles)
    with pystate.open(DIRECTORY, files=files, families=["other"]) as store:
        store.family("other")[b"needle"] = b"v"
        store.snapshot()
    image = memory.image(DIRECTORY)
    image[snapshot_name(1)] = image[snapshot_name(1)].replace(b"needle", b"noodle")
    memory.restore(DIRECTORY, image)
    with pystate.open(DIRECTORY, files=files) as store:
        fill(store, 1)
        with pytest.raises(pystate.CorruptionError):
            store.snapshot()
        fill(store, 1, 1)
        assert store.stats().snapshots_taken == 0
    assert memory.image(DIRECTORY)[snapshot_name(1)] == image[snapshot_name(1)]


def test_file_that_cannot_be_removed_waits_for_the_next_time(files: WatchedFiles) -> None:
    """Row 26: a superseded file that stays is no failure; the next snapshot or opening removes it."""
    with pystate.open(DIRECTORY, files=files) as store:
        fill(store, 1)
        files.before = nth("unlink", 1, lambda: failure(errno.EACCES), for_ever=True)
        store.snapshot()
        files.before = None
        assert names(files) == [f"{0:020d}.snapshot", f"{1:020d}.log", f"{1:020d}.snapshot", f"{2:020d}.log"]
        fill(store, 1, 1)
        store.snapshot()
        assert names(files) == [f"{2:020d}.snapshot", f"{3:020d}.log"]
