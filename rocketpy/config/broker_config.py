"""BrokerConfig: who the broker is and how it serves clients. Keys and defaults are the reference's (4.9)."""

from __future__ import annotations

import attrs

from .filter_config import FilterConfig
from .setting import LONG_MAX, Effect, setting

# The send and pull workers read these when they start; one line to change when they are told of updates.
_IN_FAST_PATH = Effect.AT_RESTART


@attrs.frozen(kw_only=True)
class BrokerConfig(FilterConfig):
    """Frozen; a run-time update makes a new one."""

    namesrv_addr: str | None = setting(
        None,
        "namesrvAddr",
        "The name servers, `host:port` separated by `;`. The broker registers with every one of them. Given with -n "
        "it wins over the file, and the file over the environment. Without a name server no client finds the broker.",
        effect=Effect.AT_ONCE,
        important=True,
        default_text="environment NAMESRV_ADDR",
    )
    broker_ip1: str = setting(
        "",
        "brokerIP1",
        "The address that clients are told to dial, and that is written into each message as its store host. "
        "Left out, it is bindAddress when that names one interface; when the broker listens on all of them it is the "
        "first IPv4 address that is neither loopback nor 192.168.*, else the last IPv4, else the first IPv6, bridges "
        "skipped. Set it on hosts with several networks and in containers.",
        important=True,
        default_text="bindAddress, else detected",
    )
    broker_ip2: str = setting(
        "",
        "brokerIP2",
        "The address that slaves dial for replication (port listenPort + 1).",
        default_text="brokerIP1",
    )
    broker_name: str = setting(
        "",
        "brokerName",
        "Name of the master and its slaves together; clients see it in every MessageQueue. "
        "Two masters of one name destroy each other's routes.",
        important=True,
        default_text="host name",
    )
    broker_cluster_name: str = setting(
        "DefaultCluster",
        "brokerClusterName",
        "Cluster that the broker joins; every message carries it in its CLUSTER property.",
        important=True,
    )
    broker_id: int = setting(
        0,
        "brokerId",
        "0 is the master, 1 and up are slaves.",
        important=True,
        at_most=LONG_MAX,
    )
    broker_permission: int = setting(
        6,
        "brokerPermission",
        "2 write, 4 read, 6 both. Without write, routes say so and producers turn to other brokers; "
        "sends that arrive all the same are refused (16).",
        effect=Effect.AT_ONCE,
        at_most=7,
    )
    default_topic_queue_nums: int = setting(
        8,
        "defaultTopicQueueNums",
        "Most queues that a topic created by its first send gets. More queues let more consumers share a topic; "
        "each costs one small file and some bytes of memory.",
        at_least=1,
    )
    auto_create_topic_enable: bool = setting(
        True,
        "autoCreateTopicEnable",
        "A send to an unknown topic creates it. Convenient; but a mistyped name becomes a topic, and the "
        "topic exists only on brokers that happened to get a message. Most sites turn it off in production.",
        effect=Effect.AT_ONCE,
        important=True,
    )
    cluster_topic_enable: bool = setting(
        True,
        "clusterTopicEnable",
        "Topics may be created by inheriting from the topic named like the cluster.",
    )
    broker_topic_enable: bool = setting(
        True,
        "brokerTopicEnable",
        "Topics may be created by inheriting from the topic named like the broker.",
    )
    auto_create_subscription_group: bool = setting(
        True,
        "autoCreateSubscriptionGroup",
        "An unknown consumer group is created by its first use. Off: consumers of unknown groups are refused.",
        effect=Effect.AT_ONCE,
        important=True,
    )
    message_store_plug_in: str = setting(
        "",
        "messageStorePlugIn",
        "Java classes to wrap the store in.",
        only_default="Java classes cannot be loaded here",
    )
    msg_trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC",
        "msgTraceTopicName",
        "Topic that clients send their trace data to.",
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
        "Processes that serve pulls, when pullWorkers is not given.",
        unit="processes",
        default_text="pullWorkers",
        at_least=1,
    )
    query_message_thread_pool_nums: int = setting(
        0,
        "queryMessageThreadPoolNums",
        "Processes that answer queries of messages and offsets, when queryWorkers is not given. Without query workers, "
        "1 is shown: the manager.",
        unit="processes",
        default_text="queryWorkers",
    )
    flush_consumer_offset_interval: int = setting(
        5_000,
        "flushConsumerOffsetInterval",
        "How often consumer offsets are written to consumerOffset.json. What is lost by a crash in between is "
        "consumed again.",
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
        "How long a half message may be open before its producer is asked. A message may have a longer time: property "
        "CHECK_IMMUNITY_TIME_IN_SECONDS.",
        unit="ms",
        at_least=0,
        effect=Effect.AT_ONCE,
        important=True,
    )
    transaction_check_max: int = setting(
        15,
        "transactionCheckMax",
        "How often the producers of a half message are asked. Then it is moved to TRANS_CHECK_MAX_TIME_TOPIC, and is "
        "not delivered.",
        unit="checks",
        at_least=0,
        effect=Effect.AT_ONCE,
        important=True,
    )
    transaction_check_interval: int = setting(
        60_000,
        "transactionCheckInterval",
        "How often open half messages are looked at.",
        unit="ms",
        at_least=1,
        important=True,
    )
    fetch_namesrv_addr_by_address_server: bool = setting(
        False,
        "fetchNamesrvAddrByAddressServer",
        "Ask the HTTP service rmqAddressServerDomain for the name servers, every two minutes, when namesrvAddr is not "
        "given.",
        important=True,
    )
    rmq_address_server_domain: str | None = setting(
        None,
        "rmqAddressServerDomain",
        "Host, or `host:port` (else port 8080), of the service that names the name servers: "
        "`http://DOMAIN/rocketmq/SUBGROUP` answers `host:port;host:port`.",
    )
    rmq_address_server_sub_group: str = setting(
        "nsaddr",
        "rmqAddressServerSubGroup",
        "The last part of the path that is asked of rmqAddressServerDomain.",
    )
    pull_thread_pool_queue_capacity: int = setting(
        100_000,
        "pullThreadPoolQueueCapacity",
        "Pulls that may be suspended (long polling), and for each 512 bytes; a connection may have an eighth. Several "
        "pull workers share them equally.",
        unit="requests",
    )
    reply_thread_pool_queue_capacity: int = setting(
        10_000,
        "replyThreadPoolQueueCapacity",
        "Replies (324, 325) that may wait; one more is answered SYSTEM_BUSY.",
        unit="requests",
        at_least=1,
    )
    store_reply_message_enable: bool = setting(
        True,
        "storeReplyMessageEnable",
        "Store replies of request-reply in their topic, too. They are pushed to the client that waits in any case.",
        effect=Effect.AT_ONCE,
    )
    query_thread_pool_queue_capacity: int = setting(
        20_000,
        "queryThreadPoolQueueCapacity",
        "Queries that may wait in each process that answers them; one more is answered SYSTEM_BUSY.",
        unit="requests",
        at_least=1,
    )
    heartbeat_thread_pool_queue_capacity: int = setting(
        50_000,
        "heartbeatThreadPoolQueueCapacity",
        "Heartbeats, and requests of clients that leave, that may wait; one more is answered SYSTEM_BUSY.",
        unit="requests",
        at_least=1,
    )
    broker_fast_failure_enable: bool = setting(
        True,
        "brokerFastFailureEnable",
        "Answer requests that have waited too long with SYSTEM_BUSY instead of serving them late. A producer "
        "of 4.x does not retry that answer; off, overload shows as latency and client timeouts.",
        effect=_IN_FAST_PATH,
    )
    wait_time_mills_in_send_queue: int = setting(
        200,
        "waitTimeMillsInSendQueue",
        "Age at which a waiting send is answered SYSTEM_BUSY.",
        unit="ms",
        effect=_IN_FAST_PATH,
        at_most=LONG_MAX,
    )
    wait_time_mills_in_pull_queue: int = setting(
        5_000,
        "waitTimeMillsInPullQueue",
        "Age at which a waiting pull is answered SYSTEM_BUSY.",
        unit="ms",
        effect=_IN_FAST_PATH,
        at_most=LONG_MAX,
    )
    wait_time_mills_in_heartbeat_queue: int = setting(
        31_000,
        "waitTimeMillsInHeartbeatQueue",
        "Age at which a waiting heartbeat is answered SYSTEM_BUSY.",
        unit="ms",
        at_most=LONG_MAX,
    )
    start_accept_send_request_time_stamp: int = setting(
        0,
        "startAcceptSendRequestTimeStamp",
        "Sends are refused before this moment (milliseconds since 1970).",
        unit="ms since 1970",
        effect=_IN_FAST_PATH,
        at_most=LONG_MAX,
    )
    trace_on: bool = setting(
        True,
        "traceOn",
        "Send and pull replies ask clients to trace.",
        effect=_IN_FAST_PATH,
    )
    compressed_register: bool = setting(
        False,
        "compressedRegister",
        "Send the topic table to name servers deflated. Smaller; but loses topicSysFlag and the order flag.",
        effect=Effect.AT_ONCE,
    )
    force_register: bool = setting(
        True,
        "forceRegister",
        "Register in full each period. Off: only when a name server says that its data differs.",
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
        "Check signatures and permissions (plain_acl.yml).",
        important=True,
        only_default="access control is not built; a broker that ignored this switch would be open",
    )
    enable_detail_stat: bool = setting(
        True,
        "enableDetailStat",
        "Keep statistics by queue: GROUP_GET_LATENCY of each, and QUEUE_PUT_* and QUEUE_GET_* of the delay levels. "
        "They count against statsItemsMax.",
        effect=Effect.AT_ONCE,
    )
    auto_delete_unused_stats: bool = setting(
        False,
        "autoDeleteUnusedStats",
        "Drop the statistics of topics and groups that are deleted.",
        effect=Effect.AT_ONCE,
    )
    config_black_list: str = setting(
        "configBlackList;brokerConfigPath",
        "configBlackList",
        "Keys, separated by `;`, that cannot be changed at run time (brokerConfigPath and rocketmqHome never can).",
        effect=Effect.REFUSED,
    )
    long_polling_enable: bool = setting(
        True,
        "longPollingEnable",
        "Suspend a pull that finds nothing until a message arrives or its time is up. Off: suspend it for "
        "shortPollingTimeMills.",
        effect=_IN_FAST_PATH,
    )
    short_polling_time_mills: int = setting(
        1_000,
        "shortPollingTimeMills",
        "How long pulls are suspended while longPollingEnable is off.",
        unit="ms",
        effect=_IN_FAST_PATH,
        at_most=LONG_MAX,
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True,
        "notifyConsumerIdsChangedEnable",
        "Tell the members of a group at once when one joins or leaves. Off: they notice within 20 s.",
        effect=Effect.AT_ONCE,
    )
    region_id: str = setting("DefaultRegion", "regionId", "MSG_REGION of send and pull replies; used in traces.")
    register_broker_timeout_mills: int = setting(
        6_000,
        "registerBrokerTimeoutMills",
        "How long to wait for a name server's answer.",
        unit="ms",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    slave_read_enable: bool = setting(
        False,
        "slaveReadEnable",
        "Direct consumers that read old messages to the slave.",
        effect=_IN_FAST_PATH,
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        False,
        "disableConsumeIfConsumerReadSlowly",
        "Switch a group off when it falls further behind than consumerFallbehindThreshold. Protects the disk from "
        "cold reads at the price of stopping that group, until it is switched on again. Looked at each 3 minutes.",
        effect=Effect.AT_ONCE,
    )
    consumer_fallbehind_threshold: int = setting(
        17_179_869_184,
        "consumerFallbehindThreshold",
        "How far behind the end of the log a group may read with disableConsumeIfConsumerReadSlowly.",
        unit="bytes",
        effect=Effect.AT_ONCE,
        at_least=0,
        at_most=LONG_MAX,
    )
