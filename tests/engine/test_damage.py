"""Damage done to every byte of small stores: the data is there, or what no byte proves is missing, or a named error.

Rows 4, 6 to 22, 26 and 99 of the test plan, and guarantee 5: no silent damage. What is expected of each damaged file is
worked out here from the bytes that are left, by a reader of its own, not by the engine.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec
import pytest

import pystate
from pystate import CorruptionError, PystateError
from pystate.engine.os_files import OsFiles
from tests.engine.directories import fingerprint
from tests.engine.memory_files import DIRECTORY, MemoryFiles
from tests.engine.small_stores import CONDITIONS, SMALL, Condition, Frame, Image, Small, State, contents, frames_of

SEGMENT_HEADER = 48
CLOSED, SYNC, PROCESS, LEFTOVERS = SMALL["closed"], SMALL["sync"], SMALL["process"], SMALL["leftovers"]


class Expected(NamedTuple):
    """What must come of a damaged store.

    Attributes:
        opens: otherwise it is refused untouched.
        sequence: the last commit that is left.
        unreadable: it opens, but a family cannot be decoded.
        kept: the bytes that are cut off and kept aside.
    """

    opens: bool
    sequence: int = 0
    unreadable: bool = False
    kept: bytes = b""


REFUSED = Expected(opens=False)


class Damage(NamedTuple):
    """A file of which the bytes from `offset` to `end` are not what they were, or, when it was cut, are gone."""

    name: str
    offset: int
    end: int
    content: bytes
    cut: bool

    def intact(self, start: int, end: int) -> bool:
        return end <= self.offset or (start >= self.end and not self.cut)


def cuts(small: Small, name: str) -> Iterator[Damage]:
    content = small.image[name]
    for size in range(len(content)):
        yield Damage(name, size, len(content), content[:size], cut=True)


def flips(small: Small, name: str, *, every_bit: bool) -> Iterator[Damage]:
    """Every byte damaged, in two ways, or in nine: each single bit, and all of them."""
    content = small.image[name]
    for at in range(len(content)):
        patterns = [1 << bit for bit in range(8)] if every_bit else [1 << at % 8]
        for pattern in [*patterns, 0xFF]:
            changed = bytearray(content)
            changed[at] ^= pattern
            yield Damage(name, at, at + 1, bytes(changed), cut=False)


def expected(small: Small, damage: Damage) -> Expected:
    """The verdict of the rules: design section 5, and reliability R2."""
    whole = Expected(opens=True, sequence=small.last)
    name, content = damage.name, small.image[damage.name]
    if name in small.stale:
        # Nothing of it is needed. But a segment is only deleted when it is known to be a segment of this store.
        return REFUSED if name.endswith(".log") and not damage.intact(0, SEGMENT_HEADER) else whole
    if name == small.snapshot:
        if small.stale:
            return whole  # the older snapshot and the segments behind it hold everything
        (header_length,) = struct.unpack_from("<I", content, 12)
        (blocks_end,) = struct.unpack_from("<Q", content, len(content) - 32)
        in_blocks = 24 + header_length <= damage.offset < blocks_end and not damage.cut
        return Expected(opens=True, sequence=small.last, unreadable=True) if in_blocks else REFUSED
    if not damage.intact(0, SEGMENT_HEADER):
        return REFUSED
    return _segment(small, damage, frames_of(content), whole)


def _segment(small: Small, damage: Damage, frames: list[Frame], whole: Expected) -> Expected:
    last, end, hit = int(damage.name[:20]) - 1, SEGMENT_HEADER, None
    for frame in frames:
        if not damage.intact(frame.start, frame.end):
            hit = frame
            break
        last, end = frame.sequence, frame.end
    if damage.name != small.newest:
        following = small.segments[small.segments.index(damage.name) + 1]
        return whole if last + 1 == int(following[:20]) else REFUSED
    if small.closed:
        return REFUSED
    proven = max([frame.watermark for frame in frames if damage.intact(frame.start, frame.payload)], default=0)
    if proven > last:
        return REFUSED
    if hit is not None and hit.closing and not damage.cut:
        return REFUSED  # only a closing frame that is durable has a commit behind it
    return Expected(opens=True, sequence=last, kept=damage.content[end:])


def outcome(files: MemoryFiles, *, read_only: bool) -> State | PystateError:
    """What there is to read, or why there is nothing."""
    try:
        with pystate.open(DIRECTORY, files=files, read_only=read_only) as store:
            return contents(store)
    except PystateError as error:
        return error


def check(small: Small, damage: Damage) -> list[str]:
    """Everything that is wrong with how the engine takes the damage."""
    wanted = expected(small, damage)
    image = small.with_file(damage.name, damage.content)
    files = small.files(image)
    wrong = []

    def compare(what: str, found: object, right: object) -> None:
        if found != right:
            wrong.append(f"{damage.name} at {damage.offset}, cut={damage.cut}: {what}: {found!r}, not {right!r}")

    found = outcome(files, read_only=True)
    compare("read-only opening", _seen(found, wanted, small), "as it must be")
    report = pystate.verify(DIRECTORY, files=files)
    if not wanted.opens or wanted.unreadable:
        compare("verify", report.ok, False)
    else:
        compare("verify: sequence", report.sequence, wanted.sequence)
        compare("verify: families", report.families, {n: len(f) for n, f in small.states[wanted.sequence].items()})
        compare("verify: torn bytes", report.torn_bytes, len(wanted.kept))
        if damage.name in small.segments:
            compare("verify: problems", report.problems, ())
    compare("files after reading", files.image(DIRECTORY) == image, True)

    found = outcome(files, read_only=False)
    compare("opening", _seen(found, wanted, small), "as it must be")
    after = files.image(DIRECTORY)
    if not wanted.opens or (wanted.unreadable and small.closed):
        compare("files after a refusal", after == image, True)
    elif wanted.unreadable:
        compare("the damaged file", after[damage.name] == damage.content, True)
    else:
        kept = [after[name] for name in sorted(after.keys() - image.keys()) if name.endswith(".torn")]
        compare(
            "kept aside", [data for data in kept if damage.name in small.segments], [wanted.kept] * bool(wanted.kept)
        )
        if damage.name != small.snapshot:
            compare("opened once more", outcome(files, read_only=True), small.states[wanted.sequence])
    return wrong


def _seen(found: State | PystateError, wanted: Expected, small: Small) -> object:
    """``"as it must be"``, or what was seen instead."""
    if isinstance(found, PystateError):
        right = type(found) is CorruptionError and (not wanted.opens or wanted.unreadable)
    else:
        right = wanted.opens and not wanted.unreadable and found == small.states[wanted.sequence]
    return "as it must be" if right else (found, wanted)


FILES = [(condition, name) for condition in CONDITIONS for name in sorted(SMALL[condition].image)]


@pytest.mark.parametrize(("condition", "name"), FILES, ids=map("-".join, FILES))
def test_file_cut_at_every_length_loses_nothing_that_is_proven(condition: Condition, name: str) -> None:
    """Guarantee 5, rows 6, 12, 13 and 19: a torn tail is cut off, and everything else is refused untouched."""
    small = SMALL[condition]
    assert [wrong for damage in cuts(small, name) for wrong in check(small, damage)] == []


@pytest.mark.parametrize(("condition", "name"), FILES, ids=map("-".join, FILES))
def test_file_with_any_byte_flipped_loses_nothing_that_is_proven(condition: Condition, name: str) -> None:
    """Guarantee 5, rows 11, 18 and 19: the same data, a named refusal, or the loss of a tail that nothing proves.

    Each single bit of the store that stopped uncleanly in ``sync``; in the other conditions two patterns per byte.
    """
    small = SMALL[condition]
    damages = flips(small, name, every_bit=condition == "sync")
    assert [wrong for damage in damages for wrong in check(small, damage)] == []


@pytest.mark.parametrize("condition", CONDITIONS)
def test_store_without_damage_has_everything(condition: Condition) -> None:
    """The counterpart: what all the others compare with opens in full, and verifies."""
    small = SMALL[condition]
    files = small.files()
    report = pystate.verify(DIRECTORY, files=files)
    assert (report.ok, report.sequence, report.clean) == (True, small.last, small.closed)
    assert outcome(files, read_only=True) == small.state
    assert files.image(DIRECTORY) == small.image
    assert outcome(files, read_only=False) == small.state


def test_small_stores_are_the_conditions_they_claim_to_be() -> None:
    """The sweeps mean something only if there is a segment switch, a snapshot, and commits of one and of several."""
    for condition, small in SMALL.items():
        assert len(small.segments) == 2 + (condition == "recovered")
        assert small.snapshot.startswith(f"{2:020d}")
        assert bool(small.stale) == (condition == "leftovers")
        assert small.newest.endswith(".closed") == small.closed
    watermarks = {condition: frames_of(small.image[small.newest])[-1].watermark for condition, small in SMALL.items()}
    assert watermarks == {"closed": 7, "sync": 6, "process": 5, "leftovers": 6, "reopened": 7, "recovered": 7}
    assert [frame.closing for frame in frames_of(SMALL["reopened"].image[SMALL["reopened"].newest])] == [
        False, False, False, True, False,
    ]  # fmt: skip


def on_disk(path: Path, image: Image) -> str:
    directory = path / "store"
    directory.mkdir()
    for name, content in image.items():
        (directory / name).write_bytes(content)
    return str(directory)


def test_last_record_cut_at_every_byte_on_a_real_disk_opens_and_reports_what_it_dropped(tmp_path: Path) -> None:
    """Row 6: the same on the file system of the operating system, and the report says what was dropped."""
    frame = frames_of(SYNC.image[SYNC.newest])[-1]
    for size in range(frame.start, frame.end):
        place = tmp_path / str(size)
        place.mkdir()
        directory = on_disk(place, SYNC.with_file(SYNC.newest, SYNC.image[SYNC.newest][:size]))
        with pystate.open(directory) as store:
            report = store.stats().recovery
            assert contents(store) == SYNC.states[-2]
        assert report is not None
        assert report.torn_bytes == size - frame.start
        assert report.decision == ("torn" if report.torn_bytes else "unclosed")
        if report.torn_file is not None:
            assert (Path(directory) / report.torn_file).read_bytes() == SYNC.image[SYNC.newest][frame.start : size]
        assert (report.torn_file is not None) == bool(report.torn_bytes)


@pytest.mark.parametrize("condition", ["sync", "process", "recovered"])
def test_junk_after_the_last_record_is_set_aside(condition: Condition) -> None:
    """Row 7: 1 to 4096 random bytes behind the last frame."""
    small, chance = SMALL[condition], random.Random(7)
    for size in [*range(1, 40), 511, 512, 513, 4095, 4096]:
        junk = chance.randbytes(size)
        files = small.files(small.with_file(small.newest, small.image[small.newest] + junk))
        with pystate.open(DIRECTORY, files=files) as store:
            report = store.stats().recovery
            assert contents(store) == small.state
        assert report is not None
        assert (report.decision, report.torn_bytes) == ("torn", size)
        assert report.torn_file is not None
        assert files.image(DIRECTORY)[report.torn_file] == junk


def test_junk_after_a_clean_close_is_refused_untouched() -> None:
    """Row 7, guarantee 5: after a clean close nothing may follow, so what follows is damage."""
    image = CLOSED.with_file(CLOSED.newest, CLOSED.image[CLOSED.newest] + b"junk")
    _refused(CLOSED, image)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 4096])
def test_tail_of_zeros_is_torn(size: int) -> None:
    """Row 4: the file grew but the content did not reach the disk."""
    files = SYNC.files(SYNC.with_file(SYNC.newest, SYNC.image[SYNC.newest] + bytes(size)))
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == SYNC.state
        report = store.stats().recovery
    assert report is not None
    assert (report.decision, report.torn_bytes) == ("torn", size)


def test_last_record_turned_to_zeros_is_torn() -> None:
    """Row 4: the last frame has its size and none, or only the beginning, of its bytes."""
    content, frame = SYNC.image[SYNC.newest], frames_of(SYNC.image[SYNC.newest])[-1]
    for kept in range(frame.end - frame.start):
        changed = content[: frame.start + kept] + bytes(frame.end - frame.start - kept)
        if changed != content:
            assert outcome(SYNC.files(SYNC.with_file(SYNC.newest, changed)), read_only=False) == SYNC.states[-2]


def _refused(small: Small, image: Image) -> CorruptionError:
    """The error with which every way in refuses these files, none of them changed."""
    files = small.files(image)
    errors = [outcome(files, read_only=read_only) for read_only in (True, False)]
    report = pystate.verify(DIRECTORY, files=files)
    assert files.image(DIRECTORY) == image
    assert files.locks == set()
    assert not report.ok
    assert report.problems
    error = errors[1]
    assert isinstance(error, CorruptionError), error
    assert [str(each) for each in errors] == [str(error)] * 2
    return error


def test_stale_records_of_an_earlier_generation_after_the_tail_are_not_replayed() -> None:
    """Row 8: what stood in those blocks of the disk before has the salt of another segment."""
    old = SMALL["recovered"].image[SMALL["recovered"].segments[1]][SEGMENT_HEADER:]
    small = SMALL["recovered"]
    files = small.files(small.with_file(small.newest, small.image[small.newest] + old))
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == small.state
        report = store.stats().recovery
    assert report is not None
    assert (report.sequence, report.torn_bytes) == (small.last, len(old))


def test_commit_lost_and_replaced_in_a_new_generation_never_comes_back() -> None:
    """Row 8: the torn commit and the one that took its number differ in generation and salt; only the new one shows."""
    frame = frames_of(SYNC.image[SYNC.newest])[-1]
    files = SYNC.files(SYNC.with_file(SYNC.newest, SYNC.image[SYNC.newest][: frame.end - 1]))
    with pystate.open(DIRECTORY, files=files) as store:
        generation = store.stats().generation
        store.family("default")[b"other"] = b"other"
        assert store.sequence == frame.sequence
        image = files.image(DIRECTORY)
    newest = max(name for name in image if name.endswith(".log"))
    assert generation == 2
    image[newest] += SYNC.image[SYNC.newest][frame.start :]
    with pystate.open(DIRECTORY, files=SYNC.files(image)) as store:
        found = contents(store)
    before = SYNC.states[-2]
    assert found == {**before, "default": {**before["default"], b"other": b"other"}}


def test_record_of_another_store_copied_in_is_not_replayed() -> None:
    """Row 9: behind the tail it is junk; in the place of a proven record it is damage."""
    foreign = _other_store()
    frame = frames_of(foreign)[-1]
    record = foreign[frame.start : frame.end]
    content = SYNC.image[SYNC.newest]
    behind = SYNC.files(SYNC.with_file(SYNC.newest, content + record))
    assert outcome(behind, read_only=False) == SYNC.state
    first = frames_of(content)[0]
    instead = content[: first.start] + record + content[first.end :]
    assert _refused(SYNC, SYNC.with_file(SYNC.newest, instead)).offset == first.start


def _other_store() -> bytes:
    """The segment of another store, closed cleanly after one commit."""
    files = MemoryFiles(seed=1000)
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default")[b"other"] = b"store"
    return files.image(DIRECTORY)[f"{1:020d}.closed"]


def test_segment_of_another_store_in_the_place_of_ours_is_refused() -> None:
    """Row 9: every segment carries the id of its store."""
    header = bytearray(SYNC.image[SYNC.newest][:44])
    header[16:32] = _other_store()[16:32]
    forged = bytes(header) + struct.pack("<I", crc32(bytes(header))) + SYNC.image[SYNC.newest][48:]
    error = _refused(SYNC, SYNC.with_file(SYNC.newest, forged))
    assert "store" in error.expected
    assert error.path.endswith(SYNC.newest)


def _spliced(small: Small, name: str, order: list[int]) -> Image:
    """The frames of a segment in another order, some of them twice or never."""
    content = small.image[name]
    frames = frames_of(content)
    body = b"".join(content[frames[at].start : frames[at].end] for at in order)
    return small.with_file(name, content[:SEGMENT_HEADER] + body)


@pytest.mark.parametrize("condition", ["closed", "sync", "process"])
@pytest.mark.parametrize(
    "order",
    [[1, 0, 2], [0, 2, 1], [2, 1, 0], [0, 0, 1, 2], [0, 1, 1, 2], [0, 1, 2, 2], [0, 1, 2, 0], [0, 2], [1, 2], [2]],
    ids=str,
)
def test_records_swapped_duplicated_or_left_out_are_refused(condition: Condition, order: list[int]) -> None:
    """Rows 10 and 17: a frame with right checksums whose sequence does not follow is corruption, with both numbers."""
    small = SMALL[condition]
    closing = [3] if small.closed else []
    sequences = [5 + at for at in order]
    wrong = next(at for at in range(len(order)) if sequences[at] != 5 + at)
    error = _refused(small, _spliced(small, small.newest, order + closing))
    assert error.sequence == 4 + wrong
    assert f"commit {5 + wrong}" in error.expected
    assert str(sequences[wrong]) in error.found


@pytest.mark.parametrize("name", SYNC.segments)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_damaged_record_followed_by_valid_ones_is_refused_with_its_place(name: str, where: str) -> None:
    """Row 11: file, offset and the last intact sequence are in the error."""
    content = bytearray(SYNC.image[name])
    for before, frame in enumerate(frames_of(bytes(content))[:-1]):
        at = {"first": frame.start, "middle": (frame.start + frame.end) // 2, "last": frame.end - 1}[where]
        changed = content.copy()
        changed[at] ^= 0x10
        error = _refused(SYNC, SYNC.with_file(name, bytes(changed)))
        assert (error.path, error.offset) == (f"{DIRECTORY}/{name}", frame.start)
        assert error.sequence == int(name[:20]) - 1 + before


def test_older_segment_shortened_within_a_record_is_refused() -> None:
    """Row 12: the commits between it and the next segment are gone; the error names them."""
    name, frames = SYNC.segments[0], frames_of(SYNC.image[SYNC.segments[0]])
    error = _refused(SYNC, SYNC.with_file(name, SYNC.image[name][: frames[1].end - 1]))
    assert "commits 4 to 4" in error.expected


def test_older_segment_shortened_at_the_edge_of_a_record_is_refused() -> None:
    """Row 13: the first sequence of the next segment does not follow."""
    name, frames = SYNC.segments[0], frames_of(SYNC.image[SYNC.segments[0]])
    error = _refused(SYNC, SYNC.with_file(name, SYNC.image[name][: frames[0].end]))
    assert "commits 4 to 4" in error.expected
    assert SYNC.newest in error.expected


@pytest.mark.parametrize("condition", CONDITIONS)
def test_middle_segment_missing_is_refused_with_the_range(condition: Condition) -> None:
    """Row 14: the error names the first commit that is missing, and where the log goes on."""
    small = SMALL[condition]
    image = {name: content for name, content in small.image.items() if name != small.segments[0]}
    error = _refused(small, image)
    assert "3" in error.expected
    assert "5" in error.expected + error.found


def test_middle_segment_missing_behind_another_is_refused_with_the_range() -> None:
    """Row 14: the same where an older segment remains, so that the hole is between two files."""
    small = SMALL["recovered"]
    image = {name: content for name, content in small.image.items() if name != small.segments[1]}
    assert "commits 5 to 7" in _refused(small, image).expected


@pytest.mark.parametrize("condition", CONDITIONS)
def test_newest_segment_missing_is_refused_not_an_older_state(condition: Condition) -> None:
    """Row 15: the closing frame of the segment before names it."""
    small = SMALL[condition]
    image = {name: content for name, content in small.image.items() if name != small.newest}
    assert _refused(small, image).path == f"{DIRECTORY}/{small.newest[:20]}.log"


@pytest.mark.parametrize("condition", ["closed", "sync", "process"])
def test_every_segment_missing_is_refused(condition: Condition) -> None:
    """Row 15: a snapshot is always followed by a segment."""
    small = SMALL[condition]
    assert "segment" in _refused(small, {small.snapshot: small.image[small.snapshot]}).expected


@pytest.mark.parametrize("condition", ["closed", "sync", "process"])
def test_snapshot_missing_is_refused(condition: Condition) -> None:
    """Row 15: without the snapshot the log is a beginning of nothing."""
    small = SMALL[condition]
    image = {name: content for name, content in small.image.items() if name != small.snapshot}
    assert "snapshot" in _refused(small, image).expected


def _forged_frame(segment: bytes, sequence: int, watermark: int, payload: bytes, *, length: int | None = None) -> bytes:
    """A frame whose checksums are right, whatever it says."""
    salt = segment[32:36]
    seed = crc32(salt)
    size = len(payload) if length is None else length
    header = struct.pack("<4sIQQI", salt, size, sequence, watermark, crc32(payload, seed))
    return header + struct.pack("<I", crc32(header, seed)) + payload


@pytest.mark.parametrize("length", [0, 1, 2**16, 2**30, 2**31 - 1, 2**31, 2**32 - 1])
def test_length_that_is_huge_or_zero_is_a_torn_tail_and_costs_no_memory(length: int) -> None:
    """Row 16, R10: a frame header with a right checksum says any length; nothing of that size is allocated."""
    content = SYNC.image[SYNC.newest]
    forged = _forged_frame(content, 8, 7, b"\x93\x01\xc4\x01k\xc4\x01v", length=length)
    files = SYNC.files(SYNC.with_file(SYNC.newest, content + forged))
    tracemalloc.start()
    try:
        found = outcome(files, read_only=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == SYNC.state
    assert peak < 2_000_000


_BOMBS = {
    "array of 4 G": b"\xdd\xff\xff\xff\xff",
    "map of 4 G": b"\x92\x01\xdf\xff\xff\xff\xff",
    "key of 4 GiB": b"\x93\x01\xc6\xff\xff\xff\xff",
    "value of 4 GiB": b"\x93\x01\xc4\x01k\xc6\xff\xff\xff\xff",
    "arrays in arrays": b"\x91" * 100_000,
    "maps in maps": b"\x81" * 100_000,
}


@pytest.mark.parametrize("bomb", _BOMBS)
def test_payload_that_claims_to_be_huge_is_refused_and_costs_no_memory(bomb: str) -> None:
    """Rows 16 and 99, R10: right checksums over lengths that nothing stands behind."""
    content = SYNC.image[SYNC.newest]
    image = SYNC.with_file(SYNC.newest, content + _forged_frame(content, 8, 7, _BOMBS[bomb]))
    tracemalloc.start()
    try:
        error = _refused(SYNC, image)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.offset == len(content)
    assert peak < 4_000_000


@pytest.mark.parametrize(
    ("field", "value"),
    [("header length", 2**32 - 1), ("index offset", 2**64 - 1), ("index offset", 0), ("index length", 2**32 - 1)],
)
def test_length_in_a_snapshot_that_is_huge_is_refused_and_costs_no_memory(
    tmp_path: Path, field: str, value: int
) -> None:
    """Row 16, R10: with right checksums around it; on a real disk, where asking for bytes makes room for them."""
    content = bytearray(SYNC.image[SYNC.snapshot])
    if field == "header length":
        struct.pack_into("<I", content, 12, value)
        struct.pack_into("<I", content, 20, crc32(content[:20]))
    else:
        at = len(content) - 32
        struct.pack_into("<Q" if field == "index offset" else "<I", content, at + 8 * (field == "index length"), value)
        struct.pack_into("<I", content, at + 20, crc32(content[at : at + 20]))
    image = SYNC.with_file(SYNC.snapshot, bytes(content))
    _refused(SYNC, image)
    directory = on_disk(tmp_path, image)
    for read_only in (True, False):
        tracemalloc.start()
        try:
            with pytest.raises(CorruptionError):
                pystate.open(directory, read_only=read_only)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2_000_000


@pytest.mark.parametrize(
    ("sequence", "watermark"),
    [(0, 0), (7, 7), (9, 7), (6, 6), (2**64 - 1, 7), (8, 8), (8, 9), (8, 2**64 - 1)],
)
def test_sequence_that_cannot_be_is_refused_with_both_numbers(sequence: int, watermark: int) -> None:
    """Row 17: good checksums, an impossible sequence, or a watermark at or past the commit that carries it."""
    content = SYNC.image[SYNC.newest]
    forged = _forged_frame(content, sequence, watermark, msgspec.msgpack.encode([1, b"k", b"v"]))
    error = _refused(SYNC, SYNC.with_file(SYNC.newest, content + forged))
    assert "commit 8" in error.expected
    assert str(sequence) in error.found
    assert error.sequence == 7
    assert error.offset == len(content)


_IMPOSSIBLE: dict[str, object] = {
    "unknown family": [77, b"k", b"v"],
    "negative family": [-1, b"k", b"v"],
    "family that is no number": [b"1", b"k", b"v"],
    "family that is true": [True, b"k", b"v"],
    "text as key": [1, "k", b"v"],
    "text as value": [1, b"k", "v"],
    "number as value": [1, b"k", 5],
    "two items that are no pair": [1, b"k"],
    "two items that are swapped": [{b"k": b"v"}, 1],
    "four items that are no pairs": [1, b"k", b"v", 2],
    "five items": [1, {b"k": b"v"}, 2, {}, 3],
    "no array": {b"k": b"v"},
    "nil": None,
    "family with a name that is no text": [0, b"\xff", b"\x09\0\0\0"],
    "family with a name of control characters": [0, b"a\n", b"\x09\0\0\0"],
    "family without a name": [0, b"", b"\x09\0\0\0"],
    "family with an id of three bytes": [0, b"new", b"\x09\0\0"],
    "family with the id of the catalogue": [0, b"new", bytes(4)],
    "family with an id that was used": [0, b"new", b"\x01\0\0\0"],
    "family that exists": [0, b"second", b"\x09\0\0\0"],
    "closing frame that names text": ["next"],
}


@pytest.mark.parametrize("name", _IMPOSSIBLE)
def test_commit_that_cannot_be_is_refused(name: str) -> None:
    """Rows 17 and 99: right checksums, a right sequence, and operations that no pystate writes."""
    content = SYNC.image[SYNC.newest]
    payload = msgspec.msgpack.encode(_IMPOSSIBLE[name])
    error = _refused(SYNC, SYNC.with_file(SYNC.newest, content + _forged_frame(content, 8, 7, payload)))
    assert error.path == f"{DIRECTORY}/{SYNC.newest}"
    assert error.offset == len(content)


def test_commit_made_by_hand_that_can_be_is_replayed() -> None:
    """The counterpart of the refusals: the forged frames are refused for what they say, not for how they are made."""
    content = SYNC.image[SYNC.newest]
    forged = _forged_frame(content, 8, 7, msgspec.msgpack.encode([1, b"k", b"v"]))
    found = outcome(SYNC.files(SYNC.with_file(SYNC.newest, content + forged)), read_only=False)
    assert found == {**SYNC.state, "default": {**SYNC.state["default"], b"k": b"v"}}


@pytest.mark.parametrize("kind", ["empty", "zeros", "half", "junk", "text"])
@pytest.mark.parametrize("condition", ["sync", "closed", "leftovers"])
def test_snapshot_cut_empty_or_filled_falls_back_to_a_complete_older_one_or_is_refused(
    condition: Condition, kind: str
) -> None:
    """Row 19: with the previous snapshot and all segments since nothing is missing; without them it is refused."""
    small = SMALL[condition]
    content = small.image[small.snapshot]
    damaged = {
        "empty": b"",
        "zeros": bytes(len(content)),
        "half": content[: len(content) // 2],
        "junk": random.Random(1).randbytes(len(content)),
        "text": b"not a snapshot\n",
    }[kind]
    image = small.with_file(small.snapshot, damaged)
    if condition != "leftovers":
        assert _refused(small, image).path == f"{DIRECTORY}/{small.snapshot}"
        return
    files = small.files(image)
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == small.state
        report = store.stats().recovery
    assert report is not None
    assert report.damaged_snapshots == (small.snapshot,)
    assert damaged in files.image(DIRECTORY).values()  # out of the way, and not lost
    assert outcome(files, read_only=False) == small.state
    assert pystate.verify(DIRECTORY, files=files).ok


def test_snapshot_damaged_with_an_older_one_that_is_incomplete_is_refused() -> None:
    """Row 19: the older snapshot alone would be an older state."""
    image = LEFTOVERS.with_file(LEFTOVERS.snapshot, b"")
    del image[f"{1:020d}.log"]
    error = _refused(LEFTOVERS, image)
    assert "commit 1" in error.expected


def test_snapshot_with_a_damaged_block_and_a_complete_older_one_falls_back() -> None:
    """Row 19: every block is looked at before anything older is removed."""
    content = bytearray(LEFTOVERS.image[LEFTOVERS.snapshot])
    (header_length,) = struct.unpack_from("<I", content, 12)
    content[24 + header_length + 5] ^= 1
    files = LEFTOVERS.files(LEFTOVERS.with_file(LEFTOVERS.snapshot, bytes(content)))
    assert outcome(files, read_only=True) == LEFTOVERS.state
    assert outcome(files, read_only=False) == LEFTOVERS.state
    assert bytes(content) in files.image(DIRECTORY).values()


def test_snapshot_under_the_name_of_another_sequence_is_refused() -> None:
    """Row 19: a copy with a newer name would hide the log."""
    image = {**SYNC.image, f"{6:020d}.snapshot": SYNC.image[SYNC.snapshot]}
    files = SYNC.files(image)
    assert outcome(files, read_only=True) == SYNC.state  # the real one is still there, and complete
    image.pop(SYNC.snapshot)
    assert "sequence" in _refused(SYNC, image).expected


def test_snapshot_that_is_damaged_proves_that_its_commits_were_durable() -> None:
    """Row 19, R2: falling back is not a way to lose a commit: the name of the damaged snapshot counts as proof."""
    files = MemoryFiles(seed=3)
    store = pystate.open(DIRECTORY, files=files, durability="process")
    store.family("default")[b"a"] = b"1"
    older = files.image(DIRECTORY)
    store.family("default")[b"b"] = b"2"
    store.snapshot()
    newer = files.image(DIRECTORY)
    store.close()
    damaged = {**older, f"{2:020d}.snapshot": newer[f"{2:020d}.snapshot"][:-1], f"{3:020d}.log": newer[f"{3:020d}.log"]}
    assert "commits 2 to 2" in _refused(SYNC, damaged).expected
    del damaged[f"{3:020d}.log"]
    error = _refused(SYNC, damaged)
    assert "commit 2" in error.expected


def _two_blocks(monkeypatch: pytest.MonkeyPatch) -> tuple[Image, str, list[tuple[int, int]]]:
    """A store whose snapshot has two blocks of equal length; its name, and where the blocks begin and end."""
    monkeypatch.setattr("pystate.engine.snapshot_writer._BLOCK_ENTRIES", 4)
    files = MemoryFiles(seed=5)
    with pystate.open(DIRECTORY, files=files) as store:
        store.family("default").update((b"%04d" % number, b"v") for number in range(8))
        store.snapshot()
    image = files.image(DIRECTORY)
    (name,) = (name for name in image if name.endswith(".snapshot"))
    content = image[name]
    offset, length = struct.unpack_from("<QI", content, len(content) - 32)
    ((_, _, blocks),) = msgspec.msgpack.decode(content[offset : offset + length])
    assert len(blocks) == 2
    return image, name, [(block[0], block[0] + block[1]) for block in blocks]


def test_blocks_of_a_snapshot_swapped_or_copied_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 20: a block is intact by itself, but not in this place."""
    image, name, ((start, middle), (also_middle, end)) = _two_blocks(monkeypatch)
    content = image[name]
    first, second = content[start:middle], content[middle:end]
    assert middle == also_middle
    assert len(first) == len(second)
    for blocks in (second + first, first + first, second + second):
        damaged = {**image, name: content[:start] + blocks + content[end:]}
        files = MemoryFiles().restore(DIRECTORY, damaged)
        for read_only in (True, False):
            error = outcome(files, read_only=read_only)
            assert isinstance(error, CorruptionError)
            assert error.path == f"{DIRECTORY}/{name}"
            assert error.offset in (start, middle)
        report = pystate.verify(DIRECTORY, files=files)
        assert not report.ok
        assert {problem.offset for problem in report.problems} <= {start, middle}
        assert files.image(DIRECTORY) == damaged


