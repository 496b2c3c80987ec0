"""The oracle: whether a store kept its promises through a crash.

`check_recovered` opens what a crash has left and compares it with a `History`. It raises `BrokenPromiseError`, which
says what is missing or should not be there, unless all of this holds:

==  ===================================================================================================================
P   what the store holds is a prefix of the commits, in their order: nothing half, nothing aborted, nothing invented
A   everything acknowledged is there, as far as its durability reaches for the level of the crash
S   its sequence is not below that of any acknowledged commit that must be there
B   descriptors, locks and temporary files balance once it is closed again
R   if it refuses to open, not one byte but the lock file has changed (and only damage is a reason to refuse)
==  ===================================================================================================================

and, with ``thorough=True``,

==  ===================================================================================================================
V   `pystate.verify` and reading alone change nothing and show the same; nothing is found wrong, before and after
I   recovering twice gives what recovering once gives: after a clean close, after the death of the process right after
    opening, and after power loss then
C   it takes a snapshot and a new commit, and both are there when it is opened again
==  ===================================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pystate
from pystate import Store
from pystate.engine.names import LOCK_NAME
from pystate.errors import CorruptionError, NotAStoreError, PystateError, StoreNotFoundError, UnsupportedFormatError
from pystate.testing.crash import CrashState, crash_here
from pystate.testing.disk import SimulatedDisk
from pystate.testing.history import History, State, read_state
from pystate.testing.outcomes import Level

__all__ = ["PATH", "BrokenPromiseError", "check_live", "check_recovered", "compare", "open_quietly"]

PATH = "/store"
"""Where the store is, unless said otherwise."""

Opener: TypeAlias = Callable[[SimulatedDisk, str], Store]

_DIFFERENCES_SHOWN = 8
_NEW_KEY = b"\xff written by the oracle"
_REFUSALS = (CorruptionError, UnsupportedFormatError, NotAStoreError)


class BrokenPromiseError(AssertionError):
    """A store did not keep a promise; the text says which, and what is wrong."""


def open_quietly(disk: SimulatedDisk, path: str = PATH) -> Store:
    """Open a store for writing so that it stays in one thread: no snapshot is ever taken by itself."""
    return pystate.open(path, files=disk, snapshot_log_bytes=1 << 40)


def check_live(store: Store, history: History) -> None:
    """Compare an open store with a history in which no outcome is unknown.

    Raises:
        BrokenPromiseError: they differ. ValueError: an outcome is unknown.
    """
    compare(read_state(store), [history.live()], history)


def check_recovered(
    target: CrashState | SimulatedDisk,
    history: History,
    *,
    path: str = PATH,
    level: Level = Level.SECTORS,
    thorough: bool = False,
    opener: Opener = open_quietly,
) -> State | None:
    """Open what a crash has left, and check every promise; see the module for which.

    Arguments:
        target: a state of `crash_states`; or a disk, on which everything in `history` has happened. A disk is changed.
        history: what the program was told, with positions on the disk of the workload.
        path: of the store.
        level: of the crash, if `target` is a disk. At `Level.DAMAGE` refusing is allowed, and so is every prefix.
        thorough: also check V, I and C; takes about ten times as long.
        opener: opens the store for writing, in one thread: no snapshot may be taken by itself.

    Returns:
        What the store held; None if it refused, and might.

    Raises:
        BrokenPromiseError: a promise is broken. Whatever else opening, reading or closing raises.
    """
    if isinstance(target, CrashState):
        disk, operation, levels = target.open_disk(), target.first.operation, {one.level for one in _chain(target)}
    else:
        disk, operation, levels = target, _end(history), {level}
    damaged = Level.DAMAGE in levels
    power_loss = levels != {Level.KILL}
    check = _Check(disk, history, path, opener, operation=operation, power_loss=power_loss, damaged=damaged)
    return check.run(thorough=thorough)


def _chain(state: CrashState | None) -> Iterator[CrashState]:
    while state is not None:
        yield state
        state = state.outer


def _end(history: History) -> int:
    """A number of operations after everything that is known."""
    known = [commit.ended_at or commit.started_at for commit in history.commits]
    return max([0, *known, *(position for position, _ in history.synced)])


class _Check:
    """One check of one disk."""

    def __init__(
        self,
        disk: SimulatedDisk,
        history: History,
        path: str,
        opener: Opener,
        *,
        operation: int,
        power_loss: bool,
        damaged: bool,
    ) -> None:
        self._disk = disk
        self._history = history
        self._path = path
        self._opener = opener
        self._operation = operation
        self._power_loss = power_loss
        self._damaged = damaged

    def run(self, *, thorough: bool) -> State | None:
        disk, before = self._disk, self._disk.files()
        seen = self._look(disk) if thorough and not self._damaged else None
        try:
            store = self._opener(disk, self._path)
        except _REFUSALS as error:
            self._refused(before, error)
            return None
        opened = disk.clone() if thorough else disk
        try:
            try:
                found = read_state(store)
            except CorruptionError as error:
                if not self._damaged:
                    raise BrokenPromiseError(f"V: what was opened cannot be read: {error}") from error
                return None
            sequence = store.sequence
        finally:
            store.close()
        self._compare(found, sequence)
        _check_balance(disk)
        if thorough:
            if seen is not None and seen != found:
                raise BrokenPromiseError("V: opened for reading alone it shows another state than opened for writing")
            self._recover_again(opened, found, sequence)
            self._go_on(found)
        return found

    def _look(self, disk: SimulatedDisk) -> State | None:
        """Verify, and read without writing; None where there is no store yet."""
        changes, files = len(disk.recorded()), disk.files()
        try:
            _check_verified(disk, self._path)
            with pystate.open(self._path, files=disk, read_only=True) as store:
                state = read_state(store)
        except StoreNotFoundError:
            state = None
        except CorruptionError as error:
            raise BrokenPromiseError(f"A: it cannot be read: {error}") from error
        # A reader may sync what it has read, so that nothing it shows is lost later; it changes nothing else.
        if any(event.method != "sync" for event in disk.recorded()[changes:]) or disk.files() != files:
            raise BrokenPromiseError("V: reading has changed something on the disk")
        return state

    def _refused(self, before: dict[str, bytes], error: Exception) -> None:
        if not self._damaged:
            raise BrokenPromiseError(f"A: it refuses to open: {error}") from error
        lock = self._disk.join(self._path, LOCK_NAME)
        after = self._disk.files()
        changed = sorted(path for path in {*before, *after} - {lock} if before.get(path) != after.get(path))
        if changed:
            raise BrokenPromiseError(f"R: it refused to open ({error}), but changed {', '.join(changed)}")
        # Not for unfinished files: they must not be removed by an opening that refuses.
        _check_balance(self._disk, temporary=False)

    def _compare(self, found: State, sequence: int) -> None:
        allowed = self._history.allowed_at(self._operation, power_loss=self._power_loss, lossless=not self._damaged)
        if found not in allowed:
            compare(found, allowed, self._history.at(self._operation))
        if not self._damaged:
            known = self._history.at(self._operation)
            stop = known.required(power_loss=self._power_loss)
            start = max((started for _, started in known.lost), default=0)  # sequences begin again after a loss
            least = max((commit.sequence or 0 for commit in known.commits[start:stop]), default=0)
            if sequence < least:
                raise BrokenPromiseError(f"S: the sequence is {sequence}, but {least} had been acknowledged")

    def _recover_again(self, opened: SimulatedDisk, found: State, sequence: int) -> None:
        powerless = next(iter(crash_here(opened, level=Level.NOTHING_UNSYNCED))).open_disk()
        for when, disk in (
            ("a clean close", self._disk.clone()),
            ("the death of the process right after opening", opened),
            ("power loss right after opening", powerless),
        ):
            state, then = self._again(disk, f"I: after {when}")
            if state != found or then != sequence:
                raise BrokenPromiseError(
                    f"I: after {when} the next opening shows another state, at sequence {then} instead of {sequence}"
                )

    def _again(self, disk: SimulatedDisk, when: str) -> tuple[State, int]:
        """Verify, open, read and close; return what it held, and its sequence."""
        try:
            if not self._damaged:  # then a damaged file that is not needed may be left
                _check_verified(disk, self._path)
            with self._opener(disk, self._path) as store:
                found = read_state(store), store.sequence
        except PystateError as error:
            raise BrokenPromiseError(f"{when}: {type(error).__name__}: {error}") from error
        _check_balance(disk)
        return found

    def _go_on(self, found: State) -> None:
        disk = self._disk
        with self._opener(disk, self._path) as store:
            store.snapshot()
            if read_state(store) != found:
                raise BrokenPromiseError("C: the store shows another state after a snapshot")
            store.family("default").put(_NEW_KEY, b"")
            powerless = next(iter(crash_here(disk, level=Level.NOTHING_UNSYNCED))).open_disk()
        expected = {**found, "default": {**found["default"], _NEW_KEY: b""}}
        for when, after in (("a clean close", disk), ("power loss", powerless)):
            if self._again(after, f"C: after a snapshot, a commit and {when}")[0] != expected:
                raise BrokenPromiseError(f"C: after a snapshot, a commit and {when} it shows another state")


def compare(found: State, allowed: Sequence[State], history: History) -> None:
    """Compare what a store holds with every state it may have.

    Raises:
        BrokenPromiseError: it is none of them; the text shows how it differs from the nearest.
    """
    if found in allowed:
        return
    nearest = min((list(_differences(found, state, history)) for state in allowed), key=len)
    shown = nearest[:_DIFFERENCES_SHOWN]
    if len(nearest) > len(shown):
        shown.append(f"... and {len(nearest) - len(shown)} more")
    states = "the only allowed state" if len(allowed) == 1 else f"the nearest of {len(allowed)} allowed states"
    raise BrokenPromiseError("\n".join([f"P or A: the store differs from {states}:", *shown]))


def _differences(found: State, expected: State, history: History) -> Iterator[str]:
    for name in sorted({*found, *expected}):
        if name not in found or name not in expected:
            yield f"  family {name!r}: {'should not be there' if name in found else 'is missing'}"
        have, want = found.get(name, {}), expected.get(name, {})
        for key in sorted({*have, *want}):
            if have.get(key) != want.get(key):
                yield (
                    f"  {name}[{key!r}]: expected {_value(history, name, key, want.get(key))}, "
                    f"found {_value(history, name, key, have.get(key))}"
                )


def _value(history: History, family: str, key: bytes, value: bytes | None) -> str:
    text = "nothing" if value is None else repr(value)
    writers = ", ".join(str(commit) for commit in history.writers(family, key, value))
    return f"{text} ({writers})" if writers else text


def _check_verified(disk: SimulatedDisk, path: str) -> None:
    report = pystate.verify(path, files=disk)
    if not report.ok:
        problems = "; ".join(f"{problem.path}: {problem.text}" for problem in report.problems)
        raise BrokenPromiseError(f"V: verify finds what opening did not: {problems}")


def _check_balance(disk: SimulatedDisk, *, temporary: bool = True) -> None:
    left = {"descriptors": disk.open_descriptors + disk.forgotten, "locks": disk.held_locks}
    if temporary:
        left["temporary files"] = disk.temporary_files()
    for what, paths in left.items():
        if paths:
            raise BrokenPromiseError(f"B: {what} left behind: {', '.join(paths)}")
