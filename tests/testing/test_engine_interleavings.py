"""The engine in every order of a few threads: commits, views, scans, snapshots, closing, interrupts; and its mutations.

Most tests bound the preemptions, since the orders of real code without a bound are too many to run; what two or three
preemptions in the right place cannot break is rarely broken by more. The orders with the fewest preemptions come first,
so a budget takes away the most involved ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest

import pystate
from pystate import ClosedError, ConflictError, FamilyNotFoundError, Store, Transaction
from pystate.engine import commit as commit_module
from pystate.engine import scanning
from pystate.engine.commit import Committer
from pystate.engine.conflicts import Reads, check_reads
from pystate.engine.family import Family
from pystate.engine.family_state import FamilyState
from pystate.engine.history import History, PinnedState, lookup
from pystate.engine.leadership import Leadership, Request
from pystate.engine.state import Change, Pin, State
from pystate.testing.crash import CrashState, crash_here
from pystate.testing.disk import SimulatedDisk
from pystate.testing.interleavings import (
    InterleavingError,
    Scenario,
    explore,
    yield_point,
)
from pystate.testing.outcomes import Level
from pystate.testing.yielding_files import YieldingFiles
from tests.engine.memory_files import MemoryFiles

PLACE = "/store"

#: What shares data without a lock, or hands the lead on: every line of it is a yield point where this is used.
LEAD_LINES = (Leadership.run, Leadership._lead, Leadership._take, Leadership.wake_first, Committer.put_one)
READ_LINES = (State.get, History._remove, History._move)


def small_image() -> dict[str, bytes]:
    """The files of a store with a snapshot of two entries, and a third one in the log behind it."""
    files = MemoryFiles()
    with pystate.open(PLACE, files=files) as store:
        family, other = store.family("default"), store.create_family("other")
        family[b"a"] = b"0"
        other[b"a"] = b"0"
        store.snapshot()
        family[b"b"] = b"0"
    return files.image(PLACE)


IMAGE = small_image()
#: The sequence of the newest commit in it.
BEGIN = 4


def disk() -> MemoryFiles:
    """A disk with that store on it."""
    return MemoryFiles().restore(PLACE, IMAGE)


def opened(files: MemoryFiles, *, loaded: bool = True) -> Store:
    """That store, with a yield point before every operation on its files."""
    store = pystate.open(PLACE, files=YieldingFiles(files))
    if loaded:
        for name in store.families:
            store.family(name).get(b"")
    return store


def entries(files: MemoryFiles) -> dict[str, dict[bytes, bytes]]:
    """What stands on a disk, by opening it without looking at the store that wrote it."""
    with pystate.open(PLACE, files=MemoryFiles().restore(PLACE, files.image(PLACE))) as store:
        return {name: dict(store.family(name).items()) for name in store.families}


def log_order(files: MemoryFiles) -> list[int]:
    """The sequences of the commits in the log, in the order in which they stand there."""
    copy = MemoryFiles().restore(PLACE, files.image(PLACE))
    return [frame.sequence for frame in pystate.read_log(PLACE, files=copy) if frame.kind == "commit"]


def history_left(store: Store) -> tuple[int, int]:
    """How many readers there still are, and how many bytes are kept for them."""
    store.view().close()  # a reader whose end fell into a commit is forgotten by whoever reads or commits next
    stats = store.stats()
    return stats.views, stats.history_bytes


def attempt(action: Callable[[], object]) -> str:
    """Do something that may conflict, and tell whether it did."""
    try:
        action()
    except ConflictError:
        return "conflict"
    return "done"


# ---- group commit ---------------------------------------------------------------------------------------------------


def committers(count: int, *, transactions: bool, groups: Counter[int], lines: bool = False) -> Scenario:
    """Threads that commit a key of their own each, on a disk where others may come in before every write and sync."""
    files = disk()
    store = opened(files)
    family = store.family("default")
    acknowledged: list[int] = []

    def commit(number: int) -> Callable[[], None]:
        key = b"%d" % number

        def run() -> None:
            if transactions:
                with store.begin() as txn:
                    txn.put("default", key, key)
                    acknowledged.append(txn.commit())
                assert store.stats().durable_sequence >= acknowledged[-1]
            else:
                family[key] = key
            assert family[key] == key

        return run

    def check() -> None:
        keys = {b"%d" % number: b"%d" % number for number in range(count)}
        assert dict(family.items()) == keys | {b"a": b"0", b"b": b"0"}
        new = list(range(BEGIN + 1, BEGIN + count + 1))
        assert log_order(files)[-count:] == new
        if transactions:
            assert sorted(acknowledged) == new
        assert entries(files)["default"] == dict(family.items())
        groups[store.stats().groups] += 1
        store.close()

    return Scenario(
        {f"committer {number}": commit(number) for number in range(count)},
        check,
        timeouts="never",  # a commit that only goes on because a waiter looks up twice a second has been forgotten
        lines=LEAD_LINES if lines else (),
    )


@pytest.mark.parametrize("transactions", [False, True], ids=["one-operation", "transactions"])
def test_two_committers_lose_nothing(transactions: bool) -> None:
    """Guarantees 1, 2, 4: acknowledged is durable and visible; sequences are given in the order of the log."""
    groups: Counter[int] = Counter()
    explored = explore(lambda: committers(2, transactions=transactions, groups=groups), preemptions=2)
    assert explored.complete
    assert set(groups) == ({1, 2} if transactions else {2})


@pytest.mark.parametrize("transactions", [False, True], ids=["one-operation", "transactions"])
def test_three_committers_lose_nothing_and_share_groups(transactions: bool) -> None:
    """Two that queue while the first writes are written together."""
    groups: Counter[int] = Counter()
    explore(lambda: committers(3, transactions=transactions, groups=groups), preemptions=2, budget=300)
    explore(lambda: committers(3, transactions=transactions, groups=groups), orders="random", budget=80)
    assert {2, 3} <= set(groups)


@pytest.mark.parametrize("transactions", [False, True], ids=["one-operation", "transactions"])
def test_lead_is_handed_on_whatever_comes_between_two_lines(transactions: bool) -> None:
    """The queue without its lock, the lead without one: nobody is forgotten, in steps of one line."""
    groups: Counter[int] = Counter()
    explore(lambda: committers(2, transactions=transactions, groups=groups, lines=True), preemptions=2, budget=250)
    explore(lambda: committers(3, transactions=transactions, groups=groups, lines=True), orders="random", budget=80)


def updates_in_a_group(outcomes: Counter[tuple[str, ...]]) -> Scenario:
    """While one commit is being written, two transactions queue that have read the same key and write it."""
    files = disk()
    store = opened(files)
    family = store.family("default")
    results: list[str] = []

    def increment() -> None:
        def add_one() -> None:
            with store.begin() as txn:
                numbers = txn.family("default")
                numbers[b"a"] = b"%d" % (int(numbers[b"a"]) + 1)

        results.append(attempt(add_one))

    def check() -> None:
        done = results.count("done")
        assert done >= 1
        assert family[b"a"] == b"%d" % done, "an update is lost"
        assert entries(files)["default"][b"a"] == family[b"a"]
        outcomes[(f"{store.stats().groups} groups", *sorted(results))] += 1
        store.close()

    return Scenario({"leader": lambda: family.put(b"c", b"c"), "one": increment, "two": increment}, check)


def test_commit_is_checked_against_earlier_ones_of_its_group() -> None:
    """Row 67: of two updates in one group, one conflicts; of two that do not overlap, none does."""
    outcomes: Counter[tuple[str, ...]] = Counter()
    explore(lambda: updates_in_a_group(outcomes), preemptions=2, budget=600)
    assert {"done", "conflict"} <= {result for outcome in outcomes for result in outcome}
    assert ("3 groups", "done", "done") in outcomes


def test_power_cut_at_any_moment_takes_nothing_that_was_acknowledged() -> None:
    """Row 2, in every order of two committers: durable before it is acknowledged, and a prefix of the commit order."""
    survived: Counter[int] = Counter()

    def program() -> Scenario:
        device = SimulatedDisk()
        store = pystate.open(PLACE, files=YieldingFiles(device))
        family = store.family("default")
        acknowledged: set[bytes] = set()
        left: list[tuple[set[bytes], CrashState]] = []

        def commit(key: bytes) -> Callable[[], None]:
            def run() -> None:
                store.transact(lambda txn: txn.put("default", key, key))
                acknowledged.add(key)

            return run

        def cut_power() -> None:
            left.append((set(acknowledged), next(iter(crash_here(device, level=Level.NOTHING_UNSYNCED)))))

        def check() -> None:
            ((promised, state),) = left
            with pystate.open(PLACE, files=state.open_disk()) as recovered:
                found = set(recovered.family("default"))
            assert promised <= found <= {b"1", b"2"}
            survived[len(found)] += 1
            assert dict(family.items()) == {b"1": b"1", b"2": b"2"}
            store.close()

        return Scenario({"one": commit(b"1"), "two": commit(b"2"), "power": cut_power}, check, timeouts="never")

    explore(program, preemptions=1)
    explore(program, orders="random", budget=100)
    assert set(survived) == {0, 1, 2}


# ---- conflicts ------------------------------------------------------------------------------------------------------

Body = Callable[[Transaction], object]
Bodies = dict[str, Body]


def explained(bodies: Bodies, returned: dict[str, object], begin: dict[bytes, bytes], end: object) -> bool:
    """Whether some order of the committed transactions, one after the other, gives what they returned and left."""
    for order in permutations(returned):
        with pystate.memory() as store:
            store.family("default").update(begin)
            again = {name: store.transact(bodies[name]) for name in order}
            if again == returned and dict(store.family("default").items()) == end:
                return True
    return False


def serializable(bodies: Bodies, outcomes: Counter[tuple[str, ...]], *, must_pass: bool = False) -> Scenario:
    """Transactions at the same time on three entries; some serial order must explain those that have committed.

    Arguments:
        must_pass: none of them may conflict.
    """
    begin = {b"a": b"1", b"b": b"1", b"m": b"1"}
    store = pystate.memory()
    family = store.family("default")
    family.update(begin)
    returned: dict[str, object] = {}
    begun: list[str] = []

    def run(name: str) -> Callable[[], None]:
        def body() -> None:
            alone = not begun
            begun.append(name)
            started = store.sequence
            try:
                with store.begin() as txn:
                    yield_point("begun")
                    result = bodies[name](txn)
                    yield_point("read")
                returned[name] = result
            except ConflictError:
                assert not must_pass, f"{name} conflicts with nothing"
                assert store.sequence > started or not alone, f"{name} ran alone and conflicts"
            begun.remove(name)

        return body

    def check() -> None:
        assert returned, "all conflict: nobody made progress"
        assert explained(bodies, returned, begin, dict(family.items())), "no serial order explains what they returned"
        outcomes[tuple(sorted(returned))] += 1
        assert history_left(store) == (0, 0)

    return Scenario({name: run(name) for name in bodies}, check)


def add_to(key: bytes) -> Body:
    def body(txn: Transaction) -> object:
        family = txn.family("default")
        value = int(family.get(key) or b"0")
        yield_point("between reading and writing")
        family[key] = b"%d" % (value + 1)
        return value

    return body


def copy_to(source: bytes, target: bytes) -> Body:
    def body(txn: Transaction) -> object:
        family = txn.family("default")
        value = family[source]
        yield_point("between reading and writing")
        family[target] = value + b"+"
        return value

    return body


def count_into(start: bytes, stop: bytes, target: bytes, *, reverse: bool = False, limit: int | None = None) -> Body:
    def body(txn: Transaction) -> object:
        family = txn.family("default")
        found = list(family.scan(start, stop, reverse=reverse, limit=limit))
        yield_point("between reading and writing")
        family[target] = b"%d" % len(found)
        return found

    return body


def put(*keys: bytes, delete: bool = False) -> Body:
    def body(txn: Transaction) -> object:
        for key in keys:
            if delete:
                txn.delete("default", key)
            else:
                txn.put("default", key, b"new")
        return None

    return body


def insert_if_absent(key: bytes, value: bytes) -> Body:
    def body(txn: Transaction) -> object:
        if txn.get("default", key) is not None:
            return "was there"
        yield_point("between reading and writing")
        txn.put("default", key, value)
        return "inserted"

    return body


MAY_CONFLICT: dict[str, Bodies] = {
    "lost update": {"one": add_to(b"a"), "two": add_to(b"a")},
    "lost update of an absent key": {"one": add_to(b"x"), "two": add_to(b"x")},
    "write skew": {"one": copy_to(b"a", b"b"), "two": copy_to(b"b", b"a")},
    "phantom": {"one": count_into(b"m", b"n", b"x"), "two": count_into(b"x", b"y", b"m5")},
    "phantom in an empty range": {"one": count_into(b"n", b"o", b"p1"), "two": count_into(b"p", b"q", b"n1")},
    "phantom backwards": {
        "one": count_into(b"m", b"n", b"x", reverse=True), "two": count_into(b"x", b"y", b"m5", reverse=True),
    },
    "phantom that is a deletion": {"one": count_into(b"a", b"c", b"x"), "two": lambda txn: copy_and_delete(txn)},
    "absent, then inserted": {"one": insert_if_absent(b"x", b"1"), "two": insert_if_absent(b"x", b"2")},
}  # fmt: skip


def copy_and_delete(txn: Transaction) -> object:
    family = txn.family("default")
    found = family.get(b"x")
    yield_point("between reading and writing")
    family.delete(b"b")
    family[b"y"] = found or b"none"
    return found


@pytest.mark.parametrize("bodies", MAY_CONFLICT.values(), ids=MAY_CONFLICT.keys())
def test_what_must_conflict_does(bodies: Bodies) -> None:
    """Rows 67-70: whatever commits could have run one after the other; and one of them always commits."""
    outcomes: Counter[tuple[str, ...]] = Counter()
    explore(lambda: serializable(bodies, outcomes), preemptions=2, budget=180)
    assert set(outcomes) == {("one",), ("two",), ("one", "two")}


MUST_PASS: dict[str, Bodies] = {
    "disjoint keys": {"one": add_to(b"a"), "two": add_to(b"b")},
    "blind writes of the same key": {"one": put(b"a", b"x"), "two": put(b"a", b"x")},
    "blind deletions and writes": {"one": put(b"a", delete=True), "two": put(b"a", b"b")},
    "range beside the keys": {"one": count_into(b"m", b"n", b"m"), "two": put(b"a", b"n")},
    "limited scan that did not get there": {
        "one": count_into(b"a", b"z", b"0", limit=2), "two": put(b"c", b"m", b"x"),
    },
    "limited scan backwards": {
        "one": count_into(b"a", b"z", b"z", reverse=True, limit=1), "two": put(b"a", b"b", b"c"),
    },
    "reading only": {"one": lambda txn: list(txn.family("default").items()), "two": put(b"a", b"x", b"m")},
    "reading what the other only reads": {"one": copy_to(b"a", b"x"), "two": copy_to(b"a", b"y")},
}  # fmt: skip


@pytest.mark.parametrize("bodies", MUST_PASS.values(), ids=MUST_PASS.keys())
def test_what_must_not_conflict_does_not(bodies: Bodies) -> None:
    """Row 71: no spurious conflicts, and the outcome is serializable nevertheless."""
    outcomes: Counter[tuple[str, ...]] = Counter()
    explore(lambda: serializable(bodies, outcomes, must_pass=True), preemptions=2, budget=180)
    assert set(outcomes) == {("one", "two")}


def test_three_transactions_are_serializable() -> None:
    """Row 68: skew in a ring, which no two of the three form."""
    outcomes: Counter[tuple[str, ...]] = Counter()
    ring = {"one": copy_to(b"a", b"b"), "two": copy_to(b"b", b"m"), "three": copy_to(b"m", b"a")}
    explore(lambda: serializable(ring, outcomes), preemptions=2, budget=300)
    explore(lambda: serializable(ring, outcomes), orders="random", budget=200)
    assert {len(committed) for committed in outcomes} == {2, 3}


def test_increments_that_are_run_again_have_the_exact_sum() -> None:
    """Row 67: with `transact`, whose waiting is a place where the others go on."""

    def program() -> Scenario:
        store = pystate.memory()

        def increment() -> None:
            store.transact(add_to(b"n"))

        def check() -> None:
            assert store.family("default")[b"n"] == b"3"

        return Scenario({name: increment for name in ("one", "two", "three")}, check)

    explore(program, preemptions=2, budget=300)
    explore(program, orders="random", budget=100)


def test_one_of_many_inserts_an_absent_key() -> None:
    """Row 70: four threads, one winner, whom all of them see."""

    def program() -> Scenario:
        store = pystate.memory()
        family = store.family("default")
        inserted: list[bytes] = []

        def insert(name: bytes) -> Callable[[], None]:
            def run() -> None:
                if store.transact(insert_if_absent(b"x", name)) == "inserted":
                    inserted.append(name)
                else:
                    assert family[b"x"] in (b"0", b"1", b"2", b"3")

            return run

        def check() -> None:
            assert inserted == [family[b"x"]]

        return Scenario({f"thread {number}": insert(b"%d" % number) for number in range(4)}, check)

    explore(program, preemptions=1, budget=300)
    explore(program, orders="random", budget=150)


def test_transaction_whose_history_was_given_up_never_commits_on_a_guess() -> None:
    """Row 72: old values fit only for a moment; the transaction is too old then, or had been in time."""
    outcomes: Counter[str] = Counter()

    def program() -> Scenario:
        files = disk()
        store = pystate.open(PLACE, files=files, durability="process", history_bytes=400)
        family = store.family("default")
        family.get(b"")
        outcome: list[str] = []

        def read_and_write() -> None:
            try:
                with store.begin() as txn:
                    seen = txn.get("default", b"a")
                    yield_point("between reading and writing")
                    txn.put("default", b"copy", seen or b"")
                outcome.append("done")
            except ConflictError as error:
                outcome.append("too old" if error.too_old else "conflict")

        def overwrite() -> None:
            for number in range(1, 4):
                family.update({b"a": b"%d" % number, b"filler %d" % number: bytes(100)})

        def check() -> None:
            outcomes[outcome[0]] += 1
            assert (b"copy" in family) == (outcome == ["done"])
            assert history_left(store) == (0, 0)
            store.close()

        return Scenario({"transaction": read_and_write, "writer": overwrite}, check, lines=READ_LINES)

    explore(program, preemptions=2, budget=500)
    assert set(outcomes) == {"done", "conflict", "too old"}


# ---- views, scans, history ------------------------------------------------------------------------------------------


def readers_beside_a_writer(readers: int, rounds: int, lines: tuple[Callable[..., object], ...]) -> Scenario:
    """Commits that change two families at once, and views that come and go; each sees one state, again and again."""
    store = pystate.memory(families=["other"])
    for name in ("default", "other"):
        store.family(name)[b"k"] = b"2"  # the value is the sequence at which it is complete

    def write() -> None:
        for _ in range(rounds):
            with store.begin() as txn:
                value = b"%d" % (store.sequence + 1)
                txn.put("default", b"k", value)
                txn.put("other", b"k", value)

    def read() -> None:
        with store.view() as view:
            expected = b"%d" % view.sequence
            for _ in range(2):
                for name in ("default", "other"):
                    seen = view.get(name, b"k")
                    assert seen == expected, f"a view of sequence {view.sequence} sees {seen!r}"
            assert list(view.scan("other")) == [(b"k", expected)]

    def check() -> None:
        assert store.family("other")[b"k"] == b"%d" % (2 + rounds)
        assert history_left(store) == (0, 0)

    threads_ = {"writer": write} | {f"reader {number}": read for number in range(readers)}
    return Scenario(threads_, check, lines=lines)


def test_view_never_sees_half_a_commit_and_always_the_same() -> None:
    """Row 73: two families changed at once; a view sees both changes or none, however often it looks."""
    explore(lambda: readers_beside_a_writer(1, 2, ()), preemptions=2, budget=400)


def test_reading_without_the_lock_is_right_whatever_comes_between_two_lines() -> None:
    """Rows 73 and 101: views pinned and released while commits save, in steps of one line."""
    explore(lambda: readers_beside_a_writer(1, 1, READ_LINES), preemptions=2, budget=400)
    explore(lambda: readers_beside_a_writer(2, 2, READ_LINES), preemptions=2, budget=200)
    explore(lambda: readers_beside_a_writer(3, 3, READ_LINES), orders="random", budget=100)


def test_scan_shows_the_state_of_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 74: in chunks of two entries, in both directions, while a commit puts, overwrites and deletes around them."""
    monkeypatch.setattr(scanning, "_FIRST_CHUNK", 2)
    monkeypatch.setattr(scanning, "_CHUNK", 2)
    states = [{b"%d" % number: b"0" for number in range(1, 8, 2)}]
    states.append(states[0] | {b"0": b"1", b"2": b"1", b"3": b"1", b"8": b"1"})
    states[1].pop(b"5")
    states.append({key: b"2" for key in states[1] if key != b"1"})

    def program(*, reverse: bool) -> Scenario:
        store = pystate.memory()
        family = store.family("default")
        family.update(states[0])
        begin = store.sequence

        def write() -> None:
            for before, after in zip(states, states[1:], strict=False):
                with store.begin() as txn:
                    for key in before.keys() - after.keys():
                        txn.delete("default", key)
                    for key, value in sorted(after.items()):
                        txn.put("default", key, value)

        def scan() -> None:
            first = store.sequence - begin
            entries_ = family.scan(reverse=reverse)
            last = store.sequence - begin
            seen = list(entries_)
            allowed = [sorted(state.items(), reverse=reverse) for state in states[first : last + 1]]
            assert seen in allowed, f"{seen} is none of the states {first} to {last}"

        def check() -> None:
            assert dict(family.scan()) == states[-1]
            assert history_left(store) == (0, 0)
            family._family.check()

        return Scenario({"scan": scan, "writer": write, "other scan": scan}, check)

    for reverse in (False, True):
        explore(lambda: program(reverse=reverse), preemptions=2, budget=400)  # noqa: B023 - called at once
    explore(lambda: program(reverse=True), orders="random", budget=200)


