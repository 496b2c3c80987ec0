"""Kinds, failure classes, and what an action reports."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from pystate.effects.kinds import Disposition, EffectFailure, EffectKind, ErrorRecord, FailureClass
from pystate.errors import MalformedError
from tests.effects.values import errors, failure_classes

CONSTANTS = [
    FailureClass.TRANSIENT,
    FailureClass.AMBIGUOUS,
    FailureClass.PERMANENT,
    FailureClass.AUTHENTICATION,
    FailureClass.AUTHORIZATION,
    FailureClass.VALIDATION,
]
NINE = timedelta(seconds=9)


def test_kinds_are_their_text() -> None:
    """Check E13: there and back; another text is nothing, not a default; two are naturally idempotent."""
    assert [str(kind) for kind in EffectKind] == ["read", "idempotent_write", "reversible_write", "irreversible_write"]
    assert all(EffectKind.parse(str(kind)) is kind for kind in EffectKind)
    assert EffectKind.parse("write") is None and EffectKind.parse("READ") is None
    assert [kind for kind in EffectKind if kind.is_naturally_idempotent] == [
        EffectKind.READ,
        EffectKind.IDEMPOTENT_WRITE,
    ]


@pytest.mark.parametrize(
    ("failure_class", "disposition"),
    [
        (FailureClass.TRANSIENT, Disposition.RETRY),
        (FailureClass.rate_limited(), Disposition.RETRY),
        (FailureClass.rate_limited(NINE), Disposition.RETRY),
        (FailureClass.AMBIGUOUS, Disposition.UNKNOWN),
        (FailureClass.PERMANENT, Disposition.FAIL),
        (FailureClass.AUTHENTICATION, Disposition.FAIL),
        (FailureClass.AUTHORIZATION, Disposition.FAIL),
        (FailureClass.VALIDATION, Disposition.FAIL),
    ],
    ids=str,
)
def test_what_to_do_about_each_class(failure_class: FailureClass, disposition: Disposition) -> None:
    """Check E14: two are retried, one is unknown, four fail."""
    assert failure_class.disposition is disposition


def test_only_an_ambiguous_failure_of_an_unsent_request_becomes_definite() -> None:
    """Check E15: and no definite class becomes ambiguous because the request was sent."""
    assert FailureClass.AMBIGUOUS.with_request_sent(False) == FailureClass.TRANSIENT
    assert FailureClass.AMBIGUOUS.with_request_sent(True) == FailureClass.AMBIGUOUS
    assert FailureClass.AMBIGUOUS.with_request_sent(None) == FailureClass.AMBIGUOUS
    for sent in (True, False, None):
        for other in (*CONSTANTS, FailureClass.rate_limited(NINE)):
            if other != FailureClass.AMBIGUOUS:
                assert other.with_request_sent(sent) == other


def test_a_rate_limit_says_how_long_to_wait() -> None:
    """Check E16: in memory and in JSON."""
    limited = FailureClass.rate_limited(NINE)
    assert limited.retry_after == NINE
    assert limited.to_json() == {"class": "rate_limited", "retry_after": {"secs": 9, "nanos": 0}}
    assert FailureClass.rate_limited().to_json() == {"class": "rate_limited", "retry_after": None}
    assert FailureClass.PERMANENT.retry_after is None
    assert FailureClass.TRANSIENT.to_json() == {"class": "transient"}
    assert limited != FailureClass.rate_limited() != FailureClass.TRANSIENT


@given(failure_classes)
def test_a_class_in_json_and_back_is_the_same(failure_class: FailureClass) -> None:
    assert FailureClass.from_json(failure_class.to_json()) == failure_class


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"class": "fatal"},
        {"class": None},
        {"class": "transient", "more": 1},
        {"class": "transient", "retry_after": {"secs": 1, "nanos": 0}},
        {"class": "rate_limited", "retry_after": 9},
        {"class": "rate_limited", "retry_after": {"secs": 9}},
        {"class": "rate_limited", "retry_after": {"secs": -9, "nanos": 0}},
        "transient",
    ],
    ids=repr,
)
def test_another_class_in_json_is_refused(value: Any) -> None:
    with pytest.raises(MalformedError, match="failure class"):
        FailureClass.from_json(value)


def test_a_missing_wait_in_json_is_none() -> None:
    assert FailureClass.from_json({"class": "rate_limited"}) == FailureClass.rate_limited()


def test_wrong_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="no failure class 'fatal'"):
        FailureClass(name="fatal", retry_after=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only rate_limited has one"):
        FailureClass(name="transient", retry_after=NINE)
    with pytest.raises(ValueError, match="negative"):
        FailureClass.rate_limited(-NINE)
    with pytest.raises(TypeError, match="timedelta"):
        FailureClass.rate_limited(9)  # type: ignore[arg-type]


# Error records


def test_the_json_of_an_error() -> None:
    assert ErrorRecord(failure_class=FailureClass.TRANSIENT, message="m").to_json() == {
        "class": {"class": "transient"},
        "message": "m",
    }
    assert ErrorRecord(failure_class=None, message="m").to_json() == {"class": None, "message": "m"}
    assert ErrorRecord.from_json({"message": "m"}) == ErrorRecord(failure_class=None, message="m")


@given(errors)
def test_an_error_in_json_and_back_is_the_same(error: ErrorRecord) -> None:
    assert ErrorRecord.from_json(error.to_json()) == error


@pytest.mark.parametrize(
    "value", [{}, {"message": 1}, {"message": "m", "class": "transient"}, {"message": "m", "x": 1}]
)
def test_another_error_in_json_is_refused(value: Any) -> None:
    with pytest.raises(MalformedError, match="error record"):
        ErrorRecord.from_json(value)


def test_a_message_that_utf8_cannot_hold_is_spelled_out() -> None:
    """As the name of a file brings it along; the error must not be lost for it."""
    assert ErrorRecord(failure_class=None, message="no file a\udc80é").message == "no file a\\udc80é"


def test_wrong_errors_are_refused() -> None:
    with pytest.raises(TypeError, match="failure_class"):
        ErrorRecord(failure_class="transient", message="m")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="message"):
        ErrorRecord(failure_class=None, message=ValueError("m"))  # type: ignore[arg-type]


# What an action reports


def test_an_unsent_ambiguous_failure_is_recorded_as_transient() -> None:
    """Check E17: with the text of the error behind it."""
    failure = EffectFailure.ambiguous("refused").with_request_sent(False)
    assert failure.to_error_record() == ErrorRecord(failure_class=FailureClass.TRANSIENT, message="refused")
    assert (failure.given_class, failure.request_sent) == (FailureClass.AMBIGUOUS, False)
    assert str(failure) == "transient: refused"


def test_there_is_a_constructor_for_each_class() -> None:
    for constant in CONSTANTS:
        failure = getattr(EffectFailure, constant.name)("m")
        assert failure.failure_class is constant and failure.request_sent is None
        assert failure.to_error_record() == ErrorRecord(failure_class=constant, message="m")
        assert getattr(EffectFailure, constant.name)("m", request_sent=True).request_sent is True
    limited = EffectFailure.rate_limited(NINE, "429")
    assert limited.to_error_record() == ErrorRecord(failure_class=FailureClass.rate_limited(NINE), message="429")
    assert EffectFailure.rate_limited(None, "429").failure_class == FailureClass.rate_limited()


def test_the_error_behind_a_failure_is_its_cause() -> None:
    error = ConnectionError("refused")
    failure = EffectFailure.transient(error)
    assert failure.error is error and failure.__cause__ is error
    assert failure.to_error_record().message == "refused"


def test_a_failure_can_be_pickled_and_copied() -> None:
    failure = EffectFailure.rate_limited(NINE, "429", request_sent=True)
    for other in (pickle.loads(pickle.dumps(failure)), copy.copy(failure), copy.deepcopy(failure)):
        assert type(other) is EffectFailure
        assert (other.given_class, other.error, other.request_sent) == (FailureClass.rate_limited(NINE), "429", True)


def test_a_failure_without_a_class_is_refused() -> None:
    with pytest.raises(TypeError, match="given_class"):
        EffectFailure("transient", "m")  # type: ignore[arg-type]
