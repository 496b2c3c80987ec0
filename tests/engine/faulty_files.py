"""The real file system, on which any call can be counted, held up, or made to fail."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable

from pystate.engine.files import File, HeldLock
from pystate.engine.os_files import OsFiles

#: Called before each operation with its name and path; whatever it raises is what the engine gets.
Hook = Callable[[str, str], None]


def failure(number: int) -> OSError:
    """The error that the operating system would raise with this error number."""
    return OSError(number, os.strerror(number))


class FaultyFile:
    """An open file of `FaultyFiles`."""

    def __init__(self, files: FaultyFiles, path: str, real: File) -> None:
        self._files, self._path, self._real = files, path, real

    def write(self, data: bytes | memoryview, /) -> int:
        self._files.note("write", self._path)
        return self._real.write(self._files.room_for(data))

    def read_at(self, offset: int, size: int, /) -> bytes:
        self._files.note("read_at", self._path)
        return self._real.read_at(offset, size)

    def sync(self) -> None:
        self._files.note("sync", self._path)
        self._real.sync()

    def truncate(self, size: int, /) -> None:
        self._files.note("truncate", self._path)
        self._real.truncate(size)

    def size(self) -> int:
        self._files.note("size", self._path)
        return self._real.size()

    def close(self) -> None:
        self._files.note("close", self._path)
        self._real.close()


class FaultyFiles(OsFiles):
    """`OsFiles` with a hook before every call, and a disk that can be full.

    Attributes:
        counts: how often each operation was called.
        hook: what to do before each operation; raise to make it fail, wait to hold it up.
        space: how many bytes may still be written, or None for as many as there are; then ``ENOSPC``.
        write_bytes_max: the most that one call of `write` takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.hook: Hook | None = None
        self.space: int | None = None
        self.write_bytes_max: int | None = None

    def note(self, operation: str, path: str) -> None:
        self.counts[operation] += 1
        if self.hook is not None:
            self.hook(operation, path)

    def room_for(self, data: bytes | memoryview) -> bytes | memoryview:
        """The beginning of `data` that fits, as a real disk takes it; nothing fits on a full one."""
        if self.write_bytes_max is not None:
            data = data[: self.write_bytes_max]
        if self.space is not None:
            if self.space == 0 and data:
                raise failure(errno.ENOSPC)
            data = data[: self.space]
            self.space -= len(data)
        return data

    def fail(self, operation: str, number: int, *, nth: int = 1, for_ever: bool = False, suffix: str = "") -> None:
        """Let the `nth` call of `operation` from now on (on a path with this suffix) fail, or all from there on."""
        seen = 0

        def hook(called: str, path: str) -> None:
            nonlocal seen
            if called == operation and path.endswith(suffix):
                seen += 1
                if seen == nth or (for_ever and seen > nth):
                    raise failure(number)

        self.hook = hook

    def open_read(self, path: str, /) -> File:  # type: ignore[override]
        self.note("open_read", path)
        return FaultyFile(self, path, super().open_read(path))

    def open_append(self, path: str, /) -> File:  # type: ignore[override]
        self.note("open_append", path)
        return FaultyFile(self, path, super().open_append(path))

    def create(self, path: str, /) -> File:  # type: ignore[override]
        self.note("create", path)
        return FaultyFile(self, path, super().create(path))

    def replace(self, source: str, target: str, /) -> None:
        self.note("replace", target)
        super().replace(source, target)

    def unlink(self, path: str, /) -> None:
        self.note("unlink", path)
        super().unlink(path)

    def list_directory(self, path: str, /) -> list[str]:
        self.note("list_directory", path)
        return super().list_directory(path)

    def make_directory(self, path: str, /) -> None:
        self.note("make_directory", path)
        super().make_directory(path)

    def sync_directory(self, path: str, /) -> None:
        self.note("sync_directory", path)
        super().sync_directory(path)

    def lock(self, directory: str, name: str, timeout: float, /) -> HeldLock:  # type: ignore[override]
        self.note("lock", directory)
        return super().lock(directory, name, timeout)
