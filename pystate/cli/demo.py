"""``demo``: write real data from another process, kill that process while it commits, and show what survived.

1. Read the installed packages (``demo_inventory``).
2. Start a process that commits them, round after round, and reports every commit that returned (``demo_writer``).
3. At a random moment inside a commit, kill it with SIGKILL, and read the rest of its reports (``demo_kill``).
4. Verify the files as the kill left them, then open the store, which recovers it.
5. Compare every entry with what the acknowledged commits must have written (``demo_checks``).

Everything shown was measured in this run.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Sequence

import pystate
from pystate.cli.demo_checks import Check, check_state
from pystate.cli.demo_inventory import FAMILIES, installed_packages
from pystate.cli.demo_kill import Written, write_and_kill, writer_command
from pystate.cli.demo_report import Report, as_json, show, suggestions
from pystate.cli.demo_writer import SNAPSHOT_LOG_BYTES
from pystate.cli.exits import CommandError, Exit
from pystate.cli.output import Output, complain

__all__ = ["demo", "run_demo"]


def demo(arguments: argparse.Namespace, output: Output) -> int:
    """Run the demo and show what it measured; a check that fails is the exit code 1."""
    keep: str | None = arguments.keep
    began = time.perf_counter()
    path = tempfile.mkdtemp(prefix="pystate-demo-") if keep is None else _empty_directory(keep)
    remove = keep is None
    try:
        report = run_demo(path, durability=arguments.durability)
        remove = remove and report.ok
    except (pystate.PystateError, OSError):
        remove = False  # the store is the evidence
        complain(f"the store is left in {path}")
        raise
    finally:
        if remove:
            shutil.rmtree(path, ignore_errors=True)
    seconds = time.perf_counter() - began
    if arguments.json:
        output.json(as_json(report, seconds, kept=not remove))
    else:
        show(report, seconds, output)
    output.flush()
    if not report.ok:
        complain(f"a check failed; the store is left in {path}: look at it with `pystate verify {shlex.quote(path)}`")
        return Exit.NEGATIVE
    if keep is not None:
        complain(f"the store is left in {keep}; try:\n" + suggestions(keep, report))
    return Exit.OK


def _empty_directory(path: str) -> str:
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        raise CommandError(Exit.USAGE, f"{path}: is not a directory; give --keep an empty or a new one") from None
    if os.listdir(path):
        raise CommandError(Exit.USAGE, f"{path}: is not empty; give --keep an empty or a new directory")
    return path


def run_demo(path: str, *, durability: str = "sync", writer: Sequence[str] | None = None) -> Report:
    """Write, kill, recover and check, in an empty directory.

    Args:
        path: the directory for the store.
        durability: ``"sync"`` or ``"process"``.
        writer: the command that writes, to which path and durability are added; None for the real one.

    Raises:
        CommandError: there is nothing to write, or the writer ended before it acknowledged anything.
        PystateError, OSError: the store could not be opened again.
    """
    began = time.perf_counter()
    packages = installed_packages()
    read_seconds = time.perf_counter() - began
    if not packages:
        raise CommandError(
            Exit.NEGATIVE, "this Python has no installed packages to write; install one with pip, then try again"
        )
    written = write_and_kill([*(writer or writer_command()), path, durability], packages)
    if not written.acknowledged:
        raise CommandError(
            Exit.NEGATIVE,
            f"the writing process acknowledged no commit (exit status {written.status}); look above for why",
        )
    killed_state = pystate.verify(path)
    began = time.perf_counter()
    with pystate.open(path, create=False, snapshot_log_bytes=SNAPSHOT_LOG_BYTES) as store:
        open_seconds = time.perf_counter() - began
        recovery = store.stats().recovery
        sequence = store.sequence
        there = [name for name in FAMILIES if name in store.families]
        with store.view() as view:
            state = {name: dict(view.scan(name)) for name in there}
    closed_state = pystate.verify(path)
    verdict = check_state(packages, written.acknowledged, written.in_flight, state, sequence)
    checks = (_check_killed(written), *verdict.checks, _check_files(killed_state, closed_state))
    return Report(
        path=path,
        packages=packages,
        read_seconds=read_seconds,
        written=written,
        killed_state=killed_state,
        closed_state=closed_state,
        recovery=recovery,
        open_seconds=open_seconds,
        verdict=verdict,
        checks=checks,
    )


def _check_killed(written: Written) -> Check:
    return Check(
        "the writer was alive until it was killed",
        written.killed,
        f"exit status {written.status} after {written.seconds:.2f} s of commits",
    )


def _check_files(killed: pystate.VerifyReport, closed: pystate.VerifyReport) -> Check:
    problems = [*killed.problems, *closed.problems]
    size = sum(file.bytes for file in killed.files), sum(file.bytes for file in closed.files)
    return Check(
        "every checksum holds, before recovery and after",
        killed.ok and closed.ok,
        f"{size[0]:,} and {size[1]:,} bytes read"
        + (f"; {len(problems):,} problems: {problems[0].path}: {problems[0].text}" if problems else ""),
    )
