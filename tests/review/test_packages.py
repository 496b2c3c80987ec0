"""What agents and external services share: the status, and configurations."""

from __future__ import annotations

import copy
import pickle
import tomllib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate.errors import InvalidConfigError, PystateError
from pystate.review.packages import Config, Status


def test_status_has_stored_indexes_numbers_and_texts() -> None:
    found = [(each.value, each.number, each.text) for each in Status]
    assert found == [(0, 0, "disabled"), (1, 1, "enabled"), (2, 2, "reload_failed"), (3, 255, "unknown")]


@pytest.mark.parametrize("index", [4, 255])
def test_status_has_no_place_for_what_it_does_not_know(index: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(index), type=Status)


@pytest.mark.parametrize(
    "text", ['test = "true"', "my_key=10", "", "\n", "# only a comment", "[a]\r\nb = 1\r\n", '"é" = "ü"\n'], ids=repr
)
def test_config_keeps_its_text(text: str) -> None:
    config = Config(text)
    assert config == text and str(config) == text and type(str(config)) is str
    assert type(config) is Config
    assert tomllib.loads(config) == tomllib.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "invalid",
        "a = ",
        "a = 1\na = 2",
        "\x00",
        "a = " + "[" * 100_000,
        "a = " + "1" * 5000,
        'a = "\ud800"',
        "a = 2023-13-45",
        "a.b = 1\na = 2",
    ],
    ids=["no pair", "no value", "twice", "NUL", "nested", "many digits", "surrogate", "no date", "two kinds"],
)
def test_config_of_text_that_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        Config(text)
    assert issubclass(raised.type, PystateError)
    assert issubclass(raised.type, ValueError)
    assert raised.value.reason in str(raised.value)
    assert len(str(raised.value)) < 300
    assert pickle.loads(pickle.dumps(raised.value)).reason == raised.value.reason


@pytest.mark.parametrize("given", [None, 5, b"a = 1", ["a = 1"]], ids=repr)
def test_config_of_what_is_no_text_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="a configuration is text"):
        Config(given)


def test_config_that_a_row_held_is_not_checked_even_when_copied() -> None:
    config = Config.from_stored("invalid")
    assert type(config) is Config and config == "invalid"
    for each in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert type(each) is Config and each == config


def test_text_made_from_a_config_is_no_config() -> None:
    assert type(Config("a = 1") + " invalid") is str
    assert type(Config("a = 1").strip()) is str


@given(st.text() | st.text(alphabet="a=1 [].\"'{},#\n-T:\\"))
def test_any_text_is_a_config_or_refused_as_one(text: str) -> None:
    try:
        config = Config(text)
    except InvalidConfigError:
        with pytest.raises(ValueError):
            tomllib.loads(text)
    else:
        assert config == text
