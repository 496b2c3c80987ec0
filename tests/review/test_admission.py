"""Which tables have the generic operations: those whose classes inherit them, and nobody else, for mypy too."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import pystate
from pystate.review.agent import Agents
from pystate.review.core_component import CoreComponents
from pystate.review.deletion_job import CustomerDataDeletionJobs
from pystate.review.external_service import ExternalServices
from pystate.review.operation_attempt import OPERATION_ATTEMPTS, OperationAttempt
from pystate.review.operation_attempts import OperationAttempts
from pystate.tables import Bound, Key, Readable, Scannable, Schema, Table, Writable, rest_text
from tests.sources import ROOT

READS = {"get", "lookup", "find", "between"}
SCANS = {"iter", "iter_results"}
WRITES = {
    "put", "insert", "update", "insert_many", "update_compare_many", "replace_all", "delete", "delete_row",
    "rebuild_indexes",
}  # fmt: skip
GENERIC = READS | SCANS | WRITES

with_everything = pytest.mark.parametrize(
    "table", [CoreComponents, Agents, ExternalServices, CustomerDataDeletionJobs], ids=lambda table: table.__name__
)


def public(table: type) -> set[str]:
    return {name for name in dir(table) if not name.startswith("_")}


@with_everything
def test_plain_tables_have_all_generic_operations(table: type) -> None:
    """Check R21: the second half, so that the first one is about something."""
    assert public(table) >= GENERIC
    assert "prefix" in inspect.signature(table.iter).parameters  # type: ignore[attr-defined]


def test_the_ledger_has_none_of_the_generic_writes_and_scans() -> None:
    """Check R21: no put, insert, update or many of them, no scan of a prefix; what it has is its own."""
    assert public(OperationAttempts) & GENERIC == {"get", "delete", "rebuild_indexes"} | SCANS
    for name in ("get", "delete", "rebuild_indexes", *SCANS):
        assert name in vars(OperationAttempts), f"{name} is inherited"
    for name in SCANS:
        assert set(inspect.signature(getattr(OperationAttempts, name)).parameters) == {"self", "reverse", "seek"}
    assert not issubclass(OperationAttempts, Readable | Scannable | Writable)


def test_the_ledger_cannot_be_bound_as_another_table() -> None:
    """Check R21: a generic table of attempts is refused, and their schema cannot be bound."""
    with pytest.raises(TypeError, match="OperationAttempts"):
        Table(OperationAttempt, family=OPERATION_ATTEMPTS.family, key=OPERATION_ATTEMPTS.key)
    assert not hasattr(OPERATION_ATTEMPTS, "bind")


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A record type that is new here."""

    name: str


NOTES = Schema(Note, family="notes", key=Key(name=rest_text))


class Notes(Bound[Note]):
    """Its table, which admits nothing."""


class ReadableNotes(Readable[Note]):
    """Another one, which admits reading by key."""


def test_a_new_table_has_no_generic_operation_unless_it_inherits_it() -> None:
    """Check R22: no iteration, and no writes, of a type that nobody has admitted."""
    store = pystate.memory(families=["notes"])
    assert public(Notes) == set()
    assert public(ReadableNotes) & GENERIC == READS
    for table in (Notes(NOTES, store), ReadableNotes(NOTES, store)):
        for name in SCANS | WRITES:
            assert not hasattr(table, name)


# ---- for the type checker -------------------------------------------------------------------------------------------

