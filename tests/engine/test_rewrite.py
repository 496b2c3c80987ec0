"""`rewrite`: the next state takes the place of the present one, or nothing has happened.

What a crash may leave is in `tests/testing/test_replacing_crashes.py`, the mapping in `test_rewriting.py`.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pystate
from pystate import Rewriting, RowChanges
from pystate.engine import replacing, rewrite, snapshot_writer
from pystate.engine.names import parse_name
from tests.engine.children import Child
from tests.engine.directories import contents, fingerprint
from tests.engine.interrupts import Interrupt, at_each_place
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.model import State, keys, values
from tests.engine.small_stores import CONDITIONS, SMALL, Condition
from tests.engine.watched_files import WatchedFiles, nth

names = st.sampled_from(["default", "a", "b", "c"])
states = st.dictionaries(names, st.dictionaries(keys, values, max_size=6)).map(lambda state: {"default": {}, **state})


def make(files: MemoryFiles, state: State, **options: object) -> None:
    with pystate.open(DIRECTORY, files=files, families=list(state), **options) as store:  # type: ignore[arg-type]
        for name, entries in state.items():
            store.family(name).update(entries)


def state_of(files: MemoryFiles) -> State:
    with pystate.open(DIRECTORY, files=files, read_only=True) as store:
        return {name: dict(store.family(name)) for name in store.families}


def nothing(rewriting: Rewriting) -> None:
    """Reads everything and changes nothing."""
    for name in rewriting.families:
        list(rewriting.family(name).items())


def to(state: State, renames: dict[str, str]) -> Callable[[Rewriting], None]:
    """Make the next state this one, family by family; renamed ones first."""

    def build(rewriting: Rewriting) -> None:
        for old, new in renames.items():
            rewriting.rename_family(old, new)
        for name in set(rewriting.families) - set(state):
            rewriting.drop_family(name)
        for name, entries in state.items():
            family = rewriting.family(name) if name in rewriting.families else rewriting.create_family(name)
            family.clear()
            family.update(entries)

    return build


@given(states, states, st.booleans(), st.booleans(), st.sampled_from([{}, {"a": "z"}]))
@settings(max_examples=150)
def test_any_state_becomes_any_other_and_the_report_says_how(
    before: State, after: State, unclean: bool, snapshot: bool, renames: dict[str, str]
) -> None:
    """The report is that of a dry run, and is what a comparison of plain dicts gives."""
    files = MemoryFiles()
    make(files, before, metadata={"m": "1"})
    if snapshot or unclean:
        store = pystate.open(DIRECTORY, files=files)
        store.family("default").update({b"\0": b"more"})
        before = {**before, "default": {**before["default"], b"\0": b"more"}}
        if snapshot:
            store.snapshot()
        if unclean:
            image = files.image()
        store.close()
        if unclean:
            files.restore(DIRECTORY, image)
    renames = {old: new for old, new in renames.items() if old in before}
    sources = {renames.get(name, name): name for name in before}
    build, image = to(after, renames), files.image()
    dry = pystate.rewrite(DIRECTORY, build, dry_run=True, files=files)
    assert files.image() == image
    report = pystate.rewrite(DIRECTORY, build, files=files)
    assert state_of(files) == after
    created = set(after) - set(sources)
    assert report.created == tuple(sorted(created))
    assert report.dropped == {name: len(before[name]) for new, name in sources.items() if new not in after}
    assert report.renamed == {old: new for old, new in renames.items() if new in after}
    rows = {}
    for name, entries in after.items():
        old = {} if name in created else before[sources[name]]
        if entries != old:
            rows[name] = RowChanges(
                added=len(entries.keys() - old.keys()),
                removed=len(old.keys() - entries.keys()),
                changed=sum(entries[key] != old[key] for key in entries.keys() & old.keys()),
            )
    assert report.rows == rows
    assert report.changed == bool(rows or created or report.dropped or report.renamed)
    assert (report.sequence > report.sequence_before) == report.changed == bool(report.bytes)
    assert dry.changed == report.changed
    assert (dry.rows, dry.created, dry.dropped, dry.renamed) == (rows, report.created, report.dropped, report.renamed)
    assert (dry.sequence, dry.bytes) == (dry.sequence_before, 0)
    if not report.changed:
        assert files.image() == image
    with pystate.open(DIRECTORY, files=files) as store:
        assert store.sequence == report.sequence
        assert store.metadata == {"m": "1"}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_store_in_any_condition_is_rewritten(condition: Condition) -> None:
    """As opening does: from a snapshot, a log, leftovers, after an unclean stop."""
    small = SMALL[condition]
    files = WatchedFiles(small.files())

    def build(rewriting: Rewriting) -> None:
        assert rewriting.sequence == small.last
        assert {name: dict(rewriting.family(name)) for name in rewriting.families} == small.state
        rewriting.family("default")[b"written"] = b"now"

    report = pystate.rewrite(DIRECTORY, build, files=files)
    assert report.rows == {"default": RowChanges(added=1, removed=0, changed=0)}
    assert (files.open_files, files.held_locks) == ([], 0)
    kinds = [parse_name(name).kind for name in files.real_image()]
    assert sorted(kind for kind in kinds if kind not in ("torn", "foreign")) == ["segment", "snapshot"]
    assert pystate.verify(DIRECTORY, files=files).clean
    with pystate.open(DIRECTORY, files=files) as store:
        found = {name: dict(store.family(name)) for name in store.families}
        recovery = store.stats().recovery
        assert recovery is not None
        assert recovery.decision == "clean"
        assert store.sequence > small.last
    assert found == {**small.state, "default": {**small.state["default"], b"written": b"now"}}


def test_torn_bytes_and_a_damaged_snapshot_are_kept_aside() -> None:
    """What recovery keeps for people, a rewriting keeps too, since it removes the file they stand in."""
    small = SMALL["sync"]
    files = small.files(small.with_file(small.newest, small.image[small.newest] + b"half a frame"))
    nobody = files.image()
    pystate.rewrite(DIRECTORY, nothing, files=files)
    assert files.image() == nobody
    pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.metadata.update(a="1"), files=files)
    [torn] = [content for name, content in files.image().items() if name.endswith(".torn")]
    assert torn == b"half a frame"
    small = SMALL["leftovers"]
    damaged = bytearray(small.image[small.snapshot])
    damaged[-60] ^= 1
    files = small.files(small.with_file(small.snapshot, bytes(damaged)))
    pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.metadata.update(a="1"), files=files)
    assert files.image()[small.snapshot + ".torn"] == bytes(damaged)
    assert state_of(files) == small.state


def test_metadata_alone_is_changed_and_carried_on() -> None:
    """By every later snapshot, and by rewritings that do not speak of it."""
    files = MemoryFiles()
    make(files, {"default": {b"k": b"v"}}, metadata={"format": "1", "other": "x"})

    def build(rewriting: Rewriting) -> None:
        assert rewriting.metadata == {"format": "1", "other": "x"}
        rewriting.metadata["format"] = "2"
        del rewriting.metadata["other"]

    report = pystate.rewrite(DIRECTORY, build, files=files)
    assert (report.changed, report.rows) == (True, {})
    assert (report.metadata_before, report.metadata) == ({"format": "1", "other": "x"}, {"format": "2"})
    for _ in range(2):
        with pystate.open(DIRECTORY, files=files, metadata={"ignored": "as the store exists"}) as store:
            assert store.metadata == {"format": "2"}
            store.family("default")[b"k"] = b"%d" % store.sequence
            store.snapshot()
        pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.family("default").clear(), files=files)
        assert pystate.read_metadata(DIRECTORY, files=files) == {"format": "2"}


def test_the_store_stays_the_same_one_with_a_log_of_its_own() -> None:
    """Sequences go up only; the id stays; nothing of the old log can be taken for the new one's."""
    files = MemoryFiles()
    make(files, {"default": {b"k": b"v"}})
    seen = []
    for number in range(3):
        old = files.image()
        with pystate.open(DIRECTORY, files=files) as store:
            seen.append((store.id, store.sequence, store.stats().generation))
            store.family("default")[b"k"] = b"%d" % number
        report = pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.family("default").clear(), files=files)
        assert report.id == seen[0][0]
        new = files.image()
        for name, content in old.items():
            if parse_name(name).kind == "segment":
                with pytest.raises(pystate.CorruptionError, match="log"):
                    state_of(MemoryFiles().restore(DIRECTORY, new | {f"{report.sequence + 1:020d}.closed": content}))
                # Under its own name it may come back, if power loss undoes that it was removed: it does not count.
                assert state_of(MemoryFiles().restore(DIRECTORY, new | {name: content})) == {"default": {}}
    assert len({one[0] for one in seen}) == 1
    assert [one[1:] for one in seen] == sorted(set(one[1:] for one in seen))


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("dry_run", [False, True])
def test_building_that_raises_leaves_every_byte(condition: Condition, dry_run: bool) -> None:
    """Row 47."""
    small = SMALL[condition]
    files = WatchedFiles(small.files())

    def build(rewriting: Rewriting) -> None:
        rewriting.family("default").clear()
        rewriting.create_family("new")[b"k"] = b"v"
        raise ZeroDivisionError

    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error):
            pystate.rewrite(
                DIRECTORY, build if error is ZeroDivisionError else _interrupted, files=files, dry_run=dry_run
            )
        assert files.real_image() == small.image
        assert (files.open_files, files.held_locks) == ([], 0)
    assert set(files.counts) <= {"list_directory", "open_read", "read_at", "open_append", "lock"}


