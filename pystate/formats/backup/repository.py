"""A repository of backups on the disk: what is in it, one writer at a time, and removing what nobody needs.

Promise: a backup is there if and only if its manifest is, and the manifest gets its name when the content is complete
and durable. So after any crash each manifest that is seen names a whole content file, and what is unfinished has no
manifest. A manifest is removed durably before its content is. Before anything is removed that nothing names, all names
that can be seen are made durable: power loss could bring back a manifest, and then its content must be there.

Reading needs no lock and writes nothing; it may go on beside a writer. What a writer has just removed is then not
there, which is normal; a file that is missing although its manifest stays is damage.

Used by ``calls``; nothing else knows the files of a repository.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from os import PathLike
from typing import NamedTuple

import msgspec

from pystate.engine.export import SnapshotInfo, read_snapshot
from pystate.engine.files import Files, HeldLock, publish, read_head
from pystate.engine.names import LOCK_NAME
from pystate.engine.places import absolute_path, ordinary_files, raise_if_full, sync_parent
from pystate.errors import (
    BackupDamagedError,
    BackupNotFoundError,
    CorruptionError,
    LockedError,
    NotARepositoryError,
    ReadOnlyError,
    RepositoryLockedError,
    RepositoryNotFoundError,
)
from pystate.formats.backup.manifests import (
    ID_MAX,
    MANIFEST_BYTES_MAX,
    Manifest,
    RepositoryName,
    content_name,
    decode_manifest,
    encode_manifest,
    manifest_name,
    parse_name,
)
from pystate.formats.content import FORMAT_KEY

__all__ = ["BackupInfo", "Found", "Repository", "Survey"]

_CANNOT_WRITE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_CANNOT_SYNC = _CANNOT_WRITE | {errno.EINVAL, errno.EBADF, errno.ENOTSUP}


class BackupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A backup.

    Attributes:
        id: its number: 1 for the first one of the repository, and never given again.
        timestamp: when it was made: an aware datetime in UTC, whole seconds.
        size: of the snapshot that it is, in bytes. Backups of an unchanged store share one, and each says its size; so
            the sum may be more than what the repository takes on the disk.
        sequence: of the last commit in it.
        version: the version of the format of its content, as the store said it (its metadata ``"format"``), or None.
        store_id: of the store that it was made of, as `pystate.Store.id`.
        families: the number of entries by name.
    """

    id: int
    timestamp: datetime
    size: int
    sequence: int
    version: str | None
    store_id: str
    families: dict[str, int]


class Found(NamedTuple):
    """A backup that is complete.

    Attributes:
        manifest: its manifest.
        info: what is told of it.
        path: of its content file.
    """

    manifest: Manifest
    info: BackupInfo
    path: str


class Survey(NamedTuple):
    """What there is in a repository.

    Attributes:
        backups: those that can be offered, ascending.
        damaged: the others, by id.
    """

    backups: list[Found]
    damaged: dict[int, BackupDamagedError]

    @property
    def ids(self) -> list[int]:
        """The ids of all of them, ascending."""
        return sorted([*self.damaged, *(found.manifest.id for found in self.backups)])


