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


def run(seed: int, crashes: int, *options: str) -> dict[str, dict[str, int]]:
    """The counts of lives without a failure."""
    command = [sys.executable, "-m", "tests.support.crash.run", "--extended", *options]
    command += ["--seed", str(seed), "--crashes", str(crashes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    counts: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return counts


def test_every_unit_keeps_its_tags_code() -> None:
    counts = run(1, CRASHES)
    assert sum(counts["crashes"].values()) >= CRASHES
    assert counts["crashes"]["queue_ext.units"] > 0


def test_no_less_without_an_index() -> None:
    """An index makes recovery dispatch more of the log again than the queues need, which hides what they lack."""
    assert sum(run(2_000, CRASHES, "--no-index")["crashes"].values()) >= CRASHES
