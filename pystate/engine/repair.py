"""What opening for writing changes on disk: making a new store, cutting a torn tail, removing what is superseded.

Promise: nothing here runs before ``recovery`` has validated everything. Each function may be interrupted by a crash at
any step and run again. Bytes that are cut off are first copied aside, durably, to a ``*.torn`` file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pystate.engine.files import TEMPORARY_SUFFIX, Files, publish, read_head, write_all
from pystate.engine.log_format import (
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
    encode_frame,
    encode_operations,
    parse_segment_header,
    salt_seed,
)
from pystate.engine.log_writer import LogPosition, new_salt, publish_segment
from pystate.engine.names import TORN_SUFFIX, FileName, snapshot_name
from pystate.engine.recovery import Inventory, Recovered, prepared_log
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_writer import encode_empty
from pystate.errors import CorruptionError

__all__ = [
    "RecoveryReport",
    "clear_unfinished",
    "create_store",
    "is_unfinished_creation",
    "keep_torn",
    "new_header",
    "remove_files",
    "repair_log",
    "set_aside",
]


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What opening a store found and did; part of `Store.stats`.

    Attributes:
        decision: ``"new"`` (the store was made), ``"clean"`` (it had been closed), ``"unclosed"`` (an unclean stop,
            nothing cut off), ``"torn"`` (an unclean stop, a half-written tail was cut off).
        sequence: of the last commit found.
        snapshot_sequence: of the snapshot it began with.
        generation: of the newest segment found.
        segments_read, log_bytes, frames_replayed: how much of the log came on top.
        torn_bytes: how many bytes were behind the last intact frame.
        torn_file: where they were kept, or None (none, or opened for reading only).
        damaged_snapshots: newer snapshots that were passed over because they are damaged.
        temporary_files_removed, stale_files_removed: names of unfinished and of superseded files.
        seconds: how long opening took, by a monotonic clock.
    """

    decision: str
    sequence: int
    snapshot_sequence: int
    generation: int
    segments_read: int
    log_bytes: int
    frames_replayed: int
    torn_bytes: int
    torn_file: str | None
    damaged_snapshots: tuple[str, ...]
    temporary_files_removed: tuple[str, ...]
    stale_files_removed: tuple[str, ...]
    seconds: float


def is_unfinished_creation(files: Files, directory: str, inventory: Inventory) -> bool:
    """Whether a crash interrupted the making of a store before the store existed.

    Of `create_store`: one segment without a frame, no snapshot. Of a snapshot that was to be put into a new directory
    (``replacing``): one closed segment without a commit, and the snapshot before it, still under its temporary name.

    Raises:
        UnsupportedFormatError: a newer pystate was making it. OSError: the segment cannot be read.
    """
    if inventory.snapshots or len(inventory.segments) != 1:
        return False
    [name] = inventory.segments
    waiting = snapshot_name(name.sequence - 1) + TEMPORARY_SUFFIX
    if name.sequence != 1 and all(other.name != waiting for other in inventory.others):
        return False
    path = files.join(directory, name.name)
    head = read_head(files, path, SEGMENT_HEADER_SIZE + 1)
    try:
        header = parse_segment_header(path, head)
    except CorruptionError:
        return False
    if name.sequence != 1:
        return name.closed and prepared_log(files, directory, name) is not None
    return len(head) == SEGMENT_HEADER_SIZE and header.first == 1


def clear_unfinished(files: Files, directory: str, segments: Iterable[FileName]) -> None:
    """Remove, durably, what an unfinished creation has left of a log: beside another segment it would be damage.

    Raises:
        OSError: a step failed; trying again is safe.
    """
    names = list(segments)
    for name in names:
        files.unlink(files.join(directory, name.name))
    if names:
        files.sync_directory(directory)


