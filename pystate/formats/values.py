"""Rewriting the values of a family from one shape to the next, row by row, however far somebody had come before.

Promise: a row that has the present shape keeps its bytes. A row that has the previous one is converted. At a row that
has neither everything stops, with an error that names it, and no row has been changed. So the same call finishes what a
former one began.

A *shape* is a function that decodes: it is given the key and the value of a row, returns what it has read, and raises
`ValueError` (as `msgspec.DecodeError` and `pystate.errors.DecodeError` are) if they are not of its shape. It must be
strict, since whatever it reads it owns: a missing, surplus or wrongly typed field is an error, and it must read all of
the value. Any other exception is not an answer; it ends the migration as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

from pystate.engine.family_state import Pair
from pystate.engine.rewriting import Rewriting
from pystate.errors import MixedShapesError, UnknownShapeError

__all__ = ["Shape", "all_current", "rewrite_values"]

R = TypeVar("R")
Shape: TypeAlias = Callable[[bytes, bytes], R]
"""Decodes the key and the value of a row; raises ValueError for another shape."""

_ROWS_AT_ONCE = 10_000
"""So often progress is told of."""


def rewrite_values(
    rewriting: Rewriting,
    family: str,
    *,
    current: Shape[object],
    old: Shape[R],
    convert: Callable[[R], bytes],
    kind: str = "record",
    old_first: bool = False,
    skip: Container[bytes] = (),
    progress: Callable[[int, int], object] | None = None,
) -> int:
    """Bring every row of a family that has the previous shape into the present one, under the same key.

    Arguments:
        rewriting: the next state.
        family: the name of the family.
        current: the present shape.
        old: the previous shape.
        convert: from what `old` has read to the new value.
        kind: what a row is, for the error, as ``"agent"``.
        old_first: ask `old` before `current`. Needed where a value may be read in both ways and the previous one is
            right; a row that was converted before must then be none that `old` reads, or be converted to itself.
        skip: keys of rows that are not records, as the empty key of an indexed table; they are not looked at.
        progress: called with the number of rows done, and that of all; see `StepContext.progress`.

    Returns:
        How many values have changed.

    Raises:
        UnknownShapeError: a row has neither shape; it is the first one, in key order. No row has been changed.
        FamilyNotFoundError: there is no such family.
        Whatever else `current`, `old`, `convert` or `progress` raises; no row has been changed.
        TypeError, ValueError: `convert` has returned what is no value.

    Cost: for each row one or two of the calls; where no value can have both shapes, ask first for the one that most
    rows have. Memory: the new values, and 16 bytes for each.
    """
    handle = rewriting.family(family)
    found = _Found([], [])
    convert_rows = _old_first if old_first else _current_first
    rows, total = handle.scan(), len(handle)
    for begin in range(0, total, _ROWS_AT_ONCE):
        portion: Iterator[Pair] = islice(rows, _ROWS_AT_ONCE)
        if skip != ():
            portion = (row for row in portion if row[0] not in skip)
        try:
            convert_rows(portion, current, old, convert, found)
        except _NeitherError as error:
            raise UnknownShapeError(
                family=family, key=error.key, kind=kind, current=_text(error.current), previous=_text(error.previous)
            ) from None
        if progress is not None:
            progress(min(begin + _ROWS_AT_ONCE, total), total)
    put = handle.put
    for key, value in zip(found.keys, found.values, strict=True):
        put(key, value)
    return len(found.keys)


class _Found(NamedTuple):
    """The rows that change, and their new values."""

    keys: list[bytes]
    values: list[bytes]


class _NeitherError(Exception):
    """A row has neither shape."""

    def __init__(self, key: bytes, current: Exception, previous: Exception) -> None:
        super().__init__(key)
        self.key = key
        self.current = current
        self.previous = previous


# Two loops that differ in the order of asking, because what they do once for each of millions of rows must be little.


def _current_first(
    rows: Iterator[Pair], current: Shape[object], old: Shape[R], convert: Callable[[R], bytes], found: _Found
) -> None:
    add_key, add_value = found.keys.append, found.values.append
    for key, value in rows:
        try:
            current(key, value)
        except ValueError as not_current:
            try:
                record = old(key, value)
            except ValueError as not_old:
                raise _NeitherError(key, not_current, not_old) from None
        else:
            continue
        new = convert(record)
        if new != value:
            add_key(key)
            add_value(new)


def _old_first(
    rows: Iterator[Pair], current: Shape[object], old: Shape[R], convert: Callable[[R], bytes], found: _Found
) -> None:
    add_key, add_value = found.keys.append, found.values.append
    for key, value in rows:
        try:
            record = old(key, value)
        except ValueError as not_old:
            try:
                current(key, value)
            except ValueError as not_current:
                raise _NeitherError(key, not_current, not_old) from None
            continue
        new = convert(record)
        if new != value:
            add_key(key)
            add_value(new)


def all_current(
    rewriting: Rewriting, family: str, is_current: Callable[[bytes, bytes], bool], *, skip: Container[bytes] = ()
) -> bool:
    """Whether the rows of a family are all current, for a family that is converted as a whole or not at all.

    Arguments:
        rewriting: the next state.
        family: the name of the family.
        is_current: whether a row, given by key and value, is as it shall be.
        skip: keys of rows that are not looked at.

    Returns:
        True if every row is current, or if there is none; False if no row is.

    Raises:
        MixedShapesError: some are and some are not. FamilyNotFoundError: there is no such family.
        Whatever `is_current` raises.
    """
    current, others, first = 0, 0, b""
    for key, value in rewriting.family(family).scan():
        if key in skip:
            continue
        if is_current(key, value):
            current += 1
        else:
            if not others:
                first = key
            others += 1
    if current and others:
        raise MixedShapesError(family=family, current=current, others=others, key=first)
    return not others


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
