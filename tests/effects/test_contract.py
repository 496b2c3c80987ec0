"""Execution contracts: their JSON, their comparison, and what may attach to a record."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pystate.effects import (
    ContractMismatchError,
    EffectKind,
    EffectRecord,
    EffectRuntimeError,
    EffectStatus,
    ExecutionContract,
    InputMismatchError,
    KindMismatchError,
    MalformedError,
    VerificationContract,
    VerificationMode,
    contract_differences,
)
from tests.effects.samples import fresh, seconds
from tests.effects.values import contracts

CONTRACT = ExecutionContract(max_attempts=5)
JSON: dict[str, Any] = {
    "format_version": 1,
    "kind": "irreversible_write",
    "remote_idempotency": False,
    "verification": {"mode": "none"},
    "handler_version": "1",
    "adapter": None,
    "require_approval": False,
    "automatic_retry": True,
    "max_attempts": 5,
}


def test_the_defaults_and_the_json_of_a_contract() -> None:
    assert CONTRACT.to_json() == JSON
    assert ExecutionContract.from_json(JSON) == CONTRACT


@pytest.mark.parametrize(
    ("verification", "value"),
    [
        (VerificationContract.NONE, {"mode": "none"}),
        (VerificationContract.AUTHORITATIVE, {"mode": "authoritative"}),
        (
            VerificationContract.eventually_consistent(seconds(10)),
            {"mode": "eventually_consistent", "settle": {"secs": 10, "nanos": 0}},
        ),
    ],
    ids=["none", "authoritative", "eventually_consistent"],
)
def test_the_json_of_verification(verification: VerificationContract, value: dict[str, Any]) -> None:
    assert verification.to_json() == value
    assert ExecutionContract.from_json(JSON | {"verification": value}).verification == verification


@given(contracts)
def test_a_contract_in_json_and_back_is_the_same(contract: ExecutionContract) -> None:
    assert ExecutionContract.from_json(contract.to_json()) == contract


def test_an_unknown_key_is_refused() -> None:
    """Check E95: at the top, and in the verification."""
    with pytest.raises(MalformedError, match="execution contract: .*`more`"):
        ExecutionContract.from_json(JSON | {"more": 1})
    for mode in ("none", "authoritative"):
        with pytest.raises(MalformedError):
            ExecutionContract.from_json(JSON | {"verification": {"mode": mode, "settle": {"secs": 1, "nanos": 0}}})


@pytest.mark.parametrize("name", [name for name in JSON if name != "adapter"])
def test_a_missing_key_is_refused(name: str) -> None:
    with pytest.raises(MalformedError, match=name):
        ExecutionContract.from_json({key: value for key, value in JSON.items() if key != name})


def test_the_adapter_may_be_missing() -> None:
    assert ExecutionContract.from_json({key: value for key, value in JSON.items() if key != "adapter"}) == CONTRACT


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "write"},
        {"remote_idempotency": 1},
        {"verification": "none"},
        {"verification": {"mode": "sometimes"}},
        {"verification": {"mode": "eventually_consistent"}},
        {"verification": {"mode": "eventually_consistent", "settle": {"secs": -1, "nanos": 0}}},
        {"handler_version": 1},
        {"adapter": 1},
        {"max_attempts": -1},
        {"max_attempts": 2**32},
        {"format_version": "1"},
    ],
    ids=str,
)
def test_a_wrong_value_in_json_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match="execution contract"):
        ExecutionContract.from_json(JSON | change)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"kind": "read"}, TypeError),
        ({"remote_idempotency": 1}, TypeError),
        ({"require_approval": None}, TypeError),
        ({"automatic_retry": "yes"}, TypeError),
        ({"verification": VerificationMode.NONE}, TypeError),
        ({"handler_version": None}, TypeError),
        ({"adapter": 1}, TypeError),
        ({"max_attempts": True}, TypeError),
        ({"max_attempts": -1}, ValueError),
        ({"format_version": 2**32}, ValueError),
    ],
    ids=str,
)
def test_a_wrong_contract_is_refused(change: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=next(iter(change))):
        ExecutionContract(**{"max_attempts": 5} | change)


def test_only_an_eventually_consistent_lookup_settles() -> None:
    with pytest.raises(ValueError, match="settle"):
        VerificationContract(mode=VerificationMode.NONE, settle=seconds(1))
    with pytest.raises(ValueError, match="settle"):
        VerificationContract(mode=VerificationMode.EVENTUALLY_CONSISTENT, settle=None)
    with pytest.raises(ValueError, match="negative"):
        VerificationContract.eventually_consistent(-seconds(1))
    with pytest.raises(TypeError, match="mode"):
        VerificationContract(mode="none", settle=None)  # type: ignore[arg-type]


# Comparison

OTHERS: dict[str, Any] = {
    "kind": EffectKind.READ,
    "remote_idempotency": True,
    "verification": VerificationContract.AUTHORITATIVE,
    "handler_version": "2",
    "adapter": "stripe",
    "require_approval": True,
    "automatic_retry": False,
    "max_attempts": 4,
}


def test_equal_contracts_do_not_differ() -> None:
    assert contract_differences(CONTRACT, ExecutionContract(max_attempts=5)) == ()
    assert contract_differences(None, CONTRACT) == ("execution_contract",)


@pytest.mark.parametrize("name", OTHERS)
def test_every_field_counts(name: str) -> None:
    """Both ways round: nothing can be added, and nothing removed."""
    other = replace(CONTRACT, **{name: OTHERS[name]})
    assert contract_differences(CONTRACT, other) == contract_differences(other, CONTRACT) == (name,)


def test_the_settle_delay_counts() -> None:
    ten, eleven = (
        replace(CONTRACT, verification=VerificationContract.eventually_consistent(seconds(n))) for n in (10, 11)
    )
    for first, second in ((ten, eleven), (ten, CONTRACT), (CONTRACT, ten)):
        assert contract_differences(first, second) == ("verification",)


def test_several_differences_are_all_named() -> None:
    assert contract_differences(CONTRACT, replace(CONTRACT, max_attempts=6, adapter="x")) == ("adapter", "max_attempts")


def test_another_format_is_equal_to_nothing() -> None:
    newer = replace(CONTRACT, format_version=2)
    assert contract_differences(newer, newer) == contract_differences(newer, CONTRACT) == ("format_version",)
    assert contract_differences(CONTRACT, newer) == ("format_version",)


@given(contracts, contracts)
def test_only_equal_contracts_of_this_format_do_not_differ(first: ExecutionContract, second: ExecutionContract) -> None:
    assert (contract_differences(first, second) == ()) == (first == second and first.format_version == 1)


# Attaching


def recorded(**fields: Any) -> EffectRecord:
    return replace(fresh(execution_contract=CONTRACT, input_fingerprint="f"), **fields)


WRITE = EffectKind.IRREVERSIBLE_WRITE


def test_an_equal_call_may_attach() -> None:
    recorded().check_attach(WRITE, CONTRACT, "f")
    recorded(input_fingerprint=None).check_attach(WRITE, CONTRACT, None)


def test_another_kind_is_refused_first() -> None:
    """Check E94, as far as records go: before contract and input."""
    record = recorded()
    with pytest.raises(KindMismatchError) as caught:
        record.check_attach(EffectKind.READ, replace(CONTRACT, kind=EffectKind.READ), "g")
    assert (caught.value.id, caught.value.stored, caught.value.requested) == (record.id, WRITE, EffectKind.READ)
    assert isinstance(caught.value, EffectRuntimeError)


@pytest.mark.parametrize("status", EffectStatus)
def test_another_contract_is_refused_in_every_status(status: EffectStatus) -> None:
    """Check E90 and E93, as far as records go: also where nothing would run; before the input."""
    record = recorded(status=status)
    other = replace(CONTRACT, max_attempts=6)
    with pytest.raises(ContractMismatchError, match="max_attempts") as caught:
        record.check_attach(WRITE, other, "g")
    assert (caught.value.id, caught.value.stored, caught.value.requested) == (record.id, CONTRACT, other)
    assert caught.value.differences == ("max_attempts",)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (copied.stored, copied.requested, str(copied)) == (CONTRACT, other, str(caught.value))


def test_another_input_is_refused() -> None:
    for stored, given_one in (("f", "g"), ("f", None), (None, "f")):
        record = recorded(input_fingerprint=stored)
        with pytest.raises(InputMismatchError) as caught:
            record.check_attach(WRITE, CONTRACT, given_one)
        assert caught.value.id == record.id


REPORTED = {
    EffectStatus.COMMITTED, EffectStatus.FAILED, EffectStatus.REJECTED, EffectStatus.COMPENSATED,
    EffectStatus.NEEDS_INTERVENTION, EffectStatus.COMPENSATION_FAILED,
}  # fmt: skip


@pytest.mark.parametrize("status", EffectStatus)
def test_a_record_without_a_contract_lets_nothing_run(status: EffectStatus) -> None:
    """Check E96 and E97, as far as records go: it may be reported where nothing needs to run."""
    record = recorded(status=status, execution_contract=None)
    if status in REPORTED:
        record.check_attach(WRITE, CONTRACT, "f")
        with pytest.raises(InputMismatchError):
            record.check_attach(WRITE, CONTRACT, "g")
        return
    with pytest.raises(ContractMismatchError) as caught:
        record.check_attach(WRITE, CONTRACT, "f")
    assert (caught.value.stored, caught.value.differences) == (None, ("execution_contract",))


@given(st.timedeltas(min_value=timedelta(0)))
def test_settle_delays_are_kept_exactly(settle: timedelta) -> None:
    contract = replace(CONTRACT, verification=VerificationContract.eventually_consistent(settle))
    assert ExecutionContract.from_json(contract.to_json()).verification.settle == settle
