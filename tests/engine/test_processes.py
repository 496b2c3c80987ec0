"""Stores and processes: killed ones, forked ones, two at once, and ones that may not write."""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pystate
from tests.engine.children import Child
from tests.engine.directories import contents, fingerprint, names


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


# ---- killed ---------------------------------------------------------------------------------------------------------


def check_after_kill(path: Path, acknowledged: dict[int, int], threads: int) -> dict[int, int]:
    """Open after a kill, compare with what had been acknowledged, and return the last number of each thread."""
    report = pystate.verify(str(path))
    assert report.ok, report.problems
    found = {}
    with pystate.open(str(path)) as store:
        assert store.families == ("default", "last", "left", "right")
        for name in range(threads):
            last = int(store.family("last").get(b"%d" % name) or b"0")
            # Everything acknowledged is there, and at most one commit more, whose acknowledgement was cut short.
            assert acknowledged.get(name, 0) <= last <= acknowledged.get(name, 0) + 1
            # And each commit is there in all families, or in none.
            numbers = range(max(1, last - 49), last + 1)
            for side in ("left", "right"):
                wanted = {b"%d:%06d" % (name, n): side[:1].encode() * (n % 100) for n in numbers}
                assert dict(store.family(side).scan(prefix=b"%d:" % name)) == wanted
            found[name] = last
    return found


@pytest.mark.parametrize("durability", ["sync", "process"])
def test_store_killed_again_and_again_has_every_acknowledged_commit(path: Path, durability: str) -> None:
    """Guarantees 1 and 2, rows 1, 28 and 51: SIGKILL at any moment, several families and threads, many times over."""
    chance = random.Random(durability)
    last: dict[int, int] = {}
    threads, snapshots = 4, 0
    for enough in [0, 1, 300, *(chance.randrange(5, 400) for _ in range(5))]:
        with Child("hammer", path, durability, threads) as child:
            assert child.hear() == "open"
            for _ in range(enough):
                name, number = child.hear()
                last[name] = number
            for line in child.kill().splitlines():
                if line.endswith("]"):
                    name, number = (int(part) for part in line.strip("[]").split(","))
                    last[name] = number
        last = check_after_kill(path, last, threads)
        snapshots += names(path, ".snapshot") != ["00000000000000000000.snapshot"]
    assert snapshots > 0
    assert min(last.values()) > 50


def test_store_killed_while_opening_opens_the_next_time(path: Path) -> None:
    """Rows 27 and 57: recovery that is cut short is begun anew."""
    with Child("serve", path) as child:
        child.hear()
        child.ask("count", 200)
        child.kill()
    for _ in range(4):
        with Child("serve", path) as child:
            child.kill()
    with pystate.open(str(path)) as store:
        assert len(store.family("default")) == 200


def test_holder_killed_does_not_block_the_next(path: Path) -> None:
    """Guarantee 7, row 51: the lock dies with its holder; nothing has to be cleaned up."""
    with Child("serve", path) as child:
        child.hear()
        child.ask("put", "default", "k", "v")
        with pytest.raises(pystate.LockedError):
            pystate.open(str(path))
        child.kill()
        with pystate.open(str(path)) as store:
            assert dict(store.family("default")) == {b"k": b"v"}
            recovery = store.stats().recovery
            assert recovery is not None
            assert recovery.decision != "clean"


# ---- two openers ----------------------------------------------------------------------------------------------------


def test_second_opener_in_another_process_is_told_who_holds_the_store(path: Path) -> None:
    """Guarantee 7, row 50: LockedError names process and host; nothing is changed."""
    with Child("serve", path) as child:
        child.hear()
        before = fingerprint(path)
        for timeout in (0.0, 0.05):
            with pytest.raises(pystate.LockedError) as caught:
                pystate.open(str(path), lock_timeout=timeout)
            assert caught.value.path == str(path)
            assert caught.value.pid == child.pid
            assert caught.value.host == socket.gethostname()
            assert str(child.pid) in str(caught.value)
            assert isinstance(caught.value, TimeoutError)
        assert fingerprint(path) == before
        assert child.ask("put", "default", "k", "v") == 1


