"""The smallest store of effects: records and trails in two dicts, under one lock. The rules do the rest."""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import RLock
from typing import Any

from pystate.effects import (
    EffectEvent,
    EffectId,
    EffectKey,
    EffectRecord,
    InsertOutcome,
    Lease,
    ListQuery,
    NewEffect,
    PruneQuery,
    TransitionRequest,
)
from pystate.effects.ledger import EventList, RecordList
from pystate.errors import EffectNotFoundError

__all__ = ["MemoryStore"]


class MemoryStore:
    """An `EffectLedger` that is gone with its process."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.records: dict[EffectId, EffectRecord] = {}
        self.trails: dict[EffectId, list[EffectEvent]] = {}

    def insert_or_get(self, new: NewEffect) -> InsertOutcome:
        with self.lock:
            found = self.get_by_key(new.key)
            if found is None:
                self.records[new.id], self.trails[new.id] = EffectRecord.new(new), []
            return InsertOutcome(found or self.records[new.id], inserted=found is None)

    def get(self, id: EffectId) -> EffectRecord | None:  # noqa: A002
        return self.records.get(id)

    def get_by_key(self, key: EffectKey) -> EffectRecord | None:
        with self.lock:
            return next((record for record in self.records.values() if record.key == key), None)

    def change(self, id: EffectId, operation: str, *arguments: Any) -> Any:  # noqa: A002
        """Let an operation of the record make the next one; return what it returns beside it."""
        with self.lock:
            if id not in self.records:
                raise EffectNotFoundError(id)
            self.records[id], result = getattr(self.records[id], operation)(*arguments)
            return result

    def acquire_lease(self, id: EffectId, owner: str, now: datetime, ttl: timedelta) -> Lease:  # noqa: A002
        lease: Lease = self.change(id, "acquire_lease", owner, now, ttl)
        return lease

    def renew_lease(self, lease: Lease, now: datetime, ttl: timedelta) -> Lease:
        renewed: Lease = self.change(lease.effect_id, "renew_lease", lease, now, ttl)
        return renewed

    def release_lease(self, lease: Lease) -> None:
        self.change(lease.effect_id, "release_lease", lease)

    def transition(self, request: TransitionRequest) -> EffectRecord:
        with self.lock:
            event = self.change(request.id, "apply", request)
            self.trails[request.id].append(event)
            return self.records[request.id]

    def list(self, query: ListQuery) -> RecordList:
        with self.lock:
            return sorted(filter(query.matches, self.records.values()), key=lambda record: record.id)[: query.limit]

    def events(self, id: EffectId) -> EventList:  # noqa: A002
        if id not in self.records:
            raise EffectNotFoundError(id)
        return list(self.trails[id])

    def prune(self, query: PruneQuery) -> int:
        with self.lock:
            doomed = sorted(record.id for record in self.records.values() if query.matches(record))[: query.limit]
            for each in doomed:
                del self.records[each], self.trails[each]
            return len(doomed)
