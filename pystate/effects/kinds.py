"""What an effect does to the world, how an attempt at it can fail, and what a failure says about it.

A failure says that the effect certainly did not happen, or that nobody knows. Only the first may end as `failed`.
"""

from __future__ import annotations

import enum
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self, TypeAlias

import msgspec

from pystate.effects.checks import DurationShape, as_duration, as_instance, convert, is_utf8
from pystate.errors import MalformedError

__all__ = ["Disposition", "EffectFailure", "EffectKind", "ErrorRecord", "FailureClass", "FailureName"]


class EffectKind(enum.StrEnum):
    """What doing an effect twice would mean. Each is its stable text."""

    READ = "read"
    IDEMPOTENT_WRITE = "idempotent_write"
    REVERSIBLE_WRITE = "reversible_write"
    IRREVERSIBLE_WRITE = "irreversible_write"

    @property
    def is_naturally_idempotent(self) -> bool:
        """Doing it twice is doing it once, whatever the remote knows of idempotency keys."""
        return self is EffectKind.READ or self is EffectKind.IDEMPOTENT_WRITE

    @classmethod
    def parse(cls, text: str) -> EffectKind | None:
        """The kind with this text, or None."""
        return _KINDS.get(text)


_KINDS = {str(kind): kind for kind in EffectKind}


class Disposition(enum.StrEnum):
    """What to do about a failure."""

    RETRY = "retry"
    """It did not apply, and may work later."""
    UNKNOWN = "unknown"
    """It may have applied."""
    FAIL = "fail"
    """It did not apply, and would not work later."""


FailureName: TypeAlias = Literal[
    "transient", "rate_limited", "ambiguous", "permanent", "authentication", "authorization", "validation"
]
"""The stable texts of the failure classes."""

_DISPOSITIONS: dict[str, Disposition] = {
    "transient": Disposition.RETRY,
    "rate_limited": Disposition.RETRY,
    "ambiguous": Disposition.UNKNOWN,
    "permanent": Disposition.FAIL,
    "authentication": Disposition.FAIL,
    "authorization": Disposition.FAIL,
    "validation": Disposition.FAIL,
}


