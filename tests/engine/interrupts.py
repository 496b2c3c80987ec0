"""An interrupt wherever a signal could bring one while some modules of the engine run (row 45)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import FrameType, ModuleType
from typing import Any


class Interrupt:
    """Raises KeyboardInterrupt at the `number`-th place at which the interpreter looks for signals, in this thread.

    That is at the beginning of a function and right behind a call of a function that is not written in Python; not in
    between, and not while a ``with`` takes or releases a lock.

    Attributes:
        hit: it has done so. places: how many there have been.
    """

    def __init__(self, number: int, *modules: ModuleType) -> None:
        self.number = number
        self.places = 0
        self.hit = False
        self._files = {module.__file__ for module in modules}

    def __enter__(self) -> Interrupt:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        # What is raised in a generator that is being thrown away goes nowhere.
        if event in ("call", "c_return") and code.co_filename in self._files and not code.co_flags & CO_GENERATOR:
            self.places += 1
            if self.places == self.number:
                self.hit = True
                raise KeyboardInterrupt


def at_each_place(action: Callable[[Interrupt], object], *modules: ModuleType) -> int:
    """Run `action` with an interrupt at the first place, at the second ..., until none is hit; how many there were."""
    number = 0
    while True:
        number += 1
        interrupt = Interrupt(number, *modules)
        action(interrupt)
        if not interrupt.hit:
            return number - 1
