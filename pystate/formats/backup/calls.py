"""The calls: `create`, `list`, `find`, `verify`, `restore`, `purge`. What is on the disk, ``repository`` knows.

Promise: a backup is one state that its store was in, whole, or it is not there. `create` runs beside commits, snapshots
and readers of the store; the other calls do not need the store of a backup at all. Whatever fails leaves the store and
every earlier backup as they were. One process at a time may make or remove backups of a repository; everybody may list,
verify and restore meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from operator import ne
from os import PathLike

import msgspec

from pystate.engine.files import Files, HeldLock
from pystate.engine.install import install
from pystate.engine.limits import check_number
from pystate.engine.snapshot_reader import SnapshotReader
from pystate.engine.store import Store
from pystate.errors import BackupNotFoundError, CorruptionError, FamilyNotFoundError, PystateError
from pystate.formats.backup.manifests import MANIFEST_FORMAT, Manifest, content_name
from pystate.formats.backup.repository import BackupInfo, Found, Repository, Survey

__all__ = [
    "BackupProblem",
    "RepositoryReport",
    "RestoreReport",
    "create",
    "find",
    "list",
    "purge",
    "restore",
    "verify",
]


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `restore` has done.

    Attributes:
        path: of the store.
        backup: what it was restored from.
        store_id: of the store as it is now: a new one.
        sequence: of its state: that of the backup, or a higher one.
        replaced: there had been a store.
    """

    path: str
    backup: BackupInfo
    store_id: str
    sequence: int
    replaced: bool


class BackupProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Damage that `verify` has found.

    Attributes:
        id: of the backup.
        path: the file. offset: where in it, in bytes, or None for the whole file. text: what is wrong.
    """

    id: int
    path: str
    offset: int | None
    text: str


class RepositoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` returns.

    Attributes:
        path: of the repository.
        ok: no problem was found.
        backups: those that are intact, ascending.
        problems: one for each backup that is not, in the order of their ids.
    """

    path: str
    ok: bool
    backups: tuple[BackupInfo, ...]
    problems: tuple[BackupProblem, ...]


def create(
    store: Store,
    repository: str | PathLike[str],
    *,
    keep: int | None = None,
    now: datetime | None = None,
    lock_timeout: float = 0.0,
    files: Files | None = None,
) -> BackupInfo:
    """Make a backup of the present state of an open store, while everything in it goes on.

    When this returns, the backup survives power loss. A store that is open for reading only will do, so another process
    may make backups of a store beside its writer.

    If the store has not changed since an intact backup in the repository, nothing is copied: that content is read and
    compared with the store, and the new backup refers to it.

    Arguments:
        store: what to back up; also one in memory.
        repository: the directory of the backups, which holds nothing else. It is made if it is missing (its parent may
            not be).
        keep: when the backup is there, remove all but this many of the newest, as `purge` does; None keeps all. A
            removal that fails is left to the next one, and hides nothing: the backup was made.
        now: the time of the backup, an aware datetime; None takes the clock of the system.
        lock_timeout: how long to wait for somebody else who makes or removes backups here, in seconds.
        files: the file system that the store was opened with; None means the real one.

    Raises:
        RepositoryLockedError: somebody else makes or removes backups there.
        RepositoryNotFoundError: the parent is missing. NotARepositoryError: the path holds something else.
        UnsupportedFormatError: a newer pystate has written there.
        ReadOnlyError: the repository cannot be written to. DiskFullError: no room for the backup.
        CorruptionError, StoreFailedError, ClosedError: of the store, as for `pystate.Store.export`.
        TypeError, ValueError: an argument is not what it must be; nothing was touched.
        OSError: a step failed. If it was the very last one, the backup is there, and power loss may take it.

        In every other case the repository has the backups that it had, and nothing is left behind.

    Cost: that of `pystate.Store.export`: writing everything in the store once; of an unchanged store reading it once.
    And reading the ends of every content file in the repository.
    """
    if keep is not None:
        check_number("keep", keep, int, at_least=1)
    check_number("lock_timeout", lock_timeout, float)
    timestamp = _timestamp(now)
    if not isinstance(store, Store):
        raise TypeError(f"store is an open Store, not {type(store).__name__}")
    _ = store.sequence  # a closed one is refused before anything is made
    place = Repository(files, repository)
    place.prepare()
    with place.locked(lock_timeout) as lock:
        survey = place.clean()
        found = _create(store, place, lock, survey, timestamp)
        if keep is not None:
            with suppress(OSError):
                place.prune(Survey([*survey.backups, found], survey.damaged), keep)
    return found.info


