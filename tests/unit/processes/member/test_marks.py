"""The marks that the processes of a member share."""

from __future__ import annotations

import multiprocessing
import time

from rocketpy.processes.member.marks import TreeMarks

TURNED_S = 1234567.891
WATCHED_S = 1.0


def turn(marks: TreeMarks) -> None:
    while True:
        marks.coordinator_turned_s = TURNED_S


def test_a_time_is_never_seen_half_written() -> None:
    """Fault: A guardian that read in the middle of a write saw 0, and killed a coordinator that turned."""
    marks = TreeMarks()
    marks.coordinator_turned_s = TURNED_S
    writer = multiprocessing.get_context("fork").Process(target=turn, args=(marks,), daemon=True)
    writer.start()
    try:
        end_s = time.monotonic() + WATCHED_S
        while time.monotonic() < end_s:
            assert marks.coordinator_turned_s == TURNED_S
    finally:
        writer.kill()
        writer.join()
