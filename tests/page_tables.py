"""Reads the tables of a Markdown page, and those of a docstring, so that a test can compare the two."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Table", "docstring_tables", "page_tables"]


@dataclass(frozen=True)
class Table:
    """A table: what its columns are called, and its rows as the text of their cells.

    Attributes:
        line: the number of the line with its column names, in the page or docstring.
        caption: the last line of text above it.
    """

    line: int
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def page_tables(page: Path) -> list[Table]:
    """All tables of a Markdown page, in order. Code spans keep their backticks."""
    tables, caption, block = [], "", list[tuple[str, ...]]()
    for number, line in enumerate([*page.read_text(encoding="utf-8").splitlines(), ""], 1):
        if line.startswith("|"):
            block.append(tuple(cell.strip() for cell in line.strip().strip("|").split("|")))
            continue
        if block:
            tables.append(Table(number - len(block), caption, block[0], tuple(block[2:])))
            block = []
        if line.strip():
            caption = line.strip()
    return tables


def docstring_tables(text: str) -> list[Table]:
    """All tables of a docstring: columns between lines of ``=``. Doubled backticks become single ones."""
    tables, lines, at, caption = [], text.splitlines(), 0, ""
    while at < len(lines):
        if not re.fullmatch(r"=+( +=+)+", lines[at]):
            caption = lines[at].strip() or caption
            at += 1
            continue
        starts = [match.start() for match in re.finditer("=+", lines[at])]
        end = next(i for i in range(at + 3, len(lines)) if lines[i] == lines[at])
        body = [_cells(line, starts) for line in [lines[at + 1], *lines[at + 3 : end]]]
        tables.append(Table(at + 2, caption, body[0], tuple(body[1:])))
        at = end + 1
    return tables


def _cells(line: str, starts: list[int]) -> tuple[str, ...]:
    stops = [*starts[1:], None]
    return tuple(line[start:stop].strip().replace("``", "`") for start, stop in zip(starts, stops, strict=True))
