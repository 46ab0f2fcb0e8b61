"""The interface by which the slow path reads the store; rocketpy.store.reading.message_store.MessageStore implements
it.

Offsets of unknown queues are 0, timestamps of missing messages -1. Nothing here writes: messages are stored through the
fast path, because the send worker is the only writer.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol


class ConsumeQueueUnit(Protocol):
    """One unit of a queue: where its message is, how long, and the hash of its tag."""

    @property
    def phy_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def tags_code(self) -> int: ...


class QueryMessageResult(Protocol):
    """Result of a query by key."""

    @property
    def records(self) -> Sequence[bytes]: ...

    @property
    def index_last_update_timestamp_ms(self) -> int: ...

    @property
    def index_last_update_phy_offset(self) -> int: ...


class StoreStatistics(Protocol):
    """A frozen snapshot of the store's state."""

    @property
    def min_phy_offset(self) -> int: ...

    @property
    def published_phy_offset(self) -> int: ...

    @property
    def dispatch_behind_bytes(self) -> int: ...

    @property
    def flush_behind_bytes(self) -> int: ...

    @property
    def commitlog_disk_ratio(self) -> float: ...

    @property
    def consume_queue_disk_ratio(self) -> float: ...


class TopicsInLog(Protocol):
    """Topics that messages in a part of the log name."""

    @property
    def used(self) -> Mapping[str, int]:
        """Topic -> number of queues up to the last one that a message names."""

    @property
    def until(self) -> int:
        """The end of the part."""


class QueueState(Protocol):
    """State of one queue of the store."""

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def next_offset(self) -> int: ...


class Store(Protocol):
    """The store as the manager process uses it: reads, lookups and maintenance; it appends through the fast path."""

    def clock_ms(self) -> int:
        """The broker's clock, of store timestamps and delivery times; it never goes back."""

    def clock_slowed_from_ms(self) -> int | None:
        """Time at which that clock began to run at half speed because the system clock was set back; None: it does
        not."""

    def queue_states(self, topic: str | None = None) -> Sequence[QueueState]:
        """All queues of the store, also those of topics without a configuration."""

    def queue_count(self) -> int:
        """Queues that the store has ever had."""

    def used_topics(self) -> Mapping[str, int]:
        """Topics that hold messages -> number of queues up to the last queue that holds messages."""

    def topics_in_log(self, begin: int, end: int, size_max: int) -> Generator[None, None, TopicsInLog]:
        """Find the topics that messages name between two positions, readable or not yet, in steps. About `size_max`
        bytes are read."""

    def deleted_topics(self) -> Mapping[str, bool]:
        """Topics with deleted queues -> whether those still hold messages."""

    def deletion_bound(self, topic: str) -> int | None:
        """The position below which records of the topic's deleted queues are deleted; None: not known."""

    def is_whole(self, topic: str, queue_id: int) -> bool:
        """Return True if the queue still has the first message since its topic was created."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return `min_offset` and `max_offset`, at the cost of one."""

    def log_end_of(self, topic: str, queue_id: int) -> int | None:
        """The offset after the queue's last message in the log, readable or not yet; None for an unknown queue."""

    def message_store_timestamp(self, topic: str, queue_id: int, offset: int) -> int: ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int: ...

    def offset_since(self, topic: str, queue_id: int, timestamp_ms: int) -> int: ...

    def earliest_store_timestamp(self, topic: str, queue_id: int) -> int: ...

    def earliest_message_time(self) -> int: ...

    def look_message_by_offset(self, phy_offset: int, size_max: int | None = None) -> bytes | None:
        """The record at an offset of the log, or None, also if it is larger. Give a bound if a client gave the offset:
        it may point anywhere."""

    def message_query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, bytes_max: int
    ) -> Generator[None, None, QueryMessageResult]:
        """Records by key. Newer ones come first if not all fit in `bytes_max` together. Yields after each step."""

    def consume_queue_units(self, topic: str, queue_id: int, index: int, count: int) -> Sequence[ConsumeQueueUnit]: ...

    def next_queue_file(self, offset: int) -> int:
        """The first offset after `offset` in the next file of its queue: where to continue after damage."""

    def is_in_disk(self, phy_offset: int) -> bool: ...

    def statistics(self) -> StoreStatistics: ...

    def log_end(self) -> int:
        """The position below which every record of the log is complete."""

    def durable_end(self) -> int:
        """The position below which the log is on the disk."""

    def kept_phy_offset(self) -> int:
        """The log below it cannot be lost: it is on the disk, and, in a synchronous group with automatic failover,
        confirmed."""

    def trim(self) -> None:
        """Release deleted files; called from time to time."""

    def request_delete_expired(self) -> None:
        """Request that expired log files are deleted now, independent of deleteWhen; returns at once."""
