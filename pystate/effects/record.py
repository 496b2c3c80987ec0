"""The record of an effect: everything that is stored about it, and the rules by which that may change.

Records are frozen. An operation checks itself against the record and returns the next record beside its result, or
raises and has changed nothing; a store runs it in one commit. No operation reads a clock: `now` comes from the caller.
All are pure, so any thread may call them. A dict or list in a payload is not copied on reading: do not change it.

A *lease* says who works on an effect. It is live while its expiry, as the record has it, lies after `now`. Taking it
raises the epoch, so that a former holder is recognised whatever its clock says.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from pystate.effects.checks import U32_MAX, as_duration, as_text, as_time
from pystate.effects.contract import ExecutionContract, contract_differences
from pystate.effects.ids import EffectId, EffectKey
from pystate.effects.kinds import EffectKind, ErrorRecord
from pystate.effects.payload import ABSENT, AbsentType, JsonValue
from pystate.effects.requests import EffectEvent, Lease, NewEffect, TransitionRequest
from pystate.effects.state import EffectStatus, Transition
from pystate.errors import (
    ContractMismatchError,
    InputMismatchError,
    InvalidTransitionError,
    KindMismatchError,
    LeaseHeldError,
    LeaseLostError,
    VersionConflictError,
)

__all__ = ["EffectRecord"]

_U32 = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
_U64 = Annotated[int, msgspec.Meta(ge=0)]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class EffectRecord(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=1, forbid_unknown_fields=True, gc=False
):
    """Everything that is stored about one effect, and what may be done to it.

    The order of the fields is the stored layout (`pystate.effects.record_format`). The defaults are those of a new
    effect. `id`, `key`, `kind`, `execution_contract`, `input_schema_version`, `input`, `input_fingerprint`,
    `created_by` and `created_at` never change.

    Attributes:
        execution_contract: the safety assumptions; None on a record from before there were contracts.
        input_schema_version, output_schema_version: of the input and the output.
        status: where it stands.
        input, output: as JSON; `ABSENT` when there is none, which is not None.
        input_fingerprint: to recognise another input by.
        last_error: the newest one; never cleared.
        created_by: who asked for it.
        attempt_count: attempts started, of all callers and workers.
        may_have_applied: the outcome of an attempt was unknown, and nothing since has shown that it did not apply.
        compensation_attempts: attempts started to undo it.
        approved: somebody approved it; this covers all attempts.
        next_attempt_at: not before this time.
        attempt_started_at, attempt_ended_at: of the newest attempt.
        lease_owner, lease_epoch, lease_expires_at: the newest lease; the epoch stays when it is released.
        version: how many transitions it has taken.
        committed_at: when it was first known to have applied.
        created_at, updated_at: of the record; a lease does not count as an update.
    """

    id: EffectId
    key: EffectKey
    kind: EffectKind
    execution_contract: ExecutionContract | None = None
    input_schema_version: _U32 = 1
    output_schema_version: _U32 = 1
    status: EffectStatus = EffectStatus.PENDING
    input: JsonValue | AbsentType = ABSENT
    input_fingerprint: str | None = None
    output: JsonValue | AbsentType = ABSENT
    last_error: ErrorRecord | None = None
    created_by: str | None = None
    attempt_count: _U32 = 0
    may_have_applied: bool = False
    compensation_attempts: _U32 = 0
    approved: bool = False
    next_attempt_at: _Time | None = None
    attempt_started_at: _Time | None = None
    attempt_ended_at: _Time | None = None
    lease_owner: str | None = None
    lease_epoch: _U64 = 0
    lease_expires_at: _Time | None = None
    version: _U64 = 0
    committed_at: _Time | None = None
    # The last two have no default, so that a stored array that is cut short is never completed by defaults.
    created_at: _Time
    updated_at: _Time

    @classmethod
    def new(cls, new_effect: NewEffect) -> EffectRecord:
        """The record of a new effect: pending, not leased, version 0."""
        return cls(
            id=new_effect.id,
            key=new_effect.key,
            kind=new_effect.kind,
            execution_contract=new_effect.execution_contract,
            input_schema_version=new_effect.input_schema_version,
            input=new_effect.input,
            input_fingerprint=new_effect.input_fingerprint,
            created_by=new_effect.created_by,
            created_at=new_effect.now,
            updated_at=new_effect.now,
        )

    # Leases

    def live_lease_owner(self, now: datetime) -> str | None:
        """Who holds a lease that is live at this time, or None. An expiry exactly at `now` is expired.

        Raises:
            TypeError, ValueError: no time, or a naive one.
        """
        now, expires_at = as_time(now, "now"), self.lease_expires_at
        return self.lease_owner if expires_at is not None and expires_at > now else None

    def acquire_lease(self, owner: str, now: datetime, ttl: timedelta) -> tuple[EffectRecord, Lease]:
        """Take the lease. Any status will do; version, `updated_at` and the trail stay as they are.

        Arguments:
            owner: who takes it, unique among the workers that share the store.
            now: the time.
            ttl: how long it lives unless it is renewed. Past the end of time it is born expired.

        Raises:
            LeaseHeldError: a lease is live, even if the same owner holds it.
            TypeError, ValueError: an argument of another type, a naive time, a negative duration.
        """
        owner, now = as_text(owner, "owner"), as_time(now, "now")
        expires_at = _expiry(now, as_duration(ttl, "ttl"))
        self._require_no_live_lease(now)
        epoch = self.lease_epoch + 1
        record = replace(self, lease_owner=owner, lease_epoch=epoch, lease_expires_at=expires_at)
        return record, Lease(effect_id=self.id, owner=owner, epoch=epoch, expires_at=expires_at)

    def renew_lease(self, lease: Lease, now: datetime, ttl: timedelta) -> tuple[EffectRecord, Lease]:
        """Let a live lease end at ``now + ttl``, which may be earlier than before. A lapsed lease stays dead.

        Arguments:
            lease: as `acquire_lease` or an earlier renewal returned it.
            now: the time.
            ttl: how long it lives from now on.

        Returns:
            The record, and the lease with its new expiry.

        Raises:
            LeaseLostError: it is not the live lease on this effect.
            TypeError, ValueError: an argument of another type, a naive time, a negative duration.
        """
        now = as_time(now, "now")
        expires_at = _expiry(now, as_duration(ttl, "ttl"))
        self._require_live(lease, now)
        return replace(self, lease_expires_at=expires_at), replace(lease, expires_at=expires_at)

    def release_lease(self, lease: Lease) -> tuple[EffectRecord, bool]:
        """Give the lease back, expired or not. The epoch stays.

        Returns:
            The record, and True; or this record and False when the lease is not the newest one, or was given back.
        """
        if not self._is_newest(lease):
            return self, False
        return replace(self, lease_owner=None, lease_expires_at=None), True

    def _is_newest(self, lease: Lease) -> bool:
        return lease.epoch == self.lease_epoch and lease.owner == self.lease_owner and lease.effect_id == self.id

    def _require_live(self, lease: Lease, now: datetime) -> None:
        # The expiry in the lease itself is not asked, so that a copy from before a renewal still works.
        expires_at = self.lease_expires_at
        if not self._is_newest(lease) or expires_at is None or expires_at <= now:
            raise LeaseLostError(self.id)

    def _require_no_live_lease(self, now: datetime) -> None:
        owner, expires_at = self.lease_owner, self.lease_expires_at
        if owner is not None and expires_at is not None and expires_at > now:
            raise LeaseHeldError(self.id, owner, expires_at)

    # Transitions

    def apply(self, request: TransitionRequest) -> tuple[EffectRecord, EffectEvent]:
        """Take a transition, if it is legal.

        Returns:
            The record after it, and the event for the trail.

        Raises:
            LeaseLostError: the request has a lease that is not the live one on this effect.
            LeaseHeldError: the request has no lease, and one is live, whoever holds it.
            VersionConflictError: the record is not at the expected version.
            InvalidTransitionError: the transition is not legal from this status; or it is `FAILED_DEFINITIVELY`, and
                an earlier attempt may have applied (a kind `READ` changes nothing, and may fail all the same).
            ValueError: the request is for another effect.

        These are checked in this order, the last one first.
        """
        if request.id != self.id:
            raise ValueError(f"id: the request is for effect {request.id}, and this is the record of effect {self.id}")
        if request.lease is not None:
            self._require_live(request.lease, request.now)
        else:
            self._require_no_live_lease(request.now)
        if request.expected_version != self.version:
            raise VersionConflictError(self.id, request.expected_version, self.version)
        record = replace(self, **self._changes(request, self._target(request.transition)))
        event = EffectEvent(
            effect_id=self.id,
            sequence=record.version,
            transition=request.transition,
            from_status=self.status,
            to_status=record.status,
            attempt=record.attempt_count,
            actor=request.actor,
            payload=request.payload,
            at=request.now,
        )
        return record, event

    def _target(self, transition: Transition) -> EffectStatus:
        """The status that the transition leads to."""
        target = self.status.exits.get(transition)
        if target is None:
            raise InvalidTransitionError(self.status, transition, id=self.id)
        if transition is _FAILED_DEFINITIVELY and self.may_have_applied and self.kind is not EffectKind.READ:
            raise InvalidTransitionError(
                self.status,
                transition,
                id=self.id,
                reason="an earlier attempt may have applied; record the outcome as unknown, and verify or resolve it",
            )
        return target

    def _changes(self, request: TransitionRequest, target: EffectStatus) -> dict[str, Any]:
        """The fields that a legal transition changes. The order matters: a later line overrides an earlier one."""
        transition, now = request.transition, request.now
        changes: dict[str, Any] = {"status": target, "version": self.version + 1, "updated_at": now}
        special = _SPECIAL.get(transition)
        if special is not None:
            special(self, request, changes)
        if self.status is _EXECUTING:
            changes["attempt_ended_at"] = now
        if target is _COMMITTED:
            changes["committed_at"] = now
        elif target is _UNKNOWN:
            changes["may_have_applied"] = True
        if transition in _NOT_APPLIED or (transition is _SCHEDULE_RETRY and self.status is _VERIFYING):
            changes["may_have_applied"] = False
        if request.output is not ABSENT:
            version = request.output_schema_version
            changes["output"] = request.output
            changes["output_schema_version"] = 1 if version is None else version
        if request.error is not None:
            changes["last_error"] = request.error
        return changes

    # Attaching

    def check_attach(
        self, kind: EffectKind, execution_contract: ExecutionContract, input_fingerprint: str | None
    ) -> None:
        """May a call attach to this record, to run it or to report it? Checked before anything is done.

        Arguments:
            kind: of the call.
            execution_contract: of the call.
            input_fingerprint: of the input of the call, or None for a call without one.

        Raises:
            KindMismatchError: recorded with another kind.
            ContractMismatchError: recorded under another contract. A record without one can be reported when nothing
                of it needs to run any more, and is refused in every other status.
            InputMismatchError: recorded with another input.

        These are checked in this order.
        """
        if kind is not self.kind:
            raise KindMismatchError(self.id, self.kind, kind)
        stored = self.execution_contract
        if stored is not None or self.status not in _REPORTED_WITHOUT_CONTRACT:
            fields = contract_differences(stored, execution_contract)
            if fields:
                raise ContractMismatchError(self.id, stored, execution_contract, fields)
        if input_fingerprint != self.input_fingerprint:
            raise InputMismatchError(self.id)


# Looked up once: in Python 3.11 a member of an enumeration costs more than a global.
_COMMITTED = EffectStatus.COMMITTED
_EXECUTING = EffectStatus.EXECUTING
_UNKNOWN = EffectStatus.UNKNOWN
_VERIFYING = EffectStatus.VERIFYING
_FAILED_DEFINITIVELY = Transition.FAILED_DEFINITIVELY
_SCHEDULE_RETRY = Transition.SCHEDULE_RETRY
_NOT_APPLIED = frozenset({Transition.VERIFICATION_NOT_APPLIED, Transition.RESOLVED_NOT_APPLIED})
_REPORTED_WITHOUT_CONTRACT = frozenset(
    {
        EffectStatus.COMMITTED,
        EffectStatus.FAILED,
        EffectStatus.REJECTED,
        EffectStatus.COMPENSATED,
        EffectStatus.NEEDS_INTERVENTION,
        EffectStatus.COMPENSATION_FAILED,
    }
)


def _expiry(now: datetime, ttl: timedelta) -> datetime:
    try:
        return now + ttl
    except OverflowError:
        return now  # born expired, which is safe, rather than alive for ever


def _outcome_unknown(record: EffectRecord, request: TransitionRequest, changes: dict[str, Any]) -> None:
    stored, given = record.next_attempt_at, request.next_attempt_at
    if given is not None and (stored is None or given > stored):
        changes["next_attempt_at"] = given


def _start_attempt(record: EffectRecord, request: TransitionRequest, changes: dict[str, Any]) -> None:
    changes["attempt_count"] = min(record.attempt_count + 1, U32_MAX)
    changes["attempt_started_at"] = request.now
    changes["attempt_ended_at"] = None
    changes["next_attempt_at"] = None
    changes["output"] = ABSENT


def _schedule(record: EffectRecord, request: TransitionRequest, changes: dict[str, Any]) -> None:
    given = request.next_attempt_at
    changes["next_attempt_at"] = request.now if given is None else given


def _approve(record: EffectRecord, request: TransitionRequest, changes: dict[str, Any]) -> None:
    changes["approved"] = True


def _start_compensation(record: EffectRecord, request: TransitionRequest, changes: dict[str, Any]) -> None:
    changes["compensation_attempts"] = 1
    changes["next_attempt_at"] = None


def _start_compensation_retry(record: EffectRecord, request: TransitionRequest, changes: dict[str, Any]) -> None:
    changes["compensation_attempts"] = min(record.compensation_attempts + 1, U32_MAX)
    changes["next_attempt_at"] = None


_SPECIAL: dict[Transition, Callable[[EffectRecord, TransitionRequest, dict[str, Any]], None]] = {
    Transition.OUTCOME_UNKNOWN: _outcome_unknown,
    Transition.START_ATTEMPT: _start_attempt,
    Transition.SCHEDULE_RETRY: _schedule,
    Transition.RESOLVED_RETRY: _schedule,
    Transition.SCHEDULE_COMPENSATION_RETRY: _schedule,
    Transition.APPROVE: _approve,
    Transition.START_COMPENSATION: _start_compensation,
    Transition.START_COMPENSATION_RETRY: _start_compensation_retry,
}
"""What a transition changes beside what its statuses say. Every other one changes nothing here."""
