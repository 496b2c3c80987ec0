"""The crash states by themselves: for small programs the complete list of what each level may leave, and sharpness."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pystate.engine.files import publish, read_whole, write_all
from pystate.testing import CheckFailedError, CrashState, Level, SimulatedDisk, check, crash_here, crash_states, replay
from pystate.testing.outcomes import garbage

Images = list[dict[str, bytes]]

POWER_LOSS: list[Level] = [level for level in Level if level is not Level.KILL]


def images(disk: SimulatedDisk, level: Level) -> Images:
    """Every disk that a crash right now could leave, as path and content, in an order of its own."""
    states = crash_here(disk, level=level)
    found = [state.files() for state in states]
    assert states.exhaustive
    assert len(found) <= states.possible
    return sorted(found, key=lambda files: sorted(files.items()))


def ordered(*files: dict[str, bytes]) -> Images:
    return sorted(files, key=lambda one: sorted(one.items()))


def contents(disk: SimulatedDisk, level: Level) -> set[bytes]:
    """Every content that the only file may have."""
    found = [files["/a"] for files in images(disk, level)]
    assert len(set(found)) == len(found)
    return set(found)


def appended(durable: bytes, *pending: bytes) -> SimulatedDisk:
    """A disk with one durable file, to which something is appended, one write each, and not synced."""
    disk = SimulatedDisk()
    disk.put({"/a": durable})
    file = disk.open_append("/a")
    for data in pending:
        write_all(file, data)
    return disk


# What each level leaves of a file


def test_synced_file_has_one_state_at_every_level_of_power_loss() -> None:
    disk = appended(b"old")
    for level in POWER_LOSS:
        if level is not Level.DAMAGE:
            assert contents(disk, level) == {b"old"}


def test_append_within_a_sector() -> None:
    disk = appended(b"old", b"new")
    noise = garbage(f"0 {1} 0")[3:6]
    assert contents(disk, Level.KILL) == {b"oldnew"}
    assert contents(disk, Level.NOTHING_UNSYNCED) == {b"old"}
    assert contents(disk, Level.PREFIX) == {b"old", b"oldnew"}
    assert contents(disk, Level.SECTORS) == {b"old", b"old\0\0\0", b"oldnew"}
    assert contents(disk, Level.GARBAGE) == {b"old", b"old\0\0\0", b"old" + noise, b"oldnew"}


def test_two_appends_within_a_sector_are_kept_in_their_order() -> None:
    disk = appended(b"", b"A", b"B")
    assert contents(disk, Level.PREFIX) == {b"", b"A", b"AB"}
    assert contents(disk, Level.SECTORS) == {b"", b"A", b"\0", b"AB", b"A\0", b"\0\0"}


def test_sectors_of_one_write_are_kept_and_lost_each_by_itself() -> None:
    """Rows 4 and 5: the size before the content, and the content before the size."""
    full, lost = b"x" * 512, bytes(512)
    disk = appended(b"", full + full)
    assert contents(disk, Level.PREFIX) == {b"", full, full + full}
    assert contents(disk, Level.SECTORS) == {
        b"", full, lost, full + full, full + lost, lost + full, lost + lost,
    }  # fmt: skip
    assert len(contents(disk, Level.GARBAGE)) == 1 + 3 + 9


def test_write_across_a_boundary_touches_what_was_durable_in_neither_sector() -> None:
    disk = appended(b"d" * 510, b"new!")
    assert contents(disk, Level.SECTORS) == {
        b"d" * 510,
        b"d" * 510 + b"ne",
        b"d" * 510 + b"\0\0",
        b"d" * 510 + b"new!",
        b"d" * 510 + b"\0\0w!",
        b"d" * 510 + b"ne\0\0",
        b"d" * 510 + b"\0\0\0\0",
    }


def test_truncation_that_is_lost_shows_the_old_end_under_what_was_appended_after_it() -> None:
    disk = appended(b"0123456789")
    file = disk.create("/b")  # has nothing to do with it
    disk.unlink("/b")
    file.close()
    disk.kill()
    file = disk.open_append("/a")
    file.truncate(4)
    file.write(b"ab")
    assert {one["/a"] for one in images(disk, Level.PREFIX)} == {b"0123456789", b"0123", b"0123ab"}
    assert {one["/a"] for one in images(disk, Level.SECTORS)} == {
        b"0123456789",  # all lost
        b"0123",  # the size, and that alone
        b"012345",  # the size of the second write, and not its content
        b"0123\0\0",
        b"0123ab",  # all kept
        b"0123ab\0\0\0\0",  # the content, and not the size
        b"0123\0\0\0\0\0\0",
        b"0123\0\x006789",
    }


def test_damage_hits_one_durable_sector() -> None:
    content = b"a" * 512 + b"b" * 512 + b"ccc"
    found = contents(appended(content), Level.DAMAGE)
    assert len(found) == 1 + 3 * 3
    assert content in found
    assert content[:1024] + bytes(3) in found
    assert bytes(512) + content[512:] in found
    differing = [sum(x != y for x, y in zip(one, content, strict=True)) for one in found]
    assert sorted(differing)[:4] == [0, 1, 1, 1]


def test_damage_leaves_what_is_pending_to_the_other_levels() -> None:
    disk = appended(b"a" * 512, b"new")
    durable = {one[:512] for one in contents(disk, Level.DAMAGE)}
    assert len(durable) == 4
    whole = {one for one in contents(disk, Level.DAMAGE) if one[:512] == b"a" * 512}
    assert whole == contents(disk, Level.GARBAGE)


# What each level leaves of directories


def test_replacing_a_file_leaves_the_old_or_the_new_one() -> None:
    disk = SimulatedDisk()
    disk.put({"/a": b"old"})
    file = disk.create("/a.tmp")
    file.write(b"new")
    file.sync()
    file.close()
    disk.replace("/a.tmp", "/a")
    old, both, new = {"/a": b"old"}, {"/a": b"old", "/a.tmp": b"new"}, {"/a": b"new"}
    assert images(disk, Level.NOTHING_UNSYNCED) == [old]
    for level in (Level.PREFIX, Level.SECTORS, Level.GARBAGE):
        assert images(disk, level) == ordered(old, both, new)
    disk.sync_directory("/")
    for level in POWER_LOSS[:-1]:
        assert images(disk, level) == [new]


def test_replacing_a_file_that_was_not_synced_may_leave_it_empty() -> None:
    """Row 24."""
    disk = SimulatedDisk()
    disk.put({"/a": b"old"})
    disk.create("/a.tmp").write(b"new")
    disk.replace("/a.tmp", "/a")
    assert {"/a": b""} in images(disk, Level.SECTORS)
    disk.sync_directory("/")
    assert images(disk, Level.NOTHING_UNSYNCED) == [{"/a": b""}]


def test_changes_of_a_directory_are_lost_in_order_or_in_any_subset() -> None:
    disk = SimulatedDisk()
    disk.put({"/a": b"", "/b": b""})
    disk.unlink("/a")
    disk.unlink("/b")
    assert images(disk, Level.PREFIX) == ordered({}, {"/b": b""}, {"/a": b"", "/b": b""})
    assert images(disk, Level.SECTORS) == ordered({}, {"/a": b""}, {"/b": b""}, {"/a": b"", "/b": b""})


def test_files_and_directories_are_lost_each_by_itself() -> None:
    disk = SimulatedDisk()
    disk.create("/a").write(b"A")
    disk.create("/b").write(b"B")
    found = images(disk, Level.PREFIX)
    assert found == ordered(
        {}, {"/a": b""}, {"/a": b"A"},
        {"/a": b"", "/b": b""}, {"/a": b"", "/b": b"B"}, {"/a": b"A", "/b": b""}, {"/a": b"A", "/b": b"B"},
    )  # fmt: skip
    assert len(images(disk, Level.SECTORS)) == (1 + 3) * (1 + 3)


def test_directory_that_is_lost_takes_everything_in_it() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    file = disk.create("/d/a")
    file.write(b"A")
    file.sync()
    disk.sync_directory("/d")
    states = [state.open_disk() for state in crash_here(disk, level=Level.SECTORS)]
    assert [(one.directories(), one.files()) for one in states] == [(["/d"], {"/d/a": b"A"}), ([], {})]


@pytest.mark.parametrize("seed", range(20))
def test_each_level_allows_what_the_ones_above_it_allow(seed: int) -> None:
    disk = SimulatedDisk(seed)
    disk.put({f"/{name}": bytes([65 + at]) * 300 for at, name in enumerate("ab")})
    source = disk.random_bytes(24)
    for what, which, size in zip(source[::3], source[1::3], source[2::3], strict=True):
        path = f"/{'abc'[which % 3]}"
        if disk.kind(path) is None:
            disk.create(path).close()
        file = disk.open_append(path)
        if what % 5 == 0:
            file.truncate(file.size() // 2)
        elif what % 5 == 1:
            file.sync()
        elif what % 5 == 2:
            disk.replace(path, "/c")
        elif what % 5 == 3 and size % 2:
            disk.sync_directory("/")
        else:
            write_all(file, bytes([97 + what % 26]) * (size * 2))
        file.close()
    allowed: list[set[frozenset[tuple[str, bytes]]]] = []
    for level in POWER_LOSS[:-1]:
        states = crash_here(disk, level=level, budget=None)
        if states.possible > 20_000:
            break
        allowed.append({frozenset(state.files().items()) for state in states})
    kept = frozenset(disk.files().items())
    for smaller, larger in zip(allowed, allowed[1:], strict=False):
        assert smaller <= larger
        assert kept in larger


# Moments


def two_writes(disk: SimulatedDisk) -> str:
    file = disk.create("/a")
    disk.sync_directory("/")
    file.write(b"1")
    file.sync()
    file.read_at(0, 1)
    file.write(b"2")
    file.size()
    return "done"


def test_each_moment_between_changes_is_crashed_at_the_last_operation_before_the_next() -> None:
    states = crash_states(two_writes, level=Level.NOTHING_UNSYNCED)
    assert states.recording.result == "done"
    assert states.recording.operations == 7
    assert states.exhaustive
    assert [(state.operation, state.files()) for state in states] == [
        (0, {}),  # before create
        (1, {}),  # before the sync of the directory
        (2, {"/a": b""}),  # before the first write
        (3, {"/a": b""}),  # before its sync
        (5, {"/a": b"1"}),  # before the second write, the read before it done
        (7, {"/a": b"1"}),  # at the end
    ]
    assert {state.result for state in states} == {"done"}


def test_kill_keeps_everything_and_cuts_a_long_write_short_at_any_sector() -> None:
    def workload(disk: SimulatedDisk) -> None:
        disk.create("/a").write(b"x" * 1200)

    states = list(crash_states(workload, level=Level.KILL))
    assert [(state.operation, len(state.files().get("/a", b"-"))) for state in states] == [
        (0, 1), (1, 0), (1, 512), (1, 1024), (2, 1200),
    ]  # fmt: skip
    assert states[2].description.endswith("the next write was cut short")


def test_what_was_pending_when_the_process_died_is_pending_still() -> None:
    *_, last = crash_states(two_writes, level=Level.KILL)
    disk = last.open_disk()
    assert disk.files() == {"/a": b"12"}
    assert images(disk, Level.NOTHING_UNSYNCED) == [{"/a": b"1"}]


def test_workload_goes_on_from_a_copy_of_the_disk_that_is_given() -> None:
    disk = SimulatedDisk(3)
    disk.put({"/b": b"there"})
    file = disk.create("/c")
    file.write(b"pending")
    states = list(crash_states(two_writes, level=Level.PREFIX, disk=disk))
    assert disk.files() == {"/b": b"there", "/c": b"pending"}
    assert all(state.files()["/b"] == b"there" for state in states)
    assert {state.files().get("/c") for state in states} == {None, b"", b"pending"}


def test_disk_after_a_crash_draws_other_random_bytes_than_before_it() -> None:
    def workload(disk: SimulatedDisk) -> bytes:
        disk.create("/a")
        return disk.random_bytes(16)

    first, second = crash_states(workload, level=Level.KILL)
    assert first.open_disk().random_bytes(16) == first.open_disk().random_bytes(16)
    assert len({first.result, first.open_disk().random_bytes(16), second.open_disk().random_bytes(16)}) == 3


# Budget and sample


def many_sectors(disk: SimulatedDisk) -> None:
    disk.put({"/a": b""})
    disk.open_append("/a").write(b"x" * 512 * 20)


def test_run_within_the_budget_is_exhaustive_and_beyond_it_a_sample() -> None:
    everything = sum(2**count for count in range(21))
    few = crash_states(many_sectors, budget=100)
    assert few.possible == 1 + everything
    assert not few.exhaustive
    found = [state.files()["/a"] for state in few if state.operation == 2]
    assert 60 < len(found) <= 100
    assert len(set(found)) == len(found)
    assert {b"", b"x" * 10240} <= set(found)
    assert crash_states(two_writes, budget=100).exhaustive


def test_sample_is_the_same_for_a_seed_and_another_for_another() -> None:
    lines = [[state.replay for state in crash_states(many_sectors, budget=50, seed=seed)] for seed in (1, 1, 2)]
    assert lines[0] == lines[1]
    assert [line.split("lost=")[1] for line in lines[0]] != [line.split("lost=")[1] for line in lines[2]]


def test_moments_with_few_states_are_exhausted_also_in_a_sample() -> None:
    def workload(disk: SimulatedDisk) -> None:
        two_writes(disk)
        many_sectors(disk)

    alone = [state.files() for state in crash_states(two_writes)]
    both = [state.files() for state in crash_states(workload, budget=200)]
    assert both[: len(alone)] == alone


# Replaying


@pytest.mark.parametrize("level", list(Level), ids=lambda level: level.value)
def test_every_state_is_made_again_from_its_line(level: Level) -> None:
    def workload(disk: SimulatedDisk) -> None:
        disk.put({"/b": b"durable"})
        file = disk.create("/a")
        file.write(b"x" * 700)
        disk.unlink("/b")
        file.sync()
        file.truncate(600)
        file.write(b"yz")

    for state in crash_states(workload, level=level, budget=150):
        again = replay(workload, state.replay)
        assert again.files() == state.files()
        assert again.replay == state.replay
        assert again.description == state.description
        assert again.operation == state.operation


def recover(disk: SimulatedDisk) -> None:
    """Cut the file to whole pairs."""
    if disk.kind("/a") is not None:
        file = disk.open_append("/a")
        file.truncate(file.size() // 2 * 2)
        file.sync()
        file.close()


def test_crash_in_the_recovery_from_a_crash_follows_it_and_is_replayed_with_it() -> None:
    def workload(disk: SimulatedDisk) -> None:
        disk.put({"/a": b""})
        disk.open_append("/a").write(b"abc")

    states = list(
        crash_states(
            workload, level=Level.PREFIX, nested=2, nested_levels=[Level.KILL, Level.SECTORS], recovery=recover
        )
    )
    depths = [0 if state.outer is None else 1 if state.outer.outer is None else 2 for state in states]
    assert {0, 1, 2} == set(depths)
    assert depths[0] == 0
    for state, depth in zip(states, depths, strict=True):
        assert state.level is (Level.PREFIX, Level.KILL, Level.SECTORS)[depth]
        assert state.replay.count(" | ") == depth
        assert state.files()["/a"] in (b"", b"abc", b"ab", b"a\0", b"ab\0")
        again = replay(workload, state.replay, recovery=recover)
        assert again.files() == state.files()
        assert again.first.replay == state.first.replay


def test_nested_crashes_without_a_recovery_are_refused() -> None:
    with pytest.raises(ValueError, match="need a recovery"):
        crash_states(two_writes, nested=1)
    with pytest.raises(ValueError, match="a level for each depth"):
        crash_states(two_writes, nested=1, recovery=recover, nested_levels=[])


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "seed=0 level=sectors operation=6 lost=-",
        "seed=0 level=sectors operation=7 lost=f77=p0",
        "seed=0 level=sectors operation=7 lost=f1=q",
        "seed=0 level=sectors operation=7 lost=f1=s2,5v0",
        "seed=0 level=other operation=7 lost=-",
        "seed=0 level=sectors operation=7 lost=- | seed=0 level=sectors operation=0 lost=-",
    ],
)
def test_line_that_fits_no_state_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        replay(two_writes, line).files()


# Is it sharp? Small programs with a mistake, and the same without it

Workload = Callable[[SimulatedDisk], object]
Verify = Callable[[CrashState], None]


def save(disk: SimulatedDisk, content: bytes, *, sync: bool = True, sync_directory: bool = True) -> None:
    """Replace a file as a whole."""
    file = disk.create("/config.tmp")
    write_all(file, content)
    if sync:
        file.sync()
    file.close()
    disk.replace("/config.tmp", "/config")
    if sync_directory:
        disk.sync_directory("/")


def saves(*, sync: bool = True, sync_directory: bool = True) -> Workload:
    """Saves twice; returns when each save was done."""

    def workload(disk: SimulatedDisk) -> list[tuple[int, bytes]]:
        publish(disk, "/", "config", b"first")
        done = [(disk.position, b"first")]
        save(disk, b"second", sync=sync, sync_directory=sync_directory)
        done.append((disk.position, b"second"))
        return done

    return workload


def saved_is_there(state: CrashState) -> None:
    """What was saved last before the crash is there, or what was just being saved."""
    done = [content for position, content in state.result if position <= state.operation]
    later = [content for position, content in state.result if position > state.operation][:1]
    allowed = [*done[-1:], *later] if done else [None, *later]
    assert state.files().get("/config") in allowed, f"{state.files()}, not one of {allowed}"


def append_records(disk: SimulatedDisk, *, early: bool) -> list[int]:
    """Appends records; returns the position at which each was acknowledged."""
    publish(disk, "/", "log", b"")
    file = disk.open_append("/log")
    positions = []
    for number in range(3):
        write_all(file, b"%d;" % number)
        if early:
            positions.append(disk.position)
        file.sync()
        if not early:
            positions.append(disk.position)
    return positions


def records_are_there(state: CrashState) -> None:
    acknowledged = sum(position <= state.operation for position in state.result)
    log = state.files().get("/log", b"")
    whole = 0
    while log[2 * whole : 2 * whole + 2] == b"%d;" % whole:
        whole += 1
    assert whole >= acknowledged, f"{acknowledged} acknowledged, {whole} in {log!r}"


def next_generation(disk: SimulatedDisk, *, early: bool) -> None:
    """Writes generation 2 beside generation 1, and removes 1."""
    disk.put({"/1": b"one"})
    file = disk.create("/2")
    file.write(b"two")
    file.sync()
    if not early:
        disk.sync_directory("/")
    disk.unlink("/1")
    disk.sync_directory("/")


def some_generation_is_whole(state: CrashState) -> None:
    if state.operation:
        files = state.files()
        assert files.get("/2") == b"two" or files.get("/1") == b"one", f"nothing left: {files}"


MISTAKES: list[tuple[str, Workload, Workload, Verify, Level]] = [
    ("rename without file sync", saves(sync=False), saves(), saved_is_there, Level.NOTHING_UNSYNCED),
    ("rename without directory sync", saves(sync_directory=False), saves(), saved_is_there, Level.NOTHING_UNSYNCED),
    (
        "acknowledged before the sync",
        lambda disk: append_records(disk, early=True),
        lambda disk: append_records(disk, early=False),
        records_are_there,
        Level.NOTHING_UNSYNCED,
    ),
    (
        "old one removed before the new name is durable",
        lambda disk: next_generation(disk, early=True),
        lambda disk: next_generation(disk, early=False),
        some_generation_is_whole,
        Level.SECTORS,
    ),
]


@pytest.mark.parametrize(
    ("wrong", "right", "verify", "weakest"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_mistake_is_caught_and_its_correction_is_not(
    wrong: Workload, right: Workload, verify: Verify, weakest: Level
) -> None:
    """Rows 24 and 25."""
    for level in POWER_LOSS[:-1]:
        report = check(right, verify, level=level)
        assert report.exhaustive
        if level in POWER_LOSS[POWER_LOSS.index(weakest) :]:
            with pytest.raises(CheckFailedError) as caught:
                check(wrong, verify, level=level)
            again = replay(wrong, caught.value.replay)
            assert again.files() == caught.value.state.files()
            with pytest.raises(AssertionError):
                verify(again)


def test_failure_tells_what_was_done_what_was_lost_and_how_to_see_it_again() -> None:
    with pytest.raises(CheckFailedError) as caught:
        check(saves(sync=False), saved_is_there)
    text = str(caught.value)
    assert text.startswith(r"AssertionError: {'/config': b'\x00\x00")
    assert "replace /config.tmp -> /config" in text
    assert "crash (sectors) after" in text
    assert f"replay(workload, {caught.value.replay!r})" in text
    assert isinstance(caught.value.__cause__, AssertionError)


def test_failure_is_shrunk_to_what_is_needed_for_it() -> None:
    def workload(disk: SimulatedDisk) -> None:
        disk.put({f"/{name}": b"" for name in "abc"})
        for name in "abc":
            disk.open_append(f"/{name}").write(b"x" * 3000)

    def no_hole_in_b(state: CrashState) -> None:
        content = state.files().get("/b", b"")
        assert b"\0x" not in content

    with pytest.raises(CheckFailedError) as caught:
        check(workload, no_hole_in_b, budget=300, seed=7)
    shrunk = caught.value.state
    assert list(shrunk.choice) == ["f2"]
    assert len(shrunk.choice["f2"].split(",")) == 2  # the size, and one sector
    with pytest.raises(CheckFailedError) as caught:
        check(workload, no_hole_in_b, budget=300, seed=7, shrink=False)
    assert len(caught.value.state.choice) > 1 or len(caught.value.state.choice["f2"].split(",")) > 2


def test_failure_in_a_nested_state_tells_both_crashes() -> None:
    def workload(disk: SimulatedDisk) -> None:
        disk.put({"/a": b"abc"})
        disk.create("/b")

    def never_two_bytes(state: CrashState) -> None:
        assert len(state.files().get("/a", b"")) != 2

    with pytest.raises(CheckFailedError) as caught:
        check(workload, never_two_bytes, nested=1, recovery=recover)
    assert "then, in the recovery:" in str(caught.value)
    again = replay(workload, caught.value.replay, recovery=recover)
    assert read_whole(again.open_disk(), "/a") == b"ab"


def test_report_says_how_much_was_looked_at() -> None:
    report = check(two_writes, lambda state: state.files(), level=Level.NOTHING_UNSYNCED)
    assert report == (6, 6, True, 7)
    assert str(report) == "6 states checked, all of 6; 7 operations"
    assert "a sample of" in str(check(many_sectors, lambda state: state.files(), budget=20))


def test_error_of_the_workload_is_raised_as_it_is() -> None:
    def workload(disk: SimulatedDisk) -> None:
        disk.open_read("/missing")

    with pytest.raises(FileNotFoundError):
        crash_states(workload)
