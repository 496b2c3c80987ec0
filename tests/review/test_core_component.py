"""Core components: two texts as a key, one row for each pair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import pystate
from pystate import Store
from pystate.errors import DecodeError, KeyExistsError, NoSuchEntryError, ValueMismatchError
from pystate.review.core_component import CORE_COMPONENTS, CoreComponent, CoreComponents
from pystate.review.lifecycle import Lifecycle
from tests.review.plain_tables import fields_in

FAMILY = "core components"
HOST = "host-01.example.com"


def component(name: str = "roxyd", host: str = HOST, **fields: Any) -> CoreComponent:
    given: dict[str, Any] = {
        "installed_version": "0.46.0",
        "installed_commit": "c0ffee",
        "lifecycle": Lifecycle.RUNNING,
        "installer_managed": False,
    }
    return CoreComponent(component=name, host=host, **given | fields)


def changed(record: CoreComponent, **fields: Any) -> CoreComponent:
    return msgspec.structs.replace(record, **fields)


@pytest.fixture
def store() -> Iterator[Store]:
    with pystate.memory(families=[FAMILY]) as opened:
        yield opened


@pytest.fixture
def components(store: Store) -> CoreComponents:
    return CoreComponents(CORE_COMPONENTS, store)


# ---- what is stored -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.46.0", "", None])
@pytest.mark.parametrize("commit", ["c0ffee", "", None])
def test_version_and_commit_come_back_present_or_not(
    components: CoreComponents, version: str | None, commit: str | None
) -> None:
    """Check R113: every combination."""
    given = component(installed_version=version, installed_commit=commit)
    components.insert(given)
    assert components.get("roxyd", HOST) == given
    assert components.get(component="roxyd", host=HOST) == given


def test_a_lifecycle_of_a_later_version_reads_as_unknown(store: Store, components: CoreComponents) -> None:
    """Check R114: every other field intact; writing the record again stores 6."""
    given = component(installer_managed=True)
    components.insert(given)
    ((key, value),) = store.family(FAMILY).items()
    fields = fields_in(value)
    store.family(FAMILY)[key] = msgspec.msgpack.encode([*fields[:2], 9, *fields[3:]])

    read = components.get("roxyd", HOST)
    assert read == changed(given, lifecycle=Lifecycle.UNKNOWN)
    components.put(read)
    assert fields_in(store.family(FAMILY)[key]) == [*fields[:2], 6, *fields[3:]]


def test_the_value_is_the_four_fields_that_are_not_in_the_key(store: Store, components: CoreComponents) -> None:
    """Check R123: as what the value decodes to."""
    components.insert(component())
    assert fields_in(store.family(FAMILY)[CORE_COMPONENTS.key.encode("roxyd", HOST)]) == ["0.46.0", "c0ffee", 2, False]


def test_installer_managed_comes_back(components: CoreComponents) -> None:
    """Check R122: true for bootroot, false for review."""
    components.insert_many([component("bootroot", installer_managed=True), component("review")])
    found = {each.component: each.installer_managed for each in components.iter()}
    assert found == {"bootroot": True, "review": False}


# ---- keys -----------------------------------------------------------------------------------------------------------


def test_the_key_is_each_text_after_its_length() -> None:
    key = CORE_COMPONENTS.row_key(component())
    assert key == b"\x00\x00\x00\x05roxyd\x00\x00\x00\x13host-01.example.com"


def test_texts_that_join_to_the_same_are_two_rows(components: CoreComponents) -> None:
    """Check R115: ("ab", "c") and ("a", "bc")."""
    one, other = component("ab", "c"), component("a", "bc", installed_version=None)
    assert CORE_COMPONENTS.row_key(one) != CORE_COMPONENTS.row_key(other)
    components.insert(one)
    components.insert(other)
    assert components.get("ab", "c") == one
    assert components.get("a", "bc") == other


@pytest.mark.parametrize(
    "key",
    [
        CORE_COMPONENTS.key.encode("roxyd", HOST) + b"\x00",
        b"\x01\x61",
        b"",
        b"\x00\x00\x00\x01a",
        b"\x00\x00\x00\x01a\x00\x00\x00\x02h",
        b"\xff\xff\xff\xffa\x00\x00\x00\x01h",
        b"\x00\x00\x00\x01\xff\x00\x00\x00\x01h",
    ],
    ids=["surplus", "01 61", "empty", "one half", "short", "length past the end", "not UTF-8"],
)
def test_what_is_no_key_is_not_read_as_one(key: bytes) -> None:
    """Check R116: a surplus byte, 01 61 and the empty key; and others."""
    value = CORE_COMPONENTS.encode(component())
    with pytest.raises(DecodeError):
        CORE_COMPONENTS.decode(key, value)


def test_a_row_under_a_key_that_is_none_is_reported_by_iteration(store: Store, components: CoreComponents) -> None:
    """Check R124: key 01 61; it can be deleted by the key that the error has."""
    components.insert(component())
    store.family(FAMILY)[b"\x01\x61"] = CORE_COMPONENTS.encode(component())
    with pytest.raises(DecodeError):
        list(components.iter())
    (good, bad) = components.iter_results()
    assert good == (component(), None)
    assert bad[1] is not None and bad[1].key == b"\x01\x61"
    components.delete_row(bad[1].key)
    assert list(components.iter()) == [component()]


def test_a_row_under_the_empty_key_is_passed_over(store: Store, components: CoreComponents) -> None:
    components.insert(component())
    store.family(FAMILY)[b""] = b"ids"
    for reverse in (False, True):
        assert list(components.iter(reverse=reverse)) == [component()]


# ---- reading in order -----------------------------------------------------------------------------------------------


def test_a_shorter_name_comes_first(components: CoreComponents) -> None:
    """Check R117: roxyd before bootroot, by `iter` and under the empty prefix; as lengths come first in the key."""
    roxyd, bootroot = component(), component("bootroot", installer_managed=True)
    components.insert_many([bootroot, roxyd])
    assert list(components.iter()) == [roxyd, bootroot]
    assert list(components.iter(prefix=b"")) == [roxyd, bootroot]
    assert list(components.iter(prefix=())) == [roxyd, bootroot]
    assert list(components.iter(reverse=True)) == [bootroot, roxyd]


def test_all_hosts_of_a_component_are_a_prefix(components: CoreComponents) -> None:
    roxyds = [component("roxyd", f"host-0{number}.example.com") for number in (1, 2, 3)]
    components.insert_many([component("review"), *roxyds, component("roxy")])
    assert list(components.iter(prefix=("roxyd",))) == roxyds


# ---- writing --------------------------------------------------------------------------------------------------------


def test_installing_a_pair_twice_is_refused(components: CoreComponents) -> None:
    """Check R118: by `insert`; the first stays the only one."""
    first = component()
    components.insert(first)
    with pytest.raises(KeyExistsError):
        components.insert(component(installed_version="0.47.0"))
    assert list(components.iter()) == [first]


def test_deleting_one_host_leaves_the_others(components: CoreComponents) -> None:
    """Check R119: and a host that has none is no error."""
    hosts = [f"host-0{number}.example.com" for number in (1, 2, 3)]
    components.insert_many([component(host=host) for host in hosts])
    components.delete("roxyd", hosts[1])
    components.delete("roxyd", "host-99.example.com")
    assert [each.host for each in components.iter()] == [hosts[0], hosts[2]]
    assert components.get("roxyd", hosts[1]) is None


def test_an_update_from_what_is_not_stored_is_refused(components: CoreComponents) -> None:
    """Check R120: another lifecycle, and a pair that is absent."""
    stored = component()
    components.insert(stored)
    with pytest.raises(ValueMismatchError):
        components.update(changed(stored, lifecycle=Lifecycle.STOPPED), changed(stored, lifecycle=Lifecycle.FAILED))
    absent = component("review")
    with pytest.raises(NoSuchEntryError):
        components.update(absent, changed(absent, lifecycle=Lifecycle.FAILED))
    assert list(components.iter()) == [stored]


def test_an_update_may_move_the_row_but_not_onto_another(components: CoreComponents) -> None:
    """Check R121: from host-01 to host-02; refused when host-02 has one, and both stay."""
    first = component()
    second = changed(first, host="host-02.example.com")
    components.insert(first)
    components.update(first, second)
    assert list(components.iter()) == [second]

    components.insert(first)
    with pytest.raises(KeyExistsError):
        components.update(first, changed(second, installed_version="0.47.0"))
    assert list(components.iter()) == [first, second]


def test_put_replaces_what_is_there(components: CoreComponents) -> None:
    components.put(component())
    components.put(component(lifecycle=Lifecycle.FAILED))
    assert list(components.iter()) == [component(lifecycle=Lifecycle.FAILED)]
