"""Rules of the house: what stands at the top, what `import pystate` may cost, and what opening a store never does."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import ROOT, Source, package_sources

#: What belongs to the project.
ENTRIES = {
    ".ci", ".gitignore", "LICENSE", "README.md", "docs", "fuzz", "pyproject.toml", "pystate", "tests",
}  # fmt: skip

#: Not needed to use a store, and slow to import or large.
HEAVY = {
    "argparse", "asyncio", "concurrent", "ctypes", "email", "filelock", "hashlib", "http", "importlib.metadata",
    "logging", "multiprocessing", "pathlib", "rich", "shutil", "socket", "sqlite3", "ssl", "subprocess", "tempfile",
    "unittest", "urllib",
}  # fmt: skip

#: Modules that run, or load by name, what data says.
RUNS_DATA = {
    "code", "codeop", "ctypes", "dill", "imp", "importlib", "marshal", "pickle", "pickletools", "pkgutil", "runpy",
    "shelve", "yaml",
}  # fmt: skip
RUNS_DATA_CALLS = {"__import__", "compile", "eval", "exec"}
#: Reads the names and versions of what is installed; imports nothing by name.
HARMLESS = {"importlib.metadata"}


def ignored(name: str) -> bool:
    """Whether `.gitignore` names this entry of the root."""
    rules = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return any(Path(name).match(rule.strip("/")) for rule in rules if rule and not rule.startswith("#"))


def test_nothing_stands_at_the_top_but_what_belongs_there() -> None:
    entries = {entry.name for entry in ROOT.iterdir() if entry.name != ".git" and not ignored(entry.name)}
    assert entries - ENTRIES == set()
    assert ENTRIES - entries == set()


def loaded_by_import() -> set[str]:
    """The modules that `import pystate` brings into a bare interpreter."""
    program = "import sys; bare = set(sys.modules); import pystate; print(*sorted(set(sys.modules) - bare))"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_import_loads_nothing_from_elsewhere_but_two_libraries() -> None:
    packages = {name.split(".")[0] for name in loaded_by_import()}
    # msgspec takes typing_extensions where it is installed, and does without it elsewhere.
    foreign = packages - sys.stdlib_module_names - {"pystate", "typing_extensions"}
    assert foreign - {"sortedcontainers", "msgspec"} == set()


def test_import_loads_nothing_heavy() -> None:
    assert loaded_by_import() & HEAVY == set()


def test_import_takes_less_than_100_milliseconds(tmp_path: Path) -> None:
    program = "import time; start = time.process_time(); import pystate; print(time.process_time() - start)"
    # With its bytecode in place, as for any program but the first one, and without the time that others took.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    seconds = [
        float(
            subprocess.run(
                [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, check=True
            ).stdout
        )
        for _ in range(6)
    ]
    assert min(seconds) < 0.1, f"the quickest of {len(seconds)} took {min(seconds):.3f} s"


def runs_data(source: Source) -> Iterator[str]:
    for imported in source.imports():
        named = {imported.module, imported.dotted}
        if imported.module.split(".")[0] in RUNS_DATA and not named & HARMLESS:
            yield f"{source.file}:{imported.line}: imports {imported.dotted}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNS_DATA_CALLS:
            yield f"{source.file}:{node.lineno}: calls {node.func.id}"


def test_no_data_is_run_and_nothing_is_imported_by_a_name_in_data() -> None:
    assert [line for source in package_sources() for line in runs_data(source)] == []


def test_running_data_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(
        "import pickle\nfrom importlib import metadata, import_module\nimport importlib.metadata\nimport re\n"
        "re.compile('x')\neval('1')\n",
        encoding="utf-8",
    )
    assert list(runs_data(Source(path, tmp_path))) == [
        "wrong.py:1: imports pickle",
        "wrong.py:2: imports importlib.import_module",
        "wrong.py:6: calls eval",
    ]


def test_the_files_tell_of_no_machine() -> None:
    # Put together here, so that this file does not match itself.
    machine = re.compile("/(?:" + "|".join(["home", "root", "Users"]) + ")/[A-Za-z.]")
    assert [line for path in project_files() for line in matching_lines(path, machine)] == []


def project_files() -> Iterator[Path]:
    for name in sorted(ENTRIES):
        entry = ROOT / name
        for path in [entry] if entry.is_file() else sorted(entry.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def matching_lines(path: Path, pattern: re.Pattern[str]) -> Iterator[str]:
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if pattern.search(line):
            yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_assertions_of_the_tests_are_alive_also_when_python_leaves_them_out() -> None:
    with pytest.raises(AssertionError):
        assert not ROOT.exists()
