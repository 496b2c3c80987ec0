"""Commands that read: ``get``, ``scan``, ``stat``, ``families``.

They open the store read-only, so they work beside a live writer and on read-only media, and change nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import msgspec

import pystate
from pystate.cli.bytes_text import format_bytes
from pystate.cli.exits import Exit
from pystate.cli.output import Output, complain, printable

__all__ = ["families", "get", "scan", "stat"]


def get(arguments: argparse.Namespace, output: Output) -> int:
    """Show the value of a key; an absent key is the exit code 1."""
    key: bytes = arguments.key
    with pystate.open(arguments.store, read_only=True) as store:
        value = store.family(arguments.family).get(key)
    if arguments.json:
        output.json(
            {
                "family": arguments.family,
                "key": format_bytes(key),
                "found": value is not None,
                "value": None if value is None else format_bytes(value),
            }
        )
    elif value is not None and arguments.raw:
        output.raw(value)
    elif value is not None:
        output.line(format_bytes(value))
    if value is None:
        complain(f"no key {format_bytes(key)} in family {arguments.family!r}")
        return Exit.NEGATIVE
    return Exit.OK


def scan(arguments: argparse.Namespace, output: Output) -> int:
    """Show entries in key order, one per line."""
    with pystate.open(arguments.store, read_only=True) as store:
        entries: Iterator[tuple[bytes, bytes]] = store.family(arguments.family).scan(
            arguments.start,
            arguments.stop,
            prefix=arguments.prefix,
            reverse=arguments.reverse,
            limit=arguments.limit,
        )
        for key, value in entries:
            if arguments.json:
                output.json_line({"key": format_bytes(key), "value": format_bytes(value)})
            else:
                output.line(f"{format_bytes(key)}\t{format_bytes(value)}")
    return Exit.OK


def stat(arguments: argparse.Namespace, output: Output) -> int:
    """Show the families with their entries, and the state of the files."""
    with pystate.open(arguments.store, read_only=True) as store:
        entries = {name: len(store.family(name)) for name in store.families}
        stats = store.stats()
    if arguments.json:
        output.json({**msgspec.to_builtins(stats), "families": entries})
        return Exit.OK
    output.table((("family", "left"), ("entries", "right")), list(entries.items()))
    output.line("")
    output.table((("what", "left"), ("value", "left")), _stat_rows(stats))
    return Exit.OK


def _stat_rows(stats: pystate.StoreStats) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [
        ("path", stats.path),
        ("sequence", stats.sequence),
        ("log bytes", stats.log_bytes),
        ("log segments", stats.log_segments),
        ("snapshot sequence", stats.snapshot_sequence),
        ("snapshot bytes", stats.snapshot_bytes),
    ]
    if stats.recovery is not None:
        rows += [
            ("log ended", stats.recovery.decision),
            ("frames replayed", stats.recovery.frames_replayed),
            ("bytes cut off at the end", stats.recovery.torn_bytes),
            ("opened in", f"{stats.recovery.seconds * 1000:.1f} ms"),
        ]
    return rows


def families(arguments: argparse.Namespace, output: Output) -> int:
    """List the names of the families, sorted, one per line."""
    names = pystate.list_families(arguments.store)
    if arguments.json:
        output.json({"families": names})
    else:
        for name in names:
            output.line(printable(name))
    return Exit.OK
