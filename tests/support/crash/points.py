"""Every named point: those of csrc, found in its sources, and those of Python, listed here.

A name without a crash that was looked at is a gap in the generator, or a point that nothing reaches any more.
"""

from __future__ import annotations

import re
from pathlib import Path

CSRC = Path(__file__).parents[3] / "csrc"
IN_CSRC = re.compile(r'RP_CRASH_POINT\("([a-z_.]+)"\)')
ELSEWHERE = {
    "consume_queue_ext.c",  # extension units: tests/fault/test_queue_ext_crashes.py
    "send_end.c",  # transactions: tests/fault/test_transaction_crashes.py
    "half_states.c",
    "received_log.c",  # a slave's log: tests/fault/test_slave_crashes.py
    "send_timer.c",  # timers: tests/fault/test_timer_crashes.py
    "timer_index.c",
    "timer_marks.c",
    "timers.c",
    "timers_given.c",
}
NEEDS_DAMAGE = {"recovery.queue_lost"}  # a queue directory removed by hand: tests/unit/store/recovery
IN_PYTHON = frozenset(
    {
        "recovery.abort.fsync",
        "recovery.checkpoint.pwrite",
        "recovery.checkpoint.fsync",
        "recovery.lock.pwrite",
        "recovery.lock.fsync",
        "recovery.log.mkdir",
        "recovery.log.fsync",
        "recovery.log.pwrite",
        "recovery.log.unlink",
        "recovery.queue.pwrite",
        "recovery.queue.fsync",
        "recovery.queue.unlink",
        "recovery.queue.rmdir",
        "units.checkpoint.pwrite",
        "units.checkpoint.fsync",
        "close.checkpoint.pwrite",
        "close.checkpoint.fsync",
        "close.log.unlink",
        "close.abort.unlink",
        "clean.log.unlink",
        "clean.queue.unlink",
        "clean.index.unlink",
    }
)


def points_in(*file_names: str) -> set[str]:
    """Those of some files of csrc."""
    paths = [path for file_name in file_names for path in CSRC.rglob(file_name)]
    return {name for path in paths for name in IN_CSRC.findall(path.read_text())}


def slave_points() -> set[str]:
    """All that tests/fault/test_slave_crashes.py reaches."""
    return points_in("received_log.c") | {name for name in points_in("commitlog.c") if name.startswith("begin.")}


def named_points() -> set[str]:
    """All that tests/fault/test_crash_points.py reaches. A name is used once."""
    sources = [path.read_text() for path in sorted(CSRC.rglob("*.c")) if path.name not in ELSEWHERE]
    names = [name for text in sources for name in IN_CSRC.findall(text)]
    assert len(names) == len(set(names)), f"used twice: {sorted({name for name in names if names.count(name) > 1})}"
    return (set(names) | IN_PYTHON) - NEEDS_DAMAGE - slave_points()
