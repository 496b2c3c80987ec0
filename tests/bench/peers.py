"""Other embedded stores, one adapter each, set up as their own documents advise for the guarantee in question.

Each adapter runs the loop that a user of that library would write, with its methods looked up before the loop, so
that no adapter's own cost is counted. *Sync* means that each commit is on the disk when it returns. Without sync each
peer gets its fastest setting that still survives the death of the process; some of these promise less at a power
cut than pystate's ``durability="process"`` does, which is to their advantage here.

=========  ==============================================  ===============================================
peer       with sync                                       without
=========  ==============================================  ===============================================
sqlite3    WAL, ``synchronous=FULL``                       WAL, ``synchronous=OFF``
lmdb       the default                                     ``sync=False, metasync=False``
rocksdict  raw mode, ``WriteOptions.sync``                 raw mode, log written, not synced
plyvel     ``sync=True`` for each write                    the default
=========  ==============================================  ===============================================
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import itertools
import pathlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

__all__ = ["PEERS", "Item", "Peer", "installed", "missing"]

Item = tuple[bytes, bytes]

CACHE_BYTES = 256 * 2**20
"""Memory that each peer may use for caching: more than any figure stores."""

MAP_BYTES = 4 * 2**30


class Peer(ABC):
    """A store in ``directory`` (which is there and empty), filled and read by the loops below."""

    name: ClassVar[str]
    module: ClassVar[str]

    def __init__(self, directory: pathlib.Path, *, sync: bool) -> None:
        self.directory = directory
        self.sync = sync

    @classmethod
    def imported(cls) -> ModuleType:
        """The peer's module. Imported by name: it may be missing, and most have no type stubs."""
        return importlib.import_module(cls.module)

    @classmethod
    def version(cls) -> str:
        """The version in use."""
        return importlib.metadata.version(cls.module)

    @abstractmethod
    def puts(self, items: Sequence[Item]) -> None:
        """One commit for each item."""

    @abstractmethod
    def load(self, batches: Sequence[Sequence[Item]]) -> None:
        """One commit for each batch, by the fastest call there is for many items."""

    @abstractmethod
    def gets(self, keys: Sequence[bytes]) -> None:
        """Read each key."""

    @abstractmethod
    def scan(self) -> None:
        """Read every key and value in order."""

    @abstractmethod
    def ranges(self, starts: Sequence[bytes], limit: int) -> None:
        """From each start, read ``limit`` keys and values in order."""

    @abstractmethod
    def settle(self) -> None:
        """Bring what was loaded into the form it is read fastest from."""

    @abstractmethod
    def close(self) -> None:
        """Release everything."""


class Sqlite(Peer):
    """A ``WITHOUT ROWID`` table with the key as primary key; the module keeps the statements prepared."""

    name = "sqlite3"
    module = "sqlite3"

    def __init__(self, directory: pathlib.Path, *, sync: bool) -> None:
        super().__init__(directory, sync=sync)
        self.connection = sqlite3.connect(directory / "peer.sqlite", isolation_level=None)
        execute = self.connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute(f"PRAGMA synchronous={'FULL' if sync else 'OFF'}")
        execute(f"PRAGMA cache_size=-{CACHE_BYTES // 1024}")
        execute(f"PRAGMA mmap_size={CACHE_BYTES}")
        execute("CREATE TABLE store (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")

    @classmethod
    def version(cls) -> str:
        return sqlite3.sqlite_version

    def puts(self, items: Sequence[Item]) -> None:
        execute = self.connection.execute
        for item in items:
            execute("INSERT OR REPLACE INTO store VALUES (?, ?)", item)

    def load(self, batches: Sequence[Sequence[Item]]) -> None:
        execute, executemany = self.connection.execute, self.connection.executemany
        for batch in batches:
            execute("BEGIN IMMEDIATE")
            executemany("INSERT OR REPLACE INTO store VALUES (?, ?)", batch)
            execute("COMMIT")

    def gets(self, keys: Sequence[bytes]) -> None:
        execute = self.connection.execute
        for key in keys:
            execute("SELECT value FROM store WHERE key = ?", (key,)).fetchone()

    def scan(self) -> None:
        for _key, _value in self.connection.execute("SELECT key, value FROM store ORDER BY key"):
            pass

    def ranges(self, starts: Sequence[bytes], limit: int) -> None:
        execute = self.connection.execute
        for start in starts:
            for _key, _value in execute(
                "SELECT key, value FROM store WHERE key >= ? ORDER BY key LIMIT ?", (start, limit)
            ):
                pass

    def settle(self) -> None:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.connection.execute("ANALYZE")

    def close(self) -> None:
        self.connection.close()


