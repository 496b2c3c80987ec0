"""What each transition checks and changes, in the order of the rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pystate.effects import (
    ABSENT,
    ALL_TRANSITIONS,
    EffectKind,
    EffectRecord,
    EffectStatus,
    FailureClass,
    InvalidTransitionError,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    NewEffect,
    Transition,
    TransitionRequest,
    VersionConflictError,
)
from tests.effects.samples import KEY, TTL, History, T, error, fresh, leased, seconds
from tests.effects.trails import check_trail

S, X = EffectStatus, Transition
PAYMENT = {"payment": "pi_1"}


def request(
    record: EffectRecord, lease: Lease | None, transition: Transition, at: float, **fields: Any
) -> TransitionRequest:
    return TransitionRequest.new(record, lease, transition, T(at), **fields)


def test_a_new_record_is_pending() -> None:
    """The initial values of every field."""
    new = NewEffect.new(KEY, EffectKind.READ, T(5), input={"a": 1}, input_fingerprint="f", created_by="c")
    record = EffectRecord.new(new)
    assert record == EffectRecord(
        id=new.id,
        key=KEY,
        kind=EffectKind.READ,
        execution_contract=None,
        input_schema_version=1,
        output_schema_version=1,
        status=S.PENDING,
        input={"a": 1},
        input_fingerprint="f",
        output=ABSENT,
        last_error=None,
        created_by="c",
        attempt_count=0,
        may_have_applied=False,
        compensation_attempts=0,
        approved=False,
        next_attempt_at=None,
        attempt_started_at=None,
        attempt_ended_at=None,
        lease_owner=None,
        lease_epoch=0,
        lease_expires_at=None,
        version=0,
        committed_at=None,
        created_at=T(5),
        updated_at=T(5),
    )
    check_trail(record, [])


def test_an_illegal_transition_changes_nothing() -> None:
    """Check E42: success from pending, though it brings an output."""
    record, lease = leased()
    earlier = replace(record)
    with pytest.raises(InvalidTransitionError) as caught:
        record.apply(request(record, lease, X.SUCCEEDED, 1, output=PAYMENT))
    assert (caught.value.from_status, caught.value.transition) == (S.PENDING, X.SUCCEEDED)
    assert caught.value.id == record.id
    assert record == earlier


def test_an_attempt_starts() -> None:
    """Check E43: the record and its event."""
    record, lease = leased()
    after, event = record.apply(request(record, lease, X.START_ATTEMPT, 1))
    assert (after.status, after.version, after.attempt_count, after.attempt_started_at) == (S.EXECUTING, 1, 1, T(1))
    assert (event.effect_id, event.sequence, event.transition) == (record.id, 1, X.START_ATTEMPT)
    assert (event.from_status, event.to_status, event.attempt, event.at) == (S.PENDING, S.EXECUTING, 1, T(1))
    assert (event.actor, event.payload) == (None, ABSENT)


def retried() -> tuple[EffectRecord, Lease]:
    record, lease = leased()
    record, _ = record.apply(request(record, lease, X.START_ATTEMPT, 1))
    failed = error("connection refused")
    record, _ = record.apply(request(record, lease, X.SCHEDULE_RETRY, 2, next_attempt_at=T(10), error=failed))
    return record, lease


def test_a_retry_is_scheduled() -> None:
    """Check E44: with its time, the end of the attempt, and the error."""
    record, _ = retried()
    assert (record.status, record.next_attempt_at, record.attempt_ended_at) == (S.PENDING, T(10), T(2))
    assert record.last_error == error("connection refused")
    assert record.version == 2


def test_the_second_attempt_commits() -> None:
    """Check E45: starting it clears the schedule, not the error; success stores the output."""
    record, lease = retried()
    record, lease = record.renew_lease(lease, T(9), TTL)
    record, event = record.apply(request(record, lease, X.START_ATTEMPT, 10))
    assert (record.attempt_count, event.attempt) == (2, 2)
    assert (record.next_attempt_at, record.attempt_ended_at) == (None, None)
    assert record.last_error == error("connection refused")
    record, _ = record.apply(request(record, lease, X.SUCCEEDED, 11, output=PAYMENT))
    assert (record.status, record.committed_at, record.version, record.output) == (S.COMMITTED, T(11), 4, PAYMENT)
    assert record.attempt_ended_at == T(11)


# The order of the checks


def test_a_lost_lease_is_said_first() -> None:
    """Check E46: before a wrong version, and before an illegal transition."""
    record, lease = leased()
    for transition in (X.START_ATTEMPT, X.SUCCEEDED):
        for version in (0, 7):
            with pytest.raises(LeaseLostError):
                record.apply(replace(request(record, lease, transition, 30), expected_version=version))


def test_a_held_lease_is_said_before_the_version() -> None:
    """Check E47: to a request without one, even if the holder made it."""
    record, _ = leased()
    for transition in (X.START_ATTEMPT, X.SUCCEEDED):
        with pytest.raises(LeaseHeldError) as caught:
            record.apply(replace(request(record, None, transition, 1), expected_version=7))
        assert (caught.value.owner, caught.value.expires_at) == ("a", T(30))


def test_the_version_is_said_before_the_transition() -> None:
    """Check E48: with both versions."""
    record, lease = leased()
    with pytest.raises(VersionConflictError) as caught:
        record.apply(replace(request(record, lease, X.SUCCEEDED, 1), expected_version=7))
    assert (caught.value.expected, caught.value.actual, caught.value.id) == (7, 0, record.id)


def test_an_expired_lease_does_not_block_a_request_without_one() -> None:
    """Check E49: though it was not released."""
    record, _ = leased()
    after, _ = record.apply(request(record, None, X.START_ATTEMPT, 30))
    assert after.status is S.EXECUTING
    assert (after.lease_owner, after.lease_epoch, after.lease_expires_at) == ("a", 1, T(30))


def test_a_request_for_another_effect_is_a_mistake() -> None:
    record, other = fresh(), fresh()
    with pytest.raises(ValueError, match="the request is for effect"):
        record.apply(request(other, None, X.START_ATTEMPT, 1))


# Bookkeeping


def test_a_retry_without_a_time_is_due_at_once() -> None:
    """Check E50: now."""
    history = History()
    history.take(X.START_ATTEMPT)
    assert history.take(X.SCHEDULE_RETRY, at=5).next_attempt_at == T(5)


def in_doubt(kind: EffectKind = EffectKind.IRREVERSIBLE_WRITE) -> History:
    """Executing again, after an attempt whose outcome is unknown."""
    history = History(kind)
    history.take(X.START_ATTEMPT, X.OUTCOME_UNKNOWN, X.SCHEDULE_RETRY, X.START_ATTEMPT)
    return history


@pytest.mark.parametrize("kind", [kind for kind in EffectKind if kind is not EffectKind.READ])
def test_doubt_survives_a_retry_and_forbids_to_fail(kind: EffectKind) -> None:
    """Check E51: an earlier attempt may have applied."""
    history = in_doubt(kind)
    record = history.record
    assert record.may_have_applied
    with pytest.raises(InvalidTransitionError, match="an earlier attempt may have applied") as caught:
        history.take(X.FAILED_DEFINITIVELY)
    assert (caught.value.from_status, caught.value.transition) == (S.EXECUTING, X.FAILED_DEFINITIVELY)
    assert history.record is record
    check_trail(record, history.events)


def test_a_verification_that_finds_nothing_ends_the_doubt() -> None:
    """Check E52: then it may fail."""
    history = in_doubt()
    record = history.take(X.START_VERIFICATION, X.SCHEDULE_RETRY, X.START_ATTEMPT)
    assert not record.may_have_applied
    assert history.take(X.FAILED_DEFINITIVELY).status is S.FAILED
    check_trail(history.record, history.events)


def test_a_read_may_fail_in_doubt() -> None:
    """Check E53: it changes nothing out there."""
    history = in_doubt(EffectKind.READ)
    record = history.take(X.FAILED_DEFINITIVELY)
    assert (record.status, record.version, record.may_have_applied) == (S.FAILED, 5, True)
    check_trail(record, history.events)


def test_an_expired_lease_leaves_doubt() -> None:
    """Check E54: and the end of the attempt."""
    record = History().take(X.START_ATTEMPT, X.LEASE_EXPIRED)
    assert (record.status, record.may_have_applied, record.attempt_ended_at) == (S.UNKNOWN, True, T(2))


def test_resolutions_and_doubt() -> None:
    """Check E55: only "not applied" ends it."""
    unknown = History()
    unknown.take(X.START_ATTEMPT, X.OUTCOME_UNKNOWN)
    record = unknown.copy().take(X.RESOLVED_NOT_APPLIED)
    assert (record.status, record.may_have_applied) == (S.FAILED, False)
    record = unknown.copy().take(X.RESOLVED_APPLIED)
    assert (record.status, record.may_have_applied) == (S.COMMITTED, True)
    record = unknown.copy().take(X.RESOLVED_RETRY, at=4)
    assert (record.status, record.next_attempt_at, record.may_have_applied) == (S.PENDING, T(4), True)


def test_verifications_and_doubt() -> None:
    """Check E56: only "not applied" ends it."""
    verifying = History()
    verifying.take(X.START_ATTEMPT, X.OUTCOME_UNKNOWN, X.START_VERIFICATION)
    record = verifying.copy().take(X.VERIFICATION_CONFIRMED)
    assert (record.status, record.may_have_applied) == (S.COMMITTED, True)
    record = verifying.copy().take(X.VERIFICATION_NOT_APPLIED)
    assert (record.status, record.may_have_applied) == (S.FAILED, False)
    record = verifying.copy().take(X.VERIFICATION_CONFLICT)
    assert (record.status, record.may_have_applied) == (S.NEEDS_INTERVENTION, True)


def waiting() -> History:
    history = History()
    history.take(X.START_ATTEMPT)
    history.take(X.OUTCOME_UNKNOWN, next_attempt_at=T(20))
    return history


def test_an_unknown_outcome_keeps_the_later_time() -> None:
    """Check E57: and the stored one if none is given."""
    history = waiting()
    assert history.record.next_attempt_at == T(20)
    history.take(X.START_VERIFICATION)
    assert history.take(X.OUTCOME_UNKNOWN, next_attempt_at=T(10)).next_attempt_at == T(20)
    history.take(X.START_VERIFICATION)
    assert history.take(X.OUTCOME_UNKNOWN).next_attempt_at == T(20)
    history.take(X.START_VERIFICATION)
    assert history.take(X.OUTCOME_UNKNOWN, next_attempt_at=T(50)).next_attempt_at == T(50)


def test_a_scheduled_retry_may_move_the_time_earlier() -> None:
    """Check E58: and an attempt clears it."""
    history = waiting()
    history.take(X.START_VERIFICATION)
    assert history.take(X.SCHEDULE_RETRY, next_attempt_at=T(7)).next_attempt_at == T(7)
    assert history.take(X.START_ATTEMPT).next_attempt_at is None


def unverified() -> History:
    history = History()
    history.take(X.START_ATTEMPT)
    history.take(X.START_VERIFICATION, at=2, output={"v": 1})
    return history


def test_an_output_waits_through_doubt_for_its_resolution() -> None:
    """Check E59: and the end of the attempt stays where it was."""
    history = unverified()
    assert (history.record.output, history.record.attempt_ended_at) == ({"v": 1}, T(2))
    record = history.take(X.OUTCOME_UNKNOWN, at=3)
    assert (record.output, record.attempt_ended_at) == ({"v": 1}, T(2))
    record = history.take(X.RESOLVED_APPLIED)
    assert (record.status, record.output) == (S.COMMITTED, {"v": 1})


def test_the_next_attempt_clears_the_output() -> None:
    """Check E60: but not the version of its schema."""
    history = unverified()
    history.take(X.OUTCOME_UNKNOWN, X.RESOLVED_RETRY)
    history.record = replace(history.record, output_schema_version=4)
    record = history.take(X.START_ATTEMPT)
    assert (record.output, record.output_schema_version) == (ABSENT, 4)


def test_no_output_is_not_a_null_output() -> None:
    """Check E61: and the records differ."""
    executing = History()
    executing.take(X.START_ATTEMPT)
    with_null = executing.copy().take(X.SUCCEEDED, output=None)
    without = executing.copy().take(X.SUCCEEDED)
    assert with_null.output is None
    assert without.output is ABSENT
    assert with_null != without
    assert replace(with_null, output=ABSENT) == without


def test_the_version_of_the_schema_comes_with_the_output() -> None:
    """Check E62: 1 if it does not; and alone it does nothing."""
    executing = History(record=replace(fresh(), output_schema_version=9))
    executing.take(X.START_ATTEMPT)
    assert executing.copy().take(X.SUCCEEDED, output=1, output_schema_version=3).output_schema_version == 3
    assert executing.copy().take(X.SUCCEEDED, output=1).output_schema_version == 1
    assert executing.copy().take(X.SUCCEEDED, output=None).output_schema_version == 1
    assert executing.copy().take(X.SUCCEEDED, output=1, output_schema_version=0).output_schema_version == 0
    assert executing.copy().take(X.SUCCEEDED, output_schema_version=3).output_schema_version == 9


def test_an_approval_is_kept_and_a_denial_is_none() -> None:
    """Check E63: with who decided, in the event."""
    asked = History()
    asked.take(X.REQUEST_APPROVAL)
    approved = asked.copy()
    record = approved.take(X.APPROVE, actor="operator:ann")
    assert (record.status, record.approved, approved.events[-1].actor) == (S.PENDING, True, "operator:ann")
    check_trail(record, approved.events, approval_required=True)
    denied = asked.copy()
    record = denied.take(X.DENY, actor="bob", error=error("no", None))
    assert (record.status, record.approved, record.last_error) == (S.REJECTED, False, error("no", None))
    check_trail(record, denied.events, approval_required=True)


def test_a_compensation_counts_its_attempts_when_they_start() -> None:
    """Check E64: from the commit to the end, with an operator's retry between."""
    history = History()
    history.take(X.START_ATTEMPT, X.SUCCEEDED)
    seen = []
    steps: list[tuple[Transition, dict[str, Any]]] = [
        (X.START_COMPENSATION, {}),
        (X.SCHEDULE_COMPENSATION_RETRY, {"next_attempt_at": T(9)}),
        (X.START_COMPENSATION_RETRY, {}),
        (X.COMPENSATION_FAILED, {}),
        (X.RESOLVED_RETRY, {"at": 20}),
        (X.START_COMPENSATION_RETRY, {}),
        (X.COMPENSATION_SUCCEEDED, {}),
    ]
    for transition, fields in steps:
        record = history.take(transition, **fields)
        seen.append((record.status, record.compensation_attempts, record.next_attempt_at))
    assert seen == [
        (S.COMPENSATING, 1, None),
        (S.COMPENSATING, 1, T(9)),
        (S.COMPENSATING, 2, None),
        (S.COMPENSATION_FAILED, 2, None),
        (S.COMPENSATING, 2, T(20)),
        (S.COMPENSATING, 3, None),
        (S.COMPENSATED, 3, None),
    ]
    assert (history.record.version, history.record.committed_at) == (9, T(2))
    check_trail(history.record, history.events)


