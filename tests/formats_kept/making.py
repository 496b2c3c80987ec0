"""How the stores of format version 1 were made; see `test_formats_kept` for what it is for.

    python -m tests.formats_kept.making

It writes nothing where there is a store already: what is kept is never made anew. The random bytes are fixed, so that
the same engine makes the same files.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pystate
from pystate import OsFiles

__all__ = ["FORMAT_VERSION", "HERE", "ROWS", "make"]

HERE = Path(__file__).parent
FORMAT_VERSION = 1

METADATA = {"format": "1.2.3-kept", "who": "äöü"}
FAMILIES = ("accounts", "empty", "Tor exit nodes")

#: What stands in the store in the end. Keys and values of every form that they have in the files.
ROWS: dict[str, dict[bytes, bytes]] = {
    "default": {b"": b"the empty key", b"\x00": b"", bytes(range(256)): b"all bytes"},
    "accounts": {
        **{b"account %03d" % at: b"%d" % (at * 10) for at in range(50)},
        b"long": b"0123456789abcdef" * 300,  # longer than 255 bytes; another length of length
        b"k" * 300: b"a long key",
        b"late": b"in the log",
    },
    "empty": {},
    "Tor exit nodes": {b"192.0.2.1": b"2024-02-29 12:34:56 UTC"},
}


class FixedFiles(OsFiles):
    """The real file system, with random bytes that are always the same."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn = 0

    def random_bytes(self, size: int) -> bytes:
        self._drawn += 1
        return bytes((self._drawn * 17 + at) % 256 for at in range(size))


def make(folder: Path) -> None:
    """Make two stores in `folder`, one that was ``closed`` and one whose process was ``killed`` while it wrote.

    Both have a snapshot, a segment that was not closed, and one behind it with more commits. In that of the killed one
    half a frame follows.
    """
    closed, copy, files = folder / "closed", folder / "copy", FixedFiles()
    folder.mkdir(parents=True)
    store = pystate.open(closed, families=FAMILIES, metadata=METADATA, files=files)
    accounts = store.family("accounts")
    accounts.update({key: value for key, value in ROWS["accounts"].items() if key != b"late"})
    accounts.put(b"deleted", b"before the snapshot")
    accounts.delete(b"deleted")
    store.snapshot()
    accounts.put(b"gone", b"in the log")
    accounts.put(b"account 007", b"overwritten below")
    shutil.copytree(closed, copy)  # as a killed process leaves it
    store.close()
    shutil.rmtree(closed)
    copy.rename(closed)
    with pystate.open(closed, families=FAMILIES, files=files) as store:
        change_the_rest(store)
        shutil.copytree(closed, copy)
        store.family("accounts").put(b"torn", b"half of this is lost")
        shutil.copytree(closed, folder / "killed")
    shutil.rmtree(closed)
    with pystate.open(copy, families=FAMILIES, files=files):
        pass
    copy.rename(closed)
    newest = max((folder / "killed").glob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-5])
    for lock in folder.glob("*/LOCK"):
        lock.unlink()


def change_the_rest(store: pystate.Store) -> None:
    """What is in the log: a commit in several families, a deletion, a row."""

    def change(txn: pystate.Transaction) -> None:
        txn.family("default").update(ROWS["default"])
        txn.family("Tor exit nodes").update(ROWS["Tor exit nodes"])
        txn.family("accounts").put(b"account 007", ROWS["accounts"][b"account 007"])

    store.transact(change)
    store.family("accounts").delete(b"gone")
    store.family("accounts").put(b"late", ROWS["accounts"][b"late"])


def main() -> None:
    folder = HERE / f"version_{FORMAT_VERSION}"
    if folder.exists():
        sys.exit(f"{folder} is there; what is kept is not made anew")
    make(folder)
    with pystate.open(folder / "closed", read_only=True) as store:
        expected = {
            "format_version": FORMAT_VERSION,
            "metadata": dict(store.metadata),
            "id": store.id,
            "sequence": store.sequence,
            "families": {name: {key.hex(): value.hex() for key, value in rows.items()} for name, rows in ROWS.items()},
        }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    print(*sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()), sep="\n")


if __name__ == "__main__":
    main()
