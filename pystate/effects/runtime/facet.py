"""What the classes share that make up `Runtime`, each for one subject; `Runtime` itself provides it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

from pystate.effects.payload import ABSENT
from pystate.effects.runtime.effect import Effect
from pystate.effects.runtime.handlers import Handlers
from pystate.effects.runtime.outcomes import Outcome
from pystate.effects.runtime.parts import Parts

__all__ = ["Facet"]

T = TypeVar("T")
O = TypeVar("O")  # noqa: E741 - output


class Facet(ABC):
    """One side of a `Runtime`; never used alone."""

    _parts: Parts
    _handlers: Handlers

    @abstractmethod
    async def run(
        self,
        effect: Effect[O],
        key: object,
        input: object = ABSENT,  # noqa: A002
        *,
        actor: str | None = None,
    ) -> Outcome[O]:
        """See `Runtime.run`."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise `ClosedError` if the runtime is closed."""

    @abstractmethod
    def _plain(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a caller without an event loop."""
