"""Mutations of every file of small stores, through everything that reads them.

A case takes one of a few stores, flips, cuts, inserts, overwrites and splices bytes of its files (also from other
stores, and whole files), puts the checksums right in some of them, and lets `pystate.open`, reading alone,
`pystate.verify`, `pystate.salvage`, `pystate.list_families` and `pystate.read_log` look at the result. Allowed are:

- only errors of pystate; and never much more memory than the files are large;
- a refused opening has changed nothing but the lock file; reading has changed nothing at all;
- what is opened can be opened again, with the same entries; and unless bytes were taken from elsewhere, or checksums
  put right, it shows the state after one of the store's commits.

With ``--guided``, where atheris is installed, the cases follow the coverage that it measures, and the lines hold the
bytes that they are drawn from; else they are drawn at random.
"""

from __future__ import annotations

import gc
import random
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import NamedTuple
from zlib import crc32

import pystate
from fuzz._harness import Coverage, ViolationError, main
from pystate import CorruptionError, PystateError, UnsupportedFormatError
from pystate.engine import log_format, snapshot_format
from pystate.testing import SimulatedDisk, open_quietly, read_state
from pystate.testing.history import State
from pystate.testing.oracle import PATH

__all__ = ["HEX", "BytesRandom", "play"]

_STORES = 6
_MEMORY_BYTES_MAX = 8 * 1024 * 1024
_MEASURED = 0.05
"""The share of the cases in which memory is measured, which is slow."""
_INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
HEX = "hex="
"""What a line begins with that holds the bytes its case is drawn from."""


class BytesRandom(random.Random):
    """Draws from given bytes, and zeros when they are used up: what a coverage-guided fuzzer mutates."""

    def __new__(cls, data: bytes) -> BytesRandom:
        return super().__new__(cls)

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        size = (k + 7) // 8
        taken = self._data[self._at : self._at + size]
        self._at += size
        # The numbers below a bound are drawn until one fits; zeros always do, so this ends.
        return int.from_bytes(taken.ljust(size, b"\0"), "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(16) / 65536


class _Base(NamedTuple):
    """A small store: its files by name, and its state after each commit."""

    files: dict[str, bytes]
    states: list[State]


@cache
def _bases() -> list[_Base]:
    return [_make_base(number) for number in range(_STORES)]


def _make_base(number: int) -> _Base:
    """A store with or without a second family, a snapshot, several segments, a closing frame, left-overs."""
    source, disk = random.Random(f"bytes {number}"), SimulatedDisk(f"bytes {number}")
    states: list[State] = [{}]
    store = open_quietly(disk)
    for step in range(4 + 2 * number):
        if step == 2 and number % 2:
            store.create_family("other")
        elif step == 4 and number in (2, 3, 5):
            store.snapshot()
        elif step == 6 and number in (3, 4):
            disk.kill()
            states.append(read_state(store))
            store = open_quietly(disk)
        else:
            name = source.choice(store.families)
            with store.begin() as txn:
                for _ in range(source.randint(1, 3)):
                    txn.put(name, b"%d" % source.randrange(9), bytes([step]) * source.choice((0, 3, 40, 700)))
        states.append(read_state(store))
    if number % 3:
        store.close()
    else:
        disk.kill()
    files = {path.rpartition("/")[2]: data for path, data in disk.files().items() if not path.endswith("LOCK")}
    states += [{"default": {}}, {"default": {}, "other": {}}]  # of a creation that was not finished
    return _Base(files, states)


class _Mutated(NamedTuple):
    files: dict[str, bytes]
    states: list[State] | None
    """All that may be shown; None if that cannot be said."""


def _mutate(source: random.Random, coverage: Coverage) -> _Mutated:
    base = source.choice(_bases())
    files, honest = dict(base.files), True
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        name = source.choice(sorted(files)) if files else "new"
        data = bytearray(files.get(name, b""))
        kind = source.choice(tuple(_MUTATIONS))
        coverage.count(kind)
        if kind == "replace file":
            other = source.choice(_bases())
            files[name] = source.choice(sorted(other.files.values()))
            honest = False
        elif kind == "rename file":
            del files[name]
            files[_another_name(source, name)] = bytes(data)
            honest = False
        elif kind == "remove file":
            del files[name]
            honest = False
        else:
            _MUTATIONS[kind](source, data)
            honest = honest and kind not in ("splice", "lengths")
            files[name] = bytes(data)
        if not files:
            break
        if name in files and source.random() < 0.4:
            files[name] = _with_checksums(files[name])
            honest = False
            coverage.count("checksums put right")
    return _Mutated(files, base.states if honest else None)


def _flip(source: random.Random, data: bytearray) -> None:
    if data:
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)


