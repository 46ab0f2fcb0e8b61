"""docs/operations.md: the metrics, properties, commands and files that it names exist."""

from __future__ import annotations

import re

import pytest

from rocketpy.admin.commands import REGISTRY
from tests.support.doc_examples import ROOT, Page

TEXT = Page.read("operations.md").text
METRICS = (ROOT / "docs" / "metrics.md").read_text()
PROPERTIES = (ROOT / "docs" / "configuration.md").read_text()


@pytest.mark.parametrize("metric", sorted(set(re.findall(r"\brocketpy_[a-z_]+", TEXT))))
def test_metrics(metric: str) -> None:
    assert f"`{metric}`" in METRICS


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z]+[A-Z]\w+)(?:=\w+)?`", TEXT))))
def test_properties(name: str) -> None:
    assert f"`{name}`" in PROPERTIES


@pytest.mark.parametrize("command", sorted(set(re.findall(r"mqadmin (\w+)", TEXT))))
def test_commands(command: str) -> None:
    assert command in REGISTRY


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\b(?:deploy|docs)/[\w./-]+\w", TEXT))))
def test_files(path: str) -> None:
    assert (ROOT / path).exists() or list(ROOT.glob(f"{path}*"))


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
