"""`verify` and `read_log`: looking at every byte of a store, and changing none."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike

import msgspec

from pystate.engine.files import Files, read_whole
from pystate.engine.log_format import FORMAT_VERSION, parse_segment_header
from pystate.engine.log_reader import FrameInfo, iter_frames
from pystate.engine.names import FileName, parse_name
from pystate.engine.os_files import OsFiles
from pystate.engine.places import absolute_path, find_store
from pystate.engine.recovery import Inventory, recover, survey
from pystate.engine.snapshot_reader import SnapshotReader
from pystate.errors import CorruptionError

__all__ = ["FileReport", "Problem", "VerifyReport", "read_log", "verify"]


_ATTEMPTS = 10


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Damage that was found.

    Attributes:
        path: the file. offset: where in it, in bytes, or None for the whole file. text: what is wrong.
    """

    path: str
    offset: int | None
    text: str


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a store.

    Attributes:
        name: its name. kind: ``"snapshot"``, ``"segment"``, ``"lock"``, ``"temporary"``, ``"torn"`` or ``"foreign"``.
        bytes: its size. note: what it holds, in words.
    """

    name: str
    kind: str
    bytes: int
    note: str


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` returns.

    Attributes:
        path: of the store.
        ok: no problem was found; the store opens, and everything in it decodes.
        store_id: in hex, or empty when it cannot be read.
        format_version: of the files.
        sequence: of the last commit, or 0 when it cannot be known.
        clean: the store was closed cleanly.
        torn_bytes: bytes behind the last intact frame that opening for writing will cut off (no problem).
        families: the number of entries by name; empty when they cannot be known.
        files: every file in the directory.
        problems: all damage found.
    """

    path: str
    ok: bool
    store_id: str
    format_version: int
    sequence: int
    clean: bool
    torn_bytes: int
    families: dict[str, int]
    files: tuple[FileReport, ...]
    problems: tuple[Problem, ...]


def verify(path: str | PathLike[str], *, files: Files | None = None) -> VerifyReport:
    """Read every byte of a store and report what is damaged; change nothing, take no lock.

    Beside a live writer a file may go while it is read; then everything is read again.

    Raises:
        StoreNotFoundError: no store there. NotAStoreError: no directory there. OSError: a file cannot be read.
        UnsupportedFormatError: a newer format. Damage is not raised: it is in the report.

    Cost: reading and decoding everything, in memory as large as the store.
    """
    files = OsFiles() if files is None else files
    directory = find_store(files, absolute_path(files, path))
    for _ in range(_ATTEMPTS - 1):
        try:
            return _verify(files, directory)
        except FileNotFoundError:
            continue  # a writer has just superseded it
    return _verify(files, directory)


def _verify(files: Files, directory: str) -> VerifyReport:
    inventory = survey(files, directory)
    problems: list[Problem] = []
    reports = [_report(files, directory, name, problems) for name in _all(inventory)]
    store_id, sequence, clean, torn, families = "", 0, False, 0, {}
    try:
        recovered = recover(files, directory, inventory)
    except CorruptionError as error:
        _note(problems, error)
        problems += _damaged_frames(files, directory, inventory, problems)
    else:
        store_id, sequence = recovered.header.store_id.hex(), recovered.end.sequence
        clean, torn = recovered.decision.action == "clean", len(recovered.torn)
        replaced = {files.join(directory, name) for name in recovered.header.replaced}
        problems = [problem for problem in problems if problem.path not in replaced]  # these do not count any more
        try:
            for family in sorted(recovered.families(), key=lambda family: family.name):
                family.load()
                families[family.name] = len(family.values)
        except CorruptionError as error:
            _note(problems, error)
            families = {}
        finally:
            recovered.reader.close()
    return VerifyReport(
        path=directory,
        ok=not problems,
        store_id=store_id,
        format_version=FORMAT_VERSION,
        sequence=sequence,
        clean=clean,
        torn_bytes=torn,
        families=families,
        files=tuple(reports),
        problems=tuple(problems),
    )


def _damaged_frames(files: Files, directory: str, inventory: Inventory, known: list[Problem]) -> Iterator[Problem]:
    """Every unreadable stretch of the log, when something is wrong with it; one of them may be a torn tail."""
    places = {(problem.path, problem.offset) for problem in known}
    for name in inventory.segments:
        path = files.join(directory, name.name)
        data = read_whole(files, path)
        try:
            header = parse_segment_header(path, data)
        except CorruptionError:
            continue  # known already
        for frame in iter_frames(name.name, data, header):
            if not frame.ok and (path, frame.offset) not in places:
                yield Problem(path=path, offset=frame.offset, text=frame.problem or "unreadable")


def _all(inventory: Inventory) -> list[FileName]:
    return sorted([*inventory.snapshots, *inventory.segments, *inventory.others])


def _note(problems: list[Problem], error: CorruptionError) -> None:
    problem = Problem(path=error.path, offset=error.offset, text=f"expected {error.expected}, found {error.found}")
    if problem not in problems:
        problems.append(problem)


def _report(files: Files, directory: str, name: FileName, problems: list[Problem]) -> FileReport:
    path = files.join(directory, name.name)
    kind = files.kind(path)
    if kind != "file":
        if parse_name(name.name).kind != name.kind:
            problems.append(Problem(path=path, offset=None, text=f"expected a file, found a {kind}"))
        return FileReport(name=name.name, kind=name.kind, bytes=0, note=f"a {kind}")
    file = files.open_read(path)
    try:
        size = file.size()
    finally:
        file.close()
    note = ""
    try:
        if name.kind == "snapshot":
            note = _check_snapshot(files, path, problems)
        elif name.kind == "segment":
            note = _describe_segment(name.name, path, read_whole(files, path))
    except CorruptionError as error:
        _note(problems, error)
        note = "damaged"
    return FileReport(name=name.name, kind=name.kind, bytes=size, note=note)


def _check_snapshot(files: Files, path: str, problems: list[Problem]) -> str:
    reader = SnapshotReader(files, path)
    try:
        for error in reader.verify():
            _note(problems, error)
        entries = sum(reader.entries(family_id) for family_id in reader.header.families.values())
        count = len(reader.header.families)
        families = "1 family" if count == 1 else f"{count} families"
        return f"{families}, {entries} {'entry' if entries == 1 else 'entries'}, up to commit {reader.header.sequence}"
    finally:
        reader.close()


def _describe_segment(name: str, path: str, data: bytes) -> str:
    """Whether a damaged frame is damage or a torn tail is for recovery to say."""
    header = parse_segment_header(path, data)
    frames = list(iter_frames(name, data, header))
    commits = [frame.sequence for frame in frames if frame.kind == "commit"]
    held = f"commits {commits[0]} to {commits[-1]}" if commits else "no commit"
    damaged = sum(not frame.ok for frame in frames)
    return f"generation {header.generation}, {held}" + (f", unreadable stretches: {damaged}" if damaged else "")


def read_log(path: str | PathLike[str], *, files: Files | None = None) -> Iterator[FrameInfo]:
    """Yield every frame of every segment of a store, in order; damaged ones are marked, not skipped.

    Raises:
        StoreNotFoundError, NotAStoreError, UnsupportedFormatError, OSError: as for `verify`.
        CorruptionError: the header of a segment is damaged, so that its frames cannot be told.
    """
    files = OsFiles() if files is None else files
    directory = find_store(files, absolute_path(files, path))
    for name in survey(files, directory).segments:
        segment = files.join(directory, name.name)
        data = read_whole(files, segment)
        yield from iter_frames(name.name, data, parse_segment_header(segment, data))
