"""The engine under the simulated disk: every state that a crash may leave of a few small programs.

Each program is run at every level; where a run must be exhaustive, that is asserted. `thorough` looks at all promises
of the oracle; without it only the state is compared, which is ten times as fast.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence

import pytest

import pystate
from pystate.engine.files import read_whole
from pystate.testing import (
    BrokenPromiseError,
    CheckReport,
    CrashState,
    Fault,
    History,
    Level,
    Recorder,
    SimulatedDisk,
    check,
    check_recovered,
    crash_here,
    crash_states,
    open_quietly,
    replay,
)

Workload = Callable[[SimulatedDisk], History]

LEVELS = list(Level)
BELOW_GARBAGE = LEVELS[: LEVELS.index(Level.GARBAGE)]
POWER_LOSS = LEVELS[1:]
LARGE = 1 << 40


def open_process(disk: SimulatedDisk) -> pystate.Store:
    return pystate.open("/store", files=disk, durability="process", snapshot_log_bytes=LARGE)


# The programs


def ten_commits(disk: SimulatedDisk) -> History:
    """Creation, ten commits, a clean close."""
    recorder = Recorder(open_quietly(disk), History(disk))
    for number in range(10):
        recorder.put(b"key %d" % (number % 4), b"value %d" % number)
    recorder.close()
    return recorder.history


def two_families(disk: SimulatedDisk) -> History:
    """Two families, commits over both, values larger than a sector, a snapshot (with its segment switch), a reopen."""
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.create_family("other")
    recorder.commit({"default": {b"a": b"1" * 600}, "other": {b"a": b"1", b"b": b"1"}})
    recorder.put(b"c", b"2", family="other")
    recorder.snapshot()
    recorder.commit({"default": {b"a": None, b"d": b"3"}, "other": {b"b": b"3" * 700}})
    recorder.close()
    recorder = Recorder(open_quietly(disk), recorder.history)
    recorder.delete(b"a", family="other")
    recorder.put(b"a", b"4")
    recorder.close()
    return recorder.history


def families_come_and_go(disk: SimulatedDisk) -> History:
    """Row 80: a family is dropped and made again, around snapshots."""
    recorder = Recorder(open_quietly(disk), History(disk))
    for round_ in range(2):
        recorder.create_family("f")
        recorder.put(b"x", b"%d" % round_, family="f")
        recorder.snapshot()
        recorder.drop_family("f")
    recorder.create_family("f")
    recorder.snapshot()
    recorder.close()
    return recorder.history


def process_durability(disk: SimulatedDisk) -> History:
    """Commits that power loss may take, a sync in their middle, and one commit that is synced itself."""
    recorder = Recorder(open_process(disk), History(disk))
    for number in range(4):
        recorder.put(b"key", b"a" * 40 * number)
    recorder.sync()
    for number in range(3):
        recorder.commit({"default": {b"key": b"b" * 100 * number, b"%d" % number: b""}})
    recorder.commit({"default": {b"synced": b"1"}}, durability="sync")
    for number in range(3):
        recorder.put(b"last", b"c" * number)
    return recorder.history


def process_durability_with_a_snapshot(disk: SimulatedDisk) -> History:
    """Segment switches over commits that had not been synced."""
    recorder = Recorder(open_process(disk), History(disk))
    for number in range(3):
        recorder.put(b"%d" % number, b"x" * 50)
        recorder.snapshot()
        recorder.put(b"%d" % number, b"y" * 50)
    recorder.close()
    return recorder.history


def crash_and_go_on(disk: SimulatedDisk) -> History:
    """Row 28: the process dies, another one recovers and commits, and so on, without a snapshot."""
    history = History(disk)
    for number in range(4):
        recorder = Recorder(open_process(disk) if number % 2 else open_quietly(disk), history)
        recorder.put(b"%d" % number, b"1")
        recorder.put(b"last", b"%d" % number)
        disk.kill()
    return history


def full_disk_in_between(disk: SimulatedDisk) -> History:
    """Row 37: a frame is cut back because the disk is full; then there is room again."""
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.put(b"a", b"1")
    disk.quota = disk.used_bytes() + 30
    with pytest.raises(pystate.DiskFullError):
        recorder.put(b"b", b"2" * 100)
    disk.quota = None
    recorder.put(b"c", b"3")
    recorder.put(b"d", b"4")
    return recorder.history


def failed_sync_and_reopened(disk: SimulatedDisk) -> History:
    """Row 31: a sync fails (and nothing is known), the program opens the store again and goes on."""
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.put(b"a", b"1")
    disk.inject(Fault("sync", 1, error=errno.EIO))
    with pytest.raises(pystate.StoreFailedError):
        recorder.put(b"b", b"2")
    recorder.close()
    recorder = Recorder(open_quietly(disk), recorder.history)
    recorder.put(b"c", b"3")
    recorder.put(b"d", b"4")
    return recorder.history


PROGRAMS: list[Workload] = [
    ten_commits,
    two_families,
    families_come_and_go,
    process_durability,
    process_durability_with_a_snapshot,
    crash_and_go_on,
    full_disk_in_between,
    failed_sync_and_reopened,
]


def judge(state: CrashState) -> None:
    check_recovered(state, state.result)


def judge_thoroughly(state: CrashState) -> None:
    check_recovered(state, state.result, thorough=True)


# Every level


@pytest.mark.parametrize("level", BELOW_GARBAGE, ids=lambda level: level.value)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_crash_below_garbage_keeps_every_promise(program: Workload, level: Level) -> None:
    """Rows 1 to 5, 23 to 26, 28, 31, 37, 57 and 80."""
    report = check(program, judge, level=level)
    assert report.exhaustive, report


@pytest.mark.parametrize("level", [Level.GARBAGE, Level.DAMAGE], ids=lambda level: level.value)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_garbage_and_damage_are_noticed(program: Workload, level: Level) -> None:
    """Rows 7 and 11."""
    check(program, judge, level=level, budget=1500)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.value)
def test_whatever_opens_verifies_recovers_again_and_goes_on(program: Workload, level: Level) -> None:
    """C4, C7 and C8 of the model."""
    check(program, judge_thoroughly, level=level, budget=120)


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_is_drawn_where_there_are_too_many_states(seed: int) -> None:
    def large_values(disk: SimulatedDisk) -> History:
        recorder = Recorder(open_process(disk), History(disk))
        for number in range(6):
            recorder.put(b"%d" % number, bytes([65 + number]) * 1500)
        recorder.snapshot()
        recorder.put(b"last", b"z" * 3000)
        return recorder.history

    report = check(large_values, judge, level=Level.GARBAGE, budget=400, seed=seed)
    assert not report.exhaustive
    assert report.states > 200


def test_at_least_300_states_a_second_are_opened_compared_and_closed() -> None:
    best = 0.0
    for _ in range(3):
        begun = time.process_time()
        report = check(ten_commits, judge, level=Level.SECTORS)
        best = max(best, report.states / (time.process_time() - begun))
    assert best > 300, f"{best:.0f} states a second"


# Crashes in recovery


@pytest.mark.parametrize(
    "levels",
    [
        (Level.SECTORS, Level.SECTORS),
        (Level.KILL, Level.SECTORS),
        (Level.SECTORS, Level.KILL),
        (Level.KILL, Level.KILL, Level.PREFIX),
        (Level.PREFIX, Level.SECTORS, Level.SECTORS, Level.SECTORS),
    ],
    ids=lambda levels: "-then-".join(level.value for level in levels),
)
@pytest.mark.parametrize(
    "program", [two_families, process_durability, crash_and_go_on], ids=lambda program: program.__name__
)
def test_crash_in_the_recovery_from_a_crash_loses_nothing(program: Workload, levels: Sequence[Level]) -> None:
    """Row 27."""
    nested = len(levels) - 1
    report = check(
        program,
        judge,
        level=levels[0],
        budget=60,
        nested=nested,
        nested_levels=levels[1:],
        nested_budget={1: 16, 2: 5, 3: 3}[nested],
        recovery=open_quietly,
    )
    assert report.states > 300


def test_torn_bytes_are_kept_aside_before_they_are_cut_off() -> None:
    """R2: at every moment of a repair the torn bytes are in the segment or in a file beside it."""

    def torn(disk: SimulatedDisk) -> None:
        recorder = Recorder(open_process(disk), History(disk))
        recorder.put(b"a", b"1")
        recorder.sync()
        recorder.put(b"b", b"torn away" * 100)

    *_, last = (state for state in crash_states(torn, level=Level.PREFIX) if 512 in map(len, state.files().values()))
    before = read_whole(last.open_disk(), "/store/00000000000000000001.log")

    def repair(disk: SimulatedDisk) -> None:
        open_quietly(disk).close()

    cut = 0
    for state in crash_states(repair, level=Level.SECTORS, disk=last.open_disk()):
        kept = [content for path, content in state.files().items() if path.endswith(".torn")]
        log = state.files().get("/store/00000000000000000001.log", b"")
        if not log.startswith(before):
            cut += 1
            assert any(before.endswith(content) and len(content) > 400 for content in kept), state
    assert cut > 0


# Creation, process durability, clean close


def test_crash_in_the_creation_leaves_no_store_or_a_whole_one() -> None:
    """Row 57."""

    def create(disk: SimulatedDisk) -> None:
        pystate.open("/store", files=disk, families=["a", "b"])

    def whole_or_nothing(state: CrashState) -> None:
        disk = state.open_disk()
        try:
            assert pystate.list_families("/store", files=disk) == ("a", "b", "default")
        except pystate.StoreNotFoundError:
            with pystate.open("/store", files=disk, families=["a", "b"]) as store:
                assert store.families == ("a", "b", "default")
        else:
            with pystate.open("/store", files=disk, families=["a", "b"], create=False) as store:
                assert store.sequence == 0

    for level in BELOW_GARBAGE:
        assert check(create, whole_or_nothing, level=level).exhaustive


def creation_goes_on_after_a_kill(operation: int) -> None:
    """A process dies in the creation, another one opens, commits and is told so; then power is lost."""
    states = crash_states(lambda disk: open_quietly(disk).close(), level=Level.KILL)
    for state in states:
        if state.operation == operation:
            disk = state.open_disk()
            recorder = Recorder(open_quietly(disk), History(disk))
            recorder.put(b"a", b"1")
            for after in crash_here(disk, level=Level.NOTHING_UNSYNCED):
                check_recovered(after.open_disk(), recorder.history, thorough=True)


MOMENTS = [state.operation for state in crash_states(lambda disk: open_quietly(disk).close(), level=Level.KILL)]


@pytest.mark.parametrize("operation", MOMENTS)
def test_creation_that_a_dead_process_began_is_finished_durably(operation: int) -> None:
    """At operation 2, the name of the directory was not synced by the one who made it, nor by the next opener."""
    creation_goes_on_after_a_kill(operation)


def test_crash_while_a_closed_segment_is_taken_into_use_again_loses_nothing() -> None:
    """Symptom: after a kill, a commit and a power cut the store refused to open. The killed process had taken the name
    of a cleanly closed segment from it and not synced the directory; the next one appended to the segment, and power
    loss brought the old name back, over a segment that did not end as its name said. Now the next one syncs it.
    """

    def reopened(disk: SimulatedDisk) -> History:
        recorder = Recorder(open_quietly(disk), History(disk))
        recorder.put(b"a", b"1")
        recorder.close()
        recorder = Recorder(open_quietly(disk), recorder.history)
        recorder.put(b"b", b"2")
        return recorder.history

    for state in crash_states(reopened, level=Level.KILL):
        disk = state.open_disk()
        history = History(disk, initial=check_recovered(state, state.result) or {})
        recorder = Recorder(open_quietly(disk), history)
        recorder.put(b"c", b"3")
        for after in crash_here(disk, level=Level.SECTORS):
            check_recovered(after.open_disk(), history)


def test_power_loss_takes_only_a_suffix_of_commits_with_process_durability() -> None:
    found = set()

    def note(state: CrashState) -> None:
        recovered = check_recovered(state, state.result)
        if recovered is not None and state.operation == state.recording.operations:
            found.add((len(recovered["default"]), len(recovered["default"].get(b"last", b"xxx"))))

    check(process_durability, note, level=Level.SECTORS)
    assert found == {(5, 3), (6, 0), (6, 1), (6, 2)}  # all four prefixes can be seen


def test_clean_close_is_noticed_and_damage_after_it_is_never_taken_for_a_torn_tail() -> None:
    """The gap of the rules: after a clean close there is none."""

    *_, last = crash_states(two_families, level=Level.KILL)
    assert pystate.verify("/store", files=last.open_disk()).clean
    everything = crash_here(last.recording.disk, level=Level.DAMAGE, budget=None)
    seen = {"refused": 0, "whole": 0}
    for state in everything:
        recovered = check_recovered(state.open_disk(), last.result, level=Level.DAMAGE)
        seen["refused" if recovered is None else "whole"] += 1
        assert recovered in (None, last.result.live())
    assert seen["refused"] > seen["whole"] > 0


# Is it sharp? The engine, broken on purpose


def missing(what: str, program: Workload = two_families, level: Level = Level.SECTORS) -> CheckReport:
    """Check a program on a disk on which some calls do nothing."""
    effects = {
        "file sync": Fault("sync", 1, error=None, pages="cached", times=None),
        "directory sync": Fault("sync_directory", 1, error=None, pages="cached", times=None),
        "snapshot sync": Fault("sync", 1, error=None, pages="cached", times=None, path=".snapshot.tmp"),
        "segment sync": Fault("sync", 1, error=None, pages="cached", times=None, path=".log.tmp"),
        "log sync": Fault("sync", 1, error=None, pages="cached", times=None, path=".log"),
    }

    def broken(disk: SimulatedDisk) -> History:
        disk.inject(effects[what])
        return program(disk)

    return check(broken, judge, level=level, budget=3000, shrink=False)


@pytest.mark.parametrize("what", ["file sync", "directory sync", "snapshot sync", "segment sync", "log sync"])
def test_sync_that_is_left_out_is_caught(what: str) -> None:
    """Rows 24 and 25."""
    with pytest.raises(AssertionError, match="found after"):
        missing(what)


def test_failing_state_of_the_engine_is_shrunk_and_replayed_in_one_call() -> None:
    def acknowledges_early(disk: SimulatedDisk) -> History:
        recorder = Recorder(open_process(disk), History(disk))
        for number in range(3):
            commit = recorder.history.start({"default": {b"key": b"%d" % number}}, durability="sync")
            with recorder.history.ending(commit):
                recorder.store.family("default").put(b"key", b"%d" % number)
        return recorder.history

    with pytest.raises(AssertionError) as caught:
        check(acknowledges_early, judge)
    line = str(caught.value).rsplit("replay(workload, '", 1)[1].removesuffix("')")
    state = replay(acknowledges_early, line)
    with pytest.raises(BrokenPromiseError, match=r"expected b'0' \(commit 1 \(acknowledged, sync\)\), found nothing"):
        judge(state)
