"""Deletion jobs: which results are valid, which are the same, and that none is lost."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import pystate
from pystate import Store
from pystate.errors import (
    DecodeError,
    DeletionResultExistsError,
    InvalidRecordError,
    KeyExistsError,
    NoSuchDeletionResultError,
    NoSuchEntryError,
    PystateError,
)
from pystate.review.deletion_job import (
    CUSTOMER_DATA_DELETION_JOBS,
    CustomerDataDeletionJob,
    CustomerDataDeletionJobs,
    DeletionResult,
    DeletionService,
    DeletionStatus,
)
from pystate.testing.interleavings import Scenario, explore
from tests.review.plain_tables import fields_in

FAMILY = "customer deletion jobs"
REVIEW, SENSOR, SEMI_SUPERVISED = DeletionService
CUSTOMER = 0x01020304


def result(service: DeletionService = SENSOR, *hosts: str, **fields: Any) -> DeletionResult:
    given: dict[str, Any] = {
        "status": DeletionStatus.IN_PROGRESS,
        "requested_at": 10,
        "completed_at": None,
        "error": None,
    }
    return DeletionResult(service=service, host_fqdns=hosts, **given | fields)


#: As in the examples of the specification.
OF_REVIEW = result(REVIEW, "review.example", "review-2.example")
OF_SENSOR = result(SENSOR, "sensor.example", status=DeletionStatus.SUCCEEDED, requested_at=20)


def job(*results: DeletionResult, customer_id: int = CUSTOMER) -> CustomerDataDeletionJob:
    return CustomerDataDeletionJob(customer_id=customer_id, service_results=results)


def jobs_of(store: Store) -> CustomerDataDeletionJobs:
    return CustomerDataDeletionJobs(CUSTOMER_DATA_DELETION_JOBS, store)


def results_in(jobs: CustomerDataDeletionJobs) -> tuple[DeletionResult, ...]:
    found = jobs.get(CUSTOMER)
    assert found is not None
    return found.service_results


@pytest.fixture
def store() -> Iterator[Store]:
    with pystate.memory(families=[FAMILY]) as opened:
        yield opened


@pytest.fixture
def jobs(store: Store) -> CustomerDataDeletionJobs:
    return jobs_of(store)


def test_enums_have_stored_indexes_and_texts() -> None:
    assert [(each.value, each.text) for each in DeletionService] == [
        (0, "review"),
        (1, "sensor"),
        (2, "semi_supervised"),
    ]
    assert [(each.value, each.text) for each in DeletionStatus] == [(0, "in_progress"), (1, "succeeded"), (2, "failed")]


# ---- what is stored -------------------------------------------------------------------------------------------------


def test_the_row_is_the_customer_and_the_results(store: Store, jobs: CustomerDataDeletionJobs) -> None:
    """Check R153: key 01 02 03 04; the value holds the list of results and nothing else, as what it decodes to."""
    jobs.insert(job(OF_REVIEW, OF_SENSOR))
    ((key, value),) = store.family(FAMILY).items()
    assert key == b"\x01\x02\x03\x04"
    assert fields_in(value) == [
        [
            [0, ["review.example", "review-2.example"], 0, 10, None, None],
            [1, ["sensor.example"], 1, 20, None, None],
        ]
    ]
    failed = result(SENSOR, "sensor.example", status=DeletionStatus.FAILED, requested_at=20, completed_at=30, error="e")
    assert fields_in(msgspec.msgpack.encode(failed)) == [1, ["sensor.example"], 2, 20, 30, "e"]


def test_generic_writes_and_reads(jobs: CustomerDataDeletionJobs) -> None:
    """Check R154: a second insert fails, put overwrites, job 7 comes before 0x01020304."""
    jobs.insert(job(OF_REVIEW))
    with pytest.raises(KeyExistsError):
        jobs.insert(job(OF_SENSOR))
    assert jobs.get(CUSTOMER) == job(OF_REVIEW)
    jobs.put(job(OF_SENSOR))
    jobs.insert(job(customer_id=7))
    assert list(jobs.iter()) == [job(customer_id=7), job(OF_SENSOR)]
    assert jobs.get(8) is None
    jobs.delete(CUSTOMER)
    jobs.delete(CUSTOMER)
    assert list(jobs.iter()) == [job(customer_id=7)]


def test_generic_writes_do_not_look_at_the_results(jobs: CustomerDataDeletionJobs) -> None:
    strange = job(result(REVIEW), result(SENSOR, ""), result(SENSOR, ""), result(SEMI_SUPERVISED, "a", "b"))
    jobs.insert(strange)
    jobs.put(strange)
    assert jobs.get(CUSTOMER) == strange


def test_results_and_hosts_may_be_given_as_lists(jobs: CustomerDataDeletionJobs) -> None:
    given: Any = [DeletionResult(**msgspec.structs.asdict(OF_SENSOR) | {"host_fqdns": ["sensor.example"]})]
    made = CustomerDataDeletionJob(customer_id=CUSTOMER, service_results=given)
    assert made == job(OF_SENSOR)
    jobs.insert(made)
    with pytest.raises(DeletionResultExistsError):
        jobs.add_service(CUSTOMER, given[0])


@pytest.mark.parametrize("durability", ["sync", "process"])
def test_a_job_survives_closing_and_reopening(tmp_path: Path, durability: pystate.Durability) -> None:
    """Check R163: with what was added and updated."""
    path = str(tmp_path / "store")
    with pystate.open(path, durability=durability) as store:
        store.create_family(FAMILY)
        jobs_of(store).insert(job(OF_REVIEW))
        jobs_of(store).add_service(CUSTOMER, OF_SENSOR)
        jobs_of(store).update_service(CUSTOMER, result(REVIEW, "other.example", requested_at=50))
    with pystate.open(path) as store:
        assert jobs_of(store).get(CUSTOMER) == job(msgspec.structs.replace(OF_REVIEW, requested_at=50), OF_SENSOR)


def test_rows_that_cannot_be_read_are_reported(store: Store, jobs: CustomerDataDeletionJobs) -> None:
    """Check R164: a key of three bytes in iteration; a value that is none in `get`, and in adding and updating."""
    jobs.insert(job(customer_id=7))
    store.family(FAMILY)[b"\x01\x02\x03"] = CUSTOMER_DATA_DELETION_JOBS.encode(job())
    store.family(FAMILY)[b"\x01\x02\x03\x04\x05"] = CUSTOMER_DATA_DELETION_JOBS.encode(job())
    store.family(FAMILY)[b"\x01\x02\x03\x04"] = b"not a stored value"
    with pytest.raises(DecodeError):
        list(jobs.iter())
    assert [error and error.key for _, error in jobs.iter_results()] == [
        None,
        b"\x01\x02\x03",
        b"\x01\x02\x03\x04",
        b"\x01\x02\x03\x04\x05",
    ]
    for operation in (jobs.add_service, jobs.update_service):
        with pytest.raises(DecodeError):
            operation(CUSTOMER, OF_SENSOR)
    with pytest.raises(DecodeError):
        jobs.get(CUSTOMER)
    assert store.family(FAMILY)[b"\x01\x02\x03\x04"] == b"not a stored value"


# ---- which results are valid ----------------------------------------------------------------------------------------

VALID = [
    (REVIEW, ("review.example",)),
    (REVIEW, ("review.example", "review-2.example")),
    (REVIEW, ("x", "x")),
    (SENSOR, ("sensor.example",)),
    (SEMI_SUPERVISED, ("sensor.example",)),
]
INVALID = [
    (REVIEW, ()),
    (REVIEW, ("",)),
    (REVIEW, ("x", "")),
    *[(service, hosts) for service in (SENSOR, SEMI_SUPERVISED) for hosts in ((), ("",), ("a", "b"), ("x", ""))],
]


@pytest.mark.parametrize(("service", "hosts"), VALID)
def test_valid_results_are_added_and_updated(
    jobs: CustomerDataDeletionJobs, service: DeletionService, hosts: tuple[str, ...]
) -> None:
    """Check R155, Check R156: REVIEW with one or more hosts, the others with exactly one."""
    jobs.insert(job())
    result(service, *hosts).validate()
    jobs.add_service(CUSTOMER, result(service, *hosts))
    jobs.update_service(CUSTOMER, result(service, *hosts, requested_at=11))
    assert results_in(jobs) == (result(service, *hosts, requested_at=11),)


@pytest.mark.parametrize(("service", "hosts"), INVALID)
def test_invalid_results_are_refused_first_of_all(
    store: Store, jobs: CustomerDataDeletionJobs, service: DeletionService, hosts: tuple[str, ...]
) -> None:
    """Check R155, Check R156: by add and by update; before it is asked whether there is such a job."""
    for operation in (jobs.add_service, jobs.update_service):
        with pytest.raises(InvalidRecordError, match="DeletionResult cannot be stored: field 'host_fqdns': "):
            operation(CUSTOMER, result(service, *hosts))
    assert len(store.family(FAMILY)) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"requested_at": 2**63},
        {"requested_at": None},
        {"completed_at": -(2**63) - 1},
        {"status": 7},
        {"service": None},
        {"error": "\ud800"},
        {"host_fqdns": "sensor.example"},
        {"host_fqdns": (1,)},
    ],
    ids=repr,
)
def test_results_that_cannot_be_stored_are_refused_first_of_all(
    jobs: CustomerDataDeletionJobs, fields: dict[str, Any]
) -> None:
    bad = msgspec.structs.replace(OF_SENSOR, **fields)
    for operation in (jobs.add_service, jobs.update_service):
        with pytest.raises(InvalidRecordError):
            operation(CUSTOMER, bad)
    jobs.insert(job(OF_REVIEW))
    for operation in (jobs.add_service, jobs.update_service):
        with pytest.raises(InvalidRecordError):
            operation(CUSTOMER, bad)
    assert jobs.get(CUSTOMER) == job(OF_REVIEW)


def test_arguments_of_other_types_are_refused(jobs: CustomerDataDeletionJobs) -> None:
    wrong: Any
    for operation in (jobs.add_service, jobs.update_service):
        for wrong in (None, job(), msgspec.structs.asdict(OF_SENSOR)):
            with pytest.raises(TypeError, match="a DeletionResult expected"):
                operation(CUSTOMER, wrong)
        for wrong in ("7", None, True):
            with pytest.raises(TypeError, match="customer_id"):
                operation(wrong, OF_SENSOR)
        for number in (-1, 2**32):
            with pytest.raises(ValueError, match="customer_id"):
                operation(number, OF_SENSOR)


# ---- adding and updating --------------------------------------------------------------------------------------------


def test_which_results_are_the_same(jobs: CustomerDataDeletionJobs) -> None:
    """Check R157: REVIEW by service alone, the others by service and host; 4 results in all."""
    jobs.insert(job(OF_REVIEW))
    with pytest.raises(DeletionResultExistsError) as raised:
        jobs.add_service(CUSTOMER, result(REVIEW, "elsewhere.example"))
    error = raised.value
    assert (error.customer_id, error.service, error.host_fqdns) == (CUSTOMER, "review", ("elsewhere.example",))
    assert pickle.loads(pickle.dumps(error)).host_fqdns == error.host_fqdns
    assert issubclass(raised.type, PystateError)
    assert issubclass(raised.type, ValueError)

    jobs.add_service(CUSTOMER, OF_SENSOR)
    with pytest.raises(DeletionResultExistsError):
        jobs.add_service(CUSTOMER, msgspec.structs.replace(OF_SENSOR, requested_at=99))
    more = result(SENSOR, "sensor-2.example"), result(SEMI_SUPERVISED, "sensor.example")
    for each in more:
        jobs.add_service(CUSTOMER, each)
    assert jobs.get(CUSTOMER) == job(OF_REVIEW, OF_SENSOR, *more)


def test_what_is_not_there_cannot_be_updated_or_added_to(store: Store, jobs: CustomerDataDeletionJobs) -> None:
    """Check R158: no such host; no such customer, for update and add."""
    jobs.insert(job(OF_REVIEW, OF_SENSOR))
    missing = result(SEMI_SUPERVISED, "missing.example")
    with pytest.raises(NoSuchDeletionResultError) as raised:
        jobs.update_service(CUSTOMER, missing)
    assert (raised.value.service, raised.value.host_fqdns) == ("semi_supervised", ("missing.example",))
    assert issubclass(raised.type, KeyError)
    assert pickle.loads(pickle.dumps(raised.value)).customer_id == CUSTOMER

    for operation in (jobs.update_service, jobs.add_service):
        with pytest.raises(NoSuchEntryError, match="deletion job") as other:
            operation(999, OF_SENSOR)
        assert other.value.key == b"\x00\x00\x03\xe7"
    assert list(jobs.iter()) == [job(OF_REVIEW, OF_SENSOR)]


def test_an_update_changes_exactly_that_result(jobs: CustomerDataDeletionJobs) -> None:
    """Check R159: the result of the sensor fails; the others are equal to before."""
    others = OF_REVIEW, result(SEMI_SUPERVISED, "sensor.example"), result(SENSOR, "sensor-2.example")
    jobs.insert(job(others[0], OF_SENSOR, *others[1:]))
    failed = result(
        SENSOR,
        "sensor.example",
        status=DeletionStatus.FAILED,
        requested_at=20,
        completed_at=30,
        error="deletion failed",
    )
    jobs.update_service(CUSTOMER, failed)
    assert jobs.get(CUSTOMER) == job(others[0], failed, *others[1:])


def test_an_update_of_review_keeps_its_hosts(jobs: CustomerDataDeletionJobs) -> None:
    """Check R160: whatever hosts are given."""
    jobs.insert(job(OF_REVIEW, OF_SENSOR))
    jobs.update_service(CUSTOMER, result(REVIEW, "elsewhere.example", status=DeletionStatus.SUCCEEDED))
    changed = msgspec.structs.replace(OF_REVIEW, status=DeletionStatus.SUCCEEDED)
    assert jobs.get(CUSTOMER) == job(changed, OF_SENSOR)


def test_a_retry_clears_what_the_last_attempt_left(jobs: CustomerDataDeletionJobs) -> None:
    """Check R161: requested anew at 40, so no completion and no error."""
    jobs.insert(
        job(result(SENSOR, "a", status=DeletionStatus.SUCCEEDED, requested_at=20, completed_at=30, error="before"))
    )
    retry = result(SENSOR, "a", requested_at=40)
    jobs.update_service(CUSTOMER, retry)
    assert jobs.get(CUSTOMER) == job(retry)


def test_of_several_same_results_the_first_is_updated(jobs: CustomerDataDeletionJobs) -> None:
    jobs.insert(job(OF_SENSOR, OF_SENSOR))
    jobs.update_service(CUSTOMER, result(SENSOR, "sensor.example", requested_at=50))
    assert jobs.get(CUSTOMER) == job(result(SENSOR, "sensor.example", requested_at=50), OF_SENSOR)


def test_both_work_in_a_transaction(store: Store) -> None:
    jobs_of(store).insert(job(OF_REVIEW))
    with store.begin() as txn:
        inside = CustomerDataDeletionJobs(CUSTOMER_DATA_DELETION_JOBS, txn)
        inside.add_service(CUSTOMER, OF_SENSOR)
        inside.update_service(CUSTOMER, msgspec.structs.replace(OF_SENSOR, requested_at=21))
        assert jobs_of(store).get(CUSTOMER) == job(OF_REVIEW)
    assert jobs_of(store).get(CUSTOMER) == job(OF_REVIEW, msgspec.structs.replace(OF_SENSOR, requested_at=21))


# ---- several at once ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "disk"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CustomerDataDeletionJobs]:
    on_disk = request.param == "disk"
    store = pystate.open(str(tmp_path / "s"), durability="process") if on_disk else pystate.memory()
    with store:
        store.create_family(FAMILY)
        yield jobs_of(store)


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let threads take turns much more often than usual, so that they meet in odd places."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_together(*targets: Callable[[], None]) -> None:
    """Run all in threads of their own, begun at once."""
    barrier = Barrier(len(targets))

    def run(target: Callable[[], None]) -> None:
        barrier.wait(30)
        target()

    with ThreadPoolExecutor(len(targets)) as pool:
        for done in [pool.submit(run, target) for target in targets]:
            done.result(60)


def test_results_added_by_two_threads_are_all_there(shared: CustomerDataDeletionJobs, frequent_switches: None) -> None:
    """Check R162: 32 of each, 64 in all, each thread's in its order."""
    shared.insert(job())

    def add(service: DeletionService) -> None:
        for number in range(32):
            shared.add_service(CUSTOMER, result(service, f"host-{number}.example"))

    run_together(lambda: add(SENSOR), lambda: add(SEMI_SUPERVISED))
    found = results_in(shared)
    assert len(found) == 64
    for service in (SENSOR, SEMI_SUPERVISED):
        hosts = [each.host_fqdns for each in found if each.service is service]
        assert hosts == [(f"host-{number}.example",) for number in range(32)]


