"""External services: as agents, without a configuration of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import pystate
from pystate import Store
from pystate.errors import DecodeError, InvalidConfigError, InvalidRecordError
from pystate.review.external_service import (
    EXTERNAL_SERVICES,
    ExternalService,
    ExternalServiceKind,
    ExternalServices,
)
from pystate.review.lifecycle import Lifecycle
from pystate.review.packages import Status
from tests.review.plain_tables import fields_in

FAMILY = "external services"
STORE = "001.store"


def service(key: str = STORE, node_id: int = 1, **fields: Any) -> ExternalService:
    made = ExternalService.new(
        node_id=node_id, key=key, kind=ExternalServiceKind.DATA_STORE, status=Status.ENABLED, draft="c = 3"
    )
    return changed(made, **fields)


def changed(record: ExternalService, **fields: Any) -> ExternalService:
    return msgspec.structs.replace(record, **fields)


@pytest.fixture
def store() -> Iterator[Store]:
    with pystate.memory(families=[FAMILY]) as opened:
        yield opened


@pytest.fixture
def services(store: Store) -> ExternalServices:
    return ExternalServices(EXTERNAL_SERVICES, store)


def test_kinds_have_stored_indexes_numbers_and_texts() -> None:
    assert [(each.value, each.number, each.text) for each in ExternalServiceKind] == [
        (0, 1, "data_store"),
        (1, 2, "ti_container"),
    ]


def test_a_new_service_has_nothing_reported() -> None:
    """Check R125: as a new agent, for services; it has no configuration, only a draft."""
    made = ExternalService.new(
        node_id=1, key=STORE, kind=ExternalServiceKind.TI_CONTAINER, status=Status.DISABLED, draft="my_key=10"
    )
    assert (made.installed_version, made.installed_commit, made.bound_addrs) == (None, None, ())
    assert made.lifecycle is Lifecycle.NOT_INSTALLED
    assert (made.status, made.draft) == (Status.DISABLED, "my_key=10")
    assert not hasattr(made, "config")
    with pytest.raises(InvalidConfigError):
        ExternalService.new(node_id=1, key=STORE, kind=ExternalServiceKind.DATA_STORE, draft="invalid")
    bare = ExternalService.new(node_id=1, key=STORE, kind=ExternalServiceKind.DATA_STORE)
    assert (bare.status, bare.draft) == (Status.ENABLED, None)


def test_text_that_nobody_checked_is_not_stored(services: ExternalServices) -> None:
    with pytest.raises(InvalidRecordError, match="field 'draft': a Config or None expected, not str"):
        services.put(service(draft="a = 1"))
    assert list(services.iter()) == []


def test_the_row_is_the_key_and_seven_fields(store: Store, services: ExternalServices) -> None:
    services.insert(service(bound_addrs=(("addr", "host:1234"),)))
    ((key, value),) = store.family(FAMILY).items()
    assert key == b"\x00\x00\x00\x01001.store"
    assert fields_in(value) == [0, 1, "c = 3", None, None, 0, [["addr", "host:1234"]]]


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("lifecycle", Lifecycle)
def test_status_and_lifecycle_are_independent(services: ExternalServices, status: Status, lifecycle: Lifecycle) -> None:
    """Check R127: all 28 pairs, for services."""
    given = service(status=status, lifecycle=lifecycle)
    services.insert(given)
    assert services.get(1, STORE) == given


def test_a_lifecycle_of_a_later_version_reads_as_unknown(store: Store, services: ExternalServices) -> None:
    """Check R128: all else intact, for services; writing it again stores 6."""
    given = service(installed_version="0.47.0", installed_commit="c0ffee", bound_addrs=(("addr", "host:1234"),))
    services.insert(given)
    ((key, value),) = store.family(FAMILY).items()
    fields = fields_in(value)
    store.family(FAMILY)[key] = msgspec.msgpack.encode([*fields[:5], 9, *fields[6:]])
    read = services.get(1, STORE)
    assert read == changed(given, lifecycle=Lifecycle.UNKNOWN)
    services.put(read)
    assert fields_in(store.family(FAMILY)[key]) == [*fields[:5], 6, *fields[6:]]


@pytest.mark.parametrize("lifecycle", Lifecycle)
def test_a_lifecycle_is_one_small_int_in_the_value(
    store: Store, services: ExternalServices, lifecycle: Lifecycle
) -> None:
    """Check R133: the same bytes whether it is written as an int or as a member of the enum; for services."""
    services.insert(service(lifecycle=lifecycle))
    (value,) = store.family(FAMILY).values()
    fields = fields_in(value)
    assert msgspec.msgpack.encode([*fields[:5], lifecycle, *fields[6:]]) == value
    assert msgspec.msgpack.encode([*fields[:5], lifecycle.to_stored_index(), *fields[6:]]) == value


def test_addresses_keep_their_order(services: ExternalServices) -> None:
    """Check R129: three pairs, for services; lists are taken too."""
    given = service(bound_addrs=[["z", "host:2"], ["a", "host:1"], ["z", "host:2"]])
    assert given.bound_addrs == (("z", "host:2"), ("a", "host:1"), ("z", "host:2"))
    services.insert(given)
    assert services.get(1, STORE) == given


def test_an_update_of_one_install_field_keeps_the_others(services: ExternalServices) -> None:
    """Check R130: the lifecycle alone, then the commit alone; for services."""
    installing = service(installed_version="0.47.0", installed_commit="deadbeef", lifecycle=Lifecycle.INSTALLING)
    services.insert(installing)
    running = changed(installing, lifecycle=Lifecycle.RUNNING)
    services.update(installing, running)
    other_commit = changed(running, installed_commit="c0ffee")
    services.update(running, other_commit)
    read = services.get(1, STORE)
    assert read == other_commit
    assert (read.installed_version, read.lifecycle) == ("0.47.0", Lifecycle.RUNNING)


def test_services_come_in_key_order(services: ExternalServices) -> None:
    """Check R132: 001.store, 002.store, also under the empty prefix; deleting the first leaves the second."""
    first, second = service(), service("002.store", lifecycle=Lifecycle.RUNNING)
    services.insert_many([second, first])
    assert list(services.iter()) == [first, second]
    assert list(services.iter(prefix=b"")) == [first, second]
    assert list(services.iter(prefix=(1,), reverse=True)) == [second, first]
    services.delete(1, STORE)
    services.delete(2, "002.store")
    assert list(services.iter()) == [second]


def test_a_row_under_a_key_that_is_too_short_is_reported(store: Store, services: ExternalServices) -> None:
    store.family(FAMILY)[b"\x00\x00\x01"] = EXTERNAL_SERVICES.encode(service())
    with pytest.raises(DecodeError, match="4 bytes expected"):
        list(services.iter())
