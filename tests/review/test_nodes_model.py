"""Nodes against a model: whatever is done in whatever order, the outcome is what a dict of nodes says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from pystate.errors import (
    EntryChangedError,
    HostnameInUseError,
    KeyExistsError,
    NoSuchAgentError,
    NoSuchIdError,
    PystateError,
    ValueMismatchError,
)
from pystate.review.node import NODES, Node, NodeUpdate
from pystate.review.packages import Config, Status
from pystate.review.store import ReviewState, ReviewStore
from tests.review.node_samples import agent, changed, node, profile, service

T = TypeVar("T")

names = st.sampled_from(["a", "ab", "b", "c"])
profiles = st.none() | st.builds(profile, st.sampled_from(["", "h", "i", "j"]), st.integers(0, 2))
statuses = st.sampled_from(list(Status))
agents = st.lists(
    st.builds(agent, st.sampled_from("123"), status=statuses, draft=st.sampled_from([None, Config("a = 1")])),
    max_size=3,
    unique_by=lambda each: each.key,
)
services = st.lists(
    st.builds(service, st.sampled_from("12"), status=statuses), max_size=2, unique_by=lambda each: each.key
)
nodes = st.builds(node, names, profile=profiles, profile_draft=profiles, agents=agents, external_services=services)
updates = st.builds(
    NodeUpdate,
    name=st.none() | names,
    name_draft=st.none() | names,
    profile=profiles,
    profile_draft=profiles,
    agents=agents,
    external_services=services,
)


def of(id: int, given: Node) -> Node:  # noqa: A002
    """The node as it is stored under this id."""
    return changed(
        given,
        id=id,
        agents=tuple(changed(each, node_id=id) for each in given.agents),
        external_services=tuple(changed(each, node_id=id) for each in given.external_services),
    )


def by_key(given: Node | NodeUpdate, field: str) -> dict[str, Any]:
    """Its agents or services by their keys, whatever node they are of."""
    return {each.key: changed(each, node_id=0) for each in getattr(given, field)}


def described(update: NodeUpdate, *, named: bool = True) -> list[object]:
    """What of an old one is compared with what is stored."""
    keys = [[each.key for each in update.agents], [each.key for each in update.external_services]]
    return [update.name if named else None, update.name_draft, update.profile, update.profile_draft, *keys]


def kept(stored: Node, old: NodeUpdate, new: Node) -> Node:
    """The new node, with what is stored of agents and services that are the same in old and new."""
    fields = {
        field: tuple(
            by_key(stored, field)[key] if by_key(old, field).get(key) == each else each
            for key, each in by_key(new, field).items()
        )
        for field in ("agents", "external_services")
    }
    return changed(new, **fields)


class NodesAgainstAModel(RuleBasedStateMachine):
    """Every operation runs in a transaction of the caller, who commits it whether it failed or not."""

    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.review = ReviewStore.memory()
        self.model: dict[int, Node] = {}
        self.free: list[int] = []

    def run(self, expected: type[PystateError] | None, action: Callable[[ReviewState], T]) -> T | None:
        """Do something that must succeed, or fail with this error and write nothing."""
        before = self.review.store.sequence

        def work(state: ReviewState) -> T | PystateError:
            try:
                return action(state)
            except PystateError as error:
                return error

        result = self.review.transact(work)
        if expected is None:
            assert not isinstance(result, PystateError), result
            return result
        assert type(result) is expected, result
        assert self.review.store.sequence == before
        return None

    def hostname_taken(self, given: Node | NodeUpdate, but: int | None) -> bool:
        wanted = {each.hostname for each in (given.profile, given.profile_draft) if each is not None}
        return any(
            each is not None and each.hostname in wanted
            for id, other in self.model.items()  # noqa: A001
            if id != but
            for each in (other.profile, other.profile_draft)
        )

    def name_taken(self, name: str, but: int | None) -> bool:
        return any(other.name == name for id, other in self.model.items() if id != but)  # noqa: A001

    @rule(target=known, given=nodes)
    def put(self, given: Node) -> object:
        expected: type[PystateError] | None = None
        if self.hostname_taken(given, None):
            expected = HostnameInUseError
        elif self.name_taken(given.name, None):
            expected = KeyExistsError
        id = self.run(expected, lambda state: state.nodes.put(given))  # noqa: A001
        if id is None:
            return multiple()
        assert id == (self.free.pop() if self.free else len(self.model))
        self.model[id] = of(id, given)
        return id

    @rule(id=known)
    def remove(self, id: int) -> None:  # noqa: A002
        if id not in self.model:
            self.run(NoSuchIdError, lambda state: state.nodes.remove(id))
            return
        removed = self.run(None, lambda state: state.nodes.remove(id))
        assert removed == (self.model.pop(id).name.encode(), [], [])
        self.free.append(id)

    @rule(id=known, new=updates, old=updates, mode=st.sampled_from(["stored", "stale", "keeping", "other"]))
    def update(self, id: int, new: NodeUpdate, old: NodeUpdate, mode: str) -> None:  # noqa: A002
        """From what is stored; from agents that have changed since, which are to change or to stay; from anything."""
        stored = self.model.get(id)
        if mode != "other":
            old = node("a").to_update() if stored is None else stored.to_update()
        if mode in ("stale", "keeping"):
            old = changed(old, agents=tuple(changed(each, config=None) for each in old.agents))
        if mode == "keeping":
            new = changed(new, agents=old.agents[::-1])
        expected = self.refusal(id, stored, old, new)
        result = self.run(expected, lambda state: state.nodes.update(id, old, new))
        if stored is not None and expected is None:
            fields = {field: getattr(new, field) for field in new.__struct_fields__ if field != "name"}
            stored = of(id, changed(stored, name=new.name or stored.name, **fields))
            assert result == stored
            self.model[id] = of(id, kept(self.model[id], old, stored))

    def refusal(
        self,
        id: int,  # noqa: A002
        stored: Node | None,
        old: NodeUpdate,
        new: NodeUpdate,
    ) -> type[PystateError] | None:
        if self.hostname_taken(new, id):
            return HostnameInUseError
        if stored is None:
            return NoSuchIdError
        if described(old) != described(stored.to_update(), named=old.name is not None):
            return EntryChangedError
        for field in ("agents", "external_services"):
            was, be = by_key(stored, field), by_key(new, field)
            if any(key in be and be[key] != each != was[key] for key, each in by_key(old, field).items()):
                return ValueMismatchError
        return None if self.name_free(new, id) else KeyExistsError

    def name_free(self, new: NodeUpdate, id: int) -> bool:  # noqa: A002
        return new.name is None or not self.name_taken(new.name, id)

    @rule(hostname=st.sampled_from(["", "h", "i", "x"]), key=st.sampled_from("123"), status=statuses)
    def set_status(self, hostname: str, key: str, status: Status) -> None:
        holder = next(
            (
                each
                for each in sorted(self.model.values(), key=lambda each: each.name)
                if each.profile is not None and each.profile.hostname == hostname
            ),
            None,
        )
        has = holder is not None and key in [each.key for each in holder.agents]
        self.run(
            None if has else NoSuchAgentError,
            lambda state: state.nodes.update_agent_status_by_hostname(hostname, key, status),
        )
        if holder is not None and has:
            self.model[holder.id] = changed(
                holder,
                agents=tuple(
                    msgspec.structs.replace(each, status=status) if each.key == key else each for each in holder.agents
                ),
            )

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        assert list(self.review.nodes.iter()) == sorted(self.model.values(), key=lambda each: each.name)
        assert self.review.nodes.count() == len(self.model)
        for id, stored in self.model.items():  # noqa: A001
            assert self.review.nodes.get_by_id(id) == (stored, [], [])
        assert NODES.id_problems(self.review.store.family("nodes")) == []
        assert len(list(self.review.agents.iter())) == sum(len(each.agents) for each in self.model.values())


TestNodesAgainstAModel = NodesAgainstAModel.TestCase
TestNodesAgainstAModel.settings = settings(max_examples=50, stateful_step_count=25)
