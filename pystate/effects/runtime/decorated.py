"""Effects that are called like the functions they are made of: what ``@runtime.effect(...)`` makes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar, overload

from pystate.effects.payload import ABSENT
from pystate.effects.runtime.effect import Effect
from pystate.effects.runtime.outcomes import Outcome

__all__ = ["AsyncEffect", "BoundEffect", "Decorate", "PlainEffect", "Runs"]

O = TypeVar("O")  # noqa: E741 - output


class Runs(Protocol):
    """What runs an effect: a `Runtime`."""

    async def run(self, effect: Effect[O], key: object, input: object = ..., *, actor: str | None = ...) -> Outcome[O]:  # noqa: A002
        """Run an effect."""
        ...

    def run_sync(self, effect: Effect[O], key: object, input: object = ..., *, actor: str | None = ...) -> Outcome[O]:  # noqa: A002
        """Run an effect, from plain code."""
        ...


class BoundEffect(Generic[O]):
    """An effect and the runtime that runs it.

    Attributes:
        effect: its description.
        function: its action, as it was written; call it to try it without any record.
    """

    def __init__(self, runtime: Runs, effect: Effect[O], function: Callable[..., Any]) -> None:
        self.effect = effect
        self.function = function
        self._runtime = runtime
        # Not `functools.update_wrapper`, which would promise the signature of the function.
        self.__name__ = getattr(function, "__name__", effect.name)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    async def run(self, key: object, input: object = ABSENT, *, actor: str | None = None) -> Outcome[O]:  # noqa: A002
        """Run it with this key and input; see `Runtime.run`."""
        return await self._runtime.run(self.effect, key, input, actor=actor)

    def run_sync(self, key: object, input: object = ABSENT, *, actor: str | None = None) -> Outcome[O]:  # noqa: A002
        """Run it with this key and input, from plain code; see `Runtime.run_sync`."""
        return self._runtime.run_sync(self.effect, key, input, actor=actor)

    def __repr__(self) -> str:
        return repr(self.effect)


class AsyncEffect(BoundEffect[O]):
    """An effect made of an ``async`` function: calling it is `run`."""

    async def __call__(self, key: object, input: object = ABSENT, *, actor: str | None = None) -> Outcome[O]:  # noqa: A002
        """Run it with this key and input; see `Runtime.run`."""
        return await self._runtime.run(self.effect, key, input, actor=actor)


class PlainEffect(BoundEffect[O]):
    """An effect made of a plain function: calling it is `run_sync`."""

    def __call__(self, key: object, input: object = ABSENT, *, actor: str | None = None) -> Outcome[O]:  # noqa: A002
        """Run it with this key and input; see `Runtime.run_sync`."""
        return self._runtime.run_sync(self.effect, key, input, actor=actor)


class Decorate(Protocol):
    """What ``runtime.effect(name, ...)`` returns: it makes an effect of a function."""

    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, O]], /) -> AsyncEffect[O]: ...  # type: ignore[overload-overlap]  # an async function is also a plain one
    @overload
    def __call__(self, function: Callable[..., O], /) -> PlainEffect[O]: ...
