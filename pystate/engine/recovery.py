"""Recovery: from the files in a directory to the state they hold, without changing a byte.

Promise: `recover` either returns a state that contains every commit the files prove to have been durable, and a prefix
of the commit order, or raises `CorruptionError` with the file and offset where that is impossible. It only reads;
``repair`` writes, afterwards. Used by opening for writing, by read-only opening, and by ``verify``.

Order: choose the newest intact snapshot; leave out the files that do not count beside it (`own_segments`); read every
segment from the one that follows it; at the end of each segment, consult the table `DECISIONS`. The table is the whole
policy; a test tries every combination of facts against it.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

from pystate.engine.family_state import FamilyState, Writes
from pystate.engine.files import Files, read_head, read_whole
from pystate.engine.log_format import (
    CATALOGUE,
    CLOSED_SEGMENT_SIZE,
    SEGMENT_HEADER_SIZE,
    Operations,
    SegmentHeader,
    encode_closed_segment,
    operations_by_family,
    parse_segment_header,
    unpack_family_id,
)
from pystate.engine.log_reader import SegmentEnd, read_segment
from pystate.engine.names import FileName, parse_name
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_reader import SnapshotReader
from pystate.engine.state import check_catalogue
from pystate.errors import CorruptionError, UnsupportedFormatError

__all__ = [
    "DECISIONS",
    "Decision",
    "Facts",
    "Inventory",
    "Recovered",
    "Replay",
    "decide",
    "own_segments",
    "prepared_log",
    "recover",
    "survey",
]


class Facts(NamedTuple):
    """What is known where the reading of a segment ended.

    Attributes:
        newest: no later segment exists.
        closed_name: the file bears the name of a cleanly closed segment.
        ending: see `SegmentEnd`: ``"close"``, ``"switch"``, ``"end"`` or ``"damage"``.
        follows: the next segment begins right after the last intact commit (False for the newest one).
        proven: a watermark or a snapshot's name shows that more than the last intact commit had been durable.
    """

    newest: bool
    closed_name: bool
    ending: str
    follows: bool
    proven: bool


class Decision(NamedTuple):
    """One row of the table: the facts it is for (None: any), what to do, and why.

    Attributes:
        action: ``"next"`` (read the next segment), ``"clean"`` (the log ends here, closed), ``"unclosed"`` (it ends
            here, whole), ``"torn"`` (it ends here; what follows is cut off), ``"corrupt"``.
    """

    row: str
    newest: bool | None
    closed_name: bool | None
    ending: str | None
    follows: bool | None
    proven: bool | None
    action: str
    why: str


DECISIONS = (
    Decision("A", None, True, "end", None, None, "corrupt", "a cleanly closed segment ends with a closing frame"),
    Decision("B", None, True, "switch", None, None, "corrupt", "a cleanly closed segment ends with a closing frame"),
    Decision("C", None, True, "damage", None, None, "corrupt", "a cleanly closed segment ends with a closing frame"),
    Decision("D", False, None, None, True, None, "next", "the next segment was begun when this one was complete"),
    Decision("E", False, None, None, False, None, "corrupt", "the next segment must begin with the next commit"),
    Decision("F", True, None, "switch", None, None, "corrupt", "the next segment was there when this was written"),
    Decision("G", True, None, None, None, True, "corrupt", "later commits had been durable"),
    Decision("H", True, None, "close", None, False, "clean", "closed cleanly"),
    Decision("I", True, None, "end", None, False, "unclosed", "an unclean stop between two commits"),
    Decision("J", True, None, "damage", None, False, "torn", "an unclean stop within a commit that was never durable"),
)
"""What the end of a segment means. The first row that fits decides."""


def decide(facts: Facts) -> Decision:
    """The first row of `DECISIONS` that fits `facts`."""
    for decision in DECISIONS:
        if all(wanted is None or wanted == fact for wanted, fact in zip(decision[1:6], facts, strict=True)):
            return decision
    raise RuntimeError(f"no decision for {facts}")  # the exhaustive test shows that this cannot happen


class Inventory(NamedTuple):
    """The files of a directory, by kind; snapshots and segments from oldest to newest."""

    snapshots: list[FileName]
    segments: list[FileName]
    others: list[FileName]

    @property
    def is_store(self) -> bool:
        """There are files that only a store has."""
        return bool(self.snapshots or self.segments)


def survey(files: Files, directory: str) -> Inventory:
    """List a directory.

    Raises:
        OSError: it cannot be listed.
    """
    names = [parse_name(name) for name in sorted(files.list_directory(directory))]
    for at, name in enumerate(names):
        if name.kind in ("snapshot", "segment") and files.kind(files.join(directory, name.name)) not in ("file", None):
            names[at] = FileName(name.name, "foreign")  # a directory, say (None: a writer has just superseded it)
    return Inventory(
        sorted((name for name in names if name.kind == "snapshot"), key=lambda name: name.sequence),
        sorted((name for name in names if name.kind == "segment"), key=lambda name: name.sequence),
        [name for name in names if name.kind not in ("snapshot", "segment")],
    )


class Replay:
    """Takes the commits of the log on top of a snapshot's header; families are decoded later, when they are touched."""

    def __init__(self, header: SnapshotHeader) -> None:
        self.names = {family_id: name for name, family_id in header.families.items()}
        self.next_family_id = header.next_family_id
        self.overlays: dict[int, dict[bytes, bytes | None]] = {family_id: {} for family_id in self.names}

    def apply(self, operations: Operations, sequence: int) -> None:
        """See `log_reader.Sink`."""
        for family_id, writes in operations_by_family(operations):
            if family_id == CATALOGUE:
                self._change_catalogue(writes)
            elif family_id in self.overlays:
                self.overlays[family_id].update(writes)
            else:
                raise ValueError(f"commit {sequence} writes to family id {family_id}, which does not exist")

    def _change_catalogue(self, writes: Writes) -> None:
        check_catalogue(writes)
        for key, value in writes.items():
            name = key.decode()
            if value is None:
                for family_id in [family_id for family_id, other in self.names.items() if other == name]:
                    del self.names[family_id], self.overlays[family_id]
            else:
                family_id = unpack_family_id(value)
                if family_id < self.next_family_id or name in self.names.values():
                    raise ValueError(f"family {name!r} is created with id {family_id}, but name or id is taken")
                self.next_family_id = family_id + 1
                self.names[family_id], self.overlays[family_id] = name, {}


