"""BrokerConfig: who the broker is and how it serves clients. Keys and defaults are the reference's (4.9)."""

from __future__ import annotations

import attrs

from rocketpy.values import Value

from .setting import LONG_MAX, Effect, setting

# The send and pull workers read these when they start; one line to change when they are told of updates.
_IN_FAST_PATH = Effect.AT_RESTART


@attrs.frozen(eq=False, repr=False, kw_only=True)
class FilterConfig(Value):
    """SQL92 filters: part of BrokerConfig."""

    enable_property_filter: bool = setting(
        False,
        "enablePropertyFilter",
        "Accept SQL92 subscriptions. Off: they are refused.",
        important=True,
    )
    enable_calc_filter_bit_map: bool = setting(
        False,
        "enableCalcFilterBitMap",
        "Evaluate a topic's SQL92 subscriptions once per new message and keep the result as filter bits, so that "
        "pulls skip messages. Needs enableConsumeQueueExt. Worth it with several groups or few matches.",
    )
    expect_consumer_num_use_filter: int = setting(
        32,
        "expectConsumerNumUseFilter",
        "Groups that filter one topic by SQL92; with maxErrorRateOfBloomFilter it gives the number of filter bits "
        "(112). A change makes stored filter bits useless.",
        at_least=1,
        at_most=1_000,
    )
    max_error_rate_of_bloom_filter: int = setting(
        20,
        "maxErrorRateOfBloomFilter",
        "Tolerated share of false matches of filter bits.",
        unit="percent",
        at_least=1,
        at_most=99,
    )
    filter_support_retry: bool = setting(
        False,
        "filterSupportRetry",
        "Filter a group's retry topic by its SQL92 subscription to the original topic.",
        effect=Effect.AT_RESTART,
        c="rp_pull_config.filter_retries",
    )
    filter_data_clean_time_span: int = setting(
        86_400_000,
        "filterDataCleanTimeSpan",
        "Time that the SQL92 subscription of a group that has left is kept, with its filter bits.",
        unit="ms",
        effect=Effect.AT_ONCE,
        at_most=LONG_MAX,
    )