def first_touches() -> Scenario:
    """Three threads that touch the same family first: one reads, one writes, one scans."""
    files = disk()
    store = opened(files, loaded=False)
    family = store.family("default")
    state = family._family
    decoded: list[str] = []
    loader = state.loader
    assert loader is not None

    def load() -> dict[bytes, bytes]:
        decoded.append("default")
        yield_point("decoding")
        return loader()

    state.loader = load

    def read() -> None:
        assert family.get(b"a") in (b"0", b"1")
        assert family[b"b"] == b"0"

    def write() -> None:
        family[b"a"] = b"1"
        assert family.get(b"a") == b"1"

    def scan() -> None:
        with store.view() as view:
            expected = b"0" if view.sequence == BEGIN else b"1"
            assert list(view.scan("default")) == [(b"a", expected), (b"b", b"0")]

    def check() -> None:
        assert len(decoded) == 1, "decoded twice"
        assert dict(family.items()) == {b"a": b"1", b"b": b"0"} == entries(files)["default"]
        store.close()

    lines = (State.load, FamilyState.load, Family._load)
    return Scenario({"reader": read, "writer": write, "view": scan}, check, lines=lines)


def test_family_that_three_threads_touch_first_is_decoded_once() -> None:
    """Design 5: opening decodes a family when it is first touched; whoever touches it, it is decoded once."""
    explore(first_touches, preemptions=1, budget=250)
    explore(first_touches, orders="random", budget=100)


