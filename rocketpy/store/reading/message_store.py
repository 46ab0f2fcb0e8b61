"""The read interface of the store, for the manager.

Results are as current as the control block, which the workers update. Calls read the page cache; a read of old messages
may wait for the disk. Not thread-safe.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Mapping

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import RecordCorrupt
from rocketpy.message.numbers import PhyOffset, QueueOffset
from rocketpy.message.properties import KEYS, UNIQ_KEY, find_property
from rocketpy.message.record import decode_record

from ..clocks import boot_clock_ms, wall_clock_ms
from ..control_block import ControlBlock, QueueState
from ..files import DiskFiles, Files, StorePaths, disk_ratio
from ..formats.index_file import Index
from ..formats.unit import ConsumeQueueUnit, rounded_file_size
from .commitlog import CommitLog
from .consume_queue import ConsumeQueues
from .get_message import GetMessageResult, GetMessageStatus, TransferLimits, get_message
from .log_topics import TopicsInLog, topics_in_log
from .time_search import offset_by_time, offset_since

__all__ = ["GetMessageResult", "GetMessageStatus", "MessageStore", "QueryResult", "StoreStatistics"]


@attrs.frozen
class QueryResult:
    """Records that have the key, oldest first."""

    records: list[bytes]
    index_last_update_timestamp_ms: int
    index_last_update_phy_offset: int


@attrs.frozen
class StoreStatistics:
    """A snapshot of the store; offsets in bytes of the log."""

    min_phy_offset: int
    published_phy_offset: int
    durable_phy_offset: int
    dispatched_phy_offset: int
    replicated_phy_offset: int
    dispatch_behind_bytes: int
    flush_behind_bytes: int
    last_store_timestamp_ms: int
    queue_count: int
    topic_count: int
    commitlog_disk_ratio: float
    consume_queue_disk_ratio: float
    running_flags: int


def physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class MessageStore:
    """See the module."""

    def __init__(
        self,
        config: MessageStoreConfig,
        control: ControlBlock,
        files: Files | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        """`memory_bytes`: of the machine; records further from the log's end than the configured share of it count as
        on disk."""
        self.config = config
        self.control = control
        self.files = files or DiskFiles()
        self.paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        self.open_again()
        self.index = Index(self.paths.index, config.max_hash_slot_num, config.max_index_num, self.files)
        memory = physical_memory_bytes() if memory_bytes is None else memory_bytes
        self.limits = TransferLimits(
            memory_bytes=memory * config.access_message_in_memory_max_ratio // 100,
            bytes_in_memory=config.max_transfer_bytes_on_message_in_memory,
            count_in_memory=config.max_transfer_count_on_message_in_memory,
            bytes_in_disk=config.max_transfer_bytes_on_message_in_disk,
            count_in_disk=config.max_transfer_count_on_message_in_disk,
        )

    def open_again(self) -> None:
        """Forget open files: in a forked process that has closed their descriptors."""
        config = self.config
        self.log = CommitLog(self.paths.commitlog, self.control, read_ahead=config.data_read_ahead_enable)
        size = rounded_file_size(config.mapped_file_size_consume_queue)
        self.queues = ConsumeQueues(
            self.paths.consumequeue, self.control, size, self.files, config.mapped_file_size_consume_queue_ext
        )

    def close(self) -> None:
        """Closes files; the control block belongs to its owner."""
        self.log.close()
        self.queues.close()

    # --- time ---

    def clock_ms(self) -> int:
        """The broker's clock, of store timestamps and delivery times, ms since the epoch; it never goes back."""
        return self.control.clock_ms(wall_clock_ms(), boot_clock_ms())

    def clock_slowed_from_ms(self) -> int | None:
        """Time at which that clock began to run at half speed because the system clock was set back; None: it does
        not."""
        return self.control.clock_slowed_from_ms(wall_clock_ms(), boot_clock_ms())

    # --- queues ---

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """First offset that can be read; 0 for an unknown queue."""
        queue = self.control.queue(topic, queue_id)
        return QueueOffset(0 if queue is None else int(queue.min_offset))

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Last offset that can be read plus 1; 0 for an unknown queue."""
        queue = self.control.queue(topic, queue_id)
        return QueueOffset(0 if queue is None else int(queue.max_offset))

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return `min_offset` and `max_offset`, at the cost of one."""
        queue = self.control.queue(topic, queue_id)
        return (0, 0) if queue is None else (int(queue.min_offset), int(queue.max_offset))

    def ends_of_topics(self, topics: Mapping[str, int]) -> Generator[None, None, dict[str, tuple[int, int]]]:
        """Sum up the first offsets of the queues of each topic, and their ends; see ControlBlock.ends."""
        return self.control.ends(topics)

    def log_end_of(self, topic: str, queue_id: int) -> QueueOffset | None:
        """The offset after the queue's last message in the log, readable or not yet; None for an unknown queue."""
        queue = self.control.queue(topic, queue_id)
        return None if queue is None else QueueOffset(max(int(queue.next_offset), int(queue.max_offset)))

    def queue_states(self, topic: str | None = None) -> list[QueueState]:
        """All live queues, or those of one topic."""
        return [state for state in self.control.queues() if topic is None or state.topic == topic]

    def queue_count(self) -> int:
        """Queues that the store has ever had."""
        return int(self.control.header.queue_count)

    def used_topics(self) -> dict[str, int]:
        """Topics that hold or have held messages -> number of queues up to the last queue that did."""
        return self.control.used_topics()

    def consume_queue_units(self, topic: str, queue_id: int, index: int, count: int) -> list[ConsumeQueueUnit]:
        """Up to `count` units from `index` on, across files, with their tags codes or delivery times."""
        queue = self.control.queue(topic, queue_id)
        units: list[ConsumeQueueUnit] = []
        while queue is not None and len(units) < count:
            more = self.queues.units(queue, index + len(units), count - len(units))
            if not more:
                break
            units += self.queues.with_tags(queue, more)
        return units

    def next_queue_file(self, offset: int) -> int:
        """The first offset after `offset` in the next file of its queue: where to continue after damage."""
        return offset - offset % self.queues.units_per_file + self.queues.units_per_file

    def deleted_topics(self) -> dict[str, bool]:
        """Topics with deleted queues -> whether those still hold messages."""
        return self.control.deleted_topics()

    def deletion_bound(self, topic: str) -> int | None:
        """The position below which records of the topic's deleted queues are deleted; None: not known."""
        return self.control.deletion_bound(topic)

    def is_whole(self, topic: str, queue_id: int) -> bool:
        """Return True if the queue still has the first message since its topic was created, or is unknown. Offsets
        continue when a topic is deleted and created again, so the first one need not be 0."""
        queue = self.control.queue(topic, queue_id)
        if queue is None or queue.min_offset == 0:
            return True
        return bool(queue.deleted_below and self.control.min_phy_offset <= queue.deleted_below)

    # --- time ---

    def message_store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time (ms) of the message at an offset, or -1."""
        units = self.consume_queue_units(topic, queue_id, offset, 1)
        return self.log.store_timestamp_ms(units[0].phy_offset, units[0].size) if units else -1

    def earliest_store_timestamp(self, topic: str, queue_id: int) -> int:
        """Store time (ms) of the queue's first message, or -1."""
        return self.message_store_timestamp(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_message_time(self) -> int:
        """Store time (ms) of the log's first record, or -1."""
        at = self.control.min_phy_offset
        image = self.log.record_image(at)
        return -1 if image is None else self.log.store_timestamp_ms(at, len(image))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> QueueOffset:
        """The offset of the message stored nearest to a time; see time_search.py."""
        queue = self.control.queue(topic, queue_id)
        if queue is None:
            return QueueOffset(0)
        return QueueOffset(
            offset_by_time(
                self.queues.file_times(queue),
                self.queues.file_size,
                int(queue.min_offset),
                int(queue.max_offset),
                self.control.min_phy_offset,
                timestamp_ms,
                lambda offset, count: self.queues.raw_units(queue, offset, count),
                lambda unit: self.log.store_timestamp_ms(unit.phy_offset, unit.size),
            )
        )

    def offset_since(self, topic: str, queue_id: int, timestamp_ms: int) -> QueueOffset:
        """The first offset stored at or after a time; the maximum if there is none."""
        queue = self.control.queue(topic, queue_id)
        if queue is None:
            return QueueOffset(0)
        return QueueOffset(
            offset_since(
                int(queue.min_offset),
                int(queue.max_offset),
                self.control.min_phy_offset,
                timestamp_ms,
                lambda offset, count: self.queues.raw_units(queue, offset, count),
                lambda unit: self.log.store_timestamp_ms(unit.phy_offset, unit.size),
            )
        )

    # --- messages ---

    def look_message_by_offset(self, phy_offset: int, size_max: int | None = None) -> bytes | None:
        """The record that starts at a log offset, or None, also if it has more than `size_max` bytes. Give a bound if
        the offset comes from a client. What dispatch may not show yet, this does not either."""
        header = self.control.header
        if header.stops_at_confirmed and phy_offset >= header.confirmed_phy_offset:
            return None
        return self.log.record_image(phy_offset, size_max)

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_num: int, tag_hashes: Collection[int] | None = None
    ) -> GetMessageResult:
        """Records from a queue offset on; see get_message.py. `tag_hashes`: hashes of the tags wanted, None for all."""
        queue = self.control.queue(topic, queue_id)
        return get_message(queue, offset, max_num, tag_hashes, queues=self.queues, log=self.log, limits=self.limits)

    def message_query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, bytes_max: int | None = None
    ) -> Generator[None, None, QueryResult]:
        """Records of the topic that have the key. Yields after each step.

        The index knows hashes, and topics and keys with the same hash are easily found: the reference returns their
        messages as well, and its clients drop them. Here they may be of a topic that the client may not read.

        `bytes_max`: of the records together; newer ones come first if not all fit.

        Source: RocketMQ 4.9 `DefaultMessageStore#queryMessage`.
        """
        max_num = min(max_num, self.config.max_msgs_num_batch)

        def accepts(phy_offset: int) -> bool:
            image = self.log.record_image(phy_offset, bytes_max)
            return image is not None and _has_key(image, topic, key)

        found = yield from self.index.query(topic, key, max_num, begin_ms, end_ms, accepts)
        records = yield from self._records(sorted(found.phy_offsets), bytes_max)
        return QueryResult(records, found.last_update_timestamp_ms, found.last_update_phy_offset)

    def _records(self, offsets: list[int], bytes_max: int | None) -> Generator[None, None, list[bytes]]:
        """The records at ascending offsets. Newer ones come first if not all fit in `bytes_max` together."""
        records: list[bytes] = []
        left = bytes_max
        for offset in reversed(offsets):
            image = self.log.record_image(offset, left)
            if image is not None:
                records.append(image)
                left = None if left is None else left - len(image)
            yield
        return records[::-1]

    # --- the log ---

    @property
    def min_phy_offset(self) -> PhyOffset:
        return PhyOffset(self.control.min_phy_offset)

    @property
    def max_phy_offset(self) -> PhyOffset:
        return PhyOffset(self.control.published_phy_offset)

    def log_end(self) -> PhyOffset:
        """The position below which every record of the log is complete."""
        return PhyOffset(self.control.published_phy_offset)

    def topics_in_log(self, begin: int, end: int, size_max: int) -> Generator[None, None, TopicsInLog]:
        """Find the topics that messages of the log name from `begin` on, in steps, in about `size_max` bytes of it."""
        return topics_in_log(self.log, begin, end, size_max)

    def durable_end(self) -> PhyOffset:
        """The position below which the log is on the disk."""
        return PhyOffset(self.control.durable_phy_offset)

    @property
    def dispatch_behind_bytes(self) -> int:
        return max(0, self.control.published_phy_offset - self.control.dispatched_phy_offset)

    def is_in_disk(self, phy_offset: int) -> bool:
        """Return True if a record is so old that it is probably not in memory."""
        return self.control.published_phy_offset - phy_offset > self.limits.memory_bytes

    @property
    def commitlog_disk_ratio(self) -> float:
        return disk_ratio(self.files, self.paths.commitlog)

    @property
    def consume_queue_disk_ratio(self) -> float:
        return disk_ratio(self.files, self.paths.consumequeue)

    def request_delete_expired(self) -> None:
        """Request that the store worker deletes expired files now, independent of deleteWhen (code 329)."""
        self.control.header.delete_requests += 1

    def kept_phy_offset(self) -> int:
        """The log below it cannot be lost: it is on the disk, and, in a synchronous group with automatic failover,
        confirmed."""
        header = self.control.header
        durable = int(header.durable_phy_offset)
        return min(durable, int(header.confirmed_phy_offset)) if header.stops_at_confirmed else durable

    def trim(self) -> None:
        """Release deleted files, so that their disk space becomes free; called from time to time."""
        self.log.trim()
        self.queues.release_files()

    def statistics(self) -> StoreStatistics:
        header = self.control.header
        published = int(header.published_phy_offset)
        return StoreStatistics(
            min_phy_offset=header.min_phy_offset,
            published_phy_offset=published,
            durable_phy_offset=header.durable_phy_offset,
            dispatched_phy_offset=header.dispatched_phy_offset,
            replicated_phy_offset=header.replicated_phy_offset,
            dispatch_behind_bytes=max(0, published - header.dispatched_phy_offset),
            flush_behind_bytes=max(0, published - header.durable_phy_offset),
            last_store_timestamp_ms=header.last_store_timestamp_ms,
            queue_count=header.queue_count,
            topic_count=header.topic_count,
            commitlog_disk_ratio=self.commitlog_disk_ratio,
            consume_queue_disk_ratio=self.consume_queue_disk_ratio,
            running_flags=header.running_flags,
        )


def _has_key(image: bytes, topic: str, key: str) -> bool:
    """Return True if the record is of the topic, and the key is its unique key or one of its keys."""
    try:
        record = decode_record(image)
    except RecordCorrupt:
        return False
    if record is None or record.topic != topic:
        return False
    unique, keys = (find_property(record.properties, name.encode()) or b"" for name in (UNIQ_KEY, KEYS))
    return bool(key) and (key == unique.decode("utf-8", "replace") or key in keys.decode("utf-8", "replace").split(" "))
