"""The process that `fuzz.kill` kills: threads commit without end, and say on standard output what was acknowledged.

Each thread counts. Its commit number ``n`` writes, in one transaction, ``n`` under its own key to the family ``last``,
an entry to ``left`` and one to ``right``, and removes older ones, so that `state_after` tells all that it must have
left. One of them also makes and drops a family of its own with every few commits.
"""

from __future__ import annotations

import os
import random
import sys
import threading

import pystate
from pystate import Durability, Store

__all__ = ["FAMILIES", "KEPT", "family_of", "main", "state_after"]

FAMILIES = ("last", "left", "right")
KEPT = 20
"""How many entries of each thread stay in the family ``left``; in ``right`` half as many."""
_CHANGES_CATALOGUE = 0
"""The thread that makes and drops families."""
_EVERY = 7


def family_of(number: int) -> str | None:
    """The family that exists beside the others after so many commits of the thread that makes them; None: unknown."""
    return f"extra-{number // _EVERY}" if number >= _EVERY else None


def state_after(thread: int, number: int) -> dict[str, dict[bytes, bytes]]:
    """All entries of one thread after so many commits."""
    if not number:
        return {name: {} for name in FAMILIES}
    entries: dict[str, dict[bytes, bytes]] = {"last": {b"%d" % thread: b"%d" % number}, "left": {}, "right": {}}
    for one in range(max(1, number - KEPT + 1), number + 1):
        entries["left"][_key(thread, one)] = _value(thread, one)
    for one in range(max(1, number - KEPT // 2 + 1), number + 1):
        entries["right"][_key(thread, one)] = _value(thread, one)
    return entries


def _key(thread: int, number: int) -> bytes:
    return b"%d:%08d" % (thread, number)


def _value(thread: int, number: int) -> bytes:
    return random.Random(f"{thread} {number}").randbytes(number * 37 % 300)


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # in one write, so that threads do not mix


def _commit(store: Store, thread: int, number: int) -> None:
    with store.begin() as txn:
        txn.put("last", b"%d" % thread, b"%d" % number)
        txn.put("left", _key(thread, number), _value(thread, number))
        txn.put("right", _key(thread, number), _value(thread, number))
        if number > KEPT:
            txn.delete("left", _key(thread, number - KEPT))
        txn.delete_range("right", b"%d:" % thread, _key(thread, number - KEPT // 2 + 1))


def _work(store: Store, thread: int) -> None:
    number = int(store.family("last").get(b"%d" % thread, b"0"))
    while True:
        number += 1
        _commit(store, thread, number)
        _say(f"{thread} {number}")
        if thread == _CHANGES_CATALOGUE and number % _EVERY == 0:
            new = family_of(number)
            assert new is not None
            if new not in store.families:
                store.create_family(new)
            for name in store.families:
                if name.startswith("extra-") and name != new:
                    store.drop_family(name)
            _say(f"family {new}")


def main(path: str, durability: Durability, threads: int, log_bytes: int) -> None:
    """Open the store, say so, and commit until the end."""
    _say("started")
    store = pystate.open(
        path,
        families=None,
        durability=durability,
        snapshot_log_bytes=log_bytes,
    )
    for name in FAMILIES:
        if name not in store.families:
            store.create_family(name)
    _say("open")
    for thread in range(threads):
        threading.Thread(target=_work, args=(store, thread), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], "sync" if sys.argv[2] == "sync" else "process", int(sys.argv[3]), int(sys.argv[4]))
