"""The source files of the package as syntax trees: what the tests of layers and house rules look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Import", "Source", "package_sources", "sources_below"]

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Import:
    """One name brought in by an import statement.

    Attributes:
        module: the module that is imported, or that `name` is imported from; never relative.
        name: the name imported from it, or None for a plain ``import``.
        late: whether the statement stands in a function.
        line: where it stands.
    """

    module: str
    name: str | None
    late: bool
    line: int

    @property
    def dotted(self) -> str:
        """The module and the name as one dotted name."""
        return self.module if self.name is None else f"{self.module}.{self.name}"


class Source:
    """One source file."""

    def __init__(self, path: Path, root: Path = ROOT) -> None:
        self.file = path.relative_to(root).as_posix()
        self.tree = ast.parse(path.read_text(encoding="utf-8"), self.file)
        parts = path.relative_to(root).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.module = ".".join(parts[:-1] if self.is_package else parts)

    def imports(self) -> list[Import]:
        """Every import of the file, also those that stand in functions and below ``if TYPE_CHECKING``."""
        return list(self._imports(self.tree, late=False))

    def _imports(self, node: ast.AST, *, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, None, late, child.lineno)
            elif isinstance(child, ast.ImportFrom):
                for alias in child.names:
                    yield Import(self._absolute(child), alias.name, late, child.lineno)
            else:
                in_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from self._imports(child, late=late or in_function)

    def _absolute(self, statement: ast.ImportFrom) -> str:
        """The module of ``from ... import``, relative ones resolved."""
        if not statement.level:
            return statement.module or ""
        parts = self.module.split(".")
        base = parts[: len(parts) - statement.level + self.is_package]
        return ".".join([*base, *([statement.module] if statement.module else [])])


@cache
def sources_below(directory: str) -> tuple[Source, ...]:
    """All source files below a directory of the checkout, in the order of their paths."""
    return tuple(Source(path) for path in sorted((ROOT / directory).rglob("*.py")))


def package_sources() -> tuple[Source, ...]:
    """All source files of the package itself."""
    return sources_below("pystate")
