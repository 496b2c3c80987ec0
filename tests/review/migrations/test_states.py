"""Every state that an interrupted run of an older program may have left: it is finished, and nothing of it is lost.

The states S1 to S17 of the specification. The chain of this program is one step, so none of these comes from itself:
they are fixtures. Those that must fail stand below: nothing at all changes then.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pystate
from pystate.errors import (
    FamilyConflictError,
    MigrationError,
    MigrationFamiliesError,
    MixedShapesError,
    UnknownShapeError,
)
from pystate.formats import Version
from pystate.review import ReviewStore, migrate_data_dir, write_version_markers
from pystate.testing import SimulatedDisk
from tests.formats.shop import unchanged
from tests.review.migrations.fixtures import (
    BACKUP,
    DATA,
    FORMATS,
    NEWEST,
    THEN,
    Families,
    agent,
    applied,
    check_same,
    content_of,
    copied,
    decoded,
    encode,
    finished,
    index,
    look_at,
    make,
    markers,
    new_networks,
    old_networks,
    run,
    service,
    steps,
)

OLD_AGENT, OLD_SERVICE = agent(1, 1, "a = 1", None), service(0, 0, None)
NEW_AGENT, NEW_SERVICE = encode([1, 1, "a = 1", None, None, None, 0, []]), encode([0, 0, None, None, None, 0, []])
REPORTED_AGENT = encode([1, 1, "a = 1", None, "0.47.0", "c0ffee", 9, [["addr", "host:1"]]])
REPORTED_SERVICE = encode([0, 0, None, "0.47.0", None, 2, []])

Case = tuple[str, Families, Families]
"""The markers, what is there, and what must become of it."""


def after(count: int, version: str = "0.42.0") -> Families:
    """The state of a version, after so many steps of the chain."""
    names = [each.name for each in steps()]
    return applied(content_of(version), *names[:count])


def s1() -> Case:
    return "0.42.0", content_of("0.42.0"), finished("0.42.0")


def s2() -> Case:
    state = after(1)
    assert "account policy" not in state and "TI database" in state
    state["TI database"][b"ti-key"] = b"ti-value"
    expected = finished("0.42.0")
    expected["label database"][b"ti-key"] = b"ti-value"
    return "0.42.0", state, expected


def s3() -> Case:
    state = after(1)
    state["TI database"] = {b"copied": b"same", b"ti-only": b"1"}
    state["label database"] = {b"copied": b"same", b"label-only": b"2"}
    label = {b"copied": b"same", b"ti-only": b"1", b"label-only": b"2"}
    return "0.42.0", state, {**finished("0.42.0"), "label database": label}


def s4() -> Case:
    state = after(2)
    assert "triage exclusion reason" not in state
    assert len(state) == 36  # `default` is one of them
    return "0.42.0", state, finished("0.42.0")


def s5() -> Case:
    state = after(3)
    state["triage exclusion reason"] = {b"reason": b"kept"}
    return "0.42.0", state, {**finished("0.42.0"), "triage exclusion reason": {b"reason": b"kept"}}


def s6() -> Case:
    return "0.42.0", after(4), finished("0.42.0")


def s7() -> Case:
    state = content_of(NEWEST)
    state["customer deletion jobs"][b"job-key"] = b"kept"
    return "0.42.0", state, copied(state)


def s9() -> Case:
    return "0.45.0", content_of(NEWEST), content_of(NEWEST)


def s11() -> Case:
    state = content_of("0.46.0")
    state |= {"customer deletion jobs": {b"job": b"kept"}, "core components": {}, "operation attempts": {}}
    return "0.46.0", state, {**finished("0.46.0"), "customer deletion jobs": {b"job": b"kept"}}


def s12() -> Case:
    """Agents done, but for one, and one that a host has reported on meanwhile; services not, but for one."""
    marker, state, expected = s11()
    state["agents"] = {b"\0\0\0\1a": NEW_AGENT, b"\0\0\0\1b": REPORTED_AGENT, b"\0\0\0\1c": OLD_AGENT}
    state["external services"] = {b"\0\0\0\1a": OLD_SERVICE, b"\0\0\0\1b": REPORTED_SERVICE}
    expected["agents"] = {b"\0\0\0\1a": NEW_AGENT, b"\0\0\0\1b": REPORTED_AGENT, b"\0\0\0\1c": NEW_AGENT}
    expected["external services"] = {b"\0\0\0\1a": NEW_SERVICE, b"\0\0\0\1b": REPORTED_SERVICE}
    return marker, state, expected


def s13(kind: str) -> Case:
    state = content_of("0.47.0-alpha.1")
    expected = finished("0.47.0-alpha.1")
    if kind == "new":
        state["agents"], state["external services"] = expected["agents"], expected["external services"]
    if kind == "mixed":
        _, mixed, done = s12()
        for name in ("agents", "external services"):
            state[name], expected[name] = mixed[name], done[name]
    return "0.47.0-alpha.1", copied(state), expected


def s14() -> Case:
    state = content_of("0.43.0")
    state["networks"] = content_of("0.44.0")["networks"]
    return "0.43.0", state, finished("0.43.0")


def s15(marker: str) -> Case:
    """Beside rows of the old shape, one with no category, which only the new one has."""
    state = content_of(marker)
    converted = encode([2, "any", [], [], [[None, "a", 1.0, None]], [], THEN, None])
    state["triage policy"][b"\xff\xff\xff\xffany"] = converted
    expected = finished(marker)
    expected["triage policy"][b"\xff\xff\xff\xffany"] = converted
    return marker, state, expected


def s16() -> Case:
    state = content_of("0.43.0")
    state["meta"] = content_of("0.44.0")["meta"]
    return "0.43.0", state, finished("0.43.0")


CASES: dict[str, Callable[[], Case]] = {
    "S1 complete": s1,
    "S2 account policy dropped": s2,
    "S3 partly copied": s3,
    "S4 renamed": s4,
    "S5 reasons made, with a row": s5,
    "S6 networks done": s6,
    "S7 everything done": s7,
    **{f"S8 clean {each}": lambda each=each: (each, content_of(each), finished(each)) for each in FORMATS[1:5]},  # type: ignore[misc]
    "S9 everything done since 0.45": s9,
    "S11 families made": s11,
    "S12 some values done": s12,
    "S13 old values": lambda: s13("old"),
    "S13 new values": lambda: s13("new"),
    "S13 mixed values": lambda: s13("mixed"),
    "S14 networks by name": s14,
    "S15 policies of 0.43": lambda: s15("0.43.0"),
    "S15 policies of 0.44": lambda: s15("0.44.0"),
    "S16 tags prefixed": s16,
}
for _made in ((), ("core components",), ("operation attempts",), ("core components", "operation attempts")):

    def _s10(made: tuple[str, ...] = _made) -> Case:
        state = {**content_of("0.45.0"), "customer deletion jobs": {b"job": b"kept"}, **{name: {} for name in made}}
        return "0.45.0", state, {**finished("0.45.0"), "customer deletion jobs": {b"job": b"kept"}}

    CASES[f"S10 {len(_made)} {' '.join(_made)}"] = _s10


def check_done(disk: SimulatedDisk, expected: Families) -> None:
    found, version = look_at(disk)
    check_same(found, expected)
    assert len(expected) == 40
    assert version == NEWEST
    assert markers(disk) == (NEWEST, NEWEST)
    with unchanged(disk):
        assert not run(disk).changed


@pytest.mark.parametrize("name", CASES)
def test_partial_state_is_finished(name: str) -> None:
    """Check R186, R188, R189, R190, R191, R192, R193, R204, R207, R208, R209, R210, R211, R213, R221: as `CASES` say.

    All rows of `expected` are compared byte by byte, those of `default` among them.
    """
    marker, state, expected = CASES[name]()
    disk = SimulatedDisk()
    make(disk, state, marker)
    with unchanged(disk):
        would = run(disk, dry_run=True)
    report = run(disk)
    assert would.steps == report.steps
    assert (report.before, report.version) == (Version.parse(marker), Version.parse(NEWEST))
    check_done(disk, expected)


@pytest.mark.parametrize("marker", FORMATS[:-1])
def test_behind_every_step(marker: str) -> None:
    """Check R220: what a program has left that was stopped behind any step, each of them durable by itself."""
    all_steps = [each.name for each in steps()]
    first = {"0.42.0": 0, "0.43.0": 4, "0.44.0": 6, "0.45.0": 7}.get(marker, 7)
    for count in range(first, len(all_steps) + 1):
        disk = SimulatedDisk()
        make(disk, applied(content_of(marker), *all_steps[first:count]), marker)
        run(disk)
        check_done(disk, finished(marker))


def test_oldest_state_to_the_newest() -> None:
    """Check R186: (S1) 39 families, no `TI database`, both rows in `label database`; agents are not installed."""
    disk = SimulatedDisk()
    make(disk, content_of("0.42.0"), "0.42.0")
    report = run(disk)
    assert [each.step for each in report.steps] == [each.name for each in steps()]
    assert report.rewrite is not None
    assert (report.rewrite.dropped, report.rewrite.renamed) == (
        {"account policy": 1},
        {"TI database": "label database"},
    )
    families = pystate.list_families(f"{DATA}/states.db", files=disk)
    assert len(families) == 40
    with ReviewStore.open(DATA, BACKUP, files=disk) as review:
        assert {each.lifecycle.value for each in review.agents.iter()} == {0}
        assert [each.name for each in review.networks.iter()] == ["NetA", "NetB", "Twice"]
        assert [(each.customer_id, each.name) for each in review.allow_networks.iter()] == [
            (0, "lab"),
            (0, "office"),
            (1, "lab"),
            (1, "office"),
        ]
        assert [each.text for each in review.network_tags(0).entries()] == ["red", "blue"]
        assert [each.text for each in review.event_tags.entries()] == ["urgent"]
        assert len(list(review.triage_policies.iter())) == 2
        tables = (review.networks, review.allow_networks, review.block_networks, review.customers)
        assert [table.check() for table in tables] == [[], [], [], []]
    assert markers(disk) == (NEWEST, NEWEST)


def test_first_migration_by_itself_and_then_the_chain() -> None:
    """Check R192: (S6) both rows are there under customer 0 and their names, once."""
    state = content_of("0.42.0")
    state["customers"] = {b"": index({0: b"C"}), b"C": customer_of_other(state)}
    state["allow networks"], state["block networks"] = old_networks("Old Allow"), old_networks("Old Block")
    state = applied(state, *[each.name for each in list(steps())[:4]])
    disk = SimulatedDisk()
    make(disk, state, "0.42.0")
    run(disk)
    found, _ = look_at(disk)
    assert found is not None
    assert found["allow networks"] == new_networks(("Old Allow", 0))
    assert found["block networks"] == new_networks(("Old Block", 0))
    assert sorted(found["allow networks"]) == [b"", b"\0\0\0\0Old Allow"]


def customer_of_other(state: Families) -> bytes:
    fields = decoded(state["customers"][b"beta"])
    return encode([fields[0], "C", *fields[2:]])


@pytest.mark.parametrize("content", [None, "0.46.0"])
def test_content_restored_after_an_update(content: str | None) -> None:
    """Section 13.11: (S17) the old content is back, the markers are written, and the newer program starts again."""
    disk = SimulatedDisk()
    make(disk, content_of("0.46.0"), NEWEST, content=content)
    write_version_markers(DATA, BACKUP, "0.46.0", files=disk)
    run(disk)
    check_done(disk, finished("0.46.0"))


# Those that must fail


def conflict() -> Case:
    marker, state, expected = s3()
    state["label database"][b"copied"] = b"another"
    return marker, state, expected


def mixed(family: str) -> Case:
    marker, state, expected = s1()
    state[family] |= {key: value for key, value in new_networks(("new", 0)).items() if key}
    return marker, state, expected


def foreign(family: str, marker: str) -> Case:
    state = content_of(marker)
    state[family][b"\xff\xff\xff\xffforeign"] = b"\x09foreign value"
    return marker, state, {}


def unknown_family() -> Case:
    return "0.46.0", {**content_of("0.46.0"), "unknown": {}}, {}


def missing_family() -> Case:
    state = content_of("0.46.0")
    del state["scores"]
    return "0.46.0", state, {}


FAILURES: dict[str, tuple[Callable[[], Case], type[MigrationError]]] = {
    "conflicting values in S3": (conflict, FamilyConflictError),
    "a mix of allowed networks": (lambda: mixed("allow networks"), MixedShapesError),
    "a mix of blocked networks": (lambda: mixed("block networks"), MixedShapesError),
    "a foreign agent": (lambda: foreign("agents", "0.42.0"), UnknownShapeError),
    "a foreign service": (lambda: foreign("external services", "0.42.0"), UnknownShapeError),
    "a foreign policy": (lambda: foreign("triage policy", "0.44.0"), UnknownShapeError),
    "a foreign customer": (lambda: foreign("customers", "0.42.0"), UnknownShapeError),
    "a family that no format has": (unknown_family, MigrationFamiliesError),
    "a family that is missing": (missing_family, MigrationFamiliesError),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure_changes_nothing(name: str) -> None:
    """Check R189, R197, R214, R218: no byte of any file, so no row and no marker; and no family is made."""
    build, kind = FAILURES[name]
    marker, state, _ = build()
    disk = SimulatedDisk()
    make(disk, state, marker)
    for dry_run in (True, False):
        with unchanged(disk), pytest.raises(kind):
            run(disk, dry_run=dry_run)
    check_same(look_at(disk)[0], state)
    assert markers(disk) == (marker, marker)


def test_files_beside_the_store_are_left_alone(tmp_path: Path) -> None:
    """Check R217: names and bytes, in both directories."""
    data, backup = tmp_path / "data", tmp_path / "backup"
    write_version_markers(data, backup, "0.46.0")
    state = content_of("0.46.0")
    with pystate.open(data / "states.db", families=list(state)) as store:
        for name, rows in state.items():
            store.family(name).update(rows)
    (data / "pretrained").mkdir()
    others = {data / "pretrained" / "model": b"\x00\xff", data / "classifier.bin": b"", backup / "notes": b"mine"}
    for path, content in others.items():
        path.write_bytes(content)
    migrate_data_dir(data, backup)
    assert {path: path.read_bytes() for path in others} == others
    assert {each.name for each in data.iterdir()} == {"VERSION", "states.db", "pretrained", "classifier.bin"}
    assert {each.name for each in backup.iterdir()} == {"VERSION", "notes"}
