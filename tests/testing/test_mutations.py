"""Is it sharp? The engine is broken in one place at a time, and the searches of `pystate.testing` must notice.

What is broken, and how it is searched for, stands in ``mutations``; what is measured here, in the page that it writes.
"""

from __future__ import annotations

from functools import cache

import pytest

from pystate.engine.log_format import salt_seed
from pystate.testing import BrokenPromiseError, DeadlockError
from tests.page_tables import Table, page_tables
from tests.testing.mutations import (
    CAUGHT,
    MUTATIONS,
    NOT_CAUGHT,
    PAGE,
    UNNOTICED,
    Detector,
    Edit,
    Mutation,
    measure,
    row,
)

DETECTORS = {mutation.detector.name: mutation.detector for mutation in [*MUTATIONS, *UNNOTICED]}
LISTED = [
    "skip file flush", "skip directory flush", "unlink before directory flush", "publish before flush of data",
    "acknowledge before flush", "ignore short write", "retry flush", "restart sequence at 1", "drop generation check",
    "skip length bound", "treat EIO as end of log", "cut tail although a valid record follows",
    "apply to memory before WAL", "release lock before last write", "reuse lock by pid",
]  # fmt: skip


@cache
def tables() -> dict[tuple[str, ...], Table]:
    return {table.columns: table for table in page_tables(PAGE)}


def rows_of(name: str, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [line for line in tables()[columns].rows if line[0] == name]


@pytest.mark.parametrize("detector", DETECTORS.values(), ids=DETECTORS.keys())
def test_search_finds_nothing_in_the_engine_as_it_is(detector: Detector) -> None:
    found = measure(detector)
    assert found.problem is None
    assert found.seen > 0


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_is_caught_as_the_page_says(mutation: Mutation) -> None:
    """Row 106: by an error of the oracle, not by any exception; and the number is the one in the page."""
    found = measure(mutation.detector, mutation)
    assert isinstance(found.problem, (BrokenPromiseError, DeadlockError))
    assert rows_of(mutation.name, CAUGHT) == [row(mutation, found)], "python -m tests.testing.mutations"


@pytest.mark.parametrize("mutation", UNNOTICED, ids=lambda mutation: mutation.name)
def test_mutation_that_cannot_be_seen_is_not(mutation: Mutation) -> None:
    found = measure(mutation.detector, mutation)
    assert found.problem is None, "it can be seen: it belongs among the others"
    assert rows_of(mutation.name, NOT_CAUGHT) == [row(mutation, found)], "python -m tests.testing.mutations"


def test_page_lists_every_mutation_and_no_other() -> None:
    assert [line[0] for line in tables()[CAUGHT].rows] == [mutation.name for mutation in MUTATIONS]
    assert [line[0] for line in tables()[NOT_CAUGHT].rows] == [mutation.name for mutation in UNNOTICED]
    names = [mutation.name for mutation in [*MUTATIONS, *UNNOTICED]]
    assert len(set(names)) == len(names)


def test_the_fifteen_that_must_be_caught_are_among_them_and_at_least_ten_more() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert names[: len(LISTED)] == LISTED
    assert len(names) >= len(LISTED) + 10


def test_mutation_is_there_within_the_block_and_gone_after_it() -> None:
    detector = MUTATIONS[0].detector
    mutation = Mutation("seed", "", detector, (Edit(salt_seed, "crc32(salt)", "0"),))
    before = salt_seed(b"salt")
    with pytest.raises(RuntimeError, match="within"), mutation.applied():
        assert salt_seed(b"salt") == 0
        raise RuntimeError("within")
    assert salt_seed(b"salt") == before != 0


def test_mutation_whose_place_has_changed_says_so() -> None:
    mutation = Mutation("none", "", MUTATIONS[0].detector, (Edit(salt_seed, "no such text", ""),))
    with pytest.raises(LookupError, match="stands 0 times in salt_seed"), mutation.applied():
        pass


def test_exception_that_is_not_the_oracles_does_not_count() -> None:
    def look(_: object) -> None:
        raise KeyError("a mistake of the detector")

    with pytest.raises(KeyError):
        measure(Detector("wrong", "states", look))
