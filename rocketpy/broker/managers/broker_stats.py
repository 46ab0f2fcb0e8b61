"""Statistics of the broker: by name from the sums of the send and pull workers, totals from their counters.

Sends and pulls are served in C, which reports once a second what was stored in a queue and what a group got from it
(csrc/workers/shared/traffic.h). Broadcast reads, which commit no offset, are so counted like all others. What the slow
path does (send-backs, deliveries) is counted one by one.

Source: RocketMQ 4.9 `BrokerStatsManager`, `BrokerStats`, `StoreStatsService`; item names are the reference's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence

import attrs

from rocketpy.message.names import SCHEDULE_TOPIC
from rocketpy.remoting.fast_path import Traffic

from ..clock import Clock
from ..current_settings import CurrentSettings
from .stats_item import StatsItem, StatsSnapshot

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"  # of SCHEDULE_TOPIC_XXXX alone, as in the reference; key topic@queue
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"  # deliveries of delayed messages alone, as in the reference; topic@queue@group
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"  # ms; key queue@topic@group
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
# What the key of an item consists of, separated by @.
_KEYS = {
    TOPIC_PUT_NUMS: "topic", TOPIC_PUT_SIZE: "topic",
    QUEUE_PUT_NUMS: "topic queue", QUEUE_PUT_SIZE: "topic queue",
    QUEUE_GET_NUMS: "topic queue group", QUEUE_GET_SIZE: "topic queue group",
    GROUP_GET_NUMS: "topic group", GROUP_GET_SIZE: "topic group", GROUP_GET_LATENCY: "queue topic group",
    SNDBCK_PUT_NUMS: "topic group",
}  # fmt: skip
BY_NAME = tuple(_KEYS)  # items of topics and groups
KNOWN_ITEMS = (*BY_NAME, BROKER_PUT_NUMS, BROKER_GET_NUMS)
SCHEDULE_CONSUMER = "SCHEDULE_CONSUMER"  # the group that the deliveries of delayed messages count for

SAMPLE_S = 2
TPS_WINDOWS_S = (10, 60, 600)  # multiples of SAMPLE_S
ITEMS_PER_STEP = 500


@attrs.frozen
class WorkerCounters:
    """Totals since start, summed over the send and pull workers (csrc/ipc/worker_counters.h)."""

    messages_put: int = 0
    bytes_put: int = 0
    put_failed: int = 0
    messages_get: int = 0
    bytes_get: int = 0
    pulls: int = 0
    pull_misses: int = 0
    suspended_pulls: int = 0
    get_time_max_us: int = 0  # the longest look for the messages of a pull
    put_latency_buckets: tuple[int, ...] = ()  # bucket k: up to 2^k microseconds
    put_latency_sum_us: int = 0
    append_ms: int = 0  # how long the append under way has taken, with up to seven before it; 0: there is none
    timers_pending: int = 0  # gauges of the store worker
    timers_next_due_ms: int = 0
    timers_oldest_phy_offset: int = -1  # -1: none is pending


@attrs.frozen
class WorkerHealth:
    """A worker process as the others see it."""

    name: str
    is_ready: bool
    silent_ms: int  # since its loop last turned
    restarts: int


@attrs.frozen
class BrokerHealth:
    """The state of the broker's processes. Counters are totals since the start."""

    workers: Sequence[WorkerHealth] = ()
    connections_refused: int = 0
    unread_closed: int = 0  # connections closed because clients left answers unread
    certificate_not_after_s: int = 0  # 0: there is none


@attrs.frozen
class _Sample:
    at_ms: int
    counters: WorkerCounters


