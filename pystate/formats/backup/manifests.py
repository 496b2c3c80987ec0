"""The files of a repository of backups: their names, and what stands in a manifest.

====================  ================================================================================================
``LOCK``              the lock file of those who make or remove backups
``<id>.backup``       a manifest: that there is a backup with this id, and in which content file it is
``<id>.content``      a snapshot of the whole store, written for the backup with this id; later ones of the same state
                      share it
``*.tmp``             an unfinished file; ignored, and removed by the next call that makes or removes backups
====================  ================================================================================================

Ids are written with 20 decimal digits, so that names sort as numbers do. A content file that no manifest names belongs
to a backup that was not finished: ignored, and removed like ``*.tmp``.

A manifest is two lines of text: the fields of `Manifest` as one JSON object, and the CRC-32 of that line (its line end
left out) as eight hex digits. So it can be read with the eye, and every byte of it is covered, line ends too. No name
of a repository is one that a store uses, so neither is taken for the other.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, NamedTuple
from zlib import crc32

import msgspec

from pystate.engine.files import TEMPORARY_SUFFIX
from pystate.errors import CorruptionError, UnsupportedFormatError

__all__ = [
    "ID_MAX",
    "MANIFEST_BYTES_MAX",
    "MANIFEST_FORMAT",
    "Manifest",
    "RepositoryName",
    "content_name",
    "decode_manifest",
    "encode_manifest",
    "manifest_name",
    "parse_name",
]

MANIFEST_FORMAT = 1
"""The version of the format of manifests."""

MANIFEST_BYTES_MAX = 4096
"""A manifest is never larger."""

ID_MAX = 2**63 - 1
"""No backup has a higher id; a file with a higher number in its name is not one of ours."""

_SUFFIXES = {".backup": "manifest", ".content": "content"}
_NUMBERED = re.compile(r"([0-9]{20})(\.backup|\.content)")


class RepositoryName(NamedTuple):
    """A parsed file name.

    Attributes:
        name: the name itself.
        kind: ``"manifest"``, ``"content"``, ``"lock"``, ``"temporary"`` or ``"foreign"``.
        id: of a manifest or a content file; 0 for every other kind.
    """

    name: str
    kind: str
    id: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in a manifest.

    Attributes:
        format: `MANIFEST_FORMAT`.
        id: of the backup.
        timestamp: when it was made, in UTC.
        store_id, sequence: of the state in it.
        content: the id in the name of its content file.
        size, digest: of that file.
    """

    format: int
    id: Annotated[int, msgspec.Meta(ge=1)]
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)]
    store_id: str
    sequence: int
    content: Annotated[int, msgspec.Meta(ge=1)]
    size: int
    digest: str


class _Format(msgspec.Struct):
    """The one field that is read before the others."""

    format: int


_encode = msgspec.json.Encoder().encode
_decode_format = msgspec.json.Decoder(_Format).decode
_decode_manifest = msgspec.json.Decoder(Manifest).decode


def manifest_name(backup_id: int) -> str:
    """The name of the manifest of a backup."""
    return f"{backup_id:020d}.backup"


def content_name(backup_id: int) -> str:
    """The name of the content file that was written for a backup."""
    return f"{backup_id:020d}.content"


def parse_name(name: str) -> RepositoryName:
    """Say what a file in a repository is, by its name alone."""
    if (numbered := _NUMBERED.fullmatch(name)) and 1 <= int(numbered[1]) <= ID_MAX:
        return RepositoryName(name, _SUFFIXES[numbered[2]], int(numbered[1]))
    if name == "LOCK":
        return RepositoryName(name, "lock")
    return RepositoryName(name, "temporary" if name.endswith(TEMPORARY_SUFFIX) else "foreign")


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest."""
    line = _encode(manifest)
    return line + b"\n%08x\n" % crc32(line)


def decode_manifest(path: str, backup_id: int, data: bytes) -> Manifest:
    """What stands in a manifest.

    Arguments:
        path: the file, for errors.
        backup_id: the id in its name.
        data: its content.

    Raises:
        CorruptionError: it is damaged, or that of another backup. UnsupportedFormatError: written by a newer pystate.
    """
    line, _, checksum = data.partition(b"\n")
    if checksum != b"%08x\n" % crc32(line):
        expected = "a line of JSON, and a line with its checksum"
        raise CorruptionError(path, expected=expected, found=f"{len(data)} bytes that are not")
    try:
        found = _decode_format(line).format
        if found > MANIFEST_FORMAT:
            raise UnsupportedFormatError(path, found=found, supported=MANIFEST_FORMAT)
        manifest = _decode_manifest(line)
    except msgspec.MsgspecError as error:
        raise CorruptionError(path, expected="the fields of a manifest", found=str(error)) from error
    if manifest.id != backup_id:
        raise CorruptionError(
            path, expected=f"the manifest of backup {backup_id}", found=f"that of backup {manifest.id}"
        )
    return manifest