def _timestamp(now: datetime | None) -> datetime:
    """The time of a backup, in UTC and whole seconds.

    Raises:
        TypeError: not a datetime. ValueError: not an aware one, or one that UTC has no year for.
    """
    if now is None:
        now = datetime.now(UTC)
    if not isinstance(now, datetime):
        raise TypeError(f"now is a datetime, not {type(now).__name__}")
    if now.utcoffset() is None:
        raise ValueError(f"now is an aware datetime; {now!r} does not say its time zone")
    try:
        return now.astimezone(UTC).replace(microsecond=0)
    except OverflowError as error:
        raise ValueError(f"{now!r} is not within the years 1 to 9999 of UTC") from error


def _create(store: Store, place: Repository, lock: HeldLock, survey: Survey, timestamp: datetime) -> Found:
    backup_id = place.next_id(survey)
    try:
        same = _unchanged(store, place, survey)
        if same is None:
            found = _export(store, place, backup_id, timestamp)
        else:
            found = Found(
                msgspec.structs.replace(same.manifest, id=backup_id, timestamp=timestamp),
                msgspec.structs.replace(same.info, id=backup_id, timestamp=timestamp),
                same.path,
            )
        place.add(found.manifest, lock)
    except BaseException:
        place.withdraw(backup_id)
        raise
    return found


def _export(store: Store, place: Repository, backup_id: int, timestamp: datetime) -> Found:
    """Write the content of a backup, and make its manifest, which is not written yet."""
    report = store.export(place.join(content_name(backup_id)))
    manifest = Manifest(
        format=MANIFEST_FORMAT,
        id=backup_id,
        timestamp=timestamp,
        store_id=report.id,
        sequence=report.sequence,
        content=backup_id,
        size=report.bytes,
        digest=report.digest,
    )
    return place.look_at(manifest, {})


def _unchanged(store: Store, place: Repository, survey: Survey) -> Found | None:
    """The newest intact backup that holds exactly the present state of the store, if there is one.

    Id and sequence would name a state, but for those who copy the directory of a store back by hand: what they commit
    then gets the sequences of what was there before. So the content is compared, which finds what has gone bad, too.
    """
    state = (store.id, store.sequence)
    for found in reversed(survey.backups):
        if (found.manifest.store_id, found.manifest.sequence) == state:
            try:
                reader = SnapshotReader(place.files, found.path)
                try:
                    if _holds(reader, store):
                        return found
                finally:
                    reader.close()
            except CorruptionError as error:
                if error.path != found.path:
                    raise  # of the store itself
            except FamilyNotFoundError:
                pass  # dropped just now
    return None


def _holds(reader: SnapshotReader, store: Store) -> bool:
    """Whether a snapshot is exactly the present state of a store, all the while that this looks.

    Raises:
        CorruptionError: the snapshot is damaged, or the store. FamilyNotFoundError: a family was dropped meanwhile.
    """
    header = reader.header
    if dict(store.metadata) != header.metadata or set(store.families) != header.families.keys():
        return False
    for name, family_id in header.families.items():
        family = store.family(name)
        if len(family) != reader.entries(family_id):
            return False
        for keys, values in reader.blocks(family_id):
            if any(map(ne, map(family.get, keys), values)):
                return False
    with store.view() as view:  # a commit whose beginning was read above is visible now
        return view.sequence == header.sequence


def list(  # noqa: A001 - the public name is pystate.formats.backup.list
    repository: str | PathLike[str], *, files: Files | None = None
) -> tuple[BackupInfo, ...]:
    """The backups that can be offered, in the order of their ids. Beside somebody who makes one, too.

    A backup that is not finished is not among them, and neither is one whose damage shows without reading all of it;
    `verify` tells of those, and of all other damage.

    Raises:
        RepositoryNotFoundError: there is nothing. NotARepositoryError: there is something else.
        UnsupportedFormatError: a newer pystate has written there. OSError: something cannot be read.
        TypeError, ValueError: `repository` is no path.

    Cost: reading each manifest, and the ends of each content file.
    """
    return tuple(found.info for found in Repository(files, repository).survey().backups)


def find(
    repository: str | PathLike[str],
    id: int | None = None,  # noqa: A002
    *,
    files: Files | None = None,
) -> BackupInfo:
    """One backup: what `restore` with the same arguments would take.

    Arguments:
        id: which one; None for the newest.

    Raises:
        BackupNotFoundError: there is no such backup, or none at all. BackupDamagedError: it is damaged: the newest,
        too, since an older one would be another state. The others: as for `list`.
    """
    _check_id(id)
    return Repository(files, repository).find(id).info


