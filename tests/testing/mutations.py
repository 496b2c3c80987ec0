"""The engine, broken on purpose in one place at a time, and the search that must notice it.

A `Mutation` is a change of the source of one function of the engine (where one is not enough, of two), made in memory
while the mutation is applied. Its text must be there exactly once, so a mutation whose place has changed says so.

A `Detector` is a small program under `pystate.testing` with a search over it: every crash state of a level, a fault at
each call in turn, every order of a few threads, or damage to each byte. It passes on the engine as it is, and must fail
on the mutated one, by the oracle's own error: any other exception is a mistake in this file.

``python -m tests.testing.mutations`` measures all of them and writes ``docs/reference/mutations.md``.
"""

from __future__ import annotations
import __future__

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent
from types import CodeType, FunctionType
from typing import NamedTuple

import pystate
from pystate import ConflictError, LockedError, PystateError, Store, Transaction
from pystate.engine import (
    commit,
    conflicts,
    family_state,
    files,
    leadership,
    log_format,
    log_reader,
    log_writer,
    opening,
    places,
    recovery,
    repair,
    snapshot_format,
    snapshot_writer,
    snapshots,
    state,
)
from pystate.testing import (
    BrokenPromiseError,
    Call,
    CheckFailedError,
    CrashState,
    DeadlockError,
    Fault,
    History,
    InterleavingError,
    Level,
    Recorder,
    Scenario,
    SimulatedDisk,
    YieldingFiles,
    check,
    check_live,
    check_recovered,
    crash_here,
    disk_full,
    each_call,
    explore,
    lost_sync,
    open_quietly,
    read_state,
    short,
    yield_point,
)

