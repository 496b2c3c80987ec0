"""Looking at a store's directory from outside: what is in it, and whether a single byte of it has changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pystate

LOCK = "LOCK"


def fingerprint(path: Path) -> dict[str, str]:
    """Every name below `path` with a hash of its content.

    The lock file is left out: whoever opens for writing may create it and note his process id in it.
    """
    if not path.is_dir():
        return {"": _hash(path)}
    return {str(entry.relative_to(path)): _hash(entry) for entry in sorted(path.rglob("*")) if entry.name != LOCK}


def _hash(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if path.is_dir():
        return "directory"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "nothing"


def names(path: Path, suffix: str) -> list[str]:
    """The names in a directory that end in `suffix`, in order."""
    return sorted(entry.name for entry in path.iterdir() if entry.name.endswith(suffix))


def contents(path: Path) -> dict[str, dict[bytes, bytes]]:
    """Everything in the store at `path`, read without opening it for writing."""
    with pystate.open(str(path), read_only=True) as store:
        return {name: dict(store.family(name)) for name in store.families}
