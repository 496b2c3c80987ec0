"""A state in each format, with rows in every family that a migration touches, and what must become of it.

What a migration touches stands here as plain lists, as the formats say, and is made with nothing of the code under
test. A state is a map from the name of a family to its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from pystate import Files, Rewriting
from pystate.errors import PystateError
from pystate.formats import MigrationReport, Step
from pystate.review import (
    MIGRATION_PLAN,
    CoreComponent,
    CustomerDataDeletionJob,
    Host,
    Lifecycle,
    ReviewStore,
    TorExitNode,
    migrate_data_dir,
)
from tests.formats.shop import BACKUP, DATA, STORE, Families, begin, contents, copied, look_at, make, markers
from tests.review.attempts import M
from tests.review.node_samples import node

__all__ = [
    "BACKUP",
    "DATA",
    "FORMATS",
    "GROUP",
    "NEWEST",
    "NO_GROUP",
    "STORE",
    "THEN",
    "Families",
    "agent",
    "applied",
    "begin",
    "check_same",
    "content_of",
    "contents",
    "copied",
    "customer",
    "customers",
    "decoded",
    "encode",
    "finished",
    "index",
    "look_at",
    "make",
    "markers",
    "new_agent",
    "new_networks",
    "old_network",
    "old_networks",
    "policy",
    "refused_by",
    "run",
    "service",
    "step",
    "steps",
    "u32",
]

NEWEST = "0.47.0-alpha.2"
FORMATS = ("0.42.0", "0.43.0", "0.44.0", "0.45.0", "0.46.0", "0.47.0-alpha.1", NEWEST)
THEN = datetime(2024, 2, 29, 12, 34, 56, 123456, tzinfo=UTC)
GROUP: list[list[bytes]] = [[b"\x0a\x00\x00\x01"], [b"\x0a\x01\x00\x00\x10"], [b"\x0a\x02\x00\x01\x0a\x02\x00\x09"]]
NO_GROUP: list[list[bytes]] = [[], [], []]

encode = msgspec.msgpack.encode
decoded = msgspec.msgpack.decode

#: What all formats have, with an opaque row in each family of which nothing is known here but its name.
COMMON = (
    "Tor exit nodes,access_tokens,accounts,agents,allow networks,batch_info,block networks,category,cluster,"
    "column stats,configs,csv column extras,customers,data sources,external services,filters,hosts,meta,"
    "model indicators,models,networks,nodes,outliers,qualifiers,sampling policy,scores,statuses,templates,time series,"
    "traffic filter rules,triage policy,triage response,trusted DNS servers,trusted user agents"
).split(",")
TABLES = {"Tor exit nodes", "agents", "allow networks", "block networks", "customers", "external services", "hosts",
          "meta", "networks", "nodes", "statuses", "triage policy"}  # fmt: skip


# Rows


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def index(keys: dict[int, bytes], *, free: Iterable[int] | None = None) -> bytes:
    """A row with ids: those of `keys`, and free ones, the first of them first; None is all that are not used."""
    free = [number for number in range(max(keys, default=0)) if number not in keys] if free is None else list(free)
    chain = [*free, max([*keys, *free], default=-1) + 1]
    after = dict(zip(chain, chain[1:], strict=False))
    slots = [[0, keys[number]] if number in keys else [1, after[number]] for number in range(chain[-1])]
    return encode([slots, chain[0], None])


def customer(number: int, name: str) -> bytes:
    return encode([number, name, "of customers", [["net", "", 0, GROUP]], THEN])


def customers(names: dict[int, str]) -> dict[bytes, bytes]:
    rows = {name.encode(): customer(number, name) for number, name in names.items()}
    return {b"": index({number: name.encode() for number, name in names.items()}), **rows}


def old_networks(*names: str) -> dict[bytes, bytes]:
    """Allowed or blocked ones that are everybody's, in the order of their ids."""
    rows = {name.encode(): encode([at, name, GROUP, f"all of {name}"]) for at, name in enumerate(names)}
    return {b"": index(dict(enumerate(rows))), **rows}


