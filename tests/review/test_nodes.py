"""Nodes: what is read, what is refused, and that everything happens in one commit, whoever races."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from pystate import ConflictError, Store
from pystate.errors import (
    DecodeError,
    EntryChangedError,
    HostnameInUseError,
    IdOutOfRangeError,
    InvalidRecordError,
    KeyExistsError,
    NoSuchAgentError,
    NoSuchEntryError,
    NoSuchIdError,
    PystateError,
    ValueMismatchError,
)
from pystate.review.lifecycle import Lifecycle
from pystate.review.node import NODES, FoundNode, Inner, Node, NodeUpdate, Profile
from pystate.review.packages import Config, Status
from pystate.review.store import ReviewStore
from tests.review.node_samples import THEN, agent, changed, node, profile, service

FAMILIES = ("nodes", "agents", "external services")


@pytest.fixture
def review() -> Iterator[ReviewStore]:
    with ReviewStore.memory() as review:
        yield review


def found(review: ReviewStore, id: int) -> Node:  # noqa: A002
    """The node with this id, of which everything must be there."""
    read = review.nodes.get_by_id(id)
    assert read is not None
    assert (read.invalid_agents, read.invalid_external_services) == ([], [])
    return read.node


def rows(store: Store) -> dict[str, dict[bytes, bytes]]:
    """All that nodes consist of."""
    return {name: dict(store.family(name).items()) for name in FAMILIES}


def unchanged(
    review: ReviewStore, error: type[PystateError], action: Callable[[], object], match: str | None = None
) -> None:
    """Do something that must be refused and leave everything as it was."""
    before, sequence = rows(review.store), review.store.sequence
    with pytest.raises(error, match=match):
        action()
    assert rows(review.store) == before
    assert review.store.sequence == sequence


# What is stored


def test_a_put_node_gets_its_id_and_so_do_its_members(review: ReviewStore) -> None:
    """Check R134: given with id 123 and agents of node 456, it is read back with id 0 everywhere."""
    given = node("n", "h", agents=[agent("1"), agent("2"), agent("3")], external_services=[service("1"), service("2")])
    assert review.nodes.put(given) == 0
    read = found(review, 0)
    assert read == changed(
        given,
        id=0,
        agents=tuple(agent(key, 0) for key in "123"),
        external_services=tuple(service(key, 0) for key in "12"),
    )
    assert review.nodes.count() == 1
    assert list(review.nodes.iter()) == [read]
    assert [each.key for each in review.agents.iter(prefix=(0,))] == ["1", "2", "3"]


def test_stored_record_is_an_array_in_the_order_of_the_specification() -> None:
    """Check R135: the fixture of section 18, as the decoded value (its nanoseconds to the microsecond), and back."""
    inner = Inner(
        id=42,
        name="fixture-node",
        name_draft="fixture-draft",
        profile=Profile(customer_id=7, description="fixture profile", hostname="fixture.example.com"),
        profile_draft=Profile(customer_id=8, description="fixture profile draft", hostname="draft.fixture.example.com"),
        creation_time=THEN,
        agents=("1", "3"),
        external_services=("0", "1"),
    )
    value = NODES.encode(inner)
    plain: Any = msgspec.msgpack.decode(value)
    assert plain == [
        42,
        "fixture-node",
        "fixture-draft",
        [7, "fixture profile", "fixture.example.com"],
        [8, "fixture profile draft", "draft.fixture.example.com"],
        THEN,
        ["1", "3"],
        ["0", "1"],
    ]
    assert NODES.row_key(inner) == b"fixture-node"
    assert NODES.decode(b"fixture-node", value) == inner
    for wrong in (plain[:-1], [*plain, 0], [*plain[:7], [0]], ["42", *plain[1:]]):
        with pytest.raises(DecodeError):
            NODES.decode(b"fixture-node", msgspec.msgpack.encode(wrong))
    with pytest.raises(DecodeError, match="belongs under"):
        NODES.decode(b"other", value)


def test_removing_takes_everything_and_frees_the_id(review: ReviewStore) -> None:
    """Check R136: no agents, no services, no node; and again there is nothing to remove."""
    review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")], external_services=[service("1")]))
    assert review.nodes.remove(0) == (b"a", [], [])
    assert list(review.agents.iter()) == []
    assert list(review.external_services.iter()) == []
    assert review.nodes.get_by_id(0) is None
    assert review.nodes.count() == 0
    unchanged(review, NoSuchIdError, lambda: review.nodes.remove(0))
    unchanged(review, NoSuchIdError, lambda: review.nodes.remove(5))
    assert review.nodes.put(node("b", "h")) == 0


def test_removing_leaves_the_members_of_others(review: ReviewStore) -> None:
    review.nodes.put(node("a", agents=[agent("1")]))
    review.nodes.put(node("b", agents=[agent("1")]))
    review.agents.delete(0, "1")  # a member that is gone already is no error
    assert review.nodes.remove(0).name == b"a"
    assert found(review, 1).agents == (agent("1", 1),)


def test_a_missing_agent_is_told_of_by_its_key(review: ReviewStore) -> None:
    """Check R137: by get_by_id; iteration shows the node without it."""
    given = node("a", "h", agents=[agent("3"), agent("1"), agent("2")], external_services=[service("1")])
    review.nodes.put(given)
    for key in "123":
        if key != "1":
            review.agents.delete(0, key)
    review.external_services.delete(0, "1")
    read = review.nodes.get_by_id(0)
    assert read == FoundNode(changed(given, id=0, agents=(agent("1", 0),), external_services=()), ["3", "2"], ["1"])
    assert list(review.nodes.iter()) == [read.node]


def test_an_agent_that_cannot_be_read_fails_the_node(review: ReviewStore) -> None:
    """Check R138: get_by_id fails, iteration leaves the agent out."""
    review.nodes.put(node("a", agents=[agent("1"), agent("2")], external_services=[service("1")]))
    review.store.family("agents").put(b"\0\0\0\0" + b"1", b"garbage")
    with pytest.raises(DecodeError, match="Agent"):
        review.nodes.get_by_id(0)
    assert [each.agents for each in review.nodes.iter()] == [(agent("2", 0),)]
    review.agents.put(agent("1", 0))
    review.store.family("external services").put(b"\0\0\0\0" + b"1", b"garbage")
    with pytest.raises(DecodeError, match="ExternalService"):
        review.nodes.get_by_id(0)
    assert [each.external_services for each in review.nodes.iter()] == [()]


def test_lifecycle_that_nobody_knows_does_not_disturb(review: ReviewStore) -> None:
    """Section 9.2: status and lifecycle come in one read, also when the lifecycle is a number of a later version."""
    review.nodes.put(node("a", agents=[agent("1")]))
    key = b"\0\0\0\0" + b"1"
    plain: Any = msgspec.msgpack.decode(review.store.family("agents")[key])
    review.store.family("agents").put(key, msgspec.msgpack.encode([9 if each == 2 else each for each in plain]))
    assert found(review, 0).agents == (agent("1", 0, lifecycle=Lifecycle.UNKNOWN),)


# Hostnames


@pytest.mark.parametrize("stored_in", ["profile", "profile_draft"])
@pytest.mark.parametrize("given_in", ["profile", "profile_draft"])
def test_hostname_of_another_node_is_refused(review: ReviewStore, stored_in: str, given_in: str) -> None:
    """Check R139: in the profile or in the draft, across customers; the message says which."""
    review.nodes.put(changed(node("node1"), **{stored_in: profile("unique-hostname")}))
    second = changed(node("node2"), **{given_in: profile("unique-hostname", customer_id=8)})
    text = "Hostname 'unique-hostname' is already in use"
    unchanged(review, HostnameInUseError, lambda: review.nodes.put(second), text)
    with pytest.raises(HostnameInUseError) as caught:
        review.nodes.put(second)
    assert (caught.value.hostname, caught.value.node_id, caught.value.node_name) == ("unique-hostname", 0, "node1")
    assert review.nodes.put(node("node2", "Unique-hostname")) == 1


def test_one_node_may_have_one_hostname_twice(review: ReviewStore) -> None:
    review.nodes.put(node("a", "h", profile_draft=profile("h", 8)))
    assert found(review, 0).profile_draft == profile("h", 8)


@pytest.mark.parametrize("field", ["profile", "profile_draft"])
def test_update_keeps_hostnames_apart(review: ReviewStore, field: str) -> None:
    """Check R140: another node's hostname is refused, a node's own is not, and neither is a new one."""
    review.nodes.put(node("node1", "host1"))
    review.nodes.put(node("node2", "host2"))
    second = found(review, 1).to_update()
    taken = changed(second, **{field: profile("host1")})
    unchanged(review, HostnameInUseError, lambda: review.nodes.update(1, second, taken), "'host1' is already in use")
    own = changed(found(review, 0).to_update(), **{field: profile("host1", 99)})
    assert getattr(review.nodes.update(0, found(review, 0).to_update(), own), field) == profile("host1", 99)
    new = changed(second, **{field: profile("host3")})
    assert getattr(review.nodes.update(1, second, new), field) == profile("host3")


def test_empty_hostname_is_one_like_any_other(review: ReviewStore) -> None:
    """Check R141: a second node with it is refused; nodes without a profile have none."""
    review.nodes.put(node("a", ""))
    unchanged(review, HostnameInUseError, lambda: review.nodes.put(node("b", "")), "Hostname '' is already in use")
    review.nodes.put(node("b"))
    review.nodes.put(node("c"))
    assert review.nodes.count() == 3


def test_hostname_of_a_removed_node_is_free_again(review: ReviewStore) -> None:
    review.nodes.put(node("a", "h"))
    review.nodes.remove(0)
    review.nodes.put(node("b", "h"))


# Updates


def test_update_of_agents_is_told_by_their_keys(review: ReviewStore) -> None:
    """Check R142: one is removed, one kept, one added, one has another draft; the order is that of the new list."""
    review.nodes.put(
        node("a", "h", agents=[agent("1"), agent("2"), agent("4")], external_services=[service("1"), service("2")])
    )
    old = found(review, 0).to_update()
    new = changed(
        old,
        agents=[agent("3"), agent("2", draft=Config("b = 1")), agent("4")],
        external_services=[service("3"), service("1", status=Status.DISABLED)],
    )
    result = review.nodes.update(0, old, new)
    assert result.agents == (agent("3", 0), agent("2", 0, draft=Config("b = 1")), agent("4", 0))
    assert result.external_services == (service("3", 0), service("1", 0, status=Status.DISABLED))
    assert found(review, 0) == result
    assert [each.key for each in review.agents.iter()] == ["2", "3", "4"]
    assert [each.key for each in review.external_services.iter()] == ["1", "3"]


def test_update_of_profile_and_drafts(review: ReviewStore) -> None:
    """Check R143: what it returns is what is read afterwards; the creation time is the first one."""
    review.nodes.put(node("a", "h", agents=[agent("1")]))
    old = found(review, 0).to_update()
    new = changed(old, profile=profile("i"), name_draft="b", profile_draft=profile("j"))
    result = review.nodes.update(0, old, new)
    assert result == found(review, 0)
    assert (result.profile, result.profile_draft) == (profile("i"), profile("j"))
    assert (result.name, result.name_draft, result.creation_time, result.id) == ("a", "b", THEN, 0)
    cleared = review.nodes.update(0, new, changed(new, profile=None, name_draft=None, profile_draft=None))
    assert (cleared.profile, cleared.name_draft, cleared.profile_draft) == (None, None, None)
    assert cleared == found(review, 0)


def test_update_that_changes_nothing(review: ReviewStore) -> None:
    """Check R144: the node is returned as it is, and is as it was."""
    review.nodes.put(node("a", "h", agents=[agent("1")], external_services=[service("1")]))
    before = rows(review.store)
    update = found(review, 0).to_update()
    assert review.nodes.update(0, update, update) == found(review, 0)
    assert rows(review.store) == before


def test_name_that_is_none_is_neither_compared_nor_changed(review: ReviewStore) -> None:
    review.nodes.put(node("a", "h"))
    old = changed(found(review, 0).to_update(), name=None)
    assert review.nodes.update(0, old, changed(old, name_draft="b")).name == "a"
    assert found(review, 0).name_draft == "b"


def test_stale_agent_undoes_the_whole_update(review: ReviewStore) -> None:
    """Check R145: neither the profile nor the agent changes."""
    review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")]))
    stored = found(review, 0).to_update()
    stale = changed(stored, agents=[agent("1", draft=Config("stale = 1")), agent("2")])
    new = changed(stored, agents=[agent("1", draft=Config("new = 1")), agent("2")], profile=profile("i"))
    unchanged(review, ValueMismatchError, lambda: review.nodes.update(0, stale, new))
    review.agents.delete(0, "1")
    unchanged(review, NoSuchEntryError, lambda: review.nodes.update(0, stored, new))


def test_members_that_do_not_change_are_not_looked_at(review: ReviewStore) -> None:
    """Section 9.5: equal in old and new, so what is stored of them stays, whatever it is."""
    review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")]))
    review.agents.put(agent("1", 0, status=Status.RELOAD_FAILED))
    review.agents.delete(0, "2")
    old = node("a", "h", agents=[agent("1", 5), agent("2", 6)]).to_update()
    new = node("a", "i", agents=[agent("1", 7), agent("2", 8)]).to_update()
    assert review.nodes.update(0, old, new).profile == profile("i")
    read = review.nodes.get_by_id(0)
    assert read is not None
    assert read.invalid_agents == ["2"]
    assert read.node.agents == (agent("1", 0, status=Status.RELOAD_FAILED),)


def test_removed_member_goes_whatever_it_has_become(review: ReviewStore) -> None:
    """Section 9.5: in old only means delete; what is stored is not compared, and need not be there."""
    review.nodes.put(node("a", agents=[agent("1"), agent("2")]))
    review.agents.put(agent("1", 0, status=Status.RELOAD_FAILED))
    review.agents.delete(0, "2")
    old = node("a", agents=[agent("1"), agent("2")]).to_update()
    assert review.nodes.update(0, old, changed(old, agents=())).agents == ()
    assert list(review.agents.iter()) == []


def test_order_of_the_old_agents_counts(review: ReviewStore) -> None:
    """Check R146: and so does everything else of the old node; for services too."""
    review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")], external_services=[service("1"), service("2")]))
    old = found(review, 0).to_update()
    wrong = [
        changed(old, agents=old.agents[::-1]),
        changed(old, external_services=old.external_services[::-1]),
        changed(old, agents=old.agents[:1]),
        changed(old, agents=(*old.agents, agent("3"))),
        changed(old, agents=(*old.agents, agent("1"))),
        changed(old, name="b"),
        changed(old, name_draft="a"),
        changed(old, profile=profile("i")),
        changed(old, profile=None),
        changed(old, profile_draft=profile("h")),
    ]
    for each in wrong:
        unchanged(review, EntryChangedError, partial(review.nodes.update, 0, each, old))


def test_update_of_what_a_host_reports(review: ReviewStore) -> None:
    """Check R147: install fields of one agent and one service; config and draft stay, and so does the other agent."""
    review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")], external_services=[service("1")]))
    old = found(review, 0).to_update()
    reported: dict[str, Any] = {
        "installed_version": "0.48.0",
        "installed_commit": None,
        "lifecycle": Lifecycle.FAILED,
        "bound_addrs": (),
    }
    new = changed(old, agents=[agent("1", **reported), agent("2")], external_services=[service("1", **reported)])
    review.nodes.update(0, old, new)
    read = found(review, 0)
    assert read.agents == (agent("1", 0, **reported), agent("2", 0))
    assert (read.agents[0].config, read.agents[0].draft) == (Config("a = 1"), Config("a = 2"))
    assert read.external_services == (service("1", 0, **reported),)


def test_status_alone_by_hostname(review: ReviewStore) -> None:
    """Check R148: every other field stays; unknown hostnames and keys fail, and so does a hostname of a draft."""
    review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")], profile_draft=profile("draft")))
    review.nodes.put(node("b", "i", agents=[agent("1")]))
    set_status = review.nodes.update_agent_status_by_hostname
    set_status("h", "1", Status.RELOAD_FAILED)
    assert found(review, 0).agents == (agent("1", 0, status=Status.RELOAD_FAILED), agent("2", 0))
    assert found(review, 1).agents == (agent("1", 1),)
    for hostname, key in [("x", "1"), ("draft", "1"), ("h", "3"), ("", "1")]:
        action = partial(set_status, hostname, key, Status.ENABLED)
        unchanged(review, NoSuchAgentError, action, rf"{hostname!r}.*{key!r}")
    review.agents.put(agent("3", 0))  # stands there, but the node does not name it
    unchanged(review, NoSuchAgentError, lambda: review.nodes.update_agent_status_by_hostname("h", "3", Status.ENABLED))
    bad: Any = "enabled"
    unchanged(review, InvalidRecordError, lambda: review.nodes.update_agent_status_by_hostname("h", "1", bad))


def test_rename_moves_the_row(review: ReviewStore) -> None:
    """Check R149: one node, under the new name, with the same id; a taken name is refused."""
    review.nodes.put(node("a", "h", agents=[agent("1")]))
    old = found(review, 0).to_update()
    assert review.nodes.update(0, old, changed(old, name="b")).name == "b"
    assert review.nodes.count() == 1
    assert set(review.store.family("nodes")) == {b"", b"b"}
    assert found(review, 0).agents == (agent("1", 0),)
    review.nodes.put(node("a", "i"))
    now = found(review, 0).to_update()
    new = changed(now, name="a", agents=[agent("2")])
    unchanged(review, KeyExistsError, lambda: review.nodes.update(0, now, new))


def test_taken_name_is_refused_at_once(review: ReviewStore) -> None:
    """Check R150: H-4, another hostname or not; nothing is tried again."""
    review.nodes.put(node("x", "h"))
    unchanged(review, KeyExistsError, lambda: review.nodes.put(node("x", "i", agents=[agent("1")])))
    assert review.nodes.put(node("y", "i")) == 1


# Bad input


def test_bad_nodes_are_refused_before_anything_is_written(review: ReviewStore) -> None:
    review.nodes.put(node("a", "h"))
    bad: list[tuple[type[Exception], Node]] = [
        (InvalidRecordError, node("")),
        (InvalidRecordError, node("b", agents=[agent("1"), agent("1")])),
        (InvalidRecordError, node("b", external_services=[service("1"), service("1")])),
        (InvalidRecordError, node("b", agents=[agent("1", status="enabled")])),
        (InvalidRecordError, node("b", agents=[agent("\ud800")])),
        (InvalidRecordError, node("b", profile=profile("i", -1))),
        (InvalidRecordError, node("b", creation_time=THEN.replace(tzinfo=None))),
        (TypeError, node("b", agents=[service("1")])),
        (InvalidRecordError, node("b", profile="h")),
        (InvalidRecordError, node("b", profile_draft=changed(profile("h"), hostname=1))),
    ]
    before, sequence = rows(review.store), review.store.sequence
    update = found(review, 0).to_update()
    for error, each in bad:
        with pytest.raises(error):
            review.nodes.put(each)
        if each.name and each.creation_time == THEN:
            with pytest.raises(error):
                review.nodes.update(0, update, each.to_update())
    not_a_node: Any = update
    with pytest.raises(TypeError, match="Node expected"):
        review.nodes.put(not_a_node)
    with pytest.raises(TypeError):
        review.nodes.update(0, changed(update, agents=[service("1")]), update)
    not_an_update: Any = node("a")
    with pytest.raises(TypeError, match="NodeUpdate expected"):
        review.nodes.update(0, update, not_an_update)
    for nowhere in ("", "\ud800"):
        with pytest.raises(InvalidRecordError):
            review.nodes.update(0, update, changed(update, name=nowhere))
    for id in (5, 1, -1):  # noqa: A001
        with pytest.raises(NoSuchIdError):
            review.nodes.update(id, update, changed(update, profile=None))
    for action in (review.nodes.get_by_id, review.nodes.remove):
        with pytest.raises(TypeError):
            action("0")  # type: ignore[arg-type]
    assert (rows(review.store), review.store.sequence) == (before, sequence)


def test_check_tells_of_nodes_that_are_not_as_the_ids_say(review: ReviewStore) -> None:
    review.nodes.put(node("a", agents=[agent("1")]))
    review.nodes.put(node("b"))
    review.agents.delete(0, "1")
    assert review.nodes.check() == []
    review.store.family("nodes").delete(b"b")
    review.store.family("nodes").put(b"c", b"garbage")
    assert {problem.key for problem in review.nodes.check()} == {b"", b"c"}


def test_node_that_cannot_be_read_fails_who_must_know_all_hostnames(review: ReviewStore) -> None:
    review.nodes.put(node("a", "h"))
    review.store.family("nodes").put(b"b", b"garbage")
    unchanged(review, DecodeError, lambda: review.nodes.put(node("c", "i")))
    with pytest.raises(DecodeError):
        list(review.nodes.iter())
    results = list(review.nodes.iter_results())
    assert [record and record.name for record, _ in results] == ["a", None]
    assert isinstance(results[1][1], DecodeError)


# Iteration


def test_iteration_is_by_name(review: ReviewStore) -> None:
    for name in ["b", "ab", "a", "d"]:
        review.nodes.put(node(name, agents=[agent("1")]))

    def names(**options: Any) -> str:
        return " ".join(each.name for each in review.nodes.iter(**options))

    assert names() == "a ab b d"
    assert names(reverse=True) == "d b ab a"
    assert names(prefix="a") == names(prefix=b"a") == "a ab"
    assert names(prefix="a", reverse=True) == "ab a"
    assert names(seek="c") == names(seek=b"c") == "d"
    assert names(seek="c", reverse=True) == "b ab a"
    assert names(seek="b", limit=1) == "b"
    assert names(prefix="x") == ""


def test_iteration_shows_the_moment_of_the_call(review: ReviewStore) -> None:
    """Nodes and members of one state, whatever is written meanwhile; nothing is held once it is over or forgotten."""
    review.nodes.put(node("a", agents=[agent("1")]))
    review.nodes.put(node("b", agents=[agent("1")]))
    before = list(review.nodes.iter())
    first, second, third = review.nodes.iter(), review.nodes.iter(), review.nodes.iter()
    next(third)
    old = found(review, 1).to_update()
    review.nodes.update(1, old, changed(old, agents=[agent("2")], name_draft="c"))
    review.nodes.remove(0)
    assert review.store.stats().views == 3
    assert list(first) == before
    assert list(third) == before[1:]
    del second
    assert review.store.stats().views == 0


def test_bound_to_a_view_nothing_is_written(review: ReviewStore) -> None:
    review.nodes.put(node("a", "h", agents=[agent("1")]))
    with review.view() as state:
        review.nodes.remove(0)
        read = state.nodes.get_by_id(0)
        assert read is not None
        assert state.nodes.count() == 1
        assert [each.agents for each in state.nodes.iter()] == [(agent("1", 0),)]
        for action in (
            lambda: state.nodes.remove(0),
            lambda: state.nodes.put(node("b")),
            lambda: state.nodes.update(0, read.node.to_update(), read.node.to_update()),
            lambda: state.nodes.update_agent_status_by_hostname("h", "1", Status.ENABLED),
        ):
            with pytest.raises(TypeError, match="view"):
                action()


# One commit


def test_remove_that_fails_at_commit_leaves_all(review: ReviewStore) -> None:
    """Check R152: H-5, the transaction that holds the removal conflicts; the node and its agents are all there."""
    review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")], external_services=[service("1")]))
    before = found(review, 0)
    txn = review.store.begin()
    assert review.bind(txn).nodes.remove(0).name == b"a"
    review.nodes.put(node("b", "i"))
    with pytest.raises(ConflictError):
        txn.commit()
    assert found(review, 0) == before
    assert len(list(review.agents.iter())) == 2


def test_agent_that_changes_meanwhile_is_removed_too(review: ReviewStore) -> None:
    """H-5: the delete of a member is blind, and nobody's write to it comes back."""
    review.nodes.put(node("a", "h", agents=[agent("1")]))
    txn = review.store.begin()
    review.bind(txn).nodes.remove(0)
    review.nodes.update_agent_status_by_hostname("h", "1", Status.DISABLED)
    try:
        txn.commit()
    except ConflictError:
        review.nodes.remove(0)
    assert list(review.agents.iter()) == []


