"""What the commands for effects have in common: opening them, finding one, and writing instants and JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec

import pystate
from pystate.cli.exits import CommandError, Exit
from pystate.cli.output import printable
from pystate.effects import EffectId, EffectKey, EffectName, EffectReads, EffectRecord, EffectStore, LogicalKey
from pystate.errors import DecodeError, FamilyNotFoundError, IdentityError

__all__ = ["bound", "effects_of", "find_effect", "id_of", "instant", "json_text", "moment"]


@contextmanager
def effects_of(store: pystate.Store, arguments: argparse.Namespace) -> Iterator[EffectStore]:
    """The effects in a store; what goes wrong with them is said in words for a command line."""
    try:
        yield EffectStore(store)
    except FamilyNotFoundError as error:
        there = ", ".join(map(repr, error.families))
        raise CommandError(
            Exit.STORE,
            f"{arguments.store}: no effects here: it has no family {error.family!r}, but {there}; give a store that "
            "pystate.effects has made",
        ) from error
    except DecodeError as error:
        raise CommandError(Exit.CORRUPTION, f"{arguments.store}: {error}; nothing was changed") from error


@contextmanager
def bound(store: pystate.Store, arguments: argparse.Namespace) -> Iterator[EffectReads]:
    """The effects as of one state, for reading."""
    with effects_of(store, arguments) as effects, effects.reading() as reads:
        yield reads


def find_effect(reads: EffectReads, text: str) -> EffectRecord | None:
    """The effect that is meant: by its id, or by its name, a colon and its key.

    Raises:
        CommandError: the text is neither, or more than one effect is called so (both parts may have colons).
    """
    try:
        return reads.get(EffectId(text))
    except IdentityError:
        pass
    if ":" not in text:
        raise CommandError(Exit.USAGE, f"{printable(text)!r} is neither an id nor NAME:KEY; `effects list` shows both")
    found = [record for key in _keys(text) if (record := reads.get_by_key(key)) is not None]
    if len(found) > 1:
        ids = ", ".join(record.id for record in found)
        raise CommandError(Exit.USAGE, f"{printable(text)} may mean {ids}; give one of these ids")
    return found[0] if found else None


def _keys(text: str) -> Iterator[EffectKey]:
    """The keys that are written so."""
    for at, character in enumerate(text):
        if character == ":":
            try:
                yield EffectKey(EffectName(text[:at]), LogicalKey(text[at + 1 :]))
            except IdentityError:
                continue


def id_of(text: str) -> EffectId:
    """The id that is written so.

    Raises:
        CommandError: it is none.
    """
    try:
        return EffectId(text)
    except IdentityError as error:
        raise CommandError(Exit.USAGE, printable(str(error))) from None


def moment(arguments: argparse.Namespace) -> datetime:
    """The time that a command is about: the given one, or else that of the system's clock."""
    given: datetime | None = arguments.at
    return datetime.now(UTC) if given is None else given


def instant(value: datetime) -> str:
    """A time in UTC, as options take it."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def json_text(value: object) -> str:
    """A value as compact JSON."""
    return msgspec.json.encode(value).decode()
