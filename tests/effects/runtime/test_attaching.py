"""Attaching to an effect that is recorded: only under the same kind, contract and input; and reading its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from pystate.effects import (
    ABSENT,
    AwaitingApproval,
    Committed,
    Compensated,
    ContractMismatchError,
    EffectContext,
    EffectIdentityError,
    EffectInputError,
    EffectKey,
    EffectKind,
    EffectStatus,
    Failed,
    InProgress,
    InputMismatchError,
    KindMismatchError,
    NeedsIntervention,
    NewEffect,
    OutputError,
    OutputPayloadError,
    OutputUnavailableError,
    PayloadSchema,
    PolicyViolationError,
    Rejected,
    RetryPolicy,
    RiskLevel,
    RiskPolicy,
    Secret,
    Transition,
    TransitionRequest,
    Unknown,
    Verification,
    VerificationContract,
)
from tests.effects.runtime.world import PATIENT, World, run_async
from tests.effects.samples import T, seconds
from tests.ids import named

KEY = EffectKey("payment.charge", "order_1")  # type: ignore[arg-type]
EVENTUAL = VerificationContract.eventually_consistent(seconds(10))


async def look_up(context: EffectContext) -> Verification[str]:
    return Verification.confirmed("res_1")


def put(world: World, *transitions: Transition, output: Any = ABSENT, **fields: Any) -> None:
    """A legacy record, without a contract, after these transitions."""
    world.store.insert_or_get(NewEffect.new(KEY, EffectKind.IRREVERSIBLE_WRITE, T(0), **fields))
    for transition in transitions:
        last = transition is transitions[-1]
        request = TransitionRequest.new(world.record(), None, transition, T(0), output=output if last else ABSENT)
        world.store.transition(request)


def refused(world: World, error: type[Exception], effect: Any, *arguments: Any, **settings: Any) -> Any:
    """Run an effect, which is refused: nothing runs, nothing changes."""
    before, calls = world.record(), len(world.remote.calls)
    with pytest.raises(error) as raised:
        world.run(effect, "order_1", *arguments, **settings)
    assert world.record() == before and len(world.remote.calls) == calls
    return raised.value


@pytest.mark.parametrize("recorded", [False, True])
def test_the_word_about_the_remote_cannot_be_changed(world: World, recorded: bool) -> None:
    """Check E89: neither added nor removed."""
    world.run(world.effect(remote_idempotency=recorded))
    error = refused(world, ContractMismatchError, world.effect(remote_idempotency=not recorded))
    assert error.differences == ("remote_idempotency",)


def test_the_budget_cannot_be_changed(world: World) -> None:
    """Check E90: not even of a committed effect."""
    world.run(world.effect())
    refused(world, ContractMismatchError, world.effect(retry=RetryPolicy(max_attempts=6)))


def test_what_is_no_part_of_the_contract_may_change(world: World) -> None:
    """Check E91: delays, timeout, risk and actor."""
    world.run(world.effect(), actor="ann")
    slower = RetryPolicy(initial_delay=seconds(2))
    effect = world.effect(retry=slower, attempt_timeout=seconds(10), risk=RiskLevel.CRITICAL)
    assert world.run(effect, actor="bob") == Committed("res_1")
    assert len(world.remote.calls) == 1


OTHER_LOOKUPS: dict[str, dict[str, Any]] = {
    "later": {"verify": look_up, "verification": VerificationContract.eventually_consistent(seconds(11))},
    "authoritative": {"verify": look_up},
    "none": {},
}


@pytest.mark.parametrize("settings", OTHER_LOOKUPS.values(), ids=list(OTHER_LOOKUPS))
def test_the_lookup_cannot_be_changed(world: World, settings: dict[str, Any]) -> None:
    """Check E92: another settle time, another mode, none."""
    world.run(world.effect(verify=look_up, verification=EVENTUAL))
    assert refused(world, ContractMismatchError, world.effect(**settings)).differences == ("verification",)


OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "handler_version": {"handler_version": "2"},
    "adapter": {"adapter": "stripe"},
    "require_approval": {"require_approval": True},
}


@pytest.mark.parametrize(("name", "settings"), OTHER_SETTINGS.items(), ids=list(OTHER_SETTINGS))
def test_no_other_assumption_can_be_changed(world: World, name: str, settings: dict[str, Any]) -> None:
    """Check E93: version, adapter, approval."""
    world.run(world.effect())
    assert refused(world, ContractMismatchError, world.effect(**settings)).differences == (name,)


def test_a_risk_policy_that_forbids_retries_changes_the_contract(world: World) -> None:
    """Check E93: as it forbids what was allowed."""
    world.run(world.effect())
    error = refused(world, ContractMismatchError, world.effect(), risk_policy=RiskPolicy().no_automatic_retry())
    assert error.differences == ("automatic_retry",)


def test_another_kind_is_refused_first(world: World) -> None:
    """Check E94: the kind, then the contract, then the input."""
    world.run(world.effect(), "order_1", 1)
    other = world.effect(kind=EffectKind.READ, handler_version="2")
    error = refused(world, KindMismatchError, other, 2)
    assert (error.id, error.stored, error.requested) == (
        world.record().id, EffectKind.IRREVERSIBLE_WRITE, EffectKind.READ,
    )  # fmt: skip
    refused(world, ContractMismatchError, world.effect(handler_version="2"), 2)


def test_a_legacy_record_that_is_pending_is_not_run(world: World) -> None:
    """Check E96: refused, with nothing stored."""
    put(world)
    error = refused(world, ContractMismatchError, world.effect())
    assert error.stored is None
    assert (world.record().status, world.record().version) == (EffectStatus.PENDING, 0)


def test_a_legacy_record_that_is_committed_is_reported(world: World) -> None:
    """Check E97: its output 7, and nothing runs."""
    put(world, Transition.START_ATTEMPT, Transition.SUCCEEDED, output=7)
    assert world.run(world.effect(output_type=int)) == Committed(7)
    assert world.remote.calls == []


# Outputs


def test_a_stored_output_is_migrated_for_the_caller_alone(world: World) -> None:
    """Check E100: the caller sees the new form; the record keeps the old one."""
    world.run(world.effect())
    before = world.record()
    schema = PayloadSchema(2, lambda version, value: {"version": version, "value": value})
    outcome = world.run(world.effect(output_schema=schema, output_type=dict))
    assert outcome == Committed({"version": 1, "value": "res_1"})
    assert world.record() == before and before.output_schema_version == 1


def test_a_migration_that_fails_runs_nothing(world: World) -> None:
    """Check E101: OutputPayload, and the effect stays committed."""

    def fail(version: int, value: Any) -> Any:
        raise RuntimeError("cannot")

    world.run(world.effect())
    error = refused(world, OutputPayloadError, world.effect(output_schema=PayloadSchema(2, fail)))
    assert error.id == world.record().id
    refused(world, OutputPayloadError, world.effect(output_schema=PayloadSchema(2)))


def test_an_output_that_was_never_stored_is_told(world: World) -> None:
    """Check E102: OutputUnavailable and no run; the output null is another thing."""
    put(world, Transition.START_ATTEMPT, Transition.SUCCEEDED)
    assert refused(world, OutputUnavailableError, world.effect()).id == world.record().id


def test_an_output_null_is_replayed(world: World) -> None:
    """Check E102: committed with null."""
    put(world, Transition.START_ATTEMPT, Transition.SUCCEEDED, output=None)
    assert world.run(world.effect(output_type=Any)) == Committed(None)


def test_an_output_is_stored_with_its_schema_version(world: World) -> None:
    world.run(world.effect(output_schema=PayloadSchema(3), input_schema=PayloadSchema(4)), "order_1", {"a": 1})
    assert (world.record().output_schema_version, world.record().input_schema_version) == (3, 4)


class Receipt(msgspec.Struct):
    payment: str


@dataclass
class Order:
    amount: int


def test_a_replay_gives_the_type_that_the_action_returns(world: World) -> None:
    async def action(context: EffectContext, order: Order) -> Receipt:
        return Receipt(f"paid {order.amount}")

    effect = world.effect(action)
    assert effect.input_type is Order and effect.output_type is Receipt
    assert world.run(effect, "order_1", Order(7)) == Committed(Receipt("paid 7"))
    assert world.run(effect, "order_1", Order(7)) == Committed(Receipt("paid 7"))
    assert world.record().input == {"amount": 7}
    assert world.run(world.effect(output_type=Any), "order_1", {"amount": 7}) == Committed({"payment": "paid 7"})
    error = refused(world, OutputError, world.effect(output_type=int), {"amount": 7})
    assert error.id == world.record().id


# Inputs


def test_the_same_input_whatever_the_order_of_its_keys(world: World) -> None:
    """Check E137, row 97: another input is refused; the same one, written otherwise, is replayed."""
    effect = world.effect()
    world.run(effect, "order_1", {"amount": 1, "to": "ann"})
    assert world.run(effect, "order_1", {"to": "ann", "amount": 1}) == Committed("res_1")
    assert refused(world, InputMismatchError, effect, {"amount": 2, "to": "ann"}).id == world.record().id
    refused(world, InputMismatchError, effect)  # no input at all
    refused(world, InputMismatchError, effect, None)  # the input null


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: object()}], ids=named)
def test_an_input_without_a_json_form_is_refused(world: World, value: object) -> None:
    with pytest.raises(EffectInputError):
        world.run(world.effect(), "order_1", value)
    assert world.is_empty() and world.remote.calls == []


@pytest.mark.parametrize(("name", "key"), [("", "k"), ("n" * 201, "k"), ("n", ""), ("n", "a\nb"), ("n\x00", "k")])
def test_a_name_that_is_not_allowed_is_told_when_the_effect_is_run(world: World, name: str, key: str) -> None:
    effect = world.effect(name=name)
    with pytest.raises(EffectIdentityError):
        world.run(effect, key)
    assert world.is_empty()


def test_a_key_is_anything_with_a_text_form(world: World) -> None:
    assert world.run(world.effect(), 5824) == Committed("res_1")  # type: ignore[arg-type]
    assert world.record("5824").key.key == "5824"


# Policies


def test_a_policy_may_demand_a_verification(world: World) -> None:
    """Check E138: refused, and nothing is recorded."""
    policy = RiskPolicy().rule(risk=RiskLevel.HIGH).require_verification()
    with pytest.raises(PolicyViolationError) as raised:
        world.run(world.effect(risk=RiskLevel.HIGH), risk_policy=policy)
    assert (raised.value.key, raised.value.requirement) == ("payment.charge:order_1", "verification")
    assert world.is_empty()
    assert world.run(world.effect(risk=RiskLevel.HIGH, verify=look_up), risk_policy=policy) == Committed("res_1")
    assert world.run(world.effect(), "order_2", risk_policy=policy) == Committed("res_2")


def test_whose_doubts_always_go_to_a_person_is_warned_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        runtime = world.runtime()
        for number in range(3):
            await runtime.run(world.effect(name="neither"), number)
        await runtime.run(world.effect(name="repeatable", remote_idempotency=True), 1)
        await runtime.run(world.effect(name="once", remote_idempotency=True, retry=RetryPolicy.NONE), 1)
        await runtime.run(world.effect(name="looked up", verify=look_up, retry=RetryPolicy.NONE), 1)

    run_async(main)
    assert [record.args for record in caplog.records] == [("neither",), ("once",)]


# Every status


def test_every_status_has_its_outcome(world: World) -> None:
    """The table of outcomes, for records that a call finds."""
    from pystate.effects.runtime.report import NO_ERROR, outcome_of

    world.run(world.effect())
    record = world.record()
    expected: dict[EffectStatus, Callable[[Any], Any]] = {
        EffectStatus.PENDING: InProgress,
        EffectStatus.AWAITING_APPROVAL: AwaitingApproval,
        EffectStatus.EXECUTING: InProgress,
        EffectStatus.UNKNOWN: Unknown,
        EffectStatus.VERIFYING: InProgress,
        EffectStatus.COMMITTED: lambda _: Committed("res_1"),
        EffectStatus.FAILED: lambda _: Failed(NO_ERROR),
        EffectStatus.REJECTED: lambda _: Rejected(NO_ERROR),
        EffectStatus.NEEDS_INTERVENTION: NeedsIntervention,
        EffectStatus.COMPENSATING: InProgress,
        EffectStatus.COMPENSATED: Compensated,
        EffectStatus.COMPENSATION_FAILED: NeedsIntervention,
    }
    assert set(expected) == set(EffectStatus)
    for status, outcome in expected.items():
        assert outcome_of(msgspec.structs.replace(record, status=status), None) == outcome(record.id)


def test_an_effect_that_is_being_undone_is_in_progress(world: World) -> None:
    world.run(world.effect())
    for transition, outcome in (
        (Transition.START_COMPENSATION, InProgress),
        (Transition.COMPENSATION_FAILED, NeedsIntervention),
        (Transition.RESOLVED_COMPENSATED, Compensated),
    ):
        world.store.transition(TransitionRequest.new(world.record(), None, transition, world.clock.now()))
        assert world.run(world.effect()) == outcome(world.record().id)
    assert len(world.remote.calls) == 1


def test_a_secret_input_does_not_change_what_is_recorded(world: World) -> None:
    """Check E159: the action sees the value, nothing stored does; another secret is the same effect."""
    seen = []

    async def action(context: EffectContext, order: dict[str, Any]) -> str:
        seen.append(order["token"].expose())
        return "done"

    effect = world.effect(action, retry=PATIENT)
    world.run(effect, "order_1", {"token": Secret("s3cr3t"), "amount": 1})
    assert seen == ["s3cr3t"]
    assert world.record().input == {"token": "[REDACTED]", "amount": 1}
    assert "s3cr3t" not in repr((world.record(), world.events()))
    assert world.run(effect, "order_1", {"token": Secret("rotated"), "amount": 1}) == Committed("done")
    refused(world, InputMismatchError, effect, {"token": Secret("s3cr3t"), "amount": 2})


@pytest.mark.parametrize("key", [None, Secret("hunter2")], ids=["None", "a secret"])
def test_a_key_that_is_like_every_other_is_refused(world: World, key: object) -> None:
    with pytest.raises(TypeError, match="tells no effect from another"):
        world.run(world.effect(), key)  # type: ignore[arg-type]
    assert world.is_empty()
