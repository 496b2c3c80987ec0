"""Exporting the present state to a file while commits go on, and looking at such a file."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate import ExportReport, Store
from pystate.engine import export, snapshot_writer
from pystate.engine.files import write_all
from pystate.engine.names import snapshot_name
from pystate.engine.os_files import OsFiles
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.model import State, keys, values
from tests.engine.small_stores import CONDITIONS, SMALL, Condition
from tests.engine.watched_files import WatchedFiles, nth

OUTSIDE = "/outside"
FILE = f"{OUTSIDE}/exported"
INSTALLED = "/installed"
states = st.dictionaries(st.sampled_from(["default", "a", "b"]), st.dictionaries(keys, values, max_size=6)).map(
    lambda state: {"default": {}, **state}
)


def with_outside(files: MemoryFiles) -> MemoryFiles:
    """With a directory to export to."""
    files.make_directory(OUTSIDE)
    return files


@pytest.fixture
def files() -> MemoryFiles:
    return with_outside(MemoryFiles())


def held(files: MemoryFiles, path: str = FILE) -> State:
    """What an exported file holds, by making a store of it."""
    pystate.install(INSTALLED, path, files=files)
    with pystate.open(INSTALLED, files=files, read_only=True) as store:
        return {name: dict(store.family(name)) for name in store.families}


@given(states, st.sampled_from(["nothing", "snapshot", "reopen", "snapshot, reopen", "reopen, commit"]))
def test_an_export_is_the_state_and_says_which(state: State, then: str) -> None:
    """Whether it is copied from the newest snapshot or written from memory."""
    files = with_outside(MemoryFiles())
    store = pystate.open(DIRECTORY, files=files, families=list(state), metadata={"format": "1"})
    for name, entries in state.items():
        store.family(name).update(entries)
    for what in then.split(", "):
        if what == "snapshot":
            store.snapshot()
        elif what == "commit":
            store.family("default")[b"more"] = b"m"
            state = {**state, "default": {**state["default"], b"more": b"m"}}
        elif what == "reopen":
            store.close()
            store = pystate.open(DIRECTORY, files=files)
    report = store.export(FILE)
    assert report.path == FILE
    assert (report.id, report.sequence) == (store.id, store.sequence)
    assert report.copied == (store.stats().snapshot_sequence == store.sequence)
    info = pystate.read_snapshot(FILE, thorough=True, files=files)
    assert info.families == {name: len(entries) for name, entries in sorted(state.items())}
    assert info.metadata == {"format": "1"}
    assert (info.path, info.id, info.sequence, info.bytes, info.digest) == (
        report.path, report.id, report.sequence, report.bytes, report.digest
    )  # fmt: skip
    assert report.bytes == len(files.image(OUTSIDE)["exported"])
    store.close()
    assert held(files) == state


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_in_any_condition_is_exported(condition: Condition, read_only: bool) -> None:
    files = with_outside(SMALL[condition].files())
    with pystate.open(DIRECTORY, files=files, read_only=read_only) as store:
        before = files.image()
        store.export(FILE)
        if read_only:
            assert files.image() == before
    assert held(files) == SMALL[condition].state


def test_a_store_in_memory_is_exported_too(tmp_path: Path) -> None:
    """So what was made in memory can be kept."""
    with pystate.memory(families=["a"], metadata={"format": "1"}) as store:
        store.family("a").update({b"k": b"v"})
        report = store.export(tmp_path / "exported")
        assert (report.id, report.copied) == (store.id, False)
    pystate.install(tmp_path / "store", tmp_path / "exported")
    with pystate.open(tmp_path / "store") as kept:
        assert dict(kept.family("a")) == {b"k": b"v"}
        assert kept.metadata == {"format": "1"}


def test_id_and_sequence_tell_whether_anything_has_changed(files: MemoryFiles) -> None:
    """So that a backup of an unchanged store copies nothing."""
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"k"] = b"v"
        report = store.export(FILE)
        assert (store.id, store.sequence) == (report.id, report.sequence)
        store.snapshot()
    with pystate.open(DIRECTORY, files=files) as store:
        assert (store.id, store.sequence) == (report.id, report.sequence)
        store.family("default")[b"k"] = b"v"
        assert (store.id, store.sequence) != (report.id, report.sequence)
    pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.metadata.update(a="1"), files=files)
    with pystate.open(DIRECTORY, files=files) as store:
        assert store.id == report.id
        assert store.sequence > report.sequence
    pystate.install(DIRECTORY, FILE, files=files)
    with pystate.open(DIRECTORY, files=files) as store:
        assert store.id != report.id


def test_two_exports_of_one_state_are_the_same_bytes(files: MemoryFiles) -> None:
    """Copied or written anew, before and after a snapshot."""
    with pystate.open(DIRECTORY, files=files, families=["b", "a"]) as store:
        store.family("a").update({b"%d" % number: b"v" * number for number in range(50)})
        first = store.export(f"{OUTSIDE}/first")
        store.snapshot()
        second = store.export(f"{OUTSIDE}/second")
    assert (first.copied, second.copied) == (False, True)
    assert first.digest == second.digest
    assert files.image(OUTSIDE)["first"] == files.image(OUTSIDE)["second"]


def test_what_is_exported_is_durable_in_the_store() -> None:
    """Or the next store could have another commit under the same id and sequence."""
    files = WatchedFiles(with_outside(MemoryFiles()))
    with pystate.open(DIRECTORY, files=files, durability="process") as store:
        store.family("default")[b"k"] = b"v"
        assert store.stats().durable_sequence == 0
        files.trace.clear()
        store.export(FILE)
        assert store.stats().durable_sequence == 1
    trace = [call for call in files.trace if call[0] in ("sync", "replace")]
    assert trace.index(("sync", f"{DIRECTORY}/{1:020d}.log")) < trace.index(("replace", FILE))


def test_failed_sync_fails_the_store_and_exports_nothing() -> None:
    files = WatchedFiles(with_outside(MemoryFiles()))
    with pystate.open(DIRECTORY, files=files, durability="process") as store:
        store.family("default")[b"k"] = b"v"
        files.before = nth("sync", 1, lambda: failure(errno.EIO), for_ever=True)
        with pytest.raises(pystate.StoreFailedError):
            store.export(FILE)
        files.before = None
        with pytest.raises(pystate.StoreFailedError):
            store.export(FILE)
        assert dict(store.family("default")) == {b"k": b"v"}
    assert "exported" not in files._real.image(OUTSIDE)  # type: ignore[attr-defined]


def test_commits_and_snapshots_go_on_meanwhile(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 82: the export is the state as of its call, one commit point, whatever happens while it is written."""
    monkeypatch.setattr(snapshot_writer, "_BLOCK_ENTRIES", 2)
    store = pystate.open(DIRECTORY, files=files, families=["a"])
    store.family("a").update({b"%02d" % number: b"old" for number in range(20)})
    expected = {"default": {}, "a": dict(store.family("a"))}
    blocks = 0
    write = write_all

    def write_and_commit(file: object, data: bytes) -> None:
        nonlocal blocks
        write(file, data)  # type: ignore[arg-type]
        if threading.current_thread() is threading.main_thread() and file in targets:
            blocks += 1
            store.family("a")[b"%02d" % (blocks * 3 % 25)] = b"new"
            store.family("a").delete(b"%02d" % (blocks * 5 % 20))
            if blocks == 3:
                store.snapshot()
            if blocks == 5:
                store.drop_family("a")
                store.create_family("a")

    targets: list[object] = []
    create = files.create

    def create_and_note(path: str) -> object:
        file = create(path)
        if path.startswith(FILE):
            targets.append(file)
        return file

    monkeypatch.setattr(files, "create", create_and_note)
    monkeypatch.setattr(snapshot_writer, "write_all", write_and_commit)
    report = store.export(FILE)
    monkeypatch.setattr(snapshot_writer, "write_all", write)
    assert blocks > 8
    assert store.sequence > report.sequence + 8
    store.close()
    assert held(files) == expected


