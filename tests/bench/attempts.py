"""Operation attempts to measure with: the records, the rows they are, and the same table in sqlite3."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from pystate.review import Action, CleanupState, OperationAttempt, Outcome, Phase, RetryPolicy
from pystate.review.operation_attempt import OPERATION_ATTEMPTS

__all__ = ["START", "SqliteAttempts", "attempts", "finished", "rows_of"]

START = datetime(2026, 1, 1, tzinfo=UTC)


def attempts(count: int, *, first: int = 0) -> list[OperationAttempt]:
    """Live attempts of one host each, every fourth of which owes cleanup."""
    policy = RetryPolicy(max_attempts=5, attempts_made=0, backoff_seconds=30)
    return [
        OperationAttempt(
            idempotency_key=f"operation-{number:08}",
            host=f"host-{number:08}.example",
            target="sensor",
            instance=1,
            action=Action.INSTALL,
            package_digest="sha256:" + "a" * 64,
            resolved_version="1.2.3",
            resolved_commit="c0ffee",
            phase=Phase.PENDING,
            cleanup_state=CleanupState.PENDING_DEREGISTER if number % 4 == 0 else None,
            started_at=START + timedelta(seconds=number),
            retry_policy=policy,
            outcome=None,
            expires_at=START + timedelta(days=1, seconds=number),
            backup_id=None,
            pre_update_version=None,
        )
        for number in range(first, first + count)
    ]


def finished(given: Sequence[OperationAttempt], hosts: int) -> list[OperationAttempt]:
    """The same, ended and owing nothing, on so many hosts."""
    change = msgspec.structs.replace
    return [
        change(attempt, outcome=Outcome.SUCCEEDED, cleanup_state=None, host=f"host-{number % hosts}.example")
        for number, attempt in enumerate(given)
    ]


def rows_of(attempt: OperationAttempt) -> Iterator[tuple[bytes, bytes]]:
    """The rows that storing an attempt writes: its own, and those of the indexes."""
    key = OPERATION_ATTEMPTS.row_key(attempt)
    yield key, OPERATION_ATTEMPTS.encode(attempt)
    for index in OPERATION_ATTEMPTS.indexes:
        yield from index.expected([(key, attempt)])


class SqliteAttempts:
    """The same table in sqlite3: one row for each attempt, its value in one column, three indexes, WAL.

    Arguments:
        path: of the database.
        synchronous: ``"FULL"``: durable commits; ``"OFF"``: they survive the death of the process only.
    """

    def __init__(self, path: pathlib.Path, *, synchronous: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, cached_statements=16)
        execute = self.connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute(f"PRAGMA synchronous={synchronous}")
        execute(
            "CREATE TABLE attempts (key TEXT PRIMARY KEY, host TEXT, target TEXT, instance INTEGER, live INTEGER,"
            " owes INTEGER, expires_at REAL, value BLOB) WITHOUT ROWID"
        )
        execute("CREATE UNIQUE INDEX live ON attempts (host, target, instance) WHERE live")
        execute("CREATE INDEX owed ON attempts (target, host, instance) WHERE owes")
        execute("CREATE INDEX expiry ON attempts (expires_at)")
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(OperationAttempt).decode

    def upsert(self, attempt: OperationAttempt) -> None:
        """Store one attempt, as one commit."""
        self.connection.execute(
            "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET host = excluded.host,"
            " target = excluded.target, instance = excluded.instance, live = excluded.live, owes = excluded.owes,"
            " expires_at = excluded.expires_at, value = excluded.value",
            (
                attempt.idempotency_key,
                attempt.host,
                attempt.target,
                attempt.instance,
                attempt.outcome is None,
                attempt.cleanup_state is not None,
                attempt.expires_at.timestamp(),
                self._encode(attempt),
            ),
        )

    def live_attempt(self, host: str, target: str, instance: int | None) -> OperationAttempt | None:
        """The live attempt of a triple."""
        row = self.connection.execute(
            "SELECT value FROM attempts WHERE live AND host = ? AND target = ? AND instance IS ?",
            (host, target, instance),
        ).fetchone()
        return None if row is None else self._decode(row[0])

    def close(self) -> None:
        """Close the database."""
        self.connection.close()