class Lmdb(Peer):
    """One memory-mapped B+tree; every read below opens its transaction as the documents show."""

    name = "lmdb"
    module = "lmdb"

    def __init__(self, directory: pathlib.Path, *, sync: bool) -> None:
        super().__init__(directory, sync=sync)
        self.environment: Any = self.imported().open(
            str(directory), map_size=MAP_BYTES, sync=sync, metasync=sync, writemap=False, max_readers=8
        )

    def puts(self, items: Sequence[Item]) -> None:
        begin = self.environment.begin
        for key, value in items:
            with begin(write=True) as txn:
                txn.put(key, value)

    def load(self, batches: Sequence[Sequence[Item]]) -> None:
        for batch in batches:
            with self.environment.begin(write=True) as txn, txn.cursor() as cursor:
                cursor.putmulti(batch)

    def gets(self, keys: Sequence[bytes]) -> None:
        begin = self.environment.begin
        for key in keys:
            with begin() as txn:
                txn.get(key)

    def gets_in_one_transaction(self, keys: Sequence[bytes]) -> None:
        """Read each key through a read transaction that stays open: lmdb at its best."""
        with self.environment.begin() as txn:
            get = txn.get
            for key in keys:
                get(key)

    def scan(self) -> None:
        with self.environment.begin() as txn, txn.cursor() as cursor:
            for _key, _value in cursor:
                pass

    def ranges(self, starts: Sequence[bytes], limit: int) -> None:
        islice = itertools.islice
        with self.environment.begin() as txn, txn.cursor() as cursor:
            for start in starts:
                cursor.set_range(start)
                for _key, _value in islice(cursor, limit):
                    pass

    def settle(self) -> None:
        """Nothing to do: a B+tree is read as it was written."""

    def close(self) -> None:
        self.environment.close()


class Rocksdict(Peer):
    """RocksDB with bytes as keys and values (``raw_mode``)."""

    name = "rocksdict"
    module = "rocksdict"

    def __init__(self, directory: pathlib.Path, *, sync: bool) -> None:
        super().__init__(directory, sync=sync)
        self.rocksdict: Any = self.imported()
        options = self.rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        table = self.rocksdict.BlockBasedOptions()
        table.set_block_cache(self.rocksdict.Cache(CACHE_BYTES))
        table.set_bloom_filter(10.0, False)
        options.set_block_based_table_factory(table)
        options.set_compression_type(self.rocksdict.DBCompressionType.none())
        self.store: Any = self.rocksdict.Rdict(str(directory / "peer"), options)
        write_options = self.rocksdict.WriteOptions()
        write_options.sync = sync
        self.write_options: Any = write_options
        self.store.set_write_options(write_options)

    def puts(self, items: Sequence[Item]) -> None:
        put = self.store.put
        for key, value in items:
            put(key, value)

    def load(self, batches: Sequence[Sequence[Item]]) -> None:
        write_batch, write = self.rocksdict.WriteBatch, self.store.write
        for items in batches:
            batch = write_batch(raw_mode=True)
            put = batch.put
            for key, value in items:
                put(key, value)
            write(batch, self.write_options)

    def gets(self, keys: Sequence[bytes]) -> None:
        get = self.store.get
        for key in keys:
            get(key)

    def scan(self) -> None:
        for _key, _value in self.store.items():
            pass

    def ranges(self, starts: Sequence[bytes], limit: int) -> None:
        items, islice = self.store.items, itertools.islice
        for start in starts:
            for _key, _value in islice(items(from_key=start), limit):
                pass

    def settle(self) -> None:
        """Nothing to do: it is read fastest from the memtable, where it still is."""

    def close(self) -> None:
        self.store.close()


class Plyvel(Peer):
    """LevelDB."""

    name = "plyvel"
    module = "plyvel"

    def __init__(self, directory: pathlib.Path, *, sync: bool) -> None:
        super().__init__(directory, sync=sync)
        self.store: Any = self.imported().DB(
            str(directory / "peer"),
            create_if_missing=True,
            lru_cache_size=CACHE_BYTES,
            write_buffer_size=64 * 2**20,
            bloom_filter_bits=10,
            compression=None,
        )

    def puts(self, items: Sequence[Item]) -> None:
        put, sync = self.store.put, self.sync
        for key, value in items:
            put(key, value, sync=sync)

    def load(self, batches: Sequence[Sequence[Item]]) -> None:
        for items in batches:
            with self.store.write_batch(sync=self.sync) as batch:
                put = batch.put
                for key, value in items:
                    put(key, value)

    def gets(self, keys: Sequence[bytes]) -> None:
        get = self.store.get
        for key in keys:
            get(key)

    def scan(self) -> None:
        for _key, _value in self.store:
            pass

    def ranges(self, starts: Sequence[bytes], limit: int) -> None:
        iterator, islice = self.store.iterator, itertools.islice
        for start in starts:
            for _key, _value in islice(iterator(start=start), limit):
                pass

    def settle(self) -> None:
        self.store.compact_range()

    def close(self) -> None:
        self.store.close()


PEERS: tuple[type[Peer], ...] = (Sqlite, Lmdb, Rocksdict, Plyvel)


def _is_installed(peer: type[Peer]) -> bool:
    return importlib.util.find_spec(peer.module) is not None


def installed() -> list[type[Peer]]:
    """The peers that can be measured here."""
    return [peer for peer in PEERS if _is_installed(peer)]


def missing() -> list[str]:
    """The names of the peers that cannot."""
    return [peer.name for peer in PEERS if not _is_installed(peer)]
