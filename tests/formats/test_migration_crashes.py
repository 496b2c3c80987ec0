"""A whole migration under the simulated disk, markers included: a crash at any operation, and the next run finishes.

What a crash may leave is stated once, by `Judge`: the old content or the new one, with its version; markers that are
old or new, and never ahead of it. Then the same program runs again, and everything is as if it had not been stopped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import pystate
from pystate.errors import MigrationError
from pystate.formats import migrating, plan, standing, write_version_markers
from pystate.testing import (
    CheckFailedError,
    CrashState,
    Fault,
    InterleavingError,
    Level,
    Scenario,
    SimulatedDisk,
    YieldingFiles,
    check,
    explore,
)
from tests.formats.shop import (
    BACKUP,
    DATA,
    STORE,
    Families,
    content_of,
    finished,
    look_at,
    make,
    markers,
    partial_states,
    run,
)
from tests.testing.mutations import Edit, edited

NEWEST = "0.4.0-alpha.2"
LEVELS = list(Level)
BELOW_GARBAGE = LEVELS[: LEVELS.index(Level.GARBAGE)]

PARTIAL = {f"{version} {name}": (version, state) for version, name, state in partial_states()}

#: What is there before: the families, both markers, and what the content says.
SCENES: dict[str, tuple[Families, str, str, str | None]] = {
    "the oldest": (content_of("0.1.0"), "0.1.0", "0.1.0", None),
    "the oldest, content says so": (content_of("0.1.0"), "0.1.0", "0.1.0", "0.1.0"),
    "half renamed": (PARTIAL["0.1.0 copied 2 rows, drop 'accounts'"][1], "0.1.0", "0.1.0", None),
    "half converted": (PARTIAL["0.2.0 item 1 of prices done, give units"][1], "0.2.0", "0.2.0", None),
    "all done but the version": (content_of(NEWEST), "0.3.0", "0.3.0", None),
    "markers behind": (content_of(NEWEST), "0.1.0", "0.1.0", NEWEST),
    "one marker behind": (content_of(NEWEST), "0.1.0", NEWEST, NEWEST),
    "markers behind older content": (content_of("0.3.0"), "0.1.0", "0.1.0", "0.3.0"),
    "one marker behind older content": (content_of("0.3.0"), "0.1.0", "0.3.0", "0.3.0"),
    "nothing to do": (content_of(NEWEST), NEWEST, NEWEST, NEWEST),
}


def disk_of(name: str) -> SimulatedDisk:
    state, data, backup, content = SCENES[name]
    disk = SimulatedDisk()
    make(disk, state, data, backup=backup, content=content)
    return disk


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Judge:
    """Says whether a crash state of a scene is right.

    Arguments:
        damage: a durable sector may be damaged: refusing is right too.
    """

    def __init__(self, name: str, *, damage: bool = False) -> None:
        state, self.data, self.backup, content = SCENES[name]
        self.old = (state, content)
        self.new = (finished(state), NEWEST)
        self.steps = [content, *([NEWEST] if content != NEWEST else [])]
        self.damage = damage
        self.seen: set[tuple[str | None, str, str]] = set()

    def __call__(self, state: CrashState) -> None:
        disk = state.open_disk()
        before = disk.files()
        try:
            found = look_at(disk)
            data, backup = markers(disk)
        except (pystate.CorruptionError, MigrationError):
            assert self.damage, "refused without damage"
            return
        assert disk.files() == before
        assert found in (self.old, self.new), "the content is neither the old nor the new one"
        self.seen.add((found[1], data, backup))
        self.check_markers(found[1], data, backup)
        if state.outer is None and state.operation >= state.recording.operations:
            assert (found, data, backup) == (self.new, NEWEST, NEWEST), "the call had returned"
        self.finish(disk)

    def check_markers(self, content: str | None, data: str, backup: str) -> None:
        """Each is old, or of a version that the content had before it was written; the backup's is never the later."""
        between = self.old[1]
        assert data in {self.data, between, NEWEST} - {None}
        assert backup in {self.backup, between, NEWEST} - {None}
        if self.backup != NEWEST:
            assert backup != NEWEST or content == NEWEST, "a marker is ahead of the content"
        assert data != NEWEST or backup == NEWEST, "the markers were written in the wrong order"

    def finish(self, disk: SimulatedDisk) -> None:
        """The next run of the program."""
        run(disk)
        assert look_at(disk) == self.new
        assert markers(disk) == (NEWEST, NEWEST)
        assert not run(disk).changed
        assert not disk.open_descriptors
        assert not disk.held_locks
        with pystate.open(STORE, files=disk, families=self.new[0]) as store:
            store.family("default").put(b"going", b"on")


