"""`ReviewStore`: the store of the manager's state, with an accessor for every table.

`ReviewState` has the accessors, once: of a store, where every write is one commit; of one transaction, which several
tables share (`ReviewStore.transact`); or as of a view (`ReviewStore.view`). It holds nothing but what it is bound to.

Opening makes whatever families are missing and looks at no version marker: on a directory of an older format call
``migrate_data_dir`` first, always, or the program of that format cannot open it again. A store that opening makes says
in its metadata which version its content has, as one that was migrated does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from types import TracebackType
from typing import TypeVar

import pystate
from pystate import Durability, Files, OsFiles, Store, Transaction, View
from pystate.errors import FamilyMismatchError
from pystate.review.agent import AGENTS, Agents
from pystate.review.core_component import CORE_COMPONENTS, CoreComponents
from pystate.review.customers import CUSTOMERS, Customer
from pystate.review.deletion_job import CUSTOMER_DATA_DELETION_JOBS, CustomerDataDeletionJobs
from pystate.review.external_service import EXTERNAL_SERVICES, ExternalServices
from pystate.review.families import FAMILIES
from pystate.review.hosts import HOSTS, Hosts
from pystate.review.labels import LABEL_DATABASE, LabelDatabase
from pystate.review.migrations import MIGRATION_PLAN
from pystate.review.networks import (
    ALLOW_NETWORKS,
    BLOCK_NETWORKS,
    NETWORKS,
    AllowNetwork,
    BlockNetwork,
    Network,
)
from pystate.review.nodes import Nodes
from pystate.review.operation_attempt import OPERATION_ATTEMPTS
from pystate.review.operation_attempts import OperationAttempts
from pystate.review.statuses import STATUSES, ReviewStatus, seed_statuses
from pystate.review.tags import EventTags, NetworkTags, WorkflowTags
from pystate.review.tor import TOR_EXIT_NODES, TorExitNodes
from pystate.review.triage import TRIAGE_EXCLUSION_REASONS, TRIAGE_POLICIES, TriageExclusionReason, TriagePolicy
from pystate.tables import BoundIndexedTable

__all__ = ["ReviewState", "ReviewStore"]

T = TypeVar("T")

_STORE = "states.db"
_PRETRAINED = "pretrained"


class ReviewState:
    """The tables, bound to a store, a transaction or a view. Bound to a view, what writes raises ``TypeError``.

    Arguments:
        source: an open store, transaction or view. A table whose family it has not raises `FamilyNotFoundError`.
    """

    __slots__ = ("_source",)

    def __init__(self, source: Store | Transaction | View) -> None:
        self._source = source

    @property
    def operation_attempts(self) -> OperationAttempts:
        """The ledger of package operations."""
        return OperationAttempts(OPERATION_ATTEMPTS, self._source)

    @property
    def core_components(self) -> CoreComponents:
        """The packages of the manager itself."""
        return CoreComponents(CORE_COMPONENTS, self._source)

    @property
    def agents(self) -> Agents:
        """The agents of all nodes."""
        return Agents(AGENTS, self._source)

    @property
    def external_services(self) -> ExternalServices:
        """The external services of all nodes."""
        return ExternalServices(EXTERNAL_SERVICES, self._source)

    @property
    def nodes(self) -> Nodes:
        """The nodes, with their agents and external services."""
        return Nodes(self._source)

    @property
    def customer_data_deletion_jobs(self) -> CustomerDataDeletionJobs:
        """The jobs that delete the data of a customer."""
        return CustomerDataDeletionJobs(CUSTOMER_DATA_DELETION_JOBS, self._source)

    @property
    def customers(self) -> BoundIndexedTable[Customer]:
        """The customers."""
        return BoundIndexedTable(CUSTOMERS, self._source)

    @property
    def allow_networks(self) -> BoundIndexedTable[AllowNetwork]:
        """The networks that customers trust."""
        return BoundIndexedTable(ALLOW_NETWORKS, self._source)

    @property
    def block_networks(self) -> BoundIndexedTable[BlockNetwork]:
        """The networks that customers do not let in."""
        return BoundIndexedTable(BLOCK_NETWORKS, self._source)

    @property
    def networks(self) -> BoundIndexedTable[Network]:
        """The networks that are anybody's."""
        return BoundIndexedTable(NETWORKS, self._source)

    @property
    def triage_policies(self) -> BoundIndexedTable[TriagePolicy]:
        """How events are scored."""
        return BoundIndexedTable(TRIAGE_POLICIES, self._source)

    @property
    def triage_exclusion_reasons(self) -> BoundIndexedTable[TriageExclusionReason]:
        """What is left out of the scoring."""
        return BoundIndexedTable(TRIAGE_EXCLUSION_REASONS, self._source)

    @property
    def label_database(self) -> LabelDatabase:
        """The sets of patterns that label what they match."""
        return LabelDatabase(LABEL_DATABASE, self._source)

    @property
    def hosts(self) -> Hosts:
        """The hosts of customers."""
        return Hosts(HOSTS, self._source)

    @property
    def statuses(self) -> BoundIndexedTable[ReviewStatus]:
        """How far a review may have come."""
        return BoundIndexedTable(STATUSES, self._source)

    @property
    def tor_exit_nodes(self) -> TorExitNodes:
        """The addresses through which the Tor network is left."""
        return TorExitNodes(TOR_EXIT_NODES, self._source)

    @property
    def event_tags(self) -> EventTags:
        """The tags of events."""
        return EventTags(self._source)

    @property
    def workflow_tags(self) -> WorkflowTags:
        """The tags of workflows."""
        return WorkflowTags(self._source)

    def network_tags(self, customer_id: int) -> NetworkTags:
        """The tags of networks that are this customer's.

        Raises:
            TypeError, ValueError: it is no unsigned 32-bit int.
        """
        return NetworkTags(self._source, customer_id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self._source!r}>"


