"""Reading one segment: what is handed on, where the reading ends, and what the bytes behind it prove."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.engine.log_format import (
    SEGMENT_HEADER_SIZE,
    Operations,
    SegmentHeader,
    encode_frame,
    encode_operations,
    encode_segment_header,
    operations_by_family,
    salt_seed,
)
from pystate.engine.log_reader import SegmentEnd, iter_frames, read_segment
from pystate.errors import CorruptionError

HEADER = SegmentHeader(log_id=bytes(16), generation=1, salt=b"salt", first=5)


class Taken:
    """A sink that notes what it is given; family 1 has an overlay, as a family that recovery knows has."""

    def __init__(self) -> None:
        self.overlays: dict[int, dict[bytes, bytes | None]] = {1: {}}
        self.commits: list[int] = []
        self.refuse: int | None = None

    def apply(self, operations: Operations, sequence: int) -> None:
        if sequence == self.refuse:
            raise ValueError("refused by the sink")
        self.commits.append(sequence)
        for family_id, writes in operations_by_family(operations):
            self.overlays.setdefault(family_id, {}).update(writes)


def frame(sequence: int, watermark: int, operations: object = (1, b"k", b"v"), salt: bytes = HEADER.salt) -> bytes:
    return encode_frame(salt, salt_seed(salt), sequence, watermark, encode_operations(operations))


def segment(*frames: bytes) -> bytes:
    return encode_segment_header(HEADER) + b"".join(frames)


def read(data: bytes, sink: Taken | None = None, skip: int = 0) -> SegmentEnd:
    return read_segment("file", data, HEADER, sink if sink is not None else Taken(), skip=skip)


def test_segment_without_a_frame_ends_after_its_header() -> None:
    """The last commit is then the one before the segment's first."""
    assert read(segment()) == SegmentEnd(SEGMENT_HEADER_SIZE, 4, 0, 0, "end")


def test_commits_are_handed_on_in_order() -> None:
    """One operation of a known family goes straight into its overlay, everything else through ``apply``."""
    sink = Taken()
    frames = [frame(5, 4), frame(6, 4, [1, {b"a": b"1", b"b": None}, 2, {b"c": b"2"}]), frame(7, 6, [3, b"x", None])]
    data = segment(*frames)
    assert read(data, sink) == SegmentEnd(len(data), 7, 6, 3, "end")
    assert sink.overlays == {1: {b"k": b"v", b"a": b"1", b"b": None}, 2: {b"c": b"2"}, 3: {b"x": None}}
    assert sink.commits == [6, 7]


@pytest.mark.parametrize("operations", [[], [8]], ids=["close", "switch"])
def test_closing_frame_at_the_end_is_told(operations: list[int]) -> None:
    """It repeats the sequence of the last commit, and may name the next segment."""
    data = segment(frame(5, 4), frame(6, 5), frame(7, 6), frame(7, 7, operations))
    kind = "switch" if operations else "close"
    assert read(data) == SegmentEnd(len(data), 7, 7, 3, kind, operations[0] if operations else 0)


def test_closing_frame_with_commits_behind_it_is_passed() -> None:
    """A store that was closed and opened again appends to the same segment."""
    data = segment(frame(4, 4, []), frame(5, 4), frame(5, 5, []), frame(6, 5))
    assert read(data) == SegmentEnd(len(data), 6, 5, 2, "end")


def test_commits_that_the_snapshot_holds_are_checked_but_not_handed_on() -> None:
    """Row 26: replay skips by sequence."""
    sink = Taken()
    data = segment(frame(5, 4, [1, b"five", b""]), frame(6, 5, [1, b"six", b""]), frame(7, 6, [1, b"seven", b""]))
    assert read(data, sink, skip=6) == SegmentEnd(len(data), 7, 6, 1, "end")
    assert sink.overlays == {1: {b"seven": b""}}
    with pytest.raises(CorruptionError):
        read(segment(frame(5, 4), frame(7, 5)), skip=9)


