"""Figures on pages come from result files: `python -m bench.quotes` writes them, and nothing else that a machine can
have measured stands on a page.

Decisions are left out: their figures are those of the day. So are code blocks without rates: they show what a command
takes. A code block with rates shows what a command printed, and is the one of a result page.
"""

# ruff: noqa: RUF001 - the pages write products with a multiplication sign

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import pytest

from bench import quotes
from tests.support.rules import ROOT, enough, hold

NUMBER = r"\d+(?: \d{3})+|\d+(?:,\d{3})+|\d+(?:\.\d+)?"
UNIT = (
    r"[kMG]?/s\b| million/s| M/s\b| [A-Za-z]+/s\b| a second\b| µs| ms| s\b| minutes| [KMG]iB| [kKMG]B\b| bytes"
    r"| ?%| ?×| times| of a core"
)
FIGURE = re.compile(rf"(?<![\w.,/])(?P<number>{NUMBER})(?P<unit>{UNIT})")
RANGE = re.compile(rf"(?<![\w.,/])(?P<number>{NUMBER}) to (?=(?:{NUMBER})(?P<unit>{UNIT}))")
RATE = re.compile(r"/s$|a second$")
RESULT = re.compile(r"\]\([^)]*bench/results/(?P<page>[\w-]+\.md)(#[\w-]+)?\)")
MEASURED = re.compile(
    r"\b(?:p\d\d|median|average|measured|longest|shortest|fastest|slowest|faster|slower|took|was|were|costs?|gains?|"
    r"saves?|tak(?:es|ing) (?:about|some))\b"
)
ORIGIN = re.compile(
    r"Machine: cpu .*cores \d.*rocketpy [0-9a-f]{7,}.*date 20\d\d-\d\d-\d\d"
    r"|Measured 20\d\d-\d\d-\d\dT\S+ by rocketpy bench \S+ at [0-9a-f]{7,}.*Machine: cpu .*cores \d"
)
# Pages of one measurement, whose commit, machine or date was not noted: no page quotes them.
HISTORY = {
    "catch-up-in-large-chunks.md": "why large chunks are written by system call",
    "checks-before-and-after.md": "checks that were merged, and the seconds before",
    "codec-workers-and-spinning.md": "why two cores have no codec worker",
    "heartbeat-answers.md": "why answers to repeated heartbeats wait 20 ms",
    "page-cache-and-syncs.md": "why page cache comes in pieces, and files are synced one by one",
    "synchronous-send.md": "wake-ups of a synchronous send, and what did not help",
    "versions-before-the-rooms.md": "a change",
    "versions-before-the-seams.md": "a change",
    "versions-before-tls.md": "a change",
}
FENCED = re.compile(r"^( *)```\w*\n(?P<content>.*?)^\1```", re.MULTILINE | re.DOTALL)
GENERATED = {"configuration.md", "metrics.md", "access-control-codes.md", "failover-reference.md", "progress.md"}
NOT_MEASURED = {  # words around a figure, and what it is instead
    "above 5 000 messages a second in a queue": "a limit that follows from a millisecond's messages",
    "0.2 s more for each candidate": "a constant of the election",
    "later than 1 s before its lease can end": "a constant of the election",
    "rests 50 times as long as the answer took": "a constant of the console",
    "of 512 bytes on average": "how a limit in bytes follows from one in pulls",
    "waits up to 10 s until readers see its rows": "a constant of the writer, MAX_WAIT_S",
}


@attrs.frozen
class Block:
    """A paragraph, list item or row of a table, without the figures that bench.quotes has written."""

    page: str
    text: str

    @property
    def is_linked(self) -> bool:
        return RESULT.search(self.text) is not None

    def offences(self) -> Iterator[str]:
        """Yield the figures that a machine can have measured, and no result is quoted for."""
        text = self.text
        for words in NOT_MEASURED:
            text = text.replace(words, "")
        text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"\[[^]]*\](?=\(\S*bench/results)", "[]", text))
        for sentence in re.split(r"(?<=[.:;|]) ", text):
            for pattern in (FIGURE, RANGE):
                for found in pattern.finditer(sentence):
                    is_rate = RATE.search(found["unit"]) is not None
                    if self.is_linked or is_rate or MEASURED.search(sentence):
                        yield f"{self.page}: {found[0].strip()}: {sentence.strip()[:100]}"


def blocks(page: str, text: str) -> Iterator[Block]:
    text = FENCED.sub("", quotes.without_quotes(page, text))
    for part in re.split(r"\n\s*\n|\n(?=\s*[-|] ?)", text):
        yield Block(page, " ".join(part.split()))


def pages() -> dict[str, str]:
    """The texts of all pages by their place."""
    found = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if "adr" not in path.parts)]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in found if path.name not in GENERATED}
    enough(list(texts), 20, "pages")
    return texts


def result(page: str) -> str:
    return (ROOT / "bench/results" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted({quote.page for quote in quotes.QUOTES}))
