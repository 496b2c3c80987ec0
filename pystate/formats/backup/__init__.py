"""Backups of a store: whole states, made while it is in use, in a directory of their own.

    >>> import pystate
    >>> from pystate.formats import backup
    >>> with pystate.open("shop") as store:
    ...     store.family("default")[b"apple"] = b"3"
    ...     backup.create(store, "backups", keep=7).id
    1
    >>> backup.restore("shop", "backups", 1).backup.id
    1

`create` makes one, `list` and `find` tell what there is, `verify` reads every byte, `restore` makes a store of one,
`purge` removes the oldest, and `rollback` restores one together with the markers of the directories around it. From the
bottom up, each module importing only those above it::

    manifests     the names of the files of a repository, and what stands in a manifest
    repository    what is on the disk: looking, one writer at a time, removing what nobody needs
    calls         what this package offers
    rolling_back  `rollback`: a restore, and the markers
"""

from pystate.errors import (
    BackupDamagedError,
    BackupError,
    BackupNotFoundError,
    NotARepositoryError,
    RepositoryLockedError,
    RepositoryNotFoundError,
)
from pystate.formats.backup.calls import (
    BackupProblem,
    RepositoryReport,
    RestoreReport,
    create,
    find,
    list,  # noqa: A004 - pystate.formats.backup.list is the public name
    purge,
    restore,
    verify,
)
from pystate.formats.backup.repository import BackupInfo
from pystate.formats.backup.rolling_back import STORE_NAME, rollback

__all__ = [
    "STORE_NAME",
    "BackupDamagedError",
    "BackupError",
    "BackupInfo",
    "BackupNotFoundError",
    "BackupProblem",
    "NotARepositoryError",
    "RepositoryLockedError",
    "RepositoryNotFoundError",
    "RepositoryReport",
    "RestoreReport",
    "create",
    "find",
    "list",
    "purge",
    "restore",
    "rollback",
    "verify",
]
