"""The one place that every transition of a runtime passes: redact, then store, then notify.

A *batch* is one commit. What belongs together is written in one, for every commit waits for the disk: a new effect, its
lease and its first attempt; a result, what follows from it, and the release of the lease. Observers hear of it when it
is stored, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pystate.effects.ids import EffectId
from pystate.effects.kinds import ErrorRecord
from pystate.effects.ledger import EffectLedger
from pystate.effects.payload import ABSENT, AbsentType, JsonValue
from pystate.effects.record import EffectRecord
from pystate.effects.redaction import REDACTED, RedactedField, redact, redact_message
from pystate.effects.requests import Lease, NewEffect, TransitionRequest
from pystate.effects.runtime.observing import Observation, tell_created, tell_transition
from pystate.effects.runtime.parts import Parts, logger
from pystate.effects.state import Transition
from pystate.errors import EffectNotFoundError

__all__ = ["Batch", "commit"]

T = TypeVar("T")


class Batch:
    """What is written in one commit. Made by `commit`, and used up when its function returns.

    Attributes:
        operations: of the store, for reading.
        now: the time of all that is written.
    """

    def __init__(self, parts: Parts, operations: EffectLedger) -> None:
        self.operations = operations
        self.now = parts.clock.now()
        self._parts = parts
        self._heard: list[EffectRecord | Observation] = []

    def get(self, id: EffectId) -> EffectRecord:  # noqa: A002
        """The record with this id.

        Raises:
            EffectNotFoundError: there is none.
        """
        record = self.operations.get(id)
        if record is None:
            raise EffectNotFoundError(id)
        return record

    def insert_or_get(self, new: NewEffect) -> tuple[EffectRecord, bool]:
        """Store a new effect, whose input is already redacted, or get the one that has its key.

        Returns:
            The record, and whether it is the new one.
        """
        outcome = self.operations.insert_or_get(new)
        if outcome.inserted:
            self._heard.append(outcome.record)
        return outcome.record, outcome.inserted

    def acquire(self, record: EffectRecord) -> Lease:
        """Take the lease, for the worker and the ttl of the runtime.

        Raises:
            LeaseHeldError: somebody else has it.
        """
        return self.operations.acquire_lease(record.id, self._parts.worker, self.now, self._parts.lease_ttl)

    def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens if it is lost."""
        self.operations.release_lease(lease)

    def transition(
        self,
        record: EffectRecord,
        lease: Lease | None,
        transition: Transition,
        *,
        output: JsonValue | AbsentType = ABSENT,
        output_schema_version: int | None = None,
        error: ErrorRecord | None = None,
        after: timedelta | None = None,
        not_before: datetime | None = None,
        actor: str | None = None,
        payload: JsonValue | AbsentType = ABSENT,
    ) -> EffectRecord:
        """Take a transition, with everything redacted that is stored with it.

        Arguments:
            record: as it is now.
            lease: that is held, or None (operators).
            transition: which step.
            output, output_schema_version, error, actor, payload: as in a `TransitionRequest`.
            after, not_before: both together give its `next_attempt_at`: so long after now, and not before that time.

        Returns:
            The record after it.

        Raises:
            What the store raises for a transition.
        """
        request = TransitionRequest.new(
            record,
            lease,
            transition,
            self.now,
            output=self._masked(record, RedactedField.OUTPUT, output),
            output_schema_version=output_schema_version,
            error=self._masked_error(record, error),
            next_attempt_at=_next_attempt(self.now, after, not_before),
            actor=actor,
            payload=self._masked(record, RedactedField.AUDIT_PAYLOAD, payload),
        )
        stored = self.operations.transition(request)
        if self._parts.observers:
            self._heard.append(Observation.of(record, stored, transition, actor, request.payload))
        return stored

    def tell(self) -> None:
        """Tell the observers, once it is stored."""
        for heard in self._heard:
            if isinstance(heard, Observation):
                tell_transition(self._parts.observers, heard)
            else:
                tell_created(self._parts.observers, heard)

    def _masked(
        self, record: EffectRecord, field: RedactedField, value: JsonValue | AbsentType
    ) -> JsonValue | AbsentType:
        # What a redactor fails on is masked as a whole: neither may a secret be stored, nor a result be lost for it.
        try:
            return redact(self._parts.redactor, field, record.key.name, value)
        except Exception:  # noqa: BLE001 - whatever the code of a program raises
            logger.exception("effect %s: the redactor raised; the %s is masked as a whole", record.id, field)
            return REDACTED

    def _masked_error(self, record: EffectRecord, error: ErrorRecord | None) -> ErrorRecord | None:
        if error is None or self._parts.redactor is None:
            return error
        try:
            message = redact_message(self._parts.redactor, record.key.name, error.message)
        except Exception:  # noqa: BLE001 - whatever the code of a program raises
            logger.exception("effect %s: the redactor raised; the error message is masked as a whole", record.id)
            message = REDACTED
        return ErrorRecord(failure_class=error.failure_class, message=message)


async def commit(parts: Parts, function: Callable[[Batch], T]) -> T:
    """Run ``function(batch)`` in one commit of the store, then tell the observers.

    Arguments:
        parts: of the runtime.
        function: plain; does nothing but read and write through the batch, since it may run several times. To write
            nothing, it raises.

    Returns:
        What it returned in the run that was committed.

    Raises:
        Whatever it raises, and what the store does.
    """
    batches: list[Batch] = []

    def run(operations: Any) -> T:
        batches.append(Batch(parts, operations))
        return function(batches[-1])

    result = await parts.store.transact_async(run)
    batches[-1].tell()
    return result


def _next_attempt(now: datetime, after: timedelta | None, not_before: datetime | None) -> datetime | None:
    if after is None:
        return not_before
    try:
        time = now + after
    except OverflowError:
        time = datetime.max.replace(tzinfo=now.tzinfo)
    return time if not_before is None else max(time, not_before)
