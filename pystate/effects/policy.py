"""What a program demands of its effects by their risk, and what is done about an outcome that is unknown."""

from __future__ import annotations

import enum

import msgspec

from pystate.effects.checks import as_instance
from pystate.effects.contract import ExecutionContract, VerificationMode
from pystate.effects.kinds import EffectKind

__all__ = ["Requirements", "RiskLevel", "RiskPolicy", "RiskRule", "UnknownPlan"]


class RiskLevel(enum.IntEnum):
    """How much harm an effect can do. Ordered; printed in lower case."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3

    def __str__(self) -> str:
        return self.name.lower()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @classmethod
    def parse(cls, text: str) -> RiskLevel | None:
        """The level with this text, or None."""
        return _LEVELS.get(text)


_LEVELS = {str(level): level for level in RiskLevel}


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """What is demanded of an effect beside its own settings.

    Attributes:
        approval: somebody must approve before the first attempt.
        verification: it must be possible to look its outcome up.
        no_automatic_retry: the runtime may not repeat an attempt by itself.
    """

    approval: bool = False
    verification: bool = False
    no_automatic_retry: bool = False

    def __or__(self, other: Requirements) -> Requirements:
        return Requirements(
            approval=self.approval or other.approval,
            verification=self.verification or other.verification,
            no_automatic_retry=self.no_automatic_retry or other.no_automatic_retry,
        )


class RiskRule(msgspec.Struct, frozen=True, kw_only=True):
    """What is demanded of the effects of a risk level, of a kind, of both, or (with neither) of every effect.

    Attributes:
        risk: the level it is for, or None for all.
        kind: the kind it is for, or None for all.
        requirements: what it demands; nothing at all is allowed, and loosens nothing.
    """

    risk: RiskLevel | None = None
    kind: EffectKind | None = None
    requirements: Requirements = Requirements()

    def __post_init__(self) -> None:
        if self.risk is not None:
            as_instance(self.risk, RiskLevel, "risk")
        if self.kind is not None:
            as_instance(self.kind, EffectKind, "kind")
        as_instance(self.requirements, Requirements, "requirements")

    def matches(self, risk: RiskLevel, kind: EffectKind) -> bool:
        """Whether the rule is for such an effect."""
        return self.risk in (None, risk) and self.kind in (None, kind)


class RiskPolicy(msgspec.Struct, frozen=True):
    """Rules that add requirements to effects. Their order does not matter, and none loosens another.

    Built step by step; each step returns a new policy. What is required before the first `rule` is required of every
    effect:

        >>> from pystate.effects import EffectKind, RiskLevel, RiskPolicy
        >>> policy = RiskPolicy().rule(risk=RiskLevel.HIGH).require_verification().require_approval()
        >>> policy.requirements(RiskLevel.HIGH, EffectKind.IRREVERSIBLE_WRITE)
        Requirements(approval=True, verification=True, no_automatic_retry=False)

    Attributes:
        rules: all of them.
    """

    rules: tuple[RiskRule, ...] = ()

    def rule(self, *, risk: RiskLevel | None = None, kind: EffectKind | None = None) -> RiskPolicy:
        """Start a rule for a risk level, a kind, or both; without either it is for every effect."""
        return RiskPolicy((*self.rules, RiskRule(risk=risk, kind=kind)))

    def require_approval(self) -> RiskPolicy:
        """Let the newest rule demand an approval."""
        return self._require(Requirements(approval=True))

    def require_verification(self) -> RiskPolicy:
        """Let the newest rule demand that an outcome can be looked up."""
        return self._require(Requirements(verification=True))

    def no_automatic_retry(self) -> RiskPolicy:
        """Let the newest rule forbid the runtime to repeat attempts by itself."""
        return self._require(Requirements(no_automatic_retry=True))

    def auto_execute(self) -> RiskPolicy:
        """Say that the newest rule demands nothing. Changes nothing: other rules keep their demands."""
        return self._require(Requirements())

    def _require(self, more: Requirements) -> RiskPolicy:
        if not self.rules:
            return RiskPolicy((RiskRule(requirements=more),))
        *others, newest = self.rules
        return RiskPolicy((*others, msgspec.structs.replace(newest, requirements=newest.requirements | more)))

    def requirements(self, risk: RiskLevel, kind: EffectKind) -> Requirements:
        """Everything that is demanded of such an effect: the union of all rules that match."""
        union = Requirements()
        for rule in self.rules:
            if rule.matches(risk, kind):
                union |= rule.requirements
        return union


class UnknownPlan(enum.StrEnum):
    """What is done about an outcome that is unknown."""

    VERIFY = "verify"
    """Look it up. Looking beats repeating, even where repeating does no harm."""
    REEXECUTE = "reexecute"
    """Do it again, which does no harm."""
    ESCALATE = "escalate"
    """Leave it to a person."""

    @classmethod
    def of(cls, contract: ExecutionContract) -> UnknownPlan:
        """The plan for an effect under this contract."""
        if contract.verification.mode is not VerificationMode.NONE:
            return cls.VERIFY
        if contract.kind.is_naturally_idempotent or contract.remote_idempotency:
            return cls.REEXECUTE
        return cls.ESCALATE
