"""What must not be stored: secrets, and the fields that a redactor masks. And values in and out of JSON without them.

A program hands its values over through `to_json`, which writes every `Secret` as ``[REDACTED]``; what is stored, hashed
and replayed never held it. A *redactor* then masks more: it is called for every payload and error message before it is
stored.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar, get_origin

import msgspec

from pystate.effects.ids import EffectId, EffectName, IdempotencyKey, LogicalKey, WorkerId
from pystate.effects.payload import ABSENT, AbsentType, JsonValue, as_json
from pystate.errors import MalformedError, NotJsonError

__all__ = [
    "REDACTED",
    "RedactKeys",
    "RedactedField",
    "Redactor",
    "Secret",
    "from_json",
    "redact",
    "redact_message",
    "to_json",
]

REDACTED = "[REDACTED]"
"""What stands where something was masked."""

_T = TypeVar("_T")


class Secret(Generic[_T]):
    """A value that is used in memory and never stored: it prints, and is written to JSON, as ``[REDACTED]``.

    Read back from whatever was stored, it is redacted: the value is gone. A pickled one is redacted as well; a copy in
    memory is the secret itself. Two secrets are equal when their values are.

    Arguments:
        value: the value.
    """

    __slots__ = ("_redacted", "_value")

    def __init__(self, value: _T) -> None:
        self._value: _T | None = value
        self._redacted = False

    @classmethod
    def redacted(cls) -> Secret[_T]:
        """A secret whose value is gone."""
        secret = cls.__new__(cls)
        secret._value = None
        secret._redacted = True
        return secret

    def expose(self) -> _T | None:
        """The value; None when it is redacted."""
        return self._value

    def is_redacted(self) -> bool:
        """Whether the value is gone."""
        return self._redacted

    def __repr__(self) -> str:
        return REDACTED

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self._redacted == other._redacted and bool(self._value == other._value)

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Secret[_T]:
        return self

    def __deepcopy__(self, memo: object) -> Secret[_T]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self).redacted, ())


# Values in and out of JSON


def _encode_special(value: object) -> object:
    if isinstance(value, Secret):
        return REDACTED
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a value of type {type(value).__name__}")


_TEXTS = (EffectId, EffectName, LogicalKey, IdempotencyKey, WorkerId)


def _decode_special(kind: type, value: Any) -> object:
    if get_origin(kind) is Secret or kind is Secret:
        return Secret.redacted()
    if kind in _TEXTS:
        return kind(value)
    if isinstance(value, kind):  # `object`
        return value
    raise TypeError(f"cannot read a {kind.__name__} from JSON")


def to_json(value: object, what: str) -> JsonValue:
    """The JSON form of a value of a program, as it is stored and replayed, with every secret masked.

    Takes what msgspec takes: JSON itself, records, dataclasses, enumerations, times, UUIDs, decimals, bytes (as
    base64), sets; and the ids of effects. Keys become text.

    Arguments:
        value: the value.
        what: which payload it is, for the error.

    Raises:
        NotJsonError: the value, or something in it, has no form in JSON.
    """
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_special)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJsonError(what, "$", str(error)) from None
    return as_json(plain, what)


def from_json(value: JsonValue, kind: type[_T]) -> _T:
    """A value of a program out of its JSON form. A secret comes back redacted.

    Arguments:
        value: what `to_json` made.
        kind: the type that is wanted.

    Raises:
        MalformedError: it has another shape.
    """
    try:
        return msgspec.convert(value, kind, str_keys=True, dec_hook=_decode_special)
    except msgspec.ValidationError as error:
        raise MalformedError(f"a value of type {getattr(kind, '__name__', kind)}", str(error)) from None


# Redactors


class RedactedField(enum.StrEnum):
    """Which part of a record or event a redactor is called for."""

    INPUT = "input"
    OUTPUT = "output"
    AUDIT_PAYLOAD = "audit_payload"
    ERROR_MESSAGE = "error_message"


class Redactor(Protocol):
    """Masks what must not be stored. Called before a payload or an error message is stored; error messages come as
    texts. Actors and creators are not passed through it.
    """

    def __call__(self, field: RedactedField, name: str, value: JsonValue) -> JsonValue:
        """What to store instead of `value`, which it may not change; `name` is that of the effect."""


class RedactKeys:
    """A redactor that masks the values of some keys, in every object at any depth.

    Arguments:
        names: the keys; upper and lower case of ASCII letters are the same.

    Raises:
        TypeError: a name is not a text, or `names` is one.
    """

    def __init__(self, names: Iterable[str]) -> None:
        if isinstance(names, str):
            raise TypeError("names: expected several names, not one str; give a list")
        self._names = frozenset(_ascii_lower(name) for name in names)

    def __repr__(self) -> str:
        return f"RedactKeys({sorted(self._names)!r})"

    def __call__(self, field: RedactedField, name: str, value: JsonValue) -> JsonValue:
        """A copy of the value with the values of these keys masked."""
        return self._masked(value)

    def _masked(self, value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return {
                key: REDACTED if _ascii_lower(key) in self._names else self._masked(item) for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._masked(item) for item in value]
        return value


def _ascii_lower(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"expected a str, not {type(name).__name__}")
    return name.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def redact(
    redactor: Redactor | None, field: RedactedField, name: str, value: JsonValue | AbsentType
) -> JsonValue | AbsentType:
    """What to store of a payload: what the redactor makes of it. What is absent stays so, unasked.

    Raises:
        NotJsonError: the redactor returned something else than JSON.
    """
    if redactor is None or value is ABSENT:
        return value
    return as_json(redactor(field, name, value), field)


def redact_message(redactor: Redactor | None, name: str, message: str) -> str:
    """What to store of an error message: what the redactor makes of it; if that is no text, its JSON text.

    Raises:
        NotJsonError: the redactor returned something else than JSON.
    """
    if redactor is None:
        return message
    masked = as_json(redactor(RedactedField.ERROR_MESSAGE, name, message), RedactedField.ERROR_MESSAGE)
    return masked if isinstance(masked, str) else json.dumps(masked, separators=(",", ":"), ensure_ascii=False)
