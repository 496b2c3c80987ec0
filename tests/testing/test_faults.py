"""Faults by themselves, on the disk alone; then every call of the engine, made to fail in every way there is."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

import pystate
from pystate import DiskFullError, PystateError, StoreFailedError
from pystate.engine.files import publish, read_whole, write_all
from pystate.testing import (
    OPERATIONS,
    Call,
    Fault,
    History,
    Level,
    Recorder,
    SimulatedDisk,
    check_recovered,
    crash_here,
    disk_full,
    each_call,
    failing,
    lost_sync,
    open_quietly,
    short,
    turns_read_only,
)


def durable(disk: SimulatedDisk) -> dict[str, bytes]:
    [state] = crash_here(disk, level=Level.NOTHING_UNSYNCED)
    return state.files()


def outcomes(count: int, call: Callable[[], object]) -> list[str]:
    """What so many calls raise: the name of the errno or of the exception, or nothing."""
    found = []
    for _ in range(count):
        try:
            call()
        except OSError as error:
            found.append(errno.errorcode[error.errno or 0])
        except BaseException as error:
            found.append(type(error).__name__)
        else:
            found.append("")
    return found


def opened(disk: SimulatedDisk, content: bytes = b"") -> object:
    disk.put({"/a": content})
    return disk.open_append("/a")


# Which calls a fault hits


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (failing("kind", 2), ["", "EIO", "", "", ""]),
        (failing("kind", 2, errno.EACCES, times=2), ["", "EACCES", "EACCES", "", ""]),
        (failing("kind", 3, errno.EIO, times=None), ["", "", "EIO", "EIO", "EIO"]),
        (failing("any", 1, KeyboardInterrupt), ["KeyboardInterrupt", "", "", "", ""]),
        (failing("kind", 1, MemoryError("no memory")), ["MemoryError", "", "", "", ""]),
        (failing("write", 1), ["", "", "", "", ""]),
        (Fault("kind", 2, path="/a"), ["", "EIO", "", "", ""]),
        (Fault("kind", 1, path="/b"), ["", "", "", "", ""]),
    ],
    ids=str,
)
def test_fault_hits_the_calls_it_names_and_no_other(fault: Fault, expected: list[str]) -> None:
    disk = SimulatedDisk()
    disk.inject(fault)
    assert outcomes(5, lambda: disk.kind("/a")) == expected
    assert disk.faults.fired == [fault] * sum(bool(one) for one in expected)


def test_every_operation_can_fail() -> None:
    def everything(disk: SimulatedDisk) -> None:
        disk.make_directory("/d")
        lock = disk.lock("/d", "LOCK", 0.0)
        lock.still_held()
        publish(disk, "/d", "a", b"content")
        file = disk.open_append("/d/a")
        file.truncate(3)
        file.close()
        assert read_whole(disk, "/d/a") == b"con"
        assert disk.kind("/d") == "directory"
        disk.list_directory("/d")
        disk.unlink("/d/a")
        lock.release()

    calls = list(each_call(everything))
    assert {call.operation for call in calls} == set(OPERATIONS)
    for call in calls:
        disk = SimulatedDisk()
        disk.inject(call.fault(errno.EIO))
        if call.operation == "still_held":  # an answer, not an error
            everything(disk)
        else:
            with pytest.raises(OSError) as caught:
                everything(disk)
            assert caught.value.errno == errno.EIO
            failed = [operation for operation in disk.operations if operation.error]
            assert [(one.name, one.path) for one in failed[:1]] == [(call.operation, call.path)]


def test_each_call_counts_from_one_and_can_be_limited_to_some_operations() -> None:
    def workload(disk: SimulatedDisk) -> None:
        publish(disk, "/", "a", b"1")
        publish(disk, "/", "b", b"2")

    assert [str(call) for call in each_call(workload, operations="write sync_directory")] == [
        "write-1", "sync_directory-1", "write-2", "sync_directory-2",
    ]  # fmt: skip
    assert len(list(each_call(workload))) == 12


def test_unknown_operation_and_call_number_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="'rename' is no operation"):
        Fault("rename")
    with pytest.raises(ValueError, match="counted from 1"):
        Fault("write", 0)


def test_faults_can_be_cleared() -> None:
    disk = SimulatedDisk()
    disk.inject(failing("any", 1, times=None))
    assert outcomes(1, lambda: disk.kind("/")) == ["EIO"]
    disk.faults.clear()
    assert outcomes(1, lambda: disk.kind("/")) == [""]
    assert len(disk.faults.fired) == 1


# What a fault does


def test_failing_call_does_nothing_and_with_after_everything() -> None:
    disk = SimulatedDisk()
    file = disk.create("/a")
    disk.inject(failing("write", 1), Fault("write", 2, error=KeyboardInterrupt, after=True))
    assert outcomes(2, lambda: file.write(b"x")) == ["EIO", "KeyboardInterrupt"]
    assert disk.files() == {"/a": b"x"}
    disk.inject(Fault("replace", 1, after=True), failing("unlink", 1))
    assert outcomes(1, lambda: disk.replace("/a", "/b")) == ["EIO"]
    assert outcomes(1, lambda: disk.unlink("/b")) == ["EIO"]
    assert disk.files() == {"/b": b"x"}
    file.close()


def test_descriptor_is_closed_although_closing_it_failed() -> None:
    disk = SimulatedDisk()
    file = disk.create("/a")
    disk.inject(failing("close"))
    assert outcomes(2, file.close) == ["EIO", ""]
    assert disk.open_descriptors == []


def test_short_write_and_short_read_take_what_they_are_told() -> None:
    disk = SimulatedDisk()
    file = disk.create("/a")
    disk.inject(short("write", 2, take=3), short("read_at", 1, take=2))
    assert [file.write(b"abcdef") for _ in range(3)] == [6, 3, 6]
    assert [file.read_at(0, 6) for _ in range(2)] == [b"ab", b"abcdef"]
    file.close()


def test_failing_sync_keeps_the_pages_for_the_next_one() -> None:
    disk = SimulatedDisk()
    disk.put({"/a": b"old"})
    file = disk.open_append("/a")
    file.write(b"new")
    disk.inject(failing("sync"))
    assert outcomes(1, file.sync) == ["EIO"]
    assert durable(disk) == {"/a": b"old"}
    file.sync()
    assert durable(disk) == {"/a": b"oldnew"}


@pytest.mark.parametrize("error", [errno.EIO, None])
def test_sync_that_drops_the_pages_leaves_the_size_and_zeros(error: int | None) -> None:
    disk = SimulatedDisk()
    disk.put({"/a": b"old"})
    file = disk.open_append("/a")
    file.write(b"new")
    disk.inject(lost_sync(error=error))
    assert outcomes(1, file.sync) == ["" if error is None else "EIO"]
    assert disk.files() == {"/a": b"old\0\0\0"}
    assert durable(disk) == {"/a": b"old"}
    file.write(b"more")
    file.sync()
    assert disk.files() == durable(disk) == {"/a": b"old\0\0\0more"}


def test_sync_that_leaves_the_pages_in_the_cache_alone_shows_them_until_power_loss() -> None:
    """Row 32, the disk's part."""
    disk = SimulatedDisk()
    disk.put({"/a": b"old"})
    file = disk.open_append("/a")
    file.write(b"new")
    disk.inject(lost_sync(pages="cached"))
    assert outcomes(1, file.sync) == ["EIO"]
    assert disk.files() == {"/a": b"oldnew"}
    assert durable(disk) == {"/a": b"old"}
    file.sync()
    assert durable(disk) == {"/a": b"old"}
    file.write(b"!")
    file.sync()
    assert disk.files() == {"/a": b"oldnew!"}
    assert durable(disk) == {"/a": b"old\0\0\0!"}


