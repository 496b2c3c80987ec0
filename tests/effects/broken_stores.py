"""The memory store, broken on purpose: each breaks one promise of `EffectLedger`, the way a hasty store might."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from msgspec.structs import replace

from pystate.effects import (
    ABSENT,
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
from pystate.errors import EffectNotFoundError, LeaseHeldError
from tests.effects.memory_store import MemoryStore

__all__ = ["BROKEN"]


class OverwritesAKey(MemoryStore):
    """The second insertion wins."""

    def insert_or_get(self, new: NewEffect) -> InsertOutcome:
        with self.lock:
            found = self.get_by_key(new.key)
            if found is not None:
                self.records[found.id] = replace(found, kind=new.kind, input=new.input)
                return InsertOutcome(self.records[found.id], inserted=False)
            return super().insert_or_get(new)


class InsertsInTwoSteps(MemoryStore):
    """Looks, and inserts later: two callers can both find nothing."""

    def insert_or_get(self, new: NewEffect) -> InsertOutcome:
        found = self.get_by_key(new.key)
        time.sleep(0.002)
        if found is not None:
            return InsertOutcome(found, inserted=False)
        self.records[new.id], self.trails[new.id] = EffectRecord.new(new), []
        return InsertOutcome(self.records[new.id], inserted=True)


class JoinsTheKey(MemoryStore):
    """Takes the text of a key for the key."""

    def get_by_key(self, key: EffectKey) -> EffectRecord | None:
        return next((record for record in list(self.records.values()) if str(record.key) == str(key)), None)


class LosesNull(MemoryStore):
    """Stores an output of null as none."""

    def transition(self, request: TransitionRequest) -> EffectRecord:
        return super().transition(replace(request, output=ABSENT) if request.output is None else request)


class LetsTheOwnerIn(MemoryStore):
    """Its own lease is no obstacle to a worker."""

    def acquire_lease(self, id: EffectId, owner: str, now: datetime, ttl: timedelta) -> Lease:  # noqa: A002
        with self.lock:
            if id in self.records and self.records[id].live_lease_owner(now) == owner:
                self.records[id] = replace(self.records[id], lease_owner=None, lease_expires_at=None)
            return super().acquire_lease(id, owner, now, ttl)


class TakesOverLate(MemoryStore):
    """A lease is still live at its expiry."""

    def acquire_lease(self, id: EffectId, owner: str, now: datetime, ttl: timedelta) -> Lease:  # noqa: A002
        record = self.records.get(id)
        if record is not None and record.lease_owner and record.lease_expires_at == now:
            raise LeaseHeldError(id, record.lease_owner, now)
        return super().acquire_lease(id, owner, now, ttl)


class KeepsTheEpoch(MemoryStore):
    """Gives the epoch back with the lease, so that a former holder looks like the present one."""

    def release_lease(self, lease: Lease) -> None:
        super().release_lease(lease)
        record = self.records[lease.effect_id]
        if record.lease_owner is None:
            self.records[record.id] = replace(record, lease_epoch=record.lease_epoch - 1)


class RevivesALease(MemoryStore):
    """Renews whatever lease is the newest, lapsed or not."""

    def renew_lease(self, lease: Lease, now: datetime, ttl: timedelta) -> Lease:
        record = self.records.get(lease.effect_id)
        if record is not None and record.lease_epoch == lease.epoch and record.lease_owner == lease.owner:
            self.records[record.id] = replace(record, lease_expires_at=now + ttl)
            return replace(lease, expires_at=now + ttl)
        return super().renew_lease(lease, now, ttl)


class EvictsTheHolder(MemoryStore):
    """Anyone's release frees the effect."""

    def release_lease(self, lease: Lease) -> None:
        if lease.effect_id not in self.records:
            raise EffectNotFoundError(lease.effect_id)
        record = self.records[lease.effect_id]
        self.records[record.id] = replace(record, lease_owner=None, lease_expires_at=None)


class CountsRenewals(MemoryStore):
    """A renewal is an update."""

    def renew_lease(self, lease: Lease, now: datetime, ttl: timedelta) -> Lease:
        renewed = super().renew_lease(lease, now, ttl)
        record = self.records[lease.effect_id]
        self.records[record.id] = replace(record, updated_at=now, version=record.version + 1)
        return renewed