#: A way to every status: the transitions before it.
WAYS: dict[EffectStatus, list[Transition]] = {
    S.PENDING: [],
    S.AWAITING_APPROVAL: [X.REQUEST_APPROVAL],
    S.EXECUTING: [X.START_ATTEMPT],
    S.UNKNOWN: [X.START_ATTEMPT, X.OUTCOME_UNKNOWN],
    S.VERIFYING: [X.START_ATTEMPT, X.START_VERIFICATION],
    S.COMMITTED: [X.START_ATTEMPT, X.SUCCEEDED],
    S.FAILED: [X.START_ATTEMPT, X.FAILED_DEFINITIVELY],
    S.REJECTED: [X.PRECONDITION_REJECTED],
    S.NEEDS_INTERVENTION: [X.START_ATTEMPT, X.OUTCOME_UNKNOWN, X.ESCALATE],
    S.COMPENSATING: [X.START_ATTEMPT, X.SUCCEEDED, X.START_COMPENSATION],
    S.COMPENSATED: [X.START_ATTEMPT, X.SUCCEEDED, X.START_COMPENSATION, X.COMPENSATION_SUCCEEDED],
    S.COMPENSATION_FAILED: [X.START_ATTEMPT, X.SUCCEEDED, X.START_COMPENSATION, X.COMPENSATION_FAILED],
}


