"""The seam between the engine and the disk: everything the engine asks of a file system.

Promise: no other engine code touches the disk, a lock, the random source or the clock except through an object of type
`Files`, so whoever replaces it (the simulated disk does) sees every operation, in order, and may make any of them fail.
`OsFiles` is the real one.

Rules for an implementation:

- Paths are ``str``. Every failure is an ``OSError`` with its ``errno``; nothing else is raised on purpose.
- `File.write` and `File.read_at` may do less than asked (at least one byte, unless at the end of the file); callers
  loop, with `write_all` and `read_exactly`.
- What `File.sync` and `Files.sync_directory` promise is all that the engine relies on: after `sync` returned, the
  content and the size of that file survive power loss; after `sync_directory` returned, the entries of that directory
  do.
- All methods may be called from several threads.

The helpers below are the only ways in which the engine creates a file: `publish` (whole, atomically), `publish_stream`
(the same, written piece by piece), and the steps of them, for ``replacing``, which does something between two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = [
    "READ_BYTES_MAX",
    "TEMPORARY_SUFFIX",
    "File",
    "Files",
    "HeldLock",
    "discard",
    "publish",
    "publish_stream",
    "publish_written",
    "read_exactly",
    "read_head",
    "read_whole",
    "write_all",
    "write_rest",
]

T = TypeVar("T")

TEMPORARY_SUFFIX = ".tmp"
"""Files with this suffix are unfinished: readers ignore them, the next writer removes them."""

READ_BYTES_MAX = 64 * 1024 * 1024
"""The most that is asked of one read call."""


class File(Protocol):
    """An open file. Not for use after `close`, which may be called twice."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Append `data`, or a beginning of it, at the end of the file; return how many bytes were taken."""
        ...

    def read_at(self, offset: int, size: int, /) -> bytes:
        """Return up to `size` bytes from `offset`; empty only at or past the end of the file."""
        ...

    def sync(self) -> None:
        """Make content and size durable. After a failure nothing may be believed about what was written before."""
        ...

    def truncate(self, size: int, /) -> None:
        """Cut the file to `size` bytes."""
        ...

    def size(self) -> int:
        """The present size in bytes."""
        ...

    def close(self) -> None:
        """Release the descriptor."""
        ...


class HeldLock(Protocol):
    """A lock that this process holds on a store."""

    def still_held(self) -> bool:
        """False when the lock file was removed or replaced, so that somebody else may hold "the" lock too."""
        ...

    def release(self) -> None:
        """Let the next opener in; may be called twice."""
        ...

    def abandon(self) -> None:
        """In a forked child: drop this process's copy of the descriptor without releasing the parent's lock."""
        ...


class Files(Protocol):
    """A file system, as the engine sees it."""

    def open_read(self, path: str, /) -> File:
        """Open an existing file for reading."""
        ...

    def open_append(self, path: str, /) -> File:
        """Open an existing file for reading and appending; only one such descriptor may be open at a time.

        So even when the lock file of a store is removed while it is held, a second writer is kept from its log.

        Raises:
            LockedError: another descriptor of this kind is open, here or in another process.
        """
        ...

    def create(self, path: str, /) -> File:
        """Create an empty file for reading and appending; an existing one is emptied."""
        ...

    def replace(self, source: str, target: str, /) -> None:
        """Rename atomically; an existing target is replaced. Durable once the directory is synced."""
        ...

    def unlink(self, path: str, /) -> None:
        """Remove a file. Durable once the directory is synced."""
        ...

    def list_directory(self, path: str, /) -> list[str]:
        """The names in a directory, in any order."""
        ...

    def kind(self, path: str, /) -> str | None:
        """``"file"``, ``"directory"``, ``"other"``, or None when nothing is there."""
        ...

    def make_directory(self, path: str, /) -> None:
        """Create one directory; its parent must exist."""
        ...

    def sync_directory(self, path: str, /) -> None:
        """Make the entries of a directory durable."""
        ...

    def lock(self, directory: str, name: str, timeout: float, /) -> HeldLock:
        """Take the exclusive lock file `name` in `directory`; wait up to `timeout` seconds.

        Raises:
            LockedError: somebody else holds it, in this process or another.
        """
        ...

    def absolute(self, path: str, /) -> str:
        """`path` as an absolute path, so that a change of the working directory does not move the store."""
        ...

    def parent(self, path: str, /) -> str:
        """The directory that holds `path`."""
        ...

    def join(self, directory: str, name: str, /) -> str:
        """The path of `name` in `directory`."""
        ...

    def random_bytes(self, size: int, /) -> bytes:
        """Unpredictable bytes, for store ids and salts."""
        ...

    def clock(self) -> float:
        """Seconds of a monotonic clock, for durations only."""
        ...