@pytest.mark.parametrize("level", BELOW_GARBAGE, ids=lambda level: level.value)
def test_crash_at_every_operation_leaves_what_the_next_run_finishes(scene: str, level: Level) -> None:
    """Check R220: from every kind of beginning, with the same final content and markers as without a crash."""
    judge = Judge(scene)
    report = check(run, judge, level=level, disk=disk_of(scene))
    assert report.exhaustive, report
    content = SCENES[scene][3]
    between = {(content, content, content)} if scene == "markers behind older content" else set()
    assert judge.seen >= {(content, judge.data, judge.backup), (NEWEST, NEWEST, NEWEST), *between}


@pytest.mark.parametrize("name", PARTIAL)
def test_crash_at_every_operation_from_every_partial_state(name: str) -> None:
    """Check R220: whatever a run without this guarantee had left half done, at every crash of the process."""
    version, state = PARTIAL[name]
    disk = SimulatedDisk()
    make(disk, state, version)
    SCENES[name] = (state, version, version, None)
    try:
        judge = Judge(name)
    finally:
        del SCENES[name]
    assert check(run, judge, level=Level.KILL, disk=disk).exhaustive
    assert judge.seen == {
        (None, version, version),
        (NEWEST, version, version),
        (NEWEST, version, NEWEST),
        (NEWEST, NEWEST, NEWEST),
    }


def test_garbage_behind_a_crash_changes_nothing(scene: str) -> None:
    check(run, Judge(scene), level=Level.GARBAGE, disk=disk_of(scene), budget=300)


@pytest.mark.parametrize("levels", [(Level.KILL, Level.SECTORS), (Level.SECTORS, Level.SECTORS)], ids=str)
def test_crash_in_the_run_that_finishes_leaves_what_the_next_one_finishes(scene: str, levels: Sequence[Level]) -> None:
    report = check(
        run,
        Judge(scene),
        level=levels[0],
        disk=disk_of(scene),
        budget=40,
        nested=1,
        nested_levels=levels[1:],
        recovery=run,
        nested_budget=8,
    )
    assert report.states > 60 or scene == "nothing to do"


@pytest.mark.parametrize("level", BELOW_GARBAGE, ids=lambda level: level.value)
def test_crash_in_new_directories_leaves_what_the_next_run_finishes(level: Level) -> None:
    def judge(state: CrashState) -> None:
        disk = state.open_disk()
        assert not run(disk, dry_run=True).completed_markers
        run(disk)
        assert markers(disk) == (NEWEST, NEWEST)
        assert look_at(disk) == (None, None)

    assert check(run, judge, level=level).exhaustive


def test_power_loss_behind_a_run_that_found_it_done_takes_nothing_back() -> None:
    """A killed run may have written what was not durable yet; who was told that nothing is to do may rely on it."""
    for name in ("the oldest", "markers behind", "one marker behind"):
        judge = Judge(name)

        def rely(state: CrashState, judge: Judge = judge) -> None:
            disk = state.open_disk()
            run(disk)

            def later(after: CrashState) -> None:
                assert look_at(after.open_disk()) == judge.new
                assert markers(after.open_disk()) == (NEWEST, NEWEST)

            check(lambda disk: None, later, level=Level.NOTHING_UNSYNCED, disk=disk)

        check(run, rely, level=Level.KILL, disk=disk_of(name))


# The old program, the new one, and the way back


def test_crash_in_the_way_back_leaves_what_an_operator_can_finish() -> None:
    """The content of before is put back and its markers are written; a crash in between is refused, not guessed."""

    def back(disk: SimulatedDisk) -> None:
        pystate.install(STORE, "/backup copy", files=disk)
        write_version_markers(DATA, BACKUP, "0.1.0", files=disk)

    disk = disk_of("the oldest, content says so")
    with pystate.open(STORE, files=disk) as store:
        store.export("/backup copy")
    run(disk)
    seen = set()

    def judge(state: CrashState) -> None:
        disk = state.open_disk()
        content, found = look_at(disk)[1], markers(disk)
        seen.add((content, *found))
        for program, settled in (("0.1.0", ("0.1.0",) * 3), (NEWEST, (NEWEST,) * 3)):
            if (content, *found) == settled:
                assert not run(disk.clone(), program).changed
            elif program == "0.1.0":
                with pytest.raises(MigrationError):
                    run(disk.clone(), program)
        back(disk)
        assert not run(disk, "0.1.0").changed
        run(disk)
        assert look_at(disk) == (content_of(NEWEST), NEWEST)

    assert check(back, judge, level=Level.NOTHING_UNSYNCED, disk=disk).exhaustive
    assert seen == {
        (NEWEST, NEWEST, NEWEST),
        ("0.1.0", NEWEST, NEWEST),
        ("0.1.0", "0.1.0", NEWEST),
        ("0.1.0", "0.1.0", "0.1.0"),
    }


