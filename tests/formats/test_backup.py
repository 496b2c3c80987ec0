"""Backups: what is made, listed, checked, restored and removed. Crashes and faults are in `test_backup_crashes`."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pystate
from pystate import Store
from pystate.engine import snapshot_format
from pystate.engine.files import read_whole, write_all
from pystate.errors import (
    BackupDamagedError,
    BackupError,
    BackupNotFoundError,
    CorruptionError,
    LockedError,
    NotARepositoryError,
    PystateError,
    RepositoryLockedError,
    RepositoryNotFoundError,
)
from pystate.formats import backup
from pystate.formats.backup import calls, manifests
from pystate.formats.backup import repository as repository_module
from pystate.formats.backup.manifests import content_name, manifest_name
from pystate.testing import Fault, SimulatedDisk
from tests.engine.children import Child
from tests.engine.directories import contents, fingerprint
from tests.engine.interrupts import Interrupt, at_each_place
from tests.engine.memory_files import DIRECTORY, MemoryFiles
from tests.engine.watched_files import WatchedFiles

REPOSITORY = "/backups"
NOW = datetime(2025, 9, 25, 0, 42, 20, tzinfo=UTC)


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()} - {"LOCK"}


def ids(repository: Path | str, **options: Any) -> list[int]:
    return [info.id for info in backup.list(repository, **options)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a store with two families; the format of its content is 0.46.0."""
    path = tmp_path / "store"
    with pystate.open(path, families=["a"], metadata={"format": "0.46.0"}) as store:
        store.family("default")[b"x"] = b"1"
        store.family("a").update({b"%d" % number: b"v" * number for number in range(50)})
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Where backups go; not there yet."""
    return tmp_path / "backups"


def filled(files: MemoryFiles) -> Store:
    """An open store with some entries."""
    store = pystate.open(DIRECTORY, files=files, families=["a"], metadata={"format": "0.46.0"})
    store.family("a").update({b"%d" % number: b"v" * number for number in range(50)})
    return store


def put(path: Path, value: bytes) -> None:
    with pystate.open(path) as store:
        store.family("default")[b"x"] = value


def make(path: Path, repository: Path, **options: Any) -> backup.BackupInfo:
    with pystate.open(path) as store:
        return backup.create(store, repository, **options)


# Making, listing, removing


def test_ids_count_up_and_the_newest_are_kept(path: Path, repository: Path) -> None:
    """Check R222: 1, 2, 3; a fourth with keep 3; and with keep 1."""
    with pystate.open(path) as store:
        for number in (1, 2, 3):
            store.family("default")[b"x"] = b"%d" % number
            assert backup.create(store, repository, keep=3).id == number
        assert ids(repository) == [1, 2, 3]
        store.family("default")[b"x"] = b"4"
        assert backup.create(store, repository, keep=3).id == 4
        assert ids(repository) == [2, 3, 4]
        assert backup.create(store, repository, keep=1).id == 5
    assert ids(repository) == [5]
    assert names(repository) == {manifest_name(5), content_name(4)}  # the fifth is the same state as the fourth


def test_what_is_told_of_a_backup(path: Path, repository: Path) -> None:
    with pystate.open(path) as store:
        info = backup.create(store, repository, now=NOW)
        assert (info.store_id, info.sequence) == (store.id, store.sequence)
    assert (info.id, info.timestamp, info.version) == (1, NOW, "0.46.0")
    assert info.families == {"a": 50, "default": 1}
    assert info.size == (repository / content_name(1)).stat().st_size
    assert backup.list(repository) == (info,)
    assert backup.find(repository) == backup.find(repository, 1) == info


def test_time_is_the_instant_in_whole_seconds(path: Path, repository: Path) -> None:
    """Check R223: 1758760940 s is in 2025, not 1970; whatever the time zone that it is given in."""
    instant = datetime.fromtimestamp(1758760940.75, timezone(timedelta(hours=-7)))
    with pystate.open(path) as store:
        made = backup.create(store, repository, now=instant)
        before = datetime.now(UTC).replace(microsecond=0)
        other = backup.create(store, repository)
    [listed, latest] = backup.list(repository)
    assert made == listed
    assert (listed.timestamp.year, listed.timestamp.timestamp()) == (2025, 1758760940)
    assert listed.timestamp.tzinfo == UTC
    assert before <= latest.timestamp == other.timestamp <= datetime.now(UTC)


@pytest.mark.parametrize(
    "now", [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)]
)
def test_time_may_be_any_of_the_calendar(repository: Path, now: datetime) -> None:
    with pystate.memory() as store:
        backup.create(store, repository, now=now)
    assert backup.find(repository).timestamp == now


def test_store_without_a_format_has_no_version(repository: Path) -> None:
    with pystate.memory(metadata={"other": "x"}) as store:
        assert backup.create(store, repository).version is None
    with pystate.memory(metadata={"format": "not a version"}) as store:
        assert backup.create(store, repository).version == "not a version"


def test_ids_are_not_given_again(path: Path, repository: Path) -> None:
    """Whatever is removed, the newest one stays, and with it the number."""
    for _ in range(3):
        make(path, repository)
        put(path, b"other")
    assert backup.purge(repository, 1) == (1, 2)
    assert backup.purge(repository, 1) == ()
    assert make(path, repository).id == 4
    damaged = repository / manifest_name(4)
    damaged.write_bytes(b"junk")
    assert ids(repository) == [3]
    assert backup.purge(repository, 1) == ()
    assert make(path, repository).id == 5
    assert backup.purge(repository, 1) == (3, 4)
    assert names(repository) == {manifest_name(5), content_name(5)}


def test_purge_keeps_what_several_share(path: Path, repository: Path) -> None:
    with pystate.open(path) as store:
        for _ in range(4):
            backup.create(store, repository)
    assert names(repository) == {content_name(1), *map(manifest_name, range(1, 5))}
    assert backup.purge(repository, 2) == (1, 2)
    assert names(repository) == {content_name(1), manifest_name(3), manifest_name(4)}
    assert backup.verify(repository).ok
    assert backup.purge(repository, 7) == ()


def test_purge_counts_only_what_can_be_restored(path: Path, repository: Path) -> None:
    """Or the last good one would go for one that is damaged."""
    for number in range(3):
        put(path, b"%d" % number)
        make(path, repository)
    (repository / content_name(3)).unlink()
    assert backup.purge(repository, 2) == ()
    assert backup.purge(repository, 1) == (1,)
    assert ids(repository) == [2]
    assert (repository / manifest_name(3)).exists()


def test_content_that_a_damaged_manifest_may_name_is_kept(path: Path, repository: Path) -> None:
    """Its bytes are all there is of that backup. When the manifest is removed by hand, or by age, it goes."""
    make(path, repository)
    put(path, b"2")
    make(path, repository)
    manifest = repository / manifest_name(1)
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-1])
    backup.purge(repository, 9)
    assert content_name(1) in names(repository)
    manifest.write_bytes(whole)
    assert backup.verify(repository).ok
    manifest.unlink()
    backup.purge(repository, 9)
    assert names(repository) == {manifest_name(2), content_name(2)}


def test_unfinished_backup_is_not_offered_and_removed_by_the_next_call(path: Path, repository: Path) -> None:
    """Row 83: content without a manifest is none, and no temporary file is."""
    make(path, repository)
    for name in (content_name(2), f"{content_name(3)}.tmp", f"{manifest_name(2)}.tmp"):
        (repository / name).write_bytes((repository / content_name(1)).read_bytes())
    assert ids(repository) == [1]
    assert backup.find(repository).id == 1
    with pytest.raises(BackupNotFoundError):
        backup.find(repository, 2)
    assert backup.verify(repository).ok
    backup.purge(repository, 1)
    assert names(repository) == {manifest_name(1), content_name(1)}


# What is copied


def test_unchanged_store_is_not_copied(path: Path, repository: Path) -> None:
    """A second backup is one small file; snapshots and reopening make no difference, a commit does."""
    with pystate.open(path) as store:
        first = backup.create(store, repository, now=NOW)
        store.snapshot()
        second = backup.create(store, repository, now=NOW)
    third = make(path, repository)
    with pystate.open(path, read_only=True) as reader:
        backup.create(reader, repository)
    assert names(repository) == {content_name(1), *map(manifest_name, range(1, 5))}
    assert (second.id, second.size, second.sequence) == (2, first.size, first.sequence)
    assert pystate.formats.backup.restore(path.with_name("other"), repository, 4).backup.size == third.size
    put(path, b"1")  # the same value: another commit, the same state
    make(path, repository)
    assert content_name(5) in names(repository)


def test_backup_of_an_unchanged_store_writes_less_than_a_kilobyte() -> None:
    """A backup of an unchanged store costs no copy."""
    disk = SimulatedDisk()
    with pystate.open(DIRECTORY, files=disk) as store:
        store.family("default").update({b"%d" % number: bytes(1000) for number in range(100)})
        backup.create(store, REPOSITORY, files=disk)
        before = disk.used_bytes()
        backup.create(store, REPOSITORY, files=disk)
        assert disk.used_bytes() - before < 1000


def test_directory_that_was_copied_back_by_hand_is_not_taken_for_unchanged(tmp_path: Path, repository: Path) -> None:
    """Then the same id and sequence have two states, and the backup must be of the one that is there."""
    path, kept = tmp_path / "store", tmp_path / "kept"
    with pystate.open(path) as store:
        store.family("default")[b"x"] = b"1"
    kept.mkdir()
    for entry in path.iterdir():
        (kept / entry.name).write_bytes(entry.read_bytes())
    put(path, b"in the first life")
    first = make(path, repository)
    put(kept, b"in the second life")
    second = make(kept, repository)
    assert (first.store_id, first.sequence) == (second.store_id, second.sequence)
    for number, value in ((1, b"in the first life"), (2, b"in the second life")):
        backup.restore(tmp_path / "restored", repository, number)
        assert contents(tmp_path / "restored") == {"default": {b"x": value}}


@pytest.mark.parametrize("change", ["value", "key", "more", "fewer", "family", "empty", "metadata"])
def test_any_difference_makes_a_copy(tmp_path: Path, repository: Path, change: str) -> None:
    """Of two stores with the same id and sequence, one copied by hand."""
    files = MemoryFiles()
    with pystate.open(DIRECTORY, files=files, families=["a"], metadata={"m": "1"}) as store:
        store.family("a").update({b"k": b"v", b"l": b"w"})
    image = files.image()

    def live(metadata: str = "1") -> Store:
        files.restore(DIRECTORY, image)
        store = pystate.open(DIRECTORY, files=files)
        if change == "metadata":
            store._parts.header.metadata["m"] = metadata
        return store

    edits: dict[str, tuple[Any, Any]] = {
        "value": (lambda s: s.family("a").put(b"k", b"1"), lambda s: s.family("a").put(b"k", b"2")),
        "key": (lambda s: s.family("a").put(b"m", b""), lambda s: s.family("a").put(b"n", b"")),
        "more": (lambda s: s.family("a").put(b"k", b"v"), lambda s: s.family("a").put(b"n", b"")),
        "fewer": (lambda s: s.family("a").put(b"k", b"v"), lambda s: s.family("a").delete(b"k")),
        "family": (lambda s: s.create_family("b"), lambda s: s.create_family("c")),
        "empty": (lambda s: s.family("a").put(b"k", b"v"), lambda s: s.create_family("c")),
        "metadata": (lambda s: s.family("a").put(b"k", b"v"), lambda s: s.family("a").put(b"k", b"v")),
    }
    made = []
    for number, edit in enumerate(edits[change]):
        with live(str(number)) as store:
            edit(store)
            made.append((backup.create(store, REPOSITORY, files=files), backup.create(store, REPOSITORY, files=files)))
    (first, same), (second, last) = made
    assert (first.store_id, first.sequence) == (second.store_id, second.sequence)
    image = files.image(REPOSITORY)
    assert {name for name in image if name.endswith("content")} == {content_name(1), content_name(3)}
    assert (same.families, last.families) == (first.families, second.families)


def test_content_that_has_gone_bad_is_not_shared() -> None:
    """Wherever it is damaged, the next backup is a good one."""
    files = MemoryFiles()
    with filled(files) as store:
        backup.create(store, REPOSITORY, files=files)
        image = files.image(REPOSITORY)
        whole = image[content_name(1)]
        for at in range(0, len(whole), 5):
            damaged = whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :]
            files.restore(REPOSITORY, {**image, content_name(1): damaged})
            info = backup.create(store, REPOSITORY, files=files)
            assert files.image(REPOSITORY)[content_name(info.id)] == whole
            assert backup.verify(REPOSITORY, info.id, files=files).ok


def test_commit_that_comes_between_makes_a_copy(path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the content is compared: to what is still to be looked at, or was, or the family itself."""
    with pystate.open(path) as store:
        backup.create(store, repository)
        commits: list[Callable[[], object]] = [
            lambda: store.family("a").put(b"0", b"new"),
            lambda: store.family("default").put(b"x", b"new"),
            lambda: store.drop_family("a"),
        ]
        for number, commit in enumerate(commits, start=2):
            todo = [commit]

            def family(name: str, todo: list[Callable[[], object]] = todo) -> pystate.Family:
                if name == "a" and todo:
                    todo.pop()()
                return type(store).family(store, name)

            with monkeypatch.context() as patch:
                patch.setattr(store, "family", family)
                info = backup.create(store, repository)
            assert not todo
            assert info.sequence == store.sequence
            assert content_name(number) in names(repository)
    assert backup.verify(repository).ok