# ---- snapshots ------------------------------------------------------------------------------------------------------


def snapshots_beside_commits(snapshots: int, commits: int) -> Scenario:
    """Snapshots taken while two families change together; then the store is opened anew from the files alone."""
    files = disk()
    store = opened(files)
    acknowledged: list[int] = []

    def write() -> None:
        for number in range(commits):
            with store.begin() as txn:
                txn.put("default", b"a", b"%d" % (number + 1))
                txn.put("other", b"a", b"%d" % (number + 1))
                if number:
                    txn.delete("default", b"b")
            acknowledged.append(number + 1)
            found = entries(files)  # what a crash of the process would leave at this moment
            assert found["default"][b"a"] == found["other"][b"a"] == b"%d" % acknowledged[-1]

    def check() -> None:
        expected = {name: dict(store.family(name).items()) for name in store.families}
        assert expected["default"][b"a"] == expected["other"][b"a"] == b"%d" % commits
        assert entries(files) == expected
        store.close()
        assert pystate.verify(PLACE, files=files).ok
        assert entries(files) == expected
        assert not [name for name in files.image(PLACE) if name.endswith(".tmp")]

    threads_: dict[str, Callable[[], object]] = {"writer": write}
    return Scenario(threads_ | {f"snapshot {number}": store.snapshot for number in range(snapshots)}, check)


