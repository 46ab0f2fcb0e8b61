"""The end of `.ci/run`: seconds of each target and the tests that were flaky, also when a target fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rules import ROOT

MAKE = """#!/bin/sh
case "$1" in
    test) printf '%s\n' 'flaky: tests/a.py::b' 'failed twice: tests/a.py::c' >> "$ROCKETPY_FLAKY_LIST" ;;
    FAILS) exit 2 ;;
esac
"""


@pytest.mark.parametrize(
    ("fails", "status", "count", "last"),
    [("lint", 2, 11, "lint"), ("test-ha-short", 2, 10, "test-ha-short"), ("none", 0, 17, "test-fault")],
)
def test_seconds_and_flaky_tests_are_printed_at_the_end(
    tmp_path: Path, fails: str, status: int, count: int, last: str
) -> None:
    """Failed targets come last, also if others ran beside them, and have a line of their own."""
    for name in ("make", "etcd", "ip", "clang"):
        (tmp_path / name).write_text(MAKE.replace("FAILS", fails))
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    run = subprocess.run(["bash", ROOT / ".ci/run"], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == status, run.stderr
    *lines, flaky, name, other, seconds = run.stdout.splitlines()
    assert [line for line in lines if line.startswith("failed: ")] == [f"failed: {fails}"] * (status != 0)
    assert [flaky, name, other] == ["flaky tests: 1", "flaky: tests/a.py::b", "failed twice: tests/a.py::c"]
    targets = seconds.removeprefix("seconds of each target: ").split()[::2]
    assert targets[0] == ".venv/.dev" and len(targets) == count and targets[-1] == last
    assert {"test", "interop-programs"} <= set(targets)


def test_tests_that_were_tried_again_are_in_the_list(tmp_path: Path) -> None:
    """With the workers and the conftest that CI has."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "test_one.py").write_text(
        "from pathlib import Path\n"
        "def test_flaky(request):\n"
        "    mark = Path(__file__).with_name('tried')\n"
        "    tried, _ = mark.exists(), mark.touch()\n"
        "    assert tried\n"
        "def test_broken():\n"
        "    assert False\n"
    )
    names = tmp_path / "names"
    words = [sys.executable, "-m", "pytest", "--reruns", "1", "-n", "1", "-p", "no:cacheprovider", "."]
    environment = os.environ | {"ROCKETPY_FLAKY_LIST": str(names), "PYTEST_ADDOPTS": ""}
    run = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout
    assert sorted(names.read_text().splitlines()) == [
        "failed twice: test_one.py::test_broken",
        "flaky: test_one.py::test_flaky",
    ], run.stdout
    assert "\nflaky: test_one.py::test_flaky\n" in run.stdout