def _interrupted(rewriting: Rewriting) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("metadata", "error"), [({"a": 1}, TypeError), ({"": "x"}, ValueError), ({"a": "x" * 70_000}, ValueError)], ids=str
)
def test_metadata_that_cannot_be_is_refused(metadata: dict[str, str], error: type[Exception]) -> None:
    files = MemoryFiles()
    make(files, {"default": {}})
    image = files.image()
    with pytest.raises(error, match="metadata"):
        pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.metadata.update(metadata), files=files)
    assert files.image() == image


def test_an_open_store_is_refused_and_not_touched(tmp_path: Path) -> None:
    """In this process and in another, by the same and by another path; an open reader does not matter."""
    path = tmp_path / "store"
    with pystate.open(path) as store:
        store.family("default")[b"k"] = b"v"
        before = fingerprint(path)
        link = tmp_path / "link"
        link.symlink_to(path)
        for each in (path, link):
            with pytest.raises(pystate.LockedError):
                pystate.rewrite(each, lambda rewriting: rewriting.family("default").clear())
        assert fingerprint(path) == before
        store.family("default")[b"l"] = b"w"
    with Child("serve", path) as child:
        assert child.hear() == "open"
        with pytest.raises(pystate.LockedError):
            pystate.rewrite(path, lambda rewriting: rewriting.family("default").clear())
        child.finish()
    assert contents(path) == {"default": {b"k": b"v", b"l": b"w"}}


