"""`verify`, `log` and `salvage`: on sound, torn and damaged stores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pystate
from tests.cli.running import environment, run

WRITE_AND_DIE = """
import os, sys, pystate
store = pystate.open(sys.argv[1])
for number in range(5):
    store.family("default").put(b"%d" % number, b"value" * 20)
os._exit(0)
"""


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A cleanly closed store."""
    path = tmp_path / "sound"
    with pystate.open(str(path)) as store:
        for number in range(5):
            store.family("default").put(b"%d" % number, b"value" * 20)
        store.create_family("users").put(b"ada", b"lovelace")
    return path


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store whose process ended without closing it, with five commits in one log segment."""
    path = tmp_path / "killed"
    subprocess.run([sys.executable, "-c", WRITE_AND_DIE, str(path)], env=environment(), check=True)
    return path


def segment(store: Path) -> Path:
    return max(store.glob("*.log"), key=lambda path: path.stat().st_size)


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)


def frames(store: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = run("log", store, "--json").json_lines
    return found


@pytest.fixture
def damaged(killed: Path) -> Path:
    """A store with a byte flipped in the second commit, with later ones after it."""
    second = frames(killed)[1]
    offset, length = second["offset"], second["length"]
    assert isinstance(offset, int) and isinstance(length, int)
    flip(segment(killed), offset + length - 5)
    return killed


def contents(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.iterdir()}


# ---------------------------------------------------------------------------------------------------------- verify


def test_verify_of_a_sound_store(sound: Path) -> None:
    before = contents(sound)
    shown = run("verify", sound)
    assert ["problems", "0"] in [line.split() for line in shown.lines]
    assert ["users", "1"] in [line.split() for line in shown.lines]
    assert shown.err == ""
    assert contents(sound) == before


def test_verify_as_json_is_the_report(sound: Path) -> None:
    shown = run("verify", sound, "--json").json
    report = pystate.verify(str(sound))
    assert set(shown) == set(report.__struct_fields__)
    assert shown["ok"] is True and shown["clean"] is True and shown["problems"] == []
    assert shown["families"] == {"default": 5, "users": 1}
    assert {file["name"] for file in shown["files"]} == set(contents(sound))


def test_verify_of_a_torn_tail_is_no_damage(killed: Path) -> None:
    with segment(killed).open("ab") as file:
        file.write(b"\x01\x02\x03")
    shown = run("verify", killed, "--json").json
    assert shown["ok"] is True and shown["clean"] is False and shown["torn_bytes"] == 3


def test_verify_of_damage_is_a_no(damaged: Path) -> None:
    before = contents(damaged)
    shown = run("verify", damaged, code=1)
    assert segment(damaged).name in shown.text and "problem" in shown.text
    report = run("verify", damaged, "--json", code=1).json
    assert report["ok"] is False
    assert any(problem["path"].endswith(segment(damaged).name) for problem in report["problems"])
    assert contents(damaged) == before


# ------------------------------------------------------------------------------------------------------------- log


def test_log_shows_one_frame_per_line(killed: Path) -> None:
    shown = run("log", killed)
    heading, *lines = shown.lines
    assert heading.split() == [
        "segment", "offset", "length", "sequence", "watermark", "kind", "operations", "header", "payload", "state",
    ]  # fmt: skip
    expected = list(pystate.read_log(str(killed)))
    assert len(lines) == len(expected) >= 5
    for line, frame in zip(lines, expected, strict=True):
        assert line.split() == [
            frame.segment, str(frame.offset), str(frame.length), str(frame.sequence), str(frame.watermark),
            frame.kind, str(frame.operations), f"{frame.header_checksum:#010x}", f"{frame.payload_checksum:#010x}",
            "ok",
        ]  # fmt: skip
    assert shown.err == ""


def test_log_as_json_lines(killed: Path) -> None:
    expected = list(pystate.read_log(str(killed)))
    found = frames(killed)
    assert [set(frame) for frame in found] == [set(frame.__struct_fields__) for frame in expected]
    assert [frame["sequence"] for frame in found] == [frame.sequence for frame in expected]
    assert all(frame["ok"] is True for frame in found)


def test_log_marks_damage_and_goes_on(damaged: Path) -> None:
    lines = run("log", damaged).lines[1:]
    marked = [line for line in lines if "DAMAGED: " in line]
    assert len(marked) == 1 and marked[0] == lines[1]
    assert len(lines) >= 5
    assert [frame["ok"] for frame in frames(damaged)].count(False) == 1


def test_log_of_a_sound_store_shows_how_it_was_closed(sound: Path) -> None:
    assert [frame["kind"] for frame in frames(sound)][-1] == "close"


# --------------------------------------------------------------------------------------------------------- salvage


def test_salvage_of_a_sound_store_copies_everything(sound: Path, tmp_path: Path) -> None:
    before = contents(sound)
    shown = run("salvage", sound, tmp_path / "copy")
    assert ["users", "1"] in [line.split() for line in shown.lines]
    assert ["entries", "6"] in [line.split() for line in shown.lines]
    assert run("scan", tmp_path / "copy").out == run("scan", sound).out
    assert contents(sound) == before


def test_salvage_of_a_damaged_store_copies_what_is_intact_and_says_so(damaged: Path, tmp_path: Path) -> None:
    before = contents(damaged)
    run("scan", damaged, code=4)
    salvaged = run("salvage", damaged, tmp_path / "copy", "--json", code=1)
    assert salvaged.json["entries"] == 4
    assert salvaged.json["problems"]
    assert "check it before" in salvaged.err
    assert [line.split("\t")[0] for line in run("scan", tmp_path / "copy").lines] == ["0", "2", "3", "4"]
    assert contents(damaged) == before
    assert run("salvage", damaged, tmp_path / "other", code=1).text.count("problem") >= 2


def test_salvage_writes_over_nothing(sound: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    failed = run("salvage", sound, tmp_path / "taken", code=None)
    assert failed.code in (5, 6) and failed.out == b""
    assert contents(tmp_path / "taken") == {"mine.txt": b"mine"}
