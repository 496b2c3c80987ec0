"""Families in a migration: making, dropping and renaming them, and holding what is there against what must be.

Promise: the helpers finish what has been begun and leave alone what is done, so that a step made of them may run on any
partial state, any number of times. What they raise they raise before they have changed anything. For the steps of a
migration, and for any other function that is given a `pystate.Rewriting`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pystate.engine.limits import check_family_name
from pystate.engine.rewriting import Rewriting
from pystate.errors import FamilyConflictError, MigrationFamiliesError

__all__ = ["DEFAULT_FAMILY", "check_families", "create_families", "drop_families", "family_names", "rename_family"]

DEFAULT_FAMILY = "default"
"""The family that every store has. No set of families names it."""


def create_families(rewriting: Rewriting, *names: str) -> None:
    """Make the families that are missing, empty. Those that are there stay as they are, rows included.

    Raises:
        TypeError, ValueError: a name cannot be one, or there are too many families.
    """
    present = set(rewriting.families)
    for name in sorted(family_names(names) - present):
        rewriting.create_family(name)


def drop_families(rewriting: Rewriting, *names: str) -> None:
    """Drop the families that are there, with their rows.

    Raises:
        TypeError, ValueError: a name cannot be one, or is ``"default"``.
    """
    present = set(rewriting.families)
    for name in sorted(family_names(names) & present):
        rewriting.drop_family(name)


def rename_family(rewriting: Rewriting, old: str, new: str) -> None:
    """Move all rows of the family `old` to the family `new`, which is made if it is missing; then there is no `old`.

    Without `old` nothing happens. Where both are there, as when somebody copied row by row and was stopped, they are
    merged: rows that only one of them has, and rows that are equal in both, end up in `new`.

    Raises:
        FamilyConflictError: both have a key, with different values.
        TypeError, ValueError: a name cannot be one, both are the same, or one is ``"default"``.

    Cost: nothing, if there is no `new`; else going through `old`.
    """
    if len(family_names((old, new))) != 2:
        raise ValueError(f"a family is renamed to another name, not from {old!r} to {new!r}")
    present = rewriting.families
    if old not in present:
        return
    if new not in present:
        rewriting.rename_family(old, new)
        return
    target = rewriting.family(new)
    missing: list[tuple[bytes, bytes]] = []
    conflicts = []
    for key, value in rewriting.family(old).items():
        there = target.get(key)
        if there is None:
            missing.append((key, value))
        elif there != value:
            conflicts.append(key)
    if conflicts:
        raise FamilyConflictError(old=old, new=new, key=conflicts[0], count=len(conflicts))
    for key, value in missing:
        target.put(key, value)
    rewriting.drop_family(old)


def family_names(names: Iterable[str]) -> frozenset[str]:
    """`names` as a set, all of them looked at.

    Raises:
        TypeError: it is no iterable of texts, or a single text. ValueError: one cannot name a family, or is
            ``"default"``.
    """
    if isinstance(names, (str, bytes)):
        raise TypeError(f"the names of families are a list, not {names!r}")
    checked = frozenset(map(check_family_name, names))
    if DEFAULT_FAMILY in checked:
        raise ValueError("every store has the family 'default': it is never made, dropped or renamed, so leave it out")
    return checked


def check_families(where: str, present: Iterable[str], *, at_least: frozenset[str], at_most: frozenset[str]) -> None:
    """Refuse families that are not between two sets.

    Arguments:
        where: for the error: whose families they are.
        present: the families that are there; ``"default"`` may be among them, and does not count.
        at_least: those that must be there.
        at_most: those that may be.

    Raises:
        MigrationFamiliesError: they are not.
    """
    found = set(present) - {DEFAULT_FAMILY}
    missing, unexpected = sorted(at_least - found), sorted(found - at_most)
    if missing or unexpected:
        raise MigrationFamiliesError(where, missing=tuple(missing), unexpected=tuple(unexpected))
