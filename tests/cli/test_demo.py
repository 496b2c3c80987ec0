"""The demo: that it works, and that its checks see every way in which a store could fail them."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pystate
from pystate.cli import demo_inventory, demo_kill
from pystate.cli.demo import run_demo
from pystate.cli.demo_checks import Acknowledged, Verdict, check_state
from pystate.cli.demo_inventory import FILES, PACKAGES, Package, entries_of_commit, installed_packages
from tests.cli.running import environment, run

INPUT = (
    Package("ada", "1.0", (("ada/__init__.py", 10), ("ada/engine.py", None))),
    Package("babbage", "0.2", ()),
    Package("curie", "3.1", (("curie.py", 5), ("größe/[x].txt", 0))),
)
ACKNOWLEDGED = tuple(
    Acknowledged(number // len(INPUT) + 1, number % len(INPUT), number + 3) for number in range(5)
)  # up to babbage in round 2, sequence 7
IN_FLIGHT = (2, 2)

State = dict[str, dict[bytes, bytes]]


def written(*commits: tuple[int, int]) -> State:
    """The state that commits leave, each given as round and index."""
    state: State = {PACKAGES: {}, FILES: {}}
    for round_number, index in commits:
        for family, entries in entries_of_commit(INPUT[index], round_number).items():
            state[family].update(entries)
    return state


GOOD = written(*((commit.round_number, commit.index) for commit in ACKNOWLEDGED))


def verdict(state: State, sequence: int = 7, in_flight: tuple[int, int] | None = IN_FLIGHT) -> Verdict:
    return check_state(INPUT, ACKNOWLEDGED, in_flight, state, sequence)


def failed(verdict: Verdict) -> set[str]:
    return {check.name for check in verdict.checks if not check.ok}


MISSING = "nothing acknowledged is missing or altered"
HALF = "nothing half-written is there"
FOREIGN = "nothing is there that was never written"
SEQUENCE = "the sequence goes on where it was"


def test_what_was_acknowledged_and_nothing_else_is_good() -> None:
    assert verdict(GOOD).ok
    assert verdict(GOOD).in_flight == "not there"
    assert verdict(GOOD, in_flight=None).ok
    assert verdict(GOOD, in_flight=None).in_flight == "none"


def test_the_commit_in_flight_may_be_there_as_a_whole() -> None:
    state = written(*((commit.round_number, commit.index) for commit in ACKNOWLEDGED), IN_FLIGHT)
    assert verdict(state, sequence=8).ok
    assert verdict(state, sequence=8).in_flight == "there, whole"
    assert failed(verdict(state, sequence=7)) == {SEQUENCE}
    assert failed(verdict(state, sequence=7, in_flight=None)) == {FOREIGN}


@pytest.mark.parametrize("family", [PACKAGES, FILES])
def test_every_single_entry_that_is_missing_or_altered_is_seen(family: str) -> None:
    for key in GOOD[family]:
        missing = copy.deepcopy(GOOD)
        del missing[family][key]
        altered = copy.deepcopy(GOOD)
        altered[family][key] += b" "
        for state in (missing, altered):
            # A package without files is nothing but its record: without it, nothing half-written is left.
            assert failed(verdict(state)) in ({MISSING, HALF}, {MISSING})
            assert MISSING in failed(verdict(state))


def test_a_missing_commit_is_seen_whichever_it_is() -> None:
    for lost in ACKNOWLEDGED:
        kept = [(commit.round_number, commit.index) for commit in ACKNOWLEDGED if commit != lost]
        assert failed(verdict(written(*kept))) == {MISSING}


def test_a_store_that_lost_everything_is_seen() -> None:
    assert MISSING in failed(verdict({}, sequence=0))
    assert SEQUENCE in failed(verdict({}, sequence=0))


def test_every_part_of_the_commit_in_flight_is_seen_as_half_written() -> None:
    whole = entries_of_commit(INPUT[IN_FLIGHT[1]], IN_FLIGHT[0])
    for family, entries in whole.items():
        for key, value in entries.items():
            state = copy.deepcopy(GOOD)
            state[family][key] = value
            assert failed(verdict(state, sequence=8)) == {HALF}
            assert verdict(state, sequence=8).in_flight == "half-written"


@pytest.mark.parametrize(
    ("family", "key"),
    [
        (PACKAGES, b"0009/ada"),
        (PACKAGES, b"0001/unknown"),
        (PACKAGES, b"no round"),
        (PACKAGES, b"\xff\x00"),
        (FILES, b"0001/ada/ada/other.py"),
        (FILES, b"0001/babbage/x"),
        (FILES, b""),
    ],
)
def test_an_entry_that_nobody_wrote_is_seen(family: str, key: bytes) -> None:
    state = copy.deepcopy(GOOD)
    state[family][key] = b"{}"
    assert not verdict(state).ok


def test_a_sequence_that_went_back_or_ahead_is_seen() -> None:
    assert failed(verdict(GOOD, sequence=6)) == {SEQUENCE}
    assert failed(verdict(GOOD, sequence=8)) == {SEQUENCE}
    again = (*ACKNOWLEDGED[:-1], Acknowledged(2, 1, 3))
    assert SEQUENCE in failed(check_state(INPUT, again, None, GOOD, 3))


def test_no_acknowledged_commit_proves_nothing() -> None:
    assert MISSING in failed(check_state(INPUT, (), None, {}, 0))


# ----------------------------------------------------------------------------------------------------------- input


def test_installed_packages_are_real() -> None:
    packages = installed_packages()
    by_name = {package.name: package for package in packages}
    assert [*by_name] == sorted(by_name) and len(by_name) == len(packages)
    assert by_name["msgspec"].files and by_name["msgspec"].bytes > 0
    assert pystate.cli.demo_inventory is demo_inventory
    few = installed_packages(files_max=1)
    assert few == packages[: len(few)] and sum(len(package.files) for package in few[:-1]) < 1


# ------------------------------------------------------------------------------------------------- the whole of it


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo that does not write for long."""
    monkeypatch.setattr(demo_kill, "WRITE_SECONDS", (0.0, 0.2))