class Recovered(NamedTuple):
    """What `recover` found.

    Attributes:
        decision: how the log ends.
        header: of the snapshot.
        reader: of the snapshot, still open for the families.
        replay: families and operations after the snapshot.
        end: where the newest segment ends.
        newest: the newest segment; `segment` is its header and `data` its content.
        needed: the segments that were read, oldest first.
        log_bytes: their size.
        frames: commits taken from them.
        stale: snapshots and segments that the chosen snapshot makes superfluous, or that do not count beside it.
        damaged: newer snapshots that were passed over because they are damaged.
        inventory: all files.
    """

    decision: Decision
    header: SnapshotHeader
    reader: SnapshotReader
    replay: Replay
    end: SegmentEnd
    newest: FileName
    segment: SegmentHeader
    data: bytes
    needed: list[FileName]
    log_bytes: int
    frames: int
    stale: list[FileName]
    damaged: list[FileName]
    inventory: Inventory

    @property
    def replaced(self) -> bool:
        """The content of the store was replaced as a whole, and files of before are still there."""
        return not self.header.replaced.isdisjoint(name.name for name in self.stale)

    @property
    def torn(self) -> bytes:
        """What is behind the last intact frame of the newest segment."""
        return self.data[self.end.offset :]

    def families(self) -> list[FamilyState]:
        """The families, those with entries in the snapshot not yet decoded."""
        families = []
        for family_id, name in self.replay.names.items():
            pending = self.replay.overlays[family_id]
            if family_id in self.header.families.values() and self.reader.entries(family_id):
                family = FamilyState(family_id, name, partial(self.reader.load, family_id))
                family.pending = pending
            else:
                family = FamilyState(family_id, name)
                if None in pending.values():
                    family.values = {key: value for key, value in pending.items() if value is not None}
                else:
                    family.values = pending  # type: ignore[assignment]  # no None is in it
            families.append(family)
        return families


