"""What a command prints: results on standard output, messages on standard error.

Results are bytes on the wire: text is written as UTF-8 whatever the locale says, so that what was shown can be read
back. Tables are drawn by rich where it is installed and standard output is a terminal, and are aligned plain text
otherwise.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, TextIO

import msgspec

from pystate.cli.exits import CommandError, Exit

__all__ = ["Column", "Output", "complain", "printable"]

Column = tuple[str, str]
"""The heading of a column and its alignment, ``"left"`` or ``"right"``."""


def complain(text: str) -> None:
    """Write a message to standard error, after the program's name. A closed standard error is no error."""
    try:
        print(f"pystate: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def printable(text: str) -> str:
    """Return a name or a path for a line of text: unprintable characters as escapes, the rest as it is."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or "\udc80" <= c <= "\udcff" else ascii(c)[1:-1] for c in text)


class Output:
    """The results of one command, on standard output.

    For one thread. :meth:`flush` must be called at the end; an error of the stream shows there at the latest.

    Attributes:
        terminal: the results are read by a person at a terminal.

    Raises (every method that writes):
        BrokenPipeError: the reader has closed its end; call :meth:`abandon` and stop.
        CommandError: standard output is closed or cannot be written.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.terminal = stream is not None and stream.isatty()

    def line(self, text: str) -> None:
        """Write one line of text."""
        self.raw(text.encode("utf-8", "surrogateescape") + b"\n")

    def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        stream = self._stream
        if stream is None:
            raise CommandError(Exit.DISK, "standard output is closed; give the results somewhere to go")
        binary = getattr(stream, "buffer", None)
        if binary is None:  # a text stream put in place of standard output
            self._guarded(lambda: stream.write(data.decode("utf-8", "backslashreplace")))
        else:
            self._guarded(lambda: _write_all(binary, data))

    def json(self, document: object) -> None:
        """Write one JSON document, indented."""
        self.raw(msgspec.json.format(_encode_json(document), indent=2) + b"\n")

    def json_line(self, record: object) -> None:
        """Write one line of JSON Lines."""
        self.raw(_encode_json(record) + b"\n")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]], *, title: str = "") -> None:
        """Write a table; its cells are shown with ``str``, numbers with thousands separators.

        Args:
            columns: heading and alignment of each column.
            rows: as many cells as columns in each.
            title: a line above it, or nothing.
        """
        cells = [[_cell(value) for value in row] for row in rows]
        self.raw(self._draw(columns, cells, title).encode("utf-8", "surrogateescape"))

    def _draw(self, columns: Sequence[Column], cells: Sequence[Sequence[str]], title: str) -> str:
        if self._stream is not None and self.terminal:
            try:
                from pystate.cli.with_rich import draw_table  # late: slow to import, and perhaps not installed
            except ImportError:
                pass
            else:
                return draw_table(self._stream, columns, cells, title)
        return plain_table(columns, cells, title)

    def flush(self) -> None:
        """Hand everything written so far to the reader."""
        if self._stream is not None:
            self._guarded(self._stream.flush)

    def abandon(self) -> None:
        """Drop what is still buffered, so that the interpreter does not fail on it when it ends."""
        if self._stream is None:
            return
        try:
            descriptor = self._stream.fileno()
            null = os.open(os.devnull, os.O_WRONLY)
        except (OSError, ValueError):
            return
        os.dup2(null, descriptor)
        os.close(null)

    def _guarded(self, write: Callable[[], object]) -> None:
        try:
            write()
        except BrokenPipeError:
            raise
        except OSError as error:
            self.abandon()
            raise CommandError(
                Exit.DISK, f"standard output: {error.strerror or error}; the results are not complete"
            ) from error


def _write_all(binary: BinaryIO, data: bytes) -> None:
    """Write all of it: with ``python -u`` the stream is the bare file, which may take less at a time."""
    rest = memoryview(data)
    while rest:
        count: int | None = binary.write(rest)
        if count is None:
            raise BlockingIOError(errno.EAGAIN, "not ready for writing")
        rest = rest[count:]


def plain_table(columns: Sequence[Column], cells: Sequence[Sequence[str]], title: str = "") -> str:
    """Return an aligned table as lines of text: title, headings, rows; two spaces between columns."""
    everything = [[heading for heading, _ in columns], *cells]
    widths = [max(len(row[place]) for row in everything) for place in range(len(columns))]
    lines = [title] if title else []
    for row in everything:
        aligned = (
            cell.rjust(width) if alignment == "right" else cell.ljust(width)
            for cell, width, (_, alignment) in zip(row, widths, columns, strict=True)
        )
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))


def _encode_json(document: object) -> bytes:
    """Encode as JSON in UTF-8; a path that is not valid Unicode is shown with escapes rather than refused."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(document)))


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        case dict():
            return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
    return value
