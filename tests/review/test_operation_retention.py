"""`OperationAttempts.prune`: what goes, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pystate import Store, Transaction
from pystate.engine.transaction import TransactionFamily
from pystate.errors import DecodeError
from pystate.review.operation_attempt import FAMILY, OperationAttempt, Outcome
from pystate.review.operation_attempts import OperationAttempts, RetentionBound
from tests.review.attempts import (
    HOST,
    OTHER,
    OWING,
    PIG,
    B,
    L,
    T,
    at,
    attempts_of,
    changed,
    checked_store,
    format_keys,
    keys,
    overwrite,
)


@pytest.fixture
def store() -> Iterator[Store]:
    with checked_store() as store:
        yield store


@pytest.fixture
def attempts(store: Store) -> OperationAttempts:
    return attempts_of(store)


def finished(attempts: OperationAttempts, *starts: float, instance: int = 1) -> None:
    """Finished attempts of one triple, called after their start."""
    for start in starts:
        attempts.upsert(T(f"{instance}-{start}", start, 9000, HOST, PIG, instance))


def test_the_newest_stays_whatever_its_age(store: Store, attempts: OperationAttempts) -> None:
    """Check R98: of the format there are 2 rows left."""
    attempts.upsert(T("op-1", 1000, 9000))
    attempts.upsert(T("op-2", 2000, 8000))
    attempts.upsert(T("op-3", 3000, 7000))
    assert attempts.prune(B(0, 0), at(10_000)) == 2
    assert list(attempts.iter()) == [T("op-3", 3000, 7000)]
    assert len(format_keys(store.family(FAMILY))) == 2


def test_of_equal_starts_the_greatest_key_is_the_newest(attempts: OperationAttempts) -> None:
    """Check R99: in the order of the bytes, not in that of the index, where the shorter ones come first."""
    attempts.upsert(T("op-b", 1000))
    attempts.upsert(T("op-a", 1000))
    attempts.upsert(T("op-aa", 1000))
    attempts.upsert(T("op-a\0", 1000))
    assert attempts.prune(B(0, 0), at(10_000)) == 3
    assert keys(attempts.iter()) == ["op-b"]


def test_triples_are_apart_and_what_is_live_or_owing_stays(attempts: OperationAttempts) -> None:
    """Check R100."""
    for number, (host, instance) in enumerate([(HOST, 1), (HOST, 2), (OTHER, 1)]):
        attempts.upsert(T(f"old-{number}", 1000, 9000, host, PIG, instance))
        attempts.upsert(T(f"new-{number}", 2000, 9000, host, PIG, instance))
    attempts.upsert(L("op-live", HOST, PIG, 9, started_at=at(0)))
    attempts.upsert(T("op-owing", 1000, 9000, HOST, PIG, 8, cleanup_state=OWING))
    attempts.upsert(T("op-owing-newer", 2000, 9000, HOST, PIG, 8))
    assert attempts.prune(B(0, 0), at(10_000)) == 3
    assert keys(attempts.iter()) == ["new-0", "new-1", "new-2", "op-live", "op-owing", "op-owing-newer"]


def test_exactly_the_greatest_age_stays(attempts: OperationAttempts) -> None:
    """Check R101."""
    finished(attempts, 1000, 2000, 2500, 3000)
    assert attempts.prune(B(1000, 10), at(3500)) == 2
    assert keys(attempts.iter()) == ["1-2500", "1-3000"]
    assert attempts.prune(B(1000, 10), at(3500.000001)) == 1


def test_so_many_of_each_triple_stay(attempts: OperationAttempts) -> None:
    """Check R102."""
    finished(attempts, 1000, 2000, 3000, 4000)
    finished(attempts, 1000, 2000, instance=2)
    assert attempts.prune(B(1_000_000, 2), at(5000)) == 2
    assert keys(attempts.iter()) == ["1-3000", "1-4000", "2-1000", "2-2000"]


def test_age_and_number_catch_the_same_one_once(attempts: OperationAttempts) -> None:
    """Check R103."""
    finished(attempts, 2000, 3000, 3500, 4000)
    assert attempts.prune(B(1800, 3), at(5000)) == 2
    assert keys(attempts.iter()) == ["1-3500", "1-4000"]


def test_within_both_bounds_nothing_goes(store: Store, attempts: OperationAttempts) -> None:
    """Check R104: and nothing is committed."""
    finished(attempts, 1000, 2000, 3000)
    sequence = store.sequence
    assert attempts.prune(B(1_000_000, 10), at(5000)) == 0
    assert attempts.prune(B(1_000_000, 3), at(5000)) == 0
    assert store.sequence == sequence


def test_what_must_stay_stays_under_the_tightest_bound(attempts: OperationAttempts) -> None:
    """Check R105."""
    attempts.upsert(T("op-newest", 1000))
    attempts.upsert(L("op-live", HOST, PIG, 2, started_at=at(1000)))
    attempts.upsert(T("op-owing", 1000, 9000, HOST, PIG, 3, cleanup_state=OWING))
    attempts.upsert(T("op-sibling", 2000, 9000, HOST, PIG, 3))
    assert attempts.prune(B(0, 0), at(1_000_000)) == 0
    assert len(list(attempts.iter())) == 4


def test_time_goes_by(attempts: OperationAttempts) -> None:
    """Check R106."""
    finished(attempts, 1000, 2000, 3000)
    bound = B(2500, 10)
    assert [attempts.prune(bound, at(3000)) for _ in range(2)] == [0, 0]
    assert [attempts.prune(bound, at(4000)) for _ in range(2)] == [1, 0]
    assert keys(attempts.iter()) == ["1-2000", "1-3000"]
    assert attempts.prune(bound, at(6000)) == 1
    assert keys(attempts.iter()) == ["1-3000"]


def test_what_owes_counts_as_the_newest(attempts: OperationAttempts) -> None:
    """Check R107."""
    finished(attempts, 1000, 2000)
    attempts.upsert(T("op-owing", 3000, cleanup_state=OWING))
    assert attempts.prune(B(0, 1), at(10_000)) == 2
    assert keys(attempts.iter()) == ["op-owing"]


def test_what_owes_counts_and_does_not_go(attempts: OperationAttempts) -> None:
    """Section 6.4: it takes a rank wherever it stands."""
    for start, cleanup in ((1000, None), (2000, OWING), (3000, None), (4000, OWING), (5000, None)):
        attempts.upsert(T(f"op-{start}", start, cleanup_state=cleanup))
    assert attempts.prune(B(1_000_000, 3), at(10_000)) == 1
    assert keys(attempts.iter()) == ["op-2000", "op-3000", "op-4000", "op-5000"]
    assert attempts.prune(B(1_000_000, 1), at(10_000)) == 1
    assert keys(attempts.iter()) == ["op-2000", "op-4000", "op-5000"]
    assert attempts.prune(B(0, 0), at(10_000)) == 0


def test_before_they_began_none_is_old(attempts: OperationAttempts) -> None:
    """Check R108."""
    finished(attempts, 1000, 2000, 3000)
    assert attempts.prune(B(1, 100), at(500)) == 0
    assert attempts.prune(B(0, 100), at(500)) == 0


def prune_beside(store: Store, rival: OperationAttempt | None) -> int:
    """Prune 1000, 2000, 3000 of one triple; before it commits, the rival replaces the newest, or deletes it."""
    finished(attempts_of(store), 1000, 2000, 3000)
    runs = 0

    def prune(txn: Transaction) -> int:
        nonlocal runs
        runs += 1
        count = attempts_of(txn).prune(B(0, 0), at(10_000))
        if runs == 1:
            assert count == 2
            if rival is None:
                attempts_of(store).delete("1-3000")
            else:
                attempts_of(store).upsert(rival)
        return count

    return store.transact(prune)


def test_attempt_that_lives_again_meanwhile_is_not_pruned(store: Store) -> None:
    """Check R109: one that was to go; see ``test_operation_races`` for every order."""
    finished(attempts_of(store), 1000, 2000)
    runs = 0

    def prune(txn: Transaction) -> int:
        nonlocal runs
        runs += 1
        count = attempts_of(txn).prune(B(0, 0), at(10_000))
        if runs == 1:
            assert count == 1
            attempts_of(store).upsert(changed(T("1-1000", 1000), outcome=None))
        return count

    assert store.transact(prune) == 0
    assert keys(attempts_of(store).iter()) == ["1-1000", "1-2000"]


@pytest.mark.parametrize("how", ["deleted", "live again", "of another triple"])
def test_newest_that_goes_meanwhile_leaves_the_next_one(store: Store, how: str) -> None:
    """Check R109 (H-10): the triple keeps its newest finished attempt."""
    newest = T("1-3000", 3000)
    rival = {
        "deleted": None,
        "live again": changed(newest, outcome=None),
        "of another triple": changed(newest, instance=2),
    }[how]
    assert prune_beside(store, rival) == 1
    assert keys(attempts_of(store).iter()) == ["1-2000", *([] if rival is None else ["1-3000"])]


def test_prune_beside_one_that_owes_meanwhile(store: Store) -> None:
    """The newest stays what it is: nothing more and nothing less goes."""
    assert prune_beside(store, T("1-3000", 3000, cleanup_state=OWING)) == 2
    assert keys(attempts_of(store).iter()) == ["1-3000"]


@pytest.mark.parametrize("key", ["1-1000", "1-2000", "2-1000"])
@pytest.mark.parametrize("bound", [B(0, 100), B(1_000_000, 0), B(0, 0)], ids=["age", "number", "both"])
def test_row_that_would_go_and_cannot_be_read_stops_the_prune(
    store: Store, attempts: OperationAttempts, key: str, bound: RetentionBound
) -> None:
    """Section 6.4: it raises, and nothing is deleted, in this triple and in any other."""
    finished(attempts, 1000, 2000, 3000)
    finished(attempts, 1000, 2000, instance=2)
    overwrite(store, key)
    before = dict(store.family(FAMILY))
    with pytest.raises(DecodeError) as caught:
        attempts.prune(bound, at(10_000))
    assert caught.value.key == key.encode()
    assert dict(store.family(FAMILY)) == before
    attempts.delete(key)
    assert attempts.prune(bound, at(10_000)) == 2


def test_newest_that_cannot_be_read_stops_the_prune(store: Store, attempts: OperationAttempts) -> None:
    """Nothing goes for the sake of one that nobody can read: what is left would be no attempt at all."""
    finished(attempts, 1000, 2000, 3000)
    overwrite(store, "1-3000")
    before = dict(store.family(FAMILY))
    with pytest.raises(DecodeError) as caught:
        attempts.prune(B(0, 0), at(10_000))
    assert caught.value.key == b"1-3000"
    assert dict(store.family(FAMILY)) == before
    attempts.delete("1-3000")
    assert attempts.prune(B(0, 0), at(10_000)) == 1
    assert keys(attempts.iter()) == ["1-2000"]


def test_row_that_stays_and_cannot_be_read_is_no_hindrance(store: Store, attempts: OperationAttempts) -> None:
    """A prune costs what goes: it does not look at what stays, but for the newest beside those that go."""
    finished(attempts, 1000, 2000, 3000)
    finished(attempts, 1000, instance=2)
    attempts.upsert(L("op-live", HOST, PIG, 3))
    for key in ("1-2000", "2-1000", "op-live"):
        overwrite(store, key)
    assert attempts.prune(B(1_000_000, 2), at(10_000)) == 1
    for key in ("1-2000", "2-1000", "op-live"):
        attempts.delete(key)
    assert keys(attempts.iter()) == ["1-3000"]


def test_prune_trusts_the_attempts_more_than_its_index(store: Store, attempts: OperationAttempts) -> None:
    """Rows of the index that should not be there delete nothing: not what is live, what owes, or what is alone."""
    finished(attempts, 1000, 2000)
    attempts.upsert(L("1-1000", HOST, PIG, 1))
    attempts.upsert(T("1-2000", 2000, cleanup_state=OWING))
    wrong = dict(store.family(FAMILY))
    attempts.upsert(T("1-2000", 2000))
    attempts.upsert(T("1-1000", 1000))
    for key, value in list(store.family(FAMILY).items()):
        if key >= b"\xfc":
            wrong[key] = value
    store.family(FAMILY).update(wrong)
    assert attempts.prune(B(0, 0), at(10_000)) == 0
    assert keys(attempts.iter()) == ["1-1000", "1-2000"]
    assert attempts.rebuild_indexes() > 0


@pytest.mark.parametrize(
    ("max_age", "moment", "gone"),
    [
        (timedelta.max, datetime.max.replace(tzinfo=UTC), 0),
        (timedelta.max, datetime.min.replace(tzinfo=UTC), 0),
        (timedelta.min, datetime.min.replace(tzinfo=UTC), 3),
        (timedelta.min, datetime.max.replace(tzinfo=UTC), 3),
        (timedelta(0), datetime.max.replace(tzinfo=UTC), 2),
        (timedelta(0), datetime.min.replace(tzinfo=UTC), 0),
        (timedelta(microseconds=-1), datetime.max.replace(tzinfo=UTC), 3),
    ],
    ids=str,
)
def test_ages_at_the_ends_of_time(attempts: OperationAttempts, max_age: timedelta, moment: datetime, gone: int) -> None:
    """An age is a difference: it may be greater than any instant, or negative; and nothing overflows."""
    last = datetime.max.replace(tzinfo=UTC)
    starts = [datetime.min.replace(tzinfo=UTC), at(0), last, last]
    for number, start in enumerate(starts):
        attempts.upsert(changed(T(f"op-{number}", 0), started_at=start))
    bound = RetentionBound(max_age=max_age, max_terminal_per_triple=100)
    expected = [f"op-{number}" for number, start in enumerate(starts) if number == 3 or not moment - start > max_age]
    assert attempts.prune(bound, moment) == gone
    assert keys(attempts.iter()) == expected


def test_age_is_that_of_the_start_and_not_of_the_deadline(attempts: OperationAttempts) -> None:
    """Section 6.4."""
    attempts.upsert(T("op-1", 5000, 0))
    attempts.upsert(T("op-2", 1000, 9000))
    attempts.upsert(T("op-3", 6000, 0))
    assert attempts.prune(B(2000, 100), at(7000)) == 1
    assert keys(attempts.iter()) == ["op-1", "op-3"]


@pytest.mark.parametrize("outcome", Outcome, ids=lambda outcome: outcome.name)
def test_every_outcome_is_an_end(attempts: OperationAttempts, outcome: Outcome) -> None:
    for number in range(3):
        attempts.upsert(T(f"op-{number}", number, outcome=outcome))
    assert attempts.prune(B(0, 0), at(10_000)) == 2


def rows_read(store: Store, call: Callable[[OperationAttempts], int], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows a call looks at, one by one and in scans; what it does is rolled back."""
    seen = 0
    read, scan = TransactionFamily._read, TransactionFamily.scan

    def counting_read(self: TransactionFamily, key: bytes) -> bytes | None:
        nonlocal seen
        seen += 1
        return read(self, key)

    def counting_scan(self: TransactionFamily, *bounds: Any, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        nonlocal seen
        for row in scan(self, *bounds, **options):
            seen += 1
            yield row

    with monkeypatch.context() as patch, store.begin() as txn:
        patch.setattr(TransactionFamily, "_read", counting_read)
        patch.setattr(TransactionFamily, "scan", counting_scan)
        assert call(attempts_of(txn)) == 2
        txn.rollback()
    return seen


def test_sweep_and_prune_cost_what_they_do_and_not_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are looked at with ten attempts in the history, and with five hundred more."""
    calls: dict[str, Callable[[OperationAttempts], int]] = {
        "sweep": lambda attempts: attempts.sweep_expired(at(500)),
        "by age": lambda attempts: attempts.prune(B(7000, 1000), at(10_000)),
        "by number": lambda attempts: attempts.prune(B(1_000_000, 8), at(10_000)),
    }
    with checked_store() as store:
        attempts = attempts_of(store)
        for number in range(2):
            attempts.upsert(L(f"due-{number}", HOST, PIG, 100 + number, expires_at=at(number)))
        finished(attempts, 1000, 2000, *range(3001, 3009))
        few = {name: rows_read(store, call, monkeypatch) for name, call in calls.items()}
        for number in range(250):
            attempts.upsert(T(f"old-{number}", 4000 + number, 0, OTHER, PIG, number))
            attempts.upsert(T(f"new-{number}", 5000 + number, 0, OTHER, PIG, number))
            attempts.upsert(T(f"owes-{number}", 1000, 0, OTHER, PIG, number, cleanup_state=OWING))
            attempts.upsert(T(f"alone-{number}", 1000, 0, f"{number}"))
        attempts.upsert(L("not due", HOST, PIG, 200, expires_at=at(501)))
        many = {name: rows_read(store, call, monkeypatch) for name, call in calls.items()}
    assert many["sweep"] == few["sweep"]
    assert many["by age"] == few["by age"]
    assert many["by number"] == few["by number"] + 1  # the first group that has not too many


def test_a_prune_is_one_commit(store: Store, attempts: OperationAttempts) -> None:
    finished(attempts, 1000, 2000, 3000)
    finished(attempts, 1000, 2000, instance=2)
    sequence = store.sequence
    assert attempts.prune(B(0, 0), at(10_000)) == 3
    assert store.sequence == sequence + 1


def test_instant_must_be_aware(attempts: OperationAttempts) -> None:
    finished(attempts, 1000, 2000)
    with pytest.raises(ValueError, match="time zone"):
        attempts.prune(B(0, 0), at(10_000).replace(tzinfo=None))
    assert len(list(attempts.iter())) == 2
