"""The control block in Python: positions, and one entry per queue (csrc/store/control/control_block.h); its
running flags, and a view for other programs.

Mapped by the supervisor, inherited by all workers. Each field has one writer, named in the header; all other processes
only read it. Reads are plain loads: fields are aligned, and decisions in Python do not depend on their order.
"""

from __future__ import annotations

import enum
import mmap
import os
import struct
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import StoreError
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from .files import store_error

QUEUE_LIVE: int = lib.RP_QUEUE_LIVE
QUEUE_DELETED: int = lib.RP_QUEUE_DELETED
DELETED_WITH_MESSAGES = 3  # of rp_control_sum_topics
QUEUES_MAX: int = lib.RP_CONTROL_QUEUES_MAX  # of a store
_LATER = "a restart removes those of deleted topics, if neither messages nor offsets of groups are left"
TOPICS_PER_STEP, ENTRIES_PER_STEP = 500, 2_000  # of half a millisecond
ENTRY = struct.Struct("@8xQQ8xIIII16x")  # max_offset, min_offset, topic, queue_id, watched, state of rp_queue
assert ENTRY.size == ffi.sizeof("rp_queue")


def fail(what: str, status: int | None = None) -> StoreError:
    """A StoreError for a C call that failed with errno."""
    reason = os.strerror(ffi.errno) if ffi.errno else "unknown reason"
    return StoreError(f"{what}: {reason}" if status is None else f"{what}: {Status(status).name} ({reason})")


