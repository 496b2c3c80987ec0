"""From the files to the state they hold: which snapshot, which segments, and what the error says when it cannot be.

The damage itself is in `test_damage.py`, the table in `test_recovery_table.py`.
"""

from __future__ import annotations

import errno
import struct
from zlib import crc32

import pytest

import pystate
from pystate import CorruptionError, UnsupportedFormatError
from pystate.engine.log_format import (
    SegmentHeader,
    encode_closed_segment,
    encode_frame,
    encode_operations,
    encode_segment_header,
    salt_seed,
)
from pystate.engine.recovery import Recovered, Replay, recover, survey
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_writer import encode_empty
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.small_stores import CONDITIONS, SMALL, Condition, Image
from tests.engine.watched_files import WatchedFiles, nth

STORE = bytes(range(16))
SALT = b"salt"


def header(first: int, generation: int = 1, store_id: bytes = STORE) -> bytes:
    return encode_segment_header(SegmentHeader(store_id, generation, SALT, first))


def frame(sequence: int, watermark: int, *operations: object) -> bytes:
    payload = encode_operations(list(operations) if operations else [1, b"%d" % sequence, b""])
    return encode_frame(SALT, salt_seed(SALT), sequence, watermark, payload)


def closing(sequence: int, *following: int) -> bytes:
    return encode_frame(SALT, salt_seed(SALT), sequence, sequence, encode_operations(list(following)))


def snapshot(sequence: int, store_id: bytes = STORE) -> bytes:
    return encode_empty(
        SnapshotHeader(store_id=store_id, sequence=sequence, generation=1, next_family_id=2, families={"default": 1})
    )


def log(first: int) -> str:
    return f"{first:020d}.log"


def at(sequence: int) -> str:
    return f"{sequence:020d}.snapshot"


def read(image: Image) -> Recovered:
    files = MemoryFiles().restore(DIRECTORY, image)
    recovered = recover(files, DIRECTORY, survey(files, DIRECTORY))
    recovered.reader.close()
    return recovered


def refused(image: Image) -> CorruptionError:
    with pytest.raises(CorruptionError) as caught:
        read(image)
    return caught.value


def keys(recovered: Recovered) -> list[bytes]:
    families = recovered.families()
    for family in families:
        family.load()
    return sorted(key for family in families for key in family.values)


def test_snapshot_and_segments_make_the_state() -> None:
    """The newest intact snapshot, then every segment from the one that follows it."""
    older = header(3) + frame(3, 2) + frame(4, 3) + closing(4, 5)
    newest = header(5) + frame(5, 4)
    recovered = read({at(2): snapshot(2), log(3): older, log(5): newest})
    assert recovered.log_bytes == len(older) + len(newest)
    assert keys(recovered) == [b"3", b"4", b"5"]
    assert recovered.decision.action == "unclosed"
    assert (recovered.end.sequence, recovered.frames) == (5, 3)
    assert [name.name for name in recovered.needed] == [log(3), log(5)]
    assert (recovered.torn, recovered.stale, recovered.damaged) == (b"", [], [])


def test_segment_that_begins_before_the_snapshot_is_read_from_the_commit_behind_it() -> None:
    """Row 26: a snapshot's sequence may lie in the middle of a segment; what it holds is checked and skipped."""
    recovered = read({at(4): snapshot(4), log(3): header(3) + frame(3, 2) + frame(4, 3) + frame(5, 4)})
    assert keys(recovered) == [b"5"]
    assert recovered.frames == 1


def test_segment_that_ends_before_the_snapshot_is_refused() -> None:
    """Guarantee 5: the snapshot proves commits that the newest segment should have, so the segment was shortened."""
    error = refused({at(9): snapshot(9), log(3): header(3) + frame(3, 2)})
    assert "commit 4" in error.expected
    assert error.sequence == 3


