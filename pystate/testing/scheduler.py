"""Real threads of which only one runs at a time, in an order that somebody else chooses.

A `Run` replaces the seam of the engine to the threads (`pystate.engine.threads`) for its duration: locks, events and
threads made meanwhile are controlled. A controlled thread goes on undisturbed from one *yield point* to the next; there
it may have to hand on to another. Yield points are: before a lock is acquired, before and after it is released, before
it is tried or looked at; the same for events; after a thread was started, where it ends, and where it is joined;
`yield_point`; and, for functions named in `Run.watch`, every line.

At each yield point the run asks its chooser which of the threads that can go on does. All that happens between two
yield points happens at once for everybody else, so the choices are all that tells two runs of a program apart, and the
same choices give the same run.

Promise: a state in which no thread can go on is noticed, and told as `DeadlockError`: who waits for what, who has it,
and where. Whatever happens, every thread has ended, or has been put aside for good, when the run is over; locks made in
it then still work, without yielding, for finalisers that come late.

Not seen: races within one line of Python, locks that were made before the run or by other libraries, and waiting by
other means than the seam. The garbage collector is off during a run, because it would run finalisers at any moment.
"""

from __future__ import annotations

import gc
import linecache
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from pystate.engine import threads as seam

__all__ = ["Chooser", "DeadlockError", "Run", "Step", "StepsExceededError", "Timeouts", "Workers", "yield_point"]

Chooser: TypeAlias = Callable[[int, int], int]
"""Called with how many threads could go on without taking the processor from anybody, and how many could at all; these
come first, the thread that runs already before all others. Returns which of them does, counted from 0."""

Timeouts: TypeAlias = Literal["last", "any", "never"]
"""When a wait with a timeout gives up: when nothing else can run; also at any moment; never, as if it had none."""

_STEPS_MAX = 20_000
_ABANDON_ATTEMPTS = 1_000
_OWN_MODULES = {__name__, "pystate.testing.interleavings", "pystate.testing.yielding_files"}
_GO, _TIMEOUT, _INTERRUPT, _STOP = "go", "timeout", "interrupt", "stop"


class DeadlockError(AssertionError):
    """No thread can go on."""


class StepsExceededError(AssertionError):
    """The threads go on and on without an end."""


class _AbandonedError(BaseException):
    """Raised in a thread whose run is over, to end it."""


class Step(NamedTuple):
    """One step of a run, for its trace: which thread was about to do what, and where."""

    thread: str
    action: str
    resource: str
    place: str

    def __str__(self) -> str:
        return f"{self.thread}: {self.action} {self.resource}".rstrip() + f"   [{self.place}]"


class _Resource(Protocol):
    def available(self) -> bool:
        """Whether a thread that waits for this can go on."""
        ...

    def describe(self) -> str:
        """For messages."""
        ...


class _Task:
    """A thread in one run: the program itself, as `main`, or one that was started."""

    def __init__(self, name: str, function: Callable[[], object], gate: threading.Lock) -> None:
        self.name = name
        self.function = function
        self.gate = gate  # whoever lets it go on releases it
        self.ident = 0
        self.started = False
        self.done = False
        self.waiting: _Resource | None = None
        self.timed = False
        self.waits_since = 0
        self.interruptible = False
        self.interrupt: Callable[[], BaseException] | None = None  # makes what is raised once, in one of its waits
        self.resumed = _GO
        self.abandoned = 0

    def ready(self) -> bool:
        return not self.done and (self.waiting is None or self.waiting.available())

    def available(self) -> bool:
        return self.done

    def describe(self) -> str:
        return f"the end of {self.name}"


class _Everybody:
    """What the program waits for while its threads run."""

    def __init__(self, tasks: list[_Task]) -> None:
        self._tasks = tasks

    def available(self) -> bool:
        return all(task.done for task in self._tasks[1:])

    def describe(self) -> str:
        return "all threads"


class _Worker(threading.Thread):
    """A real thread that runs one task after another; starting one costs more than a whole run."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.gate = threading.Lock()
        self.gate.acquire()
        self.job: Callable[[], None] | None = None
        self.task: _Task | None = None
        self.start()

    def run(self) -> None:
        while True:
            self.gate.acquire()
            job, self.job = self.job, None
            if job is None:
                return
            job()
            del job

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the task, as the thread that it stands for."""
        run, task = _active, self.task
        if run is not None and task is not None:
            run.wait("join", task, timed=timeout is not None)

    def is_alive(self) -> bool:
        return self.task is not None and not self.task.done


