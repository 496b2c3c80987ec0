"""The world of one test, checked at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.effects.runtime.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A store, a clock and a remote; afterwards every trail keeps its invariants."""
    world = World()
    yield world
    world.check()
