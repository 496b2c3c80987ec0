"""`install`: making a snapshot file the content of a store, in one step that a crash cannot divide.

Promise: the file is read and checked to its last byte before anything is touched. What was in the directory stays, and
is what every opening shows, until all of the new is in place (``replacing``). The store that comes of it is another
one: its id is new, so that nothing that belongs to the old store (a segment, an earlier export, whatever its users have
tied to the id) is taken for its own; and its sequence is above all that can be read of the old one, so that in a
directory it does not go back.

The old store need not be readable: it may be what the file is installed for.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from os import PathLike

import msgspec

from pystate.engine.files import Files, HeldLock, read_head, read_whole
from pystate.engine.limits import check_number
from pystate.engine.log_format import parse_segment_header
from pystate.engine.log_reader import iter_frames
from pystate.engine.places import (
    absolute_path,
    check_empty,
    guarded,
    holds_store,
    locked,
    ordinary_files,
    prepare_directory,
    sync_parent,
)
from pystate.engine.recovery import Inventory, survey
from pystate.engine.repair import clear_unfinished
from pystate.engine.replacing import put_in_place, remove_replaced, sequence_above
from pystate.engine.snapshot_format import PRELUDE_SIZE, decode_prelude
from pystate.engine.snapshot_reader import SnapshotReader
from pystate.engine.snapshot_writer import copy_content
from pystate.engine.store import DEFAULT_FAMILY
from pystate.errors import CorruptionError

__all__ = ["InstallReport", "install"]


class InstallReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `install` has done.

    Attributes:
        path: of the store.
        id: of the store as it is now, as `Store.id`.
        sequence: of its state.
        bytes: the size of its snapshot.
        replaced: there had been a store in the directory.
    """

    path: str
    id: str
    sequence: int
    bytes: int
    replaced: bool


def install(
    path: str | PathLike[str],
    snapshot: str | PathLike[str],
    *,
    lock_timeout: float = 0.0,
    files: Files | None = None,
) -> InstallReport:
    """Make a snapshot file the content of a store, new or closed, as a whole or not at all.

    Families, entries and metadata are exactly those of the file. The id of the store is new. The sequence is that of
    the file, or, if that is higher, the next one above all that can be read in the directory.

    Arguments:
        path: the directory. It may be missing (its parent may not), empty, or a closed store, damaged or not, whose
            content is given up; anything else is left alone.
        snapshot: the file, as `Store.export` writes it; in another directory.
        lock_timeout: how long to wait for another writer to close the store, in seconds.
        files: the file system; None means the real one.

    Raises:
        CorruptionError: the file is no snapshot, or it is damaged. FileNotFoundError: it is not there.
        NotAStoreError: `path` holds something else. StoreNotFoundError: its parent is missing.
        LockedError: another opener holds the store for writing. ReadOnlyError: the directory cannot be written to.
        UnsupportedFormatError: the file, or the store that is there, is of a newer format.
        TypeError, ValueError: an argument is not what it must be.
        DiskFullError: no room. OSError: the disk failed.
        StoreFailedError: the very last step failed, so that power loss may bring the old state back; open the store to
        learn which it is.

        After any of them but the last the old store is as it was, byte for byte, or there still is none (what an
        interrupted creation had left of one may be gone).

    A crash leaves the old store until the new one is complete and durable, and then the new one; where there was none,
    no store, or the new one. A read-only store that is open meanwhile shows the new one, with its id, after its next
    `Store.refresh`, once the old files are gone.

    Cost: reading the file twice, and writing it once; a block in memory at a time. Of a store that is there the log is
    read.
    """
    check_number("lock_timeout", lock_timeout, float)
    files = ordinary_files if files is None else files
    directory, source = absolute_path(files, path), absolute_path(files, snapshot)
    if files.parent(source) == directory:
        raise ValueError(f"{source} is in the directory of the store; give a file that is somewhere else")
    reader = SnapshotReader(files, source)
    try:
        _check(reader)
        prepare_directory(files, directory, create=True)
        with locked(files, directory, lock_timeout) as lock:
            return _install(files, directory, lock, reader)
    finally:
        with suppress(OSError):
            reader.close()


def _check(reader: SnapshotReader) -> None:
    """Read a snapshot to its last byte.

    Raises:
        CorruptionError: something in it is not as it must be.
    """
    if DEFAULT_FAMILY not in reader.header.families:
        expected, found = f"a family {DEFAULT_FAMILY!r}, as every store has", f"{sorted(reader.header.families)}"
        raise CorruptionError(reader.path, expected=expected, found=found)
    for name, family_id in reader.header.families.items():
        last: list[bytes] = []
        for keys, _ in reader.blocks(family_id) if reader.entries(family_id) else ():
            ordered = last + keys
            if any(map(bytes.__ge__, ordered, ordered[1:])):
                expected = f"the keys of family {name!r} to ascend"
                raise CorruptionError(reader.path, expected=expected, found="two that do not")
            last = keys[-1:]


def _install(files: Files, directory: str, lock: HeldLock, reader: SnapshotReader) -> InstallReport:
    inventory = survey(files, directory)
    check_empty(directory, inventory)
    there = holds_store(files, directory, inventory)
    with ExitStack() as guards:
        if there:
            last = _last_sequence(files, directory, inventory)
            for name in inventory.segments[-1:]:
                guards.enter_context(guarded(files, files.join(directory, name.name)))
        else:
            last = 0
            sync_parent(files, directory)
            clear_unfinished(files, directory, inventory.segments)
            inventory = survey(files, directory)
        header = msgspec.structs.replace(
            reader.header.outside(),
            store_id=files.random_bytes(16),
            # At least 1: a lost snapshot 0, beside an empty log, is taken for a creation that was interrupted.
            sequence=sequence_above(directory, inventory, max(last, reader.header.sequence - 1)),
            generation=1,
        )
        written = put_in_place(
            files, directory, lock, inventory, header, lambda file, header: copy_content(file, header, reader)
        )
    remove_replaced(files, directory, inventory)
    return InstallReport(
        path=directory, id=header.store_id.hex(), sequence=header.sequence, bytes=written.size, replaced=there
    )


def _last_sequence(files: Files, directory: str, inventory: Inventory) -> int:
    """The highest sequence that anything readable in the log tells of, however damaged the rest is.

    Raises:
        UnsupportedFormatError: a file is of a newer format, so that what it holds cannot be told.
    """
    for name in inventory.snapshots:
        path = files.join(directory, name.name)
        with suppress(CorruptionError):
            decode_prelude(path, read_head(files, path, PRELUDE_SIZE))
    last = 0
    for name in inventory.segments:
        path = files.join(directory, name.name)
        data = read_whole(files, path)
        with suppress(CorruptionError):
            for frame in iter_frames(name.name, data, parse_segment_header(path, data)):
                last = max(last, frame.sequence, frame.watermark)
    return last