def _overwrite(source: random.Random, data: bytearray) -> None:
    if data:
        at = source.randrange(len(data))
        size = source.choice((1, 4, 16, 512))
        with_ = source.choice((b"\0", b"\xff", source.randbytes(16))) * size
        data[at : at + size] = with_[: min(size, len(data) - at)]


def _number(source: random.Random, data: bytearray) -> None:
    """A number that is likely to be a length, an offset or a sequence somewhere."""
    if len(data) >= 8:
        at = source.randrange(len(data) - 7)
        if source.random() < 0.5:
            struct.pack_into("<I", data, at, source.choice(_INTERESTING))
        else:
            struct.pack_into("<Q", data, at, source.choice(_INTERESTING) << source.choice((0, 0, 31, 32)))


def _cut(source: random.Random, data: bytearray) -> None:
    at = source.randint(0, len(data))
    del data[at : at + source.choice((1, 4, 32, len(data)))]


def _insert(source: random.Random, data: bytearray) -> None:
    at = source.randint(0, len(data))
    data[at:at] = source.choice((b"\0", b"\xff", source.randbytes(8), bytes(data[at : at + 48]))) * source.choice(
        (1, 9)
    )


def _splice(source: random.Random, data: bytearray) -> None:
    """A piece of another file, or of this one."""
    files = source.choice(_bases()).files
    other = files[source.choice(sorted(files))]
    start = source.randint(0, len(other))
    at = source.randint(0, len(data))
    data[at : at + source.choice((0, 40, len(data)))] = other[start : start + source.choice((32, 100, len(other)))]


def _lengths(source: random.Random, data: bytearray) -> None:
    """The first bytes of the body of a MessagePack value claim to be something large."""
    if data:
        at = source.randrange(len(data))
        data[at : at + 5] = source.choice((b"\xdd", b"\xdf", b"\xc6", b"\xdb")) + struct.pack(
            ">I", source.choice(_INTERESTING)
        )


def _nothing(source: random.Random, data: bytearray) -> None:
    """For whole files."""


_MUTATIONS: dict[str, Callable[[random.Random, bytearray], None]] = {
    "flip": _flip,
    "overwrite": _overwrite,
    "number": _number,
    "cut": _cut,
    "insert": _insert,
    "splice": _splice,
    "lengths": _lengths,
    "replace file": _nothing,
    "rename file": _nothing,
    "remove file": _nothing,
}


def _another_name(source: random.Random, name: str) -> str:
    stem, _, kind = name.partition(".")
    number = f"{source.choice((0, 1, 2, 3, 5, 9, 10**19, 10**20 - 1)):020d}"
    kinds = ("log", "closed", "snapshot", "log.tmp", "txt", "torn", "damaged")
    return source.choice((f"{number}.{kind}", f"{stem}.{source.choice(kinds)}"))


def _with_checksums(data: bytes) -> bytes:
    """The same file with the checksums that its present bytes must have, as far as they can be found."""
    if data.startswith(log_format.MAGIC):
        return _segment_with_checksums(bytearray(data))
    if data.startswith(snapshot_format.MAGIC):
        return _snapshot_with_checksums(bytearray(data))
    return data


def _segment_with_checksums(data: bytearray) -> bytes:
    if len(data) < 48:
        return bytes(data)
    struct.pack_into("<I", data, 44, crc32(data[:44]))
    salt, at = bytes(data[32:36]), 48
    seed = crc32(salt)
    while at + 32 <= len(data):
        if data[at : at + 4] != salt:
            at = data.find(salt, at + 1)
            if at < 0:
                break
            continue
        (length,) = struct.unpack_from("<I", data, at + 4)
        if at + 32 + length <= len(data):
            struct.pack_into("<I", data, at + 24, crc32(data[at + 32 : at + 32 + length], seed))
            struct.pack_into("<I", data, at + 28, crc32(data[at : at + 28], seed))
            at += 32 + length
        else:
            struct.pack_into("<I", data, at + 28, crc32(data[at : at + 28], seed))
            break
    return bytes(data)


def _snapshot_with_checksums(data: bytearray) -> bytes:
    size = len(data)
    if size < 56:
        return bytes(data)
    (length,) = struct.unpack_from("<I", data, 12)
    struct.pack_into("<I", data, 16, crc32(data[24 : 24 + length]))
    struct.pack_into("<I", data, 20, crc32(data[:20]))
    trailer = size - 32
    offset, index_length = struct.unpack_from("<QI", data, trailer)
    index = data[min(offset, size) : min(offset + index_length, size)]
    struct.pack_into("<I", data, trailer + 12, crc32(index))
    struct.pack_into("<I", data, trailer + 16, crc32(index, crc32(data[: 24 + length])))
    struct.pack_into("<I", data, trailer + 20, crc32(data[trailer : trailer + 20]))
    return bytes(data)


