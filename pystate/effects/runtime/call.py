"""A call: one effect with its key and input, the rules that hold for it, and its contract; all checked, nothing stored.

Made for a caller (`Call.new`), or for a record whose caller is gone (`Call.resumed`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pystate.effects.contract import ExecutionContract, VerificationMode
from pystate.effects.fingerprint import fingerprint_of
from pystate.effects.ids import EffectId, EffectKey, EffectName, LogicalKey
from pystate.effects.payload import ABSENT, AbsentType, JsonValue
from pystate.effects.policy import Requirements, UnknownPlan
from pystate.effects.record import EffectRecord
from pystate.effects.redaction import RedactedField, Secret, from_json, redact, to_json
from pystate.effects.requests import NewEffect
from pystate.effects.retry import RetryPolicy
from pystate.effects.runtime.answers import EffectContext
from pystate.effects.runtime.effect import Effect
from pystate.effects.runtime.parts import Parts, logger
from pystate.errors import (
    EffectIdentityError,
    EffectInputError,
    IdentityError,
    InputPayloadError,
    PayloadError,
    PolicyViolationError,
    StoredInputError,
)

__all__ = ["Call"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call. Immutable.

    Attributes:
        effect: its description.
        key: its name and logical key.
        contract: with the demands of the risk policy.
        plan: what is done about an outcome that is unknown.
        retry: the policy of the effect, or that of the runtime.
        input: as the code sees it.
        stored_input: as it is stored, redacted.
        fingerprint: of that; None without an input.
        actor: who asks, or None; stands in the record and in the trail.
    """

    effect: Effect[Any]
    key: EffectKey
    contract: ExecutionContract
    plan: UnknownPlan
    retry: RetryPolicy
    input: Any
    stored_input: JsonValue | AbsentType
    fingerprint: str | None
    actor: str | None

    @classmethod
    def new(cls, parts: Parts, effect: Effect[Any], key: object, input: object, actor: str | None) -> Call:  # noqa: A002
        """For a caller.

        Arguments:
            parts: of the runtime.
            effect: its description.
            key: anything with a text form.
            input: anything with a JSON form, or `ABSENT`.
            actor: who asks, or None.

        Raises:
            EffectIdentityError: the name or the key is not allowed.
            EffectInputError: the input has no JSON form, or the redactor raised.
            PolicyViolationError: the risk policy demands a verification that the effect does not have.
            TypeError: the key is None or a `Secret`, of which one is like another.
        """
        if key is None or isinstance(key, Secret):
            raise TypeError(f"key: {key!r} tells no effect from another; give what names this one")
        try:
            effect_key = EffectKey(EffectName(effect.name), LogicalKey(str(key)))
        except IdentityError as error:
            raise EffectIdentityError(error) from error
        contract, retry = _contract(parts, effect, effect_key)
        stored = _stored_input(parts, effect_key, input)
        call = cls(
            effect=effect,
            key=effect_key,
            contract=contract,
            plan=UnknownPlan.of(contract),
            retry=retry,
            input=input,
            stored_input=stored,
            fingerprint=None if stored is ABSENT else fingerprint_of(stored),
            actor=actor,
        )
        if effect.name not in parts.warned and call.always_escalates:
            parts.warned.add(effect.name)
            logger.warning(
                "effects named %r can neither be looked up nor repeated: when an outcome is unknown, a person must "
                "decide; give them `verify`, or say `remote_idempotency`",
                effect.name,
            )
        return call

    @classmethod
    def resumed(cls, parts: Parts, effect: Effect[Any], record: EffectRecord) -> Call:
        """For a record whose caller is gone: with its stored input and fingerprint, and its creator as the actor.

        Raises:
            InputPayloadError: the stored input has a schema version that the effect cannot read.
            StoredInputError: the stored input does not fit the code of the effect.
            PolicyViolationError: as `new` does.
        """
        contract, retry = _contract(parts, effect, record.key)
        return cls(
            effect=effect,
            key=record.key,
            contract=contract,
            plan=UnknownPlan.of(contract),
            retry=retry,
            input=stored_input(effect, record),
            stored_input=record.input,
            fingerprint=record.input_fingerprint,
            actor=record.created_by,
        )

    def new_effect(self, now: datetime) -> NewEffect:
        """What to store of it, with a fresh id."""
        return NewEffect.new(
            self.key,
            self.effect.kind,
            now,
            execution_contract=self.contract,
            input_schema_version=self.effect.input_schema.version,
            input=self.stored_input,
            input_fingerprint=self.fingerprint,
            created_by=self.actor,
        )

    def context(self, id: EffectId, attempt: int) -> EffectContext:  # noqa: A002
        """What the code of the effect is called with."""
        return EffectContext(
            id=id, key=self.key, idempotency_key=self.key.idempotency_key(), attempt=attempt, input=self.input
        )

    def may_retry(self, made: int) -> bool:
        """Whether the runtime may start another attempt by itself after so many."""
        return self.contract.automatic_retry and self.retry.allows_another(made)

    @property
    def always_escalates(self) -> bool:
        """Whether every outcome that is unknown goes to a person."""
        repeats = self.plan is UnknownPlan.REEXECUTE and self.may_retry(1)
        return self.plan is not UnknownPlan.VERIFY and not repeats

    @property
    def checks(self) -> int:
        """How often a lookup or a precondition is asked in a row."""
        return max(1, self.retry.max_attempts)


def stored_input(effect: Effect[Any], record: EffectRecord) -> Any:
    """The stored input as the code of the effect takes it; `ABSENT` if there is none.

    Raises:
        InputPayloadError: it has a schema version that the effect cannot read.
        StoredInputError: it does not fit the code of the effect.
    """
    if record.input is ABSENT:
        return ABSENT
    try:
        value = effect.input_schema.decode(record.input_schema_version, record.input)
    except PayloadError as error:
        raise InputPayloadError(record.id, error) from error
    try:
        return from_json(value, effect.input_type)
    except Exception as error:
        raise StoredInputError(record.id, error) from error


def _contract(parts: Parts, effect: Effect[Any], key: EffectKey) -> tuple[ExecutionContract, RetryPolicy]:
    demands: Requirements = parts.risk_policy.requirements(effect.risk, effect.kind)
    if demands.verification and effect.verification.mode is VerificationMode.NONE:
        raise PolicyViolationError(str(key), "verification")
    retry = parts.retry if effect.retry is None else effect.retry
    contract = ExecutionContract(
        kind=effect.kind,
        remote_idempotency=effect.remote_idempotency,
        verification=effect.verification,
        handler_version=effect.handler_version,
        adapter=effect.adapter,
        require_approval=effect.require_approval or demands.approval,
        automatic_retry=not demands.no_automatic_retry,
        max_attempts=retry.max_attempts,
    )
    return contract, retry


def _stored_input(parts: Parts, key: EffectKey, value: object) -> JsonValue | AbsentType:
    if value is ABSENT:
        return ABSENT
    try:
        return redact(parts.redactor, RedactedField.INPUT, key.name, to_json(value, "input"))
    except Exception as error:
        raise EffectInputError(error) from error
