"""What goes into the rules is checked, and made uniform, before anything is done with it."""

from __future__ import annotations

import math
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from pystate.effects import (
    ABSENT,
    EffectId,
    EffectKind,
    EffectRecord,
    ExecutionContract,
    NewEffect,
    NotJsonError,
    Transition,
    TransitionRequest,
    WorkerId,
)
from tests.effects.samples import KEY, TTL, T, error, fresh

NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001
CONTRACT = ExecutionContract(max_attempts=5)


def new(**fields: Any) -> NewEffect:
    defaults: dict[str, Any] = {"key": KEY, "kind": EffectKind.READ, "now": T(0)}
    return NewEffect.new(**defaults | fields)


def request(**fields: Any) -> TransitionRequest:
    defaults: dict[str, Any] = {"record": fresh(), "lease": None, "transition": Transition.START_ATTEMPT, "now": T(1)}
    return TransitionRequest.new(**defaults | fields)


def test_the_short_constructor_of_an_effect() -> None:
    """A fresh id, and the rest absent; the first version of the schema."""
    first, second = NewEffect.new(KEY, EffectKind.READ, T(0)), NewEffect.new(KEY, EffectKind.READ, T(0))
    assert first.id < second.id
    assert replace(first, id=second.id) == second
    assert (first.execution_contract, first.input_schema_version, first.input) == (None, 1, ABSENT)
    assert (first.input_fingerprint, first.created_by, first.now) == (None, None, T(0))
    full = new(execution_contract=CONTRACT, input_schema_version=2, input=None, input_fingerprint="f", created_by="c")
    record = EffectRecord.new(full)
    assert (record.execution_contract, record.input_schema_version, record.input) == (CONTRACT, 2, None)
    assert (record.input_fingerprint, record.created_by, record.output_schema_version) == ("f", "c", 1)


def test_the_short_constructor_of_a_request() -> None:
    """Id and version of the record, and the rest absent."""
    record = replace(fresh(), version=3)
    made = TransitionRequest.new(record, None, Transition.DENY, T(1))
    assert made == TransitionRequest(
        id=record.id, expected_version=3, lease=None, transition=Transition.DENY, now=T(1)
    )  # fmt: skip
    assert (made.output, made.output_schema_version, made.error, made.next_attempt_at) == (ABSENT, None, None, None)
    assert (made.actor, made.payload) == (None, ABSENT)


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"now": NAIVE}, ValueError, "now: .* no time zone"),
        ({"now": None}, TypeError, "now: expected"),
        ({"key": "a:b"}, TypeError, "key: expected EffectKey"),
        ({"kind": "read"}, TypeError, "kind: expected EffectKind"),
        ({"execution_contract": {}}, TypeError, "execution_contract: expected ExecutionContract"),
        ({"input_schema_version": -1}, ValueError, "input_schema_version"),
        ({"input_schema_version": "1"}, TypeError, "input_schema_version"),
        ({"input": {"a": {1}}}, NotJsonError, r"input: .*set at \$\.a"),
        ({"input_fingerprint": b"f"}, TypeError, "input_fingerprint"),
        ({"created_by": 7}, TypeError, "created_by"),
        ({"created_by": "\udc80"}, ValueError, "created_by"),
    ],
    ids=str,
)
def test_a_wrong_new_effect_is_refused(fields: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        new(**fields)


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"now": NAIVE}, ValueError, "now: .* no time zone"),
        ({"now": None}, TypeError, "now: expected"),
        ({"next_attempt_at": NAIVE}, ValueError, "next_attempt_at: .* no time zone"),
        ({"next_attempt_at": 5}, TypeError, "next_attempt_at"),
        ({"transition": "start_attempt"}, TypeError, "transition: expected Transition"),
        ({"lease": "a"}, TypeError, "lease: expected Lease"),
        ({"error": "refused"}, TypeError, "error: expected ErrorRecord"),
        ({"output": math.nan}, NotJsonError, "output: .*nan"),
        ({"payload": b""}, NotJsonError, "payload: .*bytes"),
        ({"output_schema_version": 2**32}, ValueError, "output_schema_version"),
        ({"actor": 7}, TypeError, "actor"),
    ],
    ids=str,
)
def test_a_wrong_request_is_refused(fields: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        request(**fields)


def test_wrong_ids_and_versions_are_refused() -> None:
    with pytest.raises(TypeError, match="id: expected EffectId"):
        replace(new(), id=str(EffectId.new()))
    with pytest.raises(TypeError, match="id: expected EffectId"):
        replace(request(), id=str(EffectId.new()))
    with pytest.raises(TypeError, match="expected_version"):
        replace(request(), expected_version=None)


def test_payloads_are_copied() -> None:
    """What the caller does to them later changes neither request nor record."""
    given: dict[str, Any] = {"a": [1]}
    made, asked = new(input=given), request(output=given, payload=given)
    record = EffectRecord.new(made)
    after, event = replace(record, status=record.status).apply(replace(asked, id=record.id))
    given["a"].append(2)
    assert made.input == record.input == asked.output == after.output == event.payload == {"a": [1]}


def test_texts_and_times_become_plain_ones() -> None:
    made = new(created_by=WorkerId("w"), now=T(0).astimezone(timezone(timedelta(hours=-8))))
    assert type(made.created_by) is str and str(made.now) == str(T(0))
    asked = request(actor=WorkerId("w"), next_attempt_at=T(9).astimezone(timezone(timedelta(hours=3))))
    assert type(asked.actor) is str and str(asked.next_attempt_at) == str(T(9))


def test_all_are_frozen_and_can_be_pickled() -> None:
    record, lease = fresh().acquire_lease("a", T(0), TTL)
    asked = request(record=record, lease=lease, output=None, error=error("m"), payload={"a": 1})
    after, event = record.apply(asked)
    values: list[Any] = [new(input={"a": 1}), lease, asked, event, after]
    for value in values:
        kind: Any = type(value)
        assert pickle.loads(pickle.dumps(value)) == value
        with pytest.raises(AttributeError):
            setattr(value, value.__struct_fields__[0], None)
        with pytest.raises(TypeError):
            kind(None)
