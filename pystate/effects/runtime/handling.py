"""Registering handlers, running effects by the name of one, and planning them in the transaction of a state change."""

from __future__ import annotations

from typing import Any, TypeVar, Unpack

from pystate import Transaction
from pystate.effects.ledger import EffectLedger
from pystate.effects.payload import ABSENT
from pystate.effects.record import EffectRecord
from pystate.effects.runtime.call import Call
from pystate.effects.runtime.code import Function
from pystate.effects.runtime.decorated import AsyncEffect, BoundEffect, Decorate, PlainEffect
from pystate.effects.runtime.facet import Facet
from pystate.effects.runtime.handlers import Handler, HandlerSettings
from pystate.effects.runtime.outcomes import Outcome

__all__ = ["Handling"]

O = TypeVar("O")  # noqa: E741 - output


class Handling(Facet):
    """The side of a runtime that knows handlers."""

    def register(self, handler: Handler[Any]) -> None:
        """Let recovery finish effects of this name, and undo them, with this handler. Registering it again is no error.

        Raises:
            ValueError: another handler has this name. EffectIdentityError: the name is not allowed.
            TypeError: not a `Handler`.
        """
        self._handlers.add(handler)

    def handler(self, name: str, **settings: Unpack[HandlerSettings]) -> Decorate:
        """As `Runtime.effect`, and registers what it makes (`HandlerSettings`).

        Returns:
            A decorator, which raises what `Handler` and `register` raise.
        """

        def decorate(function: Function) -> BoundEffect[Any]:
            description: Handler[Any] = Handler(name, function, **settings)
            self.register(description)
            kind = AsyncEffect if description.action.is_async else PlainEffect
            return kind(self, description, function)  # type: ignore[arg-type]  # a facet is a part of a `Runtime`

        return decorate  # type: ignore[return-value]  # which of the two classes, the overloads of `Decorate` say

    async def submit(
        self,
        handler: Handler[O] | str,
        key: object,
        input: object = ABSENT,  # noqa: A002
        *,
        actor: str | None = None,
    ) -> Outcome[O]:
        """Run an effect by its handler, or the name of one. If this process dies, recovery finishes it.

        Arguments:
            handler: a registered one.
            key, input, actor: as of `Runtime.run`. The input is stored in full, but for secrets.

        Returns:
            As `Runtime.run`.

        Raises:
            NotRegisteredError: it is not registered here. And what `Runtime.run` raises.
        """
        return await self.run(self._handlers.registered(handler), key, input, actor=actor)

    def submit_sync(
        self,
        handler: Handler[O] | str,
        key: object,
        input: object = ABSENT,  # noqa: A002
        *,
        actor: str | None = None,
    ) -> Outcome[O]:
        """`submit` for plain code. Raises the same."""
        return self._plain(self.submit(handler, key, input, actor=actor))

    def plan(
        self,
        txn: Transaction | EffectLedger,
        handler: Handler[Any] | str,
        key: object,
        input: object = ABSENT,  # noqa: A002
        *,
        actor: str | None = None,
    ) -> EffectRecord:
        """Record an effect in an open transaction, for recovery to run: it is done exactly if the transaction commits.

            def pay(txn: Transaction) -> None:
                txn.put("orders", b"order_1", b"paid")
                runtime.plan(txn, "mail.send", "order_1", {"to": "ann@example.org"})

            store.transact(pay)

        Planning what is recorded already changes nothing. Observers do not hear of it until it is run.

        Arguments:
            txn: a transaction of the store below an `EffectStore`, or the operations that `EffectStore.transact` hands
                out.
            handler: a registered one, or its name.
            key, input, actor: as of `Runtime.run`.

        Returns:
            Its record, as the transaction sees it.

        Raises:
            NotRegisteredError: it is not registered here.
            EffectIdentityError, EffectInputError, PolicyViolationError: as of `Runtime.run`.
            KindMismatchError, ContractMismatchError, InputMismatchError: it is recorded otherwise.
            TypeError: a transaction, and the store of the runtime is no `EffectStore`.
        """
        call = Call.new(self._parts, self._handlers.registered(handler), key, input, actor)
        record, inserted = self._operations(txn).insert_or_get(call.new_effect(self._parts.clock.now()))
        if not inserted:
            record.check_attach(call.effect.kind, call.contract, call.fingerprint)
        return record

    def _operations(self, txn: Transaction | EffectLedger) -> EffectLedger:
        if not isinstance(txn, Transaction):
            return txn
        bind = getattr(self._parts.store, "bind", None)
        if bind is None:
            raise TypeError(
                f"txn: {self._parts.store!r} cannot work in a transaction; hand over its operations instead"
            )
        operations: EffectLedger = bind(txn)
        return operations
