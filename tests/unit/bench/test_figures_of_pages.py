"""Figures on pages come from result files: a figure beside a link to bench/results is on that page, a rate has a link.

Decisions are left out: their figures are those of the day. So are code blocks: they show what a command prints, or
takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from bench import readme
from tests.support.rules import ROOT, enough, hold

NUMBER = r"\d+(?: \d{3})+|\d+(?:,\d{3})+|\d+(?:\.\d+)?"
FIGURE = re.compile(
    rf"(?<![\w.,/])(?P<number>{NUMBER})(?P<unit> million/s| M/s|/s| [a-z]+/s| a second| µs| ms| s\b| MiB)"
)
RANGE = re.compile(rf"(?<![\w.,/])(?P<number>{NUMBER}) to (?={NUMBER} (?P<unit>µs|ms|s\b|MiB))")
SCALES = (1, 1e-3, 1e3, 1e-6)  # a page of results has µs and messages; other pages also ms, s, million
RATES = ("/s", "a second")
RESULT = re.compile(r"\]\([^)]*bench/results/(?P<page>[\w-]+\.md)\)")
ORIGIN = re.compile(r"Machine: cpu .*cores \d.*rocketpy [0-9a-f]{7,}.*date 20\d\d-\d\d-\d\d")
FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
GENERATED = {"configuration.md", "metrics.md", "access-control-codes.md", "failover-reference.md", "progress.md"}
NOT_MEASURED = {  # the words before or after a figure, and what it is instead
    "above 5 000 messages a second in a queue": "a limit that follows from a millisecond's messages",
    "aims of 0.3 s, 45 MiB": "bars of an issue; the link has the figures beside them",
    "of 10 000 sends/s was": "the load, not its result",
    "0.2 s more for each candidate": "a constant of the election",
}


@attrs.frozen
class Block:
    """A paragraph, list item or row of a table."""

    page: Path
    text: str

    @property
    def results(self) -> list[str]:
        return [found["page"] for found in RESULT.finditer(self.text)]

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield the numbers and units that a machine can have measured."""
        text = self.text
        for words in NOT_MEASURED:
            text = text.replace(words, "")
        text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"\[[^]]*\](?=\(\S*bench/results)", "[]", text))
        for pattern in (FIGURE, RANGE):
            for found in pattern.finditer(text):
                yield found["number"], found["unit"].strip()


def blocks(page: Path, text: str) -> Iterator[Block]:
    text = FENCED.sub("", text)
    for part in re.split(r"\n\s*\n|\n(?=\s*[-|] ?)", text):
        yield Block(page, " ".join(part.split()))


def pages() -> list[Path]:
    found = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if "adr" not in path.parts)]
    return enough([path for path in found if path.name not in GENERATED], 20, "pages")


def value(number: str) -> float:
    return float(re.sub("[ ,]", "", number))


def is_rounded_from(shown: str, measured: float) -> bool:
    """Return True if `shown` is `measured` in its own number of significant figures, in one of the units of SCALES."""
    wanted = value(shown)
    if not wanted or not measured:
        return False
    digits = re.sub("[ ,]", "", shown)
    significant = len(digits.replace(".", "").strip("0")) or 1
    step = 10.0 ** (math.floor(math.log10(wanted)) - significant + 1)
    return any(abs(wanted - measured * scale) <= step / 2 * 1.01 for scale in SCALES)


def measured(page: str) -> set[float]:
    text = (ROOT / "bench/results" / page).read_text(encoding="utf-8")
    return {value(number) for number in re.findall(NUMBER, text)}


def offences(block: Block) -> Iterator[str]:
    known = set().union(*map(measured, block.results))
    for number, unit in block.figures():
        if block.results and not any(is_rounded_from(number, one) for one in known):
            yield f"{block.page.name}: {number} {unit} is not in {', '.join(block.results)}: {block.text[:90]}"
        elif not block.results and unit.endswith(RATES):
            yield f"{block.page.name}: {number} {unit} has no link to a result: {block.text[:90]}"


def test_figures_are_in_the_results_that_are_linked() -> None:
    found = [offence for page in pages() for block in blocks(page, page.read_text()) for offence in offences(block)]
    hold(found, "take the figure from a page of bench/results and link it, or say in NOT_MEASURED what it is")


def test_results_that_are_cited_say_commit_machine_and_date() -> None:
    cited = {
        name
        for page in pages()
        for block in blocks(page, page.read_text())
        for name in block.results
        if list(block.figures())
    } | {figure.page for figure in readme.FIGURES}
    texts = {
        name: " ".join((ROOT / "bench/results" / name).read_text().split())
        for name in enough(sorted(cited), 4, "results")
    }
    hold(
        (name for name, text in texts.items() if not ORIGIN.search(text)),
        "measure it again with its command, whose page says so (bench/report.py, page_head)",
    )


def test_exceptions_are_used() -> None:
    text = " ".join(" ".join(page.read_text().split()) for page in pages())
    assert [words for words in NOT_MEASURED if words not in text] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sends take 57 µs ([figures](../bench/results/compare.md)).", []),
        ("Sends take 41 µs ([figures](../bench/results/compare.md)).", ["41"]),
        ("It takes 610 000/s.", ["610 000"]),
        ("It takes 610 000 sends/s, 20 000 a second.", ["610 000", "20 000"]),
        ("A timeout of 3 s and 5 ms.", []),
    ],
)
def test_a_figure_without_a_source_is_seen(text: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "measured", lambda page: {56.96, 1234.0})
    found = [offence for block in blocks(Path("page"), text) for offence in offences(block)]
    assert [
        offence.split(" is ")[0].split(" has ")[0].removeprefix("page: ").rpartition(" ")[0].removesuffix(" a")
        for offence in found
    ] == expected


@pytest.mark.parametrize(
    ("shown", "one", "expected"),
    [
        ("58", 57.6, True),
        ("58", 56.9, False),
        ("2.1", 2141.0, True),
        ("610 000", 607_731.0, True),
        ("1.9", 1_912_345.0, True),
        ("20", 17.3, True),
        ("20", 26.0, False),
    ],
)
def test_rounding(shown: str, one: float, expected: bool) -> None:
    assert is_rounded_from(shown, one) is expected
