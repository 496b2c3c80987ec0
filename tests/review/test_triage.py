"""Triage policies, and what is left out of the scoring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pystate.errors import DecodeError, InvalidRecordError, KeyExistsError
from pystate.review.categories import EventCategory
from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.store import ReviewStore
from pystate.review.triage import (
    TRIAGE_POLICIES,
    Confidence,
    ExcludedDomains,
    ExcludedHostnames,
    ExcludedIpAddresses,
    ExcludedUris,
    Exclusion,
    PacketAttr,
    Response,
    TriageExclusionReason,
    TriagePolicy,
)
from pystate.tables import Fields
from tests.review.node_samples import THEN, changed


@pytest.fixture
def review() -> Iterator[ReviewStore]:
    with ReviewStore.memory() as review:
        yield review


def policy(name: str, customer_id: int | None = None, **fields: Any) -> TriagePolicy:
    plain = TriagePolicy(
        id=0,
        name=name,
        triage_exclusion_id=(3, 1),
        packet_attr=(
            PacketAttr(
                raw_event_kind=1,
                attr_name="a",
                value_kind=2,
                cmp_kind=3,
                first_value=b"1",
                second_value=None,
                weight=0.5,
            ),
        ),
        confidence=(
            Confidence(threat_category=EventCategory.RECONNAISSANCE, threat_kind="scan", confidence=0.9, weight=2.0),
            Confidence(threat_category=None, threat_kind="dns_tunnel", confidence=0.5, weight=None),
        ),
        response=(Response(minimum_score=1.5, kind=4),),
        creation_time=THEN,
        customer_id=customer_id,
    )
    return changed(plain, **fields)


def reason(name: str, what: Exclusion) -> TriageExclusionReason:
    return TriageExclusionReason(id=0, name=name, reason=what, description="d")


def test_row_of_a_policy(review: ReviewStore) -> None:
    """Section 11: customer, or ff ff ff ff, and name; all fields in order, each part an array of its own."""
    review.triage_policies.put(policy("p"))
    review.triage_policies.put(policy("p", 7))
    rows = review.store.family("triage policy")
    assert set(rows) == {b"", b"\xff\xff\xff\xffp", b"\0\0\0\x07p"}
    assert msgspec.msgpack.decode(rows[b"\xff\xff\xff\xffp"]) == [
        0,
        "p",
        [3, 1],
        [[1, "a", 2, 3, b"1", None, 0.5]],
        [[0, "scan", 0.9, 2.0], [None, "dns_tunnel", 0.5, None]],
        [[1.5, 4]],
        THEN,
        None,
    ]
    assert review.triage_policies.get(7, "p") == review.triage_policies.get_by_id(1) == policy("p", 7, id=1)
    assert review.triage_policies.get(None, "p") == policy("p")


def test_policies_of_customers_come_before_those_of_everybody(review: ReviewStore) -> None:
    for name, customer_id in [("a", None), ("b", 1), ("a", 300), ("a", 1)]:
        review.triage_policies.put(policy(name, customer_id))
    found = [(each.customer_id, each.name) for each in review.triage_policies.iter()]
    assert found == [(1, "a"), (1, "b"), (300, "a"), (None, "a")]
    assert [each.name for each in review.triage_policies.iter(prefix=(1,))] == ["a", "b"]
    assert [each.name for each in review.triage_policies.iter(prefix=(None,))] == ["a"]
    with pytest.raises(KeyExistsError):
        review.triage_policies.put(policy("a"))


def test_the_customer_that_stands_for_none_is_refused(review: ReviewStore) -> None:
    """Or its policies would be everybody's."""
    with pytest.raises(InvalidRecordError, match="4294967295"):
        review.triage_policies.put(policy("p", 4_294_967_295))
    with pytest.raises(ValueError, match="4294967295"):
        review.triage_policies.get(4_294_967_295, "p")
    assert review.triage_policies.count() == 0


def test_a_policy_may_move_to_another_customer(review: ReviewStore) -> None:
    id = review.triage_policies.put(policy("p"))  # noqa: A001
    moved = review.triage_policies.update(id, policy("p"), Fields(TRIAGE_POLICIES, name="p", customer_id=5))
    assert moved == review.triage_policies.get(5, "p") == policy("p", 5)
    rows = review.store.family("triage policy")
    rows.put(b"\0\0\0\x06p", rows[b"\0\0\0\x05p"])
    with pytest.raises(DecodeError, match="belongs under"):
        review.triage_policies.get(6, "p")


def test_lists_become_tuples(review: ReviewStore) -> None:
    plain = policy("p")
    parts = ("triage_exclusion_id", "packet_attr", "confidence", "response")
    given = changed(plain, **{field: list(getattr(plain, field)) for field in parts})
    assert given == plain
    excluded: Any = ["a", "b"]
    assert ExcludedDomains(domains=excluded).domains == ("a", "b")
    assert ExcludedHostnames(hostnames=excluded).hostnames == ("a", "b")
    assert ExcludedUris(uris=excluded).uris == ("a", "b")


@pytest.mark.parametrize(
    ("what", "stored"),
    [
        (
            ExcludedIpAddresses(group=HostNetworkGroup.new(networks=["10.0.0.0/8"])),
            [0, [[], [b"\x0a\0\0\0\x08"], []]],
        ),
        (ExcludedDomains(domains=("a.example",)), [1, ["a.example"]]),
        (ExcludedHostnames(hostnames=()), [2, []]),
        (ExcludedUris(uris=("/x", "/a")), [3, ["/x", "/a"]]),
    ],
    ids=["addresses", "domains", "hostnames", "uris"],
)
def test_reason_is_stored_with_the_number_of_its_kind(
    review: ReviewStore, what: Exclusion, stored: list[object]
) -> None:
    review.triage_exclusion_reasons.put(reason("r", what))
    assert review.triage_exclusion_reasons.get("r") == reason("r", what)
    row = review.store.family("triage exclusion reason")[b"r"]
    assert msgspec.msgpack.decode(row) == [0, "r", stored, "d"]


@pytest.mark.parametrize("stored", [[4, []], [1], [1, [], []], [1, [2]], [], 1, [0, []]])
def test_reason_of_no_kind_cannot_be_read(review: ReviewStore, stored: object) -> None:
    review.store.family("triage exclusion reason").put(b"r", msgspec.msgpack.encode([0, "r", stored, "d"]))
    with pytest.raises(DecodeError, match="reason"):
        review.triage_exclusion_reasons.get("r")


@pytest.mark.parametrize(
    "fields",
    [
        {"confidence": (Response(minimum_score=1.0, kind=1),)},
        {"triage_exclusion_id": (-1,)},
        {"packet_attr": (None,)},
        {"response": (Response(minimum_score="1", kind=1),)},  # type: ignore[arg-type]
        {"customer_id": -1},
    ],
    ids=["confidence", "exclusion", "attribute", "response", "customer"],
)
def test_what_could_not_be_read_again_is_refused(review: ReviewStore, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecordError):
        review.triage_policies.put(policy("p", **fields))
    assert review.triage_policies.count() == 0
