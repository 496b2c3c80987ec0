"""Bound tables: reading, writing and scanning, in a store, a transaction and a view. Section 17.1 of the
specification."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate import ConflictError, FamilyMismatchError, FamilyNotFoundError, Store, StoreNotFoundError
from pystate.errors import DecodeError, InvalidRecordError, KeyExistsError, NoSuchEntryError, ValueMismatchError
from pystate.tables import BoundTable, Key, Readable, Table, Writable, blob, rest_bytes, rest_text
from tests.tables.samples import FAMILY, JOBS, NOTES, Job, Note, new_store


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        with new_store() as opened:
            yield opened
    else:
        with pystate.open(tmp_path / "s", families=[FAMILY], durability="process") as opened:
            yield opened


@pytest.fixture
def notes(store: Store) -> BoundTable[Note]:
    return NOTES.bind(store)


def note(name: Any, text: Any = "t") -> Note:
    return Note(name=name, text=text)


def names(records: Iterator[Any]) -> list[str]:
    return [record.name for record in records]


# Opening


def test_a_strict_opening_names_exactly_the_families_there(tmp_path: Path) -> None:
    """Check R1: naming too few or too many fails, and nothing is created."""
    pystate.open(tmp_path / "s", families=["a", "b"]).close()
    for given_names in (["a"], ["a", "b", "c"]):
        with pytest.raises(FamilyMismatchError):
            pystate.open(tmp_path / "s", families=given_names)
    assert pystate.list_families(tmp_path / "s") == ("a", "b", "default")


def test_missing_families_are_created_when_asked_for(tmp_path: Path) -> None:
    """Check R2: the missing one is there and empty, the rows of the others are unchanged."""
    with pystate.open(tmp_path / "s", families=["a", "b"]) as store:
        store.family("a")[b"k"] = b"v"
    with pystate.open(tmp_path / "s", families=["a", "b", "c"], create_missing_families=True) as store:
        assert dict(store.family("c")) == {}
        assert dict(store.family("a")) == {b"k": b"v"}


def test_without_a_store_nothing_is_listed_or_opened(tmp_path: Path) -> None:
    """Check R3."""
    with pytest.raises(StoreNotFoundError):
        pystate.list_families(tmp_path / "s")
    with pytest.raises(StoreNotFoundError):
        pystate.open(tmp_path / "s", create=False)


def test_a_table_needs_its_family(store: Store) -> None:
    with pytest.raises(FamilyNotFoundError, match="no family 'elsewhere'"):
        Table(Note, family="elsewhere", key=Key(name=rest_text)).bind(store)


# Writing


def test_inserting_twice_is_refused_and_keeps_the_first(notes: BoundTable[Note]) -> None:
    """Check R4."""
    notes.insert(note("a", "first"))
    with pytest.raises(KeyExistsError, match="exists already"):
        notes.insert(note("a", "second"))
    assert notes.get("a") == note("a", "first")


def test_put_overwrites(notes: BoundTable[Note]) -> None:
    """Check R5."""
    notes.put(note("a", "first"))
    notes.put(note("a", "second"))
    assert notes.get("a") == note("a", "second")


def test_update_compares_what_is_stored(notes: BoundTable[Note]) -> None:
    """Check R6: an update from something else than what is stored is refused."""
    notes.put(note("a", "v1"))
    with pytest.raises(ValueMismatchError):
        notes.update(note("a", "v0"), note("a", "v2"))
    assert notes.get("a") == note("a", "v1")
    notes.update(note("a", "v1"), note("a", "v1"))
    notes.update(note("a", "v1"), note("a", "v2"))
    assert notes.get("a") == note("a", "v2")


def test_update_of_what_is_not_there_is_refused(notes: BoundTable[Note]) -> None:
    """Check R7."""
    with pytest.raises(NoSuchEntryError):
        notes.update(note("a", "v"), note("a", "v2"))
    assert notes.get("a") is None


def test_moving_onto_an_occupied_key_is_refused(notes: BoundTable[Note]) -> None:
    """Check R8: both rows stay as they were."""
    notes.insert_many([note("k1", "v1"), note("k2", "v2")])
    with pytest.raises(KeyExistsError):
        notes.update(note("k1", "v1"), note("k2", "v3"))
    assert list(notes.iter()) == [note("k1", "v1"), note("k2", "v2")]


def test_an_update_may_move_the_row(notes: BoundTable[Note]) -> None:
    """Check R9."""
    notes.put(note("k1", "v1"))
    notes.update(note("k1", "v1"), note("k3", "v3"))
    assert list(notes.iter()) == [note("k3", "v3")]


def test_deleting_what_is_not_there_is_no_error(store: Store, notes: BoundTable[Note]) -> None:
    """Check R10: neither directly nor in a transaction."""
    notes.delete("a")
    with store.begin() as txn:
        NOTES.bind(txn).delete("a")


def test_a_read_of_an_absent_key_conflicts_with_its_creation(store: Store) -> None:
    """Check R11: the text begins as promised, and nothing is written."""
    txn = store.begin()
    assert NOTES.bind(txn).get("k") is None
    NOTES.bind(store).put(note("k"))
    NOTES.bind(txn).put(note("k2"))
    with pytest.raises(ConflictError, match=r"^Resource busy:"):
        txn.commit()
    assert NOTES.bind(store).get("k2") is None


def test_a_blind_write_conflicts_with_nobody(store: Store) -> None:
    """Check R12, as transactions are serializable here: what was not read does not conflict; what was read does."""
    txn = store.begin()
    NOTES.bind(store).put(note("k"))
    NOTES.bind(txn).put(note("k2"))
    txn.commit()
    assert names(NOTES.bind(store).iter()) == ["k", "k2"]


def test_writing_the_same_bytes_is_a_change(store: Store) -> None:
    """Check R13."""
    NOTES.bind(store).put(note("k"))
    txn = store.begin()
    NOTES.bind(txn).get("k")
    NOTES.bind(store).put(note("k"))
    NOTES.bind(txn).put(note("k2"))
    with pytest.raises(ConflictError):
        txn.commit()


def test_of_two_racing_updates_one_wins(store: Store) -> None:
    """Check R14: the other one is told that the record is another one now."""
    NOTES.bind(store).put(note("k", "v1"))
    start = threading.Barrier(2)
    ended: list[object] = []

    def update(text: str) -> None:
        start.wait()
        try:
            NOTES.bind(store).update(note("k", "v1"), note("k", text))
        except ValueMismatchError as error:
            ended.append(error)
        else:
            ended.append(text)

    threads = [threading.Thread(target=update, args=(text,)) for text in ("v2", "v3")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = (each for each in ended if isinstance(each, str))
    assert len(ended) == 2
    assert NOTES.bind(store).get("k") == note("k", won)


def test_a_transaction_sees_its_own_inserts_and_leaves_none_when_dropped(store: Store) -> None:
    """Check R15."""
    txn = store.begin()
    bound = NOTES.bind(txn)
    bound.insert(note("k"))
    with pytest.raises(KeyExistsError):
        bound.insert(note("k"))
    assert names(bound.iter()) == ["k"]
    txn.rollback()
    assert list(NOTES.bind(store).iter()) == []


def test_an_insert_that_loses_a_race_says_that_the_key_is_taken(store: Store) -> None:
    """Check R4 again: a conflict about the key of an insert is `KeyExistsError`."""

    class Rival(Table[Note]):
        def replace_row(self, rows: Any, row_key: bytes, old: Note | None, new: Note) -> None:
            NOTES.bind(store).put(note("k", "rival"))
            super().replace_row(rows, row_key, old, new)

    with pytest.raises(KeyExistsError) as caught:
        Rival(Note, family=FAMILY, key=NOTES.key).bind(store).insert(note("k", "mine"))
    assert isinstance(caught.value.__cause__, ConflictError)
    assert NOTES.bind(store).get("k") == note("k", "rival")


def test_a_rival_that_creates_the_target_of_a_move_makes_it_fail(store: Store) -> None:
    """Check R25 (H-1): the mover is run again, sees the rival's row, and leaves it alone."""
    NOTES.bind(store).put(note("k1"))
    runs = []

    class Moving(Table[Note]):
        def move_row(self, rows: Any, old_key: bytes, new_key: bytes, old: Note, new: Note) -> None:
            runs.append(new_key)
            if len(runs) == 1:
                NOTES.bind(store).put(note("k2", "rival"))
            super().move_row(rows, old_key, new_key, old, new)

    with pytest.raises(KeyExistsError):
        Moving(Note, family=FAMILY, key=NOTES.key).bind(store).update(note("k1"), note("k2", "moved"))
    assert len(runs) == 1  # the second run was refused before it moved anything
    assert list(NOTES.bind(store).iter()) == [note("k1"), note("k2", "rival")]


