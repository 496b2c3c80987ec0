"""The page on the file format, held against the code and against files that the engine really writes."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from zlib import crc32

import pytest

import pystate
from pystate.engine import limits, log_format, names, recovery, snapshot_format
from pystate.engine.log_format import SegmentHeader
from pystate.engine.os_files import OsFiles
from pystate.engine.snapshot_format import SnapshotHeader
from tests.markdown import ROOT, Fence, fences
from tests.page_tables import Table, docstring_tables, page_tables

PAGE = ROOT / "docs" / "reference" / "file-format.md"
STORE_ID, SALTS = b"example store id", (b"SALT", b"salt")
FIELDS = ("offset", "size", "field", "meaning, and the fault it guards against")


class ExampleFiles(OsFiles):
    """The real file system, with the random bytes of the worked example, which keeps the content of removed files."""

    def __init__(self) -> None:
        super().__init__()
        self.salts = iter(SALTS)
        self.removed: dict[str, bytes] = {}

    def random_bytes(self, size: int) -> bytes:
        return STORE_ID if size == len(STORE_ID) else next(self.salts)

    def unlink(self, path: str) -> None:
        self.removed[Path(path).name] = Path(path).read_bytes()
        super().unlink(path)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files that the program on the page has written, removed ones included, by name."""
    files = ExampleFiles()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pystate, "open", partial(pystate.open, files=files))
    (program,) = [block for block in fences(PAGE) if block.language == "python" and "example.store" in block.text]
    exec(compile(program.text, str(PAGE), "exec"), {})
    left = {path.name: path.read_bytes() for path in (tmp_path / "example.store").iterdir()}
    return files.removed | left


def dumps() -> dict[str, Fence]:
    """The hex dumps of the page, by the name of the file they show."""
    return {block.comment.removeprefix("file: "): block for block in fences(PAGE) if block.comment.startswith("file: ")}


def notes(name: str) -> Table:
    """The table with the notes on a dump: the first one below it."""
    return next(table for table in page_tables(PAGE) if table.line > dumps()[name].line)


def field_tables() -> list[Table]:
    return [table for table in page_tables(PAGE) if table.columns == FIELDS]


def table_with(*columns: str) -> Table:
    (table,) = [table for table in page_tables(PAGE) if table.columns == columns]
    return table


# The field tables


def quoted(table: Table) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return table.columns, table.rows


def test_field_tables_are_those_of_the_docstrings() -> None:
    docstrings = docstring_tables(log_format.__doc__ or "") + docstring_tables(snapshot_format.__doc__ or "")
    assert len(docstrings) == 4
    assert [quoted(table) for table in field_tables()] == [quoted(table) for table in docstrings]


def test_fields_follow_on_each_other_and_fill_their_size() -> None:
    sizes = [
        log_format.SEGMENT_HEADER_SIZE,
        log_format.FRAME_HEADER_SIZE,
        snapshot_format.PRELUDE_SIZE,
        snapshot_format.TRAILER_SIZE,
    ]
    for table, total in zip(field_tables(), sizes, strict=True):
        at = 0
        for offset, size, _, _ in table.rows:
            assert int(offset) == at
            at += int(size)
        assert at == total
        assert re.search(rf"\b{total} bytes", table.caption), table.caption


def fields(table: Table, data: bytes) -> dict[str, bytes]:
    """Take bytes apart as a field table says."""
    return {field: data[int(offset) : int(offset) + int(size)] for offset, size, field, _ in table.rows}


def number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def test_segment_header_is_encoded_as_its_table_says() -> None:
    header = SegmentHeader(log_id=STORE_ID, generation=0x01020304, salt=b"SALT", first=0x0102030405060708)
    data = log_format.encode_segment_header(header)
    found = fields(field_tables()[0], data)
    assert found["magic"] == b"pystlog\n"
    assert number(found["format version"]) == 1
    assert number(found["generation"]) == header.generation
    assert found["log id"] == header.log_id
    assert found["salt"] == header.salt
    assert number(found["first sequence"]) == header.first
    assert number(found["checksum"]) == crc32(data[:44])


def test_frame_is_encoded_as_its_table_says() -> None:
    seed = int.from_bytes(b"SALT", "little")
    data = log_format.encode_frame(b"SALT", seed, 0x0102030405060708, 0x0807060504030201, b"payload")
    found = fields(field_tables()[1], data)
    assert found["salt"] == b"SALT"
    assert number(found["payload length"]) == len(b"payload")
    assert number(found["sequence"]) == 0x0102030405060708
    assert number(found["watermark"]) == 0x0807060504030201
    assert number(found["payload checksum"]) == crc32(b"payload", seed)
    assert number(found["header checksum"]) == crc32(data[:28], seed)
    assert data[32:] == b"payload"


