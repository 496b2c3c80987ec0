"""Lookups: when their answers are believed, and what becomes of the effect."""

from __future__ import annotations

from typing import Any

import pytest

from pystate.effects import (
    ABSENT,
    Committed,
    EffectContext,
    EffectFailure,
    EffectStatus,
    ErrorRecord,
    Failed,
    FailureClass,
    NeedsIntervention,
    OutputUnavailableError,
    RetryPolicy,
    Unknown,
    Verification,
    VerificationContract,
)
from pystate.effects.runtime.verification import trusted_after
from tests.effects.runtime.remote import Reply
from tests.effects.runtime.world import World
from tests.effects.samples import T, seconds

EVENTUAL = VerificationContract.eventually_consistent(seconds(10))


def patient(attempts: int) -> RetryPolicy:
    return RetryPolicy(max_attempts=attempts, jitter=False)


def test_a_success_is_looked_up(world: World) -> None:
    """Check E121: AS VS VC; the confirmed value is the output, and VS has stored that of the action."""
    world.remote.lookups = [Verification.confirmed({"payment": "pi_1"})]
    stored = []

    async def look_up(context: EffectContext) -> Verification[Any]:
        stored.append(world.record().output)
        return await world.remote.look_up(context)

    outcome = world.run(world.effect(verify=look_up))
    assert outcome == Committed({"payment": "pi_1"})
    assert world.trail() == "AS VS VC"
    assert stored == ["res_1"]
    assert world.record().output == {"payment": "pi_1"}
    assert world.record().lease_owner is None


def test_a_verified_effect_takes_three_commits(world: World) -> None:
    before = world.store.store.stats().commits
    world.run(world.effect(verify=world.remote.look_up))
    assert world.store.store.stats().commits - before == 3


def test_a_lookup_that_never_finds_it_ends_as_failed(world: World) -> None:
    """Check E122: AS VS RS AS VS verification_not_applied, and nothing is in doubt any more."""
    world.remote.lookups = [Verification.not_applied()] * 5
    outcome = world.run(world.effect(verify=world.remote.look_up, retry=patient(2)))
    assert isinstance(outcome, Failed) and outcome.error.failure_class is None
    assert world.trail() == "AS VS RS AS VS verification_not_applied"
    record = world.record()
    assert (record.version, record.may_have_applied) == (6, False)


def test_not_found_is_believed_when_it_has_had_time_to_settle(world: World) -> None:
    """Check E123: the first reading waits out the rest of 10 s since the end of the attempt, the second is trusted."""
    looked_at = []

    async def look_up(context: EffectContext) -> Verification[Any]:
        looked_at.append(world.seconds)
        return Verification.not_applied() if context.attempt == 1 else Verification.confirmed("res_2")

    world.remote.script = [Reply.DROP]
    assert world.run(world.effect(verify=look_up, verification=EVENTUAL)) == Committed("res_2")
    assert looked_at == [0, 10, 11]
    assert world.trail() == "AS outcome_unknown VS RS AS VS VC"
    assert world.record().may_have_applied is False


def test_a_reading_that_began_too_early_is_not_trusted_though_it_took_long(world: World) -> None:
    looked_at = []

    async def look_up(context: EffectContext) -> Verification[Any]:
        looked_at.append(world.seconds)
        if len(looked_at) == 1:
            await world.clock.sleep(seconds(12))
        return Verification.not_applied()

    world.remote.script = [Reply.DROP]
    world.run(world.effect(verify=look_up, verification=EVENTUAL, retry=patient(1)))
    assert looked_at == [0]
    looked_at.clear()
    world.remote.script = [Reply.DROP]
    world.run(world.effect(verify=look_up, verification=EVENTUAL, retry=patient(2)), "order_2")
    assert looked_at[:2] == [12, 24]  # at once, since the time is over


def test_the_age_of_an_attempt_counts_when_its_verification_begins_later(world: World) -> None:
    """An attempt that ended long ago needs no waiting: its first reading is trusted."""
    world.remote.script = [Reply.DROP]
    effect = world.effect(verify=world.remote.look_up, verification=EVENTUAL, retry=patient(1))
    assert isinstance(world.run(effect), Unknown)
    world.pass_time(10)
    assert isinstance(world.run(effect), Failed)
    assert world.seconds == 10
    assert world.trail() == "AS outcome_unknown VS outcome_unknown VS verification_not_applied"


def test_one_check_does_not_wait(world: World) -> None:
    """Check E124: with a budget of one the outcome stays unknown after one check, without a wait."""
    effect = world.effect(verify=world.remote.look_up, verification=EVENTUAL, retry=patient(1))
    world.remote.lag = seconds(5)
    assert isinstance(world.run(effect), Unknown)
    assert world.trail() == "AS VS outcome_unknown"
    assert (world.seconds, world.remote.looked_up) == (0, 1)
    assert world.record().next_attempt_at == T(10)
    error = world.record().last_error
    assert error is not None and error.failure_class == FailureClass.AMBIGUOUS


