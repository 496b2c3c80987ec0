"""What a command line costs before it does anything: counted in modules, so that no clock is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.running import environment

HEAVY = {
    "asyncio", "concurrent.futures", "ctypes", "email", "filelock", "http", "importlib.metadata", "logging",
    "multiprocessing", "pathlib", "pystate.cli.demo", "pystate.cli.with_rich", "rich", "socket", "sqlite3",
    "ssl", "subprocess", "tempfile", "unittest", "urllib",
}  # fmt: skip
"""Slow to import, and of no use to the commands below."""

MODULES_MAX = 160
"""Modules beyond those of a bare interpreter. The store, with msgspec and sortedcontainers, needs about 115 of them."""

PROGRAM = """
import sys
bare = set(sys.modules)
import pystate.cli
code = pystate.cli.main(sys.argv[1:])
print(code, *sorted(set(sys.modules) - bare), file=sys.stderr)
"""


def loaded(*argv: str) -> set[str]:
    """The modules that a command line loads beyond a bare interpreter."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *argv], env=environment(), capture_output=True, check=True)
    code, *modules = ran.stderr.decode().splitlines()[-1].split()
    assert code == "0", ran.stderr
    return set(modules)


@pytest.mark.parametrize("argv", [("--help",), ("get", "--help")], ids=" ".join)
def test_help_loads_nothing_heavy_and_few_modules(argv: tuple[str, ...]) -> None:
    modules = loaded(*argv)
    assert modules & HEAVY == set()
    assert len(modules) <= MODULES_MAX, sorted(modules)


def test_only_version_looks_up_the_version() -> None:
    assert "importlib.metadata" in loaded("--version")