class Bin(Note, frozen=True, kw_only=True):
    """A note whose key is bytes with an end."""

    key: bytes


def test_bytes_are_a_value_of_the_key_for_get_and_delete_alike(store: Store) -> None:
    bins = Table(Bin, family=FAMILY, key=Key(key=blob)).bind(store)
    bins.put(Bin(key=b"ab", name="", text=""))
    bins.delete(b"ab")
    assert bins.get(b"ab") is None
    bins.put(Bin(key=b"ab", name="", text=""))
    bins.delete_row(b"ab\0\0")
    assert bins.get(b"ab") is None


def test_a_range_is_given_by_tuples(notes: BoundTable[Note]) -> None:
    for arguments in ({"prefix": "a"}, {"start": "a"}, {"stop": "a"}, {"seek": "a"}):
        with pytest.raises(TypeError, match=r"a tuple of values expected, such as \('a',\), not str"):
            notes.iter(**arguments)  # type: ignore[arg-type]


# Many at once


def test_insert_many_is_all_or_nothing(notes: BoundTable[Note]) -> None:
    notes.put(note("b", "old"))
    with pytest.raises(KeyExistsError):
        notes.insert_many([note("a"), note("b"), note("c")])
    with pytest.raises(KeyExistsError, match="twice"):
        notes.insert_many([note("x"), note("x")])
    assert list(notes.iter()) == [note("b", "old")]
    notes.insert_many([note("a"), note("c")])
    assert names(notes.iter()) == ["a", "b", "c"]