def test_quoted_figures_are_those_of_the_results(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert quotes.with_quotes(page, text) == text, "a figure differs from bench/results: run `python -m bench.quotes`"


def test_every_other_figure_is_a_limit_or_a_constant() -> None:
    found = [offence for page, text in pages().items() for block in blocks(page, text) for offence in block.offences()]
    hold(found, "quote a result (bench/quotes.py), or say in NOT_MEASURED what it is")


def shown_output(texts: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield page and content of each code block with rates."""
    for page, text in texts.items():
        for found in FENCED.finditer(text):
            if any(RATE.search(figure["unit"]) for figure in FIGURE.finditer(found["content"])):
                yield page, found["content"]


def without_result(shown: Iterable[tuple[str, str]], results: list[str]) -> list[str]:
    return [f"{page}: {content[:80]}" for page, content in shown if not any(content in text for text in results)]


def test_output_that_pages_show_is_that_of_a_result() -> None:
    texts = [result(path.name) for path in sorted((ROOT / "bench/results").glob("*.md"))]
    lost = without_result(shown_output(pages()), texts)
    hold(lost, "write the output into a page of bench/results by a program, and copy it from there")


def test_output_without_a_result_is_seen() -> None:
    texts = {"page": "Run it:\n\n```\nsend  2 s  610 000/s\n```\n\n```sh\nsleep 3\n```\n"}
    assert without_result(shown_output(texts), ["# A result\n"]) == ["page: send  2 s  610 000/s\n"]
    assert without_result(shown_output(texts), ["```\nsend  2 s  610 000/s\n```\n"]) == []


def test_each_result_says_commit_machine_and_date() -> None:
    """Each page of bench/results does, or is history, which no page quotes."""
    found = enough(sorted((ROOT / "bench/results").glob("*.md")), 25, "results")
    texts = {path.name: " ".join(result(path.name).split()) for path in found}
    nameless = {name for name, text in texts.items() if not ORIGIN.search(text)}
    hold(
        sorted(nameless - HISTORY.keys()),
        "measure it again with its command, whose page says so (bench/report.py, page_head)",
    )
    assert sorted(HISTORY.keys() - nameless) == [], "no history, or no longer there: take it off the list"
    quoted = {name for page in pages() for name in quotes.results_of(page)}
    hold(sorted(quoted & HISTORY.keys()), "quote a result that says where it comes from")


def test_history_stands_apart_from_results() -> None:
    """benchmarks.md links pages of history under History, and no other result there."""
    text = (ROOT / "docs/understand/benchmarks.md").read_text(encoding="utf-8")
    section = text.partition("\n## History\n")[2].partition("\n## ")[0]
    assert {found["page"] for found in RESULT.finditer(section)} == HISTORY.keys()
    rest = text.replace(section, "")
    assert not {found["page"] for found in RESULT.finditer(rest)} & HISTORY.keys()


def test_exceptions_are_used() -> None:
    text = " ".join(" ".join(text.split()) for text in pages().values())
    assert [words for words in NOT_MEASURED if words not in text] == []


def test_each_quoted_figure_is_held() -> None:
    """Each figure of each page, one after the other, is changed and removed: bench.quotes writes the first again, and
    does not know the page without it."""
    held = 0
    for page in sorted({quote.page for quote in quotes.QUOTES}):
        text = (ROOT / page).read_text(encoding="utf-8")
        for quote in quotes.of(page):
            (found,) = quote.pattern().finditer(text)
            for group in range(1, len(quote.cells) + 1):
                begin, end = found.span(group)
                assert quotes.with_quotes(page, f"{text[:begin]}1{text[begin:]}") == text
                with pytest.raises(LookupError, match="instead of once"):
                    quotes.with_quotes(page, text[:begin] + text[end:])
                held += 1
    assert held > 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sends take 57 µs ([figures](../bench/results/compare.md)).", ["57 µs"]),
        ("It takes 610 000/s, 3 MB/s or 20 000 a second.", ["610 000/s", "3 MB/s", "20 000 a second"]),
        ("It was 3 s, or 4 to 5 ms.", ["3 s", "5 ms", "4 to"]),
        ("A slave costs 5 % of a core.", ["5 %"]),
        ("A timeout of 3 s and 5 ms, and 64 KiB.", []),
        ("The p99 is low. A timeout of 3 s.", []),
    ],
)
def test_a_figure_without_a_source_is_seen(text: str, expected: list[str]) -> None:
    found = [offence for block in blocks("README.md", text) for offence in block.offences()]
    assert [offence.split(": ")[1] for offence in found] == expected


def test_a_result_without_the_cell_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tls.md").write_text(
        "| load | figure |\n|---|---|\n| a | 1,234.5 s |\n| a b | 2,000 |\n\n| a | none |\n"
    )
    monkeypatch.setattr(quotes, "RESULTS", tmp_path)
    assert quotes.Cell("tls.md", ("a",), "figure").text() == "1,234.5 s"
    assert quotes.Cell("tls.md", ("a",), "figure", quotes.significant).text() == "1 200"
    assert quotes.Cell("tls.md", ("a",), "figure", is_longest=True).text() == "2,000"
    for cell in (quotes.Cell("tls.md", ("a",), "other"), quotes.Cell("tls.md", ("c",), "figure")):
        with pytest.raises(LookupError, match=r"bench/results/tls\.md has no row"):
            cell.text()