def test_a_snapshot_that_supersedes_the_one_that_is_copied_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is removed while it is read."""
    files = with_outside(MemoryFiles())
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default").update({b"k": b"v"})
        store.snapshot()
        copy = snapshot_writer.copy_content

        def superseded_and_copied(*arguments: object) -> object:
            store.family("default")[b"k"] = b"w"
            store.snapshot()
            return copy(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(export, "copy_content", superseded_and_copied)
        report = store.export(FILE)
        assert (report.copied, report.sequence) == (True, 1)
    assert held(files) == {"default": {b"k": b"v"}}


def test_a_snapshot_that_has_gone_bad_is_not_copied(files: MemoryFiles) -> None:
    """What was read from it before is written from memory; what is still to be read is refused."""
    store = pystate.open(DIRECTORY, files=files)
    store.family("default").update({b"k": b"v" * 50})
    store.snapshot()
    name = snapshot_name(1)
    for damaged in (
        files.image()[name].replace(b"vvvv", b"vvwv", 1),
        files.image()[name][:-1],
    ):
        data = files._files[f"{DIRECTORY}/{name}"].data
        data[:] = damaged
        report = store.export(FILE)
        assert not report.copied
        assert pystate.read_snapshot(FILE, thorough=True, files=files).digest == report.digest
    store.close()
    files._files[f"{DIRECTORY}/{name}"].data[:] = files.image(OUTSIDE)["exported"].replace(b"vvvv", b"vvwv", 1)
    with pystate.open(DIRECTORY, files=files) as store, pytest.raises(pystate.CorruptionError):
        store.export(f"{OUTSIDE}/other")
    assert "other" not in files.image(OUTSIDE)
    assert "other.tmp" not in files.image(OUTSIDE)


def test_a_snapshot_of_a_log_that_was_replaced_is_not_taken_for_the_state(files: MemoryFiles) -> None:
    """A reader that has not refreshed yet exports what it shows."""
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"k"] = b"v"
    reader = pystate.open(DIRECTORY, files=files, read_only=True)
    pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.family("default").clear(), files=files)
    report = reader.export(FILE)
    assert (report.sequence, report.copied) == (1, False)
    assert held(files) == {"default": {b"k": b"v"}}
    reader.refresh()
    assert reader.export(FILE).copied
    reader.close()
    assert held(files) == {"default": {}}


def test_a_snapshot_of_another_store_in_the_same_place_is_not_taken_for_the_state(files: MemoryFiles) -> None:
    """A reader whose directory was removed and made anew by somebody."""
    for value in (b"one", b"two"):
        files.restore(DIRECTORY, {})
        with pystate.open(DIRECTORY, files=files) as store:
            store.family("default")[b"k"] = value
            store.snapshot()
        if value == b"one":
            reader = pystate.open(DIRECTORY, files=files, read_only=True)
            assert dict(reader.family("default")) == {b"k": b"one"}
    report = reader.export(FILE)
    assert (report.id, report.sequence, report.copied) == (reader.id, 1, False)
    reader.close()
    assert held(files) == {"default": {b"k": b"one"}}


@pytest.mark.parametrize("operation", ["create", "write", "sync", "replace", "sync_directory"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("copied", [False, True])
def test_a_failure_leaves_the_file_that_was_there_and_a_store_that_goes_on(
    operation: str, number: int, copied: bool
) -> None:
    """Row 39: no debris; and the name of the old file stays on the old content."""
    memory = with_outside(MemoryFiles())
    files = WatchedFiles(memory)
    with pystate.open(DIRECTORY, files=files) as store:
        old = store.export(FILE)
        store.family("default")[b"k"] = b"v"
        if copied:
            store.snapshot()
        store.sync()
        files.before = lambda name, path: (
            _fail(number) if name == operation and not path.startswith(DIRECTORY) else None
        )
        with pytest.raises(pystate.DiskFullError if number == errno.ENOSPC else OSError) as caught:
            store.export(FILE)
        assert getattr(caught.value, "path", FILE) == FILE
        files.before = None
        assert set(memory.image(OUTSIDE)) == {"exported"}
        if operation != "sync_directory":  # then the new one has the name already
            assert pystate.read_snapshot(FILE, thorough=True, files=files).digest == old.digest
        store.family("default")[b"k"] = b"w"
        assert store.export(FILE).sequence == 2
    assert (files.open_files, files.held_locks) == ([], 0)


def _fail(number: int) -> None:
    raise failure(number)


def test_closing_the_store_ends_an_export(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written or copied."""
    monkeypatch.setattr(snapshot_writer, "_BLOCK_ENTRIES", 1)
    for copied in (False, True):
        store = pystate.open(DIRECTORY, files=files)
        store.family("default").update({b"%d" % number: b"" for number in range(5)})
        if copied:
            store.snapshot()
        create = files.create

        def create_and_close(path: str, store: Store = store, create: object = create) -> object:
            if path.startswith(FILE):
                store.close()
            return create(path)  # type: ignore[operator]

        monkeypatch.setattr(files, "create", create_and_close)
        with pytest.raises(pystate.ClosedError, match="exported"):
            store.export(FILE)
        monkeypatch.setattr(files, "create", create)
        assert files.image(OUTSIDE) == {}
        with pytest.raises(pystate.ClosedError):
            store.export(FILE)


