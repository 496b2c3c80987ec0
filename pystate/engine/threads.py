"""The seam between the engine and the threads: locks, sleeping, chance.

Promise: every lock, wait and random delay of the engine comes from here, so that a test can put yield points around
them and explore the orders in which threads may run. There is nothing else in it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

__all__ = ["back_off", "back_off_seconds", "new_event", "new_lock", "pause", "start_thread"]


def new_lock() -> threading.Lock:
    """A lock that one thread may acquire and another release."""
    return threading.Lock()


def new_event() -> threading.Event:
    """An event: threads wait until another one sets it."""
    return threading.Event()


def start_thread(name: str, target: Callable[[], None]) -> threading.Thread:
    """Run `target` in a thread that does not keep the interpreter alive."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def pause(seconds: float) -> None:
    """Let others run before looking again."""
    time.sleep(seconds)


def back_off(attempt: int) -> None:
    """Sleep before trying a transaction again, for `back_off_seconds`."""
    time.sleep(back_off_seconds(attempt))


def back_off_seconds(attempt: int) -> float:
    """How long to wait before trying a transaction again: random, and longer with each `attempt` (from 0), at most 50
    ms. A task of an event loop waits by itself."""
    return random.random() * min(0.05, 0.0002 * 2.0 ** min(attempt, 10))
