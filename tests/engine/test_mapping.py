"""The mapping interface over point reads and scans, on a family that is nothing but a dict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.engine.limits import KEY_BYTES_MAX, Buffer, as_key, as_value
from pystate.engine.mapping import FamilyWriter, check_limit, prefix_end, scan_bounds

T = TypeVar("T")
keys = st.binary(max_size=4) | st.sampled_from([b"\xff", b"\xff\xff", b"a\xff", b"a\xff\xff", b"a\xff\xfe", b""])


class PlainFamily(FamilyWriter):
    """The smallest subclass: reads, scans and writes a dict, and counts its commits."""

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self.dict = dict(values)
        self.commits = 0
        self._inside = False

    @property
    def name(self) -> str:
        return "plain"

    def scan(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        bounds = scan_bounds(start, stop, prefix)
        found = [(key, value) for key, value in sorted(self.dict.items(), reverse=reverse) if bounds.contains(key)]
        return iter(found[: check_limit(limit)])

    def __len__(self) -> int:
        return len(self.dict)

    def _read(self, key: bytes) -> bytes | None:
        return self.dict.get(key)

    def put(self, key: Buffer, value: Buffer) -> None:
        self._atomically(lambda _: self.dict.__setitem__(as_key(key), as_value(value)))

    def delete(self, key: Buffer) -> None:
        self._atomically(lambda _: self.dict.pop(as_key(key), None))

    def delete_range(self, start: Buffer | None, stop: Buffer | None) -> None:
        def action(_: FamilyWriter) -> None:
            for key, _value in self.scan(start, stop):
                del self.dict[key]

        self._atomically(action)

    def _atomically(self, action: Callable[[FamilyWriter], T]) -> T:
        outermost, self._inside = not self._inside, True
        before = dict(self.dict)
        try:
            result = action(self)
        except BaseException:
            self.dict = before
            raise
        finally:
            self._inside = not outermost
        self.commits += outermost and before != self.dict
        return result


@given(keys, st.lists(keys))
def test_prefix_end_is_the_smallest_key_above_every_key_with_the_prefix(prefix: bytes, others: list[bytes]) -> None:
    """Row 76: prefixes that end in 0xff, the empty one, and the one that is all 0xff."""
    end = prefix_end(prefix)
    for key in [*others, prefix, prefix + b"\xff" * 3, prefix + b"\0"]:
        assert key.startswith(prefix) == (key >= prefix and (end is None or key < end))
    assert (end is None) == (prefix.strip(b"\xff") == b"")


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        (b"", None), (b"a", b"b"), (b"a\xff", b"b"), (b"\xff", None), (b"\xff\xff", None), (b"\xfe\xff", b"\xff"),
        (b"a\xffb", b"a\xffc"), (b"x", b"y"), (b"\\", b"]"), (b"f", b"g"), (b"\0", b"\x01"),
    ],
)  # fmt: skip
def test_prefix_end_of_known_prefixes(prefix: bytes, end: bytes | None) -> None:
    """Row 76: by example. Once `x`, `f` and the backslash were taken for parts of 0xff."""
    assert prefix_end(prefix) == end


@given(st.none() | keys, st.none() | keys, st.none() | keys, keys)
def test_bounds_mean_what_satisfies_all(
    start: bytes | None, stop: bytes | None, prefix: bytes | None, key: bytes
) -> None:
    """Row 76: start inclusive, stop exclusive, a prefix in addition."""
    wanted = (
        (start is None or key >= start) and (stop is None or key < stop) and (prefix is None or key.startswith(prefix))
    )
    assert scan_bounds(start, stop, prefix).contains(key) == wanted


def test_bounds_of_other_buffers_are_taken_and_of_other_types_refused() -> None:
    """Row 78: bytearray and memoryview as everywhere; text is a mistake; too long is too long."""
    bounds = scan_bounds(bytearray(b"a"), memoryview(b"c"), None)
    assert (bounds.low, bounds.high) == (b"a", b"c")
    wrong: Any
    for wrong in ("a", 1, True, [b"a"]):
        for arguments in ((wrong, None, None), (None, wrong, None), (None, None, wrong)):
            with pytest.raises(TypeError):
                scan_bounds(*arguments)
    with pytest.raises(ValueError, match="limit"):
        scan_bounds(b"k" * (KEY_BYTES_MAX + 1), None, None)


@pytest.mark.parametrize("limit", [None, 0, 1, 10**9])
def test_limit_that_is_one_passes(limit: int | None) -> None:
    """None is no limit, 0 is nothing."""
    assert check_limit(limit) == limit


@pytest.mark.parametrize("limit", ["1", 1.0, True, b"1", [1]], ids=repr)
def test_limit_of_another_type_is_refused(limit: object) -> None:
    """True is not one."""
    with pytest.raises(TypeError, match="limit"):
        check_limit(limit)


def test_limit_below_zero_is_refused() -> None:
    """As in a slice it would mean something else."""
    with pytest.raises(ValueError, match="negative"):
        check_limit(-1)


entries = st.dictionaries(keys, st.binary(max_size=3), max_size=8)


@given(entries, keys)
def test_family_read_is_a_sorted_dict(values: dict[bytes, bytes], key: bytes) -> None:
    """Design section 3: a mapping in key order, with views of keys, values and items, in both directions."""
    family = PlainFamily(values)
    ordered = sorted(values.items())
    assert list(family) == list(family.keys()) == [k for k, _ in ordered]
    assert list(family.values()) == [v for _, v in ordered]
    assert list(family.items()) == ordered
    assert list(reversed(family)) == list(reversed(family.keys())) == [k for k, _ in reversed(ordered)]  # type: ignore[call-overload]
    assert list(reversed(family.values())) == [v for _, v in reversed(ordered)]  # type: ignore[call-overload]
    assert list(reversed(family.items())) == ordered[::-1]  # type: ignore[call-overload]
    assert (key in family) == (key in family.keys()) == (key in values)
    assert family.get(key) == values.get(key)
    assert family.get(key, b"?") == values.get(key, b"?")
    assert family.get(bytearray(key)) == values.get(key)  # type: ignore[call-overload]
    assert len(family.keys()) == len(family.items()) == len(values)
    assert all(item in family.items() for item in ordered)
    assert (key, b"no such value") not in family.items()
    assert family == values
    assert family.keys() & {key} == values.keys() & {key}
    if key in values:
        assert family[key] == values[key]
        assert values[key] in family.values()
    else:
        with pytest.raises(KeyError) as caught:
            family[key]
        assert caught.value.args == (key,)


@given(entries, keys, st.binary(max_size=3))
def test_family_written_is_a_dict(values: dict[bytes, bytes], key: bytes, value: bytes) -> None:
    """Design section 3: a ``MutableMapping``; each call is atomic (`update` is where a subclass makes it so)."""
    calls: list[Callable[[Any], object]] = [
        lambda family: family.__setitem__(key, value),
        lambda family: family.pop(key, None),
        lambda family: family.pop(key, b"default"),
        lambda family: family.setdefault(key, value),
        lambda family: family.update({key: value, b"other": b""}),
        lambda family: family.update([(key, value), (key, b"last")]),
        lambda family: family.update({}),
        lambda family: family.clear(),
    ]
    updates = calls[4:6]
    for call in calls:
        family, plain = PlainFamily(values), dict(values)
        assert call(family) == call(plain)
        assert family.dict == plain
        assert family.commits == (plain != values) or call in updates


@given(entries, keys)
def test_deleting_and_popping_an_absent_key_is_a_key_error_and_deleting_by_name_is_not(
    values: dict[bytes, bytes], key: bytes
) -> None:
    """Design section 3: ``delete`` is blind, ``del`` is not."""
    present = key in values
    delete: Callable[[PlainFamily], object] = lambda family: family.__delitem__(key)  # noqa: E731
    pop: Callable[[PlainFamily], object] = lambda family: family.pop(key)  # noqa: E731
    for call in (delete, pop):
        family = PlainFamily(values)
        if present:
            call(family)
            assert key not in family.dict
        else:
            with pytest.raises(KeyError) as caught:
                call(family)
            assert caught.value.args == (key,)
            assert family.dict == values
    family = PlainFamily(values)
    family.delete(key)
    assert family.dict == {k: v for k, v in values.items() if k != key}


@given(entries)
def test_popping_items_takes_them_in_order(values: dict[bytes, bytes]) -> None:
    """The first key first; an empty family is a KeyError."""
    family = PlainFamily(values)
    assert [family.popitem() for _ in values] == sorted(values.items())
    with pytest.raises(KeyError, match="empty"):
        family.popitem()


def test_update_with_anything_wrong_writes_nothing() -> None:
    """Row 47: every pair is looked at before the first is written."""
    family = PlainFamily({b"k": b"v"})
    wrong: Any
    for wrong in ({b"a": b"1", "b": b"2"}, [(b"a", b"1"), (b"b", None)], [(b"a", b"1"), (b"b",)], 5):
        with pytest.raises((TypeError, ValueError)):
            family.update(wrong)
        assert family.dict == {b"k": b"v"}
    with pytest.raises(TypeError, match="keyword"):
        family.update(a=b"1")

    def pairs() -> Iterator[tuple[bytes, bytes]]:
        yield b"a", b"1"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        family.update(pairs())
    assert family.dict == {b"k": b"v"}


def test_default_that_is_wrong_is_refused_also_when_it_is_not_needed() -> None:
    """Row 78: a wrong call does not depend on what is stored."""
    family = PlainFamily({b"k": b"v"})
    wrong: Any = "text"
    for key in (b"k", b"absent"):
        with pytest.raises(TypeError):
            family.setdefault(key, wrong)
    assert family.setdefault(b"new") == b""
    assert family.dict == {b"k": b"v", b"new": b""}


def test_key_of_a_wrong_type_is_refused_everywhere() -> None:
    """Row 77: not "absent", which would hide the mistake."""
    family = PlainFamily({})
    key: Any = "k"
    for call in (
        lambda: family.get(key),
        lambda: family[key],
        lambda: key in family,
        lambda: family.pop(key),
        lambda: family.pop(key, None),
        lambda: family.setdefault(key),
        lambda: family.__setitem__(key, b""),
        lambda: family.__delitem__(key),
    ):
        with pytest.raises(TypeError):
            call()


def test_views_are_live_and_say_what_they_are() -> None:
    """As with a dict: a view shows what is there when it is iterated."""
    family = PlainFamily({b"a": b"1"})
    items, view, values = family.items(), family.keys(), family.values()
    family[b"b"] = b"2"
    assert (list(items), list(view), list(values)) == ([(b"a", b"1"), (b"b", b"2")], [b"a", b"b"], [b"1", b"2"])
    assert repr(family) == "<PlainFamily 'plain'>"
