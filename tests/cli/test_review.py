"""``pystate review``: what it lists, what it changes, and what it leaves alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import pystate
from pystate.review import OperationAttempt, Outcome, ReviewStore
from pystate.review.operation_attempt import FAMILY
from tests.cli.running import run, run_process
from tests.review.attempts import CORE, HOST, ONB, OWING, PIG, L, T, at, attempts_of, changed, keys, overwrite

NOW = "2023-11-14T23:16:40Z"
"""The deadline of `ONB`, in words."""


@pytest.fixture
def manager(tmp_path: Path) -> Path:
    """A data directory with some attempts."""
    path = tmp_path / "manager"
    with ReviewStore.open(path, tmp_path / "backups") as review:
        for attempt in (
            ONB("onboard"),
            CORE("core", backup_id=7, pre_update_version="0.46.0"),
            L("live", HOST, PIG, 2),
            L("owing", cleanup_state=OWING),
            T("old-1", 1000),
            T("old-2", 2000),
            T("old-3", 3000, cleanup_state=OWING),
        ):
            review.operation_attempts.upsert(attempt)
    return path


def ledger(manager: Path) -> list[OperationAttempt]:
    """The attempts, as they are."""
    with pystate.open(str(manager / "states.db"), read_only=True) as store:
        return list(attempts_of(store).iter())


def files(path: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


# ------------------------------------------------------------------------------------------------------- the store


@pytest.mark.parametrize("path", ["manager", "manager/states.db", "manager/"])
def test_the_data_directory_and_its_store_are_both_taken(manager: Path, path: str) -> None:
    assert len(run("review", "list", manager.parent / path, "--json").json_lines) == 7
    assert run("review", "sweep", manager.parent / path, "--at", NOW).text == "finished as failed: 1\n"


@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("show", "key"),
        ("sweep", "--at", NOW),
        ("prune", "--at", NOW, "--max-age", "1d", "--keep", "1"),
        ("prune", "--at", NOW, "--max-age", "1d", "--keep", "1", "--dry-run"),
    ],
    ids=" ".join,
)
def test_nothing_is_made_where_there_is_no_ledger(tmp_path: Path, command: tuple[str, ...]) -> None:
    action, *rest = command
    empty, other, odd = tmp_path / "empty", tmp_path / "other", tmp_path / "odd"
    empty.mkdir()
    odd.mkdir()
    (odd / "states.db").write_bytes(b"not a store")
    run("put", other, "k", "v")
    for path in (tmp_path / "absent", empty):
        refused = run("review", action, path, *rest, code=5)
        assert "no store here" in refused.err and "data directory" in refused.err
    refused = run("review", action, other, *rest, code=5)
    assert f"no family {FAMILY!r}, but 'default'" in refused.err
    assert run("review", action, odd, *rest, code=None).code in (5, 6)
    assert not (tmp_path / "absent").exists()
    assert list(empty.iterdir()) == []
    assert pystate.list_families(str(other)) == ("default",)
    assert files(odd) == {"states.db": b"not a store"}


@pytest.mark.parametrize("command", [("list",), ("show", "live")], ids=" ".join)
def test_reading_works_beside_the_manager_and_changes_no_file(manager: Path, command: tuple[str, ...]) -> None:
    action, *rest = command
    before = files(manager)
    with pystate.open(str(manager / "states.db")):
        held = files(manager)
        assert run("review", action, manager, *rest).out
        assert files(manager) == held
    after = files(manager)
    assert run("review", action, manager, *rest).out
    assert files(manager) == after
    assert before.keys() <= after.keys()


@pytest.mark.parametrize("options", [["--dry-run"], []], ids=["dry run", "sweep"])
def test_writing_waits_for_no_manager(manager: Path, options: list[str]) -> None:
    with pystate.open(str(manager / "states.db")):
        refused = run("review", "sweep", manager, "--at", NOW, *options, code=3)
    assert "--lock-timeout" in refused.err and refused.out == b""


# ------------------------------------------------------------------------------------------------------------ list


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["core", "live", "old-1", "old-2", "old-3", "onboard", "owing"]),
        (["--live"], ["core", "live", "onboard", "owing"]),
        (["--owing"], ["old-3", "onboard", "owing"]),
        (["--live", "--owing"], ["onboard", "owing"]),
        (["--expired-at", "1970-01-01T02:30:00Z"], ["old-1", "old-2", "old-3"]),
        (["--expired-at", "1970-01-01T02:29:59.999999Z"], []),
        (["--expired-at", "1970-01-01T03:30:00+01:00"], ["old-1", "old-2", "old-3"]),
        (["--expired-at", NOW], ["old-1", "old-2", "old-3", "onboard"]),
        (["--expired-at", NOW, "--live"], ["onboard"]),
        (["--host", HOST], ["live", "old-1", "old-2", "old-3", "owing"]),
        (["--host", HOST, "--live"], ["live", "owing"]),
        (["--host", "host"], []),
        (["--target", "review"], ["core"]),
        (["--target", ""], ["onboard"]),
        (["--host", HOST, "--target", "review"], []),
    ],
    ids=" ".join,
)
def test_list_filters(manager: Path, options: list[str], expected: list[str]) -> None:
    found = run("review", "list", manager, *options, "--json").json_lines
    assert [document["idempotency_key"] for document in found] == expected
    assert [line.split()[0] for line in run("review", "list", manager, *options).lines[1:]] == expected


def test_list_as_a_table(manager: Path) -> None:
    lines = run("review", "list", manager, "--host", "pending.example").lines
    assert [line.split() for line in lines] == [
        ["key", "host", "target", "instance", "action", "phase", "outcome", "owes", "started", "expires"],
        ["onboard", "pending.example", "-", "onboard", "pending", "live", "pending_identity_teardown"]
        + ["2023-11-14T22:16:40Z", "2023-11-14T23:16:40Z"],
    ]


CORE_DOCUMENT = {
    "idempotency_key": "core",
    "host": "host-b.example",
    "target": "review",
    "instance": None,
    "action": "update",
    "package_digest": "sha256:bbb",
    "resolved_version": "0.47.0",
    "resolved_commit": "deadbeef",
    "phase": "dispatched",
    "cleanup_state": None,
    "started_at": "2023-11-14T22:15:00Z",
    "retry_policy": {"max_attempts": 3, "attempts_made": 1, "backoff_seconds": 60},
    "outcome": None,
    "expires_at": "2023-11-16T02:00:00Z",
    "backup_id": 7,
    "pre_update_version": "0.46.0",
}


def test_list_as_json_has_every_field(manager: Path) -> None:
    assert run("review", "list", manager, "--target", "review", "--json").json_lines == [CORE_DOCUMENT]


@pytest.mark.parametrize("options", [[], ["--json"], ["--live"]], ids=str)
def test_list_tells_of_what_it_cannot_read_and_goes_on(manager: Path, options: list[str]) -> None:
    with pystate.open(str(manager / "states.db")) as store:
        overwrite(store, "live")
    found = run("review", "list", manager, *options, code=1)
    assert "b'live'" in found.err and "Traceback" not in found.err
    assert b"core" in found.out and b"owing" in found.out


def test_list_in_a_process_of_its_own(manager: Path) -> None:
    assert run_process("review", "list", manager, "--json").json_lines[0] == CORE_DOCUMENT


# ------------------------------------------------------------------------------------------------------------ show


def test_show_has_every_field(manager: Path) -> None:
    shown = dict(re.split(r" {2,}", line, maxsplit=1) for line in run("review", "show", manager, "core").lines[1:])
    flat = {name: value for name, value in CORE_DOCUMENT.items() if not isinstance(value, dict)}
    policy = {"max_attempts": 3, "attempts_made": 1, "backoff_seconds": 60}
    assert shown == {name: "-" if value is None else str(value) for name, value in {**flat, **policy}.items()}
    assert run("review", "show", manager, "core", "--json").json == {"found": True, "attempt": CORE_DOCUMENT}


def test_show_of_an_absent_key_is_a_no(manager: Path) -> None:
    for key in ("absent", ""):
        assert run("review", "show", manager, key, code=1) == (1, b"", f"pystate: no operation attempt {key!r}\n")
        assert run("review", "show", manager, key, "--json", code=1).json == {"found": False, "attempt": None}


def test_show_of_what_cannot_be_read_is_damage(manager: Path) -> None:
    with pystate.open(str(manager / "states.db")) as store:
        overwrite(store, "live")
    assert "b'live'" in run("review", "show", manager, "live", code=4).err


def test_show_of_a_key_that_is_no_text_is_wrong_usage(manager: Path) -> None:
    assert "UTF-8" in run("review", "show", manager, os.fsdecode(b"op-\xff"), code=2).err


def test_numbers_are_names_and_keys_are_one_line(tmp_path: Path) -> None:
    with ReviewStore.open(tmp_path / "m", tmp_path / "b") as review:
        review.operation_attempts.upsert(L("two\nlines", HOST, PIG, 1_000_000))
    (line,) = run("review", "list", tmp_path / "m").lines[1:]
    assert "two\\nlines" in line and " 1000000 " in line
    assert "1000000" in run("review", "show", tmp_path / "m", "two\nlines").text


# ----------------------------------------------------------------------------------------------------------- sweep


def test_sweep_finishes_what_is_past_its_deadline(manager: Path) -> None:
    before = ledger(manager)
    assert run("review", "sweep", manager, "--at", NOW) == (0, b"finished as failed: 1\n", "")
    assert ledger(manager) == [
        changed(each, outcome=Outcome.FAILED) if each.idempotency_key == "onboard" else each for each in before
    ]
    assert run("review", "sweep", manager, "--at", NOW).text == "finished as failed: 0\n"


def test_sweep_takes_the_instant_to_the_microsecond(manager: Path) -> None:
    for instant in ("2023-11-14T23:16:39.999999Z", "2023-11-14T23:16:39Z", "2023-11-15T00:16:39.9+01:00"):
        assert run("review", "sweep", manager, "--at", instant).text == "finished as failed: 0\n"
    assert run("review", "sweep", manager, "--at", "2023-11-15T00:16:40+01:00").text == "finished as failed: 1\n"


def test_sweep_as_json(manager: Path) -> None:
    done = run("review", "sweep", manager, "--at", "2023-11-15T00:16:40+01:00", "--json").json
    assert done == {"at": NOW, "dry_run": False, "failed": 1, "sequence": done["sequence"]}
    again = run("review", "sweep", manager, "--at", NOW, "--json", "--durability", "process").json
    assert again == {"at": NOW, "dry_run": False, "failed": 0, "sequence": done["sequence"]}


def test_sweep_that_meets_what_it_cannot_read_changes_nothing(manager: Path) -> None:
    with pystate.open(str(manager / "states.db")) as store:
        overwrite(store, "onboard")
        rows = dict(store.family(FAMILY))
    refused = run("review", "sweep", manager, "--at", "2099-01-01T00:00:00Z", code=4)
    assert "b'onboard'" in refused.err and "nothing was changed" in refused.err and refused.out == b""
    with pystate.open(str(manager / "states.db")) as store:
        assert dict(store.family(FAMILY)) == rows


# ----------------------------------------------------------------------------------------------------------- prune

PRUNE = ("review", "prune")


@pytest.mark.parametrize(
    ("age", "keep", "instant", "gone"),
    [
        ("0s", "0", 10_000, ["old-1", "old-2"]),
        ("8000s", "9", 10_000, ["old-1"]),
        ("7999s", "9", 10_000, ["old-1", "old-2"]),
        ("9000s", "9", 10_000, []),
        ("1d", "2", 10_000, ["old-1"]),
        ("1d", "1", 10_000, ["old-1", "old-2"]),
        ("150m", "9", 10_000, []),
        ("2h", "9", 10_000, ["old-1", "old-2"]),
        ("999999999d", "9", 10_000, []),
    ],
)
def test_prune_deletes_what_is_too_old_or_too_many(
    manager: Path, age: str, keep: str, instant: int, gone: list[str]
) -> None:
    before, moment = ledger(manager), at(instant).isoformat()
    command = (*PRUNE, manager, "--max-age", age, "--keep", keep, "--at", moment)
    assert run(*command, "--dry-run").text == f"would be deleted: {len(gone)}\n"
    assert ledger(manager) == before
    assert run(*command).text == f"deleted: {len(gone)}\n"
    assert keys(ledger(manager)) == [each for each in keys(before) if each not in gone]
    assert run(*command).text == "deleted: 0\n"


def test_prune_as_json(manager: Path) -> None:
    done = run(*PRUNE, manager, "--max-age", "36h", "--keep", "1", "--at", NOW, "--json").json
    assert done == {
        "at": NOW,
        "max_age_seconds": 129_600,
        "keep": 1,
        "dry_run": False,
        "deleted": 2,
        "sequence": done["sequence"],
    }


def test_prune_that_meets_what_it_cannot_read_changes_nothing(manager: Path) -> None:
    with pystate.open(str(manager / "states.db")) as store:
        overwrite(store, "old-2")
        rows = dict(store.family(FAMILY))
    for options in ([], ["--dry-run"]):
        refused = run(*PRUNE, manager, "--max-age", "0s", "--keep", "0", "--at", NOW, *options, code=4)
        assert "b'old-2'" in refused.err and "nothing was changed" in refused.err
    with pystate.open(str(manager / "states.db")) as store:
        assert dict(store.family(FAMILY)) == rows


@pytest.mark.parametrize(
    "command",
    [("sweep", "--at", NOW), ("prune", "--at", NOW, "--max-age", "0s", "--keep", "0")],
    ids=["sweep", "prune"],
)
def test_dry_run_counts_and_commits_nothing(manager: Path, command: tuple[str, ...]) -> None:
    action, *rest = command
    with pystate.open(str(manager / "states.db")) as store:
        rows, sequence = dict(store.family(FAMILY)), store.sequence
    dry = run("review", action, manager, *rest, "--dry-run", "--json").json
    with pystate.open(str(manager / "states.db")) as store:
        assert (dict(store.family(FAMILY)), store.sequence) == (rows, sequence)
    assert dry["dry_run"] is True and dry["sequence"] == sequence
    done = run("review", action, manager, *rest, "--json").json
    assert {**done, "dry_run": True, "sequence": sequence} == dry
    assert done["sequence"] == sequence + 1


# ------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "instant",
    [
        "", "now", "1701000000", "2026-11-30", "2026-11-30T12:00:00", "2026-11-30 12:00:00Z", "20261130T120000Z",
        "2026-11-30T12:00Z", "2026-11-31T12:00:00Z", "2026-11-30T25:00:00Z", "2026-11-30T12:00:00.1234567Z",
        "2026-11-30T12:00:00z",
    ],
)  # fmt: skip
def test_instants_are_whole_and_have_an_offset(manager: Path, instant: str) -> None:
    before = ledger(manager)
    for command in (("sweep", manager, "--at"), ("list", manager, "--expired-at")):
        assert "2026-11-30T12:00:00Z" in run("review", *command, instant, code=2).err
    assert ledger(manager) == before


@pytest.mark.parametrize("age", ["", "30", "d", "-1d", "1.5d", "1w", "1d12h", "1 d", "1D", "9999999999d", "٣d"])
def test_ages_are_a_number_and_a_unit(manager: Path, age: str) -> None:
    refused = run(*PRUNE, manager, "--at", NOW, "--keep", "0", f"--max-age={age}", code=2)
    assert "30d, 12h, 90m or 45s" in refused.err
    assert len(ledger(manager)) == 7


@pytest.mark.parametrize("keep", ["-1", "1.5", "all", ""])
def test_keep_is_a_whole_number(manager: Path, keep: str) -> None:
    assert "whole number" in run(*PRUNE, manager, "--at", NOW, "--max-age", "1d", f"--keep={keep}", code=2).err


@pytest.mark.parametrize(
    "command",
    [
        ("sweep",),
        ("prune", "--at", NOW, "--keep", "1"),
        ("prune", "--at", NOW, "--max-age", "1d"),
        ("prune", "--max-age", "1d", "--keep", "1"),
        ("show",),
        (),
    ],
    ids=str,
)
def test_what_must_be_given_must_be_given(manager: Path, command: tuple[str, ...]) -> None:
    """Nothing has a default that would delete or finish something, and no clock is read."""
    before = ledger(manager)
    action, rest = command[:1], command[1:]
    assert "required" in run("review", *action, *([manager] if action else []), *rest, code=2).err
    assert ledger(manager) == before