def changed(before: EffectRecord, after: EffectRecord) -> dict[str, Any]:
    """The fields that differ, as they are after."""
    return {
        name: getattr(after, name)
        for name in EffectRecord.__struct_fields__
        if getattr(before, name) != getattr(after, name)
    }


#: What each transition changes beside status, version and update: everything, and nothing else.
AFTER = 100
CHANGES: dict[Transition, dict[str, Any]] = {
    X.APPROVE: {"approved": True},
    X.START_ATTEMPT: {"attempt_count": 1, "attempt_started_at": T(AFTER)},
    X.SCHEDULE_RETRY: {"next_attempt_at": T(AFTER)},
    X.RESOLVED_RETRY: {"next_attempt_at": T(AFTER)},
    X.SCHEDULE_COMPENSATION_RETRY: {"next_attempt_at": T(AFTER)},
    X.START_COMPENSATION: {"compensation_attempts": 1},
    X.START_COMPENSATION_RETRY: {"compensation_attempts": 2},
}


@pytest.mark.parametrize("status", EffectStatus)
@pytest.mark.parametrize("with_lease", [False, True])
def test_every_legal_transition_changes_exactly_this(status: EffectStatus, with_lease: bool) -> None:
    """Check E65: version by one, `updated_at`, no lease; and nothing that its row does not say."""
    history = History()
    record = history.take(*WAYS[status])
    assert record.status is status
    lease = None
    if with_lease:
        record, lease = record.acquire_lease("a", T(AFTER - 1), seconds(30))
    for transition in ALL_TRANSITIONS:
        if transition not in status.exits:
            with pytest.raises(InvalidTransitionError):
                record.apply(request(record, lease, transition, AFTER))
            continue
        after, event = record.apply(request(record, lease, transition, AFTER))
        expected = {"status": status.exits[transition], "version": record.version + 1, "updated_at": T(AFTER)}
        expected |= CHANGES.get(transition, {})
        if status is S.EXECUTING:
            expected["attempt_ended_at"] = T(AFTER)
        if after.status is S.COMMITTED:
            expected["committed_at"] = T(AFTER)
        if after.status is S.UNKNOWN:
            expected["may_have_applied"] = True
        if transition is X.RESOLVED_NOT_APPLIED:  # the one place where doubt was there and ends
            expected["may_have_applied"] = False
        if after.status is status:
            del expected["status"]
        assert changed(record, after) == expected, transition
        assert (event.sequence, event.attempt, event.at) == (after.version, after.attempt_count, T(AFTER))


