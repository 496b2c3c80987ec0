"""The statuses of an effect, the transitions between them, and the one table that says which is legal from where.

``TABLE`` is the whole state machine: 24 transitions, 33 legal pairs out of 288. Everything else here reads it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pystate.errors import InvalidTransitionError

__all__ = ["ALL_STATUSES", "ALL_TRANSITIONS", "TABLE", "EffectStatus", "Rule", "Transition"]


class EffectStatus(enum.StrEnum):
    """Where an effect stands. Each is its stable text; the order is the one in which they are listed."""

    PENDING = "pending"
    AWAITING_APPROVAL = "awaiting_approval"
    EXECUTING = "executing"
    UNKNOWN = "unknown"
    VERIFYING = "verifying"
    COMMITTED = "committed"
    FAILED = "failed"
    REJECTED = "rejected"
    NEEDS_INTERVENTION = "needs_intervention"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"

    @classmethod
    def parse(cls, text: str) -> EffectStatus | None:
        """The status with this text, or None."""
        return _STATUSES.get(text)

    @property
    def is_terminal(self) -> bool:
        """No transition leaves it."""
        return not _TARGETS[self]

    @property
    def is_settled(self) -> bool:
        """The request has its final answer. Only such records may be pruned."""
        return self in _SETTLED

    @property
    def is_in_doubt(self) -> bool:
        """The remote may have been changed and nobody knows; to start over from here needs an explicit decision."""
        return self in _IN_DOUBT

    @property
    def exits(self) -> Mapping[Transition, EffectStatus]:
        """The transitions that are legal from here, each with the status it leads to."""
        return MappingProxyType(_TARGETS[self])

    def apply(self, transition: Transition) -> EffectStatus:
        """The status that a transition leads to from here.

        Raises:
            InvalidTransitionError: it is not legal from here.
        """
        target = _TARGETS[self].get(transition)
        if target is None:
            raise InvalidTransitionError(self, transition)
        return target


class Transition(enum.StrEnum):
    """A step from one status to another. Each is its name in JSON; `audit_name` is what the trail stores."""

    REQUEST_APPROVAL = "request_approval"
    APPROVE = "approve"
    DENY = "deny"
    PRECONDITION_REJECTED = "precondition_rejected"
    START_ATTEMPT = "start_attempt"
    SUCCEEDED = "succeeded"
    FAILED_DEFINITIVELY = "failed_definitively"
    SCHEDULE_RETRY = "schedule_retry"
    OUTCOME_UNKNOWN = "outcome_unknown"
    LEASE_EXPIRED = "lease_expired"
    START_VERIFICATION = "start_verification"
    VERIFICATION_CONFIRMED = "verification_confirmed"
    VERIFICATION_NOT_APPLIED = "verification_not_applied"
    VERIFICATION_CONFLICT = "verification_conflict"
    ESCALATE = "escalate"
    RESOLVED_APPLIED = "resolved_applied"
    RESOLVED_NOT_APPLIED = "resolved_not_applied"
    RESOLVED_RETRY = "resolved_retry"
    START_COMPENSATION = "start_compensation"
    SCHEDULE_COMPENSATION_RETRY = "schedule_compensation_retry"
    START_COMPENSATION_RETRY = "start_compensation_retry"
    COMPENSATION_SUCCEEDED = "compensation_succeeded"
    COMPENSATION_FAILED = "compensation_failed"
    RESOLVED_COMPENSATED = "resolved_compensated"

    @property
    def audit_name(self) -> str:
        """The name under which the trail stores it, such as ``effect.attempt_started``."""
        return _AUDIT_NAMES[self]

    @classmethod
    def parse(cls, text: str) -> Transition | None:
        """The transition with this JSON name, or None."""
        return _TRANSITIONS.get(text)

    @classmethod
    def parse_audit_name(cls, text: str) -> Transition | None:
        """The transition with this audit name, or None."""
        return _BY_AUDIT_NAME.get(text)


ALL_STATUSES = tuple(EffectStatus)
"""All twelve, in the order in which they are listed."""
ALL_TRANSITIONS = tuple(Transition)
"""All twenty-four, in the order of the table."""


class Rule(NamedTuple):
    """One transition: the name that the trail stores, and its legal steps, each from some statuses to one."""

    transition: Transition
    audit_name: str
    steps: tuple[tuple[tuple[EffectStatus, ...], EffectStatus], ...]


def _rule(
    transition: Transition, audit_name: str, *steps: tuple[EffectStatus | tuple[EffectStatus, ...], EffectStatus]
) -> Rule:
    return Rule(
        transition,
        f"effect.{audit_name}",
        tuple((sources if isinstance(sources, tuple) else (sources,), target) for sources, target in steps),
    )


_S, _T = EffectStatus, Transition

# fmt: off
TABLE: tuple[Rule, ...] = (
    _rule(_T.REQUEST_APPROVAL, "approval_requested", (_S.PENDING, _S.AWAITING_APPROVAL)),
    _rule(_T.APPROVE, "approved", (_S.AWAITING_APPROVAL, _S.PENDING)),
    _rule(_T.DENY, "denied", (_S.AWAITING_APPROVAL, _S.REJECTED)),
    _rule(_T.PRECONDITION_REJECTED, "precondition_rejected", (_S.PENDING, _S.REJECTED)),
    _rule(_T.START_ATTEMPT, "attempt_started", (_S.PENDING, _S.EXECUTING)),
    _rule(_T.SUCCEEDED, "succeeded", (_S.EXECUTING, _S.COMMITTED)),
    # Refused as well while an earlier attempt may have applied: `EffectRecord.apply` asks.
    _rule(_T.FAILED_DEFINITIVELY, "failed", (_S.EXECUTING, _S.FAILED)),
    _rule(_T.SCHEDULE_RETRY, "retry_scheduled", ((_S.EXECUTING, _S.VERIFYING, _S.UNKNOWN), _S.PENDING)),
    _rule(_T.OUTCOME_UNKNOWN, "outcome_unknown", ((_S.EXECUTING, _S.VERIFYING), _S.UNKNOWN)),
    _rule(_T.LEASE_EXPIRED, "lease_expired", ((_S.EXECUTING, _S.VERIFYING), _S.UNKNOWN)),
    _rule(_T.START_VERIFICATION, "verification_started", ((_S.EXECUTING, _S.UNKNOWN), _S.VERIFYING)),
    _rule(_T.VERIFICATION_CONFIRMED, "verification_confirmed", (_S.VERIFYING, _S.COMMITTED)),
    _rule(_T.VERIFICATION_NOT_APPLIED, "verification_not_applied", (_S.VERIFYING, _S.FAILED)),
    _rule(_T.VERIFICATION_CONFLICT, "verification_conflict", (_S.VERIFYING, _S.NEEDS_INTERVENTION)),
    _rule(_T.ESCALATE, "escalated", (_S.UNKNOWN, _S.NEEDS_INTERVENTION)),
    _rule(_T.RESOLVED_APPLIED, "resolved_applied", ((_S.UNKNOWN, _S.NEEDS_INTERVENTION), _S.COMMITTED)),
    _rule(_T.RESOLVED_NOT_APPLIED, "resolved_not_applied", ((_S.UNKNOWN, _S.NEEDS_INTERVENTION), _S.FAILED)),
    _rule(_T.RESOLVED_RETRY, "resolved_retry",
          ((_S.UNKNOWN, _S.NEEDS_INTERVENTION), _S.PENDING),
          (_S.COMPENSATION_FAILED, _S.COMPENSATING)),
    _rule(_T.START_COMPENSATION, "compensation_started", (_S.COMMITTED, _S.COMPENSATING)),
    _rule(_T.SCHEDULE_COMPENSATION_RETRY, "compensation_retry_scheduled", (_S.COMPENSATING, _S.COMPENSATING)),
    _rule(_T.START_COMPENSATION_RETRY, "compensation_retry_started", (_S.COMPENSATING, _S.COMPENSATING)),
    _rule(_T.COMPENSATION_SUCCEEDED, "compensated", (_S.COMPENSATING, _S.COMPENSATED)),
    _rule(_T.COMPENSATION_FAILED, "compensation_failed", (_S.COMPENSATING, _S.COMPENSATION_FAILED)),
    _rule(_T.RESOLVED_COMPENSATED, "resolved_compensated", (_S.COMPENSATION_FAILED, _S.COMPENSATED)),
)
# fmt: on
"""The state machine. Every pair of status and transition that is not in it is illegal."""

_TARGETS: dict[EffectStatus, dict[Transition, EffectStatus]] = {
    status: {rule.transition: target for rule in TABLE for sources, target in rule.steps if status in sources}
    for status in EffectStatus
}
_AUDIT_NAMES = {rule.transition: rule.audit_name for rule in TABLE}
_BY_AUDIT_NAME = {rule.audit_name: rule.transition for rule in TABLE}
_STATUSES = {str(status): status for status in EffectStatus}
_TRANSITIONS = {str(transition): transition for transition in Transition}
_SETTLED = frozenset({_S.COMMITTED, _S.FAILED, _S.REJECTED, _S.COMPENSATED})
_IN_DOUBT = frozenset({_S.EXECUTING, _S.UNKNOWN, _S.VERIFYING, _S.NEEDS_INTERVENTION})
