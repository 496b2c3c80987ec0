"""`dump` and `load`: nothing is lost, nothing is cut off unseen."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pystate
from pystate.cli import transfer
from pystate.cli.bytes_text import format_bytes, parse_bytes
from tests.cli.running import run

State = dict[str, dict[bytes, bytes]]


def make(path: Path, state: State) -> None:
    with pystate.open(str(path)) as store:
        for name, entries in state.items():
            family = store.family(name) if name in store.families else store.create_family(name)
            family.update(entries)


def read(path: Path) -> State:
    with pystate.open(str(path), read_only=True) as store:
        return {name: dict(store.family(name).items()) for name in store.families}


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=10)


@given(
    st.dictionaries(
        NAMES, st.dictionaries(st.binary(max_size=8), st.binary(max_size=50), max_size=5), min_size=1, max_size=4
    )
)
@settings(max_examples=25)
def test_a_dump_loads_to_the_same_state(state: State) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, copy = Path(directory) / "source", Path(directory) / "copy"
        make(source, state)
        run("load", copy, stdin=run("dump", source).out)
        assert read(copy) == read(source) == {"default": {}, **state}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with three families, one of them empty."""
    path = tmp_path / "store"
    make(path, {"default": {b"a": b"1"}, "empty": {}, "users": {b"ada": b"\x00\xff", b"alan": b"turing"}})
    return path


def test_dump_is_json_lines_with_a_beginning_and_an_end(store: Path) -> None:
    dumped = run("dump", store)
    sequence = pystate.verify(str(store)).sequence
    assert dumped.json_lines == [
        {"pystate_dump": 1, "sequence": sequence, "families": ["default", "empty", "users"], "entries": 3},
        {"family": "default", "key": "a", "value": "1"},
        {"family": "users", "key": "ada", "value": "0x00ff"},
        {"family": "users", "key": "alan", "value": "turing"},
        {"pystate_dump_end": 3},
    ]
    assert dumped.err == ""
    assert run("dump", store, "--json").out == dumped.out


def test_dump_of_some_families(store: Path) -> None:
    header, *entries, end = run("dump", store, "--family", "users", "--family", "empty").json_lines
    assert header["families"] == ["empty", "users"]
    assert {entry["family"] for entry in entries} == {"users"}
    assert end == {"pystate_dump_end": 2}