def test_replace_all_leaves_only_what_is_given(store: Store, notes: BoundTable[Note]) -> None:
    """Check R23: also what cannot be read goes, and the row under the empty key stays."""
    notes.insert_many([note("a"), note("b")])
    store.family(FAMILY)[b"garbage"] = b"?"
    store.family(FAMILY)[b""] = b"ids"
    notes.replace_all([note("c")])
    assert sorted(store.family(FAMILY)) == [b"", NOTES.key.encode("c")]
    with pytest.raises(KeyExistsError):
        notes.replace_all([note("d"), note("d")])
    assert names(notes.iter()) == ["c"]


def test_update_compare_many_is_all_or_nothing(notes: BoundTable[Note]) -> None:
    """Check R24."""
    notes.insert_many([note("a", "1"), note("b", "2")])
    with pytest.raises(ValueMismatchError):
        notes.update_compare_many([(note("a", "1"), note("a", "9")), (note("b", "3"), note("b", "9"))])
    with pytest.raises(NoSuchEntryError):
        notes.update_compare_many([(note("a", "1"), note("a", "9")), (note("c", "3"), note("c", "9"))])
    with pytest.raises(ValueError, match="would move"):
        notes.update_compare_many([(note("a", "1"), note("z", "9"))])
    assert list(notes.iter()) == [note("a", "1"), note("b", "2")]
    notes.update_compare_many([(note("a", "1"), note("a", "9")), (note("b", "2"), note("b", "8"))])
    assert list(notes.iter()) == [note("a", "9"), note("b", "8")]


