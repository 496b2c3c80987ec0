"""The conformance suite: the store on pystate passes it, in memory and on disk; every broken store fails it."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path

import pytest

import pystate.effects.testing as package
from pystate.effects import EffectLedger, EffectStore, Lease
from pystate.effects.testing import CASES, Case, ConformanceError, conformance
from pystate.effects.testing.trial import equal, expect, race, refused
from tests.effects.broken_stores import BROKEN
from tests.effects.memory_store import MemoryStore


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[[], EffectStore]:
    """Makes stores on disk, each in a directory of its own."""
    paths = (tmp_path / str(number) for number in range(1000))
    return lambda: EffectStore.open(next(paths), durability="process")


def reopened(store: EffectStore) -> EffectStore:
    path = store.store.path
    assert path is not None
    store.close()
    return EffectStore.open(path, durability="process")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_store_in_memory_conforms(case: Case) -> None:
    """Checks E12, E27 to E41, E46 to E49, E51, E53, E61, E63 and E68 to E83, E88: on `EffectStore` in memory."""
    case.run(EffectStore.memory)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_store_on_disk_conforms(case: Case, on_disk: Callable[[], EffectStore]) -> None:
    """Checks E68 to E84 and E88: on `EffectStore` on disk; among them, that all is there when it is opened again."""
    case.run(on_disk, reopen=reopened)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_store_of_thirty_lines_conforms(case: Case) -> None:
    """Checks E68 to E83 and E88: on a store in memory. All that it needs is the rules and a lock."""
    case.run(MemoryStore)


@pytest.mark.parametrize(("broken", "case"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_store_is_caught(broken: type[MemoryStore], case: str) -> None:
    """By the case that is made for it, and by the suite as a whole, which names it."""
    (made_for_it,) = [each for each in CASES if each.name == case]
    with pytest.raises(ConformanceError):
        made_for_it.run(broken)
    with pytest.raises(ConformanceError, match=f"- {case}: "):
        conformance(broken)


def test_what_is_broken_at_large_is_told_in_one_text() -> None:
    class Nothing(MemoryStore):
        def renew_lease(self, *_: object) -> Lease:
            raise ZeroDivisionError("never written")

    with pytest.raises(ConformanceError) as caught:
        conformance(Nothing)
    text = str(caught.value)
    assert "promises of an effect store are broken" in text.splitlines()[0]
    assert "ZeroDivisionError: never written" in text
    assert len(text.splitlines()) > 5
    conformance(Nothing, cases=[case for case in CASES if "key" in case.name])


def test_a_store_is_closed_after_its_case() -> None:
    made: list[EffectStore] = []

    def make() -> EffectLedger:
        made.append(EffectStore.memory())
        return made[-1]

    conformance(make, cases=CASES[:2])
    assert len(made) == 2
    for store in made:
        with pytest.raises(ValueError, match="closed"):
            store.store.families  # noqa: B018


def test_cases_have_names_of_their_own() -> None:
    names = [str(case) for case in CASES]
    assert len(set(names)) == len(names) >= 40
    assert sum(case.reopens for case in CASES) == 1


def test_expectations_fail_with_what_was_expected_and_what_was_found() -> None:
    equal(1, 1, "one")
    expect(True, "so it is")
    refused(ZeroDivisionError, lambda: 1 // 0, "a division")
    for call, text in (
        (lambda: equal(1, 2, "the number"), "the number: 2 expected, 1 found"),
        (lambda: expect(False, "it is so"), "it is so"),
        (lambda: refused(KeyError, lambda: 7, "seven"), "seven: KeyError expected, 7 returned"),
        (lambda: refused(KeyError, lambda: 1 / 0, "one"), "one: KeyError expected, ZeroDivisionError raised"),
    ):
        with pytest.raises(ConformanceError, match=text):
            call()
    one, two = race([lambda: 1, lambda: 1 // 0])
    assert one == 1 and isinstance(two, ZeroDivisionError)


def test_the_example_runs() -> None:
    assert doctest.testmod(package).attempted > 0
    assert doctest.testmod(package).failed == 0
