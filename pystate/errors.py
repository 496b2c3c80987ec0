"""Every exception that pystate raises on purpose.

One root, :class:`PystateError`. Each class is also the built-in exception that a Python reader would catch, carries
what it knows as attributes, builds its text from them, and can be pickled and copied. What a caller can do decides
the class:

===========================  ==========================================================================
retry the transaction        :class:`ConflictError`
wait, or leave               :class:`LockedError`
make room, then try again    :class:`DiskFullError`
reopen the store             :class:`StoreFailedError`, :class:`ClosedError`
restore, or salvage          :class:`CorruptionError`
upgrade pystate              :class:`UnsupportedFormatError`
upgrade the program          :class:`UnsupportedVersionError`
put content and markers      :class:`VersionMismatchError`
right by hand
fix the call                 every other one, and the built-in ``TypeError`` and ``ValueError``
===========================  ==========================================================================

This module imports nothing of pystate, so every layer may import it.
"""

from __future__ import annotations

import errno as _errno
from datetime import datetime
from typing import Any

__all__ = [
    "BackupDamagedError",
    "BackupError",
    "BackupNotFoundError",
    "ClosedError",
    "ConflictError",
    "ContentVersionError",
    "ContractMismatchError",
    "ControlCharacterError",
    "CorruptIndexError",
    "CorruptionError",
    "DecodeError",
    "DeletionResultExistsError",
    "DiskFullError",
    "EffectIdentityError",
    "EffectInputError",
    "EffectInternalError",
    "EffectNotFoundError",
    "EffectOutcomeError",
    "EffectRuntimeError",
    "EffectStoreError",
    "EmptyIdentityError",
    "EntryChangedError",
    "FamilyConflictError",
    "FamilyExistsError",
    "FamilyMismatchError",
    "FamilyNotFoundError",
    "HostnameInUseError",
    "IdOutOfRangeError",
    "IdentityError",
    "IdentityTooLongError",
    "IndexFullError",
    "InputMismatchError",
    "InputPayloadError",
    "InvalidConfigError",
    "InvalidEffectIdError",
    "InvalidRecordError",
    "InvalidTransitionError",
    "KeyExistsError",
    "KindMismatchError",
    "LeaseHeldError",
    "LeaseLostError",
    "LockedError",
    "MalformedError",
    "MarkerError",
    "MarkerNotFoundError",
    "MarkerParseError",
    "MarkerReadError",
    "MarkerWriteError",
    "MigrationError",
    "MigrationFamiliesError",
    "MixedShapesError",
    "NoSuchAgentError",
    "NoSuchDeletionResultError",
    "NoSuchEffectError",
    "NoSuchEntryError",
    "NoSuchIdError",
    "NotARepositoryError",
    "NotAStoreError",
    "NotCompensableError",
    "NotJsonError",
    "NotRegisteredError",
    "OutputError",
    "OutputPayloadError",
    "OutputUnavailableError",
    "PayloadError",
    "PayloadMigrationError",
    "PolicyViolationError",
    "PystateError",
    "ReadOnlyError",
    "RepositoryLockedError",
    "RepositoryNotFoundError",
    "SlotTakenError",
    "StoreFailedError",
    "StoreNotFoundError",
    "StoredInputError",
    "UnknownShapeError",
    "UnsupportedFormatError",
    "UnsupportedPayloadVersionError",
    "UnsupportedVersionError",
    "ValueMismatchError",
    "VersionConflictError",
    "VersionError",
    "VersionMismatchError",
]


def _restore(kind: type[PystateError], attributes: dict[str, Any]) -> PystateError:
    """Rebuild a pickled or copied error without running its constructor."""
    error = kind.__new__(kind)
    for name, value in attributes.items():
        setattr(error, name, value)  # not __dict__: OSError keeps errno elsewhere
    error.args = (attributes["message"],)
    return error


class PystateError(Exception):
    """The root of all errors of pystate.

    Attributes:
        message: the whole text, as ``str(error)`` gives it.
    """

    message: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = self.__dict__.copy()
        if isinstance(self, OSError):
            attributes["errno"] = self.errno
        return (_restore, (type(self), attributes))


class ConflictError(PystateError, RuntimeError):
    """Something that a transaction read has changed since; nothing of it was written.

    Run the transaction again from its beginning; :meth:`pystate.Store.transact` does that by itself.

    Attributes:
        family: the name of the family, or None when `too_old` is set.
        key: the key that was read (or found absent) and has changed, or None.
        range: the ``(start, stop)`` that was scanned and has changed, or None; either bound may be None (unbounded).
        read_sequence: the sequence of the state that was read.
        commit_sequence: the sequence of a commit that changed it since; for `too_old` the commit at which the old
            values were given up.
        too_old: the transaction or view was outrun: more was overwritten since it began than the history limit
            allows to keep (``stats().history_bytes_max``). Begin a new one.
    """

    def __init__(
        self,
        *,
        family: str | None = None,
        key: bytes | None = None,
        range: tuple[bytes | None, bytes | None] | None = None,  # noqa: A002
        read_sequence: int,
        commit_sequence: int,
        too_old: bool = False,
    ) -> None:
        if too_old:
            what = (
                f"the state as of sequence {read_sequence} is no longer kept (given up at commit {commit_sequence}); "
                "begin a new transaction or view, and keep it open for a shorter time"
            )
        else:
            read = f"key {key!r}" if key is not None else f"range {range!r}"
            what = (
                f"{read} of family {family!r} was read as of sequence {read_sequence} and changed by commit "
                f"{commit_sequence}; run the transaction again"
            )
        super().__init__(f"Resource busy: {what}")
        self.family = family
        self.key = key
        self.range = range
        self.read_sequence = read_sequence
        self.commit_sequence = commit_sequence
        self.too_old = too_old


