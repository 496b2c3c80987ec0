"""Runs the command line in this process, and as a process of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pystate.cli import main

__all__ = ["ROOT", "Result", "Terminal", "environment", "run", "run_process"]

ROOT = Path(__file__).resolve().parents[2]


class Result(NamedTuple):
    """What a run left: its exit code, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        """Standard output as lines."""
        return self.text.splitlines()

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Standard output as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Terminal(io.TextIOWrapper):
    """A stream in memory that says that it is a terminal, or that it is not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def written(self) -> bytes:
        """Everything written so far."""
        self.flush()
        content = self.buffer
        assert isinstance(content, io.BytesIO)
        return content.getvalue()


def run(*argv: str | Path, stdin: bytes = b"", terminal: bool = False, code: int | None = 0) -> Result:
    """Run a command in this process.

    Args:
        argv: the arguments after the program's name.
        stdin: what it finds on standard input.
        terminal: standard output and standard error are a terminal.
        code: the exit code that it must have, or None for any.
    """
    out, err = Terminal(terminal=terminal), Terminal(terminal=terminal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        found = main([str(argument) for argument in argv])
    result = Result(int(found), out.written(), err.written().decode())
    assert code is None or result.code == code, result
    assert "Traceback" not in result.err
    return result


def environment(**more: str) -> dict[str, str]:
    """An environment in which a new Python finds this pystate."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def run_process(*argv: str | Path, stdin: bytes = b"", timeout: float = 60) -> Result:
    """Run a command as a process of its own; `timeout` is in seconds."""
    ran = subprocess.run(
        [sys.executable, "-m", "pystate", *map(str, argv)],
        input=stdin,
        capture_output=True,
        env=environment(),
        timeout=timeout,
        check=False,
    )
    return Result(ran.returncode, ran.stdout, ran.stderr.decode())
