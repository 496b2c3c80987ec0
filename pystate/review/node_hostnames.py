"""Which node has which hostname: a scan over all nodes, in the state or transaction of the caller.

A transaction that has scanned all nodes commits only if none of them has changed and none was added since. That, and
nothing else, keeps hostnames apart when several writers race.
"""

from __future__ import annotations

from collections.abc import Iterator

from pystate import FamilyReader
from pystate.errors import HostnameInUseError
from pystate.review.node import NODES, Inner, Profile

__all__ = ["check_hostnames", "node_with_hostname"]


def check_hostnames(rows: FamilyReader, *profiles: Profile | None, of: int | None) -> None:
    """Refuse profiles with a hostname that another node has, in its profile or in the draft of it.

    Arguments:
        rows: family ``nodes``.
        profiles: of the node that is to be written, and their drafts.
        of: the id of that node; None when it is a new one.

    Raises:
        HostnameInUseError: so it is. DecodeError: a node cannot be read.
    """
    wanted = [profile.hostname for profile in profiles if profile is not None]
    if not wanted:
        return
    used: dict[str, Inner] = {}
    for inner in _all(rows):
        if inner.id != of:
            for profile in (inner.profile, inner.profile_draft):
                if profile is not None:
                    used.setdefault(profile.hostname, inner)
    for hostname in wanted:
        if (holder := used.get(hostname)) is not None:
            raise HostnameInUseError(hostname=hostname, node_id=holder.id, node_name=holder.name)


def node_with_hostname(rows: FamilyReader, hostname: str) -> Inner | None:
    """The first node, by name, whose profile has this hostname; a draft does not count.

    Raises:
        DecodeError: a node before it cannot be read.
    """
    for inner in _all(rows):
        if inner.profile is not None and inner.profile.hostname == hostname:
            return inner
    return None


def _all(rows: FamilyReader) -> Iterator[Inner]:
    return (NODES.decode(key, value) for key, value in NODES.scan(rows))