def test_snapshot_is_encoded_as_its_tables_say() -> None:
    header = SnapshotHeader(store_id=STORE_ID, sequence=7, generation=2, next_family_id=2, families={"default": 1})
    head = snapshot_format.encode_head(header)
    data = head + snapshot_format.encode_tail(head, len(head), [snapshot_format.FamilyIndex(1, 0, [])])
    prelude, trailer = fields(field_tables()[2], data[:24]), fields(field_tables()[3], data[-32:])
    assert prelude["magic"] == b"pystsnp\n"
    assert number(prelude["format version"]) == 1
    assert number(prelude["header length"]) == len(head) - 24
    assert number(prelude["header checksum"]) == crc32(head[24:])
    assert number(prelude["checksum"]) == crc32(head[:20])
    index = data[len(head) : -32]
    assert number(trailer["index offset"]) == len(head)
    assert number(trailer["index length"]) == len(index)
    assert number(trailer["index checksum"]) == crc32(index)
    assert number(trailer["digest"]) == crc32(head + index)
    assert number(trailer["checksum"]) == crc32(data[-32:-12])
    assert trailer["end mark"] == b"pystend\n"


# What else the page quotes


@pytest.mark.parametrize("module", [log_format, snapshot_format], ids=lambda module: module.__name__.rpartition(".")[2])
def test_indented_blocks_of_the_docstrings_are_on_the_page(module: object) -> None:
    page = PAGE.read_text(encoding="utf-8")
    lines = re.findall(r"^    (\S.*)$", module.__doc__ or "", re.MULTILINE)
    assert lines
    for line in lines:
        for part in re.split(r" {3,}", line):
            assert part in page


def test_decision_table_is_that_of_recovery() -> None:
    known: dict[bool | str | None, str] = {None: "–", True: "yes", False: "no"}
    expected = tuple(
        tuple(known.get(cell, str(cell)) for cell in (*decision[:7], decision.why)) for decision in recovery.DECISIONS
    )
    table = table_with("row", "newest", "closed name", "ending", "follows", "proven", "action", "why")
    assert table.rows == expected


def test_facts_are_those_of_recovery() -> None:
    (table,) = [table for table in page_tables(PAGE) if table.columns == ("fact", "meaning")]
    assert tuple(row[0].replace(" ", "_") for row in table.rows) == recovery.Facts._fields


def test_limits_are_those_of_the_engine() -> None:
    rows = {what: limit for what, limit in table_with("what", "limit").rows}
    numbers = {what: int(re.findall(r"\d[\d,]*", limit)[-1].replace(",", "")) for what, limit in rows.items()}
    assert numbers["key"] == limits.KEY_BYTES_MAX
    assert numbers["value"] == limits.VALUE_BYTES_MAX
    assert numbers["payload of a frame"] == limits.COMMIT_BYTES_MAX
    assert numbers["families at once"] == limits.FAMILIES_MAX
    assert numbers["family id"] == number(log_format.pack_family_id(2**32 - 1))
    assert numbers["sequence"] == 2**64 - 1
    assert f"1 to {limits.FAMILY_NAME_BYTES_MAX} bytes" in rows["family name"]


def test_keys_of_the_snapshot_header_are_those_of_the_struct() -> None:
    rows = table_with("key", "type", "meaning").rows
    assert tuple(row[0].strip("`") for row in rows) == SnapshotHeader.__struct_fields__


def test_every_kind_of_file_is_in_the_table_of_the_directory() -> None:
    rows = table_with("name", "what it is", "what losing it costs").rows
    assert [row[0] for row in rows] == [f"`{name}`" for name in re.findall(r"^``(\S+)``", names.__doc__ or "", re.M)]


# The worked example


DUMPED = ("00000000000000000001.log", "00000000000000000004.snapshot")


@pytest.mark.parametrize("name", DUMPED)
def test_dump_shows_the_file_that_the_engine_writes(name: str, example: dict[str, bytes]) -> None:
    data = example[name]
    lines = [
        f"{at:04x}  {data[at : at + 16].hex(' '):<47}  " + "".join(map(printable, data[at : at + 16]))
        for at in range(0, len(data), 16)
    ]
    assert dumps()[name].text.splitlines() == lines


def printable(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 else "."


@pytest.mark.parametrize("name", DUMPED)
def test_notes_on_a_dump_leave_no_byte_out(name: str, example: dict[str, bytes]) -> None:
    data, at = example[name], 0
    for offset, text, _ in notes(name).rows:
        part = bytes.fromhex(text.strip("`"))
        assert int(offset, 16) == at
        assert data[at : at + len(part)] == part
        at += len(part)
    assert at == len(data)


@pytest.mark.parametrize("name", DUMPED)
def test_notes_on_a_dump_give_the_numbers_that_stand_there(name: str) -> None:
    """A note that ends in a decimal number says what its bytes, as an integer, are; so do its MessagePack lengths."""
    checked = 0
    for _, text, note in notes(name).rows:
        part = bytes.fromhex(text.strip("`"))
        said = re.fullmatch(
            r"(?:.*\b(?:length|sequence|watermark|generation|version|offset|family id|id) )?(\d+)", note
        )
        if said:
            packed = len(part) == 2 and part[0] == 0xCC
            assert int(said[1]) == (part[1] if packed else number(part)), note
            checked += 1
    assert checked > 10


def test_every_file_of_the_page_is_dumped() -> None:
    assert tuple(dumps()) == DUMPED