@attrs.frozen
class QueueState:
    """A snapshot of one queue."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    next_offset: int
    max_phy_offset: int


class ControlBlock:
    """The process that opened it closes it; workers that inherited the mapping just end."""

    def __init__(self, path: Path, commitlog_file_size: int) -> None:
        self.block = lib.rp_control_open(os.fsencode(path), commitlog_file_size)
        if self.block == ffi.NULL:
            raise fail(f"cannot map {path}")
        self.header = lib.rp_control_header(self.block)

    def close(self) -> None:
        if self.block != ffi.NULL:
            lib.rp_control_close(self.block)
            self.block = self.header = ffi.NULL

    def reset(self) -> None:
        """Reset all fields, as in a new block."""
        status = lib.rp_control_reset(self.block)
        if status:
            raise fail("cannot reset the control block", status)

    def sync(self) -> None:
        status = lib.rp_control_sync(self.block)
        if status:
            raise fail("cannot write the control block back", status)

    @property
    def is_same_boot(self) -> bool:
        """Return True if the running kernel wrote it: then the page cache has survived everything since."""
        return bool(lib.rp_control_is_same_boot(self.block))

    def mark_boot(self) -> None:
        lib.rp_control_mark_boot(self.block)

    def forget_clock(self) -> None:
        """Reset the fields of the broker's clock and of the cautious clock, because they refer to the boot time of
        another kernel."""
        self.header.clock_slow_base_ms = self.header.clock_slowed_from_ms = 0
        self.header.cautious_lead_ms = self.header.wall_ahead_since_ms = 0

    def clock_ms(self, wall_ms: int, boot_ms: int) -> int:
        """The broker's clock, which store timestamps follow, at these values of wall clock and CLOCK_BOOTTIME."""
        return int(lib.rp_broker_clock_at(self.header, wall_ms, boot_ms))

    def clock_slowed_from_ms(self, wall_ms: int, boot_ms: int) -> int | None:
        """The broker's clock at the time when it began to run at half speed; None: it does not."""
        is_slowed = lib.rp_broker_clock_at(self.header, wall_ms, boot_ms) > wall_ms
        return int(self.header.clock_slowed_from_ms) if is_slowed else None

    @property
    def min_phy_offset(self) -> int:
        return int(self.header.min_phy_offset)

    @property
    def published_phy_offset(self) -> int:
        return int(self.header.published_phy_offset)

    @property
    def durable_phy_offset(self) -> int:
        return int(self.header.durable_phy_offset)

    @property
    def dispatched_phy_offset(self) -> int:
        return int(self.header.dispatched_phy_offset)

    @property
    def units_durable_phy_offset(self) -> int:
        return int(self.header.units_durable_phy_offset)

    def queue(self, topic: str, queue_id: int) -> Any | None:
        """The entry (`rp_queue *`) of a live queue, or None."""
        name = topic.encode("utf-8", "replace")
        entry = lib.rp_control_find(self.block, name, len(name), queue_id) if 0 <= queue_id < 1 << 31 else ffi.NULL
        return None if entry == ffi.NULL or entry.state != QUEUE_LIVE else entry

    def add_queue(self, topic: bytes, queue_id: int) -> Any:
        """Find or add an entry, and make it live."""
        entry = lib.rp_control_add(self.block, topic, len(topic), queue_id)
        if entry == ffi.NULL:
            what, header = f"queue {queue_id} of topic {topic.decode('utf-8', 'replace')}", self.header
            queues, topics = lib.RP_CONTROL_QUEUES_MAX, lib.RP_CONTROL_TOPICS_MAX
            if header.queue_count >= queues or header.topic_count >= topics:
                bounds = f"a store has at most {queues} queues and {topics} topics"
                raise StoreError(f"no room for {what}: {bounds}; {_LATER}")
            raise fail(f"cannot add {what}")
        return entry

    def add_queues(self, topic: bytes, count: int) -> None:
        """Add the first `count` queues of a topic, or none of them.

        Only a restart removes entries (recovery/control_entries.py): until then those of a topic that was refused would
        take the room of all others.

        Raises: StoreError (no room, or a name that cannot be a directory).
        """
        room = QUEUES_MAX - int(self.header.queue_count)
        if count > room:
            name = topic.decode("utf-8", "replace")
            new = count - sum(1 for entry in self.entries_of(name) if entry.queue_id < count)
            if new > room:
                what = f"the queues of topic {name}, of which {new} are new"
                raise StoreError(f"no room for {what}: a store has at most {QUEUES_MAX} queues; {_LATER}")
        for queue_id in range(count):
            self.add_queue(topic, queue_id)

    def delete_queues(self, topic: str) -> None:
        """Mark the topic's queues as deleted: they cannot be read until they are added again. Manager only."""
        for entry in self.entries_of(topic):
            entry.state = QUEUE_DELETED

    def delete_units(self, topic: str, below: int) -> None:
        """Mark units of the topic's records below a log offset as deleted; the store worker removes them. Manager
        only."""
        for entry in self.entries_of(topic):
            entry.deleted_below = max(entry.deleted_below, below)

    def deleted_topics(self) -> dict[str, bool]:
        """Topics with deleted queues -> whether those still hold messages."""
        _, deleted = self._sum_topics()
        return {self._topic(at): deleted[at] == DELETED_WITH_MESSAGES for at in self._topics() if deleted[at]}

    def deletion_bound(self, topic: str) -> int | None:
        """Records of the topic's deleted queues below this position are deleted; None: not known, the previous manager
        died before it was."""
        bounds = (int(entry.deleted_below) for entry in self.entries_of(topic) if entry.state == QUEUE_DELETED)
        return max(bounds, default=0) or None

    def entries(self) -> Iterator[Any]:
        """All entries, in any state."""
        for index in range(self.header.queue_count):
            yield lib.rp_control_queue(self.block, index)

    def entries_of(self, topic: str) -> Iterator[Any]:
        """All entries of one topic, in any state."""
        name = topic.encode("utf-8", "replace")
        index = 0
        while True:
            index = lib.rp_control_next_of_topic(self.block, name, len(name), index)
            if index >= self.header.queue_count:
                return
            yield lib.rp_control_queue(self.block, index)
            index += 1

    def index_of(self, entry: Any) -> int:
        return int(lib.rp_control_queue_index(self.block, entry))

    def topic_of(self, entry: Any) -> bytes:
        """Name of an entry's topic; empty if the entry is damaged."""
        if entry.topic >= self.header.topic_count:
            return b""
        name = ffi.new("const uint8_t **")
        size = lib.rp_control_topic(self.block, entry.topic, name)
        return bytes(ffi.buffer(name[0], size))

    def state_of(self, entry: Any) -> QueueState:
        return QueueState(
            topic=self.topic_of(entry).decode("utf-8", "replace"),
            queue_id=entry.queue_id,
            min_offset=entry.min_offset,
            max_offset=entry.max_offset,
            next_offset=entry.next_offset,
            max_phy_offset=entry.max_phy_offset,
        )

    def ends(self, topics: Mapping[str, int]) -> Generator[None, None, dict[str, tuple[int, int]]]:
        """Sum up the first offsets of the queues of each topic, and their ends. Work in steps: one scan of all entries,
        where a look for each queue takes ten times as long.

        Args:
            topics: with the number of queues that count.
        """
        sums = {topic: [count, 0, 0] for topic, count in topics.items()}
        by_index: dict[int, list[int]] = {}
        for number, (topic, of_topic) in enumerate(sums.items(), 1):
            queues = (self.queue(topic, queue_id) for queue_id in range(of_topic[0]))
            if (entry := next(filter(None, queues), None)) is not None:
                by_index[entry.topic] = of_topic
            if number % TOPICS_PER_STEP == 0:
                yield
        total = int(self.header.queue_count)
        for begin in range(0, total, ENTRIES_PER_STEP):
            size = min(ENTRIES_PER_STEP, total - begin) * ENTRY.size
            image = ffi.buffer(lib.rp_control_queue(self.block, begin), size)
            for high, low, index, queue_id, _, state in ENTRY.iter_unpack(image):
                if (found := by_index.get(index)) is not None and queue_id < found[0] and state == QUEUE_LIVE:
                    found[1] += low
                    found[2] += high
            yield
        return {topic: (low, high) for topic, (_, low, high) in sums.items()}

    def used_topics(self) -> dict[str, int]:
        """Topics that hold or have held messages -> number of queues up to the last queue that did."""
        used, _ = self._sum_topics()
        return {self._topic(at): used[at] for at in self._topics() if used[at]}

    def _sum_topics(self) -> tuple[Any, Any]:
        """By index of the topic: see rp_control_sum_topics. A million queues take some milliseconds."""
        used = ffi.new("uint32_t[]", lib.RP_CONTROL_TOPICS_MAX)
        deleted = ffi.new("uint8_t[]", lib.RP_CONTROL_TOPICS_MAX)
        lib.rp_control_sum_topics(self.block, used, deleted)
        return used, deleted

    def _topics(self) -> range:
        return range(min(self.header.topic_count, lib.RP_CONTROL_TOPICS_MAX))

    def _topic(self, index: int) -> str:
        name = ffi.new("const uint8_t **")
        size = lib.rp_control_topic(self.block, index, name)
        return bytes(ffi.buffer(name[0], size)).decode("utf-8", "replace")

    def queues(self) -> list[QueueState]:
        """All live queues."""
        return [self.state_of(entry) for entry in self.entries() if entry.state == QUEUE_LIVE]