class LockedError(PystateError, TimeoutError):
    """Another opener holds the store for writing.

    Attributes:
        path: the directory of the store.
        pid: the process id of the holder, or None when it is not known.
        host: the name of the host the holder runs on, or None when it is not known.
    """

    def __init__(self, path: str, *, pid: int | None = None, host: str | None = None, reason: str = "") -> None:
        holder = "another opener" if pid is None else f"process {pid}" + (f" on host {host}" if host else "")
        super().__init__(
            f"{path}: the store is held for writing by {holder}{reason}; close it there, wait with lock_timeout=, "
            "or open it here with read_only=True"
        )
        self.path = path
        self.pid = pid
        self.host = host


class CorruptionError(PystateError, ValueError):
    """Data that had been acknowledged as durable is damaged or missing. No file was changed.

    Restore a backup, or copy out what is intact with :func:`pystate.salvage`.

    Attributes:
        path: the damaged file (for a missing file, the path where it was expected).
        offset: where in the file, in bytes, or None when the whole file is meant.
        expected: what was expected there.
        found: what was found there.
        sequence: the last commit known to be intact before the damage, or None.
    """

    def __init__(
        self, path: str, *, offset: int | None = None, expected: str, found: str, sequence: int | None = None
    ) -> None:
        place = path if offset is None else f"{path}: offset {offset}"
        intact = "" if sequence is None else f"; the last intact commit before it is {sequence}"
        super().__init__(
            f"{place}: expected {expected}, found {found}{intact}. No file was changed: restore a backup, or copy out "
            "what is intact with pystate.salvage(path, destination)"
        )
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found
        self.sequence = sequence


class StoreFailedError(PystateError, OSError):
    """A write, sync or rename failed, and the store has refused every write since; reads go on.

    For the commits in flight at that moment the outcome is unknown: close the store and open it again to learn it.

    Attributes:
        path: the directory of the store.
        cause: the text of the first failure.
        unknown: True when this very commit was in flight, so that it may or may not be durable; False when it was
            refused before anything of it was written.
        errno: the error number of the first failure, if it had one.
    """

    def __init__(self, path: str, cause: str, *, unknown: bool, errno: int | None = None) -> None:
        outcome = "the outcome of this commit is unknown" if unknown else "nothing of this commit was written"
        super().__init__(f"{path}: the store has failed ({cause}); {outcome}; close the store and open it again")
        self.path = path
        self.cause = cause
        self.unknown = unknown
        self.errno = errno


class DiskFullError(PystateError, OSError):
    """The disk or the quota is full. The commit was undone, nothing of it is left, and the store stays usable.

    Attributes:
        path: the file that could not grow.
        errno: ``ENOSPC``, ``EDQUOT`` or ``EFBIG``.
    """

    def __init__(self, path: str, *, errno: int = _errno.ENOSPC) -> None:
        super().__init__(
            f"{path}: no space left to write ({_errno.errorcode.get(errno, errno)}); nothing of this commit was kept; "
            "make room and try again"
        )
        self.path = path
        self.errno = errno


class ReadOnlyError(PystateError, PermissionError):
    """A write through a store, or a transaction of a store, that is for reading only.

    Attributes:
        path: the directory of the store.
    """

    def __init__(
        self, path: str, what: str = "the store was opened with read_only=True; open it without to write"
    ) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path


class ClosedError(PystateError, ValueError):
    """A store, view, transaction or family was used after its end.

    Attributes:
        what: what was used: ``"store"``, ``"view"``, ``"transaction"`` ...
        hint: how it ended, and what to do.
    """

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"this {what} {hint}")
        self.what = what
        self.hint = hint


class StoreNotFoundError(PystateError, FileNotFoundError):
    """There is no store at this path.

    Attributes:
        path: the directory that was given.
    """

    def __init__(
        self, path: str, hint: str = "check the path, or let pystate.open make one (create=True, not read_only)"
    ) -> None:
        super().__init__(f"{path}: no store here; {hint}")
        self.path = path


class NotAStoreError(PystateError, ValueError):
    """The path holds something that is not a store; it was left as it is.

    Attributes:
        path: the path that was given.
        found: what is there instead.
    """

    def __init__(self, path: str, found: str) -> None:
        super().__init__(f"{path}: not a store: {found}; give a store, or a path that is empty or does not exist")
        self.path = path
        self.found = found


class FamilyExistsError(PystateError, ValueError):
    """A family of this name exists already.

    Attributes:
        family: its name.
    """

    def __init__(self, family: str) -> None:
        super().__init__(f"family {family!r} exists already; use store.family({family!r}), or drop it first")
        self.family = family


class FamilyNotFoundError(PystateError, KeyError):
    """No family of this name exists (or it has been dropped).

    Attributes:
        family: the name that was asked for.
        families: the names that exist.
    """

    def __init__(self, family: str, families: tuple[str, ...]) -> None:
        super().__init__(
            f"no family {family!r}; there are {', '.join(map(repr, families)) or 'none'}; make it with "
            "store.create_family(name)"
        )
        self.family = family
        self.families = families


