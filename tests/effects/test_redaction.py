"""Secrets and redactors: what is masked, where, and that nothing of it is stored."""

from __future__ import annotations

import copy
import json
import math
import pickle
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.effects import (
    ABSENT,
    EffectId,
    EffectKey,
    EffectKind,
    EffectName,
    EffectRecord,
    LogicalKey,
    MalformedError,
    NewEffect,
    NotJsonError,
    RedactedField,
    RedactKeys,
    Secret,
    WorkerId,
    encode_record,
    fingerprint_of,
    from_json,
    redact,
    redact_message,
    to_json,
)
from tests.effects.samples import KEY, T
from tests.effects.values import json_values

F = RedactedField
CARD = "4242 4242 4242 4242"


class Payment(msgspec.Struct):
    amount: int
    card: Secret[str]


# Secrets


def test_a_secret_shows_nothing() -> None:
    """Not in print, not in a message, not in the repr of what holds it."""
    secret = Secret(CARD)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r}", "%s" % secret]  # noqa: UP031
    assert shown == ["[REDACTED]"] * 5
    assert CARD not in repr(Payment(1, secret))
    assert CARD not in repr([secret, {"a": secret}])


def test_a_secret_is_there_in_memory() -> None:
    secret = Secret(CARD)
    assert secret.expose() == CARD and not secret.is_redacted()
    assert copy.copy(secret).expose() == copy.deepcopy([secret])[0].expose() == CARD
    assert Secret(None).expose() is None and not Secret(None).is_redacted()
    assert Secret(CARD) == secret != Secret("other")
    assert Secret(None) != Secret.redacted() == Secret.redacted()
    assert secret != CARD
    with pytest.raises(TypeError):
        hash(secret)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_secret_is_redacted(protocol: int) -> None:
    data = pickle.dumps(Payment(1, Secret(CARD)), protocol)
    assert CARD.encode() not in data
    assert pickle.loads(data).card.is_redacted()


def test_nothing_stored_contains_the_secret() -> None:
    """Check E159, as far as records go: the store holds the mask; the action has the value."""
    payment = Payment(4200, Secret(CARD))
    stored = to_json(payment, "input")
    assert stored == {"amount": 4200, "card": "[REDACTED]"}
    assert payment.card.expose() == CARD
    record = EffectRecord.new(
        NewEffect.new(KEY, EffectKind.READ, T(0), input=stored, input_fingerprint=fingerprint_of(stored))
    )
    assert CARD.encode() not in encode_record(record) and CARD not in repr(record)


def test_a_rotated_secret_is_the_same_input() -> None:
    """Check E159: and another field is another one."""
    first = fingerprint_of(to_json(Payment(4200, Secret(CARD)), "input"))
    assert fingerprint_of(to_json(Payment(4200, Secret("5555")), "input")) == first
    assert fingerprint_of(to_json(Payment(4201, Secret(CARD)), "input")) != first


def test_a_secret_read_back_is_redacted() -> None:
    """Check E161, as far as values go: whoever ran the action has it, a replay has the mask."""
    replayed = from_json(to_json(Payment(1, Secret(CARD)), "output"), Payment)
    assert replayed.amount == 1
    assert replayed.card.is_redacted() and replayed.card.expose() is None
    for stored in ("[REDACTED]", None, 5, {"a": 1}, [CARD]):
        assert from_json(stored, Secret[str]).is_redacted()
        assert from_json({"amount": 1, "card": stored}, Payment).card.expose() is None
        plain: Any = from_json(stored, Secret)
        assert plain.is_redacted()


@given(json_values.filter(lambda value: len(json.dumps(value)) > 20))
def test_a_secret_of_any_shape_is_one_mask(value: Any) -> None:
    assert to_json({"a": [Secret(value)]}, "input") == {"a": ["[REDACTED]"]}


# Values in and out of JSON


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    when: datetime


def test_values_of_a_program_become_json() -> None:
    effect_id = EffectId.new()
    value = {
        1: Point(2, datetime(2024, 1, 2, tzinfo=UTC)),
        "colour": Colour.RED,
        "id": effect_id,
        "worker": WorkerId("w"),
        "uuid": uuid.UUID(int=1),
        "decimal": Decimal("1.10"),
        "bytes": b"\0\1",
        "tuple": (1, 2),
        "kind": EffectKind.READ,
    }
    assert to_json(value, "input") == {
        "1": {"x": 2, "when": "2024-01-02T00:00:00Z"},
        "colour": "red",
        "id": str(effect_id),
        "worker": "w",
        "uuid": str(uuid.UUID(int=1)),
        "decimal": "1.10",
        "bytes": "AAE=",
        "tuple": [1, 2],
        "kind": "read",
    }
    assert from_json(to_json(Point(2, T(0)), "input"), Point) == Point(2, T(0))
    assert from_json(to_json({1: 2}, "input"), dict[int, int]) == {1: 2}
    assert from_json(str(effect_id), EffectId) == effect_id


