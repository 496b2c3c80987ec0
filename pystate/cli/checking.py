"""Commands that check: ``verify``, ``log``, ``salvage``. None of them writes to the store."""

from __future__ import annotations

import argparse

import pystate
from pystate.cli.exits import Exit
from pystate.cli.output import Column, Output, complain, printable

__all__ = ["log", "salvage", "verify"]


def verify(arguments: argparse.Namespace, output: Output) -> int:
    """Read every byte and report all damage; damage is the exit code 1."""
    report = pystate.verify(arguments.store)
    if arguments.json:
        output.json(report)
    else:
        _show_verify_report(report, output)
    return Exit.OK if report.ok else Exit.NEGATIVE


def _show_verify_report(report: pystate.VerifyReport, output: Output) -> None:
    output.table(
        (("file", "left"), ("kind", "left"), ("bytes", "right"), ("note", "left")),
        [(file.name, file.kind, file.bytes, file.note or "") for file in report.files],
    )
    output.line("")
    output.table((("family", "left"), ("entries", "right")), list(report.families.items()))
    output.line("")
    output.table(
        (("what", "left"), ("value", "left")),
        [
            ("store id", report.store_id),
            ("format version", str(report.format_version)),
            ("sequence", report.sequence),
            ("closed cleanly", report.clean),
            ("bytes of an unfinished commit at the end", report.torn_bytes),
            ("problems", len(report.problems)),
        ],
    )
    _show_problems(report.problems, output)


def _show_problems(problems: tuple[pystate.Problem, ...], output: Output) -> None:
    if problems:
        output.line("")
        output.table(
            (("file", "left"), ("offset", "right"), ("problem", "left")),
            [(problem.path, problem.offset, problem.text) for problem in problems],
        )


_LOG_COLUMNS: tuple[tuple[Column, int], ...] = (
    (("segment", "left"), 27),
    (("offset", "right"), 10),
    (("length", "right"), 10),
    (("sequence", "right"), 10),
    (("watermark", "right"), 10),
    (("kind", "left"), 7),
    (("operations", "right"), 10),
    (("header", "left"), 10),
    (("payload", "left"), 10),
    (("state", "left"), 0),
)
"""Columns of the log and their widths in characters: fixed, since the frames are shown as they are read."""


def log(arguments: argparse.Namespace, output: Output) -> int:
    """Show every frame of every segment, in order, damaged ones included."""
    heading = not arguments.json
    for frame in pystate.read_log(arguments.store):
        if arguments.json:
            output.json_line(frame)
            continue
        if heading:  # with the first frame, so that there is no heading where there is no store
            _log_line(tuple(name for (name, _), _ in _LOG_COLUMNS), output)
            heading = False
        _log_line(_log_cells(frame), output)
    return Exit.OK


def _log_cells(frame: pystate.FrameInfo) -> tuple[str, ...]:
    return (
        printable(frame.segment),
        str(frame.offset),
        str(frame.length),
        str(frame.sequence),
        str(frame.watermark),
        frame.kind,
        str(frame.operations),
        f"{frame.header_checksum:#010x}",
        f"{frame.payload_checksum:#010x}",
        "ok" if frame.ok else f"DAMAGED: {printable(frame.problem or 'unreadable')}",
    )


def _log_line(cells: tuple[str, ...], output: Output) -> None:
    aligned = (
        cell.rjust(width) if alignment == "right" else cell.ljust(width)
        for cell, ((_, alignment), width) in zip(cells, _LOG_COLUMNS, strict=True)
    )
    output.line("  ".join(aligned).rstrip())


def salvage(arguments: argparse.Namespace, output: Output) -> int:
    """Copy what is intact into a new store; that not everything was is the exit code 1."""
    report = pystate.salvage(arguments.store, arguments.destination)
    if arguments.json:
        output.json(report)
    else:
        output.table((("family", "left"), ("entries", "right")), list(report.families.items()))
        output.line("")
        output.table(
            (("what", "left"), ("value", "left")),
            [
                ("copied to", report.destination),
                ("entries", report.entries),
                ("frames applied", report.frames_applied),
                ("state as of sequence", report.sequence),
                ("problems", len(report.problems)),
            ],
        )
        _show_problems(report.problems, output)
    if report.problems:
        complain(
            f"copied what is intact to {report.destination}; check it before it takes the place of {report.source}, "
            "which was left as it is"
        )
        return Exit.NEGATIVE
    return Exit.OK