class FamilyMismatchError(PystateError, ValueError):
    """The families given to :func:`pystate.open` are not exactly the families on disk. Nothing was changed.

    Attributes:
        path: the directory of the store.
        missing: named in the call, not on disk.
        unnamed: on disk, not named in the call.
    """

    def __init__(self, path: str, *, missing: tuple[str, ...], unnamed: tuple[str, ...]) -> None:
        parts = []
        if missing:
            parts.append(f"missing on disk: {', '.join(map(repr, missing))} (create_missing_families=True makes them)")
        if unnamed:
            parts.append(f"on disk but not named: {', '.join(map(repr, unnamed))} (name them, or pass families=None)")
        super().__init__(f"{path}: the families do not match: {'; '.join(parts)}")
        self.path = path
        self.missing = missing
        self.unnamed = unnamed


class UnsupportedFormatError(PystateError, ValueError):
    """A file has a format version that this pystate does not know. It was left as it is.

    Attributes:
        path: the file.
        found: the format version in the file.
        supported: the newest format version that this pystate reads.
    """

    def __init__(self, path: str, *, found: int, supported: int) -> None:
        super().__init__(
            f"{path}: format version {found}, but this pystate reads up to {supported}; upgrade pystate to open it"
        )
        self.path = path
        self.found = found
        self.supported = supported


class DecodeError(PystateError, ValueError):
    """A row cannot be read as a record of its table. It was left as it is.

    Attributes:
        family: the name of the family.
        key: the key of the row.
        kind: the name of the record type that was expected.
        reason: what is wrong with it.
    """

    def __init__(self, *, family: str, key: bytes, kind: str, reason: str) -> None:
        super().__init__(
            f"family {family!r}, key {key!r}: no {kind}: {reason}; delete the row, or read it with the version that "
            "wrote it"
        )
        self.family = family
        self.key = key
        self.kind = kind
        self.reason = reason


class InvalidRecordError(PystateError, ValueError):
    """A record cannot be stored: it could not be read again as it is. Nothing was written.

    Attributes:
        family: the name of the family that it was meant for.
        kind: the name of its type.
        reason: what is wrong with it; names the field.
    """

    def __init__(self, *, family: str, kind: str, reason: str) -> None:
        super().__init__(f"family {family!r}: this {kind} cannot be stored: {reason}")
        self.family = family
        self.kind = kind
        self.reason = reason


class KeyExistsError(PystateError, ValueError):
    """There is a record under this key already. Nothing was written.

    Attributes:
        family: the name of the family.
        key: the key of the row.
    """

    def __init__(self, *, family: str, key: bytes, hint: str = "update it, or choose another key") -> None:
        super().__init__(f"family {family!r}, key {key!r}: exists already; {hint}")
        self.family = family
        self.key = key


class NoSuchEntryError(PystateError, KeyError):
    """There is no record under this key. Nothing was written.

    Attributes:
        family: the name of the family.
        key: the key of the row.
    """

    def __init__(self, *, family: str, key: bytes, hint: str = "insert it, or read again what is there") -> None:
        super().__init__(f"family {family!r}, key {key!r}: no such record; {hint}")
        self.family = family
        self.key = key


class ValueMismatchError(PystateError, ValueError):
    """The stored record is not the one that the caller expected to replace. Nothing was written.

    Attributes:
        family: the name of the family.
        key: the key of the row.
    """

    def __init__(self, *, family: str, key: bytes) -> None:
        super().__init__(f"family {family!r}, key {key!r}: the stored record is another one; read it again and decide")
        self.family = family
        self.key = key


class SlotTakenError(PystateError, ValueError):
    """Another record holds the slot of a unique index. Nothing was written.

    Attributes:
        family: the name of the family.
        index: the name of the index.
        slot: the index's fields and their values.
        key: the key of the record that was refused.
        holder: the key of the record that holds the slot.
    """

    def __init__(self, *, family: str, index: str, slot: dict[str, Any], key: bytes, holder: bytes) -> None:
        what = ", ".join(f"{field} {value!r}" for field, value in slot.items())
        super().__init__(
            f"family {family!r}, index {index!r}: {what} is held by {holder!r}, so {key!r} cannot have it; wait for "
            "that one to let go, or change it"
        )
        self.family = family
        self.index = index
        self.slot = slot
        self.key = key
        self.holder = holder


