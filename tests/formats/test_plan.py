"""Steps, migrations and plans: what may be declared, what is held against the declaration, and running a chain."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pystate import Rewriting
from pystate.errors import (
    FamilyConflictError,
    MigrationFamiliesError,
    MixedShapesError,
    PystateError,
    UnknownShapeError,
    UnsupportedVersionError,
)
from pystate.formats import Migration, Requirement, Step, StepContext, StepReport, Version
from tests.formats.shop import (
    FAMILIES,
    MIGRATIONS,
    PROGRAMS,
    Families,
    begin,
    content_of,
    contents,
    finished,
    partial_states,
    plan_of,
)
from tests.ids import named

PLAN = plan_of()
NEWEST = content_of("0.4.0-alpha.2")


def nothing(rewriting: Rewriting, context: StepContext) -> None:
    """A step that does nothing."""


# Steps

names = st.sampled_from(["a", "b", "c", "d"])


@given(
    present=st.sets(names), needs=st.sets(names), creates=st.sets(names), drops=st.sets(names),
    made=st.sets(names), dropped=st.sets(names),
)  # fmt: skip
def test_a_step_is_held_to_what_it_declares(
    present: set[str], needs: set[str], creates: set[str], drops: set[str], made: set[str], dropped: set[str]
) -> None:
    """What it needs is there before; afterwards nothing is new or gone but by declaration, and no dropped one there."""
    if creates & drops:
        with pytest.raises(ValueError, match="both make and drop"):
            Step("step", nothing, needs=needs, creates=creates, drops=drops)
        return
    ran = []

    def run(rewriting: Rewriting, context: StepContext) -> None:
        ran.append(context)
        for name in made - set(rewriting.families):
            rewriting.create_family(name)
        for name in dropped & set(rewriting.families):
            rewriting.drop_family(name)

    step = Step("step", run, needs=needs, creates=creates, drops=drops)
    rewriting = begin({name: {} for name in ["default", *sorted(present)]})
    after = (present | made) - dropped
    missing, kept = needs - present, present - drops
    if missing:
        with pytest.raises(MigrationFamiliesError, match="^before step 'step'") as caught:
            step(rewriting)
        assert (caught.value.missing, caught.value.unexpected) == (tuple(sorted(missing)), ())
        assert not ran
    elif kept <= after <= kept | creates:
        report = step(rewriting)
        assert report == StepReport(
            step="step",
            target=None,
            created=tuple(sorted(after - present)),
            dropped=tuple(sorted(present - after)),
        )
        assert ran == [StepContext(step="step")]
    else:
        with pytest.raises(MigrationFamiliesError, match="^after step 'step'") as caught:
            step(rewriting)
        assert caught.value.missing == tuple(sorted(kept - after))
        assert caught.value.unexpected == tuple(sorted(after - kept - creates))


@pytest.mark.parametrize(
    ("step", "creates", "drops"),
    [
        (Step.creating("a", "b"), {"a", "b"}, set()),
        (Step.dropping("a", "b"), set(), {"a", "b"}),
        (Step.renaming("a", "b"), {"b"}, {"a"}),
    ],
    ids=named,
)
def test_steps_of_families_declare_what_they_do(step: Step, creates: set[str], drops: set[str]) -> None:
    """And run on every set of families there can be, where twice is as good as once."""
    assert (set(step.creates), set(step.drops), set(step.needs)) == (creates, drops, set())
    for present in ([], ["a"], ["b"], ["a", "b"], ["a", "c"]):
        rewriting = begin({name: {} for name in ["default", *present]})
        first = step(rewriting)
        after = rewriting.families
        assert set(first.created) == set(after) - {"default", *present}
        assert set(first.dropped) == {"default", *present} - set(after)
        again = step(rewriting)
        assert (again.created, again.dropped, rewriting.families) == ((), (), after)


def test_names_of_steps_say_what_they_do() -> None:
    assert Step.creating("a b", "c").name == "create 'a b', 'c'"
    assert Step.dropping("a b").name == "drop 'a b'"
    assert Step.renaming("a", "b").name == "rename 'a' to 'b'"


def test_an_error_of_a_step_says_where_it_came_from() -> None:
    error = KeyError("k")

    def fails(rewriting: Rewriting, context: StepContext) -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        Step("give units", fails)(begin({"default": {}}), StepContext(step="give units", target=Version(0, 3, 0)))
    assert caught.value is error
    assert error.__notes__ == ["in step 'give units' of the migration to 0.3.0"]


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((None, nothing), {}, TypeError),
        (("step", None), {}, TypeError),
        (("step", nothing), {"needs": "stock"}, TypeError),
        (("step", nothing), {"needs": [b"stock"]}, TypeError),
        (("step", nothing), {"creates": ["default"]}, ValueError),
        (("step", nothing), {"drops": [""]}, ValueError),
    ],
)
def test_what_is_no_step_is_refused(arguments: tuple[Any, ...], options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Step(*arguments, **options)


# Migrations and plans


def test_texts_are_taken_for_versions_and_requirements() -> None:
    migration = Migration(">=0.1.0,<0.2.0", "0.2.0", iter([Step.creating("a")]))
    same = Migration(Requirement.parse(">=0.1.0,<0.2.0"), Version(0, 2, 0), [])
    assert (migration.requirement, migration.target) == (same.requirement, same.target)
    assert len(migration.steps) == 1
    assert repr(migration) == "<Migration from >=0.1.0,<0.2.0 to 0.2.0>"
    assert repr(PLAN) == "<MigrationPlan of version 0.4.0-alpha.2: 3 migrations>"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((">=0.1", "0.2", []), ValueError),
        (("0.1", "0.2.0", []), ValueError),
        ((None, "0.2.0", []), TypeError),
        ((">=0.1", "0.2.0", [nothing]), TypeError),
        ((">=0.1", "0.2.0", [Step.creating("a"), Step.creating("a")]), ValueError),
    ],
)
def test_what_is_no_migration_is_refused(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        Migration(*arguments)


TO_3 = Migration(">=0.2.0,<0.3.0", "0.3.0", [])


@pytest.mark.parametrize(
    ("replaced", "error", "text"),
    [
        ({"migrations": [nothing]}, TypeError, "made of Migrations"),
        ({"version": "0.4.0-alpha.3"}, ValueError, "must read it"),
        ({"compatible": "0.4"}, ValueError, "requirement"),
        ({"version": "0.4"}, ValueError, "version"),
        ({"families": {}}, ValueError, "at least one format"),
        ({"families": {"0.4.0": ["a"]}}, ValueError, "families of version 0.4.0"),
        ({"families": {"0.1": ["a"]}}, ValueError, "version"),
        ({"families": {"0.1.0": ["default"]}}, ValueError, "'default'"),
        ({"families": {"0.1.0": "stock"}}, TypeError, "'stock'"),
        ({"migrations": [TO_3]}, ValueError, "no migration leads on from 0.3.0"),
        ({"migrations": [Migration(">=0.2.0", "0.2.0", [])]}, ValueError, "to 0.2.0 leads back"),
        ({"migrations": [Migration(">=0.3.0", "0.4.0-alpha.2", []), TO_3]}, ValueError, "to 0.3.0 leads back"),
    ],
    ids=lambda value: named(value) if isinstance(value, dict) else "",
)
def test_what_is_no_plan_is_refused(replaced: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        plan_of(**replaced)


@pytest.mark.parametrize("version", PROGRAMS)
def test_program_reads_its_own_version_and_not_the_next_minor(version: str) -> None:
    """Check R181: of every program there was, as long as the major version is 0."""
    plan = plan_of(version)
    assert plan.place(plan.version) == len(plan.migrations)
    assert plan.place(Version(0, plan.version.minor + 1, 0)) is None


def test_a_version_has_a_place_on_the_chain_and_a_path_from_there() -> None:
    def path(version: str) -> tuple[int | None, list[str]]:
        return PLAN.place(Version.parse(version)), [str(each.target) for each in PLAN.path(Version.parse(version))]

    assert path("0.1.7") == (0, ["0.2.0", "0.3.0", "0.4.0-alpha.2"])
    assert path("0.2.0") == (1, ["0.3.0", "0.4.0-alpha.2"])
    assert path("0.3.9") == path("0.4.0-alpha.1") == (2, ["0.4.0-alpha.2"])
    assert path("0.4.0-alpha.2") == path("0.4.0-alpha.2.1") == (3, [])
    for unknown in ("0.0.9", "0.4.0-alpha.3", "0.4.0", "0.2.0-alpha", "1.0.0"):
        assert PLAN.place(Version.parse(unknown)) is None
        with pytest.raises(UnsupportedVersionError, match=f"^migration from {unknown} is not supported") as caught:
            PLAN.path(Version.parse(unknown))
        assert (caught.value.found, caught.value.supported) == (unknown, "0.4.0-alpha.2")


def test_a_version_has_the_families_of_the_greatest_format_not_above_it() -> None:
    in_order = [frozenset(names) for names in FAMILIES.values()]
    for version, first in [
        ("0.0.1", 0), ("0.1.0", 0), ("0.1.9", 0), ("0.2.0", 1), ("0.3.5", 1), ("0.4.0-alpha", 1),
        ("0.4.0-alpha.1", 2), ("0.4.0-alpha.1.1", 2), ("0.4.0-alpha.2", 3), ("9.0.0", 3),
    ]:  # fmt: skip
        assert list(PLAN.formats_from(Version.parse(version))) == in_order[first:], version
    assert PLAN.families == in_order[3]
    assert PLAN.metadata == {"format": "0.4.0-alpha.2"}
    assert list(PLAN.formats) == [Version.parse(version) for version in FAMILIES]


def test_families_may_be_given_in_any_order() -> None:
    again = plan_of(families=dict(reversed(FAMILIES.items())))
    assert list(again.formats) == list(PLAN.formats)


# Running


@pytest.mark.parametrize("version", PROGRAMS)
def test_the_chain_leads_from_every_format_to_every_later_one(version: str) -> None:
    programs = list(PROGRAMS)
    for target in programs[programs.index(version) :]:
        rewriting = begin(content_of(version), {"other": "kept"})
        plan = plan_of(target)
        reports = plan.run(rewriting, version)
        assert contents(rewriting) == content_of(target)
        assert [report.step for report in reports] == [
            step.name for migration in plan.path(Version.parse(version)) for step in migration.steps
        ]
        assert rewriting.metadata == {"other": "kept", **(plan.metadata if target != version else {})}


PARTIAL = list(partial_states())


@pytest.mark.parametrize(
    ("version", "state"),
    [(version, state) for version, _, state in PARTIAL],
    ids=[f"{v} {name}" for v, name, _ in PARTIAL],
)
def test_steps_finish_what_they_find_half_done(version: str, state: Families) -> None:
    """From every state that was ever left behind by a run that was stopped; and once more, on the result."""
    rewriting = begin(state)
    PLAN.run(rewriting, version)
    assert contents(rewriting) == finished(state)
    for done in ("0.1.0", "0.2.0", "0.3.0", "0.4.0-alpha.1"):
        PLAN.run(rewriting, done)
        assert contents(rewriting) == finished(state)


def broken(**changes: dict[bytes, bytes] | None) -> Families:
    """The content of 0.1.0 with other families, or without."""
    state = content_of("0.1.0")
    for name, rows in changes.items():
        if rows is None:
            del state[name]
        else:
            state[name] = {**state.get(name, {}), **rows}
    return state


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        (broken(labels={b"tag 1": b"another"}), FamilyConflictError, "'tags' and 'labels': key 7461672031"),
        (broken(stock={b"item 3": b"foreign"}), UnknownShapeError, "key 6974656d2033: no stock"),
        (broken(orders={b"new": b"\x92\x01\xa1t"}), MixedShapesError, "'orders': a mix of shapes: 1 rows"),
        (broken(foreign={}), MigrationFamiliesError, "the content of version 0.1.0: .*not expected: 'foreign'"),
        (broken(stock=None), MigrationFamiliesError, "the content of version 0.1.0: .*missing: 'stock'"),
    ],
    ids=["conflict", "foreign value", "mix", "unexpected family", "missing family"],
)
def test_what_no_run_has_left_stops_the_chain(state: Families, error: type[PystateError], text: str) -> None:
    rewriting = begin(state)
    with pytest.raises(error, match=text) as caught:
        PLAN.run(rewriting, "0.1.0")
    assert "format" not in rewriting.metadata
    for again in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert (type(again), str(again)) == (error, str(caught.value))


def test_what_is_missing_at_the_end_stops_the_chain() -> None:
    """A plan that forgets to make a family is wrong; no store must get that far."""
    requirement, steps = MIGRATIONS["0.4.0-alpha.2"]
    plan = plan_of(migrations=[Migration(requirement, "0.4.0-alpha.2", steps[:1])])
    rewriting = begin(content_of("0.3.0"))
    with pytest.raises(MigrationFamiliesError, match="version 0.4.0-alpha.2, after the migration.*'effects'") as caught:
        plan.run(rewriting, "0.3.0")
    assert (caught.value.missing, caught.value.unexpected) == (("effects",), ())
    assert "format" not in rewriting.metadata


def test_an_older_program_takes_no_family_of_a_newer_one() -> None:
    """Without a version in it, the content is told by its families."""
    with pytest.raises(MigrationFamiliesError, match="not expected: 'effects', 'jobs'"):
        plan_of("0.3.0").run(begin(NEWEST), "0.2.0")


def test_an_unknown_version_is_not_begun_with() -> None:
    rewriting = begin(NEWEST)
    with pytest.raises(UnsupportedVersionError):
        PLAN.run(rewriting, "0.5.0")
    assert contents(rewriting) == NEWEST


def test_progress_tells_each_step_and_what_it_tells() -> None:
    told: list[tuple[str, int, int]] = []
    PLAN.run(begin(content_of("0.1.0")), "0.1.0", progress=lambda *arguments: told.append(arguments))
    steps = [step.name for migration in PLAN.migrations for step in migration.steps]
    assert [step for step, done, total in told if (done, total) == (0, 1)] == steps
    assert [step for step, done, total in told if (done, total) == (1, 1)] == steps
    assert [each for each in told if each[2] == 3] == [("give units", 3, 3), ("make the category optional", 3, 3)]


def test_there_are_states_behind_and_within_the_steps() -> None:
    """So that none is lost when the steps change."""
    names = " ".join(name for _, name, _ in PARTIAL)
    steps = [step.name for migration in PLAN.migrations for step in migration.steps]
    assert [step for step in steps if f"behind {step}" not in names] == []
    for within in ("copied 3 rows", "item 2 of stock done", "item 2 of prices done", "jobs filled"):
        assert within in names


def test_plan_is_for_programs_and_steps_that_are_shared() -> None:
    """Running changes nothing of a plan."""
    before = [(step.name, step.needs, step.creates, step.drops) for each in PLAN.migrations for step in each.steps]
    PLAN.run(begin(content_of("0.1.0")), "0.1.0")
    assert before == [
        (step.name, step.needs, step.creates, step.drops) for each in PLAN.migrations for step in each.steps
    ]
    with pytest.raises(TypeError):
        PLAN.formats[Version(1, 0, 0)] = frozenset()  # type: ignore[index]
