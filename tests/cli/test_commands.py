"""Every command that reads or writes entries and families: what it prints, where, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pystate
from pystate.cli.bytes_text import format_bytes
from tests.cli.running import run, run_process

ODD_BYTES = [b"", b"-", b"0x00", b"base64:", b"text:", b"\x00", b"\xff" * 100, b"two\nlines", b" ", "größe".encode()]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with five entries, two of them in the family `users`."""
    path = tmp_path / "store"
    with pystate.open(str(path)) as made:
        default = made.family("default")
        for key, value in [(b"a", b"1"), (b"b", b"\x00\xff"), (b"c", b"two\nlines")]:
            default.put(key, value)
        users = made.create_family("users")
        users.put(b"ada", b"lovelace")
        users.put(b"alan", b"turing")
    return path


def state(path: Path) -> dict[str, dict[bytes, bytes]]:
    with pystate.open(str(path), read_only=True) as store:
        return {name: dict(store.family(name).items()) for name in store.families}


# ------------------------------------------------------------------------------------------------------------- get


def test_get_shows_the_value_as_text(store: Path) -> None:
    assert run("get", store, "a") == (0, b"1\n", "")
    assert run("get", store, "b").out == b"0x00ff\n"
    assert run("get", store, "ada", "--family", "users").out == b"lovelace\n"


def test_get_raw_shows_the_bytes_and_nothing_else(store: Path) -> None:
    assert run("get", store, "c", "--raw").out == b"two\nlines"


def test_get_as_json(store: Path) -> None:
    assert run("get", store, "b", "--json").json == {
        "family": "default",
        "key": "b",
        "found": True,
        "value": "0x00ff",
    }


def test_get_of_an_absent_key_is_a_no(store: Path) -> None:
    absent = run("get", store, "0xff", code=1)
    assert absent.out == b""
    assert absent.err == "pystate: no key 0xff in family 'default'\n"
    assert run("get", store, "0xff", "--raw", code=1).out == b""
    assert run("get", store, "0xff", "--json", code=1).json == {
        "family": "default",
        "key": "0xff",
        "found": False,
        "value": None,
    }


def test_get_takes_raw_or_json_but_not_both(store: Path) -> None:
    assert "not allowed with" in run("get", store, "a", "--raw", "--json", code=2).err


# ------------------------------------------------------------------------------------------------------------- put


def test_put_stores_quietly(store: Path) -> None:
    assert run("put", store, "d", "4") == (0, b"", "")
    assert run("put", store, "grace", "hopper", "--family", "users", "--durability", "process") == (0, b"", "")
    assert state(store)["default"][b"d"] == b"4"
    assert state(store)["users"][b"grace"] == b"hopper"


def test_put_as_json_tells_the_sequence(store: Path) -> None:
    first = run("put", store, "d", "0x0000", "--json").json
    second = run("put", store, "d", "5", "--json").json
    assert first == {"family": "default", "key": "d", "value_bytes": 2, "sequence": first["sequence"]}
    assert second["sequence"] == first["sequence"] + 1


@pytest.mark.parametrize("data", ODD_BYTES, ids=format_bytes)
def test_put_and_get_keep_every_byte(store: Path, data: bytes) -> None:
    run("put", store, format_bytes(data), format_bytes(data))
    assert state(store)["default"][data] == data
    assert run("get", store, format_bytes(data)).text == format_bytes(data) + "\n"
    assert run("get", store, format_bytes(data), "--raw").out == data


@pytest.mark.parametrize("data", ODD_BYTES, ids=format_bytes)
def test_put_reads_the_bytes_of_a_value_from_standard_input_as_they_are(store: Path, data: bytes) -> None:
    run("put", store, "k", "-", stdin=data)
    assert state(store)["default"][b"k"] == data


def test_put_makes_a_store_and_says_so(tmp_path: Path) -> None:
    made = run("put", tmp_path / "new", "k", "v")
    assert made.out == b""
    assert made.err == f"pystate: made a new store: {tmp_path / 'new'}\n"
    assert run("put", tmp_path / "new", "k", "w").err == ""