class InvalidConfigError(PystateError, ValueError):
    """The text is no configuration: not a TOML document, or not text that a store can hold.

    Attributes:
        reason: what is wrong with it, and where.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a configuration: {reason}; give the text of a TOML document")
        self.reason = reason


class DeletionResultExistsError(PystateError, ValueError):
    """The deletion job of this customer has a result for this service, or for this service and host, already.

    Nothing was written.

    Attributes:
        customer_id: of the job.
        service: the name of the service, as text.
        host_fqdns: the hosts of the result that was refused.
    """

    def __init__(self, *, customer_id: int, service: str, host_fqdns: tuple[str, ...]) -> None:
        super().__init__(
            f"customer {customer_id}: the deletion job has a result of {service} for {', '.join(host_fqdns)} already; "
            "use update_service to change it"
        )
        self.customer_id = customer_id
        self.service = service
        self.host_fqdns = host_fqdns


class NoSuchDeletionResultError(PystateError, KeyError):
    """The deletion job of this customer has no result for this service, or for this service and host.

    Nothing was written.

    Attributes:
        customer_id: of the job.
        service: the name of the service, as text.
        host_fqdns: the hosts of the result that was refused.
    """

    def __init__(self, *, customer_id: int, service: str, host_fqdns: tuple[str, ...]) -> None:
        super().__init__(
            f"customer {customer_id}: the deletion job has no result of {service} for {', '.join(host_fqdns)}; "
            "use add_service to add it"
        )
        self.customer_id = customer_id
        self.service = service
        self.host_fqdns = host_fqdns


class HostnameInUseError(PystateError, ValueError):
    """Another node has this hostname, in its profile or in the draft of that. Nothing was written.

    Attributes:
        hostname: the name.
        node_id: of the node that has it.
        node_name: of that node.
    """

    def __init__(self, *, hostname: str, node_id: int, node_name: str) -> None:
        super().__init__(
            f"Hostname '{hostname}' is already in use by node {node_id} ({node_name!r}); choose another one, or change "
            "that node first"
        )
        self.hostname = hostname
        self.node_id = node_id
        self.node_name = node_name


class NoSuchAgentError(PystateError, KeyError):
    """No node has this hostname in its profile, or the node that has it has no such agent. Nothing was written.

    Attributes:
        hostname: the name.
        agent_key: of the agent.
        node_id: of the node with this hostname; None: there is no such node.
    """

    def __init__(self, *, hostname: str, agent_key: str, node_id: int | None) -> None:
        if node_id is None:
            text = f"no node has the hostname {hostname!r} in its profile, so its agent {agent_key!r} cannot be found"
        else:
            text = f"node {node_id} with the hostname {hostname!r} has no agent {agent_key!r}"
        super().__init__(f"{text}; read again what is there")
        self.hostname = hostname
        self.agent_key = agent_key
        self.node_id = node_id


class CorruptIndexError(DecodeError):
    """The row with the ids of an indexed table or set is damaged, or not what the other rows say. Nothing was written.

    Attributes:
        family: the name of the family; empty for an index that was not read from one.
        key: the key of that row.
        kind: ``"KeyIndex"``.
        reason: what is wrong with it.
    """

    def __init__(self, *, family: str, key: bytes, reason: str) -> None:
        hint = "check() lists what is wrong; restore a backup, or call rebuild_indexes() if it is that of a table"
        PystateError.__init__(self, f"{_place(family, key)}: the index of ids is damaged: {reason}; {hint}")
        self.family = family
        self.key = key
        self.kind = "KeyIndex"
        self.reason = reason


class EntryChangedError(PystateError, ValueError):
    """The stored record is not as the caller described the old one. Nothing was written.

    Attributes:
        family: the name of the family.
        key: the key of the row.
        id: of the record.
    """

    def __init__(self, *, family: str, key: bytes, id: int) -> None:  # noqa: A002
        super().__init__(
            f"family {family!r}, id {id}, key {key!r}: the stored record is not what `old` says; read it again and "
            "decide"
        )
        self.family = family
        self.key = key
        self.id = id


class IdOutOfRangeError(PystateError, IndexError):
    """No id as large as this one was ever given out here. Nothing was written.

    Attributes:
        family: the name of the family; empty for an index that was not read from one.
        key: the key of the row with the ids.
        id: the id that was asked for.
    """

    def __init__(self, *, family: str, key: bytes, id: int, slots: int) -> None:  # noqa: A002
        given = f"ids up to {slots - 1} were given out" if slots else "no id was given out yet"
        super().__init__(f"{_place(family, key)}: id {id} is out of range: {given}; check where the id comes from")
        self.family = family
        self.key = key
        self.id = id


class IndexFullError(PystateError, OverflowError):
    """There are no more ids. Nothing was written.

    Attributes:
        family: the name of the family; empty for an index that was not read from one.
        key: the key of the row with the ids.
    """

    def __init__(self, *, family: str, key: bytes) -> None:
        super().__init__(f"{_place(family, key)}: every id is in use; remove entries, or use another table")
        self.family = family
        self.key = key


class NoSuchIdError(PystateError, KeyError):
    """The id is free or deactivated. Nothing was written.

    Attributes:
        family: the name of the family; empty for an index that was not read from one.
        key: the key of the row with the ids.
        id: the id that was asked for.
    """

    def __init__(self, *, family: str, key: bytes, id: int) -> None:  # noqa: A002
        super().__init__(f"{_place(family, key)}: nothing has id {id} now; read again what is there")
        self.family = family
        self.key = key
        self.id = id


def _place(family: str, key: bytes) -> str:
    """Where an index of ids stands, in words."""
    if not family:
        return "key index"
    return f"family {family!r}, key {key!r}" if key else f"family {family!r}"


class VersionError(PystateError, ValueError):
    """A text is not a semantic version, or not a requirement on versions. Nothing was done with it.

    Attributes:
        text: the text.
        what: what it should be: ``"version"`` or ``"requirement"``.
        problem: what is wrong with it.
    """

    def __init__(self, text: str, problem: str, *, what: str = "version") -> None:
        shape = "major.minor.patch[-pre][+build], as 0.47.0-alpha.2" if what == "version" else ">=0.43.0,<0.44.0"
        shown = repr(text) if len(text) <= 300 else f"{text[:300]!r}..."
        super().__init__(f"{shown} is not a {what}: {problem}; write it like {shape}")
        self.text = text
        self.what = what
        self.problem = problem


class MarkerError(PystateError):
    """The marker of a directory, its file ``VERSION``, cannot be read or written: the root of the errors about it.

    Attributes:
        path: the file.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class MarkerReadError(MarkerError, OSError):
    """The disk, or what stands in its place, does not let a marker be read. No file was changed.

    Attributes:
        path: the file.
        cause: why not.
        errno: the error number, if there was one.
    """

    def __init__(self, path: str, cause: str, *, errno: int | None = None, hint: str = "make it readable") -> None:
        super().__init__(path, f"cannot open VERSION: {cause}; {hint}")
        self.cause = cause
        self.errno = errno


