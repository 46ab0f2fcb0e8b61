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
        "| `make test` | 2.0 (1.0 to 8.0, 5 runs) | 6.0 (5.0 to 7.0, 2 runs) |",
        "| `make lint` | 4.0 | - |",
    ]


def test_a_run_of_ci_gives_the_seconds_of_its_targets() -> None:
    assert targets.parts_of_ci("1 passed\nseconds of each target: test 300 test-python 15\nmake: done") == {
        "ci: test": 300,
        "ci: test-python": 15,
    }


def test_the_page_has_the_table_of_the_results() -> None:
    table = f"{targets.BEGIN}\n{targets.table(targets.read_results())}\n{targets.END}"
    assert table in targets.PAGE.read_text(), "run `.venv/bin/python -m bench.targets`"


def test_a_part_of_ci_is_not_the_target_of_the_makefile() -> None:
    assert [targets.title_of(name) for name in ("test", "ci", "ci: test")] == ["make test", ".ci/run", ".ci/run: test"]


def test_a_target_that_fails_names_the_file_with_its_output() -> None:
    path = targets.LOGS / "no-such-target.log"
    with pytest.raises(targets.TargetError, match=f"make no-such-target failed .* {path}") as caught:
        targets.run_seconds("no-such-target")
    assert caught.value.passed == {}
    assert "No rule to make target" in path.read_text()
