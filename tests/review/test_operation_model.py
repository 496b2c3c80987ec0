"""`OperationAttempts` against a plain model that does what the specification says, word by word, and knows no index.

Any calls in any order, rows overwritten behind the table's back in between, the store closed and opened again. After
every step all rows that can be read are as in the model, the index rows are those of the attempts, and every call
returns or refuses what the model does.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pystate
from pystate import Store
from pystate.errors import DecodeError, SlotTakenError
from pystate.review.operation_attempt import FAMILY, OPERATION_ATTEMPTS, CleanupState, OperationAttempt, Outcome, Phase
from pystate.review.operation_attempts import OperationAttempts, RetentionBound
from tests.review.attempts import HOST, OTHER, PIG, L, at, attempts_of, changed, overwrite

T = TypeVar("T")
Triple: TypeAlias = tuple[str, str, int | None]


def triple(attempt: OperationAttempt) -> Triple:
    return attempt.host, attempt.target, attempt.instance


class Refused(Exception):
    """The model refuses: with which error, and for which keys (any of them may be named)."""

    def __init__(self, kind: type[Exception], keys: set[str]) -> None:
        self.kind = kind
        self.keys = keys


@dataclass
class Model:
    """Section 6.4, with one dict and sorting.

    An attempt that has been overwritten stays in the dict, as the index rows still say, and is in `unreadable`: whoever
    has to read it fails.
    """

    attempts: dict[str, OperationAttempt] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)

    def _read(self, found: list[OperationAttempt]) -> list[OperationAttempt]:
        """What a call needs to read."""
        keys = {each.idempotency_key for each in found} & self.unreadable
        if keys:
            raise Refused(DecodeError, keys)
        return found

    def _by_key(self, found: list[OperationAttempt]) -> list[OperationAttempt]:
        return sorted(found, key=lambda each: each.idempotency_key.encode())

    def upsert(self, attempt: OperationAttempt) -> None:
        if attempt.idempotency_key in self.unreadable:
            raise Refused(DecodeError, {attempt.idempotency_key})
        if attempt.outcome is None:
            for other in self.attempts.values():
                same = other.idempotency_key == attempt.idempotency_key
                if other.outcome is None and triple(other) == triple(attempt) and not same:
                    raise Refused(SlotTakenError, {other.idempotency_key})
        self.attempts[attempt.idempotency_key] = attempt

    def delete(self, key: str) -> None:
        self.attempts.pop(key, None)
        self.unreadable.discard(key)

    def get(self, key: str) -> OperationAttempt | None:
        return self._read([self.attempts[key]])[0] if key in self.attempts else None

    def iter(self) -> list[tuple[str, OperationAttempt | None]]:
        """In the order of the keys; None for what cannot be read."""
        return [
            (each.idempotency_key, None if each.idempotency_key in self.unreadable else each)
            for each in self._by_key(list(self.attempts.values()))
        ]

    def live_attempt(self, host: str, target: str, instance: int | None) -> OperationAttempt | None:
        found = [
            each for each in self.attempts.values() if each.outcome is None and triple(each) == (host, target, instance)
        ]
        return self._read(found)[0] if found else None

    def attempts_owing_cleanup(self, target: str, host: str, instance: int | None) -> list[OperationAttempt]:
        owing = [each for each in self.attempts.values() if each.cleanup_state is not None]
        return self._by_key(self._read([each for each in owing if triple(each) == (host, target, instance)]))

    def expired_attempts(self, instant: datetime) -> list[OperationAttempt]:
        found = self._read([each for each in self.attempts.values() if each.expires_at <= instant])

        def order(attempt: OperationAttempt) -> tuple[datetime, int, bytes]:
            key = attempt.idempotency_key.encode()
            return attempt.expires_at, len(key), key

        return sorted(found, key=order)

    def sweep_expired(self, instant: datetime) -> int:
        live = [each for each in self.attempts.values() if each.outcome is None]
        overdue = self._read([each for each in live if each.expires_at <= instant])
        for attempt in overdue:
            self.attempts[attempt.idempotency_key] = changed(attempt, outcome=Outcome.FAILED)
        return len(overdue)

    def ranked(self) -> dict[Triple, list[OperationAttempt]]:
        """The finished attempts of each triple, rank 1 first."""
        groups: dict[Triple, list[OperationAttempt]] = {}
        for attempt in self.attempts.values():
            if attempt.outcome is not None:
                groups.setdefault(triple(attempt), []).append(attempt)
        for group in groups.values():
            group.sort(key=lambda each: (each.started_at, each.idempotency_key.encode()), reverse=True)
        return groups

    def prune(self, bound: RetentionBound, instant: datetime) -> int:
        removable: list[OperationAttempt] = []
        needed: list[OperationAttempt] = []
        for group in self.ranked().values():
            gone = [
                each
                for rank, each in enumerate(group, 1)
                if rank > 1
                and each.cleanup_state is None
                and (instant - each.started_at > bound.max_age or rank > bound.max_terminal_per_triple)
            ]
            if gone:
                removable += gone
                needed += [group[0], *gone]
        self._read(needed)
        for attempt in removable:
            del self.attempts[attempt.idempotency_key]
        return len(removable)


KEYS = ["a", "b", "aa", "b\0", "\0", "ÿ", "x" * 20]
TRIPLES: list[Triple] = [
    (HOST, PIG, 1),
    (HOST, PIG, 0),
    (HOST, PIG, None),
    (OTHER, PIG, 1),
    (PIG, HOST, 1),
    (HOST, "", None),
]
SECONDS = [-2, -1, -0.000001, 0, 0.000001, 1, 2]
"""Few, so that equal ones, and ones that differ by the least possible, are common."""
instants = st.sampled_from([at(seconds) for seconds in SECONDS])
# Most are of one triple, and most have ended: or else no triple would ever have too many.
triples = st.sampled_from(TRIPLES[:1] * 6 + TRIPLES)
outcomes = st.sampled_from([None, *Outcome])
ages = st.just(timedelta.max) | st.sampled_from([timedelta(seconds=seconds) for seconds in SECONDS])
bounds = st.builds(RetentionBound, max_age=ages, max_terminal_per_triple=st.integers(0, 4))
attempts = st.builds(
    lambda key, triple, phase, cleanup, outcome, started, expires: L(
        key, *triple, phase=phase, cleanup_state=cleanup, outcome=outcome, started_at=started, expires_at=expires
    ),
    st.sampled_from(KEYS),
    triples,
    st.sampled_from(Phase),
    st.none() | st.sampled_from(CleanupState),
    outcomes,
    instants,
    instants,
)


class LedgerMachine(RuleBasedStateMachine):
    """The table in memory or on disk, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.path: Path | None = None

    @initialize(on_disk=st.booleans())
    def begin(self, on_disk: bool) -> None:
        if on_disk:
            self.path = Path(tempfile.mkdtemp())
        self.open()

    def open(self) -> None:
        if self.path is None:
            self.store: Store = pystate.memory(families=[FAMILY])
        else:
            self.store = pystate.open(
                str(self.path), families=[FAMILY], create_missing_families=True, durability="process"
            )

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        if self.path is not None:
            shutil.rmtree(self.path)

    @property
    def table(self) -> OperationAttempts:
        return attempts_of(self.store)

    def same(self, real: Callable[[], T], expected: Callable[[], T]) -> None:
        """Both give the same; or both refuse, and then nothing has changed."""
        before = dict(self.store.family(FAMILY))
        try:
            wanted = expected()
        except Refused as refused:
            try:
                real()
            except refused.kind as error:
                named = error.holder if isinstance(error, SlotTakenError) else error.key  # type: ignore[attr-defined]
                assert named.decode() in refused.keys
            else:
                raise AssertionError(f"accepted, and not refused for {refused.keys}") from refused
            assert dict(self.store.family(FAMILY)) == before
        else:
            assert real() == wanted

    # What is done

    @rule(attempt=attempts)
    def upsert(self, attempt: OperationAttempt) -> None:
        self.same(lambda: self.table.upsert(attempt), lambda: self.model.upsert(attempt))

    @rule(several=st.lists(attempts, max_size=6))
    def upsert_several(self, several: list[OperationAttempt]) -> None:
        """As one transaction: what is refused in it leaves it as it was."""
        with self.store.begin() as txn:
            for attempt in several:
                try:
                    self.model.upsert(attempt)
                    refused = False
                except Refused:
                    refused = True
                before = dict(txn.family(FAMILY))
                try:
                    attempts_of(txn).upsert(attempt)
                    assert not refused
                except (SlotTakenError, DecodeError):
                    assert refused
                    assert dict(txn.family(FAMILY)) == before

    @rule(key=st.sampled_from(KEYS), outcome=outcomes, owes=st.booleans())
    def drive_on(self, key: str, outcome: Outcome | None, owes: bool) -> None:
        """What callers do: read, set something, store."""
        attempt = self.model.attempts.get(key)
        if attempt is not None:
            self.upsert(
                changed(attempt, outcome=outcome, cleanup_state=CleanupState.PENDING_DEREGISTER if owes else None)
            )

    @rule(key=st.sampled_from([*KEYS, ""]))
    def delete(self, key: str) -> None:
        self.same(lambda: self.table.delete(key), lambda: self.model.delete(key))

    @rule(instant=instants)
    def sweep_expired(self, instant: datetime) -> None:
        self.same(lambda: self.table.sweep_expired(instant), lambda: self.model.sweep_expired(instant))

    @rule(bound=bounds, instant=instants)
    def prune(self, bound: RetentionBound, instant: datetime) -> None:
        self.same(lambda: self.table.prune(bound, instant), lambda: self.model.prune(bound, instant))

    @rule(key=st.sampled_from(KEYS), value=st.sampled_from([b"", b"not a stored value", b"\x9f\xc0"]))
    def overwrite(self, key: str, value: bytes) -> None:
        if key in self.model.attempts:
            overwrite(self.store, key, value)
            self.model.unreadable.add(key)

    @rule(key=st.sampled_from(KEYS))
    def overwrite_and_delete(self, key: str) -> None:
        self.overwrite(key, b"not a stored value")
        self.delete(key)

    @rule(stray=attempts)
    def delete_what_stands_under_the_empty_key(self, stray: OperationAttempt) -> None:
        """What would be an attempt elsewhere owns nothing there."""
        overwrite(self.store, "", OPERATION_ATTEMPTS.encode(stray))
        self.table.delete("")

    @rule()
    def rebuild_indexes(self) -> None:
        def rebuild() -> int:
            if self.model.unreadable:
                raise Refused(DecodeError, self.model.unreadable)
            return 0

        self.same(self.table.rebuild_indexes, rebuild)

    @precondition(lambda self: self.path is not None)
    @rule(snapshot=st.booleans())
    def open_again(self, snapshot: bool) -> None:
        if snapshot:
            self.store.snapshot()
        self.store.close()
        self.open()

    # What is asked

    @rule(asked=triples)
    def look_up(self, asked: Triple) -> None:
        host, target, instance = asked
        self.same(
            lambda: self.table.live_attempt(host, target, instance),
            lambda: self.model.live_attempt(host, target, instance),
        )
        self.same(
            lambda: self.table.attempts_owing_cleanup(target, host, instance),
            lambda: self.model.attempts_owing_cleanup(target, host, instance),
        )

    @rule(instant=instants)
    def expired_attempts(self, instant: datetime) -> None:
        self.same(lambda: self.table.expired_attempts(instant), lambda: self.model.expired_attempts(instant))

    @rule(key=st.sampled_from([*KEYS, ""]))
    def get(self, key: str) -> None:
        self.same(lambda: self.table.get(key), lambda: self.model.get(key))

    @invariant()
    def every_row_is_as_in_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        found = [
            (error.key.decode() if error is not None else attempt.idempotency_key, attempt)  # type: ignore[union-attr]
            for attempt, error in self.table.iter_results()
        ]
        assert found == self.model.iter()

    @invariant()
    def index_rows_are_those_of_the_attempts(self) -> None:
        """Nothing else: as in a new table into which the attempts were put; whatever cannot be read keeps its rows."""
        if not hasattr(self, "store"):
            return
        if not self.model.unreadable:
            assert self.table.check() == []
        with pystate.memory(families=[FAMILY]) as other:
            for attempt in self.model.attempts.values():
                attempts_of(other).upsert(attempt)
            expected = dict(other.family(FAMILY).scan(b"\xf8"))
        assert dict(self.store.family(FAMILY).scan(b"\xf8")) == expected

    @invariant()
    def check_names_what_cannot_be_read(self) -> None:
        if not hasattr(self, "store"):
            return
        named = {problem.key for problem in self.table.check() if problem.error is not None}
        assert named == {key.encode() for key in self.model.unreadable}