def write_all(file: File, data: bytes) -> None:
    """Append all of `data`, however little each call takes.

    Raises:
        OSError: the disk refused; a beginning of `data` may have been written.
    """
    written = file.write(data)
    if written != len(data):
        write_rest(file, data, written)


def write_rest(file: File, data: bytes, written: int) -> None:
    """`write_all` after a first call that took only `written` bytes."""
    rest = memoryview(data)[written:]
    while rest:
        if written <= 0:
            raise OSError("a write took no byte and gave no error")
        written = file.write(rest)
        rest = rest[written:]


def read_exactly(file: File, offset: int, size: int) -> bytes:
    """Return `size` bytes from `offset`, or fewer when the file ends before."""
    data = file.read_at(offset, min(size, READ_BYTES_MAX))
    if len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing > 0 and parts[-1]:
        parts.append(file.read_at(offset + size - missing, min(missing, READ_BYTES_MAX)))
        missing -= len(parts[-1])
    return b"".join(parts)


def read_head(files: Files, path: str, size: int) -> bytes:
    """The first `size` bytes of a file, or all of it if it is shorter."""
    file = files.open_read(path)
    try:
        return read_exactly(file, 0, size)
    finally:
        file.close()


def read_whole(files: Files, path: str) -> bytes:
    """The content of a file as one ``bytes``."""
    file = files.open_read(path)
    try:
        return read_exactly(file, 0, file.size())
    finally:
        file.close()


def publish(files: Files, directory: str, name: str, content: bytes) -> None:
    """Put a whole file into place: after a crash it is there with all of `content`, or not at all.

    An existing file of that name is replaced. When this returns, file and name are durable.

    Raises:
        OSError: a step failed. If it was the last one, the directory sync, the file may be in place nevertheless.
    """
    publish_stream(files, files.join(directory, name), lambda file: write_all(file, content))


def publish_stream(files: Files, path: str, write: Callable[[File], T]) -> T:
    """`publish` for content that `write` appends to the file it is given; return what `write` returned.

    Raises:
        Whatever `write` raises; nothing is left behind then. OSError: as for `publish`.
    """
    file = files.create(path + TEMPORARY_SUFFIX)
    try:
        result = write(file)
        publish_written(files, path, file)
    except BaseException:
        discard(files, path + TEMPORARY_SUFFIX, file)
        raise
    return result


def publish_written(files: Files, path: str, file: File) -> None:
    """Finish `publish_stream` for a temporary file that is written: sync, close, rename, sync the directory.

    The caller must `discard` the file if this raises.
    """
    directory = files.parent(path)
    # The content first: a name that is durable before its content is would show an empty file after power loss.
    file.sync()
    file.close()
    files.replace(path + TEMPORARY_SUFFIX, path)
    files.sync_directory(directory)


def discard(files: Files, path: str, file: File) -> None:
    """Close and remove a temporary file after a failure, without hiding that failure behind another."""
    for step in (file.close, lambda: files.unlink(path)):
        try:
            step()
        except OSError:
            pass  # a leftover *.tmp is harmless: readers ignore it, the next opening removes it
