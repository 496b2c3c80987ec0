"""Backups under the simulated disk: every crash, every failing call, a full disk, interrupts.

What must hold of a repository in whatever state a crash leaves it: each backup that is listed verifies and restores
exactly the state it was made of; what was acknowledged is listed, until its removal begins; a removal begins only when
the new backup is there; the next call cleans up; and no id is given a second time.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

import pystate
from pystate.errors import BackupDamagedError, RepositoryNotFoundError
from pystate.formats import backup
from pystate.formats.backup import calls
from pystate.formats.backup.manifests import content_name, manifest_name, parse_name
from pystate.formats.backup.repository import Repository
from pystate.testing import (
    Call,
    CheckFailedError,
    CrashState,
    Fault,
    Level,
    SimulatedDisk,
    check,
    crash_here,
    crash_states,
    each_call,
    open_quietly,
)
from tests.testing.mutations import Edit, edited

STORE, REPOSITORY, RESTORED = "/store", "/backups", "/restored"
LEVELS = list(Level)
NO_DAMAGE = LEVELS[: LEVELS.index(Level.DAMAGE)]
POWER_LOSS = [level for level in NO_DAMAGE if level is not Level.KILL]

State = dict[bytes, bytes]


def state_of(number: int) -> State:
    """Some states; their manifests are larger than a sector."""
    return {b"x": b"%d" % number, b"long": bytes([number]) * 700}


class Step(NamedTuple):
    """A call that was made.

    Attributes:
        position: of the disk when it had returned.
        listed: what is there afterwards, each with the number of its state.
    """

    position: int
    listed: dict[int, int]


def make(disk: SimulatedDisk, store: pystate.Store, **options: Any) -> backup.BackupInfo:
    return backup.create(store, REPOSITORY, files=disk, **options)


def program(disk: SimulatedDisk) -> list[Step]:
    """Backups of four states, one of them made twice; removals, by themselves and behind a backup."""
    steps = [Step(0, {})]
    store = open_quietly(disk)

    def did(listed: dict[int, int]) -> None:
        steps.append(Step(disk.position, listed))

    def put(number: int) -> None:
        store.family("default").update(state_of(number))

    put(1)
    make(disk, store)
    did({1: 1})
    make(disk, store)
    did({1: 1, 2: 1})
    put(2)
    make(disk, store)
    did({1: 1, 2: 1, 3: 2})
    backup.purge(REPOSITORY, 2, files=disk)
    did({2: 1, 3: 2})
    put(3)
    make(disk, store, keep=2)
    did({3: 2, 4: 3})
    make(disk, store, keep=1)
    did({5: 3})
    store.close()
    return steps


def listed(disk: SimulatedDisk) -> list[int]:
    try:
        return [info.id for info in backup.list(REPOSITORY, files=disk)]
    except RepositoryNotFoundError:
        return []


def restored(disk: SimulatedDisk, number: int | None) -> State:
    backup.restore(RESTORED, REPOSITORY, number, files=disk)
    with pystate.open(RESTORED, files=disk, read_only=True) as store:
        return dict(store.family("default"))


def repository(disk: SimulatedDisk) -> dict[str, bytes]:
    """The files in the repository, but for the lock."""
    files = {path.rpartition("/"): content for path, content in disk.files().items()}
    return {name: content for (parent, _, name), content in files.items() if parent == REPOSITORY and name != "LOCK"}


class Judge:
    """Says whether a crash state of `program` is right.

    Attributes:
        seen: which sets of ids were listed.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        self.goes_on = goes_on
        self.seen: set[tuple[int, ...]] = set()

    def __call__(self, state: CrashState) -> None:
        steps: list[Step] = state.result
        done = [step for step in steps if step.position <= state.first.operation]
        before = done[-1].listed
        after = steps[min(len(done), len(steps) - 1)].listed
        disk = state.open_disk()
        files = disk.files()
        found = listed(disk)
        assert disk.files() == files, "a reader has changed a byte"
        self.seen.add(tuple(found))
        if state.outer is None:
            self.between(set(found), set(before), set(after))
        self.whole(disk, found, before | after)
        if self.goes_on:
            self.go_on(state, found, max([0, *(number for step in done for number in step.listed)]))

    def between(self, found: set[int], before: set[int], after: set[int]) -> None:
        assert before & after <= found <= before | after
        assert before - after <= found or after <= found, "something was removed before the new one was there"

    def whole(self, disk: SimulatedDisk, found: list[int], states: dict[int, int]) -> None:
        if found:
            report = backup.verify(REPOSITORY, files=disk)
            assert report.ok, report.problems
            assert [info.id for info in report.backups] == found
        for number in found:
            assert restored(disk, number) == state_of(states[number])
        if found:
            assert restored(disk, None) == state_of(states[found[-1]])

    def go_on(self, state: CrashState, found: list[int], newest: int) -> None:
        """The next call removes what is unfinished, and gives a new id."""
        disk = state.open_disk()
        with open_quietly(disk) as store:
            store.family("default").update(state_of(9))
            made = make(disk, store)
        assert made.id > max([newest, *found])
        assert listed(disk) == [*found, made.id]
        assert restored(disk, made.id) == state_of(9)
        self.clean(disk)
        assert not disk.open_descriptors
        assert not disk.held_locks
        for power_loss in crash_here(disk, level=Level.NOTHING_UNSYNCED):
            assert listed(power_loss.open_disk()) == [*found, made.id]

    def clean(self, disk: SimulatedDisk) -> None:
        """Nothing is there but what is listed."""
        place = Repository(disk, REPOSITORY)
        backups = place.survey().backups
        wanted = {manifest_name(each.manifest.id) for each in backups} | {
            content_name(each.manifest.content) for each in backups
        }
        assert repository(disk).keys() == wanted


