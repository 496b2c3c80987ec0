"""`ExternalService`: a package that others use, as a node has it; and the table of external services.

As an `Agent`, but the service itself holds its configuration: only the draft of it is stored.
"""

from __future__ import annotations

import msgspec

from pystate.review.lifecycle import Lifecycle
from pystate.review.packages import BoundAddrs, Config, ConfigValue, NodePackages, Status, freeze_bound_addrs
from pystate.review.stored import U32, StoredEnum
from pystate.tables import Key, Schema, rest_text, uint32

__all__ = ["EXTERNAL_SERVICES", "ExternalService", "ExternalServiceKind", "ExternalServices"]


class ExternalServiceKind(StoredEnum):
    """What an external service does."""

    DATA_STORE = 0, 1
    TI_CONTAINER = 1, 2


class ExternalService(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """An external service of a node. `ExternalService.new` makes one that nothing is known of yet.

    Attributes:
        node_id: the node.
        key: the instance and the service, for example ``001.giganto``; unique in the node.
        kind: what it does.
        status: how the last reload of its configuration went.
        draft: the configuration that it is to have; None: there is none.
        installed_version, installed_commit: the build, as the host reports it; None: not known.
        lifecycle: its state, as the host reports it.
        bound_addrs: where it listens, as the host reports it. A list is taken too, and becomes a tuple.
    """

    node_id: U32
    key: str
    kind: ExternalServiceKind
    status: Status
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
        kind: ExternalServiceKind,
        status: Status = Status.ENABLED,
        draft: str | None = None,
    ) -> ExternalService:
        """A service of which no host has reported anything: not installed, no build, no addresses.

        Arguments:
            draft: the text of a TOML document.

        Raises:
            InvalidConfigError: the text is none.
        """
        return cls(
            node_id=node_id,
            key=key,
            kind=kind,
            status=status,
            draft=None if draft is None else Config(draft),
            installed_version=None,
            installed_commit=None,
            lifecycle=Lifecycle.NOT_INSTALLED,
            bound_addrs=(),
        )


_KEY = Key(node_id=uint32, key=rest_text)

EXTERNAL_SERVICES: Schema[ExternalService] = Schema(
    ExternalService, family="external services", key=_KEY, value=ConfigValue(ExternalService, _KEY, "draft")
)
"""The schema of the family. `ExternalServices` has all operations of a table."""


class ExternalServices(NodePackages[ExternalService]):
    """The external services of a store, of a transaction, or as of a view. `ReviewStore.external_services` makes it."""

    __slots__ = ()
