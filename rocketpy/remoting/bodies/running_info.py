"""The state that a consumer reports: ConsumerRunningInfo (307), ConsumeMessageDirectlyResult (309)."""

from __future__ import annotations

from enum import StrEnum

from rocketpy.message.message_queue import MessageQueue

from .heartbeat import SubscriptionData
from .schema import Body, body, wire

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
