"""docs/coverage.md names the tests of each behaviour and trap of the reference: they must be there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.support.rules import hold, text_of

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


def missing(row: Row) -> Iterator[str]:
    """The tests of a row that are not there."""
    named = TEST.findall(row.tests)
    if not named and not re.sub(r"[\W_]", "", TEST.sub("", row.tests)):
        yield "no test and no reason"
    for file, function in named:
        path = ROOT / "tests" / file
        if not path.is_file() or not re.search(rf"^(async )?def {function}\(", text_of(path), re.MULTILINE):
            yield f"{file}::{function}"


def test_the_tests_of_every_row_are_there() -> None:
    hold(
        (f"{row.section} {row.name}: {place}" for row in rows() for place in missing(row)),
        "name a test that is there, or say why there is none",
    )


def test_a_row_without_tests_is_not_mistaken_for_one_with() -> None:
    assert TEST.findall("`tests/unit/a/test_b.py::test_c`, `tests/unit/test_d.py::test_e`; not built") == [
        ("unit/a/test_b.py", "test_c"),
        ("unit/test_d.py", "test_e"),
    ]
    assert not TEST.findall("tests/unit/a.py::test_c") and not TEST.findall("`tests/unit/a.py`")
