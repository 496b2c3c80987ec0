"""`CoreComponent`: the four packages of the manager itself, on the hosts where they are; and their table.

There is at most one row for each pair of component and host. Nothing here knows the names of the four: any text is
stored. The two halves of the key are each written after their length, so ("ab", "c") and ("a", "bc") are two rows, and
a shorter name comes before a longer one.
"""

from __future__ import annotations

import msgspec

from pystate.review.lifecycle import Lifecycle
from pystate.tables import Key, PositionalValue, Readable, Scannable, Schema, Writable, segment

__all__ = ["CORE_COMPONENTS", "CoreComponent", "CoreComponents"]


class CoreComponent(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A package of the manager on a host.

    Attributes:
        component: the package: `review`, `aice-web-next`, `roxyd` or `bootroot`.
        host: where it is.
        installed_version, installed_commit: the build, as the host reports it; None: not known.
        lifecycle: its state, as the host reports it.
        installer_managed: it is updated with the installer only, as `bootroot` is; stored only, nothing here asks.
    """

    component: str
    host: str
    installed_version: str | None
    installed_commit: str | None
    lifecycle: Lifecycle
    installer_managed: bool


_KEY = Key(component=segment, host=segment)

CORE_COMPONENTS: Schema[CoreComponent] = Schema(
    CoreComponent, family="core components", key=_KEY, value=PositionalValue(CoreComponent, _KEY)
)
"""The schema of the family. `CoreComponents` has all operations of a table."""


class CoreComponents(Readable[CoreComponent], Scannable[CoreComponent], Writable[CoreComponent]):
    """The core components of a store, of a transaction, or as of a view. `ReviewStore.core_components` makes it.

    To install only where nothing is installed yet, use `insert`.
    """

    __slots__ = ()

    def get(self, component: str, host: str) -> CoreComponent | None:
        """This component on this host, or None.

        Raises:
            DecodeError: the row cannot be read. TypeError, ValueError: a text is none, or UTF-8 cannot hold it.
        """
        return super().get(component, host)

    def delete(self, component: str, host: str) -> None:
        """Delete this component on this host; no error when there is none, or when it cannot be read.

        Arguments:
            component, host: its key.

        Raises:
            TypeError, ValueError: it is no key of this table.
        """
        super().delete(component, host)
