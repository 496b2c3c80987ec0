"""`Agent`: a package that collects or analyses, as a node has it; and the table of agents.

An agent is known by its node and its key, ``<instance>.<service>``. Any number of agents of one node may be of one
kind.
"""

from __future__ import annotations

import msgspec

from pystate.review.lifecycle import Lifecycle
from pystate.review.packages import BoundAddrs, Config, ConfigValue, NodePackages, Status, freeze_bound_addrs
from pystate.review.stored import U32, StoredEnum
from pystate.tables import Key, Schema, rest_text, uint32

__all__ = ["AGENTS", "Agent", "AgentKind", "Agents"]


class AgentKind(StoredEnum):
    """What an agent does."""

    UNSUPERVISED = 0, 1
    SENSOR = 1, 2
    SEMI_SUPERVISED = 2, 3
    TIME_SERIES_GENERATOR = 3, 4


class Agent(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """An agent of a node. `Agent.new` makes one that nothing is known of yet.

    Attributes:
        node_id: the node.
        key: the instance and the service, for example ``001.piglet``; unique in the node.
        kind: what it does.
        status: how the last reload of its configuration went.
        config: its configuration; None: it has none.
        draft: the configuration that it is to have; None: there is none.
        installed_version, installed_commit: the build, as the host reports it; None: not known.
        lifecycle: its state, as the host reports it.
        bound_addrs: where it listens, as the host reports it. A list is taken too, and becomes a tuple.
    """

    node_id: U32
    key: str
    kind: AgentKind
    status: Status
    config: Config | None
    draft: Config | None
    installed_version: str | None
    installed_commit: str | None
    lifecycle: Lifecycle
    bound_addrs: BoundAddrs

    def __post_init__(self) -> None:
        freeze_bound_addrs(self)

    @classmethod
    def new(
        cls,
        *,
        node_id: int,
        key: str,
        kind: AgentKind,
        status: Status = Status.ENABLED,
        config: str | None = None,
        draft: str | None = None,
    ) -> Agent:
        """An agent of which no host has reported anything: not installed, no build, no addresses.

        Arguments:
            config, draft: texts of TOML documents.

        Raises:
            InvalidConfigError: one of the texts is none.
        """
        return cls(
            node_id=node_id,
            key=key,
            kind=kind,
            status=status,
            config=None if config is None else Config(config),
            draft=None if draft is None else Config(draft),
            installed_version=None,
            installed_commit=None,
            lifecycle=Lifecycle.NOT_INSTALLED,
            bound_addrs=(),
        )


_KEY = Key(node_id=uint32, key=rest_text)

AGENTS: Schema[Agent] = Schema(Agent, family="agents", key=_KEY, value=ConfigValue(Agent, _KEY, "config", "draft"))
"""The schema of the family. `Agents` has all operations of a table."""


class Agents(NodePackages[Agent]):
    """The agents of a store, of a transaction, or as of a view. `ReviewStore.agents` makes it."""

    __slots__ = ()
