"""What people decide: settling what the runtime cannot tell, and approving or denying what awaits it.

A decision is one commit without a lease: it is refused while somebody works on the effect. It stands in the trail, with
who made it and the note, redacted like everything else.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pystate.effects.checks import as_instance, as_text, as_u32
from pystate.effects.ids import EffectId
from pystate.effects.kinds import ErrorRecord
from pystate.effects.ledger import RecordList
from pystate.effects.payload import ABSENT, AbsentType, JsonValue
from pystate.effects.queries import ListQuery
from pystate.effects.record import EffectRecord
from pystate.effects.redaction import to_json
from pystate.effects.runtime.facet import Facet
from pystate.effects.runtime.parts import Parts
from pystate.effects.runtime.writing import commit
from pystate.effects.state import Transition

__all__ = ["Operating", "Resolution"]


class Resolution(msgspec.Struct, frozen=True):
    """What a person has found out about an effect whose outcome is unknown, or wants to be done. Made by its methods.

    Attributes:
        decided: which one it is.
        output: of an effect that happened, or `ABSENT`.
        output_schema_version: of that output.
    """

    decided: Literal["applied", "not_applied", "retry", "compensated"]
    output: JsonValue | AbsentType = ABSENT
    output_schema_version: int = 1

    @classmethod
    def applied(cls, output: object = ABSENT, *, output_schema_version: int = 1) -> Resolution:
        """It happened. With an output, later calls report that; without one they can report none.

        Raises:
            NotJsonError: the output has no JSON form. TypeError, ValueError: the version is no small positive number.
        """
        value = ABSENT if output is ABSENT else to_json(output, "output")
        return cls("applied", value, as_u32(output_schema_version, "output_schema_version"))

    @classmethod
    def not_applied(cls) -> Resolution:
        """It did not happen, and is not to be tried again: it failed."""
        return cls("not_applied")

    @classmethod
    def retry(cls) -> Resolution:
        """Attempt it again (or its compensation, if that had failed), once, though the attempts may be used up."""
        return cls("retry")

    @classmethod
    def compensated(cls) -> Resolution:
        """Its compensation had failed, and it was undone by other means."""
        return cls("compensated")


_TRANSITIONS = {
    "applied": Transition.RESOLVED_APPLIED,
    "not_applied": Transition.RESOLVED_NOT_APPLIED,
    "retry": Transition.RESOLVED_RETRY,
    "compensated": Transition.RESOLVED_COMPENSATED,
}


class Operating(Facet):
    """The side of a runtime that people use. None of it runs code of an effect; all of it works without handlers."""

    def pending(self, *, after: EffectId | None = None, limit: int = 100) -> RecordList:
        """The effects that are not settled and that nobody works on now, in the order of their ids.

        Arguments:
            after: only greater ids: the last one of the page before.
            limit: at most so many.
        """
        return self._parts.store.list(ListQuery.pending(self._parts.clock.now(), limit=limit, after=after))

    async def resolve(
        self,
        id: EffectId,  # noqa: A002
        resolution: Resolution,
        actor: str,
        note: str = "",
    ) -> EffectRecord:
        """Settle an effect whose outcome is unknown, or whose compensation has failed.

        Arguments:
            id: of its record.
            resolution: what has been found out, or is to be done.
            actor: who decides.
            note: why; of one that did not happen this is also the error.

        Returns:
            The record after it.

        Raises:
            EffectNotFoundError: there is no such effect. InvalidTransitionError: there is nothing of the kind to
            decide. LeaseHeldError: somebody works on it. TypeError: an argument of another type.
        """
        as_instance(resolution, Resolution, "resolution")
        failed = resolution.decided == "not_applied"
        return await _decide(
            self._parts,
            id,
            _TRANSITIONS[resolution.decided],
            actor,
            as_text(note, "note"),
            error=ErrorRecord(failure_class=None, message=note) if failed else None,
            output=resolution.output,
            output_schema_version=resolution.output_schema_version,
        )

    def resolve_sync(
        self,
        id: EffectId,  # noqa: A002
        resolution: Resolution,
        actor: str,
        note: str = "",
    ) -> EffectRecord:
        """`resolve` for plain code. Raises the same."""
        return self._plain(self.resolve(id, resolution, actor, note))

    async def approve(self, id: EffectId, actor: str, note: str = "") -> EffectRecord:  # noqa: A002
        """Approve an effect that awaits it. It is then run by the next call, or by recovery.

        Arguments:
            id: of its record.
            actor: who approves.
            note: for the trail.

        Returns:
            The record after it.

        Raises:
            EffectNotFoundError: there is no such effect. InvalidTransitionError: it awaits no approval.
            LeaseHeldError: somebody works on it. TypeError: an argument of another type.
        """
        return await _decide(self._parts, id, Transition.APPROVE, actor, as_text(note, "note"))

    def approve_sync(self, id: EffectId, actor: str, note: str = "") -> EffectRecord:  # noqa: A002
        """`approve` for plain code. Raises the same."""
        return self._plain(self.approve(id, actor, note))

    async def deny(self, id: EffectId, actor: str, reason: str) -> EffectRecord:  # noqa: A002
        """Deny an effect that awaits approval: it is rejected, for ever.

        Arguments:
            id: of its record.
            actor: who denies.
            reason: why; stands in the trail, and as the error.

        Returns:
            The record after it.

        Raises:
            As `approve`.
        """
        error = ErrorRecord(failure_class=None, message=as_text(reason, "reason"))
        return await _decide(self._parts, id, Transition.DENY, actor, reason, error=error)

    def deny_sync(self, id: EffectId, actor: str, reason: str) -> EffectRecord:  # noqa: A002
        """`deny` for plain code. Raises the same."""
        return self._plain(self.deny(id, actor, reason))


async def _decide(
    parts: Parts,
    id: EffectId,  # noqa: A002
    transition: Transition,
    actor: str,
    note: str,
    **fields: Any,
) -> EffectRecord:
    as_text(actor, "actor")
    return await commit(
        parts,
        lambda batch: batch.transition(batch.get(id), None, transition, actor=actor, payload={"note": note}, **fields),
    )
