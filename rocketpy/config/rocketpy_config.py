"""RocketpyConfig: settings that the reference does not have, because its shape is another one."""

from __future__ import annotations

import attrs

from rocketpy.values import Value

from .setting import Effect, setting

RING_SIZE_MIN = 65_536
SELECTORS_MAX = 64
TLS_WORKERS_MAX = 64
METRICS_PORT_FREE = -1  # 5557 or the next free port
KEPT_SHARE = 7 / 16


@attrs.frozen(eq=False, repr=False, kw_only=True)
class RocketpyConfig(Value):
    """The numbers of workers are decided after loading; nothing here is left to be worked out."""

    selector_workers: int = setting(
        1,
        "selectorWorkers",
        "Processes that own connections (epoll, framing, replies). One serves hundreds of thousands of messages per "
        "second; more need spare cores.",
        unit="processes",
        default_text="serverSelectorThreads (at most one per core), else a quarter of the cores (1 to 4)",
        at_least=1,
        at_most=SELECTORS_MAX,
    )
    selector_workers_max: int = setting(
        0,
        "selectorWorkersMax",
        "Most selectors. A selector beyond selectorWorkers starts when all others have connectionsMax connections, if "
        "its rings fit sharedMemoryMax.",
        unit="processes",
        default_text="enough for 65000 connections, at most 4 more; none more if connectionsMax is given",
        at_most=SELECTORS_MAX,
    )
    codec_workers: int = setting(
        0,
        "codecWorkers",
        "Processes that decode requests. 0: each selector decodes its own, which answers sooner and costs less CPU. "
        "More pay only with cores of their own.",
        unit="processes",
        default_text="serverWorkerThreads (at most one per core), else a quarter of the cores (0 to 4)",
        at_most=64,
    )
    pull_workers: int = setting(
        1,
        "pullWorkers",
        "Processes that serve pulls; each owns some queues of every topic and serves millions of messages per second.",
        unit="processes",
        default_text="pullMessageThreadPoolNums (at most one per core), else 1",
        at_least=1,
        at_most=64,
    )
    query_workers: int = setting(
        0,
        "queryWorkers",
        "Processes (7 MB each) that answer queries of messages and offsets (codes 12, 29 to 33). 0: the manager "
        "answers, and a query that waits for a disk delays heartbeats and administration.",
        unit="processes",
        default_text="queryMessageThreadPoolNums (at most one per core), else 0",
        at_most=64,
    )
    tls_workers: int = setting(
        0,
        "tlsWorkers",
        "Processes (6 to 9 MB each) that do handshakes and ciphers of clients with TLS, on one core each. 0 unless "
        "tls.server.mode switches TLS on. Each client takes two of the open files of one.",
        unit="processes",
        default_text="one for each four cores, at least 1",
        at_most=TLS_WORKERS_MAX,
    )
    tls_handshake_timeout_millis: int = setting(
        10_000,
        "tlsHandshakeTimeoutMillis",
        "A connection whose TLS handshake is not complete after this time is closed.",
        unit="ms",
        at_least=1,
    )
    spin_micros: int = setting(
        100,
        "spinMicros",
        "Time that a selector looks for the next request or answer before it sleeps: saves a lone request two "
        "wake-ups. Only while waits are usually shorter and three quarters of a core are idle. Set 0 where CPU time "
        "is paid by use.",
        unit="µs",
        at_most=10_000,
        c="rp_selector_config.spin_us",
    )
    ring_size: int = setting(
        1_048_576,
        "ringSize",
        "Size of each ring between two workers, about four per worker; all must fit sharedMemoryMax. A full ring "
        "makes the sender wait. A record larger than a quarter crosses in parts.",
        unit="bytes",
        at_least=RING_SIZE_MIN,
        at_most=1 << 30,
        power_of_two=True,
        default_text="1048576 bytes, less if many workers would exceed sharedMemoryMax",
    )
    shared_memory_max: int = setting(
        67_108_864,
        "sharedMemoryMax",
        "Most shared memory; only used memory is touched. Seven sixteenths keep state over a worker's death: clients "
        "and subscriptions (160 bytes each), unsaved offsets; more if connectionsMax of all selectors needs it (1.5 "
        "KiB each, up to 1 GiB). Rings get the rest.",
        unit="bytes",
        at_least=1_048_576,
        at_most=1 << 40,
    )
    connections_max: int = setting(
        0,
        "connectionsMax",
        "Connections of one selector; when all are full, more are closed, counted "
        "(`rocketpy_remoting_connections_refused_total`) and logged. An idle client costs 3 kB.",
        unit="connections",
        default_text="as many as open files (`ulimit -Hn`) and a quarter of the memory, at 16 KiB each, allow",
        at_most=1_000_000,
        c="rp_selector_config.connections_max",
    )
    address_connections_max: int = setting(
        0,
        "addressConnectionsMax",
        "Most open connections of one peer address (IPv6: /64), in all selectors; more are closed. Set it above the "
        "clients behind your largest NAT; for a name server above clients and brokers of one. 0: no limit.",
        unit="connections",
        at_most=1_000_000,
        c="rp_limits_config.address_connections",
    )
    address_requests_per_second: int = setting(
        0,
        "addressRequestsPerSecond",
        "Requests of one peer address; beyond, it is not read for a second or more. 0: no limit.",
        unit="requests per second",
        at_most=1_000_000_000,
        c="rp_limits_config.address_requests",
    )
    address_bytes_per_second: int = setting(
        0,
        "addressBytesPerSecond",
        "Bytes of requests of one peer address; beyond, it is not read for a second or more. 0: no limit.",
        unit="bytes per second",
        at_most=1 << 40,
        c="rp_limits_config.address_bytes",
    )
    account_requests_per_second: int = setting(
        0,
        "accountRequestsPerSecond",
        "Requests of one account; more get SYSTEM_BUSY. 0: no limit.",
        unit="requests per second",
        at_most=1_000_000_000,
        c="rp_limits_config.account_requests",
    )
    account_bytes_per_second: int = setting(
        0,
        "accountBytesPerSecond",
        "Bytes of requests of one account, with their headers; more get SYSTEM_BUSY. 0: no limit.",
        unit="bytes per second",
        at_most=1 << 40,
        c="rp_limits_config.account_bytes",
    )
    failed_authentications_max: int = setting(
        1_000,
        "failedAuthenticationsMax",
        "Requests with no, an unknown or a wrongly signed account, of one peer address within 60 s; then it is "
        "disconnected, and refused until the 60 s are over. Raise it if many clients share an address. 0: no limit.",
        unit="requests",
        c="rp_limits_config.failures",
    )
    frame_max_length: int = setting(
        16_777_216,
        "frameMaxLength",
        "Longest frame; a longer one closes its connection. System property com.rocketmq.remoting.frameMaxLength of "
        "the reference.",
        unit="bytes",
        at_least=65_536,
        at_most=1 << 30,
        c="rp_selector_config.frame_size_max",
    )
    unfinished_input_max: int = setting(
        268_435_456,
        "unfinishedInputMax",
        "Most memory for incomplete requests in one selector. Beyond it the connection with the oldest request is "
        "closed and logged.",
        unit="bytes",
        at_least=1_048_576,
        at_most=1 << 40,
        c="rp_selector_config.unfinished_bytes_max",
    )
    unsent_output_max: int = setting(
        268_435_456,
        "unsentOutputMax",
        "Most memory for unread answers in one selector. Beyond it the connections with most of it are closed and "
        "logged. Messages, written from the CommitLog, count a few bytes each.",
        unit="bytes",
        at_least=1_048_576,
        at_most=1 << 40,
        c="rp_selector_config.unsent_bytes_max",
    )
    dispatch_lag_max: int = setting(
        1_073_741_824,
        "dispatchLagMax",
        "Most log that may wait for its consume queues. Beyond it (messages to very many queues) sends get "
        "SYSTEM_BUSY ([PCBUSY_CLEAN_QUEUE]) until the store worker has caught up. 0: no bound.",
        unit="bytes",
        at_least=0,
        at_most=1 << 40,
        c="rp_send_config.dispatch_lag_max",
    )
    bulk_pull_count: int = setting(
        1024,
        "bulkPullCount",
        "Most messages in the answer to a bulk pull (a client that reads a topic's history, as Spark does). 0: as "
        "for other pulls.",
        unit="messages",
        at_least=0,
        at_most=1024,
        c="rp_pull_config.bulk_count",
    )
    bulk_pull_bytes: int = setting(
        2_097_152,
        "bulkPullBytes",
        "Most bytes in that answer; a quarter for messages that are probably not in memory.",
        unit="bytes",
        at_least=0,
        at_most=8_388_608,
        c="rp_pull_config.bulk_bytes",
    )
    slow_send_age_max_millis: int = setting(
        3_000,
        "slowSendAgeMaxMillis",
        "Age at which a send of the slow path (new topic, retry topic) gets SYSTEM_BUSY: its client may have "
        "sent the message again. Raise it where sendMsgTimeout of producers is longer. Only with "
        "brokerFastFailureEnable.",
        unit="ms",
        effect=Effect.AT_ONCE,
        at_least=200,
    )
    stop_timeout_millis: int = setting(
        10_000,
        "stopTimeoutMillis",
        "Time that a clean stop waits for requests in progress before it kills the workers. Then the exit status is "
        "1, and the next start recovers the store.",
        unit="ms",
        at_least=1,
    )
    worker_heartbeat_timeout_millis: int = setting(
        10_000,
        "workerHeartbeatTimeoutMillis",
        "A worker whose loop stands still for this long is killed and replaced. Shorter finds a hung one sooner, and "
        "mistakes a slow disk for one.",
        unit="ms",
        at_least=3_000,
    )
    topics_max: int = setting(
        100_000,
        "topicsMax",
        "Most topics; a new one beyond it is refused. Sends and heartbeats create topics (autoCreateTopicEnable, "
        "retry topics). Dead letters are always stored.",
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
        "Most consumer offsets (100 bytes each), one per group, topic and queue.",
        unit="offsets",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    queue_locks_max: int = setting(
        10_000,
        "queueLocksMax",
        "Most queue locks of ordered consumers (400 bytes each), one per group and queue. The file queuelocks keeps "
        "them over a restart: 10000 with the longest ASCII names, 90000 with usual ones; with more it keeps none.",
        unit="locks",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    stats_items_max: int = setting(
        50_000,
        "statsItemsMax",
        "Most items of statistics by name (statsAll, consumerProgress, rocketmq_* metrics), up to 1.5 KB each: two "
        "per topic, two per topic and group, one per queue of these. Beyond it only totals count. An item that "
        "counts nothing for a day is dropped.",
        unit="items",
        effect=Effect.AT_ONCE,
        at_least=1,
        at_most=1_000_000,
    )
    backlog_alarm_messages: int = setting(
        1_000_000,
        "backlogAlarmMessages",
        "A group with more unconsumed messages of a topic is logged (at most one line in five minutes) and counted "
        "by rocketpy_consumer_backlog_alarms. 0: never.",
        unit="messages",
        effect=Effect.AT_ONCE,
        at_least=0,
    )
    backlog_alarm_age_millis: int = setting(
        0,
        "backlogAlarmAgeMillis",
        "The same for the age of a group's oldest unconsumed message. 0: never. Delete unused groups first (mqadmin "
        "deleteSubGroup -r): they are behind for ever.",
        unit="ms",
        effect=Effect.AT_ONCE,
        at_least=0,
    )
    client_groups_max: int = setting(
        1_024,
        "clientGroupsMax",
        "Most consumer groups, and most producer groups, of one connection.",
        unit="groups",
        effect=Effect.AT_ONCE,
        at_least=1,
        at_most=65_536,
    )
    group_topics_max: int = setting(
        4_096,
        "groupTopicsMax",
        "Most topics of a consumer in one group.",
        unit="topics",
        effect=Effect.AT_ONCE,
        at_least=1,
        at_most=65_536,
    )
    brokers_max: int = setting(
        3_000,
        "brokersMax",
        "Name server: most broker addresses, masters and slaves; a new one beyond it is refused. Default: 1000 "
        "masters (topicBrokersMax) with two slaves each.",
        unit="brokers",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    topic_routes_max: int = setting(
        4_000_000,
        "topicRoutesMax",
        "Name server: most topics of all brokers (150 bytes each), counted per broker. A registration beyond it is "
        "refused.",
        unit="routes",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    topic_brokers_max: int = setting(
        1_000,
        "topicBrokersMax",
        "Name server: most masters of one topic, which bounds a route. A registration beyond it is refused. Every "
        "master has the system topics: a larger cluster needs more.",
        unit="brokers",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    admin_addresses: str = setting(
        "",
        "adminAddresses",
        "Addresses and networks (10.0.0.7,10.1.0.0/16) whose administrative requests are served besides this "
        "machine's; others get NO_PERMISSION. Needed if bindAddress is not loopback or a proxy on this machine lets "
        "others in.",
    )
    acl_strict: bool = setting(
        True,
        "aclStrict",
        "With aclEnable: check every request code. Off: as RocketMQ 4.9, where most codes need a signature alone.",
    )
    acl_broker_accounts: str = setting(
        "",
        "aclBrokerAccounts",
        "Access keys, comma-separated, of the accounts by which brokers call each other and name servers.",
    )
    admin_trusts_loopback: bool = setting(
        True,
        "adminTrustsLoopback",
        "Serve administrative requests of this machine. Off: only those of adminAddresses, for a machine with "
        "untrusted users or a proxy that does not name its clients.",
    )
    proxy_protocol_from: str = setting(
        "",
        "proxyProtocolFrom",
        "Addresses and networks of proxies, comma-separated. Their connections must begin with a PROXY header "
        "(HAProxy, version 1 or 2), else they are closed; adminAddresses, born hosts and logs use the client that it "
        "names. Other connections have no header: give a proxy on this machine an address of its own (127.0.0.2), so "
        "that local tools need none.",
    )
    advertised_addresses: str = setting(
        "",
        "advertisedAddresses",
        "Addresses of the broker for clients and slaves that cannot use brokerIP1, `WHERE=HOST:PORT` separated by `;`. "
        "WHERE: a network of clients, or the name of a listener of the name server. PORT - 2 and PORT + 1 must lead to "
        "the broker's ports, too. Slaves are given HOST and PORT + 1 unless brokerIP2 is set.",
        default_text="none: brokerIP1 for all",
    )
    listeners: str = setting(
        "",
        "listeners",
        "Further ports of a name server, `NAME=HOST:PORT` separated by `;`. A client that asks there gets the "
        "addresses that brokers advertise under NAME.",
        default_text="none",
    )
    timer_max_delay_sec: int = setting(
        259_200,
        "timerMaxDelaySec",
        "Longest delay of a timer (TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, __STARTDELIVERTIME); a longer "
        "one is refused. Pending timers of a log file to be deleted are stored again.",
        unit="s",
        at_least=1,
        at_most=31_536_000,
        c="rp_send_config.timer_max_delay_ms",
    )
    metrics_host: str = setting(
        "127.0.0.1",
        "metricsHost",
        "Address of the Prometheus endpoint, which has no authentication.",
    )
    metrics_port: int = setting(
        METRICS_PORT_FREE,
        "metricsPort",
        "Port of the Prometheus endpoint, `/metrics`. 0: off. -1: a broker takes 5557 or the next free port, and "
        "logs it. The start fails if a given port is in use.",
        default_text="broker -1, name server 0",
        at_least=METRICS_PORT_FREE,
        at_most=65_535,
    )
    metrics_names: str = setting(
        "rocketpy,exporter",
        "metricsNames",
        "Names under which a broker shows its metrics, comma-separated: `rocketpy`; `exporter`: those of "
        "rocketmq-exporter; `rocketmq5`: names of a 5.x broker; `rocketmq5_units`: its names with units.",
    )
    metrics_use_tls: bool = setting(
        False,
        "metricsUseTLS",
        "Serve metrics by HTTPS only, with the certificate of the server. Certificates of clients are asked for as "
        "`tls.server.need.client.auth` says. Needs tls.server.mode permissive or enforcing.",
    )
    log_level: str = setting(
        "INFO",
        "logLevel",
        "DEBUG, INFO, WARNING or ERROR; the log goes to standard error.",
        effect=Effect.AT_RESTART,
    )
    log_format: str = setting(
        "text",
        "logFormat",
        "text, or json: each line is an object with `event` (the text without values), level, time, process, message, "
        "and the connection, opaque, topic, group, queue and offset that it names; request, code and durationMs of "
        "requestLogSample.",
        effect=Effect.AT_RESTART,
    )
    request_log_sample: int = setting(
        0,
        "requestLogSample",
        "Every Nth request that a worker answers is logged, with code and duration; 0: none. Lines of sends and pulls "
        "are dropped while the manager is behind: rocketpy_worker_request_log_dropped_total.",
        effect=Effect.AT_RESTART,
        c="rp_send_config.request_log_sample rp_pull_config.request_log_sample",
    )

    @property
    def shown_names(self) -> tuple[str, ...]:
        """The names of metricsNames."""
        return tuple(dict.fromkeys(name for name in map(str.strip, self.metrics_names.split(",")) if name))

    @property
    def kept_memory_bytes(self) -> int:
        """The part of sharedMemoryMax for the manager's tables, which survive a restart of the manager."""
        return int(self.shared_memory_max * KEPT_SHARE)

    @property
    def ring_memory_max(self) -> int:
        """The share of sharedMemoryMax for all rings together, bytes."""
        return self.shared_memory_max - self.kept_memory_bytes
