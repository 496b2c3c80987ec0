"""`OperationAttempts` in every order of two threads: what comes out is what one after the other would have given.

Where the specification hardens the reference by tracking one more read (H-10), nothing of the kind is in the code: all
reads of a transaction are tracked, absent keys and scanned ranges too. Here it is shown that this is enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any, TypeAlias

import pytest

import pystate
from pystate import Store, Transaction
from pystate.engine import commit as commit_module
from pystate.engine.conflicts import check_reads
from pystate.errors import ConflictError, SlotTakenError
from pystate.review.operation_attempt import FAMILY, OperationAttempt
from pystate.review.operation_attempts import OperationAttempts
from pystate.testing import InterleavingError, Scenario, explore
from tests.review.attempts import HOST, OWING, PIG, B, L, T, at, attempts_of, changed, keys

Action: TypeAlias = Callable[[OperationAttempts], object]
Race: TypeAlias = tuple[list[OperationAttempt], dict[str, Action]]
"""What is stored before, and who runs at the same time."""

NEWEST = T("op-3000", 3000)
THREE = [T("op-1000", 1000), T("op-2000", 2000), NEWEST]
DUE = L("op-1", expires_at=at(500))


def put(attempt: OperationAttempt) -> Action:
    return lambda attempts: attempts.upsert(attempt)


def postpone(attempts: OperationAttempts) -> bool:
    """Move the deadline of an attempt, if it is still live."""
    attempt = attempts.get("op-1")
    assert attempt is not None
    if attempt.is_terminal:
        return False
    attempts.upsert(changed(attempt, expires_at=at(600)))
    return True


def prune(attempts: OperationAttempts) -> int:
    return attempts.prune(B(0, 0), at(10_000))


def prune_by_number(attempts: OperationAttempts) -> int:
    return attempts.prune(B(1_000_000, 1), at(10_000))


def sweep(attempts: OperationAttempts) -> int:
    return attempts.sweep_expired(at(500))


RACES: dict[str, Race] = {
    "R79: two upserts for one slot": ([], {"one": put(L("op-1")), "other": put(L("op-2"))}),
    "R82: one leaves a slot, another takes it": (
        [L("op-1")],
        {"leaves": put(L("op-1", HOST, PIG, 2)), "takes": put(L("op-2"))},
    ),
    "R83: two change places": (
        [L("op-1"), L("op-2", HOST, PIG, 2)],
        {"one": put(L("op-1", HOST, PIG, 2)), "other": put(L("op-2", HOST, PIG, 1))},
    ),
    "two that store the same attempt": (
        [],
        {"one": put(L("op-1", cleanup_state=OWING)), "other": put(T("op-1", 1000))},
    ),
    "R95: two sweeps": ([DUE, L("op-2", HOST, PIG, 2, expires_at=at(400))], {"one": sweep, "other": sweep}),
    "R96: sweep and a deadline that moves": ([DUE], {"sweep": sweep, "postpone": postpone}),
    "sweep and an attempt that becomes overdue": ([], {"sweep": sweep, "put": put(DUE)}),
    "sweep and a delete": ([DUE], {"sweep": sweep, "delete": lambda attempts: attempts.delete("op-1")}),
    "two prunes": (THREE, {"one": prune, "other": prune_by_number}),
    "H-10: prune and a delete of the newest": (
        THREE,
        {"prune": prune, "delete": lambda attempts: attempts.delete("op-3000")},
    ),
    "H-10: prune and the newest lives again": (THREE, {"prune": prune, "opens": put(changed(NEWEST, outcome=None))}),
    "H-10: prune and the newest leaves the triple": (
        THREE,
        {"prune": prune, "moves": put(changed(NEWEST, instance=2))},
    ),
    "H-10: prune by number and a delete of the newest": (
        THREE,
        {"prune": prune_by_number, "delete": lambda attempts: attempts.delete("op-3000")},
    ),
    "R109: prune and one that was to go lives again": (
        THREE,
        {"prune": prune, "opens": put(changed(THREE[0], outcome=None))},
    ),
    "prune and one that was to go comes to owe": (
        THREE,
        {"prune": prune, "owes": put(changed(THREE[0], cleanup_state=OWING))},
    ),
    "prune and a new newest": (THREE, {"prune": prune, "put": put(T("op-4000", 4000))}),
    "prune and a sweep that makes the newest": (
        [*THREE, changed(DUE, started_at=at(4000))],
        {"prune": prune, "sweep": sweep},
    ),
}
HARDENED = [name for name in RACES if name.startswith("H-10")]
#: The numbered checks: these are explored further.
NUMBERED = [name for name in RACES if name[:2] in ("R7", "R9", "R1", "H-")]
#: With these nothing can go wrong: who decides on an old state does what would have been right before the other.
HARMLESS = {
    "R82: one leaves a slot, another takes it",
    "R83: two change places",
    "two that store the same attempt",
    "sweep and an attempt that becomes overdue",
}

Outcomes: TypeAlias = tuple[tuple[str, ...], tuple[tuple[bytes, bytes], ...]]
"""What each of them returned or raised, and all rows in the end."""


def new_store(race: Race) -> Store:
    store = pystate.memory(families=[FAMILY])
    for attempt in race[0]:
        attempts_of(store).upsert(attempt)
    return store


def tell(action: Callable[[], object]) -> str:
    """What an action returns, or the slot that it is refused."""
    try:
        return str(action())
    except SlotTakenError as error:
        return f"{error.key!r}: held by {error.holder!r}"


def outcome(store: Store, told: dict[str, str], race: Race) -> Outcomes:
    assert attempts_of(store).check() == []
    return tuple(told[name] for name in race[1]), tuple(store.family(FAMILY).items())


def serial(race: Race) -> set[Outcomes]:
    """The outcomes of one after the other."""
    found = set()
    for order in permutations(race[1].items()):
        with new_store(race) as store:
            told = {name: tell(lambda action=action: action(attempts_of(store))) for name, action in order}  # type: ignore[misc]
            found.add(outcome(store, told, race))
    return found


def program(race: Race, seen: Counter[Outcomes]) -> Scenario:
    """Each in a thread of its own; a serial order must explain what comes out."""
    store = new_store(race)
    told: dict[str, str] = {}
    allowed = ALLOWED[id(race)]

    def run(name: str, action: Action) -> Callable[[], None]:
        def thread() -> None:
            # A function that reads and decides before it calls is one transaction, as in any program.
            told[name] = tell(lambda: store.transact(lambda txn: action(attempts_of(txn))))

        return thread

    def check() -> None:
        found = outcome(store, told, race)
        assert found in allowed, f"no serial order gives {found[0]} and {keys(attempts_of(store).iter())}"
        seen[found] += 1
        store.close()

    return Scenario({name: run(name, action) for name, action in race[1].items()}, check)


ALLOWED = {id(race): serial(race) for race in RACES.values()}


@pytest.mark.parametrize("race", RACES.values(), ids=RACES)
def test_threads_do_what_one_after_the_other_would(race: Race) -> None:
    """Checks R79, R95, R96, R109: every order of the threads with up to one preemption, and random ones with more."""
    seen: Counter[Outcomes] = Counter()
    assert explore(lambda: program(race, seen), preemptions=1).complete
    explore(lambda: program(race, seen), orders="random", budget=60)
    assert set(seen) == ALLOWED[id(race)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NUMBERED)
def test_threads_do_so_with_two_preemptions_too(name: str) -> None:
    """Checks R79, R95, R96, R109: about a thousand orders of each."""
    seen: Counter[Outcomes] = Counter()
    assert explore(lambda: program(RACES[name], seen), preemptions=2).complete
    assert set(seen) == ALLOWED[id(RACES[name])]


# Every order of begins and commits


Steps: TypeAlias = Iterator[None]


def steps(store: Store, action: Action, told: dict[str, str], name: str) -> Steps:
    """One transaction in three steps: begin, do everything, commit; and again after a conflict."""
    while name not in told:
        txn: Transaction = store.begin()
        yield
        said = tell(lambda txn=txn: action(attempts_of(txn)))  # type: ignore[misc]
        yield
        try:
            txn.commit()
        except ConflictError:
            yield
        else:
            told[name] = said


def orders(race: Race, taken: tuple[str, ...] = ()) -> Iterator[Outcomes]:
    """Run the race in every order of its steps, each from the beginning."""
    with new_store(race) as store:
        told: dict[str, str] = {}
        running = {name: steps(store, action, told, name) for name, action in race[1].items()}
        for name in taken:
            if next(running[name], "ended") == "ended":
                del running[name]
        if not running:
            yield outcome(store, told, race)
            return
    for name in running:
        yield from orders(race, (*taken, name))


@pytest.mark.parametrize("race", RACES.values(), ids=RACES)
def test_every_order_of_begins_and_commits_is_a_serial_one(race: Race) -> None:
    """Checks R95, R96, R109: a transaction sees the state of its begin, so these orders are all there are."""
    found = Counter(orders(race))
    assert found.total() >= 20
    assert set(found) == ALLOWED[id(race)]


# Is it sharp?


@pytest.mark.parametrize("name", [name for name in RACES if name not in HARMLESS])
def test_without_tracked_reads_each_race_goes_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If commits did not look at what was read, some order would be no serial one."""
    monkeypatch.setattr(commit_module, "check_reads", lambda *_: None)
    with pytest.raises(InterleavingError) as caught:
        explore(lambda: program(RACES[name], Counter()), preemptions=1)
    assert isinstance(caught.value.__cause__, AssertionError)


