"""The operations on effects in one transaction: several of them, and whatever else it does, are one commit.

`EffectReads` is bound to a view or a transaction and reads, `EffectOperations` is bound to a transaction and writes.
`EffectStore.bind` makes both, and `EffectStore` runs each operation in a transaction of its own. They are the only code
that writes the rows of `effect_rows`.

A lease that is handed out knows the store that it comes from (`StoreLease`). When a backup is restored, the records and
their epochs go back, so that a lease from before could look like the newest one again. But a restored store is another
store, with an id of its own (`Store.id`), and refuses it as if it had lapsed. What the record says of the lease still
holds others off until its time is over, since its holder may be at work. Files that were copied by other means have the
id of their original, and cannot be told from it: restore backups.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from pystate import FamilyReader, FamilyWriter, Transaction, View
from pystate.effects.checks import as_instance
from pystate.effects.effect_rows import BY_KEY, EFFECTS, EVENTS
from pystate.effects.ids import EffectId, EffectKey
from pystate.effects.ledger import EventList, RecordList
from pystate.effects.queries import InsertOutcome, ListQuery, PruneQuery
from pystate.effects.record import EffectRecord
from pystate.effects.requests import Lease, NewEffect, TransitionRequest
from pystate.effects.selection import Found, listed, prunable
from pystate.errors import EffectNotFoundError, KeyExistsError, LeaseLostError

__all__ = ["EffectOperations", "EffectReads", "FoundList", "StoreLease"]

FoundList = list[Found]


class StoreLease(Lease, frozen=True, kw_only=True, gc=False):
    """A lease, and the store that it is good for.

    Attributes:
        store_id: of the store that has given it out.
    """

    store_id: str


class EffectReads:
    """The effects as of a view, or as a transaction sees them, for reading. Made by `EffectStore.bind`.

    Every method that returns records raises `DecodeError` when it meets a row that cannot be read, unless it says
    otherwise. In a transaction all reads are tracked: what they have read must not change until the commit.
    """

    __slots__ = ("_effects", "_events")

    def __init__(self, source: View | Transaction) -> None:
        self._effects: FamilyReader = source.family(EFFECTS.family)
        self._events: FamilyReader = source.family(EVENTS.family)

    def get(self, id: EffectId) -> EffectRecord | None:  # noqa: A002
        """The record of an effect, or None."""
        return EFFECTS.stored(self._effects, EFFECTS.key.encode(id))

    def get_by_key(self, key: EffectKey) -> EffectRecord | None:
        """The record of a key, or None."""
        as_instance(key, EffectKey, "key")
        row_key = BY_KEY.slot(self._effects, key.name, key.key)
        return None if row_key is None else EFFECTS.stored(self._effects, row_key)

    def list(self, query: ListQuery) -> RecordList:
        """The records of a query, in ascending order of their ids. Cost: see `selection.listed`."""
        found = []
        for record, error in self.list_results(query):
            if error is not None:
                raise error
            found.append(record)
        return found  # type: ignore[return-value]  # there is a record where there is no error

    def list_results(self, query: ListQuery) -> FoundList:
        """As `list`, but each item is ``(record, None)``, or ``(None, error)`` for a row that was met and cannot be
        read. Errors do not count to the limit of the query."""
        return list(listed(self._effects, as_instance(query, ListQuery, "query")))

    def events(self, id: EffectId) -> EventList:  # noqa: A002
        """The trail of an effect, in order.

        Raises:
            EffectNotFoundError: there is no such effect. DecodeError: an event cannot be read.
        """
        row_key = EFFECTS.key.encode(id)
        if row_key not in self._effects:
            raise EffectNotFoundError(id)
        return [EVENTS.decode(key, value) for key, value in self._events.scan(prefix=row_key)]


class EffectOperations(EffectReads):
    """The operations of an `EffectLedger` in an open transaction. Made by `EffectStore.bind`.

    Nothing is committed here: that is up to whoever began the transaction, and a conflict shows at its commit. What an
    operation refuses leaves the transaction as it was.

    Arguments:
        txn: an open transaction of a store with the two families.
        store_id: of that store, for the leases that it gives out.
        hold: keep what is written of records until `flush`, so that several operations on one effect write its row and
            those of the indexes once. Whoever asks for it calls `flush` before the commit.
    """

    __slots__ = ("_held", "_held_keys", "_hold", "_store_id", "_writable_effects", "_writable_events")

    def __init__(self, txn: Transaction, store_id: str, *, hold: bool = False) -> None:
        super().__init__(txn)
        self._writable_effects: FamilyWriter = self._effects  # type: ignore[assignment]  # a transaction's can be written
        self._writable_events: FamilyWriter = self._events  # type: ignore[assignment]
        self._store_id = store_id
        self._hold = hold
        self._held: dict[bytes, tuple[EffectRecord | None, EffectRecord]] = {}  # what is stored, what is to be
        self._held_keys: dict[EffectKey, EffectRecord] = {}  # the new ones

    def flush(self) -> None:
        """Write what is held.

        Raises:
            InvalidRecordError: a record cannot be stored. All stays held, so that no later `flush` lets the events of
            that record be committed without it.
        """
        for row_key, (stored, record) in self._held.items():
            EFFECTS.replace_row(self._writable_effects, row_key, stored, record)
        self._held.clear()
        self._held_keys.clear()

    def _replace(self, row_key: bytes, old: EffectRecord | None, new: EffectRecord) -> None:
        """Write `new` where `old` is now, or hold it."""
        if not self._hold:
            EFFECTS.replace_row(self._writable_effects, row_key, old, new)
            return
        known = self._held.get(row_key)
        self._held[row_key] = (old if known is None else known[0], new)
        if old is None or new.key in self._held_keys:
            self._held_keys[new.key] = new

    def get(self, id: EffectId) -> EffectRecord | None:  # noqa: A002
        """The record of an effect, or None."""
        known = self._held.get(EFFECTS.key.encode(id)) if self._held else None
        return super().get(id) if known is None else known[1]

    def get_by_key(self, key: EffectKey) -> EffectRecord | None:
        """The record of a key, or None."""
        if key in self._held_keys:
            return self._held_keys[key]
        found = super().get_by_key(key)
        return found if found is None or not self._held else self.get(found.id)

    def list_results(self, query: ListQuery) -> FoundList:
        """As `EffectReads.list_results`."""
        self.flush()
        return super().list_results(query)

    def events(self, id: EffectId) -> EventList:  # noqa: A002
        """As `EffectReads.events`."""
        self.flush()
        return super().events(id)

    def insert_or_get(self, new: NewEffect) -> InsertOutcome:
        """Record a new effect, unless its key is recorded already. See `EffectLedger.insert_or_get`.

        In the transaction of a state change this *plans* the effect: it is recorded exactly if the change is.

        Raises:
            KeyExistsError: another effect has the id of the new one.
        """
        as_instance(new, NewEffect, "new")
        found = self.get_by_key(new.key)
        if found is not None:
            return InsertOutcome(found, inserted=False)
        record = EffectRecord.new(new)
        row_key = EFFECTS.row_key(record)
        if row_key in self._held or row_key in self._effects:
            raise KeyExistsError(
                family=EFFECTS.family, key=row_key, hint=f"effect {new.id} has another key; make a new id"
            )
        self._replace(row_key, None, record)
        return InsertOutcome(record, inserted=True)

    def acquire_lease(self, id: EffectId, owner: str, now: datetime, ttl: timedelta) -> StoreLease:  # noqa: A002
        """Take the lease on an effect. See `EffectLedger.acquire_lease`."""
        row_key, record = self._required(id)
        changed, lease = record.acquire_lease(owner, now, ttl)
        self._replace(row_key, record, changed)
        return StoreLease(**msgspec.structs.asdict(lease), store_id=self._store_id)

    def renew_lease(self, lease: Lease, now: datetime, ttl: timedelta) -> Lease:
        """Let a live lease end at ``now + ttl``. See `EffectLedger.renew_lease`."""
        row_key, record = self._required(as_instance(lease, Lease, "lease").effect_id)
        self._require_own(lease)
        changed, renewed = record.renew_lease(lease, now, ttl)
        self._replace(row_key, record, changed)
        return renewed

    def release_lease(self, lease: Lease) -> None:
        """Give a lease back. See `EffectLedger.release_lease`."""
        row_key, record = self._required(as_instance(lease, Lease, "lease").effect_id)
        changed, released = record.release_lease(lease)
        if released and not self._is_foreign(lease):
            self._replace(row_key, record, changed)

    def transition(self, request: TransitionRequest) -> EffectRecord:
        """Take a transition, and put its event at the end of the trail. See `EffectLedger.transition`."""
        row_key, record = self._required(as_instance(request, TransitionRequest, "request").id)
        if request.lease is not None:
            self._require_own(request.lease)
        changed, event = record.apply(request)
        self._replace(row_key, record, changed)
        self._writable_events.put(EVENTS.row_key(event), EVENTS.encode(event))
        return changed

    def prune(self, query: PruneQuery) -> int:
        """Delete settled records with their events. See `EffectLedger.prune`.

        Returns:
            How many were deleted. Cost: these, and what is as old but leased. A record that cannot be read stays.
        """
        as_instance(query, PruneQuery, "query")
        self.flush()
        row_keys = [EFFECTS.row_key(record) for record in prunable(self._effects, query)]
        for row_key in row_keys:
            EFFECTS.remove_record(self._writable_effects, row_key)
            for key, _ in list(self._events.scan(prefix=row_key)):
                self._writable_events.delete(key)
        return len(row_keys)

    def _required(self, id: EffectId) -> tuple[bytes, EffectRecord]:  # noqa: A002
        row_key = EFFECTS.key.encode(id)
        known = self._held.get(row_key) if self._held else None
        record = EFFECTS.stored(self._effects, row_key) if known is None else known[1]
        if record is None:
            raise EffectNotFoundError(id)
        return row_key, record

    def _require_own(self, lease: Lease) -> None:
        if self._is_foreign(lease):
            raise LeaseLostError(lease.effect_id)

    def _is_foreign(self, lease: Lease) -> bool:
        """Whether another store has given it out. One that a caller has made by itself says nothing of that."""
        return isinstance(lease, StoreLease) and lease.store_id != self._store_id
