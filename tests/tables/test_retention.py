"""`RetentionIndex`: whatever is stored and deleted, it finds what a plain model of the records says may go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate import Store
from pystate.errors import DecodeError, InvalidRecordError
from pystate.tables import BoundTable, Key, RetentionIndex, Table, boolean, int64, optional, rest_text, text, uint8


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """A build of a branch of a project; those that are done are kept for a while, pinned ones until they are not."""

    name: str
    project: str
    branch: int | None
    number: int
    urgent: bool
    done: bool
    pinned: bool


HISTORY: RetentionIndex[Build] = RetentionIndex(
    "history",
    history_tag=0xFE,
    superseded_tag=0xF8,
    counts_tag=0xFA,
    group=Key(project=text, branch=optional(uint8)),
    order=Key(urgent=boolean, number=int64),
    member=lambda build: build.done,
    expendable=lambda build: not build.pinned,
)
BUILDS = Table(Build, family="builds", key=Key(name=text), indexes=[HISTORY])


def build(name: str, number: int = 0, **fields: Any) -> Build:
    given = {"project": "p", "branch": None, "urgent": False, "done": True, "pinned": False}
    return Build(name=name, number=number, **given | fields)


@pytest.fixture
def store() -> Iterator[Store]:
    with pystate.memory(families=["builds"]) as store:
        yield store
        assert BUILDS.bind(store).check() == []


@pytest.fixture
def builds(store: Store) -> BoundTable[Build]:
    return BUILDS.bind(store)


Group: TypeAlias = tuple[str, int | None]


@dataclass
class Model:
    """The records by name. What has been made unreadable is still in the index, as it was last written."""

    records: dict[str, Build] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)

    def groups(self) -> dict[Group, list[Build]]:
        """The members of each group, oldest first."""
        groups: dict[Group, list[Build]] = {}
        for each in sorted(self.records.values(), key=lambda each: (each.urgent, each.number, each.name.encode())):
            if each.done:
                groups.setdefault((each.project, each.branch), []).append(each)
        return groups

    def superseded_before(self, order: tuple[bool, int] | None) -> list[str]:
        found = [
            each
            for members in self.groups().values()
            for each in members[:-1]
            if not each.pinned and (order is None or (each.urgent, each.number) < order)
        ]
        return [each.name for each in sorted(found, key=lambda each: (each.urgent, each.number, each.name.encode()))]

    def beyond(self, keep: int) -> set[str]:
        return {
            each.name
            for members in self.groups().values()
            for rank, each in enumerate(reversed(members), 1)
            if rank > 1 and rank > keep and not each.pinned
        }

    def newest_beside(self, record: Build) -> str | None:
        members = self.groups().get((record.project, record.branch))
        return members[-1].name if members else None


def agrees(store: Store, model: Model) -> None:
    """Everything that can be asked of the index is as in the model."""
    rows = store.family("builds")
    for order in (None, *((urgent, number) for urgent in (False, True) for number in range(-2, 4))):
        found = [text.decode(key, 0)[0] for key in HISTORY.superseded_before(rows, *order or ())]
        assert found == model.superseded_before(order)
    for keep in range(6):
        beyond = [text.decode(key, 0)[0] for key in HISTORY.beyond(rows, keep)]
        assert sorted(beyond) == sorted(model.beyond(keep))
    for record in model.records.values():
        newest = HISTORY.newest_beside(rows, record)
        assert (newest if newest is None else text.decode(newest, 0)[0]) == model.newest_beside(record)
    problems = BUILDS.bind(store).check()
    if not model.unreadable:
        assert problems == []


NAMES = ["a", "b", "aa", "\0", "a\0", "\0\xff", "ÿ"]
BUILD = st.builds(
    Build,
    name=st.sampled_from(NAMES),
    project=st.sampled_from(["", "p", "p\0"]),
    branch=st.none() | st.integers(0, 1),
    number=st.integers(-1, 2),
    urgent=st.booleans(),
    done=st.sampled_from([True, True, True, False]),
    pinned=st.sampled_from([False, False, True]),
)
ONE_GROUP = st.builds(build, st.sampled_from(NAMES), st.integers(-1, 2), pinned=st.booleans(), done=st.booleans())
STEP = st.one_of(
    BUILD,
    ONE_GROUP,
    ONE_GROUP,
    st.tuples(st.sampled_from(["delete", "overwrite"]), st.sampled_from(NAMES)),
    st.tuples(st.just("move"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
)


def apply(store: Store, model: Model, step: Any) -> None:
    """Do one thing to the table and to the model."""
    builds = BUILDS.bind(store)
    match step:
        case Build():
            if step.name in model.unreadable:
                with pytest.raises(DecodeError):
                    builds.put(step)
            else:
                builds.put(step)
                model.records[step.name] = step
        case ("delete", name):
            builds.delete(name)
            model.records.pop(name, None)
            model.unreadable.discard(name)
        case ("overwrite", name):
            if name in model.records:
                store.family("builds").put(text.encode(name), b"nothing that can be read")
                model.unreadable.add(name)
        case ("move", name, other):
            old = model.records.get(name)
            if old is not None and name not in model.unreadable and other not in model.records:
                model.records[other] = msgspec.structs.replace(model.records.pop(name), name=other)
                builds.update(old, model.records[other])


@given(st.lists(STEP, max_size=25))
def test_index_finds_what_a_model_of_the_records_finds(steps: list[Any]) -> None:
    """Ties, members that cease to be, moves between groups and to other keys, rows that cannot be read."""
    with pystate.memory(families=["builds"]) as store:
        model = Model()
        for step in steps:
            apply(store, model, step)
            agrees(store, model)
        for name in list(model.unreadable):
            apply(store, model, ("delete", name))
        agrees(store, model)
        for name in NAMES:
            apply(store, model, ("delete", name))
        assert dict(store.family("builds")) == {}


@given(st.lists(BUILD, max_size=12), st.data())
def test_index_made_anew_is_the_same(records: list[Build], data: st.DataObject) -> None:
    """`rebuild_indexes` brings back whatever is lost, and takes away what is too much."""
    with pystate.memory(families=["builds"]) as store:
        builds, rows = BUILDS.bind(store), store.family("builds")
        for record in records:
            builds.put(record)
        expected = dict(rows)
        index_rows = [key for key in expected if key >= b"\xf8"]
        wrong = data.draw(st.sets(st.sampled_from(index_rows))) if index_rows else set()
        for key in wrong:
            rows.delete(key)
        rows.put(b"\xfa\x00 no such group", b"\0\0\0\1")
        assert {problem.key for problem in builds.check()} == wrong | {b"\xfa\x00 no such group"}
        assert builds.rebuild_indexes() == len(wrong) + 1
        assert dict(rows) == expected


def test_rows_are_as_the_module_says(store: Store, builds: BoundTable[Build]) -> None:
    """The bytes of every row, for two members of one group."""
    builds.put(build("a", 1, pinned=True))
    builds.put(build("b", 2))
    builds.put(build("c", 3))
    group, name = b"p\0\0" + b"\0\0", {each: each.encode() + b"\0\0" for each in "abc"}
    place = {
        each: b"\0" + (2**63 + number).to_bytes(8, "big") + name[each].replace(b"\0", b"\0\xff") + b"\0\0"
        for number, each in enumerate("abc", 1)
    }
    assert {key: value for key, value in store.family("builds").items() if key >= b"\xf8"} == {
        b"\xfe" + group + place["a"]: b"\0" + name["a"],
        b"\xfe" + group + place["b"]: b"\1" + name["b"],
        b"\xfe" + group + place["c"]: b"\1" + name["c"],
        b"\xf8" + place["b"]: name["b"],
        b"\xfa\0" + group: b"\0\0\0\3" + place["c"],
        b"\xfa\1\xff\xff\xff\xfc" + group: b"",
    }


def test_group_of_one_is_not_among_those_that_may_have_too_many(store: Store, builds: BoundTable[Build]) -> None:
    builds.put(build("a"))
    assert [key for key in store.family("builds") if key.startswith(b"\xfa\1")] == []
    assert list(HISTORY.beyond(store.family("builds"), 0)) == []


def test_what_is_no_member_has_no_row(store: Store, builds: BoundTable[Build]) -> None:
    builds.put(build("a", done=False))
    assert list(store.family("builds")) == [b"a\0\0"]
    assert HISTORY.newest_beside(store.family("builds"), build("a")) is None


@pytest.mark.parametrize("keep", [-1, 1.0, True, None], ids=str)
def test_keep_is_a_number_from_zero(store: Store, keep: Any) -> None:
    with pytest.raises(ValueError, match="from 0"):
        list(HISTORY.beyond(store.family("builds"), keep))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"history_tag": 0xF7}, "tag"),
        ({"superseded_tag": 256}, "tag"),
        ({"counts_tag": None}, "tag"),
        ({"group": Key(project=rest_text)}, "group and order"),
        ({"order": Key(project=rest_text)}, "group and order"),
        ({"name": ""}, "name"),
    ],
    ids=str,
)
def test_declaration_that_cannot_work_is_refused(fields: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "name": "history",
        "history_tag": 0xF8,
        "superseded_tag": 0xF9,
        "counts_tag": 0xFA,
        "group": Key(project=text),
        "order": Key(number=int64),
        "member": lambda build: build.done,
        "expendable": lambda build: not build.pinned,
    }
    given = good | fields
    with pytest.raises(ValueError, match=message):
        RetentionIndex(given.pop("name"), **given)


def test_three_tags_of_one_index_must_differ() -> None:
    index = RetentionIndex[Build](
        "history",
        history_tag=0xF8,
        superseded_tag=0xF8,
        counts_tag=0xFA,
        group=Key(project=text),
        order=Key(number=int64),
        member=lambda build: build.done,
        expendable=lambda build: not build.pinned,
    )
    with pytest.raises(ValueError, match="share the tag"):
        Table(Build, family="builds", key=Key(name=text), indexes=[index])


def test_record_whose_place_would_be_too_long_is_refused(store: Store, builds: BoundTable[Build]) -> None:
    """Zeros take more room in it than in the key of the record; nothing is written."""
    with store.begin() as txn:
        with pytest.raises(InvalidRecordError, match="'history'.* bytes"):
            BUILDS.bind(txn).put(build("\0" * 25_000))
        assert dict(txn.family("builds")) == {}
    assert dict(store.family("builds")) == {}


@pytest.mark.parametrize("members", [10, 1000])
def test_what_stays_costs_nothing(builds: BoundTable[Build], store: Store, members: int) -> None:
    """Rows that are looked at when two of a group may go, and when none may, however many stay."""
    builds.insert_many([build(f"stays {number}", number, project=f"{number}") for number in range(members)])
    builds.insert_many([build(f"pinned {number}", number, project="pinned", pinned=True) for number in range(members)])
    builds.insert_many([build(f"goes {number}", number, project="goes") for number in range(5)])
    rows = Counting(store)
    assert len(list(HISTORY.superseded_before(rows, False, 2))) == 2  # type: ignore[arg-type]
    assert rows.seen == 2
    rows = Counting(store)
    assert list(HISTORY.beyond(rows, members)) == []  # type: ignore[arg-type]
    assert rows.seen == 1


class Counting:
    """A family that counts the rows that are read from it."""

    def __init__(self, store: Store) -> None:
        self._family = store.family("builds")
        self.seen = 0

    def scan(self, *bounds: Any, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        for row in self._family.scan(*bounds, **options):
            self.seen += 1
            yield row
