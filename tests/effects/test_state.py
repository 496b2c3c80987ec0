"""The table of transitions, against a second copy of it, and what must follow from it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.effects.state import ALL_STATUSES, ALL_TRANSITIONS, TABLE, EffectStatus, Transition
from pystate.errors import EffectStoreError, InvalidTransitionError

#: Every legal step, as the behaviour has it: number, audit name, JSON name, from, to. Written down apart from the code.
LEGAL = """
1 effect.approval_requested request_approval pending awaiting_approval
2 effect.approved approve awaiting_approval pending
3 effect.denied deny awaiting_approval rejected
4 effect.precondition_rejected precondition_rejected pending rejected
5 effect.attempt_started start_attempt pending executing
6 effect.succeeded succeeded executing committed
7 effect.failed failed_definitively executing failed
8 effect.retry_scheduled schedule_retry executing,verifying,unknown pending
9 effect.outcome_unknown outcome_unknown executing,verifying unknown
10 effect.lease_expired lease_expired executing,verifying unknown
11 effect.verification_started start_verification executing,unknown verifying
12 effect.verification_confirmed verification_confirmed verifying committed
13 effect.verification_not_applied verification_not_applied verifying failed
14 effect.verification_conflict verification_conflict verifying needs_intervention
15 effect.escalated escalate unknown needs_intervention
16 effect.resolved_applied resolved_applied unknown,needs_intervention committed
17 effect.resolved_not_applied resolved_not_applied unknown,needs_intervention failed
18 effect.resolved_retry resolved_retry unknown,needs_intervention pending
18 effect.resolved_retry resolved_retry compensation_failed compensating
19 effect.compensation_started start_compensation committed compensating
20 effect.compensation_retry_scheduled schedule_compensation_retry compensating compensating
21 effect.compensation_retry_started start_compensation_retry compensating compensating
22 effect.compensated compensation_succeeded compensating compensated
23 effect.compensation_failed compensation_failed compensating compensation_failed
24 effect.resolved_compensated resolved_compensated compensation_failed compensated
"""
ROWS = [line.split() for line in LEGAL.strip().splitlines()]
STEPS = {(source, name): target for _, _, name, sources, target in ROWS for source in sources.split(",")}
PAIRS = [(status, transition) for status in ALL_STATUSES for transition in ALL_TRANSITIONS]
S, T = EffectStatus, Transition


def target(status: EffectStatus, transition: Transition) -> EffectStatus | None:
    try:
        return status.apply(transition)
    except InvalidTransitionError:
        return None


LEADS = {pair: to for pair in PAIRS if (to := target(*pair)) is not None}


def sources_of(status: EffectStatus) -> set[tuple[EffectStatus, Transition]]:
    """The pairs that lead to a status."""
    return {pair for pair, to in LEADS.items() if to is status}


def test_exactly_the_33_pairs_of_the_table_are_legal() -> None:
    """Check E18: all 288 pairs, against the copy above."""
    assert (len(ALL_STATUSES), len(ALL_TRANSITIONS), len(PAIRS), len(STEPS)) == (12, 24, 288, 33)
    assert {(str(status), str(transition)): str(to) for (status, transition), to in LEADS.items()} == STEPS


@pytest.mark.parametrize(("status", "transition"), [pair for pair in PAIRS if pair not in LEADS])
def test_every_other_pair_is_refused_and_named(status: EffectStatus, transition: Transition) -> None:
    """Check E18: the error carries the status and the transition."""
    with pytest.raises(InvalidTransitionError, match=f"{status} cannot take the transition {transition}") as caught:
        status.apply(transition)
    assert caught.value.from_status is status and caught.value.transition is transition
    assert {EffectStoreError, ValueError} < set(type(caught.value).__mro__)


def test_terminal_statuses_have_no_exit() -> None:
    """Check E19: exactly three."""
    terminal = [S.FAILED, S.REJECTED, S.COMPENSATED]
    assert [status for status in ALL_STATUSES if status.is_terminal] == terminal
    assert [status for status in ALL_STATUSES if not any(pair[0] is status for pair in LEADS)] == terminal


def test_settled_and_in_doubt() -> None:
    """Check E20: four of each."""
    assert [status for status in ALL_STATUSES if status.is_settled] == [
        S.COMMITTED, S.FAILED, S.REJECTED, S.COMPENSATED,
    ]  # fmt: skip
    assert [status for status in ALL_STATUSES if status.is_in_doubt] == [
        S.EXECUTING, S.UNKNOWN, S.VERIFYING, S.NEEDS_INTERVENTION,
    ]  # fmt: skip


def test_committed_has_one_exit() -> None:
    """Check E21: a compensation."""
    assert dict(S.COMMITTED.exits) == {T.START_COMPENSATION: S.COMPENSATING}


def reachable(start: EffectStatus) -> set[EffectStatus]:
    found, found_new = {start}, [start]
    while found_new:
        new = set(found_new.pop().exits.values()) - found
        found |= new
        found_new += new
    return found


def test_every_status_is_reached_and_every_one_has_an_end() -> None:
    """Check E22: all twelve from pending, and a terminal one from each."""
    assert reachable(S.PENDING) == set(ALL_STATUSES)
    assert all(any(status.is_terminal for status in reachable(start)) for start in ALL_STATUSES)


def test_only_one_step_begins_to_execute() -> None:
    """Check E23: an attempt started from pending."""
    assert sources_of(S.EXECUTING) == {(S.PENDING, T.START_ATTEMPT)}


def test_from_doubt_only_a_decision_starts_over() -> None:
    """Check E24: a retry, scheduled or ordered."""
    assert {pair[1] for pair in sources_of(S.PENDING) if pair[0].is_in_doubt} == {T.SCHEDULE_RETRY, T.RESOLVED_RETRY}


def test_the_other_properties_of_the_table() -> None:
    """What enters committed, compensating and compensated, and where an expired lease leads."""
    assert {pair[1] for pair in sources_of(S.COMMITTED)} == {
        T.SUCCEEDED, T.VERIFICATION_CONFIRMED, T.RESOLVED_APPLIED,
    }  # fmt: skip
    assert {to for pair, to in LEADS.items() if pair[1] is T.LEASE_EXPIRED} == {S.UNKNOWN}
    assert {pair for pair in sources_of(S.COMPENSATING) if pair[0] is not S.COMPENSATING} == {
        (S.COMMITTED, T.START_COMPENSATION), (S.COMPENSATION_FAILED, T.RESOLVED_RETRY),
    }  # fmt: skip
    assert {pair[1] for pair in sources_of(S.COMPENSATED)} == {T.COMPENSATION_SUCCEEDED, T.RESOLVED_COMPENSATED}
    exits = {status: len(status.exits) for status in ALL_STATUSES}
    assert list(exits.values()) == [3, 2, 6, 6, 6, 1, 0, 0, 3, 4, 0, 2]


def test_names_are_unique_and_parse_back() -> None:
    """Check E25: statuses, JSON names and audit names."""
    assert {str(number + 1): rule.transition for number, rule in enumerate(TABLE)} == {
        row[0]: Transition(row[2]) for row in ROWS
    }
    assert [transition.audit_name for transition in ALL_TRANSITIONS] == list(dict.fromkeys(row[1] for row in ROWS))
    assert [str(transition) for transition in ALL_TRANSITIONS] == list(dict.fromkeys(row[2] for row in ROWS))
    assert len({transition.audit_name for transition in ALL_TRANSITIONS}) == len(set(ALL_TRANSITIONS)) == 24
    for transition in ALL_TRANSITIONS:
        assert Transition.parse(str(transition)) is transition
        assert Transition.parse_audit_name(transition.audit_name) is transition
    assert all(EffectStatus.parse(str(status)) is status for status in ALL_STATUSES)
    assert Transition.parse_audit_name("effect.attempt_started") is T.START_ATTEMPT
    assert Transition.parse_audit_name("start_attempt") is None
    assert Transition.parse("effect.attempt_started") is None
    assert EffectStatus.parse("done") is None and EffectStatus.parse("") is None


@given(st.lists(st.sampled_from(ALL_TRANSITIONS), min_size=64, max_size=64))
def test_random_walks_never_leave_an_end(transitions: list[Transition]) -> None:
    """Check E26: nothing leaves a terminal status, and nothing goes from committed to executing."""
    walk = [S.PENDING]
    for transition in transitions:
        to = target(walk[-1], transition)
        if to is not None:
            walk.append(to)
    for before, after in pairwise(walk):
        assert before not in (S.FAILED, S.REJECTED, S.COMPENSATED)
        assert (before, after) != (S.COMMITTED, S.EXECUTING)


def test_the_exits_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        S.FAILED.exits[T.START_ATTEMPT] = S.EXECUTING  # type: ignore[index]
