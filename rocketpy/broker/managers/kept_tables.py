"""The tables whose changes survive a killed manager, connected to their journals (manager_memory.py)."""

from __future__ import annotations

from pathlib import Path

from ..clock import Clock, ProcessPauses
from ..current_settings import CurrentSettings
from ..memory.manager_memory import ManagerMemory
from ..store_api import Store
from .consumer_offset import ConsumerOffsetManager
from .rebalance_lock import RebalanceLockManager


def make_offsets(
    path: Path, settings: CurrentSettings, clock: Clock, memory: ManagerMemory, store: Store
) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(
        path,
        memory.offsets_journal(),
        started_ms=clock.monotonic_ms() - 1,
        entries_max=lambda: settings.rocketpy.consumer_offsets_max,
        log_end=store.log_end,
    )


def make_locks(
    settings: CurrentSettings, clock: Clock, memory: ManagerMemory, pauses: ProcessPauses
) -> RebalanceLockManager:
    return RebalanceLockManager(
        clock,
        memory.locks_journal(),
        unknown_until_ms=memory.locks.unknown_until_ms,
        pauses=pauses,
        locks_max=lambda: settings.rocketpy.queue_locks_max,
    )
