"""The table, and the same as JSON."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence

from tests.bench import peers
from tests.bench.harness import Row

__all__ = ["as_json", "environment", "file_system_of", "print_table"]

COLUMNS = ("figure", "what", "pystate", "against", "takes", "ratio", "spread", "goal", "met", "note")
RIGHT = {"pystate", "takes", "ratio", "spread", "goal"}


def file_system_of(path: pathlib.Path) -> str | None:
    """The type of the file system that holds ``path``; None where the system does not tell (not Linux)."""
    try:
        mounts = pathlib.Path("/proc/mounts").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    resolved = path.resolve()
    best, kind = "", None
    for line in mounts:
        _device, mounted, file_system, *_rest = line.split(" ")
        mounted = mounted.replace("\\040", " ")
        if resolved.is_relative_to(mounted) and len(mounted) >= len(best):
            best, kind = mounted, file_system
    return kind


def environment(directory: pathlib.Path) -> dict[str, object]:
    """What the numbers depend on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "load_average": _load_average(),
        "directory": str(directory),
        "file_system": file_system_of(directory),
        "garbage_collector": "enabled",
        "peers": {kind.name: kind.version() for kind in peers.installed()},
        "peers_missing": peers.missing(),
    }


def _load_average() -> str:
    """How busy the machine was with other things before."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def cells(row: Row) -> tuple[str, ...]:
    """The texts of one line."""
    ratio = row.ratio
    return (
        row.figure,
        row.what,
        quantity(row.pystate, row.unit),
        row.against,
        "" if row.other is None else quantity(row.other, row.unit),
        "" if ratio is None else f"{ratio:.2f}",
        f"{min(row.ratios):.2f}–{max(row.ratios):.2f}" if row.ratios else "",
        row.goal,
        {True: "yes", False: "NO", None: ""}[row.met],
        row.note,
    )


def quantity(value: float, unit: str) -> str:
    """A number with three digits that say something, and its unit."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f} {unit}".rstrip()


def print_table(rows: Iterable[Row], facts: Mapping[str, object]) -> None:
    """Print facts and rows, as a table of rich where that is installed."""
    lines = [cells(row) for row in rows]
    place = f"{facts['directory']} ({facts['file_system'] or 'file system unknown'})"
    heading = (
        f"Python {facts['python']}, {facts['platform']}, {facts['processors']} processors\n"
        f"load before: {facts['load_average']}; in {place}; garbage collector enabled\n"
        f"ratio: pystate / the other, median over the rounds; spread: lowest and highest"
    )
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(heading)
        print_plain(lines)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in RIGHT else "left", no_wrap=column != "note")
    previous = ""
    for line in lines:
        if previous and line[0] != previous:
            table.add_section()
        style = "red" if line[COLUMNS.index("met")] == "NO" else None
        table.add_row(*line, style=style)
        previous = line[0]
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(heading, highlight=False, markup=False)
    console.print(table)


def print_plain(lines: Sequence[tuple[str, ...]]) -> None:
    """The table in plain text."""
    everything = [COLUMNS, *lines]
    widths = [max(len(line[index]) for line in everything) for index in range(len(COLUMNS))]
    for line in everything:
        texts = (
            text.rjust(width) if column in RIGHT else text.ljust(width)
            for column, text, width in zip(COLUMNS, line, widths, strict=True)
        )
        print("  ".join(texts).rstrip())


def as_json(rows: Iterable[Row], facts: Mapping[str, object]) -> str:
    """Facts and rows as one JSON object."""
    listed = [
        {
            "figure": row.figure,
            "what": row.what,
            "pystate": row.pystate,
            "against": row.against or None,
            "takes": row.other,
            "unit": row.unit or None,
            "ratio": row.ratio,
            "ratios": row.ratios,
            "goal": row.goal or None,
            "met": row.met,
            "note": row.note or None,
        }
        for row in rows
    ]
    return json.dumps({"environment": facts, "rows": listed}, indent=2, ensure_ascii=False)