def test_updates_by_two_threads_all_land(shared: CustomerDataDeletionJobs, frequent_switches: None) -> None:
    """Check R162: 32 updates each of their own result; both end at 32."""
    shared.insert(job(result(SENSOR, "a"), result(SEMI_SUPERVISED, "a")))

    def update(service: DeletionService) -> None:
        for number in range(1, 33):
            shared.update_service(CUSTOMER, result(service, "a", requested_at=number))

    run_together(lambda: update(SENSOR), lambda: update(SEMI_SUPERVISED))
    assert [each.requested_at for each in results_in(shared)] == [32, 32]


def interleaved(operations: dict[str, Callable[[CustomerDataDeletionJobs], None]], expected: set[str]) -> None:
    """Run operations on a job with one result of the sensor in every order, up to two preemptions.

    Arguments:
        expected: how the job may look afterwards: of each result the first letter of its service and its time.
    """
    seen = set()

    def program() -> Scenario:
        jobs = jobs_of(pystate.memory(families=[FAMILY]))
        jobs.insert(job(result(SENSOR, "a", requested_at=1)))

        def check() -> None:
            found = " ".join(f"{each.service.text[:3]}{each.requested_at}" for each in results_in(jobs))
            seen.add(found)
            assert found in expected

        return Scenario({name: partial(operation, jobs) for name, operation in operations.items()}, check)

    explore(program, preemptions=2)
    assert seen == expected


