"""What must hold for a record and its trail, whatever was done to them (invariants 6.2 of the behaviour)."""

from __future__ import annotations

from collections.abc import Sequence

from pystate.effects import EffectEvent, EffectKind, EffectRecord, EffectStatus, Transition

__all__ = ["check_trail"]

_NOT_APPLIED = {Transition.VERIFICATION_NOT_APPLIED, Transition.RESOLVED_NOT_APPLIED}
_COMPENSATIONS = {Transition.START_COMPENSATION, Transition.START_COMPENSATION_RETRY}


def check_trail(record: EffectRecord, events: Sequence[EffectEvent], *, approval_required: bool = False) -> None:
    """Assert all ten invariants.

    Arguments:
        record: as it is now.
        events: its whole trail, in order.
        approval_required: whether nobody might start it without an approval.
    """
    check_sequence(record, events)
    check_statuses(record, events)
    check_attempts(record, events)
    check_commit(record, events)
    check_counters(record, events)
    check_doubt(record, events)
    check_approval(record, events, approval_required)


def check_sequence(record: EffectRecord, events: Sequence[EffectEvent]) -> None:
    """Invariants 1 and 4: sequences without gaps up to the version; updated by the last event."""
    assert all(event.effect_id == record.id for event in events)
    assert [event.sequence for event in events] == list(range(1, record.version + 1))
    if not events:
        assert record.status is EffectStatus.PENDING
        assert record.updated_at == record.created_at
    else:
        assert record.updated_at == events[-1].at


def check_statuses(record: EffectRecord, events: Sequence[EffectEvent]) -> None:
    """Invariant 2: the trail is a walk through the table."""
    status = EffectStatus.PENDING
    for event in events:
        assert event.from_status is status
        assert event.to_status is status.apply(event.transition)
        status = event.to_status
    assert record.status is status


def check_attempts(record: EffectRecord, events: Sequence[EffectEvent]) -> None:
    """Invariant 3: attempts are counted when they start, and only then."""
    attempts = 0
    for event in events:
        attempts += event.transition is Transition.START_ATTEMPT
        assert event.attempt == attempts
    assert record.attempt_count == attempts


def check_commit(record: EffectRecord, events: Sequence[EffectEvent]) -> None:
    """Invariant 5: committed at most once, and the time of it is kept."""
    commits = [event.at for event in events if event.to_status is EffectStatus.COMMITTED]
    assert len(commits) <= 1
    assert record.committed_at == (commits[0] if commits else None)


def check_counters(record: EffectRecord, events: Sequence[EffectEvent]) -> None:
    """Invariants 6 and 7: approved by an approval; compensations counted when they start."""
    assert record.approved == any(event.transition is Transition.APPROVE for event in events)
    assert record.compensation_attempts == sum(event.transition in _COMPENSATIONS for event in events)


def check_doubt(record: EffectRecord, events: Sequence[EffectEvent]) -> None:
    """Invariants 8 and 9: doubt is what the trail says, and nothing fails in doubt but a read."""
    doubt = False
    for event in events:
        if event.transition is Transition.FAILED_DEFINITIVELY:
            assert not doubt or record.kind is EffectKind.READ
        if event.to_status is EffectStatus.UNKNOWN:
            doubt = True
        elif event.transition in _NOT_APPLIED:
            doubt = False
        elif event.transition is Transition.SCHEDULE_RETRY and event.from_status is EffectStatus.VERIFYING:
            doubt = False
    assert record.may_have_applied == doubt


def check_approval(record: EffectRecord, events: Sequence[EffectEvent], required: bool) -> None:
    """Invariant 10: nothing starts before its approval, nothing follows a denial."""
    taken = [event.transition for event in events]
    if required and Transition.START_ATTEMPT in taken:
        assert Transition.APPROVE in taken[: taken.index(Transition.START_ATTEMPT)]
    assert Transition.DENY not in taken[:-1]
