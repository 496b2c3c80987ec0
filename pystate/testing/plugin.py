"""The pytest plugin: two fixtures, two options. It is there as soon as pystate is installed.

``simulated_disk``
    an empty `SimulatedDisk`; when the test passes, its locks and descriptors must have been given back (a test that
    lets a process die calls `SimulatedDisk.kill`).
``crash_states``
    `pystate.testing.crash_states` with the seed and the budget of the command line::

        def test_transfer(crash_states):
            for state in crash_states(workload):
                check_recovered(state, state.result)

``--pystate-seed`` is the seed of both, 0 by default, so that a run is the same every time; ``--pystate-budget`` is how
many states `crash_states` makes at most. Seed and budget are shown with a test that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial

import pytest

from pystate.testing import crash
from pystate.testing.crash import CrashStates
from pystate.testing.disk import SimulatedDisk

__all__ = ["crash_states", "pytest_addoption", "simulated_disk"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("pystate", "crash states of pystate stores")
    group.addoption("--pystate-seed", type=int, default=0, metavar="N", help="seed of simulated disks (default: 0)")
    group.addoption(
        "--pystate-budget",
        type=int,
        default=crash.BUDGET,
        metavar="N",
        help=f"how many crash states a test looks at, at most (default: {crash.BUDGET})",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show seed and budget with a failure of a test that uses one of the fixtures."""
    report = yield
    used = {"simulated_disk", "crash_states"} & set(getattr(item, "fixturenames", ()))
    if used and report.failed:
        seed, budget = item.config.getoption("--pystate-seed"), item.config.getoption("--pystate-budget")
        report.sections.append(("pystate", f"--pystate-seed={seed} --pystate-budget={budget}"))
    return report


@pytest.fixture
def simulated_disk(request: pytest.FixtureRequest) -> Iterator[SimulatedDisk]:
    """An empty simulated disk. When the test has passed, no lock and no descriptor may be left open on it."""
    disk = SimulatedDisk(request.config.getoption("--pystate-seed"))
    failed = request.session.testsfailed
    yield disk
    left = disk.held_locks + disk.open_descriptors
    if left and request.session.testsfailed == failed:
        pytest.fail(f"left open on the simulated disk: {', '.join(left)}", pytrace=False)


@pytest.fixture
def crash_states(request: pytest.FixtureRequest) -> Callable[..., CrashStates]:
    """`pystate.testing.crash_states`, with seed and budget from the command line."""
    return partial(
        crash.crash_states,
        seed=request.config.getoption("--pystate-seed"),
        budget=request.config.getoption("--pystate-budget"),
    )
