"""tests/support/cases.py: each case is run, also behind one that fails, and a failure names the cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import cases

SEEN: list[int] = []


@cases("number", [1, 2, 3])
def test_each_case_is_run(number: int, tmp_path: Path) -> None:
    """With fixtures beside the cases."""
    assert tmp_path.is_dir()
    SEEN.append(number)


def test_each_case_was_run() -> None:
    assert SEEN == [1, 2, 3]


def test_a_failure_names_the_cases() -> None:
    seen = []

    @cases("left, right", [(1, 1), (1, 2), (3, 3), (4, 5), (6, 6)])
    def agree(left: int, right: int) -> None:
        seen.append(left)
        if left == 4:
            pytest.fail("another kind of failure")
        assert left == right

    with pytest.raises(AssertionError) as failure:
        agree()
    assert seen == [1, 1, 3, 4, 6]
    assert failure.value.__notes__ == ["2 of 5 cases failed:", "  left=1, right=2", "  left=4, right=5"]


def test_no_case_is_skipped_in_silence() -> None:
    @cases("number", [1, 2])
    def needs(number: int) -> None:
        pytest.skip("nothing to do")

    with pytest.raises(AssertionError, match="cannot be skipped"):
        needs()


def test_without_a_case_nothing_is_held() -> None:
    with pytest.raises(AssertionError, match="without a case"):
        cases("number", [])
