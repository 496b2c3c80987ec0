"""Versions: their text, their order, and both against another implementation of semantic versioning."""

from __future__ import annotations

import copy
import itertools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import semver
from hypothesis import example, given
from hypothesis import strategies as st

from pystate.errors import PystateError, VersionError
from pystate.formats import Version
from pystate.formats.versions import TEXT_LENGTH_MAX, as_version
from tests.formats.version_texts import identifiers, version_texts

COMPARISONS: list[Callable[[Any, Any], bool]] = [operator.lt, operator.le, operator.gt, operator.ge]

#: Made of what versions are made of, so that many are nearly right.
NEARLY = st.text("0123.-+aZ \n\t٣é_", max_size=14) | st.text(max_size=8)

#: From the lowest to the highest.
ASCENDING = [
    "0.0.0-0", "0.0.0", "0.0.1", "0.1.0", "0.46.9", "0.47.0-0", "0.47.0-2", "0.47.0-10", "0.47.0--", "0.47.0-10a",
    "0.47.0-Z", "0.47.0-a", "0.47.0-alpha", "0.47.0-alpha.1", "0.47.0-alpha.2", "0.47.0-alpha.2.1", "0.47.0-alpha.3",
    "0.47.0-alpha.10", "0.47.0-alpha.beta", "0.47.0-alpha1", "0.47.0-beta", "0.47.0", "0.47.1-alpha", "0.100.0",
    "1.0.0-rc.1", "1.0.0", "18446744073709551616.0.0",
]  # fmt: skip

WRONG = {
    "": "it is empty",
    "0.46": "2 of the three numbers",
    "1": "1 of the three numbers",
    "1.2.3.4": "more than three numbers",
    "not a version": "'not a version' is not made of digits",
    "0.46.0 ": "white space around it",
    " 0.46.0": "white space around it",
    "0.46.0\n": "white space around it",
    "0.46.0extra": "'0extra' is not made of digits",
    "v1.2.3": "'v1' is not made of digits",
    "-1.2.3": "a number is missing",
    "1..3": "a number is missing",
    "+1.2.3": "a number is missing",
    "01.2.3": "'01' begins with a zero",
    "1.2.03": "'03' begins with a zero",
    "1.2.3-": "an identifier of the pre-release is empty",
    "1.2.3-a..b": "an identifier of the pre-release is empty",
    "1.2.3-a.": "an identifier of the pre-release is empty",
    "1.2.3-01": "the number '01' of the pre-release begins with a zero",
    "1.2.3-a b": "'a b' of the pre-release holds something else",
    "1.2.3-ä": "'ä' of the pre-release holds something else",
    "1.2.3+": "an identifier of the build metadata is empty",
    "1.2.3+a+b": "'a+b' of the build metadata holds something else",
    "1.2.3-+a": "an identifier of the pre-release is empty",
    "٣.0.0": "is not made of digits",
    "²" + ".0.0": "is not made of digits",
    "1.0.0-" + "a" * TEXT_LENGTH_MAX: f"{TEXT_LENGTH_MAX} is the most",
    "9" * 5000: f"{TEXT_LENGTH_MAX} is the most",
}


# The text


@given(version_texts())
def test_text_of_a_version_comes_back_as_it_was(text: str) -> None:
    version = Version.parse(text)
    assert str(version) == text
    assert version == Version.parse(text) == Version(*version.numbers, version.pre, version.build)


@given(version_texts())
def test_parts_are_those_that_semver_finds(text: str) -> None:
    version, other = Version.parse(text), semver.Version.parse(text)
    assert version.numbers == (other.major, other.minor, other.patch)
    assert (version.pre, version.build) == (other.prerelease or "", other.build or "")


@given(NEARLY | version_texts())
@example("1.0.0\n")
@example("1.0.0-0a.0.00a")
@example("1.0.0-0+0-1.00")
def test_texts_that_are_versions_are_those_of_semver(text: str) -> None:
    try:
        Version.parse(text)
    except VersionError as error:
        assert not semver.Version.is_valid(text)
        assert error.text == text and error.problem in str(error)
    else:
        assert semver.Version.is_valid(text)


@pytest.mark.parametrize(("text", "problem"), WRONG.items(), ids=[ascii(text)[:24] for text in WRONG])
def test_error_says_which_text_and_what_is_wrong_with_it(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="is not a version: ") as caught:
        Version.parse(text)
    error = caught.value
    assert isinstance(error, VersionError) and isinstance(error, PystateError)
    assert (error.text, error.what) == (text, "version")
    assert problem in error.problem and error.problem in str(error)
    assert repr(text)[:100].strip("'") in str(error)
    assert len(str(error)) < 600


def test_longest_text_is_read() -> None:
    text = "1.0.0-" + "a" * (TEXT_LENGTH_MAX - 6)
    assert str(Version.parse(text)) == text
    text = "9" * (TEXT_LENGTH_MAX - 4) + ".0.0"
    assert str(Version.parse(text)) == text


@pytest.mark.parametrize("text", [b"1.0.0", None, 1, 1.0, ("1", "0", "0"), Version(1, 0, 0)])
def test_what_is_no_text_is_a_type_error(text: Any) -> None:
    with pytest.raises(TypeError, match=f"is str, not {type(text).__name__}"):
        Version.parse(text)


# The parts


