"""`OperationAttempts`: deadlines, the sweep, and the cleanup that is owed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pystate import Store
from pystate.errors import DecodeError
from pystate.review.operation_attempt import FAMILY, OPERATION_ATTEMPTS, OperationAttempt, Outcome, Phase
from pystate.review.operation_attempts import OperationAttempts
from tests.review.attempts import (
    HOST,
    ONB,
    OTHER,
    OWING,
    PIG,
    TEARDOWN,
    L,
    M,
    T,
    at,
    attempts_of,
    changed,
    checked_store,
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


def stored(attempts: OperationAttempts, key: str) -> OperationAttempt:
    """The attempt with this key, which is there."""
    attempt = attempts.get(key)
    assert attempt is not None
    return attempt


def put(attempts: OperationAttempts, *given: OperationAttempt) -> None:
    for attempt in given:
        attempts.upsert(attempt)


def test_overdue_attempt_is_failed_and_nothing_else_of_it_changes(store: Store, attempts: OperationAttempts) -> None:
    """Check R85."""
    attempt = L("op-1", expires_at=at(1_700_000_500), cleanup_state=TEARDOWN)
    attempts.upsert(attempt)
    now = at(1_700_000_501)
    assert attempts.expired_attempts(now) == [attempt]
    assert attempts.sweep_expired(now) == 1
    failed = changed(attempt, outcome=Outcome.FAILED)
    assert list(attempts.iter()) == [failed]
    assert attempts.live_attempt(HOST, PIG, 1) is None
    assert attempts.attempts_owing_cleanup(PIG, HOST, 1) == [failed]
    before, sequence = dict(store.family(FAMILY)), store.sequence
    assert attempts.sweep_expired(now) == 0
    assert (dict(store.family(FAMILY)), store.sequence) == (before, sequence)


def test_deadline_itself_is_past(attempts: OperationAttempts) -> None:
    """Check R86: a second before it nothing is due; no clock is read, or all would be."""
    attempt = L("op-1", expires_at=at(1_700_000_500))
    attempts.upsert(attempt)
    for early in (at(1_700_000_499), at(1_700_000_499.999999)):
        assert attempts.expired_attempts(early) == []
        assert attempts.sweep_expired(early) == 0
    assert list(attempts.iter()) == [attempt]
    assert attempts.expired_attempts(at(1_700_000_500)) == [attempt]
    assert attempts.sweep_expired(at(1_700_000_500)) == 1
    assert stored(attempts, "op-1").outcome is Outcome.FAILED


def test_one_sweep_takes_every_kind_of_attempt(attempts: OperationAttempts) -> None:
    """Check R87."""
    put(attempts, ONB("o", expires_at=at(500)), L("op-1", expires_at=at(500)))
    assert attempts.sweep_expired(at(500)) == 2
    assert stored(attempts, "o") == ONB("o", expires_at=at(500), outcome=Outcome.FAILED)
    assert stored(attempts, "o").cleanup_state is TEARDOWN


def test_expired_attempts_come_by_deadline_across_1970(attempts: OperationAttempts) -> None:
    """Check R88."""
    for number, seconds in enumerate([60, 0, -60]):
        attempts.upsert(L(f"op-{number + 1}", HOST, PIG, number, expires_at=at(seconds)))
    assert keys(attempts.expired_attempts(at(60))) == ["op-3", "op-2", "op-1"]
    assert keys(attempts.expired_attempts(at(0))) == ["op-3", "op-2"]
    assert keys(attempts.expired_attempts(at(-61))) == []


@pytest.mark.parametrize(("given", "expected"), [(["bb", "a"], ["a", "bb"]), (["b", "ab"], ["b", "ab"])], ids=str)
def test_of_equal_deadlines_the_shorter_key_comes_first(
    attempts: OperationAttempts, given: list[str], expected: list[str]
) -> None:
    """Check R89."""
    for number, key in enumerate(given):
        attempts.upsert(L(key, HOST, PIG, number, expires_at=at(500)))
    assert keys(attempts.expired_attempts(at(500))) == expected


def test_finished_attempt_past_its_deadline_is_expired_and_not_swept(attempts: OperationAttempts) -> None:
    """Check R90."""
    attempts.upsert(T("op-1", 1000, 2000))
    assert keys(attempts.expired_attempts(at(2000))) == ["op-1"]
    assert attempts.sweep_expired(at(2000)) == 0
    assert list(attempts.iter()) == [T("op-1", 1000, 2000)]


def test_who_owes_cleanup_is_found_by_triple(attempts: OperationAttempts) -> None:
    """Check R91."""
    one = L("op-1", cleanup_state=OWING)
    three = T("op-3", 1000, 2000, HOST, PIG, 3, cleanup_state=TEARDOWN)
    put(attempts, one, L("op-2", HOST, PIG, 2), three)
    found = [attempts.attempts_owing_cleanup(PIG, HOST, instance) for instance in (1, 2, 3)]
    assert found == [[one], [], [three]]
    attempts.upsert(changed(one, cleanup_state=None))
    assert attempts.attempts_owing_cleanup(PIG, HOST, 1) == []


def test_several_may_owe_for_one_triple(attempts: OperationAttempts) -> None:
    """Check R92."""
    owing = {"cleanup_state": OWING}
    put(attempts, L("op-c", **owing), T("op-a", 1000, **owing), T("op-b", 2000, **owing))
    assert keys(attempts.attempts_owing_cleanup(PIG, HOST, 1)) == ["op-a", "op-b", "op-c"]
    attempts.upsert(T("op-b", 2000))
    assert keys(attempts.attempts_owing_cleanup(PIG, HOST, 1)) == ["op-a", "op-c"]


def test_who_owes_cleanup_comes_in_the_order_of_the_keys(attempts: OperationAttempts) -> None:
    """Check R93: not in that of the index, where the shorter ones come first."""
    put(attempts, T("z", 1000, cleanup_state=OWING), T("aa", 2000, cleanup_state=OWING))
    assert keys(attempts.attempts_owing_cleanup(PIG, HOST, 1)) == ["aa", "z"]


def test_onboarding_owes_under_an_empty_target(attempts: OperationAttempts) -> None:
    """Check R94."""
    one, other = ONB("o-1"), ONB("o-2", host="other.example")
    put(attempts, one, other)
    assert attempts.attempts_owing_cleanup("", "pending.example", None) == [one]
    assert attempts.attempts_owing_cleanup("", "other.example", None) == [other]
    with pytest.raises(ValueError, match="pending.example"):
        attempts.upsert(ONB("o-3"))
    assert attempts.sweep_expired(at(1_700_003_800)) == 2
    attempts.upsert(ONB("o-3"))
    assert keys(attempts.attempts_owing_cleanup("", "pending.example", None)) == ["o-1", "o-3"]
    assert attempts.attempts_owing_cleanup("", "other.example", None) == [changed(other, outcome=Outcome.FAILED)]


def test_two_threads_that_sweep_share_what_is_overdue() -> None:
    """Check R95: in every order of theirs in ``test_operation_races``."""
    for _ in range(5):
        with checked_store() as store:
            for number in range(20):
                attempts_of(store).upsert(L(f"op-{number}", HOST, PIG, number, expires_at=at(number)))
            counts: list[int] = []
            start = threading.Barrier(2)

            def sweep(store: Store = store, counts: list[int] = counts, start: threading.Barrier = start) -> None:
                start.wait()
                counts.append(attempts_of(store).sweep_expired(at(14)))

            threads = [threading.Thread(target=sweep) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(counts) == 15
            failed = [attempt for attempt in attempts_of(store).iter() if attempt.outcome is Outcome.FAILED]
            assert len(failed) == 15


def test_attempt_whose_deadline_moves_before_the_sweep_commits_is_left(store: Store) -> None:
    """Check R96: the sweep runs again and sees the new one; in every order in ``test_operation_races``."""
    attempt = L("op-1", expires_at=at(500))
    attempts_of(store).upsert(attempt)
    moved = changed(attempt, expires_at=at(600))
    runs = 0

    def sweep(txn: object) -> int:
        nonlocal runs
        runs += 1
        count = attempts_of(txn).sweep_expired(at(500))  # type: ignore[arg-type]
        if runs == 1:
            assert count == 1
            attempts_of(store).upsert(moved)
        return count

    assert store.transact(sweep) == 0
    assert runs == 2
    assert list(attempts_of(store).iter()) == [moved]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_overdue_row_that_cannot_be_read_stops_the_sweep(
    store: Store, attempts: OperationAttempts, position: int
) -> None:
    """Check R97: nothing is finished then, neither what comes before it nor what comes after it."""
    for number in range(3):
        attempts.upsert(L(f"op-{number}", HOST, PIG, number, expires_at=at(number)))
    overwrite(store, f"op-{position}")
    before = dict(store.family(FAMILY))
    with pytest.raises(DecodeError) as caught:
        attempts.sweep_expired(at(10))
    assert caught.value.key == f"op-{position}".encode()
    assert dict(store.family(FAMILY)) == before
    attempts.delete(f"op-{position}")
    assert attempts.sweep_expired(at(10)) == 2


def test_row_that_cannot_be_read_and_is_not_due_is_no_hindrance(store: Store, attempts: OperationAttempts) -> None:
    """Nor is one that was finished before: a sweep looks at what is live and overdue."""
    put(attempts, L("op-1", expires_at=at(1)), L("op-2", HOST, PIG, 2, expires_at=at(11)), T("op-3", 0, 0))
    overwrite(store, "op-2")
    overwrite(store, "op-3")
    assert attempts.sweep_expired(at(10)) == 1
    attempts.delete("op-2")
    attempts.delete("op-3")


def test_sweep_trusts_the_attempts_more_than_its_index(store: Store, attempts: OperationAttempts) -> None:
    """A row of the index that should not be there finishes nobody."""
    put(attempts, T("op-1", 1000, 2000), L("op-2", expires_at=at(5000)))
    index = OPERATION_ATTEMPTS.index("live expiry")
    for key in ("op-1", "op-2"):
        row = index.row(key.encode(), L(key, expires_at=at(1500)))
        assert row is not None
        store.family(FAMILY).put(row, key.encode())
    before = dict(store.family(FAMILY))
    assert attempts.sweep_expired(at(2000)) == 0
    assert dict(store.family(FAMILY)) == before
    assert attempts.rebuild_indexes() == 2


@pytest.mark.parametrize("moment", [at(0).replace(tzinfo=None), "2023-11-14T00:00:00Z", None], ids=str)
def test_instant_must_be_an_aware_datetime(attempts: OperationAttempts, moment: object) -> None:
    attempts.upsert(L("op-1"))
    for use in (attempts.sweep_expired, attempts.expired_attempts):
        with pytest.raises((TypeError, ValueError)):
            use(moment)  # type: ignore[arg-type]
    assert stored(attempts, "op-1").outcome is None


def test_a_sweep_is_one_commit(store: Store, attempts: OperationAttempts) -> None:
    for number in range(4):
        attempts.upsert(L(f"op-{number}", HOST, PIG, number, expires_at=at(number)))
    sequence = store.sequence
    assert attempts.sweep_expired(at(10)) == 4
    assert store.sequence == sequence + 1


def test_sweep_leaves_what_was_dispatched_as_it_is(attempts: OperationAttempts) -> None:
    """Section 6.4: phase, retry policy and deadline stay, whatever they are."""
    for number, phase in enumerate(Phase):
        attempts.upsert(M(f"op-{number}", instance=number, phase=phase, expires_at=at(1)))
    assert attempts.sweep_expired(at(1)) == len(Phase)
    assert list(attempts.iter()) == [
        M(f"op-{number}", instance=number, phase=phase, expires_at=at(1), outcome=Outcome.FAILED)
        for number, phase in enumerate(Phase)
    ]


def test_deadlines_are_per_host(attempts: OperationAttempts) -> None:
    put(attempts, L("op-1", expires_at=at(1)), L("op-2", OTHER, expires_at=at(2)))
    assert attempts.sweep_expired(at(1)) == 1
    assert attempts.live_attempt(OTHER, PIG, 1) is not None
