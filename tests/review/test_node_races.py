"""Nodes in every order of two threads: what is unique stays so, and nobody sees or leaves half a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pystate import ConflictError
from pystate.errors import (
    EntryChangedError,
    HostnameInUseError,
    KeyExistsError,
    NoSuchAgentError,
    NoSuchIdError,
)
from pystate.review.node import NODES, Node
from pystate.review.packages import Status
from pystate.review.store import ReviewStore
from pystate.testing import Scenario, explore
from tests.review.node_samples import agent, changed, node, profile, service

REFUSALS = (
    ConflictError, EntryChangedError, HostnameInUseError, KeyExistsError, NoSuchAgentError, NoSuchIdError,
)  # fmt: skip


def outcome_of(action: Callable[[], object]) -> str:
    """What became of something that may be refused."""
    try:
        action()
    except REFUSALS as error:
        return type(error).__name__
    return "done"


def race(
    review: ReviewStore, outcomes: Counter[tuple[str, ...]], check: Callable[[list[str]], None], **actions: Any
) -> Scenario:
    """Run the actions at the same time; afterwards the whole must be sound, and `check` is told how each ended."""
    ended: dict[str, str] = {}

    def run(name: str, action: Callable[[], object]) -> Callable[[], None]:
        def thread() -> None:
            ended[name] = outcome_of(action)

        return thread

    def after() -> None:
        sound(review)
        results = [ended[name] for name in actions]
        check(results)
        outcomes[tuple(results)] += 1

    return Scenario({name: run(name, action) for name, action in actions.items()}, after)


def sound(review: ReviewStore) -> None:
    """No hostname in two nodes, every name once, ids as the records say, no member without a node or the reverse."""
    nodes = list(review.nodes.iter())
    hostnames = [
        hostname
        for each in nodes
        for hostname in {found.hostname for found in (each.profile, each.profile_draft) if found is not None}
    ]
    assert len(hostnames) == len(set(hostnames))
    assert review.nodes.count() == len(nodes)
    assert NODES.id_problems(review.store.family("nodes")) == []
    for each in nodes:
        read = review.nodes.get_by_id(each.id)
        assert read is not None
        assert read == (each, [], [])
    members = {(each.id, member.key) for each in nodes for member in each.agents}
    assert {(member.node_id, member.key) for member in review.agents.iter()} == members
    members = {(each.id, member.key) for each in nodes for member in each.external_services}
    assert {(member.node_id, member.key) for member in review.external_services.iter()} == members


def explored(program: Callable[[Counter[tuple[str, ...]]], Scenario], *expected: tuple[str, ...]) -> None:
    """All orders with two preemptions; each expected pair of outcomes occurs, and no other one."""
    outcomes: Counter[tuple[str, ...]] = Counter()
    assert explore(lambda: program(outcomes), preemptions=2).complete
    assert set(outcomes) == set(expected)


def stored(review: ReviewStore, id: int) -> Node:  # noqa: A002
    read = review.nodes.get_by_id(id)
    assert read is not None
    return read.node


@pytest.mark.parametrize(("first", "second"), [("profile", "profile"), ("profile_draft", "profile")])
def test_two_puts_of_one_hostname_never_both_succeed(first: str, second: str) -> None:
    """Check R151: H-3, in every order: who scans first and commits last has seen the other, or does it again."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        return race(
            review,
            outcomes,
            lambda results: None,
            one=lambda: review.nodes.put(changed(node("a", agents=[agent("1")]), **{first: profile("h")})),
            two=lambda: review.nodes.put(changed(node("b", agents=[agent("1")]), **{second: profile("h")})),
        )

    explored(program, ("done", "HostnameInUseError"), ("HostnameInUseError", "done"))


def test_put_and_update_to_one_hostname_never_both_succeed() -> None:
    """H-3 for updates: the scan of each includes what the other writes."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", "old"))
        old = stored(review, 0).to_update()
        return race(
            review,
            outcomes,
            lambda results: None,
            put=lambda: review.nodes.put(node("b", "h")),
            update=lambda: review.nodes.update(0, old, changed(old, profile_draft=profile("h"))),
        )

    explored(program, ("done", "HostnameInUseError"), ("HostnameInUseError", "done"))


def test_two_updates_to_one_hostname_never_both_succeed() -> None:
    """H-3: of two nodes, neither of which changes its name, so that the row with the ids is not written."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", "old a"))
        review.nodes.put(node("b", "old b"))
        one, two = stored(review, 0).to_update(), stored(review, 1).to_update()
        return race(
            review,
            outcomes,
            lambda results: None,
            one=lambda: review.nodes.update(0, one, changed(one, profile=profile("h"))),
            two=lambda: review.nodes.update(1, two, changed(two, profile=profile("h"))),
        )

    explored(program, ("done", "HostnameInUseError"), ("HostnameInUseError", "done"))