class Workers:
    """The real threads that several runs share, one after the other. A context manager that ends them."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []

    def take(self) -> _Worker:
        """A thread that does nothing yet."""
        return self._idle.pop() if self._idle else _Worker()

    def give_back(self, worker: _Worker) -> None:
        """For a thread that has nothing to do any more."""
        worker.task = worker.job = None
        self._idle.append(worker)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._idle:
            worker.gate.release()
            threading.Thread.join(worker)


class _Lock:
    """A `threading.Lock` whose waiting is controlled."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._held = False
        self.holder: _Task | None = None
        self._number = run.count(self)
        frame = sys._getframe(2)
        self._made = frame.f_code, frame.f_lineno

    def available(self) -> bool:
        return not self._held

    def describe(self) -> str:
        return f"{_assigned(*self._made)}#{self._number}"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        run = self._run
        if run is not _active:
            if blocking and self._held:
                raise RuntimeError(f"{self.describe()} is held for ever: the run in which it was made is over")
        elif blocking and timeout != 0:
            if not run.wait("acquire", self, timed=timeout > 0):
                return False
        else:
            run.point("try", self)
        if self._held:
            return False
        self._held = True
        self.holder = run.current
        return True

    def release(self) -> None:
        self._run.point("release", self)
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        self.holder = None
        self._run.point("released", self)

    def locked(self) -> bool:
        self._run.point("look at", self)
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Event:
    """A `threading.Event` whose waiting is controlled."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._set = False
        self._number = run.count(self)
        frame = sys._getframe(2)
        self._made = frame.f_code, frame.f_lineno

    def available(self) -> bool:
        return self._set

    def describe(self) -> str:
        return f"{_assigned(*self._made)}#{self._number}"

    def is_set(self) -> bool:
        self._run.point("look at", self)
        return self._set

    def set(self) -> None:
        self._run.point("set", self)
        self._set = True

    def clear(self) -> None:
        self._run.point("clear", self)
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._run.wait("wait for", self, timed=timeout is not None)
        return self._set


class Run:
    """One run of a program. Used by one thread, which becomes its first controlled one, within `control`.

    Arguments:
        choose: asked at every yield point at which there is a choice, while `branching`.
        workers: where its threads come from.
        recording: keep a `trace`; it costs more than the run itself.

    Attributes:
        branching: ask the chooser; otherwise a thread goes on until it must wait.
        timeouts: when waits give up.
        failure: what ended the run: an exception that a thread did not catch, a deadlock, too many steps.
        steps: yield points so far.
        timed_out: waits that have given up.
        trace: every step, if `recording`.
    """

    def __init__(self, choose: Chooser, workers: Workers, *, recording: bool = False) -> None:
        gate = threading.Lock()
        gate.acquire()
        self._main = _Task("main", lambda: None, gate)
        self._main.ident = threading.get_ident()
        self.tasks = [self._main]
        self.current = self._main
        self.branching = False
        self.timeouts: Timeouts = "last"
        self.failure: BaseException | None = None
        self.steps = 0
        self.timed_out = 0
        self.trace: list[Step] = []
        self._choose = choose
        self._workers = workers
        self._recording = recording
        self._watched: set[CodeType] = set()
        self._used: list[_Worker] = []
        self._counted = {_Lock: 0, _Event: 0}

    # For the program

    @contextmanager
    def control(self) -> Iterator[None]:
        """Replace the seam, and on leaving end all threads and put it back.

        Raises:
            RuntimeError: another run is under way in this process.
        """
        global _active
        if _active is not None:
            raise RuntimeError("a run within a run: the threads of a program cannot be explored while it explores")
        collecting = gc.isenabled()
        gc.disable()
        _active = self
        try:
            with _replaced_seam(self):
                try:
                    yield
                finally:
                    self._abandon()
        finally:
            _active = None
            if collecting:
                gc.enable()

    def watch(self, functions: Sequence[Callable[..., object]]) -> None:
        """Make each line of these functions a yield point, in threads started from now on.

        Raises:
            TypeError: one of them is not written in Python.
        """
        for function in functions:
            code = getattr(function, "__code__", None)
            if code is None:
                raise TypeError(f"{function!r} has no lines: only functions and methods written in Python have")
            self._watched.add(code)

    def start(
        self, name: str, function: Callable[[], object], interrupt: Callable[[], BaseException] | None = None
    ) -> _Worker:
        """Begin a thread; when it first runs is up to the chooser.

        Arguments:
            interrupt: makes what is raised at one of its waits, or at none.
        """
        worker = self._workers.take()
        task = _Task(name, function, worker.gate)
        task.interrupt = interrupt
        worker.name, worker.task, worker.job = name, task, lambda: self._run_task(task)
        self._used.append(worker)
        self.tasks.append(task)
        return worker

    def wait_for_all(self) -> None:
        """For the program: let the threads run until all have ended.

        Raises:
            DeadlockError: they never will. Whatever a thread did not catch.
        """
        self.wait("wait for", _Everybody(self.tasks))

    # For locks and events

    def count(self, resource: object) -> int:
        """A number for a new lock or event."""
        kind = type(resource)
        self._counted[kind] += 1
        return self._counted[kind]

    def point(self, action: str, resource: _Resource | None = None, *, voluntary: bool = False) -> None:
        """A yield point at which the thread could go on.

        In a thread that is being ended it raises only when that thread does not wait for anything for long: points lie
        in finalisers too, which must not raise.
        """
        if _active is self:
            if not self.current.abandoned:
                self._yield(action, resource, voluntary=voluntary)
            elif self.current.abandoned > _ABANDON_ATTEMPTS // 2:
                self._end(self.current)
            else:
                self.current.abandoned += 1

    def wait(self, action: str, resource: _Resource, *, timed: bool = False) -> bool:
        """A yield point at which the thread goes on when the resource is available; False when it has given up.

        Raises:
            The interrupt that the thread was started with.
        """
        if _active is not self:
            return resource.available()
        task = self.current
        if task.abandoned:
            self._end(task)
        task.waiting, task.timed, task.interruptible, task.waits_since = resource, timed, True, self.steps
        try:
            self._yield(action, resource)
        finally:
            task.waiting, task.timed, task.interruptible = None, False, False
        if task.resumed == _INTERRUPT:
            interrupt, task.interrupt = task.interrupt, None
            raise interrupt() if interrupt is not None else RuntimeError("an interrupt came twice")
        return task.resumed != _TIMEOUT

    # The scheduler

    def _yield(self, action: str, resource: _Resource | None, *, voluntary: bool = False) -> None:
        task = self.current
        if task.ident != threading.get_ident():
            raise RuntimeError("a thread that was not started through the seam uses a lock of this run")
        if self._recording and not (task is self._main and self.branching):
            described = resource.describe() if resource is not None else ""
            self.trace.append(Step(task.name, action, described, _place(_caller())))
        self.steps += 1
        if self.steps > _STEPS_MAX and self.failure is None:
            self.failure = StepsExceededError(f"no end after {_STEPS_MAX} steps\n{self._who_waits()}")
        target, how = (self._main, _STOP) if self.failure is not None else self._pick(task, voluntary)
        if target is task:
            task.resumed = how
        else:
            self._let_go_on(target, how)
            task.gate.acquire()
        if task.abandoned:
            if task.waiting is not None:
                self._end(task)
        elif self._recording and task.resumed in (_TIMEOUT, _INTERRUPT) and resource is not None:
            action = "gives up" if task.resumed == _TIMEOUT else "is interrupted at"
            self.trace.append(Step(task.name, action, resource.describe(), _place(_caller())))
        elif task.resumed == _STOP and self.failure is not None:
            raise self.failure

    def _let_go_on(self, target: _Task, how: str) -> None:
        target.resumed = how
        target.started = True
        self.current = target
        target.gate.release()

    def _pick(self, task: _Task, voluntary: bool) -> tuple[_Task, str]:
        """Who goes on, and how. With a choice, the chooser is asked."""
        free = [(other, _GO) for other in self.tasks if other is not task and other.ready()]
        costly: list[tuple[_Task, str]] = []
        if task.ready():
            if voluntary:
                free.append((task, _GO))
            else:
                free, costly = [(task, _GO)], free
        if not free and self.timeouts != "never":
            waiting = sorted((other for other in self.tasks if other.timed), key=lambda other: other.waits_since)
            free = [(other, _TIMEOUT) for other in waiting]  # the one that waits longest first, or two could take turns
        if not free:
            self.failure = DeadlockError(f"no thread can go on\n{self._who_waits()}")
            return self._main, _STOP
        if not self.branching:
            return self._picked(free[0])
        for other in self.tasks:
            if other.interruptible and other.interrupt is not None:
                costly.append((other, _INTERRUPT))
            if other.timed and self.timeouts == "any" and (other, _TIMEOUT) not in free and not other.ready():
                costly.append((other, _TIMEOUT))
        options = free + costly
        return self._picked(options[self._choose(len(free), len(options)) if len(options) > 1 else 0])

    def _picked(self, option: tuple[_Task, str]) -> tuple[_Task, str]:
        if option[1] == _TIMEOUT:
            self.timed_out += 1
        return option

    def _run_task(self, task: _Task) -> None:
        """What a worker does for a task, from its first turn to its last."""
        task.ident = threading.get_ident()
        try:
            if self._watched:
                sys.settrace(self._trace_calls)
            task.function()
        except _AbandonedError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the program did not expect it
            if self.failure is None:
                self.failure = error
        finally:
            sys.settrace(None)
        if task.done:
            return  # it has been given up; another one is running
        task.done = True
        target, how = (self._main, _STOP) if self.failure is not None else self._pick(task, voluntary=False)
        self._let_go_on(target, how)

    def _trace_calls(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        return self._trace_lines if frame.f_code in self._watched else None

    def _trace_lines(self, _frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "line":
            self.point("line")
        return self._trace_lines

    # The end

    def _abandon(self) -> None:
        """End every thread that has not ended, one after the other."""
        self.failure = self.failure or _AbandonedError()
        for worker, task in zip(self._used, self.tasks[1:], strict=True):
            if task.started and not task.done:
                task.abandoned = 1
                self._let_go_on(task, _STOP)
                self._main.gate.acquire()
            if task.abandoned <= _ABANDON_ATTEMPTS:
                task.done = True
                self._workers.give_back(worker)
        self.current = self._main

    def _end(self, task: _Task) -> None:
        """Raise in a thread that must end; one that will not is left standing for ever."""
        task.abandoned += 1
        if task.abandoned > _ABANDON_ATTEMPTS:
            task.done = True
            self._let_go_on(self._main, _STOP)
            task.gate.acquire()
        raise _AbandonedError

    def _who_waits(self) -> str:
        frames = sys._current_frames()
        lines = []
        for task in self.tasks:
            if task.done or (task is self._main and self.branching):
                continue
            waiting = task.waiting
            holder = waiting.holder if isinstance(waiting, _Lock) else None
            frame = frames.get(task.ident)
            where = _place(_outside(frame)) if frame is not None and task.started else "its first line"
            what = "could go on" if waiting is None else f"waits for {waiting.describe()}"
            held = f", which {holder.name} has acquired" if holder is not None else ""
            lines.append(f"  {task.name} {what}{held}   [{where}]")
        return "\n".join(lines)


_active: Run | None = None


def yield_point(action: str = "yield") -> None:
    """A place at which another thread may go on, in a program that is explored; elsewhere it does nothing."""
    if _active is not None:
        _active.point(action)


@contextmanager
def _replaced_seam(run: Run) -> Iterator[None]:
    """Let the engine get its locks, events and threads from a run."""

    def start_thread(name: str, target: Callable[[], None]) -> threading.Thread:
        worker = run.start(name, target)
        run.point("start", worker.task)
        return worker

    replacements: dict[str, Callable[..., object]] = {
        "new_lock": lambda: _Lock(run),
        "new_event": lambda: _Event(run),
        "start_thread": start_thread,
        "back_off": lambda _attempt: run.point("back off", voluntary=True),
        "pause": lambda _seconds: run.point("pause", voluntary=True),
    }
    before = {name: getattr(seam, name) for name in replacements}
    try:
        for name, value in replacements.items():
            setattr(seam, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(seam, name, value)


def _caller() -> FrameType:
    return _outside(sys._getframe(1))


def _outside(frame: FrameType) -> FrameType:
    """The innermost frame that does not belong to the explorer."""
    while frame.f_globals.get("__name__") in _OWN_MODULES and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _place(frame: FrameType) -> str:
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}: {text}"


def _assigned(code: CodeType, line: int) -> str:
    """What a new lock or event is called by the line that makes it."""
    target, equals, _ = linecache.getline(code.co_filename, line).partition("=")
    return target.partition(":")[0].strip() if equals else f"{Path(code.co_filename).name}:{line}"