def test_snapshot_beside_commits_loses_and_doubles_nothing() -> None:
    """Row 29: one snapshot and two commits, two snapshots and one commit."""
    explore(lambda: snapshots_beside_commits(1, 2), preemptions=2, budget=220)
    explore(lambda: snapshots_beside_commits(2, 1), preemptions=1, budget=120)
    explore(lambda: snapshots_beside_commits(2, 2), orders="random", budget=60)


def test_snapshot_in_the_background_beside_commits() -> None:
    """Row 29: the log is always over its limit, so that snapshots begin whenever none is in progress."""
    taken: Counter[int] = Counter()

    def program() -> Scenario:
        files = disk()
        store = pystate.open(PLACE, files=YieldingFiles(files), snapshot_log_bytes=1)
        family = store.family("default")

        def write() -> None:
            for number in range(4):
                family[b"a"] = bytes(100) + b"%d" % number

        def check() -> None:
            store.close()
            assert family._family.values[b"a"].endswith(b"3")
            assert entries(files)["default"] == family._family.values
            taken[store._parts.snapshots.taken if store._parts.snapshots else 0] += 1

        return Scenario({"writer": write}, check, timeouts="never")

    explore(program, preemptions=2, budget=300)
    assert len(taken) > 1


# ---- families that come and go, stores that close -------------------------------------------------------------------


