"""What follows a crash: the store is opened from what the disk would hold, validated, and gone on with.

Opening passes points, too; now and then it crashes at one of them, and all begins again with what that leaves.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import lib
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind

from .disk import SimulatedDisk
from .model import Bounds, Model, Validate, life_config
from .taps import Taps
from .writer import Workers

RECOVERY_CRASHES = 0.25
POINTS_IN_RECOVERY = 25  # about; which of them is taken
DEPTH_MAX = 2
GOES_ON = 0.25
VERIFIED = 0.1
MEMORY_BYTES = 1 << 40
EVERYTHING = 0  # the index lost nothing
NOTHING = 1 << 62


@attrs.frozen
class Crash:
    """Kinds: death of all processes; power failure; death of the workers, which are restarted."""

    kind: str
    lost: str = ""  # besides: control, or lock (somebody else held the store since)


@attrs.frozen
class Certain:
    """What must survive each kind of crash."""

    death: Bounds
    power: Bounds


@attrs.define
class Branch:
    """A store that came up after a crash, for the life to go on with."""

    disk: SimulatedDisk
    model: Model
    opened: OpenedStore
    index_from: int


class Recovering:
    """Listens to an opening; at one of its points (or never) `crash` is called."""

    phase = "recovery"

    def __init__(self, disk: SimulatedDisk, crash_at: int, crash: Callable[[str], None]) -> None:
        self.root = disk.root
        self._disk = disk
        self._left = crash_at
        self._crash = crash

    def reach(self, point: str) -> None:
        self._left -= 1
        if self._left == 0:
            self._crash(point)

    def sync(self, descriptor: int) -> None:
        self._disk.sync_descriptor(descriptor)

    def sync_all(self) -> None:
        self._disk.sync_all()


@attrs.frozen
class Aftermath:
    """The checks after one crash, and after further crashes while the store comes up."""

    taps: Taps
    rng: random.Random
    next_root: Callable[[], Path]
    count: Callable[[str], None]  # a crash at that point was looked at

    def run(
        self,
        disk: SimulatedDisk,
        crash: Crash,
        model: Model,
        certain: Certain,
        index_from: int,
        *,
        is_running: bool,
        is_kept: bool,
        depth: int = 0,
    ) -> Branch | None:
        """`is_running`: the store was open. `is_kept`: what comes up is returned, not thrown away."""
        root = self.next_root()
        after = disk.lose_power(root, self.rng) if crash.kind == "power" else disk.survive(root)
        bounds = certain.power if crash.kind == "power" else certain.death
        if crash.lost == "control":
            (root / "control").unlink(missing_ok=True)
            after.forget("control")
        if crash.lost == "lock" and (root / "lock").exists():
            os.utime(root / "lock")
            after.forget("lock")
        if crash.kind == "workers":
            self._succeed(root, model, bounds, index_from)
            shutil.rmtree(root)
            return None
        opened = self._open(after, model, Certain(bounds, certain.power), index_from, depth)
        if crash.kind == "death":
            assert crash.lost or not is_running or opened.report.kind is RecoveryKind.TRUSTED, opened.report
        elif crash.kind == "power":
            index_from = opened.report.dispatched_from
        if not is_running:  # an index that was being repaired is not looked at
            index_from = NOTHING
        self._validate(model, opened.config, opened.control, bounds, index_from)
        if self.rng.random() < GOES_ON:
            opened = self._go_on(opened, model, after, index_from)
        if is_kept:
            return Branch(after, model, opened, index_from)
        close_store(opened, clean=False)
        shutil.rmtree(root)
        return None

    def _open(self, disk: SimulatedDisk, model: Model, certain: Certain, index_from: int, depth: int) -> OpenedStore:
        def crash_again(point: str) -> None:
            crash = Crash(self.rng.choice(("death", "power")), self.rng.choice(("", "", "control")))
            nested = attrs.evolve(self, rng=random.Random(self.rng.random()))
            nested.run(disk, crash, model.copy(), certain, NOTHING, is_running=False, is_kept=False, depth=depth + 1)
            self.count(point)

        is_crashed = depth < DEPTH_MAX and self.rng.random() < RECOVERY_CRASHES
        crash_at = self.rng.randrange(1, POINTS_IN_RECOVERY) if is_crashed else 0
        with self.taps.listening(Recovering(disk, crash_at, crash_again)):
            opened = open_store(life_config(disk.root))
            Workers(opened.config, opened.control, model).close()  # the log's writer wipes what a torn record left
        self.taps.check()
        return opened

    def _succeed(self, root: Path, model: Model, bounds: Bounds, index_from: int) -> None:
        """New workers on the block as it is; no recovery."""
        config = life_config(root)
        control = ControlBlock(root / "control", config.mapped_file_size_commit_log)
        workers = Workers(config, control, model)
        directory = os.fsencode(workers.paths.commitlog)
        assert lib.rp_recovery_next_offsets(control.block, directory) == 0
        assert workers.dispatch.run_to_end() == 0
        workers.close()
        self._validate(model, config, control, bounds, index_from)
        control.close()

    def _validate(
        self, model: Model, config: MessageStoreConfig, control: ControlBlock, bounds: Bounds, index_from: int
    ) -> None:
        workers = Workers(config, control, model)
        assert workers.dispatch.run_to_end() == 0
        workers.close()
        store = MessageStore(config, control, memory_bytes=MEMORY_BYTES)
        try:
            validate = Validate(model, Path(config.store_path_root_dir), control, index_from)
            validate.look(store, bounds, thorough=self.rng.random() < VERIFIED)
        finally:
            store.close()

    def _go_on(self, opened: OpenedStore, model: Model, disk: SimulatedDisk, index_from: int) -> OpenedStore:
        """New messages follow the old ones; then, maybe, a stop in order and another start."""
        config, control = opened.config, opened.control
        with self.taps.listening(Recovering(disk, 0, lambda point: None)):
            workers = Workers(config, control, model)
            for key in sorted({put.key for put in model.puts}):
                workers.put(key, model.puts[-1].store_timestamp_ms + 1, [b"after"], b"UNIQ_KEY\x01after")
            workers.dispatch.run_to_end()
            workers.close()
            bounds = Bounds(control.min_phy_offset, control.published_phy_offset)
            self._validate(model, config, control, bounds, index_from)
            if self.rng.random() < 0.5:
                close_store(opened, clean=True)
                opened = open_store(config)
                assert opened.report.kind is RecoveryKind.TRUSTED and opened.report.scanned_records == 0
                self._validate(model, config, opened.control, bounds, index_from)
        self.taps.check()
        return opened