def test_one_transaction_may_do_several_things(review: ReviewStore) -> None:
    def work(state: Any) -> int:
        id = state.nodes.put(node("a", "h", agents=[agent("1")]))  # noqa: A001
        with pytest.raises(HostnameInUseError):
            state.nodes.put(node("b", "h"))
        with pytest.raises(KeyExistsError):
            state.nodes.put(node("a", "i", agents=[agent("9")]))
        state.nodes.update_agent_status_by_hostname("h", "1", Status.DISABLED)
        second = state.nodes.put(node("b", "i"))
        state.nodes.remove(id)
        assert [each.name for each in state.nodes.iter()] == ["b"]
        return int(second)

    assert review.transact(work) == 1
    assert rows(review.store)["agents"] == {}
    assert [each.name for each in review.nodes.iter()] == ["b"]


def test_eight_threads_with_one_hostname(review: ReviewStore) -> None:
    """Check R151: H-3, each with a name of its own; exactly one succeeds."""
    barrier, outcomes = threading.Barrier(8), list[str]()

    def put(number: int) -> None:
        barrier.wait()
        try:
            review.nodes.put(node(f"node{number}", "h", agents=[agent("1")]))
            outcomes.append("stored")
        except HostnameInUseError:
            outcomes.append("refused")

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["stored"]
    assert review.nodes.count() == len(list(review.agents.iter())) == 1


def test_errors_of_ids_are_those_of_this_table(review: ReviewStore) -> None:
    """Whatever is not there is NoSuchIdError, given out once or never."""
    assert not issubclass(NoSuchIdError, IdOutOfRangeError)
    assert review.nodes.get_by_id(0) is None
    unchanged(review, NoSuchIdError, lambda: review.nodes.remove(0), "id 0")
    update: NodeUpdate = node("a").to_update()
    unchanged(review, NoSuchIdError, lambda: review.nodes.update(0, update, update), "id 0")


def test_lists_of_members_become_tuples() -> None:
    assert node("a", agents=[agent("1")]).agents == (agent("1"),)
    assert node("a", agents=[agent("1")]).to_update().agents == (agent("1"),)
