"""The store with all tables: opening it, its accessors, and several tables in one transaction or view."""

from __future__ import annotations

import errno
import inspect
from pathlib import Path

import pytest

import pystate
from pystate import ClosedError, ConflictError, LockedError
from pystate.errors import FamilyMismatchError, KeyExistsError, NotAStoreError
from pystate.review.families import FAMILIES, FAMILIES_0_43
from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.networks import Network
from pystate.review.statuses import ReviewStatus
from pystate.review.store import ReviewState, ReviewStore
from pystate.testing import CrashState, SimulatedDisk, check, each_call
from tests.review.node_samples import THEN, agent, node

ACCESSORS = {
    "agents",
    "allow_networks",
    "block_networks",
    "core_components",
    "customer_data_deletion_jobs",
    "customers",
    "event_tags",
    "external_services",
    "hosts",
    "label_database",
    "networks",
    "nodes",
    "operation_attempts",
    "statuses",
    "tor_exit_nodes",
    "triage_exclusion_reasons",
    "triage_policies",
    "workflow_tags",
}


def test_there_is_an_accessor_for_every_table() -> None:
    """Section 12.6 and the design: one for each, and network tags of a customer."""
    properties = {name for name, value in vars(ReviewState).items() if isinstance(value, property)}
    assert properties == ACCESSORS
    assert list(inspect.signature(ReviewState.network_tags).parameters) == ["self", "customer_id"]


@pytest.mark.parametrize("name", sorted(ACCESSORS))
def test_accessors_are_bound_to_what_the_state_is(name: str) -> None:
    """To the store, to a transaction, to a view: the same class each time, reading its own source."""
    with ReviewStore.memory() as review, review.store.begin() as txn, review.view() as viewed:
        kinds = {type(getattr(state, name)) for state in (review, review.bind(txn), viewed)}
        assert len(kinds) == 1
        assert repr(txn) in repr(getattr(review.bind(txn), name))


def test_opening_makes_what_is_missing(tmp_path: Path) -> None:
    """Section 12.6: from nothing, all 39 families; no marker is written or looked at, that is for who migrates."""
    data, backup = tmp_path / "deep" / "data", tmp_path / "backup"
    with ReviewStore.open(data, backup) as review:
        assert review.store.path == str(data / "states.db")
        assert (review.data_dir, review.backup_dir) == (str(data), str(backup))
        assert set(review.store.families) == {"default", *FAMILIES}
        assert len(FAMILIES) == 39
    assert {each.name for each in data.iterdir()} == {"states.db", "pretrained"}
    assert list((data / "pretrained").iterdir()) == []
    assert not backup.exists()
    (data / "pretrained" / "model").write_bytes(b"kept")
    with ReviewStore.open(str(data), str(backup)) as review:
        review.nodes.put(node("a", "h", agents=[agent("1")]))
    with ReviewStore.open(data, backup) as review:
        assert [each.name for each in review.nodes.iter()] == ["a"]
    assert (data / "pretrained" / "model").read_bytes() == b"kept"


def test_opening_an_older_set_adds_families_and_looks_at_no_marker(tmp_path: Path) -> None:
    """Section 12.6: which is why whoever opens migrates first."""
    (tmp_path / "VERSION").write_text("0.43.0")
    pystate.open(tmp_path / "states.db", families=FAMILIES_0_43).close()
    ReviewStore.open(tmp_path, tmp_path / "backup").close()
    assert set(pystate.list_families(tmp_path / "states.db")) == {"default", *FAMILIES}
    assert (tmp_path / "VERSION").read_text() == "0.43.0"


def test_families_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    pystate.open(tmp_path / "states.db", families=[*FAMILIES_0_43, "account policy"]).close()
    with pytest.raises(FamilyMismatchError) as caught:
        ReviewStore.open(tmp_path, tmp_path / "backup")
    assert caught.value.unnamed == ("account policy",)
    assert set(pystate.list_families(tmp_path / "states.db")) == {"default", "account policy", *FAMILIES_0_43}
    with pystate.memory(families=["agents", "x"]) as store, pytest.raises(FamilyMismatchError) as caught:
        ReviewStore(store)
    assert caught.value.unnamed == ("x",)
    assert set(caught.value.missing) == set(FAMILIES) - {"agents"}


def test_what_is_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "states.db").write_text("mine")
    with pytest.raises(NotAStoreError):
        ReviewStore.open(tmp_path / "one", tmp_path / "backup")
    assert (tmp_path / "one" / "states.db").read_text() == "mine"
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "pretrained").write_text("mine")
    with pytest.raises(OSError, match="pretrained"):
        ReviewStore.open(tmp_path / "two", tmp_path / "backup")
    assert [each.name for each in (tmp_path / "two").iterdir()] == ["pretrained"]


def test_one_opener_at_a_time(tmp_path: Path) -> None:
    with ReviewStore.open(tmp_path, tmp_path / "backup"):
        with pytest.raises(LockedError):
            ReviewStore.open(tmp_path, tmp_path / "backup")
    ReviewStore.open(tmp_path, tmp_path / "backup").close()


def test_all_of_opening_goes_through_the_given_files() -> None:
    """Whatever fails while opening is raised, holds no lock, and leaves what can be opened."""
    disk = SimulatedDisk()
    with ReviewStore.open("/deep/data", "/backup", files=disk, durability="process") as review:
        assert review.store.durability == "process"
        sequence = review.store.sequence
    assert disk.kind("/deep/data/pretrained") == "directory"
    with ReviewStore.open("/deep/data", "/backup", files=disk) as review:
        assert review.store.sequence == sequence


