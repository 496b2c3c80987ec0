"""Cases about recording an effect: inserting it once, and getting it back as it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from pystate.effects.contract import ExecutionContract, VerificationContract
from pystate.effects.ids import EffectId
from pystate.effects.kinds import EffectKind
from pystate.effects.payload import ABSENT, AbsentType, JsonValue
from pystate.effects.queries import InsertOutcome, ListQuery
from pystate.effects.record import EffectRecord
from pystate.effects.requests import NewEffect, TransitionRequest
from pystate.effects.state import Transition
from pystate.effects.testing.trial import TTL, Cases, T, Trial, effect_key, equal, expect, race, refused
from pystate.errors import EffectNotFoundError

__all__ = ["CASES"]

CASES = Cases()

_INPUT = {"amount": 4200, "items": [{"sku": "x", "tags": []}, None, True, 1.5, -(2**63), 2**64 - 1], "": {"é\n": ""}}
_CONTRACT = ExecutionContract(
    kind=EffectKind.REVERSIBLE_WRITE,
    remote_idempotency=True,
    verification=VerificationContract.eventually_consistent(timedelta(seconds=10, microseconds=1000)),
    handler_version="7",
    adapter="bank",
    require_approval=True,
    automatic_retry=False,
    max_attempts=3,
)


@CASES.add
def a_new_effect_is_recorded_with_every_field(trial: Trial) -> None:
    new = NewEffect(
        id=EffectId.new(),
        key=effect_key("payment.charge", "order_1"),
        kind=EffectKind.REVERSIBLE_WRITE,
        execution_contract=_CONTRACT,
        input_schema_version=3,
        input=_INPUT,
        input_fingerprint="sha256:00",
        created_by="ann",
        now=T(0),
    )
    record, inserted = trial.store.insert_or_get(new)
    expect(inserted, "the first one to record a key is told that it has inserted it")
    equal(record, EffectRecord.new(new), "the new record")
    equal(trial.store.get(new.id), record, "get")
    equal(trial.store.get_by_key(new.key), record, "get_by_key")
    equal(trial.events(record), [], "the trail of a new effect")


@CASES.add
def a_recorded_key_is_returned_as_it_is(trial: Trial) -> None:
    record = trial.insert(input={"amount": 1})
    for _ in range(2):  # also once it is at work
        again = NewEffect.new(record.key, EffectKind.READ, T(5), input={"amount": 2}, created_by="bob")
        outcome = trial.store.insert_or_get(again)
        equal((outcome.record, outcome.inserted), (record, False), "the second insertion of a key")
        equal(trial.store.get(again.id), None, "the id of an insertion that was none")
        record = trial.walk(record, Transition.START_ATTEMPT) if record.version == 0 else record
    equal(len(trial.store.list(ListQuery.statuses())), 1, "how many records one key has")


@CASES.add
def of_many_at_once_one_inserts_and_all_get_its_record(trial: Trial) -> None:
    key = effect_key("payment.charge", "order_1")
    new = [NewEffect.new(key, EffectKind.READ, T(number)) for number in range(16)]
    results = race([lambda each=each: trial.store.insert_or_get(each) for each in new])  # type: ignore[misc]
    outcomes = [result for result in results if not isinstance(result, Exception)]
    equal(len(outcomes), 16, f"how many of 16 insertions at once succeed ({results})")
    winners = [outcome.record for outcome in outcomes if outcome.inserted]
    equal(len(winners), 1, "how many of 16 insertions at once are told that they have inserted it")
    equal([InsertOutcome(*each).record for each in outcomes], winners * 16, "the records that they get")
    equal(trial.store.list(ListQuery.statuses()), winners, "the records that are there")


@CASES.add
def what_is_not_recorded_is_not_found(trial: Trial) -> None:
    other = trial.insert()
    lease = trial.lease(other)
    stranger = EffectRecord.new(NewEffect.new(effect_key("payment.charge", "order_2"), EffectKind.READ, T(0)))
    _, strange_lease = stranger.acquire_lease("a", T(0), TTL)
    request = TransitionRequest.new(stranger, None, Transition.START_ATTEMPT, T(0))
    equal(trial.store.get(stranger.id), None, "get")
    equal(trial.store.get_by_key(stranger.key), None, "get_by_key")
    calls: dict[str, Callable[[], object]] = {
        "acquire_lease": lambda: trial.store.acquire_lease(stranger.id, "a", T(0), TTL),
        "renew_lease": lambda: trial.store.renew_lease(strange_lease, T(0), TTL),
        "release_lease": lambda: trial.store.release_lease(strange_lease),
        "transition": lambda: trial.store.transition(request),
        "events": lambda: trial.store.events(stranger.id),
    }
    for name, call in calls.items():
        error = refused(EffectNotFoundError, call, f"{name} of an effect that is not recorded")
        equal(error.id, stranger.id, f"the id in the error of {name}")
    trial.store.renew_lease(lease, T(1), TTL)


@CASES.add
def null_and_no_value_are_two_things(trial: Trial) -> None:
    values: list[JsonValue | AbsentType] = [ABSENT, None, {"nested": None}, [], "", 0, False]
    for number, value in enumerate(values):
        record = trial.insert(f"order_{number}", input=value)
        expect(trial.stored(record).input is value or trial.stored(record).input == value, f"input {value!r} is kept")
        expect((trial.stored(record).input is None) == (value is None), f"input {value!r} is not taken for another one")
        record = trial.take(record, Transition.START_ATTEMPT, 1)
        record = trial.take(record, Transition.SUCCEEDED, 2, output=value, payload=value)
        event = trial.events(record)[-1]
        for name, kept in (("output", trial.stored(record).output), ("payload", event.payload)):
            expect(kept is value or kept == value, f"{name} {value!r} is kept, and not {kept!r}")
            expect(type(kept) is type(value), f"{name} {value!r} is not taken for {kept!r}")


@CASES.add
def a_key_is_a_pair(trial: Trial) -> None:
    pairs = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a", "b"),
        ("a", "b "),
        ("A", "b"),
        ("é", "ü"),
        ("e\u0301", "u"),
        ("a\u200b", "b"),
    ]
    records = {}
    for name, key in pairs:
        outcome = trial.store.insert_or_get(NewEffect.new(effect_key(name, key), EffectKind.READ, T(0)))
        expect(outcome.inserted, f"({name!r}, {key!r}) is a key of its own")
        records[name, key] = outcome.record
    for (name, key), record in records.items():
        equal(trial.store.get_by_key(effect_key(name, key)), record, f"the record of ({name!r}, {key!r})")


@CASES.add
def names_and_keys_may_be_as_long_as_they_may(trial: Trial) -> None:
    key = effect_key("é" * 100, "x" * 512)
    record = trial.store.insert_or_get(NewEffect.new(key, EffectKind.READ, T(0))).record
    equal(trial.store.get_by_key(key), record, "the record of the longest key")


@CASES.add
def an_id_may_be_any_uuid(trial: Trial) -> None:
    numbers = [0, 1, 2**120, 2**127, 2**128 - 2**120, 2**128 - 1]
    for number in reversed(numbers):
        new = NewEffect.new(effect_key("any", str(number)), EffectKind.READ, T(0))
        trial.store.insert_or_get(NewEffect(id=EffectId(UUID(int=number)), key=new.key, kind=new.kind, now=new.now))
    equal([each.uuid.int for each in trial.ids(ListQuery.statuses())], numbers, "the ids in order")
    for number in numbers:
        record = trial.store.get(EffectId(UUID(int=number)))
        expect(
            record is not None and record.key.key == str(number), f"the effect with the id {UUID(int=number)} is found"
        )


@CASES.add_reopening
def all_is_there_when_the_store_is_opened_again(trial: Trial) -> None:
    record = trial.insert(input={"amount": 1}, execution_contract=_CONTRACT)
    lease = trial.lease(record)
    trial.take(record, Transition.START_ATTEMPT, 1, lease, actor="a", payload={"worker": "a"})
    other = trial.walk(trial.insert("order_2"), Transition.START_ATTEMPT, Transition.SUCCEEDED)
    before = [(trial.stored(each), trial.events(each)) for each in (record, other)]
    if trial.reopen is not None:
        trial.store = trial.reopen(trial.store)
    equal(
        [(trial.stored(each), trial.events(each)) for each in (record, other)], before, "records and trails, reopened"
    )
    equal(trial.ids(ListQuery.expired_leases(T(30))), [record.id], "the expired leases, reopened")
    trial.store.renew_lease(lease, T(2), TTL)
    trial.take(record, Transition.SUCCEEDED, 3, lease)
    equal(trial.store.insert_or_get(NewEffect.new(record.key, record.kind, T(4))).inserted, False, "the key is taken")
