"""The table of statuses, and the three that it begins with."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import pystate
from pystate.errors import KeyExistsError
from pystate.review.families import FAMILIES
from pystate.review.statuses import STATUSES, ReviewStatus
from pystate.review.store import ReviewStore
from pystate.tables import Fields

FIRST = {1: "reviewed", 2: "pending review", 3: "disabled"}


def by_id(review: ReviewStore) -> dict[int, str]:
    return {each.id: each.description for each in review.statuses.iter()}


def test_first_opening_stores_three_and_keeps_id_0_back() -> None:
    """Section 11: ids 1 to 3; nothing has id 0, nor gets it."""
    with ReviewStore.memory() as review:
        assert by_id(review) == FIRST
        assert review.statuses.get_by_id(0) is None
        assert review.statuses.key_index().inactive() == [0]
        assert review.statuses.count() == 3
        assert review.statuses.put(ReviewStatus(id=0, description="new")) == 4
        assert review.statuses.check() == []
        row = review.store.family("statuses")[b"pending review"]
        assert msgspec.msgpack.decode(row) == [2, "pending review"]


def test_later_openings_store_nothing(tmp_path: Path) -> None:
    with ReviewStore.open(tmp_path / "data", tmp_path / "backup") as review:
        review.statuses.update(1, ReviewStatus(id=1, description="reviewed"), ReviewStatus(id=1, description="seen"))
        review.statuses.remove(2)
        sequence = review.store.sequence
    with ReviewStore.open(tmp_path / "data", tmp_path / "backup") as review:
        assert review.store.sequence == sequence
        assert by_id(review) == {1: "seen", 3: "disabled"}
        for id in (1, 3):  # noqa: A001
            review.statuses.remove(id)
    with ReviewStore.open(tmp_path / "data", tmp_path / "backup") as review:
        assert by_id(review) == {}, "a table whose statuses were all removed is not a new one"


def test_two_stores_over_one_state_do_not_store_them_twice() -> None:
    """Whoever comes second finds them; the check is part of the transaction."""
    store = pystate.memory(families=FAMILIES)
    ReviewStore(store)
    assert by_id(ReviewStore(store)) == FIRST


def test_taken_description_is_refused() -> None:
    with ReviewStore.memory() as review:
        with pytest.raises(KeyExistsError):
            review.statuses.put(ReviewStatus(id=9, description="reviewed"))
        with pytest.raises(KeyExistsError):
            review.statuses.update(1, Fields(STATUSES), Fields(STATUSES, description="disabled"))
        assert by_id(review) == FIRST
