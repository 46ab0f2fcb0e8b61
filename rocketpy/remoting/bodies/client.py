"""Clients: how they introduce themselves (34, 46), which are connected (203, 204, 328), and the state that a consumer
reports (307, 309).
"""

from __future__ import annotations

from enum import StrEnum

from rocketpy.codes import LanguageCode
from rocketpy.message.message_queue import MessageQueue

from .schema import Body, Int, body, wire

EXPRESSION_TYPE_TAG = "TAG"
EXPRESSION_TYPE_SQL92 = "SQL92"
SUB_ALL = "*"


class ConsumeFromWhere(StrEnum):
    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ConsumeType(StrEnum):
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"  # pull consumers
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"  # push consumers
    CONSUME_POP = "CONSUME_POP"  # 5.x


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


@body
class SubscriptionData(Body):
    """One subscription. Tag codes are to be computed from the tags: Go sends its code set as texts, or empty."""

    class_filter_mode: bool = wire("classFilterMode", default=False)
    code_set: list[Int] = wire("codeSet", factory=list)
    expression_type: str = wire("expressionType", default=EXPRESSION_TYPE_TAG)
    sub_string: str = wire("subString", default=SUB_ALL)
    sub_version: int = wire("subVersion", default=0)
    tags_set: list[str] = wire("tagsSet", factory=list)
    topic: str = wire("topic", default="")


@body
class ConsumerData(Body):
    consume_from_where: ConsumeFromWhere = wire("consumeFromWhere", default=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    consume_type: ConsumeType = wire("consumeType", default=ConsumeType.CONSUME_PASSIVELY)
    group_name: str = wire("groupName", default="")
    message_model: MessageModel = wire("messageModel", default=MessageModel.CLUSTERING)
    subscription_data_set: list[SubscriptionData] = wire("subscriptionDataSet", factory=list)
    unit_mode: bool = wire("unitMode", default=False)


@body
class ProducerData(Body):
    group_name: str = wire("groupName", default="")


@body
class HeartbeatData(Body):
    client_id: str = wire("clientID", default="")
    consumer_data_set: list[ConsumerData] = wire("consumerDataSet", factory=list)
    producer_data_set: list[ProducerData] = wire("producerDataSet", factory=list)


@body
class CheckClientRequestBody(Body):
    client_id: str = wire("clientId", default="")
    group: str = wire("group", default="")
    subscription_data: SubscriptionData = wire("subscriptionData", factory=SubscriptionData)
    namespace: str | None = wire("namespace", default=None)


@body
class Connection(Body):
    client_addr: str = wire("clientAddr", default="")
    client_id: str = wire("clientId", default="")
    language: LanguageCode | None = wire("language", default=None)
    version: Int = wire("version", default=0)


@body
class DifferingSubscription(Body):
    """A subscription that `members` of a group have, unlike others of it. Of rocketpy alone."""

    client_id: str = wire("clientId", default="")  # one of them
    members: Int = wire("members", default=0)
    text: str = wire("text", default="")


@body
class ConsumerConnection(Body):
    connection_set: list[Connection] = wire("connectionSet", factory=list)
    consume_from_where: ConsumeFromWhere | None = wire("consumeFromWhere", default=None)
    consume_type: ConsumeType | None = wire("consumeType", default=None)
    message_model: MessageModel | None = wire("messageModel", default=None)
    subscription_table: dict[str, SubscriptionData] = wire("subscriptionTable", factory=dict)
    differing_subscriptions: list[DifferingSubscription] | None = wire("differingSubscriptions", default=None)


@body
class ProducerConnection(Body):
    connection_set: list[Connection] = wire("connectionSet", factory=list)


@body
class ProducerInfo(Body):
    client_id: str = wire("clientId", default="")
    language: LanguageCode | None = wire("language", default=None)
    last_update_timestamp_ms: int = wire("lastUpdateTimestamp", default=0)
    remote_ip: str = wire("remoteIP", default="")  # "/ip:port"
    version: Int = wire("version", default=0)


@body
class ProducerTableInfo(Body):
    data: dict[str, list[ProducerInfo]] = wire("data", factory=dict)


PROP_NAMESERVER_ADDR = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP = "PROP_CONSUMER_START_TIMESTAMP"


@body
class ProcessQueueInfo(Body):
    cached_msg_count: int = wire("cachedMsgCount", default=0)
    cached_msg_max_offset: int = wire("cachedMsgMaxOffset", default=0)
    cached_msg_min_offset: int = wire("cachedMsgMinOffset", default=0)
    cached_msg_size_in_mib: int = wire("cachedMsgSizeInMiB", default=0)
    commit_offset: int = wire("commitOffset", default=0)
    dropped: bool = wire("droped", default=False, aliases=("dropped",))  # so spelled in Java; Go has two p
    last_consume_timestamp_ms: int = wire("lastConsumeTimestamp", default=0)
    last_lock_timestamp_ms: int = wire("lastLockTimestamp", default=0)
    last_pull_timestamp_ms: int = wire("lastPullTimestamp", default=0)
    locked: bool = wire("locked", default=False)
    transaction_msg_count: int = wire("transactionMsgCount", default=0)
    transaction_msg_max_offset: int = wire("transactionMsgMaxOffset", default=0)
    transaction_msg_min_offset: int = wire("transactionMsgMinOffset", default=0)
    try_unlock_times: int = wire("tryUnlockTimes", default=0)


@body
class ConsumeStatus(Body):
    """Rates per second, times in ms."""

    consume_failed_msgs: int = wire("consumeFailedMsgs", default=0)
    consume_failed_tps: float = wire("consumeFailedTPS", default=0.0)
    consume_ok_tps: float = wire("consumeOKTPS", default=0.0)
    consume_rt_ms: float = wire("consumeRT", default=0.0)
    pull_rt_ms: float = wire("pullRT", default=0.0)
    pull_tps: float = wire("pullTPS", default=0.0)


@body
class ConsumerRunningInfo(Body):
    jstack: str | None = wire("jstack", default=None)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = wire("mqTable", factory=dict)
    properties: dict[str, str] = wire("properties", factory=dict)
    status_table: dict[str, ConsumeStatus] = wire("statusTable", factory=dict)
    subscription_set: list[SubscriptionData] = wire("subscriptionSet", factory=list)


class CMResult(StrEnum):
    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


@body
class ConsumeMessageDirectlyResult(Body):
    auto_commit: bool = wire("autoCommit", default=True)
    consume_result: CMResult | None = wire("consumeResult", default=None)
    order: bool = wire("order", default=False)
    remark: str | None = wire("remark", default=None)
    spent_time_ms: int = wire("spentTimeMills", default=0)