def test_put_makes_no_store_where_it_must_not(tmp_path: Path) -> None:
    refused = run("put", tmp_path / "new", "k", "v", "--no-create", code=5)
    assert "no store here" in refused.err
    assert not (tmp_path / "new").exists()


def test_put_of_too_large_a_key_is_refused(store: Path) -> None:
    before = state(store)
    refused = run("put", store, "k" * 70_000, "v", code=2)
    assert "nothing was written" in refused.err and refused.out == b""
    assert state(store) == before


@pytest.mark.parametrize("argument", ["0x0", "base64:?"])
def test_a_key_or_value_in_wrong_notation_is_wrong_usage(store: Path, argument: str) -> None:
    assert f"text:{argument}" in run("put", store, argument, "v", code=2).err
    assert f"text:{argument}" in run("put", store, "k", argument, code=2).err
    assert f"text:{argument}" in run("scan", store, "--prefix", argument, code=2).err


# ---------------------------------------------------------------------------------------------------------- delete


def test_delete_removes_quietly(store: Path) -> None:
    assert run("delete", store, "a") == (0, b"", "")
    assert run("delete", store, "ada", "--family", "users") == (0, b"", "")
    assert state(store) == {"default": {b"b": b"\x00\xff", b"c": b"two\nlines"}, "users": {b"alan": b"turing"}}


def test_delete_of_an_absent_key_is_a_no(store: Path) -> None:
    before = state(store)
    absent = run("delete", store, "zzz", code=1)
    assert (absent.out, absent.err) == (b"", "pystate: no key zzz in family 'default'\n")
    assert state(store) == before


def test_delete_as_json(store: Path) -> None:
    done = run("delete", store, "a", "--json").json
    assert done == {"family": "default", "key": "a", "found": True, "sequence": done["sequence"]}
    again = run("delete", store, "a", "--json", code=1).json
    assert again == {"family": "default", "key": "a", "found": False, "sequence": done["sequence"]}


def test_delete_makes_no_store(tmp_path: Path) -> None:
    run("delete", tmp_path / "new", "k", code=5)
    assert not (tmp_path / "new").exists()


# ------------------------------------------------------------------------------------------------------------ scan


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ([], "abc"),
        (["--start", "b"], "bc"),
        (["--stop", "b"], "a"),
        (["--start", "b", "--stop", "c"], "b"),
        (["--prefix", "c"], "c"),
        (["--prefix", "0x"], "abc"),
        (["--reverse"], "cba"),
        (["--reverse", "--start", "b"], "cb"),
        (["--limit", "2"], "ab"),
        (["--limit", "0"], ""),
        (["--reverse", "--limit", "1"], "c"),
        (["--start", "x"], ""),
    ],
    ids=" ".join,
)
def test_scan_bounds(store: Path, options: list[str], keys: str) -> None:
    assert [line.split("\t")[0] for line in run("scan", store, *options).lines] == list(keys)
    assert [line["key"] for line in run("scan", store, *options, "--json").json_lines] == list(keys)


def test_scan_shows_key_tab_value(store: Path) -> None:
    assert run("scan", store).out == b"a\t1\nb\t0x00ff\nc\t0x74776f0a6c696e6573\n"
    assert run("scan", store, "--family", "users", "--json").out == (
        b'{"key":"ada","value":"lovelace"}\n{"key":"alan","value":"turing"}\n'
    )


@pytest.mark.parametrize("limit", ["-1", "1.5", "many"])
def test_scan_takes_a_whole_number_as_limit(store: Path, limit: str) -> None:
    assert "whole number" in run("scan", store, f"--limit={limit}", code=2).err


# ---------------------------------------------------------------------------------------------------- stat, families


def test_stat_shows_families_and_files(store: Path) -> None:
    shown = run("stat", store)
    assert ["default", "3"] in [line.split() for line in shown.lines]
    assert ["users", "2"] in [line.split() for line in shown.lines]
    assert ["sequence", str(pystate.verify(str(store)).sequence)] in [line.split() for line in shown.lines]
    assert shown.err == ""


