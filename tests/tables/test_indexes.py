"""Secondary indexes: kept by every way to write, found by, checked, and rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pystate import Store
from pystate.errors import DecodeError, InvalidRecordError, KeyExistsError, SlotTakenError
from pystate.tables import BoundTable, Index, Key, RetentionIndex, Table, boolean, int64, rest_text, text, uint32
from tests.tables.samples import FAMILY, JOBS, Job, new_store


@pytest.fixture
def store() -> Iterator[Store]:
    """Whose index rows must be right when a test is over."""
    with new_store() as opened:
        yield opened
        assert JOBS.bind(opened).check() == []


@pytest.fixture
def jobs(store: Store) -> BoundTable[Job]:
    return JOBS.bind(store)


def names(jobs: list[Job]) -> list[str]:
    return [job.name for job in jobs]


def test_an_index_finds_records_in_its_order(jobs: BoundTable[Job]) -> None:
    for name, rank in (("c", 2), ("bb", -1), ("a", -1), ("d", 7)):
        jobs.put(Job(name=name, rank=rank))
    assert names(jobs.find("rank")) == ["a", "bb", "c", "d"]
    assert names(jobs.find("rank", -1)) == ["a", "bb"]  # equal ones: the shorter key first
    assert names(jobs.find("rank", reverse=True, limit=2)) == ["d", "c"]
    assert names(jobs.between("rank", (-1,), (2,))) == ["a", "bb"]
    assert names(jobs.between("rank", (-1,), (2,), include_stop=True)) == ["a", "bb", "c"]
    assert names(jobs.between("rank", (2,))) == ["c", "d"]
    assert names(jobs.between("rank", reverse=True)) == ["d", "c", "bb", "a"]
    assert names(jobs.find("running")) == []


def test_a_slot_is_held_by_one_record(jobs: BoundTable[Job]) -> None:
    jobs.insert(Job(name="a", running=True))
    for write in (jobs.put, jobs.insert):
        with pytest.raises(SlotTakenError, match="index 'running': machine 'm' is held by b'a") as caught:
            write(Job(name="b", running=True))
    assert caught.value.slot == {"machine": "m"}
    assert caught.value.holder == JOBS.key.encode("a")
    assert jobs.get("b") is None
    jobs.put(Job(name="a", running=True, rank=4))  # the holder itself may be written again
    assert jobs.lookup("running", "m") == Job(name="a", running=True, rank=4)
    jobs.put(Job(name="a"))
    assert jobs.lookup("running", "m") is None
    jobs.insert(Job(name="b", running=True))


def test_a_move_takes_its_slot_along(jobs: BoundTable[Job]) -> None:
    jobs.insert(Job(name="a", running=True))
    jobs.update(Job(name="a", running=True), Job(name="z", running=True))
    assert jobs.lookup("running", "m") == Job(name="z", running=True)
    jobs.insert(Job(name="b", machine="n", running=True))
    with pytest.raises(SlotTakenError):
        jobs.update(Job(name="z", running=True), Job(name="y", machine="n", running=True))
    assert jobs.check() == []
    assert names(jobs.find("running")) == ["z", "b"]


def test_a_refused_write_leaves_nothing_in_the_callers_transaction(store: Store) -> None:
    JOBS.bind(store).insert(Job(name="a", running=True))
    JOBS.bind(store).insert(Job(name="b", rank=1))
    with store.begin() as txn:
        jobs = JOBS.bind(txn)
        with pytest.raises(SlotTakenError):
            jobs.put(Job(name="b", running=True, rank=2))
        with pytest.raises(SlotTakenError):
            jobs.update(Job(name="b", rank=1), Job(name="c", running=True))
        with pytest.raises(KeyExistsError):
            jobs.insert(Job(name="b"))
        jobs.put(Job(name="d"))
    assert JOBS.bind(store).check() == []
    assert list(JOBS.bind(store).iter()) == [Job(name="a", running=True), Job(name="b", rank=1), Job(name="d")]


def test_rows_of_indexes_are_no_records(store: Store, jobs: BoundTable[Job]) -> None:
    jobs.insert_many([Job(name="a", running=True), Job(name="b")])
    assert len(store.family(FAMILY)) == 5
    assert names(list(jobs.iter())) == names(list(jobs.iter(reverse=True)))[::-1] == ["a", "b"]
    assert list(jobs.iter(seek=b"\xff", reverse=True, limit=1)) == [Job(name="b")]
    jobs.replace_all([Job(name="c", running=True)])
    assert len(store.family(FAMILY)) == 3
    jobs.delete("c")
    assert len(store.family(FAMILY)) == 0


def test_a_key_that_begins_where_index_rows_do_is_refused() -> None:
    class Counted(Job, frozen=True, kw_only=True):
        number: int

    table = Table(
        Counted, family=FAMILY, key=Key(number=uint32), indexes=[Index("rank", tag=0xF8, key=Key(rank=int64))]
    )
    counted = table.bind(new_store())
    counted.put(Counted(name="", number=0xF7FFFFFF))
    with pytest.raises(InvalidRecordError, match="its key begins with 0xf8; from 0xf8 up is for rows of indexes"):
        counted.put(Counted(name="", number=0xF8000000))


def test_an_undecodable_row_is_not_overwritten_but_deleted_with_its_index_rows(store: Store) -> None:
    jobs = JOBS.bind(store)
    jobs.insert_many([Job(name="a", running=True, rank=3), Job(name="b", rank=3)])
    store.family(FAMILY)[JOBS.key.encode("a")] = b"garbage"
    with pytest.raises(DecodeError):
        jobs.put(Job(name="a"))
    with pytest.raises(DecodeError):
        jobs.find("rank", 3)
    assert {type(problem.error) for problem in jobs.check()} == {DecodeError, type(None)}
    jobs.delete("a")
    assert jobs.check() == []
    assert names(jobs.find("rank", 3)) == ["b"]
    jobs.insert(Job(name="c", running=True))


def test_check_tells_what_is_missing_surplus_and_wrong_and_rebuild_repairs_it(store: Store) -> None:
    jobs = JOBS.bind(store)
    jobs.insert_many([Job(name="a", running=True, rank=1), Job(name="b", rank=2)])
    rows = store.family(FAMILY)
    running, rank = JOBS.index("running").row, JOBS.index("rank").row
    missing = rank(JOBS.key.encode("b"), Job(name="b", rank=2))
    wrong = running(JOBS.key.encode("a"), Job(name="a", running=True))
    assert missing is not None
    assert wrong is not None
    del rows[missing]
    rows[wrong] = b"b"
    rows[b"\xfaextra"] = b"a"
    found = {(problem.key, problem.expected, problem.found) for problem in jobs.check()}
    assert found == {
        (missing, JOBS.key.encode("b"), None),
        (wrong, JOBS.key.encode("a"), b"b"),
        (b"\xfaextra", None, b"a"),
    }
    said = [str(problem) for problem in jobs.check()]
    assert any(text.endswith("should not be there, and is b'a'") for text in said)
    assert any(text.endswith("and is absent") for text in said)
    assert jobs.rebuild_indexes() == 3
    assert jobs.check() == []
    assert jobs.rebuild_indexes() == 0


def test_rebuild_refuses_two_holders_of_one_slot_and_rows_it_cannot_read() -> None:
    store = new_store()
    jobs = JOBS.bind(store)
    jobs.insert(Job(name="a", running=True))
    rows = store.family(FAMILY)
    rows[JOBS.key.encode("b")] = JOBS.encode(Job(name="b", running=True))
    with pytest.raises(SlotTakenError, match="machine 'm' is held by b'a"):
        jobs.rebuild_indexes()
    rows[JOBS.key.encode("b")] = b"garbage"
    with pytest.raises(DecodeError):
        jobs.rebuild_indexes()


@pytest.mark.parametrize(("indexed", "stray"), [("a", "b"), ("b", "a")])
def test_check_tells_of_two_holders_of_one_slot_in_any_order(indexed: str, stray: str) -> None:
    store = new_store()
    jobs = JOBS.bind(store)
    jobs.insert(Job(name=indexed, running=True))
    rows = store.family(FAMILY)
    rows[JOBS.key.encode(stray)] = JOBS.encode(Job(name=stray, running=True))
    slot = JOBS.index("running").row(b"", Job(name="", running=True))
    assert slot in {problem.key for problem in jobs.check()}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Index("", tag=0xF8, key=Key(a=text)),
        lambda: Index("x", tag=0xF7, key=Key(a=text)),
        lambda: Index("x", tag=256, key=Key(a=text)),
        lambda: Index("x", tag=True, key=Key(a=text)),
        lambda: Index("x", tag=0xF8, key=Key(a=rest_text)),
        lambda: RetentionIndex(
            "x", history_tag=0xF8, superseded_tag=0xF9, counts_tag=0xFA, group=Key(a=rest_text), order=Key(b=int64),
            member=bool, expendable=bool,
        ),
    ],
    ids=["no name", "tag too low", "tag too high", "tag no int", "open end", "open end of a group"],
)  # fmt: skip
def test_an_index_that_cannot_be_is_refused_when_it_is_declared(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="index"):
        wrong()


def test_indexes_that_get_in_each_others_way_are_refused() -> None:
    one = Index[Job]("one", tag=0xF8, key=Key(rank=int64))
    for other, said in (
        (Index[Job]("one", tag=0xF9, key=Key(rank=int64)), "two indexes are called 'one'"),
        (Index[Job]("two", tag=0xF8, key=Key(running=boolean)), "'one' and 'two' share the tag 0xf8"),
    ):
        with pytest.raises(ValueError, match=said):
            Table(Job, family=FAMILY, key=Key(name=text), indexes=[one, other])


def test_lookups_name_their_index(jobs: BoundTable[Job]) -> None:
    with pytest.raises(KeyError, match="no index 'speed'"):
        jobs.find("speed")
    with pytest.raises(ValueError, match="index 'rank' is not unique"):
        jobs.lookup("rank", 1)
    with pytest.raises(TypeError, match="1 values expected"):
        jobs.lookup("running")
    with pytest.raises(TypeError, match="at most 1 values"):
        jobs.find("rank", 1, 2)


class IndexedTable(RuleBasedStateMachine):
    """Every way to write, in any order, against a dict: the index rows are what the records say, always."""

    jobs_of = st.builds(
        Job, name=st.sampled_from("abc"), machine=st.sampled_from("mn"), rank=st.integers(-2, 2), running=st.booleans()
    )

    def __init__(self) -> None:
        super().__init__()
        self.store = new_store()
        self.jobs = JOBS.bind(self.store)
        self.model: dict[str, Job] = {}

    def taken(self, *new: Job, without: tuple[str, ...] = ()) -> bool:
        after = {name: job for name, job in self.model.items() if name not in without}
        after.update({job.name: job for job in new})
        held = [job.machine for job in after.values() if job.running]
        return len(set(held)) < len(held)

    def expect(self, error: type[Exception] | None, write: Callable[..., Any], *arguments: Any) -> bool:
        if error is None:
            write(*arguments)
            return True
        with pytest.raises(error):
            write(*arguments)
        return False

    @rule(job=jobs_of)
    def put(self, job: Job) -> None:
        if self.expect(SlotTakenError if self.taken(job) else None, self.jobs.put, job):
            self.model[job.name] = job

    @rule(job=jobs_of)
    def insert(self, job: Job) -> None:
        error = KeyExistsError if job.name in self.model else SlotTakenError if self.taken(job) else None
        if self.expect(error, self.jobs.insert, job):
            self.model[job.name] = job

    @rule(name=st.sampled_from("abc"), new=jobs_of)
    def update(self, name: str, new: Job) -> None:
        old = self.model.get(name)
        if old is None:
            return
        error: type[Exception] | None = None
        if new.name != name and new.name in self.model:
            error = KeyExistsError
        elif self.taken(new, without=(name,)):
            error = SlotTakenError
        if self.expect(error, self.jobs.update, old, new):
            del self.model[name]
            self.model[new.name] = new

    @rule(name=st.sampled_from("abc"), garble=st.booleans())
    def delete(self, name: str, garble: bool) -> None:
        if garble and name in self.model:
            self.store.family(FAMILY)[JOBS.key.encode(name)] = b"garbage"
        self.jobs.delete(name)
        self.model.pop(name, None)

    @rule(given=st.lists(jobs_of, max_size=3, unique_by=lambda job: job.name))
    def replace_all(self, given: list[Job]) -> None:
        held = [job.machine for job in given if job.running]
        if self.expect(SlotTakenError if len(set(held)) < len(held) else None, self.jobs.replace_all, given):
            self.model = {job.name: job for job in given}

    @invariant()
    def indexes_agree(self) -> None:
        assert self.jobs.check() == []
        assert {job.name: job for job in self.jobs.iter()} == self.model
        by_rank = sorted(self.model.values(), key=lambda job: (job.rank, job.name))
        assert self.jobs.find("rank") == by_rank
        for machine in "mn":
            holders = [job for job in self.model.values() if job.running and job.machine == machine]
            assert self.jobs.lookup("running", machine) == (holders[0] if holders else None)


TestIndexedTable = IndexedTable.TestCase
TestIndexedTable.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
