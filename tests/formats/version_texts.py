"""Texts of versions and requirements for hypothesis: few different parts, so that equal and near ones are common."""

from __future__ import annotations

from hypothesis import strategies as st

__all__ = ["comparators", "identifiers", "requirements", "version_texts"]

_numbers = st.integers(0, 3) | st.integers(0, 10**20)
_words = st.sampled_from(["alpha", "beta", "rc", "a", "A", "Z", "-", "--", "0a", "1-", "a1", "00a"])
_other_words = st.from_regex(r"[0-9]{0,3}[A-Za-z-][0-9A-Za-z-]{0,4}", fullmatch=True)

identifiers = _numbers.map(str) | _words | _other_words
"""Identifiers of pre-releases."""

_pre = st.lists(identifiers, max_size=4).map(".".join)
_build = st.lists(identifiers | st.sampled_from(["00", "007"]), max_size=2).map(".".join)


@st.composite
def version_texts(draw: st.DrawFn) -> str:
    """Texts that are versions."""
    text = ".".join(str(draw(_numbers)) for _ in range(3))
    if pre := draw(_pre):
        text += f"-{pre}"
    if build := draw(_build):
        text += f"+{build}"
    return text


@st.composite
def comparators(draw: st.DrawFn) -> tuple[str, tuple[int, ...], str]:
    """Operator, numbers and pre-release of a comparator."""
    numbers = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
    pre = draw(_pre) if len(numbers) == 3 else ""
    return draw(st.sampled_from([">=", "<=", ">", "<"])), tuple(numbers), pre


requirements = st.lists(comparators(), min_size=1, max_size=3)
"""The comparators of a requirement."""
