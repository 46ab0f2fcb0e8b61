"""The broker's state as text for operators: GET_BROKER_RUNTIME_INFO (28), with every key of the reference, and the
water-mark lines of the log.

The Prometheus exporter parses most of these keys without a check. One missing key loses all its
`rocketmq_brokeruntime_*` metrics, so a key that has no meaning here still gets a value.

Source: RocketMQ 4.9 `AdminBrokerProcessor#prepareRuntimeInfo`, `DefaultMessageStore#getRuntimeInfo`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from rocketpy.codes import OUR_VERSION, version_name
from rocketpy.logs import LogLimit
from rocketpy.message.names import TIMER_TOPIC
from rocketpy.message.record import decode_record
from rocketpy.remoting.limits import PoolLoad

from .services import BrokerServices

logger = logging.getLogger(__name__)

# Upper bounds of the reference's put-time buckets, ms, and how it prints them.
_BUCKETS = (
    (0, "<=0ms"),
    (10, "0~10ms"),
    (50, "10~50ms"),
    (100, "50~100ms"),
    (200, "100~200ms"),
    (500, "200~500ms"),
    (1_000, "500ms~1s"),
    (2_000, "1~2s"),
    (3_000, "2~3s"),
    (4_000, "3~4s"),
    (5_000, "4~5s"),
    (10_000, "5~10s"),
    (1 << 62, "10s~"),
)
WATER_MARK_FROM_MS = 100
WATER_MARK_INTERVAL_S = 10.0
LATENCY_WINDOW_S = 60  # of putMessageDistributeTime and the percentiles, as in the reference
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def runtime_info(services: BrokerServices) -> dict[str, str]:
    of_reference = _of_broker(services) | _of_puts_and_gets(services) | _of_store(services)
    return of_reference | _of_timers(services) | _of_processes(services)


def _of_broker(services: BrokerServices) -> dict[str, str]:
    config, stats, loads = services.settings.broker, services.stats, services.pool_loads()
    counters, ignored = stats.counters, services.settings.value.without_effect
    return {
        "brokerVersionDesc": version_name(OUR_VERSION),
        "brokerVersion": str(int(OUR_VERSION)),
        "bootTimestamp": str(stats.boot_timestamp_ms),
        "runtime": duration_text(stats.uptime_s),
        "msgPutTotalYesterdayMorning": str(stats.put_total_yesterday_morning),
        "msgPutTotalTodayMorning": str(stats.put_total_today_morning),
        "msgPutTotalTodayNow": str(counters.messages_put),
        "msgGetTotalYesterdayMorning": str(stats.get_total_yesterday_morning),
        "msgGetTotalTodayMorning": str(stats.get_total_today_morning),
        "msgGetTotalTodayNow": str(counters.messages_get),
        "sendThreadPoolQueueSize": str(_load(loads, "send").waiting),
        "sendThreadPoolQueueCapacity": str(ignored.sendThreadPoolQueueCapacity),
        "pullThreadPoolQueueSize": str(_load(loads, "pull").waiting),
        "pullThreadPoolQueueCapacity": str(config.pull_thread_pool_queue_capacity),
        "queryThreadPoolQueueSize": str(_load(loads, "query").waiting),
        "queryThreadPoolQueueCapacity": str(config.query_thread_pool_queue_capacity),
        "EndTransactionQueueSize": "0",  # they wait among the sends
        "EndTransactionThreadPoolQueueCapacity": str(ignored.endTransactionPoolQueueCapacity),
        "sendThreadPoolQueueHeadWaitTimeMills": str(_load(loads, "send").head_wait_ms),
        "pullThreadPoolQueueHeadWaitTimeMills": str(_load(loads, "pull").head_wait_ms),
        "queryThreadPoolQueueHeadWaitTimeMills": str(_load(loads, "query").head_wait_ms),
        "pageCacheLockTimeMills": str(stats.counters.append_ms),
        "startAcceptSendRequestTimeStamp": str(config.start_accept_send_request_time_stamp),
    }


def _load(loads: Mapping[str, PoolLoad], pool: str) -> PoolLoad:
    return loads.get(pool) or PoolLoad(0, 0)


def _of_puts_and_gets(services: BrokerServices) -> dict[str, str]:
    stats = services.stats
    counters = stats.counters
    average = counters.bytes_put / counters.messages_put if counters.messages_put else 0.0
    return {
        "putMessageEntireTimeMax": str(int(stats.put_latency_ms(1.0))),
        "putMessageTimesTotal": str(max(1, counters.messages_put)),
        "putMessageFailedTimes": str(counters.put_failed),
        "putMessageSizeTotal": str(counters.bytes_put),
        "putMessageAverageSize": f"{average}",
        "putMessageDistributeTime": put_distribution(stats.put_buckets(LATENCY_WINDOW_S)),
        "getMessageEntireTimeMax": str(counters.get_time_max_us // 1000),
        "putTps": _rates(stats.rates(lambda c: c.messages_put)),
        "getFoundTps": _rates(stats.rates(lambda c: c.pulls - c.pull_misses)),
        "getMissTps": _rates(stats.rates(lambda c: c.pull_misses)),
        "getTotalTps": _rates(stats.rates(lambda c: c.pulls)),
        "getTransferedTps": _rates(stats.rates(lambda c: c.messages_get)),
        "putLatency99": f"{stats.put_latency_ms(0.99, LATENCY_WINDOW_S):.2f}",
        "putLatency999": f"{stats.put_latency_ms(0.999, LATENCY_WINDOW_S):.2f}",
    }


def _of_store(services: BrokerServices) -> dict[str, str]:
    config, store = services.settings.store, services.store
    statistics = store.statistics()
    log_path = Path(config.store_path_commit_log)
    ratio = statistics.commitlog_disk_ratio
    total, free = disk_space(log_path)
    info = {
        "dispatchMaxBuffer": "0",  # as in 4.9, where nothing sets it
        "dispatchBehindBytes": str(statistics.dispatch_behind_bytes),
        "commitLogDiskRatio": f"{ratio}",
        f"commitLogDiskRatio_{config.store_path_commit_log}": f"{ratio}",
        "consumeQueueDiskRatio": f"{statistics.consume_queue_disk_ratio}",
        "commitLogMinOffset": str(statistics.min_phy_offset),
        "commitLogMaxOffset": str(statistics.published_phy_offset),
        "earliestMessageTimeStamp": str(store.earliest_message_time()),
        "remainTransientStoreBufferNumbs": str(services.settings.value.without_effect.transientStorePoolSize),
        "remainHowManyDataToFlush": size_text(statistics.flush_behind_bytes),
        "commitLogDirCapacity": f"Total : {size_text(total)}, Free : {size_text(free)}.",
    }
    for level, (offset, end) in services.schedule.progress().items():
        info[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    return info


def _of_timers(services: BrokerServices) -> dict[str, str]:
    """Keys of our own, of a broker that has had timers. Times in ms since 1970; 0: none is pending."""
    store, counters = services.store, services.stats.counters
    if not store.max_offset(TIMER_TOPIC, 0):
        return {}
    oldest = counters.timers_oldest_phy_offset
    image = store.look_message_by_offset(oldest) if oldest >= 0 else None
    record = decode_record(image) if image is not None else None
    return {
        "timerPending": str(counters.timers_pending),
        "timerNextDueTime": str(counters.timers_next_due_ms),
        "timerOldestStoreTime": str(record.store_timestamp_ms if record else 0),
        "timerHeldBytes": str(store.statistics().published_phy_offset - oldest if oldest >= 0 else 0),
    }


def _of_processes(services: BrokerServices) -> dict[str, str]:
    """Keys of our own: `worker_NAME` for each worker, and what the broker refuses. The console reads them."""
    health = services.health()
    info = {
        "connectionsRefused": str(health.connections_refused),
        "unreadConnectionsClosed": str(health.unread_closed),
    }
    if health.certificate_not_after_s:
        info["certificateNotAfter"] = str(health.certificate_not_after_s * 1000)
    for worker in health.workers:
        state = "ready" if worker.is_ready else "starting"
        info[f"worker_{worker.name}"] = f"{state}, silent {worker.silent_ms} ms, restarts {worker.restarts}"
    return info


def duration_text(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]"


def size_text(size: int) -> str:
    """`12.3 KiB`; plain bytes without a fraction."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_SIZE_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_SIZE_UNITS[unit]}"


