"""Markers: the file ``VERSION`` of a directory, which says what format the directory has.

Promise: a marker is the text of exactly one version, with nothing around it. It is replaced as a whole: a crash at any
moment leaves the old text or the new one, and what a call that returned has written, or `retrieve_or_create` has
returned, is not undone by power loss. A call that failed or was cut short leaves nothing that hinders the next one, and
calling again finishes it. A directory that holds something but no marker is never given one by itself.

Anyone may call this module. Two calls that write the marker of one directory must not run at once, in one process or
several: the temporary file has one fixed name, and nothing locks it. All disk access goes through `Files`.

A marker has no checksum, since its text is fixed: one wrong bit may make it another version. What cannot bear that
keeps the version inside its data as well.
"""

from __future__ import annotations

import errno
from os import PathLike

from pystate.engine.files import TEMPORARY_SUFFIX, File, Files, read_head, write_all
from pystate.engine.places import absolute_path, ordinary_files, sync_parent
from pystate.errors import MarkerNotFoundError, MarkerParseError, MarkerReadError, MarkerWriteError, VersionError
from pystate.formats.versions import TEXT_LENGTH_MAX, Version, as_version

__all__ = ["read_version_marker", "retrieve_or_create", "write_version_marker", "write_version_markers"]

_NAME = "VERSION"
_TEMPORARY_NAME = _NAME + TEMPORARY_SUFFIX


def read_version_marker(directory: str | PathLike[str], *, files: Files | None = None) -> Version:
    """The version in the marker of a directory. Writes nothing.

    Arguments:
        directory: that holds the marker.
        files: the file system; None means the real one.

    Raises:
        MarkerNotFoundError: no marker there, or no directory.
        MarkerParseError: it holds something else than exactly one version.
        MarkerReadError: it is no file, or the disk failed.
        TypeError, ValueError: `directory` is no path.
    """
    files, directory = _place(files, directory)
    return _read(files, directory)


def write_version_marker(directory: str | PathLike[str], version: Version | str, *, files: Files | None = None) -> None:
    """Make `version` the marker of an existing directory, whatever its marker was before.

    When this returns the marker survives power loss. It costs two or three syncs.

    Arguments:
        directory: that holds the marker, or is to hold it.
        version: a version, or its text.
        files: the file system; None means the real one.

    Raises:
        VersionError: the text is no version; the disk was not touched.
        MarkerWriteError: the disk failed, or there is no such directory; the old marker is there still, unless the
            error says otherwise (`MarkerWriteError.replaced`).
        TypeError, ValueError: another argument is not what it must be.
    """
    version = as_version(version)
    files, directory = _place(files, directory)
    _write(files, directory, version, make=False)


def retrieve_or_create(
    directory: str | PathLike[str], version: Version | str, *, files: Files | None = None
) -> Version:
    """The marker of a directory; a new directory gets `version` first.

    A directory is new if it does not exist (then it is made, with its parents), or is empty but for the temporary file
    of a call that was cut short. One that holds something else and no marker is refused: nobody knows its format, and
    to stamp it would skip the migration that it needs.

    What this returns survives power loss.

    Arguments:
        directory: that holds the marker, or is to hold it.
        version: for a new directory: a version, or its text.
        files: the file system; None means the real one.

    Raises:
        MarkerNotFoundError: the directory holds something, and no marker; nothing was changed.
        MarkerParseError, MarkerReadError: as for `read_version_marker`.
        VersionError, MarkerWriteError, TypeError, ValueError: as for `write_version_marker`.
    """
    version = as_version(version)
    files, directory = _place(files, directory)
    path = files.join(directory, _NAME)
    try:
        names = set(files.list_directory(directory)) if files.kind(directory) == "directory" else set()
        if _NAME in names:
            files.sync_directory(directory)  # a killed call may have renamed it, and not come to this
    except OSError as error:
        raise MarkerReadError(path, _cause(error), errno=error.errno) from error
    if not names - {_TEMPORARY_NAME}:
        _write(files, directory, version, make=True)
    elif _NAME not in names:
        raise MarkerNotFoundError(path, found=min(names - {_TEMPORARY_NAME}))
    return _read(files, directory)


def write_version_markers(
    data_dir: str | PathLike[str],
    backup_dir: str | PathLike[str],
    version: Version | str,
    *,
    files: Files | None = None,
) -> None:
    """Make `version` the marker of two directories, first of `data_dir`, then of `backup_dir`.

    For whoever has restored a backup and knows which version it is of. Neither the old markers nor any data are looked
    at. Directories that do not exist are made, with their parents.

    Arguments:
        data_dir, backup_dir: the directories.
        version: a version, or its text.
        files: the file system; None means the real one.

    Raises:
        VersionError: the text is no version; the disk was not touched.
        MarkerWriteError: the disk failed; `MarkerWriteError.role` says at which of the two. After a failure at the
            first the second is untouched; after one at the second the first has the new marker. Calling again, when
            the cause is gone, makes both equal.
        TypeError, ValueError: another argument is not what it must be; the disk was not touched.
    """
    version = as_version(version)
    files, data_dir = _place(files, data_dir)
    files, backup_dir = _place(files, backup_dir)
    _write(files, data_dir, version, make=True, role="data directory")
    _write(files, backup_dir, version, make=True, role="backup directory")


