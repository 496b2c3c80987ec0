"""`EffectStore`: opening and closing it, several operations in one commit, and what it does when something is wrong."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

import pystate
from pystate.effects import (
    EffectId,
    EffectKind,
    EffectLedger,
    EffectOperations,
    EffectReads,
    EffectRecord,
    EffectStatus,
    EffectStore,
    ListQuery,
    PruneQuery,
    Transition,
)
from pystate.effects.effect_rows import EVENTS
from pystate.errors import (
    ClosedError,
    ConflictError,
    DecodeError,
    EffectNotFoundError,
    FamilyNotFoundError,
    InvalidRecordError,
    InvalidTransitionError,
    KeyExistsError,
    LeaseHeldError,
    LeaseLostError,
    ReadOnlyError,
    StoreFailedError,
)
from pystate.formats import backup
from pystate.tables import Schema
from pystate.testing import SimulatedDisk, failing
from tests.effects.samples import TTL, T
from tests.effects.stores import (
    check_all,
    effect_key,
    new_effect,
    overwrite,
    record_effect,
    request,
    take,
    trail_of,
)

S, Tr = EffectStatus, Transition


# ---------------------------------------------------------------------------------------------- opening and closing


def test_opening_makes_the_two_families_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pystate.open(path) as store:
        store.create_family("orders").put(b"order_1", b"paid")
    with EffectStore.open(path) as effects:
        assert effects.store.families == ("default", "effect events", "effects", "orders")
        assert set(EffectStore.FAMILIES) == {"effects", "effect events"}
        record = record_effect(effects)
    with EffectStore.open(path, read_only=True) as effects:
        assert effects.get(record.id) == record
        assert effects.store.family("orders").get(b"order_1") == b"paid"
        with pytest.raises(ReadOnlyError):
            effects.insert_or_get(new_effect("order_2"))
        assert effects.insert_or_get(new_effect()).record == record  # writes nothing


def test_a_crash_between_the_two_families_is_made_good(tmp_path: Path) -> None:
    with pystate.open(tmp_path / "store") as store:
        store.create_family(EffectStore.FAMILIES[0])
    with EffectStore.open(tmp_path / "store") as effects:
        record_effect(effects, status=S.COMMITTED)
        check_all(effects)


def test_a_store_without_effects_is_refused_and_closed(tmp_path: Path) -> None:
    pystate.open(tmp_path / "store").close()
    with pytest.raises(FamilyNotFoundError):
        EffectStore.open(tmp_path / "store", read_only=True)
    with pytest.raises(pystate.StoreNotFoundError):
        EffectStore.open(tmp_path / "none", create=False)
    with pystate.open(tmp_path / "store") as store, pytest.raises(FamilyNotFoundError):
        EffectStore(store)
    with pytest.raises(TypeError, match="store: expected Store"):
        EffectStore("store")  # type: ignore[arg-type]
    with EffectStore.open(tmp_path / "store"), pytest.raises(pystate.LockedError):
        EffectStore.open(tmp_path / "store")


def test_a_store_whose_families_cannot_be_made_is_closed() -> None:
    disk = SimulatedDisk()
    pystate.open("/store", files=disk).close()
    disk.inject(failing("sync", 2))
    with pytest.raises(StoreFailedError):
        EffectStore.open("/store", files=disk)
    assert disk.held_locks == disk.open_descriptors == []
    EffectStore.open("/store", files=disk).close()


def test_a_store_that_was_given_stays_the_callers() -> None:
    store = pystate.memory(families=EffectStore.FAMILIES)
    with EffectStore(store) as effects:
        assert effects.store is store
    effects.close()
    assert store.families
    with EffectStore.memory(families=["orders"]) as effects:
        assert "orders" in effects.store.families
    effects.close()
    for call in (
        lambda: effects.get(EffectId.new()),
        lambda: effects.insert_or_get(new_effect()),
        lambda: effects.list(ListQuery.statuses()),
    ):
        with pytest.raises(ClosedError):
            call()
    assert "EffectStore in <Store (memory)" in repr(effects)


def test_it_is_an_effect_ledger_and_so_are_its_operations() -> None:
    """The signatures agree, parameter by parameter; mypy sees the types."""
    store: EffectLedger = EffectStore.memory()
    with EffectStore.memory() as effects, effects.store.begin() as txn:
        operations: EffectLedger = effects.bind(txn)
    names = [name for name in vars(EffectLedger) if not name.startswith("_")]
    assert len(names) == 10
    for name in names:
        wanted = inspect.signature(getattr(EffectLedger, name)).parameters
        for kind in (store, operations):
            found = inspect.signature(getattr(type(kind), name)).parameters
            assert list(found) == list(wanted), name
    assert not {name for name in vars(EffectReads) if not name.startswith("_")} - {*names, "list_results"}


# ------------------------------------------------------------------------------------ several operations, one commit


def test_each_operation_is_one_commit() -> None:
    effects = EffectStore.memory()

    def commits(call: Callable[[], Any]) -> int:
        before = effects.store.sequence
        call()
        return effects.store.sequence - before

    record = effects.insert_or_get(new_effect()).record
    assert commits(lambda: effects.insert_or_get(new_effect("order_2"))) == 1
    assert commits(lambda: effects.insert_or_get(new_effect())) == 0
    lease = effects.acquire_lease(record.id, "a", T(0), TTL)
    assert commits(lambda: effects.renew_lease(lease, T(1), TTL)) == 1
    assert commits(lambda: effects.transition(request(record, Tr.START_ATTEMPT, lease=lease))) == 1
    assert commits(lambda: effects.release_lease(lease)) == 1
    assert commits(lambda: effects.release_lease(lease)) == 0
    record = take(effects, effects.list(ListQuery.statuses())[0], Tr.SUCCEEDED, at=2)
    assert commits(lambda: effects.prune(PruneQuery(S.COMMITTED, timedelta(0), T(2)))) == 1
    assert commits(lambda: effects.prune(PruneQuery(S.COMMITTED, timedelta(0), T(2)))) == 0
    for read in (
        lambda: effects.get(record.id),
        lambda: effects.get_by_key(record.key),
        lambda: effects.list(ListQuery.statuses()),
    ):
        assert commits(read) == 0


def test_a_plain_effect_needs_two_commits_beside_its_insertion() -> None:
    """Lease and start are one, result and release are one; the trail is that of five."""
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record
    before = effects.store.sequence

    def start(operations: EffectOperations) -> Any:
        lease = operations.acquire_lease(record.id, "a", T(0), TTL)
        return lease, operations.transition(request(record, Tr.START_ATTEMPT, lease=lease))

    lease, started = effects.transact(start)

    def finish(operations: EffectOperations) -> EffectRecord:
        operations.transition(request(started, Tr.SUCCEEDED, 2, lease=lease, output={"payment": "pi_1"}))
        operations.release_lease(lease)
        found = operations.get(record.id)
        assert found is not None
        return found

    done = effects.transact(finish)
    assert effects.store.sequence == before + 2
    assert effects.get(record.id) == done
    assert (done.status, done.lease_owner, done.lease_epoch, done.version) == (S.COMMITTED, None, 1, 2)
    assert trail_of(effects, record.id) == [Tr.START_ATTEMPT, Tr.SUCCEEDED]
    check_all(effects)


def test_what_is_refused_within_a_commit_takes_all_of_it_away() -> None:
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record
    before = dict(effects.store.family("effects"))

    def refused_at_the_end(operations: EffectOperations) -> None:
        operations.insert_or_get(new_effect("order_2"))
        lease = operations.acquire_lease(record.id, "a", T(0), TTL)
        operations.transition(request(record, Tr.SUCCEEDED, lease=lease))

    with pytest.raises(InvalidTransitionError):
        effects.transact(refused_at_the_end)
    assert dict(effects.store.family("effects")) == before
    assert len(effects.store.family("effect events")) == 0


def test_a_refusal_that_is_caught_leaves_nothing_in_the_transaction() -> None:
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record

    def try_all(operations: EffectOperations) -> None:
        lease = operations.acquire_lease(record.id, "a", T(0), TTL)
        refusals: list[tuple[type[Exception], Callable[[], object]]] = [
            (InvalidTransitionError, lambda: operations.transition(request(record, Tr.SUCCEEDED, lease=lease))),
            (LeaseHeldError, lambda: operations.transition(request(record, Tr.START_ATTEMPT))),
            (LeaseHeldError, lambda: operations.acquire_lease(record.id, "b", T(0), TTL)),
            (LeaseLostError, lambda: operations.renew_lease(lease, T(30), TTL)),
            (EffectNotFoundError, lambda: operations.acquire_lease(EffectId.new(), "b", T(0), TTL)),
        ]
        for kind, call in refusals:
            with pytest.raises(kind):
                call()
        operations.transition(request(record, Tr.START_ATTEMPT, lease=lease))

    effects.transact(try_all)
    assert trail_of(effects, record.id) == [Tr.START_ATTEMPT]
    check_all(effects)


def test_an_operation_sees_what_those_before_it_have_done() -> None:
    effects = EffectStore.memory()

    def run(operations: EffectOperations) -> None:
        record = operations.insert_or_get(new_effect()).record
        assert operations.get(record.id) == operations.get_by_key(record.key) == record
        assert operations.insert_or_get(new_effect()) == (record, False)
        assert operations.list(ListQuery.statuses([S.PENDING])) == [record]
        assert operations.events(record.id) == []
        done = take(operations, record, Tr.START_ATTEMPT, Tr.SUCCEEDED)
        assert operations.list(ListQuery.statuses([S.PENDING])) == []
        assert [event.transition for event in operations.events(record.id)] == [Tr.START_ATTEMPT, Tr.SUCCEEDED]
        assert operations.prune(PruneQuery(S.COMMITTED, timedelta(0), T(1))) == 1
        assert operations.get(done.id) is None
        assert operations.insert_or_get(new_effect()).inserted

    effects.transact(run)
    ((record, events),) = check_all(effects)
    assert (record.version, events) == (0, [])


@pytest.mark.parametrize("bound", [False, True], ids=["transact", "bind"])
def test_each_operation_sees_what_was_just_written(bound: bool) -> None:
    """Each first in line after a write, so that nothing else has brought it about."""
    effects = EffectStore.memory()

    def look(look_at: Callable[[EffectOperations, EffectRecord], object]) -> object:
        def run(operations: EffectOperations) -> object:
            record = operations.insert_or_get(new_effect()).record
            lease = operations.acquire_lease(record.id, "a", T(0), TTL)
            for transition in (Tr.START_ATTEMPT, Tr.SUCCEEDED):
                record = operations.transition(request(record, transition, 1, lease=lease))
            operations.release_lease(lease)
            found = look_at(operations, record)
            operations.prune(PruneQuery(S.COMMITTED, timedelta(0), T(1)))
            return found

        if bound:
            return effects.store.transact(lambda txn: run(effects.bind(txn)))
        return effects.transact(run)

    done = look(lambda on, record: on.get(record.id))
    assert isinstance(done, EffectRecord) and (done.status, done.lease_owner, done.lease_epoch) == (
        S.COMMITTED,
        None,
        1,
    )
    assert look(lambda on, record: on.get_by_key(record.key) == on.get(record.id) != None)  # noqa: E711
    assert look(lambda on, record: on.insert_or_get(new_effect()) == (on.get(record.id), False))
    assert look(lambda on, record: [event.sequence for event in on.events(record.id)]) == [1, 2]
    assert look(lambda on, record: [each.id for each in on.list(ListQuery.statuses([S.COMMITTED]))] == [record.id])
    assert look(lambda on, record: on.list(ListQuery.statuses([S.PENDING]))) == []
    assert look(lambda on, record: on.prune(PruneQuery(S.COMMITTED, timedelta(0), T(1)))) == 1
    assert look(lambda on, record: on.prune(PruneQuery(S.COMMITTED, timedelta(0), T(1))) and on.get(record.id)) is None
    assert check_all(effects) == []


def test_several_operations_on_an_effect_write_its_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record
    written: list[object] = []
    replace_row = Schema.replace_row

    def counted(*arguments: Any) -> None:
        written.append(arguments[-1])
        replace_row(*arguments)

    monkeypatch.setattr(Schema, "replace_row", counted)

    def start(operations: EffectOperations) -> EffectRecord:
        lease = operations.acquire_lease(record.id, "a", T(0), TTL)
        return operations.transition(request(record, Tr.START_ATTEMPT, lease=lease))

    assert written == [effects.transact(start)]


def test_what_cannot_be_written_is_not_forgotten_by_a_later_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its event is in the transaction already; were the record dropped, the event would be committed without it."""
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record

    def refused(_: EffectRecord) -> bytes:
        raise ValueError("too large")

    def write(operations: EffectOperations) -> None:
        operations.transition(request(record, Tr.REQUEST_APPROVAL))
        monkeypatch.setattr("pystate.effects.effect_rows.encode_record", refused)
        with pytest.raises(InvalidRecordError):
            operations.events(record.id)

    with pytest.raises(InvalidRecordError):
        effects.transact(write)
    assert effects.get(record.id) == record
    assert effects.events(record.id) == []


