"""Everything that users of the layer need can be imported from it, and its example does what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pystate.review

PACKAGE = Path(pystate.review.__file__).parent
#: Not for users: what writes through a schema writes around the rules of its table; the rest are parts of modules here.
INSIDE = {
    "AGENTS", "CORE_COMPONENTS", "CUSTOMER_DATA_DELETION_JOBS", "EXTERNAL_SERVICES", "HOSTS", "LABEL_DATABASE",
    "NODES", "OPERATION_ATTEMPTS", "RETENTION", "TOR_EXIT_NODES",
    "FAMILY", "I64", "IPAddress", "IPNetwork", "Inner", "Instant", "KeyedValue", "StoredEnum", "U32", "U8",
    "ConfigValue", "change_members", "check_hostnames", "check_members", "check_old_members", "freeze", "member_keys",
    "freeze_bound_addrs", "node_with_hostname", "of_node",
    "pack_address", "read_members", "remove_members", "seed_statuses", "store_members",
}  # fmt: skip


def names_in_modules() -> set[str]:
    names: set[str] = set()
    for path in PACKAGE.glob("*.py"):
        if path.stem != "__init__":
            names |= set(importlib.import_module(f"pystate.review.{path.stem}").__all__)
    return names


def test_every_public_name_is_here() -> None:
    """The design, section 8: what is public in a subpackage is importable from it."""
    assert names_in_modules() - INSIDE - set(pystate.review.__all__) == set(), "neither exported nor said to be inside"
    assert INSIDE - names_in_modules() == set(), "no longer there"
    assert len(pystate.review.__all__) == len(set(pystate.review.__all__))
    assert all(hasattr(pystate.review, name) for name in pystate.review.__all__)


def test_the_example_runs() -> None:
    assert doctest.testmod(pystate.review).failed == 0
    assert doctest.testmod(pystate.review).attempted > 3
