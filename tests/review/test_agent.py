"""Agents: a node and a key, a configuration and a draft of one, and what the host reports."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec
import pytest

import pystate
from pystate import Store
from pystate.errors import DecodeError, InvalidConfigError, InvalidRecordError, KeyExistsError, ValueMismatchError
from pystate.review.agent import AGENTS, Agent, AgentKind, Agents
from pystate.review.lifecycle import Lifecycle
from pystate.review.packages import Config, Status
from tests.review.plain_tables import fields_in

FAMILY = "agents"
PIGLET = "001.piglet"


def agent(key: str = PIGLET, node_id: int = 1, **fields: Any) -> Agent:
    made = Agent.new(
        node_id=node_id, key=key, kind=AgentKind.SENSOR, status=Status.ENABLED, config="a = 1", draft="a = 2"
    )
    return changed(made, **fields)


def changed(record: Agent, **fields: Any) -> Agent:
    return msgspec.structs.replace(record, **fields)


@pytest.fixture
def store() -> Iterator[Store]:
    with pystate.memory(families=[FAMILY]) as opened:
        yield opened


@pytest.fixture
def agents(store: Store) -> Agents:
    return Agents(AGENTS, store)


def test_kinds_have_stored_indexes_numbers_and_texts() -> None:
    assert [(each.value, each.number, each.text) for each in AgentKind] == [
        (0, 1, "unsupervised"),
        (1, 2, "sensor"),
        (2, 3, "semi_supervised"),
        (3, 4, "time_series_generator"),
    ]


# ---- making one -----------------------------------------------------------------------------------------------------


def test_a_new_agent_has_nothing_reported() -> None:
    """Check R125: no build, NOT_INSTALLED, no addresses; the texts must be TOML."""
    made = Agent.new(
        node_id=1, key=PIGLET, kind=AgentKind.SENSOR, status=Status.DISABLED, config='test = "true"', draft=""
    )
    assert (made.installed_version, made.installed_commit, made.bound_addrs) == (None, None, ())
    assert made.lifecycle is Lifecycle.NOT_INSTALLED
    assert (made.status, made.config, made.draft) == (Status.DISABLED, 'test = "true"', "")
    with pytest.raises(InvalidConfigError):
        Agent.new(node_id=1, key=PIGLET, kind=AgentKind.SENSOR, config="invalid")
    with pytest.raises(InvalidConfigError):
        Agent.new(node_id=1, key=PIGLET, kind=AgentKind.SENSOR, draft="invalid")


def test_a_new_agent_is_enabled_and_has_no_configuration_unless_told() -> None:
    made = Agent.new(node_id=1, key=PIGLET, kind=AgentKind.SENSOR)
    assert (made.status, made.config, made.draft) == (Status.ENABLED, None, None)


def test_a_new_agent_takes_no_install_fields() -> None:
    with pytest.raises(TypeError, match="lifecycle"):
        Agent.new(node_id=1, key=PIGLET, kind=AgentKind.SENSOR, lifecycle=Lifecycle.RUNNING)  # type: ignore[call-arg]


@pytest.mark.parametrize("field", ["config", "draft"])
@pytest.mark.parametrize("text", ["invalid", "a = 1"])
def test_text_that_nobody_checked_is_not_stored(agents: Agents, field: str, text: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"field '{field}': a Config or None expected, not str"):
        agents.put(changed(agent(), **{field: text}))
    assert list(agents.iter()) == []


# ---- what is stored -------------------------------------------------------------------------------------------------


def test_the_key_is_the_node_and_the_text() -> None:
    """Check R126: 00 00 00 01, then the text."""
    assert AGENTS.row_key(agent()) == bytes.fromhex("00 00 00 01 30 30 31 2e 70 69 67 6c 65 74")


def test_the_value_is_the_fields_that_are_not_in_the_key(store: Store, agents: Agents) -> None:
    agents.insert(agent(installed_version="0.47.0", lifecycle=Lifecycle.RUNNING, bound_addrs=(("addr", "host:1234"),)))
    (value,) = store.family(FAMILY).values()
    assert fields_in(value) == [1, 1, "a = 1", "a = 2", "0.47.0", None, 2, [["addr", "host:1234"]]]


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("lifecycle", Lifecycle)
def test_status_and_lifecycle_are_independent(agents: Agents, status: Status, lifecycle: Lifecycle) -> None:
    """Check R127: all 28 pairs, for agents."""
    given = agent(status=status, lifecycle=lifecycle)
    agents.insert(given)
    read = agents.get(1, PIGLET)
    assert read == given
    assert (read.status, read.lifecycle) == (status, lifecycle)


def test_a_lifecycle_of_a_later_version_reads_as_unknown(store: Store, agents: Agents) -> None:
    """Check R128: all else intact, for agents; writing it again stores 6."""
    given = agent(installed_version="0.47.0", installed_commit="c0ffee", bound_addrs=(("addr", "host:1234"),))
    agents.insert(given)
    ((key, value),) = store.family(FAMILY).items()
    fields = fields_in(value)
    store.family(FAMILY)[key] = msgspec.msgpack.encode([*fields[:6], 9, *fields[7:]])
    read = agents.get(1, PIGLET)
    assert read == changed(given, lifecycle=Lifecycle.UNKNOWN)
    agents.put(read)
    assert fields_in(store.family(FAMILY)[key]) == [*fields[:6], 6, *fields[7:]]


@pytest.mark.parametrize("lifecycle", Lifecycle)
def test_a_lifecycle_is_one_small_int_in_the_value(store: Store, agents: Agents, lifecycle: Lifecycle) -> None:
    """Check R133: the same bytes whether it is written as an int or as a member of the enum."""
    agents.insert(agent(lifecycle=lifecycle))
    (value,) = store.family(FAMILY).values()
    fields = fields_in(value)
    assert fields[6] == lifecycle.to_stored_index()
    assert msgspec.msgpack.encode([*fields[:6], lifecycle, *fields[7:]]) == value
    assert msgspec.msgpack.encode([*fields[:6], lifecycle.to_stored_index(), *fields[7:]]) == value


def test_addresses_keep_their_order(agents: Agents) -> None:
    """Check R129: three pairs, one of them twice."""
    addresses = (("z", "host:2"), ("a", "host:1"), ("z", "host:2"))
    agents.insert(agent(bound_addrs=addresses))
    assert agents.get(1, PIGLET) == agent(bound_addrs=addresses)


def test_addresses_may_be_given_as_lists(agents: Agents) -> None:
    given = agent(bound_addrs=[["z", "host:2"], ("a", "host:1")])
    assert given.bound_addrs == (("z", "host:2"), ("a", "host:1"))
    agents.insert(given)
    assert agents.get(1, PIGLET) == given


def test_a_configuration_that_is_no_toml_is_read_and_written_again(store: Store, agents: Agents) -> None:
    agents.insert(agent())
    ((key, value),) = store.family(FAMILY).items()
    fields = fields_in(value)
    store.family(FAMILY)[key] = msgspec.msgpack.encode([*fields[:2], "invalid", *fields[3:]])
    read = agents.get(1, PIGLET)
    assert read is not None
    assert read.config == "invalid" and type(read.config) is Config
    agents.update(read, changed(read, lifecycle=Lifecycle.RUNNING))
    assert agents.get(1, PIGLET) == changed(read, lifecycle=Lifecycle.RUNNING)


@pytest.mark.parametrize(
    ("key", "reason"),
    [(b"\x00\x00\x01", "4 bytes expected"), (b"\x00\x00\x00\x01\xff", "not UTF-8"), (b"1", "4 bytes expected")],
    ids=["3 bytes", "not UTF-8", "1 byte"],
)
def test_a_row_under_a_key_that_is_none_is_reported(store: Store, agents: Agents, key: bytes, reason: str) -> None:
    store.family(FAMILY)[key] = AGENTS.encode(agent())
    with pytest.raises(DecodeError, match=reason):
        list(agents.iter())


def test_a_status_of_a_later_version_makes_the_row_unreadable(store: Store, agents: Agents) -> None:
    agents.insert(agent())
    ((key, value),) = store.family(FAMILY).items()
    store.family(FAMILY)[key] = value[:2] + b"\x04" + value[3:]
    with pytest.raises(DecodeError, match="field 'status'"):
        agents.get(1, PIGLET)


# ---- writing --------------------------------------------------------------------------------------------------------


def test_an_update_of_one_install_field_keeps_the_others(agents: Agents) -> None:
    """Check R130: the lifecycle alone, then the commit alone."""
    installing = agent(installed_version="0.47.0", installed_commit="deadbeef", lifecycle=Lifecycle.INSTALLING)
    agents.insert(installing)
    running = changed(installing, lifecycle=Lifecycle.RUNNING)
    agents.update(installing, running)
    assert agents.get(1, PIGLET) == running
    assert running.installed_commit == "deadbeef"

    other_commit = changed(running, installed_commit="c0ffee")
    agents.update(running, other_commit)
    read = agents.get(1, PIGLET)
    assert read == other_commit
    assert (read.installed_version, read.lifecycle) == ("0.47.0", Lifecycle.RUNNING)
    with pytest.raises(ValueMismatchError):
        agents.update(running, installing)


def test_two_agents_of_one_kind_on_one_node_are_independent(agents: Agents) -> None:
    """Check R131: other configurations and installs; deleting the first leaves the second."""
    first = agent(config=Config("a = 1"), lifecycle=Lifecycle.RUNNING)
    second = agent("002.piglet", config=Config("b = 2"), installed_commit="c0ffee")
    agents.insert_many([first, second])
    assert [agents.get(1, key) for key in (PIGLET, "002.piglet")] == [first, second]
    agents.delete(1, PIGLET)
    assert list(agents.iter()) == [second]
    agents.delete(1, PIGLET)
    with pytest.raises(KeyExistsError):
        agents.insert(second)


def test_agents_come_by_node_and_then_by_key(agents: Agents) -> None:
    given = [agent(key, node) for node, key in product((0, 1, 256, 2**32 - 1), ("", "001.hog", PIGLET))]
    agents.insert_many(reversed(given))
    assert list(agents.iter()) == given
    assert list(agents.iter(prefix=(1,))) == [each for each in given if each.node_id == 1]
    assert list(agents.iter(prefix=(1,), reverse=True)) == [each for each in reversed(given) if each.node_id == 1]
