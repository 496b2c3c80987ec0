"""The second reader and the engine must agree on every store: good ones, torn ones, and damaged ones.

The second reader knows the page on the file format and nothing else, so where they agree, the page is complete and
true. They agree when both give the same families, the same sequence and the same end of the log, or when both refuse
for the same kind of reason.
"""

from __future__ import annotations

import random
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pystate
from pystate.engine.os_files import OsFiles
from tests.second_reader import Damaged, NoStore, Unsupported, read_store
from tests.sources import ROOT, Source

Outcome = tuple[object, ...]
Image = dict[str, bytes]


def seen_by_engine(directory: Path) -> Outcome:
    try:
        with pystate.open(directory, read_only=True) as store:
            families = {name: dict(store.family(name).items()) for name in store.families}
            recovery = store.stats().recovery
            assert recovery is not None
            return families, store.sequence, recovery.decision, recovery.torn_bytes
    except pystate.CorruptionError:
        return ("damaged",)
    except pystate.UnsupportedFormatError:
        return ("unsupported",)
    except (pystate.StoreNotFoundError, pystate.NotAStoreError):
        return ("no store",)


def seen_by_second_reader(directory: Path) -> Outcome:
    try:
        store = read_store(directory)
    except Damaged:
        return ("damaged",)
    except Unsupported:
        return ("unsupported",)
    except NoStore:
        return ("no store",)
    decision = "clean" if store.closed else "torn" if store.torn_bytes else "unclosed"
    return store.families, store.sequence, decision, store.torn_bytes


def agreed(directory: Path) -> Outcome:
    """What both say of a store."""
    outcome = seen_by_engine(directory)
    assert seen_by_second_reader(directory) == outcome
    return outcome


# Stores


def image_of(directory: Path) -> Image:
    """The files of a store. While it is open for writing: those that an unclean stop would leave."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "LOCK"}


def lay_out(directory: Path, image: Image) -> Path:
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        if path.name not in image:
            path.unlink()
    for name, data in image.items():
        put_file(directory / name, data)
    return directory


def put_file(path: Path, data: bytes) -> None:
    """Write a file. One that is there is overwritten in place: some file systems sync what is emptied before."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(data)
        file.truncate()


def new_store(work: Path) -> Image:
    pystate.open(work).close()
    return image_of(work)


def closed_store(work: Path) -> Image:
    with pystate.open(work, families=["stock"]) as store:
        store.family("stock").put(b"apple", b"30")
        store.family("default").update({b"": b"", b"k": b"v"})
        store.family("stock").put(b"apple", b"31")
    return image_of(work)


def store_of_process(work: Path) -> Image:
    """An unclean stop, where the log may hold commits that were never synced."""
    with pystate.open(work, durability="process") as store:
        for number in range(4):
            store.family("default").put(b"key", b"%d" % number)
        store.sync()
        store.family("default").delete(b"key")
        store.family("default").put(b"last", b"one")
        return image_of(work)


def store_of_families(work: Path) -> Image:
    """Closed, gone on with, and stopped uncleanly, with families dropped and made again."""
    with pystate.open(work, families=["a", "b"]) as store:
        store.family("a").put(b"1", b"old")
        store.snapshot()
        store.drop_family("a")
    with pystate.open(work) as store:
        store.create_family("a").put(b"2", b"new")
        with store.begin() as txn:
            txn.put("a", b"3", b"x")
            txn.delete("a", b"2")
            txn.put("b", b"3", b"y")
        store.drop_family("b")
        return image_of(work)


def store_of_generations(work: Path) -> Image:
    """Two unclean stops, and so three segments in use."""
    for number in range(2):
        with pystate.open(work) as store:
            store.family("default").put(b"%d" % number, b"v")
            image = image_of(work)
        lay_out(work, image)
    with pystate.open(work) as store:
        store.family("default").put(b"2", b"v")
        return image_of(work)


def store_with_leftovers(work: Path) -> Image:
    """A crash between writing a snapshot and removing what it makes superfluous."""
    with pystate.open(work, families=["a"]) as store:
        store.family("a").update({b"1": b"x", b"z": b"y"})
        store.family("default").put(b"3", b"z")
        before = image_of(work)
        store.snapshot()
        # The switch frame, which the copy from before lacks, is not needed: the next segment begins where it ends.
        store.family("a").delete(b"z")
        return before | image_of(work)