@pytest.mark.parametrize("behind", [1, 2])
def test_log_that_begins_behind_the_snapshot_is_refused_with_the_first_missing_commit(behind: int) -> None:
    """Row 14: the segment that should follow is not there."""
    error = refused({at(2): snapshot(2), log(3 + behind): header(3 + behind)})
    assert error.path == f"{DIRECTORY}/{log(3)}"
    assert "commit 3" in error.expected
    assert str(3 + behind) in error.found


@pytest.mark.parametrize(
    ("image", "word"),
    [
        ({at(0): snapshot(0), log(1): header(1, store_id=bytes(16))}, "store"),
        ({at(0): snapshot(0), log(1): header(2)}, "first sequence"),
        ({at(0): snapshot(0), log(1): header(1, 2) + frame(1, 0), log(2): header(2, 1)}, "generation"),
        ({at(0): snapshot(0), log(1): b""}, "header"),
        ({at(0): snapshot(1), log(1): header(1)}, "sequence"),
        ({at(1): snapshot(1), log(1): header(1, store_id=bytes(16)), log(2): header(2)}, "store"),
        ({at(1): snapshot(1), log(1): b"junk" * 20, log(2): header(2)}, "magic"),
    ],
    ids=["foreign", "renamed", "older generation", "empty", "snapshot renamed", "stale foreign", "stale junk"],
)
def test_file_that_does_not_belong_here_is_refused(image: Image, word: str) -> None:
    """Rows 9 and 17, R11: name, store, generation; of superseded segments too, since they are going to be deleted."""
    error = refused(image)
    assert word in error.expected


def test_generation_may_grow_from_segment_to_segment() -> None:
    """After an unclean stop the next segment starts a new generation."""
    image = {
        at(0): snapshot(0),
        log(1): header(1, 1) + frame(1, 0),
        log(2): header(2, 5) + frame(2, 1),
        log(3): header(3, 5),
    }
    recovered = read(image)
    assert recovered.segment.generation == 5
    assert keys(recovered) == [b"1", b"2"]


def test_closing_frame_that_is_damaged_before_a_commit_is_refused() -> None:
    """Guarantee 5, R2 (b): a closing frame is durable before anything stands behind it, so it is no torn tail.

    Symptom once: a store that was closed, opened again and stopped uncleanly lost its last commit, whose own frame was
    intact, when a byte of the closing frame before it was damaged. Its watermark proves no more than that frame's own
    sequence. Now an intact frame whose sequence is the next one proves that what is damaged was a closing frame.
    """
    before = header(1) + frame(1, 0) + frame(2, 1)
    for byte in range(33):
        damaged = bytearray(closing(2))
        damaged[byte] ^= 1
        error = refused({at(0): snapshot(0), log(1): before + bytes(damaged) + frame(3, 2)})
        assert error.offset == len(before)
        assert error.sequence == 2


def test_group_of_which_the_first_frame_is_torn_is_cut_off_whole() -> None:
    """Guarantees 1 and 2: two frames of one write, neither of them ever synced; only a prefix survives."""
    torn = bytearray(frame(2, 1))
    torn[-1] ^= 1
    rest = bytes(torn) + frame(3, 1)
    recovered = read({at(0): snapshot(0), log(1): header(1) + frame(1, 0) + rest})
    assert recovered.decision.action == "torn"
    assert recovered.torn == rest
    assert keys(recovered) == [b"1"]


def test_damage_proven_by_a_later_frame_or_by_a_torn_one_is_refused() -> None:
    """R2 (c): the watermark of any intact header behind it counts, even if that frame's own payload is torn."""
    torn = bytearray(frame(2, 1))
    torn[-1] ^= 1
    for proof in (frame(3, 2), frame(3, 2)[:32], b"\xff" * 7 + frame(9, 2)[:32]):
        error = refused({at(0): snapshot(0), log(1): header(1) + frame(1, 0) + bytes(torn) + proof})
        assert "up to 2" in error.expected
        assert (error.offset, error.sequence) == (len(header(1) + frame(1, 0)), 1)


