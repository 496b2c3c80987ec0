"""The reader of Markdown that the tests of the documents stand on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.markdown import Fence, Link, anchors, fences, links

PAGE = """\
# One `word`, and *more*!

Text with [a link](other.md#part) and `[no](link)`, [`code`](x.md).

<!-- command: demo -->
```sh
run [not](a-link)
# not a heading
```

- in a list:

  ```python
  if x:
      y
  ```

## Twice
## Twice
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    return path


def test_fences_are_found_with_language_line_and_the_comment_above(page: Path) -> None:
    assert fences(page) == [
        Fence("sh", "run [not](a-link)\n# not a heading\n", 7, "command: demo"),
        Fence("python", "if x:\n    y\n", 14, ""),
    ]


def test_links_are_found_outside_blocks_and_code_only(page: Path) -> None:
    assert links(page) == [Link(3, "other.md#part"), Link(3, "x.md")]


def test_anchors_are_made_of_headings_and_numbered_when_they_repeat(page: Path) -> None:
    assert anchors(page) == {"one-word-and-more", "twice", "twice-1"}


def test_a_fence_without_an_end_is_an_error(page: Path) -> None:
    page.write_text("```sh\nrun\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page\.md:1: this block has no end"):
        fences(page)