def test_directory_sync_that_forgets_the_entries_shows_them_until_power_loss() -> None:
    disk = SimulatedDisk()
    disk.put({"/a": b"old"})
    disk.replace("/a", "/b")
    disk.inject(Fault("sync_directory", 1, pages="cached"))
    assert outcomes(2, lambda: disk.sync_directory("/")) == ["EIO", ""]
    assert disk.files() == {"/b": b"old"}
    assert durable(disk) == {"/a": b"old"}


def test_sync_that_fails_late_has_made_everything_durable() -> None:
    """Row 33, the disk's part."""
    disk = SimulatedDisk()
    disk.put({"/a": b""})
    file = disk.open_append("/a")
    file.write(b"new")
    disk.inject(Fault("sync", 1, after=True))
    assert outcomes(1, file.sync) == ["EIO"]
    assert durable(disk) == {"/a": b"new"}


def test_full_disk_takes_the_room_there_is_and_may_get_some_back() -> None:
    disk = SimulatedDisk()
    disk.put({"/a": b"1234"})
    file = disk.open_append("/a")
    disk.inject(*disk_full(2, room=1, calls=2))
    taken = [file.write(b"56")]
    taken.append(file.write(b"78"))
    assert outcomes(1, lambda: file.write(b"8")) == ["ENOSPC"]
    taken.append(file.write(b"89"))
    assert taken == [2, 1, 2]
    disk.inject(*disk_full())
    assert outcomes(3, lambda: file.write(b"x")) == ["ENOSPC"] * 3
    file.close()


