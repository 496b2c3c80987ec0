"""The command line: ``pystate`` and ``python -m pystate``.

=====================  =============================================================================================
:func:`main`           parses the arguments, runs one command, turns every expected error into an exit code
``arguments``          what can be given: commands and options (argparse)
``bytes_text``         keys and values as text and back, without loss
``exits``              the exit codes, and what each error of the store means at a command line
``output``             standard output (results), standard error (messages), tables, JSON
``progress``           progress on standard error, on a terminal only
``with_rich``          tables and progress by rich, where the extra ``cli`` is installed
``reading``            ``get``, ``scan``, ``stat``, ``families``
``writing``            ``put``, ``delete``, ``families --create`` and ``--drop``
``transfer``           ``dump`` and ``load``
``checking``           ``verify``, ``log``, ``salvage``
``formats``            ``version`` and ``migrate``
``backups``            ``backup`` with its actions, and ``rollback``
``review``             ``review``: the operation attempts of a manager
``effects``            ``effects``: the effect ledger, with ``effects_finding`` (which one is meant) and
                       ``effects_deciding`` (what writes)
``demo``               ``demo``, with ``demo_inventory`` (what is written), ``demo_writer`` (the process that is
                       killed), ``demo_kill`` (kills it), ``demo_checks`` (the verdict), ``demo_report`` (what is shown)
=====================  =============================================================================================

Only results go to standard output; messages, progress and errors go to standard error. ``docs/reference/cli.md`` is
the user's page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from pystate.cli import checking, reading, transfer, writing
from pystate.cli.arguments import build_parser
from pystate.cli.exits import CommandError, Exit, explain
from pystate.cli.output import Output, complain
from pystate.errors import PystateError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for an expected error.

    Args:
        argv: the arguments after the program's name; None takes them from ``sys.argv``.

    Returns:
        The exit code, one of :class:`pystate.cli.exits.Exit`.
    """
    output = Output(sys.stdout)
    store = None
    try:
        try:
            arguments = build_parser().parse_args(argv)
            store = getattr(arguments, "store", None)
            return _COMMANDS[arguments.command](arguments, output)
        finally:
            output.flush()
    except SystemExit as stop:  # argparse: --help, --version, and wrong arguments
        return stop.code if isinstance(stop.code, int) else Exit.USAGE
    except KeyboardInterrupt:
        complain("interrupted; every commit that had returned is kept")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        output.abandon()
        return Exit.PIPE_CLOSED
    except (CommandError, PystateError, OSError) as error:
        code, text = explain(error, store)
        complain(text)
        return code


def _demo(arguments: argparse.Namespace, output: Output) -> int:
    # Late: what it needs (subprocess, tempfile, importlib.metadata) is slow to import, and `--help` should be quick.
    from pystate.cli.demo import demo

    return demo(arguments, output)


def _review(arguments: argparse.Namespace, output: Output) -> int:
    # Late: it declares every table of the manager's state, which no other command needs.
    from pystate.cli.review import review

    return review(arguments, output)


def _effects(arguments: argparse.Namespace, output: Output) -> int:
    # Late: it needs the whole effect ledger, which no other command does.
    from pystate.cli.effects import effects

    return effects(arguments, output)


def _families(arguments: argparse.Namespace, output: Output) -> int:
    changes = arguments.create is not None or arguments.drop is not None
    return (writing.change_families if changes else reading.families)(arguments, output)


def _version(arguments: argparse.Namespace, output: Output) -> int:
    # Late, as in the ones below: pystate.formats is a good part of all modules, and few commands need it.
    from pystate.cli.formats import version

    return version(arguments, output)


def _migrate(arguments: argparse.Namespace, output: Output) -> int:
    from pystate.cli.formats import migrate

    return migrate(arguments, output)


def _backup(arguments: argparse.Namespace, output: Output) -> int:
    from pystate.cli.backups import ACTIONS

    return ACTIONS[arguments.action](arguments, output)


def _rollback(arguments: argparse.Namespace, output: Output) -> int:
    from pystate.cli.backups import rollback

    return rollback(arguments, output)


_COMMANDS: dict[str, Callable[[argparse.Namespace, Output], int]] = {
    "demo": _demo,
    "get": reading.get,
    "scan": reading.scan,
    "stat": reading.stat,
    "put": writing.put,
    "delete": writing.delete,
    "families": _families,
    "dump": transfer.dump,
    "load": transfer.load,
    "verify": checking.verify,
    "log": checking.log,
    "salvage": checking.salvage,
    "version": _version,
    "migrate": _migrate,
    "rollback": _rollback,
    "backup": _backup,
    "review": _review,
    "effects": _effects,
}