def test_reading_can_go_on_where_it_ended() -> None:
    """What a follower does: the same bytes and more."""
    data = segment(frame(5, 4), frame(6, 5))
    end = read(data)
    sink = Taken()
    more = data + frame(7, 6, [1, b"seven", b""])
    again = read_segment("file", more, HEADER, sink, offset=end.offset, sequence=end.sequence)
    assert again == SegmentEnd(len(more), 7, 6, 1, "end")
    assert sink.overlays == {1: {b"seven": b""}}


def test_frame_cut_anywhere_ends_the_reading_before_it() -> None:
    """Row 6: never replayed in part."""
    whole, last = segment(frame(5, 4)), frame(6, 5, [1, b"key", b"value" * 10])
    for size in range(1, len(last)):
        sink = Taken()
        end = read(whole + last[:size], sink)
        # The header alone is proof that what its watermark says was durable.
        watermark = 5 if size >= 32 else 4
        assert end._replace(problem="") == SegmentEnd(len(whole), 5, watermark, 1, "damage")
        assert end.problem
        assert sink.overlays == {1: {b"k": b"v"}}


def test_frame_with_any_bit_wrong_ends_the_reading_before_it() -> None:
    """Guarantee 5: every byte of a frame is covered."""
    first, second, third = frame(5, 4), frame(6, 4, [1, b"six", b"6"]), frame(7, 6, [1, b"seven", b"7"])
    data = bytearray(segment(first, second, third))
    start = SEGMENT_HEADER_SIZE + len(first)
    for at in range(start, start + len(second)):
        for bit in range(8):
            data[at] ^= 1 << bit
            sink = Taken()
            end = read(bytes(data), sink)
            data[at] ^= 1 << bit
            assert end._replace(problem="") == SegmentEnd(start, 5, 6, 1, "damage")
            assert sink.overlays == {1: {b"k": b"v"}}


@pytest.mark.parametrize("gap", [1, 31, 32, 33, 1000])
def test_watermark_behind_damage_is_found_wherever_it_begins(gap: int) -> None:
    """R2 (c): a damaged length does not hide the frames behind it."""
    data = segment(frame(5, 4)) + b"\xee" * gap + frame(9, 8)
    assert read(data).watermark == 8
    torn = segment(frame(5, 4)) + b"\xee" * gap + frame(9, 8)[:-1]
    assert read(torn).watermark == 8  # the header is intact
    headless = segment(frame(5, 4)) + b"\xee" * gap + frame(9, 8)[:31]
    assert read(headless).watermark == 4


def test_watermark_of_another_segment_proves_nothing() -> None:
    """Row 8: left-overs have another salt, and a checksum that begins with it, so our salt in front is not enough."""
    other = frame(9, 8, salt=b"tlas")
    for rest in (other, HEADER.salt + other[4:], HEADER.salt * 100):
        end = read(segment(frame(5, 4)) + b"\xee" + rest)
        assert (end.ending, end.watermark, end.sequence) == ("damage", 4, 5)


def test_commit_of_another_segment_under_our_salt_is_not_handed_on() -> None:
    """Row 8: the checksum of the payload begins with the salt, so a salt put in front of it is not enough."""
    sink = Taken()
    end = read(segment(frame(5, 4)) + HEADER.salt + frame(6, 5, [1, b"six", b""], salt=b"tlas")[4:], sink)
    assert (end.ending, end.sequence) == ("damage", 5)
    assert sink.overlays == {1: {b"k": b"v"}}


@pytest.mark.parametrize(
    ("frames", "expected", "found"),
    [
        ([frame(6, 4)], 5, "sequence 6"),
        ([frame(4, 3)], 5, "sequence 4"),
        ([frame(5, 4), frame(5, 4)], 6, "sequence 5"),
        ([frame(5, 5)], 5, "watermark"),
        ([frame(5, 9)], 5, "watermark"),
        ([frame(5, 4), frame(6, 5, [])], 6, "sequence 6"),
        ([frame(5, 4), frame(4, 4, [])], 6, "sequence 4"),
        ([frame(5, 4), frame(5, 6, [])], 6, "watermark"),
        ([frame(5, 4, [1, 2, 3])], 5, "shapes"),
    ],
    ids=str,
)
def test_frame_that_cannot_be_is_corruption_at_its_place(frames: list[bytes], expected: int, found: str) -> None:
    """Row 17: right checksums, wrong order; both numbers are in the error."""
    data = segment(*frames)
    with pytest.raises(CorruptionError, match=found) as caught:
        read(data)
    assert f"commit {expected}" in caught.value.expected
    assert caught.value.offset == len(data) - len(frames[-1])
    assert caught.value.sequence == expected - 1