def test_last_record_damaged_with_nothing_behind_it_is_a_torn_tail() -> None:
    """The one honest gap: after an unclean stop nothing tells the last commit from one that was never acknowledged."""
    damaged = bytearray(frame(2, 1))
    damaged[-1] ^= 1
    recovered = read({at(0): snapshot(0), log(1): header(1) + frame(1, 0) + bytes(damaged)})
    assert recovered.decision.action == "torn"
    closed = {
        at(0): snapshot(0),
        log(1).replace("log", "closed"): header(1) + frame(1, 0) + bytes(damaged) + closing(2),
    }
    refused(closed)


def test_newest_segment_named_by_a_closing_frame_is_missed() -> None:
    """Row 15: the error names the file that should be there."""
    error = refused({at(0): snapshot(0), log(1): header(1) + frame(1, 0) + closing(1, 2)})
    assert error.path == f"{DIRECTORY}/{log(2)}"


def test_newer_format_is_unsupported_wherever_it_stands() -> None:
    """Row 89: in the snapshot, in a needed segment, in a superseded one."""

    def newer(data: bytes, covered: int) -> bytes:
        changed = bytearray(data)
        struct.pack_into("<I", changed, 8, 2)
        struct.pack_into("<I", changed, covered, crc32(changed[:covered]))
        return bytes(changed)

    good = {at(1): snapshot(1), log(1): header(1) + frame(1, 0), log(2): header(2)}
    read(good)
    for name, covered in ((at(1), 20), (log(1), 44), (log(2), 44)):
        with pytest.raises(UnsupportedFormatError) as caught:
            read({**good, name: newer(good[name], covered)})
        assert caught.value.path == f"{DIRECTORY}/{name}"


def test_newest_snapshot_is_checked_whole_only_when_an_older_one_would_be_removed() -> None:
    """Opening reads the index only; but before anything older goes, every block is looked at."""
    small = SMALL["leftovers"]
    for image, blocks in ((small.image, True), (SMALL["sync"].image, False)):
        files = WatchedFiles(MemoryFiles().restore(DIRECTORY, image))
        recovered = recover(files, DIRECTORY, survey(files, DIRECTORY))
        reads = [path for operation, path in files.trace if operation == "read_at" and path.endswith(".snapshot")]
        assert (len(reads) > 4) == blocks
        recovered.reader.close()
        assert files.open_files == []


@pytest.mark.parametrize("condition", CONDITIONS)
def test_recovery_changes_nothing_and_closes_what_it_opens(condition: Condition) -> None:
    """R9: reading never writes; C7: descriptors balance."""
    small = SMALL[condition]
    files = WatchedFiles(small.files())
    recovered = recover(files, DIRECTORY, survey(files, DIRECTORY))
    recovered.reader.close()
    assert set(files.counts) <= {"list_directory", "open_read", "read_at"}
    assert files.open_files == []


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("operation", ["open_read", "read_at", "list_directory"])
def test_read_error_is_not_corruption(condition: Condition, operation: str) -> None:
    """R3, row 44: EIO stays EIO at every call; nothing is left open, and the next recovery is full."""
    small = SMALL[condition]
    number = 0
    while True:
        number += 1
        files = WatchedFiles(small.files())
        files.before = nth(operation, number, lambda: failure(errno.EIO))
        try:
            recovered = recover(files, DIRECTORY, survey(files, DIRECTORY))
        except OSError as error:
            assert error.errno == errno.EIO
        else:
            recovered.reader.close()
            break
        assert files.open_files == []
    assert number > 1


@pytest.mark.parametrize("condition", CONDITIONS)
def test_short_reads_are_not_the_end_of_the_file(condition: Condition) -> None:
    """Row 43: a read that returns fewer bytes is asked for the rest."""
    small = SMALL[condition]
    for seed in range(5):
        files = WatchedFiles(small.files(), short=seed)
        with pystate.open(DIRECTORY, files=files, read_only=True) as store:
            assert {name: dict(store.family(name)) for name in store.families} == small.state


# What does not count

OTHER = bytes(range(16, 32))


