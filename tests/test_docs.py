"""The documents: every example in them runs, and nothing public is left out.

How a page is run: its blocks in their order, in one empty directory, the Python ones in one namespace.

``python``
    Is executed. With ``>>>`` in it, it is a session, and what it prints is compared.
``console``
    Lines that begin with ``$`` are commands, the lines below them what they print. Known commands: ``pystate``
    (with ``< file`` and ``> file``), and ``echo $?`` for the exit code of the last one.
anything else
    Is not run.

In what is printed, ``...`` stands for anything. A block that must not run says so, and why, in the comment right above
it: ``<!-- not run: reason -->``.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pystate
import pystate.cli
import pystate.errors
from tests import reference_pages
from tests.markdown import ROOT, Fence, fences

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(DOCS).as_posix() for page in PAGES])
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)  # for the processes that an example starts
    namespace: dict[str, Any] = {"__name__": "__example__"}
    for block in fences(page):
        if block.language in ("python", "pycon", "console") and not block.comment.startswith("not run: "):
            run(block, page, namespace)


def run(block: Fence, page: Path, namespace: dict[str, Any]) -> None:
    if block.language == "console":
        run_console(block, page)
    elif re.search(r"^>>> ", block.text, re.MULTILINE):
        run_session(block, page, namespace)
    else:
        # Blank lines in front make the line numbers of a traceback those of the page; an assertion is never optional.
        source = "\n" * (block.line - 1) + block.text
        exec(compile(source, str(page), "exec", dont_inherit=True, optimize=0), namespace)


def run_session(block: Fence, page: Path, namespace: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, namespace, page.name, str(page), block.line - 1)
    report = io.StringIO()
    result = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS).run(test, out=report.write, clear_globs=False)
    assert result.failed == 0, report.getvalue()
    namespace.update(test.globs)


def run_console(block: Fence, page: Path) -> None:
    code = 0
    for line, command, expected in commands(block):
        if command == "echo $?":
            code, printed = 0, f"{code}\n"
        else:
            code, printed = run_command(command)
        assert doctest.OutputChecker().check_output(expected, printed, OPTIONS), (
            f"{page}:{line}: $ {command}\nshould print\n{expected}\nand prints\n{printed}"
        )


def commands(block: Fence) -> Iterator[tuple[int, str, str]]:
    """The commands of a block, each with its line number and what it should print."""
    assert block.text.startswith("$ "), f"line {block.line}: a console block begins with a command"
    line = block.line
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield line, command.strip(), expected.rstrip("\n") + "\n" if expected.strip() else ""
        line += part.count("\n")


def run_command(command: str) -> tuple[int, str]:
    """Run one command line in this process; its exit code and all that it printed, errors too, as a terminal shows."""
    words = shlex.split(command)
    assert words[0] == "pystate", f"only pystate can be run here, not {words[0]!r}"
    given, target = b"", None
    if "<" in words:
        at = words.index("<")
        given = Path(words[at + 1]).read_bytes()
        del words[at : at + 2]
    if ">" in words:
        at = words.index(">")
        target = Path(words[at + 1])
        del words[at : at + 2]
    with text_stream() as screen, text_stream(given) as stdin, pytest.MonkeyPatch.context() as patch:
        with text_stream() if target else contextlib.nullcontext(screen) as stdout:
            patch.setattr(sys, "stdin", stdin)
            patch.setattr(sys, "stdout", stdout)
            patch.setattr(sys, "stderr", screen)
            try:
                code = pystate.cli.main(words[1:])
            except SystemExit as exit_:
                code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
            if target:
                target.write_bytes(written(stdout))
        return code, written(screen).decode()


def text_stream(content: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="\n", write_through=True)


def written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    stream.seek(0)
    return bytes(stream.buffer.read())


MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(pystate.__path__, "pystate.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["pystate", *MODULES])
def test_the_examples_in_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=OPTIONS)
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples of {name} failed; see the output"


def mentioned(page: Path) -> set[str]:
    """The words that stand in code spans, blocks and headings of a page, dotted names taken apart."""
    text = page.read_text(encoding="utf-8")
    code = re.findall(r"`([^`]+)`", text) + re.findall(r"^#+ .*$", text, re.MULTILINE)
    code += [block.text for block in fences(page)]
    return set(re.findall(r"[\w-]+", " ".join(code)))


def test_every_public_name_is_in_the_reference() -> None:
    errors = set(pystate.errors.__all__)
    missing = set(pystate.__all__) - errors - mentioned(DOCS / "reference" / "api.md")
    assert not missing, f"not in docs/reference/api.md: {sorted(missing)}"


@pytest.mark.parametrize("name", ["Store", "Family", "Transaction", "View"])
def test_every_public_method_is_in_the_reference(name: str) -> None:
    methods = {method for method in vars(getattr(pystate, name)) if not method.startswith("_")}
    missing = methods - mentioned(DOCS / "reference" / "api.md")
    assert not missing, f"{name}: not in docs/reference/api.md: {sorted(missing)}"


def test_every_error_is_in_the_reference() -> None:
    pages = [
        DOCS / "reference" / "errors.md",
        *(DOCS / "reference" / file for file, _ in reference_pages.PAGES.values()),
    ]
    missing = set(pystate.errors.__all__) - set().union(*map(mentioned, pages))
    assert not missing, f"in no page of the reference: {sorted(missing)}"


def test_every_command_and_option_is_in_the_reference() -> None:
    page = DOCS / "reference" / "cli.md"
    known = set(re.findall(r"(?<![\w-])-{0,2}[\w-]+", page.read_text(encoding="utf-8")))
    overview = run_command("pystate --help")[1]
    subcommands = re.search(r"\{([\w,-]+)\}", overview)
    assert subcommands, f"pystate --help names no commands:\n{overview}"
    names = subcommands[1].split(",")
    missing = {name for name in names if name not in mentioned(page)}
    for name in names:
        options = set(re.findall(r"(?<![\w-])--[\w-]+", run_command(f"pystate {name} --help")[1]))
        missing |= {f"{name} {option}" for option in options if option not in known}
    assert not missing, f"not in docs/reference/cli.md: {sorted(missing)}"


BLOCK = "$ pystate --version\npystate ...\n$ echo $?\n0\n"


def test_a_console_block_is_taken_apart_into_commands_and_what_they_print() -> None:
    block = Fence("console", BLOCK, 10, "")
    assert list(commands(block)) == [(10, "pystate --version", "pystate ...\n"), (12, "echo $?", "0\n")]


def test_a_wrong_example_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    wrong = {
        "python": "assert 1 + 1 == 3\n",
        "pycon": ">>> 1 + 1\n3\n",
        "console": "$ pystate --help\nnothing of the kind\n",
    }
    for language, text in wrong.items():
        with pytest.raises(AssertionError):
            run(Fence(language, text, 1, ""), page, {})


def test_no_example_hides_behind_a_language_that_is_not_run() -> None:
    misnamed = [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in PAGES
        for block in fences(page)
        if block.language not in ("python", "pycon", "console")
        and re.search(r"^>>> |^import pystate", block.text, re.MULTILINE)
    ]
    assert not misnamed, f"Python that does not run; name the block python: {misnamed}"