def recover(files: Files, directory: str, inventory: Inventory) -> Recovered:
    """Read the store in `directory`.

    Arguments:
        inventory: from `survey`; it shows at least one snapshot or segment.

    Raises:
        CorruptionError: what was durable is damaged or missing, or files do not belong together.
        UnsupportedFormatError: a newer format.
        OSError: a file cannot be read; FileNotFoundError if a writer has just superseded it.
    """
    reader, damaged, older = _choose_snapshot(files, directory, inventory)
    try:
        return _read_log(files, directory, inventory, reader, damaged, older)
    except BaseException:
        reader.close()
        raise


def _choose_snapshot(
    files: Files, directory: str, inventory: Inventory
) -> tuple[SnapshotReader, list[FileName], list[FileName]]:
    """The newest intact snapshot, the damaged ones above it, and the older ones below."""
    problem: CorruptionError | None = None
    for at in reversed(range(len(inventory.snapshots))):
        name = inventory.snapshots[at]
        path = files.join(directory, name.name)
        try:
            reader = SnapshotReader(files, path)
            try:
                if reader.header.sequence != name.sequence:
                    found = f"sequence {reader.header.sequence} in the header"
                    raise CorruptionError(path, offset=0, expected=f"sequence {name.sequence}", found=found)
                if at:  # an older one is still there, and will be deleted: look before trusting this one
                    for damage in reader.verify():
                        raise damage
            except BaseException:
                reader.close()
                raise
        except CorruptionError as error:
            problem = problem or error
            continue
        return reader, inventory.snapshots[at + 1 :], inventory.snapshots[:at]
    if problem is not None:
        raise problem
    expected, found = "a snapshot", f"only log segments, from {inventory.segments[0].name} on"
    raise CorruptionError(files.join(directory, "*.snapshot"), expected=expected, found=found)


def _read_log(
    files: Files,
    directory: str,
    inventory: Inventory,
    reader: SnapshotReader,
    damaged: list[FileName],
    older: list[FileName],
) -> Recovered:
    snapshot = reader.header
    segments, others = own_segments(files, directory, inventory, snapshot)
    first_needed = _first_needed(files, directory, segments, snapshot.sequence)
    needed = segments[first_needed:]
    durable = max([snapshot.sequence, *(name.sequence for name in damaged)])
    replay = Replay(snapshot)
    generation = log_bytes = frames = 0
    for stale in segments[:first_needed]:  # they are going to be deleted, so they must be ours
        path = files.join(directory, stale.name)
        head = read_head(files, path, SEGMENT_HEADER_SIZE)
        _check_header(path, stale, parse_segment_header(path, head), snapshot.log, 0)
    for name, following in zip(needed, [*needed[1:], None], strict=True):
        path = files.join(directory, name.name)
        data = read_whole(files, path)
        segment = parse_segment_header(path, data)
        _check_header(path, name, segment, snapshot.log, generation)
        end = read_segment(path, data, segment, replay, skip=snapshot.sequence)
        facts = Facts(
            newest=following is None,
            closed_name=name.closed,
            ending=end.ending,
            follows=following is not None and following.sequence == end.sequence + 1,
            proven=max(end.watermark, durable) > end.sequence,
        )
        decision = decide(facts)
        if decision.action == "corrupt":
            raise _refusal(files, directory, path, end, following, decision, durable)
        generation = segment.generation
        log_bytes += len(data)
        frames += end.frames
    return Recovered(
        decision=decision,
        header=snapshot,
        reader=reader,
        replay=replay,
        end=end,
        newest=name,
        segment=segment,
        data=data,
        needed=needed,
        log_bytes=log_bytes,
        frames=frames,
        stale=older + segments[:first_needed] + others,
        damaged=damaged,
        inventory=inventory,
    )