def test_commit_into_a_family_that_is_dropped_fails_alone() -> None:
    """Row 81: whole or not at all, and the store goes on."""
    outcomes: Counter[str] = Counter()

    def program(*, reads: bool) -> Scenario:
        files = disk()
        store = opened(files)
        outcome: list[str] = []

        def commit() -> None:
            try:
                with store.begin() as txn:
                    if reads:
                        txn.get("other", b"a")
                    txn.put("default", b"x", b"1")
                    txn.put("other", b"x", b"1")
                outcome.append("before")
            except (FamilyNotFoundError, ConflictError) as error:
                outcome.append(type(error).__name__)

        def check() -> None:
            assert store.families == ("default",)
            family = store.family("default")
            assert (b"x" in family) == (outcome == ["before"])
            with pytest.raises(FamilyNotFoundError):
                store.family("other")
            family[b"y"] = b"1"
            store.create_family("other")[b"z"] = b"1"
            assert entries(files) == {"default": dict(family.items()), "other": {b"z": b"1"}}
            outcomes[outcome[0]] += 1
            store.close()

        return Scenario({"commit": commit, "drop": lambda: store.drop_family("other")}, check, timeouts="never")

    for reads in (False, True):
        explore(lambda: program(reads=reads), preemptions=2, budget=180)  # noqa: B023 - called at once
    assert "before" in outcomes
    assert len(outcomes) >= 2