def test_the_count_of_attempts_saturates() -> None:
    """Check E66: and so does that of compensations."""
    most = 2**32 - 1
    assert History(record=replace(fresh(), attempt_count=most)).take(X.START_ATTEMPT).attempt_count == most
    compensating = replace(fresh(), status=S.COMPENSATING, compensation_attempts=most)
    assert History(record=compensating).take(X.START_COMPENSATION_RETRY).compensation_attempts == most


def test_an_attempt_may_bring_an_output() -> None:
    """It is cleared, and then stored."""
    record = History(record=replace(fresh(), output={"old": 1})).take(X.START_ATTEMPT, output={"new": 1})
    assert record.output == {"new": 1}


def test_times_may_go_back() -> None:
    """There is no check that the time grows: the caller's clock governs."""
    history = History()
    history.take(X.START_ATTEMPT, at=10)
    record = history.take(X.SUCCEEDED, at=-10)
    assert record.updated_at == record.committed_at == T(-10)
    check_trail(record, history.events)


def test_actor_and_payload_go_into_the_event_alone() -> None:
    history = History()
    payload = {"delay_ms": 9000}
    record = history.take(X.START_ATTEMPT, actor="worker:a", payload=payload)
    event = history.events[-1]
    assert (event.actor, event.payload) == ("worker:a", payload)
    assert changed(fresh(), record).keys() <= {
        "id", "status", "version", "updated_at", "attempt_count", "attempt_started_at",
    }  # fmt: skip
    history.take(X.SUCCEEDED, payload=None)
    assert history.events[-1].payload is None


def test_the_history_of_a_rate_limited_payment() -> None:
    """Check E73, as far as the record goes: what is stored of each step."""
    history = History()
    limited = error("429", FailureClass.rate_limited(seconds(9)))
    history.take(X.START_ATTEMPT, at=1)
    history.take(
        X.SCHEDULE_RETRY, at=2, next_attempt_at=T(11), error=limited, actor="worker:a", payload={"delay_ms": 9000}
    )
    history.take(X.START_ATTEMPT, at=11)
    history.take(X.START_VERIFICATION, at=12, output=PAYMENT)
    record = history.take(X.VERIFICATION_CONFIRMED, at=13)
    assert (record.status, record.committed_at, record.attempt_count, record.version) == (S.COMMITTED, T(13), 2, 5)
    assert (record.next_attempt_at, record.last_error, record.output) == (None, limited, PAYMENT)
    assert [event.attempt for event in history.events] == [1, 1, 2, 2, 2]
    second = history.events[1]
    assert (second.actor, second.payload, second.at) == ("worker:a", {"delay_ms": 9000}, T(2))
    check_trail(record, history.events)
