"""Requirements: the tables of the specification, the policy, and a second implementation on top of `semver`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import semver
from hypothesis import example, given
from hypothesis import strategies as st

from pystate.errors import VersionError
from pystate.formats import Comparator, Requirement, Version
from pystate.formats.versions import TEXT_LENGTH_MAX
from tests.formats.version_texts import requirements, version_texts


def accepts(requirement: str, version: str) -> bool:
    return Requirement.parse(requirement).matches(Version.parse(version))


def cases(table: dict[str, tuple[str, str]]) -> list[Any]:
    """The rows of a table of requirement, what satisfies it and what does not, one version in each row."""
    return [
        pytest.param(requirement, version, satisfied, id=f"{requirement} {version}")
        for requirement, columns in table.items()
        for satisfied, column in zip((True, False), columns, strict=True)
        for version in column.split()
    ]


PRE_RELEASES = cases(
    {
        ">=0.47.0-alpha.2,<0.47.0-alpha.3": (
            "0.47.0-alpha.2 0.47.0-alpha.2.1",
            "0.47.0-alpha.1 0.47.0-alpha.3 0.47.0-alpha.10 0.47.0-beta.1 0.47.0 0.47.1",
        ),
        ">=0.46.0,<0.47.0-alpha.2": (
            "0.46.0 0.46.9 0.47.0-alpha 0.47.0-alpha.0 0.47.0-alpha.1 0.47.0-alpha.1.5",
            "0.46.0-alpha.1 0.46.1-rc.1 0.47.0-alpha.2 0.47.0-alpha.10 0.47.0-beta 0.47.0",
        ),
        ">=0.43.0,<0.44.0": ("0.43.0 0.43.7", "0.42.9 0.43.0-alpha.1 0.43.1-alpha.1 0.44.0-alpha.1 0.44.0"),
    }
)

#: What each case of the policy for choosing a compatible requirement accepts, and what not.
POLICY = cases(
    {
        # 1: stable patch 0.4.1, format unchanged since 0.3.0
        ">=0.3,<0.5.0-alpha": ("0.3.0 0.3.9 0.4.0 0.4.1 0.4.99", "0.2.9 0.5.0-alpha 0.5.0 0.4.2-alpha.1 0.3.0-rc.1"),
        # 2: alpha patch 3.4.6-alpha.2, format unchanged since 1.0.0
        ">=1.0.0,<3.5.0-alpha": (
            "1.0.0 1.9.0 2.0.0 3.4.5 3.4.6",
            "0.9.9 1.0.0-rc.1 3.4.6-alpha.2 3.5.0-alpha 3.5.0-alpha.1 3.5.0",
        ),
        # 3: from 3.4.5 to 3.5.0-alpha.1, format unchanged
        ">=1.0.0,<=3.5.0-alpha.1": (
            "1.0.0 3.4.5 3.5.0-alpha 3.5.0-alpha.1",
            "3.5.0 3.5.0-alpha.1.1 3.5.0-alpha.2 3.4.6-alpha.1 1.0.0-alpha",
        ),
        # 4 and 5: from 3.4.5, or from 3.4.5-alpha.3, to stable 3.5.0, format unchanged
        ">=1.0.0,<3.6.0-alpha": ("1.0.0 3.4.5 3.5.0 3.5.9", "0.9.0 3.6.0-alpha 3.6.0 3.5.1-alpha.1 3.4.5-alpha.3"),
        # 6: from 3.4.5 to 3.5.0-alpha.1, format changes
        ">=3.5.0-alpha.1,<3.5.0-alpha.2": (
            "3.5.0-alpha.1 3.5.0-alpha.1.1",
            "3.4.5 3.5.0-alpha 3.5.0-alpha.2 3.5.0-beta 3.5.0",
        ),
        # 7: from 3.5.0-alpha.2 to 3.5.0-alpha.3, format changes
        ">=3.5.0-alpha.3,<3.5.0-alpha.4": (
            "3.5.0-alpha.3 3.5.0-alpha.3.7",
            "3.5.0-alpha.2 3.5.0-alpha.2.9 3.5.0-alpha.4 3.5.0-alpha.10 3.5.0",
        ),
        # 8: from 3.5.0-alpha.2 to stable 3.5.0, format final
        ">=3.5.0,<3.6.0-alpha": ("3.5.0 3.5.1", "3.5.0-alpha.2 3.5.0-alpha.3 3.4.5 3.6.0-alpha.1 3.6.0-alpha 3.6.0"),
    }
)

#: Comparators of each number of parts.
PARTS = cases(
    {
        ">=1": ("1.0.0 1.2.3 2.0.0", "0.9.9 1.0.0-alpha 2.0.0-alpha"),
        ">1": ("2.0.0 10.0.0", "1.0.0 1.9.9 0.1.0"),
        "<=1": ("1.0.0 1.9.9 0.1.0", "2.0.0 1.0.0-alpha"),
        "<1": ("0.9.9", "1.0.0 1.0.0-alpha"),
        ">=1.2": ("1.2.0 1.2.9 1.3.0 2.0.0", "1.1.9 0.9.0"),
        ">1.2": ("1.3.0 2.0.0", "1.2.9 1.2.0 1.1.0"),
        "<=1.2": ("1.2.9 1.1.0 0.9.0", "1.3.0 2.0.0"),
        "<1.2": ("1.1.9 0.9.9", "1.2.0 1.2.9 2.0.0"),
        ">=1.2.3": ("1.2.3 1.2.4 2.0.0 1.2.3+build", "1.2.2 1.2.3-alpha 1.2.4-alpha"),
        ">1.2.3": ("1.2.4 2.0.0", "1.2.3 1.2.3+build 1.2.2 1.2.4-alpha"),
        "<=1.2.3": ("1.2.3 1.2.3+build 0.0.1", "1.2.4 1.2.3-alpha"),
        "<1.2.3": ("1.2.2 0.9.9", "1.2.3 1.2.3-alpha 1.2.2-alpha"),
        ">1.2.3-alpha": ("1.2.3-alpha.0 1.2.3-beta 1.2.3 2.0.0", "1.2.3-alpha 1.2.3-alpha+build 1.2.2 1.2.4-beta"),
        "<=1.2.3-2": ("1.2.3-1 1.2.3-2 1.2.2", "1.2.3-3 1.2.3-a 1.2.3 1.2.2-1"),
        ">=0.3,<0.3.1-beta": ("0.3.0 0.3.1-alpha", "0.3.1-beta 0.3.1 0.3.0-alpha"),
        ">=1,>=1.2,<2.0.0-0": ("1.2.0 1.9.9", "1.1.0 2.0.0-0 2.0.0"),
        "<1.0.0,>2.0.0": ("", "0.9.0 1.5.0 3.0.0"),
    }
)


@pytest.mark.parametrize(("requirement", "version", "satisfied"), PRE_RELEASES)
def test_pre_release_rule(requirement: str, version: str, satisfied: bool) -> None:
    """Check R178: every row of the table of requirements."""
    assert accepts(requirement, version) is satisfied


@pytest.mark.parametrize(("requirement", "version", "satisfied"), POLICY)
def test_policy_for_a_compatible_requirement(requirement: str, version: str, satisfied: bool) -> None:
    """Check R180: every case accepts and rejects as described."""
    assert accepts(requirement, version) is satisfied


@pytest.mark.parametrize(
    ("package", "compatible", "next_minor"),
    [
        ("0.47.0-alpha.2", ">=0.47.0-alpha.2,<0.47.0-alpha.3", "0.48.0"),
        ("0.4.1", ">=0.3,<0.5.0-alpha", "0.5.0"),
        ("0.46.0", ">=0.46.0,<0.47.0", "0.47.0"),
    ],
)
def test_package_version_is_compatible_and_the_next_minor_is_not(
    package: str, compatible: str, next_minor: str
) -> None:
    """Check R181: on the versions that the specification names."""
    assert accepts(compatible, package)
    assert not accepts(compatible, next_minor)


@pytest.mark.parametrize(("requirement", "version", "satisfied"), PARTS)
def test_comparators_of_one_to_three_numbers(requirement: str, version: str, satisfied: bool) -> None:
    assert accepts(requirement, version) is satisfied


# Against another implementation

HOLDS = {">=": (0, 1), "<=": (-1, 0), ">": (1,), "<": (-1,)}


def expected(comparators: Sequence[tuple[str, tuple[int, ...], str]], text: str) -> bool:
    """The two rules, with the order of `semver`; what a comparator does not compare is made the same as its own."""
    version = semver.Version.parse(text)
    pre_release_is_named = False
    for sign, numbers, pre in comparators:
        major, minor, patch = (*numbers, 0, 0)[:3]
        bound = semver.Version(major, minor, patch, pre or None)
        compared = version if len(numbers) == 3 else version.replace(prerelease=None, patch=0)
        if len(numbers) == 1:
            compared = compared.replace(minor=0)
        if compared.compare(bound) not in HOLDS[sign]:
            return False
        pre_release_is_named |= bool(pre) and numbers == (version.major, version.minor, version.patch)
    return version.prerelease is None or pre_release_is_named


def small_versions() -> st.SearchStrategy[str]:
    """Versions near the bounds that `requirements` draws."""
    pre = st.sampled_from(["", "-0", "-alpha", "-alpha.1", "-alpha.2", "-beta", "--", "-a1", "-rc"])
    number = st.integers(0, 2)
    return st.builds("{}.{}.{}{}{}".format, number, number, number, pre, st.sampled_from(["", "+1"]))


@given(requirements, small_versions() | version_texts())
@example([(">=", (0, 3), ""), ("<", (0, 3, 1), "beta")], "0.3.1-alpha")
def test_matches_as_the_two_rules_on_top_of_semver(
    comparators: list[tuple[str, tuple[int, ...], str]], text: str
) -> None:
    requirement = Requirement(tuple(Comparator(*each) for each in comparators))
    assert requirement.matches(Version.parse(text)) is expected(comparators, text)


@given(requirements, small_versions(), st.data())
def test_a_bound_that_is_a_pre_release_of_the_version_lets_it_in(
    comparators: list[tuple[str, tuple[int, ...], str]], text: str, data: st.DataObject
) -> None:
    """The same, where the second rule matters: one of the bounds has the numbers of the version."""
    version = Version.parse(text)
    pre = data.draw(st.sampled_from(["0", "alpha", "alpha.1", "beta", "rc"]))
    near = [*comparators[:1], (data.draw(st.sampled_from(sorted(HOLDS))), version.numbers, pre)]
    requirement = Requirement(tuple(Comparator(*each) for each in near))
    assert requirement.matches(version) is expected(near, text)


@given(requirements, small_versions())
def test_build_metadata_is_ignored(comparators: list[tuple[str, tuple[int, ...], str]], text: str) -> None:
    requirement = Requirement(tuple(Comparator(*each) for each in comparators))
    version = Version.parse(text)
    assert requirement.matches(version) is requirement.matches(Version(*version.numbers, version.pre, "other.001"))


# The text


@given(requirements, st.sampled_from(["", " ", "  "]))
def test_text_of_a_requirement_comes_back_without_blanks(
    comparators: list[tuple[str, tuple[int, ...], str]], blank: str
) -> None:
    texts = [f"{sign}{blank}{'.'.join(map(str, numbers))}{'-' * bool(pre)}{pre}" for sign, numbers, pre in comparators]
    requirement = Requirement.parse(f"{blank},{blank}".join([blank + texts[0], *texts[1:]]) + blank)
    assert str(requirement) == ",".join(texts).replace(" ", "")
    assert requirement == Requirement(tuple(Comparator(*each) for each in comparators))
    assert hash(requirement) == hash(Requirement.parse(str(requirement)))


@given(st.text("<>=.,-+ 0123aA*^~\n", max_size=12))
def test_whatever_is_read_as_a_requirement_is_written_as_it_was_read(text: str) -> None:
    try:
        requirement = Requirement.parse(text)
    except VersionError as error:
        assert (error.text, error.what) == (text, "requirement")
    else:
        assert str(requirement) == text.replace(" ", "")
        assert Requirement.parse(str(requirement)) == requirement


WRONG = {
    "": "a comparator is missing",
    " ": "a comparator is missing",
    ">=1.0.0,": "a comparator is missing",
    ",>=1.0.0": "a comparator is missing",
    ">=1.0.0,,<2.0.0": "a comparator is missing",
    ">=": "a number is missing",
    ">=1.": "a number is missing",
    ">=.1": "a number is missing",
    "1.0.0": "'1.0.0' does not begin with one of >=, <=, >, <",
    "=1.0.0": "does not begin with one of",
    "=>1.0.0": "does not begin with one of",
    "^1.0": "does not begin with one of",
    "~1.0": "does not begin with one of",
    "*": "does not begin with one of",
    "\t>=1": "does not begin with one of",
    "> =1.0.0": "'=1' is not made of digits",
    ">=1.*": "'*' is not made of digits",
    ">=v1": "'v1' is not made of digits",
    ">=1.0.0 <2.0.0": "there is no comma between the comparators of '>=1.0.0 <2.0.0'",
    ">=1.0.0\n": "is not made of digits",
    ">=01": "'01' begins with a zero",
    ">=1.2.3.4": "one to three numbers, not 4",
    ">=1-alpha": "'1-alpha' has a pre-release without all three numbers",
    ">=1.2-alpha": "'1.2-alpha' has a pre-release without all three numbers",
    ">=1.2.3-": "an identifier of the pre-release is empty",
    ">=1.2.3-01": "'01' of the pre-release begins with a zero",
    ">=1.2.3+build": "has build metadata",
    ">=1.2.3-alpha+build": "has build metadata",
    ">=" + "1" * 5000: f"{TEXT_LENGTH_MAX} is the most",
    "1" * 5000: f"{TEXT_LENGTH_MAX} is the most",
}


@pytest.mark.parametrize(("text", "problem"), WRONG.items(), ids=[ascii(text)[:24] for text in WRONG])
def test_error_says_which_text_and_what_is_wrong_with_it(text: str, problem: str) -> None:
    with pytest.raises(VersionError, match="is not a requirement: ") as caught:
        Requirement.parse(text)
    error = caught.value
    assert isinstance(error, ValueError)
    assert (error.text, error.what) == (text, "requirement")
    assert problem in error.problem and error.problem in str(error)
    assert len(str(error)) < 700


@pytest.mark.parametrize("text", [b">=1.0.0", None, 1, Version(1, 0, 0)])
def test_what_is_no_text_is_a_type_error(text: Any) -> None:
    with pytest.raises(TypeError, match="is str, not"):
        Requirement.parse(text)


@pytest.mark.parametrize("version", ["1.0.0", None, (1, 0, 0)])
def test_only_versions_can_be_matched(version: Any) -> None:
    with pytest.raises(TypeError, match=r"Version\.parse"):
        Requirement.parse(">=1.0.0").matches(version)


# The parts


@pytest.mark.parametrize(
    "parts",
    [
        (">=", ()), (">=", (1, 2, 3, 4)), (">=", (-1,)), (">=", (1, 2), "alpha"), (">=", (1, 2, 3), "a..b"),
        (">=", (1, 2, 3), "01"), ("", (1,)), ("=", (1,)), (">=1.", (1,)), (">=", (10**5000,)),
    ],
    ids=["none", "four", "negative", "two and pre", "dots", "zero", "no operator", "equal", "more", "long"],
)  # fmt: skip
def test_parts_that_make_no_comparator_are_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(VersionError):
        Comparator(*parts)


@pytest.mark.parametrize("parts", [(None, (1,)), (">=", [1]), (">=", ("1",)), (">=", (True,)), (">=", (1,), None)])
def test_parts_of_a_wrong_type_are_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        Comparator(*parts)


@pytest.mark.parametrize("comparators", [[Comparator(">=", (1,))], (">=1",), ">=1", None])
def test_requirement_is_made_of_a_tuple_of_comparators(comparators: Any) -> None:
    with pytest.raises(TypeError):
        Requirement(comparators)


def test_requirement_without_comparators_is_refused() -> None:
    with pytest.raises(VersionError, match="no comparator"):
        Requirement(())


def test_requirement_does_not_change_and_can_be_copied() -> None:
    requirement = Requirement.parse(">=1.2.3-a,<2")
    with pytest.raises(AttributeError):
        requirement.comparators = ()  # type: ignore[misc]
    for other in (copy.copy(requirement), copy.deepcopy(requirement), pickle.loads(pickle.dumps(requirement))):
        assert (other, hash(other), str(other)) == (requirement, hash(requirement), str(requirement))
