"""``dump`` and ``load``: all entries as JSON Lines, and back.

A dump is a line that opens it, one line for each entry, and a line that ends it::

    {"pystate_dump":1,"sequence":7,"families":["default","users"],"entries":2}
    {"family":"default","key":"a","value":"1"}
    {"family":"users","key":"ada","value":"0x00ff"}
    {"pystate_dump_end":2}

Keys and values are in the notation of :mod:`pystate.cli.bytes_text`. The last line is how ``load`` knows that nothing
was cut off. ``load`` also takes bare lines of ``key``, ``value`` and perhaps ``family``, made by something else.

A dump is the state as of one commit, read through a view. ``load`` commits as it goes, :data:`BATCH_ENTRIES` entries at
a time, so it needs little memory however long the input is; what it did before an error stays, and the message says how
far that is. Loading the same input again gives the same state.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import msgspec

import pystate
from pystate.cli.bytes_text import format_bytes, parse_bytes
from pystate.cli.exits import CommandError, Exit
from pystate.cli.output import Output, complain
from pystate.cli.progress import progress
from pystate.cli.writing import open_for_writing

__all__ = ["BATCH_BYTES", "BATCH_ENTRIES", "DUMP_VERSION", "dump", "load"]

DUMP_VERSION = 1
"""The version in the first line of a dump."""

BATCH_ENTRIES = 1000
"""At most this many entries are loaded in one commit."""

BATCH_BYTES = 8 * 1024 * 1024
"""A commit of a load ends with the entry that brings its keys and values to this many bytes."""

_HEADER, _END = "pystate_dump", "pystate_dump_end"
_PROGRESS_ENTRIES = 1000


def dump(arguments: argparse.Namespace, output: Output) -> int:
    """Write all entries, or those of some families, as of one commit."""
    with pystate.open(arguments.store, read_only=True) as store, store.view() as view:
        names: list[str] = sorted(set(arguments.family)) if arguments.family else list(view.families)
        total = sum(len(view.family(name)) for name in names)
        output.json_line({_HEADER: DUMP_VERSION, "sequence": view.sequence, "families": names, "entries": total})
        entries = 0
        with progress("dump", "entries", total) as shown:
            for name in names:
                for key, value in view.scan(name):
                    output.json_line({"family": name, "key": format_bytes(key), "value": format_bytes(value)})
                    entries += 1
                    if entries % _PROGRESS_ENTRIES == 0:
                        shown.advance(_PROGRESS_ENTRIES)
        output.json_line({_END: entries})
    return Exit.OK


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One line of input that is an entry."""

    key: str
    value: str
    family: str | None = None


class _Header(msgspec.Struct):
    """The line that opens a dump."""

    pystate_dump: int
    families: list[str] = []


class _End(msgspec.Struct):
    """The line that ends a dump."""

    pystate_dump_end: int


