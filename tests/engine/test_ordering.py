"""Sorting many keys without stopping every other thread, against ``sorted``."""

from __future__ import annotations

import random
from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pystate.engine import ordering
from pystate.engine.ordering import PORTION_SIZE, in_portions, sort_keys


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices so short that a handful of keys takes every path."""
    monkeypatch.setattr(ordering, "PORTION_SIZE", 32)


@given(st.lists(st.binary(max_size=3), max_size=400))
@example([])
@example([b""] * 400)
@example([b"a", b"b"] * 100)
def test_keys_in_any_order_come_out_as_sorted_gives_them(keys: list[bytes]) -> None:
    """The same list, equal keys included, and the argument as it was."""
    portions = in_portions(keys)
    assert list(chain.from_iterable(portions)) == keys
    assert list(chain.from_iterable(sort_keys(portions))) == sorted(keys)
    assert list(chain.from_iterable(portions)) == keys


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 63, 64, 65, 96, 97, 1000])
@pytest.mark.parametrize("order", ["ascending", "descending", "random", "interleaved", "almost", "equal", "two ends"])
def test_keys_in_a_known_order_come_out_as_sorted_gives_them(count: int, order: str) -> None:
    """Slices in order are strung together; all others are merged; the edges of slices are the hard places."""
    keys = [b"%06d" % number for number in range(count)]
    chance = random.Random(count)
    if order == "descending":
        keys.reverse()
    elif order == "random":
        chance.shuffle(keys)
    elif order == "interleaved":
        keys = keys[::2] + keys[1::2]
    elif order == "almost" and count > 1:
        keys[0], keys[-1] = keys[-1], keys[0]
    elif order == "equal":
        keys = [b"same"] * count
    elif order == "two ends":
        keys = [chance.choice([b"\x00", b"\xff"]) for _ in keys]
    assert list(chain.from_iterable(sort_keys(in_portions(keys)))) == sorted(keys)


@pytest.mark.parametrize("order", ["random", "interleaved"])
def test_no_range_is_much_longer_than_a_slice(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """The point of the module: every single sort is short, so that other threads run in between."""
    monkeypatch.setattr(ordering, "PORTION_SIZE", PORTION_SIZE)
    keys = [b"%06d" % number for number in range(6 * PORTION_SIZE)]
    if order == "random":
        random.Random(5).shuffle(keys)
    else:
        keys = keys[::3] + keys[1::3] + keys[2::3]
    runs = [tuple(sorted(portion)) for portion in in_portions(keys)]
    ranges = list(ordering._merge_by_ranges(runs))
    assert sum(map(len, ranges)) == len(keys)
    assert max(map(len, ranges)) < 2 * PORTION_SIZE


def test_slices_of_the_real_size_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the real constant, over several slices."""
    monkeypatch.setattr(ordering, "PORTION_SIZE", PORTION_SIZE)
    keys = [b"%08x" % number for number in random.Random(6).sample(range(2**32), 3 * PORTION_SIZE + 1)]
    assert list(chain.from_iterable(sort_keys(in_portions(keys)))) == sorted(keys)
