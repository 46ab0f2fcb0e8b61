"""The metrics of a broker under the names, labels and kinds of rocketmq-exporter, for dashboards made for it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from .metric import DLQ_PREFIX, RETRY_PREFIX, Metric, Samples, gauge, is_inner
from .replication import lag_bytes
from .snapshot import ConsumptionSnapshot, Snapshot, TopicSnapshot

_B = "cluster brokerIP broker"
_T = "cluster broker topic"
_G = "cluster broker topic group"
_D = "group topic countOfOnlineConsumers msgModel"
RUNTIME_LABELS = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")


def _starting(snapshot: Snapshot, prefix: str) -> list[TopicSnapshot]:
    return [topic for topic in snapshot.topics or () if topic.topic.startswith(prefix)]


def _normal(read: Callable[[TopicSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    """A figure of each topic that is neither a retry nor a dead letter topic."""
    return lambda s: [
        ((s.cluster, s.broker, topic.topic), read(topic)) for topic in s.topics or () if not is_inner(topic.topic)
    ]


def _groups(read: Callable[[ConsumptionSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda s: [((s.cluster, s.broker, row.topic, row.group), read(row)) for row in s.consumption]


def _unconsumed(rows: Iterable[ConsumptionSnapshot]) -> Samples:
    clustering = (row for row in rows if not row.is_broadcasting)
    return [((row.group, row.topic, str(row.online_consumers), "1"), row.lag_messages) for row in clustering]


EXPORTER_METRICS: tuple[Metric[Snapshot], ...] = (
    gauge("rocketmq_broker_tps", _B, "Messages put per second, last minute.",
          lambda s: [((s.cluster, s.broker_addr, s.broker), s.put_tps)]),
    gauge("rocketmq_broker_qps", _B, "Messages got per second, last minute.",
          lambda s: [((s.cluster, s.broker_addr, s.broker), s.get_tps)]),
    gauge("rocketmq_broker_commitlog_diff", _B, "Log bytes that the slave on the host `brokerIP` lacks.",
          lambda s: [((s.cluster, host, s.broker), value) for (host,), value in lag_bytes(s)]),
    gauge("rocketmq_producer_tps", _T, "Messages put per second, last minute.", _normal(lambda topic: topic.put_tps)),
    gauge("rocketmq_producer_message_size", _T, "Bytes put per second, last minute.",
          _normal(lambda topic: topic.put_bytes_tps)),
    gauge("rocketmq_producer_offset", _T, "Sum of the topic's end offsets.",
          _normal(lambda topic: topic.max_offset_sum)),
    gauge("rocketmq_topic_retry_offset", _T, "End offsets of retry topics.",
          lambda s: [((s.cluster, s.broker, t.topic), t.max_offset_sum) for t in _starting(s, RETRY_PREFIX)]),
    gauge("rocketmq_topic_dlq_offset", "cluster broker group", "End offsets of dead letter topics.",
          lambda s: [((s.cluster, s.broker, t.topic.removeprefix(DLQ_PREFIX)), t.max_offset_sum)
                     for t in _starting(s, DLQ_PREFIX)]),
    gauge("rocketmq_producer_count", "cluster broker group", "Producers online.",
          lambda s: [((s.cluster, s.broker, group), count) for group, count in sorted(s.producers.items())]),
    gauge("rocketmq_consumer_tps", _G, "Messages got per second, last minute.", _groups(lambda row: row.get_tps)),
    gauge("rocketmq_consumer_message_size", _G, "Bytes got per second, last minute.",
          _groups(lambda row: row.get_bytes_tps)),
    gauge("rocketmq_consumer_offset", _G, "Sum of the group's committed offsets.",
          _groups(lambda row: row.consumer_offset_sum)),
    gauge("rocketmq_send_back_nums", _G, "Messages sent back for retry, last minute.",
          _groups(lambda row: row.send_back_last_minute)),
    gauge("rocketmq_group_get_latency_by_storetime", _G, "Age of the next unconsumed message, ms.",
          _groups(lambda row: row.lag_ms)),
    gauge("rocketmq_group_diff", _D, "Unconsumed messages of clustering groups.",
          lambda s: _unconsumed(r for r in s.consumption if not is_inner(r.topic))),
    gauge("rocketmq_group_retrydiff", _D, "Unconsumed messages of retry topics.",
          lambda s: _unconsumed(r for r in s.consumption if r.topic.startswith(RETRY_PREFIX))),
    gauge("rocketmq_group_count", "caddr localaddr group", "Consumers online.",
          lambda s: sorted(Counter(s.consumers).items())),
)  # fmt: skip

# --- the table of code 28 ---------------------------------------------------------------------------------------------

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


def _first_number(text: str) -> float:
    """`12.3 KiB` is 12.3: the exporter drops the unit."""
    return float(text.split()[0])


def _word(index: int) -> Callable[[str], float]:
    """Word `index` of blank-separated numbers: rates over 10, 60 and 600 s."""

    def read(text: str) -> float:
        words = text.split()
        if index >= len(words):
            raise ValueError(f"no word {index} in {text!r}")
        return float(words[index])

    return read


def _capacity(which: str) -> Callable[[str], float]:
    """Bytes from `Total : 98.3 GiB, Free : 40.1 GiB.`"""

    def read(text: str) -> float:
        for part in text.rstrip(" .").split(","):
            name, _, amount = part.partition(":")
            if name.strip() == which:
                number, unit = amount.split()
                if unit not in _UNITS:
                    raise ValueError(f"unit {unit!r}")
                return float(number) * _UNITS[unit]
        raise ValueError(f"no {which} in {text!r}")

    return read


def _bucket(name: str) -> Callable[[str], float]:
    """The count of `[name]:count` in putMessageDistributeTime."""

    def read(text: str) -> float:
        for part in text.split():
            label, _, count = part.partition("]:")
            if label == f"[{name}":
                return float(count)
        raise ValueError(f"no bucket {name!r} in {text!r}")

    return read


def _runtime(suffix: str, key: str, text: str, read: Callable[[str], float] = float) -> Metric[Snapshot]:
    """One entry of the table of code 28. `read` may raise ValueError: the sample is left out."""

    def samples(snapshot: Snapshot) -> Samples:
        found = snapshot.runtime or {}
        with contextlib.suppress(KeyError, ValueError, IndexError):
            return [(_runtime_labels(snapshot, found), read(found[key]))]
        return ()

    return gauge(f"rocketmq_brokeruntime_{suffix}", " ".join(RUNTIME_LABELS), text, samples)


def _runtime_labels(snapshot: Snapshot, runtime: Mapping[str, str]) -> tuple[str, ...]:
    read = (runtime.get(key, "") for key in ("brokerVersionDesc", "bootTimestamp", "brokerVersion"))
    return (snapshot.cluster, snapshot.broker_addr, "", *read)


_BUCKETS = {
    "0ms": "<=0ms", "0to10ms": "0~10ms", "10to50ms": "10~50ms", "50to100ms": "50~100ms", "100to200ms": "100~200ms",
    "200to500ms": "200~500ms", "500to1s": "500ms~1s", "1to2s": "1~2s", "2to3s": "2~3s", "3to4s": "3~4s",
    "4to5s": "4~5s", "5to10s": "5~10s", "10stomore": "10s~",
}  # fmt: skip
_RATES = {"put": "putTps", "getfound": "getFoundTps", "getmiss": "getMissTps", "gettotal": "getTotalTps",
          "gettransfered": "getTransferedTps"}  # fmt: skip

RUNTIME_METRICS: tuple[Metric[Snapshot], ...] = (
    *(_runtime(f"pmdt_{suffix}", "putMessageDistributeTime", "Puts that took the time in the name.", _bucket(name))
      for suffix, name in _BUCKETS.items()),
    *(_runtime(f"{suffix}_tps{seconds}", key, f"{key} over the seconds in the name.", _word(index))
      for suffix, key in _RATES.items() for index, seconds in enumerate((10, 60, 600))),
    _runtime("msg_put_total_today_now", "msgPutTotalTodayNow", "Messages put until now."),
    _runtime("msg_gettotal_today_now", "msgGetTotalTodayNow", "Messages got until now."),
    _runtime("msg_puttotal_todaymorning", "msgPutTotalTodayMorning", "Messages put until this midnight."),
    _runtime("msg_gettotal_todaymorning", "msgGetTotalTodayMorning", "Messages got until this midnight."),
    _runtime("msg_puttotal_yesterdaymorning", "msgPutTotalYesterdayMorning", "Messages put until last midnight."),
    _runtime("msg_gettotal_yesterdaymorning", "msgGetTotalYesterdayMorning", "Messages got until last midnight."),
    _runtime("dispatch_behind_bytes", "dispatchBehindBytes", "Bytes not yet dispatched."),
    _runtime("dispatch_maxbuffer", "dispatchMaxBuffer", "Always 0, as in RocketMQ 4.9."),
    _runtime("put_message_size_total", "putMessageSizeTotal", "Bytes put."),
    _runtime("put_message_average_size", "putMessageAverageSize", "Average bytes of a message."),
    _runtime("putmessage_times_total", "putMessageTimesTotal", "Messages put."),
    _runtime("putmessage_entire_time_max", "putMessageEntireTimeMax", "Longest put, ms."),
    _runtime("getmessage_entire_time_max", "getMessageEntireTimeMax", "Longest get, ms."),
    _runtime("put_latency_99", "putLatency99", "99th percentile of puts."),
    _runtime("put_latency_999", "putLatency999", "99.9th percentile of puts."),
    _runtime("send_threadpool_queue_size", "sendThreadPoolQueueSize", "Waiting sends."),
    _runtime("send_threadpoolqueue_capacity", "sendThreadPoolQueueCapacity", "Sends that may wait."),
    _runtime("send_threadpoolqueue_headwait_timemills", "sendThreadPoolQueueHeadWaitTimeMills",
             "Wait of the oldest send, ms."),
    _runtime("pull_threadpoolqueue_size", "pullThreadPoolQueueSize", "Waiting pulls."),
    _runtime("pull_threadpoolqueue_capacity", "pullThreadPoolQueueCapacity", "Pulls that may wait."),
    _runtime("pull_threadpoolqueue_headwait_timemills", "pullThreadPoolQueueHeadWaitTimeMills",
             "Wait of the oldest pull, ms."),
    _runtime("query_threadpoolqueue_size", "queryThreadPoolQueueSize", "Waiting queries."),
    _runtime("query_threadpool_queue_capacity", "queryThreadPoolQueueCapacity", "Queries that may wait."),
    _runtime("query_threadpoolqueue_headwait_timemills", "queryThreadPoolQueueHeadWaitTimeMills",
             "Wait of the oldest query, ms."),
    _runtime("pagecache_lock_time_mills", "pageCacheLockTimeMills", "Duration of the current append, ms."),
    _runtime("commitlog_disk_ratio", "commitLogDiskRatio", "Fill level of the CommitLog's disk, 0 to 1."),
    _runtime("consumequeue_disk_ratio", "consumeQueueDiskRatio", "Fill level of the queues' disk, 0 to 1."),
    _runtime("commitlog_maxoffset", "commitLogMaxOffset", "End of the CommitLog."),
    _runtime("commitlog_minoffset", "commitLogMinOffset", "Start of the CommitLog."),
    _runtime("commitlogdir_capacity_free", "commitLogDirCapacity", "Free bytes of the disk.", _capacity("Free")),
    _runtime("commitlogdir_capacity_total", "commitLogDirCapacity", "Bytes of the disk.", _capacity("Total")),
    _runtime("remain_howmanydata_toflush", "remainHowManyDataToFlush", "Log not yet on the disk; the unit is dropped.",
             _first_number),
    _runtime("remain_transientstore_buffer_numbs", "remainTransientStoreBufferNumbs", "Buffers of the pool."),
    _runtime("earliest_message_timestamp", "earliestMessageTimeStamp", "Store time of the oldest message, ms."),
    _runtime("start_accept_sendrequest_time", "startAcceptSendRequestTimeStamp", "First accepted sends, ms."),
)  # fmt: skip