def test_dump_is_the_state_as_of_one_commit(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run("dump", store).out
    with pystate.open(str(store)) as writer:
        users = writer.family("users")

        def write_meanwhile(data: bytes) -> str:
            users.put(b"late", b"comer")
            return format_bytes(data)

        monkeypatch.setattr("pystate.cli.transfer.format_bytes", write_meanwhile)
        assert run("dump", store).out == before


def test_load_tells_what_it_loaded(store: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump.jsonl"
    dump.write_bytes(run("dump", store).out)
    loaded = run("load", tmp_path / "copy", dump, "--json")
    assert loaded.json["entries"] == 3
    assert loaded.json["families"] == {"default": 1, "empty": 0, "users": 2}
    assert loaded.json["sequence"] == pystate.verify(str(tmp_path / "copy")).sequence
    assert "made a new store" in loaded.err
    shown = run("load", tmp_path / "copy", dump)
    assert ["users", "2"] in [line.split() for line in shown.lines]
    assert shown.err == ""


def test_load_puts_and_removes_nothing(store: Path) -> None:
    run("load", store, stdin=b'{"key":"b","value":"2"}\n{"key":"a","value":"new"}\n')
    assert read(store)["default"] == {b"a": b"new", b"b": b"2"}
    assert len(read(store)["users"]) == 2


def test_load_takes_bare_lines(tmp_path: Path) -> None:
    lines = b'{"key":"a","value":"0xff"}\n\n{"key":"text:0x","value":"","family":"other"}\n{"value":"1","key":"b"}'
    run("load", tmp_path / "store", "--family", "named", stdin=lines)
    assert read(tmp_path / "store") == {
        "default": {},
        "named": {b"a": b"\xff", b"b": b"1"},
        "other": {b"0x": b""},
    }


def test_load_takes_dumps_one_after_the_other(store: Path, tmp_path: Path) -> None:
    dumps = run("dump", store, "--family", "users").out + run("dump", store, "--family", "default").out
    assert run("load", tmp_path / "copy", "--json", stdin=dumps).json["entries"] == 3


def test_load_commits_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "BATCH_ENTRIES", 10)
    lines = b"".join(b'{"key":"%d","value":"v"}\n' % number for number in range(25))
    assert run("load", tmp_path / "a", "--json", stdin=lines).json["commits"] == 3
    monkeypatch.setattr(transfer, "BATCH_BYTES", 4)
    assert run("load", tmp_path / "b", "--json", stdin=lines).json["commits"] > 3
    assert len(read(tmp_path / "b")["default"]) == 25


@pytest.mark.parametrize("kept", range(5))
def test_a_dump_that_was_cut_off_is_seen(store: Path, tmp_path: Path, kept: int) -> None:
    lines = run("dump", store).out.splitlines(keepends=True)
    failed = run("load", tmp_path / "copy", stdin=b"".join(lines[:kept]), code=2 if kept else 0)
    if kept:
        assert failed.out == b"" and "ends before the dump does" in failed.err


def test_a_dump_that_lost_a_line_is_seen(store: Path, tmp_path: Path) -> None:
    lines = run("dump", store).out.splitlines(keepends=True)
    del lines[2]
    assert (
        "says that it has 3 entries, and 2 were read" in run("load", tmp_path / "c", stdin=b"".join(lines), code=2).err
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json", "line 2"),
        (b"[1]", "line 2"),
        (b"{}", "key"),
        (b'{"key":"a"}', "value"),
        (b'{"key":1,"value":"v"}', "str"),
        (b'{"key":"a","value":null}', "str"),
        (b'{"key":"a","value":"v","famly":"x"}', "famly"),
        (b'{"key":"0xz","value":"v"}', "hex digits"),
        (b'{"key":"\xff","value":"v"}', "line 2"),
        (b'{"key":"a","value":"v","family":""}', "line 2"),
        (b'{"key":"' + b"k" * 70_000 + b'","value":"v"}', "line 2"),
        (b'{"pystate_dump":2,"families":[]}', "upgrade pystate"),
        (b'{"pystate_dump_end":7}', "says that it has 7"),
    ],
    ids=range(13),
)
def test_a_wrong_line_is_named_and_the_commits_before_it_stay(
    line: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "BATCH_ENTRIES", 1)
    lines = b'{"key":"first","value":"1"}\n' + line + b'\n{"key":"last","value":"2"}\n'
    failed = run("load", tmp_path / "store", stdin=lines, code=2)
    assert failed.out == b""
    assert "standard input, line 2: " in failed.err and said in failed.err
    assert "1 entries were committed before that and stay" in failed.err
    assert read(tmp_path / "store")["default"] == {b"first": b"1"}


def test_an_open_batch_is_dropped_with_the_line_that_was_wrong(tmp_path: Path) -> None:
    failed = run("load", tmp_path / "store", stdin=b'{"key":"first","value":"1"}\nwrong\n', code=2)
    assert "0 entries were committed" in failed.err
    assert read(tmp_path / "store")["default"] == {}


def test_load_of_a_file_that_is_not_there_makes_no_store(tmp_path: Path) -> None:
    failed = run("load", tmp_path / "store", tmp_path / "nothing.jsonl", code=6)
    assert "nothing.jsonl: No such file" in failed.err
    assert not (tmp_path / "store").exists()
    run("load", tmp_path / "store", "--no-create", stdin=b"", code=5)
    assert not (tmp_path / "store").exists()


def test_interrupting_a_load_says_what_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "BATCH_ENTRIES", 1)

    def interrupt(text: str) -> bytes:
        if text == "b":
            raise KeyboardInterrupt
        return parse_bytes(text)

    monkeypatch.setattr("pystate.cli.transfer.parse_bytes", interrupt)
    lines = b'{"key":"a","value":"1"}\n{"key":"b","value":"2"}\n'
    stopped = run("load", tmp_path / "store", stdin=lines, code=130)
    assert "1 entries were committed" in stopped.err and "interrupted" in stopped.err
    assert read(tmp_path / "store")["default"] == {b"a": b"1"}


def test_a_dump_can_be_read_by_others(store: Path) -> None:
    for line in run("dump", store).lines:
        assert isinstance(json.loads(line), dict)