class BrokerStatsManager:
    """Counts what was put and got by topic, queue and group, over a minute, an hour and a day. One per broker."""

    def __init__(self, settings: CurrentSettings, counters: Callable[[], WorkerCounters], clock: Clock) -> None:
        self._settings = settings
        self.boot_timestamp_ms = clock.now_ms()
        self._cluster = settings.broker.broker_cluster_name
        self._counters = counters
        self._clock = clock
        self._items: dict[str, dict[str, StatsItem]] = {name: {} for name in KNOWN_ITEMS}
        self._samples: deque[_Sample] = deque(maxlen=TPS_WINDOWS_S[-1] // SAMPLE_S + 1)
        self._item_count = 0  # of topics and groups
        self._fall_sizes: dict[str, dict[int, int]] = {}  # topic@group -> queue id -> bytes behind
        self.put_total_yesterday_morning = 0
        self.put_total_today_morning = 0
        self.get_total_yesterday_morning = 0
        self.get_total_today_morning = 0

    @property
    def counters(self) -> WorkerCounters:
        return self._counters()

    def add(self, name: str, key: str, value: int, times: int = 1) -> None:
        item = self._items[name].get(key)
        if item is None:
            if self._item_count >= self._settings.rocketpy.stats_items_max:
                return  # statistics are no reason to refuse a request
            self._item_count += 1
            item = self._items[name][key] = StatsItem()
        item.add(value, times)

    def item(self, name: str, key: str) -> StatsItem | None:
        return self._items.get(name, {}).get(key)

    def keys(self, name: str) -> list[str]:
        """The keys of all items of this name."""
        return list(self._items[name])

    def minute(self, name: str, key: str) -> StatsSnapshot:
        """The figures of the last minute; zeros if nothing was counted."""
        item = self.item(name, key)
        return item.minute if item else StatsSnapshot()

    def fall_size(self, group: str, topic: str) -> int | None:
        """GROUP_GET_FALL_SIZE: from the last message that the group got to the end of the log, in bytes; the largest of
        its queues. None: it got none."""
        return max(self._fall_sizes.get(f"{topic}@{group}", {}).values(), default=None)

    def fall_sizes(self) -> list[tuple[str, str, int]]:
        """(topic, group, `fall_size`) of all that got a message."""
        rows = ((*key.partition("@"), max(sizes.values())) for key, sizes in self._fall_sizes.items())
        return [(topic, group, size) for topic, _, group, size in rows]

    def group_get_tps(self, group: str, topic: str) -> float:
        return self.minute(GROUP_GET_NUMS, f"{topic}@{group}").tps

    def count_traffic(self, traffic: Traffic) -> None:
        """Count what the send worker or a pull worker reports."""
        topic, queue_id, times = traffic.topic, traffic.queue_id, traffic.requests
        if traffic.group is None:
            self.add(TOPIC_PUT_NUMS, topic, traffic.messages, times)
            self.add(TOPIC_PUT_SIZE, topic, traffic.bytes, times)
            if topic == SCHEDULE_TOPIC and self._settings.broker.enable_detail_stat:
                self.add(QUEUE_PUT_NUMS, f"{topic}@{queue_id}", traffic.messages, times)
                self.add(QUEUE_PUT_SIZE, f"{topic}@{queue_id}", traffic.bytes, times)
            return
        self.add(GROUP_GET_NUMS, f"{topic}@{traffic.group}", traffic.messages, times)
        self.add(GROUP_GET_SIZE, f"{topic}@{traffic.group}", traffic.bytes, times)
        if self.item(GROUP_GET_NUMS, f"{topic}@{traffic.group}") is not None:
            self._fall_sizes.setdefault(f"{topic}@{traffic.group}", {})[queue_id] = traffic.behind_bytes
        queue = f"{queue_id}@" if self._settings.broker.enable_detail_stat else ""
        self.add(GROUP_GET_LATENCY, f"{queue}{topic}@{traffic.group}", traffic.wait_ms, times)

    def count_deliveries(self, level: int, messages: int, size: int) -> None:
        """Count delayed messages of `size` bytes together that were delivered, as got by the group of the reference."""
        for name, of_group, value in (
            (QUEUE_GET_NUMS, GROUP_GET_NUMS, messages),
            (QUEUE_GET_SIZE, GROUP_GET_SIZE, size),
        ):
            if self._settings.broker.enable_detail_stat:
                self.add(name, f"{SCHEDULE_TOPIC}@{level - 1}@{SCHEDULE_CONSUMER}", value)
            self.add(of_group, f"{SCHEDULE_TOPIC}@{SCHEDULE_CONSUMER}", value)

    def count_send_back(self, group: str, topic: str) -> None:
        self.add(SNDBCK_PUT_NUMS, f"{topic}@{group}", 1)

    def forget_topic(self, topic: str) -> Generator[None, None, None]:
        """Work in steps, because it goes through the items of every topic and group."""
        return self._forget("topic", topic)

    def forget_group(self, group: str) -> Generator[None, None, None]:
        """Work in steps."""
        return self._forget("group", group)

    def _forget(self, kind: str, name: str) -> Generator[None, None, None]:
        for item_name, parts in _KEYS.items():
            if kind in parts.split():
                from_end = parts.split().index(kind) - len(parts.split())  # latencies may have no queue in front
                yield from self._drop(item_name, _is_of(from_end, name))

    def _drop(self, name: str, is_gone: Callable[[str, StatsItem], bool]) -> Generator[None, None, None]:
        table = self._items[name]
        for number, key in enumerate(list(table), 1):
            item = table.get(key)
            if item is not None and is_gone(key, item):
                del table[key]
                self._item_count -= 1
                if name == GROUP_GET_NUMS:
                    self._fall_sizes.pop(key, None)
            if number % ITEMS_PER_STEP == 0:
                yield

    @property
    def uptime_s(self) -> int:
        """Seconds since the start, by the clock of the boot timestamp, as in the reference: both tell the time here."""
        return (self._clock.now_ms() - self.boot_timestamp_ms) // 1000

    def sample_counters(self) -> None:
        """Called every SAMPLE_S, for rates and latencies of the last minutes."""
        self._samples.append(_Sample(self._clock.monotonic_ms(), self._counters()))

    def _sample_before(self, window_s: int) -> _Sample | None:
        """Return the sample at the beginning of the last `window_s` seconds; None: there is none yet."""
        back = window_s // SAMPLE_S
        return self._samples[-back - 1] if len(self._samples) > back else None

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
        """Make today's morning total yesterday's. Called at midnight."""
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
            if (first := self._sample_before(window)) is not None:
                last = self._samples[-1]
                span_ms = last.at_ms - first.at_ms
                rates.append((value(last.counters) - value(first.counters)) * 1000 / span_ms if span_ms > 0 else 0.0)
        return rates or [0.0]

    def put_buckets(self, window_s: int | None = None) -> tuple[int, ...]:
        """Puts by latency (bucket k: up to 2^k microseconds), of the last `window_s` seconds; None: since the start."""
        now = self._counters().put_latency_buckets
        first = None if window_s is None else self._sample_before(window_s)
        if first is None:
            return now
        before = first.counters.put_latency_buckets
        return tuple(late - early for late, early in zip(now, before, strict=True)) if before else now

    def put_latency_ms(self, quantile: float, window_s: int | None = None) -> float:
        """Upper bound in ms of the latency bucket that contains this quantile of the puts."""
        buckets = self.put_buckets(window_s)
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


def _is_of(part: int, name: str) -> Callable[[str, StatsItem], bool]:
    """Return a condition: this part of an item's key is `name`."""
    return lambda key, item: key.split("@")[part] == name
