"""The one place that every transition passes: what is masked there, and who hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from pystate.effects import (
    ABSENT,
    Committed,
    EffectContext,
    EffectFailure,
    EffectInputError,
    EffectRecord,
    EffectStatus,
    ErrorRecord,
    FailureClass,
    Observation,
    Observer,
    RedactedField,
    RedactKeys,
    Secret,
    Transition,
)
from tests.effects.runtime.remote import Reply
from tests.effects.runtime.world import World, short_names
from tests.effects.samples import seconds


class Witness(Observer):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.created: list[EffectRecord] = []
        self.observed: list[Observation] = []

    def on_created(self, record: EffectRecord) -> None:
        self.created.append(record)

    def on_transition(self, observation: Observation) -> None:
        self.observed.append(observation)


class Raising(Observer):
    def on_created(self, record: EffectRecord) -> None:
        raise RuntimeError("observer")

    def on_transition(self, observation: Observation) -> None:
        raise RuntimeError("observer")


def test_observers_hear_everything_in_order(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Check E162: the first one raises and the effect commits; the second sees it all; a replay adds nothing."""
    witness = Witness()
    world.remote.script = [EffectFailure.transient("busy")]
    assert world.run(world.effect(), observers=[Raising(), witness]) == Committed("res_1")
    [created] = witness.created
    assert (created.status, created.version, created.lease_owner) == (EffectStatus.PENDING, 0, None)
    heard = [(seen.transition, seen.from_status, seen.to_status, seen.actor, seen.payload) for seen in witness.observed]
    assert heard == [
        (event.transition, event.from_status, event.to_status, event.actor, event.payload) for event in world.events()
    ]
    assert [seen.record.version for seen in witness.observed] == [1, 2, 3, 4]
    assert caplog.text.count("observer") >= 5

    world.run(world.effect(), observers=[Raising(), witness])
    assert len(witness.created) == 1 and len(witness.observed) == 4


def test_observers_hear_how_long_it_took(world: World) -> None:
    witness = Witness()
    world.remote.script = [EffectFailure.transient("busy")]

    async def action(context: EffectContext) -> str:
        await world.clock.sleep(seconds(3))
        return await world.remote.create(context)

    world.run(world.effect(action), observers=[witness])
    assert [seen.in_previous_status for seen in witness.observed] == [seconds(0), seconds(3), seconds(1), seconds(3)]
    assert [seen.since_created for seen in witness.observed] == [seconds(0), seconds(3), seconds(4), seconds(7)]


def test_a_clock_that_goes_back_makes_no_negative_durations(world: World) -> None:
    witness = Witness()

    async def action(context: EffectContext) -> str:
        world.clock.jump(seconds(-5))
        return "done"

    world.run(world.effect(action), observers=[witness])
    assert {seen.in_previous_status for seen in witness.observed} == {seconds(0)}
    assert {seen.since_created for seen in witness.observed} == {seconds(0)}


def test_named_keys_are_masked_everywhere(world: World) -> None:
    """Check E160: in inputs and outputs, at any depth, whatever the case of the letters."""

    async def action(context: EffectContext) -> Any:
        return {"CARD_NUMBER": "4242", "amount": 1}

    effect = world.effect(action)
    given = {"Card_Number": "4242", "l": [{"card_number": "1"}]}
    redactor = RedactKeys(["card_number"])
    assert world.run(effect, "order_1", given, redactor=redactor) == Committed({"CARD_NUMBER": "4242", "amount": 1})
    assert world.record().input == {"Card_Number": "[REDACTED]", "l": [{"card_number": "[REDACTED]"}]}
    assert world.run(effect, "order_1", given, redactor=redactor) == Committed(
        {"CARD_NUMBER": "[REDACTED]", "amount": 1}
    )
    other = {"Card_Number": "1111", "l": [{"card_number": "2"}]}
    assert isinstance(world.run(effect, "order_1", other, redactor=redactor), Committed)


def test_each_field_passes_the_redactor_with_its_name(world: World) -> None:
    """Check E160: error messages pass through it as texts."""
    seen: list[tuple[str, str, Any]] = []

    def redactor(field: RedactedField, name: str, value: Any) -> Any:
        seen.append((field, name, value))
        return {"masked": True} if field is RedactedField.ERROR_MESSAGE else value

    world.remote.script = [EffectFailure.transient("for 4242")]
    world.run(world.effect(), "order_1", "in", redactor=redactor)
    assert seen == [
        ("input", "payment.charge", "in"),
        ("audit_payload", "payment.charge", {"worker": "a"}),
        ("error_message", "payment.charge", "for 4242"),
        ("audit_payload", "payment.charge", {"delay_ms": 1000}),
        ("audit_payload", "payment.charge", {"worker": "a"}),
        ("output", "payment.charge", "res_1"),
    ]
    error = ErrorRecord(failure_class=FailureClass.TRANSIENT, message='{"masked":true}')
    assert world.record().last_error == error


def test_a_redactor_that_fails_neither_lets_a_secret_through_nor_loses_a_result(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def redactor(field: RedactedField, name: str, value: Any) -> Any:
        if field is RedactedField.INPUT:
            return value
        raise RuntimeError("the redactor")

    world.remote.script = [EffectFailure.transient("for 4242")]
    assert world.run(world.effect(), "order_1", "in", redactor=redactor) == Committed("res_1")
    record, events = world.record(), world.events()
    assert record.output == "[REDACTED]"
    assert record.last_error == ErrorRecord(failure_class=FailureClass.TRANSIENT, message="[REDACTED]")
    assert [event.payload for event in events] == ["[REDACTED]", "[REDACTED]", "[REDACTED]", ABSENT]
    assert "masked as a whole" in caplog.text


def test_an_input_that_the_redactor_fails_on_is_refused(world: World) -> None:
    def redactor(field: RedactedField, name: str, value: Any) -> Any:
        raise RuntimeError("the redactor")

    with pytest.raises(EffectInputError):
        world.run(world.effect(), "order_1", "in", redactor=redactor)
    assert world.is_empty()


def test_a_secret_output_is_for_the_caller_who_ran_it(world: World) -> None:
    """Check E161: a replay gets a redacted secret."""

    async def action(context: EffectContext) -> Secret[str]:
        return Secret("s3cr3t")

    effect = world.effect(action)
    first = world.run(effect)
    assert isinstance(first, Committed) and first.value.expose() == "s3cr3t"
    again = world.run(effect)
    assert isinstance(again, Committed) and again.value.is_redacted() and again.value.expose() is None
    assert "s3cr3t" not in repr((world.record(), world.events()))


def test_what_follows_by_itself_is_one_commit(world: World) -> None:
    """An ambiguous end, its escalation and the release; a lapsed lease, what follows from it, and the next attempt."""
    commits = world.store.store.stats().commits
    world.remote.script = [Reply.DROP]
    world.run(world.effect())
    assert short_names(world.events()) == "AS outcome_unknown ES"
    assert world.store.store.stats().commits - commits == 2
    assert [event.transition for event in world.events()][-1] is Transition.ESCALATE
