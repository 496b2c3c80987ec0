"""``pystate effects``: what it lists and shows, what operators decide with it, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import pystate
from pystate.cli import effects_finding
from pystate.cli.ledger_arguments import STATUSES as OFFERED
from pystate.effects import (
    EffectKey,
    EffectKind,
    EffectName,
    EffectRecord,
    EffectStatus,
    EffectStore,
    ErrorRecord,
    ExecutionContract,
    FailureClass,
    ListQuery,
    LogicalKey,
    NewEffect,
    Transition,
    event_to_json,
    record_to_json,
)
from tests.cli.running import Result, run, run_process
from tests.effects.samples import TTL, T
from tests.effects.stores import check_all, overwrite, record_effect, request

S, Tr = EffectStatus, Transition
NOW = "2023-11-14T22:15:00Z"
"""T(100)."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with an effect in each status, updated at T(1), in the order of statuses; its keys are the statuses."""
    with EffectStore.open(tmp_path / "store") as effects:
        for status in S:
            record_effect(effects, status, status)
    return tmp_path / "store"


def everything(path: Path) -> dict[str, EffectRecord]:
    """The effects as they are, by their logical key."""
    with EffectStore.open(path, read_only=True) as effects:
        return {str(record.key.key): record for record, _ in check_all(effects)}


def effects_run(path: Path, action: str, *rest: str | Path, code: int | None = 0) -> Result:
    return run("effects", action, path, *rest, code=code)


def decide(path: Path, action: str, key: str, *rest: str, code: int | None = 0) -> Result:
    options = ("--actor", "ann", "--note", "checked", "--at", NOW)
    return effects_run(path, action, f"payment.charge:{key}", *rest, *options, code=code)


# ------------------------------------------------------------------------------------------------------- the store


COMMANDS: list[tuple[str, ...]] = [
    ("list",),
    ("show", "a:b"),
    ("events", "a:b"),
    ("pending",),
    ("resolve", "a:b", "--retry", "--actor", "ann", "--note", "x"),
    ("approve", "a:b", "--actor", "ann", "--note", "x"),
    ("deny", "a:b", "--actor", "ann", "--note", "x"),
    ("recover",),
    ("prune", "--settled", "1d"),
]
READING = COMMANDS[:4]
WRITING = COMMANDS[4:]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_nothing_is_made_where_there_are_no_effects(tmp_path: Path, command: tuple[str, ...]) -> None:
    run("put", tmp_path / "other", "k", "v")
    refused = effects_run(tmp_path / "other", *command, code=5)
    assert "no effects here" in refused.err and "no family 'effects', but 'default'" in refused.err
    assert pystate.list_families(tmp_path / "other") == ("default",)
    assert "no store here" in effects_run(tmp_path / "absent", *command, code=5).err
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_reading_works_beside_a_writer(path: Path, command: tuple[str, ...]) -> None:
    with EffectStore.open(path):
        effects_run(path, *command, code=None if command[1:] else 0)


@pytest.mark.parametrize("command", WRITING, ids=lambda command: command[0])
def test_writing_waits_for_no_writer(path: Path, command: tuple[str, ...]) -> None:
    before = everything(path)
    with EffectStore.open(path):
        refused = effects_run(path, *command, code=3)
    assert "--lock-timeout" in refused.err and refused.out == b""
    assert everything(path) == before


# ------------------------------------------------------------------------------------------------- list and pending


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], list(S)),
        (["--status", "failed"], [S.FAILED]),
        (["--status", "failed", "--status", "pending"], [S.PENDING, S.FAILED]),
        (["--limit", "2"], [S.PENDING, S.AWAITING_APPROVAL]),
        (["--limit", "0"], []),
        (["--name", "payment.charge", "--limit", "1"], [S.PENDING]),
        (["--name", "payment"], []),
    ],
    ids=" ".join,
)
def test_list_filters(path: Path, options: list[str], expected: list[str]) -> None:
    found = effects_run(path, "list", *options, "--json").json_lines
    assert [document["status"] for document in found] == expected
    assert [line.split()[2] for line in effects_run(path, "list", *options).lines[1:]] == expected


