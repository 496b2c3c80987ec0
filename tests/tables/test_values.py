"""Value codecs: strict both ways, errors that name the field."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.tables import Key, PositionalValue, WholeValue, text, uint32

U32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Aware = Annotated[datetime, msgspec.Meta(tz=True)]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    weight: U32 = 1
    due: Aware | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    owner: str
    number: U32
    title: str
    tags: list[str]
    due: Aware | None


KEY = Key(owner=text, number=uint32)
ROW = Row(owner="ann", number=7, title="t", tags=["x"], due=datetime(2026, 1, 2, tzinfo=UTC))
positional = PositionalValue(Row, KEY)
whole = WholeValue(Task)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    TEXTS, st.integers(0, 2**32 - 1), TEXTS, st.lists(TEXTS, max_size=3),
    st.none() | st.datetimes(timezones=st.just(UTC)),
)  # fmt: skip
def test_a_row_comes_back(owner: str, number: int, title: str, tags: list[str], due: datetime | None) -> None:
    row = Row(owner=owner, number=number, title=title, tags=tags, due=due)
    value = positional.encode(row)
    assert positional.decode(KEY.of(row), value) == row
    assert msgspec.msgpack.decode(value)[:2] == [title, tags]
    task = Task(name=owner, weight=number, due=due)
    assert whole.decode(b"", whole.encode(task)) == task


def test_the_key_is_not_stored_twice() -> None:
    assert msgspec.msgpack.decode(positional.encode(ROW)) == ["t", ["x"], datetime(2026, 1, 2, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["t", ["x"]], "an array of 3 expected, an array of 2 found"),
        (["t", ["x"], None, None], "an array of 3 expected, an array of 4 found"),
        ([None] * 20, "an array of 3 expected, an array of 20 found"),
        ({}, "something that begins with 80"),
        (["t", "x", None], "field 'tags': Expected `array`, got `str`"),
        (["t", [1], None], r"field 'tags\[0\]': Expected `str`, got `int`"),
        ([1, [], None], "field 'title': Expected `str`, got `int`"),
        (["t", [], datetime(2026, 1, 1)], "field 'due'"),  # noqa: DTZ001
    ],
)
def test_a_stored_value_of_another_shape_is_refused(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        positional.decode(KEY.of(ROW), msgspec.msgpack.encode(value))


def test_what_is_left_over_or_missing_is_refused() -> None:
    value = positional.encode(ROW)
    for damaged, said in (
        (value + b"\0", "trailing"),
        (value[:-1], "truncated"),
        (b"", "nothing found"),
    ):
        with pytest.raises(ValueError, match=said):
            positional.decode(KEY.of(ROW), damaged)
    with pytest.raises(ValueError, match="key field 'number'"):
        positional.decode(KEY.of(ROW)[:-1], value)
    for damaged in (b"", whole.encode(Task(name="a")) + b"\0"):
        with pytest.raises(ValueError, match=r"truncated|trailing"):
            whole.decode(b"", damaged)


@given(st.binary(max_size=40))
def test_garbage_is_a_record_or_a_value_error(garbage: bytes) -> None:
    for codec in (positional, whole):
        try:
            codec.decode(KEY.of(ROW), garbage)
        except ValueError:
            pass


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"title": 5}, "field 'title': Expected `str`, got `int`"),
        ({"number": -1}, "field 'number'"),
        ({"number": 2**32}, "field 'number'"),
        ({"due": datetime(2026, 1, 1)}, "field 'due': Expected `datetime` with a timezone"),  # noqa: DTZ001
        ({"title": "\ud800"}, "surrogates not allowed"),
        ({"title": object()}, "Encoding objects of type object is unsupported"),
        ({"tags": [2**70]}, "."),
    ],
)
def test_nothing_is_encoded_that_could_not_be_read_again(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        positional.encode(msgspec.structs.replace(ROW, **change))
    if "title" in change:
        with pytest.raises(ValueError, match=said.replace("title", "name")):
            whole.encode(Task(name=change["title"]))


class Colour(Enum):
    RED = 0
    OTHER = 1

    @classmethod
    def _missing_(cls, value: object) -> Colour:
        return cls.OTHER


class Painted(msgspec.Struct, frozen=True, kw_only=True):
    colour: Colour
    share: float = 0.5


def test_a_record_that_would_be_read_as_another_one_is_refused() -> None:
    codec = WholeValue(Painted)
    for share in (0.5, float("nan"), 1):
        codec.encode(Painted(colour=Colour.RED, share=share))
    with pytest.raises(ValueError, match="field 'colour': 9 would be read as another value"):
        codec.encode(Painted(colour=9))  # type: ignore[arg-type]


class Place(msgspec.Struct, frozen=True):
    colour: Colour


class Nested(msgspec.Struct, frozen=True, kw_only=True):
    place: Place | None = None
    colours: list[Colour] = []
    anything: dict[str, Any] = {}


class Narrow(Nested, frozen=True, kw_only=True):
    """The same fields, and another class."""


@pytest.mark.parametrize(
    "given",
    [
        Nested(place=Place(0)),  # type: ignore[arg-type]
        Nested(colours=[0]),  # type: ignore[list-item]
        Nested(anything={"x": (1,)}),
        Nested(anything={"x": [(1,)]}),
        Nested(anything={"x": {1, 2}}),
        Nested(anything={"x": Place(Colour.RED)}),
        Narrow(),
    ],
    ids=["in a record", "in a list", "tuple", "tuple in a list", "set", "record", "subclass"],
)
def test_what_would_be_read_as_another_value_is_refused_at_every_depth(given: Nested) -> None:
    codec = WholeValue(Nested)
    with pytest.raises(ValueError, match="would be read as a"):
        codec.encode(given)
    codec.encode(Nested(place=Place(Colour.RED), colours=[Colour.OTHER], anything={"x": [float("nan"), {"y": 1}]}))


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="recursion"):
        WholeValue(Nested).encode(Nested(anything={"x": deep}))


def test_a_struct_that_cannot_be_stored_by_position_is_refused() -> None:
    class Mapped(msgspec.Struct):
        owner: str
        number: int

    class Swapped(msgspec.Struct, array_like=True):
        number: int
        owner: str

    class Defaulted(msgspec.Struct, array_like=True):
        owner: str
        number: int
        note: str = ""

    for kind, said in (
        (Mapped, "array_like=True"),
        (Swapped, "must begin with the fields of its key: owner, number"),
        (Defaulted, "can have no defaults"),
        (int, "."),
    ):
        with pytest.raises(TypeError, match=said):
            PositionalValue(kind, KEY)
    with pytest.raises(TypeError):
        WholeValue(int)


def test_an_array_of_sixteen_and_more_positions_has_a_long_header() -> None:
    fields: list[tuple[str, type]] = [(f"f{number}", int) for number in range(18)]
    wide: Any = msgspec.defstruct("Wide", fields, array_like=True)
    codec: PositionalValue[Any] = PositionalValue(wide, Key(f0=uint32, f1=uint32))
    record = wide(*range(18))
    assert msgspec.msgpack.decode(codec.encode(record)) == list(range(2, 18))
    assert codec.decode(uint32.encode(0) + uint32.encode(1), codec.encode(record)) == record
