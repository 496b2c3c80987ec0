"""Nodes with agents and services, and states in memory to put them in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from pystate.review.agent import Agent, AgentKind
from pystate.review.external_service import ExternalService, ExternalServiceKind
from pystate.review.lifecycle import Lifecycle
from pystate.review.node import Node, Profile

__all__ = ["THEN", "agent", "changed", "node", "profile", "service"]

S = TypeVar("S", bound=msgspec.Struct)

THEN = datetime(2000, 2, 29, 12, 34, 56, 123456, tzinfo=UTC)


def profile(hostname: str, customer_id: int = 7) -> Profile:
    return Profile(customer_id=customer_id, description="", hostname=hostname)


def agent(key: str, node_id: int = 456, **fields: Any) -> Agent:
    """An agent of which a host has reported something, so that every field says something."""
    new = Agent.new(node_id=node_id, key=key, kind=AgentKind.SENSOR, config="a = 1", draft="a = 2")
    reported = {
        "installed_version": "0.47.0",
        "installed_commit": "c0ffee",
        "lifecycle": Lifecycle.RUNNING,
        "bound_addrs": (("addr", "host:1234"),),
    }
    return changed(new, **reported | fields)


def service(key: str, node_id: int = 456, **fields: Any) -> ExternalService:
    new = ExternalService.new(node_id=node_id, key=key, kind=ExternalServiceKind.DATA_STORE, draft="c = 3")
    return changed(new, **fields)


def node(name: str, hostname: str | None = None, **fields: Any) -> Node:
    """A node without a draft; without a hostname it has no profile."""
    plain = Node(
        id=123,
        name=name,
        name_draft=None,
        profile=None if hostname is None else profile(hostname),
        profile_draft=None,
        agents=(),
        external_services=(),
        creation_time=THEN,
    )
    return changed(plain, **fields)


def changed(record: S, **fields: Any) -> S:
    """The same record but for these fields."""
    return msgspec.structs.replace(record, **fields)
