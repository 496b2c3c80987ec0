"""`migrate`: the content of a data directory, and the markers that go with it, from any version to the program's own.

Promise: the content changes as a whole, by one step that no crash divides, and its version with it; the markers follow.
Whatever stops a call, the next one goes on from there and ends in the same state. Why, is said in ``standing``.

It is a loop: look, decide what comes next, do that. So a call that finds a job half done has nothing special to do.
Each thing is decided again under the lock of the store before it is done, so that of several processes one does it.
"""

from __future__ import annotations

from os import PathLike

import msgspec

from pystate.engine.files import Files
from pystate.engine.limits import check_number
from pystate.engine.places import absolute_path, locked, ordinary_files
from pystate.engine.rewrite import RewriteReport, rewrite
from pystate.engine.rewriting import Rewriting
from pystate.errors import LockedError, StoreNotFoundError
from pystate.formats.markers import retrieve_or_create, write_version_marker
from pystate.formats.plan import MigrationPlan, Progress, StepReport
from pystate.formats.standing import (
    Place,
    Standing,
    Todo,
    Verdict,
    content_version,
    judge,
    look,
    look_at_markers,
)
from pystate.formats.versions import Version

__all__ = ["MigrationReport", "migrate"]

_DATA, _BACKUP = "data directory", "backup directory"
_WAIT_FOR_MARKERS = 10.0
"""How long to wait at least, in seconds, for whoever takes the store between the new content and its markers."""


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `migrate` has found and done, or, with ``dry_run``, would do.

    Attributes:
        data_dir, backup_dir: the two directories.
        path: of the store.
        dry_run: nothing was to be written.
        database_marker, backup_marker: as found; None for a new directory.
        before: the version that the content had: what it said itself, else what the markers said; for new directories
            the program's own.
        version: the version that it has now.
        steps: what each step has done; empty if no migration was needed.
        rewrite: how the rows have changed; None if no migration was needed.
        created_markers: which directories were new and got a marker, ``"data directory"`` and ``"backup directory"``.
        completed_markers: which directories had an old marker beside new content, and got the right one: an earlier
            call had migrated the content, and was stopped before it had written these.
    """

    data_dir: str
    backup_dir: str
    path: str
    dry_run: bool
    database_marker: Version | None
    backup_marker: Version | None
    before: Version
    version: Version
    steps: tuple[StepReport, ...]
    rewrite: RewriteReport | None
    created_markers: tuple[str, ...]
    completed_markers: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether anything was, or would be, written."""
        return self.rewrite is not None or bool(self.created_markers or self.completed_markers)


def migrate(
    data_dir: str | PathLike[str],
    backup_dir: str | PathLike[str],
    plan: MigrationPlan,
    *,
    state: str = "states.db",
    dry_run: bool = False,
    progress: Progress | None = None,
    lock_timeout: float = 0.0,
    files: Files | None = None,
) -> MigrationReport:
    """Bring the store in a data directory, and the markers of two directories, to the version of the program.

    To be called at every start, before the store is opened. Where nothing is to be done it only reads, and needs no
    lock, so that the store may be open.

    New directories get the version of the program as their marker; no store is made. A store whose content does not say
    its version is of that of the markers. One that was created with `MigrationPlan.metadata`, or migrated, says it; and
    if it is ahead of the markers, since a crash came before they were written, they are completed.

    Arguments:
        data_dir: holds the store and a marker. It is made if it does not exist.
        backup_dir: holds backups and a marker, likewise.
        plan: what the program knows about versions.
        state: the name of the store in `data_dir`.
        dry_run: run the steps, write nothing (but the lock file of the store), and tell what would change.
        progress: is told what is being done, how much of it is done and how much there is.
        lock_timeout: how long to wait for another process that has the store open, in seconds. Once the content is
            migrated it waits ten seconds at least.
        files: the file system; None means the real one.

    Returns:
        What was found and done.

    Raises:
        VersionMismatchError: the markers differ, or they and the content, and no crash explains it.
        UnsupportedVersionError: they have a version that the plan does not know, an older or a newer one.
        StoreNotFoundError: the markers are of an older version, and there is no store. None is made.
        MarkerNotFoundError: a directory holds something, and no marker. MarkerParseError, MarkerReadError: a marker
            cannot be read. ContentVersionError: what the store says of its version is no version.
        LockedError: the store is open; or another process migrates it, and was not done in time.
        MigrationFamiliesError: the families are not those that the plan, or a step, expects or leaves.
        UnknownShapeError, MixedShapesError, FamilyConflictError: from the helpers; and whatever else a step, or
            `progress`, raises.
        DiskFullError: there is no room for the next state. NotAStoreError, ReadOnlyError, CorruptionError,
            UnsupportedFormatError, OSError: as for `pystate.rewrite`.
        MarkerWriteError: a marker could not be written. StoreFailedError: power loss may still undo the new content.
        TypeError, ValueError: an argument is not what it must be.

        After each but MarkerWriteError and StoreFailedError, content and markers are as they were; unless a note of the
        error says that the content is migrated and the markers are not. The next call finishes what was begun, as it
        does after a crash.

    Cost: where nothing is to be done, reading what opening the store reads. Else reading everything, the steps, and
    writing everything once. Memory: both states, but for what they share.

    Processes may call it at once: one migrates, the others wait up to `lock_timeout`, and find it done. That needs a
    store to lock; those who may start in new directories at once must see to it themselves, as `retrieve_or_create`
    says.
    """
    if not isinstance(plan, MigrationPlan):
        raise TypeError(f"plan is a MigrationPlan, not {type(plan).__name__}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is a function, not {type(progress).__name__}")
    check_number("lock_timeout", lock_timeout, float)
    files = ordinary_files if files is None else files
    data = absolute_path(files, data_dir)
    place = Place(files, data, absolute_path(files, backup_dir), files.join(data, _check_name(files, state)))
    run = _Run(place, plan, progress, lock_timeout)
    return run.dry() if dry_run else run.apply()