ATTEMPTS_SNIPPET = """\
def write(attempts: OperationAttempts, attempt: OperationAttempt) -> None:
    attempts.put(attempt)  # error: "OperationAttempts" has no attribute "put"
    attempts.insert(attempt)  # error: "OperationAttempts" has no attribute "insert"
    attempts.update(attempt, attempt)  # error: "OperationAttempts" has no attribute "update"
    attempts.replace_all([attempt])  # error: "OperationAttempts" has no attribute "replace_all"
    attempts.iter(prefix=b"op")  # error: Unexpected keyword argument "prefix" for "iter" of "OperationAttempts"
    OPERATION_ATTEMPTS.bind  # error: "Schema[OperationAttempt]" has no attribute "bind"
    attempts.upsert(attempt)

def scan(notes: Notes, readable: ReadableNotes, note: Note) -> None:
    notes.iter()  # error: "Notes" has no attribute "iter"
    notes.get("a")  # error: "Notes" has no attribute "get"
    readable.iter()  # error: "ReadableNotes" has no attribute "iter"
    readable.put(note)  # error: "ReadableNotes" has no attribute "put"
    readable.get("a")
"""
TABLES_SNIPPET = """\
def components(table: CoreComponents, agents: Agents, jobs: CustomerDataDeletionJobs) -> None:
    reveal_type(table.get("roxyd", "host"))  # note: Revealed type is "CoreComponent | None"
    reveal_type(list(agents.iter(prefix=(1,))))  # note: Revealed type is "list[Agent]"
    reveal_type(jobs.get(7))  # note: Revealed type is "CustomerDataDeletionJob | None"
    table.get("roxyd")  # error: Missing positional argument "host" in call to "get" of "CoreComponents"
    agents.get("1", "001.piglet")  # error: Argument 1 to "get" of "NodePackages" has incompatible type "str"
    jobs.get("7")  # error: Argument 1 to "get" of "CustomerDataDeletionJobs" has incompatible type "str"
    agents.delete(1)  # error: Missing positional argument "key" in call to "delete" of "NodePackages"
    agents.delete(1, "001.piglet")
    agents.delete_row(b"key")
    jobs.delete_row(b"key")
    for component in table.iter():
        agents.put(component)  # error: Argument 1 to "put" of "Writable" has incompatible type "CoreComponent"

def configs(agent: Agent, text: str) -> Agent:
    length = len(agent.config or "")
    return Agent(
        node_id=1,
        key="001.piglet",
        kind=agent.kind,
        status=agent.status,
        config=text,  # error: Argument "config" to "Agent" has incompatible type "str"; expected "Config | None"
        draft=Config(text),
        installed_version=None,
        installed_commit=None,
        lifecycle=Lifecycle.from_stored_index(length),
        bound_addrs=(),
    )
"""
IMPORTS = """\
from pystate.review.agent import Agent, Agents
from pystate.review.core_component import CoreComponents
from pystate.review.deletion_job import CustomerDataDeletionJobs
from pystate.review.lifecycle import Lifecycle
from pystate.review.operation_attempt import OPERATION_ATTEMPTS, OperationAttempt
from pystate.review.operation_attempts import OperationAttempts
from pystate.review.packages import Config
from tests.review.test_admission import Note, Notes, ReadableNotes

"""


def test_mypy_says_what_a_table_does_not_have(tmp_path: Path) -> None:
    """Check R21, Check R22: nothing but the expected lines, each with the expected error."""
    program = IMPORTS + ATTEMPTS_SNIPPET + "\n" + TABLES_SNIPPET
    path = tmp_path / "snippet.py"
    path.write_text(program, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-pretty", "--no-error-summary", str(path)],
        cwd=ROOT,  # where the settings and the cache are
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    found = [
        (int(line), f"{kind}: {text}")
        for line, kind, text in re.findall(r"snippet\.py:(\d+): (error|note): (.*)", ran.stdout)
        if kind == "error" or text.startswith("Revealed")  # other notes say where something is declared
    ]
    expected = [
        (number, line.partition("  # ")[2])
        for number, line in enumerate(program.splitlines(), 1)
        if re.search("  # (error|note): ", line)
    ]
    assert [line for line, _ in found] == [line for line, _ in expected], ran.stdout
    for (_, said), (_, text) in zip(found, expected, strict=True):
        assert re.sub(r"pystate\.review\.\w+\.", "", said).startswith(text)
