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
