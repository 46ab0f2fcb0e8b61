"""Rules about the text of files: each is one test that lists every place that breaks it, and says what to do.

A test for each pair of rule and file would be ten thousand tests, most of whose time is pytest's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
ROOT = Path(__file__).parents[2]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module, walked once for all rules."""
    return tuple(ast.walk(tree_of(path)))


def c_files() -> list[Path]:
    """Return the files of the C core, with what a build has made."""
    found = sorted((ROOT / "csrc").rglob("*.[ch]"))
    assert len(found) > 100, "the rules find no C"
    return found


def name_of(path: Path) -> str:
    """The path from the root of the repository."""
    return str(path.relative_to(ROOT))


def enough(found: Iterable[Item], least: int, what: str) -> list[Item]:
    """Return what a rule is about; fail if it is less than ever, because a reader that finds nothing holds nothing."""
    items = list(found)
    assert len(items) >= least, f"the rule found {len(items)} {what}, of at least {least}: is its pattern still right?"
    return items


def hold(offenders: Iterable[str], remedy: str) -> None:
    """Hold a rule: fail with every place that breaks it, one to a line, under the remedy."""
    found = list(offenders)
    places = "1 place" if len(found) == 1 else f"{len(found)} places"
    assert not found, "\n".join([f"rule broken in {places}: {remedy}", *(f"  {place}" for place in found)])
