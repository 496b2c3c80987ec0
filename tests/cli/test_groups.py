"""Commands that have commands below them: each of these explains itself, and is in the reference with its options."""

from __future__ import annotations

import argparse
import re
from typing import Any

import pytest

from pystate.cli.arguments import build_parser
from tests.cli.running import run
from tests.markdown import ROOT

GROUPS = {
    "review": ["list", "show", "sweep", "prune"],
    "effects": ["list", "pending", "show", "events", "resolve", "approve", "deny", "recover", "prune"],
    "backup": ["create", "list", "verify", "restore", "purge"],
}


def below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands below one."""
    found: list[Any] = [each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(found[0]) if found else {}


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_of_a_group_and_its_options_are_in_the_reference(group: str) -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for name, parser in below(below(build_parser())[group]).items():
        section = re.search(rf"^### {group} {name}\n(.*?)^##", page, re.MULTILINE | re.DOTALL)
        assert section, f"no section '{group} {name}'"
        synopsis = section[1].strip().split("\n\n")[0]
        options = {option for each in parser._actions for option in each.option_strings} - {"-h", "--help"}
        assert options == set(re.findall(r"--[\w-]+", synopsis)), name


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_of_a_group_explains_itself(group: str) -> None:
    assert list(below(below(build_parser())[group])) == GROUPS[group]
    for name in GROUPS[group]:
        assert f"pystate {group} {name}" in run(group, name, "--help").text


def test_there_are_no_other_groups() -> None:
    assert {name for name, parser in below(build_parser()).items() if below(parser)} == set(GROUPS)
