"""When an attempt is repeated: the budget of attempts, the back-off between them, and its jitter. Pure arithmetic."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import ClassVar

import msgspec

from pystate.effects.checks import as_duration, as_instance, as_u32
from pystate.effects.kinds import FailureClass

__all__ = ["RetryPolicy"]

_EXPONENT_MAX = 2**31 - 1


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often an effect is attempted, and how long after one attempt the next one begins.

    Attributes:
        max_attempts: the budget over the whole life of an effect; the first attempt counts.
        initial_delay: before the first retry.
        max_delay: the longest back-off. A remote that asks for a longer wait gets it.
        multiplier: how much longer each back-off is than the one before; below 1, or not a number, counts as 1.
        jitter: spread the delays over the upper half of the back-off, so that callers do not come back all at once.

    Raises:
        TypeError, ValueError: a field has another type, or is negative.
    """

    max_attempts: int = 5
    initial_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(seconds=30)
    multiplier: float = 2.0
    jitter: bool = True

    NONE: ClassVar[RetryPolicy]
    """One attempt, and no retry."""

    def __post_init__(self) -> None:
        as_u32(self.max_attempts, "max_attempts")
        as_duration(self.initial_delay, "initial_delay")
        as_duration(self.max_delay, "max_delay")
        if isinstance(self.multiplier, bool) or not isinstance(self.multiplier, float | int):
            raise TypeError(f"multiplier: expected a number, not {type(self.multiplier).__name__}")
        as_instance(self.jitter, bool, "jitter")

    def allows_another(self, made: int) -> bool:
        """Whether another attempt fits into the budget after `made` of them."""
        return made < self.max_attempts

    def backoff(self, retry: int) -> timedelta:
        """The longest wait before a retry.

        Arguments:
            retry: which one; 0 is the first.

        Raises:
            ValueError: negative.
        """
        if retry < 0:
            raise ValueError(f"retry: {retry} is negative; the first retry is 0")
        multiplier = max(1.0, self.multiplier)  # 1.0 also for NaN, which is not above it
        seconds = self.initial_delay.total_seconds() * _power(multiplier, min(retry, _EXPONENT_MAX))
        if math.isnan(seconds):  # no delay, infinitely often
            return timedelta(0)
        if seconds >= self.max_delay.total_seconds():
            return self.max_delay
        return timedelta(seconds=seconds)

    def delay(self, retry: int, failure_class: FailureClass, sample: float) -> timedelta:
        """The wait before a retry, from half of the back-off to all of it, or as long as the remote asks for.

        Arguments:
            retry: which one; 0 is the first.
            failure_class: how the attempt before it failed.
            sample: a random number between 0 and 1. Outside it counts as the nearer end; not finite, as 0.

        Raises:
            ValueError: `retry` is negative.
        """
        delay = self.backoff(retry)
        if self.jitter:
            share = min(max(sample, 0.0), 1.0) if math.isfinite(sample) else 0.0
            delay = min(delay * (0.5 + 0.5 * share), delay)
        asked = failure_class.retry_after
        return delay if asked is None else max(delay, asked)


def _power(base: float, exponent: int) -> float:
    try:
        return float(base) ** exponent
    except OverflowError:
        return math.inf


RetryPolicy.NONE = RetryPolicy(
    max_attempts=1, initial_delay=timedelta(0), max_delay=timedelta(0), multiplier=1.0, jitter=False
)