def test_an_effect_is_planned_with_the_change_that_needs_it_or_not_at_all() -> None:
    """The outbox: state and effect are one commit, and a worker finds what is there to do."""
    effects = EffectStore.memory(families=["orders"])
    orders = effects.store.family("orders")

    def pay(txn: pystate.Transaction) -> EffectRecord:
        txn.put("orders", b"order_1", b"paid")
        return effects.bind(txn).insert_or_get(new_effect(input={"order": 1})).record

    with pytest.raises(RuntimeError, match="never mind"), effects.store.begin() as txn:
        pay(txn)
        raise RuntimeError("never mind")
    assert effects.list(ListQuery.due(T(0))) == [] and b"order_1" not in orders
    before = effects.store.sequence
    planned = effects.store.transact(pay)
    assert effects.store.sequence == before + 1
    assert orders[b"order_1"] == b"paid"
    assert effects.list(ListQuery.due(T(0))) == [planned]
    check_all(effects)


def test_a_plan_goes_with_the_run_that_is_committed() -> None:
    """On a conflict the function runs again, with a new effect; the one of the first run was never there."""
    effects = EffectStore.memory(families=["orders"])
    orders = effects.store.family("orders")
    planned: list[EffectRecord] = []

    def pay(txn: pystate.Transaction) -> None:
        number = int(txn.get("orders", b"number") or b"0") + 1
        if not planned:
            orders[b"number"] = b"41"  # somebody else
        txn.put("orders", b"number", str(number).encode())
        planned.append(effects.bind(txn).insert_or_get(new_effect(f"order_{number}")).record)

    effects.store.transact(pay)
    assert orders[b"number"] == b"42"
    assert [record.key.key for record in planned] == ["order_1", "order_42"]
    assert effects.list(ListQuery.statuses()) == planned[1:] or effects.list(ListQuery.statuses()) == [planned[1]]
    assert effects.get_by_key(effect_key("order_1")) is None


