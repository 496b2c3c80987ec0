"""The invariants over a trail see what they are for: each broken once, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pystate.effects import EffectEvent, EffectId, EffectKind, EffectRecord, EffectStatus, Transition
from tests.effects.samples import History, T
from tests.effects.trails import check_trail

X = Transition


def whole() -> History:
    """Approved, in doubt, retried, committed, undone."""
    history = History()
    history.take(
        X.REQUEST_APPROVAL, X.APPROVE, X.START_ATTEMPT, X.OUTCOME_UNKNOWN, X.SCHEDULE_RETRY, X.START_ATTEMPT,
        X.SUCCEEDED, X.START_COMPENSATION, X.COMPENSATION_SUCCEEDED,
    )  # fmt: skip
    return history


def test_a_whole_trail_holds() -> None:
    history = whole()
    check_trail(history.record, history.events, approval_required=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 8},
        {"status": EffectStatus.COMMITTED},
        {"attempt_count": 1},
        {"updated_at": T(99)},
        {"committed_at": None},
        {"committed_at": T(99)},
        {"approved": False},
        {"compensation_attempts": 2},
        {"may_have_applied": False},
        {"id": EffectId.new()},
    ],
    ids=lambda fields: "=".join(map(str, *fields.items())) if "id" not in fields else "id",
)
def test_a_wrong_record_is_seen(fields: dict[str, Any]) -> None:
    history = whole()
    with pytest.raises(AssertionError):
        check_trail(replace(history.record, **fields), history.events)


def changed_event(number: int, **fields: Any) -> list[EffectEvent]:
    events = whole().events
    return [*events[:number], replace(events[number], **fields), *events[number + 1 :]]


def one_record(events: list[EffectEvent]) -> EffectRecord:
    return replace(whole().record, id=events[0].effect_id)


@pytest.mark.parametrize(
    ("number", "fields"),
    [
        (3, {"sequence": 5}),
        (3, {"from_status": EffectStatus.PENDING}),
        (3, {"to_status": EffectStatus.VERIFYING}),
        (3, {"transition": X.LEASE_EXPIRED, "to_status": EffectStatus.FAILED}),
        (4, {"attempt": 2}),
        (5, {"attempt": 1}),
        (8, {"at": T(99)}),
    ],
)
def test_a_wrong_event_is_seen(number: int, fields: dict[str, Any]) -> None:
    events = changed_event(number, **fields)
    events = [replace(event, effect_id=events[0].effect_id) for event in events]
    with pytest.raises(AssertionError):
        check_trail(one_record(events), events)


def test_a_missing_and_a_second_event_are_seen() -> None:
    history = whole()
    for events in (history.events[:-1], history.events[1:], [*history.events, history.events[-1]]):
        with pytest.raises(AssertionError):
            check_trail(history.record, events)


def test_a_failure_in_doubt_is_seen() -> None:
    history = History(EffectKind.READ)
    history.take(X.START_ATTEMPT, X.OUTCOME_UNKNOWN, X.SCHEDULE_RETRY, X.START_ATTEMPT, X.FAILED_DEFINITIVELY)
    check_trail(history.record, history.events)
    with pytest.raises(AssertionError):
        check_trail(replace(history.record, kind=EffectKind.REVERSIBLE_WRITE), history.events)


def test_a_start_without_its_approval_is_seen() -> None:
    history = History()
    history.take(X.START_ATTEMPT, X.SUCCEEDED)
    check_trail(history.record, history.events)
    with pytest.raises(AssertionError):
        check_trail(history.record, history.events, approval_required=True)
