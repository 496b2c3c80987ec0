"""From 0.44 to 0.45: a confidence may be without a category."""

from __future__ import annotations

import pytest

from pystate.errors import UnknownShapeError
from pystate.review import TRIAGE_POLICIES, EventCategory
from tests.review.migrations.fixtures import applied, content_of, encode, policy, refused_by

STEP = "make the category of a confidence optional"


def test_categories_become_options() -> None:
    """Check R206: both are there, all else equal. (Stored as MessagePack, "some c" has the bytes of c.)"""
    rows = policy(0, "scored", 1, [[0, "scan", 0.9, 2.0], [7, "dns_tunnel", 0.5, None]])
    found = applied({"default": {}, "triage policy": rows}, STEP)
    ((key, value),) = found["triage policy"].items()
    record = TRIAGE_POLICIES.decode(key, value)
    assert [(each.threat_category, each.threat_kind, each.confidence, each.weight) for each in record.confidence] == [
        (EventCategory.RECONNAISSANCE, "scan", 0.9, 2.0),
        (EventCategory.EXFILTRATION, "dns_tunnel", 0.5, None),
    ]
    assert (record.id, record.name, record.customer_id, record.triage_exclusion_id) == (0, "scored", 1, (1,))
    assert found["triage policy"] == rows


def test_second_run_and_new_rows_change_no_byte() -> None:
    """Check R207: (S15, H-7) what was converted stays, with and without a category, and with no confidence at all."""
    rows = {
        **policy(0, "none", None, []),
        **policy(1, "some", 1, [[3, "a", 1.0, None]]),
        **policy(2, "any", 1, [[None, "a", 1.0, None], [3, "b", 0.5, 1.0]]),
        b"": b"the row with the ids is not looked at",
    }
    state = {"default": {}, "triage policy": rows}
    assert applied(state, STEP) == state
    assert applied(state, STEP, STEP) == state
    state = content_of("0.44.0")
    assert applied(state, STEP) == state


(GOOD,) = policy(0, "bad", 1, []).values()
FOREIGN = {
    "no array": b"foreign",
    "a byte behind": GOOD + b"\0",
    "a category that there is not": next(iter(policy(0, "bad", 1, [[14, "a", 1.0, None]]).values())),
    "a category that is text": next(iter(policy(0, "bad", 1, [["0", "a", 1.0, None]]).values())),
    "a confidence of three": next(iter(policy(0, "bad", 1, [[0, "a", 1.0]]).values())),
    "a confidence of five": next(iter(policy(0, "bad", 1, [[0, "a", 1.0, None, 1]]).values())),
    "seven positions": encode([0, "bad", [], [], [], [], None]),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_value_of_neither_shape_is_refused(what: str) -> None:
    """(H-7) With the key in hex, both reasons, and nothing changed."""
    ((key, _),) = policy(0, "bad", 1, []).items()
    state = {"default": {}, "triage policy": {**policy(1, "good", 1, []), key: FOREIGN[what]}}
    error = refused_by(STEP, state, UnknownShapeError)
    assert isinstance(error, UnknownShapeError)
    assert (error.family, error.key, error.kind) == ("triage policy", key, "triage policy")
    assert key.hex() in str(error)
    assert error.current
    assert error.previous
