"""`rollback`: back to a backup and to the version that it is of, after an update that went wrong.

Promise: the store is restored first, then the markers are written, of the data directory before that of the backup
directory. A crash in between leaves old content under one or two newer markers, and doing the same again finishes it.
Until then `migrate` refuses: the older program for the newer marker, the newer one for the content, which does not fit
it. (That is so if the content says its version, as it does if it was made or migrated with a plan. Of content that says
none the newer program believes the markers, and only the list of families that it opens the store with may stop it.)
"""

from __future__ import annotations

from os import PathLike

from pystate.engine.files import Files
from pystate.engine.limits import check_number
from pystate.engine.places import absolute_path, ordinary_files
from pystate.formats.backup.calls import RestoreReport, find, restore
from pystate.formats.backup.repository import BackupInfo
from pystate.formats.markers import write_version_markers
from pystate.formats.versions import Version, as_version

__all__ = ["STORE_NAME", "rollback"]

STORE_NAME = "states.db"
"""The name of the store in a data directory, and of the repository in a backup directory."""


def rollback(
    data_dir: str | PathLike[str],
    backup_dir: str | PathLike[str],
    id: int,  # noqa: A002
    version: Version | str | None = None,
    *,
    state: str = STORE_NAME,
    lock_timeout: float = 0.0,
    files: Files | None = None,
) -> RestoreReport:
    """Restore a backup of the store in a data directory, and write back the markers of both directories.

    Arguments:
        data_dir: the directory with the store ``data_dir/state``, which is closed, and with a marker.
        backup_dir: the directory with the repository ``backup_dir/state``, and with a marker.
        id: which backup: the one that was made before the update. Not the newest: that may be another one.
        version: what the markers said before the update; None takes the version that stands in the backup.
        state: the name of store and repository.
        lock_timeout: how long to wait for a writer to close the store, in seconds.
        files: the file system; None means the real one.

    Raises:
        VersionError: `version`, or what stands in the backup, is no version; nothing was touched.
        ValueError: the backup does not say its version, and none was given; nothing was touched.
        MarkerWriteError: the store is restored, a marker could not be written. Do away with the cause, and make the
            same call again.
        BackupNotFoundError, LockedError, and everything else: as for `restore`; the markers were not touched.
    """
    if not isinstance(id, int):
        raise TypeError(f"id is an int, not {type(id).__name__}: the id of the backup that was made before the update")
    check_number("lock_timeout", lock_timeout, float)
    files = ordinary_files if files is None else files
    data_dir, backup_dir = absolute_path(files, data_dir), absolute_path(files, backup_dir)
    store, repository = files.join(data_dir, state), files.join(backup_dir, state)
    target = None if version is None else as_version(version)
    found = find(repository, id, files=files)
    if target is None:
        target = _version_of(repository, found)
    report = restore(store, repository, id, lock_timeout=lock_timeout, files=files)
    write_version_markers(data_dir, backup_dir, target, files=files)
    return report


def _version_of(repository: str, backup: BackupInfo) -> Version:
    """The version that stands in a backup.

    Raises:
        ValueError: none does. VersionError: it is no version.
    """
    if backup.version is None:
        raise ValueError(f"{repository}: backup {backup.id} does not say which version it is of; give version=")
    return as_version(backup.version)
