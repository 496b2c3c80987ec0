"""`install`: a snapshot file becomes the content of a store, which is another store from then on.

What a crash may leave is in `tests/testing/test_replacing_crashes.py`.
"""

from __future__ import annotations

import errno
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pystate
from pystate.engine import install, replacing, snapshot_format
from pystate.engine.names import parse_name
from pystate.engine.snapshot_format import FamilyIndex, SnapshotHeader, encode_block, encode_head, encode_tail
from tests.engine.children import Child
from tests.engine.directories import contents, fingerprint
from tests.engine.interrupts import Interrupt, at_each_place
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.model import State, keys, values
from tests.engine.small_stores import CONDITIONS, SMALL, Condition
from tests.engine.watched_files import WatchedFiles, nth

OUTSIDE = "/outside"
FILE = f"{OUTSIDE}/exported"
states = st.dictionaries(st.sampled_from(["default", "a", "b"]), st.dictionaries(keys, values, max_size=6)).map(
    lambda state: {"default": {}, **state}
)


def export(files: MemoryFiles, state: State, *, metadata: dict[str, str] | None = None) -> pystate.ExportReport:
    """Put a file with this state into place."""
    if files.kind(OUTSIDE) is None:
        files.make_directory(OUTSIDE)
    with pystate.open(f"{OUTSIDE}/store", files=files, families=list(state), metadata=metadata) as store:
        for name, entries in state.items():
            store.family(name).update(entries)
        return store.export(FILE)


def look(files: MemoryFiles) -> tuple[State, dict[str, str], str, int]:
    with pystate.open(DIRECTORY, files=files, read_only=True) as store:
        families = {name: dict(store.family(name)) for name in store.families}
        return families, dict(store.metadata), store.id, store.sequence


@given(states, st.none() | states, st.booleans(), st.integers(0, 20))
@settings(max_examples=150)
def test_the_content_is_exactly_that_of_the_file(
    state: State, before: State | None, unclean: bool, commits: int
) -> None:
    """Into a new place or over another store; the id is new, and the sequence goes up."""
    files = MemoryFiles()
    exported = export(files, state, metadata={"format": "1"})
    old_id, old_sequence = exported.id, 0
    if before is not None:
        store = pystate.open(DIRECTORY, files=files, families=list(before), metadata={"old": "x"})
        for _ in range(commits):
            store.family("default")[b"k"] = b"v"
        old_id, old_sequence, image = store.id, store.sequence, files.image()
        store.close()
        if unclean:
            files.restore(DIRECTORY, image)
    report = pystate.install(DIRECTORY, FILE, files=files)
    families, metadata, store_id, sequence = look(files)
    assert (families, metadata) == (state, {"format": "1"})
    assert store_id not in (old_id, exported.id)
    assert (report.path, report.id, report.sequence) == (DIRECTORY, store_id, sequence)
    assert report.replaced == (before is not None)
    assert sequence >= max(exported.sequence, 1)
    assert sequence > old_sequence
    verified = pystate.verify(DIRECTORY, files=files)
    assert (verified.ok, verified.clean, verified.store_id) == (True, True, store_id)
    assert pystate.read_snapshot(f"{DIRECTORY}/{sequence:020d}.snapshot", files=files).bytes == report.bytes
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"new"] = b"commit"
        assert store.sequence == sequence + 1
        store.snapshot()
        store.create_family("one more")
    assert look(files)[1:3] == (metadata, store_id)
    assert sorted(parse_name(name).kind for name in files.image()) == ["segment", "snapshot"]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_store_in_any_condition_is_replaced(condition: Condition) -> None:
    small = SMALL[condition]
    memory = small.files()
    export(memory, {"default": {b"k": b"v"}})
    files = WatchedFiles(memory)
    report = pystate.install(DIRECTORY, FILE, files=files)
    assert report.sequence > small.last
    assert (files.open_files, files.held_locks) == ([], 0)
    assert look(memory)[0] == {"default": {b"k": b"v"}}
    left = {parse_name(name).kind for name in memory.image()}
    assert left <= {"segment", "snapshot", "torn", "foreign"}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_damaged_store_is_replaced(condition: Condition) -> None:
    """Whichever byte is wrong, whichever file is missing."""
    small = SMALL[condition]
    memory = small.files()
    export(memory, {"default": {b"k": b"v"}})
    images = []
    for name, content in small.image.items():
        if parse_name(name).kind in ("segment", "snapshot"):
            images += [
                small.with_file(name, content[:-1]),
                small.with_file(name, b""),
                small.with_file(name, b"junk" * 9),
            ]
            images.append({other: kept for other, kept in small.image.items() if other != name})
            for at in range(0, len(content), 7):
                images.append(small.with_file(name, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]))
    for image in images:
        memory.restore(DIRECTORY, image)
        try:
            report = pystate.install(DIRECTORY, FILE, files=memory)
        except pystate.UnsupportedFormatError:
            assert memory.image() == image
            continue
        assert look(memory)[0] == {"default": {b"k": b"v"}}
        assert report.sequence > max([0, *(parse_name(name).sequence for name in image)])
        left = {name for name in memory.image() if parse_name(name).kind in ("segment", "snapshot")}
        assert len(left) == 2


