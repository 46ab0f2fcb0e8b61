"""`python -m bench.quotes`: writes each figure that a page quotes from the result that has it.

A quote is a piece of a page with its figures left out, and the cell of bench/results of each. So a new result changes
the pages, and a figure that no result has cannot stay: tests/unit/bench/test_figures_of_pages.py. The table of
README.md is that of bench.readme.
"""

# ruff: noqa: RUF001 - the pages write products with a multiplication sign

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import click

from . import readme, report
from .brokers import ROOT
from .readme import README, RESULTS, significant

BENCHMARKS = "docs/understand/benchmarks.md"
FIRST_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
GAP = r"(-?\d[^|\n]{0,24}?)"  # a figure, or what stands in its place


@attrs.frozen
class Cell:
    """A figure of a result page: its row by the first cells, its column by the heading.

    Of several such rows the first one counts, of a section if one is named.
    """

    page: str
    row: tuple[str, ...]
    column: str
    form: Callable[[float], str] | None = None  # None: as it stands there
    is_longest: bool = False  # the largest figure of all rows whose first cell begins so
    section: str = ""  # heading above the table

    def text(self) -> str:
        """Return the figure as a page quotes it. Raises: LookupError: the page has no such cell."""
        found = list(self._found())
        if not found:
            raise LookupError(f"bench/results/{self.page} has no row {' | '.join(self.row)} with {self.column}")
        text = max(found, key=first_number) if self.is_longest else found[0]
        return text if self.form is None else self.form(first_number(text))

    def _found(self) -> Iterator[str]:
        headings: list[str] = []
        section = ""
        for line in (RESULTS / self.page).read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" | ")]
            if not line.startswith("|"):
                headings, section = [], line.removeprefix("## ") if line.startswith("## ") else section
            elif not headings:
                headings = cells
            elif self.section in ("", section) and self.column in headings and self._is_meant(cells):
                yield cells[headings.index(self.column)]

    def _is_meant(self, cells: list[str]) -> bool:
        return cells[0].startswith(self.row[0]) if self.is_longest else tuple(cells[: len(self.row)]) == self.row


def first_number(text: str) -> float:
    """Raises: LookupError: there is none."""
    found = FIRST_NUMBER.search(text)
    if found is None:
        raise LookupError(f"no number in {text!r}")
    return float(found[0].replace(",", ""))


@attrs.frozen
class Quote:
    """Words of a page, with `{}` for each figure, and the cells of these figures."""

    page: str
    words: str
    cells: tuple[Cell, ...]

    def pattern(self) -> re.Pattern[str]:
        """Return what finds the words, however the lines of the page are broken, with a group for each figure."""
        parts = (r"\s+".join(map(re.escape, part.split(" "))) for part in self.words.split("{}"))
        return re.compile(GAP.join(parts))

    def written(self, text: str) -> str:
        """Return the page's text with the figures of the results.

        Raises:
            LookupError: the page does not have the words once, or a result has no such cell.
        """
        found = list(self.pattern().finditer(text))
        if len(found) != 1:
            raise LookupError(f"{self.page} has {len(found)} times, instead of once: {self.words}")
        for group in range(len(self.cells), 0, -1):
            begin, end = found[0].span(group)
            text = text[:begin] + self.cells[group - 1].text() + text[end:]
        return text


def milliseconds(value: float) -> str:
    """Show a figure in µs as ms."""
    return f"{significant(value / 1000)} ms"


def missed(what: str, bar: str, cell: Cell, *, unit: str = "", remark: str = "", more: tuple[Cell, ...] = ()) -> Quote:
    """Return a row of the table of missed bars."""
    label = f"[{what}](../../bench/results/{cell.page}){remark}"
    return Quote(BENCHMARKS, f"| {label} | {{}}{unit} | {bar}{unit} *missed* |", (*more, cell))


def of_spark(what: str, bar: str, *row: str, unit: str = "", page: str = "spark-bars.md") -> Quote:
    """Return a missed bar of `bench.spark_bars`."""
    return missed(f"Spark, {what}", bar, Cell(page, row, "median"), unit=unit)


