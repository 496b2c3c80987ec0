"""Each layer imports only those below it, and only their public names (design: errors at the bottom, cli on top)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.sources import Import, Source, package_sources, sources_below

#: What each layer may import of pystate besides itself, from the bottom up. ``""`` is `pystate` itself: the public
#: interface of a store. Nothing lists `testing`, so nothing in the package may import it; tests and fuzzers may.
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "engine": {"errors"},
    "": {"errors", "engine"},
    "testing": {"errors", "engine", ""},
    "tables": {"errors", ""},
    "formats": {"errors", "engine", "", "tables"},
    "review": {"errors", "", "tables", "formats"},
    "effects": {"errors", "", "tables", "formats"},
    "cli": {"errors", "engine", "", "tables", "formats", "review", "effects"},
    "__main__": {"cli"},
}

#: Imports that may stand in a function, each for a reason.
LATE = {
    # Slow to import, and only those who write need it.
    ("pystate/engine/os_files.py", "filelock"),
    # Only one platform needs it, and another one has no such module.
    ("pystate/engine/os_files.py", "fcntl"),
    # Needs asyncio, slow to import, and only those who await need it.
    ("pystate/engine/store.py", "pystate.engine.awaiting"),
    # `pystate --help` stays quick: what one command alone needs is imported when it is asked for.
    ("pystate/cli/__init__.py", "pystate.cli.demo"),
    ("pystate/cli/__init__.py", "pystate.cli.review"),
    ("pystate/cli/__init__.py", "pystate.cli.effects"),
    ("pystate/cli/__init__.py", "pystate.cli.formats"),
    ("pystate/cli/__init__.py", "pystate.cli.backups"),
    ("pystate/cli/formats.py", "pystate.review"),
    ("pystate/cli/arguments.py", "importlib"),
    # Needs rich, which is not installed without the extra `cli`, and slow to import.
    ("pystate/cli/output.py", "pystate.cli.with_rich"),
    ("pystate/cli/progress.py", "pystate.cli.with_rich"),
}

#: Modules that reach the disk or another process. In the engine only `OsFiles` may, so that the simulated disk sees
#: all that the real one would.
DISK = {
    "codecs", "ctypes", "fcntl", "filelock", "glob", "io", "mmap", "os", "pathlib", "posix", "shutil", "socket",
    "sqlite3", "subprocess", "tempfile",
}  # fmt: skip
OS_FILES = "pystate/engine/os_files.py"
#: What other modules of the engine may take from `os`: it tells something about the process, and touches no file.
HARMLESS = {"PathLike", "fspath", "getpid", "register_at_fork"}


def layer_of(module: str) -> str:
    """The layer that a module of the package belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def pystate_imports(source: Source) -> Iterator[tuple[Import, str]]:
    """The imports of the package by itself, each with the module it loads: `from a import b` may mean `a.b`."""
    modules = {other.module for other in package_sources()} | {f"pystate.{layer}" for layer in LAYERS}
    for imported in source.imports():
        if imported.module.split(".")[0] == "pystate":
            yield imported, imported.dotted if imported.dotted in modules else imported.module


def wrong_layers(source: Source) -> list[str]:
    own = layer_of(source.module)
    return [
        f"{source.file}:{imported.line}: {own or 'pystate'} may not import {imported.dotted}"
        for imported, module in pystate_imports(source)
        if layer_of(module) not in {own, *LAYERS.get(own, set())}
    ]


def private_names(source: Source) -> list[str]:
    own = layer_of(source.module)
    return [
        f"{source.file}:{imported.line}: {imported.dotted} is private to its layer"
        for imported, module in pystate_imports(source)
        if layer_of(module) != own and any(part.startswith("_") for part in imported.dotted.split(".")[1:])
    ]


def test_every_module_belongs_to_a_layer() -> None:
    unknown = {source.file for source in package_sources() if layer_of(source.module) not in LAYERS}
    assert not unknown, f"say in LAYERS where these stand: {unknown}"


def test_the_layers_stand_above_one_another() -> None:
    list(TopologicalSorter(LAYERS).static_order())


def test_each_layer_imports_only_those_below_it() -> None:
    assert [line for source in package_sources() for line in wrong_layers(source)] == []


def test_each_layer_imports_only_public_names_of_the_others() -> None:
    assert [line for source in package_sources() for line in private_names(source)] == []


def test_no_modules_import_one_another_in_a_cycle() -> None:
    graph = {
        source.module: {module for _, module in pystate_imports(source)} - {source.module}
        for source in package_sources()
    }
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"move the shared name down: {' -> '.join(error.args[1])}")


def test_imports_stand_at_the_top_but_for_those_on_the_list() -> None:
    late = {
        (source.file, imported.module) for source in package_sources() for imported in source.imports() if imported.late
    }
    assert late - LATE == set(), "late imports that are not on the list"
    assert LATE - late == set(), "no longer in the code: take them off the list"


def test_only_os_files_reaches_the_disk() -> None:
    assert [line for source in sources_below("pystate/engine") for line in disk_access(source)] == []


def disk_access(source: Source) -> Iterator[str]:
    if source.file == OS_FILES:
        return
    own_open = ("pystate.engine.opening", "open") in [(imported.module, imported.name) for imported in source.imports()]
    for imported in source.imports():
        harmless = imported.module == "os" and (imported.name is None or imported.name in HARMLESS)
        if imported.module.split(".")[0] in DISK and not harmless:
            yield f"{source.file}:{imported.line}: imports {imported.dotted}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open" and not own_open:
            yield f"{source.file}:{node.lineno}: calls open"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            if node.attr not in HARMLESS:
                yield f"{source.file}:{node.lineno}: uses os.{node.attr}"


WRONG = """\
import os, shutil
from os import getpid, unlink
from pystate.errors import _restore, PystateError
from pystate import tables
from .. import testing

def function():
    import pystate.cli
    os.getpid()
    os.remove("x")
    open("x")
"""


def test_each_check_sees_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "pystate" / "engine" / "wrong.py"
    path.parent.mkdir(parents=True)
    path.write_text(WRONG, encoding="utf-8")
    source = Source(path, tmp_path)
    here = "pystate/engine/wrong.py"
    assert wrong_layers(source) == [
        f"{here}:4: engine may not import pystate.tables",
        f"{here}:5: engine may not import pystate.testing",
        f"{here}:8: engine may not import pystate.cli",
    ]
    assert private_names(source) == [f"{here}:3: pystate.errors._restore is private to its layer"]
    assert set(disk_access(source)) == {
        f"{here}:1: imports shutil",
        f"{here}:2: imports os.unlink",
        f"{here}:10: uses os.remove",
        f"{here}:11: calls open",
    }
    assert [imported.dotted for imported in source.imports() if imported.late] == ["pystate.cli"]
