"""Reference pages made of docstrings: ``python -m tests.reference_pages`` writes them, a test compares.

One page for each subpackage: its docstring, then every public name in the order of the modules that define them, with
signature and docstring. So the pages say what the code says, and a name without a docstring does not pass unseen. What
is understood of a docstring is what the docstrings of this project use: paragraphs, lists, literal blocks after ``::``,
tables with ``===`` lines, examples with ``>>>``, and sections such as ``Raises:``.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

import pystate.errors
from tests.markdown import ROOT

__all__ = ["PAGES", "page_of"]

REFERENCE = ROOT / "docs" / "reference"

#: The page of each subpackage, with its title.
PAGES = {
    "pystate.tables": ("tables.md", "Tables"),
    "pystate.effects": ("effects.md", "Effects"),
    "pystate.formats": ("formats.md", "Formats"),
    "pystate.formats.backup": ("backup.md", "Backups"),
    "pystate.review": ("review.md", "The review state"),
}

SECTIONS = re.compile(r"^(Arguments|Attributes|Returns|Raises|Yields):$")
WIDTH = 120


def page_of(name: str) -> str:
    """The text of the page of a subpackage."""
    package = importlib.import_module(name)
    _, title = PAGES[name]
    lines = [f"# {title}", "", "<!-- made from the docstrings by `python -m tests.reference_pages` -->", ""]
    lines += markdown(inspect.getdoc(package) or "")
    for module, names in by_module(package):
        if module is pystate.errors:
            lines += ["", "## Errors", "", "Those of a store as such: [errors](errors.md)."]
        else:
            lines += ["", f"## `{module.__name__}`", "", *markdown(inspect.getdoc(module) or "")]
        for each in names:
            lines += ["", *describe(each, getattr(package, each), module)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def by_module(package: ModuleType) -> Iterator[tuple[ModuleType, list[str]]]:
    """The public names of a package, by the module that defines them, both in alphabetical order."""
    found: dict[str, list[str]] = {}
    for name in package.__all__:
        found.setdefault(home(package, name), []).append(name)
    errors = found.pop("pystate.errors", [])
    for module in sorted(found):
        yield importlib.import_module(module), sorted(found[module])
    if errors:
        yield pystate.errors, sorted(errors)


def home(package: ModuleType, name: str) -> str:
    """The module that defines a public name: constants do not say so, so the modules are asked."""
    value = getattr(package, name)
    own = getattr(value, "__module__", None)
    if isinstance(own, str) and own.startswith("pystate.") and getattr(sys.modules[own], name, None) is value:
        return own
    naming = [
        module_name
        for module_name, module in sorted(sys.modules.items())
        if module_name.startswith(f"{package.__name__}.") and name in getattr(module, "__all__", ())
    ]
    return max(naming, key=lambda module_name: module_name.count("."), default=package.__name__)


def describe(name: str, value: Any, module: ModuleType) -> list[str]:
    """Heading, signature and docstring of one public name."""
    lines = [f"### {name}", ""]
    if inspect.ismodule(value):
        file, title = PAGES[value.__name__]
        return [*lines, f"A package of its own: [{title.lower()}]({file})."]
    if inspect.isclass(value):
        if issubclass(value, enum.Enum):
            members = ", ".join(f"`{member.name}`" for member in value)
            return [*lines, *markdown(own_doc(value)), "", f"Members, in order: {members}."]
        if is_protocol(value) or not callable_by_users(value):
            lines += markdown(own_doc(value))
        else:
            lines += ["```text", *signature(name, value), "```", ""]
            if issubclass(value, Exception):
                lines += [f"Base classes: {', '.join(f'`{base.__name__}`' for base in value.__bases__)}.", ""]
            lines += markdown(own_doc(value))
        if bases := public_bases(value):
            lines += ["", f"Has what {', '.join(f'`{base}`' for base in bases)} has."]
        for each in members_of(value):
            lines += ["", *describe_member(name, value, each)]
        return lines
    if inspect.isroutine(value):
        return [*lines, "```text", *signature(name, value), "```", "", *markdown(own_doc(value))]
    return [*lines, *markdown(constant_doc(name, module))]


def is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def callable_by_users(kind: type) -> bool:
    """Whether the class is made by calling it: abstract ones are not."""
    return not inspect.isabstract(kind)


def public_bases(kind: type) -> list[str]:
    """The bases of this project that offer something."""
    return [base.__name__ for base in kind.__bases__ if base.__module__.startswith("pystate.") and members_of(base)]


def own_doc(value: Any) -> str:
    return inspect.getdoc(value) or ""


def members_of(kind: type) -> list[str]:
    """The public methods and properties that the class itself defines, as they come in the code."""
    fields = set(kind.__struct_fields__) if issubclass(kind, msgspec.Struct) else set()
    return [
        name
        for name, member in vars(kind).items()
        if not name.startswith("_") and name not in fields and documented(member)
    ]


def documented(member: Any) -> bool:
    return isinstance(member, (property, classmethod, staticmethod)) or inspect.isfunction(member)


def describe_member(owner: str, kind: type, name: str) -> list[str]:
    member = inspect.getattr_static(kind, name)
    lines = [f"#### {owner}.{name}", ""]
    if not isinstance(member, property):
        lines += ["```text", *signature(f"{owner}.{name}", getattr(kind, name)), "```", ""]
    return lines + markdown(own_doc(getattr(kind, name)))


def signature(name: str, value: Any) -> list[str]:
    """The signature, on one line or with one parameter on each."""
    try:
        found = inspect.signature(value)
    except ValueError:  # made as a built-in type is
        return [f"{name}(...)"]
    shown: list[str] = []
    starred = False
    for each in found.parameters.values():
        if each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        shown.append(parameter(each))
    end = "" if inspect.isclass(value) else f" -> {annotation(found.return_annotation)}"
    line = f"{name}({', '.join(shown)}){end}"
    return [line] if len(line) <= WIDTH else [f"{name}(", *(f"    {each}," for each in shown), f"){end}"]


def parameter(each: inspect.Parameter) -> str:
    """A parameter as it is written."""
    stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    text = stars + each.name
    if each.annotation is not each.empty:
        text += f": {annotation(each.annotation)}"
    if each.default is not each.empty:
        default = re.sub(r"<.*>", "...", repr(each.default))
        text += f" = {default}" if each.annotation is not each.empty else f"={default}"
    return text


def annotation(given: Any) -> str:
    """An annotation as it is written, without modules."""
    text = given if isinstance(given, str) else str(inspect.formatannotation(given))
    return re.sub(r"\b(?:pystate|datetime|typing|collections\.abc|msgspec)(?:\.\w+)*\.(?=\w)", "", text)


def constant_doc(name: str, module: ModuleType) -> str:
    """The string that stands below a constant in its module."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for node, below in itertools.pairwise(tree.body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                return inspect.cleandoc(str(below.value.value))
    return ""


