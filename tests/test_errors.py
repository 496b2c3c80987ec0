"""Every error, made with made-up arguments: attributes as documented, a text, and copies that are equal."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pystate.errors
from pystate import PystateError
from tests.sources import ROOT, Source

#: A value for each annotation that constructors have; what is not here is text.
VALUES: dict[str, Any] = {
    "str": "text",
    "bytes": b"key",
    "int": 7,
    "bool": True,
    "float": 1.5,
    "datetime": datetime(2026, 1, 2, tzinfo=UTC),
    "timedelta": timedelta(seconds=3),
    "tuple[str, ...]": ("a", "b"),
    "dict[str, Any]": {"field": "value"},
}


def sample(kind: type[PystateError]) -> PystateError:
    """One error of this class."""
    given: dict[str, Any] = {}
    positional = []
    for parameter in inspect.signature(kind).parameters.values():
        wanted = str(parameter.annotation).replace(" | None", "").strip("'")
        value = VALUES.get(wanted, parameter.default if parameter.default is not parameter.empty else "text")
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            positional.append(value)
        elif parameter.kind is parameter.KEYWORD_ONLY:
            given[parameter.name] = value
    return kind(*positional, **given)


KINDS = [getattr(pystate.errors, name) for name in pystate.errors.__all__]


def documented(kind: type) -> set[str]:
    """The attributes that the docstring of a class and those of its bases name."""
    found: set[str] = set()
    for base in kind.__mro__:
        if base.__module__ == "pystate.errors":
            _, _, listed = (inspect.getdoc(base) or "").partition("Attributes:\n")
            for names in re.findall(r"^    ([\w, ]+):", listed, re.MULTILINE):
                found |= set(names.split(", "))
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_carries_what_its_docstring_names_and_survives_copies(kind: type[PystateError]) -> None:
    error = sample(kind)
    errno = {"errno"} if getattr(error, "errno", None) is not None else set()
    assert set(vars(error)) | errno == documented(kind) | errno
    assert str(error) == error.message
    for again in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is kind
        assert vars(again) == vars(error)
        assert str(again) == str(error)
        assert getattr(again, "errno", None) == getattr(error, "errno", None)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not PystateError], ids=lambda kind: kind.__name__)
def test_an_error_is_also_a_built_in_one(kind: type[PystateError]) -> None:
    built_in = {base for base in kind.__mro__ if base.__module__ == "builtins"} - {Exception, BaseException, object}
    raised_itself = not any(kind in other.__bases__ for other in KINDS)
    assert built_in or not raised_itself


def test_every_class_of_the_module_is_public() -> None:
    tree = Source(ROOT / "pystate" / "errors.py").tree
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert sorted(defined) == pystate.errors.__all__