# Beside commits, readers and other processes


def test_backups_beside_commits_and_snapshots_are_each_one_commit(tmp_path: Path, repository: Path) -> None:
    """Row 82: of two families that every commit changes alike, and of a counter that says which commit it is."""
    path = tmp_path / "store"
    done = threading.Event()
    with pystate.open(path, families=["a", "b"], durability="process", snapshot_log_bytes=1 << 14) as store:

        def write(name: bytes) -> None:
            number = 0
            while not done.is_set():
                number += 1

                def step(txn: pystate.Transaction, number: int = number) -> None:
                    for family in ("a", "b"):
                        txn.put(family, name + b"%d" % (number % 97), b"%d" % number)
                        txn.put(family, name, b"%d" % number)

                store.transact(step)

        threads = [threading.Thread(target=write, args=(name,)) for name in (b"x", b"y")]
        for thread in threads:
            thread.start()
        try:
            made = [backup.create(store, repository) for _ in range(8)]
        finally:
            done.set()
            for thread in threads:
                thread.join()
        last = store.sequence
    report = backup.verify(repository)
    assert report.ok
    assert report.backups == tuple(made)
    sequences = [info.sequence for info in made]
    assert sequences == sorted(sequences)
    assert sequences[-1] <= last
    for info in made:
        backup.restore(tmp_path / "restored", repository, info.id)
        state = contents(tmp_path / "restored")
        assert state["a"] == state["b"]
        assert int(state["a"].get(b"x", 0)) + int(state["a"].get(b"y", 0)) == info.sequence
        for name in (b"x", b"y"):
            top = int(state["a"].get(name, 0))
            assert all(state["a"][name + b"%d" % (n % 97)] == b"%d" % n for n in range(max(1, top - 96), top + 1))


