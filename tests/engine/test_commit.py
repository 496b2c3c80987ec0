"""The way of a commit: validate, write, sync, apply, in that order, alone and in a group, disturbed and not."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from pystate.engine import commit as commit_module
from pystate.engine import leadership as leadership_module
from pystate.engine import log_writer as log_writer_module
from pystate.engine.commit import CommitRequest, Committer
from pystate.engine.conflicts import Reads
from pystate.engine.family_state import FamilyState, Writes
from pystate.engine.leadership import Request
from pystate.engine.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from pystate.engine.log_format import FRAME_HEADER_SIZE, SegmentHeader, decode_operations, encode_segment_header
from pystate.engine.log_writer import LogPosition, LogWriter
from pystate.engine.state import Pin, State
from pystate.errors import ClosedError, ConflictError, DiskFullError, FamilyNotFoundError, StoreFailedError
from tests.engine.crowds import CrowdedLead, arrive_in_threads, pretend_to_wait, woken
from tests.engine.interrupts import Interrupt, at_each_place
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.small_stores import frames_of
from tests.engine.watched_files import WatchedFiles, nth

NAME = f"{1:020d}.log"
HEADER = SegmentHeader(log_id=bytes(16), generation=1, salt=b"salt", first=1)


class Parts:
    """A committer with its state and log, over files that can be watched and made to fail."""

    def __init__(self, *, memory: bool = False) -> None:
        self.memory = MemoryFiles()
        content = encode_segment_header(HEADER)
        self.memory.restore(DIRECTORY, {NAME: content})
        self.files = WatchedFiles(self.memory)
        self.family = FamilyState(1, "default")
        self.other = FamilyState(2, "other")
        self.state = State(sequence=0, families=[self.family, self.other], next_family_id=3, history_bytes=10**6)
        position = LogPosition(HEADER, len(content), 0, closed_name=False, other_bytes=0, other_segments=0)
        self.log = LogWriter(self.files, DIRECTORY, position)
        self.grown = 0
        self.committer = Committer(self.state, None if memory else self.log, DIRECTORY, self._grown)
        self.committer.log_total_max = 10**9

    def _grown(self) -> None:
        self.grown += 1

    def request(self, writes: Writes, *, sync: bool = True, reads: bytes | None = None) -> CommitRequest:
        """A commit to the family `default`, of a transaction if it has read a key."""
        if reads is None:
            return CommitRequest([(self.family, writes)], sync=sync)
        read = Reads()
        read.keys.add(reads)
        return CommitRequest([(self.family, writes)], sync=sync, reads=[(self.family, read)], pin=self.state.pin())

    def queue(self, *requests: Request) -> None:
        """Let requests wait, as if their threads were blocked, when the next commit has taken the lead."""
        CrowdedLead(self.committer.leadership, lambda: pretend_to_wait(self.committer.leadership, *requests))

    def serve(self) -> None:
        """Let those that still wait have their turn, as their threads would."""
        leadership = self.committer.leadership
        while leadership.queue:
            leadership._lead(leadership.queue[0], self.committer._lead)

    def logged(self) -> list[Any]:
        """The operations of every commit in the log."""
        content = self.memory.image(DIRECTORY)[NAME]
        frames = [frame for frame in frames_of(content) if not frame.closing]
        assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))
        return [decode_operations(content[frame.payload : frame.end]) for frame in frames]

    def calls(self) -> list[str]:
        return [operation for operation, _ in self.files.trace]


@pytest.fixture
def parts() -> Parts:
    return Parts()


def general(parts: Parts, key: bytes, value: bytes | None, *, sync: bool = True) -> int:
    return parts.committer.commit(parts.request({key: value}, sync=sync))


def single(parts: Parts, key: bytes, value: bytes | None, *, sync: bool = True) -> int:
    if value is None:
        parts.committer.write_blind(parts.family, sync, {key: None})
    else:
        parts.committer.put_one(parts.family, sync, key, value)
    return parts.state.sequence


def through_a_transaction(parts: Parts, key: bytes, value: bytes | None, *, sync: bool = True) -> int:
    return parts.committer.commit(parts.request({key: value}, sync=sync, reads=b"unrelated"))


Way = Callable[..., int]
every_way = pytest.mark.parametrize("commit", [general, single, through_a_transaction], ids=lambda way: way.__name__)


@every_way
def test_commit_is_visible_only_when_it_is_written_and_synced(parts: Parts, commit: Way) -> None:
    """Guarantees 2 and 4, R1: at the write and at the sync the old state still shows; after the call the new one."""
    commit(parts, b"k", b"old")
    seen: list[tuple[str, bytes | None, int]] = []

    def look(operation: str, _: str) -> None:
        seen.append((operation, parts.family.values.get(b"k"), parts.state.sequence))

    parts.files.before = parts.files.after = look
    assert commit(parts, b"k", b"new") == 2
    assert seen == [(operation, b"old", 1) for operation in ("write", "write", "sync", "sync")]
    assert (parts.family.values, parts.state.sequence) == ({b"k": b"new"}, 2)


@every_way
def test_commit_without_sync_is_written_and_visible(parts: Parts, commit: Way) -> None:
    """Guarantee 2: ``process`` writes before it shows, and leaves the sync to others."""
    commit(parts, b"k", b"v", sync=False)
    assert parts.calls() == ["open_append", "write"]
    assert parts.log.durable == 0
    assert parts.logged() == [[1, b"k", b"v"]]
    assert parts.family.values == {b"k": b"v"}
    parts.committer.sync()
    assert parts.log.durable == 1


@pytest.mark.parametrize("key", [b"", b"k", b"k" * KEY_BYTES_MAX])
@pytest.mark.parametrize("value", [b"", b"v" * 1000, None], ids=["empty", "long", "deletion"])
def test_both_ways_leave_the_same_bytes_and_the_same_state(key: bytes, value: bytes | None) -> None:
    """The flat way of one operation is the general one, written out."""
    images, states = [], []
    for commit in (general, single):
        parts = Parts()
        parts.family.values.update({b"k": b"before", b"other": b""})
        parts.family.begin_ordering(None)
        parts.family.finish_ordering([b"k", b"other"])
        for sync in (True, False, True):
            commit(parts, key, value, sync=sync)
        parts.family.check()
        images.append(parts.memory.image(DIRECTORY))
        states.append((parts.family.values, parts.family.changed, parts.state.sequence, parts.log.durable))
    assert images[0] == images[1]
    assert states[0] == states[1]


@every_way
def test_overwritten_value_is_saved_for_an_open_view(parts: Parts, commit: Way) -> None:
    """Guarantee 3: whichever way a commit takes."""
    commit(parts, b"k", b"old")
    pin = parts.state.pin()
    commit(parts, b"k", b"new")
    commit(parts, b"other", b"")
    assert parts.state.get(parts.family, b"k", pin) == b"old"
    assert parts.state.get(parts.family, b"other", pin) is None
    pin.release()
    assert parts.state.history.bytes == 0


def test_transaction_keeps_nothing_for_itself(parts: Parts) -> None:
    """With no view and no other transaction open, nothing is kept."""
    request = parts.request({b"k": b"v"}, reads=b"k")
    seen = []
    apply = parts.state.apply_locked

    def look(commit: Any, sequence: int) -> None:
        apply(commit, sequence)
        seen.append(parts.state.history.bytes)

    parts.state.apply_locked = look  # type: ignore[method-assign]
    parts.committer.commit(request)
    assert seen == [0]
    assert (parts.state.history.pins, parts.state.history.newest) == (0, None)


def test_transaction_whose_read_has_changed_writes_nothing(parts: Parts) -> None:
    """Guarantee 3: validated before a byte is written; the next one is not disturbed."""
    general(parts, b"k", b"1")
    request = parts.request({b"k": b"2"}, reads=b"k")
    general(parts, b"k", b"3")
    before = parts.memory.image(DIRECTORY)
    with pytest.raises(ConflictError) as caught:
        parts.committer.commit(request)
    assert (caught.value.key, caught.value.read_sequence, caught.value.commit_sequence) == (b"k", 1, 2)
    assert parts.memory.image(DIRECTORY) == before
    assert parts.family.values == {b"k": b"3"}
    assert general(parts, b"k", b"4") == 3


@pytest.mark.parametrize("commit", [general, single], ids=["general", "single"])
def test_blind_write_to_a_dropped_family_writes_nothing(parts: Parts, commit: Way) -> None:
    """Row 81: the family went while the commit was on its way."""
    parts.committer.commit(CommitRequest([(None, {b"default": None})], sync=True))
    before = parts.memory.image(DIRECTORY)
    with pytest.raises(FamilyNotFoundError):
        commit(parts, b"k", b"v")
    assert parts.memory.image(DIRECTORY) == before


def test_key_over_the_limit_writes_nothing(parts: Parts) -> None:
    """Row 78: in the flat way too, where the check is only made for what is long at all."""
    before = parts.memory.image(DIRECTORY)
    with pytest.raises(ValueError, match="limit"):
        single(parts, b"k" * (KEY_BYTES_MAX + 1), b"v")
    assert parts.memory.image(DIRECTORY) == before
    assert single(parts, b"k", b"v" * (KEY_BYTES_MAX + 1)) == 1
    assert VALUE_BYTES_MAX > KEY_BYTES_MAX + 1


def test_commit_over_the_limit_is_refused_when_it_is_asked_for(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 78: before it waits for its turn."""
    monkeypatch.setattr(commit_module, "COMMIT_BYTES_MAX", 100)
    parts.request({b"k": b"v" * 80})
    with pytest.raises(ValueError, match="limit is 100"):
        parts.request({b"k": b"v" * 100})


