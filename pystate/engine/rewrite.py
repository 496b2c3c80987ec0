"""`rewrite`: from the present state of a closed store to another one, in one step that a crash cannot divide.

Promise: a function builds the next state in memory (``rewriting``); then it takes the place of the present one as a
whole (``replacing``), or, if anything fails before, nothing has changed: not a byte, when nothing had to be repaired.
The store stays the same one, with the same id; its sequence rises, and its log begins anew.

This is what a migration is made of. What the values mean, this module does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import ne
from os import PathLike

import msgspec

from pystate.engine.family_state import FamilyState
from pystate.engine.files import Files, HeldLock
from pystate.engine.limits import check_metadata, check_number
from pystate.engine.places import absolute_path, find_store, guarded, holds_store, locked, ordinary_files
from pystate.engine.recovery import Recovered, recover, survey
from pystate.engine.repair import keep_torn, set_aside
from pystate.engine.replacing import put_in_place, remove_replaced, sequence_above
from pystate.engine.rewriting import NextFamily, Rewriting
from pystate.engine.snapshot_format import SnapshotHeader
from pystate.engine.snapshot_writer import Written, write_content
from pystate.engine.state import State
from pystate.errors import StoreNotFoundError

__all__ = ["RewriteReport", "RowChanges", "rewrite"]


class RowChanges(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows of one family of the next state differ from those of the family that it is made of.

    Attributes:
        added: keys that are new; of a new family, all.
        removed: keys that are gone.
        changed: keys that have another value.
    """

    added: int
    removed: int
    changed: int


class RewriteReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `rewrite` has changed, or, with ``dry_run``, would change.

    Attributes:
        path: of the store.
        id: of the store, which stays.
        dry_run: nothing was to be written.
        changed: the next state differs from the present one, in anything.
        sequence_before: of the present state.
        sequence: of the next one; the same when nothing has changed or nothing was to be written.
        bytes: the size of the new snapshot; 0 when none was written.
        rows: by name in the next state, for each family whose rows differ.
        created: the names of new families, sorted.
        dropped: the families that are gone, each with the number of its rows.
        renamed: from the present name to the next one.
        metadata_before, metadata: of the two states.
    """

    path: str
    id: str
    dry_run: bool
    changed: bool
    sequence_before: int
    sequence: int
    bytes: int
    rows: dict[str, RowChanges]
    created: tuple[str, ...]
    dropped: dict[str, int]
    renamed: dict[str, str]
    metadata_before: dict[str, str]
    metadata: dict[str, str]


def rewrite(
    path: str | PathLike[str],
    build: Callable[[Rewriting], object],
    *,
    dry_run: bool = False,
    lock_timeout: float = 0.0,
    progress: Callable[[int, int], object] | None = None,
    files: Files | None = None,
) -> RewriteReport:
    """Replace the state of a closed store by the one that `build` makes of it, as a whole or not at all.

    Arguments:
        path: the directory of the store.
        build: is given a `Rewriting`: the present state, to be changed. What it returns does not matter.
        dry_run: run `build`, write nothing (but the lock file), and tell what would change.
        lock_timeout: how long to wait for another writer to close the store, in seconds.
        progress: called with the number of entries of the new snapshot written so far, and that of all.
        files: the file system; None means the real one.

    Returns:
        What was changed. When the next state is the present one, nothing was written.

    Raises:
        Whatever `build` or `progress` raises. StoreNotFoundError: no store there. NotAStoreError: no directory there.
        LockedError: another opener holds the store for writing. ReadOnlyError: the directory cannot be written to.
        CorruptionError: what was durable is damaged. UnsupportedFormatError: a newer format.
        TypeError, ValueError: an argument, or the metadata that `build` has left, is not what it must be.
        DiskFullError: no room for the new snapshot. OSError: the disk failed.
        StoreFailedError: the very last step failed, so that power loss may bring the old state back; open the store to
        learn which it is.

        After any of them but the last the state is the present one. The files are as they were, byte for byte, but for
        what recovery keeps for people: torn bytes may have been copied aside, and a snapshot that is damaged and not
        needed renamed.

    An interrupt leaves the one state or the other. A crash leaves the present state until the new snapshot is complete
    and durable, and then the new one; the next opening removes what is left over. A read-only store that is open
    meanwhile shows the new state after its next `Store.refresh`, once the old files are gone.

    Cost: reading everything, `build`, and writing everything once. Memory: the store, and what `build` has put.
    """
    if not callable(build):
        raise TypeError(f"build is a function of a Rewriting, not {type(build).__name__}")
    check_number("lock_timeout", lock_timeout, float)
    files = ordinary_files if files is None else files
    directory = find_store(files, absolute_path(files, path))
    with locked(files, directory, lock_timeout) as lock:
        return _Rewrite(files, directory, lock).run(build, dry_run, progress)


class _Rewrite:
    """One call of `rewrite`, under the lock."""

    def __init__(self, files: Files, directory: str, lock: HeldLock) -> None:
        self._files = files
        self._directory = directory
        self._lock = lock

    def run(
        self, build: Callable[[Rewriting], object], dry_run: bool, progress: Callable[[int, int], object] | None
    ) -> RewriteReport:
        files, directory = self._files, self._directory
        inventory = survey(files, directory)
        if not holds_store(files, directory, inventory):
            raise StoreNotFoundError(directory)
        recovered = recover(files, directory, inventory)
        try:
            with guarded(files, files.join(directory, recovered.newest.name)):
                report = self._replace(recovered, build, dry_run, progress)
        finally:
            with suppress(OSError):
                recovered.reader.close()
        if report.bytes:
            remove_replaced(files, directory, inventory)
        return report

    def _replace(
        self,
        recovered: Recovered,
        build: Callable[[Rewriting], object],
        dry_run: bool,
        progress: Callable[[int, int], object] | None,
    ) -> RewriteReport:
        files, directory = self._files, self._directory
        present = recovered.families()
        rewriting = _begin(recovered, present)
        build(rewriting)
        entries, metadata = rewriting._end(), check_metadata(rewriting._metadata)
        report = _compare(directory, recovered, present, entries, metadata, dry_run)
        if dry_run or not report.changed:
            return report
        header = SnapshotHeader(
            store_id=recovered.header.store_id,
            sequence=sequence_above(directory, recovered.inventory, recovered.end.sequence),
            generation=recovered.segment.generation + 1,
            next_family_id=rewriting._next_family_id,
            families={entry.name: entry.state.id for entry in entries},
            metadata=metadata,
            log_id=files.random_bytes(16),
        )
        del present, rewriting  # the present values are not needed any more
        written = self._write(recovered, header, _detached(entries), progress)
        return msgspec.structs.replace(report, sequence=header.sequence, bytes=written.size)

    def _write(
        self,
        recovered: Recovered,
        header: SnapshotHeader,
        families: list[FamilyState],
        progress: Callable[[int, int], object] | None,
    ) -> Written:
        """Keep what recovery keeps for people, then put the new snapshot into the place of everything else."""
        files, directory = self._files, self._directory
        for family in families:
            family.load()
        total, done = sum(len(family.values) for family in families), 0

        def wrote(entries: int) -> None:
            nonlocal done
            done += entries
            if progress is not None:
                progress(done, total)

        state = State(
            sequence=header.sequence, families=families, next_family_id=header.next_family_id, history_bytes=0
        )
        if recovered.damaged:
            set_aside(files, directory, recovered.damaged)
        keep_torn(files, directory, recovered)
        kept = [name for name in recovered.inventory.snapshots if name not in recovered.damaged]
        pin = state.pin(durable_reader=True)
        try:
            return put_in_place(
                files,
                directory,
                self._lock,
                recovered.inventory._replace(snapshots=kept),
                header,
                lambda file, header: write_content(file, header, state, state.families, pin, wrote=wrote),
            )
        finally:
            pin.release()


def _begin(recovered: Recovered, present: list[FamilyState]) -> Rewriting:
    return Rewriting(
        present,
        next_family_id=recovered.replay.next_family_id,
        metadata=dict(recovered.header.metadata),
        sequence=recovered.end.sequence,
        store_id=recovered.header.store_id.hex(),
    )


def _detached(entries: list[NextFamily]) -> list[FamilyState]:
    """The families of the next state, under their names; nothing holds the present values any more."""
    families = []
    for entry in entries:
        entry.state.name = entry.name
        entry.origin = None
        families.append(entry.state)
    return families


def _compare(
    directory: str,
    recovered: Recovered,
    present: list[FamilyState],
    entries: list[NextFamily],
    metadata: dict[str, str],
    dry_run: bool,
) -> RewriteReport:
    rows = {entry.name: changes for entry in entries if (changes := _changes(entry)) is not None}
    created = tuple(sorted(entry.name for entry in entries if entry.origin is None))
    renamed = {entry.origin.name: entry.name for entry in entries if entry.origin and entry.origin.name != entry.name}
    kept = {id(entry.origin) for entry in entries}
    dropped = {}
    for family in present:
        if id(family) not in kept:
            family.load()
            dropped[family.name] = len(family.values)
    before = recovered.header.metadata
    return RewriteReport(
        path=directory,
        id=recovered.header.store_id.hex(),
        dry_run=dry_run,
        changed=bool(rows or created or dropped or renamed or metadata != before),
        sequence_before=recovered.end.sequence,
        sequence=recovered.end.sequence,
        bytes=0,
        rows=rows,
        created=created,
        dropped=dropped,
        renamed=renamed,
        metadata_before=dict(before),
        metadata=metadata,
    )


def _changes(entry: NextFamily) -> RowChanges | None:
    """How the rows of a family differ, or None when they do not."""
    if entry.state is entry.origin:
        return None
    new = entry.state.values
    old = entry.origin.values if entry.origin is not None else {}
    if new == old:
        return None
    common = sum(map(new.__contains__, old))
    values = new.values()
    changed = sum(map(ne, map(old.get, new, values), values))  # a key that is new is compared with itself
    return RowChanges(added=len(new) - common, removed=len(old) - common, changed=changed)
