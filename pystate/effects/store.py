"""`EffectStore`: effects in a pystate store, durably. Every operation is one commit, and several can be one.

    >>> from datetime import datetime, timedelta, timezone
    >>> from pystate.effects import EffectKey, EffectKind, EffectName, EffectStore, LogicalKey, NewEffect
    >>> from pystate.effects import Transition, TransitionRequest
    >>> now = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
    >>> key = EffectKey(EffectName("payment.charge"), LogicalKey("order_1"))
    >>> effects = EffectStore.memory()
    >>> new = NewEffect.new(key, EffectKind.IRREVERSIBLE_WRITE, now)
    >>> record, inserted = effects.insert_or_get(new)
    >>> lease = effects.acquire_lease(record.id, "worker-1", now, timedelta(seconds=30))
    >>> record = effects.transition(TransitionRequest.new(record, lease, Transition.START_ATTEMPT, now))
    >>> record.status
    <EffectStatus.EXECUTING: 'executing'>
    >>> [event.transition.audit_name for event in effects.events(record.id)]
    ['effect.attempt_started']

What a call costs is one commit of the store, and with ``durability="sync"`` one sync, which callers at the same time
share. Work on one effect never conflicts with work on another: leases, renewals and transitions read the rows of their
own effect alone. What the store below raises comes through as it is: `StoreFailedError`, `DiskFullError`,
`ReadOnlyError`, `ClosedError`, and `DecodeError` for a row that cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import ClassVar, TypeAlias, TypeVar, overload

import pystate
from pystate import Durability, Files, Store, Transaction, View
from pystate.effects.checks import as_instance
from pystate.effects.effect_rows import BY_KEY, EFFECTS, EVENTS
from pystate.effects.ids import EffectId, EffectKey
from pystate.effects.ledger import EventList, RecordList
from pystate.effects.operations import EffectOperations, EffectReads, FoundList, StoreLease
from pystate.effects.queries import InsertOutcome, ListQuery, PruneQuery
from pystate.effects.record import EffectRecord
from pystate.effects.requests import Lease, NewEffect, TransitionRequest
from pystate.tables import IndexProblem, check_table, rebuild_indexes

__all__ = ["EffectStore"]

T = TypeVar("T")

ProblemList: TypeAlias = list[IndexProblem]

_ATTEMPTS = 1_000_000
"""Of one operation: each conflict means that another one has got through, so this ends."""


class EffectStore:
    """The effects in an open store: an `EffectLedger`. A context manager.

    Threads may share it. `open` and `memory` make one with a store of its own, which `close` closes.

    Arguments:
        store: an open store that has the families `FAMILIES`. It stays the caller's, who closes it.

    Attributes:
        FAMILIES: the names of the families: records with their indexes, and events.

    Raises:
        FamilyNotFoundError: a family is missing.
    """

    FAMILIES: ClassVar[tuple[str, ...]] = (EFFECTS.family, EVENTS.family)

    __slots__ = ("_effects", "_owned", "_store", "_store_id")

    def __init__(self, store: Store) -> None:
        self._store = as_instance(store, Store, "store")
        self._effects = store.family(EFFECTS.family)
        store.family(EVENTS.family)
        self._store_id = store.id
        self._owned = False

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Durability = "sync",
        lock_timeout: float = 0.0,
        files: Files | None = None,
    ) -> EffectStore:
        """Open the store in a directory with whatever families it has, and make those for effects if they are missing.

        Arguments: those of `pystate.open`. A store that is opened read-only must have the families.

        Raises:
            FamilyNotFoundError: it is read-only and has no effects. What `pystate.open` raises.
        """
        store = pystate.open(
            path, create=create, read_only=read_only, durability=durability, lock_timeout=lock_timeout, files=files
        )
        try:
            if not read_only:
                for name in cls.FAMILIES:  # a crash between the two leaves the first one empty, and no harm done
                    if name not in store.families:
                        store.create_family(name)
            effects = cls(store)
        except BaseException:
            store.close()
            raise
        effects._owned = True
        return effects

    @classmethod
    def memory(cls, *, families: Iterable[str] = ()) -> EffectStore:
        """A store with nothing on disk, for tests.

        Arguments:
            families: to have besides those for effects.
        """
        effects = cls(pystate.memory(families=[*cls.FAMILIES, *families]))
        effects._owned = True
        return effects

    @property
    def store(self) -> Store:
        """The store below, for the other families in it."""
        return self._store

    def close(self) -> None:
        """Close the store, if `open` or `memory` made it; may be called twice. Raises as `Store.close`."""
        if self._owned:
            self._store.close()

    def __enter__(self) -> EffectStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            self._store.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<EffectStore in {self._store!r}>"

    # Several operations in one commit

    @overload
    def bind(self, source: Transaction) -> EffectOperations: ...
    @overload
    def bind(self, source: View) -> EffectReads: ...
    def bind(self, source: Transaction | View) -> EffectOperations | EffectReads:
        """The effects in an open transaction of this store, whatever else that does; or as of a view, for reading.

        So an effect is planned in the same commit as the state change that needs it, or not at all::

            with effects.store.begin() as txn:
                txn.put("orders", b"order_1", b"paid")
                effects.bind(txn).insert_or_get(new)

        Raises:
            FamilyNotFoundError: it is of another store, or began before the families were made. ClosedError: it has
            ended.
        """
        return EffectReads(source) if isinstance(source, View) else EffectOperations(source, self._store_id)

    def transact(
        self,
        function: Callable[[EffectOperations], T],
        *,
        attempts: int = _ATTEMPTS,
        durability: Durability | None = None,
    ) -> T:
        """Run ``function(operations)`` in one commit, and again on a conflict; see `Store.transact`.

        Arguments:
            function: must do nothing but what `operations` does, since it may run several times.
            attempts: how often at most.
            durability: of the commit; None means that of the store.

        Returns:
            What `function` returned in the run that was committed.

        Raises:
            Whatever `function` raises, and nothing was written then; and what `Store.transact` raises.
        """
        return self._store.transact(lambda txn: self._held(txn, function), attempts=attempts, durability=durability)

    def _held(self, txn: Transaction, function: Callable[[EffectOperations], T]) -> T:
        operations = EffectOperations(txn, self._store_id, hold=True)
        result = function(operations)
        operations.flush()
        return result

    async def transact_async(
        self,
        function: Callable[[EffectOperations], T],
        *,
        attempts: int = _ATTEMPTS,
        durability: Durability | None = None,
    ) -> T:
        """`transact` for a task of an event loop; see `Store.transact_async`."""
        return await self._store.transact_async(
            lambda txn: self._held(txn, function), attempts=attempts, durability=durability
        )

    @contextmanager
    def reading(self) -> Iterator[EffectReads]:
        """The effects in one state, for reads that belong together."""
        with self._store.view() as view:
            yield EffectReads(view)

    # The operations, each of them one commit

    def insert_or_get(self, new: NewEffect) -> InsertOutcome:
        """Record a new effect, unless its key is recorded already. See `EffectLedger.insert_or_get`.

        Raises:
            KeyExistsError: another effect has the id of the new one.
        """
        return self.transact(lambda operations: operations.insert_or_get(new))

    def get(self, id: EffectId) -> EffectRecord | None:  # noqa: A002
        """The record of an effect, or None."""
        return EFFECTS.stored(self._effects, EFFECTS.key.encode(id))

    def get_by_key(self, key: EffectKey) -> EffectRecord | None:
        """The record of a key, or None."""
        as_instance(key, EffectKey, "key")
        row_key = BY_KEY.slot(self._effects, key.name, key.key)
        if row_key is None:
            return None
        record = EFFECTS.stored(self._effects, row_key)
        if record is not None:
            return record  # a record never changes its key, so the two rows belong together
        with self.reading() as reads:  # pruned just now, and perhaps recorded anew
            return reads.get_by_key(key)

    def acquire_lease(self, id: EffectId, owner: str, now: datetime, ttl: timedelta) -> StoreLease:  # noqa: A002
        """Take the lease on an effect. See `EffectLedger.acquire_lease`. It is good for this store only."""
        return self.transact(lambda operations: operations.acquire_lease(id, owner, now, ttl))

    def renew_lease(self, lease: Lease, now: datetime, ttl: timedelta) -> Lease:
        """Let a live lease end at ``now + ttl``. See `EffectLedger.renew_lease`."""
        return self.transact(lambda operations: operations.renew_lease(lease, now, ttl))

    def release_lease(self, lease: Lease) -> None:
        """Give a lease back. See `EffectLedger.release_lease`."""
        self.transact(lambda operations: operations.release_lease(lease))

    def transition(self, request: TransitionRequest) -> EffectRecord:
        """Take a transition, and put its event at the end of the trail. See `EffectLedger.transition`."""
        return self.transact(lambda operations: operations.transition(request))

    def list(self, query: ListQuery) -> RecordList:
        """The records of a query, in ascending order of their ids.

        Cost: what is returned, and records that match but for their lease. Settled ones are read only if they are
        asked for.

        Raises:
            DecodeError: a row that was met cannot be read; `list_results` goes on.
        """
        with self.reading() as reads:
            return reads.list(query)

    def list_results(self, query: ListQuery) -> FoundList:
        """As `list`, but each item is ``(record, None)``, or ``(None, error)`` for a row that was met and cannot be
        read. Errors do not count to the limit of the query."""
        with self.reading() as reads:
            return reads.list_results(query)

    def events(self, id: EffectId) -> EventList:  # noqa: A002
        """The trail of an effect, in order.

        Raises:
            EffectNotFoundError: there is no such effect. DecodeError: an event cannot be read.
        """
        with self.reading() as reads:
            return reads.events(id)

    def prune(self, query: PruneQuery) -> int:
        """Delete settled records with their events. See `EffectLedger.prune`.

        Returns:
            How many were deleted. Cost: these, and what is as old but leased. A record that cannot be read stays.
        """
        return self.transact(lambda operations: operations.prune(query))

    # Checks

    def check(self) -> ProblemList:
        """Compare the rows of all indexes with what the records say; none returned means that all is right.

        Rows of records and events that cannot be read are among what it returns. Cost: all rows.
        """
        with self._store.view() as view:
            return [
                *check_table(EFFECTS, view.family(EFFECTS.family)),
                *check_table(EVENTS, view.family(EVENTS.family)),
            ]

    def rebuild_indexes(self) -> int:
        """Write the rows of all indexes anew from the records; return how many were wrong. Cost: all rows.

        Raises:
            SlotTakenError: two records have one key. DecodeError: a record cannot be read.
        """
        return self._store.transact(lambda txn: rebuild_indexes(EFFECTS, txn.family(EFFECTS.family)))