def own_segments(
    files: Files, directory: str, inventory: Inventory, snapshot: SnapshotHeader
) -> tuple[list[FileName], list[FileName]]:
    """The segments of the snapshot's log, and those that do not count.

    The latter are of before the content of the store was replaced as a whole, as the snapshot says; or a crash came
    while it was being replaced, and they were to be the log of a snapshot that did not get its name (see
    ``replacing``): closed, without a commit, and of another log.
    """
    own: list[FileName] = []
    others: list[FileName] = []
    for name in inventory.segments:
        counts = name.name not in snapshot.replaced
        if counts and name.closed and len(inventory.segments) > 1:
            counts = prepared_log(files, directory, name) in (None, snapshot.log)
        (own if counts else others).append(name)
    return own, others


def prepared_log(files: Files, directory: str, name: FileName) -> bytes | None:
    """The log id of a segment that is as ``replacing`` prepares one, whole, closed and without a commit; else None.

    Raises:
        OSError: it cannot be read.
    """
    path = files.join(directory, name.name)
    data = read_head(files, path, CLOSED_SEGMENT_SIZE + 1)
    try:
        header = parse_segment_header(path, data)
    except (CorruptionError, UnsupportedFormatError):
        return None
    prepared = 0 < header.first == name.sequence and data == encode_closed_segment(header)
    return header.log_id if prepared else None


def _first_needed(files: Files, directory: str, segments: list[FileName], sequence: int) -> int:
    """The index of the segment that holds, or will hold, the commit after `sequence`."""
    first = [at for at, name in enumerate(segments) if name.sequence <= sequence + 1]
    if not first:
        expected = f"a segment with commit {sequence + 1}, which follows the snapshot"
        found = f"the first segment to begin at {segments[0].sequence}" if segments else "no segment"
        path = files.join(directory, f"{sequence + 1:020d}.log")
        raise CorruptionError(path, expected=expected, found=found, sequence=sequence)
    for left, right in pairwise(segments):
        if left.sequence == right.sequence:
            path = files.join(directory, right.name)
            raise CorruptionError(path, expected=f"only {left.name} to begin there", found="a second segment")
    return first[-1]


def _check_header(path: str, name: FileName, header: SegmentHeader, log_id: bytes, generation: int) -> None:
    if header.log_id != log_id:
        expected, found = f"a segment of the log {log_id.hex()} of this store", f"one of the log {header.log_id.hex()}"
    elif header.first != name.sequence:
        expected, found = f"first sequence {name.sequence}, as in the file name", str(header.first)
    elif header.generation < generation:
        expected, found = f"generation {generation} or later", str(header.generation)
    else:
        return
    raise CorruptionError(path, offset=0, expected=expected, found=found)


def _refusal(
    files: Files,
    directory: str,
    path: str,
    end: SegmentEnd,
    following: FileName | None,
    decision: Decision,
    durable: int,
) -> CorruptionError:
    """The error for a segment that ends where it must not."""
    found = end.problem or {"end": "the end of the file", "close": "its closing frame"}.get(end.ending, "the end")
    offset: int | None = end.offset
    if decision.row == "E" and following is not None:
        expected = f"commits {end.sequence + 1} to {following.sequence - 1}, before {following.name} ({decision.why})"
    elif decision.row == "F":
        path, offset = files.join(directory, f"{end.next_first:020d}.log"), None
        expected, found = f"a segment that begins with commit {end.next_first} ({decision.why})", "no such file"
    elif decision.row == "G":
        proof = max(end.watermark, durable)
        expected = f"the frame of commit {end.sequence + 1} ({decision.why}, up to {proof})"
    else:
        expected = f"an intact frame ({decision.why})"
    return CorruptionError(path, offset=offset, expected=expected, found=found, sequence=end.sequence)