def test_two_nodes_may_swap_hostnames_only_one_after_the_other() -> None:
    """Each takes the hostname that the other gives up: in no order is one taken before it is free."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", "h"))
        review.nodes.put(node("b", "i"))
        one, two = stored(review, 0).to_update(), stored(review, 1).to_update()
        return race(
            review,
            outcomes,
            lambda results: None,
            gives=lambda: review.nodes.update(0, one, changed(one, profile=profile("j"))),
            takes=lambda: review.nodes.update(1, two, changed(two, profile=profile("h"))),
        )

    explored(program, ("done", "done"), ("done", "HostnameInUseError"))


def test_two_renames_to_one_name_never_both_succeed() -> None:
    """H-1: the key that a row moves to is read, so whoever takes it meanwhile makes the other try again."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", agents=[agent("1")]))
        review.nodes.put(node("b", agents=[agent("1")]))
        one, two = stored(review, 0).to_update(), stored(review, 1).to_update()

        def check(results: list[str]) -> None:
            assert {each.name for each in review.nodes.iter()} in ({"a", "c"}, {"b", "c"})

        return race(
            review,
            outcomes,
            check,
            one=lambda: review.nodes.update(0, one, changed(one, name="c")),
            two=lambda: review.nodes.update(1, two, changed(two, name="c")),
        )

    explored(program, ("done", "KeyExistsError"), ("KeyExistsError", "done"))


def test_rename_and_put_of_one_name_never_both_succeed() -> None:
    """H-1 and H-4: the loser is refused, neither overwritten nor tried for ever."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", agents=[agent("1")]))
        old = stored(review, 0).to_update()

        def check(results: list[str]) -> None:
            names = {each.name: each.id for each in review.nodes.iter()}
            assert names in ({"c": 0}, {"a": 0, "c": 1})

        return race(
            review,
            outcomes,
            check,
            rename=lambda: review.nodes.update(0, old, changed(old, name="c")),
            put=lambda: review.nodes.put(node("c", agents=[agent("2")])),
        )

    explored(program, ("done", "KeyExistsError"), ("KeyExistsError", "done"))


def test_removal_and_update_leave_a_whole_node_or_none() -> None:
    """Check R152: H-5, whichever commits first; no agent is left without its node."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", "h", agents=[agent("1")], external_services=[service("1")]))
        old = stored(review, 0).to_update()
        new = changed(old, agents=[agent("2")], external_services=[service("1"), service("2")])

        def check(results: list[str]) -> None:
            assert list(review.nodes.iter()) == []

        return race(
            review,
            outcomes,
            check,
            remove=lambda: review.nodes.remove(0),
            update=lambda: review.nodes.update(0, old, new),
        )

    explored(program, ("done", "done"), ("done", "NoSuchIdError"))


def test_removal_that_conflicts_leaves_all() -> None:
    """Check R152: H-5, a removal that is tried once only, beside an update; if it fails, everything is there."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")], external_services=[service("1")]))
        old = stored(review, 0).to_update()
        new = changed(old, profile=profile("i"))

        def check(results: list[str]) -> None:
            if results[0] == "ConflictError":
                members = {"agents": (agent("1", 0), agent("2", 0)), "external_services": (service("1", 0),)}
                assert stored(review, 0) == node("a", "i", id=0, **members)
            else:
                assert list(review.nodes.iter()) == []

        return race(
            review,
            outcomes,
            check,
            remove=lambda: review.transact(lambda state: state.nodes.remove(0), attempts=1),
            update=lambda: review.nodes.update(0, old, new),
        )

    explored(program, ("ConflictError", "done"), ("done", "done"), ("done", "NoSuchIdError"))


def test_status_and_removal() -> None:
    """The agent that gets a status is read in the transaction, so it does not come back when its node is gone."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", "h", agents=[agent("1")]))

        def check(results: list[str]) -> None:
            assert list(review.agents.iter()) == []

        return race(
            review,
            outcomes,
            check,
            remove=lambda: review.nodes.remove(0),
            status=lambda: review.nodes.update_agent_status_by_hostname("h", "1", Status.DISABLED),
        )

    explored(program, ("done", "done"), ("done", "NoSuchAgentError"))


def test_two_statuses_of_two_agents_both_stay() -> None:
    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", "h", agents=[agent("1"), agent("2")]))

        def check(results: list[str]) -> None:
            assert {each.status for each in review.agents.iter()} == {Status.DISABLED}

        return race(
            review,
            outcomes,
            check,
            one=lambda: review.nodes.update_agent_status_by_hostname("h", "1", Status.DISABLED),
            two=lambda: review.nodes.update_agent_status_by_hostname("h", "2", Status.DISABLED),
        )

    explored(program, ("done", "done"))


def test_readers_see_whole_nodes() -> None:
    """A node and its members are of one state, by id and by iteration, while an update exchanges the members."""

    def program(outcomes: Counter[tuple[str, ...]]) -> Scenario:
        review = ReviewStore.memory()
        review.nodes.put(node("a", "h", agents=[agent("1")]))
        old = stored(review, 0).to_update()
        new = changed(old, agents=[agent("2")], name_draft="2")

        def read() -> None:
            found = review.nodes.get_by_id(0)
            assert found is not None
            assert found.invalid_agents == []
            for each in (found.node, *review.nodes.iter()):
                assert [member.key for member in each.agents] == [each.name_draft or "1"]

        return race(review, outcomes, lambda results: None, update=lambda: review.nodes.update(0, old, new), read=read)

    explored(program, ("done", "done"))