def test_leftover_temporary_files_of_any_content_are_ignored_and_removed_by_a_successful_opening_only() -> None:
    """Row 22: unfinished files say nothing, even when they hold a whole snapshot or segment."""
    leftovers = {
        "x.tmp": b"",
        f"{9:020d}.snapshot.tmp": SYNC.image[SYNC.snapshot],
        f"{77:020d}.log.tmp": SYNC.image[SYNC.newest][:100],
        f"{1:020d}.closed.tmp": b"\xff" * 100,
    }
    image = {**SYNC.image, **leftovers}
    files = SYNC.files(image)
    assert outcome(files, read_only=True) == SYNC.state
    assert files.image(DIRECTORY) == image
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == SYNC.state
        report = store.stats().recovery
    assert report is not None
    assert set(report.temporary_files_removed) == leftovers.keys()
    assert not [name for name in files.image(DIRECTORY) if name.endswith(".tmp")]

    damaged = {**image, SYNC.newest: SYNC.image[SYNC.newest][:50] + SYNC.image[SYNC.newest][51:]}
    _refused(SYNC, damaged)  # not one of them was removed


def test_superseded_files_still_there_are_skipped_by_sequence_and_removed() -> None:
    """Row 26: what the snapshot holds is not replayed a second time."""
    files = LEFTOVERS.files()
    with pystate.open(DIRECTORY, files=files) as store:
        assert contents(store) == LEFTOVERS.state
        report = store.stats().recovery
    assert report is not None
    assert set(report.stale_files_removed) == {f"{0:020d}.snapshot", f"{1:020d}.log"}
    assert report.frames_replayed == LEFTOVERS.last - 2
    after = files.image(DIRECTORY)
    assert not set(report.stale_files_removed) & after.keys()
    assert {"notes", "b.torn"} <= after.keys()  # what is not ours, and what was kept aside, stays


def test_segment_in_two_forms_is_refused() -> None:
    """Row 15: two files that begin with the same commit; only one can be the log."""
    image = {**SYNC.image, f"{5:020d}.closed": CLOSED.image[CLOSED.newest]}
    assert _refused(SYNC, image).expected


def test_damaged_store_on_a_real_disk_keeps_every_byte(tmp_path: Path) -> None:
    """Guarantee 5 on the file system of the operating system: refused by every way in, and nothing touched."""
    changed = bytearray(CLOSED.image[CLOSED.newest])
    changed[100] ^= 1
    directory = on_disk(tmp_path, CLOSED.with_file(CLOSED.newest, bytes(changed)))
    before = fingerprint(Path(directory))
    for read_only in (True, False):
        with pytest.raises(CorruptionError):
            pystate.open(directory, read_only=read_only, files=OsFiles())
    with pytest.raises(CorruptionError):
        pystate.list_families(directory)
    assert not pystate.verify(directory).ok
    assert list(pystate.read_log(directory))
    assert fingerprint(Path(directory)) == before