# Crashes


@pytest.mark.parametrize("level", NO_DAMAGE, ids=lambda level: level.value)
def test_every_crash_leaves_whole_backups_only(level: Level) -> None:
    """Row 83: whatever is listed verifies, and restores what was backed up."""
    judge = Judge()
    report = check(program, judge, level=level, budget=4_000)
    assert report.exhaustive or level is Level.GARBAGE, report
    assert judge.seen > {(), (1,), (1, 2), (1, 2, 3), (2, 3), (3, 4), (5,)}


@pytest.mark.parametrize("level", NO_DAMAGE, ids=lambda level: level.value)
def test_next_call_cleans_up_and_gives_a_new_id(level: Level) -> None:
    """Row 83."""
    check(program, Judge(goes_on=True), level=level, budget=600)


def next_call(disk: SimulatedDisk) -> None:
    """What the next user does: removes nothing but what is unfinished."""
    with suppress(RepositoryNotFoundError):
        backup.purge(REPOSITORY, 99, files=disk)


@pytest.mark.parametrize("levels", [(Level.KILL, Level.SECTORS), (Level.SECTORS, Level.SECTORS)], ids=str)
def test_crash_in_the_cleaning_up_behind_a_crash(levels: tuple[Level, Level]) -> None:
    """Row 27: content goes only when nothing can bring back the manifest that named it."""
    report = check(
        program, Judge(), level=levels[0], budget=150, nested=1, nested_levels=levels[1:], recovery=next_call
    )
    assert report.states > 500


def test_id_that_was_seen_stays() -> None:
    """Or the next backup could get the id that somebody has noted."""
    count = 0
    for state in crash_states(program, level=Level.KILL):
        disk = state.open_disk()
        found = listed(disk)
        for then in crash_here(disk, level=Level.NOTHING_UNSYNCED):
            assert listed(then.open_disk()) == found
            count += bool(found)
    assert count > 50


def test_damage_is_told_and_never_restored() -> None:
    """Row 83: beside a crash, one durable sector is wrong."""
    outcomes = {"restored": 0, "refused": 0}

    def judge(state: CrashState) -> None:
        disk = state.open_disk()
        steps: list[Step] = state.result
        states = {number: made for step in steps for number, made in step.listed.items()}
        for number in listed(disk):
            try:
                assert restored(disk, number) == state_of(states[number])
                outcomes["restored"] += 1
            except BackupDamagedError as error:
                outcomes["refused"] += 1
                report = backup.verify(REPOSITORY, files=disk)
                assert error.id in [problem.id for problem in report.problems]
        with suppress(pystate.CorruptionError):  # of the store, which may be what is damaged
            with open_quietly(disk) as store:
                store.family("default").update(state_of(9))
                made = make(disk, store)
                assert restored(disk, made.id) == state_of(9)

    check(program, judge, level=Level.DAMAGE, budget=600)
    assert min(outcomes.values()) > 10


def restoring(disk: SimulatedDisk) -> backup.RestoreReport:
    return backup.restore(STORE, REPOSITORY, 1, files=disk)


def with_backups() -> SimulatedDisk:
    """A store in its third state, and backups of the first two."""
    disk = SimulatedDisk()
    store = open_quietly(disk)
    for number in (1, 2, 3):
        store.family("default").update(state_of(number))
        if number < 3:
            make(disk, store)
    store.close()
    return disk


def shown(disk: SimulatedDisk) -> State:
    with pystate.open(STORE, files=disk, read_only=True) as store:
        return dict(store.family("default"))


