"""The table of hosts: a customer and an address in the key."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate.errors import DecodeError, InvalidRecordError, KeyExistsError
from pystate.review.hosts import HOSTS, Host, Hosts


def new_hosts() -> Hosts:
    return Hosts(HOSTS, pystate.memory(families=["hosts"]))


def host(address: str, customer_id: int = 1) -> Host:
    return Host(
        customer_id=customer_id,
        address=address,
        creation_time=-5,
        opened_ports=(b"\x00\x50",),
        known_agents=(),
        unknown_agents=(b"a", b""),
    )


@given(st.integers(0, (1 << 32) - 1), st.ip_addresses())
def test_key_is_customer_and_address_bytes(customer_id: int, address: object) -> None:
    found = host(str(address), customer_id)
    key = HOSTS.row_key(found)
    assert key == customer_id.to_bytes(4, "big") + ip_address(str(address)).packed
    assert HOSTS.decode(key, HOSTS.encode(found)) == found
    assert found.ip == address


def test_address_is_brought_to_one_form() -> None:
    """So a host equals what is read back of it, however its address was written."""
    hosts = new_hosts()
    given_ = host("0000::00:1")
    hosts.insert(given_)
    assert given_.address == "::1"
    assert hosts.get(1, "0::1") == given_
    assert hosts.get(1, ip_address("::1")) == given_
    with pytest.raises(KeyExistsError):
        hosts.insert(host("::0:1"))
    hosts.delete(1, "::1")
    assert hosts.get(1, "::1") is None


def test_hosts_of_a_customer_are_a_prefix() -> None:
    hosts = new_hosts()
    for customer_id, address in [(2, "10.0.0.1"), (1, "10.0.0.10"), (1, "10.0.0.9"), (1, "::1")]:
        hosts.put(host(address, customer_id))
    assert [each.address for each in hosts.iter(prefix=(1,))] == ["::1", "10.0.0.9", "10.0.0.10"]
    assert [each.customer_id for each in hosts.iter()] == [1, 1, 1, 2]


def test_lists_become_tuples() -> None:
    lists: Any = {"opened_ports": [b"a"], "known_agents": [], "unknown_agents": [b"", b"b"]}
    given_ = Host(customer_id=1, address="::1", creation_time=0, **lists)
    hosts = new_hosts()
    hosts.put(given_)
    assert hosts.get(1, "::1") == given_
    assert given_.opened_ports == (b"a",)


@pytest.mark.parametrize("address", ["", "10.0.0", "fe80::1%eth0"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address|scope"):
        host(address)


def test_what_does_not_fit_is_refused_before_anything_is_written() -> None:
    hosts = new_hosts()
    for wrong in (host("::1", 1 << 32), host("::1", -1)):
        with pytest.raises(InvalidRecordError, match="customer_id"):
            hosts.put(wrong)
    assert list(hosts.iter()) == []


@pytest.mark.parametrize("size", [4, 5, 7, 9, 19, 21])
def test_key_with_another_length_cannot_be_read(size: int) -> None:
    """Nothing where the address should be, and addresses of no version."""
    value = HOSTS.encode(host("::1"))
    with pytest.raises(DecodeError, match="address"):
        HOSTS.decode(bytes(size), value)