def test_places_that_are_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    with pystate.open(tmp_path / "store") as store:
        before = sorted(tmp_path.rglob("*"))
        wrong: Iterator[tuple[type[Exception], object]] = iter(
            [
                (ValueError, tmp_path / "store" / "file"),
                (ValueError, tmp_path / "store" / ".." / "store" / "file"),
                (ValueError, tmp_path),
                (ValueError, ""),
                (TypeError, b"bytes"),
                (TypeError, None),
                (FileNotFoundError, tmp_path / "missing" / "file"),
            ]
        )
        for error, path in wrong:
            with pytest.raises(error):
                store.export(path)  # type: ignore[arg-type]
        assert sorted(tmp_path.rglob("*")) == before


def test_several_threads_export_while_others_commit(tmp_path: Path) -> None:
    """Each file holds one commit point: both families in step."""
    store = pystate.open(tmp_path / "store", families=["a", "b"], durability="process", snapshot_log_bytes=4096)
    stop, reports = threading.Event(), []

    def commit() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with store.begin() as txn:
                txn.put("a", b"n", b"%d" % number)
                txn.put("b", b"n", b"%d" % number)
                txn.put("b", b"%d" % (number % 100), b"v" * 100)
            time.sleep(0)

    def export_often(name: str) -> None:
        for number in range(8):
            reports.append(store.export(tmp_path / f"{name}-{number}"))

    committer = threading.Thread(target=commit)
    exporters = [threading.Thread(target=export_often, args=(name,)) for name in "xy"]
    for thread in [committer, *exporters]:
        thread.start()
    for thread in exporters:
        thread.join()
    stop.set()
    committer.join()
    store.close()
    assert len(reports) == 16
    for at, report in enumerate(reports):
        pystate.install(tmp_path / f"store-{at}", report.path)
        with pystate.open(tmp_path / f"store-{at}") as made:
            assert made.family("a").get(b"n") == made.family("b").get(b"n")
            assert made.sequence >= report.sequence


