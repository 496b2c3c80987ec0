"""``python -m tests.bench.peak_child WHAT DIRECTORY``: do one thing in a process of its own, print its memory."""

from __future__ import annotations

import pathlib
import re
import resource
import sys

import pystate
from pystate.formats import migrate
from tests.bench.figures_formats import PLAN, RECORDS

__all__ = ["main"]


def peak() -> int:
    """The most memory that this process has had, in KiB."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():  # what `getrusage` says there is also that of the process which started this one
        return int(re.findall(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)


def main(what: str, place: str) -> None:
    """Open and touch everything, or migrate; print by how much the peak rose."""
    directory = pathlib.Path(place)
    before = peak()
    if what == "migrate":
        migrate(directory / "data", directory / "backups", PLAN)
    else:
        with pystate.open(directory / "data" / "states.db", families=[RECORDS]) as store:
            for _ in store.family(RECORDS).scan():
                pass
    print(peak() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
