from __future__ import annotations

from xml.etree import ElementTree

from rocketpy.console.charts import Line, chart, legend, round_up, sparkline
from rocketpy.console.history import HOUR_MS, STEP_MS, History
from tests.support.cases import cases

MARKUP = "</svg><script>alert(1)</script>\"'&"


def history(*values: float) -> History:
    made = History()
    for n, value in enumerate(values):
        made.add(HOUR_MS + n * STEP_MS, value)
    return made


def lines(svg: str) -> list[list[tuple[float, float]]]:
    """The points of each polyline; the text is XML, whatever names it holds."""
    root = ElementTree.fromstring(svg)
    found = []
    for element in root.iter("polyline"):
        pairs = [pair.split(",") for pair in element.attrib["points"].split()]
        found.append([(float(x), float(y)) for x, y in pairs])
    return found


def test_a_chart_goes_up_with_its_values_and_stays_within_its_box() -> None:
    (line,) = lines(chart("c", [Line("a", history(0, 5, 10))], HOUR_MS + 2 * STEP_MS, str))
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert [y for _, y in line] == sorted((y for _, y in line), reverse=True)
    assert all(0 <= x <= 600 and 0 <= y <= 150 for x, y in line)


def test_a_gap_breaks_the_line_of_a_figure_that_comes_often() -> None:
    figure = history(*range(100))
    figure.add(HOUR_MS + 200 * STEP_MS, 1)
    assert len(lines(chart("c", [Line("a", figure)], HOUR_MS + 200 * STEP_MS, str))) == 2


def test_a_figure_without_points_and_one_with_a_single_point() -> None:
    assert "no figures yet" in chart("c", [Line("a", History())], HOUR_MS, str)
    assert len(lines(chart("c", [Line("a", history(3))], HOUR_MS, str))) == 1
    assert lines(sparkline("s", History(), HOUR_MS)) == []


def test_names_with_markup_stay_text() -> None:
    made = chart(MARKUP, [Line(MARKUP, history(1, 2))], 2 * HOUR_MS, lambda value: MARKUP)
    root = ElementTree.fromstring(made)
    assert root.attrib["aria-label"].startswith(MARKUP)
    assert {element.tag for element in root.iter()} <= {"svg", "polyline", "title", "line", "text"}
    for text in (legend([Line(MARKUP, History())]), sparkline(MARKUP, History(), 0)):
        assert "<script" not in text


@cases("value, top", [(0, 1), (1, 1), (1.5, 2), (3, 5), (6, 10), (1234, 2000), (1e12 + 1, 2e12)])
def test_axes_end_at_round_numbers(value: float, top: float) -> None:
    assert round_up(value) == top


@cases("figure", ["inf", "-inf", "nan", "1e300"])
def test_a_figure_that_no_axis_holds_is_left_out(figure: str) -> None:
    """A broker tells figures as texts: `inf` held the console in the search for the end of the axis for ever."""
    chart("c", [Line("a", history(2, float(figure)))], HOUR_MS + STEP_MS, str)
    assert history(2, float(figure)).points(HOUR_MS + STEP_MS) == [(HOUR_MS, 2)]