def test_backup_is_made_beside_the_writer_in_another_process(tmp_path: Path, repository: Path) -> None:
    """By a store that is open for reading only; the writer is not disturbed, and not one file of it changes."""
    path = tmp_path / "store"
    with pystate.open(path) as store:
        store.family("default")[b"x"] = b"1"
    with Child("serve", path) as child:
        assert child.hear() == "open"
        before = fingerprint(path)
        with pystate.open(path, read_only=True) as reader:
            assert backup.create(reader, repository).id == 1
        assert fingerprint(path) == before
        child.finish()
    backup.restore(tmp_path / "restored", repository)
    assert contents(tmp_path / "restored") == {"default": {b"x": b"1"}}


def test_only_one_makes_backups_at_a_time(path: Path, repository: Path) -> None:
    """Also in one process; listing and restoring go on."""
    with pystate.open(path) as store:
        backup.create(store, repository)
        held = pystate.OsFiles().lock(str(repository), "LOCK", 0.0)
        try:
            for call in (lambda: backup.create(store, repository), lambda: backup.purge(repository, 1)):
                with pytest.raises(RepositoryLockedError) as caught:
                    call()
                assert caught.value.path == caught.value.repository == str(repository)
                assert caught.value.pid is not None
            assert ids(repository) == [1]
            assert backup.verify(repository).ok
            assert backup.restore(path.with_name("other"), repository).backup.id == 1
        finally:
            held.release()
        assert backup.create(store, repository).id == 2


