"""A `Files` object with a yield point before each operation, so that threads may meet between any two of them."""

from __future__ import annotations

from pystate.engine.files import File, Files, HeldLock
from pystate.testing.scheduler import yield_point

__all__ = ["YieldingFiles"]


class _YieldingFile:
    """An open file of `YieldingFiles`."""

    def __init__(self, file: File) -> None:
        self._file = file

    def write(self, data: bytes | memoryview, /) -> int:
        yield_point("write")
        return self._file.write(data)

    def read_at(self, offset: int, size: int, /) -> bytes:
        yield_point("read")
        return self._file.read_at(offset, size)

    def sync(self) -> None:
        yield_point("sync")
        self._file.sync()

    def truncate(self, size: int, /) -> None:
        yield_point("truncate")
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        yield_point("close")
        self._file.close()


class YieldingFiles:
    """Passes everything on to other `Files`, and lets another thread go on before each change.

    Arguments:
        files: what does the work.
        reads: also before operations that change nothing; they matter only to those who read beside a writer.
    """

    def __init__(self, files: Files, *, reads: bool = False) -> None:
        self._files = files
        self._reads = reads

    def open_read(self, path: str, /) -> File:
        if not self._reads:
            return self._files.open_read(path)
        yield_point("open")
        return _YieldingFile(self._files.open_read(path))

    def open_append(self, path: str, /) -> File:
        yield_point("open")
        return _YieldingFile(self._files.open_append(path))

    def create(self, path: str, /) -> File:
        yield_point("create")
        return _YieldingFile(self._files.create(path))

    def replace(self, source: str, target: str, /) -> None:
        yield_point("replace")
        self._files.replace(source, target)

    def unlink(self, path: str, /) -> None:
        yield_point("unlink")
        self._files.unlink(path)

    def list_directory(self, path: str, /) -> list[str]:
        if self._reads:
            yield_point("list")
        return self._files.list_directory(path)

    def kind(self, path: str, /) -> str | None:
        return self._files.kind(path)

    def make_directory(self, path: str, /) -> None:
        yield_point("make directory")
        self._files.make_directory(path)

    def sync_directory(self, path: str, /) -> None:
        yield_point("sync directory")
        self._files.sync_directory(path)

    def lock(self, directory: str, name: str, timeout: float, /) -> HeldLock:
        yield_point("lock")
        return self._files.lock(directory, name, timeout)

    def absolute(self, path: str, /) -> str:
        return self._files.absolute(path)

    def parent(self, path: str, /) -> str:
        return self._files.parent(path)

    def join(self, directory: str, name: str, /) -> str:
        return self._files.join(directory, name)

    def random_bytes(self, size: int, /) -> bytes:
        return self._files.random_bytes(size)

    def clock(self) -> float:
        return self._files.clock()
