"""Replacing the whole content of a store, under the simulated disk: all of the old or all of the new, at every crash.

Each program starts from a disk with what was before and replaces it. A crash state is right if it shows one of the two
states, the new one at the latest when the program has been told so; if reading it and opening it agree; if the next
opening leaves no file of the other state; and if all goes on from there: a commit, another crash, and the same program
run again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import NamedTuple

import pytest

import pystate
from pystate import Rewriting
from pystate.engine import files, follower, opening, recovery, replacing, rewrite
from pystate.engine.log_format import SegmentHeader, encode_closed_segment
from pystate.engine.names import parse_name
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

STORE, EXPORTED = "/store", "/exported"
LEVELS = list(Level)
BELOW_GARBAGE = LEVELS[: LEVELS.index(Level.GARBAGE)]

Families = dict[str, dict[bytes, bytes]]


class Content(NamedTuple):
    """What a store holds and says of itself, but for its sequence."""

    families: Families
    metadata: dict[str, str]
    id: str


def look(disk: SimulatedDisk, path: str = STORE) -> Content | None:
    """The content as a reader sees it; None if there is no store."""
    try:
        with pystate.open(path, files=disk, read_only=True) as store:
            families = {name: dict(store.family(name)) for name in store.families}
            return Content(families, dict(store.metadata), store.id)
    except pystate.StoreNotFoundError:
        return None


class Scene(NamedTuple):
    """A disk to begin with, a program, and the states that may be seen: before, and when it has returned.

    A store that `install` makes has an id that nobody can foresee; then the id of `after` is empty.
    """

    name: str
    disk: SimulatedDisk
    program: Callable[[SimulatedDisk], object]
    before: list[Content | None]
    after: Content


# What is there before


def closed(disk: SimulatedDisk) -> None:
    """A snapshot, commits behind it, a clean close; a value is larger than a sector."""
    store = pystate.open(STORE, files=disk, families=["a", "b"], metadata={"format": "1"}, snapshot_log_bytes=1 << 40)
    store.family("a").update({b"1": b"x" * 600, b"2": b"y"})
    store.snapshot()
    store.family("a").put(b"3", b"z")
    store.family("b").put(b"k", b"v")
    store.close()


def stopped(disk: SimulatedDisk) -> None:
    """The process has died behind a commit."""
    closed(disk)
    open_quietly(disk).family("a").put(b"4", b"last")
    disk.kill()


def torn(disk: SimulatedDisk) -> None:
    """A crash has left half a frame."""
    stopped(disk)
    [name] = [path for path in disk.files() if path.endswith(".log")]
    disk.put({name: disk.files()[name] + b"half a frame"})


def damaged_snapshot(disk: SimulatedDisk) -> None:
    """The newest snapshot is damaged; an older one and the log make up for it."""
    closed(disk)
    store = open_quietly(disk)
    kept = disk.files()
    store.snapshot()
    store.close()
    [name] = [path for path in disk.files() if path.endswith(".snapshot")]
    damaged = bytearray(disk.files()[name])
    damaged[len(damaged) // 2] ^= 1
    disk.put({path: data for path, data in kept.items() if not path.endswith("LOCK")} | {name: bytes(damaged)})


def rewritten(disk: SimulatedDisk) -> None:
    """It has been rewritten before, and used since."""
    closed(disk)
    pystate.rewrite(STORE, lambda rewriting: rewriting.family("b").clear(), files=disk)
    store = open_quietly(disk)
    store.family("b").put(b"k", b"again")
    store.snapshot()
    store.family("b").put(b"l", b"again")
    store.close()


def half_rewritten(disk: SimulatedDisk) -> None:
    """The process has died when the new snapshot had its name, and nothing was removed."""
    closed(disk)
    with suppress(KeyboardInterrupt):
        disk.inject(Fault("unlink", 1, error=KeyboardInterrupt()))
        pystate.rewrite(STORE, lambda rewriting: rewriting.family("b").clear(), files=disk)
    disk.kill()
    disk.faults.clear()


def almost_rewritten(disk: SimulatedDisk) -> None:
    """The process has died when everything was prepared, and the new snapshot did not have its name."""
    closed(disk)
    disk.inject(Fault("replace", 1, path=".snapshot", error=KeyboardInterrupt()))
    disk.inject(Fault("unlink", 1, error=errno.EIO, times=None))
    with suppress(KeyboardInterrupt):
        pystate.rewrite(STORE, lambda rewriting: rewriting.family("b").clear(), files=disk)
    disk.kill()
    disk.faults.clear()


BEGINNINGS = [closed, stopped, torn, damaged_snapshot, rewritten, half_rewritten, almost_rewritten]


# Programs


def build(rewriting: Rewriting) -> None:
    """A migration: values rewritten, a family renamed, one new, and one filled from another. Run twice it fails."""
    if rewriting.metadata["format"] == "2":
        return
    a = rewriting.family("a")
    for key, value in a.items():
        a[key] = value + b"!"
    rewriting.rename_family("b", "c")
    new = rewriting.create_family("new")
    for key, value in rewriting.family("c").items():
        new[key] = value
    rewriting.metadata["format"] = "2"


def rewriting(disk: SimulatedDisk) -> pystate.RewriteReport:
    return pystate.rewrite(STORE, build, files=disk)


def installing(disk: SimulatedDisk) -> pystate.InstallReport:
    return pystate.install(STORE, EXPORTED, files=disk)


def name_of(beginning: Callable[..., object]) -> str:
    return beginning.__name__.replace("_", " ")


def built(before: Content) -> Content:
    """What `build` makes of a content."""
    families = {name: dict(entries) for name, entries in before.families.items()}
    families["a"] = {key: value + b"!" for key, value in families["a"].items()}
    families["c"] = families.pop("b")
    families["new"] = dict(families["c"])
    return Content(families, {"format": "2"}, before.id)


def rewriting_of(beginning: Callable[[SimulatedDisk], object]) -> Scene:
    disk = SimulatedDisk()
    beginning(disk)
    before = look(disk.clone())
    assert before is not None
    return Scene(name_of(beginning), disk, rewriting, [before], built(before))


def export_of_another(disk: SimulatedDisk) -> Content:
    """A snapshot file of another store; the content that it makes."""
    disk.make_directory("/elsewhere")
    with pystate.open("/elsewhere/source", files=disk, families=["a"], metadata={"format": "7"}) as store:
        store.family("a").update({b"1": b"from", b"9": b"elsewhere" * 100})
        store.export(EXPORTED)
    return Content({"a": {b"1": b"from", b"9": b"elsewhere" * 100}, "default": {}}, {"format": "7"}, "")


def nothing(disk: SimulatedDisk) -> None:
    """No directory."""


def empty(disk: SimulatedDisk) -> None:
    """An empty directory."""
    disk.make_directory(STORE)
    disk.sync_directory("/")


def half_created(disk: SimulatedDisk) -> None:
    """The process has died in the making of a store, before there was one."""
    *_, state = (
        state
        for state in crash_states(lambda disk: open_quietly(disk).close(), level=Level.KILL)
        if state.files().keys() == {f"{STORE}/LOCK", f"{STORE}/{1:020d}.log"}
    )
    disk.put({path: content for path, content in state.files().items() if not path.endswith("LOCK")})


def half_installed(disk: SimulatedDisk) -> None:
    """The process has died in an installation from a file with a higher sequence."""
    disk.put({f"{STORE}/{100:020d}.snapshot.tmp": b"half"})
    disk.put({f"{STORE}/{101:020d}.closed": encode_closed_segment(SegmentHeader(bytes(16), 1, b"salt", 101))})


def damaged(disk: SimulatedDisk) -> None:
    """The store cannot be opened: its log is damaged, and so is its snapshot."""
    stopped(disk)
    for path, content in disk.files().items():
        if not path.endswith("LOCK"):
            wrong = bytearray(content)
            wrong[len(wrong) // 2] ^= 0x55
            disk.put({path: bytes(wrong)})


def installation_over(beginning: Callable[[SimulatedDisk], object]) -> Scene:
    disk = SimulatedDisk()
    beginning(disk)
    before = look(disk.clone())
    after = export_of_another(disk)
    return Scene(name_of(beginning), disk, installing, [before], after)


SCENES = {
    **{f"rewrite {name_of(beginning)}": (rewriting_of, beginning) for beginning in BEGINNINGS},
    **{
        f"install over {name_of(beginning)}": (installation_over, beginning)
        for beginning in [*BEGINNINGS, nothing, empty, half_created, half_installed]
    },
}


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest) -> Scene:
    make, beginning = SCENES[request.param]
    return make(beginning)


# The judge


class Judge:
    """Says whether a crash state of a scene is right.

    Arguments:
        thorough: open for writing, go on, crash again and run the program again.
        damage: a durable sector may be damaged: refusing is right too.
    """

    def __init__(self, scene: Scene, *, thorough: bool = False, damage: bool = False) -> None:
        self.scene, self.thorough, self.damage = scene, thorough, damage
        self.seen = {"before": 0, "after": 0, "refused": 0}

    def __call__(self, state: CrashState) -> None:
        disk = state.open_disk()
        files = disk.files()
        try:
            found = look(disk)
        except pystate.CorruptionError:
            assert self.damage, "refused without damage"
            assert disk.files() == files, "a byte was changed by a reader that refused"
            self.seen["refused"] += 1
            return
        assert disk.files() == files, "a reader has changed a byte"
        assert self.which(found, done=state.first.operation >= state.recording.operations and state.outer is None)
        if self.thorough:
            self.go_on(state, found)

    def which(self, found: Content | None, *, done: bool = False) -> str:
        """Which of the two states it is; an error if it is neither."""
        scene = self.scene
        foreign = not scene.after.id
        if found is not None and found._replace(id=scene.after.id) == scene.after:
            old = [content.id for content in scene.before if content is not None]
            assert (found.id not in old) if foreign else (found.id == scene.after.id)
            self.seen["after"] += 1
            return "after"
        assert found in scene.before, f"neither the old state nor the new one: {found}"
        assert not done, "the old state, although the new one was acknowledged"
        self.seen["before"] += 1
        return "before"

    def go_on(self, state: CrashState, found: Content | None) -> None:
        disk = state.open_disk()
        if found is None:
            with pystate.open(STORE, files=disk) as store:
                assert store.families == ("default",)
            return self.again(disk, None)
        if "damaged" not in self.scene.name:
            report = pystate.verify(STORE, files=disk)
            assert report.ok, report.problems
        store = open_quietly(disk)
        sequence = store.sequence
        kinds = [parse_name(path.rpartition("/")[2]).kind for path in disk.files() if path.startswith(STORE)]
        assert kinds.count("snapshot") == 1, "a superseded snapshot is left"
        assert kinds.count("temporary") == 0
        store.family("default").put(b"going", b"on")
        for level in (Level.NOTHING_UNSYNCED, Level.SECTORS):
            for after in crash_here(disk, level=level, budget=8):
                self.same_and_more(after.open_disk(), found, sequence)
        store.snapshot()
        store.close()
        self.same_and_more(disk.clone(), found, sequence)
        self.again(state.open_disk(), found)

    def same_and_more(self, disk: SimulatedDisk, found: Content, sequence: int) -> None:
        again = look(disk)
        assert again is not None
        assert again.families["default"].pop(b"going") == b"on"
        assert again == found
        with open_quietly(disk) as store:
            assert store.sequence == sequence + 1

    def again(self, disk: SimulatedDisk, found: Content | None) -> None:
        """Whatever the crash has left, running the program once more gives the new state."""
        self.scene.program(disk)
        assert self.which(look(disk), done=True) == "after"
        with open_quietly(disk) as store:
            store.family("default").put(b"going", b"on")
        assert not disk.open_descriptors
        assert not disk.held_locks


# Crashes


@pytest.mark.parametrize("level", BELOW_GARBAGE, ids=lambda level: level.value)
def test_every_crash_leaves_all_of_the_old_or_all_of_the_new(scene: Scene, level: Level) -> None:
    """Rows 23, 85, 87 and 91."""
    judge = Judge(scene)
    report = check(scene.program, judge, level=level, disk=scene.disk)
    assert report.exhaustive, report
    assert min(judge.seen["before"], judge.seen["after"]) > 0


@pytest.mark.parametrize("level", [*BELOW_GARBAGE, Level.GARBAGE], ids=lambda level: level.value)
def test_everything_goes_on_from_there(scene: Scene, level: Level) -> None:
    """The next opening finishes, commits are safe, and a second run of the same program ends where the first should."""
    check(scene.program, Judge(scene, thorough=True), level=level, disk=scene.disk, budget=80)


def test_damage_beside_a_crash_is_refused_or_does_not_matter(scene: Scene) -> None:
    """Guarantee 5: never a mixture, and never the old state where the new one was acknowledged."""
    judge = Judge(scene, damage=True)
    check(scene.program, judge, level=Level.DAMAGE, disk=scene.disk, budget=400)
    assert judge.seen["refused"] > 0 or judge.seen["before"] > 0


@pytest.mark.parametrize("levels", [(Level.KILL, Level.SECTORS), (Level.SECTORS, Level.SECTORS)], ids=str)
def test_crash_in_the_opening_behind_a_crash_leaves_the_same(scene: Scene, levels: Sequence[Level]) -> None:
    """Row 27: what has been replaced is removed only when nothing can bring it back."""

    def open_and_commit(disk: SimulatedDisk) -> None:
        with suppress(pystate.StoreNotFoundError):
            pystate.open(STORE, files=disk, create=False).close()

    report = check(
        scene.program,
        Judge(scene),
        level=levels[0],
        disk=scene.disk,
        budget=60,
        nested=1,
        nested_levels=levels[1:],
        recovery=open_and_commit,
    )
    assert report.states > 50


@pytest.mark.parametrize("beginning", [nothing, empty, half_created, half_installed], ids=name_of)
@pytest.mark.parametrize("levels", [(Level.KILL, Level.SECTORS), (Level.SECTORS, Level.KILL)], ids=str)
def test_crash_in_the_making_of_a_store_behind_one_in_an_installation(
    beginning: Callable[..., object], levels: Sequence[Level]
) -> None:
    """Rows 27 and 57: what was prepared never makes damage of a store that is made in its place."""
    scene, seen = installation_over(beginning), set()

    def judge(state: CrashState) -> None:
        found = look(state.open_disk())
        seen.add(None if found is None else tuple(found.families))
        assert found is None or found.families in ({"default": {}}, scene.after.families)
        open_quietly(state.open_disk()).close()

    check(
        scene.program,
        judge,
        level=levels[0],
        disk=scene.disk,
        nested=1,
        nested_levels=levels[1:],
        nested_budget=40,
        recovery=open_quietly,
    )
    assert seen == {None, ("default",), ("a", "default")}


def test_what_a_reader_has_seen_stays(scene: Scene) -> None:
    """A read-only store shows the new state only when power loss cannot take it back."""
    judge, after = Judge(scene), 0
    for state in crash_states(scene.program, level=Level.KILL, disk=scene.disk):
        disk = state.open_disk()
        if judge.which(look(disk)) == "after":
            for then in crash_here(disk, level=Level.NOTHING_UNSYNCED):
                found = look(then.open_disk())
                assert found is not None or not scene.before[0]
                after += judge.which(found, done=scene.before[0] is not None) == "after"
    assert after > 0


def test_a_damaged_store_is_replaced_all_the_same() -> None:
    """Restoring is what one does with a store that is damaged: it stays refused until the new one is in place."""
    disk = SimulatedDisk()
    damaged(disk)
    with pytest.raises(pystate.CorruptionError):
        look(disk.clone())
    judge = Judge(Scene("damaged", disk, installing, [], export_of_another(disk)), damage=True)
    for level in BELOW_GARBAGE:
        assert check(installing, judge, level=level, disk=disk).exhaustive
    assert judge.seen["before"] == 0
    assert min(judge.seen["after"], judge.seen["refused"]) > 20


def test_export_is_whole_under_its_name_or_not_there() -> None:
    """Row 83: a crash leaves the file that was there before, or the new one, at every level."""
    disk = SimulatedDisk()
    export_of_another(disk)
    old = pystate.read_snapshot(EXPORTED, files=disk.clone())
    closed(disk)

    def export(disk: SimulatedDisk) -> pystate.ExportReport:
        store = open_quietly(disk)
        store.family("a").put(b"5", b"v" * 1200)
        report = store.export(EXPORTED)
        store.close()
        return report

    seen = set()

    def judge(state: CrashState) -> None:
        info = pystate.read_snapshot(EXPORTED, thorough=True, files=state.open_disk())
        seen.add(info.digest)
        assert info.digest in (old.digest, state.result.digest)
        assert look(state.open_disk()) is not None
        if state.operation == state.recording.operations:
            assert info.digest == state.result.digest

    for level in [*BELOW_GARBAGE, Level.GARBAGE]:
        check(export, judge, level=level, disk=disk)
    assert len(seen) == 2


def test_new_store_has_its_metadata_from_its_first_moment_on() -> None:
    """A crash in the creation leaves no store, or one with the metadata."""
    found = set()

    def judge(state: CrashState) -> None:
        try:
            found.add(pystate.read_metadata(STORE, files=state.open_disk())["format"])
        except pystate.StoreNotFoundError:
            found.add("none")

    for level in BELOW_GARBAGE:
        check(closed, judge, level=level)
    assert found == {"1", "none"}


# Failures


def calls(scene: Scene) -> list[Call]:
    return list(each_call(scene.program, disk=scene.disk))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_failure_of_any_call_leaves_the_old_state_as_it_was(scene: Scene, number: int) -> None:
    """Rows 39 and 44: byte for byte, with no debris; only behind the rename the outcome may be unknown."""
    judge = Judge(scene)
    for call in calls(scene):
        disk = scene.disk.clone()
        disk.inject(call.fault(number))
        before, error = kept(disk), None
        try:
            scene.program(disk)
        except (pystate.PystateError, OSError) as raised:
            error = raised
        disk.faults.clear()
        assert not disk.open_descriptors
        assert not disk.held_locks
        if error is None or isinstance(error, pystate.StoreFailedError):
            judge.which(look(disk), done=True)
        else:
            assert type(error) is pystate.DiskFullError or number != errno.ENOSPC or call.operation not in ("write",)
            assert kept(disk) == before or scene.before == [None], f"{call}: {error}"
            judge.which(look(disk))
        judge.again(disk, None)
    assert judge.seen["before"] > 0


def kept(disk: SimulatedDisk) -> dict[str, bytes]:
    """Every file but the lock and what opening for writing keeps for people; a damaged snapshot under its old name."""
    return {
        path.removesuffix(".torn"): content
        for path, content in disk.files().items()
        if not path.endswith("LOCK") and not (path.endswith(".torn") and "generation" in path)
    }


def test_interrupt_at_any_call_leaves_one_of_the_two_states(scene: Scene) -> None:
    """Row 45: before or after the call was done; and nothing stays locked."""
    judge = Judge(scene)
    for call in calls(scene):
        for after in (False, True) if call.operation != "lock" else (False,):
            disk = scene.disk.clone()
            disk.inject(call.fault(KeyboardInterrupt(), after=after))
            with suppress(KeyboardInterrupt):
                scene.program(disk)
            disk.faults.clear()
            assert not disk.held_locks
            disk.kill()
            judge.which(look(disk))
            judge.again(disk, None)
    assert min(judge.seen["before"], judge.seen["after"]) > 0


def test_full_disk_leaves_no_debris(scene: Scene) -> None:
    """Row 39, with a disk that is full from some byte on."""
    judge, room, before = Judge(scene), 0, kept(scene.disk)
    while True:
        disk = scene.disk.clone()
        disk.quota = disk.used_bytes() + room
        with nullcontext() if room else pytest.raises(pystate.DiskFullError):
            try:
                scene.program(disk)
                break
            except pystate.DiskFullError:
                if not room:
                    raise
        assert kept(disk) == before or scene.before == [None]
        disk.quota = None
        judge.which(look(disk))
        room += 37
    assert room > 37


# Is it sharp? Each step taken away

BROKEN: dict[str, tuple[Callable[..., Scene], Callable[..., object], Level, *tuple[Edit, ...]]] = {
    "snapshot removed before the new one counts": (
        rewriting_of, closed, Level.KILL,
        Edit(
            replacing.put_in_place, "    try:\n        written",
            "    remove_replaced(files, directory, inventory)\n    try:\n        written",
        ),
    ),
    "log prepared behind the rename": (
        rewriting_of, closed, Level.KILL,
        Edit(
            replacing.put_in_place,
            "        publish(files, directory, prepared, encode_closed_segment(segment))\n", "",
        ),
    ),
    "temporary name not synced before the log is prepared": (
        installation_over, empty, Level.SECTORS,
        Edit(replacing.put_in_place, "        files.sync_directory(directory)  #", "        #"),
    ),
    "snapshot not synced": (
        rewriting_of, closed, Level.SECTORS,
        Edit(
            replacing.put_in_place,
            "        file.sync()\n        files.sync_directory(directory)",
            "        files.sync_directory(directory)",
        ),
        Edit(files.publish_written, "    file.sync()\n", ""),
    ),
    "replaced files not named": (
        rewriting_of, closed, Level.KILL,
        Edit(replacing.put_in_place, "replaces=old or msgspec.UNSET", "replaces=msgspec.UNSET"),
    ),
    "the same log goes on": (
        rewriting_of, closed, Level.KILL,
        Edit(rewrite._Rewrite._replace, "log_id=files.random_bytes(16)", "log_id=recovered.header.log"),
    ),
    "prepared log counts": (
        rewriting_of, closed, Level.KILL,
        Edit(recovery.own_segments, "if counts and name.closed", "if False and name.closed"),
    ),
    "sequence not above": (
        rewriting_of, closed, Level.DAMAGE,
        Edit(replacing.sequence_above, ") + 1", ")"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_step_that_is_left_out_is_noticed(name: str) -> None:
    """Rows 24 and 25: by a crash state that is neither, or refused."""
    make, beginning, level, *edits = BROKEN[name]
    scene = make(beginning)
    judge = Judge(scene, damage=level is Level.DAMAGE)
    check(scene.program, judge, level=level, disk=scene.disk)
    with edited(*edits), pytest.raises((CheckFailedError, pystate.PystateError)):
        check(scene.program, judge, level=level, disk=scene.disk, shrink=False)


def test_opening_that_does_not_sync_before_it_removes_is_noticed() -> None:
    scene = rewriting_of(closed)
    edit = Edit(opening._open_locked, "        if recovered.replaced:", "        if False:")
    with edited(edit), pytest.raises(CheckFailedError):
        test_crash_in_the_opening_behind_a_crash_leaves_the_same(scene, (Level.KILL, Level.SECTORS))


def test_reader_that_does_not_sync_is_noticed() -> None:
    scene = rewriting_of(closed)
    edit = Edit(follower.read_committed, "        if recovered.replaced:", "        if False:")
    with edited(edit), pytest.raises(AssertionError):
        test_what_a_reader_has_seen_stays(scene)
