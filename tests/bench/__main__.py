"""``python -m tests.bench``: measure and print one table."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator

from tests.bench import (
    figures_background,
    figures_effects,
    figures_formats,
    figures_memory,
    figures_opening,
    figures_reads,
    figures_tables,
    figures_writes,
)
from tests.bench.harness import Context, Row, figures, say
from tests.bench.report import as_json, environment, file_system_of, print_table

__all__ = ["main"]

MODULES = (
    figures_reads,
    figures_writes,
    figures_opening,
    figures_memory,
    figures_background,
    figures_tables,
    figures_effects,
    figures_formats,
)
"""Importing these registered every figure."""

ORDER = (
    "get",
    "scans",
    "put-process",
    "put-sync",
    "threads",
    "load",
    "open",
    "replay",
    "memory",
    "snapshot",
    "bytes",
    "table-get",
    "table-scan",
    "upsert",
    "upsert-sqlite",
    "retention",
    "effects",
    "effects-recovery",
    "migration",
    "backup",
)
"""The order of the table, that of the goals."""

IN_MEMORY = {"tmpfs", "ramfs"}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    known = "\n".join(f"  {name:<12} {figures()[name].title}" for name in ORDER)
    made = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measure pystate against its floors and against other stores.",
        epilog=f"figures:\n{known}\n\nThe exit code is 1 if a figure crashed, otherwise 0: a missed goal is a result.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("figures", nargs="*", metavar="FIGURE", help="what to measure (default: everything)")
    made.add_argument("--quick", action="store_true", help="small sizes: shows that every figure works, not how fast")
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    made.add_argument("--repeat", type=int, metavar="N", help="rounds of each figure (default: its own choice)")
    made.add_argument(
        "--directory",
        type=pathlib.Path,
        metavar="DIR",
        help="existing directory on the disk to measure (default: a temporary one, not on a file system in memory)",
    )
    return made


@contextlib.contextmanager
def working_directory(chosen: pathlib.Path | None) -> Iterator[pathlib.Path]:
    """A fresh directory below the chosen one, or on the first disk that is one."""
    if chosen is None:
        candidates = [pathlib.Path(tempfile.gettempdir()), pathlib.Path("/var/tmp"), pathlib.Path.cwd()]
        real = (path for path in candidates if path.is_dir() and file_system_of(path) not in IN_MEMORY)
        chosen = next(real, candidates[0])
    path = pathlib.Path(tempfile.mkdtemp(prefix="pystate-bench-", dir=chosen))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the figures that were asked for; return the exit code."""
    options = parser().parse_args(arguments)
    unknown = [name for name in options.figures if name not in figures()]
    if unknown:
        parser().error(f"no such figure: {', '.join(unknown)}; there are {', '.join(ORDER)}")
    if options.repeat is not None and options.repeat < 1:
        parser().error("--repeat takes a number from 1")
    if options.directory is not None and not options.directory.is_dir():
        parser().error(f"--directory: {options.directory} is not a directory")
    rows: list[Row] = []
    crashed: list[str] = []
    with working_directory(options.directory) as directory:
        context = Context(directory, quick=options.quick, repeat=options.repeat)
        facts = environment(directory)
        for name in options.figures or ORDER:
            say(f"{name}: {figures()[name].title} ...")
            started = time.perf_counter()
            try:
                rows.extend(figures()[name].run(context))
            except Exception:
                crashed.append(name)
                traceback.print_exc(file=sys.stderr)
            say(f"{name}: {time.perf_counter() - started:.1f} s")
    if options.json:
        print(as_json(rows, facts))
    else:
        print_table(rows, facts)
    if crashed:
        say(f"crashed: {', '.join(crashed)}")
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main())
