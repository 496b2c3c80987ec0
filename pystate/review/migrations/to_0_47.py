"""From 0.46, and from each alpha of 0.47, to 0.47: three new families, and what hosts report of agents and services.

A row of ``agents`` or ``external services`` gets four more positions under the same key: version and commit of the
build, none; the lifecycle, not installed; the addresses, none::

    agent, old      [kind, status, config, draft]
    agent, new      [kind, status, config, draft, version, commit, lifecycle, addresses]
    service, old    [kind, status, draft]
    service, new    [kind, status, draft, version, commit, lifecycle, addresses]

A row that has the new shape keeps its bytes, also with a lifecycle that has no name here. Configurations are texts,
whatever stands in them: they were checked by whoever stored them.
"""

from __future__ import annotations

from typing import TypeAlias

from pystate import Rewriting
from pystate.formats import Migration, Step, StepContext, rewrite_values
from pystate.review.agent import AgentKind
from pystate.review.external_service import ExternalServiceKind
from pystate.review.migrations.shapes import RowValue, encode_value, shape_of
from pystate.review.packages import Status
from pystate.review.stored import U8

__all__ = ["MIGRATION", "NewAgentValue", "NewServiceValue", "OldAgentValue", "OldServiceValue"]

_AGENTS = "agents"
_SERVICES = "external services"
_NOT_INSTALLED = 0

_Addresses: TypeAlias = tuple[tuple[str, str], ...]


class OldAgentValue(RowValue, frozen=True):
    """An agent; its node and its key are its key."""

    kind: AgentKind
    status: Status
    config: str | None
    draft: str | None


class NewAgentValue(RowValue, frozen=True):
    """An agent with what its host reports."""

    kind: AgentKind
    status: Status
    config: str | None
    draft: str | None
    installed_version: str | None
    installed_commit: str | None
    lifecycle: U8
    bound_addrs: _Addresses


class OldServiceValue(RowValue, frozen=True):
    """An external service; its node and its key are its key."""

    kind: ExternalServiceKind
    status: Status
    draft: str | None


class NewServiceValue(RowValue, frozen=True):
    """An external service with what its host reports."""

    kind: ExternalServiceKind
    status: Status
    draft: str | None
    installed_version: str | None
    installed_commit: str | None
    lifecycle: U8
    bound_addrs: _Addresses


old_agent, new_agent = shape_of(OldAgentValue), shape_of(NewAgentValue)
old_service, new_service = shape_of(OldServiceValue), shape_of(NewServiceValue)


def _installed_agent(old: OldAgentValue) -> bytes:
    return encode_value(NewAgentValue(old.kind, old.status, old.config, old.draft, None, None, _NOT_INSTALLED, ()))


def _installed_service(old: OldServiceValue) -> bytes:
    return encode_value(NewServiceValue(old.kind, old.status, old.draft, None, None, _NOT_INSTALLED, ()))


def extend_agents(rewriting: Rewriting, context: StepContext) -> None:
    """Give agents what hosts report of them.

    Raises:
        UnknownShapeError: an agent has neither shape.
    """
    rewrite_values(
        rewriting,
        _AGENTS,
        current=new_agent,
        old=old_agent,
        convert=_installed_agent,
        kind="agent",
        progress=context.progress,
    )


def extend_services(rewriting: Rewriting, context: StepContext) -> None:
    """Give external services what hosts report of them.

    Raises:
        UnknownShapeError: a service has neither shape.
    """
    rewrite_values(
        rewriting,
        _SERVICES,
        current=new_service,
        old=old_service,
        convert=_installed_service,
        kind="external service",
        progress=context.progress,
    )


MIGRATION = Migration(
    ">=0.46.0,<0.47.0-alpha.2",
    "0.47.0-alpha.2",
    [
        Step.creating("core components", "customer deletion jobs", "operation attempts"),
        Step("give agents what hosts report", extend_agents, needs=[_AGENTS]),
        Step("give external services what hosts report", extend_services, needs=[_SERVICES]),
    ],
)
"""The migration. The next alpha with another format extends it, and a 0.46 comes to the newest in one go."""