# Scanning

RAW = Table(Note, family=FAMILY, key=Key(name=rest_text))


def test_scans_begin_where_they_are_told_to(store: Store) -> None:
    """Check R16."""
    rows = RAW.bind(store)
    rows.insert_many([note("a"), note("b"), note("d")])
    assert names(rows.iter(seek=("c",))) == ["d"]
    assert names(rows.iter(seek=("c",), reverse=True)) == ["b", "a"]
    assert names(rows.iter(reverse=True)) == ["d", "b", "a"]
    assert names(rows.iter(seek=("b",))) == ["b", "d"]
    assert names(rows.iter(seek=("b",), reverse=True)) == ["b", "a"]
    assert names(rows.iter(start=("b",), stop=("d",))) == ["b"]
    assert names(rows.iter(start=("b",), reverse=True, limit=1)) == ["d"]


class Blob(Note, frozen=True, kw_only=True):
    """A note whose key is any bytes."""

    key: bytes


BLOBS = Table(Blob, family=FAMILY, key=Key(key=rest_bytes))


def test_a_prefix_covers_what_begins_with_it(store: Store) -> None:
    """Check R17: also where no key can lie above the prefix."""
    blobs = BLOBS.bind(store)
    keys = [b"\x61", b"\x61\xff", b"\x62", b"\xff", b"\xff\xff"]
    blobs.insert_many([Blob(key=key, name="", text="") for key in keys])
    for prefix, expected in ((b"\x61", keys[:2]), (b"\xff", keys[3:]), (b"", keys)):
        assert [record.key for record in blobs.iter(prefix=prefix)] == expected
        assert [record.key for record in blobs.iter(prefix=prefix, reverse=True)] == expected[::-1]
    assert [record.key for record in blobs.iter(prefix=(b"\x61",))] == keys[:2]


@given(st.sets(st.binary(min_size=1, max_size=3)), st.binary(max_size=3), st.binary(max_size=2), st.booleans())
def test_seek_and_prefix_are_those_of_a_sorted_list(keys: set[bytes], at: bytes, prefix: bytes, reverse: bool) -> None:
    with new_store() as store:
        blobs = BLOBS.bind(store)
        blobs.insert_many([Blob(key=key, name="", text="") for key in keys])
        found = [record.key for record in blobs.iter(seek=at, prefix=prefix, reverse=reverse)]
    expected = sorted((key for key in keys if key.startswith(prefix)), reverse=reverse)
    assert found == [key for key in expected if (key <= at if reverse else key >= at)]


def test_the_row_under_the_empty_key_is_no_record(store: Store, notes: BoundTable[Note]) -> None:
    """Check R18: in no direction."""
    store.family(FAMILY)[b""] = b"ids"
    notes.put(note("a"))
    assert names(notes.iter()) == names(notes.iter(reverse=True)) == ["a"]
    assert notes.check() == []


def test_a_row_that_cannot_be_read_stops_one_scan_and_not_the_other(store: Store, notes: BoundTable[Note]) -> None:
    """Check R19: the error names family and key."""
    notes.insert_many([note("a"), note("b"), note("c")])
    key = NOTES.key.encode("b")
    store.family(FAMILY)[key] = b"garbage"
    found = list(notes.iter_results())
    assert [record and record.name for record, _ in found] == ["a", None, "c"]
    error = found[1][1]
    assert isinstance(error, DecodeError)
    assert (error.family, error.key, error.kind) == (FAMILY, key, "Note")
    records = notes.iter()
    assert next(records).name == "a"
    with pytest.raises(DecodeError, match=r"family 'rows', key b'b\\x00\\x00': no Note: .*; delete the row"):
        next(records)
    with pytest.raises(DecodeError):
        notes.get("b")
    assert len(notes.check()) == 1
    notes.delete("b")
    assert names(notes.iter()) == ["a", "c"]


