"""`CustomerDataDeletionJob`: the deletion of all data of a customer, service by service; and the table of such jobs.

A job stands under its customer and holds one result for each service that has to delete something. Only `add_service`
and `update_service` look into it: they keep the results of a job different from one another, whoever races, while the
generic writes store what they are given. Times are ints, in nanoseconds since 1970, as the services report them.
"""

from __future__ import annotations

import msgspec

from pystate import FamilyWriter
from pystate.errors import (
    DeletionResultExistsError,
    InvalidRecordError,
    NoSuchDeletionResultError,
    NoSuchEntryError,
)
from pystate.review.stored import I64, U32, StoredEnum
from pystate.tables import Key, PositionalValue, Readable, Scannable, Schema, Writable, uint32

__all__ = [
    "CUSTOMER_DATA_DELETION_JOBS",
    "CustomerDataDeletionJob",
    "CustomerDataDeletionJobs",
    "DeletionResult",
    "DeletionService",
    "DeletionStatus",
]


class DeletionService(StoredEnum):
    """A service that holds data of customers."""

    REVIEW = 0, 0
    SENSOR = 1, 1
    SEMI_SUPERVISED = 2, 2


class DeletionStatus(StoredEnum):
    """How far the deletion by one service has come."""

    IN_PROGRESS = 0, 0
    SUCCEEDED = 1, 1
    FAILED = 2, 2


class DeletionResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """What one service has deleted, or failed to.

    Attributes:
        service: the service.
        host_fqdns: the hosts that it deletes on. One, but REVIEW has all of its own here, so that a retry still knows
            them when the nodes are gone. A list is taken too, and becomes a tuple.
        status: how far it has come.
        requested_at: when the last attempt began, in nanoseconds since 1970; a retry replaces it.
        completed_at: when that attempt ended, in nanoseconds since 1970; None: it has not.
        error: why it failed; None: it has not.
    """

    service: DeletionService
    host_fqdns: tuple[str, ...]
    status: DeletionStatus
    requested_at: I64
    completed_at: I64 | None
    error: str | None

    def __post_init__(self) -> None:
        given: object = self.host_fqdns
        if type(given) is list:
            msgspec.structs.force_setattr(self, "host_fqdns", tuple(given))

    @property
    def identity(self) -> tuple[DeletionService, tuple[str, ...] | None]:
        """What tells it from the other results of a job: the service, and but for REVIEW the hosts, in order."""
        return self.service, None if self.service is DeletionService.REVIEW else self.host_fqdns

    def validate(self) -> None:
        """Check the hosts: none is empty; REVIEW has one or more, every other service exactly one.

        Raises:
            InvalidRecordError: so it is not.
        """
        if not all(self.host_fqdns):
            raise self._refused("no host can be empty")
        if self.service is DeletionService.REVIEW:
            if not self.host_fqdns:
                raise self._refused("a result of review needs a host")
        elif len(self.host_fqdns) != 1:
            raise self._refused(f"a result of {self.service.text} has one host, not {len(self.host_fqdns)}")

    def _refused(self, reason: str) -> InvalidRecordError:
        return InvalidRecordError(
            family=CUSTOMER_DATA_DELETION_JOBS.family, kind="DeletionResult", reason=f"field 'host_fqdns': {reason}"
        )