def new_networks(*pairs: tuple[str, int]) -> dict[bytes, bytes]:
    """Those of a customer: names and customers, in the order of their ids."""
    rows = {u32(owner) + name.encode(): encode([at, GROUP, f"all of {name}"]) for at, (name, owner) in enumerate(pairs)}
    return {b"": index(dict(enumerate(rows))), **rows}


def old_network(name: str, number: int, description: str = "text", tags: Iterable[int] = ()) -> dict[bytes, bytes]:
    """A network of 0.43, as a row."""
    return {name.encode() + u32(number): encode([description, GROUP, [1, 2, 3], list(tags), THEN])}


def agent(kind: int, status: int, config: str | None, draft: str | None) -> bytes:
    """The value of an agent of 0.46."""
    return encode([kind, status, config, draft])


def new_agent(*old: Any, version: str | None = None, lifecycle: int = 0, addresses: Any = ()) -> bytes:
    return encode([*old, version, None, lifecycle, list(addresses)])


def service(kind: int, status: int, draft: str | None) -> bytes:
    """The value of a service of 0.46."""
    return encode([kind, status, draft])


def policy(number: int, name: str, owner: int | None, confidences: list[list[Any]]) -> dict[bytes, bytes]:
    packet = [3, "attr", 1, 2, b"\x01", None, 0.5]
    key = u32(0xFFFFFFFF if owner is None else owner) + name.encode()
    return {key: encode([number, name, [1], [packet], confidences, [[0.5, 1]], THEN, owner])}


def policies() -> dict[bytes, bytes]:
    scored = policy(0, "scored", 1, [[0, "scan", 0.9, 2.0], [7, "dns_tunnel", 0.5, None]])
    plain = policy(1, "plain", None, [])
    return {b"": index(dict(enumerate([*scored, *plain]))), **scored, **plain}


AGENTS = {
    u32(1) + b"sensor@host1": (1, 1, "a = 1", "a = 2"),
    u32(2) + b"unsupervised@host2": (0, 0, None, None),
    u32(3) + b"semi@host3": (2, 2, None, "b = 3"),
}
SERVICES = {u32(1) + b"datastore@host1": (0, 1, "c = 3"), u32(2) + b"ti@host2": (1, 3, None)}
LABELS = {
    b"labels one": encode([0, "labels one", None, 0, 4, "1", [b"p"]]),
    b"labels two": encode([1, "labels two", "text", 3, 0, "", []]),
}
REASONS = {b"": index({0: b"reason"}), b"reason": encode([0, "reason", [1, ["example.com"]], "not this one"])}


@cache
def others() -> Families:
    """Rows of the families that no migration touches, as their tables store them."""
    with ReviewStore.memory() as review:
        review.nodes.put(node("edge", "edge.example"))
        review.core_components.put(
            CoreComponent(
                component="review",
                host="edge.example",
                installed_version="0.47.0",
                installed_commit=None,
                lifecycle=Lifecycle.RUNNING,
                installer_managed=False,
            )
        )
        review.operation_attempts.upsert(M("key"))
        review.customer_data_deletion_jobs.put(CustomerDataDeletionJob(customer_id=1, service_results=()))
        review.hosts.put(
            Host(
                customer_id=1,
                address="192.0.2.1",
                creation_time=5,
                opened_ports=(b"\x00\x50",),
                known_agents=(),
                unknown_agents=(b"a",),
            )
        )
        review.tor_exit_nodes.replace_all([TorExitNode(ip_address="192.0.2.1", updated_at=THEN)])
        names = ("nodes", "core components", "operation attempts", "customer deletion jobs", "hosts", "statuses")
        return {name: dict(review.store.family(name)) for name in (*names, "Tor exit nodes")}


# States