def opened(disk: SimulatedDisk) -> ReviewStore:
    return ReviewStore.open("/deep/data", "/backup", files=disk)


def test_opening_that_fails_can_be_repeated() -> None:
    """Whatever call to the disk fails: the store is closed, its lock is free, and the next opening succeeds."""
    failed = 0
    for call in each_call(lambda disk: opened(disk).close()):
        disk = SimulatedDisk()
        disk.inject(call.fault(errno.EIO))
        try:
            opened(disk).close()
        except (OSError, pystate.PystateError):
            failed += 1
        assert (disk.held_locks, disk.open_descriptors) == ([], []), call
        with opened(disk) as review:
            assert {each.id for each in review.statuses.iter()} == {1, 2, 3}, call
    assert failed > 20


def test_crash_while_opening_or_writing_leaves_whole_nodes() -> None:
    """Wherever it comes: the next opening has all families and statuses, and a node with its agents, or none."""

    def workload(disk: SimulatedDisk) -> None:
        with opened(disk) as review:
            review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")]))
            review.nodes.remove(0)
            review.nodes.put(node("b", "h", agents=[agent("3")]))

    def verify(state: CrashState) -> None:
        with opened(state.open_disk()) as review:
            assert set(review.store.families) == {"default", *FAMILIES}
            assert {each.id for each in review.statuses.iter()} == {1, 2, 3}
            found = [(each.name, [member.key for member in each.agents]) for each in review.nodes.iter()]
            assert found in ([], [("a", ["1", "2"])], [("b", ["3"])])
            assert len(list(review.agents.iter())) == sum(len(keys) for _, keys in found)
            seen.add(str(found))

    seen: set[str] = set()
    check(workload, verify, budget=400)
    assert len(seen) == 3


# Several tables at once


def test_several_tables_in_one_transaction() -> None:
    with ReviewStore.memory() as review:
        before = review.store.sequence

        def work(state: ReviewState) -> int:
            tag = state.network_tags(1).insert("tag")
            state.networks.put(
                Network(
                    name="n",
                    id=0,
                    description="",
                    networks=HostNetworkGroup.new(),
                    tag_ids=(tag,),
                    creation_time=THEN,
                )
            )
            return state.nodes.put(node("a", "h", agents=[agent("1")]))

        assert review.transact(work) == 0
        assert review.store.sequence == before + 1
        assert [each.tag_ids for each in review.networks.iter()] == [(0,)]
        assert [each.key for each in review.agents.iter()] == ["1"]


def test_transaction_that_raises_leaves_nothing() -> None:
    with ReviewStore.memory() as review:

        def work(state: ReviewState) -> None:
            state.event_tags.insert("tag")
            state.nodes.put(node("a"))
            state.nodes.put(node("a"))

        with pytest.raises(KeyExistsError):
            review.transact(work)
        assert (review.event_tags.entries(), review.nodes.count()) == ([], 0)


def test_transaction_runs_again_on_a_conflict_as_often_as_it_may() -> None:
    with ReviewStore.memory() as review:
        runs: list[int] = []

        def work(state: ReviewState) -> None:
            runs.append(state.nodes.count())
            if len(runs) == 1:
                review.nodes.put(node("rival"))
            state.event_tags.insert(f"{state.nodes.count()} nodes")

        with pytest.raises(ConflictError):
            review.transact(work, attempts=1)
        review.nodes.remove(0)
        runs.clear()
        review.transact(work)
        assert runs == [0, 1]
        assert [tag.text for tag in review.event_tags.entries()] == ["1 nodes"]


def test_view_shows_one_moment() -> None:
    with ReviewStore.memory() as review:
        review.nodes.put(node("a"))
        with review.view() as state:
            review.nodes.put(node("b"))
            review.statuses.put(ReviewStatus(id=0, description="new"))
            assert state.nodes.count() == 1
            assert state.statuses.count() == 3
            with pytest.raises(TypeError, match="view"):
                state.statuses.put(ReviewStatus(id=0, description="new"))
            with pytest.raises(TypeError, match="view"):
                state.agents.put(agent("1"))
        with pytest.raises(ClosedError):
            state.nodes.count()
        assert review.store.stats().views == 0


def test_closed_store_raises() -> None:
    review = ReviewStore.memory()
    nodes = review.nodes
    with review:
        pass
    review.close()
    for action in (nodes.count, lambda: review.nodes, lambda: review.transact(lambda state: None)):
        with pytest.raises(ClosedError):
            action()


def test_read_only_store_is_not_written(tmp_path: Path) -> None:
    """Given one without statuses, whose families are right: they are shown as they are."""
    pystate.open(tmp_path / "states.db", families=FAMILIES).close()
    with ReviewStore(pystate.open(tmp_path / "states.db", read_only=True)) as review:
        assert list(review.statuses.iter()) == []
        assert review.data_dir is None


def test_what_is_no_path_is_refused(tmp_path: Path) -> None:
    for wrong, error in [("", ValueError), (b"data", TypeError), (None, TypeError)]:
        with pytest.raises(error):
            ReviewStore.open(wrong, tmp_path)  # type: ignore[arg-type]
        with pytest.raises(error):
            ReviewStore.open(tmp_path / "data", wrong)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