def play(line: str, coverage: Coverage) -> None:
    """Play one case, drawn from a seed or from bytes."""
    if line.startswith(HEX):
        source: random.Random = BytesRandom(bytes.fromhex(line.removeprefix(HEX)))
    else:
        source = random.Random(f"bytes {line}")
    mutated = _mutate(source, coverage)
    if source.random() < 1 - _MEASURED:
        _look(mutated, coverage)
        return
    gc.collect()
    tracemalloc.start()
    try:
        _look(mutated, coverage)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    coverage.count("memory measured")
    if peak > _MEMORY_BYTES_MAX:
        raise ViolationError(f"{peak} bytes of memory for {sum(map(len, mutated.files.values()))} bytes of files")


def _look(mutated: _Mutated, coverage: Coverage) -> None:
    disk = SimulatedDisk()
    disk.make_directory(PATH)
    disk.put({f"{PATH}/{name}": data for name, data in mutated.files.items()})
    before = disk.files()
    for what, call in _READERS.items():
        one = disk.clone()
        outcome = _outcome(lambda call=call, one=one: call(one), what)  # type: ignore[misc]
        coverage.saw(f"{what}: {outcome}")
        after = {path: data for path, data in one.files().items() if path.startswith(f"{PATH}/")}
        if after != before:
            changed = sorted(path for path in {*after, *before} if after.get(path) != before.get(path))
            raise ViolationError(f"{what} has changed {', '.join(changed)}")
        _check_nothing_open(one, what)
    _open_for_writing(disk, mutated, before, coverage)


def _open_for_writing(disk: SimulatedDisk, mutated: _Mutated, before: dict[str, bytes], coverage: Coverage) -> None:
    try:
        store = open_quietly(disk)
    except PystateError as error:
        coverage.saw(f"open: {type(error).__name__}")
        after = disk.files()
        after.pop(f"{PATH}/LOCK", None)
        before.pop(f"{PATH}/LOCK", None)
        if after != before:
            changed = sorted(path for path in {*after, *before} if after.get(path) != before.get(path))
            raise ViolationError(f"open refused ({error}), but changed {', '.join(changed)}") from error
        _check_nothing_open(disk, "open")
        return
    try:
        found = read_state(store)
    except CorruptionError:
        coverage.saw("open: damage when read")
        store.close()
        _check_nothing_open(disk, "open")
        return
    store.close()
    _check_nothing_open(disk, "open")
    coverage.saw("open: ok")
    if mutated.states is not None and found not in mutated.states:
        raise ViolationError(f"it shows a state that never was: {found!r}")
    with open_quietly(disk) as store:
        if read_state(store) != found:
            raise ViolationError("opened again, it shows another state")
        if store.families:  # put right by hand, a store may be without any
            store.family(store.families[0]).put(b"new", b"")
        store.snapshot()
    report = pystate.verify(PATH, files=disk)
    if not report.ok and mutated.states is not None:
        raise ViolationError(f"verify, after opening and a snapshot: {report.problems}")


def _check_nothing_open(disk: SimulatedDisk, what: str) -> None:
    left = disk.open_descriptors + disk.held_locks + disk.forgotten
    if left:
        raise ViolationError(f"{what} has left open: {', '.join(left)}")


def _read_only(disk: SimulatedDisk) -> None:
    with pystate.open(PATH, files=disk, read_only=True) as store:
        read_state(store)
        store.refresh()


def _salvage(disk: SimulatedDisk) -> None:
    report = pystate.salvage(PATH, "/salvaged", files=disk)
    with pystate.open("/salvaged", files=disk, read_only=True) as store:
        sizes = {name: len(entries) for name, entries in read_state(store).items()}
    expected = {"default": 0, **report.families}
    if sizes != expected:
        raise ViolationError(f"salvage reports {expected}, and has written {sizes}")


def _verify(disk: SimulatedDisk) -> None:
    if not pystate.verify(PATH, files=disk).ok:
        raise CorruptionError(PATH, expected="nothing", found="a problem in the report")


_READERS: dict[str, Callable[[SimulatedDisk], object]] = {
    "reading alone": _read_only,
    "verify": _verify,
    "salvage": _salvage,
    "list_families": lambda disk: pystate.list_families(PATH, files=disk),
    "read_log": lambda disk: list(pystate.read_log(PATH, files=disk)),
}


def _outcome(call: Callable[[], object], what: str) -> str:
    try:
        call()
    except (PystateError, UnsupportedFormatError) as error:
        if what == "verify" and not isinstance(error, (pystate.StoreNotFoundError, CorruptionError)):
            return f"raised {type(error).__name__}"
        return type(error).__name__
    return "ok"


if __name__ == "__main__":
    if "--guided" in sys.argv:
        rest = [argument for argument in sys.argv[1:] if argument != "--guided"]
        raise SystemExit(subprocess.call([sys.executable, "-m", "fuzz._guided", *rest]))
    raise SystemExit(main("bytes", play))