def test_stat_as_json_has_every_figure_of_the_store(store: Path) -> None:
    shown = run("stat", store, "--json").json
    with pystate.open(str(store), read_only=True) as opened:
        stats = opened.stats()
    assert set(shown) == set(stats.__struct_fields__)
    assert shown["families"] == {"default": 3, "users": 2}
    assert shown["sequence"] == stats.sequence
    assert shown["read_only"] is True


def test_families_lists_names(store: Path) -> None:
    assert run("families", store) == (0, b"default\nusers\n", "")
    assert run("families", store, "--json").json == {"families": ["default", "users"]}


def test_families_creates_and_drops(store: Path) -> None:
    assert run("families", store, "--create", "jobs") == (0, b"", "")
    assert run("families", store).lines == ["default", "jobs", "users"]
    assert run("families", store, "--drop", "users") == (0, b"", "")
    assert run("families", store).lines == ["default", "jobs"]
    made = run("families", store, "--create", "x", "--json").json
    assert made == {
        "created": "x",
        "dropped": None,
        "families": ["default", "jobs", "x"],
        "sequence": made["sequence"],
    }


def test_families_create_makes_a_store_and_drop_does_not(tmp_path: Path) -> None:
    run("families", tmp_path / "new", "--drop", "x", code=5)
    assert not (tmp_path / "new").exists()
    assert "made a new store" in run("families", tmp_path / "new", "--create", "x").err
    assert run("families", tmp_path / "new").lines == ["default", "x"]


def test_families_refuses_what_cannot_be(store: Path) -> None:
    assert "exists already" in run("families", store, "--create", "users", code=5).err
    assert "no family 'nope'" in run("families", store, "--drop", "nope", code=5).err
    assert "nothing was changed" in run("families", store, "--create", "", code=2).err
    assert "nothing was changed" in run("families", store, "--create", "a\nb", code=2).err
    assert "nothing was changed" in run("families", store, "--drop", "default", code=2).err
    assert "not allowed with" in run("families", store, "--create", "a", "--drop", "b", code=2).err
    assert run("families", store).lines == ["default", "users"]


def test_a_name_that_could_mislead_is_shown_with_escapes(store: Path) -> None:
    run("families", store, "--create", "a\u202eb")
    assert "a\\u202eb" in run("families", store).lines
    assert "a\u202eb" in run("families", store, "--json").json["families"]


# ---------------------------------------------------------------------------------------------------------- errors

READING = [
    ["get", "STORE", "k"],
    ["scan", "STORE"],
    ["stat", "STORE"],
    ["families", "STORE"],
    ["dump", "STORE"],
    ["verify", "STORE"],
    ["log", "STORE"],
]
WRITING = [
    ["put", "STORE", "k", "v"],
    ["delete", "STORE", "k"],
    ["families", "STORE", "--create", "x"],
    ["families", "STORE", "--drop", "x"],
    ["load", "STORE"],
]


def at(command: list[str], path: Path) -> list[str]:
    return [str(path) if word == "STORE" else word for word in command]


@pytest.mark.parametrize("command", [*READING, ["salvage", "STORE", "DESTINATION"]], ids=" ".join)
def test_no_store_is_named_and_nothing_is_made(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = run(*at(command, tmp_path / "nothing here"), code=5)
    assert failed.out == b""
    assert "no store here" in failed.err and f"pystate put '{tmp_path / 'nothing here'}'" in failed.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [*READING, *WRITING, ["salvage", "STORE", "DESTINATION"]], ids=" ".join)
