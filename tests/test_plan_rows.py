"""Rows of the test plan that no other test is about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pystate
from pystate.errors import LockedError, PystateError
from pystate.testing import SimulatedDisk, open_quietly
from tests.markdown import ROOT

#: Prints a hash of every byte that a small program leaves on a disk, and of what it reads.
SAME_BYTES = """
import hashlib
import pystate
from pystate.testing import SimulatedDisk, read_state

disk = SimulatedDisk("the same")
with pystate.open("/store", files=disk, families=["names", "numbers"]) as store:
    for number in range(100):
        with store.begin() as txn:
            txn.put("numbers", b"%d" % number, bytes(number))
            txn.put("names", b"%d" % (number % 7), b"%d" % number)
    store.family("numbers").delete_range(b"2", b"3")
    store.snapshot()
    store.family("names").update({b"a": b"1", b"b": b"2"})
with pystate.open("/store", files=disk, families=["names", "numbers"]) as store:
    state = {name: list(entries.items()) for name, entries in read_state(store).items()}
files = sorted(disk.files().items())
print(hashlib.sha256(repr((files, state, [tuple(one) for one in disk.operations])).encode()).hexdigest())
"""

#: Opens a store and prints how many entries it has, and how much memory, in KiB, the process has taken at most.
OPENS = """
import pathlib, resource, sys
import pystate
def peak():  # in KiB; what getrusage tells on Linux begins with the peak of the parent
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
with pystate.open(sys.argv[1], create=False, snapshot_log_bytes=1 << 40) as store:
    print(len(store.family("default")), peak())
"""


def run(program: str, *options: str, arguments: tuple[str, ...] = (), **environment: str) -> str:
    """What a program prints that runs in an interpreter of its own."""
    ran = subprocess.run(
        [sys.executable, *options, "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_same_bytes_without_assertions_with_warnings_as_errors_and_with_any_hash_seed() -> None:
    """Row 105: the same operations on the disk, the same files, the same data."""
    expected = run(SAME_BYTES, PYTHONHASHSEED="0")
    assert run(SAME_BYTES, "-O", PYTHONHASHSEED="0") == expected
    assert run(SAME_BYTES, "-OO", PYTHONHASHSEED="1") == expected
    assert run(SAME_BYTES, "-W", "error", PYTHONHASHSEED="2") == expected
    assert run(SAME_BYTES, "-X", "dev", PYTHONHASHSEED="random") == expected


def test_second_writer_that_a_lying_lock_lets_in_writes_nothing_beside_the_first() -> None:
    """Row 55: the lock of the log itself keeps it out; what the first has acknowledged is there."""
    disk = SimulatedDisk()
    first = open_quietly(disk)
    first.family("default")[b"1"] = b"first"
    disk.locks_lie = True
    with pytest.raises(LockedError):
        open_quietly(disk)
    first.family("default")[b"2"] = b"first"
    first.close()
    with open_quietly(disk) as store:
        assert dict(store.family("default")) == {b"1": b"first", b"2": b"first"}


@pytest.mark.parametrize("writes", ["first", "second", "both"])
def test_two_writers_that_a_lying_lock_lets_in_before_a_commit_do_not_mix(writes: str) -> None:
    """Row 55: whatever was acknowledged, by either of them, is there in the end."""
    disk = SimulatedDisk()
    open_quietly(disk).close()
    disk.locks_lie = True
    stores: dict[str, pystate.Store] = {"first": open_quietly(disk)}
    acknowledged: dict[bytes, bytes] = {}
    try:
        try:
            stores["second"] = open_quietly(disk)
        except LockedError:
            pass
        for name in stores if writes == "both" else [writes]:
            try:
                stores[name].family("default")[name.encode()] = b"acknowledged"
            except (KeyError, PystateError):
                continue  # not let in, or told
            acknowledged[name.encode()] = b"acknowledged"
    finally:
        for store in stores.values():
            try:
                store.close()
            except PystateError:
                pass
    assert acknowledged
    with open_quietly(disk) as store:
        assert dict(store.family("default")) == acknowledged


@pytest.mark.slow
def test_log_of_a_million_records_is_replayed_however_often_that_is_cut_short(tmp_path: Path) -> None:
    """Row 102: in less than a KiB of memory for each record; a kill in the middle of it begins it anew."""
    commits, each = 500, 2_000
    path = str(tmp_path / "store")
    with pystate.open(path, durability="process", snapshot_log_bytes=1 << 40) as store:
        default = store.family("default")
        for commit in range(commits):
            default.update({b"%d %d" % (commit, number): b"value" for number in range(each)})
    for seconds in (0.05, 0.2, 0.4, 0.8):
        child = subprocess.Popen(
            [sys.executable, "-c", OPENS, path],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    count, kibibytes = map(int, run(OPENS, arguments=(path,)).split())
    assert count == commits * each
    assert kibibytes < count
