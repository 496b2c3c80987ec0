"""Snapshot files outside a store: writing one of the present state while commits go on, and looking at one.

Promise: an exported file gets its name only when it is complete and durable, and holds one consistent state, whose
commits are durable in the store, too. So the id and the sequence in it name this state for ever: no other state of the
store will have both. Commits wait only while the log is synced and the state is pinned.

The file has the format of the snapshots in a store; ``install`` makes a store of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import NamedTuple

import msgspec

from pystate.engine.commit import Committer
from pystate.engine.family_state import FamilyState
from pystate.engine.files import Files, publish_stream
from pystate.engine.names import snapshot_name
from pystate.engine.places import absolute_path, ordinary_files, raise_if_full
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_reader import SnapshotReader
from pystate.engine.snapshot_writer import SnapshotCancelledError, Written, copy_content, write_content
from pystate.engine.state import Pin, State
from pystate.errors import ClosedError, CorruptionError

__all__ = ["ExportReport", "SnapshotInfo", "export_state", "read_snapshot"]


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `Store.export` has written.

    Attributes:
        path: the file.
        id: of the store, as `Store.id`.
        sequence: the last commit in it.
        bytes: its size.
        digest: of the whole, in hex, as it stands in the file.
        copied: the newest snapshot of the store was this very state, so that its blocks were copied.
    """

    path: str
    id: str
    sequence: int
    bytes: int
    digest: str
    copied: bool


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot file says of itself; returned by `read_snapshot`.

    Attributes:
        path: the file.
        id: of the store that it is of.
        sequence: the last commit in it.
        families: the number of entries by name.
        metadata: of the store.
        bytes: the size of the file.
        digest: of the whole, in hex, as it stands in the file.
    """

    path: str
    id: str
    sequence: int
    families: dict[str, int]
    metadata: dict[str, str]
    bytes: int
    digest: str


def read_snapshot(path: str | PathLike[str], *, thorough: bool = False, files: Files | None = None) -> SnapshotInfo:
    """Look at a snapshot file, such as `Store.export` writes.

    Arguments:
        path: the file.
        thorough: check every block too, so that whatever is damaged is found.
        files: the file system; None means the real one.

    Raises:
        CorruptionError: it is no snapshot, or it is damaged or cut. UnsupportedFormatError: a newer format.
        OSError: it cannot be read; FileNotFoundError when it is not there.

    Cost: reading its first and last bytes, and the index; with `thorough` reading and decoding everything, a block at a
    time.
    """
    files = ordinary_files if files is None else files
    reader = SnapshotReader(files, absolute_path(files, path))
    try:
        if thorough:
            for error in reader.verify():
                raise error
        header = reader.header
        return SnapshotInfo(
            path=reader.path,
            id=header.store_id.hex(),
            sequence=header.sequence,
            families={name: reader.entries(family_id) for name, family_id in sorted(header.families.items())},
            metadata=dict(header.metadata),
            bytes=reader.size,
            digest=f"{reader.digest:08x}",
        )
    finally:
        reader.close()


class _Pinned(NamedTuple):
    """A state that is being exported."""

    pin: Pin
    families: Mapping[str, FamilyState]
    header: SnapshotHeader


def export_state(
    files: Files,
    path: str | PathLike[str],
    state: State,
    header: SnapshotHeader,
    committer: Committer | None,
    store: str | None,
    ended: Callable[[], bool],
) -> ExportReport:
    """`Store.export`.

    Arguments:
        header: what the store carries about itself.
        committer: of the store, or None for one that only reads.
        store: its directory, or None in memory.
        ended: whether the store has been closed; asked before each block.
    """
    target = absolute_path(files, path)
    if files.parent(target) == store:
        raise ValueError(f"{target} is in the directory of the store; export to another directory")
    if files.kind(target) not in (None, "file"):
        raise ValueError(f"{target} is a directory; give the path of a file")
    pinned: list[_Pinned] = []
    try:
        if committer is None:
            _pin(state, header, pinned)
        else:
            committer.sync_ahead()
            committer.sync_and(lambda: _pin(state, header, pinned))
        written, copied = _export(files, target, state, pinned[0], header, store, ended)
    except SnapshotCancelledError:
        raise ClosedError("store", "was closed while it was exported; open it again") from None
    except OSError as error:
        raise_if_full(error, target)
        raise
    finally:
        for one in pinned:
            one.pin.release()
    return ExportReport(
        path=target,
        id=header.store_id.hex(),
        sequence=pinned[0].header.sequence,
        bytes=written.size,
        digest=f"{written.digest:08x}",
        copied=copied,
    )


def _pin(state: State, header: SnapshotHeader, pinned: list[_Pinned]) -> None:
    with state.lock:
        pin = state.pin_locked(durable_reader=True)
        families = state.families
        header = msgspec.structs.replace(
            header.outside(),
            sequence=pin.sequence,
            next_family_id=state.next_family_id,
            families={name: family.id for name, family in families.items()},
        )
        pinned.append(_Pinned(pin, families, header))


def _export(
    files: Files,
    target: str,
    state: State,
    pinned: _Pinned,
    header: SnapshotHeader,
    store: str | None,
    ended: Callable[[], bool],
) -> tuple[Written, bool]:
    pin, families, outside = pinned
    current = None if store is None else _current(files, files.join(store, snapshot_name(pin.sequence)), header)
    if current is not None:
        try:
            return publish_stream(files, target, lambda file: copy_content(file, outside, current, ended)), True
        except CorruptionError:
            pass  # it was read before it went bad: what is in memory is right
        finally:
            current.close()
    for family in families.values():
        state.load(family)
    return publish_stream(files, target, lambda file: write_content(file, outside, state, families, pin, ended)), False


def _current(files: Files, path: str, header: SnapshotHeader) -> SnapshotReader | None:
    """The snapshot of the store that is exactly its state, if there is one."""
    try:
        reader = SnapshotReader(files, path)
    except (FileNotFoundError, CorruptionError):
        return None
    if reader.header.log == header.log:
        return reader
    reader.close()
    return None
