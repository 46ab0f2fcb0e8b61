"""Every option of a client has one line in the reference: what it is, its unit, its default."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.rules import ROOT, enough, hold, tree_of

MODULES = ("rocketpy/client/options.py", "rocketpy/client/security.py")
UNIT = re.compile(
    r"\b(seconds|bytes|messages|attempts|retries|sends|queues|handlers|offset|threads|fast)\b", re.IGNORECASE
)
DEFAULT = re.compile(r"\([^)]+\)")
AS_ANOTHER = re.compile(r"As `?[\w.]+`?")


def options() -> Iterator[tuple[str, str, str]]:
    """Yield each option with its type and its text, without the options that another class shares."""
    for module in MODULES:
        for node in tree_of(ROOT / module).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Options"):
                for field, text in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
                    if isinstance(field, ast.AnnAssign):
                        has_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                        said = str(text.value.value) if has_text else ""
                        yield f"{node.name}.{ast.unparse(field.target)}", ast.unparse(field.annotation), said


def test_every_option_has_a_line() -> None:
    found = enough(options(), 60, "options")
    hold((name for name, _, text in found if not text or "\n" in text), "write one line below the option")


def test_the_line_names_the_default() -> None:
    hold(
        (f"{name}: {text}" for name, _, text in options() if not DEFAULT.search(text) and not AS_ANOTHER.match(text)),
        "name the default in parentheses",
    )


def test_the_line_of_a_number_names_its_unit() -> None:
    numbers = enough(((name, text) for name, kind, text in options() if kind in {"int", "float"}), 30, "numbers")
    hold(
        (f"{name}: {text}" for name, text in numbers if not UNIT.search(text)),
        "name the unit: seconds, bytes, messages",
    )