def test_an_unknown_outcome_is_looked_up_no_earlier_than_it_says(world: World) -> None:
    effect = world.effect(verify=world.remote.look_up, verification=EVENTUAL, retry=patient(1))
    world.remote.lag = seconds(5)
    world.run(effect)
    assert world.run(effect) == Committed("res_1")
    assert (world.seconds, world.remote.looked_up) == (10, 2)
    assert world.trail() == "AS VS outcome_unknown VS VC"


def test_lookups_that_tell_nothing_leave_the_outcome_unknown(world: World) -> None:
    """Check E125: five checks, waits of 1, 2, 4 and 8 s, unknown; the next call looks again and runs nothing."""
    world.remote.lookups = [Verification.inconclusive("timeout")] * 5
    effect = world.effect(verify=world.remote.look_up)
    outcome = world.run(effect)
    assert outcome == Unknown(world.record().id)
    assert (world.seconds, world.remote.looked_up) == (15, 5)
    assert world.record().last_error == ErrorRecord(failure_class=FailureClass.AMBIGUOUS, message="timeout")
    assert world.record().status is EffectStatus.UNKNOWN and world.record().lease_owner is None
    assert world.run(effect) == Committed("res_1")
    assert len(world.remote.calls) == 1
    assert world.trail() == "AS VS outcome_unknown VS VC"


@pytest.mark.parametrize(
    "problem", [EffectFailure.transient("busy"), EffectFailure.permanent("no"), RuntimeError("crash")], ids=repr
)
def test_a_lookup_that_fails_is_inconclusive(world: World, problem: Exception) -> None:
    """Check E126: whatever a lookup raises; the next one decides."""
    world.remote.lookups = [problem]
    assert world.run(world.effect(verify=world.remote.look_up)) == Committed("res_1")
    assert (world.seconds, world.remote.looked_up) == (1, 2)


def test_a_lookup_that_returns_something_else_is_inconclusive(world: World) -> None:
    async def look_up(context: EffectContext) -> bool:
        return True

    assert isinstance(world.run(world.effect(verify=look_up)), Unknown)
    error = world.record().last_error
    assert error is not None and "returned a bool" in error.message


def test_a_conflict_needs_a_person(world: World) -> None:
    """Check E126: its details are the error, without a class."""
    world.remote.lookups = [Verification.conflict("amount differs")]
    assert isinstance(world.run(world.effect(verify=world.remote.look_up)), NeedsIntervention)
    assert world.record().last_error == ErrorRecord(failure_class=None, message="amount differs")
    assert world.trail() == "AS VS verification_conflict"


def test_an_ambiguous_failure_is_looked_up(world: World) -> None:
    world.remote.script = [Reply.APPLY_AND_DROP]
    assert world.run(world.effect(verify=world.remote.look_up)) == Committed("res_1")
    assert world.trail() == "AS outcome_unknown VS VC"
    assert len(world.remote.calls) == 1


def test_an_ambiguous_failure_that_did_not_apply_is_repeated(world: World) -> None:
    world.remote.script = [Reply.DROP]
    assert world.run(world.effect(verify=world.remote.look_up)) == Committed("res_1")
    assert world.trail() == "AS outcome_unknown VS RS AS VS VC"
    error = world.record().last_error
    assert error is not None and error.failure_class is None


def test_a_definite_failure_in_doubt_is_looked_up(world: World) -> None:
    """The first outcome stays unknown, a person lets it run again, and that attempt is refused for good."""
    from pystate.effects import Transition, TransitionRequest

    world.remote.lookups = [Verification.inconclusive()] * 5
    world.remote.script = [Reply.APPLY_AND_DROP, EffectFailure.permanent("exists")]
    effect = world.effect(verify=world.remote.look_up)
    assert isinstance(world.run(effect), Unknown)
    world.store.transition(
        TransitionRequest.new(world.record(), None, Transition.RESOLVED_RETRY, world.clock.now(), actor="op")
    )
    assert world.run(effect) == Committed("res_1")
    assert world.trail() == "AS outcome_unknown VS outcome_unknown resolved_retry AS outcome_unknown VS VC"


def test_a_confirmed_value_without_a_json_form_is_committed_all_the_same(world: World) -> None:
    value = object()

    async def look_up(context: EffectContext) -> Verification[object]:
        return Verification.confirmed(value)

    async def action(context: EffectContext) -> object:
        return value

    effect = world.effect(action, verify=look_up)
    assert world.run(effect) == Committed(value)
    assert world.record().output is ABSENT
    with pytest.raises(OutputUnavailableError):
        world.run(effect)


def test_how_long_not_found_is_doubted() -> None:
    assert trusted_after(VerificationContract.AUTHORITATIVE) == seconds(0)
    assert trusted_after(EVENTUAL) == seconds(10)
    assert trusted_after(VerificationContract.NONE) is None


def test_an_answer_that_no_constructor_makes_is_inconclusive(world: World) -> None:
    outcome = world.run(world.effect(verify=lambda _: Verification("bogus")))  # type: ignore[arg-type]
    assert isinstance(outcome, Unknown)
    assert "no constructor of Verification" in str(world.record().last_error)
