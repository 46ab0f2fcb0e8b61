"""The pages for operators: the metrics, properties, commands, files and log lines that they name exist, and each
warning or error that a server logs has a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.admin.commands import REGISTRY
from rocketpy.failover.rules.fences import MARGIN_S
from tests.support.doc_examples import Page
from tests.support.rules import ROOT, hold, name_of, nodes_of

PAGES = (
    "run/install.md",
    "run/monitor.md",
    "run/backup-and-repair.md",
    "run/replication.md",
    "run/failover.md",
    "run/automatic-failover.md",
    "understand/known-limits.md",
)
TEXT = "\n".join(Page.read(page).text for page in PAGES)
METRICS = (ROOT / "docs" / "run" / "metrics.md").read_text()
PROPERTIES = (ROOT / "docs" / "run" / "configuration.md").read_text()
SERVER = ("broker", "coordinator", "namesrv", "reactor", "replication", "startup", "store")
LEVELS = {"warning", "error", "exception", "critical"}
LEAST = 20  # characters of a text that says something without its values


def named(pattern: str) -> list[str]:
    """List the names on the pages, each once."""
    found = sorted(set(re.findall(pattern, TEXT)))
    assert len(found) > 3, f"the pages have nothing like {pattern}"
    return found


def test_metrics() -> None:
    missing = (name for name in named(r"\brocketpy_[a-z_]+") if f"`{name}`" not in METRICS)
    hold(missing, "name a metric of docs/run/metrics.md")


def test_properties() -> None:
    """Names with a capital inside are properties, unless they are commands of mqadmin."""
    names = (name for name in named(r"`([a-z]+[A-Z]\w+)(?:=\w+)?`") if name not in REGISTRY)
    hold((name for name in names if f"`{name}`" not in PROPERTIES), "name a property of docs/run/configuration.md")


def test_commands() -> None:
    hold((name for name in named(r"mqadmin (\w+)") if name not in REGISTRY), "name a command that mqadmin has")


def test_files() -> None:
    """N is one of the three hosts of the sample."""
    paths = (path.replace("-N.", "-one.") for path in named(r"\b(?:deploy|docs)/[\w./-]+\w"))
    hold((path for path in paths if not list(ROOT.glob(f"{path}*"))), "name a file that is there")


def test_the_margin_of_the_lease_fence() -> None:
    assert f"no send later than {MARGIN_S:g} s before its lease" in " ".join(Page.read("run/failover.md").text.split())


# --- log lines --------------------------------------------------------------------------------------------------------


def literals() -> str:
    """All source text, the parts of a string that is split over lines joined."""
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "rocketpy").rglob("*.py"))]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))


def log_lines() -> Iterator[str]:
    """Yield the lines in the first cells of the tables."""
    pages = {"run/monitor.md": "Log lines", "run/automatic-failover.md": "Disasters"}
    sections = (Page.read(page).section(heading) for page, heading in pages.items())
    for cell in re.findall(r"^\| (`[^|]+`) \|", "\n".join(sections), re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", cell)


def pieces(line: str) -> list[str]:
    """Return the fixed texts of a line: N, NAME, ADDRESS and ... stand for values, which may be texts of their own."""
    return [piece.strip() for piece in re.split(r"\bN\b|\bNAME\b|\bADDRESS\b|\.\.\.|: ", line) if piece.strip()]


LOG_LINES = list(log_lines())
SOURCE = literals()


@pytest.mark.parametrize("line", LOG_LINES)
def test_log_lines(line: str) -> None:
    assert len(LOG_LINES) > 10 and [piece for piece in pieces(line) if piece not in SOURCE] == []


def texts_of(node: ast.expr) -> Iterator[str]:
    """Yield the string that an argument is, or both if it depends; a value within it is shown as %s."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "%s" for part in node.values)


def logged() -> Iterator[tuple[Path, str]]:
    """Yield the constant texts that servers log at WARNING and above, and those of supervisor and guardian."""
    for path in (file for folder in SERVER for file in sorted((ROOT / "rocketpy" / folder).rglob("*.py"))):
        for call in nodes_of(path):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                continue
            if call.func.attr in LEVELS or ast.unparse(call.func) == "self.log":
                yield from ((path, text) for text in texts_of(call.args[0]) if len(re.sub("%[a-z]", "", text)) > LEAST)


def test_each_warning_has_a_row() -> None:
    found = list(logged())
    assert len(found) > 80, "the rule finds no log lines"
    hold(
        (
            f"{name_of(path)}: {text}"
            for path, text in found
            if not any(all(piece in text for piece in pieces(line)) for line in LOG_LINES)
        ),
        "add the line to a table in docs/run/monitor.md, Log lines, with its remedy",
    )