def test_many_threads_that_wait_each_make_one(repository: Path) -> None:
    with pystate.memory() as store:
        made: list[int] = []

        def one(number: int) -> None:
            store.family("default")[b"%d" % number] = b""
            made.append(backup.create(store, repository, lock_timeout=60).id)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(made) == list(range(1, 9)) == ids(repository)
    assert backup.verify(repository).ok


def test_lock_that_was_taken_from_its_holder_is_noticed() -> None:
    """Row 53: nothing is published then, and nothing left behind."""
    files = MemoryFiles()
    watched = WatchedFiles(files)
    with pystate.open(DIRECTORY, files=watched) as store:
        store.family("default")[b"x"] = b"1"
        backup.create(store, REPOSITORY, files=watched)
        store.family("default")[b"x"] = b"2"

        def steal(operation: str, path: str) -> None:
            if path.startswith(REPOSITORY) and operation == "create":
                files.locks.discard(f"{REPOSITORY}/LOCK")

        watched.before = steal
        with pytest.raises(OSError, match="lock file was removed"):
            backup.create(store, REPOSITORY, files=watched)
    watched.before = None
    assert ids(REPOSITORY, files=files) == [1]
    assert {*files.image(REPOSITORY)} == {manifest_name(1), content_name(1)}


READERS: dict[str, Callable[[WatchedFiles], object]] = {
    "list": lambda files: ids(REPOSITORY, files=files),
    "verify": lambda files: [info.id for info in backup.verify(REPOSITORY, files=files).backups],
    "find": lambda files: [backup.find(REPOSITORY, 1, files=files).id],
    "restore": lambda files: [backup.restore("/restored", REPOSITORY, 1, files=files).backup.id],
}


@pytest.mark.parametrize("name", READERS)
def test_reader_beside_a_purge_sees_what_was_or_what_is(name: str) -> None:
    """Whatever is removed between any two of its calls; a backup that is being restored is so, or was not there."""
    seen, at, count, purged = [], 0, 0, True

    def purge_at_once(operation: str, path: str) -> None:
        nonlocal count, purged
        count += 1
        if count == at:
            purged = bool(backup.purge(REPOSITORY, 1, files=files))

    while purged:
        at, count, purged = at + 1, 0, False
        files = MemoryFiles()
        with pystate.open(DIRECTORY, files=files) as store:
            for number in range(3):
                store.family("default")[b"x"] = b"%d" % number
                backup.create(store, REPOSITORY, files=files)
        watched = WatchedFiles(files)
        watched.before = purge_at_once
        try:
            seen.append(READERS[name](watched))
        except BackupNotFoundError:
            assert files.kind("/restored") is None
            seen.append(None)
        else:
            if name == "restore":
                with pystate.open("/restored", files=files, read_only=True) as restored:
                    assert dict(restored.family("default")) == {b"x": b"0"}
        assert not watched.open_files
    whole, left = ([1, 2, 3], [3]) if name in ("list", "verify") else ([1], None)
    assert left in seen
    assert at > 8
    assert [found for found in seen if found not in (whole, left)] == []