def test_group_is_written_with_one_write_and_one_sync(parts: Parts) -> None:
    """Design section 5: the leader validates and writes the whole queue, syncs once, applies, and wakes the others."""
    general(parts, b"before", b"")
    others = [parts.request({b"%d" % number: b""}, sync=number == 1) for number in range(3)]
    parts.queue(*others)
    parts.files.trace.clear()
    assert general(parts, b"own", b"", sync=False) == 2
    assert parts.calls() == ["write", "sync"]
    assert [request.sequence for request in others] == [3, 4, 5]
    assert all(request.done and request.error is None and not request.wakeup.locked() for request in others)  # type: ignore[union-attr]
    assert parts.logged()[1:] == [[1, b"own", b""], [1, b"0", b""], [1, b"1", b""], [1, b"2", b""]]
    assert parts.family.values.keys() == {b"before", b"own", b"0", b"1", b"2"}
    assert (parts.log.durable, parts.state.sequence) == (5, 5)
    assert parts.committer.joined == 3
    assert [frame.watermark for frame in frames_of(parts.memory.image(DIRECTORY)[NAME])] == [0, 1, 1, 1, 1]


def test_group_in_which_nobody_asks_for_a_sync_is_not_synced(parts: Parts) -> None:
    """Guarantee 2: ``process``, in a group as alone."""
    parts.queue(parts.request({b"a": b""}, sync=False))
    general(parts, b"own", b"", sync=False)
    assert "sync" not in parts.calls()
    assert parts.log.durable == 0