class Repository:
    """A repository, by its path. Opens nothing and holds nothing.

    Attributes:
        files: the file system.
        path: the directory.

    Raises (the constructor):
        TypeError, ValueError: `path` cannot be a path.
    """

    def __init__(self, files: Files | None, path: str | PathLike[str]) -> None:
        self.files = ordinary_files if files is None else files
        self.path = absolute_path(self.files, path)

    def join(self, name: str) -> str:
        """The path of a file in it."""
        return self.files.join(self.path, name)

    # Looking

    def names(self) -> list[RepositoryName]:
        """Its files, parsed, in the order of their names.

        Raises:
            RepositoryNotFoundError: there is nothing. NotARepositoryError: there is something else.
        """
        kind = self.files.kind(self.path)
        if kind is None:
            raise RepositoryNotFoundError(self.path)
        if kind != "directory":
            raise NotARepositoryError(self.path, f"a {kind}" if kind == "file" else "neither a file nor a directory")
        names = [parse_name(name) for name in sorted(self.files.list_directory(self.path))]
        foreign = [name.name for name in names if name.kind == "foreign"]
        if foreign and not any(name.kind in ("manifest", "content") for name in names):
            raise NotARepositoryError(self.path, f"a directory with {foreign[0]!r} in it")
        return names

    def ids(self) -> tuple[int, ...]:
        """The ids of all manifests, ascending.

        Raises:
            As for `names`.
        """
        return tuple(name.id for name in self.names() if name.kind == "manifest")

    def survey(self, *, only: int | None = None, thorough: bool = False, strict: bool = False) -> Survey:
        """Every backup, looked at.

        Arguments:
            only: look at that one alone, if there is such a one.
            thorough: look at the blocks of the content, too.
            strict: fail if the names cannot be made durable.

        Raises:
            RepositoryNotFoundError, NotARepositoryError: as for `names`. UnsupportedFormatError: a newer pystate has
            written here. OSError: something cannot be read.
        """
        looked: dict[str, SnapshotInfo] = {}
        while True:
            ids = self.ids()
            self._sync_names(strict=strict)
            survey = Survey([], {})
            try:
                for backup_id in ids if only is None else {only} & {*ids}:
                    self._survey_one(backup_id, looked, survey, thorough=thorough)
            except BackupNotFoundError:
                continue  # removed just now, and perhaps not alone
            return survey

    def _survey_one(self, backup_id: int, looked: dict[str, SnapshotInfo], survey: Survey, *, thorough: bool) -> None:
        try:
            survey.backups.append(self.read(backup_id, looked, thorough=thorough))
        except BackupDamagedError as error:
            survey.damaged[backup_id] = error

    def _sync_names(self, *, strict: bool) -> None:
        """Make what is shown durable: an id that was seen must not be given again."""
        try:
            self.files.sync_directory(self.path)
        except OSError as error:
            if strict or error.errno not in _CANNOT_SYNC:
                raise

    def find(self, backup_id: int | None) -> Found:
        """One backup, looked at as by `survey`; None for the newest.

        Raises:
            BackupNotFoundError: there is no such one. BackupDamagedError: it is damaged. The others: as for `survey`.
        """
        while True:
            ids = self.ids()
            wanted = max(ids, default=None) if backup_id is None else backup_id
            if wanted is None or wanted not in ids:
                raise BackupNotFoundError(self.path, id=backup_id, ids=ids)
            try:
                return self.read(wanted, {})
            except BackupNotFoundError:
                continue  # removed just now: the next look tells what there is

    def read(self, backup_id: int, looked: dict[str, SnapshotInfo], *, thorough: bool = False) -> Found:
        """A backup whose manifest has been seen.

        Arguments:
            looked: content files that were looked at already, by path; more are added.
            thorough: look at the blocks, too.

        Raises:
            BackupNotFoundError: its manifest is gone. BackupDamagedError: it, or its content, is damaged.
            UnsupportedFormatError: a newer format. OSError: it cannot be read.
        """
        path, what = self.join(manifest_name(backup_id)), "the manifest of the backup"
        try:
            self._require_file(path)
            manifest = decode_manifest(path, backup_id, read_head(self.files, path, MANIFEST_BYTES_MAX + 1))
            path, what = self.join(content_name(manifest.content)), "the content of the backup"
            self._require_file(path)
            return self.look_at(manifest, looked, thorough=thorough)
        except FileNotFoundError as error:
            if backup_id not in self.ids():
                raise BackupNotFoundError(self.path, id=backup_id, ids=()) from error
            raise BackupDamagedError(self.path, path, id=backup_id, expected=what, found="no such file") from error
        except CorruptionError as error:
            raise self.damaged(backup_id, error) from error

    def _require_file(self, path: str) -> None:
        """Refuse what is there and no file: a directory cannot be read, and a pipe never ends."""
        kind = self.files.kind(path)
        if kind not in (None, "file"):
            raise CorruptionError(path, expected="a file", found=f"something else ({kind})")

    def look_at(self, manifest: Manifest, looked: dict[str, SnapshotInfo], *, thorough: bool = False) -> Found:
        """The backup that a manifest means. The arguments are those of `read`.

        Raises:
            CorruptionError: its content is damaged, or not what the manifest says. UnsupportedFormatError: a newer
            format. OSError: it cannot be read; FileNotFoundError when it is not there.
        """
        path = self.join(content_name(manifest.content))
        content = looked.get(path)
        if content is None:
            content = looked[path] = read_snapshot(path, thorough=thorough, files=self.files)
        _compare(manifest, content)
        return Found(manifest, _info(manifest, content), path)

    def damaged(self, backup_id: int, error: CorruptionError) -> BackupDamagedError:
        """The error that says the same of a backup."""
        return BackupDamagedError(
            self.path, error.path, id=backup_id, offset=error.offset, expected=error.expected, found=error.found
        )

    # Changing: only under the lock

    def prepare(self) -> None:
        """Refuse what is no repository and must not become one; make the directory if nothing is there.

        Raises:
            RepositoryNotFoundError: its parent is missing, too. NotARepositoryError: something else is there.
            OSError: it cannot be made.
        """
        if self.files.kind(self.path) is not None:
            self.names()
            return
        try:
            self.files.make_directory(self.path)
        except FileExistsError:
            pass  # somebody was faster; the lock decides
        except FileNotFoundError as error:
            hint = "its parent directory does not exist either; make that first"
            raise RepositoryNotFoundError(self.path, hint) from error

    @contextmanager
    def locked(self, timeout: float) -> Iterator[HeldLock]:
        """Be the only one who changes the repository, for the time of a block.

        Raises:
            RepositoryLockedError: somebody else is, for all of `timeout` seconds. ReadOnlyError: it cannot be written
            to. NotARepositoryError: what should be the lock file is something else. DiskFullError: no room, here or in
            the block. OSError: the lock file cannot be made.
        """
        try:
            lock = self.files.lock(self.path, LOCK_NAME, timeout)
        except LockedError as error:
            raise RepositoryLockedError(self.path, pid=error.pid, host=error.host) from error
        except IsADirectoryError as error:
            raise NotARepositoryError(self.path, f"{LOCK_NAME} in it is not a file") from error
        except OSError as error:
            if error.errno in _CANNOT_WRITE:
                what = f"the repository cannot be written to ({error.strerror}); make it writable"
                raise ReadOnlyError(self.path, what) from error
            raise_if_full(error, self.path)
            raise
        try:
            yield lock
        except OSError as error:
            raise_if_full(error, self.path)
            raise
        finally:
            with suppress(OSError):  # the lock ends with its descriptor, whatever the system says of that
                lock.release()

    def clean(self) -> Survey:
        """Remove what is unfinished; return what there is. All names that are left are durable then.

        Raises:
            As for `survey`, before anything is removed.
        """
        survey, names = self.survey(strict=True), self.names()
        if not survey.ids:
            sync_parent(self.files, self.path)  # whoever has made the directory
        unfinished = [name.name for name in names if name.kind == "temporary"]
        self._unlink([*unfinished, *_unnamed(names, survey)])
        return survey

    def next_id(self, survey: Survey) -> int:
        """An id that no backup of the repository has had: the newest one is never removed.

        Raises:
            CorruptionError: there is none left, which no pystate brings about.
        """
        newest = max(survey.ids, default=0)
        if newest >= ID_MAX:
            raise CorruptionError(self.path, expected=f"ids below {ID_MAX}", found=str(newest))
        return newest + 1

    def add(self, manifest: Manifest, lock: HeldLock) -> None:
        """Let there be a backup. Its content is complete and durable.

        Raises:
            OSError: a step failed; if it was the last one, the backup is there, and power loss may take it.
        """
        if not lock.still_held():
            raise OSError(errno.ENOLCK, "the lock file was removed or replaced while it was held", self.path)
        publish(self.files, self.path, manifest_name(manifest.id), encode_manifest(manifest))

    def withdraw(self, backup_id: int) -> None:
        """After a failure: remove the content that was written for a backup, unless the backup is there.

        What cannot be removed is as after a crash: it is ignored, and the next `clean` removes it.
        """
        content = self.join(content_name(backup_id))
        with suppress(OSError):
            if self.files.kind(self.join(manifest_name(backup_id))) is None and self.files.kind(content) is not None:
                self._unlink([content_name(backup_id)])

    def prune(self, survey: Survey, keep: int) -> tuple[int, ...]:
        """Remove all but the `keep` newest backups that can be offered; return the ids of those removed.

        One that is damaged does not count, and goes when all that are kept are newer.

        Raises:
            OSError: something could not be removed; what was is not there, the rest is.
        """
        if len(survey.backups) < keep:
            return ()
        oldest = survey.backups[-keep].manifest.id
        old = tuple(backup_id for backup_id in survey.ids if backup_id < oldest)
        if old:
            self._unlink(map(manifest_name, old))
            kept = Survey(survey.backups[-keep:], {i: error for i, error in survey.damaged.items() if i > oldest})
            self._unlink(_unnamed(self.names(), kept))
        return old

    def _unlink(self, names: Iterable[str]) -> None:
        """Remove files, durably."""
        removed = False
        for name in names:
            with suppress(FileNotFoundError):  # its user was faster
                self.files.unlink(self.join(name))
            removed = True
        if removed:
            self.files.sync_directory(self.path)


