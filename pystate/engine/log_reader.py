"""Reading one log segment: frames in order, and an account of where and why the reading ended.

Promise: `read_segment` hands every intact commit, in order, to a `Sink`, and never guesses: it stops at the first byte
that is not an intact frame and says what it found there and what later bytes prove. It decides nothing (``recovery``
does) and changes nothing. It is the one piece of code that turns frames into state: for recovery, for a read-only store
that follows its writer, and for ``salvage``.

`iter_frames` walks the same bytes frame by frame for people: damaged ones are shown, not skipped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol
from zlib import crc32

import msgspec

from pystate.engine.log_format import (
    FRAME_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    Operations,
    SegmentHeader,
    decode_operations,
    salt_seed,
    unpack_frame_header,
)
from pystate.errors import CorruptionError

__all__ = ["FrameInfo", "SegmentEnd", "Sink", "iter_frames", "read_segment"]


class Sink(Protocol):
    """What takes the commits of a log.

    Attributes:
        overlays: for each family id the map that takes its operations as they come, deletions as None. A family that
            is not in it gets its operations through `apply`.
    """

    overlays: dict[int, dict[bytes, bytes | None]]

    def apply(self, operations: Operations, sequence: int) -> None:
        """Take one commit.

        Raises:
            ValueError: it cannot follow on what came before, for example by naming a family that does not exist.
        """
        ...


class SegmentEnd(NamedTuple):
    """Where the reading of a segment ended, and why.

    Attributes:
        offset: of the first byte after the last intact frame.
        sequence: of the last intact commit (or what the caller passed in, when there is none).
        watermark: the highest watermark of any readable frame header, those behind the damage included.
        frames: how many commits were handed on.
        ending: ``"close"`` (a closing frame stands last), ``"switch"`` (one that names the next segment), ``"end"``
            (the file ends right after a commit, or after its header), ``"damage"``.
        next_first: for ``"switch"`` the first sequence of the next segment, else 0.
        problem: for ``"damage"`` what is wrong at `offset`.
    """

    offset: int
    sequence: int
    watermark: int
    frames: int
    ending: str
    next_first: int = 0
    problem: str = ""


class FrameInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One frame as `pystate.read_log` shows it.

    Attributes:
        segment: the file name.
        offset: of the frame in it, in bytes.
        length: of the whole frame, header included; of the damaged stretch for ``kind="damaged"``.
        sequence, watermark: from the frame header (0 where it is unreadable).
        kind: ``"commit"``, ``"close"``, ``"switch"`` or ``"damaged"``.
        operations: how many keys the commit writes or deletes.
        header_checksum, payload_checksum: as stored (0 where the header is unreadable).
        ok: whether everything about the frame is right.
        problem: what is wrong, or None.
    """

    segment: str
    offset: int
    length: int
    sequence: int
    watermark: int
    kind: str
    operations: int
    header_checksum: int
    payload_checksum: int
    ok: bool
    problem: str | None = None


def read_segment(
    path: str,
    data: bytes,
    header: SegmentHeader,
    sink: Sink,
    *,
    offset: int = SEGMENT_HEADER_SIZE,
    sequence: int | None = None,
    skip: int = 0,
) -> SegmentEnd:
    """Hand the commits of a segment to `sink`, up to the first byte that is not an intact frame.

    Arguments:
        path: the file, for errors.
        data: the whole content of the segment.
        header: its parsed header.
        sink: takes every commit above `skip`.
        offset, sequence: where to go on, and the last commit before it; by default the beginning.
        skip: commits up to this one are checked but not handed on (a snapshot holds them).

    Raises:
        CorruptionError: a frame with right checksums that cannot be: its sequence does not follow, its watermark is
            ahead of it, or its payload is none of the known shapes.

    Cost: about one and a half times unpacking, checking and decoding each frame in a bare loop.
    """
    salt, seed, size = header.salt, salt_seed(header.salt), len(data)
    last = header.first - 1 if sequence is None else sequence
    overlays, apply = sink.overlays, sink.apply
    watermark = frames = next_first = 0
    ending, problem = "end", ""
    while offset < size:
        payload_at = offset + FRAME_HEADER_SIZE
        if payload_at > size:
            ending, problem = "damage", f"{size - offset} bytes, too few for a frame header"
            break
        marker, length, sequence, mark, payload_checksum, header_checksum = unpack_frame_header(data, offset)
        if crc32(data[offset : payload_at - 4], seed) != header_checksum or marker != salt:
            ending, problem = "damage", "a frame header with a wrong checksum"
            break
        end = payload_at + length
        payload = data[payload_at:end]
        if crc32(payload, seed) != payload_checksum or end > size:
            ending, problem = "damage", _payload_problem(end, size)
            break
        try:
            operations = decode_operations(payload)
            if len(operations) < 2:
                ending, next_first = ("switch", operations[0]) if operations else ("close", 0)  # type: ignore[assignment]
                _check_follows(sequence, last, mark)
            else:
                _check_follows(sequence, last + 1, mark + 1)
                ending = "end"
                if sequence > skip:
                    frames += 1
                    if len(operations) == 3 and (overlay := overlays.get(operations[0])) is not None:  # type: ignore[arg-type]
                        overlay[operations[1]] = operations[2]  # type: ignore[index, assignment]
                    else:
                        apply(operations, sequence)
                last = sequence
        except ValueError as error:
            expected = f"the frame of commit {last + 1}, or a closing frame"
            raise CorruptionError(path, offset=offset, expected=expected, found=str(error), sequence=last) from None
        watermark = mark
        offset = end
    if ending == "damage":
        watermark = max(watermark, _watermark_behind(data, header, offset, last))
    return SegmentEnd(offset, last, watermark, frames, ending, next_first, problem)


