"""Cases about pruning: what is settled, old enough and free goes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from pystate.effects.kinds import EffectKind
from pystate.effects.queries import ListQuery, PruneQuery
from pystate.effects.record import EffectRecord
from pystate.effects.requests import NewEffect
from pystate.effects.state import ALL_STATUSES, EffectStatus
from pystate.effects.testing.listing import WAYS, one_of_each
from pystate.effects.testing.trial import Cases, ConformanceError, T, Trial, equal, expect, race, refused
from pystate.errors import EffectNotFoundError

__all__ = ["CASES"]

CASES = Cases()

_S = EffectStatus
_MINUTE = timedelta(seconds=60)


def _settled(trial: Trial, key: str, at: float, status: EffectStatus = _S.COMMITTED) -> EffectRecord:
    return trial.walk(trial.insert(key), *WAYS[status], at=at)


def _keys(trial: Trial) -> list[str]:
    """The keys that are left, in the order of their ids."""
    return [str(record.key.key) for record in trial.store.list(ListQuery.statuses())]


@CASES.add
def old_settled_ones_go_the_lowest_ids_first(trial: Trial) -> None:
    _settled(trial, "x", 10)
    _settled(trial, "young", 50)
    _settled(trial, "z", 10)
    _settled(trial, "failed", 10, _S.FAILED)
    _settled(trial, "unknown", 10, _S.UNKNOWN)
    _settled(trial, "needs", 10, _S.NEEDS_INTERVENTION)
    trial.lease(_settled(trial, "leased", 10), at=95)
    others = ["young", "failed", "unknown", "needs", "leased"]

    def prune(status: EffectStatus, limit: int, age: timedelta = _MINUTE) -> int:
        return trial.store.prune(PruneQuery(status, age, T(100), limit=limit))

    equal(prune(_S.COMMITTED, 1), 1, "how many go, at most 1")
    equal(_keys(trial), ["young", "z", *others[1:]], "what is left")
    equal(prune(_S.COMMITTED, 100), 1, "how many go then")
    equal(prune(_S.COMMITTED, 100), 0, "how many go then, again")
    equal(_keys(trial), others, "what is left")
    equal(prune(_S.FAILED, 100, timedelta(seconds=200_000_000_000)), 0, "how many are older than time")
    equal(prune(_S.FAILED, 100), 1, "how many of another status go")
    equal(_keys(trial), [key for key in others if key != "failed"], "what is left")


@CASES.add
def the_lowest_ids_go_first_whatever_their_age(trial: Trial) -> None:
    for number, at in enumerate([30, 10, 20, 5, 39]):
        _settled(trial, str(number), at)
    for left in (["2", "3", "4"], ["4"]):
        equal(trial.store.prune(PruneQuery(_S.COMMITTED, _MINUTE, T(100), limit=2)), 2, "how many go")
        equal(_keys(trial), left, "what is left")


@CASES.add
def nothing_that_is_not_settled_goes(trial: Trial) -> None:
    records = one_of_each(trial)
    for status in ALL_STATUSES:
        if not status.is_settled:
            equal(trial.store.prune(PruneQuery(status, timedelta(0), T(10**6))), 0, f"how many go that are {status}")
    equal(_keys(trial), [str(status) for status in ALL_STATUSES], "what is left")
    for status in ALL_STATUSES:
        if status.is_settled:
            equal(trial.store.prune(PruneQuery(status, timedelta(0), T(1))), 1, f"how many go that are {status}")
            equal(trial.store.get(records[status].id), None, f"what was {status}")


@CASES.add
def exactly_so_old_is_old_enough(trial: Trial) -> None:
    _settled(trial, "old", 40)
    _settled(trial, "young", 40.001)
    equal(trial.store.prune(PruneQuery(_S.COMMITTED, _MINUTE, T(100))), 1, "how many go")
    equal(_keys(trial), ["young"], "what is left")


@CASES.add
def a_leased_one_stays_until_its_lease_has_expired(trial: Trial) -> None:
    record = _settled(trial, "x", 10)
    trial.lease(record, at=95)
    equal(trial.store.prune(PruneQuery(_S.COMMITTED, _MINUTE, T(124.999))), 0, "how many go while it is leased")
    equal(trial.store.prune(PruneQuery(_S.COMMITTED, _MINUTE, T(125))), 1, "how many go at the expiry of its lease")


@CASES.add
def a_pruned_effect_was_never_there(trial: Trial) -> None:
    record, other = _settled(trial, "x", 10), _settled(trial, "y", 99)
    trail = trial.events(other)
    trial.store.prune(PruneQuery(_S.COMMITTED, _MINUTE, T(100)))
    equal(trial.store.get(record.id), None, "get")
    equal(trial.store.get_by_key(record.key), None, "get_by_key")
    refused(EffectNotFoundError, lambda: trial.store.events(record.id), "the trail of a pruned effect")
    equal(trial.events(other), trail, "the trail of another one")
    again, inserted = trial.store.insert_or_get(NewEffect.new(record.key, EffectKind.READ, T(101)))
    expect(inserted, "the key of a pruned effect is free")
    expect(again.id != record.id, "what is recorded under it has an id of its own")
    equal(trial.events(again), [], "its trail")
    equal(again.key.idempotency_key(), record.key.idempotency_key(), "the idempotency key, which lives on")


@CASES.add
def batches_make_up_the_whole(trial: Trial) -> None:
    for number in range(25):
        _settled(trial, str(number), 10)
    query = PruneQuery(_S.COMMITTED, _MINUTE, T(100), limit=10)
    equal([trial.store.prune(query) for _ in range(4)], [10, 10, 5, 0], "how many go in each batch")
    equal(trial.store.prune(PruneQuery(_S.COMMITTED, _MINUTE, T(100), limit=0)), 0, "how many go of none")


@CASES.add
def what_is_chosen_cannot_be_leased_before_it_is_gone(trial: Trial) -> None:
    records = [_settled(trial, str(number), 10) for number in range(12)]
    leases: list[Callable[[], object]] = [lambda each=each: trial.lease(each, at=100) for each in records]  # type: ignore[misc]
    prune: list[Callable[[], object]] = [lambda: trial.store.prune(PruneQuery(_S.COMMITTED, _MINUTE, T(100)))]
    *leased, pruned = race(leases + prune)
    if isinstance(pruned, Exception):
        raise ConformanceError(f"prune beside those who lease: {pruned!r}") from pruned
    left = set(trial.ids(ListQuery.statuses()))
    equal(pruned, len(records) - len(left), "how many were pruned")
    for record, result in zip(records, leased, strict=True):
        gone = isinstance(result, EffectNotFoundError)
        equal(gone, record.id not in left, f"whether one that was leased is gone ({result!r})")
