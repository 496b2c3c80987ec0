"""Calling the code of an effect: plain or ``async``, with one argument or two, each call in a task of its own.

A plain function runs in a thread of its own, which does not keep the process alive. Not in a pool: an action that hangs
would hold a place for ever, and one that waits for its turn would use up its timeout before it has begun.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

__all__ = ["Code", "Function", "HasInput", "in_thread"]

Function: TypeAlias = Callable[..., Any]
"""Code of an effect, plain or async."""


class HasInput(Protocol):
    """What code is called with first."""

    @property
    def input(self) -> Any:
        """What it is called with second, if it takes two arguments."""


class Code:
    """One function of an effect, looked at once.

    Arguments:
        function: takes a context, or a context and an input; plain or async.
        name: what it is, for the error.

    Raises:
        TypeError: it cannot be called so.
    """

    __slots__ = ("function", "is_async", "takes_input")

    def __init__(self, function: Function, name: str) -> None:
        if not callable(function):
            raise TypeError(f"{name}: expected a function, not {type(function).__name__}")
        self.function = function
        self.takes_input = _takes_input(function, name)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async method
        )

    async def run(self, context: HasInput) -> Any:
        """What the function returns. A plain one that returns an awaitable is awaited.

        Raises:
            RuntimeError: it raised `SystemExit`. Else whatever it raises.
        """
        arguments = (context, context.input) if self.takes_input else (context,)
        try:
            if self.is_async:
                return await self.function(*arguments)
            result = await in_thread(self.function, *arguments)
            return await result if inspect.isawaitable(result) else result
        except SystemExit as error:
            # It would end the event loop, and all other effects in it; the code of an effect may not decide that.
            raise RuntimeError(f"SystemExit: {error}") from error


def _takes_input(function: Function, name: str) -> bool:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in ones have none
        return False
    for arguments in ((None, None), (None,)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return len(arguments) == 2
    raise TypeError(f"{name}: a function {signature} takes neither a context, nor a context and an input")


async def in_thread(function: Function, *arguments: object) -> Any:
    """Call a plain function in a thread of its own, with the context variables of the task.

    A task that is cancelled does not wait for the thread, which runs on; what it returns is lost.

    Returns:
        What the function returned.

    Raises:
        Whatever it raised; a `RuntimeError` for what is no `Exception`.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            result: tuple[Any, BaseException | None] = (context.run(function, *arguments), None)
        except Exception as error:  # noqa: BLE001 - handed over to the task
            result = (None, error)
        except BaseException as error:  # noqa: BLE001 - what means something else in a task than in a thread
            wrapped = RuntimeError(f"{type(error).__name__}: {error}")
            wrapped.__cause__ = error
            result = (None, wrapped)
        try:
            loop.call_soon_threadsafe(_deliver, ended, result)
        except RuntimeError:
            pass  # the loop is closed, and so is the task

    threading.Thread(target=work, name="pystate-effect", daemon=True).start()
    value, error = await ended
    if error is None:
        return value
    try:
        raise error
    finally:
        del error  # it holds this frame, which holds it


def _deliver(ended: asyncio.Future[Any], result: tuple[Any, BaseException | None]) -> None:
    if not ended.done():
        ended.set_result(result)
