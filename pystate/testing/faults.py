"""Faults: what to do to the n-th call of an operation of a `SimulatedDisk`.

Promise: a fault hits exactly the calls it names, counted from the moment it is injected, and does to the disk only
what it says. The names of operations are those of the seam, `pystate.Files`, `pystate.File` and the lock: `OPERATIONS`.

What a failing sync means is the choice of `pages`, since systems differ:

==============  =======================================================================================================
``"kept"``      what was written stays as it was, cached and not durable: the next sync that succeeds makes it durable
``"cached"``    it stays readable, but is taken for written: no later sync makes it durable, and power loss takes it
``"dropped"``   it is thrown away: the file keeps its size and reads as it was before, or as zeros; later syncs succeed
==============  =======================================================================================================

A close or a release that fails gives back what it held nevertheless. With ``after=True`` a call does all its work and
fails then: an error that tells of a success. With ``error=None`` a sync that loses pages reports success: a disk that
lies.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = [
    "OPERATIONS",
    "Fault",
    "Faults",
    "Raised",
    "disk_full",
    "failing",
    "failure",
    "lost_sync",
    "short",
    "turns_read_only",
]

OPERATIONS = (
    "open_read", "open_append", "create", "replace", "unlink", "list_directory", "kind", "make_directory",
    "sync_directory", "lock", "still_held", "release", "write", "read_at", "sync", "truncate", "size", "close",
)  # fmt: skip
"""Every operation that is counted and can fail; ``"any"`` in a fault stands for all of them."""

Raised: TypeAlias = int | type[BaseException] | BaseException | None
"""What a fault raises: an error number, which becomes an ``OSError``; an exception, or its class; or nothing."""


def failure(number: int, path: str = "") -> OSError:
    """The error that an operating system raises for this error number."""
    return OSError(number, os.strerror(number), path)


@dataclass(frozen=True, kw_only=True)
class _Options:
    error: Raised = errno.EIO
    times: int | None = 1
    after: bool = False
    path: str = ""
    take: int | None = None
    pages: Literal["kept", "cached", "dropped"] = "kept"
    effect: Callable[[Any], object] | None = None


@dataclass(frozen=True)
class Fault(_Options):
    """What to do to the `n`-th call of `operation`. Immutable: one may be injected into many disks.

    Attributes:
        operation: one of `OPERATIONS`, or ``"any"``.
        n: which call, from 1 on, counted from the injection.
        error: what to raise. With None the call goes on: with `take`, `pages` or `effect` as its only fault.
        times: how many calls in a row fail, from the n-th on; None for all of them.
        after: do the work of the call first, then raise.
        path: count only calls whose path ends so.
        take: of a write or read, take only so many bytes; at least 1. With an `error` this needs ``after=True``.
        pages: what a failing sync does to what was written; see the module.
        effect: called with the disk before the call does anything: make it read-only, set its quota, remove a file.

    Raises:
        ValueError: there is no such operation, or `n` is less than 1.
    """

    operation: str
    n: int = 1

    def __post_init__(self) -> None:
        if self.operation != "any" and self.operation not in OPERATIONS:
            raise ValueError(f"{self.operation!r} is no operation of a disk; there are: any, {', '.join(OPERATIONS)}")
        if self.n < 1:
            raise ValueError(f"calls are counted from 1, not from {self.n}")

    def hits(self, call: int) -> bool:
        """Whether the call of this number, from 1 on, is one of those that the fault is for."""
        return call >= self.n and (self.times is None or call < self.n + self.times)

    def strike(self, path: str) -> None:
        """Raise what the fault raises, if anything."""
        if isinstance(self.error, int):
            raise failure(self.error, path)
        if self.error is not None:
            raise self.error

    def __str__(self) -> str:
        what = errno.errorcode.get(self.error, str(self.error)) if isinstance(self.error, int) else repr(self.error)
        place = f" of a path with the end {self.path!r}" if self.path else ""
        more = " and every later one" if self.times is None else ""
        parts = [f"{self.operation} call {self.n}{place}{more}: {what}"]
        if self.times is not None and self.times > 1:
            parts.append(f"{self.times} times")
        if self.after:
            parts.append("after its work")
        if self.take is not None:
            parts.append(f"only {self.take} bytes taken")
        if self.pages != "kept":
            parts.append(f"pages {self.pages}")
        return ", ".join(parts)


class Faults:
    """The faults injected into one disk, and how far each has counted."""

    def __init__(self) -> None:
        self._armed: list[tuple[Fault, list[int]]] = []
        self.fired: list[Fault] = []

    def __bool__(self) -> bool:
        return bool(self._armed)

    def add(self, fault: Fault) -> None:
        """From now on."""
        self._armed.append((fault, [0]))

    def clear(self) -> None:
        """No faults from now on; `fired` stays."""
        self._armed.clear()

    def next(self, operation: str, path: str) -> list[Fault]:
        """Count a call; return the faults that are for it, in the order in which they were injected."""
        found = []
        for fault, calls in self._armed:
            if fault.operation in (operation, "any") and path.endswith(fault.path):
                calls[0] += 1
                if fault.hits(calls[0]):
                    found.append(fault)
        self.fired += found
        return found


def failing(operation: str, n: int = 1, error: Raised = errno.EIO, *, times: int | None = 1) -> Fault:
    """The `n`-th call of `operation` fails and does nothing, `times` times in a row or (None) for ever."""
    return Fault(operation, n, error=error, times=times)


def short(operation: str, n: int = 1, *, take: int = 1, times: int | None = 1) -> Fault:
    """The `n`-th ``"write"`` or ``"read_at"`` takes only `take` bytes, and says so."""
    return Fault(operation, n, error=None, take=take, times=times)


def lost_sync(
    n: int = 1,
    *,
    pages: Literal["cached", "dropped"] = "dropped",
    error: Raised = errno.EIO,
    times: int | None = 1,
    path: str = "",
) -> Fault:
    """The `n`-th sync of a file fails and loses what was written; later ones succeed. ``error=None``: nobody knows."""
    return Fault("sync", n, error=error, pages=pages, times=times, path=path)


def disk_full(n: int = 1, *, room: int = 0, calls: int | None = None) -> tuple[Fault, ...]:
    """From the `n`-th write on only `room` more bytes fit, in all.

    Arguments:
        n: which write, from 1 on.
        room: how many bytes still fit.
        calls: after so many writes there is space again; None for never.

    Returns:
        Faults that set and lift the quota of the disk; inject all of them.
    """

    def fill(disk: Any) -> None:
        disk.quota = disk.used_bytes() + room

    def free(disk: Any) -> None:
        disk.quota = None

    full = Fault("write", n, error=None, effect=fill)
    return (full,) if calls is None else (full, Fault("write", n + calls, error=None, effect=free))


def turns_read_only(n: int = 1, *, operation: str = "any") -> Fault:
    """At the `n`-th call of `operation`, before it does anything, the file system becomes read-only (``EROFS``)."""
    return Fault(operation, n, error=None, effect=lambda disk: setattr(disk, "read_only", True))