class RenameFiles(OsFiles):
    """The real file system, with a copy of the directory from before and after each snapshot gets its name."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Image = {}
        self.after: Image = {}

    def replace(self, source: str, target: str) -> None:
        if not target.endswith(".snapshot"):
            return super().replace(source, target)
        directory = Path(target).parent
        self.before = image_of(directory)
        super().replace(source, target)
        self.after = image_of(directory)


def rewritten_store(work: Path) -> RenameFiles:
    """A store that was written to, and rewritten; and what it was in the middle of that."""
    with pystate.open(work, families=["a", "b"], metadata={"format": "1"}) as store:
        store.family("a").update({b"1": b"x", b"z": b"y"})
        store.snapshot()
        store.family("a").put(b"1", b"new")

    def build(rewriting: pystate.Rewriting) -> None:
        rewriting.family("a")[b"1"] += b"er"
        rewriting.rename_family("b", "c")
        rewriting.metadata["format"] = "2"

    files = RenameFiles()
    pystate.rewrite(work, build, files=files)
    return files


def store_before_a_rewriting_counts(work: Path) -> Image:
    """A crash right before the new snapshot gets its name."""
    return rewritten_store(work).before


def store_after_a_rewriting_counts(work: Path) -> Image:
    """A crash right behind it."""
    return rewritten_store(work).after


def store_of_rewritings(work: Path) -> Image:
    """Rewritten, used, stopped uncleanly, and rewritten, and used again."""
    rewritten_store(work)
    with pystate.open(work) as store:
        store.family("c").put(b"k", b"v")
        image = image_of(work)
    pystate.rewrite(lay_out(work, image), lambda rewriting: rewriting.family("a").clear())
    with pystate.open(work) as store:
        store.family("c").put(b"k", b"w")
        store.snapshot()
        store.family("a").put(b"1", b"again")
        return image_of(work)


def installed_store(work: Path) -> RenameFiles:
    """An export of one store, put into a new directory and used there."""
    with pystate.open(work.with_name("source"), families=["a"], metadata={"format": "1"}) as store:
        store.family("a").update({b"1": b"x", b"z": b"y"})
        store.export(work.with_name("exported"))
    files = RenameFiles()
    pystate.install(work, work.with_name("exported"), files=files)
    return files


def store_over_another(work: Path) -> Image:
    """A snapshot put over a store that had stopped uncleanly, before the old files are gone."""
    files = installed_store(work)
    with pystate.open(work) as store:
        for number in range(3):
            store.family("a").put(b"%d" % number, b"")
        image = image_of(work)
    pystate.install(lay_out(work, image), work.with_name("exported"), files=files)
    return files.after


def large_store(work: Path) -> Image:
    """Many blocks, and more of the log."""
    draw = random.Random(1)
    with pystate.open(work, families=["many", "large"], durability="process") as store:
        store.family("many").update({draw.randbytes(8): draw.randbytes(draw.randrange(200)) for _ in range(9000)})
        store.family("large").update({b"%d" % size: draw.randbytes(size) for size in (0, 255, 256, 65535, 65536)})
        store.snapshot()
        store.family("large").put(b"1", draw.randbytes(500_000))
        store.family("many").update({draw.randbytes(8): b"" for _ in range(100)})
        store.family("many").delete_range(b"\x30", b"\x50")
        return image_of(work)


SMALL: list[Callable[[Path], Image]] = [
    new_store, closed_store, store_of_process, store_of_families, store_of_generations, store_with_leftovers,
    store_before_a_rewriting_counts, store_after_a_rewriting_counts, store_of_rewritings, store_over_another,
]  # fmt: skip


@pytest.fixture(params=SMALL, ids=lambda make: make.__name__)
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Image:
    """The files of a small store."""
    made: Image = request.param(tmp_path / "made")
    return made


def live_segment(image: Image) -> str:
    return max(name for name in image if name.endswith((".log", ".closed")))


def test_the_second_reader_leans_on_nothing_but_the_standard_library() -> None:
    imports = Source(ROOT / "tests" / "second_reader.py").imports()
    assert {imported.module.partition(".")[0] for imported in imports} <= sys.stdlib_module_names


# Good and torn stores


@pytest.mark.parametrize("make", [*SMALL, large_store], ids=lambda make: make.__name__)
def test_good_stores(make: Callable[[Path], Image], tmp_path: Path) -> None:
    directory = lay_out(tmp_path / "copy", make(tmp_path / "made"))
    families, _, decision, _ = agreed(directory)
    assert decision in ("clean", "unclosed")
    # Nor does opening it for writing change an entry, with the repairs that this brings.
    pystate.open(directory).close()
    assert agreed(directory)[0::2] == (families, "clean")


def test_where_there_is_no_store(tmp_path: Path) -> None:
    assert agreed(tmp_path / "missing") == ("no store",)
    assert agreed(tmp_path) == ("no store",)
    (tmp_path / "file").touch()
    assert agreed(tmp_path / "file") == ("no store",)


def test_creation_that_was_interrupted(tmp_path: Path) -> None:
    image = new_store(tmp_path / "made")
    name, data = next((name, data) for name, data in image.items() if not name.endswith(".snapshot"))
    assert agreed(lay_out(tmp_path / "copy", {name: data[:48]})) == ("no store",)
    for size in [*range(48), 49, len(data)]:
        assert agreed(lay_out(tmp_path / "copy", {name: (data + b"\0")[:size]})) == ("damaged",)


def test_installation_that_was_interrupted(tmp_path: Path) -> None:
    """Where there was no store there is none yet, unless a byte of what says so is missing."""
    files = installed_store(tmp_path / "made")
    assert agreed(lay_out(tmp_path / "copy", files.after))[2:3] == ("clean",)
    assert agreed(lay_out(tmp_path / "copy", files.before)) == ("no store",)
    waiting, segment = sorted(files.before, key=len, reverse=True)
    for image in ({segment: files.before[segment]}, files.before | {segment.replace("closed", "log"): b""}):
        assert agreed(lay_out(tmp_path / "copy", image)) == ("damaged",)
    data = files.before[segment]
    for at in range(len(data)):
        for wrong in (data[:at], changed(data, at, 1 << at % 8), right_segment(data, changed(data, at, 0x40))):
            agreed(lay_out(tmp_path / "copy", {waiting: b"", segment: wrong}))
    pystate.open(lay_out(tmp_path / "copy", files.before)).close()
    assert agreed(tmp_path / "copy") == ({"default": {}}, 0, "clean", 0)


def test_every_cut_of_the_live_segment(image: Image, tmp_path: Path) -> None:
    directory, name = lay_out(tmp_path / "copy", image), live_segment(image)
    for size in range(len(image[name])):
        put_file(directory / name, image[name][:size])
        agreed(directory)


def test_junk_behind_the_live_segment(image: Image, tmp_path: Path) -> None:
    directory, name = lay_out(tmp_path / "copy", image), live_segment(image)
    data, draw = image[name], random.Random(2)
    salt = data[32:36]
    junk = [b"\0", b"\0" * 500, salt, salt * 20, data, *(draw.randbytes(size) for size in (1, 31, 32, 33, 200))]
    junk += [data[at:] for at in range(48, len(data), 13)]  # frames again, and parts of them
    junk += [frame(salt, sequence, 0, b"")[:size] for sequence in range(10) for size in (31, 32)]
    decisions = set()
    for more in junk:
        for between in (b"", b"x"):
            for whole in (data, data[:-1]):
                put_file(directory / name, whole + between + more)
                decisions.add(agreed(directory)[2:3])
    assert {("torn",)} < decisions or name.endswith(".closed")


def frame(salt: bytes, sequence: int, watermark: int, payload: bytes) -> bytes:
    seed = crc32(salt)
    header = salt + struct.pack("<IQQI", len(payload), sequence, watermark, crc32(payload, seed))
    return header + struct.pack("<I", crc32(header, seed)) + payload


# Damaged stores


def changed(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def test_every_byte_flipped(image: Image, tmp_path: Path) -> None:
    directory, found = lay_out(tmp_path / "copy", image), set()
    for name, data in image.items():
        for at in range(len(data)):
            put_file(directory / name, changed(data, at, 1 << at % 8))
            found.add(str(agreed(directory)[0]))
        put_file(directory / name, data)
    assert "damaged" in found


def test_every_cut_and_loss_of_a_file(image: Image, tmp_path: Path) -> None:
    directory = lay_out(tmp_path / "copy", image)
    for name, data in image.items():
        for size in range(0, len(data), 3):
            put_file(directory / name, data[:size])
            agreed(directory)
        (directory / name).unlink()
        without = agreed(directory)
        (directory / name).mkdir()
        assert agreed(directory) == without  # what is not a file does not count
        (directory / name).rmdir()
        put_file(directory / name, data)


def test_files_under_each_others_names(image: Image, tmp_path: Path) -> None:
    others = {f"{number:020}.{suffix}" for number in range(8) for suffix in ("log", "closed", "snapshot")}
    for name, data in image.items():
        for other in (image.keys() | others) - {name}:
            agreed(lay_out(tmp_path / "copy", image | {other: data}))
            agreed(lay_out(tmp_path / "copy", {kept: image[kept] for kept in image if kept != name} | {other: data}))


def test_stores_with_a_part_of_another(tmp_path: Path) -> None:
    images = [make(tmp_path / make.__name__) for make in SMALL]
    for ours in images:
        for theirs in images:
            for name, data in theirs.items():
                agreed(lay_out(tmp_path / "copy", ours | {name: data}))


def test_every_byte_changed_and_the_checksums_put_right(image: Image, tmp_path: Path) -> None:
    """Nothing but the other rules of the page can find these changes.

    The bit is such that no integer becomes negative, and no keys change places. No pystate writes either; the second
    reader refuses both, as the page has it, while the engine does not find them everywhere.
    """
    directory, found = lay_out(tmp_path / "copy", image), set()
    for name, data in image.items():
        put_right = right_snapshot if ".snapshot" in name else right_segment
        assert put_right(data, data) == data
        for at in range(len(data)):
            put_file(directory / name, put_right(data, changed(data, at, 0x40)))
            found.add(str(agreed(directory)[0]))
        put_file(directory / name, data)
    assert {"damaged", "unsupported"} < found


def right_segment(data: bytes, new: bytes) -> bytes:
    """Put the checksums right in a segment; its frames lie where they did in `data`."""
    head = new[:44]
    parts, at, salt = [head, struct.pack("<I", crc32(head))], 48, new[32:36]
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at + 4)
        head, payload = new[at : at + 24], new[at + 32 : at + 32 + size]
        head += struct.pack("<I", crc32(payload, crc32(salt)))
        parts += [head, struct.pack("<I", crc32(head, crc32(salt))), payload]
        at += 32 + size
    return b"".join(parts)


def right_snapshot(data: bytes, new: bytes) -> bytes:
    """Put the checksums right in a snapshot; its parts lie where they did in `data`."""
    end = len(data) - 32
    blocks_at, index_at = 24 + struct.unpack_from("<I", data, 12)[0], struct.unpack_from("<Q", data, end)[0]
    index = new[index_at:end]
    for _, _, blocks in msgspec.msgpack.decode(data[index_at:end], type=list[tuple[int, int, list[list[int]]]]):
        for at, size, checksum, _ in blocks:
            right = crc32(new[at : at + size])
            index = index.replace(checksum.to_bytes(4, "big"), right.to_bytes(4, "big"))
    prelude = new[:16] + struct.pack("<I", crc32(new[24:blocks_at]))
    prelude += struct.pack("<I", crc32(prelude))
    digest = crc32(index, crc32(prelude + new[24:blocks_at]))
    trailer = new[end : end + 12] + struct.pack("<II", crc32(index), digest)
    trailer += struct.pack("<I", crc32(trailer))
    return prelude + new[24:index_at] + index + trailer + new[-8:]


# Random operations

KEYS = st.binary(max_size=2)
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abc"), KEYS, st.binary(max_size=40)),
    st.tuples(st.just("delete"), st.sampled_from("abc"), KEYS),
    st.tuples(st.just("clear"), st.sampled_from("abc")),
    st.tuples(st.just("create"), st.sampled_from("abc")),
    st.tuples(st.just("drop"), st.sampled_from("abc")),
    st.tuples(st.sampled_from(["transaction", "snapshot", "sync", "reopen", "crash"])),
)


def run(work: Path, operations: list[tuple[object, ...]], durability: pystate.Durability) -> Iterator[Image]:
    """Run operations on a store, and give its files as they were after some of them, and at its end."""
    store = pystate.open(work, durability=durability)
    try:
        for operation in operations:
            match operation:
                case ("create", str(name)):
                    if name not in store.families:
                        store.create_family(name)
                case ("drop", str(name)):
                    if name in store.families:
                        store.drop_family(name)
                case ("put", str(name), bytes(key), bytes(value)):
                    store.family(name if name in store.families else "default").put(key, value)
                case ("delete", str(name), bytes(key)):
                    store.family(name if name in store.families else "default").delete(key)
                case ("clear", str(name)):
                    store.family(name if name in store.families else "default").clear()
                case ("transaction",):
                    with store.begin() as txn:
                        for name in store.families:
                            txn.put(name, b"all", b"%d" % store.sequence)
                            txn.delete(name, b"")
                case ("snapshot",):
                    before = image_of(work)
                    store.snapshot()
                    yield before | image_of(work)
                case ("sync",):
                    store.sync()
                case ("reopen",):
                    store.close()
                    yield image_of(work)
                    store = pystate.open(work, durability=durability)
                case ("crash",):
                    image = image_of(work)
                    yield image
                    store.close()
                    store = pystate.open(lay_out(work, image), durability=durability)
        yield image_of(work)
    finally:
        store.close()
    yield image_of(work)


@settings(max_examples=40)
@given(
    operations=st.lists(OPERATIONS, max_size=30),
    durability=st.sampled_from(["sync", "process"]),
    damages=st.lists(st.tuples(st.integers(0), st.integers(0), st.integers(0, 255)), max_size=5),
)
def test_random_operations_and_damage(
    operations: list[tuple[object, ...]], durability: pystate.Durability, damages: list[tuple[int, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        work, copy = Path(directory, "work"), Path(directory, "copy")
        for image in run(work, operations, durability):
            assert agreed(lay_out(copy, image))[2:3] in [("clean",), ("unclosed",)]
            for which, where, mask in damages:
                name = sorted(image)[which % len(image)]
                at = where % len(image[name])
                damaged = changed(image[name], at, mask) if mask else image[name][:at]
                agreed(lay_out(copy, image | {name: damaged}))
