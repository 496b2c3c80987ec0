"""Opening a store: `open`, `memory`; and what can be told of one without opening it: `list_families`, `read_metadata`.

The order for writing: look at the directory; take the lock; look again; make the store if there is none; recover, which
reads everything and changes nothing; compare the families; only then repair and remove. Whatever is refused is refused
before anything but the lock file has been touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike

from pystate.engine.commit import CommitRequest, Committer
from pystate.engine.family_state import FamilyState
from pystate.engine.files import Files, HeldLock
from pystate.engine.follower import Follower, read_committed
from pystate.engine.limits import (
    HISTORY_BYTES,
    SNAPSHOT_LOG_BYTES,
    check_family_name,
    check_metadata,
    check_number,
)
from pystate.engine.log_writer import LogWriter
from pystate.engine.os_files import after_fork_in_child
from pystate.engine.places import (
    absolute_path,
    check_empty,
    find_store,
    holds_store,
    ordinary_files,
    prepare_directory,
    raise_if_full,
    sync_parent,
    take_lock,
)
from pystate.engine.recovery import Recovered, recover, survey
from pystate.engine.repair import (
    RecoveryReport,
    clear_unfinished,
    create_store,
    new_header,
    remove_files,
    repair_log,
    set_aside,
)
from pystate.engine.snapshots import Snapshots
from pystate.engine.state import State
from pystate.engine.store import DEFAULT_FAMILY, Durability, Store, StoreParts, check_durability, open_stores
from pystate.errors import FamilyMismatchError, StoreNotFoundError

__all__ = ["list_families", "memory", "open", "read_metadata"]


def open(  # noqa: A001 - the public name is pystate.open
    path: str | PathLike[str],
    *,
    families: Iterable[str] | None = None,
    create: bool = True,
    create_missing_families: bool = False,
    metadata: Mapping[str, str] | None = None,
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
        metadata: what a store that this call makes is to carry about itself, from its first moment on; see
            `Store.metadata`. A store that exists keeps its own.
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
    metadata = check_metadata(metadata)
    check_durability(durability)
    check_number("snapshot_log_bytes", snapshot_log_bytes, int)
    check_number("history_bytes", history_bytes, int)
    check_number("lock_timeout", lock_timeout, float)
    files = ordinary_files if files is None else files
    directory = absolute_path(files, path)
    started = files.clock()
    if read_only:
        return _open_read_only(files, directory, named, durability, history_bytes, started)
    made = prepare_directory(files, directory, create)
    lock = take_lock(files, directory, lock_timeout)
    try:
        return _open_locked(
            files,
            directory,
            lock,
            named,
            create=create or made,
            create_missing=create_missing_families,
            metadata=metadata,
            durability=durability,
            snapshot_log_bytes=snapshot_log_bytes,
            history_bytes=history_bytes,
            started=started,
        )
    except BaseException as error:
        lock.release()
        if isinstance(error, OSError):
            raise_if_full(error)
        raise


def memory(*, families: Iterable[str] | None = None, metadata: Mapping[str, str] | None = None) -> Store:
    """A store with nothing on disk: the same behaviour, gone with the process. For tests, and for what may be lost.

    Arguments:
        families: the families to make; ``"default"`` exists anyway.
        metadata: what the store carries about itself; see `Store.metadata`.
    """
    header = new_header(
        ordinary_files.random_bytes(16), _with_default(_check_families(families)), check_metadata(metadata)
    )
    made = [FamilyState(family_id, name) for name, family_id in header.families.items()]
    state = State(sequence=0, families=made, next_family_id=header.next_family_id, history_bytes=HISTORY_BYTES)
    parts = StoreParts(None, state, "process", header, ordinary_files)
    parts.committer = Committer(state, None, "(memory)", lambda: None)
    return Store(parts)


def list_families(path: str | PathLike[str], *, files: Files | None = None) -> tuple[str, ...]:
    """The names of the families of a store, sorted, without opening it for writing; beside a writer too.

    Raises:
        StoreNotFoundError, NotAStoreError, CorruptionError, UnsupportedFormatError, OSError: as for `open`.
    """
    files = ordinary_files if files is None else files
    directory = find_store(files, absolute_path(files, path))
    recovered = read_committed(files, directory)
    recovered.reader.close()
    return tuple(sorted(recovered.replay.names.values()))


def read_metadata(path: str | PathLike[str], *, files: Files | None = None) -> dict[str, str]:
    """The metadata of a store (see `Store.metadata`), without opening it for writing; beside a writer too.

    Raises:
        StoreNotFoundError, NotAStoreError, CorruptionError, UnsupportedFormatError, OSError: as for `open`.
    """
    files = ordinary_files if files is None else files
    directory = find_store(files, absolute_path(files, path))
    recovered = read_committed(files, directory)
    recovered.reader.close()
    return dict(recovered.header.metadata)


def _check_families(families: Iterable[str] | None) -> tuple[str, ...] | None:
    if families is None:
        return None
    if isinstance(families, (str, bytes)):
        raise TypeError(f"families is a list of names, not {families!r}")
    return tuple(check_family_name(name) for name in families)


def _with_default(named: Iterable[str] | None) -> list[str]:
    return [DEFAULT_FAMILY, *sorted(set(named or ()) - {DEFAULT_FAMILY})]


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
    parts = StoreParts(directory, state, durability, recovered.header, files)
    parts.reader = recovered.reader
    follower = [Follower(files, directory, recovered, state)]

    def refresh() -> State | None:
        if follower[0].refresh():
            return None
        again = read_committed(files, directory)
        state = _state_of(again, history_bytes)
        parts.reader, parts.header = again.reader, again.header
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
    metadata: Mapping[str, str],
    durability: Durability,
    snapshot_log_bytes: int,
    history_bytes: int,
    started: float,
) -> Store:
    inventory = survey(files, directory)
    new = not holds_store(files, directory, inventory)
    if new:
        if not create:
            raise StoreNotFoundError(directory)
        check_empty(directory, inventory)
        sync_parent(files, directory)
        # A first segment is replaced by the one that is made.
        clear_unfinished(files, directory, [name for name in inventory.segments if name.sequence != 1])
        create_store(files, directory, _with_default(named), metadata)
        inventory = survey(files, directory)
    recovered = recover(files, directory, inventory)
    missing = _compare_families(directory, recovered, named, create_missing=create_missing)
    try:
        if recovered.damaged:
            set_aside(files, directory, recovered.damaged)
        position, torn_file = repair_log(files, directory, recovered, new=new)
        if recovered.replaced:  # a crash came before the snapshot that replaces these was known to have its name
            files.sync_directory(directory)
        temporary = remove_files(files, directory, [name for name in inventory.others if name.kind == "temporary"])
        stale = remove_files(files, directory, recovered.stale)
    except BaseException:
        recovered.reader.close()
        raise
    state = _state_of(recovered, history_bytes)
    log = LogWriter(files, directory, position, lock.still_held)
    parts = StoreParts(directory, state, durability, recovered.header, files)
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
