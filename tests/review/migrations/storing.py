"""The state of each format as it was written once: one text file for each in ``stored``, and how to make a new one.

A line is a family, a key and a value, the last two in hex, with tabs between them; a family without rows has a line of
its own. The lines are sorted. Existing files are never written anew: they are what older programs have left on disks
that nobody can reach, and a change of code that changes them would be a change of a format without a version.

For a new format: add its version and content to `fixtures`, and run::

    python -m tests.review.migrations.storing
"""

from __future__ import annotations

from pathlib import Path

from tests.review.migrations.fixtures import FORMATS, Families, content_of

__all__ = ["STORED", "read_stored", "text_of", "write_missing"]

STORED = Path(__file__).parent / "stored"


def text_of(state: Families) -> str:
    lines = []
    for name, rows in state.items():
        lines += [f"{name}\t{key.hex()}\t{value.hex()}\n" for key, value in rows.items()] or [f"{name}\n"]
    return "".join(sorted(lines))


def read_stored(version: str) -> Families:
    """The state of this format, as it stands in its file."""
    state: Families = {}
    for line in (STORED / f"{version}.txt").read_text(encoding="utf-8").splitlines():
        name, *row = line.split("\t")
        rows = state.setdefault(name, {})
        if row:
            key, value = map(bytes.fromhex, row)
            rows[key] = value
    return state


def write_missing(directory: Path = STORED) -> list[str]:
    """Write the files that there are not, and return the versions that they are of."""
    missing = [version for version in FORMATS if not (directory / f"{version}.txt").exists()]
    for version in missing:
        (directory / f"{version}.txt").write_text(text_of(content_of(version)), encoding="utf-8", newline="\n")
    return missing


if __name__ == "__main__":
    print("written:", *(write_missing() or ["nothing"]))
