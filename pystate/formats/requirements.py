"""Requirements: which versions a program accepts.

Promise: a version satisfies a requirement when every comparator holds and, if the version is a pre-release, one of the
comparators names a pre-release of the same three numbers. Anyone may call this module.

The second rule is that of Cargo. A pre-release is accepted only by those who have asked for pre-releases of exactly
that version, so a range between releases matches none of those in it: ``>=0.43.0,<0.44.0`` takes neither
``0.43.1-alpha.1`` nor ``0.44.0-alpha.1``.

In one corner this is wider than Cargo. A comparator of one or two numbers compares just these, also where the version
is a pre-release of the same ones: ``>=0.3,<0.3.1-beta`` takes ``0.3.1-alpha``; in Cargo ``>=0.3`` does not hold for it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pystate.errors import VersionError
from pystate.formats.versions import TEXT_LENGTH_MAX, Version, check_number, check_text, number_problem, pre_problem

__all__ = ["Comparator", "Requirement"]

#: What each operator asks of a version and a bound; those of two characters come first, so that parsing sees them.
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class Comparator(msgspec.Struct, frozen=True):
    """One bound of a requirement. Immutable and hashable; threads may share it.

    Attributes:
        operator: ``">="``, ``"<="``, ``">"`` or ``"<"``.
        numbers: major; major and minor; or major, minor and patch.
        pre: the pre-release, only beside three numbers; empty for none.

    Raises:
        TypeError: a part is not what it must be. VersionError: the parts make no comparator.
    """

    operator: str
    numbers: tuple[int, ...]
    pre: str = ""

    def __post_init__(self) -> None:
        check_text("operator", self.operator)
        check_text("pre", self.pre)
        numbers: object = self.numbers
        if not isinstance(numbers, tuple):
            raise TypeError(f"numbers is tuple, not {type(numbers).__name__}")
        for number in self.numbers:
            check_number("a number", number)
        text = str(self)
        if problem := _problem(self.operator, list(map(str, self.numbers)), self.pre or None):
            raise VersionError(text, problem, what="requirement")

    def holds_for(self, version: Version) -> bool:
        """Whether `version` is on the right side of the bound, in the order of versions.

        A bound of fewer than three numbers is compared with as many of the version's: ``<=0.3`` holds for 0.3.9.
        """
        holds = _HOLDS[self.operator]
        if len(self.numbers) < 3:
            return holds(version.numbers[: len(self.numbers)], self.numbers)
        return holds(version, Version(*self.numbers, self.pre))  # type: ignore[call-arg, arg-type]

    def admits_pre_releases_of(self, version: Version) -> bool:
        """Whether the bound is itself a pre-release, with the numbers of `version`."""
        return self.pre != "" and self.numbers == version.numbers

    def __str__(self) -> str:
        text = self.operator + ".".join(map(str, self.numbers))
        return f"{text}-{self.pre}" if self.pre else text


class Requirement(msgspec.Struct, frozen=True):
    """A list of comparators, all of which must hold. Immutable and hashable; threads may share it.

        >>> from pystate.formats import Requirement, Version
        >>> requirement = Requirement.parse(">=0.46.0, <0.47.0-alpha.2")
        >>> str(requirement)
        '>=0.46.0,<0.47.0-alpha.2'
        >>> requirement.matches(Version.parse("0.47.0-alpha.1"))
        True
        >>> requirement.matches(Version.parse("0.46.1-rc.1"))  # a pre-release of 0.46.1, which no comparator names
        False

    Attributes:
        comparators: at least one.

    Raises:
        TypeError: not a tuple of comparators. VersionError: an empty one.
    """

    comparators: tuple[Comparator, ...]

    def __post_init__(self) -> None:
        comparators: object = self.comparators
        if not isinstance(comparators, tuple) or not all(isinstance(each, Comparator) for each in comparators):
            raise TypeError("comparators is a tuple of Comparator")
        if not comparators:
            raise VersionError("", "it has no comparator", what="requirement")

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """The requirement that `text` is: comparators with commas between them, as ``>=0.43.0,<0.44.0``.

        A comparator is an operator (``>=``, ``<=``, ``>`` or ``<``) and one to three numbers, three also with a
        pre-release. Blanks may stand around a comma, behind an operator, and at both ends.

        Raises:
            VersionError: it is none; the error says what is wrong with it.
            TypeError: it is not a ``str``.
        """
        check_text("the text of a requirement", text)
        comparators = []
        for part in text.split(","):
            found = _split(part.strip(" "))
            if problem := _problem(*found):
                raise VersionError(text, problem, what="requirement")
            sign, numbers, pre = found
            comparators.append(Comparator(sign, tuple(map(int, numbers)), pre or ""))
        return cls(tuple(comparators))

    def matches(self, version: Version) -> bool:
        """Whether `version` satisfies the requirement. Build metadata is ignored.

        Raises:
            TypeError: it is not a `Version`.
        """
        if not isinstance(version, Version):
            raise TypeError(f"a requirement is matched with a Version, not {type(version).__name__}; see Version.parse")
        if version.pre and not any(each.admits_pre_releases_of(version) for each in self.comparators):
            return False
        return all(each.holds_for(version) for each in self.comparators)

    def __str__(self) -> str:
        return ",".join(map(str, self.comparators))


def _split(text: str) -> tuple[str, list[str], str | None]:
    """The operator, the numbers and the pre-release (None where there is none) of a comparator, all unchecked."""
    sign = next((sign for sign in _HOLDS if text.startswith(sign)), "")
    core, dash, pre = text[len(sign) :].lstrip(" ").partition("-")
    return sign, core.split("."), pre if dash else None


def _problem(sign: str, numbers: Sequence[str], pre: str | None) -> str | None:
    """What is wrong with a comparator, taken apart, or None."""
    bound = ".".join(numbers) + (f"-{pre}" if pre else "")
    if not sign and not bound:
        return "a comparator is missing"
    if len(bound) > TEXT_LENGTH_MAX:
        return f"a bound has {len(bound)} characters, and {TEXT_LENGTH_MAX} is the most"
    if sign not in _HOLDS:
        return f"{sign + bound!r} does not begin with one of {', '.join(_HOLDS)}"
    if "<" in bound or ">" in bound:
        return f"there is no comma between the comparators of {sign + bound!r}"
    if "+" in bound:
        return f"{bound!r} has build metadata, which is ignored in a comparison; leave it out"
    if not 1 <= len(numbers) <= 3:
        return f"a comparator has one to three numbers, not {len(numbers)}"
    for number in numbers:
        if problem := number_problem(number):
            return problem
    if pre is not None and len(numbers) < 3:
        return f"{bound!r} has a pre-release without all three numbers"
    return None if pre is None else pre_problem(pre)
