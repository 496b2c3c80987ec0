"""The oracle by itself: what it allows after a crash, and that it sees each kind of broken promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pystate
from pystate import ConflictError, DiskFullError, Durability, Store, StoreFailedError
from pystate.engine.files import read_whole
from pystate.testing import (
    BrokenPromiseError,
    Commit,
    History,
    Level,
    Recorder,
    SimulatedDisk,
    check_live,
    check_recovered,
    crash_here,
    crash_states,
    disk_full,
    failing,
    lost_sync,
    open_quietly,
    read_state,
)
from pystate.testing.history import Outcome, State
from pystate.testing.oracle import compare

LOG = "/store/00000000000000000001.log"


def history_of(*commits: tuple[str, Outcome] | tuple[str, Outcome, Durability] | None) -> History:
    """A history of puts of ``k=<name>`` and ``<name>=1``; None stands for a sync that returned."""
    history = History()
    for one in commits:
        if one is None:
            history.note_sync()
        else:
            name, outcome, *durability = one
            key = name.encode()
            commit = history.start(
                {"default": {b"k": key, key: b"1"}}, durability=durability[0] if durability else "sync"
            )
            if outcome != "started":
                history.end(commit, outcome)
    return history


def names(states: list[State]) -> list[str]:
    """The commits in each state, as one word."""
    return ["".join(sorted(key.decode() for key in state["default"] if key != b"k")) for state in states]


# What is allowed


@pytest.mark.parametrize(
    ("history", "after_kill", "after_power_loss"),
    [
        pytest.param(history_of(), [""], [""], id="nothing"),
        pytest.param(history_of(("a", "acknowledged")), ["a"], ["a"], id="acknowledged"),
        pytest.param(history_of(("a", "started")), ["", "a"], ["", "a"], id="in-flight"),
        pytest.param(history_of(("a", "aborted")), [""], [""], id="aborted"),
        pytest.param(
            history_of(("a", "acknowledged"), ("b", "aborted"), ("c", "acknowledged")),
            ["ac"],
            ["ac"],
            id="around-aborted",
        ),
        pytest.param(
            history_of(("a", "acknowledged"), ("b", "unknown"), ("c", "acknowledged")),
            ["ac", "abc"],
            ["ac", "abc"],
            id="unknown-in-or-out",
        ),
        pytest.param(
            history_of(("a", "acknowledged", "process"), ("b", "acknowledged", "process")),
            ["ab"],
            ["", "a", "ab"],
            id="process-is-a-prefix",
        ),
        pytest.param(
            history_of(("a", "acknowledged", "process"), ("b", "acknowledged"), ("c", "acknowledged", "process")),
            ["abc"],
            ["ab", "abc"],
            id="process-before-sync",
        ),
        pytest.param(
            history_of(("a", "acknowledged", "process"), None, ("b", "acknowledged", "process")),
            ["ab"],
            ["a", "ab"],
            id="process-before-sync-call",
        ),
        pytest.param(
            history_of(("a", "acknowledged", "process"), ("b", "unknown", "process"), ("c", "started")),
            ["a", "ab", "ac", "abc"],
            ["", "a", "ab", "ac", "abc"],
            id="two-unknown",
        ),
    ],
)
def test_states_allowed_after_a_crash(history: History, after_kill: list[str], after_power_loss: list[str]) -> None:
    assert set(names(history.allowed(power_loss=False))) == set(after_kill)
    assert set(names(history.allowed(power_loss=True))) == set(after_power_loss)
    assert len(history.allowed()) == len(set(names(history.allowed())))


def test_sync_that_loses_pages_may_take_what_was_not_durable_whatever_follows() -> None:
    disk = SimulatedDisk()
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.put(b"a", b"1")
    for key in (b"b", b"c"):
        recorder.commit({"default": {key: b"1"}}, durability="process")
    disk.inject(lost_sync())
    with pytest.raises(StoreFailedError):
        recorder.sync()
    disk.kill()
    recorder = Recorder(open_quietly(disk), recorder.history)
    recorder.put(b"d", b"1")
    assert names(recorder.history.allowed()) == ["ad", "abd", "abcd"]
    disk.kill()
    assert check_recovered(disk, recorder.history, level=Level.KILL) == {"default": {b"a": b"1", b"d": b"1"}}


def test_damage_allows_every_prefix_and_nothing_else() -> None:
    history = history_of(("a", "acknowledged"), ("b", "acknowledged"))
    assert names(history.allowed(lossless=False)) == ["", "a", "ab"]


def test_families_come_and_go_with_their_commits() -> None:
    history = History()
    for created, dropped, writes in (
        (("f",), (), {}),
        ((), (), {"f": {b"x": b"1"}, "default": {b"y": b"1"}}),
        ((), ("f",), {}),
        (("f",), (), {}),
    ):
        commit = history.start(writes, created=created, dropped=dropped, durability="process")
        history.end(commit, "acknowledged")
    assert history.allowed() == [
        {"default": {}},
        {"default": {}, "f": {}},
        {"default": {b"y": b"1"}, "f": {b"x": b"1"}},
        {"default": {b"y": b"1"}},
        {"default": {b"y": b"1"}, "f": {}},
    ]
    assert history.live() == history.allowed()[-1]


def test_history_at_a_moment_knows_what_the_program_knew_then() -> None:
    disk = SimulatedDisk()
    history = History(disk)
    recorder = Recorder(open_quietly(disk), history)
    opened = disk.position
    recorder.put(b"a", b"1")
    first = disk.position
    recorder.put(b"b", b"2")
    assert history.at(opened - 1).commits == []
    assert [commit.outcome for commit in history.at(opened).commits] == ["started"]
    assert [commit.outcome for commit in history.at(first - 1).commits] == ["started"]
    assert [commit.outcome for commit in history.at(first).commits] == ["acknowledged", "started"]
    assert [commit.outcome for commit in history.at(disk.position).commits] == ["acknowledged", "acknowledged"]
    assert history.at(opened).synced == []
    recorder.close()
    assert history.at(disk.position).synced == [(disk.position, 2)]
    assert history.allowed_at(first) == history.at(first).allowed()


# What the recorder writes down


def test_recorder_notes_each_commit_with_its_outcome_and_sequence() -> None:
    disk = SimulatedDisk()
    recorder = Recorder(open_quietly(disk))
    recorder.put(b"a", b"1")
    recorder.create_family("f")
    recorder.commit({"f": {b"x": b"1", b"y": None}, "default": {b"a": None}}, durability="process")
    recorder.delete(b"missing")
    with pytest.raises(pystate.FamilyNotFoundError):
        recorder.put(b"x", b"1", family="none")
    with pytest.raises(ValueError):
        recorder.put(bytes(100_000), b"too long")
    recorder.drop_family("f")
    assert [(one.outcome, one.sequence, one.durability) for one in recorder.history.commits] == [
        ("acknowledged", 1, "sync"),
        ("acknowledged", None, "sync"),
        ("acknowledged", 3, "process"),
        ("acknowledged", 4, "sync"),
        ("aborted", None, "sync"),
        ("aborted", None, "sync"),
        ("acknowledged", None, "sync"),
    ]
    check_live(recorder.store, recorder.history)
    recorder.sync()
    recorder.snapshot()
    recorder.close()
    assert len(recorder.history.synced) == 3


def test_recorder_notes_a_failed_sync_as_unknown_and_what_follows_as_aborted() -> None:
    disk = SimulatedDisk()
    recorder = Recorder(open_quietly(disk))
    disk.inject(failing("sync"))
    for _ in range(2):
        with pytest.raises(StoreFailedError):
            recorder.put(b"a", b"1")
    assert [one.outcome for one in recorder.history.commits] == ["unknown", "aborted"]
    recorder.close()
    assert recorder.history.synced == []  # a store that has failed makes nothing durable by closing


def test_recorder_notes_a_full_disk_as_aborted_and_an_interrupt_as_unknown() -> None:
    disk = SimulatedDisk()
    recorder = Recorder(open_quietly(disk))
    disk.inject(*disk_full(1, calls=1), failing("write", 2, KeyboardInterrupt))
    with pytest.raises(DiskFullError):
        recorder.put(b"a", b"1")
    with pytest.raises(KeyboardInterrupt):
        recorder.put(b"b", b"1")
    assert [one.outcome for one in recorder.history.commits] == ["aborted", "unknown"]
    recorder.store.close()


def test_conflict_is_aborted() -> None:
    history = History()
    commit = history.start({"default": {b"a": b"1"}})
    with pytest.raises(ConflictError), history.ending(commit):
        raise ConflictError(family="default", key=b"a", read_sequence=1, commit_sequence=2)
    assert commit.outcome == "aborted"


# What is seen

Breaks = Callable[[SimulatedDisk, History], None]


def put_directly(disk: SimulatedDisk, entries: dict[bytes, bytes | None], *, family: str = "default") -> None:
    """Write past the recorder."""
    with open_quietly(disk) as store, store.begin() as txn:
        for key, value in entries.items():
            txn.delete(family, key) if value is None else txn.put(family, key, value)


def add_family(disk: SimulatedDisk, name: str) -> None:
    with open_quietly(disk) as store:
        store.create_family(name)


def remove(disk: SimulatedDisk, part: str) -> None:
    for path in disk.files():
        if part in path:
            disk.unlink(path)


def cut_log(disk: SimulatedDisk, size: int) -> None:
    """Cut the log, so that an acknowledged commit is torn."""
    path = next(path for path in disk.files() if path.endswith((".log", ".closed")))
    content = read_whole(disk, path)
    disk.put({path: content[: len(content) - size]})


def three_commits() -> tuple[SimulatedDisk, History]:
    """A store that was never closed, with three commits, the third of which was refused."""
    disk = SimulatedDisk()
    recorder = Recorder(open_quietly(disk))
    recorder.history.disk = disk
    recorder.put(b"a", b"1")
    recorder.put(b"b", b"2")
    recorder.history.end(recorder.history.start({"default": {b"c": b"3"}}), "aborted")
    disk.kill()
    return disk, recorder.history


BREAKS: dict[str, tuple[Breaks, str]] = {
    "acknowledged commit is missing": (
        lambda disk, _: cut_log(disk, 1),
        r"default\[b'b'\]: expected b'2' \(commit 2",
    ),
    "aborted commit is there": (
        lambda disk, _: put_directly(disk, {b"c": b"3"}),
        r"default\[b'c'\]: expected nothing, found b'3' \(commit 3 \(aborted, sync\)\)",
    ),
    "value is invented": (
        lambda disk, _: put_directly(disk, {b"a": b"9"}),
        r"default\[b'a'\]: expected b'1' \(commit 1 \(acknowledged, sync\)\), found b'9'",
    ),
    "hole": (lambda disk, _: put_directly(disk, {b"a": None}), r"default\[b'a'\]: expected b'1' .*, found nothing"),
    "family is invented": (
        lambda disk, _: add_family(disk, "new"),
        "family 'new': should not be there",
    ),
    "sequence went back": (
        lambda _, history: setattr(history.commits[1], "sequence", 77),
        "S: the sequence is 2, but 77 had been acknowledged",
    ),
    "store is gone": (
        lambda disk, _: remove(disk, "/store/"),
        r"expected b'1' \(commit 1",
    ),
    "snapshot is gone": (
        lambda disk, _: remove(disk, ".snapshot"),
        "A: it refuses to open: .*expected a snapshot",
    ),
}


@pytest.mark.parametrize(("breaks", "message"), BREAKS.values(), ids=BREAKS)
def test_broken_promise_is_seen_and_named(breaks: Breaks, message: str) -> None:
    disk, history = three_commits()
    check_recovered(disk.clone(), history)
    breaks(disk, history)
    with pytest.raises(BrokenPromiseError, match=message):
        check_recovered(disk.clone(), history)


def test_half_of_a_commit_is_seen() -> None:
    disk = SimulatedDisk()
    recorder = Recorder(open_quietly(disk))
    recorder.commit({"default": {b"x": b"1", b"y": b"1"}})
    disk.kill()
    put_directly(disk, {b"x": None})
    with pytest.raises(BrokenPromiseError, match=r"default\[b'x'\]"):
        check_recovered(disk, recorder.history)


def leaking(disk: SimulatedDisk, path: str) -> Store:
    disk.create("/left.tmp").close()
    return open_quietly(disk, path)


def keeping_a_descriptor(disk: SimulatedDisk, path: str) -> Store:
    store = open_quietly(disk, path)
    kept.append(disk.open_read("/store/LOCK"))
    return store


def keeping_the_lock(disk: SimulatedDisk, path: str) -> Store:
    kept.append(disk.lock("/", "OTHER", 0.0))
    return open_quietly(disk, path)


kept: list[object] = []


@pytest.mark.parametrize(
    ("opener", "message"),
    [
        (leaking, "B: temporary files left behind: /left.tmp"),
        (keeping_a_descriptor, "B: descriptors left behind: /store/LOCK"),
        (keeping_the_lock, "B: locks left behind: /OTHER"),
    ],
    ids=["temporary", "descriptor", "lock"],
)
def test_what_is_left_behind_is_seen(opener: Callable[[SimulatedDisk, str], Store], message: str) -> None:
    disk, history = three_commits()
    with pytest.raises(BrokenPromiseError, match=message):
        check_recovered(disk, history, opener=opener)
    kept.clear()


def test_refusing_to_open_must_not_change_a_byte() -> None:
    """C6 of the model."""

    def changing(disk: SimulatedDisk, path: str) -> Store:
        disk.put({"/store/trace": b"I was here"})
        return open_quietly(disk, path)

    disk, history = three_commits()
    disk.put({LOG: b"nonsense" + read_whole(disk, LOG)[8:]})
    assert check_recovered(disk.clone(), history, level=Level.DAMAGE) is None
    with pytest.raises(BrokenPromiseError, match="R: it refused to open .* but changed /store/trace"):
        check_recovered(disk, history, level=Level.DAMAGE, opener=changing)


def test_recovery_that_forgets_at_the_second_time_is_seen() -> None:
    """C4 of the model."""
    opened = []

    def forgetful(disk: SimulatedDisk, path: str) -> Store:
        opened.append(disk)
        if len(opened) > 1:
            put_directly(disk, {b"a": None})
        return open_quietly(disk, path)

    disk, history = three_commits()
    with pytest.raises(BrokenPromiseError, match="I: after a clean close the next opening shows another state"):
        check_recovered(disk, history, opener=forgetful, thorough=True)


def test_recovery_whose_result_is_not_durable_is_seen() -> None:
    """The process dies with commits that were not synced; then the disk lies about the syncs of the recovery."""
    disk = SimulatedDisk()
    recorder = Recorder(pystate.open("/store", files=disk, durability="process"))
    recorder.put(b"a", b"1")
    disk.kill()
    check_recovered(disk.clone(), recorder.history, level=Level.KILL, thorough=True)
    disk.inject(lost_sync(pages="cached", error=None, times=None))
    with pytest.raises(BrokenPromiseError, match="(V|I): "):
        check_recovered(disk, recorder.history, level=Level.KILL, thorough=True)


def test_state_that_was_recovered_is_returned() -> None:
    disk, history = three_commits()
    assert check_recovered(disk, history, thorough=True) == {"default": {b"a": b"1", b"b": b"2"}}


def test_crash_state_is_judged_at_its_moment_and_level() -> None:
    def workload(disk: SimulatedDisk) -> History:
        history = History(disk)
        recorder = Recorder(pystate.open("/store", files=disk, durability="process"), history)
        recorder.put(b"a", b"1")
        recorder.put(b"b", b"2")
        return history

    for level in Level:
        for state in crash_states(workload, level=level):
            check_recovered(state, state.result)
    *_, last = crash_states(workload, level=Level.NOTHING_UNSYNCED)
    assert check_recovered(last, last.result) == {"default": {}}
    with pytest.raises(BrokenPromiseError):
        check_recovered(last.open_disk(), last.result, level=Level.KILL)


# Comparing


def test_difference_is_told_from_the_nearest_allowed_state_and_cut_short() -> None:
    history = History()
    found: State = {"default": {b"%d" % number: b"x" for number in range(20)}}
    near: State = {"default": {b"%d" % number: b"x" for number in range(19)}}
    with pytest.raises(BrokenPromiseError) as caught:
        compare(found, [{"default": {}}, near], history)
    assert str(caught.value).splitlines() == [
        "P or A: the store differs from the nearest of 2 allowed states:",
        "  default[b'19']: expected nothing, found b'x'",
    ]
    with pytest.raises(BrokenPromiseError, match="the only allowed state(.|\n)*and 12 more"):
        compare(found, [{"default": {}}], history)
    compare(found, [near, found], history)


def test_live_store_is_compared_unless_an_outcome_is_unknown() -> None:
    recorder = Recorder(pystate.memory(families=["f"]), History(initial={"default": {}, "f": {}}))
    recorder.put(b"a", b"1", family="f")
    check_live(recorder.store, recorder.history)
    assert read_state(recorder.store) == {"default": {}, "f": {b"a": b"1"}}
    recorder.store.family("f").put(b"b", b"2")
    with pytest.raises(BrokenPromiseError):
        check_live(recorder.store, recorder.history)
    recorder.history.end(Commit(0, {}), "aborted")
    recorder.history.end(recorder.history.start({"f": {b"b": b"2"}}), "unknown")
    with pytest.raises(ValueError, match="what the store shows cannot be known"):
        check_live(recorder.store, recorder.history)


def test_power_loss_of_a_running_store_leaves_what_was_acknowledged() -> None:
    disk = SimulatedDisk()
    recorder = Recorder(open_quietly(disk), History(disk))
    for number in range(5):
        recorder.put(b"%d" % number, b"x" * 200)
        for state in crash_here(disk):
            check_recovered(state.open_disk(), recorder.history)
    recorder.close()
