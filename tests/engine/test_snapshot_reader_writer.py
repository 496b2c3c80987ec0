"""A snapshot written from a pinned state and read back: whole, lazily, block by block, and damaged."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pystate.engine import snapshot_reader, snapshot_writer
from pystate.engine.family_state import FamilyState
from pystate.engine.names import snapshot_name
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_reader import SnapshotReader
from pystate.engine.snapshot_writer import SnapshotCancelledError, encode_empty, write_snapshot
from pystate.engine.state import State
from pystate.errors import CorruptionError
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.watched_files import WatchedFiles, nth

NAME = snapshot_name(3)
PATH = f"{DIRECTORY}/{NAME}"
Families = dict[str, dict[bytes, bytes]]


class Written:
    """A state of some families, and what writing it needs."""

    def __init__(self, families: Families, short: int | None = None) -> None:
        self.memory = MemoryFiles()
        self.memory.make_directory(DIRECTORY)
        self.files = WatchedFiles(self.memory, short=short)
        states = [FamilyState(at, name) for at, name in enumerate(families, start=1)]
        for state in states:
            state.values = dict(families[state.name])
        self.state = State(sequence=3, families=states, next_family_id=len(states) + 1, history_bytes=10**9)
        self.header = SnapshotHeader(
            store_id=bytes(16),
            sequence=3,
            generation=1,
            next_family_id=len(states) + 1,
            families={state.name: state.id for state in states},
        )

    def write(self, cancelled: Callable[[], bool] = lambda: False) -> int:
        pin = self.state.pin(durable_reader=True)
        try:
            return write_snapshot(self.files, DIRECTORY, self.header, self.state, self.state.families, pin, cancelled)
        finally:
            pin.release()

    def read(self) -> Families:
        reader = SnapshotReader(self.files, PATH)
        found = {name: reader.load(family_id) for name, family_id in reader.header.families.items()}
        reader.close()
        return found


FAMILIES: Families = {"a": {b"k%d" % number: b"v" * number for number in range(9)}, "empty": {}, "b": {b"": b""}}
entries = st.dictionaries(st.binary(max_size=4), st.binary(max_size=40), max_size=12)


@given(
    st.dictionaries(st.text(min_size=1, max_size=4), entries, min_size=1, max_size=4), st.none() | st.integers(0, 99)
)
@settings(max_examples=60)
def test_families_written_and_read_are_the_same(families: Families, short: int | None) -> None:
    """Round trip with blocks of a few entries and bytes, read in groups of a few bytes; rows 41 and 43."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_writer, "_BLOCK_ENTRIES", 3)
        patch.setattr(snapshot_writer, "_BLOCK_BYTES_MAX", 50)
        patch.setattr(snapshot_writer, "_SYNC_BYTES", 60)
        patch.setattr(snapshot_reader, "_READ_AHEAD", 100)
        written = Written(families, short)
        size = written.write()
        assert size == len(written.memory.image(DIRECTORY)[NAME])
        assert written.read() == families
        reader = SnapshotReader(written.files, PATH)
        assert list(reader.verify()) == []
        for name, family_id in reader.header.families.items():
            keys = [key for block, _ in reader.blocks(family_id) for key in block] if families[name] else []
            assert keys == sorted(families[name])
            assert reader.entries(family_id) == len(families[name])
        reader.close()
        assert written.files.open_files == []


