"""The log of a slave, crashed at named points while it takes its master's, on a simulated disk.

Invariant, after the death of the send worker or of all, and after a power failure that keeps what was synced and any
sectors of the rest: the slave has the master's log up to the end of a record, and all that it has acknowledged. A new
stream from there on makes both logs equal, byte for byte, and nothing stands behind the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.crash.launch import first_seed
from tests.support.crash.points import slave_points

ROOT = Path(__file__).parents[2]
CRASHES = 2_000


def test_no_crash_breaks_the_log_of_a_slave() -> None:
    command = [sys.executable, "-m", "tests.support.crash.slave", "--seed", str(first_seed(1))]
    done = subprocess.run([*command, "--crashes", str(CRASHES)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert sum(counts["crashes"].values()) >= CRASHES
    assert slave_points() - counts["crashes"].keys() == set()
    assert counts["kinds"].keys() == {"send worker", "death", "power"}
