"""The next state while it is built: a mapping like any other, over a present state that does not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate import ClosedError, FamilyExistsError, FamilyNotFoundError, FamilyWriter, Rewriting
from pystate.engine import rewriting as module
from pystate.engine.family_state import FamilyState
from pystate.engine.limits import FAMILIES_MAX, KEY_BYTES_MAX
from tests.engine.model import ModelFamily, Operation, Scan, State, keys, operations, scans, selected, values

NAMES = ["default", "a", "b", "c"]
names = st.sampled_from(NAMES)
states = st.dictionaries(names, st.dictionaries(keys, values, max_size=6)).map(lambda state: {"default": {}, **state})

#: One call on the next state: an operation on a family, or a change of the families.
steps = st.one_of(
    st.tuples(names, operations),
    st.tuples(st.sampled_from(["create", "drop"]), names),
    st.tuples(st.just("rename"), names, names),
)


def begin(state: State) -> tuple[Rewriting, list[FamilyState]]:
    """A rewriting of these families, which are decoded when they are touched, and the families."""
    present = []
    for family_id, (name, entries) in enumerate(state.items(), start=1):
        family = FamilyState(family_id, name, lambda entries=entries: dict(entries))  # type: ignore[misc]
        present.append(family)
    rewriting = Rewriting(present, next_family_id=len(present) + 1, metadata={}, sequence=7, store_id="id")
    return rewriting, present


def contents(rewriting: Rewriting) -> State:
    return {name: dict(rewriting.family(name)) for name in rewriting.families}


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except (FamilyExistsError, FamilyNotFoundError, ValueError) as error:
        return type(error)


class Plain:
    """The families as dicts, with the rules of `Rewriting`."""

    def __init__(self, state: State) -> None:
        self.state = {name: dict(entries) for name, entries in state.items()}

    def run(self, step: tuple[Any, ...]) -> object:
        match step:
            case ("create", str(name)):
                if name in self.state:
                    return FamilyExistsError
                self.state[name] = {}
            case ("drop", str(name)):
                if name not in self.state:
                    return FamilyNotFoundError
                if name == "default":
                    return ValueError
                del self.state[name]
            case ("rename", str(old), str(new)):
                if old not in self.state:
                    return FamilyNotFoundError
                if new in self.state:
                    return FamilyExistsError
                if old == "default":
                    return ValueError
                self.state[new] = self.state.pop(old)
            case (str(name), operation):
                if name not in self.state:
                    return FamilyNotFoundError
                return operation.run(ModelFamily(self.state[name]))
        return None


def run(rewriting: Rewriting, step: tuple[Any, ...]) -> object:
    match step:
        case ("create", str(name)):
            rewriting.create_family(name)
        case ("drop", str(name)):
            rewriting.drop_family(name)
        case ("rename", str(old), str(new)):
            rewriting.rename_family(old, new)
        case (str(name), operation):
            return operation.run(rewriting.family(name))
    return None


@given(states, st.lists(steps, max_size=25), st.integers(0, 3))
def test_any_calls_do_what_they_do_to_plain_dicts_and_leave_the_present_state_alone(
    state: State, calls: list[tuple[Any, ...]], catch_up: int
) -> None:
    """A mapping in key order, whatever was written, dropped and renamed before."""
    rewriting, present = begin(state)
    plain = Plain(state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CATCH_UP_MAX", catch_up)
        for step in calls:
            assert outcome(lambda step=step: run(rewriting, step)) == plain.run(step)  # type: ignore[misc]
            assert rewriting.families == tuple(sorted(plain.state))
        assert contents(rewriting) == plain.state
    for entry in rewriting._end():
        entry.state.load()
        assert entry.state.values == plain.state[entry.name]
        entry.state.check()
    for family in present:
        family.load()
        assert family.values == state[family.name]


@given(st.dictionaries(keys, values, max_size=8), scans, st.lists(operations, max_size=6), st.integers(0, 4))
def test_a_scan_shows_the_family_as_of_the_call(
    entries: dict[bytes, bytes], scan: Scan, writes: list[Operation], before: int
) -> None:
    """Whatever is written between the call and its end."""
    rewriting, _ = begin({"default": entries})
    family, model = rewriting.family("default"), dict(entries)
    for operation in writes[:before]:
        operation.run(family)
        operation.run(ModelFamily(model))
    bounds = {"prefix": scan.prefix, "reverse": scan.reverse, "limit": scan.limit}
    expected = selected(model, scan.start, scan.stop, **bounds)  # type: ignore[arg-type]
    found = family.scan(scan.start, scan.stop, **bounds)  # type: ignore[arg-type]
    for operation in writes[before:]:
        operation.run(family)
    assert list(found) == expected


def test_every_row_can_be_rewritten_while_it_is_iterated() -> None:
    entries = {b"%04d" % number: b"v" for number in range(5000)}
    rewriting, _ = begin({"default": entries})
    family = rewriting.family("default")
    for key, value in family.items():
        family[key] = value + key
        if key.endswith(b"7"):
            del family[key]
            family[b"new" + key] = value
    assert list(family) == sorted(family)
    assert family[b"0001"] == b"v0001"
    assert len(family) == 5000
    assert next(iter(family.scan(b"new"))) == (b"new0007", b"v")


def test_keys_and_values_are_shared_and_a_map_is_copied_at_the_first_write_only() -> None:
    key, value = b"some key", b"some value"
    rewriting, [default, other, _] = begin({"default": {key: value}, "other": {key: value}, "third": {}})
    family = rewriting.family("default")
    list(family.items())
    list(family.scan(b"a"))
    rewriting.family("other")
    rewriting.rename_family("other", "another")
    by_name = {entry.name: entry for entry in rewriting._end()}
    assert by_name["default"].state is default
    assert by_name["another"].state is other
    rewriting, [default, other, _] = begin({"default": {key: value}, "other": {key: value}, "third": {}})
    family = rewriting.family("default")
    family[b"new"] = b"entry"
    family[b"more"] = b"entry"
    by_name = {entry.name: entry for entry in rewriting._end()}
    written = by_name["default"].state
    assert written is not default
    [kept] = [one for one in written.values if one == key]
    assert kept is key
    assert written.values[key] is value
    assert by_name["third"].state.loader is not None  # nobody has touched it


def test_a_family_keeps_its_id_and_a_new_one_gets_one_of_its_own() -> None:
    """Ids are never used twice, also when a new family is dropped again."""
    rewriting, _ = begin({"default": {}, "a": {}})
    rewriting.create_family("gone")
    rewriting.drop_family("gone")
    rewriting.rename_family("a", "b")
    rewriting.create_family("a")
    assert {entry.name: entry.state.id for entry in rewriting._end()} == {"default": 1, "b": 2, "a": 4}
    assert rewriting._next_family_id == 5


def test_handles_of_a_renamed_family_go_on_and_those_of_a_dropped_one_end() -> None:
    rewriting, _ = begin({"default": {}, "a": {b"k": b"v"}})
    handle = rewriting.family("a")
    handle[b"l"] = b"w"
    rewriting.rename_family("a", "b")
    assert handle.name == "b"
    assert rewriting.family("b") is handle
    handle[b"m"] = b"x"
    assert dict(handle) == {b"k": b"v", b"l": b"w", b"m": b"x"}
    rewriting.drop_family("b")
    rewriting.create_family("b")
    for use in USES:
        with pytest.raises(FamilyNotFoundError):
            use(handle)
    assert dict(rewriting.family("b")) == {}


USES: list[Callable[[FamilyWriter], object]] = [
    lambda family: family.get(b"k"),
    lambda family: b"k" in family,
    lambda family: family.scan(),
    lambda family: family.scan(b"a", b"a"),
    lambda family: len(family),
    lambda family: list(family),
    lambda family: family.put(b"k", b"v"),
    lambda family: family.__setitem__(b"k", b"v"),
    lambda family: family.delete(b"k"),
    lambda family: family.delete(b"not there"),
    lambda family: family.delete_range(None, None),
    lambda family: family.clear(),
    lambda family: family.pop(b"k", None),
]


def test_everything_ends_with_the_building() -> None:
    rewriting, _ = begin({"default": {b"k": b"v"}, "a": {}})
    read, written = rewriting.family("default"), rewriting.family("a")
    written[b"k"] = b"v"
    entries = {entry.name: entry for entry in rewriting._end()}
    for family in (read, written):
        for use in USES:
            with pytest.raises(ClosedError, match="has ended"):
                use(family)
    for call in (
        lambda: rewriting.families,
        lambda: rewriting.family("a"),
        lambda: rewriting.create_family("b"),
        lambda: rewriting.drop_family("a"),
        lambda: rewriting.rename_family("a", "b"),
    ):
        with pytest.raises(ClosedError):
            call()
    assert entries["a"].state.values == {b"k": b"v"}
    assert "ended" in repr(rewriting)


def test_wrong_arguments_change_nothing() -> None:
    """Row 78: keys and values by the limits of every family, names by those of every store."""
    rewriting, _ = begin({"default": {b"k": b"v"}})
    family = rewriting.family("default")
    long = b"k" * (KEY_BYTES_MAX + 1)
    wrong: list[tuple[type[Exception], Callable[[], object]]] = [
        (ValueError, lambda: family.put(long, b"")),
        (ValueError, lambda: family.delete(long)),
        (TypeError, lambda: family.put("k", b"")),  # type: ignore[arg-type]
        (TypeError, lambda: family.put(b"k", None)),  # type: ignore[arg-type]
        (TypeError, lambda: family.__setitem__(b"k", 1)),  # type: ignore[arg-type]
        (TypeError, lambda: family.update({b"k": b"w", "l": b""})),
        (TypeError, lambda: family.scan(limit="1")),  # type: ignore[arg-type]
        (ValueError, lambda: rewriting.create_family("")),
        (ValueError, lambda: rewriting.create_family("\n")),
        (TypeError, lambda: rewriting.family(b"default")),  # type: ignore[arg-type]
        (FamilyExistsError, lambda: rewriting.rename_family("default", "default")),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()
    [entry] = rewriting._end()
    assert entry.state is entry.origin


def test_buffers_are_copied() -> None:
    rewriting, _ = begin({"default": {}})
    key, value = bytearray(b"key"), bytearray(b"value")
    rewriting.family("default")[key] = value
    key[0] = value[0] = 0
    assert dict(rewriting.family("default")) == {b"key": b"value"}


def test_there_may_be_so_many_families_and_no_more() -> None:
    rewriting, _ = begin({"default": {}})
    for number in range(FAMILIES_MAX - 1):
        rewriting.create_family(str(number))
    with pytest.raises(ValueError, match=str(FAMILIES_MAX)):
        rewriting.create_family("one more")
    rewriting.drop_family("0")
    rewriting.create_family("one more")
