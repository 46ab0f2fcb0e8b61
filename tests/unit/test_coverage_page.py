"""docs/coverage.md names the tests of each behaviour and trap of the reference: they must be there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coverage.md"
ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`tests/([\w/]+\.py)::(\w+)`")
BEHAVIOURS, TRAPS = range(1, 106), range(1, 45)


@attrs.frozen
class Row:
    section: str
    name: str
    tests: str


def rows() -> Iterator[Row]:
    for section in PAGE.read_text().split("\n## ")[1:]:
        title = section.split("\n", 1)[0]
        for line in ROW.findall(section)[1:]:  # behind the head of the table
            cells = line.split(" | ")
            yield Row(title, cells[0], cells[-1])


def test_every_behaviour_and_every_trap_has_a_row() -> None:
    numbers = {title: [row.name for row in rows() if row.section == title] for title in ("Behaviours", "Traps")}
    assert numbers == {"Behaviours": [str(n) for n in BEHAVIOURS], "Traps": [str(n) for n in TRAPS]}
    assert [row for row in rows() if row.section == "Decision tables"]


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: f"{row.section} {row.name}")
def test_the_tests_of_a_row_are_there(row: Row) -> None:
    named = TEST.findall(row.tests)
    reason = re.sub(r"[\W_]", "", TEST.sub("", row.tests))
    assert named or reason, "name a test, or say why there is none"
    for file, function in named:
        path = ROOT / "tests" / file
        assert path.is_file(), f"{path} is not there"
        text = path.read_text()
        assert re.search(rf"^(async )?def {function}\(", text, re.MULTILINE), f"{path} has no {function}"


def test_a_row_without_tests_is_not_mistaken_for_one_with() -> None:
    assert TEST.findall("`tests/unit/a/test_b.py::test_c`, `tests/unit/test_d.py::test_e`; not built") == [
        ("unit/a/test_b.py", "test_c"),
        ("unit/test_d.py", "test_e"),
    ]
    assert not TEST.findall("tests/unit/a.py::test_c") and not TEST.findall("`tests/unit/a.py`")