def _check_follows(sequence: int, expected: int, mark: int) -> None:
    if sequence != expected:
        raise ValueError(f"sequence {sequence} where {expected} must follow")
    if mark > sequence:
        raise ValueError(f"a watermark at or past its own frame, sequence {sequence}")


def _payload_problem(end: int, size: int) -> str:
    return f"a frame that ends {end - size} bytes past the file" if end > size else "a payload with a wrong checksum"


def _watermark_behind(data: bytes, header: SegmentHeader, damage: int, last: int) -> int:
    """The highest sequence that any intact frame header from `damage` on proves to have been durable.

    A header is proof by itself, even if its payload is torn: it was written after what its watermark says was durable.
    And if a later frame is that of the commit right after `last`, the damage is no commit but a closing frame, which
    was synced before anything was written behind it.
    """
    salt, seed = header.salt, salt_seed(header.salt)
    watermark, offset = 0, damage
    while (offset := data.find(salt, offset)) >= 0 and offset + FRAME_HEADER_SIZE <= len(data):
        _, _, sequence, mark, _, checksum = unpack_frame_header(data, offset)
        if crc32(data[offset : offset + FRAME_HEADER_SIZE - 4], seed) == checksum:
            watermark = max(watermark, mark)
            if sequence == last + 1 and offset > damage:
                watermark = max(watermark, sequence)
        offset += 1
    return watermark


def iter_frames(name: str, data: bytes, header: SegmentHeader) -> Iterator[FrameInfo]:
    """Yield every frame of a segment in file order; each damaged stretch is one item, and reading goes on behind it."""
    seed, offset = salt_seed(header.salt), SEGMENT_HEADER_SIZE
    while offset < len(data):
        info = _frame_at(name, data, header.salt, seed, offset)
        if info is None:
            end = _next_header(data, header.salt, seed, offset + 1)
            yield _damaged(name, offset, end - offset, "no intact frame header")
        else:
            end = offset + info.length
            yield info
        offset = end


def _frame_at(name: str, data: bytes, salt: bytes, seed: int, offset: int) -> FrameInfo | None:
    if offset + FRAME_HEADER_SIZE > len(data):
        return None
    marker, length, sequence, mark, payload_checksum, header_checksum = unpack_frame_header(data, offset)
    if marker != salt or crc32(data[offset : offset + FRAME_HEADER_SIZE - 4], seed) != header_checksum:
        return None
    start = offset + FRAME_HEADER_SIZE
    payload = data[start : start + length]
    kind, count, problem = "damaged", 0, None
    if crc32(payload, seed) != payload_checksum or len(payload) != length:
        problem = _payload_problem(start + length, len(data))
    else:
        try:
            kind, count = _describe(decode_operations(payload))
        except ValueError as error:
            problem = str(error)
    return FrameInfo(
        segment=name,
        offset=offset,
        length=FRAME_HEADER_SIZE + len(payload),
        sequence=sequence,
        watermark=mark,
        kind=kind,
        operations=count,
        header_checksum=header_checksum,
        payload_checksum=payload_checksum,
        ok=problem is None,
        problem=problem,
    )


def _describe(operations: Operations) -> tuple[str, int]:
    if len(operations) < 2:
        return ("switch" if operations else "close"), 0
    if len(operations) == 3:
        return "commit", 1
    return "commit", sum(len(group) for group in operations[1::2] if isinstance(group, dict))


def _damaged(name: str, offset: int, length: int, problem: str) -> FrameInfo:
    return FrameInfo(
        segment=name,
        offset=offset,
        length=length,
        sequence=0,
        watermark=0,
        kind="damaged",
        operations=0,
        header_checksum=0,
        payload_checksum=0,
        ok=False,
        problem=problem,
    )


def _next_header(data: bytes, salt: bytes, seed: int, offset: int) -> int:
    """The offset of the next intact frame header, or the end of the file."""
    while (offset := data.find(salt, offset)) >= 0:
        if _frame_at("", data, salt, seed, offset) is not None:
            return offset
        offset += 1
    return len(data)
