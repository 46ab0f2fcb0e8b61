"""Charts: the numbers that uPlot draws in the browser, and a table of them for readers without scripts.

static/charts.js takes the numbers from the attribute `data-chart`; the table is also the legend of the chart. Every
text goes through `Markup.format`, which escapes it. Colours and sizes are those of the style sheet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

import attrs
from markupsafe import Markup

from .history import HOUR_MS, STEP_MS, History

GAP_MS = 12 * STEP_MS  # without a point for so long the line is broken
OFTEN = 60  # points within the hour; figures with fewer come so rarely that nothing breaks their line
COLOURS = 6  # that the style sheet has
SPANS_MS = (600_000, 1_800_000, HOUR_MS)  # of charts

Text = Callable[[float | None], str]
Points = Sequence[tuple[float, float]]  # (time in ms, value)


@attrs.frozen
class Line:
    """A figure of a chart, and its name."""

    label: str
    history: History


def _columns(points: Points, begin_ms: float) -> tuple[list[int], list[float | None]]:
    """Return seconds since `begin_ms`, and values. None breaks the line; points are at least STEP_MS apart."""
    gap_s = (GAP_MS if len(points) > OFTEN else HOUR_MS) // 1000
    seconds: list[int] = []
    values: list[float | None] = []
    for time_ms, value in points:
        second = int(time_ms - begin_ms) // 1000
        if seconds and second - seconds[-1] > gap_s:
            seconds.append(seconds[-1] + 1)
            values.append(None)
        seconds.append(second)
        values.append(int(value) if value.is_integer() else round(value, 3))
    return seconds, values


def _numbers(lines: Sequence[Points], begin_ms: float, now_ms: float, unit: str) -> str:
    """Return the attribute `data-chart`. `begin` and `end` are seconds of the console's time zone, as on all pages."""
    zone_s = time.localtime(now_ms / 1000).tm_gmtoff
    begin, end = (int(ms / 1000) + zone_s for ms in (begin_ms, now_ms))
    columns = [_columns(points, begin_ms) for points in lines]
    return json.dumps({"unit": unit, "begin": begin, "end": end, "lines": columns}, separators=(",", ":"))


def chart(title: str, lines: Sequence[Line], now_ms: float, text: Text, unit: str = "") -> Markup:
    """Return a chart of the last hour, or of the part of it that there are figures of.

    Args:
        text: shows a value in the table.
        unit: of the axis: "ms" for times, empty for counts.
    """
    points = [line.history.points(now_ms) for line in lines]
    oldest_ms = min((each[0][0] for each in points if each), default=now_ms)
    span_ms = next(span for span in SPANS_MS if span >= now_ms - oldest_ms)
    rows = []
    for number, (line, each) in enumerate(zip(lines, points, strict=True)):
        values = [value for _, value in each]
        figures = [text(pick(values)) if values else "-" for pick in (lambda found: found[-1], min, max)]
        rows.append(
            Markup(
                '<tr><th scope="row"><span class="key key-{}">{}</span></th>'
                '<td class="n at">{}</td><td class="n">{}</td><td class="n">{}</td></tr>'
            ).format(number % COLOURS, line.label, *figures)
        )
    return Markup(
        '<figure class="chart" aria-label="{}" data-chart="{}"><table class="legend"><thead><tr><th>Last {} min</th>'
        '<th class="n at">newest</th><th class="n">lowest</th><th class="n">highest</th></tr></thead>'
        "<tbody>{}</tbody></table></figure>"
    ).format(title, _numbers(points, now_ms - span_ms, now_ms, unit), span_ms // 60_000, Markup("").join(rows))


def sparkline(label: str, history: History, now_ms: float, text: Text) -> Markup:
    """Return a small chart without axes, for a row of a table; without scripts it is the range of the values."""
    points = history.points(now_ms)
    if not points:
        return Markup("")
    values = [value for _, value in points]
    extent = f"{text(min(values))} to {text(max(values))}"
    return Markup('<span class="sparkline" role="img" aria-label="{}" data-chart="{}">{}</span>').format(
        f"{label}, last hour: {extent}", _numbers([points], now_ms - HOUR_MS, now_ms, ""), extent
    )