def test_bound_to_a_view_it_reads_one_state_and_cannot_write() -> None:
    effects = EffectStore.memory()
    record = record_effect(effects)
    with effects.store.view() as view:
        reads = effects.bind(view)
        take(effects, record, Tr.START_ATTEMPT)
        assert reads.get(record.id) == record
        assert reads.events(record.id) == []
        assert reads.list(ListQuery.statuses([S.PENDING])) == [record]
        assert not hasattr(reads, "transition")
    with pytest.raises(ClosedError):
        reads.get(record.id)
    with pystate.memory() as other, other.begin() as txn, pytest.raises(FamilyNotFoundError):
        effects.bind(txn)


# --------------------------------------------------------------------------------------------------------- awaiting


def test_a_hundred_tasks_share_commits_and_none_disturbs_another() -> None:
    effects = EffectStore.memory()

    async def effect(number: int) -> EffectRecord:
        outcome = await effects.transact_async(lambda operations: operations.insert_or_get(new_effect(str(number))))
        lease = await effects.transact_async(
            lambda operations: operations.acquire_lease(outcome.record.id, "a", T(0), TTL)
        )
        for transition in (Tr.START_ATTEMPT, Tr.SUCCEEDED):
            record = effects.get(outcome.record.id)
            assert record is not None
            step = request(record, transition, lease=lease)
            await effects.transact_async(methodcaller("transition", step))
        await effects.transact_async(lambda operations: operations.release_lease(lease))
        found = effects.get(outcome.record.id)
        assert found is not None
        return found

    async def main() -> list[EffectRecord]:
        return await asyncio.gather(*[effect(number) for number in range(100)])

    records = asyncio.run(main())
    assert [record.status for record in records] == [S.COMMITTED] * 100
    assert len(check_all(effects)) == 100


