"""Charts as SVG, made here: pages need no library for them, show them without scripts, and print them.

Every text goes through `Markup.format`, which escapes it. Colours and widths are classes of the style sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from markupsafe import Markup

from .history import HOUR_MS, STEP_MS, History

WIDTH, HEIGHT = 600, 150
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 10, 22
SPARKLINE_WIDTH, SPARKLINE_HEIGHT = 90, 20
GAP_MS = 12 * STEP_MS  # without a point for so long the line is broken
COLOURS = 6  # that the style sheet has
SPANS_MS = (600_000, 1_800_000, HOUR_MS)  # of charts

Text = Callable[[float], str]


@attrs.frozen
class Line:
    """A figure of a chart, and its name."""

    label: str
    history: History


def _pieces(points: Sequence[tuple[float, float]], gap_ms: float) -> list[list[tuple[float, float]]]:
    """Split points where there is a gap."""
    pieces: list[list[tuple[float, float]]] = []
    for point in points:
        if not pieces or point[0] - pieces[-1][-1][0] > gap_ms:
            pieces.append([])
        pieces[-1].append(point)
    return pieces


def _path(points: Sequence[tuple[float, float]], frame: tuple[float, float, float], box: tuple[int, ...]) -> str:
    """Return the attribute `points` of a polyline: `frame` is (begin, time span, top) of the values, `box` (left, top,
    width, height) of the picture. One point is a short line."""
    (begin_ms, span_ms, top), (left, up, width, height) = frame, box
    placed = [
        (left + (time_ms - begin_ms) / span_ms * width, up + height - value / top * height) for time_ms, value in points
    ]
    if len(placed) == 1:
        placed.append((placed[0][0] + 1.5, placed[0][1]))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)


def round_up(value: float) -> float:
    """Return the next number of the form 1, 2 or 5 times a power of ten; 1 for less."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    return next((power * factor for factor in (1, 2, 5, 10) if power * factor >= value), 1.0)


def chart(title: str, lines: Sequence[Line], now_ms: float, text: Text) -> Markup:
    """Return a chart of the last hour, or of the part of it that there are figures of. `text` shows a value."""
    points = [line.history.points(now_ms) for line in lines]
    oldest_ms = min((each[0][0] for each in points if each), default=now_ms)
    span_ms = next(span for span in SPANS_MS if span >= now_ms - oldest_ms)
    begin_ms = now_ms - span_ms
    top = round_up(max((value for each in points for _, value in each), default=0))
    box = (LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM)
    drawn = [
        Markup('<polyline class="line line-{}" points="{}"><title>{}</title></polyline>').format(
            number % COLOURS, _path(piece, (begin_ms, span_ms, top), box), line.label
        )
        for number, (line, each) in enumerate(zip(lines, points, strict=True))
        for piece in _pieces(each, gap_ms=GAP_MS if len(each) > 60 else HOUR_MS)
    ]
    low, middle, right = TOP + box[3], TOP + box[3] / 2, WIDTH - RIGHT
    grid = Markup("").join(
        Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="tick" x="{}" y="{}">{}</text>').format(
            LEFT, right, y, y, LEFT - 6, y + 4, text(value)
        )
        for y, value in ((TOP, top), (middle, top / 2), (low, 0.0))
    )
    ends = Markup(
        '<text class="tick start" x="{}" y="{}">{} min ago</text><text class="tick" x="{}" y="{}">now</text>'
    ).format(LEFT, HEIGHT - 6, span_ms // 60_000, right, HEIGHT - 6)
    last = ", ".join(f"{line.label} {text(line.history.last or 0)}" for line in lines)
    name = f"{title}, last {span_ms // 60_000} min: now {last}" if any(points) else f"{title}: no figures yet"
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>').format(
        WIDTH, HEIGHT, name, grid, ends, Markup("").join(drawn)
    )


def legend(lines: Sequence[Line]) -> Markup:
    """Return the names of the lines beside their colours."""
    return Markup('<p class="legend">{}</p>').format(
        Markup(" ").join(
            Markup('<span class="key key-{}">{}</span>').format(number % COLOURS, line.label)
            for number, line in enumerate(lines)
        )
    )


def sparkline(label: str, history: History, now_ms: float) -> Markup:
    """Return a small chart without axes, for a row of a table."""
    points = history.points(now_ms)
    top = max((value for _, value in points), default=0) or 1.0
    drawn = Markup("").join(
        Markup('<polyline class="line line-0" points="{}"/>').format(
            _path(piece, (now_ms - HOUR_MS, HOUR_MS, top), (0, 1, SPARKLINE_WIDTH, SPARKLINE_HEIGHT - 2))
        )
        for piece in _pieces(points, gap_ms=GAP_MS if len(points) > 60 else HOUR_MS)
    )
    return Markup('<svg class="sparkline" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        SPARKLINE_WIDTH, SPARKLINE_HEIGHT, f"{label}, last hour", drawn
    )
