"""Opening a store: `open`, `memory`, `list_families`.

The order for writing: look at the directory; take the lock; look again; make the store if there is none; recover, which
reads everything and changes nothing; compare the families; only then repair and remove. Whatever is refused is refused
before anything but the lock file has been touched.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from os import PathLike

from pystate.engine.commit import CommitRequest, Committer
from pystate.engine.family_state import FamilyState
from pystate.engine.files import Files, HeldLock
from pystate.engine.follower import Follower, read_committed
from pystate.engine.limits import HISTORY_BYTES, SNAPSHOT_LOG_BYTES, check_family_name, check_number
from pystate.engine.log_writer import FULL_ERRNOS, LogWriter
from pystate.engine.names import LOCK_NAME
from pystate.engine.os_files import OsFiles, after_fork_in_child
from pystate.engine.recovery import Inventory, Recovered, recover, survey
from pystate.engine.repair import (
    RecoveryReport,
    create_store,
    is_unfinished_creation,
    remove_files,
    repair_log,
    set_aside,
)
from pystate.engine.snapshots import Snapshots
from pystate.engine.state import State
from pystate.engine.store import DEFAULT_FAMILY, Durability, Store, StoreParts, check_durability, open_stores
from pystate.errors import (
    DiskFullError,
    FamilyMismatchError,
    NotAStoreError,
    ReadOnlyError,
    StoreNotFoundError,
)

__all__ = ["find_store", "list_families", "memory", "open", "store_directory"]

_CANNOT_WRITE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_ordinary_files = OsFiles()


def open(  # noqa: A001 - the public name is pystate.open
    path: str | PathLike[str],
    *,
    families: Iterable[str] | None = None,
    create: bool = True,
    create_missing_families: bool = False,
    read_only: bool = False,
    durability: Durability = "sync",
    lock_timeout: float = 0.0,
    snapshot_log_bytes: int = SNAPSHOT_LOG_BYTES,
    history_bytes: int = HISTORY_BYTES,
    files: Files | None = None,
) -> Store:
    """Open the store in a directory, and make it first if there is none.

    Arguments:
        path: the directory. It may be missing (its parent may not), empty, or a store; anything else is left alone.
        families: exactly the families of the store (``"default"`` need not be named); None opens whatever exists.
            A new store is made with the families named here.
        create: make a store where there is none.
        create_missing_families: make the families that are named but missing. Families that exist must still be named.
        read_only: open beside a writer, or where nothing can be written; nothing at all is written, not even a lock.
        durability: what a commit survives once it has returned: ``"sync"`` power loss, ``"process"`` the death of the
            process (power loss may then take the newest commits, but only ever a suffix of them).
        lock_timeout: how long to wait for another writer to close the store, in seconds.
        snapshot_log_bytes: take a snapshot when the log is larger than this and than the last snapshot.
        history_bytes: how much overwritten data to keep for open views and transactions before the oldest fail.
        files: the file system; None means the real one.

    Raises:
        StoreNotFoundError: no store there, and `create` is False or `read_only` is True; or the parent is missing.
        NotAStoreError: something else is there. FamilyMismatchError: other families than those named.
        LockedError: another opener, here or in another process, holds the store for writing.
        CorruptionError: what was durable is damaged. UnsupportedFormatError: a newer format.
        ReadOnlyError: the directory cannot be written to; open it with `read_only`.
        DiskFullError: no room to make or repair the store. OSError: the disk failed. In every case nothing is lost.
        TypeError, ValueError: an argument is not what it must be.

    Cost: reading the index of the snapshot, and the log behind it. Families are decoded when first touched.
    """
    named = _check_families(families)
    check_durability(durability)
    check_number("snapshot_log_bytes", snapshot_log_bytes, int)
    check_number("history_bytes", history_bytes, int)
    check_number("lock_timeout", lock_timeout, float)
    files = _ordinary_files if files is None else files
    directory = store_directory(files, path)
    started = files.clock()
    if read_only:
        return _open_read_only(files, directory, named, durability, history_bytes, started)
    made = _prepare_directory(files, directory, create)
    try:
        lock = files.lock(directory, LOCK_NAME, lock_timeout)
    except IsADirectoryError as error:
        raise NotAStoreError(directory, f"{LOCK_NAME} in it is not a file") from error
    except OSError as error:
        if error.errno in _CANNOT_WRITE:
            hint = "open it with read_only=True, or make it writable"
            raise ReadOnlyError(directory, f"the directory cannot be written to ({error.strerror}); {hint}") from error
        _raise_if_full(error)
        raise
    try:
        return _open_locked(
            files,
            directory,
            lock,
            named,
            create=create or made,
            create_missing=create_missing_families,
            durability=durability,
            snapshot_log_bytes=snapshot_log_bytes,
            history_bytes=history_bytes,
            started=started,
        )
    except BaseException as error:
        lock.release()
        if isinstance(error, OSError):
            _raise_if_full(error)
        raise


def memory(*, families: Iterable[str] | None = None) -> Store:
    """A store with nothing on disk: the same behaviour, gone with the process. For tests, and for what may be lost.

    Arguments:
        families: the families to make; ``"default"`` exists anyway.
    """
    names = [DEFAULT_FAMILY, *sorted(set(_check_families(families) or ()) - {DEFAULT_FAMILY})]
    made = [FamilyState(family_id, name) for family_id, name in enumerate(names, start=1)]
    state = State(sequence=0, families=made, next_family_id=len(names) + 1, history_bytes=HISTORY_BYTES)
    parts = StoreParts(None, state, "process")
    parts.committer = Committer(state, None, "(memory)", lambda: None)
    return Store(parts)


def list_families(path: str | PathLike[str], *, files: Files | None = None) -> tuple[str, ...]:
    """The names of the families of a store, sorted, without opening it for writing; beside a writer too.

    Raises:
        StoreNotFoundError, NotAStoreError, CorruptionError, UnsupportedFormatError, OSError: as for `open`.
    """
    files = _ordinary_files if files is None else files
    directory = find_store(files, store_directory(files, path))
    recovered = read_committed(files, directory)
    recovered.reader.close()
    return tuple(sorted(recovered.replay.names.values()))


def store_directory(files: Files, path: str | PathLike[str]) -> str:
    """The absolute path that `path` means.

    Raises:
        TypeError: it is not a path, or one of bytes. ValueError: it is empty or holds a NUL.
    """
    text: object = path.__fspath__() if isinstance(path, PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"a path is a str or a path object, not {type(path).__name__}")
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not a path")
    return files.absolute(text)


def find_store(files: Files, directory: str) -> str:
    """`directory`, if there is a store.

    Raises:
        StoreNotFoundError: nothing is there, or a directory without a store. NotAStoreError: no directory.
    """
    kind = files.kind(directory)
    if kind is None:
        raise StoreNotFoundError(directory)
    if kind != "directory":
        raise NotAStoreError(directory, f"a {kind}" if kind == "file" else "neither a file nor a directory")
    inventory = survey(files, directory)
    if not inventory.is_store or is_unfinished_creation(files, directory, inventory):
        raise StoreNotFoundError(directory)
    return directory


def _check_families(families: Iterable[str] | None) -> tuple[str, ...] | None:
    if families is None:
        return None
    if isinstance(families, (str, bytes)):
        raise TypeError(f"families is a list of names, not {families!r}")
    return tuple(check_family_name(name) for name in families)


def _raise_if_full(error: OSError) -> None:
    if error.errno in FULL_ERRNOS and not isinstance(error, DiskFullError):
        raise DiskFullError(error.filename or "the store", errno=error.errno) from error


def _prepare_directory(files: Files, directory: str, create: bool) -> bool:
    """Refuse what is no store and must not become one; make the directory. Return whether it was made."""
    kind = files.kind(directory)
    if kind is None:
        if not create:
            raise StoreNotFoundError(directory)
        try:
            files.make_directory(directory)
        except FileExistsError:
            pass  # another process was faster; the lock decides
        except FileNotFoundError as error:
            raise StoreNotFoundError(
                directory, "its parent directory does not exist either; make that first"
            ) from error
        return True
    if kind != "directory" or not create:
        find_store(files, directory)
    else:
        _check_empty(files, directory, survey(files, directory))
    return False


def _sync_parent(files: Files, directory: str) -> None:
    """Make the entry of the directory durable, whoever has made it: a store in a directory that is lost is lost."""
    try:
        files.sync_directory(files.parent(directory))
    except PermissionError:
        pass  # a parent that may be passed through but not read; whoever made this directory there must see to it


def _check_empty(files: Files, directory: str, inventory: Inventory) -> None:
    foreign = [name.name for name in inventory.others if name.kind == "foreign"]
    if not inventory.is_store and foreign:
        raise NotAStoreError(directory, f"a directory with {foreign[0]!r} in it")


def _open_read_only(
    files: Files,
    directory: str,
    named: tuple[str, ...] | None,
    durability: Durability,
    history_bytes: int,
    started: float,
) -> Store:
    find_store(files, directory)
    recovered = read_committed(files, directory)
    _compare_families(directory, recovered, named, create_missing=False)
    state = _state_of(recovered, history_bytes)
    parts = StoreParts(directory, state, durability)
    parts.reader = recovered.reader
    follower = [Follower(files, directory, recovered, state)]

    def refresh() -> State | None:
        if follower[0].refresh():
            return None
        again = read_committed(files, directory)
        state = _state_of(again, history_bytes)
        parts.reader = again.reader
        follower[0] = Follower(files, directory, again, state)
        return state

    parts.refresh = refresh
    parts.recovery = _report(recovered, recovered.decision.action, None, (), (), files.clock() - started)
    return Store(parts)


def _open_locked(
    files: Files,
    directory: str,
    lock: HeldLock,
    named: tuple[str, ...] | None,
    *,
    create: bool,
    create_missing: bool,
    durability: Durability,
    snapshot_log_bytes: int,
    history_bytes: int,
    started: float,
) -> Store:
    inventory = survey(files, directory)
    new = not inventory.is_store or is_unfinished_creation(files, directory, inventory)
    if new:
        if not create:
            raise StoreNotFoundError(directory)
        _check_empty(files, directory, inventory)
        _sync_parent(files, directory)
        create_store(files, directory, [DEFAULT_FAMILY, *sorted(set(named or ()) - {DEFAULT_FAMILY})])
        inventory = survey(files, directory)
    recovered = recover(files, directory, inventory)
    missing = _compare_families(directory, recovered, named, create_missing=create_missing)
    try:
        if recovered.damaged:
            set_aside(files, directory, recovered.damaged)
        position, torn_file = repair_log(files, directory, recovered, new=new)
        temporary = remove_files(files, directory, [name for name in inventory.others if name.kind == "temporary"])
        stale = remove_files(files, directory, recovered.stale)
    except BaseException:
        recovered.reader.close()
        raise
    state = _state_of(recovered, history_bytes)
    log = LogWriter(files, directory, position, lock.still_held)
    parts = StoreParts(directory, state, durability)
    parts.log, parts.lock, parts.reader = log, lock, recovered.reader
    committer = parts.committer = Committer(state, log, directory, lambda: snapshots.grown())
    snapshots = parts.snapshots = Snapshots(
        files,
        directory,
        state,
        committer,
        log,
        header=recovered.header,
        size=recovered.reader.size,
        log_bytes=snapshot_log_bytes,
    )
    try:
        if missing:
            creation = CommitRequest([(None, state.creation(missing))], sync=True)
            committer.exclusively(lambda: committer.write_alone(creation))
    except BaseException:
        log.abandon()
        recovered.reader.close()
        raise
    action = "new" if new else recovered.decision.action
    parts.recovery = _report(recovered, action, torn_file, temporary, stale, files.clock() - started)
    if snapshots.due():
        snapshots.grown()
    return Store(parts)


def _compare_families(
    directory: str,
    recovered: Recovered,
    named: tuple[str, ...] | None,
    *,
    create_missing: bool,
) -> list[str]:
    """The families to be created.

    Raises:
        FamilyMismatchError: the names do not fit; the snapshot is closed then.
    """
    if named is None:
        return []
    present, wanted = set(recovered.replay.names.values()), {DEFAULT_FAMILY, *named}
    missing, unnamed = sorted(wanted - present), sorted(present - wanted)
    if unnamed or (missing and not create_missing):
        recovered.reader.close()
        raise FamilyMismatchError(directory, missing=tuple(missing), unnamed=tuple(unnamed))
    return missing


def _state_of(recovered: Recovered, history_bytes: int) -> State:
    return State(
        sequence=recovered.end.sequence,
        families=recovered.families(),
        next_family_id=recovered.replay.next_family_id,
        history_bytes=history_bytes,
    )


def _report(
    recovered: Recovered,
    decision: str,
    torn_file: str | None,
    temporary: tuple[str, ...],
    stale: tuple[str, ...],
    seconds: float,
) -> RecoveryReport:
    return RecoveryReport(
        decision=decision,
        sequence=recovered.end.sequence,
        snapshot_sequence=recovered.header.sequence,
        generation=recovered.segment.generation,
        segments_read=len(recovered.needed),
        log_bytes=recovered.log_bytes,
        frames_replayed=recovered.frames,
        torn_bytes=len(recovered.torn),
        torn_file=torn_file,
        damaged_snapshots=tuple(name.name for name in recovered.damaged),
        temporary_files_removed=temporary,
        stale_files_removed=stale,
        seconds=seconds,
    )


def _forked() -> None:
    for store in list(open_stores):
        store._give_up_in_child()


after_fork_in_child(_forked)