@pytest.mark.parametrize("name", HARDENED)
def test_guarding_only_what_is_removed_leaves_no_newest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What H-10 is about: a prune that tracks only the attempts that it removes takes the last ones of a triple."""

    def check_removed(reads: Any, *rest: Any) -> None:
        for _, read in reads:
            read.ranges.clear()
            read.keys &= {b"op-1000", b"op-2000"}
        check_reads(reads, *rest)

    monkeypatch.setattr(commit_module, "check_reads", check_removed)
    left = {tuple(key for key, _ in rows if key < b"\xf8") for _, rows in wrong_orders(RACES[name])}
    assert left & {(), (b"op-3000",)}


def wrong_orders(race: Race) -> Iterator[Outcomes]:
    """As `orders`, whatever has become of the index rows."""
    checked = OperationAttempts.check
    try:
        OperationAttempts.check = lambda self: []  # type: ignore[method-assign]
        yield from orders(race)
    finally:
        OperationAttempts.check = checked  # type: ignore[method-assign]


def test_two_sweeps_count_each_attempt_once() -> None:
    """Check R95: in every order, the counts add up to what was overdue."""
    for told, _ in orders(RACES["R95: two sweeps"]):
        assert sorted(map(int, told)) == [0, 2]


def test_moved_deadline_or_failed_attempt_and_never_both() -> None:
    """Check R96."""
    for told, _ in orders(RACES["R96: sweep and a deadline that moves"]):
        assert told in (("1", "False"), ("0", "True"))


@pytest.mark.parametrize("name", HARDENED)
def test_triple_keeps_its_newest_finished_attempt(name: str) -> None:
    """Check R109 (H-10): where the rival's commit comes first, 2000 is the newest, and stays."""
    for (pruned, _), rows in orders(RACES[name]):
        left = [key for key, _ in rows if key < b"\xf8" and key != b"op-3000"]
        assert (pruned, left) in [("2", []), ("1", [b"op-2000"])]


def test_prune_counts_what_it_has_removed() -> None:
    for told, rows in orders(RACES["two prunes"]):
        assert sum(map(int, told)) == 2
        assert [key for key, _ in rows if key < b"\xf8"] == [b"op-3000"]
