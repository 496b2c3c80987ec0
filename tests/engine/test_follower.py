"""Reading beside a writer: catching up, and every moment at which the files change under the reading."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable

import pytest

import pystate
from pystate import CorruptionError, Store
from pystate.engine import follower
from pystate.engine.files import File
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.small_stores import SMALL, State, contents, frames_of
from tests.engine.watched_files import WatchedFiles, nth


class Pair:
    """A writer and a reader of one store."""

    def __init__(self, *, durability: str = "sync") -> None:
        self.memory = MemoryFiles()
        self.writer = pystate.open(DIRECTORY, files=self.memory, families=["a"], durability=durability)  # type: ignore[arg-type]
        self.writer.family("a")[b"0"] = b"0"
        self.files = WatchedFiles(self.memory)
        self.reader = pystate.open(DIRECTORY, files=self.files, read_only=True)

    def close(self) -> None:
        self.writer.close()
        self.reader.close()

    def same(self) -> None:
        """After a refresh the reader shows what the writer does."""
        assert self.reader.refresh() == self.writer.sequence
        assert contents(self.reader) == contents(self.writer)
        assert self.reader.families == self.writer.families


def put(store: Store) -> None:
    store.family("a")[b"%d" % store.sequence] = b"v" * 10


def several(store: Store) -> None:
    with store.begin() as txn:
        txn.put("a", b"x%d" % store.sequence, b"")
        txn.put("default", b"0", b"%d" % store.sequence)
        txn.delete("a", b"0")


def snapshot(store: Store) -> None:
    store.snapshot()


def create(store: Store) -> None:
    name = f"family {store.sequence}"
    store.create_family(name)[b"k"] = b"v"


def drop_and_create(store: Store) -> None:
    store.drop_family("a")
    store.create_family("a")


def failed_snapshot(store: Store) -> None:
    """A switch to a new segment without a snapshot."""
    put(store)
    files = store._parts.log._files  # type: ignore[union-attr]
    assert isinstance(files, MemoryFiles)
    real = files.create
    files.create = _refusing(real)  # type: ignore[method-assign]
    with pytest.raises(OSError, match="denied"):
        store.snapshot()
    files.create = real  # type: ignore[method-assign]


def _refusing(create: Callable[[str], File]) -> Callable[[str], File]:
    def refuse(path: str) -> File:
        if path.endswith(".snapshot.tmp"):
            raise failure(errno.EACCES, path)
        return create(path)

    return refuse


STEPS = (put, several, snapshot, create, drop_and_create, failed_snapshot)


@pytest.mark.parametrize("first", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("refreshed", ["each step", "at the end"])
def test_reader_catches_up_with_whatever_its_writer_does(first: Callable[[Store], None], refreshed: str) -> None:
    """Guarantee 7: every order of commits, snapshots, switches and changes of the families."""
    for rest in itertools.product(STEPS, repeat=2):
        pair = Pair()
        pair.writer.family("default")[b"first"] = b""
        for step in (first, *rest, put):
            step(pair.writer)
            if refreshed == "each step":
                pair.same()
        pair.same()
        view = contents(pair.reader)
        put(pair.writer)
        assert contents(pair.reader) == view
        pair.close()
        assert pair.files.open_files == []


def test_reader_follows_a_writer_that_is_closed_and_opened_again() -> None:
    """The segment is renamed twice, and goes on."""
    pair = Pair()
    pair.writer.close()
    assert pair.reader.refresh() == pair.reader.sequence
    pair.writer = pystate.open(DIRECTORY, files=pair.memory)
    put(pair.writer)
    pair.same()
    pair.close()


def test_reader_follows_a_writer_that_died() -> None:
    """The next generation begins with a new segment, and the lost tail never shows."""
    pair = Pair()
    put(pair.writer)
    pair.same()
    image = pair.memory.image()
    (name,) = (name for name in image if name.endswith(".log"))
    pair.writer.close()
    pair.memory.restore(DIRECTORY, {**image, name: image[name] + b"half a frame"})
    pair.writer = pystate.open(DIRECTORY, files=pair.memory)
    put(pair.writer)
    pair.same()
    pair.close()


def test_view_of_the_reader_keeps_its_state_over_refreshes() -> None:
    """Guarantee 3: also when everything has to be read anew."""
    pair = Pair()
    with pair.reader.view() as view:
        before = {name: dict(view.family(name)) for name in view.families}
        for step in (put, several, snapshot, several, snapshot, drop_and_create):
            step(pair.writer)
            pair.same()
            assert {name: dict(view.family(name)) for name in view.families} == before
    pair.close()


def test_frame_that_may_not_be_durable_is_synced_before_it_is_shown() -> None:
    """Guarantee 4: a reader never sees a commit that power loss could take back."""
    pair = Pair(durability="process")
    put(pair.writer)
    seen: list[int] = []
    pair.files.before = lambda operation, _: seen.append(pair.reader.sequence) if operation == "sync" else None
    before = pair.reader.sequence
    pair.same()
    assert seen == [before]
    seen.clear()
    pair.reader.refresh()
    assert seen == []
    pair.close()


def test_opening_syncs_what_may_not_be_durable() -> None:
    """Guarantee 4: on opening as on refreshing; and not when the log proves it."""
    for condition, synced in (("closed", False), ("sync", True), ("process", True)):
        files = WatchedFiles(SMALL[condition].files())  # type: ignore[index]
        pystate.open(DIRECTORY, files=files, read_only=True).close()
        assert ("sync" in files.counts) == synced


@pytest.mark.parametrize("number", [errno.EROFS, errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES, errno.EPERM])
def test_medium_that_cannot_be_synced_is_read_all_the_same(number: int) -> None:
    """Row 62: what cannot be written to cannot lose it either."""
    files = WatchedFiles(SMALL["sync"].files())
    files.before = nth("sync", 1, lambda: failure(number), for_ever=True)
    with pystate.open(DIRECTORY, files=files, read_only=True) as reader:
        assert contents(reader) == SMALL["sync"].state
    assert files.open_files == []


def test_sync_that_fails_is_not_passed_over() -> None:
    """Guarantee 4: with EIO nothing may be shown."""
    files = WatchedFiles(SMALL["sync"].files())
    files.before = nth("sync", 1, lambda: failure(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        pystate.open(DIRECTORY, files=files, read_only=True)
    assert files.open_files == []

    pair = Pair()
    before = contents(pair.reader)
    put(pair.writer)
    pair.files.before = nth("sync", 1, lambda: failure(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        pair.reader.refresh()
    assert contents(pair.reader) == before
    pair.files.before = None
    pair.same()
    pair.close()


def test_half_a_frame_at_the_end_is_no_error_and_no_commit() -> None:
    """Design section 5: it is normal beside a live writer; when it is whole it shows."""
    small = SMALL["sync"]
    content = small.image[small.newest]
    last = frames_of(content)[-1]
    memory = MemoryFiles()
    for size in range(last.start, last.end):
        memory.restore(DIRECTORY, small.with_file(small.newest, content[:size]))
        reader = pystate.open(DIRECTORY, files=memory, read_only=True)
        assert contents(reader) == small.states[-2]
        assert reader.refresh() == last.sequence - 1
        memory.restore(DIRECTORY, small.image)
        assert reader.refresh() == last.sequence
        assert contents(reader) == small.state
        reader.close()


def test_damage_that_is_proven_is_told_by_the_refresh() -> None:
    """Guarantee 5: later frames say that it had been durable, so this is no frame that is still being written."""
    small = SMALL["sync"]
    content = small.image[small.newest]
    frames = frames_of(content)
    memory = MemoryFiles().restore(DIRECTORY, small.with_file(small.newest, content[: frames[0].start]))
    reader = pystate.open(DIRECTORY, files=memory, read_only=True)
    state = contents(reader)
    damaged = bytearray(content)
    damaged[frames[1].payload] ^= 1
    memory.restore(DIRECTORY, small.with_file(small.newest, bytes(damaged)))
    with pytest.raises(CorruptionError) as caught:
        reader.refresh()
    assert caught.value.offset == frames[1].start
    assert contents(reader) in (state, small.states[frames[0].sequence])
    memory.restore(DIRECTORY, small.image)
    assert reader.refresh() == small.last
    assert contents(reader) == small.state
    reader.close()


def moments(act: Callable[[Store], None], operations: tuple[str, ...]) -> int:
    """Let the writer act just before each call that opening and refreshing make; how many there were."""
    number = 0
    while True:
        number += 1
        pair = Pair()
        put(pair.writer)
        before = contents(pair.writer)
        states: list[State] = [before]
        files = WatchedFiles(pair.memory)
        seen = 0

        def meddle(operation: str, _: str) -> None:
            nonlocal seen
            if operation in operations:
                seen += 1
                if seen == number:  # noqa: B023 - called within this round
                    act(pair.writer)  # noqa: B023
                    states.append(contents(pair.writer))  # noqa: B023

        files.before = meddle
        with pystate.open(DIRECTORY, files=files, read_only=True) as reader:
            assert contents(reader) in states
            reader.refresh()
            assert contents(reader) in states
        assert files.open_files == []
        pair.close()
        if seen < number:
            return number - 1


@pytest.mark.parametrize("act", [put, snapshot, several], ids=lambda act: act.__name__)
def test_file_that_changes_between_any_two_calls_leads_to_another_look(
    act: Callable[[Store], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 7: a reader beside a live writer can find a file gone between listing and opening it."""
    monkeypatch.setattr(follower, "_PAUSE", 0)

    def act_twice(store: Store) -> None:
        put(store)
        act(store)
        put(store)
        act(store)

    assert moments(act_twice, ("open_read", "read_at", "list_directory")) > 5