def test_snapshot_is_as_of_its_pin_whatever_is_committed_meanwhile() -> None:
    """Design section 5: taken from a view; the writer holds the state's lock for one block at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_writer, "_BLOCK_ENTRIES", 2)
        written = Written(FAMILIES)
        sequence = 3

        def commit() -> bool:
            nonlocal sequence
            sequence += 1
            family, other = written.state.families["a"], written.state.families["b"]
            changes = {b"k%d" % (sequence % 9): None, b"new%d" % sequence: b"", b"k8": b"other"}
            written.state.apply([(family, dict(changes)), (other, {b"": None, b"x": b"x"})], sequence)
            return False

        written.write(commit)
        assert sequence > 6
        assert written.read() == FAMILIES


@pytest.mark.parametrize("blocks", range(5))
def test_snapshot_that_is_cancelled_leaves_nothing(blocks: int) -> None:
    """The store closes meanwhile: the temporary file goes, and nothing else was touched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_writer, "_BLOCK_ENTRIES", 2)
        written = Written(FAMILIES)
        answers = iter([False] * blocks + [True])
        with pytest.raises(SnapshotCancelledError):
            written.write(lambda: next(answers))
        assert written.memory.image(DIRECTORY) == {}
        assert written.files.open_files == []


def test_snapshot_gets_its_name_only_when_it_is_complete_and_synced() -> None:
    """Row 24, R5: temporary name, everything written, sync, rename, sync of the directory."""
    written = Written(FAMILIES)
    written.write()
    trace = [(operation, path.rpartition("/")[2]) for operation, path in written.files.trace]
    writes = [("write", NAME + ".tmp")] * 4  # head, two blocks, tail
    assert trace == [
        ("create", NAME + ".tmp"), *writes, ("sync", NAME + ".tmp"), ("replace", NAME), ("sync_directory", "store"),
    ]  # fmt: skip


def test_large_snapshot_is_synced_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One large sync at the end would hold up the syncs of commits."""
    monkeypatch.setattr(snapshot_writer, "_BLOCK_ENTRIES", 1)
    monkeypatch.setattr(snapshot_writer, "_SYNC_BYTES", 100)
    written = Written({"a": {b"%03d" % number: b"v" * 40 for number in range(30)}})
    size = written.write()
    assert size / 200 < written.files.counts["sync"] < size / 100 + 1


@pytest.mark.parametrize("operation", ["create", "write", "sync", "replace"])
@pytest.mark.parametrize(
    "error", [lambda: failure(errno.ENOSPC), KeyboardInterrupt, MemoryError], ids=["full", "^C", "memory"]
)
def test_snapshot_that_fails_leaves_nothing(operation: str, error: Callable[[], BaseException]) -> None:
    """Rows 34, 39, 45 and 46: at every call of every step; the old state is as it was."""
    number = 0
    while True:
        number += 1
        written = Written(FAMILIES)
        written.memory.restore(DIRECTORY, {"other": b"file"})
        written.files.before = nth(operation, number, error)
        try:
            written.write()
        except BaseException as raised:
            assert type(raised) is type(error())
        else:
            break
        assert written.memory.image(DIRECTORY) == {"other": b"file"}
        assert written.files.open_files == []
        assert written.state.history.bytes == 0
    assert number > 1


def test_snapshot_whose_temporary_file_cannot_be_removed_tells_the_first_error() -> None:
    """A failure is not hidden behind another; the leftover is harmless."""
    written = Written(FAMILIES)
    hooks = [nth("sync", 1, lambda: failure(errno.EIO)), nth("unlink", 1, lambda: failure(errno.EROFS))]

    def fail(operation: str, path: str) -> None:
        for hook in hooks:
            hook(operation, path)

    written.files.before = fail
    with pytest.raises(OSError, match="Input/output"):
        written.write()
    assert list(written.memory.image(DIRECTORY)) == [NAME + ".tmp"]


def test_empty_snapshot_is_read_back() -> None:
    """What a new store begins with."""
    header = SnapshotHeader(store_id=bytes(16), sequence=3, generation=1, next_family_id=3, families={"a": 1, "b": 2})
    files = MemoryFiles().restore(DIRECTORY, {NAME: encode_empty(header)})
    reader = SnapshotReader(files, PATH)
    assert reader.header == header
    assert [reader.entries(1), reader.entries(2)] == [0, 0]
    assert [reader.load(1), reader.load(2)] == [{}, {}]


def test_block_of_large_values_is_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has a limit in bytes, and always at least one entry."""
    monkeypatch.setattr(snapshot_writer, "_BLOCK_BYTES_MAX", 100)
    values = {b"%d" % number: b"v" * size for number, size in enumerate([10, 10, 200, 90, 20, 300, 300, 1])}
    written = Written({"a": values})
    written.write()
    reader = SnapshotReader(written.files, PATH)
    blocks = [keys for keys, _ in reader.blocks(1)]
    assert [key for keys in blocks for key in keys] == sorted(values)
    assert all(len(keys) == 1 or sum(len(k) + len(values[k]) for k in keys) <= 100 for keys in blocks)
    assert len(blocks) == 7
    reader.close()


