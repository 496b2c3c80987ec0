"""`EffectLedger`: what every store of effects can do. The contract stands here; `EffectStore` adds what is its own.

A store of your own needs these ten operations and nothing else; ``pystate.effects.testing.conformance`` checks one.

What holds for all of them:

- Each is atomic: it takes effect whole or not at all, whoever calls at the same time. A transition and its event are
  one: both are there, or neither is.
- What is refused changes nothing: not the record, not its events, not its lease.
- No operation reads a clock; the time is an argument. A store keeps times to the millisecond at least, drops what it
  does not keep, and returns what a later read returns.
- Every field of a record comes back as it went in: JSON's null as null and no value as no value, contract and versions,
  durations, counters.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from pystate.effects.ids import EffectId, EffectKey
from pystate.effects.queries import InsertOutcome, ListQuery, PruneQuery
from pystate.effects.record import EffectRecord
from pystate.effects.requests import EffectEvent, Lease, NewEffect, TransitionRequest

__all__ = ["EffectLedger", "EventList", "RecordList"]

RecordList: TypeAlias = list[EffectRecord]
EventList: TypeAlias = list[EffectEvent]


class EffectLedger(Protocol):
    """The operations of a store of effects. The module says what holds for all of them."""

    def insert_or_get(self, new: NewEffect) -> InsertOutcome:
        """Record a new effect, unless its key is recorded already.

        Of callers at the same time one inserts, and all get the same record.

        Returns:
            The record of the key, as it is stored, and whether this call made it. One that was there is returned
            whatever `new` says; whether the two agree is for the caller to check (`EffectRecord.check_attach`).
        """

    def get(self, id: EffectId) -> EffectRecord | None:  # noqa: A002
        """The record of an effect, or None."""

    def get_by_key(self, key: EffectKey) -> EffectRecord | None:
        """The record of a key, or None."""

    def acquire_lease(self, id: EffectId, owner: str, now: datetime, ttl: timedelta) -> Lease:  # noqa: A002
        """`EffectRecord.acquire_lease`.

        Raises:
            EffectNotFoundError: there is no such effect. And what `EffectRecord.acquire_lease` raises.
        """

    def renew_lease(self, lease: Lease, now: datetime, ttl: timedelta) -> Lease:
        """`EffectRecord.renew_lease`.

        Raises:
            EffectNotFoundError: there is no such effect. And what `EffectRecord.renew_lease` raises.
        """

    def release_lease(self, lease: Lease) -> None:
        """`EffectRecord.release_lease`. A lease that is no longer the newest, or was given back, is no error.

        Raises:
            EffectNotFoundError: there is no such effect.
        """

    def transition(self, request: TransitionRequest) -> EffectRecord:
        """`EffectRecord.apply`, and the event at the end of the trail.

        Returns:
            The record after it.

        Raises:
            EffectNotFoundError: there is no such effect. And what `EffectRecord.apply` raises.
        """

    def list(self, query: ListQuery) -> RecordList:
        """The records of a query, in ascending order of their ids."""

    def events(self, id: EffectId) -> EventList:  # noqa: A002
        """The trail of an effect, in order.

        Raises:
            EffectNotFoundError: there is no such effect.
        """

    def prune(self, query: PruneQuery) -> int:
        """Delete the records of a query with their events, which frees their keys; those with the lowest ids first.

        Choosing and deleting are one: what is chosen cannot be leased or changed before it is gone.

        Returns:
            How many were deleted.
        """
