"""The input of the demo: the packages installed in the running Python, and what a commit writes about each.

One commit writes one package in one round: a record in the family ``packages`` and a record for each of its files in
the family ``files``, all of them or none::

    packages   0001/rich                     {"version":"13.9.4","files":77,"bytes":1061823}
    files      0001/rich/rich/console.py     {"bytes":99173}

The round stands in the key, so nothing is ever overwritten: whatever was acknowledged must be found again, word for
word. :func:`entries_of_commit` is a pure function, so the process that checks can work out by itself what the process
that wrote should have written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import metadata

import msgspec

__all__ = ["FAMILIES", "FILES", "FILES_MAX", "PACKAGES", "Package", "entries_of_commit", "installed_packages"]

PACKAGES, FILES = "packages", "files"
FAMILIES = (PACKAGES, FILES)
"""The families that the demo writes, besides ``default``."""

FILES_MAX = 20_000
"""Reading packages stops with the one that brings their files to this number, so that the demo stays short."""


class Package(msgspec.Struct, frozen=True):
    """An installed package.

    Attributes:
        name: the name of the distribution.
        version: its version.
        files: path (as its installer recorded it) and size in bytes of each file; the size is None where it is not
            recorded and the file is not there.
    """

    name: str
    version: str
    files: tuple[tuple[str, int | None], ...]

    @property
    def bytes(self) -> int:
        """The sizes of all files together, in bytes."""
        return sum(size or 0 for _, size in self.files)


def installed_packages(*, files_max: int = FILES_MAX) -> tuple[Package, ...]:
    """Read the installed packages, sorted by name, through :mod:`importlib.metadata`.

    Args:
        files_max: stop with the package that brings the number of files to this.

    Returns:
        The packages; where a name is installed twice, the one that would be imported.
    """
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a broken installation can be without
            found.setdefault(_clean(name).replace("/", "_"), distribution)
    packages: list[Package] = []
    files = 0
    for name in sorted(found):
        package = Package(name, _clean(found[name].version or "unknown"), tuple(_files_of(found[name])))
        packages.append(package)
        files += len(package.files)
        if files >= files_max:
            break
    return tuple(packages)


def _files_of(distribution: metadata.Distribution) -> Iterable[tuple[str, int | None]]:
    sizes: dict[str, int | None] = {}
    for path in distribution.files or ():
        size = path.size
        if size is None:  # not recorded, as for compiled files
            try:
                size = os.stat(path.locate()).st_size
            except OSError:
                size = None
        sizes[_clean(path.as_posix())] = size
    return sizes.items()


def _clean(text: str) -> str:
    """Return the text as valid Unicode, whatever stands in the metadata."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def entries_of_commit(package: Package, round_number: int) -> dict[str, dict[bytes, bytes]]:
    """Work out what the commit of a package in a round writes: keys and values, by family.

    Args:
        package: the package.
        round_number: from 1; the writer starts over when it has written every package.
    """
    prefix = f"{round_number:04d}/{package.name}"
    summary = {"version": package.version, "files": len(package.files), "bytes": package.bytes}
    encode = msgspec.json.encode
    return {
        PACKAGES: {prefix.encode(): encode(summary)},
        FILES: {f"{prefix}/{path}".encode(): encode({"bytes": size}) for path, size in package.files},
    }
