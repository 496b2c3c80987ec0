"""What the tests of the effect store have in common: effects in stores, requests at the stored version, rows behind."""

from __future__ import annotations

from typing import Any

from pystate.effects import (
    EffectEvent,
    EffectId,
    EffectKey,
    EffectKind,
    EffectLedger,
    EffectName,
    EffectRecord,
    EffectStatus,
    EffectStore,
    ListQuery,
    LogicalKey,
    NewEffect,
    Transition,
    TransitionRequest,
)
from pystate.effects.effect_rows import EFFECTS
from pystate.effects.testing.listing import WAYS
from tests.effects.samples import T
from tests.effects.trails import check_trail

__all__ = ["check_all", "effect_key", "new_effect", "overwrite", "record_effect", "request", "take", "trail_of"]


def effect_key(key: str) -> EffectKey:
    return EffectKey(EffectName("payment.charge"), LogicalKey(key))


def new_effect(key: str = "order_1", at: float = 0, **fields: Any) -> NewEffect:
    kind = fields.pop("kind", EffectKind.IRREVERSIBLE_WRITE)
    return NewEffect.new(effect_key(key), kind, T(at), **fields)


def request(record: EffectRecord, transition: Transition, at: float = 1, **fields: Any) -> TransitionRequest:
    return TransitionRequest.new(record, fields.pop("lease", None), transition, T(at), **fields)


def take(effects: EffectLedger, record: EffectRecord, *transitions: Transition, at: float = 1) -> EffectRecord:
    """Take transitions without a lease, all at the same time."""
    for transition in transitions:
        record = effects.transition(request(record, transition, at))
    return record


def record_effect(
    effects: EffectLedger,
    key: str = "order_1",
    status: EffectStatus = EffectStatus.PENDING,
    *,
    at: float = 1,
    **fields: Any,
) -> EffectRecord:
    """Record an effect, and bring it to a status."""
    return take(effects, effects.insert_or_get(new_effect(key, at=0, **fields)).record, *WAYS[status], at=at)


def trail_of(effects: EffectLedger, id_: EffectId) -> list[Transition]:
    return [event.transition for event in effects.events(id_)]


def overwrite(effects: EffectStore, id_: EffectId, value: bytes = b"\xc1") -> None:
    """Put other bytes in the place of a record, behind the back of the store."""
    effects.store.family(EFFECTS.family).put(EFFECTS.key.encode(id_), value)


def check_all(effects: EffectStore) -> list[tuple[EffectRecord, list[EffectEvent]]]:
    """Assert that all rows of the indexes are right and that every trail holds; return everything, by id."""
    assert effects.check() == []
    with effects.reading() as reads:
        found = [(record, reads.events(record.id)) for record in reads.list(ListQuery.statuses(limit=10**9))]
    for record, events in found:
        check_trail(record, events)
    return found
