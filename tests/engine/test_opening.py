"""What a store carries about itself: its metadata and its id, from the moment it is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate.engine.limits import METADATA_BYTES_MAX, METADATA_KEY_BYTES_MAX
from tests.engine.memory_files import DIRECTORY, MemoryFiles

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
metadata_keys = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(st.dictionaries(metadata_keys, text, max_size=5), st.integers(0, 3))
def test_metadata_is_read_as_it_was_given(metadata: dict[str, str], snapshots: int) -> None:
    """Without opening, by a reader, by a writer, and after any number of snapshots."""
    files = MemoryFiles()
    with pystate.open(DIRECTORY, files=files, metadata=metadata) as store:
        assert pystate.read_metadata(DIRECTORY, files=files) == store.metadata == metadata
        for number in range(snapshots):
            store.family("default")[b"k"] = b"%d" % number
            store.snapshot()
    assert pystate.read_metadata(DIRECTORY, files=files) == metadata
    with pystate.open(DIRECTORY, files=files, read_only=True) as reader:
        assert reader.metadata == metadata
    with pystate.memory(metadata=metadata) as store:
        assert store.metadata == metadata


def test_a_store_that_exists_keeps_its_own() -> None:
    files = MemoryFiles()
    pystate.open(DIRECTORY, files=files, metadata={"format": "1"}).close()
    with pystate.open(DIRECTORY, files=files, metadata={"format": "2"}) as store:
        assert store.metadata == {"format": "1"}
    pystate.open("/plain", files=files).close()
    assert pystate.read_metadata("/plain", files=files) == {}


def test_metadata_is_a_copy_and_cannot_be_changed() -> None:
    given_ = {"format": "1"}
    for store in (pystate.memory(metadata=given_), pystate.open(DIRECTORY, files=MemoryFiles(), metadata=given_)):
        given_["format"] = "changed"
        assert store.metadata == {"format": "1"}
        with pytest.raises(TypeError):
            store.metadata["format"] = "2"  # type: ignore[index]
        given_["format"] = "1"
        store.close()
        assert store.metadata == {"format": "1"}


LONG = "k" * METADATA_KEY_BYTES_MAX
LIMITS: list[tuple[object, type[Exception] | None]] = [
    ({LONG: ""}, None),
    ({LONG + "k": ""}, ValueError),
    ({"é" * (METADATA_KEY_BYTES_MAX // 2): ""}, None),
    ({"é" * (METADATA_KEY_BYTES_MAX // 2 + 1): ""}, ValueError),
    ({"": ""}, ValueError),
    ({"a\nb": ""}, ValueError),
    ({"\ud800": ""}, ValueError),
    ({"k": "\ud800"}, ValueError),
    ({"k": "any\ntext\0"}, None),
    ({"k": "v" * (METADATA_BYTES_MAX - 1)}, None),
    ({"k": "v" * METADATA_BYTES_MAX}, ValueError),
    ({f"{number:03d}": "v" * 1021 for number in range(64)}, None),
    ({f"{number:03d}": "v" * 1021 for number in range(65)}, ValueError),
    ({1: ""}, TypeError),
    ({"k": 1}, TypeError),
    ({"k": None}, TypeError),
    ([("k", "v")], TypeError),
    ("text", TypeError),
]


@pytest.mark.parametrize(("metadata", "error"), LIMITS)
def test_limits_are_checked_before_anything_is_made(
    metadata: object, error: type[Exception] | None, tmp_path: Path
) -> None:
    """Row 78."""
    if error is None:
        pystate.open(tmp_path / "store", metadata=metadata).close()  # type: ignore[arg-type]
        assert pystate.read_metadata(tmp_path / "store") == metadata
        return
    with pytest.raises(error, match="metadata"):
        pystate.open(tmp_path / "store", metadata=metadata)  # type: ignore[arg-type]
    with pytest.raises(error, match="metadata"):
        pystate.memory(metadata=metadata)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_reading_metadata_where_there_is_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(pystate.StoreNotFoundError):
            pystate.read_metadata(path)
    (tmp_path / "file").touch()
    with pytest.raises(pystate.NotAStoreError):
        pystate.read_metadata(tmp_path / "file")


def test_damaged_metadata_is_corruption() -> None:
    """It stands under the checksum of the header."""
    files = MemoryFiles()
    pystate.open(DIRECTORY, files=files, metadata={"format": "the first"}).close()
    [name] = [name for name in files.image() if name.endswith(".snapshot")]
    wrong = files.image()[name].replace(b"the first", b"the wurst")
    files.restore(DIRECTORY, files.image() | {name: wrong})
    with pytest.raises(pystate.CorruptionError):
        pystate.read_metadata(DIRECTORY, files=files)


def test_id_is_that_of_the_store(tmp_path: Path) -> None:
    """In hex, the same whoever opens it, and another one for each store."""
    ids = set()
    for number in range(3):
        with pystate.open(tmp_path / str(number)) as store:
            ids.add(store.id)
            assert bytes.fromhex(store.id).hex() == store.id
            assert len(store.id) == 32
            with pystate.open(tmp_path / str(number), read_only=True) as reader:
                assert reader.id == store.id
        assert pystate.verify(tmp_path / str(number)).store_id == store.id
        ids.add(pystate.memory().id)
    assert len(ids) == 6