def test_commit_that_the_sink_refuses_is_corruption_at_its_place() -> None:
    """Row 99: what cannot follow on what came before."""
    sink = Taken()
    sink.refuse = 6
    data = segment(frame(5, 4), frame(6, 5, [2, b"k", b"v"]))
    with pytest.raises(CorruptionError, match="refused by the sink") as caught:
        read(data, sink)
    assert (caught.value.offset, caught.value.sequence) == (SEGMENT_HEADER_SIZE + len(frame(5, 4)), 5)


@given(st.binary(max_size=200))
def test_junk_is_never_taken_for_a_commit(junk: bytes) -> None:
    """Row 7: whatever follows the last frame, the reading ends there."""
    sink = Taken()
    data = segment(frame(5, 4)) + junk
    end = read(data, sink)
    assert (end.offset, end.sequence, end.watermark) == (len(data) - len(junk), 5, 4)
    assert end.ending == ("damage" if junk else "end")
    assert sink.overlays == {1: {b"k": b"v"}}


def test_frames_are_shown_with_everything_about_them() -> None:
    """`read_log` shows kind, numbers, checksums and place of each frame."""
    frames = [
        frame(5, 4),
        frame(6, 4, [1, {b"a": b"1", b"b": None}, 2, {b"c": b"2"}]),
        frame(6, 6, [7]),
        frame(6, 6, []),
    ]
    shown = list(iter_frames("name", segment(*frames), HEADER))
    assert [(info.kind, info.operations, info.sequence, info.watermark) for info in shown] == [
        ("commit", 1, 5, 4), ("commit", 3, 6, 4), ("switch", 0, 6, 6), ("close", 0, 6, 6),
    ]  # fmt: skip
    at = SEGMENT_HEADER_SIZE
    for info, data in zip(shown, frames, strict=True):
        assert (info.segment, info.offset, info.length) == ("name", at, len(data))
        assert (info.ok, info.problem) == (True, None)
        assert info.payload_checksum == int.from_bytes(data[24:28], "little")
        assert info.header_checksum == int.from_bytes(data[28:32], "little")
        at += len(data)


def test_damaged_stretch_is_shown_and_reading_goes_on_behind_it() -> None:
    """Nothing is skipped in silence: offsets and lengths cover the file without a gap, wherever the damage is."""
    frames = [frame(5, 4), frame(6, 5, [1, b"six", b"6" * 20]), frame(7, 6)]
    data = segment(*frames)
    for at in range(SEGMENT_HEADER_SIZE, len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x55
        shown = list(iter_frames("name", bytes(changed), HEADER))
        position = SEGMENT_HEADER_SIZE
        for info in shown:
            assert info.offset == position
            position += info.length
        assert position == len(data)
        bad = [info for info in shown if not info.ok]
        assert len(bad) == 1
        assert bad[0].kind == "damaged"
        assert bad[0].problem
        assert bad[0].offset <= at < bad[0].offset + bad[0].length
        assert len(shown) == 3


@given(st.binary(max_size=150))
def test_frames_of_any_bytes_cover_the_file(junk: bytes) -> None:
    """A tool for people survives whatever it is pointed at."""
    data = segment(frame(5, 4)) + junk
    shown = list(iter_frames("name", data, HEADER))
    assert sum(info.length for info in shown) == len(data) - SEGMENT_HEADER_SIZE
    assert all(info.length > 0 for info in shown)


def test_frame_with_a_right_checksum_over_nonsense_is_shown_as_damaged() -> None:
    """Row 99: the problem is told, and the sequence is still there."""
    (info,) = iter_frames("name", segment(frame(5, 4, {b"no": b"array"})), HEADER)
    assert (info.kind, info.ok, info.sequence) == ("damaged", False, 5)
    assert info.problem is not None
