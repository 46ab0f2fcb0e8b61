"""Reads the state files of a store: checkpoint, abort, lock and control.

The lock is looked up in /proc/locks: to open and close the file would release the lock of a broker in the same process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import StoreError
from rocketpy.native.core import Layout, ffi, lib

from ..files import Files, StorePaths
from ..formats.checkpoint import StoreCheckpoint, read_checkpoint

HEADER = Layout("rp_control")
QUEUE = Layout("rp_queue")
QUEUES_AT: int = lib.RP_CONTROL_QUEUES_AT
TOPIC_SIZE: int = lib.RP_CONTROL_TOPIC_ENTRY
TOPICS_AT = QUEUES_AT + lib.RP_CONTROL_QUEUES_MAX * QUEUE.size
LOCKS = Path("/proc/locks")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@attrs.frozen
class ControlState:
    """The control block's header (csrc/store/control/control_block.h)."""

    queue_count: int
    topic_count: int
    running_flags: int
    commitlog_file_size: int
    min_phy_offset: int
    published_phy_offset: int
    durable_phy_offset: int
    dispatched_phy_offset: int
    units_durable_phy_offset: int
    last_store_timestamp_ms: int
    is_clean: bool
    is_same_boot: bool
    is_current: bool  # no other program has used the store since


@attrs.frozen
class StoreState:
    """The state of a store by the files beside log and queues: its last stop, and the process that uses it."""

    checkpoint: StoreCheckpoint | None
    has_abort: bool
    in_use_by: int | None  # process that holds the lock; 0 if it is not visible
    control: ControlState | None

    @property
    def is_closed(self) -> bool:
        """Return True if the store was stopped cleanly, so that everything must be consistent."""
        return not self.has_abort and self.in_use_by is None

    @property
    def live_control(self) -> ControlState | None:
        """The control block of a rocketpy broker that is using the store now."""
        control = self.control
        return control if self.in_use_by is not None and control and control.is_current else None


def read_state(files: Files, paths: StorePaths) -> StoreState:
    """Read the current state; missing files are None or False."""
    has_checkpoint = files.info(paths.checkpoint) is not None
    return StoreState(
        checkpoint=read_checkpoint(files, paths.checkpoint) if has_checkpoint else None,
        has_abort=files.info(paths.abort) is not None,
        in_use_by=lock_holder(paths.lock),
        control=read_control(files, paths),
    )


def read_control(files: Files, paths: StorePaths) -> ControlState | None:
    """None if there is no block, or one of another version."""
    if files.info(paths.control) is None:
        return None
    data = files.read(paths.control, 0, HEADER.size)
    if len(data) < HEADER.size:
        return None
    header = HEADER.read(data)
    if not lib.rp_control_is_known(header):
        return None
    lock = files.info(paths.lock)
    return ControlState(
        queue_count=header.queue_count,
        topic_count=header.topic_count,
        running_flags=header.running_flags,
        commitlog_file_size=header.commitlog_file_size,
        min_phy_offset=header.min_phy_offset,
        published_phy_offset=header.published_phy_offset,
        durable_phy_offset=header.durable_phy_offset,
        dispatched_phy_offset=header.dispatched_phy_offset,
        units_durable_phy_offset=header.units_durable_phy_offset,
        last_store_timestamp_ms=header.last_store_timestamp_ms,
        is_clean=bool(header.clean),
        is_same_boot=bytes(header.boot_id) == _boot_id(),
        is_current=lock is not None and lock.mtime_ms == header.lock_mtime_ns // 1_000_000,
    )


def read_deletions(files: Files, paths: StorePaths) -> dict[tuple[str, int], int]:
    """Queues of deleted topics -> log offset below which their records need no units. Empty without a control block."""
    queues = _queues(files, paths)
    return {_name_of(files, paths, queue): queue.deleted_below for queue in queues if queue.deleted_below}


def read_unit_ends(files: Files, paths: StorePaths) -> dict[tuple[str, int], int]:
    """Queues -> their number of units, those that were deleted included. Empty without a control block."""
    return {_name_of(files, paths, queue): queue.max_offset for queue in _queues(files, paths)}


def _queues(files: Files, paths: StorePaths) -> Any:
    control = read_control(files, paths)
    count = control.queue_count if control is not None else 0
    return ffi.from_buffer("rp_queue[]", files.read(paths.control, QUEUES_AT, count * QUEUE.size) if count else b"")


def _name_of(files: Files, paths: StorePaths, queue: Any) -> tuple[str, int]:
    name = files.read(paths.control, TOPICS_AT + queue.topic * TOPIC_SIZE, TOPIC_SIZE)
    return name[1 : 1 + name[0]].decode("utf-8", "replace") if name else "", int(queue.queue_id)


def lock_holder(path: Path, locks: Path = LOCKS) -> int | None:
    """Id of the process that holds a write lock on byte 0 of a file; 0 if it is in another namespace, None if there is
    none."""
    try:
        status = os.stat(path)
        lines = locks.read_text().splitlines()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreError(f"cannot stat {path}: {exc.strerror}") from exc
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        fields = line.split()
        is_lock = len(fields) >= 8 and fields[1] in ("POSIX", "OFDLCK") and fields[3] == "WRITE"
        if is_lock and fields[5] == wanted and fields[6] == "0":
            return max(0, int(fields[4]))
    return None


def _boot_id() -> bytes:
    try:
        return bytes.fromhex(BOOT_ID.read_text().strip().replace("-", ""))
    except OSError:
        return b""
