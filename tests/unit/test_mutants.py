"""The generator of mutants: which changes of a source are tried, and what a run of the tests says of one."""

from __future__ import annotations

import signal

import pytest

from tests.support.mutants import mutants_of
from tests.support.surviving_mutants import FOUND, SURVIVED, TIMED_OUT, outcome_of

NESTED = """
def outer(a) -> bool:
    def inner() -> int:
        return 1
    return a
"""


def texts(source: str) -> set[str]:
    return {mutant.apply(source) for mutant in mutants_of(source)}


def test_a_function_around_another_may_still_return_nothing() -> None:
    assert NESTED.replace("return a", "return None") in texts(NESTED)
    assert NESTED.replace("return 1", "return None") not in texts(NESTED)


@pytest.mark.parametrize(
    ("source", "mutant"),
    [
        ("if a:\n    b()\n", "if True:\n    b()\n"),
        ("if a:\n    b()\n", "if a:\n    pass\n"),
        ("x.a = 1\n", "pass\n"),
        ("y = a and b\n", "y = (a)\n"),
        ("y = a < b\n", "y = (a <= b)\n"),
        ("y = not a\n", "y = bool(a)\n"),
    ],
)
def test_a_change_is_tried(source: str, mutant: str) -> None:
    assert mutant in texts(source)


@pytest.mark.parametrize("source", ['"""A docstring."""\n', "import a\n", "assert a\n", "logger.info(a)\n"])
def test_what_says_nothing_is_left_alone(source: str) -> None:
    assert texts(source) == set()


@pytest.mark.parametrize(
    ("status", "has_failed", "outcome"),
    [
        (None, False, TIMED_OUT),
        (0, False, SURVIVED),
        (1, True, FOUND),
        (2, False, FOUND),
        (-signal.SIGSEGV, False, FOUND),
    ],
)
def test_what_a_run_says(status: int | None, has_failed: bool, outcome: str) -> None:
    assert outcome_of(status, has_failed) == outcome


@pytest.mark.parametrize("status", [1, 3, 4, 5, 99, -signal.SIGKILL])
def test_a_run_that_says_nothing_is_no_finding(status: int) -> None:
    with pytest.raises(RuntimeError, match="no failed test"):
        outcome_of(status, False)
