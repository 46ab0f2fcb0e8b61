"""A life of seeded operations that looks at what crashes would leave, and the command line that runs many of them.

What `slave`, `cut_slave`, `tables`, `timers` and `transactions` share. A failure names the seed, the point and the kind
of the crash; the same seed makes the same life again. Import it after `core.load()`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from rocketpy.native.core import lib

from .disk import SimulatedDisk
from .taps import Taps


class SeededLife(ABC):
    """Operations on one store; `reach` is called at each crash point and looks at some of them."""

    phase = "life"
    operations_max: ClassVar[int]
    kinds_of_crash: ClassVar[tuple[str, ...]]
    points: ClassVar[tuple[str, ...]]  # how the names of points begin that are looked at
    written_back: ClassVar[float]  # of the points that are reached: the disk takes some bytes by itself

    def __init__(self, seed: int, base: Path, taps: Taps) -> None:
        self.crashes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.root = base / "0"
        self.rng = random.Random(seed)
        self._base, self.taps = base, taps
        self._copies = 0
        self.root.mkdir(parents=True)
        control = self.open()
        self.disk = SimulatedDisk(self.root)
        self._flush_handle = lib.rp_flush_open(os.fsencode(self.root / "commitlog"), control)

    @abstractmethod
    def open(self) -> Any:
        """Make the store in `root`, and its workers. Returns the header of its control block."""

    @abstractmethod
    def operate(self) -> None:
        """One operation, by `rng`."""

    @abstractmethod
    def close(self) -> None:
        """End the workers."""

    @abstractmethod
    def share(self, point: str) -> float:
        """Which part of the times that `point` is reached is looked at."""

    @abstractmethod
    def look(self, kind: str, root: Path) -> None:
        """Make in `root` what a crash of that kind leaves now, start there, and validate it."""

    def run(self) -> None:
        with self.taps.listening(self):
            for _ in range(self.rng.randrange(self.operations_max)):
                self.operate()
                self.taps.check()
        lib.rp_flush_close(self._flush_handle)
        self.close()

    def flush(self) -> None:
        assert lib.rp_flush_log(self._flush_handle) in (lib.RP_OK, lib.RP_EMPTY)

    # --- what the taps tell ---

    def sync(self, descriptor: int) -> None:
        self.disk.sync_descriptor(descriptor)

    def sync_all(self) -> None:
        self.disk.sync_all()

    def reach(self, point: str) -> None:
        if self.rng.random() < self.written_back:
            self.disk.write_back(self.rng)
        if not point.startswith(self.points) or self.rng.random() >= self.share(point):
            return
        kind = self.rng.choice(self.kinds_of_crash)
        self._copies += 1
        root = self._base / str(self._copies)
        try:
            self.look(kind, root)
        except Exception as exc:
            raise AssertionError(f"at {point}, {kind}: {exc!r}") from exc
        shutil.rmtree(root)
        self.crashes[point] += 1
        self.kinds[kind] += 1


def run_lives(life: type[SeededLife]) -> int:
    """The command line. The last line of the output is the counts as JSON, for the tests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True, help="of the first life; the others' follow")
    parser.add_argument("--crashes", type=int, default=1, help="lives begin until so many were looked at")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)  # each recovery says what it met
    base = Path(tempfile.mkdtemp(prefix="rocketpy-crash-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    crashes: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    taps, seed = Taps(), arguments.seed
    try:
        while crashes.total() < arguments.crashes:
            one = life(seed, base / str(seed), taps)
            try:
                one.run()
            except Exception as exc:
                traceback.print_exc(file=sys.stdout)
                raise SystemExit(f"FAILED seed {seed}: {exc}") from exc
            crashes, kinds, seed = crashes + one.crashes, kinds + one.kinds, seed + 1
            shutil.rmtree(base / str(seed - 1))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(json.dumps({"crashes": crashes, "kinds": kinds}))
    return 0
