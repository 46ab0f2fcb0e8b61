"""A message store in memory, as a broker's slow path sees it."""

from __future__ import annotations

from collections.abc import Callable, Generator

import attrs

UNITS_PER_FILE = 8


@attrs.frozen
class Unit:
    phy_offset: int
    size: int
    tags_code: int = 0


@attrs.frozen
class Query:
    records: list[bytes]
    index_last_update_timestamp_ms: int = 1
    index_last_update_phy_offset: int = 2


@attrs.frozen
class TopicsInLog:
    used: dict[str, int]
    until: int


@attrs.frozen
class State:
    topic: str
    queue_id: int = 0
    next_offset: int = 0


@attrs.frozen
class Statistics:
    min_phy_offset: int = 0
    published_phy_offset: int = 4096
    dispatch_behind_bytes: int = 5
    flush_behind_bytes: int = 2048
    commitlog_disk_ratio: float = 0.25
    consume_queue_disk_ratio: float = 0.5


class FakeStore:
    """Queues are lists of (unit, store time); records lie at the offsets that the test says."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.queues: dict[tuple[str, int], list[tuple[Unit, int]]] = {}
        self.low: dict[tuple[str, int], int] = {}
        self.begins: dict[tuple[str, int], int] = {}  # offset of the first message of the topic, if not 0
        self.deleted: dict[str, bool] = {}
        self.named: list[tuple[int, str, int]] = []  # positions of the log, topics that messages name there, queues
        self.deletion_bounds: dict[str, int] = {}
        self.records: dict[int, bytes] = {}
        self.on_disk_below = 0
        self.found: list[bytes] = []
        self.queried: list[tuple[str, str, int, int, int]] = []
        self.trimmed, self.behind_bytes, self.delete_requests = 0, 5, 0
        self.queue_count: Callable[[], int] = lambda: len(self.queues)
        self.now_ms, self._earliest_ms = now_ms, now_ms()
        self.slowed_from_ms: int | None = None
        self.end = self.durable = 4096  # of the log

    def clock_ms(self) -> int:
        return self.now_ms()

    def clock_slowed_from_ms(self) -> int | None:
        return self.slowed_from_ms

    def request_delete_expired(self) -> None:
        self.delete_requests += 1

    def fill(self, topic: str, queue_id: int, count: int, *, low: int = 0, tags_code: int = 0) -> None:
        self.queues[topic, queue_id] = [(Unit(1000 + i, 50, tags_code), self._earliest_ms + i) for i in range(count)]
        self.low[topic, queue_id] = low

    def queue_states(self, topic: str | None = None) -> list[State]:
        known = self.queues.items()
        return [State(name, queue_id, len(units)) for (name, queue_id), units in known if topic in (None, name)]

    def used_topics(self) -> dict[str, int]:
        used = sorted(queue for queue, units in self.queues.items() if units)
        return {topic: queue_id + 1 for topic, queue_id in used}

    def topics_in_log(self, begin: int, end: int, size_max: int) -> Generator[None, None, TopicsInLog]:
        yield
        until = min(end, begin + size_max)
        return TopicsInLog({topic: count for at, topic, count in self.named if begin <= at < until}, until)

    def deleted_topics(self) -> dict[str, bool]:
        return self.deleted

    def deletion_bound(self, topic: str) -> int | None:
        return self.deletion_bounds.get(topic)

    def is_whole(self, topic: str, queue_id: int) -> bool:
        return self.min_offset(topic, queue_id) == self.begins.get((topic, queue_id), 0)

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.low.get((topic, queue_id), 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), []))

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)

    def log_end_of(self, topic: str, queue_id: int) -> int | None:
        units = self.queues.get((topic, queue_id))
        return None if units is None else len(units)

    def message_store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        entries = self.queues.get((topic, queue_id), [])
        return entries[offset][1] if 0 <= offset < len(entries) else -1

    def earliest_store_timestamp(self, topic: str, queue_id: int) -> int:
        return self.message_store_timestamp(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_message_time(self) -> int:
        return self._earliest_ms

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        entries = self.queues.get((topic, queue_id), [])
        distances = [(abs(stored - timestamp_ms), i) for i, (_, stored) in enumerate(entries)]
        return min(distances)[1] if distances else 0

    def offset_since(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        entries = self.queues.get((topic, queue_id), [])
        return next((i for i, (_, stored) in enumerate(entries) if stored >= timestamp_ms), len(entries))

    def look_message_by_offset(self, phy_offset: int, size_max: int | None = None) -> bytes | None:
        record = self.records.get(phy_offset)
        return None if record is None or (size_max is not None and len(record) > size_max) else record

    def message_query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, bytes_max: int
    ) -> Generator[None, None, Query]:
        self.queried.append((topic, key, max_num, begin_ms, end_ms))
        yield
        return Query(self.found)

    def consume_queue_units(self, topic: str, queue_id: int, index: int, count: int) -> list[Unit]:
        if index < self.min_offset(topic, queue_id):
            return []
        return [unit for unit, _ in self.queues.get((topic, queue_id), [])[index : index + count]]

    def next_queue_file(self, offset: int) -> int:
        return offset - offset % UNITS_PER_FILE + UNITS_PER_FILE

    def is_in_disk(self, phy_offset: int) -> bool:
        return phy_offset < self.on_disk_below

    def statistics(self) -> Statistics:
        return Statistics(published_phy_offset=self.end, dispatch_behind_bytes=self.behind_bytes)

    def log_end(self) -> int:
        return self.end

    def durable_end(self) -> int:
        return self.durable

    def kept_phy_offset(self) -> int:
        return self.durable

    def trim(self) -> None:
        self.trimmed += 1
