"""The crash matrix with real processes: each ends dead at its point, over a store on disk and a world in a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pystate.effects import ABORT_STATUS, EffectStore, FaultPoint, InProgress, RecoveryReport
from pystate.effects.testing import ManualClock
from tests.effects.runtime.killed import FileRemote, case_directory
from tests.effects.runtime.leaving import LAPSE, do, worker
from tests.effects.runtime.matrix import ROWS, protected, rows
from tests.effects.runtime.test_crash_matrix import NO_LEASE, UNDOING, check_row, run_again
from tests.effects.runtime.world import World
from tests.effects.samples import T
from tests.sources import ROOT


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what each process has left, all of them dead."""
    root = tmp_path_factory.mktemp("dead")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.effects.runtime.killed", str(root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [f"{point} {protection} {ABORT_STATUS}" for point, protection in rows()], (
        ran.stderr
    )
    return root


@pytest.mark.parametrize(("point", "protection"), rows())
def test_a_process_that_dies(dead: Path, point: FaultPoint, protection: str) -> None:
    """Check E172: as in one process; a request may not have gone out when its sender dies as soon as it has begun."""
    directory = case_directory(dead, point, protection)
    with EffectStore.open(directory / "store", durability="process") as store:
        world = World(store)
        world.clock = ManualClock(T(0))
        world.remote = FileRemote(world.clock, directory / "world")
        effect = protected(world.remote, protection, point)
        if point not in NO_LEASE:
            before = world.record()
            assert do(world, worker(world, effect, name="early").recover()) == RecoveryReport()
            assert world.run(effect, worker="early") == InProgress(before.id)
            assert world.record() == before
        world.pass_time(LAPSE)
        landed = bool(world.remote.created)
        do(world, worker(world, name="rec").recover())
        if point is FaultPoint.AFTER_APPROVAL_REQUESTED:
            do(world, world.runtime("op").approve(world.record().id, "ann"))
        run_again(world, effect, point, "again")
        if point is FaultPoint.AFTER_ACTION_STARTED and not landed:
            point = FaultPoint.AFTER_ATTEMPT_PERSISTED
        check_row(world, point, protection)
        world.check()
    # Everything was counted in the world outside, not in this process.
    lines = (directory / "world").read_text().split()[::2] if (directory / "world").exists() else []
    row = ROWS[point][protection]
    assert (lines.count("call"), lines.count("apply")) == (row.calls, row.created)
    assert lines.count("undo") == (point is UNDOING)
