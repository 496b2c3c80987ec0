"""Telling others what happens: observers hear of each new record and each stored transition, once and in order.

They are called after the commit, in the thread that made it; what they do, it waits for. One that raises is logged and
passed over: the effect and the other observers go on. A replay tells them nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pystate.effects.payload import AbsentType, JsonValue
from pystate.effects.record import EffectRecord
from pystate.effects.state import EffectStatus, Transition

__all__ = ["Observation", "Observer", "tell_created", "tell_transition"]

_logger = logging.getLogger("pystate.effects")
_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Observation:
    """One stored transition.

    Attributes:
        record: after it.
        transition: which step.
        from_status, to_status: the status before and after.
        in_previous_status: how long the record had been at its former version; not below zero.
        since_created: the age of the record; not below zero.
        actor: who did it, or None.
        payload: of the event, already redacted, or `ABSENT`.
    """

    record: EffectRecord
    transition: Transition
    from_status: EffectStatus
    to_status: EffectStatus
    in_previous_status: timedelta
    since_created: timedelta
    actor: str | None
    payload: JsonValue | AbsentType

    @classmethod
    def of(
        cls,
        before: EffectRecord,
        after: EffectRecord,
        transition: Transition,
        actor: str | None,
        payload: JsonValue | AbsentType,
    ) -> Observation:
        """What there is to tell of a transition from one record to the next."""
        return cls(
            record=after,
            transition=transition,
            from_status=before.status,
            to_status=after.status,
            in_previous_status=max(_NO_TIME, after.updated_at - before.updated_at),
            since_created=max(_NO_TIME, after.updated_at - after.created_at),
            actor=actor,
            payload=payload,
        )


class Observer:
    """Hears what happens. Inherit, and write the methods that you need; both do nothing here."""

    def on_created(self, record: EffectRecord) -> None:
        """A new record was stored."""

    def on_transition(self, observation: Observation) -> None:
        """A transition was stored."""


def tell_created(observers: Sequence[Observer], record: EffectRecord) -> None:
    """Tell all of them of a new record."""
    for observer in observers:
        try:
            observer.on_created(record)
        except Exception:
            _logger.exception("effect %s: observer %r raised", record.id, observer)


def tell_transition(observers: Sequence[Observer], observation: Observation) -> None:
    """Tell all of them of a transition."""
    for observer in observers:
        try:
            observer.on_transition(observation)
        except Exception:
            _logger.exception("effect %s: observer %r raised", observation.record.id, observer)
