"""What the tests of the effect ledger have in common: times, a fresh record, and short ways through its life."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pystate.effects import (
    EffectEvent,
    EffectKey,
    EffectKind,
    EffectName,
    EffectRecord,
    ErrorRecord,
    FailureClass,
    Lease,
    LogicalKey,
    NewEffect,
    Transition,
    TransitionRequest,
)

__all__ = ["KEY", "TTL", "History", "T", "error", "fresh", "leased", "seconds"]

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
KEY = EffectKey(EffectName("payment.charge"), LogicalKey("order_1"))


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


TTL = seconds(30)


def T(number: float) -> datetime:
    """So many seconds after the beginning."""
    return START + seconds(number)


def fresh(kind: EffectKind = EffectKind.IRREVERSIBLE_WRITE, **fields: Any) -> EffectRecord:
    """R: a new record, made at T(0)."""
    return EffectRecord.new(NewEffect.new(KEY, kind, T(0), **fields))


def leased(kind: EffectKind = EffectKind.IRREVERSIBLE_WRITE) -> tuple[EffectRecord, Lease]:
    """R with lease A: of worker `a`, from T(0) for 30 seconds."""
    return fresh(kind).acquire_lease("a", T(0), TTL)


def error(message: str, failure_class: FailureClass | None = FailureClass.TRANSIENT) -> ErrorRecord:
    return ErrorRecord(failure_class=failure_class, message=message)


class History:
    """A record going through its life without a lease, one second after another; and its trail."""

    def __init__(self, kind: EffectKind = EffectKind.IRREVERSIBLE_WRITE, record: EffectRecord | None = None) -> None:
        self.record = fresh(kind) if record is None else record
        self.events: list[EffectEvent] = []
        self.now = 0.0

    def take(self, *transitions: Transition, at: float | None = None, **fields: Any) -> EffectRecord:
        """Apply these transitions, the first one at `at` (a second after the one before if not given)."""
        for transition in transitions:
            self.now = self.now + 1 if at is None else at
            at = None
            request = TransitionRequest.new(self.record, None, transition, T(self.now), **fields)
            self.record, event = self.record.apply(request)
            self.events.append(event)
        return self.record

    def copy(self) -> History:
        """Another one that goes on from here."""
        other = History(record=self.record)
        other.events, other.now = list(self.events), self.now
        return other
