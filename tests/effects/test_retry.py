"""Back-off, jitter and the budget of attempts."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.effects import FailureClass, RetryPolicy
from tests.effects.samples import seconds

DEFAULT = RetryPolicy()
TRANSIENT = FailureClass.TRANSIENT


def test_the_default_backs_off_to_30_seconds() -> None:
    """Check E103: doubled each time, and never longer."""
    assert [DEFAULT.backoff(retry) for retry in range(7)] == [seconds(n) for n in (1, 2, 4, 8, 16, 30, 30)]
    assert DEFAULT.backoff(2**32 - 1) == seconds(30)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [(0, 2), (0.5, 3), (1, 4), (-3, 2), (math.nan, 2), (math.inf, 2), (-math.inf, 2), (7, 4)],
)
def test_jitter_takes_up_to_half_of_it(sample: float, expected: float) -> None:
    """Check E104: a sample outside 0 to 1 counts as an end, one that is no number as 0."""
    assert DEFAULT.delay(2, TRANSIENT, sample) == seconds(expected)


def test_without_jitter_the_sample_does_not_matter() -> None:
    policy = RetryPolicy(jitter=False)
    assert {policy.delay(2, TRANSIENT, sample) for sample in (0, 0.5, 1, math.nan)} == {seconds(4)}


def test_a_remote_may_ask_for_more_than_the_longest_delay() -> None:
    """Check E105: and for less, which does not shorten it."""
    assert DEFAULT.delay(0, FailureClass.rate_limited(seconds(120)), 0) == seconds(120)
    assert DEFAULT.delay(5, FailureClass.rate_limited(seconds(5)), 0) == seconds(15)
    assert DEFAULT.delay(5, FailureClass.rate_limited(), 0) == seconds(15)


def test_odd_policies() -> None:
    """Check E106: no number, less than one, infinity, and a first delay above the longest."""
    assert RetryPolicy(multiplier=math.nan).backoff(5) == seconds(1)
    assert RetryPolicy(multiplier=0.5).backoff(5) == seconds(1)
    assert RetryPolicy(initial_delay=seconds(0), multiplier=math.inf).backoff(1) == seconds(0)
    assert RetryPolicy(initial_delay=seconds(5), max_delay=seconds(3)).backoff(0) == seconds(3)
    assert RetryPolicy(initial_delay=seconds(0.25), multiplier=3).backoff(3) == seconds(6.75)
    assert RetryPolicy(multiplier=math.inf).backoff(0) == seconds(1)
    assert RetryPolicy(multiplier=math.inf).backoff(1) == seconds(30)
    assert RetryPolicy(multiplier=-math.inf).backoff(3) == seconds(1)
    assert RetryPolicy(max_delay=timedelta.max, multiplier=1e300).backoff(7) == timedelta.max


def test_the_budget() -> None:
    """Check E107: the first attempt counts."""
    assert not RetryPolicy.NONE.allows_another(1)
    assert RetryPolicy.NONE.allows_another(0)
    assert DEFAULT.allows_another(4) and not DEFAULT.allows_another(5)
    assert RetryPolicy.NONE.delay(0, TRANSIENT, 1) == seconds(0)


def test_the_default_and_none_are_as_they_are_written_down() -> None:
    assert DEFAULT == RetryPolicy(
        max_attempts=5, initial_delay=seconds(1), max_delay=seconds(30), multiplier=2.0, jitter=True
    )
    none = RetryPolicy.NONE
    assert (none.max_attempts, none.initial_delay, none.max_delay) == (1, seconds(0), seconds(0))
    assert (none.multiplier, none.jitter) == (1.0, False)


policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(0, 2**32 - 1),
    initial_delay=st.timedeltas(min_value=timedelta(0)),
    max_delay=st.timedeltas(min_value=timedelta(0)),
    multiplier=st.floats() | st.floats(0.5, 5),
    jitter=st.booleans(),
)
retries = st.integers(0, 2**32 - 1) | st.integers(0, 20)


@given(policies, retries, st.floats())
def test_a_delay_is_between_half_of_the_backoff_and_all_of_it(policy: RetryPolicy, retry: int, sample: float) -> None:
    backoff = policy.backoff(retry)
    assert timedelta(0) <= backoff <= policy.max_delay
    delay = policy.delay(retry, TRANSIENT, sample)
    half = backoff / 2 if policy.jitter else backoff
    assert half - timedelta.resolution <= delay <= backoff


@given(policies, st.integers(0, 40))
def test_backoff_never_shrinks(policy: RetryPolicy, retry: int) -> None:
    assert policy.backoff(retry) <= policy.backoff(retry + 1)


@given(policies, retries, st.timedeltas(min_value=timedelta(0)), st.floats(0, 1))
def test_what_a_remote_asks_for_is_kept(policy: RetryPolicy, retry: int, asked: timedelta, sample: float) -> None:
    assert policy.delay(retry, FailureClass.rate_limited(asked), sample) >= asked


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"max_attempts": -1}, ValueError),
        ({"max_attempts": 2**32}, ValueError),
        ({"max_attempts": 1.0}, TypeError),
        ({"initial_delay": -seconds(1)}, ValueError),
        ({"initial_delay": 1}, TypeError),
        ({"max_delay": -seconds(1)}, ValueError),
        ({"multiplier": "2"}, TypeError),
        ({"multiplier": True}, TypeError),
        ({"jitter": 1}, TypeError),
    ],
    ids=str,
)
def test_wrong_policies_are_refused(fields: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=next(iter(fields))):
        RetryPolicy(**fields)


def test_a_negative_retry_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        DEFAULT.backoff(-1)