def new(sequence: int, *replaces: str, log_id: bytes = OTHER) -> bytes:
    """A snapshot that has replaced everything."""
    return encode_empty(
        SnapshotHeader(
            store_id=STORE,
            sequence=sequence,
            generation=1,
            next_family_id=2,
            families={"default": 1},
            log_id=log_id,
            replaces=list(replaces),
        )
    )


def prepared(first: int, log_id: bytes = OTHER) -> bytes:
    return encode_closed_segment(SegmentHeader(log_id, 1, SALT, first))


def closed(first: int) -> str:
    return f"{first:020d}.closed"


OLD = {at(0): snapshot(0), log(1): header(1) + frame(1, 0) + frame(2, 1)}
"""A store with two commits."""


def test_a_segment_that_was_prepared_and_never_used_does_not_count() -> None:
    """Wherever its number lies: the store may have gone on, or have been closed, and it could not be removed."""
    closing_old = {at(0): snapshot(0), closed(1): header(1) + frame(1, 0) + frame(2, 1) + closing(2)}
    for old, action in ((OLD, "unclosed"), (closing_old, "clean")):
        for number in (2, 3, 4, 9):
            recovered = read(old | {closed(number): prepared(number)})
            assert keys(recovered) == [b"1", b"2"]
            assert recovered.decision.action == action
            assert [name.name for name in recovered.stale] == [closed(number)]
            assert not recovered.replaced
    between = {at(0): snapshot(0), log(1): header(1) + frame(1, 0), log(2): header(2) + frame(2, 1)}
    assert keys(read(between | {closed(2): prepared(2)})) == [b"1", b"2"]
    later = {at(1): snapshot(1), log(1): header(1) + frame(1, 0), log(2): header(2) + frame(2, 1)}
    recovered = read(later | {closed(1): prepared(1)})
    assert [name.name for name in recovered.stale] == [log(1), closed(1)]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (log(4), prepared(4)),
        (closed(4), prepared(4) + b"x"),
        (closed(4), prepared(4)[:-1]),
        (closed(4), prepared(4)[:48]),
        (closed(4), prepared(5)),
        (closed(4), prepared(4, STORE)),
        (closed(4), header(4, store_id=OTHER) + frame(4, 3) + closing(4)),
        (closed(4), prepared(4)[:48] + closing(4)),
        (closed(4), prepared(4)[:-33] + frame(4, 3)),
    ],
    ids=["open", "longer", "cut", "no frame", "renamed", "own", "a commit", "other closing frame", "a commit only"],
)
def test_a_segment_that_is_not_quite_prepared_counts(name: str, data: bytes) -> None:
    """Rows 9, 13 and 14: and so it is refused, as a segment of another log, or for the commit that is missing."""
    refused(OLD | {name: data})


def test_a_prepared_segment_alone_is_no_excuse_for_a_lost_log() -> None:
    """Row 15: the log of the snapshot is not there."""
    refused({at(0): snapshot(0), closed(1): prepared(1)})
    refused({at(0): snapshot(0), closed(1): prepared(1), closed(4): prepared(4)})


def test_what_a_snapshot_replaces_does_not_count_whatever_it_holds() -> None:
    """Damaged, of another store or format, under a number that is in use: it is not even looked at."""
    now = {at(3): new(3, at(0), log(1), closed(1), closed(4), log(9)), log(4): header(4, store_id=OTHER) + frame(4, 3)}
    for old in (
        {},
        OLD,
        {at(0): b"junk", log(1): b"junk"},
        {closed(1): header(1, store_id=bytes(16))},
        {closed(4): prepared(4, STORE)},
        {log(9): b"pystlog\n" + bytes(100)},
    ):
        recovered = read(now | old)
        assert keys(recovered) == [b"4"]
        assert {name.name for name in recovered.stale} == set(old)
        assert recovered.replaced == bool(old)
        assert [name.name for name in recovered.needed] == [log(4)]


def test_what_is_not_named_counts() -> None:
    """Row 9: a segment of another log is not deleted unless the snapshot says so."""
    now = {at(3): new(3, at(0)), log(4): header(4, store_id=OTHER)}
    read(now)
    error = refused(now | OLD)
    assert error.path.endswith(log(1))
    assert OTHER.hex() in error.expected


