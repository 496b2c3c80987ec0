"""JSON, no value at all, and the versions of schemas."""

from __future__ import annotations

import copy
import enum
import json
import math
import pickle
from collections import OrderedDict
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.effects.payload import ABSENT, DEPTH_MAX, AbsentType, PayloadSchema, as_json
from pystate.errors import NotJsonError, PayloadError, PayloadMigrationError, UnsupportedPayloadVersionError
from tests.effects.values import json_values
from tests.ids import named

# ABSENT


def test_absent_is_not_null() -> None:
    """It is false in a condition, equal to itself alone, and says what it is."""
    assert ABSENT is AbsentType.ABSENT
    assert not ABSENT
    others: list[object] = [None, "ABSENT", 0, False, msgspec.UNSET]
    assert ABSENT not in others
    assert repr(ABSENT) == str(ABSENT) == f"{ABSENT}" == "ABSENT"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_absent_pickled_and_copied_is_itself(protocol: int) -> None:
    assert pickle.loads(pickle.dumps(ABSENT, protocol)) is ABSENT
    assert copy.copy(ABSENT) is ABSENT
    assert copy.deepcopy({"a": ABSENT})["a"] is ABSENT


def test_absent_never_gets_into_json_by_mistake() -> None:
    with pytest.raises(TypeError):
        json.dumps(ABSENT)
    with pytest.raises(TypeError):
        msgspec.json.encode(ABSENT)
    with pytest.raises(NotJsonError, match=r"AbsentType at \$\.a"):
        as_json({"a": ABSENT}, "input")


# JSON


@given(json_values)
def test_json_is_copied_as_it_is(value: Any) -> None:
    copied = as_json(value, "input")
    assert copied == value
    assert json.dumps(copied) == json.dumps(value)


def test_a_copy_shares_nothing_that_can_change() -> None:
    value = {"a": [1, {"b": []}]}
    copied = as_json(value, "input")
    value["a"][1]["b"].append(2)  # type: ignore[index]
    assert copied == {"a": [1, {"b": []}]}


class Pair(NamedTuple):
    left: int
    right: str


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2


class Number(float):
    pass


def test_what_looks_like_json_becomes_json() -> None:
    """So that what a call returns is what a later read returns."""
    value = {Colour.RED: Pair(1, "x"), "level": Level.HIGH, "number": Number(0.5), "ordered": OrderedDict(a=())}
    copied = as_json(value, "input")
    assert copied == {"red": [1, "x"], "level": 2, "number": 0.5, "ordered": {"a": []}}
    assert [type(key) for key in copied] == [str] * 4
    assert [type(item) for item in copied.values()] == [list, int, float, dict]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(copied)) == copied


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        (math.nan, "$", "nan"),
        ([1, math.inf], "$[1]", "inf"),
        ({"a": {"b c": -math.inf}}, "$.a['b c']", "-inf"),
        ({"a": [{1: 2}]}, "$.a[0]", "a key of type int"),
        ({"a": b"x"}, "$.a", "bytes"),
        ({"a": {1, 2}}, "$.a", "set"),
        (2**64, "$", "64 bits"),
        (-(2**63) - 1, "$", "64 bits"),
        (["\udc80"], "$[0]", "surrogate"),
        ({"\udc80": 1}, "$['\\udc80']", "surrogate"),
        (object(), "$", "object"),
    ],
    ids=lambda value: ascii(named(value)),
)
def test_what_is_no_json_is_refused_and_shown(value: object, path: str, problem: str) -> None:
    with pytest.raises(NotJsonError, match=problem) as caught:
        as_json(value, "output")
    assert (caught.value.what, caught.value.path) == ("output", path)
    assert {PayloadError, ValueError} < set(type(caught.value).__mro__)


def test_integers_up_to_64_bits_are_json() -> None:
    for number in (2**64 - 1, -(2**63)):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(as_json(number, "input"))) == number


def test_depth_is_bounded() -> None:
    nested: list[Any] = []
    for _ in range(DEPTH_MAX - 1):
        nested = [nested]
    assert as_json(nested, "input") == nested
    with pytest.raises(NotJsonError, match="levels"):
        as_json([nested], "input")
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotJsonError, match="levels"):
        as_json(endless, "input")


# Schemas


def never(version: int, value: Any) -> Any:
    raise AssertionError("called")


def test_schemas_of_payloads() -> None:
    """Check E99: the same version as it is, another one through the migration, or not at all."""
    calls = []

    def migrate(version: int, value: Any) -> Any:
        calls.append((version, value))
        return {"amount": value}

    value = {"v": 1}
    assert PayloadSchema(2, never).decode(2, value) is value
    assert PayloadSchema(2, migrate).decode(1, 5) == {"amount": 5}
    assert calls == [(1, 5)]
    for stored in (1, 3):
        with pytest.raises(UnsupportedPayloadVersionError) as caught:
            PayloadSchema(2).decode(stored, value)
        assert (caught.value.stored, caught.value.current) == (stored, 2)


def test_a_newer_version_goes_through_the_migration_too() -> None:
    assert PayloadSchema(2, lambda version, value: [version, value]).decode(3, "x") == [3, "x"]


def test_the_first_version_is_the_default() -> None:
    assert PayloadSchema().decode(1, None) is None
    assert PayloadSchema().version == 1


def test_a_migration_may_refuse() -> None:
    refusals = [UnsupportedPayloadVersionError(0, 2), PayloadMigrationError("no currency")]
    for refusal in refusals:

        def migrate(version: int, value: Any, refusal: PayloadError = refusal) -> Any:
            raise refusal

        with pytest.raises(type(refusal)) as caught:
            PayloadSchema(2, migrate).decode(1, None)
        assert caught.value is refusal


def test_any_other_error_of_a_migration_tells_its_type_alone() -> None:
    """Its text may hold what must not be logged; the cause is there for who debugs."""

    def migrate(version: int, value: Any) -> Any:
        return value["4242 4242"]

    with pytest.raises(PayloadMigrationError) as caught:
        PayloadSchema(2, migrate).decode(1, {})
    assert caught.value.reason == "it raised KeyError"
    assert isinstance(caught.value.__cause__, KeyError)


def test_wrong_schemas_are_refused() -> None:
    for version in (-1, 2**32):
        with pytest.raises(ValueError, match="version"):
            PayloadSchema(version)
    for wrong in ("1", True, None):
        with pytest.raises(TypeError, match="version"):
            PayloadSchema(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="migration"):
        PayloadSchema(1, {})  # type: ignore[arg-type]


@given(st.integers(0, 2**32 - 1), json_values)
def test_equal_versions_change_nothing(version: int, value: Any) -> None:
    assert PayloadSchema(version, never).decode(version, value) is value
