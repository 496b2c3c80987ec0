"""The cycle of one effect in sqlite3: its record and its events, as the SQLite store of the specification has them.

Each operation of the store is one transaction, as section 5 of the specification says: insert, lease, start, result,
release. WAL, full sync where commits are to be durable.
"""

from __future__ import annotations

import asyncio
import pathlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from pystate.effects import (
    EffectEvent,
    EffectKey,
    EffectKind,
    EffectName,
    EffectRecord,
    LogicalKey,
    NewEffect,
    Transition,
    TransitionRequest,
    encode_event,
    encode_record,
)

__all__ = ["SqliteEffects"]

TTL = timedelta(seconds=30)


class SqliteEffects:
    """One row for each effect and one for each event; the rules are those of pystate's own records.

    Arguments:
        path: of the database.
        synchronous: ``"FULL"``: durable commits; ``"OFF"``: they survive the death of the process only.
    """

    def __init__(self, path: pathlib.Path, *, synchronous: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        execute = self.connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute(f"PRAGMA synchronous={synchronous}")
        execute(
            "CREATE TABLE effects (id TEXT PRIMARY KEY, name TEXT, key TEXT, status TEXT, version INTEGER,"
            " lease_expires_at INTEGER, updated_at INTEGER, record BLOB, UNIQUE (name, key))"
        )
        execute("CREATE INDEX leases ON effects (status, lease_expires_at)")
        execute("CREATE INDEX ages ON effects (status, updated_at)")
        execute(
            "CREATE TABLE events (effect_id TEXT, sequence INTEGER, event BLOB, PRIMARY KEY (effect_id, sequence))"
            " WITHOUT ROWID"
        )
        self._writer = ThreadPoolExecutor(1)  # sqlite3 has one writer at a time, whoever waits for it

    def run(self, name: str, key: str) -> None:
        """Record an effect, lease it, start it, do nothing, record that it succeeded, and give the lease back."""
        now = datetime.now(UTC)
        record = EffectRecord.new(
            NewEffect.new(EffectKey(EffectName(name), LogicalKey(key)), EffectKind.IRREVERSIBLE_WRITE, now)
        )
        self._insert(record)
        record, lease = record.acquire_lease("worker", now, TTL)
        self._update(record)
        record, event = record.apply(TransitionRequest.new(record, lease, Transition.START_ATTEMPT, now))
        self._update(record, event)
        record, event = record.apply(TransitionRequest.new(record, lease, Transition.SUCCEEDED, now, output=None))
        self._update(record, event)
        record, _ = record.release_lease(lease)
        self._update(record)

    def _insert(self, record: EffectRecord) -> None:
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        name, key = record.key.name, record.key.key
        if execute("SELECT id FROM effects WHERE name = ? AND key = ?", (name, key)).fetchone() is not None:
            raise RuntimeError("the effect is there already")
        execute("INSERT INTO effects VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (str(record.id), name, key, *_columns(record)))
        execute("COMMIT")

    def _update(self, record: EffectRecord, event: EffectEvent | None = None) -> None:
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        execute("SELECT record FROM effects WHERE id = ?", (str(record.id),)).fetchone()
        before = record.version if event is None else record.version - 1
        execute(
            "UPDATE effects SET status = ?, version = ?, lease_expires_at = ?, updated_at = ?, record = ?"
            " WHERE id = ? AND version = ?",
            (*_columns(record), str(record.id), before),
        )
        if event is not None:
            values = (str(record.id), event.sequence, encode_event(event))
            execute("INSERT INTO events VALUES (?, ?, ?)", values)
        execute("COMMIT")

    async def run_async(self, name: str, key: str) -> None:
        """`run` for a task: in the one thread that writes."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self.run, name, key)

    def close(self) -> None:
        """Close the database."""
        self._writer.shutdown()
        self.connection.close()


def _columns(record: EffectRecord) -> tuple[object, ...]:
    """What a row holds of a record, besides its id and key."""
    expires = None if record.lease_expires_at is None else int(record.lease_expires_at.timestamp() * 1000)
    updated = int(record.updated_at.timestamp() * 1000)
    return (str(record.status), record.version, expires, updated, encode_record(record))
