"""What a migration consists of: `Step`, `Migration`, `MigrationPlan`.

A *plan* says which versions a program can read as they are, and how all the others that it knows become what it reads:
by a chain of *migrations*, each from a range of versions to one version, each made of *steps*. A step is a function
that changes a `pystate.Rewriting`, the next state of a store.

Promise: whatever a plan does, it does to a `Rewriting`, so that a failure of any step changes nothing at all. It is
strict about families: where a chain begins, after each step, and where it ends, exactly those are there that may be, or
it stops. To be run again on whatever a former run, or another program, has left half done is the duty of every step:
each recognises what is done. The helpers of ``families`` and ``values`` do.

`migrate` runs a plan on a store and its markers. Immutable, all of them; threads may share a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from pystate.engine.rewriting import Rewriting
from pystate.errors import UnsupportedVersionError
from pystate.formats.content import FORMAT_KEY
from pystate.formats.families import (
    DEFAULT_FAMILY,
    check_families,
    create_families,
    drop_families,
    family_names,
    rename_family,
)
from pystate.formats.requirements import Requirement
from pystate.formats.versions import Version, as_version

__all__ = ["Migration", "MigrationPlan", "Progress", "Step", "StepContext", "StepReport"]

Progress: TypeAlias = Callable[[str, int, int], object]
"""Is told what is being done (the name of a step, or ``"write"``), how much of it is done, and how much there is."""


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a step is told besides the state.

    Attributes:
        step: its name.
        target: the version that the migration it belongs to leads to; None when it is run by itself.
        report: what `progress` calls, or None.
    """

    step: str
    target: Version | None = None
    report: Progress | None = None

    def progress(self, done: int, total: int) -> None:
        """Tell the caller of the migration how far this step is: `done` of `total`, in whatever the step counts."""
        if self.report is not None:
            self.report(self.step, done, total)


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a step has done to the families. What it has done to rows stands in the `pystate.RewriteReport`.

    Attributes:
        step: its name.
        target: the version that its migration leads to; None when it was run by itself.
        created, dropped: the families that are new and those that are gone, sorted; a renamed one is among both.
    """

    step: str
    target: Version | None
    created: tuple[str, ...]
    dropped: tuple[str, ...]


class Step:
    """One change of a state, as a function, with the families that it needs, makes and drops.

        >>> from pystate.formats import Step, rewrite_values
        >>> def spell_out(rewriting, context):
        ...     words = {b"1": b"one", b"2": b"two"}
        ...     for key, value in rewriting.family("numbers").items():
        ...         if value in words:  # what is done is left alone
        ...             rewriting.family("numbers").put(key, words[value])
        >>> Step("spell numbers out", spell_out, needs=["numbers"])
        <Step 'spell numbers out'>
        >>> Step.renaming("numbers", "words")
        <Step "rename 'numbers' to 'words'">

    Attributes:
        name: for reports, progress and errors.
        run: the function; see below.
        needs: families that must be there, or the step does not begin.
        creates: families that may be there afterwards though they were not there before.
        drops: families that must not be there afterwards, whether they were before or not.

    `run` is called with the `pystate.Rewriting` and a `StepContext`. It must recognise what is done and finish what is
    not, write to nothing but the rewriting, and raise whatever stops the migration. Every family that it neither makes
    nor drops by this declaration is still there when it returns, or the migration stops.

    Raises:
        TypeError, ValueError: an argument is not what it must be, or a family is declared in two ways that exclude each
            other.
    """

    __slots__ = ("creates", "drops", "name", "needs", "run")

    def __init__(
        self,
        name: str,
        run: Callable[[Rewriting, StepContext], object],
        *,
        needs: Iterable[str] = (),
        creates: Iterable[str] = (),
        drops: Iterable[str] = (),
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a step is a str, not {type(name).__name__}")
        if not callable(run):
            raise TypeError(f"step {name!r}: run is a function of a Rewriting and a StepContext, not {run!r}")
        self.name = name
        self.run = run
        self.needs = family_names(needs)
        self.creates = family_names(creates)
        self.drops = family_names(drops)
        if both := sorted(self.creates & self.drops):
            raise ValueError(f"step {name!r} cannot both make and drop {', '.join(map(repr, both))}")

    @classmethod
    def creating(cls, *names: str) -> Step:
        """The step that makes families where they are missing; see `create_families`."""
        return cls(f"create {_quoted(names)}", lambda rewriting, _: create_families(rewriting, *names), creates=names)

    @classmethod
    def dropping(cls, *names: str) -> Step:
        """The step that drops families where they are there; see `drop_families`."""
        return cls(f"drop {_quoted(names)}", lambda rewriting, _: drop_families(rewriting, *names), drops=names)

    @classmethod
    def renaming(cls, old: str, new: str) -> Step:
        """The step that moves the rows of one family to another; see `rename_family`."""
        name = f"rename {old!r} to {new!r}"
        return cls(name, lambda rewriting, _: rename_family(rewriting, old, new), creates=[new], drops=[old])

    def __call__(self, rewriting: Rewriting, context: StepContext | None = None) -> StepReport:
        """Run the step, and hold the families before and after it against its declaration.

        Arguments:
            rewriting: the next state.
            context: what to tell the step; None for the least.

        Raises:
            MigrationFamiliesError: a family that it needs is missing; or it has made, dropped or kept one against its
                declaration, which is a mistake in the step.
            Whatever `run` raises.
        """
        context = StepContext(step=self.name) if context is None else context
        before = frozenset(rewriting.families)
        where = f"step {self.name!r}" + ("" if context.target is None else f" of the migration to {context.target}")
        check_families(f"before {where}", before, at_least=self.needs, at_most=before)
        try:
            self.run(rewriting, context)
        except Exception as error:
            error.add_note(f"in {where}")
            raise
        after = frozenset(rewriting.families)
        kept = before - self.drops - {DEFAULT_FAMILY}
        check_families(f"after {where}", after, at_least=kept, at_most=kept | self.creates)
        return StepReport(
            step=self.name,
            target=context.target,
            created=tuple(sorted(after - before)),
            dropped=tuple(sorted(before - after)),
        )

    def __repr__(self) -> str:
        return f"<Step {self.name!r}>"


class Migration:
    """From a range of versions to one version, by steps, in their order.

    Attributes:
        requirement: the versions that it takes: every released one that has the old format, and none that has the new.
        target: the first version that has the new format.
        steps: what is done.

    Raises:
        VersionError: a text is no requirement, or no version. TypeError: an argument is not what it must be.
        ValueError: two steps have the same name.
    """

    __slots__ = ("requirement", "steps", "target")

    def __init__(self, requirement: Requirement | str, target: Version | str, steps: Iterable[Step]) -> None:
        self.requirement = _as_requirement(requirement)
        self.target = as_version(target)
        self.steps = tuple(steps)
        for step in self.steps:
            if not isinstance(step, Step):
                raise TypeError(f"a migration is made of Steps, not of {step!r}")
        if len({step.name for step in self.steps}) != len(self.steps):
            raise ValueError(f"two steps of the migration to {self.target} have the same name")

    def __repr__(self) -> str:
        return f"<Migration from {self.requirement} to {self.target}>"


class MigrationPlan:
    """All that a program knows about versions: its own, those that it reads, and how the others become that.

    Arguments:
        migrations: the chain, from the oldest on. From a version the first one whose requirement it satisfies leads on.
        version: of the program; what the content and the markers get after a migration.
        compatible: the versions whose content the program reads as it is, its own among them.
        families: the families of each format, by the version that brought the format in: the key of the format of a
            version is the greatest one that is not above it. ``"default"`` is in none of them.

    Attributes:
        migrations, version, compatible: as given.
        formats: `families`, in the order of versions.

    Raises:
        VersionError: a text is no version, or no requirement. TypeError: an argument is not what it must be.
        ValueError: the program cannot read its own version; a migration leads to where none leads on, or back; or no
            families are given, or some of a version that is not below this program's.
    """

    __slots__ = ("compatible", "formats", "migrations", "version")

    def __init__(
        self,
        migrations: Iterable[Migration],
        *,
        version: Version | str,
        compatible: Requirement | str,
        families: Mapping[str, Iterable[str]] | Mapping[Version, Iterable[str]],
    ) -> None:
        self.migrations = tuple(migrations)
        self.version = as_version(version)
        self.compatible = _as_requirement(compatible)
        formats = {as_version(since): family_names(names) for since, names in families.items()}
        self.formats: Mapping[Version, frozenset[str]] = MappingProxyType(
            {since: formats[since] for since in sorted(formats)}
        )
        self._check()

    def _check(self) -> None:
        for migration in self.migrations:
            if not isinstance(migration, Migration):
                raise TypeError(f"a plan is made of Migrations, not of {migration!r}")
        if not self.compatible.matches(self.version):
            raise ValueError(f"a program of version {self.version} must read it; {self.compatible} does not take it")
        for number, migration in enumerate(self.migrations):
            place = self.place(migration.target)
            if place is None:
                raise ValueError(f"no migration leads on from {migration.target}, nor is it compatible")
            if place <= number:
                raise ValueError(f"the migration to {migration.target} leads back; put the later ones behind it")
        if not self.formats:
            raise ValueError("a plan has the families of at least one format: of that of the program")
        if late := [since for since in self.formats if since > self.version]:
            raise ValueError(f"families of version {late[0]} in the plan of a program of version {self.version}")

    @property
    def families(self) -> frozenset[str]:
        """The families of the program's own format; what to open a store with."""
        return self.formats_from(self.version)[0]

    @property
    def metadata(self) -> dict[str, str]:
        """What to make a new store with (``pystate.open(metadata=)``), so that its content says its version."""
        return {FORMAT_KEY: str(self.version)}

    def place(self, version: Version) -> int | None:
        """How far along the chain a version stands: the index of the migration that takes it.

        Returns:
            For a compatible version, the number of migrations; None for one that the plan does not know.
        """
        if self.compatible.matches(version):
            return len(self.migrations)
        return next((at for at, each in enumerate(self.migrations) if each.requirement.matches(version)), None)

    def path(self, version: Version) -> tuple[Migration, ...]:
        """The migrations that lead from a version to what the program reads; none if it reads it as it is.

        Raises:
            UnsupportedVersionError: no migration takes it.
        """
        path: list[Migration] = []
        while (place := self.place(version)) != len(self.migrations):
            if place is None:
                raise UnsupportedVersionError(found=str(version), supported=str(self.version), where="marker")
            path.append(self.migrations[place])
            version = path[-1].target
        return tuple(path)

    def formats_from(self, version: Version) -> tuple[frozenset[str], ...]:
        """The families of the format of a version, and of every later format that the plan knows, in their order.

        For a version below all of them, every one.
        """
        formats = list(self.formats.items())
        while len(formats) > 1 and formats[1][0] <= version:
            del formats[0]
        return tuple(families for _, families in formats)

    def run(
        self, rewriting: Rewriting, start: Version | str, *, progress: Progress | None = None
    ) -> tuple[StepReport, ...]:
        """Bring the next state of a store from one version to the program's own; for a function given to `rewrite`.

        Every step of every migration on the path is run, and the version is set in the metadata of the state. Where
        the program reads the version as it is, nothing is done.

        Arguments:
            rewriting: the next state.
            start: the version that it has. Some or all steps may have been done already.
            progress: is told of each step, when it begins and when it has ended, and of what the step itself tells.

        Returns:
            What each step has done, in their order.

        Raises:
            UnsupportedVersionError: no migration takes `start`.
            MigrationFamiliesError: at the beginning, a family is there that is in no format from `start` on, or one is
                missing that is in all of them; or at the end, they are not exactly those of the program; or a step has
                not kept to its declaration.
            Whatever a step or `progress` raises. Then the function must raise, too, or the state is one in between.
        """
        start = as_version(start)
        path = self.path(start)
        if not path:
            return ()
        formats = self.formats_from(start)
        check_families(
            f"the content of version {start}",
            rewriting.families,
            at_least=frozenset.intersection(*formats),
            at_most=frozenset.union(*formats),
        )
        reports = []
        for migration in path:
            for step in migration.steps:
                context = StepContext(step=step.name, target=migration.target, report=progress)
                context.progress(0, 1)
                reports.append(step(rewriting, context))
                context.progress(1, 1)
        check_families(
            f"the content of version {self.version}, after the migration",
            rewriting.families,
            at_least=self.families,
            at_most=self.families,
        )
        rewriting.metadata.update(self.metadata)
        return tuple(reports)

    def __repr__(self) -> str:
        return f"<MigrationPlan of version {self.version}: {len(self.migrations)} migrations>"


def _as_requirement(requirement: Requirement | str) -> Requirement:
    return requirement if isinstance(requirement, Requirement) else Requirement.parse(requirement)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
