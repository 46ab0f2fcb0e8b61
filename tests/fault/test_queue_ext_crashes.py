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


def run(seed: int, crashes: int) -> dict[str, dict[str, int]]:
    """The counts of lives without a failure."""
    command = [sys.executable, "-m", "tests.support.crash.run", "--extended"]
    command += ["--seed", str(seed), "--crashes", str(crashes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    counts: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return counts


def test_units_that_were_made_again_may_be_lost_once_more() -> None:
    """In this life a queue was made again from the log's beginning, and the power failed before it was on the disk."""
    assert run(105, 0)["kinds"]["power control"] > 0


def test_every_unit_keeps_its_tags_code() -> None:
    counts = run(1, CRASHES)
    assert sum(counts["crashes"].values()) >= CRASHES
    assert counts["crashes"]["queue_ext.units"] > 0
