"""The table of the test plan is complete: each row once, and in it every test whose docstring names the row.

A docstring names rows as in ``Row 5: ...`` or ``Rows 1 to 3, 7 and 9``. The last column of the table is made of these,
by ``python -m tests.test_test_plan``; what else stands in it, after the tests, is left as it is.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.markdown import ROOT

PAGE = ROOT / "docs" / "reference" / "test-plan.md"
TESTS = ROOT / "tests"
ROWS = range(1, 107)

NAMED = re.compile(r"\b[Rr]ows?\s+(\d+(?:(?:,\s+and\s+|,\s+|\s+and\s+|\s+to\s+|-)\d+)*)")
SPAN = re.compile(r"(\d+)(?:\s+to\s+|-)(\d+)")
REASON = re.compile(r"(Later|Not applicable here): \w.*[^.]")


class Row(NamedTuple):
    """A row of the page: the names of its tests as they stand there, and the text after them."""

    fault: str
    behaviour: str
    tests: list[str]
    note: str


def rows_named(docstring: str) -> set[int]:
    """The rows that a docstring names."""
    found: set[int] = set()
    for match in NAMED.finditer(docstring):
        for first, last in SPAN.findall(match[1]):
            found |= set(range(int(first), int(last) + 1))
        found |= {int(number) for number in re.findall(r"\d+", match[1])}
    return found


def each_test(folder: Path) -> Iterator[tuple[str, str]]:
    """Every test below a folder as ``file::name``, with its docstring."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
                yield f"{path.relative_to(folder).as_posix()}::{node.name}", ast.get_docstring(node) or ""


@functools.cache
def by_row() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {number: [] for number in ROWS}
    for name, docstring in each_test(TESTS):
        for number in rows_named(docstring):
            assert number in found, f"{name} names row {number}, which does not exist"
            if name not in found[number]:  # classes that share a name share a line
                found[number].append(name)
    return found


def rows_of(page: str) -> list[tuple[int, Row]]:
    found = []
    for line in page.splitlines():
        if re.match(r"\| *\d+ *\|", line):
            number, fault, behaviour, shown = (cell.strip() for cell in line.strip().strip("|").split("|"))
            names = re.findall(r"`([^`]+::[^`]+)`", shown)
            note = re.sub(r"`[^`]+::[^`]+`(<br>)?", "", shown).strip()
            found.append((int(number), Row(fault, behaviour, names, note)))
    return found


def updated(page: str) -> str:
    """The page with the last column as it should be."""
    rows = dict(rows_of(page))
    lines = []
    for line in page.splitlines():
        if match := re.match(r"\| *(\d+) *\|", line):
            number = int(match[1])
            row = rows[number]
            cell = [f"`{name}`" for name in by_row()[number]] + [row.note] * bool(row.note)
            line = f"| {number} | {row.fault} | {row.behaviour} | {'<br>'.join(cell)} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_every_row_stands_there_once_and_in_order() -> None:
    assert [number for number, _ in rows_of(page())] == list(ROWS)


@pytest.mark.parametrize("number", ROWS)
def test_a_row_has_exactly_the_tests_that_name_it(number: int) -> None:
    row = dict(rows_of(page()))[number]
    expected = by_row()[number]
    missing, gone = set(expected) - set(row.tests), set(row.tests) - set(expected)
    assert not missing, f"not in row {number}: {sorted(missing)}; python -m tests.test_test_plan puts them there"
    assert not gone, f"row {number} names tests that do not exist, or do not name it: {sorted(gone)}"
    assert row.tests == expected, f"not in the order of the files: row {number}"


@pytest.mark.parametrize("number", ROWS)
def test_a_row_has_a_test_or_says_why_not(number: int) -> None:
    row = dict(rows_of(page()))[number]
    assert row.fault and row.behaviour
    assert row.tests or row.note, f"row {number} has neither"
    assert not row.note or REASON.fullmatch(row.note), f"row {number}: {row.note!r}"


def test_a_row_that_is_not_applicable_has_no_tests() -> None:
    assert [number for number, row in rows_of(page()) if row.tests and row.note.startswith("Not")] == []


def test_the_page_can_be_made_anew() -> None:
    assert updated(page()) == page()


@pytest.mark.parametrize(
    ("docstring", "rows"),
    [
        ("Row 5: the size.", {5}),
        ("Guarantee 5, rows 11, 18 and 19: nothing.", {11, 18, 19}),
        ("Rows 1 to 3, 7\nand 9, R10: over two lines", {1, 2, 3, 7, 9}),
        ("Rows 67-70: conflicts", {67, 68, 69, 70}),
        ("Row 2, in every order of 2 committers; row 4.", {2, 4}),
        ("Three rows of 12 names, throw 5.", set()),
    ],
    ids=["one", "some", "span", "dash", "apart", "none"],
)
def test_rows_are_read_from_a_docstring(docstring: str, rows: set[int]) -> None:
    assert rows_named(docstring) == rows


def test_a_test_that_is_new_or_gone_is_seen() -> None:
    without = page().replace("`engine/test_damage.py::test_tail_of_zeros_is_torn`<br>", "", 1)
    assert without != page()
    assert updated(without) == updated(page())
    other = page().replace("test_tail_of_zeros_is_torn", "test_that_is_not_there", 1)
    assert updated(other) == updated(page())


if __name__ == "__main__":
    PAGE.write_text(updated(page()), encoding="utf-8")