def test_file_stays_open_until_the_last_family_is_read() -> None:
    """Families are decoded when first touched, even when the file has been superseded meanwhile."""
    written = Written(FAMILIES)
    written.write()
    reader = SnapshotReader(written.files, PATH)
    written.files.unlink(PATH)
    assert reader.load(1) == FAMILIES["a"]
    assert len(written.files.open_files) == 1
    assert reader.load(3) == FAMILIES["b"]
    assert written.files.open_files == []
    assert reader.load(2) == {}


def test_family_that_is_not_wanted_does_not_keep_the_file_open() -> None:
    """A family that was dropped is never decoded."""
    written = Written(FAMILIES)
    written.write()
    reader = SnapshotReader(written.files, PATH)
    reader.forget(1)
    reader.load(3)
    assert written.files.open_files == []


def test_reader_of_a_snapshot_without_entries_keeps_no_file_open() -> None:
    """There is nothing left to read."""
    written = Written({"a": {}, "b": {}})
    written.write()
    SnapshotReader(written.files, PATH)
    assert written.files.open_files == []


def test_closed_reader_does_not_load() -> None:
    """A family that was not decoded in time says so."""
    written = Written(FAMILIES)
    written.write()
    reader = SnapshotReader(written.files, PATH)
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.load(1)


def test_opening_a_damaged_snapshot_closes_the_file() -> None:
    """C7: descriptors balance, whatever is wrong with the file."""
    written = Written(FAMILIES)
    written.write()
    content = written.memory.image(DIRECTORY)[NAME]
    for size in range(len(content)):
        written.memory.restore(DIRECTORY, {NAME: content[:size]})
        with pytest.raises(CorruptionError):
            SnapshotReader(written.files, PATH)
        assert written.files.open_files == []


def test_damaged_block_fails_its_family_only_and_can_be_told_by_offset() -> None:
    """Guarantee 5: verify and intact_blocks say which; the other families load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_writer, "_BLOCK_ENTRIES", 3)
        written = Written(FAMILIES)
        written.write()
    content = bytearray(written.memory.image(DIRECTORY)[NAME])
    at = content.index(b"k4")
    content[at] ^= 1
    written.memory.restore(DIRECTORY, {NAME: bytes(content)})
    reader = SnapshotReader(written.files, PATH)
    with pytest.raises(CorruptionError, match="block"):
        reader.load(1)
    (problem,) = reader.verify()
    assert problem.offset is not None
    assert problem.offset <= at
    seen: list[CorruptionError] = []
    found = {key for keys, _ in reader.intact_blocks(1, seen.append) for key in keys}
    assert found == FAMILIES["a"].keys() - {b"k3", b"k4", b"k5"}
    assert [error.offset for error in seen] == [problem.offset]
    assert reader.load(3) == FAMILIES["b"]
    reader.close()


def test_read_that_fails_is_not_taken_for_damage() -> None:
    """R3, row 44: EIO stays EIO, and the file is closed when the reader could not be opened."""
    written = Written(FAMILIES)
    written.write()
    number = 0
    while True:
        number += 1
        written.files.before = nth("read_at", number, lambda: failure(errno.EIO))
        try:
            assert written.read() == FAMILIES
        except OSError as error:
            assert error.errno == errno.EIO
            written.files.open_files.clear()  # a reader that was opened stays open: it may be asked again
        else:
            break
    assert number > 5