def verify(
    repository: str | PathLike[str],
    id: int | None = None,  # noqa: A002
    *,
    files: Files | None = None,
) -> RepositoryReport:
    """Read every byte of a backup, or of all of them, and report what is damaged; change nothing.

    Arguments:
        id: which one; None for all.

    Raises:
        BackupNotFoundError: there is no backup with that id. The others: as for `list`. Damage is not raised: it is in
        the report.

    Cost: reading and decoding each content file once, a block in memory at a time.
    """
    _check_id(id)
    place = Repository(files, repository)
    survey = place.survey(only=id, thorough=True)
    if id is not None and not survey.ids:
        raise BackupNotFoundError(place.path, id=id, ids=place.ids())
    problems = tuple(
        BackupProblem(
            id=backup_id, path=error.path, offset=error.offset, text=f"expected {error.expected}, found {error.found}"
        )
        for backup_id, error in survey.damaged.items()
    )
    intact = tuple(found.info for found in survey.backups)
    return RepositoryReport(path=place.path, ok=not problems, backups=intact, problems=problems)


def restore(
    path: str | PathLike[str],
    repository: str | PathLike[str],
    id: int | None = None,  # noqa: A002
    *,
    lock_timeout: float = 0.0,
    files: Files | None = None,
) -> RestoreReport:
    """Make a backup the content of a store, new or closed, as a whole or not at all.

    Families, entries and metadata are exactly those of the backup. The store that comes of it is another one, with an
    id of its own: its log, its followers and whatever is tied to the old id are not taken for those of the new one.
    Other files in and beside the directory stay as they are. The markers of a directory are not part of a backup: see
    `rollback`.

    Arguments:
        path: the directory of the store. It may be missing (its parent may not), empty, or a closed store, damaged or
            not, whose content is given up; anything else is left alone.
        repository: the directory of the backups. Nothing is written there.
        id: which one; None for the newest.
        lock_timeout: how long to wait for a writer to close the store, in seconds.
        files: the file system; None means the real one.

    Raises:
        BackupNotFoundError: there is no such backup, or none at all. BackupDamagedError: every byte of it was read, and
        it is damaged. RepositoryNotFoundError, NotARepositoryError: as for `list`.
        LockedError: the store is open for writing, here or in another process. StoreNotFoundError: the parent of `path`
        is missing. NotAStoreError: `path` holds something else. ReadOnlyError: it cannot be written to.
        UnsupportedFormatError: the backup, or the store that is there, is of a newer format.
        DiskFullError: no room. OSError: the disk failed. TypeError, ValueError: an argument is not what it must be.
        StoreFailedError: the very last step failed, so that power loss may bring the old state back.

        After any of them but the last the store is as it was.

    A crash leaves the old store until the new one is complete and durable. Restoring again does no harm.

    Cost: that of `pystate.install`: reading the backup twice, and writing it once.
    """
    check_number("lock_timeout", lock_timeout, float)
    _check_id(id)
    place = Repository(files, repository)
    found = place.find(id)
    try:
        report = install(path, found.path, lock_timeout=lock_timeout, files=place.files)
    except CorruptionError as error:
        if error.path != found.path:
            raise
        raise place.damaged(found.info.id, error) from error
    except FileNotFoundError as error:
        if isinstance(error, PystateError):
            raise
        raise BackupNotFoundError(place.path, id=found.info.id, ids=()) from error  # removed just now
    return RestoreReport(
        path=report.path, backup=found.info, store_id=report.id, sequence=report.sequence, replaced=report.replaced
    )


def purge(
    repository: str | PathLike[str],
    keep: int,
    *,
    lock_timeout: float = 0.0,
    files: Files | None = None,
) -> tuple[int, ...]:
    """Remove all but the newest backups, and what was left unfinished; return the ids of those removed.

    Only backups that can be offered count (see `list`); one that is damaged goes when all that are kept are newer. What
    several share goes with the last of them. The ids of those removed are not given again.

    Arguments:
        keep: how many to keep, at least 1.
        lock_timeout: how long to wait for somebody else who makes or removes backups here, in seconds.
        files: the file system; None means the real one.

    Raises:
        RepositoryLockedError: somebody else makes or removes backups there. RepositoryNotFoundError: there is nothing.
        NotARepositoryError: there is something else. UnsupportedFormatError: a newer pystate has written there.
        ReadOnlyError: the repository cannot be written to. TypeError, ValueError: an argument is not what it must be.
        OSError: a step failed; what was removed is not there, the rest is whole. Call again.
    """
    check_number("keep", keep, int, at_least=1)
    check_number("lock_timeout", lock_timeout, float)
    place = Repository(files, repository)
    place.names()
    with place.locked(lock_timeout):
        return place.prune(place.clean(), keep)


def _check_id(backup_id: object) -> None:
    """Refuse what cannot be an id.

    Raises:
        TypeError: it is neither a whole number nor None.
    """
    if isinstance(backup_id, bool) or not isinstance(backup_id, int | None):
        raise TypeError(f"id is an int or None, not {type(backup_id).__name__}")