class FailureClass(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """How an attempt failed: one of the constants below, or `rate_limited`.

    Attributes:
        name: the stable text of the class.
        retry_after: how long the remote asks to wait; None for every class but ``rate_limited``, and there if it did
            not say.
    """

    name: FailureName
    retry_after: timedelta | None

    TRANSIENT: ClassVar[FailureClass]
    """It did not apply, and may work later."""
    AMBIGUOUS: ClassVar[FailureClass]
    """It may have applied: the request went out, and the answer was lost or cannot be understood."""
    PERMANENT: ClassVar[FailureClass]
    """It did not apply, and would not work later."""
    AUTHENTICATION: ClassVar[FailureClass]
    """Refused: the remote does not know who asks."""
    AUTHORIZATION: ClassVar[FailureClass]
    """Refused: whoever asks may not do it."""
    VALIDATION: ClassVar[FailureClass]
    """Refused: the request is wrong."""

    def __post_init__(self) -> None:
        if self.name not in _DISPOSITIONS:
            raise ValueError(f"name: no failure class {self.name!r}; there are {', '.join(_DISPOSITIONS)}")
        if self.retry_after is not None:
            if self.name != "rate_limited":
                raise ValueError(f"retry_after: only rate_limited has one, not {self.name}")
            as_duration(self.retry_after, "retry_after")

    @classmethod
    def rate_limited(cls, retry_after: timedelta | None = None) -> FailureClass:
        """Refused for now: it did not apply; try again after this time (None: the remote did not say).

        Raises:
            ValueError: negative.
        """
        return cls(name="rate_limited", retry_after=retry_after)

    @property
    def disposition(self) -> Disposition:
        """What to do about it."""
        return _DISPOSITIONS[self.name]

    def with_request_sent(self, sent: bool | None) -> FailureClass:
        """The class once it is known whether the request went out (None: it is not known).

        An ambiguous failure whose request was not sent did not apply: it is transient. Nothing else changes; in
        particular a definite class stays definite though the request was sent.
        """
        return FailureClass.TRANSIENT if sent is False and self.name == "ambiguous" else self

    def to_json(self) -> dict[str, Any]:
        """As an object such as ``{"class": "transient"}``; a rate limit also has ``retry_after``."""
        if self.name != "rate_limited":
            return {"class": self.name}
        after = self.retry_after
        return {"class": self.name, "retry_after": None if after is None else DurationShape.of(after)}

    @classmethod
    def from_json(cls, value: Any) -> FailureClass:
        """From the object that `to_json` makes.

        Raises:
            MalformedError: it has another shape.
        """
        return convert(value, _FailureClassShape, "failure class").build()


FailureClass.TRANSIENT = FailureClass(name="transient", retry_after=None)
FailureClass.AMBIGUOUS = FailureClass(name="ambiguous", retry_after=None)
FailureClass.PERMANENT = FailureClass(name="permanent", retry_after=None)
FailureClass.AUTHENTICATION = FailureClass(name="authentication", retry_after=None)
FailureClass.AUTHORIZATION = FailureClass(name="authorization", retry_after=None)
FailureClass.VALIDATION = FailureClass(name="validation", retry_after=None)


class _FailureClassShape(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"name": "class"}):
    name: FailureName
    retry_after: DurationShape | None = None

    def build(self) -> FailureClass:
        """The failure class of this shape."""
        after = None if self.retry_after is None else self.retry_after.duration("failure class: retry_after")
        try:
            return FailureClass(name=self.name, retry_after=after)
        except ValueError as error:
            raise MalformedError("failure class", str(error)) from None


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An error as a record keeps it.

    Attributes:
        failure_class: how an attempt failed; None for an error that no attempt made, such as a rejection.
        message: what happened. Lone surrogates, which file names bring along, are spelled out as ``\\udc80``.
    """

    failure_class: FailureClass | None
    message: str

    def __post_init__(self) -> None:
        if self.failure_class is not None:
            as_instance(self.failure_class, FailureClass, "failure_class")
        message = as_instance(self.message, str, "message")
        if not is_utf8(message) or type(message) is not str:
            spelled_out = message.encode("utf-8", "backslashreplace").decode()
            msgspec.structs.force_setattr(self, "message", spelled_out)

    def to_json(self) -> dict[str, Any]:
        """As an object with the keys ``class`` (an object, or None) and ``message``."""
        failure = self.failure_class
        return {"class": None if failure is None else failure.to_json(), "message": self.message}

    @classmethod
    def from_json(cls, value: Any) -> ErrorRecord:
        """From the object that `to_json` makes; ``class`` may be missing.

        Raises:
            MalformedError: it has another shape.
        """
        shape = convert(value, _ErrorRecordShape, "error record")
        failure = None if shape.failure_class is None else shape.failure_class.build()
        return cls(failure_class=failure, message=shape.message)


class _ErrorRecordShape(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"failure_class": "class"}):
    failure_class: _FailureClassShape | None = None
    message: str


class EffectFailure(Exception):
    """What an action raises to say how it failed.

    Any other exception of an action counts as ambiguous: nobody knows whether the effect happened. The constructors are
    named as the classes are; `error` is a text or the exception behind it.

        >>> from pystate.effects import EffectFailure
        >>> raise EffectFailure.transient("connection refused")
        Traceback (most recent call last):
        pystate.effects.kinds.EffectFailure: transient: connection refused

    Attributes:
        given_class: the class that the action gave.
        request_sent: whether the request went out; None when it is not known.
        error: the text, or the exception behind it.
    """

    def __init__(
        self, given_class: FailureClass, error: str | BaseException, *, request_sent: bool | None = None
    ) -> None:
        super().__init__(given_class, error, request_sent)
        self.given_class = as_instance(given_class, FailureClass, "given_class")
        self.error = error
        self.request_sent = request_sent
        if isinstance(error, BaseException):
            self.__cause__ = error

    def __str__(self) -> str:
        return f"{self.failure_class.name}: {self.error}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_failure, (type(self), self.given_class, self.error, self.request_sent))

    @classmethod
    def transient(cls, error: str | BaseException, *, request_sent: bool | None = None) -> Self:
        """It did not apply, and may work later."""
        return cls(FailureClass.TRANSIENT, error, request_sent=request_sent)

    @classmethod
    def rate_limited(
        cls, retry_after: timedelta | None, error: str | BaseException, *, request_sent: bool | None = None
    ) -> Self:
        """It did not apply; try again after this time (None: the remote did not say)."""
        return cls(FailureClass.rate_limited(retry_after), error, request_sent=request_sent)

    @classmethod
    def ambiguous(cls, error: str | BaseException, *, request_sent: bool | None = None) -> Self:
        """It may have applied."""
        return cls(FailureClass.AMBIGUOUS, error, request_sent=request_sent)

    @classmethod
    def permanent(cls, error: str | BaseException, *, request_sent: bool | None = None) -> Self:
        """It did not apply, and would not work later."""
        return cls(FailureClass.PERMANENT, error, request_sent=request_sent)

    @classmethod
    def authentication(cls, error: str | BaseException, *, request_sent: bool | None = None) -> Self:
        """Refused: the remote does not know who asks."""
        return cls(FailureClass.AUTHENTICATION, error, request_sent=request_sent)

    @classmethod
    def authorization(cls, error: str | BaseException, *, request_sent: bool | None = None) -> Self:
        """Refused: whoever asks may not do it."""
        return cls(FailureClass.AUTHORIZATION, error, request_sent=request_sent)

    @classmethod
    def validation(cls, error: str | BaseException, *, request_sent: bool | None = None) -> Self:
        """Refused: the request is wrong."""
        return cls(FailureClass.VALIDATION, error, request_sent=request_sent)

    @property
    def failure_class(self) -> FailureClass:
        """The class with what is known of the request: an ambiguous failure of an unsent request is transient."""
        return self.given_class.with_request_sent(self.request_sent)

    def with_request_sent(self, sent: bool | None) -> Self:
        """The same failure, with this knowledge of the request."""
        return type(self)(self.given_class, self.error, request_sent=sent)

    def to_error_record(self) -> ErrorRecord:
        """What a record keeps of it: its class, and the text of the error behind it."""
        return ErrorRecord(failure_class=self.failure_class, message=str(self.error))


def _failure(
    kind: type[EffectFailure], given_class: FailureClass, error: str | BaseException, request_sent: bool | None
) -> EffectFailure:
    """Rebuild a pickled or copied failure."""
    return kind(given_class, error, request_sent=request_sent)