def test_newer_files_are_left_alone() -> None:
    """Row 89: a store, or a file, of a newer format; nothing is touched."""
    files = MemoryFiles()
    export(files, {"default": {}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_format, "FORMAT_VERSION", 2)
        pystate.open(DIRECTORY, files=files).close()
    before = files.image()
    with pytest.raises(pystate.UnsupportedFormatError):
        pystate.install(DIRECTORY, FILE, files=files)
    assert files.image() == before
    [newer] = [name for name in before if name.endswith(".snapshot")]
    with pytest.raises(pystate.UnsupportedFormatError):
        pystate.install("/new", f"{DIRECTORY}/{newer}", files=files)
    assert files.kind("/new") is None


def test_a_file_that_is_damaged_is_refused_before_anything_is_touched() -> None:
    """Every byte of it is looked at first: row 83 and R9."""
    files = MemoryFiles()
    export(files, {"default": {b"%d" % number: b"v" * 20 for number in range(20)}})
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"old"] = b"state"
    before, data = files.image(), files.image(OUTSIDE)["exported"]
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]):
            files.restore(OUTSIDE, {"exported": damaged})
            for path in (DIRECTORY, "/new"):
                with pytest.raises(pystate.CorruptionError) as caught:
                    pystate.install(path, FILE, files=files)
                assert caught.value.path == FILE
    assert files.image() == before
    assert files.kind("/new") is None


def crafted(blocks: list[tuple[list[bytes], list[bytes]]], **changes: object) -> bytes:
    """A snapshot with right checksums whose rules may be broken."""
    fields = {"store_id": bytes(16), "sequence": 1, "generation": 1, "next_family_id": 2, "families": {"default": 1}}
    head = encode_head(SnapshotHeader(**{**fields, **changes}))  # type: ignore[arg-type]
    body, index = b"", []
    for columns in blocks:
        block = encode_block(*columns)
        index.append(snapshot_format.BlockEntry(len(head) + len(body), len(block), crc32(block), len(columns[0])))
        body += block
    families = [FamilyIndex(1, sum(entry.entries for entry in index), index)]
    return head + body + encode_tail(head, len(head) + len(body), families)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (crafted([([b"b", b"a"], [b"", b""])]), "ascend"),
        (crafted([([b"a", b"a"], [b"", b""])]), "ascend"),
        (crafted([([b"b"], [b""]), ([b"a"], [b""])]), "ascend"),
        (crafted([([b"a"], [b""]), ([b"a"], [b""])]), "ascend"),
        (crafted([], families={"other": 1}), "default"),
        (crafted([], sequence=2**63), "sequence"),
        (crafted([], sequence=2**64 - 1), "sequence"),
    ],
    ids=["order", "twice", "order of blocks", "twice in blocks", "no default", "sequence", "last sequence"],
)
def test_a_file_that_no_pystate_writes_is_refused(data: bytes, word: str) -> None:
    files = MemoryFiles().restore(OUTSIDE, {"exported": data})
    pystate.open(DIRECTORY, files=files).close()
    before = files.image()
    with pytest.raises(pystate.CorruptionError, match=word):
        pystate.install(DIRECTORY, FILE, files=files)
    assert files.image() == before


