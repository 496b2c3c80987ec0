"""Progress of a long command, on standard error and on a terminal only."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol

__all__ = ["Progress", "progress"]

_REDRAW_SECONDS = 0.1


class Progress(Protocol):
    """A context manager that is told of steps done."""

    def advance(self, steps: int) -> None:
        """Add to what is done, in the unit of the total."""

    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def progress(label: str, unit: str, total: int | None) -> Progress:
    """Return a progress display fit for standard error: by rich, by a plain line, or none off a terminal.

    Args:
        label: what is done, such as ``"dump"``.
        unit: what is counted, such as ``"entries"``.
        total: how many there will be, or None when that is not known.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        return _Silent()
    try:
        from pystate.cli.with_rich import Bar  # late: slow to import, and perhaps not installed
    except ImportError:
        return _Line(label, unit, total)
    return Bar(label, unit, total)


class _Silent:
    def advance(self, steps: int) -> None:
        pass

    def __enter__(self) -> _Silent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class _Line:
    """One line that is drawn over and over with a carriage return, and cleared at the end."""

    def __init__(self, label: str, unit: str, total: int | None) -> None:
        self._label, self._unit, self._total = label, unit, total
        self._done = 0
        self._drawn_at = 0.0
        self._width = 0

    def advance(self, steps: int) -> None:
        self._done += steps
        now = time.monotonic()
        if now - self._drawn_at < _REDRAW_SECONDS:
            return
        self._drawn_at = now
        of_total = f" of {self._total:,}" if self._total is not None else ""
        self._draw(f"{self._label}: {self._done:,}{of_total} {self._unit}")

    def _draw(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def __enter__(self) -> _Line:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._width:
            self._draw("")
            sys.stderr.write("\r")
            sys.stderr.flush()
