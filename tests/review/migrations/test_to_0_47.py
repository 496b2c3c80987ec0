"""From 0.46 to 0.47: three new families; agents and services get what hosts report of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate.errors import UnknownShapeError
from pystate.review import Agent, AgentKind, ExternalService, ExternalServiceKind, Lifecycle, ReviewStore, Status
from pystate.review.agent import AGENTS
from pystate.review.external_service import EXTERNAL_SERVICES
from pystate.testing import SimulatedDisk
from tests.formats.shop import unchanged
from tests.review.migrations.fixtures import (
    DATA,
    NEWEST,
    STORE,
    Families,
    agent,
    applied,
    check_same,
    content_of,
    encode,
    finished,
    look_at,
    make,
    markers,
    new_agent,
    refused_by,
    run,
    service,
    u32,
)

CREATE = "create 'core components', 'customer deletion jobs', 'operation attempts'"
FAMILIES = {"agents": "give agents what", "external services": "give external services what"}
KINDS = {"agents": "agent", "external services": "external service"}
OLD = {"agents": agent(1, 1, "a = 1", "a = 2"), "external services": service(0, 1, "c = 3")}
NEW = {
    "agents": encode([1, 1, "a = 1", "a = 2", None, None, 0, []]),
    "external services": encode([0, 1, "c = 3", None, None, 0, []]),
}
family_names = pytest.mark.parametrize("family", FAMILIES)


def state_of(family: str, rows: dict[bytes, bytes]) -> Families:
    return {"default": {}, **{name: {} for name in FAMILIES}, family: rows}


@family_names
def test_old_value_becomes_the_same_and_four_more_positions(family: str) -> None:
    """Check R212: as arrays: four or three positions, then the same and none, none, 0 and an empty list."""
    key = u32(7) + b"sensor@host1"
    found = applied(state_of(family, {key: OLD[family]}), FAMILIES[family])
    assert found == state_of(family, {key: NEW[family]})
    if family == "agents":
        record = AGENTS.decode(key, found[family][key])
        assert (record.node_id, record.key, record.kind, record.status) == (
            7,
            "sensor@host1",
            AgentKind.SENSOR,
            Status.ENABLED,
        )
        assert (record.config, record.draft) == ("a = 1", "a = 2")
        assert (record.installed_version, record.installed_commit) == (None, None)
        assert (record.lifecycle, record.bound_addrs) == (Lifecycle.NOT_INSTALLED, ())
    else:
        service = EXTERNAL_SERVICES.decode(key, found[family][key])
        assert (service.kind, service.status, service.draft) == (
            ExternalServiceKind.DATA_STORE,
            Status.ENABLED,
            "c = 3",
        )
        assert (service.installed_version, service.installed_commit) == (None, None)
        assert (service.lifecycle, service.bound_addrs) == (Lifecycle.NOT_INSTALLED, ())


@family_names
def test_current_value_keeps_its_bytes_beside_an_old_one(family: str) -> None:
    """Check R213: (S12) also with lifecycle 9, which reads as UNKNOWN, and with addresses."""
    reported = ["0.47.0", "c0ffee", 9, [["addr", "host:1234"]]]
    current = encode([*([1, 1, "not = [toml", None] if family == "agents" else [0, 1, None]), *reported])
    state = state_of(family, {b"\0\0\0\1current": current, b"\0\0\0\2old": OLD[family]})
    found = applied(state, FAMILIES[family])
    assert found[family] == {b"\0\0\0\1current": current, b"\0\0\0\2old": NEW[family]}
    table = AGENTS if family == "agents" else EXTERNAL_SERVICES
    assert table.decode(b"\0\0\0\1current", current).lifecycle is Lifecycle.UNKNOWN
    assert applied(found, FAMILIES[family]) == found


FOREIGN = {
    "a foreign value": "09" + b"foreign value".hex(),
    "nothing": "",
    "a kind that there is not": encode([99, 1, None, None]).hex(),
    "a config that is bytes": encode([1, 1, b"a = 1", None]).hex(),
    "nine positions": encode([1, 1, None, None, None, None, 0, [], 0]).hex(),
    "two positions": encode([1, 1]).hex(),
    "lifecycle 256": encode([1, 1, None, None, None, None, 256, []]).hex(),
}


@family_names
@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_value_is_refused(family: str, what: str) -> None:
    """Check R214: the error has kind, key in hex, and both reasons; nothing is changed."""
    key = u32(7) + b"foreign"
    state = state_of(family, {u32(7) + b"aa": OLD[family], key: bytes.fromhex(FOREIGN[what])})
    error = refused_by(FAMILIES[family], state, UnknownShapeError)
    assert isinstance(error, UnknownShapeError)
    assert (error.family, error.key, error.kind) == (family, key, KINDS[family])
    for part in (KINDS[family], key.hex(), "current schema error", "previous schema error"):
        assert part in str(error)


@family_names
def test_old_value_with_one_more_byte_is_refused(family: str) -> None:
    """Check R215: it matches neither shape."""
    for more in (b"\0", b"\xc0", b"\x90"):
        refused_by(FAMILIES[family], state_of(family, {b"\0\0\0\1k": OLD[family] + more}), UnknownShapeError)


@family_names
def test_foreign_value_stops_the_whole_migration(family: str) -> None:
    """Check R214: nothing in the directory changes, markers neither."""
    state = content_of("0.46.0")
    state[family][b"\xff" * 4 + b"foreign"] = b"\x09foreign value"
    disk = SimulatedDisk()
    make(disk, state, "0.46.0")
    with unchanged(disk), pytest.raises(UnknownShapeError, match="current schema error.*previous schema error"):
        run(disk)
    assert markers(disk) == ("0.46.0", "0.46.0")


@family_names
def test_foreign_value_behind_many_changes_nothing_at_all(family: str) -> None:
    """Check R216: with this difference: none of the 250 rows is converted, as the chain is one step that no failure
    divides (there, 200 were). When the foreign row is gone, the next run converts all of them.
    """
    state = content_of("0.46.0")
    rows = {b"\0\0\1\0%03d" % at: OLD[family] for at in range(250)}
    state[family] = {**rows, b"\xff" * 4 + b"foreign": b"\x09foreign value"}
    disk = SimulatedDisk()
    make(disk, state, "0.46.0")
    with unchanged(disk), pytest.raises(UnknownShapeError):
        run(disk)
    check_same(look_at(disk)[0], state)
    with pystate.open(STORE, families=state, files=disk) as store:
        store.family(family).delete(b"\xff" * 4 + b"foreign")
    run(disk)
    check_same(look_at(disk)[0], {**finished("0.46.0"), family: {key: NEW[family] for key in rows}})


@family_names
def test_rows_that_another_program_had_converted_stay(family: str) -> None:
    """Check R216: the first 200 of 250 are converted, as that program left them; they keep their bytes."""
    reported = encode([*([1, 1, None, None] if family == "agents" else [0, 1, None]), "1", "c", 2, [["a", "b"]]])
    rows = {b"\0\0\1\0%03d" % at: reported if at < 200 else OLD[family] for at in range(250)}
    found = applied(state_of(family, rows), FAMILIES[family])
    assert found[family] == {key: value if at < 200 else NEW[family] for at, (key, value) in enumerate(rows.items())}


def test_new_families_are_made_where_they_are_missing() -> None:
    """Section 13.10: those that are there keep their rows."""
    state: Families = {"default": {}, "customer deletion jobs": {b"job-key": b"a job"}}
    found = applied(state, CREATE)
    assert found == {**state, "core components": {}, "operation attempts": {}}
    assert applied(found, CREATE) == found


def test_first_alpha_to_the_second() -> None:
    """Check R211: (S13) all fields kept, nothing reported; the new families are there, empty and of use."""
    disk = SimulatedDisk()
    make(disk, content_of("0.47.0-alpha.1"), "0.47.0-alpha.1")
    run(disk)
    with ReviewStore.open(DATA, "/backup", files=disk) as review:
        found = [
            (each.node_id, each.key, each.kind, each.status, each.config, each.draft) for each in review.agents.iter()
        ]
        assert found == [
            (1, "sensor@host1", AgentKind.SENSOR, Status.ENABLED, "a = 1", "a = 2"),
            (2, "unsupervised@host2", AgentKind.UNSUPERVISED, Status.DISABLED, None, None),
            (3, "semi@host3", AgentKind.SEMI_SUPERVISED, Status.RELOAD_FAILED, None, "b = 3"),
        ]
        assert [(each.key, each.kind, each.status, each.draft) for each in review.external_services.iter()] == [
            ("datastore@host1", ExternalServiceKind.DATA_STORE, Status.ENABLED, "c = 3"),
            ("ti@host2", ExternalServiceKind.TI_CONTAINER, Status.UNKNOWN, None),
        ]
        packages: list[Agent | ExternalService] = [*review.agents.iter(), *review.external_services.iter()]
        for each in packages:
            assert (each.installed_version, each.installed_commit) == (None, None)
            assert (each.lifecycle, each.bound_addrs) == (Lifecycle.NOT_INSTALLED, ())
        assert list(review.core_components.iter()) == []
        assert dict(review.store.family("operation attempts")) == {}
        assert [each.customer_id for each in review.customer_data_deletion_jobs.iter()] == [1]
        assert review.store.path == STORE
        assert review.store.metadata == {"format": NEWEST}


texts = st.none() | st.text(max_size=5)


@given(st.integers(0, 3), st.integers(0, 3), texts, texts, texts, st.integers(0, 255))
def test_no_value_has_both_shapes(
    kind: int, status: int, config: str | None, draft: str | None, version: str | None, lifecycle: int
) -> None:
    """Section 13.10: an old one is extended once, a new one is left alone, whatever they hold."""
    if any(
        text is not None and any(0xD800 <= ord(each) < 0xE000 for each in text) for text in (config, draft, version)
    ):
        return
    old, new = agent(kind, status, config, draft), new_agent(kind, status, config, draft, version=version)
    new = encode([kind, status, config, draft, version, None, lifecycle, [["k", "v"]]])
    found = applied(state_of("agents", {b"\0\0\0\1old": old, b"\0\0\0\1new": new}), FAMILIES["agents"])["agents"]
    assert found == {b"\0\0\0\1old": new_agent(kind, status, config, draft), b"\0\0\0\1new": new}
    assert AGENTS.decode(b"\0\0\0\1old", found[b"\0\0\0\1old"]).config == config