class MarkerNotFoundError(MarkerReadError, FileNotFoundError):
    """A directory has no marker, or does not exist.

    Attributes:
        path: the file that is missing.
        found: what the directory holds instead, one name of it, so that it cannot be taken for a new one; or None when
            nobody has looked.
    """

    def __init__(self, path: str, *, found: str | None = None) -> None:
        cause = "there is none" if found is None else f"there is none, but the directory holds {found!r}"
        hint = "if its format is known, say it with pystate.formats.write_version_marker(directory, version)"
        super().__init__(path, cause, errno=_errno.ENOENT, hint=hint)
        self.found = found


class MarkerParseError(MarkerError, ValueError):
    """A marker holds something else than exactly one version. It was left as it is.

    Attributes:
        path: the file.
        found: its first bytes.
        problem: what is wrong with them.
    """

    def __init__(self, path: str, *, found: bytes, problem: str) -> None:
        super().__init__(
            path,
            f"cannot parse VERSION: expected exactly the text of a version, found {found[:80]!r}: {problem}; if the "
            "format of the directory is known, say it with pystate.formats.write_version_marker(directory, version)",
        )
        self.found = found
        self.problem = problem


class MarkerWriteError(MarkerError, OSError):
    """A marker could not be written. Do away with the cause, and make the same call again.

    Attributes:
        path: the file.
        role: which directory it was, of two: ``"data directory"`` or ``"backup directory"``; empty for a single one.
        version: what was to be written.
        cause: what failed.
        replaced: True: the marker holds `version`, but power loss may still undo that. False: it is as it was.
        errno: the error number of what failed, if there was one.
    """

    def __init__(
        self, path: str, cause: str, *, version: str, replaced: bool, role: str = "", errno: int | None = None
    ) -> None:
        marker = f"the {role} VERSION" if role else "VERSION"
        state = "it holds that now, but power loss may undo it" if replaced else "it is as it was"
        super().__init__(
            path, f"cannot write {version} to {marker}: {cause}; {state}; do away with the cause, and call again"
        )
        self.role = role
        self.version = version
        self.cause = cause
        self.replaced = replaced
        self.errno = errno


class BackupError(PystateError):
    """The root of the errors about backups. The store in question is as it was, unless the class says otherwise.

    Attributes:
        repository: the directory of the backups.
    """

    def __init__(self, repository: str, message: str) -> None:
        PystateError.__init__(self, message)  # not super(): some of those below are another error of pystate, too
        self.repository = repository


class RepositoryNotFoundError(BackupError, FileNotFoundError):
    """There is no directory where the backups should be, or, for a new one, where it should be made."""

    def __init__(self, repository: str, hint: str = "check the path, or make a first backup there") -> None:
        super().__init__(repository, f"{repository}: no backups here; {hint}")


class NotARepositoryError(BackupError, ValueError):
    """The path holds something that is no repository of backups; it was left as it is.

    Attributes:
        found: what is there instead.
    """

    def __init__(self, repository: str, found: str) -> None:
        super().__init__(
            repository,
            f"{repository}: not a repository of backups: {found}; give one, or a path that is empty or does not exist",
        )
        self.found = found


class RepositoryLockedError(BackupError, LockedError):
    """Somebody else makes or removes backups in this repository at the moment. Listing and restoring need no lock.

    Attributes:
        path: the repository, too.
        pid, host: of the holder, as in `LockedError`.
    """

    def __init__(self, repository: str, *, pid: int | None = None, host: str | None = None) -> None:
        holder = "somebody else" if pid is None else f"process {pid}" + (f" on host {host}" if host else "")
        BackupError.__init__(
            self,
            repository,
            f"{repository}: backups are being made or removed here by {holder}; wait with lock_timeout=, or try later",
        )
        self.path = repository
        self.pid = pid
        self.host = host


class BackupNotFoundError(BackupError, KeyError):
    """The repository has no backup with this id, or no backup at all.

    Attributes:
        id: the id that was asked for, or None for the newest.
        ids: those that there are, ascending.
    """

    def __init__(self, repository: str, *, id: int | None, ids: tuple[int, ...]) -> None:  # noqa: A002
        there = f"there are {', '.join(map(str, ids))}" if ids else "there is none"
        super().__init__(repository, f"{repository}: no backup{'' if id is None else f' {id}'}; {there}")
        self.id = id
        self.ids = ids


class BackupDamagedError(BackupError, CorruptionError):
    """A backup is damaged: it was complete once, and is not any more. Nothing was restored from it.

    Attributes:
        id: of the backup.
        path, offset, expected, found: where, and what is wrong, as in `CorruptionError`; `sequence` is None.
    """

    def __init__(
        self,
        repository: str,
        path: str,
        *,
        id: int,  # noqa: A002
        offset: int | None = None,
        expected: str,
        found: str,
    ) -> None:
        place = path if offset is None else f"{path}: offset {offset}"
        BackupError.__init__(
            self,
            repository,
            f"{place}: backup {id} is damaged: expected {expected}, found {found}. Nothing was restored from it: take "
            "another one; pystate.formats.backup.list(repository) has those that can be read",
        )
        self.id = id
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found
        self.sequence = None


class MigrationError(PystateError):
    """A migration was refused, or stopped by what it found: the root of the errors about it. Nothing was changed."""