def of_xeon(what: str, bar: str, *row: str, unit: str = "") -> Quote:
    """Return a missed bar of the run on a second machine."""
    return of_spark(f"{what}, Xeon", bar, *row, unit=unit, page="spark-bars-xeon.md")


QUOTES = (
    Quote(
        "README.md",
        "where C gains {} to {} times over Python ([measured](bench/results/core-gain.md)",
        (
            Cell("core-gain.md", ("timers: take, order, give",), "gain", significant),
            Cell("core-gain.md", ("header of a send, binary",), "gain", significant),
        ),
    ),
    Quote(
        "README.md",
        "a million wait in {} MiB, and {} a second are delivered with a p99 of {} ms after their time ([more](",
        (
            Cell("timers.md", ("restart 1000000", "pss_after_mib"), "value", significant),
            Cell("timers.md", ("steady", "accepted_per_s"), "value", significant),
            Cell("timers.md", ("steady", "late_p99_ms"), "value"),
        ),
    ),
    Quote(
        "docs/understand/known-limits.md",
        "p99.9 of 10 000 sends/s was {} there ([figures](../../bench/results/store-bars.md)), {} with a full page "
        "cache ([figures](../../bench/results/store-bars-full-page-cache.md))",
        (
            Cell("store-bars.md", ("open-loop", "p999_us"), "rocketpy", milliseconds),
            Cell("store-bars-full-page-cache.md", ("open-loop", "p999_us"), "rocketpy", milliseconds),
        ),
    ),
    Quote(
        "docs/run/failover.md",
        "{} to {} s with `haLeaseSeconds=6`, {} to {} s with 2 ([figures](../../bench/results/failover.md))",
        (
            Cell("failover.md", ("kill -9 of the master, lease 6 s",), "median", significant),
            Cell("failover.md", ("death of the master's machine, lease 6 s, python by route",), "longest", significant),
            Cell("failover.md", ("kill -9 of the master, lease 2 s",), "median", significant),
            Cell("failover.md", ("death of the master's machine, lease 2 s, python by route",), "longest", significant),
        ),
    ),
    Quote(
        "docs/run/automatic-failover.md",
        "the longest pause was {} ([figures](../../bench/results/failover.md))",
        (Cell("failover.md", ("switch-over,",), "longest", readme.seconds, is_longest=True),),
    ),
    Quote(
        "docs/use/spark-cluster.md",
        "On [two cores](../../bench/results/spark.md), with at most one worker for each core, a task costs "
        "{} to {} ms, a row of 1 KiB (columns `min`) {} to {} µs",
        (
            Cell("spark.md", ("1",), "a task costs a worker (ms)"),
            Cell("spark.md", ("2",), "a task costs a worker (ms)"),
            Cell("spark.md", ("1",), "a row costs a worker (µs)", significant),
            Cell("spark.md", ("2",), "a row costs a worker (µs)", significant),
        ),
    ),
    Quote(
        BENCHMARKS,
        "50 000 idle clients takes {} bytes of the broker (bar: 10 000); "
        "sends that wait for a slave have a rate {} % lower than others (bar: 10 %)",
        (
            Cell("scenarios.md", ("memory of the broker for each idle client",), "value", report.number),
            Cell("scenarios.md", ("cost of synchronous double writes",), "value", report.number),
        ),
    ),
    missed(
        "end-to-end-1k-10000/s, p99",
        "≤0.5",
        Cell("compare.md", ("end-to-end-1k-10000/s", "end_to_end_p99_us"), "ratio"),
        unit="×",
    ),
    missed(
        "restart after kill -9",
        "≤0.05",
        Cell("store-bars.md", ("restart", "restart_s"), "ratio"),
        unit="×",
        remark="; {}× with a full page cache",
        more=(Cell("store-bars-full-page-cache.md", ("restart", "restart_s"), "ratio"),),
    ),
    missed("open-loop, p99.9", "≤0.333", Cell("store-bars.md", ("open-loop", "p999_us"), "ratio"), unit="×"),
    missed("open-loop, maximum", "≤0.5", Cell("store-bars.md", ("open-loop", "max_us"), "ratio"), unit="×"),
    missed(
        "open-loop with a full page cache, maximum",
        "≤0.5",
        Cell("store-bars-full-page-cache.md", ("open-loop", "max_us"), "ratio"),
        unit="×",
    ),
    missed(
        "catch-up, MB/s",
        "≥664.4",
        Cell("replication.md", ("catch-up", "MB/s"), "rocketpy"),
        remark="; bar: a raw copy of the same bytes in that run",
    ),
    missed(
        "idle with everything on, MiB",
        "≤60",
        Cell("idle.md", ("the same: memory (PSS)",), "value", lambda mib: f"{mib:g}"),
        remark=": workers of Python 3.11 copy pages when they count references; "
        "[{} under Python 3.13](../../bench/results/idle-python-313.md)",
        more=(Cell("idle-python-313.md", ("the same: memory (PSS)",), "value", lambda mib: f"{mib:g}"),),
    ),
    missed(
        "import of a consumer, ms",
        "≤150",
        Cell("client.md", ("a consumer",), "ms"),
        remark="; of `rocketpy.client` alone {} ms",
        more=(Cell("client.md", ("rocketpy.client",), "ms"),),
    ),
    missed("import of all of the client, ms", "≤150", Cell("client.md", ("all of it",), "ms")),
    missed(
        "Spark, decode, 100 B, min, rows/s",
        "≥18000000",
        Cell("spark.md", ("100 B, min",), "rows/s"),
        remark=", on a machine with slow memory",
    ),
    missed("the same, all columns", "≥8000000", Cell("spark.md", ("100 B, all",), "rows/s")),
    of_spark("scan of 1 KiB, min, Parquet's time", "≤0.7", "scan", "min, time of Parquet", unit="×"),
    of_spark("scan of 1 KiB, std, Parquet's time", "≤0.8", "scan", "std, time of Parquet", unit="×"),
    of_spark("scan of 1 KiB, all, Parquet's time", "≤0.8", "scan", "all, time of Parquet", unit="×"),
    of_spark("running broker, min, speed of the scan", "≥0.8", "broker", "min, speed of the store scan", unit="×"),
    of_spark("running broker, std, speed of the scan", "≥0.8", "broker", "std, speed of the store scan", unit="×"),
    of_spark("four workers, CPU of one worker", "≤1.25", "cluster", "4 workers, CPU of one worker", unit="×"),
    of_xeon("scan of 100 B, min, rows/s", "≥4000000", "small", "100 B, min"),
    of_xeon("scan of 100 B, std, rows/s", "≥3000000", "small", "100 B, std"),
    of_xeon("archive of 1 KiB, GB/s of log", "≥1.5", "archive", "1 KiB, log"),
    of_xeon("archive of 100 B, rows/s", "≥2500000", "archive", "100 B"),
    of_xeon("running broker, min, speed of the scan", "≥0.8", "broker", "min, speed of the store scan", unit="×"),
    of_xeon("running broker, std, speed of the scan", "≥0.8", "broker", "std, speed of the store scan", unit="×"),
)


