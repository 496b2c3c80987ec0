"""pystate: an embedded, pure-Python state store.

    >>> import pystate
    >>> store = pystate.memory()
    >>> accounts = store.create_family("accounts")
    >>> accounts.put(b"alice", b"10")
    >>> accounts.get(b"alice")
    b'10'

`open` makes or opens a store in a directory, `memory` one without. A `Store` holds families: sorted maps from bytes to
bytes. Write to a `Family` directly (each write is one commit), or to several in a `Transaction`; read one consistent
state with a `View`. `Store.export` writes a copy while the store is in use, `install` makes a store of one, and
`rewrite` turns a closed store into another one in a single step. Everything raised on purpose stands below
`PystateError`.
"""

from pystate.engine.export import ExportReport, SnapshotInfo, read_snapshot
from pystate.engine.family import Family
from pystate.engine.files import File, Files
from pystate.engine.install import InstallReport, install
from pystate.engine.log_reader import FrameInfo
from pystate.engine.mapping import FamilyReader, FamilyWriter
from pystate.engine.opening import (
    list_families,
    memory,
    open,  # noqa: A004 - pystate.open is the public name
    read_metadata,
)
from pystate.engine.os_files import OsFiles
from pystate.engine.repair import RecoveryReport
from pystate.engine.rewrite import RewriteReport, RowChanges, rewrite
from pystate.engine.rewriting import Rewriting
from pystate.engine.salvage import SalvageReport, salvage
from pystate.engine.stats import StoreStats
from pystate.engine.store import Durability, Store, transact
from pystate.engine.transaction import Transaction
from pystate.engine.verify import FileReport, Problem, VerifyReport, read_log, verify
from pystate.engine.view import View
from pystate.errors import (
    ClosedError,
    ConflictError,
    CorruptionError,
    DiskFullError,
    FamilyExistsError,
    FamilyMismatchError,
    FamilyNotFoundError,
    LockedError,
    NotAStoreError,
    PystateError,
    ReadOnlyError,
    StoreFailedError,
    StoreNotFoundError,
    UnsupportedFormatError,
)

__all__ = [
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "DiskFullError",
    "Durability",
    "ExportReport",
    "Family",
    "FamilyExistsError",
    "FamilyMismatchError",
    "FamilyNotFoundError",
    "FamilyReader",
    "FamilyWriter",
    "File",
    "FileReport",
    "Files",
    "FrameInfo",
    "InstallReport",
    "LockedError",
    "NotAStoreError",
    "OsFiles",
    "Problem",
    "PystateError",
    "ReadOnlyError",
    "RecoveryReport",
    "RewriteReport",
    "Rewriting",
    "RowChanges",
    "SalvageReport",
    "SnapshotInfo",
    "Store",
    "StoreFailedError",
    "StoreNotFoundError",
    "StoreStats",
    "Transaction",
    "UnsupportedFormatError",
    "VerifyReport",
    "View",
    "install",
    "list_families",
    "memory",
    "open",
    "read_log",
    "read_metadata",
    "read_snapshot",
    "rewrite",
    "salvage",
    "transact",
    "verify",
]