class RoundsTimes(MemoryStore):
    """Keeps milliseconds, rounded to the nearest one."""

    def acquire_lease(self, id: EffectId, owner: str, now: datetime, ttl: timedelta) -> Lease:  # noqa: A002
        up = now + timedelta(microseconds=500) if now.microsecond % 1000 else now
        return super().acquire_lease(id, owner, up.replace(microsecond=up.microsecond // 1000 * 1000), ttl)


class ReturnsWhatItWasGiven(MemoryStore):
    """Keeps seconds, and returns the exact lease."""

    def acquire_lease(self, id: EffectId, owner: str, now: datetime, ttl: timedelta) -> Lease:  # noqa: A002
        lease = super().acquire_lease(id, owner, now.replace(microsecond=0), ttl)
        return replace(lease, expires_at=now + ttl if lease.expires_at > now else lease.expires_at)


class ForgetsEvents(MemoryStore):
    """The record changes, the trail does not."""

    def transition(self, request: TransitionRequest) -> EffectRecord:
        with self.lock:
            changed = super().transition(request)
            if len(self.trails[request.id]) > 4:
                self.trails[request.id].pop()
            return changed


class WritesTheEventFirst(MemoryStore):
    """The event of a refused transition stays."""

    def transition(self, request: TransitionRequest) -> EffectRecord:
        with self.lock:
            try:
                return super().transition(request)
            except Exception:
                if self.trails.get(request.id):
                    self.trails[request.id].append(self.trails[request.id][-1])
                raise


class IgnoresTheVersion(MemoryStore):
    """The last one wins."""

    def transition(self, request: TransitionRequest) -> EffectRecord:
        with self.lock:
            record = self.records.get(request.id)
            version = request.expected_version if record is None else record.version
            return super().transition(replace(request, expected_version=version))


class ReturnsTheFormerRecord(MemoryStore):
    """Answers with what was."""

    def transition(self, request: TransitionRequest) -> EffectRecord:
        with self.lock:
            before = self.records.get(request.id)
            after = super().transition(request)
            return before or after


class ListsAsInserted(MemoryStore):
    """In the order of insertion."""

    def list(self, query: ListQuery) -> RecordList:
        return [record for record in list(self.records.values()) if query.matches(record)][: query.limit]


class RepeatsTheLast(MemoryStore):
    """A page begins with the last one of the page before."""

    def list(self, query: ListQuery) -> RecordList:
        with self.lock:
            matching = super().list(replace(query, after=None, limit=10**6))
        return [record for record in matching if query.after is None or record.id >= query.after][: query.limit]


class TakesZeroForAll(MemoryStore):
    """A limit of 0 is none."""

    def list(self, query: ListQuery) -> RecordList:
        return super().list(replace(query, limit=query.limit or 10**6))


class OverlooksReleased(MemoryStore):
    """Only what has an expiry can have expired."""

    def list(self, query: ListQuery) -> RecordList:
        found = super().list(query)
        if query.lease_expired_at is None:
            return found
        return [record for record in found if record.lease_expires_at is not None or record.lease_epoch == 0]


class ExpiresLate(MemoryStore):
    """A lease that ends now has not expired."""

    def list(self, query: ListQuery) -> RecordList:
        now = query.lease_expired_at
        return [record for record in super().list(query) if now is None or record.lease_expires_at != now]


class PrunesTheYoung(MemoryStore):
    """Exactly so old is too young."""

    def prune(self, query: PruneQuery) -> int:
        return super().prune(replace(query, older_than=query.older_than + timedelta(microseconds=1)))


class PrunesTheOldestFirst(MemoryStore):
    """By their age, and not by their ids."""

    def prune(self, query: PruneQuery) -> int:
        with self.lock:
            matching = [record for record in self.records.values() if query.matches(record)]
            matching.sort(key=lambda record: record.updated_at)
            for record in matching[: query.limit]:
                del self.records[record.id], self.trails[record.id]
            return len(matching[: query.limit])


class PrunesTheLeased(MemoryStore):
    """A lease protects nothing."""

    def prune(self, query: PruneQuery) -> int:
        with self.lock:
            for record in list(self.records.values()):
                if record.status.is_settled:
                    self.records[record.id] = replace(record, lease_owner=None, lease_expires_at=None)
            return super().prune(query)


class PrunesTheUnsettled(MemoryStore):
    """Whatever status is asked for."""

    def prune(self, query: PruneQuery) -> int:
        with self.lock:
            if query.status.is_settled:
                return super().prune(query)
            doomed = [record.id for record in self.records.values() if record.status is query.status]
            for each in doomed:
                del self.records[each], self.trails[each]
            return len(doomed)


class KeepsTrails(MemoryStore):
    """A pruned effect still has its trail."""

    def prune(self, query: PruneQuery) -> int:
        with self.lock:
            kept = dict(self.trails)
            count = super().prune(query)
            self.trails = kept
            return count

    def events(self, id: EffectId) -> EventList:  # noqa: A002
        if id not in self.trails:
            raise EffectNotFoundError(id)
        return list(self.trails[id])


BROKEN: dict[type[MemoryStore], str] = {
    OverwritesAKey: "a_recorded_key_is_returned_as_it_is",
    InsertsInTwoSteps: "of_many_at_once_one_inserts_and_all_get_its_record",
    JoinsTheKey: "a_key_is_a_pair",
    LosesNull: "null_and_no_value_are_two_things",
    LetsTheOwnerIn: "a_live_lease_holds_everyone_off_its_owner_too",
    TakesOverLate: "a_lease_has_expired_at_its_expiry",
    KeepsTheEpoch: "a_lease_is_given_back_once_and_the_epoch_stays",
    RevivesALease: "a_lapsed_lease_stays_dead",
    EvictsTheHolder: "a_former_holder_can_do_nothing",
    CountsRenewals: "a_hundred_renewals_leave_no_trace",
    RoundsTimes: "times_come_back_as_they_are_stored",
    ReturnsWhatItWasGiven: "times_come_back_as_they_are_stored",
    ForgetsEvents: "a_long_life_is_what_the_rules_make_of_it",
    WritesTheEventFirst: "what_is_refused_changes_nothing",
    IgnoresTheVersion: "of_many_with_one_version_one_gets_through",
    ReturnsTheFormerRecord: "a_history_is_kept_whole",
    ListsAsInserted: "a_list_is_in_the_order_of_ids_however_it_was_filled",
    RepeatsTheLast: "pages_make_up_the_whole",
    TakesZeroForAll: "pages_make_up_the_whole",
    OverlooksReleased: "expired_leases_are_those_left_in_the_middle",
    ExpiresLate: "expired_leases_are_those_left_in_the_middle",
    PrunesTheYoung: "exactly_so_old_is_old_enough",
    PrunesTheOldestFirst: "the_lowest_ids_go_first_whatever_their_age",
    PrunesTheLeased: "a_leased_one_stays_until_its_lease_has_expired",
    PrunesTheUnsettled: "nothing_that_is_not_settled_goes",
    KeepsTrails: "a_pruned_effect_was_never_there",
}
"""Each broken store, and the case that is made for what it breaks; others may fail too."""