def content_of(version: str) -> Families:
    """The state in the format of a version."""
    new = FORMATS.index(version)
    state: Families = {name: {} if name in TABLES else {b"key": b"kept " + name.encode()} for name in COMMON}
    state["default"] = {b"\x00event": b"left alone", b"key": bytes(range(256))}
    state |= {name: dict(others()[name]) for name in ("Tor exit nodes", "hosts", "nodes", "statuses")}
    state["customers"] = customers({1: "acme", 0: "beta"})
    state["triage policy"] = policies()
    state["label database" if new else "TI database"] = dict(LABELS)
    if not new:
        state["account policy"] = {b"expiry": b"3600"}
        state["allow networks"] = old_networks("lab", "office")
        state["block networks"] = old_networks("bad")
    else:
        state["triage exclusion reason"] = dict(REASONS)
        state["allow networks"] = new_networks(("lab", 1), ("lab", 0), ("office", 1), ("office", 0))
        state["block networks"] = new_networks(("bad", 1), ("bad", 0))
    state["meta"] = {
        b"event tags": index({0: b"urgent"}),
        b"network tags": index({0: b"0\0red", 2: b"0\0blue"} if new >= 2 else {0: b"red", 2: b"blue"}),
    }
    state["networks"] = networks_by_name() if new >= 2 else networks_by_name_and_id()
    state["agents"] = {key: agent(*old) if new < 6 else new_agent(*old) for key, old in AGENTS.items()}
    state["external services"] = {
        key: service(*old) if new < 6 else encode([*old, None, None, 0, []]) for key, old in SERVICES.items()
    }
    new_families = ("customer deletion jobs", "core components", "operation attempts")
    return state | {name: dict(others()[name]) for name in new_families[: (0, 1, 3)[max(new - 4, 0)]]}


def networks_by_name_and_id() -> dict[bytes, bytes]:
    rows = {
        **old_network("NetA", 1, "a", tags=[0, 2]),
        **old_network("NetB", 3, "b"),
        **old_network("Twice", 5, "the second"),
        **old_network("Twice", 4, "the first", tags=[2]),
    }
    return {b"": index({int.from_bytes(key[-4:], "big"): key for key in rows}, free=[2, 0]), **rows}


def networks_by_name() -> dict[bytes, bytes]:
    rows = {
        b"NetA": encode([1, "a", GROUP, [0, 2], THEN]),
        b"NetB": encode([3, "b", GROUP, [], THEN]),
        b"Twice": encode([4, "the first", GROUP, [2], THEN]),
    }
    return {b"": index({1: b"NetA", 3: b"NetB", 4: b"Twice"}), **rows}


def finished(version: str) -> Families:
    """What must become of `content_of` this version: families that it did not have are empty."""
    since = {"triage exclusion reason": 1, "customer deletion jobs": 5, "core components": 6, "operation attempts": 6}
    new = FORMATS.index(version)
    return {name: rows if new >= since.get(name, 0) else {} for name, rows in content_of(NEWEST).items()}


def check_same(found: Families | None, expected: Families) -> None:
    """Compare two states family by family, so that a failure says where they differ."""
    assert found is not None
    assert sorted(found) == sorted(expected)
    for name, rows in expected.items():
        assert found[name] == rows, f"family {name!r}"


# Running


def steps() -> Iterator[Step]:
    """All steps of the chain, in their order."""
    for migration in MIGRATION_PLAN.migrations:
        yield from migration.steps


def step(name: str) -> Step:
    """The step whose name begins so."""
    (found,) = [each for each in steps() if each.name.startswith(name)]
    return found


def applied(state: Families, *names: str) -> Families:
    """What these steps, in this order, make of a state."""
    rewriting = begin(state)
    for name in names:
        step(name)(rewriting)
    return contents(rewriting)


def refused_by(name: str, state: Families, kind: type[PystateError]) -> PystateError:
    """The error with which a step refuses a state; it has changed nothing, also where nothing undoes what it did."""
    rewriting: Rewriting = begin(state)
    refused: PystateError | None = None
    try:
        step(name)(rewriting)
    except kind as error:
        refused = error
    assert refused is not None, f"{name} has not refused it"
    assert contents(rewriting) == state
    return refused


def run(files: Files, **options: Any) -> MigrationReport:
    """What the program does when it starts."""
    return migrate_data_dir(DATA, BACKUP, files=files, **options)
