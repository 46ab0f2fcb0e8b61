"""docs/understand/benchmarks.md: it leads to all result pages and names each bar that one of them says is missed."""

from __future__ import annotations

import re
from collections import Counter

from bench.report import PAGE_WIDTH, page_head
from tests.support.doc_links import links
from tests.support.rules import ROOT, enough, hold

PAGE = ROOT / "docs/understand/benchmarks.md"
RESULTS = ROOT / "bench" / "results"
ROW = re.compile(
    r"^\| \[(?P<what>[^]]+)\]\(\.\./\.\./bench/results/(?P<page>[\w-]+\.md)\)[^|]* \| "
    r"(?P<figure>-?[\d., ]*\d)(?P<unit>\S?) \| "
    r"(?P<bar>[≤≥][\d.]+)(?P=unit) \*missed\* \|$"
)


def missed() -> list[re.Match[str]]:
    """The rows of the page's last table; every one must have the form of ROW."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## Missed bars\n")
    found = [ROW.match(line) for line in section.splitlines() if line.startswith("|")][2:]
    assert found and None not in found, "| [scenario](result page) | figure | bar *missed* |"
    return [row for row in found if row is not None]


def test_every_page_of_results_is_linked() -> None:
    linked = {link.path for link in links(PAGE)}
    pages = enough(sorted(RESULTS.glob("*.md")), 14, "pages of results")
    hold((page.name for page in pages if page not in linked), "link the page from docs/understand/benchmarks.md")


def test_figures_are_those_of_the_results() -> None:
    for row in missed():
        text = (RESULTS / row["page"]).read_text(encoding="utf-8")
        numbers = set(re.findall(r"-?\d(?:[\d.,]|(?<=\d) (?=\d{3}\b))*(?<=\d)", text))
        assert row["figure"] in numbers, f"{row['what']}: take the figure from {row['page']}"
        figure, bar = float(re.sub("[, ]", "", row["figure"])), float(row["bar"][1:])
        assert figure > bar if row["bar"][0] == "≤" else figure < bar, f"{row['what']}: the bar is met"


def test_missed_bars_of_the_results_are_named() -> None:
    """As many as each result page says."""
    texts = ((page.name, page.read_text(encoding="utf-8")) for page in sorted(RESULTS.glob("*.md")))
    counts = {name: len(re.findall(r"^\|.*\| (?:FAIL|missed) \|", text, re.MULTILINE)) for name, text in texts}
    named = Counter(row["page"] for row in missed())
    assert {name: count for name, count in counts.items() if count} == dict(named)


def test_the_head_of_a_page_of_results() -> None:
    head = page_head("Filters", "bench.filters")
    assert head.startswith("# Filters\n\nWritten by `python -m bench.filters")
    (target,) = re.findall(r"\]\(([^)]+)\)", head)
    assert (RESULTS / target).resolve() == ROOT / "bench" / "README.md"
    assert all(len(line) <= PAGE_WIDTH for line in head.partition("Machine:")[2].splitlines())