def test_demo_shows_what_survived(quick: None) -> None:
    shown = run("demo", "--durability", "process")
    for words in ("packages read", "commits acknowledged", "survived", ".log", "recovery took", MISSING, HALF):
        assert words in shown.text
    assert "FAILED" not in shown.text
    assert shown.err == ""


def test_demo_as_json_keeps_the_store_and_agrees_with_it(quick: None, tmp_path: Path) -> None:
    keep = tmp_path / "keep it"
    shown = run("demo", "--keep", keep, "--json")
    report = shown.json
    assert report["ok"] is True and all(check["ok"] for check in report["checks"])
    assert report["path"] == str(keep)
    assert report["acknowledged"]["commits"] >= demo_kill.COMMITS_MIN
    assert report["survived"]["commits"] - report["acknowledged"]["commits"] in (0, 1)
    assert f"pystate stat '{keep}'" in shown.err
    with pystate.open(str(keep), read_only=True) as store:
        assert len(store.family(PACKAGES)) == report["survived"]["commits"]
        assert len(store.family(PACKAGES)) + len(store.family(FILES)) == report["survived"]["entries"]
        assert store.sequence == report["survived"]["sequence"]
    for line in shown.err.splitlines()[1:]:
        command = line.strip().replace(f"'{keep}'", "KEEP").split()
        assert run(*(str(keep) if word == "KEEP" else word for word in command[1:])).out


def test_demo_refuses_a_directory_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert "not empty" in run("demo", "--keep", tmp_path, code=2).err
    assert "not a directory" in run("demo", "--keep", tmp_path / "mine.txt", code=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


LIAR = """
import os, sys, time
import msgspec, pystate
from pystate.cli.demo_inventory import FAMILIES, Package, entries_of_commit
packages = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[Package, ...])
with pystate.open(sys.argv[1], durability="process") as store:
    for name in FAMILIES:
        store.create_family(name)
    for number in range(10**9):
        round_number, index = divmod(number, len(packages))
        os.write(1, f"begin {round_number + 1} {index}\\n".encode())
        sequence = number + 3
        if number != 7:  # one commit is reported and never made
            with store.begin() as txn:
                for family, entries in entries_of_commit(packages[index], round_number + 1).items():
                    for key, value in entries.items():
                        txn.put(family, key, value)
        os.write(1, f"done {round_number + 1} {index} {sequence}\\n".encode())
"""


def test_demo_fails_where_an_acknowledged_commit_is_missing(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pystate.cli.demo.writer_command", lambda: [sys.executable, "-c", LIAR])
    shown = run("demo", "--keep", tmp_path / "keep", code=1)
    assert "FAILED" in shown.text
    assert "the store is left in" in shown.err


def test_demo_fails_where_the_writer_ends_by_itself(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pystate.cli.demo.writer_command", lambda: [sys.executable, "-c", "raise SystemExit(3)"])
    shown = run("demo", code=1)
    assert shown.out == b"" and "exit status 3" in shown.err
    program = LIAR.replace("10**9", "5").replace("number != 7", "True")
    report = run_demo(str(tmp_path / "store"), writer=[sys.executable, "-c", program])
    assert [check.name for check in report.checks if not check.ok] == ["the writer was alive until it was killed"]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupted_demo_ends_its_writer_and_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pystate", "demo"],
        env=environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/*.log")):  # the writer has begun
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)  # also ends only when nobody else holds the pipes
    assert (process.returncode, out) == (130, b"") and b"interrupted" in err and b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_demo_without_packages_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pystate.cli.demo.installed_packages", lambda: ())
    assert "no installed packages" in run("demo", code=1).err
