"""The guide through the source names what is there: each class, function and module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.markdown import ROOT
from tests.page_tables import page_tables
from tests.sources import Source

PAGE = ROOT / "docs" / "reading-the-source.md"
NAMED = re.compile(r"\[`(?P<name>[\w.]+)`\]\((?P<path>[^)#]+\.py)\)")

REFERENCES = sorted({(match["name"], match["path"]) for match in NAMED.finditer(PAGE.read_text(encoding="utf-8"))})


def definitions(tree: ast.Module) -> set[str]:
    """What a module defines at its top, and the methods of its classes, as dotted names."""
    found = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name, body=body):
                found |= {name, *(f"{name}.{part.name}" for part in body if isinstance(part, ast.FunctionDef))}
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
    return found


@pytest.mark.parametrize(("name", "path"), REFERENCES, ids=[name for name, _ in REFERENCES])
def test_what_the_guide_names_is_in_the_file_it_points_to(name: str, path: str) -> None:
    source = (PAGE.parent / path).resolve()
    assert source.is_file(), path
    assert name in definitions(Source(source).tree)


def test_the_guide_names_much() -> None:
    assert len(REFERENCES) > 30


def test_a_name_that_is_gone_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("X = 1\nclass A:\n    def f(self): pass\ndef g(): pass\n", encoding="utf-8")
    assert definitions(Source(path, tmp_path).tree) == {"X", "A", "A.f", "g"}


def test_the_map_has_every_module_of_the_engine() -> None:
    (table,) = [table for table in page_tables(PAGE) if table.columns == ("module", "what is in it")]
    named = [name for row in table.rows for name in re.findall(r"`(\w+)`", row[0])]
    modules = [path.stem for path in (ROOT / "pystate" / "engine").glob("*.py") if path.stem != "__init__"]
    assert sorted(named) == sorted(modules)


def test_the_map_is_in_the_order_of_the_imports() -> None:
    """Each module imports only those above it, so that reading from the top needs nothing that comes later."""
    (table,) = [table for table in page_tables(PAGE) if table.columns == ("module", "what is in it")]
    order = [re.findall(r"`(\w+)`", row[0]) for row in table.rows]
    place = {name: at for at, names in enumerate(order) for name in names}
    wrong = [
        f"{name} imports {used}"
        for name in place
        for imported in Source(ROOT / "pystate" / "engine" / f"{name}.py").imports()
        if (used := imported.module.removeprefix("pystate.engine.")) in place and place[used] > place[name]
    ]
    assert wrong == []


def test_the_map_has_every_layer() -> None:
    (table,) = [table for table in page_tables(PAGE) if table.rows[0][0] == "`pystate/errors.py`"]
    named = {row[0].strip("`").rstrip("/") for row in table.rows}
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "pystate").iterdir()
        if path.name not in ("__pycache__", "__main__.py", "py.typed")
    }
    assert named == found