@pytest.mark.parametrize("level", NO_DAMAGE, ids=lambda level: level.value)
def test_every_crash_of_a_restore_leaves_the_old_store_or_the_new_one(level: Level) -> None:
    """Row 85; the repository is as it was, and restoring again finishes."""
    disk = with_backups()
    before, seen = repository(disk), set()

    def judge(state: CrashState) -> None:
        after = state.open_disk()
        found = shown(after)
        assert found in (state_of(3), state_of(1))
        assert found == state_of(1) or state.operation < state.recording.operations
        seen.add(found[b"x"])
        assert repository(after) == before
        restoring(after)
        assert shown(after) == state_of(1)

    check(restoring, judge, level=level, disk=disk, budget=500)
    assert seen == {b"1", b"3"}


# Failures


def creating(disk: SimulatedDisk) -> None:
    """The third backup; two are there, one of which is to go. And a fourth, which shares with it."""
    with open_quietly(disk) as store:
        make(disk, store, keep=2)
        make(disk, store)


def in_repository(disk: SimulatedDisk, workload: Callable[[SimulatedDisk], object]) -> Iterator[Call]:
    """The calls of a workload, but for those that concern the store alone: these are tested elsewhere."""
    return (call for call in each_call(workload, disk=disk) if call.path.startswith(REPOSITORY))


EXPECTED = {1: 1, 2: 2, 3: 3, 4: 3}
"""Which state each backup is of, in the tests below."""


def check_after(disk: SimulatedDisk, before: dict[str, bytes], error: BaseException | None) -> None:
    """All is as it was, or a backup more is there; nothing is left behind; and the next call works."""
    assert not disk.open_descriptors
    assert not disk.held_locks
    found = listed(disk)
    for number in found:
        assert restored(disk, number) == state_of(EXPECTED[number])
    assert backup.verify(REPOSITORY, files=disk).ok
    if error is not None and 3 not in found:
        assert repository(disk) == before, f"debris after {error!r}"
    with open_quietly(disk) as store:
        store.family("default").update(state_of(9))
        made = make(disk, store)
    assert made.id == max(found) + 1
    Judge().clean(disk)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_any_call_of_a_backup_may_fail(number: int) -> None:
    """Rows 30, 34 and 39: it is made whole or not at all, the store goes on, and no file is left behind."""
    disk = with_backups()
    before, outcomes = repository(disk), set()
    for call in in_repository(disk, creating):
        after, error = disk.clone(), None
        after.inject(call.fault(number))
        with open_quietly(after) as store:
            try:
                make(after, store, keep=2)
                make(after, store)
            except (pystate.PystateError, OSError) as raised:
                error = raised
            after.faults.clear()
            store.family("default")[b"after"] = b"goes on"
            store.family("default").delete(b"after")
        if number == errno.ENOSPC and call.operation == "write":
            assert isinstance(error, pystate.DiskFullError)
        outcomes.add(type(error))
        # Removing its file failed, too: it is unfinished, and the next call removes it.
        assert repository(after).keys() >= before.keys() or 3 in listed(after)
        check_after(after, before, error)
    assert len(outcomes) > 1


def test_full_disk_leaves_no_debris() -> None:
    """Row 39: a disk that is full from some byte on; the lock file is no debris."""
    disk = with_backups()
    disk.put({f"{REPOSITORY}/LOCK": b""})
    before, room = repository(disk), 0
    while True:
        after = disk.clone()
        with open_quietly(after) as store:
            after.quota = after.used_bytes() + room
            try:
                make(after, store)
                break
            except pystate.DiskFullError:
                assert repository(after) == before
            after.quota = None
            store.family("default")[b"goes"] = b"on"
        assert listed(after) == [1, 2]
        room += 23
    assert room > 1000


@pytest.mark.parametrize("after_call", [False, True], ids=["before", "after"])
def test_interrupt_at_any_call_leaves_whole_backups_only(after_call: bool) -> None:
    """Row 45: and nothing stays locked or open."""
    disk = with_backups()
    before = repository(disk)
    for call in in_repository(disk, creating):
        if call.operation == "lock" and after_call:
            continue  # a lock that was taken and not handed over is the business of the disk
        after = disk.clone()
        after.inject(call.fault(KeyboardInterrupt(), after=after_call))
        interrupted = None
        with open_quietly(after) as store:
            try:
                make(after, store, keep=2)
                make(after, store)
            except KeyboardInterrupt as error:
                interrupted = error
            after.faults.clear()
        assert not after.held_locks
        after.kill()
        kept = repository(after)
        unfinished = {name for name in kept if parse_name(name).kind == "temporary"}
        assert unfinished <= {manifest_name(3) + ".tmp", content_name(3) + ".tmp", manifest_name(4) + ".tmp"}
        check_after(after, {**kept, **before}, interrupted)


def purging(disk: SimulatedDisk) -> None:
    backup.purge(REPOSITORY, 1, files=disk)


