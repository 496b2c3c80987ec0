"""The sets of tags: each customer sees its own, and an id is given again only when nothing refers to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.errors import DecodeError, IdOutOfRangeError, NoSuchIdError
from pystate.review.host_network_group import HostNetworkGroup
from pystate.review.networks import Network
from pystate.review.store import ReviewState, ReviewStore
from pystate.review.tags import EventTags, Tag, WorkflowTags
from pystate.testing import Scenario, explore
from tests.review.node_samples import THEN


@pytest.fixture
def review() -> Iterator[ReviewStore]:
    with ReviewStore.memory() as review:
        yield review


def network(name: str, *tag_ids: int) -> Network:
    return Network(
        name=name, id=0, description="", networks=HostNetworkGroup.new(), tag_ids=tag_ids, creation_time=THEN
    )


def tag_ids(review: ReviewStore) -> dict[str, tuple[int, ...]]:
    return {each.name: each.tag_ids for each in review.networks.iter()}


@pytest.mark.parametrize("kind", [EventTags, WorkflowTags])
def test_ids_of_tags_stay_with_them(review: ReviewStore, kind: type[EventTags] | type[WorkflowTags]) -> None:
    """Check R43: removing an unknown id fails, twice fails; an update says whether the old text was right."""
    tags = kind(review.store)
    assert [tags.insert(text) for text in ("tag1", "tag2", "tag3")] == [0, 1, 2]
    with pytest.raises(IdOutOfRangeError):
        tags.remove(5)
    assert tags.remove(1) == "tag2"
    with pytest.raises(NoSuchIdError):
        tags.remove(1)
    assert tags.update(2, "tag3", "tag3.1") is True
    assert tags.update(2, "tag3", "x") is False
    assert tags.update(2, "tag5", "x") is False
    assert tags.update(1, "tag2", "x") is False
    assert tags.entries() == [(0, "tag1"), (2, "tag3.1")]
    assert (tags.get(0), tags.get(1), tags.get(9)) == ("tag1", None, None)
    assert tags.insert("") == 1
    assert tags.insert("tag1") == 3


def test_the_three_kinds_are_apart(review: ReviewStore) -> None:
    review.event_tags.insert("event")
    review.workflow_tags.insert("workflow")
    review.network_tags(0).insert("network")
    assert review.event_tags.entries() == [Tag(0, "event")]
    assert review.workflow_tags.entries() == [Tag(0, "workflow")]
    assert review.network_tags(0).entries() == [Tag(0, "network")]
    assert set(review.store.family("meta")) == {b"event tags", b"network tags", b"workflow tags"}


def test_each_customer_has_its_own_network_tags(review: ReviewStore) -> None:
    """Check R44: in one set, with ids of their own; each customer's lists, changes and removes exactly its own."""
    one, two = review.network_tags(100), review.network_tags(200)
    assert [one.insert("shared-name"), two.insert("shared-name"), one.insert("tag-a"), two.insert("tag-b")] == [
        0, 1, 2, 3,
    ]  # fmt: skip
    assert one.entries() == [(0, "shared-name"), (2, "tag-a")]
    assert two.entries() == [(1, "shared-name"), (3, "tag-b")]
    assert review.network_tags(10).entries() == []
    assert (one.get(0), one.get(1)) == ("shared-name", None)
    assert one.update(1, "shared-name", "x") is False
    assert two.update(1, "shared-name", "x") is True
    with pytest.raises(NoSuchIdError):
        one.remove(1)
    assert two.entries() == [(1, "x"), (3, "tag-b")]
    assert dict(review.store.family("meta")).keys() == {b"network tags"}


def test_entry_is_the_customer_in_decimal_a_zero_and_the_text(review: ReviewStore) -> None:
    review.network_tags(4_294_967_295).insert("a\0b")
    assert b"4294967295\0a\0b" in review.store.family("meta")[b"network tags"]
    assert review.network_tags(4_294_967_295).entries() == [(0, "a\0b")]
    for wrong in (-1, 1 << 32):
        with pytest.raises(ValueError, match=str(wrong)):
            review.network_tags(wrong)
    with pytest.raises(TypeError):
        review.network_tags("100")  # type: ignore[arg-type]


