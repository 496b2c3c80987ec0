"""The fuzzers themselves: each covers something, catches an engine broken on purpose, and replays what it finds.

The lines in ``fuzz/corpus`` are played here, too. The long runs are made by hand, as ``python -m fuzz.NAME``.
"""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fuzz import _killed, _model, kill
from fuzz._harness import Coverage, Play, ViolationError, main, run
from fuzz.bytes import BytesRandom
from pystate.engine import commit, mapping, snapshot_format
from pystate.engine.log_writer import LogWriter

ROOT = Path(__file__).parents[1]
NAMES = ("crash", "faults", "model", "bytes", "threads", "kill", "differential")
CASES = {"crash": 2, "faults": 8, "model": 4, "bytes": 40, "threads": 3, "kill": 2, "differential": 2}
"""How many cases are played here."""
MUST_COVER = {
    "crash": {"states", "operations"},
    "faults": {"states", "faults", "operations"},
    "model": {"operations"},
    "bytes": {"flip", "checksums put right"},
    "threads": {"orders", "steps"},
    "kill": {"kills", "acknowledged commits"},
    "differential": {"operations"},
}


def fuzzer(name: str) -> ModuleType:
    if name == "differential":
        pytest.importorskip("rocksdict")
    return importlib.import_module(f"fuzz.{name}")


def play_of(name: str) -> Play:
    play: Play = fuzzer(name).play
    return play


def corpus(name: str) -> list[str]:
    lines = (ROOT / "fuzz" / "corpus" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_fuzzer_is_tested_and_has_a_corpus() -> None:
    modules = {path.stem for path in (ROOT / "fuzz").glob("*.py") if not path.stem.startswith("_")}
    assert modules == set(NAMES) == {path.stem for path in (ROOT / "fuzz" / "corpus").iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_short_run_covers_something_and_finds_nothing(name: str) -> None:
    report = run(name, play_of(name), seed="1", cases=CASES[name])
    assert report.problem is None, str(report)
    assert report.coverage.counts["cases"] == CASES[name]
    assert {kind for kind in MUST_COVER[name] if not report.coverage.counts[kind]} == set()
    assert len(report.coverage.outcomes) >= 2


@pytest.mark.parametrize(("name", "line"), [(name, line) for name in NAMES for line in corpus(name)], ids=str)
def test_line_of_the_corpus_finds_nothing_any_more(name: str, line: str) -> None:
    play_of(name)(line, Coverage())


@pytest.mark.parametrize("name", ["crash", "faults", "model", "bytes", "threads"])
def test_same_seed_tries_the_same(name: str) -> None:
    play = play_of(name)
    first, second = (run(name, play, seed="3", cases=2).coverage for _ in range(2))
    assert first == second


# ---- engines that are broken on purpose ------------------------------------------------------------------------------


def no_sync(self: LogWriter) -> None:
    """Says that everything is durable."""
    self.durable = self.sequence


def deaf_sync(self: LogWriter) -> None:
    """Believes a sync that has failed."""
    if self.durable != self.sequence:
        try:
            (self._file or self.open()).sync()
        except OSError:
            pass
        self.durable = self.sequence


def no_check(*_: object) -> None:
    """Finds nothing wrong."""


def no_block_checksum(
    path: str, offset: int, what: str, data: object, checksum: int, *, seed: int = 0
) -> None:  # everything passes
    """Believes every byte."""


def prefix_end_too_low(prefix: bytes) -> bytes | None:
    """Leaves out the keys that go on with 0xff."""
    return prefix + b"\xff" if prefix else None


LATE_ACKNOWLEDGEMENT = """
import sys
from pystate.engine.log_writer import LogWriter
append, held = LogWriter.append, [b""]
def late(self, frames, sequence):
    before, held[0] = held[0], frames
    if before:
        append(self, before, sequence - 1)
    self.sequence = sequence
LogWriter.append = late
from fuzz._killed import main
main(sys.argv[1], "process", int(sys.argv[3]), 1 << 30)
"""
"""A process whose engine writes each commit only with the next one."""


def break_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "CHILD", (sys.executable, "-c", LATE_ACKNOWLEDGEMENT))


BROKEN: dict[str, tuple[int, Callable[[pytest.MonkeyPatch], None]]] = {
    "crash": (20, lambda patch: patch.setattr(LogWriter, "sync", no_sync)),
    "faults": (300, lambda patch: patch.setattr(LogWriter, "sync", deaf_sync)),
    "model": (60, lambda patch: patch.setattr(commit, "check_reads", no_check)),
    "bytes": (400, lambda patch: patch.setattr(snapshot_format, "_check", no_block_checksum)),
    "threads": (10, lambda patch: patch.setattr(commit, "check_reads", no_check)),
    "kill": (5, break_kill),
    "differential": (30, lambda patch: patch.setattr(mapping, "prefix_end", prefix_end_too_low)),
}
"""For each fuzzer: within how many cases it must find the mistake, and the mistake."""


@pytest.mark.parametrize("name", NAMES)
def test_broken_engine_is_caught_with_a_line_that_replays_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play = play_of(name)
    cases, break_engine = BROKEN[name]
    with monkeypatch.context() as patch:
        break_engine(patch)
        report = run(name, play, seed="1", cases=cases)
        assert report.line is not None, str(report)
        assert f'python -m fuzz.{name} --replay "{report.line}"' in str(report)
        for _ in range(20 if name == "kill" else 1):  # where a real process is when it is killed is chance
            again = run(name, play, line=report.line)
            if again.problem is not None:
                break
        assert type(again.problem) is type(report.problem), str(again)
        assert again.coverage.counts["cases"] == 1
    whole = report.line.partition(" :: ")[0]  # a state of an engine that syncs less need not exist in a sound one
    assert run(name, play, line=whole).problem is None


# ---- what they share -------------------------------------------------------------------------------------------------


def fails_in_the_third(line: str, coverage: Coverage) -> None:
    coverage.saw(line)
    if line.endswith(":2"):
        raise ViolationError("wrong", f"{line} exactly here")
    if line.endswith(" exactly here"):
        raise ValueError("wrong again")


def test_run_ends_with_the_first_violation_and_the_most_exact_line() -> None:
    report = run("some", fails_in_the_third, seed="7")
    assert list(report.coverage.outcomes) == ["7:0", "7:1", "7:2"]
    assert report.line == "7:2 exactly here"
    assert str(report).endswith('to see it again: python -m fuzz.some --replay "7:2 exactly here"')


def test_run_ends_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100))
    monkeypatch.setattr("fuzz._harness.time.monotonic", lambda: float(next(times)))
    report = run("some", lambda line, coverage: coverage.saw(line), seed="7", seconds=4.0)
    assert report.coverage.counts["cases"] == 3


