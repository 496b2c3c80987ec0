"""`Node`: a host with its agents and external services, put together from three families; and what of it is stored.

In family ``nodes`` stands an `Inner`: the node itself, and the keys of its agents and services. These stand in families
of their own, under the id of the node and their key.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pystate.review.agent import Agent
from pystate.review.external_service import ExternalService
from pystate.review.records import KeyedValue, freeze
from pystate.review.stored import U32, Instant
from pystate.tables import IndexedSchema, Key, rest_text

__all__ = ["NODES", "FoundNode", "Inner", "Node", "NodeUpdate", "Profile", "RemovedNode"]


class Profile(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Whose a node is, and how it is reached.

    Attributes:
        customer_id: whose it is.
        description: for people.
        hostname: no other node may have it, in its profile or in the draft of that; the empty one neither.
    """

    customer_id: U32
    description: str
    hostname: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node with everything that belongs to it.

    Attributes:
        id: given by the table; ignored when storing a new one.
        name: its key, not empty.
        name_draft: the name that it is to have; None is none.
        profile: None is none.
        profile_draft: the profile that it is to have; None is none.
        agents, external_services: in an order that is kept; no two agents have the same key, nor do two services.
            Their ``node_id`` is that of the node, whatever is given when storing. Lists are taken too, and become
            tuples.
        creation_time: when it was made; no update changes it.
    """

    id: U32
    name: str
    name_draft: str | None
    profile: Profile | None
    profile_draft: Profile | None
    agents: tuple[Agent, ...]
    external_services: tuple[ExternalService, ...]
    creation_time: Instant

    def __post_init__(self) -> None:
        freeze(self, "agents", "external_services")

    def to_update(self) -> NodeUpdate:
        """What `Nodes.update` takes for a node that is like this one."""
        return NodeUpdate(
            name=self.name,
            name_draft=self.name_draft,
            profile=self.profile,
            profile_draft=self.profile_draft,
            agents=self.agents,
            external_services=self.external_services,
        )


class NodeUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is, or is to be. `Node.to_update` makes one.

    Attributes:
        name: None is the name that it has, whatever that is. Everything else is meant as it stands, None and empty too.
        name_draft, profile, profile_draft, agents, external_services: see `Node`.
    """

    name: str | None
    name_draft: str | None
    profile: Profile | None
    profile_draft: Profile | None
    agents: tuple[Agent, ...]
    external_services: tuple[ExternalService, ...]

    def __post_init__(self) -> None:
        freeze(self, "agents", "external_services")


class FoundNode(NamedTuple):
    """What `Nodes.get_by_id` found.

    Attributes:
        node: with the agents and services that are there.
        invalid_agents, invalid_external_services: the keys of those that the node names and that are not there.
    """

    node: Node
    invalid_agents: list[str]
    invalid_external_services: list[str]


class RemovedNode(NamedTuple):
    """What `Nodes.remove` removed.

    Attributes:
        name: the key of the node's row.
        invalid_agents, invalid_external_services: the keys of those that could not be deleted. One that is not there
            counts as deleted and what cannot be deleted fails the whole, so both are empty.
    """

    name: bytes
    invalid_agents: list[str]
    invalid_external_services: list[str]


class Inner(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """What stands in family ``nodes``: a node with the keys of its agents and services. For other fields see `Node`."""

    id: U32
    name: str
    name_draft: str | None
    profile: Profile | None
    profile_draft: Profile | None
    creation_time: Instant
    agents: tuple[str, ...]
    external_services: tuple[str, ...]


_KEY = Key(name=rest_text)

NODES: IndexedSchema[Inner] = IndexedSchema(Inner, family="nodes", key=_KEY, value=KeyedValue(Inner, _KEY))
"""The schema of the family. No `IndexedTable`: only `Nodes` writes here."""
