"""What the documents of the repository name: links, files, definitions in code, decisions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.support.rules import ROOT

_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_IMAGE = re.compile(r"<(?:img|source)[^>]*\b(?:src|srcset)=\"(?P<target>[^\"]+)\"")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE_PATH = re.compile(r"`((?:csrc|rocketpy|tests|bench|deploy|docs)/[\w/.-]*\w/?|[a-z_]+/[a-z_/]+\.py\b)")
_CODE = frozenset({".py", ".c", ".h"})
_IDENTIFIER = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")


def documents() -> list[Path]:
    """Every page of the repository that people read."""
    folders = ("docs", "csrc", "bench", "deploy", "tests")
    pages = [*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md"))]
    return sorted(pages)


def without_fences(page: Path) -> str:
    """The text of a page without its examples."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


@attrs.frozen
class Link:
    """One relative link of a page."""

    page: Path
    text: str
    target: str

    @property
    def path(self) -> Path:
        return (self.page.parent / self.target.split("#")[0]).resolve() if self.target[0] != "#" else self.page

    @property
    def anchor(self) -> str:
        return self.target.partition("#")[2]

    @property
    def identifier(self) -> str:
        """The name that the target has to define, or nothing: [`name`](../file.py)."""
        found = _IDENTIFIER.fullmatch(self.text)
        return found[1] if found and self.path.suffix in _CODE and found[1] != self.path.name else ""


def links(page: Path) -> Iterator[Link]:
    text = without_fences(page)
    for found in _LINK.finditer(text):
        if "://" not in found["target"] and not found["target"].startswith("mailto:"):
            yield Link(page, found["text"], found["target"])
    for found in _IMAGE.finditer(text):
        if "://" not in found["target"]:
            yield Link(page, "", found["target"])


def code_paths(page: Path) -> list[str]:
    """Files and folders, from the root of the repository, that stand in backticks."""
    return sorted(set(_CODE_PATH.findall(page.read_text(encoding="utf-8"))))


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def defines(path: Path, identifier: str) -> bool:
    """Whether a source file has a definition of that name; in Python also `Class.method`."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return identifier in set(_python_names(ast.parse(text), ""))
    name = re.escape(identifier)
    definitions = (
        rf"^\w[\w\s*]*\b{name}\(",  # a function or its prototype begins its line; a call does not
        rf"^#define {name}\b",
        rf"^(?:}} {name};|(?:typedef )?(?:struct|enum|union) {name}\b)",
        rf"^(?:enum \{{)?\s+{name}\b(?: = [^,]+)?,?(?:\s*/\*.*)?$",
    )
    return any(re.search(definition, text, re.MULTILINE) for definition in definitions)


def _python_names(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + part.name
            if isinstance(part, ast.ClassDef):
                yield from _python_names(part, f"{prefix}{part.name}.")
        elif isinstance(part, ast.Assign | ast.AnnAssign):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))
