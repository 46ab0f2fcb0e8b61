"""Names of failed tests in the output of `make test-pythons`."""

from __future__ import annotations

from tests.support.other_pythons import QUIET, failed_tests

RUNNING = """\
tests/unit/test_a.py::test_b[c - d]\x20
[gw0] [  4%] FAILED tests/unit/test_a.py::test_b[c - d]\x20
[gw1] [ 38%] PASSED tests/unit/test_a.py::test_e\x20
[gw1] [100%] ERROR tests/unit/test_a.py::test_f\x20
"""
SUMMARY = """\
ERROR a line that a program has logged
tests/unit/test_a.py:6: OSError
ERROR tests/unit/test_g.py - ImportError: no h
FAILED tests/unit/test_a.py::test_b[c - d] - assert 0
"""


def test_names_of_failed_tests_are_found_before_and_after_the_summary() -> None:
    """Fault: A run under another Python that was stopped left no names of the tests that had failed."""
    failed = ["tests/unit/test_a.py::test_b[c - d]", "tests/unit/test_a.py::test_f"]
    assert failed_tests(RUNNING.splitlines(keepends=True)) == failed
    assert failed_tests((RUNNING + SUMMARY).splitlines(keepends=True)) == [*failed, "tests/unit/test_g.py"]


def test_only_beginnings_and_passed_tests_are_not_printed() -> None:
    lines = (RUNNING + SUMMARY).splitlines(keepends=True)
    assert [line for line in lines if QUIET.fullmatch(line)] == [lines[0], lines[2]]
