"""One scan: chunks of a family in key order, as of one state, strung into an iterator.

The first chunk is read when the scan is asked for, so the state it shows is that of the call. A scan that fits into it
holds nothing; a longer one pins its state until it is exhausted, closed or forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pystate.engine.family_state import Bounds, FamilyState, Pair
from pystate.engine.state import Pin, State

__all__ = ["scan_family"]

_FIRST_CHUNK = 128
_CHUNK = 512
"""Entries that are read while the lock is held once."""


def scan_family(
    state: State,
    family: FamilyState,
    bounds: Bounds,
    pin: Pin | None,
    check: Callable[[], None],
    ended: list[str],
    *,
    reverse: bool,
    limit: int | None,
) -> Iterator[Pair]:
    """Yield the entries of `family` within `bounds` as of `pin`, or, with None, as of this call.

    Arguments:
        check: raises when the handle that is scanned has been closed.
        ended: not empty from the moment `check` would raise, unless the store itself was closed.

    Raises:
        ConflictError: the state is no longer kept (``too_old``).
    """
    if bounds.empty() or limit == 0:
        return iter(())
    count = _FIRST_CHUNK if limit is None else min(limit, _FIRST_CHUNK)
    keys, values, last, pin = state.chunk(family, bounds, pin, count, reverse=reverse, need=limit)
    return _entries(state, family, bounds, pin, check, ended, keys, values, last, reverse, limit)


def _entries(
    state: State,
    family: FamilyState,
    bounds: Bounds,
    pin: Pin | None,
    check: Callable[[], None],
    ended: list[str],
    keys: list[bytes],
    values: list[bytes],
    last: bytes | None,
    reverse: bool,
    limit: int | None,
) -> Iterator[Pair]:
    while True:
        if limit is not None:
            del keys[limit:]
            limit -= len(keys)
        # Whoever ends what is scanned empties these keys, so that the iteration stops there and `check` raises.
        state.scanned[id(keys)] = keys, ended
        try:
            yield from zip(keys, values)  # noqa: B905 - without a check of the lengths it survives being emptied
        finally:
            del state.scanned[id(keys)]
        if ended or state.ended:
            check()
        if last is None or limit == 0:
            return
        bounds = bounds.after(last, reverse=reverse)
        keys, values, last, pin = state.chunk(family, bounds, pin, _CHUNK, reverse=reverse, need=limit)
