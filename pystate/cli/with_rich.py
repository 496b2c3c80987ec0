"""Tables and progress by rich. Importing this fails where the extra ``cli`` is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = ["Bar", "draw_table"]


def draw_table(
    stream: TextIO, columns: Sequence[tuple[str, str]], cells: Sequence[Sequence[str]], title: str = ""
) -> str:
    """Return a table as it is drawn on the terminal behind a stream; nothing is written to the stream.

    Args:
        stream: the terminal, which decides on width and colours.
        columns: heading and alignment (``"left"`` or ``"right"``) of each column.
        cells: the rows.
        title: a line above, or nothing.
    """
    # Cells are Text objects: a plain string would have its [brackets] taken for markup. Long ones are folded, not cut.
    table = Table(title=Text(title, style="bold") if title else None, title_justify="left")
    for heading, alignment in columns:
        table.add_column(heading, justify="right" if alignment == "right" else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    # Captured, and written by the caller: rich would end the process by itself when the reader has gone.
    console = Console(file=stream)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


class Bar:
    """A progress bar on standard error, gone when it ends. See :class:`pystate.cli.progress.Progress`."""

    def __init__(self, label: str, unit: str, total: int | None) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,} " + unit),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(label, total=total)

    def advance(self, steps: int) -> None:
        """Add to what is done."""
        self._bar.advance(self._task, steps)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