def test_handle_asked_for_while_its_family_is_dropped_does_not_outlive_it() -> None:
    """Row 80: whoever asks for the family afterwards is told, and a new one of that name is another one."""

    def program() -> Scenario:
        store = pystate.memory(families=["other"])

        def ask() -> None:
            try:
                store.family("other").get(b"k")
            except FamilyNotFoundError:
                pass

        def check() -> None:
            with pytest.raises(FamilyNotFoundError):
                store.family("other")
            store.create_family("other")[b"k"] = b"1"
            assert store.family("other")[b"k"] == b"1"

        return Scenario({"ask": ask, "drop": lambda: store.drop_family("other")}, check, lines=(Store.family,))

    assert explore(program, preemptions=2).complete


def test_family_created_while_one_of_its_name_is_dropped_is_a_new_one() -> None:
    """Row 80: what `create_family` returns can be written to, and only `drop_family` takes it away."""

    def program() -> Scenario:
        store = pystate.memory(families=["other"])
        store.family("other")[b"old"] = b"1"
        created: list[pystate.Family] = []

        def create() -> None:
            try:
                created.append(store.create_family("other"))
            except pystate.FamilyExistsError:
                pass

        def check() -> None:
            for family in created:
                family[b"new"] = b"1"
                assert dict(store.family("other").items()) == {b"new": b"1"}

        return Scenario({"create": create, "drop": lambda: store.drop_family("other")}, check)

    assert explore(program, preemptions=2).complete


def test_commit_beside_close_is_durable_or_refused() -> None:
    """Row 75: acknowledged means there after reopening, ClosedError means not there; and the close is clean."""
    outcomes: Counter[tuple[str, ...]] = Counter()

    def program(*, transactions: bool, closers: int = 1) -> Scenario:
        files = disk()
        store = opened(files)
        family = store.family("default")
        outcome: list[str] = []

        def commit(key: bytes) -> Callable[[], None]:
            def run() -> None:
                try:
                    if transactions:
                        store.transact(lambda txn: txn.put("default", key, b"1"))
                    else:
                        family[key] = b"1"
                    outcome.append(key.decode())
                except ClosedError:
                    pass

            return run

        def check() -> None:
            found = entries(files)["default"]
            assert sorted(found.keys() - {b"a", b"b"}) == sorted(key.encode() for key in outcome)
            assert pystate.verify(PLACE, files=files).clean
            assert not files.locks
            for use in (lambda: family.get(b"a"), lambda: store.view(), lambda: family.put(b"z", b"1")):
                with pytest.raises(ClosedError):
                    use()
            outcomes[tuple(sorted(outcome))] += 1

        closing = {f"closer {number}": store.close for number in range(closers)}
        return Scenario({"one": commit(b"1"), "two": commit(b"2")} | closing, check, timeouts="never")

    explore(lambda: program(transactions=False), preemptions=2, budget=250)
    explore(lambda: program(transactions=True), preemptions=2, budget=250)
    explore(lambda: program(transactions=False, closers=2), preemptions=2, budget=200)
    assert set(outcomes) == {(), ("1",), ("2",), ("1", "2")}


