"""`TriagePolicy` and `TriageExclusionReason`: how events are scored, and what is left out of the scoring.

Two indexed tables. The kinds of events, values, comparisons and responses are numbers of other systems, and stand here
as plain ints.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from pystate.review.categories import EventCategory
from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.records import KeyedValue, freeze
from pystate.review.stored import U32, Instant
from pystate.tables import IndexedTable, Key, Part, rest_text, uint32

__all__ = [
    "TRIAGE_EXCLUSION_REASONS",
    "TRIAGE_POLICIES",
    "Confidence",
    "ExcludedDomains",
    "ExcludedHostnames",
    "ExcludedIpAddresses",
    "ExcludedUris",
    "Exclusion",
    "PacketAttr",
    "Response",
    "TriageExclusionReason",
    "TriagePolicy",
]


class PacketAttr(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """An attribute of a packet that counts.

    Attributes:
        raw_event_kind: the number of the kind of event.
        attr_name: of the attribute.
        value_kind, cmp_kind: the numbers of the kind of value and of the comparison.
        first_value, second_value: what is compared with, encoded by whoever compares.
        weight: how much it counts, if anything is said about that.
    """

    raw_event_kind: U32
    attr_name: str
    value_kind: U32
    cmp_kind: U32
    first_value: bytes
    second_value: bytes | None
    weight: float | None


class Confidence(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A kind of threat that counts from a confidence on.

    Attributes:
        threat_category: None is any.
        threat_kind: of the event.
        confidence: from here on.
        weight: how much it counts, if anything is said about that.
    """

    threat_category: EventCategory | None
    threat_kind: str
    confidence: float
    weight: float | None


class Response(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """What is done from a score on.

    Attributes:
        minimum_score: from here on.
        kind: the number of what is done.
    """

    minimum_score: float
    kind: U32


class TriagePolicy(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """How events are scored.

    Attributes:
        id: given by the table; ignored when storing a new one.
        name: with `customer_id` its key.
        triage_exclusion_id: the ids of `TriageExclusionReason` records.
        packet_attr, confidence, response: what counts, and what is done. Lists are taken too, and become tuples.
        creation_time: when it was made.
        customer_id: whose it is; None is everybody's. Not 4,294,967,295, which stands for None in the key.
    """

    id: U32
    name: str
    triage_exclusion_id: tuple[U32, ...]
    packet_attr: tuple[PacketAttr, ...]
    confidence: tuple[Confidence, ...]
    response: tuple[Response, ...]
    creation_time: Instant
    customer_id: U32 | None

    def __post_init__(self) -> None:
        freeze(self, "triage_exclusion_id", "packet_attr", "confidence", "response")


class _CustomerOrNone(Part[int | None]):
    """A `uint32` whose greatest value stands for None."""

    width = 4
    _none = (1 << 32) - 1

    def encode(self, value: int | None) -> bytes:
        if value == self._none:
            raise ValueError(f"{value} stands for None here; there is no customer with this id")
        return uint32.encode(self._none if value is None else value)

    def decode(self, data: bytes, at: int) -> tuple[int | None, int]:
        value, at = uint32.decode(data, at)
        return (None if value == self._none else value), at


_POLICY_KEY = Key(customer_id=_CustomerOrNone(), name=rest_text)

TRIAGE_POLICIES: IndexedTable[TriagePolicy] = IndexedTable(
    TriagePolicy, family="triage policy", key=_POLICY_KEY, value=KeyedValue(TriagePolicy, _POLICY_KEY)
)
"""The table of policies: those of each customer in the order of names, then those of everybody."""


class ExcludedIpAddresses(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, tag=0
):
    """Leaves out what has to do with these addresses, networks and ranges."""

    group: HostNetworkGroup


class ExcludedDomains(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """Leaves out what has to do with these domains."""

    domains: tuple[str, ...]

    def __post_init__(self) -> None:
        freeze(self, "domains")


class ExcludedHostnames(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """Leaves out what has to do with hosts of these names."""

    hostnames: tuple[str, ...]

    def __post_init__(self) -> None:
        freeze(self, "hostnames")


class ExcludedUris(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """Leaves out what has to do with these URIs."""

    uris: tuple[str, ...]

    def __post_init__(self) -> None:
        freeze(self, "uris")


Exclusion: TypeAlias = ExcludedIpAddresses | ExcludedDomains | ExcludedHostnames | ExcludedUris
"""What is left out. Stored as an array of two: the number of the kind, from 0 in this order, and what it names."""


class TriageExclusionReason(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Something that is left out of the scoring, and why.

    Attributes:
        id: given by the table; ignored when storing a new one.
        name: its key, not empty.
        reason: what is left out.
        description: for people.
    """

    id: U32
    name: str
    reason: Exclusion
    description: str


_REASON_KEY = Key(name=rest_text)

TRIAGE_EXCLUSION_REASONS: IndexedTable[TriageExclusionReason] = IndexedTable(
    TriageExclusionReason,
    family="triage exclusion reason",
    key=_REASON_KEY,
    value=KeyedValue(TriageExclusionReason, _REASON_KEY),
)
"""The table of what is left out."""