def test_disk_turns_read_only_at_a_call_and_stays_so() -> None:
    disk = SimulatedDisk()
    disk.inject(turns_read_only(2, operation="write"))
    file = disk.create("/a")
    assert outcomes(3, lambda: file.write(b"x")) == ["", "EROFS", "EROFS"]
    assert outcomes(1, file.sync) == ["EROFS"]
    assert read_whole(disk, "/a") == b"x"
    file.close()


def test_effect_can_do_anything_to_the_disk() -> None:
    disk = SimulatedDisk()
    lock = disk.lock("/", "LOCK", 0.0)
    disk.inject(Fault("create", 1, error=None, effect=lambda disk: disk.unlink("/LOCK")))
    write_all(disk.create("/a"), b"x")
    assert not lock.still_held()


# The engine, under every fault


PATH = "/store"


def commits(disk: SimulatedDisk, history: History, *, interrupts: bool = False) -> None:
    """Opens a store and uses all of it, goes on after every error as a program would, and closes what it has opened."""
    errors: tuple[type[BaseException], ...] = (PystateError, OSError)
    if interrupts:
        errors = (*errors, KeyboardInterrupt, MemoryError)
    try:
        store = open_quietly(disk)
    except errors:
        return
    recorder = Recorder(store, history)
    steps: list[Callable[[], object]] = [
        lambda: recorder.put(b"a", b"1"),
        lambda: recorder.create_family("other"),
        lambda: recorder.commit({"default": {b"a": b"2", b"b": b"2" * 600}, "other": {b"c": b"2"}}),
        recorder.snapshot,
        lambda: recorder.delete(b"a"),
        lambda: recorder.put(b"d", b"3"),
        recorder.close,
    ]
    for step in steps:
        try:
            step()
        except errors:
            pass
    for _ in range(2):
        try:
            store.close()
        except errors:
            pass


def a_store() -> SimulatedDisk:
    disk = SimulatedDisk()
    with open_quietly(disk) as store:
        store.family("default").put(b"before", b"all")
    return disk


INITIAL = {"default": {b"before": b"all"}}


def calls_of_the_engine() -> list[Call]:
    """Every call of a run from an existing store."""
    return list(each_call(lambda disk: commits(disk, History(disk)), disk=a_store()))


def run_with(*faults: Fault, interrupts: bool = False, short_io: bool = False) -> tuple[SimulatedDisk, History]:
    """The run with these faults, which are gone when it ends."""
    disk = a_store()
    disk.short_io = short_io
    disk.inject(*faults)
    history = History(disk, INITIAL)
    commits(disk, history, interrupts=interrupts)
    disk.faults.clear()
    disk.quota, disk.read_only = None, False
    return disk, history


def check_all(disk: SimulatedDisk, history: History) -> None:
    """What every run must leave: nothing open; a store that opens, after power loss too, with all it must have."""
    assert disk.held_locks == []
    assert disk.open_descriptors == []
    for level in (Level.NOTHING_UNSYNCED, Level.KILL):
        for state in crash_here(disk, level=level):
            check_recovered(state.open_disk(), history, level=level, thorough=True)


@pytest.mark.parametrize("call", calls_of_the_engine(), ids=str)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_any_call_of_the_engine_may_fail_once(call: Call, error: int) -> None:
    """Rows 30, 31, 34, 39, 44 and 48."""
    disk, history = run_with(call.fault(error))
    assert len(disk.faults.fired) == 1
    check_all(disk, history)


@pytest.mark.parametrize("call", calls_of_the_engine(), ids=str)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_any_call_of_the_engine_may_fail_for_ever(call: Call, error: int) -> None:
    disk, history = run_with(call.fault(error, times=None))
    check_all(disk, history)