def test_removed_network_tag_leaves_nothing_behind(review: ReviewStore) -> None:
    """Check R45: H-2, the next tag gets its id, no network refers to it, and there is no row under the empty key."""
    tags = review.network_tags(1)
    for text in "abc":
        tags.insert(text)
    review.networks.put(network("one", 0, 1))
    review.networks.put(network("two", 1, 2))
    review.networks.put(network("three", 2))
    before = review.store.sequence
    assert tags.remove(1) == "b"
    assert review.store.sequence == before + 1
    assert tag_ids(review) == {"one": (0,), "two": (2,), "three": (2,)}
    assert [each.id for each in review.networks.iter()] == [0, 2, 1]  # one, three, two
    assert review.network_tags(2).insert("new") == 1
    assert b"" not in review.store.family("meta")
    assert set(review.store.family("meta")) == {b"network tags"}
    assert review.networks.check() == []
    assert tags.check() == []


def test_several_removed_tags_are_reused_last_first(review: ReviewStore) -> None:
    tags = review.event_tags
    for text in "abcd":
        tags.insert(text)
    tags.remove(0)
    tags.remove(2)
    assert [tags.insert(text) for text in "efg"] == [2, 0, 4]


def test_unreadable_network_keeps_the_tag(review: ReviewStore) -> None:
    """It may refer to the tag: nothing is removed, in the transaction of a caller neither."""
    review.network_tags(1).insert("a")
    review.networks.put(network("a", 0))
    review.store.family("networks").put(b"b", b"garbage")

    def work(state: ReviewState) -> None:
        with pytest.raises(DecodeError):
            state.network_tags(1).remove(0)

    before = review.store.sequence
    review.transact(work)
    assert review.store.sequence == before
    assert review.network_tags(1).entries() == [(0, "a")]
    assert review.networks.get("a") == network("a", 0)


def test_entry_that_is_no_text_is_told_of(review: ReviewStore) -> None:
    review.event_tags.insert("aaa")
    meta = review.store.family("meta")
    meta.put(b"event tags", meta[b"event tags"].replace(b"aaa", b"\xff\xff\xff"))
    with pytest.raises(DecodeError, match="id 0"):
        review.event_tags.entries()
    with pytest.raises(ValueError, match="UTF-8"):
        review.event_tags.insert("\ud800")


def test_bound_to_a_view_nothing_is_written(review: ReviewStore) -> None:
    review.event_tags.insert("a")
    with review.view() as state:
        review.event_tags.insert("b")
        assert state.event_tags.entries() == [(0, "a")]
        for action in (
            lambda: state.event_tags.insert("c"),
            lambda: state.event_tags.remove(0),
            lambda: state.event_tags.update(0, "a", "c"),
        ):
            with pytest.raises(TypeError, match="view"):
                action()


@given(st.dictionaries(st.integers(0, 300), st.lists(st.text(max_size=3), max_size=4), max_size=4))
def test_what_is_inserted_is_what_is_listed(texts: dict[int, list[str]]) -> None:
    """Whatever the texts are, zeros among them, and however customers' numbers begin alike."""
    with ReviewStore.memory() as review:
        expected: dict[int, list[Tag]] = {}
        for customer_id, of_customer in texts.items():
            tags = review.network_tags(customer_id)
            expected[customer_id] = [Tag(tags.insert(text), text) for text in of_customer]
        for customer_id, entries in expected.items():
            assert review.network_tags(customer_id).entries() == entries


def test_a_network_that_gets_the_tag_meanwhile_loses_it() -> None:
    """All networks are read in the transaction that removes the tag, so the removal sees each that was there before."""

    def program() -> Scenario:
        review = ReviewStore.memory()
        tags = review.network_tags(1)
        tags.insert("a")
        tags.insert("b")
        review.networks.put(network("one", 0, 1))
        order: list[str] = []

        def put() -> None:
            def add(state: ReviewState) -> bool:
                known = {tag.id for tag in state.network_tags(1).entries()}
                state.networks.put(network("two", *(known & {0, 1})))
                return 0 in known

            order.append("before" if review.transact(add) else "after")

        def check() -> None:
            assert tag_ids(review) == {"one": (1,), "two": (1,)}
            assert review.network_tags(1).entries() == [(1, "b")]
            seen.update(order)

        return Scenario({"put": put, "remove": lambda: tags.remove(0)}, check)

    seen: set[str] = set()
    assert explore(program, preemptions=2).complete
    assert seen == {"before", "after"}