def test_a_log_with_an_id_of_its_own_is_told_from_that_of_the_store() -> None:
    refused({at(3): new(3), log(4): header(4)})
    refused({at(3): new(3, log_id=STORE), log(4): header(4, store_id=OTHER)})
    read({at(3): new(3), log(4): header(4, store_id=OTHER)})


def test_damage_of_a_snapshot_that_has_replaced_everything_is_never_made_up_for_by_what_it_replaced() -> None:
    """Guarantee 5: the old state is not shown in its place, although all of its files are still there."""
    damaged = bytearray(new(3, *OLD))
    damaged[30] ^= 1
    error = refused(OLD | {at(3): bytes(damaged), closed(4): prepared(4)})
    assert "later commits had been durable, up to 3" in error.expected


def test_survey_sorts_files_by_kind_and_sequence() -> None:
    """Names are all that is looked at."""
    names = [log(12), log(2), at(10), at(9), "LOCK", "x.tmp", "y.torn", "notes", log(1).replace("log", "closed")]
    files = MemoryFiles().restore(DIRECTORY, dict.fromkeys(names, b""))
    found = survey(files, DIRECTORY)
    assert [name.name for name in found.snapshots] == [at(9), at(10)]
    assert [name.sequence for name in found.segments] == [1, 2, 12]
    assert sorted(name.kind for name in found.others) == ["foreign", "lock", "temporary", "torn"]
    assert found.is_store
    assert not survey(MemoryFiles().restore(DIRECTORY, {"notes": b""}), DIRECTORY).is_store


def replay() -> Replay:
    return Replay(SnapshotHeader(store_id=STORE, sequence=0, generation=1, next_family_id=3, families={"a": 1, "b": 2}))


def test_replay_follows_the_catalogue() -> None:
    """Row 80: a family that is dropped and made again is a new one; nothing of the old one comes back."""
    taken = replay()
    taken.apply([1, b"k", b"v"], 1)
    taken.apply([0, b"a", None], 2)
    assert taken.names == {2: "b"}
    taken.apply([0, b"a", b"\x03\0\0\0"], 3)
    taken.apply([3, {b"l": b"w"}, 2, {b"m": None}], 4)
    assert taken.names == {2: "b", 3: "a"}
    assert taken.overlays == {2: {b"m": None}, 3: {b"l": b"w"}}
    assert taken.next_family_id == 4
    taken.apply([0, b"none of that name", None], 5)
    assert taken.names == {2: "b", 3: "a"}


@pytest.mark.parametrize(
    "operations",
    [
        [3, b"k", b"v"],
        [0, b"c", b"\x02\0\0\0"],
        [0, b"a", b"\x03\0\0\0"],
        [0, b"c", b"\0\0\0\0"],
        [0, b"\n", b"\x03\0\0\0"],
        [0, {b"c": b"\x03\0\0\0", b"d": b"\x03\0\0\0"}],
    ],
    ids=str,
)
def test_replay_refuses_what_cannot_follow(operations: list[object]) -> None:
    """Row 99: families that do not exist, ids used before, names that exist or cannot be."""
    with pytest.raises(ValueError, match=r"family|name"):
        replay().apply(operations, 1)  # type: ignore[arg-type]


def test_id_of_a_dropped_family_is_not_used_again() -> None:
    """Row 80: ids are never used twice, also over a snapshot and an opening."""
    files = MemoryFiles()
    with pystate.open(DIRECTORY, files=files, families=["a"]) as store:
        store.family("a")[b"k"] = b"v"
        store.drop_family("a")
        store.snapshot()
    with pystate.open(DIRECTORY, files=files) as store:
        assert len(store.create_family("a")) == 0
        assert store._state.families["a"].id == 3
        store.family("a")[b"l"] = b"w"
    with pystate.open(DIRECTORY, files=files) as store:
        assert dict(store.family("a")) == {b"l": b"w"}