def test_interrupt_anywhere_leaves_whole_backups_only() -> None:
    """Row 45: wherever a signal may come while a backup is made and an old one removed."""

    def action(interrupt: Interrupt) -> None:
        files = WatchedFiles(MemoryFiles())
        with pystate.open(DIRECTORY, files=files) as store:
            store.family("default")[b"x"] = b"1"
            backup.create(store, REPOSITORY, files=files)
            store.family("default")[b"x"] = b"2"
            before = len(files.open_files)
            with suppress(KeyboardInterrupt), interrupt:
                backup.create(store, REPOSITORY, keep=1, files=files)
                backup.create(store, REPOSITORY, keep=2, files=files)
            assert (len(files.open_files), files.held_locks) == (before, 1)
            found = ids(REPOSITORY, files=files)
            assert found in ([1], [1, 2], [2], [2, 3])
            assert backup.verify(REPOSITORY, files=files).ok
            assert backup.create(store, REPOSITORY, files=files).id == found[-1] + 1
            for number in found:
                backup.restore("/restored", REPOSITORY, number, files=files)
                with pystate.open("/restored", files=files, read_only=True) as restored:
                    assert restored.family("default")[b"x"] == (b"1" if number == 1 else b"2")

    assert at_each_place(action, calls, manifests, repository_module) > 50


def test_store_that_has_failed_has_no_new_backup() -> None:
    """Row 30: what may not be durable in the store is not in a backup; and nothing is left behind."""
    disk = SimulatedDisk()
    with suppress(pystate.StoreFailedError), pystate.open(DIRECTORY, files=disk, durability="process") as store:
        backup.create(store, REPOSITORY, files=disk)
        before = disk.files().keys()
        store.family("default")[b"x"] = b"1"
        disk.inject(Fault("sync", 1, path=".log"))
        with pytest.raises(pystate.StoreFailedError):
            backup.create(store, REPOSITORY, files=disk)
        assert disk.files().keys() == before
    assert ids(REPOSITORY, files=disk) == [1]


# Restoring


def test_restoring_brings_back_what_was(path: Path, repository: Path) -> None:
    """Check R224: by id, and the newest."""
    for value in (b"first", b"second"):
        put(path, value)
        make(path, repository)
    put(path, b"third")
    report = backup.restore(path, repository, 1)
    assert (report.backup.id, report.replaced, report.path) == (1, True, str(path))
    assert contents(path)["default"] == {b"x": b"first"}
    assert backup.restore(path, repository).backup.id == 2
    assert contents(path)["default"] == {b"x": b"second"}
    assert pystate.verify(path).ok


def test_restored_store_is_another_one_with_the_families_of_the_backup(path: Path, repository: Path) -> None:
    """Check R229: exactly those of the backup are there (H-9); metadata too. Row 84: a new id; the sequence goes up."""
    made = make(path, repository)
    with pystate.open(path) as store:
        old = store.id
        store.drop_family("a")
        store.create_family("b")
        last = store.sequence
    pystate.rewrite(path, lambda rewriting: rewriting.metadata.update(format="0.47.0"))
    report = backup.restore(path, repository)
    with pystate.open(path, families=["a", "default"]) as store:
        assert store.id == report.store_id not in (old, made.store_id)
        assert store.sequence == report.sequence > last
        assert store.metadata == {"format": "0.46.0"}
        assert make_families(store) == made.families
    assert make(path, repository).store_id == report.store_id


def make_families(store: Store) -> dict[str, int]:
    return {name: len(store.family(name)) for name in store.families}


def test_restoring_to_a_new_place(path: Path, repository: Path, tmp_path: Path) -> None:
    make(path, repository)
    before = contents(path)
    report = backup.restore(tmp_path / "new", repository)
    assert not report.replaced
    assert contents(tmp_path / "new") == before


def test_unknown_backup_leaves_the_store_usable(path: Path, repository: Path) -> None:
    """Check R225: (H-8) an id that is not there, no backup at all, no repository."""
    repository.mkdir()
    with pystate.open(path) as store:
        with pytest.raises(BackupNotFoundError) as caught:
            backup.find(repository)
        assert (caught.value.id, caught.value.ids) == (None, ())
        backup.create(store, repository)
        for number in (99, 0, -1, 10**30):
            with pytest.raises(BackupNotFoundError, match=f"no backup {number}; there are 1") as caught:
                backup.restore(path, repository, number)
            assert (caught.value.id, caught.value.ids) == (number, (1,))
        for number in (99, 0):
            with pytest.raises(BackupNotFoundError):
                backup.verify(repository, number)
        missing = repository.with_name("missing")
        with pytest.raises(RepositoryNotFoundError):
            backup.restore(path, missing)
        with pytest.raises(RepositoryNotFoundError):
            backup.purge(missing, 1)
        assert not missing.exists()
        store.family("default")[b"x"] = b"goes on"
        assert store.family("default")[b"x"] == b"goes on"
    before = fingerprint(path)
    with pytest.raises(BackupNotFoundError):
        backup.restore(path, repository, 99)
    assert fingerprint(path) == before
    assert contents(path)["default"] == {b"x": b"goes on"}


