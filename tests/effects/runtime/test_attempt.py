"""Attempts: what an action comes to, how it is stored, and when it is repeated."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pystate.effects import (
    ABSENT,
    Committed,
    EffectContext,
    EffectFailure,
    EffectKind,
    EffectStatus,
    ErrorRecord,
    Failed,
    FailureClass,
    NeedsIntervention,
    OutputUnavailableError,
    RetryPolicy,
    RiskPolicy,
    Transition,
    TransitionRequest,
)
from tests.effects.runtime.remote import Reply
from tests.effects.runtime.world import World, run_async
from tests.effects.samples import T, seconds


def patient(attempts: int) -> RetryPolicy:
    return RetryPolicy(max_attempts=attempts, jitter=False)


def test_an_action_is_run_once_and_then_replayed(world: World) -> None:
    """Check E108: 42 is committed by AS OK in version 2, and the second call runs nothing."""
    calls = []

    async def action(context: EffectContext) -> int:
        calls.append(context)
        return 42

    effect = world.effect(action)
    assert world.run(effect) == Committed(42)
    record, (started, _) = world.record(), world.events()
    assert world.trail() == "AS OK"
    assert started.payload == {"worker": "a"}
    assert (record.version, record.lease_owner, record.lease_epoch) == (2, None, 1)
    assert (calls[0].id, calls[0].attempt) == (record.id, 1)
    assert calls[0].idempotency_key == record.key.idempotency_key()

    assert world.run(effect, worker="b") == Committed(42)
    assert len(calls) == 1
    assert world.record() == record


def test_a_plain_effect_takes_two_commits(world: World) -> None:
    before = world.store.store.stats().commits
    world.run(world.effect())
    assert world.store.store.stats().commits - before == 2
    world.run(world.effect())
    assert world.store.store.stats().commits - before == 2


def test_a_transient_failure_is_retried(world: World) -> None:
    """Check E109: AS RS AS OK after a second."""
    world.remote.script = [EffectFailure.transient("busy")]
    assert world.run(world.effect()) == Committed("res_1")
    assert world.trail() == "AS RS AS OK"
    assert world.events()[1].payload == {"delay_ms": 1000}
    assert world.seconds == 1
    assert world.record().attempt_count == 2


def test_the_budget_ends(world: World) -> None:
    """Check E110: three attempts, waits of 1 s and 2 s, failed as transient."""
    world.remote.script = [EffectFailure.transient(str(number)) for number in range(9)]
    outcome = world.run(world.effect(retry=patient(3)))
    assert outcome == Failed(ErrorRecord(failure_class=FailureClass.TRANSIENT, message="2"))
    assert world.trail() == "AS RS AS RS AS failed"
    assert world.record().version == 6
    assert [event.payload for event in world.events() if event.transition is Transition.SCHEDULE_RETRY] == [
        {"delay_ms": 1000},
        {"delay_ms": 2000},
    ]
    assert world.seconds == 3


def test_a_remote_that_asks_for_patience_gets_it(world: World) -> None:
    """Check E111: a rate limit of 120 s is waited for."""
    world.remote.script = [EffectFailure.rate_limited(seconds(120), "429")]
    seen = []

    async def spy() -> None:
        task = asyncio.ensure_future(world.runtime().run(world.effect(), "order_1"))
        await world.clock.advance(seconds(5))
        seen.append(world.record())
        await world.clock.drive(task)

    run_async(spy)
    assert seen[0].next_attempt_at == T(120)
    assert world.events()[1].payload == {"delay_ms": 120_000}
    assert world.seconds == 120
    assert world.trail() == "AS RS AS OK"


def test_the_jitter_is_sampled(world: World) -> None:
    world.remote.script = [EffectFailure.transient("busy")]
    world.run(world.effect(), retry=RetryPolicy(), sample=lambda: 0.5)
    assert world.seconds == 0.75


def test_a_wait_beyond_the_end_of_time_is_cut_off(world: World) -> None:
    world.remote.script = [EffectFailure.rate_limited(timedelta.max, "never")]

    async def main() -> None:
        task = asyncio.ensure_future(world.runtime().run(world.effect(), "order_1"))
        await world.clock.advance(seconds(1))
        assert world.record().next_attempt_at is not None
        task.cancel()

    run_async(main)


def test_a_permanent_failure_is_final(world: World) -> None:
    """Check E112: AS failed; a later call reports it and runs nothing."""
    world.remote.script = [EffectFailure.permanent("no such account")]
    failed = Failed(ErrorRecord(failure_class=FailureClass.PERMANENT, message="no such account"))
    assert world.run(world.effect()) == failed
    assert (world.trail(), world.record().version) == ("AS failed", 2)
    assert world.run(world.effect()) == failed
    assert len(world.remote.calls) == 1


def test_an_ambiguous_failure_without_protection_needs_a_person(world: World) -> None:
    """Check E113: AS outcome_unknown ES, and never run again."""
    world.remote.script = [Reply.APPLY_AND_DROP]
    assert isinstance(world.run(world.effect()), NeedsIntervention)
    assert (world.trail(), world.record().version) == ("AS outcome_unknown ES", 3)
    assert isinstance(world.run(world.effect()), NeedsIntervention)
    assert len(world.remote.calls) == 1


def test_a_remote_that_knows_the_key_is_asked_again(world: World) -> None:
    """Check E114: created once, though asked twice with the same key."""
    world.remote.honours_keys = True
    world.remote.script = [Reply.APPLY_AND_DROP]
    assert world.run(world.effect(remote_idempotency=True)) == Committed("res_1")
    assert world.trail() == "AS outcome_unknown RS AS OK"
    assert len(world.remote.created) == 1
    assert len(world.remote.calls) == 2 and len(set(world.remote.calls)) == 1


def test_a_definite_failure_does_not_settle_an_earlier_doubt(world: World) -> None:
    """Check E115: ambiguous, then permanent: an earlier attempt may have applied, so a person must decide."""
    world.remote.script = [Reply.APPLY_AND_DROP, EffectFailure.permanent("exists")]
    assert isinstance(world.run(world.effect(remote_idempotency=True)), NeedsIntervention)
    assert (world.trail(), world.record().version) == ("AS outcome_unknown RS AS outcome_unknown ES", 6)
    assert world.events()[4].payload == {"earlier_attempt_may_have_applied": True}


def test_a_read_may_fail_in_doubt(world: World) -> None:
    """Check E116: a read changes nothing, so it fails."""
    world.remote.script = [Reply.DROP, EffectFailure.permanent("gone")]
    assert isinstance(world.run(world.effect(kind=EffectKind.READ, remote_idempotency=True)), Failed)
    assert world.trail() == "AS outcome_unknown RS AS failed"


def test_a_repetition_needs_a_budget_too(world: World) -> None:
    """Check E117: one attempt only, so an ambiguous failure needs a person even where repeating does no harm."""
    world.remote.script = [Reply.APPLY_AND_DROP]
    assert isinstance(world.run(world.effect(remote_idempotency=True, retry=patient(1))), NeedsIntervention)
    assert world.trail() == "AS outcome_unknown ES"


def test_a_transient_failure_in_doubt_is_retried_within_the_budget(world: World) -> None:
    world.remote.script = [Reply.APPLY_AND_DROP, EffectFailure.transient("busy")]
    world.remote.honours_keys = True
    world.remote.created.clear()
    world.remote.script = [Reply.DROP, EffectFailure.transient("busy")]
    assert world.run(world.effect(remote_idempotency=True)) == Committed("res_1")
    assert world.trail() == "AS outcome_unknown RS AS RS AS OK"


def test_a_rate_limit_in_doubt_is_remembered(world: World) -> None:
    """The wait that the remote asked for is stored with the outcome that is unknown."""
    limit = EffectFailure.rate_limited(seconds(60), "429")
    world.remote.script = [Reply.DROP, limit]
    world.run(world.effect(remote_idempotency=True, retry=patient(2)))
    assert world.trail() == "AS outcome_unknown RS AS outcome_unknown ES"
    assert world.record().next_attempt_at == T(1 + 60)


def test_a_hanging_action_is_given_up(world: World) -> None:
    """Check E118: at 20 s it is cancelled, and its outcome is unknown."""
    cancelled_at = []

    async def action(context: EffectContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled_at.append(world.seconds)
            raise

    async def main() -> None:
        effect = world.effect(action, attempt_timeout=seconds(20))
        outcome = await world.clock.drive(world.runtime().run(effect, "order_1"))
        assert isinstance(outcome, NeedsIntervention)
        await asyncio.sleep(0)
        assert cancelled_at == [20] and world.seconds == 20

    run_async(main)
    record = world.record()
    assert record.attempt_ended_at == T(20)
    assert record.last_error is not None and record.last_error.failure_class == FailureClass.AMBIGUOUS
    assert "0:00:20" in record.last_error.message
    assert world.trail() == "AS outcome_unknown ES"


@pytest.mark.parametrize("error", [KeyError("boom"), RuntimeError(), asyncio.CancelledError()], ids=repr)
def test_an_ordinary_exception_is_ambiguous(world: World, error: BaseException) -> None:
    """Check E119: nobody knows whether the request went out; nothing is swallowed."""

    async def action(context: EffectContext) -> None:
        raise error

    assert isinstance(world.run(world.effect(action)), NeedsIntervention)
    record = world.record()
    assert record.last_error is not None and record.last_error.failure_class == FailureClass.AMBIGUOUS
    named = "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
    assert named in record.last_error.message


def test_an_exception_that_cannot_be_printed_is_ambiguous_as_well(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    async def action(context: EffectContext) -> None:
        raise Mute

    assert isinstance(world.run(world.effect(action)), NeedsIntervention)
    assert "raised Mute" in caplog.text
    error = world.record().last_error
    assert error is not None and "cannot be printed" in error.message


def test_an_ambiguous_failure_of_a_request_that_was_not_sent_is_transient(world: World) -> None:
    world.remote.script = [EffectFailure.ambiguous("refused", request_sent=False)]
    assert world.run(world.effect()) == Committed("res_1")
    assert world.trail() == "AS RS AS OK"


def test_an_output_without_a_json_form_does_not_undo_the_effect(world: World) -> None:
    """Check E120: committed without an output; the caller has the value, a later one is told that it is gone."""
    value = object()

    async def action(context: EffectContext) -> object:
        return value

    effect = world.effect(action)
    assert world.run(effect) == Committed(value)
    record = world.record()
    assert (record.status, record.output) == (EffectStatus.COMMITTED, ABSENT)
    payload: Any = world.events()[1].payload
    assert "object" in payload["output_not_stored"]
    with pytest.raises(OutputUnavailableError) as raised:
        world.run(effect)
    assert raised.value.id == record.id


def test_an_output_that_the_store_refuses_does_not_put_the_effect_in_doubt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pystate.effects import EffectOperations

    genuine = EffectOperations.transition

    def transition(self: EffectOperations, request: TransitionRequest) -> Any:
        if request.output is not ABSENT:
            raise ValueError("value: too long")
        return genuine(self, request)

    monkeypatch.setattr(EffectOperations, "transition", transition)
    assert world.run(world.effect()) == Committed("res_1")
    assert world.trail() == "AS OK"
    assert world.events()[1].payload == {"output_not_stored": "value: too long"}


def test_an_output_null_is_an_output(world: World) -> None:
    async def action(context: EffectContext) -> None:
        return None

    effect = world.effect(action)
    assert world.run(effect) == Committed(None)
    assert world.run(effect) == Committed(None)
    assert world.record().output is None


def test_without_automatic_retry_a_failure_is_final(world: World) -> None:
    """Check E139: one attempt and failed; an ambiguous one needs a person; what an operator lets run, runs."""
    policy = RiskPolicy().no_automatic_retry()
    world.remote.script = [EffectFailure.transient("busy")]
    assert isinstance(world.run(world.effect(), risk_policy=policy), Failed)
    assert world.trail() == "AS failed"

    world.remote.script = [Reply.APPLY_AND_DROP]
    effect = world.effect(remote_idempotency=True)
    assert isinstance(world.run(effect, "order_2", risk_policy=policy), NeedsIntervention)
    request = TransitionRequest.new(world.record("order_2"), None, Transition.RESOLVED_RETRY, world.clock.now())
    world.store.transition(request)
    assert world.run(effect, "order_2", risk_policy=policy) == Committed("res_2")
    assert world.trail("order_2") == "AS outcome_unknown ES resolved_retry AS OK"


def test_an_operators_retry_runs_though_the_budget_is_spent(world: World) -> None:
    world.remote.script = [Reply.DROP]
    effect = world.effect(retry=RetryPolicy.NONE)
    world.run(effect)
    world.store.transition(
        TransitionRequest.new(world.record(), None, Transition.RESOLVED_RETRY, world.clock.now(), actor="op")
    )
    assert world.run(effect) == Committed("res_1")
    assert world.record().attempt_count == 2


def test_the_actor_stands_in_record_and_trail(world: World) -> None:
    world.remote.script = [EffectFailure.transient("busy")]
    world.run(world.effect(), actor="ann")
    assert world.record().created_by == "ann"
    assert {event.actor for event in world.events()} == {"ann"}