def of(page: str) -> Iterator[Quote]:
    return (quote for quote in QUOTES if quote.page == page)


def with_quotes(page: str, text: str) -> str:
    """Return the text of a page with the figures of today's results.

    Raises:
        LookupError: a quote or a cell is missing.
    """
    for quote in of(page):
        text = quote.written(text)
    return readme.with_table(text) if page == README.name else text


def without_quotes(page: str, text: str) -> str:
    """Return the text of a page without what `with_quotes` writes."""
    for quote in of(page):
        text = quote.pattern().sub("", text)
    return re.sub(f"{re.escape(readme.BEGIN)}.*{re.escape(readme.END)}", "", text, flags=re.DOTALL)


def results_of(page: str) -> set[str]:
    """Return the result pages that the figures of a page come from."""
    found = {cell.page for quote in of(page) for cell in quote.cells}
    return found | ({figure.page for figure in readme.FIGURES} if page == README.name else set())


@click.command()
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, help="The checkout whose pages are written.")
def main(root: Path) -> None:
    """Write the figures that pages quote from bench/results, and the table of README.md."""
    for page in sorted({quote.page for quote in QUOTES}):
        path = root / page
        try:
            path.write_text(with_quotes(page, path.read_text(encoding="utf-8")), encoding="utf-8")
        except LookupError as error:
            raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
