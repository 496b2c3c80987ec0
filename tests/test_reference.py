"""The reference pages say what the code says: signatures, records, errors and numbers.

A signature is quoted in a block ``text``; it begins at the margin with ``pystate.`` or the name of a class. A default that
is quoted as ``...`` stands for any. Tables are compared by their first columns; what they mean is for readers.
"""

from __future__ import annotations

import ast
import errno
import functools
import importlib
import inspect
import re
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
}
RECORDS = [
    pystate.StoreStats,
    pystate.RecoveryReport,
    pystate.VerifyReport,
    pystate.FileReport,
    pystate.Problem,
    pystate.SalvageReport,
    pystate.FrameInfo,
]
FUNCTIONS = {name for name in pystate.__all__ if inspect.isfunction(getattr(pystate, name))}


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
def quoted() -> dict[str, str]:
    """The signatures that stand in the page, by dotted name."""
    found: dict[str, str] = {}
    for block in fences(API):
        if block.language == "text":
            for statement in re.split(r"\n(?=[A-Za-z])", block.text.strip()):
                dotted = re.match(r"[\w.]+", statement)
                assert dotted, f"{API.name}:{block.line}: not a signature: {statement}"
                assert dotted[0] not in found, f"{API.name}:{block.line}: {dotted[0]} is quoted twice"
                found[dotted[0]] = normal(statement[dotted.end() :])
    return found


def normal(signature: str) -> str:
    """One way to write a signature, or ``: type`` for an attribute."""
    if signature.startswith(":"):
        return ": " + ast.unparse(ast.parse(signature[1:].strip(), mode="eval"))
    (function,) = ast.parse(f"def _{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"({ast.unparse(function.args)}){returns}"


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


def defined(thing: object, *, like: str = "") -> str:
    """The signature of a function, or the type of a property, as the page would quote it.

    Arguments:
        like: a quotation; where that has the default ``...``, so has the result.
    """
    if isinstance(thing, property):
        return normal(f": {inspect.signature(thing.fget).return_annotation}")  # type: ignore[arg-type]
    assert callable(thing)
    signature = inspect.signature(thing)
    any_default = re.findall(r"(\w+)=\.\.\.", like)
    parts: list[str] = []
    kind = None
    for parameter in signature.parameters.values():
        if kind is parameter.POSITIONAL_ONLY and parameter.kind is not kind and parts:
            parts.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and kind is not parameter.KEYWORD_ONLY:
            parts.append("*")
        kind = parameter.kind
        if parameter.name != "self":
            parts.append(written(parameter, any_default=parameter.name in any_default))
    returns = signature.return_annotation
    return normal(f"({', '.join(parts)})" + ("" if returns is signature.empty else f" -> {returns}"))


def written(parameter: inspect.Parameter, *, any_default: bool) -> str:
    text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {parameter.annotation}"
    if parameter.default is not parameter.empty:
        text += " = " + ("..." if any_default else repr(parameter.default))
    return text


def public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def not_for_callers() -> set[str]:
    return set(re.findall(r"`(\w+\.\w+)`", sections(API)["Not for callers"]))


# API


@pytest.mark.parametrize("dotted", sorted(quoted()))
def test_a_quoted_signature_is_that_of_the_code(dotted: str) -> None:
    assert quoted()[dotted] == defined(find(dotted), like=quoted()[dotted])


def test_every_function_and_every_member_of_every_class_is_quoted() -> None:
    expected = {f"pystate.{name}" for name in FUNCTIONS}
    expected |= {f"{name}.{each}" for name, owner in CLASSES.items() for each in public(owner)}
    assert set(quoted()) == expected - not_for_callers()
    assert not_for_callers() <= expected


def family_members() -> list[str]:
    return [dotted.partition(".")[2] for dotted in quoted() if dotted.startswith("Family.")]


@pytest.mark.parametrize("name", family_members())
def test_the_family_of_a_transaction_has_the_same_methods(name: str) -> None:
    assert defined(member(TransactionFamily, name)) == defined(member(pystate.Family, name))


def test_the_family_of_a_view_has_those_that_read() -> None:
    names = family_members()
    reading = names[: names.index("values") + 1]
    assert public(ViewFamily) == set(reading)
    for name in reading:
        assert defined(member(ViewFamily, name)) == defined(member(pystate.Family, name))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_fields_of_a_record_are_those_of_the_code(record: type) -> None:
    table = [(in_code(field), in_code(kind)) for field, kind, _ in rows(sections(API)[record.__name__])]
    assert table == list(inspect.get_annotations(record).items())


def test_every_public_class_is_a_class_a_record_or_an_error() -> None:
    known = {*FUNCTIONS, *CLASSES, *(record.__name__ for record in RECORDS), *pystate.errors.__all__}
    assert set(pystate.__all__) == known


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
    assert {type(error).__name__ for error in SAMPLES} == set(pystate.errors.__all__)
    way_on = sections(ERRORS)["By what you can do"]
    missing = {name for name in pystate.errors.__all__ if f"`{name}`" not in way_on} - {"PystateError"}
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
    monkeypatch.setattr(threads.random, "random", lambda: 1.0)
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
    assert defined(right) == normal(text)
    for old, new in (("path", "place"), ("str", "bytes"), ("*, ", ""), ("None)", "3)"), ("[int]", "[str]")):
        assert defined(right) != normal(text.replace(old, new)), f"{old} to {new}"


def test_the_kinds_of_parameters_are_told_apart() -> None:
    def each(first: Any, /, second: int = 1, *rest: str, third: object = ..., **more: bytes) -> None: ...

    quotation = "(first: Any, /, second: int=1, *rest: str, third: object=..., **more: bytes) -> None"
    assert normal(quotation) == quotation
    assert defined(each, like=quotation) == quotation
