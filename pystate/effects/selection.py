"""Finding the effects of a query without reading the others: which rows are read, and in which order.

Answers come in the order of ids, and never more than `limit`. Two ways lead there:

- by id: the records of the wanted statuses in the order of ids, each looked at, until there are enough. Quick when most
  of them match.
- by time: the rows of an index that is ordered by what is asked for (the end of a lease, the next attempt, the last
  update), all up to the given time; then sorted. Quick when few match.

Neither is quick always: one reads every effect that does not match, the other every one that does, for each page. So
both are walked at once, a step here and a step there, and the first that ends has the answer. The cost is twice that of
the quicker one. For ten expired leases beside a million settled records that is ten steps; for a page of the first
hundred out of a million old records it is about a hundred.

The indexes find, the records decide: each record is asked again. A row that cannot be read is reported as an error in
its place, and counts for nothing. Everything here reads one state, through `FamilyReader` alone, and writes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from pystate import FamilyReader
from pystate.effects.effect_rows import BY_DUE_TIME, BY_LEASE, BY_SETTLING, BY_STATUS, EFFECTS
from pystate.effects.ids import EffectId
from pystate.effects.queries import DOUBTFUL, RESUMABLE, ListQuery, PruneQuery
from pystate.effects.record import EffectRecord
from pystate.effects.state import EffectStatus
from pystate.errors import DecodeError
from pystate.tables import Index

__all__ = ["Found", "listed", "prunable"]

Found: TypeAlias = tuple[EffectRecord, None] | tuple[None, DecodeError]
"""A record, or why it cannot be read."""

_ABOVE = b"\x01"  # the key of a row begins with 00; where it ends one of an index, its length stands before it


class _Query(Protocol):
    @property
    def limit(self) -> int: ...

    def matches(self, record: EffectRecord) -> bool: ...


def listed(rows: FamilyReader, query: ListQuery) -> Iterator[Found]:
    """The records of a query, and the errors of rows that were met and cannot be read, in the order of ids.

    Cost: what is yielded, and the records that match but for their lease; nothing that is settled, unless settled
    records are asked for.
    """
    after = b"" if query.after is None else EFFECTS.key.encode(query.after)
    by_id = _by_id(rows, query.status_in, query.after)
    by_time = _by_time(rows, query)
    return _first(_checked(rows, by_id) if by_time is None else _lowest(rows, by_time, by_id, query, after), query)


def prunable(rows: FamilyReader, query: PruneQuery) -> Iterator[EffectRecord]:
    """The records that a query deletes, in the order of ids. What cannot be read is left out: nobody knows its age.

    Cost: what is yielded, and what matches but for its lease.
    """
    cutoff = query.cutoff
    if cutoff is None or not query.status.is_settled:
        return iter(())
    by_time = _up_to(rows, BY_SETTLING, (query.status,), cutoff)
    by_id = _by_id(rows, (query.status,), None)
    return (record for record, _ in _first(_lowest(rows, by_time, by_id, query), query) if record is not None)


def _by_time(rows: FamilyReader, query: ListQuery) -> Iterator[bytes] | None:
    """The keys of all records that may match, by time; None: no index is ordered by what is asked for."""
    if query.due_at is not None and _within(query.status_in, RESUMABLE):
        return _up_to(rows, BY_DUE_TIME, (), query.due_at)
    if query.lease_expired_at is not None and _within(query.status_in, DOUBTFUL):
        return _up_to(rows, BY_LEASE, (), query.lease_expired_at)
    return None


def _within(statuses: tuple[EffectStatus, ...], some: tuple[EffectStatus, ...]) -> bool:
    return bool(statuses) and all(status in some for status in statuses)


def _up_to(rows: FamilyReader, index: Index[Any], first: tuple[Any, ...], time: datetime) -> Iterator[bytes]:
    """The keys of the records in an index, from the earliest to this time, inclusive."""
    entries = rows.scan(index.prefix(*first), index.prefix(*first, time) + _ABOVE)
    return (row_key for _, row_key in entries)


def _by_id(rows: FamilyReader, statuses: tuple[EffectStatus, ...], after: EffectId | None) -> Iterator[bytes]:
    """The keys of all records of these statuses (of any, when there are none) above an id, in order."""
    if not statuses:
        start = b"\x00" if after is None else EFFECTS.key.encode(after) + b"\x00"
        return (row_key for row_key, _ in rows.scan(start, _ABOVE))
    return heapq.merge(*[_of_status(rows, status, after) for status in dict.fromkeys(statuses)])


def _of_status(rows: FamilyReader, status: EffectStatus, after: EffectId | None) -> Iterator[bytes]:
    prefix = start = BY_STATUS.prefix(status)
    if after is not None:
        row_key = EFFECTS.key.encode(after)
        start = prefix + len(row_key).to_bytes(4, "big") + row_key + b"\x00"  # above the row of that one
    return (row_key for _, row_key in rows.scan(start, prefix=prefix))


def _lowest(
    rows: FamilyReader, by_time: Iterator[bytes], by_id: Iterator[bytes], query: _Query, after: bytes = b""
) -> Iterator[Found]:
    """Walk both ways at once; what the first that ends has found. Some that do not match may be among it."""
    candidates: list[bytes] = []
    found: list[Found] = []
    missing = query.limit
    for row_key in by_time:
        if row_key > after:
            candidates.append(row_key)
        following = next(by_id, None)
        if following is None:
            return iter(found)
        for record, error in _checked(rows, (following,)):
            if error is not None:
                found.append((None, error))
            elif record is not None and query.matches(record):
                found.append((record, None))
                missing -= 1
        if missing <= 0:
            return iter(found)
    return _checked(rows, sorted(candidates))


def _checked(rows: FamilyReader, row_keys: Iterable[bytes]) -> Iterator[Found]:
    """The records under these keys. One that is not there is passed over: `check` tells of it."""
    for row_key in row_keys:
        try:
            record = EFFECTS.stored(rows, row_key)
        except DecodeError as error:
            yield None, error
        else:
            if record is not None:
                yield record, None


def _first(found: Iterator[Found], query: _Query) -> Iterator[Found]:
    """The first so many that match, with the errors before and among them."""
    missing = query.limit
    while missing > 0:
        record, error = next(found, (None, None))
        if error is not None:
            yield None, error
        elif record is None:
            return
        elif query.matches(record):
            yield record, None
            missing -= 1