def test_conflict_within_a_group_fails_the_later_one_only(parts: Parts) -> None:
    """Guarantee 3: what earlier members of the group change counts as changed; blind writes do not conflict."""
    reader, blind, unrelated = (
        parts.request({b"r": b""}, reads=b"own"),
        parts.request({b"own": b"blind"}),
        parts.request({b"u": b""}, reads=b"u"),
    )
    late = parts.request({b"l": b""}, reads=b"u")
    parts.queue(reader, blind, unrelated, late)
    general(parts, b"own", b"")
    assert isinstance(reader.error, ConflictError)
    assert (reader.error.key, reader.error.commit_sequence) == (b"own", 1)
    assert isinstance(late.error, ConflictError)
    assert late.error.commit_sequence == 3
    assert (blind.sequence, unrelated.sequence) == (2, 3)
    assert len(parts.logged()) == 3
    assert parts.family.values == {b"own": b"blind", b"u": b""}
    assert parts.committer.joined == 2


def test_group_of_which_all_are_refused_writes_nothing(parts: Parts) -> None:
    """Guarantee 3: no frame, no sync."""
    own, other = parts.request({b"a": b""}, reads=b"k"), parts.request({b"b": b""}, reads=b"k")
    general(parts, b"k", b"changed")
    parts.queue(other)
    parts.files.trace.clear()
    with pytest.raises(ConflictError):
        parts.committer.commit(own)
    assert isinstance(other.error, ConflictError)
    assert other.done
    assert parts.calls() == []


