"""Tables that several tests use, and a store for them."""

from __future__ import annotations

import msgspec

import pystate
from pystate import Store
from pystate.tables import Index, Key, Table, int64, text

__all__ = ["FAMILY", "JOBS", "NOTES", "Job", "Note", "new_store"]

FAMILY = "rows"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A record without indexes."""

    name: str
    text: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A record with two indexes: one running job for each machine, and all jobs by rank."""

    name: str
    machine: str = "m"
    rank: int = 0
    running: bool = False


NOTES = Table(Note, family=FAMILY, key=Key(name=text))
JOBS = Table(
    Job,
    family=FAMILY,
    key=Key(name=text),
    indexes=[
        Index("running", tag=0xF8, key=Key(machine=text), unique=True, condition=lambda job: job.running),
        Index("rank", tag=0xFF, key=Key(rank=int64)),
    ],
)


def new_store() -> Store:
    """An empty store in memory that has the family."""
    return pystate.memory(families=[FAMILY])