def test_command_line_prints_what_was_covered_and_exits_with_1_after_a_violation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main("some", lambda line, coverage: None, ["--seconds", "0.01", "--seed", "5"]) == 0
    assert "no violation" in capsys.readouterr().out
    assert main("some", fails_in_the_third, ["--seconds", "5", "--seed", "5"]) == 1
    printed = capsys.readouterr().out
    assert "3 cases" in printed and "3 distinct outcomes" in printed and "wrong" in printed
    assert main("some", fails_in_the_third, ["--replay", "5:2 exactly here"]) == 1
    assert "ValueError: wrong again" in capsys.readouterr().out


def test_mode_stands_before_the_lines() -> None:
    seen: list[str] = []
    main("some", lambda line, coverage: seen.append(line), ["--seconds", "0.01", "--loud"], modes=["loud", "quiet"])
    assert seen[0] == "loud:0:0"


@pytest.mark.parametrize("name", ["bytes", "differential"])
def test_fuzzer_runs_as_a_module(name: str) -> None:
    command = [sys.executable, "-m", f"fuzz.{name}", "--seconds", "0.2", "--seed", "1"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no violation" in ran.stdout or ran.stdout == "rocksdict is not installed\n"


def test_differential_without_rocksdict_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module("fuzz.differential")
    monkeypatch.setattr(module, "rocksdict", None)
    assert module._main() == 0
    assert capsys.readouterr().out == "rocksdict is not installed\n"


def test_draws_from_bytes_end_and_are_the_same_for_the_same_bytes() -> None:
    def draws(data: bytes) -> list[object]:
        source = BytesRandom(data)
        return [
            source.randrange(1000),
            source.choice("abc"),
            source.random(),
            source.randbytes(3),
            source.randint(5, 9),
        ]

    assert draws(b"some bytes that mean nothing") == draws(b"some bytes that mean nothing")
    assert draws(b"") == [0, "a", 0.0, b"\0\0\0", 5]
    assert draws(b"\x01" * 40) != draws(b"")


def test_scan_of_a_dict_is_what_its_arguments_say() -> None:
    entries = {b"a": b"1", b"ab": b"2", b"b": b"3", b"c": b"4"}
    scan = _model.Scan(b"a", b"c", None, reverse=True, limit=2)
    assert _model.scanned(entries, scan) == [(b"b", b"3"), (b"ab", b"2")]
    assert _model.scanned(entries, scan._replace(prefix=b"a")) == [(b"ab", b"2"), (b"a", b"1")]
    assert all(len(_model.random_key(random.Random(seed))) <= _model.KEY_BYTES for seed in range(20))


def test_state_after_so_many_commits_keeps_the_newest() -> None:
    assert _killed.state_after(3, 0) == {"last": {}, "left": {}, "right": {}}
    state = _killed.state_after(3, 50)
    assert state["last"] == {b"3": b"50"}
    assert (len(state["left"]), len(state["right"])) == (_killed.KEPT, _killed.KEPT // 2)
