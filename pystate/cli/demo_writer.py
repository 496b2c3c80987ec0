"""The process that the demo kills: it commits packages, round after round, and reports each commit once it returned.

Standard input: the packages as JSON. Standard output, a line at a time, unbuffered::

    begin ROUND INDEX             the commit of package INDEX is about to be made
    done ROUND INDEX SEQUENCE     the commit has returned, with this sequence

It never ends by itself. It ends when it is killed, or when nobody reads its reports any more.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import Literal, cast

import msgspec

import pystate
from pystate.cli.demo_inventory import FAMILIES, Package, entries_of_commit

__all__ = ["SNAPSHOT_LOG_BYTES", "main"]

SNAPSHOT_LOG_BYTES = 1024 * 1024
"""The demo's store takes a snapshot for this much log, so that the kill finds both kinds of files."""


def main(arguments: list[str]) -> int:
    """Write until killed.

    Args:
        arguments: the directory of the store, and the durability.

    Returns:
        An exit code for the case that it could not go on; the reason is on standard error.
    """
    path, durability = arguments
    packages = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[Package, ...])
    try:
        with pystate.open(
            path,
            durability=cast(Literal["sync", "process"], durability),
            snapshot_log_bytes=SNAPSHOT_LOG_BYTES,
        ) as store:
            for name in FAMILIES:
                store.create_family(name)
            _write_for_ever(store, packages)
    except BrokenPipeError:
        return 1
    except (pystate.PystateError, OSError) as error:
        print(f"pystate: the writing process of the demo: {error}", file=sys.stderr)
        return 1
    return 0


def _write_for_ever(store: pystate.Store, packages: tuple[Package, ...]) -> None:
    for round_number in itertools.count(1):
        for index, package in enumerate(packages):
            txn = store.begin()
            for family, entries in entries_of_commit(package, round_number).items():
                for key, value in entries.items():
                    txn.put(family, key, value)
            _report(f"begin {round_number} {index}\n")
            sequence = txn.commit()
            _report(f"done {round_number} {index} {sequence}\n")


def _report(line: str) -> None:
    # One write of a short line to a pipe is all or nothing, so the kill cannot leave half a report.
    os.write(1, line.encode("ascii"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