def test_what_is_refused_reaches_the_task() -> None:
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record

    async def main() -> None:
        await effects.transact_async(lambda operations: operations.transition(request(record, Tr.SUCCEEDED)))

    with pytest.raises(InvalidTransitionError):
        asyncio.run(main())
    assert effects.get(record.id) == record


# -------------------------------------------------------------------------------------------------------- conflicts


def open_on(effects: EffectStore, *steps: Callable[[EffectOperations], Any]) -> list[ConflictError | None]:
    """Run each step in a transaction of its own, all open at once; commit them in order; the conflict of each."""
    transactions = [effects.store.begin() for _ in steps]
    for txn, step in zip(transactions, steps, strict=True):
        step(effects.bind(txn))
    found: list[ConflictError | None] = []
    for txn in transactions:
        try:
            txn.commit()
            found.append(None)
        except ConflictError as error:
            found.append(error)
    return found


def test_work_on_one_effect_conflicts_with_no_work_on_another() -> None:
    effects = EffectStore.memory()
    one, two, three = (effects.insert_or_get(new_effect(key)).record for key in ("1", "2", "3"))
    lease = effects.acquire_lease(two.id, "a", T(0), TTL)
    started = effects.transition(request(two, Tr.START_ATTEMPT, lease=lease))
    assert (
        open_on(
            effects,
            lambda on: on.acquire_lease(one.id, "a", T(0), TTL),
            lambda on: on.renew_lease(lease, T(1), TTL),
            lambda on: on.insert_or_get(new_effect("4")),
            lambda on: on.insert_or_get(new_effect("5")),
            lambda on: take(on, three, Tr.START_ATTEMPT, Tr.SUCCEEDED),
        )
        == [None] * 5
    )
    assert open_on(
        effects,
        lambda on: on.renew_lease(lease, T(2), TTL),
        lambda on: take(on, on.insert_or_get(new_effect("6")).record, Tr.START_ATTEMPT, Tr.SUCCEEDED),
    ) == [None, None]
    # The same effect: one of the two comes too late, and runs again.
    renewed, finished = open_on(
        effects,
        lambda on: on.renew_lease(lease, T(3), TTL),
        lambda on: on.transition(request(started, Tr.SUCCEEDED, 3, lease=lease)),
    )
    assert renewed is None and isinstance(finished, ConflictError)
    check_all(effects)


