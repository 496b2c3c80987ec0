"""The conformance suite of a store, run on the store in memory and on the store on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pystate
from pystate import Store
from tests.engine.contract import StoreContract


class TestStore(StoreContract):
    """Both of pystate's stores keep the contract."""

    @pytest.fixture(params=["memory", "disk"])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
        if request.param == "memory":
            opened = pystate.memory()
        else:
            opened = pystate.open(str(tmp_path / "store"), durability="process")
        with opened:
            yield opened