@attrs.frozen(eq=False, repr=False, kw_only=True)
class BrokerConfig(FilterConfig):
    """Frozen; a run-time update makes a new one."""

    namesrv_addr: str | None = setting(
        None,
        "namesrvAddr",
        "Name servers, `host:port` separated by `;`; the broker registers with each. -n wins over the file, the file "
        "over the environment. Without one no client finds the broker.",
        effect=Effect.AT_ONCE,
        important=True,
        default_text="environment NAMESRV_ADDR",
    )
    broker_ip1: str = setting(
        "",
        "brokerIP1",
        "Address that clients dial, and store host of messages. If the broker listens on all interfaces: the first "
        "IPv4 address but loopback and 192.168.*, else the last IPv4, else the first IPv6, bridges skipped. Set it "
        "on hosts with several networks and in containers.",
        important=True,
        default_text="bindAddress, else detected",
    )
    broker_ip2: str = setting(
        "",
        "brokerIP2",
        "Address that slaves dial for replication (port listenPort + 1).",
        default_text="brokerIP1",
    )
    broker_name: str = setting(
        "",
        "brokerName",
        "Name of a master and its slaves, in every MessageQueue. Two masters of one name destroy each other's routes.",
        important=True,
        default_text="host name",
    )
    broker_cluster_name: str = setting(
        "DefaultCluster",
        "brokerClusterName",
        "Cluster of the broker, and CLUSTER property of every message.",
        important=True,
    )
    broker_id: int = setting(
        0,
        "brokerId",
        "0: master; 1 and up: slave.",
        important=True,
        at_most=LONG_MAX,
    )
    broker_permission: int = setting(
        6,
        "brokerPermission",
        "2 write, 4 read, 6 both. Without write, routes send producers to other brokers, and sends are refused (16).",
        effect=Effect.AT_ONCE,
        at_most=7,
    )
    default_topic_queue_nums: int = setting(
        8,
        "defaultTopicQueueNums",
        "Most queues of a topic created by its first send. More let more consumers share it; each costs a small file.",
        at_least=1,
        at_most=65_536,
    )
    auto_create_topic_enable: bool = setting(
        True,
        "autoCreateTopicEnable",
        "A send to an unknown topic creates it, on this broker only; a mistyped name becomes a topic. Most sites "
        "turn it off in production.",
        effect=Effect.AT_ONCE,
        important=True,
    )
    cluster_topic_enable: bool = setting(
        True,
        "clusterTopicEnable",
        "New topics may inherit from the topic named like the cluster.",
    )
    broker_topic_enable: bool = setting(
        True,
        "brokerTopicEnable",
        "New topics may inherit from the topic named like the broker.",
    )
    auto_create_subscription_group: bool = setting(
        True,
        "autoCreateSubscriptionGroup",
        "The first use creates a consumer group. Off: unknown groups are refused.",
        effect=Effect.AT_ONCE,
        important=True,
    )
    message_store_plug_in: str = setting(
        "",
        "messageStorePlugIn",
        "Java classes to wrap the store in.",
        only_default="Java classes cannot be loaded",
    )
    msg_trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC",
        "msgTraceTopicName",
        "Topic for trace data of clients.",
        important=True,
    )
    trace_topic_enable: bool = setting(
        False,
        "traceTopicEnable",
        "Create the trace topic at start.",
        important=True,
    )
    pull_message_thread_pool_nums: int = setting(
        1,
        "pullMessageThreadPoolNums",
        "Used if pullWorkers is not given.",
        unit="processes",
        default_text="pullWorkers",
        at_least=1,
    )
    query_message_thread_pool_nums: int = setting(
        0,
        "queryMessageThreadPoolNums",
        "Used if queryWorkers is not given. Shown as 1, the manager, without query workers.",
        unit="processes",
        default_text="queryWorkers",
    )
    flush_consumer_offset_interval: int = setting(
        5_000,
        "flushConsumerOffsetInterval",
        "Time between writes of consumerOffset.json. After a crash, messages since the last write are read again.",
        unit="ms",
        at_least=1,
    )
    reject_transaction_message: bool = setting(
        False,
        "rejectTransactionMessage",
        "Refuse transactional (half) messages.",
        effect=Effect.AT_ONCE,
        important=True,
    )
    transaction_time_out: int = setting(
        6_000,
        "transactionTimeOut",
        "Age at which the producer of an open half message is asked; the message property "
        "CHECK_IMMUNITY_TIME_IN_SECONDS may raise it.",
        unit="ms",
        at_least=0,
        effect=Effect.AT_ONCE,
        important=True,
    )
    transaction_check_max: int = setting(
        15,
        "transactionCheckMax",
        "Checks of a half message; then it is moved to TRANS_CHECK_MAX_TIME_TOPIC, undelivered.",
        unit="checks",
        at_least=0,
        effect=Effect.AT_ONCE,
        important=True,
    )
    transaction_check_interval: int = setting(
        60_000,
        "transactionCheckInterval",
        "Time between looks at open half messages.",
        unit="ms",
        at_least=1,
        important=True,
    )
    fetch_namesrv_addr_by_address_server: bool = setting(
        False,
        "fetchNamesrvAddrByAddressServer",
        "Without namesrvAddr: ask the HTTP service rmqAddressServerDomain for the name servers every two minutes.",
        important=True,
    )
    rmq_address_server_domain: str | None = setting(
        None,
        "rmqAddressServerDomain",
        "Host or `host:port` (else port 8080) of that service: `http://DOMAIN/rocketmq/SUBGROUP` answers "
        "`host:port;host:port`.",
    )
    rmq_address_server_sub_group: str = setting(
        "nsaddr",
        "rmqAddressServerSubGroup",
        "SUBGROUP of that address.",
    )
    pull_thread_pool_queue_capacity: int = setting(
        100_000,
        "pullThreadPoolQueueCapacity",
        "Pulls that may be suspended (long polling), and 512 bytes for each, shared equally by pull workers; a "
        "connection may have an eighth of what is free.",
        unit="requests",
    )
    reply_thread_pool_queue_capacity: int = setting(
        10_000,
        "replyThreadPoolQueueCapacity",
        "Replies (324, 325) that may wait; more get SYSTEM_BUSY.",
        unit="requests",
        at_least=1,
    )
    store_reply_message_enable: bool = setting(
        True,
        "storeReplyMessageEnable",
        "Also store replies of request-reply in their topic. The waiting client gets them in any case.",
        effect=Effect.AT_ONCE,
    )
    query_thread_pool_queue_capacity: int = setting(
        20_000,
        "queryThreadPoolQueueCapacity",
        "Queries that may wait in each process that answers them; more get SYSTEM_BUSY.",
        unit="requests",
        at_least=1,
    )
    heartbeat_thread_pool_queue_capacity: int = setting(
        50_000,
        "heartbeatThreadPoolQueueCapacity",
        "Heartbeats and unregistrations of clients that may wait; more get SYSTEM_BUSY.",
        unit="requests",
        at_least=1,
    )
    broker_fast_failure_enable: bool = setting(
        True,
        "brokerFastFailureEnable",
        "Answer requests that waited too long with SYSTEM_BUSY, which a 4.x producer does not retry. Off: overload "
        "shows as latency and client timeouts.",
        effect=_IN_FAST_PATH,
        c="rp_send_config.fast_failure rp_pull_config.fast_failure",
    )
    wait_time_mills_in_send_queue: int = setting(
        200,
        "waitTimeMillsInSendQueue",
        "Age at which a waiting send gets SYSTEM_BUSY.",
        unit="ms",
        effect=_IN_FAST_PATH,
        at_most=LONG_MAX,
        c="rp_send_config.wait_time_in_queue_ms",
    )
    wait_time_mills_in_pull_queue: int = setting(
        5_000,
        "waitTimeMillsInPullQueue",
        "Age at which a waiting pull gets SYSTEM_BUSY.",
        unit="ms",
        effect=_IN_FAST_PATH,
        at_most=LONG_MAX,
        c="rp_pull_config.wait_time_in_queue_ms",
    )
    wait_time_mills_in_heartbeat_queue: int = setting(
        31_000,
        "waitTimeMillsInHeartbeatQueue",
        "Age at which a waiting heartbeat gets SYSTEM_BUSY.",
        unit="ms",
        at_most=LONG_MAX,
    )
    wait_time_mills_in_admin_broker_queue: int = setting(
        5_000,
        "waitTimeMillsInAdminBrokerQueue",
        "Age at which a waiting request of the pool `admin` gets SYSTEM_BUSY (of 5.x).",
        unit="ms",
        at_most=LONG_MAX,
    )
    start_accept_send_request_time_stamp: int = setting(
        0,
        "startAcceptSendRequestTimeStamp",
        "Refuse sends before this moment.",
        unit="ms since 1970",
        effect=_IN_FAST_PATH,
        at_most=LONG_MAX,
    )
    trace_on: bool = setting(
        True,
        "traceOn",
        "Send and pull replies ask clients to trace.",
        effect=_IN_FAST_PATH,
        c="rp_send_config.trace_on",
    )
    compressed_register: bool = setting(
        False,
        "compressedRegister",
        "Deflate the topic table for name servers; loses topicSysFlag and the order flag.",
        effect=Effect.AT_ONCE,
    )
    force_register: bool = setting(
        True,
        "forceRegister",
        "Register in full each period. Off: only if a name server's data differs.",
        effect=Effect.AT_ONCE,
    )
    register_name_server_period: int = setting(
        30_000,
        "registerNameServerPeriod",
        "Time between registrations; limited to 10 to 60 s.",
        unit="ms",
        at_least=1,
    )
    acl_enable: bool = setting(
        False,
        "aclEnable",
        "Serve requests of accounts only (conf/plain_acl.yml and conf/acl/ below rocketmqHome).",
        important=True,
    )
    acl_credentials_file: str | None = setting(
        None,
        "aclCredentialsFile",
        "File (access-control.md) of the account that signs this broker's requests to name servers and to its master.",
        effect=Effect.REFUSED,
    )
    enable_detail_stat: bool = setting(
        True,
        "enableDetailStat",
        "Keep statistics by queue (GROUP_GET_LATENCY; QUEUE_PUT_* and QUEUE_GET_* of delay levels), within "
        "statsItemsMax.",
        effect=Effect.AT_ONCE,
    )
    auto_delete_unused_stats: bool = setting(
        False,
        "autoDeleteUnusedStats",
        "Drop the statistics of deleted topics and groups.",
        effect=Effect.AT_ONCE,
    )
    config_black_list: str = setting(
        "configBlackList;brokerConfigPath",
        "configBlackList",
        "Keys, separated by `;`, that cannot change at run time; brokerConfigPath and rocketmqHome never can.",
        effect=Effect.REFUSED,
    )
    long_polling_enable: bool = setting(
        True,
        "longPollingEnable",
        "Suspend a pull that finds nothing until a message arrives or its time is up. Off: for shortPollingTimeMills.",
        effect=_IN_FAST_PATH,
        c="rp_pull_config.long_polling",
    )
    short_polling_time_mills: int = setting(
        1_000,
        "shortPollingTimeMills",
        "Suspension of a pull without longPollingEnable.",
        unit="ms",
        effect=_IN_FAST_PATH,
        at_most=LONG_MAX,
        c="rp_pull_config.short_polling_ms",
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True,
        "notifyConsumerIdsChangedEnable",
        "Tell the members of a group when one joins or leaves. Off: they notice within 20 s.",
        effect=Effect.AT_ONCE,
    )
    region_id: str = setting("DefaultRegion", "regionId", "MSG_REGION of send and pull replies, for traces.")
    register_broker_timeout_mills: int = setting(
        6_000,
        "registerBrokerTimeoutMills",
        "Time to wait for a name server's answer.",
        unit="ms",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    slave_read_enable: bool = setting(
        False,
        "slaveReadEnable",
        "Direct consumers of old messages to the slave.",
        effect=_IN_FAST_PATH,
        c="rp_pull_config.slave_read_enable",
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        False,
        "disableConsumeIfConsumerReadSlowly",
        "Every 3 minutes, switch off groups further behind than consumerFallbehindThreshold, to spare the disk, "
        "until they are switched on again.",
        effect=Effect.AT_ONCE,
    )
    consumer_fallbehind_threshold: int = setting(
        17_179_869_184,
        "consumerFallbehindThreshold",
        "Distance to the end of the log at which a group is switched off.",
        unit="bytes",
        effect=Effect.AT_ONCE,
        at_least=0,
        at_most=LONG_MAX,
    )