def put_distribution(buckets: tuple[int, ...]) -> str:
    """The worker's buckets (bucket k ends at 2^k microseconds) added up in the reference's buckets, by their upper
    end."""
    counts = [0] * len(_BUCKETS)
    for power, count in enumerate(buckets):
        upper_ms = 2**power // 1000
        counts[next(i for i, (bound, _) in enumerate(_BUCKETS) if upper_ms <= bound)] += count
    return "".join(f"[{text}]:{count} " for (_, text), count in zip(_BUCKETS, counts, strict=True))


def disk_space(path: Path) -> tuple[int, int]:
    """(total, free) bytes of the file system of `path`; zeros if unknown."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        status = os.statvfs(path)
    except OSError:
        return 0, 0
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _rates(rates: list[float]) -> str:
    return " ".join(f"{rate}" for rate in rates)


@attrs.define(eq=False)
class WaterMarks:
    """The water-mark lines of the log: the pools in which requests wait, and for how long. Call `look` each few
    seconds.

    The reference writes a line per pool and second into a file of its own. Here a pool has a line when its first
    request has waited for a noticeable time, and at most one in ten seconds; metrics show all pools at all times.

    Source: RocketMQ 4.9 `BrokerController#printWaterMark`.
    """

    loads: Callable[[], Mapping[str, PoolLoad]]  # what waits, by pool
    now_s: Callable[[], float] = time.monotonic
    _limit: LogLimit = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._limit = LogLimit(WATER_MARK_INTERVAL_S, self.now_s)

    def look(self) -> None:
        """Log the pools that are behind."""
        for pool, load in self.loads().items():
            if load.head_wait_ms >= WATER_MARK_FROM_MS and self._limit.take(pool):
                name = pool.replace("_", " ").title()
                logger.info("[WATERMARK] %s Queue Size: %d SlowTimeMills: %d", name, load.waiting, load.head_wait_ms)
