"""A fake remote that counts: scripted, and as unreliable as real ones are.

Its methods are used as code of an effect: `create` as the action, `look_up` as the lookup, `undo` as the compensation.
Time comes from the clock of the test, so nothing here sleeps.
"""

from __future__ import annotations

import asyncio
import enum
from datetime import datetime, timedelta
from typing import Any

from pystate.effects import Clock, EffectContext, EffectFailure, IdempotencyKey, Verification

__all__ = ["Reply", "Remote"]


class Reply(enum.Enum):
    """What the remote does with a request."""

    APPLY = enum.auto()
    """Applies it, and answers."""
    APPLY_AND_DROP = enum.auto()
    """Applies it; the answer is lost: ambiguous."""
    DROP = enum.auto()
    """The request is lost: ambiguous as well."""
    HANG = enum.auto()
    """Never answers, and applies nothing."""
    APPLY_AND_HANG = enum.auto()
    """Applies it, and never answers."""


class Remote:
    """The outside world.

    Arguments:
        clock: of the test.
        script: what it does with one request after the other: a reply, or an exception to raise (nothing is applied
            then). After the last it applies and answers.
        honours_keys: for a key that it has applied, it gives the first answer, before it looks at the script.
        lag: how long after it was applied a lookup does not find it.
        lookups: what it answers one lookup after the other: an answer, or an exception to raise. After the last it
            looks.

    Attributes:
        calls: the idempotency keys of all requests that have arrived, in order.
        created: what was applied: the key of each creation, and its answer.
        looked_up: how many lookups there were.
        undone: the keys of all undoings.
    """

    def __init__(
        self,
        clock: Clock,
        script: list[Reply | Exception] | None = None,
        *,
        honours_keys: bool = False,
        lag: timedelta = timedelta(0),
        lookups: list[Verification[Any] | Exception] | None = None,
    ) -> None:
        self.clock = clock
        self.script = list(script or [])
        self.honours_keys = honours_keys
        self.lag = lag
        self.lookups = list(lookups or [])
        self.calls: list[IdempotencyKey] = []
        self.created: list[tuple[IdempotencyKey, str]] = []
        self.applied_at: list[datetime] = []
        self.looked_up = 0
        self.undone: list[IdempotencyKey] = []

    async def create(self, context: EffectContext) -> str:
        """Do it, or what the script says."""
        self.calls.append(context.idempotency_key)
        if self.honours_keys:
            for key, answer in self.created:
                if key == context.idempotency_key:
                    return answer
        reply = self.script.pop(0) if self.script else Reply.APPLY
        if isinstance(reply, Exception):
            raise reply
        if reply is Reply.DROP:
            raise EffectFailure.ambiguous("the connection broke")
        if reply is Reply.HANG:
            await asyncio.Event().wait()
        answer = self.apply(context.idempotency_key)
        if reply is Reply.APPLY_AND_DROP:
            raise EffectFailure.ambiguous("the connection broke")
        if reply is Reply.APPLY_AND_HANG:
            await asyncio.Event().wait()
        return answer

    def apply(self, key: IdempotencyKey) -> str:
        """Change the outside world, and count it."""
        answer = f"res_{len(self.created) + 1}"
        self.created.append((key, answer))
        self.applied_at.append(self.clock.now())
        return answer

    async def look_up(self, context: EffectContext) -> Verification[str]:
        """Whether it has been done; what is newer than the lag is not found."""
        self.looked_up += 1
        if self.lookups:
            scripted = self.lookups.pop(0)
            if isinstance(scripted, Exception):
                raise scripted
            return scripted
        for (key, answer), at in zip(self.created, self.applied_at, strict=True):
            if key == context.idempotency_key and at + self.lag <= self.clock.now():
                return Verification.confirmed(answer)
        return Verification.not_applied()

    async def undo(self, context: Any) -> None:
        """Undo it; undoing it again changes nothing."""
        if context.idempotency_key not in self.undone:
            self.undone.append(context.idempotency_key)
