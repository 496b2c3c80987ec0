"""`EffectStore` against a model: the same calls to it and to a store that is two dicts and the pure rules.

Workers insert, lease, renew, release and take transitions, in any order, with leases of any age and versions of any
state, one by one and several in a commit; the clock goes forwards and back; what is settled is pruned; the store is
closed and opened again. Every call returns or refuses the same on both. After every step all records, all trails and
all rows of the indexes are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import asdict, replace

from pystate.effects import (
    EffectId,
    EffectKind,
    EffectLedger,
    EffectRecord,
    EffectStatus,
    EffectStore,
    ErrorRecord,
    FailureClass,
    Lease,
    ListQuery,
    PruneQuery,
    Transition,
    TransitionRequest,
)
from pystate.testing import SimulatedDisk
from tests.effects.memory_store import MemoryStore
from tests.effects.samples import T, seconds
from tests.effects.stores import check_all, effect_key, new_effect
from tests.effects.values import payloads

KEYS = [str(number) for number in range(6)]
KINDS = st.sampled_from(EffectKind)
OWNERS = st.sampled_from(["a", "b", "c"])
AGES = st.sampled_from([0, 1, 10, 100])
ERRORS = st.none() | st.just(ErrorRecord(failure_class=FailureClass.rate_limited(seconds(9)), message="429"))

Step: TypeAlias = Callable[[EffectLedger, list[Lease]], Any]
"""A call to a store. The list has the leases that it has given out, oldest first; a new one is added to it."""


class Side:
    """One of the two stores, and the leases that it has given out."""

    def __init__(self, ledger: Any) -> None:
        self.ledger = ledger
        self.leases: list[Lease] = []

    def run(self, step: Step) -> Any:
        return outcome(lambda: step(self.ledger, self.leases))


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returned or raised, so that it can be compared."""
    try:
        return plain(call())
    except Exception as error:
        return type(error), str(error)


def plain(result: Any) -> Any:
    """A lease without the store that it is of."""
    if isinstance(result, Lease):
        return {name: value for name, value in asdict(result).items() if name != "store_id"}
    return [plain(each) for each in result] if type(result) is list else result