class ReviewStore(ReviewState):
    """The tables of an open store; every write through it is one commit. A context manager that closes the store.

    `open` opens one on disk, `memory` makes one for tests. Threads may share it.

    Arguments:
        store: an open store that has the families of the present format, and no others but ``default``. It is this
            object's from now on, which closes it. If its table of statuses has no row, the first three are stored.
        data_dir, backup_dir: where it stands and where its backups go, if it is on disk.

    Raises:
        FamilyMismatchError: it has other families.
    """

    __slots__ = ("_store", "backup_dir", "data_dir")

    def __init__(self, store: Store, *, data_dir: str | None = None, backup_dir: str | None = None) -> None:
        found, wanted = set(store.families) - {"default"}, set(FAMILIES)
        if found != wanted:
            missing, unnamed = sorted(wanted - found), sorted(found - wanted)
            raise FamilyMismatchError(store.path or "(memory)", missing=tuple(missing), unnamed=tuple(unnamed))
        super().__init__(store)
        self._store = store
        self.data_dir = data_dir
        self.backup_dir = backup_dir
        if not store.read_only:
            store.transact(lambda txn: seed_statuses(txn.family(STATUSES.family)))

    @classmethod
    def open(
        cls,
        data_dir: str | PathLike[str],
        backup_dir: str | PathLike[str],
        *,
        durability: Durability = "sync",
        lock_timeout: float = 0.0,
        files: Files | None = None,
    ) -> ReviewStore:
        """Open the state in ``data_dir/states.db``, and make it, and what families are missing, if need be.

        Arguments:
            data_dir: the directory of the state; made if it is not there, with those above it. So is ``pretrained`` in
                it, whose content is not looked at.
            backup_dir: the directory of the backups; not looked at, only kept for who makes them.
            durability, lock_timeout, files: as for `pystate.open`.

        Raises:
            FamilyMismatchError: there is a family that the present format has not.
            OSError: a directory cannot be made. All others, such as LockedError: as `pystate.open`.
        """
        disk = OsFiles() if files is None else files
        data, backup = _absolute(disk, data_dir), _absolute(disk, backup_dir)
        _make_directory(disk, disk.join(data, _PRETRAINED))
        store = pystate.open(
            disk.join(data, _STORE),
            families=FAMILIES,
            create_missing_families=True,
            metadata=MIGRATION_PLAN.metadata,
            durability=durability,
            lock_timeout=lock_timeout,
            files=files,
        )
        try:
            return cls(store, data_dir=data, backup_dir=backup)
        except BaseException:
            store.close()
            raise

    @classmethod
    def memory(cls) -> ReviewStore:
        """A new state with nothing on disk: for tests, and for what may be lost."""
        return cls(pystate.memory(families=FAMILIES, metadata=MIGRATION_PLAN.metadata))

    @property
    def store(self) -> Store:
        """The store itself."""
        return self._store

    def bind(self, source: Transaction | View) -> ReviewState:
        """The tables in a transaction or view of the store that the caller has begun, and ends."""
        return ReviewState(source)

    def transact(
        self, function: Callable[[ReviewState], T], *, attempts: int = 16, durability: Durability | None = None
    ) -> T:
        """Run ``function(state)`` with all tables in one transaction, and commit; on a conflict run it again.

        Arguments:
            function: must do nothing but read and write through the state that it is given, for it may run again.
            attempts, durability: as for `Store.transact`.

        Returns:
            What `function` returned in the run that was committed.

        Raises:
            What `function` raises, and what `Store.transact` does; nothing was written then.
        """
        return self._store.transact(lambda txn: function(ReviewState(txn)), attempts=attempts, durability=durability)

    @contextmanager
    def view(self) -> Iterator[ReviewState]:
        """All tables as of one moment, for reading, as long as the ``with`` block lasts."""
        with self._store.view() as view:
            yield ReviewState(view)

    def close(self) -> None:
        """Close the store; may be called twice. Afterwards everything raises `ClosedError`."""
        self._store.close()

    def __enter__(self) -> ReviewStore:
        self._store.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _absolute(files: Files, path: str | PathLike[str]) -> str:
    text: object = fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"a path is a str or a path object, not {type(path).__name__}")
    if not text:
        raise ValueError("a path cannot be empty")
    return files.absolute(text)


def _make_directory(files: Files, path: str) -> None:
    """Make a directory, and those above it, unless it is there.

    Raises:
        OSError: it cannot be made: something else stands there, for instance.
    """
    if files.kind(path) == "directory":
        return
    parent = files.parent(path)
    _make_directory(files, parent)
    try:
        files.make_directory(path)
    except FileExistsError:
        if files.kind(path) != "directory":  # it is one if somebody else has made it just now
            raise
    files.sync_directory(parent)  # so that a state that was made in it is not lost with its name
