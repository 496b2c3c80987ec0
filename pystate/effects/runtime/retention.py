"""How long settled effects are kept, and deleting those that are older. What is not settled is never deleted.

A key whose record is gone is unknown: calling it runs the effect anew, and the old one can no longer be undone here. So
an age must be longer than anybody may come back with the same key.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import msgspec

from pystate.effects.checks import as_duration
from pystate.effects.queries import PruneQuery
from pystate.effects.runtime.facet import Facet
from pystate.effects.runtime.parts import Parts
from pystate.effects.state import EffectStatus

__all__ = ["PRUNED_AT_ONCE", "PruneReport", "Pruning", "RetentionPolicy", "prune"]

PRUNED_AT_ONCE = 500
"""How many records are deleted in one commit at most."""


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long effects of each settled status are kept since their last transition; None is for ever.

        >>> from datetime import timedelta
        >>> from pystate.effects import RetentionPolicy
        >>> RetentionPolicy.settled(timedelta(days=30), failed=timedelta(days=7)).failed
        datetime.timedelta(days=7)

    Attributes:
        committed, failed, rejected, compensated: the age at which they may go.

    Raises:
        TypeError, ValueError: no duration, or a negative one.
    """

    committed: timedelta | None = None
    failed: timedelta | None = None
    rejected: timedelta | None = None
    compensated: timedelta | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            age = getattr(self, name)
            if age is not None:
                as_duration(age, name)

    @classmethod
    def settled(cls, age: timedelta, **others: timedelta | None) -> RetentionPolicy:
        """The same age for all four, but for those that are given. Raises what the class raises."""
        return cls(**{**dict.fromkeys(cls.__struct_fields__, age), **others})


@dataclass(frozen=True, slots=True)
class PruneReport:
    """How many effects were deleted, by their status."""

    committed: int = 0
    failed: int = 0
    rejected: int = 0
    compensated: int = 0

    @property
    def total(self) -> int:
        """How many in all."""
        return self.committed + self.failed + self.rejected + self.compensated


async def prune(parts: Parts, policy: RetentionPolicy) -> PruneReport:
    """`Runtime.prune`, which says what it does."""
    now = parts.clock.now()
    counts = {}
    for name in RetentionPolicy.__struct_fields__:
        age = getattr(policy, name)
        if age is None:
            continue
        query = PruneQuery(EffectStatus(name), age, now, PRUNED_AT_ONCE)
        counts[name], deleted = 0, PRUNED_AT_ONCE
        while deleted == PRUNED_AT_ONCE:
            deleted = await _delete(parts, query)
            counts[name] += deleted
    return PruneReport(**counts)


async def _delete(parts: Parts, query: PruneQuery) -> int:
    return await parts.store.transact_async(lambda operations: int(operations.prune(query)))


class Pruning(Facet):
    """The side of a runtime that deletes what is old."""

    _retention: RetentionPolicy

    async def prune(self) -> PruneReport:
        """Delete the settled effects that are older than the retention policy of the runtime keeps them.

        A commit for each 500. Without a policy nothing is deleted.

        Returns:
            How many went.

        Raises:
            What the store raises; what was deleted before that is gone.
        """
        return await prune(self._parts, self._retention)

    def prune_sync(self) -> PruneReport:
        """`prune` for plain code. Raises the same."""
        return self._plain(self.prune())