class Workers(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.real = Side(self.opened())
        self.model = Side(MemoryStore())
        self.now = 0.0
        self.known: list[EffectId] = [EffectId.new()]  # this one is never recorded

    def opened(self) -> EffectStore:
        return EffectStore.open("/store", files=self.disk)

    def teardown(self) -> None:
        self.real.ledger.close()

    def both(self, step: Step) -> None:
        found, expected = self.real.run(step), self.model.run(step)
        assert found == expected

    # What a call is made of

    def inserting(self, data: st.DataObject) -> Step:
        new = new_effect(data.draw(st.sampled_from(KEYS)), self.now, kind=data.draw(KINDS), input=data.draw(payloads))
        self.known.append(new.id)
        return lambda ledger, _: ledger.insert_or_get(new)

    def leasing(self, data: st.DataObject) -> Step:
        id_, owner, ttl = self.some_id(data), data.draw(OWNERS), seconds(data.draw(AGES))

        def lease(ledger: EffectLedger, leases: list[Lease]) -> Lease:
            leases.append(ledger.acquire_lease(id_, owner, T(self.now), ttl))
            return leases[-1]

        return lease

    def renewing(self, data: st.DataObject) -> Step:
        index, ttl = self.some_lease(data), seconds(data.draw(AGES))

        def renew(ledger: EffectLedger, leases: list[Lease]) -> Lease | None:
            if index is None:
                return None
            renewed = ledger.renew_lease(leases[index], T(self.now), ttl)
            if ttl > seconds(1):  # else go on with the copy from before
                leases[index] = renewed
            return renewed

        return renew

    def releasing(self, data: st.DataObject) -> Step:
        index = self.some_lease(data)
        return lambda ledger, leases: None if index is None else ledger.release_lease(leases[index])

    def stepping(self, data: st.DataObject) -> Step:
        """A transition that is legal more often than not, by a holder, a former holder, or nobody."""
        record = data.draw(st.sampled_from(self.stored() or [None]))
        if record is None:
            return self.inserting(data)
        exits = list(record.status.exits) or list(Transition)
        transition = data.draw(st.sampled_from(exits) | st.sampled_from(Transition))
        mine = [index for index, lease in enumerate(self.model.leases) if lease.effect_id == record.id]
        index = data.draw(st.sampled_from([mine[-1] if mine else None, None]) | st.sampled_from([*mine, None]))
        request = TransitionRequest(
            id=record.id,
            expected_version=record.version + data.draw(st.sampled_from([0] * 9 + [1, -1])),
            lease=None,
            transition=transition,
            now=T(self.now),
            output=data.draw(payloads),
            error=data.draw(ERRORS),
            next_attempt_at=data.draw(st.none() | st.integers(0, 300).map(T)),
            actor=data.draw(st.none() | OWNERS),
            payload=data.draw(payloads),
        )
        return lambda ledger, leases: ledger.transition(
            replace(request, lease=None if index is None else leases[index])
        )

    def pruning(self, data: st.DataObject) -> Step:
        query = PruneQuery(
            data.draw(st.sampled_from(EffectStatus)),
            seconds(data.draw(AGES)),
            T(self.now),
            limit=data.draw(st.integers(0, 3)),
        )
        return lambda ledger, _: ledger.prune(query)

    def listing(self, data: st.DataObject) -> Step:
        time = st.none() | st.just(T(self.now))
        query = ListQuery(
            status_in=tuple(data.draw(st.lists(st.sampled_from(EffectStatus), max_size=4))),
            lease_expired_at=data.draw(time),
            due_at=data.draw(time),
            after=data.draw(st.none() | st.sampled_from(self.known)),
            limit=data.draw(st.integers(0, 4)),
        )
        return lambda ledger, _: ledger.list(query)

    def looking(self, data: st.DataObject) -> Step:
        id_, key = self.some_id(data), effect_key(data.draw(st.sampled_from(KEYS)))
        return lambda ledger, _: [ledger.get_by_key(key), ledger.get(id_), ledger.events(id_)]

    def some_id(self, data: st.DataObject) -> EffectId:
        """One that is recorded, more often than not."""
        recorded = [record.id for record in self.stored() if record is not None]
        return data.draw(st.sampled_from(recorded or self.known) | st.sampled_from(self.known))

    def some_lease(self, data: st.DataObject) -> int | None:
        count = len(self.model.leases)
        return data.draw(st.integers(0, count - 1)) if count else None

    def stored(self) -> Sequence[EffectRecord | None]:
        model: MemoryStore = self.model.ledger
        return list(model.records.values())

    # What happens

    @initialize(data=st.data())
    def there_are_some(self, data: st.DataObject) -> None:
        for _ in range(2):
            self.both(self.inserting(data))

    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        self.both(self.inserting(data))

    @rule(data=st.data())
    def acquire(self, data: st.DataObject) -> None:
        self.both(self.leasing(data))

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        self.both(self.renewing(data))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.both(self.releasing(data))

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        self.both(self.stepping(data))

    @rule(data=st.data(), steps=st.integers(1, 6))
    def live_on(self, data: st.DataObject, steps: int) -> None:
        """Some legal transitions of one effect, by its holder or, when there is none, by anybody."""
        id_ = self.some_id(data)
        for _ in range(steps):
            record: EffectRecord | None = self.model.ledger.get(id_)
            if record is None or record.status.is_terminal:
                return
            transition = data.draw(st.sampled_from(list(record.status.exits)))
            held = record.live_lease_owner(T(self.now)) is not None
            index = next((i for i, lease in enumerate(self.model.leases) if record._is_newest(lease)), None)
            request = TransitionRequest.new(record, None, transition, T(self.now), output=data.draw(payloads))

            def step(ledger: EffectLedger, leases: list[Lease], request: TransitionRequest = request) -> EffectRecord:
                lease = leases[index] if held and index is not None else None  # noqa: B023
                return ledger.transition(replace(request, lease=lease))

            self.both(step)

    @rule(data=st.data())
    def prune(self, data: st.DataObject) -> None:
        self.both(self.pruning(data))

    @rule(data=st.data())
    def list_them(self, data: st.DataObject) -> None:
        self.both(self.listing(data))

    @rule(data=st.data(), count=st.integers(2, 5), bound=st.booleans())
    def several_in_one_commit(self, data: st.DataObject, count: int, bound: bool) -> None:
        """All of them or, when one is refused, none."""
        made = (
            *(self.inserting, self.leasing, self.renewing, self.releasing, self.stepping, self.stepping),
            *(self.pruning, self.listing, self.looking),
        )
        steps = [data.draw(st.sampled_from(made))(data) for _ in range(count)]
        model: MemoryStore = self.model.ledger
        before = dict(model.records), {id_: list(trail) for id_, trail in model.trails.items()}
        leases = [list(side.leases) for side in (self.real, self.model)]
        sequence = self.real.ledger.store.sequence

        def all_of_them(ledger: EffectLedger, leases: list[Lease]) -> Any:
            return [step(ledger, leases) for step in steps]

        def one_commit() -> Any:
            effects: EffectStore = self.real.ledger
            if bound:  # to a transaction of ours
                return effects.store.transact(lambda txn: all_of_them(effects.bind(txn), self.real.leases))
            return effects.transact(lambda operations: all_of_them(operations, self.real.leases))

        found = outcome(one_commit)
        expected = self.model.run(all_of_them)
        assert found == expected
        assert self.real.ledger.store.sequence <= sequence + 1
        if type(expected) is tuple:
            model.records, model.trails = before
            self.real.leases, self.model.leases = leases

    @rule(by=st.sampled_from([-5, 1, 10, 31, 100]))
    def time_goes_on(self, by: float) -> None:
        self.now += by

    @rule()
    @precondition(lambda self: self.now > 0)
    def the_store_is_opened_again(self) -> None:
        self.real.ledger.close()
        self.real.ledger = self.opened()

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        model: MemoryStore = self.model.ledger
        expected = sorted(model.records)
        assert check_all(self.real.ledger) == [(model.records[id_], model.trails[id_]) for id_ in expected]
        for key in KEYS:
            assert self.real.ledger.get_by_key(effect_key(key)) == model.get_by_key(effect_key(key))


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=150, stateful_step_count=40)
