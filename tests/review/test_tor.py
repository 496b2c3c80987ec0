"""The table of Tor exit nodes: written as a whole, or not at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pystate
from pystate import Store
from pystate.errors import DecodeError, InvalidRecordError, KeyExistsError
from pystate.review.tor import TOR_EXIT_NODES, TorExitNode, TorExitNodes
from pystate.tables import Key, Table, Writable, rest_text
from pystate.testing import Scenario, explore

FAMILY = "Tor exit nodes"
THEN = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def node(address: str, when: datetime = THEN) -> TorExitNode:
    return TorExitNode(ip_address=address, updated_at=when)


def new_store() -> Store:
    return pystate.memory(families=[FAMILY])


def test_replacing_leaves_only_what_was_given() -> None:
    """Check R23: of two rows none is left but the one that is given."""
    store = new_store()
    nodes = TorExitNodes(TOR_EXIT_NODES, store)
    nodes.replace_all([node("10.0.0.1"), node("10.0.0.2")])
    assert [each.ip_address for each in nodes.iter()] == ["10.0.0.1", "10.0.0.2"]
    nodes.replace_all([node("10.0.0.3")])
    assert dict(store.family(FAMILY)) == {b"10.0.0.3": b"2023-11-14 22:13:20 UTC"}
    nodes.replace_all(iter([]))
    assert list(nodes.iter()) == []


def test_replacing_in_a_transaction_is_part_of_it() -> None:
    store = new_store()
    with store.begin() as txn:
        TorExitNodes(TOR_EXIT_NODES, txn).replace_all([node("10.0.0.1")])
        txn.rollback()
    assert len(store.family(FAMILY)) == 0
    with store.view() as view, pytest.raises(TypeError, match="view"):
        TorExitNodes(TOR_EXIT_NODES, view).replace_all([])


@pytest.mark.parametrize(
    ("given_", "error"),
    [
        ([node("10.0.0.1"), node("10.0.0.1")], KeyExistsError),
        ([node("10.0.0.1"), node("")], InvalidRecordError),
        ([node("10.0.0.1"), node("\ud800")], InvalidRecordError),
        ([node("10.0.0.1"), node("10.0.0.2", datetime(2023, 1, 1))], InvalidRecordError),  # noqa: DTZ001
        ([node("10.0.0.1", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))))], InvalidRecordError),
    ],
)
def test_bad_input_changes_nothing(given_: list[TorExitNode], error: type[Exception]) -> None:
    store = new_store()
    nodes = TorExitNodes(TOR_EXIT_NODES, store)
    nodes.replace_all([node("10.0.0.9")])
    before = store.sequence
    with pytest.raises(error):
        nodes.replace_all(given_)
    assert store.sequence == before
    assert [each.ip_address for each in nodes.iter()] == ["10.0.0.9"]


def test_there_is_no_other_way_to_write() -> None:
    """Section 4.2 and 11: what the class does not admit is not there; and no generic table takes these records."""
    writes = {name for name in vars(Writable) if not name.startswith("_")}
    assert {"put", "insert", "update", "delete"} <= writes
    assert writes & set(dir(TorExitNodes)) == {"replace_all"}
    assert {"iter", "iter_results"} <= set(dir(TorExitNodes))
    with pytest.raises(TypeError, match="TorExitNodes"):
        Table(TorExitNode, family=FAMILY, key=Key(ip_address=rest_text))


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2023-11-14 22:13:20 UTC", 0),
        ("2023-11-14 22:13:20.500 UTC", 500_000),
        ("2023-11-14 22:13:20.000001 UTC", 1),
    ],
)
def test_instant_is_text_with_as_many_digits_as_it_needs(text: str, microsecond: int) -> None:
    found = node("10.0.0.1", THEN.replace(microsecond=microsecond))
    assert TOR_EXIT_NODES.encode(found) == text.encode()
    assert TOR_EXIT_NODES.decode(b"10.0.0.1", text.encode()) == found


def test_nanoseconds_are_read_to_the_microsecond() -> None:
    found = TOR_EXIT_NODES.decode(b"10.0.0.1", b"2023-11-14 22:13:20.123456789 UTC")
    assert found.updated_at == THEN.replace(microsecond=123_456)


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_every_instant_survives(when: datetime) -> None:
    try:
        expected = when.astimezone(UTC)
    except OverflowError:
        return
    found = TOR_EXIT_NODES.decode(b"x", TOR_EXIT_NODES.encode(node("x", when)))
    assert found.updated_at == expected
    assert found.updated_at.tzinfo is UTC


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"2023-11-14 22:13:20",
        b"2023-11-14T22:13:20 UTC",
        b"2023-13-14 22:13:20 UTC",
        b"2023-11-14 22:13:20. UTC",
        b"2023-11-14 22:13:20 UTC\n",
        b"2023-11-14 22:13:20.1234567890 UTC",
        "２023-11-14 22:13:20 UTC".encode(),
    ],
)
def test_other_text_cannot_be_read(value: bytes) -> None:
    store = new_store()
    store.family(FAMILY).put(b"10.0.0.1", value)
    nodes = TorExitNodes(TOR_EXIT_NODES, store)
    with pytest.raises(DecodeError):
        list(nodes.iter())
    nodes.replace_all([node("10.0.0.2")])  # what cannot be read goes too
    assert [each.ip_address for each in nodes.iter()] == ["10.0.0.2"]


def racing() -> Scenario:
    """Two that replace everything at once."""
    store = new_store()
    nodes = TorExitNodes(TOR_EXIT_NODES, store)
    nodes.replace_all([node("old")])

    def check() -> None:
        assert {each.ip_address for each in nodes.iter()} in ({"a", "b"}, {"c"})

    return Scenario(
        {
            "one": lambda: nodes.replace_all([node("a"), node("b")]),
            "two": lambda: nodes.replace_all([node("c")]),
        },
        check,
    )


def test_of_two_lists_one_wins_and_nothing_of_the_other_is_left() -> None:
    """What was scanned is tracked, so the later commit has seen the earlier one's rows."""
    assert explore(racing, preemptions=2).complete