class VersionMismatchError(MigrationError, ValueError):
    """The markers of two directories, or the markers and the content, have versions that no crash explains.

    If a backup was restored, say which version it is of with :func:`pystate.formats.write_version_markers`.

    Attributes:
        database: the version in the marker of the data directory; that of the program, if the directory is new.
        backup: the same of the backup directory.
        content: the version that the content itself says it has, or None if it says nothing.
    """

    def __init__(self, *, database: str, backup: str, content: str | None) -> None:
        if database != backup:
            what = f"mismatched database version {database} and backup version {backup}"
            if content is not None:
                what += f"; the content is of version {content}"
        else:
            what = f"mismatched content of version {content} and version markers of {database}"
        super().__init__(
            f"{what}. Nothing was changed: find out which version the content is of, and say it with "
            "pystate.formats.write_version_markers(data_dir, backup_dir, version)"
        )
        self.database = database
        self.backup = backup
        self.content = content


class UnsupportedVersionError(MigrationError, ValueError):
    """The content has a version that this program can neither read nor migrate: too old, or newer than itself.

    Attributes:
        found: the version.
        supported: the version of the program.
        where: what says so: ``"marker"`` or ``"content"``.
    """

    def __init__(self, *, found: str, supported: str, where: str) -> None:
        super().__init__(
            f"migration from {found} is not supported: so says the {where}, and this program is of version "
            f"{supported}. Nothing was changed: run a program that knows {found}, or restore a backup that this one "
            "knows, with its version markers"
        )
        self.found = found
        self.supported = supported
        self.where = where


class ContentVersionError(MigrationError, ValueError):
    """What a store says about the version of its content is no version. It was left as it is.

    Attributes:
        path: of the store.
        found: what it says.
        problem: what is wrong with that.
    """

    def __init__(self, path: str, *, found: str, problem: str) -> None:
        super().__init__(
            f"{path}: the metadata 'format' is {found!r}, which is no version: {problem}; it is meant for the version "
            "of the content, so write that there with pystate.rewrite"
        )
        self.path = path
        self.found = found
        self.problem = problem


class MigrationFamiliesError(MigrationError, ValueError):
    """The families are not those that a migration, or a step of it, expects or has to leave.

    Attributes:
        where: of what: a step, by its name, or the content of a version.
        missing: families that should be there.
        unexpected: families that should not.
    """

    def __init__(self, where: str, *, missing: tuple[str, ...] = (), unexpected: tuple[str, ...] = ()) -> None:
        parts = [
            f"{what} {', '.join(map(repr, names))}"
            for what, names in (("missing:", missing), ("not expected:", unexpected))
            if names
        ]
        super().__init__(f"{where}: wrong families; {'; '.join(parts)}. Nothing was changed")
        self.where = where
        self.missing = missing
        self.unexpected = unexpected


class FamilyConflictError(MigrationError, ValueError):
    """A family cannot be merged into another one: both have a key, with different values.

    Attributes:
        old: the family that should go.
        new: the family that should have everything.
        key: the first such key.
        count: how many there are.
    """

    def __init__(self, *, old: str, new: str, key: bytes, count: int) -> None:
        more = f", and {count - 1} more," if count > 1 else ""
        super().__init__(
            f"families {old!r} and {new!r}: key {key.hex()}{more} has another value in each, so that one cannot be "
            "merged into the other. Nothing was changed: decide which value is right, and delete the other"
        )
        self.old = old
        self.new = new
        self.key = key
        self.count = count


class UnknownShapeError(MigrationError, ValueError):
    """A value has neither the present shape nor the previous one, so that it cannot be migrated.

    Attributes:
        family: the name of the family.
        key: the key of the row.
        kind: what kind of record it should be.
        current: why it has not the present shape.
        previous: why it has not the previous one.
    """

    def __init__(self, *, family: str, key: bytes, kind: str, current: str, previous: str) -> None:
        super().__init__(
            f"family {family!r}, key {key.hex()}: no {kind} of a known shape; current schema error: {current}; "
            f"previous schema error: {previous}. Nothing was changed: repair or delete the row, or migrate with the "
            "version that wrote it"
        )
        self.family = family
        self.key = key
        self.kind = kind
        self.current = current
        self.previous = previous


class MixedShapesError(MigrationError, ValueError):
    """Some rows of a family have the present shape and some have not, where only all or none can be migrated.

    Attributes:
        family: the name of the family.
        current: the number of rows with the present shape.
        others: the number of the others.
        key: the first of the others.
    """

    def __init__(self, *, family: str, current: int, others: int, key: bytes) -> None:
        super().__init__(
            f"family {family!r}: a mix of shapes: {current} rows have the present one, and {others} have not, the "
            f"first of them with the key {key.hex()}. Nothing was changed: repair or delete what does not belong there"
        )
        self.family = family
        self.current = current
        self.others = others
        self.key = key


class MalformedError(PystateError, ValueError):
    """A stored or handed-over value does not have the shape that is read; nothing was changed.

    Attributes:
        what: what was read: ``"effect record"``, ``"execution contract"`` ...
        problem: what is wrong with it, and where in it.
    """

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}; check what wrote it, or upgrade pystate if a newer one did")
        self.what = what
        self.problem = problem


class IdentityError(PystateError, ValueError):
    """A name, a key or an id that is not allowed.

    Attributes:
        what: ``"effect name"``, ``"logical key"``, ``"effect id"`` or ``"idempotency key"``.
    """

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")
        self.what = what


class EmptyIdentityError(IdentityError):
    """A name or a key without a character."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "empty; give at least one character")


class IdentityTooLongError(IdentityError):
    """A name or a key with too many bytes.

    Attributes:
        len: how many bytes it has in UTF-8.
        max: how many are allowed.
    """

    def __init__(self, what: str, len: int, max: int) -> None:  # noqa: A002
        super().__init__(what, f"{len} bytes in UTF-8, and at most {max} are allowed; shorten it")
        self.len = len
        self.max = max


class ControlCharacterError(IdentityError):
    """A name or a key with a control character, or with one that UTF-8 cannot hold (a lone surrogate)."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "holds a control character or a lone surrogate; take it out")


