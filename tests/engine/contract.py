"""What every store promises, as tests that can be pointed at any store.

Derive a class whose name begins with ``Test`` and give it the fixture `store`: an open, empty store with the family
``default`` only, closed again when the test is over::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            with my_open() as store:
                yield store

The suite uses nothing but the public interface. Durability, locking and everything else that needs a disk is tested
elsewhere.
"""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pystate
from pystate import Family, Store, Transaction, View
from tests.engine.model import ModelFamily, Operation, bounds, keys, operations, selected, values


def property_test(
    *strategies: st.SearchStrategy[Any], examples: int = 60
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `hypothesis.given`, for tests that use one store for all their examples and empty it themselves."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        given_test = given(*strategies)(test)
        return settings(max_examples=examples, deadline=None, suppress_health_check=checks)(given_test)

    return decorate


def refill(family: Family, entries: dict[bytes, bytes]) -> None:
    """Make these the only entries of a family."""
    family.clear()
    family.update(entries)


class Boom(Exception):
    """An error of the caller's own."""


class StoreContract:
    """One conformance suite for every store; see the module's docstring for how to use it."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        raise NotImplementedError("the deriving class says how to open its store")

    @pytest.fixture
    def family(self, store: Store) -> Family:
        return store.family("default")

    @pytest.fixture
    def letters(self, family: Family) -> dict[bytes, bytes]:
        """Six entries in the family, and what they are."""
        entries = {letter: letter.upper() for letter in (b"a", b"b", b"c", b"d", b"e", b"f")}
        family.update(entries)
        return entries

    # ---- a family is a mapping in key order -------------------------------------------------------------------------

    def test_family_of_new_store_is_an_empty_mutable_mapping(self, store: Store, family: Family) -> None:
        """A new store has the family `default` and nothing in it, at sequence 0."""
        assert isinstance(family, MutableMapping)
        assert family.name == "default"
        assert store.families == ("default",)
        assert store.sequence == 0
        assert len(family) == 0
        assert list(family) == []
        assert not family

    def test_family_after_put_gives_the_value_everywhere(self, family: Family) -> None:
        """Row 77: `get`, `[]`, `in`, `len`, iteration and scans agree."""
        family.put(b"key", b"value")
        assert family.get(b"key") == b"value"
        assert family.get(b"key", b"other") == b"value"
        assert family[b"key"] == b"value"
        assert b"key" in family
        assert len(family) == 1
        assert list(family) == list(reversed(family)) == list(family.keys()) == [b"key"]
        assert list(family.values()) == [b"value"]
        assert list(family.items()) == list(family.scan()) == [(b"key", b"value")]

    def test_family_without_the_key_says_so_everywhere(self, family: Family) -> None:
        """Absence is the same to every way of asking."""
        family.put(b"key", b"value")
        assert family.get(b"other") is None
        assert family.get(b"other", b"default") == b"default"
        assert b"other" not in family
        with pytest.raises(KeyError) as caught:
            family[b"other"]
        assert caught.value.args == (b"other",)
        with pytest.raises(KeyError):
            del family[b"other"]
        with pytest.raises(KeyError):
            family.pop(b"other")
        family.delete(b"other")
        assert dict(family) == {b"key": b"value"}

    def test_family_with_empty_key_and_value_holds_them(self, family: Family) -> None:
        """Row 77: the empty key and the empty value are as good as any."""
        family[b""] = b""
        family[b"a"] = b""
        assert family[b""] == b""
        assert family.get(b"", b"default") == b""
        assert b"" in family
        assert list(family.items()) == [(b"", b""), (b"a", b"")]
        assert list(family.scan(b"", b"\0")) == [(b"", b"")]
        assert family.setdefault(b"", b"other") == b""
        del family[b""]
        assert list(family) == [b"a"]

    def test_family_iterates_in_key_order_whatever_the_order_of_writing(self, family: Family) -> None:
        """Order is that of bytes: shorter before longer, unsigned."""
        ordered = [b"", b"\0", b"\0\0", b"a", b"a\0", b"aa", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
        for index in (5, 0, 9, 3, 10, 1, 7, 2, 8, 4, 6):
            family[ordered[index]] = bytes([index])
        assert list(family) == list(family.keys()) == ordered
        assert list(reversed(family)) == ordered[::-1]
        assert list(family.values()) == [bytes([index]) for index in range(len(ordered))]
        assert list(family.items()) == [(key, bytes([index])) for index, key in enumerate(ordered)]

    def test_family_views_of_keys_values_and_items_follow_the_family(self, family: Family) -> None:
        """`keys()`, `values()` and `items()` are views, as of a dict."""
        keys_view, values_view, items_view = family.keys(), family.values(), family.items()
        family[b"b"] = b"2"
        family[b"a"] = b"1"
        assert list(keys_view) == [b"a", b"b"]
        assert list(values_view) == [b"1", b"2"]
        assert list(items_view) == [(b"a", b"1"), (b"b", b"2")]
        assert len(keys_view) == len(values_view) == len(items_view) == 2
        assert b"a" in keys_view
        assert b"2" in values_view
        assert (b"a", b"1") in items_view
        assert (b"a", b"2") not in items_view
        assert keys_view & {b"a", b"c"} == {b"a"}

    def test_family_overwritten_keeps_one_entry(self, family: Family) -> None:
        """The newest value is the only one."""
        family[b"key"] = b"old"
        family[b"key"] = b"new"
        assert family[b"key"] == b"new"
        assert len(family) == 1

    def test_family_key_deleted_and_put_again_is_there_once(self, family: Family) -> None:
        """A key that went and came back stands in scans once."""
        for value in (b"1", b"2", b"3"):
            family[b"key"] = value
            assert list(family.scan()) == [(b"key", value)]
            del family[b"key"]
            assert list(family.scan()) == []
        family[b"key"] = b"4"
        assert list(family) == [b"key"]

    def test_family_compares_equal_to_a_dict_of_the_same_entries(
        self, family: Family, letters: dict[bytes, bytes]
    ) -> None:
        """A mapping equals a mapping."""
        assert family == letters
        assert family != {**letters, b"g": b"G"}

    @pytest.mark.parametrize("buffer", [bytearray, memoryview], ids=["bytearray", "memoryview"])
    def test_key_and_value_given_as_buffers_are_taken_as_bytes(
        self, family: Family, buffer: Callable[[bytes], bytearray | memoryview]
    ) -> None:
        """Every method takes the three kinds of buffer and gives `bytes`."""
        family.put(buffer(b"a"), buffer(b"1"))
        family[buffer(b"b")] = buffer(b"2")
        assert family.setdefault(buffer(b"c"), buffer(b"3")) == b"3"
        family.update([(buffer(b"d"), buffer(b"4")), (buffer(b"e"), buffer(b"5"))])
        assert family[buffer(b"a")] == b"1"
        assert family.__contains__(buffer(b"b"))
        assert list(family.scan(buffer(b"b"), buffer(b"d"))) == [(b"b", b"2"), (b"c", b"3")]
        assert list(family.scan(prefix=buffer(b"c"))) == [(b"c", b"3")]
        assert {type(part) for pair in family.items() for part in pair} == {bytes}
        del family[buffer(b"a")]
        family.delete(buffer(b"b"))
        assert family.pop(buffer(b"c")) == b"3"
        family.delete_range(buffer(b"d"), buffer(b"e"))
        assert dict(family) == {b"e": b"5"}

    def test_key_and_value_buffers_changed_afterwards_change_nothing(self, store: Store, family: Family) -> None:
        """Buffers are copied when they are handed over, not when the commit is made."""
        key, value = bytearray(b"key"), bytearray(b"value")
        family.put(key, memoryview(value))
        with store.begin() as txn:
            txn.put("default", memoryview(key), value)
            txn.family("default")[b"other"] = value
            key[0] = value[0] = 0
            assert txn.get("default", b"key") == b"value"
        assert dict(family) == {b"key": b"value", b"other": b"value"}
        key += b"longer"
        value.clear()
        assert dict(family) == {b"key": b"value", b"other": b"value"}

    def test_key_given_as_a_strided_memoryview_is_taken_byte_by_byte(self, family: Family) -> None:
        """A view need not be contiguous, nor made of bytes."""
        family.put(memoryview(b"k-e-y-")[::2], memoryview(b"\1\0\2\0").cast("H"))
        assert dict(family) == {b"key": b"\1\0\2\0"}

    # ---- scans ------------------------------------------------------------------------------------------------------

    def test_scan_without_bounds_gives_all_in_order(self, family: Family, letters: dict[bytes, bytes]) -> None:
        """A scan yields pairs in key order, and in reverse the same pairs."""
        assert list(family.scan()) == list(letters.items())
        assert list(family.scan(reverse=True)) == list(letters.items())[::-1]

    def test_scan_start_is_included_and_stop_is_not_in_both_directions(
        self, family: Family, letters: dict[bytes, bytes]
    ) -> None:
        """`start` and `stop` name the same range whichever way it is walked."""
        assert [key for key, _ in family.scan(b"b", b"e")] == [b"b", b"c", b"d"]
        assert [key for key, _ in family.scan(b"b", b"e", reverse=True)] == [b"d", b"c", b"b"]
        assert [key for key, _ in family.scan(b"bb", b"dd")] == [b"c", b"d"]
        assert [key for key, _ in family.scan(start=b"e")] == [b"e", b"f"]
        assert [key for key, _ in family.scan(stop=b"b")] == [b"a"]

    def test_scan_with_start_at_or_past_stop_is_empty(self, family: Family, letters: dict[bytes, bytes]) -> None:
        """An empty range is not an error."""
        for reverse in (False, True):
            assert list(family.scan(b"c", b"c", reverse=reverse)) == []
            assert list(family.scan(b"e", b"b", reverse=reverse)) == []
            assert list(family.scan(b"a", b"", reverse=reverse)) == []

    def test_scan_limit_counts_from_the_end_it_starts_at(self, family: Family, letters: dict[bytes, bytes]) -> None:
        """`limit` cuts after that many entries; 0 gives none, more than there are gives all."""
        assert [key for key, _ in family.scan(limit=2)] == [b"a", b"b"]
        assert [key for key, _ in family.scan(limit=2, reverse=True)] == [b"f", b"e"]
        assert [key for key, _ in family.scan(b"c", limit=1)] == [b"c"]
        assert list(family.scan(limit=0)) == list(family.scan(limit=0, reverse=True)) == []
        assert len(list(family.scan(limit=1000))) == 6

    def test_scan_prefix_gives_exactly_the_keys_that_begin_with_it(self, family: Family) -> None:
        """Row 76: a prefix that ends in 0xFF, that is all 0xFF, that is empty, that is a key itself."""
        names = [b"", b"a", b"a\xfe", b"a\xff", b"a\xff\0", b"a\xff\xff", b"a\xff\xff\xff", b"b", b"\xff", b"\xff\xff"]
        family.update({name: b"" for name in names})
        for prefix in [*names, b"a\xff\xff\xff\xff", b"ab", b"\xff\xff\xff", b"\xfe"]:
            wanted = [name for name in names if name.startswith(prefix)]
            assert [key for key, _ in family.scan(prefix=prefix)] == wanted
            assert [key for key, _ in family.scan(prefix=prefix, reverse=True)] == wanted[::-1]

    def test_scan_prefix_with_bounds_gives_what_satisfies_all(self, family: Family) -> None:
        """Row 76: prefix, start and stop are intersected."""
        family.update({key: b"" for key in (b"a", b"aa", b"ab", b"ac", b"b")})
        assert [key for key, _ in family.scan(b"ab", prefix=b"a")] == [b"ab", b"ac"]
        assert [key for key, _ in family.scan(stop=b"ab", prefix=b"a")] == [b"a", b"aa"]
        assert [key for key, _ in family.scan(b"aa", b"ac", prefix=b"a", reverse=True)] == [b"ab", b"aa"]
        assert [key for key, _ in family.scan(b"", b"z", prefix=b"a", limit=2)] == [b"a", b"aa"]
        assert list(family.scan(b"b", prefix=b"a")) == []
        assert list(family.scan(stop=b"a", prefix=b"b")) == []

    @property_test(
        st.dictionaries(keys, values, max_size=20), bounds, bounds, bounds, st.booleans(), st.none() | st.integers(0, 9)
    )
    def test_scan_with_any_arguments_equals_filter_and_sort(
        self,
        store: Store,
        entries: dict[bytes, bytes],
        start: bytes | None,
        stop: bytes | None,
        prefix: bytes | None,
        reverse: bool,
        limit: int | None,
    ) -> None:
        """Rows 74 and 76: family, transaction and view scan alike, and like the oracle."""
        family = store.family("default")
        refill(family, entries)
        wanted = selected(entries, start, stop, prefix=prefix, reverse=reverse, limit=limit)
        assert list(family.scan(start, stop, prefix=prefix, reverse=reverse, limit=limit)) == wanted
        with store.view() as view:
            assert list(view.scan("default", start, stop, prefix=prefix, reverse=reverse, limit=limit)) == wanted
            seen = view.family("default").scan(start, stop, prefix=prefix, reverse=reverse, limit=limit)
            assert list(seen) == wanted
        with store.begin() as txn:
            assert list(txn.scan("default", start, stop, prefix=prefix, reverse=reverse, limit=limit)) == wanted
            seen = txn.family("default").scan(start, stop, prefix=prefix, reverse=reverse, limit=limit)
            assert list(seen) == wanted

    @property_test(
        st.dictionaries(keys, values, max_size=12),
        st.dictionaries(keys, values | st.none(), max_size=12),
        bounds,
        bounds,
        st.booleans(),
        st.none() | st.integers(0, 9),
    )
    def test_scan_of_a_transaction_merges_its_own_writes_in_order(
        self,
        store: Store,
        entries: dict[bytes, bytes],
        changes: dict[bytes, bytes | None],
        start: bytes | None,
        stop: bytes | None,
        reverse: bool,
        limit: int | None,
    ) -> None:
        """Guarantee 3: a transaction reads the state as of its begin plus its own writes."""
        family = store.family("default")
        refill(family, entries)
        merged = ModelFamily(dict(entries))
        with store.begin() as txn:
            for key, value in changes.items():
                if value is None:
                    txn.delete("default", key)
                    merged.delete(key)
                else:
                    txn.put("default", key, value)
                    merged.put(key, value)
            wanted = selected(merged.state, start, stop, reverse=reverse, limit=limit)
            assert list(txn.scan("default", start, stop, reverse=reverse, limit=limit)) == wanted
            assert len(txn.family("default")) == len(merged)
            assert list(reversed(txn.family("default"))) == list(reversed(merged))
            assert dict(family) == entries
        assert dict(family) == merged.state

    def test_scan_open_during_writes_gives_the_state_as_of_its_start(
        self, family: Family, letters: dict[bytes, bytes]
    ) -> None:
        """Row 74: whatever is written meanwhile, in both directions."""
        forward, backward = family.scan(), family.scan(reverse=True)
        first, last = next(forward), next(backward)
        family[b"aa"] = b"new"
        family[b"c"] = b"changed"
        del family[b"d"]
        family.delete_range(b"e", None)
        family[b"z"] = b"new"
        assert [first, *forward] == list(letters.items())
        assert [last, *backward] == list(letters.items())[::-1]
        assert dict(family.scan()) == {b"a": b"A", b"aa": b"new", b"b": b"B", b"c": b"changed", b"z": b"new"}

    def test_scan_made_but_not_begun_gives_the_state_as_of_its_making(
        self, family: Family, letters: dict[bytes, bytes]
    ) -> None:
        """Row 74: a scan starts with the call, not with its first entry."""
        scan = family.scan()
        family.clear()
        assert list(scan) == list(letters.items())

    def test_iteration_while_deleting_visits_every_key(self, family: Family, letters: dict[bytes, bytes]) -> None:
        """Row 74: a loop may change what it walks over."""
        seen = []
        for key in family:
            seen.append(key)
            del family[key]
            family[key + b"x"] = b""
        assert seen == list(letters)
        assert list(family) == [key + b"x" for key in letters]

    def test_scan_of_a_transaction_is_not_disturbed_by_its_own_later_writes(
        self, store: Store, letters: dict[bytes, bytes]
    ) -> None:
        """A scan sees the state as of its start; a transaction's own writes are no exception."""
        with store.begin() as txn:
            scan = txn.scan("default")
            first = next(scan)
            txn.put("default", b"bb", b"new")
            txn.delete("default", b"c")
            txn.put("default", b"d", b"changed")
            assert [first, *scan] == list(letters.items())
            assert [key for key, _ in txn.scan("default")] == [b"a", b"b", b"bb", b"d", b"e", b"f"]

    # ---- every write through a family is one commit -----------------------------------------------------------------

    @pytest.mark.parametrize(
        "write",
        [
            pytest.param(lambda f: f.put(b"new", b"1"), id="put"),
            pytest.param(lambda f: f.put(b"a", b"1"), id="put-over"),
            pytest.param(lambda f: f.__setitem__(b"new", b"1"), id="setitem"),
            pytest.param(lambda f: f.delete(b"a"), id="delete"),
            pytest.param(lambda f: f.__delitem__(b"a"), id="delitem"),
            pytest.param(lambda f: f.pop(b"a"), id="pop"),
            pytest.param(lambda f: f.popitem(), id="popitem"),
            pytest.param(lambda f: f.setdefault(b"new", b"1"), id="setdefault"),
            pytest.param(lambda f: f.update({b"a": b"1", b"x": b"2", b"y": b"3"}), id="update"),
            pytest.param(lambda f: f.clear(), id="clear"),
            pytest.param(lambda f: f.delete_range(b"a", b"e"), id="delete_range"),
        ],
    )
    def test_write_through_a_family_is_exactly_one_commit(
        self, store: Store, family: Family, letters: dict[bytes, bytes], write: Callable[[Family], object]
    ) -> None:
        """Guarantee 1: each write is one commit, so it is there whole or not at all."""
        before, commits = store.sequence, store.stats().commits
        write(family)
        assert store.sequence == before + 1
        assert store.stats().commits == commits + 1
        assert dict(family) != letters

    @pytest.mark.parametrize(
        "read",
        [
            pytest.param(lambda f: f.get(b"a"), id="get"),
            pytest.param(lambda f: f[b"a"], id="getitem"),
            pytest.param(lambda f: b"a" in f, id="contains"),
            pytest.param(lambda f: len(f), id="len"),
            pytest.param(lambda f: list(f), id="iter"),
            pytest.param(lambda f: list(reversed(f)), id="reversed"),
            pytest.param(lambda f: list(f.items()), id="items"),
            pytest.param(lambda f: list(f.scan(b"b", reverse=True)), id="scan"),
            pytest.param(lambda f: f.setdefault(b"a", b"other"), id="setdefault-present"),
            pytest.param(lambda f: f.pop(b"missing", None), id="pop-absent"),
            pytest.param(lambda f: f.update({}), id="update-nothing"),
        ],
    )
    def test_call_that_writes_nothing_makes_no_commit(
        self, store: Store, family: Family, letters: dict[bytes, bytes], read: Callable[[Family], object]
    ) -> None:
        """The sequence counts commits, not calls."""
        before = store.sequence
        read(family)
        assert store.sequence == before
        assert dict(family) == letters

    def test_pop_gives_the_value_and_removes_it(self, family: Family, letters: dict[bytes, bytes]) -> None:
        """`pop` is that of a dict."""
        assert family.pop(b"c") == b"C"
        assert b"c" not in family
        assert family.pop(b"c", b"default") == b"default"
        assert family.pop(b"c", None) is None

    def test_popitem_gives_an_entry_and_removes_it_until_none_is_left(
        self, family: Family, letters: dict[bytes, bytes]
    ) -> None:
        """`popitem` takes some entry, once each, and ends with KeyError."""
        taken = dict(family.popitem() for _ in letters)
        assert taken == letters
        assert len(family) == 0
        with pytest.raises(KeyError):
            family.popitem()

    def test_setdefault_writes_only_what_is_absent(self, family: Family, letters: dict[bytes, bytes]) -> None:
        """`setdefault` is that of a dict."""
        assert family.setdefault(b"a", b"other") == b"A"
        assert family.setdefault(b"g", b"G") == b"G"
        assert family[b"a"] == b"A"
        assert family[b"g"] == b"G"

    def test_update_takes_mappings_pairs_and_families(self, store: Store, family: Family) -> None:
        """`update` takes what a dict's takes; later pairs win."""
        family.update({b"a": b"1"})
        family.update([(b"b", b"2"), (b"b", b"3")])
        family.update((bytes([65 + number]), b"") for number in range(2))
        other = store.create_family("other")
        other.update(family)
        assert dict(other) == dict(family) == {b"A": b"", b"B": b"", b"a": b"1", b"b": b"3"}

    @pytest.mark.parametrize(
        "pairs", [[(b"x", b"1"), (b"y", None)], [(b"x", b"1"), ("y", b"2")], [(b"x", b"1"), (b"y", b"2", b"3")]]
    )
    def test_update_with_one_bad_pair_writes_nothing(
        self, store: Store, family: Family, letters: dict[bytes, bytes], pairs: Any
    ) -> None:
        """Guarantee 1: `update` is one commit, so a bad pair leaves the good ones unwritten too."""
        before = store.sequence
        with pytest.raises((TypeError, ValueError)):
            family.update(pairs)
        assert dict(family) == letters
        assert store.sequence == before

    def test_update_from_an_iterator_that_fails_writes_nothing(
        self, store: Store, family: Family, letters: dict[bytes, bytes]
    ) -> None:
        """Row 47: an exception out of the caller's own code passes through, and nothing is written."""

        def pairs() -> Iterator[tuple[bytes, bytes]]:
            yield b"x", b"1"
            raise Boom

        with pytest.raises(Boom):
            family.update(pairs())
        assert dict(family) == letters

    @property_test(st.dictionaries(keys, values, max_size=20), bounds, bounds)
    def test_delete_range_removes_exactly_what_a_scan_of_it_gives(
        self, store: Store, entries: dict[bytes, bytes], start: bytes | None, stop: bytes | None
    ) -> None:
        """Row 76: `start` is included, `stop` is not, and None is no bound."""
        family = store.family("default")
        for target in ("family", "transaction"):
            refill(family, entries)
            if target == "family":
                family.delete_range(start, stop)
            else:
                with store.begin() as txn:
                    txn.delete_range("default", start, stop)
            gone = dict(selected(entries, start, stop))
            assert dict(family) == {key: value for key, value in entries.items() if key not in gone}

    def test_clear_leaves_other_families_alone(self, store: Store, family: Family, letters: dict[bytes, bytes]) -> None:
        """Families share nothing but the log."""
        other = store.create_family("other")
        other[b"a"] = b"1"
        family.clear()
        assert dict(family) == {}
        assert dict(other) == {b"a": b"1"}

    @property_test(st.lists(operations, max_size=25))
    def test_operations_in_any_order_equal_those_on_a_dict(self, store: Store, calls: list[Operation]) -> None:
        """Row 74: each result and the state after each call are those of a plain dict."""
        family = store.family("default")
        family.clear()
        model = ModelFamily({})
        for call in calls:
            assert call.run(family) == call.run(model)
        assert list(family.items()) == list(model.items())

    @property_test(st.lists(operations, max_size=12), st.lists(operations, max_size=12))
    def test_operations_in_a_transaction_equal_those_on_a_dict(
        self, store: Store, before: list[Operation], inside: list[Operation]
    ) -> None:
        """Guarantee 3: a transaction's family is the same mapping over the transaction's own state."""
        family = store.family("default")
        family.clear()
        model = ModelFamily({})
        for call in before:
            assert call.run(family) == call.run(model)
        outside = dict(family)
        with store.begin() as txn:
            for call in inside:
                assert call.run(txn.family("default")) == call.run(model)
            assert dict(family) == outside
        assert list(family.items()) == list(model.items())

    # ---- families ---------------------------------------------------------------------------------------------------

    def test_family_created_is_listed_and_empty(self, store: Store) -> None:
        """`families` is sorted, whatever the order of creation."""
        created = store.create_family("zoo")
        store.create_family("ant")
        assert store.families == ("ant", "default", "zoo")
        assert created.name == "zoo"
        assert len(created) == 0
        created[b"k"] = b"v"
        assert store.family("zoo")[b"k"] == b"v"
        assert b"k" not in store.family("ant")

    def test_family_created_twice_is_an_error(self, store: Store) -> None:
        """FamilyExistsError names the family, and the first one is not disturbed."""
        first = store.create_family("other")
        first[b"k"] = b"v"
        before = store.sequence
        for name in ("other", "default"):
            with pytest.raises(pystate.FamilyExistsError) as caught:
                store.create_family(name)
            assert caught.value.family == name
        assert dict(first) == {b"k": b"v"}
        assert store.sequence == before

    def test_family_unknown_is_an_error_that_names_the_known(self, store: Store) -> None:
        """FamilyNotFoundError, also a KeyError, from every place that takes a name."""
        store.create_family("other")
        with store.view() as view, store.begin() as txn:
            calls: list[Callable[[], object]] = [
                lambda: store.family("nope"),
                lambda: store.drop_family("nope"),
                lambda: view.family("nope"),
                lambda: view.get("nope", b"k"),
                lambda: view.scan("nope"),
                lambda: txn.family("nope"),
                lambda: txn.get("nope", b"k"),
                lambda: txn.put("nope", b"k", b"v"),
                lambda: txn.delete("nope", b"k"),
                lambda: txn.delete_range("nope", b"k", b"l"),
                lambda: txn.scan("nope"),
            ]
            for call in calls:
                with pytest.raises(pystate.FamilyNotFoundError) as caught:
                    call()
                assert caught.value.family == "nope"
                assert caught.value.families == ("default", "other")
                assert isinstance(caught.value, KeyError)
        assert store.families == ("default", "other")

    def test_family_dropped_is_gone_with_all_it_held(self, store: Store) -> None:
        """Every use of an old handle says that the family does not exist."""
        other = store.create_family("other")
        other[b"k"] = b"v"
        before = store.sequence
        store.drop_family("other")
        assert store.sequence == before + 1
        assert store.families == ("default",)
        uses: list[Callable[[], object]] = [
            lambda: store.family("other"),
            lambda: other.get(b"k"),
            lambda: other[b"k"],
            lambda: b"k" in other,
            lambda: len(other),
            lambda: list(other),
            lambda: list(other.scan()),
            lambda: other.put(b"k", b"v"),
            lambda: other.delete(b"k"),
            lambda: other.pop(b"k", None),
            lambda: other.update({b"k": b"v"}),
            lambda: other.clear(),
            lambda: other.delete_range(b"a", b"z"),
        ]
        for use in uses:
            with pytest.raises(pystate.FamilyNotFoundError):
                use()

    def test_family_dropped_and_created_again_is_empty(self, store: Store) -> None:
        """Row 80: nothing of the old family comes back, and its handles stay dead."""
        old = store.create_family("other")
        old[b"k"] = b"v"
        store.drop_family("other")
        new = store.create_family("other")
        assert dict(new) == {}
        with pytest.raises(pystate.FamilyNotFoundError):
            old.put(b"k", b"v")
        with pytest.raises(pystate.FamilyNotFoundError):
            old.get(b"k")
        assert dict(new) == {}
        new[b"k"] = b"new"
        assert store.family("other")[b"k"] == b"new"

    def test_family_names_of_every_script_are_kept_exactly(self, store: Store) -> None:
        """Row 79: names are text; what is accepted comes back as it was given."""
        names = ["a b", "Ä", "ä", "a\u0308", "数据", "\U0001f9ea", "../up", "a/b", "'quoted'", "x" * 255, "ä" * 127]
        for name in names:
            store.create_family(name)[b"k"] = name.encode()
        assert store.families == tuple(sorted([*names, "default"]))
        for name in names:
            assert store.family(name)[b"k"] == name.encode()

    def test_family_handles_of_one_family_are_interchangeable(self, store: Store) -> None:
        """Two handles are two names of the same thing."""
        one, two = store.family("default"), store.family("default")
        one[b"k"] = b"v"
        assert two[b"k"] == b"v"
        two[b"k"] = b"w"
        assert one[b"k"] == b"w"

    # ---- transactions -----------------------------------------------------------------------------------------------

    def test_transaction_sees_its_own_writes_and_others_do_not(self, store: Store, family: Family) -> None:
        """Guarantee 3: the state as of begin plus its own writes; guarantee 4: nobody sees them before the commit."""
        family.update({b"a": b"1", b"b": b"2"})
        with store.begin() as txn:
            mine = txn.family("default")
            mine[b"a"] = b"changed"
            mine[b"c"] = b"3"
            del mine[b"b"]
            assert mine[b"a"] == txn.get("default", b"a") == b"changed"
            assert b"b" not in mine
            assert txn.get("default", b"b", b"gone") == b"gone"
            assert list(mine.items()) == list(txn.scan("default")) == [(b"a", b"changed"), (b"c", b"3")]
            assert len(mine) == 2
            assert dict(family) == {b"a": b"1", b"b": b"2"}
        assert dict(family) == {b"a": b"changed", b"c": b"3"}

    def test_transaction_takes_a_family_by_name_or_by_handle(self, store: Store, family: Family) -> None:
        """Wherever a method takes a family first, its name and a handle of it mean the same."""
        with store.begin() as txn:
            txn.put(family, b"a", b"1")
            txn.put("default", b"b", b"2")
            assert txn.get(family, b"b") == b"2"
            assert list(txn.scan(family)) == list(txn.scan("default"))
            txn.delete(family, b"b")
            txn.delete_range(family, b"b", b"c")
        assert dict(family) == {b"a": b"1"}
        with store.view() as view:
            assert view.get(family, b"a") == view.get("default", b"a") == b"1"
            assert list(view.scan(family)) == [(b"a", b"1")]

    def test_transaction_over_families_commits_to_all_at_once(self, store: Store, family: Family) -> None:
        """Guarantee 1: one commit, one sequence, all families."""
        other = store.create_family("other")
        before = store.sequence
        txn = store.begin()
        assert txn.sequence == before
        assert txn.families == ("default", "other")
        txn.put("default", b"k", b"1")
        txn.put("other", b"k", b"2")
        assert txn.commit() == before + 1 == store.sequence
        assert (family[b"k"], other[b"k"]) == (b"1", b"2")

    def test_transaction_that_wrote_nothing_commits_at_its_begin(self, store: Store, family: Family) -> None:
        """Guarantee 3: it never fails, and it is given the sequence of the state it read."""
        family[b"a"] = b"1"
        txn = store.begin()
        assert txn.family("default")[b"a"] == b"1"
        family[b"a"] = b"2"
        assert txn.family("default")[b"a"] == b"1"
        assert txn.commit() == txn.sequence == store.sequence - 1

    def test_transaction_rolled_back_leaves_nothing(self, store: Store, family: Family) -> None:
        """`rollback` forgets all, and may be called again."""
        txn = store.begin()
        txn.put("default", b"k", b"v")
        txn.rollback()
        txn.rollback()
        assert dict(family) == {}
        assert store.sequence == 0

    def test_transaction_block_with_an_exception_rolls_back(self, store: Store, family: Family) -> None:
        """Row 47: the exception passes through and nothing is written."""
        with pytest.raises(Boom), store.begin() as txn:
            txn.put("default", b"k", b"v")
            raise Boom
        assert dict(family) == {}
        with pytest.raises(pystate.ClosedError):
            txn.get("default", b"k")

    def test_transaction_block_ended_by_hand_stays_as_it_ended(self, store: Store, family: Family) -> None:
        """Inside the block, `commit` and `rollback` are final; leaving it then does nothing."""
        with store.begin() as txn:
            txn.put("default", b"k", b"v")
            txn.commit()
        assert dict(family) == {b"k": b"v"}
        with store.begin() as txn:
            txn.put("default", b"k", b"w")
            txn.rollback()
        assert dict(family) == {b"k": b"v"}

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_transaction_finished_refuses_every_use(self, store: Store, family: Family, end: str) -> None:
        """Row 75: a finished transaction, and what was taken from it, raises ClosedError."""
        family.update({b"a": b"1", b"b": b"2"})
        txn = store.begin()
        mine = txn.family("default")
        items = mine.items()
        scan = txn.scan("default")
        next(scan)
        getattr(txn, end)()
        uses: list[Callable[[], object]] = [
            lambda: txn.family("default"),
            lambda: txn.get("default", b"a"),
            lambda: txn.put("default", b"a", b"1"),
            lambda: txn.delete("default", b"a"),
            lambda: txn.delete_range("default", b"a", b"b"),
            lambda: list(txn.scan("default")),
            lambda: txn.commit(),
            lambda: txn.families,
            lambda: mine.get(b"a"),
            lambda: mine[b"a"],
            lambda: b"a" in mine,
            lambda: len(mine),
            lambda: list(mine),
            lambda: list(reversed(mine)),
            lambda: list(mine.scan()),
            lambda: list(items),
            lambda: mine.put(b"a", b"1"),
            lambda: mine.__setitem__(b"a", b"1"),
            lambda: mine.__delitem__(b"a"),
            lambda: mine.delete(b"a"),
            lambda: mine.delete_range(b"a", b"b"),
            lambda: mine.pop(b"a"),
            lambda: mine.popitem(),
            lambda: mine.setdefault(b"a", b"1"),
            lambda: mine.update({b"a": b"1"}),
            lambda: mine.clear(),
            lambda: next(scan),
        ]
        for use in uses:
            with pytest.raises(pystate.ClosedError) as caught:
                use()
            assert caught.value.what == "transaction"
        assert dict(family) == {b"a": b"1", b"b": b"2"}

    def test_transaction_that_conflicted_is_finished(self, store: Store, family: Family) -> None:
        """After a conflict the transaction is over; it is run again from its beginning, not committed again."""
        txn = store.begin()
        txn.get("default", b"k")
        txn.put("default", b"k", b"mine")
        family[b"k"] = b"theirs"
        with pytest.raises(pystate.ConflictError):
            txn.commit()
        with pytest.raises(pystate.ClosedError):
            txn.commit()
        assert dict(family) == {b"k": b"theirs"}

    def test_transaction_block_that_conflicts_raises_at_its_end(self, store: Store, family: Family) -> None:
        """The `with` statement commits, so it is the one that raises."""
        with pytest.raises(pystate.ConflictError), store.begin() as txn:
            txn.family("default").setdefault(b"k", b"mine")
            family[b"k"] = b"theirs"
        assert dict(family) == {b"k": b"theirs"}

    @pytest.mark.parametrize("durability", ["sync", "process"])
    def test_transaction_takes_a_durability_of_its_own(self, store: Store, family: Family, durability: Any) -> None:
        """Guarantee 2: per transaction, whatever the store's own is."""
        with store.begin(durability=durability) as txn:
            txn.put("default", b"begin", b"1")
        store.transact(lambda txn: txn.put("default", b"transact", b"1"), durability=durability)
        assert dict(family) == {b"begin": b"1", b"transact": b"1"}
        store.sync()
        assert store.stats().durable_sequence in (0, store.sequence)

    # ---- transact ---------------------------------------------------------------------------------------------------

    def test_transact_gives_the_result_of_the_function(self, store: Store, family: Family) -> None:
        """`transact` runs the function in a transaction, commits, and hands on what it returned."""

        def add(txn: Transaction) -> str:
            txn.put("default", b"k", b"v")
            return "done"

        assert store.transact(add) == "done"
        assert pystate.transact(store, lambda txn: len(txn.family("default"))) == 1
        assert store.sequence == 1

    def test_transact_after_a_conflict_runs_the_function_again(self, store: Store, family: Family) -> None:
        """Row 67: on a conflict the function is run again, on the newer state."""
        family[b"n"] = b"1"
        runs: list[bytes] = []

        def double(txn: Transaction) -> None:
            value = txn.family("default")[b"n"]
            runs.append(value)
            if len(runs) < 3:
                family[b"n"] = value + b"1"
            txn.put("default", b"n", value * 2)

        store.transact(double)
        assert runs == [b"1", b"11", b"111"]
        assert family[b"n"] == b"111111"

    def test_transact_out_of_attempts_raises_the_last_conflict(self, store: Store, family: Family) -> None:
        """The function is run `attempts` times, no more, and the caller learns of the newest conflict."""
        runs: list[int] = []

        def always(txn: Transaction) -> None:
            txn.get("default", b"k")
            family[b"k"] = b"%d" % len(runs)
            runs.append(store.sequence)
            txn.put("default", b"k", b"mine")

        starts: list[Callable[[], None]] = [
            lambda: store.transact(always, attempts=3),
            lambda: pystate.transact(store, always, attempts=3),
        ]
        for start in starts:
            runs.clear()
            with pytest.raises(pystate.ConflictError) as caught:
                start()
            assert len(runs) == 3
            assert caught.value.commit_sequence == runs[-1] == store.sequence
            assert caught.value.key == b"k"
        assert family[b"k"] == b"2"

    @pytest.mark.parametrize("attempts", [0, -1])
    def test_transact_with_no_attempts_is_refused(self, store: Store, attempts: int) -> None:
        """There is no running a function less than once."""
        with pytest.raises(ValueError, match="attempts"):
            store.transact(lambda txn: None, attempts=attempts)

    def test_transact_function_that_raises_leaves_nothing(self, store: Store, family: Family) -> None:
        """Row 47: exceptions of the function propagate, are not retried, and nothing is written."""
        runs = []

        def fails(txn: Transaction) -> None:
            runs.append(txn)
            txn.put("default", b"k", b"v")
            raise Boom

        with pytest.raises(Boom):
            store.transact(fails)
        assert len(runs) == 1
        assert dict(family) == {}
        with pytest.raises(pystate.ClosedError):
            runs[0].get("default", b"k")

    def test_transact_inside_a_transaction_is_part_of_it(self, store: Store, family: Family) -> None:
        """`pystate.transact(txn, function)` runs inside, so that operations compose."""

        def inner(txn: Transaction) -> int:
            txn.put("default", b"inner", b"1")
            return len(txn.family("default"))

        def outer(txn: Transaction) -> int:
            txn.put("default", b"outer", b"1")
            count = pystate.transact(txn, inner)
            assert dict(family) == {}
            return count

        assert store.transact(outer) == 2
        assert dict(family) == {b"inner": b"1", b"outer": b"1"}
        assert store.sequence == 1

    def test_transact_inside_a_transaction_that_rolls_back_goes_with_it(self, store: Store, family: Family) -> None:
        """What ran inside is undone with the rest; its exceptions pass through both."""
        with store.begin() as txn:
            pystate.transact(txn, lambda inner: inner.put("default", b"k", b"v"))
            txn.rollback()

        def fails(txn: Transaction) -> None:
            txn.put("default", b"k", b"v")
            raise Boom

        with pytest.raises(Boom):
            store.transact(lambda txn: pystate.transact(txn, fails))
        assert dict(family) == {}

    def test_transact_inside_a_transaction_leaves_retrying_to_the_outermost(self, store: Store, family: Family) -> None:
        """The inner function may run again, but only because the outer one does."""
        runs = []

        def inner(txn: Transaction) -> None:
            runs.append("inner")
            txn.family("default").setdefault(b"k", b"mine")

        def outer(txn: Transaction) -> None:
            runs.append("outer")
            pystate.transact(txn, inner)
            if len(runs) == 2:
                family[b"k"] = b"theirs"

        store.transact(outer)
        assert runs == ["outer", "inner", "outer", "inner"]
        assert family[b"k"] == b"theirs"

    # ---- transact_async ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("durability", [None, "sync", "process"])
    def test_transact_async_gives_the_result_of_the_function(
        self, store: Store, family: Family, durability: Any
    ) -> None:
        """Awaited, it is done: the writes are there, as one commit, in the loop and outside of it."""

        def add(txn: Transaction) -> str:
            txn.put("default", b"a", b"1")
            txn.put("default", b"b", b"2")
            return "done"

        async def main() -> str:
            result = await store.transact_async(add, durability=durability)
            assert dict(family) == {b"a": b"1", b"b": b"2"}
            return result

        for sequence in (1, 2):
            assert asyncio.run(main()) == "done"
            assert store.sequence == sequence
        assert store.stats().views == 0

    def test_transact_async_by_many_tasks_and_threads_loses_nothing(self, store: Store, family: Family) -> None:
        """Row 67: whoever conflicts is run again; the sum is exact."""

        def increment(txn: Transaction) -> int:
            value = int(txn.get("default", b"n") or b"0") + 1
            txn.put("default", b"n", b"%d" % value)
            return value

        async def task(number: int) -> list[int]:
            durability = ("sync", "process", None)[number % 3]
            return [
                await store.transact_async(increment, attempts=100_000, durability=durability)  # type: ignore[arg-type]
                for _ in range(3)
            ]

        async def main() -> list[int]:
            by_threads = [asyncio.to_thread(store.transact, increment, attempts=100_000) for _ in range(10)]
            by_tasks = await asyncio.gather(*map(task, range(20)))
            return [*await asyncio.gather(*by_threads), *(value for values_ in by_tasks for value in values_)]

        assert sorted(asyncio.run(main())) == list(range(1, 71))
        assert family[b"n"] == b"70"

    def test_transact_async_after_a_conflict_runs_the_function_again(self, store: Store, family: Family) -> None:
        """`function` runs in a fresh transaction each time; what the first run wrote is gone."""
        family[b"n"] = b"1"
        runs = []

        def double(txn: Transaction) -> None:
            runs.append(txn)
            value = int(txn.get("default", b"n") or b"0")
            txn.put("default", b"n", b"%d" % (2 * value))
            txn.put("default", b"run %d" % len(runs), b"")
            if len(runs) < 3:
                family[b"n"] = b"%d" % (value + 1)

        asyncio.run(store.transact_async(double))
        assert dict(family) == {b"n": b"6", b"run 3": b""}
        assert len(set(map(id, runs))) == 3

    def test_transact_async_out_of_attempts_raises_the_last_conflict(self, store: Store, family: Family) -> None:
        """No more runs than `attempts`; the conflict says what was in the way."""
        runs = []

        def always(txn: Transaction) -> None:
            runs.append(txn)
            txn.put("default", b"n", txn.get("default", b"n") or b"")
            family[b"n"] = b"%d" % len(runs)

        with pytest.raises(pystate.ConflictError) as caught:
            asyncio.run(store.transact_async(always, attempts=3))
        assert (len(runs), caught.value.key, caught.value.commit_sequence) == (3, b"n", 3)
        assert dict(family) == {b"n": b"3"}

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"attempts": 0}, ValueError), ({"attempts": -1}, ValueError), ({"attempts": 1.5}, TypeError),
            ({"durability": "none"}, ValueError),
        ],
    )  # fmt: skip
    def test_transact_async_with_wrong_arguments_is_refused(
        self, store: Store, options: dict[str, Any], error: type[Exception]
    ) -> None:
        """Before the function is called."""
        with pytest.raises(error):
            asyncio.run(store.transact_async(lambda txn: pytest.fail("called"), **options))

    def test_transact_async_function_that_raises_leaves_nothing(self, store: Store, family: Family) -> None:
        """The exception goes on to the task, and it is run once."""
        runs = []

        def fails(txn: Transaction) -> None:
            runs.append(1)
            txn.put("default", b"k", b"v")
            raise Boom

        with pytest.raises(Boom):
            asyncio.run(store.transact_async(fails))
        assert (runs, dict(family), store.sequence) == ([1], {}, 0)
        assert store.stats().views == 0

    def test_transact_async_function_that_is_async_is_refused(self, store: Store, family: Family) -> None:
        """It would never run, and its commit be empty: nothing is written, and there is no warning besides."""

        async def wrong(txn: Transaction) -> None:
            txn.put("default", b"k", b"v")

        with pytest.raises(TypeError, match="plain"):
            _ = asyncio.run(store.transact_async(wrong))
        assert dict(family) == {}

    def test_transact_async_function_that_ends_the_transaction_itself(self, store: Store, family: Family) -> None:
        """As for `transact`: it stays as it ended."""

        def commits(txn: Transaction) -> int:
            txn.put("default", b"k", b"v")
            return txn.commit()

        def rolls_back(txn: Transaction) -> None:
            txn.put("default", b"l", b"v")
            txn.rollback()

        assert asyncio.run(store.transact_async(commits)) == 1
        asyncio.run(store.transact_async(rolls_back))
        assert dict(family) == {b"k": b"v"}

    def test_transact_async_that_only_reads_is_no_commit(self, store: Store, family: Family) -> None:
        """And cannot fail, whatever is committed meanwhile."""
        family[b"k"] = b"v"

        def reads(txn: Transaction) -> bytes:
            family[b"k"] = b"new"
            return txn.family("default")[b"k"]

        assert asyncio.run(store.transact_async(reads)) == b"v"
        assert store.sequence == 2

    @pytest.mark.parametrize("durability", ["sync", "process"])
    def test_transact_async_cancelled_is_settled(self, store: Store, family: Family, durability: Any) -> None:
        """Wherever it is cancelled: when the task goes on, its commit is there or never will be."""
        for turns in range(8):

            async def main(turns: int = turns) -> bool:
                task = asyncio.ensure_future(
                    store.transact_async(lambda txn: txn.put("default", b"%d" % turns, b""), durability=durability)
                )
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    return b"%d" % turns in family
                return True

            assert asyncio.run(main()) == (b"%d" % turns in family)
        assert store.stats().views == 0

    # ---- views ------------------------------------------------------------------------------------------------------

    def test_view_reads_the_same_whatever_is_committed(
        self, store: Store, family: Family, letters: dict[bytes, bytes]
    ) -> None:
        """Guarantee 4: a view is one state, read in every way, again and again."""
        with store.view() as view:
            assert view.sequence == store.sequence
            assert view.families == ("default",)
            mine = view.family("default")
            changes: list[Callable[[], None]] = [
                lambda: family.put(b"a", b"changed"),
                lambda: family.delete(b"b"),
                lambda: family.put(b"bb", b"new"),
                lambda: family.delete_range(b"d", None),
                lambda: family.put(b"e", b"back"),
                lambda: family.clear(),
            ]
            for change in changes:
                change()
                assert dict(mine) == letters
                assert list(mine.items()) == list(view.scan("default")) == list(letters.items())
                assert list(reversed(mine)) == list(letters)[::-1]
                assert len(mine) == 6
                assert (b"bb" in mine, b"b" in mine) == (False, True)
                assert mine.get(b"bb") is None
                assert mine[b"a"] == view.get("default", b"a") == b"A"
                with pytest.raises(KeyError):
                    mine[b"bb"]
            assert view.sequence == store.sequence - 6
        assert dict(family) == {}

    def test_view_keeps_families_created_and_dropped_since_apart(self, store: Store) -> None:
        """Guarantee 4: a view has the families of its moment."""
        old = store.create_family("old")
        old[b"k"] = b"v"
        with store.view() as view:
            store.drop_family("old")
            store.create_family("new")
            assert view.families == ("default", "old")
            assert dict(view.family("old")) == {b"k": b"v"}
            with pytest.raises(pystate.FamilyNotFoundError):
                view.family("new")
            store.create_family("old")[b"other"] = b"w"
            assert dict(view.family("old")) == {b"k": b"v"}
        assert dict(store.family("old")) == {b"other": b"w"}

    def test_view_refuses_writes(self, store: Store, family: Family, letters: dict[bytes, bytes]) -> None:
        """A view is for reading only: its families have no way to write, or one that is refused."""
        with store.view() as view:
            mine: Any = view.family("default")
            uses: list[Callable[[], object]] = [
                lambda: mine.put(b"a", b"1"),
                lambda: mine.__setitem__(b"a", b"1"),
                lambda: mine.delete(b"a"),
                lambda: mine.__delitem__(b"a"),
                lambda: mine.delete_range(b"a", b"b"),
                lambda: mine.pop(b"a"),
                lambda: mine.popitem(),
                lambda: mine.setdefault(b"z", b"1"),
                lambda: mine.update({b"a": b"1"}),
                lambda: mine.clear(),
            ]
            for use in uses:
                with pytest.raises((pystate.ReadOnlyError, AttributeError)):
                    use()
        assert dict(family) == letters

    def test_view_closed_refuses_every_use(self, store: Store, family: Family, letters: dict[bytes, bytes]) -> None:
        """Row 75: a closed view, and what was taken from it, raises ClosedError; closing it again does nothing."""
        view = store.view()
        mine = view.family("default")
        items = mine.items()
        scan = view.scan("default")
        next(scan)
        view.close()
        view.close()
        uses: list[Callable[[], object]] = [
            lambda: view.family("default"),
            lambda: view.families,
            lambda: view.get("default", b"a"),
            lambda: list(view.scan("default")),
            lambda: mine.get(b"a"),
            lambda: mine[b"a"],
            lambda: b"a" in mine,
            lambda: len(mine),
            lambda: list(mine),
            lambda: list(reversed(mine)),
            lambda: list(mine.scan()),
            lambda: list(items),
            lambda: next(scan),
            lambda: view.__enter__(),
        ]
        for use in uses:
            with pytest.raises(pystate.ClosedError) as caught:
                use()
            assert caught.value.what == "view"

    def test_view_of_an_old_state_outlives_newer_views(self, store: Store, family: Family) -> None:
        """Views may be closed in any order."""
        views: dict[int, View] = {}
        for number in range(5):
            family[b"n"] = b"%d" % number
            views[number] = store.view()
        for closing in (4, 1, 3, 0, 2):
            for number, view in views.items():
                assert view.get("default", b"n") == b"%d" % number
            views.pop(closing).close()
            assert store.stats().views == len(views)

    # ---- stats, snapshot, sync, close -------------------------------------------------------------------------------

    def test_stats_count_what_was_done(self, store: Store, family: Family) -> None:
        """Guarantee 8: `stats()` shows every bound and counts every commit."""
        before = store.stats()
        assert before.path == store.path
        assert before.read_only is store.read_only is False
        assert before.failed is None
        assert (before.sequence, before.commits, before.views, before.bytes_committed) == (0, 0, 0, 0)
        assert before.families == {"default": 0}
        assert 0 == before.history_bytes < before.history_bytes_max
        family.update({b"abc": b"1234567", b"d": b""})
        committed = store.stats().bytes_committed  # as encoded for the disk, if there is one
        assert committed == 0 or 3 + 7 + 1 <= committed < 100
        other = store.create_family("other")
        other[b"x"] = b"y"
        after = store.stats()
        assert after.sequence == after.commits == store.sequence == 3
        assert after.families == {"default": 2, "other": 1}
        assert 1 <= after.groups <= after.commits
        assert after.durable_sequence <= after.sequence
        assert before.sequence == 0

    def test_stats_count_open_views_transactions_and_scans(self, store: Store, family: Family) -> None:
        """Guarantee 8: whatever holds history is counted, and given back when it ends."""
        family.update({b"%04d" % number: b"v" for number in range(2000)})
        assert store.stats().views == 0
        view = store.view()
        txn = store.begin()
        scan = family.scan()
        next(scan)
        assert store.stats().views == 3
        family[b"0000"] = b"changed"
        family.delete_range(None, None)
        assert store.stats().history_bytes > 2000 * 5
        assert len(list(scan)) == 1999
        txn.rollback()
        assert store.stats().views == 1
        view.close()
        assert store.stats().views == 0
        assert store.stats().history_bytes == 0

    def test_stats_are_a_frozen_record(self, store: Store) -> None:
        """The figures are of one moment and cannot be changed."""
        with pytest.raises(AttributeError):
            store.stats().sequence = 5  # type: ignore[misc]

    def test_snapshot_and_sync_change_nothing_that_can_be_read(
        self, store: Store, family: Family, letters: dict[bytes, bytes]
    ) -> None:
        """Both are for the disk only."""
        sequence = store.sequence
        store.snapshot()
        store.sync()
        assert dict(family) == letters
        assert store.sequence == sequence
        # A store without a disk makes nothing durable and claims nothing.
        assert store.stats().durable_sequence in (0, sequence)

    def test_store_closed_refuses_every_use_of_every_handle(
        self, store: Store, family: Family, letters: dict[bytes, bytes]
    ) -> None:
        """Row 75: the store, its families, views, transactions and scans raise ClosedError; closing again does not."""
        view, txn, scan = store.view(), store.begin(), family.scan()
        mine, seen, items = txn.family("default"), view.family("default"), family.items()
        next(scan)
        txn.put("default", b"k", b"v")
        store.close()
        store.close()
        uses: dict[str, Callable[[], object]] = {
            "family": lambda: store.family("default"),
            "families": lambda: store.families,
            "create_family": lambda: store.create_family("other"),
            "drop_family": lambda: store.drop_family("other"),
            "begin": lambda: store.begin(),
            "transact": lambda: store.transact(lambda txn: None),
            "pystate.transact": lambda: pystate.transact(store, lambda txn: None),
            "transact_async": lambda: asyncio.run(store.transact_async(lambda txn: None)),
            "view": lambda: store.view(),
            "sync": lambda: store.sync(),
            "snapshot": lambda: store.snapshot(),
            "refresh": lambda: store.refresh(),
            "enter": lambda: store.__enter__(),
            "get": lambda: family.get(b"a"),
            "getitem": lambda: family[b"a"],
            "contains": lambda: b"a" in family,
            "len": lambda: len(family),
            "iter": lambda: list(family),
            "reversed": lambda: list(reversed(family)),
            "items": lambda: list(items),
            "scan": lambda: list(family.scan()),
            "open scan": lambda: next(scan),
            "put": lambda: family.put(b"a", b"1"),
            "setitem": lambda: family.__setitem__(b"a", b"1"),
            "delete": lambda: family.delete(b"a"),
            "delitem": lambda: family.__delitem__(b"a"),
            "pop": lambda: family.pop(b"a", None),
            "popitem": lambda: family.popitem(),
            "setdefault": lambda: family.setdefault(b"a", b"1"),
            "update": lambda: family.update({b"a": b"1"}),
            "clear": lambda: family.clear(),
            "delete_range": lambda: family.delete_range(b"a", b"b"),
            "transaction get": lambda: txn.get("default", b"a"),
            "transaction put": lambda: txn.put("default", b"a", b"1"),
            "transaction commit": lambda: txn.commit(),
            "transaction family": lambda: mine.put(b"a", b"1"),
            "view get": lambda: view.get("default", b"a"),
            "view scan": lambda: list(view.scan("default")),
            "view family": lambda: seen[b"a"],
        }
        accepted = []
        for name, use in uses.items():
            try:
                use()
            except pystate.ClosedError:
                continue
            accepted.append(name)
        assert accepted == []
        txn.rollback()
        view.close()

    def test_store_block_closes_at_its_end(self, store: Store) -> None:
        """A store is a context manager, and an exception inside passes through."""
        with pytest.raises(Boom), store as entered:
            assert entered is store
            raise Boom
        with pytest.raises(pystate.ClosedError):
            store.family("default")

    # ---- errors -----------------------------------------------------------------------------------------------------

    def test_error_of_a_store_survives_copying_and_pickling(self, store: Store) -> None:
        """Errors carry attributes across processes."""
        with pytest.raises(pystate.FamilyNotFoundError) as caught:
            store.family("nope")
        for twin in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
            assert type(twin) is pystate.FamilyNotFoundError
            assert str(twin) == str(caught.value)
            assert (twin.family, twin.families) == ("nope", ("default",))