def test_disk_full_fails_the_whole_group_and_leaves_the_store_usable(parts: Parts) -> None:
    """Row 37, guarantee 6: undone, each member told by an error of its own."""
    general(parts, b"before", b"")
    before = parts.memory.image(DIRECTORY)
    others = [parts.request({b"a": b""}), parts.request({b"b": b""}, reads=b"b")]
    parts.queue(*others)
    parts.files.largest = 7
    parts.files.before = nth("write", 3, lambda: failure(errno.ENOSPC))
    with pytest.raises(DiskFullError) as caught:
        general(parts, b"own", b"")
    errors = [caught.value, *(request.error for request in others)]
    assert [type(error) for error in errors] == [DiskFullError] * 3
    assert len({id(error) for error in errors}) == 3
    assert parts.memory.image(DIRECTORY) == before
    assert (parts.committer.failed, parts.state.sequence) == (None, 1)
    assert all(request.done for request in others)
    parts.files.before, parts.files.largest = None, 2**62
    assert general(parts, b"after", b"") == 2
    assert parts.family.values.keys() == {b"before", b"after"}
    assert parts.state.history.pins == 0


@every_way
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_sync_that_fails_fails_the_store_and_is_never_repeated(parts: Parts, commit: Way, number: int) -> None:
    """Rows 31 and 38, guarantee 6, R4: the outcome is unknown; later writes write nothing; reads go on."""
    commit(parts, b"k", b"old")
    parts.files.trace.clear()
    parts.files.before = nth("sync", 1, lambda: failure(number))
    with pytest.raises(StoreFailedError) as caught:
        commit(parts, b"k", b"new")
    assert caught.value.unknown
    assert (caught.value.errno, caught.value.path) == (number, DIRECTORY)
    assert isinstance(caught.value.__cause__, OSError)
    assert (parts.family.values, parts.state.sequence) == ({b"k": b"old"}, 1)
    parts.files.before = None
    image = parts.memory.image(DIRECTORY)
    for again in (general, single, through_a_transaction):
        with pytest.raises(StoreFailedError) as caught:
            again(parts, b"k", b"newer")
        assert not caught.value.unknown
        assert str(number) in caught.value.cause or "Errno" in caught.value.cause
    with pytest.raises(StoreFailedError):
        parts.committer.sync()
    parts.committer.close(ClosedError("store", "is closed"))
    assert parts.calls() == ["write", "sync"]
    assert parts.memory.image(DIRECTORY) == image
    assert parts.files.open_files == []


@every_way
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_write_that_fails_fails_the_store(parts: Parts, commit: Way, number: int) -> None:
    """Row 63, guarantee 6: also when a part of the frame was taken."""
    for largest in (2**62, 5):
        parts = Parts()
        commit(parts, b"k", b"old")
        parts.files.largest = largest
        parts.files.before = nth("write", 1 if largest > 5 else 2, lambda: failure(number))
        with pytest.raises(StoreFailedError) as caught:
            commit(parts, b"k", b"new")
        assert caught.value.unknown
        assert parts.family.values == {b"k": b"old"}
        assert parts.committer.cause is not None


