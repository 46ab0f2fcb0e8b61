"""Transactions, crashed at named points between the records of their ends and their states, on a simulated disk.

Invariant, after the death of the send worker or of all, and after a power failure that keeps what was synced and any
sectors of the rest: a half message is open if and only if the log does not end it. However often its producer repeats
the end, each transaction that commits is delivered once, none that rolls back ever is, and each has one op message.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.crash.launch import first_seed
from tests.support.crash.points import points_in

ROOT = Path(__file__).parents[2]
CRASHES = 2_000


def test_no_crash_ends_a_transaction_twice() -> None:
    seed = first_seed(1)
    command = [sys.executable, "-m", "tests.support.crash.transactions", "--seed", str(seed)]
    done = subprocess.run([*command, "--crashes", str(CRASHES)], cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert sum(counts["crashes"].values()) >= CRASHES
    assert points_in("send_end.c", "half_states.c") - counts["crashes"].keys() == set()
    assert counts["kinds"].keys() == {"send worker", "death", "power"}
