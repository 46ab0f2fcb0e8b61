"""The record in the docstrings of tests (tests/support/record.py): it is complete, well formed, and leads to tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.cases import cases
from tests.support.record import Entry, entries, entries_of, main, specification
from tests.support.rules import ROOT, enough, hold, text_of
from tests.support.specification import HELD, NOT_HELD

TEST, SCRIPT, DRIVER = Path("tests/unit/test_x.py"), Path("tests/support/x.py"), Path("tests/csrc/driver_x.c")
PART = next(f"{area}, {parts[0]}" for area, parts in HELD.items())


def test_the_record_is_well_formed() -> None:
    hold(
        (f"{entry.place}: {entry.text!r}: {entry.fails}" for entry in entries() if entry.fails),
        "see the end of the line",
    )


@pytest.mark.parametrize(("kind", "least"), [("Fault", 450), ("Holds", 280)])
def test_the_record_is_found(kind: str, least: int) -> None:
    """The numbers are a little below the real ones."""
    found = enough((entry for entry in entries() if entry.kind == kind), least, kind)
    assert len(set(found)) == len(found), "a test says the same twice"


def test_tests_of_the_record_are_there() -> None:
    def is_there(entry: Entry) -> bool:
        name = entry.test.rpartition("::")[2]
        return (ROOT / entry.path).is_file() and bool(re.search(rf"\b{name}\(", text_of(ROOT / entry.path)) or not name)

    hold((entry.place for entry in entries() if not is_there(entry)), "name a test that is there")


def test_every_part_of_the_specification_is_held() -> None:
    held = {part for entry in entries() if entry.kind == "Holds" for part in entry.parts}
    enough(specification(), 165, "parts of the specification")
    hold(sorted(specification() - held), "hold the part by a test, or give the reason in NOT_HELD")
    hold(sorted(held & NOT_HELD.keys()), "a part that a test holds needs no reason")


def one(path: Path, text: str) -> Entry:
    (entry,) = entries_of(path, text)
    return entry


def test_a_line_goes_on_until_the_next_one() -> None:
    text = f'def test_a() -> None:\n    """Sum.\n    Fault: A long\n    line.\n    Holds: {PART}.\n\n    More."""\n'
    assert list(entries_of(TEST, text)) == [
        Entry("Fault", "A long line.", TEST, "test_a"),
        Entry("Holds", f"{PART}.", TEST, "test_a"),
    ]


@pytest.mark.parametrize(
    ("path", "text", "command"),
    [
        (
            TEST,
            'class TestA:\n    def test_b(self):\n        """Fault: F."""\n',
            "pytest tests/unit/test_x.py::TestA::test_b",
        ),
        (TEST, '"""M.\n\nFault: F.\n"""\ndef test_b(): ...\n', "pytest tests/unit/test_x.py"),
        (SCRIPT, '"""M.\n\nFault: F.\n"""\nif __name__ == "__main__": ...\n', "python -m tests.support.x"),
        (DRIVER, "/* D.\n * Fault: F. */\n", "make -C tests/csrc run-address-driver_x"),
        (
            DRIVER,
            "/* D. */\n/* Fault: F. */\nstatic int check(void) {}\n",
            "make -C tests/csrc run-address-driver_x  # check",
        ),
        (DRIVER.with_name("fuzz_x.c"), "/* Fault: F. */\n", "make -C tests/csrc replay-fuzz_x"),
    ],
)
def test_the_command_of_a_test(path: Path, text: str, command: str) -> None:
    entry = one(path, text)
    assert (entry.command, entry.text, entry.fails) == (command, "F.", "")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (TEST, '"""Fault: F."""\nVALUE = 1\n'),
        (TEST, 'def helper():\n    """Fault: F."""\n\ndef test_a(): ...\n'),
        (TEST, 'class TestA:\n    """Fault: F."""\n    def test_a(self): ...\n'),
        (TEST, 'def test_a():\n    def inner():\n        """Fault: F."""\n'),
        (SCRIPT, '"""Fault: F."""\nVALUE = 1\n'),
        (SCRIPT, 'def test_a():\n    """Fault: F."""\nif __name__ == "__main__": ...\n'),
        (Path("tests/csrc/store.c"), "/* Fault: F. */\n"),
    ],
)
def test_a_docstring_without_a_test_is_refused(path: Path, text: str) -> None:
    assert one(path, text).fails


@cases(
    "line",
    [
        "Fault: No end",
        "Fault: One. Two.",
        "Fault: it begins small.",
        f"Fault: It has {'many ' * 25}words.",
        "fault: F.",
        "Faults: F.",
        "Fault:F.",
        "Fault : F.",
        f"Holds: {PART}",
        "Holds: store, nothing of this name.",
        f"Holds: {PART}; store.",
        f"Holds: {PART}, store.",
    ],
)
def test_a_line_that_is_not_well_formed_is_refused(line: str) -> None:
    assert one(TEST, f'def test_a():\n    """{line}"""\n').fails


def test_other_texts_are_no_entries() -> None:
    text = '"""It holds: this. `Fault: ...` begins no line."""\nFAULT = "Fault: none."\n\ndef test_a(): ...\n'
    assert not list(entries_of(TEST, text))


def test_the_command_lists_by_directory() -> None:
    def lines(*arguments: str) -> list[str]:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        return result.output.splitlines()

    faults = lines()
    assert "tests/csrc (" in "\n".join(faults) and len(faults) > 900
    assert lines("faults", "test_crashed_request")[1:] == [
        "tests/unit/reactor (2)",
        "  A request that killed its worker was retried after each restart, until the broker ended.",
        "      pytest tests/unit/reactor/test_crashed_request.py"
        "::test_the_request_goes_its_connection_is_closed_and_the_others_are_served",
        "  A timer or delayed message whose delivery never ended was tried again for ever.",
        "      pytest tests/unit/reactor/test_crashed_request.py"
        "::test_a_hang_counts_as_a_crash_if_the_worker_has_computed",
    ]
    assert lines("coverage", "schedulers")[1:] == [
        "without a test",
        "  store, schedulers and RAID: advice to operators, no behaviour",
    ]