@given(json_values)
def test_json_stays_as_it_is(value: Any) -> None:
    assert to_json(value, "input") == value
    assert from_json(value, object) == value


def cyclic() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


NO_JSON = {
    "object": object(),
    "nan": math.nan,
    "infinity": [math.inf],
    "large": 2**70,
    "surrogate": "\udc80",
    "absent": {"a": ABSENT},
    "endless": cyclic(),
    "function": cyclic,
}


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
def test_what_has_no_json_is_refused(value: object) -> None:
    with pytest.raises(NotJsonError, match="output"):
        to_json(value, "output")


def test_another_shape_is_refused() -> None:
    with pytest.raises(MalformedError, match="Payment"):
        from_json({"amount": "x", "card": None}, Payment)
    with pytest.raises(MalformedError):
        from_json(5, dict[str, int])


# Redactors


def test_keys_are_masked_at_any_depth() -> None:
    """Check E160: whatever their case, inside lists too."""
    redactor = RedactKeys(["card_number"])
    value = {"Card_Number": "4242", "l": [{"card_number": "1"}, [{"CARD_NUMBER": {"a": 1}}]], "cardnumber": 1}
    masked = {
        "Card_Number": "[REDACTED]",
        "l": [{"card_number": "[REDACTED]"}, [{"CARD_NUMBER": "[REDACTED]"}]],
        "cardnumber": 1,
    }
    for field in (F.INPUT, F.OUTPUT, F.AUDIT_PAYLOAD):
        assert redact(redactor, field, "payment.charge", value) == masked
    assert value["Card_Number"] == "4242"


def test_case_is_that_of_ascii() -> None:
    """A Kelvin sign is no k, and Ä is not ä."""
    redactor = RedactKeys(["Key", "Ähre"])
    value = {"\u212aey": 1, "KEY": 2, "ähre": 3, "ÄHRE": 4}
    assert redact(redactor, F.INPUT, "n", value) == {
        "\u212aey": 1, "KEY": "[REDACTED]", "ähre": 3, "ÄHRE": "[REDACTED]",
    }  # fmt: skip


@given(json_values, st.lists(st.text(max_size=5), max_size=3))
def test_masking_twice_is_masking_once(value: Any, names: list[str]) -> None:
    redactor = RedactKeys(names)
    once = redact(redactor, F.INPUT, "n", value)
    assert redact(redactor, F.INPUT, "n", once) == once
    assert redact(RedactKeys([]), F.INPUT, "n", value) == value


def test_messages_pass_through_as_texts() -> None:
    """Check E160: masking keys leaves them; another redactor sees field, name and text."""
    assert redact_message(RedactKeys(["card_number"]), "n", "card_number 4242") == "card_number 4242"
    seen = []

    def redactor(field: RedactedField, name: str, value: Any) -> Any:
        seen.append((field, name, value))
        return value.replace("4242", "…")

    assert redact_message(redactor, "payment.charge", "declined: 4242") == "declined: …"
    assert seen == [(F.ERROR_MESSAGE, "payment.charge", "declined: 4242")]


@pytest.mark.parametrize(("result", "stored"), [({"a": [1, "é"]}, '{"a":[1,"é"]}'), (None, "null"), (7, "7")], ids=str)
def test_a_message_that_becomes_no_text_is_stored_as_its_json(result: Any, stored: str) -> None:
    assert redact_message(lambda field, name, value: result, "n", "m") == stored


def test_without_a_redactor_everything_stays() -> None:
    value = {"a": 1}
    assert redact(None, F.INPUT, "n", value) is value
    assert redact_message(None, "n", "m") == "m"


def test_what_is_absent_is_not_asked_for() -> None:
    def never(field: RedactedField, name: str, value: Any) -> Any:
        raise AssertionError("called")

    assert redact(never, F.OUTPUT, "n", ABSENT) is ABSENT


@pytest.mark.parametrize("value", [None, 0, "", [], False], ids=repr)
def test_what_is_empty_is_not_absent(value: Any) -> None:
    """A redactor sees null, zero and the empty text too."""
    assert redact(lambda field, name, value: "seen", F.OUTPUT, "n", value) == "seen"


def test_a_redactor_must_return_json() -> None:
    for result in (math.nan, {1}, ABSENT):
        with pytest.raises(NotJsonError, match="output"):
            redact(lambda field, name, value, result=result: result, F.OUTPUT, "n", 1)
        with pytest.raises(NotJsonError, match="error_message"):
            redact_message(lambda field, name, value, result=result: result, "n", "m")


def test_wrong_names_are_refused() -> None:
    with pytest.raises(TypeError, match="several names"):
        RedactKeys("card_number")
    with pytest.raises(TypeError, match="expected a str"):
        RedactKeys([1])  # type: ignore[list-item]
    assert repr(RedactKeys(["B", "a"])) == "RedactKeys(['a', 'b'])"


def test_the_names_of_the_key_are_texts_for_a_program() -> None:
    key = EffectKey(EffectName("n"), LogicalKey("k"))
    assert to_json(key.name, "input") == "n"
    assert type(to_json(key.name, "input")) is str
