"""What the code of an effect is told, and what it answers: lookups, preconditions, approvals.

Each answer is made by one of the constructors of its class. Code that raises, or returns anything else, has given the
careful answer: a lookup was inconclusive, a precondition rejects, an approver has not decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

import msgspec

from pystate.effects.checks import as_duration, as_text
from pystate.effects.ids import EffectId, EffectKey, IdempotencyKey
from pystate.effects.kinds import EffectKind
from pystate.effects.payload import AbsentType, JsonValue
from pystate.effects.policy import RiskLevel

__all__ = ["Approval", "ApprovalRequest", "EffectContext", "Precondition", "Verification"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EffectContext:
    """What an action, a lookup and a precondition are told about their effect.

    Attributes:
        id: the record of the effect.
        key: its name and logical key.
        idempotency_key: the same for every attempt, also after a restart; give it to the remote.
        attempt: which one this is, from 1; 0 in a precondition. In a lookup: the newest one.
        input: as the caller gave it; masked where the effect goes on without its caller. `ABSENT` without one.
    """

    id: EffectId
    key: EffectKey
    idempotency_key: IdempotencyKey
    attempt: int
    input: Any


class Verification(msgspec.Struct, Generic[T], frozen=True):
    """What a lookup at the remote has found.

    Attributes:
        found: which answer it is.
        value: of the effect, when confirmed.
        details: of a conflict, or why nothing could be concluded.
    """

    found: Literal["confirmed", "not_applied", "conflict", "inconclusive"]
    value: T | None = None
    details: str = ""

    @classmethod
    def confirmed(cls, value: T) -> Verification[T]:
        """It happened; the value becomes the output of the effect."""
        return cls("confirmed", value)

    @classmethod
    def not_applied(cls) -> Verification[T]:
        """The remote knows nothing of it."""
        return cls("not_applied")

    @classmethod
    def conflict(cls, details: str) -> Verification[T]:
        """The remote has something else under this key. A person must look.

        Raises:
            TypeError, ValueError: the details are no text.
        """
        return cls("conflict", None, as_text(details, "details"))

    @classmethod
    def inconclusive(cls, reason: str = "") -> Verification[T]:
        """The lookup could not tell.

        Raises:
            TypeError, ValueError: the reason is no text.
        """
        return cls("inconclusive", None, as_text(reason, "reason"))


class Precondition(msgspec.Struct, frozen=True):
    """Whether an effect may be attempted.

    Attributes:
        held: which answer it is.
        reason: why not.
        after: when to ask again.
    """

    held: Literal["satisfied", "rejected", "retry_later"]
    reason: str = ""
    after: timedelta | None = None

    @classmethod
    def satisfied(cls) -> Precondition:
        """It may."""
        return cls("satisfied")

    @classmethod
    def rejected(cls, reason: str) -> Precondition:
        """It may not, ever.

        Raises:
            TypeError, ValueError: the reason is no text.
        """
        return cls("rejected", as_text(reason, "reason"))

    @classmethod
    def retry_later(cls, after: timedelta, reason: str) -> Precondition:
        """Not now; ask again after this time.

        Raises:
            TypeError, ValueError: no duration, or a negative one; the reason is no text.
        """
        return cls("retry_later", as_text(reason, "reason"), as_duration(after, "after"))


class Approval(msgspec.Struct, frozen=True):
    """What an approver has decided.

    Attributes:
        decided: which answer it is.
        by: who decided; stands in the trail as the actor.
        reason: of a denial.
    """

    decided: Literal["approved", "denied", "deferred"]
    by: str = ""
    reason: str = ""

    @classmethod
    def approved(cls, by: str) -> Approval:
        """It may be attempted; this covers all attempts.

        Raises:
            TypeError, ValueError: `by` is no text.
        """
        return cls("approved", as_text(by, "by"))

    @classmethod
    def denied(cls, by: str, reason: str) -> Approval:
        """It may not be attempted, ever.

        Raises:
            TypeError, ValueError: an argument is no text.
        """
        return cls("denied", as_text(by, "by"), as_text(reason, "reason"))

    @classmethod
    def deferred(cls) -> Approval:
        """Not decided yet: the effect awaits approval, and the next call asks again."""
        return cls("deferred")


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What an approver is told.

    Attributes:
        id: the record of the effect.
        key: its name and logical key.
        kind: what doing it twice would mean.
        risk: how much harm it can do.
        input: as it is stored, so with secrets masked; `ABSENT` without one.
        requested_by: who asked for it, or None.
    """

    id: EffectId
    key: EffectKey
    kind: EffectKind
    risk: RiskLevel
    input: JsonValue | AbsentType
    requested_by: str | None
