"""What the workers of pytest-xdist get: the names in the table are there, and no unit tears a shared fixture apart."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.distribution import APART, LONGEST, begins_of, unit_of
from tests.support.rules import ROOT, enough, hold, name_of, text_of

FIXTURE_OF_A_FILE = re.compile(r"scope=\"(?:module|class|package)\"")


def test_the_longest_tests_are_there() -> None:
    def is_there(name: str) -> bool:
        file, _, test = name.partition("::")
        return (ROOT / file).is_file() and f"def {test.partition('[')[0]}" in text_of(ROOT / file)

    hold(
        (name for name in LONGEST if not is_there(name)), "name tests that are there, in tests/support/distribution.py"
    )


def test_tests_that_run_apart_share_no_fixture_of_their_file() -> None:
    """Each worker would make it again."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if APART.match(name_of(path))]
    shared = (name_of(path) for path in enough(files, 40, "files") if FIXTURE_OF_A_FILE.search(text_of(path)))
    hold(shared, "leave the file out of APART in tests/support/distribution.py")


def test_a_unit_is_a_file_or_a_test_or_all_that_read_the_sources() -> None:
    assert unit_of("tests/unit/test_a.py::test_b[x::y]") == "tests/unit/test_a.py"
    assert (
        unit_of("tests/unit/test_tidy.py::test_a")
        == unit_of("tests/unit/test_layering.py::test_b")
        != unit_of("tests/unit/test_a.py::test_b")
    )
    assert unit_of("tests/fault/test_a.py::test_b[x::y]") == "tests/fault/test_a.py::test_b[x::y]"


def test_files_that_wait_are_spread_among_those_that_compute() -> None:
    waiting = [f"tests/system/test_{name}.py" for name in "ab"]
    others = [f"tests/unit/test_{name}.py" for name in "cdef"]
    begins = begins_of([f"{file}::{test}" for file in waiting + others for test in ("test_one", "test_two")])
    assert sorted(begins, key=begins.__getitem__) == [waiting[0], *others[:2], waiting[1], *others[2:]]


def test_long_tests_begin_first_on_workers_of_their_own(tmp_path: Path) -> None:
    """With the conftest and the options of `make`: two tests of one file of tests/fault run at the same time."""
    (tmp_path / "conftest.py").write_text(text_of(ROOT / "tests/conftest.py"))
    meet = (
        "import pathlib, time\n"
        "def meet(own, other):\n"
        "    here = pathlib.Path(__file__).parent\n"
        "    (here / own).touch()\n"
        "    until = time.monotonic() + 30\n"
        "    while not (here / other).exists():\n"
        "        assert time.monotonic() < until\n"
        "        time.sleep(0.01)\n"
        "def test_one(): meet('one', 'other')\n"
        "def test_other(): meet('other', 'one')\n"
    )
    (tmp_path / "tests/fault").mkdir(parents=True)
    (tmp_path / "tests/fault/test_meeting.py").write_text(meet)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, "--import-mode=importlib"]
    words += ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "tests/fault"]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
