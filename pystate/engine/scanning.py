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
    pairs, last, pin = state.chunk(family, bounds, pin, count, reverse=reverse, keep=True, need=limit)
    return _entries(state, family, bounds, pin, check, ended, pairs, last, reverse, limit)


def _entries(
    state: State,
    family: FamilyState,
    bounds: Bounds,
    pin: Pin | None,
    check: Callable[[], None],
    ended: list[str],
    pairs: list[Pair],
    last: bytes | None,
    reverse: bool,
    limit: int | None,
) -> Iterator[Pair]:
    store_ended = state.ended
    while True:
        if limit is not None:
            del pairs[limit:]
            limit -= len(pairs)
        for pair in pairs:
            if ended or store_ended:
                check()
            yield pair
        if last is None or limit == 0:
            return
        check()
        bounds = bounds.after(last, reverse=reverse)
        pairs, last, pin = state.chunk(family, bounds, pin, _CHUNK, reverse=reverse, keep=True, need=limit)