def test_a_scan_does_not_show_what_is_added_later(notes: BoundTable[Note]) -> None:
    """Check R20."""
    notes.insert_many([note("a"), note("c")])
    records = notes.iter()
    later = notes.iter()
    seen = [next(records).name]
    notes.put(note("b"))
    notes.put(note("d"))
    assert seen + names(records) == names(later) == ["a", "c"]


# Views


def test_a_view_reads_one_state_and_offers_no_writes(store: Store, notes: BoundTable[Note]) -> None:
    notes.put(note("a"))
    with store.view() as view:
        bound = NOTES.bind(view)
        notes.put(note("b"))
        assert names(bound.iter()) == ["a"]
        assert bound.get("b") is None
        assert not any(hasattr(bound, name) for name in ("put", "insert", "update", "delete", "replace_all"))
        with pytest.raises(TypeError, match="bound to a view"):
            BoundTable(NOTES, view).delete("a")
        with pytest.raises(TypeError, match="bound to a view"):
            BoundTable(NOTES, view).put(note("a"))


# What is refused


@pytest.mark.parametrize(
    ("record", "error", "said"),
    [
        (note(5), InvalidRecordError, "key field 'name': a str expected, not int"),
        (note("a", 5), InvalidRecordError, "field 'text': Expected `str`, got `int`"),
        (note("\ud800"), InvalidRecordError, "cannot be written as UTF-8"),
        (note("a", "\ud800"), InvalidRecordError, "surrogates not allowed"),
        (Job(name="a"), TypeError, "a Note expected, not Job"),
    ],
)
def test_a_record_that_cannot_be_stored_is_refused_before_anything_is_written(
    store: Store, record: Any, error: type[Exception], said: str
) -> None:
    notes = NOTES.bind(store)
    for write in (notes.put, notes.insert, lambda each: notes.insert_many([note("x"), each])):
        with pytest.raises(error, match=said):
            write(record)
    assert len(store.family(FAMILY)) == 0


def test_the_empty_key_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRecordError, match=r"its key \(name\) is empty"):
        RAW.bind(store).put(note(""))


def test_records_with_a_table_of_their_own_have_no_other(store: Store) -> None:
    class Guarded(Note, frozen=True, kw_only=True):
        __table__ = "Guards"

    with pytest.raises(TypeError, match="Guarded records are read and written through Guards only"):
        Table(Guarded, family=FAMILY, key=Key(name=rest_text))


def test_a_table_has_what_its_class_inherits_and_no_more(store: Store) -> None:
    """Checks R21 and R22, for tables of one's own: what is not inherited is not there."""

    class WriteOnly(Writable[Note]):
        pass

    class ReadOnly(Readable[Note]):
        pass

    assert hasattr(WriteOnly, "put")
    assert not any(hasattr(WriteOnly, name) for name in ("get", "iter", "iter_results", "find"))
    assert hasattr(ReadOnly, "get")
    assert not any(hasattr(ReadOnly, name) for name in ("put", "insert", "iter", "iter_results"))
    WriteOnly(NOTES, store).put(note("a"))
    assert ReadOnly(NOTES, store).get("a") == note("a")
    assert all(hasattr(NOTES.bind(store), name) for name in ("put", "insert", "get", "iter", "iter_results"))


def test_a_table_and_its_handles_say_what_they_are(store: Store) -> None:
    assert repr(NOTES) == "<Table of Note in family 'rows': <Key name>>"
    assert repr(JOBS.bind(store)).startswith("<BoundTable of <Table of Job in family 'rows'")
    assert repr(JOBS.index("running")) == "<Index 'running': tag 0xf8, <Key machine>, unique>"
