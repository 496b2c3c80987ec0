"""Values rewritten from one shape to the next: the present one stays, the previous is converted, no other passes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate import FamilyNotFoundError, Rewriting
from pystate.errors import DecodeError, MixedShapesError, PystateError, UnknownShapeError
from pystate.formats import all_current, rewrite_values, values
from tests.formats.shop import Families, begin, contents

#: What a value may be, with what must become of it: the letter is the shape.
CONVERTED = {b"new": b"new", b"new!": b"new!", b"old 1": b"new 1", b"old 2": b"new 2"}
FOREIGN = [b"", b"foreign", b"old", b"ne"]

keys = st.sampled_from([b"", b"\x00", b"1", b"2", b"3", b"\xff"])


def new_shape(key: bytes, value: bytes) -> bytes:
    if not value.startswith(b"new"):
        raise ValueError(f"{value!r} is not new")
    return value


def old_shape(key: bytes, value: bytes) -> bytes:
    if not value.startswith(b"old "):
        raise ValueError(f"{value!r} is not old")
    return value[4:]


def convert(record: bytes) -> bytes:
    return b"new " + record


def rewritten(rewriting: Rewriting, **options: Any) -> int:
    arguments: dict[str, Any] = {"current": new_shape, "old": old_shape, "convert": convert, "kind": "word", **options}
    return rewrite_values(rewriting, "words", **arguments)


def of(rows: dict[bytes, bytes]) -> Families:
    return {"default": {b"k": b"old 1"}, "words": rows}


both_orders = pytest.mark.parametrize("old_first", [False, True], ids=["current first", "old first"])


@both_orders
@given(st.dictionaries(keys, st.sampled_from([*CONVERTED, *FOREIGN])), st.integers(1, 3))
def test_each_row_keeps_its_bytes_or_is_converted_or_stops_everything(
    old_first: bool, rows: dict[bytes, bytes], at_once: int
) -> None:
    """Run again it does nothing; stopped, it has changed nothing, and names the first row in key order."""
    rewriting = begin(of(rows))
    told: list[tuple[int, int]] = []
    foreign = sorted(key for key, value in rows.items() if value in FOREIGN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "_ROWS_AT_ONCE", at_once)
        if foreign:
            with pytest.raises(UnknownShapeError) as caught:
                rewritten(rewriting, old_first=old_first)
            value = rows[foreign[0]]
            error = caught.value
            assert (error.family, error.key, error.kind) == ("words", foreign[0], "word")
            assert (error.current, error.previous) == (f"{value!r} is not new", f"{value!r} is not old")
            assert contents(rewriting) == of(rows)
            return
        count = rewritten(rewriting, old_first=old_first, progress=lambda done, total: told.append((done, total)))
        assert count == sum(value.startswith(b"old") for value in rows.values())
        assert contents(rewriting) == of({key: CONVERTED[value] for key, value in rows.items()})
        assert rewritten(rewriting, old_first=old_first) == 0
    size = len(rows)
    assert told == [(min(done + at_once, size), size) for done in range(0, size, at_once)]


def test_error_names_the_record_the_key_and_both_reasons() -> None:
    """The key stands there in hex; the reasons bear the labels that people look for."""
    rewriting = begin(of({b"\x00\x07key": b"foreign value"}))
    with pytest.raises(UnknownShapeError) as caught:
        rewritten(rewriting, kind="agent")
    text = str(caught.value)
    assert "no agent" in text and "'words'" in text and b"\x00\x07key".hex() in text
    assert "current schema error: b'foreign value' is not new" in text
    assert "previous schema error: b'foreign value' is not old" in text
    assert {ValueError, PystateError} < set(type(caught.value).__mro__)
    for again in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert (str(again), vars(again)) == (text, vars(caught.value))


def test_reason_without_a_text_is_the_name_of_the_error() -> None:
    def nothing(key: bytes, value: bytes) -> object:
        raise ValueError

    with pytest.raises(UnknownShapeError, match="current schema error: ValueError; previous schema error: ValueError"):
        rewritten(begin(of({b"k": b""})), current=nothing, old=nothing)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        msgspec.DecodeError("x"),
        msgspec.ValidationError("x"),
        UnicodeDecodeError("utf-8", b"", 0, 0, "x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_decoders_mean_another_shape(error: Exception) -> None:
    def fails(key: bytes, value: bytes) -> bytes:
        raise error

    for old_first in (False, True):
        rewriting = begin(of({b"k": b"old 1"}))
        assert rewritten(rewriting, current=fails, old_first=old_first) == 1
        rewriting = begin(of({b"k": b"new"}))
        assert rewritten(rewriting, old=fails, old_first=old_first) == 0


def test_error_of_a_table_means_another_shape() -> None:
    def fails(key: bytes, value: bytes) -> bytes:
        raise DecodeError(family="words", key=key, kind="Word", reason="no word")

    assert rewritten(begin(of({b"k": b"old 1"})), current=fails) == 1


@both_orders
@pytest.mark.parametrize("broken", ["current", "old", "convert", "progress"])
@pytest.mark.parametrize("error", [KeyError("k"), ZeroDivisionError(), KeyboardInterrupt()], ids=repr)
def test_any_other_error_ends_it_as_it_is_and_nothing_has_changed(
    old_first: bool, broken: str, error: BaseException
) -> None:
    """A mistake in a decoder is not taken for a value of another shape."""
    rows = {b"1": b"old 1", b"2": b"new", b"3": b"new", b"4": b"old 2"}
    rewriting = begin(of(rows))
    calls = []
    right: dict[str, Callable[..., Any]] = {
        "current": new_shape, "old": old_shape, "convert": convert, "progress": lambda done, total: None
    }  # fmt: skip

    def fails(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > (broken != "progress"):
            raise error
        return right[broken](*arguments)

    with pytest.raises(type(error)) as caught:
        rewritten(rewriting, old_first=old_first, **{broken: fails})
    assert caught.value is error
    assert contents(rewriting) == of(rows)


def test_a_mistake_in_the_conversion_is_not_taken_for_a_shape() -> None:
    """Also if it is a ValueError."""

    def fails(record: bytes) -> bytes:
        raise ValueError("wrong")

    for old_first in (False, True):
        with pytest.raises(ValueError, match="^wrong$"):
            rewritten(begin(of({b"1": b"old 1"})), convert=fails, old_first=old_first)


def test_order_of_asking_decides_about_a_value_that_is_both() -> None:
    """`old_first` converts it, and must then make of it what only the present shape reads, or the same bytes."""
    rows = {b"k": b"0"}
    shapes: dict[str, Any] = {"current": lambda _, value: int(value), "old": lambda _, value: int(value[:1])}
    rewriting = begin(of(rows))
    assert rewritten(rewriting, **shapes, convert=lambda number: b"%d" % number) == 0
    assert rewritten(rewriting, **shapes, convert=lambda number: b"%d" % number, old_first=True) == 0
    assert rewritten(rewriting, **shapes, convert=lambda number: b"x%d" % number) == 0
    assert rewritten(rewriting, **shapes, convert=lambda number: b"x%d" % number, old_first=True) == 1
    assert contents(rewriting) == of({b"k": b"x0"})


def test_rows_that_are_skipped_are_not_looked_at() -> None:
    rows = {b"": b"foreign", b"1": b"old 1", b"2": b"also foreign"}
    rewriting = begin(of(rows))
    told: list[tuple[int, int]] = []
    progress = lambda done, total: told.append((done, total))  # noqa: E731
    assert rewritten(rewriting, skip=(b"", b"2"), progress=progress) == 1
    assert contents(rewriting) == of({**rows, b"1": b"new 1"})
    assert told == [(3, 3)]
    with pytest.raises(UnknownShapeError):
        rewritten(rewriting, skip={b"2"})


def test_keys_are_given_to_the_shapes() -> None:
    seen = []

    def shape(key: bytes, value: bytes) -> bytes:
        seen.append((key, value))
        return old_shape(key, value)

    rewritten(begin(of({b"1": b"old 1"})), current=shape, old=shape)
    assert seen == [(b"1", b"old 1")]


def test_a_family_that_is_not_there_cannot_be_rewritten() -> None:
    with pytest.raises(FamilyNotFoundError, match="'words'"):
        rewritten(begin({"default": {}}))
    with pytest.raises(FamilyNotFoundError, match="'words'"):
        all_current(begin({"default": {}}), "words", lambda key, value: True)


def test_what_is_no_value_is_refused() -> None:
    wrong: Any = lambda record: "text"  # noqa: E731
    with pytest.raises(TypeError, match="value"):
        rewritten(begin(of({b"1": b"old 1"})), convert=wrong)


def test_a_family_without_a_row_to_convert_is_not_copied() -> None:
    """What is shared with the present state stays shared, so that a second run costs no memory."""
    rewriting = begin(of({b"1": b"new", b"2": b"new"}))
    rewritten(rewriting)
    entry = rewriting._entries["words"]
    assert entry.state is entry.origin


# All or none


@given(st.dictionaries(keys, st.booleans()), st.sets(keys))
def test_all_rows_are_current_or_none_is(rows: dict[bytes, bool], skip: set[bytes]) -> None:
    """With a mix the error counts both, and names the first that is not; without any row there is nothing to do."""
    rewriting = begin(of({key: b"new" if new else b"old 1" for key, new in rows.items()}))
    current = [key for key, new in rows.items() if new and key not in skip]
    others = sorted(key for key, new in rows.items() if not new and key not in skip)

    def ask() -> bool:
        return all_current(rewriting, "words", lambda key, value: value == b"new", skip=skip)

    if current and others:
        with pytest.raises(MixedShapesError, match="family 'words': a mix of shapes") as caught:
            ask()
        error = caught.value
        assert (error.family, error.current, error.others) == ("words", len(current), len(others))
        assert error.key == others[0] and f"key {others[0].hex()}" in str(error)
    else:
        assert ask() is not bool(others)