def test_list_goes_on_after_an_id_and_over_its_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pystate.cli import effects as module

    monkeypatch.setattr(module, "_PAGE", 3)
    with EffectStore.open(tmp_path / "store") as effects:
        ids = [record_effect(effects, str(number)).id for number in range(10)]
        other = EffectKey(EffectName("mail.send"), LogicalKey("1"))
        ids.append(effects.insert_or_get(NewEffect.new(other, EffectKind.READ, T(0))).record.id)

    def listed(*options: str) -> list[str]:
        return [document["id"] for document in effects_run(tmp_path / "store", "list", "--json", *options).json_lines]

    assert listed() == ids
    assert listed("--after", ids[6]) == ids[7:]
    assert listed("--after", ids[1].upper(), "--limit", "4") == ids[2:6]
    assert listed("--name", "mail.send") == ids[10:]
    assert "hyphenated UUID" in effects_run(tmp_path / "store", "list", "--after", "x", code=2).err


def test_list_as_a_table(path: Path) -> None:
    lines = effects_run(path, "list", "--status", "unknown", "--status", "committed").lines
    found = everything(path)
    assert [re.split(r" {2,}", line) for line in lines] == [
        ["id", "effect", "status", "attempts", "in doubt", "updated", "error"],
        [found["unknown"].id, "payment.charge:unknown", "unknown", "1", "yes", "2023-11-14T22:13:21Z", "-"],
        [found["committed"].id, "payment.charge:committed", "committed", "1", "no", "2023-11-14T22:13:21Z", "-"],
    ]


def test_list_as_json_has_the_whole_record(path: Path) -> None:
    found = everything(path)
    documents = effects_run(path, "list", "--json").json_lines
    assert documents == [json.loads(json.dumps(record_to_json(record))) for record in found.values()]
    assert run_process("effects", "list", path, "--json").json_lines == documents


def test_what_is_pending_and_what_it_waits_for(path: Path) -> None:
    with EffectStore.open(path) as effects:
        held = effects.list(ListQuery.statuses([S.UNKNOWN]))[0]
        effects.acquire_lease(held.id, "a", T(90), TTL)
        record = effects.list(ListQuery.statuses([S.COMPENSATING]))[0]
        effects.transition(request(record, Tr.SCHEDULE_COMPENSATION_RETRY, 2, next_attempt_at=T(500)))
    expected = {
        "pending": "a worker",
        "awaiting_approval": "an approval",
        "executing": "recovery",
        "verifying": "recovery",
        "needs_intervention": "an operator",
        "compensating": "a worker",
        "compensation_failed": "an operator",
    }
    found = effects_run(path, "pending", "--at", NOW, "--json").json_lines
    assert {document["key"]["key"]: document["waits_for"] for document in found} == expected
    rows = [re.split(r" {2,}", line) for line in effects_run(path, "pending", "--at", NOW).lines[1:]]
    assert {row[2]: row[4] for row in rows} == expected
    assert [row[5] for row in rows if row[2] == "compensating"] == ["2023-11-14T22:21:40Z"]
    later = effects_run(path, "pending", "--at", "2023-11-14T22:15:20Z", "--json").json_lines
    assert {document["status"] for document in later} == {*expected, "unknown"}
    assert len(effects_run(path, "pending", "--json").json_lines) == 8  # now, by the clock: long after


@pytest.mark.parametrize("command", [("list",), ("pending", "--at", NOW)], ids=lambda command: command[0])
def test_lists_tell_of_what_they_cannot_read_and_go_on(path: Path, command: tuple[str, ...]) -> None:
    found = everything(path)
    with EffectStore.open(path) as effects:
        overwrite(effects, found["unknown"].id)
    shown = effects_run(path, *command, "--json", code=1)
    assert "effect record" in shown.err and len(shown.err.splitlines()) == 1
    statuses = {document["status"] for document in shown.json_lines}
    assert "unknown" not in statuses and {"pending", "compensation_failed"} <= statuses


def test_long_errors_and_odd_names_stay_on_their_line(tmp_path: Path) -> None:
    with EffectStore.open(tmp_path / "store") as effects:
        key = EffectKey(EffectName("a\u200bb"), LogicalKey("ü 1"))
        record = effects.insert_or_get(NewEffect.new(key, EffectKind.READ, T(0))).record
        error = ErrorRecord(failure_class=FailureClass.PERMANENT, message="two\nlines " + "x" * 100)
        effects.transition(request(record, Tr.PRECONDITION_REJECTED, 1, error=error))
    (line,) = effects_run(tmp_path / "store", "list").lines[1:]
    assert line.endswith(r"two\nlines " + "x" * 47 + "...") and r"a\u200bb:ü 1" in line


