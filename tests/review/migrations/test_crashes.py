"""A crash at any disk operation of `migrate_data_dir`, then the next start: the same content and markers as without it.

What a crash may leave of any chain is the subject of the tests of ``pystate.formats``. Here it is this chain, with rows
in every family that it touches. The specification asks for a crash after every engine write: here the whole chain is
one write to the disk, so it is a crash at every operation of the disk, and at each only the old or the new content is
there. What separate writes would have left are the fixtures of `test_states.py`.
"""

from __future__ import annotations

import pytest

from pystate.errors import PystateError
from pystate.testing import CrashState, Level, SimulatedDisk, check, each_call
from tests.formats.shop import unchanged
from tests.review.migrations.fixtures import (
    NEWEST,
    Families,
    check_same,
    content_of,
    finished,
    look_at,
    make,
    markers,
    run,
)
from tests.review.migrations.test_states import CASES

LEVELS = list(Level)
BELOW_GARBAGE = LEVELS[: LEVELS.index(Level.GARBAGE)]


def disk_of(state: Families, marker: str) -> SimulatedDisk:
    disk = SimulatedDisk()
    make(disk, state, marker)
    return disk


class Judge:
    """Says whether a crash state is right, and finishes it."""

    def __init__(self, marker: str, state: Families, expected: Families) -> None:
        self.marker = marker
        self.old = (state, None)
        self.new = (expected, NEWEST)
        self.seen: set[tuple[str | None, str, str]] = set()

    def __call__(self, state: CrashState) -> None:
        disk = state.open_disk()
        found = look_at(disk)
        assert found in (self.old, self.new), "neither the old content nor the new one"
        data, backup = markers(disk)
        assert {data, backup} <= {self.marker, NEWEST}
        if found == self.old and self.old[0] != self.new[0]:
            assert (data, backup) == (self.marker, self.marker), "a marker is ahead of the content"
        self.seen.add((found[1], data, backup))
        run(disk)
        check_same(look_at(disk)[0], self.new[0])
        assert look_at(disk)[1] == NEWEST
        assert markers(disk) == (NEWEST, NEWEST)
        assert not run(disk).changed
        assert not disk.open_descriptors
        assert not disk.held_locks

    def check_seen(self) -> None:
        assert self.seen == {
            (None, self.marker, self.marker),
            (NEWEST, self.marker, self.marker),
            (NEWEST, self.marker, NEWEST),
            (NEWEST, NEWEST, NEWEST),
        }


@pytest.mark.parametrize("level", BELOW_GARBAGE, ids=lambda level: level.value)
def test_crash_at_every_operation(level: Level) -> None:
    """Check R220: from 0.42.0, at every operation, with everything that such a crash may take."""
    judge = Judge("0.42.0", content_of("0.42.0"), finished("0.42.0"))
    check(run, judge, level=level, disk=disk_of(content_of("0.42.0"), "0.42.0"), budget=150)
    judge.check_seen()


@pytest.mark.parametrize("name", CASES)
def test_crash_at_every_operation_from_every_partial_state(name: str) -> None:
    """Check R220: the states of an older program that was interrupted, and then this one, at every operation."""
    marker, state, expected = CASES[name]()
    judge = Judge(marker, state, expected)
    assert check(run, judge, level=Level.KILL, disk=disk_of(state, marker)).exhaustive
    judge.check_seen()


def test_crash_in_the_next_start_too() -> None:
    """Check R220: what was interrupted twice is finished as well."""
    state, expected = content_of("0.43.0"), finished("0.43.0")
    judge = Judge("0.43.0", state, expected)
    disk = disk_of(state, "0.43.0")
    check(run, judge, level=Level.KILL, disk=disk, nested=1, recovery=run, nested_budget=3, budget=60)
    judge.check_seen()


def test_failure_of_any_call_changes_nothing_or_is_finished() -> None:
    """Check R205: (H-6) whatever fails between reading the networks and the new content: the family is unchanged."""
    state, expected = content_of("0.43.0"), finished("0.43.0")
    before = disk_of(state, "0.43.0")
    refused = 0
    for call in each_call(run, disk=before):
        disk = before.clone()
        disk.inject(call.fault())
        try:
            run(disk)
        except (PystateError, OSError):
            refused += 1
        disk.kill()
        found = look_at(disk)
        assert found in ((state, None), (expected, NEWEST)), call
        run(disk)
        check_same(look_at(disk)[0], expected)
        assert markers(disk) == (NEWEST, NEWEST), call
    assert refused > 20


class Stop(Exception):
    """Somebody stops the migration."""


@pytest.mark.parametrize("stop", ["key networks by name", "make the category", "give external services what", "write"])
def test_stopped_while_it_runs(stop: str) -> None:
    """Check R205: (H-6) between reading and writing, whatever the step: no byte has changed."""
    disk = disk_of(content_of("0.42.0"), "0.42.0")

    def progress(what: str, done: int, total: int) -> None:
        if what.startswith(stop) and done == total:
            raise Stop(what)

    with unchanged(disk), pytest.raises(Stop):
        run(disk, progress=progress)
    check_same(look_at(disk)[0], content_of("0.42.0"))
    assert markers(disk) == ("0.42.0", "0.42.0")
    run(disk)
    check_same(look_at(disk)[0], finished("0.42.0"))
