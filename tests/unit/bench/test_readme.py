"""The figures of README.md come from the pages of bench/results."""

# ruff: noqa: RUF001 - the pages write products with a multiplication sign

from __future__ import annotations

import pytest

from bench import readme
from tests.support.cases import cases


def test_the_readme_has_the_figures_of_the_results() -> None:
    text = readme.README.read_text()
    assert readme.with_table(text) == text, "README.md differs from bench/results: run `python -m bench.readme`"


def test_a_figure_that_no_page_has_is_an_error() -> None:
    with pytest.raises(LookupError, match="no row boot"):
        readme.read(readme.Figure("", "compare.md", "boot", "flight", readme.seconds))
    with pytest.raises(LookupError, match="no table"):
        readme.with_table("# A page without marks")


def test_a_text_has_the_figures_of_its_page() -> None:
    """The size of a log is that of the run, not of the text."""
    figure = readme.Figure("{queues} queues, {messages} sent", "store-bars.md", "restart", "restart_s", readme.seconds)
    rows = {"queues": (10_000.0, 9_000.0), "messages": (8.5, 7.0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readme, "read", lambda asked: rows[asked.metric])
        assert readme.label(figure) == "10 000 queues, 8.5 sent"
    with pytest.raises(LookupError, match=r"no row restart \| flight"):
        readme.label(readme.Figure("{flight}", "store-bars.md", "restart", "restart_s", readme.seconds))


@cases(
    "text, expected",
    [
        (readme.seconds(0.226), "0.23 s"),
        (readme.rate(807_731), "810 000/s"),
        (readme.rate(2_608_978), "2.6 M/s"),
        (readme.microseconds(41.1), "41 µs"),
        (readme.microseconds(28_131), "28 ms"),
        (readme.mebibytes(53.1), "53 MiB"),
        (readme.ratio(0.119), "1/8"),
        (readme.ratio(0.4), "0.40 ×"),
        (readme.ratio(9.02), "9.0 ×"),
    ],
)
def test_two_significant_figures(text: str, expected: str) -> None:
    assert text == expected
