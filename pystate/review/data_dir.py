"""`migrate_data_dir`: the state in a data directory, and both version markers, from any format since 0.42 to this one.

To be called at every start, before `ReviewStore.open`, which looks at no marker. For rolling back,
`pystate.formats.write_version_markers` is its companion: it puts the markers beside the content of a restored backup.
"""

from __future__ import annotations

from os import PathLike

from pystate import Files
from pystate.formats import MigrationPlan, MigrationReport, Progress, migrate
from pystate.review.migrations import MIGRATION_PLAN

__all__ = ["migrate_data_dir"]


def migrate_data_dir(
    data_dir: str | PathLike[str],
    backup_dir: str | PathLike[str],
    *,
    plan: MigrationPlan = MIGRATION_PLAN,
    dry_run: bool = False,
    progress: Progress | None = None,
    lock_timeout: float = 0.0,
    files: Files | None = None,
) -> MigrationReport:
    """Bring ``data_dir/states.db`` and the markers of both directories to the version of this program.

    New directories get markers, and no store. Where nothing is to be done, nothing is written. Otherwise the state
    changes as a whole: a failure leaves everything as it was, and after a crash the next call goes on and ends in the
    same state. So do states that an interrupted run of another program has left half migrated: what is done is skipped.

    Arguments:
        data_dir: holds the state and a marker.
        backup_dir: holds the backups and a marker; the backups are not looked at.
        plan: the chain; for tests, as that of an older program.
        dry_run: run everything, write nothing, and tell what would change.
        progress: is told the name of each step, how much of it is done and how much there is.
        lock_timeout: how long to wait for another process that has the state open, in seconds.
        files: the file system; None means the real one.

    Returns:
        What was found and done.

    Raises:
        UnknownShapeError: a row of a migrated family has neither the new shape nor the old one; the error has its key.
        MixedShapesError: of allowed, blocked or other networks, some are migrated and some are not.
        FamilyConflictError: ``TI database`` and ``label database`` have a key with different values.
        CorruptIndexError: a row with ids, of customers or of network tags, cannot be read; or two customers, or two
            networks, have the same id.
        MigrationFamiliesError: there is a family that no format has, or one is missing that all have.
        VersionMismatchError, UnsupportedVersionError, MarkerError, LockedError and all others: as for
            `pystate.formats.migrate`. Nothing has changed then; what it says of two exceptions holds here, too.

    Cost: reading everything, and writing everything once. Memory: both states, but for what they share.
    """
    return migrate(
        data_dir,
        backup_dir,
        plan,
        dry_run=dry_run,
        progress=progress,
        lock_timeout=lock_timeout,
        files=files,
    )
