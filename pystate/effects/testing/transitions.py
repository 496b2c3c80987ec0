"""Cases about transitions: the record and its event are one, and what is refused has never been."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pystate.effects.kinds import EffectKind, ErrorRecord, FailureClass
from pystate.effects.record import EffectRecord
from pystate.effects.requests import EffectEvent
from pystate.effects.state import EffectStatus, Transition
from pystate.effects.testing.trial import Cases, T, Trial, equal, race, refused
from pystate.errors import InvalidTransitionError, LeaseHeldError, LeaseLostError, VersionConflictError

__all__ = ["CASES"]

CASES = Cases()

_S, _T = EffectStatus, Transition


@CASES.add
def a_history_is_kept_whole(trial: Trial) -> None:
    limited = ErrorRecord(failure_class=FailureClass.rate_limited(timedelta(seconds=9)), message="429")
    record = trial.insert()
    trial.take(record, _T.START_ATTEMPT, 1)
    payload = {"delay_ms": 9000}
    trial.take(record, _T.SCHEDULE_RETRY, 2, next_attempt_at=T(11), error=limited, actor="worker:a", payload=payload)
    trial.take(record, _T.START_ATTEMPT, 11)
    trial.take(record, _T.START_VERIFICATION, 12, output={"payment": "pi_1"})
    changed = trial.take(record, _T.VERIFICATION_CONFIRMED, 13)
    equal(changed.status, _S.COMMITTED, "the status")
    equal((changed.committed_at, changed.attempt_count, changed.version), (T(13), 2, 5), "the counters")
    equal(
        (changed.next_attempt_at, changed.last_error, changed.output), (None, limited, {"payment": "pi_1"}), "the rest"
    )
    steps = [(event.sequence, event.from_status, event.to_status, event.attempt) for event in trial.events(record)]
    equal(
        steps,
        [
            (1, _S.PENDING, _S.EXECUTING, 1),
            (2, _S.EXECUTING, _S.PENDING, 1),
            (3, _S.PENDING, _S.EXECUTING, 2),
            (4, _S.EXECUTING, _S.VERIFYING, 2),
            (5, _S.VERIFYING, _S.COMMITTED, 2),
        ],
        "the trail",
    )
    second = trial.events(record)[1]
    equal((second.actor, second.payload, second.at), ("worker:a", payload, T(2)), "the second event")


_LIFE: tuple[tuple[Transition, dict[str, Any]], ...] = (
    (_T.REQUEST_APPROVAL, {"actor": "app"}),
    (_T.APPROVE, {"actor": "operator:ann", "payload": {"note": "fine"}}),
    (_T.START_ATTEMPT, {"payload": None}),
    (_T.OUTCOME_UNKNOWN, {"next_attempt_at": T(50), "error": ErrorRecord(failure_class=None, message="")}),
    (_T.START_VERIFICATION, {"output": None, "output_schema_version": 4}),
    (_T.SCHEDULE_RETRY, {"error": ErrorRecord(failure_class=FailureClass.TRANSIENT, message="é\n")}),
    (_T.START_ATTEMPT, {}),
    (_T.SUCCEEDED, {"output": {"list": [None, 1.5, {"a": []}]}, "output_schema_version": 2}),
    (_T.START_COMPENSATION, {"payload": {"reason": "cancelled"}}),
    (_T.SCHEDULE_COMPENSATION_RETRY, {"next_attempt_at": T(99)}),
    (_T.START_COMPENSATION_RETRY, {}),
    (_T.COMPENSATION_FAILED, {"error": ErrorRecord(failure_class=FailureClass.rate_limited(), message="no")}),
    (_T.RESOLVED_COMPENSATED, {"actor": "operator:bob", "payload": [False, 0, ""]}),
)


@CASES.add
def a_long_life_is_what_the_rules_make_of_it(trial: Trial) -> None:
    record = trial.insert(kind=EffectKind.REVERSIBLE_WRITE, input=[1])
    lease = trial.lease(record, ttl=timedelta(seconds=1000))
    model = trial.stored(record)
    events: list[EffectEvent] = []
    for number, (transition, fields) in enumerate(_LIFE, 1):
        request = trial.request(record, transition, number, lease, **fields)
        model, event = model.apply(request)
        events.append(event)
        equal(trial.store.transition(request), model, f"what {transition} returns")
        equal(trial.stored(record), model, f"the record after {transition}")
        equal(trial.events(record), events, f"the trail after {transition}")


@CASES.add
def trails_are_kept_apart(trial: Trial) -> None:
    one, two = trial.insert("order_1"), trial.insert("order_2")
    for record, actor in ((one, "a"), (two, "b")):
        trial.take(record, _T.START_ATTEMPT, 1, actor=actor)
    trial.take(one, _T.SUCCEEDED, 2, actor="a")
    equal([event.actor for event in trial.events(one)], ["a", "a"], "the actors of the first")
    equal([event.actor for event in trial.events(two)], ["b"], "the actors of the second")
    equal({event.effect_id for event in trial.events(two)}, {two.id}, "the effect of the events of the second")


@CASES.add
def what_is_refused_changes_nothing(trial: Trial) -> None:
    record = trial.insert()
    lease = trial.lease(record)
    trial.take(record, _T.START_ATTEMPT, 1, lease)
    before, events = trial.stored(record), trial.events(record)

    def refuse(kind: type[Exception], transition: Transition, at: float, **fields: Any) -> Exception:
        fields.setdefault("lease", lease)
        request = trial.request(record, transition, at, output={"lost": True}, **fields)
        error = refused(kind, lambda: trial.store.transition(request), f"{transition} at T({at}) with {fields}")
        equal(trial.stored(record), before, f"the record after a refused {transition}")
        equal(trial.events(record), events, f"the trail after a refused {transition}")
        return error

    invalid = refuse(InvalidTransitionError, _T.APPROVE, 2)
    equal((invalid.from_status, invalid.transition), (_S.EXECUTING, _T.APPROVE), "the step")  # type: ignore[attr-defined]
    conflict = refuse(VersionConflictError, _T.SUCCEEDED, 2, expected_version=7)
    equal((conflict.expected, conflict.actual), (7, 1), "the versions")  # type: ignore[attr-defined]
    held = refuse(LeaseHeldError, _T.SUCCEEDED, 2, lease=None)
    equal((held.owner, held.expires_at), ("a", T(30)), "the holder")  # type: ignore[attr-defined]
    refuse(LeaseLostError, _T.SUCCEEDED, 30)


@CASES.add
def the_lease_is_checked_first_then_the_version_then_the_table(trial: Trial) -> None:
    record = trial.insert()
    lease = trial.lease(record)

    def refuse(kind: type[Exception], at: float, **fields: Any) -> None:
        request = trial.request(record, _T.SUCCEEDED, at, **fields)
        refused(kind, lambda: trial.store.transition(request), f"an illegal transition at T({at}) with {fields}")

    refuse(LeaseLostError, 30, lease=lease, expected_version=7)
    refuse(LeaseHeldError, 1, expected_version=7)
    refuse(VersionConflictError, 1, lease=lease, expected_version=7)
    refuse(InvalidTransitionError, 1, lease=lease)
    equal(trial.stored(record).version, 0, "the version")


@CASES.add
def nothing_fails_while_it_may_have_applied(trial: Trial) -> None:
    steps = (_T.START_ATTEMPT, _T.OUTCOME_UNKNOWN, _T.SCHEDULE_RETRY, _T.START_ATTEMPT)
    record = trial.walk(trial.insert(), *steps)
    request = trial.request(record, _T.FAILED_DEFINITIVELY, 2)
    refused(InvalidTransitionError, lambda: trial.store.transition(request), "a failure while it may have applied")
    equal(trial.trail(record), list(steps), "the trail")
    read = trial.walk(trial.insert("order_2", kind=EffectKind.READ), *steps, _T.FAILED_DEFINITIVELY)
    equal((read.status, read.may_have_applied), (_S.FAILED, True), "a read may fail all the same")


@CASES.add
def operators_need_no_lease(trial: Trial) -> None:
    record = trial.insert()
    lease = trial.lease(record)
    trial.take(record, _T.START_ATTEMPT, 1, lease)
    trial.take(record, _T.OUTCOME_UNKNOWN, 2, lease)
    trial.store.release_lease(lease)
    equal(trial.take(record, _T.ESCALATE, 3).status, _S.NEEDS_INTERVENTION, "after an escalation")
    resolved = trial.take(record, _T.RESOLVED_APPLIED, 4, output="ok", actor="op", payload={"note": "seen"})
    equal(
        (resolved.status, resolved.output, resolved.may_have_applied), (_S.COMMITTED, "ok", True), "resolved as applied"
    )


@CASES.add
def of_many_with_one_version_one_gets_through(trial: Trial) -> None:
    record = trial.insert()
    requests = [trial.request(record, _T.START_ATTEMPT, 1, actor=str(number)) for number in range(16)]
    calls: list[Callable[[], EffectRecord]] = [
        lambda request=request: trial.store.transition(request)  # type: ignore[misc]
        for request in requests
    ]
    results = race(calls)
    winners = [result for result in results if isinstance(result, EffectRecord)]
    refusals = [result for result in results if isinstance(result, VersionConflictError)]
    equal((len(winners), len(refusals)), (1, 15), f"how many of 16 get through, and how many conflict ({results})")
    equal(trial.stored(record), winners[0], "the record")
    equal(trial.trail(record), [_T.START_ATTEMPT], "the trail")
