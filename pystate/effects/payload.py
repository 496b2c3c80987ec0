"""What an effect carries: JSON values, the mark for "no value", and the versions of their schemas.

A payload is the input of an effect, the output of its action, or what goes with an event. It is JSON: None, bool, int,
float, str, and lists and dicts of these. None is JSON's null, which is a value: an action that returned nothing. No
value at all is `ABSENT`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from pystate.effects.checks import as_u32, is_utf8
from pystate.errors import NotJsonError, PayloadError, PayloadMigrationError, UnsupportedPayloadVersionError

__all__ = ["ABSENT", "DEPTH_MAX", "AbsentType", "JsonValue", "Migration", "PayloadSchema", "as_json"]

DEPTH_MAX = 100
"""How many lists and dicts of a payload may stand in one another."""
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**64 - 1  # what MessagePack holds

JsonValue: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, and lists and dicts (with text as keys) of these."""


class AbsentType(enum.Enum):
    """The type of `ABSENT`, for annotations; ``value is ABSENT`` narrows it."""

    # As a value that only the encoder of records can write: in JSON, and among payloads, it is refused.
    ABSENT = msgspec.msgpack.Ext(0, b"")

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "ABSENT"

    __str__ = __repr__

    def __reduce_ex__(self, protocol: object) -> str:  # type: ignore[override]
        return "ABSENT"  # pickled and copied as the name below, which `pickle` allows and typeshed does not


ABSENT: Final = AbsentType.ABSENT
"""No value: nothing has been stored. False in a condition, and not equal to None, which is JSON's null."""


class _Misfit(Exception):
    """Not JSON: what, and the way to it from the inside out."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.steps: list[str] = []


def as_json(value: object, what: str) -> JsonValue:
    """A copy of a JSON value in the form in which it is stored and read again.

    Tuples become lists, and subclasses of the types of JSON become these. Costs about as much as decoding the value.

    Arguments:
        value: the value; it is not kept, so the caller may change it later.
        what: which payload it is, for the error.

    Raises:
        NotJsonError: it holds something else: another type, a key that is no text, NaN or an infinity, an integer of
            more than 64 bits, a lone surrogate, or more than `DEPTH_MAX` levels (as a list that holds itself does).
    """
    try:
        return _copy(value, DEPTH_MAX)
    except _Misfit as misfit:
        raise NotJsonError(what, "$" + "".join(reversed(misfit.steps)), misfit.problem) from None


def _copy(value: object, depth: int) -> JsonValue:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            raise _Misfit("an integer of more than 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _Misfit(f"the number {value}, which JSON does not have,")
        return float(value)
    if not isinstance(value, dict | list | tuple):
        raise _Misfit(f"a value of type {type(value).__name__}")
    if depth == 0:
        raise _Misfit(f"more than {DEPTH_MAX} levels")
    return _copy_object(value, depth - 1) if isinstance(value, dict) else _copy_array(value, depth - 1)


def _text(value: str) -> str:
    if not is_utf8(value):
        raise _Misfit("a text with a lone surrogate")
    return value if type(value) is str else str.__str__(value)


def _copy_object(value: dict[Any, Any], depth: int) -> dict[str, JsonValue]:
    copied = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise _Misfit(f"a key of type {type(key).__name__}")
        try:
            copied[_text(key)] = _copy(item, depth)
        except _Misfit as misfit:
            misfit.steps.append(f".{key}" if key.isidentifier() else f"[{key!r}]")
            raise
    return copied


def _copy_array(value: list[Any] | tuple[Any, ...], depth: int) -> list[JsonValue]:
    copied = []
    for number, item in enumerate(value):
        try:
            copied.append(_copy(item, depth))
        except _Misfit as misfit:
            misfit.steps.append(f"[{number}]")
            raise
    return copied


Migration: TypeAlias = Callable[[int, JsonValue], JsonValue]
"""``(stored version, value)`` to the value in the current schema. Pure: it depends on these two alone."""


class PayloadSchema(msgspec.Struct, frozen=True):
    """The version of the shape that a program gives to a payload, and the way to it from other versions.

    Attributes:
        version: the current version, from 0 to 2**32 - 1.
        migration: makes a value of another version one of this version. It may raise `UnsupportedPayloadVersionError`
            and `PayloadMigrationError`, and its error texts must be fit for a log. None: only this version can be read.
    """

    version: int = 1
    migration: Migration | None = None

    def __post_init__(self) -> None:
        as_u32(self.version, "version")
        if self.migration is not None and not callable(self.migration):
            raise TypeError(f"migration: expected a function, not {type(self.migration).__name__}")

    def decode(self, stored_version: int, value: JsonValue) -> JsonValue:
        """A stored value in the current schema. What is stored is not changed.

        Arguments:
            stored_version: the version that the value was stored under.
            value: the stored value.

        Returns:
            The value itself if the versions are equal (the migration is not called), else what the migration makes.

        Raises:
            UnsupportedPayloadVersionError: another version, older or newer, and no migration from it.
            PayloadMigrationError: the migration failed. Of an error that is no `PayloadError` only the type is told;
                the error itself is the cause.
        """
        if stored_version == self.version:
            return value
        if self.migration is None:
            raise UnsupportedPayloadVersionError(stored_version, self.version)
        try:
            return self.migration(stored_version, value)
        except PayloadError:
            raise
        except Exception as error:  # whatever a program's own code raises, the effect must not run again for it
            raise PayloadMigrationError(f"it raised {type(error).__name__}") from error
