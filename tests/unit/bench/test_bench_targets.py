"""The seconds of targets: the newest five runs count, and the page has the table that the file gives."""

from __future__ import annotations

from typing import Any

import pytest

from bench import targets


def rows(target: str, *seconds: float, beside: int = 0) -> list[dict[str, Any]]:
    return [{"target": target, "seconds": one, "beside": beside} for one in seconds]


def test_the_newest_five_runs_of_each_target_are_shown() -> None:
    results = rows("test", 9, 9, 3, 1, 2, 2, 8) + rows("lint", 4) + rows("test", 5, 7, beside=2)
    assert targets.table(results).splitlines()[2:] == [
        "| `make test` | 2 (1 to 8, 5 runs) | 6 (5 to 7, 2 runs) |",
        "| `make lint` | 4 | - |",
    ]


def test_a_run_of_ci_gives_the_seconds_of_its_targets() -> None:
    assert targets.parts_of_ci("1 passed\nseconds of each target: test 300 test-python 15\nmake: done") == {
        "test": 300,
        "test-python": 15,
    }


def test_the_page_has_the_table_of_the_results() -> None:
    text = targets.PAGE.read_text()
    assert f"{targets.BEGIN}\n{targets.table(targets.read_results())}\n{targets.END}" in text


def test_a_target_that_fails_names_the_file_with_its_output() -> None:
    path = targets.LOGS / "no-such-target.log"
    with pytest.raises(targets.click.ClickException, match=f"make no-such-target failed .* {path}"):
        targets.run_seconds("no-such-target")
    assert "No rule to make target" in path.read_text()
