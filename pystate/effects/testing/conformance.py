"""`conformance`: does a store of effects keep what `EffectLedger` promises?"""

from __future__ import annotations

from collections.abc import Sequence

from pystate.effects.testing import leasing, listing, pruning, recording, transitions
from pystate.effects.testing.trial import Case, ConformanceError, MakeStore, Reopen

__all__ = ["CASES", "conformance"]

CASES: tuple[Case, ...] = (
    *recording.CASES,
    *leasing.CASES,
    *transitions.CASES,
    *listing.CASES,
    *pruning.CASES,
)
"""All promises, each with a name."""


def conformance(make_store: MakeStore, *, reopen: Reopen | None = None, cases: Sequence[Case] = CASES) -> None:
    """Run all cases, each on a fresh store, and tell of every one that fails.

    Arguments:
        make_store: makes a fresh, empty store. One with a method ``close`` is closed after its case.
        reopen: for a store that keeps what it has: closes it, and returns it opened again. Without it, what would need
            it is left out.
        cases: only these.

    Raises:
        ConformanceError: promises are broken; the text has a line for each, and the first error is its cause.
    """
    broken: list[tuple[Case, ConformanceError]] = []
    for case in cases:
        try:
            case.run(make_store, reopen=reopen)
        except ConformanceError as error:
            broken.append((case, error))
    if broken:
        lines = [f"{case.name}: {error}" for case, error in broken]
        raise ConformanceError(
            f"{len(broken)} of {len(cases)} promises of an effect store are broken:\n- " + "\n- ".join(lines)
        ) from broken[0][1]
