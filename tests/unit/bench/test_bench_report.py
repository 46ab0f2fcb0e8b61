"""What a page of figures says of the machine."""

from __future__ import annotations

import sys

import pytest

from bench.report import first_line


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
