"""The pytest plugin, as a user sees it: each test here is a run of pytest in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.sources import ROOT

USES_BOTH = """\
from pystate.testing import check_recovered, History, Recorder, open_quietly

def workload(disk):
    history = History(disk)
    recorder = Recorder(open_quietly(disk), history)
    for number in range(3):
        recorder.put(b"key", b"%d" % number)
    recorder.close()
    return history

def test_states(crash_states):
    states = crash_states(workload)
    count = 0
    for state in states:
        check_recovered(state, state.result)
        count += 1
    print("states", count, states.exhaustive, states.recording.disk.seed)

def test_disk(simulated_disk):
    workload(simulated_disk)
    print("seed", simulated_disk.seed)
"""

LEAKS = """\
def test_lock(simulated_disk):
    global lock
    lock = simulated_disk.lock("/", "LOCK", 0.0)

def test_dies(simulated_disk):
    global other
    other = simulated_disk.lock("/", "LOCK", 0.0)
    simulated_disk.kill()

def test_fails_anyway(simulated_disk):
    global third
    third = simulated_disk.lock("/", "LOCK", 0.0)
    assert False, "the error to be told"
"""


def run(folder: Path, program: str, *options: str) -> tuple[int, str]:
    """Run pytest with the plugin, and no other one that is installed; return its exit code and what it printed."""
    (folder / "test_it.py").write_text(program, encoding="utf-8")
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "pystate.testing.plugin", "-p", "no:cacheprovider", *options]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def test_fixtures_are_there_and_the_same_for_every_run(tmp_path: Path) -> None:
    code, output = run(tmp_path, USES_BOTH, "-s")
    assert code == 0, output
    assert "True 0" in output
    assert "seed 0" in output


def test_seed_and_budget_come_from_the_command_line(tmp_path: Path) -> None:
    code, output = run(tmp_path, USES_BOTH, "-s", "--pystate-seed=7", "--pystate-budget=20")
    assert code == 0, output
    assert "False 7" in output
    assert "seed 7" in output


def test_lock_that_is_left_on_the_disk_fails_the_test_that_passed(tmp_path: Path) -> None:
    code, output = run(tmp_path, LEAKS)
    assert code == 1
    assert "left open on the simulated disk: /LOCK" in output
    assert output.count("left open on the simulated disk: /LOCK") == 2  # in the report, and in its summary
    assert re.search("1 failed, 2 passed, (1 warning, )?1 error", output)


def test_failure_shows_seed_and_budget(tmp_path: Path) -> None:
    code, output = run(tmp_path, LEAKS, "--pystate-seed=5")
    assert code == 1
    assert "--pystate-seed=5 --pystate-budget=10000" in output
    assert "the error to be told" in output


def test_options_are_in_the_help(tmp_path: Path) -> None:
    code, output = run(tmp_path, "", "--help")
    assert code == 0
    assert "--pystate-seed=N" in output
    assert "--pystate-budget=N" in output
