"""RocketpyConfig: settings that the reference does not have, because its shape is another one."""

from __future__ import annotations

import attrs

from .setting import Effect, setting

RING_SIZE_MIN = 65_536
METRICS_PORT_FREE = -1  # 5557 or the next free port
KEPT_SHARE = 7 / 16


@attrs.frozen(kw_only=True)
class RocketpyConfig:
    """The numbers of workers are decided after loading; nothing here is left to be worked out."""

    selector_workers: int = setting(
        1,
        "selectorWorkers",
        "Processes that own connections (epoll, framing, replies). One serves hundreds of thousands of messages per "
        "second; more help only where there are cores to spare.",
        unit="processes",
        default_text="serverSelectorThreads when given (at most one per core), else a quarter of the cores (1 to 4)",
        at_least=1,
        at_most=64,
    )
    codec_workers: int = setting(
        0,
        "codecWorkers",
        "Processes that decode requests. 0 lets each selector decode its own: one process switch less per request, "
        "so it is answered sooner and costs less CPU; a selector then does the work of both. More pay only where they "
        "have cores of their own.",
        unit="processes",
        default_text="serverWorkerThreads when given (at most one per core), else a quarter of the cores (0 to 4)",
        at_most=64,
    )
    pull_workers: int = setting(
        1,
        "pullWorkers",
        "Processes that serve pulls. Each owns some of the queues of every topic; one serves millions of messages per "
        "second.",
        unit="processes",
        default_text="pullMessageThreadPoolNums when given (at most one per core), else 1",
        at_least=1,
        at_most=64,
    )
    query_workers: int = setting(
        0,
        "queryWorkers",
        "Processes that answer queries of stored messages and offsets (12, 29 to 33). 0: the manager answers them, "
        "and then a query that waits for a disk delays heartbeats and administration. Each takes some 7 MB.",
        unit="processes",
        default_text="queryMessageThreadPoolNums when given (at most one per core), else 0",
        at_most=64,
    )
    spin_micros: int = setting(
        100,
        "spinMicros",
        "How long a selector looks for the next request or answer before it sleeps: a lone request is answered sooner "
        "by two wake-ups. It looks only while its waits are usually shorter than this and three quarters of a core are "
        "idle: not in an idle broker, nor on a busy machine. 0 where processor time is paid for by use.",
        unit="µs",
        at_most=10_000,
    )
    ring_size: int = setting(
        1_048_576,
        "ringSize",
        "Bytes of each ring between two workers. A full ring is back-pressure: the sender waits. Records larger than "
        "a quarter of it cross in parts. There are about four rings per worker, all of them together must stay under "
        "sharedMemoryMax.",
        unit="bytes",
        at_least=RING_SIZE_MIN,
        at_most=1 << 30,
        power_of_two=True,
        default_text="1048576, or less where many workers would exceed sharedMemoryMax",
    )
    shared_memory_max: int = setting(
        67_108_864,
        "sharedMemoryMax",
        "Most bytes of shared memory. Seven sixteenths keep what a worker that is killed must not forget: clients and "
        "their subscriptions (some 160 bytes each) and offsets that are not saved yet; all rings together get the "
        "rest. Memory is touched only as far as it is used. Where connectionsMax of all selectors asks for more "
        "(1.5 KiB each, up to 1 GiB), clients get more than this says.",
        unit="bytes",
        at_least=1_048_576,
        at_most=1 << 40,
    )
    connections_max: int = setting(
        0,
        "connectionsMax",
        "Connections of one selector; more are closed at once, counted "
        "(`rocketpy_remoting_connections_refused_total`) and logged. An idle client costs 3 kB, the kernel's buffers "
        "and a file descriptor: by default (0) there may be as many as the limit of open files (`ulimit -Hn`) and a "
        "quarter of the memory, at 16 KiB each, allow.",
        unit="connections",
        default_text="from open files and memory",
        at_most=1_000_000,
    )
    frame_max_length: int = setting(
        16_777_216,
        "frameMaxLength",
        "Longest frame; a longer one closes its connection. The reference has it as the system property "
        "com.rocketmq.remoting.frameMaxLength.",
        unit="bytes",
        at_least=65_536,
        at_most=1 << 30,
    )
    unfinished_input_max: int = setting(
        268_435_456,
        "unfinishedInputMax",
        "Most memory that incomplete requests may take in one selector. Beyond it the connection whose request began "
        "first is closed, and logged. A request takes memory as its bytes arrive, whatever length it declares.",
        unit="bytes",
        at_least=1_048_576,
        at_most=1 << 40,
    )
    unsent_output_max: int = setting(
        268_435_456,
        "unsentOutputMax",
        "Most memory that answers may take in one selector while clients do not fetch them. Beyond it the "
        "connections with the most of it are closed, and logged. Messages are written from the CommitLog: of them "
        "only a few bytes each count.",
        unit="bytes",
        at_least=1_048_576,
        at_most=1 << 40,
    )
    dispatch_lag_max: int = setting(
        1_073_741_824,
        "dispatchLagMax",
        "Most of the log that may wait for its consume queues. Beyond it sends are answered SYSTEM_BUSY "
        "([PCBUSY_CLEAN_QUEUE]) until the store worker has caught up: messages to very many queues can be stored "
        "faster than queues are written, and consumers would fall behind without bound. 0: no bound.",
        unit="bytes",
        at_least=0,
        at_most=1 << 40,
    )
    bulk_pull_count: int = setting(
        1024,
        "bulkPullCount",
        "Most messages in the answer to a bulk pull: one of a client that reads a topic's history, as Spark does. "
        "0: such pulls get what all others get.",
        unit="messages",
        at_least=0,
        at_most=1024,
    )
    bulk_pull_bytes: int = setting(
        2_097_152,
        "bulkPullBytes",
        "Most bytes in the answer to a bulk pull; a quarter of it for messages that are probably not in memory.",
        unit="bytes",
        at_least=0,
        at_most=8_388_608,
    )
    slow_send_age_max_millis: int = setting(
        3_000,
        "slowSendAgeMaxMillis",
        "A send of the slow path (new topic, delay level, retry) that is older than this when the manager comes "
        "to it, because the manager or its disk was away, is answered SYSTEM_BUSY: its client waits no longer and may "
        "have sent the message again. The default is that of sendMsgTimeout in official clients; raise it where "
        "producers wait longer. Only with brokerFastFailureEnable.",
        unit="ms",
        effect=Effect.AT_ONCE,
        at_least=200,
    )
    stop_timeout_millis: int = setting(
        10_000,
        "stopTimeoutMillis",
        "How long a clean stop waits for requests in progress before it kills the workers. If it had to kill one, the "
        "exit status is 1, and the next start recovers the store.",
        unit="ms",
        at_least=1,
    )
    worker_heartbeat_timeout_millis: int = setting(
        10_000,
        "workerHeartbeatTimeoutMillis",
        "A worker whose loop has not turned for this long is killed and replaced. Shorter finds a hung one sooner, "
        "and mistakes a slow disk for one. An idle worker turns once a second.",
        unit="ms",
        at_least=3_000,
    )
    topics_max: int = setting(
        100_000,
        "topicsMax",
        "Most topics. Sends and heartbeats create topics (autoCreateTopicEnable, retry topics); at the limit a new "
        "one is refused. Existing topics are served, and dead letters are always stored.",
        unit="topics",
        effect=Effect.AT_ONCE,
        default_text="broker 100000, name server 1000000",
        at_least=1,
        at_most=1_000_000,
    )
    groups_max: int = setting(
        100_000,
        "groupsMax",
        "Most subscription groups; pulls and heartbeats create them (autoCreateSubscriptionGroup).",
        unit="groups",
        effect=Effect.AT_ONCE,
        at_least=1,
        at_most=1_000_000,
    )
    consumer_offsets_max: int = setting(
        4_000_000,
        "consumerOffsetsMax",
        "Most consumer offsets, one per group, topic and queue. Each takes some 100 bytes.",
        unit="offsets",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    queue_locks_max: int = setting(
        10_000,
        "queueLocksMax",
        "Most queue locks of ordered consumers, one per group and queue. Each takes some 400 bytes. The file "
        "queuelocks, which keeps them over a restart of the broker, has room for 10000 locks with the longest ASCII "
        "names, or 90000 with usual ones; if there are more, none is kept.",
        unit="locks",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    stats_items_max: int = setting(
        50_000,
        "statsItemsMax",
        "Items of statistics by name (statsAll, consumerProgress, rocketmq_* metrics): two of a topic, two of a topic "
        "and its group, and one of each of its queues. Each takes up to 1.5 KB. What has no item is counted in the "
        "totals only, until one that counted nothing for a day is dropped.",
        unit="items",
        effect=Effect.AT_ONCE,
        at_least=1,
        at_most=1_000_000,
    )
    backlog_alarm_messages: int = setting(
        1_000_000,
        "backlogAlarmMessages",
        "A group that has more messages of a topic not consumed is told in the log, at most one line in five minutes, "
        "and counted by rocketpy_consumer_backlog_alarms. 0: never.",
        unit="messages",
        effect=Effect.AT_ONCE,
        at_least=0,
    )
    backlog_alarm_age_millis: int = setting(
        0,
        "backlogAlarmAgeMillis",
        "The same for a group whose oldest message that is not consumed has waited for longer. 0: never. Groups that "
        "are no longer used are behind for ever: delete them before you set it (mqadmin deleteSubGroup -r).",
        unit="ms",
        effect=Effect.AT_ONCE,
        at_least=0,
    )
    client_groups_max: int = setting(
        1_024,
        "clientGroupsMax",
        "Most consumer groups, and most producer groups, that one connection may be a member of.",
        unit="groups",
        effect=Effect.AT_ONCE,
        at_least=1,
        at_most=65_536,
    )
    group_topics_max: int = setting(
        4_096,
        "groupTopicsMax",
        "Most topics that a consumer may subscribe to in one group.",
        unit="topics",
        effect=Effect.AT_ONCE,
        at_least=1,
        at_most=65_536,
    )
    brokers_max: int = setting(
        3_000,
        "brokersMax",
        "Name server: broker addresses that may register, masters and slaves; a new one beyond it is refused. With "
        "topicBrokersMax, which counts masters, the default is for 1000 masters with two slaves each.",
        unit="brokers",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    topic_routes_max: int = setting(
        4_000_000,
        "topicRoutesMax",
        "Name server: topics of all brokers, counted for each broker that has them. Each takes some 150 bytes. A "
        "registration beyond it is refused.",
        unit="routes",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    topic_brokers_max: int = setting(
        1_000,
        "topicBrokersMax",
        "Name server: masters that may have one topic, which bounds the size of a route. A registration beyond it is "
        "refused; a cluster of more masters needs a higher value, since all of them have the system topics.",
        unit="brokers",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    admin_addresses: str = setting(
        "",
        "adminAddresses",
        "Addresses and networks, separated by commas (10.0.0.7, 10.1.0.0/16), whose administrative requests are served "
        "besides this machine's own; others are refused with NO_PERMISSION. Matters once bindAddress is not loopback, "
        "or a proxy on this machine lets others in: there is no access control yet.",
    )
    admin_trusts_loopback: bool = setting(
        True,
        "adminTrustsLoopback",
        "Serve the administrative requests of this machine. With false, only adminAddresses may administer: for a "
        "machine whose other users are no administrators, or a proxy on it that does not name its clients.",
    )
    proxy_protocol_from: str = setting(
        "",
        "proxyProtocolFrom",
        "Addresses and networks of proxies, separated by commas. A connection from there must begin with a PROXY "
        "header (HAProxy's protocol, version 1 or 2), and then counts as a connection of the client that the header "
        "names, for adminAddresses, born hosts and logs; without a header it is closed. Other connections have no "
        "such header. A proxy on this machine should have an address of its own, such as 127.0.0.2, so that local "
        "tools need none. Empty: no proxies.",
    )
    timer_max_delay_sec: int = setting(
        259_200,
        "timerMaxDelaySec",
        "How far ahead a timer (TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, __STARTDELIVERTIME) may be; one "
        "further ahead is refused. Pending timers of a log file that is to be deleted are stored again.",
        unit="s",
        at_least=1,
        at_most=31_536_000,
    )
    metrics_host: str = setting(
        "127.0.0.1",
        "metricsHost",
        "Address of the Prometheus endpoint. Metrics are not authenticated either.",
    )
    metrics_port: int = setting(
        METRICS_PORT_FREE,
        "metricsPort",
        "Port of the Prometheus endpoint, `/metrics`; 0 turns it off. By default (-1) a broker takes 5557 or, where "
        "that is in use, the next free port, and logs which one; if a port that is given is in use, the start fails.",
        default_text="broker 5557 or the next free one, name server 0",
        at_least=METRICS_PORT_FREE,
        at_most=65_535,
    )
    log_level: str = setting(
        "INFO",
        "logLevel",
        "DEBUG, INFO, WARNING or ERROR; the log goes to standard error.",
        effect=Effect.AT_RESTART,
    )

    @property
    def kept_memory_bytes(self) -> int:
        """The part of sharedMemoryMax for the manager's tables, which survive a restart of the manager."""
        return int(self.shared_memory_max * KEPT_SHARE)

    @property
    def ring_memory_max(self) -> int:
        """Of sharedMemoryMax: for all rings together, bytes."""
        return self.shared_memory_max - self.kept_memory_bytes
