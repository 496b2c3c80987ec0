"""What a text on the command line means: keys, files, numbers, instants, ages, JSON.

Each function takes the text of one argument and returns what it stands for, or raises `ArgumentTypeError`, whose text
argparse shows after the name of the argument. The functions are given to ``add_argument(type=...)``.
"""

from __future__ import annotations

import argparse
import math
import re
from datetime import datetime, timedelta

import msgspec

from pystate.cli.bytes_text import parse_bytes

__all__ = [
    "STANDARD_INPUT",
    "GivenJson",
    "as_age",
    "as_bytes",
    "as_count",
    "as_file",
    "as_instant",
    "as_json",
    "as_number",
    "as_path",
    "as_seconds",
    "as_value",
]

STANDARD_INPUT = None
"""What the argument ``-`` of ``put`` and ``load`` becomes."""


def as_bytes(text: str) -> bytes:
    """A key or value, in the notation of the command line."""
    try:
        return parse_bytes(text, argument=True)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def as_value(text: str) -> bytes | None:
    """A value, or standard input."""
    return STANDARD_INPUT if text == "-" else as_bytes(text)


def as_file(text: str) -> str | None:
    """A file, or standard input."""
    return STANDARD_INPUT if text == "-" else text


def as_count(text: str) -> int:
    """A whole number from 0."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_AGE = re.compile(r"(\d{1,9})([dhms])", re.ASCII)
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def as_instant(text: str) -> datetime:
    """A time with its offset."""
    try:
        if _INSTANT.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not an instant with its offset, such as 2026-11-30T12:00:00Z")


def as_age(text: str) -> timedelta:
    """A length of time."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age, such as 30d, 12h, 90m or 45s")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


class GivenJson:
    """A JSON value that was given: null is one too."""

    def __init__(self, value: object) -> None:
        self.value = value


def as_json(text: str) -> GivenJson:
    """A JSON value."""
    try:
        return GivenJson(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise argparse.ArgumentTypeError(f'{text!r} is not JSON, such as 5, null or {{"id": "pi_1"}}') from None


def as_number(text: str) -> int:
    """A whole number from 1."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def as_path(text: str) -> str:
    """A path; the empty text is none."""
    if not text:
        raise argparse.ArgumentTypeError("'' is not a path; an unset variable, perhaps")
    return text


def as_seconds(text: str) -> float:
    """A number of seconds from 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 up")
    return seconds