# ------------------------------------------------------------------------------------------------- show and events


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A store with one effect with a story."""
    with EffectStore.open(tmp_path / "store") as effects:
        key = EffectKey(EffectName("payment.charge"), LogicalKey("order:1"))
        new = NewEffect.new(
            key,
            EffectKind.IRREVERSIBLE_WRITE,
            T(0),
            execution_contract=ExecutionContract(max_attempts=5),
            input={"amount": 4200},
            created_by="shop",
        )
        record = effects.insert_or_get(new).record
        lease = effects.acquire_lease(record.id, "w-1", T(0), TTL)
        error = ErrorRecord(failure_class=FailureClass.AMBIGUOUS, message="no answer")
        for step in (
            {"transition": Tr.START_ATTEMPT, "at": 1, "payload": {"worker": "w-1"}, "actor": "shop"},
            {"transition": Tr.OUTCOME_UNKNOWN, "at": 2.5, "error": error, "actor": "shop"},
            {"transition": Tr.ESCALATE, "at": 3, "payload": None},
        ):
            record = effects.transition(request(record, lease=lease, **step))  # type: ignore[arg-type]
        effects.release_lease(lease)
    return tmp_path / "store"


TRAIL = [
    ["#", "at", "transition", "status", "attempt", "actor", "payload"],
    ["1", "2023-11-14T22:13:21Z", "attempt_started", "pending -> executing", "1", "shop", '{"worker":"w-1"}'],
    ["2", "2023-11-14T22:13:22.500000Z", "outcome_unknown", "executing -> unknown", "1", "shop", "-"],
    ["3", "2023-11-14T22:13:23Z", "escalated", "unknown -> needs_intervention", "1", "-", "null"],
]


def cells(lines: list[str]) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in lines]


def test_the_trail_of_an_effect_can_be_read(told: Path) -> None:
    assert cells(effects_run(told, "events", "payment.charge:order:1").lines) == TRAIL


def test_show_has_every_field_and_the_trail(told: Path) -> None:
    (record,) = everything(told).values()
    shown = effects_run(told, "show", record.id).lines
    blank = shown.index("")
    assert cells(shown[blank + 1 :]) == TRAIL
    fields = dict(re.split(r" {2,}", line, maxsplit=1) for line in shown[1:blank])
    assert set(fields) == {*record.__struct_fields__, "name", "idempotency_key"}
    assert fields["status"] == "needs_intervention" and fields["attempt_count"] == "1"
    assert (fields["name"], fields["key"]) == ("payment.charge", "order:1")
    assert fields["idempotency_key"] == record.key.idempotency_key()
    assert fields["input"] == '{"amount":4200}' and fields["output"] == "-" and fields["lease_owner"] == "-"
    assert fields["may_have_applied"] == "yes" and fields["created_at"] == "2023-11-14T22:13:20Z"
    assert json.loads(fields["last_error"]) == {"class": {"class": "ambiguous"}, "message": "no answer"}
    assert json.loads(fields["execution_contract"])["max_attempts"] == 5


def test_show_and_events_as_json(told: Path) -> None:
    with EffectStore.open(told, read_only=True) as effects:
        ((record, trail),) = check_all(effects)
    events = [json.loads(json.dumps(event_to_json(event))) for event in trail]
    assert effects_run(told, "show", record.id, "--json").json == {
        "found": True,
        "effect": json.loads(json.dumps(record_to_json(record))),
        "events": events,
    }
    assert effects_run(told, "events", record.id.upper(), "--json").json_lines == events
    assert events[0]["transition"] == "effect.attempt_started" and events[2]["payload"] is None


def test_what_is_not_there_is_a_no(told: Path) -> None:
    for name in ("payment.charge:order_2", "a:b", "018bcfe5-6800-7000-8000-000000000000"):
        for action in ("show", "events"):
            assert effects_run(told, action, name, code=1) == (1, b"", f"pystate: no effect {name}\n")
        assert effects_run(told, "show", name, "--json", code=1).json == {"found": False, "effect": None, "events": []}
        assert "no effect" in effects_run(told, "approve", name, "--actor", "a", "--note", "", code=1).err


def test_a_name_that_may_mean_two_effects_is_refused(tmp_path: Path) -> None:
    with EffectStore.open(tmp_path / "store") as effects:
        ids = [
            effects.insert_or_get(
                NewEffect.new(EffectKey(EffectName(name), LogicalKey(key)), EffectKind.READ, T(0))
            ).record.id
            for name, key in (("a:b", "c"), ("a", "b:c"))
        ]
    refused = effects_run(tmp_path / "store", "show", "a:b:c", code=2)
    assert all(id_ in refused.err for id_ in ids)
    assert effects_run(tmp_path / "store", "show", ids[0], "--json").json["effect"]["key"]["name"] == "a:b"


@pytest.mark.parametrize("text", ["payment.charge", "", "018bcfe5", os.fsdecode(b"\xff")])
def test_what_is_neither_an_id_nor_a_name_and_a_key_is_wrong_usage(told: Path, text: str) -> None:
    assert "neither an id nor NAME:KEY" in effects_run(told, "show", text, code=2).err
    assert effects_run(told, "show", os.fsdecode(b"a:\xff"), code=1).out == b""
    assert effects_run(told, "show", ":", code=1).out == b""


def test_an_effect_that_cannot_be_read_is_damage(told: Path) -> None:
    (record,) = everything(told).values()
    with EffectStore.open(told) as effects:
        overwrite(effects, record.id)
    for command in (("show",), ("events",), ("resolve", "--retry", "--actor", "a", "--note", "b")):
        refused = effects_run(told, command[0], record.id, *command[1:], code=4)
        assert "nothing was changed" in refused.err


# ---------------------------------------------------------------------------------------------------------- decisions


@pytest.mark.parametrize(
    ("key", "options", "transition", "status"),
    [
        ("unknown", ["--applied"], Tr.RESOLVED_APPLIED, S.COMMITTED),
        ("needs_intervention", ["--applied"], Tr.RESOLVED_APPLIED, S.COMMITTED),
        ("unknown", ["--not-applied"], Tr.RESOLVED_NOT_APPLIED, S.FAILED),
        ("needs_intervention", ["--retry"], Tr.RESOLVED_RETRY, S.PENDING),
        ("compensation_failed", ["--retry"], Tr.RESOLVED_RETRY, S.COMPENSATING),
        ("compensation_failed", ["--compensated"], Tr.RESOLVED_COMPENSATED, S.COMPENSATED),
    ],
    ids=str,
)
def test_resolve_settles_what_nobody_knows(
    path: Path, key: str, options: list[str], transition: Transition, status: EffectStatus
) -> None:
    """Check E147, at the command line: what is decided, by whom, and why, stands in the trail."""
    before = everything(path)
    shown = decide(path, "resolve", key, *options).text
    after = everything(path)
    assert shown == f"{before[key].id}  payment.charge:{key}  {before[key].status} -> {status}\n"
    assert after[key].status is status and after[key].updated_at == T(100)
    assert {name: record for name, record in after.items() if name != key} == {
        name: record for name, record in before.items() if name != key
    }
    event = effects_run(path, "events", after[key].id, "--json").json_lines[-1]
    assert event["transition"] == transition.audit_name
    assert (event["actor"], event["payload"], event["at"]) == ("ann", {"note": "checked"}, NOW)
    error = after[key].last_error
    assert (error and error.message) == ("checked" if transition is Tr.RESOLVED_NOT_APPLIED else None)
    if transition is Tr.RESOLVED_RETRY:
        assert after[key].next_attempt_at == T(100)


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("null", None), ('{"id": ["pi_1"]}', {"id": ["pi_1"]}), ('"5"', "5"), ("", "")]
)
def test_an_output_is_json(path: Path, text: str, value: object) -> None:
    """Check E148, at the command line: what it has returned is stored, null too; nothing given is nothing stored."""
    options = ["--output", text, "--output-version", "3"] if text else []
    decide(path, "resolve", "unknown", "--applied", *options)
    record = everything(path)["unknown"]
    if text:
        assert (record.output, record.output_schema_version) == (value, 3)
    else:
        assert "output" not in record_to_json(record) and record.output_schema_version == 1


@pytest.mark.parametrize("text", ["{", "NaN", "", "'x'", os.fsdecode(b'"\xff"'), "[1,]", "1e999"])
def test_an_output_that_is_no_json_is_wrong_usage(path: Path, text: str) -> None:
    before = everything(path)
    assert "JSON" in decide(path, "resolve", "unknown", "--applied", "--output", text, code=2).err
    assert everything(path) == before


def test_an_output_goes_with_applied_only(path: Path) -> None:
    before = everything(path)
    assert "--applied only" in decide(path, "resolve", "unknown", "--retry", "--output", "5", code=2).err
    assert "required" in decide(path, "resolve", "unknown", code=2).err
    assert "not allowed with" in decide(path, "resolve", "unknown", "--retry", "--applied", code=2).err
    assert everything(path) == before


def test_approve_and_deny(path: Path) -> None:
    """The decision of a person: an approval covers all attempts, a denial is the end, and why is kept."""
    assert decide(path, "approve", "awaiting_approval").text.endswith("  awaiting_approval -> pending\n")
    record = everything(path)["awaiting_approval"]
    assert record.approved and record.last_error is None
    again = decide(path, "approve", "awaiting_approval", code=1)
    assert "refused" in again.err and "pending cannot take the transition approve" in again.err
    with EffectStore.open(path) as effects:
        record_effect(effects, "second", S.AWAITING_APPROVAL)
    done = decide(path, "deny", "second", "--json").json
    assert done["effect"]["status"] == "rejected" and done["effect"]["last_error"]["message"] == "checked"
    assert done["event"]["transition"] == "effect.denied" and done["event"]["actor"] == "ann"
    assert done["event"]["payload"] == {"note": "checked"} and done["sequence"] > 0
    assert not everything(path)["second"].approved


@pytest.mark.parametrize("action", ["resolve", "approve", "deny"])
def test_decisions_are_refused_where_there_is_nothing_to_decide(path: Path, action: str) -> None:
    """Check E149, at the command line: a committed effect is settled, and what somebody holds is theirs."""
    before = everything(path)
    options = ["--applied"] if action == "resolve" else []
    refused = decide(path, action, "committed", *options, code=1)
    assert "refused" in refused.err and "committed cannot take" in refused.err and refused.out == b""
    key = "unknown" if action == "resolve" else "awaiting_approval"
    with EffectStore.open(path) as effects:
        effects.acquire_lease(before[key].id, "w-1", T(90), TTL)
    held = decide(path, action, key, *options, code=1)
    assert "leased by 'w-1' until 2023-11-14T22:15:20" in held.err
    decided = effects_run(path, action, before[key].id, *options, "--actor", "a", "--note", "")
    assert " -> " in decided.text  # by the clock of the machine, that lease has long expired
    assert everything(path)[key].updated_at > datetime.now(UTC) - timedelta(minutes=5)


@pytest.mark.parametrize("option", ["--actor", "--note"])
def test_who_and_why_must_be_given_and_must_be_text(path: Path, option: str) -> None:
    before = everything(path)
    given = {"--actor": "ann", "--note": "checked", option: os.fsdecode(b"\xff")}
    options = [text for pair in given.items() for text in pair]
    assert "lone surrogate" in effects_run(path, "deny", before["awaiting_approval"].id, *options, code=2).err
    del given[option]
    options = [text for pair in given.items() for text in pair]
    assert "required" in effects_run(path, "deny", before["awaiting_approval"].id, *options, code=2).err
    assert everything(path) == before


# ------------------------------------------------------------------------------------------------------------ recover


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A store with effects that were left in the middle, one that is at work, and others."""
    with EffectStore.open(tmp_path / "store") as effects:
        for number in range(205):
            record_effect(effects, str(number), S.EXECUTING if number % 2 else S.VERIFYING)
        record_effect(effects, "pending")
        held = record_effect(effects, "held", S.EXECUTING)
        effects.acquire_lease(held.id, "w-1", T(90), TTL)
    return tmp_path / "store"


