"""`Nodes`: the nodes with their agents and external services, each operation in one commit over three families.

Promises: no two nodes have one name, and no hostname stands in the profile, or in the draft of it, of two nodes,
whoever races: who writes a hostname has read all others in the same transaction. A node, its agents and its services
change together or not at all. An operation that fails has changed nothing, in the transaction of a caller neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from pystate import FamilyReader, FamilyWriter, Store, Transaction, View, transact
from pystate.errors import (
    DecodeError,
    EntryChangedError,
    IdOutOfRangeError,
    NoSuchAgentError,
    NoSuchIdError,
)
from pystate.review.agent import AGENTS
from pystate.review.external_service import EXTERNAL_SERVICES
from pystate.review.node import NODES, FoundNode, Inner, Node, NodeUpdate, RemovedNode
from pystate.review.node_hostnames import check_hostnames, node_with_hostname
from pystate.review.node_members import (
    change_members,
    check_members,
    check_old_members,
    member_keys,
    of_node,
    read_members,
    remove_members,
    store_members,
)
from pystate.review.packages import Status
from pystate.tables import BoundIndexedTable, Fields, IndexProblem

__all__ = ["Nodes"]

T = TypeVar("T")
F_co = TypeVar("F_co", bound=FamilyReader, covariant=True)
_Result: TypeAlias = tuple[Node, None] | tuple[None, DecodeError]


class _Rows(NamedTuple, Generic[F_co]):
    """The three families, in one state or in one transaction."""

    nodes: F_co
    agents: F_co
    services: F_co


class Nodes:
    """The nodes of a store, of a transaction, or as of a view. `ReviewStore.nodes` makes it.

    Bound to a store, every writing method is one commit, tried again on a conflict; bound to a transaction, part of it;
    bound to a view, a ``TypeError``. Every reading method shows one state. Handles hold no state, so threads may share
    those of a store.

    Arguments:
        source: an open store, transaction or view that has the three families.

    Raises:
        FamilyNotFoundError: it has one of them not. ClosedError: it has ended.
    """

    __slots__ = ("_source",)

    def __init__(self, source: Store | Transaction | View) -> None:
        _rows(source)
        self._source = source

    @contextmanager
    def _reading(self) -> Iterator[_Rows[FamilyReader]]:
        """The families in one state."""
        if isinstance(self._source, Store):
            with self._source.view() as view:
                yield _rows(view)
        else:
            yield _rows(self._source)

    def _writing(self, function: Callable[[_Rows[FamilyWriter]], T]) -> T:
        """Run `function` on the families: in a transaction of its own, or in the one that this is bound to."""
        if isinstance(self._source, View):
            raise TypeError("these nodes are bound to a view, which is for reading; bind to a store or a transaction")
        return transact(self._source, lambda txn: function(_Rows(*map(txn.family, _FAMILIES))))

    # Reading

    def get_by_id(self, id: int) -> FoundNode | None:  # noqa: A002
        """The node with this id, with its agents and services; None when there is none.

        Returns:
            The node, and the keys of the agents and of the services that it names and that are not there.

        Raises:
            DecodeError: the row of the node, of an agent or of a service cannot be read. TypeError: `id` is no int.
        """
        with self._reading() as rows:
            inner = NODES.record_by_id(rows.nodes, id)
            return None if inner is None else _found(rows, inner, skip_unreadable=False)

    def count(self) -> int:
        """How many nodes there are, by the ids that are in use.

        Raises:
            CorruptIndexError: the row with the ids cannot be read.
        """
        with self._reading() as rows:
            return NODES.count(rows.nodes)

    def iter(
        self,
        *,
        prefix: str | bytes = "",
        seek: str | bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Node]:
        """The nodes in the order of their names, as of the call; agents and services that are not there, or whose rows
        cannot be read, are left out.

        Arguments:
            prefix: only those whose name begins so.
            seek: begin at this name, or at the next in the direction of the iteration.
            reverse: from the last down.
            limit: at most so many.

        Raises:
            DecodeError: the row of a node cannot be read; raised when it is reached. `iter_results` goes on.

        Bound to a store, it keeps a view open until it ends, or is forgotten.
        """
        return _raising(self.iter_results(prefix=prefix, seek=seek, reverse=reverse, limit=limit))

    def iter_results(
        self,
        *,
        prefix: str | bytes = "",
        seek: str | bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[_Result]:
        """As `iter`, but each item is ``(node, None)``, or ``(None, error)`` where the row of a node cannot be read."""
        results = self._results(prefix=_bytes(prefix), seek=_bytes(seek), reverse=reverse, limit=limit)
        next(results)  # opens the view now, and not with the first node
        return results

    def _results(self, **options: Any) -> Iterator[Any]:
        """None once, as soon as the state to be read is held; then the results."""
        with self._reading() as rows:
            scan = NODES.scan(rows.nodes, **options)
            yield None
            for key, value in scan:
                try:
                    inner = NODES.decode(key, value)
                except DecodeError as error:
                    yield None, error
                else:
                    yield _found(rows, inner, skip_unreadable=True).node, None

    def check(self) -> list[IndexProblem]:
        """Compare the ids with the nodes, and read every one; none returned means that all is right. Cost: all nodes.

        Whether the agents and services that they name are there is not looked at: they may be deleted on their own.
        """
        return BoundIndexedTable(NODES, self._source).check()

    # Writing

    def put(self, node: Node) -> int:
        """Store a new node with its agents and services, and return its id.

        Arguments:
            node: its id, and those in its agents and services, are ignored. What stands under the keys of these and
                the new id is overwritten.

        Raises:
            HostnameInUseError: another node has a hostname of its profile or of the draft. KeyExistsError: another node
            has its name. InvalidRecordError: the name is empty, a field cannot be stored, or two agents or two services
            have the same key. IndexFullError: there are no more ids. DecodeError: a node cannot be read.

        Cost: all nodes are read.
        """
        if not isinstance(node, Node):
            raise TypeError(f"a Node expected, not {type(node).__name__}")
        inner = _inner(node, node.name, node.creation_time)
        _check(node, inner)

        def put(rows: _Rows[FamilyWriter]) -> int:
            check_hostnames(rows.nodes, node.profile, node.profile_draft, of=None)
            id = NODES.insert_record(rows.nodes, inner)  # noqa: A001
            store_members(AGENTS, rows.agents, of_node(AGENTS, node.agents, id))
            store_members(EXTERNAL_SERVICES, rows.services, of_node(EXTERNAL_SERVICES, node.external_services, id))
            return id

        return self._writing(put)

    def update(self, id: int, old: NodeUpdate, new: NodeUpdate) -> Node:  # noqa: A002
        """Make the node with this id what `new` says, if it is what `old` says; return it.

        Arguments:
            old: must be what is stored, the keys of agents and services in order; of these themselves only those are
                compared that are another one in `new`. A name that is None is not compared.
            new: what to store, None and empty too; but a name that is None leaves the name. Agents and services that
                are not in `old` are stored, those that are not in `new` are deleted.

        The ids in agents and services are ignored. The node keeps its id and creation time.

        Raises:
            HostnameInUseError: another node has a hostname of the new profile or draft. NoSuchIdError: there is no such
            node. EntryChangedError: the node is not what `old` says. NoSuchEntryError: an agent or service that would
            change is not there. ValueMismatchError: it is another one. KeyExistsError: another node has the new name.
            InvalidRecordError: see `put`. DecodeError: a node cannot be read. TypeError: `id` is no int.

        Cost: all nodes are read.
        """
        for given in (old, new):
            if not isinstance(given, NodeUpdate):
                raise TypeError(f"a NodeUpdate expected, not {type(given).__name__}")
        _check(new, _inner(new, "its own" if new.name is None else new.name, _ITS_OWN_TIME))
        old, new = _of_node(old, id), _of_node(new, id)

        def update(rows: _Rows[FamilyWriter]) -> Node:
            check_hostnames(rows.nodes, new.profile, new.profile_draft, of=id)
            stored = NODES.record_by_id(rows.nodes, id)
            if stored is None:
                raise _no_such_id(id)
            before = _fields(old)
            if not before.verify(stored):
                raise EntryChangedError(family=NODES.family, key=NODES.row_key(stored), id=id)
            check_old_members(AGENTS, rows.agents, old.agents, new.agents)
            check_old_members(EXTERNAL_SERVICES, rows.services, old.external_services, new.external_services)
            inner = NODES.update_record(rows.nodes, id, before, _fields(new))
            change_members(AGENTS, rows.agents, old.agents, new.agents)
            change_members(EXTERNAL_SERVICES, rows.services, old.external_services, new.external_services)
            return _node(inner, new.agents, new.external_services)

        return self._writing(update)

    def remove(self, id: int) -> RemovedNode:  # noqa: A002
        """Delete a node with the agents and services that it names, and free its id for the next one.

        Raises:
            NoSuchIdError: there is no such node. DecodeError: its row cannot be read. TypeError: `id` is no int.
        """

        def remove(rows: _Rows[FamilyWriter]) -> RemovedNode:
            inner = NODES.record_by_id(rows.nodes, id)
            try:
                name = NODES.remove_id(rows.nodes, id)
            except IdOutOfRangeError:
                raise _no_such_id(id) from None
            if inner is not None:
                remove_members(AGENTS, rows.agents, id, inner.agents)
                remove_members(EXTERNAL_SERVICES, rows.services, id, inner.external_services)
            return RemovedNode(name, [], [])

        return self._writing(remove)

    def update_agent_status_by_hostname(self, hostname: str, agent_key: str, status: Status) -> None:
        """Set the status of an agent of the node with this hostname, and nothing else of it.

        Arguments:
            hostname: in the profile of the node; one that is only in a draft is not found.
            agent_key: the key of the agent.
            status: the new one.

        Raises:
            NoSuchAgentError: no node has the hostname, or it has no such agent. DecodeError: a node or the agent cannot
            be read. InvalidRecordError: the status is none.

        Cost: the nodes up to that one are read.
        """

        def update(rows: _Rows[FamilyWriter]) -> None:
            inner = node_with_hostname(rows.nodes, hostname)
            if inner is None:
                raise NoSuchAgentError(hostname=hostname, agent_key=agent_key, node_id=None)
            keys = [key for key in inner.agents if key == agent_key]
            found, _ = read_members(AGENTS, rows.agents, inner.id, keys)
            if not found:
                raise NoSuchAgentError(hostname=hostname, agent_key=agent_key, node_id=inner.id)
            store_members(AGENTS, rows.agents, [msgspec.structs.replace(found[0], status=status)])

        self._writing(update)

    def __repr__(self) -> str:
        return f"<Nodes in {self._source!r}>"


_ITS_OWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # stands for what an update does not change, and is never stored
_FAMILIES = (NODES.family, AGENTS.family, EXTERNAL_SERVICES.family)


def _rows(source: Store | Transaction | View) -> _Rows[FamilyReader]:
    nodes, agents, services = map(source.family, _FAMILIES)
    return _Rows(nodes, agents, services)


def _raising(results: Iterator[_Result]) -> Iterator[Node]:
    for node, error in results:
        if error is not None:
            raise error
        yield node  # type: ignore[misc]  # there is a node where there is no error


def _bytes(name: Any) -> Any:
    return name.encode() if isinstance(name, str) else name


def _no_such_id(id: int) -> NoSuchIdError:  # noqa: A002
    return NoSuchIdError(family=NODES.family, key=b"", id=id)


# A node and what is stored of it


def _found(rows: _Rows[FamilyReader], inner: Inner, *, skip_unreadable: bool) -> FoundNode:
    agents, no_agents = read_members(AGENTS, rows.agents, inner.id, inner.agents, skip_unreadable=skip_unreadable)
    services, no_services = read_members(
        EXTERNAL_SERVICES, rows.services, inner.id, inner.external_services, skip_unreadable=skip_unreadable
    )
    return FoundNode(_node(inner, tuple(agents), tuple(services)), no_agents, no_services)


def _node(inner: Inner, agents: tuple[Any, ...], services: tuple[Any, ...]) -> Node:
    return Node(
        id=inner.id,
        name=inner.name,
        name_draft=inner.name_draft,
        profile=inner.profile,
        profile_draft=inner.profile_draft,
        agents=agents,
        external_services=services,
        creation_time=inner.creation_time,
    )


def _inner(node: Node | NodeUpdate, name: str, creation_time: datetime) -> Inner:
    return Inner(
        id=0,
        name=name,
        name_draft=node.name_draft,
        profile=node.profile,
        profile_draft=node.profile_draft,
        creation_time=creation_time,
        agents=member_keys(node.agents),
        external_services=member_keys(node.external_services),
    )


def _fields(update: NodeUpdate) -> Fields[Inner]:
    """What an update says of the stored record."""
    name = {} if update.name is None else {"name": update.name}
    return Fields(
        NODES,
        **name,
        name_draft=update.name_draft,
        profile=update.profile,
        profile_draft=update.profile_draft,
        agents=member_keys(update.agents),
        external_services=member_keys(update.external_services),
    )


def _of_node(update: NodeUpdate, id: int) -> NodeUpdate:  # noqa: A002
    return msgspec.structs.replace(
        update,
        agents=of_node(AGENTS, update.agents, id),
        external_services=of_node(EXTERNAL_SERVICES, update.external_services, id),
    )


def _check(node: Node | NodeUpdate, inner: Inner) -> None:
    """Refuse what could not be stored, before anything is read. Raises as `check_members` and `Schema.encode`."""
    check_members(AGENTS, node.agents)
    check_members(EXTERNAL_SERVICES, node.external_services)
    NODES.row_key(inner)
    NODES.encode(inner)
