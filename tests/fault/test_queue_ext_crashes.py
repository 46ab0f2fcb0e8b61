"""Stores with extension units, crashed at named points on a simulated disk.

Invariant: beside all that tests.support.crash.model says, every unit of every queue leads to the tags code of its own
message, through its extension where it has one; no extension of a message that is there is lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CRASHES = 600


def test_every_unit_keeps_its_tags_code() -> None:
    command = [sys.executable, "-m", "tests.support.crash.run", "--extended", "--seed", "1", "--crashes", str(CRASHES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert sum(counts["crashes"].values()) >= CRASHES
    assert counts["crashes"]["queue_ext.units"] > 0
