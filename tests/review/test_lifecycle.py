"""The states of a package, and the one place where they become numbers."""

from __future__ import annotations

import ast
import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.review.lifecycle import Lifecycle
from tests.sources import Source, package_sources

IN_ORDER = ["NOT_INSTALLED", "INSTALLING", "RUNNING", "STOPPED", "FAILED", "REMOVING", "UNKNOWN"]

encode = msgspec.msgpack.encode


def decode(value: bytes) -> Lifecycle:
    return msgspec.msgpack.decode(value, type=Lifecycle)


def test_each_state_is_stored_as_its_position() -> None:
    """Check R110: 0 to 6 in order; UNKNOWN is stored as 6, whatever its number is."""
    assert [each.name for each in Lifecycle] == IN_ORDER
    assert [each.to_stored_index() for each in Lifecycle] == [0, 1, 2, 3, 4, 5, 6]
    assert [each.number for each in Lifecycle] == [0, 1, 2, 3, 4, 5, 255]
    assert [encode(each) for each in Lifecycle] == [b"\x00", b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x06"]
    assert [Lifecycle.from_stored_index(index) for index in range(7)] == list(Lifecycle)


@pytest.mark.parametrize("byte", [6, 7, 8, 9, 42, 254, 255])
def test_a_state_without_a_name_reads_as_unknown(byte: int) -> None:
    """Check R111: and never as NOT_INSTALLED."""
    assert Lifecycle.from_stored_index(byte) is Lifecycle.UNKNOWN
    assert decode(encode(byte)) is Lifecycle.UNKNOWN
    assert encode(decode(encode(byte))) == b"\x06"


def test_every_byte_is_a_state() -> None:
    for byte in range(256):
        expected = Lifecycle[IN_ORDER[min(byte, 6)]]
        assert Lifecycle.from_stored_index(byte) is decode(encode(byte)) is expected
        # The same number in the five bytes that are allowed for it too.
        assert decode(b"\xce" + byte.to_bytes(4, "big")) is expected


@given(st.integers(-(2**63), -1) | st.integers(256, 2**64 - 1))
def test_a_number_that_is_no_byte_is_no_state(number: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode(number))
    with pytest.raises(ValueError, match="0 to 255"):
        Lifecycle.from_stored_index(number)


@pytest.mark.parametrize("given", [None, True, 2.0, "running", b"\x02", "2"], ids=repr)
def test_only_an_int_is_a_stored_state(given: Any) -> None:
    with pytest.raises(TypeError):
        Lifecycle.from_stored_index(given)
    with pytest.raises(msgspec.ValidationError):
        decode(encode(given))


def test_there_is_no_default_and_texts_are_read() -> None:
    """Check R112: no state without naming one; the seven texts."""
    with pytest.raises(TypeError):
        Lifecycle()  # type: ignore[call-arg]
    texts = [each.text for each in Lifecycle]
    assert texts == ["not_installed", "installing", "running", "stopped", "failed", "removing", "unknown"]
    assert [Lifecycle.from_text(text) for text in texts] == list(Lifecycle)
    for text in ("", "Running", "NOT_INSTALLED", "not installed", "6", "255"):
        with pytest.raises(ValueError, match="no Lifecycle"):
            Lifecycle.from_text(text)


@pytest.mark.parametrize("state", Lifecycle)
def test_a_state_is_itself_after_copying_and_pickling(state: Lifecycle) -> None:
    assert copy.deepcopy(state) is pickle.loads(pickle.dumps(state)) is state


# Nothing else converts


def conversions(source: Source) -> Iterator[str]:
    """Places that make a Lifecycle from a number, or take the number of any enum in place of what is stored."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Lifecycle":
            yield f"{source.file}:{node.lineno}: calls Lifecycle"
        if isinstance(node, ast.Attribute) and node.attr in {"number", "_value_", "_value2member_map_"}:
            yield f"{source.file}:{node.lineno}: uses {node.attr}"


def test_no_other_code_converts_a_state() -> None:
    of_review = [source for source in package_sources() if source.module.startswith("pystate.review.")]
    assert {source.module.rpartition(".")[2] for source in of_review} >= {"lifecycle", "agent", "core_component"}
    own = {"pystate/review/lifecycle.py", "pystate/review/stored.py"}
    found = [line for source in of_review if source.file not in own for line in conversions(source)]
    assert found == []
    (methods,) = (node for node in ast.walk(lifecycle_tree()) if isinstance(node, ast.ClassDef))
    assert {node.name for node in methods.body if isinstance(node, ast.FunctionDef)} == {
        "to_stored_index",
        "from_stored_index",
        "_missing_",  # how msgspec comes to from_stored_index
    }


def lifecycle_tree() -> ast.Module:
    (source,) = (source for source in package_sources() if source.module == "pystate.review.lifecycle")
    return source.tree


def test_a_conversion_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("Lifecycle(9)\nLifecycle.RUNNING.number\n", encoding="utf-8")
    assert list(conversions(Source(path, tmp_path))) == ["wrong.py:1: calls Lifecycle", "wrong.py:2: uses number"]
