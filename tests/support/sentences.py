"""Odd sentences: their subject is a pronoun or a relative clause, so a reader has to guess the thing they speak of.

    python -m tests.support.sentences [--count] [PATH ...]

This lists them in pages, in decisions (docs/adr) and in first lines of docstrings, and prints their share of 1 000
sentences. Without PATH it reads the whole project, and fails if a kind of text passes its bar. With --count it lists
only the sentences of such a kind: `make lint` runs it so.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from tests.support.rules import ROOT

BARS = {"pages": 10, "decisions": 10, "docstrings": 15}
"""The most odd sentences of each kind, of 1 000."""
PROJECT = ("README.md", "CONTRIBUTING.md", "docs", "rocketpy")
REMEDY = (
    "name the thing and make it the subject; begin a docstring with a verb (`Return True if ...`, not `Whether ...`) "
    "or with the noun that the class or module is"
)
WORDS_MIN = 4  # of a sentence; less is a heading or a label

_ODD = re.compile(
    r"\b(?:of which|of whom|of those|that which|that one|the one that|those that|whoever|whichever|whatever)\b"
    r"|^(?:So it is|What |Who |Whether |That |Those |Neither|Nor)\b",
    re.IGNORECASE,
)
_ODD_FIRST_WORD = re.compile(r"(?:When|Where|How) ", re.IGNORECASE)  # of a docstring; good beginnings in a page
_FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
_NO_PROSE = re.compile(r"^[ \t]*[|#><!].*$", re.MULTILINE)  # tables, headings, quotations, HTML, images
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_BULLET = r"(?:[-+*]|\d+\.)\s"
_END = re.compile(rf"(?<=[.!?:;])\s+|\n\s*\n|\n(?=\s*{_BULLET})")
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Sentence:
    """A sentence, and the line of its file in which it begins."""

    line: int
    text: str


@attrs.define
class Count:
    """The number of sentences of one kind, and the odd ones as `PATH:LINE: TEXT`."""

    sentences: int = 0
    odd: list[str] = attrs.field(factory=list)

    @property
    def of_1000(self) -> float:
        return 1000 * len(self.odd) / max(1, self.sentences)


def is_odd(sentence: str) -> bool:
    """Return True if a sentence of a page hides its subject."""
    return _ODD.search(sentence) is not None


def is_odd_docstring(first_line: str) -> bool:
    """Return True if the first line of a docstring hides its subject."""
    return is_odd(first_line) or _ODD_FIRST_WORD.match(first_line) is not None


def sentences_of_page(text: str) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown page, without code, tables and headings; code in a sentence becomes `it`."""
    text = _FENCE.sub(_lines_of, text)
    text = _LINK.sub(r"\1", _NO_PROSE.sub("", text))
    text = _CODE.sub(lambda code: "it" + _lines_of(code), text).replace("**", "")
    begin = 0
    for end in [*_END.finditer(text), None]:
        piece = text[begin : end.start() if end else None]
        words = re.sub(rf"^\s*{_BULLET}", "", piece).split()
        if len(words) >= WORDS_MIN:
            indent = len(piece) - len(piece.lstrip())
            yield Sentence(text.count("\n", 0, begin + indent) + 1, " ".join(words))
        begin = end.end() if end else begin


def first_lines_of_module(text: str) -> Iterator[Sentence]:
    """Yield the first lines of the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node)):
            yield Sentence(node.body[0].lineno, docstring.split("\n", 1)[0])


def counted(roots: Iterable[Path]) -> dict[str, Count]:
    """Return the count of each kind in BARS, for files and for directories with all that is below them."""
    counts = {kind: Count() for kind in BARS}
    for path in (path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*.*")))):
        if path.suffix == ".py":
            kind, judge, read = "docstrings", is_odd_docstring, first_lines_of_module
        elif path.suffix == ".md":
            kind, judge, read = "decisions" if path.parent.name == "adr" else "pages", is_odd, sentences_of_page
        else:
            continue
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for sentence in read(path.read_text(encoding="utf-8")):
            counts[kind].sentences += 1
            if judge(sentence.text):
                counts[kind].odd.append(f"{name}:{sentence.line}: {sentence.text}")
    return counts


def beyond_bars(counts: dict[str, Count], bars: dict[str, int] = BARS) -> list[str]:
    """Return the kinds that have more odd sentences than their bar."""
    return [kind for kind, count in counts.items() if count.of_1000 > bars[kind]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the odd sentences and their counts. Returns: the exit status, 1 if the project passes a bar."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.sentences", description=_first_line(__doc__))
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="instead of the whole project")
    parser.add_argument("--count", action="store_true", help="list the sentences only of kinds that pass their bar")
    given = parser.parse_args(arguments)
    for path in given.paths:
        if not path.exists():
            parser.error(f"{path} does not exist")
    counts = counted(given.paths or [ROOT / name for name in PROJECT])
    broken = [] if given.paths else beyond_bars(counts)  # one page has too few sentences for a share of 1 000
    for kind in broken if given.count else counts:
        print(*counts[kind].odd, sep="\n", end="\n" if counts[kind].odd else "")
    shares = (f"{kind} {count.of_1000:.0f}" for kind, count in counts.items() if count.sentences)
    print("odd sentences of 1 000:", ", ".join(shares))
    for kind in broken:
        print(f"{kind}: more than {BARS[kind]} of 1 000 sentences are odd: {REMEDY}", file=sys.stderr)
    return 1 if broken else 0


def _lines_of(found: re.Match[str]) -> str:
    """Return the line ends of a text that is left out: the lines after it keep their numbers."""
    return "\n" * found[0].count("\n")


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]


if __name__ == "__main__":
    raise SystemExit(main())
