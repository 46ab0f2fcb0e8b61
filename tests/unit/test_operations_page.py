"""docs/operations.md: the metrics, properties, commands and files that it names exist."""

from __future__ import annotations

import re

import pytest

from rocketpy.admin.commands import REGISTRY
from tests.support.doc_examples import Page
from tests.support.rules import ROOT, hold

TEXT = Page.read("operations.md").text
METRICS = (ROOT / "docs" / "metrics.md").read_text()
PROPERTIES = (ROOT / "docs" / "configuration.md").read_text()


def named(pattern: str) -> list[str]:
    """What the page names, each once."""
    found = sorted(set(re.findall(pattern, TEXT)))
    assert len(found) > 3, f"the page has nothing like {pattern}"
    return found


def test_metrics() -> None:
    missing = (name for name in named(r"\brocketpy_[a-z_]+") if f"`{name}`" not in METRICS)
    hold(missing, "name a metric of docs/metrics.md")


def test_properties() -> None:
    missing = (name for name in named(r"`([a-z]+[A-Z]\w+)(?:=\w+)?`") if f"`{name}`" not in PROPERTIES)
    hold(missing, "name a property of docs/configuration.md")


def test_commands() -> None:
    hold((name for name in named(r"mqadmin (\w+)") if name not in REGISTRY), "name a command that mqadmin has")


def test_files() -> None:
    paths = named(r"\b(?:deploy|docs)/[\w./-]+\w")
    hold((path for path in paths if not list(ROOT.glob(f"{path}*"))), "name a file that is there")


def literals() -> str:
    """All source text, the parts of a string that is split over lines joined."""
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "rocketpy").rglob("*.py"))]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))


LOG_LINES = re.findall(
    r"^\| `([^`]+)` \|", Page.read("operations.md").section("What to do when the log says"), re.MULTILINE
)
SOURCE = literals()


@pytest.mark.parametrize("line", LOG_LINES)
def test_log_lines(line: str) -> None:
    """N, NAME, ADDRESS and ... stand for what the log line says there; a reason may be a string of its own."""
    pieces = [piece.strip() for piece in re.split(r"\bN\b|\bNAME\b|\bADDRESS\b|\.\.\.|: ", line)]
    assert len(LOG_LINES) > 10 and [piece for piece in pieces if piece not in SOURCE] == []
