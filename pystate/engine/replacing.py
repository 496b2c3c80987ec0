"""Replacing the whole content of a store by one new snapshot, so that a crash leaves all of the old or all of the new.

Promise: until the new snapshot gets its name, which is one rename, the old files are as they were and are what every
opening shows; from then on only the new snapshot is. The two can never be mixed: the new snapshot has a log of its own,
whose id no older segment bears, and it names the files that it replaces, which do not count from then on. Its sequence
is above every number that the directory has seen.

The steps of `put_in_place`, each durable before the next::

    write     the snapshot under its temporary name
    prepare   the segment that follows it: closed, without a commit, of the new log
    rename    the snapshot: from here on the new state counts

A crash before the rename leaves a segment that ``recovery`` knows to leave out; in a directory without a store, the
temporary name of the snapshot beside it says that there is none yet. What is replaced is removed afterwards, by
`remove_replaced` or by the next opening for writing. Used by ``rewrite`` and ``install``, under the lock of the store.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec

from pystate.engine.files import TEMPORARY_SUFFIX, File, Files, HeldLock, publish, publish_written
from pystate.engine.log_format import SegmentHeader, encode_closed_segment
from pystate.engine.log_writer import new_salt
from pystate.engine.names import segment_name, snapshot_name
from pystate.engine.recovery import Inventory
from pystate.engine.repair import remove_files
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_writer import Written
from pystate.errors import CorruptionError, StoreFailedError

__all__ = ["put_in_place", "remove_replaced", "sequence_above"]

_SEQUENCE_MAX = 2**63


def sequence_above(directory: str, inventory: Inventory, sequence: int) -> int:
    """A sequence for a new snapshot: above `sequence`, and above every number that stands in a name.

    So no file of the new log can ever get the name of one that it replaces.

    Raises:
        CorruptionError: there is none: a number is above all that a pystate has ever written.
    """
    above = max([sequence, *(name.sequence for name in [*inventory.snapshots, *inventory.segments])]) + 1
    if above >= _SEQUENCE_MAX:
        raise CorruptionError(directory, expected=f"sequences below {_SEQUENCE_MAX}", found=str(above - 1))
    return above


def put_in_place(
    files: Files,
    directory: str,
    lock: HeldLock,
    inventory: Inventory,
    header: SnapshotHeader,
    write: Callable[[File, SnapshotHeader], Written],
) -> Written:
    """Make the snapshot that `write` writes the content of the store; return what `write` returned.

    Arguments:
        lock: that of the store.
        inventory: of the directory as it is now; its snapshots and segments are what is replaced.
        header: of the new snapshot, with a sequence from `sequence_above` and the id of a log that no segment here
            belongs to. What is replaced is added.
        write: appends a snapshot with the given header to the given empty file.

    Raises:
        StoreFailedError: the last step failed, so that power loss may bring the old state back; open the store to
            learn which it is.
        Whatever `write` raises; OSError: another step failed. Then all is as before, and nothing is left behind that
            the next opening does not remove.
    """
    old = [name.name for name in [*inventory.snapshots, *inventory.segments]]
    header = msgspec.structs.replace(header, replaces=old or msgspec.UNSET)
    path = files.join(directory, snapshot_name(header.sequence))
    segment = SegmentHeader(header.log, header.generation, new_salt(files), header.sequence + 1)
    prepared = segment_name(segment.first, closed=True)
    file = files.create(path + TEMPORARY_SUFFIX)
    try:
        written = write(file, header)
        file.sync()
        files.sync_directory(directory)  # before there is a segment, the temporary name must stand beside it
        publish(files, directory, prepared, encode_closed_segment(segment))
        if not lock.still_held():
            raise OSError(errno.ENOLCK, "the lock file was removed or replaced while it was held", directory)
        publish_written(files, path, file)
    except BaseException as error:
        back = _withdraw(files, directory, path, files.join(directory, prepared), file)
        if back or not isinstance(error, Exception):
            raise
        number = error.errno if isinstance(error, OSError) else None
        raise StoreFailedError(directory, f"{type(error).__name__}: {error}", unknown=True, errno=number) from error
    return written


def _withdraw(files: Files, directory: str, path: str, prepared: str, file: File) -> bool:
    """After a failure: remove what was written, in the order that no crash mistakes for damage.

    What cannot be removed is as after a crash: it does not count, and the next opening for writing removes it.

    Returns:
        False when the snapshot has its name, or may have it, so that nothing can be taken back.
    """
    try:
        if files.kind(path) is not None:
            return False
    except OSError:
        return False
    try:
        file.close()
        if files.kind(prepared) is not None:
            files.unlink(prepared)
            files.sync_directory(directory)
        files.unlink(path + TEMPORARY_SUFFIX)
    except OSError:
        pass
    return True


def remove_replaced(files: Files, directory: str, inventory: Inventory) -> None:
    """Remove the files that `put_in_place` has replaced, and what is unfinished; what cannot be removed waits.

    Arguments:
        inventory: the one that was given to `put_in_place`.
    """
    temporary = [name for name in inventory.others if name.kind == "temporary"]
    remove_files(files, directory, [*inventory.segments, *inventory.snapshots, *temporary])