def test_files_beside_the_store_are_left_alone(tmp_path: Path) -> None:
    """Check R226: `VERSION`, and whatever else there is, beside the store and in it."""
    data, backups = tmp_path / "data", tmp_path / "backups"
    data.mkdir()
    backups.mkdir()
    path, repository = data / "states.db", backups / "states.db"
    with pystate.open(path) as store:
        backup.create(store, repository)
    for directory in (data, backups, path):
        (directory / "VERSION").write_text("0.47.0-alpha.2")
    (data / "pretrained").mkdir()
    (data / "pretrained" / "model").write_bytes(b"bytes")
    backup.restore(path, repository)
    left = {entry.relative_to(tmp_path).as_posix() for entry in tmp_path.rglob("*") if entry.is_file()}
    assert {"data/VERSION", "backups/VERSION", "data/states.db/VERSION", "data/pretrained/model"} <= left
    assert (data / "VERSION").read_text() == (path / "VERSION").read_text() == "0.47.0-alpha.2"
    assert (data / "pretrained" / "model").read_bytes() == b"bytes"
    assert {entry.name for entry in data.iterdir()} == {"VERSION", "pretrained", "states.db"}


def test_open_store_is_not_restored_over(path: Path, repository: Path) -> None:
    """Row 84: refused here and for another process, and nothing is touched."""
    make(path, repository)
    with pystate.open(path) as store:
        before = fingerprint(path)
        with pytest.raises(LockedError) as caught:
            backup.restore(path, repository)
        assert not isinstance(caught.value, RepositoryLockedError)
        assert fingerprint(path) == before
        store.family("default")[b"x"] = b"goes on"
    with Child("serve", path) as child:
        assert child.hear() == "open"
        before = fingerprint(path)
        with pytest.raises(LockedError):
            backup.restore(path, repository)
        assert fingerprint(path) == before
        child.finish()


def test_damaged_backup_is_never_restored() -> None:
    """Row 83: at any byte, and cut anywhere; list does not offer it, verify says where. The store is not touched."""
    files = MemoryFiles()
    with filled(files) as store:
        backup.create(store, REPOSITORY, files=files)
        store.family("a")[b"x"] = b"newer"
        backup.create(store, REPOSITORY, files=files)
        store.family("a")[b"x"] = b"now"
    before, image = files.image(), files.image(REPOSITORY)
    listed = set()
    for name, step in ((manifest_name(2), 1), (content_name(2), 7)):
        whole, file = image[name], f"{REPOSITORY}/{name}"
        for at in range(0, len(whole), step):
            for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :]):
                files.restore(REPOSITORY, {**image, name: damaged})
                for number in (2, None):
                    with pytest.raises(BackupDamagedError) as caught:
                        backup.restore(DIRECTORY, REPOSITORY, number, files=files)
                    assert (caught.value.id, caught.value.path) == (2, file)
                report = backup.verify(REPOSITORY, files=files)
                assert [info.id for info in report.backups] == [1]
                assert [(problem.id, problem.path) for problem in report.problems] == [(2, file)]
                assert not report.ok
                assert not backup.verify(REPOSITORY, 2, files=files).ok
                assert backup.verify(REPOSITORY, 1, files=files).ok
                listed.add(tuple(ids(REPOSITORY, files=files)))
    assert listed == {(1,), (1, 2)}  # what is damaged in the middle shows only when all of it is read
    assert files.image() == before
    files.restore(REPOSITORY, image)
    assert backup.restore(DIRECTORY, REPOSITORY, files=files).backup.id == 2


def test_content_or_manifest_of_another_backup_is_noticed(path: Path, repository: Path) -> None:
    """Whole, and in the wrong place."""
    make(path, repository)
    put(path, b"2")
    make(path, repository)
    for name in (manifest_name, content_name):
        one, two = repository / name(1), repository / name(2)
        kept = one.read_bytes()
        one.write_bytes(two.read_bytes())
        assert ids(repository) == [2]
        with pytest.raises(BackupDamagedError, match="expected"):
            backup.restore(path, repository, 1)
        one.write_bytes(kept)
    (repository / content_name(2)).unlink()
    [problem] = backup.verify(repository).problems
    assert (problem.id, problem.text) == (2, "expected the content of the backup, found no such file")


def test_name_that_leads_nowhere_is_damage(path: Path, repository: Path) -> None:
    """It is there in every list of names, and cannot be opened: no reader may wait for it to go."""
    make(path, repository)
    (repository / manifest_name(2)).symlink_to("nowhere")
    assert ids(repository) == [1]
    [problem] = backup.verify(repository).problems
    assert (problem.id, problem.text) == (2, "expected the manifest of the backup, found no such file")
    with pytest.raises(BackupDamagedError):
        backup.find(repository)
    assert make(path, repository).id == 3


# Places


