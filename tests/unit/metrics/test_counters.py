"""Our indexes are those of csrc/ipc/worker_counters.h."""

import re
from pathlib import Path

from rocketpy.metrics import COUNTERS_MAX, PUT_LATENCY_BUCKETS, TIMER_LATENESS_BUCKETS, Count

CSRC = Path(__file__).parents[3] / "csrc"


def test_indexes_are_those_of_the_c_core() -> None:
    defined = {
        name: int(value)
        for name, value in re.findall(r"\bRP_COUNT_(\w+) = (\d+)", (CSRC / "ipc/worker_counters.h").read_text())
    }
    assert defined.pop("PUT_LATENCY_BUCKETS") == PUT_LATENCY_BUCKETS
    assert defined.pop("TIMER_LATENESS_BUCKETS") == TIMER_LATENESS_BUCKETS
    assert defined == {count.name: count.value for count in Count}


def test_each_counter_is_counted() -> None:
    """A counter that nothing adds to would be shown as zero for ever.
    Fault: The metric rocketpy_store_file_rolls_total was always 0."""
    in_c = "\n".join(path.read_text() for path in CSRC.rglob("*.c"))
    in_python = "\n".join(path.read_text() for path in (CSRC.parent / "rocketpy").rglob("*.py"))
    counted = set(re.findall(r"\bRP_COUNT_(\w+)", in_c))
    counted |= set(re.findall(r"\.(?:add|show|counters)[(\[]lib\.RP_COUNT_(\w+)", in_python))
    assert {count.name for count in Count} - counted == set()


def test_size_of_a_block() -> None:
    [size] = re.findall(r"RP_COUNTERS_MAX = (\d+)", (CSRC / "ipc/worker.h").read_text())
    assert int(size) == COUNTERS_MAX
    assert max(Count) < COUNTERS_MAX
    assert Count.PUT_LATENCY + PUT_LATENCY_BUCKETS <= Count.PUT_LATENCY_SUM_US
    assert Count.TIMER_LATENESS + TIMER_LATENESS_BUCKETS <= Count.TIMER_LATENESS_SUM_MS
