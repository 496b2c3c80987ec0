"""Plain dicts that behave as a family does, and random keys, bounds and scans; for the fuzzers that compare."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["KEY_BYTES", "Scan", "random_key", "random_scan", "random_value", "scanned"]

_ALPHABET = (b"", b"\x00", b"a", b"b", b"c", b"\xff")
KEY_BYTES = 3
"""The longest key that is drawn."""


class Scan(NamedTuple):
    """The arguments of one scan."""

    start: bytes | None
    stop: bytes | None
    prefix: bytes | None
    reverse: bool
    limit: int | None


def random_key(source: random.Random) -> bytes:
    """Up to three of a few letters, among them the smallest and the largest."""
    return b"".join(source.choice(_ALPHABET) for _ in range(KEY_BYTES))


def random_value(source: random.Random) -> bytes:
    """Mostly short, now and then empty or longer."""
    return source.randbytes(source.choice((0, 1, 3, 8, 8, 100, 1000)))


def random_scan(source: random.Random) -> Scan:
    """Bounds in any order, a prefix, both, or neither; in both directions."""
    start, stop, prefix = (random_key(source) if source.random() < 0.4 else None for _ in range(3))
    limit = source.randrange(6) if source.random() < 0.3 else None
    return Scan(start, stop, prefix, source.random() < 0.5, limit)


def scanned(entries: Mapping[bytes, bytes], scan: Scan) -> list[tuple[bytes, bytes]]:
    """What a scan must yield."""
    found = [
        (key, value)
        for key, value in sorted(entries.items(), reverse=scan.reverse)
        if (scan.start is None or scan.start <= key)
        and (scan.stop is None or key < scan.stop)
        and (scan.prefix is None or key.startswith(scan.prefix))
    ]
    return found if scan.limit is None else found[: scan.limit]