def test_second_opener_that_waits_gets_the_store_when_it_is_closed(path: Path) -> None:
    """Row 50: `lock_timeout` waits for the holder, no longer than it takes."""
    with Child("serve", path) as child:
        child.hear()
        opened: list[pystate.Store] = []
        waiting = threading.Thread(target=lambda: opened.append(pystate.open(str(path), lock_timeout=60.0)))
        waiting.start()
        child.ask("put", "default", "k", "v")
        assert opened == []
        assert child.ask("close") == "closed"
        waiting.join(60.0)
        with opened[0] as store:
            assert dict(store.family("default")) == {b"k": b"v"}


@pytest.mark.parametrize("spelling", ["same", "link", "relative", "dots", "link to the parent", "trailing slash"])
def test_second_opener_in_the_same_process_is_refused(
    path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 7, row 49: whatever the directory is called this time."""
    monkeypatch.chdir(path.parent)
    (path.parent / "link").symlink_to(path)
    (path.parent / "up").symlink_to(path.parent)
    other = {
        "same": str(path),
        "link": str(path.parent / "link"),
        "relative": "store",
        "dots": str(path.parent / "store" / ".." / "store"),
        "link to the parent": str(path.parent / "up" / "store"),
        "trailing slash": f"{path}/",
    }[spelling]
    with pystate.open(str(path)) as store:
        for timeout in (0.0, 0.05):
            with pytest.raises(pystate.LockedError) as caught:
                pystate.open(other, lock_timeout=timeout)
            assert caught.value.pid == os.getpid()
        store.family("default")[b"k"] = b"v"
        with Child("serve", path) as child, pytest.raises(AssertionError, match="LockedError"):
            child.hear()
    with pystate.open(other) as store:
        assert dict(store.family("default")) == {b"k": b"v"}


def test_opening_that_failed_leaves_no_lock(path: Path) -> None:
    """Guarantee 7: a store that could not be opened can be opened by somebody else."""
    pystate.open(str(path)).close()
    with pytest.raises(pystate.FamilyMismatchError):
        pystate.open(str(path), families=["nope"])
    with Child("serve", path) as child:
        assert child.hear() == "open"


def test_lock_file_removed_while_held_lets_nobody_write_beside_the_other(path: Path) -> None:
    """Row 53: the old holder notices before its next commit, or the new one is refused; never two writers."""
    store = pystate.open(str(path))
    store.family("default")[b"before"] = b"v"
    (path / "LOCK").unlink()
    with Child("serve", path) as child:
        try:
            opened = child.hear() == "open"
        except AssertionError:
            opened = False
        if opened:
            child.ask("put", "default", "theirs", "v")
            with pytest.raises(pystate.StoreFailedError):
                store.family("default")[b"mine"] = b"v"
            child.ask("close")
        store.close()
    with pystate.open(str(path)) as store:
        found = set(store.family("default"))
    assert found == ({b"before", b"theirs"} if opened else {b"before"})
    assert pystate.verify(str(path)).ok


def test_store_created_by_sixteen_processes_at_once_is_one_store(path: Path) -> None:
    """Row 56: at least one gets it, the others are told that it is held, and in the end all have written to it."""
    children = [Child("create", path, number) for number in range(16)]
    try:
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            child.tell("go")
        outcomes = [child.hear() for child in children]
        for child in children:
            assert child.finish() == (0, "")
    finally:
        for child in children:
            child.__exit__()
    assert outcomes.count("won") >= 1
    assert outcomes.count("won") + outcomes.count("locked") == 16
    found = contents(path)["default"]
    assert {key for key in found if not key.startswith(b"first")} == {b"%d" % number for number in range(16)}
    assert sum(key.startswith(b"first") for key in found) == outcomes.count("won")
    assert pystate.verify(str(path)).ok


# ---- forked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["exit", "close", "collect", "hard"])
def test_forked_child_refuses_to_write_and_does_not_disturb_the_parent(path: Path, how: str) -> None:
    """Guarantee 7, rows 58 and 59: whatever the child tries and however it ends, the parent keeps lock and files."""
    with Child("fork", path, how) as child:
        said = child.hear()
        assert said.pop("read") == {"before": "v"}
        assert "ok" not in said.values(), said
        # The handles of the parent say what is the matter, each in the same way.
        assert set(said) == {"put", "delete", "commit", "begin", "create", "sync", "snapshot", "open"}
        assert said.pop("open") == "LockedError"
        assert set(said.values()) == {"ClosedError"}
        if how == "close":
            assert child.hear() in ("ok", "ClosedError")
        assert child.hear() == 0
        with pytest.raises(pystate.LockedError) as caught:
            pystate.open(str(path))
        assert caught.value.pid == child.pid
        assert contents(path) == {"default": {b"before": b"v"}}
        assert child.ask("put", "after") == 2
        assert child.ask("close") == "ok"
        code, errors = child.finish()
        assert (code, errors) == (0, "")
    assert contents(path) == {"default": {b"before": b"v", b"after": b"v"}}
    report = pystate.verify(str(path))
    assert report.ok
    assert report.clean


def test_forked_child_that_outlives_its_parent_does_not_keep_the_lock(path: Path) -> None:
    """Guarantee 7, row 61: a daemon that was forked off holds nothing of its parent's store."""
    with Child("daemonise", path) as child:
        said = child.hear()
        assert said["put"] != "ok"
        child.process.wait()
        os.kill(said["pid"], 0)
        with pystate.open(str(path)) as store:
            assert dict(store.family("default")) == {b"before": b"v"}
        child.tell("go")


def test_subprocess_inherits_no_descriptor_of_the_store(path: Path) -> None:
    """Row 60: neither a program started with all descriptors passed on, nor its children, can reach a store file."""
    script = (
        "import os, sys, json\n"
        "found = []\n"
        "for fd in range(1024):\n"
        "    try:\n"
        "        status = os.fstat(fd)\n"
        "    except OSError:\n"
        "        continue\n"
        "    found.append([status.st_dev, status.st_ino])\n"
        "print(json.dumps(found))\n"
    )
    with pystate.open(str(path)) as store, pystate.open(str(path), read_only=True) as reader:
        store.family("default")[b"k"] = b"v"
        store.snapshot()
        scan = store.family("default").scan()
        next(scan)
        reader.refresh()
        mine = [[entry.stat().st_dev, entry.stat().st_ino] for entry in path.iterdir()]
        result = subprocess.run(
            [sys.executable, "-c", script], close_fds=False, capture_output=True, text=True, check=True
        )
        inherited = json.loads(result.stdout)
    assert len(mine) >= 3
    assert [identity for identity in inherited if identity in mine] == []


# ---- reading beside a writer ----------------------------------------------------------------------------------------


def test_reader_beside_a_writer_in_another_process_catches_up(path: Path) -> None:
    """Guarantee 7: a read-only store sees one committed state, and after `refresh` a newer one, snapshots or not."""
    with Child("serve", path) as child:
        child.hear()
        child.ask("put", "default", "k", "1")
        with pystate.open(str(path), read_only=True) as reader:
            family = reader.family("default")
            assert dict(family) == {b"k": b"1"}
            assert reader.sequence == 1
            child.ask("put", "default", "k", "2")
            assert dict(family) == {b"k": b"1"}
            with reader.view() as view:
                assert reader.refresh() == 2
                assert family[b"k"] == b"2"
                assert view.get("default", b"k") == b"1"
            child.ask("create", "other")
            child.ask("put", "other", "x", "y")
            sequence = child.ask("snapshot")
            assert reader.refresh() == sequence
            assert reader.families == ("default", "other")
            assert reader.family("other")[b"x"] == b"y"
            for number in range(5):
                sequence = child.ask("put", "default", f"n{number}", "v")
                child.ask("snapshot")
            assert reader.refresh() == sequence
            assert len(family) == 6
            child.ask("drop", "other")
            assert child.ask("close") == "closed"
            assert reader.refresh() == sequence + 1
            assert [name for name in reader.families if name != "default"] == []
            assert reader.stats().read_only


def test_reader_follows_a_family_that_is_dropped_and_created_again(path: Path) -> None:
    """Row 80: a handle means the family it was taken from, also in a store that only follows."""
    with Child("serve", path) as child:
        child.hear()
        child.ask("create", "other")
        child.ask("put", "other", "old", "v")
        with pystate.open(str(path), read_only=True) as reader:
            old = reader.family("other")
            assert dict(old) == {b"old": b"v"}
            child.ask("drop", "other")
            reader.refresh()
            with pytest.raises(pystate.FamilyNotFoundError):
                old.get(b"old")
            child.ask("create", "other")
            child.ask("put", "other", "new", "v")
            reader.refresh()
            assert dict(reader.family("other")) == {b"new": b"v"}
            with pytest.raises(pystate.FamilyNotFoundError):
                old.get(b"new")
            newer = reader.family("other")
            child.ask("drop", "other")
            child.ask("create", "other")
            child.ask("snapshot")
            reader.refresh()
            assert dict(reader.family("other")) == {}
            with pytest.raises(pystate.FamilyNotFoundError):
                newer.get(b"new")


def test_reader_beside_a_busy_writer_always_sees_whole_commits(path: Path) -> None:
    """Guarantees 4 and 7: reopening and refreshing while four threads commit, switch segments and take snapshots."""
    with Child("hammer", path, "process", 4) as child:
        assert child.hear() == "open"
        listening = threading.Thread(target=lambda: [None for _ in child.process.stdout or ()], daemon=True)
        listening.start()
        sequence = 0
        with pystate.open(str(path), read_only=True) as follower:
            for _ in range(25):
                follower.refresh()
                with pystate.open(str(path), read_only=True) as fresh:
                    for store in (follower, fresh):
                        check_whole(store)
                    assert sequence <= follower.sequence <= fresh.sequence
                sequence = follower.sequence
        child.process.kill()
        listening.join()
    assert sequence > 0


def check_whole(store: pystate.Store) -> None:
    """What `hammer` writes in one commit is there in all three families."""
    for name in range(4):
        last = int(store.family("last").get(b"%d" % name) or b"0")
        numbers = [b"%d:%06d" % (name, n) for n in range(max(1, last - 49), last + 1)]
        for side in ("left", "right"):
            assert [key for key, _ in store.family(side).scan(prefix=b"%d:" % name)] == numbers


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that every user may enter, below ones that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_reader_without_write_permission_reads_and_writes_nothing(public_directory: Path) -> None:
    """Guarantee 7, row 62: a directory and files that may only be read; opening for writing there has a named error."""
    path = public_directory / "store"
    with pystate.open(str(path)) as store:
        store.family("default").update({b"a": b"1", b"b": b"2"})
        store.snapshot()
        store.family("default")[b"c"] = b"3"
    for entry in path.iterdir():
        entry.chmod(0o444)
    path.chmod(0o555)
    before = fingerprint(path)
    try:
        with Child("read_only", path) as child:
            assert child.hear() == [{"a": "1", "b": "2", "c": "3"}, 2, "ReadOnlyError"]
            assert child.hear() in ("PermissionError", "ReadOnlyError")
            assert child.finish() == (0, "")
        assert fingerprint(path) == before
    finally:
        path.chmod(stat.S_IRWXU)


# ---- disk full ------------------------------------------------------------------------------------------------------


def test_file_size_limit_reached_is_undone_and_the_store_stays_usable(path: Path) -> None:
    """Guarantee 6, row 37: a real limit of the operating system, met in the middle of a frame."""
    limit = 100_000
    with Child("fill", path, limit) as child:
        said: dict[str, Any] = child.hear()
        assert child.finish() == (0, "")
    assert said["errno"] == errno.EFBIG
    assert Path(said["path"]).parent == path
    assert said["refused"] == "DiskFullError"
    assert said["failed"] is None
    assert said["readable"] is True
    assert said["sequence"] == said["count"]
    assert 80 < said["count"] < limit // 1000
    assert said["after"] == "ok"
    wanted = {b"%06d" % number: b"v" * 1000 for number in range(said["count"])}
    assert contents(path) == {"default": {**wanted, b"after": b"v"}}
    report = pystate.verify(str(path))
    assert report.ok
    assert report.clean


# ---- leaving and moving ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["plain", "cycle", "threads", "exception"])
def test_interpreter_that_ends_with_everything_open_exits_with_0(path: Path, how: str) -> None:
    """Row 103: live iterators, views, transactions and daemon threads; no message, and nothing is lost."""
    with Child("leave", path, how, options=("-X", "dev", "-W", "error::DeprecationWarning")) as child:
        assert child.hear() == "leaving"
        assert child.finish() == (0, "")
    with pystate.open(str(path)) as store:
        family = store.family("default")
        assert len(list(family.scan(stop=b"thread"))) == 300
    assert pystate.verify(str(path)).ok


def test_working_directory_changed_while_open_changes_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 64: a store opened by a relative path stays where it was."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with pystate.open("store") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.family("default")[b"a"] = b"1"
        store.snapshot()
        store.family("default")[b"b"] = b"2"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert contents(path) == {"default": {b"a": b"1", b"b": b"2"}}


def test_directory_moved_while_open_loses_nothing(path: Path, tmp_path: Path) -> None:
    """Row 64: commits go on into the right files or are refused; what was acknowledged is there under the new name."""
    store = pystate.open(str(path))
    acknowledged = {b"a": b"1"}
    store.family("default")[b"a"] = b"1"
    path.rename(tmp_path / "moved")
    try:
        store.family("default")[b"b"] = b"2"
    except pystate.StoreFailedError:
        pass
    else:
        acknowledged[b"b"] = b"2"
    for step in (store.snapshot, store.close):
        try:
            step()
        except (OSError, pystate.PystateError):
            pass
    assert not path.exists()
    with pystate.open(str(tmp_path / "moved")) as moved:
        assert acknowledged.items() <= dict(moved.family("default")).items()


def test_store_opened_and_closed_many_times_leaks_nothing(path: Path) -> None:
    """Row 100: descriptors, threads and temporary files are as before, failing openings included."""

    def resources() -> tuple[int, int, int]:
        gc.collect()
        return len(os.listdir("/dev/fd")), threading.active_count(), len(list(path.iterdir()))

    def once() -> None:
        with pystate.open(str(path), durability="process") as store:
            store.family("default")[b"k"] = b"v"
            with pytest.raises(pystate.LockedError):
                pystate.open(str(path))
            with pystate.open(str(path), read_only=True) as reader:
                list(reader.family("default").scan())
            store.snapshot()
        with pytest.raises(pystate.FamilyMismatchError):
            pystate.open(str(path), families=["nope"])
        with pytest.raises(pystate.StoreNotFoundError):
            pystate.open(str(path.parent / "nowhere"), create=False)

    once()
    with pystate.open(str(path), read_only=True) as follower:
        once()
        follower.refresh()
        before = resources()
        for _ in range(50):
            once()
            assert follower.refresh() == follower.sequence
        assert resources() == before


def test_interrupt_of_a_child_by_the_terminal_leaves_a_store_that_opens(path: Path) -> None:
    """Row 45: SIGINT, as Ctrl-C sends it, in the midst of commits; what had been acknowledged is there."""
    with Child("hammer", path, "sync", 2) as child:
        assert child.hear() == "open"
        last: dict[int, int] = {}
        for _ in range(50):
            name, number = child.hear()
            last[name] = number
        child.process.send_signal(signal.SIGINT)
        assert child.process.stdout is not None
        for line in child.process.stdout:
            if line.rstrip().endswith("]"):
                name, number = (int(part) for part in line.strip("[]\n").split(","))
                last[name] = number
        child.process.wait()
    check_after_kill(path, last, 2)
