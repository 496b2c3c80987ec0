"""Recovery: what a worker that died has left is marked as unknown, and handlers go on with whatever they can.

A pass has two parts. First, every attempt and every lookup whose lease has lapsed becomes *unknown*, whoever had begun
it: nothing runs for that, so it needs no handler. Then every effect that is due and that nobody holds is gone on with
by its handler, from its stored input: planned ones are run, unknown ones looked up or repeated or left to a person,
half undone ones undone. What awaits a person is left alone.

Any number of workers may run passes at the same time; leases keep them apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from pystate.effects.checks import as_duration
from pystate.effects.ids import EffectId
from pystate.effects.ledger import RecordList
from pystate.effects.queries import DOUBTFUL, ListQuery
from pystate.effects.record import EffectRecord
from pystate.effects.runtime.call import Call
from pystate.effects.runtime.compensation import undo
from pystate.effects.runtime.handlers import Handlers
from pystate.effects.runtime.parts import Parts, logger
from pystate.effects.runtime.retention import Pruning
from pystate.effects.runtime.run import Run
from pystate.effects.runtime.tasks import in_own_task
from pystate.effects.runtime.writing import Batch, commit
from pystate.effects.state import EffectStatus, Transition
from pystate.errors import EffectNotFoundError, LeaseHeldError

__all__ = ["RESUMED_AT_ONCE", "Recovering", "RecoveryReport", "recover"]

_PAGE = 100

RESUMED_AT_ONCE = 16
"""How many effects one pass goes on with at the same time."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a recovery pass has done; each in the order of ids.

    Attributes:
        marked_unknown: attempts and lookups that nobody holds any more; their outcome is now unknown.
        skipped: looked like these, but somebody else was quicker.
        resumed: went on by their handler, each with the status that it has reached.
        resume_errors: could not go on, each with why.
        unhandled: have no handler here; the next call with their key goes on with them.
    """

    marked_unknown: tuple[EffectId, ...] = ()
    skipped: tuple[EffectId, ...] = ()
    resumed: tuple[tuple[EffectId, EffectStatus], ...] = ()
    resume_errors: tuple[tuple[EffectId, str], ...] = ()
    unhandled: tuple[EffectId, ...] = ()


async def recover(parts: Parts, handlers: Handlers) -> RecoveryReport:
    """`Runtime.recover`, which says what it does."""
    actor = f"recovery:{parts.worker}"
    now = parts.clock.now()
    marked: list[EffectId] = []
    skipped: list[EffectId] = []
    for page in _pages(parts, ListQuery.expired_leases(now, limit=_PAGE)):
        ids = [record.id for record in page]
        here = await commit(parts, lambda batch, ids=ids: _mark(batch, ids, actor))  # type: ignore[misc]
        for id in ids:  # noqa: A001
            (marked if id in here else skipped).append(id)
    resuming = _Resuming(parts, handlers, actor)
    for page in _pages(parts, ListQuery.due(now, limit=_PAGE)):
        await asyncio.gather(*(resuming.resume(record) for record in page))
    resuming.results.sort()
    return RecoveryReport(
        marked_unknown=tuple(marked),
        skipped=tuple(skipped),
        resumed=tuple((which, EffectStatus(text)) for which, what, text in resuming.results if what == "resumed"),
        resume_errors=tuple((which, text) for which, what, text in resuming.results if what == "error"),
        unhandled=tuple(which for which, what, _ in resuming.results if what == "unhandled"),
    )


def _pages(parts: Parts, query: ListQuery) -> Iterator[RecordList]:
    """The records of a query, page by page; what has changed meanwhile is not met again.

    A row that cannot be read is logged and left alone: it must not keep the others from being recovered.
    """
    after: EffectId | None = None
    while not parts.closing:
        found = parts.store.list_results(
            ListQuery(
                status_in=query.status_in,
                lease_expired_at=query.lease_expired_at,
                due_at=query.due_at,
                after=after,
                limit=query.limit,
            )
        )
        page = []
        for record, error in found:
            if record is not None:
                page.append(record)
            else:
                logger.error("recovery leaves alone what it cannot read: %s", error)
        if page:
            yield page
            after = page[-1].id
        if len(page) < query.limit:
            return


def _mark(batch: Batch, ids: list[EffectId], actor: str) -> set[EffectId]:
    """Mark those as unknown that are still in the middle of something and that nobody holds; one commit for a page."""
    marked = set()
    for id in ids:  # noqa: A001
        try:
            record = batch.get(id)
            if record.status not in DOUBTFUL:
                continue
            lease = batch.acquire(record)
        except (EffectNotFoundError, LeaseHeldError):
            continue
        batch.transition(record, lease, Transition.LEASE_EXPIRED, actor=actor)
        batch.release(lease)
        marked.add(id)
    return marked


class _Resuming:
    """Going on with what handlers can go on with.

    Attributes:
        results: for each: its id, what came of it, and a text about that.
    """

    def __init__(self, parts: Parts, handlers: Handlers, actor: str) -> None:
        self.results: list[tuple[EffectId, str, str]] = []
        self._parts = parts
        self._handlers = handlers
        self._actor = actor
        self._room = asyncio.Semaphore(RESUMED_AT_ONCE)

    async def resume(self, record: EffectRecord) -> None:
        """Go on with one effect. An error is reported, and the pass goes on."""
        async with self._room:
            if self._parts.closing:
                return
            try:
                what, text = await self._resume(record)
            except Exception as error:  # noqa: BLE001 - of a store, or of code of the program: the others are not to blame
                logger.warning("effect %s: could not be gone on with: %s", record.id, error)
                what, text = "error", str(error)
            self.results.append((record.id, what, text))

    async def _resume(self, record: EffectRecord) -> tuple[str, str]:
        parts, handler = self._parts, self._handlers.find(record.key.name)
        if handler is None:
            return "unhandled", ""
        if record.status is EffectStatus.COMPENSATING:
            await undo(parts, handler, record, None, self._actor)
        else:
            call = Call.resumed(parts, handler, record)
            await in_own_task(parts, Run(parts, call, record.id).execute())
        reached = parts.store.get(record.id)
        return "resumed", str(record.status if reached is None else reached.status)


class _Pause:
    """Sleeps between passes; the runtime interrupts it when it is closed, as it does with the delays of effects."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._interrupted = asyncio.Event()

    def interrupt(self) -> None:
        """End the sleep, and every later one. From any thread."""
        self._loop.call_soon_threadsafe(self._interrupted.set)

    async def sleep(self, duration: timedelta) -> None:
        """Let so much time pass, unless it is interrupted."""
        tasks = [
            asyncio.create_task(self._parts.clock.sleep(duration)),
            asyncio.create_task(self._interrupted.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


class Recovering(Pruning):
    """The side of a runtime that goes on with what others have left."""

    async def recover(self) -> RecoveryReport:
        """Mark what was left in the middle as unknown, and let the handlers go on with everything that is due.

        An effect that takes long holds up the end of the pass, so handlers should have an `attempt_timeout`. An effect
        that was planned and needs an approval asks the approver of this runtime; one that awaits it already is left
        alone.

        Returns:
            What was done.

        Raises:
            ClosedError: the runtime is closed. And what the store raises; what was done before that stays.
        """
        self._check_open()
        return await recover(self._parts, self._handlers)

    def recover_sync(self) -> RecoveryReport:
        """`recover` for plain code. Raises the same."""
        return self._plain(self.recover())

    async def run_recovery(self, interval: timedelta) -> None:
        """Recover now and then again after each interval, and prune after each pass, until the runtime is closed.

        A pass that fails is logged, and the next one tries again. Cancelling the task ends it too; effects that are at
        work then go on by themselves.

        Arguments:
            interval: from the end of one pass to the beginning of the next.

        Raises:
            ClosedError: the runtime is closed. TypeError, ValueError: no duration, or a negative one.
        """
        self._check_open()
        as_duration(interval, "interval")
        parts = self._parts
        pause = _Pause(parts)
        parts.holds.add(pause)
        passes = asyncio.create_task(self._passes(interval, pause), name="pystate-effect-recovery")
        parts.tasks.add(passes)
        passes.add_done_callback(parts.tasks.discard)
        try:
            await passes
        finally:
            parts.holds.discard(pause)

    def run_recovery_sync(self, interval: timedelta) -> None:
        """`run_recovery` for plain code: for a thread of its own, which ends when the runtime is closed."""
        self._plain(self.run_recovery(interval))

    async def _passes(self, interval: timedelta, pause: _Pause) -> None:
        while not self._parts.closing:
            try:
                await recover(self._parts, self._handlers)
                await self.prune()
            except Exception:  # noqa: BLE001 - whatever a store raises may be over at the next pass
                logger.exception("a recovery pass failed; the next one follows in %s", interval)
            await pause.sleep(interval)
