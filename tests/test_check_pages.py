"""The tables of acceptance checks are complete: each check once, and with it every test whose docstring names it.

A docstring names checks as in ``Check R5: ...`` or ``Checks E1 to E3, E7 and E9``; ``R`` stands for the review state,
``E`` for effects. The tables are made of these, by ``python -m tests.test_check_pages``.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.markdown import ROOT
from tests.test_test_plan import TESTS, each_test

REFERENCE = ROOT / "docs" / "reference"

NAMED = re.compile(r"\b[Cc]hecks?\s+([RE]\d+(?:(?:,\s+and\s+|,\s+|\s+and\s+|\s+to\s+|-)[RE]?\d+)*)")
SPAN = re.compile(r"(\d+)(?:\s+to\s+|-)[RE]?(\d+)")


class Checks(NamedTuple):
    """The checks of one subject.

    Attributes:
        letter: that stands before their numbers.
        file: of the page.
        title: of the page.
        about: what it says before the tables.
        groups: headings, each with the number of its last check.
        notes: why there is no test, for checks without one.
    """

    letter: str
    file: str
    title: str
    about: str
    groups: dict[str, int]
    notes: dict[int, str]


REVIEW = Checks(
    "R",
    "review-checks.md",
    "Acceptance checks of the review state",
    "What `pystate.review`, and `pystate.tables` and `pystate.formats` below it, must do, in numbered checks, and the "
    "tests that show it.\nThe number stands in the docstring of each test, with what the check is about.",
    {
        "Engine, tables, retries": 25,
        "Indexed collections": 45,
        "Operation attempts: encoding": 55,
        "Operation attempts: upsert, get, iterate, delete": 76,
        "Single flight": 84,
        "Expiry and owed cleanup": 97,
        "Retention": 109,
        "Lifecycles and core components": 124,
        "Agents and external services": 133,
        "Nodes": 152,
        "Customer data deletion jobs": 164,
        "Families and opening": 169,
        "Version markers": 185,
        "Migrations": 221,
        "Backups and rollback": 230,
    },
    {},
)
EFFECTS = Checks(
    "E",
    "effect-checks.md",
    "Acceptance checks of effects",
    "What `pystate.effects` must do, in numbered checks, and the tests that show it.\nThe number stands in the "
    "docstring of each test, with what the check is about.",
    {
        "Identity": 12,
        "Kinds and failures": 17,
        "State machine": 26,
        "Record: leases": 41,
        "Record: apply": 67,
        "Store": 86,
        "Audit trail": 88,
        "Contracts and schemas": 102,
        "Retry arithmetic": 107,
        "Running effects": 141,
        "Recovery and operators": 149,
        "Compensation": 155,
        "Retention, redaction, fingerprints, observers": 162,
        "Crash matrix": 176,
    },
    {},
)
SUBJECTS = [REVIEW, EFFECTS]
ALL = [(subject, number) for subject in SUBJECTS for number in range(1, max(subject.groups.values()) + 1)]
IDS = [f"{subject.letter}{number}" for subject, number in ALL]


def checks_named(docstring: str) -> set[tuple[str, int]]:
    """The checks that a docstring names, as letter and number."""
    found: set[tuple[str, int]] = set()
    for match in NAMED.finditer(docstring):
        letter = match[1][0]
        for first, last in SPAN.findall(match[1]):
            found |= {(letter, number) for number in range(int(first), int(last) + 1)}
        found |= {(letter, int(number)) for number in re.findall(r"\d+", match[1])}
    return found


@functools.cache
def by_check() -> dict[tuple[str, int], list[str]]:
    """The tests of each check."""
    known = {(subject.letter, number) for subject, number in ALL}
    found: dict[tuple[str, int], list[str]] = {check: [] for check in known}
    for name, docstring in each_test(TESTS):
        if name.startswith("test_check_pages.py"):
            continue
        for check in checks_named(docstring):
            assert check in found, f"{name} names check {check[0]}{check[1]}, which does not exist"
            if name not in found[check]:
                found[check].append(name)
    return found


def page_of(subject: Checks) -> str:
    """The text of a page."""
    lines = [f"# {subject.title}", "", subject.about]
    first = 1
    for heading, last in subject.groups.items():
        lines += ["", f"## {heading}", "", "| check | tests |", "|---|---|"]
        for number in range(first, last + 1):
            cell = [f"`{name}`" for name in by_check()[subject.letter, number]]
            lines.append(f"| {subject.letter}{number} | {'<br>'.join(cell) or subject.notes.get(number, '')} |")
        first = last + 1
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("subject", "number"), ALL, ids=IDS)
def test_a_check_has_a_test_or_says_why_not(subject: Checks, number: int) -> None:
    assert bool(by_check()[subject.letter, number]) != (number in subject.notes)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.letter)
def test_the_page_names_exactly_the_tests_that_name_the_checks(subject: Checks) -> None:
    assert path_of(subject).read_text(encoding="utf-8") == page_of(subject), "run python -m tests.test_check_pages"


@pytest.mark.parametrize(
    ("docstring", "checks"),
    [
        ("Check R5: the size.", {("R", 5)}),
        ("Checks R21 and R22, for tables.", {("R", 21), ("R", 22)}),
        ("Checks E1 to E3, E7\nand E9: over two lines", {("E", 1), ("E", 2), ("E", 3), ("E", 7), ("E", 9)}),
        ("Check the row R5.", set()),
    ],
    ids=["one", "two", "span", "none"],
)
def test_checks_are_read_from_a_docstring(docstring: str, checks: set[tuple[str, int]]) -> None:
    assert checks_named(docstring) == checks


def path_of(subject: Checks) -> Path:
    return REFERENCE / subject.file


if __name__ == "__main__":
    for each in SUBJECTS:
        path_of(each).write_text(page_of(each), encoding="utf-8")
