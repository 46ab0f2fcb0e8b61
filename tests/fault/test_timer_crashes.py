"""Timers, crashed at named points between the records of their ends, the journal, bits and runs, on a simulated disk.

Invariant, after the death of all processes, and after one power failure or two in a row that keep what was synced and
any sectors of the rest, also without some or all of the timers' files: an acknowledged timer that was not cancelled is
delivered once, not early, by a time that it had; a cancelled one never.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.crash.launch import first_seed
from tests.support.crash.points import points_in

ROOT = Path(__file__).parents[2]
CRASHES = 1_500


def test_no_crash_loses_or_repeats_a_timer() -> None:
    seed = first_seed(1)
    command = [sys.executable, "-m", "tests.support.crash.timers", "--seed", str(seed)]
    done = subprocess.run([*command, "--crashes", str(CRASHES)], cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert sum(counts["crashes"].values()) >= CRASHES
    named = points_in("send_timer.c", "timer_index.c", "timer_marks.c", "timers.c", "timers_given.c")
    assert named - counts["crashes"].keys() == set()
    assert counts["kinds"].keys() == {"death", "power", "lost"}
