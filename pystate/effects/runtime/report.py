"""What a record says about its effect, as an outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pystate.effects.ids import EffectId
from pystate.effects.kinds import ErrorRecord
from pystate.effects.payload import ABSENT
from pystate.effects.record import EffectRecord
from pystate.effects.redaction import from_json
from pystate.effects.runtime.effect import Effect
from pystate.effects.runtime.outcomes import (
    AwaitingApproval,
    Committed,
    Compensated,
    Failed,
    InProgress,
    NeedsIntervention,
    Outcome,
    Rejected,
    Unknown,
)
from pystate.effects.state import EffectStatus
from pystate.errors import OutputError, OutputPayloadError, OutputUnavailableError, PayloadError

__all__ = ["NO_ERROR", "REPORTED_AT_ONCE", "outcome_of", "stored_output"]

NO_ERROR = ErrorRecord(failure_class=None, message="no error was recorded")
"""Stands for the error of a record that has none."""

REPORTED_AT_ONCE = frozenset(
    {
        EffectStatus.COMMITTED,
        EffectStatus.FAILED,
        EffectStatus.REJECTED,
        EffectStatus.NEEDS_INTERVENTION,
        EffectStatus.COMPENSATED,
        EffectStatus.COMPENSATION_FAILED,
    }
)
"""The statuses that running an effect does not change: it is reported without a lease."""


def outcome_of(record: EffectRecord, effect: Effect[Any] | None) -> Outcome[Any]:
    """The outcome that the status says.

    Arguments:
        record: as it is now.
        effect: says how its output is read; None leaves it as the JSON that is stored.

    Raises:
        OutputUnavailableError, OutputPayloadError, OutputError: the effect is committed, and its output cannot be told.
    """
    status, id = record.status, record.id  # noqa: A001
    if status is EffectStatus.COMMITTED:
        return Committed(stored_output(record, effect), id=id)
    if status is EffectStatus.FAILED:
        return Failed(record.last_error or NO_ERROR, id=id)
    if status is EffectStatus.REJECTED:
        return Rejected(record.last_error or NO_ERROR, id=id)
    return _WITHOUT_VALUE.get(status, InProgress)(id)


_WITHOUT_VALUE: dict[EffectStatus, Callable[[EffectId], Outcome[Any]]] = {
    EffectStatus.UNKNOWN: Unknown,
    EffectStatus.NEEDS_INTERVENTION: NeedsIntervention,
    EffectStatus.COMPENSATION_FAILED: NeedsIntervention,
    EffectStatus.COMPENSATED: Compensated,
    EffectStatus.AWAITING_APPROVAL: AwaitingApproval,
}


def stored_output(record: EffectRecord, effect: Effect[Any] | None) -> Any:
    """The stored output as a caller of the effect wants it.

    Raises:
        OutputUnavailableError: none was stored.
        OutputPayloadError: it was stored under a schema version that the effect cannot read.
        OutputError: it does not fit the type that the effect returns.
    """
    if record.output is ABSENT:
        raise OutputUnavailableError(record.id)
    if effect is None:
        return record.output
    try:
        value = effect.output_schema.decode(record.output_schema_version, record.output)
    except PayloadError as error:
        raise OutputPayloadError(record.id, error) from error
    try:
        return from_json(value, effect.output_type)
    except Exception as error:
        raise OutputError(record.id, error) from error
