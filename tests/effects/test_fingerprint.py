"""Fingerprints: the pinned ones, and what makes two of them equal."""

from __future__ import annotations

import hashlib
import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.effects import NotJsonError, fingerprint_of
from tests.effects.values import json_values


@pytest.mark.parametrize(
    ("value", "digest"),
    [
        ({"b": [True, None], "a": 'x"y'}, "f30e11011c10c5d0aa8bc6c5d5d3524c5674821d8e100c82b9c1de63bda884e8"),
        ({"amount": 4200, "currency": "EUR"}, "0cee494faadf93e1bd6d1aba298bfe4bfa51eae996c1ad61a7decab66c69a4df"),
        (1, "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
        ("1", "391552c099c101b131feaf24c5795a6a15bc8ec82015424e0d2b4274a369a0bf"),
        (None, "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
    ],
    ids=repr,
)
def test_the_fingerprints_of_the_table(value: Any, digest: str) -> None:
    """Check E158: pinned for ever."""
    assert fingerprint_of(value) == f"sha256:{digest}"


def test_order_counts_in_lists_and_not_in_objects() -> None:
    """Check E158: and a number is not its text."""
    assert fingerprint_of({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint_of({"b": {"d": 3, "c": 2}, "a": 1})
    assert fingerprint_of([1, 2]) != fingerprint_of([2, 1])
    assert fingerprint_of(1) != fingerprint_of("1")
    assert fingerprint_of(1) != fingerprint_of(1.0)
    assert fingerprint_of(None) != fingerprint_of({}) != fingerprint_of([])


def test_what_is_hashed_is_canonical_json() -> None:
    """Sorted by code point, no blanks, UTF-8, only control characters escaped."""
    value = {"é": "\n\x01\x7f\u2028", "z": [], "a\U0001f642": 1.5, "a\uffff": 0}
    canonical = '{"a\uffff":0,"a\U0001f642":1.5,"z":[],"é":"\\n\\u0001\x7f\u2028"}'
    assert fingerprint_of(value) == f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def shuffled(value: Any, seed: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(item, seed)) for key, item in value.items()]
        seed.shuffle(items)
        return dict(items)
    return [shuffled(item, seed) for item in value] if isinstance(value, list) else value


@given(json_values, st.randoms(use_true_random=False))
def test_the_order_of_keys_never_matters(value: Any, seed: random.Random) -> None:
    assert fingerprint_of(shuffled(value, seed)) == fingerprint_of(value)


@given(json_values, json_values)
def test_values_with_different_json_have_different_fingerprints(first: Any, second: Any) -> None:
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (fingerprint_of(first) == fingerprint_of(second)) == same


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": -math.inf}, {1: 2}, b"x", {1}], ids=repr)
def test_what_is_no_json_has_none(value: Any) -> None:
    """NaN and the infinities above all."""
    with pytest.raises(NotJsonError, match="input"):
        fingerprint_of(value)
