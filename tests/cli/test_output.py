"""Standard output and standard error: tables with and without rich, terminals, and outputs that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

import pystate
from pystate.cli.output import plain_table, printable
from pystate.cli.progress import progress
from tests.cli.running import Terminal, environment, run

COLUMNS = (("name", "left"), ("count", "right"))
BOX = "━"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose names and values would upset a careless display."""
    path = tmp_path / "store"
    with pystate.open(str(path)) as made:
        made.family("default").put(b"[bold]k[/bold]", b"[red]v")
        made.create_family("[link]x")
        with made.begin() as txn:
            for number in range(20_000):
                txn.put("[link]x", b"%06d" % number, b"value" * 10)
    return path


@pytest.fixture
def without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra `cli` is not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.delitem(sys.modules, "pystate.cli.with_rich", raising=False)


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)


# ---------------------------------------------------------------------------------------------------------- tables


def test_a_plain_table_is_aligned() -> None:
    assert plain_table(COLUMNS, [["a", "1"], ["longer name", "1,000"]], "title") == (
        "title\nname         count\na                1\nlonger name  1,000\n"
    )
    assert plain_table(COLUMNS, []) == "name  count\n"


def test_unprintable_characters_are_shown_as_escapes() -> None:
    assert printable("größe [x]") == "größe [x]"
    assert printable("a\x1b[2Jb\u202ec\n") == "a\\x1b[2Jb\\u202ec\\n"


def test_off_a_terminal_tables_are_plain_with_rich_too(store: Path) -> None:
    shown = run("stat", store).text
    assert BOX not in shown and "\x1b" not in shown
    assert ["[link]x", "20,000"] in [line.split() for line in shown.splitlines()]


def test_at_a_terminal_rich_draws_tables(store: Path, wide_terminal: None) -> None:
    shown = run("stat", store, terminal=True).text
    assert BOX in shown
    assert "[link]x" in shown and "20,000" in shown


def test_at_a_terminal_without_rich_tables_are_plain(store: Path, wide_terminal: None, without_rich: None) -> None:
    assert BOX not in run("stat", store, terminal=True).text
    assert run("verify", store, terminal=True).out == run("verify", store).out


@pytest.mark.parametrize("command", [["scan"], ["get"], ["dump"], ["log"], ["families"]], ids=" ".join)
def test_lines_are_the_same_at_a_terminal(command: list[str], store: Path, wide_terminal: None) -> None:
    argv = [command[0], str(store), *(["[bold]k[/bold]"] if command == ["get"] else [])]
    assert run(*argv, terminal=True).out == run(*argv).out


@pytest.mark.parametrize("command", ["stat", "verify", "families"])
def test_json_is_the_same_kind_at_a_terminal(command: str, store: Path, wide_terminal: None) -> None:
    assert set(run(command, store, "--json", terminal=True).json) == set(run(command, store, "--json").json)


# -------------------------------------------------------------------------------------------------------- progress


def test_progress_stays_on_standard_error_at_a_terminal(store: Path, wide_terminal: None) -> None:
    dumped = run("dump", store, terminal=True)
    assert dumped.out == run("dump", store).out
    assert "dump" in dumped.err


def test_progress_without_rich(store: Path, tmp_path: Path, wide_terminal: None, without_rich: None) -> None:
    dumped = run("dump", store, terminal=True)
    assert "dump: " in dumped.err and "of 20,001 entries" in dumped.err
    assert dumped.err.endswith("\r"), "the line is cleared"
    (tmp_path / "dump.jsonl").write_bytes(dumped.out)
    loaded = run("load", tmp_path / "copy", tmp_path / "dump.jsonl", "--durability", "process", terminal=True)
    assert "load: " in loaded.err and " bytes" in loaded.err


def test_no_progress_off_a_terminal(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("dump", store).err == ""
    stream = Terminal(terminal=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("x", "things", 3) as shown:
        shown.advance(3)
    assert stream.written() == b""
    monkeypatch.setattr(sys, "stderr", None)
    with progress("x", "things", 3) as shown:
        shown.advance(3)


# ------------------------------------------------------------------------------------------- outputs that fail, signals

posix = pytest.mark.skipif(os.name != "posix", reason="pipes and signals of POSIX")


def start(*argv: str | Path, stdout: int | BinaryIO, stdin: int | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pystate", *map(str, argv)],
        env=environment(),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


@posix
@pytest.mark.parametrize("command", [["scan", "--family", "[link]x"], ["dump"], ["stat"], ["--help"]], ids=" ".join)
def test_a_reader_that_leaves_ends_it_quietly(command: list[str], store: Path) -> None:
    name, *options = command
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = start(name, *([] if name == "--help" else [store]), *options, stdout=writing)
        err = process.communicate(timeout=60)[1]
    finally:
        os.close(writing)
    assert (process.returncode, err) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("command", ["scan", "stat", "families"])
def test_a_full_disk_behind_standard_output_is_an_error(command: str, store: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = start(command, store, stdout=full)
        err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 6
    assert err.startswith("pystate: standard output: No space left") and err.count("\n") == 1


@posix
def test_a_closed_standard_output_is_an_error_only_where_something_is_to_be_written(store: Path) -> None:
    command = f'"{sys.executable}" -m pystate "$@" >&-'
    for argv, code in ((["stat", store], 6), (["put", store, "k", "v"], 0)):
        ran = subprocess.run(
            ["sh", "-c", command, "sh", *map(str, argv)],
            env=environment(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == code, ran.stderr
        assert b"Traceback" not in ran.stderr and b"Exception" not in ran.stderr


@posix
def test_an_interrupted_command_says_so_and_leaves_a_sound_store(tmp_path: Path) -> None:
    process = start("load", tmp_path / "store", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(b"".join(b'{"key":"%d","value":"v"}\n' % number for number in range(1000)))
    process.stdin.flush()
    assert b"made a new store" in process.stderr.readline()  # it is in the load from here on
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"interrupted" in err and b"Traceback" not in err
    assert pystate.verify(str(tmp_path / "store")).ok


@posix
def test_a_full_pipe_loses_nothing(store: Path) -> None:
    for unbuffered in ("", "1"):
        process = subprocess.run(
            [sys.executable, "-m", "pystate", "dump", str(store)],
            env=environment(PYTHONUNBUFFERED=unbuffered),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert process.stdout == run("dump", store).out


@posix
def test_output_is_utf8_whatever_the_locale_says(store: Path) -> None:
    run("put", store, "größe", "日本")
    process = subprocess.run(
        [sys.executable, "-m", "pystate", "get", str(store), "größe"],
        env=environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stdout) == (0, "日本\n".encode())
