"""What the cases of the conformance suite are made of: a fresh store on trial, short ways to use it, and expectations.

Expectations raise `ConformanceError` themselves: an ``assert`` would vanish under ``-O``, and its text would not say
what a store has promised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from pystate.effects.ids import EffectId, EffectKey, EffectName, LogicalKey
from pystate.effects.kinds import EffectKind
from pystate.effects.ledger import EffectLedger
from pystate.effects.queries import ListQuery
from pystate.effects.record import EffectRecord
from pystate.effects.requests import EffectEvent, Lease, NewEffect, TransitionRequest
from pystate.effects.state import Transition

__all__ = [
    "TTL",
    "Case",
    "Cases",
    "ConformanceError",
    "MakeStore",
    "Reopen",
    "T",
    "Trial",
    "effect_key",
    "equal",
    "expect",
    "race",
    "refused",
]

MakeStore = Callable[[], EffectLedger]
"""Makes a fresh, empty store. One with a method ``close`` is closed after its case."""
Reopen = Callable[[Any], EffectLedger]
"""Closes a store, and opens it again on what it has kept."""

R = TypeVar("R")
E = TypeVar("E", bound=Exception)

_START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
TTL = timedelta(seconds=30)
"""How long leases live here, unless a case says otherwise."""


def T(seconds: float) -> datetime:
    """So many seconds after the beginning of every case."""
    return _START + timedelta(seconds=seconds)


def effect_key(name: str, key: str) -> EffectKey:
    """The key of one effect."""
    return EffectKey(EffectName(name), LogicalKey(key))


class ConformanceError(AssertionError):
    """A store does not keep a promise of `EffectLedger`; the text says which."""


# Expectations


def expect(condition: bool, promise: str) -> None:
    """Fail unless it is so."""
    if not condition:
        raise ConformanceError(promise)


def equal(found: object, expected: object, what: str) -> None:
    """Fail unless both are the same."""
    if found != expected:
        raise ConformanceError(f"{what}: {expected!r} expected, {found!r} found")


def refused(kind: type[E], call: Callable[[], object], what: str) -> E:
    """Fail unless the call raises this error; return it."""
    try:
        result = call()
    except kind as error:
        return error
    except Exception as error:
        raise ConformanceError(f"{what}: {kind.__name__} expected, {type(error).__name__} raised: {error}") from error
    raise ConformanceError(f"{what}: {kind.__name__} expected, {result!r} returned")


def race(calls: Sequence[Callable[[], R]]) -> list[R | Exception]:
    """Make all calls at once, each in a thread; what each returned or raised, in their order."""
    results: list[R | Exception] = [ConformanceError("a call did not end")] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = calls[number]()
        except Exception as error:  # noqa: BLE001 - whatever a store raises is its answer, which the case judges
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


# The store on trial


class Trial:
    """A fresh store, and short ways to use it. Times are seconds after the beginning (`T`).

    Attributes:
        store: on trial. A case that reopens it puts the new one here.
        reopen: see `Reopen`; None: the store keeps nothing.
    """

    def __init__(self, store: EffectLedger, reopen: Reopen | None) -> None:
        self.store = store
        self.reopen = reopen

    def insert(
        self,
        key: str = "order_1",
        *,
        at: float = 0,
        kind: EffectKind = EffectKind.IRREVERSIBLE_WRITE,
        **fields: Any,
    ) -> EffectRecord:
        """Record a new effect ``payment.charge`` with this key."""
        record, inserted = self.store.insert_or_get(
            NewEffect.new(effect_key("payment.charge", key), kind, T(at), **fields)
        )
        expect(inserted, f"a key that was never recorded is inserted: {key!r}")
        return record

    def insert_many(self, count: int) -> list[EffectRecord]:
        """Record so many effects, in the order of their ids."""
        return [self.insert(f"order_{number}") for number in range(count)]

    def lease(self, record: EffectRecord, owner: str = "a", *, at: float = 0, ttl: timedelta = TTL) -> Lease:
        """Acquire the lease on an effect."""
        return self.store.acquire_lease(record.id, owner, T(at), ttl)

    def request(
        self, record: EffectRecord, transition: Transition, at: float, lease: Lease | None = None, **fields: Any
    ) -> TransitionRequest:
        """A request for an effect at the version that is stored, unless the fields say another one."""
        version = fields.pop("expected_version", None)
        return TransitionRequest(
            id=record.id,
            expected_version=self.stored(record).version if version is None else version,
            lease=lease,
            transition=transition,
            now=T(at),
            **fields,
        )

    def take(
        self, record: EffectRecord, transition: Transition, at: float, lease: Lease | None = None, **fields: Any
    ) -> EffectRecord:
        """Take a transition; what comes back is what a read then returns."""
        changed = self.store.transition(self.request(record, transition, at, lease, **fields))
        equal(self.stored(record), changed, f"the record after {transition}, read again")
        return changed

    def walk(self, record: EffectRecord, *transitions: Transition, at: float = 1) -> EffectRecord:
        """Take transitions without a lease, all at the same time."""
        for transition in transitions:
            record = self.take(record, transition, at)
        return record

    def stored(self, record: EffectRecord) -> EffectRecord:
        """The record as it is now."""
        found = self.store.get(record.id)
        if found is None:
            raise ConformanceError(f"effect {record.id} was recorded, and get returns None")
        return found

    def events(self, record: EffectRecord) -> list[EffectEvent]:
        """The trail of an effect."""
        return list(self.store.events(record.id))

    def trail(self, record: EffectRecord) -> list[Transition]:
        """The transitions of its trail."""
        return [event.transition for event in self.events(record)]

    def ids(self, query: ListQuery) -> list[EffectId]:
        """The ids that a query lists, in its order."""
        return [record.id for record in self.store.list(query)]


class Case(NamedTuple):
    """One promise of `EffectLedger`, and how to see whether a store keeps it. As text it is its name.

    Attributes:
        name: what is promised, in words joined by underscores.
        check: raises `ConformanceError` when a store breaks it.
        reopens: it needs a store that can be opened again.
    """

    name: str
    check: Callable[[Trial], None]
    reopens: bool = False

    def __str__(self) -> str:
        return self.name

    def run(self, make_store: MakeStore, *, reopen: Reopen | None = None) -> None:
        """Check a fresh store.

        Arguments:
            make_store, reopen: as for `conformance`. A case that reopens passes a store without `reopen`.

        Raises:
            ConformanceError: it does not keep the promise, or raises where it should not.
        """
        if self.reopens and reopen is None:
            return
        trial = Trial(make_store(), reopen)
        try:
            self.check(trial)
        except ConformanceError:
            raise
        except Exception as error:
            raise ConformanceError(f"the store has raised {type(error).__name__}: {error}") from error
        finally:
            close = getattr(trial.store, "close", None)
            if close is not None:
                close()


class Cases(list[Case]):
    """The cases of one subject; a decorator adds one."""

    def add(self, check: Callable[[Trial], None]) -> Callable[[Trial], None]:
        """Add a function as a case of its name."""
        self.append(Case(check.__name__, check))
        return check

    def add_reopening(self, check: Callable[[Trial], None]) -> Callable[[Trial], None]:
        """The same for a case that opens its store again."""
        self.append(Case(check.__name__, check, reopens=True))
        return check
