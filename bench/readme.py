"""`python -m bench.readme`: writes the table of figures in README.md from the pages of bench/results.

A row names the page, the scenario and the metric; the value is that of the first row of the page with both names, so a
run that is described below the newest one is never quoted.
"""

# ruff: noqa: RUF001 - the pages write products with a multiplication sign

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import attrs
import click

from .brokers import ROOT
from .report import markdown_table

RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- figures: python -m bench.readme -->", "<!-- end of figures -->"


def significant(value: float) -> str:
    """Two significant figures, thousands apart."""
    rounded = float(f"{value:.2g}")
    if rounded >= 1000:
        return f"{rounded:,.0f}".replace(",", " ")
    decimals = 0 if rounded >= 10 else 1 if rounded >= 1 else 2
    return f"{rounded:.{decimals}f}"


def seconds(value: float) -> str:
    return f"{significant(value)} s"


def mebibytes(value: float) -> str:
    return f"{significant(value)} MiB"


def rate(value: float) -> str:
    """Show a figure per second."""
    return f"{significant(value / 1e6)} M/s" if value >= 1e6 else f"{significant(value)}/s"


def microseconds(value: float) -> str:
    return f"{significant(value / 1000)} ms" if value >= 1000 else f"{significant(value)} µs"


def ratio(value: float) -> str:
    """Show a ratio, a small one as a fraction: 1/8 is read faster than 0.12."""
    return f"1/{1 / value:.0f}" if value <= 1 / 3 else f"{significant(value)} ×"


@attrs.frozen
class Figure:
    """A row of the table in README.md. `text`: with `{metric}` for a figure of the same scenario on the same page."""

    text: str
    page: str  # of bench/results
    scenario: str
    metric: str
    unit: Callable[[float], str]


FIGURES = (
    Figure("start of both, up to the first acknowledged send", "compare.md", "boot", "boot_s", seconds),
    Figure(
        "restart after kill -9, log of {log_gib} GiB, {queues} queues", "store-bars.md", "restart", "restart_s", seconds
    ),
    Figure("memory of name server and broker, idle (PSS)", "compare.md", "memory-idle", "pss_mib", mebibytes),
    Figure("send 1 KiB, 64 connections × 64 in flight", "compare.md", "send-1k-64x64", "messages_per_s", rate),
    Figure("broker CPU per message at 64 × 64", "compare.md", "send-1k-64x64", "cpu_us_per_message", microseconds),
    Figure("send 1 KiB, one at a time, p50", "compare.md", "send-1k-1x1", "p50_us", microseconds),
    Figure(
        "send at a steady 10 000/s for a minute, full page cache, p99.9",
        "store-bars-full-page-cache.md",
        "open-loop",
        "p999_us",
        microseconds,
    ),
    Figure("sync flush, 64 connections, one at a time each", "store-bars.md", "sync-flush", "messages_per_s", rate),
    Figure("pull by 32 × 1 KiB, 16 connections × 4", "compare.md", "pull-32x1k-16x4", "messages_per_s", rate),
    Figure("pull by 32 × 1 KiB, one at a time", "compare.md", "pull-32x1k-1x1", "messages_per_s", rate),
    Figure(
        "transactions, from half message to consumer, 16 connections, one at a time each",
        "transactions.md",
        "16 connections, 1 in flight",
        "per_s",
        rate,
    ),
)


def read(figure: Figure) -> tuple[float, float]:
    """Return rocketpy's and Java's figure.

    Raises:
        LookupError: the page has no row with this scenario and metric.
    """
    for line in (RESULTS / figure.page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if cells[:2] == [figure.scenario, figure.metric]:
            rocketpy, java = (float(cell.replace(",", "")) for cell in cells[2:4])
            return rocketpy, java
    raise LookupError(f"bench/results/{figure.page} has no row {figure.scenario} | {figure.metric}")


def label(figure: Figure) -> str:
    """Return the text of a figure, with rocketpy's values of the metrics that it names.

    Raises:
        LookupError: the page has no such row.
    """

    def value_of(metric: re.Match[str]) -> str:
        return f"{read(attrs.evolve(figure, metric=metric[1]))[0]:,g}".replace(",", " ")

    return re.sub(r"\{(\w+)\}", value_of, figure.text)


def table() -> str:
    def cells(figure: Figure) -> tuple[str, ...]:
        rocketpy, java = read(figure)
        link = f"[{label(figure)}](bench/results/{figure.page})"
        return link, figure.unit(rocketpy), figure.unit(java), ratio(rocketpy / java)

    return markdown_table(("", "rocketpy", "Java", ""), map(cells, FIGURES))


def with_table(readme: str) -> str:
    """Return the text of README.md with the figures of today's results.

    Raises:
        LookupError: the marks of the table are missing, or a figure.
    """
    marked = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if not marked.search(readme):
        raise LookupError(f"README.md has no table between {BEGIN} and {END}")
    return marked.sub(lambda _: f"{BEGIN}\n\n{table()}\n\n{END}", readme)


@click.command()
@click.option("--file", type=click.Path(path_type=Path), default=README, help="The page with the marks of the table.")
def main(file: Path) -> None:
    """Write the table of figures in README.md from the pages of bench/results."""
    try:
        file.write_text(with_table(file.read_text()))
    except LookupError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
