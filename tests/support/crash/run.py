"""Many lives: `python -m tests.support.crash.run --seed 1 --crashes 1000`.

Each failure is told with the seed and the number of its point; `--seed S --point N` makes that one again. The last line
is the counts as JSON, for the tests.
"""

from __future__ import annotations

from tests.support.crash import core

core.load()  # before anything of rocketpy

import argparse  # noqa: E402  the core comes first
import json  # noqa: E402
import logging  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
from pathlib import Path  # noqa: E402

from tests.support.crash.life import Counts, CrashFailure, Life, Options  # noqa: E402
from tests.support.crash.model import EXTENDED, UNINDEXED  # noqa: E402
from tests.support.crash.taps import Taps  # noqa: E402

PROGRESS = 1000
FAILURES_MAX = 20  # each leaves a store open


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True, help="of the first life; the others' follow")
    parser.add_argument("--step", type=int, default=1, help="from one life's seed to the next one's")
    parser.add_argument("--crashes", type=int, default=0, help="lives begin until so many were looked at; 0: one life")
    parser.add_argument("--point", type=int, help="the one to look at")
    parser.add_argument("--extended", action="store_true", help="with extension units of consume queues")
    parser.add_argument("--no-index", action="store_true", help="recovery then dispatches less of the log again")
    parser.add_argument("--keep-going", action="store_true", help="show all failures, not the first alone")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="rocketpy-crash-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        return run(arguments, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def run(arguments: argparse.Namespace, base: Path) -> int:
    logging.disable(logging.ERROR)  # each recovery says what it met
    taps, total, failures = Taps(), Counts(), 0
    kind = EXTENDED * arguments.extended + UNINDEXED * arguments.no_index
    seed, began, said = arguments.seed, time.monotonic(), 0
    while True:
        home = base / f"{kind}{seed}"
        life = Life(Options(seed, home, arguments.point), taps)
        try:
            life.run()
        except Exception as exc:
            failures += 1
            taps.failure = None
            print(f"FAILED {exc if isinstance(exc, CrashFailure) else f'seed {seed}: {exc!r}'}", flush=True)
            if not arguments.keep_going or failures == FAILURES_MAX:
                traceback.print_exc(file=sys.stdout)
                return 1
        total += life.counts
        shutil.rmtree(home, ignore_errors=True)
        done = sum(total.crashes.values())
        if done // PROGRESS > said:
            said = done // PROGRESS
            print(f"{done} crashes, {done / (time.monotonic() - began):.0f} a second, seed {seed}", flush=True)
        if done >= arguments.crashes:
            break
        seed += arguments.step
    print(json.dumps({"crashes": total.crashes, "reached": total.reached, "kinds": total.kinds, "failures": failures}))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
