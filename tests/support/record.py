"""`python -m tests.support.record [faults|coverage] [WORD]`: list the tests by what they found or hold.

The record is in the docstrings of the tests. A line that begins with `Fault: ` is one sentence about a fault of
correctness that the test found. A line that begins with `Holds: ` names parts of the specification
(tests/support/specification.py), separated by `; `. Both end with a full stop. A test file, a script (`python -m ...`)
and the comments of a C driver or fuzzer may have such lines as well.

The command prints these lines by directory, each with the command that runs its test; with WORD only those with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import attrs
import click
from rich.console import Console

from tests.support.rules import ROOT
from tests.support.specification import HELD, NOT_HELD

KINDS = {"faults": "Fault", "coverage": "Holds"}
FOLDERS = ("tests", "bench")
WORDS_MAX = 25
MARKER = re.compile(r"(Fault|Holds): (?=\S)")
NEARLY = re.compile(r"\s*(faults?|holds?) ?:", re.IGNORECASE)  # a marker, or a misspelt one
COMMENT = re.compile(r"/\*(.*?)\*/(?:\s*static [\w ]+[ *](\w+)\()?", re.DOTALL)
Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Entry:
    """A line of the record, with the test that has it."""

    kind: str
    text: str
    path: Path  # from the root
    test: str  # `test_x`, `TestX::test_x`, a function of C, or "" for the whole file
    fails: str = ""  # why it is refused

    @property
    def area(self) -> str:
        return self.path.parent.as_posix()

    @property
    def place(self) -> str:
        return f"{self.path}::{self.test}" if self.test else str(self.path)

    @property
    def command(self) -> str:
        """Return the command that runs the test."""
        if self.path.suffix != ".py":
            target = f"{'run-address' if self.path.stem.startswith('driver_') else 'replay'}-{self.path.stem}"
            return f"make -C {self.area} {target}" + (f"  # {self.test}" if self.test else "")
        if is_test_file(self.path):
            return f"pytest {self.place}"
        return f"python -m {'.'.join(self.path.with_suffix('').parts)}"

    @property
    def parts(self) -> list[str]:
        """Return the parts of the specification that a test holds."""
        return self.text.removesuffix(".").split("; ")


def is_test_file(path: Path) -> bool:
    return path.name.startswith("test_")


def markers(text: str) -> Iterator[str]:
    """Yield each line of a docstring that begins with a marker, or nearly, joined with the lines that continue it."""
    found: list[str] = []
    for line in [*text.splitlines(), ""]:
        ends = not line.strip() or NEARLY.match(line)
        if ends and found:
            yield " ".join(found)
            found = []
        if NEARLY.match(line) or found:
            found.append(line.strip())


def docstrings(node: Scope, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of a module, and of all classes and functions in it."""
    yield name, ast.get_docstring(node) or ""
    for child in scopes_in(node):
        yield from docstrings(child, f"{name}::{child.name}" if name else child.name)


def scopes_in(node: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        elif not isinstance(child, ast.expr):  # which has none, and most of the nodes
            yield from scopes_in(child)


def comments(text: str) -> Iterator[tuple[str, str]]:
    """Yield each comment of C, with the function behind it, or "" if there is none."""
    for match in COMMENT.finditer(text):
        yield match[2] or "", re.sub(r"^\s*\*? ?", "", match[1], flags=re.MULTILINE)


def misplaced(path: Path, test: str, text: str) -> str:
    """Return why nothing runs what has this docstring, or ""."""
    if path.suffix != ".py":
        return "" if path.stem.startswith(("driver_", "fuzz_")) else "put it into a driver or a fuzzer"
    if not is_test_file(path):
        return (
            "" if not test and '__name__ == "__main__"' in text else "put it into a test or the docstring of a script"
        )
    if not test:
        return "" if re.search(r"^\s*(?:async )?def test_", text, re.MULTILINE) else "the file has no test"
    is_test = re.fullmatch(r"(?:Test\w+::)?test_\w+", test)
    return "" if is_test else "put it into the docstring of a test"


def malformed(line: str) -> str:
    """Return the mistake in a line with a marker, or ""."""
    if not MARKER.match(line):
        return "write `Fault: ...` or `Holds: ...`"
    kind, text = line.split(": ", 1)
    if not text.endswith("."):
        return "end it with a full stop"
    if kind == "Fault":
        if re.search(r"\.\s+\S", text) or len(text.split()) > WORDS_MAX:
            return f"write one sentence of at most {WORDS_MAX} words"
        return "begin the sentence with a capital" if re.match(r"[a-z]+\b", text) else ""
    unknown = [part for part in text[:-1].split("; ") if part not in specification()]
    return f"not in tests/support/specification.py: {'; '.join(unknown)}" if unknown else ""


def specification() -> set[str]:
    return {f"{area}, {part}" for area, parts in HELD.items() for part in parts}


def entries_of(path: Path, text: str) -> Iterator[Entry]:
    """Yield the entries of a file with this text."""
    if not re.search(r"(faults?|holds?) ?:", text, re.IGNORECASE):  # most files, which need not be parsed
        return
    found = docstrings(ast.parse(text)) if path.suffix == ".py" else comments(text)
    for test, docstring in found:
        for line in markers(docstring):
            kind, _, rest = line.partition(": ")
            yield Entry(kind, rest, path, test, malformed(line) or misplaced(path, test, text))


@cache
def entries() -> tuple[Entry, ...]:
    """Return the whole record, by file."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.*")))
    sources = (path for path in paths if path.suffix in (".py", ".c") and "target" not in path.parts)
    return tuple(entry for path in sources for entry in entries_of(path.relative_to(ROOT), path.read_text("utf-8")))


def show(console: Console, found: Iterable[Entry]) -> None:
    """Print entries by directory, those of one test over its command."""
    for area, in_area in groupby(sorted(found, key=lambda entry: entry.area), lambda entry: entry.area):
        of_area = list(in_area)
        console.print(f"\n{area} ({len(of_area)})", style="bold")
        for command, of_test in groupby(of_area, lambda entry: entry.command):
            console.print("\n".join(f"  {entry.text}" for entry in of_test))
            console.print(f"      {command}", style="dim")


@click.command(help=__doc__)
@click.argument("what", type=click.Choice(list(KINDS)), default="faults")
@click.argument("word", default="")
def main(what: str, word: str) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    of_kind = [entry for entry in entries() if entry.kind == KINDS[what] and not entry.fails]
    show(console, (entry for entry in of_kind if word.lower() in f"{entry.text}\n{entry.place}".lower()))
    reasons = {part: why for part, why in NOT_HELD.items() if word.lower() in part.lower()}
    if what == "coverage" and reasons:
        console.print("\nwithout a test", style="bold")
        console.print("\n".join(f"  {part}: {why}" for part, why in reasons.items()))


if __name__ == "__main__":
    main()
