"""The names of the files in a store directory. Nothing else builds or parses a file name.

==============================  =====================================================================================
``LOCK``                        the lock file; losing it costs nothing while no store is open
``<sequence>.snapshot``         every family as of that sequence; losing the newest one loses the store
``<first>.log``                 a segment of the log, holding the commits from that sequence on
``<first>.closed``              the newest segment after a clean close: it must end with a closing frame
``*.torn``                      bytes that recovery cut off and kept aside; may be deleted by hand
``*.tmp``                       an unfinished file; ignored, and removed by the next opening for writing
==============================  =====================================================================================

Sequences are written with 20 decimal digits, so that names sort as numbers do.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pystate.engine.files import TEMPORARY_SUFFIX

__all__ = [
    "CLOSED_SUFFIX",
    "LOCK_NAME",
    "LOG_SUFFIX",
    "SNAPSHOT_SUFFIX",
    "TORN_SUFFIX",
    "FileName",
    "parse_name",
    "segment_name",
    "snapshot_name",
]

LOCK_NAME = "LOCK"
SNAPSHOT_SUFFIX = ".snapshot"
LOG_SUFFIX = ".log"
CLOSED_SUFFIX = ".closed"
TORN_SUFFIX = ".torn"

_NUMBERED = re.compile(r"([0-9]{20})(\.snapshot|\.log|\.closed)")
_KINDS = {SNAPSHOT_SUFFIX: "snapshot", LOG_SUFFIX: "segment", CLOSED_SUFFIX: "segment"}


class FileName(NamedTuple):
    """A parsed file name.

    Attributes:
        name: the name itself.
        kind: ``"snapshot"``, ``"segment"``, ``"lock"``, ``"temporary"``, ``"torn"`` or ``"foreign"``.
        sequence: of a snapshot the last sequence it holds, of a segment the first; 0 for every other kind.
        closed: a segment that was closed cleanly.
    """

    name: str
    kind: str
    sequence: int = 0
    closed: bool = False


def snapshot_name(sequence: int) -> str:
    """The name of the snapshot that holds everything up to `sequence`."""
    return f"{sequence:020d}{SNAPSHOT_SUFFIX}"


def segment_name(first: int, *, closed: bool = False) -> str:
    """The name of the segment whose first commit is, or will be, `first`."""
    return f"{first:020d}{CLOSED_SUFFIX if closed else LOG_SUFFIX}"


def parse_name(name: str) -> FileName:
    """Say what a file in a store directory is, by its name alone."""
    if numbered := _NUMBERED.fullmatch(name):
        digits, suffix = numbered.groups()
        return FileName(name, _KINDS[suffix], int(digits), suffix == CLOSED_SUFFIX)
    if name == LOCK_NAME:
        return FileName(name, "lock")
    if name.endswith(TEMPORARY_SUFFIX):
        return FileName(name, "temporary")
    if name.endswith(TORN_SUFFIX):
        return FileName(name, "torn")
    return FileName(name, "foreign")
