"""The steps in which everything is replaced: their order, and what the numbers may be.

What a crash between them leaves is in `tests/testing/test_replacing_crashes.py`, a failure in `test_rewrite.py`.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate import CorruptionError
from pystate.engine.names import FileName, parse_name, segment_name, snapshot_name
from pystate.engine.recovery import Inventory
from pystate.engine.replacing import sequence_above
from pystate.engine.snapshot_reader import SnapshotReader
from tests.engine.memory_files import DIRECTORY, MemoryFiles
from tests.engine.small_stores import CONDITIONS, SMALL, Condition
from tests.engine.watched_files import WatchedFiles

numbers = st.lists(st.integers(0, 2**40), max_size=4)


def rewritten(files: WatchedFiles) -> pystate.RewriteReport:
    return pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.metadata.update(a="1"), files=files)


def test_each_step_is_durable_before_the_next() -> None:
    """R5, rows 23 to 25: snapshot, its temporary name, the prepared segment, the rename; and only then the removals."""
    small = SMALL["closed"]
    files = WatchedFiles(small.files())
    report = rewritten(files)
    trace = [(operation, path.rpartition("/")[2]) for operation, path in files.trace]
    changing = [call for call in trace if call[0] not in ("list_directory", "read_at", "open_read")]
    snapshot = snapshot_name(report.sequence)
    segment = segment_name(report.sequence + 1, closed=True)
    writes = changing.count(("write", snapshot + ".tmp"))
    removed = [parse_name(name) for name in small.image]
    assert changing == [
        ("lock", "store"), ("open_append", small.newest),
        ("create", snapshot + ".tmp"), *[("write", snapshot + ".tmp")] * writes, ("sync", snapshot + ".tmp"),
        ("sync_directory", "store"),
        ("create", segment + ".tmp"), ("write", segment + ".tmp"), ("sync", segment + ".tmp"),
        ("replace", segment), ("sync_directory", "store"),
        ("sync", snapshot + ".tmp"), ("replace", snapshot), ("sync_directory", "store"),
        *[("unlink", name.name) for name in removed if name.kind == "segment"],
        *[("unlink", name.name) for name in removed if name.kind == "snapshot"],
    ]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_new_snapshot_names_all_that_it_replaces(condition: Condition) -> None:
    """And no file that comes later can have one of these names."""
    small = SMALL[condition]
    files = WatchedFiles(small.files())
    report = rewritten(files)
    reader = SnapshotReader(files, f"{DIRECTORY}/{snapshot_name(report.sequence)}")
    old = {name for name in small.image if parse_name(name).kind in ("snapshot", "segment")}
    assert reader.header.replaced == old
    assert all(parse_name(name).sequence < report.sequence for name in old)
    assert reader.header.log != reader.header.store_id
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"k"] = b"v"
        store.snapshot()
        [name] = [name for name in files.real_image() if name.endswith(".snapshot")]
        later = SnapshotReader(files, f"{DIRECTORY}/{name}")
        assert later.header.replaced == old  # until the next time: one of them may come back after a power cut
        assert later.header.log == reader.header.log
    pystate.rewrite(DIRECTORY, lambda rewriting: rewriting.metadata.clear(), files=files)
    [name] = [name for name in files.real_image() if name.endswith(".snapshot")]
    assert SnapshotReader(files, f"{DIRECTORY}/{name}").header.replaced.isdisjoint(old)


@given(numbers, numbers, st.integers(0, 2**40))
def test_the_new_sequence_is_above_every_number(snapshots: list[int], segments: list[int], sequence: int) -> None:
    inventory = Inventory(
        [FileName(snapshot_name(number), "snapshot", number) for number in snapshots],
        [FileName(segment_name(number), "segment", number) for number in segments],
        [],
    )
    above = sequence_above("store", inventory, sequence)
    assert above == max([sequence, *snapshots, *segments]) + 1


def test_there_is_an_end_to_sequences() -> None:
    inventory = Inventory([], [], [])
    assert sequence_above("store", inventory, 2**63 - 2) == 2**63 - 1
    with pytest.raises(CorruptionError, match="below"):
        sequence_above("store", inventory, 2**63 - 1)


def test_what_cannot_be_removed_waits_for_the_next_opening() -> None:
    """And does not count meanwhile, nor for those who read."""
    small = SMALL["sync"]
    memory = small.files()
    files = WatchedFiles(memory)

    def refuse(operation: str, path: str) -> None:
        if operation == "unlink":
            raise PermissionError(path)

    files.before = refuse
    for number in range(3):
        value = str(number)
        pystate.rewrite(DIRECTORY, lambda rewriting, value=value: rewriting.metadata.update(a=value), files=files)  # type: ignore[misc]
        assert pystate.read_metadata(DIRECTORY, files=files) == {"a": value}
        with pystate.open(DIRECTORY, files=files) as store:
            store.family("default")[b"%d" % number] = b""
            store.snapshot()
            store.family("default")[b"%d" % number] = b"v"
    assert len(memory.image()) > 10
    files.before = None
    with pystate.open(DIRECTORY, files=files) as store:
        assert store.metadata == {"a": "2"}
        assert store.family("default").get(b"2") == b"v"
    assert len([name for name in memory.image() if parse_name(name).kind in ("snapshot", "segment")]) == 2


def test_an_ordinary_snapshot_says_nothing_of_all_this() -> None:
    files = MemoryFiles()
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"k"] = b"v"
        store.snapshot()
        [name] = [name for name in files.image() if name.endswith(".snapshot")]
        header = SnapshotReader(files, f"{DIRECTORY}/{name}").header
    assert header.log_id is msgspec.UNSET
    assert header.replaces is msgspec.UNSET
