"""Any file system with an eye on every call: calls can be counted, noted, interrupted before or after, and done short.

Unlike a real disk's, its faults come exactly where a test wants them; like a real disk's, its reads and writes do less
than asked whenever they please.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from pystate.engine.files import File, Files, HeldLock
from tests.engine.memory_files import MemoryFiles

T = TypeVar("T")

#: Called with the name of an operation and a path; whatever it raises is what the engine gets.
Hook = Callable[[str, str], None]


class WatchedFile:
    """An open file of `WatchedFiles`."""

    def __init__(self, files: WatchedFiles, path: str, real: File) -> None:
        self._files, self._path, self._real = files, path, real
        files.open_files.append(self)

    def write(self, data: bytes | memoryview, /) -> int:
        return self._files.call("write", self._path, lambda: self._real.write(data[: self._files.portion(len(data))]))

    def read_at(self, offset: int, size: int, /) -> bytes:
        portion = self._files.portion(size)
        return self._files.call("read_at", self._path, lambda: self._real.read_at(offset, portion))

    def sync(self) -> None:
        self._files.call("sync", self._path, self._real.sync)

    def truncate(self, size: int, /) -> None:
        self._files.call("truncate", self._path, lambda: self._real.truncate(size))

    def size(self) -> int:
        return self._real.size()

    def close(self) -> None:
        if self in self._files.open_files:
            self._files.open_files.remove(self)
        self._real.close()


class WatchedLock:
    """A held lock of `WatchedFiles`."""

    def __init__(self, files: WatchedFiles, real: HeldLock) -> None:
        self._files, self._real = files, real
        files.held_locks += 1

    def still_held(self) -> bool:
        return self._real.still_held()

    def release(self) -> None:
        self._files.held_locks -= 1
        self._real.release()

    def abandon(self) -> None:
        self._files.held_locks -= 1
        self._real.abandon()


class WatchedFiles:
    """A `Files` around another one.

    Arguments:
        real: does the work.
        short: the seed of how much less than asked each read and write does, or None for all that is asked.

    Attributes:
        before, after: hooks; one that raises after a call has let it happen (an opened file is closed again, a lock
            released, since nobody will).
        trace: what was called, and on which path.
        open_files, held_locks: what has not been closed and released yet.
        largest: the most that one call of write or read has been allowed to do.
    """

    def __init__(self, real: Files, *, short: int | None = None, largest: int = 2**62) -> None:
        self._real = real
        self._short = None if short is None else random.Random(short)
        self.largest = largest
        self.before: Hook | None = None
        self.after: Hook | None = None
        self.trace: list[tuple[str, str]] = []
        self.open_files: list[WatchedFile] = []
        self.held_locks = 0

    def real_image(self) -> dict[str, bytes]:
        """The files of the store, when the real files are in memory."""
        assert isinstance(self._real, MemoryFiles)
        return self._real.image()

    @property
    def counts(self) -> Counter[str]:
        """How often each operation was called."""
        return Counter(operation for operation, _ in self.trace)

    def portion(self, size: int) -> int:
        """How much of `size` one call does."""
        size = min(size, self.largest)
        if self._short is None or not size or self._short.random() < 0.5:
            return size
        return self._short.randint(1, size)

    def call(self, operation: str, path: str, action: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
        """Do `action`, with the hooks around it."""
        self.trace.append((operation, path))
        if self.before is not None:
            self.before(operation, path)
        result = action()
        if self.after is not None:
            try:
                self.after(operation, path)
            except BaseException:
                if undo is not None:
                    undo(result)
                raise
        return result

    def _opened(self, operation: str, path: str, action: Callable[[str], File]) -> File:
        file: File = self.call(operation, path, lambda: WatchedFile(self, path, action(path)), WatchedFile.close)
        return file

    def open_read(self, path: str, /) -> File:
        return self._opened("open_read", path, self._real.open_read)

    def open_append(self, path: str, /) -> File:
        return self._opened("open_append", path, self._real.open_append)

    def create(self, path: str, /) -> File:
        return self._opened("create", path, self._real.create)

    def replace(self, source: str, target: str, /) -> None:
        self.call("replace", target, lambda: self._real.replace(source, target))

    def unlink(self, path: str, /) -> None:
        self.call("unlink", path, lambda: self._real.unlink(path))

    def list_directory(self, path: str, /) -> list[str]:
        return self.call("list_directory", path, lambda: self._real.list_directory(path))

    def kind(self, path: str, /) -> str | None:
        return self._real.kind(path)

    def make_directory(self, path: str, /) -> None:
        self.call("make_directory", path, lambda: self._real.make_directory(path))

    def sync_directory(self, path: str, /) -> None:
        self.call("sync_directory", path, lambda: self._real.sync_directory(path))

    def lock(self, directory: str, name: str, timeout: float, /) -> HeldLock:
        def take() -> WatchedLock:
            return WatchedLock(self, self._real.lock(directory, name, timeout))

        return self.call("lock", directory, take, WatchedLock.release)

    def absolute(self, path: str, /) -> str:
        return self._real.absolute(path)

    def parent(self, path: str, /) -> str:
        return self._real.parent(path)

    def join(self, directory: str, name: str, /) -> str:
        return self._real.join(directory, name)

    def random_bytes(self, size: int, /) -> bytes:
        return self._real.random_bytes(size)

    def clock(self) -> float:
        return self._real.clock()


def nth(operation: str, number: int, error: Callable[[], BaseException], *, for_ever: bool = False) -> Hook:
    """A hook that raises at the `number`-th call of `operation` from now on, and with `for_ever` at each after it."""
    seen = 0

    def hook(called: str, path: str) -> None:
        nonlocal seen
        if called == operation:
            seen += 1
            if seen == number or (for_ever and seen > number):
                raise error()

    return hook
