"""One store's life: seeded operations, several openings, and at chosen points the look at what a crash would leave.

A crash is made beside the life: what the disk would hold is put into another directory, opened there and validated;
then the life goes on as if nothing had happened, or (a jump) in that other directory. Which points are taken, and what
happens there, follows from the seed and the number of the point alone.
"""

from __future__ import annotations

import collections
import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs

from rocketpy.native.core import ffi
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store

from .aftermath import Aftermath, Branch, Certain, Crash
from .disk import SimulatedDisk
from .model import Bounds, Key, Model, life_config
from .taps import Taps
from .writer import PREPARED, ROLLBACK, Workers, random_properties

QUEUES: tuple[Key, ...] = (("A", 0), ("A", 1), ("B", 7), ("C", 0))
OPENINGS = 6
OPERATIONS = 45  # at the most, of each
WEIGHTS = {"put": 30, "batch": 8, "dispatch": 15, "flush": 8, "units": 6, "allocate": 4, "clean": 3, "drop": 1}
FIRST_TIMES = 1.5  # a point is taken the first times that it is reached, and less and less often later
JUMPS = 0.04
WRITE_BACKS = 0.1
CONTROL_LOST = 0.1  # between two openings
BODY_SIZES = (0, 10, 300, 300, 2000, 5000)


class CrashFailure(AssertionError):
    """A store that did not come up as it must; says how to see it again."""


@attrs.frozen
class Options:
    """`only`: the one point to look at (jumps are made nevertheless, as the life depends on them)."""

    seed: int
    base: Path
    only: int | None = None


@attrs.define
class Counts:
    """`crashes`: how often a crash at each point was looked at; `reached`: how often it was met."""

    crashes: collections.Counter[str] = attrs.field(factory=collections.Counter)
    reached: collections.Counter[str] = attrs.field(factory=collections.Counter)
    kinds: collections.Counter[str] = attrs.field(factory=collections.Counter)

    def __iadd__(self, other: Counts) -> Counts:
        self.crashes += other.crashes
        self.reached += other.reached
        self.kinds += other.kinds
        return self