__all__ = [
    "CAUGHT",
    "MUTATIONS",
    "NOT_CAUGHT",
    "PAGE",
    "UNNOTICED",
    "Detector",
    "Edit",
    "Measure",
    "Mutation",
    "edited",
    "measure",
    "row",
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "mutations.md"
STORE = "/store"
LOG = "/store/00000000000000000001.log"


# ---- mutations ------------------------------------------------------------------------------------------------------


class Edit(NamedTuple):
    """A change of the source of one function: `old`, which stands in it exactly once, becomes `new`."""

    function: Callable[..., object]
    old: str
    new: str

    def code(self, source: str) -> str:
        """`source` after the change.

        Raises:
            LookupError: `old` is not there, or not once.
        """
        if source.count(self.old) != 1:
            raise LookupError(f"{self.old!r} stands {source.count(self.old)} times in {self.function.__qualname__}")
        return source.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutation:
    """One way to break the engine.

    Attributes:
        name: what is done.
        breaks: what it breaks, in a sentence.
        detector: what must notice it.
        edits: the changes.
    """

    name: str
    breaks: str
    detector: Detector
    edits: tuple[Edit, ...]

    def applied(self) -> AbstractContextManager[None]:
        """The engine is mutated within the block, whoever has imported the functions."""
        return edited(*self.edits)


@contextmanager
def edited(*edits: Edit) -> Iterator[None]:
    """Functions are changed within the block, whoever has imported them."""
    sources: dict[FunctionType, str] = {}
    for edit in edits:
        function = edit.function
        if not isinstance(function, FunctionType):
            raise TypeError(f"{function!r} is no plain function")
        sources[function] = edit.code(sources.get(function) or dedent(inspect.getsource(function)))
    before = {function: function.__code__ for function in sources}
    codes = {function: _compiled(function, source) for function, source in sources.items()}
    try:
        for function, code in codes.items():
            function.__code__ = code
        yield
    finally:
        for function, code in before.items():
            function.__code__ = code


def _compiled(function: FunctionType, source: str) -> CodeType:
    flags = __future__.annotations.compiler_flag
    module = compile(source, function.__code__.co_filename, "exec", flags, dont_inherit=True, optimize=0)
    [code] = [one for one in module.co_consts if isinstance(one, CodeType) and one.co_name == function.__code__.co_name]
    return code


# ---- detectors ------------------------------------------------------------------------------------------------------


class Count:
    """How much a detector has looked at, so far."""

    def __init__(self) -> None:
        self.seen = 0


@dataclass(frozen=True)
class Detector:
    """A program and a search over it.

    Attributes:
        name: what is searched, for people.
        unit: what is counted.
        look: does it, counting; raises when a promise is broken.
    """

    name: str
    unit: str
    look: Callable[[Count], object]


class Measure(NamedTuple):
    """What a detector has found: after how many states, and the error of the oracle, or None."""

    seen: int
    problem: BaseException | None


def measure(detector: Detector, mutation: Mutation | None = None) -> Measure:
    """Run a detector, on the engine as it is or on a mutated one.

    Raises:
        Whatever is no error of the oracle.
    """
    count = Count()
    problem: BaseException | None = None
    with nullcontext() if mutation is None else mutation.applied():
        try:
            detector.look(count)
        except CheckFailedError as error:
            problem = error.problem
        except InterleavingError as error:
            problem, count.seen = error.__cause__, error.orders
        except BrokenPromiseError as error:
            problem = error
    if problem is not None and not isinstance(problem, (BrokenPromiseError, DeadlockError)):
        raise problem
    return Measure(count.seen, problem)


Program = Callable[[SimulatedDisk], History]


def crashes(program: Program, level: Level, *, then: Level | None = None, budget: int = 4000) -> Detector:
    """Every state that a crash of `program` may leave; and, with `then`, one of that level in the recovery from it."""

    def look(count: Count) -> None:
        def judge(one: CrashState) -> None:
            count.seen += 1
            check_recovered(one, one.result)

        nested = () if then is None else (then,)
        check(
            program,
            judge,
            level=level,
            budget=budget,
            shrink=False,
            nested=len(nested),
            nested_levels=nested,
            recovery=open_quietly,
        )

    levels = level.value if then is None else f"{level.value}, then {then.value} in the recovery"
    return Detector(f"crash states, {levels}: {_title(program)}", "states", look)


def faults(
    program: Program,
    operation: str,
    what: str,
    make: Callable[[Call], Sequence[tuple[Fault, ...]]],
    *,
    start: Program | None = None,
) -> Detector:
    """The program with each of its calls of `operation` disturbed in turn, and a crash at its end.

    Arguments:
        start: what has happened before, until the process died; None for an empty disk.
    """

    def look(count: Count) -> None:
        disk = SimulatedDisk()
        if start is not None:
            start(disk)
            disk.kill()
        for call in each_call(program, disk=disk, operations=operation):
            for injected in make(call):
                run = disk.clone()
                run.inject(*injected)
                count.seen += 1  # what the program sees while it runs
                history = program(run)
                run.faults.clear()
                run.quota = None
                for level in (Level.KILL, Level.NOTHING_UNSYNCED):
                    for one in crash_here(run, level=level):
                        count.seen += 1
                        check_recovered(one.open_disk(), history, level=level)

    return Detector(f"fault sweep, {what}: {_title(program)}", "states", look)


def damages(make: Callable[[], Iterator[Damaged]], *, prefix: bool = False) -> Detector:
    """Files that are not what was written, one after the other: the store must refuse, or show all that it held.

    Arguments:
        prefix: a prefix of it is enough: what is missing could be a torn tail.
    """

    def look(count: Count) -> None:
        for disk, history in make():
            count.seen += 1
            found = check_recovered(disk, history, level=Level.DAMAGE)
            if not prefix and found not in (None, history.live()):
                raise BrokenPromiseError("A: damage of what was durable is taken for a torn tail")

    return Detector(f"damaged files: {_title(make)}", "files", look)


Damaged = tuple[SimulatedDisk, History]
"""A disk with damage, and what had been written to it."""


def orders(program: Callable[[], Scenario], *, budget: int = 150) -> Detector:
    """The threads in every order, those with the fewest preemptions first."""

    def look(count: Count) -> None:
        count.seen = explore(program, preemptions=2, budget=budget).orders

    return Detector(f"orders of threads: {_title(program)}", "orders", look)


def _title(function: Callable[..., object]) -> str:
    return str(function.__name__).replace("_", " ")


# ---- programs to crash ----------------------------------------------------------------------------------------------


def open_process(disk: SimulatedDisk) -> Store:
    return pystate.open(STORE, files=disk, durability="process", snapshot_log_bytes=1 << 40)


def four_commits(disk: SimulatedDisk) -> History:
    recorder = Recorder(open_quietly(disk), History(disk))
    for number in range(4):
        recorder.put(b"key %d" % (number % 2), b"value %d" % number * 40)
    recorder.close()
    return recorder.history


def snapshot_and_reopening(disk: SimulatedDisk) -> History:
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.create_family("other")
    recorder.commit({"default": {b"a": b"1" * 600}, "other": {b"a": b"1"}})
    recorder.snapshot()
    recorder.put(b"b", b"2")
    recorder.close()
    recorder = Recorder(open_quietly(disk), recorder.history)
    recorder.put(b"b", b"3")
    recorder.commit({"default": {b"a": None, b"c": b"3"}, "other": {b"a": b"4"}})
    recorder.close()
    return recorder.history


def snapshots_of_unsynced_commits(disk: SimulatedDisk) -> History:
    recorder = Recorder(open_process(disk), History(disk))
    for number in range(2):
        recorder.put(b"%d" % number, b"x" * 50)
        recorder.snapshot()
        recorder.put(b"%d" % number, b"y" * 50)
    return recorder.history


def full_disk_then_sync(disk: SimulatedDisk) -> History:
    recorder = Recorder(open_process(disk), History(disk))
    recorder.put(b"a", b"1")
    disk.quota = disk.used_bytes() + 30
    with suppress(pystate.DiskFullError):
        recorder.put(b"b", b"2" * 100)
    disk.quota = None
    recorder.sync()
    recorder.put(b"c", b"3")
    return recorder.history


def family_after_a_dropped_one(disk: SimulatedDisk) -> History:
    recorder = Recorder(open_quietly(disk), History(disk))
    for name in ("f", "g"):
        recorder.create_family(name)
        recorder.put(b"x", name.encode(), family=name)
        recorder.drop_family(name)
    return recorder.history


def families_come_and_go(disk: SimulatedDisk) -> History:
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.create_family("f")
    recorder.put(b"x", b"1", family="f")
    recorder.drop_family("f")
    recorder.create_family("g")
    recorder.put(b"x", b"2", family="g")
    recorder.drop_family("g")
    recorder.snapshot()
    for name in ("h", "i"):
        recorder.close()
        recorder = Recorder(open_quietly(disk), recorder.history)
        recorder.create_family(name)
        recorder.put(b"x", name.encode(), family=name)
    recorder.close()
    return recorder.history


# ---- programs to disturb --------------------------------------------------------------------------------------------


def going_on_after_errors(disk: SimulatedDisk) -> History:
    """Goes on after every error as a program would; while every outcome is known, what it reads is looked at too."""
    history = History(disk)
    with suppress(PystateError, OSError):
        recorder = Recorder(open_quietly(disk), history)
        steps: list[Callable[[], object]] = [
            lambda: recorder.put(b"a", b"1"),
            lambda: recorder.commit({"default": {b"b": b"2" * 40, b"c": b"2"}}),
            lambda: recorder.put(b"a", b"3" * 40),
            recorder.snapshot,
            lambda: recorder.put(b"d", b"4"),
            lambda: recorder.commit({"default": {b"a": None, b"e": b"5"}}),
        ]
        for step in steps:
            with suppress(PystateError, OSError):
                step()
            if all(one.outcome in ("acknowledged", "aborted") for one in history.commits):
                check_live(recorder.store, history)
        with suppress(PystateError, OSError):
            recorder.close()
        recorder.store.close()
    return history


def recovery_and_two_commits(disk: SimulatedDisk) -> History:
    """Opens what `two_synced_commits_and_a_kill` has left, goes on if it may, and opens it again."""
    history = History(disk, {"default": {b"a": b"1" * 40, b"b": b"2"}})
    for number in range(2):
        with suppress(PystateError, OSError):
            recorder = Recorder(open_quietly(disk), history)
            recorder.put(b"%d" % number, b"")
            recorder.close()
    return history


def reader_that_follows(disk: SimulatedDisk) -> History:
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.put(b"a", b"1")
    with pystate.open(STORE, files=disk, read_only=True) as reader:
        for number in range(2):
            recorder.put(b"a", b"%d" % number)
            recorder.snapshot()
            recorder.put(b"b", b"%d" % number)
            reader.refresh()
            check_live(reader, recorder.history)
    recorder.close()
    return recorder.history


def two_synced_commits_and_a_kill(disk: SimulatedDisk) -> History:
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.put(b"a", b"1" * 40)
    recorder.put(b"b", b"2")
    return recorder.history


# ---- files to damage ------------------------------------------------------------------------------------------------


def killed(*, seed: int = 0, generations: int = 1, keys: Sequence[bytes] = (b"a", b"b", b"c")) -> Damaged:
    """A store whose process died after so many commits, in the last of so many lives; nothing is pending."""
    disk = SimulatedDisk(seed)
    history = History(disk)
    for life in range(generations):
        recorder = Recorder(open_quietly(disk), history)
        if life == generations - 1:
            for key in keys:
                recorder.put(key, key * 3)
        disk.kill()
    return disk, history


def lives(disk: SimulatedDisk, history: History, *, idle: int, key: bytes) -> None:
    """So many processes open the store and die without a commit; the next one commits once, and dies."""
    for number in range(idle + 1):
        recorder = Recorder(open_quietly(disk), history)
        if number == idle:
            recorder.put(key, key)
        disk.kill()


def with_file(disk: SimulatedDisk, path: str, content: bytes) -> SimulatedDisk:
    other = disk.clone()
    other.put({path: content})
    return other


def wrong_bytes(disk: SimulatedDisk, history: History, path: str, stop: int) -> Iterator[Damaged]:
    content = disk.files()[path]
    for at in range(stop):
        yield with_file(disk, path, content[:at] + bytes([content[at] ^ 0x5A]) + content[at + 1 :]), history


def frames(disk: SimulatedDisk, path: str) -> list[bytes]:
    """The frames of a segment, in order."""
    content = disk.files()[path]
    found = pystate.read_log(STORE, files=disk.clone())
    return [content[one.offset : one.offset + one.length] for one in found if path.endswith(one.segment)]


def each_byte_before_the_last_frame() -> Iterator[Damaged]:
    disk, history = killed()
    content = disk.files()[LOG]
    yield from wrong_bytes(disk, history, LOG, len(content) - len(frames(disk, LOG)[-1]))


def each_length_of_a_closed_log() -> Iterator[Damaged]:
    disk = SimulatedDisk()
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.put(b"a", b"1")
    recorder.put(b"b", b"2")
    recorder.close()
    path = LOG.replace(".log", ".closed")
    content = disk.files()[path]
    for size in range(len(content)):
        yield with_file(disk, path, content[:size]), recorder.history


def each_byte_of_a_snapshot() -> Iterator[Damaged]:
    disk = SimulatedDisk()
    recorder = Recorder(open_quietly(disk), History(disk))
    recorder.put(b"a", b"1" * 9)
    recorder.snapshot()
    recorder.close()
    [path] = [path for path in disk.files() if path.endswith(".snapshot")]
    yield from wrong_bytes(disk, recorder.history, path, len(disk.files()[path]))


def frames_in_another_order() -> Iterator[Damaged]:
    disk, history = killed(keys=(b"a", b"b", b"c", b"d"))
    head, parts = disk.files()[LOG][: log_format.SEGMENT_HEADER_SIZE], frames(disk, LOG)
    for at in range(len(parts) - 1):
        swapped = [*parts[:at], parts[at + 1], parts[at], *parts[at + 2 :]]
        for changed in (swapped, parts[:at] + parts[at + 1 :], [*parts, parts[at]]):
            yield with_file(disk, LOG, head + b"".join(changed)), history


def segment_of_another_store() -> Iterator[Damaged]:
    disk, history = killed()
    other, _ = killed(seed=1, keys=(b"x", b"y", b"z"))
    yield with_file(disk, LOG, other.files()[LOG]), history


def segment_of_an_earlier_generation() -> Iterator[Damaged]:
    """Two ways on from the same two commits; a segment of the one is put in the place of one of the other."""
    old, other = killed(keys=(b"a", b"b"))
    disk, history = killed(keys=(b"a", b"b"))
    lives(old, other, idle=0, key=b"old")
    lives(old, other, idle=0, key=b"older")
    lives(disk, history, idle=3, key=b"c")
    lives(disk, history, idle=0, key=b"d")
    path = LOG.replace("1.log", "4.log")
    yield with_file(disk, path, old.files()[path]), history


def frames_of_an_earlier_generation() -> Iterator[Damaged]:
    """What was once written behind the last commit, and lost, turns up behind it again."""
    old, other = killed(keys=(b"a", b"b"))
    disk, history = killed(keys=(b"a", b"b"))
    lives(old, other, idle=0, key=b"old")
    for _ in range(2):
        open_quietly(disk)
        disk.kill()
    path = LOG.replace("1.log", "3.log")
    content = old.files()[path][log_format.SEGMENT_HEADER_SIZE :]
    yield with_file(disk, path, disk.files()[path] + content), history


# ---- threads --------------------------------------------------------------------------------------------------------


def opened(disk: SimulatedDisk) -> Store:
    """The store on a disk, with a yield point before every operation on its files."""
    return pystate.open(STORE, files=YieldingFiles(disk), snapshot_log_bytes=1 << 40)


def small_store() -> SimulatedDisk:
    disk = SimulatedDisk()
    with open_quietly(disk) as one:
        one.family("default")[b"n"] = b"0"
    return disk


def survivors(disk: SimulatedDisk) -> dict[bytes, bytes]:
    """What the store holds after power loss right now."""
    [one] = crash_here(disk, level=Level.NOTHING_UNSYNCED)
    with open_quietly(one.open_disk()) as found:
        return read_state(found)["default"]


def add_one(one: Store, done: list[bool]) -> None:
    try:
        with one.begin() as txn:
            number = int(txn.get("default", b"n") or b"")
            yield_point("between reading and writing")
            txn.put("default", b"n", b"%d" % (number + 1))
        done.append(True)
    except ConflictError:
        pass


def two_that_count() -> Scenario:
    one = pystate.memory()
    one.family("default")[b"n"] = b"0"
    done: list[bool] = []

    def judge() -> None:
        if one.family("default")[b"n"] != b"%d" % len(done):
            raise BrokenPromiseError("an update is lost")

    return Scenario({"one": lambda: add_one(one, done), "two": lambda: add_one(one, done)}, judge)


def two_that_count_in_a_group() -> Scenario:
    disk = small_store()
    one = opened(disk)
    done: list[bool] = []

    def judge() -> None:
        if one.family("default")[b"n"] != b"%d" % len(done):
            raise BrokenPromiseError("an update is lost")

    return Scenario(
        {
            "leader": lambda: one.family("default").put(b"m", b""),
            "one": lambda: add_one(one, done),
            "two": lambda: add_one(one, done),
        },
        judge,
    )


def two_that_look_for_each_other() -> Scenario:
    """Each adds an entry if the range of the other one is empty: in no serial order do both."""
    one = pystate.memory()
    done: list[bytes] = []

    def insert(own: bytes, other: bytes) -> None:
        def run(txn: Transaction) -> bool:
            found = list(txn.family("default").scan(prefix=other))
            yield_point("between reading and writing")
            if not found:
                txn.put("default", own + b"1", b"")
            return not found

        try:
            with one.begin() as txn:
                inserted = run(txn)
            if inserted:
                done.append(own)
        except ConflictError:
            pass

    def judge() -> None:
        if len(done) != 1:
            raise BrokenPromiseError(f"{len(done)} of two transactions that exclude each other have committed")

    return Scenario({"one": lambda: insert(b"a", b"b"), "two": lambda: insert(b"b", b"a")}, judge)


def reader_beside_a_writer() -> Scenario:
    """A view shows one state, whole, however often it is asked."""
    one = pystate.memory(families=["other"])
    values = [one.family("default"), one.family("other")]
    for family in values:
        family[b"k"] = b"1"

    def write() -> None:
        with one.begin() as txn:
            txn.put("default", b"k", b"2")
            txn.put("other", b"k", b"2")

    def read() -> None:
        with one.view() as view:
            seen = []
            for name in ("default", "other", "default"):
                seen.append(view.get(name, b"k"))
                yield_point("between two reads")
        if len(set(seen)) != 1:
            raise BrokenPromiseError(f"one view shows {seen}")

    return Scenario({"writer": write, "reader": read})


def two_committers() -> Scenario:
    one = opened(small_store())

    def put(key: bytes) -> None:
        with one.begin() as txn:
            txn.put("default", key, key)

    def judge() -> None:
        if set(one.family("default")) != {b"n", b"1", b"2"}:
            raise BrokenPromiseError("a commit is lost")

    return Scenario({"one": lambda: put(b"1"), "two": lambda: put(b"2")}, judge, timeouts="never")


def synced_and_unsynced_commits_in_a_group() -> Scenario:
    disk = small_store()
    one = opened(disk)
    lost: list[bytes] = []

    def put(key: bytes, durability: pystate.Durability) -> None:
        with one.begin(durability=durability) as txn:
            txn.put("default", key, key)
        if durability == "sync" and key not in survivors(disk):
            lost.append(key)

    def judge() -> None:
        if lost:
            raise BrokenPromiseError(f"A: power loss would have taken {lost}, which had been acknowledged")

    return Scenario(
        {
            "leader": lambda: put(b"1", "sync"),
            "synced": lambda: put(b"2", "sync"),
            "unsynced": lambda: put(b"3", "process"),
        },
        judge,
    )


def two_openers() -> Scenario:
    disk = small_store()
    holders: list[str] = []

    def use(name: str) -> None:
        try:
            one = opened(disk)
        except LockedError:
            return
        holders.append(name)
        yield_point("while it is open")
        if holders != [name]:
            raise BrokenPromiseError("two have the store open for writing")
        holders.remove(name)
        one.close()

    return Scenario({"one": lambda: use("one"), "two": lambda: use("two")})


def opener_beside_a_closing_writer() -> Scenario:
    disk = small_store()
    first = opened(disk)
    first.family("default")[b"1"] = b""

    def take_over() -> None:
        try:
            one = opened(disk)
        except LockedError:
            return
        except (PystateError, OSError) as error:
            raise BrokenPromiseError(f"the one before was not done: {error}") from error
        try:
            one.family("default")[b"2"] = b""
        except (PystateError, OSError) as error:
            raise BrokenPromiseError(f"the one before was not done: {error}") from error
        try:
            found = set(survivors(disk))
        except PystateError as error:
            raise BrokenPromiseError(f"A: it refuses to open: {error}") from error
        if found != {b"n", b"1", b"2"}:
            raise BrokenPromiseError("A: a commit is lost")

    def close() -> None:
        try:
            first.close()
        except OSError as error:
            raise BrokenPromiseError(f"somebody else was at the files while they were closed: {error}") from error

    return Scenario({"closing": close, "opening": take_over})


# ---- the detectors --------------------------------------------------------------------------------------------------

SINGLE_KILLED = crashes(four_commits, Level.KILL)
SINGLE_NOTHING = crashes(four_commits, Level.NOTHING_UNSYNCED)
SINGLE_PREFIX = crashes(four_commits, Level.PREFIX)
SESSION_KILLED = crashes(snapshot_and_reopening, Level.KILL)
SESSION_SECTORS = crashes(snapshot_and_reopening, Level.SECTORS)
SESSION_DAMAGE = crashes(snapshot_and_reopening, Level.DAMAGE, budget=1200)
UNSYNCED_SECTORS = crashes(snapshots_of_unsynced_commits, Level.SECTORS)
UNSYNCED_AGAIN = crashes(snapshots_of_unsynced_commits, Level.KILL, then=Level.NOTHING_UNSYNCED)
FULL_NOTHING = crashes(full_disk_then_sync, Level.NOTHING_UNSYNCED)
FULL_KILLED = crashes(full_disk_then_sync, Level.KILL)
FAMILY_KILLED = crashes(family_after_a_dropped_one, Level.KILL)
FAMILIES_SECTORS = crashes(families_come_and_go, Level.SECTORS)

SHORT_WRITES = faults(going_on_after_errors, "write", "short writes", lambda call: [(short("write", call.n, take=9),)])
FULL_DISK = faults(going_on_after_errors, "write", "a full disk", lambda call: [disk_full(call.n, room=8, calls=2)])
LOST_SYNCS = faults(
    going_on_after_errors,
    "sync",
    "syncs that lose pages",
    lambda call: [(lost_sync(call.n, pages="cached"),), (lost_sync(call.n, pages="dropped"),)],
)
DIRECTORY_SYNCS = faults(
    going_on_after_errors, "sync_directory", "directory syncs that fail", lambda call: [(call.fault(),)]
)
READS = faults(
    recovery_and_two_commits,
    "read_at",
    "reads that fail",
    lambda call: [(call.fault(),)],
    start=two_synced_commits_and_a_kill,
)

UNLINKS = faults(reader_that_follows, "unlink", "files that cannot be removed", lambda call: [(call.fault(),)])

DAMAGED_FRAMES = damages(each_byte_before_the_last_frame)
SHORTENED_CLOSED = damages(each_length_of_a_closed_log)
DAMAGED_SNAPSHOT = damages(each_byte_of_a_snapshot)
REORDERED = damages(frames_in_another_order, prefix=True)
FOREIGN = damages(segment_of_another_store)
STALE_SEGMENT = damages(segment_of_an_earlier_generation)
STALE_FRAMES = damages(frames_of_an_earlier_generation)

COUNTING = orders(two_that_count)
COUNTING_GROUP = orders(two_that_count_in_a_group)
EXCLUDING = orders(two_that_look_for_each_other)
READING = orders(reader_beside_a_writer)
COMMITTING = orders(two_committers)
SYNCING = orders(synced_and_unsynced_commits_in_a_group)
OPENING = orders(two_openers)
CLOSING = orders(opener_beside_a_closing_writer)


# ---- the mutations --------------------------------------------------------------------------------------------------


def _indented(text: str, spaces: int) -> str:
    return indent(dedent(text).strip("\n"), " " * spaces)


Writer = log_writer.LogWriter
THE_FLUSH = "        (self._file or self.open()).sync()\n"

MUTATIONS = [
    Mutation(
        "skip file flush",
        "a commit is acknowledged and counted as durable, and never synced",
        SINGLE_NOTHING,
        (Edit(Writer.sync, THE_FLUSH, "        self.open()\n"),),
    ),
    Mutation(
        "skip directory flush",
        "a new file is in use before its name is durable",
        SINGLE_NOTHING,
        (Edit(files.publish_written, "    files.sync_directory(directory)\n", ""),),
    ),
    Mutation(
        "unlink before directory flush",
        "what a snapshot supersedes is removed before the name of the snapshot is durable",
        SESSION_SECTORS,
        (
            Edit(
                snapshot_writer.write_snapshot,
                "    return publish_stream(files, path, write).size\n",
                "    file = files.create(path + '.tmp')\n    written = write(file)\n    file.sync()\n    file.close()\n"
                "    files.replace(path + '.tmp', path)\n    return written.size\n",
            ),
            Edit(
                snapshots.Snapshots._finish,
                "    remove_files(self._files, self._directory, stale)\n",
                "    remove_files(self._files, self._directory, stale)\n"
                "    self._files.sync_directory(self._directory)\n",
            ),
        ),
    ),
    Mutation(
        "publish before flush of data",
        "a file gets its name before its content is durable",
        SESSION_SECTORS,
        (
            Edit(
                files.publish_written,
                "    file.sync()\n    file.close()\n    files.replace(path + TEMPORARY_SUFFIX, path)\n",
                "    files.replace(path + TEMPORARY_SUFFIX, path)\n    file.sync()\n    file.close()\n",
            ),
        ),
    ),
    Mutation(
        "acknowledge before flush",
        "a commit returns at once, and is synced together with the next one",
        SINGLE_NOTHING,
        (Edit(Writer.sync, "if self.durable != sequence:", "if self.durable < sequence - 1:"),),
    ),
    Mutation(
        "ignore short write",
        "a frame that the system took only in part is left so",
        SHORT_WRITES,
        (Edit(Writer.finish, "    write_rest(file, frames, file.size() - self.size)\n", ""),),
    ),
    Mutation(
        "retry flush",
        "a sync that failed is called again, and believed",
        LOST_SYNCS,
        (
            Edit(
                Writer.sync,
                THE_FLUSH,
                f"        try:\n    {THE_FLUSH}        except OSError:\n    {THE_FLUSH}",
            ),
        ),
    ),
    Mutation(
        "restart sequence at 1",
        "after a reopening commits are numbered from 1 again",
        SESSION_KILLED,
        (Edit(Writer.__init__, "self.sequence = position.sequence", "self.sequence = 0"),),
    ),
    Mutation(
        "drop generation check",
        "a segment that an earlier process wrote, and lost, is taken for one of the present log",
        STALE_SEGMENT,
        (Edit(recovery._check_header, "header.generation < generation", "header.generation < 0"),),
    ),
    Mutation(
        "skip length bound",
        "a frame that ends past the end of the file is taken as it is",
        SINGLE_PREFIX,
        (
            Edit(
                log_reader.read_segment,
                "if crc32(payload, seed) != payload_checksum or end > size:",
                "if crc32(payload, seed) != payload_checksum and end <= size:",
            ),
        ),
    ),
    Mutation(
        "treat EIO as end of log",
        "where the log cannot be read, it is taken to end",
        READS,
        (
            Edit(
                files.read_whole,
                "    try:\n        return read_exactly(file, 0, file.size())\n",
                "    try:\n"
                "        try:\n"
                "            return read_exactly(file, 0, file.size())\n"
                "        except OSError:\n"
                "            return read_exactly(file, 0, file.size() // 2)\n",
            ),
        ),
    ),
    Mutation(
        "cut tail although a valid record follows",
        "damage in the middle of the log is taken for a torn tail, and what follows it is cut off",
        DAMAGED_FRAMES,
        (
            Edit(
                log_reader.read_segment,
                "        watermark = max(watermark, _watermark_behind(data, header, offset, last))\n",
                "        pass\n",
            ),
        ),
    ),
    Mutation(
        "apply to memory before WAL",
        "a commit is visible before it is written, also if it cannot be written",
        FULL_DISK,
        (
            Edit(
                commit.Committer._write_group,
                "    if accepted and self.log is not None:\n",
                "    for request in accepted:\n"
                "        self._apply(request)\n"
                "    if accepted and self.log is not None:\n",
            ),
        ),
    ),
    Mutation(
        "release lock before last write",
        "the next writer is let in while this one still closes its log",
        CLOSING,
        (
            Edit(
                Writer.close,
                "    self._files.replace(self.path, ",
                "    self._still_held.__self__.release()\n    self._files.replace(self.path, ",
            ),
        ),
    ),
    Mutation(
        "reuse lock by pid",
        "a lock that is held is taken for the own one if it names the own process",
        OPENING,
        (
            Edit(
                places.take_lock,
                "        return files.lock(directory, LOCK_NAME, timeout)\n",
                _indented(
                    """
                    from unittest.mock import Mock
                    try:
                        return files.lock(directory, LOCK_NAME, timeout)
                    except OSError as error:
                        if getattr(error, "pid", 0) != 1:
                            raise
                        return Mock()
                    """,
                    8,
                )
                + "\n",
            ),
        ),
    ),
    # Of our own, from reading the engine
    Mutation(
        "watermark ignored",
        "later frames prove nothing about those before them",
        DAMAGED_FRAMES,
        (Edit(recovery._read_log, "proven=max(end.watermark, durable)", "proven=durable"),),
    ),
    Mutation(
        "closed name believed without a closing frame",
        "a cleanly closed log that has been cut is taken for one that ends there",
        SHORTENED_CLOSED,
        (Edit(recovery._read_log, "closed_name=name.closed", "closed_name=False"),),
    ),
    Mutation(
        "closing frame missing",
        "a segment is named as closed cleanly, and does not end so",
        SINGLE_KILLED,
        (Edit(Writer.close, "        write_all(file, self._closing_frame([]))\n", ""),),
    ),
    Mutation(
        "closed name durable over new frames",
        "the name of a closed segment is taken away, and power loss brings it back over the frames behind it",
        SESSION_SECTORS,
        (
            Edit(
                Writer.open,
                "            self._files.sync_directory(self._directory)\n            self._closed_name = False\n",
                "            self._closed_name = False\n",
            ),
        ),
    ),
    Mutation(
        "undo map skipped",
        "a commit overwrites what an open view still reads",
        READING,
        (Edit(family_state.FamilyState.apply, "if pinned is not None:", "if False:"),),
    ),
    Mutation(
        "commit applied in portions",
        "a view may begin between two families of one commit",
        READING,
        (
            Edit(
                state.State.apply,
                "    with self.lock:\n        self.apply_locked(commit, sequence)\n",
                "    for change in commit:\n"
                "        with self.lock:\n"
                "            self.apply_locked([change], sequence)\n",
            ),
        ),
    ),
    Mutation(
        "range conflict dropped",
        "a transaction commits although a range that it scanned has changed",
        EXCLUDING,
        (Edit(conflicts._first_read, "for scanned in read.ranges:", "for scanned in ():"),),
    ),
    Mutation(
        "group conflicts ignored",
        "two transactions of one group are not compared with each other",
        COUNTING_GROUP,
        (Edit(conflicts.check_reads, "grouped = group.get(family.id)", "grouped = None"),),
    ),
    Mutation(
        "pin released before validation",
        "what has changed since a transaction began is forgotten before it is looked at",
        COUNTING,
        (
            Edit(
                commit.Committer._check,
                "        with self.state.lock:\n",
                "        request.pin.release()\n        with self.state.lock:\n",
            ),
        ),
    ),
    Mutation(
        "leader wakes nobody",
        "a commit that waits for its turn waits for ever",
        COMMITTING,
        (Edit(leadership.Leadership.wake_first, "_wake(self.queue[0])", "pass"),),
    ),
    Mutation(
        "group synced as its last commit asks",
        "a commit that must be synced is not, because one without that wish was written with it",
        SYNCING,
        (Edit(commit.Committer._write_group, "any(one.sync for one in accepted)", "accepted[-1].sync"),),
    ),
    Mutation(
        "lazy decode without checksum",
        "a block of a snapshot is decoded, and shown, without being checked",
        DAMAGED_SNAPSHOT,
        (
            Edit(
                snapshot_format.decode_block,
                '    _check(path, block.offset, "block", data, block.checksum)\n',
                "",
            ),
        ),
    ),
    Mutation(
        "salt not checked",
        "frames of an earlier segment, still on the disk behind the tail, are taken for commits",
        STALE_FRAMES,
        (
            Edit(log_reader.read_segment, " or marker != salt:", ":"),
            Edit(log_format.salt_seed, "return crc32(salt)", "return 0"),
        ),
    ),
    Mutation(
        "generation not bumped after unclean stop",
        "what was lost in a crash cannot be told from what was written after it",
        STALE_SEGMENT,
        (Edit(repair.repair_log, "segment.generation + 1,", "segment.generation,"),),
    ),
    Mutation(
        "store id not compared",
        "a segment of another store is taken for an own one",
        FOREIGN,
        (Edit(recovery._check_header, "header.log_id != log_id", "False"),),
    ),
    Mutation(
        "sequence not checked to follow",
        "frames in another order, missing or twice, are replayed as they stand",
        REORDERED,
        (Edit(log_reader._check_follows, "if sequence != expected:", "if False:"),),
    ),
    Mutation(
        "snapshot supersedes before publish",
        "the old snapshot is removed before the new one is in place",
        SESSION_KILLED,
        (
            Edit(
                snapshots.Snapshots._finish,
                "    header = begun.header\n",
                "    header = begun.header\n"
                "    remove_files(self._files, self._directory, survey(self._files, self._directory).snapshots)\n",
            ),
        ),
    ),
    Mutation(
        "oldest snapshot chosen",
        "of two snapshots the older one is opened, whose log may be gone already",
        SESSION_KILLED,
        (Edit(recovery._choose_snapshot, "in reversed(range(len(inventory.snapshots))):", "in range(1):"),),
    ),
    Mutation(
        "old segment not synced before the next one",
        "power loss leaves a hole between two segments",
        UNSYNCED_SECTORS,
        (
            Edit(Writer.switch, "    self.sync()\n", ""),
            Edit(Writer.sync_ahead, "            file.sync()\n", "            pass\n"),
        ),
    ),
    Mutation(
        "frame at the end of a superseded segment missing",
        "a reader does not see that the log goes on in another segment, and waits for ever in the old one",
        UNLINKS,
        (Edit(Writer.switch, "closing = self._closing_frame([header.first])", "closing = b''"),),
    ),
    Mutation(
        "half-published segment left",
        "a switch that failed leaves a new segment, and the old one goes on",
        DIRECTORY_SYNCS,
        (Edit(Writer._unpublish, "        self._files.unlink(path)\n", "        pass\n"),),
    ),
    Mutation(
        "cut-back skipped",
        "half a frame stays in the log when the disk is full, and the next one is written behind it",
        FULL_KILLED,
        (Edit(Writer.undo, "        file.truncate(self.size)\n", ""),),
    ),
    Mutation(
        "cut-back not synced",
        "what stood before a frame that was cut off counts as durable, and is not",
        FULL_NOTHING,
        (Edit(Writer.undo, "        file.sync()\n", ""),),
    ),
    Mutation(
        "store goes on after a failed sync",
        "later commits are acknowledged on top of one that may be lost",
        LOST_SYNCS,
        (Edit(commit.Committer.fail, "if self.failed is None:", "if False:"),),
    ),
    Mutation(
        "recovered log not written anew",
        "what recovery accepts may stand in the cache alone, and power loss takes it from under what comes next",
        UNSYNCED_AGAIN,
        (
            Edit(
                repair.repair_log,
                "        publish(files, directory, recovered.newest.name, recovered.data[: end.offset])\n",
                "        pass\n",
            ),
        ),
    ),
    Mutation(
        "cleaned up before it is looked at",
        "an opening that refuses has removed files already",
        SESSION_DAMAGE,
        (
            Edit(
                opening._open_locked,
                "    recovered = recover(files, directory, inventory)\n",
                "    remove_files(files, directory, [one for one in inventory.others if one.kind == 'temporary'])\n"
                "    recovered = recover(files, directory, inventory)\n",
            ),
        ),
    ),
    Mutation(
        "snapshot before segment in a new store",
        "a crash in the creation leaves a store without a log",
        SINGLE_KILLED,
        (
            Edit(repair.create_store, "    publish_segment(files, directory, segment)\n", ""),
            Edit(
                repair.create_store,
                "snapshot_name(0), encode_empty(snapshot))\n",
                "snapshot_name(0), encode_empty(snapshot))\n    publish_segment(files, directory, segment)\n",
            ),
        ),
    ),
    Mutation(
        "parent directory not synced",
        "power loss takes a new store whole, with its directory",
        SINGLE_NOTHING,
        (Edit(places.sync_parent, "files.sync_directory(files.parent(directory))", "pass"),),
    ),
    Mutation(
        "next family id reused",
        "a new family gets the id of one that was dropped, so that frames of both have the same id",
        FAMILY_KILLED,
        (Edit(state.State.creation, "self.next_family_id + i", "len(self.by_id) + 1 + i"),),
    ),
]

# Each of these is run too: its detector must pass, or it belongs above.
UNNOTICED = [
    Mutation(
        "skip length bound, alone",
        "the checksum of the payload is compared also for a frame that ends past the file: what is there of it has "
        "another one, but for one chance in 2^32",
        SINGLE_PREFIX,
        (Edit(log_reader.read_segment, " or end > size:", ":"),),
    ),
    Mutation(
        "salt not compared, alone",
        "the checksums begin with the salt, so that a frame of another segment has a wrong one anyway",
        STALE_FRAMES,
        (Edit(log_reader.read_segment, " or marker != salt:", ":"),),
    ),
    Mutation(
        "family ids of before a snapshot used again",
        "a snapshot supersedes every frame with the id of a family that was dropped before it, so a crash leaves none "
        "that the id could confuse; only a store that reads beside the writer, all the while, could take a family that "
        "was dropped and made again under its name for the same one",
        FAMILIES_SECTORS,
        (
            Edit(
                snapshots.Snapshots._begin,
                "next_family_id=state.next_family_id,",
                "next_family_id=1 + max(family.id for family in state.families.values()),",
            ),
        ),
    ),
]


# ---- the page -------------------------------------------------------------------------------------------------------

HEAD = """\
# The tests, tested

A search that finds nothing says little unless it is known to find what is there. So the engine is broken on purpose,
in one place at a time, and a search must notice: every state that a crash can leave, a fault at each call in turn,
every order of a few threads, or damage to each byte of a file. Each search passes on the engine as it is. Each must
fail on the mutated one, and by the oracle's own words: a promise is broken, or nobody can go on.

"After" is how many states, orders of threads, or damaged files were looked at, the one that shows it included; in a
fault sweep what the running program sees is one state, what a crash at its end leaves are others. The numbers follow
from fixed seeds; a test measures them anew and compares this page. After a change of the engine,
`python -m tests.testing.mutations` writes it again.

## Caught

"""
CAUGHT = ("mutation", "what it breaks", "caught by", "after")
TAIL = """
## Not caught, and why

What these take away is there twice, or cannot be told from outside. They are run as well: should a search begin to
notice one of them, the test says so.

"""
NOT_CAUGHT = ("mutation", "why it cannot be seen", "searched", "how much")


def row(mutation: Mutation, found: Measure) -> tuple[str, ...]:
    """The row of a mutation, caught or not."""
    return mutation.name, mutation.breaks, mutation.detector.name, f"{found.seen} {_units(mutation, found)}"


def _units(mutation: Mutation, found: Measure) -> str:
    return mutation.detector.unit[:-1] if found.seen == 1 else mutation.detector.unit


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Measure everything and write the page."""
    caught, passed = [], []
    for mutation in MUTATIONS:
        found = measure(mutation.detector, mutation)
        if found.problem is None:
            raise SystemExit(f"not caught: {mutation.name}")
        caught.append(row(mutation, found))
    for mutation in UNNOTICED:
        found = measure(mutation.detector, mutation)
        if found.problem is not None:
            raise SystemExit(f"caught after all: {mutation.name}: {found.problem}")
        passed.append(row(mutation, found))
    text = HEAD + _table(CAUGHT, caught) + TAIL + _table(NOT_CAUGHT, passed)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
