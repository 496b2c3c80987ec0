"""Paths of the simulated disk: absolute, with ``/``, whatever the system underneath."""

from __future__ import annotations

__all__ = ["join", "normal", "split"]


def split(path: str) -> tuple[str, str]:
    """The directory that holds `path`, and its name there."""
    directory, _, name = path.rpartition("/")
    return directory or "/", name


def join(directory: str, name: str) -> str:
    """The path of `name` in `directory`; an absolute `name` stands for itself."""
    if name.startswith("/"):
        return name
    return directory + name if directory.endswith("/") else f"{directory}/{name}"


def normal(path: str) -> str:
    """An absolute path without ``.``, ``..`` and doubled slashes."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
