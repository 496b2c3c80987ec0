"""What bad input gets: an error with a name, attributes and advice, and not one byte of the store changed."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import pystate
from pystate import Store, Transaction
from pystate.engine.limits import COMMIT_BYTES_MAX, FAMILY_NAME_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX
from tests.engine.directories import contents, fingerprint, names

ENTRIES = {b"a": b"1", b"b": b"2", b"c": b"3"}


def make(path: Path, *, snapshot: bool = False) -> Path:
    """A closed store with something in two families."""
    with pystate.open(str(path), families=["other"], durability="process") as store:
        store.family("default").update(ENTRIES)
        if snapshot:
            store.snapshot()
        store.family("other")[b"k"] = b"v"
    return path


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    return make(tmp_path / "store")


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, closed: Path) -> Iterator[Store]:
    """An open store with the content of `make`."""
    if request.param == "disk":
        with pystate.open(str(closed)) as opened:
            yield opened
    else:
        with pystate.memory(families=["other"]) as opened:
            opened.family("default").update(ENTRIES)
            opened.family("other")[b"k"] = b"v"
            yield opened


def huge(size: int) -> memoryview:
    """A buffer that says it is huge and has no memory behind it: who refuses it has not read it."""
    return memoryview((ctypes.c_char * size).from_address(ctypes.addressof(ctypes.c_char()))).cast("B")


Call = Callable[[Any], object]

# ---- wrong types and sizes ------------------------------------------------------------------------------------------

#: Calls on a family that take a key.
KEY_CALLS: dict[str, Callable[[Any, Any], object]] = {
    "getitem": lambda family, key: family[key],
    "contains": lambda family, key: key in family,
    "put": lambda family, key: family.put(key, b"v"),
    "setitem": lambda family, key: family.__setitem__(key, b"v"),
    "delete": lambda family, key: family.delete(key),
    "delitem": lambda family, key: family.__delitem__(key),
    "pop": lambda family, key: family.pop(key, None),
    "setdefault": lambda family, key: family.setdefault(key, b"v"),
    "update": lambda family, key: family.update([(b"good", b"v"), (key, b"v")]),
}
#: Calls on a family that take a bound of a range.
BOUND_CALLS: dict[str, Callable[[Any, Any], object]] = {
    "scan start": lambda family, key: list(family.scan(key)),
    "scan stop": lambda family, key: list(family.scan(stop=key)),
    "scan prefix": lambda family, key: list(family.scan(prefix=key)),
    "delete_range start": lambda family, key: family.delete_range(key, None),
    "delete_range stop": lambda family, key: family.delete_range(None, key),
}
#: Calls on a family that take a value.
VALUE_CALLS: dict[str, Callable[[Any, Any], object]] = {
    "put": lambda family, value: family.put(b"a", value),
    "setitem": lambda family, value: family.__setitem__(b"a", value),
    "setdefault": lambda family, value: family.setdefault(b"absent", value),
    "update": lambda family, value: family.update({b"good": b"v", b"a": value}),
}
NOT_BYTES: list[Any] = ["a", "", 1, 0, True, 1.5, [97], (b"a",), {b"a": b"b"}, object(), bytes]
#: Where the mapping interface is met.
PLACES = ["family", "transaction"]


def refused(store: Store, place: str, call: Callable[[Any, Any], object], argument: Any) -> BaseException:
    """Make the call, which must raise TypeError or ValueError, and see that it left no trace."""
    before = store.sequence
    files = fingerprint(Path(store.path)) if store.path else {}
    if place == "family":
        with pytest.raises((TypeError, ValueError)) as caught:
            call(store.family("default"), argument)
    else:
        with store.begin() as txn:
            with pytest.raises((TypeError, ValueError)) as caught:
                call(txn.family("default"), argument)
            assert dict(txn.family("default")) == ENTRIES
    assert store.sequence == before
    assert dict(store.family("default")) == ENTRIES
    if store.path:
        assert fingerprint(Path(store.path)) == files
    return caught.value


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", KEY_CALLS)
def test_key_of_a_wrong_type_is_refused(store: Store, place: str, call: str) -> None:
    """Design section 3: a key is bytes, bytearray or memoryview; the error names the type that was given."""
    for key in (None, *NOT_BYTES):
        error = refused(store, place, KEY_CALLS[call], key)
        assert type(error) is TypeError
        assert type(key).__name__ in str(error)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", BOUND_CALLS)
def test_bound_of_a_wrong_type_is_refused(store: Store, place: str, call: str) -> None:
    """A bound is a key or None."""
    for bound in NOT_BYTES:
        error = refused(store, place, BOUND_CALLS[call], bound)
        assert type(error) is TypeError
        assert type(bound).__name__ in str(error)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", VALUE_CALLS)
def test_value_of_a_wrong_type_is_refused(store: Store, place: str, call: str) -> None:
    """Row 77: a value is bytes, bytearray or memoryview; None is not a value."""
    for value in (None, *NOT_BYTES):
        error = refused(store, place, VALUE_CALLS[call], value)
        assert type(error) is TypeError
        assert type(value).__name__ in str(error)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", ["put", "setitem", "setdefault", "update"])
def test_key_over_the_limit_is_refused(store: Store, place: str, call: str) -> None:
    """Row 78: one byte too long is too long, and so is what only claims to be."""
    for key in (
        bytes(KEY_BYTES_MAX + 1),
        bytearray(KEY_BYTES_MAX + 1),
        memoryview(bytes(KEY_BYTES_MAX + 8)).cast("Q"),
        huge(1 << 40),
    ):
        error = refused(store, place, KEY_CALLS[call], key)
        assert type(error) is ValueError
        assert str(KEY_BYTES_MAX) in str(error)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", VALUE_CALLS)
def test_value_over_the_limit_is_refused(store: Store, place: str, call: str) -> None:
    """Row 78: the limit holds before a byte is copied or written."""
    for value in (bytearray(VALUE_BYTES_MAX + 1), huge(VALUE_BYTES_MAX + 1), huge(1 << 40)):
        error = refused(store, place, VALUE_CALLS[call], value)
        assert type(error) is ValueError
        assert str(VALUE_BYTES_MAX) in str(error)


def test_key_at_the_limit_is_kept(store: Store) -> None:
    """Row 78: the limit itself is allowed."""
    family = store.family("default")
    longest = b"\xff" * KEY_BYTES_MAX
    family[longest] = b"v"
    assert family[longest] == b"v"
    assert [key for key, _ in family.scan(prefix=longest[:-1])] == [longest]
    assert [key for key, _ in family.scan(prefix=longest)] == [longest]


def test_commit_over_the_limit_is_refused(store: Store) -> None:
    """Row 78: a commit has a limit too, and the transaction that exceeds it leaves nothing."""
    value = bytes(VALUE_BYTES_MAX)
    txn = store.begin()
    with pytest.raises(ValueError, match=str(COMMIT_BYTES_MAX)):
        for number in range(COMMIT_BYTES_MAX // VALUE_BYTES_MAX + 1):
            txn.put("default", b"big%d" % number, value)
        txn.commit()
    txn.rollback()
    assert dict(store.family("default")) == ENTRIES
    store.family("default")[b"after"] = b"usable"


def test_limits_hold_without_assertions(closed: Path) -> None:
    """Rows 78 and 105: what protects data is no assert, so `-O` takes nothing away."""
    script = (
        "import sys, pystate\n"
        "store = pystate.open(sys.argv[1])\n"
        "family = store.family('default')\n"
        "for key, value, kind in ((b'k' * 65537, b'', ValueError), ('k', b'', TypeError), (b'k', None, TypeError)):\n"
        "    try:\n"
        "        family.put(key, value)\n"
        "    except kind:\n"
        "        continue\n"
        "    sys.exit(1)\n"
        "sys.exit(store.sequence - int(sys.argv[2]))\n"
    )
    with pystate.open(str(closed), read_only=True) as reader:
        sequence = reader.sequence
    root = Path(pystate.__file__).parents[1]
    subprocess.run([sys.executable, "-O", "-c", script, str(closed), str(sequence)], check=True, cwd=root)


# ---- bad arguments of calls on an open store ------------------------------------------------------------------------

BAD_NAMES: dict[str, tuple[Any, type[Exception]]] = {
    "empty": ("", ValueError),
    "NUL": ("a\0b", ValueError),
    "newline": ("a\nb", ValueError),
    "delete": ("a\x7f", ValueError),
    "surrogate": ("a\ud800", ValueError),
    "too long": ("x" * (FAMILY_NAME_BYTES_MAX + 1), ValueError),
    "too long in UTF-8": ("ä" * (FAMILY_NAME_BYTES_MAX // 2 + 1), ValueError),
    "bytes": (b"name", TypeError),
    "None": (None, TypeError),
    "int": (1, TypeError),
}


def creating(name: Any) -> Call:
    """Create a family of this name."""
    return lambda store: store.create_family(name)


CALLS: dict[str, tuple[Call, type[Exception] | tuple[type[Exception], ...]]] = {
    **{f"create_family: {name}": (creating(bad), error) for name, (bad, error) in BAD_NAMES.items()},
    "family: unknown": (lambda s: s.family("nope"), pystate.FamilyNotFoundError),
    "family: bytes": (lambda s: s.family(b"default"), TypeError),
    "family: None": (lambda s: s.family(None), TypeError),
    "drop_family: unknown": (lambda s: s.drop_family("nope"), pystate.FamilyNotFoundError),
    "drop_family: default": (lambda s: s.drop_family("default"), ValueError),
    "create_family: existing": (lambda s: s.create_family("other"), pystate.FamilyExistsError),
    "begin: durability": (lambda s: s.begin(durability="maybe"), ValueError),
    "begin: durability of a wrong type": (lambda s: s.begin(durability=True), (TypeError, ValueError)),
    "transact: durability": (lambda s: s.transact(lambda txn: None, durability="none"), ValueError),
    "transact: no function": (lambda s: s.transact(None), TypeError),
    "scan: negative limit": (lambda s: list(s.family("default").scan(limit=-1)), ValueError),
    "scan: limit of a wrong type": (lambda s: list(s.family("default").scan(limit="1")), TypeError),
    "scan: limit of a fraction": (lambda s: list(s.family("default").scan(limit=1.5)), TypeError),
    "transaction get: key": (lambda s: s.begin().get("default", "a"), TypeError),
    "transaction put: key": (lambda s: s.begin().put("default", "a", b""), TypeError),
    "transaction put: value": (lambda s: s.begin().put("default", b"a", "v"), TypeError),
    "transaction delete: key": (lambda s: s.begin().delete("default", "a"), TypeError),
    "transaction delete_range: bound": (lambda s: s.begin().delete_range("default", 1, None), TypeError),
    "transaction scan: bound": (lambda s: list(s.begin().scan("default", 1)), TypeError),
    "transaction scan: limit": (lambda s: list(s.begin().scan("default", limit=-1)), ValueError),
    "transaction: family of a wrong type": (lambda s: s.begin().get(b"default", b"a"), TypeError),
    "view get: key": (lambda s: s.view().get("default", "a"), TypeError),
    "view scan: bound": (lambda s: list(s.view().scan("default", 1)), TypeError),
    "view scan: limit": (lambda s: list(s.view().scan("default", limit=-1)), ValueError),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_with_a_bad_argument_is_refused(store: Store, name: str) -> None:
    """Each gets the named error; store, sequence and files are as before, and the next good call works."""
    call, kind = CALLS[name]
    before = store.sequence
    files = fingerprint(Path(store.path)) if store.path else {}
    with pytest.raises(kind):
        call(store)
    assert store.sequence == before
    assert dict(store.family("default")) == ENTRIES
    if store.path:
        assert fingerprint(Path(store.path)) == files
    store.family("default")[b"after"] = b"usable"


def test_clear_and_update_of_a_read_only_store_are_refused(closed: Path) -> None:
    """Guarantee 7: a store that is open for reading refuses every write, and writes nothing at all."""
    before = fingerprint(closed)
    mtimes = {entry.name: entry.stat().st_mtime_ns for entry in closed.iterdir()}
    with pystate.open(str(closed), read_only=True) as store:
        assert store.read_only
        family = store.family("default")

        def commit() -> None:
            with store.begin() as txn:
                txn.put("default", b"k", b"v")

        calls: dict[str, Callable[[], object]] = {
            "put": lambda: family.put(b"k", b"v"),
            "setitem": lambda: family.__setitem__(b"k", b"v"),
            "delete": lambda: family.delete(b"a"),
            "delitem": lambda: family.__delitem__(b"a"),
            "pop": lambda: family.pop(b"a"),
            "popitem": lambda: family.popitem(),
            "setdefault": lambda: family.setdefault(b"k", b"v"),
            "update": lambda: family.update({b"k": b"v"}),
            "clear": lambda: family.clear(),
            "delete_range": lambda: family.delete_range(None, None),
            "create_family": lambda: store.create_family("new"),
            "drop_family": lambda: store.drop_family("other"),
            "commit": commit,
            "transact": lambda: store.transact(lambda txn: txn.put("default", b"k", b"v")),
        }
        for name, call in calls.items():
            with pytest.raises(pystate.ReadOnlyError) as caught:
                call()
            assert isinstance(caught.value, PermissionError), name
            assert caught.value.path == str(closed)
        assert dict(family) == ENTRIES
        assert store.transact(lambda txn: txn.family("default")[b"a"]) == b"1"
        with store.view() as view:
            assert view.get("default", b"a") == b"1"
        assert list(family.scan(reverse=True, limit=1)) == [(b"c", b"3")]
        assert store.refresh() == store.sequence
    assert fingerprint(closed) == before
    assert {entry.name: entry.stat().st_mtime_ns for entry in closed.iterdir()} == mtimes


def test_store_and_transaction_after_their_end_are_refused(closed: Path) -> None:
    """Row 75: use after close changes nothing either."""
    with pystate.open(str(closed)) as store:
        family, txn = store.family("default"), store.begin()
        txn.rollback()
        finished: Callable[[Transaction], object] = lambda txn: txn.put("default", b"k", b"v")  # noqa: E731
        with pytest.raises(pystate.ClosedError):
            finished(txn)
    before = fingerprint(closed)
    for call in (lambda: family.put(b"k", b"v"), lambda: store.snapshot(), lambda: store.sync(), lambda: txn.commit()):
        with pytest.raises(pystate.ClosedError):
            call()
    assert fingerprint(closed) == before


# ---- bad arguments of open ------------------------------------------------------------------------------------------

OPEN_ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception] | tuple[type[Exception], ...]]] = {
    **{f"families: {name}": ({"families": [bad]}, error) for name, (bad, error) in BAD_NAMES.items()},
    "families: a str": ({"families": "other"}, TypeError),
    "families: an int": ({"families": 1}, TypeError),
    "durability": ({"durability": "maybe"}, ValueError),
    "durability of a wrong type": ({"durability": None}, (TypeError, ValueError)),
    "lock_timeout: negative": ({"lock_timeout": -1.0}, ValueError),
    "lock_timeout: not a number": ({"lock_timeout": float("nan")}, ValueError),
    "lock_timeout: text": ({"lock_timeout": "1"}, TypeError),
    "snapshot_log_bytes: negative": ({"snapshot_log_bytes": -1}, ValueError),
    "snapshot_log_bytes: text": ({"snapshot_log_bytes": "1"}, TypeError),
    "history_bytes: negative": ({"history_bytes": -1}, ValueError),
    "history_bytes: text": ({"history_bytes": "1"}, TypeError),
}


@pytest.mark.parametrize("where", ["existing", "missing", "empty"])
@pytest.mark.parametrize("name", OPEN_ARGUMENTS)
def test_open_with_a_bad_argument_is_refused(closed: Path, tmp_path: Path, where: str, name: str) -> None:
    """A bad argument is told before anything is touched or created."""
    arguments, kind = OPEN_ARGUMENTS[name]
    (tmp_path / "empty").mkdir()
    path = {"existing": closed, "missing": tmp_path / "missing", "empty": tmp_path / "empty"}[where]
    before = fingerprint(tmp_path)
    with pytest.raises(kind):
        pystate.open(str(path), create_missing_families=True, **arguments)
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("path", [None, 1, 1.5, ["x"]], ids=repr)
def test_open_with_a_path_that_is_none_is_refused(path: Any) -> None:
    """A path is text, or something that knows its text."""
    for function in (pystate.open, pystate.list_families, pystate.verify):
        with pytest.raises(TypeError):
            function(path)


@pytest.mark.parametrize("path", ["", "a\0b"], ids=repr)
def test_open_with_a_path_that_cannot_be_is_refused(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty path is not the current directory."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError)):
        pystate.open(path)
    assert list(tmp_path.iterdir()) == []


def test_open_takes_a_path_object(closed: Path) -> None:
    """`os.PathLike` is a path too, and `path` is text again."""
    with pystate.open(closed) as store:
        assert store.path == os.fspath(closed)
        assert dict(store.family("default")) == ENTRIES
    assert pystate.list_families(closed) == ("default", "other")
    assert pystate.verify(closed).ok


@pytest.mark.parametrize("create_missing", [False, True])
def test_open_with_families_not_named_is_refused(closed: Path, create_missing: bool) -> None:
    """A list is strict: it names all that are on disk, or nothing is opened."""
    before = fingerprint(closed)
    with pytest.raises(pystate.FamilyMismatchError) as caught:
        pystate.open(str(closed), families=["default", "new"], create_missing_families=create_missing)
    assert caught.value.path == str(closed)
    assert caught.value.unnamed == ("other",)
    assert caught.value.missing == (() if create_missing else ("new",)) or caught.value.missing == ("new",)
    assert isinstance(caught.value, ValueError)
    assert fingerprint(closed) == before


def test_open_with_missing_families_is_refused_unless_they_may_be_created(closed: Path) -> None:
    """FamilyMismatchError names them; `create_missing_families` makes them; `default` need not be named."""
    before = fingerprint(closed)
    with pytest.raises(pystate.FamilyMismatchError) as caught:
        pystate.open(str(closed), families=["other", "new", "also"])
    assert (sorted(caught.value.missing), caught.value.unnamed) == (["also", "new"], ())
    assert fingerprint(closed) == before
    with pytest.raises(pystate.PystateError):
        pystate.open(str(closed), families=["other", "new"], create_missing_families=True, read_only=True)
    assert fingerprint(closed) == before
    with pystate.open(str(closed), families=["other", "new"], create_missing_families=True) as store:
        assert store.families == ("default", "new", "other")
        assert dict(store.family("default")) == ENTRIES
    with pystate.open(str(closed), families=("new", "other", "default")) as store:
        assert dict(store.family("other")) == {b"k": b"v"}
    assert pystate.list_families(str(closed)) == ("default", "new", "other")


def test_memory_with_families_has_them() -> None:
    """`pystate.memory(families=...)` begins with these; bad names are refused as on disk."""
    with pystate.memory(families=["b", "a"]) as store:
        assert store.families == ("a", "b", "default")
        assert store.path is None
    with pytest.raises(ValueError, match="control"):
        pystate.memory(families=["a\n"])


# ---- places that are not a store ------------------------------------------------------------------------------------


def place(kind: str, path: Path) -> None:
    """Put something that is not a store at `path`."""
    if kind == "file":
        path.write_bytes(b"something of somebody's\n")
        return
    if kind == "empty file":
        path.touch()
        return
    if kind == "link to a file":
        path.with_suffix(".target").write_text("text")
        path.symlink_to(path.with_suffix(".target"))
        return
    path.mkdir()
    match kind:
        case "directory of files":
            (path / "notes.txt").write_text("mine")
            (path / "sub").mkdir()
        case "hidden file":
            (path / ".keep").touch()
        case "other numbers":
            (path / "1.log").write_bytes(b"another program's log")


NOT_STORES = [
    "file",
    "empty file",
    "link to a file",
    "directory of files",
    "hidden file",
    "other numbers",
]
OPENERS: dict[str, Callable[[str], object]] = {
    "open": pystate.open,
    "open with create=False": lambda path: pystate.open(path, create=False),
    "open read-only": lambda path: pystate.open(path, read_only=True),
    "list_families": pystate.list_families,
    "verify": pystate.verify,
    "read_log": lambda path: list(pystate.read_log(path)),
    "salvage": lambda path: pystate.salvage(path, path + ".salvaged"),
}


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("kind", NOT_STORES)
def test_place_that_holds_something_else_is_never_taken_over(tmp_path: Path, kind: str, opener: str) -> None:
    """NotAStoreError says what is there (StoreNotFoundError, where none would be made); it is left as it is."""
    path = tmp_path / "place"
    place(kind, path)
    before = fingerprint(tmp_path)
    with pytest.raises(pystate.PystateError) as caught:
        OPENERS[opener](str(path))
    assert isinstance(caught.value, (pystate.NotAStoreError, pystate.StoreNotFoundError))
    assert caught.value.path == str(path)
    if opener == "open" or kind in ("file", "empty file", "link to a file"):
        assert isinstance(caught.value, pystate.NotAStoreError)
        assert isinstance(caught.value, ValueError)
        assert caught.value.found
    assert fingerprint(tmp_path) == before
    assert not (path / "LOCK").is_file()


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("name", ["LOCK", "00000000000000000000.snapshot", "00000000000000000001.log"])
def test_place_with_a_directory_in_place_of_a_file_is_refused(tmp_path: Path, name: str, opener: str) -> None:
    """Row 21: a named error, not whatever the operating system says about reading a directory."""
    path = tmp_path / "place"
    (path / name).mkdir(parents=True)
    before = fingerprint(tmp_path)
    with pytest.raises(pystate.PystateError):
        OPENERS[opener](str(path))
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("opener", [name for name in OPENERS if name != "open"])
@pytest.mark.parametrize("kind", ["missing", "empty directory"])
def test_place_without_a_store_is_not_found(tmp_path: Path, kind: str, opener: str) -> None:
    """StoreNotFoundError, and neither a store nor a lock file is made."""
    path = tmp_path / "place"
    if kind == "empty directory":
        path.mkdir()
    with pytest.raises(pystate.StoreNotFoundError) as caught:
        OPENERS[opener](str(path))
    assert caught.value.path == str(path)
    assert isinstance(caught.value, FileNotFoundError)
    assert [entry for entry in tmp_path.rglob("*") if entry != path] == []
    assert path.exists() is (kind == "empty directory")


@pytest.mark.parametrize("kind", ["missing", "empty directory"])
def test_place_that_is_empty_becomes_a_store(tmp_path: Path, kind: str) -> None:
    """With `create=True`, which is the default, and not otherwise."""
    path = tmp_path / "place"
    if kind == "empty directory":
        path.mkdir()
    with pystate.open(str(path), create=True) as store:
        assert store.families == ("default",)
        recovery = store.stats().recovery
        assert recovery is not None
        assert recovery.decision == "new"
    assert pystate.verify(str(path)).ok


@pytest.mark.parametrize("leftover", ["LOCK", "00000000000000000000.snapshot.tmp"])
def test_place_with_leftovers_of_a_creation_that_died_becomes_a_store(tmp_path: Path, leftover: str) -> None:
    """Row 57: a creation cut short leaves nothing that stands in the way of the next one."""
    path = tmp_path / "place"
    path.mkdir()
    (path / leftover).write_bytes(b"")
    with pytest.raises(pystate.StoreNotFoundError):
        pystate.open(str(path), read_only=True)
    with pystate.open(str(path)) as store:
        store.family("default")[b"k"] = b"v"
    assert contents(path) == {"default": {b"k": b"v"}}


def test_open_below_a_missing_parent_is_refused(tmp_path: Path) -> None:
    """One directory is made, not a tree: a mistyped path is told."""
    with pytest.raises(FileNotFoundError):
        pystate.open(str(tmp_path / "missing" / "store"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "junk", [b"", b"junk", b"\0" * 4096, b"1 localhost\n", b"99999999999999999999 x", b"\xff\xfe", b"-1 x\n"], ids=repr
)
def test_lock_file_with_any_content_does_not_block(closed: Path, junk: bytes) -> None:
    """Row 52: what stands in the lock file is for messages only."""
    (closed / "LOCK").write_bytes(junk)
    with pystate.open(str(closed)) as store:
        assert dict(store.family("default")) == ENTRIES
    (closed / "LOCK").write_bytes(b"%d here\n" % os.getpid())
    pystate.open(str(closed)).close()


# ---- files that were tampered with ----------------------------------------------------------------------------------


def segment(path: Path) -> Path:
    """The newest segment of a closed store."""
    return path / names(path, ".closed")[-1]


def snapshot(path: Path) -> Path:
    """The newest snapshot."""
    return path / names(path, ".snapshot")[-1]


def rewrite(file: Path, offset: int, data: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[offset : offset + len(data)] = data
    file.write_bytes(content)


def cut(file: Path, size: int) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:size] if size >= 0 else content[: len(content) + size])


def raise_version(file: Path, header_size: int) -> None:
    """Give a file the format version 99 and a right header checksum, as a future writer would."""
    content = file.read_bytes()
    header = content[:8] + struct.pack("<I", 99) + content[12 : header_size - 4]
    file.write_bytes(header + struct.pack("<I", crc32(header)) + content[header_size:])


def other_store(path: Path) -> Path:
    """A store of the same shape as the one at `path`, but another one."""
    return make(path.with_name("stranger"), snapshot=True)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "segment emptied": lambda path: segment(path).write_bytes(b""),
    "segment cut in its header": lambda path: cut(segment(path), 20),
    "segment cut at its header": lambda path: cut(segment(path), 48),
    "segment cut at the end": lambda path: cut(segment(path), -1),
    "segment with its magic edited": lambda path: rewrite(segment(path), 0, b"X"),
    "segment with its store id edited": lambda path: rewrite(segment(path), 20, b"XX"),
    "segment with a frame edited": lambda path: rewrite(segment(path), 48 + 32 + 2, b"\xff"),
    "segment with a frame length edited": lambda path: rewrite(segment(path), 48 + 4, b"\xff\xff\xff\xff"),
    "segment zeroed": lambda path: rewrite(segment(path), 0, bytes(segment(path).stat().st_size)),
    "segment removed": lambda path: segment(path).unlink(),
    "segment with bytes behind its closing frame": lambda path: rewrite(
        segment(path), segment(path).stat().st_size, b"more"
    ),
    "segment of another store": lambda path: segment(path).write_bytes(segment(other_store(path)).read_bytes()),
    "snapshot emptied": lambda path: snapshot(path).write_bytes(b""),
    "snapshot cut": lambda path: cut(snapshot(path), -1),
    "snapshot with its magic edited": lambda path: rewrite(snapshot(path), 0, b"X"),
    "snapshot with its header edited": lambda path: rewrite(snapshot(path), 30, b"\xff"),
    "snapshot zeroed": lambda path: rewrite(snapshot(path), 0, bytes(snapshot(path).stat().st_size)),
    "snapshot removed": lambda path: snapshot(path).unlink(),
    "snapshot of another store": lambda path: snapshot(path).write_bytes(snapshot(other_store(path)).read_bytes()),
}


@pytest.fixture
def with_snapshot(tmp_path: Path) -> Path:
    return make(tmp_path / "store", snapshot=True)


@pytest.mark.parametrize("damage", DAMAGES)
def test_store_with_a_damaged_file_is_refused_untouched(with_snapshot: Path, damage: str) -> None:
    """Guarantee 5: CorruptionError with file, what was expected and what was found; every other way in says so too."""
    DAMAGES[damage](with_snapshot)
    before = fingerprint(with_snapshot)
    for arguments in ({}, {"read_only": True}, {"create": True, "families": ["other"]}):
        with pytest.raises(pystate.CorruptionError) as caught:
            with pystate.open(str(with_snapshot), **arguments) as store:
                contents_of = {name: dict(store.family(name)) for name in store.families}
                pytest.fail(f"opened with {contents_of}")
        error = caught.value
        assert Path(error.path).parent == with_snapshot
        assert error.expected
        assert error.found
        assert "salvage" in str(error)
        assert isinstance(error, ValueError)
    report = pystate.verify(str(with_snapshot))
    assert not report.ok
    assert report.problems
    assert fingerprint(with_snapshot) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_store_restored_after_a_refusal_opens_in_full(with_snapshot: Path, damage: str) -> None:
    """A refusal leaves no lock and no state behind: once the file is back, so is everything."""
    saved = {entry.name: entry.read_bytes() for entry in with_snapshot.iterdir()}
    DAMAGES[damage](with_snapshot)
    with pytest.raises(pystate.CorruptionError):
        pystate.open(str(with_snapshot))
    for name, content in saved.items():
        (with_snapshot / name).write_bytes(content)
    with pystate.open(str(with_snapshot)) as store:
        assert dict(store.family("default")) == ENTRIES
        assert dict(store.family("other")) == {b"k": b"v"}


def test_snapshot_with_a_block_edited_is_refused_when_the_family_is_read(with_snapshot: Path) -> None:
    """Guarantee 5: a family is decoded when it is first touched, so that is when its damage is told; never before."""
    content = snapshot(with_snapshot).read_bytes()
    rewrite(snapshot(with_snapshot), content.rindex(b"\xc4\x013"), b"\xc4\x01X")
    before = fingerprint(with_snapshot)
    for _ in range(2):
        with pytest.raises(pystate.CorruptionError) as caught, pystate.open(str(with_snapshot)) as store:
            dict(store.family("default"))
        assert caught.value.path == str(snapshot(with_snapshot))
        assert caught.value.offset is not None
    assert not pystate.verify(str(with_snapshot)).ok
    assert fingerprint(with_snapshot) == before


@pytest.mark.parametrize(("kind", "header_size"), [("segment", 48), ("snapshot", 24)])
def test_file_of_a_newer_format_is_refused_untouched(with_snapshot: Path, kind: str, header_size: int) -> None:
    """Row 89: UnsupportedFormatError carries both versions, from every way in; nothing is changed."""
    file = {"segment": segment, "snapshot": snapshot}[kind](with_snapshot)
    raise_version(file, header_size)
    before = fingerprint(with_snapshot)
    for opener in ("open", "open with create=False", "open read-only", "list_families", "verify"):
        with pytest.raises(pystate.UnsupportedFormatError) as caught:
            OPENERS[opener](str(with_snapshot))
        assert caught.value.path == str(file)
        assert (caught.value.found, caught.value.supported) == (99, 1)
        assert "upgrade" in str(caught.value)
    assert fingerprint(with_snapshot) == before


def test_files_of_another_store_added_are_refused(with_snapshot: Path) -> None:
    """Row 9: a segment that would continue the log, were it not of another store."""
    stranger = other_store(with_snapshot)
    with pystate.open(str(stranger)) as store:
        for number in range(20):
            store.family("default")[b"%d" % number] = b"theirs"
        store.snapshot()
        store.family("default")[b"last"] = b"theirs"
    for file in (segment(stranger), snapshot(stranger)):
        target = with_snapshot / file.name
        assert not target.exists()
        target.write_bytes(file.read_bytes())
        before = fingerprint(with_snapshot)
        for opener in ("open", "open read-only"):
            with pytest.raises(pystate.CorruptionError) as caught:
                OPENERS[opener](str(with_snapshot))
            assert Path(caught.value.path).parent == with_snapshot
        assert fingerprint(with_snapshot) == before
        target.unlink()
    assert contents(with_snapshot)["default"] == ENTRIES


@pytest.mark.parametrize("destination", ["not empty", "file", "the store itself"])
def test_salvage_into_something_is_refused(with_snapshot: Path, tmp_path: Path, destination: str) -> None:
    """What is rescued never overwrites anything."""
    target = with_snapshot if destination == "the store itself" else tmp_path / "target"
    if destination == "file":
        target.write_text("mine")
    elif destination == "not empty":
        target.mkdir()
        (target / "mine").write_text("mine")
    before = fingerprint(tmp_path)
    with pytest.raises((pystate.PystateError, ValueError, OSError)):
        pystate.salvage(str(with_snapshot), str(target))
    assert fingerprint(tmp_path) == before
