"""`OperationAttempts`: the ledger of package operations, and the only way to write it.

Promises: at most one live attempt for each (host, target, instance), whoever races; a record and its index rows change
in one commit; what is finished stays until `prune`, which leaves the newest of each triple and whatever owes cleanup.
No call reads a clock: the instant is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from pystate import FamilyReader, FamilyWriter
from pystate.errors import DecodeError
from pystate.review.operation_attempt import OPERATION_ATTEMPTS, RETENTION, OperationAttempt, Outcome
from pystate.tables import Bound, IndexProblem, check_table, rebuild_indexes

__all__ = ["OperationAttempts", "RetentionBound"]

_Result: TypeAlias = tuple[OperationAttempt, None] | tuple[None, DecodeError]

_LIVE = OPERATION_ATTEMPTS.index("live")


class RetentionBound(msgspec.Struct, frozen=True, kw_only=True):
    """How long finished attempts are kept.

    Attributes:
        max_age: those that began longer ago than this may go; exactly so old stays.
        max_terminal_per_triple: of each (host, target, instance), those beyond the newest so many may go, from 0.

    Raises:
        TypeError: one is of another type. ValueError: the number is negative.
    """

    max_age: timedelta
    max_terminal_per_triple: int

    def __post_init__(self) -> None:
        if not isinstance(self.max_age, timedelta):
            raise TypeError(f"max_age is a timedelta, not {type(self.max_age).__name__}")
        if type(self.max_terminal_per_triple) is not int:
            raise TypeError(f"max_terminal_per_triple is an int, not {type(self.max_terminal_per_triple).__name__}")
        if self.max_terminal_per_triple < 0:
            raise ValueError(f"max_terminal_per_triple is {self.max_terminal_per_triple}; it cannot be negative")


class OperationAttempts(Bound[OperationAttempt]):
    """The attempts of a store, of a transaction, or as of a view. `ReviewStore.operation_attempts` makes it.

    Bound to a store, `upsert`, `delete`, `sweep_expired` and `prune` are one commit each, tried again on a conflict.
    Bound to a transaction, they are part of it. Bound to a view, they raise ``TypeError``.
    """

    __slots__ = ()

    def upsert(self, attempt: OperationAttempt) -> None:
        """Store an attempt under its idempotency key, whatever is stored there.

        A live attempt takes the slot of its triple and gives up the one that it had; a finished one gives it up.

        Raises:
            InvalidRecordError: the key is empty, or a field cannot be stored.
            SlotTakenError: it is live, and another attempt holds its (host, target, instance).
            DecodeError: what is stored under its key cannot be read; delete it first.
        """
        row_key = OPERATION_ATTEMPTS.row_key(attempt)

        def store(rows: FamilyWriter) -> None:
            OPERATION_ATTEMPTS.replace_row(rows, row_key, OPERATION_ATTEMPTS.stored(rows, row_key), attempt)

        self._writing(store)

    def delete(self, idempotency_key: str) -> None:
        """Delete an attempt that should not exist, with its index rows; no error when there is none.

        It may be a row that cannot be read, or one under the empty key. What is finished is left to `prune`.

        Raises:
            ValueError: the text cannot be written as UTF-8.
        """
        row_key = OPERATION_ATTEMPTS.key.encode(idempotency_key)
        self._writing(lambda rows: OPERATION_ATTEMPTS.remove_record(rows, row_key))

    def get(self, idempotency_key: str) -> OperationAttempt | None:
        """The attempt with this key, or None.

        Raises:
            DecodeError: the row cannot be read, or stands under the empty key. ValueError: see `delete`.
        """
        return OPERATION_ATTEMPTS.stored(self._family, OPERATION_ATTEMPTS.key.encode(idempotency_key))

    def iter(self, *, reverse: bool = False, seek: str | bytes | None = None) -> Iterator[OperationAttempt]:
        """The attempts in the byte order of their keys, as of the call.

        Arguments:
            reverse: from the last down.
            seek: begin at this key, or at the next in the direction of the iteration.

        Raises:
            DecodeError: a row cannot be read; raised when it is reached. `iter_results` goes on.
            ValueError: see `delete`.
        """
        return _raising(self.iter_results(reverse=reverse, seek=seek))

    def iter_results(self, *, reverse: bool = False, seek: str | bytes | None = None) -> Iterator[_Result]:
        """As `iter`, but each item is ``(attempt, None)``, or ``(None, error)`` for a row that cannot be read."""
        at = seek.encode() if isinstance(seek, str) else seek
        rows = OPERATION_ATTEMPTS.scan(self._family, seek=at, reverse=reverse)  # now, and not with the first item
        return (_result(key, value) for key, value in rows)

    # Lookups

    def live_attempt(self, host: str, target: str, instance: int | None) -> OperationAttempt | None:
        """The live attempt of a triple, or None. Instance None is one of its own, and matches no number.

        Raises:
            DecodeError: its row cannot be read, or the slot does not name a key. TypeError, ValueError: these are no
            values of a triple.
        """
        with self._reading() as rows:
            row_key = _LIVE.slot(rows, host, target, instance)
            if row_key is None:
                return None
            attempt = OPERATION_ATTEMPTS.stored(rows, row_key)
            if attempt is None:
                OPERATION_ATTEMPTS.check_key(row_key)
            return attempt

    def attempts_owing_cleanup(self, target: str, host: str, instance: int | None) -> list[OperationAttempt]:
        """All attempts of a triple that owe cleanup, live or finished, in the byte order of their keys.

        Raises:
            DecodeError: a row cannot be read. TypeError, ValueError: see `live_attempt`.
        """
        with self._reading() as rows:
            found = list(OPERATION_ATTEMPTS.find(rows, "owed cleanup", (target, host, instance)))
        return sorted(found, key=lambda attempt: attempt.idempotency_key.encode())

    def expired_attempts(self, instant: datetime) -> list[OperationAttempt]:
        """All attempts, live or finished, with a deadline at or before `instant`.

        Returns:
            Those with the earliest deadline first; of equal deadlines the shorter key first. Cost: what is returned.

        Raises:
            DecodeError: a row cannot be read. ValueError: the instant is naive.
        """
        with self._reading() as rows:
            return list(OPERATION_ATTEMPTS.between(rows, "expiry", stop=(instant,), include_stop=True))

    # Time and retention

    def sweep_expired(self, instant: datetime) -> int:
        """Finish every live attempt whose deadline is at or before `instant` with `Outcome.FAILED`.

        Nothing else of them changes: what is owed stays owed.

        Returns:
            How many were finished. Cost: these; finished attempts are not looked at.

        Raises:
            DecodeError: the row of one cannot be read; then none was finished. ValueError: the instant is naive.
        """

        def sweep(rows: FamilyWriter) -> int:
            found = list(OPERATION_ATTEMPTS.between(rows, "live expiry", stop=(instant,), include_stop=True))
            # The index finds them, the records decide.
            overdue = [attempt for attempt in found if attempt.outcome is None and attempt.expires_at <= instant]
            for attempt in overdue:
                failed = msgspec.structs.replace(attempt, outcome=Outcome.FAILED)
                OPERATION_ATTEMPTS.replace_row(rows, OPERATION_ATTEMPTS.row_key(attempt), attempt, failed)
            return len(overdue)

        return self._writing(sweep)

    def prune(self, bound: RetentionBound, instant: datetime) -> int:
        """Delete finished attempts that are too old or too many.

        Of each (host, target, instance) the one that began last stays (of equal ones, that with the greatest key),
        however old. Of the others those go that owe nothing and either began more than `bound.max_age` before `instant`
        or have `bound.max_terminal_per_triple` or more newer ones, which owe cleanup or not.

        Returns:
            How many were deleted. Cost: these, and those that owe cleanup in triples with too many; not what is kept.

        Raises:
            DecodeError: the row of one that would go, or of one that would stay for it, cannot be read; then none was
            deleted. ValueError: the instant is naive.
        """

        def prune(rows: FamilyWriter) -> int:
            found = {*_too_old(rows, bound, instant), *RETENTION.beyond(rows, bound.max_terminal_per_triple)}
            doomed = [row_key for row_key in sorted(found) if _may_go(rows, row_key)]
            for row_key in doomed:
                OPERATION_ATTEMPTS.remove_record(rows, row_key)
            return len(doomed)

        return self._writing(prune)

    # Checks

    def check(self) -> list[IndexProblem]:
        """Compare every index row with what the attempts say; none returned means that all is right. Cost: all rows."""
        with self._reading() as rows:
            return check_table(OPERATION_ATTEMPTS, rows)

    def rebuild_indexes(self) -> int:
        """Write all index rows anew from the attempts; return how many rows were wrong. Cost: all rows.

        Raises:
            SlotTakenError: two live attempts hold one triple. DecodeError: a row cannot be read. Delete it, then
            repeat.
        """
        return self._writing(lambda rows: rebuild_indexes(OPERATION_ATTEMPTS, rows))


def _result(key: bytes, value: bytes) -> _Result:
    try:
        return OPERATION_ATTEMPTS.decode(key, value), None
    except DecodeError as error:
        return None, error


def _raising(results: Iterator[_Result]) -> Iterator[OperationAttempt]:
    for attempt, error in results:
        if error is not None:
            raise error
        yield attempt  # type: ignore[misc]  # there is an attempt where there is no error


def _too_old(rows: FamilyReader, bound: RetentionBound, instant: datetime) -> Iterator[bytes]:
    """The keys of what began more than `bound.max_age` before `instant` and may go."""
    try:
        return RETENTION.superseded_before(rows, instant - bound.max_age)
    except OverflowError:  # that would be before the year 1, or after the year 9999
        return iter(()) if bound.max_age > timedelta(0) else RETENTION.superseded_before(rows)


def _may_go(rows: FamilyReader, row_key: bytes) -> bool:
    """Whether the record agrees that it may go, and one that is newer stays. The index finds them, the records decide:
    they are read in this transaction, so whoever changes one of them meanwhile makes it run again."""
    attempt = OPERATION_ATTEMPTS.stored(rows, row_key)
    if attempt is None or not attempt.is_fully_discharged:
        return False
    newest_key = RETENTION.newest_beside(rows, attempt)
    newest = None if newest_key in (None, row_key) else OPERATION_ATTEMPTS.stored(rows, newest_key)
    return newest is not None and newest.is_terminal