def markdown(text: str) -> list[str]:
    """A docstring as Markdown."""
    lines: list[str] = []
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    literal = False
    for block in blocks:
        body = block.strip("\n")
        if literal and body.startswith("    "):
            lines += ["```text", *textwrap.dedent(body).splitlines(), "```", ""]
            continue
        literal = body.endswith("::")
        if body.lstrip().startswith(">>>"):
            lines += ["```python", *textwrap.dedent(body).splitlines(), "```", ""]
        elif re.match(r"=+( =+)+$", body.splitlines()[0].strip() if body else ""):
            lines += ["```text", *body.splitlines(), "```", ""]
        elif body and SECTIONS.match(body.splitlines()[0].strip()):
            lines += section(body)
        else:
            lines += [code(each) for each in body.splitlines()] + [""]
    if not literal and lines and lines[-1] == "":
        lines.pop()
    return joined_literals(lines)


def joined_literals(lines: list[str]) -> list[str]:
    """One literal block where a blank line has made two."""
    text = "\n".join(lines).replace("```\n\n```text\n", "\n")
    return text.split("\n")


def section(body: str) -> list[str]:
    """``Raises:`` and its like: a line in bold, and a list of what it names."""
    first, *rest = body.splitlines()
    kind = first.strip().rstrip(":")
    text = textwrap.dedent("\n".join(rest))
    if kind in ("Returns", "Yields"):
        return [f"**{kind}**", "", *map(code, text.splitlines()), ""]
    if kind == "Raises":
        text = re.sub(r"(?<=[.;]) (?=(?:\w*Error(?:, )?)+: )", "\n", " ".join(text.split()))
    lines = [f"**{kind}**", ""]
    for line in text.splitlines():
        item = re.match(r"^([\w*]+(?:, [\w*]+)*): (.*)$", line)
        if item and not line.startswith(" "):
            names = ", ".join(f"`{name}`" for name in item[1].split(", "))
            lines += textwrap.wrap(f"- {names}: {code(item[2])}", WIDTH, subsequent_indent="  ")
        else:
            lines.append(f"  {code(line.strip())}" if lines[-1] else code(line.strip()))
    return [*lines, ""]


def code(line: str) -> str:
    """Code in a line, with one backtick on each side; ``::`` at the end of it is a colon."""
    return re.sub(r"::$", ":", line.replace("``", "`"))


def main() -> None:
    """Write every page."""
    for name, (file, _) in PAGES.items():
        (REFERENCE / file).write_text(page_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