def test_a_commit_waits_for_no_more_than_a_sync(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the file is written, a commit of another thread goes through."""
    store = pystate.open(DIRECTORY, files=files)
    store.family("default").update({b"k": b"v"})
    write = snapshot_writer.write_content

    def write_and_let_others_commit(*arguments: object) -> object:
        thread = threading.Thread(target=lambda: store.family("default").put(b"other", b"thread"))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(export, "write_content", write_and_let_others_commit)
    assert store.export(FILE).sequence == 1
    assert store.sequence == 2
    store.close()
    assert held(files) == {"default": {b"k": b"v"}}


def exported(files: MemoryFiles) -> ExportReport:
    with pystate.open(DIRECTORY, files=files, families=["a"]) as store:
        store.family("a").update({b"%d" % number: b"v" * 30 for number in range(30)})
        return store.export(FILE)


def test_every_byte_of_a_file_is_checked(files: MemoryFiles) -> None:
    """A cut, a flipped bit, another file: each is damage, and only damage of a block needs the thorough look."""
    exported(files)
    data = files.image(OUTSIDE)["exported"]
    quick = 0
    for at in range(len(data)):
        wrong = bytearray(data)
        wrong[at] ^= 1 << at % 8
        for damaged in (bytes(wrong), data[:at]):
            files.restore(OUTSIDE, {"exported": damaged})
            with pytest.raises(pystate.CorruptionError) as caught:
                pystate.read_snapshot(FILE, thorough=True, files=files)
            assert caught.value.path == FILE
        files.restore(OUTSIDE, {"exported": bytes(wrong)})
        try:
            pystate.read_snapshot(FILE, files=files)
        except pystate.CorruptionError:
            quick += 1
    assert 0 < quick < len(data)


def test_files_that_are_not_there_or_newer(files: MemoryFiles) -> None:
    with pytest.raises(FileNotFoundError):
        pystate.read_snapshot(FILE, files=files)
    with pytest.raises(TypeError):
        pystate.read_snapshot(None, files=files)  # type: ignore[arg-type]


def test_a_snapshot_in_a_store_can_be_looked_at_too(tmp_path: Path) -> None:
    with pystate.open(tmp_path / "store", metadata={"format": "1"}) as store:
        info = pystate.read_snapshot(tmp_path / "store" / snapshot_name(0), files=OsFiles())
        assert (info.id, info.sequence, info.families) == (store.id, 0, {"default": 0})
        assert info.metadata == store.metadata == {"format": "1"}