class CustomerDataDeletionJob(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """The deletion of all data of a customer.

    Attributes:
        customer_id: the customer.
        service_results: a result for each service and host, in the order in which they were added. A list is taken too,
            and becomes a tuple.
    """

    customer_id: U32
    service_results: tuple[DeletionResult, ...]

    def __post_init__(self) -> None:
        given: object = self.service_results
        if type(given) is list:
            msgspec.structs.force_setattr(self, "service_results", tuple(given))


_KEY = Key(customer_id=uint32)

CUSTOMER_DATA_DELETION_JOBS: Schema[CustomerDataDeletionJob] = Schema(
    CustomerDataDeletionJob,
    family="customer deletion jobs",
    key=_KEY,
    value=PositionalValue(CustomerDataDeletionJob, _KEY),
)
"""The schema of the family. `CustomerDataDeletionJobs` has all operations of a table."""


class CustomerDataDeletionJobs(
    Readable[CustomerDataDeletionJob], Scannable[CustomerDataDeletionJob], Writable[CustomerDataDeletionJob]
):
    """The deletion jobs of a store, of a transaction, or as of a view.

    `ReviewStore.customer_data_deletion_jobs` makes it.
    """

    __slots__ = ()

    def get(self, customer_id: int) -> CustomerDataDeletionJob | None:
        """The job of this customer, or None.

        Raises:
            DecodeError: the row cannot be read. TypeError, ValueError: `customer_id` is no unsigned 32-bit int.
        """
        return super().get(customer_id)

    def delete(self, customer_id: int) -> None:
        """Delete the job of this customer; no error when there is none, or when it cannot be read.

        Arguments:
            customer_id: the customer.

        Raises:
            TypeError, ValueError: it is no key of this table.
        """
        super().delete(customer_id)

    def add_service(self, customer_id: int, result: DeletionResult) -> None:
        """Add a result to the job of this customer, after those that it has.

        Raises:
            InvalidRecordError: the result is not valid (`DeletionResult.validate`), or a field cannot be stored.
            NoSuchEntryError: the customer has no job; insert one first.
            DeletionResultExistsError: the job has a result of the same identity.
            DecodeError: the job cannot be read. TypeError, ValueError: see `get`.
        """
        row_key = _checked(customer_id, result)

        def add(rows: FamilyWriter) -> None:
            job = _existing(rows, row_key)
            if _position(job, result) is not None:
                raise DeletionResultExistsError(
                    customer_id=customer_id, service=result.service.text, host_fqdns=result.host_fqdns
                )
            _store(rows, row_key, job, (*job.service_results, result))

        self._writing(add)

    def update_service(self, customer_id: int, result: DeletionResult) -> None:
        """Replace status, times and error of the result of the same identity; it keeps its service and its hosts.

        None replaces what was there too. Where a job that was written otherwise has several such results, the first one
        is changed.

        Raises:
            InvalidRecordError: the result is not valid (`DeletionResult.validate`), or a field cannot be stored.
            NoSuchEntryError: the customer has no job.
            NoSuchDeletionResultError: the job has no result of this identity; add it first.
            DecodeError: the job cannot be read. TypeError, ValueError: see `get`.
        """
        row_key = _checked(customer_id, result)

        def update(rows: FamilyWriter) -> None:
            job = _existing(rows, row_key)
            at = _position(job, result)
            if at is None:
                raise NoSuchDeletionResultError(
                    customer_id=customer_id, service=result.service.text, host_fqdns=result.host_fqdns
                )
            results = job.service_results
            changed = msgspec.structs.replace(result, host_fqdns=results[at].host_fqdns)
            _store(rows, row_key, job, (*results[:at], changed, *results[at + 1 :]))

        self._writing(update)


def _checked(customer_id: int, result: DeletionResult) -> bytes:
    """The key of the customer's job, when the result can be stored in it."""
    if not isinstance(result, DeletionResult):
        raise TypeError(f"a DeletionResult expected, not {type(result).__name__}")
    row_key = _KEY.encode(customer_id)
    CUSTOMER_DATA_DELETION_JOBS.encode(CustomerDataDeletionJob(customer_id=customer_id, service_results=(result,)))
    result.validate()
    return row_key


def _existing(rows: FamilyWriter, row_key: bytes) -> CustomerDataDeletionJob:
    job = CUSTOMER_DATA_DELETION_JOBS.stored(rows, row_key)
    if job is None:
        raise NoSuchEntryError(family=rows.name, key=row_key, hint="insert a deletion job of this customer first")
    return job


def _position(job: CustomerDataDeletionJob, result: DeletionResult) -> int | None:
    """Where the first result of the same identity stands."""
    identities = [each.identity for each in job.service_results]
    return identities.index(result.identity) if result.identity in identities else None


def _store(
    rows: FamilyWriter, row_key: bytes, job: CustomerDataDeletionJob, results: tuple[DeletionResult, ...]
) -> None:
    changed = msgspec.structs.replace(job, service_results=results)
    CUSTOMER_DATA_DELETION_JOBS.replace_row(rows, row_key, job, changed)