def test_looking_for_expired_leases_conflicts_with_no_renewal() -> None:
    effects = EffectStore.memory()
    expired, live = (record_effect(effects, key) for key in ("1", "2"))
    for record, at in ((expired, 0.0), (live, 90.0)):
        lease = effects.acquire_lease(record.id, "a", T(at), TTL)
        effects.transition(request(record, Tr.START_ATTEMPT, at, lease=lease))

    def run(on: EffectOperations) -> None:
        record = on.insert_or_get(new_effect("4")).record
        lease = on.acquire_lease(record.id, "b", T(100), TTL)
        for transition in (Tr.START_ATTEMPT, Tr.SUCCEEDED):
            record = on.transition(request(record, transition, 100, lease=lease))
        on.release_lease(lease)

    def mark(on: EffectOperations) -> None:
        (found,) = on.list(ListQuery.expired_leases(T(100)))
        assert found.id == expired.id
        on.transition(request(found, Tr.LEASE_EXPIRED, 100))

    assert (
        open_on(
            effects,
            lambda on: on.renew_lease(lease, T(100), TTL),
            lambda on: on.insert_or_get(new_effect("3")),
            run,
            mark,
        )
        == [None] * 4
    )


def test_pruning_conflicts_with_no_new_effect() -> None:
    effects = EffectStore.memory()
    for number in range(10):
        record_effect(effects, str(number), S.COMMITTED, at=10)
    young = record_effect(effects, "young")
    assert (
        open_on(
            effects,
            lambda on: take(on, on.insert_or_get(new_effect("new")).record, Tr.START_ATTEMPT, Tr.SUCCEEDED, at=99),
            lambda on: take(on, young, Tr.START_ATTEMPT, Tr.SUCCEEDED, at=99),
            lambda on: on.prune(PruneQuery(S.COMMITTED, timedelta(seconds=60), T(100), limit=5)),
        )
        == [None] * 3
    )
    assert len(check_all(effects)) == 7


def test_a_conflict_is_tried_again_until_it_goes_through() -> None:
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record
    lease = effects.acquire_lease(record.id, "a", T(0), TTL)
    runs = 0

    def start(operations: EffectOperations) -> EffectRecord:
        nonlocal runs
        runs += 1
        changed = operations.transition(request(record, Tr.START_ATTEMPT, lease=lease))
        if runs < 20:  # more often than a store tries by itself
            effects.renew_lease(lease, T(1), TTL * runs)
        return changed

    effects.transact(start)
    assert runs == 20
    assert trail_of(effects, record.id) == [Tr.START_ATTEMPT]


def test_conflicts_without_an_end_end_after_the_attempts_that_were_allowed() -> None:
    effects = EffectStore.memory()
    lease = effects.acquire_lease(effects.insert_or_get(new_effect()).record.id, "a", T(0), TTL)
    runs = 0

    def outrun(operations: EffectOperations) -> None:
        nonlocal runs
        runs += 1
        operations.renew_lease(lease, T(1), TTL)
        effects.renew_lease(lease, T(2), TTL * runs)

    with pytest.raises(ConflictError):
        effects.transact(outrun, attempts=3)
    assert runs == 3


# --------------------------------------------------------------------------------------------- when something is wrong


