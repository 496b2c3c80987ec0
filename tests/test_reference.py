"""The reference pages say what the code says: signatures, records, errors and numbers.

A signature is quoted in a block ``text``; it begins at the margin with ``pystate.`` or the name of a class. A default
that is quoted as ``...`` stands for any. Tables are compared by their first columns; what they mean is for readers.
"""

from __future__ import annotations

import ast
import errno
import functools
import importlib
import inspect
import random
import re
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pystate
import pystate.errors
from pystate.engine import limits, threads
from pystate.engine.transaction import TransactionFamily
from pystate.engine.view import ViewFamily
from tests.markdown import ROOT, fences

REFERENCE = ROOT / "docs" / "reference"
API, ERRORS, LIMITS = REFERENCE / "api.md", REFERENCE / "errors.md", REFERENCE / "limits.md"

CLASSES: dict[str, type] = {
    "Store": pystate.Store,
    "Family": pystate.Family,
    "Transaction": pystate.Transaction,
    "View": pystate.View,
    "Rewriting": pystate.Rewriting,
    "Files": pystate.Files,
    "File": pystate.File,
}
#: Those of the layers above stand in the pages of these.
ENGINE_ERRORS = set(pystate.__all__) & set(pystate.errors.__all__)
#: Documented together: what the families of stores, transactions and views have in common.
FAMILY_TYPES = {"FamilyReader", "FamilyWriter"}
RECORDS = [
    pystate.StoreStats,
    pystate.RecoveryReport,
    pystate.VerifyReport,
    pystate.FileReport,
    pystate.Problem,
    pystate.SalvageReport,
    pystate.FrameInfo,
    pystate.RewriteReport,
    pystate.RowChanges,
    pystate.InstallReport,
    pystate.ExportReport,
    pystate.SnapshotInfo,
]
FUNCTIONS = {name for name in pystate.__all__ if inspect.isfunction(getattr(pystate, name))}
#: Called as functions are; `OsFiles` has the methods of `Files`, and no others.
CALLED = FUNCTIONS | {"OsFiles"}


# The pages