def test_damage_that_stays_is_not_looked_at_for_ever() -> None:
    """Real damage is told at once: the list of the files has not changed meanwhile."""
    small = SMALL["closed"]
    files = WatchedFiles(small.files(small.with_file(small.newest, small.image[small.newest][:-1])))
    with pytest.raises(CorruptionError):
        pystate.open(DIRECTORY, files=files, read_only=True)
    assert files.counts["list_directory"] <= 4
    assert files.open_files == []


def test_refresh_that_cannot_read_leaves_the_state() -> None:
    """Row 44: EIO at any call; then the state is as it was, and the next refresh is full."""
    number = 0
    while True:
        number += 1
        pair = Pair()
        state = contents(pair.reader)
        for step in (put, snapshot, put):
            step(pair.writer)
        seen = 0

        def fail(operation: str, path: str) -> None:
            nonlocal seen
            if operation in ("open_read", "read_at", "list_directory"):
                seen += 1
                if seen == number:  # noqa: B023 - called within this round
                    raise failure(errno.EIO, path)

        pair.files.before = fail
        try:
            pair.reader.refresh()
        except OSError as error:
            assert error.errno == errno.EIO
            assert contents(pair.reader) == state
        pair.files.before = None
        pair.same()
        pair.close()
        if seen < number:
            break
    assert number > 5


def test_writer_does_not_follow() -> None:
    """A store that can be written to is always up to date."""
    pair = Pair()
    assert pair.writer.refresh() == pair.writer.sequence
    pair.close()