def test_something_else_in_place_of_the_store_is_left_alone(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file"
    file.write_text("mine")
    directory = tmp_path / "directory"
    directory.mkdir()
    (directory / "notes.txt").write_text("mine")
    for path in (file, directory):
        failed = run(*at(command, path), code=5)
        assert failed.out == b"" and ("not a store" in failed.err or "no store here" in failed.err)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "directory"}
    assert file.read_text() == (directory / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("command", ["get STORE k", "scan STORE", "put STORE k v", "delete STORE k", "dump STORE"])
def test_an_unknown_family_is_named_with_those_that_exist(command: str, store: Path) -> None:
    failed = run(*at(command.split(), store), "--family", "user", code=5)
    assert failed.out == b""
    assert "no family 'user'" in failed.err and "'users'" in failed.err and "--create user" in failed.err


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_reading_works_beside_a_writer(command: list[str], store: Path) -> None:
    with pystate.open(str(store)) as writer:
        writer.family("default").put(b"k", b"v")
        run(*at(command, store))


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_writing_beside_a_writer_is_refused(command: list[str], store: Path) -> None:
    with pystate.open(str(store)) as writer:
        before = writer.sequence
        locked = run(*at(command, store), "--lock-timeout", "0.01", code=3)
        assert writer.sequence == before
    assert locked.out == b"" and "--lock-timeout" in locked.err


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_a_lock_timeout_is_a_number_of_seconds(store: Path, seconds: str) -> None:
    assert "seconds" in run("put", store, "k", "v", f"--lock-timeout={seconds}", code=2).err


def test_a_newer_format_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, **_: object) -> None:
        raise pystate.UnsupportedFormatError(path, found=9, supported=1)

    monkeypatch.setattr(pystate, "open", refuse)
    assert "upgrade pystate" in run("get", store, "k", code=5).err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (pystate.DiskFullError("x.log"), 6, "make room"),
        (pystate.StoreFailedError("x", "fdatasync: EIO", unknown=True), 6, "outcome of the commit is unknown"),
        (pystate.StoreFailedError("x", "fdatasync: EIO", unknown=False), 6, "nothing of the commit was written"),
        (PermissionError(13, "Permission denied", "x/LOCK"), 6, "x/LOCK: Permission denied"),
        (OSError(5, "Input/output error"), 6, "Input/output error"),
        (pystate.LockedError("x", pid=7, host="h"), 3, "process 7 on host h"),
        (pystate.CorruptionError("x.log", offset=5, expected="a frame", found="zeros"), 4, "offset 5"),
        (
            pystate.CorruptionError("x.log", expected="a file", found="nothing", sequence=9),
            4,
            "intact commit before it is 9",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=[
        "full",
        "failed, unknown",
        "failed, refused",
        "no permission",
        "input/output",
        "locked",
        "damage at an offset",
        "damage of a file",
        "interrupted",
    ],
)
def test_each_error_has_its_exit_code(
    error: BaseException, code: int, said: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, **_: object) -> None:
        raise error

    monkeypatch.setattr(pystate, "open", fail)
    failed = run("put", store, "k", "v", code=code)
    assert failed.out == b"" and said in failed.err and failed.err.startswith("pystate: ")


def test_damage_is_its_own_exit_code_and_names_the_way_out(store: Path) -> None:
    damage(store)
    failed = run("get", store, "a", code=4)
    assert failed.out == b""
    assert f"pystate verify {store}" in failed.err and f"pystate salvage {store}" in failed.err


def damage(store: Path) -> None:
    """Flip a byte in the middle of the largest file of a cleanly closed store."""
    path = max((file for file in store.iterdir() if file.name != "LOCK"), key=lambda file: file.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("argv", [[], ["nothing"], ["get"], ["get", "x", "k", "--fam", "x"]], ids=" ".join)
def test_wrong_arguments_show_the_usage_on_standard_error(argv: list[str]) -> None:
    wrong = run(*argv, code=2)
    assert wrong.out == b"" and "usage: pystate" in wrong.err


def test_help_and_version_are_results() -> None:
    assert run("--help").text.startswith("usage: pystate")
    assert run("get", "--help").text.startswith("usage: pystate get")
    assert run("--version").text.startswith("pystate ")
    assert run("--help").text.isascii(), "so that it can be shown whatever the encoding is"


def test_it_runs_as_a_module(store: Path) -> None:
    assert run_process("get", store, "a") == (0, b"1\n", "")
    assert run_process("get", store, "nope").code == 1
    assert json.loads(run_process("families", store, "--json").out) == {"families": ["default", "users"]}