def _place(files: Files | None, directory: str | PathLike[str]) -> tuple[Files, str]:
    """The file system and the absolute path that a caller means.

    Raises:
        TypeError, ValueError: `directory` is no path.
    """
    files = ordinary_files if files is None else files
    return files, absolute_path(files, directory)


# Reading


def _read(files: Files, directory: str) -> Version:
    path = files.join(directory, _NAME)
    try:
        # Looked at before it is opened: to open a named pipe would wait for a writer.
        kind = files.kind(path)
        content = read_head(files, path, TEXT_LENGTH_MAX + 1) if kind == "file" else b""
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise MarkerNotFoundError(path) from error
        raise MarkerReadError(path, _cause(error), errno=error.errno) from error
    if kind is None:
        raise MarkerNotFoundError(path)
    if kind != "file":
        what = "a directory" if kind == "directory" else "neither a file nor a directory"
        raise MarkerReadError(path, f"it is {what}", hint="remove it, and write the marker anew")
    try:
        return Version.parse(content.decode("ascii"))
    except UnicodeDecodeError as error:
        raise MarkerParseError(path, found=content, problem="it holds bytes that are not ASCII") from error
    except VersionError as error:
        raise MarkerParseError(path, found=content, problem=error.problem) from error


# Writing


def _write(files: Files, directory: str, version: Version, *, make: bool, role: str = "") -> None:
    """Replace the marker; directory, file and name are durable when this returns.

    Arguments:
        make: make the directory, and its parents, if they are missing.
        role: for the error: which of two directories it is; empty for a single one.

    Raises:
        MarkerWriteError: any step failed.
    """
    path, temporary = files.join(directory, _NAME), files.join(directory, _TEMPORARY_NAME)
    replaced = False
    try:
        _prepare(files, directory, make=make)
        file = files.create(temporary)
        try:
            _write_and_sync(file, str(version).encode("ascii"))
            files.replace(temporary, path)
        except BaseException as failure:
            replaced = not _remove_after(failure, files, temporary)  # gone: it was renamed, whatever was reported
            raise
        replaced = True
        files.sync_directory(directory)
    except OSError as error:
        raise MarkerWriteError(
            path, _cause(error), version=str(version), replaced=replaced, role=role, errno=error.errno
        ) from error


def _write_and_sync(file: File, content: bytes) -> None:
    try:
        write_all(file, content)
        file.sync()  # before the rename: a durable name of a file that is not would show anything after power loss
    finally:
        file.close()


def _remove_after(failure: BaseException, files: Files, temporary: str) -> bool:
    """Remove the temporary file after a failure; False if it is not there any more.

    Raises:
        OSError: it cannot be removed. An interrupt or the like is not hidden behind that.
    """
    try:
        files.unlink(temporary)
    except FileNotFoundError:
        return False
    except OSError:
        if isinstance(failure, OSError):
            raise
    return True


def _prepare(files: Files, directory: str, *, make: bool) -> None:
    """See to it that the directory is there, durably; make it and its parents, if they are missing and `make` is set.

    A call that was killed may have made a directory and not come to the sync of its entry. It has made nothing in it
    then, since each entry is synced before anything is made below it. So of those that exist only the entry of the
    innermost is in doubt.

    Raises:
        OSError: the disk failed. NotADirectoryError, FileNotFoundError: something else is there, or nothing.
    """
    missing: list[str] = []
    existing = directory
    while (kind := files.kind(existing)) is None:
        parent = files.parent(existing)
        if not make or parent == existing:
            raise FileNotFoundError(errno.ENOENT, f"there is no directory {existing}", existing)
        missing.append(existing)
        existing = parent
    if kind != "directory":
        raise NotADirectoryError(errno.ENOTDIR, f"{existing} is not a directory", existing)
    sync_parent(files, existing)
    for path in reversed(missing):
        try:
            files.make_directory(path)
        except FileExistsError:
            pass  # somebody was faster; should it be no directory, the next step fails
        sync_parent(files, path)


def _cause(error: OSError) -> str:
    """What failed, in words; and what failed before, if it was the cleaning up that failed in the end."""
    text = error.strerror or str(error) or type(error).__name__
    first = error.__context__
    return f"{text}, when cleaning up after: {_cause(first)}" if isinstance(first, OSError) else text