def sections(page: Path) -> dict[str, str]:
    """The text below each heading, up to the next one."""
    parts = re.split(r"^#+ +(.+?) *$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The cells of all tables in a text, without the lines of headings and dashes."""
    lines = text.splitlines()
    dashes = [number for number, line in enumerate(lines) if re.fullmatch(r"\|[-|]+\|", line)]
    skipped = {*dashes, *(number - 1 for number in dashes)}
    return [
        [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for number, line in enumerate(lines)
        if line.startswith("|") and number not in skipped
    ]


def in_code(cell: str) -> str:
    """What stands between the backticks of a cell that holds nothing else."""
    found = re.fullmatch(r"`([^`]+)`", cell)
    assert found, f"not one piece of code: {cell}"
    return found[1]


@functools.cache
def quoted() -> dict[str, Quotation]:
    """The signatures that stand in the page, by dotted name."""
    found: dict[str, Quotation] = {}
    for block in fences(API):
        if block.language == "text":
            for statement in re.split(r"\n(?=[A-Za-z])", block.text.strip()):
                dotted = re.match(r"[\w.]+", statement)
                assert dotted, f"{API.name}:{block.line}: not a signature: {statement}"
                assert dotted[0] not in found, f"{API.name}:{block.line}: {dotted[0]} is quoted twice"
                found[dotted[0]] = parse(statement[dotted.end() :])
    return found


class Quotation(NamedTuple):
    """A signature taken apart: name, kind, annotation and default of each parameter, and what is returned.

    An attribute has no parameters, and returns its type. What has no annotation or default has ``Parameter.empty``.
    """

    parameters: tuple[tuple[str, str, object, object], ...]
    returns: object


def parse(text: str) -> Quotation:
    """Take apart what stands behind the name in a quotation: ``(...) -> type`` or ``: type``."""
    if text.startswith(":"):
        return Quotation((), one_way(text[1:].strip()))
    namespace: dict[str, Any] = {}
    exec(f"from __future__ import annotations\ndef quotation{text}: ...", namespace)
    return describe(namespace["quotation"])


def one_way(annotation: object) -> object:
    """One of the several ways to write an annotation."""
    return ast.unparse(ast.parse(annotation, mode="eval")) if isinstance(annotation, str) else annotation


# The code


def find(dotted: str) -> object:
    """The object that a dotted name in the page means."""
    owner, name = dotted.split(".")
    return getattr(pystate, name) if owner == "pystate" else member(CLASSES[owner], name)


def member(owner: type, name: str) -> object:
    """An attribute of a class as it is defined: not the slot that takes its place in an instance."""
    for base in owner.__mro__:
        if name in vars(base) and not isinstance(vars(base)[name], types.MemberDescriptorType):
            return vars(base)[name]
    raise AttributeError(f"{owner.__name__}.{name}")


def describe(thing: object) -> Quotation:
    """Take apart a function or a property; `self` is left out."""
    if isinstance(thing, property):
        return Quotation((), one_way(inspect.signature(thing.fget).return_annotation))  # type: ignore[arg-type]
    assert callable(thing)
    signature = inspect.signature(thing)
    parameters = tuple(
        (parameter.name, parameter.kind.name, one_way(parameter.annotation), parameter.default)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    )
    return Quotation(parameters, one_way(signature.return_annotation))


def without_any_defaults(given: Quotation, like: Quotation) -> Quotation:
    """`given`, with ``...`` for each default that is ``...`` in `like`."""
    free = {name for name, _, _, default in like.parameters if default is ...}
    parameters = tuple((*rest, ... if rest[0] in free else default) for *rest, default in given.parameters)
    return given._replace(parameters=parameters)  # type: ignore[arg-type]


def public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


# API


@pytest.mark.parametrize("dotted", sorted(quoted()))
def test_a_quoted_signature_is_that_of_the_code(dotted: str) -> None:
    quotation = quoted()[dotted]
    assert quotation == without_any_defaults(describe(find(dotted)), like=quotation)


def test_every_function_and_every_member_of_every_class_is_quoted() -> None:
    expected = {f"pystate.{name}" for name in CALLED}
    expected |= {f"{name}.{each}" for name, owner in CLASSES.items() for each in public(owner)}
    assert set(quoted()) == expected


def family_members() -> list[str]:
    return [dotted.partition(".")[2] for dotted in quoted() if dotted.startswith("Family.")]


def family_members_that_read() -> list[str]:
    return family_members()[: family_members().index("values") + 1]


@pytest.mark.parametrize("owner", [pystate.FamilyWriter, TransactionFamily], ids=["FamilyWriter", "of a transaction"])
def test_other_families_that_write_have_the_same_methods(owner: type) -> None:
    assert public(owner) == set(family_members())
    for name in family_members():
        assert describe(member(owner, name)) == describe(member(pystate.Family, name))


@pytest.mark.parametrize("owner", [pystate.FamilyReader, ViewFamily], ids=["FamilyReader", "of a view"])
def test_families_that_only_read_have_those_that_read(owner: type) -> None:
    assert public(owner) == set(family_members_that_read())
    for name in family_members_that_read():
        assert describe(member(owner, name)) == describe(member(pystate.Family, name))


def test_the_real_files_have_the_methods_of_the_protocol() -> None:
    assert public(pystate.OsFiles) == public(pystate.Files)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_fields_of_a_record_are_those_of_the_code(record: type) -> None:
    table = [(in_code(field), in_code(kind)) for field, kind, _ in rows(sections(API)[record.__name__])]
    assert table == list(inspect.get_annotations(record).items())


def test_every_public_name_is_checked_above_or_below() -> None:
    records = {record.__name__ for record in RECORDS}
    assert set(pystate.__all__) == CALLED | set(CLASSES) | FAMILY_TYPES | records | ENGINE_ERRORS | {"Durability"}


# Errors

#: One of each, with every attribute set.
SAMPLES: list[pystate.PystateError] = [
    pystate.PystateError("text"),
    pystate.ClosedError("store", "is closed"),
    pystate.ConflictError(family="default", key=b"k", read_sequence=1, commit_sequence=2),
    pystate.CorruptionError("file", offset=1, expected="this", found="that", sequence=1),
    pystate.DiskFullError("file", errno=errno.EDQUOT),
    pystate.FamilyExistsError("name"),
    pystate.FamilyMismatchError("store", missing=("a",), unnamed=("b",)),
    pystate.FamilyNotFoundError("name", ("default",)),
    pystate.LockedError("store", pid=1, host="host"),
    pystate.NotAStoreError("path", "a file"),
    pystate.ReadOnlyError("store"),
    pystate.StoreFailedError("store", "cause", unknown=True, errno=errno.EIO),
    pystate.StoreNotFoundError("path"),
    pystate.UnsupportedFormatError("file", found=2, supported=1),
]


def attributes(error: pystate.PystateError) -> set[str]:
    """What pystate has set on an error; `errno` is a slot of OSError."""
    return set(vars(error)) | ({"errno"} if getattr(error, "errno", None) is not None else set())


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_has_the_attributes_and_base_classes_of_the_page(error: pystate.PystateError) -> None:
    section = sections(ERRORS)[type(error).__name__]
    listed = {in_code(name) for name, _ in rows(section)}
    assert listed | {"message"} == attributes(error)
    bases = re.search(r"^Base classes: (.+)\.$", section, re.MULTILINE)
    assert bases, "no line with the base classes"
    assert re.findall(r"`(\w+)`", bases[1]) == [base.__name__ for base in type(error).__bases__]


def test_there_is_a_sample_and_a_way_on_for_each_error() -> None:
    assert {type(error).__name__ for error in SAMPLES} == ENGINE_ERRORS
    way_on = sections(ERRORS)["By what you can do"]
    missing = {name for name in ENGINE_ERRORS if f"`{name}`" not in way_on} - {"PystateError"}
    assert not missing


# Limits


def limit_rows() -> Iterator[tuple[str, int, str]]:
    """Each limit of the page: what is limited, the number, and the constant, if one is named."""
    page = sections(LIMITS)
    for heading in ("What a store can hold", "Transactions and views", "Files"):
        for what, number, constant in rows(page[heading]):
            found = re.match(r"[\d,]+", number)
            assert found, f"{what}: no number in {number!r}"
            yield what, int(found[0].replace(",", "")), in_code(constant) if constant else ""


NAMED = [(constant, number) for _, number, constant in limit_rows() if constant]


@pytest.mark.parametrize(("constant", "number"), NAMED, ids=[constant for constant, _ in NAMED])
def test_a_number_is_that_of_the_code(constant: str, number: int) -> None:
    module, _, name = constant.partition(".")
    assert getattr(importlib.import_module(f"pystate.engine.{module}"), name) == number


def test_every_limit_of_the_engine_is_in_the_page() -> None:
    constants = {f"limits.{name}" for name in limits.__all__ if name.isupper()}
    assert constants <= {constant for constant, _ in NAMED}


def test_the_longest_wait_between_two_runs_is_that_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(random, "random", lambda: 1.0)
    monkeypatch.setattr(time, "sleep", waits.append)
    for attempt in range(100):
        threads.back_off(attempt)
    (milliseconds,) = [number for what, number, constant in limit_rows() if not constant and "wait" in what]
    assert max(waits) * 1000 == milliseconds
    assert waits[:2] == [waits[0], 2 * waits[0]]


def test_sizes_in_words_are_the_numbers_before_them() -> None:
    units = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
    found = re.findall(r"([\d,]+) \((\d+) (\w+)\)", LIMITS.read_text(encoding="utf-8"))
    assert len(found) >= 4
    for number, words, unit in found:
        assert int(number.replace(",", "")) == int(words) * units[unit]


# The checks themselves


def test_a_wrong_signature_is_seen() -> None:
    def right(path: str, *, limit: int | None = None) -> Iterator[int]:
        raise NotImplementedError

    text = "(path: str, *, limit: int | None = None) -> Iterator[int]"
    assert describe(right) == parse(text)
    for old, new in (("path", "place"), ("str", "bytes"), ("*, ", ""), ("None)", "3)"), ("[int]", "[str]")):
        assert describe(right) != parse(text.replace(old, new)), f"{old} to {new}"


def test_only_a_default_of_three_dots_stands_for_any() -> None:
    def right(key: bytes, default: object = 1) -> None:
        raise NotImplementedError

    for default, same in (("...", True), ("1", True), ("2", False)):
        quotation = parse(f"(key: bytes, default: object = {default}) -> None")
        assert (quotation == without_any_defaults(describe(right), like=quotation)) is same