def test_a_good_crafted_file_is_taken() -> None:
    files = MemoryFiles().restore(OUTSIDE, {"exported": crafted([([b"a"], [b"1"]), ([b"b"], [b"2"])], sequence=2**62)})
    assert pystate.install(DIRECTORY, FILE, files=files).sequence == 2**62
    assert look(files)[0] == {"default": {b"a": b"1", b"b": b"2"}}
    pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.family("default").clear(), files=files)
    assert look(files)[0] == {"default": {}}


def test_names_with_numbers_that_no_pystate_gives_are_refused() -> None:
    """Or a later file could get the name of one that was replaced."""
    files = MemoryFiles()
    export(files, {"default": {}})
    files.restore(DIRECTORY, {f"{10**20 - 1}.log": b"junk", f"{1:020d}.snapshot": b"junk"})
    before = files.image()
    with pytest.raises(pystate.CorruptionError, match="below"):
        pystate.install(DIRECTORY, FILE, files=files)
    assert files.image() == before


def test_an_open_store_is_refused_and_not_touched(tmp_path: Path) -> None:
    """Row 84."""
    path = tmp_path / "store"
    with pystate.memory() as source:
        source.export(tmp_path / "exported")
    with pystate.open(path) as store:
        store.family("default")[b"k"] = b"v"
        before = fingerprint(path)
        with pytest.raises(pystate.LockedError):
            pystate.install(path, tmp_path / "exported")
        assert fingerprint(path) == before
    with Child("serve", path) as child:
        assert child.hear() == "open"
        with pytest.raises(pystate.LockedError):
            pystate.install(path, tmp_path / "exported")
        child.finish()
    assert contents(path) == {"default": {b"k": b"v"}}


def test_a_writer_whose_lock_was_taken_from_him_is_noticed() -> None:
    """Row 53."""
    files = MemoryFiles()
    export(files, {"default": {}})
    store = pystate.open(DIRECTORY, files=files)
    store.family("default")[b"k"] = b"v"
    files.locks.clear()
    image = files.image()
    with pytest.raises(pystate.LockedError):
        pystate.install(DIRECTORY, FILE, files=files)
    assert files.image() == image
    store.close()


def test_a_read_only_store_of_the_old_one_shows_the_new_one_after_a_refresh(tmp_path: Path) -> None:
    """With its id, so that whoever has tied something to the old id notices; a view keeps the old state."""
    path = tmp_path / "store"
    with pystate.open(path, families=["a"]) as store:
        store.family("a")[b"k"] = b"old"
        store.export(tmp_path / "exported")
        store.family("a")[b"k"] = b"newer"
    with pystate.open(path, read_only=True) as reader:
        a, view, old = reader.family("a"), reader.view(), reader.id
        assert a.get(b"k") == b"newer"
        report = pystate.install(path, tmp_path / "exported")
        assert a.get(b"k") == b"newer"
        assert reader.refresh() == report.sequence
        assert a.get(b"k") == b"old"
        assert reader.id == report.id != old
        assert view.family("a").get(b"k") == b"newer"


def test_segments_of_the_old_store_are_never_replayed() -> None:
    """Row 84: put back under any name, they are refused, or do not count."""
    files = MemoryFiles()
    export(files, {"default": {b"k": b"exported"}})
    with pystate.open(DIRECTORY, files=files) as store:
        for number in range(3):
            store.family("default")[b"k"] = b"%d" % number
    old = files.image()
    report = pystate.install(DIRECTORY, FILE, files=files)
    new = files.image()
    for name, content in old.items():
        files.restore(DIRECTORY, new | {name: content})
        assert look(files)[0] == {"default": {b"k": b"exported"}}
        pystate.open(DIRECTORY, files=files).close()
        assert name not in files.image()
        for number in (report.sequence + 1, report.sequence + 2):
            for suffix in ("log", "closed"):
                if name.endswith("closed"):
                    files.restore(DIRECTORY, new | {f"{number:020d}.{suffix}": content})
                    with pytest.raises(pystate.CorruptionError):
                        look(files)


