"""`StoreStats`: what a store has done and what it holds, as one frozen record."""

from __future__ import annotations

import msgspec

from pystate.engine.repair import RecoveryReport

__all__ = ["StoreStats"]


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """What `Store.stats` returns. Sizes are in bytes; counters count since the store was opened.

    Attributes:
        path: of the store, or None in memory.
        read_only: opened for reading only.
        failed: the first failure, after which the store refuses writes, or None.
        sequence: of the newest commit.
        durable_sequence: the newest commit that is known to survive power loss.
        generation: of the log; it grows with every unclean stop.
        families: the number of entries by name; None for a family that has not been decoded yet.
        log_bytes, log_segments: the part of the log that the newest snapshot does not contain; for a read-only store as
            it was found on opening.
        snapshot_sequence, snapshot_bytes: the newest snapshot.
        snapshot_log_bytes: how large the log may grow before a snapshot is taken. Bound on `log_bytes`: four times
            this, plus one group of commits.
        snapshots_taken: how many.
        snapshot_error: why the last attempt failed, or None.
        commits, groups, syncs: commits, the groups in which they were written, and syncs of the log.
        bytes_committed: keys and values of all commits, as encoded, without frame headers.
        bytes_written: log and snapshots.
        views: open views, transactions and scans.
        history_bytes, history_bytes_max: overwritten values kept for them, estimated, and the limit past which the
            oldest of them fail. A snapshot in progress may add one copy of the state it writes.
        recovery: what opening found and did, or None in memory.
    """

    path: str | None
    read_only: bool
    failed: str | None
    sequence: int
    durable_sequence: int
    generation: int
    families: dict[str, int | None]
    log_bytes: int
    log_segments: int
    snapshot_sequence: int
    snapshot_bytes: int
    snapshot_log_bytes: int
    snapshots_taken: int
    snapshot_error: str | None
    commits: int
    groups: int
    syncs: int
    bytes_committed: int
    bytes_written: int
    views: int
    history_bytes: int
    history_bytes_max: int
    recovery: RecoveryReport | None
