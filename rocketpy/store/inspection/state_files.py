"""What stands beside the messages: checkpoint, abort, lock and control, read from outside.

The lock is looked up in /proc/locks: opening the file and closing it again would take the lock from a broker that runs
in the same process.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import attrs

from rocketpy.errors import StoreError

from ..files import Files, StorePaths
from ..formats.checkpoint import StoreCheckpoint, read_checkpoint

CONTROL_MAGIC = 0x31304B4C42595052
CONTROL_LAYOUT = 2
CONTROL_HEADER = struct.Struct(
    "=Q"  # magic
    "I"  # layout version
    "I"  # queues
    "I"  # topics
    "I"  # running flags
    "16s"  # boot id of the kernel that wrote it
    "Q"  # size of a log file
    "Q"  # where the log begins
    "Q"  # published, durable, dispatched, replicated: positions in the log
    "Q"
    "Q"
    "Q"
    "q"  # last store time
    "Q"  # clean
    "Q"  # units are durable up to
    "q"  # the three times of the checkpoint
    "q"
    "q"
    "q"  # mtime of the file lock
)
CONTROL_QUEUE = struct.Struct(
    "=Q"  # next offset
    "Q"  # max offset, min offset, end of the last record with its unit
    "Q"
    "Q"
    "I"  # topic, by number
    "I"  # queue id
    "I"  # watched
    "I"  # state
    "Q"  # generation
    "Q"  # units of records below it are deleted
)
QUEUES_AT, TOPIC_SIZE = 4096, 128
TOPICS_AT = QUEUES_AT + 1_048_576 * CONTROL_QUEUE.size
LOCKS = Path("/proc/locks")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@attrs.frozen
class ControlState:
    """The control block's header (csrc/store/control_block.h)."""

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
    is_current: bool  # nobody else has held the store since


@attrs.frozen
class StoreState:
    checkpoint: StoreCheckpoint | None
    has_abort: bool
    in_use_by: int | None  # process that holds the lock; 0 if it cannot be named
    control: ControlState | None

    @property
    def is_closed(self) -> bool:
        """In order, so that everything must fit."""
        return not self.has_abort and self.in_use_by is None

    @property
    def live_control(self) -> ControlState | None:
        """The control block of a rocketpy broker that is using the store now."""
        control = self.control
        return control if self.in_use_by is not None and control and control.is_current else None


def read_state(files: Files, paths: StorePaths) -> StoreState:
    """As it is at this moment; missing files are None or False."""
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
    data = files.read(paths.control, 0, CONTROL_HEADER.size)
    if len(data) < CONTROL_HEADER.size:
        return None
    fields = CONTROL_HEADER.unpack(data)
    magic, layout, queues, topics, flags, boot_id, file_size, begin = fields[:8]
    published, durable, dispatched, _, last_ms, clean, units_durable = fields[8:15]
    if (magic, layout) != (CONTROL_MAGIC, CONTROL_LAYOUT):
        return None
    lock = files.info(paths.lock)
    return ControlState(
        queue_count=queues,
        topic_count=topics,
        running_flags=flags,
        commitlog_file_size=file_size,
        min_phy_offset=begin,
        published_phy_offset=published,
        durable_phy_offset=durable,
        dispatched_phy_offset=dispatched,
        units_durable_phy_offset=units_durable,
        last_store_timestamp_ms=last_ms,
        is_clean=bool(clean),
        is_same_boot=boot_id == _boot_id(),
        is_current=lock is not None and lock.mtime_ms == fields[18] // 1_000_000,
    )


def read_deletions(files: Files, paths: StorePaths) -> dict[tuple[str, int], int]:
    """Queues whose topic was deleted: units of records below the log offset are not missed. Empty without a block."""
    control = read_control(files, paths)
    if control is None:
        return {}
    found = {}
    data = files.read(paths.control, QUEUES_AT, control.queue_count * CONTROL_QUEUE.size)
    for _, _, _, _, number, queue_id, _, _, _, below in CONTROL_QUEUE.iter_unpack(data):
        if below:
            name = files.read(paths.control, TOPICS_AT + number * TOPIC_SIZE, TOPIC_SIZE)
            found[name[1 : 1 + name[0]].decode("utf-8", "replace") if name else "", queue_id] = below
    return found


def lock_holder(path: Path, locks: Path = LOCKS) -> int | None:
    """Process id of who holds a write lock on byte 0 of a file; 0 if it is elsewhere, None if nobody does."""
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
