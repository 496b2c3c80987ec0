"""Host-network groups: sorted, without duplicates, and one form for one content."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.review.host_network_group import HostNetworkGroup, IPAddress, IPNetwork

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(HostNetworkGroup).decode

addresses = st.ip_addresses()


@st.composite
def networks(draw: st.DrawFn) -> IPNetwork:
    address = draw(addresses)
    prefix = draw(st.integers(0, 32 if address.version == 4 else 128))
    return ip_network((address.packed, prefix), strict=False)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[IPAddress, IPAddress]:
    of_one_version = draw(st.sampled_from([st.ip_addresses(v=4), st.ip_addresses(v=6)]))
    first, last = sorted([draw(of_one_version), draw(of_one_version)], key=int)
    return first, last


def test_empty_group_takes_no_more_than_four_bytes() -> None:
    group = HostNetworkGroup.new()
    assert (group.addresses, group.networks, group.ranges) == ((), (), ())
    assert encode(group) == bytes.fromhex("93 90 90 90")


def test_each_item_is_one_byte_string() -> None:
    """The form that is promised in the module, byte for byte."""
    group = HostNetworkGroup.new(
        addresses=["::1", "10.0.0.1"], networks=["10.0.0.0/8", "fe80::/10"], ranges=[("10.0.0.1", "10.0.0.9")]
    )
    assert group.packed_addresses == (bytes.fromhex("0a000001"), bytes(15) + b"\x01")
    assert group.packed_networks == (bytes.fromhex("0a00000008"), bytes.fromhex("fe80") + bytes(14) + b"\x0a")
    assert group.packed_ranges == (bytes.fromhex("0a0000010a000009"),)
    assert decode(encode(group)) == group


def test_order_is_version_then_number_then_length_or_end() -> None:
    group = HostNetworkGroup.new(
        addresses=["255.0.0.0", "::", "9.0.0.0", "10.0.0.0", "9.0.0.0"],
        networks=["::/0", "10.0.0.0/16", "10.0.0.0/8", "9.0.0.0/24", "10.0.0.0/8"],
        ranges=[("2.0.0.0", "3.0.0.0"), ("::", "::1"), ("1.0.0.0", "9.0.0.0"), ("1.0.0.0", "2.0.0.0")],
    )
    assert [str(address) for address in group.addresses] == ["9.0.0.0", "10.0.0.0", "255.0.0.0", "::"]
    assert [str(network) for network in group.networks] == ["9.0.0.0/24", "10.0.0.0/8", "10.0.0.0/16", "::/0"]
    assert [(str(first), str(last)) for first, last in group.ranges] == [
        ("1.0.0.0", "2.0.0.0"), ("1.0.0.0", "9.0.0.0"), ("2.0.0.0", "3.0.0.0"), ("::", "::1"),
    ]  # fmt: skip


@given(st.lists(addresses), st.lists(networks()), st.lists(ranges()), st.randoms(use_true_random=False))
def test_one_content_has_one_form(
    some: list[IPAddress], of: list[IPNetwork], between: list[tuple[IPAddress, IPAddress]], random: Any
) -> None:
    """Whatever the order and however often each is given; as text or as objects; and the order is that of ipaddress."""
    group = HostNetworkGroup.new(addresses=some, networks=of, ranges=between)
    assert set(group.addresses) == set(some)
    assert set(group.networks) == set(of)
    assert set(group.ranges) == set(between)
    given_: list[list[Any]] = [some, of, between]
    for items in given_:
        items.extend(items[:2])
        random.shuffle(items)
    again = HostNetworkGroup.new(
        addresses=map(str, some), networks=map(str, of), ranges=[(str(a), str(b)) for a, b in between]
    )
    assert again == group
    assert hash(again) == hash(group)
    assert encode(again) == encode(group)
    assert decode(encode(group)) == group
    for version in (4, 6):
        assert [each for each in group.addresses if each.version == version] == sorted(
            {each for each in some if each.version == version}, key=int
        )
        ordered = [each for each in group.networks if each.version == version]
        assert ordered == sorted(ordered, key=lambda each: (int(each.network_address), each.prefixlen))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"addresses": ["10.0.0"]}, "does not appear"),
        ({"addresses": ["fe80::1%eth0"]}, "scope"),
        ({"addresses": [IPv6Address("fe80::1%1")]}, "scope"),
        ({"networks": ["10.0.0.1/8"]}, "host bits"),
        ({"networks": ["fe80::%1/64"]}, "scope"),
        ({"ranges": [("10.0.0.2", "10.0.0.1")]}, "ends before"),
        ({"ranges": [("10.0.0.2", "::1")]}, "two"),
    ],
)
def test_what_is_no_item_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HostNetworkGroup.new(**arguments)


@pytest.mark.parametrize("arguments", [{"addresses": [1]}, {"addresses": [b"\0\0\0\0"]}, {"networks": [1]}])
def test_a_number_is_no_address(arguments: dict[str, Any]) -> None:
    """Though ``ipaddress`` takes one: it is more often a mistake than not."""
    with pytest.raises(TypeError):
        HostNetworkGroup.new(**arguments)


@pytest.mark.parametrize(
    "stored",
    [
        [[b"\0\0\0\2", b"\0\0\0\1"], [], []],
        [[b"\0\0\0\1", b"\0\0\0\1"], [], []],
        [[bytes(16), bytes(4)], [], []],
        [[bytes(5)], [], []],
        [[], [bytes(4)], []],
        [[], [bytes(4) + b"\x21"], []],
        [[], [b"\0\0\0\1\x08"], []],
        [[], [bytes(16) + b"\x81"], []],
        [[], [], [bytes(9)]],
        [[], [], [b"\0\0\0\2\0\0\0\1"]],
        [[], []],
        [[], [], [], []],
        [["10.0.0.1"], [], []],
    ],
)
def test_stored_group_that_is_not_in_its_one_form_is_refused(stored: list[Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode(stored))


def test_items_are_those_of_the_standard_library() -> None:
    group = HostNetworkGroup.new(
        addresses=[IPv4Address("10.0.0.1"), ip_address("::2")],
        networks=[IPv4Network("10.0.0.0/8"), IPv6Network("fe80::/10")],
    )
    assert [type(each) for each in group.addresses] == [IPv4Address, IPv6Address]
    assert [type(each) for each in group.networks] == [IPv4Network, IPv6Network]
