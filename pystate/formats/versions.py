"""Semantic versions: `Version`, its text and its order.

Promise: `Version.parse` accepts exactly the texts of semantic versioning 2.0.0, up to `TEXT_LENGTH_MAX` characters, and
nothing around them; ``str`` of the result is the text again, character for character. Anyone may call this module.

Equality and order answer two questions. ``==`` asks for the same version, build metadata included. ``<``, ``<=``, ``>``
and ``>=`` ask which one takes *precedence*, and to precedence build metadata is nothing. So of two versions that differ
in build metadata alone neither is less, each is ``<=`` the other, and they are not equal: ``<=`` is the opposite of
``>``, not ``<`` or ``==``. Sorting is safe, and leaves such versions in the order in which they came.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from pystate.errors import VersionError

__all__ = [
    "TEXT_LENGTH_MAX",
    "Precedence",
    "Version",
    "as_version",
    "check_number",
    "check_text",
    "number_problem",
    "pre_problem",
]

TEXT_LENGTH_MAX = 255
"""The longest text of a version, in characters. It bounds what is read of a marker, and every number."""

Precedence: TypeAlias = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]
"""Compares as versions do; see `Version.precedence`."""

_DIGITS = re.compile(r"[0-9]+")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")
_NUMBER_LIMIT = 10**TEXT_LENGTH_MAX


class Version(msgspec.Struct, frozen=True):
    """A semantic version. Immutable, hashable, ordered by precedence; threads may share it.

        >>> from pystate.formats import Version
        >>> version = Version.parse("0.47.0-alpha.2")
        >>> version.minor, version.pre, str(version)
        (47, 'alpha.2', '0.47.0-alpha.2')
        >>> Version(0, 47, 0, "alpha.2") < Version(0, 47, 0, "alpha.10") < Version(0, 47, 0)
        True
        >>> left, right = Version.parse("1.0.0+left"), Version.parse("1.0.0+right")
        >>> left == right, left < right, left <= right, left >= right
        (False, False, True, True)

    Attributes:
        major, minor, patch: the numbers.
        pre: the pre-release, identifiers between dots; empty for a release.
        build: the build metadata, likewise; part of ``==`` and of the hash, not of the order.

    Raises:
        TypeError: a number is not an ``int``, or a text not a ``str``.
        VersionError: the parts make no version.
    """

    major: int
    minor: int
    patch: int
    pre: str = ""
    build: str = ""

    def __post_init__(self) -> None:
        for name in ("major", "minor", "patch"):
            check_number(name, getattr(self, name))
        for name in ("pre", "build"):
            check_text(name, getattr(self, name))
        text = str(self)
        if problem := _problem(text, [str(number) for number in self.numbers], self.pre or None, self.build or None):
            raise VersionError(text, problem)

    @classmethod
    def parse(cls, text: str) -> Version:
        """The version that `text` is: ``major.minor.patch[-pre][+build]``, no part missing, nothing around it.

        Raises:
            VersionError: it is none; the error says what is wrong with it.
            TypeError: it is not a ``str``.
        """
        check_text("the text of a version", text)
        rest, plus, build = text.partition("+")
        core, dash, pre = rest.partition("-")
        numbers = core.split(".")
        if problem := _problem(text, numbers, pre if dash else None, build if plus else None):
            raise VersionError(text, problem)
        return cls(*map(int, numbers), pre, build)  # type: ignore[call-arg, arg-type]

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Major, minor and patch."""
        return self.major, self.minor, self.patch

    @property
    def precedence(self) -> Precedence:
        """What the order compares: the numbers, then the pre-release, identifier by identifier.

        No pre-release is above every pre-release. Numeric identifiers compare as numbers and stand below the others,
        which compare byte by byte; a longer list stands above its own beginning.
        """
        identifiers = self.pre.split(".") if self.pre else []
        return *self.numbers, not identifiers, tuple(map(_rank, identifiers))

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.pre:
            text += f"-{self.pre}"
        return f"{text}+{self.build}" if self.build else text

    # Four methods, each on its own: `functools.total_ordering` would make ``<=`` of ``<`` and ``==``.

    def __lt__(self, other: Any) -> bool:
        return self.precedence < other.precedence if isinstance(other, Version) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self.precedence <= other.precedence if isinstance(other, Version) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self.precedence > other.precedence if isinstance(other, Version) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self.precedence >= other.precedence if isinstance(other, Version) else NotImplemented


def as_version(version: Version | str) -> Version:
    """`version`, parsed if it is a text.

    Raises:
        VersionError: the text is no version. TypeError: it is neither a `Version` nor a ``str``.
    """
    return version if isinstance(version, Version) else Version.parse(version)


def check_number(name: str, number: object) -> None:
    """Refuse what cannot be a number of a version at all. (A negative one is seen in its text.)

    Raises:
        TypeError: not an ``int``. VersionError: longer than `TEXT_LENGTH_MAX`; Python makes no text of very large ones.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} is int, not {type(number).__name__}")
    if abs(number) >= _NUMBER_LIMIT:
        raise VersionError(f"{name} of {number.bit_length()} bits", f"{TEXT_LENGTH_MAX} digits is the most")


def check_text(name: str, text: object) -> None:
    """Refuse a part of a version that is not a text.

    Raises:
        TypeError: not a ``str``.
    """
    if not isinstance(text, str):
        raise TypeError(f"{name} is str, not {type(text).__name__}")


def number_problem(text: str) -> str | None:
    """What is wrong with a number of a version, or None."""
    if not text:
        return "a number is missing"
    if not _DIGITS.fullmatch(text):
        return f"{text!r} is not made of digits"
    if text[0] == "0" and text != "0":
        return f"{text!r} begins with a zero"
    return None


def pre_problem(pre: str) -> str | None:
    """What is wrong with a pre-release, or None. The empty one is wrong."""
    return _identifiers_problem(pre, "pre-release") or next(
        (
            f"the number {part!r} of the pre-release begins with a zero"
            for part in pre.split(".")
            if part[0] == "0" and part != "0" and _DIGITS.fullmatch(part)
        ),
        None,
    )


def _identifiers_problem(text: str, what: str) -> str | None:
    for identifier in text.split("."):
        if not identifier:
            return f"an identifier of the {what} is empty"
        if not _IDENTIFIER.fullmatch(identifier):
            return f"{identifier!r} of the {what} holds something else than ASCII letters, digits and hyphens"
    return None


def _problem(text: str, numbers: Sequence[str], pre: str | None, build: str | None) -> str | None:
    """What is wrong with the version `text`, taken apart; a part that is not there is None."""
    if not text:
        return "it is empty"
    if len(text) > TEXT_LENGTH_MAX:
        return f"it has {len(text)} characters, and {TEXT_LENGTH_MAX} is the most"
    if text != text.strip():
        return "there is white space around it"
    for number in numbers:
        if problem := number_problem(number):
            return problem
    if len(numbers) != 3:
        return f"it has {len(numbers)} of the three numbers" if len(numbers) < 3 else "it has more than three numbers"
    return (None if pre is None else pre_problem(pre)) or (
        None if build is None else _identifiers_problem(build, "build metadata")
    )


def _rank(identifier: str) -> tuple[bool, int, str]:
    """The place of one identifier of a pre-release among all: numbers first."""
    return (False, int(identifier), "") if _DIGITS.fullmatch(identifier) else (True, 0, identifier)
