"""A ``Files`` that passes everything on to the real disk and counts what goes by."""

from __future__ import annotations

import threading
import time

from pystate.engine.files import File, Files, HeldLock
from pystate.engine.os_files import OsFiles

__all__ = ["CountingFiles"]


class CountingFiles:
    """Counts bytes, syncs and space. Threads may share it.

    Attributes:
        bytes_written: by every write to every file.
        syncs: calls of ``fdatasync`` on files; ``sync_seconds`` is the time the callers spent in them.
        directory_syncs: the same for directories.
        disk_bytes: the files that exist; ``disk_bytes_max`` is the most there ever was at once.
    """

    def __init__(self) -> None:
        self._inner: Files = OsFiles()
        self._guard = threading.Lock()
        self._sizes: dict[str, int] = {}
        self.bytes_written = 0
        self.syncs = 0
        self.sync_seconds = 0.0
        self.directory_syncs = 0
        self.disk_bytes = 0
        self.disk_bytes_max = 0

    def _resize(self, path: str, size: int) -> None:
        """Note that the file at ``path`` now has ``size`` bytes; the caller holds the guard."""
        self.disk_bytes += size - self._sizes.get(path, 0)
        self._sizes[path] = size
        self.disk_bytes_max = max(self.disk_bytes_max, self.disk_bytes)

    def wrote(self, path: str, count: int) -> None:
        """A file grew."""
        with self._guard:
            self.bytes_written += count
            self._resize(path, self._sizes.get(path, 0) + count)

    def truncated(self, path: str, size: int) -> None:
        """A file was cut."""
        with self._guard:
            self._resize(path, size)

    def synced(self, seconds: float) -> None:
        """A file was synced."""
        with self._guard:
            self.syncs += 1
            self.sync_seconds += seconds

    def open_read(self, path: str) -> File:
        return self._inner.open_read(path)

    def open_append(self, path: str) -> File:
        file = self._inner.open_append(path)
        self.truncated(path, file.size())
        return _CountingFile(self, path, file)

    def create(self, path: str) -> File:
        file = self._inner.create(path)
        self.truncated(path, 0)
        return _CountingFile(self, path, file)

    def replace(self, source: str, target: str) -> None:
        self._inner.replace(source, target)
        with self._guard:
            size = self._sizes.get(source, 0)
            self._resize(source, 0)
            self._resize(target, size)

    def unlink(self, path: str) -> None:
        self._inner.unlink(path)
        self.truncated(path, 0)

    def list_directory(self, path: str) -> list[str]:
        return self._inner.list_directory(path)

    def kind(self, path: str) -> str | None:
        return self._inner.kind(path)

    def make_directory(self, path: str) -> None:
        self._inner.make_directory(path)

    def sync_directory(self, path: str) -> None:
        self._inner.sync_directory(path)
        with self._guard:
            self.directory_syncs += 1

    def lock(self, directory: str, name: str, timeout: float) -> HeldLock:
        return self._inner.lock(directory, name, timeout)

    def absolute(self, path: str) -> str:
        return self._inner.absolute(path)

    def parent(self, path: str) -> str:
        return self._inner.parent(path)

    def join(self, directory: str, name: str) -> str:
        return self._inner.join(directory, name)

    def random_bytes(self, size: int) -> bytes:
        return self._inner.random_bytes(size)

    def clock(self) -> float:
        return self._inner.clock()


class _CountingFile:
    """One open file. A rename while it is open keeps counting under the old name, which moves no byte."""

    def __init__(self, files: CountingFiles, path: str, inner: File) -> None:
        self._files = files
        self._path = path
        self._inner = inner

    def write(self, data: bytes | memoryview) -> int:
        count = self._inner.write(data)
        self._files.wrote(self._path, count)
        return count

    def read_at(self, offset: int, size: int) -> bytes:
        return self._inner.read_at(offset, size)

    def sync(self) -> None:
        started = time.perf_counter()
        self._inner.sync()
        self._files.synced(time.perf_counter() - started)

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)
        self._files.truncated(self._path, size)

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()
