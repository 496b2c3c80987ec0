"""The reference pages that are made of docstrings are up to date, and leave nothing out."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tests.reference_pages import PAGES, REFERENCE, markdown, page_of


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_docstrings_say(name: str) -> None:
    page = REFERENCE / PAGES[name][0]
    assert page.read_text(encoding="utf-8") == page_of(name), "run python -m tests.reference_pages"


@pytest.mark.parametrize("name", PAGES)
def test_every_public_name_says_what_it_is(name: str) -> None:
    package = importlib.import_module(name)
    page = page_of(name)
    silent = []
    for each in package.__all__:
        value = getattr(package, each)
        if getattr(value, "__module__", "") == "pystate.errors":
            continue
        assert f"\n### {each}\n" in page, each
        if not page.split(f"\n### {each}\n")[1].split("\n#")[0].strip():
            silent.append(each)
        if inspect.isclass(value) and not value.__doc__:
            silent.append(each)
    assert not silent, "these have no docstring"


DOCSTRING = """\
First ``line``::

    code

    more

Then.

Raises:
    KeyError: none,
        really. ValueError, TypeError: `x`.
"""


def test_sections_lists_and_blocks_become_markdown() -> None:
    assert markdown(DOCSTRING) == [
        "First `line`:", "", "```text", "code", "", "more", "```", "", "Then.", "", "**Raises**", "",
        "- `KeyError`: none, really.", "- `ValueError`, `TypeError`: `x`.",
    ]  # fmt: skip