class InvalidEffectIdError(IdentityError):
    """A text that is not a hyphenated UUID.

    Attributes:
        text: what was given.
    """

    def __init__(self, what: str, text: str) -> None:
        super().__init__(
            what, f"{text!r} is not a hyphenated UUID such as 018bcfe5-6800-7000-8000-000000000000; give the whole id"
        )
        self.text = text


# Effects: what the rules of a record refuse. The record is as it was, and nothing of the call was stored.


class EffectStoreError(PystateError):
    """An operation on an effect record was refused; the record, its events and its lease are as they were.

    Attributes:
        id: the effect, as text; None where a rule was asked without a record.
    """

    def __init__(self, message: str, id: str | None) -> None:  # noqa: A002
        super().__init__(message)
        self.id = id


class EffectNotFoundError(EffectStoreError, KeyError):
    """There is no effect with this id: it was never recorded here, or it has been pruned."""

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(f"no effect {id}; check the id, or whether it has been pruned", id)


class InvalidTransitionError(EffectStoreError, ValueError):
    """The transition is not legal from this status, or a doubt forbids it.

    Attributes:
        from_status: the status of the record (an `EffectStatus`).
        transition: the one that was asked for (a `Transition`).
    """

    def __init__(
        self,
        from_status: str,
        transition: str,
        *,
        id: str | None = None,  # noqa: A002
        reason: str = "read its status, and take a transition that leads on from there",
    ) -> None:
        effect = "an effect" if id is None else f"effect {id}"
        super().__init__(f"{effect} that is {from_status} cannot take the transition {transition}: {reason}", id)
        self.from_status = from_status
        self.transition = transition


class VersionConflictError(EffectStoreError, RuntimeError):
    """The record has changed since the caller read it.

    Attributes:
        expected: the version that the caller had read.
        actual: the version of the record.
    """

    def __init__(self, id: str, expected: int, actual: int) -> None:  # noqa: A002
        super().__init__(
            f"effect {id} has version {actual}, and the request was made for version {expected}; read the record and "
            "decide again",
            id,
        )
        self.expected = expected
        self.actual = actual


class LeaseHeldError(EffectStoreError, RuntimeError):
    """Somebody holds a live lease on the effect, and the call did not come with it.

    Attributes:
        owner: the worker that holds it.
        expires_at: when it ends unless it is renewed.
    """

    def __init__(self, id: str, owner: str, expires_at: datetime) -> None:  # noqa: A002
        super().__init__(
            f"effect {id} is leased by {owner!r} until {expires_at.isoformat()}; wait until it is released or has "
            "expired",
            id,
        )
        self.owner = owner
        self.expires_at = expires_at


class LeaseLostError(EffectStoreError, RuntimeError):
    """The lease that came with the call has expired, was released or taken over, or is of another effect.

    Stop the work on the effect: its result can no longer be recorded with this lease.
    """

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(
            f"the lease on effect {id} is no longer live; stop working on it, and acquire a new lease to go on", id
        )


# Effects: payloads


class PayloadError(PystateError, ValueError):
    """A payload (an input, an output, the payload of an event) cannot be stored or read."""


class NotJsonError(PayloadError):
    """A payload holds something that JSON, or the store, has no form for.

    Attributes:
        what: which payload: ``"input"``, ``"output"``, ``"payload"`` ...
        path: where in it, such as ``$.items[2].price``.
        problem: what stands there.
    """

    def __init__(self, what: str, path: str, problem: str) -> None:
        super().__init__(
            f"{what}: {problem} at {path}; give None, bool, int, float, str, and lists and dicts of these (with text "
            "as keys)"
        )
        self.what = what
        self.path = path
        self.problem = problem


class UnsupportedPayloadVersionError(PayloadError):
    """A payload was stored under a schema version that the reader has no way from.

    Attributes:
        stored: the version it was stored under.
        current: the version that the reader knows.
    """

    def __init__(self, stored: int, current: int) -> None:
        super().__init__(
            f"the payload has schema version {stored}, and this program reads version {current}; give its "
            "PayloadSchema a migration"
        )
        self.stored = stored
        self.current = current