def _check_name(files: Files, name: object) -> str:
    """Refuse what cannot be the name of a store beside a marker.

    Raises:
        TypeError: it is not a ``str``. ValueError: it is no single name, or that of a marker.
    """
    if not isinstance(name, str):
        raise TypeError(f"state is the name of the store, a str, not {type(name).__name__}")
    directory = files.absolute("data")
    inside = "\0" not in name and name not in ("", ".", "..") and files.parent(files.join(directory, name)) == directory
    if not inside or name.upper() in ("VERSION", "VERSION.TMP"):
        raise ValueError(f"{name!r} cannot be the name of a store in a data directory; give a single name")
    return name


class _Run:
    """One call of `migrate`."""

    def __init__(self, place: Place, plan: MigrationPlan, progress: Progress | None, lock_timeout: float) -> None:
        self._place = place
        self._plan = plan
        self._progress = progress
        self._lock_timeout = lock_timeout
        self._steps: tuple[StepReport, ...] = ()
        self._rewrite: RewriteReport | None = None
        self._completed: tuple[str, ...] = ()

    def dry(self) -> MigrationReport:
        first = look(self._place)
        verdict = judge(self._plan, first)
        if verdict.todo is Todo.COMPLETE:
            behind = self._behind(first, verdict.version)
            self._completed = tuple(role for role, _, marker in behind if marker is not None)
        if self._plan.path(verdict.version):
            self._migrate(verdict.version, dry_run=True)
        return self._report(first, verdict, dry_run=True)

    def apply(self) -> MigrationReport:
        first = look(self._place)
        verdict = beginning = judge(self._plan, first)
        while verdict.todo is not Todo.NOTHING:
            try:
                if verdict.todo is Todo.MIGRATE:
                    self._migrate(verdict.version, dry_run=False)
                else:
                    self._complete()
            except LockedError:
                if self._decide().todo is not Todo.NOTHING:
                    raise
            verdict = self._decide()
        self._make_durable()
        return self._report(first, beginning, dry_run=False)

    def _make_durable(self) -> None:
        """See to it that power loss takes no marker back; new directories get theirs.

        A call that was killed may have written a marker, and not come to the sync. So this stands before whatever
        relies on a marker that was found: what follows may be durable, and then it must be, too.
        """
        for directory in (self._place.data, self._place.backup):
            retrieve_or_create(directory, self._plan.version, files=self._place.files)

    def _decide(self) -> Verdict:
        return judge(self._plan, look(self._place))

    def _migrate(self, version: Version, *, dry_run: bool) -> None:
        """Rewrite the content, unless another process has done it meanwhile."""
        place, plan = self._place, self._plan

        def build(rewriting: Rewriting) -> None:
            # Nobody else migrates while this runs; what was decided without the lock may be outdated.
            data, backup = look_at_markers(place)
            verdict = judge(plan, Standing(data, backup, content_version(place.store, rewriting.metadata)))
            if verdict.todo is Todo.MIGRATE and not dry_run:
                self._make_durable()
            if dry_run or verdict.todo is Todo.MIGRATE:
                self._steps = plan.run(rewriting, verdict.version, progress=self._progress)

        def wrote(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress("write", done, total)

        try:
            report = rewrite(
                place.store,
                build,
                dry_run=dry_run,
                lock_timeout=self._lock_timeout,
                progress=wrote,
                files=place.files,
            )
        except StoreNotFoundError:
            hint = f"the marker beside it says version {version}; put the store, or a backup of it, in this place"
            raise StoreNotFoundError(place.store, hint) from None
        except BaseException:
            self._steps = ()
            raise
        if report.changed:
            self._rewrite = report

    def _complete(self) -> None:
        """Write the markers that are behind the content, that of the backup directory first."""
        place, migrated = self._place, self._rewrite is not None
        timeout = max(self._lock_timeout, _WAIT_FOR_MARKERS) if migrated else self._lock_timeout
        try:
            with locked(place.files, place.store, timeout):
                standing = look(place)
                verdict = judge(self._plan, standing)
                if verdict.todo is not Todo.COMPLETE:
                    return
                self._make_durable()
                for role, directory, marker in self._behind(standing, verdict.version):
                    if marker is not None:
                        write_version_marker(directory, verdict.version, files=place.files)
                        self._completed += () if migrated else (role,)
        except Exception as error:
            if migrated:
                error.add_note("the content is migrated, and not both markers are written; migrate again to finish")
            raise

    def _behind(self, standing: Standing, version: Version) -> list[tuple[str, str, Version | None]]:
        """The directories with another marker than the content says, in the order of writing: what, where, which."""
        found = [(_BACKUP, self._place.backup, standing.backup), (_DATA, self._place.data, standing.data)]
        return [each for each in found if each[2] != version]

    def _report(self, first: Standing, verdict: Verdict, *, dry_run: bool) -> MigrationReport:
        place = self._place
        new = [(_DATA, first.data), (_BACKUP, first.backup)]
        return MigrationReport(
            data_dir=place.data,
            backup_dir=place.backup,
            path=place.store,
            dry_run=dry_run,
            database_marker=first.data,
            backup_marker=first.backup,
            before=verdict.version,
            version=self._plan.version if self._plan.path(verdict.version) else verdict.version,
            steps=self._steps,
            rewrite=self._rewrite,
            created_markers=tuple(role for role, marker in new if marker is None),
            completed_markers=self._completed,
        )