def test_handles_taken_beside_close_are_closed() -> None:
    """Row 75: a handle, transaction or view that is being taken while the store closes is of no use afterwards."""

    def program() -> Scenario:
        files = disk()
        store = opened(files, loaded=False)
        taken: list[Callable[[], object]] = []

        def take() -> None:
            try:
                family = store.family("default")
                taken.append(lambda: family.get(b"a"))
                taken.append(lambda: family.put(b"a", b"1"))
                family.get(b"a")
                view, txn = store.view(), store.begin()
                taken.append(lambda: view.get("default", b"a"))
                taken.append(lambda: txn.get("default", b"a"))
            except ClosedError:
                pass

        def check() -> None:
            for use in taken:
                with pytest.raises(ClosedError):
                    use()

        return Scenario({"take": take, "close": store.close}, check, lines=(Store.family, Family._load, Family._end))

    assert explore(program, preemptions=2).complete


class _OnlyWhileLocked(MemoryFiles):
    """Files that no one may change without holding the lock of the store."""

    def _check(self) -> None:
        assert self.locks, "the files are changed after the lock has been released"

    def replace(self, source: str, target: str, /) -> None:
        self._check()
        super().replace(source, target)

    def unlink(self, path: str, /) -> None:
        self._check()
        super().unlink(path)

    def create(self, path: str, /) -> pystate.engine.files.File:
        self._check()
        return super().create(path)


def test_snapshot_beside_close_touches_nothing_once_the_lock_is_free() -> None:
    """Guarantee 7: the next writer may be there already."""
    outcomes: Counter[str] = Counter()

    def program() -> Scenario:
        files = _OnlyWhileLocked().restore(PLACE, IMAGE)
        store = opened(files)
        before = {name: dict(store.family(name).items()) for name in store.families}
        outcome: list[str] = []

        def take() -> None:
            try:
                store.snapshot()
                outcome.append("taken")
            except ClosedError:
                outcome.append("closed")

        def check() -> None:
            outcomes[outcome[0]] += 1
            assert entries(files) == before
            assert pystate.verify(PLACE, files=files).clean

        return Scenario({"snapshot": take, "close": store.close}, check, timeouts="never")

    assert explore(program, preemptions=2).complete
    assert set(outcomes) == {"taken", "closed"}


# ---- interrupts -----------------------------------------------------------------------------------------------------


def interrupted_committers(outcomes: Counter[str]) -> Scenario:
    """Three committers; the wait of one of them ends with an interrupt at any moment."""
    files = disk()
    store = opened(files)
    family = store.family("default")
    outcome: list[str] = []

    def commit(key: bytes) -> Callable[[], None]:
        def run() -> None:
            with store.begin() as txn:
                txn.put("default", key, key)
                txn.put("other", key, key)

        return run

    def interrupted() -> None:
        try:
            commit(b"i")()
            outcome.append("done")
        except KeyboardInterrupt:
            outcome.append("interrupted")

    def check() -> None:
        family[b"last"] = b"1"  # the lead is free, whatever happened
        found = entries(files)
        for key in (b"1", b"2", b"last"):
            assert key in found["default"]
        assert (b"i" in found["default"]) == (b"i" in found["other"])
        assert b"i" in found["default"] or outcome == ["interrupted"]
        assert found["default"] == dict(family.items())
        outcomes[f"{outcome[0]}, {'there' if b'i' in family else 'not there'}"] += 1
        assert history_left(store) == (0, 0)
        store.close()

    return Scenario(
        {"one": commit(b"1"), "two": commit(b"2"), "interrupted": interrupted},
        check,
        interrupts={"interrupted": KeyboardInterrupt},
    )


def test_interrupted_waiter_leaves_all_or_nothing_and_holds_nobody_up() -> None:
    """Row 45: it withdraws, or its commit is decided without it; the others' commits are not touched."""
    outcomes: Counter[str] = Counter()
    explore(lambda: interrupted_committers(outcomes), preemptions=1)
    explore(lambda: interrupted_committers(outcomes), orders="random", budget=200)
    assert set(outcomes) == {"done, there", "interrupted, there", "interrupted, not there"}


def test_interrupted_waiter_is_still_checked_for_conflicts() -> None:
    """Rows 45, 67: what it has read has changed, so nobody may commit it, neither it nor a leader without it."""

    def program() -> Scenario:
        files = disk()
        store = opened(files)
        family = store.family("default")
        txn = store.begin()
        assert txn.get("default", b"a") == b"0"
        txn.put("default", b"seen", b"0")
        family[b"a"] = b"1"

        def interrupted() -> None:
            with pytest.raises((ConflictError, KeyboardInterrupt)):
                txn.commit()

        def check() -> None:
            assert b"seen" not in family
            assert entries(files)["default"] == dict(family.items())
            store.close()

        return Scenario(
            {"leader": lambda: store.transact(put(b"b")), "interrupted": interrupted},
            check,
            interrupts={"interrupted": KeyboardInterrupt},
        )

    explored = explore(program, preemptions=2)
    assert explored.complete