class _Reader:
    """Reads lines of input and checks that a dump is whole.

    Attributes:
        line: the number of the line that was read last, from 1.
        bytes_read: bytes of input read so far.
        families: families that the dump has, with or without entries.
    """

    def __init__(self, lines: Iterable[bytes], family: str) -> None:
        self._lines = lines
        self._family = family
        self._inside = False
        self._entries = 0
        self.line = 0
        self.bytes_read = 0
        self.families: list[str] = []

    def entries(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield family, key and value of each entry.

        Raises:
            ValueError: a line is not what it should be, or the input ends before the dump does.
        """
        for line in self._lines:
            self.line += 1
            self.bytes_read += len(line)
            if not line.strip():
                continue
            fields = msgspec.json.decode(line)
            if isinstance(fields, dict) and _HEADER in fields:
                self._begin(msgspec.convert(fields, _Header))
            elif isinstance(fields, dict) and _END in fields:
                self._finish(msgspec.convert(fields, _End))
            else:
                entry = msgspec.convert(fields, _Entry)
                self._entries += 1
                family = self._family if entry.family is None else entry.family
                yield family, parse_bytes(entry.key), parse_bytes(entry.value)
        if self._inside:
            raise ValueError("the input ends before the dump does: make the dump again")

    def _begin(self, header: _Header) -> None:
        if header.pystate_dump > DUMP_VERSION:
            raise ValueError(
                f"a dump of version {header.pystate_dump}, but this pystate reads up to {DUMP_VERSION}: upgrade pystate"
            )
        if self._inside:
            raise ValueError("another dump begins before this one has ended: make the dump again")
        self._inside = True
        self._entries = 0
        self.families += header.families

    def _finish(self, end: _End) -> None:
        if not self._inside or end.pystate_dump_end != self._entries:
            raise ValueError(
                f"the dump says that it has {end.pystate_dump_end} entries, and {self._entries} were read: make the "
                "dump again"
            )
        self._inside = False
        self._entries = 0


class _Loader:
    """Puts entries into a store, a batch at a time.

    Attributes:
        entries: entries that were committed.
        commits: commits made, created families not counted.
        families: entries that were committed, by family.
    """

    def __init__(self, store: pystate.Store) -> None:
        self._store = store
        self._known = set(store.families)
        self._txn: pystate.Transaction | None = None
        self._batch: dict[str, int] = {}
        self._batch_entries = 0
        self._batch_bytes = 0
        self.entries = 0
        self.commits = 0
        self.families: dict[str, int] = {}

    def ensure(self, family: str) -> None:
        """Make the family if it does not exist. What was added before is committed first."""
        if family not in self._known:
            self.commit()
            self._store.create_family(family)
            self._known.add(family)
        self.families.setdefault(family, 0)

    def add(self, family: str, key: bytes, value: bytes) -> bool:
        """Add an entry; return whether it ended a batch, so that everything added is committed."""
        self.ensure(family)
        if self._txn is None:
            self._txn = self._store.begin()
        self._txn.put(family, key, value)
        self._batch[family] = self._batch.get(family, 0) + 1
        self._batch_entries += 1
        self._batch_bytes += len(key) + len(value)
        if self._batch_entries < BATCH_ENTRIES and self._batch_bytes < BATCH_BYTES:
            return False
        self.commit()
        return True

    def commit(self) -> None:
        """Commit what was added since the last commit."""
        if self._txn is None:
            return
        self._txn.commit()
        self.commits += 1
        self.entries += self._batch_entries
        for family, count in self._batch.items():
            self.families[family] += count
        self._forget()

    def rollback(self) -> None:
        """Drop what was added since the last commit."""
        if self._txn is not None:
            self._txn.rollback()
            self._forget()

    def _forget(self) -> None:
        self._txn = None
        self._batch = {}
        self._batch_entries = self._batch_bytes = 0


def load(arguments: argparse.Namespace, output: Output) -> int:
    """Put the entries of a dump into a store; families that do not exist are made."""
    began = time.perf_counter()
    with _open_input(arguments.file) as (source, size), contextlib.ExitStack() as stack:
        store = stack.enter_context(open_for_writing(arguments, create=not arguments.no_create))
        loader = _Loader(store)
        reader = _Reader(source, arguments.family)
        shown = stack.enter_context(progress("load", "bytes", size))
        _load_all(reader, loader, shown.advance, arguments.file or "standard input")
        result: dict[str, Any] = {
            "entries": loader.entries,
            "families": loader.families,
            "commits": loader.commits,
            "sequence": store.sequence,
            "seconds": round(time.perf_counter() - began, 6),
        }
    if arguments.json:
        output.json(result)
        return Exit.OK
    output.table((("family", "left"), ("entries loaded", "right")), list(loader.families.items()))
    output.line("")
    output.table(
        (("what", "left"), ("value", "left")),
        [
            ("entries", result["entries"]),
            ("commits", result["commits"]),
            ("sequence", result["sequence"]),
            ("seconds", f"{result['seconds']:.2f}"),
        ],
    )
    return Exit.OK


def _load_all(reader: _Reader, loader: _Loader, advance: Callable[[int], None], name: str) -> None:
    """Load everything that is read; say what stays when it cannot go on."""
    told = 0
    try:
        for family, key, value in reader.entries():
            if loader.add(family, key, value):
                advance(reader.bytes_read - told)
                told = reader.bytes_read
        loader.commit()
        for family in reader.families:
            loader.ensure(family)
    except KeyboardInterrupt:
        complain(_kept(loader))
        raise
    except pystate.PystateError:
        complain(_kept(loader))
        raise
    except (ValueError, msgspec.MsgspecError) as error:  # of the input, or over a limit of the store
        raise CommandError(Exit.USAGE, f"{name}, line {reader.line}: {error}. {_kept(loader)}") from error
    finally:
        loader.rollback()


def _kept(loader: _Loader) -> str:
    return f"{loader.entries:,} entries were committed before that and stay; loading again from the start does no harm"


@contextlib.contextmanager
def _open_input(path: str | None) -> Iterator[tuple[BinaryIO, int | None]]:
    """Open what is to be loaded; yield it with its size in bytes where that is known."""
    if path is not None:
        with open(path, "rb") as file:
            yield file, os.fstat(file.fileno()).st_size or None
    elif sys.stdin is None:
        raise CommandError(Exit.USAGE, "standard input is closed; name a file to load")
    else:
        yield sys.stdin.buffer, None
