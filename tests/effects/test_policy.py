"""What risk demands, and what is done in doubt."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.effects import (
    EffectKind,
    ExecutionContract,
    Requirements,
    RiskLevel,
    RiskPolicy,
    RiskRule,
    UnknownPlan,
    VerificationContract,
)
from tests.effects.samples import seconds
from tests.effects.values import kinds

WRITE = EffectKind.IRREVERSIBLE_WRITE
levels = st.sampled_from(RiskLevel)
requirements = st.builds(
    Requirements, approval=st.booleans(), verification=st.booleans(), no_automatic_retry=st.booleans()
)
rules = st.builds(RiskRule, risk=st.none() | levels, kind=st.none() | kinds, requirements=requirements)


def test_levels_are_ordered_and_have_texts() -> None:
    assert RiskLevel.LOW < RiskLevel.MEDIUM < RiskLevel.HIGH < RiskLevel.CRITICAL
    assert [f"{level}" for level in RiskLevel] == ["low", "medium", "high", "critical"]
    assert all(RiskLevel.parse(str(level)) is level for level in RiskLevel)
    assert RiskLevel.parse("HIGH") is None


def test_without_rules_nothing_is_required() -> None:
    assert RiskPolicy().requirements(RiskLevel.CRITICAL, WRITE) == Requirements()


def test_a_rule_selects_by_risk_kind_both_or_neither() -> None:
    policy = (
        RiskPolicy()
        .rule(risk=RiskLevel.HIGH)
        .require_verification()
        .rule(kind=EffectKind.READ)
        .no_automatic_retry()
        .rule(risk=RiskLevel.CRITICAL, kind=WRITE)
        .require_approval()
    )
    assert policy.requirements(RiskLevel.HIGH, WRITE) == Requirements(verification=True)
    assert policy.requirements(RiskLevel.HIGH, EffectKind.READ) == Requirements(
        verification=True, no_automatic_retry=True
    )
    assert policy.requirements(RiskLevel.CRITICAL, WRITE) == Requirements(approval=True)
    assert policy.requirements(RiskLevel.CRITICAL, EffectKind.READ) == Requirements(no_automatic_retry=True)
    assert policy.requirements(RiskLevel.LOW, WRITE) == Requirements()


def test_what_is_required_before_a_rule_is_required_of_all() -> None:
    policy = RiskPolicy().require_approval().require_verification()
    for level in RiskLevel:
        for kind in EffectKind:
            assert policy.requirements(level, kind) == Requirements(approval=True, verification=True)
    more = policy.rule(risk=RiskLevel.HIGH).no_automatic_retry()
    assert more.requirements(RiskLevel.LOW, WRITE) == Requirements(approval=True, verification=True)
    assert policy.requirements(RiskLevel.HIGH, WRITE).no_automatic_retry is False  # the first one is as it was


@given(st.lists(rules, max_size=4), levels, kinds)
def test_the_order_of_rules_does_not_matter(some: list[RiskRule], level: RiskLevel, kind: EffectKind) -> None:
    """Check E140: the same union in any order; and an empty rule loosens nothing."""
    expected = RiskPolicy(tuple(some)).requirements(level, kind)
    for order in permutations(some):
        assert RiskPolicy(order).requirements(level, kind) == expected
    policy = RiskPolicy(tuple(some))
    assert policy.rule().auto_execute().requirements(level, kind) == expected
    assert policy.rule(risk=level).requirements(level, kind) == expected
    assert policy.auto_execute().requirements(level, kind) == expected


@given(st.lists(rules, max_size=4), rules, levels, kinds)
def test_no_rule_loosens_another(some: list[RiskRule], more: RiskRule, level: RiskLevel, kind: EffectKind) -> None:
    """Check E140: what was required stays so."""
    before = RiskPolicy(tuple(some)).requirements(level, kind)
    after = RiskPolicy((*some, more)).requirements(level, kind)
    assert after == before | after
    if more.matches(level, kind):
        assert after == before | more.requirements
    else:
        assert after == before


def test_wrong_rules_are_refused() -> None:
    several: list[dict[str, Any]] = [{"risk": "high"}, {"kind": "read"}, {"requirements": {}}]
    for wrong in several:
        with pytest.raises(TypeError, match=next(iter(wrong))):
            RiskRule(**wrong)
    with pytest.raises(TypeError):
        RiskPolicy().rule(risk="high")  # type: ignore[arg-type]


VERIFIED = [VerificationContract.AUTHORITATIVE, VerificationContract.eventually_consistent(seconds(10))]


@pytest.mark.parametrize("kind", EffectKind)
@pytest.mark.parametrize("remote_idempotency", [False, True])
@pytest.mark.parametrize("verification", [VerificationContract.NONE, *VERIFIED], ids=lambda value: str(value.mode))
def test_what_is_done_about_an_unknown_outcome(
    kind: EffectKind, remote_idempotency: bool, verification: VerificationContract
) -> None:
    """Looking beats repeating, and repeating what does harm is left to a person."""
    contract = ExecutionContract(
        kind=kind, remote_idempotency=remote_idempotency, verification=verification, max_attempts=5
    )
    if verification in VERIFIED:
        expected = UnknownPlan.VERIFY
    elif remote_idempotency or kind in (EffectKind.READ, EffectKind.IDEMPOTENT_WRITE):
        expected = UnknownPlan.REEXECUTE
    else:
        expected = UnknownPlan.ESCALATE
    assert UnknownPlan.of(contract) is expected