class Life:
    """See the module."""

    def __init__(self, options: Options, taps: Taps) -> None:
        self.counts = Counts()
        self.phase = "life"
        self.root = options.base / "0"
        self.root.mkdir(parents=True)
        self._options = options
        self._taps = taps
        self._disk = SimulatedDisk(self.root)
        config = life_config(self.root)
        self._model = Model(config.mapped_file_size_commit_log, config.mapped_file_size_consume_queue)
        self._rng = random.Random(f"life {options.seed}")
        self._point_number = self._put_number = self._roots = 0
        self._now_ms = 1_700_000_000_000
        self._opened: OpenedStore | None = None
        self._workers: Workers | None = None
        self._certain = Certain(Bounds(0, 0), Bounds(0, 0))
        self._index_from = 0
        self._branch: Branch | None = None

    def run(self) -> None:
        way = "clean"
        for _ in range(OPENINGS):
            self._open(is_index_damaged=way == "power")
            for _ in range(self._rng.randrange(OPERATIONS)):
                self._operate()
            way = self._rng.choice(("clean", "clean", "death", "power", "power"))
            self._end(way)

    # --- opening and ending ---

    def _open(self, *, is_index_damaged: bool) -> None:
        with self._in_phase("recovery"):
            self._opened = opened = open_store(life_config(self.root))
        if is_index_damaged:
            self._index_from = opened.report.dispatched_from
        self._model.cut(opened.control.published_phy_offset)
        self._workers = Workers(opened.config, opened.control, self._model)

    def _end(self, way: str) -> None:
        """In order, or by what may happen to it."""
        opened, workers = self._opened, self._workers
        assert opened is not None and workers is not None
        self._follow()
        workers.close()
        if way == "clean":
            with self._in_phase("close"):
                close_store(opened, clean=True)
            self._certain = Certain(self._certain.death, self._certain.death)
        else:
            close_store(opened, clean=False)
        self._opened = self._workers = None
        if way == "power":
            disk = self._disk.lose_power(self._next_root(), self._rng)
            shutil.rmtree(self.root)
            self._disk, self.root = disk, disk.root
            self._certain = Certain(self._certain.power, self._certain.power)
        if self._rng.random() < CONTROL_LOST:
            (self.root / "control").unlink(missing_ok=True)
            self._disk.forget("control")

    def _take_branch(self) -> None:
        """Jump to where the last crash led."""
        branch, self._branch = self._branch, None
        if branch is None:
            return
        if self._workers is not None:
            self._workers.close()
        if self._opened is not None:
            close_store(self._opened, clean=False)
        shutil.rmtree(self.root)
        self._disk, self.root, self._model = branch.disk, branch.disk.root, branch.model
        self._opened, self._index_from = branch.opened, branch.index_from
        self._workers = Workers(branch.opened.config, branch.opened.control, self._model)

    def _next_root(self) -> Path:
        self._roots += 1
        return self._options.base / str(self._roots)

    # --- operations ---

    @contextlib.contextmanager
    def _in_phase(self, phase: str) -> Iterator[None]:
        self.phase = phase
        with self._taps.listening(self):
            yield
        self._taps.check()
        self.phase = "life"

    def _operate(self) -> None:
        workers = self._workers
        assert workers is not None
        name = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        with self._in_phase(name):
            getattr(self, f"_{name}")(workers, self._rng)
        self._take_branch()

    def _put(self, workers: Workers, rng: random.Random) -> None:
        for _ in range(rng.randrange(1, 6)):
            self._put_one(workers, rng, 1)

    def _batch(self, workers: Workers, rng: random.Random) -> None:
        self._put_one(workers, rng, rng.randrange(2, 6))

    def _put_one(self, workers: Workers, rng: random.Random, count: int) -> None:
        self._put_number += 1
        self._now_ms += rng.choice((1, 1, 500, 4000))
        size = rng.choice(BODY_SIZES) // (1 if count == 1 else 3)
        bodies = [b"%d." % self._put_number * rng.randrange(1 + size // 4) for _ in range(count)]
        sys_flag = rng.choice((PREPARED, ROLLBACK)) if count == 1 and rng.random() < 0.1 else 0
        key = rng.choice(QUEUES[:3] if rng.random() < 0.9 else QUEUES)
        workers.put(key, self._now_ms, bodies, random_properties(rng, self._put_number), sys_flag)

    def _dispatch(self, workers: Workers, rng: random.Random) -> None:
        workers.run_dispatch(rng.choice((1, 2000, 1 << 20)))

    def _flush(self, workers: Workers, rng: random.Random) -> None:
        workers.flush_log()

    def _units(self, workers: Workers, rng: random.Random) -> None:
        workers.sync_units()

    def _allocate(self, workers: Workers, rng: random.Random) -> None:
        workers.allocate()

    def _clean(self, workers: Workers, rng: random.Random) -> None:
        workers.clean()

    def _drop(self, workers: Workers, rng: random.Random) -> None:
        workers.drop_topic(rng.choice(("A", "C", "C")), sync=rng.random() < 0.7)

    # --- what the taps tell ---

    def sync(self, descriptor: int) -> None:
        self._disk.sync_descriptor(descriptor)

    def sync_all(self) -> None:
        self._disk.sync_all()

    def reach(self, point: str) -> None:
        self._point_number += 1
        self.counts.reached[point] += 1
        rng = random.Random(f"point {self._options.seed} {self._point_number}")
        if rng.random() < WRITE_BACKS:
            self._disk.write_back(rng)
        if rng.random() >= FIRST_TIMES / self.counts.reached[point] or self._branch is not None:
            return
        is_jump = rng.random() < JUMPS and self.phase not in ("recovery", "close")
        if self._options.only in (None, self._point_number) or is_jump:
            self._follow()
            self._crash(point, rng, is_jump)

    def _follow(self) -> None:
        """What is certain now, as the control block says; while it is being made anew, what was certain before."""
        if self._opened is None or self._opened.control.header == ffi.NULL:
            return
        header = self._opened.control.header
        begin = int(header.min_phy_offset)
        durable = Bounds(begin, int(header.durable_phy_offset))
        self._certain = Certain(Bounds(begin, int(header.published_phy_offset)), durable)

    def _crash(self, point: str, rng: random.Random, is_jump: bool) -> None:
        is_running = self._opened is not None and self.phase != "close"
        crash = Crash(rng.choice(("death", "power", "power", "workers")), rng.choice(("", "", "", "control", "lock")))
        if crash.kind == "workers":
            crash = Crash("workers" if is_running and not is_jump else "death")
        aftermath = Aftermath(self._taps, rng, self._next_root, self._count)
        try:
            self._branch = aftermath.run(
                self._disk,
                crash,
                self._model.copy(),
                self._certain,
                self._index_from,
                is_running=is_running,
                is_kept=is_jump,
            )
        except Exception as exc:
            where = f"seed {self._options.seed} point {self._point_number}"
            raise CrashFailure(f"{where} ({point} in {self.phase}; {crash}): {type(exc).__name__}: {exc}") from exc
        self._count(point)
        self.counts.kinds[f"{crash.kind} {crash.lost}".strip()] += 1

    def _count(self, point: str) -> None:
        self.counts.crashes[point] += 1
