"""pystate.review: the install and update state of a manager of hosts, as typed tables in one store.

    >>> from pystate.review import Agent, AgentKind, Node, Profile, ReviewStore
    >>> from datetime import UTC, datetime
    >>> review = ReviewStore.memory()  # ReviewStore.open(data_dir, backup_dir) for one on disk
    >>> review.nodes.put(
    ...     Node(
    ...         id=0,
    ...         name="edge",
    ...         name_draft=None,
    ...         profile=Profile(customer_id=1, description="", hostname="edge.example"),
    ...         profile_draft=None,
    ...         agents=[Agent.new(node_id=0, key="001.piglet", kind=AgentKind.SENSOR)],
    ...         external_services=[],
    ...         creation_time=datetime.now(UTC),
    ...     )
    ... )
    0
    >>> review.nodes.get_by_id(0).node.agents[0].lifecycle
    <Lifecycle.NOT_INSTALLED: 0>
    >>> review.transact(lambda state: (state.event_tags.insert("urgent"), state.nodes.count()))
    (0, 1)

`ReviewStore` has an accessor for every table; `ReviewStore.transact` and `ReviewStore.view` give the same accessors in
one transaction, or as of one moment. Records are frozen Structs, times are aware, and enums are stored by their place,
never by the number that other systems give them.

============================= =============================================================================
`OperationAttempts`           the ledger of package operations, with writes of its own only
`CoreComponents`              the packages of the manager itself
`Nodes`                       nodes with their `Agents` and `ExternalServices`, changed together
`CustomerDataDeletionJobs`    what each service has deleted of a customer
indexed tables                `Customer`, `Network`, `AllowNetwork`, `BlockNetwork`, `TriagePolicy`,
                              `TriageExclusionReason`, `ReviewStatus`: records with small ids
plain tables                  `LabelDatabase`, `Hosts`; `TorExitNodes` is only replaced as a whole
sets of tags                  `EventTags`, `NetworkTags`, `WorkflowTags`
============================= =============================================================================

`migrate_data_dir` brings the state of an older program, from `VERSION` 0.42.0 on, to this one's; call it before
`ReviewStore.open`, always. `write_version_markers` is for whoever has restored a backup of an older version.

The declarations of indexed tables (`CUSTOMERS` and so on) are here for `pystate.tables.Fields`. Other schemas stand in
the modules, since what writes through them writes around the rules of their tables.
"""

from pystate.errors import (
    DeletionResultExistsError,
    HostnameInUseError,
    InvalidConfigError,
    NoSuchAgentError,
    NoSuchDeletionResultError,
)
from pystate.formats import write_version_markers
from pystate.review.agent import Agent, AgentKind, Agents
from pystate.review.categories import EventCategory
from pystate.review.core_component import CoreComponent, CoreComponents
from pystate.review.customers import CUSTOMERS, Customer, CustomerNetwork, NetworkType
from pystate.review.data_dir import migrate_data_dir
from pystate.review.deletion_job import (
    CustomerDataDeletionJob,
    CustomerDataDeletionJobs,
    DeletionResult,
    DeletionService,
    DeletionStatus,
)
from pystate.review.external_service import ExternalService, ExternalServiceKind, ExternalServices
from pystate.review.families import (
    FAMILIES,
    FAMILIES_0_42,
    FAMILIES_0_43,
    FAMILIES_0_47_0_ALPHA_1,
    FAMILIES_0_47_0_ALPHA_2,
)
from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.hosts import Host, Hosts
from pystate.review.labels import LabelDatabase, LabelDb, LabelDbKind
from pystate.review.lifecycle import Lifecycle
from pystate.review.migrations import COMPATIBLE, MIGRATION_PLAN, VERSION
from pystate.review.networks import (
    ALLOW_NETWORKS,
    BLOCK_NETWORKS,
    NETWORKS,
    AllowNetwork,
    BlockNetwork,
    Network,
)
from pystate.review.node import FoundNode, Node, NodeUpdate, Profile, RemovedNode
from pystate.review.nodes import Nodes
from pystate.review.operation_attempt import (
    Action,
    CleanupState,
    OperationAttempt,
    Outcome,
    Phase,
    RetryPolicy,
)
from pystate.review.operation_attempts import OperationAttempts, RetentionBound
from pystate.review.packages import BoundAddrs, Config, NodePackages, Status
from pystate.review.statuses import STATUSES, ReviewStatus
from pystate.review.store import ReviewState, ReviewStore
from pystate.review.tags import EventTags, NetworkTags, Tag, WorkflowTags
from pystate.review.tor import TorExitNode, TorExitNodes
from pystate.review.triage import (
    TRIAGE_EXCLUSION_REASONS,
    TRIAGE_POLICIES,
    Confidence,
    ExcludedDomains,
    ExcludedHostnames,
    ExcludedIpAddresses,
    ExcludedUris,
    Exclusion,
    PacketAttr,
    Response,
    TriageExclusionReason,
    TriagePolicy,
)

__all__ = [
    "ALLOW_NETWORKS",
    "BLOCK_NETWORKS",
    "COMPATIBLE",
    "CUSTOMERS",
    "FAMILIES",
    "FAMILIES_0_42",
    "FAMILIES_0_43",
    "FAMILIES_0_47_0_ALPHA_1",
    "FAMILIES_0_47_0_ALPHA_2",
    "MIGRATION_PLAN",
    "NETWORKS",
    "STATUSES",
    "TRIAGE_EXCLUSION_REASONS",
    "TRIAGE_POLICIES",
    "VERSION",
    "Action",
    "Agent",
    "AgentKind",
    "Agents",
    "AllowNetwork",
    "BlockNetwork",
    "BoundAddrs",
    "CleanupState",
    "Confidence",
    "Config",
    "CoreComponent",
    "CoreComponents",
    "Customer",
    "CustomerDataDeletionJob",
    "CustomerDataDeletionJobs",
    "CustomerNetwork",
    "DeletionResult",
    "DeletionResultExistsError",
    "DeletionService",
    "DeletionStatus",
    "EventCategory",
    "EventTags",
    "ExcludedDomains",
    "ExcludedHostnames",
    "ExcludedIpAddresses",
    "ExcludedUris",
    "Exclusion",
    "ExternalService",
    "ExternalServiceKind",
    "ExternalServices",
    "FoundNode",
    "Host",
    "HostNetworkGroup",
    "HostnameInUseError",
    "Hosts",
    "InvalidConfigError",
    "LabelDatabase",
    "LabelDb",
    "LabelDbKind",
    "Lifecycle",
    "Network",
    "NetworkTags",
    "NetworkType",
    "NoSuchAgentError",
    "NoSuchDeletionResultError",
    "Node",
    "NodePackages",
    "NodeUpdate",
    "Nodes",
    "OperationAttempt",
    "OperationAttempts",
    "Outcome",
    "PacketAttr",
    "Phase",
    "Profile",
    "RemovedNode",
    "Response",
    "RetentionBound",
    "RetryPolicy",
    "ReviewState",
    "ReviewStatus",
    "ReviewStore",
    "Status",
    "Tag",
    "TorExitNode",
    "TorExitNodes",
    "TriageExclusionReason",
    "TriagePolicy",
    "WorkflowTags",
    "migrate_data_dir",
    "write_version_markers",
]