class PayloadMigrationError(PayloadError):
    """The migration of a payload schema failed.

    Attributes:
        reason: why, in words that may be logged.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the migration of a stored payload failed: {reason}; repair the migration, and read it again")
        self.reason = reason


# Effects: what stands in the way of running one. Nothing was written, and nothing of the effect was run.


class EffectRuntimeError(PystateError):
    """An effect could not be run at all. What happened to an effect that ran is an outcome, never an exception."""


class KindMismatchError(EffectRuntimeError, ValueError):
    """The effect is recorded under this key with another kind.

    Attributes:
        id: the recorded effect.
        stored: the kind in its record (an `EffectKind`).
        requested: the kind of the call.
    """

    def __init__(self, id: str, stored: str, requested: str) -> None:  # noqa: A002
        super().__init__(
            f"effect {id} is recorded as {stored}, and the call says {requested}; use another logical key for another "
            "effect"
        )
        self.id = id
        self.stored = stored
        self.requested = requested


class ContractMismatchError(EffectRuntimeError, ValueError):
    """The effect was recorded under other safety assumptions than those of the call, or under none.

    Attributes:
        id: the recorded effect.
        stored: the `ExecutionContract` of its record; None for a record without one.
        requested: the contract of the call.
        differences: the names of the fields that differ; ``("execution_contract",)`` when none is stored.
    """

    def __init__(
        self,
        id: str,  # noqa: A002
        stored: object,
        requested: object,
        differences: tuple[str, ...],
    ) -> None:
        super().__init__(
            f"effect {id} was recorded under another execution contract (differs in: {', '.join(differences)}); call "
            "it with the settings it was recorded with, or let an operator resolve it"
        )
        self.id = id
        self.stored = stored
        self.requested = requested
        self.differences = differences


class InputMismatchError(EffectRuntimeError, ValueError):
    """The effect is recorded under this key with another input.

    Attributes:
        id: the recorded effect.
    """

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(
            f"effect {id} is recorded with another input; use another logical key for another effect, or the input it "
            "was recorded with"
        )
        self.id = id


class EffectIdentityError(EffectRuntimeError, ValueError):
    """The name or the logical key of the call is not allowed.

    Attributes:
        source: the `IdentityError` that says why.
    """

    def __init__(self, source: IdentityError) -> None:
        super().__init__(f"the effect cannot be named so: {source}")
        self.source = source


class EffectInputError(EffectRuntimeError, ValueError):
    """The input of the call cannot be recorded.

    Attributes:
        source: what is wrong with it.
    """

    def __init__(self, source: Exception) -> None:
        super().__init__(f"the input cannot be recorded: {source}")
        self.source = source


class PolicyViolationError(EffectRuntimeError, ValueError):
    """The risk policy demands something that the effect does not have.

    Attributes:
        key: the effect, as ``name:key``.
        requirement: what it lacks, such as ``"verification"``.
    """

    def __init__(self, key: str, requirement: str) -> None:
        super().__init__(
            f"the risk policy demands {requirement} of effect {key!r}, which has none; give the effect one, or change "
            "the policy"
        )
        self.key = key
        self.requirement = requirement


class NotRegisteredError(EffectRuntimeError, KeyError):
    """No handler is registered under this name.

    Attributes:
        name: of the effect.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"no handler is registered for effects named {name!r}; register it before it is needed")
        self.name = name


class NotCompensableError(EffectRuntimeError, ValueError):
    """The handler of the effect has no way to undo it.

    Attributes:
        name: of the effect.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the handler of effects named {name!r} has no compensation; register it with one")
        self.name = name


class NoSuchEffectError(EffectRuntimeError, KeyError):
    """Nothing is recorded under this key: it was never run here, or it has been pruned.

    Attributes:
        key: the effect, as ``name:key``.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"no effect is recorded under {key!r}; check the name and the key, or whether it was pruned")
        self.key = key


class InputPayloadError(EffectRuntimeError, ValueError):
    """The stored input was stored under a schema version that this program cannot read.

    Attributes:
        id: the recorded effect.
        source: the `PayloadError` that says why.
    """

    def __init__(self, id: str, source: Exception) -> None:  # noqa: A002
        super().__init__(f"the stored input of effect {id} cannot be read: {source}")
        self.id = id
        self.source = source


class StoredInputError(EffectRuntimeError, ValueError):
    """The stored input does not fit the type that the code of the effect takes.

    Attributes:
        id: the recorded effect.
        source: what does not fit.
    """

    def __init__(self, id: str, source: Exception) -> None:  # noqa: A002
        super().__init__(
            f"the stored input of effect {id} does not fit the code that takes it: {source}; give its schema another "
            "version, and a migration"
        )
        self.id = id
        self.source = source


class OutputUnavailableError(EffectRuntimeError, LookupError):
    """The effect is committed, and its output was never stored. It is not run again for it.

    Attributes:
        id: the recorded effect.
    """

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(
            f"effect {id} is committed, and its output was not stored; its trail says why, and the remote may tell the "
            "output"
        )
        self.id = id


class OutputPayloadError(EffectRuntimeError, ValueError):
    """The effect is committed, and its output was stored under a schema version that this program cannot read.

    Attributes:
        id: the recorded effect.
        source: the `PayloadError` that says why.
    """

    def __init__(self, id: str, source: Exception) -> None:  # noqa: A002
        super().__init__(f"effect {id} is committed, and its stored output cannot be read: {source}")
        self.id = id
        self.source = source


class OutputError(EffectRuntimeError, ValueError):
    """The effect is committed, and its stored output does not fit the type that the caller wants.

    Attributes:
        id: the recorded effect.
        source: what does not fit.
    """

    def __init__(self, id: str, source: Exception) -> None:  # noqa: A002
        super().__init__(
            f"effect {id} is committed, and its stored output does not fit the wanted type: {source}; give its schema "
            "another version, and a migration"
        )
        self.id = id
        self.source = source


class EffectOutcomeError(EffectRuntimeError, RuntimeError):
    """A caller wanted the value of an effect whose outcome has none. Nothing is wrong with the runtime.

    Attributes:
        outcome: what the effect came to: `Failed`, `Unknown`, `NeedsIntervention` ...
    """

    def __init__(self, outcome: object) -> None:
        super().__init__(f"the effect has no value: {outcome}; decide by its outcome what to do")
        self.outcome = outcome


class EffectInternalError(EffectRuntimeError, RuntimeError):
    """The work on an effect ended without an outcome, by a mistake in the runtime or because its event loop ended.

    Whatever had been recorded stays. When the lease has lapsed, the next call or a recovery pass goes on from there.

    Attributes:
        reason: what happened.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the work on the effect ended without an outcome: {reason}; call it again, or recover")
        self.reason = reason