# ---- is it sharp? ---------------------------------------------------------------------------------------------------


def caught(program: Callable[[], Scenario], *, within: int, says: str) -> None:
    """The program must fail in no more than so many orders, and with these words in its text."""
    with pytest.raises(InterleavingError) as found:
        explore(program, preemptions=2, budget=within)
    assert says in str(found.value.__cause__)


def test_validation_that_ignores_its_group_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: two updates in one group, both taken."""

    def check_alone(reads: list[tuple[FamilyState, Reads]], pinned: PinnedState, _group: object, sequence: int) -> None:
        check_reads(reads, pinned, {}, sequence)

    monkeypatch.setattr(commit_module, "check_reads", check_alone)
    caught(lambda: updates_in_a_group(Counter()), within=100, says="an update is lost")


def test_validation_that_ignores_ranges_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: a phantom passes."""

    def check_keys(
        reads: list[tuple[FamilyState, Reads]], pinned: PinnedState, group: dict[int, dict[bytes, int]], sequence: int
    ) -> None:
        for _, read in reads:
            read.ranges.clear()
        check_reads(reads, pinned, group, sequence)

    monkeypatch.setattr(commit_module, "check_reads", check_keys)
    caught(lambda: serializable(MAY_CONFLICT["phantom"], Counter()), within=50, says="no serial order")


def test_pinned_state_unlinked_before_its_values_are_moved_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: a reader looks just then, and finds the new value neither there nor here."""

    def unlink_first(self: History, pinned: PinnedState) -> None:
        older, newer = pinned.older, pinned.newer
        if newer is None:
            self.newest = older
        else:
            newer.older = older
        if older is None:
            self.oldest = newer
            self.bytes -= pinned.saved_bytes
        else:
            older.newer = newer
            self._move(pinned, older)
        pinned.saved = {}

    monkeypatch.setattr(History, "_remove", unlink_first)
    caught(lambda: readers_that_overlap((State.get, unlink_first)), within=100, says="the old view sees")


def readers_that_overlap(lines: tuple[Callable[..., object], ...]) -> Scenario:
    """An old view that reads while a newer one, which has saved values for it, goes away."""
    store = pystate.memory()
    family = store.family("default")
    family[b"k"] = b"1"
    old = store.view()
    family[b"other"] = b"1"
    newer = store.view()
    family[b"k"] = b"2"

    def read() -> None:
        seen = old.get("default", b"k")
        assert seen == b"1", f"the old view sees {seen!r}"

    def check() -> None:
        old.close()
        assert history_left(store) == (0, 0)

    return Scenario({"reader": read, "closer": newer.close}, check, lines=lines)


def test_old_view_reads_right_while_a_newer_one_goes_away() -> None:
    """Row 73: what the newer one has saved is moved to the old one before it is unlinked."""
    assert explore(lambda: readers_that_overlap(READ_LINES), preemptions=2).complete


def test_read_that_looks_for_old_values_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: nothing is saved yet, then the commit, then the new value is read."""

    def saved_first(self: State, family: FamilyState, key: bytes, pin: Pin) -> bytes | None:
        older = lookup(pin.pinned, family.id, key)
        if older is not None:
            return older[0]
        return family.values.get(key)

    monkeypatch.setattr(State, "get", saved_first)
    caught(lambda: readers_beside_a_writer(1, 1, (saved_first,)), within=100, says="a view of sequence 2 sees")


def test_leader_that_wakes_nobody_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: the next one waits for ever; it would look by itself after half a second, which is not good enough."""
    monkeypatch.setattr(Leadership, "wake_first", lambda _self: None)
    caught(lambda: committers(2, transactions=True, groups=Counter()), within=100, says="waits for request.wakeup")


def test_leader_that_wakes_before_it_lets_go_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: the woken one finds the lead taken, and goes to sleep again."""

    def wake_too_early(self: Leadership, request: Request, decide: Callable[[list[Request]], None]) -> None:
        group: list[Request] = []
        with self.lead:
            if not request.done:
                self._take(request, group)
                decide(group)
            self.wake_first()
        for other in group:
            if other.wakeup is not None and other.wakeup.locked():
                other.wakeup.release()

    monkeypatch.setattr(Leadership, "_lead", wake_too_early)
    caught(lambda: committers(2, transactions=True, groups=Counter()), within=100, says="waits for request.wakeup")


def test_commit_that_is_visible_before_it_is_whole_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: one family after the other, with the lock let go in between."""

    def one_by_one(self: State, commit: list[Change], sequence: int) -> None:
        for change in commit:
            with self.lock:
                self.apply_locked([change], sequence)

    monkeypatch.setattr(State, "apply", one_by_one)
    caught(lambda: readers_beside_a_writer(1, 1, ()), within=50, says="a view of sequence 3 sees b'2'")


def test_loading_without_a_lock_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 106: two threads decode; what one of them has written since is lost."""

    def load(_self: State, family: FamilyState) -> None:
        if family.loader is not None:
            family.load()

    monkeypatch.setattr(State, "load", load)
    caught(first_touches, within=100, says="decoded")
