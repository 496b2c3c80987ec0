"""Handlers: effects that a runtime knows by name, so that it can finish them without their caller, and undo them.

A handler is an `Effect`, and may also have a compensation. Where its record is found again, by recovery or by an
operator, its code is looked up by the name of the effect::

    BOOK = Handler("hotel.book", book, verify=look_up, compensate=cancel)
    runtime.register(BOOK)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, Unpack, overload

from pystate.effects.checks import as_instance
from pystate.effects.ids import EffectName
from pystate.effects.runtime.code import Code, Function
from pystate.effects.runtime.effect import Effect, EffectSettings
from pystate.errors import EffectIdentityError, IdentityError, NotRegisteredError

__all__ = ["Handler", "HandlerSettings", "Handlers"]

O = TypeVar("O")  # noqa: E741 - output


class HandlerSettings(EffectSettings, total=False):
    """The settings of a handler, all by name: those of an effect, and one more.

    Attributes:
        compensate: undoes a committed effect: a function, plain or async, of a `CompensationContext`, or of that and
            the input. It may be called several times for one effect, with the same key, and must undo it once.
    """

    compensate: Function | None


class Handler(Effect[O]):
    """The description of an effect that can be finished without its caller, and perhaps undone.

    Its input comes from the store, with secrets masked, so the action must get secrets from elsewhere.

    Arguments:
        name, action: as of an `Effect`.
        settings: see `HandlerSettings`; each is an attribute as well.

    Raises:
        TypeError, ValueError: as of an `Effect`; a compensation that cannot be called so.
    """

    @overload
    def __init__(
        self: Handler[O], name: str, action: Callable[..., Coroutine[Any, Any, O]], **settings: Unpack[HandlerSettings]
    ) -> None: ...

    @overload
    def __init__(
        self: Handler[O], name: str, action: Callable[..., O], **settings: Unpack[HandlerSettings]
    ) -> None: ...

    def __init__(self, name: str, action: Function, **settings: Unpack[HandlerSettings]) -> None:
        compensate = settings.pop("compensate", None)
        super().__init__(name, action, **settings)  # type: ignore[call-overload]  # what is left are those of an effect
        self.compensate = None if compensate is None else Code(compensate, "compensate")


class Handlers:
    """The handlers of one runtime, by the name of their effect. Any thread may use it."""

    def __init__(self) -> None:
        self._by_name: dict[str, Handler[Any]] = {}

    def add(self, handler: Handler[Any]) -> None:
        """Let this handler stand for its name.

        Raises:
            EffectIdentityError: the name is not allowed. ValueError: another handler has it. TypeError: no handler.
        """
        as_instance(handler, Handler, "handler")
        try:
            name = EffectName(handler.name)
        except IdentityError as error:
            raise EffectIdentityError(error) from error
        if self._by_name.setdefault(name, handler) is not handler:
            raise ValueError(
                f"handler: effects named {handler.name!r} have a handler already; give this one another name"
            )

    def find(self, name: str) -> Handler[Any] | None:
        """The handler of this name, or None."""
        return self._by_name.get(name)

    def registered(self, handler: Handler[Any] | str) -> Handler[Any]:
        """The handler that is meant by a name; a handler itself must be the registered one.

        Raises:
            NotRegisteredError: it is not registered. TypeError: neither a name nor a handler.
        """
        name = handler if isinstance(handler, str) else as_instance(handler, Handler, "handler").name
        found = self._by_name.get(name)
        if found is None or (found is not handler and not isinstance(handler, str)):
            raise NotRegisteredError(name)
        return found
