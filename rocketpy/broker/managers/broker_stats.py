"""Statistics of the broker: per topic and group from the slow path, totals from the counters of the send and pull
workers.

Sends and pulls are served in C, which counts totals only. The figures per name are derived in the slow path: a topic's
puts from the growth of its queues (`sample_topics`), a group's gets from the offsets that it commits. Send-backs are
counted one by one.

Source: RocketMQ 4.9 `BrokerStatsManager`, `BrokerStats`, `StoreStatsService`; item names are the reference's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable

import attrs
import trio

from rocketpy.transport.steps import Steps

from ..clock import Clock
from ..current_settings import CurrentSettings
from .stats_item import StatsItem

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
BY_NAME = (TOPIC_PUT_NUMS, GROUP_GET_NUMS, SNDBCK_PUT_NUMS)  # items of topics and groups
KNOWN_ITEMS = (*BY_NAME, BROKER_PUT_NUMS, BROKER_GET_NUMS)

TPS_WINDOWS_S = (10, 60, 600)
QUEUES_PER_STEP = 500  # queues read per step
ITEMS_PER_STEP = 500
BEGINNINGS_MAX = 10_000  # queues that groups have asked for and not committed yet


@attrs.frozen
class WorkerCounters:
    """Totals since start, summed over the send and pull workers (csrc/ipc/worker_messages.h RP_COUNT_*)."""

    messages_put: int = 0
    bytes_put: int = 0
    put_failed: int = 0
    messages_get: int = 0
    bytes_get: int = 0
    pulls: int = 0
    pull_misses: int = 0
    suspended_pulls: int = 0
    put_latency_buckets: tuple[int, ...] = ()  # bucket k: up to 2^k microseconds
    put_latency_sum_us: int = 0


@attrs.frozen
class _Second:
    at_ms: int
    counters: WorkerCounters


class BrokerStatsManager:
    def __init__(self, settings: CurrentSettings, counters: Callable[[], WorkerCounters], clock: Clock) -> None:
        self._settings = settings
        self.boot_timestamp_ms = clock.now_ms()
        self._booted_ms = clock.monotonic_ms()
        self._cluster = settings.broker.broker_cluster_name
        self._counters = counters
        self._clock = clock
        self._items: dict[str, dict[str, StatsItem]] = {name: {} for name in KNOWN_ITEMS}
        self._seconds: deque[_Second] = deque(maxlen=TPS_WINDOWS_S[-1] + 1)
        self._topic_ends: dict[str, int] = {}
        self._has_sampled = False
        self._beginnings: dict[tuple[str, str, int], int] = {}  # group, topic, queue id -> where the group begins
        self.put_total_yesterday_morning = 0
        self.put_total_today_morning = 0
        self.get_total_yesterday_morning = 0
        self.get_total_today_morning = 0

    @property
    def counters(self) -> WorkerCounters:
        return self._counters()

    def add(self, name: str, key: str, value: int, times: int = 1) -> None:
        table = self._items[name]
        item = table.get(key)
        if item is None:
            if sum(len(self._items[name]) for name in BY_NAME) >= self._settings.rocketpy.stats_items_max:
                return  # statistics are no reason to refuse a request
            item = table[key] = StatsItem()
        item.add(value, times)

    def item(self, name: str, key: str) -> StatsItem | None:
        return self._items.get(name, {}).get(key)

    def group_get_tps(self, group: str, topic: str) -> float:
        item = self.item(GROUP_GET_NUMS, f"{topic}@{group}")
        return item.minute.tps if item else 0.0

    def group_begins(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A member asked for the offset of a queue in which its group has none: it begins at `offset`. The oldest are
        forgotten when there are too many: some group's first commit is not counted then."""
        self._beginnings.pop((group, topic, queue_id), None)
        if len(self._beginnings) >= BEGINNINGS_MAX:
            del self._beginnings[next(iter(self._beginnings))]
        self._beginnings[group, topic, queue_id] = offset

    def count_commit(self, group: str, topic: str, queue_id: int, before: int, offset: int) -> None:
        """Count the progress of a group as consumed messages. `before` is its last offset, -1 if it had none."""
        begins = self._beginnings.pop((group, topic, queue_id), offset) if self._beginnings else offset
        messages = offset - (before if before >= 0 else begins)
        if messages > 0:
            self.count_consumed(group, topic, messages)

    def count_consumed(self, group: str, topic: str, messages: int) -> None:
        self.add(GROUP_GET_NUMS, f"{topic}@{group}", messages)

    def count_send_back(self, group: str, topic: str) -> None:
        self.add(SNDBCK_PUT_NUMS, f"{topic}@{group}", 1)

    def forget_topic(self, topic: str) -> Generator[None, None, None]:
        """Work in steps, because it goes through the items of every topic and group."""
        self._topic_ends.pop(topic, None)
        self._items[TOPIC_PUT_NUMS].pop(topic, None)
        return self._forget(lambda key, item: key.startswith(f"{topic}@"))

    def forget_group(self, group: str) -> Generator[None, None, None]:
        """Work in steps."""
        return self._forget(lambda key, item: key.endswith(f"@{group}"))

    def _forget(self, is_gone: Callable[[str, StatsItem], bool]) -> Generator[None, None, None]:
        for name in (GROUP_GET_NUMS, SNDBCK_PUT_NUMS):
            yield from self._drop(name, is_gone)

    def _drop(self, name: str, is_gone: Callable[[str, StatsItem], bool]) -> Generator[None, None, None]:
        table = self._items[name]
        for number, key in enumerate(list(table), 1):
            item = table.get(key)
            if item is not None and is_gone(key, item):
                del table[key]
            if number % ITEMS_PER_STEP == 0:
                yield

    async def sample_topics(
        self,
        topics: Iterable[tuple[str, int]],
        max_offset: Callable[[str, int], int],
        min_offset: Callable[[str, int], int],
    ) -> None:
        """Count each topic's growth since the last call; (topic, queues) pairs, in steps that let others run.

        What the first call finds was there before. A topic that a later call finds for the first time is new: all of
        it is growth, from its first kept messages on: in a topic created again, offsets go on where they were.
        """
        steps = Steps(QUEUES_PER_STEP)
        for topic, queue_nums in topics:
            end = 0
            for queue_id in range(queue_nums):
                end += max(0, max_offset(topic, queue_id))
                await steps.did()
            await steps.did()
            before = self._topic_ends.get(topic)
            if before is None and not self._has_sampled:
                before = end
            elif before is None:
                before = sum(max(0, min_offset(topic, queue_id)) for queue_id in range(queue_nums))
                await steps.did(queue_nums)
            self._topic_ends[topic] = end
            if end > before:
                self.add(TOPIC_PUT_NUMS, topic, end - before)
        self._has_sampled = True
        await trio.lowlevel.checkpoint()

    @property
    def uptime_s(self) -> int:
        return (self._clock.monotonic_ms() - self._booted_ms) // 1000

    def sample_second(self) -> None:
        self._seconds.append(_Second(self._clock.monotonic_ms(), self._counters()))

    def sample_minute(self) -> Generator[None, None, None]:
        """Called every 10 s: take the snapshots for the figures of the last minute. Work in steps, as the next two."""
        self._count_totals()
        return self._sample(StatsItem.sample_minute)

    def sample_hour(self) -> Generator[None, None, None]:
        return self._sample(StatsItem.sample_hour)

    def sample_day(self) -> Generator[None, None, None]:
        """Every hour; items that counted nothing for a day make room for others."""
        yield from self._sample(StatsItem.sample_day)
        for name in BY_NAME:
            yield from self._drop(name, lambda key, item: item.is_idle)

    def _sample(self, sample: Callable[[StatsItem, int], None]) -> Generator[None, None, None]:
        now_ms = self._clock.now_ms()
        for table in self._items.values():
            for number, key in enumerate(list(table), 1):
                item = table.get(key)
                if item is not None:
                    sample(item, now_ms)
                if number % ITEMS_PER_STEP == 0:
                    yield

    def new_day(self) -> None:
        """At midnight: today's morning total becomes yesterday's."""
        now = self._counters()
        self.put_total_yesterday_morning = self.put_total_today_morning
        self.get_total_yesterday_morning = self.get_total_today_morning
        self.put_total_today_morning = now.messages_put
        self.get_total_today_morning = now.messages_get

    def rates(self, value: Callable[[WorkerCounters], int]) -> list[float]:
        """Per-second rates of the last 10, 60 and 600 s, of the windows that have enough samples; at least one
        figure."""
        rates = []
        for window in TPS_WINDOWS_S:
            if len(self._seconds) > window:
                first, last = self._seconds[-window - 1], self._seconds[-1]
                span_ms = last.at_ms - first.at_ms
                rates.append((value(last.counters) - value(first.counters)) * 1000 / span_ms if span_ms > 0 else 0.0)
        return rates or [0.0]

    def put_latency_ms(self, quantile: float) -> float:
        """Upper bound in ms of the latency bucket that contains this quantile of all puts."""
        buckets = self._counters().put_latency_buckets
        rank = sum(buckets) * quantile
        seen = 0
        for power, count in enumerate(buckets):
            seen += count
            if count and seen >= rank:
                return float(2**power) / 1000
        return 0.0

    def _count_totals(self) -> None:
        now = self._counters()
        for name, total in ((BROKER_PUT_NUMS, now.messages_put), (BROKER_GET_NUMS, now.messages_get)):
            item = self._items[name].setdefault(self._cluster, StatsItem())
            item.value = max(item.value, total)  # a restarted worker counts on in the same block; never go back
