"""All orders in which the threads of a small program may run, or many random ones of a larger program.

A *program* is a function that sets something up, a store for instance, and returns a `Scenario`: the threads, and what
must hold when they have ended. `explore` calls it again and again, each time with another order of the threads::

    def two_increments() -> Scenario:
        store = pystate.memory()
        numbers = store.family("default")

        def increment() -> None:
            store.transact(lambda txn: txn.put("default", b"n", b"%d" % (int(txn.get("default", b"n") or b"0") + 1)))

        def check() -> None:
            assert numbers[b"n"] == b"2"

        return Scenario({"one": increment, "two": increment}, check)

    explore(two_increments, preemptions=2)

An order is the list of the choices that were made in it. With ``orders="all"`` those with the fewest *preemptions* come
first, that is, with the fewest places at which a thread that could have gone on had to wait for another: most mistakes
need one or two, and what is found first is easy to read. No order is run twice. With ``orders="random"`` each order is
drawn with a rate of preemptions of its own; a failure is made smaller before it is reported.

What a yield point is, and what cannot be seen, is told in ``scheduler``. A program must do the same when it is run
again in the same order: no chance, no clock, no threads but its own. That is checked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, TypeAlias

from pystate.testing.scheduler import DeadlockError, Run, Step, StepsExceededError, Timeouts, Workers, yield_point

__all__ = [
    "DeadlockError",
    "Explored",
    "InterleavingError",
    "Program",
    "Scenario",
    "StepsExceededError",
    "explore",
    "replay",
    "yield_point",
]

_NOT_A_FAILURE = (KeyboardInterrupt, SystemExit, GeneratorExit)
_SHRINK_RUNS = 200
_TRACE_STEPS = 150
_RATES = (0.02, 0.05, 0.15, 0.4)
"""How often a thread that could go on is interrupted, in random orders."""


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Scenario:
    """The threads of one run, and what must hold afterwards.

    The program itself (what sets up, `check`) runs as a thread called ``main``, while the others do not: before them
    and after them.

    Attributes:
        threads: what runs at the same time, by name; an exception that leaves one of them is a failure.
        check: called when all have ended; raises when something is wrong.
        cleanup: called when the run is over, however it ended, to remove a directory for instance. After a failure the
            store is in no condition to be used.
        lines: functions and methods each line of which is a yield point: for code that shares data without a lock.
        timeouts: when waits with a timeout give up: ``"last"`` when nothing else can run; ``"any"`` at any moment too;
            ``"never"``, so that a wake-up that is only made good for by a timeout is reported as a deadlock.
        interrupts: for a thread, the kind of exception that is raised in one of its waits, any one, or in none.
    """

    threads: Mapping[str, Callable[[], object]]
    check: Callable[[], object] = _nothing
    _: KW_ONLY
    cleanup: Callable[[], object] = _nothing
    lines: Sequence[Callable[..., object]] = ()
    timeouts: Timeouts = "last"
    interrupts: Mapping[str, Callable[[], BaseException]] = field(default_factory=dict)


Program: TypeAlias = Callable[[], Scenario]
"""Sets up, and returns what to run. Called once for each order."""


@dataclass(frozen=True)
class Explored:
    """What `explore` has seen without a failure.

    Attributes:
        orders: how many different ones.
        complete: these were all (within the bound on preemptions).
        steps: yield points passed, in all orders together.
        choices_max: the most choices that there were in one order.
        timed_out: waits that gave up, in all orders together.
    """

    orders: int
    complete: bool
    steps: int
    choices_max: int
    timed_out: int


class InterleavingError(AssertionError):
    """An order in which a program fails. The failure itself is its ``__cause__``.

    Attributes:
        line: for `replay`.
        orders: how many were run until it was found.
        trace: what happened in it, step by step.
    """

    def __init__(self, text: str, line: str, orders: int, trace: Sequence[Step]) -> None:
        super().__init__(text)
        self.line = line
        self.orders = orders
        self.trace = tuple(trace)


def explore(
    program: Program,
    *,
    orders: Literal["all", "random"] = "all",
    budget: int | None = None,
    preemptions: int | None = None,
    seed: int = 0,
) -> Explored:
    """Run a program in many orders of its threads.

    Arguments:
        orders: ``"all"``: each once, those with the fewest preemptions first, those with equally many in an order that
            depends on `seed`. ``"random"``: `budget` orders drawn from `seed`; some may be drawn twice.
        budget: the most orders to run; None, for ``"all"`` only, means no limit.
        preemptions: for ``"all"``: the most preemptions in an order. Two threads with n yield points each have
            ``binomial(2n, n)`` orders, but only about ``n ** p`` with `p` preemptions.

    Raises:
        InterleavingError: an order failed: `Scenario.check` or a thread raised, no thread could go on, or there was no
            end. Its text ends with the line that replays it and its trace.
        RuntimeError: the program did not do the same when it was run in the same order.
        ValueError: random orders without a budget.
    """
    if orders == "random" and budget is None:
        raise ValueError("random orders have no end of their own: give a budget")
    with Workers() as workers:
        explorer = _Explorer(program, workers)
        if orders == "random":
            return explorer.random_orders(budget or 0, seed)
        return explorer.all_orders(budget, preemptions, seed)


def replay(program: Program, line: str) -> list[Step]:
    """Run a program once, in the order of a line from `explore`; an empty line is the order without preemptions.

    Returns:
        What happened, step by step.

    Raises:
        InterleavingError: it fails. ValueError: the line is none.
    """
    with Workers() as workers:
        explorer = _Explorer(program, workers)
        order = explorer.run(_choices(line), recording=True)
        if order.failure is not None:
            raise explorer.error(order, found_after=1)
        return order.trace


@dataclass
class _Order:
    """One order, and what became of it: the choices made, and what there was to choose from (free of cost, in all)."""

    given: bytes
    made: bytearray = field(default_factory=bytearray)
    options: list[tuple[int, int]] = field(default_factory=list)
    failure: BaseException | None = None
    trace: list[Step] = field(default_factory=list)

    def choose(self, free: int, total: int) -> int:
        at = len(self.made)
        choice = self.given[at] if at < len(self.given) else 0
        if choice >= total:
            choice = 0  # of a line that has been made smaller, or was written for another program
        self.made.append(choice)
        self.options.append((free, total))
        return choice

    @property
    def preemptions(self) -> int:
        return sum(choice >= free for choice, (free, _) in zip(self.made, self.options, strict=True))

    @property
    def line(self) -> str:
        return " ".join(f"{at}:{choice}" for at, choice in enumerate(self.made) if choice)


class _Random(_Order):
    """An order that is drawn as it goes along."""

    def __init__(self, random_: random.Random) -> None:
        super().__init__(b"")
        self._random = random_
        self._rate = random_.choice(_RATES)

    def choose(self, free: int, total: int) -> int:
        super().choose(free, total)
        if free == total or self._random.random() >= self._rate:
            self.made[-1] = self._random.randrange(free)
        else:
            self.made[-1] = self._random.randrange(free, total)
        return self.made[-1]


class _Explorer:
    """Runs a program, and counts."""

    def __init__(self, program: Program, workers: Workers) -> None:
        self._program = program
        self._workers = workers
        self.orders = 0
        self.steps = 0
        self.choices_max = 0
        self.timed_out = 0

    def explored(self, *, complete: bool) -> Explored:
        return Explored(self.orders, complete, self.steps, self.choices_max, self.timed_out)

    def run(self, given: bytes, *, recording: bool = False) -> _Order:
        return self._execute(_Order(given), recording=recording)

    def _execute(self, order: _Order, *, recording: bool = False) -> _Order:
        """Run the program once, from setting up to cleaning up."""
        run = Run(order.choose, self._workers, recording=recording)
        cleanup: Callable[[], object] = _nothing
        try:
            with run.control():
                try:
                    scenario = self._program()
                    cleanup = scenario.cleanup
                    self._run_threads(run, scenario)
                    scenario.check()
                    run.wait_for_all()  # for threads that the check has started, by committing for instance
                except BaseException as error:  # whatever the program raises is what was looked for
                    if isinstance(error, _NOT_A_FAILURE) and error is not run.failure:
                        raise  # for the explorer itself, not raised by one of the threads
                    order.failure = error
        finally:
            cleanup()
        self.steps += run.steps
        self.choices_max = max(self.choices_max, len(order.made))
        self.timed_out += run.timed_out
        order.trace = run.trace
        return order

    def _run_threads(self, run: Run, scenario: Scenario) -> None:
        run.watch(scenario.lines)
        run.timeouts = scenario.timeouts
        for name, function in scenario.threads.items():
            run.start(name, function, scenario.interrupts.get(name))
        run.trace.clear()  # setting up is always the same
        run.branching = True
        run.wait_for_all()
        run.branching = False

    def all_orders(self, budget: int | None, preemptions: int | None, seed: int) -> Explored:
        """Run every order, level by level: without a preemption, with one, and so on.

        An order that is still to be run is a place in one that was run, and another choice there. Behind that place it
        takes no preemptions of its own accord; those are orders that branch off from it in turn.
        """
        draw = random.Random(seed)
        used = 0
        pending: list[tuple[_Order, int, int]] = []
        later: list[tuple[_Order, int, int]] = []
        order = self._checked(_Order(b""))
        begins = 0
        while True:
            for at in range(begins, len(order.made)):
                free, total = order.options[at]
                pending += [(order, at, choice) for choice in range(1, free)]
                if preemptions is None or used < preemptions:
                    later += [(order, at, choice) for choice in range(max(free, 1), total)]
            if not pending:
                pending, later, used = later, [], used + 1
            if not pending:
                return self.explored(complete=True)
            if self.orders == budget:
                return self.explored(complete=False)
            # Not the newest first: if the budget does not last, what is run is a fair sample of the level.
            drawn = draw.randrange(len(pending))
            pending[drawn], pending[-1] = pending[-1], pending[drawn]
            parent, at, choice = pending.pop()
            order = self._checked(_Order(bytes(parent.made[:at]) + bytes((choice,))))
            if order.options[: at + 1] != parent.options[: at + 1]:
                raise RuntimeError(
                    "the program did not do the same when it was run in the same order: "
                    "it must not depend on chance, the clock, or what an earlier run has left"
                )
            begins = at + 1

    def random_orders(self, budget: int, seed: int) -> Explored:
        """Run as many orders as the budget says."""
        for number in range(budget):
            self._checked(_Random(random.Random(f"{seed} {number}")))
        return self.explored(complete=False)

    def _checked(self, order: _Order) -> _Order:
        """Run an order.

        Raises:
            InterleavingError: it failed.
        """
        self._execute(order)
        self.orders += 1
        if order.failure is not None:
            raise self.error(order, found_after=self.orders)
        return order

    def error(self, order: _Order, *, found_after: int) -> InterleavingError:
        """What to raise for an order that failed: as small as can be done quickly, with its trace."""
        if isinstance(order, _Random):
            order = self._smaller(order)
        again = self.run(bytes(order.made), recording=True)
        failure, trace = order.failure, again.trace
        lines = [
            f"{type(failure).__name__}: {failure}",
            f"found after {found_after} orders, with {order.preemptions} preemptions; "
            f"to see it again: interleavings.replay(program, {order.line!r})",
        ]
        if type(again.failure) is not type(failure):
            lines.append(
                f"but run again in the same order it gave {again.failure!r}: it depends on more than the order"
            )
        if len(trace) > _TRACE_STEPS:
            lines.append(f"... {len(trace) - _TRACE_STEPS} steps before ...")
        lines += [f"  {step}" for step in trace[-_TRACE_STEPS:]]
        error = InterleavingError("\n".join(lines), order.line, found_after, trace)
        error.__cause__ = failure
        return error

    def _smaller(self, order: _Order) -> _Order:
        """An order with the same failure and fewer choices that differ from going on."""
        best = self.run(bytes(order.made))
        if type(best.failure) is not type(order.failure):
            return order
        runs, size = 0, max(1, sum(map(bool, best.made)) // 2)
        while runs < _SHRINK_RUNS:
            chosen = [at for at, choice in enumerate(best.made) if choice]
            for begin in range(0, len(chosen), size):
                made = bytearray(best.made)
                for at in chosen[begin : begin + size]:
                    made[at] = 0
                smaller = self.run(bytes(made))
                runs += 1
                fewer = sum(map(bool, smaller.made)) < len(chosen)
                if type(smaller.failure) is type(order.failure) and fewer:
                    best = smaller
                    break
            else:
                if size == 1:
                    break
                size //= 2
        return best


def _choices(line: str) -> bytes:
    choices = bytearray()
    for item in line.split():
        at, colon, choice = item.partition(":")
        if not (colon and at.isdigit() and choice.isdigit() and int(at) >= len(choices) and int(choice) < 256):
            raise ValueError(f"no line that replays an order: {line!r}")
        choices += bytes(int(at) - len(choices)) + bytes((int(choice),))
    return bytes(choices)
