"""Runs the demo's writer, and kills it inside a commit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

import pystate
from pystate.cli.demo_checks import Acknowledged
from pystate.cli.demo_inventory import Package
from pystate.cli.progress import progress

__all__ = ["Written", "write_and_kill", "writer_command"]

WRITE_SECONDS = (1.0, 2.0)
"""The writer is killed this long after its first commit, at random between the two."""

COMMITS_MIN = 50
"""The writer is not killed before this many commits were acknowledged, unless that takes too long."""

GIVE_UP_SECONDS = 6.0
"""The writer is killed this long after it was started, however little it has done."""


class Written(msgspec.Struct, frozen=True):
    """What is known of the writer after its death.

    Attributes:
        acknowledged: the commits that it reported as done, in order.
        in_flight: round and index of the package of the commit that it had begun and not reported as done, or None.
        status: how it ended, as :attr:`subprocess.Popen.returncode`.
        killed: it was alive until it was killed, and the kill is what ended it.
        seconds: from its first report to the kill.
    """

    acknowledged: tuple[Acknowledged, ...]
    in_flight: tuple[int, int] | None
    status: int
    killed: bool
    seconds: float


def writer_command() -> list[str]:
    """Return the command of the real writer; the path of the store and the durability are to be added."""
    return [sys.executable, "-m", "pystate.cli.demo_writer"]


def write_and_kill(command: Sequence[str], packages: Sequence[Package]) -> Written:
    """Run the writer, kill it inside a commit, and return what it reported.

    Args:
        command: the program and its arguments; it reads the packages from standard input and reports as
            :mod:`pystate.cli.demo_writer` does.
        packages: what it is to write.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_writer_environment(),
        start_new_session=True,  # Ctrl-C goes to us, and we end it
    ) as process:
        give_up = threading.Timer(GIVE_UP_SECONDS, process.kill)
        give_up.start()
        try:
            return _follow(process, packages, random.uniform(*WRITE_SECONDS))
        finally:
            give_up.cancel()
            process.kill()


def _writer_environment() -> dict[str, str]:
    """Return an environment in which another Python finds this very pystate, installed or not."""
    source = str(Path(pystate.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": source if not inherited else os.pathsep.join((source, inherited))}


def _follow(process: subprocess.Popen[bytes], packages: Sequence[Package], write_seconds: float) -> Written:
    """Hand over the packages, follow the reports, kill, and follow them to their end."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(packages))
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has died already; its status says so
    acknowledged: list[Acknowledged] = []
    in_flight: tuple[int, int] | None = None
    began = begun_at = killed_at = time.perf_counter()
    committing_seconds = 0.0
    killed = False
    with progress("demo", "commits", None) as shown:
        for kind, numbers in _reports(process.stdout):
            now = time.perf_counter()
            if kind == "begin":
                began = began if in_flight is not None or acknowledged else now
                in_flight, begun_at = (numbers[0], numbers[1]), now
                enough = len(acknowledged) >= COMMITS_MIN and now - began >= write_seconds
                if enough and not killed:
                    # At once, or somewhere within the usual length of a commit: most of that is the sync, and a kill
                    # before the write should not be rare.
                    usual_seconds = committing_seconds / len(acknowledged)
                    time.sleep(random.choice((0.0, random.uniform(0, usual_seconds))))
                    killed = process.poll() is None
                    process.kill()
                    killed_at = time.perf_counter()
            elif kind == "done":
                acknowledged.append(Acknowledged(*numbers))
                in_flight = None
                committing_seconds += now - begun_at
                shown.advance(1)
    status = process.wait()
    if not killed:
        killed_at = time.perf_counter()
    return Written(
        acknowledged=tuple(acknowledged),
        in_flight=in_flight,
        status=status,
        killed=(status == -signal.SIGKILL) if os.name == "posix" else killed,
        seconds=killed_at - began,
    )


def _reports(lines: Iterable[bytes]) -> Iterable[tuple[str, list[int]]]:
    for line in lines:
        kind, *numbers = line.decode("ascii").split()
        if line.endswith(b"\n"):
            yield kind, [int(number) for number in numbers]
