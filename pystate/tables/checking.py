"""Whether the index rows of a table are what its records say, and making them so. Reads or writes one family."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from pystate import FamilyReader, FamilyWriter
from pystate.errors import DecodeError, SlotTakenError
from pystate.tables.indexes import FIRST_TAG, Index
from pystate.tables.schema import Schema

__all__ = ["IndexProblem", "check_table", "rebuild_indexes"]

R = TypeVar("R")


class IndexProblem(NamedTuple):
    """One row that is not as it should be.

    Attributes:
        key: the key of the row.
        expected: the value that it should have, or None if it should not be there.
        found: the value that it has, or None if it is not there.
        error: why it cannot be read, for the row of a record; None for the row of an index.
    """

    key: bytes
    expected: bytes | None
    found: bytes | None
    error: DecodeError | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return str(self.error)
        wanted = "should not be there" if self.expected is None else f"should be {self.expected!r}"
        return f"index row {self.key!r} {wanted}, and is {'absent' if self.found is None else repr(self.found)}"


def check_table(schema: Schema[Any], rows: FamilyReader) -> list[IndexProblem]:
    """Compare every index row with what the records say.

    Returns:
        What is wrong, in key order; rows that cannot be read are among it. Empty when all is right. Cost: all rows.
    """
    records, problems = _records(schema, rows)
    if not schema.indexes:
        return problems
    wanted = {key: value for index in schema.indexes for key, value in index.expected(records)}
    for key, value in rows.scan(bytes((FIRST_TAG,))):
        expected = wanted.pop(key, None)
        if expected != value:
            problems.append(IndexProblem(key, expected, value))
    problems += [IndexProblem(key, value, None) for key, value in wanted.items()]
    problems += [IndexProblem(slot, holder, second) for _, _, slot, holder, second in _shared_slots(schema, records)]
    return sorted(problems, key=lambda problem: problem.key)


def _records(schema: Schema[R], rows: FamilyReader) -> tuple[list[tuple[bytes, R]], list[IndexProblem]]:
    records, problems = [], []
    for key, value in schema.scan(rows):
        try:
            records.append((key, schema.decode(key, value)))
        except DecodeError as error:
            problems.append(IndexProblem(key, None, value, error))
    return records, problems


def rebuild_indexes(schema: Schema[R], rows: FamilyWriter) -> int:
    """Make every index row what the records say; return how many were wrong. Raises as `Writable.rebuild_indexes`."""
    records = [(key, schema.decode(key, value)) for key, value in schema.scan(rows)]
    _check_slots(schema, rows, records)
    problems = check_table(schema, rows)
    for problem in problems:
        if problem.expected is None:
            rows.delete(problem.key)
        else:
            rows.put(problem.key, problem.expected)
    return len(problems)


def _check_slots(schema: Schema[R], rows: FamilyReader, records: list[tuple[bytes, R]]) -> None:
    """Refuse records of which two hold one slot: whichever the index named, the other would be lost to lookups."""
    for index, record, _, holder, second in _shared_slots(schema, records):
        slot = dict(zip(index.key.fields, index.key.values(record), strict=True))
        raise SlotTakenError(family=rows.name, index=index.name, slot=slot, key=second, holder=holder)


def _shared_slots(
    schema: Schema[R], records: list[tuple[bytes, R]]
) -> Iterator[tuple[Index[R], R, bytes, bytes, bytes]]:
    """Where two records hold one slot of a unique index: the second record, the slot, and the keys of both."""
    for index in schema.indexes:
        if not isinstance(index, Index) or not index.unique:
            continue
        holders: dict[bytes, bytes] = {}
        for row_key, record in records:
            slot = index.row(row_key, record)
            if slot is not None and (holder := holders.setdefault(slot, row_key)) != row_key:
                yield index, record, slot, holder, row_key
