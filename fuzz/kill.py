"""A process that commits from several threads is killed with SIGKILL, on the real disk; then the store is opened.

A case is a store and a few processes that use it one after the other, each killed at some moment: while it opens the
store, or after so many acknowledged commits. What was acknowledged, through a pipe, must be there, whole; of each
thread at most one commit more. The line decides when a process is killed, but not how far its threads are by then:
a replay plays the same case, and may have to be repeated.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pystate
from fuzz._harness import Coverage, ViolationError, main
from fuzz._killed import FAMILIES, state_after
from pystate.testing import read_state
from pystate.testing.history import State

__all__ = ["CHILD", "play"]

CHILD: tuple[str, ...] = (sys.executable, "-m", "fuzz._killed")
"""The command whose arguments are those of ``fuzz._killed``."""
_ROOT = Path(__file__).parents[1]
_THREADS_MAX = 4


class _Told:
    """What all processes of a case have acknowledged: for each thread its newest commit."""

    def __init__(self) -> None:
        self.newest = dict.fromkeys(range(_THREADS_MAX), 0)
        self.family: str | None = None
        self.commits = 0

    def hear(self, line: str) -> None:
        if re.fullmatch(r"[0-9]+ [0-9]+", line):
            thread, number = map(int, line.split())
            self.newest[thread] = number
            self.commits += 1
        elif line.startswith("family "):
            self.family = line.removeprefix("family ")


def _run_and_kill(path: str, source: random.Random, told: _Told) -> str:
    """Run one process and kill it; return when that was."""
    durability = source.choice(("sync", "process"))
    log_bytes = source.choice((2_000, 20_000, 1 << 30))
    when = source.choice(("while opening", "early", "later", "later"))
    commits = {"while opening": 0, "early": source.randint(1, 5), "later": source.randint(6, 400)}[when]
    delay = source.random() * (0.02 if when == "while opening" else 0.003)
    command = [*CHILD, path, durability, str(source.randint(1, _THREADS_MAX)), str(log_bytes)]
    process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    before = told.commits
    try:
        for line in process.stdout:
            told.hear(line.strip())
            if when == "while opening" or told.commits - before >= commits:
                break
        time.sleep(delay)
    finally:
        process.send_signal(signal.SIGKILL)
        rest, errors = process.stdout.read(), process.stderr.read()
        process.communicate()
    for line in rest.splitlines():
        told.hear(line.strip())
    if process.returncode != -signal.SIGKILL or errors:
        raise ViolationError(f"the process ended by itself with {process.returncode}: {errors}")
    return when


def _check(path: str, told: _Told) -> None:
    """Open what it has left."""
    with pystate.open(path) as store:
        found = read_state(store)
    for name in FAMILIES:
        if name not in found:
            if told.commits:
                raise ViolationError(f"the family {name!r} is missing")
            return  # it was killed before it had made them
    report = pystate.verify(path)
    if not report.ok:
        raise ViolationError(f"verify finds {report.problems}")
    expected: State = {name: {} for name in FAMILIES}
    for thread, newest in told.newest.items():
        number = int(found["last"].get(b"%d" % thread, b"0"))
        if not newest <= number <= newest + 1:
            raise ViolationError(f"thread {thread}: commit {newest} was acknowledged, and {number} is there")
        told.newest[thread] = number
        for name, entries in state_after(thread, number).items():
            expected[name].update(entries)
    for name in FAMILIES:
        if found[name] != expected[name]:
            keys = sorted({*found[name], *expected[name]})
            wrong = [key for key in keys if found[name].get(key) != expected[name].get(key)]
            raise ViolationError(f"family {name!r} is not what commits {told.newest} have left: {wrong}")
    extra = {name for name in found if name.startswith("extra-")}
    if told.family is not None and not any(_number(name) >= _number(told.family) for name in extra):
        raise ViolationError(f"the family {told.family!r} had been made, and there are {sorted(extra)}")


def _number(name: str) -> int:
    return int(name.removeprefix("extra-"))


def play(line: str, coverage: Coverage) -> None:
    """Play one case."""
    source = random.Random(f"kill {line}")
    with tempfile.TemporaryDirectory(prefix="pystate-fuzz-") as directory:
        path, told = str(Path(directory, "store")), _Told()
        for _ in range(source.randint(1, 4)):
            before = told.commits
            when = _run_and_kill(path, source, told)
            coverage.count("kills")
            coverage.count("acknowledged commits", told.commits - before)
            coverage.saw(when)
            if Path(path).exists():
                try:
                    _check(path, told)
                except pystate.PystateError as error:
                    raise ViolationError(f"after a kill {when}: {type(error).__name__}: {error}") from error


if __name__ == "__main__":
    raise SystemExit(main("kill", play))
