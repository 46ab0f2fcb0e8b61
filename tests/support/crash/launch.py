"""Run crashes in processes of their own, several at a time, and add up what they looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import attrs

from .core import ROOT, build

SEED = "ROCKETPY_CRASH_SEED"  # of the first life; another one than usual looks at other crashes


@attrs.frozen
class Outcome:
    crashes: Counter[str]  # looked at, by point
    kinds: Counter[str]
    failures: list[str]  # each names seed and point


def first_seed(usual: int) -> int:
    return int(os.environ.get(SEED, usual))


def run_crashes(seed: int, count: int, processes: int = os.cpu_count() or 1) -> Outcome:
    """Look at `count` crashes or a few more; lives have the seeds from `seed` on. Progress goes to the output."""
    build()  # once, not by each
    print(f"\nseed {seed}; again: {SEED}={seed}; one point: python -m tests.support.crash.run --seed S --point N")
    share = -(-count // processes)
    running = [_start(seed + i, processes, share) for i in range(processes)]
    outcome = Outcome(Counter(), Counter(), [])
    for process in running:
        _collect(process, outcome)
    return outcome


def run_seeded(module: str, crashes: int) -> Outcome:
    """Look at `crashes` crashes or a few more of a module of lives (`timers`), in one process.

    Raises:
        AssertionError: a crash left what it must not; the text has the end of the output, with the seed.
    """
    command = [sys.executable, "-m", f"tests.support.crash.{module}", "--seed", str(first_seed(1))]
    command += ["--crashes", str(crashes)]
    done = subprocess.run(command, cwd=Path(ROOT), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    return Outcome(Counter(counts["crashes"]), Counter(counts["kinds"]), [])


def _start(seed: int, step: int, count: int) -> subprocess.Popen[str]:
    numbers = ["--seed", str(seed), "--step", str(step), "--crashes", str(count)]
    command = [sys.executable, "-m", "tests.support.crash.run", *numbers, "--keep-going"]
    return subprocess.Popen(command, cwd=Path(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _collect(process: subprocess.Popen[str], outcome: Outcome) -> None:
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        if line.startswith("FAILED"):
            outcome.failures.append(line.strip())
        if not line.startswith("{"):
            print(line, end="", flush=True)
        last = line
    process.stdout.close()
    if process.wait() not in (0, 1) or not last.startswith("{"):
        outcome.failures.append(f"ended with {process.returncode}: {last}")
        return
    counts = json.loads(last)
    outcome.crashes.update(counts["crashes"])
    outcome.kinds.update(counts["kinds"])