def _info(manifest: Manifest, content: SnapshotInfo) -> BackupInfo:
    return BackupInfo(
        id=manifest.id,
        timestamp=manifest.timestamp,
        size=manifest.size,
        sequence=manifest.sequence,
        version=content.metadata.get(FORMAT_KEY),
        store_id=manifest.store_id,
        families=content.families,
    )


def _compare(manifest: Manifest, content: SnapshotInfo) -> None:
    """See that a content file is the one that the manifest means.

    Raises:
        CorruptionError: it is not.
    """
    wanted = (manifest.store_id, manifest.sequence, manifest.size, manifest.digest)
    there = (content.id, content.sequence, content.bytes, content.digest)
    if wanted != there:
        words: Callable[[tuple[str, int, int, str]], str] = "store {0[0]}, commit {0[1]}, {0[2]} bytes, {0[3]}".format
        raise CorruptionError(content.path, expected=words(wanted), found=words(there))


def _unnamed(names: Iterable[RepositoryName], survey: Survey) -> list[str]:
    """The content files that no backup needs.

    What a damaged manifest names is not known. It can only be content that was there when it was written.
    """
    needed = {found.manifest.content for found in survey.backups}
    doubtful = max(survey.damaged, default=0)
    return [name.name for name in names if name.kind == "content" and name.id not in needed and name.id > doubtful]
