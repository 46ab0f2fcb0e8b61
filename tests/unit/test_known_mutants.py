"""Each mutant of `make known-mutants` still fits the source that it changes."""

from __future__ import annotations

import pytest

from tests.support.known_mutants.tables import KnownMutant, mutants_in, mutants_of_core, mutants_of_packages
from tests.support.rules import ROOT, hold


def all_mutants() -> list[KnownMutant]:
    found = [*mutants_of_packages(), *mutants_of_core()]
    assert len(found) > 90, "the tables are not read"
    return found


def test_each_mutant_changes_a_text_that_its_source_has_once() -> None:
    stale = [
        f"{mutant.name}: {mutant.path}"
        for mutant in all_mutants()
        if (ROOT / mutant.path).read_text(encoding="utf-8").count(mutant.old) != 1 or mutant.old == mutant.new
    ]
    hold(stale, "adapt these mutants of tests/support/known_mutants to the sources")


def test_the_tests_that_find_a_fault_exist() -> None:
    named = {test for mutant in all_mutants() for test in mutant.tests}
    hold((test for test in sorted(named) if not (ROOT / test).is_file()), "name the file that holds the test now")


def test_each_mutant_has_a_name_of_its_own() -> None:
    names = [mutant.name for mutant in all_mutants()]
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
    assert mutants_in(table.splitlines()) == [
        KnownMutant("b.py: it adds", "a/b.py", "    return 1\n", "    n = 0\n    return 2\n", ("t.py", "u.py")),
        KnownMutant("b.py: it is gone", "a/b.py", "x\n", "", ("t.py", "u.py")),
        KnownMutant("c.c: it differs", "c.c", "y\n", "z\n", ("v.py",)),
    ]


@pytest.mark.parametrize("table", ["-x", "file a.py\ntest t.py\n-x", "file a.py\nname\n-x"])
def test_lines_that_belong_to_no_mutant_are_an_error(table: str) -> None:
    with pytest.raises(ValueError, match="belongs to no mutant"):
        mutants_in(table.splitlines())