def test_adding_the_same_in_any_order_adds_it_once() -> None:
    """Check R162: one thread adds it, the other one is told that it is there, and updates it."""

    def add(jobs: CustomerDataDeletionJobs, time: int) -> None:
        mine = result(SEMI_SUPERVISED, "a", requested_at=time)
        try:
            jobs.add_service(CUSTOMER, mine)
        except DeletionResultExistsError:
            jobs.update_service(CUSTOMER, msgspec.structs.replace(mine, requested_at=10 + time))

    interleaved({"one": partial(add, time=2), "other": partial(add, time=3)}, {"sen1 sem12", "sen1 sem13"})


def test_adding_and_updating_in_any_order_loses_neither() -> None:
    """Check R162: one thread adds a result, another one updates another result."""

    def add(jobs: CustomerDataDeletionJobs) -> None:
        jobs.add_service(CUSTOMER, result(SEMI_SUPERVISED, "a", requested_at=2))

    def update(jobs: CustomerDataDeletionJobs) -> None:
        jobs.update_service(CUSTOMER, result(SENSOR, "a", requested_at=3))

    interleaved({"adds": add, "updates": update}, {"sen3 sem2"})


# ---- any order ------------------------------------------------------------------------------------------------------

_customers = st.sampled_from([0, 7, CUSTOMER])
_valid = st.one_of(
    st.builds(
        result,
        st.just(REVIEW),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["x", "z"]),
        requested_at=st.integers(0, 9),
    ),
    st.builds(
        result,
        st.sampled_from([SENSOR, SEMI_SUPERVISED]),
        st.sampled_from(["x", "y"]),
        status=st.sampled_from(DeletionStatus),
        requested_at=st.integers(0, 9),
        completed_at=st.none() | st.integers(0, 9),
        error=st.none() | st.just("e"),
    ),
)


