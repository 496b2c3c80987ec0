"""Reads just enough Markdown to test the documents: fenced blocks, headings and links.

Only what the documents of this project use is understood: fences of three or more backticks, headings with ``#``,
inline links.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Fence", "Link", "anchors", "fences", "links"]

#: The root of the checkout.
ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w+-]*)[^`]*$")
COMMENT = re.compile(r"^ *<!-- (?P<text>.*?) -->$")
HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *#*$")
LINK = re.compile(r"\[(?:[^\]`]|`[^`]*`)*\]\((?P<target>[^)\s]+)[^)]*\)")


@dataclass(frozen=True)
class Fence:
    """A fenced block.

    Attributes:
        language: what stands behind the opening backticks.
        text: the lines between the fences, dedented.
        line: the number of the first of these lines in the page.
        comment: the text of the HTML comment right above the block, or "".
    """

    language: str
    text: str
    line: int
    comment: str


@dataclass(frozen=True)
class Link:
    """An inline link: where it stands and what it points to."""

    line: int
    target: str


def fences(page: Path) -> list[Fence]:
    """All fenced blocks of a page, in order.

    Raises:
        ValueError: if the last block has no end.
    """
    return [block for block in _parts(page) if isinstance(block, Fence)]


def links(page: Path) -> list[Link]:
    """All inline links of a page that stand outside fenced blocks and code spans."""
    return [
        Link(number, match["target"])
        for number, line in _prose(page)
        for match in LINK.finditer(re.sub(r"(?<!\[)`[^`]*`(?!\])", "", line))
    ]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them of the text."""
    found: dict[str, int] = {}
    result = set()
    for _, line in _prose(page):
        if match := HEADING.match(line):
            slug = re.sub(r"[^\w\- ]", "", match["text"].lower()).replace(" ", "-")
            count = found.get(slug, 0)
            found[slug] = count + 1
            result.add(slug if count == 0 else f"{slug}-{count}")
    return result


def _prose(page: Path) -> list[tuple[int, str]]:
    return [part for part in _parts(page) if not isinstance(part, Fence)]


def _parts(page: Path) -> Iterator[Fence | tuple[int, str]]:
    """A page as its fenced blocks and the numbered lines between them."""
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    comment = ""
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            above = COMMENT.match(line)
            comment = above["text"] if above else ""
            yield number, line
            continue
        inside = []
        for _, body in lines:
            if body.strip() == opening["ticks"]:
                break
            inside.append(body)
        else:
            raise ValueError(f"{page}:{number}: this block has no end")
        text = textwrap.dedent("".join(f"{body}\n" for body in inside))
        yield Fence(opening["language"], text, number + 1, comment)
        comment = ""
