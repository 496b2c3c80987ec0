"""What the demo measured, as tables and as JSON."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

import pystate
from pystate.cli.demo_checks import Check, Verdict
from pystate.cli.demo_inventory import FILES, PACKAGES, Package
from pystate.cli.demo_kill import Written
from pystate.cli.output import Output

__all__ = ["Report", "as_json", "show", "suggestions"]


class Report(msgspec.Struct, frozen=True):
    """Everything that the demo measured.

    Attributes:
        path: the directory of the store.
        packages: the packages that were read.
        read_seconds: how long reading them took.
        written: what the writer did.
        killed_state: the files as the kill left them.
        closed_state: the files after recovery and a clean close.
        recovery: what opening the store did.
        open_seconds: how long opening it took in all.
        verdict: what was acknowledged against what is there.
        checks: every check, those of the verdict included.
    """

    path: str
    packages: tuple[Package, ...]
    read_seconds: float
    written: Written
    killed_state: pystate.VerifyReport
    closed_state: pystate.VerifyReport
    recovery: pystate.RecoveryReport | None
    open_seconds: float
    verdict: Verdict
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Every check holds."""
        return all(check.ok for check in self.checks)


def show(report: Report, seconds: float, output: Output) -> None:
    """Write the report as tables.

    Args:
        report: what the demo measured.
        seconds: how long the demo took in all.
        output: where to.
    """
    measured = (("what", "left"), ("measured", "left"))
    output.table(measured, _written_rows(report), title="written, and killed")
    output.line("")
    output.table(
        (("file", "left"), ("kind", "left"), ("bytes at the kill", "right"), ("bytes after recovery", "right")),
        _file_rows(report),
        title="files",
    )
    output.line("")
    output.table(measured, _recovery_rows(report, seconds), title="recovery")
    output.line("")
    output.table(
        (("check", "left"), ("result", "left"), ("measured", "left")),
        [(check.name, "ok" if check.ok else "FAILED", check.measured) for check in report.checks],
        title="checks",
    )


def _written_rows(report: Report) -> list[tuple[str, object]]:
    packages, written, verdict = report.packages, report.written, report.verdict
    files = sum(len(package.files) for package in packages)
    last = written.acknowledged[-1]
    in_flight = "none: the kill fell between two commits"
    if written.in_flight is not None:
        round_number, index = written.in_flight
        in_flight = f"{packages[index].name} in round {round_number}: {verdict.in_flight}"
    return [
        (
            "packages read",
            f"{len(packages):,} with {files:,} files of {sum(p.bytes for p in packages):,} bytes, "
            f"in {report.read_seconds:.2f} s",
        ),
        ("commits acknowledged", f"{len(written.acknowledged):,} in {written.seconds:.2f} s"),
        (
            "last acknowledged",
            f"sequence {last.sequence:,}: {packages[last.index].name} in round {last.round_number}",
        ),
        ("under way at the kill", in_flight),
        (
            "survived",
            f"{verdict.commits_found:,} commits with {verdict.entries_found:,} entries, up to sequence "
            f"{report.closed_state.sequence:,}",
        ),
    ]


def _file_rows(report: Report) -> list[tuple[object, ...]]:
    killed = {file.name: file for file in report.killed_state.files}
    closed = {file.name: file for file in report.closed_state.files}
    rows: list[tuple[object, ...]] = []
    for name in sorted({*killed, *closed}):
        file = killed.get(name) or closed[name]
        rows.append(
            (
                name,
                file.kind,
                killed[name].bytes if name in killed else None,
                closed[name].bytes if name in closed else None,
            )
        )
    return rows


def _recovery_rows(report: Report, seconds: float) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    recovery = report.recovery
    if recovery is not None:
        rows += [
            ("the log ended with", recovery.decision),
            ("snapshot read, as of sequence", recovery.snapshot_sequence),
            ("frames of the log replayed", recovery.frames_replayed),
            ("bytes cut off at the end", recovery.torn_bytes),
            ("unfinished files removed", len(recovery.temporary_files_removed)),
            ("recovery took", f"{recovery.seconds * 1000:.1f} ms"),
        ]
    return [
        *rows,
        ("opening took in all", f"{report.open_seconds * 1000:.1f} ms"),
        ("the demo took in all", f"{seconds:.2f} s"),
    ]


def as_json(report: Report, seconds: float, *, kept: bool) -> dict[str, Any]:
    """Return the report as a document for JSON.

    Args:
        report: what the demo measured.
        seconds: how long the demo took in all.
        kept: the store is still there, so its path is worth telling.
    """
    packages, written = report.packages, report.written
    last = written.acknowledged[-1]
    in_flight = None
    if written.in_flight is not None:
        round_number, index = written.in_flight
        in_flight = {"package": packages[index].name, "round": round_number, "found": report.verdict.in_flight}
    return {
        "ok": report.ok,
        "path": report.path if kept else None,
        "read": {
            "packages": len(packages),
            "files": sum(len(package.files) for package in packages),
            "bytes": sum(package.bytes for package in packages),
            "seconds": report.read_seconds,
        },
        "acknowledged": {
            "commits": len(written.acknowledged),
            "sequence": last.sequence,
            "package": packages[last.index].name,
            "round": last.round_number,
            "seconds": written.seconds,
        },
        "in_flight": in_flight,
        "survived": {
            "commits": report.verdict.commits_found,
            "entries": report.verdict.entries_found,
            "sequence": report.closed_state.sequence,
        },
        "files_at_the_kill": report.killed_state.files,
        "files_after_recovery": report.closed_state.files,
        "recovery": report.recovery,
        "open_seconds": report.open_seconds,
        "checks": report.checks,
        "seconds": seconds,
    }


def suggestions(keep: str, report: Report) -> str:
    """Return commands with which to explore the store that was left, one on each line.

    Args:
        keep: the directory as it was given.
        report: what the demo measured.
    """
    store = shlex.quote(keep)
    last = report.written.acknowledged[-1]
    package = f"{last.round_number:04d}/{report.packages[last.index].name}"
    return "\n".join(
        (
            f"  pystate stat {store}",
            f"  pystate get {store} {shlex.quote(package)} --family {PACKAGES}",
            f"  pystate scan {store} --family {FILES} --prefix {shlex.quote(package + '/')} --limit 10",
            f"  pystate log {store}",
            f"  pystate verify {store}",
        )
    )