class TestLedgerAgainstModel(LedgerMachine.TestCase):  # type: ignore[misc, valid-type]
    """Check R75: whatever is done, in whatever order, the table is its model, and so are its index rows."""

    settings = settings(
        max_examples=80,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def test_model_itself_does_what_the_specification_shows() -> None:
    """The model is only worth something if it is right: the examples of checks R101, R103 and R107."""

    def left(given: list[tuple[str, float, CleanupState | None]], bound: RetentionBound, now: float) -> list[str]:
        model = Model()
        for key, start, cleanup in given:
            model.upsert(L(key, started_at=at(start), outcome=Outcome.SUCCEEDED, cleanup_state=cleanup))
        model.prune(bound, at(now))
        return sorted(model.attempts)

    def bound(age: float, keep: int) -> RetentionBound:
        return RetentionBound(max_age=timedelta(seconds=age), max_terminal_per_triple=keep)

    four: list[tuple[str, float, CleanupState | None]] = [
        ("a", 1000, None),
        ("b", 2000, None),
        ("c", 2500, None),
        ("d", 3000, None),
    ]
    assert left(four, bound(1000, 10), 3500) == ["c", "d"]
    assert left(four, bound(1_000_000, 0), 3500) == ["d"]
    assert left([*four[:2], ("e", 3000, CleanupState.PENDING_DEREGISTER)], bound(0, 1), 10_000) == ["e"]
    assert left([("b", 1000, None), ("a", 1000, None)], bound(0, 0), 10_000) == ["b"]
    assert datetime(1970, 1, 1, tzinfo=UTC) == at(0)
