"""`Key`: composite keys from the fields of a record, and back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.engine import limits
from pystate.tables import Key, int64, optional, rest_text, segment, text, uint32
from pystate.tables.keys import KEY_BYTES_MAX

PAIR = Key(owner=text, number=uint32)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)


def test_a_key_is_its_parts_one_after_the_other() -> None:
    record = SimpleNamespace(owner="ann", number=7)
    assert PAIR.fields == ("owner", "number")
    assert PAIR.of(record) == PAIR.encode("ann", 7) == text.encode("ann") + uint32.encode(7)
    assert PAIR.decode(PAIR.of(record)) == PAIR.values(record) == ("ann", 7)
    assert Key(owner=rest_text).of(record) == b"ann"


def test_a_property_may_be_a_field_of_a_key() -> None:
    class Visit:
        @property
        def day(self) -> int:
            return -3

    assert Key(day=int64).of(Visit()) == int64.encode(-3)


@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
def test_different_tuples_never_share_a_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    for key in (Key(a=segment, b=segment), Key(a=text, b=text), Key(a=text, b=rest_text), Key(a=segment, b=rest_text)):
        assert (key.encode(*one) == key.encode(*other)) == (one == other)


@given(TEXTS, st.integers(0, 2**32 - 1))
def test_a_prefix_is_what_the_keys_with_these_values_begin_with(owner: str, number: int) -> None:
    assert PAIR.prefix() == b""
    assert PAIR.encode(owner, number).startswith(PAIR.prefix(owner))
    assert not PAIR.encode(owner + "x", number).startswith(PAIR.prefix(owner))


def test_an_error_names_the_field() -> None:
    with pytest.raises(ValueError, match="key field 'number': -1 is not in"):
        PAIR.encode("ann", -1)
    with pytest.raises(TypeError, match="key field 'owner': a str expected"):
        PAIR.prefix(3)
    with pytest.raises(ValueError, match="key field 'number': 4 bytes expected"):
        PAIR.decode(PAIR.prefix("ann"))
    with pytest.raises(ValueError, match="1 bytes too many after the key's last field 'number'"):
        PAIR.decode(PAIR.encode("ann", 1) + b"x")


def test_as_many_values_as_fields() -> None:
    with pytest.raises(TypeError, match=r"2 values expected \(owner, number\), 1 given"):
        PAIR.encode("ann")
    with pytest.raises(TypeError, match="at most 2 values"):
        PAIR.prefix("ann", 1, 2)


def test_a_key_that_cannot_be_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="a key needs a field"):
        Key()
    with pytest.raises(TypeError, match="key field 'name': a part expected, such as tables.text, not <class 'str'>"):
        Key(name=str)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="can only be its last"):
        Key(name=rest_text, number=uint32)
    assert Key(name=rest_text).ends_open
    assert not Key(name=optional(text)).ends_open


def test_the_longest_key_is_that_of_the_engine() -> None:
    assert KEY_BYTES_MAX == limits.KEY_BYTES_MAX