def test_directory_that_holds_something_else_is_refused(path: Path, tmp_path: Path) -> None:
    """Not one file is made in it, not even a lock; a store is something else, too."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_bytes(b"")
    with pystate.open(path) as store:
        each_of: list[Callable[[Path], object]] = [
            lambda place: backup.create(store, place),
            backup.list,
            backup.verify,
            backup.find,
            lambda place: backup.restore(tmp_path / "new", place),
            lambda place: backup.purge(place, 1),
        ]
        before = {entry.as_posix() for entry in tmp_path.rglob("*")}
        for place in (path, tmp_path / "file", tmp_path / "full"):
            for call in each_of:
                with pytest.raises(NotARepositoryError):
                    call(place)
        for call in each_of:
            with pytest.raises(RepositoryNotFoundError):
                call(tmp_path / "missing" / "deep")
        assert {entry.as_posix() for entry in tmp_path.rglob("*")} == before


def test_repository_is_not_taken_for_a_store(path: Path, repository: Path) -> None:
    make(path, repository)
    before = fingerprint(repository)
    with pytest.raises(pystate.NotAStoreError):
        pystate.open(repository)
    with pytest.raises(ValueError, match="directory of the store"):
        backup.restore(repository, repository)
    assert fingerprint(repository) == before


def test_files_of_others_in_a_repository_are_left_alone(path: Path, repository: Path) -> None:
    make(path, repository)
    for name in ("README", "0.backup", f"{2**64:020d}.backup", f"{0:020d}.content"):
        (repository / name).write_bytes(b"mine")
    put(path, b"2")
    make(path, repository, keep=1)
    assert ids(repository) == [2]
    assert {"README", "0.backup", f"{2**64:020d}.backup", f"{0:020d}.content"} < names(repository)


def test_repository_of_a_newer_pystate_is_left_alone(
    path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 89: neither its manifests nor its content are touched, and both versions are named."""
    make(path, repository)
    manifest = repository / manifest_name(2)
    with pystate.open(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(snapshot_format, "FORMAT_VERSION", 2)
            report = store.export(repository / content_name(2))
        fields: dict[str, Any] = {"format": 1, "id": 2, "timestamp": NOW, "store_id": store.id, "content": 2}
        fields |= {"sequence": store.sequence, "size": report.bytes, "digest": report.digest}
        for newer_manifest in (False, True):
            if newer_manifest:
                fields |= {"format": 2, "new": []}
            line = msgspec.json.encode(fields)
            manifest.write_bytes(line + b"\n%08x\n" % crc32(line))
            before = {entry.name: entry.read_bytes() for entry in repository.iterdir()}
            each_of: list[Callable[[], object]] = [
                lambda: backup.create(store, repository, keep=1),
                lambda: backup.list(repository),
                lambda: backup.verify(repository),
                lambda: backup.purge(repository, 1),
                lambda: backup.find(repository),
                lambda: backup.restore(path, repository),
            ]
            for call in each_of:
                with pytest.raises(pystate.UnsupportedFormatError) as caught:
                    call()
                assert (caught.value.found, caught.value.supported) == (2, 1)
            assert {entry.name: entry.read_bytes() for entry in repository.iterdir()} == before
            assert backup.restore(path.with_name("other"), repository, 1).backup.id == 1


def test_id_that_is_the_last_one_is_refused(path: Path, repository: Path) -> None:
    make(path, repository)
    (repository / manifest_name(1)).rename(repository / manifest_name(2**63 - 1))
    before = names(repository)
    with pytest.raises(CorruptionError, match="ids below"):
        make(path, repository)
    assert names(repository) == before


# Arguments


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"keep": 0}, ValueError),
        ({"keep": -1}, ValueError),
        ({"keep": True}, TypeError),
        ({"keep": 1.0}, TypeError),
        ({"lock_timeout": -1}, ValueError),
        ({"lock_timeout": "1"}, TypeError),
        ({"now": datetime(2025, 1, 1)}, ValueError),  # noqa: DTZ001
        ({"now": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, ValueError),
        ({"now": 1758760940}, TypeError),
    ],
    ids=str,
)
def test_wrong_argument_is_refused_before_anything_is_made(
    tmp_path: Path, options: dict[str, Any], error: type[Exception]
) -> None:
    with pystate.memory() as store, pytest.raises(error):
        backup.create(store, tmp_path / "backups", **options)
    assert not (tmp_path / "backups").exists()


