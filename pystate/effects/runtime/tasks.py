"""The tasks in which the work on effects is done: not those of the callers, so that a cancelled one loses no result."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pystate.effects.runtime.faults import InjectedCrash
from pystate.effects.runtime.parts import Parts
from pystate.errors import EffectInternalError, PystateError

__all__ = ["drain", "in_own_task"]

T = TypeVar("T")


async def in_own_task(parts: Parts, work: Coroutine[Any, Any, T]) -> T:
    """Run work on an effect in a task of its own, and wait for it. A caller that is cancelled leaves it running.

    Returns:
        What it returns.

    Raises:
        EffectInternalError: it crashed on purpose, was cancelled while its caller was not, or met a mistake.
        And every `PystateError` that it raises.
    """
    task = asyncio.create_task(work, name="pystate-effect")
    parts.tasks.add(task)
    task.add_done_callback(parts.tasks.discard)
    try:
        return await asyncio.shield(task)
    except PystateError:
        raise
    except InjectedCrash as crash:
        raise EffectInternalError(f"crashed on purpose at {crash.args[0]}") from crash
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if not task.done() or current is None or current.cancelling():
            raise
        raise EffectInternalError("its task was cancelled, as when an event loop ends") from None
    except Exception as error:
        raise EffectInternalError(f"{type(error).__name__}: {error}") from error


async def drain(parts: Parts) -> None:
    """Wait until the work of this event loop has ended."""
    loop = asyncio.get_running_loop()
    while mine := [task for task in parts.tasks.copy() if task.get_loop() is loop]:
        await asyncio.wait(mine)
