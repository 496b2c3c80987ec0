"""The execution contract: the safety assumptions under which an effect was first recorded, and their comparison.

A later call may attach to a recorded effect only under the same assumptions. What a contract does not hold may change
freely: retry delays, jitter, the timeout of an attempt, the risk level, the actor, the input.
"""

from __future__ import annotations

import enum
from datetime import timedelta
from typing import Any, ClassVar

import msgspec

from pystate.effects.checks import DurationShape, as_duration, as_instance, as_u32, convert, settle_text
from pystate.effects.kinds import EffectKind
from pystate.errors import MalformedError

__all__ = [
    "CONTRACT_FORMAT_VERSION",
    "ExecutionContract",
    "VerificationContract",
    "VerificationMode",
    "contract_differences",
]

CONTRACT_FORMAT_VERSION = 1
"""The layout of the contracts that are made and compared here."""


class VerificationMode(enum.StrEnum):
    """What a lookup at the remote is worth when it does not find the effect."""

    NONE = "none"
    """There is no lookup."""
    AUTHORITATIVE = "authoritative"
    """Not found is believed at once."""
    EVENTUALLY_CONSISTENT = "eventually_consistent"
    """Not found is believed only some time after the attempt has ended."""


class VerificationContract(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """How an outcome is looked up: `NONE`, `AUTHORITATIVE`, or `eventually_consistent`.

    Attributes:
        mode: what a lookup is worth.
        settle: how long after the end of an attempt "not found" is not believed yet; None for the other two modes.
    """

    mode: VerificationMode
    settle: timedelta | None

    NONE: ClassVar[VerificationContract]
    AUTHORITATIVE: ClassVar[VerificationContract]

    def __post_init__(self) -> None:
        if type(self.mode) is not VerificationMode:
            as_instance(self.mode, VerificationMode, "mode")
        if (self.settle is not None) != (self.mode is VerificationMode.EVENTUALLY_CONSISTENT):
            raise ValueError(f"settle: eventually_consistent has one, and only it; mode {self.mode}: {self.settle!r}")
        if self.settle is not None:
            as_duration(self.settle, "settle")

    @classmethod
    def eventually_consistent(cls, settle: timedelta) -> VerificationContract:
        """A lookup that finds an effect at most `settle` after its attempt has ended.

        Raises:
            ValueError: negative.
        """
        return cls(mode=VerificationMode.EVENTUALLY_CONSISTENT, settle=settle)

    def to_json(self) -> dict[str, Any]:
        """As an object such as ``{"mode": "none"}``; an eventually consistent lookup also has ``settle``."""
        if self.settle is None:
            return {"mode": str(self.mode)}
        return {"mode": str(self.mode), "settle": DurationShape.of(self.settle)}


VerificationContract.NONE = VerificationContract(mode=VerificationMode.NONE, settle=None)
VerificationContract.AUTHORITATIVE = VerificationContract(mode=VerificationMode.AUTHORITATIVE, settle=None)


class ExecutionContract(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """An immutable statement of the safety assumptions of an effect.

    Attributes:
        format_version: 1 for this layout.
        kind: what doing it twice would mean.
        remote_idempotency: the application's word that the remote recognises a repeated idempotency key.
        verification: how an outcome is looked up.
        handler_version: names what the code means to the remote; chosen by the application. The same version is its
            promise that newer code behaves the same.
        adapter: which provider or adapter is meant, or None; it must hold no secret.
        require_approval: somebody must approve before the first attempt.
        automatic_retry: the runtime may repeat attempts by itself.
        max_attempts: the budget of attempts over the whole life of the effect.

    Raises:
        TypeError, ValueError: a field has another type, or is out of its range.
    """

    format_version: int = CONTRACT_FORMAT_VERSION
    kind: EffectKind = EffectKind.IRREVERSIBLE_WRITE
    remote_idempotency: bool = False
    verification: VerificationContract = VerificationContract.NONE
    handler_version: str = "1"
    adapter: str | None = None
    require_approval: bool = False
    automatic_retry: bool = True
    # Without a default, as the last of the stored array: an array that is cut short is never completed by defaults.
    max_attempts: int

    def __post_init__(self) -> None:
        for name, kind in _CONTRACT_TYPES:
            if type(getattr(self, name)) is not kind:
                as_instance(getattr(self, name), kind, name)
        as_u32(self.format_version, "format_version")
        as_u32(self.max_attempts, "max_attempts")
        settle_text(self, "handler_version", "adapter")

    def to_json(self) -> dict[str, Any]:
        """As an object with the names of the fields as keys."""
        return {
            "format_version": self.format_version,
            "kind": str(self.kind),
            "remote_idempotency": self.remote_idempotency,
            "verification": self.verification.to_json(),
            "handler_version": self.handler_version,
            "adapter": self.adapter,
            "require_approval": self.require_approval,
            "automatic_retry": self.automatic_retry,
            "max_attempts": self.max_attempts,
        }

    @classmethod
    def from_json(cls, value: Any) -> ExecutionContract:
        """From the object that `to_json` makes; ``adapter`` may be missing.

        Raises:
            MalformedError: a key is missing or unknown, or a value has another shape.
        """
        shape = convert(value, _ContractShape, "execution contract")
        fields = msgspec.structs.asdict(shape) | {"verification": shape.verification.build()}
        try:
            return cls(**fields)
        except ValueError as error:
            raise MalformedError("execution contract", str(error)) from None


class _NoneShape(msgspec.Struct, tag="none", tag_field="mode", forbid_unknown_fields=True):
    def build(self) -> VerificationContract:
        return VerificationContract.NONE


class _AuthoritativeShape(msgspec.Struct, tag="authoritative", tag_field="mode", forbid_unknown_fields=True):
    def build(self) -> VerificationContract:
        return VerificationContract.AUTHORITATIVE


class _EventualShape(msgspec.Struct, tag="eventually_consistent", tag_field="mode", forbid_unknown_fields=True):
    settle: DurationShape

    def build(self) -> VerificationContract:
        return VerificationContract.eventually_consistent(self.settle.duration("execution contract: settle"))


class _ContractShape(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    format_version: int
    kind: EffectKind
    remote_idempotency: bool
    verification: _NoneShape | _AuthoritativeShape | _EventualShape
    handler_version: str
    adapter: str | None = None
    require_approval: bool
    automatic_retry: bool
    max_attempts: int


_CONTRACT_TYPES: tuple[tuple[str, type], ...] = (
    ("kind", EffectKind),
    ("remote_idempotency", bool),
    ("verification", VerificationContract),
    ("handler_version", str),
    ("require_approval", bool),
    ("automatic_retry", bool),
)


def contract_differences(stored: ExecutionContract | None, requested: ExecutionContract) -> tuple[str, ...]:
    """The fields in which a stored contract differs from the one of a call; empty when the call may attach.

    A contract of another format is never equal to anything: it may hold what is not compared here.

    Returns:
        Names of fields; ``("execution_contract",)`` when none is stored.
    """
    if stored is None:
        return ("execution_contract",)
    if stored.format_version != CONTRACT_FORMAT_VERSION:
        return ("format_version",)
    if stored == requested:
        return ()
    return tuple(name for name in stored.__struct_fields__ if getattr(stored, name) != getattr(requested, name))
