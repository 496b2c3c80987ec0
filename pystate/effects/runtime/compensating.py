"""`Runtime.compensate`: undoing an effect by its key."""

from __future__ import annotations

from typing import Any

from pystate.effects.checks import as_instance, as_text
from pystate.effects.ids import EffectKey, EffectName, LogicalKey
from pystate.effects.runtime.compensation import undo
from pystate.effects.runtime.facet import Facet
from pystate.effects.runtime.handlers import Handler
from pystate.effects.runtime.outcomes import CompensationOutcome
from pystate.errors import EffectIdentityError, IdentityError, NoSuchEffectError, NotCompensableError

__all__ = ["Compensating"]


class Compensating(Facet):
    """The side of a runtime that undoes effects."""

    async def compensate(
        self, handler: Handler[Any] | str, key: object, *, reason: str | None = None, actor: str | None = None
    ) -> CompensationOutcome:
        """Undo a committed effect. What has been undone is not undone again; what is not committed is left alone.

        The work is done by a task of its own, as that of `Runtime.run` is.

        Arguments:
            handler: of the effect; need not be registered. Or the name of a registered one.
            key: of the effect.
            reason: why; stands in the trail.
            actor: who asks; stands in the trail.

        Returns:
            `Compensated`; `Failed` when it was given up, and a person must decide; `InProgress` when somebody else
            works on it; `NotCommitted`.

        Raises:
            NotRegisteredError: a name that no handler has. NotCompensableError: the handler cannot undo.
            NoSuchEffectError: nothing is recorded under this key. EffectIdentityError: the key is not allowed.
            KindMismatchError, ContractMismatchError: it is recorded with another kind, or under another contract.
            InputPayloadError, StoredInputError, OutputPayloadError, OutputError: what is stored cannot be read.
            EffectInternalError: the work ended without an outcome. ClosedError: the runtime is closed.
            And what the store raises.
        """
        self._check_open()
        if reason is not None:
            as_text(reason, "reason")
        if actor is not None:
            as_text(actor, "actor")
        if isinstance(handler, str):
            handler = self._handlers.registered(handler)
        as_instance(handler, Handler, "handler")
        if handler.compensate is None:
            raise NotCompensableError(handler.name)
        try:
            effect_key = EffectKey(EffectName(handler.name), LogicalKey(str(key)))
        except IdentityError as error:
            raise EffectIdentityError(error) from error
        record = self._parts.store.get_by_key(effect_key)
        if record is None:
            raise NoSuchEffectError(str(effect_key))
        return await undo(self._parts, handler, record, reason, actor)

    def compensate_sync(
        self, handler: Handler[Any] | str, key: object, *, reason: str | None = None, actor: str | None = None
    ) -> CompensationOutcome:
        """`compensate` for plain code. Raises the same."""
        return self._plain(self.compensate(handler, key, reason=reason, actor=actor))