def test_several_at_once_rewrite_one_after_the_other(tmp_path: Path) -> None:
    """Row 88: each that waits finds what the one before has made, so that a step that looks is done once."""
    path, done = tmp_path / "store", []
    with pystate.open(path, metadata={"format": "1"}) as store:
        store.family("default")[b"count"] = b"0"

    def build(rewriting: Rewriting) -> None:
        if rewriting.metadata["format"] == "1":
            family = rewriting.family("default")
            family[b"count"] = b"%d" % (int(family[b"count"]) + 1)
            rewriting.metadata["format"] = "2"

    def work() -> None:
        done.append(pystate.rewrite(path, build, lock_timeout=60.0).changed)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False] * 5 + [True]
    assert contents(path) == {"default": {b"count": b"1"}}


def test_several_processes_at_once(tmp_path: Path) -> None:
    """Row 88, with processes."""
    path = tmp_path / "store"
    with pystate.open(path, metadata={"format": "1"}) as store:
        store.family("default")[b"count"] = b"0"
    children = [Child("migrate", path) for _ in range(4)]
    try:
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            child.tell("go")
        assert sorted(child.hear() for child in children) == [False, False, False, True]
    finally:
        for child in children:
            child.finish()
    assert contents(path) == {"default": {b"count": b"1"}}


