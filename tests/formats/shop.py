"""A made-up shop whose format has changed three times: its plan, its content in each format, and everything in between.

=============  ======================================================================================================
0.1.0          families ``accounts``, ``orders``, ``prices``, ``stock``, ``tags``
0.2.0          ``accounts`` is gone; ``tags`` is called ``labels``; ``reasons`` is new
0.3.0          the values of ``stock`` and ``prices`` and the keys of ``orders`` have changed
0.4.0-alpha.1  ``jobs`` is new
0.4.0-alpha.2  ``effects`` is new
=============  ======================================================================================================

Each kind of step that there is stands here once: a family dropped, renamed and made; values recognised by the present
shape, by the previous one (a price of two bytes could be either), and rows that are converted all or not at all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

import pystate
from pystate import Files, Rewriting
from pystate.engine.family_state import FamilyState
from pystate.formats import (
    Migration,
    MigrationPlan,
    MigrationReport,
    Step,
    StepContext,
    all_current,
    migrate,
    read_version_marker,
    rewrite_values,
    write_version_marker,
    write_version_markers,
)
from pystate.testing import SimulatedDisk

__all__ = [
    "BACKUP",
    "DATA",
    "FAMILIES",
    "PROGRAMS",
    "STORE",
    "Families",
    "begin",
    "content_of",
    "contents",
    "copied",
    "files_of",
    "finished",
    "look_at",
    "make",
    "markers",
    "partial_states",
    "plan_of",
    "run",
    "unchanged",
]

DATA, BACKUP = "/shop/data", "/shop/backup"
STORE = f"{DATA}/states.db"

Families = dict[str, dict[bytes, bytes]]

FAMILIES = {
    "0.1.0": ["accounts", "orders", "prices", "stock", "tags"],
    "0.2.0": ["labels", "orders", "prices", "reasons", "stock"],
    "0.4.0-alpha.1": ["jobs", "labels", "orders", "prices", "reasons", "stock"],
    "0.4.0-alpha.2": ["effects", "jobs", "labels", "orders", "prices", "reasons", "stock"],
}

#: The program of each version: what it reads as it is.
PROGRAMS = {
    "0.1.0": ">=0.1.0,<0.2.0",
    "0.2.0": ">=0.2.0,<0.3.0",
    "0.3.0": ">=0.3.0,<0.4.0-alpha",
    "0.4.0-alpha.1": ">=0.4.0-alpha.1,<0.4.0-alpha.2",
    "0.4.0-alpha.2": ">=0.4.0-alpha.2,<0.4.0-alpha.3",
}

encode = msgspec.msgpack.encode
OLD_STOCK = msgspec.msgpack.Decoder(tuple[int])
NEW_STOCK = msgspec.msgpack.Decoder(tuple[int, str])
OLD_ORDER = msgspec.msgpack.Decoder(tuple[str])
NEW_ORDER = msgspec.msgpack.Decoder(tuple[int, str])


# Steps


def give_units(rewriting: Rewriting, context: StepContext) -> None:
    """A stock has a unit."""
    rewrite_values(
        rewriting,
        "stock",
        current=lambda _, value: NEW_STOCK.decode(value),
        old=lambda _, value: OLD_STOCK.decode(value),
        convert=lambda record: encode((*record, "piece")),
        kind="stock",
        progress=context.progress,
    )


def old_price(_: bytes, value: bytes) -> tuple[int, int]:
    """Category and amount, a byte each."""
    if len(value) != 2:
        raise ValueError(f"2 bytes expected, {len(value)} found")
    return value[0], value[1]


def new_price(_: bytes, value: bytes) -> tuple[int | None, int]:
    """Whether there is a category, the category if there is one, and the amount."""
    if len(value) == 2 and value[0] == 0:
        return None, value[1]
    if len(value) == 3 and value[0] == 1:
        return value[1], value[2]
    raise ValueError("0 and an amount, or 1, a category and an amount, expected")


def make_category_optional(rewriting: Rewriting, context: StepContext) -> None:
    """A price may have no category."""
    rewrite_values(
        rewriting,
        "prices",
        current=new_price,
        old=old_price,
        convert=lambda record: bytes((1, *record)),
        kind="price",
        old_first=True,
        progress=context.progress,
    )


def is_current_order(_: bytes, value: bytes) -> bool:
    try:
        NEW_ORDER.decode(value)
    except ValueError:
        return False
    return True


def key_orders_by_name(rewriting: Rewriting, _: StepContext) -> None:
    """The number goes from the key of an order into its value. The empty key holds something else."""
    if all_current(rewriting, "orders", is_current_order, skip=(b"",)):
        return
    orders = rewriting.family("orders")
    for key, value in orders.items():
        if key:
            del orders[key]
            orders[key[:-1]] = encode((key[-1], *OLD_ORDER.decode(value)))


MIGRATIONS = {
    "0.2.0": (
        ">=0.1.0,<0.2.0",
        [Step.dropping("accounts"), Step.renaming("tags", "labels"), Step.creating("reasons")],
    ),
    "0.3.0": (
        ">=0.2.0,<0.3.0",
        [
            Step("give units", give_units, needs=["stock"]),
            Step("make the category optional", make_category_optional, needs=["prices"]),
            Step("key orders by name", key_orders_by_name, needs=["orders"]),
        ],
    ),
    "0.4.0-alpha.1": (">=0.3.0,<0.4.0-alpha.1", [Step.creating("jobs")]),
    "0.4.0-alpha.2": (">=0.3.0,<0.4.0-alpha.2", [Step.creating("jobs"), Step.creating("effects")]),
}


def plan_of(version: str = "0.4.0-alpha.2", /, **replaced: Any) -> MigrationPlan:
    """The plan that the program of a version had. Of the two alphas, each has its own migration from 0.3.0."""
    programs = list(PROGRAMS)
    known = programs[1 : programs.index(version) + 1]
    if version == "0.4.0-alpha.2":
        known.remove("0.4.0-alpha.1")
    options: dict[str, Any] = {
        "migrations": [Migration(MIGRATIONS[each][0], each, MIGRATIONS[each][1]) for each in known],
        "version": version,
        "compatible": PROGRAMS[version],
        "families": {
            since: names for since, names in FAMILIES.items() if programs.index(since) <= programs.index(version)
        },
    }
    return MigrationPlan(**{**options, **replaced})


# Content


def content_of(version: str) -> Families:
    """What a shop holds, in the format of a version. The families that a later one made are empty."""
    new = list(PROGRAMS).index(version)
    rows = range(3)
    content: Families = {
        "default": {b"\x00": b"left alone"},
        "tags" if new < 1 else "labels": {b"tag %d" % row: b"%d" % row for row in rows},
        "stock": {b"item %d" % row: encode((row,) if new < 2 else (row, "piece")) for row in rows},
        # Category 0 is where the two shapes cannot be told apart.
        "prices": {b"item %d" % row: bytes((row, 9)) if new < 2 else bytes((1, row, 9)) for row in rows},
        "orders": {b"": b"not an order", **dict(order(row, new >= 2) for row in rows)},
    }
    if new < 1:
        content["accounts"] = {b"admin": b"secret"}
    for name in ([], ["reasons"], ["reasons"], ["reasons", "jobs"], ["reasons", "jobs", "effects"])[new]:
        content[name] = {}
    return content


def order(row: int, new: bool) -> tuple[bytes, bytes]:
    return (b"order %d" % row, encode((row, "text"))) if new else (b"order %d" % row + bytes((row,)), encode(("text",)))


def partial_states() -> Iterator[tuple[str, str, Families]]:
    """What a marker may stand beside: its version, a name for the state, and the families.

    All that a run which was stopped behind any step, or within any, has left, if each step had been durable by itself.
    """
    steps = [step for version in ("0.2.0", "0.3.0", "0.4.0-alpha.2") for step in MIGRATIONS[version][1]]
    done = {"0.1.0": 0, "0.2.0": 3, "0.3.0": 6}
    state = content_of("0.1.0")
    for count, step in enumerate([*steps, None]):
        half = {"behind": state, **half_done(step, state)}
        for name, families in half.items():
            for version, least in done.items():
                if count >= least:
                    yield version, f"{name} {steps[count - 1].name if count else 'nothing'}", copied(families)
        if step is not None:
            state = contents(applied(step, state))


def half_done(step: Step | None, state: Families) -> dict[str, Families]:
    """The states within a step, by name, in which some rows are done and some are not."""
    if step is None:
        return {}
    after = contents(applied(step, state))
    found = {}
    if step.name == "rename 'tags' to 'labels'":
        for count in range(4):
            labels = {**dict(list(state["tags"].items())[:count]), b"only here": b"kept"} if count < 3 else {}
            found[f"copied {count} rows,"] = {**state, "labels": labels}
    for name in ("stock", "prices"):
        if name in step.needs:
            for row in (b"item 0", b"item 1", b"item 2"):
                found[f"{row.decode()} of {name} done,"] = {**state, name: {**state[name], row: after[name][row]}}
    if step.name == "create 'jobs'":
        found["jobs filled,"] = {**state, "jobs": {b"job": b"kept"}, "effects": {}}
    return found


def finished(state: Families) -> Families:
    """What the newest program must make of a partial state: the rows that only it has are kept."""
    expected = content_of("0.4.0-alpha.2")
    for name, key in (("labels", b"only here"), ("jobs", b"job")):
        if key in state.get(name, {}):
            expected[name][key] = b"kept"
    return expected


def copied(families: Families) -> Families:
    return {name: dict(rows) for name, rows in families.items()}


# Rewritings without a store


def begin(state: Families, metadata: Mapping[str, str] | None = None) -> Rewriting:
    """A rewriting of these families."""
    present = []
    for family_id, (name, rows) in enumerate(state.items(), start=1):
        present.append(FamilyState(family_id, name, lambda rows=rows: dict(rows)))  # type: ignore[misc]
    return Rewriting(present, next_family_id=len(present) + 1, metadata=dict(metadata or {}), sequence=7, store_id="id")


def contents(rewriting: Rewriting) -> Families:
    return {name: dict(rewriting.family(name)) for name in rewriting.families}


def applied(step: Step, state: Families) -> Rewriting:
    rewriting = begin(state)
    step(rewriting)
    return rewriting


# Directories


def make(files: Files, state: Families, marker: str, *, content: str | None = None, backup: str | None = None) -> None:
    """Two markers, equal but for `backup`, and a store that holds `state` and says that it is of version `content`."""
    write_version_markers(DATA, BACKUP, marker, files=files)
    if backup is not None:
        write_version_marker(BACKUP, backup, files=files)
    metadata = None if content is None else {"format": content}
    with pystate.open(STORE, files=files, families=list(state), metadata=metadata) as store:
        for name, rows in state.items():
            store.family(name).update(rows)


def markers(files: Files) -> tuple[str, str]:
    """The texts in the markers of the data and the backup directory."""
    return str(read_version_marker(DATA, files=files)), str(read_version_marker(BACKUP, files=files))


def look_at(files: Files) -> tuple[Families | None, str | None]:
    """What a reader sees: the families, and the version that the content says it has."""
    try:
        with pystate.open(STORE, files=files, read_only=True) as store:
            return {name: dict(store.family(name)) for name in store.families}, store.metadata.get("format")
    except pystate.StoreNotFoundError:
        return None, None


def run(files: Files, version: str = "0.4.0-alpha.2", **options: Any) -> MigrationReport:
    """What the program of a version does when it starts."""
    return migrate(DATA, BACKUP, plan_of(version), files=files, **options)


def files_of(disk: SimulatedDisk) -> dict[str, bytes]:
    """Every file but the lock, which whoever opens a store for writing may make."""
    return {path: content for path, content in disk.files().items() if not path.endswith("LOCK")}


@contextmanager
def unchanged(disk: SimulatedDisk) -> Iterator[None]:
    """What happens in here changes no byte and makes no directory, and leaves nothing open or locked."""
    before = files_of(disk), disk.directories(), disk.open_descriptors, disk.held_locks
    yield
    assert (files_of(disk), disk.directories(), disk.open_descriptors, disk.held_locks) == before


def main(data: str, backup: str) -> None:
    """Say that this process is there, wait for the word, migrate, and say what was done."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    report = migrate(data, backup, plan_of(), lock_timeout=60.0)
    json.dump([report.rewrite is not None, report.completed_markers], sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
