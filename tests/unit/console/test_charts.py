from __future__ import annotations

import hashlib
import html
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rocketpy import console
from rocketpy.console.charts import Line, chart, sparkline
from rocketpy.console.history import HOUR_MS, STEP_MS, History
from rocketpy.console.rendering import duration, number, rate
from tests.support.cases import cases
from tests.support.rules import ROOT

MARKUP = "</table></figure><script>alert(1)</script>\"'&"
UPLOT = Path(console.__file__).parent / "static/vendor/uplot"
STEP_S = STEP_MS // 1000


def history(*values: float) -> History:
    made = History()
    for n, value in enumerate(values):
        made.add(HOUR_MS + n * STEP_MS, value)
    return made


class Read(HTMLParser):
    """The elements, texts of cells, and numbers of a chart, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.cells: list[str] = []
        self.label = ""
        self.numbers: dict[str, Any] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)
        given = dict(attrs)
        if "data-chart" in given:
            self.label, self.numbers = given["aria-label"], json.loads(given["data-chart"])

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_a_chart_has_its_numbers_and_a_table_of_them() -> None:
    now_ms = HOUR_MS + 2 * STEP_MS
    read = Read(chart("Messages", [Line("in", history(2, 7.12345, 5)), Line("out", history(3))], now_ms, rate))
    assert read.numbers["lines"] == [
        [[600 - 2 * STEP_S, 600 - STEP_S, 600], [2, 7.123, 5]],
        [[600 - 2 * STEP_S], [3]],
    ]
    assert read.cells == [
        *("Last 10 min", "newest", "lowest", "highest"),
        *("in", "5.0", "2.0", "7.1"),
        *("out", "3.0", "3.0", "3.0"),
    ]


@cases("minutes, span", [(1, 10), (11, 30), (31, 60), (600, 60)])
def test_a_chart_begins_with_its_figures_within_the_hour(minutes: int, span: int) -> None:
    figure = History()
    for n in range(minutes):
        figure.add(HOUR_MS + n * 60_000, n)
    read = Read(chart("c", [Line("a", figure)], HOUR_MS + minutes * 60_000, number))
    assert read.numbers["end"] - read.numbers["begin"] == span * 60
    assert read.numbers["lines"][0][0][-1] == (span - 1) * 60
    assert f"Last {span} min" in read.cells


def test_times_are_those_of_the_zone_of_the_console() -> None:
    now_ms = 1_800_000_000_000.0
    shown = time.strftime("%H:%M:%S", time.localtime(now_ms / 1000))
    end = Read(chart("c", [], now_ms, number)).numbers["end"]
    assert time.strftime("%H:%M:%S", time.gmtime(end)) == shown


def test_a_gap_breaks_the_line_of_a_figure_that_comes_often() -> None:
    figure = history(*range(100))
    figure.add(HOUR_MS + 200 * STEP_MS, 1)
    seconds, values = Read(chart("c", [Line("a", figure)], HOUR_MS + 200 * STEP_MS, str)).numbers["lines"][0]
    assert values == [*range(100), None, 1]
    assert seconds == sorted(set(seconds))


def test_no_gap_breaks_the_line_of_a_figure_that_comes_rarely() -> None:
    figure = History()
    for n in range(4):
        figure.add(HOUR_MS + n * 10 * 60_000, n)
    assert Read(sparkline("s", figure, 2 * HOUR_MS - 1, number)).numbers["lines"][0][1] == [0, 1, 2, 3]


def test_a_figure_without_points() -> None:
    read = Read(chart("c", [Line("a", History())], HOUR_MS, duration, "ms"))
    assert read.numbers["lines"] == [[[], []]]
    assert read.cells[-4:] == ["a", "-", "-", "-"]
    assert sparkline("s", History(), HOUR_MS, number) == ""


def test_a_sparkline_is_the_range_of_its_values_without_scripts() -> None:
    read = Read(sparkline("Messages in", history(4, 1, 2), HOUR_MS + 3 * STEP_MS, number))
    assert (read.label, read.cells) == ("Messages in, last hour: 1 to 4", ["1 to 4"])
    assert read.numbers["lines"][0][1] == [4, 1, 2]


def test_names_with_markup_stay_text() -> None:
    read = Read(chart(MARKUP, [Line(MARKUP, history(1, 2))], 2 * HOUR_MS, lambda value: MARKUP))
    assert read.label == MARKUP
    assert read.names == {"figure", "table", "thead", "tbody", "tr", "th", "td", "span"}
    assert "".join(read.cells).count(MARKUP) == 4
    small = sparkline(MARKUP, history(1), 2 * HOUR_MS, lambda value: MARKUP)
    assert Read(small).names == {"span"}
    assert html.unescape(small).count(MARKUP) == 5


@cases("figure", ["inf", "-inf", "nan", "1e300"])
def test_a_figure_that_no_axis_holds_is_left_out(figure: str) -> None:
    """A broker tells figures as texts, and JSON has no `inf`: browsers would read none of the numbers."""
    read = Read(chart("c", [Line("a", history(2, float(figure)))], HOUR_MS + STEP_MS, str))
    assert read.numbers["lines"][0][1] == [2]


def test_uplot_is_the_copy_that_its_page_names() -> None:
    page = (UPLOT / "README.md").read_text()
    sums = {name: digest for digest, name in re.findall(r"^([0-9a-f]{64})  (\S+)$", page, re.MULTILINE)}
    files = [path for path in UPLOT.iterdir() if path.name != "README.md"]
    assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (version,) = re.findall(r"^# uPlot (\S+)$", page, re.MULTILINE)
    assert f"(v{version})" in (UPLOT / "uPlot.iife.min.js").read_text()[:100]
    for place in ("NOTICE", "deploy/debian/copyright"):
        assert f"uPlot {version}" in (ROOT / place).read_text(), place
