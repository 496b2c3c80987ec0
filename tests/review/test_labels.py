"""The table of labels: plain, and its value knows its key."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import pystate
from pystate.errors import DecodeError, InvalidRecordError
from pystate.review.categories import EventCategory
from pystate.review.labels import LABEL_DATABASE, LabelDatabase, LabelDb, LabelDbKind

CATEGORIES = [
    "RECONNAISSANCE", "INITIAL_ACCESS", "EXECUTION", "CREDENTIAL_ACCESS", "DISCOVERY", "LATERAL_MOVEMENT",
    "COMMAND_AND_CONTROL", "EXFILTRATION", "IMPACT", "COLLECTION", "DEFENSE_EVASION", "PERSISTENCE",
    "PRIVILEGE_ESCALATION", "RESOURCE_DEVELOPMENT",
]  # fmt: skip


def label(name: str = "bad hosts", **fields: Any) -> LabelDb:
    known = LabelDb(
        id=7,
        name=name,
        description=None,
        kind=LabelDbKind.TOKEN,
        category=EventCategory.IMPACT,
        version="1.0",
        patterns=(b"a", b""),
    )
    return msgspec.structs.replace(known, **fields)


def new_labels() -> LabelDatabase:
    return LabelDatabase(LABEL_DATABASE, pystate.memory(families=["label database"]))


def test_categories_and_kinds_are_stored_by_their_place() -> None:
    assert [(each.name, each.value) for each in EventCategory] == [(name, at) for at, name in enumerate(CATEGORIES)]
    assert [(each.name, each.value) for each in LabelDbKind] == [("IP", 0), ("URL", 1), ("TOKEN", 2), ("REGEX", 3)]


def test_row_is_the_name_and_all_fields_in_order() -> None:
    labels = new_labels()
    labels.put(label(patterns=[b"a", b""]))
    assert labels.get("bad hosts") == label()
    row = LABEL_DATABASE.encode(label())
    assert LABEL_DATABASE.row_key(label()) == b"bad hosts"
    assert msgspec.msgpack.decode(row) == [7, "bad hosts", None, 2, 8, "1.0", [b"a", b""]]


def test_value_under_another_key_cannot_be_read() -> None:
    """Section 11: a value whose name is not that of the key is an error."""
    store = pystate.memory(families=["label database"])
    store.family("label database").put(b"other", LABEL_DATABASE.encode(label()))
    labels = LabelDatabase(LABEL_DATABASE, store)
    with pytest.raises(DecodeError, match="belongs under the key b'bad hosts'"):
        labels.get("other")
    assert labels.get("bad hosts") is None


@pytest.mark.parametrize(
    "fields", [{"id": -1}, {"name": ""}, {"kind": 9}, {"category": "impact"}, {"patterns": ("a",)}, {"version": None}]
)
def test_what_could_not_be_read_again_is_refused(fields: dict[str, Any]) -> None:
    labels = new_labels()
    with pytest.raises(InvalidRecordError):
        labels.put(label(**fields))
    assert list(labels.iter()) == []