@pytest.mark.parametrize(
    "parts",
    [
        (-1, 0, 0), (0, 0, -1), (1, 0, 0, "-", "+"), (1, 0, 0, "a+b"), (1, 0, 0, "a..b"), (1, 0, 0, "01"),
        (1, 0, 0, "a\n"), (1, 0, 0, "", "ä"), (1, 0, 0, "."), (10**TEXT_LENGTH_MAX, 0, 0), (-(10**5000), 0, 0),
        (10**5000, 0, 0), (1, 0, 0, "a" * TEXT_LENGTH_MAX),
    ],
    ids=[
        "major", "patch", "both", "plus", "dots", "zero", "newline", "build", "dot", "digits", "negative", "large",
        "long",
    ],
)  # fmt: skip
def test_parts_that_make_no_version_are_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(VersionError):
        Version(*parts)


@pytest.mark.parametrize("parts", [("1", 0, 0), (True, 0, 0), (1.0, 0, 0), (1, 0, 0, 1), (1, 0, 0, None)])
def test_parts_of_a_wrong_type_are_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        Version(*parts)


@given(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), st.lists(identifiers, max_size=3))
def test_version_made_of_parts_is_that_of_its_text(numbers: tuple[int, int, int], pre: list[str]) -> None:
    version = Version(*numbers, ".".join(pre))
    assert Version.parse(str(version)) == version


def test_version_does_not_change_and_can_be_copied() -> None:
    version = Version.parse("1.2.3-a.1+b")
    with pytest.raises(AttributeError):
        version.major = 2  # type: ignore[misc]
    for other in (copy.copy(version), copy.deepcopy(version), pickle.loads(pickle.dumps(version))):
        assert (other, hash(other), str(other)) == (version, hash(version), str(version))


def test_text_or_version_is_taken_where_either_will_do() -> None:
    version = Version(1, 2, 3)
    assert as_version(version) is version
    assert as_version("1.2.3") == version
    with pytest.raises(TypeError):
        as_version(1)  # type: ignore[arg-type]


# The order


def test_order_of_pre_releases() -> None:
    """Check R179: alpha < alpha.1 < alpha.2 < alpha.2.1 < alpha.3 < alpha.10 < beta < the release."""
    pre = ["alpha", "alpha.1", "alpha.2", "alpha.2.1", "alpha.3", "alpha.10", "beta", ""]
    versions = [Version(0, 47, 0, each) for each in pre]
    for (left_place, left), (right_place, right) in itertools.product(enumerate(versions), repeat=2):
        for compare in COMPARISONS:
            assert compare(left, right) is compare(left_place, right_place)


def test_order_of_many_versions() -> None:
    versions = [Version.parse(text) for text in ASCENDING]
    for (left_place, left), (right_place, right) in itertools.product(enumerate(versions), repeat=2):
        for compare in COMPARISONS:
            assert compare(left, right) is compare(left_place, right_place)
    assert sorted(reversed(versions)) == versions


@given(version_texts(), version_texts())
@example("1.0.0-1", "1.0.0--")
@example("1.0.0-a", "1.0.0-a.0")
@example("1.0.0-10", "1.0.0-9")
@example("1.0.0+a", "1.0.0+b")
def test_order_is_that_of_semver(left: str, right: str) -> None:
    expected = semver.Version.parse(left).compare(right)
    for compare in COMPARISONS:
        assert compare(Version.parse(left), Version.parse(right)) is compare(expected, 0)


@given(st.lists(identifiers, max_size=3), st.lists(identifiers, max_size=3))
def test_order_of_pre_releases_is_that_of_semver(left: list[str], right: list[str]) -> None:
    texts = [".".join(each) for each in (left, right)]
    versions = [Version(1, 0, 0, text) for text in texts]
    expected = semver.Version(1, 0, 0, texts[0] or None).compare(semver.Version(1, 0, 0, texts[1] or None))
    for compare in COMPARISONS:
        assert compare(*versions) is compare(expected, 0)


@given(version_texts(), version_texts(), version_texts())
def test_order_is_one(first: str, second: str, third: str) -> None:
    """It is transitive, and of any two versions exactly one is less unless both are on a level."""
    low, middle, high = sorted(map(Version.parse, (first, second, third)))
    assert low <= middle <= high and low <= high
    assert not (low > middle or middle > high or low > high)
    assert (low < middle) is not (low >= middle)


@given(version_texts(), version_texts())
def test_equality_is_that_of_the_texts_and_the_hash_agrees(left: str, right: str) -> None:
    first, second = Version.parse(left), Version.parse(right)
    assert (first == second) is (left == right)
    assert (first != second) is (left != right)
    if first == second:
        assert hash(first) == hash(second)
        assert first <= second <= first and not first < second


def test_build_metadata_is_part_of_equality_and_not_of_the_order() -> None:
    plain, left, right = (Version.parse(text) for text in ("1.0.0", "1.0.0+left", "1.0.0+right"))
    for one, other in itertools.permutations((plain, left, right), 2):
        assert one != other
        assert not one < other and not one > other
        assert one <= other and one >= other
    assert len({plain, left, right, Version.parse("1.0.0+left")}) == 3
    assert sorted([right, plain, left]) == [right, plain, left], "sorting leaves them as they came"


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda compare: compare.__name__)
def test_version_has_no_order_with_anything_else(compare: Callable[[Any, Any], bool]) -> None:
    others: list[Any] = ["1.0.0", (1, 0, 0), 1, None]
    for other in others:
        with pytest.raises(TypeError):
            compare(Version(1, 0, 0), other)
        with pytest.raises(TypeError):
            compare(other, Version(1, 0, 0))
        assert Version(1, 0, 0) != other


# The error


def test_error_can_be_pickled_and_copied() -> None:
    error = VersionError("text", "a problem", what="requirement")
    for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is VersionError
        assert (vars(other), str(other), other.args) == (vars(error), str(error), error.args)
