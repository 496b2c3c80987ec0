"""Where a migration stands: what the markers and the content say, and what follows from it.

`Standing` is what they say, `judge` the decision; it is a pure function, and looks at nothing else. `look` finds the
standing out and writes nothing.

The crash argument
------------------
``migrating`` changes three things, each durable before the next::

    content   the next state and its version, by one rename of one file
    backup    the marker of the backup directory
    data      the marker of the data directory

So a crash leaves the old version in all three; or the new one in the content; or in the content and the backup marker;
or in all. The two between are what `judge` knows as unfinished: the content is *ahead* of the data marker, and the
backup marker agrees with one of them. The content is right then, since its version stands in the same file as itself;
what is missing are markers. Every other difference has another cause, a backup restored without its markers for one,
and is refused.

`look` reads in the opposite order: data, backup, content. While another process migrates it sees, whatever happens in
between, one of the four states above, and never a marker that is ahead of the content.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Mapping
from typing import NamedTuple

from pystate.engine.files import TEMPORARY_SUFFIX, Files
from pystate.engine.opening import read_metadata
from pystate.errors import (
    ContentVersionError,
    MarkerNotFoundError,
    MarkerReadError,
    StoreNotFoundError,
    UnsupportedVersionError,
    VersionError,
    VersionMismatchError,
)
from pystate.formats.content import FORMAT_KEY
from pystate.formats.markers import read_version_marker
from pystate.formats.plan import MigrationPlan
from pystate.formats.versions import Version

__all__ = ["Place", "Standing", "Todo", "Verdict", "content_version", "judge", "look", "look_at_markers"]


class Place(NamedTuple):
    """The directories of a migration, as absolute paths, and the file system they are in.

    Attributes:
        data, backup: the two directories with markers.
        store: the directory of the store.
    """

    files: Files
    data: str
    backup: str
    store: str


class Standing(NamedTuple):
    """What the markers and the content say.

    Attributes:
        data, backup: the versions in the markers; None for a directory that is new and has none.
        content: the version that the content says it has; None if it says none, or if there is no store.
    """

    data: Version | None
    backup: Version | None
    content: Version | None


class Todo(enum.Enum):
    """What comes next."""

    NOTHING = "nothing"
    """But to give a new directory its marker."""
    COMPLETE = "complete"
    """One or both markers are behind the content, and get its version."""
    MIGRATE = "migrate"
    """The content is of an older format."""


class Verdict(NamedTuple):
    """What `judge` has found.

    Attributes:
        todo: what comes next.
        version: the version that the content has.
    """

    todo: Todo
    version: Version


def judge(plan: MigrationPlan, standing: Standing) -> Verdict:
    """What follows from a standing, for a program with this plan.

    A directory without a marker counts as one with the version of the program, which it gets in the end. A content
    that says nothing of its version has that of the markers.

    Raises:
        UnsupportedVersionError: the content, or the markers, have a version that the program does not know.
        VersionMismatchError: the versions differ in a way that no crash explains.
    """
    data = plan.version if standing.data is None else standing.data
    backup = plan.version if standing.backup is None else standing.backup
    content = data if standing.content is None else standing.content
    # First: whoever has content from the future must hear of that, and not of the markers, which he could "repair".
    if standing.content is not None and plan.place(content) is None:
        raise UnsupportedVersionError(found=str(content), supported=str(plan.version), where="content")
    unfinished = _ahead(plan, content, data)
    mismatch = VersionMismatchError(
        database=str(data), backup=str(backup), content=None if standing.content is None else str(content)
    )
    if data != backup and not (unfinished and content == backup):
        raise mismatch
    if plan.place(data) is None:
        raise UnsupportedVersionError(found=str(data), supported=str(plan.version), where="marker")
    if not unfinished and plan.place(content) != plan.place(data):
        raise mismatch
    # The markers before the next migration: three versions in three places could not be told from a mistake.
    if unfinished and (data != backup or plan.place(data) != len(plan.migrations)):
        return Verdict(Todo.COMPLETE, content)
    if plan.place(content) != len(plan.migrations):
        return Verdict(Todo.MIGRATE, content)
    return Verdict(Todo.NOTHING, content)


def _ahead(plan: MigrationPlan, content: Version, marker: Version) -> bool:
    """Whether content of this version may have been made by a migration from the other one."""
    there, here = plan.place(content), plan.place(marker)
    if there is None or here is None:
        return False
    return there > here or (there == here and content > marker)


def look(place: Place) -> Standing:
    """What the markers and the content say. Writes nothing; needs no lock.

    Raises:
        MarkerNotFoundError: a directory holds something, and no marker.
        MarkerParseError, MarkerReadError: as for `read_version_marker`.
        ContentVersionError: what the content says is no version.
        NotAStoreError, CorruptionError, UnsupportedFormatError, OSError: as for `pystate.read_metadata`.
    """
    data, backup = look_at_markers(place)
    try:
        metadata = read_metadata(place.store, files=place.files)
    except StoreNotFoundError:
        metadata = {}
    return Standing(data, backup, content_version(place.store, metadata))


def look_at_markers(place: Place) -> tuple[Version | None, Version | None]:
    """The markers of the data and of the backup directory, read in this order; None for a new directory.

    Raises:
        MarkerNotFoundError, MarkerParseError, MarkerReadError: as for `look`.
    """
    data = _marker(place.files, place.data)
    return data, _marker(place.files, place.backup)


def _marker(files: Files, directory: str) -> Version | None:
    try:
        return read_version_marker(directory, files=files)
    except MarkerNotFoundError as error:
        path = error.path
    try:
        kind = files.kind(directory)
        names = set(files.list_directory(directory)) if kind == "directory" else set()
    except OSError as error:
        raise MarkerReadError(path, error.strerror or str(error), errno=error.errno) from error
    if kind not in (None, "directory"):
        hint = "give the path of a directory"
        raise MarkerReadError(path, f"{directory} is no directory", errno=errno.ENOTDIR, hint=hint)
    # What a call that was cut short may have left behind does not count; see `retrieve_or_create`.
    if others := names - {"VERSION" + TEMPORARY_SUFFIX}:
        raise MarkerNotFoundError(path, found=min(others))
    return None


def content_version(path: str, metadata: Mapping[str, str]) -> Version | None:
    """The version that the metadata of a store give its content, or None if they give none.

    Arguments:
        path: of the store, for the error.

    Raises:
        ContentVersionError: it is no version.
    """
    text = metadata.get(FORMAT_KEY)
    if text is None:
        return None
    try:
        return Version.parse(text)
    except VersionError as error:
        raise ContentVersionError(path, found=text, problem=error.problem) from error
