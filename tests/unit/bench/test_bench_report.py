"""What a page of figures says of the machine, and of figures with bars."""

from __future__ import annotations

import sys

import pytest

from bench.report import Row
from rocketpy.bench.result import first_line


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print('1.2', 'x', sep='\\n')", "1.2"),
        ("import sys; print('on standard error', file=sys.stderr)", "on standard error"),  # as `java -version` does
        ("raise SystemExit('fatal: not a git repository')", ""),
    ],
)
def test_the_first_line_of_a_command_that_works(program: str, expected: str) -> None:
    assert first_line([sys.executable, "-c", program]) == expected


def test_a_program_that_is_missing_has_no_version() -> None:
    assert first_line(["/no/such/program"]) == ""


def test_a_row_holds_if_its_figure_is_within_its_bar() -> None:
    assert Row("page", 0.204, "s", 1).cells == ("page", "0.204 s", "≤ 1 s", "holds")
    assert Row("a scrape", 201, "ms", 200).cells == ("a scrape", "201 ms", "≤ 200 ms", "missed")
    assert not Row("a scrape", 201, "ms", 200).holds
    assert Row("sends", 0.97, "", 0.98, is_least=True).cells == ("sends", "0.97", "≥ 0.98", "missed")
    assert Row("reads", 7813.7, "/s", 8000, is_least=True).cells == ("reads", "7,814 /s", "≥ 8000 /s", "missed")
    assert Row("text", 1.5, "MB").cells[2:] == ("", "") and Row("text", 1.5, "MB").holds
