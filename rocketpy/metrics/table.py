"""Every metric's name, kind, labels and meaning, once: collectors and docs/run/metrics.md are made from these rows."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from .counters import Count
from .metric import Kind, Metric
from .metric import worker_counter as _counter

WORKER_COUNTERS = (
    _counter("rocketpy_worker_loops", Count.LOOPS, "selector codec send pull store", "Turns of the worker's loop."),
    _counter("rocketpy_worker_sleeps", Count.SLEEPS, "selector codec send pull store",
             "Times the worker slept without work. Near to loops: idle; far below: busy."),
    _counter("rocketpy_remoting_connections_opened", Count.CONNECTIONS_OPENED, "selector", "Connections taken over."),
    _counter("rocketpy_remoting_connections_closed", Count.CONNECTIONS_CLOSED, "selector",
             "Connections closed, by either side."),
    _counter("rocketpy_remoting_connections_refused", Count.CONNECTIONS_REFUSED, "selector",
             "Connections refused at connectionsMax or the limit of open files."),
    _counter("rocketpy_remoting_idle_closed", Count.IDLE_CLOSED, "selector",
             "Connections closed without traffic (serverChannelMaxIdleTimeSeconds)."),
    _counter("rocketpy_remoting_proxy_bad", Count.PROXY_BAD, "selector",
             "Connections from proxyProtocolFrom closed without a PROXY header."),
    _counter("rocketpy_remoting_pinning_closed", Count.PINNING_CLOSED, "selector",
             "Connections closed with unread answers from CommitLog files deleted a while ago."),
    _counter("rocketpy_remoting_unfinished_closed", Count.UNFINISHED_CLOSED, "selector",
             "Connections closed at unfinishedInputMax."),
    _counter("rocketpy_remoting_unsent_closed", Count.UNSENT_CLOSED, "selector",
             "Connections closed at unsentOutputMax."),
    _counter("rocketpy_remoting_received_bytes", Count.BYTES_IN, "selector", "Bytes read from clients."),
    _counter("rocketpy_remoting_sent_bytes", Count.BYTES_OUT, "selector", "Bytes written to clients."),
    _counter("rocketpy_remoting_frames_received", Count.FRAMES_IN, "selector", "Frames read from clients."),
    _counter("rocketpy_remoting_frames_sent", Count.FRAMES_OUT, "selector", "Frames written to clients."),
    _counter("rocketpy_remoting_frames_bad", Count.FRAMES_BAD, "selector codec",
             "Unreadable frames; each closed its connection."),
    _counter("rocketpy_worker_stalls", Count.STALLS, "selector codec send pull",
             "Waits for a full ring: back-pressure."),
    _counter("rocketpy_send_messages", Count.MESSAGES_PUT, "send", "Messages appended to the CommitLog."),
    _counter("rocketpy_send_bytes", Count.BYTES_PUT, "send", "Bytes appended to the CommitLog."),
    _counter("rocketpy_send_failures", Count.PUT_FAILED, "send", "Sends answered with an error."),
    _counter("rocketpy_transaction_half_messages", Count.HALF_MESSAGES, "send", "Half messages stored."),
    _counter("rocketpy_transaction_commits", Count.TRANSACTIONS_COMMITTED, "send", "Transactions committed."),
    _counter("rocketpy_transaction_rollbacks", Count.TRANSACTIONS_ROLLED_BACK, "send", "Transactions rolled back."),
    _counter("rocketpy_transaction_discards", Count.TRANSACTIONS_DISCARDED, "send",
             "Undecided transactions moved to TRANS_CHECK_MAX_TIME_TOPIC."),
    _counter("rocketpy_transaction_renewals", Count.TRANSACTIONS_RENEWED, "send",
             "Half messages open for long, stored again at the end of the half queue."),
    _counter("rocketpy_transaction_ends_refused", Count.ENDS_REFUSED, "send",
             "END_TRANSACTION requests refused: no such half message, another group, or another end before."),
    _counter("rocketpy_worker_busy_replies", Count.BUSY, "send pull",
             "Requests that waited too long: SYSTEM_BUSY."),
    _counter("rocketpy_worker_slow_requests", Count.SLOW, "send pull", "Requests left to the manager (slow path)."),
    _counter("rocketpy_store_file_rolls", Count.ROLLS, "send", "New files of the CommitLog."),
    _counter("rocketpy_pull_messages", Count.MESSAGES_GET, "pull", "Messages returned by pulls."),
    _counter("rocketpy_pull_bytes", Count.BYTES_GET, "pull", "Bytes returned by pulls."),
    _counter("rocketpy_pull_requests", Count.PULLS, "pull", "Pulls served."),
    _counter("rocketpy_pull_misses", Count.PULL_MISS, "pull", "Pulls that found nothing."),
    _counter("rocketpy_pull_log_unreadable", Count.LOG_UNREADABLE, "pull",
             "SQL92 pulls refused: a CommitLog file cannot be opened."),
    _counter("rocketpy_pull_suspended_requests", Count.SUSPENDED, "pull", "Suspended pulls (long polling).",
             kind=Kind.GAUGE),
    _counter("rocketpy_pull_suspended_bytes", Count.SUSPENDED_BYTES, "pull", "Memory of suspended pulls.",
             kind=Kind.GAUGE),
    _counter("rocketpy_pull_suspend_refused", Count.SUSPEND_REFUSED, "pull",
             "Pulls answered at once: too many are suspended, in total or of the connection "
             "(pullThreadPoolQueueCapacity)."),
    _counter("rocketpy_pull_suspended_steps", Count.SUSPENDED_STEPS, "pull",
             "Suspended pulls examined, for new messages and deadlines."),
    _counter("rocketpy_store_dispatched_messages", Count.DISPATCHED, "store", "Messages entered in consume queues."),
    _counter("rocketpy_store_indexed_keys", Count.INDEXED, "store", "Keys entered in the index."),
    _counter("rocketpy_store_keys_cut_short", Count.KEYS_CUT_SHORT, "store",
             "Messages with more than 128 KEYS; the index has the first 128."),
    _counter("rocketpy_store_flushes", Count.FLUSHES, "store", "Flushes of the CommitLog."),
    _counter("rocketpy_store_flush_seconds", Count.FLUSH_NS, "store", "Time spent in flushes of the CommitLog.",
             scale=1e-9),
    _counter("rocketpy_ha_bad_records", Count.BAD_RECORDS, "replicator",
             "Slave: damaged records from the master, fetched again."),
    _counter("rocketpy_ha_streams", Count.STREAMS, "replicator",
             "Slave: connections that brought the master's log."),
    _counter("rocketpy_ha_streams_ended", Count.STREAMS_ENDED, "replicator",
             "Slave: connections that ended; it tries again."),
    _counter("rocketpy_ha_master_end_bytes", Count.MASTER_END, "replicator",
             "Slave: known end of the master's log.", kind=Kind.GAUGE),
    _counter("rocketpy_ha_reported_offset_bytes", Count.REPORTED, "replicator",
             "Slave: position reported to the master.", kind=Kind.GAUGE),
    _counter("rocketpy_timer_accepted", Count.TIMERS_ACCEPTED, "send", "Timers accepted."),
    _counter("rocketpy_timer_delivered", Count.TIMERS_DELIVERED, "send", "Timers delivered, also to dead letters."),
    _counter("rocketpy_timer_dead_letters", Count.TIMERS_DEAD_LETTERS, "send",
             "Timers of deleted topics, delivered to %DLQ%rmq_sys_wheel_timer."),
    _counter("rocketpy_timer_skipped", Count.TIMERS_SKIPPED, "send", "Timers with unreadable records."),
    _counter("rocketpy_timer_renewed", Count.TIMERS_RENEWED, "send", "Timers stored again to free their log files."),
    _counter("rocketpy_timer_pending_messages", Count.TIMERS_PENDING, "store", "Timers not delivered yet.",
             kind=Kind.GAUGE),
    _counter("rocketpy_timer_next_due_seconds", Count.TIMERS_NEXT_DUE_MS, "store",
             "Time of the first pending timer, seconds since 1970; 0: none.", kind=Kind.GAUGE, scale=1e-3),
    _counter("rocketpy_timer_oldest_phy_offset", Count.TIMERS_OLDEST, "store",
             "1 + log offset of the oldest pending timer; keeps the log from there. 0: none.", kind=Kind.GAUGE),
    _counter("rocketpy_store_faults", Count.STORE_FAULTS, "store",
             "Failed background steps (cleaning, allocation, flushing units), tried again; see the log."),
)  # fmt: skip


def _gauge(name: str, labels: str, text: str) -> Metric:
    return Metric(name, Kind.GAUGE, tuple(labels.split()), text)


BUILD_INFO = _gauge("rocketpy_build_info", "version cluster broker address", "Always 1; names this broker.")
CONNECTIONS = _gauge("rocketpy_remoting_connections", "worker", "Open connections.")
PUT_LATENCY = Metric("rocketpy_send_latency_seconds", Kind.HISTOGRAM, ("worker",),
                     "From the last byte of a send to its reply, in the broker.")  # fmt: skip
TIMER_LATENESS = Metric("rocketpy_timer_lateness_seconds", Kind.HISTOGRAM, ("worker",),
                        "From the time of a timer to its delivery.")  # fmt: skip
WORKER_READY = _gauge("rocketpy_worker_ready", "worker role", "1 while the worker serves.")
WORKER_HEARTBEAT = _gauge(
    "rocketpy_worker_heartbeat_age_seconds", "worker", "Time since the worker's loop last turned."
)
WORKER_RESTARTS = Metric("rocketpy_worker_restarts", Kind.COUNTER, ("worker",), "Times the worker was replaced.")
WORKER_RSS = _gauge("rocketpy_worker_rss_bytes", "worker", "Resident memory, shared pages included.")
WORKER_PSS = _gauge("rocketpy_worker_pss_bytes", "worker", "Fair share of memory; adds up over workers.")
RING_USED = _gauge("rocketpy_ring_used_bytes", "source target", "Bytes waiting in the ring.")
RING_CAPACITY = _gauge("rocketpy_ring_capacity_bytes", "source target", "Size of the ring.")
POOL_WAITING = _gauge("rocketpy_pool_waiting_requests", "pool", "Requests waiting for a pool.")
POOL_QUEUE_MAX = _gauge("rocketpy_pool_queue_max_requests", "pool", "Requests that may wait per serving process.")
POOL_HEAD_WAIT = _gauge("rocketpy_pool_head_wait_seconds", "pool", "Wait of the pool's oldest request.")
STORE_MIN = _gauge("rocketpy_store_min_offset_bytes", "", "Start of the CommitLog.")
STORE_PUBLISHED = _gauge("rocketpy_store_published_offset_bytes", "", "Records below it are complete.")
STORE_DURABLE = _gauge("rocketpy_store_durable_offset_bytes", "", "Records below it are on the disk.")
STORE_DISPATCHED = _gauge("rocketpy_store_dispatched_offset_bytes", "", "Records below it can be consumed.")
STORE_REPLICATED = _gauge("rocketpy_store_replicated_offset_bytes", "", "Records below it are on the slave.")
TRANSACTIONS_OPEN = _gauge("rocketpy_transaction_open_messages", "", "Undecided half messages.")
TRANSACTIONS_OLDEST = _gauge("rocketpy_transaction_oldest_open_seconds", "",
                             "Age of the oldest open half message; absent: none.")  # fmt: skip
TRANSACTION_CHECKS = Metric("rocketpy_transaction_checks", Kind.COUNTER, (), "Questions sent to producers.")
TRANSACTION_UNREACHABLE = Metric(
    "rocketpy_transaction_checks_unreachable", Kind.COUNTER, (), "Checks without a connected producer."
)
TOPICS = _gauge("rocketpy_broker_topics", "", "Topics, system topics included.")
GROUPS = _gauge("rocketpy_broker_groups", "", "Subscription groups.")
TOPIC_QUEUES = _gauge("rocketpy_topic_queues", "topic", "Queues of the topic.")
TOPIC_MESSAGES = _gauge("rocketpy_topic_messages", "topic", "Readable messages of the topic.")
CONSUMER_LAG = _gauge("rocketpy_consumer_lag_messages", "group topic", "Unconsumed messages.")
CONSUMER_OLDEST = _gauge(
    "rocketpy_consumer_oldest_age_seconds", "group topic", "Age of the oldest unconsumed message; 0: none."
)
GROUP_DIFFERING = _gauge(
    "rocketpy_group_differing_subscriptions",
    "group",
    "Different subscriptions of a group's members; groups with more than one, at most 100.",
)
CONSUMER_BEHIND = _gauge(
    "rocketpy_consumer_behind_bytes",
    "group topic",
    "Log between the group's last message and the end (GROUP_GET_FALL_SIZE); a group far back reads from the disk.",
)
BACKLOG_ALARMS = _gauge(
    "rocketpy_consumer_backlog_alarms",
    "",
    "Pairs of group and topic beyond backlogAlarmMessages or backlogAlarmAgeMillis.",
)
TABLE_ENTRIES = _gauge("rocketpy_table_entries", "table", "Entries of a table that clients fill.")
TABLE_MAX = _gauge(
    "rocketpy_table_entries_max",
    "table",
    "Limit of the table (topicsMax, groupsMax, consumerOffsetsMax, queueLocksMax, clientGroupsMax, groupTopicsMax); "
    "of online clients, the bytes kept for a restarted manager.",
)
TABLE_REFUSED = Metric(
    "rocketpy_table_refused",
    Kind.COUNTER,
    ("table",),
    "Requests refused, or clients and groups not kept: table full.",
)
FAULTS = Metric(
    "rocketpy_broker_faults",
    Kind.COUNTER,
    ("place",),
    "Faults in requests and background duties; see the log.",
)
REGISTRATION_TOPICS = _gauge("rocketpy_registration_topics", "", "Topics of the last registration.")
REGISTRATION_BYTES = _gauge("rocketpy_registration_bytes", "", "Size of the last registration, all parts.")
REGISTRATION_PARTS = _gauge("rocketpy_registration_parts", "",
                            "Requests of the last registration; several for very many topics.")  # fmt: skip
REGISTRATION_FAILURES = Metric("rocketpy_registration_failures", Kind.COUNTER, (),
                               "Registrations refused or unanswered by a name server.")  # fmt: skip
REGISTRATION_LAST_SUCCESS = _gauge("rocketpy_registration_last_success_seconds", "",
                                   "Last accepted registration, seconds since 1970.")  # fmt: skip

OWN_METRICS = (
    BUILD_INFO, CONNECTIONS, PUT_LATENCY, TIMER_LATENESS,
    WORKER_READY, WORKER_HEARTBEAT, WORKER_RESTARTS, WORKER_RSS, WORKER_PSS,
    RING_USED, RING_CAPACITY, POOL_WAITING, POOL_QUEUE_MAX, POOL_HEAD_WAIT, STORE_MIN, STORE_PUBLISHED,
    STORE_DURABLE, STORE_DISPATCHED, STORE_REPLICATED, TOPICS,
    GROUPS, GROUP_DIFFERING,
    TOPIC_QUEUES, TOPIC_MESSAGES, CONSUMER_LAG, CONSUMER_OLDEST, CONSUMER_BEHIND, BACKLOG_ALARMS,
    TABLE_ENTRIES, TABLE_MAX,
    TABLE_REFUSED, FAULTS, REGISTRATION_TOPICS, REGISTRATION_BYTES,
    REGISTRATION_PARTS, REGISTRATION_FAILURES, REGISTRATION_LAST_SUCCESS,
    TRANSACTIONS_OPEN, TRANSACTIONS_OLDEST, TRANSACTION_CHECKS, TRANSACTION_UNREACHABLE,
)  # fmt: skip

# --- the names of rocketmq-exporter -----------------------------------------------------------------------------------

_B = "cluster brokerIP broker"
_T = "cluster broker topic"
_G = "cluster broker topic group"
_D = "group topic countOfOnlineConsumers msgModel"
RUNTIME_LABELS = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")

BROKER_TPS = _gauge("rocketmq_broker_tps", _B, "Messages put per second, last minute.")
BROKER_QPS = _gauge("rocketmq_broker_qps", _B, "Messages got per second, last minute.")
PRODUCER_TPS = _gauge("rocketmq_producer_tps", _T, "Messages put per second, last minute.")
PRODUCER_SIZE = _gauge("rocketmq_producer_message_size", _T, "Bytes put per second, last minute.")
PRODUCER_OFFSET = _gauge("rocketmq_producer_offset", _T, "Sum of the topic's end offsets.")
RETRY_OFFSET = _gauge("rocketmq_topic_retry_offset", _T, "End offsets of retry topics.")
DLQ_OFFSET = _gauge("rocketmq_topic_dlq_offset", "cluster broker group", "End offsets of dead letter topics.")
PRODUCER_COUNT = _gauge("rocketmq_producer_count", "cluster broker group", "Producers online.")
CONSUMER_TPS = _gauge("rocketmq_consumer_tps", _G, "Messages got per second, last minute.")
CONSUMER_SIZE = _gauge("rocketmq_consumer_message_size", _G, "Bytes got per second, last minute.")
CONSUMER_OFFSET = _gauge("rocketmq_consumer_offset", _G, "Sum of the group's committed offsets.")
SEND_BACK = _gauge("rocketmq_send_back_nums", _G, "Messages sent back for retry, last minute.")
GET_LATENCY = _gauge("rocketmq_group_get_latency_by_storetime", _G, "Age of the next unconsumed message, ms.")
GROUP_DIFF = _gauge("rocketmq_group_diff", _D, "Unconsumed messages of clustering groups.")
GROUP_RETRY_DIFF = _gauge("rocketmq_group_retrydiff", _D, "Unconsumed messages of retry topics.")
GROUP_COUNT = _gauge("rocketmq_group_count", "caddr localaddr group", "Consumers online.")

EXPORTER_METRICS = (
    BROKER_TPS, BROKER_QPS, PRODUCER_TPS, PRODUCER_SIZE, PRODUCER_OFFSET, RETRY_OFFSET, DLQ_OFFSET, PRODUCER_COUNT,
    CONSUMER_TPS, CONSUMER_SIZE, CONSUMER_OFFSET, SEND_BACK, GET_LATENCY, GROUP_DIFF, GROUP_RETRY_DIFF, GROUP_COUNT,
)  # fmt: skip


@attrs.frozen
class RuntimeMetric:
    """A metric that is one entry of the table of code 28. `read` may raise ValueError: the sample is left out."""

    metric: Metric
    key: str
    read: Callable[[str], float]


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


def _runtime(suffix: str, key: str, text: str, read: Callable[[str], float] = float) -> RuntimeMetric:
    name = f"rocketmq_brokeruntime_{suffix}"
    return RuntimeMetric(Metric(name, Kind.GAUGE, RUNTIME_LABELS, text), key, read)


_BUCKETS = {
    "0ms": "<=0ms", "0to10ms": "0~10ms", "10to50ms": "10~50ms", "50to100ms": "50~100ms", "100to200ms": "100~200ms",
    "200to500ms": "200~500ms", "500to1s": "500ms~1s", "1to2s": "1~2s", "2to3s": "2~3s", "3to4s": "3~4s",
    "4to5s": "4~5s", "5to10s": "5~10s", "10stomore": "10s~",
}  # fmt: skip
_RATES = {"put": "putTps", "getfound": "getFoundTps", "getmiss": "getMissTps", "gettotal": "getTotalTps",
          "gettransfered": "getTransferedTps"}  # fmt: skip

RUNTIME_METRICS = (
    *(_runtime(f"pmdt_{suffix}", "putMessageDistributeTime", f"Puts of {name}.", _bucket(name))
      for suffix, name in _BUCKETS.items()),
    *(_runtime(f"{suffix}_tps{seconds}", key, f"{key} over {seconds} s.", _word(index))
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

# --- the name server --------------------------------------------------------------------------------------------------

NAMESRV_BROKERS = _gauge("rocketpy_namesrv_brokers", "", "Live broker addresses.")
NAMESRV_CLUSTERS = _gauge("rocketpy_namesrv_clusters", "", "Clusters.")
NAMESRV_TOPICS = _gauge("rocketpy_namesrv_topics", "", "Topics with a route.")
NAMESRV_CONNECTIONS = _gauge("rocketpy_namesrv_connections", "", "Open connections.")
NAMESRV_REQUESTS = Metric("rocketpy_namesrv_requests", Kind.COUNTER, ("code",), "Requests served, by request code.")
NAMESRV_FAULTS = Metric(
    "rocketpy_namesrv_faults",
    Kind.COUNTER,
    ("place",),
    "Faults in requests and background duties; see the log.",
)
NAMESRV_REFUSED = Metric(
    "rocketpy_namesrv_registrations_refused",
    Kind.COUNTER,
    (),
    "Registrations refused at brokersMax, topicsMax, topicRoutesMax or topicBrokersMax.",
)
NAMESRV_RSS = _gauge("rocketpy_namesrv_rss_bytes", "", "Resident memory.")

NAMESRV_METRICS = (
    NAMESRV_BROKERS, NAMESRV_CLUSTERS, NAMESRV_TOPICS, NAMESRV_CONNECTIONS, NAMESRV_REQUESTS, NAMESRV_FAULTS,
    NAMESRV_REFUSED, NAMESRV_RSS,
)  # fmt: skip