def test_without_its_event_a_transition_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check E86: the write of the event fails, and the record is unchanged too."""
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record

    def fail(*_: object) -> bytes:
        raise OSError("no event today")

    with monkeypatch.context() as patch:
        patch.setattr(type(EVENTS), "row_key", fail)
        with pytest.raises(OSError, match="no event today"):
            effects.transition(request(record, Tr.START_ATTEMPT))
    assert effects.get(record.id) == record
    assert effects.events(record.id) == []
    assert trail_of(effects, take(effects, record, Tr.START_ATTEMPT).id) == [Tr.START_ATTEMPT]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failing_disk_leaves_record_and_event_as_they_were(operation: str) -> None:
    """Check E86: on a disk that fails, the store says so itself, and whoever opens it again finds both or neither."""
    disk = SimulatedDisk()
    effects = EffectStore.open("/store", files=disk)
    record = effects.insert_or_get(new_effect()).record
    disk.inject(failing(operation))
    with pytest.raises(StoreFailedError):
        effects.transition(request(record, Tr.START_ATTEMPT))
    assert effects.get(record.id) == record
    with pytest.raises(StoreFailedError):
        effects.acquire_lease(record.id, "a", T(0), TTL)
    effects.close()
    with EffectStore.open("/store", files=disk) as again:
        ((found, events),) = check_all(again)
        assert (found.version, len(events)) in ((0, 0), (1, 1))


def test_a_key_that_is_recorded_anew_meanwhile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its two reads `get_by_key` loses the record whose id it has found; there is another one by then."""
    effects = EffectStore.memory()
    record_effect(effects, status=S.COMMITTED)
    stored, again = Schema.stored, list[EffectRecord]()

    def outrun(schema: Schema[Any], rows: Any, row_key: bytes) -> Any:
        if not again:
            again.append(record_effect_anew())
        return stored(schema, rows, row_key)

    def record_effect_anew() -> EffectRecord:
        with monkeypatch.context() as patch:
            patch.setattr(Schema, "stored", stored)
            effects.prune(PruneQuery(S.COMMITTED, timedelta(0), T(9)))
            return effects.insert_or_get(new_effect()).record

    monkeypatch.setattr(Schema, "stored", outrun)
    assert effects.get_by_key(effect_key("order_1")) == again[0]


def test_an_id_of_another_effect_is_refused() -> None:
    effects = EffectStore.memory()
    new = new_effect("order_1")
    record = effects.insert_or_get(new).record
    other = type(new)(id=new.id, key=effect_key("order_2"), kind=EffectKind.READ, now=T(0))
    with pytest.raises(KeyExistsError, match="make a new id"):
        effects.insert_or_get(other)
    assert [each for each, _ in check_all(effects)] == [record]


def test_a_record_that_cannot_be_read_stops_nobody_else() -> None:
    """Row 99: it is reported, and the others proceed."""
    effects = EffectStore.memory()
    ids = []
    for number in range(5):
        record = record_effect(effects, str(number))
        lease = effects.acquire_lease(record.id, "a", T(0), TTL)
        ids.append(effects.transition(request(record, Tr.START_ATTEMPT, lease=lease)).id)
    overwrite(effects, ids[2])
    with pytest.raises(DecodeError):
        effects.get(ids[2])
    with pytest.raises(DecodeError):
        effects.get_by_key(effect_key("2"))
    with pytest.raises(DecodeError):
        effects.insert_or_get(new_effect("2"))
    with pytest.raises(DecodeError):
        effects.list(ListQuery.expired_leases(T(100)))
    for query in (
        ListQuery.expired_leases(T(100), limit=4),
        ListQuery.statuses([S.EXECUTING], limit=4),
        ListQuery.statuses(limit=4),
        ListQuery.pending(T(100), limit=4),
    ):
        results = effects.list_results(query)
        assert [record and record.id for record, _ in results] == [*ids[:2], None, *ids[3:]]
        (error,) = [error for _, error in results if error is not None]
        assert "effects" in str(error) and error.family == "effects"
    for id_ in (ids[0], ids[4]):
        found = effects.get(id_)
        assert found is not None
        take(effects, found, Tr.LEASE_EXPIRED, at=100)
    assert [problem.error is not None for problem in effects.check()].count(True) == 1


