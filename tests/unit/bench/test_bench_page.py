"""docs/understand/benchmarks.md: each figure is on a result page that its section links to, and meets its bar."""

from __future__ import annotations

import re

import pytest

from bench.report import PAGE_WIDTH, page_head
from tests.support.doc_links import links
from tests.support.rules import ROOT, enough, hold

PAGE = ROOT / "docs/understand/benchmarks.md"
RESULTS = ROOT / "bench" / "results"
ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<figure>-?[\d., ]*\d)(?P<unit>\S?) \| "
    r"(?P<bar>[≤≥][\d.]+)(?P=unit)(?P<missed> \*missed\*)? \|$"
)
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def rows(section: str) -> list[re.Match[str]]:
    """The rows of a section's table; every one must have the form of ROW."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")][2:]
    found = [ROW.match(line) for line in lines]
    assert None not in found, f"{section}: | scenario | figure | bar |, or bar *missed*"
    return [row for row in found if row is not None]


def test_every_page_of_results_is_linked() -> None:
    linked = {link.path for link in links(PAGE)}
    pages = enough(sorted(RESULTS.glob("*.md")), 14, "pages of results")
    hold((page.name for page in pages if page not in linked), "link the page from docs/understand/benchmarks.md")


@pytest.mark.parametrize("section", SECTIONS)
def test_figures_are_those_of_the_results(section: str) -> None:
    names = re.findall(r"\(\.\./\.\./bench/results/([\w-]+\.md)\)", SECTIONS[section])
    text = "\n".join((RESULTS / name).read_text(encoding="utf-8") for name in names)
    numbers = set(re.findall(r"-?\d(?:[\d.,]|(?<=\d) (?=\d{3}\b))*(?<=\d)", text))
    missing = [row["what"] for row in rows(section) if row["figure"] not in numbers]
    assert missing == [], f"take the figures from {names}"


@pytest.mark.parametrize("section", SECTIONS)
def test_a_bar_is_met_or_not_as_the_page_says(section: str) -> None:
    for row in rows(section):
        figure, bar = float(re.sub("[, ]", "", row["figure"])), float(row["bar"][1:])
        is_met = figure <= bar if row["bar"][0] == "≤" else figure >= bar
        assert is_met == (row["missed"] is None), row["what"]


def test_the_head_of_a_page_of_results() -> None:
    head = page_head("Filters", "bench.filters")
    assert head.startswith("# Filters\n\nWritten by `python -m bench.filters")
    (target,) = re.findall(r"\]\(([^)]+)\)", head)
    assert (RESULTS / target).resolve() == ROOT / "bench" / "README.md"
    assert all(len(line) <= PAGE_WIDTH for line in head.partition("Machine:")[2].splitlines())