def test_wrong_arguments_of_the_others_are_refused(tmp_path: Path) -> None:
    with pystate.memory() as store:
        backup.create(store, tmp_path / "backups")
    for keep, error in ((0, ValueError), (True, TypeError), (None, TypeError)):
        with pytest.raises(error):
            backup.purge(tmp_path / "backups", keep)  # type: ignore[arg-type]
    for wrong in (True, "1", 1.0):
        for call in (backup.find, backup.verify):
            with pytest.raises(TypeError):
                call(tmp_path / "backups", wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            backup.restore(tmp_path / "new", tmp_path / "backups", wrong)  # type: ignore[arg-type]
    for path in ("", "a\0b", b"bytes", None):
        with pytest.raises((TypeError, ValueError)):
            backup.list(path)  # type: ignore[arg-type]
    assert ids(tmp_path / "backups") == [1]


def test_closed_store_has_no_backup(path: Path, repository: Path) -> None:
    with pystate.open(path) as store:
        pass
    with pytest.raises(pystate.ClosedError):
        backup.create(store, repository)
    assert not repository.exists()


@pytest.mark.parametrize(
    ("error", "builtin", "text"),
    [
        (BackupError("/r", "message"), PystateError, "message"),
        (RepositoryNotFoundError("/r"), FileNotFoundError, "/r: no backups here"),
        (NotARepositoryError("/r", "a file"), ValueError, "/r: not a repository of backups: a file"),
        (RepositoryLockedError("/r", pid=7, host="h"), TimeoutError, "by process 7 on host h"),
        (RepositoryLockedError("/r"), LockedError, "by somebody else"),
        (BackupNotFoundError("/r", id=9, ids=(1, 2)), KeyError, "/r: no backup 9; there are 1, 2"),
        (BackupNotFoundError("/r", id=None, ids=()), LookupError, "/r: no backup; there is none"),
        (BackupDamagedError("/r", "/r/x", id=3, offset=7, expected="a", found="b"), CorruptionError, "/r/x: offset 7"),
    ],
    ids=range(8),
)
def test_errors_are_built_ins_too_and_survive_being_pickled(
    error: BackupError, builtin: type[Exception], text: str
) -> None:
    for again in (error, pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert isinstance(again, builtin)
        assert text in str(again)
        assert vars(again) == vars(error)
        assert again.repository == "/r"


# Any order of calls

entries = st.dictionaries(st.binary(max_size=3), st.binary(max_size=5), max_size=4)


class AnyCalls(RuleBasedStateMachine):
    """A store, a repository, and a list of states that says what must be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.made: dict[int, dict[bytes, bytes]] = {}
        self.last = self.sequence = 0
        self.store = pystate.memory()

    @initialize()
    def open(self) -> None:
        self.store = pystate.open(DIRECTORY, files=self.files)

    @rule(values=entries)
    def commit(self, values: dict[bytes, bytes]) -> None:
        self.store.family("default").update(values)

    @rule()
    def snapshot(self) -> None:
        self.store.snapshot()

    @rule()
    def clear(self) -> None:
        self.store.family("default").clear()

    @rule(keep=st.none() | st.integers(1, 3))
    def create(self, keep: int | None) -> None:
        before = sum(map(len, self.files.image(REPOSITORY).values()))
        info = backup.create(self.store, REPOSITORY, keep=keep, files=self.files)
        state = dict(self.store.family("default"))
        assert info.id == self.last + 1
        if self.made.get(self.last) == state and keep is None and info.sequence == self.sequence:
            assert sum(map(len, self.files.image(REPOSITORY).values())) - before < 300
        self.last, self.sequence = info.id, info.sequence
        self.made[info.id] = state
        self._keep(keep)

    @precondition(lambda self: self.last)
    @rule(keep=st.integers(1, 4))
    def purge(self, keep: int) -> None:
        before = set(self.made)
        removed = backup.purge(REPOSITORY, keep, files=self.files)
        self._keep(keep)
        assert set(removed) == before - set(self.made)

    def _keep(self, keep: int | None) -> None:
        self.made = dict(sorted(self.made.items())[-keep:] if keep else self.made)

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([*sorted(self.made), None]))
        self.store.close()
        old = self.store.id
        report = backup.restore(DIRECTORY, REPOSITORY, number, files=self.files)
        self.store = pystate.open(DIRECTORY, files=self.files)
        assert report.backup.id == (self.last if number is None else number)
        assert dict(self.store.family("default")) == self.made[report.backup.id]
        assert self.store.id == report.store_id != old

    @invariant()
    def what_is_listed_is_what_was_made(self) -> None:
        if self.last:
            assert ids(REPOSITORY, files=self.files) == sorted(self.made)
            assert backup.verify(REPOSITORY, files=self.files).ok
            image = self.files.image(REPOSITORY)
            assert {name for name in image if name.endswith("backup")} == set(map(manifest_name, self.made))
            assert not [name for name in image if name.endswith("tmp")]

    def teardown(self) -> None:
        self.store.close()


TestAnyCalls = AnyCalls.TestCase
TestAnyCalls.settings = settings(stateful_step_count=30)


@given(st.binary(max_size=80) | st.builds(lambda text: text.encode(), st.text(max_size=80)))
def test_manifest_of_any_bytes_is_refused(data: bytes) -> None:
    """Nothing but CorruptionError comes of it."""
    files = MemoryFiles()
    files.make_directory(REPOSITORY)
    file = files.create(f"{REPOSITORY}/{manifest_name(1)}")
    write_all(file, data)
    file.close()
    assert backup.list(REPOSITORY, files=files) == ()
    with pytest.raises(BackupDamagedError):
        backup.find(REPOSITORY, files=files)
    assert read_whole(files, f"{REPOSITORY}/{manifest_name(1)}") == data


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_what_is_no_file_is_one_damaged_backup_and_hides_no_other(tmp_path: Path, kind: str) -> None:
    with pystate.open(tmp_path / "s") as store:
        backup.create(store, tmp_path / "r")
        odd = tmp_path / "r" / f"{2:020d}.backup"
        if kind == "directory":
            odd.mkdir()
        else:
            os.mkfifo(odd)
        assert [info.id for info in backup.list(tmp_path / "r")] == [1]
        assert not backup.verify(tmp_path / "r").ok


def test_what_is_no_store_makes_no_repository(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="store is an open Store, not str"):
        backup.create("s", tmp_path / "r")  # type: ignore[arg-type]
    assert not (tmp_path / "r").exists()