class AnyOrder(RuleBasedStateMachine):
    """Jobs as dicts of results by what they are of, beside the table."""

    def __init__(self) -> None:
        super().__init__()
        self.store = pystate.memory(families=[FAMILY])
        self.jobs = jobs_of(self.store)
        self.expected: dict[int, dict[object, DeletionResult]] = {}

    def teardown(self) -> None:
        self.store.close()

    def place(self, each: DeletionResult) -> object:
        return "review" if each.service is REVIEW else (each.service, each.host_fqdns)

    @rule(customer=_customers)
    def insert(self, customer: int) -> None:
        if customer in self.expected:
            with pytest.raises(KeyExistsError):
                self.jobs.insert(job(customer_id=customer))
        else:
            self.jobs.insert(job(customer_id=customer))
            self.expected[customer] = {}

    @rule(customer=_customers)
    def delete(self, customer: int) -> None:
        self.jobs.delete(customer)
        self.expected.pop(customer, None)

    @rule(customer=_customers, each=_valid)
    def add(self, customer: int, each: DeletionResult) -> None:
        results = self.expected.get(customer)
        if results is None:
            with pytest.raises(NoSuchEntryError):
                self.jobs.add_service(customer, each)
        elif self.place(each) in results:
            with pytest.raises(DeletionResultExistsError):
                self.jobs.add_service(customer, each)
        else:
            self.jobs.add_service(customer, each)
            results[self.place(each)] = each

    @rule(customer=_customers, each=_valid)
    def update(self, customer: int, each: DeletionResult) -> None:
        results = self.expected.get(customer)
        if results is None:
            with pytest.raises(NoSuchEntryError):
                self.jobs.update_service(customer, each)
        elif self.place(each) not in results:
            with pytest.raises(NoSuchDeletionResultError):
                self.jobs.update_service(customer, each)
        else:
            self.jobs.update_service(customer, each)
            before = results[self.place(each)]
            results[self.place(each)] = msgspec.structs.replace(each, host_fqdns=before.host_fqdns)

    @invariant()
    def as_expected(self) -> None:
        expected = [job(*results.values(), customer_id=customer) for customer, results in sorted(self.expected.items())]
        assert list(self.jobs.iter()) == expected


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=50)
