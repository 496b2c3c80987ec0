"""The package as a whole: its public names, its errors, and that no rule reads a clock."""

from __future__ import annotations

import copy
import doctest
import importlib
import inspect
import pickle
from datetime import datetime
from types import ModuleType

import pytest

import pystate.effects as package
from pystate import errors
from pystate.effects import EffectStatus, ExecutionContract, PayloadSchema, Transition
from pystate.errors import PystateError
from tests.effects.samples import T
from tests.sources import sources_below

OWN = [
    "checks", "contract", "fingerprint", "ids", "kinds", "payload", "policy", "record", "record_format", "redaction",
    "requests", "retry", "state",
]  # fmt: skip
MODULES = [importlib.import_module(f"pystate.effects.{name}") for name in OWN]
#: For the modules of the package only.
INTERNAL = {"checks"}

CONTRACT = ExecutionContract(max_attempts=5)
SAMPLES: list[PystateError] = [
    errors.ContractMismatchError("id", CONTRACT, None, ("max_attempts",)),
    errors.ControlCharacterError("effect name"),
    errors.MalformedError("effect record", "wrong"),
    errors.EffectNotFoundError("id"),
    errors.EffectRuntimeError("text"),
    errors.EffectStoreError("text", "id"),
    errors.EmptyIdentityError("effect name"),
    errors.IdentityError("effect name", "wrong"),
    errors.IdentityTooLongError("effect name", 201, 200),
    errors.InputMismatchError("id"),
    errors.InvalidEffectIdError("effect id", "x"),
    errors.InvalidTransitionError(EffectStatus.PENDING, Transition.SUCCEEDED, id="id"),
    errors.KindMismatchError("id", "read", "idempotent_write"),
    errors.LeaseHeldError("id", "a", T(0)),
    errors.LeaseLostError("id"),
    errors.NotJsonError("input", "$.a", "NaN"),
    errors.PayloadError("text"),
    errors.PayloadMigrationError("reason"),
    errors.UnsupportedPayloadVersionError(1, 2),
    errors.VersionConflictError("id", 1, 2),
]


def test_everything_public_can_be_imported_from_the_package() -> None:
    assert list(dict.fromkeys(package.__all__)) == package.__all__
    assert all(hasattr(package, name) for name in package.__all__)
    for module in MODULES:
        if module.__name__.rpartition(".")[2] not in INTERNAL:
            assert set(module.__all__) <= set(package.__all__), module.__name__
    assert {type(error).__name__ for error in SAMPLES} <= set(package.__all__)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_errors_can_be_pickled_and_copied(error: PystateError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert vars(other) == vars(error) and str(other) == str(error) == error.message


def test_errors_say_what_to_do() -> None:
    """The effect, the field, and the way on stand in the text."""
    said = {type(error).__name__: str(error) for error in SAMPLES}
    assert "wait until it is released" in said["LeaseHeldError"] and "'a'" in said["LeaseHeldError"]
    assert "2023-11-14T22:13:20+00:00" in said["LeaseHeldError"]
    assert "stop working" in said["LeaseLostError"]
    assert "read the record" in said["VersionConflictError"]
    assert "effect id that is pending cannot take the transition succeeded" in said["InvalidTransitionError"]
    assert "max_attempts" in said["ContractMismatchError"]
    assert "201 bytes" in said["IdentityTooLongError"] and "200" in said["IdentityTooLongError"]
    assert "$.a" in said["NotJsonError"]


def test_an_effect_that_is_not_there_is_a_key_error() -> None:
    error = errors.EffectNotFoundError("id")
    assert isinstance(error, KeyError)
    assert str(error).startswith("no effect id")


def test_no_rule_reads_a_clock() -> None:
    """Only the making of ids does: time comes from the caller."""
    for source in sources_below("pystate/effects"):
        if source.module.rpartition(".")[2] in OWN and source.module != "pystate.effects.ids":
            assert not {imported.module for imported in source.imports()} & {"time", "random", "os"}, source.file
    text = "".join(inspect.getsource(module) for module in MODULES)
    assert ".now(" not in text.replace("datetime.now(timezone.utc)", "") and "utcnow" not in text


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_in_the_texts_run(module: ModuleType) -> None:
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_schemas_and_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        PayloadSchema().version = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        CONTRACT.max_attempts = 6  # type: ignore[misc]
    assert isinstance(T(0), datetime)
