"""The table of counters is the source of the C constants, and each counter is counted."""

import re

import pytest

from rocketpy.metrics.counters import COUNTERS, PLACES, c_header
from tests.support.rules import ROOT

CSRC = ROOT / "csrc"


def test_the_header_is_made_from_the_table() -> None:
    assert (CSRC / "ipc/worker_counters.h").read_text() == c_header(), "run `make build`"


def test_the_core_was_built_with_this_table() -> None:
    lib = pytest.importorskip("rocketpy.native.core", exc_type=ImportError).lib
    for row in COUNTERS:
        assert getattr(lib, f"RP_COUNT_{row.name}") == PLACES[row.name]
    assert max(PLACES.values()) + COUNTERS[-1].cells <= lib.RP_COUNTERS_MAX
    assert PLACES["PUT_LATENCY"] + lib.RP_COUNT_PUT_LATENCY_BUCKETS == lib.RP_COUNT_PUT_LATENCY_SUM


def test_each_counter_is_counted() -> None:
    """A counter that nothing adds to would be shown as zero for ever.
    Fault: The metric rocketpy_store_file_rolls_total was always 0."""
    in_c = "\n".join(path.read_text() for path in CSRC.rglob("*.c"))
    in_python = "\n".join(path.read_text() for path in (ROOT / "rocketpy").rglob("*.py"))
    counted = set(re.findall(r"\bRP_COUNT_(\w+)", in_c))
    counted |= set(re.findall(r"\.(?:add|show|counters)[(\[]lib\.RP_COUNT_(\w+)", in_python))
    assert {row.name for row in COUNTERS} - counted == set()


def test_names_are_there_once() -> None:
    assert len(PLACES) == len(COUNTERS)