def test_pruning_goes_round_what_cannot_be_read() -> None:
    effects = EffectStore.memory()
    ids = [record_effect(effects, str(number), S.COMMITTED, at=10).id for number in range(5)]
    overwrite(effects, ids[1])
    assert effects.prune(PruneQuery(S.COMMITTED, timedelta(0), T(10), limit=2)) == 2
    assert effects.prune(PruneQuery(S.COMMITTED, timedelta(0), T(10))) == 2
    assert [error is not None for _, error in effects.list_results(ListQuery.statuses())] == [True]


def test_a_record_or_an_event_in_the_place_of_another_is_refused() -> None:
    effects = EffectStore.memory()
    one, two = record_effect(effects, "1", S.EXECUTING), record_effect(effects, "2", S.EXECUTING)
    family, events = (effects.store.family(name) for name in EffectStore.FAMILIES)
    keys, rows = sorted(key for key in family if key[0] == 0), dict(family)
    family[keys[0]] = rows[keys[1]]
    with pytest.raises(DecodeError, match=f"record of effect {two.id}"):
        effects.get(one.id)
    places, values = list(events), list(events.values())
    events[places[1]] = values[0]
    with pytest.raises(DecodeError, match=f"event 1 of effect {one.id}"):
        effects.events(two.id)
    assert len([problem for problem in effects.check() if problem.error is not None]) == 2


def test_wrong_rows_of_indexes_are_seen_and_made_right() -> None:
    effects = EffectStore.memory()
    records = [record_effect(effects, str(status), status) for status in S]
    family = effects.store.family("effects")
    right = dict(family)
    for key in [key for key in family if key[0] >= 0xF8][::3]:
        del family[key]
    family[b"\xfa\x00\x00\x00\x00\x11" + bytes(17)] = bytes(17)
    effects.list(ListQuery.expired_leases(T(0)))  # passes over what is not there
    count = len(effects.check())
    assert count > 10
    assert effects.rebuild_indexes() == count
    assert dict(family) == right and effects.check() == []
    assert effects.list(ListQuery.statuses()) == records


@pytest.mark.parametrize(
    "call",
    [
        lambda effects, record, lease: effects.get("id"),
        lambda effects, record, lease: effects.get(str(record.id)),
        lambda effects, record, lease: effects.get_by_key("payment.charge:order_1"),
        lambda effects, record, lease: effects.insert_or_get(record),
        lambda effects, record, lease: effects.acquire_lease(record.id, 7, T(0), TTL),
        lambda effects, record, lease: effects.acquire_lease(record.id, "a", T(0), 30),
        lambda effects, record, lease: effects.acquire_lease(record.id, "a", "now", TTL),
        lambda effects, record, lease: effects.renew_lease(record, T(0), TTL),
        lambda effects, record, lease: effects.renew_lease(lease, T(0), None),
        lambda effects, record, lease: effects.release_lease(None),
        lambda effects, record, lease: effects.transition(record),
        lambda effects, record, lease: effects.list([S.PENDING]),
        lambda effects, record, lease: effects.events(record.key),
        lambda effects, record, lease: effects.prune(ListQuery.statuses()),
    ],
    ids=range(14),
)
def test_what_is_not_what_it_must_be_is_refused(call: Callable[..., object]) -> None:
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record
    lease = effects.acquire_lease(record.id, "a", T(0), TTL)
    before = dict(effects.store.family("effects"))
    with pytest.raises(TypeError):
        call(effects, record, lease)
    assert dict(effects.store.family("effects")) == before


def test_a_negative_ttl_and_a_naive_time_are_refused() -> None:
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record
    with pytest.raises(ValueError, match="negative"):
        effects.acquire_lease(record.id, "a", T(0), -TTL)
    with pytest.raises(ValueError, match="time zone"):
        effects.acquire_lease(record.id, "a", T(0).replace(tzinfo=None), TTL)
    assert effects.get(record.id) == record


# ---------------------------------------------------------------------------------------------------- a restored store


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Callable[[EffectStore], EffectStore]]:
    """Makes a backup of a store, and opens what is restored from it."""
    opened: list[EffectStore] = []

    def restore(effects: EffectStore) -> EffectStore:
        path = tmp_path / f"restored {len(opened)}"
        backup.create(effects.store, tmp_path / "backups")
        backup.restore(path, tmp_path / "backups")
        opened.append(EffectStore.open(path, durability="process"))
        return opened[-1]

    yield restore
    for effects in opened:
        effects.close()


