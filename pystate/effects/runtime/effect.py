"""The description of an effect: what it is called, what the runtime may assume of it, and the code it consists of.

The code is plain or ``async``, and is called with the context, and with the input too if it takes a second argument::

    async def charge(context: EffectContext, order: Order) -> Receipt: ...
    def look_up(context: EffectContext) -> Verification[Receipt]: ...

    CHARGE = Effect("payment.charge", charge, verify=look_up)

A description does nothing, and fits any runtime. What is wrong with its name is told when it is run.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

from pystate.effects.checks import as_duration, as_instance, as_text
from pystate.effects.contract import VerificationContract
from pystate.effects.kinds import EffectKind
from pystate.effects.payload import PayloadSchema
from pystate.effects.policy import RiskLevel
from pystate.effects.retry import RetryPolicy
from pystate.effects.runtime.code import Code, Function

__all__ = ["Effect", "EffectSettings"]

O = TypeVar("O")  # noqa: E741 - output


class EffectSettings(TypedDict, total=False):
    """The settings of an effect, all by name.

    Attributes:
        kind: what doing it twice would mean; an irreversible write unless it says so.
        remote_idempotency: your word that the remote recognises a repeated idempotency key.
        verify: looks the effect up at the remote, and returns a `Verification`.
        verification: what that lookup is worth; authoritative unless it says so.
        precondition: whether it may be attempted at all: a function that returns a `Precondition`.
        require_approval: somebody must approve before the first attempt.
        risk: how much harm it can do; low unless it says so. A `RiskPolicy` may demand more of it for that.
        retry: when and how often it is attempted; that of the runtime unless it says so.
        attempt_timeout: how long an attempt may take; None is for ever. One that takes longer may have applied.
        handler_version: names what the code means to the remote; change it when that changes.
        adapter: which provider is meant; it must hold no secret.
        input_schema, output_schema: the versions of what is stored, and the way from older ones.
        input_type, output_type: what a stored value is turned into where it is read again. Not given, the annotations
            of the action say it; without these it is plain JSON.
    """

    kind: EffectKind
    remote_idempotency: bool
    verify: Function | None
    verification: VerificationContract | None
    precondition: Function | None
    require_approval: bool
    risk: RiskLevel
    retry: RetryPolicy | None
    attempt_timeout: timedelta | None
    handler_version: str
    adapter: str | None
    input_schema: PayloadSchema
    output_schema: PayloadSchema
    input_type: Any
    output_type: Any


class Effect(Generic[O]):
    """The description of an effect. Immutable by convention; any number of runtimes and threads may use it.

    Arguments:
        name: what kind of thing is done, such as ``payment.charge``; checked when the effect is run.
        action: does it.
        settings: see `EffectSettings`; each is an attribute as well.

    Raises:
        TypeError: an action that cannot be called with a context, or with a context and an input; a setting of another
            type; an unknown setting.
        ValueError: a negative duration; a verification without a function that verifies, or the other way round.
    """

    @overload
    def __init__(
        self: Effect[O], name: str, action: Callable[..., Coroutine[Any, Any, O]], **settings: Unpack[EffectSettings]
    ) -> None: ...

    @overload
    def __init__(self: Effect[O], name: str, action: Callable[..., O], **settings: Unpack[EffectSettings]) -> None: ...

    def __init__(self, name: str, action: Function, **settings: Unpack[EffectSettings]) -> None:
        self.name = name
        self.action = Code(action, "action")
        self.kind = as_instance(settings.pop("kind", EffectKind.IRREVERSIBLE_WRITE), EffectKind, "kind")
        self.remote_idempotency = as_instance(settings.pop("remote_idempotency", False), bool, "remote_idempotency")
        self.verify = _code_or_none(settings.pop("verify", None), "verify")
        self.verification = _mode(self.verify, settings.pop("verification", None))
        self.precondition = _code_or_none(settings.pop("precondition", None), "precondition")
        self.require_approval = as_instance(settings.pop("require_approval", False), bool, "require_approval")
        self.risk = as_instance(settings.pop("risk", RiskLevel.LOW), RiskLevel, "risk")
        self.retry = settings.pop("retry", None)
        if self.retry is not None:
            as_instance(self.retry, RetryPolicy, "retry")
        self.attempt_timeout = settings.pop("attempt_timeout", None)
        if self.attempt_timeout is not None:
            self.attempt_timeout = as_duration(self.attempt_timeout, "attempt_timeout")
        self.handler_version = as_text(settings.pop("handler_version", "1"), "handler_version")
        adapter = settings.pop("adapter", None)
        self.adapter = None if adapter is None else as_text(adapter, "adapter")
        self.input_schema = as_instance(settings.pop("input_schema", PayloadSchema()), PayloadSchema, "input_schema")
        self.output_schema = as_instance(settings.pop("output_schema", PayloadSchema()), PayloadSchema, "output_schema")
        self.input_type, self.output_type = _types_of(action)
        self.input_type = settings.pop("input_type", self.input_type)
        self.output_type = settings.pop("output_type", self.output_type)
        if settings:
            raise TypeError(f"no such setting of an effect: {', '.join(settings)}")

    def __repr__(self) -> str:
        return f"<effect {self.name!r}: {self.kind}>"


def _code_or_none(function: Function | None, name: str) -> Code | None:
    return None if function is None else Code(function, name)


def _mode(verify: Code | None, given: VerificationContract | None) -> VerificationContract:
    """The verification that is meant."""
    if given is None:
        return VerificationContract.NONE if verify is None else VerificationContract.AUTHORITATIVE
    as_instance(given, VerificationContract, "verification")
    if (verify is None) != (given == VerificationContract.NONE):
        raise ValueError(
            f"verification: {given.mode} with {'no' if verify is None else 'a'} function that verifies; give both "
            "`verify` and `verification`, or neither"
        )
    return given


def _types_of(action: Function) -> tuple[Any, Any]:
    """The types of input and output that the annotations of an action name; `Any` where they name none."""
    try:
        hints = typing.get_type_hints(action)
        parameters = list(inspect.signature(action).parameters)
    except (NameError, TypeError, ValueError, AttributeError):  # a name of a type checker only, or nothing annotated
        return Any, Any
    taken = hints.get(parameters[1], Any) if len(parameters) > 1 else Any
    return _readable(taken), _readable(hints.get("return", Any))


def _readable(hint: Any) -> Any:
    return Any if hint is object or isinstance(hint, TypeVar) else hint