@pytest.mark.parametrize("call", calls_of_the_engine(), ids=str)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError], ids=lambda error: error.__name__)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_any_call_of_the_engine_may_be_interrupted(call: Call, error: type[BaseException], after: bool) -> None:
    """Rows 45 and 46."""
    disk, history = run_with(call.fault(error, after=after), interrupts=True)
    check_all(disk, history)


@pytest.mark.parametrize("call", list(each_call(lambda disk: commits(disk, History(disk)))), ids=str)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, KeyboardInterrupt], ids=str)
def test_any_call_of_a_creation_may_fail(call: Call, error: int | type[BaseException]) -> None:
    """Row 57, for errors instead of crashes."""
    disk = SimulatedDisk()
    disk.inject(call.fault(error))
    history = History(disk)
    commits(disk, history, interrupts=True)
    disk.faults.clear()
    assert disk.held_locks == disk.open_descriptors == []
    for state in crash_here(disk, level=Level.NOTHING_UNSYNCED):
        check_recovered(state.open_disk(), history, thorough=True)


@pytest.mark.parametrize("n", [call.n for call in calls_of_the_engine() if call.operation == "sync"])
@pytest.mark.parametrize("pages", ["kept", "cached", "dropped"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("times", [1, None], ids=["once", "for-ever"])
def test_sync_that_fails_in_any_way_is_never_believed_again(n: int, pages: str, after: bool, times: int | None) -> None:
    """Rows 31, 32 and 33: neither by the store nor, where the pages stay in the cache, by the one opened next."""
    disk, history = run_with(Fault("sync", n, pages=pages, after=after, times=times))  # type: ignore[arg-type]
    check_all(disk, history)


@pytest.mark.parametrize("n", [call.n for call in calls_of_the_engine() if call.operation == "write"])
@pytest.mark.parametrize("room", [0, 1, 20])
@pytest.mark.parametrize("calls", [1, 2, 3, None])
def test_disk_may_be_full_at_any_write_and_get_room_again(n: int, room: int, calls: int | None) -> None:
    """Rows 37 and 39."""
    disk, history = run_with(*disk_full(n, room=room, calls=calls))
    check_all(disk, history)


@pytest.mark.parametrize("n", range(1, len(calls_of_the_engine()) + 1))
def test_file_system_may_turn_read_only_at_any_call(n: int) -> None:
    """Row 63."""
    disk, history = run_with(turns_read_only(n))
    check_all(disk, history)


@pytest.mark.parametrize("seed", range(5))
def test_short_reads_and_writes_are_never_seen(seed: int) -> None:
    """Rows 41, 42 and 43."""
    disk = SimulatedDisk(seed, short_io=True, io_bytes_max=100)
    history = History(disk)
    commits(disk, history)
    assert [commit.outcome for commit in history.commits] == ["acknowledged"] * 5
    check_all(disk, history)


def test_full_disk_is_a_definite_abort_and_the_store_goes_on() -> None:
    """Row 37."""
    disk = a_store()
    with open_quietly(disk) as store:
        store.family("default").put(b"a", b"1")
        disk.quota = disk.used_bytes() + 5
        with pytest.raises(DiskFullError):
            store.family("default").put(b"b", b"2")
        disk.quota = None
        store.family("default").put(b"c", b"3")
    with open_quietly(disk) as store:
        assert set(store.family("default")) == {b"before", b"a", b"c"}


def test_failing_sync_poisons_the_store_and_says_that_the_outcome_is_unknown() -> None:
    """Row 31."""
    disk = a_store()
    with open_quietly(disk) as store:
        disk.inject(failing("sync"))
        with pytest.raises(StoreFailedError) as caught:
            store.family("default").put(b"a", b"1")
        assert caught.value.unknown
        with pytest.raises(StoreFailedError) as caught:
            store.family("default").put(b"b", b"2")
        assert not caught.value.unknown
        assert store.family("default")[b"before"] == b"all"


def test_store_is_opened_with_no_free_byte_or_refused_without_a_change() -> None:
    """Row 40."""
    for state in crash_here(a_store(), level=Level.KILL):
        disk = state.open_disk()
        disk.quota = 0
        before = disk.files()
        try:
            pystate.open(PATH, files=disk).close()
        except DiskFullError:
            assert {path: disk.files()[path] for path in before} == before