def test_a_lease_from_before_a_restore_is_refused(restored: Callable[[EffectStore], EffectStore]) -> None:
    """Row 86: the epoch has gone back, so the old lease looks like the newest one; but it is of another store."""
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record
    other = restored(effects)
    before = effects.acquire_lease(record.id, "a", T(0), TTL)
    after = other.acquire_lease(record.id, "a", T(10), TTL)  # the same worker, and the same epoch
    assert (before.owner, before.epoch) == (after.owner, after.epoch) and before.store_id != after.store_id
    with pytest.raises(LeaseLostError):
        other.transition(request(record, Tr.START_ATTEMPT, 11, lease=before))
    with pytest.raises(LeaseLostError):
        other.renew_lease(before, T(11), TTL)
    other.release_lease(before)
    assert trail_of(other, record.id) == []
    renewed = other.renew_lease(after, T(12), TTL)
    assert other.transition(request(record, Tr.START_ATTEMPT, 13, lease=renewed)).status is S.EXECUTING
    with pytest.raises(LeaseLostError):
        effects.transition(request(record, Tr.START_ATTEMPT, 13, lease=renewed))
    assert effects.transition(request(record, Tr.START_ATTEMPT, 13, lease=before)).status is S.EXECUTING


def test_a_lease_of_one_restore_is_refused_by_the_next(restored: Callable[[EffectStore], EffectStore]) -> None:
    """Row 86: restored twice from one backup, each has leases of the same epochs, and takes its own only."""
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record
    leases = [(each, each.acquire_lease(record.id, "a", T(0), TTL)) for each in (restored(effects), restored(effects))]
    assert leases[0][1].epoch == leases[1][1].epoch == 1
    for number, (each, lease) in enumerate(leases):
        with pytest.raises(LeaseLostError):
            each.renew_lease(leases[1 - number][1], T(1), TTL)
        each.renew_lease(lease, T(1), TTL)


def test_a_lease_that_was_alive_in_the_backup_is_nobodys_and_holds_others_off(
    restored: Callable[[EffectStore], EffectStore],
) -> None:
    """Row 86: its holder may be at work, so nobody else begins before it has expired; and it writes nothing."""
    effects = EffectStore.memory()
    record = effects.insert_or_get(new_effect()).record
    lease = effects.acquire_lease(record.id, "a", T(0), TTL)
    other = restored(effects)
    with pytest.raises(LeaseLostError):
        other.transition(request(record, Tr.START_ATTEMPT, 1, lease=lease))
    with pytest.raises(LeaseLostError):
        other.renew_lease(lease, T(1), TTL)
    other.release_lease(lease)
    for owner in ("a", "b"):
        with pytest.raises(LeaseHeldError):
            other.acquire_lease(record.id, owner, T(29), TTL)
    assert other.acquire_lease(record.id, "a", T(30), TTL).epoch == 2
    with pytest.raises(LeaseLostError):
        other.renew_lease(lease, T(31), TTL)
    assert check_all(other)[0][0].lease_owner == "a"


def test_a_lease_lives_on_when_the_store_is_opened_again(tmp_path: Path) -> None:
    with EffectStore.open(tmp_path / "store") as effects:
        record = effects.insert_or_get(new_effect()).record
        lease = effects.acquire_lease(record.id, "a", T(0), TTL)
    with EffectStore.open(tmp_path / "store") as effects:
        renewed = effects.renew_lease(lease, T(1), TTL)
        assert effects.transition(request(record, Tr.START_ATTEMPT, 2, lease=renewed)).status is S.EXECUTING


# ------------------------------------------------------------------------------------------------------------- prune


def test_a_history_is_pruned_in_batches() -> None:
    """Checks E156 and E157, as far as the store goes: each status by its age, and 1201 old ones by 500, 500 and 201."""
    effects = EffectStore.memory()

    def fill(operations: EffectOperations) -> None:
        for number in range(1201):
            record_effect(operations, str(number), S.COMMITTED, at=0)

    effects.transact(fill)
    day = timedelta(days=1)
    for status in (S.FAILED, S.REJECTED, S.COMPENSATED, S.NEEDS_INTERVENTION):
        record_effect(effects, status, status, at=86_400)
    query = PruneQuery(S.COMMITTED, 30 * day, T(30 * 86_400))
    assert [effects.prune(query) for _ in range(3)] == [500, 500, 201]
    assert effects.prune(PruneQuery(S.FAILED, 7 * day, T(8 * 86_400 - 1))) == 0
    assert effects.prune(PruneQuery(S.FAILED, 7 * day, T(8 * 86_400))) == 1
    left = [record.status for record, _ in check_all(effects)]
    assert left == [S.REJECTED, S.COMPENSATED, S.NEEDS_INTERVENTION]
    assert len(effects.store.family("effect events")) == 1 + 4 + 3
