"""Each fault of `make faults` still fits the source that it changes."""

from __future__ import annotations

import pytest

from tests.support.faults.fault import Fault, faults_in, faults_of_core, faults_of_packages
from tests.support.rules import ROOT, hold


def all_faults() -> list[Fault]:
    found = [*faults_of_packages(), *faults_of_core()]
    assert len(found) > 90, "the tables are not read"
    return found


def test_each_fault_changes_a_text_that_its_source_has_once() -> None:
    stale = [
        f"{fault.name}: {fault.path}"
        for fault in all_faults()
        if (ROOT / fault.path).read_text(encoding="utf-8").count(fault.old) != 1 or fault.old == fault.new
    ]
    hold(stale, "adapt these faults of tests/support/faults to the sources")


def test_the_tests_that_find_a_fault_exist() -> None:
    named = {test for fault in all_faults() for test in fault.tests}
    hold((test for test in sorted(named) if not (ROOT / test).is_file()), "name the file that holds the test now")


def test_each_fault_has_a_name_of_its_own() -> None:
    names = [fault.name for fault in all_faults()]
    assert len(names) == len(set(names))


def test_a_table_names_file_tests_and_lines() -> None:
    table = """# about

file a/b.py
test t.py
test u.py

it adds
-    return 1
+    n = 0
+    return 2

it is gone
-x
file c.c
test v.py
it differs
-y
+z"""
    assert faults_in(table.splitlines()) == [
        Fault("b.py: it adds", "a/b.py", "    return 1\n", "    n = 0\n    return 2\n", ("t.py", "u.py")),
        Fault("b.py: it is gone", "a/b.py", "x\n", "", ("t.py", "u.py")),
        Fault("c.c: it differs", "c.c", "y\n", "z\n", ("v.py",)),
    ]


@pytest.mark.parametrize("table", ["-x", "file a.py\ntest t.py\n-x", "file a.py\nname\n-x"])
def test_lines_that_belong_to_no_fault_are_an_error(table: str) -> None:
    with pytest.raises(ValueError, match="belongs to no fault"):
        faults_in(table.splitlines())