def test_a_read_only_store_shows_the_new_state_after_a_refresh(tmp_path: Path) -> None:
    """Its views keep the old one; handles of families that are still there go on."""
    path = tmp_path / "store"
    with pystate.open(path, families=["a", "b"], metadata={"format": "1"}) as store:
        store.family("a")[b"k"] = b"v"
        store.family("b")[b"k"] = b"v"
    with pystate.open(path, read_only=True) as reader:
        a, b, view = reader.family("a"), reader.family("b"), reader.view()
        assert dict(a) == {b"k": b"v"}

        def build(rewriting: Rewriting) -> None:
            rewriting.family("a")[b"k"] = b"w"
            rewriting.drop_family("b")
            rewriting.create_family("b")
            rewriting.metadata["format"] = "2"
            assert reader.refresh() == 2
            assert dict(a) == {b"k": b"v"}

        report = pystate.rewrite(path, build)
        assert dict(a) == {b"k": b"v"}
        assert reader.metadata == {"format": "1"}
        assert reader.refresh() == report.sequence
        assert dict(a) == {b"k": b"w"}
        assert reader.metadata == {"format": "2"}
        assert reader.id == report.id
        with pytest.raises(pystate.FamilyNotFoundError):
            b.get(b"k")
        assert dict(reader.family("b")) == {}
        assert dict(view.family("a")) == {b"k": b"v"}
        with pystate.open(path) as writer:
            writer.family("a")[b"k"] = b"x"
            assert reader.refresh() == report.sequence + 1
            assert dict(a) == {b"k": b"x"}


def test_progress_is_told_in_rows() -> None:
    files, seen = MemoryFiles(), []
    make(files, {"default": {b"%05d" % number: b"" for number in range(5000)}, "a": {b"k": b"v"}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_writer, "_BLOCK_ENTRIES", 1000)
        pystate.rewrite(
            DIRECTORY,
            lambda rewriting: rewriting.family("a").clear(),
            files=files,
            progress=lambda done, total: seen.append((done, total)),
        )
    assert seen == [(number, 5000) for number in range(1000, 5001, 1000)]


def test_progress_that_raises_ends_it_before_anything_counts() -> None:
    files = MemoryFiles()
    make(files, {"default": {b"k": b"v"}})
    image = files.image()

    def progress(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.create_family("a"), files=files, progress=progress)
    assert files.image() == image


def test_damage_in_what_nobody_touches_is_found_before_anything_is_written() -> None:
    files = MemoryFiles()
    make(files, {"default": {}, "a": {b"k": b"v" * 100}})
    with pystate.open(DIRECTORY, files=files) as store:
        store.snapshot()
    [name] = [name for name in files.image() if name.endswith(".snapshot")]
    damaged = files.image()[name].replace(b"vvvv", b"vvwv", 1)
    files.restore(DIRECTORY, files.image() | {name: damaged})
    image = files.image()
    with pytest.raises(pystate.CorruptionError):
        pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.create_family("b"), files=files)
    assert files.image() == image


def test_a_writer_whose_lock_was_taken_from_him_is_noticed() -> None:
    """Row 53: the lock file is removed while it is held, so that the rewriting gets a lock of its own."""
    files = MemoryFiles()
    store = pystate.open(DIRECTORY, files=files)
    store.family("default")[b"k"] = b"v"
    files.locks.clear()
    image = files.image()
    with pytest.raises(pystate.LockedError):
        pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.family("default").clear(), files=files)
    assert files.image() == image
    store.close()


def test_a_lock_that_is_lost_while_it_is_written_ends_it() -> None:
    """Row 53, the other way round: somebody else may have the store now."""
    files = MemoryFiles()
    make(files, {"default": {b"k": b"v"}})
    image = files.image()
    with pytest.raises(OSError, match="lock file"):
        pystate.rewrite(DIRECTORY, _losing(files), files=files)
    assert files.image() == image