def test_sync_on_request_that_fails_fails_the_store(parts: Parts) -> None:
    """Row 31: `sync` makes the same promise as a commit, and keeps it the same way."""
    general(parts, b"k", b"v", sync=False)
    parts.files.before = nth("sync", 1, lambda: failure(errno.EIO))
    with pytest.raises(StoreFailedError):
        parts.committer.sync()
    with pytest.raises(StoreFailedError) as caught:
        general(parts, b"k", b"w")
    assert not caught.value.unknown
    assert parts.family.values == {b"k": b"v"}


def test_sync_ahead_that_fails_fails_the_store(parts: Parts) -> None:
    """Row 33, R4: a sync that failed is never tried again, whoever asked for it."""
    general(parts, b"k", b"v", sync=False)
    parts.committer.sync_ahead()
    assert parts.log.durable == 0
    parts.files.before = nth("sync", 1, lambda: failure(errno.EIO))
    with pytest.raises(StoreFailedError):
        parts.committer.sync_ahead()
    for call in (parts.committer.sync_ahead, parts.committer.sync):
        with pytest.raises(StoreFailedError) as caught:
            call()
        assert not caught.value.unknown
    assert parts.calls().count("sync") == 2


class Raises(Sequence[tuple[FamilyState, Reads]]):
    """The reads of a transaction, at which whoever looks at them is interrupted once."""

    def __init__(self) -> None:
        self.raised = False

    def __iter__(self) -> Iterator[tuple[FamilyState, Reads]]:
        if not self.raised:
            self.raised = True
            raise KeyboardInterrupt
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: Any) -> Any:
        raise IndexError


def test_group_interrupted_before_it_is_written_acknowledges_nothing(parts: Parts) -> None:
    """Row 45: the others go back into the queue, and the next leader decides them; none is told of a success."""
    first, last = parts.request({b"first": b""}, reads=b"own"), parts.request({b"last": b""})
    interrupted = parts.request({b"interrupted": b""}, reads=b"x")
    interrupted.reads = Raises()
    parts.queue(first, interrupted, last)
    with pytest.raises(KeyboardInterrupt):
        general(parts, b"nothing", b"")
    assert parts.logged() == []
    waiting = [first, interrupted, last]
    assert not any(request.done for request in waiting)
    assert list(parts.committer.leadership.queue) == waiting
    assert woken(first)

    # Before they have their turn, another commit changes what one of them has read: it must still be told.
    parts.committer.leadership.queue.clear()
    general(parts, b"own", b"")
    parts.committer.leadership.queue.extend(waiting)
    parts.serve()
    assert isinstance(first.error, ConflictError)
    assert [request.done for request in waiting] == [True] * 3
    assert (interrupted.sequence, last.sequence) == (2, 3)
    assert parts.state.history.pins == 0


def test_transaction_put_back_by_an_interrupted_leader_still_conflicts(parts: Parts) -> None:
    """Row 45, guarantee 3: what it has read is kept until it is decided."""
    transaction = parts.request({b"t": b""}, reads=b"k")
    interrupted = parts.request({b"i": b""}, reads=b"x")
    interrupted.reads = Raises()
    parts.queue(transaction, interrupted)
    with pytest.raises(KeyboardInterrupt):
        general(parts, b"nothing", b"")
    parts.committer.leadership.queue.clear()
    general(parts, b"k", b"changed")
    with pytest.raises(ConflictError):
        parts.committer.commit(transaction)
    assert b"t" not in parts.family.values


