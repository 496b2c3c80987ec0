"""The four tables without rules about their keys: records of each, whatever they hold, and rows that are none."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from pystate.review.agent import AGENTS, Agent, AgentKind, Agents
from pystate.review.core_component import CORE_COMPONENTS, CoreComponent, CoreComponents
from pystate.review.deletion_job import (
    CUSTOMER_DATA_DELETION_JOBS,
    CustomerDataDeletionJob,
    CustomerDataDeletionJobs,
    DeletionResult,
    DeletionService,
    DeletionStatus,
)
from pystate.review.external_service import (
    EXTERNAL_SERVICES,
    ExternalService,
    ExternalServiceKind,
    ExternalServices,
)
from pystate.review.lifecycle import Lifecycle
from pystate.review.packages import Config, Status
from pystate.tables import Schema

__all__ = ["PLAIN_TABLES", "PlainTable", "broken_rows", "fields_in"]


class PlainTable(NamedTuple):
    """One of the tables.

    Attributes:
        bind: its class.
        schema: its schema.
        sample: one record, with something in every field.
        records: makes records of any content.
    """

    bind: Any
    schema: Schema[Any]
    sample: Any
    records: st.SearchStrategy[Any]

    @property
    def family(self) -> str:
        """The name of its family."""
        return self.schema.family


_u32 = st.integers(0, 2**32 - 1)
_i64 = st.integers(-(2**63), 2**63 - 1)
_text = st.text(max_size=20)
_documents = st.dictionaries(st.sampled_from("abc"), st.integers(-9, 9)).map(
    lambda items: "".join(f"{key} = {number}  # as it was\n" for key, number in items.items())
)
#: What was checked, and what a row may have held all the same.
_configs = st.none() | _documents.map(Config) | _text.map(Config.from_stored)
_install = {
    "installed_version": st.none() | _text,
    "installed_commit": st.none() | _text,
    "lifecycle": st.sampled_from(Lifecycle),
}
_module = {
    "node_id": _u32,
    "key": _text,
    "status": st.sampled_from(Status),
    "draft": _configs,
    "bound_addrs": st.lists(st.tuples(_text, _text), max_size=3).map(tuple),
    **_install,
}
_results = st.builds(
    DeletionResult,
    service=st.sampled_from(DeletionService),
    host_fqdns=st.lists(_text, max_size=3).map(tuple),
    status=st.sampled_from(DeletionStatus),
    requested_at=_i64,
    completed_at=st.none() | _i64,
    error=st.none() | _text,
)

_build: dict[str, Any] = {
    "installed_version": "0.47.0",
    "installed_commit": "c0ffee",
    "lifecycle": Lifecycle.RUNNING,
}
_sample_module: dict[str, Any] = {
    "node_id": 1,
    "status": Status.RELOAD_FAILED,
    "draft": Config("b = 2"),
    "bound_addrs": (("addr", "host:1234"),),
    **_build,
}

PLAIN_TABLES = [
    PlainTable(
        CoreComponents,
        CORE_COMPONENTS,
        CoreComponent(component="roxyd", host="host-01.example.com", installer_managed=True, **_build),
        st.builds(CoreComponent, component=_text, host=_text, installer_managed=st.booleans(), **_install),
    ),
    PlainTable(
        Agents,
        AGENTS,
        Agent(key="001.piglet", kind=AgentKind.SENSOR, config=Config("a = 1"), **_sample_module),
        st.builds(Agent, kind=st.sampled_from(AgentKind), config=_configs, **_module),
    ),
    PlainTable(
        ExternalServices,
        EXTERNAL_SERVICES,
        ExternalService(key="001.giganto", kind=ExternalServiceKind.TI_CONTAINER, **_sample_module),
        st.builds(ExternalService, kind=st.sampled_from(ExternalServiceKind), **_module),
    ),
    PlainTable(
        CustomerDataDeletionJobs,
        CUSTOMER_DATA_DELETION_JOBS,
        CustomerDataDeletionJob(
            customer_id=7,
            service_results=(
                DeletionResult(
                    service=DeletionService.SENSOR,
                    host_fqdns=("sensor.example",),
                    status=DeletionStatus.FAILED,
                    requested_at=20,
                    completed_at=30,
                    error="deletion failed",
                ),
            ),
        ),
        st.builds(CustomerDataDeletionJob, customer_id=_u32, service_results=st.lists(_results, max_size=3).map(tuple)),
    ),
]


def fields_in(value: bytes) -> list[Any]:
    """What stands in the value of a row, position by position."""
    found = msgspec.msgpack.decode(value)
    assert isinstance(found, list)
    return found


_scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | _text | st.binary(max_size=9)
_anything = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=9).map(tuple) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=12,
)


@st.composite
def _altered(draw: st.DrawFn, table: PlainTable) -> bytes:
    """The value of a record, with one byte changed, or cut short, or with bytes after it."""
    value = bytearray(table.schema.encode(draw(table.records)))
    how = draw(st.sampled_from(["change", "cut", "append"]))
    if how == "change":
        value[draw(st.integers(0, len(value) - 1))] = draw(st.integers(0, 255))
    elif how == "cut":
        del value[draw(st.integers(0, len(value) - 1)) :]
    else:
        value += draw(st.binary(min_size=1, max_size=3))
    return bytes(value)


def broken_rows(table: PlainTable) -> st.SearchStrategy[tuple[bytes, bytes]]:
    """Rows that hold anything: bytes, MessagePack of any shape, values of the table with a small fault; under a key of
    the table, or under any other."""
    keys = table.records.map(table.schema.row_key) | st.binary(min_size=1, max_size=12)
    values = st.binary(max_size=30) | _anything.map(msgspec.msgpack.encode) | _altered(table)
    return st.tuples(keys, values)