def test_what_is_there_and_is_no_store(tmp_path: Path) -> None:
    with pystate.memory() as source:
        source.family("default")[b"k"] = b"v"
        source.export(tmp_path / "exported")
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    for path, error in [
        (tmp_path / "file", pystate.NotAStoreError),
        (tmp_path / "other", pystate.NotAStoreError),
        (tmp_path / "missing" / "store", pystate.StoreNotFoundError),
    ]:
        before = fingerprint(tmp_path)
        with pytest.raises(error):
            pystate.install(path, tmp_path / "exported")
        assert fingerprint(tmp_path) == before
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "new"):
        assert not pystate.install(path, tmp_path / "exported").replaced
        assert contents(path) == {"default": {b"k": b"v"}}


def test_wrong_arguments(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pystate.open(path) as store:
        store.snapshot()
    [snapshot] = path.glob("*.snapshot")
    before = fingerprint(tmp_path)
    for error, arguments, options in [
        (ValueError, (path, snapshot), {}),
        (ValueError, (path, ""), {}),
        (TypeError, (path, None), {}),
        (TypeError, (None, snapshot), {}),
        (FileNotFoundError, (path, tmp_path / "missing"), {}),
        (ValueError, (path, tmp_path / "missing"), {"lock_timeout": -1.0}),
    ]:
        with pytest.raises(error):
            pystate.install(*arguments, **options)  # type: ignore[arg-type]
    assert fingerprint(tmp_path) == before
    pystate.install(tmp_path / "copy", snapshot)  # of another store it may be
    assert contents(tmp_path / "copy") == contents(path)


def test_reads_and_writes_may_do_less_than_asked() -> None:
    """Rows 41 and 43."""
    memory = MemoryFiles()
    state = {"default": {b"%d" % number: b"v" * number for number in range(200)}}
    export(memory, state)
    for seed in range(5):
        pystate.install(DIRECTORY, FILE, files=WatchedFiles(memory, short=seed))
        assert look(memory)[0] == state


def test_file_that_goes_bad_while_it_is_copied_leaves_the_old_store() -> None:
    """It was right when it was checked."""
    memory = MemoryFiles()
    export(memory, {"default": {b"k": b"v" * 99}})
    with pystate.open(DIRECTORY, files=memory) as store:
        store.family("default")[b"old"] = b"state"
    before = memory.image()
    files = WatchedFiles(memory)

    def spoil(operation: str, path: str) -> None:
        if operation == "create":
            data = memory._files[FILE].data
            data[data.index(b"vvv")] ^= 1

    files.before = spoil
    with pytest.raises(pystate.CorruptionError) as caught:
        pystate.install(DIRECTORY, FILE, files=files)
    assert caught.value.path == FILE
    assert memory.image() == before


def test_full_disk_is_told_with_the_path_and_leaves_no_debris() -> None:
    memory = MemoryFiles()
    export(memory, {"default": {b"k": b"v"}})
    files = WatchedFiles(memory)
    files.before = nth("write", 2, lambda: failure(errno.ENOSPC))
    with pytest.raises(pystate.DiskFullError) as caught:
        pystate.install(DIRECTORY, FILE, files=files)
    assert caught.value.path == DIRECTORY
    assert memory.image() == {}


def test_an_interrupt_anywhere_leaves_one_of_the_two_stores() -> None:
    """Row 45: at each place in the code, not only at the calls of the disk."""
    small, seen = SMALL["closed"], set()

    def action(interrupt: Interrupt) -> None:
        memory = small.files()
        export(memory, {"default": {b"k": b"v"}})
        try:
            with interrupt:
                pystate.install(DIRECTORY, FILE, files=memory)
        except KeyboardInterrupt:
            assert interrupt.hit
        memory.restore(DIRECTORY, memory.image())
        memory.locks.clear()
        found = look(memory)[0]
        assert found in (small.state, {"default": {b"k": b"v"}})
        seen.add(found == small.state)
        pystate.open(DIRECTORY, files=memory).close()
        assert look(memory)[0] == found

    assert at_each_place(action, install, replacing) > 15
    assert seen == {False, True}