class RunningFlag(enum.IntFlag):
    """Reasons why the store accepts no messages, as bits of the control block (the reference's RunningFlags)."""

    NOT_READABLE = lib.RP_FLAG_NOT_READABLE
    NOT_WRITEABLE = lib.RP_FLAG_NOT_WRITEABLE  # the log cannot be flushed; set by csrc/store/log/flush.c
    CONSUME_QUEUE_FAULT = lib.RP_FLAG_CONSUME_QUEUE_FAULT  # units cannot be written
    INDEX_FAULT = lib.RP_FLAG_INDEX_FAULT
    DISK_FULL = lib.RP_FLAG_DISK_FULL


class RunningFlags:
    """Sets and clears the flags, from several threads of the store worker."""

    def __init__(self, control: ControlBlock) -> None:
        self._header = control.header

    def __contains__(self, flag: RunningFlag) -> bool:
        return bool(self._header.running_flags & flag)

    def put(self, flag: RunningFlag, on: bool) -> bool:
        """Set or clear a flag. Returns whether it changed."""
        return bool(lib.rp_control_put_flag(self._header, flag, on))


class ControlView:
    """The header of a control block, for a process that must not change it, nor die of it.

    `ControlBlock` formats a block that it finds unusable, which one may seem to be while it changes. This view maps the
    first page for reading. It is for a store that is open: recovery may cut the file to nothing for a moment.

    Use `header` as that of ControlBlock; its fields are plain loads. Close it before another one is made.

    Raises:
        StoreError: there is no such file, or it is too short.
    """

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_size < mmap.PAGESIZE:
                    raise StoreError(f"{path} is no control block: it has less than {mmap.PAGESIZE} bytes")
                self._map = mmap.mmap(descriptor, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)
            finally:
                os.close(descriptor)
        except OSError as exc:
            raise store_error(exc, path, "map") from exc
        self._bytes: Any = ffi.from_buffer(self._map)
        self.header: Any = ffi.cast("const rp_control *", self._bytes)

    def close(self) -> None:
        self.header = ffi.NULL
        ffi.release(self._bytes)
        self._map.close()