def create_store(
    files: Files, directory: str, families: Iterable[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Make a store in an existing directory that holds nothing (or an unfinished creation).

    The snapshot makes it a store, so it comes last: a crash before that leaves a directory that is none yet. It holds
    the metadata, which a store therefore has from its first moment on.

    Raises:
        OSError: a step failed; trying again is safe.
    """
    store_id = files.random_bytes(16)
    segment = SegmentHeader(log_id=store_id, generation=1, salt=new_salt(files), first=1)
    publish_segment(files, directory, segment)
    snapshot = new_header(store_id, families, metadata)
    publish(files, directory, snapshot_name(0), encode_empty(snapshot))


def new_header(store_id: bytes, families: Iterable[str], metadata: Mapping[str, str] | None) -> SnapshotHeader:
    """The header of the snapshot of a new store."""
    ids = {name: family_id for family_id, name in enumerate(families, start=1)}
    return SnapshotHeader(
        store_id=store_id,
        sequence=0,
        generation=1,
        next_family_id=len(ids) + 1,
        families=ids,
        metadata=dict(metadata or {}),
    )


def repair_log(
    files: Files, directory: str, recovered: Recovered, *, new: bool = False
) -> tuple[LogPosition, str | None]:
    """Bring the log into a state that can be appended to; return where it ends, and the name of the file with what was
    cut.

    After a clean stop nothing is written. After an unclean one the newest segment is written anew, without its torn
    tail, and a new generation begins with a new segment: a commit that was lost must never share (generation, sequence)
    with a later one.

    Arguments:
        new: the store has just been made here, durably, and holds nothing yet.

    Raises:
        OSError: a step failed; the store is as it was, or further on, and opening again is safe.
    """
    end, segment = recovered.end, recovered.segment
    needed = len(recovered.needed)
    # A closing frame without the closed name was perhaps never synced: who wrote it had not come to the rename.
    if new or (recovered.decision.action == "clean" and recovered.newest.closed):
        position = LogPosition(
            header=segment,
            size=len(recovered.data),
            sequence=end.sequence,
            closed_name=recovered.newest.closed,
            other_bytes=recovered.log_bytes - len(recovered.data),
            other_segments=needed - 1,
        )
        return position, None
    # A rename by the process before this one may not be durable yet; lost beside those that follow, it would leave the
    # segment there under both of its names.
    files.sync_directory(directory)
    path = files.join(directory, recovered.newest.name)
    torn_name = keep_torn(files, directory, recovered)
    old = files.open_append(path)  # refused while a writer whose lock was taken from it still has the segment
    try:
        # Written anew, not only synced: what was accepted may stand in the cache alone, and after a sync that failed
        # for the process before this one the system may think that it is on the disk.
        publish(files, directory, recovered.newest.name, recovered.data[: end.offset])
    finally:
        old.close()
    header = SegmentHeader(segment.log_id, segment.generation + 1, new_salt(files), end.sequence + 1)
    publish_segment(files, directory, header)
    replaced = header.first == segment.first
    if not replaced:
        frame = encode_operations([header.first])
        file = files.open_append(path)
        try:
            write_all(file, encode_frame(segment.salt, salt_seed(segment.salt), end.sequence, end.sequence, frame))
        finally:
            file.close()
    position = LogPosition(
        header=header,
        size=SEGMENT_HEADER_SIZE,
        sequence=end.sequence,
        closed_name=False,
        other_bytes=recovered.log_bytes - len(recovered.data) + (0 if replaced else end.offset),
        other_segments=needed - (1 if replaced else 0),
    )
    return position, torn_name


def keep_torn(files: Files, directory: str, recovered: Recovered) -> str | None:
    """Copy what is behind the last intact frame to a file of its own; return its name, or None when there is nothing.

    Raises:
        OSError: a step failed; trying again is safe.
    """
    if not recovered.torn:
        return None
    name = f"{recovered.end.sequence + 1:020d}-generation-{recovered.segment.generation}{TORN_SUFFIX}"
    publish(files, directory, name, recovered.torn)
    return name


def remove_files(files: Files, directory: str, names: Iterable[FileName]) -> tuple[str, ...]:
    """Remove files that nothing needs any more; return the names of those removed. The others wait for next time."""
    removed = []
    for name in names:
        try:
            files.unlink(files.join(directory, name.name))
        except OSError:
            continue
        removed.append(name.name)
    return tuple(removed)


def set_aside(files: Files, directory: str, names: Iterable[FileName]) -> None:
    """Take damaged snapshots, which an older one replaces, out of the way, without losing their bytes."""
    for name in names:
        path = files.join(directory, name.name)
        files.replace(path, path + TORN_SUFFIX)
    files.sync_directory(directory)