def test_any_call_of_a_purge_may_fail() -> None:
    """What is removed is not there, the rest is whole, and the next call finishes."""
    disk = with_backups()
    for call in each_call(purging, disk=disk):
        after = disk.clone()
        after.inject(call.fault(errno.EIO))
        with suppress(OSError):
            purging(after)
        after.faults.clear()
        assert listed(after) in ([1, 2], [2])
        for number in listed(after):
            assert restored(after, number) == state_of(number)
        purging(after)
        assert listed(after) == [2]
        Judge().clean(after)


def test_removal_that_fails_behind_a_backup_hides_nothing() -> None:
    """The backup was made, and says so; the next one removes what is old."""
    disk = with_backups()
    with open_quietly(disk) as store:
        disk.inject(Fault("unlink", 1, path=manifest_name(1), error=errno.EIO, times=None))
        assert make(disk, store, keep=1).id == 3
        assert listed(disk) == [1, 2, 3]
        disk.faults.clear()
        assert make(disk, store, keep=1).id == 4
    assert listed(disk) == [4]
    assert repository(disk).keys() == {manifest_name(4), content_name(3)}


def test_repository_on_a_disk_that_is_read_only() -> None:
    """Row 62: it can be listed, checked and restored from; making and removing are typed errors."""
    disk = with_backups()
    with open_quietly(disk) as store:
        disk.read_only = True
        assert listed(disk) == [1, 2]
        assert backup.verify(REPOSITORY, files=disk).ok
        for call in (lambda: make(disk, store), lambda: backup.purge(REPOSITORY, 1, files=disk)):
            with pytest.raises(pystate.ReadOnlyError, match="repository cannot be written to"):
                call()
        disk.read_only = False


# Is it sharp? Each step taken away

BROKEN: dict[str, tuple[Level, *tuple[Edit, ...]]] = {
    "manifest before its content": (
        Level.KILL,
        Edit(
            calls._export, "report = store.export(",
            "place.files.create(place.join(f'{backup_id:020d}.backup')).close()\n    report = store.export(",
        ),
    ),
    "old ones removed before the new one is there": (
        Level.KILL,
        Edit(
            calls.create, "        found = _create(",
            "        place.prune(survey, max(1, (keep or 99) - 1))\n        found = _create(",
        ),
    ),
    "content removed beside its manifest": (
        Level.SECTORS,
        Edit(
            Repository.prune, "        self._unlink(map(manifest_name, old))\n",
            "        for name in map(manifest_name, old):\n            self.files.unlink(self.join(name))\n",
        ),
    ),
    "content removed before its manifest": (
        Level.KILL,
        Edit(Repository.prune, "        self._unlink(map(manifest_name, old))\n", ""),
        Edit(
            Repository.prune, "        self._unlink(_unnamed(self.names(), kept))\n",
            "        self._unlink(_unnamed(self.names(), kept))\n        self._unlink(map(manifest_name, old))\n",
        ),
    ),
    "content that is shared removed": (
        Level.KILL,
        Edit(
            Repository.prune, "        self._unlink(_unnamed(self.names(), kept))\n",
            "        self._unlink(map(content_name, old))\n",
        ),
    ),
    "nothing unfinished removed": (
        Level.KILL,
        Edit(Repository.clean, "    self._unlink([*unfinished, *_unnamed(names, survey)])\n", ""),
    ),
    "id of the newest given again": (
        Level.KILL,
        Edit(Repository.next_id, "return newest + 1", "return len(survey.ids) + 1"),
    ),
    "directory of the repository not durable": (
        Level.SECTORS,
        Edit(Repository.clean, "        sync_parent(self.files, self.path)", "        pass"),
    ),
    "content that is shared not the same": (
        Level.KILL,
        Edit(calls._unchanged, "if (found.manifest.store_id, found.manifest.sequence) == state:", "if True:"),
        Edit(calls._unchanged, "if _holds(reader, store):", "if True:"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_step_that_is_left_out_is_noticed(name: str) -> None:
    level, *edits = BROKEN[name]
    judge = Judge(goes_on=True)
    check(program, judge, level=level, budget=600)
    with edited(*edits), pytest.raises((CheckFailedError, pystate.PystateError)):
        check(program, judge, level=level, budget=600, shrink=False)


def test_cleaning_that_does_not_sync_before_it_removes_is_noticed() -> None:
    edit = Edit(Repository._sync_names, "self.files.sync_directory(self.path)", "pass")
    with edited(edit):
        with pytest.raises(CheckFailedError):
            test_crash_in_the_cleaning_up_behind_a_crash((Level.KILL, Level.SECTORS))
        with pytest.raises(AssertionError):
            test_id_that_was_seen_stays()
