"""Each fault of `make faults` still fits the source that it changes."""

from __future__ import annotations

from tests.support.faults_by_hand import CORE_FAULTS, FAULTS
from tests.support.rules import ROOT, hold


def test_each_fault_changes_a_text_that_its_source_has_once() -> None:
    stale = [
        f"{fault.name}: {fault.path}"
        for fault in (*FAULTS, *CORE_FAULTS)
        if (ROOT / fault.path).read_text(encoding="utf-8").count(fault.old) != 1 or fault.old == fault.new
    ]
    hold(stale, "adapt these faults of tests/support/faults_by_hand.py to the sources")


def test_the_tests_that_find_a_fault_exist() -> None:
    named = {test for fault in (*FAULTS, *CORE_FAULTS) for test in fault.tests}
    hold((test for test in sorted(named) if not (ROOT / test).is_file()), "name the file that holds the test now")