def test_recover_marks_what_was_left_in_the_middle(left: Path) -> None:
    """Checks E142 and E145, at the command line: page by page, and nothing twice."""
    before = everything(left)
    dry = effects_run(left, "recover", "--at", NOW, "--dry-run")
    assert everything(left) == before
    done = effects_run(left, "recover", "--at", NOW, "--worker", "w-2")
    assert len(done.lines) == 206
    assert done.lines[0] == f"{before['0'].id}  payment.charge:0  verifying -> unknown"
    assert done.lines[-1] == "marked as unknown: 205"
    assert dry.lines == [*done.lines[:-1], "would be marked as unknown: 205"]
    after = everything(left)
    assert {after[str(number)].status for number in range(205)} == {S.UNKNOWN}
    assert (after["0"].lease_epoch, after["0"].lease_owner) == (1, None)
    assert after["held"] == before["held"] and after["pending"] == before["pending"]
    event = effects_run(left, "events", after["7"].id, "--json").json_lines[-1]
    assert (event["transition"], event["actor"], event["at"]) == ("effect.lease_expired", "recovery:w-2", NOW)
    again = effects_run(left, "recover", "--at", NOW, "--json").json
    assert again == {"at": NOW, "dry_run": False, "marked_unknown": [], "sequence": again["sequence"]}
    assert effects_run(left, "recover", "--json").json["marked_unknown"] == [before["held"].id]  # by the clock


