"""The verdict of the demo: what was acknowledged against what is there. Pure functions, no store and no process.

The checks trust neither the store nor the process that wrote. They know the packages (the input) and what the writer
reported before it died, work out what each of those commits must have written, and compare it with every entry that was
found after recovery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pystate.cli.demo_inventory import FAMILIES, Package, entries_of_commit

__all__ = ["Acknowledged", "Check", "State", "Verdict", "check_state"]

State = Mapping[str, Mapping[bytes, bytes]]
"""Keys and values by family."""

_SHOWN_MAX = 3


class Acknowledged(msgspec.Struct, frozen=True):
    """A commit that was reported after it had returned.

    Attributes:
        round_number: the round, from 1.
        index: the index of the package.
        sequence: the sequence that the commit returned.
    """

    round_number: int
    index: int
    sequence: int


class Check(msgspec.Struct, frozen=True):
    """One thing that was checked.

    Attributes:
        name: what must hold.
        ok: it holds.
        measured: what was compared, or what is wrong.
    """

    name: str
    ok: bool
    measured: str


class Verdict(msgspec.Struct, frozen=True):
    """What the checks found.

    Attributes:
        checks: every check, in the order in which to show them.
        in_flight: ``"none"``, or whether the commit that was under way is there: ``"there, whole"``, ``"not there"``
            or ``"half-written"``.
        commits_found: commits of which anything is there.
        entries_found: entries that are there, over all families of the demo.
    """

    checks: tuple[Check, ...]
    in_flight: str
    commits_found: int
    entries_found: int

    @property
    def ok(self) -> bool:
        """Every check holds."""
        return all(check.ok for check in self.checks)


def check_state(
    packages: Sequence[Package],
    acknowledged: Sequence[Acknowledged],
    in_flight: tuple[int, int] | None,
    state: State,
    sequence: int,
) -> Verdict:
    """Compare what was acknowledged with what is there.

    Args:
        packages: the packages as the writer was given them.
        acknowledged: the commits that were reported as done, in the order of the reports.
        in_flight: round and index of the commit that had begun and was not reported as done, or None.
        state: every entry found after recovery, in the families of the demo.
        sequence: the sequence of the store after recovery.
    """
    found = _by_commit(state)
    done: dict[_Commit, _Entries] = {}
    for commit in acknowledged:
        package = packages[commit.index]
        done[commit.round_number, package.name] = entries_of_commit(package, commit.round_number)
    begun: dict[_Commit, _Entries] = {}
    if in_flight is not None:
        round_number, index = in_flight
        begun[round_number, packages[index].name] = entries_of_commit(packages[index], round_number)
    landed = any(commit in found for commit in begun)
    return Verdict(
        checks=(
            _check_acknowledged(done, found),
            _check_whole(packages, {**done, **begun}, found),
            _check_nothing_else({**done, **begun}, found),
            _check_sequence([commit.sequence for commit in acknowledged], landed, sequence),
        ),
        in_flight=_fate(begun, found),
        commits_found=len(found),
        entries_found=sum(len(state.get(family, {})) for family in FAMILIES),
    )


_Commit = tuple[int, str]
"""Round and name of the package."""

_Entries = dict[str, dict[bytes, bytes]]
"""Keys and values by family."""


def _by_commit(state: State) -> dict[_Commit, _Entries]:
    """Sort entries by the commit that wrote them: round and package, as their keys say. Strange keys go to round -1."""
    found: dict[_Commit, _Entries] = {}
    for family in FAMILIES:
        for key, value in state.get(family, {}).items():
            round_text, _, rest = key.decode("utf-8", "replace").partition("/")
            known = round_text.isascii() and round_text.isdigit()
            commit = (int(round_text), rest.partition("/")[0]) if known else (-1, round_text)
            found.setdefault(commit, {name: {} for name in FAMILIES})[family][key] = value
    return found


def _check_acknowledged(done: Mapping[_Commit, _Entries], found: Mapping[_Commit, _Entries]) -> Check:
    wrong = [commit for commit, entries in done.items() if found.get(commit) != entries]
    compared = sum(len(entries) for by_family in done.values() for entries in by_family.values())
    return Check(
        "nothing acknowledged is missing or altered",
        bool(done) and not wrong,
        f"{len(done):,} commits, {compared:,} entries compared" + _trouble(wrong, "differ"),
    )


def _check_whole(
    packages: Sequence[Package], reported: Mapping[_Commit, _Entries], found: Mapping[_Commit, _Entries]
) -> Check:
    by_name = {package.name: package for package in packages}
    half: list[_Commit] = []
    for commit, entries in found.items():
        round_number, name = commit
        whole = reported.get(commit)
        if whole is None and name in by_name:
            whole = entries_of_commit(by_name[name], round_number)
        if entries != whole:
            half.append(commit)
    return Check(
        "nothing half-written is there",
        not half,
        f"{len(found) - len(half):,} commits found, each with its package and all its files"
        + _trouble(half, "are not whole"),
    )


def _check_nothing_else(reported: Mapping[_Commit, _Entries], found: Mapping[_Commit, _Entries]) -> Check:
    others = [commit for commit in found if commit not in reported]
    return Check(
        "nothing is there that was never written",
        not others,
        f"{len(found) - len(others):,} commits found, all reported by the writer" + _trouble(others, "were not"),
    )


def _check_sequence(sequences: Sequence[int], landed: bool, sequence: int) -> Check:
    rising = all(earlier < later for earlier, later in zip(sequences, sequences[1:], strict=False))
    last = sequences[-1] if sequences else 0
    return Check(
        "the sequence goes on where it was",
        rising and sequence == last + landed,
        f"last acknowledged {last:,}, recovered {sequence:,}" + ("" if rising else "; not acknowledged in order"),
    )


def _fate(begun: Mapping[_Commit, _Entries], found: Mapping[_Commit, _Entries]) -> str:
    for commit, entries in begun.items():
        if commit not in found:
            return "not there"
        return "there, whole" if found[commit] == entries else "half-written"
    return "none"


def _trouble(commits: Sequence[_Commit], what: str) -> str:
    if not commits:
        return ""
    shown = ", ".join(f"{name} in round {round_number}" for round_number, name in commits[:_SHOWN_MAX])
    return f"; {len(commits):,} {what}: {shown}" + (" ..." if len(commits) > _SHOWN_MAX else "")