def _losing(files: MemoryFiles) -> Callable[[Rewriting], None]:
    def build(rewriting: Rewriting) -> None:
        rewriting.family("default").clear()
        files.locks.clear()

    return build


def test_where_there_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    for path, error in [
        (tmp_path / "missing", pystate.StoreNotFoundError),
        (tmp_path / "other", pystate.StoreNotFoundError),
        (tmp_path / "file", pystate.NotAStoreError),
    ]:
        with pytest.raises(error):
            pystate.rewrite(path, nothing)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "file", "other"]


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="build"):
        pystate.rewrite(tmp_path, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lock_timeout"):
        pystate.rewrite(tmp_path, nothing, lock_timeout=-1.0)
    assert list(tmp_path.iterdir()) == []


def test_reads_and_writes_may_do_less_than_asked() -> None:
    """Rows 41 and 43."""
    for seed in range(5):
        memory = SMALL["sync"].files()
        files = WatchedFiles(memory, short=seed)
        pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.family("second").update({b"a": b"b" * 999}), files=files)
        assert state_of(memory)["second"] == {**SMALL["sync"].state["second"], b"a": b"b" * 999}


def test_an_interrupt_anywhere_leaves_one_of_the_two_states() -> None:
    """Row 45: at each place in the code, not only at the calls of the disk."""
    small, seen = SMALL["sync"], set()
    after = {**small.state, "default": {**small.state["default"], b"written": b"now"}}

    def action(interrupt: Interrupt) -> None:
        files = WatchedFiles(small.files())
        try:
            with interrupt:
                pystate.rewrite(
                    DIRECTORY, lambda rewriting: rewriting.family("default").update({b"written": b"now"}), files=files
                )
        except KeyboardInterrupt:
            assert interrupt.hit
        del interrupt
        memory = MemoryFiles().restore(DIRECTORY, files.real_image())
        found = state_of(memory)
        assert found in (small.state, after)
        seen.add(found == after)
        pystate.open(DIRECTORY, files=memory).close()
        assert state_of(memory) == found

    assert at_each_place(action, rewrite, replacing) > 30
    assert seen == {False, True}


def test_failure_of_the_last_step_is_told_as_what_it_is() -> None:
    """The snapshot has its name, and nobody knows whether it will keep it: nothing is taken back, nothing removed."""
    small = SMALL["closed"]
    files = WatchedFiles(small.files())

    def after_the_rename(operation: str, path: str) -> None:
        if operation == "sync_directory" and any(
            name == "replace" and at.endswith(".snapshot") for name, at in files.trace
        ):
            raise failure(errno.EIO)

    files.before = after_the_rename
    with pytest.raises(pystate.StoreFailedError) as caught:
        pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.metadata.update(a="1"), files=files)
    assert caught.value.unknown
    assert caught.value.errno == errno.EIO
    assert small.image.items() <= files.real_image().items()
    files.before = None
    assert pystate.read_metadata(DIRECTORY, files=files) == {"a": "1"}
    with pystate.open(DIRECTORY, files=files) as store:
        assert store.metadata == {"a": "1"}
    assert not set(small.image) & set(files.real_image())


def test_full_disk_is_told_with_the_path() -> None:
    files = WatchedFiles(SMALL["closed"].files())
    files.before = nth("write", 1, lambda: failure(errno.ENOSPC))
    with pytest.raises(pystate.DiskFullError) as caught:
        pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.metadata.update(a="1"), files=files)
    assert caught.value.path == DIRECTORY
    assert files.real_image() == SMALL["closed"].image


def test_directory_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles().restore(DIRECTORY, SMALL["closed"].image)
    monkeypatch.setattr(files, "lock", lambda *_: (_ for _ in ()).throw(failure(errno.EROFS)))
    with pytest.raises(pystate.ReadOnlyError):
        pystate.rewrite(DIRECTORY, nothing, files=files)
