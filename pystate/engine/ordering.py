"""Sorting many keys without stopping every other thread.

``list.sort`` does not let another thread run until it is done, which for a million keys is most of a second.
`sort_keys` does the same in many short sorts: portions, cut at sampled keys into ranges, and each range sorted once
more (which is a merge of sorted runs, quick for Timsort). Portions that are in order already are only strung together.

Portions are tuples: a list of a million keys is walked by the garbage collector again and again, with every other
thread stopped, while it leaves a tuple of ``bytes`` alone once it has seen it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from itertools import chain, islice, pairwise

__all__ = ["PORTION_SIZE", "in_portions", "sort_keys"]

PORTION_SIZE = 16_384
"""The most keys that are sorted in one call: a few milliseconds."""


def in_portions(keys: Collection[bytes]) -> list[tuple[bytes, ...]]:
    """All of `keys`, which must not change meanwhile, in their order, in tuples of `PORTION_SIZE`."""
    iterator = iter(keys)
    return [tuple(islice(iterator, PORTION_SIZE)) for _ in range(0, len(keys), PORTION_SIZE)]


def sort_keys(portions: list[tuple[bytes, ...]]) -> list[tuple[bytes, ...]]:
    """The keys of all portions in ascending order, in portions of about the same size. Equal keys all stay.

    Cost: that of sorting, plus a tenth. Thread-safe.
    """
    runs = [tuple(sorted(portion)) for portion in portions if portion]
    if all(left[-1] <= right[0] for left, right in pairwise(runs)):
        return runs
    return list(_merge_by_ranges(runs))


def _merge_by_ranges(runs: list[tuple[bytes, ...]]) -> Iterator[tuple[bytes, ...]]:
    """Merge sorted runs one range of keys at a time, each about as long as a run."""
    samples = sorted(chain.from_iterable(run[:: PORTION_SIZE // 16] for run in runs))
    splitters = samples[16::16]
    cuts = [[0, *(bisect_left(run, splitter) for splitter in splitters), len(run)] for run in runs]
    for at in range(len(splitters) + 1):
        merged = sorted(chain.from_iterable(run[cut[at] : cut[at + 1]] for run, cut in zip(runs, cuts, strict=True)))
        if merged:
            yield tuple(merged)