def test_recover_tells_of_what_it_cannot_read_and_goes_on(left: Path) -> None:
    """Row 99: it is reported, and the others proceed."""
    before = everything(left)
    with EffectStore.open(left) as effects:
        overwrite(effects, before["3"].id)
    done = effects_run(left, "recover", "--at", NOW, "--json", code=1)
    assert len(done.json["marked_unknown"]) == 204 and "effect record" in done.err


# -------------------------------------------------------------------------------------------------------------- prune


@pytest.mark.parametrize(
    ("options", "deleted"),
    [
        (["--settled", "90s"], {"committed": 1, "failed": 1, "rejected": 1, "compensated": 1}),
        (["--settled", "100s"], {"committed": 0, "failed": 0, "rejected": 0, "compensated": 0}),
        (["--settled", "1d", "--failed", "99s"], {"committed": 0, "failed": 1, "rejected": 0, "compensated": 0}),
        (["--failed", "0s", "--compensated", "0s"], {"failed": 1, "compensated": 1}),
        (["--settled", "999999999d"], {"committed": 0, "failed": 0, "rejected": 0, "compensated": 0}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_prune_deletes_each_status_by_its_age(path: Path, options: list[str], deleted: dict[str, int]) -> None:
    """Check E156, at the command line: nothing that is not settled goes, and nothing without an age."""
    before = everything(path)
    dry = effects_run(path, "prune", *options, "--at", NOW, "--dry-run", "--json").json
    assert everything(path) == before
    done = effects_run(path, "prune", *options, "--at", NOW, "--json").json
    assert done["deleted"] == deleted and done["total"] == sum(deleted.values()) and done["at"] == NOW
    assert {**done, "dry_run": True, "sequence": 0} == {**dry, "sequence": 0}
    assert list(everything(path)) == [key for key in before if not deleted.get(key)]


def test_prune_as_a_table_and_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check E157, at the command line: batch after batch."""
    from pystate.cli import effects_deciding

    monkeypatch.setattr(effects_deciding, "_PRUNED_AT_ONCE", 5)
    with EffectStore.open(tmp_path / "store") as effects:
        for number in range(12):
            record_effect(effects, str(number), S.COMMITTED)
        sequence = effects.store.sequence
    shown = effects_run(tmp_path / "store", "prune", "--settled", "1m", "--at", NOW).lines
    assert [line.split() for line in shown] == [
        ["status", "deleted"],
        ["committed", "12"],
        ["failed", "0"],
        ["rejected", "0"],
        ["compensated", "0"],
    ]
    with EffectStore.open(tmp_path / "store") as effects:
        assert effects.store.sequence == sequence + 3
        assert check_all(effects) == []


def test_prune_needs_an_age(path: Path) -> None:
    before = everything(path)
    assert "--settled AGE" in effects_run(path, "prune", code=2).err
    assert "30d, 12h, 90m or 45s" in effects_run(path, "prune", "--settled", "old", code=2).err
    assert everything(path) == before


# ---------------------------------------------------------------------------------------------------------- arguments


def test_instants_are_whole_and_have_an_offset(path: Path) -> None:
    before = everything(path)
    for command in (("recover",), ("prune", "--settled", "0s"), ("pending",)):
        for wrong in ("now", "2026-11-30", "2026-11-30T12:00:00"):
            assert "2026-11-30T12:00:00Z" in effects_run(path, *command, "--at", wrong, code=2).err
    assert everything(path) == before
    assert effects_finding.instant(T(0)) == "2023-11-14T22:13:20Z"


def test_the_statuses_that_are_offered_are_those_that_there_are(path: Path) -> None:
    assert tuple(S) == OFFERED
    assert "invalid choice" in effects_run(path, "list", "--status", "done", code=2).err
