"""Timers, crashed at named points between the records of their ends, the journal, bits and runs, on a simulated disk.

Invariant, after the death of all processes, and after one power failure or two in a row that keep what was synced and
any sectors of the rest, also without some or all of the timers' files: an acknowledged timer that was not cancelled is
delivered once, not early, by a time that it had; a cancelled one never.
"""

from __future__ import annotations

from tests.support.crash.launch import run_seeded
from tests.support.crash.points import points_in

CRASHES = 1_500


def test_no_crash_loses_or_repeats_a_timer() -> None:
    found = run_seeded("timers", CRASHES)
    assert found.crashes.total() >= CRASHES
    named = points_in("send_timer.c", "timer_index.c", "timer_marks.c", "timers.c", "timers_given.c")
    assert named - found.crashes.keys() == set()
    assert found.kinds.keys() == {"death", "power", "lost"}
