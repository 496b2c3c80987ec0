"""Where everything begins that begins with a path: the lock and its end, and a full disk by its right name.

What is refused, and that nothing is touched then, is in the tests of those who begin here.
"""

from __future__ import annotations

import errno

import pytest

from pystate import DiskFullError, LockedError, NotAStoreError, ReadOnlyError, StoreFailedError
from pystate.engine.places import guarded, locked, raise_if_full, take_lock
from tests.engine.memory_files import DIRECTORY, MemoryFiles, failure
from tests.engine.watched_files import WatchedFiles, nth


@pytest.fixture
def files() -> WatchedFiles:
    return WatchedFiles(MemoryFiles().restore(DIRECTORY, {"segment": b""}))


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (failure(errno.EROFS), ReadOnlyError),
        (failure(errno.EACCES), ReadOnlyError),
        (failure(errno.EPERM), ReadOnlyError),
        (failure(errno.EISDIR), NotAStoreError),
        (failure(errno.ENOSPC), DiskFullError),
        (failure(errno.EDQUOT), DiskFullError),
        (failure(errno.ENOLCK), OSError),
        (LockedError(DIRECTORY), LockedError),
    ],
    ids=repr,
)
def test_a_lock_that_cannot_be_taken_says_why(files: WatchedFiles, raised: OSError, error: type[Exception]) -> None:
    """Row 54."""
    files.before = nth("lock", 1, lambda: raised)
    with pytest.raises(error) as caught:
        take_lock(files, DIRECTORY, 0.0)
    assert type(caught.value) is error or error is OSError
    assert files.held_locks == 0


def test_the_lock_is_let_go_whatever_happens(files: WatchedFiles) -> None:
    for error in (ZeroDivisionError, KeyboardInterrupt, OSError):
        with pytest.raises(error), locked(files, DIRECTORY, 0.0):
            with pytest.raises(LockedError):
                take_lock(files, DIRECTORY, 0.0)
            raise error
        assert files.held_locks == 0


def test_a_full_disk_has_its_own_error(files: WatchedFiles) -> None:
    with pytest.raises(DiskFullError) as caught, locked(files, DIRECTORY, 0.0):
        raise OSError(errno.ENOSPC, "full")
    assert caught.value.path == DIRECTORY
    with pytest.raises(DiskFullError) as caught, locked(files, DIRECTORY, 0.0):
        raise OSError(errno.EFBIG, "full", "some file")
    assert caught.value.path == "some file"


def test_an_error_of_pystate_stays_what_it_is() -> None:
    """Although a full disk was its cause."""
    raise_if_full(StoreFailedError("store", "cause", unknown=True, errno=errno.ENOSPC))
    raise_if_full(DiskFullError("file"))
    raise_if_full(failure(errno.EIO))


def test_a_guarded_segment_is_nobody_elses(files: WatchedFiles) -> None:
    path = f"{DIRECTORY}/segment"
    with pytest.raises(ZeroDivisionError), guarded(files, path):
        with pytest.raises(LockedError), guarded(files, path):
            pass
        raise ZeroDivisionError
    with guarded(files, path):
        pass
    assert files.open_files == []
