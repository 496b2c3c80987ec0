"""The reference of `pystate.testing` says what the code says: every name, every signature, every field."""

from __future__ import annotations

import enum
import errno
import functools
import inspect
import re
from typing import Any

import pytest

from pystate import testing
from tests.markdown import ROOT, fences
from tests.test_reference import Quotation, describe, member, public, rows, sections, without_any_defaults

PAGE = ROOT / "docs" / "reference" / "testing.md"

CLASSES = {name: thing for name in testing.__all__ if inspect.isclass(thing := getattr(testing, name))}
FUNCTIONS = {name for name in testing.__all__ if inspect.isfunction(getattr(testing, name))}

#: Made by those who use them, with arguments; the others are made by pystate.
MADE_BY_USERS = {"SimulatedDisk", "Fault", "Recorder", "Scenario", "YieldingFiles"}

#: The methods of the protocol, which the API page documents.
SEAM = {
    "open_read", "open_append", "create", "replace", "unlink", "list_directory", "kind", "make_directory",
    "sync_directory", "lock", "absolute", "parent", "join", "random_bytes", "clock",
}  # fmt: skip

#: For other modules of the package.
INTERNAL = {
    "SimulatedDisk": {"of", "recorded", "tree"},
    "CrashStates": {"sampled"},
    "Fault": {"hits", "strike"},
}

#: What a signature may name as a default.
DEFAULTS = {"Level": testing.Level, "errno": errno, "open_quietly": testing.open_quietly}

#: Named tuples and records whose fields stand in a table with their types.
RECORDS = ["Operation", "CheckReport", "Call", "Explored"]


def parse(text: str) -> Quotation:
    namespace: dict[str, Any] = dict(DEFAULTS)
    exec(f"from __future__ import annotations\ndef quotation{text}: ...", namespace)
    return describe(namespace["quotation"])


@functools.cache
def quoted() -> dict[str, Quotation]:
    """The signatures that stand in the page, by dotted name; that of the package is left out."""
    found: dict[str, Quotation] = {}
    for block in fences(PAGE):
        if block.language == "text":
            for statement in re.split(r"\n(?=[A-Za-z])", block.text.strip()):
                dotted = re.match(r"[\w.]+", statement)
                assert dotted, f"{PAGE.name}:{block.line}: not a signature: {statement}"
                name = dotted[0].removeprefix("pystate.testing.")
                assert name not in found, f"{PAGE.name}:{block.line}: {name} is quoted twice"
                found[name] = parse(statement[dotted.end() :])
    return found


def mentioned() -> set[str]:
    """The words in code spans, blocks and headings of the page, dotted names taken apart."""
    text = PAGE.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    code = [*re.findall(r"`([^`]+)`", prose), *re.findall(r"^#+ .*$", prose, re.MULTILINE)]
    return set(re.findall(r"\w+", " ".join(code + [block.text for block in fences(PAGE)])))


def find(dotted: str) -> object:
    owner, _, name = dotted.partition(".")
    return member(CLASSES[owner], name) if name else getattr(testing, owner)


def members(name: str) -> set[str]:
    """What a user may do with an object of this class, or read from it, that a standard class does not have."""
    owner = CLASSES[name]
    inherited = {each for base in (tuple, AssertionError, enum.Enum) if issubclass(owner, base) for each in dir(base)}
    return public(owner) - inherited - SEAM - INTERNAL.get(name, set())


@pytest.mark.parametrize("dotted", sorted(quoted()))
def test_a_quoted_signature_is_that_of_the_code(dotted: str) -> None:
    quotation = quoted()[dotted]
    described = describe(find(dotted))
    described = described._replace(returns=str(described.returns))  # a data class has None itself, not its name
    assert quotation == without_any_defaults(described, like=quotation)


def test_every_name_has_a_heading_or_stands_under_one() -> None:
    missing = set(testing.__all__) - mentioned()
    assert not missing, f"not in {PAGE.name}: {sorted(missing)}"
    together = {"Level", "failing", "short", "lost_sync", "disk_full", "turns_read_only"}
    assert set(testing.__all__) - together - set(sections(PAGE)) == set()


def test_every_function_and_every_method_is_quoted() -> None:
    methods = {
        f"{name}.{each}"
        for name in set(CLASSES) - MADE_BY_USERS | {"SimulatedDisk", "Recorder"}
        for each in members(name)
        if inspect.isfunction(member(CLASSES[name], each))
    }
    assert set(quoted()) == FUNCTIONS | MADE_BY_USERS | methods


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_attribute_is_in_the_page(name: str) -> None:
    missing = members(name) - mentioned()
    assert not missing, f"{name}: not in {PAGE.name}: {sorted(missing)}"


@pytest.mark.parametrize("name", RECORDS)
def test_the_fields_of_a_record_are_those_of_the_code(name: str) -> None:
    found = {field: plain(kind) for field, kind, _ in rows(sections(PAGE)[name])}
    annotations = inspect.get_annotations(CLASSES[name])
    assert found == {f"`{field}`": plain(str(kind)) for field, kind in annotations.items()}


def plain(text: str) -> str:
    """A type, however it is marked up."""
    return re.sub(r"</?code>|ForwardRef\(|[`')]", "", text).replace("&#124;", "|")


def test_every_argument_of_a_fault_and_every_level_stands_in_its_table() -> None:
    arguments = {row[0] for row in rows(sections(PAGE)["Fault"])}
    assert arguments == {f"`{name}`" for name in inspect.signature(testing.Fault).parameters}
    levels = [row[0] for row in rows(sections(PAGE)["Levels of a crash"])]
    assert levels == [f"`Level.{level.name}`" for level in testing.Level]