# Two at once, in every order


def two_at_once(name: str) -> Callable[[], Scenario]:
    start = disk_of(name)

    def program() -> Scenario:
        disk = start.clone()
        files = YieldingFiles(disk, reads=True)
        reports: list[Any] = []

        def work() -> None:
            try:
                reports.append(run(files, lock_timeout=1e9))
            except pystate.LockedError as error:
                reports.append(error)

        def verify() -> None:
            assert len([each for each in reports if not isinstance(each, Exception)]) >= 1
            assert sum(getattr(each, "rewrite", None) is not None for each in reports) <= 1
            run(disk)
            assert look_at(disk) == Judge(name).new
            assert markers(disk) == (NEWEST, NEWEST)

        return Scenario({"one": work, "two": work}, verify)

    return program


@pytest.mark.parametrize("name", ["the oldest", "markers behind", "one marker behind"])
def test_two_at_once_in_many_orders_migrate_once(name: str) -> None:
    explore(two_at_once(name), preemptions=1)


# Is it sharp?

BROKEN: dict[str, tuple[str, Edit]] = {
    "markers before the content": (
        "the oldest",
        Edit(
            migrating._Run._migrate, "    try:\n        report = rewrite(",
            "    for directory in (place.backup, place.data):\n"
            "        write_version_marker(directory, plan.version, files=place.files)\n"
            "    try:\n        report = rewrite(",
        ),
    ),
    "data marker before that of the backup": (
        "the oldest", Edit(migrating._Run._behind, "for each in found if", "for each in reversed(found) if")
    ),
    "content that is ahead refused": (
        "the oldest", Edit(standing._ahead, "return there > here or", "return False and there > here or")
    ),
    "one marker behind refused": (
        "the oldest",
        Edit(standing.judge, "if data != backup and not (unfinished and content == backup):", "if data != backup:"),
    ),
    "migrated before the markers are completed": (
        "one marker behind older content",
        Edit(standing.judge, "    if unfinished and (data", "    if plan.path(content) == () and (data"),
    ),
    "version not stored with the content": (
        "the oldest", Edit(plan.MigrationPlan.run, "rewriting.metadata.update(self.metadata)", "pass")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_rule_that_is_left_out_is_noticed(name: str) -> None:
    """By a crash state that is wrong or is not finished, or by the run itself."""
    scene, edit = BROKEN[name]
    check(run, Judge(scene), level=Level.KILL, disk=disk_of(scene))
    with edited(edit), pytest.raises((CheckFailedError, pystate.PystateError)):
        check(bounded, Judge(scene), level=Level.KILL, disk=disk_of(scene), shrink=False)


def bounded(disk: SimulatedDisk) -> object:
    """A run that a mistake may not make endless."""
    disk.inject(Fault("lock", 20, error=pystate.StoreFailedError("/", "too many rounds", unknown=False)))
    return run(disk)


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (migrating._Run.apply, "    self._make_durable()\n"),
        (migrating._Run._complete, "            self._make_durable()\n"),
        (migrating._Run._migrate, "            self._make_durable()\n"),
    ],
    ids=["at the end", "before the other marker", "before the content"],
)
def test_markers_that_are_not_made_durable_by_who_finds_them_are_noticed(
    function: Callable[..., object], call: str
) -> None:
    with edited(Edit(function, call, call.replace("self._make_durable()", "pass"))), pytest.raises(CheckFailedError):
        test_power_loss_behind_a_run_that_found_it_done_takes_nothing_back()
        for name in ("the oldest", "one marker behind older content"):
            test_crash_in_the_run_that_finishes_leaves_what_the_next_one_finishes(name, (Level.KILL, Level.SECTORS))


def test_markers_written_without_the_lock_are_noticed() -> None:
    edit = Edit(migrating._Run._complete, "with locked(place.files, place.store, timeout):", "if timeout >= 0:")
    with edited(edit), pytest.raises(InterleavingError):
        test_two_at_once_in_many_orders_migrate_once("markers behind")


def test_looking_in_the_order_of_writing_is_noticed() -> None:
    """Content, then markers: the content of before beside the markers of after is no crash's."""
    lines = inspect.getsource(standing.look).splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "look_at_markers" in line)
    old = "".join(lines[at:-1])
    edit = Edit(standing.look, old, "".join([*lines[at + 1 : -1], lines[at]]))
    with edited(edit), pytest.raises(InterleavingError):
        test_two_at_once_in_many_orders_migrate_once("the oldest")