@pytest.mark.parametrize("way", [general, single], ids=["general", "single"])
def test_leader_interrupted_at_any_place_tells_nobody_of_a_success_that_is_not_in_the_log(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 45: from the first byte written a group finishes or fails the store; before, nothing of it is decided."""
    monkeypatch.setattr(leadership_module, "_LOOK_UP_SECONDS", 0.002)

    def action(interrupt: Interrupt) -> None:
        parts = Parts()
        general(parts, b"before", b"")
        others = {b"a": parts.request({b"a": b""}, reads=b"x"), b"b": parts.request({b"b": b""})}
        outcomes: dict[bytes, object] = {}
        threads: list[threading.Thread] = []

        def commit(key: bytes) -> None:
            try:
                outcomes[key] = parts.committer.commit(others[key])
            except StoreFailedError as error:
                outcomes[key] = error

        def arrive() -> None:
            work = [partial(commit, key) for key in others]
            threads.extend(arrive_in_threads(parts.committer.leadership, work))

        parts.committer._lead_lock = CrowdedLead(parts.committer.leadership, arrive)  # type: ignore[assignment]
        interrupted = False
        try:
            with interrupt:
                way(parts, b"own", b"")
        except KeyboardInterrupt:
            interrupted = True
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"
        assert not parts.committer.leadership.lead.locked()
        assert not parts.committer.leadership.queue
        for request in others.values():
            if request.pin is not None:
                request.pin.release()  # what a transaction does at its end, whatever has become of it
        assert (parts.state.history.pins, parts.state.history.bytes) == (0, 0)
        succeeded = {b"before", *(key for key, outcome in outcomes.items() if isinstance(outcome, int))}
        if not interrupted:
            succeeded.add(b"own")
        assert succeeded <= parts.family.values.keys()
        if parts.committer.failed is None:
            logged = [operations[1] for operations in parts.logged()]
            assert sorted(parts.family.values) == sorted(logged)
            assert parts.state.sequence == len(logged) == parts.log.sequence
            assert len(outcomes) == len(threads)
            general(parts, b"after", b"")

    assert at_each_place(action, commit_module, leadership_module, log_writer_module) > 15


@every_way
def test_write_that_is_interrupted_when_it_is_whole_is_finished(parts: Parts, commit: Way) -> None:
    """Row 45: the frame stands in the file, so the commit happens; then the interrupt is raised."""
    parts.files.after = nth("write", 1, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        commit(parts, b"k", b"v")
    assert parts.logged() == [[1, b"k", b"v"]]
    assert (parts.family.values, parts.log.durable) == ({b"k": b"v"}, 1)
    parts.files.after = None
    assert commit(parts, b"l", b"w") == 2


@every_way
def test_write_that_is_interrupted_half_way_fails_the_store(parts: Parts, commit: Way) -> None:
    """Row 45: what stands in the file is no frame, and nobody cuts it off now."""
    parts.files.largest = 10
    parts.files.after = nth("write", 2, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        commit(parts, b"k", b"v")
    assert parts.family.values == {}
    with pytest.raises(StoreFailedError):
        commit(parts, b"l", b"w")


@every_way
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_sync_that_is_interrupted_is_finished(parts: Parts, commit: Way, after: bool) -> None:
    """Row 45: no error of the disk has been consumed, so it may be asked again."""
    hook = nth("sync", 1, KeyboardInterrupt)
    parts.files.before, parts.files.after = (None, hook) if after else (hook, None)
    with pytest.raises(KeyboardInterrupt):
        commit(parts, b"k", b"v")
    assert (parts.family.values, parts.log.durable) == ({b"k": b"v"}, 1)
    parts.files.before = parts.files.after = None
    assert commit(parts, b"l", b"w") == 2


@every_way
def test_applying_that_is_interrupted_is_finished(parts: Parts, commit: Way) -> None:
    """Row 45: what is in the log must not stay half visible."""
    apply_locked = parts.state.apply_locked
    pin = parts.state.pin()  # so that the flat way, too, goes through the general apply
    left = [KeyboardInterrupt, MemoryError, KeyboardInterrupt]

    def disturbed(commit: Any, sequence: int) -> None:
        apply_locked(commit, sequence)
        if left:
            raise left.pop()

    parts.state.apply_locked = disturbed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        commit(parts, b"k", b"v")
    assert (parts.family.values, parts.state.sequence) == ({b"k": b"v"}, 1)
    assert parts.state.get(parts.family, b"k", pin) is None
    assert parts.committer.failed is None
    assert commit(parts, b"l", b"w") == 2


@every_way
def test_applying_that_never_succeeds_fails_the_store(parts: Parts, commit: Way) -> None:
    """Guarantee 6: it is in the log and cannot be shown, so nothing more may be built on it."""
    pin = parts.state.pin()

    def broken(commit: Any, sequence: int) -> None:
        raise MemoryError

    parts.state.apply_locked = broken  # type: ignore[method-assign]
    with pytest.raises(StoreFailedError) as caught:
        commit(parts, b"k", b"v")
    assert caught.value.unknown
    with pytest.raises(StoreFailedError):
        commit(parts, b"l", b"w")
    pin.release()


@every_way
def test_closed_committer_refuses(parts: Parts, commit: Way) -> None:
    """Row 75: whoever's turn comes after the closing writes nothing."""
    commit(parts, b"k", b"v")
    parts.committer.close(ClosedError("store", "is closed"))
    image = parts.memory.image(DIRECTORY)
    parts.files.trace.clear()
    for again in (general, single, through_a_transaction):
        with pytest.raises(ClosedError, match="this store is closed"):
            again(parts, b"l", b"w")
    with pytest.raises(ClosedError):
        parts.committer.sync()
    parts.committer.close(ClosedError("store", "is closed"))  # twice is once
    assert parts.memory.image(DIRECTORY) == image
    assert parts.calls() == []
    assert list(image) == [f"{1:020d}.closed"]


@every_way
def test_growth_of_the_log_is_told_to_the_leader(parts: Parts, commit: Way) -> None:
    """Guarantee 8: after the commit that took the log over its limit, and not before."""
    parts.committer.log_total_max = 48 + 50
    commit(parts, b"k", b"v")
    assert parts.grown == 0
    commit(parts, b"k", b"v")
    assert parts.grown == 1


@every_way
def test_store_in_memory_commits_without_files(commit: Way) -> None:
    """`pystate.memory`: the same way, without the disk."""
    parts = Parts(memory=True)
    assert commit(parts, b"k", b"v") == 1
    assert commit(parts, b"k", None) == 2
    assert (parts.family.values, parts.state.sequence) == ({}, 2)
    with pytest.raises(ValueError, match="limit"):
        single(parts, b"k" * (KEY_BYTES_MAX + 1), b"")
    parts.committer.sync()
    parts.committer.close(ClosedError("store", "is closed"))
    with pytest.raises(ClosedError):
        commit(parts, b"k", b"v")
    assert parts.calls() == []


def test_exclusive_action_that_raises_gives_the_lead_back(parts: Parts) -> None:
    """A failed creation of a family does not stop the commits."""

    def action() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        parts.committer.exclusively(action)
    assert general(parts, b"k", b"v") == 1


def test_family_created_and_dropped_is_a_commit_like_any_other(parts: Parts) -> None:
    """Row 80: the catalogue is family 0, and its operations stand in the same log."""
    parts.committer.commit(CommitRequest([(None, parts.state.creation(["new"]))], sync=True))
    new = parts.state.families["new"]
    assert new.id == 3
    parts.committer.commit(CommitRequest([(new, {b"k": b"v"}), (None, {b"other": None})], sync=True))
    assert parts.logged() == [[0, b"new", b"\x03\0\0\0"], [3, {b"k": b"v"}, 0, {b"other": None}]]
    assert sorted(parts.state.families) == ["default", "new"]
    assert parts.other.dropped


def test_pin_of_a_refused_transaction_can_be_released(parts: Parts) -> None:
    """A conflict leaves the pin to its transaction, which lets go of it."""
    request = parts.request({b"k": b""}, reads=b"k")
    general(parts, b"k", b"changed")
    with pytest.raises(ConflictError):
        parts.committer.commit(request)
    assert isinstance(request.pin, Pin)
    request.pin.release()
    assert (parts.state.history.pins, parts.state.history.bytes) == (0, 0)


# ---- at once, for event loops ---------------------------------------------------------------------------------------


def test_commit_at_once_is_one_like_any_other(parts: Parts) -> None:
    """Written, then visible; a conflict is its error, and nothing is written for that."""
    general(parts, b"k", b"1")
    request = parts.request({b"a": b"1"}, sync=False, reads=b"k")
    parts.files.trace.clear()
    assert parts.committer.commit_at_once(request)
    assert (request.error, request.sequence, parts.state.sequence) == (None, 2, 2)
    assert parts.calls() == ["write"]
    assert parts.logged()[1] == [1, b"a", b"1"]
    conflicting = parts.request({b"b": b"1"}, sync=False, reads=b"k")
    general(parts, b"k", b"2")
    assert parts.committer.commit_at_once(conflicting)
    assert isinstance(conflicting.error, ConflictError)
    assert parts.state.history.pins == 0


def test_commit_at_once_never_syncs_opens_or_makes_a_snapshot_due(parts: Parts) -> None:
    """All that might take long is declined, and then nothing has been done."""
    large = parts.request({b"k": bytes(commit_module._AT_ONCE_BYTES_MAX)}, sync=False)
    small = parts.request({b"k": b"v"}, sync=False)
    assert not parts.committer.commit_at_once(small)  # the segment is not open yet
    general(parts, b"first", b"", sync=False)
    assert not parts.committer.commit_at_once(parts.request({b"k": b"v"}, sync=True))
    assert not parts.committer.commit_at_once(large)
    parts.committer.log_total_max = parts.log.total_bytes + FRAME_HEADER_SIZE + len(small.payload) - 1
    assert not parts.committer.commit_at_once(small)
    assert not any(request.done for request in (large, small))
    assert parts.calls() == ["open_append", "write"]
    parts.committer.log_total_max += 1
    assert parts.committer.commit_at_once(small)
    assert parts.log.total_bytes == parts.committer.log_total_max
    assert parts.grown == 0


def test_commit_at_once_in_memory_needs_no_sync_whatever_it_asks_for() -> None:
    """There is nothing to wait for."""
    parts = Parts(memory=True)
    assert parts.committer.commit_at_once(parts.request({b"k": b"v"}, sync=True))
    assert parts.family.values == {b"k": b"v"}


def test_commit_at_once_to_a_closed_store_is_refused(parts: Parts) -> None:
    """Row 75: the error is that of the request."""
    general(parts, b"k", b"v")
    request = parts.request({b"l": b""}, sync=False)
    parts.committer.refuse(ClosedError("store", "is closed"))
    assert parts.committer.commit_at_once(request)
    assert isinstance(request.error, ClosedError)


def test_commit_at_once_interrupted_at_any_place_is_whole_or_not_there() -> None:
    """Row 45: the lead is free afterwards, and memory and log agree."""

    def action(interrupt: Interrupt) -> None:
        parts = Parts()
        general(parts, b"before", b"")
        request = parts.request({b"own": b""}, sync=False, reads=b"x")
        try:
            with interrupt:
                assert parts.committer.commit_at_once(request)
        except KeyboardInterrupt:
            pass
        assert not parts.committer.leadership.lead.locked()
        if parts.committer.failed is None:
            logged = [operations[1] for operations in parts.logged()]
            assert sorted(parts.family.values) == sorted(logged)
            assert not request.done or b"own" in logged
            general(parts, b"after", b"")
        if request.pin is not None:
            request.pin.release()
        assert (parts.state.history.pins, parts.state.history.bytes) == (0, 0)

    assert at_each_place(action, commit_module, leadership_module, log_writer_module) > 15
