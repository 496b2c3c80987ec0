"""The README: its example runs, its two commands can be found, and every link of the documents leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.markdown import ROOT, anchors, fences, links

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_example_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    (example,) = (block.text for block in fences(README) if block.language == "python")
    (expected,) = (block.text for block in fences(README) if block.language == "text")
    for _ in range(2):  # a reader may run it twice
        ran = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{example}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.stdout, ran.stderr, ran.returncode) == (expected, "", 0)


def test_the_example_has_ten_lines() -> None:
    (example,) = (block.text for block in fences(README) if block.language == "python")
    assert len([line for line in example.splitlines() if line.strip()]) == 10


@pytest.mark.parametrize("name", ["demo", "tests"])
def test_each_command_is_there_once_and_is_one_line_that_starts_from_nothing(name: str) -> None:
    (command,) = (block.text for block in fences(README) if block.comment == f"command: {name}")
    assert command.count("\n") == 1
    assert command.startswith("python3 -m venv .venv && .venv/bin/python -m pip install ")


def test_the_commands_are_the_only_shell_blocks() -> None:
    assert [block.comment for block in fences(README) if block.language == "sh"] == ["command: demo", "command: tests"]


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    dead = [f"line {link.line}: {link.target}" for link in links(page) if not leads_somewhere(page, link.target)]
    assert not dead, f"{page.relative_to(ROOT)}: {dead}"


def leads_somewhere(page: Path, target: str) -> bool:
    if "://" in target:
        return True  # nothing here goes out to the network
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.is_relative_to(ROOT) or not file.exists():
        return False
    return not anchor or (file.suffix == ".md" and anchor in anchors(file))


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    assert leads_somewhere(README, "LICENSE")
    assert not leads_somewhere(README, "LICENSE-2")
    assert not leads_somewhere(README, "#no-such-heading")
    assert not leads_somewhere(README, str(tmp_path))


def test_every_page_of_the_documents_can_be_reached_from_the_readme() -> None:
    reached, ahead = set(), [README]
    while ahead:
        page = ahead.pop()
        if page in reached or not page.exists():
            continue
        reached.add(page)
        ahead += [
            (page.parent / link.target.partition("#")[0]).resolve() for link in links(page) if ".md" in link.target
        ]
    lost = set(PAGES) - reached
    assert not lost, sorted(str(page.relative_to(ROOT)) for page in lost)
